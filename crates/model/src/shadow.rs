//! Where interval entries live: a page table over slabs.
//!
//! ```text
//!  address ─▶ chunk (2 MiB) ─▶ page (16 KiB) ─▶ line: entry ─▶ entry ─▶ …    one entry a set of bytes with one history
//! ```
//! Guarantee: entries of a line have disjoint, non-empty masks. Memory follows the pages ever
//! stored to. A line's first entry stands in its page, together with what is known of the others,
//! so that the usual event touches one cache line here; further entries are taken from a free list.
//! Memory comes in slabs, not per event, and a slab never moves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use crate::state::Persistency;
use crate::types::{ByteRange, Epoch, LINE_BYTES, Moment, Tag, Thread};

const PAGE_LINES: usize = 256;
const PAGE_BYTES: u64 = PAGE_LINES as u64 * LINE_BYTES;
const CHUNK_PAGES: usize = 128;
const CHUNK_BYTES: u64 = CHUNK_PAGES as u64 * PAGE_BYTES;
/// No entry, no page.
const NONE: u32 = 0;

/// Bytes of one line that were stored together (or became persistent together), and how far they
/// have come.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// One bit a byte of the line. In a line's first entry it may be empty: then the line has none.
    pub mask: u64,
    pub stored: Moment,
    pub persist_from: Epoch,
    /// 0 while it may still be open: no persist ends in the first epoch.
    persist_to: u64,
    /// First entries: no byte outside is in one of the line's other entries.
    rest_mask: u64,
    /// Ordering fences of the thread before the store.
    pub order: u32,
    pub thread: Thread,
    /// Who stored.
    pub tag: Tag,
    /// Who wrote back.
    pub flush_tag: Tag,
    next: u32,
    pub state: Persistency,
    /// First entries: so many of the line's other entries are not persisted.
    rest_open: u8,
    /// First entries: stores to the line while it was never written back.
    stores: u16,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// What a store makes an entry of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub mask: u64,
    pub stored: Moment,
    pub persist_from: Epoch,
    pub persist_to: Option<Epoch>,
    pub order: u32,
    pub thread: Thread,
    pub tag: Tag,
    pub state: Persistency,
}

/// A line that was written back once is not counted any more.
const WRITTEN_BACK: u16 = u16::MAX;

/// Entries of a slab.
const SLAB_LEN: usize = 1 << 15;

/// All entries, by number.
#[derive(Clone, Debug, Default)]
struct Slabs(Vec<Vec<Entry>>);

impl Slabs {
    /// The number of the first of so many new entries as a page has.
    fn add_page(&mut self) -> u32 {
        if self.0.last().is_none_or(|slab| slab.len() == SLAB_LEN) {
            self.0.push(Vec::with_capacity(SLAB_LEN));
        }
        let before = (self.0.len() - 1) * SLAB_LEN;
        let slab = self.0.last_mut().expect("added just now");
        let first = before + slab.len();
        slab.resize(slab.len() + PAGE_LINES, Entry::EMPTY);
        first as u32
    }
}

impl Index<u32> for Slabs {
    type Output = Entry;
    #[inline(always)]
    fn index(&self, number: u32) -> &Entry {
        &self.0[number as usize / SLAB_LEN][number as usize % SLAB_LEN]
    }
}

impl IndexMut<u32> for Slabs {
    #[inline(always)]
    fn index_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.0[number as usize / SLAB_LEN][number as usize % SLAB_LEN]
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    /// Its address divided by its size.
    number: u64,
    /// The number of the first entry of each; [`NONE`] if it was never stored to.
    pages: [u32; CHUNK_PAGES],
}

/// A line's place: the number of its first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    chunks: Vec<Chunk>,
    /// Chunks by number.
    index: BTreeMap<u64, u32>,
    /// Chunks found lately, by their number: most accesses go where others went before.
    recent: [(u64, u32); RECENT],
    entries: Slabs,
    /// Head of the chain of unused entries.
    free: u32,
    /// Entries that were never used: from, to.
    fresh: (u32, u32),
    /// Pages whose lines were all forgotten. What stands behind these lines' first entries becomes
    /// free when they are used again.
    free_pages: Vec<u32>,
}

