//! Which calls a thread may come to wait in.
//!
//! Meant is waiting for what another thread or process of the run does, or for time to pass: what a
//! scheduler has to know that lets one thread go on at a time. Waiting for a device (`fsync`), or
//! for a lock inside the kernel, ends without anybody's help and does not count.
//!
//! Guarantee: it errs towards "may". Only the arguments are looked at, not what they lead to: a
//! `read` of a regular file or of a descriptor that does not block counts, too, and so does every
//! call that the table does not have.
//!
//! Deviations, which a scheduler would take for calls that return at once:
//! - any call on a file system or a memory range that another process of the run serves (FUSE,
//!   `userfaultfd`);
//! - any call that a `seccomp` supervisor is asked about, or at which a tracer stops the thread;
//! - a stop by SIGSTOP and its kin.

/// Whether a thread that makes this call may come to wait for somebody else, or for some time.
pub fn may_block(number: u64, args: &[u64; 6]) -> bool {
    const WNOHANG: u64 = 1;
    const LOCK_NB: u64 = 4;
    const IPC_NOWAIT: u64 = 0o4000;
    const CLONE_VFORK: u64 = 0x4000;
    /// Reads the kernel's messages as they come.
    const SYSLOG_ACTION_READ: u64 = 2;
    /// F_SETLKW, F_OFD_SETLKW
    const LOCKS_WAITING: [u64; 2] = [7, 38];
    // A timeout in milliseconds.
    let has_time = |arg: usize| args[arg] as i32 != 0;
    let lacks = |arg: usize, flag: u64| args[arg] & flag == 0;
    match number {
        // read, write, readv, writev; pread64, pwrite64, preadv, pwritev, preadv2, pwritev2
        0 | 1 | 19 | 20 | 17 | 18 | 295 | 296 | 327 | 328 => true,
        // sendfile, splice, tee, vmsplice
        40 | 275 | 276 | 278 => true,
        // open, creat, openat, open_by_handle_at, openat2; truncate: pipes have two ends, leases
        // are given back
        2 | 85 | 257 | 304 | 437 | 76 => true,
        // close: a socket may linger
        3 => true,
        // ioctl: only drivers know
        16 => true,
        // poll; epoll_wait, epoll_pwait
        7 => has_time(2),
        232 | 281 => has_time(3),
        // select, pselect6, ppoll, epoll_pwait2: their time is behind a pointer
        23 | 270 | 271 | 441 => true,
        // pause, nanosleep, clock_nanosleep, rt_sigtimedwait, rt_sigsuspend, restart_syscall
        34 | 35 | 230 | 128 | 130 | 219 => true,
        // connect, accept, accept4, sendto, recvfrom, sendmsg, recvmsg, sendmmsg, recvmmsg
        42 | 43 | 288 | 44 | 45 | 46 | 47 | 307 | 299 => true,
        // clone, vfork: until the child has another program, or has ended
        56 => !lacks(0, CLONE_VFORK),
        58 => true,
        // clone3: its flags are behind a pointer
        435 => true,
        // wait4, waitid
        61 => lacks(2, WNOHANG),
        247 => lacks(3, WNOHANG),
        // semop, semtimedop: each operation has a flag of its own; msgsnd, msgrcv; mq_timedsend,
        // mq_timedreceive
        65 | 220 => true,
        69 => lacks(3, IPC_NOWAIT),
        70 => lacks(4, IPC_NOWAIT),
        242 | 243 => true,
        // fcntl, flock
        72 => LOCKS_WAITING.contains(&u64::from(args[1] as u32)),
        73 => lacks(1, LOCK_NB),
        // syslog
        103 => args[0] == SYSLOG_ACTION_READ,
        // futex
        202 => futex_waits(args[1]),
        // futex_waitv, futex_wait
        449 | 455 => true,
        // io_destroy, io_getevents, io_pgetevents, io_uring_enter
        207 | 208 | 333 | 426 => true,
        // request_key: a program is started to find it
        249 => true,
        _ => crate::info(number).is_none(),
    }
}

fn futex_waits(operation: u64) -> bool {
    /// FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME
    const FLAGS: u64 = 128 | 256;
    // The kernel takes an int. FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI,
    // FUTEX_LOCK_PI2
    matches!(operation as u32 as u64 & !FLAGS, 0 | 6 | 9 | 11 | 13)
}
