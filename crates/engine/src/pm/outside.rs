//! Write-backs of ordinary memory: perhaps of a pointer, where what it points to was meant.
//!
//! Told once for each place in the code and calling context, if files are tracked at that time and
//! the memory is the stack, the heap or otherwise nobody's file: a file that is not tracked may
//! well be meant to be persistent.

use super::regions::{self, REGIONS};
use super::ring::Writer;
use super::site::Site;
use super::stacks;
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::sync::SpinLock;
use alloc::collections::BTreeMap;
use brownout_abi::rare;
use core::sync::atomic::Ordering;

/// Contexts of one instruction that are told, and looks at it in vain. Beyond these it is a program
/// that does this all day.
const TOLD_MAX: usize = 64;
const LOOKS_MAX: u32 = 10_000;

#[derive(Default)]
struct Looks {
    count: u32,
    contexts: alloc::vec::Vec<u32>,
}

/// By program counter.
static LOOKS: SpinLock<BTreeMap<ProgramAddr, Looks>> = SpinLock::new(BTreeMap::new());

/// The instruction of `site` is about to write back the line of `addr`, which is not tracked.
pub fn flush(ctx: &mut ThreadContext, site: &Site, addr: u64) {
    if !regions::any() {
        return;
    }
    {
        let mut all = LOOKS.lock();
        let looks = all.entry(site.pc).or_default();
        looks.count += 1;
        if looks.count > LOOKS_MAX || looks.contexts.len() >= TOLD_MAX {
            looks.count = LOOKS_MAX;
            site.tells_outside.store(0, Ordering::Relaxed);
            return;
        }
    }
    let mut ring = Writer::lock(ctx);
    let context = stacks::context(ctx, site, &mut ring);
    {
        let mut all = LOOKS.lock();
        let contexts = &mut all.entry(site.pc).or_default().contexts;
        if contexts.contains(&context) {
            return;
        }
        contexts.push(context);
    }
    let mut line = [0u64; 8];
    if !is_ordinary(addr) || !crate::values::read_value(addr & !63, &mut line) {
        return;
    }
    // Loops over a range begin with a whole line, so the pointer that was taken for its object may
    // be anywhere in it.
    let first = (addr % 64 / 8) as usize;
    let is_pointer = |word: &&u64| tracked(**word);
    let pointer = line[first..].iter().find(is_pointer);
    let words = [addr, pointer.copied().unwrap_or(0), 0, 0, 0, 0];
    ring.rare(ctx, site.id, context, rare::FLUSH_OUTSIDE, words, &[]);
}

fn tracked(addr: u64) -> bool {
    REGIONS.lock().find(addr).is_some()
}

/// Whether no file is mapped there.
fn is_ordinary(addr: u64) -> bool {
    crate::maps::read()
        .iter()
        .find(|m| (m.start..m.end).contains(&addr))
        .is_some_and(|m| !m.path.starts_with(b"/"))
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    LOOKS.reset_after_fork();
}
