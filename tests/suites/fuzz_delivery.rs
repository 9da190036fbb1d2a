//! `brownout fuzz` on programs that do not read their standard input: the input is in a file, an
//! argument, or comes over a socket.
//!
//! Campaigns are limited by executions, not by time, so that a busy machine reaches the same.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Report, Severity};
use brownout_fuzz::{Case, Delivery, Endpoint, Judge, Kept, Runner, Target, Workshop};
use brownout_images::{Content, ImageId, Origin, View, lay};
use brownout_tests::fuzz::{self, Build, FuzzProgram};
use brownout_tests::{Invocation, Outcome, Scratch, layout, trial};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(300);

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = vec![
        trial("file::planted", || planted(&["@@"], "3000", "1000")),
        trial("argument::planted", || {
            planted(&["-c", "@ARG@"], "2000", "150")
        }),
        trial(
            "file::kept_programs_show_what_launched_ones_show",
            warm_is_cold,
        ),
        trial("file::recovery_is_told_from_refusal", refusals),
        trial("file::commands_make_images_again", || exports(&["@@"])),
        trial("argument::commands_make_images_again", || {
            exports(&["-c", "@ARG@"])
        }),
        trial("file::runs_natively", || natively(&["@@"])),
        trial("argument::runs_natively", || natively(&["-c", "@ARG@"])),
        trial("what_cannot_be_done_is_said", refuses),
        trial("socket::tcp_epoll", || {
            server(&["7777", "epoll"], &["--socket"])
        }),
        trial("socket::unix_accept", || {
            server(&["unix:place", "accept"], &["--socket", "unix:place"])
        }),
        trial("socket::one_thread_gives_one_run", same_runs),
        trial("socket::servers_that_end_badly", endings),
        trial("socket::commands_make_images_again", || {
            exports_of_server(&["7778", "poll"])
        }),
        trial("socket::redis", || {
            let config = [
                "--save",
                "",
                "--appendonly",
                "no",
                "--port",
                "7777",
                "--dir",
                ".",
            ];
            debian("redis-server", &config, REDIS)
        }),
        trial("socket::memcached", || {
            let config = [
                "-p",
                "7777",
                "-U",
                "0",
                "-l",
                "127.0.0.1",
                "-u",
                "root",
                "-t",
                "2",
            ];
            debian("memcached", &config, MEMCACHED)
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// A program in a folder of its own.
struct Stage {
    scratch: Scratch,
    binary: PathBuf,
    words: Vec<OsString>,
}

impl Stage {
    fn new(program: &FuzzProgram, build: Build, words: &[&str]) -> Result<Stage> {
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), program.seed.input())?;
        Ok(Stage {
            scratch,
            binary: program.binary(build),
            words: words.iter().map(OsString::from).collect(),
        })
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn tool(&self, words: &[&str]) -> Result<Outcome> {
        let words = words.iter().map(OsString::from);
        let words = std::iter::once(layout::brownout().into()).chain(words);
        Invocation::new(words.collect::<Vec<OsString>>(), self.folder())
            .timeout(TIMEOUT)
            .run()
    }

    fn command(&self, options: &[&str]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
        let fixed = [
            "--out", "out", "--seeds", "seed", "--pm", "pool", "--jobs", "1",
        ];
        words.extend(fixed.iter().map(OsString::from));
        words.extend(["--format", "json", "-o", "report.json"].map(OsString::from));
        words.extend(options.iter().map(OsString::from));
        words.extend(["--".into(), self.binary.clone().into(), "pool".into()]);
        words.extend(self.words.iter().cloned());
        words
    }

    fn fuzz(&self, options: &[&str]) -> Result<Report> {
        let outcome = Invocation::new(self.command(options), self.folder())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            matches!(outcome.status, 0 | 1),
            "it fails\n{}",
            outcome.describe()
        );
        let text = fs::read(self.folder().join("report.json"))?;
        serde_json::from_slice(&text).context("the report cannot be read")
    }

    fn kept(&self) -> Result<Kept> {
        Ok(Kept::look(&self.folder().join("out"))?)
    }
}

fn correctness(report: &Report) -> Vec<&Finding> {
    let found = report.findings.iter();
    found
        .filter(|f| f.severity == Severity::Correctness)
        .collect()
}

/// No image of a campaign holds the tool's own file.
fn holds_no_input(kept: &Kept) -> Result<()> {
    for node in kept.store.iter() {
        for change in kept.store.difference(None, node.id)? {
            let name = change.path.to_string_lossy().into_owned();
            ensure!(!name.contains("brownout-input"), "{name} is in an image");
        }
    }
    Ok(())
}

/// What is planted is reached from a seed that does not show it, and replays; nothing is found in
/// the twin.
fn planted(words: &[&str], executions: &str, of_twin: &str) -> Result<()> {
    let program = fuzz::find("split_separator")?;
    let bug = Stage::new(&program, Build::Bug, words)?;
    let report = bug.fuzz(&["--executions", executions, "--until-found"])?;
    let found = correctness(&report);
    let wanted = found.iter().find(|f| f.rule.as_str() == "missing-flush");
    let wanted = wanted.with_context(|| format!("no missing-flush: {found:#?}"))?;
    let token = &wanted.replay.as_ref().context("no replay token")?.token;
    let again = bug.tool(&["replay", "--yes", token])?;
    ensure!(again.status == 1, "{}", again.describe());
    holds_no_input(&bug.kept()?)?;
    let twin = Stage::new(&program, Build::Fixed, words)?;
    let report = twin.fuzz(&["--executions", of_twin])?;
    let found = correctness(&report);
    ensure!(found.is_empty(), "{found:#?}");
    let kept = twin.kept()?;
    let is_crash = |node: &brownout_images::Node| matches!(node.origin, Origin::Crash { .. });
    ensure!(kept.store.iter().any(|n| is_crash(&n)), "no crash images");
    holds_no_input(&kept)?;
    let there: Vec<String> = fs::read_dir(twin.folder())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    ensure!(there.len() == 3, "the user's folder has changed: {there:?}");
    Ok(())
}

/// The files that the last run has left, in bytes.
fn left(runner: &Runner) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for (path, content) in runner.left()?.entries {
        let bytes = match content {
            Content::CopyOf(at) if at.is_file() => fs::read(at)?,
            Content::CopyOf(_) => Vec::new(),
            Content::File { len, pages, .. } => {
                let mut bytes = vec![0; len as usize];
                for (number, page) in pages {
                    let at = number as usize * page.len();
                    let end = (at + page.len()).min(bytes.len());
                    bytes[at..end].copy_from_slice(&page[..end - at]);
                }
                bytes
            }
            other => format!("{other:?}").into_bytes(),
        };
        files.insert(path, bytes);
    }
    Ok(files)
}

