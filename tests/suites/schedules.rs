//! `--schedule`: one thread at a time, and the same list of decisions gives the same run, event for
//! event.
//!
//! | trials | what |
//! |---|---|
//! | `replay::` | each program of `tests/race/replay` under several strategies: what it prints is in the set of its header, and its list gives the same trace, byte for byte |
//! | `debian::` | the same with programs of Debian's, of several processes and threads each |
//! | `deadlock::` | programs that can come to a standstill do under some schedule, and every thread is told |
//! | `library::` | the same with libpmemobj: transactions and allocations of several threads |
//! | `lists::` | lists as arguments and in files |
//! | `refused::` | lists of other programs and of programs that depend on real time, damaged lists and files, unknown strategies |
//! | `said::` | one thread only, and what cannot be scheduled |
//! | `points::` | where a thread can lose its turn does not depend on what the tool has learned so far |
//!
//! `BROWNOUT_SCHEDULES=N` draws N schedules for each program instead of three, and says how long
//! each program took.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_tests::race::{self, Build, ReplayProgram};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, check, layout, tool, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(120);
/// What the tool answers where it cannot run what it was asked to.
const CANNOT_RUN: i32 = 3;
const USAGE: i32 = 2;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("debian::python", python),
        trial("debian::xz", xz),
        trial("debian::redis", redis),
        trial("debian::memcached", memcached),
        trial("deadlock::abba", || deadlock("abba")),
        trial("deadlock::missing_unlock", || deadlock("missing_unlock")),
        trial("library::pmemobj_tx", || library("pmemobj_tx")),
        trial("library::pmemobj_alloc", || library("pmemobj_alloc")),
        trial("lists::printed", printed),
        trial("lists::kept", kept),
        trial("refused::other_program", other_program),
        trial("refused::other_end", other_end),
        trial("refused::real_time", real_time),
        trial("refused::files", files),
        trial("refused::words", words),
        trial("said::one_thread", one_thread),
        trial("said::mixed_semaphores", mixed_semaphores),
        trial("said::killed_owner", killed_owner),
        trial("points::first_touch", first_touch),
    ];
    let programs = race::discover_replay().unwrap_or_else(|error| {
        trials.push(broken("headers", &error));
        Vec::new()
    });
    for program in programs {
        let name = format!("replay::{}", program.name);
        trials.push(trial(name, move || replays(&program)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The schedules that each program is run under.
fn schedules() -> Vec<String> {
    let count = std::env::var("BROWNOUT_SCHEDULES").ok();
    let count = count.and_then(|count| count.parse().ok());
    let names = ["go-on", "random", "pct", "pm", "round-robin", "delay"];
    match count {
        None => ["go-on", "random:1", "pct:2"].map(String::from).to_vec(),
        Some(count) => (0..count)
            .map(|i: usize| format!("{}:{i}", names[i % names.len()]))
            .collect(),
    }
}

/// A run in a folder that is empty each time, and always has the same name: names are in the trace.
/// Its list is in the file with the trace's name and `.list`.
fn record(argv: &[&str], scratch: &Scratch, trace: &str, schedule: &str) -> Result<Outcome> {
    let list = scratch.path().join(format!("{trace}.list"));
    let list = list.to_str().context("a plain path")?;
    let options = ["--schedule", schedule, "--schedule-out", list];
    record_with(argv, scratch, trace, &options)
}

fn record_with(argv: &[&str], scratch: &Scratch, trace: &str, options: &[&str]) -> Result<Outcome> {
    let folder = scratch.path().join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder)?;
    let native = Invocation::new(argv.iter().copied(), &folder).timeout(TIMEOUT);
    let trace = scratch.path().join(trace);
    let options = [&["--loads", "--pm", "notes*"], options].concat();
    tool::record(&native, &trace, &options).run()
}

/// The list that a run has kept, as an argument.
fn list(scratch: &Scratch, trace: &str) -> String {
    let path = scratch.path().join(format!("{trace}.list"));
    format!("list:@{}", path.display())
}

/// A run, and the run that its list gives: the same trace, the same output, the same end.
fn same_again(argv: &[&str], scratch: &Scratch, schedule: &str) -> Result<Outcome> {
    let first = record(argv, scratch, "first.trace", schedule)?;
    let list = list(scratch, "first.trace");
    let second = record(argv, scratch, "second.trace", &list)?;
    let shown = || format!("{schedule}\n{}\n{}", first.describe(), second.describe());
    ensure!(
        first.status == second.status,
        "it ends otherwise\n{}",
        shown()
    );
    ensure!(
        first.stdout == second.stdout,
        "it prints something else\n{}",
        shown()
    );
    let read = |name: &str| fs::read(scratch.path().join(name));
    ensure!(
        read("first.trace")? == read("second.trace")?,
        "the traces differ\n{}",
        shown()
    );
    ensure!(
        read("first.trace.list")? == read("second.trace.list")?,
        "the lists differ\n{}",
        shown()
    );
    Ok(first)
}

/// Does something under each schedule.
fn each_schedule(mut run: impl FnMut(&str) -> Result<()>) -> Result<()> {
    for schedule in &schedules() {
        run(schedule).with_context(|| format!("under --schedule {schedule}"))?;
    }
    Ok(())
}

fn replays(program: &ReplayProgram) -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = program.binary();
    let binary = binary.to_str().context("a plain path")?;
    each_schedule(|schedule| {
        let outcome = same_again(&[binary, "notes"], &scratch, schedule)?;
        ensure!(outcome.status == 0, "{}", outcome.describe());
        let printed = outcome.stdout_text();
        ensure!(
            program.may_print(&printed),
            "a native run does not print {printed:?}"
        );
        Ok(())
    })
}

/// A program of `tests/race` without its bug. It needs a pool, which is the same each time.
fn library(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find(name)?;
    let binary = program.binary(Build::Fixed);
    let binary = binary.to_str().context("a plain path")?;
    let folder = scratch.path();
    let create = Invocation::new([binary, "pool", "create"], folder);
    create.run()?.expect_success("create")?;
    // The pool is copied before the run begins, natively too.
    let script = format!("cp ../pool notes && exec {binary} notes");
    let natively = folder.join("natively");
    fs::create_dir(&natively)?;
    let native = Invocation::shell(&script, &natively)
        .timeout(TIMEOUT)
        .run()?;
    let native = native.expect_success("natively")?;
    each_schedule(|schedule| {
        let outcome = same_again(&["sh", "-c", &script], &scratch, schedule)?;
        ensure!(outcome.status == 0, "{}", outcome.describe());
        ensure!(
            outcome.stdout == native.stdout,
            "natively {:?}, not {:?}",
            native.stdout_text(),
            outcome.stdout_text()
        );
        Ok(())
    })
}

// ---------------------------------------------------------------- programs that we did not write

/// Runs a script of the shell under each schedule. No file of it is persistent memory, so the tool
/// says that nothing was looked at.
fn script(text: &str, expected: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("script.sh");
    fs::write(&path, text)?;
    let path = path.to_str().context("a plain path")?;
    each_schedule(|schedule| {
        let outcome = same_again(&["sh", path], &scratch, schedule)?;
        ensure!(outcome.status == CANNOT_RUN, "{}", outcome.describe());
        let printed = outcome.stdout_text();
        for line in expected {
            ensure!(printed.contains(line), "{printed:?}");
        }
        Ok(())
    })
}

const PYTHON: &str = r#"
import mmap, os, queue, threading, time
fd = os.open("notes", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4096)
notes, items, lock, done = mmap.mmap(fd, 4096), queue.Queue(), threading.Lock(), []
def work(number):
    while (item := items.get()) is not None:
        with lock:
            done.append(item)
            notes[item % 100] = (notes[item % 100] * 3 + number) % 256
        time.sleep(0.001)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for item in range(20): items.put(item)
for _ in threads: items.put(None)
for thread in threads: thread.join(timeout=5)
print(sum(done))
"#;

fn python() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = scratch.path().join("program.py");
    fs::write(&program, PYTHON)?;
    let program = program.to_str().context("a plain path")?;
    each_schedule(|schedule| {
        let outcome = same_again(&["/usr/bin/python3", program], &scratch, schedule)?;
        ensure!(outcome.status == 0, "{}", outcome.describe());
        ensure!(outcome.stdout_text() == "190\n", "{}", outcome.describe());
        Ok(())
    })
}

