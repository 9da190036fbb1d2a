//! Files that the program finds elsewhere: it names one path, the kernel is told another.
//!
//! A path that leads to itself is only told of: a program in a private view finds its files at
//! their own names.
//!
//! The table comes with the control block, so it holds for every program of a run. A path is
//! compared in two steps. Its last component is compared with those in the table, which decides
//! nearly always. Only if one matches is the folder resolved by the kernel, and the whole compared.
//!
//! A symbolic link to a redirected file leads where the file's own name would, if the call follows
//! links. Deviations: the program may notice by `/proc/self/fd`, by listing the folder, and by
//! device and inode numbers; renaming between a redirected path and another one that is not may
//! cross file systems; `openat2` that forbids absolute paths fails.

use crate::context::ThreadContext;
use crate::control::control;
use crate::paths::{read_link_at, resolve_folder, split};
use alloc::vec::Vec;
use brownout_abi::REDIRECTS_LEN;
use brownout_syscalls::paths::{Links, path_arguments};
use brownout_syscalls::pipeline::{Call, Rest, Stage};

/// One row of the table. The bytes are in the control block, where they stay as they are.
#[derive(Clone, Copy)]
struct Redirect {
    /// Folder of the path that the program gives, without a slash at its end.
    folder: &'static [u8],
    name: &'static [u8],
    /// NUL-terminated.
    target: &'static [u8],
    /// It leads to itself: the path is looked for only to be told of.
    stays: bool,
}

static mut TABLE: &[Redirect] = &[];

fn table() -> &'static [Redirect] {
    // SAFETY: written once in `init`, before any other thread exists.
    unsafe { TABLE }
}

/// Reads the table. Called once, by the first thread.
pub fn init() {
    let control = control();
    let mut rest: &'static [u8] = &control.redirects[..REDIRECTS_LEN];
    let mut next = || {
        let end = rest.iter().position(|&byte| byte == 0)?;
        let (path, behind) = rest.split_at(end + 1);
        rest = behind;
        Some(path)
    };
    let mut rows = Vec::new();
    for _ in 0..control.redirect_count {
        let (Some(path), Some(target)) = (next(), next()) else {
            break;
        };
        let stays = path == target;
        let (folder, name) = split(&path[..path.len() - 1]);
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        rows.push(Redirect {
            folder,
            name,
            target,
            stays,
        });
    }
    // SAFETY: the only thread.
    unsafe { TABLE = Vec::leak(rows) };
}

/// Leads paths elsewhere.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "redirects",
    // Whether there are any differs between the runs of one session, so the table may fill up
    // later.
    takes: |number| !path_arguments(number).is_empty(),
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    if table().is_empty() {
        return rest.make(ctx, call);
    }
    let mut args = call.args;
    let redirected = apply(call.number, &mut args);
    let result = rest.make(ctx, &call.with(args))?;
    for path in redirected {
        crate::pm::looked_up(ctx, call.number, result, &path);
    }
    Some(result)
}

/// Replaces paths among the arguments of a call. Returns those that are in the table, as the
/// program gave them.
fn apply(number: u64, args: &mut [u64; 6]) -> Vec<Vec<u8>> {
    let mut replaced = Vec::new();
    for &(folder, path, links) in path_arguments(number) {
        let follow = match links {
            Links::Followed => true,
            Links::Kept => false,
            Links::Flag(arg, bit, means_follow) => (args[arg as usize] & bit != 0) == means_follow,
        };
        const AT_FDCWD: u64 = -100i64 as u64;
        let folder = folder.map_or(AT_FDCWD, |arg| args[arg as usize]);
        if args[path as usize] != 0
            && let Some(given) = crate::values::read_path(args[path as usize])
            && let Some(row) = target_of(folder, &given, follow)
        {
            if !row.stays {
                args[path as usize] = row.target.as_ptr() as u64;
            }
            replaced.push(given);
        }
    }
    replaced
}

/// What the table says of a path.
fn target_of(folder: u64, given: &[u8], follow: bool) -> Option<&'static Redirect> {
    /// As many links as the kernel follows.
    const LINKS_MAX: u32 = 40;
    let mut path = given.to_vec();
    for _ in 0..LINKS_MAX {
        if let Some(row) = matching(folder, &path) {
            return Some(row);
        }
        if !follow || path.is_empty() {
            return None;
        }
        path.push(0);
        let link = read_link_at(folder, &path)?;
        path.pop();
        if link.starts_with(b"/") {
            path = link;
        } else {
            let keep = split(&path).0.len();
            path.truncate(keep);
            path.extend_from_slice(&link);
        }
    }
    None
}

fn matching(folder: u64, path: &[u8]) -> Option<&'static Redirect> {
    let (given_folder, name) = split(path);
    if name.is_empty() || !table().iter().any(|row| row.name == name) {
        return None;
    }
    let of = |folder: &[u8]| {
        table()
            .iter()
            .find(|row| row.name == name && row.folder == folder)
    };
    let as_given = given_folder.strip_suffix(b"/").unwrap_or(given_folder);
    if given_folder.starts_with(b"/")
        && let Some(row) = of(as_given)
    {
        return Some(row);
    }
    let resolved = resolve_folder(folder, given_folder)?;
    // The root folder is its own slash.
    of(resolved.strip_suffix(b"/").unwrap_or(&resolved))
}
