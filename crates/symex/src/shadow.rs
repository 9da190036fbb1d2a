//! Which registers and which memory follow from the input, and how; and what an instruction makes
//! of them.
//!
//! ```text
//!  State (captured) ─┐
//!  Shadow            ├─▶ brownout_lift over Value ─▶ Shadow, decisions of the path
//!  Pool              ┘
//! ```
//! **Guarantee.** A value that is taken to follow from the input is what the program has: its
//! number is compared with what was captured each time it is used, and where they differ it is
//! forgotten, and counted as stale. (An instruction that was not captured has changed it.)
//!
//! **Deviations.** A form that `brownout_lift` does not describe, an address that depends on more
//! than one byte of the input, and a number of repetitions are taken to be what they were: the path
//! gets a condition that says so ([`Kind::Taken`]). Forms, addresses and arguments of system calls
//! are counted; numbers of repetitions are not.
//!
//! **Oracles.** In front of a division, and of an access to persistent memory, whose operands
//! follow from the input, the path gets a decision that can be turned ([`Kind::Fault`]): whether
//! the divisor is zero, the quotient does not fit, or the access leaves the memory. What comes of
//! it, a run shows.

use std::collections::BTreeMap;

use brownout_lift::{Algebra, Flag, Machine, Next};
use brownout_solve::{BytesLeft, Expr, Pool};
use brownout_trace::event::ThreadId;
use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::areas::Areas;
use crate::captured::State;
use crate::path::{Decision, Fault, Kind, Path, Progress};
use crate::tables::Tables;
use crate::value::{self, Binary, Value};

/// The flags that are followed, and their bits.
const FLAGS: [(Flag, u32); 7] = [
    (Flag::Carry, 0),
    (Flag::Parity, 2),
    (Flag::Adjust, 4),
    (Flag::Zero, 6),
    (Flag::Sign, 7),
    (Flag::Direction, 10),
    (Flag::Overflow, 11),
];

/// The flags by which a comparison tells its result: carry, zero, sign, overflow.
const COMPARED: u64 = 1 << 0 | 1 << 6 | 1 << 7 | 1 << 11;

fn flag_bit(flag: Flag) -> u32 {
    let found = FLAGS.iter().find(|(other, _)| *other == flag);
    found.map_or(0, |(_, bit)| *bit)
}

/// Something that follows from the input, and what it is now.
#[derive(Clone, Copy)]
struct Followed {
    expr: Expr,
    now: u128,
}

/// The registers of a thread.
#[derive(Default)]
struct Registers {
    gpr: [Option<Followed>; 16],
    /// Each half of the low 256 bits.
    vector: [[Option<Followed>; 2]; 16],
    /// By bit of RFLAGS.
    flags: [Option<Followed>; 12],
    /// What was compared by the last instruction that has set flags, if the result is the same
    /// whatever the input is; and the flags that it left.
    folded: Option<(Expr, u64)>,
}

/// What was not followed, by what it is.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Forms that no rule describes, and how often they met input.
    pub unsupported: BTreeMap<String, u64>,
    /// Addresses that were taken to be what they were: by instruction, how often.
    pub addresses: BTreeMap<u64, u64>,
    /// The same by where these instructions are, for people; known at the end of a search.
    pub places: BTreeMap<String, u64>,
    /// Arguments of system calls that were taken to be what they were.
    pub arguments: u64,
    /// Values that something else had overwritten.
    pub stale: u64,
}

impl Losses {
    /// Those of another run, too.
    pub fn add(&mut self, other: &Losses) {
        for (name, count) in &other.unsupported {
            *self.unsupported.entry(name.clone()).or_default() += count;
        }
        for (pc, count) in &other.addresses {
            *self.addresses.entry(*pc).or_default() += count;
        }
        for (place, count) in &other.places {
            *self.places.entry(place.clone()).or_default() += count;
        }
        self.arguments += other.arguments;
        self.stale += other.stale;
    }
}

/// See the module's header.
#[derive(Default)]
pub struct Shadow {
    threads: FxHashMap<ThreadId, Registers>,
    memory: FxHashMap<u64, (Expr, u8)>,
    /// What the run has decided.
    pub path: Path,
    /// What was not followed.
    pub losses: Losses,
    /// Instructions that were looked at.
    pub evaluated: u64,
    /// Instructions that have met values which something else had overwritten: instructions before
    /// them touch the input, and were not captured.
    pub stale_at: FxHashSet<u64>,
    /// How far it has come with persistent memory.
    pub pm: Progress,
    /// Where that is mapped.
    pub areas: Areas,
    /// What the decisions so far have left of the values of each byte.
    left: BytesLeft,
    factory: Option<InstructionInfoFactory>,
}

