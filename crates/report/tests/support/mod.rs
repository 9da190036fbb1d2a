//! Reports for the tests: a few by hand, any number at random.

// Each test file uses its own part.
#![allow(dead_code)]

use brownout_findings::{
    Analysed, Event, Finding, Frame, Place, Replay, Report, Role, SCHEMA_VERSION, Severity, Tool,
    Verdict, rules,
};
use brownout_report::{Format, Options, render};
use proptest::prelude::*;

/// The form as text.
pub fn rendered(report: &Report, format: Format, options: &Options) -> String {
    let mut out = Vec::new();
    render(report, format, options, &mut out).expect("writing to memory");
    String::from_utf8(out).expect("UTF-8")
}

pub fn report(verdict: Verdict, findings: Vec<Finding>) -> Report {
    Report {
        schema: SCHEMA_VERSION,
        tool: Tool {
            name: "brownout".into(),
            version: "0.1.0".into(),
        },
        analysed: Analysed {
            analysis: "check".into(),
            program: vec!["./list".into(), "pool".into()],
            trace: None,
            ended: Some("exit code 0".into()),
            ..Analysed::default()
        },
        verdict,
        coverage: Default::default(),
        findings,
        suppressed: 0,
        known: 0,
        gone: None,
        notes: Vec::new(),
        sources: Vec::new(),
        touched: None,
        statistics: Default::default(),
    }
}

pub fn frame(function: &str, file: &str, line: u32, column: u32) -> Frame {
    Frame {
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(line),
        column: (column > 0).then_some(column),
        module: Some("/opt/list".into()),
        offset: 0x1100 + u64::from(line),
        inlined: false,
    }
}

/// A frame of a library without debug information.
pub fn bare(function: Option<&str>, module: &str, offset: u64) -> Frame {
    Frame {
        function: function.map(Into::into),
        module: Some(module.into()),
        offset,
        ..Frame::default()
    }
}

pub fn event(role: &str, text: &str, stack: Vec<Frame>) -> Event {
    Event {
        role: role.parse().expect("a role"),
        text: text.into(),
        stack,
        ..Event::default()
    }
}

pub fn finding(rule: &str, message: &str, events: Vec<Event>) -> Finding {
    Finding {
        rule: rule.into(),
        severity: rules::find(rule).map_or(Severity::Performance, |rule| rule.severity),
        message: message.into(),
        fingerprint: String::new(),
        root_cause: String::new(),
        count: 1,
        events,
        help: Vec::new(),
        notes: Vec::new(),
        crash_point: None,
        reproduction: None,
        origins: Vec::new(),
        timeline: None,
        sketch: None,
        replay: None,
    }
}

pub fn place(offset: u64, size: u64) -> Place {
    Place {
        file: "/mnt/pmem/pool".into(),
        offset,
        size,
        address: 0x7f00_0000_0000 + offset,
        name: None,
    }
}

/// `push` in list.c stores at the line, called by `insert` and `main`.
pub fn push_stack(line: u32, column: u32) -> Vec<Frame> {
    vec![
        frame("push", "src/list.c", line, column),
        frame("insert", "src/list.c", 12, 0),
        frame("run", "src/main.c", 5, 0),
        frame("main", "src/main.c", 9, 3),
        bare(Some("__libc_start_main"), "/usr/lib/libc.so.6", 0x29d90),
    ]
}

pub fn missing_flush(line: u32) -> Finding {
    let mut store = event("store", "8 bytes are stored here", push_stack(line, 9));
    store.place = Some(place(0x1040, 8));
    store.thread = Some(1);
    store.index = Some(17);
    let mut exit = event("exit", "the program ends", Vec::new());
    exit.index = Some(99);
    let mut made = finding(
        "missing-flush",
        "8 bytes are stored and not written back at the end",
        vec![store, exit],
    );
    made.help = vec!["call pmem_persist on the bytes after the store".into()];
    made
}

pub fn clean_flush() -> Finding {
    let mut flush_stack = push_stack(4, 2);
    flush_stack.insert(0, bare(Some("pmem_flush"), "/usr/lib/libpmem.so.1", 0x4af0));
    let mut flush = event("flush", "a line is written back here", flush_stack);
    flush.place = Some(place(0x1000, 64));
    flush.thread = Some(1);
    let mut earlier = event("flush", "it was last written back here", push_stack(3, 2));
    earlier.thread = Some(2);
    let mut made = finding(
        "clean-flush",
        "a line is written back that was not modified",
        vec![flush, earlier],
    );
    made.count = 1234;
    made.notes = vec!["the line was never stored to".into()];
    made.replay = Some(Replay {
        token: "b1:abc".into(),
        command: "brownout replay b1:abc".into(),
    });
    made
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        4 => "[a-z ]{0,12}",
        1 => "([a-z]|\\pC|\\PC|[\x1b\\[\r\n\t\x00%:/?#\\\\\"<>&'{}]){0,12}",
        1 => Just("\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{fffe}]]>".to_owned()),
    ]
    .boxed()
}

