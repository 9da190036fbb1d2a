//! Crashes in recovery: recoveries that ended well are recorded and cut short in turn.
//!
//! Bound: what recovery did not read of the first crash's image keeps the content that it had in
//! that execution.

use brownout_findings::Limit;

use crate::interleaving::interleaved;
use crate::options::Error;
use crate::recording::RecordOptions;
use crate::search::{Halt, Layer, LeftOver, Search};

/// Recoveries that are cut short, at each depth.
const NESTED_MAX: usize = 2_000;

/// How far recoveries are cut short in turn.
pub struct Nesting {
    /// Crashes in a row.
    pub depth: u32,
    /// Somebody wants that depth. Else it is as deep as there is time for.
    pub is_asked: bool,
    /// How recoveries are recorded.
    pub record: RecordOptions,
}

/// These are left over. Only where nobody asked for crashes in recovery and the time that was given
/// is up, single ones are all that was to be explored. Whoever ends the exploration cuts it short,
/// whatever it does just then.
fn leave(search: &mut Search<'_>, nesting: &Nesting, reached: u32, count: usize) -> u32 {
    if nesting.is_asked || search.ledger.stopped != Some(Halt::Time) {
        search.ledger.left_over = Some(LeftOver::Recoveries(count));
        return reached;
    }
    search.ledger.left_over = None;
    search.ledger.notes.insert(format!(
        "there was no time to cut all recoveries short in turn ({count} are left); --depth 2 insists on it"
    ));
    reached - 1
}

/// Cuts recoveries short in turn. Returns the depth that was reached.
pub fn nest(search: &mut Search<'_>, nesting: &Nesting) -> Result<u32, Error> {
    let depth = nesting.depth;
    let bound = NESTED_MAX;
    let mut reached = 1;
    for level in 2..=depth {
        let mut crashes = std::mem::take(&mut search.ledger.executed);
        search.settings.keep_executed = level < depth;
        let skipped = crashes.len().saturating_sub(bound);
        if skipped > 0 {
            // Evenly chosen.
            let step = crashes.len() as f64 / bound as f64;
            crashes = (0..bound)
                .map(|i| crashes[(i as f64 * step) as usize].clone())
                .collect();
        }
        search.ledger.statistics.nested_skipped += skipped as u64;
        reached = level;
        let count = crashes.len();
        for (done, crash) in crashes.into_iter().enumerate() {
            let Some(recording) = search.record(&crash.image, nesting.record)? else {
                return Ok(leave(search, nesting, reached, count - done));
            };
            if recording.is_interleaved {
                let text = interleaved("recovery stores");
                search.ledger.coverage.limit(Limit::Interleaving, text);
            }
            for what in recording.unfollowed.iter().take(5) {
                let text = format!("not part of a second crash: {what}");
                search.ledger.coverage.limit(Limit::Unsupported, text);
            }
            if recording.names_sampled {
                search.ledger.coverage.limit(
                    Limit::Sampled,
                    "where many changes of names and sizes may be lost in recovery, not all combinations were tried; --exhaustive tries all",
                );
            }
            search.ledger.statistics.nested_runs += 1;
            if !recording.touched || recording.points.is_empty() {
                continue;
            }
            let failures = search.ledger.failures.len();
            let layer = search.layers.push(Layer {
                recording: *recording,
                parent: Some(crash),
            });
            search.explore(layer)?;
            if search.ledger.left_over.is_some() {
                return Ok(leave(search, nesting, reached, count - done));
            }
            let needed = search.ledger.failures.len() > failures || level < depth;
            if !needed {
                search.layers[layer].recording.retire();
            }
        }
    }
    Ok(reached)
}
