//! The smallest set of lost stores that still breaks recovery.
//!
//! From a crash state that fails, everything that did not matter is made to survive: first units,
//! as many together as that goes well with, then store by store. What is left is lost for a reason.
//! If that is nothing, the harm may be done by a store that survives although its operation is not
//! over (an unlogged change): then those are found, in the same way. Every step is a recovery,
//! looked up or run; it must fail in the same way.

use brownout_host::LaunchError;
use brownout_model::{Moment, Survivors, Unit};

use crate::oracle::Symptom;
use crate::search::{Failure, Search};
use crate::view::Image;

/// Stores of one unit are tried one by one up to so many; beyond, by halves.
const ONE_BY_ONE: usize = 12;

/// A failing image that has lost as little as possible.
pub struct Minimal {
    pub image: Image,
    pub outcome: u32,
    pub symptom: Symptom,
    /// If nothing is lost: stores that were not yet certain, and do the harm because they survive.
    pub survivors: Vec<Moment>,
}

/// The failure with as few changes of names and sizes lost as possible: of the failure points at
/// the same place, the first that fails in the same way with everything stored that is there.
pub fn keep_names(search: &mut Search<'_>, failure: Failure) -> Result<Failure, LaunchError> {
    let points = &search.layers[failure.layer].recording.points;
    let own = &points[failure.point as usize];
    let (place, lost) = (own.place, own.lost.len());
    let mut others: Vec<(usize, u32)> = (0..)
        .zip(points)
        .filter(|(_, point)| point.place == place && point.lost.len() < lost)
        .map(|(at, point): (u32, _)| (point.lost.len(), at))
        .collect();
    others.sort_unstable();
    for (_, point) in others.into_iter().take(ONE_BY_ONE) {
        let tried = Failure {
            point,
            ..failure.clone()
        };
        let view = search.view(tried.layer, point);
        let files = search.layers[tried.layer].recording.points[point as usize]
            .files
            .clone();
        let image = Image::newest(&view, &tried.narrowed, &files);
        if test(search, &tried, &image)?.is_some() {
            return Ok(tried);
        }
    }
    Ok(failure)
}

/// `None` if the search was stopped meanwhile, or the failure does not show again.
pub fn minimise(
    search: &mut Search<'_>,
    failure: &Failure,
) -> Result<Option<Minimal>, LaunchError> {
    let layer = failure.layer;
    let view = search.view(layer, failure.point);
    let files = search.layers[layer].recording.points[failure.point as usize]
        .files
        .clone();
    let mut image = Image::newest(&view, &failure.narrowed, &files);
    let Some(mut best) = test(search, failure, &image)? else {
        return Ok(None);
    };
    image.survivors.retain(|unit, survivors| {
        view.choices(*unit)
            .is_some_and(|choices| *survivors != choices.newest())
    });
    // Later stores first: an early one is more often the cause.
    let units: Vec<Unit> = image.survivors.keys().rev().copied().collect();
    // Most do not matter, so they are tried together, and by halves where that is too many. Each
    // that is left was tried alone.
    let mut blocks = vec![&units[..]];
    while let Some(block) = blocks.pop() {
        if block.is_empty() {
            continue;
        }
        let mut tried = image.clone();
        for unit in block {
            tried.survivors.remove(unit);
        }
        if let Some(found) = test(search, failure, &tried)? {
            image = tried;
            best = found;
        } else if block.len() > 1 {
            let (first, rest) = block.split_at(block.len() / 2);
            blocks.extend([rest, first]);
        }
    }
    for unit in units {
        let Some(now) = image.survivors.get(&unit).cloned() else {
            continue;
        };
        let Some(choices) = view.choices(unit) else {
            continue;
        };
        for survivors in closer(&now, &choices.newest()) {
            let mut tried = image.clone();
            tried.survivors.insert(unit, survivors);
            if let Some(found) = test(search, failure, &tried)? {
                image = tried;
                best = found;
                break;
            }
        }
        // Unordered stores one by one.
        let Some(now) = image.survivors.get(&unit).cloned() else {
            continue;
        };
        for i in 0..now.unordered.len().min(2 * ONE_BY_ONE) {
            let mut tried = image.clone();
            if let Some(survivors) = tried.survivors.get_mut(&unit) {
                if survivors.unordered[i] {
                    continue;
                }
                survivors.unordered[i] = true;
            }
            if let Some(found) = test(search, failure, &tried)? {
                image = tried;
                best = found;
            }
        }
    }
    // Lost names and sizes explain it already.
    let lost_names = &search.layers[layer].recording.points[failure.point as usize].lost;
    let survivors = match image.survivors.is_empty() && lost_names.is_empty() {
        true => harmful_survivors(search, failure, &image)?,
        false => Vec::new(),
    };
    let (outcome, symptom) = best;
    Ok(Some(Minimal {
        image,
        outcome,
        symptom,
        survivors,
    }))
}

