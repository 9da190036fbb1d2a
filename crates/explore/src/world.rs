//! The files that a recovery finds: private copies, set to one crash image after the other.
//!
//! A program under test names its own paths; the engine leads it to the copies. So recoveries run side by side, and the user's
//! files stay as they are. Between two images only the lines that differ are written, and those that the last recovery
//! has stored to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brownout_model::LineBytes;
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::files::copy_sparse;
use crate::line::{LINE, LineKey};
use crate::recording::TrackedFile;
use crate::view::{FileState, Image};

struct WorldFile {
    /// What the program calls it.
    name: PathBuf,
    /// Where it is.
    path: PathBuf,
    /// Where it is while it must not exist.
    hidden: PathBuf,
    /// What to make it of.
    base: PathBuf,
    /// `None`: to be made anew.
    handle: Option<File>,
    /// Its permissions.
    mode: Option<u32>,
}

/// See the module's header.
pub struct World {
    folder: tempfile::TempDir,
    files: BTreeMap<FileId, WorldFile>,
    /// Lines that differ, or may differ, from the base.
    now: FxHashMap<LineKey, LineBytes>,
    /// Lines of which nothing is known any more.
    dirty: FxHashSet<LineKey>,
}

impl World {
    /// A new one below `parent`.
    pub fn new(parent: &Path, tracked: &BTreeMap<FileId, TrackedFile>) -> io::Result<World> {
        let folder = tempfile::Builder::new()
            .prefix("world-")
            .tempdir_in(parent)?;
        let files = tracked
            .iter()
            .map(|(id, file)| {
                let name = file.path.file_name().unwrap_or_default();
                let own = folder.path().join(id.to_string());
                let world = WorldFile {
                    name: file.path.clone(),
                    // The same last component: programs print it.
                    path: own.join(name),
                    hidden: own.join(".brownout-hidden"),
                    base: file.base.clone(),
                    handle: None,
                    mode: None,
                };
                fs::create_dir(&own)?;
                Ok((*id, world))
            })
            .collect::<io::Result<_>>()?;
        Ok(World {
            folder,
            files,
            now: FxHashMap::default(),
            dirty: FxHashSet::default(),
        })
    }

    /// A folder for what a run writes besides.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// From the program's paths to these.
    pub fn redirects(&self) -> Vec<(PathBuf, PathBuf)> {
        let pairs = self.files.values();
        pairs.map(|f| (f.name.clone(), f.path.clone())).collect()
    }

    /// The highest number of a file.
    pub fn last_file(&self) -> FileId {
        let last = self.files.keys().next_back();
        last.copied().unwrap_or_default()
    }

    /// The files that are there now.
    pub fn existing(&self) -> Vec<(PathBuf, FileId)> {
        let there = self.files.iter().filter(|(_, f)| f.path.exists());
        there.map(|(id, f)| (f.path.clone(), *id)).collect()
    }

    /// Sets all files to the image.
    pub fn lay(&mut self, image: &Image) -> io::Result<()> {
        for (id, file) in &mut self.files {
            let state = image.files.get(id).copied().unwrap_or(FileState {
                exists: false,
                size: 0,
            });
            let remade = file.set(state)?;
            if remade {
                self.now.retain(|line, _| line.file() != *id);
                self.dirty.retain(|line| line.file() != *id);
            }
        }
        let mut lines = image.lines();
        lines.extend(self.now.keys());
        lines.extend(std::mem::take(&mut self.dirty).into_iter().inspect(|line| {
            self.now.remove(line);
        }));
        for line in lines {
            let bytes = image.line(line);
            if self.now.get(&line) == Some(&bytes) {
                continue;
            }
            self.now.remove(&line);
            let state = image.files.get(&line.file());
            let size = state.map_or(0, |s| if s.exists { s.size } else { 0 });
            let fits = size.saturating_sub(line.offset()).min(LINE as u64) as usize;
            if let Some(file) = self.files.get(&line.file())
                && let Some(handle) = &file.handle
                && fits > 0
            {
                handle.write_all_at(&bytes[..fits], line.offset())?;
                if fits == LINE {
                    self.now.insert(line, bytes);
                    continue;
                }
            }
            // Not, or not wholly, written: the file is not there, or shorter. It may come back.
            self.dirty.insert(line);
        }
        Ok(())
    }