/// Number of remembered chunks.
const RECENT: usize = 256;

/// Place of the page of `addr` in its chunk.
#[inline(always)]
fn page_of(addr: u64) -> usize {
    (addr / PAGE_BYTES) as usize % CHUNK_PAGES
}

/// Place of the line of `addr` in its page.
#[inline(always)]
fn line_of(addr: u64) -> u32 {
    (addr / LINE_BYTES) as u32 % PAGE_LINES as u32
}

/// The bits of `len` bytes from `first` in a line.
#[inline]
pub(crate) fn mask(first: u64, len: u64) -> u64 {
    debug_assert!(len >= 1 && first + len <= LINE_BYTES);
    (u64::MAX >> (LINE_BYTES - len)) << first
}

impl Shadow {
    pub fn new() -> Self {
        let mut entries = Slabs::default();
        let first = entries.add_page();
        Shadow {
            chunks: Vec::new(),
            index: BTreeMap::new(),
            recent: [(u64::MAX, 0); RECENT],
            entries,
            free: NONE,
            // Not `NONE` itself.
            fresh: (first + 1, first + PAGE_LINES as u32),
            free_pages: Vec::new(),
        }
    }

    // ------------------------------------------------------------------ lines

    /// The line that holds `addr`, if something near it was ever stored to.
    #[inline(always)]
    pub fn find(&mut self, addr: u64) -> Option<Slot> {
        let number = addr / CHUNK_BYTES;
        let (found, chunk) = self.recent[number as usize % RECENT];
        let chunk = match found == number {
            true => chunk,
            false => self.look_up(number)?,
        };
        let page = self.chunks[chunk as usize].pages[page_of(addr)];
        (page != NONE).then(|| Slot(page + line_of(addr)))
    }

    #[inline(never)]
    fn look_up(&mut self, number: u64) -> Option<u32> {
        let chunk = *self.index.get(&number)?;
        self.recent[number as usize % RECENT] = (number, chunk);
        Some(chunk)
    }

    /// As `find`, without remembering.
    pub fn peek(&self, addr: u64) -> Option<Slot> {
        let chunk = *self.index.get(&(addr / CHUNK_BYTES))?;
        let page = self.chunks[chunk as usize].pages[page_of(addr)];
        (page != NONE).then(|| Slot(page + line_of(addr)))
    }

    /// The line that holds `addr`.
    #[inline(always)]
    pub fn make(&mut self, addr: u64) -> Slot {
        match self.find(addr) {
            Some(slot) => slot,
            None => self.make_page(addr),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_page(&mut self, addr: u64) -> Slot {
        let number = addr / CHUNK_BYTES;
        let chunk = match self.index.get(&number) {
            Some(chunk) => *chunk,
            None => {
                let chunk = self.chunks.len() as u32;
                self.chunks.push(Chunk {
                    number,
                    pages: [NONE; CHUNK_PAGES],
                });
                self.index.insert(number, chunk);
                chunk
            }
        };
        let page = match self.free_pages.pop() {
            Some(page) => {
                self.empty_page(page);
                page
            }
            None => self.entries.add_page(),
        };
        self.chunks[chunk as usize].pages[page_of(addr)] = page;
        Slot(page + line_of(addr))
    }

    fn empty_page(&mut self, page: u32) {
        for first in page..page + PAGE_LINES as u32 {
            let mut next = self.entries[first].next;
            while next != NONE {
                let after = self.entries[next].next;
                self.set_free(next);
                next = after;
            }
            self.entries[first] = Entry::EMPTY;
        }
    }

    fn set_free(&mut self, entry: u32) {
        self.entries[entry].next = self.free;
        self.free = entry;
    }

    /// An entry for use behind a line's first.
    #[inline]
    fn take_free(&mut self) -> u32 {
        if self.free != NONE {
            let entry = self.free;
            self.free = self.entries[entry].next;
            return entry;
        }
        if self.fresh.0 == self.fresh.1 {
            let first = self.entries.add_page();
            self.fresh = (first, first + PAGE_LINES as u32);
        }
        self.fresh.0 += 1;
        self.fresh.0 - 1
    }

    // ------------------------------------------------------------------ what stands in a line

    /// The entries of a line, in no order.
    #[inline]
    pub fn entries(&self, slot: Slot) -> impl Iterator<Item = &Entry> {
        let first = Some(&self.entries[slot.0]).filter(|first| first.mask != 0);
        let mut next = first.map_or(NONE, |first| first.next);
        let rest = std::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            let entry = &self.entries[next];
            next = entry.next;
            Some(entry)
        });
        first.into_iter().chain(rest)
    }

