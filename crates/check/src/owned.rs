//! Events that can wait: copies that borrow nothing.

use brownout_trace::event::{Access, Event, EventKind};

/// An event and its text. Values of accesses are left behind: no built-in rule looks at them.
#[derive(Clone, Debug)]
pub struct Owned {
    /// With empty text.
    event: Event<'static>,
    text: Option<Box<[u8]>>,
}

fn without_values(access: &Access<'_>) -> Access<'static> {
    Access {
        addr: access.addr,
        size: access.size,
        bytes: &[],
    }
}

impl Owned {
    #[inline]
    pub fn new(event: &Event<'_>) -> Owned {
        let (kind, text): (EventKind<'static>, &[u8]) = match event.kind {
            EventKind::Store(ref access) => (EventKind::Store(without_values(access)), &[]),
            EventKind::NtStore(ref access) => (EventKind::NtStore(without_values(access)), &[]),
            EventKind::Load(ref access) => (EventKind::Load(without_values(access)), &[]),
            EventKind::Rmw(ref access) => (EventKind::Rmw(without_values(access)), &[]),
            EventKind::StringStore {
                ref access,
                elements,
            } => {
                let access = without_values(access);
                (EventKind::StringStore { access, elements }, &[])
            }
            EventKind::KernelStore {
                syscall,
                ref access,
            } => {
                let access = without_values(access);
                (EventKind::KernelStore { syscall, access }, &[])
            }
            EventKind::Flush { kind, addr } => (EventKind::Flush { kind, addr }, &[]),
            EventKind::Fence(kind) => (EventKind::Fence(kind), &[]),
            EventKind::Pmemcheck { code, args, text } => {
                let empty: &[u8] = &[];
                let kind = EventKind::Pmemcheck {
                    code,
                    args,
                    text: empty,
                };
                (kind, text)
            }
            EventKind::LibraryCall { function, args } => {
                (EventKind::LibraryCall { function, args }, &[])
            }
            ref other => rare(other),
        };
        Owned {
            event: Event {
                thread: event.thread,
                pc: event.pc,
                context: event.context,
                kind,
            },
            text: (!text.is_empty()).then(|| text.into()),
        }
    }

    /// Calls `look` with the event as it was, but for values.
    #[inline]
    pub fn with(&self, look: impl FnOnce(&Event<'_>)) {
        match &self.text {
            None => look(&self.event),
            Some(text) => look(&with_text(&self.event, text)),
        }
    }
}

#[cold]
fn rare<'a>(kind: &EventKind<'a>) -> (EventKind<'static>, &'a [u8]) {
    let none: &'static [u8] = &[];
    match *kind {
        EventKind::File {
            file,
            path,
            size,
            reason,
            created,
        } => {
            let kind = EventKind::File {
                file,
                path: none,
                size,
                reason,
                created,
            };
            (kind, path)
        }
        EventKind::Map {
            addr,
            len,
            file,
            offset,
            prot,
            flags,
        } => {
            let kind = EventKind::Map {
                addr,
                len,
                file,
                offset,
                prot,
                flags,
            };
            (kind, none)
        }
        EventKind::Unmap { addr, len } => (EventKind::Unmap { addr, len }, none),
        EventKind::Remap {
            old_addr,
            old_len,
            new_addr,
            new_len,
        } => {
            let kind = EventKind::Remap {
                old_addr,
                old_len,
                new_addr,
                new_len,
            };
            (kind, none)
        }
        EventKind::Truncate { file, size } => (EventKind::Truncate { file, size }, none),
        EventKind::FileWrite {
            file, offset, size, ..
        } => {
            let kind = EventKind::FileWrite {
                file,
                offset,
                size,
                bytes: none,
            };
            (kind, none)
        }
        EventKind::FileRead { file, offset, size } => {
            (EventKind::FileRead { file, offset, size }, none)
        }
        EventKind::FileSync { file, offset, size } => {
            (EventKind::FileSync { file, offset, size }, none)
        }
        EventKind::Input { fd, at } => (EventKind::Input { fd, at }, none),
        EventKind::Output { fd, size } => (EventKind::Output { fd, size }, none),
        EventKind::Lookup {
            syscall,
            result,
            path,
        } => {
            let kind = EventKind::Lookup {
                syscall,
                result,
                path: none,
            };
            (kind, path)
        }
        EventKind::Name {
            change,
            file,
            replaced,
            names,
        } => {
            let kind = EventKind::Name {
                change,
                file,
                replaced,
                names: none,
            };
            (kind, names)
        }
        EventKind::Signal { signal, addr } => (EventKind::Signal { signal, addr }, none),
        EventKind::FlushOutside { addr, word } => (EventKind::FlushOutside { addr, word }, none),
        EventKind::Msync { addr, len, flags } => (EventKind::Msync { addr, len, flags }, none),
        EventKind::Fsync { file, data_only } => (EventKind::Fsync { file, data_only }, none),
        EventKind::ProcessStart {
            process,
            parent,
            pid,
            exe,
        } => {
            let kind = EventKind::ProcessStart {
                process,
                parent,
                pid,
                exe: none,
            };
            (kind, exe)
        }
        EventKind::ProcessExit { process, status } => {
            (EventKind::ProcessExit { process, status }, none)
        }
        EventKind::ThreadStart {
            thread,
            process,
            tid,
        } => {
            let kind = EventKind::ThreadStart {
                thread,
                process,
                tid,
            };
            (kind, none)
        }
        EventKind::ThreadExit => (EventKind::ThreadExit, none),
        EventKind::Futex {
            addr,
            op,
            val,
            result,
        } => {
            let kind = EventKind::Futex {
                addr,
                op,
                val,
                result,
            };
            (kind, none)
        }
        EventKind::Annotation { code, args, text } => {
            let kind = EventKind::Annotation {
                code,
                args,
                text: none,
            };
            (kind, text)
        }
        EventKind::Module {
            process,
            addr,
            len,
            offset,
            path,
        } => {
            let kind = EventKind::Module {
                process,
                addr,
                len,
                offset,
                path: none,
            };
            (kind, path)
        }
        EventKind::Context {
            context,
            parent,
            return_addr,
        } => {
            let kind = EventKind::Context {
                context,
                parent,
                return_addr,
            };
            (kind, none)
        }
        EventKind::Note { text } => (EventKind::Note { text: none }, text),
        EventKind::End { status } => (EventKind::End { status }, none),
        // The frequent kinds: `Owned::new` has them.
        EventKind::Store(_)
        | EventKind::NtStore(_)
        | EventKind::Load(_)
        | EventKind::Rmw(_)
        | EventKind::KernelStore { .. }
        | EventKind::StringStore { .. }
        | EventKind::Flush { .. }
        | EventKind::Fence(_)
        | EventKind::Pmemcheck { .. }
        | EventKind::LibraryCall { .. } => unreachable!("a frequent kind"),
    }
}

#[cold]
fn with_text<'a>(event: &Event<'static>, text: &'a [u8]) -> Event<'a> {
    let mut event: Event<'a> = event.clone();
    match &mut event.kind {
        EventKind::File { path, .. }
        | EventKind::Module { path, .. }
        | EventKind::Lookup { path, .. } => *path = text,
        EventKind::Name { names, .. } => *names = text,
        EventKind::ProcessStart { exe, .. } => *exe = text,
        EventKind::Pmemcheck { text: place, .. }
        | EventKind::Annotation { text: place, .. }
        | EventKind::Note { text: place } => *place = text,
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::{ContextId, FileId, PmReason, TargetAddr, ThreadId};

    #[test]
    fn text_survives_and_values_do_not() {
        let of = |kind| Event {
            thread: ThreadId(1),
            pc: TargetAddr(2),
            context: ContextId(3),
            kind,
        };
        let (file, size, reason) = (FileId(4), 5, PmReason::Glob);
        let path = b"/a";
        let texts = [
            EventKind::File {
                file,
                path,
                size,
                reason,
                created: true,
            },
            EventKind::Lookup {
                syscall: 21,
                result: -2,
                path,
            },
            EventKind::Note { text: b"note" },
            EventKind::Annotation {
                code: 1,
                args: [1, 2, 3, 4, 5],
                text: b"name",
            },
            EventKind::Pmemcheck {
                code: 30,
                args: [1, 2, 3, 4],
                text: b"mark",
            },
            EventKind::ThreadExit,
        ];
        for kind in texts {
            let event = of(kind);
            let mut seen = false;
            Owned::new(&event).with(|copy| {
                assert_eq!(*copy, event);
                seen = true;
            });
            assert!(seen);
        }
        let access = Access {
            addr: TargetAddr(6),
            size: 2,
            bytes: &[1, 2],
        };
        Owned::new(&of(EventKind::Store(access))).with(|copy| {
            assert_eq!(
                copy.kind.access().map(|a| (a.size, a.bytes)),
                Some((2, &[][..]))
            );
        });
    }
}
