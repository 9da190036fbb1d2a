//! What beside the lost stores is to blame, and what to do about it.
//!
//! The smallest set of lost stores (see [`minimise`](crate::minimise)) says what recovery misses.
//! That is half of the story if something else survives that came too early. So a few more
//! questions are asked, each answered by a recovery, looked up or run:
//!
//! - Which other store must survive for the failure? It has overtaken the one that is lost.
//! - Does recovery fail, too, if it is the other way round? Then no order helps, and both must
//!   become persistent together.
//! - Does it fail, too, if a store that is lost in part is lost as a whole? Then it is order, not
//!   tearing.
//! - When did recovery begin to fail with everything surviving, and when does it stop? Between the
//!   two lies what is not atomic.
//!
//! [`advice`] turns the answers into a sentence. It errs on the side of saying less: what no
//! recovery has shown is not claimed.

use std::ops::Range;

use brownout_host::LaunchError;
use brownout_model::{Moment, Survivors};

use crate::minimise::test;
use crate::oracle::Symptom;
use crate::recording::{Did, Reason};
use crate::search::{Failure, Search};
use crate::view::{Image, Narrowed};

/// So many units are asked whether they must survive.
const UNITS_MAX: usize = 12;
/// So many failure points are looked back and ahead.
const POINTS_MAX: usize = 64;

/// What was found out.
#[derive(Debug, Default)]
pub struct Blame {
    /// A store that survives, and must for the failure.
    pub overtaker: Option<Moment>,
    /// Recovery fails as well if that one is lost and the others survive.
    pub together: bool,
    /// A store is lost in part, and losing it as a whole would do no harm.
    pub torn: bool,
    /// Recovery has failed ever since the file is there.
    pub creation: bool,
    /// The store after which recovery succeeds again.
    pub completes: Option<Moment>,
}

/// Asks. `lost` are the moments of the lost stores, `is_partial` whether the first of them is lost
/// in part.
pub fn look(
    search: &mut Search<'_>,
    failure: &Failure,
    image: &Image,
    lost: &[Moment],
    is_partial: bool,
) -> Result<Blame, LaunchError> {
    let mut blame = Blame::default();
    if is_partial && let Some(first) = lost.first() {
        // If the rest of it cannot be lost any more, it is torn for certain.
        let whole = without(image, &[*first]);
        blame.torn = whole.survivors == image.survivors || test(search, failure, &whole)?.is_none();
    }
    if !lost.is_empty() {
        blame.overtaker = overtaker(search, failure, image, lost)?;
    }
    if let Some(overtaker) = blame.overtaker {
        let mut all = image.clone();
        all.survivors.clear();
        let reverse = without(&all, &[overtaker]);
        blame.together =
            !reverse.survivors.is_empty() && test(search, failure, &reverse)?.is_some();
    }
    let (since, begun) = since_when(search, failure)?;
    blame.creation = since;
    if blame.overtaker.is_none() {
        blame.overtaker = begun.filter(|moment| !lost.contains(moment));
    }
    if lost.is_empty() {
        blame.completes = until_when(search, failure)?;
    }
    Ok(blame)
}

/// The image without some stores, as far as they can be lost; what follows them in their lines is
/// lost, too.
fn without(image: &Image, moments: &[Moment]) -> Image {
    let mut image = image.clone();
    for unit in image.view.open().to_vec() {
        let Some(choices) = image.view.choices(unit) else {
            continue;
        };
        let oldest = choices.open().oldest();
        let mut survivors = match image.survivors.get(&unit) {
            Some(survivors) => survivors.clone(),
            None => choices.newest(),
        };
        let (mut ordered, mut unordered) = (0, 0);
        let mut changed = false;
        for write in choices.writes() {
            let hit = moments.contains(&write.moment);
            if write.unordered {
                if hit && !oldest.unordered[unordered] && survivors.unordered[unordered] {
                    survivors.unordered[unordered] = false;
                    changed = true;
                }
                unordered += 1;
            } else {
                if hit && ordered >= oldest.ordered && survivors.ordered > ordered {
                    survivors.ordered = ordered;
                    changed = true;
                }
                ordered += 1;
            }
        }
        if changed {
            image.survivors.insert(unit, survivors);
        }
    }
    image
}

