//! What persistent memory may hold at a failure point, and one image chosen from that.
//!
//! A [`Timeline`] keeps, for every unit that a run stored to, what it may hold at each failure point: a new version where that
//! changed. A [`View`] is the timeline at one point. [`Narrowed`] says how far the reads of a recovery have
//! narrowed a view; an [`Image`] is one memory of those left. A timeline stands on the files as they were before its run,
//! or on an image, if the run was itself a recovery.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use brownout_model::{Choices, Cut, LineBytes, LineMask, Survivors, Unit, masked};
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::place::{LINE, LineKey};

/// What a file is apart from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileState {
    /// It is there.
    pub exists: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// Content before anything was stored.
pub enum Base {
    /// Files as they were before the recorded run.
    Files(BTreeMap<FileId, File>),
    /// What a crash left, on which a recovery ran.
    Crashed(Image),
}

impl Base {
    fn line(&self, line: LineKey) -> LineBytes {
        match self {
            Base::Files(files) => {
                let mut bytes = [0; LINE];
                if let Some(file) = files.get(&line.file()) {
                    let mut got = 0;
                    // Beyond the end, and where the file cannot be read, it is zero: a file grows by zeros.
                    while let Ok(n) = file.read_at(&mut bytes[got..], line.offset() + got as u64)
                        && n > 0
                    {
                        got += n;
                        if got == LINE {
                            break;
                        }
                    }
                }
                bytes
            }
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

    /// The content of a unit before the run.
    pub fn initial(&self, unit: Unit) -> Vec<u8> {
        let start = LineKey::of(unit.0 * self.unit_bytes).0;
        let lines = start..start + self.unit_bytes / LINE as u64;
        lines
            .flat_map(|line| self.base.line(LineKey(line)))
            .collect()
    }

    /// Ends the stretch before the next failure point, in which these units have changed.
    pub fn close(&mut self, changed: Vec<Choices>) {
        let point = self.open.len() as u32;
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
        Unit(line.start() / self.unit_bytes)
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
        let offset = line.start() % self.timeline.unit_bytes;
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
    pub files: Arc<BTreeMap<FileId, FileState>>,
}

impl Image {
    /// The newest image of what is left.
    pub fn newest(
        view: &View,
        narrowed: &Narrowed,
        files: &Arc<BTreeMap<FileId, FileState>>,
    ) -> Image {
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
                let offset = (line.start() % timeline.unit_bytes) as usize;
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
            let first = LineKey::of(unit.0 * timeline.unit_bytes).0;
            lines.extend((first..first + timeline.unit_bytes / LINE as u64).map(LineKey));
        }
        lines
    }
}
