//! What each thread has executed, on its way to the tool.
//!
//! ```text
//!  emitted code (translate/follow.rs) ─▶ words in the thread's own buffer ─▶ the ring, before anything else has its place there
//! ```
//! Guarantee: what the tool reads of a thread's words, between two events, is what the thread has
//! executed between them, as far as that touches memory; of instructions that do not, some may come
//! with the next words. For that, the buffer is emptied wherever the order matters: where the
//! thread may lose its turn (which is before each access to tracked memory), at system calls, and
//! when it dies. Since one thread runs at a time, the words of all threads are in the order in
//! which they were executed.
//!
//! How far a thread has come in a block is told in words of [`brownout_abi::follow`]: by emitted
//! code for the ways that blocks are left by themselves, and here for all others (faults, signals,
//! instructions that are started over).
//!
//! Of a program that is kept (`session.rs`), nothing is told that it executes before it stops: runs
//! that are forked from it differ in what comes then. What it has translated is told.
//!
//! Deviation: what a thread has executed since it had the turn last is lost if its process is
//! killed from outside.

use crate::address::ProgramAddr;
use crate::context::{FOLLOW_LEN, FOLLOW_OFFSET, ThreadContext};
use crate::control::control;
use crate::pm::ring::Writer;
use crate::sync::SpinLock;
use alloc::vec::Vec;
use brownout_abi::follow::{AT, BREAK, END, RETURN, SIGNAL, call, word};
use brownout_abi::{PAYLOAD_MAX, kind};
use core::sync::atomic::{AtomicBool, Ordering};

const RCX: usize = 1;

/// Whether anybody wants to know.
#[inline(always)]
pub fn on() -> bool {
    crate::mode().follow
}

/// Set while a program runs that is to be kept, until it stops: that is the same for all runs, and
/// nobody wants to hear of it again with each.
static SILENT: AtomicBool = AtomicBool::new(false);

/// The system call that was under way when it stopped, as it would have been told.
static UNDER_WAY: SpinLock<Option<UnderWay>> = SpinLock::new(None);

struct UnderWay {
    number: u64,
    ranges: Vec<(u64, u64)>,
}

/// Nothing is told but which blocks there are.
pub fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Whether nothing is to be told yet.
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// A run begins at the stop: from now on, all is told.
pub fn run_begins(ctx: &mut ThreadContext) {
    if !SILENT.swap(false, Ordering::Relaxed) {
        return;
    }
    stands(ctx);
    if let Some(UnderWay { number, ranges }) = UNDER_WAY.lock().take() {
        system_call(ctx, call::BEGINS, number, &[], &ranges);
    }
}

/// A block that was translated, and that the tool does not know yet.
struct Defined {
    number: u32,
    pc: ProgramAddr,
    steps: Vec<u8>,
    code: Vec<u8>,
}

/// They wait here, because whoever translates may not wait for the ring.
static DEFINED: SpinLock<Vec<Defined>> = SpinLock::new(Vec::new());

/// A block under construction.
pub struct Block {
    pub number: u32,
    /// Offsets of its steps from its first.
    pub steps: Vec<u16>,
}

impl Block {
    /// One with a first step.
    pub fn new(first: u16) -> Block {
        Block {
            number: control().next_block.fetch_add(1, Ordering::Relaxed),
            steps: alloc::vec![first],
        }
    }

    /// It is complete: this code, at `pc`.
    pub fn define(self, pc: ProgramAddr, code: &[u8]) {
        let behind = self.steps.iter().skip(1).copied();
        let ends = behind.chain([code.len() as u16]);
        let len = |(start, end): (&u16, u16)| end.saturating_sub(*start).min(u8::MAX.into()) as u8;
        let steps = self.steps.iter().zip(ends).map(len).collect();
        DEFINED.lock().push(Defined {
            number: self.number,
            pc,
            steps,
            code: code.to_vec(),
        });
    }
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    DEFINED.reset_after_fork();
    UNDER_WAY.reset_after_fork();
}

/// Adds words, all or none of which the tool gets in one piece.
pub fn push(ctx: &mut ThreadContext, words: &[u64]) {
    let len = 8 * words.len() as u64;
    if ctx.follow + len > FOLLOW_LEN {
        crate::fatal_bug("what was executed does not fit its buffer");
    }
    let at = ctx.self_ptr + u64::from(FOLLOW_OFFSET) + ctx.follow;
    // SAFETY: the buffer is part of the context, which is this thread's; there is room, as just
    // seen.
    unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), at as *mut u64, words.len()) };
    ctx.follow += len;
}

