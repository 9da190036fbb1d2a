//! `brownout symex` on whole programs.
//!
//! | trials | what |
//! |---|---|
//! | `found::` | from blanks, the input that shows the bug is solved for; the native program stores what that input says; the token shows it again |
//! | `silent::` | nothing is found in the fixed twin |
//! | `plain::` | the C library chooses functions that are described, whatever the processor has |
//! | `hangs::` | runs that do not end are ended, found, and said; what was not followed to its end is not claimed |
//! | `strategies::` | each does what its name says |
//! | `real::` | programs that nobody wrote for this: they make new paths, and do not diverge |
//! | `ways::` | the same by files, mappings, arguments, connections and templates |
//! | `pool::` | content of a pool on which recovery reads behind it is solved for, and the fixed twin is silent on all that is tried |
//! | `crashes::` | crashes in paths with new behaviour are explored; the token explores them again |
//! | `campaign::` | what is kept is there for the next time, and several search side by side |
//! | `oracles::` | crashes that no branch leads to are solved for: divisions, accesses behind and in front of a pool |
//! | `carried::` | findings have their path, and a script that shows them natively and harms nobody |
//! | `usage::` | what cannot be searched is said |

#[path = "symex/oracles.rs"]
mod oracles;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Report, Severity};
use brownout_tests::symex::{Build, binary};
use brownout_tests::{Invocation, Outcome, Scratch, check, layout, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(300);
/// Paths, not seconds, so that it does not depend on the machine: twice as many as any of these was
/// seen to need, with six seeds.
const FOUND_PATHS: &str = "1000";
/// No machine is so slow that this is what ends a search.
const LONG: &str = "280s";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("found::records", || found("records", Build::Bug)),
        trial("found::records_after_one", || {
            found("records", Build::BugAfterOne)
        }),
        trial("found::numbers", || found("numbers", Build::Bug)),
        trial("found::tokens", || found("tokens", Build::Bug)),
        trial("found::scan", || found("scan", Build::Bug)),
        trial("found::words", || found("words", Build::Bug)),
        trial("found::order", || found("order", Build::BugAfterOne)),
        trial("silent::records", || silent("records")),
        trial("silent::numbers", || silent("numbers")),
        trial("silent::words", || silent("words")),
        trial("silent::order", || silent("order")),
        trial("plain::words", || plain("words")),
        trial("plain::scan", || plain("scan")),
        trial("found::scanned", scanned),
        trial("found::behind_a_word_that_was_empty", behind_an_empty_word),
        trial("hangs::found", hang_is_found),
        trial("hangs::nothing_is_claimed", hang_before_a_branch),
        trial("strategies::differ", strategies_differ),
        trial("real::gzip", || {
            real("25", &["--stdin-symbolic", "16"], &["gzip", "-t"])
        }),
        trial("real::sqlite3", || {
            real("25", &["--stdin-symbolic", "12"], &["sqlite3"])
        }),
        trial("real::python3", || {
            // It takes a second or two, or many if the machine has much else to do.
            let options = ["--stdin-symbolic", "6", "--hang-after", "60s"];
            real("4", &options, &["python3", "-I", "-S", "-c", COMPILES])
        }),
        trial("real::memcached", || {
            served(&MEMCACHED, MEMCACHED_OPERATIONS)
        }),
        trial("real::redis", || served(&REDIS, REDIS_OPERATIONS)),
        trial("ways::file", || {
            way(&["--file-symbolic", "in:4"], &["file", "in"])
        }),
        trial("ways::mapped", || {
            way(&["--file-symbolic", "4"], &["map", "@@"])
        }),
        trial("ways::argument", || {
            way(&["--arguments-symbolic", "4"], &["words", "x", "@@1"])
        }),
        trial("ways::connection", || {
            way(&["--socket-symbolic", "8"], &["serve"])
        }),
        trial("ways::connection_of_a_child", || {
            way(&["--socket-symbolic", "8"], &["fork"])
        }),
        trial("ways::template", template),
        trial("pool::log", || pool("log", "64+16", ends_behind)),
        trial("pool::chain", || pool("chain", "128+16", leads_behind)),
        trial("pool::usage", pool_usage),
        trial("crashes::explored", crashes_are_explored),
        trial("campaign::resumed", campaign),
        trial("usage::reads_nothing", reads_nothing),
        trial("usage::reads_no_file", reads_no_file),
        trial("usage::static_program", static_program),
        trial("usage::32_bit", bits_32),
        trial("usage::sources", sources),
        trial("usage::compares_nothing", compares_nothing),
        trial("usage::has_it_copied", has_it_copied),
        trial("usage::no_bytes", no_bytes),
        trial("usage::no_such_program", no_such_program),
        trial("usage::set_up_fails", set_up_fails),
    ];
    trials.extend(oracles::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

/// `brownout symex` with these options, on this program.
fn run(options: &[&str], program: &[&str], scratch: &Scratch) -> Result<Outcome> {
    let brownout = layout::brownout();
    let mut argv = vec![
        brownout.as_os_str(),
        "symex".as_ref(),
        "--no-config".as_ref(),
    ];
    argv.extend(options.iter().map(std::ffi::OsStr::new));
    argv.push("--".as_ref());
    argv.extend(program.iter().map(std::ffi::OsStr::new));
    Invocation::new(argv, scratch.path()).timeout(TIMEOUT).run()
}

fn report(options: &[&str], program: &[&str], scratch: &Scratch) -> Result<(Outcome, Report)> {
    let mut all = vec!["--format", "json", "-o", "report.json"];
    all.extend(options);
    let outcome = run(&all, program, scratch)?;
    let text = fs::read_to_string(scratch.join("report.json"));
    let text = text.with_context(|| outcome.describe())?;
    Ok((outcome, serde_json::from_str(&text)?))
}

fn statistic(report: &Report, name: &str) -> u64 {
    let number = report
        .statistics
        .get(name)
        .and_then(serde_json::Value::as_u64);
    number.unwrap_or_default()
}

fn found(name: &str, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, build);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "36",
        "--paths",
        FOUND_PATHS,
        "--time",
        LONG,
        "--until-found",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    let mut findings = report.findings.iter();
    let finding = findings.find(|finding| finding.severity == Severity::Correctness);
    let finding =
        finding.with_context(|| format!("{}\n{}", outcome.describe(), check::show(&report)))?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let first = report.statistics.get("first_error_seconds");
    ensure!(
        first.is_some_and(serde_json::Value::is_f64),
        "the report does not say when: {first:?}"
    );
    ensure!(
        finding.rule.as_str() == "missing-flush",
        "{}",
        check::show(&report)
    );
    ensure!(
        finding
            .events
            .iter()
            .any(|event| check::is_inside(event, "put")),
        "{}",
        check::show(&report)
    );
    ensure!(
        !scratch.join("pool").exists(),
        "the program's own file was made"
    );
    // The input is a file, and natively it does what the finding says: the special key is stored.
    let input = oracles::input_file(&scratch)?;
    ensure!(special(&program, &input, &scratch)? == 4242);
    fs::remove_file(scratch.join("pool"))?;
    let token = &finding.replay.as_ref().context("a token")?.token;
    for _ in 0..3 {
        let outcome = check::replay(token, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            outcome.status == 1 && outcome.stderr_text().contains("shows again"),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// What the native program stores as the special key when it reads this.
fn special(program: &str, input: &Path, scratch: &Scratch) -> Result<u64> {
    const SPECIAL: usize = 192;
    let status = Command::new(program)
        .arg("pool")
        .current_dir(scratch.path())
        .stdin(Stdio::from(fs::File::open(input)?))
        .status()?;
    ensure!(status.code().is_some(), "{status}");
    let pool = fs::read(scratch.join("pool"))?;
    let bytes = pool.get(SPECIAL..).and_then(|rest| rest.first_chunk());
    Ok(u64::from_le_bytes(*bytes.context("a short pool")?))
}

fn silent(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, Build::Fixed);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "24",
        "--paths",
        "60",
        "--time",
        "240s",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    ensure!(report.findings.is_empty(), "{}", check::show(&report));
    // It says that it is a search, or that nothing was there to look at.
    ensure!(matches!(outcome.status, 0 | 3), "{}", outcome.describe());
    ensure!(statistic(&report, "paths") >= 40, "{}", outcome.describe());
    let (turned, diverged) = (statistic(&report, "turned"), statistic(&report, "diverged"));
    ensure!(diverged * 50 <= turned, "{diverged} of {turned} diverged");
    Ok(())
}

fn plain(name: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary(name, Build::Fixed);
    let program = program.to_string_lossy();
    let options = ["--pm", "pool", "--stdin-symbolic", "24", "--paths", "30"];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    ensure!(statistic(&report, "paths") >= 20, "{}", outcome.describe());
    let notes = report.notes.join("\n");
    ensure!(!notes.contains("not described"), "{notes}");
    Ok(())
}

/// A few paths of a program that nobody wrote for this.
fn real(paths: &str, options: &[&str], program: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut all = vec!["--pm", "pool", "--paths", paths, "--time", "240s"];
    all.extend(options);
    let (outcome, report) = report(&all, program, &scratch)?;
    // It has no persistent memory, and the report says so.
    ensure!(outcome.status == 3, "{}", outcome.describe());
    let few = paths.parse::<u64>()?.min(5);
    ensure!(statistic(&report, "paths") >= few, "{}", outcome.describe());
    let (turned, diverged) = (statistic(&report, "turned"), statistic(&report, "diverged"));
    ensure!(diverged * 20 <= turned, "{diverged} of {turned} diverged");
    Ok(())
}

/// Python's own parser gets a line.
const COMPILES: &str = "import os
try: compile(os.read(0, 6), 'line', 'exec')
except Exception: pass";

const MEMCACHED: [&str; 9] = [
    "memcached",
    "-p",
    "7777",
    "-U",
    "0",
    "-u",
    "root",
    "-t",
    "1",
];
const MEMCACHED_OPERATIONS: &str = "@separator \\r\\n\nset {key:3} 0 0 2\\r\\nhi\nget {key:3}\n";
const REDIS: [&str; 7] = [
    "redis-server",
    "--save",
    "",
    "--appendonly",
    "no",
    "--port",
    "7777",
];
const REDIS_OPERATIONS: &str = "@separator \\r\\n\nset {key:3} {value:2}\nget {key:3}\n";

/// A server of which only the keys are solved for.
fn served(program: &[&str], operations: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let template = scratch.join("operations");
    fs::write(&template, operations)?;
    let template = template.to_string_lossy();
    let options = ["--socket", "tcp:7777", "--template", &template];
    real("4", &options, program)
}

/// The end of a text is found by a repeated instruction that could go on for ever: gcc has that for
/// `strlen` with `-Os`.
fn scanned() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        int main(void) {
            char text[16] = {0}, *end = text;
            unsigned long count = -1;
            if (read(0, text, 8) != 8) return 1;
            __asm__("repne scasb" : "+D"(end), "+c"(count) : "a"(0), "m"(text));
            if (end - text == 4) abort();
            return 0;
        }
    "#;
    let program = compile(&scratch, source, &["-O1"])?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8", "--paths", "40"];
    let (outcome, report) = report(&options, &[&program], &scratch)?;
    let mut rules = report.findings.iter().map(|finding| finding.rule.as_str());
    ensure!(rules.any(|rule| rule == "crash"), "{}", outcome.describe());
    let notes = report.notes.join("\n");
    ensure!(!notes.contains("not described"), "{notes}");
    Ok(())
}

/// Where a word is empty, it is compared with nothing, so nothing says that it matters.
fn behind_an_empty_word() -> Result<()> {
    let source = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        static char text[25];
        static int at;
        static void blanks(void) { while (text[at] == ' ') at++; }
        static int is(char letter) { blanks(); return text[at] == letter && ++at; }
        int main(void) {
            char word[8] = {0};
            int n = 0, number = 0, digits = 0;
            if (read(0, text, 24) != 24) return 1;
            if (!is('{') || !is('"')) return 2;
            while (text[at] != '"' && n < 7) word[n++] = text[at++];
            if (!is('"') || !is(':')) return 3;
            blanks();
            while (text[at] >= '0' && text[at] <= '9') number = number * 10 + text[at++] - '0', digits++;
            if (!digits || !is('}')) return 4;
            if (strcmp(word, "k") == 0 && number == 4242) abort();
            return 0;
        }
    "#;
    let scratch = Scratch::new()?;
    let program = compile(&scratch, source, &["-O1"])?;
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "24",
        "--paths",
        FOUND_PATHS,
        "--until-found",
        "--time",
        LONG,
    ];
    let (outcome, report) = report(&options, &[&program], &scratch)?;
    let mut rules = report.findings.iter().map(|finding| finding.rule.as_str());
    ensure!(rules.any(|rule| rule == "crash"), "{}", outcome.describe());
    Ok(())
}

