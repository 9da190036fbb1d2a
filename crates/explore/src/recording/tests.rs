//! From a hand-made stream of events to failure points and what a crash leaves at each.

use std::path::Path;

use brownout_model::{FlushKind, LineMask};
use brownout_trace::event::FenceKind;

use super::*;
use crate::fake::{self, FILE, FIRST, SIZE, feed, fences, flushes, key, nt_stores, record_options};
use crate::fake::{recorded, stores, unit};
use crate::line::LineKey;
use crate::view::{Narrowed, Seen, View};

const A: u64 = 0;
const B: u64 = 64;
const ONE: [u8; 8] = [1; 8];
const TWO: [u8; 8] = [2; 8];

/// The events, each of an instruction of its own: the first is at 1.
fn record(options: RecordOptions, kinds: &[EventKind<'_>]) -> Recording {
    let events: Vec<(u64, EventKind<'_>)> = (1..).zip(kinds.iter().cloned()).collect();
    recorded(options, "", &events)
}

/// Reason and event of each failure point; events are counted from the first of the test's own.
fn places(recording: &Recording) -> Vec<(Reason, Option<u64>)> {
    let points = recording.points.iter();
    points
        .map(|point| (point.reason, point.site.map(|site| site.event - FIRST)))
        .collect()
}

/// What the first byte of a word may be at a failure point, oldest first.
fn may_be(recording: &Recording, point: u32, at: u64) -> Vec<u8> {
    let view = View {
        timeline: recording.timeline.clone(),
        point,
    };
    let byte = at as usize % 64;
    let mask: LineMask = 1 << byte;
    match view.read(LineKey::of(key(at).0), mask, &Narrowed::new()) {
        Seen::Certain(bytes) => vec![bytes[byte]],
        Seen::Open(_, options) => options.iter().map(|(bytes, _)| bytes[byte]).collect(),
    }
}

fn clwb(at: u64) -> EventKind<'static> {
    flushes(FlushKind::Clwb, at)
}

#[test]
fn the_power_fails_before_what_makes_something_certain_and_at_the_end() {
    let recording = record(
        record_options(),
        &[
            stores(A, &ONE),
            clwb(A),
            fences(),
            stores(B, &TWO),
            stores(A, &TWO),
        ],
    );
    assert_eq!(
        places(&recording),
        [(Reason::Completes, Some(2)), (Reason::End, None)]
    );
    assert_eq!(may_be(&recording, 0, A), [0, 1]);
    assert_eq!(may_be(&recording, 0, B), [0]);
    // The fence has made the first store certain.
    assert_eq!(may_be(&recording, 1, A), [1, 2]);
    assert_eq!(may_be(&recording, 1, B), [0, 2]);
    let moments: Vec<u64> = recording.points.iter().map(|p| p.moment).collect();
    assert_eq!(moments, [2, 5]);
    assert!(recording.touched);
}

#[test]
fn what_makes_nothing_certain_is_no_failure_point() {
    // A fence without a flush, a flush of something else, and a fence after which nothing was
    // stored.
    let recording = record(
        record_options(),
        &[
            stores(A, &ONE),
            fences(),
            clwb(B),
            fences(),
            clwb(A),
            fences(),
            fences(),
        ],
    );
    assert_eq!(places(&recording), [(Reason::Completes, Some(5))]);
    assert_eq!(may_be(&recording, 0, A), [0, 1]);
}

#[test]
fn a_line_is_certain_by_clflush_alone_and_by_a_locked_instruction_after_clwb() {
    let kind = FlushKind::Clflush;
    let clflush = record(
        record_options(),
        &[stores(A, &ONE), flushes(kind, A), stores(B, &ONE)],
    );
    assert_eq!(
        places(&clflush),
        [(Reason::Completes, Some(1)), (Reason::End, None)]
    );
    assert_eq!(may_be(&clflush, 1, A), [1]);

    let locked = [
        stores(A, &ONE),
        clwb(A),
        EventKind::Fence(FenceKind::Locked),
        stores(B, &ONE),
    ];
    let locked = record(record_options(), &locked);
    assert_eq!(
        places(&locked),
        [(Reason::Completes, Some(2)), (Reason::End, None)]
    );
    assert_eq!(may_be(&locked, 1, A), [1]);
}

#[test]
fn non_temporal_stores_are_certain_by_a_fence_without_a_flush() {
    let recording = record(
        record_options(),
        &[nt_stores(A, &ONE), fences(), nt_stores(B, &ONE)],
    );
    assert_eq!(
        places(&recording),
        [(Reason::Completes, Some(1)), (Reason::End, None)]
    );
    assert_eq!(may_be(&recording, 0, A), [0, 1]);
    assert_eq!(may_be(&recording, 1, A), [1]);
}

#[test]
fn acknowledgements_count_while_something_is_uncertain() {
    let output = || EventKind::Output { fd: 1, size: 3 };
    let events = [
        output(),
        stores(A, &ONE),
        output(),
        output(),
        clwb(A),
        fences(),
        output(),
    ];
    let recording = record(record_options(), &events);
    assert_eq!(
        places(&recording),
        [(Reason::Acknowledges, Some(2))],
        "nothing was stored since"
    );
    let told: Vec<(u64, u64)> = recording
        .points
        .iter()
        .map(|point| (point.outputs, point.output_bytes))
        .collect();
    assert_eq!(told, [(2, 6)]);
    assert_eq!(recording.outputs, 4);

    // If they are judged, each counts, and so does the end.
    let judged = RecordOptions {
        judge_acknowledgements: true,
        ..record_options()
    };
    let recording = record(judged, &events);
    let acknowledges = |at| (Reason::Acknowledges, Some(at));
    assert_eq!(
        places(&recording),
        [
            acknowledges(0),
            acknowledges(2),
            acknowledges(3),
            acknowledges(6),
            (Reason::End, None)
        ]
    );
}

#[test]
fn under_eadr_the_power_fails_between_any_two_pieces() {
    let model = Config {
        domain: Domain::Eadr,
        ..Config::default()
    };
    let options = RecordOptions {
        model,
        ..record_options()
    };
    let recording = record(options, &[stores(A, &[1; 16]), stores(B, &ONE)]);
    let states: Vec<[Vec<u8>; 3]> = (0..recording.points.len() as u32)
        .map(|point| [A, A + 8, B].map(|at| may_be(&recording, point, at)))
        .collect();
    let certain = |bytes: [u8; 3]| bytes.map(|byte| vec![byte]);
    assert_eq!(
        states,
        [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]].map(certain)
    );
}

