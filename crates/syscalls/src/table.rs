//! Every x86-64 Linux system call, one row each.
//!
//! Sources: the kernel's `syscall_64.tbl` up to Linux 6.18 and the `uapi` headers for structure
//! sizes. Numbers that have a row but were never implemented on x86-64 (`getpmsg`, `vserver`, …)
//! have no pointers: the kernel answers `ENOSYS` without looking.

use crate::cases::{self, Selector};
use crate::kind::*;
use crate::layouts;

/// What is known of one system call.
#[derive(Clone, Copy, Debug)]
pub struct SyscallInfo {
    /// Its number.
    pub nr: u32,
    /// Its name, as in the kernel's table.
    pub name: &'static str,
    /// What its arguments are, unless that depends on an operation argument: then see
    /// [`SyscallInfo::kinds`].
    pub args: [ArgKind; 6],
    /// Bit `i`: argument `i` is a pointer that may have to be rewritten. Zero means that
    /// [`prepare`](crate::prepare) has nothing to do, whatever the arguments.
    pub pointers: u8,
    /// Whether the kernel follows pointers found in memory.
    pub nested: bool,
    /// What about it cannot be followed, whatever the arguments.
    pub hazard: Option<Reason>,
    pub(crate) selector: Option<&'static Selector>,
}

impl SyscallInfo {
    /// What the arguments are, given their values.
    pub fn kinds(&self, args: &[u64; 6]) -> [ArgKind; 6] {
        match self.selector {
            None => self.args,
            Some(selector) => match selector.find(args) {
                Some(kinds) => *kinds,
                None => selector.fallback(args),
            },
        }
    }
}

/// The row of a system call; none for a number that no kernel known to this table has.
#[inline]
pub fn info(nr: u64) -> Option<&'static SyscallInfo> {
    let row = TABLE.get(usize::try_from(nr).ok()?)?;
    (!row.name.is_empty()).then_some(row)
}

/// The name of a system call, or `"?"`.
pub fn name(nr: u64) -> &'static str {
    info(nr).map_or("?", |row| row.name)
}

/// All rows, in the order of their numbers.
pub fn all() -> impl Iterator<Item = &'static SyscallInfo> {
    TABLE.iter().filter(|row| !row.name.is_empty())
}

const fn row(nr: u32, name: &'static str, args: &[ArgKind]) -> SyscallInfo {
    let args = pad(args);
    let mut pointers = 0;
    let mut nested = false;
    let mut n = 0;
    while n < 6 {
        match args[n] {
            ArgKind::Value | ArgKind::Address => {}
            ArgKind::Nested(_) => {
                nested = true;
                pointers |= 1 << n;
            }
            _ => pointers |= 1 << n,
        }
        n += 1;
    }
    SyscallInfo {
        nr,
        name,
        args,
        pointers,
        nested,
        hazard: None,
        selector: None,
    }
}

const fn hazard(reason: Reason, mut row: SyscallInfo) -> SyscallInfo {
    row.hazard = Some(reason);
    row
}

const fn by(nr: u32, name: &'static str, selector: &'static Selector) -> SyscallInfo {
    let args = selector.otherwise;
    SyscallInfo {
        nr,
        name,
        args,
        pointers: 0x3f,
        nested: true,
        hazard: None,
        selector: Some(selector),
    }
}

// Argument kinds that several rows share.

const fn iov(count: u8, dir: Dir) -> ArgKind {
    ArgKind::Nested(Nested::Iov { count, dir })
}

const fn one(layout: &'static Layout) -> ArgKind {
    ArgKind::Nested(Nested::Struct(layout))
}

/// A socket address whose length is behind argument `len`, in and out.
const fn sockaddr(len: u8) -> ArgKind {
    out(Bound::SockLen(len), Wrote::SockLen(len), When::Success)
}

/// Such a length, which the kernel leaves alone if the address in argument `addr` is null.
const fn socklen(addr: u8) -> ArgKind {
    inout(Bound::Bytes(4), Wrote::All, When::SuccessWithPointer(addr))
}