/// What a report says, in one text.
fn told(report: &Report) -> String {
    let limits = report.coverage.limitations.iter();
    let limits = limits.map(|limit| limit.text.as_str());
    let notes = report.notes.iter().map(String::as_str);
    limits.chain(notes).collect::<Vec<_>>().join("\n")
}

/// Some letters have the program wait or go round for ever.
fn hang_is_found() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = r#"
        #include <unistd.h>
        int main(void) {
            char letter;
            if (read(0, &letter, 1) != 1) return 1;
            if (letter == 'k') for (;;) pause();
            if (letter == 'l') for (;;) __asm__ volatile("");
            return letter == 'z';
        }
    "#;
    let program = compile(&scratch, source, &["-O1"])?;
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "1",
        "--hang-after",
        "200ms",
    ];
    let (outcome, report) = report(&options, &[&program], &scratch)?;
    let hangs: Vec<_> = report.findings.iter().collect();
    let [hang] = hangs[..] else {
        anyhow::bail!("{}\n{}", outcome.describe(), check::show(&report));
    };
    ensure!(hang.rule.as_str() == "hang", "{}", check::show(&report));
    let input = hang.notes.iter().find(|note| note.starts_with("input: "));
    let input = input.context("an input")?;
    ensure!(
        ["k", "l"].iter().any(|letter| input.contains(letter)),
        "{input}"
    );
    ensure!(statistic(&report, "endless") == 2, "{}", outcome.describe());
    let told = told(&report);
    ensure!(
        told.contains("2 runs did not end by themselves") && told.contains("took too long"),
        "{told}"
    );
    // A warning is no failure, but not all was judged.
    ensure!(outcome.status == 3, "{}", outcome.describe());
    let token = &hang.replay.as_ref().context("a token")?.token;
    shows_again(token, &scratch)
}