impl Shadow {
    /// Bytes of the input have come to memory, the first of which is number `first`.
    pub fn receives(&mut self, pool: &mut Pool, address: u64, first: u32, bytes: &[u8]) {
        for (n, byte) in bytes.iter().enumerate() {
            let expr = pool.input(first + n as u32);
            self.memory
                .insert(address.wrapping_add(n as u64), (expr, *byte));
        }
    }

    /// Something else has come to memory.
    pub fn overwritten(&mut self, address: u64, len: u64) {
        if len < self.memory.len() as u64 {
            for n in 0..len {
                self.memory.remove(&address.wrapping_add(n));
            }
        } else {
            let inside = |at: &u64| at.wrapping_sub(address) < len;
            self.memory.retain(|at, _| !inside(at));
        }
    }

    /// A thread has made a system call with these arguments. What it was told is taken to be what
    /// it was, since the kernel's answer depends on it; its result follows from nothing.
    pub fn calls(&mut self, pool: &mut Pool, thread: ThreadId, number: u32, args: &[u64; 6]) {
        const RAX: usize = 0;
        const RCX: usize = 1;
        const R11: usize = 11;
        const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];
        let registers = self.threads.entry(thread).or_default();
        let mut taken = Vec::new();
        for (argument, register) in ARGUMENTS.into_iter().enumerate() {
            let now = u128::from(args[argument]);
            if let Some(followed) = registers.gpr[register].filter(|f| f.now == now) {
                taken.push((argument, followed));
            }
        }
        for register in [RAX, RCX, R11] {
            registers.gpr[register] = None;
        }
        for (argument, Followed { expr, now }) in taken {
            let known = pool.constant(64, now);
            let condition = pool.eq(expr, known);
            if pool.as_constant(condition).is_none() {
                self.losses.arguments += 1;
                self.path.push(Decision {
                    pc: u64::from(number) << 3 | argument as u64,
                    kind: Kind::Taken,
                    way: now as u64,
                    condition,
                    value: Some(expr),
                    shape: pool.shape(expr),
                    bytes: bytes(pool, condition),
                    pm: self.pm,
                    to: 0,
                    distance: None,
                });
            }
        }
    }

    /// A thread executes an instruction.
    pub fn execute(
        &mut self,
        pool: &mut Pool,
        tables: &mut Tables,
        thread: ThreadId,
        state: &State,
    ) {
        self.evaluated += 1;
        if self.path.decisions.is_empty() {
            self.path.thread = thread;
        }
        self.threads.entry(thread).or_default();
        let instruction = &state.instruction;
        let mut step = Step {
            pool,
            tables,
            shadow: self,
            state,
            thread,
            gpr: state.gpr,
            flags: state.flags,
            searched: None,
            folded: None,
            accessed: None,
        };
        step.note_searched();
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let done = match is_repeated && instruction.is_string_instruction() {
            true => step.repeat(),
            false => brownout_lift::lift(instruction, &mut step).map(|next| step.goes(next)),
        };
        if done.is_ok() {
            step.finds_position();
            step.note_folded();
        }
        if done.is_err() {
            step.give_up();
        }
    }
}

/// One instruction of a thread.
struct Step<'s> {
    pool: &'s mut Pool,
    tables: &'s mut Tables,
    shadow: &'s mut Shadow,
    state: &'s State,
    thread: ThreadId,
    /// What the general registers hold: they change from one repetition to the next.
    gpr: [u64; 16],
    /// The same of RFLAGS.
    flags: u64,
    /// The operand of an instruction that searches for a bit.
    searched: Option<Value>,
    /// What was compared without a result that depends on it.
    folded: Option<Expr>,
    /// Where it accesses memory, if that follows from the input. What it reads and writes is looked
    /// at once.
    accessed: Option<Expr>,
}

