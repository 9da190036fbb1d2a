//! Executes the instructions whose memory operand cannot be redirected by replacing a base
//! register.
//!
//! # Guarantee
//!
//! After [`emulate`] returns `Ok`, the register image and the memory hold what the CPU would have
//! left there; `tests/native.rs` compares with the CPU for every family, vector length and masking
//! style, except `movdir64b` and the FP16 move, which few CPUs have. If [`Memory`] faults, the
//! image is one that the architecture allows at a fault: a gather or scatter has completed and
//! unmasked the elements before the faulting one, and can be executed again; every other
//! instruction has changed no register. A masked store may have stored the lanes below the faulting
//! ones.
//!
//! # What it covers
//!
//! Gathers, scatters, `maskmovdqu`/`maskmovq`, `clzero`, `movdir64b`, and masked moves: AVX
//! `vmaskmov*`/`vpmaskmov*`, and under an opmask the plain moves, compress, expand, down-converting
//! stores, sign- and zero-extending loads, broadcasts and extracts. Masked arithmetic with a memory
//! operand is not emulated: redirect it, its lanes lie in one place.
//!
//! # Deviations
//!
//! 1. Alignment is not checked (`vmovaps`, `movdir64b`): the access goes through where the CPU
//!    raises #GP. A caller who wants the fault must look at the address.
//! 2. An emulated non-temporal store is as temporal as [`Memory::store`] makes it.

use crate::access::{
    active_elements, active_lanes, byte_mask, clzero_address, direct_store_address,
    effective_address, element_address, implicit_rdi_address, runs,
};
use crate::forms::{ByteMasked, LaneShape, Mask, Masked, MemoryForm, VectorIndexed, classify};
use crate::state::RegisterState;
use iced_x86::{Instruction, Mnemonic};

/// The memory that an emulated instruction sees.
pub trait Memory {
    /// Why an access could not be made.
    type Fault;

    /// Fills `bytes` from `address`.
    ///
    /// # Errors
    ///
    /// If the program may not load there; `bytes` is then ignored.
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Self::Fault>;

    /// Stores `bytes` at `address`.
    ///
    /// # Errors
    ///
    /// If the program may not store there.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Self::Fault>;
}

/// Why an instruction was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmulateError<F> {
    /// Not among the instructions that this module covers; nothing was changed.
    NotEmulated,
    /// The memory refused an access.
    Fault(F),
}

impl<F> From<F> for EmulateError<F> {
    fn from(fault: F) -> Self {
        EmulateError::Fault(fault)
    }
}

/// Executes one instruction on a register image and a memory. Advancing the program counter is the
/// caller's.
///
/// # Errors
///
/// [`EmulateError::NotEmulated`] for an instruction that is not covered, otherwise the fault of the
/// memory.
pub fn emulate<M: Memory>(
    insn: &Instruction,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    match classify(insn) {
        MemoryForm::Gather(vector) => gather(insn, &vector, state, memory),
        MemoryForm::Scatter(vector) => scatter(insn, &vector, state, memory),
        MemoryForm::Masked(masked) => {
            let conversion = conversion(insn).ok_or(EmulateError::NotEmulated)?;
            if masked.effect.write {
                masked_store(insn, &masked, conversion, state, memory)
            } else {
                masked_load(insn, &masked, conversion, state, memory)
            }
        }
        MemoryForm::ImplicitRdi(store) => byte_masked_store(insn, &store, state, memory),
        MemoryForm::ImplicitRax { .. } => Ok(memory.store(clzero_address(insn, state), &[0; 64])?),
        MemoryForm::RegisterAddress { .. } => {
            let mut line = [0; 64];
            memory.load(
                effective_address(insn, state.gpr, state.segments),
                &mut line,
            )?;
            Ok(memory.store(direct_store_address(insn, state), &line)?)
        }
        _ => Err(EmulateError::NotEmulated),
    }
}

fn register_number(insn: &Instruction, operand: u32) -> u8 {
    insn.op_register(operand).number() as u8
}

/// Marks one element of a gather or scatter as done.
fn retire_element(vector: &VectorIndexed, element: usize, state: &mut RegisterState<'_>) {
    match vector.mask {
        Mask::Opmask(number) => state.set_opmask(number, state.opmask(number) & !(1 << element)),
        Mask::Vector(number) => {
            let mut mask = state.vector(number);
            let bytes = usize::from(vector.element_bytes);
            mask[element * bytes..(element + 1) * bytes].fill(0);
            state.set_vector(number, &mask);
        }
    }
}

fn clear_mask(vector: &VectorIndexed, state: &mut RegisterState<'_>) {
    match vector.mask {
        Mask::Opmask(number) => state.set_opmask(number, 0),
        Mask::Vector(number) => state.set_vector(number, &[0; 64]),
    }
}