    /// True if all entries of the line are persisted.
    #[inline]
    pub fn is_persisted(&self, slot: Slot) -> bool {
        let first = &self.entries[slot.0];
        first.rest_open == 0 && first.state.is_persisted()
    }

    /// Calls `change` with each entry of a line that is not persisted, and with the first in any
    /// case. Tells whether these were several.
    #[inline]
    pub fn update(&mut self, slot: Slot, mut change: impl FnMut(&mut Entry)) -> bool {
        let first = &mut self.entries[slot.0];
        if first.mask == 0 {
            return false;
        }
        change(first);
        let mut left = first.rest_open;
        let several = left > 0;
        let mut next = first.next;
        let mut closed = 0;
        while left > 0 {
            let entry = &mut self.entries[next];
            if !entry.state.is_persisted() {
                left -= 1;
                change(entry);
                closed += u8::from(entry.state.is_persisted());
            }
            next = entry.next;
        }
        if several {
            self.entries[slot.0].rest_open -= closed;
        }
        several
    }

    /// A line's first entry, if all others are persisted.
    #[inline(always)]
    pub fn only_open(&mut self, slot: Slot) -> Option<&mut Entry> {
        Some(&mut self.entries[slot.0]).filter(|first| first.rest_open == 0)
    }

    /// `store` takes the place of whatever is known of its bytes. Tells whose store it has
    /// overwritten, if that was not persisted.
    #[inline(always)]
    pub fn overwrite(&mut self, slot: Slot, store: &Stored) -> Option<Tag> {
        let first = &mut self.entries[slot.0];
        if store.state == Persistency::Dirty {
            // Neither beyond the largest count nor away from the mark.
            first.stores += u16::from(first.stores < WRITTEN_BACK - 1);
        } else {
            // Nothing else is needed for it to persist.
            first.stores = WRITTEN_BACK;
        }
        if (first.mask & !store.mask) | (first.rest_mask & store.mask) != 0 {
            return self.overwrite_several(slot, store);
        }
        let hit = first.mask != 0 && !first.state.is_persisted();
        let overwritten = hit.then_some(first.tag);
        first.set(store);
        overwritten
    }

    #[inline(never)]
    fn overwrite_several(&mut self, slot: Slot, store: &Stored) -> Option<Tag> {
        let mut overwritten = None;
        let first = &self.entries[slot.0];
        if (first.mask | first.rest_mask) & store.mask != 0 {
            self.remove(slot, store.mask, |old| {
                if !old.state.is_persisted() {
                    overwritten = Some(old.tag);
                }
            });
        }
        self.add(slot, store);
        overwritten
    }

