//! Instructions of every opcode with random operands, and states on which they can be executed.
//!
//! Operands follow iced's description of the opcode, so that none can be left out by forgetting it.

use super::machine::{Machine, State, WINDOW_BYTES};
use brownout_flow::{At, Flow};
use brownout_insn::{MemoryForm, Repeat};
use brownout_insn::{SegmentBases, bit_string_address, classify, effective_address};
use brownout_random::Random;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, FlowControl, Instruction, Mnemonic,
    OpCodeOperandKind, OpKind, Register,
};

const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;

/// How the free choices of an opcode are filled.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// An operand that can be a register or memory is memory.
    pub memory: bool,
    pub mask: bool,
    pub zeroing: bool,
    pub broadcast: bool,
    /// Three registers of each class, so that instructions of a sequence meet.
    pub few: bool,
    /// The same register for operands of the same class, which is what idioms such as `xor r, r`
    /// consist of.
    pub same: bool,
}

pub fn choices() -> impl Iterator<Item = Choice> {
    (0..32).map(|bits| Choice {
        memory: bits & 1 != 0,
        mask: bits & 2 != 0,
        zeroing: bits & 4 != 0,
        broadcast: bits & 8 != 0,
        same: bits & 16 != 0,
        few: false,
    })
}

fn nth(base: Register, number: u64) -> Register {
    Register::try_from(base as usize + number as usize).unwrap()
}

/// Decodes what was encoded.
pub fn decode(bytes: &[u8], ip: u64) -> Option<Instruction> {
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    (!insn.is_invalid() && insn.len() == bytes.len()).then_some(insn)
}

/// An instruction of this opcode, and its bytes; `None` if the choice does not apply to it, or if
/// 64-bit code cannot contain it.
pub fn form(
    code: Code,
    choice: Choice,
    window: u64,
    random: &mut Random,
) -> Option<(Instruction, Vec<u8>)> {
    let description = code.op_code();
    if !description.is_instruction()
        || !description.mode64()
        || description.encoding() == EncodingKind::MVEX
    {
        return None;
    }
    let mut insn = Instruction::default();
    insn.set_code(code);
    let mut fill = Fill {
        evex: description.encoding() == EncodingKind::EVEX,
        same: choice.same,
        few: choice.few,
        shared: random.bits(),
        memory: choice.memory,
        used_memory: false,
        registers: 0,
        window,
    };
    for index in 0..description.op_count() {
        fill.operand(&mut insn, index, description.op_kind(index), random);
    }
    if choice.memory != fill.used_memory || (choice.same && fill.registers < 2) {
        return None;
    }
    if choice.mask || description.require_op_mask_register() {
        if !description.can_use_op_mask_register() && !description.require_op_mask_register() {
            return None;
        }
        insn.set_op_mask(nth(
            Register::K1,
            random.below(if choice.few { 2 } else { 7 }),
        ));
    }
    if choice.zeroing {
        if !description.can_use_zeroing_masking() || !choice.mask {
            return None;
        }
        if insn.op0_kind() == OpKind::Memory {
            return None;
        }
        insn.set_zeroing_masking(true);
    }
    if choice.broadcast {
        if !description.can_broadcast() {
            return None;
        }
        insn.set_is_broadcast(true);
    }
    if insn.is_string_instruction() && random.percent(70) {
        if random.percent(50) {
            insn.set_has_repe_prefix(true);
        } else {
            insn.set_has_repne_prefix(true);
        }
    }
    let mut encoder = Encoder::new(64);
    encoder.encode(&insn, window).ok()?;
    let bytes = encoder.take_buffer();
    let decoded = decode(&bytes, window)?;
    (decoded.code() == code).then_some((decoded, bytes))
}

struct Fill {
    evex: bool,
    same: bool,
    few: bool,
    shared: u64,
    memory: bool,
    used_memory: bool,
    registers: u32,
    window: u64,
}

impl Fill {
    fn number(&mut self, bound: u64, random: &mut Random) -> u64 {
        self.registers += 1;
        let bound = if self.few { 3 } else { bound };
        if self.same {
            self.shared % bound
        } else {
            random.below(bound)
        }
    }

    fn register(&mut self, insn: &mut Instruction, index: u32, register: Register) {
        insn.set_op_kind(index, OpKind::Register);
        insn.set_op_register(index, register);
    }

