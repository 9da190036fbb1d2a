//! Where threads come when they leave the code cache.

use crate::block::NO_BLOCK;
use crate::blocks::{Arrival, ENGINE, resume_at_rip};
use crate::context::{OwnStep, ThreadContext};
use crate::exit;

/// Called by `bo_exit`; leaves the place to go on in `ctx.resume`.
pub extern "C" fn engine_dispatch(ctx: &mut ThreadContext) {
    // Once before, because what follows may not come back, and once behind, because it may
    // translate.
    crate::pm::code_was_read(ctx);
    let arg = ctx.exit_arg;
    dispatch(ctx);
    crate::pm::code_was_read(ctx);
    if ctx.own_step != OwnStep::No {
        goes_on_stepping(ctx, arg & 0xff);
    }
}

/// The program single-steps itself. The kernel returns from a system call in a way that makes it
/// and the next instruction one step; others are made again.
#[cold]
fn goes_on_stepping(ctx: &mut ThreadContext, exit: u64) {
    if matches!(exit, exit::SYSCALL | exit::LOCKED | exit::CODE_CHANGED) {
        ctx.own_step = OwnStep::GoesOn;
    }
    ctx.pending_flag = 1;
}

fn dispatch(ctx: &mut ThreadContext) {
    let arg = ctx.exit_arg;
    let payload = arg >> 8;
    match arg & 0xff {
        exit::LINK => {
            crate::follow::ended(ctx);
            let mut e = ENGINE.lock();
            let n = payload as u32;
            let target = e.exits[n as usize].target;
            match e.block_for_exit(n) {
                Some(to) => {
                    if e.exits[n as usize].linked == NO_BLOCK {
                        e.link(n, to);
                    }
                    ctx.rip = target;
                    ctx.resume = e.blocks[to as usize].body;
                    ctx.resume_is_boundary = true;
                }
                None => {
                    drop(e);
                    ctx.rip = target;
                    crate::faults::raise_fetch_fault(ctx, target);
                }
            }
        }
        exit::INDIRECT => {
            crate::follow::ended(ctx);
            let target = ctx.target;
            ctx.rip = target;
            go_indirect(ctx);
        }
        exit::SYSCALL => crate::syscall::handle(ctx),
        exit::REQUEST => crate::emulate::client_request(ctx),
        exit::EMULATE => crate::emulate::handle(ctx, payload),
        exit::LOG => crate::pm::log_slow(ctx, crate::pm::site::from_payload(payload)),
        exit::SITE_BEGIN => {
            crate::pm::irregular::begin(ctx, crate::pm::site::from_payload(payload))
        }
        exit::SITE_END => crate::pm::irregular::end(ctx, crate::pm::site::from_payload(payload)),
        exit::LOG_WAITING => crate::pm::log_waiting(ctx, crate::pm::site::from_payload(payload)),
        exit::LOCKED => {
            crate::pm::ring::give_way();
            ctx.rip = crate::pm::site::from_payload(payload).pc;
            // It is started over, and not asked again whether it goes on.
            ctx.skip_point = ctx.rip;
            resume_at_rip(ctx);
        }
        exit::CODE_CHANGED => {
            // What was left is the block before.
            crate::follow::ended(ctx);
            let mut e = ENGINE.lock();
            if let Some(&id) = e.by_pc.get(&ctx.rip) {
                e.kill(id);
            }
            drop(e);
            resume_at_rip(ctx);
        }
        exit::INTERPRET => crate::emulate::interpret(ctx, payload),
        exit::UNSUPPORTED => crate::emulate::unsupported(ctx),
        exit::FETCH_FAULT => crate::faults::raise_fetch_fault(ctx, ctx.rip + payload),
        _ => crate::fatal_bug("unknown exit"),
    }
}

fn go_indirect(ctx: &mut ThreadContext) {
    let mut e = ENGINE.lock();
    match e.block(ctx.rip, Arrival::Indirect) {
        Some(to) => {
            let b = &e.blocks[to as usize];
            ctx.resume = b.body;
            ctx.resume_is_boundary = true;
            let prefix = b.prefix;
            drop(e);
            let i = crate::context::ibtc_index(ctx.rip);
            ctx.ibtc()[i] = prefix;
        }
        None => {
            drop(e);
            crate::faults::raise_fetch_fault(ctx, ctx.rip);
        }
    }
}