    /// Takes `mask` out of all entries of the line; `seen` is shown each entry that loses bytes, as
    /// it was.
    #[inline]
    pub fn remove(&mut self, slot: Slot, mask: u64, mut seen: impl FnMut(&Entry)) {
        if self.entries[slot.0].rest_mask & mask != 0 {
            self.remove_from_rest(slot, mask, &mut seen);
        }
        let first = &mut self.entries[slot.0];
        if first.mask & mask != 0 {
            seen(first);
            first.mask &= !mask;
            if first.mask != 0 {
                return;
            }
            let next = first.next;
            if next == NONE {
                first.state = Persistency::Clean;
            } else {
                let second = self.entries[next];
                self.set_free(next);
                let first = &mut self.entries[slot.0];
                *first = Entry {
                    rest_mask: first.rest_mask & !second.mask,
                    rest_open: first.rest_open - u8::from(!second.state.is_persisted()),
                    stores: first.stores,
                    ..second
                };
            }
        }
    }

    fn remove_from_rest(&mut self, slot: Slot, mask: u64, seen: &mut impl FnMut(&Entry)) {
        let mut previous = slot.0;
        let mut number = self.entries[previous].next;
        let mut closed = 0;
        while number != NONE {
            let entry = &mut self.entries[number];
            let next = entry.next;
            if entry.mask & mask != 0 {
                seen(entry);
                entry.mask &= !mask;
                if entry.mask == 0 {
                    closed += u8::from(!entry.state.is_persisted());
                    self.set_free(number);
                    self.entries[previous].next = next;
                    number = next;
                    continue;
                }
            }
            previous = number;
            number = next;
        }
        let first = &mut self.entries[slot.0];
        first.rest_mask &= !mask;
        first.rest_open -= closed;
    }

    /// Adds an entry. Its bytes must be in no other. What is still to persist comes first: the next
    /// events are about that.
    fn add(&mut self, slot: Slot, store: &Stored) {
        let first = &mut self.entries[slot.0];
        if first.mask == 0 {
            first.set(store);
            return;
        }
        let place = self.take_free();
        let first = &mut self.entries[slot.0];
        let mut second = *first;
        if first.state.is_persisted() {
            first.set(store);
        } else {
            second.set(store);
        }
        first.rest_mask |= second.mask;
        first.rest_open += u8::from(!second.state.is_persisted());
        first.next = place;
        self.entries[place] = second;
    }

    /// Joins entries of a line that became persistent at `to` and that no question can tell apart.
    /// They are the newest, so they stand together behind the first; what stands behind an older
    /// one stays as it is.
    pub fn join_persisted(&mut self, slot: Slot, to: Epoch) {
        let older =
            |entry: &Entry| entry.state == Persistency::Persisted && entry.persist_to != to.0;
        let mut at = slot.0;
        loop {
            let mut joined = self.entries[at];
            if joined.state == Persistency::Persisted && joined.persist_to == to.0 {
                let mut previous = at;
                let mut number = joined.next;
                let mut gone = 0;
                while number != NONE {
                    let entry = self.entries[number];
                    if older(&entry) {
                        break;
                    }
                    let same = entry.state == Persistency::Persisted
                        && entry.persist_from == joined.persist_from
                        && entry.thread == joined.thread
                        && entry.order == joined.order;
                    if same {
                        joined.mask |= entry.mask;
                        gone |= entry.mask;
                        if entry.stored > joined.stored {
                            joined.stored = entry.stored;
                            joined.tag = entry.tag;
                            joined.flush_tag = entry.flush_tag;
                        }
                        self.entries[previous].next = entry.next;
                        self.set_free(number);
                    } else {
                        previous = number;
                    }
                    number = entry.next;
                }
                if at == slot.0 {
                    joined.rest_mask &= !gone;
                }
                let next = self.entries[at].next;
                self.entries[at] = Entry { next, ..joined };
            }
            match self.entries[at].next {
                NONE => return,
                next if older(&self.entries[next]) => return,
                next => at = next,
            }
        }
    }

    /// The line was written back.
    #[inline]
    pub fn note_write_back(&mut self, slot: Slot) {
        self.entries[slot.0].note_write_back();
    }

    /// Stores to the line, if it was never written back. Saturates.
    pub fn stores_without_write_back(&self, slot: Slot) -> Option<u16> {
        let stores = self.entries[slot.0].stores;
        (stores != WRITTEN_BACK).then_some(stores)
    }

