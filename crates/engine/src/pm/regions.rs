//! Tracked mappings and their aliases.
//!
//! A tracked mapping is steered to one of [`STEERED`], where whole 2 GiB granules hold nothing
//! else, so that emitted code decides with one table look-up and adds one constant. A mapping at an
//! address that the program insists on (`MAP_FIXED`, or registered after the fact) shares its
//! granule with other memory: there the engine is asked.

use crate::address::{AliasAddr, Distance, ProgramAddr, Reach};
use crate::context::{GRANULE_MIXED, GRANULE_SHIFT, GRANULES, ThreadContext};
use crate::sync::SpinLock;
use crate::sys::{self, nr, sc};
use alloc::vec::Vec;
use brownout_abi::{
    PM_ALIAS_BASE, PM_BASE, PM_FAR_ALIAS_BASE, PM_FAR_BASE, PM_FAR_LEN, PM_LEN, PM_OTHER_ALIAS_BASE,
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A tracked mapping.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub delta: Distance,
    pub offset: u64,
    /// Protection as the program asked.
    pub prot: u64,
}

impl Region {
    /// Where its alias begins.
    pub fn alias(&self) -> AliasAddr {
        self.delta.alias_of(ProgramAddr::new(self.start))
    }
}

/// All tracked mappings, sorted.
pub struct Regions {
    pub list: Vec<Region>,
    /// Where aliases of unsteered mappings go next.
    next_alias: AliasAddr,
    /// There is ordinary memory among steered mappings, for each of [`STEERED`].
    mixed: [bool; STEERED.len()],
    /// Granules that have had an entry. The table is large and all but these are zero in every
    /// thread's.
    marked: Vec<usize>,
}

pub static REGIONS: SpinLock<Regions> = SpinLock::new(Regions {
    list: Vec::new(),
    next_alias: AliasAddr::new(PM_OTHER_ALIAS_BASE),
    mixed: [false; STEERED.len()],
    marked: Vec::new(),
});
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Steered mappings begin at multiples of this: huge-page aligned, as libpmem likes them.
const ALIGN: u64 = 2 << 20;

/// Whether anything is tracked now.
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Where mappings are steered to.
#[derive(Clone, Copy)]
struct Steered {
    base: u64,
    len: u64,
    alias: u64,
}

/// The second one takes what the first has no room for.
const STEERED: [Steered; 2] = [
    Steered {
        base: PM_BASE,
        len: PM_LEN,
        alias: PM_ALIAS_BASE,
    },
    Steered {
        base: PM_FAR_BASE,
        len: PM_FAR_LEN,
        alias: PM_FAR_ALIAS_BASE,
    },
];

/// Distance between two layouts of tracked mappings. All of them lie where they are steered to.
const PM_STEP: u64 = PM_LEN / crate::control::LAYOUTS;

/// Where tracked mappings are steered to first.
fn preferred_base() -> u64 {
    if crate::mode().deterministic {
        PM_BASE + crate::control::layout_number() * PM_STEP
    } else {
        PM_BASE
    }
}

impl Steered {
    fn end(&self) -> u64 {
        self.base + self.len
    }

    /// From a mapping to its alias.
    fn delta(&self) -> Distance {
        Distance::between(ProgramAddr::new(self.base), AliasAddr::new(self.alias))
    }

    fn contains(&self, addr: u64) -> bool {
        (self.base..self.end()).contains(&addr)
    }
}

/// The distance from a steered mapping to its alias.
pub fn steered_delta(addr: u64) -> Option<Distance> {
    let range = STEERED.iter().find(|s| s.contains(addr));
    range.map(Steered::delta)
}

/// What a steered mapping with its alias at `addr` would have there, tracked or not.
pub fn original_of(addr: AliasAddr) -> Option<ProgramAddr> {
    let mut originals = STEERED.iter().map(|s| (s, s.delta().program_of(addr)));
    let found = originals.find(|(s, original)| s.contains(original.get()));
    found.map(|(_, original)| original)
}

