//! How the program itself ends under a schedule, where it ends otherwise than in the first run, in
//! which nobody is interrupted.
//!
//! | end | what becomes of it |
//! |---|---|
//! | killed by a signal that a mistake of its own brings | a finding ([`BuiltIn::Crash`](brownout_findings::rules::BuiltIn::Crash)), once for each place |
//! | another signal, another exit code than 0 | a remark with a token: programs may mean that |

use brownout_explore::{Status, is_fatal, signal_name};
use brownout_host::ExitStatus;

use crate::site::{Done, mix};
use crate::stage::Ran;
use crate::watch::Watch;

/// A program that a signal has ended.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    pub signal: i32,
    /// Where, if that is known.
    pub at: Option<Done>,
    /// The same for the same signal at the same place.
    pub name: u64,
}

/// The death of the program, if it was one, and by a mistake of its own.
pub fn death(ran: &Ran, watch: &Watch) -> Option<Death> {
    let status = match ran.outcome.status {
        ExitStatus::Code(code) => Status::Exit(code),
        ExitStatus::Signal(signal) => Status::Signal(signal),
    };
    // A shell may have run it.
    let signal = status.killed_by().filter(|_| ran.has_ended())?;
    let at = watch.died.filter(|(_, by)| *by == signal);
    let at = at.map(|(done, _)| done);
    is_fatal(signal).then(|| Death {
        signal,
        at,
        name: mix(signal as u64, at.map_or(0, |done| done.site.name)),
    })
}

/// How a run ended, if by itself.
pub fn ending(ran: &Ran) -> Option<ExitStatus> {
    ran.has_ended().then_some(ran.outcome.status)
}

/// In words, after "ends with" or "ended with".
pub fn words(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("exit code {code}"),
        ExitStatus::Signal(signal) => signal_name(signal),
    }
}