    // ------------------------------------------------------------------ ranges

    /// First addresses of the lines in `range` that have entries, in order.
    pub fn lines(&self, range: ByteRange) -> impl Iterator<Item = (u64, Slot)> {
        let last = range.end.saturating_sub(1).max(range.start);
        let first_line = range.start / LINE_BYTES;
        let last_line = last / LINE_BYTES;
        self.index
            .range(range.start / CHUNK_BYTES..=last / CHUNK_BYTES)
            .flat_map(move |(number, chunk)| {
                let pages = self.chunks[*chunk as usize].pages.iter().enumerate();
                let pages = pages.filter(|(_, page)| **page != NONE);
                pages.map(move |(at, page)| {
                    let addr = number * CHUNK_BYTES + at as u64 * PAGE_BYTES;
                    (addr / LINE_BYTES, *page)
                })
            })
            .flat_map(move |(page_line, page)| {
                let from = first_line.saturating_sub(page_line).min(PAGE_LINES as u64);
                let to = (last_line + 1).saturating_sub(page_line);
                let lines = from..to.min(PAGE_LINES as u64);
                lines.filter_map(move |at| {
                    let slot = Slot(page + at as u32);
                    let has_some = self.entries[slot.0].mask != 0;
                    has_some.then(|| ((page_line + at) * LINE_BYTES, slot))
                })
            })
    }

    /// Forgets all entries of whole pages in `range`. Their lines' slots must not be used any more;
    /// tells which these are.
    pub fn clear_pages(&mut self, range: ByteRange) -> impl Fn(Slot) -> bool + use<> {
        let mut cleared = BTreeSet::new();
        self.clear_into(range, &mut cleared);
        move |slot| cleared.contains(&(slot.0 / PAGE_LINES as u32 * PAGE_LINES as u32))
    }

    fn clear_into(&mut self, range: ByteRange, cleared: &mut BTreeSet<u32>) {
        let first_page = range.start.div_ceil(PAGE_BYTES);
        let end_page = range.end / PAGE_BYTES;
        if first_page >= end_page {
            return;
        }
        let chunks = first_page / CHUNK_PAGES as u64..=(end_page - 1) / CHUNK_PAGES as u64;
        for (_, chunk) in self.index.range(chunks) {
            let chunk = &mut self.chunks[*chunk as usize];
            let base = chunk.number * CHUNK_PAGES as u64;
            for (at, page) in chunk.pages.iter_mut().enumerate() {
                if *page != NONE && (first_page..end_page).contains(&(base + at as u64)) {
                    let page = std::mem::replace(page, NONE);
                    self.free_pages.push(page);
                    cleared.insert(page);
                }
            }
        }
    }
}

impl Entry {
    /// No bytes.
    const EMPTY: Entry = Entry {
        mask: 0,
        stored: Moment(0),
        persist_from: Epoch(0),
        persist_to: 0,
        rest_mask: 0,
        order: 0,
        thread: Thread(0),
        tag: Tag(0),
        flush_tag: Tag(0),
        next: NONE,
        state: Persistency::Clean,
        rest_open: 0,
        stores: 0,
    };

    /// Makes it that store's. Its links stay.
    #[inline(always)]
    fn set(&mut self, store: &Stored) {
        self.mask = store.mask;
        self.stored = store.stored;
        self.persist_from = store.persist_from;
        self.persist_to = store.persist_to.map_or(0, |to| to.0);
        self.order = store.order;
        self.thread = store.thread;
        self.tag = store.tag;
        self.flush_tag = Tag(0);
        self.state = store.state;
    }

    pub fn persist_to(&self) -> Option<Epoch> {
        (self.persist_to != 0).then_some(Epoch(self.persist_to))
    }

    /// The line was written back. For a line's first entry only.
    #[inline]
    pub fn note_write_back(&mut self) {
        self.stores = WRITTEN_BACK;
    }

    pub fn set_persisted(&mut self, to: Epoch) {
        self.persist_to = to.0;
    }
}
