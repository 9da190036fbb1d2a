//! The seeded programs (`tests/seeded`): what is planted is found where it is, and nothing else is.
//!
//! One trial a program and build (or case):
//!
//! | trials | what |
//! |---|---|
//! | `native::` | the program runs, and recovers from, an undisturbed run |
//! | `crash::` | the ground truth itself: the fixed twin recovers from every legal crash state, the wrong build not |
//! | `check::` | `brownout check` reports what the header says, and nothing else of a twin or a clean program |
//!
//! A finding is where it should be if the marked line is on the stack of its first event. `canary`
//! shows that the judgement can fail. What the headers mean is written in `tests/src/seeded.rs`;
//! how crash states are tried, in `tests/src/crash_states.rs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Finding, Report, Severity, Verdict};
use brownout_tests::crash_states::{self, Recovered};
use brownout_tests::seeded::{self, Build, Case, Expectation, Seeded, Symptom};
use brownout_tests::trial::broken;
use brownout_tests::{Invocation, Outcome, Scratch, layout, tool, trial};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Of how many images the recovery is cut short as well. `BROWNOUT_SEEDED_NESTED` sets another
/// number.
const NESTED: usize = 6;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let programs = seeded::discover().unwrap_or_else(|error| {
        trials.push(broken("headers", &error));
        Vec::new()
    });
    for program in programs {
        let name = program.name.replace('/', "::");
        for build in program.builds() {
            let label = format!("{name}::{}", build.name());
            // Reported as ignored.
            let lacks_bug = build.has_bug() && program.lacks_bug();
            trials.push(of(&program, format!("native::{label}"), move |program| {
                native(program, build, &[])
            }));
            trials.push(
                of(&program, format!("check::{label}"), move |program| {
                    check(program, build)
                })
                .with_ignored_flag(lacks_bug),
            );
            if program.cases.is_empty() && matches!(build, Build::Fixed | Build::Bug) {
                trials.push(
                    of(&program, format!("crash::{label}"), move |program| {
                        crash(program, build)
                    })
                    .with_ignored_flag(lacks_bug),
                );
            }
        }
        for case in program.cases.clone() {
            let label = format!(
                "{name}::case_{:02}_{}",
                case.number,
                case.kind.replace(' ', "_")
            );
            let number = case.number.to_string();
            trials.push(of(&program, format!("native::{label}"), move |program| {
                native(program, Build::Fixed, &[&number])
            }));
            trials.push(
                of(&program, format!("check::{label}"), move |program| {
                    check_case(program, &case)
                })
                .with_ignored_flag(program.lacks_bug()),
            );
        }
    }
    trials.push(trial("canary", canary));
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test of one program.
fn of(
    program: &Seeded,
    name: String,
    test: impl FnOnce(&Seeded) -> Result<()> + Send + 'static,
) -> Trial {
    let program = program.clone();
    trial(name, move || test(&program))
}

