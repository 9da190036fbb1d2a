//! Instructions to test with: one of every opcode, and random ones.
//!
//! `sample` builds an instruction from iced's description of its operands, so that no opcode can be
//! left out by forgetting it. `random_instructions` decodes structured random bytes, which also
//! reaches prefix combinations that nobody would think of.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub use brownout_random::Random;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, EncodingKind, Instruction, OpCodeOperandKind, OpKind,
    Register,
};

/// All ways to fill the free choices.
pub fn choices() -> impl Iterator<Item = Choice> {
    (0..8).map(|bits| Choice {
        mask: bits & 1 != 0,
        zeroing: bits & 2 != 0,
        broadcast: bits & 4 != 0,
    })
}

/// How `sample` fills the free choices of an opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Use the opmask register `k3`, if the opcode takes one.
    pub mask: bool,
    /// Use zeroing-masking, if the opcode takes it.
    pub zeroing: bool,
    /// Use embedded broadcast, if the opcode takes it.
    pub broadcast: bool,
}

/// The address that sample instructions decode at.
pub const SAMPLE_IP: u64 = 0x1234_5000;

/// One instruction of this opcode with a memory operand (if it can have one) at `[rbx+disp]`, or
/// with `zmm5`-class index for a vector index. `None` if 64-bit code cannot contain the opcode.
pub fn sample(code: Code, choice: Choice) -> Option<Instruction> {
    let description = code.op_code();
    if !description.is_instruction()
        || !description.mode64()
        || description.encoding() == EncodingKind::MVEX
    {
        return None;
    }
    let mut insn = Instruction::default();
    insn.set_code(code);
    // Registers are chosen apart from each other, because some opcodes fault on repeated ones.
    for index in 0..description.op_count() {
        let position = u32::from(index != 0) + u32::from(index > 1) + u32::from(index > 2);
        set_operand(&mut insn, index, position, description.op_kind(index));
    }
    if choice.mask || description.require_op_mask_register() {
        if !description.can_use_op_mask_register() && !description.require_op_mask_register() {
            return None;
        }
        insn.set_op_mask(Register::K3);
    }
    if choice.zeroing {
        if !description.can_use_zeroing_masking() || !insn.has_op_mask() {
            return None;
        }
        let writes_memory = insn.op0_kind() == OpKind::Memory;
        if writes_memory {
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
    let mut encoder = Encoder::new(64);
    encoder.encode(&insn, SAMPLE_IP).ok()?;
    let bytes = encoder.take_buffer();
    let decoded = decode(&bytes)?;
    (decoded.code() == code).then_some(decoded)
}

/// Decodes one instruction at [`SAMPLE_IP`]; `None` if the bytes are not a valid instruction.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, SAMPLE_IP, DecoderOptions::NONE);
    let insn = decoder.decode();
    (!insn.is_invalid()).then_some(insn)
}

fn nth(base: Register, number: u32) -> Register {
    Register::try_from(base as usize + number as usize).unwrap()
}

fn set_operand(insn: &mut Instruction, index: u32, position: u32, kind: OpCodeOperandKind) {
    use OpCodeOperandKind as K;
    let reg = |insn: &mut Instruction, register: Register| {
        insn.set_op_kind(index, OpKind::Register);
        insn.set_op_register(index, register);
    };
    let memory = |insn: &mut Instruction, vector: Option<Register>| {
        insn.set_op_kind(index, OpKind::Memory);
        insn.set_memory_base(Register::RBX);
        if let Some(vector) = vector {
            insn.set_memory_index(vector);
            insn.set_memory_index_scale(4);
        }
        insn.set_memory_displacement64(0x1234_5678);
        // iced's size of a sign-extended 32-bit displacement in 64-bit addressing.
        insn.set_memory_displ_size(8);
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
        | K::k_or_mem
        | K::r32_or_mem_mpx
        | K::r64_or_mem_mpx
        | K::bnd_or_mem_mpx
        | K::mem_mpx
        | K::mem_mib => memory(insn, None),
        K::sibmem => memory(insn, Some(Register::RDX)),
        K::mem_vsib32x | K::mem_vsib64x => memory(insn, Some(Register::XMM5)),
        K::mem_vsib32y | K::mem_vsib64y => memory(insn, Some(Register::YMM5)),
        K::mem_vsib32z | K::mem_vsib64z => memory(insn, Some(Register::ZMM5)),
        K::mem_offs => {
            insn.set_op_kind(index, OpKind::Memory);
            insn.set_memory_displacement64(0x1122_3344_5566_7788);
            insn.set_memory_displ_size(8);
        }
        K::seg_rBX_al => {
            insn.set_op_kind(index, OpKind::Memory);
            insn.set_memory_base(Register::RBX);
            insn.set_memory_index(Register::AL);
        }
        K::seg_rSI => insn.set_op_kind(index, OpKind::MemorySegRSI),
        K::es_rDI => insn.set_op_kind(index, OpKind::MemoryESRDI),
        K::seg_rDI => insn.set_op_kind(index, OpKind::MemorySegRDI),
        K::r8_reg => reg(insn, nth(Register::CL, position)),
        K::r8_opcode => reg(insn, Register::CL),
        K::r16_reg | K::r16_rm | K::r16_opcode | K::r16_reg_mem => {
            reg(insn, nth(Register::CX, position))
        }
        K::r32_reg | K::r32_rm | K::r32_opcode | K::r32_vvvv | K::r32_reg_mem => {
            reg(insn, nth(Register::R8D, position));
        }
        K::r64_reg | K::r64_rm | K::r64_opcode | K::r64_vvvv | K::r64_reg_mem => {
            reg(insn, nth(Register::R8, position));
        }
        K::seg_reg => reg(insn, Register::DS),
        K::k_reg | K::k_rm | K::k_vvvv => reg(insn, nth(Register::K1, position)),
        K::kp1_reg => reg(insn, Register::K4),
        K::mm_reg | K::mm_rm => reg(insn, nth(Register::MM1, position)),
        K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 | K::xmm_is5 => {
            reg(insn, nth(Register::XMM1, position));
        }
        K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
            reg(insn, nth(Register::YMM1, position));
        }
        K::zmm_reg | K::zmm_rm | K::zmm_vvvv => reg(insn, nth(Register::ZMM1, position)),
        K::xmmp3_vvvv => reg(insn, Register::XMM4),
        K::zmmp3_vvvv => reg(insn, Register::ZMM4),
        K::tmm_reg | K::tmm_rm | K::tmm_vvvv => reg(insn, nth(Register::TMM1, position)),
        K::bnd_reg => reg(insn, Register::BND1),
        K::cr_reg => reg(insn, Register::CR4),
        K::dr_reg => reg(insn, Register::DR7),
        K::tr_reg => reg(insn, Register::TR1),
        K::es => reg(insn, Register::ES),
        K::cs => reg(insn, Register::CS),
        K::ss => reg(insn, Register::SS),
        K::ds => reg(insn, Register::DS),
        K::fs => reg(insn, Register::FS),
        K::gs => reg(insn, Register::GS),
        K::al => reg(insn, Register::AL),
        K::cl => reg(insn, Register::CL),
        K::ax => reg(insn, Register::AX),
        K::dx => reg(insn, Register::DX),
        K::eax => reg(insn, Register::EAX),
        K::rax => reg(insn, Register::RAX),
        K::st0 => reg(insn, Register::ST0),
        K::sti_opcode => reg(insn, Register::ST3),
        K::imm8_const_1 => {
            insn.set_op_kind(index, OpKind::Immediate8);
            insn.set_immediate8(1);
        }
        K::imm8 | K::imm4_m2z => {
            let second = (0..index).any(|earlier| insn.op_kind(earlier) == OpKind::Immediate8)
                || insn.op_kind(0) == OpKind::Immediate16;
            insn.set_op_kind(
                index,
                if second {
                    OpKind::Immediate8_2nd
                } else {
                    OpKind::Immediate8
                },
            );
            if second {
                insn.set_immediate8_2nd(1)
            } else {
                insn.set_immediate8(1)
            }
        }
        K::imm8sex16 => insn.set_op_kind(index, OpKind::Immediate8to16),
        K::imm8sex32 => insn.set_op_kind(index, OpKind::Immediate8to32),
        K::imm8sex64 => insn.set_op_kind(index, OpKind::Immediate8to64),
        K::imm16 => insn.set_op_kind(index, OpKind::Immediate16),
        K::imm32 => insn.set_op_kind(index, OpKind::Immediate32),
        K::imm32sex64 => insn.set_op_kind(index, OpKind::Immediate32to64),
        K::imm64 => insn.set_op_kind(index, OpKind::Immediate64),
        K::br16_1 | K::br16_2 | K::xbegin_2 => insn.set_op_kind(index, OpKind::NearBranch16),
        K::br32_1 | K::br32_4 => insn.set_op_kind(index, OpKind::NearBranch32),
        K::br64_1 | K::br64_4 | K::xbegin_4 => {
            insn.set_op_kind(index, OpKind::NearBranch64);
            insn.set_near_branch64(SAMPLE_IP + 0x10);
        }
        _ => {}
    }
}