/// What a forked run shows and leaves is what a fresh process shows and leaves.
fn warm_is_cold() -> Result<()> {
    let program = fuzz::find("split_separator")?;
    let stage = Stage::new(&program, Build::Fixed, &["@@"])?;
    stage.fuzz(&["--executions", "100", "--explore-share", "0"])?;
    let kept = stage.kept()?;
    let images: Vec<ImageId> = kept.store.iter().map(|node| node.id).collect();
    ensure!(images.len() > 2, "only {} images", images.len());
    let inputs = ["i 5\ni 7\nr 5\n", "", "i 1\ni 2\ni 3\ni 4\nr 2\np\n", "x\n"];
    let mut seen = BTreeMap::new();
    for keeps in [false, true] {
        let pool = stage.folder().join("pool");
        let target = Target {
            program: stage.binary.clone().into(),
            args: vec![pool.clone().into(), "@@".into()],
            pm_globs: vec![pool.to_string_lossy().into_owned()],
            delivery: Delivery::File,
        };
        let mut workshop = Workshop::new(
            brownout_explore::Ground::new()?,
            kept.store.clone(),
            target,
            TIMEOUT,
        );
        workshop.keeps = keeps;
        let judge = Judge::new(Default::default(), Default::default());
        let mut runner = Runner::new(Arc::new(workshop), judge);
        for round in 0..2 {
            for image in [images[0], images[1], images[images.len() - 1]] {
                for input in inputs {
                    let case = Case {
                        image,
                        input: input.as_bytes().to_vec(),
                    };
                    runner.run(&case)?;
                    let left = left(&runner)?;
                    let all = (left, serde_json::to_vec(runner.sight())?);
                    let first = seen.entry((image, input)).or_insert_with(|| all.clone());
                    ensure!(
                        first.0 == all.0,
                        "{keeps} {round} {input:?}: leaves something else"
                    );
                    ensure!(
                        first.1 == all.1,
                        "{keeps} {round} {input:?}: does something else"
                    );
                }
            }
        }
        ensure!((runner.warm > 0) == keeps, "{} warm runs", runner.warm);
    }
    Ok(())
}

