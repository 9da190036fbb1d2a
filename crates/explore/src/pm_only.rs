//! The stream of a run as it is where nobody asks for names: for analyses that look at persistent memory only.
//!
//! A file is defined when it is first mapped, with the size that it has then; what is done to it before, to names, and to ordinary files is left out.
//! [`PmOnly::from_first_change`] keeps what is done to persistent memory before. What is left out is named in [`PmOnly::left_out`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use brownout_host::EventSink;
use brownout_trace::event::{
    Event, EventKind, FileId, NameChange, PmReason, TargetAddr, ThreadId, split_names,
};
use brownout_trace::maps::AddressSpaces;

/// A file that was not mapped yet.
struct Waiting {
    path: Vec<u8>,
    size: u64,
    reason: PmReason,
    created: bool,
}

/// See the module's header.
pub struct PmOnly<'s> {
    pub sink: &'s mut dyn EventSink,
    waiting: BTreeMap<FileId, Waiting>,
    ordinary: BTreeSet<FileId>,
    spaces: AddressSpaces,
    /// Persistent memory is defined when it is first changed, by whatever means.
    from_first_change: bool,
    /// Paths of changes that the sink does not hear of.
    pub left_out: BTreeSet<Vec<u8>>,
}

impl<'s> PmOnly<'s> {
    pub fn new(sink: &'s mut dyn EventSink) -> PmOnly<'s> {
        PmOnly {
            sink,
            waiting: BTreeMap::new(),
            ordinary: BTreeSet::new(),
            spaces: AddressSpaces::new(),
            from_first_change: false,
            left_out: BTreeSet::new(),
        }
    }

    /// See the module's header.
    pub fn from_first_change(sink: &'s mut dyn EventSink) -> PmOnly<'s> {
        PmOnly {
            from_first_change: true,
            ..PmOnly::new(sink)
        }
    }

    /// Whether an address lies in an ordinary file.
    fn is_ordinary(&mut self, thread: ThreadId, addr: TargetAddr) -> bool {
        !self.ordinary.is_empty()
            && self
                .spaces
                .translate(thread, addr)
                .is_some_and(|found| self.ordinary.contains(&found.file))
    }

    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.spaces
            .observe(event)
            .map_err(|fault| io::Error::other(fault.to_string()))?;
        match &event.kind {
            EventKind::Name { change, names, .. } => match change {
                NameChange::SyncFolder => return Ok(()),
                NameChange::SyncAll if self.from_first_change => {}
                NameChange::SyncAll => return Ok(()),
                _ => {
                    self.left_out.insert(split_names(names).0.to_vec());
                    return Ok(());
                }
            },
            EventKind::File {
                file,
                path,
                size,
                reason,
                created,
            } => {
                match reason {
                    PmReason::Changed => {
                        self.left_out.insert(path.to_vec());
                        self.ordinary.insert(*file);
                    }
                    _ => {
                        self.ordinary.remove(file);
                        if self.from_first_change {
                            self.waiting.remove(file);
                            return self.sink.event(event);
                        }
                    }
                }
                let waiting = Waiting {
                    path: path.to_vec(),
                    size: *size,
                    reason: *reason,
                    created: *created,
                };
                self.waiting.insert(*file, waiting);
                return Ok(());
            }
            EventKind::Truncate { file, size } => {
                if let Some(waiting) = self.waiting.get_mut(file) {
                    waiting.size = *size;
                    return Ok(());
                }
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                if let Some(waiting) = self.waiting.get_mut(file) {
                    waiting.size = waiting.size.max(offset + u64::from(*size));
                    return Ok(());
                }
            }
            EventKind::FileRead { file, .. }
            | EventKind::Fsync { file, .. }
            | EventKind::FileSync { file, .. }
                if self.waiting.contains_key(file) =>
            {
                return Ok(());
            }
            EventKind::Map { file, .. } => {
                if self.ordinary.contains(file) {
                    return Ok(());
                }
                if let Some(waiting) = self.waiting.remove(file) {
                    self.sink.event(&Event {
                        kind: EventKind::File {
                            file: *file,
                            path: &waiting.path,
                            size: waiting.size,
                            reason: waiting.reason,
                            created: waiting.created,
                        },
                        ..event.clone()
                    })?;
                }
            }
            EventKind::Flush { addr, .. } | EventKind::Msync { addr, .. } => {
                if self.is_ordinary(event.thread, *addr) {
                    return Ok(());
                }
            }
            kind => {
                if let Some(access) = kind.access()
                    && self.is_ordinary(event.thread, access.addr)
                {
                    return Ok(());
                }
            }
        }
        self.sink.event(event)
    }
}
