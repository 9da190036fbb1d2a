//! From a store until it is persistent: the windows, and who has read what lies in them.
//!
//! A [`Window`] is what one store has left in one cache line. It is open until the line is written
//! back and fenced, and it is remembered until all of its bytes are stored over, because whoever
//! reads them later reads *this* store. Bytes are kept by granules of eight, with a mask: what lies
//! in the same granule and is not the same byte is not shared.

use brownout_model::{ByteRange, Key, LINE_BYTES, Moment, Tag};
use brownout_trace::event::ThreadId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::clocks::Who;
use super::locks::{Lock, SetId};

/// Bytes of a granule.
pub const GRANULE: u64 = 8;
/// Granules of a page of the table.
const PAGE_CELLS: usize = 512;
/// Granules of a line.
const LINE_CELLS: u64 = LINE_BYTES / GRANULE;
/// Loads remembered of a granule: of so many places, the last ones.
const LOADS_MAX: usize = 8;

/// A window, by its place in the table and, because places are used again, the moment of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowId {
    at: u32,
    moment: Moment,
}

/// What one store has left in one line.
#[derive(Debug)]
pub struct Window {
    pub who: Who,
    /// The thread's epoch at the store.
    pub epoch: u64,
    pub moment: Moment,
    pub tag: Tag,
    pub range: ByteRange,
    /// Locks held at the store.
    pub set: SetId,
    /// Of these, the ones that were held ever since, or until it was persistent.
    pub effective: SetId,
    /// Where locks of `set` were given back while it was open.
    pub unlocks: SmallVec<[(Lock, Tag); 1]>,
    /// When it became persistent.
    pub closed: Option<Closed>,
    /// It is followed, because others may read it, but not judged.
    pub is_quiet: bool,
    /// Nobody else had touched the bytes before the store.
    pub is_private: bool,
    /// It is in a granule that locked instructions change: perhaps a lock.
    pub is_locked: bool,
    /// Loads of other threads before the store that nothing forces to be before it.
    pub earlier: Vec<Load>,
    /// Bytes that were not stored over yet.
    pub bytes: u32,
}

/// When a window became persistent, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub who: Who,
    pub thread: ThreadId,
    pub epoch: u64,
    pub moment: Moment,
    pub tag: Tag,
}

/// A load, as it is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub who: Who,
    pub epoch: u64,
    pub moment: Moment,
    pub tag: Tag,
    pub set: SetId,
    /// Which bytes of the granule.
    pub mask: u8,
    /// A load before a store: it was so only because a lock was taken in that order, or some such.
    pub is_taken: bool,
}

/// A granule.
#[derive(Debug, Default)]
pub struct Cell {
    /// What its bytes come from.
    windows: SmallVec<[(u32, u8); 1]>,
    loads: Vec<Load>,
    /// Who touched it first, from 1; 0 before that.
    first: u32,
    /// A second thread has touched it.
    is_shared: bool,
    /// A locked instruction has changed it.
    is_locked: bool,
    /// It belongs to a lock of the C library.
    is_sync: bool,
}

impl Cell {
    /// Somebody touches it. True if somebody else has, too.
    pub fn touch(&mut self, who: Who) -> bool {
        let own = who as u32 + 1;
        if self.first == 0 {
            self.first = own;
        }
        self.is_shared |= self.first != own;
        self.is_shared
    }

    /// Whether it belongs to a lock of the C library.
    pub fn is_sync(&self) -> bool {
        self.is_sync
    }

    /// Remembers a load. The same place again replaces itself.
    pub fn remember(&mut self, load: Load) {
        let same =
            |known: &&mut Load| (known.who, known.tag, known.set) == (load.who, load.tag, load.set);
        if let Some(known) = self.loads.iter_mut().find(same) {
            let mask = known.mask | load.mask;
            *known = Load { mask, ..load };
            return;
        }
        if self.loads.len() >= LOADS_MAX {
            let oldest = (0..self.loads.len()).min_by_key(|i| self.loads[*i].moment);
            self.loads.swap_remove(oldest.unwrap_or(0));
        }
        self.loads.push(load);
    }

    /// Loads of others of some of these bytes.
    pub fn loads_of_others(&self, who: Who, mask: u8) -> impl Iterator<Item = &Load> {
        let other = move |load: &&Load| load.who != who && load.mask & mask != 0;
        self.loads.iter().filter(other)
    }
}

