//! Custom rules in an analysis: what they are sent, what they are answered, what becomes of their
//! findings.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use brownout_check::{Analysis, Options, Outcome, RuleError};
use brownout_findings::Severity;
use brownout_rule::host::Plugin;
use brownout_rule::{
    Access, Address, ByteRange, Event, FenceKind, FileId, FlushKind, Info, Kind, KindCode, Place,
    Pm, ProcessId, Reporter, Rule, Site, State, ThreadId,
};
use brownout_symbols::Options as SymbolOptions;
use brownout_trace::annotation;
use brownout_trace::event::{
    self as trace, ContextId, EventKind, ExitStatus, PmReason, TargetAddr,
};

// ---------------------------------------------------------------- a rule that is written in the test

type Code = Box<dyn FnMut(Option<&Event<'_>>, &Pm<'_>, &mut Reporter<'_>)>;

thread_local! {
    static CODE: RefCell<HashMap<String, Code>> = RefCell::default();
}

/// Runs the code that the test gave its id; `None` stands for the end of the run.
struct Scripted {
    id: String,
    info: Info,
}

impl Scripted {
    fn run(&mut self, event: Option<&Event<'_>>, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        let code = CODE.with_borrow_mut(|all| all.remove(&self.id));
        let mut code = code.expect("the rule has code");
        code(event, pm, report);
        CODE.with_borrow_mut(|all| all.insert(self.id.clone(), code));
    }
}

impl Rule for Scripted {
    /// Options: the id, then words for what it needs.
    fn new(options: &str) -> Result<Self, String> {
        let (id, needs) = options.split_once(' ').unwrap_or((options, ""));
        let mut info = match needs {
            "performance" => Info::performance(id.to_owned(), "a test's"),
            _ => Info::correctness(id.to_owned(), "a test's"),
        };
        info.needs_values = needs == "values";
        info.needs_loads = needs == "loads";
        if needs == "fences" {
            info = info.only(&[KindCode::FENCE]);
        }
        Ok(Scripted {
            id: id.to_owned(),
            info,
        })
    }

    fn info(&self) -> Info {
        self.info.clone()
    }

    fn event(&mut self, event: &Event<'_>, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        self.run(Some(event), pm, report);
    }

    fn end(&mut self, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        self.run(None, pm, report);
    }
}

// ---------------------------------------------------------------- a run that is written in the test

/// Where the file is mapped, and which part of it.
const BASE: u64 = 0x10000;
const LEN: u64 = 0x2000;
const OFFSET: u64 = 0x1000;

struct Run {
    analysis: Analysis,
}

impl Run {
    /// Process 1 with thread 1 has a file mapped.
    fn new() -> Run {
        let analysis = Analysis::new(Options::default(), SymbolOptions::default());
        Run { analysis }
    }

    fn rule(
        &mut self,
        options: &str,
        code: impl FnMut(Option<&Event<'_>>, &Pm<'_>, &mut Reporter<'_>) + 'static,
    ) {
        let id = options.split(' ').next().unwrap_or_default().to_owned();
        CODE.with_borrow_mut(|all| all.insert(id, Box::new(code)));
        let plugin = Plugin::in_process::<Scripted>(options).expect("starts");
        self.analysis.add_rule(plugin).expect("a new id");
    }

    fn event_of(&mut self, thread: u32, pc: u64, kind: EventKind<'_>) {
        self.analysis.event(&trace::Event {
            thread: trace::ThreadId(thread),
            pc: TargetAddr(pc),
            context: ContextId(0),
            kind,
        });
    }

    fn event(&mut self, kind: EventKind<'_>) {
        self.event_of(1, 0x400000, kind);
    }

    /// The beginnings that every run has.
    fn start(&mut self) {
        self.event(EventKind::ProcessStart {
            process: trace::ProcessId(1),
            parent: trace::ProcessId(0),
            pid: 100,
            exe: b"/bin/prog",
        });
        self.event(thread_start(1, 1));
        self.event(EventKind::File {
            file: trace::FileId(1),
            path: b"/pm/pool",
            size: 0x8000,
            reason: PmReason::Glob,
            created: false,
        });
        self.event(map(BASE, LEN, OFFSET));
    }

    fn finish(mut self) -> Outcome {
        self.event(EventKind::End {
            status: ExitStatus::Code(0),
        });
        self.analysis.finish()
    }
}

fn thread_start(thread: u32, process: u32) -> EventKind<'static> {
    EventKind::ThreadStart {
        thread: trace::ThreadId(thread),
        process: trace::ProcessId(process),
        tid: 100 + thread,
    }
}

fn map(addr: u64, len: u64, offset: u64) -> EventKind<'static> {
    EventKind::Map {
        addr: TargetAddr(addr),
        len,
        file: trace::FileId(1),
        offset,
        prot: 3,
        flags: 1,
    }
}

