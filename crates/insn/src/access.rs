//! Which bytes an instruction is about to access, given the registers.
//!
//! Pure functions over a [`RegisterState`]: no CPU is asked, so that the tests can compare with
//! one.

use crate::forms::{
    BitString, LaneShape, Mask, Masked, MemoryForm, Repeat, StateArea, StateTransfer,
    StringOperation, VectorIndexed, classify, memory_operand,
};
use crate::state::{RegisterState, SegmentBases, XSAVE_HEADER_END, XsaveLayout};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;
const DIRECTION_FLAG: u64 = 1 << 10;

/// A contiguous run of bytes that an instruction loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The lowest address.
    pub address: u64,
    /// Bytes; never 0.
    pub bytes: u64,
    /// A store, otherwise a load.
    pub write: bool,
}

/// Whether the addresses of this instruction wrap at 4 GiB (an address-size prefix).
fn has_narrow_addresses(insn: &Instruction) -> bool {
    match memory_operand(insn) {
        Some(_) => {
            let (base, index) = (insn.memory_base(), insn.memory_index());
            if base != Register::None {
                return base.size() == 4;
            }
            if index.is_gpr() && index.size() >= 4 {
                return index.size() == 4;
            }
            insn.memory_displ_size() == 4
        }
        None => match insn.mnemonic() {
            Mnemonic::Clzero => insn.op0_register() == Register::EAX,
            _ => (0..insn.op_count()).any(|operand| {
                matches!(
                    insn.op_kind(operand),
                    OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI
                )
            }),
        },
    }
}

fn truncate(address: u64, narrow: bool) -> u64 {
    if narrow {
        address & 0xFFFF_FFFF
    } else {
        address
    }
}

fn segment_base(segment: Register, segments: SegmentBases) -> u64 {
    match segment {
        Register::FS => segments.fs,
        Register::GS => segments.gs,
        _ => 0,
    }
}

/// The address of the instruction's memory operand, segment base included.
///
/// Handles RIP-relative operands, the address-size prefix, `fs` and `gs`, `xlatb`, and `pop
/// [rsp+…]`, whose address is computed with the incremented `rsp`. With a vector index it is the
/// address for index 0; with a bit string the address for bit 0. Without a memory operand it is 0.
#[must_use]
pub fn effective_address(insn: &Instruction, gpr: &[u64; 16], segments: SegmentBases) -> u64 {
    if memory_operand(insn).is_none() {
        return 0;
    }
    let offset = address_offset(insn, gpr, 0);
    if insn.mnemonic() == Mnemonic::Lea {
        return offset; // Computes an address, in no segment.
    }
    segment_base(insn.memory_segment(), segments).wrapping_add(offset)
}

/// The address within the segment, `index` being what a vector index register contributes.
fn address_offset(insn: &Instruction, gpr: &[u64; 16], vector_index: u64) -> u64 {
    // iced resolves RIP-relative displacements to the absolute address.
    let mut offset = insn.memory_displacement64();
    let base = insn.memory_base();
    if base.is_gpr() {
        offset = offset.wrapping_add(gpr[base.number()]);
        if insn.mnemonic() == Mnemonic::Pop && base.number() == RSP {
            offset = offset.wrapping_add(insn.memory_size().size() as u64);
        }
    }
    let index = insn.memory_index();
    if index == Register::AL {
        offset = offset.wrapping_add(gpr[RAX] & 0xFF);
    } else if index.is_gpr() {
        offset = offset
            .wrapping_add(gpr[index.number()].wrapping_mul(u64::from(insn.memory_index_scale())));
    } else {
        offset = offset.wrapping_add(vector_index);
    }
    truncate(offset, has_narrow_addresses(insn))
}

