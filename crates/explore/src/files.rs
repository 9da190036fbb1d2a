//! Copies of files that are mostly holes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use brownout_model::LineBytes;

use crate::line::LINE;

const BLOCK: usize = 64 << 10;

/// Copies content, size and permissions. Blocks of zeros become holes: pools are large and nearly
/// empty.
pub fn copy_sparse(from: &File, to: &Path) -> io::Result<File> {
    let meta = from.metadata()?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        // Whatever the program thinks of permissions, this copy is ours.
        .mode(meta.permissions().mode() & 0o777 | 0o600)
        .open(to)?;
    file.set_len(meta.len())?;
    each_block(from, |at, block| file.write_all_at(block, at))?;
    Ok(file)
}

/// Feeds the content to a hash; holes and blocks of zeros count the same.
pub fn hash_sparse(from: &File, hash: &mut blake3::Hasher) -> io::Result<()> {
    hash.update(&from.metadata()?.len().to_le_bytes());
    each_block(from, |at, block| {
        hash.update(&at.to_le_bytes());
        hash.update(block);
        Ok(())
    })
}

/// A line of a file. Zeros beyond the end, and where it cannot be read: a file grows by zeros.
pub fn read_line(file: &File, offset: u64) -> LineBytes {
    let mut bytes = [0; LINE];
    read_from(file, offset, &mut bytes);
    bytes
}

/// Reads as much as there is; the rest of `bytes` stays as it is.
pub fn read_from(file: &File, offset: u64, bytes: &mut [u8]) {
    let mut got = 0;
    while let Ok(n) = file.read_at(&mut bytes[got..], offset + got as u64)
        && n > 0
    {
        got += n;
        if got == bytes.len() {
            break;
        }
    }
}

/// Calls `each` with every block that is not all zero, and its offset.
pub fn each_block(
    from: &File,
    mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut buffer = vec![0; BLOCK];
    let zeros = vec![0; BLOCK];
    let mut at = 0;
    while at < length {
        // SAFETY: a descriptor that is open for the whole call.
        let data = unsafe {
            libc::lseek(
                std::os::fd::AsRawFd::as_raw_fd(from),
                at as libc::off_t,
                libc::SEEK_DATA,
            )
        };
        if data < 0 {
            // Else it is a file system that cannot tell, and everything is data.
            if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) {
                break;
            }
        } else {
            at = at.max(data as u64 / BLOCK as u64 * BLOCK as u64);
        }
        let wanted = BLOCK.min((length - at) as usize);
        let got = from.read_at(&mut buffer[..wanted], at)?;
        if got == 0 {
            break;
        }
        if buffer[..got] != zeros[..got] {
            each(at, &buffer[..got])?;
        }
        at += got as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    fn copied(from: &Path) -> (File, std::path::PathBuf) {
        let to = from.with_extension("copy");
        let copy =
            copy_sparse(&File::open(from).expect("it is there"), &to).expect("it can be copied");
        (copy, to)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn copies_have_the_same_bytes(
            size in prop_oneof![0u64..200, 0u64..4 * BLOCK as u64 + 2, Just(3 * BLOCK as u64)],
            data in prop::collection::vec((any::<prop::sample::Index>(), 1usize..5000, any::<u8>()), 0..6),
            old in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let from = folder.path().join("file");
            let file = File::create(&from).expect("a file");
            file.set_len(size).expect("a size");
            for (at, len, byte) in data {
                if size > 0 {
                    let at = at.index(size as usize) as u64;
                    let len = (len as u64).min(size - at) as usize;
                    file.write_all_at(&vec![byte; len], at).expect("a write");
                }
            }
            // What was there before is gone.
            fs::write(from.with_extension("copy"), &old).expect("a write");
            let (copy, to) = copied(&from);
            prop_assert_eq!(fs::read(&from).expect("it is there"), fs::read(&to).expect("it is there"));
            // It is a file to write to, and not the same one.
            copy.write_all_at(b"other", size).expect("a write");
            prop_assert_eq!(fs::metadata(&from).expect("it is there").len(), size);
        }
    }

    #[test]
    fn zeros_take_no_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let from = folder.path().join("file");
        // Zeros that are really there, with a little data between and a hole behind.
        let mut bytes = vec![0; 64 * BLOCK];
        bytes[40 * BLOCK + 5] = 1;
        fs::write(&from, &bytes).expect("a write");
        let size = 1 << 34;
        let file = OpenOptions::new()
            .write(true)
            .open(&from)
            .expect("it is there");
        file.set_len(size).expect("a size");
        let (_, to) = copied(&from);
        let meta = fs::metadata(&to).expect("it is there");
        assert_eq!(meta.len(), size);
        assert!(
            meta.blocks() * 512 <= 4 * BLOCK as u64,
            "{} blocks",
            meta.blocks()
        );
        let mut byte = [0];
        let copy = File::open(&to).expect("it is there");
        copy.read_exact_at(&mut byte, 40 * BLOCK as u64 + 5)
            .expect("a read");
        assert_eq!(byte, [1]);
    }

    #[test]
    fn permissions_are_kept_but_the_copy_is_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        // The owner's: those of others are subject to the mask of the process.
        for (mode, expected) in [
            (0o600, 0o600),
            (0o400, 0o600),
            (0o700, 0o700),
            (0o500, 0o700),
        ] {
            let from = folder.path().join(format!("file-{mode:o}"));
            fs::write(&from, b"x").expect("a write");
            fs::set_permissions(&from, fs::Permissions::from_mode(mode)).expect("a mode");
            let (copy, _) = copied(&from);
            let got = copy.metadata().expect("metadata").permissions().mode() & 0o777;
            assert_eq!(got, expected, "of {mode:o}");
        }
    }
}
