//! Layouts of structures in which the kernel finds pointers (x86-64, from the kernel's `uapi`).

use crate::kind::{Dir, FieldLen, Layout, Pointee, PointerField};

const fn field(at: u8, to: Pointee) -> PointerField {
    PointerField { at, to }
}

/// `struct msghdr` for `sendmsg`.
pub(crate) static MSG_SEND: Layout = Layout {
    size: 56,
    pointers: &[
        field(0, Pointee::In(FieldLen::U32(8))),
        field(
            16,
            Pointee::Iov {
                count: 24,
                dir: Dir::Read,
                total: None,
            },
        ),
        field(32, Pointee::In(FieldLen::U64(40))),
    ],
    outputs: &[],
    guard: None,
};

/// `struct msghdr` for `recvmsg`. The kernel leaves `msg_namelen` alone without a `msg_name`.
pub(crate) static MSG_RECV: Layout = Layout {
    size: 56,
    pointers: &[
        field(0, Pointee::OutLen(FieldLen::U32(8))),
        field(
            16,
            Pointee::Iov {
                count: 24,
                dir: Dir::Write,
                total: None,
            },
        ),
        field(32, Pointee::OutLen(FieldLen::U64(40))),
    ],
    outputs: &[(8, 4, Some(0)), (40, 8, None), (48, 4, None)],
    guard: None,
};

/// `struct mmsghdr` for `sendmmsg`.
pub(crate) static MMSG_SEND: Layout = Layout {
    size: 64,
    pointers: &[
        field(0, Pointee::In(FieldLen::U32(8))),
        field(
            16,
            Pointee::Iov {
                count: 24,
                dir: Dir::Read,
                total: None,
            },
        ),
        field(32, Pointee::In(FieldLen::U64(40))),
    ],
    outputs: &[(56, 4, None)],
    guard: None,
};

/// `struct mmsghdr` for `recvmmsg`.
pub(crate) static MMSG_RECV: Layout = Layout {
    size: 64,
    pointers: &[
        field(0, Pointee::OutLen(FieldLen::U32(8))),
        field(
            16,
            Pointee::Iov {
                count: 24,
                dir: Dir::Write,
                total: Some(56),
            },
        ),
        field(32, Pointee::OutLen(FieldLen::U64(40))),
    ],
    outputs: &[(8, 4, Some(0)), (40, 8, None), (48, 4, None), (56, 4, None)],
    guard: None,
};

/// The sixth argument of `pselect6` and `io_pgetevents`: a signal set and its size.
pub(crate) static SIGSET_ARG: Layout = Layout {
    size: 16,
    pointers: &[field(0, Pointee::In(FieldLen::U64(8)))],
    outputs: &[],
    guard: None,
};

/// `struct futex_waitv`.
pub(crate) static FUTEX_WAITV: Layout = Layout {
    size: 24,
    pointers: &[field(8, Pointee::In(FieldLen::Bytes(4)))],
    outputs: &[],
    guard: None,
};

/// `struct sock_fprog`: a classic BPF program.
pub(crate) static SOCK_FPROG: Layout = Layout {
    size: 16,
    pointers: &[field(8, Pointee::In(FieldLen::U16(0, 8)))],
    outputs: &[],
    guard: None,
};

/// `struct xattr_args` for `setxattrat`.
pub(crate) static XATTR_SET: Layout = Layout {
    size: 16,
    pointers: &[field(0, Pointee::In(FieldLen::U32(8)))],
    outputs: &[],
    guard: None,
};

/// `struct xattr_args` for `getxattrat`.
pub(crate) static XATTR_GET: Layout = Layout {
    size: 16,
    pointers: &[field(0, Pointee::OutResult(FieldLen::U32(8)))],
    outputs: &[],
    guard: None,
};

/// `struct sigevent` for `mq_notify`: with `SIGEV_THREAD` (2) the value points to a cookie.
pub(crate) static SIGEVENT_COOKIE: Layout = Layout {
    size: 64,
    pointers: &[field(0, Pointee::In(FieldLen::Bytes(32)))],
    outputs: &[],
    guard: Some((12, 2)),
};

/// The one `struct iovec` of `PTRACE_GETREGSET`, whose length the kernel updates.
pub(crate) static REGSET_GET: Layout = Layout {
    size: 16,
    pointers: &[field(0, Pointee::OutLen(FieldLen::U64(8)))],
    outputs: &[(8, 8, None)],
    guard: None,
};

/// The same of `PTRACE_SETREGSET`.
pub(crate) static REGSET_SET: Layout = Layout {
    size: 16,
    pointers: &[field(0, Pointee::In(FieldLen::U64(8)))],
    outputs: &[(8, 8, None)],
    guard: None,
};

/// `struct ifconf` of `SIOCGIFCONF`.
pub(crate) static IFCONF: Layout = Layout {
    size: 16,
    pointers: &[field(8, Pointee::OutLen(FieldLen::U32(0)))],
    outputs: &[(0, 4, None)],
    guard: None,
};
