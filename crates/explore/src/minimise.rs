//! The smallest set of lost stores that still breaks recovery.
//!
//! From a crash state that fails, everything that did not matter is made to survive: first unit by unit, then store by store.
//! What is left is lost for a reason. Every step is a recovery, looked up or run; it must fail in the same way.

use brownout_host::LaunchError;
use brownout_model::{Survivors, Unit};

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
    for unit in &units {
        let mut tried = image.clone();
        tried.survivors.remove(unit);
        if let Some(found) = test(search, failure, &tried)? {
            image = tried;
            best = found;
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
    let (outcome, symptom) = best;
    Ok(Some(Minimal {
        image,
        outcome,
        symptom,
    }))
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

fn test(
    search: &mut Search<'_>,
    failure: &Failure,
    image: &Image,
) -> Result<Option<(u32, Symptom)>, LaunchError> {
    let Some(outcome) = search.evaluate(failure.layer, image)? else {
        return Ok(None);
    };
    let done = search.done(failure.layer, failure.point);
    let symptom = search
        .oracle
        .judge(&search.outcomes[outcome as usize], done);
    Ok(symptom
        .filter(|symptom| symptom.is_like(&failure.symptom))
        .map(|symptom| (outcome, symptom)))
}
