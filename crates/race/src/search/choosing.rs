//! Which effects of a run are tried, and in which order.
//!
//! Guarantee: the state is locked to read and to count, never while a place is looked up in the
//! program's symbols or a crash is looked for, which takes long.

use std::sync::Mutex;

use rustc_hash::{FxHashMap, FxHashSet};

use super::state::{Pairs, State, lock};
use crate::effects::{Effect, How};
use crate::site::Site;

/// Effects that are tried of one run; the others are when they show again.
const RUN_MAX: usize = 16;
/// Of these, the ones in which libraries have a hand that look after themselves.
const THEIRS_MAX: usize = 4;

/// What of a run's effects may be tried, the most telling first: the program's own before those in
/// which libpmemobj and its kin have a hand, and what depends on its source for sure before what is
/// only stored afterwards. The first word of each says whether it is theirs.
pub(super) fn ranked(
    state: &Mutex<State>,
    effects: Vec<Effect>,
    mut is_foundation: impl FnMut(Site) -> bool,
) -> Vec<(bool, Effect)> {
    let effects: Vec<Effect> = {
        let mut state = lock(state);
        let may_try = |effect: &Effect| state.may_try(effect);
        effects.into_iter().filter(may_try).collect()
    };
    let mut known: FxHashMap<u64, bool> = FxHashMap::default();
    let mut is_theirs = |site: Site| {
        let known = known.entry(site.name);
        *known.or_insert_with(|| is_foundation(site))
    };
    let mut ranked: Vec<(bool, Effect)> = Vec::new();
    for effect in effects {
        let source = &effect.source;
        let sites = [source.store.site, source.load.site, effect.done.site];
        let is_theirs = sites.into_iter().any(&mut is_theirs);
        let is_after = effect.how == How::Afterwards;
        if !(is_theirs && is_after) {
            ranked.push((is_theirs, effect));
        }
    }
    ranked.sort_by_key(|(is_theirs, effect)| (*is_theirs, effect.how == How::Afterwards));
    ranked
}

/// What of it is tried, now that it can be told which of it a crash can leave (`can_be`); and the
/// early reads of which a crash can leave nothing.
pub(super) fn worth_trying(
    state: &Mutex<State>,
    ranked: Vec<(bool, Effect)>,
    can_be: impl Fn(&Effect) -> bool,
) -> (Vec<Effect>, Pairs) {
    let (mut wanted, mut fruitful, mut fruitless) =
        (Vec::new(), Pairs::default(), Pairs::default());
    let mut in_vain: FxHashSet<u64> = FxHashSet::default();
    let (mut theirs, mut has_more) = (0, false);
    for (is_theirs, effect) in ranked {
        if !lock(state).may_try(&effect) {
            continue;
        }
        let pair = effect.source.pair();
        if wanted.len() >= RUN_MAX || is_theirs && theirs >= THEIRS_MAX {
            has_more |= !is_theirs;
            fruitful.insert(pair);
            continue;
        }
        if !can_be(&effect) {
            fruitless.insert(pair);
            in_vain.insert(effect.name);
            continue;
        }
        fruitful.insert(pair);
        theirs += usize::from(is_theirs);
        lock(state).count_try(&effect);
        wanted.push(effect);
    }
    let mut state = lock(state);
    state.has_more |= has_more;
    for effect in &wanted {
        in_vain.remove(&effect.name);
    }
    for name in in_vain {
        state.count_in_vain(name);
    }
    fruitless.retain(|pair| !fruitful.contains(pair));
    (wanted, fruitless)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use brownout_model::{ByteRange, Key};
    use brownout_trace::event::ThreadId;

    use super::*;
    use crate::discoveries::Discoveries;
    use crate::effects::Source;
    use crate::inputs::Inputs;
    use crate::search::state::IN_VAIN_MAX;
    use crate::site::Done;

    fn state() -> Mutex<State> {
        let (inputs, known) = (Inputs::one(None), Discoveries::default());
        Mutex::new(State::new(0, inputs, known, FxHashSet::default()))
    }

    fn effect(name: u64) -> Effect {
        let by = |thread, name| {
            let mut done = Done::default();
            (done.site.thread, done.site.name) = (ThreadId(thread), name);
            done
        };
        let range = ByteRange::new(Key(64), 8);
        Effect {
            source: Source {
                store: by(1, 100 + name),
                load: by(2, 200 + name),
                range,
                is_inter: true,
            },
            done: by(2, 300 + name),
            range: Some(range),
            how: How::Content,
            pending: Vec::new(),
            name,
        }
    }

    #[test]
    fn nobody_waits_for_what_takes_long() {
        let state = state();
        let ranked = ranked(&state, vec![effect(1), effect(2)], |site| {
            assert!(state.try_lock().is_ok());
            site.name == 101
        });
        let order: Vec<(bool, u64)> = ranked.iter().map(|(t, e)| (*t, e.name)).collect();
        assert_eq!(order, [(false, 2), (true, 1)]);
        let (wanted, fruitless) = worth_trying(&state, ranked, |effect| {
            assert!(state.try_lock().is_ok());
            effect.name == 1
        });
        assert!(wanted.len() == 1 && wanted[0].name == 1);
        assert_eq!(fruitless, Pairs::from_iter([effect(2).source.pair()]));
    }

    #[test]
    fn what_no_crash_leaves_is_looked_for_a_bounded_number_of_times() {
        let state = state();
        let asked = Cell::new(0);
        for _ in 0..2 * IN_VAIN_MAX {
            // Twice in a run.
            let ranked = ranked(&state, vec![effect(1), effect(1)], |_| false);
            let (wanted, _) = worth_trying(&state, ranked, |_| {
                asked.set(asked.get() + 1);
                false
            });
            assert!(wanted.is_empty());
        }
        assert_eq!(asked.get(), 2 * IN_VAIN_MAX);
    }

    #[test]
    fn what_is_left_is_told_and_forgotten_again() {
        let state = state();
        let try_all = |effects: Vec<Effect>| {
            let ranked = ranked(&state, effects, |_| false);
            worth_trying(&state, ranked, |_| true).0.len()
        };
        let many = (0..RUN_MAX as u64 + 1).map(effect).collect();
        assert_eq!(try_all(many), RUN_MAX);
        assert!(lock(&state).follows(false));
        assert_eq!(try_all(vec![effect(RUN_MAX as u64)]), 1);
        assert!(!lock(&state).follows(false));
    }
}
