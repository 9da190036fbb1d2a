//! `brownout race`: the bugs of `tests/race` are found and replay, the right builds are silent, and
//! bad input is told so.
//!
//! | trials | what |
//! |---|---|
//! | `found::` | the wrong build: rule, verdict and lines are those of its header, and the token shows it again |
//! | `silent::` | the right build, and every correct program: nothing is found in some dozens of schedules |
//! | `search::` | bugs in which no plain load is read too early, or no data flows; and their right builds |
//! | `inputs::` | a bug that only some commands show, which the seeds do not have; and its right build |
//! | `predictions::` | what locks and order do not keep apart is shown by a schedule, or turns out to be kept apart after all |
//! | `usage::` | nothing to schedule, another program, a changed program, the same seed, a campaign that is killed and goes on, a recovery that says nothing, the end of the time, a program that goes another way each time, suppressions |
//! | `endings::` | a program that crashes, or fails, under some schedules only |
//!
//! `BROWNOUT_REPLAYS=N` replays each finding N times (once without), `BROWNOUT_RACE_RUNS=N` runs so
//! many schedules of what must be silent.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Event, Finding, Limit, Report, Role, Severity};
use brownout_tests::race::{self, Build, RaceProgram, Verdict};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, check, layout, trial};
use libtest_mimic::Arguments;

/// What takes seconds alone takes minutes on a machine that has twenty other things to do.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Most bugs show in the first few schedules, within seconds (`cargo xtask bench race` has the
/// figures); whatever is found ends the search.
const BUDGET: &str = "300s";
/// Schedules of what must be silent.
const RUNS: &str = "20";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let programs = race::discover().unwrap_or_else(|error| {
        trials.push(broken("headers", &error));
        Vec::new()
    });
    for program in programs {
        if !program.clean {
            let wrong = program.clone();
            trials.push(trial(format!("found::{}", program.name), move || {
                found(&wrong)
            }));
        }
        trials.push(trial(format!("silent::{}", program.name), move || {
            silent(&program)
        }));
    }
    for name in ["claimed_slot", "ring_head", "streamed", "threaded_recovery"] {
        trials.push(trial(format!("search::{name}"), move || searched_for(name)));
    }
    trials.push(trial("search::behind_a_spin_lock", behind_a_spin_lock));
    trials.push(trial("search::ordinary_file", ordinary_file));
    trials.push(trial("search::running_total", running_total));
    trials.push(trial("search::declared_pair", declared_pair));
    trials.push(trial("search::least_publication", least_publication));
    trials.push(trial("inputs::found", input_is_found));
    trials.push(trial("inputs::silent", inputs_are_silent));
    trials.push(trial("inputs::usage", inputs_that_make_no_sense));
    trials.push(trial("predictions::proven", predictions_are_proven));
    trials.push(trial("predictions::refuted", predictions_are_refuted));
    trials.push(trial("usage::one_thread", one_thread));
    trials.push(trial("usage::nothing_persistent", nothing_persistent));
    trials.push(trial("usage::another_program", another_program));
    trials.push(trial("usage::same_seed", same_seed));
    trials.push(trial("usage::killed_and_resumed", killed_and_resumed));
    trials.push(trial("usage::resumed_for_more", resumed_for_more));
    trials.push(trial("usage::recovery_fails_anyway", recovery_fails_anyway));
    trials.push(trial("usage::fails_without_reader", fails_without_reader));
    trials.push(trial("usage::time_ends_runs", time_ends_runs));
    trials.push(trial("usage::another_way", another_way));
    trials.push(trial("usage::suppressions", suppressions));
    trials.push(trial("endings::crash", crash_is_found));
    trials.push(trial("endings::exit_code", exit_code_is_told));
    trials.push(trial("usage::interrupted", interrupted));
    trials.push(trial("usage::unknown_strategy", unknown_strategy));
    trials.push(trial("usage::files_stay", files_stay));
    libtest_mimic::run(&arguments, trials).exit();
}