impl Regions {
    pub fn find(&self, addr: u64) -> Option<&Region> {
        let i = self.list.partition_point(|r| r.end <= addr);
        self.list.get(i).filter(|r| r.start <= addr)
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let i = self.list.partition_point(|r| r.end <= start);
        self.list.get(i).is_some_and(|r| r.start < end)
    }

    /// The region whose alias holds `addr`.
    pub fn find_alias(&self, addr: AliasAddr) -> Option<&Region> {
        let holds = |r: &&Region| (r.start..r.end).contains(&r.delta.program_of(addr).get());
        self.list.iter().find(holds)
    }

    /// Stretches for a steered mapping that nothing tracked occupies, the best first. Other memory
    /// of the program's may be there.
    pub fn places(&self, len: u64) -> impl Iterator<Item = u64> + use<> {
        let near = STEERED[0];
        let (preferred, far) = (preferred_base(), STEERED[1]);
        [
            self.place_from(&near, preferred, len),
            self.place_from(&near, near.base, len),
            self.place_from(&far, far.base + (preferred - near.base), len),
            self.place_from(&far, far.base, len),
        ]
        .into_iter()
        .flatten()
    }

    fn place_from(&self, range: &Steered, first: u64, len: u64) -> Option<u64> {
        let mut at = first;
        for r in self.list.iter().filter(|r| range.contains(r.start)) {
            if r.end <= first {
                continue;
            }
            if r.start >= at + len + ALIGN {
                break;
            }
            // A gap between neighbours: an overrun faults instead of hitting another file.
            at = at.max((r.end + ALIGN).next_multiple_of(ALIGN));
        }
        at.checked_add(len).filter(|&end| end <= range.end())?;
        Some(at)
    }

    /// Room for the alias of a mapping at an address of the program's choice; the distance.
    pub fn place_alias(&mut self, start: u64, len: u64) -> Distance {
        let at = self.next_alias;
        self.next_alias += (len + ALIGN).next_multiple_of(ALIGN);
        Distance::between(ProgramAddr::new(start), at)
    }

    /// Ordinary memory of the program's is in `start..end`. If that is among steered mappings,
    /// whole granules say nothing there from now on.
    pub fn ordinary(&mut self, start: u64, end: u64) {
        let mut is_news = false;
        for (range, mixed) in STEERED.iter().zip(&mut self.mixed) {
            if start < range.end() && range.base < end && !*mixed {
                *mixed = true;
                is_news = true;
            }
        }
        if is_news {
            self.publish();
        }
    }

    pub fn insert(&mut self, r: Region) {
        let i = self.list.partition_point(|x| x.start < r.start);
        self.list.insert(i, r);
        self.publish();
    }

    /// Pieces that nothing tells apart any more are one again, as the kernel has it: `mremap` takes
    /// no two.
    pub fn join(&mut self) {
        self.list.dedup_by(|next, r| {
            let goes_on = r.end == next.start
                && (r.delta, r.prot) == (next.delta, next.prot)
                && r.offset + (r.end - r.start) == next.offset;
            if goes_on {
                r.end = next.end;
            }
            goes_on
        });
        self.publish();
    }

    /// Cuts `start..end` out; yields what was cut.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<Region> {
        let mut cut = Vec::new();
        let mut keep = Vec::with_capacity(self.list.len() + 1);
        for r in &self.list {
            if r.end <= start || r.start >= end {
                keep.push(*r);
                continue;
            }
            let (a, b) = (r.start.max(start), r.end.min(end));
            cut.push(Region {
                start: a,
                end: b,
                offset: r.offset + (a - r.start),
                ..*r
            });
            if r.start < a {
                keep.push(Region { end: a, ..*r });
            }
            if r.end > b {
                keep.push(Region {
                    start: b,
                    offset: r.offset + (b - r.start),
                    ..*r
                });
            }
        }
        if !cut.is_empty() {
            self.list = keep;
            self.publish();
        }
        cut
    }

    /// Brings every thread's granule table up to date.
    fn publish(&mut self) {
        for r in &self.list {
            for g in granules(r) {
                if !self.marked.contains(&g) {
                    self.marked.push(g);
                }
            }
        }
        COUNT.store(self.list.len(), Ordering::Relaxed);
        for ctx in ThreadContext::all() {
            self.fill(ctx.granules());
        }
    }

    /// To the alias, if the granules at a steered address hold nothing else.
    fn distance(&self, addr: u64) -> Option<Distance> {
        let steered = STEERED.iter().zip(&self.mixed);
        let range = steered.filter(|(s, mixed)| s.contains(addr) && !**mixed);
        range.map(|(s, _)| s.delta()).next()
    }

    fn fill(&self, table: &[AtomicU64; GRANULES]) {
        for &g in &self.marked {
            let start = (g as u64) << GRANULE_SHIFT;
            if !self.overlaps(start, start + (1 << GRANULE_SHIFT)) {
                table[g].store(0, Ordering::Relaxed);
            }
        }
        for r in &self.list {
            for g in granules(r) {
                let distance = self.distance(r.start).map_or(GRANULE_MIXED, Distance::get);
                table[g].store(distance, Ordering::Relaxed);
            }
        }
    }
}

