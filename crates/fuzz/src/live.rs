//! What is shown of a campaign while it goes on: the past that a [`Snapshot`] needs, and how one is
//! made.

use std::time::Duration;

use brownout_campaign::budget::{Budget, Measure};
use brownout_campaign::status::{Figure, History, Phase, Queue, Snapshot, Speed};
use brownout_findings::{Finding, Severity};

use crate::options::Options;
use crate::progress::Progress;

/// What is counted as progress.
const FIGURES: [&str; 5] = [
    "PM paths",
    "paths of recovery",
    "situations",
    "edges",
    "images",
];

/// So many notes are remembered; a screen shows fewer.
const NOTES_MAX: usize = 16;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Live {
    subject: String,
    workers: usize,
    histories: [History; FIGURES.len()],
    speed: Speed,
    /// When something new was kept, in this run of the tool.
    last_new: Option<Duration>,
    notes: Vec<String>,
}

impl Live {
    /// Nothing has happened yet.
    pub fn new(options: &Options) -> Live {
        let words = std::iter::once(&options.target.program).chain(&options.target.args);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Live {
            subject: words.join(" "),
            workers: options.jobs,
            ..Live::default()
        }
    }

    /// Executions a second: lately, and over the last minute.
    pub fn rates(&self) -> (f64, f64) {
        (self.speed.now(), self.speed.last_minute())
    }

    /// So many executions were made.
    pub fn executed(&mut self, budget: &Budget) {
        self.speed
            .record(budget.elapsed_in_this_run(), budget.executions());
    }

    /// A test case was kept.
    pub fn kept(&mut self, budget: &Budget) {
        self.last_new = Some(budget.elapsed_in_this_run());
    }

    /// Something was found. Only what matters most gets a note; there may be hundreds of others.
    pub fn found(&mut self, finding: &Finding) {
        if finding.severity != Severity::Correctness {
            return;
        }
        let frames = finding.events.iter().flat_map(|event| &event.stack);
        let place = frames.filter_map(|frame| {
            let file = frame.file.as_ref()?.rsplit('/').next()?;
            Some(format!(" at {file}:{}", frame.line?))
        });
        let place = place.into_iter().next().unwrap_or_default();
        self.note(format!("{}{place}", finding.rule.as_str()));
    }

    /// Something else that the user should see.
    pub fn note(&mut self, text: String) {
        // Twice the same, in other ways, is told once.
        self.notes.retain(|note| *note != text);
        if self.notes.len() >= NOTES_MAX {
            self.notes.remove(0);
        }
        self.notes.push(text);
    }

    /// The campaign as it is now.
    pub fn snapshot(&mut self, progress: &Progress, budget: &Budget, stopping: bool) -> Snapshot {
        let now = budget.elapsed_in_this_run();
        let figures = &progress.figures;
        let values = [
            u64::from(figures.paths),
            u64::from(figures.openings),
            u64::from(figures.situations),
            u64::from(figures.edges),
            figures.images,
        ];
        let mut coverage = Vec::new();
        for ((name, value), history) in FIGURES.iter().zip(values).zip(&mut self.histories) {
            history.record(now, value);
            coverage.push(Figure {
                name: (*name).to_owned(),
                value,
                history: history.clone(),
            });
        }
        let (correctness, others) = progress.findings;
        let mut findings = vec![("correctness".to_owned(), correctness)];
        if others > 0 {
            findings.push(("others".to_owned(), others));
        }
        Snapshot {
            title: "brownout fuzz".to_owned(),
            subject: self.subject.clone(),
            phase: match figures.executions {
                _ if stopping => Phase::Stopping,
                0 => Phase::Starting,
                _ => Phase::Running,
            },
            elapsed: progress.elapsed,
            time_left: budget.time_left(),
            executions_left: budget.executions_left(),
            executions: progress.executions,
            per_second_now: self.speed.now(),
            per_second_overall: progress.executions as f64
                / progress.elapsed.as_secs_f64().max(0.001),
            workers: self.workers,
            coverage,
            since_new: self.last_new.map(|last| now.saturating_sub(last)),
            queue: Some(Queue {
                cases: progress.cases,
                pending: figures.pending,
                pending_favoured: figures.pending_favoured,
            }),
            tree_depth: Some(u64::from(figures.depth)),
            stability: figures.stability(),
            findings,
            activities: activities(budget),
            notes: self.notes.clone(),
        }
    }
}

