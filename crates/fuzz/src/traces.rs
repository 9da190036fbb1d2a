//! What a run did to persistent memory last, and how much of it there is to look at closely.

use std::io;

use brownout_trace::EventSink;
use brownout_trace::event::{Access, ContextId, Event, EventKind, TargetAddr, ThreadId};
use rustc_hash::FxHashMap;

/// Where a thread did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which thread.
    pub thread: ThreadId,
    /// The instruction.
    pub pc: TargetAddr,
    /// From where it was called.
    pub context: ContextId,
    /// The innermost of these calls, by its return address.
    pub caller: TargetAddr,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// The last operation on persistent memory, if there was one.
    pub last: Option<Place>,
    /// How much recording the run, and going through its crashes, takes: what changes or orders
    /// anything. Write-backs alone do neither, and a library that makes a pool writes back ten
    /// times as many lines as it has changed.
    pub weight: u64,
    callers: FxHashMap<ContextId, TargetAddr>,
}

/// Lines that an access goes through.
fn lines(access: &Access<'_>) -> u64 {
    1 + u64::from(access.size) / 64
}

impl EventSink for Traces {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.weight += match &event.kind {
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::Rmw(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => lines(access),
            EventKind::FileWrite { size, .. } => 1 + u64::from(*size) / 64,
            EventKind::Fence(_)
            | EventKind::LibraryCall { .. }
            | EventKind::Msync { .. }
            | EventKind::Fsync { .. } => 1,
            EventKind::Flush { .. } => 0,
            EventKind::Context {
                context,
                return_addr,
                ..
            } => {
                self.callers.insert(*context, *return_addr);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.last = Some(Place {
            thread: event.thread,
            pc: event.pc,
            context: event.context,
            caller: self
                .callers
                .get(&event.context)
                .copied()
                .unwrap_or_default(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::FlushKind;

    #[test]
    fn write_backs_weigh_nothing() {
        let mut traces = Traces::default();
        let mut take = |pc: u64, kind| {
            let event = Event {
                thread: ThreadId(1),
                pc: TargetAddr(pc),
                context: ContextId(7),
                kind,
            };
            traces.event(&event).expect("it never fails");
            (traces.weight, traces.last.map(|place| place.pc.0))
        };
        assert_eq!(take(1, EventKind::Input { fd: 0, at: 0 }), (0, None));
        let store = EventKind::Store(Access {
            addr: TargetAddr(64),
            size: 8,
            bytes: &[],
        });
        assert_eq!(take(2, store), (1, Some(2)));
        let memset = EventKind::NtStore(Access {
            addr: TargetAddr(64),
            size: 640,
            bytes: &[],
        });
        assert_eq!(take(3, memset), (12, Some(3)));
        let flush = EventKind::Flush {
            kind: FlushKind::Clwb,
            addr: TargetAddr(64),
        };
        assert_eq!(take(4, flush), (12, Some(4)));
    }
}