fn xz() -> Result<()> {
    let text = "head -c 400000 /usr/bin/xz /bin/bash | xz -T4 --block-size=100KiB -0 -c > packed\n\
                xz -dc packed | cksum\nhead -c 400000 /usr/bin/xz /bin/bash | cksum\n";
    let scratch = Scratch::new()?;
    let native = Invocation::shell(text, scratch.path()).run()?;
    let printed = native.stdout_text();
    let lines: Vec<&str> = printed.lines().collect();
    ensure!(lines.len() == 2 && lines[0] == lines[1], "{printed:?}");
    script(text, &[&format!("{}\n{}", lines[0], lines[1])])
}

fn redis() -> Result<()> {
    script(
        "redis-server --port 0 --unixsocket s --save '' --appendonly no --io-threads 2 --dir . > /dev/null &\n\
         until redis-cli -s s ping > /dev/null 2>&1; do sleep 0.01; done\n\
         for i in 1 2 3; do redis-cli -s s incr x; done\n\
         redis-cli -s s shutdown nosave\nwait\n",
        &["1\n2\n3\n"],
    )
}

const MEMCACHED: &str = r#"
memcached -s s -t 4 -u root &
server=$!
until test -S s; do sleep 0.01; done
/usr/bin/python3 -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("s")
for i in range(5):
    s.sendall(b"set k%d 0 0 3\r\nabc\r\nget k%d\r\n" % (i, i))
    print(s.recv(1000))
