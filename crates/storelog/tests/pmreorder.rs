//! Exported logs, judged by what pmreorder does with them (see `support/pmreorder.rs`).
//!
//! Random programs map files in pieces, twice, over each other and from two processes, and store to
//! them in every way. In the end all is synced. Then the files that pmreorder makes from the log
//! must be the files that the program left.

mod support;

use std::collections::HashMap;

use brownout_trace::event::{
    Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind, ProcessId, TargetAddr,
};
use proptest::prelude::*;
use support::{MS_SYNC, access, by, export, file, pmreorder, thread_start};

const PAGE: u64 = 4096;
const FILES: u32 = 3;
const FILE_PAGES: u64 = 4;
/// Where mappings go: few places, so that they meet.
const SLOTS: u64 = 8;
const SLOTS_FROM: u64 = 0x7f00_0000_0000;

#[derive(Clone, Debug)]
enum Action {
    Map {
        slot: u64,
        pages: u64,
        file: u32,
        page: u64,
    },
    Unmap {
        slot: u64,
        pages: u64,
    },
    Move {
        from: u64,
        to: u64,
    },
    /// How, at which byte of the slots, what.
    Store(u8, u64, Vec<u8>),
    FileWrite {
        file: u32,
        offset: u64,
        bytes: Vec<u8>,
    },
    Flush(FlushKind, u64),
    Fence,
    Msync {
        slot: u64,
        pages: u64,
    },
    DoFlush(u64, u64),
    Marker(&'static str),
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..40);
    let place = || 0..SLOTS * PAGE;
    let kinds = prop_oneof![
        Just(FlushKind::Clflush),
        Just(FlushKind::Clflushopt),
        Just(FlushKind::Clwb)
    ];
    let markers = prop::sample::select(vec![
        "a.BEGIN",
        "a.END",
        "b.BEGIN",
        "b.END",
        "c",
        "START",
        "STOP",
        "store",
        "Rangeable",
        "|;",
    ]);
    prop_oneof![
        3 => (0..SLOTS, 1u64..4, 1..=FILES, 0..FILE_PAGES)
            .prop_map(|(slot, pages, file, page)| Action::Map { slot, pages, file, page }),
        1 => (0..SLOTS, 1u64..3).prop_map(|(slot, pages)| Action::Unmap { slot, pages }),
        1 => (0..SLOTS, 0..SLOTS).prop_map(|(from, to)| Action::Move { from, to }),
        12 => (0u8..4, place(), bytes()).prop_map(|(how, at, bytes)| Action::Store(how, at, bytes)),
        2 => (1..=FILES, 0..FILE_PAGES * PAGE, bytes())
            .prop_map(|(file, offset, bytes)| Action::FileWrite { file, offset, bytes }),
        4 => (kinds, place()).prop_map(|(kind, at)| Action::Flush(kind, at)),
        3 => Just(Action::Fence),
        1 => (0..SLOTS, 1u64..3).prop_map(|(slot, pages)| Action::Msync { slot, pages }),
        1 => (place(), 0u64..9000).prop_map(|(at, len)| Action::DoFlush(at, len)),
        2 => markers.prop_map(Action::Marker),
    ]
}

/// A kernel with two processes: which page of which file lies in a slot, and what the files hold.
#[derive(Default)]
struct Machine {
    slots: [HashMap<u64, (u32, u64)>; 2],
    files: HashMap<u32, HashMap<u64, u8>>,
}

impl Machine {
    /// As much of `bytes` as lies in mapped slots; true if that is all.
    fn store(&mut self, process: usize, at: u64, bytes: &[u8]) -> bool {
        let is_mapped = |at: u64| self.slots[process].contains_key(&(at / PAGE));
        let whole = (at..).zip(bytes).all(|(at, _)| is_mapped(at));
        if whole {
            for (at, &byte) in (at..).zip(bytes) {
                let (file, page) = self.slots[process][&(at / PAGE)];
                let image = self.files.entry(file).or_default();
                image.insert(page * PAGE + at % PAGE, byte);
            }
        }
        whole
    }
}