    fn place_memory(&mut self, insn: &mut Instruction, index: u32, random: &mut Random) {
        self.used_memory = true;
        insn.set_op_kind(index, OpKind::Memory);
        let base = random.below(16);
        let narrow = random.percent(10);
        let class = if narrow { Register::EAX } else { Register::RAX };
        insn.set_memory_base(nth(class, base));
        let other = random.below(16);
        if random.percent(30) && other != 4 && other != base {
            insn.set_memory_index(nth(class, other));
            insn.set_memory_index_scale(1 << random.below(4));
        }
        let displacement = 64 * random.between(-4, 5);
        insn.set_memory_displacement64(if narrow {
            displacement as u32 as u64
        } else {
            displacement as u64
        });
        insn.set_memory_displ_size(match displacement {
            0 => 0,
            _ if narrow => 4,
            _ => 8,
        });
    }

    fn operand(
        &mut self,
        insn: &mut Instruction,
        index: u32,
        kind: OpCodeOperandKind,
        random: &mut Random,
    ) {
        use OpCodeOperandKind as K;
        let vectors = if self.evex { 32 } else { 16 };
        let kind = if self.memory {
            kind
        } else {
            match kind {
                K::r8_or_mem => K::r8_reg,
                K::r16_or_mem => K::r16_reg,
                K::r32_or_mem => K::r32_reg,
                K::r64_or_mem => K::r64_reg,
                K::mm_or_mem => K::mm_reg,
                K::xmm_or_mem => K::xmm_reg,
                K::ymm_or_mem => K::ymm_reg,
                K::zmm_or_mem => K::zmm_reg,
                K::k_or_mem => K::k_reg,
                other => other,
            }
        };
        match kind {
            K::mem
            | K::r8_or_mem
            | K::r16_or_mem
            | K::r32_or_mem
            | K::r64_or_mem
            | K::mm_or_mem
            | K::xmm_or_mem
            | K::ymm_or_mem
            | K::zmm_or_mem
            | K::k_or_mem => self.place_memory(insn, index, random),
            K::mem_vsib32x | K::mem_vsib64x => self.vsib(insn, index, Register::XMM0, random),
            K::mem_vsib32y | K::mem_vsib64y => self.vsib(insn, index, Register::YMM0, random),
            K::mem_vsib32z | K::mem_vsib64z => self.vsib(insn, index, Register::ZMM0, random),
            K::mem_offs => {
                self.used_memory = true;
                insn.set_op_kind(index, OpKind::Memory);
                insn.set_memory_displacement64(self.window + 2048);
                insn.set_memory_displ_size(8);
            }
            K::seg_rBX_al => {
                self.used_memory = true;
                insn.set_op_kind(index, OpKind::Memory);
                insn.set_memory_base(Register::RBX);
                insn.set_memory_index(Register::AL);
            }
            K::seg_rSI => {
                self.used_memory = true;
                insn.set_op_kind(index, OpKind::MemorySegRSI);
            }
            K::es_rDI => {
                self.used_memory = true;
                insn.set_op_kind(index, OpKind::MemoryESRDI);
            }
            K::seg_rDI => {
                self.used_memory = true;
                insn.set_op_kind(index, OpKind::MemorySegRDI);
            }
            K::r8_reg | K::r8_opcode => {
                // al … bh, spl … dil, r8b … r15b.
                let number = self.number(20, random);
                self.register(insn, index, nth(Register::AL, number));
            }
            K::r16_reg | K::r16_rm | K::r16_opcode | K::r16_reg_mem => {
                let number = self.number(16, random);
                self.register(insn, index, nth(Register::AX, number));
            }
            K::r32_reg | K::r32_rm | K::r32_opcode | K::r32_vvvv | K::r32_reg_mem => {
                let number = self.number(16, random);
                self.register(insn, index, nth(Register::EAX, number));
            }
            K::r64_reg | K::r64_rm | K::r64_opcode | K::r64_vvvv | K::r64_reg_mem => {
                let number = self.number(16, random);
                self.register(insn, index, nth(Register::RAX, number));
            }
            K::seg_reg => self.register(insn, index, Register::DS),
            K::k_reg | K::k_rm | K::k_vvvv => {
                let number = self.number(8, random);
                self.register(insn, index, nth(Register::K0, number));
            }
            K::kp1_reg => self.register(insn, index, Register::K4),
            K::mm_reg | K::mm_rm => {
                let number = self.number(8, random);
                self.register(insn, index, nth(Register::MM0, number));
            }
            K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 | K::xmm_is5 => {
                let number = self.number(vectors, random);
                self.register(insn, index, nth(Register::XMM0, number));
            }
            K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
                let number = self.number(vectors, random);
                self.register(insn, index, nth(Register::YMM0, number));
            }
            K::zmm_reg | K::zmm_rm | K::zmm_vvvv => {
                let number = self.number(vectors, random);
                self.register(insn, index, nth(Register::ZMM0, number));
            }
            K::xmmp3_vvvv => self.register(insn, index, Register::XMM4),
            K::zmmp3_vvvv => self.register(insn, index, Register::ZMM4),
            K::es => self.register(insn, index, Register::ES),
            K::cs => self.register(insn, index, Register::CS),
            K::ss => self.register(insn, index, Register::SS),
            K::ds => self.register(insn, index, Register::DS),
            K::fs => self.register(insn, index, Register::FS),
            K::gs => self.register(insn, index, Register::GS),
            K::al => self.register(insn, index, Register::AL),
            K::cl => self.register(insn, index, Register::CL),
            K::ax => self.register(insn, index, Register::AX),
            K::dx => self.register(insn, index, Register::DX),
            K::eax => self.register(insn, index, Register::EAX),
            K::rax => self.register(insn, index, Register::RAX),
            K::st0 => self.register(insn, index, Register::ST0),
            K::sti_opcode => {
                let number = random.below(8);
                self.register(insn, index, nth(Register::ST0, number));
            }
            K::imm8_const_1 => {
                insn.set_op_kind(index, OpKind::Immediate8);
                insn.set_immediate8(1);
            }
            K::imm8 => {
                let second = (0..index).any(|earlier| {
                    matches!(
                        insn.op_kind(earlier),
                        OpKind::Immediate8 | OpKind::Immediate16
                    )
                });
                let value = Self::immediate(random) as u8;
                if second {
                    insn.set_op_kind(index, OpKind::Immediate8_2nd);
                    let nested = insn.mnemonic() == Mnemonic::Enter;
                    insn.set_immediate8_2nd(if nested { 0 } else { value });
                } else {
                    insn.set_op_kind(index, OpKind::Immediate8);
                    insn.set_immediate8(value);
                }
            }
            K::imm4_m2z => {
                insn.set_op_kind(index, OpKind::Immediate8);
                insn.set_immediate8(random.below(4) as u8);
            }
            K::imm8sex16 => {
                insn.set_op_kind(index, OpKind::Immediate8to16);
                insn.set_immediate8to16(i16::from(Self::immediate(random) as i8));
            }
            K::imm8sex32 => {
                insn.set_op_kind(index, OpKind::Immediate8to32);
                insn.set_immediate8to32(i32::from(Self::immediate(random) as i8));
            }
            K::imm8sex64 => {
                insn.set_op_kind(index, OpKind::Immediate8to64);
                insn.set_immediate8to64(i64::from(Self::immediate(random) as i8));
            }
            K::imm16 => {
                insn.set_op_kind(index, OpKind::Immediate16);
                insn.set_immediate16(Self::immediate(random) as u16);
            }
            K::imm32 => {
                insn.set_op_kind(index, OpKind::Immediate32);
                insn.set_immediate32(Self::immediate(random) as u32);
            }
            K::imm32sex64 => {
                insn.set_op_kind(index, OpKind::Immediate32to64);
                insn.set_immediate32to64(i64::from(Self::immediate(random) as i32));
            }
            K::imm64 => {
                insn.set_op_kind(index, OpKind::Immediate64);
                insn.set_immediate64(Self::immediate(random));
            }
            K::br16_1 | K::br16_2 | K::xbegin_2 => insn.set_op_kind(index, OpKind::NearBranch16),
            K::br32_1 | K::br32_4 => insn.set_op_kind(index, OpKind::NearBranch32),
            K::br64_1 | K::br64_4 | K::xbegin_4 => {
                insn.set_op_kind(index, OpKind::NearBranch64);
                insn.set_near_branch64(self.window + 0x10);
            }
            _ => {}
        }
    }

    fn vsib(&mut self, insn: &mut Instruction, index: u32, class: Register, random: &mut Random) {
        self.place_memory(insn, index, random);
        insn.set_memory_base(nth(Register::RAX, random.below(16)));
        insn.set_memory_index(nth(class, random.below(if self.evex { 32 } else { 16 })));
        insn.set_memory_index_scale(1 << random.below(4));
        insn.set_memory_displacement64(64);
        insn.set_memory_displ_size(8);
    }

    /// Any bits, or bytes that are all zeros or all ones.
    fn immediate(random: &mut Random) -> u64 {
        let bits = random.bits();
        match random.below(3) {
            0 => bits,
            1 => bits % 72,
            _ => u64::from_le_bytes(
                bits.to_le_bytes()
                    .map(|byte| [0, 0xFF, byte][byte as usize % 3]),
            ),
        }
    }
}

