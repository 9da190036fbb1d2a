//! Which registers and which memory follow from the input, and how; and what an instruction makes of them.
//!
//! ```text
//!  State (captured) ─┐
//!  Shadow            ├─▶ brownout_lift over Value ─▶ Shadow, decisions of the path
//!  Pool              ┘
//! ```
//! **Guarantee.** A value that is taken to follow from the input is what the program has: its number is compared with what was captured each time it is used, and
//! where they differ it is forgotten, and counted as stale. (An instruction that was not captured has changed it.)
//!
//! **Deviations.** A form that `brownout_lift` does not describe, an address that depends on more than one byte of the input, and a number of repetitions are
//! taken to be what they were: the path gets a condition that says so ([`Kind::Taken`]). They are counted by what they are.

use std::collections::BTreeMap;

use brownout_lift::{Algebra, Flag, Machine, Next};
use brownout_solve::{Expr, Pool};
use brownout_trace::event::ThreadId;
use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::captured::State;
use crate::path::{Decision, Kind, Path, Progress};
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
    /// What was compared by the last instruction that has set flags, if the result is the same whatever the input is; and the flags that it left.
    folded: Option<(Expr, u64)>,
}

/// What was not followed, by what it is.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Forms that no rule describes, and how often they met input.
    pub unsupported: BTreeMap<String, u64>,
    /// Addresses that were taken to be what they were: by instruction, how often.
    pub addresses: BTreeMap<u64, u64>,
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
    /// Instructions that have met values which something else had overwritten: instructions before them touch the input, and were not captured.
    pub stale_at: FxHashSet<u64>,
    /// How far it has come with persistent memory.
    pub pm: Progress,
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

    /// A thread has made a system call with these arguments. What it was told is taken to be what it was, since the kernel's answer depends on it; its result
    /// follows from nothing.
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
}

impl Step<'_> {
    fn registers(&mut self) -> &mut Registers {
        self.shadow.threads.entry(self.thread).or_default()
    }

    fn decide(&mut self, kind: Kind, way: u64, condition: Expr, value: Option<Expr>) {
        if self.pool.as_constant(condition).is_none() {
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
            });
        }
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
            Next::Branch { taken, .. } => {
                if let Some(expr) = taken.expr {
                    let way = taken.now as u64;
                    let condition = match way {
                        0 => self.pool.not(expr),
                        _ => expr,
                    };
                    self.decide(Kind::Branch, way, condition, None);
                } else {
                    self.goes_anyway(taken.now as u64);
                }
            }
            Next::Computed { target } => {
                if let Some(expr) = target.expr {
                    let now = self.pool.constant(target.bits, target.now);
                    let condition = self.pool.eq(expr, now);
                    self.decide(Kind::Jump, target.now as u64, condition, Some(expr));
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

    /// The place of a bit that was found is a decision of its own. Whatever is computed from it (lengths, addresses) follows from nothing then: it
    /// would tie all bytes that were searched to each other, again and again.
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
        // What it was searched in. A register that is its own result does not hold it any more: then the result will do.
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
        let times = self.take(times) as u64;
        let element = instruction.memory_size().size().max(1) as u64;
        if times > TIMES_MAX
            || times * element > brownout_abi::captured::STRING_MAX as u64 && compares
        {
            return Err(brownout_lift::Unsupported);
        }
        for _ in 0..times {
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

    /// No rule describes it: what it reads is taken to be what it is, and what it writes follows from nothing.
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

    /// What a table holds, as a function of the one byte of input that its index depends on. None: more than one, or too little is known.
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
        if entries.iter().flatten().count() < 2 {
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

    /// An address is taken to be what it is, and the registers that it was computed from with it: they are used again and again.
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
        add Add, sub Sub, mul Mul, udiv Udiv, urem Urem, sdiv Sdiv, srem Srem, and And, or Or, xor Xor, shl Shl, lshr Lshr, ashr Ashr, eq Eq,
        ult Ult, slt Slt
    );

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
