//! The completeness checker finds what is missing, and only that.

mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brownout_trace::maps::MapFault;
use brownout_trace::verify::{Inconsistency, Verifier, VerifierOptions, VerifyReport, copy_sparse};
use brownout_trace::{Access, Event, EventKind, FileId, PmReason, ProcessId, TargetAddr, ThreadId};
use support::{access, event};

const BASE: u64 = 0x7e00_0000_0000;

/// A folder with one tracked file, its snapshot, and the events of a run.
struct Run {
    dir: tempfile::TempDir,
    path: PathBuf,
    snapshot: PathBuf,
    /// Leaked, so that events can borrow it.
    path_bytes: &'static [u8],
    size: u64,
}

impl Run {
    fn new(initial: &[u8]) -> Run {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let path = dir.path().join("pool.img");
        let snapshot = dir.path().join("snapshot");
        fs::write(&path, initial).expect("a scratch file");
        copy_sparse(&path, &snapshot).expect("a copy");
        let path_bytes = path.as_os_str().as_bytes().to_vec().leak();
        Run {
            dir,
            path,
            snapshot,
            path_bytes,
            size: initial.len() as u64,
        }
    }

    /// The opening events of a run that maps the whole file at `BASE`.
    fn opening(&self) -> Vec<Event<'static>> {
        let start = EventKind::ProcessStart {
            process: ProcessId(1),
            parent: ProcessId(0),
            pid: 1,
            exe: b"prog",
        };
        let file = EventKind::File {
            file: FileId(1),
            path: self.path_bytes,
            size: self.size,
            reason: PmReason::Glob,
            created: false,
        };
        vec![
            event(0, 0, 0, start),
            event(0, 0, 0, thread(1, 1)),
            event(1, 0, 0, file),
            event(
                1,
                0,
                0,
                map(BASE, self.size.next_multiple_of(4096).max(4096), 0),
            ),
        ]
    }

    fn verify(&self, events: &[Event<'_>]) -> VerifyReport {
        self.verify_with(events, VerifierOptions::default())
    }

    fn verify_with(&self, events: &[Event<'_>], options: VerifierOptions) -> VerifyReport {
        let mut verifier = Verifier::new(self.dir.path(), options, |file, path| {
            assert_eq!((file, path), (FileId(1), self.path.as_path()));
            Ok(Some(self.snapshot.clone()))
        });
        for event in events {
            verifier.feed(event).expect("scratch files work");
        }
        verifier.finish()
    }
}

fn thread(thread: u32, process: u32) -> EventKind<'static> {
    EventKind::ThreadStart {
        thread: ThreadId(thread),
        process: ProcessId(process),
        tid: thread,
    }
}

fn map(addr: u64, len: u64, offset: u64) -> EventKind<'static> {
    EventKind::Map {
        addr: TargetAddr(addr),
        len,
        file: FileId(1),
        offset,
        prot: 3,
        flags: 1,
    }
}

fn store(addr: u64, bytes: &[u8]) -> Event<'_> {
    event(1, 0x40_1000, 5, EventKind::Store(access(addr, bytes)))
}

#[test]
fn all_kinds_of_writes_add_up() {
    let run = Run::new(&[0x11; 8192]);
    let mut events = run.opening();
    events.extend([
        store(BASE + 10, b"ab"),
        event(
            1,
            1,
            0,
            EventKind::NtStore(access(BASE + 60, b"across a line")),
        ),
        event(1, 1, 0, EventKind::Rmw(access(BASE + 4096, b"xchg"))),
        event(
            1,
            1,
            0,
            EventKind::KernelStore {
                syscall: 0,
                access: access(BASE + 5000, b"read"),
            },
        ),
        // Loads write nothing, whatever they saw.
        event(1, 1, 0, EventKind::Load(access(BASE + 10, b"??"))),
        event(
            1,
            1,
            0,
            EventKind::FileWrite {
                file: FileId(1),
                offset: 8190,
                size: 4,
                bytes: b"tail",
            },
        ),
        event(
            1,
            1,
            0,
            EventKind::Truncate {
                file: FileId(1),
                size: 9000,
            },
        ),
        event(
            1,
            1,
            0,
            EventKind::Truncate {
                file: FileId(1),
                size: 8193,
            },
        ),
        event(
            1,
            1,
            0,
            EventKind::Truncate {
                file: FileId(1),
                size: 8200,
            },
        ),
        store(BASE + 11, b"B"),
    ]);
    let mut expected = vec![0x11; 8192];
    expected.resize(8200, 0);
    expected[10..12].copy_from_slice(b"aB");
    expected[60..73].copy_from_slice(b"across a line");
    expected[4096..4100].copy_from_slice(b"xchg");
    expected[5000..5004].copy_from_slice(b"read");
    expected[8190..8193].copy_from_slice(b"tai");
    fs::write(&run.path, &expected).expect("the final content");
    let report = run.verify(&events);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.to_string(), "verified: 1 files, 14 events");
}

