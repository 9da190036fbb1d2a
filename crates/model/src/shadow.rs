//! Where interval entries live: a page table over arenas.
//!
//! ```text
//!  address ─▶ chunk (2 MiB) ─▶ page (4 KiB) ─▶ line: entry ─▶ entry ─▶ …    one entry a set of bytes with one history
//! ```
//! Guarantee: entries of a line have disjoint, non-empty masks. Memory follows the pages ever stored to. A line's first entry
//! stands in its page, so that the usual store touches one cache line here; further ones come from an arena with a free list. No
//! allocation per event.

use std::collections::BTreeMap;

use crate::intervals::Tag;
use crate::state::Persistency;
use crate::types::{ByteRange, Epoch, LINE_BYTES, Moment, Thread};

const PAGE_BYTES: u64 = 4096;
const PAGE_LINES: usize = (PAGE_BYTES / LINE_BYTES) as usize;
const CHUNK_BYTES: u64 = 2 << 20;
const CHUNK_PAGES: usize = (CHUNK_BYTES / PAGE_BYTES) as usize;
/// No entry, no page.
const NONE: u32 = u32::MAX;

/// Bytes of one line that were stored together (or became persistent together), and how far they have come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// One bit a byte of the line.
    pub mask: u64,
    pub stored: Moment,
    pub persist_from: Epoch,
    /// 0 while it may still be open: no persist ends in the first epoch.
    persist_to: u64,
    /// `NO_FLUSH` until a write-back was issued; that ends with the persist.
    flush_from: u64,
    /// Ordering fences of the thread before the store.
    pub order: u32,
    pub thread: Thread,
    /// Who stored.
    pub tag: Tag,
    /// Who wrote back.
    pub flush_tag: Tag,
    pub state: Persistency,
    next: u32,
}

const NO_FLUSH: u64 = u64::MAX;
const _: () = assert!(size_of::<Entry>() == 64);

/// A line that was written back once is not counted any more.
const WRITTEN_BACK: u16 = u16::MAX;

#[derive(Clone, Debug)]
struct Page {
    /// Of each line. An empty mask: the line has none.
    first: [Entry; PAGE_LINES],
    /// Of each line, about the entries behind the first, to spare looking at them.
    rest: [Rest; PAGE_LINES],
    /// Stores to the line while it was never written back.
    stores: [u16; PAGE_LINES],
}

/// What the entries of a line behind the first have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// No byte outside is in one of them.
    mask: u64,
    /// So many are not persisted.
    open: u32,
}

/// An entry's place: in its page, or in the arena.
#[derive(Clone, Copy)]
enum At {
    First(Slot),
    Arena(u32),
}

/// A place in the tables: page and line in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    page: u32,
    line: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    chunks: BTreeMap<u64, Box<[u32; CHUNK_PAGES]>>,
    pages: Vec<Box<Page>>,
    entries: Vec<Entry>,
    /// Head of the chain of unused entries.
    free: u32,
    /// Pages found lately, by their number: most accesses go where others went just before.
    recent: [(u64, u32); RECENT],
}

/// Number of remembered pages.
const RECENT: usize = 64;

/// The bits of `len` bytes from `first` in a line.
pub(crate) fn mask(first: u64, len: u64) -> u64 {
    debug_assert!(len >= 1 && first + len <= LINE_BYTES);
    (u64::MAX >> (LINE_BYTES - len)) << first
}

impl Shadow {
    pub fn new() -> Self {
        Shadow {
            chunks: BTreeMap::new(),
            pages: Vec::new(),
            entries: Vec::new(),
            free: NONE,
            recent: [(u64::MAX, NONE); RECENT],
        }
    }

