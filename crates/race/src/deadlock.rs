//! Threads that wait for ever: in the kernel, or by looking again and again at what nobody changes
//! any more.
//!
//! Who looks is known only when the run is ended because it does not end. In whatever way that is
//! noticed (its events, its steps, its time), one rule says whether they look in vain: for the
//! second half of the run nothing has changed in persistent memory. A run that was ended because
//! the search is over says nothing.

use brownout_trace::event::TargetAddr;

use crate::site::{Done, name_of};
use crate::stage::Ran;
use crate::watch::Watch;

/// Who waits for ever, if anybody does; and whether they look again and again.
pub fn waits(ran: &Ran, watch: &Watch) -> Option<(Vec<(Done, TargetAddr)>, bool)> {
    if ran.scheduled.is_deadlock {
        return Some((watch.stuck.clone(), false));
    }
    if !ran.is_endless || !watch.is_quiet(ran.outcome.wall) {
        return None;
    }
    let seen = watch.whereabouts().into_iter();
    let last: Vec<_> = seen.map(|done| (done, TargetAddr::default())).collect();
    (!last.is_empty()).then_some((last, true))
}

/// The same for the same places, whoever waits there.
pub fn deadlock_name(waits: &[(Done, TargetAddr)]) -> u64 {
    let mut names: Vec<u64> = waits.iter().map(|(done, _)| done.site.name).collect();
    names.sort_unstable();
    name_of(&names)
}
