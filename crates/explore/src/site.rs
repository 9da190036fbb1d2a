//! Where in the code, and when in the run, something happened.

use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ContextId, ProcessId, TargetAddr, ThreadId};

/// Where in the code something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub thread: ThreadId,
    pub process: ProcessId,
    /// When `pc` meant what it means here.
    pub epoch: Epoch,
    pub pc: TargetAddr,
    pub context: ContextId,
    /// Place in the total order of the run's events.
    pub event: u64,
}
