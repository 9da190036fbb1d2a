//! Whole logs, both ways, against text.

mod support;

use std::io;

use brownout_storelog::{Error, Exporter, Importer};
use brownout_trace::event::{Access, ContextId, EventKind, FenceKind, FlushKind, TargetAddr};
use support::{
    MARKER, MS_SYNC, access, by, event, export, file, flush, import, map, request, store,
    thread_start,
};

const BASE: u64 = 0x7f00_0000_0000;

fn pool<'a>() -> Vec<brownout_trace::Event<'a>> {
    vec![
        thread_start(1, 1),
        file(1, b"/pm/pool", 0x2000),
        map(1, BASE, 0x2000, 1, 0),
    ]
}

const POOL: &str = "START|REGISTER_FILE;/pm/pool;0x7f0000000000;0x2000;0x0";

fn assert_exports(events: &[brownout_trace::Event<'_>], expected: &str) {
    let mut all = pool();
    all.extend_from_slice(events);
    let (log, _) = export(&all);
    assert_eq!(log, format!("{POOL}{expected}|STOP\n"));
    support::pmreorder::replay(&log).expect("pmreorder reads it");
}

#[test]
fn stores_are_cut_into_aligned_words() {
    let bytes: Vec<u8> = (1..=40).collect();
    assert_exports(
        &[store(BASE, &bytes[..8])],
        "|STORE;0x7f0000000000;0x807060504030201;0x8",
    );
    assert_exports(
        &[store(BASE + 0x10, &bytes[..16])],
        "|STORE;0x7f0000000010;0x807060504030201;0x8|STORE;0x7f0000000018;0x100f0e0d0c0b0a09;0x8",
    );
    assert_exports(
        &[store(BASE + 0x3e, &bytes[..4])],
        "|STORE;0x7f000000003e;0x201;0x2|STORE;0x7f0000000040;0x403;0x2",
    );
    assert_exports(&[store(BASE + 1, &[0])], "|STORE;0x7f0000000001;0x0;0x1");
}

#[test]
fn each_kind_of_event() {
    let kinds = |kind| vec![event(kind)];
    let eight = [1, 0, 0, 0, 0, 0, 0, 0];
    let at = |offset| access(BASE + offset, &eight);
    assert_exports(
        &kinds(EventKind::Rmw(at(0))),
        "|STORE;0x7f0000000000;0x1;0x8|FENCE",
    );
    assert_exports(
        &kinds(EventKind::NtStore(at(4))),
        "|STORE;0x7f0000000004;0x1;0x4|STORE;0x7f0000000008;0x0;0x4|FLUSH;0x7f0000000000;0x10",
    );
    assert_exports(
        &kinds(EventKind::KernelStore {
            syscall: 0,
            access: at(0),
        }),
        "|STORE;0x7f0000000000;0x1;0x8",
    );
    assert_exports(&kinds(EventKind::Load(at(0))), "");
    assert_exports(
        &[flush(FlushKind::Clwb, BASE + 0x47)],
        "|FLUSH;0x7f0000000040;0x40",
    );
    assert_exports(
        &[flush(FlushKind::Clflushopt, BASE)],
        "|FLUSH;0x7f0000000000;0x40",
    );
    assert_exports(
        &[flush(FlushKind::Clflush, BASE)],
        "|FLUSH;0x7f0000000000;0x40|FENCE",
    );
    for kind in [FenceKind::Sfence, FenceKind::Mfence, FenceKind::Locked] {
        assert_exports(&kinds(EventKind::Fence(kind)), "|FENCE");
    }
    let msync = |flags| EventKind::Msync {
        addr: TargetAddr(BASE + 0x1000),
        len: 1,
        flags,
    };
    assert_exports(&kinds(msync(MS_SYNC)), "|FLUSH;0x7f0000001000;0x1000|FENCE");
    assert_exports(&kinds(msync(1)), "");
    assert_exports(
        &kinds(EventKind::Fsync {
            file: brownout_trace::FileId(1),
            data_only: true,
        }),
        "|FLUSH;0x7f0000000000;0x2000|FENCE",
    );
    assert_exports(
        &kinds(EventKind::FileWrite {
            file: brownout_trace::FileId(1),
            offset: 0x104,
            size: 8,
            bytes: &eight,
        }),
        "|STORE;0x7f0000000104;0x1;0x4|STORE;0x7f0000000108;0x0;0x4",
    );
}

#[test]
fn requests_and_annotations() {
    assert_exports(
        &[request(5, BASE + 0x11, 0x20, b""), request(6, 0, 0, b"")],
        "|FLUSH;0x7f0000000010;0x28|FENCE",
    );
    // As far as it is tracked.
    assert_exports(
        &[request(5, BASE - 0x1000, 0x1800, b"")],
        "|FLUSH;0x7f0000000000;0x800",
    );
    assert_exports(
        &[request(5, 0, u64::MAX, b"")],
        "|FLUSH;0x7f0000000000;0x2000",
    );
    assert_exports(&[request(5, 0x1000, 0x40, b"")], "");
    assert_exports(
        &[
            request(30, 0, 0, b"insert.BEGIN"),
            request(30, 0, 0, b"insert.END"),
        ],
        "|insert.BEGIN|insert.END",
    );
    let annotation =
        |code, args, text: &'static [u8]| event(EventKind::Annotation { code, args, text });
    assert_exports(
        &[
            annotation(MARKER, [0; 5], b"here"),
            annotation(0x11, [BASE, 8, 0, 0, 0], b""),
            annotation(0x12, [0; 5], b""),
        ],
        "|here.BEGIN|here.END|FLUSH;0x7f0000000000;0x8|FENCE",
    );
}

#[test]
fn an_empty_recording() {
    assert_eq!(export(&[]).0, "START|STOP\n");
}

#[test]
fn call_stacks_follow_each_store() {
    let mut log = Vec::new();
    let mut exporter = Exporter::new(&mut log).frames(|event, frames| {
        frames.push(format!("{}: operator|(a; b) (x.c:1)", event.pc));
        frames.push("0x9: RESTART (x.c:9)".to_owned());
    });
    let mut events = pool();
    events.push(store(BASE, &[1; 9]));
    events[3].pc = TargetAddr(0x401136);
    for event in &events {
        exporter.event(event).expect("exportable");
    }
    exporter.finish().expect("written");
    let log = String::from_utf8(log).expect("text");
    let frames = "0x401136: operator_(a_ b) (x.c:1);0x9: REStart (x.c:9)";
    assert_eq!(
        log,
        format!(
            "{POOL}|STORE;0x7f0000000000;0x101010101010101;0x8;{frames}|STORE;0x7f0000000008;0x1;0x1;{frames}|STOP\n"
        )
    );
    let replayed = support::pmreorder::replay(&log).expect("pmreorder reads it");
    assert_eq!(replayed.barriers, 0);
}

#[test]
fn expecting_a_fence_after_clflush() {
    let mut log = Vec::new();
    let mut exporter = Exporter::new(&mut log).fence_after_clflush(false);
    let mut events = pool();
    events.push(flush(FlushKind::Clflush, BASE));
    for event in &events {
        exporter.event(event).expect("exportable");
    }
    exporter.finish().expect("written");
    assert_eq!(
        String::from_utf8_lossy(&log),
        format!("{POOL}|FLUSH;0x7f0000000000;0x40|STOP\n")
    );
}

#[test]
fn what_is_left_out_is_counted() {
    let mut events = pool();
    events.extend([
        thread_start(2, 1),
        store(BASE + 0x1ffc, &[1; 4]),
        event(EventKind::Annotation {
            code: brownout_trace::annotation::STORE,
            args: [BASE, 8, 0, 0, 0],
            text: &[],
        }),
        request(30, 0, 0, b"never begun.END"),
        request(30, 0, 0, b"a.BEGIN"),
        by(2, EventKind::Fence(FenceKind::Sfence)),
        event(EventKind::Fence(FenceKind::Sfence)),
    ]);
    let (log, exported) = export(&events);
    assert_eq!(
        log,
        format!("{POOL}|STORE;0x7f0000001ffc;0x1010101;0x4|a.BEGIN|FENCE|FENCE|STOP\n")
    );
    assert_eq!(exported.stores, 1);
    assert_eq!(exported.stores_left_out, 1);
    assert_eq!((exported.markers, exported.markers_left_out), (1, 1));
    assert_eq!((exported.registrations, exported.threads), (1, 2));
}

#[test]
fn what_cannot_be_exported_is_an_error() {
    let refuse = |events: &[brownout_trace::Event<'_>], word: &str| {
        let mut exporter = Exporter::new(Vec::new());
        let error = events
            .iter()
            .find_map(|event| exporter.event(event).err())
            .expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(word), "{error}");
    };
    let mut no_values = pool();
    no_values.push(event(EventKind::Store(Access {
        addr: TargetAddr(BASE),
        size: 8,
        bytes: &[],
    })));
    refuse(&no_values, "--no-values");
    refuse(&[map(7, BASE, 0x1000, 1, 0)], "thread 7");
    let mut unexplained = pool();
    unexplained.push(store(0x1000, &[1; 8]));
    refuse(&unexplained, "no mapping explains");
    refuse(
        &[thread_start(1, 1), map(1, BASE, 0x1000, 1, 0)],
        "never defined",
    );
    refuse(
        &[
            thread_start(1, 1),
            file(1, b"/pm/a;b", 0x1000),
            map(1, BASE, 0x1000, 1, 0),
        ],
        "rename",
    );
}

