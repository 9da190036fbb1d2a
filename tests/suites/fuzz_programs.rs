//! The programs in `tests/fuzz` are what their headers say, before anything fuzzes them.
//!
//! | trials | what |
//! |---|---|
//! | `seed::` | the seed's commands end well on every build, also when the pool is opened again |
//! | `trigger::` | the trigger shows the bug of the wrong build, and nothing of its twin |
//! | `crash::` | after power failures all over random commands, and in some of the recoveries, the twin prints what was there before a command or after it |
//! | `check::` | `brownout check` reports what the header says of the wrong build, and nothing of the twin |
//! | `server::` | the same for the program that takes its commands from sockets |
//!
//! All but `check::` need no tool: a build with `-DCRASH` forgets what was not written back.
//! `canary` shows that the judgement of `crash::` can fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Finding, Report};
use brownout_random::Random;
use brownout_tests::fuzz::{self, Build, FuzzProgram, Run, Shows};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, check, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(60);
/// What a program of these ends with when the power fails.
const POWER_FAILED: i32 = 99;
/// Random commands of one `crash::` trial. 30 fill and empty the smaller structures.
const COMMANDS: usize = 30;
/// Crash points of one `crash::` trial, spread over the run.
const POINTS: u32 = 60;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let programs = fuzz::discover().unwrap_or_else(|error| {
        trials.push(broken("headers", &error));
        Vec::new()
    });
    for program in programs {
        let mut add = |kind: &str, build: Build, test: fn(&FuzzProgram, Build) -> Result<()>| {
            let name = format!("{kind}::{}::{}", program.name, build.name());
            let program = program.clone();
            trials.push(trial(name, move || test(&program, build)));
        };
        if program.server {
            for build in program.builds() {
                add("server::tcp", build, serves_tcp);
                add("server::unix", build, serves_unix);
            }
            add("server::crash", Build::FixedCrash, server_crash);
            add("server::trigger", Build::FixedCrash, server_trigger);
            add("server::trigger", Build::BugCrash, server_trigger);
            add("server::check", Build::Fixed, server_check);
            add("server::check", Build::Bug, server_check);
            continue;
        }
        for build in program.builds() {
            add("seed", build, seed);
        }
        add("crash", Build::FixedCrash, crash);
        add("check", Build::Fixed, checked);
        if !program.clean {
            add("trigger", Build::FixedCrash, trigger);
            add("trigger", Build::BugCrash, trigger);
        }
        if program.rule.is_some() {
            add("check", Build::Bug, checked);
        }
    }
    trials.push(trial("canary", canary));
    libtest_mimic::run(&arguments, trials).exit();
}

fn binary(program: &FuzzProgram, build: Build) -> Result<PathBuf> {
    let path = program.binary(build);
    let shown = path.display();
    ensure!(
        path.is_file(),
        "{shown} is missing: run `cargo xtask build`"
    );
    Ok(path)
}

/// Runs these commands on the pool of this folder.
fn execute(program: &FuzzProgram, build: Build, run: &Run, scratch: &Scratch) -> Result<Outcome> {
    invocation(program, build, run, scratch)?.run()
}

fn invocation(
    program: &FuzzProgram,
    build: Build,
    run: &Run,
    scratch: &Scratch,
) -> Result<Invocation> {
    let input = scratch.join("input");
    std::fs::write(&input, run.input())?;
    let argv = [
        binary(program, build)?.into_os_string(),
        scratch.join("pool").into(),
    ];
    let invocation = Invocation::new(argv, scratch.path())
        .stdin(&input)
        .timeout(TIMEOUT);
    Ok(match run.crash_at {
        Some(at) => invocation.env("CRASH_AT", &at.to_string()),
        None => invocation,
    })
}

fn commands(commands: &[String]) -> Run {
    Run {
        commands: commands.to_vec(),
        crash_at: None,
    }
}

/// What is in the pool, as the program prints it.
fn content(program: &FuzzProgram, build: Build, scratch: &Scratch) -> Result<String> {
    let outcome = execute(program, build, &commands(&["p".to_owned()]), scratch)?;
    Ok(outcome.expect_success("printing")?.stdout_text())
}