fn access(addr: u64, size: u32) -> trace::Access<'static> {
    trace::Access {
        addr: TargetAddr(addr),
        size,
        bytes: &[],
    }
}

fn store(addr: u64, size: u32) -> EventKind<'static> {
    EventKind::Store(access(addr, size))
}

fn clwb(addr: u64) -> EventKind<'static> {
    EventKind::Flush {
        kind: trace::FlushKind::Clwb,
        addr: TargetAddr(addr),
    }
}

const SFENCE: EventKind<'static> = EventKind::Fence(trace::FenceKind::Sfence);

fn note(code: u32, args: [u64; 3]) -> EventKind<'static> {
    let [a, b, c] = args;
    EventKind::Annotation {
        code,
        args: [a, b, c, 0, 0],
        text: b"",
    }
}

fn pmemcheck(code: u32, args: [u64; 3]) -> EventKind<'static> {
    let [a, b, c] = args;
    EventKind::Pmemcheck {
        code,
        args: [a, b, c, 0],
        text: b"",
    }
}

/// Bytes of the mapped file, by where they are mapped.
fn place(addr: u64, len: u64) -> Place {
    Place::new(Address(addr), len, FileId(1), addr - BASE + OFFSET)
}

fn by_address(addr: u64, len: u64) -> Place {
    ByteRange::new(Address(addr), len).into()
}

fn plain(place: Place) -> Access<'static> {
    Access { place, bytes: &[] }
}

/// What a rule has written down.
type Log<T> = Rc<RefCell<Vec<T>>>;

// ---------------------------------------------------------------- what rules are sent

