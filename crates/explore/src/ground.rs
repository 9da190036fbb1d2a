//! Where the programs of an exploration run: in private views of the machine if the kernel allows,
//! else beside the user's files.
//!
//! `BROWNOUT_ISOLATION` chooses: `auto` (the default), `user` (as `auto`, but by a user namespace
//! even for root), `files` (private files, but the machine's network), `redirect` (no private
//! view).
//!
//! If the tool is killed, nothing of it stays: a small process that does nothing else waits for its
//! end, ends the programs in its views, and removes its folder. Should that be killed, too, the
//! next tool of the same user does it: each folder is locked by its owner as long as that lives, so
//! it can be seen which may go.

use std::fs::{self, File};
use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brownout_host::{Enclosure, Enclosures, Layer, Privilege, end_orphans, remove_all};

/// Chooses how programs are kept apart.
pub const VARIABLE: &str = "BROWNOUT_ISOLATION";
/// Names of the folders begin with this.
const PREFIX: &str = "brownout-explore-";
/// A younger folder may not have been locked yet by its owner.
const AGE_MIN: Duration = Duration::from_secs(10);

/// See the module's header.
pub struct Ground {
    /// Makes private views, if that is possible.
    pub(crate) enclosures: Option<Arc<Enclosures>>,
    /// Why it is not.
    pub(crate) denied: Option<String>,
    _folder: tempfile::TempDir,
    scratch: PathBuf,
    /// Held as long as the folder is in use; there is none if somebody else looks after it.
    _lock: Option<File>,
    /// Ends the guard.
    guard: Option<PipeWriter>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            // If it cannot be told that all is well, it finds nothing to do.
            let _ = io::Write::write_all(guard, b"all is well");
        }
    }
}

impl Ground {
    /// Makes a folder, and removes those that others have left.
    pub fn new() -> io::Result<Ground> {
        Ground::with_network(true)
    }

    /// As [`new`](Self::new); programs have a network of their own, where that goes, or the
    /// machine's.
    pub fn with_network(own: bool) -> io::Result<Ground> {
        let places = || [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        for place in places() {
            sweep(&place, AGE_MIN);
        }
        // In memory if possible: images are written thousands of times and never read again.
        let mut made = None;
        for place in places() {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&place);
            match folder {
                Ok(folder) => {
                    made = Some(Ok(folder));
                    break;
                }
                Err(error) => made = Some(Err(error)),
            }
        }
        let folder = made.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))?;
        let lock = File::open(folder.path())?;
        // SAFETY: our own descriptor. A file system without locks leaves the folder without one;
        // then it is swept too early by nobody, because nobody gets a lock there.
        unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        let guard = guard(folder.path()).ok();
        let wanted = std::env::var(VARIABLE).unwrap_or_default();
        let (privilege, network) = match wanted.as_str() {
            "" | "auto" => (None, own),
            "user" => (Some(Privilege::User), own),
            "files" => (None, false),
            "redirect" => {
                return Ok(Ground {
                    enclosures: None,
                    denied: Some(format!("{VARIABLE} is {wanted}")),
                    scratch: folder.path().to_path_buf(),
                    _folder: folder,
                    _lock: Some(lock),
                    guard,
                });
            }
            other => {
                return Err(io::Error::other(format!(
                    "{VARIABLE} must be auto, user, files or redirect, not '{other}'"
                )));
            }
        };
        let here = std::env::current_dir()?;
        let made = Enclosures::new(folder.path(), &here, privilege, network);
        let (enclosures, denied) = match made {
            Ok(made) => (Some(Arc::new(made)), None),
            Err(denied) => (None, Some(denied.to_string())),
        };
        Ok(Ground {
            scratch: match &enclosures {
                Some(enclosures) => enclosures.scratch(),
                None => folder.path().to_path_buf(),
            },
            enclosures,
            denied,
            _folder: folder,
            _lock: Some(lock),
            guard,
        })
    }

    /// In the views of somebody else, who cleans up.
    pub(crate) fn shared(enclosures: &Arc<Enclosures>) -> io::Result<Ground> {
        let folder = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(enclosures.scratch())?;
        Ok(Ground {
            enclosures: Some(enclosures.clone()),
            denied: None,
            scratch: folder.path().to_path_buf(),
            _folder: folder,
            _lock: None,
            guard: None,
        })
    }

    /// What makes private views, if that is possible; else why it is not.
    pub fn enclosures(&self) -> Result<&Arc<Enclosures>, &str> {
        let denied = self.denied.as_deref().unwrap_or_default();
        self.enclosures.as_ref().ok_or(denied)
    }

    /// A folder for the tool's own use.
    pub fn scratch(&self) -> PathBuf {
        self.scratch.clone()
    }

    /// A private view on what the layers say, if there is any.
    pub(crate) fn enclose(&self, below: &[Layer]) -> io::Result<Option<Arc<Enclosure>>> {
        let made = self.enclosures.as_ref();
        let view = made.map(|enclosures| enclosures.enclose(below).map(Arc::new));
        view.transpose()
    }
}

