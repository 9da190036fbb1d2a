//! The files of the program: which of them are tracked, under which numbers, and which the run has
//! made.

use super::record::event;
use crate::context::ThreadContext;
use crate::control::control;
use crate::service;
use crate::sys::{self, nr, sc};
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_abi::{CREATED_MAX, ClassifyAnswer, life, rare};
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether any file of this process is tracked, mapped or not.
static FILES: AtomicBool = AtomicBool::new(false);

/// A file that the tool has been asked about.
#[derive(Clone, Copy)]
struct Known {
    device: u64,
    inode: u64,
    /// Its life: inodes are used again.
    life: u64,
    /// Its number; 0 if it is not tracked.
    file: u32,
    /// It is not persistent memory, and tracked only because the run changes it.
    ordinary: bool,
    /// The tool has named it for this run.
    given: bool,
}

static KNOWN: crate::sync::SpinLock<Vec<Known>> = crate::sync::SpinLock::new(Vec::new());

/// Most files have an inode that no known one has had; only of others the life matters.
fn known(fd: u64, s: &Stat) -> Option<Known> {
    let same_inode = |k: &&Known| (k.device, k.inode) == (s.dev, s.ino);
    KNOWN.lock().iter().find(same_inode)?;
    let life = file_life(fd);
    let known = KNOWN.lock();
    let mut same = known.iter().filter(same_inode);
    same.find(|k| k.life == life).copied()
}

fn remember(fd: u64, s: &Stat, file: u32, ordinary: bool) {
    let life = file_life(fd);
    let mut known = KNOWN.lock();
    known.retain(|k| (k.device, k.inode) != (s.dev, s.ino));
    known.push(Known {
        device: s.dev,
        inode: s.ino,
        life,
        file,
        ordinary,
        given: false,
    });
}

/// See [`brownout_abi::file_life`].
fn file_life(fd: u64) -> u64 {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: u32,
        identity: [u8; 128],
    }
    const AT_EMPTY_PATH: u64 = 0x1000;
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        identity: [0; 128],
    };
    let mut mount = 0u32;
    // SAFETY: an empty path, our own variables, of which the kernel is told the size.
    let result = unsafe {
        sc!(
            nr::NAME_TO_HANDLE_AT,
            fd as i32,
            c"".as_ptr(),
            &mut handle as *mut _,
            &mut mount as *mut _,
            AT_EMPTY_PATH
        )
    };
    if result == 0 {
        let identity = &handle.identity[..(handle.bytes as usize).min(128)];
        return brownout_abi::file_life(handle.kind, identity);
    }
    const STATX_BTIME: u64 = 0x800;
    let mut statx = [0u64; 32];
    // SAFETY: an empty path and our own buffer of the kernel's size (256 bytes).
    let result = unsafe {
        sc!(
            nr::STATX,
            fd as i32,
            c"".as_ptr(),
            AT_EMPTY_PATH,
            STATX_BTIME,
            statx.as_mut_ptr()
        )
    };
    // `stx_mask` is the first word, `stx_btime` is at 80: seconds, then nanoseconds.
    if result != 0 || statx[0] & STATX_BTIME == 0 {
        return brownout_abi::file_life(life::UNKNOWN, &[]);
    }
    let birth = [
        statx[10].to_le_bytes(),
        (statx[11] as u32 as u64).to_le_bytes(),
    ];
    brownout_abi::file_life(life::BIRTH, birth.as_flattened())
}

/// Whether any file is tracked, mapped or not.
pub fn any() -> bool {
    FILES.load(Ordering::Relaxed)
}

/// Files that are tracked from the beginning. Called again where a run begins in a copy of a
/// process that had others.
pub fn init_files() {
    let c = control();
    if !crate::mode().record {
        return;
    }
    let given = &c.known[..c.known_count as usize];
    let given = given.iter().map(|k| Known {
        device: k.device,
        inode: k.inode,
        life: k.life,
        file: k.file,
        ordinary: false,
        given: true,
    });
    let mut known = KNOWN.lock();
    known.retain(|k| !k.given);
    known.extend(given);
    if !known.is_empty() {
        FILES.store(true, Ordering::Relaxed);
    }
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    KNOWN.reset_after_fork();
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    nlink: u64,
    pub mode: u32,
    _rest: [u32; 5],
    pub size: u64,
    _more: [u64; 11],
}

pub fn fstat(fd: u64) -> Option<Stat> {
    let mut s = Stat::default();
    // SAFETY: our own buffer of at least the kernel's size (144 bytes).
    (unsafe { sc!(nr::FSTAT, fd as i32, &mut s as *mut _) } == 0).then_some(s)
}
const _: () = assert!(core::mem::size_of::<Stat>() == 144);

