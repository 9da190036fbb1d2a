//! What crashes of a recorded run leave, as plain data: for those who go on from there.
//!
//! ```text
//!  record_run ─▶ Run ─▶ images(&run, wanted) ─▶ CrashImage, CrashImage, …   each content once
//!                  └──▶ image(&run, at, subset) ─▶ the same one again
//! ```
//! A [`CrashImage`] is one memory, with one state of names and sizes, that the model allows after a
//! power failure at one [`Location`] of the run. A location is a failure point of the recording
//! (`recording.rs` says where those are: the moments at which a crash may leave most, each with one
//! state of names and sizes), or a moment before it. Between two failure points crash states only
//! become more, so that whatever a crash at such a moment leaves is also possible at the next
//! point; what it adds is a sample of its own: a run that was cut off there, instead of one that
//! has lost stores here and there.
//!
//! **Guarantee.** No image is illegal: a property test compares them with the model's brute force,
//! byte by byte. An image is a function of the run, the location and the subset alone. **Not
//! promised** is that all legal states are among those that [`images`] gives: that is what an
//! exploration is for.
//!
//! Deviations: the domain HOPS, in which lines depend on each other, is not among those that can be
//! recorded for this. What the recording does not follow ([`Run::unfollowed`]) is not part of an
//! image.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use brownout_model::{Cut, LineBytes, Moment, Survivors, Unit, keys};
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::content::digest;
use crate::files::{each_block, read_line};
use crate::filing::path_of;
use crate::line::{LINE, LineKey};
use crate::recording::{Did, Recording, TrackedFile};
use crate::run::Run;
use crate::view::{Entry, Image, View};

pub use crate::content::FileContent;

/// Where in a run the power fails. It means the same in every recording of the same run
/// ([`Run::name`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// Number of the failure point. Those of one ordering point follow each other, and differ in
    /// names and sizes of files.
    pub point: u32,
    /// An earlier moment, since the ordering point before: of what was stored after so many steps
    /// of the run, nothing has survived. Names and sizes are still those of the point. `None`: at
    /// the point itself.
    pub moment: Option<u64>,
}

impl Location {
    /// At a failure point itself.
    pub fn point(point: u32) -> Location {
        Location {
            point,
            moment: None,
        }
    }
}

/// Which of the stores that may be lost have survived.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subset {
    /// None: only what is certain is there.
    Certain,
    /// All of them.
    Everything,
    /// Some, as the number decides.
    Random(u64),
    /// These: unit, how many of its ordered stores, which of its unordered ones. Of units that are
    /// not named, everything. It is how [`OneCrash`](crate::OneCrash) has it.
    Chosen(Vec<(u64, usize, Vec<bool>)>),
}

/// What a crash has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashImage {
    /// Where the power has failed.
    pub at: Location,
    /// What has survived.
    pub subset: Subset,
    /// Every name that is not as it was before the run, sorted; a folder comes before what is in
    /// it.
    pub files: Vec<(PathBuf, FileContent)>,
}

/// What [`images`] is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// At which ordering points.
    pub points: Points,
    /// So many images at most for each. Unless they are drawn, the first two are everything and
    /// only what is certain. Default: 4.
    pub per_point: usize,
    /// Decides what is left to chance. Default: 0.
    pub seed: u64,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            points: Points::All,
            per_point: 4,
            seed: 0,
        }
    }
}

/// At which ordering points. There is one before each event that makes something durable, and one
/// at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Points {
    /// Each.
    All,
    /// So many; which ones says the seed. Half of them are one of each of as many stretches of the
    /// run, the others are of code that comes to few of them. What is tried there is drawn, too:
    /// with other seeds all points and all kinds of crashes have their turn, where
    /// [`All`](Self::All) begins with everything and what is certain at each.
    Drawn(usize),
}

/// What crashes of the run leave: at the ordering points and at random moments between them,
/// everything, only what is certain, and random legal subsets. No two are equal. They come in the
/// order of the run, and are made one by one.
pub fn images(run: &Run, wanted: Wanted) -> impl Iterator<Item = CrashImage> + use<'_> {
    let recording = run.recorded.as_ref().map(|recorded| &recorded.recording);
    recording
        .into_iter()
        .flat_map(move |recording| Images::new(recording, wanted))
}

/// What one crash of the run leaves. `None` if there is no such place in the run, or if that cannot
/// be left there.
pub fn image(run: &Run, at: Location, subset: &Subset) -> Option<CrashImage> {
    let recorded = run.recorded.as_ref()?;
    Maker::new(&recorded.recording).image(at, subset)
}