/// Who has had how much of the work, of 100, in what the budget measures.
fn activities(budget: &Budget) -> Vec<(String, f64)> {
    let spent = budget.spent();
    let units = |work: &brownout_campaign::budget::Work| match budget.measure() {
        Measure::Time => work.time.as_secs_f64(),
        Measure::Executions => work.executions as f64,
    };
    let total: f64 = spent.activities.values().map(units).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    let shares = spent.activities.iter().rev();
    shares
        .map(|(name, work)| (name.clone(), 100.0 * units(work) / total))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_campaign::budget::{Limits, Spent};
    use brownout_findings::rules::BuiltIn;
    use brownout_findings::{Event, Frame, Role};

    use crate::worker::Figures;

    #[test]
    fn a_campaign_shows_what_it_has_reached() {
        let budget = Budget::new(
            Limits {
                executions: Some(100),
                ..Limits::default()
            },
            &Spent::default(),
        );
        let fuzzing = budget.activity("fuzzing");
        let exploring = budget.share("exploring", 25.0);
        budget.begin(fuzzing).executed(30);
        budget.begin(exploring).executed(10);
        let mut live = Live::default();
        let mut progress = Progress {
            executions: 40,
            findings: (1, 0),
            ..Progress::default()
        };
        let starting = live.snapshot(&progress, &budget, false);
        assert_eq!(starting.phase, Phase::Starting);
        assert_eq!(starting.since_new, None);
        assert_eq!(starting.stability, None);
        progress.figures = Figures {
            executions: 40,
            paths: 7,
            edges: 9,
            depth: 3,
            pending: 5,
            pending_favoured: 2,
            repeated: 4,
            stable: 3,
            ..Figures::default()
        };
        let mut finding = Finding::new(BuiltIn::MissingFlush, Severity::Correctness, "lost");
        let mut event = Event::new(Role::Store, "here");
        event.stack.push(Frame {
            file: Some("/src/map.c".into()),
            line: Some(12),
            ..Frame::default()
        });
        finding.events.push(event);
        live.found(&finding);
        for n in 0..2 * NOTES_MAX {
            live.note(format!("note {n}"));
        }
        live.found(&finding);
        live.kept(&budget);
        let now = live.snapshot(&progress, &budget, false);
        assert_eq!(now.phase, Phase::Running);
        assert_eq!(now.stability, Some(75.0));
        assert_eq!(now.tree_depth, Some(3));
        let queue = now
            .queue
            .map(|queue| (queue.pending, queue.pending_favoured));
        assert_eq!(queue, Some((5, 2)));
        assert_eq!(now.findings, [("correctness".to_owned(), 1)]);
        let shares = [("fuzzing".to_owned(), 75.0), ("exploring".to_owned(), 25.0)];
        assert_eq!(now.activities, shares);
        assert!(now.since_new.is_some());
        assert_eq!(now.notes.len(), NOTES_MAX);
        assert_eq!(
            now.notes.last().map(String::as_str),
            Some("missing-flush at map.c:12")
        );
        let of = |name: &str| now.coverage.iter().find(|figure| figure.name == name);
        assert_eq!(of("PM paths").map(|figure| figure.value), Some(7));
        assert_eq!(of("edges").map(|f| f.history.values()), Some(&[9][..]));
        let stopping = live.snapshot(&progress, &budget, true);
        assert_eq!(stopping.phase, Phase::Stopping);
    }
}
