//! After the call: copies go back to the program, and what the kernel wrote into PM is reported.
//!
//! Order matters once: what the kernel wrote into copies is put back from the last to the first,
//! because a length (`msg_namelen`, a `socklen_t`) always comes after what it measures, and must be
//! in place when that is.

use crate::kind::When;
use crate::memory::{Memory, Translate, View};
use crate::prepare::{IOCB_PREAD, IOCB_PREADV};
use crate::prepared::{Extent, Pending, Prepared};
use crate::scratch::{PIECE, Slot};

const EINTR: i64 = 4;
const EFAULT: i64 = 14;

/// Changed bytes closer together than this are reported as one range.
const GAP: u64 = 8;

/// Completes a prepared call that returned `result`: restores and fills what the program sees, and
/// calls `written(addr, len)` for every range of PM that the kernel wrote, in the program's
/// addresses, after its content is final.
///
/// Must be called once after the call, in the parent only if the call made a process. Does nothing
/// if the call had nothing to do with PM.
#[inline]
pub fn finish(
    prepared: &Prepared,
    result: i64,
    t: &impl Translate,
    m: &impl Memory,
    written: &mut dyn FnMut(u64, u64),
) {
    if !prepared.is_idle() {
        complete(prepared, result, &View { t, m }, written);
    }
}

fn complete<T: Translate, M: Memory>(
    prepared: &Prepared,
    result: i64,
    view: &View<'_, T, M>,
    written: &mut dyn FnMut(u64, u64),
) {
    for &(addr, value) in &prepared.patches {
        // Only what was written there by `prepare` is restored, so it was writable.
        view.write(addr, &value.to_le_bytes());
    }
    for pending in prepared.pending.iter().rev() {
        if let Some(slot) = pending.via {
            ranges(
                prepared,
                pending,
                result,
                view,
                Some(slot),
                &mut |at, len| {
                    put_back(view, pending, slot, at, len);
                },
            );
        }
    }
    if let Some(events) = prepared.events {
        collect(view, events, result, written);
    }
    for pending in &prepared.pending {
        ranges(prepared, pending, result, view, None, &mut |at, len| {
            view.pm_parts(pending.addr.wrapping_add(at), len, written);
        });
    }
}

fn put_back<T: Translate, M: Memory>(
    view: &View<'_, T, M>,
    pending: &Pending,
    slot: Slot,
    mut at: u64,
    mut len: u64,
) {
    let mut piece = [0; PIECE];
    while len > 0 {
        let take = len.min(PIECE as u64);
        let bytes = &mut piece[..take as usize];
        slot.load(at as usize, bytes);
        // A page that went away meanwhile takes what the kernel wrote with it.
        view.write(pending.addr.wrapping_add(at), bytes);
        at += take;
        len -= take;
    }
}

/// Calls `f(offset, len)` for what the kernel wrote of `pending`. `content` is where it is now, if
/// not yet in the program's memory.
fn ranges<T: Translate, M: Memory>(
    prepared: &Prepared,
    pending: &Pending,
    result: i64,
    view: &View<'_, T, M>,
    content: Option<Slot>,
    f: &mut dyn FnMut(u64, u64),
) {
    if let Extent::Changed(before) = pending.extent {
        if result == -EFAULT || holds(prepared, pending.when, result) {
            changes(pending, view, content, before, f);
        }
        return;
    }
    if result == -EFAULT {
        return f(0, pending.len);
    }
    if !holds(prepared, pending.when, result) {
        return;
    }
    let count = u64::try_from(result).unwrap_or(0);
    let mut first = |len: u64| {
        let len = len.min(pending.len);
        if len > 0 {
            f(0, len);
        }
    };
    match pending.extent {
        Extent::All => first(pending.len),
        Extent::Result { plus, unit } => {
            first(
                count
                    .saturating_mul(unit.into())
                    .saturating_add(plus.into()),
            );
        }
        Extent::Len32(addr) => first(view.read_u32(addr).map_or(pending.len, u64::from)),
        Extent::Len64(addr) => first(view.read_u64(addr).unwrap_or(pending.len)),
        Extent::Window { start, total } => {
            let total = match total {
                None => count,
                Some(addr) => view.read_u32(addr).map_or(u64::MAX, u64::from),
            };
            first(total.saturating_sub(start));
        }
        Extent::Field { item, at, len } => {
            for item_at in (0..pending.len).step_by(item.into()) {
                f(item_at + u64::from(at), len.into());
            }
        }
        Extent::WaitInfo => {
            // `si_signo`, `si_errno`, `si_code`; then `si_pid`, `si_uid`, `si_status`.
            f(0, 12);
            f(16, 12);
        }
        Extent::Changed(_) => unreachable!("handled above"),
    }
}

