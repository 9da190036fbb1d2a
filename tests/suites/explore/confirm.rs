//! `brownout check --confirm`: what one run can only suspect is settled by exploration.
//!
//! Every planted missing flush or fence is confirmed, with a crash that was seen natively; what the
//! clean programs leave unflushed on purpose is harmless.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_findings::Report;
use brownout_tests::check::show;
use brownout_tests::seeded::{self, Build, Seeded};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Scratch, explore, layout};
use libtest_mimic::Trial;

use crate::trial;

const SUSPICIONS: [&str; 2] = ["missing-flush", "missing-fence"];

pub fn trials() -> Vec<Trial> {
    let programs = match seeded::discover() {
        Ok(programs) => programs,
        Err(error) => {
            return vec![broken("confirm::headers", &error)];
        }
    };
    let mut trials = Vec::new();
    for program in programs {
        let name = format!("confirm::{}", program.name.replace('/', "::"));
        let suspected = |rule: &str| SUSPICIONS.contains(&rule);
        if program.explore && program.bugs.iter().any(|bug| suspected(&bug.rule)) {
            let lacks_bug = program.lacks_bug();
            let trial = trial(name, move || confirmed(&program));
            trials.push(trial.with_ignored_flag(lacks_bug));
        } else if program.clean && program.allows.iter().any(|allow| suspected(&allow.rule)) {
            trials.push(trial(name, move || harmless(&program)));
        }
    }
    trials
}

/// Checks `run pool` with `check pool` as recovery.
fn settled(program: &Seeded, build: Build, status: i32) -> Result<Report> {
    let scratch = Scratch::new()?;
    let binary = program.binary(build);
    let recover = format!("{} check pool", binary.display());
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "check".into()];
    let options = [
        "--confirm",
        "--pm",
        "pool",
        "--format",
        "json",
        "-o",
        "report.json",
    ];
    argv.extend(options.map(OsString::from));
    argv.extend(
        [
            "--only",
            "missing-flush,missing-fence",
            "--recover",
            &recover,
        ]
        .map(OsString::from),
    );
    if let Some(domain) = &program.domain {
        argv.extend(["--domain", domain].map(OsString::from));
    }
    argv.extend(["--".into(), binary.into(), "run".into(), "pool".into()]);
    let outcome = Invocation::new(argv, scratch.path())
        .timeout(Duration::from_secs(120))
        .run()?;
    let report = explore::read(&scratch.path().join("report.json"))?;
    ensure!(
        outcome.status == status,
        "exit status {} instead of {status}\n{}\n{}",
        outcome.status,
        outcome.describe(),
        show(&report)
    );
    ensure!(!report.findings.is_empty(), "one run suspects nothing");
    Ok(report)
}

fn confirmed(program: &Seeded) -> Result<()> {
    let report = settled(program, Build::Bug, 1)?;
    for finding in &report.findings {
        let says = finding.notes.first().map_or("", String::as_str);
        ensure!(
            SUSPICIONS.contains(&finding.rule.as_str()) && says.starts_with("confirmed: "),
            "not confirmed\n{}",
            show(&report)
        );
        ensure!(
            explore::reproduction(finding)?.confirmed,
            "not seen natively\n{}",
            show(&report)
        );
    }
    Ok(())
}

fn harmless(program: &Seeded) -> Result<()> {
    let report = settled(program, Build::Fixed, 0)?;
    for finding in &report.findings {
        let says = finding.notes.first().map_or("", String::as_str);
        ensure!(
            finding.rule == "transient-data" && says.starts_with("harmless: "),
            "not harmless\n{}",
            show(&report)
        );
    }
    Ok(())
}
