//! General registers, flags, the stack and strings.

use crate::Unknown;
use crate::build::{Answer, Builder, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Source, flags_in};
use crate::flow::At;
use crate::place::{Flag, Place, Span};
use brownout_insn::{BitString, MemoryForm, Repeat, StringOperation, classify};
use iced_x86::{Code, Mnemonic, OpAccess, OpKind, Register};

/// The flags that a sum or a difference sets.
const CARRIES: [Flag; 2] = [Flag::Carry, Flag::Overflow];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Add,
    Subtract,
    AddCarry,
    SubtractBorrow,
    Compare,
    Increment,
    Negate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
    Test,
    AndNot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    Right,
    Arithmetic,
    RotateLeft,
    RotateRight,
}

impl Builder<'_> {
    fn low_gpr(&self, number: usize, bytes: usize) -> Span {
        Span::new(Place::gpr(number), bytes)
    }

    /// Every register byte, memory byte and flag that changes depends on everything that is read.
    ///
    /// Good for any instruction whose operands iced describes and that has no implicit memory.
    pub fn everything(&mut self) -> Answer {
        let all = self.gathered()?;
        self.write_everywhere(all)
    }

    /// The union of everything that the instruction reads.
    pub fn gathered(&mut self) -> Result<Place, Unknown> {
        if self.insn.is_stack_instruction() || self.insn.is_string_instruction() {
            return Err(Unknown("memory that is not an operand"));
        }
        let all = self.join(&[]);
        self.add_flags_read(all);
        if let Some(operand) = brownout_insn::memory_operand(self.insn)
            && self.reads(operand)
        {
            let memory = self.memory();
            self.fold_more(all, memory);
        }
        let info = self.info;
        for used in info.used_registers() {
            let read = matches!(
                used.access(),
                OpAccess::Read
                    | OpAccess::CondRead
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
                    // What is written under a condition keeps its old value otherwise.
                    | OpAccess::CondWrite
            );
            if read && !self.only_addresses(used.register()) {
                let span = self.followed(used.register())?;
                self.fold_more(all, span);
            }
        }
        if self.insn.has_op_mask() {
            let mask = Place::opmask(self.insn.op_mask().number());
            self.fold_more(all, Span::new(mask, 8));
            if !self.insn.zeroing_masking() {
                let kept = self.data(0)?;
                self.fold_more(all, kept);
            }
        }
        Ok(all)
    }

    /// Everything that the instruction writes gets this label.
    pub fn write_everywhere(&mut self, all: Place) -> Answer {
        let info = self.info;
        for used in info.used_registers() {
            let written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            if written {
                let span = self.followed(used.register())?;
                self.fill(span, all);
                // iced calls the whole of a register written where a part of it is the result.
                for operand in 0..self.insn.op_count() {
                    if self.is_register(operand)
                        && self.insn.op_register(operand).full_register()
                            == used.register().full_register()
                        && self.writes(operand)
                    {
                        self.finish(operand);
                    }
                }
            }
        }
        if let Some(operand) = brownout_insn::memory_operand(self.insn)
            && self.writes(operand)
        {
            let memory = self.memory();
            self.fill(memory, all);
        }
        self.flags_from(all);
        Ok(())
    }

    fn followed(&self, register: Register) -> Result<Span, Unknown> {
        Place::of_register(register).ok_or(Unknown("a register that is not followed"))
    }

    /// Whether the register is read to form an address and for nothing else.
    fn only_addresses(&self, register: Register) -> bool {
        let insn = self.insn;
        let full = register.full_register();
        if register.is_segment_register() {
            return true;
        }
        let addresses = brownout_insn::memory_operand(insn).is_some()
            && (insn.memory_base().full_register() == full
                || insn.memory_index().full_register() == full);
        let operand = (0..insn.op_count()).any(|operand| {
            self.is_register(operand)
                && insn.op_register(operand).full_register() == full
                && self.reads(operand)
        });
        addresses && !operand && !self.has_implicit_source(full)
    }

    /// Registers that `everything` reads without naming them, and that an address may name, too.
    fn has_implicit_source(&self, full: Register) -> bool {
        let implicit: &[Register] = match self.insn.mnemonic() {
            Mnemonic::Mulx => &[Register::RDX],
            Mnemonic::Pcmpestri
            | Mnemonic::Pcmpestrm
            | Mnemonic::Vpcmpestri
            | Mnemonic::Vpcmpestrm => &[Register::RAX, Register::RDX],
            _ => &[],
        };
        implicit.contains(&full)
    }

    // ── moves ───────────────────────────────────────────────────────────────────────────────────

    pub fn move_plain(&mut self) -> Answer {
        // Selectors are constants of the process; loading one is for the kernel's eyes.
        if self.is_register(1) && self.insn.op_register(1).is_segment_register() {
            let to = self.data(0)?;
            self.clear(to);
            self.finish(0);
            return Ok(());
        }
        let (to, from) = (self.data(0)?, self.source(1)?);
        self.assign(to, from);
        self.finish(0);
        Ok(())
    }

    pub fn extend(&mut self, signed: bool) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let from = from.low(to.len());
        let upper = to.part(from.len(), to.len() - from.len());
        // `movsx` from `ah` to `eax`: the sign byte must be read before it is overwritten.
        let value = self.temporary(from.len());
        self.copy(value.place, from);
        self.copy(to.place, value);
        if signed {
            self.fill(upper, value.at(value.len() - 1));
        } else {
            self.clear(upper);
        }
        self.finish(0);
        Ok(())
    }

    /// `cbw`, `cwde`, `cdqe`, `cwd`, `cdq`, `cqo`.
    pub fn widen(&mut self) -> Answer {
        let rax = |bytes| Span::new(Place::gpr(RAX), bytes);
        match self.insn.mnemonic() {
            Mnemonic::Cbw => self.fill(rax(2).part(1, 1), rax(1).place),
            Mnemonic::Cwde => {
                self.fill(rax(4).part(2, 2), rax(2).at(1));
                self.clear(rax(8).part(4, 4));
            }
            Mnemonic::Cdqe => self.fill(rax(8).part(4, 4), rax(4).at(3)),
            Mnemonic::Cwd => self.fill(self.low_gpr(RDX, 2), rax(2).at(1)),
            Mnemonic::Cdq => {
                self.fill(self.low_gpr(RDX, 4), rax(4).at(3));
                self.clear(self.low_gpr(RDX, 8).part(4, 4));
            }
            _ => self.fill(self.low_gpr(RDX, 8), rax(8).at(7)),
        }
        Ok(())
    }

    pub fn reverse(&mut self) -> Answer {
        let to = self.data(0)?;
        let from = if self.insn.op_count() == 1 {
            to
        } else {
            self.data(1)?
        };
        let value = self.temporary(from.len());
        self.copy(value.place, from);
        let last = value.len() - 1;
        self.permute(to, |byte| Some(value.at(last - byte)));
        if to.len() == 2 && self.insn.mnemonic() == Mnemonic::Bswap {
            // Undefined for 16 bits: processors clear it, or swap.
            self.fill_both(to);
        }
        self.finish(0);
        Ok(())
    }

    fn fill_both(&mut self, to: Span) {
        let all = self.join(&[Source::Data(to)]);
        self.fill(to, all);
    }

    pub fn load_address(&mut self) -> Answer {
        let to = self.data(0)?;
        let insn = self.insn;
        let value = self.temporary(8);
        self.clear(value);
        for register in [insn.memory_base(), insn.memory_index()] {
            if let Some(span) = Place::of_register(register) {
                let part = value.low(span.len());
                self.union(part.place, part, span.place);
            }
        }
        let narrow = [insn.memory_base(), insn.memory_index()]
            .iter()
            .any(|register| register.is_gpr32());
        let low = value.low(to.len());
        self.carry(8, to.place, low, low.place);
        if narrow && to.len() == 8 {
            self.clear(to.part(4, 4));
        }
        self.finish(0);
        Ok(())
    }

    pub fn exchange(&mut self) -> Answer {
        let (a, b) = (self.data(0)?, self.data(1)?);
        let old = self.temporary(a.len());
        self.copy(old.place, a);
        self.copy(a.place, b);
        self.finish(0);
        self.copy(b.place, old);
        self.finish(1);
        Ok(())
    }

    pub fn exchange_add(&mut self) -> Answer {
        let (a, b) = (self.data(0)?, self.data(1)?);
        let (old, sum) = (self.temporary(a.len()), self.temporary(a.len()));
        self.copy(old.place, a);
        self.carry(a.len(), sum.place, a, b.place);
        // The sum is written last: it is what remains of `xadd r, r`.
        self.copy(b.place, old);
        self.finish(1);
        self.copy(a.place, sum);
        self.finish(0);
        self.sum_flags(sum, true);
        Ok(())
    }

    pub fn compare_exchange(&mut self) -> Answer {
        let (to, new) = (self.data(0)?, self.data(1)?);
        let bytes = to.len();
        let expected = self.low_gpr(RAX, bytes);
        let compared = self.join(&[Source::Data(expected), Source::Data(to)]);
        let value = self.temporary(bytes);
        self.copy(value.place, new);
        self.fill_more(value, compared);
        self.fill(expected, compared);
        self.copy(to.place, value);
        if self.is_register(0) && self.insn.op_register(0).full_register() == Register::RAX {
            self.fill_more(expected, compared);
        }
        if bytes == 4 {
            // Which of the two registers is written decides whose upper half is cleared.
            self.fill_more(self.low_gpr(RAX, 8).part(4, 4), compared);
            if self.is_register(0) {
                let number = self.insn.op_register(0).full_register().number();
                self.fill_more(self.low_gpr(number, 8).part(4, 4), compared);
            }
        }
        self.flags_from(compared);
        Ok(())
    }

    pub fn compare_exchange_wide(&mut self) -> Answer {
        let memory = self.data(0)?;
        let half = memory.len() / 2;
        let parts = [self.low_gpr(RAX, half), self.low_gpr(RDX, half)];
        let compared = self.join(&[
            Source::Data(memory),
            Source::Data(parts[0]),
            Source::Data(parts[1]),
        ]);
        for (number, new) in [(0, RBX), (1, RCX)] {
            self.copy(memory.at(number * half), self.low_gpr(new, half));
        }
        self.fill_more(memory, compared);
        for part in parts {
            self.fill(part, compared);
            if half == 4 {
                self.fill_more(Span::new(part.place.plus(4), 4), compared);
            }
        }
        self.flag(Flag::Zero, compared);
        Ok(())
    }

    // ── arithmetic ──────────────────────────────────────────────────────────────────────────────

    pub fn sum(&mut self, sum: Sum) -> Answer {
        let to = self.data(0)?;
        let bytes = to.len();
        let other = if self.insn.op_count() > 1 {
            self.source(1)?
        } else {
            Source::Constant(1)
        };
        let written = sum != Sum::Compare;
        let result = if written { to } else { self.temporary(bytes) };
        let vanishes =
            matches!(sum, Sum::Subtract | Sum::SubtractBorrow | Sum::Compare) && self.same(0, 1);
        if vanishes {
            self.clear(result);
        } else {
            let with = match other {
                Source::Data(span) => span.place,
                Source::Constant(_) => to.place,
            };
            self.carry(bytes, result.place, to, with);
        }
        if matches!(sum, Sum::AddCarry | Sum::SubtractBorrow) {
            self.fill_more(result, Place::flag(Flag::Carry));
        }
        self.sum_flags(result, sum != Sum::Increment);
        if written {
            self.finish(0);
        }
        Ok(())
    }

    /// The flags of a sum: its lowest byte depends on the lowest bytes of both, its highest on all
    /// of them.
    fn sum_flags(&mut self, result: Span, carry: bool) {
        let (low, all) = (result.at(0), result.at(result.len() - 1));
        for flag in CARRIES {
            if carry || flag != Flag::Carry {
                self.flag(flag, all);
            }
        }
        self.flag(Flag::Zero, all);
        self.flag(Flag::Sign, all);
        self.flag(Flag::Parity, low);
        self.flag(Flag::Auxiliary, low);
    }

    /// `adcx` and `adox`.
    pub fn carry_chain(&mut self, flag: Flag) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        self.carry(to.len(), to.place, to, from.place);
        self.fill_more(to, Place::flag(flag));
        self.flag(flag, to.at(to.len() - 1));
        self.finish(0);
        Ok(())
    }

    /// Zero, sign and parity of a result; carry and overflow are cleared, and so is the auxiliary
    /// carry, which manuals leave undefined and all processors clear.
    fn result_flags(&mut self, result: Span) {
        self.fold(Place::flag(Flag::Zero), result);
        self.flag(Flag::Sign, result.at(result.len() - 1));
        self.flag(Flag::Parity, result.at(0));
        self.clear_flags(&[Flag::Carry, Flag::Overflow, Flag::Auxiliary]);
    }

    pub fn logic(&mut self, logic: Logic) -> Answer {
        let to = self.data(0)?;
        let (a, b) = match logic {
            Logic::AndNot => (1, 2),
            _ => (0, 1),
        };
        let (first, second) = (self.data(a)?, self.source(b)?);
        let result = if logic == Logic::Test {
            self.temporary(to.len())
        } else {
            to
        };
        let vanishes = matches!(logic, Logic::Xor | Logic::AndNot) && self.same(a, b);
        match second {
            _ if vanishes => self.clear(result),
            Source::Data(span) => self.union(result.place, first, span.place),
            Source::Constant(mask) => {
                let mask = mask.to_le_bytes();
                self.permute(result, |byte| match (logic, mask[byte]) {
                    (Logic::And | Logic::Test, 0) | (Logic::Or, 0xFF) => None,
                    _ => Some(first.at(byte)),
                });
            }
        }
        if logic == Logic::AndNot {
            self.result_flags(result);
            // `andn` leaves parity and the auxiliary carry undefined.
            for flag in [Flag::Parity, Flag::Auxiliary] {
                self.fill_more(Span::new(Place::flag(flag), 1), Place::flag(Flag::Zero));
            }
        } else {
            self.result_flags(result);
        }
        if logic != Logic::Test {
            self.finish(0);
        }
        Ok(())
    }

    /// Every byte of the destination stays what it was, or depends on what it was.
    pub fn kept(&mut self) -> Answer {
        if self.is_memory(0) {
            self.memory();
        }
        Ok(())
    }

    pub fn not(&mut self) -> Answer {
        self.kept()?;
        self.finish(0);
        Ok(())
    }

    /// `blsr`, `blsi`, `blsmsk`: a subtraction of one, and something bit by bit.
    pub fn lowest_bit(&mut self) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        self.carry(to.len(), to.place, from, from.place);
        self.flags_from(to.at(to.len() - 1));
        self.finish(0);
        Ok(())
    }

    /// Gives `to` the labels of `from`, shifted by a known number of bits. They must not overlap.
    pub fn shift_bytes(&mut self, to: Span, from: Span, shift: Shift, bits: usize) {
        let length = from.len();
        let (whole, part) = (bits / 8, bits % 8);
        match shift {
            Shift::RotateLeft | Shift::RotateRight => {
                let left = if shift == Shift::RotateLeft {
                    bits % (8 * length)
                } else {
                    (8 * length - bits % (8 * length)) % (8 * length)
                };
                let (whole, part) = (left / 8, left % 8);
                let source =
                    |byte: usize, more: usize| from.at((byte + 2 * length - whole - more) % length);
                self.permute(to, |byte| Some(source(byte, 0)));
                if part != 0 {
                    for byte in 0..length {
                        self.fill_more(to.part(byte, 1), source(byte, 1));
                    }
                }
            }
            Shift::Left => {
                let kept = length.saturating_sub(whole);
                self.clear(to.low(length - kept));
                if kept == 0 {
                } else if part == 0 {
                    self.copy(to.at(whole), from.low(kept));
                } else {
                    self.copy(to.at(whole), from.low(1));
                    let pairs = kept - 1;
                    if pairs > 0 {
                        self.union(to.at(whole + 1), from.part(1, pairs), from.at(0));
                    }
                }
            }
            Shift::Right | Shift::Arithmetic => {
                let kept = length.saturating_sub(whole);
                let upper = to.part(kept, length - kept);
                if shift == Shift::Arithmetic {
                    self.fill(upper, from.at(length - 1));
                } else {
                    self.clear(upper);
                }
                if kept == 0 {
                } else if part == 0 {
                    self.copy(to.place, from.part(whole, kept));
                } else {
                    let pairs = kept - 1;
                    if pairs > 0 {
                        self.union(to.place, from.part(whole, pairs), from.at(whole + 1));
                    }
                    self.copy(to.at(kept - 1), from.part(length - 1, 1));
                }
            }
        }
    }

    pub fn shift(&mut self, shift: Shift) -> Answer {
        let to = self.data(0)?;
        let bytes = to.len();
        let rotates = matches!(shift, Shift::RotateLeft | Shift::RotateRight);
        match self.source(1)? {
            Source::Constant(count) => {
                let count = count as usize & if bytes == 8 { 63 } else { 31 };
                if count != 0 {
                    let value = self.temporary(bytes);
                    self.copy(value.place, to);
                    self.shift_bytes(to, value, shift, count);
                    let all = self.join(&[Source::Data(value)]);
                    if rotates {
                        self.flag(Flag::Carry, all);
                        self.keep_or(&[Flag::Overflow], all);
                    } else {
                        self.fold(Place::flag(Flag::Zero), to);
                        self.flag(Flag::Sign, to.at(bytes - 1));
                        self.flag(Flag::Parity, to.at(0));
                        // A carry that was shifted too far, an overflow of a shift by more than
                        // one, and the auxiliary carry are undefined.
                        self.keep_or(&[Flag::Carry, Flag::Overflow, Flag::Auxiliary], all);
                    }
                }
            }
            Source::Data(count) => {
                let all = self.join(&[Source::Data(to), Source::Data(count)]);
                if shift == Shift::Left {
                    self.carry(bytes, to.place, to, to.place);
                    self.fill_more(to, count.place);
                    // `shl cl, cl` and the like: the count may have been overwritten.
                    if self.insn.op_register(1).full_register()
                        == self.insn.op_register(0).full_register()
                    {
                        self.fill(to, all);
                    }
                } else {
                    self.fill(to, all);
                }
                let flags = [
                    Flag::Carry,
                    Flag::Overflow,
                    Flag::Auxiliary,
                    Flag::Zero,
                    Flag::Sign,
                    Flag::Parity,
                ];
                self.keep_or(if rotates { &flags[..2] } else { &flags }, all);
            }
        }
        self.finish(0);
        Ok(())
    }

    fn keep_or(&mut self, flags: &[Flag], more: Place) {
        for flag in flags {
            self.fill_more(Span::new(Place::flag(*flag), 1), more);
        }
    }

    /// Rotations through the carry, and shifts of two registers.
    pub fn shift_everything(&mut self) -> Answer {
        let to = self.data(0)?;
        let mut all = self.join(&[Source::Data(to)]);
        for operand in 1..self.insn.op_count() {
            if let Source::Data(span) = self.source(operand)? {
                all = self.join(&[Source::Data(Span::new(all, 1)), Source::Data(span)]);
            }
        }
        self.add_flags_read(all);
        self.fill(to, all);
        self.finish(0);
        for flag in flags_in(brownout_insn::flags_written(self.insn)) {
            self.keep_or(&[flag], all);
        }
        Ok(())
    }

    /// `rorx`, and `shlx` and its like.
    pub fn shift_without_flags(&mut self, shift: Shift) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let bytes = to.len();
        match self.source(2)? {
            Source::Constant(count) => {
                let value = self.temporary(bytes);
                self.copy(value.place, from);
                let count = count as usize & (8 * bytes - 1);
                self.shift_bytes(to, value, shift, count);
            }
            Source::Data(count) => {
                let count = self.join(&[Source::Data(count.low(1))]);
                if shift == Shift::Left {
                    self.carry(bytes, to.place, from, from.place);
                } else {
                    self.lanes(bytes, to.place, from, from.place);
                }
                self.fill_more(to, count);
            }
        }
        self.finish(0);
        Ok(())
    }

    pub fn multiply(&mut self) -> Answer {
        if self.insn.op_count() > 1 {
            let to = self.data(0)?;
            let (a, b) = if self.insn.op_count() == 3 {
                (self.data(1)?, self.source(2)?)
            } else {
                (to, self.source(1)?)
            };
            let with = match b {
                Source::Data(span) => span.place,
                Source::Constant(_) => a.place,
            };
            let product = self.temporary(to.len());
            self.carry(to.len(), product.place, a, with);
            self.copy(to.place, product);
            self.finish(0);
            self.flags_from(product.at(to.len() - 1));
            return Ok(());
        }
        let factor = self.data(0)?;
        let bytes = factor.len();
        let product = self.temporary(bytes);
        self.carry(bytes, product.place, self.low_gpr(RAX, bytes), factor.place);
        let all = product.at(bytes - 1);
        self.copy(Place::gpr(RAX), product);
        if bytes == 1 {
            self.copy(Place::gpr(RAX).plus(1), Span::new(all, 1));
        } else {
            self.fill(self.low_gpr(RDX, bytes), all);
        }
        if bytes == 4 {
            for number in [RAX, RDX] {
                self.clear(self.low_gpr(number, 8).part(4, 4));
            }
        }
        self.flags_from(all);
        Ok(())
    }

    pub fn divide(&mut self) -> Answer {
        let divisor = self.data(0)?;
        let bytes = divisor.len();
        let high = if bytes == 1 {
            Span::new(Place::gpr(RAX).plus(1), 1)
        } else {
            self.low_gpr(RDX, bytes)
        };
        let low = self.low_gpr(RAX, bytes);
        let all = self.join(&[Source::Data(divisor), Source::Data(low), Source::Data(high)]);
        for part in [low, high] {
            self.fill(part, all);
            if bytes == 4 {
                self.clear(Span::new(part.place.plus(4), 4));
            }
        }
        self.flags_from(all);
        Ok(())
    }

    // ── bits and conditions ─────────────────────────────────────────────────────────────────────

    pub fn bit_test(&mut self) -> Answer {
        let offset = self.source(1)?;
        let word = match classify(self.insn) {
            MemoryForm::BitString(BitString { effect, .. }) => {
                let word = self.memory_at(At::BitString, effect.size as usize);
                if let Source::Data(span) = offset {
                    self.operand_mut(word).address[3] = span;
                }
                word
            }
            _ => self.data(0)?,
        };
        let all = match offset {
            Source::Data(span) => {
                let all = self.join(&[Source::Data(word), Source::Data(span.low(1))]);
                if self.insn.mnemonic() != Mnemonic::Bt {
                    let chosen = self.temporary(1);
                    self.copy(chosen.place, span.low(1));
                    self.fill_more(word, chosen.place);
                    self.finish(0);
                }
                all
            }
            Source::Constant(offset) => {
                if self.insn.mnemonic() != Mnemonic::Bt {
                    self.finish(0);
                }
                let byte = (offset as usize % (8 * word.len())) / 8;
                self.join(&[Source::Data(word.part(byte, 1))])
            }
        };
        self.flag(Flag::Carry, all);
        self.undefined_flags_from(all);
        Ok(())
    }

    /// `bsf`, `bsr`, `tzcnt`, `lzcnt`, `popcnt`: a number that fits a byte.
    pub fn count_bits(&mut self) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let all = self.join(&[Source::Data(from)]);
        if matches!(self.insn.mnemonic(), Mnemonic::Bsf | Mnemonic::Bsr) {
            // Without a bit the destination stays, and whether it does depends on all.
            self.fill_more(to, all);
            if to.len() == 4 {
                let number = self.insn.op0_register().full_register().number();
                self.fill_more(self.low_gpr(number, 8).part(4, 4), all);
            }
        } else {
            self.copy(to.place, Span::new(all, 1));
            self.clear(to.part(1, to.len() - 1));
            self.finish(0);
        }
        self.flags_from(all);
        Ok(())
    }

    pub fn conditional_move(&mut self) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let condition = self.join(&[]);
        self.add_flags_read(condition);
        self.union(to.place, to, from.place);
        self.fill_more(to, condition);
        self.finish(0);
        Ok(())
    }

    pub fn set_condition(&mut self) -> Answer {
        let to = self.data(0)?;
        let condition = self.join(&[]);
        self.add_flags_read(condition);
        self.copy(to.place, Span::new(condition, 1));
        Ok(())
    }

    // ── the stack and branches ──────────────────────────────────────────────────────────────────

    fn move_stack(&mut self) {
        let rsp = self.low_gpr(RSP, 8);
        self.carry(8, rsp.place, rsp, rsp.place);
    }

    fn pushed(&mut self) -> Span {
        let bytes = self.insn.stack_pointer_increment().unsigned_abs() as usize;
        self.memory_by(At::Push, bytes, self.low_gpr(RSP, 8))
    }

    fn popped(&mut self, bytes: usize) -> Span {
        self.memory_by(At::Pop, bytes, self.low_gpr(RSP, 8))
    }

    pub fn push(&mut self) -> Answer {
        let from = if self.is_register(0) && self.insn.op_register(0).is_segment_register() {
            Source::Constant(0)
        } else {
            self.source(0)?
        };
        let to = self.pushed();
        self.assign(to, from);
        self.move_stack();
        Ok(())
    }

    pub fn pop(&mut self) -> Answer {
        if self.is_register(0) && self.insn.op_register(0).is_segment_register() {
            return Err(Unknown("a segment register is loaded"));
        }
        let to = self.data(0)?;
        let from = self.popped(to.len());
        self.move_stack();
        self.copy(to.place, from);
        Ok(())
    }

    pub fn push_flags(&mut self) -> Answer {
        let to = self.pushed();
        let low = [
            Flag::Carry,
            Flag::Parity,
            Flag::Auxiliary,
            Flag::Zero,
            Flag::Sign,
        ];
        let high = [Flag::Direction, Flag::Overflow, Flag::Others];
        self.clear(to);
        for flag in low {
            self.fold_more(to.at(0), Span::new(Place::flag(flag), 1));
        }
        for flag in high {
            self.fold_more(to.at(1), Span::new(Place::flag(flag), 1));
        }
        if to.len() > 2 {
            self.copy(to.at(2), Span::new(Place::flag(Flag::Others), 1));
        }
        self.move_stack();
        Ok(())
    }

    pub fn pop_flags(&mut self) -> Answer {
        let bytes = self.insn.stack_pointer_increment().unsigned_abs() as usize;
        let from = self.popped(bytes);
        for flag in Flag::ALL {
            match flag {
                Flag::Direction | Flag::Overflow => self.flag(flag, from.at(1)),
                Flag::Others => {
                    let bytes = from.len().min(3) - 1;
                    self.fold_more(Place::flag(flag), from.part(1, bytes));
                }
                _ => self.flag(flag, from.at(0)),
            }
        }
        self.move_stack();
        Ok(())
    }

    /// `lahf` and `sahf`.
    pub fn flags_and_ah(&mut self) -> Answer {
        let ah = Place::gpr(RAX).plus(1);
        let flags = [
            Flag::Carry,
            Flag::Parity,
            Flag::Auxiliary,
            Flag::Zero,
            Flag::Sign,
        ];
        if self.insn.mnemonic() == Mnemonic::Sahf {
            flags.iter().for_each(|flag| self.flag(*flag, ah));
        } else {
            self.clear(Span::new(ah, 1));
            for flag in flags {
                self.fold_more(ah, Span::new(Place::flag(flag), 1));
            }
        }
        Ok(())
    }

    pub fn constant_flag(&mut self) -> Answer {
        for flag in flags_in(self.insn.rflags_modified()) {
            self.clear_flags(&[flag]);
        }
        Ok(())
    }

    pub fn leave(&mut self) -> Answer {
        let bytes = if self.insn.code() == Code::Leavew {
            2
        } else {
            8
        };
        let rbp = self.low_gpr(RBP, 8);
        let from = self.memory_by(At::Frame, bytes, rbp);
        self.carry(8, Place::gpr(RSP), rbp, rbp.place);
        self.copy(rbp.place, from);
        Ok(())
    }

    pub fn enter(&mut self) -> Answer {
        if self.insn.immediate8_2nd() & 31 != 0 {
            return Err(Unknown("enter with nested frames"));
        }
        let bytes = if self.insn.code() == Code::Enterw_imm16_imm8 {
            2
        } else {
            8
        };
        let to = self.memory_by(At::Push, bytes, self.low_gpr(RSP, 8));
        self.copy(to.place, self.low_gpr(RBP, bytes));
        self.move_stack();
        self.copy(Place::gpr(RBP), self.low_gpr(RSP, bytes));
        Ok(())
    }

    /// `jmp`, `call`, `ret` and the conditional branches: what decides where the program goes on.
    pub fn branch(&mut self) -> Answer {
        let insn = self.insn;
        let decides = Span::new(Place::CONTROL, 1);
        let near = |kind: OpKind| {
            matches!(
                kind,
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            )
        };
        match insn.mnemonic() {
            Mnemonic::Ret => {
                let bytes = insn.stack_pointer_increment().unsigned_abs() as usize;
                let skipped = if insn.op_count() > 0 {
                    usize::from(insn.immediate16())
                } else {
                    0
                };
                let from = self.popped(bytes - skipped);
                self.fold(decides.place, from);
                self.move_stack();
            }
            Mnemonic::Jmp | Mnemonic::Call => {
                if near(insn.op0_kind()) {
                    self.clear(decides);
                } else if insn.op_count() == 1 && (self.is_register(0) || self.is_memory(0)) {
                    let target = self.data(0)?;
                    self.fold(decides.place, target);
                } else {
                    return Err(Unknown("a far transfer"));
                }
                if insn.mnemonic() == Mnemonic::Call {
                    let to = self.pushed();
                    self.clear(to);
                    self.move_stack();
                }
            }
            Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne => {
                let count = self.counter();
                self.carry(count.len(), count.place, count, count.place);
                self.fold(decides.place, count);
                self.add_flags_read(decides.place);
                self.finish_counter(count);
            }
            Mnemonic::Jrcxz | Mnemonic::Jecxz => {
                let count = self.counter();
                self.fold(decides.place, count);
            }
            _ => {
                self.clear(decides);
                self.add_flags_read(decides.place);
            }
        }
        Ok(())
    }

    /// The counter of `loop` and its like.
    fn counter(&self) -> Span {
        let narrow = self
            .info
            .used_registers()
            .iter()
            .any(|used| used.register() == Register::ECX);
        self.low_gpr(RCX, if narrow { 4 } else { 8 })
    }

    fn finish_counter(&mut self, count: Span) {
        if count.len() == 4 {
            self.clear(Span::new(count.place.plus(4), 4));
        }
    }

    /// `syscall`: what the kernel does is for the caller to know.
    pub fn system_call(&mut self) -> Answer {
        self.clear(self.low_gpr(RCX, 8));
        let flags = self.join(&[]);
        for flag in Flag::ALL {
            self.fold_more(flags, Span::new(Place::flag(flag), 1));
        }
        self.fill(self.low_gpr(11, 8), flags);
        Ok(())
    }

    // ── values from elsewhere ───────────────────────────────────────────────────────────────────

    /// The instruction computes nothing from registers or memory (`rdtsc`, `rdrand`).
    pub fn fresh(&mut self) -> Answer {
        let nothing = self.join(&[]);
        self.write_everywhere(nothing)
    }

    pub fn translate_byte(&mut self) -> Answer {
        let from = self.memory();
        self.copy(Place::gpr(RAX), from);
        Ok(())
    }

    pub fn segment_base_moves(&mut self) -> Answer {
        let register = self.data(0)?;
        let base = match self.insn.mnemonic() {
            Mnemonic::Rdfsbase | Mnemonic::Wrfsbase => Span::new(Place::FS_BASE, 8),
            _ => Span::new(Place::GS_BASE, 8),
        };
        if matches!(
            self.insn.mnemonic(),
            Mnemonic::Rdfsbase | Mnemonic::Rdgsbase
        ) {
            self.copy(register.place, base.low(register.len()));
            self.finish(0);
        } else {
            self.copy(base.place, register);
            self.clear(base.part(register.len(), 8 - register.len()));
        }
        Ok(())
    }

    /// `lar`, `lsl`, `verr`, `verw`: what a descriptor says, if the selector is good.
    pub fn selector(&mut self) -> Answer {
        let last = self.insn.op_count() - 1;
        let source = self.data(last)?;
        let all = self.join(&[Source::Data(source.low(2))]);
        if last == 1 {
            let to = self.data(0)?;
            let bytes = if to.len() == 2 { 2 } else { 8 };
            self.fill_more(Span::new(to.place, bytes), all);
        }
        self.flag(Flag::Zero, all);
        Ok(())
    }

    // ── strings ─────────────────────────────────────────────────────────────────────────────────

    /// `opening` moves the pointers and the counter, `body` is one element.
    pub fn string(&mut self, string: &StringOperation) -> Answer {
        let bytes = usize::from(string.element_bytes);
        let narrow = (0..self.insn.op_count()).any(|operand| {
            matches!(
                self.insn.op_kind(operand),
                OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI
            )
        });
        let width = if narrow { 4 } else { 8 };
        let pointer = |number| Span::new(Place::gpr(number), width);
        let source = string
            .reads_source
            .then(|| self.memory_by(At::StringSource, bytes, pointer(RSI)));
        let destination = (string.reads_destination || string.writes_destination)
            .then(|| self.memory_by(At::StringDestination, bytes, pointer(RDI)));
        let repeated = string.repeat != Repeat::Once;
        let compares = string.reads_destination;
        self.flow.repeat = string.repeat;

        if repeated {
            for memory in [source, destination].into_iter().flatten() {
                let operand = self.operand_mut(memory);
                operand.address[3] = Span::new(Place::flag(Flag::Direction), 1);
                operand.extent = pointer(RCX);
            }
        }
        // How far the pointers move depends on the direction and on the count.
        let moved = self.temporary(1);
        self.copy(moved.place, Span::new(Place::flag(Flag::Direction), 1));
        if repeated {
            self.fold_more(moved.place, pointer(RCX));
        }
        for (used, number) in [(source, RSI), (destination, RDI)] {
            if used.is_some() {
                let register = pointer(number);
                self.carry(width, register.place, register, register.place);
                self.fill_more(register, moved.place);
                if narrow {
                    self.upper_half(number, repeated, moved.place);
                }
            }
        }
        let count = pointer(RCX);
        let seen = self.temporary(1);
        if repeated {
            if compares {
                self.copy(seen.place, moved);
                self.keep_or(&Self::COMPARED, moved.place);
                self.fill_more(count, moved.place);
            } else {
                self.clear(count);
            }
            if narrow {
                self.upper_half(RCX, true, moved.place);
            }
            if matches!(
                self.insn.mnemonic(),
                Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq
            ) {
                // Nothing is loaded if the count is 0.
                self.fill_more(self.low_gpr(RAX, 8), moved.place);
            }
        } else {
            self.clear(seen);
        }
        self.flow.once = self.flow.ops().len();

        match (source, destination) {
            (Some(from), Some(to)) if !compares => self.copy(to.place, from),
            (Some(from), None) => {
                if matches!(
                    self.insn.mnemonic(),
                    Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd
                ) {
                    return Err(Unknown("input or output"));
                }
                let rax = self.low_gpr(RAX, bytes);
                self.copy(rax.place, from);
                if repeated {
                    self.fill_more(rax, moved.place);
                }
                if bytes == 4 {
                    self.clear(self.low_gpr(RAX, 8).part(4, 4));
                    if repeated {
                        self.fill_more(self.low_gpr(RAX, 8).part(4, 4), moved.place);
                    }
                }
            }
            (None, Some(to)) if !compares => {
                if matches!(
                    self.insn.mnemonic(),
                    Mnemonic::Insb | Mnemonic::Insw | Mnemonic::Insd
                ) {
                    return Err(Unknown("input or output"));
                }
                self.copy(to.place, self.low_gpr(RAX, bytes));
            }
            (from, Some(with)) => {
                // Everything that was compared decides where the comparison stops.
                let other = from.unwrap_or(self.low_gpr(RAX, bytes));
                self.fold_more(seen.place, other);
                self.fold_more(seen.place, with);
                for flag in Self::COMPARED {
                    self.flag(flag, seen.place);
                }
                if repeated {
                    self.fill_more(count, seen.place);
                    self.fill_more(pointer(RDI), seen.place);
                    if from.is_some() {
                        self.fill_more(pointer(RSI), seen.place);
                    }
                }
            }
            (None, None) => return Err(Unknown("a string instruction without memory")),
        }
        Ok(())
    }

    const COMPARED: [Flag; 6] = [
        Flag::Carry,
        Flag::Parity,
        Flag::Auxiliary,
        Flag::Zero,
        Flag::Sign,
        Flag::Overflow,
    ];

    /// With 32-bit addresses the upper half of a register is cleared when it is written, which
    /// does not happen if the count is 0.
    fn upper_half(&mut self, number: usize, conditional: bool, moved: Place) {
        let upper = self.low_gpr(number, 8).part(4, 4);
        if conditional {
            self.fill_more(upper, moved);
        } else {
            self.clear(upper);
        }
    }
}
