//! Whole runs in the lifter: what each instruction of a real program computes, evaluated with the
//! numbers that it had, is what the processor has made of it.
//!
//! Each instruction's state is captured in front of it. What `brownout_lift` makes of that state is
//! compared with the next one of the thread: all general registers, the flags that are defined,
//! vector registers and memory as far as they are told again, and where control went.
//!
//! | not compared | counted as |
//! |---|---|
//! | what no rule describes (system calls, `cpuid`, floating point), and repeated string instructions with more than was told | `left out`, by mnemonic |
//! | an instruction whose successor was not captured: the kernel has stepped in | `gaps` |
//!
//! `BROWNOUT_LIFTED=1000000 cargo xtask test lifted::` compares so many instructions of each
//! program; 60,000 are usual, so that CI stays fast.

#![allow(clippy::print_stdout, reason = "a long run is made for its figures")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brownout_host::{CAPTURE_MAX, LaunchConfig, Schedule, StrategyKind};
use brownout_lift::{Algebra, Flag, Machine, Next};
use brownout_symex::State;
use brownout_tests::{Scratch, examples, trial};
use brownout_trace::event::{Event, ThreadId};
use brownout_trace::{EventSink, Executed};
use iced_x86::{Decoder, DecoderOptions, EncodingKind, Register};
use libtest_mimic::Arguments;

const USUAL: u64 = 60_000;
/// What is repeated more often was not told.
const TIMES_MAX: u64 = 4096;

