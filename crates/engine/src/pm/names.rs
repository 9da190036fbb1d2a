//! What the program does to names, and to files that it does not map: creation, renaming, removal,
//! folders, sizes, `write`.
//!
//! Only in runs that ask for it. There, a regular file is tracked as soon as the program changes
//! it, be it persistent memory or not: before the first call that writes to it, truncates it, or
//! takes, gives or moves one of its names. So the tool has its content as it was. What the call
//! then does to names is recorded as a `Name` event once it has succeeded.
//!
//! Deviations: names of sockets, pipes and devices, and of symbolic links that were there before
//! the run, are not followed (`Unfollowed` says so), nor is asynchronous I/O. That permissions,
//! owner or extended attributes of a file were changed is recorded (`Attributes`), but not what
//! they were and are; times are not recorded at all. If another process changes the same names
//! between our look and the call, the event says what we saw.

use super::files::{self, fstat};
use super::record::event;
use crate::context::ThreadContext;
use crate::paths::resolve_folder;
use crate::sys::{nr, sc};
use alloc::vec::Vec;
use brownout_abi::{PAYLOAD_MAX, rare};
use brownout_syscalls::FileTarget;

const AT_FDCWD: u64 = -100i64 as u64;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const AT_EMPTY_PATH: u64 = 0x1000;
const RENAME_EXCHANGE: u64 = 2;
const RENAME_WHITEOUT: u64 = 4;

const O_ACCMODE: u64 = 3;
const O_TRUNC: u64 = 0o1000;
const O_PATH: u64 = 0o10_000_000;
const O_NOFOLLOW: u64 = 0o400_000;
const O_CLOEXEC: u64 = 0o2_000_000;
const O_TMPFILE: u64 = 0o20_000_000;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;

// What only this module names; the rest is in `sys::nr`.
const FSYNC: u64 = 74;
const TRUNCATE: u64 = 76;
const RENAME: u64 = 82;
const MKDIR: u64 = 83;
const RMDIR: u64 = 84;
const LINK: u64 = 86;
const UNLINK: u64 = 87;
const SYMLINK: u64 = 88;
const CHMOD: u64 = 90;
const FCHMOD: u64 = 91;
const CHOWN: u64 = 92;
const FCHOWN: u64 = 93;
const LCHOWN: u64 = 94;
const MKNOD: u64 = 133;
const SYNC: u64 = 162;
const SETXATTR: u64 = 188;
const LSETXATTR: u64 = 189;
const FSETXATTR: u64 = 190;
const REMOVEXATTR: u64 = 197;
const LREMOVEXATTR: u64 = 198;
const FREMOVEXATTR: u64 = 199;
const IO_SUBMIT: u64 = 209;
const MKDIRAT: u64 = 258;
const MKNODAT: u64 = 259;
const FCHOWNAT: u64 = 260;
const UNLINKAT: u64 = 263;
const RENAMEAT: u64 = 264;
const LINKAT: u64 = 265;
const SYMLINKAT: u64 = 266;
const FCHMODAT: u64 = 268;
const SYNCFS: u64 = 306;
const RENAMEAT2: u64 = 316;
const FCHMODAT2: u64 = 452;
const SETXATTRAT: u64 = 463;
const REMOVEXATTRAT: u64 = 466;

/// Numbers of `NameChange` in the trace crate.
mod change {
    pub const CREATE: u64 = 0;
    pub const LINK: u64 = 1;
    pub const UNLINK: u64 = 2;
    pub const RENAME: u64 = 3;
    pub const EXCHANGE: u64 = 4;
    pub const MKDIR: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const SYMLINK: u64 = 7;
    pub const RENAME_FOLDER: u64 = 8;
    pub const SYNC_FOLDER: u64 = 9;
    pub const SYNC_ALL: u64 = 10;
    pub const UNFOLLOWED: u64 = 11;
    pub const ATTRIBUTES: u64 = 12;
}