fn seed(program: &FuzzProgram, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    for _ in 0..2 {
        execute(program, build, &program.seed, &scratch)?.expect_success("the seed")?;
    }
    Ok(())
}

fn trigger(program: &FuzzProgram, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let (last, before) = program.trigger.split_last().context("no trigger")?;
    for run in before {
        let outcome = execute(program, build, run, &scratch)?;
        // The twin may have written back less by then, or have ended.
        let expected: &[i32] = match (run.crash_at, build) {
            (None, _) => &[0],
            (Some(_), Build::BugCrash) => &[POWER_FAILED],
            (Some(_), _) => &[POWER_FAILED, 0],
        };
        ensure!(
            expected.contains(&outcome.status),
            "{run:?}\n{}",
            outcome.describe()
        );
    }
    let outcome = execute(program, build, last, &scratch)?;
    let shown = match outcome.status {
        0 => None,
        1 => Some(Shows::Exit),
        status if status > 128 => Some(Shows::Signal),
        _ => bail!("an end that means nothing\n{}", outcome.describe()),
    };
    let expected = program.shows.filter(|_| build == Build::BugCrash);
    ensure!(
        shown == expected,
        "{expected:?} expected\n{}",
        outcome.describe()
    );
    Ok(())
}

/// Random commands of the kinds that the header has, with small numbers.
fn random_commands(program: &FuzzProgram, random: &mut Random) -> Vec<String> {
    let runs = program.trigger.iter().chain([&program.seed]);
    let known: Vec<&String> = runs
        .flat_map(|run| &run.commands)
        .filter(|c| *c != "p")
        .collect();
    (0..COMMANDS)
        .map(|_| {
            let mut words = random.pick(&known).split(' ');
            let letter = words.next().unwrap_or_default().to_owned();
            words.fold(letter, |line, _| format!("{line} {}", random.below(10)))
        })
        .collect()
}

fn crash(program: &FuzzProgram, build: Build) -> Result<()> {
    let mut random = Random::new(13);
    for round in 0..2 {
        let script = random_commands(program, &mut random);
        sweep(program, build, &script).with_context(|| format!("round {round}: {script:?}"))?;
    }
    Ok(())
}

/// Lets the power fail all over a run, and all over some of the recoveries.
fn sweep(program: &FuzzProgram, build: Build, script: &[String]) -> Result<()> {
    // What is there after so many commands, on a machine that forgets nothing.
    let mut contents = Vec::new();
    for count in 0..=script.len() {
        let scratch = Scratch::new()?;
        let outcome = execute(program, Build::Fixed, &commands(&script[..count]), &scratch)?;
        outcome.expect_success("an undisturbed run")?;
        contents.push(content(program, Build::Fixed, &scratch)?);
    }
    let fails_at = |at: u32, scratch: &Scratch| -> Result<bool> {
        let run = Run {
            commands: script.to_vec(),
            crash_at: Some(at),
        };
        let outcome = execute(program, build, &run, scratch)?;
        ensure!(
            [0, POWER_FAILED].contains(&outcome.status),
            "{}",
            outcome.describe()
        );
        Ok(outcome.status == POWER_FAILED)
    };
    // How many write-backs there are: double, then halve.
    let mut all = 1;
    while fails_at(all, &Scratch::new()?)? {
        all *= 2;
    }
    let step = (all / POINTS).max(1);
    let mut done = 0;
    for at in (1..all).step_by(step as usize) {
        let scratch = Scratch::new()?;
        if !fails_at(at, &scratch)? {
            break;
        }
        // And up to twice more, early in what follows, which is recovery if there is any.
        for _ in 0..at % 3 {
            let run = Run {
                commands: Vec::new(),
                crash_at: Some(1 + at / 3 % 4),
            };
            let outcome = execute(program, build, &run, &scratch)?;
            ensure!(
                [0, POWER_FAILED].contains(&outcome.status),
                "{}",
                outcome.describe()
            );
        }
        let found = content(program, build, &scratch).with_context(|| format!("point {at}"))?;
        // Later failures never show less than earlier ones did.
        let fits = contents[done..]
            .iter()
            .position(|content| *content == found);
        match fits {
            Some(more) => done += more,
            None => bail!(
                "after write-back {at}, {done} commands or more are done, but there is\n{found}"
            ),
        }
    }
    Ok(())
}