/// The first store that must survive for the failure, in another unit than what is lost or before
/// it.
fn overtaker(
    search: &mut Search<'_>,
    failure: &Failure,
    image: &Image,
    lost: &[Moment],
) -> Result<Option<Moment>, LaunchError> {
    let mut units: Vec<_> = failure.narrowed.keys().copied().collect();
    if units.is_empty() {
        units = image.view.open().to_vec();
    }
    let mut found: Option<Moment> = None;
    for unit in units.into_iter().take(UNITS_MAX) {
        let Some(choices) = image.view.choices(unit) else {
            continue;
        };
        let oldest = choices.open().oldest();
        let now = match image.survivors.get(&unit) {
            Some(survivors) => survivors.clone(),
            None => choices.newest(),
        };
        if now == oldest {
            continue;
        }
        let mut tried = image.clone();
        tried.survivors.insert(unit, oldest.clone());
        if test(search, failure, &tried)?.is_some() {
            continue;
        }
        // The first prefix that fails ends with it.
        let ordered: Vec<Moment> = choices
            .writes()
            .iter()
            .filter(|write| !write.unordered)
            .map(|write| write.moment)
            .collect();
        let mut culprit = None;
        for count in (oldest.ordered + 1..=now.ordered).take(UNITS_MAX) {
            tried.survivors.insert(
                unit,
                Survivors {
                    ordered: count,
                    unordered: now.unordered.clone(),
                },
            );
            if test(search, failure, &tried)?.is_some() {
                culprit = ordered.get(count - 1).copied();
                break;
            }
        }
        let last = || choices.writes().last().map(|write| write.moment);
        let culprit = culprit
            .or_else(last)
            .filter(|moment| !lost.contains(moment));
        found = match (found, culprit) {
            // The latest is the one that should have waited.
            (Some(old), Some(new)) => Some(old.max(new)),
            (old, new) => old.or(new),
        };
    }
    Ok(found)
}

/// Whether recovery has failed at every earlier point at which a file is there and not empty,
/// everything surviving; and the store with which it began to fail.
fn since_when(
    search: &mut Search<'_>,
    failure: &Failure,
) -> Result<(bool, Option<Moment>), LaunchError> {
    let mut failing = None;
    let mut seen = u32::from(fails_at(search, failure, failure.point)?);
    let earlier = whole_points(search, failure.layer, 0..failure.point);
    for point in earlier.into_iter().rev().take(POINTS_MAX) {
        let recording = &search.layers[failure.layer].recording;
        let files = &recording.points[point as usize].files;
        // An empty one is no more than a name.
        if !files.values().any(|file| file.exists && file.size > 0) {
            return Ok((seen > 0, None));
        }
        if fails_at(search, failure, point)? {
            seen += 1;
            failing = Some(point);
            continue;
        }
        // It was fine here. What is stored until the next point did the harm.
        let until = failing.unwrap_or(failure.point);
        let begun = match seen > 0 {
            true => last_store(search, failure.layer, point, until),
            false => None,
        };
        return Ok((false, begun));
    }
    let created = search.layers[0].recording.files.values().any(|f| f.created);
    Ok((seen > 0 && created && failure.layer == 0, None))
}

/// The store with which recovery succeeds again, everything surviving.
fn until_when(search: &mut Search<'_>, failure: &Failure) -> Result<Option<Moment>, LaunchError> {
    let points = search.layers[failure.layer].recording.points.len() as u32;
    let later = whole_points(search, failure.layer, failure.point + 1..points);
    let mut before = failure.point;
    for point in later.into_iter().take(POINTS_MAX) {
        if !fails_at(search, failure, point)? {
            return Ok(last_store(search, failure.layer, before, point));
        }
        before = point;
    }
    Ok(None)
}

