//! Appending records from engine code.
//!
//! One ring, one total order. While the run has a single thread in a single process, nothing is
//! locked. From the first `clone` on, an access and its record are made under one lock in shared
//! memory, so the order of records agrees with the order of the accesses to each address. When the
//! ring is full the writer waits: nothing is dropped.
//!
//! Invariants (tag `RING`):
//! - RING-1: from the first `clone` on, an access and its record are made under one lock.
//! - RING-2: a record is whole or not there.
//! - RING-3: locks are taken in this order: ring, translator (`ENGINE`), then the tables of `pm`,
//!   last the heap.
//!
//! **A record is whole or not there** (RING-2). The lock is one word, the number of the thread that
//! has it, so that nobody can take another's for its own and the tool knows whom to ask for. A
//! record is written behind the tail, then the tail moves over it: whoever is killed before leaves
//! nothing. Who ends its process, or replaces its program, while other threads of it may be between
//! an access and its record, does so with the lock (`pm/process.rs`): they are then before or
//! behind both. A kill from outside may still take the record of the one access that was under way.
//!
//! **The order of locks** (RING-3): emitted code holds the ring's and may fault, which wants the
//! translator's; so nobody may wait for the ring with the translator's.
//!
//! In lean recordings a store or write-back that goes on where the previous one of its thread
//! ended, by the same instruction or in the same copy loop, becomes part of that one's record (see
//! [`Site::join`]). So the last record may stay unpublished until the next; and so may all that a
//! lone thread appends within one block.

use super::site::Site;
use crate::address::Reach;
use crate::context::ThreadContext;
use crate::control::control;
pub use crate::control::{publish, shared};
use crate::sys;
use brownout_abi::{HEAD_LEN, PAYLOAD_MAX, RING_BASE, RING_LEN, RING_RESERVE, RecordHead, kind};
use core::sync::atomic::{AtomicU32, Ordering};

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
        while c
            .ring_lock
            .compare_exchange(0, ctx.thread, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spins += 1;
            if spins < 64 {
                core::hint::spin_loop()
            } else {
                // Threads that store all the time would never let it go for long enough.
                c.ring_wanted.store(1, Ordering::Relaxed);
                wait_a_moment()
            }
        }
        if spins >= 64 {
            c.ring_wanted.store(0, Ordering::Relaxed);
        }
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

    /// Leaves the right to whoever has it in this copy of the address space's original.
    pub fn forget(mut self) {
        self.locked = false;
    }

    /// Where a record of `len` bytes goes, once there is room for it and for what emitted code
    /// appends behind it.
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
        let record = Record {
            kind,
            thread,
            site,
            context,
            size,
            addr,
            payload,
        };
        self.append(&[record]);
    }

    /// All that engine code appends comes here: waits for room, writes, and lets the reader have
    /// it. All of the records are there, or none.
    fn append(&mut self, records: &[Record]) {
        let mut at = self.reserve(records.iter().map(Record::len).sum());
        for record in records {
            // SAFETY: `reserve` gave us room for all of them; the second mapping of the ring
            // continues the first.
            unsafe { record.put(at) };
            at += record.len();
        }
        publish_to(at);
    }

    /// Two events that are not accesses, by `thread`: both are there, or none.
    pub fn together(&mut self, thread: u32, events: [(u64, [u64; 6], &[u8]); 2]) {
        let [
            (first, first_words, first_text),
            (second, second_words, second_text),
        ] = events;
        let first_parts = [bytes_of(&first_words), shown(first_text)];
        let second_parts = [bytes_of(&second_words), shown(second_text)];
        self.append(&[
            Record::rare(thread, 0, 0, first, &first_parts),
            Record::rare(thread, 0, 0, second, &second_parts),
        ]);
    }

    /// A record that `bo_log` would have written.
    pub fn site(
        &mut self,
        ctx: &ThreadContext,
        site: &Site,
        context: u32,
        addr: u64,
        alias: Reach,
    ) {
        let kind = (site.head >> 8) as u8;
        if matches!(kind, kind::CALL | kind::REQUEST) {
            // SAFETY: the arguments that `bo_log` would have copied, in the context or the
            // program's request block.
            let args = unsafe {
                core::slice::from_raw_parts(alias.get() as *const u8, site.size as usize)
            };
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
        alias: Reach,
        len: u64,
    ) {
        self.long(ctx, kind, site, context, addr, alias, len, &[]);
    }

    /// What a repeated string instruction stored, element by element; `elements` as
    /// [`kind::STRING_STORE`] has it.
    #[allow(clippy::too_many_arguments)]
    pub fn string_store(
        &mut self,
        ctx: &ThreadContext,
        site: u32,
        context: u32,
        elements: u64,
        addr: u64,
        alias: Reach,
        len: u64,
    ) {
        let kind = kind::STRING_STORE;
        let prefix = elements.to_le_bytes();
        self.long(ctx, kind, site, context, addr, alias, len, &prefix);
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
        alias: Reach,
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
        alias: Reach,
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
                    core::slice::from_raw_parts((alias.get() + done + at) as *const u8, n as usize)
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
        let parts = [bytes_of(&words), shown(text)];
        self.append(&[Record::rare(ctx.thread, site, context, which, &parts)]);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.locked {
            control().ring_lock.store(0, Ordering::Release);
        }
    }
}