/// The wrong builds do not pass: one whose pool is refused, and one that loses what it has
/// acknowledged.
fn canary() -> Result<()> {
    let program = fuzz::find("split_separator")?;
    let script = program.trigger[0].commands.clone();
    sweep(&program, Build::FixedCrash, &script).context("the twin is right")?;
    ensure!(
        sweep(&program, Build::BugCrash, &script).is_err(),
        "a store that is never written back was not missed"
    );
    ensure!(
        server_crash(&fuzz::find("server")?, Build::BugCrash).is_err(),
        "an entry that is never written back was not missed"
    );
    Ok(())
}

/// The findings that matter: of the fixed twin all, of the wrong build those that are no
/// consequence.
fn judge(program: &FuzzProgram, build: Build, report: &Report) -> Result<()> {
    ensure!(
        report.verdict != brownout_findings::Verdict::NothingChecked,
        "no persistent memory was seen"
    );
    let shown: Vec<String> = report
        .findings
        .iter()
        .map(|f| format!("{}: {}", f.rule, f.message))
        .collect();
    match &program.rule {
        Some((rule, lines)) if build == Build::Bug => {
            let here = |finding: &Finding| {
                finding.rule == *rule
                    && finding.events.first().is_some_and(|event| {
                        event.stack.iter().any(|frame| {
                            let file = frame.file.as_ref().map(Path::new);
                            file.and_then(Path::file_name) == program.source.file_name()
                                && frame.line.is_some_and(|line| lines.contains(&line))
                        })
                    })
            };
            ensure!(
                report.findings.iter().any(here),
                "no {rule} at {lines:?}: {shown:#?}"
            );
            let else_where = report.findings.iter().any(|f| f.rule == *rule && !here(f));
            ensure!(!else_where, "more than was planted: {shown:#?}");
        }
        _ => ensure!(
            report.findings.is_empty(),
            "nothing is wrong here: {shown:#?}"
        ),
    }
    Ok(())
}

/// What `brownout check` makes of the commands of the trigger's first run, or of random ones.
fn checked(program: &FuzzProgram, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let run = match program.trigger.first() {
        Some(first) => commands(&first.commands),
        None => commands(&random_commands(program, &mut Random::new(5))),
    };
    let pool = scratch.join("pool");
    let native = invocation(program, build, &run, &scratch)?;
    let options = ["--fail-on", "never", "--pm", &pool.to_string_lossy()];
    judge(program, build, &check::run(&native, &options)?.report)
}

/// A server that was started, and how to reach it. It is gone when this is.
struct Server {
    child: Child,
    address: Address,
    /// Nobody reads on, but what it prints must not fail.
    _output: BufReader<ChildStdout>,
}

