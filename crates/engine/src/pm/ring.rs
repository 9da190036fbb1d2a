//! Appending records from engine code.
//!
//! One ring, one total order. While the run has a single thread in a single process, nothing is
//! locked. From the first `clone` on, an access and its record are made under one lock in shared memory, so the order of
//! records agrees with the order of the accesses to each address. When the ring is full the writer waits:
//! nothing is dropped.
//!
//! In lean recordings a store or write-back that goes on where the previous one of its thread ended, by the same instruction or in the same
//! copy loop, becomes part of that one's record (see [`Site::join`]). So the last record may stay unpublished until the next; and so may all that
//! a lone thread appends within one block.

use super::site::Site;
use crate::context::ThreadContext;
use crate::service::control;
use crate::sys;
use brownout_abi::{HEAD_LEN, PAYLOAD_MAX, RING_BASE, RING_LEN, RING_RESERVE, RecordHead, kind};
use core::sync::atomic::Ordering;

/// Whether several threads or processes append.
pub fn shared() -> bool {
    control().ring_shared.load(Ordering::Relaxed) != 0
}

/// The right to append. Dropping it lets others.
pub struct Writer {
    locked: bool,
}

impl Writer {
    /// Waits for the right.
    pub fn lock(ctx: &ThreadContext) -> Writer {
        let c = control();
        if !shared() || holds(ctx) {
            // The caller's outer writer gives the right back.
            return Writer { locked: false };
        }
        let mut spins = 0u32;
        while c.ring_lock.swap(1, Ordering::Acquire) != 0 {
            spins += 1;
            if spins < 64 {
                core::hint::spin_loop()
            } else {
                sys::yield_now()
            }
        }
        c.ring_owner.store(ctx.tid, Ordering::Relaxed);
        Writer { locked: true }
    }

    /// Takes over the right that emitted code has acquired.
    pub fn adopt(_ctx: &ThreadContext) -> Writer {
        Writer { locked: shared() }
    }

    /// Keeps the right beyond this value: [`Writer::adopt`] takes it up again.
    pub fn keep(mut self) {
        self.locked = false;
    }

    /// Where a record of `len` bytes goes, once there is room for it and for what emitted code appends behind it.
    fn reserve(&mut self, len: u64) -> u64 {
        let c = control();
        let tail = c.ring_tail.load(Ordering::Relaxed);
        let at = RING_BASE + (tail & (RING_LEN - 1));
        let mut spins = 0u32;
        let full = || {
            let read = c.ring_read.load(Ordering::Acquire);
            (read.wrapping_sub(at + 1) & (RING_LEN - 1)) < len + RING_RESERVE
        };
        if !full() {
            return at;
        }
        // The reader frees only what it may read.
        c.ring_write.store(tail, Ordering::Release);
        let begun_ns = sys::monotonic_ns();
        while full() {
            spins += 1;
            if spins < 100 {
                core::hint::spin_loop();
                continue;
            }
            c.ring_starved.fetch_add(1, Ordering::AcqRel);
            let seen = c.ring_space.load(Ordering::Acquire);
            if full() {
                sys::futex_wait(&c.ring_space, seen, 10_000_000);
            }
            c.ring_starved.fetch_sub(1, Ordering::AcqRel);
            if spins.is_multiple_of(64) {
                crate::service::exit_if_orphaned();
            }
        }
        let waited_ns = sys::monotonic_ns().saturating_sub(begun_ns);
        c.ring_waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        at
    }

    #[allow(clippy::too_many_arguments)]
    /// One record. `payload` at most [`PAYLOAD_MAX`] bytes.
    pub fn raw(
        &mut self,
        kind: u8,
        thread: u32,
        site: u32,
        context: u32,
        size: u32,
        addr: u64,
        payload: &[&[u8]],
    ) {
        let bytes: usize = payload.iter().map(|p| p.len()).sum();
        debug_assert!(bytes <= PAYLOAD_MAX);
        let words = (HEAD_LEN + bytes).div_ceil(8) as u64;
        let at = self.reserve(words * 8);
        let mut p = at;
        // SAFETY: `reserve` gave us this stretch; the second mapping of the ring continues it.
        unsafe {
            *((p + words * 8 - 8) as *mut u64) = 0;
            *(p as *mut RecordHead) = RecordHead {
                words: words as u8,
                kind,
                thread: thread as u16,
                site,
                ctx: context,
                size,
                addr,
            };
            p += HEAD_LEN as u64;
            for part in payload {
                core::ptr::copy_nonoverlapping(part.as_ptr(), p as *mut u8, part.len());
                p += part.len() as u64;
            }
        }
        let c = control();
        // In this order: whoever is killed in between leaves a whole record for the next to publish.
        c.ring_tail.store(at + words * 8, Ordering::Release);
        c.ring_write.store(at + words * 8, Ordering::Release);
    }

