//! Which torn contents of bulks are tried, and what the others count as.
//!
//! Guarantee: every torn content that is [deferred](Sampler::defer) is either taken to be tried or
//! counted as left out; of those left out, only what a recognised checksum covers that recovery has
//! read, where all that was tried ended alike, is counted by itself instead of as sampled. Nothing
//! is left out if everything is to be followed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brownout_model::{LINE_BYTES, LineMask, Unit};
use rustc_hash::{FxHashMap, FxHashSet};

use super::item::{Bulk, BulkClass, Item, Place};
use crate::checksum;
use crate::line::LineKey;
use crate::recording::Step;
use crate::trie::Read;
use crate::view::{Files, Image, View};

/// Torn contents of a bulk that wait to be tried, at one failure point. Of more, some are left out.
pub const TORN_MAX: usize = 256;
/// Places of a failure point at which a checksum is looked for. Each takes a few milliseconds.
const LOOKS_MAX: usize = 64;

/// A stretch of uncertain units is followed back so far.
const STRETCH_MAX: usize = 256;

/// Bounds for recoveries that read much of what is uncertain, to reject it by a checksum: every
/// word would double the states.
///
/// A stretch of adjacent uncertain units is explored exhaustively if its contents can be counted. A
/// larger one is a bulk: all newest and all oldest are followed at once, and what differs from that
/// in one place, then in two, and so on, as long as a budget of recoveries lasts. A recovery that
/// stops at the first thing that it does not like has few distinct ways however much it could read,
/// and is done within the budget; then nothing was left out. One that reads everything before it
/// decides is not: what is left is counted as sampled, and later failure points of its class get
/// less. A torn content that is tried is followed to its end: what else is uncertain behind it is
/// tried on the same budget, and may exceed it.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Follow everything.
    pub exhaustive: bool,
    /// Up to two to the power of this many contents are always tried.
    pub small_log2: f64,
    /// So many unordered stores in one stretch make it a bulk in any case: they come from a copy.
    pub few_unordered: usize,
    /// Recoveries for torn contents of a class at one failure point, if the budget was enough at
    /// all earlier ones, if it was not at one, ….
    pub budget: [u32; 3],
    /// The same where a checksum covers what is read, at the first failure point; then one at the
    /// next two, and whenever their number has doubled.
    pub summed: u32,
    /// Recoveries for torn contents of a class, at all failure points together.
    pub budget_in_all: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            exhaustive: false,
            small_log2: 8.0,
            few_unordered: 4,
            budget: [64, 8, 0],
            summed: 4,
            budget_in_all: 2_000,
        }
    }
}

/// What was spent on torn contents of a class.
#[derive(Clone, Debug, Default)]
struct Spent {
    /// Failure points at which the budget was not enough.
    exceeded: usize,
    in_all: u32,
    at: FxHashMap<Place, u32>,
    /// How torn contents end.
    outcomes: Outcomes,
    /// Where a checksum was recognised, and what was torn ended alike.
    believed: FxHashSet<Place>,
    /// How many recoveries may try torn contents that a checksum covers.
    allowed: FxHashMap<Place, u32>,
}

impl Spent {
    /// See [`Sampling::summed`]. The rarer, the more often it was right.
    fn allowed_at(&mut self, place: Place, first: u32, whole: &Outcomes) -> u32 {
        for (other, torn) in self.outcomes.iter().filter(|(other, _)| **other != place) {
            match are_alike(Some(torn), whole.get(other)) {
                true => self.believed.insert(*other),
                false => self.believed.remove(other),
            };
        }
        let so_far = self.believed.len();
        let allowed = match so_far {
            0 => first,
            _ => u32::from(so_far.is_power_of_two()),
        };
        *self.allowed.entry(place).or_insert(allowed)
    }
}

/// By failure point, how what was tried there ended.
type Outcomes = FxHashMap<Place, BTreeSet<u32>>;

/// Whether torn contents all ended alike, or as what is not torn does.
fn are_alike(torn: Option<&BTreeSet<u32>>, whole: Option<&BTreeSet<u32>>) -> bool {
    torn.is_none_or(|torn| torn.len() == 1 || whole.is_some_and(|whole| torn.is_subset(whole)))
}

/// Stretches that carry their own checksum, as they are if nothing is lost.
#[derive(Clone, Debug, Default)]
struct Sums {
    stretches: Vec<(u64, u64)>,
    /// From where one was looked for.
    looked: BTreeSet<u64>,
}

impl Sums {
    /// Whether a checksum covers a stretch.
    fn cover(&self, from: u64, to: u64) -> bool {
        let mut all = self.stretches.iter();
        all.any(|(start, end)| *start <= from && to <= *end)
    }
}

