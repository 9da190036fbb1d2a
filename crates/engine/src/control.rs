//! The control block that all processes of a run share with the tool, and what of it everybody asks
//! for.

use crate::sys::{nr, sc};
use brownout_abi::{CONTROL_BASE, Control};
use core::sync::atomic::{AtomicU32, Ordering};

/// The shared control block.
pub fn control() -> &'static Control {
    // SAFETY: the launcher mapped it before the engine's first instruction.
    unsafe { &*(CONTROL_BASE as *const Control) }
}

/// Whether several threads or processes append to the ring.
pub fn shared() -> bool {
    control().ring_shared.load(Ordering::Relaxed) != 0
}

/// Lets the reader have everything that a lone thread has appended. (Among several, each is quick
/// to publish the others' records.)
pub fn publish() {
    if !shared() {
        let c = control();
        let tail = c.ring_tail.load(Ordering::Relaxed);
        c.ring_write.store(tail, Ordering::Release);
    }
}

static PID: AtomicU32 = AtomicU32::new(0);

/// The kernel's number of this process.
pub fn real_pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Called at start and in a forked child.
pub fn refresh_pid() {
    // SAFETY: no arguments.
    let pid = unsafe { sc!(nr::GETPID) } as u32;
    PID.store(pid, Ordering::Relaxed);
    // Whoever comes first.
    let first = &control().first_process;
    let _ = first.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed);
}

/// How many layouts there are room for. Beyond them numbers repeat, 0 excepted, which is the
/// recorded run's.
pub const LAYOUTS: u64 = 8;

/// The layout of this run, as a factor of distances.
pub fn layout_number() -> u64 {
    match u64::from(control().layout) {
        0 => 0,
        n => 1 + (n - 1) % (LAYOUTS - 1),
    }
}
