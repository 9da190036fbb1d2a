//! The x87 unit.
//!
//! Registers are counted from the top of the stack before the instruction, so what is pushed is
//! `st(7)`. A register that is popped keeps its bits and its labels. Whether a register is empty
//! decides between its value and a NaN, so every result depends on [`Place::X87_STACK`]. Only
//! instructions that load it from memory give it a label, and `fptan` and `fsincos`, which push
//! nothing if the angle is too large.

use crate::Unknown;
use crate::build::{Answer, Builder, RAX, Source};
use crate::place::{Place, Span};
use iced_x86::{Mnemonic, Register};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum X87 {
    /// Moves the top or empties registers; no data.
    Nothing,
    Load,
    Store,
    /// Into operand 0 or `st(0)`, from that, the other operand and `st(0)`.
    Arithmetic,
    /// From `st(0)` and `st(1)` into `st(0)`.
    Binary,
    /// From `st(0)` and `st(1)` into `st(1)`, which becomes the top.
    BinaryPop,
    /// From `st(0)` into `st(0)` and what is pushed.
    Push,
    /// The sign of `st(0)`.
    Sign,
    Exchange,
    /// Into the condition codes.
    Compare,
    /// Into the flags.
    CompareFlags,
    ConditionalMove,
    StoreStatus,
    StoreControl,
    LoadControl,
    StoreEnvironment,
    LoadEnvironment,
    Initialize,
    ClearExceptions,
}

const ST_BYTES: usize = 10;

fn st(number: usize) -> Span {
    Span::new(Place::st(number), ST_BYTES)
}

fn one(place: Place) -> Source {
    Source::Data(Span::new(place, 1))
}

