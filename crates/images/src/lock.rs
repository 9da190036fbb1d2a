//! Who may write to a store: one process, by one [`Store`](crate::Store).
//!
//! The tool forks all the time. A child has the descriptors of its parent until it executes
//! something else, and with them any lock that belongs to a descriptor: a tool that was killed
//! would keep its store locked as long as one of its children lives, and a store that was closed
//! could not be opened again while another thread launches something. So the lock is one of those
//! that belong to a process. Such a lock is lost when *any* descriptor of the file is closed, so it
//! is on a file of its own; and it is granted to the same process again, so a table says what this
//! one has.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// The name of the file in the store's folder.
const NAME: &str = "images.lock";

/// The folders of the stores that this process writes to, by device and inode: a folder may have
/// several paths, or (in a mount of the tool's own) none that leads there by itself.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// Lets nobody else write to a store as long as it is there.
pub(crate) struct Lock {
    folder: (u64, u64),
    /// The lock goes when this is closed.
    file: Option<File>,
}

impl Lock {
    /// `None` if somebody has it.
    pub fn take(folder: &Path) -> io::Result<Option<Lock>> {
        let meta = folder.metadata()?;
        let number = (meta.dev(), meta.ino());
        let mut held = held();
        // Not even opened: closing it would end the lock that this process has.
        if held.contains(&number) {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(folder.join(NAME))?;
        // SAFETY: plain data, for which zero is right where nothing else is set.
        let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
        // All of the file: from its beginning, without an end.
        wanted.l_type = libc::F_WRLCK as libc::c_short;
        wanted.l_whence = libc::SEEK_SET as libc::c_short;
        // SAFETY: a descriptor that is open, and a structure of ours.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &wanted) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(None),
                _ => Err(error),
            };
        }
        held.insert(number);
        Ok(Some(Lock {
            folder: number,
            file: Some(file),
        }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = held();
        // Before others may take it: they would lose theirs by this.
        self.file = None;
        held.remove(&self.folder);
    }
}

fn held() -> MutexGuard<'static, BTreeSet<(u64, u64)>> {
    // A set is whole whatever a thread that panicked was doing.
    HELD.lock().unwrap_or_else(|poison| poison.into_inner())
}
