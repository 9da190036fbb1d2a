//! The files that a recovery finds, set to one crash image after the other.
//!
//! A world is what one thread runs recoveries in, one at a time; those of different worlds share
//! nothing. There are two kinds:
//!
//! - **Enclosed**: in a private view of the machine ([`Enclosure`]), where every file has its own
//!   name. Below it lie the user's files, what the set-up changed, and what the recorded run
//!   changed (so files that are not tracked are there as the run left them). What a recovery does
//!   beyond stores to tracked files (files made, removed, renamed, written to; ports in use) is
//!   noticed when it has ended. Files that it has only made (a lock, a log) are taken away; after
//!   anything else the next one gets a fresh view. So no recovery sees what another one did.
//! - **Redirected**, where the kernel allows no private view: copies in a folder of the world's
//!   own, to which the engine leads the program when it names the originals.
//!
//! The interface: [`World::lay`] is the one place where a crash state is put into the world: which
//! files there are, how long they are, and what they hold. [`World::find`] says where the tool sees
//! what programs in the world call by a path; it is true until the next `lay`. [`World::equip`]
//! tells a launch to happen here, and [`World::after`] looks at what it has left. Between two
//! images only the lines that differ are written, and those that the last recovery has stored to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brownout_host::{
    Changed, Enclosure, Enclosures, KNOWN_FILES_MAX, LaunchConfig, LaunchError, Layer,
};
use brownout_model::LineBytes;
use brownout_trace::EventSink;
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::files::copy_sparse;
use crate::filing::path_of;
use crate::line::{LINE, LineKey};
use crate::ready::Ready;
use crate::recording::TrackedFile;
use crate::unit::is_ordinary;
use crate::view::{Entry, FileState, Files, Image};

/// What a checker reads, in an enclosed world. The same in all of them, so that it does the same in
/// all of them.
const TOLD: &str = "brownout-acknowledged";

struct WorldFile {
    /// What the program calls it.
    name: PathBuf,
    /// Where it is, in a redirected world.
    copy: PathBuf,
    /// Where it is while it must not exist, in a redirected world.
    hidden: PathBuf,
    /// What to make it of.
    base: PathBuf,
    /// `None`: to be made anew.
    handle: Option<File>,
    /// Its permissions.
    mode: Option<u32>,
}

/// What worlds are made of.
#[derive(Clone)]
pub struct Origin {
    /// For what the tool itself keeps.
    pub scratch: PathBuf,
    /// Makes private views, and what lies below them.
    pub enclosures: Option<(Arc<Enclosures>, Vec<Layer>)>,
    /// Files that are persistent memory.
    pub pm_globs: Vec<String>,
}

/// A private view, and what was changed in it when the image had been laid down.
struct Enclosed {
    enclosures: Arc<Enclosures>,
    below: Vec<Layer>,
    view: Arc<Enclosure>,
    laid: BTreeMap<PathBuf, Changed>,
    /// Folders of the machine in which programs have made files.
    used: BTreeSet<PathBuf>,
    /// Somebody else has changed more: it is not to be used again.
    stale: bool,
}

/// See the module's header.
pub struct World {
    /// Ended before the view is.
    ready: Ready,
    folder: tempfile::TempDir,
    files: BTreeMap<FileId, WorldFile>,
    /// Lines that differ, or may differ, from the base.
    now: FxHashMap<LineKey, LineBytes>,
    /// Lines of which nothing is known any more.
    dirty: FxHashSet<LineKey>,
    /// `None`: redirected.
    enclosed: Option<Enclosed>,
    /// The names that were laid down last, if names are what the image is about.
    names: Option<BTreeMap<Vec<u8>, Entry>>,
    /// What each file that is there is called.
    called: BTreeMap<FileId, PathBuf>,
}