/// The address of element `element` of a gather or scatter; `indices` is the value of its index
/// register.
pub(crate) fn element_address(
    insn: &Instruction,
    vector: &VectorIndexed,
    state: &RegisterState<'_>,
    indices: &[u8; 64],
    element: usize,
) -> u64 {
    let index = if vector.index_bytes == 8 {
        i64::from_le_bytes(core::array::from_fn(|byte| indices[8 * element + byte]))
    } else {
        i64::from(i32::from_le_bytes(core::array::from_fn(|byte| {
            indices[4 * element + byte]
        })))
    };
    let scaled = (index as u64).wrapping_mul(u64::from(insn.memory_index_scale()));
    segment_base(insn.memory_segment(), state.segments)
        .wrapping_add(address_offset(insn, state.gpr, scaled))
}

/// Bit *i*: lane *i* is active. `lane_bytes` matters for masks in vector registers.
pub(crate) fn active_lanes(
    mask: Mask,
    lanes: u8,
    lane_bytes: u8,
    state: &RegisterState<'_>,
) -> u64 {
    let all = if lanes == 64 {
        u64::MAX
    } else {
        (1 << lanes) - 1
    };
    match mask {
        Mask::Opmask(number) => state.opmask(number) & all,
        Mask::Vector(number) => {
            let value = state.vector(number);
            let step = usize::from(lane_bytes);
            (0..usize::from(lanes))
                .filter(|lane| value[lane * step + step - 1] & 0x80 != 0)
                .fold(0, |set, lane| set | 1 << lane)
        }
    }
}

/// Which elements in memory the active lanes of a masked operand cover.
pub(crate) fn active_elements(masked: &Masked, active: u64) -> u64 {
    match masked.shape {
        LaneShape::Lanewise => active,
        LaneShape::Packed => match active.count_ones() {
            64 => u64::MAX,
            count => (1 << count) - 1,
        },
        LaneShape::Broadcast { elements } => (0..masked.lanes)
            .filter(|lane| active >> lane & 1 == 1)
            .fold(0, |set, lane| set | 1 << (lane % elements)),
    }
}

/// The maximal runs of set bits, as (first, count).
pub(crate) fn runs(mut set: u64) -> impl Iterator<Item = (u32, u32)> {
    core::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let first = set.trailing_zeros();
        let count = (!(set >> first)).trailing_zeros().min(64 - first);
        let run = if count == 64 {
            u64::MAX
        } else {
            ((1 << count) - 1) << first
        };
        set &= !run;
        Some((first, count))
    })
}

/// Joins accesses that continue each other.
struct Joiner<'f, F: FnMut(Access)> {
    pending: Option<Access>,
    out: &'f mut F,
}

impl<F: FnMut(Access)> Joiner<'_, F> {
    fn push(&mut self, address: u64, bytes: u64, write: bool) {
        match &mut self.pending {
            Some(run) if run.write == write && run.address.wrapping_add(run.bytes) == address => {
                run.bytes += bytes
            }
            _ => {
                self.finish();
                self.pending = Some(Access {
                    address,
                    bytes,
                    write,
                });
            }
        }
    }

    fn finish(&mut self) {
        if let Some(run) = self.pending.take() {
            (self.out)(run);
        }
    }
}

