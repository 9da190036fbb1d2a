//! The stream of a run as it is where nobody asks for names: for analyses that look at persistent
//! memory only.
//!
//! A file is defined when it is first mapped, with the size that it has then; what is done to it
//! before, to names, and to ordinary files is left out. [`PmOnly::from_first_change`] keeps what is
//! done to persistent memory before, also if it turns out only then that it is some. What is left
//! out is named in [`PmOnly::left_out`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use brownout_trace::event::{
    ContextId, Event, EventKind, FileId, NameChange, PmReason, ProcessId, TargetAddr, ThreadId,
    split_names,
};
use brownout_trace::maps::AddressSpaces;
use brownout_trace::{Beginning, EventSink};

/// What is held back of one file. More than that is left out.
const HELD_MAX: usize = 16 << 20;

/// A file that was not mapped yet.
struct Waiting {
    path: Vec<u8>,
    size: u64,
    reason: PmReason,
    created: bool,
    /// The size that it was defined with.
    first_size: u64,
    /// What was done to it since. It is told if the file turns out to be persistent memory.
    held: Vec<Held>,
    held_bytes: usize,
}

/// Something that was done to a file through a descriptor.
struct Held {
    thread: ThreadId,
    pc: TargetAddr,
    context: ContextId,
    what: What,
}

enum What {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { size: u64 },
    Sync { data_only: bool },
    SyncStretch { offset: u64, size: u64 },
}

impl Held {
    fn event(&self, file: FileId) -> Event<'_> {
        Event {
            thread: self.thread,
            pc: self.pc,
            context: self.context,
            kind: match &self.what {
                What::Write { offset, bytes } => EventKind::FileWrite {
                    file,
                    offset: *offset,
                    size: bytes.len() as u32,
                    bytes,
                },
                What::Truncate { size } => EventKind::Truncate { file, size: *size },
                What::Sync { data_only } => EventKind::Fsync {
                    file,
                    data_only: *data_only,
                },
                What::SyncStretch { offset, size } => EventKind::FileSync {
                    file,
                    offset: *offset,
                    size: *size,
                },
            },
        }
    }
}

/// See the module's header.
pub struct PmOnly<'s> {
    sink: &'s mut dyn EventSink,
    waiting: BTreeMap<FileId, Waiting>,
    ordinary: BTreeSet<FileId>,
    spaces: AddressSpaces,
    /// Persistent memory is defined when it is first changed, by whatever means.
    from_first_change: bool,
    /// Changes that the sink does not hear of, in words.
    left_out: BTreeSet<String>,
}

impl<'s> PmOnly<'s> {
    /// What this sink is to hear of.
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

    /// Changes that the sink has not heard of, in words.
    pub fn left_out(mut self) -> BTreeSet<String> {
        for file in &self.ordinary {
            if let Some(waiting) = self.waiting.get(file) {
                let path = String::from_utf8_lossy(&waiting.path);
                self.left_out.insert(format!("write to {path}"));
            }
        }
        self.left_out
    }

    /// Whether an address lies in an ordinary file.
    fn is_ordinary(&mut self, thread: ThreadId, addr: TargetAddr) -> bool {
        !self.ordinary.is_empty()
            && self
                .spaces
                .translate(thread, addr)
                .is_some_and(|found| self.ordinary.contains(&found.file))
    }

    /// A change of a file that is not defined yet. False if it is.
    fn hold(&mut self, event: &Event<'_>, file: FileId, what: What) -> bool {
        let Some(waiting) = self.waiting.get_mut(&file) else {
            return false;
        };
        match &what {
            What::Write { offset, bytes } => {
                waiting.size = waiting.size.max(offset + bytes.len() as u64);
                waiting.held_bytes += bytes.len();
            }
            What::Truncate { size } => waiting.size = *size,
            What::Sync { .. } | What::SyncStretch { .. } => {}
        }
        if !self.from_first_change || waiting.held_bytes > HELD_MAX {
            waiting.held.clear();
            return true;
        }
        waiting.held.push(Held {
            thread: event.thread,
            pc: event.pc,
            context: event.context,
            what,
        });
        true
    }

    /// A file was found. Those of persistent memory are told with what was done to them while they
    /// passed for ordinary ones.
    fn found(&mut self, event: &Event<'_>) -> io::Result<()> {
        let EventKind::File {
            file,
            path,
            size,
            reason,
            created,
        } = event.kind
        else {
            return Ok(());
        };
        let is_pm = reason != PmReason::Changed;
        match is_pm {
            true => self.ordinary.remove(&file),
            false => self.ordinary.insert(file),
        };
        if !is_pm || !self.from_first_change {
            let waiting = Waiting {
                path: path.to_vec(),
                size,
                reason,
                created,
                first_size: size,
                held: Vec::new(),
                held_bytes: 0,
            };
            self.waiting.insert(file, waiting);
            return Ok(());
        }
        let Some(before) = self.waiting.remove(&file) else {
            return self.sink.event(event);
        };
        if before.held_bytes > HELD_MAX {
            let path = String::from_utf8_lossy(path);
            self.left_out.insert(format!("write to {path}"));
        }
        self.sink.event(&Event {
            kind: EventKind::File {
                file,
                path,
                size: before.first_size,
                reason,
                created: before.created,
            },
            ..event.clone()
        })?;
        for held in &before.held {
            self.sink.event(&held.event(file))?;
        }
        Ok(())
    }
}

