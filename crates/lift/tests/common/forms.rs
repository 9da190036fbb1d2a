//! Instructions of every opcode with random operands, and states on which they can be executed.
//!
//! Operands follow iced's description of the opcode, so that none can be left out by forgetting it.

use super::native::Native;
use super::state::{State, WINDOW_BYTES, corner};
use brownout_random::Random;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, Instruction, Mnemonic, OpCodeOperandKind,
    OpKind, Register,
};

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;

/// An instruction, its bytes, and where in the window its memory operand is.
pub struct Form {
    pub insn: Instruction,
    pub bytes: Vec<u8>,
    pub place: usize,
}

fn nth(base: Register, number: u64) -> Register {
    Register::try_from(base as usize + number as usize).unwrap()
}

/// Opcodes of 64-bit code that are no AVX-512, XOP and so on: what might be supported.
pub fn candidates() -> impl Iterator<Item = Code> {
    Code::values().filter(|code| {
        let description = code.op_code();
        description.is_instruction()
            && description.mode64()
            && matches!(
                description.encoding(),
                EncodingKind::Legacy | EncodingKind::VEX
            )
    })
}

/// An instruction of this opcode; `None` if these choices cannot be encoded.
pub fn form(code: Code, native: &Native, random: &mut Random) -> Option<Form> {
    let description = code.op_code();
    let mut insn = Instruction::default();
    insn.set_code(code);
    let mut fill = Fill {
        native,
        memory: random.percent(50),
        same: random.percent(15).then(|| random.bits() >> 16),
        place: place(random),
    };
    for index in 0..description.op_count() {
        fill.operand(&mut insn, index, description.op_kind(index), random)?;
    }
    if insn.op0_kind() == OpKind::Memory && description.can_use_lock_prefix() && random.percent(30)
    {
        insn.set_has_lock_prefix(true);
    }
    let place = fill.place;
    let mut encoder = Encoder::new(64);
    encoder.encode(&insn, native.ip()).ok()?;
    let bytes = encoder.take_buffer();
    let insn = Decoder::with_ip(64, &bytes, native.ip(), DecoderOptions::NONE).decode();
    let bits_in_base = insn.op0_kind() == OpKind::Memory
        && matches!(
            insn.mnemonic(),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        )
        && insn.op1_kind() == OpKind::Register
        && [insn.memory_base(), insn.memory_index()]
            .iter()
            .any(|register| register.full_register() == insn.op1_register().full_register());
    let decoded = insn.code() == code && insn.len() == bytes.len();
    (decoded && !bits_in_base).then_some(Form { insn, bytes, place })
}

/// Somewhere in the middle; a multiple of 32 more often than not.
fn place(random: &mut Random) -> usize {
    let place = 128 + random.index(256);
    if random.percent(60) {
        place & !31
    } else {
        place
    }
}

struct Fill<'a> {
    native: &'a Native,
    memory: bool,
    same: Option<u64>,
    place: usize,
}

