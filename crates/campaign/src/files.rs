//! Whole files, written so that nobody ever sees half of one.
//!
//! **Guarantee.** [`write_whole`] leaves either the old file or the new one under the name,
//! whatever happens in between: a full disk, `kill -9`, and with [`Durability::Synced`] the loss of
//! power, too. On an error the old file is untouched and no temporary file is left; `kill -9` may
//! leave one, which [`remove_temporaries`] recognises by its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How every temporary file begins. The dot sorts it before `id:…`, where AFL++ does not look.
pub const TEMPORARY_PREFIX: &str = ".brownout-tmp-";

/// What a written file must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the tool, `kill -9` included: the kernel has the bytes. Costs nothing.
    Process,
    /// The loss of power, too: file and folder are synchronised. Costs as long as the disk takes.
    Synced,
}

/// Writes `bytes` to a temporary file beside `path` and gives it that name.
pub fn write_whole(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let (temporary, mut file) = create_temporary(folder)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| match durability {
            Durability::Process => Ok(()),
            Durability::Synced => file.sync_all(),
        })
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The error that matters is the first.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match durability {
        Durability::Process => Ok(()),
        Durability::Synced => File::open(folder)?.sync_all(),
    }
}

fn create_temporary(folder: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id());
        let path = folder.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // A process that had our number was killed here.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
            Ok(file) => return Ok((path, file)),
        }
    }
}

/// Whether a file name is that of a temporary file.
pub fn is_temporary(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes()
        .starts_with(TEMPORARY_PREFIX.as_bytes())
}

/// Removes what a killed process has left in `folder`. Only for who has the folder to itself.
pub fn remove_temporaries(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_temporary(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for durability in [Durability::Process, Durability::Synced] {
            write_whole(&path, b"longer than the next", durability).unwrap();
            write_whole(&path, b"new", durability).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(names(folder.path()), ["file"]);
        }
    }

    #[test]
    fn the_longest_name_is_possible() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n".repeat(255));
        write_whole(&path, b"x", Durability::Process).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(write_whole(&path, b"x", Durability::Process).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }

    #[test]
    fn leftovers_are_passed_over_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let leftover = format!("{TEMPORARY_PREFIX}1-2");
        fs::write(folder.path().join(leftover), "half").unwrap();
        write_whole(&folder.path().join("file"), b"x", Durability::Process).unwrap();
        remove_temporaries(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["file"]);
    }
}