/// All windows, and the granules that they lie in.
#[derive(Debug, Default)]
pub struct Windows {
    slots: Vec<Window>,
    free: Vec<u32>,
    pages: Vec<Box<[Cell]>>,
    places: FxHashMap<u64, usize>,
    /// The page looked up last, and its place.
    last: (u64, usize),
}

impl Windows {
    /// The granule of that number, which is its first byte's key over eight.
    #[inline]
    pub fn cell(&mut self, granule: u64) -> &mut Cell {
        let (page, at) = (granule / PAGE_CELLS as u64, granule as usize % PAGE_CELLS);
        let place = match self.last {
            (last, place) if last == page && !self.pages.is_empty() => place,
            _ => self.page(page),
        };
        &mut self.pages[place][at]
    }

    #[inline(never)]
    fn page(&mut self, page: u64) -> usize {
        let next = self.pages.len();
        let place = *self.places.entry(page).or_insert(next);
        if place == next {
            let cells = std::iter::repeat_with(Cell::default);
            self.pages.push(cells.take(PAGE_CELLS).collect());
        }
        self.last = (page, place);
        place
    }

    /// The window, if it is still remembered.
    pub fn get(&self, id: WindowId) -> Option<&Window> {
        let window = &self.slots[id.at as usize];
        (window.moment == id.moment && window.bytes > 0).then_some(window)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: WindowId) -> Option<&mut Window> {
        let window = &mut self.slots[id.at as usize];
        (window.moment == id.moment && window.bytes > 0).then_some(window)
    }

    /// Windows that some of these bytes of a granule come from.
    pub fn under(&mut self, granule: u64, mask: u8) -> SmallVec<[WindowId; 2]> {
        let found = self.cell(granule).windows.clone();
        let found = found.iter().filter(|(_, theirs)| theirs & mask != 0);
        found.map(|(at, _)| self.id(*at)).collect()
    }

    fn id(&self, at: u32) -> WindowId {
        WindowId {
            at,
            moment: self.slots[at as usize].moment,
        }
    }

    /// A new window, within one line. What was there before is given to `gone` when nothing of it
    /// is left.
    pub fn open(&mut self, window: Window, mut gone: impl FnMut(WindowId, &Window)) -> WindowId {
        let range = window.range;
        self.clear(range, &mut gone);
        let window = Window {
            bytes: range.len() as u32,
            ..window
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = window;
                at
            }
            None => {
                self.slots.push(window);
                self.slots.len() as u32 - 1
            }
        };
        for (granule, mask) in granules(range) {
            let cell = self.cell(granule);
            cell.windows.push((at, mask));
            let is_locked = cell.is_locked;
            let is_sync = cell.is_sync;
            let window = &mut self.slots[at as usize];
            window.is_locked |= is_locked;
            window.is_quiet |= is_sync;
        }
        self.id(at)
    }

    /// Forgets what these bytes come from.
    pub fn clear(&mut self, range: ByteRange, gone: &mut impl FnMut(WindowId, &Window)) {
        for (granule, mask) in granules(range) {
            let cell = self.cell(granule);
            if cell.windows.is_empty() {
                continue;
            }
            let mut lost: SmallVec<[(u32, u32); 2]> = SmallVec::new();
            for (at, theirs) in &mut cell.windows {
                let hit = *theirs & mask;
                if hit != 0 {
                    *theirs &= !mask;
                    lost.push((*at, hit.count_ones()));
                }
            }
            cell.windows.retain(|(_, theirs)| *theirs != 0);
            for (at, bytes) in lost {
                let window = &mut self.slots[at as usize];
                if window.bytes == bytes {
                    let id = WindowId {
                        at,
                        moment: window.moment,
                    };
                    gone(id, window);
                    self.slots[at as usize].bytes = 0;
                    self.free.push(at);
                } else {
                    window.bytes -= bytes;
                }
            }
        }
    }

    /// A locked instruction changes the granules of these bytes: they may be a lock.
    pub fn is_locked(&mut self, range: ByteRange) {
        for (granule, _) in granules(range) {
            let cell = self.cell(granule);
            if cell.is_locked {
                continue;
            }
            cell.is_locked = true;
            for id in self.under(granule, u8::MAX) {
                self.slots[id.at as usize].is_locked = true;
            }
        }
    }

    /// Whether locked instructions have changed some of the granules of these bytes.
    pub fn has_locked(&mut self, range: ByteRange) -> bool {
        granules(range).any(|(granule, _)| self.cell(granule).is_locked)
    }

    /// These bytes are a lock of the C library.
    pub fn is_sync(&mut self, range: ByteRange) {
        for (granule, _) in granules(range) {
            let cell = self.cell(granule);
            if cell.is_sync {
                continue;
            }
            cell.is_sync = true;
            for id in self.under(granule, u8::MAX) {
                self.slots[id.at as usize].is_quiet = true;
            }
        }
    }

    /// The open windows in the line at that key whose store is not later than `until`.
    pub fn open_in_line(&mut self, line: Key, until: Moment) -> SmallVec<[WindowId; 8]> {
        let first = line.0 / LINE_BYTES * LINE_CELLS;
        let mut open: SmallVec<[WindowId; 8]> = SmallVec::new();
        for granule in first..first + LINE_CELLS {
            for i in 0..self.cell(granule).windows.len() {
                let (at, _) = self.cell(granule).windows[i];
                let window = &self.slots[at as usize];
                let id = self.id(at);
                if window.closed.is_none() && window.moment <= until && !open.contains(&id) {
                    open.push(id);
                }
            }
        }
        open
    }

    /// All open windows in a range, however large.
    pub fn open_in(&mut self, range: ByteRange) -> Vec<WindowId> {
        let is_in = |window: &Window| {
            window.bytes > 0 && window.closed.is_none() && window.range.overlaps(range)
        };
        let slots = self.slots.iter().enumerate();
        let open = slots.filter(|(_, window)| is_in(window));
        open.map(|(at, _)| self.id(at as u32)).collect()
    }
}

