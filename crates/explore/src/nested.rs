//! Crashes in recovery: recoveries that ended well are recorded and cut short in turn.
//!
//! ```text
//!  crash states after which recovery does the same ─▶ one of them is recorded, and cut short ─▶ what the recoveries of that read
//!                   ▲                                                                              │
//!                   └── those that hold something else there are recorded and cut short, too ◀─────┘
//! ```
//! Guarantee: recoveries after the second crash see what they can see after any first crash. Two
//! crash states after which the first recovery reads the same may differ in what it does not read;
//! if it overwrites that, or the second recovery looks there, the difference comes back. But as
//! long as no second recovery reads a byte in which two of them differ, one tells all about the
//! other.

use brownout_findings::Limit;
use brownout_findings::numbers::either;
use brownout_model::{Cut, LineBytes, Unit, masked};

use crate::interleaving::interleaved;
use crate::options::Error;
use crate::recording::{RecordOptions, Recording};
use crate::search::{Crash, Halt, Layer, LeftOver, Noted, Recorded, Search, State, spread};
use crate::view::{Image, Seen};

/// Recoveries that are cut short, at each depth.
const NESTED_MAX: usize = 2_000;
/// So often crash states of one recovery are taken apart by what they hold.
const PARTS_MAX: usize = 1_000;

/// How far recoveries are cut short in turn.
pub struct Nesting {
    /// Crashes in a row.
    pub depth: u32,
    /// Somebody wants that depth. Else it is as deep as there is time for, and `recoveries_max`
    /// allows.
    pub is_asked: bool,
    /// So many recoveries may be run for it. Default: as many as it takes.
    pub recoveries_max: Option<u64>,
    /// How recoveries are recorded.
    pub record: RecordOptions,
}

/// Of these recoveries, so many were cut short. Only where nobody asked for crashes in recovery, it
/// is no failure to leave the rest when the time is up, or when enough was run; but it is told.
/// Whoever ends the exploration cuts it short, whatever it does just then.
fn leave(
    search: &mut Search<'_>,
    nesting: &Nesting,
    reached: u32,
    (done, count): (usize, usize),
) -> u32 {
    let why = match search.ledger.stopped {
        Some(Halt::Time) => "there was no time",
        Some(Halt::Enough) if nesting.recoveries_max.is_some() => "there are many",
        _ => "",
    };
    if nesting.is_asked || why.is_empty() {
        search.ledger.left_over = Some(LeftOver::Recoveries(count - done));
        return reached;
    }
    search.ledger.left_over = None;
    search.forgo();
    search.ledger.coverage.spare(
        Limit::Depth,
        format!("{done} of {count} recoveries were cut short by a second crash: {why}; --depth 2 insists on all"),
    );
    reached - 1
}

/// Cuts recoveries short in turn. Returns the depth that was reached.
pub fn nest(search: &mut Search<'_>, nesting: &Nesting) -> Result<u32, Error> {
    let reached = nest_all(search, nesting)?;
    let skipped = search.ledger.statistics.nested_skipped;
    if skipped > 0 {
        let text = format!(
            "{skipped} {} not cut short by a second crash, because there are too many",
            either(skipped, "recovery was", "recoveries were")
        );
        let coverage = &mut search.ledger.coverage;
        match nesting.is_asked {
            true => coverage.limit(Limit::Depth, text),
            false => coverage.spare(Limit::Depth, text),
        }
    }
    Ok(reached)
}