enum Address {
    Port(u16),
    Path(PathBuf),
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Server {
    fn start(invocation: &Invocation, address: Option<PathBuf>) -> Result<Server> {
        let mut command = invocation.command()?;
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start it")?;
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let read = output.read_line(&mut line);
        let address = match address {
            Some(path) => Ok(Address::Path(path)),
            None => line
                .trim()
                .strip_prefix("listening on ")
                .and_then(|port| port.parse().ok())
                .map(Address::Port)
                .with_context(|| format!("no port in {line:?} ({read:?})")),
        };
        // The child must not outlive a failure.
        match address {
            Ok(address) => Ok(Server {
                child,
                address,
                _output: output,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn connect(&self) -> Result<BufReader<Box<dyn Stream>>> {
        let start = Instant::now();
        loop {
            let stream: std::io::Result<Box<dyn Stream>> = match &self.address {
                Address::Port(port) => {
                    TcpStream::connect(("127.0.0.1", *port)).and_then(|stream| {
                        stream.set_read_timeout(Some(TIMEOUT))?;
                        Ok(Box::new(stream) as Box<dyn Stream>)
                    })
                }
                Address::Path(path) => UnixStream::connect(path).and_then(|stream| {
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }),
            };
            match stream {
                Ok(stream) => return Ok(BufReader::new(stream)),
                // Under the tool it may take a while until it listens.
                Err(error) if start.elapsed() > TIMEOUT => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Has it end, and waits.
    fn shut_down(mut self) -> Result<i32> {
        self.connect()?.get_mut().write_all(b"shutdown\n")?;
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code().unwrap_or(-1));
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("it does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a command, and reads the answer.
fn ask(client: &mut BufReader<Box<dyn Stream>>, command: &str) -> Result<String> {
    client
        .get_mut()
        .write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = String::new();
    client.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn start(program: &FuzzProgram, build: Build, scratch: &Scratch, unix: bool) -> Result<Server> {
    let socket = scratch.join("socket");
    let place = if unix {
        format!("unix:{}", socket.display())
    } else {
        "0".to_owned()
    };
    Server::start(
        &server_invocation(program, build, scratch, &place)?,
        unix.then_some(socket),
    )
}

fn server_invocation(
    program: &FuzzProgram,
    build: Build,
    scratch: &Scratch,
    place: &str,
) -> Result<Invocation> {
    let argv = [
        binary(program, build)?.into_os_string(),
        scratch.join("pool").into(),
        place.into(),
    ];
    Ok(Invocation::new(argv, scratch.path()))
}

fn serves_tcp(program: &FuzzProgram, build: Build) -> Result<()> {
    serves(program, build, false)
}

fn serves_unix(program: &FuzzProgram, build: Build) -> Result<()> {
    serves(program, build, true)
}

/// Every command, by two clients at once, and again after a restart. Both builds give the same
/// answers.
fn serves(program: &FuzzProgram, build: Build, unix: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let server = start(program, build, &scratch, unix)?;
    let (mut one, mut two) = (server.connect()?, server.connect()?);
    let mut dialogue = |turns: &[(bool, &str, &str)]| -> Result<()> {
        for (first, command, expected) in turns {
            let answer = ask(if *first { &mut one } else { &mut two }, command)?;
            ensure!(
                answer == *expected,
                "{command}: {answer:?} instead of {expected:?}"
            );
        }
        Ok(())
    };
    dialogue(&[
        (true, "get a", "none"),
        (true, "set a 5", "ok"),
        (false, "get a", "5"),
        (false, "incr a", "6"),
        (true, "incr n", "1"),
        (true, "incr n", "2"),
        (false, "set b text", "ok"),
        (false, "del b", "ok"),
        (true, "del b", "none"),
        (true, "set c", "error"),
        (true, "get keythatismuchtoolongforthis", "error"),
        (true, "nonsense", "error"),
    ])?;
    // Half a line, then the rest, then two at once.
    one.get_mut().write_all(b"get ")?;
    one.get_mut().write_all(b"a\nget a\n")?;
    let mut lines = String::new();
    one.read_line(&mut lines)?;
    one.read_line(&mut lines)?;
    ensure!(lines == "6\r\n6\r\n", "{lines:?}");
    drop(two);
    ensure!(server.shut_down()? == 0, "it ended badly");
    let server = start(program, build, &scratch, unix)?;
    let mut client = server.connect()?;
    let answer = ask(&mut client, "get a")?;
    ensure!(answer == "6", "after a restart: {answer:?}");
    ensure!(server.shut_down()? == 0, "it ended badly");
    Ok(())
}

/// What was acknowledged is lost by the wrong build only.
fn server_trigger(program: &FuzzProgram, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut answers = Vec::new();
    for run in &program.trigger {
        let server = start(program, build, &scratch, true)?;
        let mut client = server.connect()?;
        for command in &run.commands {
            answers.push(ask(&mut client, command)?);
        }
        ensure!(server.shut_down()? == 0, "it ended badly");
    }
    let expected = if build == Build::BugCrash {
        ["1", "none"]
    } else {
        ["1", "1"]
    };
    ensure!(answers == expected, "{answers:?} instead of {expected:?}");
    Ok(())
}

/// Every key and its value, as the server has them after it was started.
fn server_content(program: &FuzzProgram, build: Build, scratch: &Scratch) -> Result<Vec<String>> {
    let server = start(program, build, scratch, true)?;
    let mut client = server.connect()?;
    let mut keys = vec![ask(&mut client, "keys")?];
    while keys.last().is_some_and(|key| key != ".") {
        let mut line = String::new();
        ensure!(
            client.read_line(&mut line)? > 0,
            "the list of keys has no end"
        );
        keys.push(line.trim_end().to_owned());
    }
    keys.pop();
    keys.sort();
    let mut content = Vec::new();
    for key in keys {
        content.push(format!(
            "{key} = {}",
            ask(&mut client, &format!("get {key}"))?
        ));
    }
    ensure!(server.shut_down()? == 0, "it ended badly");
    Ok(content)
}

/// The power fails at each write-back: what was acknowledged is there, and at most one command
/// more.
fn server_crash(program: &FuzzProgram, build: Build) -> Result<()> {
    let script = [
        "set a 1", "set b 2", "set a 3", "incr a", "incr n", "del b", "incr n", "set b 4", "del a",
    ];
    // On a machine that forgets nothing.
    let mut contents = Vec::new();
    for count in 0..=script.len() {
        let scratch = Scratch::new()?;
        let server = start(program, Build::Fixed, &scratch, true)?;
        let mut client = server.connect()?;
        for command in &script[..count] {
            ask(&mut client, command)?;
        }
        ensure!(server.shut_down()? == 0, "it ended badly");
        contents.push(server_content(program, Build::Fixed, &scratch)?);
    }
    // The first write-back is that of creation, before it listens.
    for at in 2.. {
        let scratch = Scratch::new()?;
        let socket = scratch.join("socket");
        let place = format!("unix:{}", socket.display());
        let invocation = server_invocation(program, build, &scratch, &place)?;
        let mut server = Server::start(&invocation.env("CRASH_AT", &at.to_string()), Some(socket))?;
        let mut client = server.connect()?;
        // An answer that is empty, or an error, is the end of the server.
        let answered =
            |command: &&&str| ask(&mut client, command).is_ok_and(|answer| !answer.is_empty());
        let acknowledged = script.iter().take_while(answered).count();
        if acknowledged == script.len() {
            ensure!(
                at > 12,
                "only {at} write-backs for {} commands",
                script.len()
            );
            return Ok(());
        }
        let status = server.child.wait()?;
        ensure!(status.code() == Some(POWER_FAILED), "{status}");
        let found = server_content(program, build, &scratch)?;
        let legal = &contents[acknowledged..=acknowledged + 1];
        ensure!(
            legal.contains(&found),
            "write-back {at}: {found:?} instead of one of {legal:?}"
        );
    }
    Ok(())
}

fn server_check(program: &FuzzProgram, build: Build) -> Result<()> {
    brownout_tests::tool::expect_built()?;
    let scratch = Scratch::new()?;
    let (pool, socket) = (scratch.join("pool"), scratch.join("socket"));
    let argv = [
        binary(program, build)?.into_os_string(),
        pool.clone().into(),
        format!("unix:{}", socket.display()).into(),
    ];
    let report = scratch.join("report.json");
    let (pool, out) = (pool.to_string_lossy(), report.to_string_lossy());
    let options = [
        "--fail-on",
        "never",
        "--format",
        "json",
        "-o",
        &*out,
        "--pm",
        &*pool,
    ];
    let tool = check::command(&Invocation::new(argv, scratch.path()), &options);
    let server = Server::start(&tool, Some(socket))?;
    let mut client = server.connect()?;
    let all = [&program.seed, &program.trigger[0]];
    for command in all.iter().flat_map(|run| &run.commands) {
        ask(&mut client, command)?;
    }
    drop(client);
    ensure!(server.shut_down()? == 0, "check ended badly");
    let text = std::fs::read(&report).context("no report was written")?;
    judge(program, build, &serde_json::from_slice(&text)?)
}
