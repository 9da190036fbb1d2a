//! The same instruction with its memory operand somewhere else.
//!
//! [`redirect`] and [`Encode`] go through iced; [`redirect_bytes`] patches the machine code. Both
//! exist because each is the other's test oracle, and because iced's encoder costs about 0.4 ms and
//! half a megabyte of heap when first used, which a short-lived process need not pay.
//!
//! The new operand is `[scratch]`: no index, no displacement, no segment base, 64-bit address size.
//! Everything else stays: `lock`, `rep`, `xacquire`/`xrelease`, `notrack`, opmask, zeroing,
//! broadcast, rounding, immediates.
//!
//! `scratch` must hold a linear address, so the caller adds the base of `fs` or `gs` where the
//! operand has such a prefix. To keep that from being forgotten, [`redirect`] refuses these
//! operands; [`redirect_linear`] and [`redirect_bytes`] do not.
//!
//! What the address is for:
//! - [`MemoryForm::Explicit`], [`MemoryForm::Masked`], [`MemoryForm::XState`],
//!   [`MemoryForm::Flush`]: what [`effective_address`](crate::effective_address) computes, plus the
//!   distance to the alias.
//! - [`MemoryForm::BitString`]: likewise, but the CPU still adds the bit offset, so the word that
//!   is accessed lies elsewhere; see [`bit_string_address`](crate::bit_string_address).
//! - [`MemoryForm::RegisterAddress`]: only the source operand is replaced.

use crate::forms::{
    MemoryForm, classify, memory_operand, modrm_equivalent, uses_high_byte_register,
};
use iced_x86::{Code, Encoder, EncodingKind, Instruction, Mnemonic, OpKind, Register};

/// The longest x86 instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// The instruction with its memory operand replaced by `[scratch]`, a 64-bit general register that
/// the instruction does not use.
///
/// `None` if it has no operand to replace (implicit addresses, vector indices, hints, unsupported
/// forms), if the operand has an `fs` or `gs` prefix, or if `scratch` needs a REX prefix that `ah`,
/// `bh`, `ch` or `dh` forbid (and for 3DNow!).
#[must_use]
pub fn redirect(insn: &Instruction, scratch: Register) -> Option<Instruction> {
    if has_segment_base(insn) {
        None
    } else {
        redirect_linear(insn, scratch)
    }
}

/// Like [`redirect`], also for operands with an `fs` or `gs` prefix: the caller has added the base
/// to `scratch`.
#[must_use]
pub fn redirect_linear(insn: &Instruction, scratch: Register) -> Option<Instruction> {
    if !can_redirect(insn, scratch) {
        return None;
    }
    let mut redirected = *insn;
    let code = modrm_equivalent(insn.code());
    if code != insn.code() {
        redirected.set_code(code);
        if insn.code() == Code::Xlat_m8 {
            // `xlatb` has its memory operand first, and the destination is implied.
            redirected.set_op0_kind(OpKind::Register);
            redirected.set_op0_register(Register::AL);
            redirected.set_op1_kind(OpKind::Memory);
        }
    }
    redirected.set_memory_base(scratch);
    redirected.set_memory_index(Register::None);
    redirected.set_memory_index_scale(1);
    redirected.set_memory_displacement64(0);
    redirected.set_memory_displ_size(0);
    if has_segment_base(insn) {
        redirected.set_segment_prefix(Register::None);
    }
    Some(redirected)
}

fn has_segment_base(insn: &Instruction) -> bool {
    matches!(insn.segment_prefix(), Register::FS | Register::GS)
}

