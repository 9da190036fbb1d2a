//! `brownout fuzz`: inputs and images that nobody has thought of.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use brownout_findings::numbers::counted;
use brownout_findings::rules::{Analysis, RuleSet};
use brownout_findings::{Analysed, Finding, Limit, Outcome, Report, Severity};
use brownout_fuzz::course::Moment;
use brownout_fuzz::{Error, Found, Kept, Named};
use brownout_report::html::campaign::{Image, Way};

use crate::exit::{self, Failure};
use crate::progress::{CampaignScreen, LiveLine};
use crate::record::hint;
use crate::reporting::{self, Again, Known, Subject};
use crate::resolve::{Fuzz, FuzzCommand};
use crate::signals;
use crate::terminal::{message, quote};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Launch(error) => error.into(),
            Error::Explore(error) => error.into(),
            Error::SetUp(_)
            | Error::Folder(_)
            | Error::Sync(_)
            | Error::Unknown(_)
            | Error::Occupied(_) => Failure::usage(error.to_string()),
            error => Failure::cannot_run(error.to_string()),
        }
    }
}

/// Fuzzes, reports, and says how to exit.
pub fn fuzz(fuzz: Fuzz) -> Result<u8, Failure> {
    let known = Known::read(&fuzz.report)?;
    let touches = fuzz.report.touches();
    let options = brownout_fuzz::Options {
        touches: touches.clone(),
        ..fuzz.options
    };
    signals::tell(&options.stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))?;
    let out = options.out.clone();
    let has_end = options.limits.time.is_some() || options.limits.executions.is_some();
    let words = std::iter::once(&options.target.program).chain(&options.target.args);
    let analysed = Analysed {
        analysis: Analysis::Fuzz.name().into(),
        program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
        domain: Some(options.check.model.domain.name().into()),
        ..Analysed::default()
    };
    let mut shown = CampaignScreen::new();
    let campaign = brownout_fuzz::fuzz(options, |snapshot| shown.show(snapshot));
    // The report is for the screen that the user had.
    drop(shown);
    let campaign = campaign?;
    let mut outcome = Outcome {
        statistics: campaign.progress.clone(),
        notes: campaign.notes,
        bug: campaign.bug,
        touched: touches.map(|touches| touches.total()),
        ..Outcome::default()
    };
    if campaign.progress.figures.touched == 0 {
        let hints = campaign.hints.iter().map(hint);
        let hints = hints.map(|hint| hint.trim_start_matches("hint: ").to_owned());
        outcome.notes.extend(hints);
        outcome
            .coverage
            .limit(Limit::Untouched, "no persistent memory was touched");
    }
    // That is what fuzzing is, so nobody need accept it; but nobody is told that all was looked at.
    let figures = &campaign.progress.figures;
    let mut cut = match figures.cut {
        0 => String::new(),
        cut => format!(
            ", of which {cut} were cut off because they did too much or took too much memory, and not judged"
        ),
    };
    let closely = "did too much to persistent memory to be looked at closely";
    match figures.left_out {
        0 => {}
        1 => cut += &format!("; 1 test case {closely}: what crashes of it leave was not tried"),
        n => {
            cut += &format!("; {n} test cases {closely}: what crashes of them leave was not tried")
        }
    }
    if figures.left_out > 0 && figures.recorded == 0 {
        outcome.coverage.limit(
            Limit::Limits,
            format!("no crash was tried: all test cases that were chosen {closely}"),
        );
    }
    outcome
        .coverage
        .limit(Limit::Sampled, sampled(campaign.progress.executions, &cut));
    outcome.coverage.accept(&[Limit::Sampled]);
    if let Some((why, times)) = campaign.unjudged {
        let times = match times {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        outcome
            .coverage
            .limit(Limit::Unjudged, format!("{why}{times}"));
    }
    if let Some((why, times)) = campaign.failed {
        let runs = match times {
            1 => "a run could not be made, or not be looked at closely".to_owned(),
            n => format!("{n} runs could not be made, or not be looked at closely; the first"),
        };
        outcome
            .coverage
            .limit(Limit::Unjudged, format!("{runs}: {why}"));
    }
    if campaign.over.is_none() && has_end && !campaign.is_found {
        outcome.coverage.limit(
            Limit::Interrupted,
            "ended before its time; --resume goes on",
        );
    }
    let folder = out.to_string_lossy().into_owned();
    let mut keys = Vec::new();
    for (key, found) in campaign.found {
        outcome.findings.push(told(&found, &folder, &key));
        keys.push(key);
    }
    let subject = Subject {
        analysed,
        rules: RuleSet::defaults(Analysis::Fuzz),
        status: exit::OK,
        command_line: &fuzz.command_line,
        wanted: None,
    };
    let replay = |number: usize| {
        let key = keys.get(number)?.clone();
        let words = ["fuzz", "repro", &folder, &key];
        Some(Again {
            words: words.map(str::to_owned).to_vec(),
            ..Again::default()
        })
    };
    reporting::conclude_each(&fuzz.report, &known, subject, outcome, replay)
}