    /// The line that starts at `addr`, if its page was ever stored to.
    #[inline]
    pub fn find(&mut self, addr: u64) -> Option<Slot> {
        let number = addr / PAGE_BYTES;
        let line = (addr % PAGE_BYTES / LINE_BYTES) as u8;
        let recent = self.recent[number as usize % RECENT];
        if recent.0 == number {
            let page = recent.1;
            return Some(Slot { page, line });
        }
        let page = self.look_up(number)?;
        self.recent[number as usize % RECENT] = (number, page);
        Some(Slot { page, line })
    }

    /// As `find`, without remembering.
    pub fn peek(&self, addr: u64) -> Option<Slot> {
        let page = self.look_up(addr / PAGE_BYTES)?;
        let line = (addr % PAGE_BYTES / LINE_BYTES) as u8;
        Some(Slot { page, line })
    }

    fn look_up(&self, number: u64) -> Option<u32> {
        let chunk = self.chunks.get(&(number / CHUNK_PAGES as u64))?;
        let page = chunk[number as usize % CHUNK_PAGES];
        (page != NONE).then_some(page)
    }

    /// The line that starts at `addr`.
    #[inline]
    pub fn make(&mut self, addr: u64) -> Slot {
        match self.find(addr) {
            Some(slot) => slot,
            None => self.make_page(addr),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_page(&mut self, addr: u64) -> Slot {
        let number = addr / PAGE_BYTES;
        let page = self.pages.len() as u32;
        self.pages.push(Box::new(Page {
            first: [Entry::EMPTY; PAGE_LINES],
            rest: [Rest::default(); PAGE_LINES],
            stores: [0; PAGE_LINES],
        }));
        let chunk = self
            .chunks
            .entry(number / CHUNK_PAGES as u64)
            .or_insert_with(|| Box::new([NONE; CHUNK_PAGES]));
        chunk[number as usize % CHUNK_PAGES] = page;
        self.recent[number as usize % RECENT] = (number, page);
        let line = (addr % PAGE_BYTES / LINE_BYTES) as u8;
        Slot { page, line }
    }

    #[inline]
    fn first(&self, slot: Slot) -> &Entry {
        &self.pages[slot.page as usize].first[slot.line as usize]
    }

    #[inline]
    fn first_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.pages[slot.page as usize].first[slot.line as usize]
    }

    #[inline]
    fn rest_mut(&mut self, slot: Slot) -> &mut Rest {
        &mut self.pages[slot.page as usize].rest[slot.line as usize]
    }

    fn at(&mut self, at: At) -> &mut Entry {
        match at {
            At::First(slot) => self.first_mut(slot),
            At::Arena(index) => &mut self.entries[index as usize],
        }
    }

    fn set_free(&mut self, index: u32) {
        self.entries[index as usize].next = self.free;
        self.free = index;
    }

    /// The entries of a line, in no order.
    #[inline]
    pub fn entries(&self, slot: Slot) -> impl Iterator<Item = &Entry> {
        let first = self.first(slot);
        let mut next = first.next;
        let rest = std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.next;
            Some(entry)
        });
        Some(first)
            .filter(|first| first.mask != 0)
            .into_iter()
            .chain(rest)
    }

    /// Calls `change` with each entry of a line that is not persisted, and with the first in any case.
    #[inline]
    pub fn update(&mut self, slot: Slot, mut change: impl FnMut(&mut Entry)) {
        let page = &mut self.pages[slot.page as usize];
        let first = &mut page.first[slot.line as usize];
        if first.mask == 0 {
            return;
        }
        change(first);
        let rest = &mut page.rest[slot.line as usize];
        let mut left = rest.open;
        let mut next = first.next;
        while left > 0
            && let Some(entry) = self.entries.get_mut(next as usize)
        {
            if !entry.state.is_persisted() {
                left -= 1;
                change(entry);
                rest.open -= u32::from(entry.state.is_persisted());
            }
            next = entry.next;
        }
    }

    /// Takes `mask` out of all entries of the line; `seen` is shown each entry that loses bytes, as it was.
    #[inline]
    pub fn remove(&mut self, slot: Slot, mask: u64, mut seen: impl FnMut(&Entry)) {
        if self.rest_mut(slot).mask & mask != 0 {
            self.remove_from_rest(slot, mask, &mut seen);
        }
        let first = self.first_mut(slot);
        if first.mask & mask != 0 {
            seen(first);
            first.mask &= !mask;
            let next = first.next;
            if first.mask == 0 && next != NONE {
                let second = self.entries[next as usize];
                *self.first_mut(slot) = second;
                self.set_free(next);
                let rest = self.rest_mut(slot);
                rest.mask &= !second.mask;
                rest.open -= u32::from(!second.state.is_persisted());
            }
        }
    }

    fn remove_from_rest(&mut self, slot: Slot, mask: u64, seen: &mut impl FnMut(&Entry)) {
        let mut previous = At::First(slot);
        let mut index = self.first(slot).next;
        let mut closed = 0;
        while index != NONE {
            let entry = &mut self.entries[index as usize];
            let next = entry.next;
            if entry.mask & mask != 0 {
                seen(entry);
                entry.mask &= !mask;
                if entry.mask == 0 {
                    closed += u32::from(!entry.state.is_persisted());
                    self.set_free(index);
                    self.at(previous).next = next;
                    index = next;
                    continue;
                }
            }
            previous = At::Arena(index);
            index = next;
        }
        let rest = self.rest_mut(slot);
        rest.mask &= !mask;
        rest.open -= closed;
    }

    /// Adds an entry. Its bytes must be in no other.
    #[inline]
    pub fn add(&mut self, slot: Slot, entry: Entry) {
        let first = self.first_mut(slot);
        if first.mask == 0 {
            *first = Entry {
                next: NONE,
                ..entry
            };
            return;
        }
        let entry = Entry {
            next: first.next,
            ..entry
        };
        let index = match self.free {
            NONE => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            free => {
                self.free = self.entries[free as usize].next;
                self.entries[free as usize] = entry;
                free
            }
        };
        self.first_mut(slot).next = index;
        let rest = self.rest_mut(slot);
        rest.mask |= entry.mask;
        rest.open += u32::from(!entry.state.is_persisted());
    }

    /// Joins entries of a line that became persistent at `to` and that no question can tell apart. They are the newest, so
    /// they stand together behind the first; what stands behind an older one stays as it is.
    #[inline]
    pub fn join_persisted(&mut self, slot: Slot, to: Epoch) {
        if self.first(slot).next != NONE {
            self.join_several(slot, to);
        }
    }

    fn join_several(&mut self, slot: Slot, to: Epoch) {
        let older =
            |entry: &Entry| entry.state == Persistency::Persisted && entry.persist_to != to.0;
        let mut at = At::First(slot);
        loop {
            let mut joined = *self.at(at);
            if joined.state == Persistency::Persisted && joined.persist_to == to.0 {
                let mut previous = at;
                let mut index = joined.next;
                while index != NONE {
                    let entry = self.entries[index as usize];
                    if older(&entry) {
                        break;
                    }
                    let same = entry.state == Persistency::Persisted
                        && entry.persist_from == joined.persist_from
                        && entry.thread == joined.thread
                        && entry.order == joined.order;
                    if same {
                        joined.mask |= entry.mask;
                        if entry.stored > joined.stored {
                            joined.stored = entry.stored;
                            joined.tag = entry.tag;
                            joined.flush_tag = entry.flush_tag;
                        }
                        self.at(previous).next = entry.next;
                        self.set_free(index);
                        if let At::First(_) = at {
                            self.rest_mut(slot).mask &= !entry.mask;
                        }
                    } else {
                        previous = At::Arena(index);
                    }
                    index = entry.next;
                }
                let next = self.at(at).next;
                *self.at(at) = Entry { next, ..joined };
            }
            let next = self.at(at).next;
            match next {
                NONE => return,
                _ if older(&self.entries[next as usize]) => return,
                _ => at = At::Arena(next),
            }
        }
    }

    /// One more store to the line.
    #[inline]
    pub fn count_store(&mut self, slot: Slot) {
        let stores = &mut self.pages[slot.page as usize].stores[slot.line as usize];
        // Neither beyond the largest count nor away from the mark.
        *stores += u16::from(*stores < WRITTEN_BACK - 1);
    }

    /// The line was written back.
    #[inline]
    pub fn note_write_back(&mut self, slot: Slot) {
        self.pages[slot.page as usize].stores[slot.line as usize] = WRITTEN_BACK;
    }

    /// Stores to the line, if it was never written back. Saturates.
    pub fn stores_without_write_back(&self, slot: Slot) -> Option<u16> {
        let stores = self.pages[slot.page as usize].stores[slot.line as usize];
        (stores != WRITTEN_BACK).then_some(stores)
    }

    /// First addresses of the lines in `range` that have entries, in order.
    pub fn lines(&self, range: ByteRange) -> impl Iterator<Item = (u64, Slot)> {
        let last = range.end.saturating_sub(1).max(range.start);
        let first_page = range.start / PAGE_BYTES;
        let last_page = last / PAGE_BYTES;
        let first_line = range.start / LINE_BYTES;
        let last_line = last / LINE_BYTES;
        let chunks = first_page / CHUNK_PAGES as u64..=last_page / CHUNK_PAGES as u64;
        self.chunks
            .range(chunks)
            .flat_map(move |(number, pages)| {
                let base = number * CHUNK_PAGES as u64;
                let from = first_page.saturating_sub(base).min(CHUNK_PAGES as u64);
                let to = (last_page - base.min(last_page)).min(CHUNK_PAGES as u64 - 1);
                (from..=to).map(move |at| (base + at, pages[at as usize]))
            })
            .filter(|(_, page)| *page != NONE)
            .flat_map(|(number, page)| {
                (0..PAGE_LINES as u8).map(move |line| {
                    let addr = number * PAGE_BYTES + u64::from(line) * LINE_BYTES;
                    (addr, Slot { page, line })
                })
            })
            .filter(move |(addr, slot)| {
                (first_line..=last_line).contains(&(addr / LINE_BYTES))
                    && self.first(*slot).mask != 0
            })
    }
}

