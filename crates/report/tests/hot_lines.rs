//! The toy analysis of `examples/hot_lines.rs` goes the way of all analyses: events in, from
//! wherever, and a report out.

use std::io::Cursor;

use brownout_findings::{Limit, Report, Severity, Verdict};
use brownout_report::{Format, Options, render};
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, FileId, PmReason, ProcessId, TargetAddr,
    ThreadId,
};
use brownout_trace::{EventSink, Meta, Reader, Tee, Writer};
use hot_lines::{HotLines, report};

#[allow(dead_code)]
#[path = "../examples/hot_lines.rs"]
mod hot_lines;

const BASE: u64 = 0x10_0000;

fn event(kind: EventKind<'_>) -> Event<'_> {
    Event {
        thread: ThreadId(1),
        pc: TargetAddr(0x40_1000),
        context: ContextId(0),
        kind,
    }
}

/// A program that maps a pool and stores to line `n` of it `n + 1` times, for twelve lines; then
/// twice across the first two.
fn run(sink: &mut dyn EventSink, has_end: bool) {
    let (process, thread, file) = (ProcessId(1), ThreadId(1), FileId(1));
    let mut events = vec![
        event(EventKind::ProcessStart {
            process,
            parent: ProcessId(0),
            pid: 7,
            exe: b"/bin/prog",
        }),
        event(EventKind::ThreadStart {
            thread,
            process,
            tid: 7,
        }),
        event(EventKind::File {
            file,
            path: b"/pm/pool",
            size: 4096,
            reason: PmReason::Glob,
            created: false,
        }),
        event(EventKind::Map {
            addr: TargetAddr(BASE),
            len: 4096,
            file,
            offset: 0,
            prot: 3,
            flags: 1,
        }),
    ];
    let access = |offset: u64, size: u32| Access {
        addr: TargetAddr(BASE + offset),
        size,
        bytes: &[],
    };
    for line in 0..12 {
        let store = event(EventKind::Store(access(64 * line + 8, 8)));
        events.extend(std::iter::repeat_n(store, line as usize + 1));
        // Reading makes nothing hot.
        events.push(event(EventKind::Load(access(64 * line, 64))));
    }
    let across = event(EventKind::NtStore(access(60, 8)));
    events.extend([across.clone(), across]);
    if has_end {
        let status = ExitStatus::Code(0);
        events.push(event(EventKind::End { status }));
    }
    sink.events(&events).expect("events that make sense");
}

fn messages(report: &Report) -> Vec<&str> {
    let messages = report.findings.iter().map(|f| f.message.as_str());
    messages.collect()
}

#[test]
fn the_ten_hottest_lines_are_reported() {
    let mut analysis = HotLines::default();
    run(&mut analysis, true);
    let report = report(analysis.finish());
    assert_eq!(report.verdict, Verdict::Findings);
    assert_eq!(report.analysed.analysis, "hot-lines");
    assert_eq!(report.analysed.ended.as_deref(), Some("exit code 0"));
    assert_eq!(report.statistics["lines"], 12);
    assert_eq!(report.findings.len(), 10);
    let mut offsets: Vec<u64> = Vec::new();
    for finding in &report.findings {
        assert_eq!(finding.rule, "hot-line");
        assert_eq!(finding.severity, Severity::Performance);
        assert!(!finding.fingerprint.is_empty());
        let place = finding.events[0].place.as_ref().expect("a place");
        assert_eq!((place.file.as_str(), place.size), ("/pm/pool", 64));
        offsets.push(place.offset / 64);
    }
    offsets.sort_unstable();
    // Lines 0 and 2 were stored to three times, line 1 four times.
    assert_eq!(offsets, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let hottest = "line 11 of the file is stored to 12 times";
    assert!(messages(&report).contains(&hottest));
    let mut text = Vec::new();
    render(&report, Format::Terminal, &Options::default(), &mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains(hottest));
}

/// Live or from a trace: an analysis cannot tell.
#[test]
fn a_trace_gives_the_same_report() {
    let mut live = HotLines::default();
    let mut file = Vec::new();
    {
        let mut trace = Trace(Writer::new(&mut file, &Meta::default()).unwrap());
        run(&mut Tee::of([&mut live, &mut trace]), true);
        trace.0.finish().unwrap();
    }
    let mut later = HotLines::default();
    let mut reader = Reader::new(Cursor::new(file)).unwrap();
    while let Some(event) = reader.next().unwrap() {
        later.event(&event).unwrap();
    }
    assert_eq!(report(live.finish()), report(later.finish()));
}

struct Trace<'f>(Writer<&'f mut Vec<u8>>);

impl EventSink for Trace<'_> {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        self.0.push(event)
    }
}

#[test]
fn what_was_not_looked_at_decides_the_verdict() {
    let nothing = report(HotLines::default().finish());
    assert_eq!(nothing.verdict, Verdict::NothingChecked);
    let mut cut = HotLines::default();
    run(&mut cut, false);
    let cut = report(cut.finish());
    assert_eq!(cut.verdict, Verdict::Incomplete);
    assert!(cut.coverage.has(Limit::Unfinished) && cut.findings.len() == 10);
}