fn nest_all(search: &mut Search<'_>, nesting: &Nesting) -> Result<u32, Error> {
    let depth = nesting.depth;
    let bound = NESTED_MAX;
    let mut reached = 1;
    for level in 2..=depth {
        let (mut recoveries, left_out) = search.ledger.survived.take();
        search.settings.keep_survivors = level < depth;
        search.ledger.statistics.nested_skipped += left_out;
        if let Some(most) = nesting.recoveries_max {
            search.allow(most);
            // So that those that are left are like those that were cut short.
            recoveries = spread(recoveries.len() as u32)
                .into_iter()
                .map(|i| std::mem::take(&mut recoveries[i as usize]))
                .collect();
        } else if let skipped = recoveries.len().saturating_sub(bound)
            && skipped > 0
        {
            search.ledger.statistics.nested_skipped += skipped as u64;
            // Evenly chosen.
            let step = recoveries.len() as f64 / bound as f64;
            recoveries = (0..bound)
                .map(|i| std::mem::take(&mut recoveries[(i as f64 * step) as usize]))
                .collect();
        }
        reached = level;
        let count = recoveries.len();
        let mut nested = Nested {
            nesting,
            is_last: level == depth,
            left: bound,
        };
        let mut done = 0;
        let mut recoveries = recoveries.into_iter();
        while recoveries.len() > 0 {
            // Each begins with its first state, and needs nothing of the others for that.
            let some: Vec<Vec<State>> = recoveries.by_ref().take(search.at_a_time()).collect();
            let firsts = some.iter().filter_map(|states| states.first());
            let Some(recorded) = nested.record(search, firsts.take(nested.left))? else {
                return Ok(leave(search, nesting, reached, (done, count)));
            };
            let mut recorded = recorded.into_iter();
            for states in some {
                let first = recorded.next();
                if !nested.cut_short(search, states, first)? {
                    return Ok(leave(search, nesting, reached, (done, count)));
                }
                done += 1;
            }
        }
    }
    Ok(reached)
}

/// One depth.
struct Nested<'n> {
    nesting: &'n Nesting,
    is_last: bool,
    /// So many recoveries may still be recorded.
    left: usize,
}

/// A crash state after which recovery was cut short at all of its failure points.
struct Tried {
    state: State,
    image: Image,
    /// What the recoveries after that have read, and how they ended.
    noted: Noted,
}

/// Whether what was tried tells all about another crash state.
enum Told {
    Yes,
    No,
    /// It depends on what this unit holds: of this, one.
    Open(Unit, Vec<(LineBytes, Vec<Cut>)>),
}