/// Random bytes that are likelier than chance to begin with a rarely met prefix or opcode map.
pub fn random_bytes(random: &mut Random) -> [u8; 15] {
    let mut bytes = [0u8; 15];
    random.fill(&mut bytes);
    let pick = |random: &mut Random, from: &[u8]| from[random.below(from.len() as u64) as usize];
    match random.below(8) {
        0 | 1 => {}
        2 => bytes[0] = pick(random, &[0xC4, 0xC5, 0x8F]),
        3 | 4 => {
            // EVEX: P0 = RXBR'0mmm, P1 = Wvvvv1pp; the fixed bits right, the map one that exists.
            bytes[0] = 0x62;
            bytes[1] = (bytes[1] & 0xF0) | pick(random, &[1, 2, 3, 5, 6]);
            bytes[2] |= 4;
        }
        5 => bytes[0] = 0x0F,
        6 => {
            bytes[0] = pick(random, &[0x66, 0xF2, 0xF3, 0xF0, 0x67, 0x64, 0x65, 0x3E]);
            bytes[1] = pick(random, &[0x0F, 0x48, 0x66, 0x67, 0xF3, bytes[1]]);
        }
        _ => {
            let mut at = 0;
            for prefix in [0x66, 0xF2, 0xF3] {
                if random.below(3) == 0 {
                    bytes[at] = prefix;
                    at += 1;
                }
            }
            if random.below(2) == 0 {
                bytes[at] = 0x40 | (random.bits() as u8 & 0xF);
                at += 1;
            }
            bytes[at] = 0x0F;
            bytes[at + 1] = pick(random, &[0x38, 0x3A, bytes[at + 1]]);
        }
    }
    bytes
}