/// The canary: the harness must be able to fail, at any byte and for any lost event.
#[test]
fn any_lost_store_is_found() {
    let run = Run::new(&[0; 4096]);
    let values: Vec<[u8; 4]> = (1u32..=40)
        .map(|n| (n * 0x0101_0101).to_le_bytes())
        .collect();
    let mut events = run.opening();
    let opening = events.len();
    let mut content = vec![0; 4096];
    for (nth, value) in values.iter().enumerate() {
        let at = nth * 100;
        content[at..at + 4].copy_from_slice(value);
        events.push(store(BASE + at as u64, value));
    }
    fs::write(&run.path, &content).expect("the final content");
    assert!(run.verify(&events).is_ok());
    for (lost, value) in values.iter().enumerate() {
        let mut incomplete = events.clone();
        incomplete.remove(opening + lost);
        let report = run.verify(&incomplete);
        assert!(!report.is_ok());
        let mismatch = &report.mismatches[0];
        assert_eq!(mismatch.offset, lost as u64 * 100);
        assert_eq!(mismatch.expected[..], [0; 4][..mismatch.expected.len()]);
        assert_eq!(mismatch.actual[..], value[..mismatch.actual.len()]);
        assert_eq!(report.files[0].bytes_different, 4);
        assert!(mismatch.nearest.is_some());
    }
}

#[test]
fn a_mismatch_names_the_last_writer_of_its_line() {
    let run = Run::new(&[0; 8192]);
    let mut events = run.opening();
    events.extend([
        store(BASE + 64, b"one"),
        store(BASE + 70, b"two"),
        store(BASE + 4096, b"far"),
    ]);
    let mut content = vec![0; 8192];
    content[64..67].copy_from_slice(b"one");
    content[70..73].copy_from_slice(b"tWo");
    content[4096..4099].copy_from_slice(b"far");
    content[200] = 9;
    fs::write(&run.path, &content).expect("the final content");
    let report = run.verify(&events);
    let path = run.path.display();
    assert_eq!(
        report.to_string(),
        format!(
            "{path} differs at offset 0x47: recorded 77, found 57; nearest is event 5 (store of 3 \
             bytes to offset 0x46 by thread 1 at 0x401000, context 5)\n\
             {path} differs at offset 0xc8: recorded 00, found 09; nearest is event 5 (store of 3 \
             bytes to offset 0x46 by thread 1 at 0x401000, context 5)\n\
             NOT verified: 1 files, 7 events"
        )
    );
}

#[test]
fn a_wrong_size_and_a_lost_file_are_no_success() {
    let run = Run::new(&[0; 4096]);
    fs::write(&run.path, [0; 4095]).expect("the final content");
    let report = run.verify(&run.opening());
    assert!(!report.is_ok());
    assert!(
        report
            .to_string()
            .contains("has 4095 bytes, by the recording it has 4096"),
        "{report}"
    );
    fs::remove_file(&run.path).expect("it was there");
    let report = run.verify(&run.opening());
    assert!(!report.is_ok());
    assert!(
        report.to_string().contains("could not be compared"),
        "{report}"
    );
}

#[test]
fn listings_are_limited_and_counts_are_not() {
    let run = Run::new(&[0; 8192]);
    fs::write(&run.path, [1; 8192]).expect("the final content");
    let options = VerifierOptions {
        reports_max: 3,
        ..VerifierOptions::default()
    };
    let report = run.verify_with(&run.opening(), options);
    assert_eq!((report.mismatches.len(), report.mismatches_total), (3, 128));
    assert_eq!(report.mismatches[0].nearest, None);
    assert!(
        report.to_string().contains("… and 125 more lines differ"),
        "{report}"
    );
}

#[test]
fn with_too_many_lines_mismatches_are_still_found() {
    let run = Run::new(&[0; 8192]);
    let mut events = run.opening();
    events.extend([
        store(BASE, b"a"),
        store(BASE + 640, b"b"),
        store(BASE + 6400, b"c"),
    ]);
    let mut content = vec![0; 8192];
    content[0] = b'a';
    content[640] = b'b';
    content[6400] = b'X';
    fs::write(&run.path, &content).expect("the final content");
    let options = VerifierOptions {
        lines_max: 2,
        ..VerifierOptions::default()
    };
    let report = run.verify_with(&events, options);
    assert_eq!(report.mismatches.len(), 1);
    assert_eq!(
        report.mismatches[0].nearest.map(|writing| writing.event),
        Some(5)
    );
}

