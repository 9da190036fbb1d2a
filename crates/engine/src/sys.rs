//! Raw system calls. The engine has no libc; these are its only way out.

pub use crate::copy::{read_memory, write_memory};
use core::arch::asm;

/// Makes a system call.
///
/// # Safety
/// The caller promises that the call, with these arguments, keeps the engine's own memory intact.
#[inline(always)]
pub unsafe fn syscall6(nr: u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    let ret: i64;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") nr as i64 => ret, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
             options(nostack));
    }
    ret
}

/// [`syscall6`] with trailing zeros.
///
/// # Safety
/// As [`syscall6`].
macro_rules! sc {
    ($nr:expr $(, $a:expr)*) => { $crate::sys::sc_pad($nr, &[$($a as u64),*]) };
}
pub(crate) use sc;

/// # Safety
/// As [`syscall6`].
#[inline(always)]
pub unsafe fn sc_pad(nr: u64, a: &[u64]) -> i64 {
    let g = |i: usize| if i < a.len() { a[i] } else { 0 };
    // SAFETY: passed on.
    unsafe { syscall6(nr, g(0), g(1), g(2), g(3), g(4), g(5)) }
}

/// System call numbers that the engine names.
#[allow(missing_docs)]
pub mod nr {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const FSTAT: u64 = 5;
    pub const LSEEK: u64 = 8;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const PREAD64: u64 = 17;
    pub const PWRITE64: u64 = 18;
    pub const READV: u64 = 19;
    pub const WRITEV: u64 = 20;
    pub const SCHED_YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MSYNC: u64 = 26;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const NANOSLEEP: u64 = 35;
    pub const GETPID: u64 = 39;
    pub const SENDFILE: u64 = 40;
    pub const SENDTO: u64 = 44;
    pub const RECVFROM: u64 = 45;
    pub const SENDMSG: u64 = 46;
    pub const RECVMSG: u64 = 47;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const FCNTL: u64 = 72;
    pub const FDATASYNC: u64 = 75;
    pub const GETTIMEOFDAY: u64 = 96;
    pub const CREAT: u64 = 85;
    pub const READLINK: u64 = 89;
    pub const GETPPID: u64 = 110;
    pub const RT_SIGPENDING: u64 = 127;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const SIGALTSTACK: u64 = 131;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const SYNC: u64 = 162;
    pub const GETTID: u64 = 186;
    pub const TKILL: u64 = 200;
    pub const TIME: u64 = 201;
    pub const FUTEX: u64 = 202;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const EXIT_GROUP: u64 = 231;
    pub const TGKILL: u64 = 234;
    pub const OPENAT: u64 = 257;
    pub const READLINKAT: u64 = 267;
    pub const FACCESSAT: u64 = 269;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const SPLICE: u64 = 275;
    pub const TEE: u64 = 276;
    pub const VMSPLICE: u64 = 278;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const PIPE2: u64 = 293;
    pub const PREADV: u64 = 295;
    pub const PWRITEV: u64 = 296;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const SYNCFS: u64 = 306;
    pub const SENDMMSG: u64 = 307;
    pub const GETCPU: u64 = 309;
    pub const GETRANDOM: u64 = 318;
    pub const MEMFD_CREATE: u64 = 319;
    pub const UNSHARE: u64 = 272;
    pub const SETNS: u64 = 308;
    pub const EXECVEAT: u64 = 322;
    pub const COPY_FILE_RANGE: u64 = 326;
    pub const PREADV2: u64 = 327;
    pub const PWRITEV2: u64 = 328;
    pub const PKEY_MPROTECT: u64 = 329;
    pub const NAME_TO_HANDLE_AT: u64 = 303;
    pub const STATX: u64 = 332;
    pub const RSEQ: u64 = 334;
    pub const IO_URING_SETUP: u64 = 425;
    pub const CLONE3: u64 = 435;
    pub const OPENAT2: u64 = 437;
    pub const PROCESS_MADVISE: u64 = 440;
    pub const EPOLL_PWAIT2: u64 = 441;
}

pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_SHARED_VALIDATE: u64 = 3;
pub const MAP_TYPE: u64 = 0xf;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_NORESERVE: u64 = 0x4000;
pub const MAP_SYNC: u64 = 0x8_0000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
pub const MREMAP_MAYMOVE: u64 = 1;
pub const MREMAP_FIXED: u64 = 2;

pub const ENOENT: i64 = 2;
pub const ESRCH: i64 = 3;
pub const EINTR: i64 = 4;
pub const EAGAIN: i64 = 11;
pub const ENOMEM: i64 = 12;
pub const EFAULT: i64 = 14;
pub const EEXIST: i64 = 17;
pub const EINVAL: i64 = 22;
pub const ENOSYS: i64 = 38;

/// Rounds a length up to whole pages.
pub fn page_up(n: u64) -> u64 {
    n.wrapping_add(4095) & !4095
}

/// Maps fresh private memory at `addr`; `fixed` without replacing what is there.
///
/// # Safety
/// `addr` (if not 0) lies in a range that the engine owns.
pub unsafe fn map_anonymous(addr: u64, len: u64, prot: u64) -> i64 {
    let fixed = if addr != 0 { MAP_FIXED_NOREPLACE } else { 0 };
    // SAFETY: never replaces an existing mapping.
    unsafe {
        sc!(
            nr::MMAP,
            addr,
            len,
            prot,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed,
            u64::MAX,
            0
        )
    }
}

/// Gives pages to a range at once. Without effect on kernels that do not know this.
///
/// # Safety
/// The range is the engine's own.
pub unsafe fn populate(addr: u64, len: u64) {
    const MADV_POPULATE_WRITE: u64 = 23;
    // SAFETY: passed on; contents do not change.
    unsafe { sc!(nr::MADVISE, addr, len, MADV_POPULATE_WRITE) };
}

/// Waits while `*word == expected`, at most `timeout_ns`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout_ns: u64) {
    let ts = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    // SAFETY: `word` and `ts` are live for the call. FUTEX_WAIT, not private: shared with the tool.
    unsafe { sc!(nr::FUTEX, word.as_ptr(), 0, expected, ts.as_ptr()) };
}

/// Wakes up to `count` waiters.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: u32) {
    // SAFETY: `word` is live.
    unsafe { sc!(nr::FUTEX, word.as_ptr(), 1, count) };
}

/// Gives the rest of the time slice away.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { sc!(nr::SCHED_YIELD) };
}

/// A small file read whole, for `/proc`.
pub fn read_file(path: &core::ffi::CStr) -> alloc::vec::Vec<u8> {
    let mut out = alloc::vec::Vec::new();
    // SAFETY: `path` is NUL-terminated; the buffer is ours.
    unsafe {
        let fd = sc!(
            nr::OPEN,
            path.as_ptr(),
            0x8_0000 /* O_RDONLY|O_CLOEXEC */
        );
        if fd < 0 {
            return out;
        }
        loop {
            let old = out.len();
            out.resize(old + 16384, 0);
            let n = sc!(nr::READ, fd, out.as_mut_ptr().add(old), 16384);
            out.truncate(old + n.max(0) as usize);
            if n <= 0 {
                break;
            }
        }
        sc!(nr::CLOSE, fd);
    }
    out
}

/// The number that a text begins with, and how many digits it has.
pub fn read_decimal(text: &[u8]) -> Option<(u64, usize)> {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let number = text[..digits].iter().fold(0u64, |n, c| {
        n.wrapping_mul(10).wrapping_add(u64::from(c - b'0'))
    });
    (digits > 0).then_some((number, digits))
}

/// Time since boot, nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: CLOCK_MONOTONIC (1) into our own two words.
    unsafe { sc!(nr::CLOCK_GETTIME, 1, time.as_mut_ptr()) };
    time[0] * 1_000_000_000 + time[1]
}
