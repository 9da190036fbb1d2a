//! What runs have touched is told apart by the code and its callers, whatever the numbers of
//! threads and contexts are and wherever code lies.

use brownout_findings::Frame;
use brownout_findings::touched::Touch;
use brownout_symbols::{Counting, Part, Touches};
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, FenceKind, FlushKind, ProcessId, TargetAddr, ThreadId,
};

/// A run of a program that lies at `base`, in which a function is called from two places.
struct Run {
    counting: Counting,
    base: u64,
    thread: u32,
}

impl Run {
    fn new(touches: &Touches, part: Part, base: u64, thread: u32) -> Run {
        let mut run = Run {
            counting: touches.run(part),
            base,
            thread,
        };
        run.tell(
            0,
            0,
            EventKind::ProcessStart {
                process: ProcessId(1),
                parent: ProcessId(0),
                pid: 7,
                exe: b"/none/a",
            },
        );
        let thread = ThreadId(thread);
        run.tell(
            0,
            0,
            EventKind::ThreadStart {
                thread,
                process: ProcessId(1),
                tid: 7,
            },
        );
        run.tell(
            0,
            0,
            EventKind::Module {
                process: ProcessId(1),
                addr: TargetAddr(base),
                len: 0x1000,
                offset: 0,
                path: b"/none/a",
            },
        );
        run
    }

    fn tell(&mut self, pc: u64, context: u32, kind: EventKind<'_>) {
        self.counting.observe(&Event {
            thread: ThreadId(self.thread),
            pc: TargetAddr(pc),
            context: ContextId(context),
            kind,
        });
    }

    fn calls(&mut self, context: u32, from: u64) {
        let return_addr = TargetAddr(self.base + from);
        self.tell(
            0,
            0,
            EventKind::Context {
                context: ContextId(context),
                parent: ContextId(0),
                return_addr,
            },
        );
    }

    fn stores(&mut self, at: u64, context: u32) {
        let pc = self.base + at;
        let access = Access {
            addr: TargetAddr(0x5000),
            size: 8,
            bytes: &[],
        };
        self.tell(pc, context, EventKind::Store(access));
    }

    fn writes_back(&mut self, at: u64, context: u32) {
        let flush = EventKind::Flush {
            kind: FlushKind::Clwb,
            addr: TargetAddr(0x5000),
        };
        self.tell(self.base + at, context, flush);
        let fence = EventKind::Fence(FenceKind::Sfence);
        self.tell(self.base + at + 8, context, fence);
    }
}

#[test]
fn the_same_code_is_one_place_in_all_runs() {
    let touches = Touches::default();
    let mut first = Run::new(&touches, Part::Program, 0x40_0000, 1);
    // Two at a time have two tallies; both know the same place.
    let mut beside = Run::new(&touches, Part::Program, 0x70_0000, 4);
    first.calls(3, 0x100);
    first.stores(0x10, 3);
    first.stores(0x10, 3);
    beside.calls(9, 0x100);
    beside.stores(0x10, 9);
    assert_eq!(touches.total().unknown, 0, "runs that go on do not count");
    drop(first);
    drop(beside);
    assert_eq!(touches.total().unknown, 1);
    // Called from elsewhere it is another one; so is what other code does.
    let mut third = Run::new(&touches, Part::Recovery, 0x40_0000, 1);
    third.calls(3, 0x200);
    third.stores(0x10, 3);
    third.stores(0x20, 0);
    drop(third);
    assert_eq!(touches.total().unknown, 3);
    // What recovery writes back and fences counts as what it stores does.
    let mut fourth = Run::new(&touches, Part::RecoveryFirst, 0x40_0000, 1);
    fourth.writes_back(0x30, 0);
    drop(fourth);
    assert_eq!(touches.total().unknown, 5);
}

#[test]
fn what_has_a_name_already_is_added() {
    let touches = Touches::default();
    let frame = Frame {
        file: Some("a.c".into()),
        line: Some(4),
        ..Frame::default()
    };
    touches.add(std::slice::from_ref(&frame), Touch::Crashes, 2);
    touches.add(&[frame], Touch::Crashes, 3);
    let total = touches.total();
    assert_eq!(total.files[0].lines[0].times[&Touch::Crashes], 5);
    assert_eq!(total, touches.total(), "asking changes nothing");
}