/// What a path of the program's leads to, links followed.
pub fn stat_at(folder: u64, path: u64) -> Option<Stat> {
    const NEWFSTATAT: u64 = 262;
    let mut s = Stat::default();
    // SAFETY: as above; of the path, which is the program's, the kernel says whether it can be
    // read.
    (unsafe { sc!(NEWFSTATAT, folder as i32, path, &mut s as *mut _, 0) } == 0).then_some(s)
}

/// What kind of file a descriptor is, and its permissions.
pub fn file_mode(fd: u64) -> Option<u32> {
    fstat(fd).map(|s| s.mode)
}

pub fn tracked_file(fd: u64) -> Option<u32> {
    if !any() {
        return None;
    }
    known(fd, &fstat(fd)?)
        .map(|k| k.file)
        .filter(|&file| file != 0)
}

/// Whether what is written there is seen by the world, and not only kept in a tracked file.
pub fn is_world(fd: u64) -> bool {
    if !any() {
        return true;
    }
    match fstat(fd).and_then(|s| known(fd, &s)) {
        // A standard stream that is kept in a file is read by somebody.
        Some(k) => k.file == 0 || k.ordinary && fd <= 2,
        None => true,
    }
}

/// A regular file that the program is about to change, or has just made: its number; 0 if it is of
/// no interest.
pub fn track_changed(ctx: &mut ThreadContext, fd: u64) -> u32 {
    let Some(s) = fstat(fd) else { return 0 };
    match known(fd, &s) {
        Some(k) => k.file,
        None => ask(ctx, fd, &s, false, false, false, true).unwrap_or(0),
    }
}

/// The number of the file behind a descriptor; 0 if it is not tracked until now.
pub fn number(fd: u64) -> u32 {
    let known = fstat(fd).and_then(|s| known(fd, &s));
    known.map_or(0, |known| known.file)
}

/// The file behind a descriptor is number `file`, whatever device and inode it has now.
pub fn also_known_as(_: &mut ThreadContext, fd: u64, file: u32) {
    if let Some(s) = fstat(fd)
        && known(fd, &s).is_none_or(|k| k.file != file)
    {
        let ordinary = KNOWN.lock().iter().any(|k| k.file == file && k.ordinary);
        service::same_file(s.dev, s.ino, file_life(fd), file);
        remember(fd, &s, file, ordinary);
    }
}

/// The file position of a descriptor.
pub fn position(fd: i32) -> u64 {
    // SAFETY: lseek(fd, 0, SEEK_CUR).
    unsafe { sc!(nr::LSEEK, fd, 0, 1) as u64 }
}

/// Tells of a stretch of a tracked file that was read.
pub fn file_was_read(ctx: &mut ThreadContext, file: u32, offset: u64, len: u64) {
    // Sizes are 32 bits; a longer read is several events.
    const PIECE: u64 = 1 << 30;
    let mut at = 0;
    while at < len {
        let size = (len - at).min(PIECE);
        let words = [file as u64, offset + at, size, 0, 0, 0];
        event(ctx, rare::FILE_READ, words, &[]);
        at += size;
    }
}

/// Asks whether the file behind `fd` is persistent memory; its number if so.
pub fn classify(
    ctx: &mut ThreadContext,
    fd: u64,
    map_sync: bool,
    registered: bool,
    writable: bool,
) -> Option<u32> {
    let s = fstat(fd)?;
    if s.mode & 0o170000 != 0o100000 {
        return None;
    }
    if let Some(k) = known(fd, &s)
        && !k.ordinary
    {
        return Some(k.file).filter(|&file| file != 0);
    }
    ask(ctx, fd, &s, map_sync, registered, writable, false)
}

/// Lets the owner of a file (we, and the tool) read it although its mode does not: libpmemobj
/// creates pools with no permissions at all and grants them when the pool is complete. The
/// program's thread waits meanwhile and finds the mode as it was.
pub struct Readable {
    fd: u64,
    mode: u32,
}

impl Readable {
    const FCHMOD: u64 = 91;

    pub fn make(fd: u64, mode: u32) -> Option<Readable> {
        const EACCES: i64 = 13;
        let own = open_again(fd);
        if own >= 0 {
            // SAFETY: our own descriptor.
            unsafe { sc!(nr::CLOSE, own) };
        }
        let mode = mode & 0o7777;
        // SAFETY: changes the mode of the program's file for a moment.
        let readable = own == -EACCES && unsafe { sc!(Self::FCHMOD, fd as i32, mode | 0o400) } == 0;
        readable.then_some(Readable { fd, mode })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        // SAFETY: gives the program's file its mode again.
        unsafe { sc!(Self::FCHMOD, self.fd as i32, self.mode) };
    }
}

