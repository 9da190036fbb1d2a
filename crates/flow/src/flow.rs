//! The data flow of one instruction as plain data, and its summary.

use crate::op::{Op, Shadow, fold, run};
use crate::place::{Place, PlaceKind, Span};
use crate::place::{RAX, RDX};
use brownout_insn::{Repeat, StateTransfer};

/// More than any instruction needs: the test of every opcode would find one that is longer.
pub const OPS_MAX: usize = 224;

/// Memory operands that one instruction may have (`push [m]` and `movs` have two).
pub const MEMORY_OPERANDS_MAX: usize = 2;

/// How the address of a memory operand is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The instruction's memory operand: [`brownout_insn::effective_address`].
    Operand,
    /// The word that holds the bit: [`brownout_insn::bit_string_address`].
    BitString,
    /// Elements at a vector of indices. Byte *n* of the operand is byte *n* modulo the size of an
    /// element of element *n* divided by it.
    Elements,
    /// At `rsp` before the instruction.
    Pop,
    /// Below `rsp` before the instruction: its last byte is at `rsp - 1`.
    Push,
    /// At `rbp` before the instruction (`leave`).
    Frame,
    /// At `rsi`; after each repetition the next element.
    StringSource,
    /// At `rdi`; after each repetition the next element.
    StringDestination,
    /// At `rdi` (`maskmovdqu`).
    Rdi,
    /// The line that holds `rax` (`clzero`).
    Line,
    /// At what operand 0, a register, holds (`movdir64b`).
    RegisterDestination,
}

/// One memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// How its address is found.
    pub at: At,
    /// Bytes; 0 if only known at run time (`xsave`); of one element for string instructions, of all
    /// elements together for [`At::Elements`].
    pub bytes: u16,
    /// Bytes of one element, for [`At::Elements`]; otherwise as `bytes`.
    pub element_bytes: u16,
    /// Its bytes are sources.
    pub read: bool,
    /// Its bytes are destinations. A masked store counts in full: bytes that it leaves alone keep
    /// their labels, and get that of the mask.
    pub written: bool,
    /// What the address is computed from. Unused entries are empty.
    pub address: [Span; 4],
    /// What decides how many elements are accessed: the counter of a repeated string instruction.
    pub extent: Span,
}

impl MemoryOperand {
    pub(crate) const NONE: MemoryOperand = MemoryOperand {
        at: At::Operand,
        bytes: 0,
        element_bytes: 0,
        read: false,
        written: false,
        address: [Span::EMPTY; 4],
        extent: Span::EMPTY,
    };
}

/// Which registers an instruction's flow touches, as bit sets: bit *n* is register *n*.
///
/// An instruction that reads nothing with a label, neither from registers nor from memory, and
/// writes nothing that has one, changes no label and can be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Summary {
    /// Vector registers that are sources.
    pub vectors_read: u32,
    /// Vector registers of which any byte is a destination.
    pub vectors_written: u32,
    /// General registers that are sources of content.
    pub gprs_read: u16,
    /// General registers of which any byte is a destination.
    pub gprs_written: u16,
    /// General registers from which an address is computed.
    pub gprs_addressing: u16,
    /// Opmask registers that are sources.
    pub opmasks_read: u8,
    /// Opmask registers that are destinations.
    pub opmasks_written: u8,
    /// Flags that are sources, in the order of [`crate::Flag::ALL`].
    pub flags_read: u8,
    /// Flags that are destinations.
    pub flags_written: u8,
    /// MMX registers that are sources; see `x87`.
    pub mmx_read: u8,
    /// MMX registers that are destinations; see `x87`.
    pub mmx_written: u8,
    /// Registers are meant that are counted from the top of the x87 stack: any of the eight may be
    /// a source or a destination, and [`Shadow::x87_top`] is asked.
    pub x87: bool,
    /// Anything else is a source: `MXCSR`, x87 control and status, bases of segments.
    pub others_read: bool,
    /// Anything else is a destination.
    pub others_written: bool,
    /// [`Place::CONTROL`] is a destination: the instruction decides where the program goes on.
    pub control: bool,
}

