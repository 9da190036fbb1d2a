//! What is written is what is read.

mod support;

use std::collections::BTreeSet;
use std::io::{self, Cursor};
use std::time::Duration;

use brownout_trace::event::NAMES;
use brownout_trace::format::PAYLOAD_LEN_MAX;
use brownout_trace::{
    Access, Event, EventKind, FileId, Meta, Reader, TargetAddr, Writer, WriterOptions,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use support::{access, blocks_of, event, events, every_kind, meta, read, render, write};

proptest! {
    #[test]
    fn any_events_come_back(
        events in prop::collection::vec(events(), 0..200),
        events_per_block in prop_oneof![1u32..8, Just(1 << 16)],
        level in prop::sample::select(vec![-3, 1, 3]),
    ) {
        let options = WriterOptions { level, ..blocks_of(events_per_block) };
        let file = write(&events, &options, true);
        let mut reader = Reader::new(Cursor::new(&file)).expect("a trace");
        prop_assert_eq!(reader.event_count(), Some(events.len() as u64));
        for event in &events {
            let read = reader.next().expect("sound");
            prop_assert_eq!(read.as_ref(), Some(event));
        }
        prop_assert!(reader.next().expect("sound").is_none());
        prop_assert!(reader.next().expect("sound").is_none());
    }

    #[test]
    fn seeking_equals_reading_on(
        events in prop::collection::vec(events(), 1..120),
        events_per_block in 1u32..20,
        finish in any::<bool>(),
        goals in prop::collection::vec(0usize..130, 1..6),
    ) {
        let file = write(&events, &blocks_of(events_per_block), finish);
        let mut reader = Reader::new(Cursor::new(&file)).expect("a trace");
        for goal in goals {
            let sought = reader.seek_to_event(goal as u64);
            if goal < events.len() {
                sought.expect("the event exists");
                prop_assert_eq!(reader.position(), goal as u64);
                let read = reader.next().expect("sound");
                prop_assert_eq!(read.as_ref(), Some(&events[goal]));
            } else if finish {
                sought.expect("the end exists");
                prop_assert!(reader.next().expect("sound").is_none());
            }
        }
    }
}

fn names(events: &[Event<'_>]) -> BTreeSet<&'static str> {
    events.iter().map(|event| event.kind.name()).collect()
}

#[test]
fn the_random_events_are_of_every_kind() {
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(events(), 4000);
    let events = strategy.new_tree(&mut runner).expect("events").current();
    assert_eq!(names(&events), NAMES.iter().copied().collect());
}

/// A copy lacks values only.
#[test]
fn every_kind_has_a_copy_that_borrows_nothing() {
    for event in every_kind() {
        let (copy, text) = event.kind.without_text();
        let copy = copy.with_text(text);
        match (&event.kind, event.kind.access()) {
            (_, Some(access)) => {
                assert_eq!(copy.access(), Some(&access.without_values()));
                assert_eq!(copy.name(), event.kind.name());
            }
            (
                EventKind::FileWrite {
                    file, offset, size, ..
                },
                _,
            ) => {
                let (file, offset, size) = (*file, *offset, *size);
                assert_eq!(
                    copy,
                    EventKind::FileWrite {
                        file,
                        offset,
                        size,
                        bytes: b""
                    }
                );
            }
            _ => assert_eq!(copy, event.kind),
        }
    }
}

#[test]
fn every_kind_comes_back_and_none_is_forgotten() {
    let events = every_kind();
    assert_eq!(
        names(&events),
        NAMES.iter().copied().collect(),
        "`every_kind` must have every kind"
    );
    let (read, error) = read(&write(&events, &WriterOptions::default(), true));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, events.iter().map(render).collect::<Vec<_>>());
}

#[test]
fn metadata_and_duration_come_back() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &meta()).expect("memory");
    writer.set_duration(Duration::from_millis(1234));
    let written = writer.finish().expect("memory");
    assert_eq!((written.events, written.bytes), (0, file.len() as u64));
    let reader = Reader::new(Cursor::new(&file)).expect("a trace");
    assert_eq!(reader.meta(), &meta());
    assert_eq!(reader.duration(), Some(Duration::from_millis(1234)));
    assert!(reader.is_complete());
}

#[test]
fn metadata_that_is_too_long_is_shortened() {
    let long = Meta {
        command: vec!["x".repeat(3 << 20), "y".to_owned()],
        ..meta()
    };
    let mut file = Vec::new();
    Writer::new(&mut file, &long)
        .expect("memory")
        .finish()
        .expect("memory");
    let reader = Reader::new(Cursor::new(&file)).expect("a trace");
    assert_eq!(reader.meta().tool, long.tool);
    assert_eq!(reader.meta().command, ["x".repeat(4096)]);
}