/// Passes `kind` to a rule in a run that has started; returns what arrives, in words.
fn arrives(before: &[EventKind<'_>], kind: EventKind<'_>) -> Vec<String> {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("sees-all", move |event, _, _| {
        seen.borrow_mut()
            .extend(event.map(|event| format!("{:?}", event.kind)));
    });
    run.start();
    for kind in before {
        run.event(kind.clone());
    }
    log.borrow_mut().clear();
    run.event(kind);
    log.take()
}

#[track_caller]
fn becomes(kind: EventKind<'_>, expected: Kind<'_>) {
    assert_eq!(arrives(&[], kind), [format!("{expected:?}")]);
}

#[test]
fn accesses_arrive_with_their_place() {
    let at = BASE + 0x44;
    becomes(store(at, 8), Kind::Store(plain(place(at, 8))));
    becomes(
        EventKind::NtStore(access(at, 8)),
        Kind::NtStore(plain(place(at, 8))),
    );
    becomes(
        EventKind::Rmw(access(at, 8)),
        Kind::Rmw(plain(place(at, 8))),
    );
    becomes(
        EventKind::Load(access(at, 8)),
        Kind::Load(plain(place(at, 8))),
    );
    becomes(
        EventKind::KernelStore {
            syscall: 7,
            access: access(at, 8),
        },
        Kind::KernelStore {
            syscall: 7,
            access: plain(place(at, 8)),
        },
    );
    let line = place(BASE + 0x40, 64);
    becomes(
        clwb(at),
        Kind::Flush {
            kind: FlushKind::Clwb,
            place: line,
        },
    );
    becomes(SFENCE, Kind::Fence(FenceKind::Sfence));
    let bytes = b"new!";
    becomes(
        EventKind::Store(trace::Access {
            bytes,
            ..access(at, 4)
        }),
        Kind::Store(Access {
            place: place(at, 4),
            bytes,
        }),
    );
    becomes(
        EventKind::FileWrite {
            file: trace::FileId(1),
            offset: 9,
            size: 4,
            bytes,
        },
        Kind::FileWrite(Access {
            place: Place::new(Address(0), 4, FileId(1), 9),
            bytes,
        }),
    );
}

#[test]
fn requests_arrive_as_what_they_mean_and_as_nothing_else() {
    let (at, bytes) = (BASE + 8, place(BASE + 8, 16));
    let request = FlushKind::Request;
    for (code, expected) in [
        (annotation::STORE, Kind::Store(plain(bytes))),
        (
            annotation::FLUSH,
            Kind::Flush {
                kind: request,
                place: bytes,
            },
        ),
        (annotation::FENCE, Kind::Fence(FenceKind::Request)),
        (annotation::DFENCE, Kind::Fence(FenceKind::Request)),
        (annotation::TX_BEGIN, Kind::TxBegin { id: 0, depth: 1 }),
        (annotation::TX_END, Kind::TxEnd { id: 0, depth: 0 }),
        (annotation::TX_ADD, Kind::TxAdd(bytes)),
        (annotation::TX_ALLOC, Kind::TxAlloc(bytes)),
    ] {
        becomes(note(code, [at, 16, 0]), expected);
    }
    for (code, args, expected) in [
        (
            5,
            [at, 16, 0],
            Kind::Flush {
                kind: request,
                place: bytes,
            },
        ),
        (6, [0; 3], Kind::Fence(FenceKind::Request)),
        (18, [0; 3], Kind::TxBegin { id: 0, depth: 1 }),
        (19, [77, 0, 0], Kind::TxBegin { id: 77, depth: 1 }),
        (22, [at, 16, 0], Kind::TxAdd(bytes)),
        (23, [77, at, 16], Kind::TxAdd(bytes)),
        (24, [at, 16, 0], Kind::TxRemove(bytes)),
        (25, [77, at, 16], Kind::TxRemove(bytes)),
    ] {
        becomes(pmemcheck(code, args), expected);
    }
    let text = b"index";
    let named = |code| EventKind::Annotation {
        code,
        args: [0, at, 16, 0, 0],
        text,
    };
    becomes(named(annotation::MARKER), Kind::Marker { text });
    becomes(
        EventKind::Pmemcheck {
            code: 30,
            args: [0; 4],
            text,
        },
        Kind::Marker { text },
    );
    becomes(
        named(annotation::REGISTER_VARIABLE),
        Kind::Variable {
            name: text,
            place: bytes,
        },
    );
    becomes(
        named(annotation::UNREGISTER_VARIABLE),
        Kind::VariableGone { name: text },
    );
    // Those without a kind of their own.
    for code in [annotation::OFENCE, annotation::IS_PERSISTED] {
        let args = [at, 16, 0, 0, 0, 0];
        becomes(
            note(code, [at, 16, 0]),
            Kind::Annotation {
                code,
                args,
                text: b"",
            },
        );
    }
    let args = [at, 16, 0, 0, 0, 0];
    becomes(
        pmemcheck(17, [at, 16, 0]),
        Kind::Pmemcheck {
            code: 17,
            args,
            text: b"",
        },
    );
}

#[test]
fn nested_transactions_have_their_depth() {
    let begin = || note(annotation::TX_BEGIN, [0; 3]);
    let end = || note(annotation::TX_END, [0; 3]);
    let depth = |before: &[EventKind<'_>], kind| arrives(before, kind).concat();
    assert!(depth(&[begin()], begin()).contains("depth: 2"));
    assert!(depth(&[begin(), begin()], end()).contains("depth: 2"));
    assert!(depth(&[begin(), begin(), end()], end()).contains("depth: 1"));
    // Another number is another transaction.
    assert!(depth(&[begin()], pmemcheck(19, [5, 0, 0])).contains("id: 5, depth: 1"));
}

#[test]
fn what_libpmemobj_allocates_is_not_logged() {
    let call = |name: &str| {
        let at = trace::LIBRARY_FUNCTIONS
            .iter()
            .position(|known| *known == name);
        let function = at.expect("known") as u32;
        EventKind::LibraryCall {
            function,
            args: [1, 2, 3, 4, 5],
        }
    };
    let request = || pmemcheck(22, [BASE, 8, 0]);
    let bytes = place(BASE, 8);
    let arrived = arrives(&[call("pmemobj_tx_zalloc")], request());
    assert_eq!(arrived, [format!("{:?}", Kind::TxAlloc(bytes))]);
    let arrived = arrives(&[call("pmemobj_tx_add_range_direct")], request());
    assert_eq!(arrived, [format!("{:?}", Kind::TxAdd(bytes))]);
    let (function, args) = ("pmemobj_tx_free", [1, 2, 3, 4, 5, 0]);
    becomes(call(function), Kind::LibraryCall { function, args });
}

#[test]
fn the_rest_of_the_run_arrives() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("sees-all", move |event, _, _| {
        seen.borrow_mut().push(match event {
            Some(event) => (event.process.0, event.thread.0, format!("{:?}", event.kind)),
            None => (0, 0, "end".to_owned()),
        });
    });
    run.start();
    run.event(EventKind::Msync {
        addr: TargetAddr(BASE),
        len: 0x1000,
        flags: 4,
    });
    run.event(EventKind::Fsync {
        file: trace::FileId(1),
        data_only: true,
    });
    run.event(EventKind::Truncate {
        file: trace::FileId(1),
        size: 7,
    });
    run.event(EventKind::Note {
        text: b"not for rules",
    });
    run.event(EventKind::Unmap {
        addr: TargetAddr(BASE),
        len: LEN,
    });
    run.event(EventKind::ThreadExit);
    // The tool says so: no thread of the process is left.
    let process = trace::ProcessId(1);
    run.event_of(
        0,
        0,
        EventKind::ProcessExit {
            process,
            status: ExitStatus::Code(0),
        },
    );
    run.event_of(
        0,
        0,
        EventKind::End {
            status: ExitStatus::Code(0),
        },
    );
    run.analysis.finish();

    let (file, path, exe) = (FileId(1), b"/pm/pool", b"/bin/prog");
    let whole = place(BASE, LEN);
    let expected = [
        (
            1,
            1,
            Kind::ProcessStart {
                parent: ProcessId(0),
                exe,
            },
        ),
        (1, 1, Kind::ThreadStart),
        (
            1,
            1,
            Kind::File {
                file,
                path,
                size: 0x8000,
            },
        ),
        (
            1,
            1,
            Kind::Map {
                place: whole,
                prot: 3,
                flags: 1,
            },
        ),
        (
            1,
            1,
            Kind::Msync {
                place: place(BASE, 0x1000),
                flags: 4,
            },
        ),
        (1, 1, Kind::Fsync { file }),
        (1, 1, Kind::Truncate { file, size: 7 }),
        (1, 1, Kind::Unmap { place: whole }),
        (1, 1, Kind::ThreadExit),
        (1, 0, Kind::ProcessExit),
        (0, 0, Kind::End),
    ];
    let mut expected: Vec<_> = expected
        .iter()
        .map(|(process, thread, kind)| (*process, *thread, format!("{kind:?}")))
        .collect();
    expected.push((0, 0, "end".to_owned()));
    assert_eq!(log.take(), expected);
}

#[test]
fn what_spans_mappings_comes_in_parts_with_their_bytes() {
    // Right behind the first mapping, from the beginning of the file; then a gap, and a third one.
    let (second, third) = (BASE + LEN, BASE + LEN + 0x3000);
    let before = [map(second, 0x1000, 0), map(third, 0x1000, 0x4000)];
    let bytes = b"abcdefgh";
    let crossing = EventKind::Store(trace::Access {
        bytes,
        ..access(second - 3, 8)
    });
    let part = |addr, offset, bytes: &'static [u8]| {
        let place = Place::new(Address(addr), bytes.len() as u64, FileId(1), offset);
        format!("{:?}", Kind::Store(Access { place, bytes }))
    };
    assert_eq!(
        arrives(&before, crossing),
        [
            part(second - 3, OFFSET + LEN - 3, b"abc"),
            part(second, 0, b"defgh")
        ]
    );
    let unmap = |addr, len| EventKind::Unmap {
        addr: TargetAddr(addr),
        len,
    };
    let gone = |place| format!("{:?}", Kind::Unmap { place });
    let (a, b) = (
        Place::new(Address(second), 0x1000, FileId(1), 0),
        Place::new(Address(third), 0x800, FileId(1), 0x4000),
    );
    assert_eq!(arrives(&before, unmap(second, 0x3800)), [gone(a), gone(b)]);
    // It begins and ends in gaps.
    assert_eq!(arrives(&before, unmap(second + 0x1000, 0x7000)).len(), 1);
    // What is not tracked at all is known by its address.
    let dram = by_address(0x9000_0000, 8);
    becomes(
        note(annotation::TX_ADD, [0x9000_0000, 8, 0]),
        Kind::TxAdd(dram),
    );
    // A name is one place.
    let name = b"both";
    let args = [0, second - 8, 16, 0, 0];
    let register = EventKind::Annotation {
        code: annotation::REGISTER_VARIABLE,
        args,
        text: name,
    };
    let whole = Kind::Variable {
        name,
        place: by_address(second - 8, 16),
    };
    assert_eq!(arrives(&before, register), [format!("{whole:?}")]);
}

