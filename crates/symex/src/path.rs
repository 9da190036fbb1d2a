//! What a run has decided because of its input.

use brownout_solve::Expr;
use brownout_trace::event::ThreadId;

/// Why the path depends on the input here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A conditional branch.
    Branch,
    /// A jump to an address that was computed.
    Jump,
    /// Where the first bit of a word is that is 1, from below or from above: how string functions
    /// find a character. Each place is a way.
    Position {
        /// The lowest bit counts, not the highest.
        is_lowest: bool,
    },
    /// An address, or something that no rule describes: it is taken to be what it was.
    Taken,
    /// A table was looked up: only entries that are known are allowed.
    Bound,
    /// Whether an instruction does what ends most programs. Way 1 is that it does.
    Fault(Fault),
}

/// What ends most programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A division by zero.
    Zero,
    /// A quotient that does not fit.
    Overflow,
    /// An access in front of the persistent memory that it is about.
    Before,
    /// One behind its end.
    Behind,
}

impl Kind {
    /// Whether it is a [`Kind::Position`].
    pub fn is_position(self) -> bool {
        matches!(self, Kind::Position { .. })
    }
}

/// How far a run has come with persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Fences so far.
    pub fences: u32,
    /// Which fences, and how often each up to three times, as a number: in whichever order.
    pub which: u64,
}

impl Progress {
    /// One more fence, by an instruction that has made `times` of them with it.
    pub fn fence(&mut self, pc: u64, times: u64) {
        const TIMES_MAX: u64 = 3;
        self.fences += 1;
        let part = |times: u64| match times {
            0 => 0,
            times => mix(pc, times),
        };
        if times <= TIMES_MAX {
            self.which = self.which.wrapping_sub(part(times - 1));
            self.which = self.which.wrapping_add(part(times));
        }
    }
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The instruction.
    pub pc: u64,
    /// Why.
    pub kind: Kind,
    /// Of a branch: whether it was taken. Of the others: a number for where it went.
    pub way: u64,
    /// One bit, which was 1 in this run: what has to hold for the same way.
    pub condition: Expr,
    /// Of what is not a branch: what was computed, of which `way` is the number that it was (of a
    /// position: the word). There may be many others.
    pub value: Option<Expr>,
    /// What is computed there from input bytes, whichever those are, as a number: a comparison with
    /// another constant, or of a number with more digits, is another.
    pub shape: u64,
    /// The first and the last byte of the input that the condition depends on.
    pub bytes: (u32, u32),
    /// How far the run had come with persistent memory.
    pub pm: Progress,
    /// Where control went; 0 if it just went on.
    pub to: u64,
    /// Of an access that may leave persistent memory: how far it is from the beginning of that, in
    /// bytes.
    pub distance: Option<Expr>,
}

impl Decision {
    /// The decision and the way that it went, as a number.
    pub fn name(&self) -> u64 {
        mix(self.place(), self.way)
    }

    /// The last byte of the input that the condition depends on.
    pub fn last_byte(&self) -> u32 {
        self.bytes.1
    }

    /// The decision, whichever way it goes.
    pub fn place(&self) -> u64 {
        let kind = match self.kind {
            Kind::Branch => BRANCH,
            Kind::Jump => 1,
            Kind::Taken => 2,
            Kind::Bound => 3,
            Kind::Position { is_lowest } => 4 + u64::from(is_lowest),
            Kind::Fault(fault) => 6 + fault as u64,
        };
        mix(self.pc, kind)
    }
}

/// A conditional branch that depends on the input, but goes the same way whatever that is, as long
/// as all decisions before it are the same: what was compared there can only be so large, say.
#[derive(Clone, Copy, Debug)]
pub struct Folded {
    /// How many decisions were made before.
    pub at: u32,
    /// The instruction.
    pub pc: u64,
    /// Whether it was taken.
    pub way: u64,
    /// What was compared.
    pub value: Expr,
}

impl Folded {
    /// The branch and a way that it may go, as a number: the same that it has as a [`Decision`].
    pub fn name(&self, way: u64) -> u64 {
        mix(mix(self.pc, BRANCH), way)
    }
}

const BRANCH: u64 = 0;

/// All decisions of a run, in order.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// See [`Decision`].
    pub decisions: Vec<Decision>,
    /// Branches between them that could not go the other way.
    pub folded: Vec<Folded>,
    /// There were more than are kept.
    pub is_cut: bool,
    /// The thread that has made the first of them.
    pub thread: ThreadId,
}

/// More decisions of one run are not kept: a loop over all of its input makes many.
const DECISIONS_MAX: usize = 20_000;

impl Path {
    /// One more.
    pub fn push(&mut self, decision: Decision) {
        match self.decisions.len() < DECISIONS_MAX {
            true => self.decisions.push(decision),
            false => self.is_cut = true,
        }
    }

    /// One that is no decision.
    pub fn fold(&mut self, pc: u64, way: u64, value: Expr) {
        if self.folded.len() < DECISIONS_MAX {
            self.folded.push(Folded {
                at: self.decisions.len() as u32,
                pc,
                way,
                value,
            });
        }
    }
}

/// A number made of two.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a.rotate_left(23) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z ^= z >> 29;
    z.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ z >> 32
}