impl EventSink for PmOnly<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.spaces
            .observe(event)
            .map_err(|fault| io::Error::other(fault.to_string()))?;
        match &event.kind {
            EventKind::Name { change, names, .. } => match change {
                NameChange::SyncFolder => return Ok(()),
                NameChange::Attributes if self.from_first_change => {}
                NameChange::Attributes => return Ok(()),
                NameChange::SyncAll if self.from_first_change => {}
                NameChange::SyncAll => return Ok(()),
                _ => {
                    let (path, more) = split_names(names);
                    let path = String::from_utf8_lossy(path);
                    self.left_out.insert(match change {
                        NameChange::Unfollowed => {
                            format!("{} {path}", String::from_utf8_lossy(more))
                        }
                        _ => format!("{} {path}", change.name()),
                    });
                    return Ok(());
                }
            },
            EventKind::File { .. } => return self.found(event),
            EventKind::Truncate { file, size } => {
                if self.hold(event, *file, What::Truncate { size: *size }) {
                    return Ok(());
                }
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } if self.waiting.contains_key(file) => {
                let mut bytes = bytes.to_vec();
                bytes.resize(*size as usize, 0);
                let offset = *offset;
                self.hold(event, *file, What::Write { offset, bytes });
                return Ok(());
            }
            EventKind::Fsync { file, data_only } => {
                let data_only = *data_only;
                if self.hold(event, *file, What::Sync { data_only }) {
                    return Ok(());
                }
            }
            EventKind::FileSync { file, offset, size } => {
                let (offset, size) = (*offset, *size);
                if self.hold(event, *file, What::SyncStretch { offset, size }) {
                    return Ok(());
                }
            }
            EventKind::FileRead { file, .. } if self.waiting.contains_key(file) => return Ok(()),
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

    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        self.sink.answer(question)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        self.sink.beginning(process, what)
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        self.sink.new_file(file, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it hears.
    #[derive(Default)]
    struct Heard(Vec<String>);

    impl EventSink for Heard {
        fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
            self.0.push(match &event.kind {
                EventKind::File {
                    path,
                    size,
                    created,
                    ..
                } => format!(
                    "{} of {size}{}",
                    String::from_utf8_lossy(path),
                    if *created { ", new" } else { "" }
                ),
                EventKind::FileWrite { offset, bytes, .. } => {
                    format!("{} at {offset}", String::from_utf8_lossy(bytes))
                }
                EventKind::Truncate { size, .. } => format!("truncated to {size}"),
                kind => kind.name().to_owned(),
            });
            Ok(())
        }
    }

    fn event(kind: EventKind<'_>) -> Event<'_> {
        Event {
            thread: ThreadId(1),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        }
    }

    fn file(reason: PmReason, size: u64) -> EventKind<'static> {
        EventKind::File {
            file: FileId(1),
            path: b"/pool",
            size,
            reason,
            created: false,
        }
    }

    fn write(bytes: &[u8]) -> EventKind<'_> {
        EventKind::FileWrite {
            file: FileId(1),
            offset: 8,
            size: bytes.len() as u32,
            bytes,
        }
    }

    /// What the two kinds of filter let through, and what they leave out.
    fn told(events: &[EventKind<'_>]) -> [(Vec<String>, Vec<String>); 2] {
        [false, true].map(|from_first_change| {
            let mut heard = Heard::default();
            let mut only = match from_first_change {
                true => PmOnly::from_first_change(&mut heard),
                false => PmOnly::new(&mut heard),
            };
            for kind in events {
                only.event(&event(kind.clone())).unwrap();
            }
            let left_out = only.left_out().into_iter().collect();
            (heard.0, left_out)
        })
    }

    #[test]
    fn what_turns_out_to_be_persistent_memory_is_told_from_its_first_change_on() {
        let truncate = EventKind::Truncate {
            file: FileId(1),
            size: 64,
        };
        let events = [
            file(PmReason::Changed, 10),
            write(b"abc"),
            truncate,
            file(PmReason::Glob, 64),
            write(b"d"),
        ];
        let [(early, _), (all, left_out)] = told(&events);
        // It is not mapped yet.
        assert_eq!(early, [""; 0]);
        let expected = ["/pool of 10", "abc at 8", "truncated to 64", "d at 8"];
        assert_eq!(all, expected);
        assert_eq!(left_out, [""; 0]);
    }

    #[test]
    fn what_is_left_out_is_named() {
        let rename = EventKind::Name {
            change: NameChange::Rename,
            file: FileId(7),
            replaced: FileId(0),
            names: b"/a\0/b",
        };
        let [_, (heard, left_out)] = told(&[file(PmReason::Changed, 10), write(b"abc"), rename]);
        assert_eq!(heard, [""; 0]);
        assert_eq!(left_out, ["rename /a", "write to /pool"]);
    }
}