/// What follows the end of the part that is known may depend on the input.
fn hang_before_a_branch() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = r#"
        #include <unistd.h>
        int main(void) {
            char letter;
            if (read(0, &letter, 1) != 1) return 1;
            for (int n = 0; n < 1000; n++) pause();
            return letter == 'z';
        }
    "#;
    let program = compile(&scratch, source, &["-O1"])?;
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "1",
        "--hang-after",
        "500ms",
    ];
    let (_, report) = report(&options, &[&program], &scratch)?;
    let told = told(&report);
    ensure!(
        told.contains("no branch was seen that depends on what the program reads")
            && !told.contains("no branch of the program depends")
            && !told.contains("no branch is left that can be turned with"),
        "{told}"
    );
    Ok(())
}

/// Depth-first and random run nothing but what was solved for; coverage tries what else leads to
/// new code.
fn strategies_differ() -> Result<()> {
    let program = binary("scan", Build::Fixed);
    let program = program.to_string_lossy();
    for (strategy, makes) in [
        ("depth-first", false),
        ("random", false),
        ("coverage", true),
    ] {
        let scratch = Scratch::new()?;
        let options = [
            "--pm",
            "pool",
            "--stdin-symbolic",
            "16",
            "--paths",
            "30",
            "--strategy",
            strategy,
        ];
        let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
        ensure!(statistic(&report, "paths") == 30, "{}", outcome.describe());
        let made = statistic(&report, "made");
        ensure!((made > 0) == makes, "{strategy}: {made} were made");
    }
    Ok(())
}

