//! Builds the list of operations for one instruction.

use crate::Unknown;
use crate::flow::{At, Flow, MemoryOperand};
use crate::op::{Kind, Op};
use crate::place::{Flag, Place, Span, TEMPORARIES};
pub(crate) use crate::place::{RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
use iced_x86::{Instruction, InstructionInfo, OpAccess, OpKind, Register, RflagsBits};

pub(crate) type Answer = Result<(), Unknown>;

/// The flags in iced's terms.
const FLAG_BITS: [(Flag, u32); 8] = [
    (Flag::Carry, RflagsBits::CF),
    (Flag::Parity, RflagsBits::PF),
    (Flag::Auxiliary, RflagsBits::AF),
    (Flag::Zero, RflagsBits::ZF),
    (Flag::Sign, RflagsBits::SF),
    (Flag::Direction, RflagsBits::DF),
    (Flag::Overflow, RflagsBits::OF),
    (Flag::Others, RflagsBits::AC | RflagsBits::IF),
];

/// The flags of a set in iced's terms.
pub(crate) fn flags_in(set: u32) -> impl Iterator<Item = Flag> {
    FLAG_BITS
        .iter()
        .filter(move |(_, bits)| set & bits != 0)
        .map(|(flag, _)| *flag)
}

/// What an instruction reads: data at a place, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Data(Span),
    Constant(u64),
}

pub(crate) struct Builder<'a> {
    pub insn: &'a Instruction,
    pub info: &'a InstructionInfo,
    pub flow: &'a mut Flow,
    temporaries: u16,
    /// The number of the ModRM memory operand in the flow, once it has been asked for.
    memory: Option<usize>,
}

impl<'a> Builder<'a> {
    pub fn new(insn: &'a Instruction, info: &'a InstructionInfo, flow: &'a mut Flow) -> Self {
        flow.reset();
        Builder {
            insn,
            info,
            flow,
            temporaries: 0,
            memory: None,
        }
    }

    // ── operations ──────────────────────────────────────────────────────────────────────────────

    fn op(&mut self, kind: Kind, lane: usize, count: usize, to: Place, from: Place, with: Place) {
        if count > 0 {
            self.flow.push(Op {
                kind,
                lane: lane as u8,
                count: count as u16,
                to,
                from,
                with,
            });
        }
    }

    pub fn clear(&mut self, to: Span) {
        self.op(Kind::Clear, 1, to.len(), to.place, to.place, to.place);
    }

    pub fn copy(&mut self, to: Place, from: Span) {
        if to != from.place {
            self.op(Kind::Copy, 1, from.len(), to, from.place, from.place);
        }
    }

    /// As `copy`, or clears if there is no data.
    pub fn assign(&mut self, to: Span, from: Source) {
        match from {
            Source::Data(span) => self.copy(to.place, span.low(to.len())),
            Source::Constant(_) => self.clear(to),
        }
    }

    pub fn union(&mut self, to: Place, a: Span, b: Place) {
        self.op(Kind::Union, 1, a.len(), to, a.place, b);
    }

    pub fn lanes(&mut self, lane: usize, to: Place, a: Span, b: Place) {
        self.op(Kind::Lanes, lane, a.len(), to, a.place, b);
    }

    pub fn carry(&mut self, lane: usize, to: Place, a: Span, b: Place) {
        self.op(Kind::Carry, lane, a.len(), to, a.place, b);
    }

    pub fn fold(&mut self, to: Place, from: Span) {
        if from.len() == 1 {
            self.copy(to, from);
        } else {
            self.op(Kind::Fold, 1, from.len(), to, from.place, from.place);
        }
    }

    pub fn fold_more(&mut self, to: Place, from: Span) {
        self.op(Kind::FoldMore, 1, from.len(), to, from.place, from.place);
    }

    pub fn fill(&mut self, to: Span, from: Place) {
        self.op(Kind::Fill, 1, to.len(), to.place, from, from);
    }

    pub fn fill_more(&mut self, to: Span, from: Place) {
        self.op(Kind::FillMore, 1, to.len(), to.place, from, from);
    }