/// Whether a call is to come here.
pub fn concerns(number: u64) -> bool {
    crate::mode().names
        && (brownout_syscalls::is_file_write(number).is_some()
            || matches!(
                number,
                FSYNC
                    | nr::FDATASYNC
                    | RENAME
                    | MKDIR
                    | RMDIR
                    | LINK
                    | UNLINK
                    | SYMLINK
                    | MKNOD
                    | SYNC
                    | IO_SUBMIT
                    | MKDIRAT
                    | MKNODAT
                    | UNLINKAT
                    | RENAMEAT
                    | LINKAT
                    | SYMLINKAT
                    | SYNCFS
                    | RENAMEAT2
            )
            || attributes(number).is_some())
}

/// What of a file a call changes that is neither its names nor its content.
fn attributes(number: u64) -> Option<&'static [u8]> {
    Some(match number {
        CHMOD | FCHMOD | FCHMODAT | FCHMODAT2 => b"permissions",
        CHOWN | FCHOWN | LCHOWN | FCHOWNAT => b"owner",
        SETXATTR | LSETXATTR | FSETXATTR | SETXATTRAT => b"extended attributes",
        REMOVEXATTR | LREMOVEXATTR | FREMOVEXATTR | REMOVEXATTRAT => b"extended attributes",
        _ => return None,
    })
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Nothing,
    /// Its number; 0 if it is not tracked even now (a pseudo file system).
    File(u32),
    Folder,
    /// A symbolic link, a socket, a pipe, a device.
    Other,
}

impl Node {
    fn file(self) -> u32 {
        match self {
            Node::File(file) => file,
            _ => 0,
        }
    }
}

/// What was seen before a call.
pub enum Before {
    Nothing,
    Opens {
        /// The file is not there yet.
        creates: bool,
        flags: u64,
        /// The file that it empties.
        empties: u32,
    },
    /// One name, or two.
    Names {
        first: Place,
        first_was: Node,
        second: Place,
        second_was: Node,
    },
}

/// A name as a call gives it: a folder's descriptor and a path.
#[derive(Default)]
pub struct Place {
    folder: u64,
    path: Vec<u8>,
}

impl Place {
    fn new(folder: u64, path: u64) -> Place {
        Place {
            folder,
            path: crate::values::read_path(path).unwrap_or_default(),
        }
    }

    /// A descriptor of what is there, without access.
    fn open(&self, follow: bool) -> Option<Handle> {
        let mut path = self.path.clone();
        path.push(0);
        let flags = O_PATH | O_CLOEXEC | if follow { 0 } else { O_NOFOLLOW };
        // SAFETY: NUL-terminated; opens nothing for access.
        let fd = unsafe { sc!(nr::OPENAT, self.folder as i32, path.as_ptr(), flags) };
        (fd >= 0).then_some(Handle(fd as u64))
    }

    /// What is there. A regular file is tracked from now on.
    fn look(&self, ctx: &mut ThreadContext, follow: bool) -> Node {
        let Some(handle) = self.open(follow) else {
            return Node::Nothing;
        };
        let Some(s) = fstat(handle.0) else {
            return Node::Nothing;
        };
        match s.mode & S_IFMT {
            S_IFREG => Node::File(files::track_changed(ctx, handle.0)),
            S_IFDIR => Node::Folder,
            _ => Node::Other,
        }
    }

    /// Absolute, without symbolic links in the folder.
    fn absolute(&self) -> Option<Vec<u8>> {
        let mut path: &[u8] = &self.path;
        while path.len() > 1
            && let Some(short) = path.strip_suffix(b"/")
        {
            path = short;
        }
        let at = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
        let (folder, name) = path.split_at(at);
        let mut whole = resolve_folder(self.folder, folder)?;
        if !whole.ends_with(b"/") {
            whole.push(b'/');
        }
        whole.extend_from_slice(name);
        Some(whole)
    }
}

/// A descriptor of ours.
struct Handle(u64);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { sc!(nr::CLOSE, self.0) };
    }
}

/// Flags of a call that opens a file; none if it is another call.
fn open_flags(number: u64, a: &[u64; 6]) -> Option<(Place, u64)> {
    const CREAT_FLAGS: u64 = 0o100 | O_TRUNC | 1;
    Some(match number {
        nr::OPEN => (Place::new(AT_FDCWD, a[0]), a[1]),
        nr::CREAT => (Place::new(AT_FDCWD, a[0]), CREAT_FLAGS),
        nr::OPENAT => (Place::new(a[0], a[1]), a[2]),
        nr::OPENAT2 => {
            let mut flags = 0u64;
            // If it cannot be read, the call fails.
            crate::values::read_value(a[2], &mut flags);
            (Place::new(a[0], a[1]), flags)
        }
        _ => return None,
    })
}