#[test]
fn indices_count_events_and_name_stores() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    let mut count = 0;
    run.rule("index", move |event, pm, _| {
        let Some(event) = event else { return };
        count += 1;
        assert_eq!(event.index.0, count, "every event counts, from 1");
        for part in pm.status(place(BASE, 64)) {
            assert!(
                seen.borrow().contains(&part.store),
                "{part:?} is none of the events seen"
            );
        }
        seen.borrow_mut().push(event.site());
    });
    run.start();
    let marker = || note(annotation::MARKER, [0; 3]);
    run.event_of(1, 0x401000, store(BASE, 8));
    run.event(marker());
    run.event(marker());
    run.event_of(1, 0x401008, EventKind::NtStore(access(BASE + 8, 8)));
    run.event_of(1, 0x401010, EventKind::Rmw(access(BASE + 16, 8)));
    run.event(marker());
    // The kernel's store to what is not tracked changes nothing.
    run.event(store(0x9000_0000, 8));
    run.event_of(1, 0x401018, store(BASE + 24, 8));
    run.event(marker());
    let outcome = run.finish();
    assert_eq!(outcome.notes, [""; 0]);
    assert_eq!(
        log.borrow()
            .iter()
            .filter(|site| site.kind == KindCode::RMW)
            .count(),
        1
    );
}

