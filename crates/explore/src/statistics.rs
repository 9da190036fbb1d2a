//! Numbers of an exploration, and its outcomes, for programs to read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::search::Search;

/// The numbers of an exploration. Names and meaning are in `docs/explore.md`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Numbers {
    /// There was nothing to explore.
    Nothing {},
    /// It ended before the first crash state.
    Cut {
        /// Never.
        complete: bool,
        /// Failure points of the recorded run.
        failure_points: usize,
        /// None.
        points_done: u64,
        /// None.
        executions: u64,
        /// How long it took.
        wall_s: f64,
    },
    /// It took place.
    Explored(Box<Explored>),
}

/// The numbers of an exploration that took place.
#[derive(Clone, Debug, Serialize)]
pub struct Explored {
    failure_points: u64,
    uncertain_lines: u64,
    distinct_recoveries: u64,
    distinct_outcomes: usize,
    executions: u64,
    executions_saved: u64,
    eager_states: f64,
    eager_states_log10: f64,
    complete: bool,
    points_done: u64,
    depth: u32,
    nested_failure_points: u64,
    nested_recoveries: u64,
    nested_recoveries_skipped: u64,
    sampled_reads: u64,
    checksummed_reads: u64,
    unsteady: u64,
    resumed: u64,
    self_tested: u64,
    recovery_events: u64,
    recovery_s: f64,
    one_recovery_s: f64,
    wall_s: f64,
}

impl Numbers {
    /// How many recoveries were run.
    pub fn executions(&self) -> u64 {
        match self {
            Numbers::Nothing {} => 0,
            Numbers::Cut { executions, .. } => *executions,
            Numbers::Explored(explored) => explored.executions,
        }
    }
}

/// Of an exploration that ended before the first crash state, on a run with so many failure points.
pub fn nothing_explored(failure_points: usize, begun: Instant) -> Numbers {
    Numbers::Cut {
        complete: false,
        failure_points,
        points_done: 0,
        executions: 0,
        wall_s: begun.elapsed().as_secs_f64(),
    }
}

/// Of one that took place.
pub fn statistics(
    search: &Search<'_>,
    depth: u32,
    complete: bool,
    baseline: Duration,
    begun: Instant,
) -> Numbers {
    let s = &search.ledger.statistics;
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    // The sum of powers of two, without overflow.
    let largest = s.eager_log2.iter().copied().fold(0.0, f64::max);
    let sum: f64 = s.eager_log2.iter().map(|log| (log - largest).exp2()).sum();
    let log10 = (largest + sum.max(f64::MIN_POSITIVE).log2()) * std::f64::consts::LOG10_2;
    let eager = 10f64.powf(log10).min(f64::MAX);
    Numbers::Explored(Box::new(Explored {
        failure_points: s.failure_points,
        uncertain_lines: s.uncertain_lines,
        distinct_recoveries: s.paths,
        distinct_outcomes: search.known.outcomes.len(),
        executions: s.executions,
        executions_saved: s.saved,
        eager_states: eager.round(),
        eager_states_log10: (log10 * 100.0).round() / 100.0,
        complete,
        points_done: s.points_done,
        depth,
        nested_failure_points: s.nested_points,
        nested_recoveries: s.nested_runs,
        nested_recoveries_skipped: s.nested_skipped,
        sampled_reads: s.sampled,
        checksummed_reads: s.checksummed,
        unsteady: s.unsteady,
        resumed: s.resumed,
        self_tested: s.self_tested,
        recovery_events: s.recovery_events,
        recovery_s: seconds(s.recovery_time),
        one_recovery_s: seconds(baseline),
        wall_s: seconds(begun.elapsed()),
    }))
}

/// One JSON object a line, for each distinct outcome of each failure point.
pub fn write_outcomes(search: &Search<'_>, path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    let mut seen = BTreeSet::new();
    for (layer, point, outcome) in &search.ledger.outcomes {
        if *layer > 0 {
            continue;
        }
        let outcome = &search.known.outcomes[*outcome as usize];
        let site = search.layers[0].recording.points[*point as usize].site;
        let line = json!({
            "failure_point": point,
            "event": site.map(|site| site.event),
            "status": outcome.status.to_string(),
            "stdout": String::from_utf8_lossy(&outcome.stdout),
        });
        let line = line.to_string();
        if seen.insert(line.clone()) {
            writeln!(file, "{line}")?;
        }
    }
    file.flush()
}