#[test]
fn a_page_is_certain_by_msync() {
    let model = Config {
        domain: Domain::Page,
        atomicity: Atomicity::Page,
        ..Config::default()
    };
    let options = RecordOptions {
        model,
        ..record_options()
    };
    let msync = EventKind::Msync {
        addr: fake::AT,
        len: PAGE,
        flags: MS_SYNC,
    };
    let recording = record(
        options,
        &[
            stores(A, &ONE),
            clwb(A),
            fences(),
            stores(PAGE, &ONE),
            msync,
            stores(A, &TWO),
        ],
    );
    assert_eq!(
        places(&recording),
        [(Reason::Completes, Some(4)), (Reason::End, None)]
    );
    assert_eq!(may_be(&recording, 0, A), [0, 1], "write-backs do nothing");
    assert_eq!(may_be(&recording, 1, A), [1, 2]);
    assert_eq!(may_be(&recording, 1, PAGE), [0, 1], "another page");
}

#[test]
fn steps_are_what_the_model_has_seen_with_where_it_was_done() {
    let recording = record(
        record_options(),
        &[
            stores(A + 4, &ONE),
            EventKind::Output { fd: 2, size: 1 },
            clwb(A),
            fences(),
        ],
    );
    let steps: Vec<(u64, u64, Did)> = recording
        .steps
        .iter()
        .map(|step| {
            let pc = step.site.pc.0 - fake::PROGRAM.0;
            (pc, step.site.event - FIRST, step.did)
        })
        .collect();
    let stored = ByteRange::new(key(A + 4), 8);
    let line = Line::of(key(A)).range();
    assert_eq!(
        steps,
        [
            (1, 0, Did::Store(stored, TargetAddr(fake::AT.0 + 4))),
            (3, 2, Did::Flush(line)),
            (4, 3, Did::Fence),
        ]
    );
    assert_eq!(recording.timeline.touched().collect::<Vec<_>>(), [unit(A)]);
}