    pub fn masked(&mut self, lane: usize, to: Span, mask: Place) {
        self.op(Kind::Masked, lane, to.len(), to.place, mask, mask);
    }

    pub fn bits(&mut self, lane: usize, to: Place, from: Span) {
        self.op(Kind::Bits, lane, from.len(), to, from.place, from.place);
    }

    pub fn signs(&mut self, lane: usize, to: Place, from: Span) {
        self.op(Kind::Signs, lane, from.len(), to, from.place, from.place);
    }

    /// Gives byte *i* of `to` the label of `source(i)`, or none. `to` must not be among the
    /// sources.
    pub fn permute(&mut self, to: Span, mut source: impl FnMut(usize) -> Option<Place>) {
        let mut first = 0;
        while first < to.len() {
            let from = source(first);
            let mut end = first + 1;
            while end < to.len() && source(end) == from.map(|place| place.plus(end - first)) {
                end += 1;
            }
            let part = to.part(first, end - first);
            match from {
                Some(place) => self.copy(part.place, Span::new(place, end - first)),
                None => self.clear(part),
            }
            first = end;
        }
    }

    /// New temporaries. They hold labels of earlier instructions until they are written.
    pub fn temporary(&mut self, bytes: usize) -> Span {
        let first = self.temporaries;
        self.temporaries += bytes as u16;
        debug_assert!(self.temporaries <= TEMPORARIES);
        Span::new(Place::temporary(first), bytes)
    }

    /// The union of everything here, as a new temporary.
    pub fn join(&mut self, sources: &[Source]) -> Place {
        let all = self.temporary(1).place;
        let mut fresh = true;
        for source in sources {
            let Source::Data(span) = source else { continue };
            if fresh {
                self.fold(all, *span);
            } else {
                self.fold_more(all, *span);
            }
            fresh = false;
        }
        if fresh {
            self.clear(Span::new(all, 1));
        }
        all
    }

    // ── flags ───────────────────────────────────────────────────────────────────────────────────

    pub fn flag(&mut self, flag: Flag, from: Place) {
        self.copy(Place::flag(flag), Span::new(from, 1));
    }