/// An empty file is refused by its size, before anybody reads it: that is no failed recovery,
/// although it happens on crash images.
fn refusals() -> Result<()> {
    let program = fuzz::find("split_separator")?;
    let stage = Stage::new(&program, Build::Fixed, &["@@"])?;
    stage.fuzz(&["--executions", "100"])?;
    let kept = stage.kept()?;
    let mut nodes = kept.store.iter();
    let crash = nodes.find(|node| matches!(node.origin, Origin::Crash { .. }));
    let image = crash.context("no crash image")?.id;
    std::env::set_current_dir(stage.folder())?;
    let case = Case {
        image,
        input: Vec::new(),
    };
    let found = kept.repeat(&case, None)?;
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}

/// Commands make the same image natively, byte for byte.
fn exports(words: &[&str]) -> Result<()> {
    let program = fuzz::find("clean_tree")?;
    let stage = Stage::new(&program, Build::Fixed, words)?;
    stage.fuzz(&["--executions", "300", "--explore-share", "0"])?;
    rebuilds(&stage)
}

/// What the scripts make is what the campaign has.
fn rebuilds(stage: &Stage) -> Result<()> {
    let kept = stage.kept()?;
    let is_run = |node: &brownout_images::Node| matches!(node.origin, Origin::Run { .. });
    let nodes: Vec<_> = kept.store.iter().filter(is_run).collect();
    ensure!(!nodes.is_empty(), "nothing was kept");
    for node in nodes.iter().rev().take(5) {
        let id = format!("img:{}", node.number);
        let exported = stage.tool(&["fuzz", "export", "out", &id, "-o", "exported"])?;
        ensure!(exported.status == 0, "{}", exported.describe());
        let script = stage.folder().join("exported/rebuild.sh");
        let made = Command::new(script).current_dir(stage.folder()).output()?;
        ensure!(made.status.success(), "{made:?}");
        let there = fs::read(stage.folder().join("pool"))?;
        let expected = stage.folder().join("expected");
        let at = |path: &Path| expected.join(path.file_name().unwrap_or_default());
        fs::create_dir_all(&expected)?;
        lay(
            &kept.store.difference(None, node.id)?,
            &View {
                at: &at,
                machine: &|_| PathBuf::from("/nonexistent"),
            },
        )?;
        ensure!(there == fs::read(expected.join("pool"))?, "{id} differs");
        fs::remove_dir_all(&expected)?;
        fs::remove_dir_all(stage.folder().join("exported"))?;
        fs::remove_file(stage.folder().join("pool"))?;
    }
    Ok(())
}

/// The program gets the input without the tool, too, and prints what it prints on the user's files.
fn natively(words: &[&str]) -> Result<()> {
    let program = fuzz::find("clean_tree")?;
    let stage = Stage::new(&program, Build::Fixed, words)?;
    fs::write(stage.folder().join("seed"), "i 5\ni 3\np\n")?;
    stage.fuzz(&["--executions", "1", "--explore-share", "0"])?;
    let native = stage.tool(&["fuzz", "repro", "out", "0", "--native"])?;
    ensure!(native.status == 0, "{}", native.describe());
    let input = fs::read_to_string(stage.folder().join("seed"))?;
    let mut own = Command::new(&stage.binary);
    own.arg("own").current_dir(stage.folder());
    match words {
        ["@@"] => own.arg("seed"),
        _ => own.args(["-c", &input]),
    };
    let own = own.output()?;
    ensure!(!own.stdout.is_empty(), "it prints nothing");
    ensure!(
        native.stdout_text() == String::from_utf8_lossy(&own.stdout),
        "{}",
        native.describe()
    );
    ensure!(!stage.folder().join("pool").exists(), "it ran outside");
    Ok(())
}

/// Neither shows the bug, although the command that has it is there.
const SERVER_SEED: &str = "set a 1\nincr a\nget a\n@NEXT@\ndel a\nkeys\n";
const REDIS: &str = "SET k 1\r\nINCR k\r\nGET k\r\n@NEXT@\nRPUSH l a b\r\nLRANGE l 0 -1\r\n";
const MEMCACHED: &str = "set a 0 0 1\r\n1\r\nget a\r\n@NEXT@\nincr a 1\r\nstats\r\nquit\r\n";

/// How many connections there were and how many bytes of answers, by what the report says.
fn served(report: &Report) -> Result<(u64, u64)> {
    let says = |note: &&String| note.contains("connections were made");
    let note = report.notes.iter().find(says);
    let note = note.with_context(|| format!("nobody connected: {:?}", report.notes))?;
    let numbers = note.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
    ensure!(numbers.len() == 2, "{note}");
    Ok((numbers[0], numbers[1]))
}

