//! `--schedule`: one thread at a time, and the same list of decisions gives the same run, event for event.
//!
//! | trials | what |
//! |---|---|
//! | `replay::` | each program of `tests/race/replay` under several strategies: what it prints is in the set of its header, and its list gives the same trace, byte for byte |
//! | `debian::` | the same with programs of Debian's, of several processes and threads each |
//! | `deadlock::` | programs that can come to a standstill do under some schedule, and every thread is told |
//! | `refused::` | lists of other programs, damaged lists, unknown strategies |
//!
//! `BROWNOUT_SCHEDULES=N` draws N schedules for each program instead of three.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_tests::race::{self, Build, ReplayProgram};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, tool, trial};
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
        trial("refused::other_program", other_program),
        trial("refused::words", words),
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
fn record(argv: &[&str], scratch: &Scratch, trace: &str, schedule: &str) -> Result<Outcome> {
    let folder = scratch.path().join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder)?;
    let native = Invocation::new(argv.iter().copied(), &folder).timeout(TIMEOUT);
    let trace = scratch.path().join(trace);
    let options = ["--loads", "--pm", "notes*", "--schedule", schedule];
    tool::record(&native, &trace, &options).run()
}

/// The list that a scheduled run prints; going on without interruption has none.
fn list(outcome: &Outcome) -> Result<String> {
    let text = outcome.stderr_text();
    let line = text.lines().find(|line| line.contains("schedule: "));
    let line = line.with_context(|| format!("no schedule\n{}", outcome.describe()))?;
    let list = line.split("--schedule ").nth(1).unwrap_or("go-on");
    Ok(list.trim_end_matches(')').to_owned())
}

/// A run, and the run that its list gives: the same trace, the same output, the same end.
fn same_again(argv: &[&str], scratch: &Scratch, schedule: &str) -> Result<Outcome> {
    let first = record(argv, scratch, "first.trace", schedule)?;
    let list = list(&first)?;
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
    Ok(first)
}

fn replays(program: &ReplayProgram) -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = program.binary();
    let binary = binary.to_str().context("a plain path")?;
    for schedule in schedules() {
        let outcome = same_again(&[binary, "notes"], &scratch, &schedule)?;
        ensure!(outcome.status == 0, "{schedule}\n{}", outcome.describe());
        let printed = outcome.stdout_text();
        ensure!(
            program.may_print(&printed),
            "{schedule}: a native run does not print {printed:?}"
        );
    }
    Ok(())
}

// ---------------------------------------------------------------- programs that we did not write

/// Runs a script of the shell under each schedule. No file of it is persistent memory, so the tool says that nothing was looked at.
fn script(text: &str, expected: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("script.sh");
    fs::write(&path, text)?;
    let path = path.to_str().context("a plain path")?;
    for schedule in schedules() {
        let outcome = same_again(&["sh", path], &scratch, &schedule)?;
        ensure!(outcome.status == CANNOT_RUN, "{}", outcome.describe());
        let printed = outcome.stdout_text();
        for line in expected {
            ensure!(printed.contains(line), "{schedule}: {printed:?}");
        }
    }
    Ok(())
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
    for schedule in schedules() {
        let outcome = same_again(&["/usr/bin/python3", program], &scratch, &schedule)?;
        ensure!(outcome.status == 0, "{schedule}\n{}", outcome.describe());
        ensure!(outcome.stdout_text() == "190\n", "{}", outcome.describe());
    }
    Ok(())
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

/// Some schedule brings the wrong build to a standstill; then every thread that waits is told with its stack, and the same list shows it again.
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
        let list = list(&first)?;
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

/// A list is never followed silently into another run.
fn other_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let path = |name: &str| -> Result<String> {
        let binary = race::find_replay(name)?.binary();
        Ok(binary.to_str().context("a plain path")?.to_owned())
    };
    let first = record(&[&path("mutexes")?, "notes"], &scratch, "t", "random:1")?;
    let list = list(&first)?;
    ensure!(list.starts_with("list:"), "{list}");
    let other = record(&[&path("rwlocks")?, "notes"], &scratch, "t", &list)?;
    ensure!(other.status == CANNOT_RUN, "{}", other.describe());
    ensure!(
        other.stderr_text().contains("belongs to another run"),
        "{}",
        other.describe()
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