/// Whether a descriptor is open for writing. Through others every change fails.
fn can_write(fd: u64) -> bool {
    const F_GETFL: u64 = 3;
    // SAFETY: asks only.
    let flags = unsafe { sc!(nr::FCNTL, fd, F_GETFL) };
    flags >= 0 && flags as u64 & O_ACCMODE != 0
}

/// Looks at what a call is about to change.
pub fn before(ctx: &mut ThreadContext, number: u64, a: &[u64; 6]) -> Before {
    if let Some((place, flags)) = open_flags(number, a) {
        if flags & O_PATH != 0 {
            return Before::Nothing;
        }
        let empties = match flags & O_TRUNC != 0 && flags & O_TMPFILE != O_TMPFILE {
            true => place.look(ctx, flags & O_NOFOLLOW == 0).file(),
            false => 0,
        };
        return Before::Opens {
            creates: files::creates(number, a),
            flags,
            empties,
        };
    }
    match number {
        TRUNCATE => {
            Place::new(AT_FDCWD, a[0]).look(ctx, true);
            return Before::Nothing;
        }
        FSYNC | nr::FDATASYNC | SYNC | SYNCFS | IO_SUBMIT => return Before::Nothing,
        _ => {}
    }
    if let Some(write) = brownout_syscalls::is_file_write(number) {
        if let FileTarget::Fd(n) = write.file
            && brownout_syscalls::asks_for_change(number, a)
            && fstat(a[n as usize]).is_some_and(|s| s.mode & S_IFMT == S_IFREG)
            && can_write(a[n as usize])
        {
            files::track_changed(ctx, a[n as usize]);
        }
        return Before::Nothing;
    }
    let (first, follow, second) = match number {
        RENAME => (
            Place::new(AT_FDCWD, a[0]),
            false,
            Place::new(AT_FDCWD, a[1]),
        ),
        RENAMEAT | RENAMEAT2 => (Place::new(a[0], a[1]), false, Place::new(a[2], a[3])),
        LINK => (
            Place::new(AT_FDCWD, a[0]),
            false,
            Place::new(AT_FDCWD, a[1]),
        ),
        LINKAT => (
            Place::new(a[0], a[1]),
            a[4] & AT_SYMLINK_FOLLOW != 0,
            Place::new(a[2], a[3]),
        ),
        UNLINK | RMDIR | MKDIR | MKNOD => (Place::new(AT_FDCWD, a[0]), false, Place::default()),
        UNLINKAT | MKDIRAT | MKNODAT => (Place::new(a[0], a[1]), false, Place::default()),
        SYMLINK => (
            Place::new(AT_FDCWD, a[1]),
            false,
            Place::new(AT_FDCWD, a[0]),
        ),
        SYMLINKAT => (Place::new(a[1], a[2]), false, Place::new(AT_FDCWD, a[0])),
        _ => return Before::Nothing,
    };
    let first_was = match number {
        LINKAT if a[4] & AT_EMPTY_PATH != 0 && first.path.is_empty() => {
            match fstat(a[0]).is_some_and(|s| s.mode & S_IFMT == S_IFREG) {
                true => Node::File(files::track_changed(ctx, a[0])),
                false => Node::Other,
            }
        }
        _ => first.look(ctx, follow),
    };
    let second_was = match number {
        RENAME | RENAMEAT | RENAMEAT2 => second.look(ctx, false),
        _ => Node::Nothing,
    };
    Before::Names {
        first,
        first_was,
        second,
        second_was,
    }
}

/// A call has been made, and nothing of it is recorded yet. A file system of layers may have copied
/// a file that it emptied.
pub fn made(ctx: &mut ThreadContext, before: &Before, result: i64) {
    if let Before::Opens { empties, .. } = before
        && *empties != 0
        && result >= 0
    {
        files::also_known_as(ctx, result as u64, *empties);
    }
}