impl World {
    /// A new one.
    pub fn new(origin: &Origin, tracked: &BTreeMap<FileId, TrackedFile>) -> io::Result<World> {
        let folder = tempfile::Builder::new()
            .prefix("world-")
            .tempdir_in(&origin.scratch)?;
        let files = tracked
            .iter()
            .map(|(id, file)| {
                let name = file.path.file_name().unwrap_or_default();
                let own = folder.path().join(id.to_string());
                let world = WorldFile {
                    name: file.path.clone(),
                    // The same last component: programs print it.
                    copy: own.join(name),
                    hidden: own.join(".brownout-hidden"),
                    base: file.base.clone(),
                    handle: None,
                    mode: None,
                };
                fs::create_dir(&own)?;
                Ok((*id, world))
            })
            .collect::<io::Result<_>>()?;
        let enclosed = match &origin.enclosures {
            Some((enclosures, below)) => Some(Enclosed {
                enclosures: enclosures.clone(),
                below: below.clone(),
                view: Arc::new(enclosures.enclose(below)?),
                laid: BTreeMap::new(),
                used: BTreeSet::new(),
                stale: false,
            }),
            None => None,
        };
        Ok(World {
            ready: Ready::default(),
            folder,
            files,
            now: FxHashMap::default(),
            dirty: FxHashSet::default(),
            enclosed,
            names: None,
            called: BTreeMap::new(),
        })
    }

    /// A folder for what the tool keeps of a run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The private view, if there is one.
    pub fn view(&self) -> Option<&Arc<Enclosure>> {
        self.enclosed.as_ref().map(|enclosed| &enclosed.view)
    }

    /// Where the tool finds what a program in this world calls `path`. True until the next
    /// [`lay`](Self::lay).
    pub fn find(&self, path: &Path) -> PathBuf {
        if let Some(view) = self.view() {
            return view.path(path);
        }
        let copy = self.files.values().find(|file| file.name == path);
        copy.map_or(path, |file| &file.copy).to_path_buf()
    }

    /// Tells a launch to happen here.
    pub fn equip(&self, config: &mut LaunchConfig) {
        config.known_files = self.existing();
        let last = self.files.keys().next_back();
        config.last_file = last.copied().unwrap_or_default();
        let redirects: BTreeMap<PathBuf, PathBuf> = self
            .files
            .iter()
            .filter(|(id, _)| !is_ordinary(**id))
            .map(|(id, file)| match &self.enclosed {
                // It stays; but where the program looks for it is told.
                Some(_) => {
                    let name = self.called.get(id).unwrap_or(&file.name);
                    (name.clone(), name.clone())
                }
                None => (file.name.clone(), file.copy.clone()),
            })
            .collect();
        config.redirects = redirects.into_iter().collect();
        config.enclosure = self.view().cloned();
        config.dies_with_tool = true;
    }

    /// Runs a program that was told to happen here; perhaps often.
    pub fn run(
        &mut self,
        config: &LaunchConfig,
        often: bool,
        sink: &mut dyn EventSink,
    ) -> Result<brownout_host::Outcome, LaunchError> {
        let places = self.places();
        self.ready.run(config, places, often, sink)
    }

    /// Makes a program ready that was told to happen here, and will be run often.
    pub fn make_ready(&mut self, config: &LaunchConfig) {
        let places = self.places();
        self.ready.prepare(config, places);
    }

    /// Folders in which anything may differ between runs.
    fn places(&self) -> BTreeSet<PathBuf> {
        let laid = self.names.iter().flatten().map(|(path, _)| path_of(path));
        let known = self.files.values().map(|file| file.name.clone());
        let folder = |path: PathBuf| path.parent().map(Path::to_path_buf);
        laid.chain(known).filter_map(folder).collect()
    }