impl Entry {
    /// No bytes.
    const EMPTY: Entry = Entry {
        mask: 0,
        stored: Moment(0),
        persist_from: Epoch(0),
        persist_to: 0,
        flush_from: NO_FLUSH,
        order: 0,
        thread: Thread(0),
        tag: Tag(0),
        flush_tag: Tag(0),
        state: Persistency::Clean,
        next: NONE,
    };

    /// An entry that stands alone; [`Shadow::add`] links it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of a plain record, in order"
    )]
    pub fn new(
        mask: u64,
        stored: Moment,
        persist_from: Epoch,
        persist_to: Option<Epoch>,
        order: u32,
        thread: Thread,
        tag: Tag,
        state: Persistency,
    ) -> Self {
        Entry {
            mask,
            stored,
            persist_from,
            persist_to: persist_to.map_or(0, |to| to.0),
            flush_from: NO_FLUSH,
            order,
            thread,
            tag,
            flush_tag: Tag::default(),
            state,
            next: NONE,
        }
    }

    pub fn persist_to(&self) -> Option<Epoch> {
        (self.persist_to != 0).then_some(Epoch(self.persist_to))
    }

    pub fn set_persisted(&mut self, to: Epoch) {
        self.persist_to = to.0;
    }

    pub fn flush_from(&self) -> Option<Epoch> {
        (self.flush_from != NO_FLUSH).then_some(Epoch(self.flush_from))
    }

    /// A write-back was issued; the first counts.
    pub fn set_flushed(&mut self, from: Epoch) {
        if self.flush_from == NO_FLUSH {
            self.flush_from = from.0;
        }
    }
}