fn main() {
    let arguments = Arguments::from_args();
    let trials = vec![
        trial("lifted::mapcli", mapcli),
        trial("lifted::sqlite3", sqlite3),
        trial("lifted::judged", judged),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn mapcli() -> Result<()> {
    let program = examples::binary("mapcli")?;
    let commands = examples::random_commands(1, 300);
    agrees(program, &["hashmap_atomic", "pool"], &commands)
}

fn sqlite3() -> Result<()> {
    let statement = "create table t(a, b); with recursive n(x) as (select 1 union all select x + 1 from n where x < 400) \
                     insert into t select x, x * 7 % 31 from n; select b, count(*), sum(a) from t group by b order by 2;\n";
    agrees(PathBuf::from("sqlite3"), &["-batch"], statement)
}

/// What was wrong is said, however the run has ended; fewer than were asked for are too few.
fn judged() -> Result<()> {
    let replay = |compared, limit, wrong: &[&str]| Replay {
        limit,
        compared,
        wrong: wrong.iter().map(|&text| text.to_owned()).collect(),
        ..Replay::default()
    };
    let says = |replay: &Replay, ended: Option<&'static str>| {
        let judged = replay.judged(ended.map(anyhow::Error::msg));
        judged.err().map(|error| format!("{error:#}"))
    };
    let wrong = says(&replay(3, 10, &["add: wrong"]), Some("that is enough"));
    ensure!(wrong.as_deref() == Some("add: wrong"), "{wrong:?}");
    let few = says(&replay(USUAL, 10 * USUAL, &[]), None);
    ensure!(
        few.is_some_and(|text| text.contains("too short")),
        "too few passed"
    );
    let other = says(&replay(3, 10, &[]), Some("a record that makes no sense"));
    ensure!(other.is_some_and(|text| text.contains("makes no sense")));
    let enough = says(&replay(10, 10, &[]), Some("that is enough"));
    ensure!(enough.is_none(), "{enough:?}");
    Ok(())
}

fn agrees(program: PathBuf, args: &[&str], input: &str) -> Result<()> {
    let limit = match std::env::var("BROWNOUT_LIFTED") {
        Ok(text) => text.parse().context("BROWNOUT_LIFTED is no number")?,
        Err(_) => USUAL,
    };
    let scratch = Scratch::new()?;
    fs::write(scratch.join("input"), input)?;
    let config = |capture: Option<Vec<u64>>| -> Result<LaunchConfig> {
        let pool = scratch.join("pool");
        let _ = fs::remove_file(&pool);
        let args = args.iter().map(|arg| match *arg {
            "pool" => pool.as_os_str().to_owned(),
            arg => arg.into(),
        });
        let mut config = LaunchConfig::new(&program, args);
        config.pm_globs = vec![pool.to_string_lossy().into_owned()];
        config.deterministic = true;
        config.plain_cpu = true;
        config.schedule = Some(Schedule::new(StrategyKind::GoOn, 0));
        (config.loads, config.follow) = match capture {
            Some(_) => (false, false),
            None => (true, true),
        };
        config.capture = capture.map(Into::into);
        config.stdin = Some(fs::File::open(scratch.join("input"))?);
        config.stdout = Some(fs::File::create(scratch.join("output"))?);
        config.stderr = Some(fs::File::create(scratch.join("errors"))?);
        Ok(config)
    };
    let mut code = Code::default();
    brownout_host::record(&config(None)?, &mut code)?;
    let all = code.0.len();
    let chosen: Vec<u64> = code.0.into_iter().take(CAPTURE_MAX).collect();
    let mut replay = Replay {
        limit,
        ..Replay::default()
    };
    let ended = brownout_host::record(&config(Some(chosen))?, &mut replay);
    println!("of {all} addresses: {}", replay.figures());
    replay.judged(ended.err().map(anyhow::Error::from))
}

/// The addresses of all instructions that a run executes.
#[derive(Default)]
struct Code(BTreeSet<u64>);

impl EventSink for Code {
    fn event(&mut self, _: &Event<'_>) -> io::Result<()> {
        Ok(())
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        if let Executed::Block { pc, code, .. } = *what {
            let decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            self.0.extend(decoder.into_iter().map(|insn| insn.ip()));
        }
        Ok(())
    }
}

/// What an instruction should have made of its state.
struct Expected {
    insn: String,
    ip: u64,
    gpr: [u64; 16],
    flags: u64,
    /// Those that are defined.
    mask: u64,
}

/// A thread, as far as it is known.
#[derive(Default)]
struct Thread {
    expected: Option<Expected>,
    vectors: [[Option<u128>; 2]; 16],
}

#[derive(Default)]
struct Replay {
    limit: u64,
    threads: HashMap<ThreadId, Thread>,
    memory: HashMap<u64, u8>,
    compared: u64,
    gaps: u64,
    left_out: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl EventSink for Replay {
    fn event(&mut self, _: &Event<'_>) -> io::Result<()> {
        Ok(())
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        const ENOUGH: usize = 10;
        if let Executed::Captured { thread, pc, words } = *what {
            let state = State::read(pc, words);
            let state = state.ok_or_else(|| io::Error::other("a record that makes no sense"))?;
            self.step(thread, &state);
        }
        match self.compared >= self.limit || self.wrong.len() >= ENOUGH {
            true => Err(io::Error::other("that is enough")),
            false => Ok(()),
        }
    }
}

impl Replay {
    fn figures(&self) -> String {
        let Replay {
            compared,
            gaps,
            left_out,
            ..
        } = self;
        let left: u64 = left_out.values().sum();
        format!("{compared} equal or not, {gaps} gaps, {left} left out: {left_out:?}")
    }

    /// Whether it agrees. `ended`: why the run has not ended by itself.
    fn judged(&self, ended: Option<anyhow::Error>) -> Result<()> {
        let Replay {
            compared,
            gaps,
            limit,
            wrong,
            ..
        } = self;
        // The run is ended where that is enough of them: what they are comes first.
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        // It is ended where enough was compared, too.
        match ended {
            Some(error) if compared < limit => return Err(error),
            _ => ensure!(
                compared >= limit,
                "only {compared} were compared, not {limit}: the run was too short"
            ),
        }
        // Where they were more, something was captured that is not what was executed.
        ensure!(gaps * 100 <= *compared, "{gaps} gaps, {compared} compared");
        Ok(())
    }

    fn step(&mut self, thread: ThreadId, state: &State) {
        let mut known = self.threads.remove(&thread).unwrap_or_default();
        self.compare(&mut known, state);
        self.execute(&mut known, state);
        self.threads.insert(thread, known);
    }

    fn compare(&mut self, known: &mut Thread, state: &State) {
        let Some(expected) = known.expected.take() else {
            return;
        };
        let insn = &expected.insn;
        if expected.ip != state.instruction.ip() {
            self.gaps += 1;
            self.memory.clear();
            known.vectors = Default::default();
            return;
        }
        self.compared += 1;
        for (number, (a, b)) in expected.gpr.iter().zip(state.gpr).enumerate() {
            if *a != b {
                self.wrong
                    .push(format!("{insn}: gpr {number} is {b:#x}, not {a:#x}"));
            }
        }
        let differs = (expected.flags ^ state.flags) & expected.mask;
        if differs != 0 {
            self.wrong
                .push(format!("{insn}: flags {differs:#x} differ"));
        }
        for (number, halves) in &state.vectors {
            let told = match state.instruction.encoding() {
                EncodingKind::Legacy => 1,
                _ => 2,
            };
            for half in 0..told {
                let Some(known) = known.vectors.get_mut(*number) else {
                    continue;
                };
                if known[half].is_some_and(|known| known != halves[half]) {
                    self.wrong.push(format!(
                        "in front of {}: vector {number} is {:#x}, not {:#x?}",
                        state.instruction, halves[half], known[half]
                    ));
                }
                known[half] = Some(halves[half]);
            }
        }
        for piece in &state.memory {
            for (at, byte) in (piece.address..).zip(&piece.bytes) {
                if self.memory.get(&at).is_some_and(|known| known != byte) {
                    self.wrong.push(format!(
                        "in front of {}: {at:#x} holds {byte:#x}, not what was stored",
                        state.instruction
                    ));
                    self.memory.remove(&at);
                }
            }
        }
    }

    fn execute(&mut self, known: &mut Thread, state: &State) {
        const RCX: usize = 1;
        let insn = &state.instruction;
        let mut whole = Whole {
            state,
            memory: &mut self.memory,
            vectors: &mut known.vectors,
            gpr: state.gpr,
            flags: state.flags,
            mask: FLAGS,
            doubtful: 0,
            is_known: true,
        };
        let repeats =
            insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix());
        let next = match repeats {
            false => brownout_lift::lift(insn, &mut whole),
            true if state.gpr[RCX] > TIMES_MAX => Err(brownout_lift::Unsupported),
            true => whole.repeat(),
        };
        let ip = next.map(|next| match next {
            Next::Falls => insn.next_ip(),
            Next::Branch { taken, target } if taken.now == 1 => target,
            Next::Branch { .. } => insn.next_ip(),
            Next::Computed { target } => target.now as u64,
            Next::Jump { target } => target,
        });
        let (gpr, flags, mask, is_known) = (whole.gpr, whole.flags, whole.mask, whole.is_known);
        match ip {
            Ok(ip) if is_known => {
                known.expected = Some(Expected {
                    insn: format!("{insn} at {:#x}", insn.ip()),
                    ip,
                    gpr,
                    flags,
                    mask,
                });
            }
            _ => {
                let name = format!("{:?}", insn.mnemonic());
                *self.left_out.entry(name).or_default() += 1;
                self.memory.clear();
                known.vectors = Default::default();
            }
        }
    }
}

/// Carry, parity, adjust, zero, sign, direction, overflow.
const FLAGS: u64 = 0xCD5;

fn bit(flag: Flag) -> u32 {
    match flag {
        Flag::Carry => 0,
        Flag::Parity => 2,
        Flag::Adjust => 4,
        Flag::Zero => 6,
        Flag::Sign => 7,
        Flag::Direction => 10,
        Flag::Overflow => 11,
    }
}

/// A number of so many bits.
#[derive(Clone, Copy)]
struct Number {
    bits: u32,
    now: u128,
}

fn number(bits: u32, now: u128) -> Number {
    let now = match bits {
        128.. => now,
        _ => now & ((1 << bits) - 1),
    };
    Number { bits, now }
}

fn signed(n: Number) -> i128 {
    let shift = 128 - n.bits;
    (n.now << shift) as i128 >> shift
}

/// One instruction, with what it starts from and what it leaves.
struct Whole<'s> {
    state: &'s State,
    memory: &'s mut HashMap<u64, u8>,
    vectors: &'s mut [[Option<u128>; 2]; 16],
    gpr: [u64; 16],
    flags: u64,
    mask: u64,
    /// Flags that were undefined when they were asked for.
    doubtful: u64,
    /// All that it has asked for was told.
    is_known: bool,
}