#[test]
fn a_store_with_the_wrong_number_of_bytes_is_refused_and_the_writer_goes_on() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &Meta::default()).expect("memory");
    for size in [0, 3, 9, 100] {
        let wrong = Access {
            addr: TargetAddr(64),
            size,
            bytes: b"four",
        };
        for kind in [
            EventKind::Store(wrong),
            EventKind::KernelStore {
                syscall: 0,
                access: wrong,
            },
            EventKind::FileWrite {
                file: FileId(1),
                offset: 0,
                size,
                bytes: b"four",
            },
        ] {
            let error = writer
                .push(&event(1, 2, 3, kind))
                .expect_err("contradictory");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
    let good = event(1, 2, 3, EventKind::Store(access(64, b"four")));
    writer.push(&good).expect("memory");
    assert_eq!(writer.event_count(), 1);
    writer.finish().expect("memory");
    assert_eq!(read(&file).0, [render(&good)]);
}

#[test]
fn huge_writes_are_split_at_line_boundaries() {
    let bytes: Vec<u8> = (0..2 * PAYLOAD_LEN_MAX + 100)
        .map(|at| (at / 7) as u8)
        .collect();
    let start = 0x1003;
    let whole = [
        event(
            1,
            2,
            3,
            EventKind::KernelStore {
                syscall: 0,
                access: access(start, &bytes),
            },
        ),
        event(
            1,
            2,
            3,
            EventKind::FileWrite {
                file: FileId(1),
                offset: start,
                size: bytes.len() as u32,
                bytes: &bytes,
            },
        ),
    ];
    for event in &whole {
        let file = write(std::slice::from_ref(event), &WriterOptions::default(), true);
        let mut reader = Reader::new(Cursor::new(&file)).expect("a trace");
        let mut at = start;
        let mut joined = Vec::new();
        while let Some(part) = reader.next().expect("sound") {
            let (from, bytes) = match part.kind {
                EventKind::KernelStore { access, .. } => (access.addr.0, access.bytes),
                EventKind::FileWrite { offset, bytes, .. } => (offset, bytes),
                other => panic!("unexpected {}", other.name()),
            };
            assert_eq!(from, at);
            assert!(from == start || from % 64 == 0);
            at += bytes.len() as u64;
            joined.extend_from_slice(bytes);
        }
        assert!(joined == bytes);
        assert_eq!(reader.position(), 3);
    }
    let mut writer = Writer::new(io::sink(), &Meta::default()).expect("a sink");
    for kind in [
        EventKind::Note { text: &bytes },
        EventKind::Rmw(access(0, &bytes)),
    ] {
        let error = writer.push(&event(0, 0, 0, kind)).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn many_sites_and_values_that_do_not_compress() {
    let mut random = brownout_random::Random::new(7);
    let values: Vec<[u8; 8]> = (0..50_000).map(|_| random.bits().to_le_bytes()).collect();
    let events: Vec<_> = values
        .iter()
        .map(|value| {
            let (pc, addr) = (random.bits(), random.bits());
            event(
                random.bits() as u32,
                pc,
                random.bits() as u32,
                EventKind::Store(access(addr, value)),
            )
        })
        .collect();
    let file = write(&events, &WriterOptions::default(), true);
    let mut reader = Reader::new(Cursor::new(&file)).expect("a trace");
    for event in &events {
        assert_eq!(reader.next().expect("sound").as_ref(), Some(event));
    }
    assert!(reader.next().expect("sound").is_none());
}

/// The promise of 8 bytes an event, on inserts into a hash table with an undo log.
#[test]
fn a_typical_run_takes_few_bytes() {
    use brownout_trace::{FenceKind, FlushKind};
    let mut random = brownout_random::Random::new(3);
    let base = 0x7e00_0000_0000;
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &Meta::default()).expect("memory");
    for insert in 0u64..20_000 {
        let bucket = base + 0x10_0000 + random.bits() % 0x10_0000 * 64;
        let log = base + 0x1000 + insert % 64 * 64;
        let mut store = |nth: u32, addr, value: u64| {
            let value = value.to_le_bytes();
            let store = EventKind::Store(access(addr, &value));
            writer
                .push(&event(1, 0x40_1000 + u64::from(nth) * 5, nth, store))
                .expect("memory");
        };
        store(1, log, bucket - base);
        store(2, log + 8, insert);
        store(3, bucket, random.bits() % 1_000_000);
        store(4, bucket + 8, base + random.bits() % (1 << 24));
        for (nth, addr) in [(5, log), (6, bucket)] {
            let flush = EventKind::Flush {
                kind: FlushKind::Clwb,
                addr: TargetAddr(addr),
            };
            writer
                .push(&event(1, 0x40_2000 + nth, 9, flush))
                .expect("memory");
            let fence = EventKind::Fence(FenceKind::Sfence);
            writer
                .push(&event(1, 0x40_3000 + nth, 9, fence))
                .expect("memory");
        }
    }
    let written = writer.finish().expect("memory");
    let bytes_per_event = written.bytes as f64 / written.events as f64;
    assert!(bytes_per_event < 3.0, "{bytes_per_event} bytes an event");
}