/// An instruction that can stand anywhere in a sequence: its memory is at `rbx`, which no
/// instruction of a sequence writes.
pub fn sequence_form(
    code: Code,
    window: u64,
    random: &mut Random,
) -> Option<(Instruction, Vec<u8>)> {
    let mut choice = choices().nth(random.index(32))?;
    choice.few = true;
    let (mut insn, bytes) = form(code, choice, window, random)?;
    let memory = (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::Memory);
    if !memory {
        let fixed = insn.is_string_instruction()
            || matches!(
                classify(&insn),
                MemoryForm::ImplicitRdi(_) | MemoryForm::ImplicitRax { .. }
            );
        return (!fixed).then_some((insn, bytes));
    }
    let form = classify(&insn);
    if insn.memory_base() == Register::None
        || insn.is_vsib()
        || insn.memory_index() == Register::AL
        || matches!(
            form,
            MemoryForm::BitString(_) | MemoryForm::RegisterAddress { .. }
        )
    {
        return None;
    }
    insn.set_memory_base(Register::RBX);
    insn.set_memory_index(Register::None);
    insn.set_memory_index_scale(1);
    insn.set_memory_displacement64((64 * random.between(-1, 2)) as u64);
    insn.set_memory_displ_size(8);
    let mut encoder = Encoder::new(64);
    encoder.encode(&insn, window).ok()?;
    let bytes = encoder.take_buffer();
    Some((decode(&bytes, window)?, bytes))
}