/// A key that only comparisons know, by a way that options say.
fn way(options: &[&str], words: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    for build in [Build::Bug, Build::Fixed] {
        let program = binary("ways", build);
        let program = program.to_string_lossy();
        let mut all = vec!["--pm", "pool", "--paths", "120", "--until-found"];
        all.extend(options);
        let mut argv = vec![&*program];
        argv.extend(words);
        argv.push("pool");
        let (outcome, report) = report(&all, &argv, &scratch)?;
        ensure!(
            !scratch.join("pool").exists() && !scratch.join("in").exists(),
            "a file was made"
        );
        if build == Build::Fixed {
            ensure!(report.findings.is_empty(), "{}", check::show(&report));
            continue;
        }
        let [finding] = &report.findings[..] else {
            anyhow::bail!("{}\n{}", outcome.describe(), check::show(&report));
        };
        ensure!(finding.rule.as_str() == "missing-flush" && outcome.status == 1);
        ensure!(
            finding.notes.iter().any(|note| note.contains("4242")),
            "{:?}",
            finding.notes
        );
        shows_again(&finding.replay.as_ref().context("a token")?.token, &scratch)?;
    }
    Ok(())
}

fn shows_again(token: &str, scratch: &Scratch) -> Result<()> {
    let replay = check::replay(token, scratch.path());
    let outcome = replay.timeout(TIMEOUT).run()?;
    ensure!(
        outcome.status == 1 && outcome.stderr_text().contains("shows again"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

/// Only the fields of a template are solved for.
fn template() -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.join("operations"), "@separator\nput {key:4}\n")?;
    let program = binary("ways", Build::Bug);
    let program = program.to_string_lossy();
    let options = [
        "--pm",
        "pool",
        "--paths",
        "120",
        "--until-found",
        "--socket",
        "tcp:7070",
        "--template",
        "operations",
    ];
    let (outcome, report) = report(&options, &[&program, "serve", "pool"], &scratch)?;
    let [finding] = &report.findings[..] else {
        anyhow::bail!("{}\n{}", outcome.describe(), check::show(&report));
    };
    let input = finding
        .notes
        .iter()
        .any(|note| note == "input: \"put 4242\"");
    ensure!(input, "{:?}", finding.notes);
    // Nothing else was changed.
    let one = fs::read(oracles::input_file(&scratch)?)?;
    ensure!(one == b"put 4242", "{}", one.escape_ascii());
    Ok(())
}

/// Recovery on any content of a part of the pool.
fn pool(name: &str, range: &str, is_wrong: fn(&[u8]) -> bool) -> Result<()> {
    let scratch = Scratch::new()?;
    for build in [Build::Bug, Build::Fixed] {
        let program = binary(name, build);
        let program = program.to_string_lossy();
        let setup = format!("{program} pool hello");
        let options = [
            "--pm",
            "pool",
            "--setup",
            &setup,
            "--pool-symbolic",
            range,
            "--paths",
            "100",
            "--until-found",
        ];
        let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
        ensure!(!scratch.join("pool").exists(), "the pool was made");
        if build == Build::Fixed {
            ensure!(report.findings.is_empty(), "{}", check::show(&report));
            ensure!(statistic(&report, "paths") >= 10, "{}", outcome.describe());
            continue;
        }
        let [finding] = &report.findings[..] else {
            anyhow::bail!("{}\n{}", outcome.describe(), check::show(&report));
        };
        ensure!(finding.rule.as_str() == "crash" && outcome.status == 1);
        let is_there = |event| check::is_inside(event, "recover");
        ensure!(
            finding.events.iter().any(is_there),
            "{}",
            check::show(&report)
        );
        let says =
            |note: &String| note.contains("behind the end of where") && note.contains("pool");
        ensure!(finding.notes.iter().any(says), "{:?}", finding.notes);
        shows_again(&finding.replay.as_ref().context("a token")?.token, &scratch)?;
        // The content is wrong in the way that the program's source says. (Natively, other memory
        // may lie behind the pool, and nothing shows.)
        let content = fs::read(oracles::input_file(&scratch)?)?;
        ensure!(is_wrong(&content), "{}", content.escape_ascii());
        fs::remove_dir_all(scratch.join("brownout-symex"))?;
    }
    Ok(())
}

/// Whether one of the records of `log.c`, from its beginning, reaches behind the log.
fn ends_behind(content: &[u8]) -> bool {
    const ROOM: usize = 1024 - 64;
    let number = |at: usize| match content.get(at..at + 2) {
        Some(bytes) => usize::from(bytes[0]) | usize::from(bytes[1]) << 8,
        None => 0,
    };
    let mut at = 0;
    while at < ROOM && number(at) == 7 {
        at += 4 + number(at + 2);
    }
    at > ROOM
}

/// Whether the first node of `chain.c` leads out of the pool.
fn leads_behind(content: &[u8]) -> bool {
    let next = content
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes));
    next.is_some_and(|next| next > 4096 - 16)
}

