//! Calls that cannot be followed completely.

use core::fmt;

use crate::kind::Reason;
use crate::table::name;

/// A call that cannot be followed completely. Its arguments were rewritten as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The call's number.
    pub nr: u64,
    /// What is wrong.
    pub reason: Reason,
}

impl Unsupported {
    /// The (positive) `errno` to answer instead of making the call, where programs are known to
    /// have another way. Without one, make the call, [`finish`](crate::finish) it, and tell the
    /// user.
    pub fn answer(&self) -> Option<i32> {
        match self.reason {
            Reason::RingSetup => Some(38), // ENOSYS, as on a kernel without io_uring
            _ => None,
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reason {
            Reason::UnknownCall => "is not known",
            Reason::RingSetup | Reason::RingUse => "passes buffers that cannot be followed",
            Reason::HiddenPointer => "has an argument that may point to persistent memory",
            Reason::Straddles => "has a buffer that crosses the border of persistent memory",
        };
        write!(f, "system call {} ({}) {what}", self.nr, name(self.nr))
    }
}