#[test]
fn a_store_in_parts_is_one_event() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    let behind = BASE + LEN;
    run.rule("parts", move |event, pm, _| {
        let stored = event.and_then(|event| event.kind.stored().map(|_| event.site()));
        seen.borrow_mut().extend(stored);
        if matches!(
            event,
            Some(Event {
                kind: Kind::Marker { .. },
                ..
            })
        ) {
            let known: Vec<Site> = pm
                .status(by_address(behind - 4, 8))
                .iter()
                .map(|part| part.store)
                .collect();
            assert_eq!(*seen.borrow(), known);
            assert_eq!((known.len(), known[0].index), (2, known[1].index));
        }
    });
    run.start();
    run.event(map(behind, 0x1000, 0));
    run.event(store(behind - 4, 8));
    run.event(note(annotation::MARKER, [0; 3]));
    assert_eq!(run.finish().notes, [""; 0]);
}

#[test]
fn an_unwanted_store_has_an_index_of_its_own() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("fences-only fences", move |event, pm, _| {
        let stores = pm
            .status(place(BASE, 64))
            .into_iter()
            .map(|part| part.store.index.0);
        seen.borrow_mut().extend(stores);
        seen.borrow_mut().extend(event.map(|event| event.index.0));
    });
    run.start();
    run.event(SFENCE);
    run.event(note(annotation::MARKER, [0; 3]));
    run.event(store(BASE, 8));
    run.event(SFENCE);
    drop(run);
    let indices = log.take();
    assert_eq!(indices.len(), 3);
    assert!(indices.is_sorted_by(|a, b| a < b), "{indices:?}");
}

// ---------------------------------------------------------------- what rules are answered

