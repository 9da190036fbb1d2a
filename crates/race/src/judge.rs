//! What a crash makes of an effect, and of a lock that is held: recovery has the last word.
//!
//! | image | an effect | a lock |
//! |---|---|---|
//! | the bad one | its source is lost, all else has survived; then also: all that the thread of the source may lose is lost | the word holds what was stored, all else has survived |
//! | same moment | nothing is lost | the store to the word is lost |
//! | earlier | right before the effect, its source lost | right before the store |
//!
//! **Confirmed**: recovery (or what is to run after it) fails or hangs on the bad image, and on
//! none of the others. So it is neither what recovery does anyway, nor the loss of the source
//! alone. Of what is only stored *after* the source was read, that is all there is. **Unrepaired**:
//! nothing fails, the effect is certain at that moment, and its bytes are still there after
//! recovery. **Repaired**: they are not.
//!
//! A lock of which the program says what it holds after recovery is confirmed, too, if recovery
//! ends well, and it does not hold that; after the other crashes it does. Nobody holds it then: all
//! threads have ended.
//!
//! Source: PMRace (ASPLOS 2022), sections 3.1 (PM synchronization inconsistency) and 4.4 (a
//! synchronization variable must have its expected value after recovery). Deviation: words of which
//! the program says nothing are tried, too, and count if something fails.

use std::path::Path;

use brownout_explore::{Crash, OneCrash, Stored, Trial, Tried, Wish};
use brownout_findings::Reproduction;
use brownout_model::keys;
use brownout_trace::event::FileId;

use crate::effects::{Effect, How};
use crate::options::Error;
use crate::words::Suspect;

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// After the crash, this happens.
    Confirmed(String),
    /// Nothing fails, and it is still there.
    Unrepaired,
    /// Recovery has set it right.
    Repaired,
    /// No crash leaves the one without the other, or what recovery does says nothing.
    Nothing,
}

/// A verdict, and the crash that shows it.
pub struct Judged {
    pub verdict: Verdict,
    pub crash: Option<Crash>,
    /// Which procedure showed it.
    pub procedure: usize,
    pub tried: Option<Tried>,
    /// Nothing fails, but what a lock holds after recovery is not what the program says.
    pub not_set_back: bool,
    /// What happens after a crash at the same moment in which nothing is lost, if that is no
    /// better.
    pub fails_anyway: Option<String>,
    /// What happens if the source is lost before anything was made of it, if that is no better.
    pub fails_before: Option<String>,
}

impl Judged {
    fn nothing() -> Judged {
        Judged {
            verdict: Verdict::Nothing,
            crash: None,
            procedure: 0,
            tried: None,
            not_set_back: false,
            fails_anyway: None,
            fails_before: None,
        }
    }

    /// The crash in numbers.
    pub fn spec(&self, trial: &Trial) -> Option<OneCrash> {
        self.crash.as_ref().map(|crash| trial.spec(crash))
    }

    /// The crash as files, and the commands that show it natively.
    pub fn show(&self, trial: &mut Trial, folder: &Path) -> Result<Option<Reproduction>, Error> {
        let (Some(crash), Some(tried)) = (&self.crash, &self.tried) else {
            return Ok(None);
        };
        Ok(Some(trial.show(crash, self.procedure, tried, folder)?))
    }
}

/// The crash that leaves an effect without its source, if there is one. There is none where both
/// lie in one line, for instance.
fn bad_crash(trial: &Trial, effect: &Effect) -> Option<Crash> {
    let source = [Stored {
        event: effect.source.store.event,
    }];
    let store = [Stored {
        event: effect.done.event,
    }];
    trial.crash(Wish {
        lost: &source,
        kept: match effect.range {
            Some(_) => &store,
            None => &[],
        },
        after: Some(effect.done.event),
        before: None,
    })
}

/// Whether any crash leaves an effect without its source.
pub fn can_be(trial: &Trial, effect: &Effect) -> bool {
    bad_crash(trial, effect).is_some()
}

/// Judges an effect.
pub fn effect(trial: &mut Trial, effect: &Effect, procedures: usize) -> Result<Judged, Error> {
    let source = [Stored {
        event: effect.source.store.event,
    }];
    let store = Stored {
        event: effect.done.event,
    };
    let Some(crash) = bad_crash(trial, effect) else {
        return Ok(Judged::nothing());
    };
    let change = change_of(trial, source[0]);
    if change == Change::None {
        return Ok(Judged::nothing());
    }
    let left = match effect.range {
        Some(_) => trial.left(&crash, store),
        None => None,
    };
    let (mut first, mut fails_anyway, mut fails_before) = (None, None, None);
    for (crash, lost) in worse_and_worse(trial, &crash, effect) {
        let earlier = effect.range.and_then(|_| trial.right_before(store, &lost));
        for procedure in 0..procedures {
            if trial.is_unfit(procedure).is_some() {
                continue;
            }
            let tried = trial.recover(&crash, procedure)?;
            let is_there = left.as_ref().is_none_or(|left| trial.is_still_there(left));
            if let Some(failure) = &tried.failure {
                let whole = trial.all_survive(&crash);
                if let Some(failure) = trial.recover(&whole, procedure)?.failure {
                    fails_anyway.get_or_insert(failure);
                } else if none_fails(trial, earlier.clone().into_iter(), procedure)? {
                    return Ok(Judged {
                        verdict: Verdict::Confirmed(failure.clone()),
                        crash: Some(crash),
                        procedure,
                        tried: Some(tried),
                        ..Judged::nothing()
                    });
                } else {
                    fails_before.get_or_insert_with(|| failure.clone());
                }
            }
            first.get_or_insert((tried, is_there));
        }
    }
    let nothing = Judged {
        fails_anyway: fails_anyway.clone(),
        fails_before: fails_before.clone(),
        ..Judged::nothing()
    };
    let Some((tried, is_there)) = first.filter(|_| effect.how != How::Afterwards) else {
        return Ok(nothing);
    };
    let is_mark = effect.source.store.is_locked && change == Change::ClearsBit;
    Ok(Judged {
        verdict: match (
            is_there,
            crash.is_certain && tried.failure.is_none() && !is_mark,
        ) {
            (false, _) => Verdict::Repaired,
            (true, true) => Verdict::Unrepaired,
            // It is there only by chance; or recovery fails for other reasons.
            (true, false) => Verdict::Nothing,
        },
        crash: Some(crash),
        tried: Some(tried),
        fails_anyway,
        fails_before,
        ..Judged::nothing()
    })
}

