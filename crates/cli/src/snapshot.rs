//! A copy of a file as it is now: shared blocks where the file system can, else only the parts
//! that hold data.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use brownout_trace::verify::copy_sparse;

/// Copies the content of `from` to the new file `to`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = File::create_new(to)?;
    // SAFETY: both descriptors are open for the duration of the call, which takes no pointers.
    if unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) } == 0 {
        return Ok(());
    }
    copy_sparse(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn sparse_files_stay_sparse_and_equal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        let pool = File::create_new(&path).unwrap();
        pool.set_len(64 << 20).unwrap();
        pool.write_all_at(b"first", 0).unwrap();
        pool.write_all_at(b"middle", (32 << 20) + 5).unwrap();
        pool.write_all_at(b"last", (64 << 20) - 4).unwrap();
        let to = folder.path().join("copy");
        copy(&path, &to).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&to).unwrap());
        let (old, new) = (
            pool.metadata().unwrap().blocks(),
            to.metadata().unwrap().blocks(),
        );
        assert!(new <= old + 16, "{new} blocks against {old}");
    }

    #[test]
    fn empty_and_hole_only_files() {
        let folder = tempfile::tempdir().unwrap();
        for (name, len) in [("empty", 0), ("hole", 10 << 20)] {
            let path = folder.path().join(name);
            File::create(&path).unwrap().set_len(len).unwrap();
            let to = folder.path().join(format!("{name}.copy"));
            copy(&path, &to).unwrap();
            assert_eq!(to.metadata().unwrap().len(), len);
        }
    }

    #[test]
    fn an_existing_target_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(copy(file.path(), file.path()).is_err());
    }
}