#[test]
fn a_file_that_the_run_makes_is_not_there_before() {
    let made = EventKind::File {
        file: FileId(2),
        path: b"/pm/made",
        size: 4096,
        reason: PmReason::Glob,
        created: true,
    };
    let recording = record(record_options(), &[stores(A, &ONE), made, stores(B, &ONE)]);
    assert_eq!(
        places(&recording),
        [(Reason::Completes, Some(1)), (Reason::End, None)]
    );
    let is_there = |files: &Files| match files.names.get(b"/pm/made".as_slice()) {
        Some(Entry::File(content)) => files.get(content).is_some_and(|state| state.exists),
        Some(Entry::Absent) => false,
        other => panic!("{other:?}"),
    };
    let there: Vec<bool> = recording
        .points
        .iter()
        .map(|p| is_there(&p.files))
        .collect();
    assert_eq!(there, [false, true]);
    assert!(!is_there(&recording.initial));
    let before = FileState {
        exists: true,
        size: SIZE,
    };
    assert_eq!(recording.points[0].files.get(&FILE), Some(&before));
}

/// What a renamed file was called may survive its new name, and the other way round never.
#[test]
fn a_name_that_is_not_synced_may_be_lost() {
    let (options, rename) = (fake::names_options(), fake::renames());
    let sync = EventKind::Name {
        change: NameChange::SyncFolder,
        file: FileId(0),
        replaced: FileId(0),
        names: b"/pm",
    };
    let recording = record(options, &[stores(A, &ONE), rename, sync, stores(B, &ONE)]);
    let names = |point: &FailurePoint| -> Vec<String> {
        let there = point.files.names.iter();
        let there = there.filter(|(_, entry)| **entry != Entry::Absent);
        there
            .map(|(path, _)| String::from_utf8_lossy(path).into_owned())
            .collect()
    };
    let at = |place: u32| -> BTreeSet<Vec<String>> {
        let points = recording.points.iter().filter(|p| p.place == place);
        points.map(names).collect()
    };
    let last = recording.points.last().map_or(0, |point| point.place);
    assert_eq!(last, 1, "before the folder is synced, and at the end");
    let [old, new] = ["/pm/pool", "/pm/new"].map(|name| vec![name.to_owned()]);
    assert_eq!(at(0), BTreeSet::from([old, new.clone()]));
    assert_eq!(at(1), BTreeSet::from([new]));
    // What is lost refers to the step that did it.
    let lost: BTreeSet<&[u32]> = recording.points.iter().map(|p| &*p.lost).collect();
    assert_eq!(lost, BTreeSet::from([[].as_slice(), &[0]]));
    assert_eq!(recording.names.len(), 1);
    assert_eq!(recording.names[0].site.event, FIRST + 1);
}

/// The digest names what was stored by which instruction, not when other things happened.
#[test]
fn equal_runs_have_equal_digests() {
    let run = |kinds: &[EventKind<'_>]| record(record_options(), kinds).digest;
    let plain = run(&[stores(A, &ONE), clwb(A), fences()]);
    assert_eq!(plain, run(&[stores(A, &ONE), clwb(A), fences()]));
    assert_ne!(plain, run(&[stores(A, &TWO), clwb(A), fences()]));
    assert_ne!(plain, run(&[stores(B, &ONE), clwb(A), fences()]));
    let elsewhere = [(7, stores(A, &ONE)), (2, clwb(A)), (3, fences())];
    assert_ne!(plain, recorded(record_options(), "", &elsewhere).digest);
    let later = [
        (1, stores(A, &ONE)),
        (9, EventKind::Output { fd: 2, size: 1 }),
        (2, clwb(A)),
        (3, fences()),
    ];
    assert_eq!(plain, recorded(record_options(), "", &later).digest);
}

#[test]
fn a_stream_that_explains_nothing_is_refused() {
    let outside = EventKind::Store(Access {
        addr: TargetAddr(0x10),
        size: 8,
        bytes: &ONE,
    });
    let valueless = EventKind::Store(Access {
        addr: fake::AT,
        size: 8,
        bytes: &[],
    });
    let flush = EventKind::Flush {
        kind: FlushKind::Clwb,
        addr: TargetAddr(0x10),
    };
    for kind in [outside, valueless, flush] {
        let mut recorder = Recorder::new(record_options(), Path::new("/nowhere"));
        assert!(feed(&mut recorder, &[(1, kind)]).is_err());
    }
}
