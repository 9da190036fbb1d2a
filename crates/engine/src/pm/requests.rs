//! What the program tells us: pmemcheck client requests, and this project's own annotations.
//!
//! libpmem and libpmemobj make hundreds of thousands of requests in a run, so they are appended
//! with the same context cache as stores.

use super::record::event;
use super::regions::{self, REGIONS, Region};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
pub use crate::requests::UNLOGGED;
use crate::sync::SpinLock;
use crate::sys;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use brownout_abi::{ANNOTATION_BASE, PMEMCHECK_BASE, annotation, pmemcheck, rare};
use core::sync::atomic::Ordering;

const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// Codes that only ask, or only print.
const SILENT: [u32; 3] = [
    pmemcheck::CHECK_IS_PMEM_MAPPING,
    pmemcheck::PRINT_PMEM_MAPPINGS,
    pmemcheck::WRITE_STATS,
];
/// Annotations whose first argument is a string: the upper half of the code space.
const ANNOTATION_WITH_TEXT: u64 = 0x8000;

/// Ranges that the program registered, tracked or not, as end by start: what CHECK_IS_PMEM_MAPPING
/// answers from. They lie apart and are looked up, not searched: libpmemobj removes a piece of its
/// pool with every atomic allocation, so there are as many as objects.
static REGISTERED: SpinLock<BTreeMap<u64, u64>> = SpinLock::new(BTreeMap::new());

/// Adds a range, joined with those that it touches.
fn register(map: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let (mut from, mut to) = (start, end);
    while let Some((&a, &b)) = map.range(..=to).next_back() {
        if b < from {
            break;
        }
        map.remove(&a);
        (from, to) = (from.min(a), to.max(b));
    }
    if from < to {
        map.insert(from, to);
    }
}

/// Takes a range away.
fn remove(map: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    while let Some((&a, &b)) = map.range(..end).next_back() {
        if b <= start {
            break;
        }
        map.remove(&a);
        if b > end {
            map.insert(end, b);
        }
        if a < start {
            map.insert(a, start);
        }
    }
}

/// Whether a request asks what only the sink knows.
pub fn is_question(block: &[u64; 6]) -> bool {
    let code = block[0];
    crate::mode().record
        && code & !0xffff == ANNOTATION_BASE
        && matches!(
            (code & 0xffff) as u32,
            annotation::CHECKPOINT | annotation::FIND_VARIABLE
        )
}

/// Answers a request; `None` leaves the default result.
pub fn client_request(ctx: &mut ThreadContext, block: &[u64; 6]) -> Option<u64> {
    let code = block[0];
    if code == RUNNING_ON_VALGRIND {
        return Some(1);
    }
    let args = [block[1], block[2], block[3], block[4], block[5]];
    if code == ANNOTATION_BASE + annotation::RUNNING as u64 {
        return Some(annotation::INTERFACE);
    }
    if code & !0xffff == ANNOTATION_BASE && !crate::mode().record {
        return Some(0);
    }
    if code & !0xffff == ANNOTATION_BASE {
        match (code & 0xffff) as u32 {
            annotation::TX_BEGIN => ctx.tx_depth += 1,
            annotation::TX_END => ctx.tx_depth = ctx.tx_depth.saturating_sub(1),
            _ => {}
        }
        let text = if code & ANNOTATION_WITH_TEXT != 0 {
            read_text(args[0])
        } else {
            Vec::new()
        };
        event(
            ctx,
            rare::ANNOTATION,
            [code & 0xffff, args[0], args[1], args[2], args[3], args[4]],
            &text,
        );
        return Some(answer(ctx, (code & 0xffff) as u32, &args));
    }
    if code & !0xffff != PMEMCHECK_BASE {
        return None;
    }
    let code = (code & 0xffff) as u32;
    if !SILENT.contains(&code) {
        let text = if code == pmemcheck::EMIT_LOG {
            read_text(args[0])
        } else {
            Vec::new()
        };
        event(
            ctx,
            rare::PMEMCHECK,
            [code.into(), args[0], args[1], args[2], args[3], 0],
            &text,
        );
    }
    match code {
        pmemcheck::REGISTER_PMEM_MAPPING => {
            let (start, len) = (args[0], args[1]);
            register(&mut REGISTERED.lock(), start, start.wrapping_add(len));
            adopt(ctx, start, len);
            Some(0)
        }
        pmemcheck::REGISTER_PMEM_FILE => {
            let (start, len) = (args[1], args[2]);
            adopt(ctx, start, len);
            Some(0)
        }
        pmemcheck::REMOVE_PMEM_MAPPING => {
            let (start, end) = (args[0], args[0].wrapping_add(args[1]));
            remove(&mut REGISTERED.lock(), start, end);
            Some(0)
        }
        pmemcheck::ADD_TO_GLOBAL_TX_IGNORE => {
            if crate::mode().lean && args[1] > UNLOGGED.len.load(Ordering::Relaxed) {
                // A thread that sees half of the change records a request too many or too few;
                // neither matters.
                UNLOGGED.len.store(0, Ordering::Relaxed);
                UNLOGGED.start.store(args[0], Ordering::Relaxed);
                UNLOGGED.len.store(args[1], Ordering::Relaxed);
            }
            Some(0)
        }
        pmemcheck::CHECK_IS_PMEM_MAPPING => Some(check(args[0], args[1])),
        _ => Some(0),
    }
}