/// The granules that a mapping touches.
fn granules(r: &Region) -> impl Iterator<Item = usize> + use<> {
    let (first, last) = (r.start >> GRANULE_SHIFT, (r.end - 1) >> GRANULE_SHIFT);
    (first as usize..=last as usize).take_while(|g| *g < GRANULES)
}

/// Gives a new thread its tables.
pub fn init_thread(ctx: &mut ThreadContext) {
    if !crate::mode().record {
        return;
    }
    ctx.context_cache = super::context_cache::allocate();
    REGIONS.lock().fill(ctx.as_peer().granules());
}

/// Where engine and kernel reach what the program has at `addr`.
pub fn reach(addr: ProgramAddr) -> Reach {
    if !any() {
        return Reach::untracked(addr.get());
    }
    match REGIONS.lock().find(addr.get()) {
        Some(r) => Reach::alias(r.delta.alias_of(addr)),
        None => Reach::untracked(addr.get()),
    }
}

/// As [`reach`], as a number: what emitted code and the kernel are given.
pub fn readable_alias(addr: u64) -> u64 {
    reach(ProgramAddr::new(addr)).get()
}

/// Whether what the program has at `addr` is tracked.
pub fn is_tracked(addr: u64) -> bool {
    any() && REGIONS.lock().find(addr).is_some()
}

/// Whether an alias lies in a range.
pub fn overlaps_alias(start: u64, end: u64) -> bool {
    let overlaps = |r: &Region| {
        let at = r.alias().get();
        start < at + (r.end - r.start) && at < end
    };
    any() && REGIONS.lock().list.iter().any(overlaps)
}

/// Protection of the program's own view for a protection that it asked for.
pub fn shown_prot(prot: u64) -> u64 {
    if crate::mode().loads {
        // None at all: on this architecture what can be executed can be read. The engine reads code
        // at the alias.
        0
    } else {
        prot & !sys::PROT_WRITE
    }
}

/// Whether the program's own protection lets it read or write at `addr`; `None` if nothing is
/// mapped there.
pub fn is_allowed(addr: u64, write: bool) -> Option<bool> {
    if let Some(r) = REGIONS.lock().find(addr) {
        let wanted = if write {
            sys::PROT_WRITE
        } else {
            sys::PROT_READ
        };
        return Some(r.prot & wanted != 0);
    }
    let maps = crate::maps::read();
    let there = maps.iter().find(|m| m.start <= addr && addr < m.end)?;
    Some(if write { there.write } else { there.read })
}

/// What keeps others out of the table.
pub struct Lock {
    _held: crate::sync::Guard<'static, Regions>,
}

/// Keeps others out: for a fork.
pub fn lock() -> Lock {
    Lock {
        _held: REGIONS.lock(),
    }
}

/// Maps the alias of a range that is mapped already, whatever it is mapped from. 0 or an error.
pub fn duplicate(start: u64, len: u64, alias: AliasAddr) -> i64 {
    // SAFETY: an old size of 0 duplicates a shared mapping; the new place is ours.
    unsafe {
        sc!(
            nr::MREMAP,
            start,
            0,
            len,
            sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED,
            alias.get()
        )
    }
}