/// Records what a call has done.
pub fn after(ctx: &mut ThreadContext, number: u64, a: &[u64; 6], before: Before, result: i64) {
    if result < 0 {
        return;
    }
    if let Some(what) = attributes(number) {
        return changed(ctx, number, a, what);
    }
    match number {
        FSYNC | nr::FDATASYNC => {
            if fstat(a[0]).is_some_and(|s| s.mode & S_IFMT == S_IFDIR) {
                let path = path_of(a[0]);
                record(ctx, change::SYNC_FOLDER, 0, 0, &path, &[]);
            }
            return;
        }
        SYNC | SYNCFS => return record(ctx, change::SYNC_ALL, 0, 0, &[], &[]),
        IO_SUBMIT => return unfollowed(ctx, &[], b"asynchronous input and output"),
        _ => {}
    }
    let (first, first_was, second, second_was) = match before {
        Before::Nothing => return,
        Before::Opens { creates, flags, .. } => return opened(ctx, result as u64, creates, flags),
        Before::Names {
            first,
            first_was,
            second,
            second_was,
        } => (first, first_was, second, second_was),
    };
    let target = second.path.clone();
    let Some(path) = first.absolute().or_else(|| {
        // A file without a name, by its descriptor.
        (number == LINKAT).then(Vec::new)
    }) else {
        return unfollowed(ctx, &first.path, b"a name in a folder that cannot be found");
    };
    let to = match number {
        RENAME | RENAMEAT | RENAMEAT2 | LINK | LINKAT => match second.absolute() {
            Some(to) => to,
            None => {
                return unfollowed(
                    ctx,
                    &second.path,
                    b"a name in a folder that cannot be found",
                );
            }
        },
        _ => Vec::new(),
    };
    let folder_goes = number == RMDIR || number == UNLINKAT && a[2] & AT_REMOVEDIR != 0;
    match number {
        MKDIR | MKDIRAT => record(ctx, change::MKDIR, 0, 0, &path, &[]),
        SYMLINK | SYMLINKAT => record(ctx, change::SYMLINK, 0, 0, &path, &target),
        _ if folder_goes => record(ctx, change::RMDIR, 0, 0, &path, &[]),
        UNLINK | UNLINKAT => record(ctx, change::UNLINK, first_was.file() as u64, 0, &path, &[]),
        MKNOD | MKNODAT => {
            let mode = a[if number == MKNOD { 1 } else { 2 }] as u32 & S_IFMT;
            if mode != S_IFREG && mode != 0 {
                return unfollowed(ctx, &path, b"a pipe, socket or device");
            }
            if let Some(handle) = first.open(false) {
                files::remember_creation(handle.0);
                let file = files::track_changed(ctx, handle.0);
                if file != 0 {
                    record(ctx, change::CREATE, file as u64, 0, &path, &[]);
                }
            }
        }
        LINK | LINKAT => match first_was {
            // On some file systems the file has another number now.
            Node::File(was) => {
                let file = renumbered(ctx, &second, was);
                if file != 0 {
                    record(ctx, change::LINK, file as u64, 0, &to, &[]);
                }
            }
            _ => unfollowed(ctx, &to, b"a link to something that is not a file"),
        },
        _ => {
            let flags = if number == RENAMEAT2 { a[4] } else { 0 };
            let (first, replaced) = (first_was, second_was);
            if flags & RENAME_WHITEOUT != 0 {
                return unfollowed(ctx, &path, b"a renaming that leaves a whiteout");
            }
            if flags & RENAME_EXCHANGE != 0 {
                return match (first, replaced) {
                    (Node::File(one), Node::File(two)) => {
                        record_two(ctx, change::EXCHANGE, one as u64, two as u64, &path, &to)
                    }
                    _ => unfollowed(ctx, &path, b"an exchange of names that are not both files"),
                };
            }
            match (first, replaced) {
                (Node::File(one), Node::File(two)) if one == two && one != 0 => {
                    // Two names of one file: nothing happens.
                }
                (Node::File(was), _) => {
                    let file = renumbered(ctx, &second, was);
                    let replaced = replaced.file() as u64;
                    record_two(ctx, change::RENAME, file as u64, replaced, &path, &to);
                }
                (Node::Folder, _) => {
                    record_two(ctx, change::RENAME_FOLDER, 0, 0, &path, &to);
                }
                // A symbolic link of the run's own is known by its name.
                (Node::Other, replaced) => {
                    record_two(ctx, change::RENAME, 0, replaced.file() as u64, &path, &to);
                }
                (Node::Nothing, _) => unfollowed(ctx, &path, b"a renaming"),
            }
        }
    }
}