#[test]
fn state_is_that_before_the_event() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("states", move |event, pm, _| {
        let states: Vec<State> = pm
            .status(place(BASE, 8))
            .iter()
            .map(|part| part.state)
            .collect();
        let role = event.map_or("end", |event| event.kind.code().role());
        seen.borrow_mut()
            .push((role, states, pm.is_persisted(place(BASE, 8))));
    });
    run.start();
    log.borrow_mut().clear();
    run.event(store(BASE, 8));
    run.event(clwb(BASE));
    run.event(SFENCE);
    run.event(EventKind::NtStore(access(BASE, 8)));
    run.event(SFENCE);
    run.analysis.finish();
    assert_eq!(
        log.take(),
        [
            ("store", vec![], true),
            ("flush", vec![State::Dirty], false),
            ("fence", vec![State::Flushing], false),
            ("store", vec![State::Persisted], true),
            ("fence", vec![State::Draining], false),
            ("end", vec![State::Persisted], true),
        ]
    );
}

#[test]
fn order_is_answered() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("order", move |event, pm, _| {
        let (data, flag) = (place(BASE, 8), place(BASE + 64, 8));
        if matches!(
            event,
            Some(Event {
                kind: Kind::Marker { .. },
                ..
            })
        ) {
            let answer = (
                pm.is_ordered_before(data, flag),
                pm.is_ordered_before(flag, data),
            );
            seen.borrow_mut().push(answer);
        }
    });
    run.start();
    let marker = || note(annotation::MARKER, [0; 3]);
    run.event(store(BASE, 8));
    run.event(store(BASE + 64, 8));
    run.event(marker());
    run.event(clwb(BASE));
    run.event(SFENCE);
    run.event(store(BASE + 64, 8));
    run.event(marker());
    drop(run);
    assert_eq!(log.take(), [(false, false), (true, false)]);
}

#[test]
fn addresses_are_those_of_the_events_process() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("addresses", move |event, pm, _| {
        let process = match event {
            Some(Event {
                kind: Kind::Marker { .. } | Kind::ProcessExit,
                process,
                ..
            }) => process.0,
            Some(_) => return,
            None => 0,
        };
        let found = |place: Place| -> Vec<_> {
            pm.status(place)
                .iter()
                .map(|part| (part.place.address.0, part.place.offset))
                .collect()
        };
        let in_file = found(Place::new(Address(0), 64, FileId(1), OFFSET));
        let in_memory = found(by_address(BASE, 64));
        seen.borrow_mut().push((process, in_file, in_memory));
    });
    run.start();
    let marker = || note(annotation::MARKER, [0; 3]);
    for process in 2..=3 {
        run.event_of(
            process,
            0,
            EventKind::ProcessStart {
                process: trace::ProcessId(process),
                parent: trace::ProcessId(0),
                pid: 100 + process,
                exe: b"other",
            },
        );
        run.event_of(process, 0, thread_start(process, process));
    }
    // Elsewhere in process 2, nowhere in process 3: there something else is at the same address.
    run.event_of(2, 0, map(0x70_0000, LEN, OFFSET));
    run.event_of(3, 0, map(BASE, LEN, 0x5000));
    run.event(store(BASE + 8, 8));
    for process in 1..=3 {
        run.event_of(process, 0, marker());
    }
    // The tool says that it has ended; its memory is still looked at as its own.
    run.event_of(
        0,
        0,
        EventKind::ProcessExit {
            process: trace::ProcessId(1),
            status: ExitStatus::Code(0),
        },
    );
    run.analysis.finish();
    let offset = OFFSET + 8;
    assert_eq!(
        log.take(),
        [
            (1, vec![(BASE + 8, offset)], vec![(BASE + 8, offset)]),
            (2, vec![(0x70_0008, offset)], vec![]),
            (3, vec![(0, offset)], vec![]),
            (1, vec![(BASE + 8, offset)], vec![(BASE + 8, offset)]),
            (0, vec![(0, offset)], vec![]),
        ]
    );
}