    pub fn clear_flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            self.clear(Span::new(Place::flag(*flag), 1));
        }
    }

    /// All flags that iced says are changed get this label. What manuals leave undefined keeps its
    /// old one, too, because some processors keep the flag.
    pub fn flags_from(&mut self, from: Place) {
        let insn = self.insn;
        let constant = insn.rflags_cleared() | insn.rflags_set();
        for flag in flags_in(insn.rflags_modified() & !constant & !insn.rflags_undefined()) {
            self.flag(flag, from);
        }
        for flag in flags_in(constant) {
            self.clear_flags(&[flag]);
        }
        self.undefined_flags_from(from);
    }

    pub fn undefined_flags_from(&mut self, from: Place) {
        for flag in flags_in(self.insn.rflags_undefined()) {
            self.fill_more(Span::new(Place::flag(flag), 1), from);
        }
    }

    /// Adds the flags that the instruction reads.
    pub fn add_flags_read(&mut self, to: Place) {
        for flag in flags_in(brownout_insn::flags_read(self.insn)) {
            self.fold_more(to, Span::new(Place::flag(flag), 1));
        }
    }

    // ── operands ────────────────────────────────────────────────────────────────────────────────

    pub fn is_register(&self, operand: u32) -> bool {
        operand < self.insn.op_count() && self.insn.op_kind(operand) == OpKind::Register
    }

    pub fn is_memory(&self, operand: u32) -> bool {
        operand < self.insn.op_count() && self.insn.op_kind(operand) == OpKind::Memory
    }

    /// Two operands that are the same register.
    pub fn same(&self, a: u32, b: u32) -> bool {
        self.is_register(a)
            && self.is_register(b)
            && self.insn.op_register(a) == self.insn.op_register(b)
    }

    pub fn reads(&self, operand: u32) -> bool {
        matches!(
            self.info.op_access(operand),
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    }

    pub fn writes(&self, operand: u32) -> bool {
        matches!(
            self.info.op_access(operand),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    }

    /// What the operand holds.
    pub fn source(&mut self, operand: u32) -> Result<Source, Unknown> {
        Ok(match self.insn.op_kind(operand) {
            OpKind::Register => Source::Data(self.register(operand)?),
            OpKind::Memory => Source::Data(self.memory()),
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Source::Constant(self.insn.immediate(operand)),
            _ => return Err(Unknown("an operand of an unexpected kind")),
        })
    }

    /// The places of an operand that is no constant.
    pub fn data(&mut self, operand: u32) -> Result<Span, Unknown> {
        match self.source(operand)? {
            Source::Data(span) => Ok(span),
            Source::Constant(_) => Err(Unknown("a constant where data was expected")),
        }
    }

    fn register(&self, operand: u32) -> Result<Span, Unknown> {
        Place::of_register(self.insn.op_register(operand))
            .ok_or(Unknown("a register that is not followed"))
    }

    /// The places of the ModRM memory operand.
    pub fn memory(&mut self) -> Span {
        let bytes = self.insn.memory_size().size();
        self.memory_at(At::Operand, bytes)
    }

    /// The same, found in another way, or of a size that iced does not tell.
    pub fn memory_at(&mut self, at: At, bytes: usize) -> Span {
        let number = match self.memory {
            Some(number) => number,
            None => {
                let address = self.operand_address();
                let operand = brownout_insn::memory_operand(self.insn);
                let number = self.flow.push_memory(MemoryOperand {
                    at,
                    bytes: bytes as u16,
                    element_bytes: bytes as u16,
                    // Also where labels stay as they are, and no operation says so (`not [m]`).
                    read: operand.is_some_and(|operand| self.reads(operand)),
                    written: operand.is_some_and(|operand| self.writes(operand)),
                    address,
                    ..MemoryOperand::NONE
                });
                self.memory = Some(number);
                number
            }
        };
        Span::new(Place::memory(number), bytes)
    }

    /// A further memory operand, at an address in one register.
    pub fn memory_by(&mut self, at: At, bytes: usize, address: Span) -> Span {
        let segment = match at {
            At::StringSource | At::Rdi | At::Line => self.segment_base(),
            _ => Span::EMPTY,
        };
        let number = self.flow.push_memory(MemoryOperand {
            at,
            bytes: bytes as u16,
            element_bytes: bytes as u16,
            address: [address, segment, Span::EMPTY, Span::EMPTY],
            ..MemoryOperand::NONE
        });
        Span::new(Place::memory(number), bytes)
    }

    fn segment_base(&self) -> Span {
        match self.insn.memory_segment() {
            Register::FS => Span::new(Place::FS_BASE, 8),
            Register::GS => Span::new(Place::GS_BASE, 8),
            _ => Span::EMPTY,
        }
    }

    fn operand_address(&self) -> [Span; 4] {
        let part = |register: Register| Place::of_register(register).unwrap_or(Span::EMPTY);
        [
            part(self.insn.memory_base()),
            part(self.insn.memory_index()),
            self.segment_base(),
            Span::EMPTY,
        ]
    }

    /// The description of a memory operand.
    pub fn operand_mut(&mut self, memory: Span) -> &mut MemoryOperand {
        let number = usize::from(memory.place.0 - Place::memory(0).0) >> 12;
        self.flow.memory_mut(number)
    }

    /// What has to follow when a register was written: a 32-bit result clears the upper half, and a
    /// vector instruction with VEX or EVEX clears what lies above its result.
    pub fn finish(&mut self, operand: u32) {
        if !self.is_register(operand) {
            return;
        }
        let register = self.insn.op_register(operand);
        let number = register.full_register().number();
        if register.is_gpr32() {
            self.clear(Span::new(Place::gpr(number).plus(4), 4));
        } else if register.is_vector_register()
            && self.insn.encoding() != iced_x86::EncodingKind::Legacy
        {
            let size = register.size();
            self.clear(Span::new(Place::vector(number).plus(size), 64 - size));
        } else if register.is_mm() {
            self.finish_mmx(number);
        }
    }

    /// An MMX result sets the upper bits of the x87 register to ones.
    fn finish_mmx(&mut self, number: usize) {
        self.clear(Span::new(Place::mmx(number).plus(8), 2));
    }
}
