//! `brownout race`: interleavings that lose data.

use std::path::Path;

use brownout_findings::numbers::counted;
use brownout_findings::rules::{Analysis, BuiltIn, RuleSet};
use brownout_findings::{Analysed, Limit, Outcome, Report};
use brownout_fuzz::course::Moment;
use brownout_race::status::{self, Snapshot};
use brownout_race::{Error, Options, Over, Progress, Proof, Remark};
use brownout_symbols::Touches;

use crate::exit::{self, Failure};
use crate::progress::{CampaignScreen, LiveLine};
use crate::record::hint;
use crate::reporting::{self, Again, Known, Subject};
use crate::resolve::Race;
use crate::signals;
use crate::terminal::message;
use crate::token::Token;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Launch(error) => error.into(),
            Error::Explore(error) => error.into(),
            Error::Usage(_) | Error::Folder(_) => Failure::usage(error.to_string()),
            error => Failure::cannot_run(error.to_string()),
        }
    }
}

/// A campaign has a screen; a search that leaves nothing behind makes do with a line.
enum Shown {
    Line(LiveLine),
    Screen(CampaignScreen),
}

impl Shown {
    fn new(options: &Options) -> Shown {
        match options.out {
            Some(_) => Shown::Screen(CampaignScreen::new()),
            None => Shown::Line(LiveLine::new()),
        }
    }

    fn clear(self) {
        if let Shown::Line(mut line) = self {
            line.clear();
        }
    }
}

impl Progress for Shown {
    fn show(&mut self, snapshot: &Snapshot) {
        match self {
            Shown::Line(line) => line.show(&status::line(snapshot)),
            Shown::Screen(screen) => screen.show(snapshot),
        }
    }
}

/// The user may end a search and see what was found until then.
fn listen(options: &Options) -> Result<(), Failure> {
    signals::tell(&options.stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))
}

/// What a remark's token has in the place of a finding's name.
const NO_FINDING: &str = "0000000000000000";

/// A remark, and the command that shows it again.
fn told(remark: Remark, words: Option<&[String]>) -> String {
    let Remark { text, proof } = remark;
    let again = words.map(|words| Again {
        words: words.to_vec(),
        race: Some(proof),
        ..Again::default()
    });
    match again.and_then(|again| Token::new(again, NO_FINDING)) {
        Some(token) => format!("{text}; the same run again: {}", token.replay().command),
        None => text,
    }
}

/// Searches, reports, and says how to exit.
pub fn race(race: Race) -> Result<u8, Failure> {
    let known = Known::read(&race.report)?;
    let mut options = race.options;
    options.command_line = reporting::words(&race.command_line).unwrap_or_default();
    options.touches = race.report.touches();
    let options = &options;
    listen(options)?;
    let mut shown = Shown::new(options);
    let raced = brownout_race::race(options, &mut shown);
    shown.clear();
    let raced = raced?;
    let mut outcome = Outcome {
        statistics: raced.numbers,
        notes: raced.notes,
        coverage: raced.coverage,
        ended: raced.ended,
        touched: options.touches.as_ref().map(Touches::total),
        ..Outcome::default()
    };
    if outcome.coverage.has(Limit::Untouched) {
        let hints = raced.hints.iter().map(hint);
        let hints = hints.map(|hint| hint.trim_start_matches("hint: ").to_owned());
        outcome.notes.extend(hints);
    }
    if raced.over == Over::Quiet && raced.numbers.schedules > 0 {
        outcome.notes.push(
            "the search has ended because nothing new was seen any more; --time makes it go on"
                .to_owned(),
        );
    }
    let mut proofs = Vec::new();
    for discovery in raced.found {
        outcome.findings.push(discovery.finding);
        proofs.push(discovery.proof);
    }
    let command = reporting::words(&race.command_line);
    for remark in raced.remarks {
        outcome.notes.push(told(remark, command.as_deref()));
    }
    let mut rules = RuleSet::defaults(Analysis::Race);
    // It is shared with others.
    rules.set(BuiltIn::Crash, true);
    let words = std::iter::once(&options.program.program).chain(&options.program.args);
    let subject = Subject {
        analysed: Analysed {
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            domain: Some(options.model.domain.name().into()),
            ..Analysed::by(Analysis::Race.name())
        },
        rules,
        status: exit::OK,
        command_line: &race.command_line,
        wanted: None,
    };
    let replay = |number: usize| {
        Some(Again {
            words: command.clone()?,
            race: proofs.get(number).cloned(),
            ..Again::default()
        })
    };
    reporting::conclude_each(&race.report, &known, subject, outcome, replay)
}

/// A campaign as its folder has it, also while it goes on: a report of what was found until now.
pub fn seen(folder: &Path, course: &[Moment]) -> Result<Report, Failure> {
    let kept = brownout_race::look(folder)?;
    let mut outcome = Outcome {
        statistics: serde_json::Map::new(),
        ..Outcome::default()
    };
    let schedules = course.last().map_or(0, |moment| moment.executions);
    outcome.coverage.limit(
        Limit::Interleaving,
        format!(
            "{} {} run; others may show more",
            counted(schedules, "schedule"),
            if schedules == 1 { "was" } else { "were" }
        ),
    );
    outcome.coverage.accept(&[Limit::Interleaving]);
    let mut proofs = Vec::new();
    for discovery in kept.found {
        outcome.findings.push(discovery.finding);
        proofs.push(discovery.proof);
    }
    let analysed = Analysed {
        program: kept.program,
        domain: Some(kept.domain),
        command: kept.command_line.clone(),
        ..Analysed::by(Analysis::Race.name())
    };
    let replay = |number: usize| {
        Some(Again {
            words: kept.command_line.clone(),
            race: proofs.get(number).cloned(),
            ..Again::default()
        })
        .filter(|again| !again.words.is_empty())
    };
    Ok(reporting::assemble(&Known::default(), analysed, outcome, replay).0)
}

/// Makes the schedule and the crash of a finding again, and shows what comes of it.
pub fn replay(race: Race, fingerprint: &str, proof: &Proof) -> Result<u8, Failure> {
    let mut options = race.options;
    listen(&options)?;
    options.folder = options.folder.join(format!("replay-{fingerprint}"));
    let replayed = proof.replay(&options)?;
    for line in &replayed.says {
        message(line);
    }
    let what = match fingerprint {
        NO_FINDING => "it".to_owned(),
        name => format!("finding {name}"),
    };
    message(&match replayed.is_same {
        true => format!("{what} shows again"),
        false => format!("{what} did not show again"),
    });
    Ok(match replayed.is_same {
        true => race.report.error_exitcode.unwrap_or(exit::FINDINGS),
        false => exit::OK,
    })
}
