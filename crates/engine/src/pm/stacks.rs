//! Calling contexts: who called whom, at the moment of an event.
//!
//! There is no shadow stack: code that does not touch tracked memory pays nothing. At an event the
//! stack is unwound by call-frame information (`brownout-unwind`), each return address's rule being
//! compiled once; the per-thread cache makes the next event of the same frame a few loads
//! (`context_cache`). Code without call-frame information is walked by frame pointer where that is
//! plausible; else the chain ends there. Recursion is shown once.

use super::context_cache;
pub use super::frames::{Lock, frame_of, lock};
use super::frames::{Stack, TABLES, Tables};
use super::ring::Writer;
use super::site::Site;
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use alloc::vec::Vec;
use brownout_abi::kind;
use brownout_unwind::{Cursor, LookupPc, Memory, PcKind, Stop};
use core::sync::atomic::Ordering;

/// Longest chain. Deeper recursion keeps its innermost frames.
const FRAMES_MAX: usize = 200;

// What needs the ring to tell of new contexts.
impl Tables {
    fn intern(&mut self, parent: u32, return_addr: u64, ring: &mut Writer, thread: u32) -> u32 {
        if let Some(&id) = self.contexts.get(&(parent, return_addr)) {
            return id;
        }
        let id = crate::control::control()
            .next_context
            .fetch_add(1, Ordering::Relaxed);
        self.contexts.insert((parent, return_addr), id);
        ring.raw(kind::CONTEXT, thread, 0, id, parent, return_addr, &[]);
        id
    }

    /// The context of a whole chain. Recursion is folded: a return address that is in the chain
    /// already goes back to where it was. Else a walk over a tree would have a context for each
    /// node, and none would ever be met again.
    fn intern_folded(&mut self, pairs: &[(u64, u64)], ring: &mut Writer, thread: u32) -> u32 {
        let mut path: Vec<(u64, u32)> = Vec::with_capacity(pairs.len());
        for (_, return_addr) in pairs.iter().rev() {
            match path.iter().rposition(|(known, _)| known == return_addr) {
                Some(at) => path.truncate(at + 1),
                None => {
                    let parent = path.last().map_or(0, |(_, id)| *id);
                    let id = self.intern(parent, *return_addr, ring, thread);
                    path.push((*return_addr, id));
                }
            }
        }
        path.last().map_or(0, |(_, id)| *id)
    }
}

core::arch::global_asm!(
    // rdi = chain. 1 if every slot still holds its value; a slot that cannot be read is a mismatch
    // (`asm::fixup`).
    ".global bo_verify",
    ".global bo_verify_read",
    ".global bo_verify_no",
    "bo_verify:",
    "mov rax, [rdi]",
    "2:",
    "bo_verify_read:",
    "mov rax, [rax]",
    "cmp rax, [rdi + 8]",
    "jne bo_verify_no",
    "add rdi, 16",
    "mov rax, [rdi]",
    "test rax, rax",
    "jne 2b",
    "mov eax, 1",
    "ret",
    "bo_verify_no:",
    "xor eax, eax",
    "ret",
);
unsafe extern "C" {
    fn bo_verify(chain: u64) -> u64;
    pub fn bo_verify_read();
    pub fn bo_verify_no();
}