#[test]
fn forks_threads_and_remaps_are_followed() {
    let run = Run::new(&[0; 16384]);
    let mut events = run.opening();
    let fork = EventKind::ProcessStart {
        process: ProcessId(2),
        parent: ProcessId(1),
        pid: 2,
        exe: b"prog",
    };
    let remap = EventKind::Remap {
        old_addr: TargetAddr(BASE),
        old_len: 16384,
        new_addr: TargetAddr(BASE + 0x10_0000),
        new_len: 16384,
    };
    let child = |addr, bytes| event(2, 1, 0, EventKind::Store(access(addr, bytes)));
    events.extend([
        event(1, 0, 0, fork),
        event(1, 0, 0, thread(2, 2)),
        event(1, 0, 0, remap),
        store(BASE + 0x10_0000 + 1, b"parent"),
        // The child still has it at the old place.
        child(BASE + 100, b"child"),
        event(2, 0, 0, map(0x1000, 4096, 8192)),
        child(0x1000 + 5, b"mapped twice"),
    ]);
    let mut content = vec![0; 16384];
    content[1..7].copy_from_slice(b"parent");
    content[100..105].copy_from_slice(b"child");
    content[8197..8209].copy_from_slice(b"mapped twice");
    fs::write(&run.path, &content).expect("the final content");
    let report = run.verify(&events);
    assert!(report.is_ok(), "{report}");
}

#[test]
fn impossible_streams_are_inconsistencies() {
    let run = Run::new(&[0; 4096]);
    let mut events = run.opening();
    let no_values = Access {
        addr: TargetAddr(BASE),
        size: 8,
        bytes: b"",
    };
    events.extend([
        store(BASE + 4094, b"over the end"),
        event(1, 2, 0, EventKind::Store(no_values)),
        event(
            7,
            2,
            0,
            EventKind::Unmap {
                addr: TargetAddr(0),
                len: 1,
            },
        ),
        event(
            1,
            2,
            0,
            EventKind::Truncate {
                file: FileId(9),
                size: 1,
            },
        ),
        event(
            1,
            2,
            0,
            EventKind::Truncate {
                file: FileId(1),
                size: 0,
            },
        ),
        store(BASE + 8, b"gone"),
        events[2].clone(),
    ]);
    fs::write(&run.path, []).expect("the final content");
    let report = run.verify(&events);
    assert!(!report.is_ok());
    assert_eq!(
        report.inconsistencies,
        [
            Inconsistency::Unmapped {
                event: 4,
                thread: ThreadId(1),
                pc: TargetAddr(0x40_1000),
                addr: TargetAddr(BASE + 4096),
            },
            Inconsistency::NoValues { event: 5 },
            Inconsistency::Mapping {
                event: 6,
                fault: MapFault::UnknownThread(ThreadId(7))
            },
            Inconsistency::UnknownFile {
                event: 7,
                file: FileId(9)
            },
            Inconsistency::BehindEnd {
                event: 9,
                path: run.path.clone(),
                offset: 8
            },
            Inconsistency::FileDefinedTwice {
                event: 10,
                file: FileId(1)
            },
        ]
    );
    for item in &report.inconsistencies {
        let sentence = item.to_string();
        assert!(
            sentence.starts_with("event ") && !sentence.contains('\n'),
            "{sentence}"
        );
    }
}

#[test]
fn stores_behind_the_end_in_the_last_page_are_dropped() {
    let run = Run::new(&[5; 100]);
    let mut events = run.opening();
    events.extend([store(BASE + 98, b"abcd"), store(BASE + 4000, b"x")]);
    let mut content = vec![5; 100];
    content[98..].copy_from_slice(b"ab");
    fs::write(&run.path, &content).expect("the final content");
    let report = run.verify(&events);
    assert!(report.is_ok(), "{report}");
}

#[test]
fn a_file_without_snapshot_begins_as_zeros_and_may_be_large() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = dir.path().join("new.img");
    let file = fs::File::create(&path).expect("a scratch file");
    let size = 64 << 30;
    file.set_len(size).expect("a sparse file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", size - 3).expect("room");
    let define = EventKind::File {
        file: FileId(1),
        path: path.as_os_str().as_bytes(),
        size: 0,
        reason: PmReason::MapSync,
        created: false,
    };
    let mut verifier = Verifier::new(dir.path(), VerifierOptions::default(), |_, _| Ok(None));
    for event in [
        event(0, 0, 0, thread(1, 1)),
        event(1, 0, 0, define),
        event(
            1,
            0,
            0,
            EventKind::Truncate {
                file: FileId(1),
                size,
            },
        ),
        event(1, 0, 0, map(BASE, size, 0)),
        store(BASE + size - 3, b"end"),
    ] {
        verifier.feed(&event).expect("scratch files work");
    }
    let report = verifier.finish();
    assert!(report.is_ok(), "{report}");
}

#[test]
fn a_missing_snapshot_is_an_error_and_not_a_finding() {
    let run = Run::new(&[0; 4096]);
    fs::remove_file(&run.snapshot).expect("it was there");
    let mut verifier = Verifier::new(run.dir.path(), VerifierOptions::default(), |_, _| {
        Ok(Some(run.snapshot.clone()))
    });
    let result = run
        .opening()
        .iter()
        .try_for_each(|event| verifier.feed(event));
    let error = result.expect_err("the snapshot is gone");
    assert_eq!(error.path, run.path);
}
