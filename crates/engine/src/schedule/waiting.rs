//! What calls that may wait have in common: to wait for something in the kernel, and to ask a
//! descriptor whether it would.

use super::turn::{self, Woken, interrupted};
use crate::context::ThreadContext;
use crate::sys::{nr, sc};
use brownout_schedule::{Point, PointKind, SeatState};

const POLL: u64 = 7;
pub const POLLIN: u16 = 1;
pub const POLLOUT: u16 = 4;
pub const O_NONBLOCK: u64 = 0o4000;

/// Without a time to wait.
pub const NOTHING: [u64; 2] = [0; 2];

/// Waits for something in the kernel, to try again. `Err`: what the call answers instead.
pub fn wait(
    ctx: &mut ThreadContext,
    state: SeatState,
    deadline: u64,
    here: Point,
    restarts: bool,
) -> Result<Woken, Option<i64>> {
    let here = Point {
        kind: PointKind::Wait,
        ..here
    };
    match turn::wait(ctx, state, deadline, here) {
        Woken::Deadlock => super::deadlock::tell(ctx, false),
        Woken::Signal => Err(interrupted(ctx, restarts)),
        woken => Ok(woken),
    }
}

/// Whether a descriptor is ready, or will never be otherwise.
pub fn is_ready(fd: u64, events: u16) -> bool {
    let entry = fd as u32 as u64 | u64::from(events) << 32;
    // SAFETY: one entry of our own; no time to wait.
    let count = unsafe { sc!(POLL, &raw const entry, 1, 0) };
    count != 0
}

/// Flags of an open file; none if there is none.
fn flags(fd: u64) -> Option<u64> {
    const F_GETFL: u64 = 3;
    // SAFETY: numbers only.
    let flags = unsafe { sc!(nr::FCNTL, fd, F_GETFL, 0) };
    u64::try_from(flags).ok()
}

/// Whether calls with this descriptor answer at once, if only with an error.
pub fn does_not_wait(fd: u64) -> bool {
    flags(fd).is_none_or(|flags| flags & O_NONBLOCK != 0)
}

/// Whether it can only be written to.
pub fn is_output(fd: u64) -> bool {
    const O_ACCMODE: u64 = 3;
    const O_WRONLY: u64 = 1;
    flags(fd).is_some_and(|flags| flags & O_ACCMODE == O_WRONLY)
}

/// Has calls with this descriptor wait, or not.
pub fn set_waits(fd: u64, waits: bool) {
    const F_SETFL: u64 = 4;
    if let Some(flags) = flags(fd) {
        let flags = match waits {
            true => flags & !O_NONBLOCK,
            false => flags | O_NONBLOCK,
        };
        // SAFETY: numbers only.
        unsafe { sc!(nr::FCNTL, fd, F_SETFL, flags) };
    }
}

const S_IFMT: u32 = 0o170_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;

/// Whether these permissions are those of a pipe.
pub fn is_pipe_mode(mode: u32) -> bool {
    mode & S_IFMT == S_IFIFO
}

pub fn is_pipe(fd: u64) -> bool {
    crate::pm::file_mode(fd).is_some_and(is_pipe_mode)
}

pub fn is_socket(fd: u64) -> bool {
    crate::pm::file_mode(fd).is_some_and(|mode| mode & S_IFMT == S_IFSOCK)
}
