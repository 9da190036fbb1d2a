//! `--threads`: what threads could read of each other too early is found where it is, whatever the
//! order of the run; and nothing is said where a lock or an order keeps them apart. The program is
//! `threads.c`, one way a run.

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Severity};
use brownout_tests::{Invocation, Scratch, check, layout, trial};
use libtest_mimic::Trial;

use super::TIMEOUT;
use super::modules::compile;

const PROGRAM: &str = include_str!("threads.c");
const RULE: &str = "unpersisted-publication";
const OPTIONS: [&str; 5] = ["--threads", "--only", RULE, "--pm", "*.pm"];

/// A way to go wrong; where the store is, and where the lock is given back; whether it really
/// happens.
const WRONG: &[(&str, &str, Option<&str>, bool)] = &[
    ("mutex-late", "store", Some("unlock"), false),
    ("mutex-early", "store", Some("unlock"), false),
    ("trylock", "store", Some("unlock"), false),
    ("rwlock", "store", Some("unlock"), false),
    ("spin", "store", Some("unlock"), false),
    ("c11", "store", Some("unlock"), false),
    ("inside", "store", Some("unlock"), false),
    ("waiting", "waiting-store", Some("waiting-unlock"), false),
    ("free-late", "free-store", None, false),
    ("free-early", "free-store", None, false),
    ("slow", "slow-store", None, true),
    ("never", "never-store", None, true),
];

/// Ways that are always right.
const RIGHT: &[&str] = &[
    "semaphore",
    "condition",
    "barrier",
    "pipe",
    "yield",
    "poll",
    "join",
    "init",
    "link",
    "word",
    "beside",
    "dram",
    "exchange",
    "own",
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("threads::wrong", wrong),
        trial("threads::right", right),
        trial("threads::recorded", recorded),
        trial("threads::alone", alone),
        trial("threads::asked_for", asked_for),
    ]
}

fn program() -> Result<Scratch> {
    let scratch = Scratch::new()?;
    compile(&scratch, PROGRAM, "threads", &["-pthread"])?;
    Ok(scratch)
}

fn native(scratch: &Scratch, way: &str, how: &str) -> Invocation {
    let pool = format!("{way}-{how}.pm");
    Invocation::new(["./threads", &pool, way, how], scratch.path()).timeout(TIMEOUT)
}

fn is_marked(finding: &Finding, role: &str, marker: &str) -> bool {
    let line = PROGRAM
        .lines()
        .position(|line| line.contains(&format!("/* @{marker} */")))
        .map(|line| line as u32 + 1);
    let mut events = finding.events.iter();
    events.any(|event| {
        event.role.name() == role
            && line.is_some_and(|line| check::is_at_line(event, "threads.c", line))
    })
}

fn wrong() -> Result<()> {
    let scratch = program()?;
    for (way, store, unlock, happens) in WRONG {
        let checked = check::run(&native(&scratch, way, "wrong"), &OPTIONS)?;
        // A warning does not fail anybody's build.
        checked.expect_status(0).context(*way)?;
        let found = checked.of(RULE);
        ensure!(found.len() == 1, "{way}: {} findings", found.len());
        let finding = found[0];
        ensure!(finding.severity == Severity::Warning, "{way}");
        ensure!(is_marked(finding, "store", store), "{way}: {finding:?}");
        let is_unlocked = finding.events.iter().any(|e| e.role.name() == "unlock");
        match unlock {
            Some(unlock) => ensure!(is_marked(finding, "unlock", unlock), "{way}: {finding:?}"),
            None => ensure!(!is_unlocked, "{way}: {finding:?}"),
        }
        let said = format!("{finding:?}").contains("it happened in this run");
        ensure!(said == *happens, "{way}: {finding:?}");
        let checked = check::run(&native(&scratch, way, "right"), &OPTIONS)?;
        ensure!(checked.of(RULE).is_empty(), "{way}: {:?}", checked.report);
    }
    Ok(())
}

fn right() -> Result<()> {
    let scratch = program()?;
    for way in RIGHT {
        let checked = check::run(&native(&scratch, way, "right"), &OPTIONS)?;
        checked.expect_status(0).context(*way)?;
        ensure!(checked.of(RULE).is_empty(), "{way}: {:?}", checked.report);
    }
    Ok(())
}

/// A recording says what the run said; one without loads or locks is refused, with the way to make
/// it.
fn recorded() -> Result<()> {
    let scratch = program()?;
    let native = native(&scratch, "mutex-late", "wrong");
    let record = |options: &[&str], out: &str| -> Result<()> {
        let mut words = vec![layout::brownout().into_os_string()];
        let options = [&["record", "--pm", "*.pm", "-o", out], options].concat();
        words.extend(options.iter().map(|word| word.into()));
        words.push("--".into());
        words.extend(native.argv.iter().cloned());
        let recorded = Invocation::new(words, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(recorded.status == 0, "{recorded:?}");
        Ok(())
    };
    record(&["--loads", "--threads"], "whole.trace")?;
    let checked = check::run_recorded(
        &["--threads", "--only", RULE, "--trace", "whole.trace"],
        scratch.path(),
    )?;
    let found = checked.of(RULE);
    ensure!(
        found.len() == 1 && is_marked(found[0], "unlock", "unlock"),
        "{found:?}"
    );
    record(&["--loads"], "lockless.trace")?;
    record(&["--threads"], "loadless.trace")?;
    for trace in ["lockless.trace", "loadless.trace"] {
        let options = ["--threads", "--trace", trace];
        let refused = check::command_without_program(&options, scratch.path()).run()?;
        ensure!(
            refused.status == 2 && refused.stderr_text().contains("record --loads --threads"),
            "{trace}: {refused:?}"
        );
    }
    Ok(())
}

fn alone() -> Result<()> {
    let scratch = program()?;
    let checked = check::run(&native(&scratch, "alone", "right"), &OPTIONS)?;
    checked.expect_status(0)?;
    checked.expect_note("one thread only: nothing to predict")
}

/// The rule is on with `--threads` unless it is switched off, and asking for it alone is an error
/// that says what to add.
fn asked_for() -> Result<()> {
    let scratch = program()?;
    let native = native(&scratch, "mutex-late", "wrong");
    let found = |options: &[&str]| -> Result<usize> {
        let options = [options, &["--pm", "*.pm"]].concat();
        Ok(check::run(&native, &options)?.of(RULE).len())
    };
    ensure!(found(&["--threads"])? == 1);
    ensure!(found(&["--threads", "--disable", RULE])? == 0);
    ensure!(found(&["--threads", "--disable", "all"])? == 0);
    ensure!(found(&[])? == 0);
    ensure!(found(&["--enable", "all"])? == 0);
    let refused = check::command(&native, &["--only", RULE]).run()?;
    ensure!(
        refused.status == 2 && refused.stderr_text().contains("add --threads"),
        "{refused:?}"
    );
    let refused = check::command(&native, &["--threads", "--domain", "hops"]).run()?;
    ensure!(refused.status == 2, "{refused:?}");
    Ok(())
}