impl Step<'_> {
    fn registers(&mut self) -> &mut Registers {
        self.shadow.threads.entry(self.thread).or_default()
    }

    fn decide(&mut self, kind: Kind, way: u64, condition: Expr, value: Option<Expr>) {
        self.decide_and_go(kind, way, condition, value, 0);
    }

    /// The same of what says where control goes.
    fn decide_and_go(
        &mut self,
        kind: Kind,
        way: u64,
        condition: Expr,
        value: Option<Expr>,
        to: u64,
    ) {
        if self.pool.as_constant(condition).is_some() {
            return;
        }
        let is_address = matches!(kind, Kind::Taken | Kind::Jump);
        let (left, known) = (&mut self.shadow.left, &mut self.tables.known);
        // Often there is only one way left: behind `if (found)` it is known where something was
        // found, and to say it again would be to call each such place another way.
        if is_address && !left.may_be(known, self.pool, condition, false) {
            return;
        }
        left.assume(known, self.pool, condition);
        let shape = match value {
            Some(value) => self.pool.shape(value),
            // Whichever way it goes.
            None => {
                let other = self.pool.not(condition);
                self.pool.shape(condition).min(self.pool.shape(other))
            }
        };
        self.shadow.path.push(Decision {
            pc: self.state.instruction.ip(),
            kind,
            way,
            condition,
            value,
            shape,
            bytes: bytes(self.pool, condition),
            pm: self.shadow.pm,
            to,
            distance: None,
        });
    }

    /// Whether it does what ends most programs, `now` and for other inputs.
    fn may_fault(&mut self, fault: Fault, is_so: Value, distance: Option<Expr>) {
        let Some(expr) = is_so.expr else {
            return;
        };
        let condition = match is_so.now {
            0 => self.pool.not(expr),
            _ => expr,
        };
        let before = self.shadow.path.decisions.len();
        self.decide(Kind::Fault(fault), is_so.now as u64, condition, None);
        if let Some(decision) = self.shadow.path.decisions.get_mut(before) {
            decision.distance = distance;
        }
    }

    /// In front of a division, of numbers that are twice as wide as what the instruction divides
    /// by.
    fn divides(&mut self, dividend: Value, divisor: Value, is_signed: bool) {
        if dividend.expr.is_none() && divisor.expr.is_none() {
            return;
        }
        let (wide, half) = (divisor.bits, divisor.bits / 2);
        let zero = Value::known(wide, 0);
        let is_zero = value::binary(self.pool, Binary::Eq, divisor, zero);
        self.may_fault(Fault::Zero, is_zero, None);
        let does_not_fit = match is_signed {
            // Of what a compiler makes, whose dividend is no wider than its divisor, only the
            // lowest number by -1.
            true => {
                let lowest = Value::known(wide, u128::MAX << (half - 1));
                let minus_one = Value::known(wide, u128::MAX);
                let is_lowest = value::binary(self.pool, Binary::Eq, dividend, lowest);
                let by_minus_one = value::binary(self.pool, Binary::Eq, divisor, minus_one);
                value::binary(self.pool, Binary::And, is_lowest, by_minus_one)
            }
            false => {
                let high = value::extract(self.pool, dividend, half, half);
                if high == Value::known(half, 0) {
                    return;
                }
                let high = value::zext(self.pool, high, wide);
                let fits = value::binary(self.pool, Binary::Ult, high, divisor);
                let fits = value::binary(self.pool, Binary::Or, fits, is_zero);
                value::not(self.pool, fits)
            }
        };
        self.may_fault(Fault::Overflow, does_not_fit, None);
    }

    /// In front of an access to persistent memory at an address that follows from the input:
    /// whether it may leave that.
    fn accesses(&mut self, address: Value, bytes: u64) {
        if self.accessed == address.expr {
            return;
        }
        self.accessed = address.expr;
        let pc = self.state.instruction.ip();
        let at = address.now as u64;
        let area = match self.shadow.areas.around(at) {
            Some(area) => {
                self.tables.within.insert(pc, area.clone());
                area
            }
            None => {
                let known = self.tables.within.get(&pc).cloned();
                let still = |area: &std::ops::Range<u64>| {
                    self.shadow.areas.around(area.start) == Some(area.clone())
                };
                match known.filter(still) {
                    Some(area) => area,
                    None => return,
                }
            }
        };
        // What one byte leads to is looked at as a whole.
        if let Some(expr) = address.expr
            && self.pool.inputs(expr).len() == 1
        {
            let is_inside = |at: &u64| area.contains(at) && area.end - at >= bytes;
            if self.tables.addresses(self.pool, expr).iter().all(is_inside) {
                return;
            }
        }
        let start = Value::known(64, area.start.into());
        let distance = value::binary(self.pool, Binary::Sub, address, start);
        let zero = Value::known(64, 0);
        let last = Value::known(
            64,
            u128::from((area.end - area.start).saturating_sub(bytes)),
        );
        let is_before = value::binary(self.pool, Binary::Slt, distance, zero);
        self.may_fault(Fault::Before, is_before, distance.expr);
        let is_behind = value::binary(self.pool, Binary::Slt, last, distance);
        self.may_fault(Fault::Behind, is_behind, distance.expr);
    }

    /// The value is taken to be what it is.
    fn take(&mut self, value: Value) -> u128 {
        if let Some(expr) = value.expr {
            let now = self.pool.constant(value.bits, value.now);
            let same = self.pool.eq(expr, now);
            self.decide(Kind::Taken, value.now as u64, same, Some(expr));
        }
        value.now
    }

    fn goes(&mut self, next: Next<Value>) {
        match next {
            Next::Branch { taken, target } => {
                if let Some(expr) = taken.expr {
                    let way = taken.now as u64;
                    let (condition, to) = match way {
                        0 => (self.pool.not(expr), self.state.instruction.next_ip()),
                        _ => (expr, target),
                    };
                    self.decide_and_go(Kind::Branch, way, condition, None, to);
                } else {
                    self.goes_anyway(taken.now as u64);
                }
            }
            Next::Computed { target } => {
                if let Some(expr) = target.expr {
                    let now = self.pool.constant(target.bits, target.now);
                    let condition = self.pool.eq(expr, now);
                    let to = target.now as u64;
                    self.decide_and_go(Kind::Jump, to, condition, Some(expr), to);
                }
            }
            Next::Falls | Next::Jump { .. } => {}
        }
    }

    /// A branch that does not depend on the input. If what was compared does, that is kept.
    fn goes_anyway(&mut self, way: u64) {
        let flags = self.flags & COMPARED;
        if let Some((value, known)) = self.registers().folded
            && known == flags
        {
            let pc = self.state.instruction.ip();
            self.shadow.path.fold(pc, way, value);
        }
    }

    /// Keeps what was compared for the branch that follows.
    fn note_folded(&mut self) {
        if self.state.instruction.rflags_modified() != 0 {
            let flags = self.flags & COMPARED;
            self.registers().folded = self.folded.map(|value| (value, flags));
        }
    }

    /// Keeps the operand of an instruction that searches for a bit.
    fn note_searched(&mut self) {
        let instruction = &self.state.instruction;
        let is_search = matches!(
            instruction.mnemonic(),
            Mnemonic::Bsf | Mnemonic::Tzcnt | Mnemonic::Bsr | Mnemonic::Lzcnt
        );
        if !is_search || instruction.op1_kind() != iced_x86::OpKind::Register {
            return;
        }
        let register = instruction.op1_register();
        let bits = 8 * register.size() as u32;
        let whole = self.gpr(register.full_register().number());
        self.searched = Some(value::extract(self.pool, whole, 0, bits));
    }

    /// The place of a bit that was found is a decision of its own. Whatever is computed from it
    /// (lengths, addresses) follows from nothing then: it would tie all bytes that were searched to
    /// each other, again and again.
    fn finds_position(&mut self) {
        let instruction = &self.state.instruction;
        let is_lowest = match instruction.mnemonic() {
            Mnemonic::Bsf | Mnemonic::Tzcnt => true,
            Mnemonic::Bsr | Mnemonic::Lzcnt => false,
            _ => return,
        };
        let register = instruction.op0_register();
        let number = register.full_register().number();
        let Some(Followed { expr, now }) = self.registers().gpr[number] else {
            return;
        };
        self.registers().gpr[number] = None;
        // What it was searched in. A register that is its own result does not hold it any more:
        // then the result will do.
        let source = match self.searched.take() {
            Some(source) => source,
            None => {
                self.take(Value {
                    bits: 64,
                    now,
                    expr: Some(expr),
                });
                return;
            }
        };
        let Some(word) = source.expr else {
            return;
        };
        let first = match (is_lowest, source.now) {
            (_, 0) => {
                let zero = self.pool.constant(source.bits, 0);
                let none = self.pool.eq(word, zero);
                return self.decide(Kind::Taken, 0, none, Some(word));
            }
            (true, now) => now.trailing_zeros(),
            (false, now) => now.ilog2(),
        };
        let word = match is_lowest {
            true => self.pool.same_lowest(word),
            false => word,
        };
        let condition = first_bit(self.pool, word, source.bits, first, is_lowest);
        self.decide(
            Kind::Position { is_lowest },
            first.into(),
            condition,
            Some(word),
        );
    }

    /// In front of an access to as many elements as the input says, from the first to the last:
    /// whether the last may lie behind persistent memory.
    fn repeats(&mut self, times: Value, element: u64) {
        const RSI: usize = 6;
        const RDI: usize = 7;
        let flag = self.flag(Flag::Direction);
        let mnemonic = self.state.instruction.mnemonic();
        let reads = matches!(
            mnemonic,
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
        );
        if flag != Value::known(1, 0) {
            return;
        }
        let sides = [Some(RDI), reads.then_some(RSI)];
        for register in sides.into_iter().flatten() {
            let Some(area) = self.shadow.areas.around(self.gpr[register]) else {
                continue;
            };
            let room = (area.end - self.gpr[register]) / element;
            let room = Value::known(64, room.into());
            let is_behind = value::binary(self.pool, Binary::Ult, room, times);
            self.may_fault(Fault::Behind, is_behind, None);
        }
    }

    /// A repeated string instruction: as many times as it was executed.
    fn repeat(&mut self) -> Result<(), brownout_lift::Unsupported> {
        const RCX: usize = 1;
        /// More than can have been captured.
        const TIMES_MAX: u64 = 4096;
        let instruction = &self.state.instruction;
        let compares = matches!(
            instruction.mnemonic(),
            Mnemonic::Cmpsb
                | Mnemonic::Cmpsw
                | Mnemonic::Cmpsd
                | Mnemonic::Cmpsq
                | Mnemonic::Scasb
                | Mnemonic::Scasw
                | Mnemonic::Scasd
                | Mnemonic::Scasq
        );
        let times = self.gpr(RCX);
        let element = instruction.memory_size().size().max(1) as u64;
        if times.expr.is_some() && !compares {
            self.repeats(times, element);
        }
        let times = self.take(times) as u64;
        // What compares may be told to go on for ever, and end where it finds something (`strlen`).
        let times = match compares {
            true => self.compared(times, element),
            false => Some(times).filter(|times| *times <= TIMES_MAX),
        };
        for _ in 0..times.ok_or(brownout_lift::Unsupported)? {
            brownout_lift::lift_string_iteration(instruction, self)?;
            if compares {
                let equal = self.flag(Flag::Zero);
                let goes_on = (equal.now == 1) == instruction.has_rep_prefix();
                if let Some(expr) = equal.expr {
                    let condition = match equal.now {
                        0 => self.pool.not(expr),
                        _ => expr,
                    };
                    self.decide(Kind::Branch, equal.now as u64, condition, None);
                }
                if !goes_on {
                    break;
                }
            }
        }
        Ok(())
    }

    /// How often a repeated comparison was made that may be made so often. None if it has gone on
    /// behind the memory that was told.
    fn compared(&self, times: u64, element: u64) -> Option<u64> {
        const RAX: usize = 0;
        const RSI: usize = 6;
        const RDI: usize = 7;
        let instruction = &self.state.instruction;
        let scans = matches!(
            instruction.mnemonic(),
            Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq
        );
        let goes_on = instruction.has_rep_prefix();
        let is_backwards = self.flags >> flag_bit(Flag::Direction) & 1 == 1;
        let mut done = 0;
        while done < times {
            let far = match is_backwards {
                true => (done * element).wrapping_neg(),
                false => done * element,
            };
            let at = |register: usize| {
                let from = self.state.gpr[register].wrapping_add(far);
                self.state.bytes(from, element as usize)
            };
            let found = at(RDI)?;
            let equal = match scans {
                true => found == &self.state.gpr[RAX].to_le_bytes()[..element as usize],
                false => found == at(RSI)?,
            };
            done += 1;
            if equal != goes_on {
                break;
            }
        }
        Some(done)
    }

    /// No rule describes it: what it reads is taken to be what it is, and what it writes follows
    /// from nothing.
    fn give_up(&mut self) {
        let instruction: &Instruction = &self.state.instruction;
        let mut factory = self
            .shadow
            .factory
            .take()
            .unwrap_or_else(InstructionInfoFactory::new);
        let info = factory.info_options(instruction, InstructionInfoOptions::NONE);
        let registers = info.used_registers().to_vec();
        let memory = info.used_memory().to_vec();
        self.shadow.factory = Some(factory);
        let mut met = false;
        let reads = |access: OpAccess| {
            !matches!(
                access,
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Write | OpAccess::CondWrite
            )
        };
        let writes = |access: OpAccess| {
            !matches!(
                access,
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            )
        };
        let mut clears = Vec::new();
        for used in &registers {
            let register = used.register().full_register();
            let number = register.number();
            if register.is_gpr() {
                if reads(used.access()) {
                    let value = self.gpr(number);
                    met |= value.expr.is_some();
                    self.take(value);
                }
                clears.push((true, number, writes(used.access())));
            } else if register.is_vector_register() && number < 16 {
                if reads(used.access()) {
                    for value in [self.xmm(number), self.ymm_high(number)] {
                        met |= value.expr.is_some();
                        self.take(value);
                    }
                }
                clears.push((false, number, writes(used.access())));
            }
        }
        for (flag, bit) in FLAGS {
            if instruction.rflags_read() & rflag(flag) != 0 {
                let value = self.flag(flag);
                met |= value.expr.is_some();
                self.take(value);
            }
            if instruction.rflags_modified() & rflag(flag) != 0 {
                self.registers().flags[bit as usize] = None;
            }
        }
        for used in &memory {
            let gpr = self.state.gpr;
            let fs = self.state.fs;
            let address = used.virtual_address(0, |register, _, _| match register {
                Register::FS => Some(fs),
                register if register.is_segment_register() => Some(0),
                register if register.is_gpr() => Some(gpr[register.full_register().number()]),
                _ => None,
            });
            let len = used.memory_size().size() as u64;
            let Some(address) = address else {
                continue;
            };
            for at in address..address.saturating_add(len.min(64)) {
                if let Some((expr, now)) = self.shadow.memory.get(&at).copied() {
                    if reads(used.access()) {
                        met = true;
                        let known = self.pool.constant(8, now.into());
                        let same = self.pool.eq(expr, known);
                        self.decide(Kind::Taken, now.into(), same, Some(expr));
                    }
                    if writes(used.access()) {
                        self.shadow.memory.remove(&at);
                    }
                }
            }
        }
        for (is_gpr, number, clears) in clears {
            if clears && is_gpr {
                self.registers().gpr[number] = None;
            } else if clears {
                self.registers().vector[number] = [None; 2];
            }
        }
        if met {
            let name = format!("{:?}", instruction.code());
            *self.shadow.losses.unsupported.entry(name).or_default() += 1;
        }
    }

    fn is_stale(&mut self) {
        self.shadow.losses.stale += 1;
        self.shadow.stale_at.insert(self.state.instruction.ip());
    }

    /// Whether something that is followed still is what it was.
    fn fresh(&mut self, followed: Option<Followed>, bits: u32, now: u128) -> Value {
        match followed {
            Some(followed) if followed.now == now => Value {
                bits,
                now,
                expr: Some(followed.expr),
            },
            Some(_) => {
                self.is_stale();
                Value::known(bits, now)
            }
            None => Value::known(bits, now),
        }
    }

    /// What a table holds, as a function of the one byte of input that its index depends on. None:
    /// more than one, or too little is known.
    fn look_up(&mut self, address: Value, bytes: u32) -> Option<Value> {
        let expr = address.expr?;
        let inputs = self.pool.inputs(expr);
        let &[input] = inputs else {
            return None;
        };
        let len = bytes as usize;
        let addresses = self.tables.addresses(self.pool, expr);
        let entry = |at: u64| {
            let is_plain = (0..u64::from(bytes))
                .all(|n| !self.shadow.memory.contains_key(&at.wrapping_add(n)));
            let content = self.state.bytes(at, len).filter(|_| is_plain)?;
            let number = content
                .iter()
                .rev()
                .fold(0u128, |n, b| n << 8 | u128::from(*b));
            Some(number)
        };
        let entries: Vec<Option<u128>> = addresses.iter().map(|at| entry(*at)).collect();
        // What is there now is no entry of a table if it was computed from the input itself: then
        // to allow only entries would contradict the run.
        if entries.iter().flatten().count() < 2 || entry(address.now as u64).is_none() {
            return None;
        }
        let now = self.memory_now(address.now as u64, bytes)?;
        let bits = 8 * bytes;
        let looked = self.tables.look_up(self.pool, expr, input, bits, entries);
        if let Some(allowed) = looked.allowed {
            self.decide(Kind::Bound, 1, allowed, None);
        }
        Some(value::with(self.pool, bits, now, looked.content))
    }

    /// An address is taken to be what it is, and the registers that it was computed from with it:
    /// they are used again and again.
    fn take_address(&mut self, address: Value) {
        const RSI: Register = Register::RSI;
        const RDI: Register = Register::RDI;
        let instruction = &self.state.instruction;
        *self
            .shadow
            .losses
            .addresses
            .entry(instruction.ip())
            .or_default() += 1;
        let named = [
            instruction.memory_base(),
            instruction.memory_index(),
            RSI,
            RDI,
        ];
        let count = match instruction.is_string_instruction() {
            true => 4,
            false => 2,
        };
        let mut any = false;
        for register in &named[..count] {
            if !register.is_gpr() {
                continue;
            }
            let number = register.full_register().number();
            let value = self.gpr(number);
            if value.expr.is_some() {
                any = true;
                self.take(value);
                self.registers().gpr[number] = None;
            }
        }
        if !any {
            self.take(address);
        }
    }

    fn memory_now(&self, address: u64, bytes: u32) -> Option<u128> {
        let content = self.state.bytes(address, bytes as usize)?;
        Some(
            content
                .iter()
                .rev()
                .fold(0u128, |n, b| n << 8 | u128::from(*b)),
        )
    }
}

