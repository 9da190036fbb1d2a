//! What persistent memory may hold at a failure point, and one image chosen from that.
//!
//! A [`Timeline`] keeps, for every unit that a run stored to, what it may hold at each failure
//! point: a new version where that changed. A [`View`] is the timeline at one point. [`Narrowed`]
//! says how far the reads of a recovery have narrowed a view; an [`Image`] is one memory of those
//! left. A timeline stands on the files as they were before its run, or on an image, if the run was
//! itself a recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use brownout_model::{Choices, Cut, LineBytes, LineMask, Survivors, Unit, masked};
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::before::Before;
use crate::line::{LINE, LineKey};
use crate::unit::{bytes_of, unit_of};

/// What a file is apart from its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileState {
    /// It is there.
    pub exists: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Entry {
    /// Nothing is there.
    Absent,
    /// A regular file with this content.
    File(#[serde(with = "number")] FileId),
    Folder,
    /// A symbolic link.
    Link(Vec<u8>),
}

mod number {
    use super::FileId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(file: &FileId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(file.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FileId, D::Error> {
        u32::deserialize(from).map(FileId)
    }
}

/// All files that a crash may leave, apart from their bytes: which there are, how long they are,
/// what they are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Files {
    /// By content: a file that was cut short has had several, of which at most one is there.
    pub states: BTreeMap<FileId, FileState>,
    /// Every name that the run has touched. None, if nobody looks at names.
    pub names: BTreeMap<Vec<u8>, Entry>,
    /// Numbers of contents that a run on these files may give: of persistent memory, and of
    /// ordinary files.
    pub next: (u32, u32),
}

impl From<BTreeMap<FileId, FileState>> for Files {
    fn from(states: BTreeMap<FileId, FileState>) -> Files {
        Files {
            states,
            ..Files::default()
        }
    }
}

impl std::ops::Deref for Files {
    type Target = BTreeMap<FileId, FileState>;

    fn deref(&self) -> &BTreeMap<FileId, FileState> {
        &self.states
    }
}

/// Content before anything was stored.
pub enum Base {
    /// Files as they were before the recorded run.
    Files(BTreeMap<FileId, Before>),
    /// What a crash left, on which a recovery ran.
    Crashed(Image),
}

impl Base {
    fn line(&self, line: LineKey) -> LineBytes {
        match self {
            Base::Files(files) => files
                .get(&line.file())
                .map_or([0; LINE], |file| file.line(line.offset())),
            Base::Crashed(image) => image.line(line),
        }
    }
}

/// All versions of all units of a run.
pub struct Timeline {
    base: Base,
    unit_bytes: u64,
    /// Versions with the first failure point at which each holds, in order.
    units: FxHashMap<Unit, Vec<(u32, Arc<Choices>)>>,
    /// Units that are open at each failure point.
    open: Vec<Arc<[Unit]>>,
}

impl Timeline {
    /// Bytes of a unit of persistent memory.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    pub fn new(base: Base, unit_bytes: u64) -> Timeline {
        Timeline {
            base,
            unit_bytes,
            units: FxHashMap::default(),
            open: Vec::new(),
        }
    }

    pub fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    /// The content of a line before the run.
    pub fn before(&self, line: LineKey) -> LineBytes {
        self.base.line(line)
    }

    /// The content of a unit before the run.
    pub fn initial(&self, unit: Unit) -> Vec<u8> {
        let bytes = self.bytes_of(unit);
        let start = LineKey::of(unit.0 * bytes).0;
        let lines = start..start + bytes / LINE as u64;
        lines
            .flat_map(|line| self.base.line(LineKey(line)))
            .collect()
    }

    /// Ends the stretch before the next failure point, in which these units have changed.
    pub fn close(&mut self, changed: Vec<Choices>) {
        let point = self.open.len() as u32;
        if changed.is_empty()
            && let Some(last) = self.open.last()
        {
            self.open.push(last.clone());
            return;
        }
        let mut open: Vec<Unit> = match self.open.last() {
            Some(last) => last.to_vec(),
            None => Vec::new(),
        };
        for choices in changed {
            let unit = choices.unit();
            let at = open.binary_search(&unit);
            match (at, choices.is_certain()) {
                (Ok(at), true) => drop(open.remove(at)),
                (Err(at), false) => open.insert(at, unit),
                _ => {}
            }
            let versions = self.units.entry(unit).or_default();
            versions.push((point, Arc::new(choices)));
        }
        self.open.push(open.into());
    }

    /// Units that the run stored to.
    pub fn touched(&self) -> impl Iterator<Item = Unit> {
        self.units.keys().copied()
    }

    fn version(&self, unit: Unit, point: u32) -> Option<&Arc<Choices>> {
        let versions = self.units.get(&unit)?;
        let after = versions.partition_point(|(first, _)| *first <= point);
        Some(&versions[after.checked_sub(1)?].1)
    }

    fn unit_of(&self, line: LineKey) -> Unit {
        unit_of(line.start(), self.unit_bytes)
    }

    fn bytes_of(&self, unit: Unit) -> u64 {
        bytes_of(unit, self.unit_bytes)
    }
}

/// A timeline at one failure point.
#[derive(Clone)]
pub struct View {
    pub timeline: Arc<Timeline>,
    pub point: u32,
}

/// How far reads have narrowed a view: units not named are as open as ever.
pub type Narrowed = BTreeMap<Unit, Vec<Cut>>;

/// What a read may see.
pub enum Seen {
    /// This, whatever survived.
    Certain(LineBytes),
    /// One of these, oldest first; and what is then left.
    Open(Unit, Vec<(LineBytes, Vec<Cut>)>),
}

impl View {
    /// The units whose content is open.
    pub fn open(&self) -> &[Unit] {
        &self.timeline.open[self.point as usize]
    }

    /// What a unit may hold, if it was ever stored to.
    pub fn choices(&self, unit: Unit) -> Option<&Arc<Choices>> {
        self.timeline.version(unit, self.point)
    }

    /// What the unit of a line may hold.
    pub fn choices_of(&self, line: LineKey) -> Option<&Arc<Choices>> {
        self.choices(self.timeline.unit_of(line))
    }

    /// Whether a line certainly holds the same at another failure point of the same run; a quick
    /// answer, which may be no where it does.
    pub fn holds_as(&self, other: &View, line: LineKey) -> bool {
        let unit = self.timeline.unit_of(line);
        Arc::ptr_eq(&self.timeline, &other.timeline)
            && match (self.choices(unit), other.choices(unit)) {
                (None, None) => true,
                (Some(one), Some(another)) => one.is_certain() && Arc::ptr_eq(one, another),
                _ => false,
            }
    }

    /// Base-2 logarithm of the number of states that eager enumeration would try.
    pub fn states_log2(&self) -> f64 {
        let choices = self.open().iter().filter_map(|unit| self.choices(*unit));
        choices.map(|choices| choices.open().choices_log2()).sum()
    }

    /// What a read of the masked bytes of a line sees, of what `narrowed` leaves.
    pub fn read(&self, line: LineKey, mask: LineMask, narrowed: &Narrowed) -> Seen {
        let unit = self.timeline.unit_of(line);
        let Some(choices) = self.choices(unit) else {
            return Seen::Certain(masked(&self.timeline.base.line(line), mask));
        };
        let offset = line.start() % self.timeline.bytes_of(unit);
        if let Some(bytes) = choices.settled(offset, mask) {
            return Seen::Certain(bytes);
        }
        let open;
        let cuts = match narrowed.get(&unit) {
            Some(cuts) => cuts,
            None => {
                open = vec![choices.open()];
                &open
            }
        };
        let mut options = choices.read(cuts, offset, mask);
        match options.len() {
            1 => Seen::Certain(options.remove(0).0),
            _ => Seen::Open(unit, options),
        }
    }
}

/// One memory that a crash may leave.
#[derive(Clone)]
pub struct Image {
    pub view: View,
    /// What survived of the open units; of those not named, everything.
    pub survivors: BTreeMap<Unit, Survivors>,
    pub files: Arc<Files>,
}

impl Image {
    /// How many crashes it comes after: 1 if the recorded run was cut short, 2 if its recovery was,
    /// too.
    pub fn crashes(&self) -> u32 {
        1 + match &self.view.timeline.base {
            Base::Files(_) => 0,
            Base::Crashed(before) => before.crashes(),
        }
    }

    /// The newest image of what is left.
    pub fn newest(view: &View, narrowed: &Narrowed, files: &Arc<Files>) -> Image {
        let survivors = narrowed
            .iter()
            .filter_map(|(unit, cuts)| Some((*unit, cuts.iter().max()?.newest())))
            .collect();
        Image {
            view: view.clone(),
            survivors,
            files: files.clone(),
        }
    }

    /// Content of a line.
    pub fn line(&self, line: LineKey) -> LineBytes {
        let timeline = &self.view.timeline;
        let unit = timeline.unit_of(line);
        match self.view.choices(unit) {
            None => timeline.base.line(line),
            Some(choices) => {
                let content = match self.survivors.get(&unit) {
                    Some(survivors) => choices.content(survivors),
                    None => choices.content(&choices.newest()),
                };
                let offset = (line.start() % timeline.bytes_of(unit)) as usize;
                let mut bytes = [0; LINE];
                bytes.copy_from_slice(&content[offset..offset + LINE]);
                bytes
            }
        }
    }

    /// Every line that may differ from the files before the recorded run.
    pub fn lines(&self) -> FxHashSet<LineKey> {
        let timeline = &self.view.timeline;
        let mut lines = match &timeline.base {
            Base::Files(_) => FxHashSet::default(),
            Base::Crashed(image) => image.lines(),
        };
        for unit in timeline.touched() {
            let bytes = timeline.bytes_of(unit);
            let first = LineKey::of(unit.0 * bytes).0;
            lines.extend((first..first + bytes / LINE as u64).map(LineKey));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;

    use brownout_model::{
        Config, Domain, Event, FlushKind, History, Key, Line, Op, Thread, Write, keys,
    };
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const LINES: u64 = 6;
    const FILES: u32 = 2;
    /// The files end in the middle of a line, before the last.
    const SIZE: usize = 4 * LINE + 10;

    fn line_at(file: u32, line: u64) -> LineKey {
        LineKey::of(keys::key(FileId(file + 1), line * LINE as u64).0)
    }

    /// What the files hold before the run.
    fn before(line: LineKey) -> LineBytes {
        let mut bytes = [0; LINE];
        for (offset, byte) in (line.offset()..).zip(&mut bytes) {
            if offset < SIZE as u64 {
                *byte = 0x80 + (offset % 100) as u8 + line.file().0 as u8;
            }
        }
        bytes
    }

    fn base() -> Base {
        let files = (0..FILES).map(|file| {
            let mut handle = tempfile::tempfile().expect("a file");
            let bytes: Vec<u8> = (0..LINES)
                .flat_map(|line| before(line_at(file, line)))
                .collect();
            handle.write_all(&bytes[..SIZE]).expect("a write");
            (FileId(file + 1), Before::new(handle))
        });
        Base::Files(files.collect())
    }

    #[derive(Clone, Debug)]
    enum Step {
        Store(u32, u64, u64, u8, bool),
        Flush(u32, u64),
        Fence,
        Sync(u32, u64),
        /// A failure point.
        Point,
    }

    fn step() -> impl Strategy<Value = Step> {
        let line = || (0..FILES, 0..LINES);
        prop_oneof![
            6 => (line(), 0u64..8, 1u8..9, any::<bool>())
                .prop_map(|((file, line), word, value, nt)| Step::Store(file, line, word * 8, value, nt)),
            3 => line().prop_map(|(file, line)| Step::Flush(file, line)),
            2 => Just(Step::Fence),
            1 => line().prop_map(|(file, line)| Step::Sync(file, line)),
            3 => Just(Step::Point),
        ]
    }

    fn config() -> impl Strategy<Value = Config> {
        prop_oneof![3 => Just(Domain::X86), 1 => Just(Domain::Page), 1 => Just(Domain::Eadr)]
            .prop_map(|domain| Config {
                domain,
                ..Config::default()
            })
    }

    /// The timeline of those steps, and the history as it was at each failure point.
    fn timeline(config: Config, base: Base, steps: &[Step]) -> (Arc<Timeline>, Vec<History>) {
        let unit_bytes = config.domain.rules().unit_bytes;
        let mut timeline = Timeline::new(base, unit_bytes);
        let mut history = History::new(config);
        let mut initialised = BTreeSet::new();
        let mut points = Vec::new();
        let mut changed = BTreeSet::new();
        for step in steps.iter().chain([&Step::Point]) {
            let op = match step {
                Step::Store(file, line, offset, value, nt) => {
                    let at = line_at(*file, *line).start() + offset;
                    let unit = Unit(at / unit_bytes);
                    if initialised.insert(unit) {
                        history.set_initial(Key(unit.0 * unit_bytes), &timeline.initial(unit));
                    }
                    let write = Write::new(Key(at), vec![*value; 8]);
                    match nt {
                        true => Op::NtStore(write),
                        false => Op::Store(write),
                    }
                }
                Step::Flush(file, line) => Op::Flush {
                    kind: FlushKind::Clwb,
                    line: Line(line_at(*file, *line).0),
                },
                Step::Fence => Op::Sfence,
                Step::Sync(file, line) => Op::Msync(Line(line_at(*file, *line).0).range()),
                Step::Point => {
                    changed.extend(history.take_changed());
                    let units = std::mem::take(&mut changed).into_iter();
                    timeline.close(units.filter_map(|unit| history.choices(unit)).collect());
                    points.push(history.clone());
                    continue;
                }
            };
            history
                .apply(&Event::new(Thread(1), op))
                .expect("values are there");
            if points.len() % 2 == 0 {
                changed.extend(history.take_changed());
            }
        }
        (Arc::new(timeline), points)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Every version of every unit: what the history knew at that point, long after it has gone
        /// on.
        #[test]
        fn a_view_is_the_history_as_it_was(
            config in config(),
            steps in prop::collection::vec(step(), 0..40),
            reads in prop::collection::vec((0..FILES, 0..LINES, any::<u64>(), any::<Index>()), 1..12),
        ) {
            let unit_bytes = config.domain.rules().unit_bytes;
            let (timeline, points) = timeline(config, base(), &steps);
            let files = Arc::new(Files::default());
            for (point, history) in points.iter().enumerate() {
                let view = View { timeline: timeline.clone(), point: point as u32 };
                let open = timeline.touched().filter(|unit| history.choices(*unit).is_some_and(|c| !c.is_certain()));
                prop_assert_eq!(view.open(), open.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
                let states = history.crash().states_log2();
                prop_assert!((view.states_log2() - states).abs() < 1e-9);
                let mut narrowed = Narrowed::new();
                let mut seen = Vec::new();
                for (file, line, mask, which) in &reads {
                    let line = line_at(*file, *line);
                    let unit = Unit(line.start() / unit_bytes);
                    let bytes = match (view.read(line, *mask, &narrowed), history.choices(unit)) {
                        (Seen::Certain(bytes), None) => {
                            prop_assert_eq!(bytes, masked(&before(line), *mask));
                            bytes
                        }
                        (Seen::Open(..), None) => return Err(TestCaseError::fail("nobody has stored there")),
                        (now, Some(choices)) => {
                            let cuts = narrowed.get(&unit).cloned().unwrap_or_else(|| vec![choices.open()]);
                            let expected = choices.read(&cuts, line.start() % unit_bytes, *mask);
                            match now {
                                Seen::Certain(bytes) => {
                                    prop_assert_eq!(vec![bytes], expected.into_iter().map(|(b, _)| b).collect::<Vec<_>>());
                                    bytes
                                }
                                Seen::Open(of, options) => {
                                    prop_assert_eq!(of, unit);
                                    prop_assert!(options.len() > 1);
                                    prop_assert_eq!(&options, &expected);
                                    let (bytes, cuts) = which.get(&options).clone();
                                    narrowed.insert(unit, cuts);
                                    bytes
                                }
                            }
                        }
                    };
                    seen.push((line, *mask, bytes));
                }
                // The image that is run agrees with everything that was read, and elsewhere nothing
                // is lost.
                let image = Image::newest(&view, &narrowed, &files);
                for (line, mask, bytes) in seen {
                    prop_assert_eq!(masked(&image.line(line), mask), bytes);
                }
                for (file, line) in (0..FILES).flat_map(|file| (0..LINES).map(move |line| (file, line))) {
                    let line = line_at(file, line);
                    let unit = Unit(line.start() / unit_bytes);
                    if narrowed.contains_key(&unit) {
                        continue;
                    }
                    let at = (line.start() % unit_bytes) as usize;
                    let expected = match history.choices(unit) {
                        Some(choices) => choices.content(&choices.newest())[at..at + LINE].to_vec(),
                        None => before(line).to_vec(),
                    };
                    prop_assert_eq!(image.line(line).to_vec(), expected);
                }
            }
        }

        /// A crash in a recovery stands on the image that the first crash left: what the recovery
        /// has not stored to is as it was there, and no line that differs from the files is left
        /// out.
        #[test]
        fn a_second_crash_stands_on_the_first(
            config in config(),
            first in prop::collection::vec(step(), 0..20),
            second in prop::collection::vec(step(), 0..20),
            point: Index,
            lost in prop::collection::btree_set(0..LINES, 0..4),
        ) {
            let unit_bytes = config.domain.rules().unit_bytes;
            let files = Arc::new(Files::default());
            let (timeline_one, points) = timeline(config, base(), &first);
            let view = View { timeline: timeline_one, point: point.index(points.len()) as u32 };
            let mut crashed = Image::newest(&view, &Narrowed::new(), &files);
            for unit in view.open() {
                if let Some(choices) = view.choices(*unit)
                    && lost.contains(&(unit.0 % LINES))
                {
                    crashed.survivors.insert(*unit, choices.open().oldest());
                }
            }
            let (timeline_two, points) = timeline(config, Base::Crashed(crashed.clone()), &second);
            for (point, history) in points.iter().enumerate() {
                let view = View { timeline: timeline_two.clone(), point: point as u32 };
                let image = Image::newest(&view, &Narrowed::new(), &files);
                let lines = image.lines();
                for (file, line) in (0..FILES).flat_map(|file| (0..LINES).map(move |line| (file, line))) {
                    let line = line_at(file, line);
                    let unit = Unit(line.start() / unit_bytes);
                    let bytes = image.line(line);
                    match history.choices(unit) {
                        None => prop_assert_eq!(bytes, crashed.line(line)),
                        Some(choices) if choices.is_certain() => {
                            let at = (line.start() % unit_bytes) as usize;
                            prop_assert_eq!(&bytes[..], &choices.content(&choices.newest())[at..at + LINE]);
                        }
                        Some(_) => {}
                    }
                    prop_assert!(bytes == before(line) || lines.contains(&line), "{line:?} is left out");
                }
            }
        }
    }
}