    /// A run has stored to these lines.
    pub fn dirtied(&mut self, lines: impl IntoIterator<Item = LineKey>) {
        self.dirty.extend(lines);
    }

    /// A run was ended from outside: it may have stored more than was seen.
    pub fn distrust(&mut self) {
        for file in self.files.values_mut() {
            file.handle = None;
        }
    }

    /// A run has changed the size of the file: what is left of it cannot be known by its lines.
    pub fn resized(&mut self, file: FileId) {
        if let Some(file) = self.files.get_mut(&file) {
            file.handle = None;
        }
    }
}

impl WorldFile {
    /// Makes the file exist, or not, with that size. True if it was made anew.
    fn set(&mut self, state: FileState) -> io::Result<bool> {
        let at = |path: &Path| fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()));
        if !state.exists {
            // The copy is kept for later; what a recovery has made here is not.
            match (&self.handle, at(&self.path)) {
                (Some(handle), Some(found)) if identity(handle)? == found => {
                    fs::rename(&self.path, &self.hidden)?;
                }
                (_, Some(_)) => fs::remove_file(&self.path)?,
                _ => {}
            }
            return Ok(false);
        }
        let mut remade = false;
        if let Some(handle) = &self.handle {
            let own = identity(handle)?;
            if at(&self.path) != Some(own) {
                if at(&self.hidden) == Some(own) {
                    fs::rename(&self.hidden, &self.path)?;
                } else {
                    self.handle = None;
                }
            }
        }
        if let Some(handle) = &self.handle
            && handle.metadata()?.len() > state.size
        {
            self.handle = None;
        }
        // Permissions are as they were, whatever the last recovery did to them.
        if let (Some(handle), Some(mode)) = (&self.handle, self.mode)
            && handle.metadata()?.mode() != mode
        {
            handle.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        if self.handle.is_none() {
            for old in [&self.path, &self.hidden] {
                match fs::remove_file(old) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            let made = copy_sparse(&File::open(&self.base)?, &self.path)?;
            self.mode = Some(made.metadata()?.mode());
            self.handle = Some(made);
            remade = true;
        }
        if let Some(handle) = &self.handle
            && handle.metadata()?.len() != state.size
        {
            handle.set_len(state.size)?;
        }
        Ok(remade)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brownout_model::{Config, Event, History, Op, Thread, Write, keys};
    use proptest::prelude::*;
    use proptest::sample::Index;

    use crate::view::{Base, Narrowed, Timeline, View};

    use super::*;

    const FILES: u32 = 2;
    /// Of each file before the run.
    const BASE_LINES: u64 = 8;
    /// Of each file at the end.
    const LINES: u64 = 16;

    fn id(file: u32) -> FileId {
        FileId(file + 1)
    }

    /// Files as they were, and a run that stores to some of their lines: one store between two failure points.
    struct Scene {
        folder: tempfile::TempDir,
        tracked: BTreeMap<FileId, TrackedFile>,
        timeline: Arc<Timeline>,
        points: u32,
    }

    impl Scene {
        fn new(stores: &[(u32, u64, u8)]) -> Scene {
            let folder = tempfile::tempdir().expect("a folder");
            let mut tracked = BTreeMap::new();
            let mut bases = BTreeMap::new();
            for file in 0..FILES {
                let base = folder.path().join(format!("before-{file}"));
                let bytes: Vec<u8> = (0..BASE_LINES)
                    .flat_map(|i| [100 + i as u8; LINE])
                    .collect();
                fs::write(&base, bytes).expect("a write");
                bases.insert(id(file), File::open(&base).expect("it is there"));
                let size = BASE_LINES * LINE as u64;
                let before = FileState { exists: true, size };
                let file_of_run = TrackedFile {
                    path: PathBuf::from(format!("/pm/pool-{file}")),
                    created: false,
                    before,
                    base,
                    original: None,
                };
                tracked.insert(id(file), file_of_run);
            }
            let mut history = History::new(Config::default());
            let mut timeline = Timeline::new(Base::Files(bases), LINE as u64);
            timeline.close(Vec::new());
            let mut seen = std::collections::BTreeSet::new();
            for (file, line, value) in stores {
                let at = keys::key(id(*file), line * LINE as u64);
                let unit = brownout_model::Unit(at.0 / LINE as u64);
                if seen.insert(unit) {
                    history.set_initial(at, &timeline.initial(unit));
                }
                let store = Op::Store(Write::new(at, vec![*value; 8]));
                history
                    .apply(&Event::new(Thread(1), store))
                    .expect("values are there");
                let changed = history.take_changed().into_iter();
                timeline.close(changed.filter_map(|unit| history.choices(unit)).collect());
            }
            Scene {
                folder,
                tracked,
                timeline: Arc::new(timeline),
                points: stores.len() as u32 + 1,
            }
        }

        fn world(&self) -> World {
            World::new(self.folder.path(), &self.tracked).expect("a world")
        }

        fn image(&self, want: &Want) -> Image {
            let view = View {
                timeline: self.timeline.clone(),
                point: want.point.index(self.points as usize) as u32,
            };
            let files = (0..FILES).map(|file| (id(file), want.files[file as usize]));
            let mut image = Image::newest(&view, &Narrowed::new(), &Arc::new(files.collect()));
            for unit in view.open() {
                // Of each open unit, all or nothing.
                if want.lost.index(7) as u64 > unit.0 % 5
                    && let Some(choices) = view.choices(*unit)
                {
                    image.survivors.insert(*unit, choices.open().oldest());
                }
            }
            image
        }
    }

    /// An image to lay down.
    #[derive(Clone, Debug)]
    struct Want {
        point: Index,
        lost: Index,
        files: [FileState; FILES as usize],
    }

    /// What a recovery does to a file.
    #[derive(Clone, Debug)]
    enum Did {
        /// It stores to lines of it.
        Store(Vec<u64>),
        /// It sets its size, perhaps to what it was.
        Resize(u64),
        Remove,
        /// It puts another one in its place.
        Replace,
        /// It writes beyond the end.
        Append(u64),
    }

    fn want(may_be_missing: bool) -> impl Strategy<Value = Want> {
        // The base is never cut: files of a run only grow.
        let state = (prop::bool::weighted(0.7), BASE_LINES..=LINES, 0u64..2).prop_map(
            move |(exists, lines, odd)| FileState {
                exists: exists || !may_be_missing,
                size: lines * LINE as u64 - odd * 20 * u64::from(lines > BASE_LINES),
            },
        );
        (any::<Index>(), any::<Index>(), [state.clone(), state])
            .prop_map(|(point, lost, files)| Want { point, lost, files })
    }

    fn did() -> impl Strategy<Value = Did> {
        prop_oneof![
            5 => prop::collection::vec(0..LINES, 1..6).prop_map(Did::Store),
            1 => (0..LINES).prop_map(|lines| Did::Resize(lines * LINE as u64)),
            1 => Just(Did::Remove),
            1 => Just(Did::Replace),
            1 => (1u64..200).prop_map(Did::Append),
        ]
    }

    /// Does it, and tells the world what it would learn from the events.
    fn recover(world: &mut World, file: u32, did: &Did) {
        let path = world.files[&id(file)].path.clone();
        let line = |offset: u64| LineKey::of(keys::key(id(file), offset).0);
        let Ok(handle) = File::options().write(true).open(&path) else {
            if matches!(did, Did::Replace) {
                fs::write(&path, b"made by recovery").expect("a write");
            }
            return;
        };
        let size = handle.metadata().expect("metadata").len();
        match did {
            Did::Store(lines) => {
                for at in lines
                    .iter()
                    .map(|n| n * LINE as u64)
                    .filter(|at| *at < size)
                {
                    handle
                        .write_all_at(&vec![0xee; (size - at).min(40) as usize], at)
                        .expect("a write");
                    world.dirtied([line(at)]);
                }
            }
            Did::Resize(size) => {
                handle.set_len(*size).expect("a size");
                world.resized(id(file));
            }
            Did::Remove => fs::remove_file(&path).expect("it is there"),
            Did::Replace => {
                fs::remove_file(&path).expect("it is there");
                fs::write(&path, vec![0xdd; 333]).expect("a write");
            }
            Did::Append(len) => {
                handle
                    .write_all_at(&vec![0xcc; *len as usize], size)
                    .expect("a write");
                world.dirtied((size..size + len).map(line));
            }
        }
    }

    fn check(world: &World, image: &Image) -> Result<(), TestCaseError> {
        for (file, state) in image.files.iter() {
            let found = fs::read(&world.files[file].path);
            if !state.exists {
                prop_assert!(found.is_err(), "{file} must not be there");
                continue;
            }
            let found = found.expect("it is there");
            prop_assert_eq!(found.len() as u64, state.size);
            for (at, bytes) in (0u64..).step_by(LINE).zip(found.chunks(LINE)) {
                let expected = image.line(LineKey::of(keys::key(*file, at).0));
                prop_assert_eq!(bytes, &expected[..bytes.len()], "{} at {}", file, at);
            }
        }
        let there: Vec<FileId> = world.existing().into_iter().map(|(_, id)| id).collect();
        let expected = image.files.iter().filter(|(_, state)| state.exists);
        prop_assert_eq!(there, expected.map(|(id, _)| *id).collect::<Vec<_>>());
        Ok(())
    }

    type Round = (Want, Vec<(u32, Did)>);

    fn rounds(may_be_missing: bool) -> impl Strategy<Value = Vec<Round>> {
        let deeds = prop::collection::vec((0..FILES, did()), 0..4);
        prop::collection::vec((want(may_be_missing), deeds), 1..8)
    }

    fn stores() -> impl Strategy<Value = Vec<(u32, u64, u8)>> {
        prop::collection::vec((0..FILES, 0..LINES, 1u8..20), 0..12)
    }

    fn play(scene: &Scene, rounds: &[Round]) -> Result<(), TestCaseError> {
        let mut world = scene.world();
        for (want, deeds) in rounds {
            let image = scene.image(want);
            world.lay(&image).expect("it can be laid");
            check(&world, &image)?;
            for (file, did) in deeds {
                recover(&mut world, *file, did);
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever was there before, and whatever a recovery did to it.
        #[test]
        fn files_hold_exactly_the_image(stores in stores(), rounds in rounds(false)) {
            play(&Scene::new(&stores), &rounds)?;
        }

        /// Files come and go between failure points, too.
        #[test]
        fn files_that_do_not_exist_yet_are_not_there(stores in stores(), mut rounds in rounds(true)) {
            // A recovery stores only to files that the next image has, too.
            for next in 1..rounds.len() {
                let files = rounds[next].0.files;
                rounds[next - 1].1.retain(|(file, _)| files[*file as usize].exists);
            }
            play(&Scene::new(&stores), &rounds)?;
        }

        /// Two worlds know nothing of each other.
        #[test]
        fn worlds_are_private(stores in stores(), rounds in rounds(false)) {
            let scene = Scene::new(&stores);
            let mut other = scene.world();
            let Some((want, _)) = rounds.first() else { return Ok(()) };
            let image = scene.image(want);
            other.lay(&image).expect("it can be laid");
            play(&scene, &rounds)?;
            check(&other, &image)?;
        }
    }

    #[test]
    fn programs_are_led_to_files_of_the_same_name() {
        let scene = Scene::new(&[]);
        let world = scene.world();
        let redirects = world.redirects();
        assert_eq!(redirects.len(), FILES as usize);
        for (name, path) in redirects {
            assert_eq!(name.file_name(), path.file_name());
            assert!(path.starts_with(world.folder()));
        }
        let folder = world.folder().to_path_buf();
        drop(world);
        assert!(!folder.exists());
    }
}