/// What pmemcheck's own tests expect of it, with addresses filled in.
#[test]
fn a_log_as_pmemcheck_writes_it() {
    let log =
        b"START|STORE;0x4fec000;0x1;0x1|FLUSH;0x4fec000;0x40|FENCE|FENCE|STORE;0x4fec008;0x2;0x2|\
                FLUSH;0x4fec000;0x40|STORE;0x4fec010;0x3;0x4|FREORDER|STOP\n";
    let (events, result) = import(log);
    result.expect("whole");
    assert_eq!(
        events,
        [
            "process_start 0 ",
            "thread_start",
            "file 1 [unregistered] 0x0",
            "map 0x4e00000 0x200000 1 0x4e00000",
            "store 0x4fec000 01",
            "clwb 0x4fec000",
            "sfence",
            "sfence",
            "store 0x4fec008 02 00",
            "clwb 0x4fec000",
            "store 0x4fec010 03 00 00 00",
            "marker FREORDER",
            "process_exit",
            "end",
        ]
    );
}

#[test]
fn files_flush_ranges_wide_values_and_markers() {
    let log = b"START|REGISTER_FILE;/pm/a;b;0x10000;0x1800;0x2000|REGISTER_FILE;/pm/c;0x20000;0x1000;0x0|\
                REGISTER_FILE;/pm/c;0x30000;0x1000;0x1000|pmem_memcpy.BEGIN|STORE;0x10000;0x0100000000000000FF;0xc|\
                FLUSH;0x1003f;0x42|FLUSH;0x10000;0x0|pmem_memcpy.END|STOP";
    let (events, result) = import(log);
    result.expect("whole, though the last line is not ended");
    assert_eq!(
        events[2..],
        [
            "file 1 /pm/a;b 0x3800",
            "map 0x10000 0x2000 1 0x2000",
            "file 2 /pm/c 0x1000",
            "map 0x20000 0x1000 2 0x0",
            "map 0x30000 0x1000 2 0x1000",
            "marker pmem_memcpy.BEGIN",
            "store 0x10000 ff 00 00 00 00 00 00 00 01 00 00 00",
            "clwb 0x10000",
            "clwb 0x10040",
            "clwb 0x10080",
            "marker pmem_memcpy.END",
            "process_exit",
            "end",
        ]
    );
}