/// What an annotation answers. Most answer nothing; some wait for the sink.
fn answer(ctx: &mut ThreadContext, code: u32, args: &[u64; 5]) -> u64 {
    match code {
        annotation::CHECKPOINT => crate::service::answer(ctx.thread)[0],
        annotation::FIND_VARIABLE => {
            let [known, addr, len] = crate::service::answer(ctx.thread);
            let place = [addr, len];
            let written = known != 0 && crate::values::write_value(ctx, args[1], &place);
            written as u64
        }
        _ => 0,
    }
}

/// 0 none, 1 full, 2 partial.
fn check(start: u64, len: u64) -> u64 {
    let end = start.wrapping_add(len.max(1));
    let mut ranges: Vec<(u64, u64)> = {
        let map = REGISTERED.lock();
        let before = map.range(..=start).next_back();
        let inside = map.range(start.saturating_add(1)..end.max(start.saturating_add(1)));
        before
            .into_iter()
            .chain(inside)
            .map(|(&a, &b)| (a, b))
            .collect()
    };
    ranges.extend(REGIONS.lock().list.iter().map(|r| (r.start, r.end)));
    ranges.sort_unstable();
    let mut at = start;
    let mut touched = false;
    for (a, b) in ranges {
        if a < end && b > start {
            touched = true;
        }
        if a <= at && b > at {
            at = b;
        }
    }
    if at >= end {
        1
    } else if touched {
        2
    } else {
        0
    }
}

fn read_text(addr: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < 1024 {
        let mut byte = [0u8];
        let at = super::reach(ProgramAddr::new(addr) + out.len() as u64);
        if !sys::read_memory(at, &mut byte) || byte[0] == 0 {
            break;
        }
        out.push(byte[0]);
    }
    out
}

/// Tracks a mapping that the program has made before telling us.
fn adopt(ctx: &mut ThreadContext, start: u64, len: u64) {
    let end = start.wrapping_add(len) & !4095;
    let first = (start + 4095) & !4095;
    if first >= end || REGIONS.lock().overlaps(first, end) {
        return;
    }
    let Some(m) = crate::maps::read()
        .into_iter()
        .find(|m| m.start <= first && first < m.end)
    else {
        return;
    };
    if !m.shared || m.path.first() != Some(&b'/') {
        // libpmem's probe registers a stack variable; private memory does not survive anything.
        return;
    }
    let end = end.min(m.end);
    let mut path = m.path.clone();
    path.push(0);
    // SAFETY: a NUL-terminated path; O_RDONLY|O_CLOEXEC.
    let fd = unsafe { sys::sc!(sys::nr::OPEN, path.as_ptr(), 0x8_0000) };
    if fd < 0 {
        return;
    }
    let file = super::files::classify(ctx, fd as u64, false, true, true);
    // SAFETY: our own descriptor.
    unsafe { sys::sc!(sys::nr::CLOSE, fd) };
    let Some(file) = file else { return };
    let prot = if m.read { sys::PROT_READ } else { 0 } | if m.write { sys::PROT_WRITE } else { 0 };
    let offset = m.offset + (first - m.start);
    let mut regions = REGIONS.lock();
    let delta = regions.place_alias(first, end - first);
    if regions::duplicate(first, end - first, delta.alias_of(ProgramAddr::new(first))) < 0 {
        return;
    }
    // SAFETY: takes write access from the program's view; the alias has it.
    unsafe {
        sys::sc!(
            sys::nr::MPROTECT,
            first,
            end - first,
            regions::shown_prot(prot)
        )
    };
    regions.insert(Region {
        start: first,
        end,
        delta,
        offset,
        prot,
    });
    drop(regions);
    let words = [
        first,
        end - first,
        file as u64,
        offset,
        prot,
        sys::MAP_SHARED,
    ];
    event(ctx, rare::MAP, words, &[]);
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    REGISTERED.reset_after_fork();
}