fn server_stage(build: Build, words: &[&str]) -> Result<Stage> {
    let stage = Stage::new(&fuzz::find("server")?, build, words)?;
    fs::write(stage.folder().join("seed"), SERVER_SEED)?;
    Ok(stage)
}

/// The planted bug is found through the socket, and replays; nothing is found in the twin.
fn server(words: &[&str], options: &[&str]) -> Result<()> {
    let bug = server_stage(Build::Bug, words)?;
    let mut all = vec!["--executions", "600", "--until-found"];
    all.extend(options);
    let report = bug.fuzz(&all)?;
    let found = correctness(&report);
    let wanted = found.iter().find(|f| f.rule.as_str() == "missing-flush");
    let wanted = wanted.with_context(|| format!("no missing-flush: {found:#?}"))?;
    let reached = |note: &String| note.contains("reached by fuzzing");
    ensure!(wanted.notes.iter().any(reached), "the seed shows it");
    let token = &wanted.replay.as_ref().context("no replay token")?.token;
    let again = bug.tool(&["replay", "--yes", token])?;
    ensure!(again.status == 1, "{}", again.describe());
    let twin = server_stage(Build::Fixed, words)?;
    let mut all = vec!["--executions", "150"];
    all.extend(options);
    let report = twin.fuzz(&all)?;
    ensure!(correctness(&report).is_empty(), "{:#?}", report.findings);
    let (connections, answered) = served(&report)?;
    ensure!(connections >= 150, "only {connections} connections");
    ensure!(answered > 1000, "only {answered} bytes of answers");
    let native = twin.tool(&["fuzz", "repro", "out", "0", "--native"])?;
    ensure!(native.status == 0, "{}", native.describe());
    ensure!(
        native.stdout_text().contains("listening on"),
        "{}",
        native.describe()
    );
    ensure!(!twin.folder().join("pool").exists(), "it ran outside");
    ensure!(!twin.folder().join("place").exists(), "it ran outside");
    Ok(())
}

/// The same input on the same image does and leaves the same, whatever else the machine does,
/// whether the server is kept or launched.
fn same_runs() -> Result<()> {
    for words in [
        ["7777", "epoll"],
        ["7777", "poll"],
        ["unix:place", "accept"],
    ] {
        let stage = server_stage(Build::Fixed, &words)?;
        stage.fuzz(&["--executions", "1", "--socket", "--explore-share", "0"])?;
        let kept = stage.kept()?;
        std::env::set_current_dir(stage.folder())?;
        let pool = stage.folder().join("pool");
        let mut args = vec![pool.clone().into()];
        args.extend(stage.words.iter().cloned());
        let image = kept.store.root().context("no root")?;
        let mut seen = BTreeMap::new();
        let mut runners = Vec::new();
        for keeps in [false, true] {
            let target = Target {
                program: stage.binary.clone().into(),
                args: args.clone(),
                pm_globs: vec![pool.to_string_lossy().into_owned()],
                delivery: Delivery::Socket(Endpoint::Auto),
            };
            let mut workshop = Workshop::new(
                brownout_explore::Ground::new()?,
                kept.store.clone(),
                target,
                TIMEOUT,
            );
            workshop.keeps = keeps;
            let judge = Judge::new(Default::default(), Default::default());
            runners.push(Runner::new(Arc::new(workshop), judge));
        }
        for round in 0..16 {
            let runner = &mut runners[round % 2];
            for input in [
                SERVER_SEED,
                "set a 1\n",
                "",
                "incr n\n@NEXT@\n@NEXT@\nshutdown\n",
                // The second client is left in the queue.
                "set b 1\nshutdown\n@NEXT@\nset c 1\n",
            ] {
                let case = Case {
                    image,
                    input: input.into(),
                };
                runner.run(&case)?;
                let mut left = left(runner)?;
                left.retain(|path, _| path.ends_with("pool"));
                let all = (left, serde_json::to_vec(runner.sight())?);
                let first = seen.entry(input).or_insert_with(|| all.clone());
                ensure!(*first == all, "{words:?} {round} {input:?}: another run");
            }
        }
        let warm = runners.iter().map(|runner| runner.warm);
        let warm: Vec<u64> = warm.collect();
        ensure!(
            warm[0] == 0 && warm[1] > 20,
            "{words:?}: {warm:?} warm runs"
        );
    }
    Ok(())
}