/// The calling context of the thread's current event at `site`. Registers are the program's, in
/// `ctx`.
pub fn context(ctx: &mut ThreadContext, site: &Site, ring: &mut Writer) -> u32 {
    let base = if site.flags & super::site::FLAG_CFA_FROM_RBP != 0 {
        ctx.gpr[5]
    } else {
        ctx.gpr[4]
    };
    let frame = base.wrapping_add(site.cfa_offset as i64 as u64);
    let mut return_addr = 0u64;
    let stack = Stack;
    if let Some(v) = stack.read_u64(frame.wrapping_sub(8)) {
        return_addr = v;
    }
    // SAFETY: this thread's cache.
    let set = unsafe { context_cache::set(ctx.context_cache, site.id, return_addr, frame) };
    let key = context_cache::key(site.id, frame);
    for e in set.iter() {
        // SAFETY: the entry's own chain.
        if let Some(context) = e.check(key, |chain| unsafe { bo_verify(chain) == 1 }) {
            return context;
        }
    }
    let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(32);
    let mut t = TABLES.lock();
    let mut cursor = Cursor::innermost(site.pc.get(), ctx.gpr[4], ctx.gpr[5]);
    let mut first = true;
    let mut complete = false;
    while pairs.len() < FRAMES_MAX {
        let rule = t.rule(cursor.lookup_pc(), cursor.kind, cursor.pc);
        let step = if first {
            let gpr = ctx.gpr;
            brownout_unwind::step_with_registers(rule, &mut cursor, &stack, |r| {
                Some(gpr[r.encoding() as usize & 15])
            })
        } else {
            brownout_unwind::step(rule, &mut cursor, &stack)
        };
        first = false;
        match step {
            Ok(s) => pairs.push((s.slot, s.return_addr)),
            Err(Stop::NoRule | Stop::RegisterUnknown) => {
                let by_fp = brownout_unwind::step_by_frame_pointer(&mut cursor, &stack, |a| {
                    t.rules.contains_key(&a.wrapping_sub(1))
                        || t.module(LookupPc::new(a, PcKind::ReturnAddress)).is_some()
                });
                match by_fp {
                    Ok(s) => pairs.push((s.slot, s.return_addr)),
                    Err(_) => break,
                }
            }
            Err(stop) => {
                complete = stop == Stop::Outermost;
                break;
            }
        }
    }
    let id = t.intern_folded(&pairs, ring, ctx.thread);
    // What is above `main` (or a thread's start routine) does not change while it runs: not worth a
    // look each time.
    let outer = if ctx.tid == crate::control::real_pid() {
        OUTER_FRAMES_MAIN
    } else {
        OUTER_FRAMES_THREAD
    };
    let kept = if complete && pairs.len() > outer {
        pairs.len() - outer
    } else {
        pairs.len()
    };
    let entry = context_cache::make_room(set);
    entry.key = key;
    context_cache::replace_chain(entry, id, &pairs[..kept]);
    // Only now: whoever unmaps code empties all caches under this lock.
    drop(t);
    id
}

/// Return addresses into the C library and `_start` above `main`.
const OUTER_FRAMES_MAIN: usize = 3;
/// Return addresses into the C library above a thread's routine.
const OUTER_FRAMES_THREAD: usize = 2;

/// Code may have changed: its rules too.
pub fn code_changed(_: &ThreadContext, start: u64, end: u64) {
    if !crate::mode().record {
        return;
    }
    super::hooks::code_unmapped(start, end);
    TABLES.lock().forget(start, end);
}

/// The stream knows this code as part of a file.
pub fn module_announced(start: u64, end: u64) {
    TABLES.lock().announced.push((start, end));
}

/// Code went away, and other code may come to its addresses: then these mean something else in the
/// stream. True if that knows some of it.
pub fn code_unmapped(start: u64, end: u64) -> bool {
    super::hooks::code_unmapped(start, end);
    super::site::code_unmapped(ProgramAddr::new(start), ProgramAddr::new(end));
    let mut t = TABLES.lock();
    t.forget(start, end);
    // A context that is forgotten takes the chains that begin with it along: their numbers are
    // never looked up again.
    let contexts = t.contexts.len();
    t.contexts
        .retain(|(_, return_addr), _| *return_addr <= start || *return_addr > end);
    if t.contexts.len() != contexts {
        for ctx in ThreadContext::all() {
            // SAFETY: owners change their caches under the lock that is held here, and read keys as
            // whole words.
            unsafe { context_cache::clear(ctx.context_cache()) };
        }
    }
    let is_known = t.announced.iter().any(|a| a.0 < end && a.1 > start);
    if is_known {
        let mut rest = Vec::with_capacity(t.announced.len() + 1);
        for &(first, last) in &t.announced {
            rest.extend([(first, last.min(start)), (first.max(end), last)]);
        }
        rest.retain(|(first, last)| first < last);
        t.announced = rest;
    }
    is_known
}