fn number(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

/// `brownout race … -- PROG pool` in a folder, with what the program's header asks for.
fn command(
    program: &RaceProgram,
    build: Build,
    more: &[&str],
    scratch: &Scratch,
) -> Result<Invocation> {
    let binary = program.binary(build);
    ensure!(
        binary.is_file(),
        "{} is missing: run `cargo xtask build`",
        binary.display()
    );
    let binary = binary.to_string_lossy().into_owned();
    let mut argv: Vec<String> = vec![
        layout::brownout().to_string_lossy().into_owned(),
        "race".into(),
        "--no-config".into(),
        "--pm".into(),
        "pool".into(),
        "--jobs".into(),
        "1".into(),
        "--recover".into(),
        format!("{binary} pool recover"),
    ];
    if program.setup {
        argv.extend(["--setup".into(), format!("{binary} pool create")]);
    }
    if program.continues {
        argv.extend(["--continue".into(), format!("{binary} pool continue")]);
    }
    argv.extend(more.iter().map(|word| (*word).to_owned()));
    argv.extend(["--".into(), binary, "pool".into()]);
    Ok(Invocation::new(argv, scratch.path()).timeout(TIMEOUT))
}

/// Runs it, and reads the report.
fn run(
    program: &RaceProgram,
    build: Build,
    more: &[&str],
    scratch: &Scratch,
) -> Result<(Outcome, Report)> {
    let report = scratch.join("report.json");
    let path = report.to_string_lossy().into_owned();
    let mut words = vec!["--format", "json", "-o", &path];
    words.extend(more);
    let outcome = command(program, build, &words, scratch)?.run()?;
    let text = fs::read_to_string(&report).with_context(|| outcome.describe())?;
    Ok((outcome, serde_json::from_str(&text)?))
}

fn statistic(report: &Report, name: &str) -> u64 {
    let number = report
        .statistics
        .get(name)
        .and_then(serde_json::Value::as_u64);
    number.unwrap_or_default()
}

fn replay(finding: &Finding, folder: &Path) -> Result<()> {
    let replay = finding.replay.as_ref().context("a token")?;
    let times: u32 = number("BROWNOUT_REPLAYS", "1").parse()?;
    for _ in 0..times {
        let outcome = check::replay(&replay.token, folder)
            .timeout(TIMEOUT)
            .run()?;
        let said = outcome.stderr_text();
        ensure!(
            outcome.status == 1 && said.contains("shows again"),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

fn found(program: &RaceProgram) -> Result<()> {
    let scratch = Scratch::new()?;
    let rule = program.bug.as_deref().context("a rule")?;
    let is_error = matches!(program.verdict, Some(Verdict::Confirmed)) || rule == "deadlock";
    // A warning does not end the search.
    let more: &[&str] = match is_error {
        true => &["--until-found", "--time", BUDGET],
        false => &["--runs", "24"],
    };
    // An error of another rule may be found first: then it is searched again, to the end.
    let mut report = run(program, Build::Bug, more, &scratch)?.1;
    if expected(program, rule, &report).is_none() {
        report = run(program, Build::Bug, &["--runs", "40"], &scratch)?.1;
    }
    let Some(finding) = expected(program, rule, &report) else {
        bail!("no {rule} at the marked lines\n{}", check::show(&report));
    };
    if is_error && rule != "deadlock" {
        let reproduction = finding.reproduction.as_ref();
        ensure!(
            reproduction.is_some_and(|r| r.confirmed),
            "not confirmed natively\n{}",
            check::show(&report)
        );
    }
    replay(finding, scratch.path())
}

/// The finding that the header says, as severe as it says, if it is there.
fn expected<'r>(program: &RaceProgram, rule: &str, report: &'r Report) -> Option<&'r Finding> {
    let file = program.source.file_name()?.to_string_lossy().into_owned();
    let is_at = |event: &Event, marker: &str| {
        let mut lines = program.lines(marker).into_iter();
        lines.any(|line| check::is_at_line(event, &file, line))
    };
    let has = |finding: &Finding, roles: &[Role], marker: &str| {
        let mut events = finding
            .events
            .iter()
            .filter(|event| roles.contains(&event.role));
        events.any(|event| is_at(event, marker))
    };
    let is_error = matches!(program.verdict, Some(Verdict::Confirmed)) || rule == "deadlock";
    let is_it = |finding: &&Finding| {
        finding.rule == *rule
            && is_error == (finding.severity == Severity::Correctness)
            && match rule {
                // Who looks again and again at ordinary memory was last seen somewhere before.
                "deadlock" => {
                    has(finding, &[Role::Event], "effect")
                        || finding.message.contains("again and again")
                }
                "persistent-lock" => has(finding, &[Role::Store], "store"),
                "unpersisted-publication" => {
                    has(finding, &[Role::Store], "store") && has(finding, &[Role::Load], "read")
                }
                _ => {
                    // Which of several effects of one cause is shown first depends on the schedule.
                    has(finding, &[Role::Store], "store")
                        || has(finding, &[Role::Load], "read")
                        || has(finding, &[Role::Early, Role::Write], "effect")
                }
            }
    };
    report.findings.iter().find(is_it)
}

fn silent(program: &RaceProgram) -> Result<()> {
    let scratch = Scratch::new()?;
    let runs = number("BROWNOUT_RACE_RUNS", RUNS);
    let (outcome, report) = run(program, Build::Fixed, &["--runs", &runs], &scratch)?;
    ensure!(report.findings.is_empty(), "{}", check::show(&report));
    ensure!(outcome.status == 0, "{}", outcome.describe());
    let schedules = statistic(&report, "schedules");
    ensure!(
        schedules.to_string() == runs,
        "{schedules} schedules were run"
    );
    Ok(())
}

fn compiled(source: &str, scratch: &Scratch) -> Result<String> {
    let path = scratch.join("program.c");
    fs::write(&path, source)?;
    let binary = check::compile(&path, scratch.join("program"), &["-pthread"])?;
    Ok(binary.to_string_lossy().into_owned())
}

fn race_of(binary: &str, more: &[&str], scratch: &Scratch) -> Result<Outcome> {
    let brownout = layout::brownout().to_string_lossy().into_owned();
    let mut argv = vec![brownout.as_str(), "race", "--no-config", "--pm", "pool"];
    argv.extend(more);
    argv.extend(["--", binary, "pool"]);
    Invocation::new(argv, scratch.path()).timeout(TIMEOUT).run()
}

fn searched(name: &str, flags: &[&str], scratch: &Scratch) -> Result<String> {
    let source = layout::workspace().join("tests/race/search").join(name);
    let flags = [&["-pthread"], flags].concat();
    let binary = check::compile(&source, scratch.join("program"), &flags)?;
    Ok(binary.to_string_lossy().into_owned())
}

/// Found in the wrong build, with its proof, and silent on the right one.
fn searched_for(name: &str) -> Result<()> {
    let file = format!("{name}.c");
    for build in [&["-DBUG"][..], &[]] {
        let scratch = Scratch::new()?;
        let binary = searched(&file, build, &scratch)?;
        let recover = format!("{binary} pool recover");
        let end: &[&str] = match build.is_empty() {
            true => &["--runs", "40"],
            false => &["--until-found", "--time", BUDGET],
        };
        let words = [
            "--jobs",
            "1",
            "--recover",
            &recover,
            "--format",
            "json",
            "-o",
            "report.json",
        ];
        let outcome = race_of(&binary, &[&words, end].concat(), &scratch)?;
        let text = fs::read_to_string(scratch.join("report.json"))?;
        let report: Report = serde_json::from_str(&text)?;
        // Recovery does well if nothing is lost, every time.
        ensure!(
            !report.coverage.has(Limit::Unjudged),
            "{}",
            outcome.describe()
        );
        if build.is_empty() {
            ensure!(
                outcome.status == 0 && report.findings.is_empty(),
                "{}",
                check::show(&report)
            );
            continue;
        }
        let is_it = |finding: &&Finding| {
            finding.rule == "inter-thread-inconsistency"
                && finding.severity == Severity::Correctness
        };
        let finding = report.findings.iter().find(is_it);
        let finding = finding.with_context(|| check::show(&report))?;
        let confirmed = finding.reproduction.as_ref().is_some_and(|r| r.confirmed);
        ensure!(
            confirmed,
            "not confirmed natively\n{}",
            check::show(&report)
        );
        replay(finding, scratch.path())?;
    }
    Ok(())
}

/// Who is held behind a store may have a lock that the others spin for: it goes on to where it
/// gives it back, and is still held then.
fn behind_a_spin_lock() -> Result<()> {
    let program = race::find("leaf_split")?;
    for seed in ["1", "2", "3"] {
        let scratch = Scratch::new()?;
        let more = ["--seed", seed, "--runs", "20", "--until-found"];
        let (outcome, report) = run(&program, Build::Bug, &more, &scratch)?;
        ensure!(
            expected(&program, "inter-thread-inconsistency", &report).is_some(),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// Threads may agree by a file that is no persistent memory, as LMDB's do; nobody has to make that
/// persistent.
fn ordinary_file() -> Result<()> {
    finds_nothing("ordinary_file.c", "30")
}

/// What has become persistent makes room for other early reads, so that all of them are looked at.
fn running_total() -> Result<()> {
    finds_nothing("running_total.c", "4")
}

/// A right program: nothing is found in so many schedules, and nothing was left out.
fn finds_nothing(name: &str, runs: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = searched(name, &[], &scratch)?;
    let recover = format!("{binary} pool recover");
    let more = ["--jobs", "1", "--recover", &recover, "--runs", runs];
    let outcome = race_of(&binary, &more, &scratch)?;
    let said = outcome.stderr_text();
    ensure!(
        outcome.status == 0 && said.contains("no findings"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// What the program says of a lock (which bytes, and what they hold after recovery) counts, though
/// nothing fails.
fn declared_pair() -> Result<()> {
    let file = "declared_pair.c";
    let source = layout::workspace().join("tests/race/search").join(file);
    let source = fs::read_to_string(source)?;
    let here = source.lines().position(|line| line.contains("/* here */"));
    let here = here.context("a line")? as u32 + 1;
    for build in [&["-DBUG"][..], &[]] {
        let scratch = Scratch::new()?;
        let binary = searched(file, build, &scratch)?;
        let recover = format!("{binary} pool recover");
        let words = [
            "--jobs",
            "1",
            "--strategy",
            "random",
            "--runs",
            "12",
            "--recover",
            &recover,
            "--format",
            "json",
            "-o",
            "report.json",
        ];
        let outcome = race_of(&binary, &words, &scratch)?;
        let text = fs::read_to_string(scratch.join("report.json"));
        let text = text.with_context(|| outcome.describe())?;
        let report: Report = serde_json::from_str(&text)?;
        if build.is_empty() {
            ensure!(
                outcome.status == 0 && report.findings.is_empty(),
                "{}",
                check::show(&report)
            );
            continue;
        }
        let [finding] = &report.findings[..] else {
            bail!("{}", check::show(&report));
        };
        let at = |event: &Event| check::is_at_line(event, file, here);
        ensure!(
            finding.rule == "persistent-lock"
                && finding.severity == Severity::Correctness
                && finding.message.contains("brownout_sync_var")
                && finding.events.first().is_some_and(at),
            "{}",
            check::show(&report)
        );
        takes_no_switch(finding)?;
        replay(finding, scratch.path())?;
    }
    Ok(())
}

/// The schedule that has shown it had context switches that it does not need.
fn takes_no_switch(finding: &Finding) -> Result<()> {
    let note = "nobody needs to be interrupted for it";
    let mut notes = finding.notes.iter();
    ensure!(
        notes.any(|text| text.starts_with(note)),
        "{:?}",
        finding.notes
    );
    Ok(())
}

fn least_publication() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("redundant_write")?;
    let more = ["--strategy", "random", "--runs", "8"];
    let (_, report) = run(&program, Build::Bug, &more, &scratch)?;
    let finding = expected(&program, "unpersisted-publication", &report);
    let finding = finding.with_context(|| check::show(&report))?;
    takes_no_switch(finding)?;
    replay(finding, scratch.path())
}

/// The program, a file with a seed and one with what its commands look like.
fn dispatch(flags: &[&str], scratch: &Scratch) -> Result<String> {
    fs::write(scratch.join("seed"), "p 1\np 2\nc 2\n")?;
    fs::write(scratch.join("operations"), "p {key}\na {key}\nc {key}\n")?;
    searched("dispatch.c", flags, scratch)
}

fn input_is_found() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = dispatch(&["-DBUG"], &scratch)?;
    let report = scratch.join("report.json");
    let path = report.to_string_lossy().into_owned();
    let recover = format!("{binary} pool recover");
    let more = [
        "--jobs",
        "1",
        "--seeds",
        "seed",
        "--operations",
        "operations",
        "--recover",
        &recover,
        "--until-found",
        "--time",
        BUDGET,
        "--format",
        "json",
        "-o",
        &path,
    ];
    let outcome = race_of(&binary, &more, &scratch)?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let report: Report = serde_json::from_str(&fs::read_to_string(&report)?)?;
    let finding = report.findings.first().context("a finding")?;
    ensure!(
        finding.rule == "inter-thread-inconsistency" && finding.severity == Severity::Correctness,
        "{}",
        check::show(&report)
    );
    ensure!(statistic(&report, "inputs") > 1, "{}", outcome.describe());
    // The input is in the token, and in a file that is named.
    fs::remove_file(scratch.join("seed"))?;
    fs::write(scratch.join("seed"), "p 1\n")?;
    replay(finding, scratch.path())?;
    let note = finding
        .notes
        .iter()
        .find_map(|note| note.split_once("that was made: "));
    let (_, input) = note.context("a note that names the input")?;
    let text = fs::read_to_string(input)?;
    ensure!(text.contains("a ") && text.contains("c "), "{text:?}");
    Ok(())
}

fn inputs_are_silent() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = dispatch(&[], &scratch)?;
    let recover = format!("{binary} pool recover");
    let more = [
        "--seeds",
        "seed",
        "--operations",
        "operations",
        "--recover",
        &recover,
        "--runs",
        "150",
    ];
    let outcome = race_of(&binary, &more, &scratch)?;
    ensure!(outcome.status == 0, "{}", outcome.describe());
    ensure!(
        outcome.stderr_text().contains("no findings"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn inputs_that_make_no_sense() -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.join("seed"), [0, 1, 2, 255, 254, 0, 7])?;
    fs::create_dir(scratch.join("empty"))?;
    let cases: [(&[&str], &str); 4] = [
        (&["--seeds", "seed"], "--operations"),
        (&["--seeds", "empty"], "no seed"),
        (&["--seeds", "missing"], "cannot read"),
        (&["--operations", "missing"], "cannot read"),
    ];
    for (more, says) in cases {
        let outcome = race_of("/bin/true", more, &scratch)?;
        ensure!(
            outcome.status == 2 && outcome.stderr_text().contains(says),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

fn predictions_are_proven() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let (_, report) = run(&program, Build::Bug, &["--runs", "24"], &scratch)?;
    let proven = statistic(&report, "predictions_proven");
    ensure!(proven > 0, "{:?}", report.statistics);
    // It is known where the lock is given back too early.
    let unlock = "before the lock is given back at counter_value.c:";
    let mut help = report.findings.iter().flat_map(|finding| &finding.help);
    ensure!(
        help.any(|help| help.contains(unlock)),
        "{}",
        check::show(&report)
    );
    // In the right build there is nothing to predict.
    let scratch = Scratch::new()?;
    let (_, report) = run(&program, Build::Fixed, &["--runs", "24"], &scratch)?;
    ensure!(
        statistic(&report, "predictions") == 0,
        "{:?}",
        report.statistics
    );
    Ok(())
}

fn predictions_are_refuted() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = searched("token.c", &[], &scratch)?;
    let recover = format!("{binary} pool recover");
    let more = [
        "--jobs",
        "1",
        "--runs",
        "60",
        "--recover",
        &recover,
        "--format",
        "json",
        "-o",
        "report.json",
    ];
    let outcome = race_of(&binary, &more, &scratch)?;
    ensure!(outcome.status == 0, "{}", outcome.describe());
    let text = fs::read_to_string(scratch.join("report.json"))?;
    let report: Report = serde_json::from_str(&text)?;
    let standing = ["predictions", "predictions_refuted"].map(|name| statistic(&report, name));
    ensure!(
        standing[0] > 0 && standing[0] == standing[1],
        "{:?}",
        report.statistics
    );
    Ok(())
}

const ONE_THREAD: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    char *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pool[0]++;
    msync(pool, 4096, MS_SYNC);
    return 0;
}
"#;

fn one_thread() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = compiled(ONE_THREAD, &scratch)?;
    let outcome = race_of(&binary, &[], &scratch)?;
    ensure!(outcome.status == 3, "{}", outcome.describe());
    ensure!(
        outcome.stderr_text().contains("nothing to schedule"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn nothing_persistent() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = race_of("/bin/true", &[], &scratch)?;
    ensure!(outcome.status == 3, "{}", outcome.describe());
    ensure!(
        outcome.stderr_text().contains("no persistent memory"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// A token of one program means nothing to another: it is never silently another run.
fn another_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let other = race::find("treiber_help")?;
    let binary = scratch.join("program");
    fs::copy(program.binary(Build::Bug), &binary)?;
    let brownout = layout::brownout();
    let report = scratch.join("report.json");
    let recover = format!("{} pool recover", binary.display());
    let argv = [
        brownout.as_os_str(),
        "race".as_ref(),
        "--no-config".as_ref(),
        "--pm".as_ref(),
        "pool".as_ref(),
        "--until-found".as_ref(),
        "--time".as_ref(),
        BUDGET.as_ref(),
        "--recover".as_ref(),
        recover.as_ref(),
        "--format".as_ref(),
        "json".as_ref(),
        "-o".as_ref(),
        report.as_os_str(),
        "--".as_ref(),
        binary.as_os_str(),
        "pool".as_ref(),
    ];
    let outcome = Invocation::new(argv, scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let report: Report = serde_json::from_str(&fs::read_to_string(&report)?)?;
    let finding = report.findings.first().context("a finding")?;
    replay(finding, scratch.path())?;
    fs::copy(other.binary(Build::Bug), &binary)?;
    let token = &finding.replay.as_ref().context("a token")?.token;
    let outcome = check::replay(token, scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(
        outcome.status == 2 || outcome.status == 3,
        "{}",
        outcome.describe()
    );
    ensure!(
        !outcome.stderr_text().contains("shows again"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// With one job, the seed decides on everything.
fn same_seed() -> Result<()> {
    let program = race::find("ms_queue_help")?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let scratch = Scratch::new()?;
        let more = ["--runs", "10", "--seed", "7"];
        let (_, report) = run(&program, Build::Bug, &more, &scratch)?;
        let numbers = [
            "schedules",
            "steps",
            "pairs",
            "goals",
            "inter_candidates",
            "inconsistencies",
        ];
        let numbers = numbers.map(|name| statistic(&report, name));
        let findings = report
            .findings
            .iter()
            .map(|f| (f.fingerprint.clone(), f.count));
        seen.push((numbers, findings.collect::<Vec<_>>()));
    }
    ensure!(seen[0] == seen[1], "{seen:?}");
    ensure!(seen[0].0[0] == 10 && seen[0].0[1] > 0, "{seen:?}");
    Ok(())
}

/// What was found is kept, whatever ends the search; and it goes on behind what was run.
fn killed_and_resumed() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let more = ["--time", BUDGET, "--out", "campaign"];
    let mut child = command(&program, Build::Bug, &more, &scratch)?
        .command()?
        .spawn()?;
    // The images of a finding are written right before it is noted down.
    let images = scratch.join("brownout-race");
    let is_found = || fs::read_dir(&images).is_ok_and(|mut found| found.next().is_some());
    for _ in 0..6000 {
        if is_found() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(6));
    child.kill()?;
    child.wait()?;
    ensure!(is_found(), "nothing was found in five minutes");
    let more = ["--runs", "0", "--out", "campaign", "--resume"];
    let (outcome, report) = run(&program, Build::Bug, &more, &scratch)?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let rules: Vec<&str> = report.findings.iter().map(|f| f.rule.as_str()).collect();
    ensure!(rules.contains(&"inter-thread-inconsistency"), "{rules:?}");
    // Another program is another campaign.
    let other = race::find("treiber_help")?;
    let refused = command(&other, Build::Bug, &more, &scratch)?.run()?;
    ensure!(refused.status == 2, "{}", refused.describe());
    ensure!(
        refused.stderr_text().contains("other settings"),
        "{}",
        refused.describe()
    );
    Ok(())
}

/// A campaign goes on behind what was run, and only as what it was.
fn resumed_for_more() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let binary = scratch.join("program");
    fs::copy(program.binary(Build::Fixed), &binary)?;
    let binary = binary.to_string_lossy().into_owned();
    let recover = format!("{binary} pool recover");
    let search = |runs: &str, more: &[&str]| -> Result<Outcome> {
        let words = [
            "--recover",
            &recover,
            "--out",
            "campaign",
            "--jobs",
            "1",
            "--runs",
            runs,
            "--format",
            "json",
            "-o",
            "report.json",
        ];
        race_of(&binary, &[&words, more].concat(), &scratch)
    };
    let read = |outcome: &Outcome| -> Result<Report> {
        ensure!(outcome.status == 0, "{}", outcome.describe());
        let text = fs::read_to_string(scratch.join("report.json"))?;
        Ok(serde_json::from_str(&text)?)
    };
    let first = read(&search("5", &[])?)?;
    let both = read(&search("9", &["--resume"])?)?;
    let schedules = [&first, &both].map(|report| statistic(report, "schedules"));
    ensure!(schedules == [5, 9], "{schedules:?}");
    ensure!(
        statistic(&both, "steps") > statistic(&first, "steps"),
        "{:?}",
        both.statistics
    );
    let refused = |outcome: &Outcome, what: &str| {
        let said = outcome.stderr_text();
        ensure!(
            outcome.status == 2 && said.contains("other settings") && said.contains(what),
            "{}",
            outcome.describe()
        );
        Ok(())
    };
    let cases = [
        (["--checker", "true"], "checker"),
        (["--domain", "eadr"], "model"),
        (["--strategy", "pct"], "strategy"),
    ];
    for (more, what) in cases {
        refused(&search("9", &[&["--resume"], &more[..]].concat())?, what)?;
    }
    fs::copy(program.binary(Build::Bug), &binary)?;
    refused(&search("9", &["--resume"])?, "program_content")
}

/// Where recovery fails although nothing is lost, nothing is claimed.
fn recovery_fails_anyway() -> Result<()> {
    let program = race::find("counter_value")?;
    for (recover, what) in [
        ("sh -c 'exit 4'", "exit code 4"),
        ("sh -c ./typo", "exit code 127"),
        ("sh -c 'kill -SEGV $$'", "SIGSEGV"),
    ] {
        let scratch = Scratch::new()?;
        let binary = program.binary(Build::Bug).to_string_lossy().into_owned();
        let more = ["--jobs", "1", "--runs", "3", "--recover", recover];
        let outcome = race_of(&binary, &more, &scratch)?;
        let said = outcome.stderr_text();
        ensure!(
            outcome.status == 3 && said.contains("limit[unjudged]") && said.contains(what),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// A crash that recovery fails after is not passed over because nobody needs to have read what is
/// lost in it.
fn fails_without_reader() -> Result<()> {
    let run = |build: &[&str], seed: &str| -> Result<(Outcome, bool)> {
        let scratch = Scratch::new()?;
        let binary = searched("own_order.c", build, &scratch)?;
        let recover = format!("{binary} pool recover");
        let words = ["--jobs", "1", "--runs", "20", "--seed", seed];
        let outcome = race_of(
            &binary,
            &[&words[..], &["--recover", &recover]].concat(),
            &scratch,
        )?;
        let said = outcome.stderr_text();
        let is_told = said.contains("limit[unjudged]") && said.contains("takes no second thread");
        Ok((outcome, is_told))
    };
    // In some schedules the loss comes behind what the reader has made of it, and is an error: then
    // that is what is said.
    let mut told = 0;
    for seed in ["0", "1", "2", "3", "4", "5"] {
        let (outcome, is_told) = run(&["-DBUG"], seed)?;
        told += u32::from(is_told);
        let expected = if is_told { 3 } else { 1 };
        ensure!(outcome.status == expected, "{}", outcome.describe());
    }
    ensure!(told > 0, "an error is found with each seed");
    let (outcome, is_told) = run(&[], "0")?;
    ensure!(outcome.status == 0 && !is_told, "{}", outcome.describe());
    Ok(())
}

/// Whoever is not ready when the other one comes counts for minutes; nobody else can go on
/// meanwhile.
const LONG: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile char *pool;
static void *get_ready(void *argument)
{
    for (int i = 0; i < 200; i++)
        pool[128]++;
    pool[0] = 1;
    return argument;
}
static void *come(void *argument)
{
    if (ALWAYS || !pool[0])
        for (volatile long i = 0; i < 100L * 1000 * 1000 * 1000; i++) {}
    return argument;
}
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, get_ready, NULL);
    pthread_create(&threads[1], NULL, come, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
"#;

/// When the time is up, whatever runs is ended, and is not taken for something that does not end.
fn time_ends_runs() -> Result<()> {
    for always in ["0", "1"] {
        let scratch = Scratch::new()?;
        let source = LONG.replace("ALWAYS", always);
        let binary = compiled(&source, &scratch)?;
        let begun = Instant::now();
        let more = [
            "--jobs",
            "1",
            "--recover",
            "true",
            "--time",
            "2s",
            "--hang-after",
            "60s",
        ];
        let outcome = race_of(&binary, &more, &scratch)?;
        let took = begun.elapsed();
        let said = outcome.stderr_text();
        ensure!(!said.contains("[deadlock]"), "{}", outcome.describe());
        ensure!(
            always == "0" || outcome.status == 3 && said.contains("limit[time]"),
            "{}",
            outcome.describe()
        );
        // A run that is judged takes a minute.
        ensure!(took < Duration::from_secs(30), "it took {took:?}");
    }
    Ok(())
}

/// How often threads come round depends on how long the machine has been running. What they store
/// they read before it is persistent.
const UPTIME: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile char *pool;
static long rounds;
static void *body(void *argument)
{
    for (long i = 0; i < rounds; i++) {
        pool[0]++;
        pool[64] = pool[0];
        _mm_clflush((char *)pool);
        _mm_clflush((char *)pool + 64);
        _mm_sfence();
    }
    return argument;
}
int main(int argc, char **argv)
{
    double seconds = 0;
    FILE *file = fopen("/proc/uptime", "r");
    if (!file || fscanf(file, "%lf", &seconds) != 1)
        return 2;
    rounds = 1 + (long)(seconds * 100) % 97;
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
"#;

/// What is seen in a run that cannot be made again is not judged, and that is said.
fn another_way() -> Result<()> {
    let scratch = Scratch::new()?;
    let binary = compiled(UPTIME, &scratch)?;
    let more = ["--jobs", "1", "--recover", "true", "--runs", "6"];
    let outcome = race_of(&binary, &more, &scratch)?;
    let said = outcome.stderr_text();
    ensure!(
        said.contains("limit[nondeterministic]") && said.contains("another way when run again"),
        "{}",
        outcome.describe()
    );
    // Such an early read was seen in runs that have ended.
    ensure!(
        outcome.status != 0 && !said.contains("limit[limits]"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// What somebody has looked at is not reported again.
fn suppressions() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let search = |more: &[&str]| {
        let words = ["--runs", "40", "--seed", "3"];
        run(&program, Build::Bug, &[&words, more].concat(), &scratch)
    };
    let (outcome, first) = search(&["--gen-suppressions", "known.toml"])?;
    let found = first.findings.len();
    ensure!(outcome.status == 1 && found > 0, "{}", outcome.describe());
    let (outcome, second) = search(&["--suppressions", "known.toml"])?;
    ensure!(
        outcome.status == 0 && second.findings.is_empty(),
        "{}",
        outcome.describe()
    );
    ensure!(
        second.suppressed == found as u64,
        "{} of {found}",
        second.suppressed
    );
    // By the line at which it is read, and with a reason, as it is written by hand.
    let entry = |line: u32| {
        format!(
            "[[suppress]]\nstack = [\"...\", \"src:counter_value.c:{line}\"]\nreason = \"receipts are made again\"\n"
        )
    };
    let by_hand: String = program.lines("read").into_iter().map(entry).collect();
    fs::write(scratch.join("hand.toml"), by_hand)?;
    let (outcome, third) = search(&["--suppressions", "hand.toml"])?;
    ensure!(third.suppressed > 0, "{}", outcome.describe());
    Ok(())
}

/// One thread looks at a pointer twice; between the looks another one may take it away.
const FRAGILE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile char *pool;
static int number;
static int *volatile shared = &number;
static void *use(void *argument)
{
    for (int i = 0; i < 8; i++) {
        if (!shared)
            return argument;
        pool[0]++;
#ifdef CODE
        if (!shared)
            _exit(7);
#else
        number += *shared; /* here */
#endif
    }
    return argument;
}
static void *drop(void *argument)
{
    pool[128] = 1;
    shared = NULL;
    return argument;
}
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, use, NULL);
    pthread_create(&threads[1], NULL, drop, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
"#;

fn fragile(first: &str, runs: &str, scratch: &Scratch) -> Result<(Outcome, Report)> {
    let binary = compiled(&format!("{first}\n{FRAGILE}"), scratch)?;
    let more = [
        "--jobs",
        "1",
        "--recover",
        "true",
        "--runs",
        runs,
        "--format",
        "json",
        "-o",
        "report.json",
    ];
    let outcome = race_of(&binary, &more, scratch)?;
    let text = fs::read_to_string(scratch.join("report.json"));
    let text = text.with_context(|| outcome.describe())?;
    Ok((outcome, serde_json::from_str(&text)?))
}

fn crash_is_found() -> Result<()> {
    let scratch = Scratch::new()?;
    let (outcome, report) = fragile("", "60", &scratch)?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let mut crashes = report.findings.iter().filter(|f| f.rule == "crash");
    let crash = crashes.next().context("a crash")?;
    // However often it shows.
    ensure!(crashes.next().is_none(), "{}", check::show(&report));
    let here = FRAGILE.lines().position(|line| line.contains("here"));
    let here = here.context("a line")? as u32 + 2;
    ensure!(
        crash.message.contains("SIGSEGV")
            && crash
                .events
                .iter()
                .any(|event| check::is_at_line(event, "program.c", here)),
        "{}",
        check::show(&report)
    );
    let least = "it takes one context switch that would not come by itself";
    ensure!(
        crash.notes.iter().any(|note| note == least),
        "{:?}",
        crash.notes
    );
    replay(crash, scratch.path())
}

/// Programs may mean an exit code, so it is no finding; but it can be seen again.
fn exit_code_is_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let (outcome, report) = fragile("#define CODE", "60", &scratch)?;
    ensure!(
        outcome.status == 0 && report.findings.is_empty(),
        "{}",
        outcome.describe()
    );
    let mut notes = report.notes.iter();
    let note = notes.find(|note| note.contains("ends with exit code 7"));
    let note = note.with_context(|| format!("{:?}", report.notes))?;
    ensure!(note.contains("it ends with exit code 0"), "{note}");
    let token = note.split_once("brownout replay ").context("a token")?.1;
    let outcome = check::replay(token, scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(
        outcome.status == 1 && outcome.stderr_text().contains("exit code 7"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// Whatever a search is at when somebody presses Ctrl-C, it reports what it has found until then:
/// here, one job has just noted a finding down, and the other is on its way to the same one.
fn interrupted() -> Result<()> {
    const RULE: &str = "inter-thread-inconsistency";
    let program = race::find("ack_pipe")?;
    for _ in 0..4 {
        let scratch = Scratch::new()?;
        let report = scratch.join("report.json");
        let path = report.to_string_lossy().into_owned();
        let more = [
            "--time", BUDGET, "--jobs", "2", "--out", "campaign", "--format", "json", "-o", &path,
        ];
        let mut child = command(&program, Build::Bug, &more, &scratch)?
            .command()?
            .stderr(Stdio::null())
            .spawn()?;
        let journal = scratch.join("campaign/journal");
        let is_noted = || {
            let noted = fs::read(&journal).unwrap_or_default();
            noted
                .windows(RULE.len())
                .any(|word| word == RULE.as_bytes())
        };
        while !is_noted() && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status()?;
        let status = child.wait()?;
        // Not all was looked at; only the warning that was found is there, which is no error.
        ensure!(status.code() == Some(3), "{status}");
        let report: Report = serde_json::from_str(&fs::read_to_string(&report)?)?;
        let rules: Vec<&str> = report.findings.iter().map(|f| f.rule.as_str()).collect();
        ensure!(rules.contains(&RULE), "{rules:?}");
    }
    Ok(())
}

fn unknown_strategy() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = race_of("/bin/true", &["--strategy", "luck"], &scratch)?;
    ensure!(outcome.status == 2, "{}", outcome.describe());
    ensure!(
        outcome.stderr_text().contains("round-robin"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// The user's pool is as it was, and nothing else is there but what the report names.
fn files_stay() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = race::find("counter_value")?;
    let native = Invocation::new(
        [program.binary(Build::Fixed), "pool".into()],
        scratch.path(),
    );
    native
        .timeout(TIMEOUT)
        .run()?
        .expect_success("a pool is made")?;
    let before = fs::read(scratch.join("pool"))?;
    let (outcome, _) = run(&program, Build::Fixed, &["--runs", "10"], &scratch)?;
    ensure!(outcome.status == 0, "{}", outcome.describe());
    ensure!(
        fs::read(scratch.join("pool"))? == before,
        "the pool has changed"
    );
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(scratch.path())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    ensure!(names == ["pool", "report.json"], "{names:?}");
    Ok(())
}