/// That a bit of a word is 1 and all below it (or above it) are not.
pub fn first_bit(pool: &mut Pool, word: Expr, bits: u32, at: u32, is_lowest: bool) -> Expr {
    let mut condition = pool.extract(word, at, 1);
    let others = match is_lowest {
        true => 0..at,
        false => at + 1..bits,
    };
    for other in others {
        let bit = pool.extract(word, other, 1);
        let clear = pool.not(bit);
        condition = pool.and(condition, clear);
    }
    condition
}

/// The first and the last byte of the input that an expression depends on.
fn bytes(pool: &mut Pool, expr: Expr) -> (u32, u32) {
    let inputs = pool.inputs(expr);
    let first = inputs.first().copied().unwrap_or(0);
    (first, inputs.last().copied().unwrap_or(first))
}

fn rflag(flag: Flag) -> u32 {
    use iced_x86::RflagsBits as Bits;
    match flag {
        Flag::Carry => Bits::CF,
        Flag::Parity => Bits::PF,
        Flag::Adjust => Bits::AF,
        Flag::Zero => Bits::ZF,
        Flag::Sign => Bits::SF,
        Flag::Overflow => Bits::OF,
        Flag::Direction => Bits::DF,
    }
}

macro_rules! binaries {
    ($($name:ident $what:ident),*) => {
        $(fn $name(&mut self, a: Value, b: Value) -> Value {
            let value = value::binary(self.pool, Binary::$what, a, b);
            if value.bits == 1 && value.expr.is_none() {
                self.folded = self.folded.or(a.expr).or(b.expr);
            }
            value
        })*
    };
}