#[test]
fn transactions_are_answered() {
    let log = Log::default();
    let mut run = Run::new();
    let seen = log.clone();
    run.rule("transactions", move |event, pm, _| {
        let Some(event) = event else { return };
        let thread = event.thread;
        let answer = (
            event.kind.code().role(),
            pm.in_transaction(thread),
            pm.is_logged(thread, place(BASE, 8)),
            pm.is_logged(thread, by_address(BASE, 24)),
            pm.is_logged(thread, by_address(0x9000_0000, 8)),
        );
        assert!(!pm.in_transaction(ThreadId(9)) && !pm.is_logged(ThreadId(9), place(BASE, 8)));
        seen.borrow_mut().push(answer);
    });
    run.start();
    log.borrow_mut().clear();
    run.event(note(annotation::TX_BEGIN, [0; 3]));
    run.event(note(annotation::TX_ADD, [BASE, 16, 0]));
    run.event(note(annotation::TX_ALLOC, [BASE + 16, 16, 0]));
    run.event(store(BASE, 8));
    run.event(note(annotation::TX_END, [0; 3]));
    run.event(note(annotation::MARKER, [0; 3]));
    drop(run);
    assert_eq!(
        log.take(),
        [
            ("tx-begin", false, false, false, false),
            ("log", true, false, false, false),
            ("alloc", true, true, false, false),
            ("store", true, true, true, false),
            ("tx-end", true, true, true, false),
            ("marker", false, false, false, false),
        ]
    );
}

#[test]
fn made_up_numbers_find_nothing() {
    let mut run = Run::new();
    run.rule("made-up", move |_, pm, report| {
        for file in [2, 1 << 20 | 1, u32::MAX] {
            let nowhere = Place::new(Address(BASE), u64::MAX, FileId(file), u64::MAX - 5);
            assert!(pm.is_persisted(nowhere) && pm.status(nowhere).is_empty());
            let site = Site {
                pc: Address(u64::MAX),
                context: brownout_rule::ContextId(u32::MAX),
                process: ProcessId(u32::MAX),
                place: nowhere,
                ..Site::default()
            };
            report.finding("nonsense").at(site).submit();
        }
    });
    run.start();
    run.event(store(BASE, 8));
    let outcome = run.finish();
    assert_eq!(outcome.notes, [""; 0]);
    let finding = outcome
        .findings
        .iter()
        .find(|f| f.rule == "made-up")
        .expect("it");
    assert_eq!(finding.events[0].place, None);
}

// ---------------------------------------------------------------- what becomes of findings

#[test]
fn findings_are_grouped_and_placed() {
    let mut run = Run::new();
    let mut earlier = None;
    run.rule("no-stores performance", move |event, _, report| {
        if let Some(event) = event
            && event.kind.stored().is_some()
        {
            let first = *earlier.get_or_insert(event.site());
            report
                .finding("a store")
                .text("stored here")
                .also(first, "the first one")
                .help("do not")
                .note("really")
                .submit();
        }
    });
    run.start();
    for _ in 0..5 {
        run.event_of(1, 0x401000, store(BASE + 8, 8));
    }
    run.event_of(1, 0x402000, store(BASE + 64, 4));
    let outcome = run.finish();
    let findings: Vec<_> = outcome
        .findings
        .iter()
        .filter(|f| f.rule == "no-stores")
        .collect();
    let counts: Vec<u64> = findings.iter().map(|finding| finding.count).collect();
    assert_eq!(counts, [5, 1]);
    let second = findings[1];
    assert_eq!(second.severity, Severity::Performance);
    assert_eq!(
        (second.message.as_str(), &*second.help, &*second.notes),
        (
            "a store",
            &["do not".to_owned()][..],
            &["really".to_owned()][..]
        )
    );
    let [here, first] = &second.events[..] else {
        panic!("{second:#?}")
    };
    assert_eq!(
        (here.role.name(), here.text.as_str()),
        ("store", "stored here")
    );
    assert_eq!((here.thread, first.thread), (Some(1), Some(1)));
    assert!(here.index > first.index);
    let place = here.place.as_ref().expect("a place");
    assert_eq!(
        (place.file.as_str(), place.offset, place.size, place.address),
        ("/pm/pool", OFFSET + 64, 4, BASE + 64)
    );
    assert_eq!(here.stack[0].offset, 0x402000);
    assert_eq!(first.stack[0].offset, 0x401000);
}

#[test]
fn findings_at_the_end_have_no_place() {
    let mut run = Run::new();
    run.rule("at-end", |event, _, report| {
        if event.is_none() {
            report.finding("never sealed").submit();
        }
    });
    run.start();
    let outcome = run.analysis.finish();
    assert_eq!(outcome.ended, None, "also of a run that was cut short");
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings)
    };
    assert_eq!((finding.rule.as_str(), finding.count), ("at-end", 1));
    assert!(finding.events[0].stack.is_empty() && finding.events[0].place.is_none());
}

