//! What [`prepare`](crate::prepare) leaves for [`finish`](crate::finish).

use crate::kind::When;
use crate::scratch::{Scratch, Slot};
use alloc::vec::Vec;

/// Bytes in the program's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first one's address, as the program knows it.
    pub addr: u64,
    /// How many.
    pub len: u64,
}

/// A call under way. One a thread is enough: each [`prepare`](crate::prepare) begins anew, and
/// memory is kept for the next.
pub struct Prepared {
    pub(crate) nr: u64,
    /// The arguments as the program gave them.
    pub(crate) args: [u64; 6],
    pub(crate) pending: Vec<Pending>,
    pub(crate) reads: Vec<Range>,
    /// Those that are as long as their content says.
    pub(crate) self_ending: Vec<Range>,
    pub(crate) retained: Vec<Range>,
    pub(crate) unknown: Vec<Range>,
    /// Words of the program's memory to restore after the call.
    pub(crate) patches: Vec<(u64, u64)>,
    /// The program's array of `struct io_event`, if the call fills one.
    pub(crate) events: Option<u64>,
    pub(crate) scratch: Scratch,
    dirty: bool,
}

impl Prepared {
    /// One without memory.
    pub const fn new() -> Prepared {
        Prepared {
            nr: 0,
            args: [0; 6],
            pending: Vec::new(),
            reads: Vec::new(),
            self_ending: Vec::new(),
            retained: Vec::new(),
            unknown: Vec::new(),
            patches: Vec::new(),
            events: None,
            scratch: Scratch::new(),
            dirty: false,
        }
    }

    /// The call's number.
    pub fn nr(&self) -> u64 {
        self.nr
    }

    /// The arguments as the program gave them.
    pub fn args(&self) -> &[u64; 6] {
        &self.args
    }

    /// Whether the call has nothing to do with PM: [`finish`](crate::finish) will do nothing.
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.dirty
    }

    /// PM that the kernel may read, known before the call: an upper bound, but strings end at
    /// their NUL. Ranges may overlap.
    pub fn reads(&self) -> &[Range] {
        &self.reads
    }

    /// Whether the kernel reads one of [`reads`](Self::reads) byte after byte until its content
    /// says that it ends: a string, or items behind their number.
    pub fn ends_itself(&self, range: &Range) -> bool {
        let end = range.addr.wrapping_add(range.len);
        let mut all = self.self_ending.iter();
        all.any(|whole| whole.addr <= range.addr && end <= whole.addr.wrapping_add(whole.len))
    }

    /// PM whose address the kernel keeps and will use after the call (`set_tid_address`, `clone`
    /// with `CLONE_CHILD_CLEARTID`, `set_robust_list`, `rseq`, `io_submit`).
    pub fn retained(&self) -> &[Range] {
        &self.retained
    }

    /// PM of which only a comparison with the content before the call can tell what was written.
    /// [`finish`](crate::finish) makes it; what lies beyond these upper bounds would be missed.
    pub fn unknown(&self) -> &[Range] {
        &self.unknown
    }

    /// Begins a call.
    #[inline]
    pub(crate) fn begin(&mut self, nr: u64, args: &[u64; 6]) {
        self.nr = nr;
        self.args = *args;
        if self.dirty {
            self.clear();
        }
    }

    /// Must be called before anything is put into a list or the scratch memory.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.dirty = true;
    }

    #[cold]
    fn clear(&mut self) {
        self.pending.clear();
        self.reads.clear();
        self.self_ending.clear();
        self.retained.clear();
        self.unknown.clear();
        self.patches.clear();
        self.events = None;
        self.scratch.clear();
        self.dirty = false;
    }
}

impl Default for Prepared {
    fn default() -> Prepared {
        Prepared::new()
    }
}

// SAFETY: the slots in `pending` point into `scratch`, which the same value owns.
unsafe impl Send for Prepared {}

/// Memory that the kernel writes during the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Where, in the program's addresses.
    pub(crate) addr: u64,
    /// How much at most.
    pub(crate) len: u64,
    pub(crate) extent: Extent,
    pub(crate) when: When,
    /// The kernel writes here instead, and `finish` copies it to `addr`.
    pub(crate) via: Option<Slot>,
}

/// How much of a [`Pending`] was written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    All,
    /// `plus + unit * result`.
    Result {
        plus: u8,
        unit: u8,
    },
    /// What the `u32` at this program address says after the call.
    Len32(u64),
    /// What the `u64` at this program address says after the call.
    Len64(u64),
    /// A field of each item.
    Field {
        item: u8,
        at: u8,
        len: u8,
    },
    WaitInfo,
    /// What differs from this copy.
    Changed(Slot),
    /// A buffer of several that are filled one after the other: how many bytes the earlier ones
    /// take, and where the total is: at this program address, else the result.
    Window {
        start: u64,
        total: Option<u64>,
    },
}