/// Reports the bytes that the instruction will load and store if it runs with these registers and
/// does not fault.
///
/// Loads come before the stores that depend on them, and runs are maximal: adjacent elements of one
/// direction that follow each other are joined. Exact for all forms but three, for which it is an
/// upper bound:
///
/// 1. Processor state: `xsaveopt` and `xsavec` skip components that are unchanged or in their
///    initial state, `xrstor` those whose bit in the area is clear.
/// 2. `repe`/`repne` `cmps` and `scas` stop at a mismatch or match; see [`string_accesses`] for
///    after the fact.
/// 3. A flush is reported as nothing, although it may fault.
///
/// A few instructions can fault on bytes that they do not access, and so that are not reported:
/// masked `vextract*` on inactive lanes, and `fxsave` on the last 48 bytes of its area. `movsxd`
/// with a 16-bit destination reads two bytes on Intel, as reported, and four on AMD.
///
/// # Errors
///
/// The reason, if the form is [`MemoryForm::Unsupported`]; nothing has been reported then.
pub fn element_accesses(
    insn: &Instruction,
    state: &RegisterState<'_>,
    out: &mut impl FnMut(Access),
) -> Result<(), &'static str> {
    let mut joiner = Joiner { pending: None, out };
    let operand = effective_address(insn, state.gpr, state.segments);
    match classify(insn) {
        MemoryForm::None | MemoryForm::Flush(_) => {}
        MemoryForm::Unsupported(reason) => return Err(reason),
        MemoryForm::StackImplicit => stack_accesses(insn, state.gpr, &mut joiner),
        MemoryForm::Explicit { effect } => {
            let size = u64::from(effect.size);
            // `pop [m]` reads the stack before it writes the operand, `push [m]` and `call [m]`
            // push what they read.
            if effect.read {
                joiner.push(operand, size, false);
            }
            if insn.is_stack_instruction() {
                joiner.finish();
                stack_accesses(insn, state.gpr, &mut joiner);
                joiner.finish();
            }
            if effect.write {
                joiner.push(operand, size, true);
            }
        }
        MemoryForm::Masked(masked) => {
            let active = active_lanes(masked.mask, masked.lanes, masked.lane_bytes, state);
            let lane = u64::from(masked.lane_bytes);
            for (first, count) in runs(active_elements(&masked, active)) {
                let address = operand.wrapping_add(u64::from(first) * lane);
                joiner.push(address, u64::from(count) * lane, masked.effect.write);
            }
        }
        MemoryForm::Gather(vector) | MemoryForm::Scatter(vector) => {
            let active = active_lanes(vector.mask, vector.elements, vector.element_bytes, state);
            let indices = state.vector(vector.index);
            for element in
                (0..usize::from(vector.elements)).filter(|element| active >> element & 1 == 1)
            {
                let address = element_address(insn, &vector, state, &indices, element);
                joiner.push(
                    address,
                    u64::from(vector.element_bytes),
                    vector.effect.write,
                );
            }
        }
        MemoryForm::ImplicitRdi(store) => {
            let address = implicit_rdi_address(insn, state);
            for (first, count) in runs(byte_mask(insn, store.mmx, state)) {
                joiner.push(
                    address.wrapping_add(u64::from(first)),
                    u64::from(count),
                    true,
                );
            }
        }
        MemoryForm::ImplicitRax { .. } => joiner.push(clzero_address(insn, state), 64, true),
        MemoryForm::RegisterAddress { .. } => {
            joiner.push(operand, 64, false);
            joiner.push(direct_store_address(insn, state), 64, true);
        }
        MemoryForm::BitString(bits) => {
            let address = bit_string_address(insn, &bits, state.gpr, state.segments);
            let size = u64::from(bits.effect.size);
            joiner.push(address, size, false);
            if bits.effect.write {
                joiner.push(address, size, true);
            }
        }
        MemoryForm::XState(transfer) => state_accesses(&transfer, operand, state, &mut joiner),
        MemoryForm::String(string) => {
            let count = string_count(insn, &string, state.gpr);
            report_string(
                insn,
                &string,
                state.gpr,
                state.rflags,
                state.segments,
                count,
                &mut joiner,
            );
        }
    }
    joiner.finish();
    Ok(())
}

/// Reports what a string instruction accessed in `iterations` repetitions that began with these
/// registers. After a `repe`/`repne` comparison that is how much `rcx` went down. Reports nothing
/// for other instructions.
pub fn string_accesses(
    insn: &Instruction,
    gpr: &[u64; 16],
    rflags: u64,
    segments: SegmentBases,
    iterations: u64,
    out: &mut impl FnMut(Access),
) {
    if let MemoryForm::String(string) = classify(insn) {
        let mut joiner = Joiner { pending: None, out };
        report_string(
            insn,
            &string,
            gpr,
            rflags,
            segments,
            iterations,
            &mut joiner,
        );
        joiner.finish();
    }
}

fn string_count(insn: &Instruction, string: &StringOperation, gpr: &[u64; 16]) -> u64 {
    match string.repeat {
        Repeat::Once => 1,
        _ => truncate(gpr[RCX], has_narrow_addresses(insn)),
    }
}

