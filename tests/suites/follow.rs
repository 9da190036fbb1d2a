//! Data that is followed through whole programs: what depends on what, byte by byte.
//!
//! | trials | what |
//! |---|---|
//! | `flow::` | each case of `tests/follow/flows.c`: what its output, and what leaves the process, depends on and does not |
//! | `kept::` | the same cases in runs that are forked from a kept process: what is not told again of what it did before changes nothing |
//! | `changed::` | a bit of the input is changed, for each byte of it: every byte of the output that differs then was labelled with that byte |
//! | `race::` | programs of `tests/race`, under a schedule that interleaves their threads: nothing is given up, each load is heard of right behind its event, and the run is the same as without |
//!
//! The input is the first page of a pool. Each byte is a source when it is loaded: its number is
//! its offset plus one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use brownout_follow::{Access, Follower, Label, Observer, Sets};
use brownout_host::{
    ExitStatus, LaunchConfig, LaunchError, Outcome, Schedule, Session, StopAt, StrategyKind, record,
};
use brownout_tests::{Scratch, layout, trial};
use brownout_trace::event::{Event, EventKind, FileId, ThreadId};
use brownout_trace::{EventSink, Executed};
use libtest_mimic::Arguments;

const PAGE: usize = 4096;
/// What a case exits with if the processor lacks what it shows.
const CANNOT: i32 = 77;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (name, expect) in CASES {
        trials.push(trial(format!("flow::{name}"), move || flow(name, *expect)));
        trials.push(trial(format!("kept::{name}"), move || kept(name, *expect)));
    }
    for name in ["mixed", "registers", "sse", "copies"] {
        trials.push(trial(format!("changed::{name}"), move || changed(name)));
    }
    for name in [
        "flow_vector",
        "flow_text",
        "kv_server",
        "treiber_head",
        "treiber_read",
    ] {
        trials.push(trial(format!("race::{name}"), move || race(name)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

// ── a run ───────────────────────────────────────────────────────────────────────────────────────

/// Bytes that have left by one call: its number, and the sources of each byte.
type Left = (u32, Vec<BTreeSet<u32>>);

/// Labels the input, and remembers what it hears.
#[derive(Default)]
struct Heard {
    /// Of stores to the second page: where, and the sources of the address.
    addresses: Vec<(usize, BTreeSet<u32>)>,
    left: Vec<Left>,
    loads: usize,
    /// Loads of which no event had come.
    unannounced: usize,
    announced: Vec<(u64, u64)>,
}

fn members(label: Label, sets: &Sets) -> BTreeSet<u32> {
    sets.members(label).iter().copied().collect()
}

impl Observer for Heard {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        self.loads += 1;
        let (from, to) = (access.address, access.address + access.size as u64);
        let is_told = |event: &(u64, u64)| event.0 <= from && to <= event.1;
        if access.call.is_none() && !self.announced.iter().any(is_told) {
            self.unannounced += 1;
        }
        let offset = access.place.expect("tracked").1;
        for (n, source) in sources.iter_mut().enumerate() {
            let at = offset as usize + n;
            *source = if at < PAGE { at as u32 + 1 } else { 0 };
        }
    }

    fn stores(&mut self, access: &Access, _: &[Label], address: Label, sets: &Sets) {
        let offset = access.place.expect("tracked").1 as usize;
        if offset >= PAGE && !address.is_none() {
            self.addresses.push((offset - PAGE, members(address, sets)));
        }
    }

    fn leaves(&mut self, access: &Access, content: &[Label], sets: &Sets) {
        let bytes = content.iter().map(|label| members(*label, sets)).collect();
        self.left.push((access.call.expect("by a call"), bytes));
    }
}

struct Sink {
    follower: Follower,
    heard: Heard,
    file: Option<FileId>,
}

impl EventSink for Sink {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event.kind {
            EventKind::File { file, .. } => self.file = Some(file),
            EventKind::Load(access) | EventKind::Rmw(access) => {
                // Only the last few can be meant.
                if self.heard.announced.len() > 4 {
                    self.heard.announced.remove(0);
                }
                let at = access.addr.0;
                self.heard.announced.push((at, at + u64::from(access.size)));
            }
            _ => {}
        }
        self.follower.event(event, &mut self.heard)
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        self.follower.executed(what, &mut self.heard)
    }
}

/// What came of a run.
struct Followed {
    /// The sources of each byte of the second page.
    sources: Vec<BTreeSet<u32>>,
    /// The second page.
    output: Vec<u8>,
    heard: Heard,
}

/// The program. Each trial may be a process of its own, so whoever comes first leaves it in the
/// target folder.
fn flows() -> Result<PathBuf> {
    let source = layout::workspace().join("tests/follow/flows.c");
    let folder = layout::target().join("follow-programs");
    let binary = folder.join("flows");
    let changed = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    if matches!((changed(&binary), changed(&source)), (Ok(binary), Ok(source)) if binary > source) {
        return Ok(binary);
    }
    fs::create_dir_all(&folder)?;
    // Made beside and renamed: others may be at it, too.
    let unfinished = folder.join(format!("flows.{}", std::process::id()));
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&unfinished, &source])
        .arg("-lpthread")
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("cannot compile the flows: {said}");
    }
    fs::rename(&unfinished, &binary)?;
    Ok(binary)
}