/// Torn contents of a bulk that wait to be tried.
#[derive(Default)]
struct Torn {
    /// By how torn they are, then in an order that spreads them over the bulk.
    items: BTreeMap<(u32, u64, u64), Item>,
    /// Those that had no room: how many, by what they tear.
    dropped: BTreeMap<Stretch, u64>,
}

impl Torn {
    fn count(&self) -> u64 {
        self.items.len() as u64 + self.dropped.values().sum::<u64>()
    }
}

/// First byte, and the one behind the last.
type Stretch = (u64, u64);

/// Bytes that a recovery reads, by line.
pub type Reads = FxHashMap<LineKey, LineMask>;

/// The bytes that a read sees, from the first to the last.
fn stretch_of(read: &Read) -> Stretch {
    let start = read.line.start();
    let end = LINE_BYTES - u64::from(read.mask.leading_zeros());
    (start + u64::from(read.mask.trailing_zeros()), start + end)
}

/// Torn contents that are not tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    pub count: u64,
    /// Items among them that have waited until now. The others have had no room.
    pub waited: usize,
    /// A checksum gives them away, so they are not sampled.
    pub is_summed: bool,
}

/// See the module's header.
#[derive(Default)]
pub struct Sampler {
    sampling: Sampling,
    torn: BTreeMap<(Place, BulkClass), Torn>,
    deferred: u64,
    spent: FxHashMap<BulkClass, Spent>,
    sums: FxHashMap<Place, Sums>,
    /// How what is not torn ends.
    whole: Outcomes,
    sampled: FxHashSet<BulkClass>,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Sampler {
        Sampler {
            sampling,
            ..Sampler::default()
        }
    }

    /// Failure points and classes with torn contents that wait.
    pub fn waiting(&self) -> usize {
        self.torn.len()
    }

    /// What waits is not needed any more.
    pub fn clear(&mut self) {
        self.torn.clear();
    }

    /// Classes of which not all was tried.
    pub fn sampled_groups(&self) -> usize {
        self.sampled.len()
    }

    /// A recovery is run on the budget of a class.
    pub fn spend(&mut self, class: BulkClass, place: Place) {
        let spent = self.spent.entry(class).or_default();
        spent.in_all += 1;
        *spent.at.entry(place).or_default() += 1;
    }

    /// How something ended that was paid for by a class, or that is not torn.
    pub fn ended(&mut self, payer: Option<BulkClass>, place: Place, outcome: u32) {
        let outcomes = match payer {
            Some(class) => &mut self.spent.entry(class).or_default().outcomes,
            None => &mut self.whole,
        };
        outcomes.entry(place).or_default().insert(outcome);
    }

    /// The bulk that a read belongs to; `None` if all contents of its stretch can be tried.
    /// `steps` are those of the run that the item belongs to.
    pub fn bulk_of(
        &self,
        steps: &[Step],
        view: &View,
        item: &Item,
        read: &Read,
        unit: Unit,
    ) -> Option<Bulk> {
        if self.sampling.exhaustive {
            return None;
        }
        let open = view.open();
        let at = open.binary_search(&unit).ok()?;
        let is_bulky = |(log2, unordered): (f64, usize)| {
            log2 > self.sampling.small_log2 || unordered > self.sampling.few_unordered
        };
        let weigh = |unit: &Unit, (log2, unordered): (f64, usize)| match view.choices(*unit) {
            Some(choices) => {
                let open = choices.open();
                (
                    log2 + open.choices_log2(),
                    unordered + open.unordered_open(),
                )
            }
            None => (log2, unordered),
        };
        let mut sum = weigh(&unit, (0.0, 0));
        let (mut before, mut after) = (at, at);
        while before > 0 && open[before - 1].0 + 1 == open[before].0 && at - before < STRETCH_MAX {
            before -= 1;
            sum = weigh(&open[before], sum);
        }
        while after + 1 < open.len() && open[after].0 + 1 == open[after + 1].0 && !is_bulky(sum) {
            after += 1;
            sum = weigh(&open[after], sum);
        }
        if !is_bulky(sum) {
            return None;
        }
        let first = open[before];
        if let Some(bulk) = item.bulks.get(&first) {
            return Some(*bulk);
        }
        let store = view
            .choices(unit)
            .and_then(|choices| choices.writes().first())
            .and_then(|write| steps.get(write.moment.0 as usize - 1));
        Some(Bulk {
            class: BulkClass {
                load: read.pc,
                store: store.map_or(0, |step| step.site.pc.0),
                summed: false,
            },
            first,
            choices: 0,
            newest: 0,
            oldest: 0,
        })
    }