'
kill $server
wait
"#;

fn memcached() -> Result<()> {
    script(MEMCACHED, &["STORED", "k4"])
}

// ---------------------------------------------------------------- standstill

/// Some schedule brings the wrong build to a standstill; then every thread that waits is told with
/// its stack, and the same list shows it again.
fn deadlock(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find(name)?;
    let binary = program.binary(Build::Bug);
    let binary = binary.to_str().context("a plain path")?;
    let tried = (0..40).map(|seed| match seed % 2 {
        0 => format!("random:{seed}"),
        _ => format!("round-robin:{seed}"),
    });
    for schedule in tried {
        let first = record(&[binary, "notes"], &scratch, "first.trace", &schedule)?;
        let stuck = stuck(&scratch, "first.trace")?;
        if stuck.is_empty() {
            continue;
        }
        ensure!(stuck.len() > 1, "only one waits: {stuck:#?}");
        ensure!(first.status != 0, "{}", first.describe());
        let list = list(&scratch, "first.trace");
        record(&[binary, "notes"], &scratch, "second.trace", &list)?;
        let again = self::stuck(&scratch, "second.trace")?;
        ensure!(again == stuck, "{again:#?} instead of {stuck:#?}");
        return Ok(());
    }
    anyhow::bail!("no schedule shows it")
}

/// Where threads wait for each other, as the trace has it.
fn stuck(scratch: &Scratch, trace: &str) -> Result<Vec<String>> {
    let trace = scratch.path().join(trace);
    let dump = tool::trace("dump", &trace, &[], scratch.path()).run()?;
    let text = dump.stdout_text();
    let lines = text.lines().filter(|line| line.contains(" stuck "));
    Ok(lines.map(str::to_owned).collect())
}

// ---------------------------------------------------------------- what is refused

fn replay_binary(name: &str) -> Result<String> {
    let binary = race::find_replay(name)?.binary();
    Ok(binary.to_str().context("a plain path")?.to_owned())
}

fn expect_refused(outcome: &Outcome, status: i32, what: &str) -> Result<()> {
    ensure!(
        outcome.status == status && outcome.stderr_text().contains(what),
        "not refused with {status} and {what:?}\n{}",
        outcome.describe()
    );
    Ok(())
}

/// A list is never followed silently into another run.
fn other_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let (mutexes, rwlocks) = (replay_binary("mutexes")?, replay_binary("rwlocks")?);
    record(&[&mutexes, "notes"], &scratch, "t", "random:1")?;
    let list = list(&scratch, "t");
    let other = record(&[&rwlocks, "notes"], &scratch, "other", &list)?;
    expect_refused(&other, CANNOT_RUN, "belongs to another run: at decision")?;
    // `check` does not judge it either.
    let native = Invocation::new([rwlocks.as_str(), "notes"], scratch.path());
    let checked = tool::check(&native, &["--pm", "notes*", "--schedule", &list]).run()?;
    expect_refused(&checked, CANNOT_RUN, "belongs to another run")
}