impl Algebra for Step<'_> {
    type Value = Value;

    fn constant(&mut self, bits: u32, value: u128) -> Value {
        Value::known(bits, value)
    }

    fn bits(&self, value: Value) -> u32 {
        value.bits
    }

    binaries!(
        add Add, sub Sub, mul Mul, urem Urem, srem Srem, and And, or Or, xor Xor, shl Shl, lshr Lshr, ashr Ashr, eq Eq,
        ult Ult, slt Slt
    );

    // Only divisions ask for quotients.
    fn udiv(&mut self, a: Value, b: Value) -> Value {
        self.divides(a, b, false);
        value::binary(self.pool, Binary::Udiv, a, b)
    }

    fn sdiv(&mut self, a: Value, b: Value) -> Value {
        self.divides(a, b, true);
        value::binary(self.pool, Binary::Sdiv, a, b)
    }

    fn not(&mut self, a: Value) -> Value {
        value::not(self.pool, a)
    }

    fn neg(&mut self, a: Value) -> Value {
        value::neg(self.pool, a)
    }

    fn ite(&mut self, condition: Value, then: Value, otherwise: Value) -> Value {
        value::ite(self.pool, condition, then, otherwise)
    }

    fn concat(&mut self, high: Value, low: Value) -> Value {
        value::concat(self.pool, high, low)
    }

    fn extract(&mut self, value: Value, low: u32, bits: u32) -> Value {
        value::extract(self.pool, value, low, bits)
    }

    fn zext(&mut self, value: Value, bits: u32) -> Value {
        value::zext(self.pool, value, bits)
    }

    fn sext(&mut self, value: Value, bits: u32) -> Value {
        value::sext(self.pool, value, bits)
    }
}