/// Those of the failure points at which all that was done to names and sizes survives. The others
/// of the same place come before them in the list, but not in time: what such a one has lost was
/// done long ago, perhaps, and it may have an empty file again.
fn whole_points(search: &Search<'_>, layer: usize, among: Range<u32>) -> Vec<u32> {
    let points = &search.layers[layer].recording.points;
    among
        .filter(|point| points[*point as usize].lost.is_empty())
        .collect()
}

fn fails_at(search: &mut Search<'_>, failure: &Failure, point: u32) -> Result<bool, LaunchError> {
    let files = search.layers[failure.layer].recording.points[point as usize]
        .files
        .clone();
    let image = Image::newest(&search.view(failure.layer, point), &Narrowed::new(), &files);
    let there = Failure {
        point,
        ..failure.clone()
    };
    Ok(test(search, &there, &image)?.is_some())
}

/// The last store between two failure points.
fn last_store(search: &Search<'_>, layer: usize, from: u32, to: u32) -> Option<Moment> {
    let recording = &search.layers[layer].recording;
    let moment = |point: u32| recording.points[point as usize].moment as usize;
    let steps = recording.steps.get(moment(from)..moment(to))?;
    let stored = |did: &Did| matches!(did, Did::Store(..));
    let at = steps.iter().rposition(|step| stored(&step.did))?;
    Some(Moment((moment(from) + at + 1) as u64))
}

/// How a lost store was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBack {
    /// Before the crash, but not fenced.
    Unfenced,
    /// After it.
    Later,
    Never,
    /// It needs none, only a fence: it bypasses the cache.
    NonTemporal,
}

/// What is known of a failure, in names for people.
#[derive(Debug)]
pub struct Facts<'f> {
    pub symptom: &'f Symptom,
    pub reason: Reason,
    /// The crash falls into a recovery.
    pub in_recovery: bool,
    /// The first store that is lost, and how it was written back.
    pub lost: Option<(&'f str, WrittenBack)>,
    /// A store that is not certain, survives, and does harm thereby.
    pub survivor: Option<&'f str>,
    pub overtaker: Option<&'f str>,
    /// The overtaker was stored before what is lost.
    pub overtaker_first: bool,
    /// They are stores to the same bytes, or to the same line.
    pub same_bytes: bool,
    pub same_line: bool,
    pub together: bool,
    pub torn: bool,
    pub creation: bool,
    pub completes: Option<&'f str>,
    /// What is lost lies in a file that persists by calls, not by write-backs and fences.
    pub by_calls: bool,
}

/// What to do.
pub fn advice(facts: &Facts<'_>) -> Vec<String> {
    let mut help = Vec::new();
    if facts.in_recovery {
        help.push(
            "recovery is cut short here and must come to the same end when it runs again: let it write values that do not depend on how far \
             it has come, and clear its log only when what it has restored is durable"
                .into(),
        );
        return help;
    }
    if facts.creation {
        help.push(
            "a crash while the file is created leaves one that recovery refuses: mark it as complete last, when all else is durable, and create \
             it anew if the mark is not there; or create it by another name, and rename it"
                .into(),
        );
        return help;
    }
    if *facts.symptom == Symptom::Hang && (facts.lost.is_none() || facts.same_bytes) {
        let lock = match facts.survivor.or(facts.overtaker) {
            Some(place) => format!("what is stored at {place}"),
            None => "persistent memory".into(),
        };
        help.push(format!(
            "recovery may wait for a lock in {lock}, held by a thread that is no more: set locks free when the file is opened, or keep \
             them in ordinary memory"
        ));
        return help;
    }
    if let Some((place, written_back)) = facts.lost {
        help.push(of_lost(facts, place, written_back));
        return help;
    }
    if let Symptom::Signal(_) = facts.symptom {
        help.push(
            "if recovery follows a pointer here: one that lies in persistent memory must not hold an address of the last run; keep offsets, and \
             rebuild what belongs to a run when the file is opened"
                .into(),
        );
    }
    match (facts.survivor, facts.overtaker, facts.completes) {
        (Some(early), _, Some(late)) if early != late => help.push(format!(
            "what is stored at {early} comes too early: store it when what is stored at {late} is durable; or log its old content before, so that \
             recovery can undo it"
        )),
        (Some(early), ..) => help.push(format!(
            "log what is changed at {early} before it is changed, or change it only when nothing can undo the operation any more"
        )),
        (None, Some(begins), Some(ends)) if begins != ends => help.push(format!(
            "what is stored at {begins} and at {ends} must become persistent together: log it before, or prepare it aside and publish it by \
             one aligned store of 8 bytes"
        )),
        _ => help.push(
            "make what is done here atomic: complete it, or undo it, when the program starts again"
                .into(),
        ),
    }
    help
}