fn path() -> BoxedStrategy<Option<String>> {
    prop_oneof![
        Just(None),
        "(/|\\.\\./|\\./)?([a-z]{1,3}/){0,3}[a-z:% ]{0,4}".prop_map(Some),
        Just(Some("/home/u/p/src/list.c".to_owned())),
        text().prop_map(Some),
    ]
    .boxed()
}

fn number() -> BoxedStrategy<u64> {
    prop_oneof![0u64..100, any::<u64>(), Just(u64::MAX), Just(0)].boxed()
}

fn number32() -> BoxedStrategy<u32> {
    prop_oneof![0u32..100, any::<u32>()].boxed()
}

fn any_frame() -> impl Strategy<Value = Frame> {
    (
        prop::option::of(prop_oneof![
            text(),
            Just("main".into()),
            Just("push".into())
        ]),
        path(),
        prop::option::of(number32()),
        prop::option::of(number32()),
        path(),
        number(),
        any::<bool>(),
    )
        .prop_map(
            |(function, file, line, column, module, offset, inlined)| Frame {
                function,
                file,
                line,
                column,
                module,
                offset,
                inlined,
            },
        )
}

fn any_event() -> impl Strategy<Value = Event> {
    let place = (
        text(),
        number(),
        number(),
        number(),
        prop::option::of(text()),
    )
        .prop_map(|(file, offset, size, address, name)| Place {
            file,
            offset,
            size,
            address,
            name,
        });
    (
        prop::sample::select(Role::ALL),
        text(),
        prop::option::of(0u32..4),
        prop::option::of(number()),
        prop::option::of(place),
        prop::collection::vec(any_frame(), 0..5),
    )
        .prop_map(|(role, text, thread, index, place, stack)| Event {
            role,
            text,
            thread,
            index,
            place,
            stack,
        })
}

fn any_finding() -> impl Strategy<Value = Finding> {
    let rule = prop_oneof![
        prop::sample::select(rules::RULES).prop_map(|rule| rule.id.to_owned()),
        text()
    ];
    let severity = prop_oneof![Just(Severity::Correctness), Just(Severity::Performance)];
    let replay = (text(), text()).prop_map(|(token, command)| Replay { token, command });
    (
        rule,
        severity,
        text(),
        number(),
        prop::collection::vec(any_event(), 0..4),
        prop::collection::vec(text(), 0..3),
        prop::collection::vec(text(), 0..3),
        prop::option::of(any_event()),
        prop::option::of(replay),
    )
        .prop_map(
            |(rule, severity, message, count, events, help, notes, crash_point, replay)| Finding {
                rule: rule.into(),
                severity,
                message,
                fingerprint: String::new(),
                root_cause: String::new(),
                count,
                events,
                help,
                notes,
                crash_point,
                replay,
                reproduction: None,
                origins: Vec::new(),
                timeline: None,
                sketch: None,
            },
        )
}

/// Any report, with names full of what breaks terminals and parsers.
pub fn any_report() -> impl Strategy<Value = Report> {
    let verdict = prop::sample::select(vec![
        Verdict::Clean,
        Verdict::Findings,
        Verdict::NothingChecked,
        Verdict::Incomplete,
    ]);
    (
        verdict,
        prop::collection::vec(any_finding(), 0..8),
        number(),
        number(),
        prop::collection::vec(text(), 0..3),
        prop::collection::vec(text(), 0..3),
        (prop::option::of(text()), prop::option::of(text()), text()),
        any::<bool>(),
    )
        .prop_map(
            |(
                verdict,
                findings,
                suppressed,
                known,
                notes,
                program,
                (trace, ended, name),
                named,
            )| {
                let mut made = report(verdict, findings);
                made.tool.name = name.clone();
                made.analysed = Analysed {
                    analysis: name.clone(),
                    program,
                    trace,
                    ended,
                    ..Analysed::default()
                };
                made.suppressed = suppressed;
                made.known = known;
                made.notes = notes;
                made.statistics.insert(name, known.into());
                if named {
                    brownout_report::fingerprint::assign(&mut made.findings);
                }
                made
            },
        )
}

/// Options of every kind.
pub fn any_options() -> impl Strategy<Value = Options> {
    (
        any::<bool>(),
        prop::option::of(0usize..4),
        prop::option::of(0usize..3),
        0usize..4,
        prop::option::of(prop_oneof![
            Just("/home/u/p".into()),
            Just("/".into()),
            Just("relative".into())
        ]),
    )
        .prop_map(
            |(colour, limit, limit_per_kind, frames_max, folder)| Options {
                colour,
                limit,
                limit_per_kind,
                frames_max,
                folder,
                ..Options::default()
            },
        )
}