/// Why an instruction is not executed by the tests, if it is not.
pub fn not_executed(insn: &Instruction) -> Option<&'static str> {
    if insn.flow_control() != FlowControl::Next {
        return Some("branches and system calls");
    }
    if insn.is_privileged() {
        return Some("privileged");
    }
    match insn.mnemonic() {
        Mnemonic::Wrfsbase | Mnemonic::Wrgsbase => Some("would change the test's own thread"),
        Mnemonic::In | Mnemonic::Out => Some("privileged"),
        _ => None,
    }
}

/// Adapts a random state so that the instruction can access its memory.
pub fn prepare(insn: &Instruction, state: &mut State, machine: &Machine, random: &mut Random) {
    let window = machine.window();
    let middle = window + (WINDOW_BYTES / 2) as u64;
    state.gpr[RSP] = middle - 512 + 8 * random.below(8);
    if matches!(insn.mnemonic(), Mnemonic::Leave | Mnemonic::Enter) {
        state.gpr[RBP] = middle;
    }
    match insn.mnemonic() {
        // Quotients that fit, now and then.
        Mnemonic::Div | Mnemonic::Idiv if random.percent(80) => {
            let bytes = match insn.op0_kind() {
                OpKind::Memory => insn.memory_size().size(),
                _ => insn.op0_register().size(),
            };
            if bytes == 1 {
                state.gpr[RAX] &= !0xFF00;
            } else {
                state.gpr[2] &= !(u64::MAX >> (64 - 8 * bytes));
            }
            state.gpr[RAX] &= !(1 << (8 * bytes - 1));
        }
        // What is popped must not switch single steps or alignment checks on.
        Mnemonic::Popf | Mnemonic::Popfq => {
            let at = (state.gpr[RSP] - window) as usize;
            let flags = random.bits() & 0xCD5 | 2 | random.bits() & 1 << 21;
            state.memory[at..at + 8].copy_from_slice(&flags.to_le_bytes());
        }
        _ => {}
    }
    match classify(insn) {
        MemoryForm::String(_) => {
            state.gpr[RSI] = middle - 300 + random.below(200);
            state.gpr[RDI] = middle + 300 - random.below(200);
            state.gpr[RCX] = random.below(6);
            if random.percent(50) {
                // Comparisons that go on.
                let value = [0u8, 7][random.index(2)];
                state.memory.fill(value);
                if random.percent(50) {
                    state.gpr[RAX] = u64::from_le_bytes([value; 8]);
                }
                let at = WINDOW_BYTES / 2 + 100 + random.index(400);
                state.memory[at] = 1;
            }
            return;
        }
        MemoryForm::ImplicitRdi(_) => state.gpr[RDI] = middle,
        MemoryForm::ImplicitRax { .. } => state.gpr[RAX] = middle,
        _ => {}
    }
    if brownout_insn::memory_operand(insn).is_none() {
        return;
    }
    let (base, index) = (insn.memory_base(), insn.memory_index());
    if base.is_gpr() {
        let narrow = base.size() == 4;
        let garbage = if narrow { random.bits() << 32 } else { 0 };
        state.gpr[base.full_register().number()] = middle | garbage;
    }
    if index.is_gpr() && index != Register::AL {
        state.gpr[index.full_register().number()] = 64 * random.below(3);
    }
    if index.is_vector_register() {
        let mut indices = [0; 64];
        let step = if insn.is_vsib64() { 8 } else { 4 };
        for place in indices.chunks_mut(step) {
            let number = random.between(-100, 100);
            place.copy_from_slice(&number.to_le_bytes()[..step]);
        }
        machine.set_vector(state, index.number(), &indices);
    }
    if let MemoryForm::BitString(bits) = classify(insn) {
        let number = usize::from(bits.offset);
        if number != base.full_register().number() {
            let offset = random.between(-2000, 2000);
            state.gpr[number] = match bits.effect.size {
                2 => state.gpr[number] & !0xFFFF | u64::from(offset as u16),
                4 => state.gpr[number] & !0xFFFF_FFFF | u64::from(offset as u32),
                _ => offset as u64,
            };
        }
    }
    if insn.mnemonic() == Mnemonic::Movdir64b {
        state.gpr[insn.op0_register().full_register().number()] = middle;
    }
    if matches!(
        insn.mnemonic(),
        Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr | Mnemonic::Fldcw
    ) {
        let at = effective_address(insn, &state.gpr, SegmentBases::default()).wrapping_sub(window);
        if let Some(place) = state.memory.get_mut(at as usize..at as usize + 4) {
            let x87 = insn.mnemonic() == Mnemonic::Fldcw;
            let (fixed, free) = if x87 {
                (0x37F, 0xC00)
            } else {
                (0x1F80, 0xE07F)
            };
            place.copy_from_slice(&(fixed | random.bits() as u32 & free).to_le_bytes());
        }
    }
}

