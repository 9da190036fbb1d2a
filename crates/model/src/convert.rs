//! From recorded events to the model's.
//!
//! Guarantee: every recorded event that changes persistency *by itself* has a counterpart. Three
//! kinds need what only the caller knows, and give `None`: `FileWrite`, `Fsync` and `Truncate` name
//! a file, so whoever keeps the table of mappings passes them on as stores and [`Op::Msync`] of the
//! mapped ranges; program requests (`Pmemcheck`, `Annotation`) are the caller's to interpret, since
//! some are about its rules.

use brownout_trace::event::{Access, Event as Recorded, EventKind, FenceKind, MS_SYNC};

use crate::types::{ByteRange, Event, Key, Line, Op, Write};

fn write<'a>(access: &Access<'a>) -> Write<'a> {
    let key = Key::of_lone_mapping(access.addr);
    if access.bytes.len() == access.size as usize {
        Write::new(key, access.bytes)
    } else {
        Write::without_values(ByteRange::new(key, u64::from(access.size)))
    }
}

/// The model's event for a recorded one, of a run of one process that maps one file once: its
/// addresses are taken for [keys](crate::keys), or `None` if it says nothing about persistency (or
/// see the module's header).
pub fn from_recorded<'a>(recorded: &Recorded<'a>) -> Option<Event<'a>> {
    let op = match &recorded.kind {
        EventKind::Store(access) | EventKind::KernelStore { access, .. } => {
            Op::Store(write(access))
        }
        EventKind::StringStore { access, elements } => Op::Store(write(access).by(*elements)),
        EventKind::NtStore(access) => Op::NtStore(write(access)),
        EventKind::Rmw(access) => Op::Rmw(write(access)),
        EventKind::Load(access) => Op::Load(ByteRange::new(
            Key::of_lone_mapping(access.addr),
            u64::from(access.size),
        )),
        EventKind::Flush { kind, addr } => Op::Flush {
            kind: *kind,
            line: Line::of(Key::of_lone_mapping(*addr)),
        },
        EventKind::Fence(FenceKind::Sfence) => Op::Sfence,
        EventKind::Fence(FenceKind::Mfence) => Op::Mfence,
        EventKind::Fence(FenceKind::Locked) => Op::Locked,
        EventKind::Msync { addr, len, flags } if flags & MS_SYNC != 0 => {
            Op::Msync(ByteRange::new(Key::of_lone_mapping(*addr), *len))
        }
        _ => return None,
    };
    Some(Event::new(recorded.thread.into(), op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Atomicity, FlushKind, Thread};
    use brownout_trace::event::{ContextId, TargetAddr, ThreadId};

    fn recorded(kind: EventKind<'_>) -> Recorded<'_> {
        Recorded {
            thread: ThreadId(3),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        }
    }

    #[test]
    fn stores_keep_place_and_values() {
        let bytes = [1, 2, 3, 4];
        let access = Access {
            addr: TargetAddr(0x103e),
            size: 4,
            bytes: &bytes,
        };
        let expected = Write::new(Key(0x103e), &bytes[..]);
        for (kind, op) in [
            (EventKind::Store(access), Op::Store(expected.clone())),
            (
                EventKind::KernelStore { syscall: 0, access },
                Op::Store(expected.clone()),
            ),
            (EventKind::NtStore(access), Op::NtStore(expected.clone())),
            (EventKind::Rmw(access), Op::Rmw(expected.clone())),
        ] {
            assert_eq!(
                from_recorded(&recorded(kind)),
                Some(Event::new(Thread(3), op))
            );
        }
        let cut: Vec<_> = expected
            .pieces(Atomicity::Line)
            .map(|w| w.range())
            .collect();
        assert_eq!(cut.len(), 2, "the store crosses a line: {cut:?}");
    }

    #[test]
    fn missing_values_are_not_made_up() {
        let access = Access {
            addr: TargetAddr(0x1000),
            size: 8,
            bytes: &[],
        };
        let event = from_recorded(&recorded(EventKind::Store(access))).expect("a store");
        let Op::Store(write) = event.op else {
            panic!("not a store")
        };
        assert_eq!((write.bytes(), write.range().len()), (None, 8));
    }

    #[test]
    fn flushes_fences_and_msync() {
        let flush = EventKind::Flush {
            kind: FlushKind::Clwb,
            addr: TargetAddr(0x107f),
        };
        let line = Line(0x41);
        assert_eq!(
            from_recorded(&recorded(flush)).map(|e| e.op),
            Some(Op::Flush {
                kind: FlushKind::Clwb,
                line
            })
        );
        for (kind, op) in [
            (FenceKind::Sfence, Op::Sfence),
            (FenceKind::Mfence, Op::Mfence),
            (FenceKind::Locked, Op::Locked),
        ] {
            assert_eq!(
                from_recorded(&recorded(EventKind::Fence(kind))).map(|e| e.op),
                Some(op)
            );
        }
        let msync = |flags| EventKind::Msync {
            addr: TargetAddr(0x1000),
            len: 4096,
            flags,
        };
        assert!(from_recorded(&recorded(msync(MS_SYNC))).is_some());
        assert_eq!(
            from_recorded(&recorded(msync(1))),
            None,
            "MS_ASYNC promises nothing"
        );
        assert_eq!(from_recorded(&recorded(EventKind::ThreadExit)), None);
    }

    #[test]
    fn unaligned_and_wide_stores_fall_into_words() {
        let write = Write::new(Key(0x1004), vec![7u8; 16]);
        let cut: Vec<_> = write
            .pieces(Atomicity::Word)
            .map(|w| (w.range().start().0, w.range().len()))
            .collect();
        assert_eq!(cut, [(0x1004, 4), (0x1008, 8), (0x1010, 4)]);
    }
}
