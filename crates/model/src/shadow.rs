//! Where interval entries live: a page table over arenas.
//!
//! ```text
//!  address ─▶ chunk (2 MiB) ─▶ page (16 KiB) ─▶ line: entry ─▶ entry ─▶ …    one entry a set of bytes with one history
//! ```
//! Guarantee: entries of a line have disjoint, non-empty masks. Memory follows the pages ever stored to. A line's first entry
//! stands in its page, together with what is known of the others, so that the usual event touches one cache line here; further
//! entries come from an arena with a free list. No allocation per event.

use std::collections::BTreeMap;

use crate::intervals::Tag;
use crate::state::Persistency;
use crate::types::{ByteRange, Epoch, LINE_BYTES, Moment, Thread};

const PAGE_LINES: usize = 256;
const CHUNK_PAGES: usize = 128;
const CHUNK_LINES: usize = CHUNK_PAGES * PAGE_LINES;
const CHUNK_BYTES: u64 = CHUNK_LINES as u64 * LINE_BYTES;
/// No entry: the arena's first place is never given away, so that a page begins as zeros.
const NONE: u32 = 0;

/// Bytes of one line that were stored together (or became persistent together), and how far they have come.
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

type Page = [Entry; PAGE_LINES];

#[derive(Clone, Debug)]
struct Chunk {
    /// Its address divided by its size.
    number: u64,
    pages: [Option<Box<Page>>; CHUNK_PAGES],
}

/// An entry's place: in its page, or in the arena.
#[derive(Clone, Copy)]
enum At {
    First(Slot),
    Arena(u32),
}

/// A line's place in the tables: chunk, and line in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    fn new(chunk: u32, addr: u64) -> Slot {
        Slot(chunk * CHUNK_LINES as u32 + (addr % CHUNK_BYTES / LINE_BYTES) as u32)
    }

    #[inline]
    fn chunk(self) -> usize {
        self.0 as usize / CHUNK_LINES
    }

    #[inline]
    fn page(self) -> usize {
        self.0 as usize / PAGE_LINES % CHUNK_PAGES
    }

    #[inline]
    fn line(self) -> usize {
        self.0 as usize % PAGE_LINES
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    chunks: Vec<Chunk>,
    /// Chunks by number.
    index: BTreeMap<u64, u32>,
    /// Chunks found lately, by their number: most accesses go where others went before.
    recent: [(u64, u32); RECENT],
    arena: Vec<Entry>,
    /// Head of the chain of unused entries.
    free: u32,
}

/// Number of remembered chunks.
const RECENT: usize = 256;

/// The bits of `len` bytes from `first` in a line.
#[inline]
pub(crate) fn mask(first: u64, len: u64) -> u64 {
    debug_assert!(len >= 1 && first + len <= LINE_BYTES);
    (u64::MAX >> (LINE_BYTES - len)) << first
}

impl Shadow {
    pub fn new() -> Self {
        Shadow {
            chunks: Vec::new(),
            index: BTreeMap::new(),
            recent: [(u64::MAX, 0); RECENT],
            arena: vec![Entry::EMPTY],
            free: NONE,
        }
    }

    // ------------------------------------------------------------------ lines

    /// The line that holds `addr`, if something near it was ever stored to.
    #[inline(always)]
    pub fn find(&mut self, addr: u64) -> Option<Slot> {
        let number = addr / CHUNK_BYTES;
        let (found, chunk) = self.recent[number as usize % RECENT];
        if found == number {
            return Some(Slot::new(chunk, addr));
        }
        self.look_up(addr)
    }

    #[inline(never)]
    fn look_up(&mut self, addr: u64) -> Option<Slot> {
        let number = addr / CHUNK_BYTES;
        let chunk = *self.index.get(&number)?;
        self.recent[number as usize % RECENT] = (number, chunk);
        Some(Slot::new(chunk, addr))
    }

    /// As `find`, without remembering.
    pub fn peek(&self, addr: u64) -> Option<Slot> {
        let chunk = self.index.get(&(addr / CHUNK_BYTES))?;
        Some(Slot::new(*chunk, addr))
    }

    /// The line that holds `addr`.
    #[inline(always)]
    pub fn make(&mut self, addr: u64) -> Slot {
        let slot = match self.find(addr) {
            Some(slot) => slot,
            None => self.make_chunk(addr),
        };
        if self.chunks[slot.chunk()].pages[slot.page()].is_none() {
            self.make_page(slot);
        }
        slot
    }

    #[cold]
    #[inline(never)]
    fn make_chunk(&mut self, addr: u64) -> Slot {
        let number = addr / CHUNK_BYTES;
        let chunk = self.chunks.len() as u32;
        self.chunks.push(Chunk {
            number,
            pages: [const { None }; CHUNK_PAGES],
        });
        self.index.insert(number, chunk);
        self.recent[number as usize % RECENT] = (number, chunk);
        Slot::new(chunk, addr)
    }

