//! The files that a recovery finds: private copies, set to one crash image after the other.
//!
//! A program under test names its own paths; the engine leads it to the copies. So recoveries run side by side, and the user's
//! files stay as they are. Between two images only the lines that differ are written, and those that the last recovery
//! has stored to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use brownout_model::LineBytes;
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::files::copy_sparse;
use crate::place::{LINE, LineKey};
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
                    hidden: own.join("hidden"),
                    base: file.base.clone(),
                    handle: None,
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
            let state = image.files.get(&line.file());
            let size = state.map_or(0, |s| if s.exists { s.size } else { 0 });
            let fits = size.saturating_sub(line.offset()).min(LINE as u64) as usize;
            if let Some(file) = self.files.get(&line.file())
                && let Some(handle) = &file.handle
                && fits > 0
            {
                handle.write_all_at(&bytes[..fits], line.offset())?;
                self.now.insert(line, bytes);
            }
        }
        Ok(())
    }

    /// A run has stored to these lines.
    pub fn dirtied(&mut self, lines: impl IntoIterator<Item = LineKey>) {
        self.dirty.extend(lines);
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
        // Permissions are as they were, whatever the last recovery did to them.
        if let Some(handle) = &self.handle
            && handle.metadata()?.len() > state.size
        {
            self.handle = None;
        }
        if self.handle.is_none() {
            for old in [&self.path, &self.hidden] {
                match fs::remove_file(old) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            self.handle = Some(copy_sparse(&File::open(&self.base)?, &self.path)?);
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