/// The data flow of one instruction.
#[derive(Clone)]
pub struct Flow {
    ops: [Op; OPS_MAX],
    len: usize,
    pub(crate) once: usize,
    memory: [MemoryOperand; MEMORY_OPERANDS_MAX],
    memory_len: usize,
    pub(crate) repeat: Repeat,
    pub(crate) state: Option<StateTransfer>,
    summary: Summary,
    overflow: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow {
    /// An instruction that does nothing, to be filled by [`crate::Analyzer::analyze`].
    #[must_use]
    pub const fn new() -> Flow {
        Flow {
            ops: [Op::NOTHING; OPS_MAX],
            len: 0,
            once: 0,
            memory: [MemoryOperand::NONE; MEMORY_OPERANDS_MAX],
            memory_len: 0,
            repeat: Repeat::Once,
            state: None,
            summary: Summary {
                vectors_read: 0,
                vectors_written: 0,
                gprs_read: 0,
                gprs_written: 0,
                gprs_addressing: 0,
                opmasks_read: 0,
                opmasks_written: 0,
                flags_read: 0,
                flags_written: 0,
                mmx_read: 0,
                mmx_written: 0,
                x87: false,
                others_read: false,
                others_written: false,
                control: false,
            },
            overflow: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.len = 0;
        self.once = 0;
        self.memory_len = 0;
        self.repeat = Repeat::Once;
        self.state = None;
        self.overflow = false;
    }

    pub(crate) fn push(&mut self, op: Op) {
        if self.len < OPS_MAX {
            self.ops[self.len] = op;
            self.len += 1;
        } else {
            self.overflow = true;
        }
    }

    pub(crate) fn overflowed(&self) -> bool {
        self.overflow
    }

    pub(crate) fn push_memory(&mut self, operand: MemoryOperand) -> usize {
        let number = self.memory_len;
        self.memory[number] = operand;
        self.memory_len += 1;
        number
    }

    pub(crate) fn memory_mut(&mut self, number: usize) -> &mut MemoryOperand {
        &mut self.memory[number]
    }

    /// What runs once, before any repetition.
    #[must_use]
    pub fn opening(&self) -> &[Op] {
        &self.ops[..self.once]
    }

    /// What runs for each repetition of a string instruction, with its memory operands at that
    /// element; once for all others. Temporaries keep their labels from `opening` on.
    #[must_use]
    pub fn body(&self) -> &[Op] {
        &self.ops[self.once..self.len]
    }

    /// All operations.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops[..self.len]
    }

    /// How often `body` runs: how often the instruction accessed its elements. After `repe cmps`
    /// that is how much `rcx` went down.
    #[must_use]
    pub fn repeat(&self) -> Repeat {
        self.repeat
    }

    /// The memory operands that operations name.
    #[must_use]
    pub fn memory(&self) -> &[MemoryOperand] {
        &self.memory[..self.memory_len]
    }

    /// Saving or restoring of processor state. There are no operations then: where the components
    /// lie is known when it is executed only; see [`crate::transfer_state`].
    #[must_use]
    pub fn state(&self) -> Option<StateTransfer> {
        self.state
    }

    /// Which registers are touched.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Moves the labels as an instruction without repetition moves data.
    pub fn apply<S: Shadow + ?Sized>(&self, shadow: &mut S) {
        run(self.ops(), shadow);
    }

    /// Everything that the address of a memory operand depends on.
    pub fn address_label<S: Shadow + ?Sized>(&self, operand: usize, shadow: &mut S) -> u32 {
        self.memory()[operand]
            .address
            .iter()
            .fold(0, |label, span| {
                match (label, fold(shadow, span.place, span.len())) {
                    (0, next) => next,
                    (label, 0) => label,
                    (label, next) => shadow.union(label, next),
                }
            })
    }

    /// Sees what the operations touch. Temporaries do not count, nor does what only an earlier
    /// operation of the same list has written: both err on the large side.
    pub(crate) fn summarize(&mut self) {
        let mut summary = Summary::default();
        for number in 0..self.len {
            let op = self.ops[number];
            for byte in 0..op.read() {
                self.mark(&mut summary, op.from.plus(byte), false);
                if op.has_second() {
                    self.mark(&mut summary, op.with.plus(byte), false);
                }
            }
            for byte in 0..op.written() {
                self.mark(&mut summary, op.to.plus(byte), true);
                if op.keeps() {
                    self.mark(&mut summary, op.to.plus(byte), false);
                }
            }
        }
        for number in 0..self.memory_len {
            for span in self.memory[number].address {
                for place in span.places() {
                    match place.kind() {
                        PlaceKind::Gpr(gpr, _) => summary.gprs_addressing |= 1 << gpr,
                        _ => self.mark(&mut summary, place, false),
                    }
                }
            }
        }
        if self.state.is_some() {
            // `edx:eax` chooses the components: more an address than content.
            summary.gprs_addressing |= 1 << RAX | 1 << RDX;
            (summary.vectors_read, summary.vectors_written) = (u32::MAX, u32::MAX);
            (summary.opmasks_read, summary.opmasks_written) = (u8::MAX, u8::MAX);
            (summary.mmx_read, summary.mmx_written) = (u8::MAX, u8::MAX);
            (summary.others_read, summary.others_written) = (true, true);
            summary.x87 = true;
        }
        self.summary = summary;
    }

    fn mark(&mut self, summary: &mut Summary, place: Place, written: bool) {
        let set16 = |read: &mut u16, write: &mut u16, number: u8| {
            *(if written { write } else { read }) |= 1 << number;
        };
        let set8 = |read: &mut u8, write: &mut u8, number: u8| {
            *(if written { write } else { read }) |= 1 << number;
        };
        match place.kind() {
            PlaceKind::Gpr(number, _) => {
                set16(&mut summary.gprs_read, &mut summary.gprs_written, number)
            }
            PlaceKind::Vector(number, _) => {
                let set = if written {
                    &mut summary.vectors_written
                } else {
                    &mut summary.vectors_read
                };
                *set |= 1 << number;
            }
            PlaceKind::Flag(number) => {
                set8(&mut summary.flags_read, &mut summary.flags_written, number)
            }
            PlaceKind::Opmask(number, _) => {
                set8(
                    &mut summary.opmasks_read,
                    &mut summary.opmasks_written,
                    number,
                );
            }
            PlaceKind::X87(number, _) => {
                set8(&mut summary.mmx_read, &mut summary.mmx_written, number)
            }
            PlaceKind::St(..) => summary.x87 = true,
            PlaceKind::Control => summary.control = true,
            PlaceKind::Temporary(_) => {}
            PlaceKind::Memory(operand, _) => {
                let operand = &mut self.memory[usize::from(operand)];
                if written {
                    operand.written = true;
                } else {
                    operand.read = true;
                }
            }
            _ if written => summary.others_written = true,
            _ => summary.others_read = true,
        }
    }
}