/// The granules of a range: number, and which of its bytes.
pub fn granules(range: ByteRange) -> impl Iterator<Item = (u64, u8)> {
    let (start, end) = (range.start().0, range.end().0);
    let first = start / GRANULE;
    let behind = end.div_ceil(GRANULE).max(first);
    (first..behind).map(move |granule| {
        let base = granule * GRANULE;
        let from = start.saturating_sub(base);
        let until = (end - base).min(GRANULE);
        let mask = ((1u32 << until) - 1) & !((1u32 << from) - 1);
        (granule, mask as u8)
    })
}

/// A range by its lines.
pub fn by_line(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let (start, end) = (range.start().0, range.end().0);
    let lines = start / LINE_BYTES..end.div_ceil(LINE_BYTES);
    lines.map(move |line| {
        let from = start.max(line * LINE_BYTES);
        let until = end.min((line + 1) * LINE_BYTES);
        ByteRange::new(Key(from), until - from)
    })
}

impl Default for Window {
    fn default() -> Self {
        Window {
            who: 0,
            epoch: 0,
            moment: Moment(0),
            tag: Tag(0),
            range: ByteRange::new(Key(0), 0),
            set: SetId::NONE,
            effective: SetId::NONE,
            unlocks: SmallVec::new(),
            closed: None,
            is_quiet: false,
            is_private: false,
            is_locked: false,
            earlier: Vec::new(),
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> ByteRange {
        ByteRange::new(Key(start), len)
    }

    #[test]
    fn bytes_of_granules() {
        let of = |start, len| granules(range(start, len)).collect::<Vec<_>>();
        assert_eq!(of(8, 8), [(1, 0xFF)]);
        assert_eq!(of(10, 2), [(1, 0b1100)]);
        assert_eq!(of(6, 4), [(0, 0xC0), (1, 0b11)]);
        assert_eq!(of(16, 0), []);
        let lines: Vec<_> = by_line(range(60, 72)).collect();
        assert_eq!(lines, [range(60, 4), range(64, 64), range(128, 4)]);
    }

    #[test]
    fn a_window_goes_with_its_last_byte() {
        let mut windows = Windows::default();
        let window = |start, len, moment| Window {
            range: range(start, len),
            moment: Moment(moment),
            ..Window::default()
        };
        let first = windows.open(window(6, 4, 1), |_, _| panic!("nothing was there"));
        let second = windows.open(window(6, 2, 2), |_, _| panic!("half is left"));
        assert!(windows.get(first).is_some());
        assert_eq!(windows.under(0, 0xFF)[..], [second]);
        assert_eq!(windows.under(1, 0b11)[..], [first]);
        let mut lost = Vec::new();
        let third = windows.open(window(8, 8, 3), |id, _| lost.push(id));
        assert_eq!(lost, [first]);
        assert!(windows.get(first).is_none());
        assert_eq!(windows.under(1, 0b1)[..], [third]);
        let open = windows.open_in_line(Key(0), Moment(2));
        assert_eq!(open[..], [second]);
        assert_eq!(windows.open_in(range(0, 64)).len(), 2);
    }
}