/// The crash, and the same with all lost that the thread of the source may lose, except what shares
/// a line with the effect. With each, what is lost.
fn worse_and_worse(trial: &Trial, crash: &Crash, effect: &Effect) -> Vec<(Crash, Vec<Stored>)> {
    let source = Stored {
        event: effect.source.store.event,
    };
    let mut all = vec![(crash.clone(), vec![source])];
    let (mut worst, mut lost) = (crash.clone(), vec![source]);
    let kept = Stored {
        event: effect.done.event,
    };
    for event in &effect.pending {
        let stored = Stored { event: *event };
        if effect.range.is_some() && trial.share_unit(kept, stored) {
            continue;
        }
        if let Some(without) = trial.without(&worst, &[stored]) {
            worst = without;
            lost.push(stored);
        }
    }
    if lost.len() > 1 {
        all.push((worst, lost));
    }
    all
}

/// What a store has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Nothing: it has stored what was there, as a compare-and-exchange does that fails.
    None,
    /// One bit, which was set and is not any more: how a mark is taken back that says "not
    /// persistent yet". Whoever reads that word leaves the mark out.
    ClearsBit,
    /// Something else.
    Some,
}

fn change_of(trial: &Trial, source: Stored) -> Change {
    let Some((without, with)) = trial.change(source) else {
        return Change::Some;
    };
    let (mut set, mut cleared) = (0, 0);
    for (with, without) in with.iter().zip(&without) {
        set += (with & !without).count_ones();
        cleared += (without & !with).count_ones();
    }
    match (set, cleared) {
        (0, 0) => Change::None,
        (0, 1) => Change::ClearsBit,
        _ => Change::Some,
    }
}

/// Judges a change of a word that may be a lock.
pub fn change(trial: &mut Trial, suspect: &Suspect, procedures: usize) -> Result<Judged, Error> {
    let next = suspect.next.as_ref();
    let this = [Stored {
        event: suspect.change.done.event,
    }];
    let during = Wish {
        lost: &[],
        kept: &this,
        after: None,
        before: next.map(|next| next.done.event),
    };
    let mut crash = trial.crash(during);
    if crash.is_none()
        && let Some(next) = next
    {
        // Nothing was completed meanwhile: the word has left the cache before it changed again.
        let next = [Stored {
            event: next.done.event,
        }];
        crash = trial.crash(Wish {
            lost: &next,
            kept: &this,
            ..Wish::default()
        });
    }
    let Some(crash) = crash else {
        return Ok(Judged::nothing());
    };
    let earlier = trial.right_before(this[0], &[]);
    let others = |trial: &Trial| {
        let without = trial.without(&crash, &this);
        [without, earlier.clone()].into_iter().flatten()
    };
    let initial = initial(suspect);
    let mut not_set_back = None;
    for procedure in 0..procedures {
        if trial.is_unfit(procedure).is_some() {
            continue;
        }
        let tried = trial.recover(&crash, procedure)?;
        let Some(failure) = tried.failure.clone() else {
            // Of what runs after recovery, nothing is said.
            if procedure == 0 && !trial.is_still_there(&initial) {
                not_set_back = Some(tried);
            }
            continue;
        };
        let others = others(trial);
        if none_fails(trial, others, procedure)? {
            return Ok(Judged {
                verdict: Verdict::Confirmed(failure),
                crash: Some(crash),
                procedure,
                tried: Some(tried),
                ..Judged::nothing()
            });
        }
    }
    let Some(tried) = not_set_back else {
        return Ok(Judged::nothing());
    };
    for other in others(trial) {
        let is_well = trial.recover(&other, 0)?.failure.is_none();
        if !(is_well && trial.is_still_there(&initial)) {
            return Ok(Judged::nothing());
        }
    }
    Ok(Judged {
        verdict: Verdict::Confirmed(NOT_SET_BACK.to_owned()),
        crash: Some(crash),
        tried: Some(tried),
        not_set_back: true,
        ..Judged::nothing()
    })
}

/// What is wrong if nothing fails.
const NOT_SET_BACK: &str =
    "recovery ends well, and does not set it back to what brownout_sync_var says";

/// What the program says of the bytes of a change: file, offset, and what they hold after recovery.
pub fn initial(suspect: &Suspect) -> Vec<(FileId, u64, Vec<u8>)> {
    let parts = suspect.initial.iter().map(|(range, bytes)| {
        let (file, offset) = keys::place(range.start());
        (file, offset, bytes.clone())
    });
    parts.collect()
}

/// Whether a procedure does well on all of these.
fn none_fails(
    trial: &mut Trial,
    crashes: impl Iterator<Item = Crash>,
    procedure: usize,
) -> Result<bool, Error> {
    for crash in crashes {
        if trial.recover(&crash, procedure)?.failure.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Two verdicts of the same kind.
pub fn is_same(one: &Verdict, other: &Verdict) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}