impl Nested<'_> {
    /// Records the recoveries after these crash states, each on its newest image. `None` if the
    /// search was stopped.
    fn record<'s>(
        &self,
        search: &mut Search<'_>,
        states: impl Iterator<Item = &'s State>,
    ) -> Result<Option<Vec<Recorded>>, Error> {
        let images = states.map(|state| image_of(search, state)).collect();
        Ok(search.record_all(images, self.nesting.record)?)
    }

    /// Cuts a recovery short, which is the same after all these crash states. It was recorded after
    /// the first of them, if there was a need. False if the search was stopped.
    fn cut_short(
        &mut self,
        search: &mut Search<'_>,
        mut left: Vec<State>,
        mut first: Option<Recorded>,
    ) -> Result<bool, Error> {
        // The first comes first.
        left.reverse();
        let mut tried: Vec<Tried> = Vec::new();
        let mut parts = 0;
        while let Some(state) = left.pop() {
            let told = tried
                .iter()
                .find_map(|tried| match tells(search, tried, &state) {
                    Told::No => None,
                    told => Some(told),
                });
            match told {
                Some(Told::Open(unit, options)) if parts < PARTS_MAX => {
                    parts += options.len();
                    for (_, cuts) in options {
                        let mut part = state.clone();
                        part.narrowed.insert(unit, cuts);
                        left.push(part);
                    }
                }
                Some(Told::Open(..)) => search.ledger.statistics.nested_skipped += 1,
                Some(_) => {}
                None if self.left == 0 => search.ledger.statistics.nested_skipped += 1,
                None => {
                    self.left -= 1;
                    let recorded = match first.take() {
                        Some(recorded) => Some(recorded),
                        None => {
                            let mut recorded = self.record(search, [&state].into_iter())?;
                            recorded.as_mut().and_then(Vec::pop)
                        }
                    };
                    let Some(recording) = recorded.transpose()? else {
                        return Ok(false);
                    };
                    let image = image_of(search, &state);
                    self.limit(search, &recording);
                    search.ledger.statistics.nested_runs += 1;
                    // It changes nothing; then that is so after all the other states, too.
                    if recording.points.is_empty() {
                        return Ok(true);
                    }
                    let crash = Crash {
                        layer: state.layer,
                        point: state.point,
                        image: image.clone(),
                    };
                    let Some(noted) = self.explore(search, recording, crash)? else {
                        return Ok(false);
                    };
                    // What it leaves open may be something that was read.
                    left.push(state.clone());
                    tried.push(Tried {
                        state,
                        image,
                        noted,
                    });
                }
            }
        }
        Ok(true)
    }

    /// Explores all crashes of a recorded recovery. `None` if the search was stopped.
    fn explore(
        &self,
        search: &mut Search<'_>,
        recording: Box<Recording>,
        crash: Crash,
    ) -> Result<Option<Noted>, Error> {
        let failures = search.ledger.failures.len();
        let layer = search.layers.push(Layer {
            recording: *recording,
            parent: Some(crash),
        });
        search.noted = Some(Noted::default());
        search.explore(layer)?;
        let noted = search.noted.take().unwrap_or_default();
        if search.ledger.left_over.is_some() {
            return Ok(None);
        }
        let is_needed = search.ledger.failures.len() > failures || !self.is_last;
        if !is_needed {
            search.layers[layer].recording.retire();
        }
        Ok(Some(noted))
    }

    /// What cannot be said of crashes of this recovery.
    fn limit(&self, search: &mut Search<'_>, recording: &Recording) {
        let coverage = &mut search.ledger.coverage;
        if recording.is_interleaved {
            coverage.limit(Limit::Interleaving, interleaved("recovery stores"));
        }
        for what in recording.unfollowed.iter().take(5) {
            let text = format!("not part of a second crash: {what}");
            coverage.limit(Limit::Unsupported, text);
        }
        if let Some(text) = recording.attributes_left("recovery") {
            coverage.spare(Limit::Unsupported, text);
        }
        if recording.names_sampled {
            coverage.limit(
                Limit::Sampled,
                "where many changes of names and sizes may be lost in recovery, not all combinations were tried; --exhaustive tries all",
            );
        }
    }
}

fn image_of(search: &Search<'_>, state: &State) -> Image {
    let view = search.view(state.layer, state.point);
    let files = search.layers.files(state.layer, state.point);
    Image::newest(&view, &state.narrowed, &files)
}

/// Whether what was tried tells how recoveries end that follow a crash of the recovery of `state`:
/// if they can see nothing else there, and if their ends mean the same.
fn tells(search: &Search<'_>, tried: &Tried, state: &State) -> Told {
    let view = search.view(state.layer, state.point);
    let mut open = None;
    for (line, mask) in &tried.noted.reads {
        if view.holds_as(&tried.image.view, *line) {
            continue;
        }
        match view.read(*line, *mask, &state.narrowed) {
            Seen::Certain(bytes) if bytes == masked(&tried.image.line(*line), *mask) => {}
            Seen::Certain(_) => return Told::No,
            Seen::Open(unit, options) => {
                let first = open.get_or_insert((*line, unit, options));
                // The same in each exploration, whatever the order of the map.
                if *line < first.0
                    && let Seen::Open(unit, options) = view.read(*line, *mask, &state.narrowed)
                {
                    *first = (*line, unit, options);
                }
            }
        }
    }
    if let Some((_, unit, options)) = open {
        return Told::Open(unit, options);
    }
    let done = search.done(state.layer, state.point);
    let done_there = search.done(tried.state.layer, tried.state.point);
    let oracle = &search.settings.oracle;
    let mut outcomes = tried.noted.outcomes.iter();
    let means_the_same = done == done_there
        || outcomes.all(|outcome| {
            let outcome = &search.known.outcomes[*outcome as usize];
            oracle.judge(outcome, done_there).is_some() || oracle.judge(outcome, done).is_none()
        });
    match means_the_same {
        true => Told::Yes,
        false => Told::No,
    }
}
