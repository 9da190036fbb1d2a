//! Crashes in recovery: recoveries that ended well are recorded and cut short in turn.
//!
//! Bound: what recovery did not read of the first crash's image keeps the content that it had in that execution.

use crate::options::{Error, Options};
use crate::recording::RecordOptions;
use crate::search::{Layer, Search};

/// Recoveries that are cut short, at each depth.
const NESTED_MAX: usize = 2_000;

/// Cuts recoveries short in turn. Returns the depth that was reached.
pub fn nest(search: &mut Search<'_>, depth: u32, options: &Options) -> Result<u32, Error> {
    let bound = NESTED_MAX;
    let mut reached = 1;
    for level in 2..=depth {
        let mut crashes = std::mem::take(&mut search.executed);
        search.keep_executed = level < depth;
        let skipped = crashes.len().saturating_sub(bound);
        if skipped > 0 {
            // Evenly chosen.
            let step = crashes.len() as f64 / bound as f64;
            crashes = (0..bound)
                .map(|i| crashes[(i as f64 * step) as usize].clone())
                .collect();
        }
        search.statistics.nested_skipped += skipped as u64;
        reached = level;
        for crash in crashes {
            let record_options = RecordOptions {
                model: options.model,
                judge_acknowledgements: false,
            };
            let Some(recording) = search.record(&crash.image, record_options)? else {
                return Ok(reached);
            };
            search.statistics.nested_runs += 1;
            if !recording.touched || recording.points.is_empty() {
                continue;
            }
            let failures = search.failures.len();
            search.layers.push(Layer {
                recording: *recording,
                parent: Some(crash),
            });
            let layer = search.layers.len() - 1;
            search.explore(layer)?;
            if search.stopped.is_some() {
                return Ok(reached);
            }
            let needed = search.failures.len() > failures || level < depth;
            if !needed {
                search.layers[layer].recording.retire();
            }
        }
    }
    Ok(reached)
}
