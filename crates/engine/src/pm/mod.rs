//! Persistent memory: which mappings are tracked, and the stream of what happens to them.
//!
//! ```text
//!  regions   tracked mappings and their aliases
//!  discover  faults on them, by which instructions are found
//!  site      instructions that touched tracked memory; `translate/site.rs` instruments them
//!  irregular accesses whose extent only run time shows (strings, masks, gathers, …)
//!  outside   write-backs of memory that is not tracked
//!  ring      appending records in one total order
//!  record    what engine code records on behalf of an instruction
//!  frames    where the frames of the program lie
//!  stacks    calling contexts: unwinding, interning, the per-thread cache
//!  stage     system calls that concern tracked memory and files:
//!  files     which files are tracked
//!  mappings  calls that map them
//!  kernel    what other calls do to them
//!  remote    ways around the program's own mappings
//!  names     what the program does to names, and to files that it does not map
//!  boundaries what the program takes from the world and gives to it
//!  requests  what the program tells us (pmemcheck requests, annotations)
//!  hooks     library functions whose calls are recorded
//!  process   starts and ends of threads and processes
//! ```
//! Guarantee: no store to a tracked mapping goes unrecorded. The program's own mapping is read-only
//! (or inaccessible, when loads are recorded); only instrumented accesses go to the writable alias.
//! An instruction that was not instrumented faults, is marked, and runs again instrumented.

mod boundaries;
pub mod context_cache;
mod discover;
mod files;
mod frames;
pub mod hooks;
pub mod irregular;
mod kernel;
mod mappings;
mod names;
mod outside;
mod process;
mod record;
mod regions;
mod remote;
mod requests;
pub mod ring;
pub mod site;
mod stacks;
mod stage;
pub mod under_way;

pub use boundaries::{
    STAGE as BOUNDARIES, dies, is_input, looked_up, maps_input, names_input, records_deaths,
    sent_to_self,
};
pub use discover::{FaultAnswer, fault, mark_site};
pub use files::{file_mode, init_files};
pub use frames::learn as learn_frame;
pub use kernel::{answered, with_prepared};
pub use process::*;
pub use record::{code_is_read, code_was_read, event, kernel_wrote, record_load};
pub use regions::{init_thread, is_allowed, is_tracked, overlaps_alias, reach, readable_alias};
pub use requests::{client_request, is_question};
pub use stacks::{bo_verify_no, bo_verify_read, code_changed};
pub use stage::STAGE;

use crate::address::Reach;
use crate::context::ThreadContext;
use site::Site;

/// A record that `bo_log` could not append itself: context unknown, or no room in the ring. The
/// access is done; in shared mode the ring lock is held.
pub fn log_slow(ctx: &mut ThreadContext, site: &'static Site) {
    let mut ring = ring::Writer::adopt(ctx);
    let context = match needs_no_context(ctx, site) {
        true => 0,
        false => stacks::context(ctx, site, &mut ring),
    };
    let (addr, alias) = (ctx.site_addr.get(), Reach::alias(ctx.site_alias));
    ring.site(ctx, site, context, addr, alias);
    drop(ring);
    ctx.last_token = site.token;
    ctx.last_context = context as u64;
    if site.unfenced != 2 {
        ctx.unfenced = site.unfenced as u64;
    }
    ctx.rip = site.next_pc;
    ctx.resume = site.next_code;
    ctx.resume_is_boundary = true;
}

/// As [`log_slow`], for records that emitted code could not even get the right to append.
pub fn log_waiting(ctx: &mut ThreadContext, site: &'static Site) {
    ring::Writer::lock(ctx).keep();
    log_slow(ctx, site);
}

/// Requests that are recorded without their calling context.
fn needs_no_context(ctx: &ThreadContext, site: &Site) -> bool {
    if (site.head >> 8) as u8 != brownout_abi::kind::REQUEST {
        return false;
    }
    // SAFETY: the program's request block, which emitted code has just read.
    let code =
        unsafe { *(ctx.site_alias.get() as *const u64) }.wrapping_sub(brownout_abi::PMEMCHECK_BASE);
    code < 32 && ctx.context_free_requests >> code & 1 != 0
}

/// A fault in the out-of-line part of a tracked access: undoes what it had begun.
pub fn undo(ctx: &mut ThreadContext, site: &'static Site, uc: &mut crate::sigdata::UContext) {
    irregular::undo(ctx, site, uc);
    ring::release_if_held(ctx);
}

/// The process is about to die by `sig`.
pub fn flush_before_death(ctx: &mut ThreadContext, sig: i32) {
    if crate::mode().record {
        ring::release_if_held(ctx);
        process_dies(ctx, sig);
    }
}