impl Machine for Step<'_> {
    fn gpr(&mut self, number: usize) -> Value {
        let followed = self.registers().gpr[number];
        self.fresh(followed, 64, self.gpr[number].into())
    }

    fn set_gpr(&mut self, number: usize, value: Value) {
        self.gpr[number] = value.now as u64;
        self.registers().gpr[number] = followed(value);
    }

    fn xmm(&mut self, number: usize) -> Value {
        self.half(number, 0)
    }

    fn set_xmm(&mut self, number: usize, value: Value) {
        self.registers().vector[number & 15][0] = followed(value);
    }

    fn ymm_high(&mut self, number: usize) -> Value {
        self.half(number, 1)
    }

    fn set_ymm_high(&mut self, number: usize, value: Value) {
        self.registers().vector[number & 15][1] = followed(value);
    }

    fn flag(&mut self, flag: Flag) -> Value {
        let bit = flag_bit(flag);
        let followed = self.registers().flags[bit as usize];
        self.fresh(followed, 1, u128::from(self.flags >> bit & 1))
    }

    fn set_flag(&mut self, flag: Flag, value: Value) {
        let bit = flag_bit(flag);
        self.flags = self.flags & !(1 << bit) | (value.now as u64 & 1) << bit;
        self.registers().flags[bit as usize] = followed(value);
    }

    fn undefine_flag(&mut self, flag: Flag) {
        self.registers().flags[flag_bit(flag) as usize] = None;
    }

    fn load(&mut self, address: Value, bytes: u32) -> Value {
        if address.expr.is_some() {
            self.accesses(address, bytes.into());
            if let Some(value) = self.look_up(address, bytes) {
                return value;
            }
            self.take_address(address);
        }
        let at = address.now as u64;
        let mut whole: Option<Value> = None;
        for n in 0..u64::from(bytes) {
            let at = at.wrapping_add(n);
            let told = self.state.bytes(at, 1).map(|bytes| bytes[0]);
            let byte = match (self.shadow.memory.get(&at).copied(), told) {
                (Some((expr, now)), Some(told)) if now == told => Value {
                    bits: 8,
                    now: now.into(),
                    expr: Some(expr),
                },
                // Not told: the repetitions before this one may have stored it.
                (Some((expr, now)), None) => Value {
                    bits: 8,
                    now: now.into(),
                    expr: Some(expr),
                },
                (Some(_), Some(told)) => {
                    self.is_stale();
                    Value::known(8, told.into())
                }
                (None, told) => Value::known(8, told.unwrap_or(0).into()),
            };
            whole = Some(match whole {
                None => byte,
                Some(low) => value::concat(self.pool, byte, low),
            });
        }
        whole.unwrap_or(Value::known(8, 0))
    }

    fn store(&mut self, address: Value, value: Value) {
        if address.expr.is_some() {
            self.accesses(address, u64::from(value.bits / 8));
            self.take_address(address);
        }
        let at = address.now as u64;
        for n in 0..value.bits / 8 {
            let at = at.wrapping_add(n.into());
            let byte = match value.expr {
                Some(_) => value::extract(self.pool, value, 8 * n, 8),
                None => Value::known(8, value.now >> (8 * n)),
            };
            match byte.expr {
                Some(expr) => {
                    self.shadow.memory.insert(at, (expr, byte.now as u8));
                }
                None => {
                    self.shadow.memory.remove(&at);
                }
            }
        }
    }

    fn segment_base(&mut self, segment: Register) -> Value {
        Value::known(
            64,
            match segment {
                Register::FS => self.state.fs.into(),
                _ => 0,
            },
        )
    }
}

impl Step<'_> {
    fn half(&mut self, number: usize, half: usize) -> Value {
        let told = self.state.vectors.iter().find(|(n, _)| *n == number);
        let now = told.map(|(_, halves)| halves[half]);
        let followed = self.registers().vector[number & 15][half];
        match (now, followed) {
            (Some(now), followed) => self.fresh(followed, 128, now),
            // Not told, since the instruction does not name it.
            (None, Some(followed)) => Value {
                bits: 128,
                now: followed.now,
                expr: Some(followed.expr),
            },
            (None, None) => Value::known(128, 0),
        }
    }
}

fn followed(value: Value) -> Option<Followed> {
    let now = value.now;
    value.expr.map(|expr| Followed { expr, now })
}