/// How many ordering points the run has.
pub fn ordering_points(run: &Run) -> usize {
    run.recorded
        .as_ref()
        .map_or(0, |recorded| places(&recorded.recording).len())
}

/// The failure points of each ordering point.
fn places(recording: &Recording) -> Vec<Range<u32>> {
    let mut places: Vec<Range<u32>> = Vec::new();
    for (number, point) in (0..).zip(&recording.points) {
        match places.last_mut() {
            Some(last) if recording.points[last.start as usize].place == point.place => {
                last.end = number + 1;
            }
            _ => places.push(number..number + 1),
        }
    }
    places
}

/// Numbers that a seed determines (Steele's splitmix64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64, at: Location) -> Dice {
        let mut dice = Dice(seed);
        for part in [
            u64::from(at.point),
            at.moment.map_or(0, |moment| moment + 1),
        ] {
            dice.0 = dice.bits() ^ part;
        }
        dice
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound.max(1) as u64) as usize
    }
}

/// How a random subset is drawn. If each unit were drawn alike, images of many units would all be
/// about half lost, and bugs need one store that is lost among many that are not, or the other way
/// round.
#[derive(Clone, Copy)]
enum Habit {
    /// Each unit has any of its contents.
    Any,
    /// Each has its newest or its oldest.
    Extremes,
    /// One in so many loses something.
    MostSurvive(usize),
    /// One in so many keeps something.
    MostAreLost(usize),
}

impl Habit {
    fn draw(dice: &mut Dice, units: usize) -> Habit {
        let few = [2, 4, units.max(1)][dice.below(3)];
        match dice.below(4) {
            0 => Habit::Any,
            1 => Habit::Extremes,
            2 => Habit::MostSurvive(few),
            _ => Habit::MostAreLost(few),
        }
    }

    fn survivors(self, dice: &mut Dice, cut: &Cut) -> Survivors {
        match self {
            Habit::Any => cut.pick(|bound| dice.below(bound)),
            Habit::Extremes if dice.below(2) == 0 => cut.newest(),
            Habit::Extremes => cut.oldest(),
            Habit::MostSurvive(few) if dice.below(few) > 0 => cut.newest(),
            Habit::MostAreLost(few) if dice.below(few) > 0 => cut.oldest(),
            Habit::MostSurvive(_) | Habit::MostAreLost(_) => cut.pick(|bound| dice.below(bound)),
        }
    }
}

/// What the bytes of a content are compared with.
enum Before {
    /// What the recording stands on: it was there before the run.
    Base,
    /// It has come about in the run.
    Nothing,
    /// This was there, and the recording stands on something else.
    Other(File),
}

/// A content of the run, and what it has begun with.
struct Begun {
    from: Option<PathBuf>,
    before: Before,
    mode: Option<u32>,
    /// Lines in which what the recording stands on is not what there was before the run.
    differ: Vec<LineKey>,
}

/// Makes images of one recording.
pub(crate) struct Maker<'r> {
    recording: &'r Recording,
    begun: BTreeMap<FileId, Begun>,
    /// Lines of each content that the run has stored to, sorted.
    lines: OnceCell<BTreeMap<FileId, Vec<LineKey>>>,
    /// What those were before the run.
    initial: OnceCell<FxHashMap<LineKey, LineBytes>>,
}