/// Patterns of the files that are persistent memory because they lie on a file system that is
/// mounted so. In a private view they lie elsewhere, and the kernel does not say it any more.
pub fn persistent_mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_dax = |option: &str| matches!(option, "dax" | "dax=always");
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let at = fields.nth(1)?;
            let options = fields.nth(1)?;
            options.split(',').any(is_dax).then(|| format!("{at}/**"))
        })
        .collect()
}

/// Starts a process that cleans up after this one if it is killed. It is told by the pipe when all
/// is well.
fn guard(folder: &Path) -> io::Result<PipeWriter> {
    let folder = fs::canonicalize(folder)?;
    brownout_host::guard::fork(move |mut waits| {
        let mut word = [0; 16];
        let told = loop {
            match io::Read::read(&mut waits, &mut word) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(n) => break n > 0,
                Err(_) => break false,
            }
        };
        if !told {
            end_orphans(&folder);
            remove_all(&folder);
        }
    })
}

/// Removes what dead tools of this user have left, if it is old enough.
fn sweep(place: &Path, age_min: Duration) {
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = |name: &str| name.starts_with(PREFIX);
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        let path = entry.path();
        let Ok(folder) = File::open(&path) else {
            continue;
        };
        let Ok(meta) = folder.metadata() else {
            continue;
        };
        let born = SystemTime::UNIX_EPOCH + Duration::from_secs(meta.ctime().max(0) as u64);
        let is_old = born.elapsed().is_ok_and(|age| age >= age_min);
        let is_linked = fs::symlink_metadata(&path).is_ok_and(|link| link.is_symlink());
        if !meta.is_dir() || is_linked || meta.uid() != user || !is_old {
            continue;
        }
        // SAFETY: our own descriptor. Whoever uses the folder has locked it.
        if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            if let Ok(path) = fs::canonicalize(&path) {
                end_orphans(&path);
            }
            remove_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder goes if nobody has locked it, and only then.
    #[test]
    fn what_the_dead_have_left_is_swept() {
        let place = tempfile::tempdir().expect("a folder");
        let [left, used, other] = ["left", "used", "other"].map(|name| {
            let prefix = if name == "other" { "mine-" } else { PREFIX };
            let folder = place.path().join(format!("{prefix}{name}"));
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("file"), b"x").expect("a write");
            folder
        });
        let lock = File::open(&used).expect("it is there");
        // SAFETY: our own descriptor.
        let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!(locked, 0);
        sweep(place.path(), AGE_MIN);
        let there = [&left, &used, &other].map(|folder| folder.exists());
        assert_eq!(there, [true; 3], "they are too young");
        sweep(place.path(), Duration::ZERO);
        let there = [&left, &used, &other].map(|folder| folder.exists());
        assert_eq!(there, [false, true, true]);
    }
}
