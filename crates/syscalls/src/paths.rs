//! Which arguments of a system call are paths of files.

/// Whether a call resolves its path's last component if that is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It does.
    Followed,
    /// It does not.
    Kept,
    /// As the bit in an argument says: index, bit, whether the bit means following.
    Flag(u8, u64, bool),
}

/// A path argument: index of the folder's descriptor if there is one, index of the path.
pub type PathArgument = (Option<u8>, u8, Links);

/// What of a call's arguments are paths of files.
pub fn path_arguments(number: u64) -> &'static [PathArgument] {
    use Links::{Flag, Followed, Kept};
    const NOFOLLOW: u64 = 0x100;
    const O_NOFOLLOW: u64 = 0o400_000;
    match number {
        // open, creat
        2 => &[(None, 0, Flag(1, O_NOFOLLOW, false))],
        85 => &[(None, 0, Followed)],
        // stat, access, truncate, chmod, chown, utime, statfs, utimes, setxattr, getxattr,
        // listxattr, removexattr
        4 | 21 | 76 | 90 | 92 | 132 | 137 | 235 | 188 | 191 | 194 | 197 => &[(None, 0, Followed)],
        // lstat, unlink, readlink, lchown, lsetxattr, lgetxattr, llistxattr, lremovexattr
        6 | 87 | 89 | 94 | 189 | 192 | 195 | 198 => &[(None, 0, Kept)],
        // rename, link
        82 | 86 => &[(None, 0, Kept), (None, 1, Kept)],
        // symlink, symlinkat: the link itself
        88 => &[(None, 1, Kept)],
        266 => &[(Some(1), 2, Kept)],
        // openat; openat2, whose flags are behind a pointer
        257 => &[(Some(0), 1, Flag(2, O_NOFOLLOW, false))],
        437 => &[(Some(0), 1, Followed)],
        // fchownat, newfstatat, utimensat, faccessat2, fchmodat2
        260 => &[(Some(0), 1, Flag(4, NOFOLLOW, false))],
        262 | 280 | 439 | 452 => &[(Some(0), 1, Flag(3, NOFOLLOW, false))],
        // statx, and the at-forms of the attribute calls
        332 | 463 | 464 | 465 | 466 => &[(Some(0), 1, Flag(2, NOFOLLOW, false))],
        // file_getattr, file_setattr
        468 | 469 => &[(Some(0), 1, Flag(4, NOFOLLOW, false))],
        // name_to_handle_at has AT_SYMLINK_FOLLOW
        303 => &[(Some(0), 1, Flag(4, 0x400, true))],
        // futimesat, fchmodat, faccessat
        261 | 268 | 269 => &[(Some(0), 1, Followed)],
        // unlinkat, readlinkat
        263 | 267 => &[(Some(0), 1, Kept)],
        // renameat, renameat2, linkat
        264 | 316 => &[(Some(0), 1, Kept), (Some(2), 3, Kept)],
        265 => &[(Some(0), 1, Flag(4, 0x400, true)), (Some(2), 3, Kept)],
        // inotify_add_watch
        254 => &[(None, 1, Followed)],
        _ => &[],
    }
}