/// What is no server, what does not mind SIGTERM, and what leaves at once.
fn endings() -> Result<()> {
    let script = |text: &str| -> Result<Stage> {
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), "x\n")?;
        fs::write(scratch.path().join("server.py"), text)?;
        Ok(Stage {
            scratch,
            binary: "/usr/bin/python3".into(),
            words: vec!["server.py".into()],
        })
    };
    let begin = "import signal, socket, time\ns = socket.create_server(('127.0.0.1', 7777))\n";
    let stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n";
    let shuts =
        "def end(*_):\n s.shutdown(2)\n raise SystemExit\nsignal.signal(signal.SIGTERM, end)\n";
    let serve = "while True:\n c = s.accept()[0]\n c.sendall(c.recv(9))\n";
    for (name, text, expected) in [
        (
            "keeps",
            format!(
                "{begin}k = []\n{}",
                serve.replace(" c.s", " k.append(c)\n c.s")
            ),
            None,
        ),
        ("stubborn", format!("{begin}{stubborn}{serve}"), None),
        ("leaves", format!("{begin}s.accept()\n"), None),
        // Nobody can connect to a copy of it any more.
        ("shuts", format!("{begin}{shuts}{serve}"), None),
        (
            "busy",
            format!("{begin}c = s.accept()\nwhile True: pass\n"),
            Some("hang"),
        ),
    ] {
        let stage = script(&text)?;
        let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
        let options = [
            "--out",
            "out",
            "--seeds",
            "seed",
            "--jobs",
            "1",
            "--executions",
            "3",
            "--socket=tcp:7777",
            "--hang-after",
            "2s",
            "--format",
            "json",
            "-o",
            "report.json",
            "--",
            "/usr/bin/python3",
            "server.py",
        ];
        words.extend(options.map(OsString::from));
        let outcome = Invocation::new(words, stage.folder())
            .timeout(TIMEOUT)
            .run()?;
        let text =
            fs::read(stage.folder().join("report.json")).with_context(|| outcome.describe())?;
        let report: Report = serde_json::from_slice(&text)?;
        let found: Vec<&str> = report.findings.iter().map(|f| f.rule.as_str()).collect();
        ensure!(found.iter().copied().eq(expected), "{name}: {found:?}");
        served(&report)?;
    }
    Ok(())
}

/// Servers make the same image natively.
fn exports_of_server(words: &[&str]) -> Result<()> {
    let stage = server_stage(Build::Fixed, words)?;
    stage.fuzz(&["--executions", "40", "--explore-share", "0", "--socket"])?;
    rebuilds(&stage)
}

/// A server of Debian's that knows nothing of persistent memory: it is served, answers, and nothing
/// is found or left behind.
fn debian(program: &str, words: &[&str], seed: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.path().join("seed"), seed)?;
    let mut all: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
    let options = [
        "--out",
        "out",
        "--seeds",
        "seed",
        "--jobs",
        "1",
        "--executions",
        "12",
        "--socket",
        "--hang-after",
        "20s",
        "--format",
        "json",
        "-o",
        "report.json",
        "--",
        program,
    ];
    all.extend(options.map(OsString::from));
    all.extend(words.iter().map(OsString::from));
    let outcome = Invocation::new(all, scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    let text = fs::read(scratch.path().join("report.json")).with_context(|| outcome.describe())?;
    let report: Report = serde_json::from_slice(&text)?;
    ensure!(report.findings.is_empty(), "{:#?}", report.findings);
    let (connections, answered) = served(&report)?;
    ensure!(connections >= 12, "only {connections} connections");
    ensure!(answered > 100, "only {answered} bytes of answers");
    let statistics = serde_json::to_value(&report.statistics)?;
    ensure!(statistics["executions"] == 12, "{statistics}");
    let mut there: Vec<String> = fs::read_dir(scratch.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    there.sort();
    ensure!(
        there == ["out", "report.json", "seed"],
        "left behind: {there:?}"
    );
    Ok(())
}

fn refuses() -> Result<()> {
    let program = fuzz::find("clean_tree")?;
    let stage = Stage::new(&program, Build::Fixed, &["@@", "@ARG@"])?;
    let words = stage.command(&["--executions", "1"]);
    let outcome = Invocation::new(words, stage.folder()).run()?;
    ensure!(
        outcome.status == 2 && outcome.stderr_text().contains("@ARG@"),
        "{}",
        outcome.describe()
    );
    // Another way of delivery is another campaign.
    let stage = Stage::new(&program, Build::Fixed, &["@@"])?;
    stage.fuzz(&["--executions", "1"])?;
    let other = Stage {
        words: Vec::new(),
        ..stage
    };
    let words = other.command(&["--resume", "--executions", "2"]);
    let outcome = Invocation::new(words, other.folder()).run()?;
    ensure!(outcome.status == 2, "{}", outcome.describe());
    Ok(())
}