fn gather<M: Memory>(
    insn: &Instruction,
    vector: &VectorIndexed,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    let destination = register_number(insn, 0);
    let bytes = usize::from(vector.element_bytes);
    let active = active_lanes(vector.mask, vector.elements, vector.element_bytes, state);
    let indices = state.vector(vector.index);
    let mut value = state.vector(destination);
    for element in 0..usize::from(vector.elements) {
        if active >> element & 1 == 0 {
            // A vector register as mask may have other bits set there than the one that counts.
            retire_element(vector, element, state);
            continue;
        }
        let mut loaded = [0; 8];
        let address = element_address(insn, vector, state, &indices, element);
        memory.load(address, &mut loaded[..bytes])?;
        value[element * bytes..(element + 1) * bytes].copy_from_slice(&loaded[..bytes]);
        // Written at once, so that a fault of a later element finds this one complete.
        state.set_vector(destination, &value);
        retire_element(vector, element, state);
    }
    value[usize::from(vector.elements) * bytes..].fill(0);
    state.set_vector(destination, &value);
    clear_mask(vector, state);
    Ok(())
}

fn scatter<M: Memory>(
    insn: &Instruction,
    vector: &VectorIndexed,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    let bytes = usize::from(vector.element_bytes);
    let active = active_lanes(vector.mask, vector.elements, vector.element_bytes, state);
    let indices = state.vector(vector.index);
    let value = state.vector(register_number(insn, 1));
    for element in (0..usize::from(vector.elements)).filter(|element| active >> element & 1 == 1) {
        let address = element_address(insn, vector, state, &indices, element);
        memory.store(address, &value[element * bytes..(element + 1) * bytes])?;
        retire_element(vector, element, state);
    }
    clear_mask(vector, state);
    Ok(())
}

fn byte_masked_store<M: Memory>(
    insn: &Instruction,
    store: &ByteMasked,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    let number = register_number(insn, 1);
    let (narrow, wide) = (state.mmx(number % 8), state.vector(number));
    let data: &[u8] = if store.mmx { &narrow } else { &wide[..16] };
    let address = implicit_rdi_address(insn, state);
    for (first, count) in runs(byte_mask(insn, store.mmx, state)) {
        let from = first as usize;
        memory.store(
            address.wrapping_add(u64::from(first)),
            &data[from..from + count as usize],
        )?;
    }
    if store.mmx {
        state.enter_mmx();
    }
    Ok(())
}

/// What a masked move does to an element between register and memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// Nothing; also compress, expand and broadcast, which only choose elements.
    Same,
    /// A store of the low part.
    Truncate,
    /// A store of the nearest signed value that fits.
    SaturateSigned,
    /// A store of the nearest unsigned value that fits; the source is unsigned.
    SaturateUnsigned,
    /// A load that fills with the sign.
    ExtendSigned,
    /// A load that fills with zero.
    ExtendUnsigned,
    /// A store of a part of the register that the immediate chooses.
    Extract,
}

/// The masked moves, by what they do; `None` for arithmetic.
#[rustfmt::skip]
fn conversion(insn: &Instruction) -> Option<Conversion> {
    use Mnemonic::*;
    Some(match insn.mnemonic() {
        Vmovapd | Vmovaps | Vmovdqa32 | Vmovdqa64 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Vmovdqu8
        | Vmovsd | Vmovsh | Vmovss | Vmovupd | Vmovups | Vmaskmovpd | Vmaskmovps | Vpmaskmovd
        | Vpmaskmovq | Vcompresspd | Vcompressps | Vpcompressb | Vpcompressd | Vpcompressq
        | Vpcompressw | Vexpandpd | Vexpandps | Vpexpandb | Vpexpandd | Vpexpandq | Vpexpandw
        | Vbroadcastf32x2 | Vbroadcastf32x4 | Vbroadcastf32x8 | Vbroadcastf64x2 | Vbroadcastf64x4
        | Vbroadcasti32x2 | Vbroadcasti32x4 | Vbroadcasti32x8 | Vbroadcasti64x2
        | Vbroadcasti64x4 | Vbroadcastsd | Vbroadcastss | Vpbroadcastb | Vpbroadcastd
        | Vpbroadcastq | Vpbroadcastw => Conversion::Same,
        Vpmovdb | Vpmovdw | Vpmovqb | Vpmovqd | Vpmovqw | Vpmovwb => Conversion::Truncate,
        Vpmovsdb | Vpmovsdw | Vpmovsqb | Vpmovsqd | Vpmovsqw | Vpmovswb =>
        Conversion::SaturateSigned,
        Vpmovusdb | Vpmovusdw | Vpmovusqb | Vpmovusqd | Vpmovusqw | Vpmovuswb =>
        Conversion::SaturateUnsigned,
        Vpmovsxbd | Vpmovsxbq | Vpmovsxbw | Vpmovsxdq | Vpmovsxwd | Vpmovsxwq =>
        Conversion::ExtendSigned,
        Vpmovzxbd | Vpmovzxbq | Vpmovzxbw | Vpmovzxdq | Vpmovzxwd | Vpmovzxwq =>
        Conversion::ExtendUnsigned,
        Vextractf32x4 | Vextractf32x8 | Vextractf64x2 | Vextractf64x4 | Vextracti32x4
        | Vextracti32x8 | Vextracti64x2 | Vextracti64x4 => Conversion::Extract,
        _ => return None,
    })
}