    #[cold]
    #[inline(never)]
    fn make_page(&mut self, slot: Slot) {
        let page = vec![Entry::EMPTY; PAGE_LINES].into_boxed_slice();
        let page = page.try_into().expect("as long as a page");
        self.chunks[slot.chunk()].pages[slot.page()] = Some(page);
    }

    /// A line's first entry, if something near it was ever stored to.
    #[inline]
    fn first(&self, slot: Slot) -> Option<&Entry> {
        let page = self.chunks[slot.chunk()].pages[slot.page()].as_ref()?;
        Some(&page[slot.line()])
    }

    #[inline(always)]
    fn first_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        let page = self.chunks[slot.chunk()].pages[slot.page()].as_mut()?;
        Some(&mut page[slot.line()])
    }

    /// The first entry of a line that is known to have one.
    #[inline(always)]
    fn head(&mut self, slot: Slot) -> &mut Entry {
        self.first_mut(slot).expect("a line with entries")
    }

    fn at(&mut self, at: At) -> &mut Entry {
        match at {
            At::First(slot) => self.head(slot),
            At::Arena(index) => &mut self.arena[index as usize],
        }
    }

    fn set_free(&mut self, index: u32) {
        self.arena[index as usize].next = self.free;
        self.free = index;
    }

    // ------------------------------------------------------------------ what stands in a line

    /// The entries of a line, in no order.
    #[inline]
    pub fn entries(&self, slot: Slot) -> impl Iterator<Item = &Entry> {
        let first = self.first(slot).filter(|first| first.mask != 0);
        let mut next = first.map_or(NONE, |first| first.next);
        let rest = std::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            let entry = &self.arena[next as usize];
            next = entry.next;
            Some(entry)
        });
        first.into_iter().chain(rest)
    }

    /// True if all entries of the line are persisted.
    #[inline]
    pub fn is_persisted(&self, slot: Slot) -> bool {
        self.first(slot)
            .is_none_or(|first| first.rest_open == 0 && first.state.is_persisted())
    }

    /// Calls `change` with each entry of a line that is not persisted, and with the first in any case. Tells whether these were several.
    #[inline]
    pub fn update(&mut self, slot: Slot, mut change: impl FnMut(&mut Entry)) -> bool {
        let Some(first) = self.chunks[slot.chunk()].pages[slot.page()].as_mut() else {
            return false;
        };
        let first = &mut first[slot.line()];
        if first.mask == 0 {
            return false;
        }
        change(first);
        let several = first.rest_open > 0;
        let mut left = first.rest_open;
        let mut next = first.next;
        while left > 0 {
            let entry = &mut self.arena[next as usize];
            if !entry.state.is_persisted() {
                left -= 1;
                change(entry);
                first.rest_open -= u8::from(entry.state.is_persisted());
            }
            next = entry.next;
        }
        several
    }

    /// A line's first entry, if all others are persisted.
    #[inline(always)]
    pub fn only_open(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.first_mut(slot).filter(|first| first.rest_open == 0)
    }

    /// `store` takes the place of whatever is known of its bytes, in a line that [`make`](Self::make) gave. Tells whose store it has
    /// overwritten, if that was not persisted.
    #[inline(always)]
    pub fn overwrite(&mut self, slot: Slot, store: &Stored) -> Option<Tag> {
        let first = self.head(slot);
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
        let first = self.head(slot);
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

    /// Takes `mask` out of all entries of the line; `seen` is shown each entry that loses bytes, as it was.
    #[inline]
    pub fn remove(&mut self, slot: Slot, mask: u64, mut seen: impl FnMut(&Entry)) {
        let Some(first) = self.first_mut(slot) else {
            return;
        };
        if first.rest_mask & mask != 0 {
            self.remove_from_rest(slot, mask, &mut seen);
        }
        let first = self.head(slot);
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
                let second = self.arena[next as usize];
                self.set_free(next);
                let first = self.head(slot);
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
        let mut previous = At::First(slot);
        let mut index = self.head(slot).next;
        let mut closed = 0;
        while index != NONE {
            let entry = &mut self.arena[index as usize];
            let next = entry.next;
            if entry.mask & mask != 0 {
                seen(entry);
                entry.mask &= !mask;
                if entry.mask == 0 {
                    closed += u8::from(!entry.state.is_persisted());
                    self.set_free(index);
                    self.at(previous).next = next;
                    index = next;
                    continue;
                }
            }
            previous = At::Arena(index);
            index = next;
        }
        let first = self.head(slot);
        first.rest_mask &= !mask;
        first.rest_open -= closed;
    }

    /// Adds an entry. Its bytes must be in no other. What is still to persist comes first: the next events are about that.
    fn add(&mut self, slot: Slot, store: &Stored) {
        let free = self.free;
        let first = self.chunks[slot.chunk()].pages[slot.page()].as_mut();
        let first = &mut first.expect("a line that was made")[slot.line()];
        if first.mask == 0 {
            first.set(store);
            return;
        }
        let mut second = *first;
        if first.state.is_persisted() {
            first.set(store);
        } else {
            second.set(store);
        }
        first.rest_mask |= second.mask;
        first.rest_open += u8::from(!second.state.is_persisted());
        if free == NONE {
            first.next = self.arena.len() as u32;
            self.arena.push(second);
        } else {
            first.next = free;
            self.free = self.arena[free as usize].next;
            self.arena[free as usize] = second;
        }
    }

    /// Joins entries of a line that became persistent at `to` and that no question can tell apart. They are the newest, so
    /// they stand together behind the first; what stands behind an older one stays as it is.
    pub fn join_persisted(&mut self, slot: Slot, to: Epoch) {
        let older =
            |entry: &Entry| entry.state == Persistency::Persisted && entry.persist_to != to.0;
        let mut at = At::First(slot);
        loop {
            let mut joined = *self.at(at);
            if joined.state == Persistency::Persisted && joined.persist_to == to.0 {
                let mut previous = at;
                let mut index = joined.next;
                let mut gone = 0;
                while index != NONE {
                    let entry = self.arena[index as usize];
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
                        self.at(previous).next = entry.next;
                        self.set_free(index);
                    } else {
                        previous = At::Arena(index);
                    }
                    index = entry.next;
                }
                let next = self.at(at).next;
                if let At::First(_) = at {
                    joined.rest_mask &= !gone;
                }
                *self.at(at) = Entry { next, ..joined };
            }
            let next = self.at(at).next;
            match next {
                NONE => return,
                _ if older(&self.arena[next as usize]) => return,
                _ => at = At::Arena(next),
            }
        }
    }

    /// The line was written back.
    #[inline]
    pub fn note_write_back(&mut self, slot: Slot) {
        if let Some(first) = self.first_mut(slot) {
            first.note_write_back();
        }
    }

    /// Stores to the line, if it was never written back. Saturates.
    pub fn stores_without_write_back(&self, slot: Slot) -> Option<u16> {
        let stores = self.first(slot).map_or(0, |first| first.stores);
        (stores != WRITTEN_BACK).then_some(stores)
    }

    // ------------------------------------------------------------------ ranges

    /// First addresses of the lines in `range` that have entries, in order.
    pub fn lines(&self, range: ByteRange) -> impl Iterator<Item = (u64, Slot)> {
        let last = range.end.saturating_sub(1).max(range.start);
        let first_line = range.start / LINE_BYTES;
        let last_line = last / LINE_BYTES;
        let page_bytes = PAGE_LINES as u64 * LINE_BYTES;
        self.index
            .range(range.start / CHUNK_BYTES..=last / CHUNK_BYTES)
            .flat_map(move |(number, chunk)| {
                let pages = self.chunks[*chunk as usize].pages.iter().enumerate();
                pages.filter_map(move |(at, page)| {
                    let addr = number * CHUNK_BYTES + at as u64 * page_bytes;
                    page.as_ref().map(|page| (addr, *chunk, page))
                })
            })
            .flat_map(move |(page_addr, chunk, page)| {
                let page_line = page_addr / LINE_BYTES;
                let from = first_line.saturating_sub(page_line).min(PAGE_LINES as u64);
                let to = (last_line + 1)
                    .saturating_sub(page_line)
                    .min(PAGE_LINES as u64);
                let lines = from as usize..(to as usize).max(from as usize);
                let first = lines.start;
                page[lines]
                    .iter()
                    .enumerate()
                    .filter_map(move |(at, entry)| {
                        let addr = page_addr + (first + at) as u64 * LINE_BYTES;
                        (entry.mask != 0).then(|| (addr, Slot::new(chunk, addr)))
                    })
            })
    }

    /// Forgets all entries of whole pages in `range`.
    pub fn clear_pages(&mut self, range: ByteRange) {
        let page_bytes = PAGE_LINES as u64 * LINE_BYTES;
        let first_page = range.start.div_ceil(page_bytes);
        let end_page = range.end / page_bytes;
        if first_page >= end_page {
            return;
        }
        let chunks = first_page / CHUNK_PAGES as u64..=(end_page - 1) / CHUNK_PAGES as u64;
        let chunks: Vec<u32> = self.index.range(chunks).map(|(_, chunk)| *chunk).collect();
        for chunk in chunks {
            let base = self.chunks[chunk as usize].number * CHUNK_PAGES as u64;
            for at in 0..CHUNK_PAGES {
                if !(first_page..end_page).contains(&(base + at as u64)) {
                    continue;
                }
                let Some(page) = self.chunks[chunk as usize].pages[at].take() else {
                    continue;
                };
                for first in page.iter() {
                    let mut next = first.next;
                    while next != NONE {
                        let after = self.arena[next as usize].next;
                        self.set_free(next);
                        next = after;
                    }
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