fn pool_usage() -> Result<()> {
    let scratch = Scratch::new()?;
    let cases = [
        (["--pool-symbolic", "0+8"], "which file?"),
        (["--pool-symbolic", "pool:8-8"], "is no range"),
        (["--pool-symbolic", "pool:0+8,4+8"], "overlap"),
        (["--pool-symbolic", "no-such-pool:0+8"], "no-such-pool"),
        (["--pool-symbolic", "short:0+8"], "it has 3 bytes"),
    ];
    fs::write(scratch.join("short"), "abc")?;
    for (options, what) in cases {
        let outcome = run(&options, &["/bin/cat", "short"], &scratch)?;
        says(&outcome, 2, what)?;
    }
    Ok(())
}

/// A path on which a crash leaves what recovery does not understand.
fn crashes_are_explored() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary("torn", Build::Bug);
    let program = program.to_string_lossy();
    let recover = format!("{program} pool check");
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "2",
        "--recover",
        &recover,
        "--explore-share",
        "90",
        "--paths",
        "40",
    ];
    let (outcome, report) = report(&options, &[&program, "pool"], &scratch)?;
    let mut findings = report.findings.iter();
    let finding = findings.find(|finding| finding.rule.as_str() == "recovery-error");
    let finding =
        finding.with_context(|| format!("{}\n{}", outcome.describe(), check::show(&report)))?;
    ensure!(outcome.status == 1 && statistic(&report, "explored") >= 1);
    shows_again(&finding.replay.as_ref().context("a token")?.token, &scratch)?;
    let program = binary("torn", Build::Fixed);
    let program = program.to_string_lossy();
    let recover = format!("{program} pool check");
    let options = [
        "--pm",
        "pool",
        "--stdin-symbolic",
        "2",
        "--recover",
        &recover,
        "--explore-share",
        "90",
        "--paths",
        "40",
    ];
    let (outcome, report) = self::report(&options, &[&program, "pool"], &scratch)?;
    ensure!(report.findings.is_empty(), "{}", check::show(&report));
    ensure!(
        statistic(&report, "explored") >= 1,
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn campaign() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = binary("records", Build::Fixed);
    let program = program.to_string_lossy();
    let run = |more: &[&str]| {
        let mut options = vec!["--pm", "pool", "--stdin-symbolic", "24", "--out", "kept"];
        options.extend(more);
        report(&options, &[&program, "pool"], &scratch)
    };
    let tests = || -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(scratch.join("kept/tests"))? {
            paths.push(entry?.path());
        }
        paths.sort();
        paths.iter().map(|path| Ok(fs::read(path)?)).collect()
    };
    let (_, first) = run(&["--paths", "80", "--jobs", "2"])?;
    let kept = tests()?;
    ensure!(!kept.is_empty() && statistic(&first, "paths") >= 80);
    // Two of the same folder are one too many.
    let outcome = self::run(
        &["--pm", "pool", "--stdin-symbolic", "24", "--out", "kept"],
        &[&program, "pool"],
        &scratch,
    )?;
    says(&outcome, 2, "already holds a campaign")?;
    let outcome = self::run(
        &[
            "--pm",
            "pool",
            "--stdin-symbolic",
            "25",
            "--out",
            "kept",
            "--resume",
        ],
        &[&program, "pool"],
        &scratch,
    )?;
    says(&outcome, 2, "input")?;
    // As many paths as it takes to run what was kept: nothing is to be solved for again.
    let few = (kept.len() + 1).to_string();
    let (_, second) = run(&["--resume", "--paths", &few])?;
    let before = format!(
        "{} had been kept before",
        brownout_findings::numbers::counted(kept.len() as u64, "input")
    );
    ensure!(
        second.notes.iter().any(|note| note.starts_with(&before)),
        "{:?}",
        second.notes
    );
    ensure!(statistic(&second, "pm_paths") >= statistic(&first, "pm_paths"));
    ensure!(tests()?.starts_with(&kept));
    // The folder has a page: what was reached when, in both runs.
    let page = scratch.join("page.html");
    let made = Command::new(layout::brownout())
        .arg("report")
        .arg(scratch.join("kept"))
        .arg("-o")
        .arg(&page)
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    let page = fs::read_to_string(&page)?;
    for expected in ["symex of ", "PM paths", "branches to turn"] {
        ensure!(page.contains(expected), "the page lacks {expected:?}");
    }
    Ok(())
}