#[test]
fn correctness_counts_as_failure_at_once() {
    let mut run = Run::new();
    for (rule, counted) in [("slow performance", 0), ("wrong", 1)] {
        run.rule(rule, |event, _, report| {
            if matches!(
                event,
                Some(Event {
                    kind: Kind::Marker { .. },
                    ..
                })
            ) {
                report.finding("a marker").submit();
            }
        });
        if counted == 0 {
            run.start();
        }
        run.event(note(annotation::MARKER, [0; 3]));
        assert_eq!(run.analysis.failures(), counted);
    }
}

#[test]
fn a_rule_that_fails_is_gone_and_the_others_stay() {
    let (log, calls) = (Log::default(), Log::default());
    let mut run = Run::new();
    let (seen, called) = (log.clone(), calls.clone());
    run.rule("weak", move |event, _, report| {
        called.borrow_mut().push(());
        match event.map(|event| event.kind) {
            Some(Kind::Store(_)) => report.finding("before it fails").submit(),
            Some(Kind::Fence(_)) => panic!("no fences please"),
            _ => {}
        }
    });
    run.rule("strong fences", move |event, _, _| {
        seen.borrow_mut().push(event.is_some())
    });
    run.start();
    run.event(store(BASE, 8));
    run.event(SFENCE);
    let before = calls.borrow().len();
    run.event(SFENCE);
    let outcome = run.finish();
    assert_eq!(calls.borrow().len(), before, "it is not called again");
    assert_eq!(log.take(), [true, true, false], "two fences and the end");
    let [note] = &outcome.notes[..] else {
        panic!("{:?}", outcome.notes)
    };
    assert!(note.starts_with("the rule weak failed"), "{note}");
    assert!(note.contains("no fences please"), "{note}");
    assert!(
        outcome
            .findings
            .iter()
            .any(|finding| finding.rule == "weak")
    );
}

#[test]
fn an_id_is_taken_once() {
    let mut analysis = Analysis::new(Options::default(), SymbolOptions::default());
    let mut add = |id: &str| {
        let plugin = Plugin::in_process::<Scripted>(id).expect("starts");
        analysis.add_rule(plugin)
    };
    assert_eq!(add("mine"), Ok(()));
    assert_eq!(add("mine"), Err(RuleError::Twice("mine".to_owned())));
    assert_eq!(add("other"), Ok(()));
    let built_in = "overwritten-unpersisted";
    assert_eq!(
        add(built_in),
        Err(RuleError::BuiltIn(built_in.to_owned())),
        "also one that is off"
    );
}

#[test]
fn rules_say_what_the_recording_must_have() {
    let mut run = Run::new();
    let needs = |run: &Run| (run.analysis.needs_values(), run.analysis.needs_loads());
    run.rule("modest", |_, _, _| {});
    assert_eq!(needs(&run), (false, false));
    run.rule("reader loads", |_, _, _| {});
    assert_eq!(needs(&run), (false, true));
    run.rule("looker values", |_, _, _| {});
    assert_eq!(needs(&run), (true, true));
}

/// What the built-in rules find does not depend on who else looks.
#[test]
fn built_in_findings_stay_the_same() {
    let found = |with_rule: bool| {
        let mut run = Run::new();
        if with_rule {
            run.rule("looks", |_, pm, _| {
                pm.status(place(BASE, LEN));
            });
        }
        run.start();
        run.event_of(1, 0x401000, store(BASE, 8));
        run.event(note(annotation::TX_BEGIN, [0; 3]));
        run.event(note(annotation::TX_ADD, [BASE + 64, 8, 0]));
        run.event_of(1, 0x402000, store(BASE + 64, 8));
        run.event(note(annotation::TX_END, [0; 3]));
        run.event_of(1, 0x403000, clwb(BASE));
        run.event_of(1, 0x404000, SFENCE);
        run.event_of(1, 0x405000, SFENCE);
        let outcome = run.finish();
        let findings = outcome.findings.into_iter();
        findings
            .map(|finding| (finding.rule, finding.message, finding.count))
            .collect::<Vec<_>>()
    };
    assert!(found(false).len() > 1);
    assert_eq!(found(true), found(false));
}