/// An fd set of `select`: `nfds` is the first argument. The kernel stops at the size of the
/// process's descriptor table, so less than this may be written.
const FDS: ArgKind = inout(Bound::FdSet(0), Wrote::All, When::Success);

/// A time-out from which the kernel subtracts the time slept, unless it was zero.
const TIMEOUT: ArgKind = inout(Bound::Bytes(16), Wrote::Changed, When::Always);

/// `struct pollfd`s; only `revents` is written.
const POLLFDS: ArgKind = inout(
    Bound::IntItems(1, 8),
    Wrote::Field(8, 6, 2),
    When::SuccessOrInterrupted,
);

/// `struct epoll_event`s.
const EVENTS: ArgKind = out(Bound::IntItems(2, 12), Wrote::Result(12), When::Success);

/// A file offset that is moved on by what was transferred.
const OFFSET: ArgKind = inout(Bound::Bytes(8), Wrote::Changed, When::Always);

/// A structure that begins with its own size.
const SIZED: Bound = Bound::Counted {
    base: 0,
    at: 0,
    width: 4,
    item: 1,
};

/// `struct file_handle`.
const HANDLE: Bound = Bound::Counted {
    base: 8,
    at: 0,
    width: 4,
    item: 1,
};

/// `struct perf_event_attr`; the kernel writes its `size` when it is not the one it knows.
const PERF_ATTR: ArgKind = inout(
    Bound::Counted {
        base: 0,
        at: 4,
        width: 4,
        item: 1,
    },
    Wrote::Changed,
    When::Always,
);

const fn items(count: u8, size: u16) -> ArgKind {
    ArgKind::In(Bound::Items(count, size))
}

const fn int_len(arg: u8) -> ArgKind {
    ArgKind::In(Bound::IntLen(arg))
}

/// Bytes as the result says, at most the `int` in argument `arg`.
const fn int_or(arg: u8) -> ArgKind {
    out(Bound::IntLen(arg), Wrote::Result(1), When::Success)
}

const fn nodes(arg: u8) -> ArgKind {
    ArgKind::In(Bound::NodeMask(arg))
}

/// A thread id of `clone`: which flags have it written now, and which later.
const fn tid(now: u32, later: u32) -> ArgKind {
    out(
        Bound::Bytes(4),
        Wrote::All,
        When::SuccessWithFlag { now, later },
    )
}

/// As many items as the result says, at most the `size_t` in argument `arg`.
const fn results(arg: u8, size: u8) -> ArgKind {
    out(
        Bound::Items(arg, size as u16),
        Wrote::Result(size),
        When::Success,
    )
}

const TABLE_LEN: usize = 480;

static TABLE: [SyscallInfo; TABLE_LEN] = index(ROWS);

const fn index(rows: &[SyscallInfo]) -> [SyscallInfo; TABLE_LEN] {
    let mut table = [row(0, "", &[]); TABLE_LEN];
    let mut n = 0;
    while n < rows.len() {
        let nr = rows[n].nr as usize;
        assert!(table[nr].name.is_empty(), "two rows for one number");
        table[nr] = rows[n];
        n += 1;
    }
    table
}