/// A record that is to be written.
struct Record<'a> {
    kind: u8,
    thread: u32,
    site: u32,
    context: u32,
    size: u32,
    addr: u64,
    payload: &'a [&'a [u8]],
}

impl<'a> Record<'a> {
    /// An event that is not an access: its words, and its text.
    fn rare(
        thread: u32,
        site: u32,
        context: u32,
        which: u64,
        parts: &'a [&'a [u8]; 2],
    ) -> Record<'a> {
        Record {
            kind: kind::RARE,
            thread,
            site,
            context,
            size: (parts[0].len() + parts[1].len()) as u32,
            addr: which,
            payload: parts,
        }
    }

    fn len(&self) -> u64 {
        let bytes: usize = self.payload.iter().map(|part| part.len()).sum();
        debug_assert!(bytes <= PAYLOAD_MAX);
        (HEAD_LEN + bytes).next_multiple_of(8) as u64
    }

    /// # Safety
    /// So many bytes at `at` are the caller's to write.
    unsafe fn put(&self, at: u64) {
        let len = self.len();
        let mut p = at;
        // SAFETY: the caller's promise.
        unsafe {
            *((at + len - 8) as *mut u64) = 0;
            *(p as *mut RecordHead) = RecordHead {
                words: (len / 8) as u8,
                kind: self.kind,
                thread: self.thread as u16,
                site: self.site,
                ctx: self.context,
                size: self.size,
                addr: self.addr,
            };
            p += HEAD_LEN as u64;
            for part in self.payload {
                core::ptr::copy_nonoverlapping(part.as_ptr(), p as *mut u8, part.len());
                p += part.len() as u64;
            }
        }
    }
}

/// As much of a text as a record has room for.
fn shown(text: &[u8]) -> &[u8] {
    &text[..text.len().min(PAYLOAD_MAX - 48)]
}

fn bytes_of(words: &[u64; 6]) -> &[u8] {
    // SAFETY: the bytes of an array of integers.
    unsafe { core::slice::from_raw_parts(words.as_ptr() as *const u8, 48) }
}

/// The records up to here are written.
fn publish_to(end: u64) {
    let c = control();
    // In this order: whoever is killed in between leaves whole records for the next to publish.
    c.ring_tail.store(end, Ordering::Release);
    c.ring_write.store(end, Ordering::Release);
}

/// Emitted code could not have the ring, or leaves it to one who has waited for longer.
pub fn give_way() {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    wait_a_moment();
    if TIMES.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
        // Whoever wanted it may have been killed.
        control().ring_wanted.store(0, Ordering::Relaxed);
    }
}

/// Somebody else has the ring: lets others run, and looks now and then whether the tool is there to
/// free it from the dead.
pub fn wait_a_moment() {
    static WAITS: AtomicU32 = AtomicU32::new(0);
    sys::yield_now();
    if WAITS.fetch_add(1, Ordering::Relaxed).is_multiple_of(256) {
        crate::service::exit_if_orphaned();
    }
}

fn holds(ctx: &ThreadContext) -> bool {
    control().ring_lock.load(Ordering::Relaxed) == ctx.thread
}

/// Gives the right back if this thread has it.
pub fn release_if_held(ctx: &ThreadContext) {
    if shared() && holds(ctx) {
        control().ring_lock.store(0, Ordering::Release);
    }
}