fn of_lost(facts: &Facts<'_>, place: &str, written_back: WrittenBack) -> String {
    use WrittenBack::{Later, Never, NonTemporal, Unfenced};
    let persist = match written_back {
        Unfenced => format!("fence the write-back of what is stored at {place}"),
        NonTemporal => format!("fence after the non-temporal store at {place}"),
        Never | Later if facts.by_calls => format!("msync or fsync what is stored at {place}"),
        Never | Later => format!("write back and fence what is stored at {place}"),
    };
    if facts.torn {
        return format!(
            "a crash can tear the store at {place}: only 8 aligned bytes survive as a whole; publish by one such store, or log"
        );
    }
    let is_acknowledged = facts.reason == Reason::Acknowledges;
    if matches!(facts.symptom, Symptom::Lost(_)) || is_acknowledged && facts.overtaker.is_none() {
        return format!("{persist} before this is acknowledged");
    }
    match facts.overtaker {
        Some(other) if other != place && facts.together => format!(
            "what is stored at {place} and at {other} must become persistent together, because recovery fails whichever is missing: log both \
             before, or prepare them aside and publish them by one aligned store of 8 bytes"
        ),
        Some(other) if other != place && facts.overtaker_first && facts.same_line => format!(
            "a crash can fall between the stores at {other} and at {place}: publish both by one aligned store of 8 bytes, or make the one last \
             that recovery goes by"
        ),
        Some(other) if other != place && facts.overtaker_first => format!(
            "the store at {other} comes too early: make it when what is stored at {place} is durable"
        ),
        Some(other) if other != place => {
            format!("{persist} before the store at {other}, which can become persistent earlier")
        }
        _ => match written_back {
            Unfenced => format!(
                "until this fence, what is stored at {place} may be lost although all before it survives, and recovery does not cope with \
                 that: make it durable before what depends on it, or let recovery complete or undo what it finds"
            ),
            Later => format!(
                "{persist} earlier: before anything that depends on it can become persistent, or log it"
            ),
            Never | NonTemporal => {
                format!("{persist}, before anything that depends on it can become persistent")
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Facts<'static> = Facts {
        symptom: &Symptom::Exit(1),
        reason: Reason::Completes,
        in_recovery: false,
        lost: None,
        survivor: None,
        overtaker: None,
        overtaker_first: false,
        same_bytes: false,
        same_line: false,
        together: false,
        torn: false,
        creation: false,
        completes: None,
        by_calls: false,
    };

    fn said(facts: &Facts<'_>) -> String {
        advice(facts).join("\n")
    }

    /// Each kind of cause has its own remedy, and names the stores that it is about.
    #[test]
    fn remedies_fit_causes() {
        let lost = |written_back| Facts {
            lost: Some(("data.c:1", written_back)),
            ..PLAIN
        };
        let table = [
            (
                Facts {
                    symptom: &Symptom::Hang,
                    survivor: Some("lock.c:3"),
                    ..PLAIN
                },
                "a lock in what is stored at lock.c:3",
            ),
            (
                Facts {
                    in_recovery: true,
                    ..PLAIN
                },
                "when it runs again",
            ),
            (
                Facts {
                    creation: true,
                    ..lost(WrittenBack::Unfenced)
                },
                "create it anew",
            ),
            (
                Facts {
                    torn: true,
                    ..lost(WrittenBack::Later)
                },
                "can tear the store at data.c:1",
            ),
            (
                Facts {
                    overtaker: Some("flag.c:2"),
                    ..lost(WrittenBack::Never)
                },
                "write back and fence what is stored at data.c:1 before the store at flag.c:2",
            ),
            (
                Facts {
                    overtaker: Some("flag.c:2"),
                    ..lost(WrittenBack::Unfenced)
                },
                "fence the write-back of what is stored at data.c:1 before the store at flag.c:2",
            ),
            (
                Facts {
                    overtaker: Some("flag.c:2"),
                    overtaker_first: true,
                    ..lost(WrittenBack::Later)
                },
                "the store at flag.c:2 comes too early: make it when what is stored at data.c:1 is durable",
            ),
            (
                Facts {
                    overtaker: Some("flag.c:2"),
                    together: true,
                    ..lost(WrittenBack::Unfenced)
                },
                "at data.c:1 and at flag.c:2 must become persistent together",
            ),
            (
                Facts {
                    reason: Reason::Acknowledges,
                    ..lost(WrittenBack::Later)
                },
                "write back and fence what is stored at data.c:1 before this is acknowledged",
            ),
            (
                Facts {
                    reason: Reason::Acknowledges,
                    by_calls: true,
                    ..lost(WrittenBack::Later)
                },
                "msync or fsync what is stored at data.c:1 before this is acknowledged",
            ),
            (
                lost(WrittenBack::NonTemporal),
                "fence after the non-temporal store at data.c:1",
            ),
            (
                Facts {
                    overtaker: Some("flag.c:2"),
                    overtaker_first: true,
                    same_line: true,
                    ..lost(WrittenBack::Unfenced)
                },
                "a crash can fall between the stores at flag.c:2 and at data.c:1",
            ),
            (
                Facts {
                    symptom: &Symptom::Hang,
                    overtaker: Some("lock.c:3"),
                    same_bytes: true,
                    ..lost(WrittenBack::Never)
                },
                "a lock in what is stored at lock.c:3",
            ),
            (lost(WrittenBack::Unfenced), "until this fence"),
            (
                Facts {
                    survivor: Some("flag.c:2"),
                    completes: Some("data.c:1"),
                    ..PLAIN
                },
                "at flag.c:2 comes too early: store it when what is stored at data.c:1 is durable",
            ),
            (
                Facts {
                    survivor: Some("sum.c:2"),
                    ..PLAIN
                },
                "log what is changed at sum.c:2",
            ),
            (
                Facts {
                    overtaker: Some("a.c:1"),
                    completes: Some("b.c:2"),
                    ..PLAIN
                },
                "at a.c:1 and at b.c:2 must become persistent together",
            ),
            (PLAIN, "make what is done here atomic"),
            (
                Facts {
                    symptom: &Symptom::Signal(11),
                    ..PLAIN
                },
                "keep offsets",
            ),
        ];
        for (facts, words) in table {
            let said = said(&facts);
            assert!(said.contains(words), "{facts:?}\n  {said}");
            // Logging is no remedy for a lock, an order or an acknowledgement.
            let is_order = facts.overtaker.is_some() && facts.lost.is_some() && !facts.together;
            let needs_no_log =
                *facts.symptom == Symptom::Hang || is_order || facts.reason == Reason::Acknowledges;
            assert!(
                !needs_no_log || !said.contains("log"),
                "{facts:?}\n  {said}"
            );
        }
    }
}