fn report_string<F: FnMut(Access)>(
    insn: &Instruction,
    string: &StringOperation,
    gpr: &[u64; 16],
    rflags: u64,
    segments: SegmentBases,
    count: u64,
    joiner: &mut Joiner<'_, F>,
) {
    if count == 0 {
        return;
    }
    let narrow = has_narrow_addresses(insn);
    let element = u64::from(string.element_bytes);
    let mut report = |register: usize, base: u64, write: bool| {
        let bytes = count.saturating_mul(element);
        let last = if rflags & DIRECTION_FLAG != 0 {
            (count - 1).wrapping_mul(element)
        } else {
            0
        };
        let lowest = truncate(gpr[register].wrapping_sub(last), narrow);
        // The register wraps at 4 GiB, the segment base is added afterwards.
        let first = if narrow {
            bytes.min((1 << 32) - lowest)
        } else {
            bytes
        };
        joiner.push(base.wrapping_add(lowest), first, write);
        joiner.finish();
        if first < bytes {
            joiner.push(base, bytes - first, write);
            joiner.finish();
        }
    };
    if string.reads_source {
        report(RSI, segment_base(insn.memory_segment(), segments), false);
    }
    if string.reads_destination {
        report(RDI, 0, false);
    }
    if string.writes_destination {
        report(RDI, 0, true);
    }
}

/// The address of the word that a bit-string instruction accesses.
#[must_use]
pub fn bit_string_address(
    insn: &Instruction,
    bits: &BitString,
    gpr: &[u64; 16],
    segments: SegmentBases,
) -> u64 {
    let value = gpr[usize::from(bits.offset)];
    // The offset is signed and of operand size; the CPU rounds it down to whole operands.
    let (offset, shift) = match bits.effect.size {
        2 => (i64::from(value as i16), 4),
        4 => (i64::from(value as i32), 5),
        _ => (value as i64, 6),
    };
    let distance = ((offset >> shift) as u64).wrapping_mul(u64::from(bits.effect.size));
    let base = segment_base(insn.memory_segment(), segments);
    let within = address_offset(insn, gpr, 0).wrapping_add(distance);
    base.wrapping_add(truncate(within, has_narrow_addresses(insn)))
}

pub(crate) fn implicit_rdi_address(insn: &Instruction, state: &RegisterState<'_>) -> u64 {
    let offset = truncate(state.gpr[RDI], has_narrow_addresses(insn));
    segment_base(insn.memory_segment(), state.segments).wrapping_add(offset)
}

/// Which bytes a byte-masked store writes.
pub(crate) fn byte_mask(insn: &Instruction, mmx: bool, state: &RegisterState<'_>) -> u64 {
    let number = insn.op2_register().number() as u8;
    let (narrow, wide) = (state.mmx(number % 8), state.vector(number));
    let mask: &[u8] = if mmx { &narrow } else { &wide[..16] };
    mask.iter()
        .enumerate()
        .filter(|(_, byte)| **byte & 0x80 != 0)
        .fold(0, |set, (at, _)| set | 1 << at)
}

pub(crate) fn clzero_address(insn: &Instruction, state: &RegisterState<'_>) -> u64 {
    let offset = truncate(state.gpr[RAX], has_narrow_addresses(insn));
    segment_base(insn.segment_prefix(), state.segments).wrapping_add(offset) & !63
}

/// Where `movdir64b` stores: the register operand, always relative to `es`, whose base is 0.
pub(crate) fn direct_store_address(insn: &Instruction, state: &RegisterState<'_>) -> u64 {
    let register = insn.op0_register();
    truncate(state.gpr[register.number()], register.size() == 4)
}