/// The block was executed to its end, or left by a branch.
pub fn ended(ctx: &mut ThreadContext) {
    if on() {
        push(ctx, &[word(END, 0, 0)]);
    }
}

/// The block is left before the instruction at `pc`; `rcx` is what the register holds.
pub fn broken(ctx: &mut ThreadContext, pc: ProgramAddr, rcx: u64) {
    if on() {
        push(ctx, &[word(BREAK, 0, pc.get()), rcx]);
    }
}

/// As [`broken`], of a thread whose state is in its context.
pub fn broken_at_rip(ctx: &mut ThreadContext) {
    broken(ctx, ctx.rip, ctx.gpr[RCX]);
}

/// A signal's frame of `len` bytes was written at `frame`.
pub fn signal(ctx: &mut ThreadContext, frame: u64, len: u64) {
    if on() {
        push(ctx, &[word(SIGNAL, 0, 0), frame, len]);
    }
}

/// A handler returns by the frame at `frame`.
pub fn returns(ctx: &mut ThreadContext, frame: u64) {
    if on() {
        push(ctx, &[word(RETURN, 0, 0), frame]);
    }
}

/// The thread stands at `ctx.rip`, and something else is about to have its place in the order of
/// things.
///
/// That is told even if there is no word to go with it: since it was told last, the thread may have
/// executed what was announced before that.
pub fn stands(ctx: &mut ThreadContext) {
    if on() {
        push(ctx, &[word(AT, 0, ctx.rip.get())]);
        flush(ctx);
    }
}

/// Puts all words into the ring.
pub fn flush(ctx: &mut ThreadContext) {
    /// Words of one record.
    const WORDS: usize = PAYLOAD_MAX / 8;
    if ctx.follow_fs == 0 {
        ctx.follow_fs = crate::insn::fs_base();
    }
    let blocks = core::mem::take(&mut *DEFINED.lock());
    let at = ctx.self_ptr + u64::from(FOLLOW_OFFSET);
    // SAFETY: as many words of the buffer are in use.
    let words = unsafe { core::slice::from_raw_parts(at as *const u64, ctx.follow as usize / 8) };
    let mut ring = Writer::lock(ctx);
    for block in &blocks {
        let count = block.steps.len() as u32;
        ring.raw(
            kind::BLOCK,
            ctx.thread,
            block.number,
            count,
            block.code.len() as u32,
            block.pc.get(),
            &[&block.steps, &block.code],
        );
    }
    let mut rest = match is_silent() {
        true => &[],
        false => words,
    };
    while !rest.is_empty() {
        let n = rest.len().min(WORDS);
        let (now, later) = rest.split_at(n);
        let bytes = as_bytes(now);
        ring.raw(
            kind::EXECUTED,
            ctx.thread,
            0,
            0,
            bytes.len() as u32,
            ctx.follow_fs,
            &[bytes],
        );
        rest = later;
    }
    ctx.follow = 0;
}

/// Tells of system call `number`: `words` first, then `ranges`, address and length.
pub fn system_call(
    ctx: &mut ThreadContext,
    what: u32,
    number: u64,
    words: &[u64],
    ranges: &[(u64, u64)],
) {
    const RANGES: usize = 100;
    if is_silent() {
        *UNDER_WAY.lock() = (what == call::BEGINS).then(|| UnderWay {
            number,
            ranges: ranges.to_vec(),
        });
        return;
    }
    let mut ring = Writer::lock(ctx);
    let (first, rest) = ranges.split_at(ranges.len().min(RANGES));
    let mut tell = |what: u32, words: &[u64], ranges: &[(u64, u64)]| {
        let mut all = words.to_vec();
        all.extend(ranges.iter().flat_map(|(addr, len)| [*addr, *len]));
        let bytes = as_bytes(&all);
        let size = what;
        ring.raw(kind::SYSCALL, ctx.thread, 0, 0, size, number, &[bytes]);
    };
    tell(what, words, first);
    let more = match what {
        call::BEGINS => call::MORE,
        _ => call::WROTE,
    };
    for part in rest.chunks(RANGES) {
        tell(more, &[], part);
    }
}

fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the bytes of integers.
    unsafe { core::slice::from_raw_parts(words.as_ptr() as *const u8, 8 * words.len()) }
}