/// Nor is one that has ended, or has no decisions at all.
fn other_end() -> Result<()> {
    let scratch = Scratch::new()?;
    let (mutexes, rwlocks) = (replay_binary("mutexes")?, replay_binary("rwlocks")?);
    record(&[&mutexes, "notes"], &scratch, "random", "random:1")?;
    record(&[&mutexes, "notes"], &scratch, "go-on", "go-on")?;
    let short = record(&["true"], &scratch, "t", &list(&scratch, "random"))?;
    expect_refused(&short, CANNOT_RUN, "this one ended before the last")?;
    let go_on = list(&scratch, "go-on");
    let otherwise = record(&[&rwlocks, "notes"], &scratch, "t", &go_on)?;
    expect_refused(&otherwise, CANNOT_RUN, "after its last decision")?;
    let same = record(&[&mutexes, "notes"], &scratch, "t", &go_on)?;
    same.expect_success("the same program")?;
    Ok(())
}

/// A program of `tests/race/unscheduled`.
fn unscheduled(scratch: &Scratch, name: &str) -> Result<String> {
    let source = layout::workspace().join(format!("tests/race/unscheduled/{name}.c"));
    let binary = check::compile(&source, scratch.join(name), &["-O2"])?;
    Ok(binary.to_str().context("a plain path")?.to_owned())
}

/// A program that looks at a clock that nobody controls is told so. (One that asks the usual ones,
/// and sleeps, is `replay::clocks`.)
fn real_time() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = unscheduled(&scratch, "uptime")?;
    let mut last = None;
    // By chance it may do the same again.
    for _ in 0..3 {
        record(&[&binary, "notes"], &scratch, "t", "random:1")?.expect_success("first")?;
        let again = record(&[&binary, "notes"], &scratch, "again", &list(&scratch, "t"))?;
        if again.status != 0 {
            return expect_refused(&again, CANNOT_RUN, "depends on real time");
        }
        last = Some(again);
    }
    anyhow::bail!(
        "it is never refused: {:?}",
        last.map(|last| last.describe())
    )
}

/// Files that are no lists, and how that is said.
fn files() -> Result<()> {
    let scratch = Scratch::new()?;
    let mutexes = replay_binary("mutexes")?;
    record(&[&mutexes, "notes"], &scratch, "t", "random:1")?;
    let whole = fs::read_to_string(scratch.join("t.list"))?;
    let path = scratch.join("damaged");
    let damaged = format!("list:@{}", path.display());
    let refused = |text: &str, what: &str| -> Result<()> {
        fs::write(&path, text)?;
        let outcome = record(&[&mutexes, "notes"], &scratch, "other", &damaged)?;
        expect_refused(&outcome, USAGE, what)
    };
    refused("", "holds no list")?;
    refused("random:1\n", "holds no list")?;
    refused(&whole[..whole.len() / 2], "damaged or not whole")?;
    refused(&whole.replace('A', "B"), "damaged or not whole")?;
    fs::remove_file(&path)?;
    let missing = record(&[&mutexes, "notes"], &scratch, "other", &damaged)?;
    expect_refused(&missing, USAGE, "cannot read")?;
    ensure!(!scratch.join("other").exists(), "something was recorded");
    // Where a list cannot be written, that is said before the program runs; and nothing is left
    // where there was no run.
    let nowhere = ["--schedule", "go-on", "--schedule-out", "no/such/folder"];
    let outcome = record_with(&[&mutexes, "notes"], &scratch, "other", &nowhere)?;
    expect_refused(&outcome, USAGE, "cannot write the schedule")?;
    let outcome = record(&["./no-such-program"], &scratch, "other", "go-on")?;
    ensure!(outcome.status != 0 && !scratch.join("other.list").exists());
    Ok(())
}

// ---------------------------------------------------------------- lists

/// Without a file the list is printed, and it is an argument.
fn printed() -> Result<()> {
    let scratch = Scratch::new()?;
    let mutexes = replay_binary("mutexes")?;
    let first = record_with(
        &[&mutexes, "notes"],
        &scratch,
        "first",
        &["--schedule", "random:1"],
    )?;
    let text = first.stderr_text();
    let list = text.split("the same run again: --schedule ").nth(1);
    let list = list.with_context(|| first.describe())?.lines().next();
    let list = list.context("an empty line")?;
    ensure!(list.starts_with("list:") && list.len() < 5000, "{list}");
    record_with(
        &[&mutexes, "notes"],
        &scratch,
        "second",
        &["--schedule", list],
    )?;
    ensure!(fs::read(scratch.join("first"))? == fs::read(scratch.join("second"))?);
    Ok(())
}