fn can_redirect(insn: &Instruction, scratch: Register) -> bool {
    debug_assert!(scratch.is_gpr64());
    let replaceable = match classify(insn) {
        MemoryForm::Explicit { .. }
        | MemoryForm::Masked(_)
        | MemoryForm::BitString(_)
        | MemoryForm::XState(_)
        | MemoryForm::Flush(_)
        | MemoryForm::RegisterAddress { .. } => true,
        MemoryForm::None
        | MemoryForm::Gather(_)
        | MemoryForm::Scatter(_)
        | MemoryForm::String(_)
        | MemoryForm::ImplicitRdi(_)
        | MemoryForm::ImplicitRax { .. }
        | MemoryForm::StackImplicit
        | MemoryForm::Unsupported(_) => false,
    };
    // The destination register of `movdir64b` has the size of the address, so that a narrow one
    // needs the prefix that would also narrow the scratch register.
    let narrow_register = insn.mnemonic() == Mnemonic::Movdir64b && insn.op0_register().size() != 8;
    // iced 1.22 encodes 3DNow! instructions without their REX prefix.
    let without_rex = uses_high_byte_register(insn) || insn.encoding() == EncodingKind::D3NOW;
    replaceable
        && memory_operand(insn).is_some()
        && !narrow_register
        && !(scratch.number() >= 8 && without_rex)
}

/// Why an instruction could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// No encoding for these operands at this address.
    Invalid,
    /// The buffer is too small.
    BufferTooSmall,
}

/// Encodes instructions, reusing one buffer.
pub struct Encode {
    encoder: Encoder,
}

impl Default for Encode {
    fn default() -> Self {
        Self::new()
    }
}

impl Encode {
    /// The first one in a process builds iced's tables (about 0.4 ms).
    #[must_use]
    pub fn new() -> Self {
        Encode {
            encoder: Encoder::new(64),
        }
    }

    /// Writes the instruction, to be executed at `ip`, to the beginning of `out`, and answers its
    /// length.
    ///
    /// # Errors
    ///
    /// See [`EncodeError`].
    pub fn encode(
        &mut self,
        insn: &Instruction,
        ip: u64,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let result = self.encoder.encode(insn, ip);
        let mut bytes = self.encoder.take_buffer();
        let answer = match result {
            Err(_) => Err(EncodeError::Invalid),
            Ok(length) => match out.get_mut(..length) {
                None => Err(EncodeError::BufferTooSmall),
                Some(target) => {
                    target.copy_from_slice(&bytes[..length]);
                    Ok(length)
                }
            },
        };
        bytes.clear();
        self.encoder.set_buffer(bytes);
        answer
    }
}

/// Encodes one instruction; see [`Encode`] for many.
///
/// # Errors
///
/// See [`EncodeError`].
pub fn encode(insn: &Instruction, ip: u64, out: &mut [u8]) -> Result<usize, EncodeError> {
    Encode::new().encode(insn, ip, out)
}