impl Fill<'_> {
    fn number(&self, bound: u64, random: &mut Random) -> u64 {
        match self.same {
            Some(number) => number % bound,
            None => random.below(bound),
        }
    }

    fn memory(&mut self, insn: &mut Instruction, index: u32, random: &mut Random) {
        insn.set_op_kind(index, OpKind::Memory);
        // Vectors and pairs may have to be aligned.
        if insn.memory_size().size() >= 16 && !random.percent(10) {
            self.place &= !31;
        }
        let absolute = self.native.window() + self.place as u64;
        let narrow = random.percent(10);
        let class = if narrow { Register::EAX } else { Register::RAX };
        match random.below(10) {
            0 => {
                insn.set_memory_base(if narrow { Register::EIP } else { Register::RIP });
                insn.set_memory_displacement64(absolute);
                insn.set_memory_displ_size(if narrow { 4 } else { 8 });
                return;
            }
            1 => {
                insn.set_memory_displacement64(absolute);
                insn.set_memory_displ_size(if narrow { 4 } else { 8 });
                return;
            }
            2 => {
                insn.set_memory_index(nth(class, [0, 1, 3, 5, 12][random.index(5)]));
                insn.set_memory_index_scale(1 << random.below(4));
                insn.set_memory_displacement64(absolute);
                insn.set_memory_displ_size(if narrow { 4 } else { 8 });
                return;
            }
            _ => {}
        }
        let base = random.below(16);
        insn.set_memory_base(nth(class, base));
        let other = random.below(16);
        if random.percent(40) && other != RSP as u64 && other != base {
            insn.set_memory_index(nth(class, other));
            insn.set_memory_index_scale(1 << random.below(4));
        }
        let displacement = if base == RSP as u64 {
            8 * random.between(-8, 9)
        } else {
            match random.below(3) {
                0 => 0,
                1 => random.between(-128, 128),
                _ => i64::from(random.bits() as i32),
            }
        };
        insn.set_memory_displacement64(if narrow {
            u64::from(displacement as u32)
        } else {
            displacement as u64
        });
        insn.set_memory_displ_size(match displacement {
            0 => 0,
            _ if narrow => 4,
            _ => 8,
        });
        if !narrow && random.percent(10) {
            insn.set_segment_prefix([Register::FS, Register::GS, Register::ES][random.index(3)]);
        }
    }

    fn register(&self, insn: &mut Instruction, index: u32, register: Register) {
        insn.set_op_kind(index, OpKind::Register);
        insn.set_op_register(index, register);
    }

    /// `None` if such an operand is in no rule.
    fn operand(
        &mut self,
        insn: &mut Instruction,
        index: u32,
        kind: OpCodeOperandKind,
        random: &mut Random,
    ) -> Option<()> {
        use OpCodeOperandKind as K;
        let kind = if self.memory {
            kind
        } else {
            match kind {
                K::r8_or_mem => K::r8_reg,
                K::r16_or_mem => K::r16_reg,
                K::r32_or_mem => K::r32_reg,
                K::r64_or_mem => K::r64_reg,
                K::xmm_or_mem => K::xmm_reg,
                K::ymm_or_mem => K::ymm_reg,
                other => other,
            }
        };
        match kind {
            K::mem
            | K::r8_or_mem
            | K::r16_or_mem
            | K::r32_or_mem
            | K::r64_or_mem
            | K::xmm_or_mem
            | K::ymm_or_mem => self.memory(insn, index, random),
            K::mem_offs => {
                insn.set_op_kind(index, OpKind::Memory);
                let narrow = random.percent(30);
                insn.set_memory_displacement64(self.native.window() + self.place as u64);
                insn.set_memory_displ_size(if narrow { 4 } else { 8 });
            }
            K::seg_rBX_al => {
                insn.set_op_kind(index, OpKind::Memory);
                let narrow = random.percent(30);
                insn.set_memory_base(if narrow { Register::EBX } else { Register::RBX });
                insn.set_memory_index(Register::AL);
            }
            K::seg_rSI => {
                let narrow = self.same.is_some();
                insn.set_op_kind(
                    index,
                    if narrow {
                        OpKind::MemorySegESI
                    } else {
                        OpKind::MemorySegRSI
                    },
                );
                if !narrow && random.percent(20) {
                    insn.set_segment_prefix([Register::FS, Register::GS][random.index(2)]);
                }
            }
            K::es_rDI => {
                let narrow = self.same.is_some();
                insn.set_op_kind(
                    index,
                    if narrow {
                        OpKind::MemoryESEDI
                    } else {
                        OpKind::MemoryESRDI
                    },
                );
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
            K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 => {
                let number = self.number(16, random);
                self.register(insn, index, nth(Register::XMM0, number));
            }
            K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 => {
                let number = self.number(16, random);
                self.register(insn, index, nth(Register::YMM0, number));
            }
            K::al => self.register(insn, index, Register::AL),
            K::cl => self.register(insn, index, Register::CL),
            K::ax => self.register(insn, index, Register::AX),
            K::dx => self.register(insn, index, Register::DX),
            K::eax => self.register(insn, index, Register::EAX),
            K::rax => self.register(insn, index, Register::RAX),
            K::imm8_const_1 => {
                insn.set_op_kind(index, OpKind::Immediate8);
                insn.set_immediate8(1);
            }
            K::imm8 => {
                insn.set_op_kind(index, OpKind::Immediate8);
                insn.set_immediate8(corner(random) as u8);
            }
            K::imm8sex16 => {
                insn.set_op_kind(index, OpKind::Immediate8to16);
                insn.set_immediate8to16(i16::from(corner(random) as i8));
            }
            K::imm8sex32 => {
                insn.set_op_kind(index, OpKind::Immediate8to32);
                insn.set_immediate8to32(i32::from(corner(random) as i8));
            }
            K::imm8sex64 => {
                insn.set_op_kind(index, OpKind::Immediate8to64);
                insn.set_immediate8to64(i64::from(corner(random) as i8));
            }
            K::imm16 => {
                insn.set_op_kind(index, OpKind::Immediate16);
                insn.set_immediate16(corner(random) as u16);
            }
            K::imm32 => {
                insn.set_op_kind(index, OpKind::Immediate32);
                insn.set_immediate32(corner(random) as u32);
            }
            K::imm32sex64 => {
                insn.set_op_kind(index, OpKind::Immediate32to64);
                insn.set_immediate32to64(i64::from(corner(random) as i32));
            }
            K::imm64 => {
                insn.set_op_kind(index, OpKind::Immediate64);
                insn.set_immediate64(corner(random));
            }
            K::br64_1 | K::br64_4 => {
                insn.set_op_kind(index, OpKind::NearBranch64);
                insn.set_near_branch64(self.native.branch_target());
            }
            _ => return None,
        }
        Some(())
    }
}