fn addr(at: u64) -> TargetAddr {
    TargetAddr(SLOTS_FROM + at)
}

/// The events of the actions, each by one of two threads in two processes, and the files they
/// leave.
fn run(actions: &[(bool, Action)]) -> (Vec<Event<'_>>, HashMap<u32, HashMap<u64, u8>>) {
    let mut machine = Machine::default();
    let mut events = vec![thread_start(1, 1), thread_start(2, 2)];
    let names: [&[u8]; FILES as usize] = [b"/pm/1", b"/pm/2", b"/pm/3"];
    for (number, name) in (1..).zip(names) {
        // Smaller than what is mapped later, so that places are outgrown.
        events.push(file(number, name, u64::from(number - 1) * PAGE));
    }
    for (second, action) in actions {
        let process = usize::from(*second);
        let thread = process as u32 + 1;
        match action {
            &Action::Map {
                slot,
                pages,
                file,
                page,
            } => {
                for nth in 0..pages {
                    machine.slots[process].insert(slot + nth, (file, page + nth));
                }
                let (at, len) = (SLOTS_FROM + slot * PAGE, pages * PAGE);
                events.push(support::map(thread, at, len, file, page * PAGE));
            }
            &Action::Unmap { slot, pages } => {
                for nth in 0..pages {
                    machine.slots[process].remove(&(slot + nth));
                }
                events.push(by(
                    thread,
                    EventKind::Unmap {
                        addr: addr(slot * PAGE),
                        len: pages * PAGE,
                    },
                ));
            }
            &Action::Move { from, to } => {
                let Some(page) = machine.slots[process].remove(&from) else {
                    continue;
                };
                machine.slots[process].insert(to, page);
                events.push(by(
                    thread,
                    EventKind::Remap {
                        old_addr: addr(from * PAGE),
                        old_len: PAGE,
                        new_addr: addr(to * PAGE),
                        new_len: PAGE,
                    },
                ));
            }
            Action::Store(how, at, bytes) => {
                if !machine.store(process, *at, bytes) {
                    continue;
                }
                let access = access(addr(*at).0, bytes);
                let kind = match how {
                    0 => EventKind::Store(access),
                    1 => EventKind::NtStore(access),
                    2 => EventKind::Rmw(access),
                    _ => EventKind::KernelStore { syscall: 0, access },
                };
                events.push(by(thread, kind));
            }
            Action::FileWrite {
                file,
                offset,
                bytes,
            } => {
                let image = machine.files.entry(*file).or_default();
                image.extend((*offset..).zip(bytes.iter().copied()));
                events.push(by(
                    thread,
                    EventKind::FileWrite {
                        file: FileId(*file),
                        offset: *offset,
                        size: bytes.len() as u32,
                        bytes,
                    },
                ));
            }
            &Action::Flush(kind, at) => {
                let addr = addr(at);
                events.push(by(thread, EventKind::Flush { kind, addr }));
            }
            Action::Fence => events.push(by(thread, EventKind::Fence(FenceKind::Sfence))),
            &Action::Msync { slot, pages } => events.push(by(
                thread,
                EventKind::Msync {
                    addr: addr(slot * PAGE),
                    len: pages * PAGE,
                    flags: MS_SYNC,
                },
            )),
            &Action::DoFlush(at, len) => events.push(by(
                thread,
                EventKind::Pmemcheck {
                    code: 5,
                    args: [addr(at).0, len, 0, 0],
                    text: b"",
                },
            )),
            Action::Marker(text) => events.push(by(
                thread,
                EventKind::Pmemcheck {
                    code: 30,
                    args: [0; 4],
                    text: text.as_bytes(),
                },
            )),
        }
    }
    for number in 1..=FILES {
        events.push(support::event(EventKind::Fsync {
            file: FileId(number),
            data_only: false,
        }));
    }
    events.push(support::event(EventKind::ProcessExit {
        process: ProcessId(1),
        status: ExitStatus::Code(0),
    }));
    (events, machine.files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_files_are_those_of_the_program(
        actions in prop::collection::vec((any::<bool>(), action()), 0..60)
    ) {
        let (events, files) = run(&actions);
        let (log, exported) = export(&events);
        let replayed = pmreorder::replay(&log);
        let replayed = replayed.map_err(|error| TestCaseError::fail(format!("{error}\n{log}")))?;
        let expected: HashMap<String, HashMap<u64, u8>> = files
            .into_iter()
            .map(|(file, image)| (format!("/pm/{file}"), image))
            .collect();
        prop_assert_eq!(replayed.files, expected, "{}", log);
        prop_assert_eq!(exported.stores_left_out, 0);
        let requests = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Pmemcheck { code: 30, .. }));
        prop_assert_eq!(
            exported.markers + exported.markers_left_out,
            requests.count() as u64
        );
    }
}