fn says(outcome: &Outcome, status: i32, what: &str) -> Result<()> {
    ensure!(
        outcome.status == status && outcome.stderr_text().contains(what),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn reads_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    let outcome = run(&options, &["/bin/true"], &scratch)?;
    says(&outcome, 3, "reads nothing from its standard input")
}

/// Compiles a program of a few lines.
fn compile(scratch: &Scratch, source: &str, options: &[&str]) -> Result<String> {
    let file = scratch.join("program.c");
    fs::write(&file, source)?;
    check::compile(&file, scratch.join("program"), options)?;
    Ok("./program".to_owned())
}

fn reads_no_file() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--pm", "pool", "--file-symbolic", "in:8"];
    let outcome = run(&options, &["/bin/true"], &scratch)?;
    says(&outcome, 3, "reads nothing from")
}

fn static_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = r#"
        #include <stdio.h>
        int main(void) { return getchar() == 'k' && getchar() == 'z' ? 7 : 0; }
    "#;
    let program = compile(&scratch, source, &["-O1", "-static-pie"])?;
    let options = ["--pm", "pool", "--stdin-symbolic", "2", "--paths", "20"];
    let (outcome, report) = report(&options, &[&program], &scratch)?;
    // It works as any other; there is no persistent memory, which is said.
    ensure!(outcome.status == 3, "{}", outcome.describe());
    ensure!(statistic(&report, "paths") >= 3, "{}", outcome.describe());
    Ok(())
}