fn holds(prepared: &Prepared, when: When, result: i64) -> bool {
    match when {
        When::Always => true,
        When::Success => result >= 0,
        When::Positive => result > 0,
        When::MoreThan(n) => result > n.into(),
        When::Interrupted => result == -EINTR,
        When::SuccessOrInterrupted => result >= 0 || result == -EINTR,
        When::SuccessWithPointer(n) => result >= 0 && prepared.args[n as usize] != 0,
        When::SuccessWithFlag { now, .. } => result >= 0 && prepared.args[0] as u32 & now != 0,
    }
}

/// Calls `f` for what differs from `before`.
fn changes<T: Translate, M: Memory>(
    pending: &Pending,
    view: &View<'_, T, M>,
    content: Option<Slot>,
    before: Slot,
    f: &mut dyn FnMut(u64, u64),
) {
    let mut old = [0; PIECE];
    let mut new = [0; PIECE];
    let mut open: Option<(u64, u64)> = None; // first changed byte, and the one after the last
    let mut at = 0;
    while at < pending.len {
        let take = (pending.len - at).min(PIECE as u64) as usize;
        before.load(at as usize, &mut old[..take]);
        match content {
            Some(slot) => slot.load(at as usize, &mut new[..take]),
            None if view.read(pending.addr.wrapping_add(at), &mut new[..take]) => {}
            None => break, // unmapped meanwhile
        }
        if old[..take] != new[..take] {
            for n in (0..take).filter(|n| old[*n] != new[*n]) {
                let here = at + n as u64;
                open = match open {
                    Some((first, end)) if here - end < GAP => Some((first, here + 1)),
                    Some((first, end)) => {
                        f(first, end - first);
                        Some((here, here + 1))
                    }
                    None => Some((here, here + 1)),
                };
            }
        }
        at += take as u64;
    }
    if let Some((first, end)) = open {
        f(first, end - first);
    }
}

/// Events of asynchronous transfers: the program must see its own `iocb` addresses, and reads into
/// PM are over now.
fn collect<T: Translate, M: Memory>(
    view: &View<'_, T, M>,
    events: u64,
    result: i64,
    written: &mut dyn FnMut(u64, u64),
) {
    for index in 0..u64::try_from(result).unwrap_or(0) {
        let event = events.wrapping_add(index * 32);
        let Some(named) = view.read_u64(event.wrapping_add(8)) else {
            return;
        };
        let iocb = view.t.program_of(named).unwrap_or(named);
        if iocb != named {
            view.write(event.wrapping_add(8), &iocb.to_le_bytes());
        }
        let Some(bytes) = view.read_u64(event.wrapping_add(16)) else {
            return;
        };
        if (bytes as i64) > 0 {
            transferred(view, iocb, bytes, written);
        }
    }
}

/// Reports what an asynchronous read of `bytes` bytes wrote.
fn transferred<T: Translate, M: Memory>(
    view: &View<'_, T, M>,
    iocb: u64,
    bytes: u64,
    written: &mut dyn FnMut(u64, u64),
) {
    let mut fields = [0; 64];
    if !view.read(iocb, &mut fields) {
        return;
    }
    let u64_at = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&fields[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let opcode = u16::from_le_bytes([fields[16], fields[17]]);
    let (buf, count) = (u64_at(24), u64_at(32));
    match opcode {
        IOCB_PREAD => view.pm_parts(buf, bytes.min(count), written),
        IOCB_PREADV => {
            let mut left = bytes;
            for index in 0..count.min(1024) {
                let iov = buf.wrapping_add(index * 16);
                let (Some(base), Some(len)) =
                    (view.read_u64(iov), view.read_u64(iov.wrapping_add(8)))
                else {
                    return;
                };
                view.pm_parts(base, len.min(left), written);
                left = left.saturating_sub(len);
            }
        }
        _ => {}
    }
}
