//! Numbers of an exploration, and its outcomes, for programs to read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::search::Search;

/// Of an exploration that ended before the first crash state, on a run with so many failure points.
pub fn nothing_explored(failure_points: usize, begun: Instant) -> Map<String, Value> {
    let mut statistics = Map::new();
    statistics.insert("complete".into(), json!(false));
    statistics.insert("failure_points".into(), json!(failure_points));
    statistics.insert("points_done".into(), json!(0));
    statistics.insert("executions".into(), json!(0));
    statistics.insert("wall_s".into(), json!(begun.elapsed().as_secs_f64()));
    statistics
}

/// By name.
pub fn statistics(
    search: &Search<'_>,
    depth: u32,
    complete: bool,
    baseline: Duration,
    begun: Instant,
) -> Map<String, Value> {
    let s = &search.statistics;
    let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
    // The sum of powers of two, without overflow.
    let largest = s.eager_log2.iter().copied().fold(0.0, f64::max);
    let sum: f64 = s.eager_log2.iter().map(|log| (log - largest).exp2()).sum();
    let log10 = (largest + sum.max(f64::MIN_POSITIVE).log2()) * std::f64::consts::LOG10_2;
    let eager = 10f64.powf(log10).min(f64::MAX);
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| drop(map.insert(name.into(), value));
    put("failure_points", json!(s.failure_points));
    put("uncertain_lines", json!(s.uncertain_lines));
    put("distinct_recoveries", json!(s.paths));
    put("distinct_outcomes", json!(search.outcomes.len()));
    put("executions", json!(s.executions));
    put("executions_saved", json!(s.saved));
    put("eager_states", json!(eager.round()));
    put("eager_states_log10", json!((log10 * 100.0).round() / 100.0));
    put("complete", json!(complete));
    put("points_done", json!(s.points_done));
    put("depth", json!(depth));
    put("nested_failure_points", json!(s.nested_points));
    put("nested_recoveries", json!(s.nested_runs));
    put("nested_recoveries_skipped", json!(s.nested_skipped));
    put("sampled_reads", json!(s.sampled));
    put("checksummed_reads", json!(s.checksummed));
    put("unsteady", json!(s.unsteady));
    put("resumed", json!(s.resumed));
    put("self_tested", json!(s.self_tested));
    put("recovery_events", json!(s.recovery_events));
    put("recovery_s", json!(seconds(s.recovery_time)));
    put("one_recovery_s", json!(seconds(baseline)));
    put("wall_s", json!(seconds(begun.elapsed())));
    map
}

/// One JSON object a line, for each distinct outcome of each failure point.
pub fn write_outcomes(search: &Search<'_>, path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    let mut seen = BTreeSet::new();
    for (layer, point, outcome) in search.outcome_log.iter().flatten() {
        if *layer > 0 {
            continue;
        }
        let outcome = &search.outcomes[*outcome as usize];
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