    /// Keeps a torn content for later. Returns whether one that was kept, or this, has no room any
    /// more.
    pub fn defer(&mut self, mut item: Item, class: BulkClass, read: &Read) -> bool {
        let place = (item.layer, item.point);
        let how = item.bulks.values().map(|bulk| bulk.torn()).sum();
        item.payer = Some(class);
        item.torn_at = Some(*read);
        self.deferred += 1;
        let spread = (read.line.0 ^ self.deferred << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let torn = self.torn.entry((place, class)).or_default();
        torn.items.insert((how, spread, self.deferred), item);
        let is_full = torn.items.len() > TORN_MAX;
        if is_full {
            // The last that is left may be needed to know what this is about.
            let dropped = torn.items.pop_last().and_then(|(_, item)| item.torn_at);
            let stretch = dropped.as_ref().map_or((0, u64::MAX), stretch_of);
            *torn.dropped.entry(stretch).or_default() += 1;
        }
        is_full
    }

    /// Torn contents that are not tried. If what they tear carries its own checksum, and those that
    /// were tried all ended alike, or as what is not torn does (other uncertain data may make a
    /// difference), they do as well; else they are unknown.
    fn leave_out(&mut self, place: Place, class: BulkClass, torn: Torn) -> LeftOut {
        let count = torn.count();
        let spent = self.spent.entry(class).or_default();
        let is_alike = are_alike(spent.outcomes.get(&place), self.whole.get(&place));
        if class.summed && is_alike {
            spent.believed.insert(place);
        } else {
            spent.exceeded += 1;
            self.sampled.insert(class);
        }
        LeftOut {
            count,
            waited: torn.items.len(),
            is_summed: class.summed && is_alike,
        }
    }

    /// Takes those out whose torn part is covered by a checksum that recovery reads. What it reads
    /// behind that, as a log's end, is not.
    fn take_summed(
        &mut self,
        place: Place,
        torn: &mut Torn,
        newest: impl Fn() -> (Image, Reads),
    ) -> Torn {
        let reads = torn.items.values().filter_map(|item| item.torn_at);
        let reads = reads.map(|read| stretch_of(&read));
        let reads: BTreeSet<Stretch> = reads.chain(torn.dropped.keys().copied()).collect();
        let mut sums = self.sums.remove(&place).unwrap_or_default();
        let mut image = None;
        for (from, to) in &reads {
            if sums.looked.len() >= LOOKS_MAX
                || sums.cover(*from, *to)
                || !sums.looked.insert(*from)
            {
                continue;
            }
            let (image, known) = image.get_or_insert_with(&newest);
            sums.stretches.extend(summed(image, known, *from, &reads));
        }
        let is_summed = |item: &Item| {
            let read = item.torn_at.as_ref().map(stretch_of);
            read.is_some_and(|(from, to)| sums.cover(from, to))
        };
        let (summed, other): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut torn.items)
            .into_iter()
            .partition(|(_, item)| is_summed(item));
        torn.items = other;
        let mut of_summed = Torn {
            items: summed,
            dropped: BTreeMap::new(),
        };
        if !of_summed.items.is_empty() {
            // Else there is none left to be tried in their place.
            (of_summed.dropped, torn.dropped) = std::mem::take(&mut torn.dropped)
                .into_iter()
                .partition(|((from, to), _)| sums.cover(*from, *to));
        }
        self.sums.insert(place, sums);
        of_summed
    }

    /// Torn contents of a failure point of which all else is known: they are worth trying in
    /// addition. `left` are the items of each failure point that are not settled.
    pub fn ready_to_tear(
        &self,
        left: &FxHashMap<Place, usize>,
        is_idle: bool,
    ) -> Option<(Place, BulkClass)> {
        let mut waiting: BTreeMap<Place, (BulkClass, usize)> = BTreeMap::new();
        for ((place, class), torn) in &self.torn {
            waiting.entry(*place).or_insert((*class, 0)).1 += torn.items.len();
        }
        let is_ready = |place: &Place, count: usize| left.get(place) == Some(&count);
        waiting
            .iter()
            .find(|(place, (_, count))| is_ready(place, *count))
            // Nothing else is under way, so all that can be known is.
            .or_else(|| waiting.first_key_value().filter(|_| is_idle))
            .map(|(place, (class, _))| (*place, *class))
    }

