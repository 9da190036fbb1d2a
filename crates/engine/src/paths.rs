//! Paths as the kernel resolves them.

use crate::sys::{nr, sc};
use alloc::vec::Vec;

/// Folder with its slash, and last component.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let name = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    path.split_at(name)
}

/// Absolute path of a folder without symbolic links, as the kernel sees it.
pub fn resolve_folder(folder: u64, path: &[u8]) -> Option<Vec<u8>> {
    const O_PATH_DIRECTORY_CLOEXEC: u64 = 0o10_000_000 | 0o200_000 | 0o2_000_000;
    let mut name = Vec::with_capacity(path.len() + 2);
    name.extend_from_slice(if path.is_empty() { b"." } else { path });
    name.push(0);
    // SAFETY: NUL-terminated; opens nothing for access.
    let fd = unsafe {
        sc!(
            nr::OPENAT,
            folder as i32,
            name.as_ptr(),
            O_PATH_DIRECTORY_CLOEXEC
        )
    };
    if fd < 0 {
        return None;
    }
    let link = read_link(alloc::format!("/proc/self/fd/{fd}\0").as_bytes());
    // SAFETY: our own descriptor.
    unsafe { sc!(nr::CLOSE, fd) };
    link.starts_with(b"/").then_some(link)
}

/// Target of a symbolic link; none if there is no link of that name. `path` is NUL-terminated.
pub fn read_link_at(folder: u64, path: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = alloc::vec![0u8; 4096];
    // SAFETY: NUL-terminated path, our own buffer.
    let n = unsafe {
        sc!(
            nr::READLINKAT,
            folder as i32,
            path.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len()
        )
    };
    buffer.truncate(usize::try_from(n).ok()?);
    Some(buffer)
}

/// Target of a symbolic link in `/proc`; `path` is NUL-terminated.
pub fn read_link(path: &[u8]) -> Vec<u8> {
    let mut buffer = alloc::vec![0u8; 4096];
    // SAFETY: NUL-terminated path, our own buffer.
    let n = unsafe {
        sc!(
            nr::READLINK,
            path.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len()
        )
    };
    buffer.truncate(n.max(0) as usize);
    buffer
}