/// Of an image that has lost nothing: the units that must survive for it to fail, and in each the
/// first store that must.
fn harmful_survivors(
    search: &mut Search<'_>,
    failure: &Failure,
    image: &Image,
) -> Result<Vec<Moment>, LaunchError> {
    let mut harmful = Vec::new();
    // None depends on another, so they are run side by side, and then looked up.
    let alone = failure.narrowed.keys().filter_map(|unit| {
        let choices = image.view.choices(*unit)?;
        let mut tried = image.clone();
        tried.survivors.insert(*unit, choices.open().oldest());
        Some(tried)
    });
    let alone: Vec<Image> = alone.collect();
    search.evaluate_all(failure.layer, &alone)?;
    for unit in failure.narrowed.keys() {
        let Some(choices) = image.view.choices(*unit) else {
            continue;
        };
        let (oldest, newest) = (choices.open().oldest(), choices.newest());
        let mut tried = image.clone();
        tried.survivors.insert(*unit, oldest.clone());
        if test(search, failure, &tried)?.is_some() {
            continue;
        }
        let ordered = choices.writes().iter().filter(|write| !write.unordered);
        let mut culprit = choices.writes().last().map(|write| write.moment);
        for (count, write) in (1..).zip(ordered) {
            let is_open = count > oldest.ordered && count < newest.ordered;
            if !is_open || count - oldest.ordered > ONE_BY_ONE {
                continue;
            }
            let survivors = Survivors {
                ordered: count,
                unordered: newest.unordered.clone(),
            };
            tried.survivors.insert(*unit, survivors);
            if test(search, failure, &tried)?.is_some() {
                culprit = Some(write.moment);
                break;
            }
        }
        harmful.extend(culprit);
    }
    harmful.sort();
    Ok(harmful)
}

/// Survivors between the two, most first.
fn closer(now: &Survivors, newest: &Survivors) -> Vec<Survivors> {
    let more = newest.ordered - now.ordered;
    let steps: Vec<usize> = match more {
        0 | 1 => Vec::new(),
        2..=ONE_BY_ONE => (1..more).rev().collect(),
        _ => [more - 1, more * 3 / 4, more / 2, more / 4, 1].to_vec(),
    };
    steps
        .into_iter()
        .map(|step| Survivors {
            ordered: now.ordered + step,
            unordered: now.unordered.clone(),
        })
        .collect()
}

/// Whether an image fails in the way of a failure, and how exactly.
pub fn test(
    search: &mut Search<'_>,
    failure: &Failure,
    image: &Image,
) -> Result<Option<(u32, Symptom)>, LaunchError> {
    let Some(outcome) = search.evaluate(failure.layer, image)? else {
        return Ok(None);
    };
    let done = search.done(failure.layer, failure.point);
    let symptom = search
        .settings
        .oracle
        .judge(&search.known.outcomes[outcome as usize], done);
    Ok(symptom
        .filter(|symptom| symptom.is_like(&failure.symptom))
        .map(|symptom| (outcome, symptom)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Act, Fake, Memory, exits};
    use crate::line::{LINE, LineKey};
    use crate::search::Settings;
    use crate::view::{Narrowed, Seen};

    /// Of many lost stores, of which few matter, those are found with few recoveries.
    #[test]
    fn what_does_not_matter_is_not_tried_one_by_one() {
        const LINES: u64 = 64;
        let needs = |needed: &'static [u64]| {
            let program = move |memory: &mut Memory<'_>| {
                let words: Vec<u64> = (0..LINES).map(|n| memory.word(n * 64)).collect();
                let is_lost = needed.iter().all(|n| words[*n as usize] == 0);
                exits(i32::from(is_lost), "")
            };
            let acts: Vec<Act> = (0..LINES).map(|n| Act::Store(n * 64, 1)).collect();
            let mut progress = ();
            let mut search = Search::new(
                fake::recording(&acts),
                Settings::new(fake::setting()),
                Box::new(Fake::new(program)),
                &mut progress,
            );
            let point = search.layers[0].recording.points.len() as u32 - 1;
            let view = search.view(0, point);
            let mut narrowed = Narrowed::new();
            for at in (0..LINES).map(|n| n * 64) {
                let line = LineKey::of(fake::key(at).0);
                let Seen::Open(unit, options) = view.read(line, !0, &narrowed) else {
                    panic!("it may be lost");
                };
                let lost = options.into_iter().find(|(bytes, _)| *bytes == [0; LINE]);
                narrowed.insert(unit, lost.expect("nothing is there before").1);
            }
            let failure = Failure {
                layer: 0,
                point,
                narrowed,
                symptom: Symptom::Exit(1),
            };
            let minimal = minimise(&mut search, &failure).expect("the executor answers");
            let minimal = minimal.expect("it fails");
            let left: Vec<Unit> = minimal.image.survivors.keys().copied().collect();
            let expected: Vec<Unit> = needed.iter().map(|n| fake::unit(n * 64)).collect();
            assert_eq!(left, expected);
            search.ledger.statistics.executions
        };
        assert!(needs(&[5]) <= 20);
        assert!(needs(&[5, 6, 60]) <= 40);
    }

    fn survivors(ordered: usize, unordered: &[bool]) -> Survivors {
        Survivors {
            ordered,
            unordered: unordered.to_vec(),
        }
    }

    /// What is tried lies strictly between what fails and what does not, most survivors first, and
    /// never touches the unordered.
    #[test]
    fn candidates_lie_between_the_failing_and_the_whole() {
        for now in 0..4 {
            for more in 0..200 {
                let newest = survivors(now + more, &[true, true]);
                let tried = closer(&survivors(now, &[false, true]), &newest);
                let ordered: Vec<usize> = tried.iter().map(|s| s.ordered).collect();
                assert!(
                    ordered.iter().all(|n| *n > now && *n < now + more),
                    "{now} + {more}: {ordered:?}"
                );
                assert!(
                    ordered.is_sorted_by(|a, b| a > b),
                    "{now} + {more}: {ordered:?}"
                );
                assert!(tried.iter().all(|s| s.unordered == [false, true]));
                // Few are tried one by one; of many, at least the two ends.
                match more {
                    0 | 1 => assert!(ordered.is_empty()),
                    2..=ONE_BY_ONE => assert_eq!(ordered.len(), more - 1),
                    _ => assert_eq!(
                        (ordered.first(), ordered.last()),
                        (Some(&(now + more - 1)), Some(&(now + 1)))
                    ),
                }
            }
        }
    }
}