/// The address of each byte of a memory operand, given the registers before the instruction.
/// `element` counts the repetitions of a string instruction.
pub fn address_of(
    insn: &Instruction,
    flow: &Flow,
    operand: usize,
    byte: usize,
    state: &State,
    machine: &Machine,
    element: u64,
) -> u64 {
    let memory = &flow.memory()[operand];
    let gpr = &state.gpr;
    let segments = SegmentBases::default();
    let narrow = memory.address[0].bytes == 4;
    let cut = |address: u64| {
        if narrow {
            address & 0xFFFF_FFFF
        } else {
            address
        }
    };
    let start = match memory.at {
        At::Operand => effective_address(insn, gpr, segments),
        At::BitString => match classify(insn) {
            MemoryForm::BitString(bits) => bit_string_address(insn, &bits, gpr, segments),
            form => panic!("{form:?}"),
        },
        At::Pop => gpr[RSP],
        At::Push => gpr[RSP].wrapping_sub(u64::from(memory.bytes)),
        At::Frame => gpr[RBP],
        At::Rdi => cut(gpr[RDI]),
        At::Line => cut(gpr[RAX]) & !63,
        At::RegisterDestination => cut(gpr[insn.op0_register().full_register().number()]),
        At::StringSource | At::StringDestination => {
            let step = element * u64::from(memory.bytes);
            let register = if memory.at == At::StringSource {
                gpr[RSI]
            } else {
                gpr[RDI]
            };
            cut(if state.rflags >> 10 & 1 == 1 {
                register.wrapping_sub(step)
            } else {
                register.wrapping_add(step)
            })
        }
        At::Elements => {
            let bytes = usize::from(memory.element_bytes);
            let number = byte / bytes;
            let indices = machine.vector(state, insn.memory_index().number());
            let index = if insn.is_vsib64() {
                i64::from_le_bytes(std::array::from_fn(|at| indices[8 * number + at]))
            } else {
                i64::from(i32::from_le_bytes(std::array::from_fn(|at| {
                    indices[4 * number + at]
                })))
            };
            let scaled = (index as u64).wrapping_mul(u64::from(insn.memory_index_scale()));
            return effective_address(insn, gpr, segments)
                .wrapping_add(scaled)
                .wrapping_add((byte % bytes) as u64);
        }
    };
    start.wrapping_add(byte as u64)
}

/// How often the body of a flow ran.
pub fn repetitions(insn: &Instruction, flow: &Flow, before: &State, after: &State) -> u64 {
    if flow.repeat() == Repeat::Once {
        return 1;
    }
    let narrow = flow.memory()[0].address[0].bytes == 4;
    let difference = before.gpr[RCX].wrapping_sub(after.gpr[RCX]);
    let _ = insn;
    if narrow {
        difference & 0xFFFF_FFFF
    } else {
        difference
    }
}