/// Bytes that differ from each other, none of which is zero.
fn input() -> Vec<u8> {
    let mut input: Vec<u8> = (0..PAGE).map(|n| (n * 7 % 251 + 1) as u8).collect();
    // Ordinary numbers for conversions.
    input[32..36].copy_from_slice(&123_456u32.to_le_bytes());
    input
}

/// The run of a case by itself.
fn follow(case: &str, input: &[u8]) -> Result<Option<Followed>> {
    let scratch = Scratch::new()?;
    follow_in(&scratch, case, input, record)
}

/// Makes a run with a configuration. The sink hears of it.
fn follow_in(
    scratch: &Scratch,
    case: &str,
    input: &[u8],
    run: impl FnOnce(&LaunchConfig, &mut dyn EventSink) -> Result<Outcome, LaunchError>,
) -> Result<Option<Followed>> {
    let pool = scratch.join("pool");
    let mut content = input.to_vec();
    content.resize(2 * PAGE, 0);
    fs::write(&pool, content)?;
    let mut config = LaunchConfig::new(flows()?, [pool.as_os_str(), case.as_ref()]);
    config.pm_globs = vec![pool.to_string_lossy().into_owned()];
    config.loads = true;
    config.schedule = Some(Schedule::new(StrategyKind::GoOn, 0));
    config.deterministic = true;
    config.follow = true;
    let mut sink = Sink {
        follower: Follower::new(),
        heard: Heard::default(),
        file: None,
    };
    let outcome = run(&config, &mut sink)?;
    if outcome.status == ExitStatus::Code(CANNOT) {
        return Ok(None);
    }
    ensure!(
        outcome.status == ExitStatus::Code(0),
        "it ended with {:?}",
        outcome.status
    );
    let Sink {
        follower,
        heard,
        file,
    } = sink;
    ensure!(follower.given_up() == 0, "{} given up", follower.given_up());
    ensure!(
        heard.unannounced == 0,
        "{} of {} loads were heard of before their events",
        heard.unannounced,
        heard.loads
    );
    let file = file.context("no file is tracked")?;
    let labels = follower.labels(file, PAGE as u64, PAGE);
    let sources = labels
        .iter()
        .map(|label| members(*label, follower.sets()))
        .collect();
    Ok(Some(Followed {
        sources,
        output: fs::read(&pool)?[PAGE..].to_vec(),
        heard,
    }))
}

// ── cases ───────────────────────────────────────────────────────────────────────────────────────

/// What is wrong with a run of a case.
type Expect = fn(&Followed) -> Result<()>;

