//! Calls whose arguments mean different things for different operations.
//!
//! One row an operation, in the same vocabulary as the main table. Numbers are those of the
//! kernel's `uapi` headers for x86-64.

use crate::kind::*;
use crate::layouts;

/// How to find the arguments' kinds of a call with operations.
#[derive(Debug)]
pub(crate) struct Selector {
    /// The operation that arguments ask for.
    pub op: fn(&[u64; 6]) -> u32,
    /// The operations.
    pub cases: &'static [Case],
    /// What all others are.
    pub otherwise: [ArgKind; 6],
    /// Or how that can be told from the operation.
    pub decode: Option<fn(u32) -> [ArgKind; 6]>,
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Case {
    pub op: u32,
    pub args: [ArgKind; 6],
}

const fn case(op: u32, args: &[ArgKind]) -> Case {
    Case {
        op,
        args: pad(args),
    }
}

impl Selector {
    /// The arguments' kinds for the operation that `args` ask for, if it has a case.
    pub(crate) fn find(&self, args: &[u64; 6]) -> Option<&'static [ArgKind; 6]> {
        let op = (self.op)(args);
        self.cases
            .iter()
            .find(|case| case.op == op)
            .map(|case| &case.args)
    }

    /// What they are if it has none.
    pub(crate) fn fallback(&self, args: &[u64; 6]) -> [ArgKind; 6] {
        self.decode
            .map_or(self.otherwise, |decode| decode((self.op)(args)))
    }
}

/// The third argument of an operation of two-argument prefix calls (`fcntl`, `ioctl`, …).
const fn third(op: u32, kind: ArgKind) -> Case {
    case(op, &[V, V, kind])
}

/// The fourth argument likewise (`ptrace`, `semctl`).
const fn fourth(op: u32, kind: ArgKind) -> Case {
    case(op, &[V, V, V, kind])
}