/// The oracle itself: what pmreorder refuses, and what waits.
#[test]
fn the_replay_can_fail() {
    let log = |body: &str| format!("START|REGISTER_FILE;/a;0x1000;0x1000;0x0|{body}|STOP\n");
    for (body, why) in [
        ("hello", "marker format"),
        ("a.BEGIN|b.BEGIN|a.END", "cross"),
        ("STORE;0x1000;0x100;0x1", "too big"),
        (
            "STORE;0x9000;0x1;0x1|FLUSH;0x9000;0x40|FENCE",
            "No suitable",
        ),
        (
            "REGISTER_FILE;/b;0x1800;0x1000;0x0|STORE;0x1900;0x1;0x1|FLUSH;0x1900;0x40|FENCE",
            "in 2 files",
        ),
        ("FENCE\n", "marker format"),
        ("Rangeable", "factory"),
        ("STORE;x;0x1;0x1", "literal"),
    ] {
        let error = pmreorder::replay(&log(body)).expect_err(body);
        assert!(error.contains(why), "{body}: {error}");
    }
    let replayed = pmreorder::replay(&log(
        "STORE;0x1000;0x1;0x1|STORE;0x1040;0x2;0x1|FENCE|FLUSH;0x1000;0x40|FENCE",
    ));
    let replayed = replayed.expect("sound");
    assert_eq!(replayed.files["/a"], HashMap::from([(0, 1)]));
    assert_eq!(replayed.barriers, 1);
}

/// The situations for which files have places of their own.
#[test]
fn pieces_and_reused_addresses() {
    let one = [1];
    let two = [2];
    let events = [
        thread_start(1, 1),
        file(1, b"/pm/a", 0x2000),
        file(2, b"/pm/b", 0x2000),
        support::map(1, 0x10000, 0x1000, 1, 0x1000),
        support::store(0x10000, &one),
        support::map(1, 0x10000, 0x2000, 2, 0),
        support::store(0x10000, &two),
        support::request(5, 0x10000, 0x40, b""),
        support::event(EventKind::Fsync {
            file: FileId(1),
            data_only: false,
        }),
    ];
    let (log, _) = export(&events);
    assert_eq!(
        log,
        "START|REGISTER_FILE;/pm/a;0xf000;0x2000;0x0|STORE;0x10000;0x1;0x1|\
         REGISTER_FILE;/pm/b;0x100000000000;0x2000;0x0|STORE;0x100000000000;0x2;0x1|FLUSH;0x100000000000;0x40|\
         FLUSH;0xf000;0x2000|FENCE|STOP\n"
    );
    let replayed = pmreorder::replay(&log).expect("pmreorder reads it");
    assert_eq!(replayed.files["/pm/a"], HashMap::from([(0x1000, 1)]));
    assert_eq!(replayed.files["/pm/b"], HashMap::from([(0, 2)]));
}