fn bits_32() -> Result<()> {
    let scratch = Scratch::new()?;
    // The head of an executable file for i386, which no kernel need start.
    let mut head = b"\x7fELF\x01\x01\x01".to_vec();
    head.resize(16, 0);
    head.extend([2, 0, 3, 0, 1, 0, 0, 0]);
    head.resize(4096, 0);
    let path = scratch.join("program");
    fs::write(&path, head)?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    let outcome = run(&options, &["./program"], &scratch)?;
    says(&outcome, 3, "32-bit")
}

fn sources() -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.join("fixed"), "quit\n")?;
    let cases: [(&[&str], &str); 6] = [
        (&["--file-symbolic", "8"], "'@@' in the arguments"),
        (&["--file-symbolic", ":8"], "NAME:N"),
        (&["--arguments-symbolic", "8"], "'@@1' in the arguments"),
        (
            &["--stdin-symbolic", "8", "--socket-symbolic", "8"],
            "cannot be used with",
        ),
        (&["--stdin-symbolic", "8", "--resume"], "--out"),
        (&["--template", "fixed"], "no operation has a field"),
    ];
    for (options, what) in cases {
        says(&run(options, &["/bin/cat"], &scratch)?, 2, what)?;
    }
    Ok(())
}

fn compares_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    let outcome = run(&options, &["/usr/bin/tee"], &scratch)?;
    says(
        &outcome,
        3,
        "no branch of the program depends on what it reads from its standard input",
    )
}

fn has_it_copied() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = r#"
        #define _GNU_SOURCE
        #include <sys/sendfile.h>
        #include <unistd.h>
        int main(void) { return sendfile(1, 0, 0, 8) != 8; }
    "#;
    let program = compile(&scratch, source, &["-O1"])?;
    let options = ["--pm", "pool", "--stdin-symbolic", "8"];
    let outcome = run(&options, &[&program], &scratch)?;
    says(
        &outcome,
        3,
        "has the kernel copy what comes from its standard input, and reads none of it itself",
    )
}

fn no_bytes() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = run(&[], &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "--stdin-symbolic")?;
    fs::write(scratch.join("empty"), "")?;
    let outcome = run(&["--stdin", "empty"], &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "no byte to solve for")
}

fn no_such_program() -> Result<()> {
    let scratch = Scratch::new()?;
    let outcome = run(&["--stdin-symbolic", "8"], &["./no-such-program"], &scratch)?;
    says(&outcome, 3, "no-such-program")
}

fn set_up_fails() -> Result<()> {
    let scratch = Scratch::new()?;
    let options = ["--stdin-symbolic", "8", "--setup", "exit 7"];
    let outcome = run(&options, &["/bin/cat"], &scratch)?;
    says(&outcome, 2, "exit code 7")
}