#[rustfmt::skip] // one row a call
const ROWS: &[SyscallInfo] = &[
    row(0, "read", &[V, ot(2)]),
    row(1, "write", &[V, it(2)]),
    row(2, "open", &[P]),
    row(3, "close", &[]),
    row(4, "stat", &[P, o(144)]),
    row(5, "fstat", &[V, o(144)]),
    row(6, "lstat", &[P, o(144)]),
    row(7, "poll", &[POLLFDS]),
    row(8, "lseek", &[]),
    row(9, "mmap", &[A]),
    row(10, "mprotect", &[A]),
    row(11, "munmap", &[A]),
    row(12, "brk", &[A]),
    row(13, "rt_sigaction", &[V, i(32), o(32)]),
    row(14, "rt_sigprocmask", &[V, il(3), ol(3)]),
    row(15, "rt_sigreturn", &[]),
    by(16, "ioctl", &cases::IOCTL),
    row(17, "pread64", &[V, ot(2)]),
    row(18, "pwrite64", &[V, it(2)]),
    row(19, "readv", &[V, iov(2, Dir::Write)]),
    row(20, "writev", &[V, iov(2, Dir::Read)]),
    row(21, "access", &[P]),
    row(22, "pipe", &[o(8)]),
    row(23, "select", &[V, FDS, FDS, FDS, TIMEOUT]),
    row(24, "sched_yield", &[]),
    row(25, "mremap", &[A, V, V, V, A]),
    row(26, "msync", &[A]),
    row(27, "mincore", &[A, V, out(Bound::Pages(1), Wrote::All, When::Success)]),
    row(28, "madvise", &[A]),
    row(29, "shmget", &[]),
    row(30, "shmat", &[V, A]),
    by(31, "shmctl", &cases::SHMCTL),
    row(32, "dup", &[]),
    row(33, "dup2", &[]),
    row(34, "pause", &[]),
    row(35, "nanosleep", &[i(16), out(Bound::Bytes(16), Wrote::All, When::Interrupted)]),
    row(36, "getitimer", &[V, o(32)]),
    row(37, "alarm", &[]),
    row(38, "setitimer", &[V, i(32), o(32)]),
    row(39, "getpid", &[]),
    row(40, "sendfile", &[V, V, OFFSET]),
    row(41, "socket", &[]),
    row(42, "connect", &[V, int_len(2)]),
    row(43, "accept", &[V, sockaddr(2), socklen(1)]),
    row(44, "sendto", &[V, it(2), V, V, int_len(5)]),
    row(45, "recvfrom", &[V, ot(2), V, V, sockaddr(5), socklen(4)]),
    row(46, "sendmsg", &[V, one(&layouts::MSG_SEND)]),
    row(47, "recvmsg", &[V, one(&layouts::MSG_RECV)]),
    row(48, "shutdown", &[]),
    row(49, "bind", &[V, int_len(2)]),
    row(50, "listen", &[]),
    row(51, "getsockname", &[V, sockaddr(2), socklen(1)]),
    row(52, "getpeername", &[V, sockaddr(2), socklen(1)]),
    row(53, "socketpair", &[V, V, V, o(8)]),
    by(54, "setsockopt", &cases::SETSOCKOPT),
    row(55, "getsockopt", &[V, V, V, sockaddr(4), socklen(3)]),
    // CLONE_PIDFD | CLONE_PARENT_SETTID; CLONE_CHILD_SETTID and CLONE_CHILD_CLEARTID.
    row(56, "clone", &[V, A, tid(0x10_1000, 0), tid(0x0100_0000, 0x20_0000), A]),
    row(57, "fork", &[]),
    row(58, "vfork", &[]),
    row(59, "execve", &[P, ArgKind::Nested(Nested::Strings), ArgKind::Nested(Nested::Strings)]),
    row(60, "exit", &[]),
    row(61, "wait4", &[V, op(4), V, op(144)]),
    row(62, "kill", &[]),
    row(63, "uname", &[o(390)]),
    row(64, "semget", &[]),
    row(65, "semop", &[V, ArgKind::In(Bound::IntItems(2, 6))]),
    by(66, "semctl", &cases::SEMCTL),
    row(67, "shmdt", &[A]),
    row(68, "msgget", &[]),
    row(69, "msgsnd", &[V, ArgKind::In(Bound::LenPlus(2, 8))]),
    row(70, "msgrcv", &[V, out(Bound::LenPlus(2, 8), Wrote::ResultPlus(8), When::Success)]),
    by(71, "msgctl", &cases::MSGCTL),
    by(72, "fcntl", &cases::FCNTL),
    row(73, "flock", &[]),
    row(74, "fsync", &[]),
    row(75, "fdatasync", &[]),
    row(76, "truncate", &[P]),
    row(77, "ftruncate", &[]),
    row(78, "getdents", &[V, int_or(2)]),
    row(79, "getcwd", &[or(1)]),
    row(80, "chdir", &[P]),
    row(81, "fchdir", &[]),
    row(82, "rename", &[P, P]),
    row(83, "mkdir", &[P]),
    row(84, "rmdir", &[P]),
    row(85, "creat", &[P]),
    row(86, "link", &[P, P]),
    row(87, "unlink", &[P]),
    row(88, "symlink", &[P, P]),
    row(89, "readlink", &[P, int_or(2)]),
    row(90, "chmod", &[P]),
    row(91, "fchmod", &[]),
    row(92, "chown", &[P]),
    row(93, "fchown", &[]),
    row(94, "lchown", &[P]),
    row(95, "umask", &[]),
    row(96, "gettimeofday", &[o(16), o(8)]),
    row(97, "getrlimit", &[V, o(16)]),
    row(98, "getrusage", &[V, o(144)]),
    row(99, "sysinfo", &[o(112)]),
    row(100, "times", &[o(32)]),
    by(101, "ptrace", &cases::PTRACE),
    row(102, "getuid", &[]),
    by(103, "syslog", &cases::SYSLOG),
    row(104, "getgid", &[]),
    row(105, "setuid", &[]),
    row(106, "setgid", &[]),
    row(107, "geteuid", &[]),
    row(108, "getegid", &[]),
    row(109, "setpgid", &[]),
    row(110, "getppid", &[]),
    row(111, "getpgrp", &[]),
    row(112, "setsid", &[]),
    row(113, "setreuid", &[]),
    row(114, "setregid", &[]),
    row(115, "getgroups", &[V, out(Bound::IntItems(0, 4), Wrote::Result(4), When::Success)]),
    row(116, "setgroups", &[V, ArgKind::In(Bound::IntItems(0, 4))]),
    row(117, "setresuid", &[]),
    row(118, "getresuid", &[o(4), o(4), o(4)]),
    row(119, "setresgid", &[]),
    row(120, "getresgid", &[o(4), o(4), o(4)]),
    row(121, "getpgid", &[]),
    row(122, "setfsuid", &[]),
    row(123, "setfsgid", &[]),
    row(124, "getsid", &[]),
    // An unknown version is answered in the header; the known ones have 12 or 24 bytes of data.
    row(125, "capget", &[d(8), d(24)]),
    row(126, "capset", &[d(8), i(24)]),
    row(127, "rt_sigpending", &[ol(1)]),
    row(128, "rt_sigtimedwait", &[il(3), op(128), i(16)]),
    row(129, "rt_sigqueueinfo", &[V, V, i(128)]),
    row(130, "rt_sigsuspend", &[il(1)]),
    row(131, "sigaltstack", &[i(24), o(24)]),
    row(132, "utime", &[P, i(16)]),
    row(133, "mknod", &[P]),
    row(134, "uselib", &[P]),
    row(135, "personality", &[]),
    row(136, "ustat", &[V, o(32)]),
    row(137, "statfs", &[P, o(120)]),
    row(138, "fstatfs", &[V, o(120)]),
    by(139, "sysfs", &cases::SYSFS),
    row(140, "getpriority", &[]),
    row(141, "setpriority", &[]),
    row(142, "sched_setparam", &[V, i(4)]),
    row(143, "sched_getparam", &[V, o(4)]),
    row(144, "sched_setscheduler", &[V, V, i(4)]),
    row(145, "sched_getscheduler", &[]),
    row(146, "sched_get_priority_max", &[]),
    row(147, "sched_get_priority_min", &[]),
    row(148, "sched_rr_get_interval", &[V, o(16)]),
    row(149, "mlock", &[A]),
    row(150, "munlock", &[A]),
    row(151, "mlockall", &[]),
    row(152, "munlockall", &[]),
    row(153, "vhangup", &[]),
    by(154, "modify_ldt", &cases::MODIFY_LDT),
    row(155, "pivot_root", &[P, P]),
    row(156, "_sysctl", &[]),
    by(157, "prctl", &cases::PRCTL),
    by(158, "arch_prctl", &cases::ARCH_PRCTL),
    row(159, "adjtimex", &[io(208)]),
    row(160, "setrlimit", &[V, i(16)]),
    row(161, "chroot", &[P]),
    row(162, "sync", &[]),
    row(163, "acct", &[P]),
    row(164, "settimeofday", &[i(16), i(8)]),
    row(165, "mount", &[P, P, P, V, P]),
    row(166, "umount2", &[P]),
    row(167, "swapon", &[P]),
    row(168, "swapoff", &[P]),
    row(169, "reboot", &[V, V, V, P]),
    row(170, "sethostname", &[int_len(1)]),
    row(171, "setdomainname", &[int_len(1)]),
    row(172, "iopl", &[]),
    row(173, "ioperm", &[]),
    row(174, "create_module", &[]),
    row(175, "init_module", &[il(1), V, P]),
    row(176, "delete_module", &[P]),
    row(177, "get_kernel_syms", &[]),
    row(178, "query_module", &[]),
    row(179, "quotactl", &[V, P, V, X]),
    row(180, "nfsservctl", &[]),
    row(181, "getpmsg", &[]),
    row(182, "putpmsg", &[]),
    row(183, "afs_syscall", &[]),
    row(184, "tuxcall", &[]),
    row(185, "security", &[]),
    row(186, "gettid", &[]),
    row(187, "readahead", &[]),
    row(188, "setxattr", &[P, P, il(3)]),
    row(189, "lsetxattr", &[P, P, il(3)]),
    row(190, "fsetxattr", &[V, P, il(3)]),
    row(191, "getxattr", &[P, P, or(3)]),
    row(192, "lgetxattr", &[P, P, or(3)]),
    row(193, "fgetxattr", &[V, P, or(3)]),
    row(194, "listxattr", &[P, or(2)]),
    row(195, "llistxattr", &[P, or(2)]),
    row(196, "flistxattr", &[V, or(2)]),
    row(197, "removexattr", &[P, P]),
    row(198, "lremovexattr", &[P, P]),
    row(199, "fremovexattr", &[V, P]),
    row(200, "tkill", &[]),
    row(201, "time", &[o(8)]),
    by(202, "futex", &cases::FUTEX),
    row(203, "sched_setaffinity", &[V, V, int_len(1)]),
    row(204, "sched_getaffinity", &[V, V, int_or(1)]),
    row(205, "set_thread_area", &[]),
    row(206, "io_setup", &[V, io(8)]),
    row(207, "io_destroy", &[]),
    row(208, "io_getevents", &[V, V, V, ArgKind::Nested(Nested::IoEvents { count: 2 }), i(16)]),
    row(209, "io_submit", &[V, V, ArgKind::Nested(Nested::Iocbs { count: 1 })]),
    row(210, "io_cancel", &[V, i(64), o(32)]),
    row(211, "get_thread_area", &[]),
    row(212, "lookup_dcookie", &[V, or(2)]),
    row(213, "epoll_create", &[]),
    row(214, "epoll_ctl_old", &[]),
    row(215, "epoll_wait_old", &[]),
    row(216, "remap_file_pages", &[A]),
    row(217, "getdents64", &[V, int_or(2)]),
    row(218, "set_tid_address", &[ArgKind::Retained(Bound::Bytes(4))]),
    row(219, "restart_syscall", &[]),
    row(220, "semtimedop", &[V, ArgKind::In(Bound::IntItems(2, 6)), V, i(16)]),
    row(221, "fadvise64", &[]),
    row(222, "timer_create", &[V, i(64), o(4)]),
    row(223, "timer_settime", &[V, V, i(32), o(32)]),
    row(224, "timer_gettime", &[V, o(32)]),
    row(225, "timer_getoverrun", &[]),
    row(226, "timer_delete", &[]),
    row(227, "clock_settime", &[V, i(16)]),
    row(228, "clock_gettime", &[V, o(16)]),
    row(229, "clock_getres", &[V, o(16)]),
    // Nothing remains of a sleep until an absolute time.
    row(230, "clock_nanosleep", &[V, V, i(16), out(Bound::Bytes(16), Wrote::Changed, When::Interrupted)]),
    row(231, "exit_group", &[]),
    row(232, "epoll_wait", &[V, EVENTS]),
    row(233, "epoll_ctl", &[V, V, V, i(12)]),
    row(234, "tgkill", &[]),
    row(235, "utimes", &[P, i(32)]),
    row(236, "vserver", &[]),
    row(237, "mbind", &[A, V, V, nodes(4)]),
    row(238, "set_mempolicy", &[V, nodes(2)]),
    row(239, "get_mempolicy", &[o(4), out(Bound::NodeMask(2), Wrote::Changed, When::Always), V, A]),
    row(240, "mq_open", &[P, V, V, i(64)]),
    row(241, "mq_unlink", &[P]),
    row(242, "mq_timedsend", &[V, il(2), V, V, i(16)]),
    row(243, "mq_timedreceive", &[V, or(2), V, o(4), i(16)]),
    row(244, "mq_notify", &[V, one(&layouts::SIGEVENT_COOKIE)]),
    row(245, "mq_getsetattr", &[V, i(64), o(64)]),
    row(246, "kexec_load", &[V, V, ArgKind::In(Bound::Items(1, 32))]),
    row(247, "waitid", &[V, V, out(Bound::Bytes(128), Wrote::WaitInfo, When::Always), V, out(Bound::Bytes(144), Wrote::Changed, When::Always)]),
    row(248, "add_key", &[P, P, il(3)]),
    row(249, "request_key", &[P, P, P]),
    by(250, "keyctl", &cases::KEYCTL),
    row(251, "ioprio_set", &[]),
    row(252, "ioprio_get", &[]),
    row(253, "inotify_init", &[]),
    row(254, "inotify_add_watch", &[V, P]),
    row(255, "inotify_rm_watch", &[]),
    row(256, "migrate_pages", &[V, V, nodes(1), nodes(1)]),
    row(257, "openat", &[V, P]),
    row(258, "mkdirat", &[V, P]),
    row(259, "mknodat", &[V, P]),
    row(260, "fchownat", &[V, P]),
    row(261, "futimesat", &[V, P, i(32)]),
    row(262, "newfstatat", &[V, P, o(144)]),
    row(263, "unlinkat", &[V, P]),
    row(264, "renameat", &[V, P, V, P]),
    row(265, "linkat", &[V, P, V, P]),
    row(266, "symlinkat", &[P, V, P]),
    row(267, "readlinkat", &[V, P, int_or(3)]),
    row(268, "fchmodat", &[V, P]),
    row(269, "faccessat", &[V, P]),
    row(270, "pselect6", &[V, FDS, FDS, FDS, TIMEOUT, one(&layouts::SIGSET_ARG)]),
    row(271, "ppoll", &[POLLFDS, V, TIMEOUT, il(4)]),
    row(272, "unshare", &[]),
    row(273, "set_robust_list", &[ArgKind::Retained(Bound::Bytes(24))]),
    row(274, "get_robust_list", &[V, o(8), o(8)]),
    row(275, "splice", &[V, OFFSET, V, OFFSET]),
    row(276, "tee", &[]),
    row(277, "sync_file_range", &[]),
    // Which end of the pipe the descriptor is decides whether the kernel reads or writes.
    row(278, "vmsplice", &[V, iov(2, Dir::Either)]),
    row(279, "move_pages", &[V, V, items(1, 8), items(1, 4), out(Bound::Items(1, 4), Wrote::Changed, When::Always)]),
    row(280, "utimensat", &[V, P, i(32)]),
    row(281, "epoll_pwait", &[V, EVENTS, V, V, il(5)]),
    row(282, "signalfd", &[V, il(2)]),
    row(283, "timerfd_create", &[]),
    row(284, "eventfd", &[]),
    row(285, "fallocate", &[]),
    row(286, "timerfd_settime", &[V, V, i(32), o(32)]),
    row(287, "timerfd_gettime", &[V, o(32)]),
    row(288, "accept4", &[V, sockaddr(2), socklen(1)]),
    row(289, "signalfd4", &[V, il(2)]),
    row(290, "eventfd2", &[]),
    row(291, "epoll_create1", &[]),
    row(292, "dup3", &[]),
    row(293, "pipe2", &[o(8)]),
    row(294, "inotify_init1", &[]),
    row(295, "preadv", &[V, iov(2, Dir::Write)]),
    row(296, "pwritev", &[V, iov(2, Dir::Read)]),
    row(297, "rt_tgsigqueueinfo", &[V, V, V, i(128)]),
    row(298, "perf_event_open", &[PERF_ATTR]),
    row(299, "recvmmsg", &[V, ArgKind::Nested(Nested::Array { layout: &layouts::MMSG_RECV, count: 2, max: 1024, partial: true }), V, V, TIMEOUT]),
    row(300, "fanotify_init", &[]),
    row(301, "fanotify_mark", &[V, V, V, V, P]),
    row(302, "prlimit64", &[V, V, i(16), o(16)]),
    row(303, "name_to_handle_at", &[V, P, inout(HANDLE, Wrote::Changed, When::Always), d(8)]),
    row(304, "open_by_handle_at", &[V, ArgKind::In(HANDLE)]),
    row(305, "clock_adjtime", &[V, io(208)]),
    row(306, "syncfs", &[]),
    row(307, "sendmmsg", &[V, ArgKind::Nested(Nested::Array { layout: &layouts::MMSG_SEND, count: 2, max: 1024, partial: true })]),
    row(308, "setns", &[]),
    row(309, "getcpu", &[o(4), o(4)]),
    row(310, "process_vm_readv", &[V, iov(2, Dir::Write), V, ArgKind::Nested(Nested::RemoteIov { count: 4, dir: Dir::Read })]),
    row(311, "process_vm_writev", &[V, iov(2, Dir::Read), V, ArgKind::Nested(Nested::RemoteIov { count: 4, dir: Dir::Write })]),
    by(312, "kcmp", &cases::KCMP),
    row(313, "finit_module", &[V, P]),
    row(314, "sched_setattr", &[V, inout(SIZED, Wrote::Changed, When::Always)]),
    row(315, "sched_getattr", &[V, out(Bound::IntLen(2), Wrote::Changed, When::Success)]),
    row(316, "renameat2", &[V, P, V, P]),
    by(317, "seccomp", &cases::SECCOMP),
    row(318, "getrandom", &[ot(1)]),
    row(319, "memfd_create", &[P]),
    row(320, "kexec_file_load", &[V, V, V, il(2)]),
    row(321, "bpf", &[V, ArgKind::Nested(Nested::Attributes { bound: Bound::IntLen(2), wrote: Some(Wrote::Changed) })]),
    row(322, "execveat", &[V, P, ArgKind::Nested(Nested::Strings), ArgKind::Nested(Nested::Strings)]),
    row(323, "userfaultfd", &[]),
    row(324, "membarrier", &[]),
    row(325, "mlock2", &[A]),
    row(326, "copy_file_range", &[V, OFFSET, V, OFFSET]),
    row(327, "preadv2", &[V, iov(2, Dir::Write)]),
    row(328, "pwritev2", &[V, iov(2, Dir::Read)]),
    row(329, "pkey_mprotect", &[A]),
    row(330, "pkey_alloc", &[]),
    row(331, "pkey_free", &[]),
    row(332, "statx", &[V, P, V, V, o(256)]),
    row(333, "io_pgetevents", &[V, V, V, ArgKind::Nested(Nested::IoEvents { count: 2 }), i(16), one(&layouts::SIGSET_ARG)]),
    row(334, "rseq", &[ArgKind::Retained(Bound::IntLen(1))]),
    row(335, "uretprobe", &[]),
    row(336, "uprobe", &[]),
    row(424, "pidfd_send_signal", &[V, V, i(128)]),
    hazard(Reason::RingSetup, row(425, "io_uring_setup", &[V, d(120)])),
    hazard(Reason::RingUse, row(426, "io_uring_enter", &[V, V, V, V, X])),
    hazard(Reason::RingUse, row(427, "io_uring_register", &[V, V, X])),
    row(428, "open_tree", &[V, P]),
    row(429, "move_mount", &[V, P, V, P]),
    row(430, "fsopen", &[P]),
    by(431, "fsconfig", &cases::FSCONFIG),
    row(432, "fsmount", &[]),
    row(433, "fspick", &[V, P]),
    row(434, "pidfd_open", &[]),
    row(435, "clone3", &[ArgKind::Nested(Nested::Attributes { bound: Bound::Len(1), wrote: Some(Wrote::Changed) })]),
    row(436, "close_range", &[]),
    row(437, "openat2", &[V, P, il(3)]),
    row(438, "pidfd_getfd", &[]),
    row(439, "faccessat2", &[V, P]),
    row(440, "process_madvise", &[V, items(2, 16)]),
    row(441, "epoll_pwait2", &[V, EVENTS, V, i(16), il(5)]),
    row(442, "mount_setattr", &[V, P, V, il(4)]),
    row(443, "quotactl_fd", &[V, V, V, X]),
    row(444, "landlock_create_ruleset", &[il(1)]),
    row(445, "landlock_add_rule", &[V, V, i(16)]),
    row(446, "landlock_restrict_self", &[]),
    row(447, "memfd_secret", &[]),
    row(448, "process_mrelease", &[]),
    row(449, "futex_waitv", &[ArgKind::Nested(Nested::Array { layout: &layouts::FUTEX_WAITV, count: 1, max: 128, partial: false }), V, V, i(16)]),
    row(450, "set_mempolicy_home_node", &[A]),
    row(451, "cachestat", &[V, i(16), o(40)]),
    row(452, "fchmodat2", &[V, P]),
    row(453, "map_shadow_stack", &[A]),
    row(454, "futex_wake", &[i(4)]),
    row(455, "futex_wait", &[i(4), V, V, V, i(16)]),
    row(456, "futex_requeue", &[ArgKind::Nested(Nested::Fixed { layout: &layouts::FUTEX_WAITV, count: 2 })]),
    row(457, "statmount", &[ArgKind::In(SIZED), out(Bound::Len(2), Wrote::Changed, When::Always)]),
    row(458, "listmount", &[ArgKind::In(SIZED), results(2, 8)]),
    row(459, "lsm_get_self_attr", &[V, out(Bound::SockLen(2), Wrote::Changed, When::Always), d(4)]),
    row(460, "lsm_set_self_attr", &[V, il(2)]),
    row(461, "lsm_list_modules", &[out(Bound::SockLen(1), Wrote::Result(8), When::Success), d(4)]),
    row(462, "mseal", &[A]),
    row(463, "setxattrat", &[V, P, V, P, one(&layouts::XATTR_SET)]),
    row(464, "getxattrat", &[V, P, V, P, one(&layouts::XATTR_GET)]),
    row(465, "listxattrat", &[V, P, V, or(4)]),
    row(466, "removexattrat", &[V, P, V, P]),
    row(467, "open_tree_attr", &[V, P, V, il(4)]),
    row(468, "file_getattr", &[V, P, ol(3)]),
    row(469, "file_setattr", &[V, P, il(3)]),
    row(470, "listns", &[ArgKind::In(SIZED), results(2, 8)]),
];
