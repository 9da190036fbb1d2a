//! Threads that wait for ever: in the kernel, or by looking again and again at what nobody changes any more.

use brownout_host::Stopped;
use brownout_trace::event::TargetAddr;

use crate::site::{Done, name_of};
use crate::stage::Ran;
use crate::watch::Watch;

/// So many events in which nothing changes: whoever still looks will look for ever.
const QUIET_EVENTS: u64 = 5_000;

/// Who waits for ever, if anybody does; and whether they look again and again.
pub fn waits(ran: &Ran, watch: &Watch) -> Option<(Vec<(Done, TargetAddr)>, bool)> {
    if ran.scheduled.is_deadlock {
        return Some((watch.stuck.clone(), false));
    }
    let is_quiet = match ran.outcome.stopped {
        Some(Stopped::Events) => watch.words.quiet > QUIET_EVENTS,
        // Half of its time, it has changed nothing.
        Some(_) => 2 * watch.since_change() > ran.outcome.wall,
        None => false,
    };
    if ran.is_endless && is_quiet {
        let mut last: Vec<_> = watch
            .last
            .values()
            .map(|done| (*done, Default::default()))
            .collect();
        last.sort_unstable_by_key(|(done, _)| done.site.thread);
        return (!last.is_empty()).then_some((last, true));
    }
    None
}

/// The same for the same places, whoever waits there.
pub fn deadlock_name(waits: &[(Done, TargetAddr)]) -> u64 {
    let mut names: Vec<u64> = waits.iter().map(|(done, _)| done.site.name).collect();
    names.sort_unstable();
    name_of(&names)
}