    /// The least torn contents of one bulk, as far as the budget allows; what it does not allow is
    /// left out. `newest` is what is there if nothing is lost, and what recovery reads of that.
    pub fn take_torn(
        &mut self,
        (place, class): (Place, BulkClass),
        newest: impl Fn() -> (Image, Reads),
    ) -> (Vec<Item>, LeftOut) {
        let mut taken = Vec::new();
        let Some(mut torn) = self.torn.remove(&(place, class)) else {
            return (taken, LeftOut::default());
        };
        if !class.summed {
            let summed = self.take_summed(place, &mut torn, newest);
            if !summed.items.is_empty() {
                // Whoever verifies a checksum does not care which of the copy's instructions has
                // stored what.
                let class = BulkClass {
                    summed: true,
                    store: 0,
                    ..class
                };
                let waiting = self.torn.entry((place, class)).or_default();
                for (stretch, count) in summed.dropped {
                    *waiting.dropped.entry(stretch).or_default() += count;
                }
                for (key, mut item) in summed.items {
                    item.payer = Some(class);
                    waiting.items.insert(key, item);
                }
            }
            if torn.count() == 0 {
                return (taken, LeftOut::default());
            }
        }
        let spent = self.spent.entry(class).or_default();
        let budget = match class.summed {
            true => Some(spent.allowed_at(place, self.sampling.summed, &self.whole)),
            false => self.sampling.budget.get(spent.exceeded).copied(),
        };
        let here = budget
            .unwrap_or(0)
            .saturating_sub(spent.at.get(&place).copied().unwrap_or(0));
        let left = here.min(self.sampling.budget_in_all.saturating_sub(spent.in_all));
        if left == 0 {
            return (taken, self.leave_out(place, class, torn));
        }
        let Some(((least, ..), _)) = torn.items.first_key_value() else {
            return (taken, self.leave_out(place, class, torn));
        };
        let least = *least;
        for _ in 0..left {
            match torn.items.first_entry() {
                Some(entry) if entry.key().0 == least => taken.push(entry.remove()),
                _ => break,
            }
        }
        if !torn.items.is_empty() {
            self.torn.insert((place, class), torn);
        } else if !torn.dropped.is_empty() {
            return (taken, self.leave_out(place, class, torn));
        }
        (taken, LeftOut::default())
    }
}

/// The image on which an item is run. What it has not read yet of a bulk is as the walk goes on to
/// choose: the newest, or the oldest if it has seen that more often. On the newest image, a content
/// that is mostly the oldest would take a recovery for each of its words.
pub fn image(item: &Item, view: &View, files: &Arc<Files>) -> Image {
    let mut image = Image::newest(view, &item.narrowed, files);
    let open = view.open();
    for bulk in item.bulks.values().filter(|bulk| bulk.is_mostly_oldest()) {
        let Ok(first) = open.binary_search(&bulk.first) else {
            continue;
        };
        let stretch = open[first..].iter().zip(bulk.first.0..);
        let stretch = stretch.take_while(|(unit, next)| unit.0 == *next);
        for (unit, _) in stretch.take(STRETCH_MAX + 1) {
            let oldest = match item.narrowed.get(unit) {
                Some(cuts) => cuts.iter().min().map(|cut| cut.oldest()),
                None => view.choices(*unit).map(|choices| choices.open().oldest()),
            };
            image.survivors.extend(oldest.map(|oldest| (*unit, oldest)));
        }
    }
    image
}

/// The stretch with a checksum that covers what is at `from`. `known` is what recovery reads of the
/// image, `reads` are reads of something uncertain.
fn summed(image: &Image, known: &Reads, from: u64, reads: &BTreeSet<Stretch>) -> Option<Stretch> {
    let file = LineKey::of(from).file();
    let begin = from.saturating_sub(checksum::BEFORE as u64) / LINE_BYTES * LINE_BYTES;
    let lines = (begin..from + checksum::BEHIND as u64).step_by(LINE_BYTES as usize);
    // Before the beginning and behind the end of a file are other files' keys.
    let lines = lines.map(LineKey::of).filter(|line| line.file() == file);
    let mut start = None;
    let mut bytes = Vec::new();
    for line in lines {
        start.get_or_insert(line.start());
        bytes.extend_from_slice(&image.line(line));
    }
    let start = start?;
    let all = start..start + bytes.len() as u64;
    let ends = reads
        .iter()
        .map(|(_, to)| *to)
        .filter(|to| all.contains(to));
    let ends: BTreeSet<usize> = ends.map(|to| (to - start) as usize).collect();
    let ends: Vec<usize> = ends.into_iter().collect();
    let found = checksum::stretch(&bytes, (from - start) as usize, &ends)?;
    let (at, size) = found.sum;
    let sum = LineKey::of(start + at as u64);
    let offset = (start + at as u64 - sum.start()) as u32;
    let mask = ((1 << size) - 1) << offset;
    // Who has not looked at the sum has rejected nothing by it.
    let is_read = known.get(&sum).is_some_and(|read| read & mask == mask);
    is_read.then_some((start + found.start as u64, start + found.end as u64))
}
