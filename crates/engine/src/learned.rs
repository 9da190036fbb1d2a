//! What a run that was forked tells the process that is kept for the next one (`session.rs`).

use crate::control::control;
use core::sync::atomic::{AtomicBool, Ordering};

/// This process is a run, and tells what it translates.
static LEARNS: AtomicBool = AtomicBool::new(false);

/// It is a run from here on.
pub fn begin() {
    LEARNS.store(true, Ordering::Relaxed);
}

/// In a forked child of a run: what it translates is its own business.
pub fn reset_after_fork() {
    LEARNS.store(false, Ordering::Relaxed);
}

/// Whether this process is a run.
pub fn is_run() -> bool {
    LEARNS.load(Ordering::Relaxed)
}

/// A run has found out something that the next one can use. `what` is one of
/// [`brownout_abi::learned`], with an address.
#[inline]
pub fn found(what: u64, detail: u64) {
    if LEARNS.load(Ordering::Relaxed) {
        let c = control();
        // Under the translator's lock, or that of the sites; both are this process's own, so two
        // may come at once: each has its place.
        let n = c.learned_count.fetch_add(1, Ordering::AcqRel) as usize;
        if let Some(entry) = c.learned.get(n) {
            entry[1].store(detail, Ordering::Relaxed);
            entry[0].store(what, Ordering::Release);
        }
    }
}