const CASES: &[(&str, Expect)] = &[
    ("registers", |run| {
        run.exactly(0, 0..8)?;
        for n in 0..8u32 {
            // A sum: each byte, and what may be carried into it.
            run.between(8 + n as usize, [n], 0..=n)?;
            run.just(16 + n as usize, [7 - n])?;
            run.between(40 + n as usize, [n], 0..8)?;
        }
        run.just(24, [3])?;
        run.nothing(25..32)?;
        run.nothing(32..33)?;
        run.exactly(33, 0..7)
    }),
    ("overwritten", |run| {
        run.nothing(0..32)?;
        run.exactly(32, 32..64)?;
        run.nothing(64..72)
    }),
    ("sse", |run| {
        run.exactly(0, 0..16)?;
        for n in 0..8 {
            run.just(16 + 2 * n as usize, [n])?;
            run.just(17 + 2 * n as usize, [16 + n])?;
        }
        for word in 0..4 {
            for byte in 0..4 {
                run.just(
                    (32 + 4 * word + byte) as usize,
                    [16 + 4 * (3 - word) + byte],
                )?;
            }
        }
        Ok(())
    }),
    ("ends", |run| {
        run.between(0, 0..15, 0..15)?;
        run.between(8, 0..15, 0..15)?;
        run.between(16, 24..32, 24..32)
    }),
    ("avx", |run| {
        run.exactly(0, 0..32)?;
        for n in 0..32 {
            run.between(32 + n, [n as u32 / 4], 0..8)?;
        }
        Ok(())
    }),
    ("copies", |run| run.exactly(0, 0..200)),
    ("grown", |run| {
        run.exactly(0, 0..64)?;
        run.exactly(64, 0..64)?;
        run.nothing(128..192)
    }),
    ("text", |run| {
        for n in 0..8 {
            run.has(n, [n as u32])?;
        }
        // "n=123456;": the digits, and what is around them.
        run.nothing(16..18)?;
        ensure!(
            &run.output[16..24] == b"n=123456",
            "the text is another one"
        );
        for n in 18..24 {
            run.has(n, [32, 33, 34])?;
        }
        Ok(())
    }),
    ("sorted", |run| {
        let input = input();
        let number = |at: usize| {
            let bytes = input[4 * at..4 * at + 4].try_into().expect("four");
            u32::from_le_bytes(bytes)
        };
        let mut order: Vec<usize> = (0..8).collect();
        order.sort_by_key(|at| number(*at));
        for (place, at) in order.into_iter().enumerate() {
            for byte in 0..4 {
                run.has(4 * place + byte, [(4 * at + byte) as u32])?;
            }
        }
        Ok(())
    }),
    ("passed", |run| {
        run.exactly(0, 0..96)?;
        run.exactly(96, 128..144)
    }),
    ("flags", |run| {
        run.has(0, 0..8)?;
        run.has(8, 0..8)?;
        run.has(16, 0..8)?;
        // A branch decides which, and that is no data.
        run.nothing(24..25)
    }),
    ("tables", |run| {
        for n in 0..4 {
            run.has(n, 4..8)?;
        }
        run.nothing(64..80)?;
        let stored = run.heard.addresses.iter().find(|(at, _)| *at >= 64);
        let (_, address) = stored.context("no store by a labelled address")?;
        ensure!(*address == set([9]), "the address depends on {address:?}");
        Ok(())
    }),
    ("strings", |run| {
        run.exactly(0, 0..40)?;
        for n in 0..32 {
            run.just(64 + n, [48 + n as u32 % 8])?;
        }
        for n in 128..144 {
            run.just(n, [60])?;
        }
        // What lies behind the difference was not compared.
        run.has(160, [2])?;
        run.between(160, [2], 0..3)
    }),
    ("bits", |run| {
        run.nothing(0..8)?;
        run.has(8, [0])?;
        run.nothing(16..32)?;
        run.has(64, 4..8)?;
        run.has(72, 8..12)
    }),
    ("leaving", |run| {
        const WRITE: u32 = 1;
        const WRITEV: u32 = 20;
        const SENDTO: u32 = 44;
        const SENDMSG: u32 = 46;
        let mut expected: Vec<Left> = Vec::new();
        let none = BTreeSet::new;
        let buffer: Vec<_> = (0..32)
            .map(|n| match n {
                5..15 => set([n + 5]),
                _ => none(),
            })
            .collect();
        expected.push((WRITE, buffer.clone()));
        expected.push((WRITEV, buffer[..6].to_vec()));
        expected.push((WRITEV, vec![set([40]), set([41])]));
        expected.push((SENDTO, buffer[14..18].to_vec()));
        expected.push((SENDMSG, buffer[..6].to_vec()));
        let shown: Vec<_> = run.heard.left.iter().collect();
        ensure!(
            run.heard.left == expected,
            "what left depends on {shown:?}, not {expected:?}"
        );
        run.nothing(0..4)?;
        run.nothing(4..5)?;
        run.exactly(5, 10..13)
    }),
    ("filed", |run| {
        run.exactly(0, 0..16)?;
        run.exactly(32, 32..40)?;
        run.exactly(40, 8..16)
    }),
    ("interrupted", |run| {
        run.exactly(0, 0..8)?;
        run.exactly(16, 16..32)?;
        ensure!(run.output[32] == 1, "the handler did not run");
        run.nothing(32..33)
    }),
    ("threads", |run| {
        run.exactly(0, 0..16)?;
        run.exactly(16, 32..48)
    }),
    ("forked", |run| {
        run.exactly(0, 0..16)?;
        run.exactly(16, 0..16)?;
        run.exactly(32, 0..8)
    }),
    ("mixed", |run| {
        for n in 0..8 {
            run.has(40 + n, [n as u32, 15 - n as u32])?;
        }
        run.nothing(112..128)
    }),
];

