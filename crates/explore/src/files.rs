//! Copies of files that are mostly holes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const BLOCK: usize = 64 << 10;

/// Copies content, size and permissions. Blocks of zeros become holes: pools are large and nearly empty.
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
    let mut buffer = vec![0; BLOCK];
    let zeros = vec![0; BLOCK];
    let mut at = 0;
    while at < meta.len() {
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
        let wanted = BLOCK.min((meta.len() - at) as usize);
        let got = from.read_at(&mut buffer[..wanted], at)?;
        if got == 0 {
            break;
        }
        if buffer[..got] != zeros[..got] {
            file.write_all_at(&buffer[..got], at)?;
        }
        at += got as u64;
    }
    Ok(file)
}