/// An element of 1, 2, 4 or 8 bytes as an unsigned number.
fn element(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

fn sign_extended(value: u64, bytes: usize) -> i64 {
    let shift = 64 - 8 * bytes as u32;
    ((value << shift) as i64) >> shift
}

fn narrowed(value: u64, from: usize, to: usize, conversion: Conversion) -> u64 {
    match conversion {
        Conversion::SaturateSigned => {
            let limit = (1i64 << (8 * to - 1)) - 1;
            sign_extended(value, from).clamp(-limit - 1, limit) as u64
        }
        Conversion::SaturateUnsigned => value.min((1 << (8 * to)) - 1),
        _ => value,
    }
}

fn masked_store<M: Memory>(
    insn: &Instruction,
    masked: &Masked,
    conversion: Conversion,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    let lanes = usize::from(masked.lanes);
    let to = usize::from(masked.lane_bytes);
    // `m, v`, `m, v, imm` and, with the mask in a vector register, `m, mask, v`.
    let source_operand = if matches!(masked.mask, Mask::Vector(_)) {
        2
    } else {
        1
    };
    let register = insn.op_register(source_operand);
    let source = state.vector(register.number() as u8);
    let (start, from) = match conversion {
        Conversion::Extract => {
            let parts = register.size() / (lanes * to);
            (usize::from(insn.immediate8()) % parts * lanes * to, to)
        }
        // A scalar move takes the lowest element of a wider register.
        Conversion::Same => (0, to),
        _ => (0, register.size() / lanes),
    };
    let active = active_lanes(masked.mask, masked.lanes, masked.lane_bytes, state);
    let mut image = [0; 64];
    for (packed, lane) in (0..lanes)
        .filter(|lane| active >> lane & 1 == 1)
        .enumerate()
    {
        let at = start + lane * from;
        let value = narrowed(element(&source[at..at + from]), from, to, conversion);
        let place = if masked.shape == LaneShape::Packed {
            packed
        } else {
            lane
        };
        image[place * to..(place + 1) * to].copy_from_slice(&value.to_le_bytes()[..to]);
    }
    let address = effective_address(insn, state.gpr, state.segments);
    for (first, count) in runs(active_elements(masked, active)) {
        let (from, to) = (first as usize * to, (first + count) as usize * to);
        memory.store(address.wrapping_add(from as u64), &image[from..to])?;
    }
    Ok(())
}

fn masked_load<M: Memory>(
    insn: &Instruction,
    masked: &Masked,
    conversion: Conversion,
    state: &mut RegisterState<'_>,
    memory: &mut M,
) -> Result<(), EmulateError<M::Fault>> {
    let lanes = usize::from(masked.lanes);
    let from = usize::from(masked.lane_bytes);
    let register = insn.op0_register();
    let to = if conversion == Conversion::Same {
        from
    } else {
        register.size() / lanes
    };
    let active = active_lanes(masked.mask, masked.lanes, masked.lane_bytes, state);
    let address = effective_address(insn, state.gpr, state.segments);
    let mut image = [0; 64];
    for (first, count) in runs(active_elements(masked, active)) {
        let (start, end) = (first as usize * from, (first + count) as usize * from);
        memory.load(address.wrapping_add(start as u64), &mut image[start..end])?;
    }
    // With the mask in a vector register, inactive lanes become zero without being asked to.
    let zeroing = insn.zeroing_masking() || matches!(masked.mask, Mask::Vector(_));
    let number = register.number() as u8;
    let mut value = state.vector(number);
    let mut packed = 0;
    for lane in 0..lanes {
        let target = lane * to..(lane + 1) * to;
        if active >> lane & 1 == 1 {
            let place = match masked.shape {
                LaneShape::Lanewise => lane,
                LaneShape::Packed => packed,
                LaneShape::Broadcast { elements } => lane % usize::from(elements),
            };
            packed += 1;
            let loaded = element(&image[place * from..(place + 1) * from]);
            let wide = match conversion {
                Conversion::ExtendSigned => sign_extended(loaded, from) as u64,
                _ => loaded,
            };
            value[target].copy_from_slice(&wide.to_le_bytes()[..to]);
        } else if zeroing {
            value[target].fill(0);
        }
    }
    value[lanes * to..].fill(0);
    state.set_vector(number, &value);
    Ok(())
}