/// How much was looked at.
fn sampled(executions: u64, cut: &str) -> String {
    format!(
        "{} {} made{cut}; others may show more",
        counted(executions, "execution"),
        if executions == 1 { "was" } else { "were" }
    )
}

/// A campaign as its folder has it, also while it goes on: a report of what was found until now,
/// and the images.
pub fn seen(folder: &Path, course: &[Moment]) -> Result<(Report, Vec<Image>), Failure> {
    let kept = Kept::look(folder)?;
    let mut outcome = Outcome {
        statistics: serde_json::Map::new(),
        ..Outcome::default()
    };
    let executions = course.last().map_or(0, |moment| moment.executions);
    outcome
        .coverage
        .limit(Limit::Sampled, sampled(executions, ""));
    outcome.coverage.accept(&[Limit::Sampled]);
    outcome
        .notes
        .push(format!("begun by: {}", kept.settings.command_line));
    let mut keys = Vec::new();
    for (key, found) in &kept.found {
        let folder = folder.to_string_lossy();
        outcome.findings.push(told(found, &folder, key));
        keys.push(key.clone());
    }
    let program = std::iter::once(&kept.key.program).chain(&kept.key.args);
    let analysed = Analysed {
        program: program.cloned().collect(),
        domain: Some(kept.settings.domain.clone()),
        ..Analysed::by(Analysis::Fuzz.name())
    };
    let name = folder.to_string_lossy();
    let replay = |number: usize| {
        let words = ["fuzz", "repro", &name, keys.get(number)?];
        Some(Again {
            words: words.map(str::to_owned).to_vec(),
            ..Again::default()
        })
    };
    let (report, numbers) = reporting::assemble(&Known::default(), analysed, outcome, replay);
    let fingerprints: HashMap<&str, &str> = (numbers.iter().zip(&report.findings))
        .filter_map(|(number, finding)| {
            Some((keys[(*number)?].as_str(), finding.fingerprint.as_str()))
        })
        .collect();
    let images = kept.images()?.into_iter().map(|image| Image {
        number: image.number,
        parent: image.parent,
        way: match image.way {
            brownout_fuzz::Way::Root => Way::Root,
            brownout_fuzz::Way::Run => Way::Run,
            brownout_fuzz::Way::Crash => Way::Crash,
            brownout_fuzz::Way::Flipped => Way::Flipped,
        },
        origin: image.origin,
        cases: image.cases,
        findings: (image.found.iter())
            .filter_map(|key| {
                fingerprints
                    .get(key.as_str())
                    .map(|name| (*name).to_owned())
            })
            .collect(),
    });
    let images = images.collect();
    Ok((report, images))
}

/// A finding of a campaign in a folder, with where it comes from, and how to see it natively.
fn told(found: &Found, folder: &str, key: &str) -> Finding {
    let mut finding = found.finding.clone();
    finding.notes.push(match found.by_seed {
        true => "a seed shows it".to_owned(),
        false => format!(
            "reached by fuzzing, after {}",
            counted(found.execution, "execution")
        ),
    });
    let what = match (found.crash, found.ends_badly()) {
        (Some(_), _) => Some("recovery on what the crash leaves"),
        (None, true) => Some("the program on this test case"),
        (None, false) => None,
    };
    if let Some(what) = what {
        let folder = quote(folder);
        finding.notes.push(format!(
            "to run {what} without Brownout: brownout fuzz repro {folder} {key} --native"
        ));
    }
    let input = found.case.input.escape_ascii().to_string();
    if input.len() <= 400 {
        finding.notes.push(format!("input: \"{input}\""));
    }
    finding
}