/// Permissions, owner or extended attributes were changed: those of a regular file are told.
fn changed(ctx: &mut ThreadContext, number: u64, a: &[u64; 6], what: &[u8]) {
    // Where the flags of a call are, that begin with a folder and a path.
    let flags = match number {
        FCHOWNAT => a[4],
        FCHMODAT2 => a[3],
        SETXATTRAT | REMOVEXATTRAT => a[2],
        LCHOWN | LSETXATTR | LREMOVEXATTR => AT_SYMLINK_NOFOLLOW,
        _ => 0,
    };
    let place = match number {
        FCHMOD | FCHOWN | FSETXATTR | FREMOVEXATTR => return told(ctx, a[0], what),
        FCHMODAT | FCHMODAT2 | FCHOWNAT | SETXATTRAT | REMOVEXATTRAT => Place::new(a[0], a[1]),
        _ => Place::new(AT_FDCWD, a[0]),
    };
    if place.path.is_empty() {
        return told(ctx, place.folder, what);
    }
    if let Some(handle) = place.open(flags & AT_SYMLINK_NOFOLLOW == 0) {
        told(ctx, handle.0, what);
    }
}

fn told(ctx: &mut ThreadContext, fd: u64, what: &[u8]) {
    if fstat(fd).is_some_and(|s| s.mode & S_IFMT == S_IFREG) {
        let file = files::number(fd);
        let path = path_of(fd);
        record_two(ctx, change::ATTRIBUTES, file as u64, 0, &path, what);
    }
}

/// The file behind a name that it has just got: a file system of layers may have copied it, and the
/// copy is the same file.
fn renumbered(ctx: &mut ThreadContext, place: &Place, was: u32) -> u32 {
    if was != 0
        && let Some(handle) = place.open(false)
    {
        files::also_known_as(ctx, handle.0, was);
    }
    was
}

/// A file was opened.
fn opened(ctx: &mut ThreadContext, fd: u64, creates: bool, flags: u64) {
    let Some(s) = fstat(fd) else { return };
    if s.mode & S_IFMT != S_IFREG || !creates && flags & O_ACCMODE == 0 {
        return;
    }
    if creates {
        files::remember_creation(fd);
    }
    let file = files::track_changed(ctx, fd);
    if creates && file != 0 && flags & O_TMPFILE != O_TMPFILE {
        let path = path_of(fd);
        record(ctx, change::CREATE, file as u64, 0, &path, &[]);
    }
}

/// Where a descriptor leads, as the kernel says.
fn path_of(fd: u64) -> Vec<u8> {
    crate::paths::read_link(alloc::format!("/proc/self/fd/{}\0", fd as i32).as_bytes())
}

fn unfollowed(ctx: &mut ThreadContext, path: &[u8], what: &[u8]) {
    record_two(ctx, change::UNFOLLOWED, 0, 0, path, what);
}

fn record(ctx: &mut ThreadContext, what: u64, file: u64, replaced: u64, path: &[u8], to: &[u8]) {
    match to.is_empty() {
        true => emit(ctx, what, file, replaced, path),
        false => record_two(ctx, what, file, replaced, path, to),
    }
}

fn record_two(
    ctx: &mut ThreadContext,
    what: u64,
    file: u64,
    replaced: u64,
    path: &[u8],
    to: &[u8],
) {
    let mut names = path.to_vec();
    names.push(0);
    names.extend_from_slice(to);
    emit(ctx, what, file, replaced, &names);
}

fn emit(ctx: &mut ThreadContext, what: u64, file: u64, replaced: u64, names: &[u8]) {
    const TEXT_MAX: usize = PAYLOAD_MAX - 48;
    let (what, names) = match names.len() <= TEXT_MAX {
        true => (what, names),
        false => (
            change::UNFOLLOWED,
            &b"\0paths that are longer than 1,900 bytes"[..],
        ),
    };
    event(ctx, rare::NAME, [what, file, replaced, 0, 0, 0], names);
}
