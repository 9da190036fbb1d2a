//! A thread of the run, and where it stands.

use core::sync::atomic::AtomicU32;

/// Threads that can be alive at a time.
pub const SEATS: usize = 1024;

/// No time at which a wait ends by itself.
pub const NO_DEADLINE: u64 = u64::MAX;

/// In [`Seat::poked`]: a thread that was [`SeatState::Away`] has come back.
pub const BACK: u32 = 2;

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PointKind {
    /// Its first instruction.
    #[default]
    Start = 0,
    /// A load of persistent memory.
    Load = 1,
    /// A store to it.
    Store = 2,
    /// A locked instruction on it.
    Rmw = 3,
    /// A write-back.
    Flush = 4,
    /// A fence.
    Fence = 5,
    /// A locked instruction on other memory.
    Locked = 6,
    /// A system call.
    Call = 7,
    /// It offers its turn: `pause`, `sched_yield`.
    Yield = 8,
    /// It has gone on for long without any of these.
    Spin = 9,
    /// To wait: it cannot go on by itself.
    Wait = 10,
    /// To end.
    Exit = 11,
}

impl PointKind {
    /// Whether somebody else goes on here unless there is a reason: a thread that waits for others
    /// by looking again and again would starve them.
    pub fn gives_way(self) -> bool {
        matches!(self, PointKind::Yield | PointKind::Spin)
    }

    /// Whether it is an access to persistent memory.
    pub fn is_access(self) -> bool {
        matches!(self, PointKind::Load | PointKind::Store | PointKind::Rmw)
    }
}

/// A place in a thread's execution where another may go on instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Point {
    /// What comes next.
    pub kind: PointKind,
    /// Bytes, of an access.
    pub size: u32,
    /// The instruction.
    pub pc: u64,
    /// The address, of an access.
    pub addr: u64,
}

/// What keeps a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum SeatState {
    /// There is no such thread.
    #[default]
    Free = 0,
    /// Nothing.
    Ready = 1,
    /// It waits in a futex, until somebody wakes it.
    Futex = 2,
    /// It waits for something in the kernel, and tries again when anybody has made a call that may
    /// have changed it.
    Retry = 3,
    /// It waits for a signal.
    Signal = 4,
    /// It is in a call that cannot be tried without waiting; it comes back by itself.
    Away = 5,
    /// Its child has its memory, or is about to leave it.
    Child = 6,
    /// It waits for time to pass.
    Sleep = 7,
}

/// A thread of the run.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Seat {
    /// What keeps it.
    pub state: SeatState,
    /// Its number in the stream.
    pub thread: u32,
    /// The kernel's number of its process.
    pub pid: u32,
    /// The kernel's number of it.
    pub tid: u32,
    /// The number by which the program knows it, once it has come to wait.
    pub number: u32,
    /// A signal may have come for it. Its own signal handler sets this, too, whoever has the turn.
    pub poked: AtomicU32,
    /// Of a futex: who is to be woken.
    pub bitset: u32,
    /// Of a futex: which memory.
    pub key: [u64; 2],
    /// Of a futex: when it came to wait.
    pub order: u64,
    /// When its wait ends by itself.
    pub deadline: u64,
    /// Of [`SeatState::Retry`]: what had changed when it tried last.
    pub tried: u64,
    /// Where it stands.
    pub point: Point,
}