/// Looks at a campaign. `wanted` is the finding that a token was about.
pub fn look(command: FuzzCommand, wanted: Option<&str>) -> Result<u8, Failure> {
    match command {
        FuzzCommand::Tree(args) => {
            let text = Kept::look(&args.folder)?.tree()?;
            match io::stdout().write_all(text.as_bytes()) {
                // Whoever reads it may have seen enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Failure::cannot_run(format!("cannot write: {error}")))
                }
                _ => Ok(exit::OK),
            }
        }
        FuzzCommand::Export(args) => {
            let kept = Kept::look(&args.folder)?;
            let image = match kept.find(&args.id)? {
                Named::Image(image) => image,
                Named::Case(case) => case.image,
                Named::Finding(_, found) => found.case.image,
            };
            let chain = kept.export(image, &args.output)?;
            message(&format!(
                "{} from the root; run {}",
                counted(chain.steps.len() as u64, "step"),
                quote(args.output.join("rebuild.sh"))
            ));
            Ok(exit::OK)
        }
        FuzzCommand::Min(args) => {
            let kept = Kept::look(&args.folder)?;
            let output = std::path::absolute(&args.output).map_err(|error| {
                Failure::cannot_run(format!("cannot find this folder: {error}"))
            })?;
            go_where_it_began(&kept)?;
            let stop = Default::default();
            signals::tell(&stop)
                .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))?;
            let mut line = LiveLine::new();
            let least = kept.least(&output, &stop, |done, all| {
                line.show(&format!("{done} of {all} test cases were run"));
            });
            line.clear();
            let least = least?;
            let (shown, all) = least.shown;
            message(&format!(
                "{} in {} {} what {} show ({shown} of {all} places in the maps)",
                counted(least.written.len() as u64, "input"),
                quote(&args.output),
                if least.written.len() == 1 {
                    "shows"
                } else {
                    "show"
                },
                counted(least.cases as u64, "test case"),
            ));
            if !least.left_out.is_empty() {
                let names: Vec<String> = least.left_out.iter().map(u64::to_string).collect();
                message(&format!(
                    "the rest shows only on images that no input makes, by {} left out: {}",
                    match names.len() {
                        1 => "a test case that is".to_owned(),
                        n => format!("{n} test cases that are"),
                    },
                    names.join(", ")
                ));
            }
            Ok(exit::OK)
        }
        FuzzCommand::Repro(args) => {
            let kept = Kept::look(&args.folder)?;
            let mut crash = None;
            let (case, key) = match kept.find(&args.id)? {
                Named::Case(case) => (case, None),
                Named::Finding(key, found) => {
                    crash = found.by_exploration.then_some(found.crash);
                    (found.case, Some(key))
                }
                Named::Image(_) => {
                    return Err(Failure::usage(
                        "an image has no input: name a test case or a finding",
                    ));
                }
            };
            go_where_it_began(&kept)?;
            if args.native {
                let status = match crash {
                    Some(Some(image)) => kept.recover_natively(image)?,
                    Some(None) => {
                        message(
                            "it takes a crash to see it, and what that has left was not kept: this is the run without it",
                        );
                        kept.run_natively(&case)?
                    }
                    None => kept.run_natively(&case)?,
                };
                return Ok(of_native(status));
            }
            let name = wanted.map(str::to_owned).or_else(|| key.clone());
            let shown = kept.repeat(&case, key.as_deref())?;
            for found in &shown {
                message(&format!(
                    "{}: {}",
                    found.finding.rule.as_str(),
                    found.finding.message
                ));
            }
            match (key, name) {
                (Some(_), Some(name)) => {
                    let shows = !shown.is_empty();
                    message(&match shows {
                        true => format!("finding {name} shows again"),
                        false => format!("finding {name} did not show again"),
                    });
                    Ok(if shows { exit::FINDINGS } else { exit::OK })
                }
                _ => {
                    let counts = |found: &Found| found.finding.severity == Severity::Correctness;
                    Ok(match shown.iter().any(counts) {
                        true => exit::FINDINGS,
                        false => exit::OK,
                    })
                }
            }
        }
    }
}

/// The program's arguments may name files from there.
fn go_where_it_began(kept: &Kept) -> Result<(), Failure> {
    let folder = &kept.settings.folder;
    std::env::set_current_dir(folder).map_err(|error| {
        let folder = quote(folder);
        Failure::usage(format!(
            "cannot go to {folder}, where the campaign was begun: {error}"
        ))
    })
}

/// The exit code of a program that ran natively.
fn of_native(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => exit::CANNOT_RUN,
    }
}
