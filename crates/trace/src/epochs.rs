//! When an address of code meant what.
//!
//! A process that replaces itself (`execve`), or unloads a library, gets other code at addresses
//! that the stream has used already. An *epoch* is a time in which that does not happen: whoever
//! notes down an address notes the epoch as well, and whoever turns addresses into names asks with
//! both. Both count with this, so that they count alike.

use std::collections::HashMap;

use crate::event::{Event, EventKind, ProcessId};

/// A stretch of a process's life in which code comes and none goes. Ordered by time; comparable
/// within one process only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// The current epoch of each process.
#[derive(Clone, Debug, Default)]
pub struct CodeEpochs {
    of: HashMap<ProcessId, Epoch>,
}

impl CodeEpochs {
    /// Takes note of an event. True if it begins a new epoch of a process that had one.
    pub fn observe(&mut self, event: &Event<'_>) -> bool {
        let process = match event.kind {
            EventKind::ProcessStart { process, .. } => process,
            EventKind::Module {
                process, path: [], ..
            } => process,
            _ => return false,
        };
        match self.of.get_mut(&process) {
            Some(epoch) => {
                epoch.0 += 1;
                true
            }
            None => {
                self.of.insert(process, Epoch::default());
                false
            }
        }
    }

    /// The epoch that events of the process happen in now.
    pub fn of(&self, process: ProcessId) -> Epoch {
        self.of.get(&process).copied().unwrap_or_default()
    }
}