impl<'r> Maker<'r> {
    pub(crate) fn new(recording: &'r Recording) -> Maker<'r> {
        // A content that was renumbered has the same copy under both numbers.
        let names = recording.initial.names.iter();
        let found = names.filter_map(|(path, entry)| match entry {
            Entry::File(id) => Some((*id, path_of(path))),
            _ => None,
        });
        let mut named: BTreeMap<FileId, PathBuf> = BTreeMap::new();
        for (id, path) in found {
            named.entry(id).or_insert(path);
        }
        let of_copy = |file: &TrackedFile| {
            let is_same = |id: &&FileId| {
                let other = recording.files.get(id);
                other.is_some_and(|other| other.base == file.base)
            };
            let is_copied = !file.base.as_os_str().is_empty();
            named.keys().find(|id| is_copied && is_same(id)).copied()
        };
        let begun = recording.files.iter().map(|(id, file)| {
            let first = named.contains_key(id).then_some(*id);
            let from = first.or_else(|| of_copy(file));
            let from = from.and_then(|first| named.get(&first).cloned());
            (*id, Begun::of(*id, file, from))
        });
        Maker {
            recording,
            begun: begun.collect(),
            lines: OnceCell::new(),
            initial: OnceCell::new(),
        }
    }

    /// One image of the recorded run.
    pub(crate) fn image(&self, at: Location, subset: &Subset) -> Option<CrashImage> {
        let point = self.recording.points.get(at.point as usize)?;
        let view = View {
            timeline: self.recording.timeline.clone(),
            point: at.point,
        };
        let here = &self.recording.points[..at.point as usize];
        let previous = here.iter().rfind(|other| other.place != point.place);
        let begin = previous.map_or(0, |previous| previous.moment);
        // Before that, other things were certain.
        if at
            .moment
            .is_some_and(|moment| !(begin..=point.moment).contains(&moment))
        {
            return None;
        }
        let last = Moment(at.moment.unwrap_or(point.moment));
        let open = view.open().iter().filter_map(|unit| {
            let choices = view.choices(*unit)?;
            Some((*unit, choices.open_until(last)))
        });
        let survivors: BTreeMap<Unit, Survivors> = match subset {
            Subset::Certain => open.map(|(unit, cut)| (unit, cut.oldest())).collect(),
            Subset::Everything => open.map(|(unit, cut)| (unit, cut.newest())).collect(),
            Subset::Random(seed) => {
                let mut dice = Dice::new(*seed, at);
                let habit = Habit::draw(&mut dice, view.open().len());
                open.map(|(unit, cut)| (unit, habit.survivors(&mut dice, &cut)))
                    .collect()
            }
            Subset::Chosen(chosen) => {
                let mut survivors: BTreeMap<Unit, Survivors> = chosen
                    .iter()
                    .map(|(unit, ordered, unordered)| {
                        let ordered = *ordered;
                        let unordered = unordered.clone();
                        (Unit(*unit), Survivors { ordered, unordered })
                    })
                    .collect();
                let mut known = 0;
                for (unit, cut) in open {
                    known += usize::from(survivors.contains_key(&unit));
                    let chosen = survivors.entry(unit).or_insert_with(|| cut.newest());
                    if !cut.allows(chosen) {
                        return None;
                    }
                }
                if known < chosen.len() {
                    return None;
                }
                survivors
            }
        };
        let image = Image {
            view,
            survivors,
            files: point.files.clone(),
        };
        Some(CrashImage {
            at,
            subset: subset.clone(),
            files: self.files(&image),
        })
    }

    /// What differs from before the recorded run. The image may be of a crash of a recovery, too.
    pub(crate) fn files(&self, image: &Image) -> Vec<(PathBuf, FileContent)> {
        let own;
        let lines = match Arc::ptr_eq(&image.view.timeline, &self.recording.timeline) {
            true => self.lines.get_or_init(|| by_content(image)),
            false => {
                own = by_content(image);
                &own
            }
        };
        let mut files = Vec::new();
        let mut called: BTreeMap<FileId, PathBuf> = BTreeMap::new();
        for (path, entry) in &image.files.names {
            let name = path_of(path);
            let before = self.recording.initial.names.get(path);
            let content = match entry {
                Entry::File(id) => match called.get(id) {
                    Some(first) => FileContent::SameAs(first.clone()),
                    None => {
                        called.insert(*id, name.clone());
                        let lines = lines.get(id).map_or(&[][..], Vec::as_slice);
                        let content = self.content(image, *id, lines);
                        let is_as_before = before == Some(entry)
                            && image.files.get(id) == self.recording.initial.get(id)
                            && matches!(&content, FileContent::File { bytes, .. } if bytes.is_empty());
                        if is_as_before {
                            continue;
                        }
                        content
                    }
                },
                _ if before == Some(entry) => continue,
                Entry::Absent => FileContent::Absent,
                Entry::Folder => FileContent::Folder,
                Entry::Link(to) => FileContent::Link(path_of(to)),
            };
            files.push((name, content));
        }
        files
    }

    fn content(&self, image: &Image, id: FileId, stored: &[LineKey]) -> FileContent {
        let size = image.files.get(&id).map_or(0, |state| state.size);
        let begun = self.begun.get(&id);
        let mut bytes: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut compare = |line: LineKey| {
            let now = image.line(line);
            let before = self.before(line, begun);
            let fits = size.saturating_sub(line.offset()).min(LINE as u64) as usize;
            let differs = |at: &usize| now[*at] != before[*at];
            let Some(first) = (0..fits).find(differs) else {
                return;
            };
            let last = (first..fits).rfind(differs).unwrap_or(first);
            let (at, new) = (line.offset() + first as u64, &now[first..=last]);
            match bytes.last_mut() {
                Some((begin, stretch)) if *begin + stretch.len() as u64 == at => {
                    stretch.extend_from_slice(new);
                }
                _ => bytes.push((at, new.to_vec())),
            }
        };
        match begun.map_or(&[][..], |begun| &begun.differ) {
            [] => stored.iter().for_each(|line| compare(*line)),
            differ => {
                let mut all: Vec<LineKey> = stored.iter().chain(differ).copied().collect();
                all.sort_unstable();
                all.dedup();
                all.into_iter().for_each(compare);
            }
        }
        FileContent::File {
            size,
            from: begun.and_then(|begun| begun.from.clone()),
            bytes,
            mode: begun.and_then(|begun| begun.mode),
        }
    }

    fn before(&self, line: LineKey, begun: Option<&Begun>) -> LineBytes {
        match begun.map(|begun| &begun.before) {
            None | Some(Before::Nothing) => [0; LINE],
            Some(Before::Other(file)) => read_line(file, line.offset()),
            Some(Before::Base) => {
                let timeline = &self.recording.timeline;
                let initial = self.initial.get_or_init(|| {
                    let lines = self.lines.get().into_iter().flat_map(BTreeMap::values);
                    let lines = lines.flatten().map(|line| (*line, timeline.before(*line)));
                    lines.collect()
                });
                let known = initial.get(&line).copied();
                known.unwrap_or_else(|| timeline.before(line))
            }
        }
    }
}

impl Begun {
    /// `from` is what it was called before the run, if it was there.
    fn of(id: FileId, file: &TrackedFile, from: Option<PathBuf>) -> Begun {
        let copy = match file.base.as_os_str().is_empty() {
            true => None,
            false => File::open(&file.base).ok(),
        };
        let original = file.original.as_ref().and_then(|at| File::open(at).ok());
        let before = match (&from, original) {
            (Some(_), Some(original)) => Before::Other(original),
            (Some(_), None) => Before::Base,
            (None, _) => Before::Nothing,
        };
        let mut differ = Vec::new();
        if let Some(copy) = &copy
            && !matches!(before, Before::Base)
        {
            let other = match &before {
                Before::Other(other) => Some(other),
                _ => None,
            };
            // A copy that cannot be read holds nothing for the recording, either.
            let _ = differing(copy, other, |offset| {
                differ.push(LineKey::of(keys::key(id, offset).0));
            });
        }
        differ.sort_unstable();
        differ.dedup();
        let mode = copy.and_then(|copy| copy.metadata().ok());
        Begun {
            from,
            before,
            mode: mode.map(|meta| meta.permissions().mode() & 0o7777),
            differ,
        }
    }
}

/// Calls `each` with the offset of every line in which two files differ; `None` is a file of zeros.
fn differing(one: &File, two: Option<&File>, mut each: impl FnMut(u64)) -> io::Result<()> {
    for (from, to) in [(Some(one), two), (two, Some(one))] {
        let Some(from) = from else { continue };
        each_block(from, |at, block| {
            for (offset, line) in (at..).step_by(LINE).zip(block.chunks(LINE)) {
                let other = to.map_or([0; LINE], |to| read_line(to, offset));
                if line != &other[..line.len()] {
                    each(offset);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Lines that may differ from before the run.
fn by_content(image: &Image) -> BTreeMap<FileId, Vec<LineKey>> {
    let mut lines: Vec<LineKey> = image.lines().into_iter().collect();
    lines.sort_unstable();
    let mut by_content: BTreeMap<FileId, Vec<LineKey>> = BTreeMap::new();
    for line in lines {
        by_content.entry(line.file()).or_default().push(line);
    }
    by_content
}

/// See [`images`].
struct Images<'r> {
    maker: Maker<'r>,
    /// Ordering points that are still to come.
    places: std::vec::IntoIter<Place>,
    place: Option<Place>,
    wanted: Wanted,
    seen: FxHashSet<[u8; 32]>,
}

/// An ordering point.
struct Place {
    points: Range<u32>,
    /// The one that has lost all names and sizes that can be lost.
    oldest: u32,
    /// Moments after stores, since the ordering point before and but for the last.
    between: Vec<u64>,
    /// It is up to chance what is tried first.
    is_drawn: bool,
    tried: usize,
    given: usize,
}

/// So many times as many images are tried as are wanted: some are equal to others.
const TRIES: usize = 3;

impl<'r> Images<'r> {
    fn new(recording: &'r Recording, wanted: Wanted) -> Images<'r> {
        let mut begin = 0;
        let all = places(recording).into_iter().map(|points| {
            let here = &recording.points[points.start as usize];
            let end = here.moment as usize;
            let steps = recording.steps.get(begin..end).unwrap_or_default();
            let moments = (begin as u64 + 1..).zip(steps);
            let mut between: Vec<u64> = moments
                .filter(|(_, step)| matches!(step.did, Did::Store(..)))
                .map(|(moment, _)| moment)
                .collect();
            between.pop();
            begin = end;
            let is_oldest = |point: &u32| recording.points[*point as usize].is_oldest;
            Place {
                oldest: points.clone().find(is_oldest).unwrap_or(points.start),
                points,
                between,
                is_drawn: matches!(wanted.points, Points::Drawn(_)),
                tried: 0,
                given: 0,
            }
        });
        let mut places: Vec<Place> = all.collect();
        match wanted.points {
            Points::All => {}
            Points::Drawn(most) => {
                let code = |place: &Place| {
                    let site = recording.points[place.points.start as usize].site;
                    site.map(|site| (site.pc, site.context))
                };
                let codes: Vec<_> = places.iter().map(code).collect();
                let chosen = drawn(&codes, most, &mut Dice(wanted.seed));
                let mut number = 0;
                places.retain(|_| {
                    number += 1;
                    chosen.contains(&(number - 1))
                });
            }
        }
        Images {
            maker: Maker::new(recording),
            places: places.into_iter(),
            place: None,
            wanted,
            seen: FxHashSet::default(),
        }
    }
}

/// So many of the places, each of which has its code: half of them one of each of as many stretches
/// of the run, the others of code that comes to few of them, one of each such code. A run inserts
/// many keys, and its table grows once: what a crash leaves there is to have its turn.
fn drawn<C: Eq + Hash>(codes: &[C], most: usize, dice: &mut Dice) -> FxHashSet<usize> {
    let all = codes.len();
    let most = most.min(all);
    let stretches = most.div_ceil(2);
    let stretch = |n: usize| n * all / stretches;
    let mut chosen: FxHashSet<usize> = (0..stretches)
        .map(|n| stretch(n) + dice.below(stretch(n + 1) - stretch(n)))
        .collect();
    let mut by_code: FxHashMap<&C, Vec<usize>> = FxHashMap::default();
    for (place, code) in codes.iter().enumerate() {
        by_code.entry(code).or_default().push(place);
    }
    // In an order that does not depend on how codes hash.
    let mut groups: Vec<Vec<usize>> = by_code.into_values().collect();
    groups.sort();
    let mut groups: Vec<(usize, u64, Vec<usize>)> = groups
        .into_iter()
        .map(|places| (places.len(), dice.bits(), places))
        .collect();
    groups.sort();
    while chosen.len() < most {
        for (_, _, places) in &mut groups {
            let left = places.len();
            if left > 0 && chosen.len() < most {
                chosen.insert(places.swap_remove(dice.below(left)));
            }
        }
    }
    chosen
}

impl Place {
    /// The crash that is tried next.
    fn next(&mut self, seed: u64) -> (Location, Subset) {
        let number = self.tried;
        self.tried += 1;
        let newest = self.points.end - 1;
        let mut dice = Dice::new(seed, Location::point(newest));
        dice.0 ^= number as u64;
        // Half of what is drawn are the two extremes.
        let kind = match self.is_drawn {
            true => dice.below(4),
            false => number,
        };
        match kind {
            0 => return (Location::point(newest), Subset::Everything),
            1 => return (Location::point(self.oldest), Subset::Certain),
            _ => {}
        }
        let states = self.points.len();
        let point = self.points.start + dice.below(states) as u32;
        let is_between = kind.is_multiple_of(2) && !self.between.is_empty();
        let moment = is_between.then(|| self.between[dice.below(self.between.len())]);
        let at = Location { point, moment };
        // What was there at that moment, unless that depends on when names have changed.
        match is_between && states == 1 && dice.below(2) == 0 {
            true => (at, Subset::Everything),
            false => (at, Subset::Random(dice.bits())),
        }
    }
}

impl Iterator for Images<'_> {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        loop {
            let place = match &mut self.place {
                Some(place)
                    if place.given < self.wanted.per_point
                        && place.tried < TRIES * self.wanted.per_point =>
                {
                    place
                }
                place => place.insert(self.places.next()?),
            };
            let (at, subset) = place.next(self.wanted.seed);
            let Some(image) = self.maker.image(at, &subset) else {
                continue;
            };
            if self.seen.insert(image.digest()) {
                place.given += 1;
                return Some(image);
            }
        }
    }
}

impl CrashImage {
    /// Equal for images that leave the same.
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.files)
    }
}

#[cfg(test)]
mod tests;