impl Builder<'_> {
    /// What an x87 instruction computes with: `sources`, its operands, and the state of the unit.
    fn x87_sources(&mut self, sources: &[Span]) -> Result<Place, Unknown> {
        let all = self.join(&[one(Place::X87_CONTROL), one(Place::X87_STACK)]);
        for span in sources {
            self.fold_more(all, *span);
        }
        for operand in 0..self.insn.op_count() {
            if (self.is_register(operand) && self.insn.op_register(operand).is_st())
                || (self.is_memory(operand) && self.reads(operand))
            {
                let span = self.data(operand)?;
                self.fold_more(all, span);
            }
        }
        Ok(all)
    }

    /// Exceptions, and condition codes that are set or undefined.
    fn x87_raise(&mut self, all: Place) {
        self.fill_more(Span::new(Place::X87_EXCEPTIONS, 1), all);
        self.fill_more(Span::new(Place::X87_CONDITIONS, 1), all);
    }

    fn x87_target(&self) -> Span {
        match self.insn.op0_register() {
            register if self.is_register(0) && register.is_st() => st(register.number()),
            _ => st(0),
        }
    }

    pub fn x87(&mut self, rule: X87) -> Answer {
        match rule {
            X87::Nothing => {}
            X87::Load => {
                let all = self.x87_sources(&[])?;
                let plain = match self.insn.mnemonic() {
                    // Ten bytes and registers are loaded as they are.
                    Mnemonic::Fld if self.is_register(0) => Some(self.data(0)?),
                    Mnemonic::Fld if self.insn.memory_size().size() == ST_BYTES => {
                        Some(self.memory())
                    }
                    _ => None,
                };
                match plain {
                    Some(from) => {
                        self.copy(Place::st(7), from);
                        self.fill_more(st(7), Place::X87_STACK);
                    }
                    None => self.fill(st(7), all),
                }
                self.x87_raise(all);
            }
            X87::Store => {
                let all = self.x87_sources(&[st(0)])?;
                let to = self.data(0)?;
                if to.len() == ST_BYTES && self.insn.mnemonic() != Mnemonic::Fbstp {
                    self.copy(to.place, st(0));
                    self.fill_more(to, Place::X87_STACK);
                } else {
                    self.fill(to, all);
                }
                self.x87_raise(all);
            }
            X87::Arithmetic => {
                let all = self.x87_sources(&[st(0)])?;
                self.fill(self.x87_target(), all);
                self.x87_raise(all);
            }
            X87::Binary | X87::BinaryPop => {
                let all = self.x87_sources(&[st(0), st(1)])?;
                if rule == X87::Binary {
                    self.fill(st(0), all);
                } else {
                    self.fill(st(1), all);
                    self.fill_more(st(0), all);
                }
                self.x87_raise(all);
            }
            X87::Push => {
                let all = self.x87_sources(&[st(0)])?;
                self.fill(st(0), all);
                self.fill_more(st(7), all);
                if self.insn.mnemonic() != Mnemonic::Fxtract {
                    // Nothing is pushed if the angle is too large.
                    self.fill_more(Span::new(Place::X87_STACK, 1), all);
                }
                self.x87_raise(all);
            }
            X87::Sign => {
                self.fill_more(st(0), Place::X87_STACK);
                self.x87_raise(Place::X87_STACK);
            }
            X87::Exchange => {
                let other = match self.insn.op1_register() {
                    register if register.is_st() => st(register.number()),
                    _ => st(1),
                };
                let old = self.temporary(ST_BYTES);
                self.copy(old.place, st(0));
                self.copy(Place::st(0), other);
                self.copy(other.place, old);
                for span in [st(0), other] {
                    self.fill_more(span, Place::X87_STACK);
                }
                self.x87_raise(Place::X87_STACK);
            }
            X87::Compare | X87::CompareFlags => {
                let second = matches!(self.insn.mnemonic(), Mnemonic::Fcompp | Mnemonic::Fucompp);
                let sources = [st(0), st(1)];
                let all = self.x87_sources(&sources[..1 + usize::from(second)])?;
                self.x87_raise(all);
                if rule == X87::CompareFlags {
                    self.flags_from(all);
                }
            }
            X87::ConditionalMove => {
                let from = self.data(1)?;
                let condition = self.join(&[one(Place::X87_STACK)]);
                self.add_flags_read(condition);
                self.union(Place::st(0), st(0), from.place);
                self.fill_more(st(0), condition);
                self.x87_raise(Place::X87_STACK);
            }
            X87::StoreStatus => {
                let to = match self.insn.op0_register() {
                    Register::AX => Span::new(Place::gpr(RAX), 2),
                    _ => self.data(0)?,
                };
                self.copy(to.place, Span::new(Place::X87_EXCEPTIONS, 1));
                self.copy(to.at(1), Span::new(Place::X87_CONDITIONS, 1));
                for place in [Place::X87_STACK, Place::X87_EXCEPTIONS] {
                    self.fold_more(to.at(1), Span::new(place, 1));
                }
            }
            X87::StoreControl => {
                let to = self.memory();
                self.fill(to, Place::X87_CONTROL);
            }
            X87::LoadControl => {
                let from = self.memory();
                self.fold(Place::X87_CONTROL, from);
                // Whether an exception is pending depends on what is masked.
                self.fill_more(Span::new(Place::X87_EXCEPTIONS, 1), Place::X87_CONTROL);
            }
            X87::StoreEnvironment => {
                let to = self.memory();
                if to.len() != 28 {
                    return Err(Unknown("an x87 environment of 16-bit code"));
                }
                self.clear(to);
                self.fill(to.low(2), Place::X87_CONTROL);
                self.copy(to.at(4), Span::new(Place::X87_EXCEPTIONS, 1));
                let high = self.join(&[
                    one(Place::X87_EXCEPTIONS),
                    one(Place::X87_CONDITIONS),
                    one(Place::X87_STACK),
                ]);
                self.copy(to.at(5), Span::new(high, 1));
                // The tags tell zeros and special values apart.
                let tags = self.join(&[one(Place::X87_STACK)]);
                for number in 0..8 {
                    self.fold_more(tags, st(number));
                }
                self.fill(to.part(8, 2), tags);
                self.fill_more(Span::new(Place::X87_EXCEPTIONS, 1), Place::X87_CONTROL);
            }
            X87::LoadEnvironment => {
                let from = self.memory();
                if from.len() != 28 {
                    return Err(Unknown("an x87 environment of 16-bit code"));
                }
                self.fold(Place::X87_CONTROL, from.low(2));
                self.fold(Place::X87_EXCEPTIONS, from.low(6));
                self.fold(Place::X87_CONDITIONS, from.part(4, 2));
                self.fold(Place::X87_STACK, from.part(4, 6));
            }
            X87::Initialize => {
                for place in [
                    Place::X87_CONTROL,
                    Place::X87_EXCEPTIONS,
                    Place::X87_CONDITIONS,
                    Place::X87_STACK,
                ] {
                    self.clear(Span::new(place, 1));
                }
            }
            X87::ClearExceptions => {
                self.clear(Span::new(Place::X87_EXCEPTIONS, 1));
            }
        }
        Ok(())
    }
}