impl Whole<'_> {
    fn repeat(&mut self) -> Result<Next<Number>, brownout_lift::Unsupported> {
        const RCX: usize = 1;
        use iced_x86::Mnemonic as M;
        let insn = &self.state.instruction;
        let compares = matches!(
            insn.mnemonic(),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
        );
        for _ in 0..self.gpr[RCX] {
            brownout_lift::lift_string_iteration(insn, self)?;
            let is_equal = self.flags >> bit(Flag::Zero) & 1 == 1;
            if compares && is_equal != insn.has_rep_prefix() {
                break;
            }
        }
        Ok(Next::Falls)
    }

    fn half(&mut self, register: usize, half: usize) -> Number {
        let told = self.state.vectors.iter().find(|(n, _)| *n == register);
        let is_told = half == 0 || self.state.instruction.encoding() != EncodingKind::Legacy;
        let now = match told {
            Some((_, halves)) if is_told => Some(halves[half]),
            _ => self.vectors[register & 15][half],
        };
        self.is_known &= now.is_some();
        number(128, now.unwrap_or(0))
    }
}

impl Algebra for Whole<'_> {
    type Value = Number;

    fn constant(&mut self, bits: u32, value: u128) -> Number {
        number(bits, value)
    }
    fn bits(&self, v: Number) -> u32 {
        v.bits
    }
    fn add(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now.wrapping_add(b.now))
    }
    fn sub(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now.wrapping_sub(b.now))
    }
    fn mul(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now.wrapping_mul(b.now))
    }
    fn udiv(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now.checked_div(b.now).unwrap_or(u128::MAX))
    }
    fn urem(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now.checked_rem(b.now).unwrap_or(a.now))
    }
    fn sdiv(&mut self, a: Number, b: Number) -> Number {
        number(
            a.bits,
            signed(a).checked_div(signed(b)).unwrap_or(-1) as u128,
        )
    }
    fn srem(&mut self, a: Number, b: Number) -> Number {
        number(
            a.bits,
            signed(a).checked_rem(signed(b)).unwrap_or(0) as u128,
        )
    }
    fn and(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now & b.now)
    }
    fn or(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now | b.now)
    }
    fn xor(&mut self, a: Number, b: Number) -> Number {
        number(a.bits, a.now ^ b.now)
    }
    fn shl(&mut self, a: Number, b: Number) -> Number {
        match b.now < u128::from(a.bits) {
            true => number(a.bits, a.now << b.now),
            false => number(a.bits, 0),
        }
    }
    fn lshr(&mut self, a: Number, b: Number) -> Number {
        match b.now < u128::from(a.bits) {
            true => number(a.bits, a.now >> b.now),
            false => number(a.bits, 0),
        }
    }
    fn ashr(&mut self, a: Number, b: Number) -> Number {
        let count = b.now.min(u128::from(a.bits) - 1);
        number(a.bits, (signed(a) >> count) as u128)
    }
    fn not(&mut self, a: Number) -> Number {
        number(a.bits, !a.now)
    }
    fn neg(&mut self, a: Number) -> Number {
        number(a.bits, a.now.wrapping_neg())
    }
    fn eq(&mut self, a: Number, b: Number) -> Number {
        number(1, u128::from(a.now == b.now))
    }
    fn ult(&mut self, a: Number, b: Number) -> Number {
        number(1, u128::from(a.now < b.now))
    }
    fn slt(&mut self, a: Number, b: Number) -> Number {
        number(1, u128::from(signed(a) < signed(b)))
    }
    fn ite(&mut self, condition: Number, then: Number, otherwise: Number) -> Number {
        if condition.now == 1 { then } else { otherwise }
    }
    fn concat(&mut self, high: Number, low: Number) -> Number {
        number(high.bits + low.bits, high.now << low.bits | low.now)
    }
    fn extract(&mut self, v: Number, low: u32, bits: u32) -> Number {
        number(bits, v.now >> low)
    }
    fn zext(&mut self, v: Number, bits: u32) -> Number {
        number(bits, v.now)
    }
    fn sext(&mut self, v: Number, bits: u32) -> Number {
        number(bits, signed(v) as u128)
    }
}

