//! What is shown of a search while it goes on: the past that a [`Snapshot`] needs, and how one is
//! made.

use std::time::Duration;

use brownout_campaign::status::{Figure, History, Phase, Snapshot, Speed};

use crate::numbers::Numbers;
use crate::options::Options;

/// What is counted as progress.
const FIGURES: [&str; 4] = [
    "PM alias pairs",
    "goals met",
    "candidates",
    "inconsistencies",
];

/// Where a search is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// What was done.
    pub numbers: Numbers,
    /// Errors, and other findings.
    pub found: (u64, u64),
    /// How much time it has left.
    pub time_left: Option<Duration>,
    /// It is about to end.
    pub is_stopping: bool,
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Live {
    subject: String,
    workers: usize,
    runs: Option<u64>,
    searches_inputs: bool,
    histories: [History; FIGURES.len()],
    /// The figures together, and since when they have been so.
    reached: (u64, Duration),
    speed: Speed,
}

impl Live {
    /// Nothing has happened yet.
    pub fn new(options: &Options) -> Live {
        let program = &options.program;
        let words = std::iter::once(&program.program).chain(&program.args);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Live {
            subject: words.join(" "),
            workers: options.jobs,
            runs: options.runs,
            searches_inputs: options.seeds.is_some(),
            ..Live::default()
        }
    }

    /// The search as it is now.
    pub fn snapshot(&mut self, standing: &Standing) -> Snapshot {
        let numbers = &standing.numbers;
        let now = Duration::from_secs_f64(numbers.seconds);
        self.speed.record(now, numbers.schedules);
        let values = [
            numbers.pairs,
            numbers.goals_met,
            numbers.inter_candidates + numbers.intra_candidates,
            numbers.inconsistencies,
        ];
        let reached = values.iter().sum();
        if reached != self.reached.0 {
            self.reached = (reached, now);
        }
        let mut coverage = Vec::new();
        for ((name, value), history) in FIGURES.iter().zip(values).zip(&mut self.histories) {
            history.record(now, value);
            coverage.push(Figure {
                name: (*name).to_owned(),
                value,
                history: history.clone(),
            });
        }
        let mut findings = vec![("correctness".to_owned(), standing.found.0)];
        if standing.found.1 > 0 {
            findings.push(("others".to_owned(), standing.found.1));
        }
        // Of all jobs together.
        let validating = numbers.validating_seconds / self.workers.max(1) as f64;
        let validating = (100.0 * validating / numbers.seconds.max(0.001)).min(100.0);
        let mut notes = vec![format!(
            "crash images: {} recovered, {} confirmed, {} unrepaired; locks tried: {}; deadlocks: {}",
            numbers.validated,
            numbers.confirmed,
            numbers.unrepaired,
            numbers.locks_tried,
            numbers.deadlocks
        )];
        if numbers.predictions > 0 {
            notes.push(format!(
                "predictions: {} proven, {} refuted, {} open",
                numbers.predictions_proven, numbers.predictions_refuted, numbers.predictions_open
            ));
        }
        if self.searches_inputs {
            notes.push(format!(
                "inputs: {} tried, {} kept",
                numbers.inputs, numbers.inputs_kept
            ));
        }
        Snapshot {
            title: "brownout race".to_owned(),
            subject: self.subject.clone(),
            phase: match numbers.schedules {
                _ if standing.is_stopping => Phase::Stopping,
                0 => Phase::Starting,
                _ => Phase::Running,
            },
            elapsed: now,
            time_left: standing.time_left,
            executions_left: self.runs.map(|runs| runs.saturating_sub(numbers.schedules)),
            executions: numbers.schedules,
            per_second_now: self.speed.now(),
            per_second_overall: numbers.schedules as f64 / numbers.seconds.max(0.001),
            workers: self.workers,
            coverage,
            since_new: (reached > 0).then(|| now.saturating_sub(self.reached.1)),
            findings,
            activities: vec![
                ("searching".to_owned(), 100.0 - validating),
                ("recoveries".to_owned(), validating),
            ],
            notes,
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_explore::Command;

    #[test]
    fn a_search_shows_what_it_has_reached() {
        let command = Command::shell("true", None);
        let mut options = Options::new(command.clone(), command, "images".into());
        (options.jobs, options.runs) = (2, Some(50));
        let mut live = Live::new(&options);
        let mut standing = Standing::default();
        let starting = live.snapshot(&standing);
        assert_eq!(starting.phase, Phase::Starting);
        assert_eq!(starting.since_new, None);
        standing.numbers.seconds = 4.0;
        standing.numbers.schedules = 20;
        standing.numbers.pairs = 7;
        standing.numbers.predictions = 1;
        standing.numbers.validating_seconds = 2.0;
        standing.found = (1, 0);
        let running = live.snapshot(&standing);
        assert_eq!(running.phase, Phase::Running);
        assert_eq!(running.executions_left, Some(30));
        assert_eq!(running.per_second_overall, 5.0);
        assert_eq!(running.since_new, Some(Duration::ZERO));
        assert_eq!(running.findings, [("correctness".to_owned(), 1)]);
        let shares = [
            ("searching".to_owned(), 75.0),
            ("recoveries".to_owned(), 25.0),
        ];
        assert_eq!(running.activities, shares);
        assert_eq!(running.coverage[0].value, 7);
        assert_eq!(running.notes.len(), 2);
        standing.numbers.seconds = 9.0;
        standing.is_stopping = true;
        let stopping = live.snapshot(&standing);
        assert_eq!(stopping.phase, Phase::Stopping);
        assert_eq!(stopping.since_new, Some(Duration::from_secs(5)));
    }
}