    /// A record that `bo_log` would have written.
    pub fn site(&mut self, ctx: &ThreadContext, site: &Site, context: u32, addr: u64, alias: u64) {
        let kind = (site.head >> 8) as u8;
        if matches!(kind, kind::CALL | kind::REQUEST) {
            // SAFETY: the arguments that `bo_log` would have copied, in the context or the program's request block.
            let args =
                unsafe { core::slice::from_raw_parts(alias as *const u8, site.size as usize) };
            self.raw(kind, ctx.thread, site.id, context, site.size, addr, &[args]);
        } else if site.flags & super::site::FLAG_VALUE != 0 {
            self.access(ctx, kind, site.id, context, addr, alias, site.size as u64);
        } else {
            self.raw(kind, ctx.thread, site.id, context, site.size, addr, &[]);
        }
    }

    /// A store, load or read-modify-write of any length, with its content if values are recorded.
    #[allow(clippy::too_many_arguments)]
    pub fn access(
        &mut self,
        ctx: &ThreadContext,
        kind: u8,
        site: u32,
        context: u32,
        addr: u64,
        alias: u64,
        len: u64,
    ) {
        self.long(ctx, kind, site, context, addr, alias, len, &[]);
    }

    /// What the kernel wrote.
    #[allow(clippy::too_many_arguments)]
    pub fn kernel_store(
        &mut self,
        ctx: &ThreadContext,
        site: u32,
        context: u32,
        nr: u64,
        addr: u64,
        alias: u64,
        len: u64,
    ) {
        self.long(
            ctx,
            kind::KERNEL_STORE,
            site,
            context,
            addr,
            alias,
            len,
            &nr.to_le_bytes(),
        );
    }

    #[allow(clippy::too_many_arguments)]
    fn long(
        &mut self,
        ctx: &ThreadContext,
        kind: u8,
        site: u32,
        context: u32,
        addr: u64,
        alias: u64,
        len: u64,
        prefix: &[u8],
    ) {
        // Sizes are 32 bits; a longer access is several events.
        const PIECE: u64 = 1 << 30;
        let mut done = 0;
        while done < len {
            let size = (len - done).min(PIECE);
            if !crate::mode().values {
                self.raw(
                    kind,
                    ctx.thread,
                    site,
                    context,
                    size as u32,
                    addr + done,
                    &[prefix],
                );
                done += size;
                continue;
            }
            let mut at = 0;
            while at < size {
                // Multiples of 8, so that a continuation's padding is not taken for content.
                let room = ((PAYLOAD_MAX - prefix.len()) & !7) as u64;
                let n = (size - at).min(room);
                // SAFETY: the alias of a tracked range that the program just accessed.
                let bytes = unsafe {
                    core::slice::from_raw_parts((alias + done + at) as *const u8, n as usize)
                };
                if at == 0 {
                    self.raw(
                        kind,
                        ctx.thread,
                        site,
                        context,
                        size as u32,
                        addr + done,
                        &[prefix, bytes],
                    );
                } else {
                    self.raw(
                        kind::MORE,
                        ctx.thread,
                        site,
                        context,
                        n as u32,
                        addr + done + at,
                        &[bytes],
                    );
                }
                at += n;
            }
            done += size;
        }
    }

    /// An event that is not an access.
    pub fn rare(
        &mut self,
        ctx: &ThreadContext,
        site: u32,
        context: u32,
        which: u64,
        words: [u64; 6],
        text: &[u8],
    ) {
        let text = &text[..text.len().min(PAYLOAD_MAX - 48)];
        // SAFETY: the bytes of an array of integers.
        let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr() as *const u8, 48) };
        self.raw(
            kind::RARE,
            ctx.thread,
            site,
            context,
            48 + text.len() as u32,
            which,
            &[bytes, text],
        );
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.locked {
            let c = control();
            c.ring_owner.store(0, Ordering::Relaxed);
            c.ring_lock.store(0, Ordering::Release);
        }
    }
}

/// Lets the reader have everything that a lone thread has appended. (Among several, each is quick to publish the others' records.)
pub fn publish() {
    if !shared() {
        let c = control();
        let tail = c.ring_tail.load(Ordering::Relaxed);
        c.ring_write.store(tail, Ordering::Release);
    }
}

fn holds(ctx: &ThreadContext) -> bool {
    let c = control();
    c.ring_lock.load(Ordering::Relaxed) != 0 && c.ring_owner.load(Ordering::Relaxed) == ctx.tid
}

/// Gives the right back if this thread has it.
pub fn release_if_held(ctx: &ThreadContext) {
    if shared() && holds(ctx) {
        let c = control();
        c.ring_owner.store(0, Ordering::Relaxed);
        c.ring_lock.store(0, Ordering::Release);
    }
}