fn binary(program: &Seeded, build: Build) -> Result<PathBuf> {
    let path = program.binary(build);
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

fn invocation(
    program: &Seeded,
    build: Build,
    words: &[&str],
    scratch: &Scratch,
) -> Result<Invocation> {
    let mut argv = vec![binary(program, build)?.into_os_string()];
    argv.push(words[0].into());
    argv.push(scratch.join("pool").into());
    argv.extend(words[1..].iter().map(Into::into));
    Ok(Invocation::new(argv, scratch.path()).timeout(TIMEOUT))
}

fn native(program: &Seeded, build: Build, case: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut words = vec!["run"];
    words.extend(case);
    let run = invocation(program, build, &words, &scratch)?
        .run()?
        .expect_success("run")?;
    ensure!(
        run.stdout_text().lines().count() >= 2,
        "hardly anything is acknowledged\n{}",
        run.describe()
    );
    let checked = invocation(program, build, &["check"], &scratch)?.run()?;
    match program.normal.filter(|_| build.has_bug()) {
        None => {
            checked.clone().expect_success("check")?;
            ensure!(!checked.stdout.is_empty(), "check prints nothing");
        }
        Some(Symptom::Signal) => ensure!(checked.status > 128, "no signal\n{}", checked.describe()),
        Some(symptom) => bail!("{symptom:?} after an undisturbed run is not a thing"),
    }
    Ok(())
}

/// The ground truth: what crashes do to this build.
fn crash(program: &Seeded, build: Build) -> Result<()> {
    tool::expect_built()?;
    let binary = binary(program, build)?;
    let nested_max = match std::env::var("BROWNOUT_SEEDED_NESTED") {
        Ok(number) => number.parse().context("BROWNOUT_SEEDED_NESTED")?,
        Err(_) if program.crashes > 1 => usize::MAX,
        Err(_) => NESTED,
    };
    let fails = build.has_bug() && program.explore;
    let outcome = crash_states::explore(&binary, program.domain.as_deref(), nested_max)?;
    let Some(failure) = outcome.failure else {
        ensure!(
            !fails,
            "{} crash states, and none goes wrong",
            outcome.images
        );
        return Ok(());
    };
    ensure!(fails, "{}: {:?}", failure.place, failure.recovered);
    ensure!(
        (program.crashes > 1) == (outcome.nested > 0),
        "wrong after {} crashes, not after {}: {:?}",
        1 + u32::from(outcome.nested > 0),
        program.crashes,
        failure.recovered
    );
    let symptom = match failure.recovered {
        Recovered::Exit(1, _) => Symptom::Exit,
        Recovered::Signal(_) => Symptom::Signal,
        Recovered::Hang => Symptom::Hang,
        Recovered::Well(_) => Symptom::Ops,
        Recovered::Exit(code, message) => bail!("exit code {code}: {message}"),
    };
    ensure!(
        program.symptom == Some(symptom),
        "{symptom:?} instead of {:?}",
        program.symptom
    );
    Ok(())
}

fn report(
    program: &Seeded,
    build: Build,
    words: &[&str],
    scratch: &Scratch,
) -> Result<(Report, Outcome)> {
    tool::expect_built()?;
    let native = invocation(program, build, words, scratch)?;
    let out = scratch.join("report.json");
    let mut argv = vec![layout::brownout().into_os_string(), "check".into()];
    argv.extend(["--format", "json", "--fail-on", "never", "-o"].map(Into::into));
    argv.push(out.clone().into());
    argv.extend(["--pm".into(), scratch.join("pool").into()]);
    if let Some(domain) = &program.domain {
        argv.extend(["--domain".into(), domain.into()]);
    }
    argv.extend(program.options.iter().map(Into::into));
    argv.push("--".into());
    argv.extend(native.argv.iter().cloned());
    let outcome = Invocation { argv, ..native }
        .run()?
        .expect_success("brownout check")?;
    let text = std::fs::read(&out).context("no report was written")?;
    let report = serde_json::from_slice(&text).context("the report is no report")?;
    Ok((report, outcome))
}

fn check(program: &Seeded, build: Build) -> Result<()> {
    let scratch = Scratch::new()?;
    let (report, _) = report(program, build, &["run"], &scratch)?;
    let mut expected = Vec::new();
    if build.has_bug() {
        expected.extend(&program.bugs);
    }
    if build == Build::BugAssert {
        expected.extend(&program.asserts);
    }
    let allowed: Vec<&Expectation> = match build {
        Build::Annotated => Vec::new(),
        _ => program.allows.iter().collect(),
    };
    judge(program, &report, &expected, &allowed)
}

fn check_case(program: &Seeded, case: &Case) -> Result<()> {
    let scratch = Scratch::new()?;
    let number = case.number.to_string();
    let (report, _) = report(program, Build::Fixed, &["run", &number], &scratch)?;
    judge(program, &report, &[&case.expected], &[])
}

/// All of the expected, and of the others only what is allowed or has the same cause. Beside a
/// planted bug, performance findings of other rules are its by-products; without one there are
/// none.
fn judge(
    program: &Seeded,
    report: &Report,
    expected: &[&Expectation],
    allowed: &[&Expectation],
) -> Result<()> {
    ensure!(
        report.verdict != Verdict::NothingChecked,
        "no persistent memory was seen"
    );
    let mut causes = Vec::new();
    for expectation in expected {
        let found: Vec<&Finding> = report
            .findings
            .iter()
            .filter(|finding| fits(program, finding, expectation))
            .collect();
        ensure!(
            !found.is_empty(),
            "no {} at lines {:?}\n{}",
            expectation.rule,
            program.lines(expectation),
            show(report)
        );
        causes.extend(found.iter().map(|finding| finding.root_cause.as_str()));
    }
    for finding in &report.findings {
        let known = causes.contains(&finding.root_cause.as_str())
            || allowed
                .iter()
                .any(|expectation| fits(program, finding, expectation));
        let by_product = finding.severity == Severity::Performance
            && !expected.is_empty()
            && expected.iter().all(|e| finding.rule != e.rule);
        ensure!(
            known || by_product,
            "unexpected {}\n{}",
            finding.rule,
            show(report)
        );
    }
    Ok(())
}

/// The judgement can fail: it misses a bug that is not there, and notices one that nobody announced
/// or that lies elsewhere.
fn canary() -> Result<()> {
    let programs = seeded::discover()?;
    let program = programs
        .iter()
        .find(|program| program.name == "correctness/data_never_flushed")
        .context("the program is gone")?;
    let of = |build| -> Result<Report> {
        let scratch = Scratch::new()?;
        Ok(report(program, build, &["run"], &scratch)?.0)
    };
    let (bug, fixed) = (of(Build::Bug)?, of(Build::Fixed)?);
    let announced: Vec<&Expectation> = program.bugs.iter().collect();
    judge(program, &bug, &announced, &[])?;
    ensure!(judge(program, &fixed, &announced, &[]).is_err());
    ensure!(judge(program, &bug, &[], &[]).is_err());
    let elsewhere = Expectation {
        markers: vec!["no-such-marker".to_owned()],
        ..program.bugs[0].clone()
    };
    ensure!(judge(program, &bug, &[&elsewhere], &[]).is_err());
    let other_rule = Expectation {
        rule: "missing-fence".to_owned(),
        ..program.bugs[0].clone()
    };
    ensure!(judge(program, &bug, &[&other_rule], &[]).is_err());
    Ok(())
}

/// The rule, with one of the marked lines on the stack of its first event.
fn fits(program: &Seeded, finding: &Finding, expectation: &Expectation) -> bool {
    let lines = program.lines(expectation);
    let source = program.source.file_name();
    finding.rule == expectation.rule
        && finding.events.first().is_some_and(|event| {
            event.stack.iter().any(|frame| {
                let file = frame.file.as_ref().map(Path::new);
                file.and_then(Path::file_name) == source
                    && frame.line.is_some_and(|line| lines.contains(&line))
            })
        })
}

/// The findings in a few lines each.
fn show(report: &Report) -> String {
    let mut text = format!("{:?}, {} findings", report.verdict, report.findings.len());
    for finding in &report.findings {
        text += &format!("\n{}: {}", finding.rule, finding.message);
        for event in &finding.events {
            let frames: Vec<String> = event
                .stack
                .iter()
                .map(|frame| {
                    format!(
                        "{}:{}",
                        frame.function.as_deref().unwrap_or("?"),
                        frame.line.unwrap_or(0)
                    )
                })
                .collect();
            text += &format!("\n  {} [{}]", event.text, frames.join(" < "));
        }
    }
    text
}