/// Registered files keep their bytes; what lies between them is mapped piece by piece, once.
#[test]
fn stores_beside_registered_files() {
    let log = b"START|REGISTER_FILE;/pm/a;0x10000;0x1000;0x0|STORE;0x10ffc;0x1;0x8|STORE;0xfff8;0x2;0x8|\
                STORE;0x1fffff;0x0;0x2|STORE;0x11000;0x0;0x1|STORE;0x200010;0x0;0x1|STORE;0x3fffff;0x0;0x1|STOP\n";
    let (events, result) = import(log);
    result.expect("whole");
    let maps: Vec<&str> = events
        .iter()
        .filter(|event| event.starts_with("map") || event.starts_with("file"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        maps,
        [
            "file 1 /pm/a 0x1000",
            "map 0x10000 0x1000 1 0x0",
            "file 2 [unregistered] 0x0",
            "map 0x11000 0x1ef000 2 0x11000",
            "map 0x0 0x10000 2 0x0",
            "map 0x200000 0x200000 2 0x200000",
        ]
    );
}

/// `--log-file` without `-q`: banner, messages between, summary.
#[test]
fn valgrinds_own_lines() {
    let log = b"==4711== pmemcheck-1.0, a simple persistent store checker\n\
                ==4711== Command: ./list a|b\n\
                ==4711== \n\
                START|REGISTER_FILE;/pm/a;0x10000;0x1000;0x0|STORE;0x10000;0x1;0x8\
                ==4711== Unable to trace store - unsupported type of store 0x1505 0x110e | x\n\
                |FENCE\n\
                --4711-- a debug | message\n\
                ==4711== FENCE|FLUSH;0x10000;0x40\r\n\
                ==4711== \n\
                |a-b==c|STOP\n\
                ==4711== Number of stores not made persistent: 1\n\
                ==4711== ERROR SUMMARY: 1 errors\n";
    let (events, result) = import(log);
    result.expect("whole");
    assert_eq!(
        events,
        [
            "process_start 4711 ./list",
            "thread_start",
            "file 1 /pm/a 0x1000",
            "map 0x10000 0x1000 1 0x0",
            "note Unable to trace store - unsupported type of store 0x1505 0x110e",
            "store 0x10000 01 00 00 00 00 00 00 00",
            "sfence",
            "note a debug",
            "sfence",
            "clwb 0x10000",
            "marker a-b==c",
            "process_exit",
            "end",
        ]
    );
}

#[test]
fn every_line_with_a_prefix() {
    let log = b"==1== START|FENCE\n==1== |STORE;0x10;0x1;0x1\n==1== STOP\n";
    let (events, result) = import(log);
    result.expect("whole");
    assert_eq!(events[2], "sfence");
    assert_eq!(events[5..], ["store 0x10 01", "process_exit", "end"]);
}

#[test]
fn call_stacks_are_numbered_and_kept() {
    let log = b"START|REGISTER_FILE;/pm/a;0x10000;0x1000;0x0\
                |STORE;0x10000;0x1;0x8;0x400CDB: insert (list.c:144);0x400E84: main (list.c:185)\
                |STORE;0x10008;0x1;0x8;0x400CFF: insert (list.c:145)\
                |STORE;0x10010;0x1;0x8;0x400CDB: insert (list.c:144);0x400E84: main (list.c:185)\
                |STORE;0x10018;0x1;0x8|STOP\n";
    let (events, result) = import(log);
    result.expect("whole");
    assert_eq!(
        events[4..10],
        [
            "context 1 0x400e84",
            "store 0x10000 01 00 00 00 00 00 00 00 at 0x400cdb context 1",
            "context 2 0x0",
            "store 0x10008 01 00 00 00 00 00 00 00 at 0x400cff context 2",
            "store 0x10010 01 00 00 00 00 00 00 00 at 0x400cdb context 1",
            "store 0x10018 01 00 00 00 00 00 00 00",
        ]
    );
    let mut importer = Importer::new(&log[..]);
    let mut last = ContextId(0);
    while let Some(event) = importer.next().expect("whole") {
        last = last.max(event.context);
    }
    assert_eq!(
        importer.frames(ContextId(1)),
        [
            "0x400CDB: insert (list.c:144)",
            "0x400E84: main (list.c:185)"
        ]
    );
    assert_eq!(importer.frames(last), ["0x400CFF: insert (list.c:145)"]);
    assert!(importer.frames(ContextId(0)).is_empty());
    assert_eq!(
        (importer.events(), importer.offset()),
        (12, log.len() as u64)
    );
}

#[test]
fn errors_say_where_and_what() {
    let message = |log: &[u8]| import(log).1.expect_err("damaged").to_string();
    for (log, expected) in [
        (
            &b"hello"[..],
            "this is not a store log of pmemcheck: there is no START in it (logs are made by valgrind --tool=pmemcheck \
             --log-stores=yes --log-file=FILE)",
        ),
        (
            b"START|FENCE|",
            "the store log is cut off at byte 12: it has no STOP, and the 3 events before are not the whole run",
        ),
        (
            b"START|FENCE|STORE;0x10;0x",
            "the store log is cut off at byte 12: it has no STOP, and the 3 events before are not the whole run",
        ),
    ] {
        assert_eq!(message(log), expected);
    }
    for (element, what) in [
        ("STORE;0x10;0x1", "a field is missing"),
        ("STORE;0x10;;0x1", "not a hexadecimal number"),
        ("STORE;0x10;0x1;0x8hello", "not a hexadecimal number"),
        ("STORE;0x10;-0x1;0x8", "not a hexadecimal number"),
        ("STORE;0x12345678123456781;0x1;0x8", "more than 64 bits"),
        ("STORE;0x10;0x100;0x1", "more bytes than its store"),
        ("STORE;0x10;0x1;0x0", "no bytes"),
        ("STORE;0x10;0x1;0x100001", "more than 1 MiB"),
        ("STORE;0xffffffffffffffff;0x1;0x2", "beyond the end"),
        ("FLUSH;0xffffffffffffffc0;0x80", "beyond the end"),
        ("FLUSH;0x0;0xffffffffffffffff", "larger than 1 TiB"),
        ("REGISTER_FILE;0x0;0x1;0x0", "a file has no path"),
        (
            "REGISTER_FILE;/a;0xffffffffffff0000;0xffff0;0x0",
            "beyond the end",
        ),
        ("START", "second START"),
        ("STOP|FENCE", "goes on after STOP"),
    ] {
        let message = message(format!("START|{element}|STOP\n").as_bytes());
        let at = if element == "STOP|FENCE" { 11 } else { 6 };
        let start = format!("the store log is corrupt at byte {at}: ");
        assert!(message.starts_with(&start), "{element}: {message}");
        assert!(message.contains(what), "{element}: {message}");
    }
}

#[test]
fn an_error_stays() {
    let mut importer = Importer::new(&b"START|STORE;x|FENCE|STOP\n"[..]);
    assert!(importer.next().is_ok() && importer.next().is_ok());
    for _ in 0..3 {
        assert!(matches!(
            importer.next(),
            Err(Error::Corrupt { offset: 6, .. })
        ));
    }
}

#[test]
fn endless_elements_are_refused() {
    let endless = io::Read::chain(&b"START|"[..], io::repeat(b'x'));
    let mut importer = Importer::new(endless);
    while let Ok(event) = importer.next() {
        assert!(event.is_some());
    }
    let error = importer.next().expect_err("it has no end").to_string();
    assert!(error.contains("longer than 1 MiB"), "{error}");
}

#[test]
fn failures_of_the_file_are_passed_on() {
    struct Failing;
    impl io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let mut importer = Importer::new(io::Read::chain(&b"START|FENCE|"[..], Failing));
    let error = loop {
        match importer.next() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.to_string(),
        "cannot read the store log at byte 12: the disk is gone"
    );
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("no space"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert!(Exporter::new(Full).finish().is_err());
}