/// These offsets of the input, as sources.
fn set(offsets: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
    offsets.into_iter().map(|offset| offset + 1).collect()
}

impl Followed {
    /// Output byte `at` depends on these offsets of the input, and on nothing else.
    fn just(&self, at: usize, offsets: impl IntoIterator<Item = u32>) -> Result<()> {
        let (sources, expected) = (&self.sources[at], set(offsets));
        ensure!(
            *sources == expected,
            "byte {at} depends on sources {sources:?}, not on {expected:?}"
        );
        Ok(())
    }

    /// The bytes from `at` on depend on these offsets, one each.
    fn exactly(&self, at: usize, offsets: std::ops::Range<u32>) -> Result<()> {
        let mut each = offsets.enumerate();
        each.try_for_each(|(n, offset)| self.just(at + n, [offset]))
    }

    /// Output byte `at` depends on these offsets, perhaps on more.
    fn has(&self, at: usize, offsets: impl IntoIterator<Item = u32>) -> Result<()> {
        let (sources, expected) = (&self.sources[at], set(offsets));
        ensure!(
            expected.is_subset(sources),
            "byte {at} depends on sources {sources:?} only, not on all of {expected:?}"
        );
        Ok(())
    }

    /// It depends on the first, and on nothing but the second.
    fn between(
        &self,
        at: usize,
        least: impl IntoIterator<Item = u32>,
        most: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        self.has(at, least)?;
        let (sources, most) = (&self.sources[at], set(most));
        ensure!(
            sources.is_subset(&most),
            "byte {at} depends on sources {sources:?}, more than {most:?}"
        );
        Ok(())
    }

    /// These depend on nothing.
    fn nothing(&self, bytes: std::ops::Range<usize>) -> Result<()> {
        bytes.into_iter().try_for_each(|at| self.just(at, []))
    }
}

fn flow(case: &str, expect: Expect) -> Result<()> {
    match follow(case, &input())? {
        Some(run) => expect(&run),
        None => Ok(()),
    }
}

/// Three runs, forked one after the other where the program is about to look at its pool: what was
/// executed before is not told, and what the later ones execute has been translated by others.
fn kept(case: &str, expect: Expect) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut session = None;
    for _ in 0..3 {
        let run = follow_in(&scratch, case, &input(), |config, sink| {
            if session.is_none() {
                let world = vec![scratch.path().to_path_buf()];
                session = Some(Session::open(config, StopAt::World(world))?);
            }
            session.as_mut().expect("opened").run(config, sink)
        })?;
        if let Some(run) = run {
            expect(&run)?;
        }
    }
    Ok(())
}

/// Changes a bit of each of the first bytes.
fn changed(case: &str) -> Result<()> {
    const BYTES: usize = 16;
    let input = input();
    let run = follow(case, &input)?.context("it did not run")?;
    let mut seen = 0;
    for byte in 0..BYTES {
        let mut other = input.clone();
        other[byte] ^= 1 << (byte * 5 % 8);
        let scratch = Scratch::new()?;
        let pool = scratch.join("pool");
        other.resize(2 * PAGE, 0);
        fs::write(&pool, other)?;
        // The data flow is that of the first run, so this one needs no tool.
        let status = Command::new(flows()?).arg(&pool).arg(case).status()?;
        ensure!(status.success(), "natively it ended with {status}");
        let output = fs::read(&pool)?;
        for (at, new) in output[PAGE..].iter().enumerate() {
            if *new != run.output[at] {
                seen += 1;
                run.has(at, [byte as u32])
                    .with_context(|| format!("byte {byte} of the input was changed"))?;
            }
        }
    }
    ensure!(seen >= BYTES, "only {seen} bytes of the output changed");
    Ok(())
}

