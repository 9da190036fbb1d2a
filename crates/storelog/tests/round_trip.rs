//! Events to log to events, and log to events to log.

mod support;

use brownout_storelog::{Exporter, Importer};
use brownout_trace::event::{Event, EventKind, FenceKind, FlushKind, TargetAddr};
use proptest::prelude::*;
use support::{MARKER, MS_SYNC, access, event, export, file, map, request, thread_start};

const BASE: u64 = 0x7f00_0000_0000;
const POOL_LEN: u64 = 0x4000;

/// What a log can say, in the smallest steps.
#[derive(Clone, Debug, PartialEq)]
enum Atom {
    Byte(u64, u8),
    Line(u64),
    Fence,
    Marker(String),
}

#[derive(Clone, Debug)]
enum Action {
    Store(u8, u64, Vec<u8>),
    Flush(FlushKind, u64),
    Fence(FenceKind),
    Msync(u64, u64),
    DoFlush(u64, u64),
    DoFence,
    Section(&'static str),
}

fn action() -> impl Strategy<Value = Action> {
    let store = (
        0u8..4,
        0..POOL_LEN - 64,
        prop::collection::vec(any::<u8>(), 1..64),
    );
    let flushes = vec![FlushKind::Clflush, FlushKind::Clflushopt, FlushKind::Clwb];
    let fences = vec![FenceKind::Sfence, FenceKind::Mfence, FenceKind::Locked];
    prop_oneof![
        6 => store.prop_map(|(how, at, bytes)| Action::Store(how, at, bytes)),
        3 => (prop::sample::select(flushes), 0..POOL_LEN).prop_map(|(kind, at)| Action::Flush(kind, at)),
        2 => prop::sample::select(fences).prop_map(Action::Fence),
        1 => (0u64..3, 1u64..4096).prop_map(|(page, len)| Action::Msync(page * 4096, len)),
        1 => (0..POOL_LEN - 500, 1u64..500).prop_map(|(at, len)| Action::DoFlush(at, len)),
        1 => Just(Action::DoFence),
        1 => prop::sample::select(vec!["tx", "pmem_memcpy"]).prop_map(Action::Section),
    ]
}

fn lines(at: u64, len: u64) -> impl Iterator<Item = Atom> {
    (at / 64..=(at + len - 1) / 64).map(|line| Atom::Line(BASE + line * 64))
}

/// The recording, and what its log must say.
fn record(actions: &[Action]) -> (Vec<Event<'_>>, Vec<Atom>) {
    let mut events = vec![
        thread_start(1, 1),
        file(1, b"/pm/pool", POOL_LEN),
        map(1, BASE, POOL_LEN, 1, 0),
    ];
    let mut atoms = Vec::new();
    for action in actions {
        match action {
            Action::Store(how, at, bytes) => {
                let access = access(BASE + at, bytes);
                atoms.extend(
                    (BASE + at..)
                        .zip(bytes)
                        .map(|(at, &byte)| Atom::Byte(at, byte)),
                );
                events.push(event(match how {
                    0 => EventKind::Store(access),
                    1 => EventKind::KernelStore { syscall: 0, access },
                    2 => {
                        atoms.extend(lines(*at, bytes.len() as u64));
                        EventKind::NtStore(access)
                    }
                    _ => {
                        atoms.push(Atom::Fence);
                        EventKind::Rmw(access)
                    }
                }));
            }
            &Action::Flush(kind, at) => {
                atoms.extend(lines(at, 1));
                if kind == FlushKind::Clflush {
                    atoms.push(Atom::Fence);
                }
                events.push(support::flush(kind, BASE + at));
            }
            &Action::Fence(kind) => {
                atoms.push(Atom::Fence);
                events.push(event(EventKind::Fence(kind)));
            }
            &Action::Msync(at, len) => {
                atoms.extend(lines(at, 4096));
                atoms.push(Atom::Fence);
                let addr = TargetAddr(BASE + at);
                let flags = MS_SYNC;
                events.push(event(EventKind::Msync { addr, len, flags }));
            }
            &Action::DoFlush(at, len) => {
                atoms.extend(lines(at, len));
                events.push(request(5, BASE + at, len, b""));
            }
            Action::DoFence => {
                atoms.push(Atom::Fence);
                events.push(request(6, 0, 0, b""));
            }
            Action::Section(name) => {
                for text in [format!("{name}.BEGIN"), format!("{name}.END")] {
                    atoms.push(Atom::Marker(text));
                }
                events.push(request(30, 0, 0, name.as_bytes()));
            }
        }
    }
    (events, atoms)
}

fn read(log: &str) -> Vec<Atom> {
    let mut importer = Importer::new(log.as_bytes());
    let mut atoms = Vec::new();
    while let Some(event) = importer.next().expect("our own log is sound") {
        match event.kind {
            EventKind::Store(access) => {
                assert_eq!(access.size as usize, access.bytes.len());
                let bytes = (access.addr.0..).zip(access.bytes);
                atoms.extend(bytes.map(|(at, &byte)| Atom::Byte(at, byte)));
            }
            EventKind::Flush { kind, addr } => {
                assert_eq!(kind, FlushKind::Clwb);
                atoms.push(Atom::Line(addr.0));
            }
            EventKind::Fence(kind) => {
                assert_eq!(kind, FenceKind::Sfence);
                atoms.push(Atom::Fence);
            }
            EventKind::Annotation {
                code: MARKER, text, ..
            } => atoms.push(Atom::Marker(String::from_utf8_lossy(text).into_owned())),
            EventKind::File { path, size, .. } => {
                assert_eq!((path, size), (&b"/pm/pool"[..], POOL_LEN));
            }
            EventKind::Map {
                addr, len, offset, ..
            } => assert_eq!((addr.0, len, offset), (BASE, POOL_LEN, 0)),
            EventKind::ProcessStart { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ProcessExit { .. }
            | EventKind::End { .. } => {}
            other => panic!("{} was not in the recording", other.name()),
        }
    }
    atoms
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn stores_flushes_and_fences_keep_their_order_and_bytes(
        actions in prop::collection::vec(action(), 0..50)
    ) {
        let (events, atoms) = record(&actions);
        let (log, exported) = export(&events);
        prop_assert_eq!(read(&log), atoms);
        prop_assert_eq!(exported.stores_left_out + exported.markers_left_out, 0);
    }
}

#[test]
fn a_log_with_call_stacks_comes_back_as_it_was() {
    let log = "START|REGISTER_FILE;/pm/pool;0x7f0000000000;0x4000;0x0|pmem_memcpy.BEGIN|\
               STORE;0x7f0000000000;0x1;0x8;0x400CDB: insert (list.c:144);0x400E84: main (list.c:185)|\
               FLUSH;0x7f0000000000;0x40|FENCE|pmem_memcpy.END|STORE;0x7f0000000040;0xffffffffffffffff;0x8|\
               STORE;0x7f0000000048;0x0;0x1;0x400CFF: f (list.c:1)|STOP\n";
    let mut again = Vec::new();
    let frames_now = std::cell::RefCell::new(Vec::new());
    let mut exporter =
        Exporter::new(&mut again).frames(|_, frames| frames.clone_from(&frames_now.borrow()));
    let mut importer = Importer::new(log.as_bytes());
    while let Some((event, frames)) = importer.next_with_frames().expect("sound") {
        frames_now.borrow_mut().clear();
        frames_now
            .borrow_mut()
            .extend_from_slice(frames.get(event.context));
        exporter.event(&event).expect("exportable");
    }
    exporter.finish().expect("written");
    assert_eq!(String::from_utf8_lossy(&again), log);
}
