//! What a caller supplies: values, and the machine that holds them.

use iced_x86::Register;

/// Bit vectors of 1 to 128 bits and what can be done with them.
///
/// Unless it says otherwise, an operation takes operands of the same width and gives that width.
/// Results are modulo two to the width.
pub trait Algebra {
    /// A bit vector, or a name of one.
    type Value: Copy;

    /// A number that fits into this many bits.
    fn constant(&mut self, bits: u32, value: u128) -> Self::Value;
    /// How wide a value is.
    fn bits(&self, v: Self::Value) -> u32;

    /// The sum.
    fn add(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The difference.
    fn sub(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The product.
    fn mul(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The unsigned quotient; all ones if the divisor is zero.
    fn udiv(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The unsigned remainder; the dividend if the divisor is zero.
    fn urem(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The signed quotient, rounded towards zero. The divisor of what was executed is
    /// not zero.
    fn sdiv(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The signed remainder, which has the sign of the dividend. The divisor of what was
    /// executed is not zero.
    fn srem(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Bits that are set in both.
    fn and(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Bits that are set in either.
    fn or(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Bits that differ.
    fn xor(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Shifted to the left by an unsigned count; zero if the count is the width or more.
    fn shl(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Shifted to the right, zeros follow; zero if the count is the width or more.
    fn lshr(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Shifted to the right, copies of the sign follow; only those if the count is the width or
    /// more.
    fn ashr(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// Every bit changed.
    fn not(&mut self, a: Self::Value) -> Self::Value;
    /// The negative, in two's complement.
    fn neg(&mut self, a: Self::Value) -> Self::Value;

    /// One bit: whether both are the same.
    fn eq(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// One bit: whether the first is less, as unsigned numbers.
    fn ult(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// One bit: whether the first is less, as signed numbers.
    fn slt(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The first of two values of one width if the condition, one bit, is set; else the second.
    fn ite(
        &mut self,
        condition: Self::Value,
        then: Self::Value,
        otherwise: Self::Value,
    ) -> Self::Value;

    /// Both in a row: as wide as both together, 128 bits at most.
    fn concat(&mut self, high: Self::Value, low: Self::Value) -> Self::Value;
    /// So many bits from bit `low` on.
    fn extract(&mut self, v: Self::Value, low: u32, bits: u32) -> Self::Value;
    /// Made wider by zeros; `bits` is more than the width.
    fn zext(&mut self, v: Self::Value, bits: u32) -> Self::Value;
    /// Made wider by copies of the sign; `bits` is more than the width.
    fn sext(&mut self, v: Self::Value, bits: u32) -> Self::Value;
}

/// The flags that are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Flag {
    /// CF.
    Carry,
    /// PF.
    Parity,
    /// AF.
    Adjust,
    /// ZF.
    Zero,
    /// SF.
    Sign,
    /// OF.
    Overflow,
    /// DF.
    Direction,
}

/// What an instruction sees and changes.
pub trait Machine: Algebra {
    /// A general register, 64 bits: 0 to 15 are rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8…
    fn gpr(&mut self, number: usize) -> Self::Value;
    /// Changes all 64 bits of it.
    fn set_gpr(&mut self, number: usize, value: Self::Value);
    /// The low 128 bits of a vector register.
    fn xmm(&mut self, number: usize) -> Self::Value;
    /// Changes them, and leaves the bits above alone, as legacy SSE does.
    fn set_xmm(&mut self, number: usize, value: Self::Value);
    /// Bits 128 to 255 of a vector register. Only VEX forms ask for them.
    fn ymm_high(&mut self, number: usize) -> Self::Value;
    /// Changes them. If the processor has bits above 255, they become zero.
    fn set_ymm_high(&mut self, number: usize, value: Self::Value);
    /// A flag, one bit. After [`Machine::undefine_flag`]: what the processor made of it.
    fn flag(&mut self, flag: Flag) -> Self::Value;
    /// Changes it.
    fn set_flag(&mut self, flag: Flag, value: Self::Value);
    /// The manuals leave it undefined: the machine takes what the processor did.
    fn undefine_flag(&mut self, flag: Flag);
    /// What memory holds: `bytes` is 1 to 16, little endian.
    ///
    /// The address has 64 bits and includes the base of the segment; where the operand really is is
    /// the machine's business, because the concrete run has told it.
    fn load(&mut self, address: Self::Value, bytes: u32) -> Self::Value;
    /// Changes memory. The value is a whole number of bytes, 16 at most.
    fn store(&mut self, address: Self::Value, value: Self::Value);
    /// The base of a segment, 64 bits. Only asked for `FS` and `GS`.
    fn segment_base(&mut self, segment: Register) -> Self::Value;
}