impl Machine for Whole<'_> {
    fn gpr(&mut self, n: usize) -> Number {
        number(64, self.gpr[n].into())
    }
    fn set_gpr(&mut self, n: usize, value: Number) {
        self.gpr[n] = value.now as u64;
    }
    fn xmm(&mut self, n: usize) -> Number {
        self.half(n, 0)
    }
    fn set_xmm(&mut self, n: usize, value: Number) {
        self.vectors[n & 15][0] = Some(value.now);
    }
    fn ymm_high(&mut self, n: usize) -> Number {
        self.half(n, 1)
    }
    fn set_ymm_high(&mut self, n: usize, value: Number) {
        self.vectors[n & 15][1] = Some(value.now);
    }
    fn flag(&mut self, flag: Flag) -> Number {
        // What the manuals leave undefined, the processor has decided: whatever becomes of it is
        // not known here.
        self.doubtful |= !self.mask & 1 << bit(flag);
        number(1, u128::from(self.flags >> bit(flag) & 1))
    }
    fn set_flag(&mut self, flag: Flag, value: Number) {
        let bit = bit(flag);
        self.flags = self.flags & !(1 << bit) | (value.now as u64 & 1) << bit;
        self.mask |= 1 << bit & !self.doubtful;
    }
    fn undefine_flag(&mut self, flag: Flag) {
        self.mask &= !(1 << bit(flag));
    }
    fn load(&mut self, address: Number, bytes: u32) -> Number {
        let at = address.now as u64;
        let mut now = 0;
        for n in (0..u64::from(bytes)).rev() {
            let at = at.wrapping_add(n);
            // What the repetitions before this one have stored is newer than what was told.
            let byte = match self.memory.get(&at) {
                Some(byte) => Some(*byte),
                None => self.state.bytes(at, 1).map(|bytes| bytes[0]),
            };
            self.is_known &= byte.is_some();
            now = now << 8 | u128::from(byte.unwrap_or(0));
        }
        number(8 * bytes, now)
    }
    fn store(&mut self, address: Number, value: Number) {
        for n in 0..value.bits / 8 {
            let at = (address.now as u64).wrapping_add(n.into());
            self.memory.insert(at, (value.now >> (8 * n)) as u8);
        }
    }
    fn segment_base(&mut self, segment: Register) -> Number {
        match segment {
            Register::FS => number(64, self.state.fs.into()),
            _ => {
                self.is_known = false;
                number(64, 0)
            }
        }
    }
}