/// A file keeps what it has until there is something better; then it says how to use it.
fn kept() -> Result<()> {
    let scratch = Scratch::new()?;
    let mutexes = replay_binary("mutexes")?;
    fs::write(
        scratch.join("t.list"),
        "what was there before, which is longer than any list ".repeat(100),
    )?;
    let outcome = record(&[&mutexes, "notes"], &scratch, "t", "random:1")?;
    let list = list(&scratch, "t");
    ensure!(
        outcome
            .stderr_text()
            .contains(&format!("the same run again: --schedule {list}")),
        "{}",
        outcome.describe()
    );
    let before = fs::read(scratch.join("t.list"))?;
    ensure!(record(&["./no-such-program"], &scratch, "t", "go-on")?.status != 0);
    ensure!(fs::read(scratch.join("t.list"))? == before, "it is gone");
    Ok(())
}

// ---------------------------------------------------------------- what is said

fn one_thread() -> Result<()> {
    let scratch = Scratch::new()?;
    for (schedule, name) in [("random:1", "t"), ("pct:2", "t")] {
        let outcome = record(&["sh", "-c", "echo word"], &scratch, name, schedule)?;
        let text = outcome.stderr_text();
        ensure!(
            text.contains("nothing to schedule"),
            "{}",
            outcome.describe()
        );
        ensure!(outcome.stdout_text() == "word\n", "{}", outcome.describe());
    }
    // Two threads, one after the other, are another matter.
    let mutexes = replay_binary("mutexes")?;
    let outcome = record(&[&mutexes, "notes"], &scratch, "t", "go-on")?;
    ensure!(
        !outcome.stderr_text().contains("nothing to schedule"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// A wait that only the kernel can end is noted, and works.
fn mixed_semaphores() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = unscheduled(&scratch, "mixed_semaphores")?;
    let outcome = record(&[&binary, "notes"], &scratch, "t", "random:1")?;
    ensure!(
        outcome.status == 0 && outcome.stdout_text() == "done\n",
        "{}",
        outcome.describe()
    );
    ensure!(
        outcome.stderr_text().contains("which is not scheduled"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// Natively a robust lock tells that its owner was killed. Where that is not so, nobody calls it a
/// deadlock.
fn killed_owner() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = unscheduled(&scratch, "killed_owner")?;
    let native = Invocation::new([binary.as_str(), "notes"], scratch.path()).run()?;
    let native = native.expect_success("natively")?;
    ensure!(
        native.stdout_text() == "inherited 1\n",
        "{}",
        native.describe()
    );
    let outcome = record(&[&binary, "notes"], &scratch, "t", "go-on")?;
    expect_refused(&outcome, CANNOT_RUN, "held a robust lock")
}

// ---------------------------------------------------------------- points

/// A locked instruction is a point, and so is an access to persistent memory. One that turns out to
/// be both is still one.
fn first_touch() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = unscheduled(&scratch, "first_touch")?;
    let points = |mode: &str| -> Result<String> {
        let outcome = record(&[&binary, "notes", mode], &scratch, "t", "go-on")?;
        let outcome = outcome.expect_success(mode)?;
        let text = outcome.stderr_text();
        let points = text.split("schedule: ").nth(1).context("no schedule")?;
        Ok(points.split(' ').next().unwrap_or_default().to_owned())
    };
    let (once, again) = (points("once")?, points("loop")?);
    ensure!(
        once == again,
        "{once} points, and {again} where each is passed again"
    );
    Ok(())
}

fn words() -> Result<()> {
    let scratch = Scratch::new()?;
    let refused = |schedule: &str, what: &str| -> Result<()> {
        let outcome = record(&["true"], &scratch, "t", schedule)?;
        ensure!(
            outcome.status == USAGE && outcome.stderr_text().contains(what),
            "{schedule}: {}",
            outcome.describe()
        );
        Ok(())
    };
    refused("list:AAAA", "no list")?;
    refused("fast", "round-robin")?;
    refused("pct:much", "no number")?;
    ensure!(!Path::new("t").exists());
    Ok(())
}
