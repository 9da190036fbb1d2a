//! Events that can wait: copies that borrow nothing.

use brownout_trace::event::{Event, EventKind};

/// An event and its text. Values of accesses are left behind: no built-in rule looks at them.
#[derive(Clone, Debug)]
pub struct Owned {
    /// With empty text.
    event: Event<'static>,
    text: Option<Box<[u8]>>,
}

impl Owned {
    #[inline]
    pub fn new(event: &Event<'_>) -> Owned {
        let (kind, text): (EventKind<'static>, &[u8]) = match event.kind {
            EventKind::Store(ref access) => (EventKind::Store(access.without_values()), &[]),
            EventKind::NtStore(ref access) => (EventKind::NtStore(access.without_values()), &[]),
            EventKind::Load(ref access) => (EventKind::Load(access.without_values()), &[]),
            EventKind::Rmw(ref access) => (EventKind::Rmw(access.without_values()), &[]),
            EventKind::StringStore {
                ref access,
                elements,
            } => {
                let access = access.without_values();
                (EventKind::StringStore { access, elements }, &[])
            }
            EventKind::KernelStore {
                syscall,
                ref access,
            } => {
                let access = access.without_values();
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

/// The kinds that are not worth a path of their own.
#[cold]
fn rare<'a>(kind: &EventKind<'a>) -> (EventKind<'static>, &'a [u8]) {
    kind.without_text()
}

#[cold]
fn with_text<'a>(event: &Event<'static>, text: &'a [u8]) -> Event<'a> {
    Event {
        thread: event.thread,
        pc: event.pc,
        context: event.context,
        kind: event.kind.clone().with_text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::{Access, ContextId, FileId, PmReason, TargetAddr, ThreadId};

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