fn has_memory(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::Memory)
}

/// Adapts a random state so that the instruction can access its memory.
pub fn prepare(form: &Form, state: &mut State, native: &Native, random: &mut Random) {
    let insn = &form.insn;
    let middle = native.window() + (WINDOW_BYTES / 2) as u64;
    let (base, index) = (insn.memory_base(), insn.memory_index());
    let memory = has_memory(insn);
    if insn.is_stack_instruction() {
        state.gpr[RSP] = middle + random.below(16);
    }
    match insn.mnemonic() {
        Mnemonic::Leave => state.gpr[RBP] = middle + random.below(16),
        // Quotients that fit, more often than not.
        Mnemonic::Div | Mnemonic::Idiv if random.percent(85) => {
            let bytes = if memory {
                insn.memory_size().size()
            } else {
                insn.op0_register().size()
            };
            let signed = insn.mnemonic() == Mnemonic::Idiv;
            let ax = state.gpr[RAX];
            if bytes == 1 {
                let negative = signed && ax & 0x80 != 0;
                let high = if negative { 0xFF00 } else { 0 };
                state.gpr[RAX] = ax & !0xFF00 | high;
            } else {
                let bits = u64::MAX >> (64 - 8 * bytes);
                let negative = signed && ax >> (8 * bytes - 1) & 1 == 1;
                let mut high = if negative { bits } else { 0 };
                if random.percent(50) {
                    high ^= random.below(16);
                }
                state.gpr[RDX] = state.gpr[RDX] & !bits | high;
            }
        }
        // Counts that have a result.
        Mnemonic::Shld | Mnemonic::Shrd
            if insn.op2_kind() == OpKind::Register && random.percent(80) =>
        {
            state.gpr[RCX] = state.gpr[RCX] & !0xFF | random.below(17);
        }
        // Lengths of strings, with anything above if they have 32 bits.
        Mnemonic::Pcmpestri
        | Mnemonic::Pcmpestrm
        | Mnemonic::Vpcmpestri
        | Mnemonic::Vpcmpestrm
        | Mnemonic::Pcmpestri64
        | Mnemonic::Pcmpestrm64
        | Mnemonic::Vpcmpestri64
        | Mnemonic::Vpcmpestrm64
            if random.percent(60) =>
        {
            for register in [RAX, RDX] {
                let length = random.between(-20, 20) as u64;
                let garbage = random.bits() << 32;
                state.gpr[register] = if random.percent(30) {
                    length ^ garbage
                } else {
                    length
                };
            }
        }
        // Bits that are near.
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            if memory && insn.op1_kind() == OpKind::Register =>
        {
            let register = insn.op1_register();
            let number = register.full_register().number();
            let offset = random.between(-500, 500) as u64;
            let bits = u64::MAX >> (64 - 8 * register.size());
            state.gpr[number] = state.gpr[number] & !bits | offset & bits;
        }
        _ => {}
    }
    let segment = match insn.memory_segment() {
        Register::FS => native.fs_base,
        Register::GS => native.gs_base,
        _ => 0,
    };
    if insn.is_string_instruction() {
        let cut = |address: u64, narrow: bool, random: &mut Random| {
            address | if narrow { random.bits() << 32 } else { 0 }
        };
        let narrow = [insn.op0_kind(), insn.op1_kind()]
            .iter()
            .any(|kind| matches!(kind, OpKind::MemorySegESI | OpKind::MemoryESEDI));
        let source = (middle - 60 + random.below(60)).wrapping_sub(segment);
        state.gpr[6] = cut(source, narrow, random);
        state.gpr[7] = cut(middle + 60 - random.below(60), narrow, random);
        state.gpr[RCX] = cut(random.below(6), narrow, random);
    }
    if memory {
        let target = native.window() + form.place as u64;
        let mut rest = target
            .wrapping_sub(segment)
            .wrapping_sub(insn.memory_displacement64());
        if index.is_gpr() && index != Register::AL {
            let number = index.full_register().number();
            if base == Register::None {
                state.gpr[number] = random.below(3) * u64::from(32 / insn.memory_index_scale());
            } else if base.full_register() == Register::RSP {
                state.gpr[number] = random.below(4);
            }
            if index.size() == 4 {
                state.gpr[number] |= random.bits() << 32;
            }
            let scale = u64::from(insn.memory_index_scale());
            rest = rest.wrapping_sub(state.gpr[number].wrapping_mul(scale));
        } else if index == Register::AL {
            rest = rest.wrapping_sub(state.gpr[RAX] & 0xFF);
        }
        if base.is_gpr() {
            let number = base.full_register().number();
            state.gpr[number] = if base.size() == 4 {
                rest & 0xFFFF_FFFF | random.bits() << 32
            } else {
                rest
            };
        }
        let at = form.place;
        if random.percent(25) {
            let value = state.gpr[random.index(16)];
            state.memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
        } else if random.percent(25) {
            let value = state.vectors[random.index(16)];
            state.memory[at..at + 16].copy_from_slice(&value[0].to_le_bytes());
            state.memory[at + 16..at + 32].copy_from_slice(&value[1].to_le_bytes());
        }
    }
    match insn.mnemonic() {
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg16b if random.percent(50) => {
            if memory {
                let at = form.place;
                state.memory[at..at + 8].copy_from_slice(&state.gpr[RAX].to_le_bytes());
                state.memory[at + 8..at + 16].copy_from_slice(&state.gpr[RDX].to_le_bytes());
            } else {
                let number = insn.op0_register().full_register().number();
                state.gpr[number] = state.gpr[RAX];
            }
        }
        Mnemonic::Cmpxchg8b if random.percent(50) => {
            let at = form.place;
            let (low, high) = (state.gpr[RAX] as u32, state.gpr[RDX] as u32);
            state.memory[at..at + 4].copy_from_slice(&low.to_le_bytes());
            state.memory[at + 4..at + 8].copy_from_slice(&high.to_le_bytes());
        }
        Mnemonic::Jmp | Mnemonic::Call => {
            let target = native.branch_target();
            if memory {
                let at = form.place;
                state.memory[at..at + 8].copy_from_slice(&target.to_le_bytes());
            } else if insn.op0_kind() == OpKind::Register {
                state.gpr[insn.op0_register().number()] = target;
            }
        }
        Mnemonic::Ret => {
            let at = (state.gpr[RSP] - native.window()) as usize;
            state.memory[at..at + 8].copy_from_slice(&native.branch_target().to_le_bytes());
        }
        _ => {}
    }
}

/// Whether this state cannot be compared.
pub fn undefined_result(insn: &Instruction, state: &State) -> bool {
    // A call through `rsp` would push into the code.
    let through_stack = insn.mnemonic() == Mnemonic::Call && insn.op0_register() == Register::RSP;
    let double = matches!(insn.mnemonic(), Mnemonic::Shld | Mnemonic::Shrd)
        && insn.op2_kind() == OpKind::Register
        && insn.op1_register().size() == 2
        && state.gpr[RCX] & 31 > 16;
    through_stack || double
}