    /// Opens something for a program in this world to read.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        match File::open(self.find(path)) {
            // What the tool itself has made is outside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(path),
            opened => opened,
        }
    }

    /// Writes down something for a program in this world to read, and says what it is to call that.
    pub fn tell(&self, text: &[u8]) -> io::Result<PathBuf> {
        let name = match self.enclosed {
            Some(_) => std::env::temp_dir().join(TOLD),
            None => self.folder().join("acknowledged"),
        };
        fs::write(self.find(&name), text)?;
        Ok(name)
    }

    /// What the program calls the files.
    pub fn names(&self) -> Vec<PathBuf> {
        let files = self.files.iter();
        files
            .map(|(id, file)| self.called.get(id).unwrap_or(&file.name).clone())
            .collect()
    }

    /// What a file is called in the image that was laid down last, if that says so.
    pub fn called(&self, file: FileId) -> Option<&PathBuf> {
        self.called.get(&file)
    }

    /// The files that are there now, as the tool finds them: persistent memory first, and no more
    /// than can be followed.
    pub fn existing(&self) -> Vec<(PathBuf, FileId)> {
        if self.names.is_some() {
            let there = self.called.iter().take(KNOWN_FILES_MAX);
            return there.map(|(id, name)| (self.find(name), *id)).collect();
        }
        let all = self.files.iter().map(|(id, f)| (self.find(&f.name), *id));
        all.filter(|(path, _)| path.exists()).collect()
    }

    /// Sets all files to the image.
    pub fn lay(&mut self, image: &Image) -> io::Result<()> {
        if let Some(enclosed) = &mut self.enclosed
            && enclosed.stale
        {
            self.ready.clear();
            enclosed.view = Arc::new(enclosed.enclosures.enclose(&enclosed.below)?);
            enclosed.stale = false;
            for folder in &enclosed.used {
                // If it cannot be, what is made in it costs another view again.
                let _ = enclosed.view.open_up(folder);
            }
            for file in self.files.values_mut() {
                file.handle = None;
            }
            self.names = None;
        }
        match &self.enclosed {
            Some(enclosed) if !image.files.names.is_empty() => {
                let view = enclosed.view.clone();
                self.lay_names(&image.files, &view)?;
            }
            _ => self.lay_files(&image.files)?,
        }
        self.lay_lines(image)?;
        if let Some(enclosed) = &mut self.enclosed {
            enclosed.laid = enclosed.view.changed()?;
        }
        Ok(())
    }

    /// Every file under the one name that it has.
    fn lay_files(&mut self, files: &Files) -> io::Result<()> {
        for (id, file) in &mut self.files {
            let state = files.get(id).copied().unwrap_or(FileState {
                exists: false,
                size: 0,
            });
            let view = self.enclosed.as_ref().map(|enclosed| &enclosed.view);
            let remade = file.set(state, view.map(Arc::as_ref))?;
            if remade {
                self.now.retain(|line, _| line.file() != *id);
                self.dirty.retain(|line| line.file() != *id);
            }
        }
        Ok(())
    }

    /// Every name of the image, and the files, folders and links that they stand for. What the last
    /// image had, too, stays as it is; the rest is made anew. Nothing outside the private view is
    /// touched.
    fn lay_names(&mut self, files: &Files, view: &Enclosure) -> io::Result<()> {
        if self.names.as_ref() == Some(&files.names) && self.can_stay(files, view) {
            for (id, state) in &files.states {
                if let Some(file) = self.files.get(id) {
                    file.fit(state.size)?;
                }
            }
            return Ok(());
        }
        let old = self.names.take().unwrap_or_default();
        let staying = self.staying(&old, files, view);
        let all: BTreeSet<&Vec<u8>> = old.keys().chain(files.names.keys()).collect();
        // What lies in a folder comes behind it.
        for path in all
            .into_iter()
            .rev()
            .filter(|path| !staying.contains(*path))
        {
            let at = view.path(&path_of(path));
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_dir() => fs::remove_dir_all(&at)?,
                Ok(_) => fs::remove_file(&at)?,
                Err(_) => {}
            }
        }
        let has_stayed = |name: &Path| staying.contains(name.as_os_str().as_bytes());
        self.called.retain(|_, name| has_stayed(name));
        for (id, file) in &mut self.files {
            if !self.called.contains_key(id) {
                file.handle = None;
            }
        }
        let called = &self.called;
        self.now.retain(|line, _| called.contains_key(&line.file()));
        self.dirty.retain(|line| called.contains_key(&line.file()));
        for (id, state) in &files.states {
            if self.called.contains_key(id)
                && let Some(file) = self.files.get(id)
            {
                file.fit(state.size)?;
            }
        }
        for (path, entry) in files
            .names
            .iter()
            .filter(|(path, _)| !staying.contains(*path))
        {
            let name = path_of(path);
            let at = view.path(&name);
            match entry {
                Entry::Absent => {}
                Entry::Folder => fs::create_dir_all(&at)?,
                Entry::Link(to) => std::os::unix::fs::symlink(path_of(to), &at)?,
                Entry::File(id) => {
                    if let Some(folder) = at.parent() {
                        // The run may have removed a folder that it did not make.
                        fs::create_dir_all(folder)?;
                    }
                    if let Some(first) = self.called.get(id) {
                        fs::hard_link(view.path(first), &at)?;
                        continue;
                    }
                    let file = self.files.entry(*id).or_insert_with(|| WorldFile {
                        name: name.clone(),
                        copy: PathBuf::new(),
                        hidden: PathBuf::new(),
                        base: PathBuf::new(),
                        handle: None,
                        mode: None,
                    });
                    let made = match file.base.as_os_str().is_empty() {
                        true => File::options()
                            .read(true)
                            .write(true)
                            .create_new(true)
                            .open(&at)?,
                        false => copy_sparse(&File::open(&file.base)?, &at)?,
                    };
                    made.set_len(files.get(id).map_or(0, |state| state.size))?;
                    file.mode = Some(made.metadata()?.mode());
                    file.handle = Some(made);
                    self.called.insert(*id, name);
                }
            }
        }
        self.names = Some(files.names.clone());
        Ok(())
    }

    /// Whether the files that were laid down are still there, and need not be cut short.
    fn can_stay(&self, files: &Files, view: &Enclosure) -> bool {
        let mut called = self.called.iter();
        called.all(|(id, name)| self.file_can_stay(*id, name, files, view))
    }

    fn file_can_stay(&self, id: FileId, name: &Path, files: &Files, view: &Enclosure) -> bool {
        let handle = self.files.get(&id).and_then(|file| file.handle.as_ref());
        let state = files.get(&id).copied().unwrap_or_default();
        handle.is_some_and(|handle| {
            let own = identity(handle).ok();
            let there = fs::symlink_metadata(view.path(name)).ok();
            own.is_some()
                && there.map(|m| (m.dev(), m.ino())) == own
                && handle.metadata().is_ok_and(|m| m.len() <= state.size)
        })
    }

    /// Names that stand for the same in the `old` image and in this one, and do so in the view:
    /// they need not be made anew. Files with several names are left out.
    fn staying(
        &self,
        old: &BTreeMap<Vec<u8>, Entry>,
        files: &Files,
        view: &Enclosure,
    ) -> BTreeSet<Vec<u8>> {
        let mut names_of: FxHashMap<FileId, u32> = FxHashMap::default();
        for (path, entry) in old.iter().chain(&files.names) {
            if let Entry::File(id) = entry {
                let is_new = old.get(path) != Some(entry) || !files.names.contains_key(path);
                // One that both images have is met twice.
                *names_of.entry(*id).or_default() += if is_new { 2 } else { 1 };
            }
        }
        let mut staying = BTreeSet::new();
        // Folders come before what lies in them.
        for (path, entry) in old {
            let name = path_of(path);
            let is_made_anew = |folder: &Path| {
                let folder = folder.as_os_str().as_bytes();
                (old.contains_key(folder) || files.names.contains_key(folder))
                    && !staying.contains(folder)
            };
            if files.names.get(path) != Some(entry) || name.ancestors().skip(1).any(is_made_anew) {
                continue;
            }
            let at = view.path(&name);
            let is_there = match entry {
                Entry::Absent => fs::symlink_metadata(&at).is_err(),
                Entry::Folder => fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()),
                Entry::Link(to) => fs::read_link(&at).is_ok_and(|link| link == path_of(to)),
                Entry::File(id) => {
                    names_of.get(id) == Some(&2)
                        && self.called.get(id) == Some(&name)
                        && self.file_can_stay(*id, &name, files, view)
                }
            };
            if is_there {
                staying.insert(path.clone());
            }
        }
        staying
    }

    fn lay_lines(&mut self, image: &Image) -> io::Result<()> {
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

    /// A run is over: looks at what it has left besides what it was seen to do to tracked files.
    /// `made` are files that it made and mapped.
    pub fn after(&mut self, made: &[PathBuf]) {
        let Some(enclosed) = &mut self.enclosed else {
            for path in made {
                // It would be there for the next.
                let _ = fs::remove_file(path);
            }
            return;
        };
        let view = &enclosed.view;
        let is_same = view.take_back(&enclosed.laid).unwrap_or(false);
        if !is_same {
            let left = view.changed().unwrap_or_default();
            let folders = left
                .into_iter()
                .filter(|(path, changed)| changed.is_folder() && !enclosed.laid.contains_key(path));
            enclosed.used.extend(folders.map(|(path, _)| path));
        }
        enclosed.stale |= !is_same || view.has_sockets();
    }

    /// A run has stored to these lines.
    pub fn dirtied(&mut self, lines: impl IntoIterator<Item = LineKey>) {
        self.dirty.extend(lines);
    }

    /// A run was ended from outside, or was not watched: it may have stored more than was seen.
    pub fn distrust(&mut self) {
        for file in self.files.values_mut() {
            file.handle = None;
        }
        if let Some(enclosed) = &mut self.enclosed {
            enclosed.stale = true;
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
    /// Makes a file that is there as long as this. Its permissions are as they were, whatever the
    /// last recovery did to them.
    fn fit(&self, size: u64) -> io::Result<()> {
        let Some(handle) = &self.handle else {
            return Ok(());
        };
        let now = handle.metadata()?;
        if let Some(mode) = self.mode
            && now.mode() != mode
        {
            handle.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        if now.len() != size {
            handle.set_len(size)?;
        }
        Ok(())
    }

    /// Makes the file exist, or not, with that size. True if it was made anew.
    fn set(&mut self, state: FileState, view: Option<&Enclosure>) -> io::Result<bool> {
        let at = |path: &Path| fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()));
        let path = view.map_or(self.copy.clone(), |view| view.path(&self.name));
        if !state.exists {
            // The copy is kept for later; what a recovery has made here is not.
            match (&self.handle, at(&path)) {
                (Some(handle), Some(found)) if view.is_none() && identity(handle)? == found => {
                    fs::rename(&path, &self.hidden)?;
                }
                (_, Some(_)) => {
                    fs::remove_file(&path)?;
                    if view.is_some() {
                        // There is no place in it that a program cannot see, so it is not kept.
                        self.handle = None;
                    }
                }
                _ => {}
            }
            return Ok(false);
        }
        let mut remade = false;
        if let Some(handle) = &self.handle {
            let own = identity(handle)?;
            if at(&path) != Some(own) {
                if view.is_none() && at(&self.hidden) == Some(own) {
                    fs::rename(&self.hidden, &path)?;
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
        if self.handle.is_none() {
            for old in [&path, &self.hidden] {
                match fs::remove_file(old) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            if let Some(folder) = path.parent() {
                // The run may have made the folder, and removed it at its end.
                fs::create_dir_all(folder)?;
            }
            let made = copy_sparse(&File::open(&self.base)?, &path)?;
            self.mode = Some(made.metadata()?.mode());
            self.handle = Some(made);
            remade = true;
        }
        self.fit(state.size)?;
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

    use crate::before::Before;
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

    /// Files as they were, and a run that stores to some of their lines: one store between two
    /// failure points.
    struct Scene {
        folder: tempfile::TempDir,
        tracked: BTreeMap<FileId, TrackedFile>,
        timeline: Arc<Timeline>,
        points: u32,
        /// Where it is mounted, if there is one.
        enclosures: Option<Arc<Enclosures>>,
        _mountpoint: Option<tempfile::TempDir>,
    }

    impl Scene {
        fn new(stores: &[(u32, u64, u8)], enclosed: bool) -> Scene {
            let mountpoint = enclosed.then(|| tempfile::tempdir().expect("a folder"));
            // Where the kernel allows none, the other kind is tested twice; the suites say what
            // this machine can do.
            let enclosures = mountpoint
                .as_ref()
                .and_then(|at| Enclosures::new(at.path(), Path::new("/"), None, false).ok());
            let folder = tempfile::tempdir().expect("a folder");
            let mut tracked = BTreeMap::new();
            let mut bases = BTreeMap::new();
            for file in 0..FILES {
                let base = folder.path().join(format!("before-{file}"));
                let bytes: Vec<u8> = (0..BASE_LINES)
                    .flat_map(|i| [100 + i as u8; LINE])
                    .collect();
                fs::write(&base, bytes).expect("a write");
                bases.insert(
                    id(file),
                    Before::new(File::open(&base).expect("it is there")),
                );
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
                enclosures: enclosures.map(Arc::new),
                _mountpoint: mountpoint,
            }
        }

        fn world(&self) -> World {
            World::new(&self.origin(), &self.tracked).expect("a world")
        }

        fn origin(&self) -> Origin {
            let enclosures = self.enclosures.clone();
            Origin {
                scratch: self.folder.path().to_path_buf(),
                enclosures: enclosures.map(|enclosures| (enclosures, Vec::new())),
                pm_globs: Vec::new(),
            }
        }

        fn image(&self, want: &Want) -> Image {
            let view = View {
                timeline: self.timeline.clone(),
                point: want.point.index(self.points as usize) as u32,
            };
            let files = (0..FILES).map(|file| (id(file), want.files[file as usize]));
            let mut image = Image::newest(
                &view,
                &Narrowed::new(),
                &Arc::new(files.collect::<BTreeMap<_, _>>().into()),
            );
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
        let path = world.find(&world.files[&id(file)].name);
        let line = |offset: u64| LineKey::of(keys::key(id(file), offset).0);
        let Ok(handle) = File::options().write(true).open(&path) else {
            if matches!(did, Did::Replace) {
                // In a private view, the folder is there only if a file is.
                let folder = path.parent().expect("it has one");
                fs::create_dir_all(folder).expect("a folder");
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
            let found = fs::read(world.find(&world.files[file].name));
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
            world.after(&[]);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever was there before, and whatever a recovery did to it.
        #[test]
        fn files_hold_exactly_the_image(enclosed in prop::bool::weighted(0.2), stores in stores(), rounds in rounds(false)) {
            play(&Scene::new(&stores, enclosed), &rounds)?;
        }

        /// Files come and go between failure points, too.
        #[test]
        fn files_that_do_not_exist_yet_are_not_there(enclosed in prop::bool::weighted(0.2), stores in stores(), mut rounds in rounds(true)) {
            // A recovery stores only to files that the next image has, too.
            for next in 1..rounds.len() {
                let files = rounds[next].0.files;
                rounds[next - 1].1.retain(|(file, _)| files[*file as usize].exists);
            }
            play(&Scene::new(&stores, enclosed), &rounds)?;
        }

        /// Two worlds know nothing of each other.
        #[test]
        fn worlds_are_private(enclosed in prop::bool::weighted(0.2), stores in stores(), rounds in rounds(false)) {
            let scene = Scene::new(&stores, enclosed);
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
        for enclosed in [false, true] {
            let scene = Scene::new(&[], enclosed);
            let world = scene.world();
            let mut config = LaunchConfig::new("true", [""; 0]);
            world.equip(&mut config);
            assert_eq!(config.redirects.len(), FILES as usize);
            for (name, path) in config.redirects {
                assert_eq!(name.file_name(), path.file_name());
                let is_copy = path.starts_with(world.folder());
                assert_eq!(is_copy, world.view().is_none());
            }
            let folder = world.folder().to_path_buf();
            drop(world);
            assert!(!folder.exists());
        }
    }

    fn index() -> Index {
        use proptest::strategy::ValueTree;
        use proptest::test_runner::TestRunner;
        let tree = any::<Index>().new_tree(&mut TestRunner::deterministic());
        tree.expect("a value").current()
    }

    /// What a recovery does to other files is gone before the next one.
    #[test]
    fn a_view_is_renewed_if_more_was_done_than_stores() {
        let scene = Scene::new(&[(0, 1, 7)], true);
        let mut world = scene.world();
        if world.view().is_none() {
            // This machine allows none; explorations say so in their reports.
            return;
        }
        let size = BASE_LINES * LINE as u64;
        let files = [FileState { exists: true, size }; FILES as usize];
        let want = Want {
            point: index(),
            lost: index(),
            files,
        };
        let image = scene.image(&want);
        let folder = scene.folder.path();
        let kept = folder.join("kept");
        fs::write(&kept, b"mine").expect("a write");
        type Deed = fn(&World, &Path);
        let deeds: [Deed; 5] = [
            |world, folder| fs::write(world.find(&folder.join("new")), b"x").expect("a write"),
            |world, folder| fs::create_dir(world.find(&folder.join("new"))).expect("a folder"),
            |world, folder| fs::remove_file(world.find(&folder.join("kept"))).expect("it is there"),
            |world, folder| fs::write(world.find(&folder.join("kept")), b"other").expect("a write"),
            |world, folder| {
                let [from, to] = ["kept", "moved"].map(|name| world.find(&folder.join(name)));
                fs::rename(from, to).expect("it is there");
            },
        ];
        for deed in deeds {
            world.lay(&image).expect("it can be laid");
            deed(&world, folder);
            world.after(&[]);
            world.lay(&image).expect("it can be laid");
            let seen = |name: &str| fs::read(world.find(&folder.join(name))).ok();
            assert_eq!(seen("kept").as_deref(), Some(&b"mine"[..]));
            assert_eq!((seen("new"), seen("moved")), (None, None));
            assert!(!world.find(&folder.join("new")).exists());
            check(&world, &image).expect("the image is there");
            // And the user's own are as they were.
            assert_eq!(fs::read(&kept).expect("it is there"), b"mine");
        }
        // Stores alone renew nothing.
        world.lay(&image).expect("it can be laid");
        let before = world.view().map(|view| view.root().to_path_buf());
        recover(&mut world, 0, &Did::Store(vec![1, 2]));
        world.after(&[]);
        world.lay(&image).expect("it can be laid");
        assert_eq!(world.view().map(|view| view.root().to_path_buf()), before);
    }

    /// A lock or a log that a recovery makes is gone before the next one, and the view, with the
    /// programs that are kept in it, stays.
    #[test]
    fn files_that_were_only_made_are_taken_away() {
        let scene = Scene::new(&[(0, 1, 7)], true);
        let mut world = scene.world();
        if world.view().is_none() {
            // This machine allows none; explorations say so in their reports.
            return;
        }
        let size = BASE_LINES * LINE as u64;
        let want = Want {
            point: index(),
            lost: index(),
            files: [FileState { exists: true, size }; FILES as usize],
        };
        let image = scene.image(&want);
        let made =
            ["lock", "folder", "folder/log", "removed"].map(|name| scene.folder.path().join(name));
        let [lock, folder, log, removed] = &made;
        fs::write(removed, b"there before").expect("a write");
        let recover = |world: &World| {
            fs::write(world.find(lock), b"1").expect("a write");
            fs::create_dir(world.find(folder)).expect("a folder");
            fs::write(world.find(log), b"started").expect("a write");
        };
        let root = |world: &World| world.view().map(|view| view.root().to_path_buf());
        // The first time shows where files are made.
        world.lay(&image).expect("it can be laid");
        recover(&world);
        world.after(&[]);
        world.lay(&image).expect("it can be laid");
        let first = root(&world);
        // The image is one in which this is not there any more.
        fs::remove_file(world.find(removed)).expect("it is there");
        world.lay(&image).expect("it can be laid");
        for _ in 0..3 {
            recover(&world);
            fs::write(world.find(removed), b"made again").expect("a write");
            world.after(&[]);
            world.lay(&image).expect("it can be laid");
            assert_eq!(root(&world), first);
            assert!(made.iter().all(|path| !world.find(path).exists()));
            check(&world, &image).expect("the image is there");
        }
        // To remove what lies below is more than that.
        fs::write(lock, b"the user's").expect("a write");
        fs::write(world.find(lock), b"changed").expect("a write");
        world.after(&[]);
        world.lay(&image).expect("it can be laid");
        assert_ne!(root(&world), first);
        assert_eq!(
            fs::read(world.find(lock)).expect("it is there"),
            b"the user's"
        );
    }

    /// Names are laid down as the image has them, whatever was there before, and only in the
    /// private view.
    #[test]
    fn names_are_those_of_the_image() {
        let scene = Scene::new(&[], true);
        let mut world = scene.world();
        let Some(view) = world.view().cloned() else {
            // This machine allows none; explorations say so in their reports.
            return;
        };
        let folder = scene.folder.path().join("names");
        let name = |last: &str| folder.join(last).into_os_string().into_encoded_bytes();
        let content = FileId(50);
        let files = |size: u64, entries: &[(&str, Entry)]| {
            let mut files = Files::default();
            files
                .states
                .insert(content, FileState { exists: true, size });
            files.names.insert(name(""), Entry::Folder);
            for (last, entry) in entries {
                files.names.insert(name(last), entry.clone());
            }
            files
        };
        let there = |view: &Enclosure| -> Vec<String> {
            let entries = fs::read_dir(view.path(&folder)).expect("a folder");
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let inode = |last: &str| fs::metadata(view.path(&folder.join(last))).unwrap().ino();
        let size = |last: &str| fs::metadata(view.path(&folder.join(last))).unwrap().len();

        let first = files(
            20,
            &[
                ("a", Entry::File(content)),
                ("b", Entry::File(content)),
                ("gone", Entry::Absent),
                ("link", Entry::Link(b"a".to_vec())),
                ("sub", Entry::Folder),
            ],
        );
        world.lay_names(&first, &view).expect("it can be laid");
        assert_eq!(there(&view), ["a", "b", "link", "sub"]);
        assert_eq!((size("a"), inode("a")), (20, inode("b")));
        let link = fs::read_link(view.path(&folder.join("link"))).unwrap();
        assert_eq!(link, Path::new("a"));

        let second = files(5, &[("c", Entry::File(content)), ("sub", Entry::Absent)]);
        world.lay_names(&second, &view).expect("it can be laid");
        assert_eq!(there(&view), ["c"]);
        assert_eq!(size("c"), 5);

        // The same names: the file stays, and only its size changes.
        let (before, longer) = (
            inode("c"),
            files(9, &[("c", Entry::File(content)), ("sub", Entry::Absent)]),
        );
        world.lay_names(&longer, &view).expect("it can be laid");
        assert_eq!((size("c"), inode("c")), (9, before));

        // Another name comes: what was there stays.
        let other = files(
            9,
            &[
                ("c", Entry::File(content)),
                ("d", Entry::Folder),
                ("sub", Entry::Absent),
            ],
        );
        world.lay_names(&other, &view).expect("it can be laid");
        assert_eq!(
            (there(&view), inode("c")),
            (vec!["c".into(), "d".into()], before)
        );
        world.lay_names(&longer, &view).expect("it can be laid");
        assert_eq!((there(&view), inode("c")), (vec!["c".to_owned()], before));

        // A second name for it: both are made anew, and are one file.
        let twice = files(
            9,
            &[("c", Entry::File(content)), ("d", Entry::File(content))],
        );
        world.lay_names(&twice, &view).expect("it can be laid");
        assert_eq!(inode("c"), inode("d"));
        world.lay_names(&longer, &view).expect("it can be laid");
        assert_eq!(there(&view), ["c"]);

        // A recovery that has put another file there: it is made anew.
        let at = view.path(&folder.join("c"));
        fs::remove_file(&at).unwrap();
        fs::write(&at, "somebody else's").unwrap();
        world.lay_names(&longer, &view).expect("it can be laid");
        assert_eq!(fs::read(&at).unwrap(), [0; 9]);

        assert!(!folder.exists(), "outside of the view nothing is touched");
    }
}