// ── programs with threads ───────────────────────────────────────────────────────────────────────

/// Hands events on as their debug text, and labels everything.
struct Everything {
    follower: Option<Follower>,
    heard: Count,
    events: Vec<String>,
}

#[derive(Default)]
struct Count {
    effects: usize,
    /// The last event, if it is an access: by whom, and to which bytes.
    last: Option<(ThreadId, Range<u64>)>,
    /// Loads that were heard of before their event, or after the next one.
    misplaced: Vec<String>,
}

impl Count {
    fn event(&mut self, event: &Event<'_>) {
        self.last = match event.kind {
            // Of an instruction that reads and writes, only the store is told.
            EventKind::Load(access) | EventKind::Store(access) | EventKind::Rmw(access) => {
                let at = access.addr.0;
                Some((event.thread, at..at + u64::from(access.size)))
            }
            _ => None,
        };
    }
}

impl Observer for Count {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        let (from, to) = (access.address, access.address + access.size as u64);
        let is_last = |(thread, bytes): &(ThreadId, Range<u64>)| {
            *thread == access.thread && bytes.start <= from && to <= bytes.end
        };
        if access.call.is_none() && !self.last.as_ref().is_some_and(is_last) {
            self.misplaced
                .push(format!("{access:x?} behind {:x?}", self.last));
        }
        sources.fill(1);
    }

    fn stores(&mut self, _: &Access, _: &[Label], _: Label, _: &Sets) {
        self.effects += 1;
    }

    fn leaves(&mut self, _: &Access, _: &[Label], _: &Sets) {
        self.effects += 1;
    }
}

impl EventSink for Everything {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.events.push(format!("{event:?}"));
        self.heard.event(event);
        match &mut self.follower {
            Some(follower) => follower.event(event, &mut self.heard),
            None => Ok(()),
        }
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        match &mut self.follower {
            Some(follower) => follower.executed(what, &mut self.heard),
            None => Ok(()),
        }
    }
}

/// A program whose threads race does the same whether it is followed or not.
fn race(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = scratch.join(name);
    let source = layout::workspace().join(format!("tests/race/{name}.c"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-DBUG", "-o"])
        .args([&binary, &source])
        .arg("-lpthread");
    ensure!(compiler.status()?.success(), "cannot compile {name}");
    let run = |is_followed: bool| -> Result<Everything> {
        let pool = scratch.join("pool");
        let _ = fs::remove_file(&pool);
        let mut config = LaunchConfig::new(&binary, [pool.as_os_str()]);
        config.pm_globs = vec![pool.to_string_lossy().into_owned()];
        config.loads = true;
        config.schedule = Some(Schedule::new(StrategyKind::Random, 7));
        config.follow = is_followed;
        config.stdin = Some(fs::File::open("/dev/null")?);
        config.stdout = Some(fs::File::create("/dev/null")?);
        let mut sink = Everything {
            follower: is_followed.then(Follower::new),
            heard: Count::default(),
            events: Vec::new(),
        };
        brownout_host::record(&config, &mut sink)?;
        Ok(sink)
    };
    let (followed, plain) = (run(true)?, run(false)?);
    let follower = followed.follower.as_ref().context("it was followed")?;
    ensure!(follower.given_up() == 0, "{} given up", follower.given_up());
    ensure!(followed.heard.effects > 0, "nothing depends on anything");
    ensure!(
        followed.heard.misplaced.is_empty(),
        "heard of before their event, or after the next one: {:?}",
        followed.heard.misplaced
    );
    let differs = followed
        .events
        .iter()
        .zip(&plain.events)
        .find(|(one, other)| one != other);
    if let Some((one, other)) = differs {
        bail!("followed, it does {one}; else {other}");
    }
    ensure!(
        followed.events.len() == plain.events.len(),
        "{} events if it is followed, else {}",
        followed.events.len(),
        plain.events.len()
    );
    Ok(())
}