/// Patches machine code: writes `insn`, whose encoding is `bytes`, with its memory operand replaced
/// by `[scratch]` to `out` and answers the new length. Neither allocates nor uses iced's encoder.
/// The result does not depend on its address.
///
/// `None` where [`redirect_linear`] answers `None`, and if the result would be longer than an
/// instruction may be.
#[must_use]
pub fn redirect_bytes(
    insn: &Instruction,
    bytes: &[u8],
    scratch: Register,
    out: &mut [u8; INSTRUCTION_BYTES_MAX],
) -> Option<usize> {
    if !can_redirect(insn, scratch) {
        return None;
    }
    let bytes = bytes.get(..insn.len())?;
    let mut writer = Writer { out, length: 0 };
    let far = scratch.number() >= 8;
    let absolute = modrm_equivalent(insn.code()) != insn.code();

    // Legacy prefixes. Only a REX prefix that directly precedes the opcode counts.
    let mut at = 0;
    let mut rex = 0;
    loop {
        match *bytes.get(at)? {
            // The address size and the bases of fs and gs have gone into the scratch register.
            0x67 | 0x64 | 0x65 => rex = 0,
            prefix @ (0x26 | 0x2E | 0x36 | 0x3E | 0x66 | 0xF0 | 0xF2 | 0xF3) => {
                rex = 0;
                writer.put(prefix)?;
            }
            prefix @ 0x40..=0x4F => rex = prefix,
            _ => break,
        }
        at += 1;
    }

    // Everything up to and including the opcode.
    match insn.encoding() {
        EncodingKind::Legacy | EncodingKind::D3NOW => {
            // R is kept, X belonged to the index, B to the base. Without a ModRM byte, R meant
            // nothing.
            let kept = if absolute { 0x48 } else { 0x4C };
            rex &= kept;
            if far {
                rex |= 0x41;
            }
            // A bare 0x40 still selects spl, bpl, sil and dil.
            if rex != 0 {
                writer.put(rex)?;
            }
            let opcode = *bytes.get(at)?;
            at += 1;
            if absolute {
                // 8A/8B load, 88/89 store; the accumulator is register 0.
                writer.put(match opcode {
                    0xD7 => 0x8A,
                    _ => 0x88 | (opcode & 1) | if opcode & 2 == 0 { 2 } else { 0 },
                })?;
                writer.memory_operand(0, scratch)?;
                return Some(writer.length);
            }
            writer.put(opcode)?;
            if opcode == 0x0F {
                let second = *bytes.get(at)?;
                at += 1;
                writer.put(second)?;
                if matches!(second, 0x38 | 0x3A) {
                    writer.put(*bytes.get(at)?)?;
                    at += 1;
                }
            }
        }
        EncodingKind::VEX if bytes[at] == 0xC5 => {
            let packed = *bytes.get(at + 1)?;
            if far {
                // The short form has no B bit: R, X = 1, B = 0 (inverted), map 1; then W = 0 and
                // the rest.
                writer.put(0xC4)?;
                writer.put(packed & 0x80 | 0x41)?;
                writer.put(packed & 0x7F)?;
            } else {
                writer.put(0xC5)?;
                writer.put(packed)?;
            }
            writer.put(*bytes.get(at + 2)?)?;
            at += 3;
        }
        EncodingKind::VEX | EncodingKind::XOP | EncodingKind::EVEX => {
            // X and B are inverted bits 6 and 5 of the second byte.
            writer.put(*bytes.get(at)?)?;
            let map = *bytes.get(at + 1)? & !0x60 | 0x40;
            writer.put(if far { map } else { map | 0x20 })?;
            let more = if insn.encoding() == EncodingKind::EVEX {
                3
            } else {
                2
            };
            for offset in 2..2 + more {
                writer.put(*bytes.get(at + offset)?)?;
            }
            at += 2 + more;
        }
        _ => return None,
    }

    // The memory operand, then whatever immediates follow.
    let modrm = *bytes.get(at)?;
    at += 1;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut displacement = match mode {
        0 if rm == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    if rm == 4 {
        let sib = *bytes.get(at)?;
        at += 1;
        if mode == 0 && sib & 7 == 5 {
            displacement = 4;
        }
    }
    at += displacement;
    writer.memory_operand(modrm >> 3 & 7, scratch)?;
    for &byte in bytes.get(at..)? {
        writer.put(byte)?;
    }
    Some(writer.length)
}

struct Writer<'a> {
    out: &'a mut [u8; INSTRUCTION_BYTES_MAX],
    length: usize,
}

impl Writer<'_> {
    fn put(&mut self, byte: u8) -> Option<()> {
        *self.out.get_mut(self.length)? = byte;
        self.length += 1;
        Some(())
    }

    /// `[scratch]` with this register field.
    fn memory_operand(&mut self, register: u8, scratch: Register) -> Option<()> {
        let base = scratch.number() as u8 & 7;
        match base {
            // rsp and r12 are only reachable through a SIB byte.
            4 => {
                self.put(register << 3 | 4)?;
                self.put(0x24)
            }
            // rbp and r13 need a displacement; without one they mean RIP-relative.
            5 => {
                self.put(0x40 | register << 3 | 5)?;
                self.put(0)
            }
            _ => self.put(register << 3 | base),
        }
    }
}
