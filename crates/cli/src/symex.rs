//! `brownout symex`: paths that no test covers.

use std::fs;

use brownout_findings::numbers::counted;
use brownout_findings::rules::{Analysis, RuleSet};
use brownout_findings::{Analysed, Limit, Outcome};
use brownout_symex::{Error, Found, Losses, Numbers, Over, Progress, Proof, Searched};

use crate::exit::{self, Failure};
use crate::progress::LiveLine;
use crate::reporting::{self, Again, Known, Subject};
use crate::resolve::Symex;
use crate::signals;
use crate::terminal::{message, plain, quote};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Launch(error) => error.into(),
            Error::Usage(_) => Failure::usage(error.to_string()),
            error => Failure::cannot_run(error.to_string()),
        }
    }
}

struct Shown(LiveLine);

impl Progress for Shown {
    fn show(&mut self, numbers: &Numbers) {
        let Numbers {
            paths,
            waiting,
            queries,
            pm_paths,
            errors,
            others,
            seconds,
            ..
        } = numbers;
        let speed = *paths as f64 / seconds.max(0.001);
        self.0.show(&format!(
            "{seconds:.0} s: {paths} paths ({speed:.0}/s), {waiting} branches to turn, {queries} queries, {pm_paths} PM paths, {errors} errors, {others} others"
        ));
    }
}

fn listen(symex: &Symex) -> Result<(), Failure> {
    signals::tell(&symex.options.stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))
}

/// Searches, reports, and says how to exit.
pub fn symex(symex: Symex) -> Result<u8, Failure> {
    let known = Known::read(&symex.report)?;
    let options = &symex.options;
    listen(&symex)?;
    let mut shown = Shown(LiveLine::new());
    let searched = brownout_symex::symex(options, &mut shown);
    shown.0.clear();
    let searched = searched?;
    let mut outcome = Outcome {
        statistics: searched.numbers,
        ..Outcome::default()
    };
    limit(&mut outcome, &searched, !options.pm_globs.is_empty());
    outcome.notes.extend(lost(&searched.losses));
    if let Some(out) = &options.out {
        outcome.notes.push(format!(
            "{} for the ways through code that uses persistent memory: {}",
            counted(searched.kept.len() as u64, "input"),
            quote(out.join("tests"))
        ));
    }
    let mut proofs = Vec::new();
    for (number, found) in searched.found.into_iter().enumerate() {
        let finding = told(&symex, number, &found)?;
        outcome.findings.push(finding);
        proofs.push(found.proof);
    }
    let words = std::iter::once(&options.program.program).chain(&options.program.args);
    let subject = Subject {
        analysed: Analysed {
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            ..Analysed::by(Analysis::Symex.name())
        },
        rules: RuleSet::defaults(Analysis::Check),
        status: exit::OK,
        command_line: &symex.command_line,
        wanted: None,
    };
    let words = reporting::words(&symex.command_line);
    let replay = |number: usize| {
        Some(Again {
            words: words.clone()?,
            symex: proofs.get(number).cloned(),
            ..Again::default()
        })
    };
    reporting::conclude_each(&symex.report, &known, subject, outcome, replay)
}

/// What was not looked at.
fn limit(outcome: &mut Outcome<Numbers>, searched: &Searched, has_patterns: bool) {
    let numbers = &searched.numbers;
    let coverage = &mut outcome.coverage;
    if numbers.pm_events == 0 {
        coverage.limit(Limit::Untouched, "no persistent memory was touched");
        if has_patterns {
            coverage.limit(
                Limit::Unmatched,
                "no file that matches --pm was mapped and used",
            );
        }
    }
    if numbers.read_most == 0 {
        coverage.limit(
            Limit::Unsupported,
            "the program reads nothing from its standard input: there is nothing to solve for",
        );
    } else if numbers.decisions == 0 {
        coverage.limit(
            Limit::Unsupported,
            "no branch of the program depends on its standard input: there is nothing to solve for",
        );
    }
    // That is what a search for paths is, so nobody need accept it; but nobody is told that all was looked at.
    coverage.limit(
        Limit::Sampled,
        format!(
            "{} {} run{}; others may show more",
            counted(numbers.paths, "path"),
            if numbers.paths == 1 { "was" } else { "were" },
            match searched.over {
                Over::All =>
                    ", and no branch is left that can be turned with as many bytes of input",
                _ => "",
            }
        ),
    );
    coverage.accept(&[Limit::Sampled]);
    if searched.over == Over::Stopped {
        coverage.limit(Limit::Interrupted, "ended before its time");
    }
    if numbers.endless > 0 {
        outcome.notes.push(format!(
            "{} did not end by themselves, and were not judged",
            counted(numbers.endless, "run")
        ));
    }
    if numbers.diverged > 0 {
        outcome.notes.push(format!(
            "{} of {} inputs did not lead where they should have led; each was run, and judged as what it is",
            numbers.diverged, numbers.turned
        ));
    }
}

/// What was not followed.
fn lost(losses: &Losses) -> Vec<String> {
    const NAMED: usize = 8;
    let mut notes = Vec::new();
    if !losses.unsupported.is_empty() {
        let mut forms: Vec<_> = losses.unsupported.iter().collect();
        forms.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let named = forms.iter().take(NAMED);
        let named: Vec<String> = named.map(|(name, n)| format!("{name} ({n})")).collect();
        notes.push(format!(
            "instructions that are not described, whose operands were taken to be what they were: {}{}",
            named.join(", "),
            if forms.len() > NAMED { "…" } else { "" }
        ));
    }
    let addresses: u64 = losses.addresses.values().sum();
    if addresses > 0 {
        notes.push(format!(
            "{addresses} times, at {}, an address depended on the input and was taken to be what it was",
            counted(losses.addresses.len() as u64, "instruction")
        ));
    }
    if losses.arguments > 0 {
        notes.push(format!(
            "{} times, an argument of a system call depended on the input and was taken to be what it was",
            losses.arguments
        ));
    }
    notes
}

/// A finding, with where it comes from.
fn told(
    symex: &Symex,
    number: usize,
    found: &Found,
) -> Result<brownout_findings::Finding, Failure> {
    let mut finding = found.finding.clone();
    finding.notes.push(match found.by_first {
        true => "the first input shows it".to_owned(),
        false => "reached by solving for the input".to_owned(),
    });
    let input = found.proof.input.escape_ascii().to_string();
    if input.len() <= 400 {
        finding.notes.push(format!("input: \"{input}\""));
    }
    let path = symex
        .folder
        .join(format!("{number:03}-{}.input", finding.rule.as_str()));
    let written =
        fs::create_dir_all(&symex.folder).and_then(|()| fs::write(&path, &found.proof.input));
    written.map_err(|error| {
        let why = plain(&error);
        Failure::cannot_run(format!("cannot write {}: {why}", quote(&path)))
    })?;
    finding.notes.push(format!(
        "natively: {} < {}",
        symex.options.program.display(),
        quote(&path)
    ));
    Ok(finding)
}

/// Runs the program on the input of a finding, and shows what comes of it.
pub fn replay(symex: Symex, fingerprint: &str, proof: &Proof) -> Result<u8, Failure> {
    listen(&symex)?;
    let is_same = brownout_symex::replay(&symex.options, proof)?;
    message(&match is_same {
        true => format!("finding {fingerprint} shows again"),
        false => format!("finding {fingerprint} did not show again"),
    });
    Ok(match is_same {
        true => symex.report.error_exitcode.unwrap_or(exit::FINDINGS),
        false => exit::OK,
    })
}
