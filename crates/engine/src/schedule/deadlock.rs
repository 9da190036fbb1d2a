//! All threads wait for each other: each tells where, then the run ends.

use super::turn;
use crate::context::ThreadContext;
use crate::sys::{nr, sc};
use brownout_abi::rare;
use brownout_schedule::SeatState;

/// Called by each of them in turn. Does not return. `is_owner_gone`: it waits for a lock of
/// somebody who was killed.
pub fn tell(ctx: &mut ThreadContext, is_owner_gone: bool) -> ! {
    let me = ctx.seat as usize;
    let lent = turn::table();
    let seat = lent.seat(me);
    if is_owner_gone {
        crate::fatal_unsupported(
            "a process was killed while it held a robust lock that another one waits for, and with a schedule nobody is told",
        );
    }
    let address = match seat.state {
        SeatState::Futex => seat.point.addr,
        _ => 0,
    };
    crate::pm::event(ctx, rare::STUCK, [address, 0, 0, 0, 0, 0], &[]);
    // What it waits for is told: it is done.
    turn::table().seat_mut(me).state = SeatState::Free;
    let next = turn::table().seats().next().map(|(seat, _)| seat);
    match next {
        Some(next) => turn::hand_to(next),
        None => turn::deadlock_is_told(),
    }
    loop {
        crate::service::exit_if_orphaned();
        let pause = [0u64, 1_000_000];
        // SAFETY: our own words; then the end of this process, of which each has a thread here.
        unsafe {
            if turn::is_deadlock_told() {
                sc!(
                    nr::KILL,
                    crate::control::real_pid(),
                    crate::sigdata::SIGKILL
                );
            }
            sc!(nr::NANOSLEEP, pause.as_ptr(), 0);
        }
    }
}