/// A descriptor of our own for reading, or an error.
pub fn open_again(fd: u64) -> i64 {
    let path = alloc::format!("/proc/self/fd/{}\0", fd as i32);
    // SAFETY: NUL-terminated; O_RDONLY|O_CLOEXEC.
    unsafe { sc!(nr::OPEN, path.as_ptr(), 0x8_0000) }
}

/// Asks the tool about a file, and records what is new. `changed`: it is not about to be mapped.
fn ask(
    ctx: &mut ThreadContext,
    fd: u64,
    s: &Stat,
    map_sync: bool,
    registered: bool,
    writable: bool,
    changed: bool,
) -> Option<u32> {
    let link = alloc::format!("/proc/self/fd/{}\0", fd as i32);
    let path = crate::paths::read_link(link.as_bytes());
    let dax = is_dax(fd);
    let args = [
        s.dev,
        s.ino,
        map_sync as u64,
        registered as u64,
        dax as u64,
        fd as i32 as u64 & 0xffff_ffff | (writable as u64) << 32 | (changed as u64) << 33,
        ctx.tid as u64,
        file_life(fd),
    ];
    // The tool may want to copy the content.
    let readable = Readable::make(fd, s.mode);
    let (answer, file, ordinary) = service::classify_file(&args, &path);
    drop(readable);
    if answer == ClassifyAnswer::Ordinary {
        if changed {
            // Not asked again at each call.
            remember(fd, s, 0, false);
            FILES.store(true, Ordering::Relaxed);
        }
        return None;
    }
    // A file that the run changes has turned out to be persistent memory.
    let is_upgrade = !ordinary && known(fd, s).is_some_and(|k| k.ordinary);
    remember(fd, s, file, ordinary);
    FILES.store(true, Ordering::Relaxed);
    if answer == ClassifyAnswer::TrackedNew || is_upgrade {
        let reason = if ordinary {
            4
        } else if map_sync {
            1
        } else if registered {
            2
        } else if dax {
            3
        } else {
            0
        };
        event(
            ctx,
            rare::FILE,
            [file as u64, s.size, reason, was_created(s) as u64, 0, 0],
            &path,
        );
    }
    Some(file)
}

/// Whether the file is accessed without page cache, as the kernel tells (STATX_ATTR_DAX).
fn is_dax(fd: u64) -> bool {
    const STATX_ATTR_DAX: u64 = 0x20_0000;
    let mut buffer = [0u64; 32];
    let empty = [0u8];
    // SAFETY: statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, buffer of 256 bytes).
    let r = unsafe {
        sc!(
            nr::STATX,
            fd as i32,
            empty.as_ptr(),
            0x1000,
            0x7ff,
            buffer.as_mut_ptr()
        )
    };
    r == 0 && buffer[1] & STATX_ATTR_DAX != 0
}

// ---------------------------------------------------------------- creation

const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_TMPFILE: u64 = 0o20_000_000;

/// Whether the call, if it succeeds, makes a file.
pub fn creates(number: u64, a: &[u64; 6]) -> bool {
    const AT_FDCWD: u64 = -100i64 as u64;
    let mut flags = 0u64;
    let (folder, path) = match number {
        nr::OPEN => {
            flags = a[1];
            (AT_FDCWD, a[0])
        }
        nr::CREAT => {
            flags = O_CREAT;
            (AT_FDCWD, a[0])
        }
        nr::OPENAT => {
            flags = a[2];
            (a[0], a[1])
        }
        nr::OPENAT2 => {
            // If it cannot be read, the call fails.
            read_value(a[2], &mut flags);
            (a[0], a[1])
        }
        _ => return false,
    };
    if flags & O_TMPFILE != 0 || flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
        return true;
    }
    const F_OK: u64 = 0;
    // SAFETY: only asks; the kernel checks the program's path.
    flags & O_CREAT != 0
        && unsafe {
            sc!(
                nr::FACCESSAT,
                folder as i32,
                super::readable_alias(path),
                F_OK
            )
        } == -sys::ENOENT
}

pub fn remember_creation(fd: u64) {
    let Some(s) = fstat(fd) else { return };
    let c = control();
    let n = c.created_count.fetch_add(1, Ordering::AcqRel) as usize % CREATED_MAX;
    c.created[n][0].store(s.dev, Ordering::Relaxed);
    c.created[n][1].store(s.ino, Ordering::Release);
}

/// Whether a process of this run has made the file.
pub fn was_created(s: &Stat) -> bool {
    let c = control();
    let count = (c.created_count.load(Ordering::Acquire) as usize).min(CREATED_MAX);
    c.created[..count].iter().any(|entry| {
        entry[1].load(Ordering::Acquire) == s.ino && entry[0].load(Ordering::Relaxed) == s.dev
    })
}