/// `fcntl(fd, cmd, arg)`; commands without a pointer take the default.
pub(crate) static FCNTL: Selector = Selector {
    op: |args| args[1] as u32,
    cases: &[
        third(5, io(32)),  // F_GETLK
        third(6, i(32)),   // F_SETLK
        third(7, i(32)),   // F_SETLKW
        third(15, i(8)),   // F_SETOWN_EX
        third(16, o(8)),   // F_GETOWN_EX
        third(17, o(8)),   // F_GETOWNER_UIDS
        third(36, io(32)), // F_OFD_GETLK
        third(37, i(32)),  // F_OFD_SETLK
        third(38, i(32)),  // F_OFD_SETLKW
        third(1035, o(8)), // F_GET_RW_HINT
        third(1036, i(8)), // F_SET_RW_HINT
        third(1037, o(8)), // F_GET_FILE_RW_HINT
        third(1038, i(8)), // F_SET_FILE_RW_HINT
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `ioctl(fd, cmd, arg)`: the commands whose number does not tell direction and size, or tells
/// them wrongly.
pub(crate) static IOCTL: Selector = Selector {
    op: |args| args[1] as u32,
    cases: &[
        third(0x0001, io(4)),                                             // FIBMAP
        third(0x0002, o(4)),                                              // FIGETBSZ
        third(0x0301, o(16)),                                             // HDIO_GETGEO
        third(0x125d, i(4)),                                              // BLKROSET
        third(0x125e, o(4)),                                              // BLKROGET
        third(0x125f, V),                                                 // BLKRRPART
        third(0x1260, o(8)),                                              // BLKGETSIZE
        third(0x1261, V),                                                 // BLKFLSBUF
        third(0x1262, V),                                                 // BLKRASET
        third(0x1263, o(8)),                                              // BLKRAGET
        third(0x1264, V),                                                 // BLKFRASET
        third(0x1265, o(8)),                                              // BLKFRAGET
        third(0x1267, o(2)),                                              // BLKSECTGET
        third(0x1268, o(4)),                                              // BLKSSZGET
        third(0x1277, i(16)),                                             // BLKDISCARD
        third(0x1278, o(4)),                                              // BLKIOMIN
        third(0x1279, o(4)),                                              // BLKIOOPT
        third(0x127a, o(4)),                                              // BLKALIGNOFF
        third(0x127b, o(4)),                                              // BLKPBSZGET
        third(0x127c, o(4)),                                              // BLKDISCARDZEROES
        third(0x127d, i(16)),                                             // BLKSECDISCARD
        third(0x127e, o(2)),                                              // BLKROTATIONAL
        third(0x127f, i(16)),                                             // BLKZEROOUT
        third(0x4c05, o(232)),                                            // LOOP_GET_STATUS64
        third(0x4c04, i(232)),                                            // LOOP_SET_STATUS64
        third(0x5401, o(36)),                                             // TCGETS
        third(0x5402, i(36)),                                             // TCSETS
        third(0x5403, i(36)),                                             // TCSETSW
        third(0x5404, i(36)),                                             // TCSETSF
        third(0x5405, o(18)),                                             // TCGETA
        third(0x5406, i(18)),                                             // TCSETA
        third(0x5407, i(18)),                                             // TCSETAW
        third(0x5408, i(18)),                                             // TCSETAF
        third(0x5409, V),                                                 // TCSBRK
        third(0x540a, V),                                                 // TCXONC
        third(0x540b, V),                                                 // TCFLSH
        third(0x540c, V),                                                 // TIOCEXCL
        third(0x540d, V),                                                 // TIOCNXCL
        third(0x540e, V),                                                 // TIOCSCTTY
        third(0x540f, o(4)),                                              // TIOCGPGRP
        third(0x5410, i(4)),                                              // TIOCSPGRP
        third(0x5411, o(4)),                                              // TIOCOUTQ
        third(0x5412, i(1)),                                              // TIOCSTI
        third(0x5413, o(8)),                                              // TIOCGWINSZ
        third(0x5414, i(8)),                                              // TIOCSWINSZ
        third(0x5415, o(4)),                                              // TIOCMGET
        third(0x5416, i(4)),                                              // TIOCMBIS
        third(0x5417, i(4)),                                              // TIOCMBIC
        third(0x5418, i(4)),                                              // TIOCMSET
        third(0x5419, o(4)),                                              // TIOCGSOFTCAR
        third(0x541a, i(4)),                                              // TIOCSSOFTCAR
        third(0x541b, o(4)),                                              // FIONREAD
        third(0x541e, o(72)),                                             // TIOCGSERIAL
        third(0x541f, i(72)),                                             // TIOCSSERIAL
        third(0x5420, i(4)),                                              // TIOCPKT
        third(0x5421, i(4)),                                              // FIONBIO
        third(0x5422, V),                                                 // TIOCNOTTY
        third(0x5423, i(4)),                                              // TIOCSETD
        third(0x5424, o(4)),                                              // TIOCGETD
        third(0x5425, V),                                                 // TCSBRKP
        third(0x5427, V),                                                 // TIOCSBRK
        third(0x5428, V),                                                 // TIOCCBRK
        third(0x5429, o(4)),                                              // TIOCGSID
        third(0x542e, o(32)),                                             // TIOCGRS485
        third(0x542f, io(32)),                                            // TIOCSRS485
        third(0x5432, o(16)),                                             // TCGETX
        third(0x5433, i(16)),                                             // TCSETX
        third(0x5450, V),                                                 // FIONCLEX
        third(0x5451, V),                                                 // FIOCLEX
        third(0x5452, i(4)),                                              // FIOASYNC
        third(0x5456, o(36)),                                             // TIOCGLCKTRMIOS
        third(0x5457, i(36)),                                             // TIOCSLCKTRMIOS
        third(0x5459, o(4)),                                              // TIOCSERGETLSR
        third(0x545c, V),                                                 // TIOCMIWAIT
        third(0x545d, o(80)),                                             // TIOCGICOUNT
        third(0x5460, o(8)),                                              // FIOQSIZE
        third(0x8901, i(4)),                                              // FIOSETOWN
        third(0x8902, i(4)),                                              // SIOCSPGRP
        third(0x8903, o(4)),                                              // FIOGETOWN
        third(0x8904, o(4)),                                              // SIOCGPGRP
        third(0x8905, o(4)),                                              // SIOCATMARK
        third(0x8906, o(16)),                                             // SIOCGSTAMP
        third(0x8907, o(16)),                                             // SIOCGSTAMPNS
        third(0x8912, ArgKind::Nested(Nested::Struct(&layouts::IFCONF))), // SIOCGIFCONF
        third(0x8910, io(40)),                                            // SIOCGIFNAME
        third(0x8913, io(40)),                                            // SIOCGIFFLAGS
        third(0x8914, i(40)),                                             // SIOCSIFFLAGS
        third(0x8915, io(40)),                                            // SIOCGIFADDR
        third(0x8916, i(40)),                                             // SIOCSIFADDR
        third(0x8917, io(40)),                                            // SIOCGIFDSTADDR
        third(0x8919, io(40)),                                            // SIOCGIFBRDADDR
        third(0x891b, io(40)),                                            // SIOCGIFNETMASK
        third(0x891d, io(40)),                                            // SIOCGIFMETRIC
        third(0x8921, io(40)),                                            // SIOCGIFMTU
        third(0x8922, i(40)),                                             // SIOCSIFMTU
        third(0x8927, io(40)),                                            // SIOCGIFHWADDR
        third(0x8933, io(40)),                                            // SIOCGIFINDEX
        third(0x8942, io(40)),                                            // SIOCGIFTXQLEN
        third(0x8970, io(40)),                                            // SIOCGIFMAP
        third(0x4008_6602, i(4)), // FS_IOC_SETFLAGS (int, not long)
        third(0x8008_6601, o(4)), // FS_IOC_GETFLAGS (int, not long)
        third(0x8008_7601, o(4)), // FS_IOC_GETVERSION (int, not long)
        third(0x8008_1270, o(4)), // BLKBSZGET (int, not size_t)
        third(0x4008_1271, i(4)), // BLKBSZSET (int, not size_t)
        third(0x4004_9409, V),    // FICLONE takes a descriptor
        // FS_IOC_FIEMAP and FIDEDUPERANGE are followed by as many items as their header says.
        third(
            0xc020_660b,
            inout(
                Bound::Counted {
                    base: 32,
                    at: 24,
                    width: 4,
                    item: 56,
                },
                Wrote::Changed,
                When::Always,
            ),
        ),
        third(
            0xc018_9436,
            inout(
                Bound::Counted {
                    base: 24,
                    at: 16,
                    width: 2,
                    item: 32,
                },
                Wrote::Changed,
                When::Always,
            ),
        ),
    ],
    otherwise: pad(&[V, V, X]),
    decode: Some(ioctl),
};

/// What the number of an `ioctl` tells (`asm-generic/ioctl.h`): two bits of direction, fourteen of
/// size. Numbers from before that convention have neither.
fn ioctl(command: u32) -> [ArgKind; 6] {
    let kernel_reads = command & (1 << 30) != 0;
    let kernel_writes = command & (1 << 31) != 0;
    let size = (command >> 16 & 0x3fff) as u16;
    let argument = match (kernel_reads, kernel_writes) {
        _ if size == 0 => X,
        (false, false) => X,
        (false, true) => o(size),
        (true, false) => ArgKind::Nested(Nested::Attributes {
            bound: Bound::Bytes(size),
            wrote: None,
        }),
        (true, true) => ArgKind::Nested(Nested::Attributes {
            bound: Bound::Bytes(size),
            wrote: Some(Wrote::All),
        }),
    };
    pad(&[V, V, argument])
}

/// `prctl(op, …)`; operations without a pointer take the default.
pub(crate) static PRCTL: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(2, &[V, o(4)]),   // GET_PDEATHSIG
        case(5, &[V, o(4)]),   // GET_UNALIGN
        case(9, &[V, o(4)]),   // GET_FPEMU
        case(11, &[V, o(4)]),  // GET_FPEXC
        case(15, &[V, P]),     // SET_NAME
        case(16, &[V, o(16)]), // GET_NAME
        case(19, &[V, o(4)]),  // GET_ENDIAN
        case(
            22,
            &[V, V, ArgKind::Nested(Nested::Struct(&layouts::SOCK_FPROG))],
        ), // SET_SECCOMP
        case(25, &[V, o(4)]),  // GET_TSC
        case(35, &[V, V, X]),  // SET_MM
        case(37, &[V, o(4)]),  // GET_CHILD_SUBREAPER
        case(40, &[V, o(8)]),  // GET_TID_ADDRESS
        case(59, &[V, V, V, V, ArgKind::Retained(Bound::Bytes(1))]), // SET_SYSCALL_USER_DISPATCH
        case(62, &[V, V, V, V, d(8)]), // SCHED_CORE
        case(0x4155_5856, &[V, or(2)]), // GET_AUXV
        case(0x5356_4d41, &[V, V, A, V, P]), // SET_VMA
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `arch_prctl(op, addr)`; setting a base takes an address that is not followed.
pub(crate) static ARCH_PRCTL: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(0x1003, &[V, o(8)]), // ARCH_GET_FS
        case(0x1004, &[V, o(8)]), // ARCH_GET_GS
        case(0x1021, &[V, o(8)]), // ARCH_GET_XCOMP_SUPP
        case(0x1022, &[V, o(8)]), // ARCH_GET_XCOMP_PERM
        case(0x1024, &[V, o(8)]), // ARCH_GET_XCOMP_GUEST_PERM
        case(0x5005, &[V, o(8)]), // ARCH_SHSTK_STATUS
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `futex(uaddr, op, val, timeout, uaddr2, val3)`. For the priority-inheriting operations the
/// kernel itself writes the word, on failure too.
pub(crate) static FUTEX: Selector = Selector {
    op: |args| args[1] as u32 & 0x7f,
    cases: &[
        case(0, &[i(4), V, V, i(16)]),        // WAIT
        case(1, &[i(4)]),                     // WAKE
        case(3, &[i(4), V, V, V, i(4)]),      // REQUEUE
        case(4, &[i(4), V, V, V, i(4)]),      // CMP_REQUEUE
        case(5, &[i(4), V, V, V, io(4)]),     // WAKE_OP
        case(6, &[d(4), V, V, i(16)]),        // LOCK_PI
        case(7, &[d(4)]),                     // UNLOCK_PI
        case(8, &[d(4)]),                     // TRYLOCK_PI
        case(9, &[i(4), V, V, i(16)]),        // WAIT_BITSET
        case(10, &[i(4)]),                    // WAKE_BITSET
        case(11, &[i(4), V, V, i(16), d(4)]), // WAIT_REQUEUE_PI
        case(12, &[d(4), V, V, V, d(4)]),     // CMP_REQUEUE_PI
        case(13, &[d(4), V, V, i(16)]),       // LOCK_PI2
    ],
    otherwise: pad(&[d(4), V, V, X, d(4)]),
    decode: None,
};

/// `ptrace(request, pid, addr, data)`. `addr` is the tracee's, and a poke's `data` is the word.
pub(crate) static PTRACE: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        fourth(1, o(8)),            // PEEKTEXT
        fourth(2, o(8)),            // PEEKDATA
        fourth(3, o(8)),            // PEEKUSER
        fourth(12, o(216)),         // GETREGS
        fourth(13, i(216)),         // SETREGS
        fourth(14, o(512)),         // GETFPREGS
        fourth(15, i(512)),         // SETFPREGS
        fourth(25, o(16)),          // GET_THREAD_AREA
        fourth(26, i(16)),          // SET_THREAD_AREA
        case(30, &[V, V, d(8), V]), // ARCH_PRCTL, which takes its pointer in `addr`
        fourth(0x4201, o(8)),       // GETEVENTMSG
        fourth(0x4202, o(128)),     // GETSIGINFO
        fourth(0x4203, i(128)),     // SETSIGINFO
        fourth(
            0x4204,
            ArgKind::Nested(Nested::Struct(&layouts::REGSET_GET)),
        ), // GETREGSET
        fourth(
            0x4205,
            ArgKind::Nested(Nested::Struct(&layouts::REGSET_SET)),
        ), // SETREGSET
        // PEEKSIGINFO: `addr` says how many (a `s32` at 12), `data` takes them.
        case(0x4209, &[V, V, i(16), X]),
        fourth(0x420a, ol(2)), // GETSIGMASK
        fourth(0x420b, il(2)), // SETSIGMASK
        fourth(0x420c, X),     // SECCOMP_GET_FILTER
        fourth(0x420d, X),     // SECCOMP_GET_METADATA
        fourth(0x420e, or(2)), // GET_SYSCALL_INFO
        fourth(0x420f, or(2)), // GET_RSEQ_CONFIGURATION
        fourth(0x4210, X),     // SET_SYSCALL_USER_DISPATCH_CONFIG
        fourth(0x4211, X),     // GET_SYSCALL_USER_DISPATCH_CONFIG
        fourth(0x4212, X),     // SET_SYSCALL_INFO
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `shmctl(id, cmd, buf)`.
pub(crate) static SHMCTL: Selector = Selector {
    op: |args| args[1] as u32 & !0x100, // IPC_64 is accepted and ignored
    cases: &[
        third(1, i(112)),  // IPC_SET
        third(2, o(112)),  // IPC_STAT
        third(3, o(72)),   // IPC_INFO
        third(13, o(112)), // SHM_STAT
        third(14, o(48)),  // SHM_INFO
        third(15, o(112)), // SHM_STAT_ANY
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `msgctl(id, cmd, buf)`.
pub(crate) static MSGCTL: Selector = Selector {
    op: |args| args[1] as u32 & !0x100,
    cases: &[
        third(1, i(120)),  // IPC_SET
        third(2, o(120)),  // IPC_STAT
        third(3, o(32)),   // IPC_INFO
        third(11, o(120)), // MSG_STAT
        third(12, o(32)),  // MSG_INFO
        third(13, o(120)), // MSG_STAT_ANY
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `semctl(id, num, cmd, arg)`. How many semaphores `GETALL` and `SETALL` move is not in the
/// arguments.
pub(crate) static SEMCTL: Selector = Selector {
    op: |args| args[2] as u32 & !0x100,
    cases: &[
        fourth(1, i(104)),  // IPC_SET
        fourth(2, o(104)),  // IPC_STAT
        fourth(3, o(40)),   // IPC_INFO
        fourth(13, X),      // GETALL
        fourth(17, X),      // SETALL
        fourth(18, o(104)), // SEM_STAT
        fourth(19, o(40)),  // SEM_INFO
        fourth(20, o(104)), // SEM_STAT_ANY
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `keyctl(op, …)`. Other operations get their pointers compared.
pub(crate) static KEYCTL: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(0, &[]),             // GET_KEYRING_ID
        case(1, &[V, P]),         // JOIN_SESSION_KEYRING
        case(2, &[V, V, il(3)]),  // UPDATE
        case(3, &[]),             // REVOKE
        case(6, &[V, V, or(3)]),  // DESCRIBE
        case(8, &[]),             // LINK
        case(9, &[]),             // UNLINK
        case(10, &[V, V, P, P]),  // SEARCH
        case(11, &[V, V, or(3)]), // READ
        case(12, &[V, V, il(3)]), // INSTANTIATE
        case(17, &[V, V, or(3)]), // GET_SECURITY
        case(
            20,
            &[
                V,
                V,
                ArgKind::Nested(Nested::Iov {
                    count: 3,
                    dir: Dir::Read,
                }),
            ],
        ), // INSTANTIATE_IOV
    ],
    otherwise: pad(&[V, X, X, X, X]),
    decode: None,
};

/// `setsockopt(fd, level, name, value, len)`: two options of `SOL_SOCKET` lead further.
pub(crate) static SETSOCKOPT: Selector = Selector {
    op: |args| ((args[1] as u32) << 16) | (args[2] as u32 & 0xffff),
    cases: &[
        fourth(
            0x1_001a,
            ArgKind::Nested(Nested::Struct(&layouts::SOCK_FPROG)),
        ), // ATTACH_FILTER
        fourth(
            0x1_0033,
            ArgKind::Nested(Nested::Struct(&layouts::SOCK_FPROG)),
        ), // REUSEPORT_CBPF
    ],
    otherwise: pad(&[V, V, V, ArgKind::In(Bound::IntLen(4))]),
    decode: None,
};

/// `seccomp(op, flags, args)`.
pub(crate) static SECCOMP: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(0, &[]),                                                    // STRICT
        third(1, ArgKind::Nested(Nested::Struct(&layouts::SOCK_FPROG))), // FILTER
        third(2, i(4)),                                                  // GET_ACTION_AVAIL
        third(3, o(6)),                                                  // GET_NOTIF_SIZES
    ],
    otherwise: pad(&[V, V, X]),
    decode: None,
};

/// `syslog(type, buf, len)`.
pub(crate) static SYSLOG: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(
            2,
            &[V, out(Bound::IntLen(2), Wrote::Result(1), When::Success)],
        ),
        case(
            3,
            &[V, out(Bound::IntLen(2), Wrote::Result(1), When::Success)],
        ),
        case(
            4,
            &[V, out(Bound::IntLen(2), Wrote::Result(1), When::Success)],
        ),
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `sysfs(option, …)`.
pub(crate) static SYSFS: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[case(1, &[V, P]), case(2, &[V, V, X])],
    otherwise: NO_ARGS,
    decode: None,
};

/// `modify_ldt(func, ptr, bytecount)`.
pub(crate) static MODIFY_LDT: Selector = Selector {
    op: |args| args[0] as u32,
    cases: &[
        case(0, &[V, or(2)]),
        case(1, &[V, il(2)]),
        case(2, &[V, or(2)]),
        case(0x11, &[V, il(2)]),
    ],
    otherwise: NO_ARGS,
    decode: None,
};

/// `kcmp(pid1, pid2, type, idx1, idx2)`: only `KCMP_EPOLL_TFD` takes a pointer.
pub(crate) static KCMP: Selector = Selector {
    op: |args| args[2] as u32,
    cases: &[case(7, &[V, V, V, V, i(12)])],
    otherwise: NO_ARGS,
    decode: None,
};

/// `fsconfig(fd, cmd, key, value, aux)`.
pub(crate) static FSCONFIG: Selector = Selector {
    op: |args| args[1] as u32,
    cases: &[case(2, &[V, V, P, ArgKind::In(Bound::IntLen(4))])], // SET_BINARY
    otherwise: pad(&[V, V, P, P]),
    decode: None,
};