fn stack_accesses<F: FnMut(Access)>(
    insn: &Instruction,
    gpr: &[u64; 16],
    joiner: &mut Joiner<'_, F>,
) {
    let increment = i64::from(insn.stack_pointer_increment());
    match insn.mnemonic() {
        Mnemonic::Leave => joiner.push(gpr[RBP], increment_of_leave(insn), false),
        Mnemonic::Enter => {
            // Pushes rbp, then copies the enclosing frames' pointers, then pushes its own.
            let slot: u64 = if insn.code() == Code::Enterw_imm16_imm8 {
                2
            } else {
                8
            };
            let level = u64::from(insn.immediate8_2nd() & 31);
            let pushed = slot * (1 + level);
            if level > 1 {
                let copied = slot * (level - 1);
                joiner.push(gpr[RBP].wrapping_sub(copied), copied, false);
            }
            joiner.push(gpr[RSP].wrapping_sub(pushed), pushed, true);
        }
        _ if increment < 0 => {
            let bytes = increment.unsigned_abs();
            joiner.push(gpr[RSP].wrapping_sub(bytes), bytes, true);
        }
        Mnemonic::Ret | Mnemonic::Retf if insn.op_count() > 0 => {
            // `ret n` skips n bytes without reading them.
            let bytes = increment.unsigned_abs() - u64::from(insn.immediate16());
            joiner.push(gpr[RSP], bytes, false);
        }
        _ if increment > 0 => joiner.push(gpr[RSP], increment.unsigned_abs(), false),
        // 64-bit `iret` pops five words, which iced leaves out because `rsp` itself is among them.
        Mnemonic::Iret => joiner.push(gpr[RSP], 10, false),
        Mnemonic::Iretd => joiner.push(gpr[RSP], 20, false),
        Mnemonic::Iretq | Mnemonic::Erets | Mnemonic::Eretu => joiner.push(gpr[RSP], 40, false),
        Mnemonic::Uiret => joiner.push(gpr[RSP], 24, false),
        _ => {}
    }
}

fn increment_of_leave(insn: &Instruction) -> u64 {
    if insn.code() == Code::Leavew { 2 } else { 8 }
}

fn state_accesses<F: FnMut(Access)>(
    transfer: &StateTransfer,
    area: u64,
    state: &RegisterState<'_>,
    joiner: &mut Joiner<'_, F>,
) {
    let write = transfer.effect.write;
    let requested = state.gpr[RDX] << 32 | state.gpr[RAX] & 0xFFFF_FFFF;
    let mut part = |from: u32, to: u32, write: bool| {
        joiner.push(
            area.wrapping_add(u64::from(from)),
            u64::from(to - from),
            write,
        )
    };
    if transfer.area == StateArea::Fxsave {
        // The last 48 bytes belong to software: neither read nor written.
        return part(0, 464, write);
    }
    if write && transfer.effect.read {
        // Bits of XSTATE_BV that were not requested are kept, so the field is read.
        part(512, 520, false);
    }
    let enabled = requested & state.layout.enabled;
    if !write {
        // Which format `xrstor` finds is written in the area; nothing lies higher in the compacted
        // one.
        return part(0, state.layout.standard_size(enabled), false);
    }
    if enabled & 1 != 0 {
        part(0, 24, write);
    }
    if enabled & 6 != 0 {
        part(24, 32, write);
    }
    if enabled & 1 != 0 {
        part(32, 160, write);
    }
    if enabled & 2 != 0 {
        part(160, 416, write);
    }
    part(
        512,
        if transfer.area == StateArea::Compacted {
            528
        } else {
            520
        },
        write,
    );
    for (from, to) in component_places(state.layout, enabled, transfer.area) {
        part(from, to, write);
    }
}

/// The places of the extended components that an instruction of the `xsave` class writes.
fn component_places(
    layout: &XsaveLayout,
    enabled: u64,
    area: StateArea,
) -> impl Iterator<Item = (u32, u32)> + '_ {
    let mut end = XSAVE_HEADER_END;
    layout.components(enabled).map(move |(_, component)| {
        let from = match area {
            StateArea::Compacted if component.aligned => end.next_multiple_of(64),
            StateArea::Compacted => end,
            _ => component.offset,
        };
        end = from + component.size;
        (from, end)
    })
}
