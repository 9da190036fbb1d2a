//! For tests: runs that the model makes up or that are recorded from hand-made events, and an
//! executor whose programs are closures. No process is started.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brownout_host::{LaunchError, Limits};
use brownout_model::names::Promise;
use brownout_model::{
    Config, Event as ModelEvent, FlushKind, History, Key, Line, LineBytes, LineMask,
};
use brownout_model::{Op, Thread, Unit, Write, keys, masked};
use brownout_trace::EventSink;
use brownout_trace::epochs::Epoch;
use brownout_trace::event::{Access, ContextId, Event, EventKind, FenceKind, FileId, PmReason};
use brownout_trace::event::{NameChange, ProcessId, TargetAddr, ThreadId};

use crate::execution::{Command, Detail, End, Execution, Setting, Turns};
use crate::executor::{Answer, Executor, Request, Want};
use crate::input::Lines;
use crate::line::{LINE, LineKey};
use crate::outcome::{Outcome, Status};
use crate::recording::{Did, FailurePoint, Reason, RecordOptions, Recorder, Recording};
use crate::recording::{Step, TrackedFile};
use crate::site::Site;
use crate::stacks::Definitions;
use crate::trie::Read;
use crate::view::{Base, Entry, FileState, Files, Image, Timeline};

/// The only file. It is full of zeros before the run.
pub const FILE: FileId = FileId(1);
/// Its bytes.
pub const SIZE: u64 = 64 * 1024;
/// The instruction that makes each store of a scene.
pub const STORE: TargetAddr = TargetAddr(0x1000);
/// The instruction that makes each read of a recovery.
pub const LOAD: u64 = 0x2000;

pub fn key(offset: u64) -> Key {
    keys::key(FILE, offset)
}

/// The unit that holds an offset.
pub fn unit(offset: u64) -> Unit {
    Unit(key(offset).0 / LINE as u64)
}

/// Where the program of a hand-made stream lies, and what it is called.
pub const PROGRAM: (u64, &str) = (0x40_0000, "/bin/toy");
/// The same of recoveries that are told in detail.
pub const RECOVERY: (u64, &str) = (0x2000, "/bin/recover");
/// Where the file is mapped.
pub const AT: TargetAddr = TargetAddr(0x10_0000);

/// The recording of a hand-made stream of events, each with its instruction as an offset in the
/// program. That the program and the file are there is told before.
pub fn recorded(options: RecordOptions, input: &str, events: &[(u64, EventKind<'_>)]) -> Recording {
    let lines = Lines::new(input.into());
    // No file is copied, so nothing is written there.
    let mut recorder = Recorder::new(options, Path::new("/nowhere")).with_input(lines);
    feed(&mut recorder, events).expect("it is in order");
    recorder.finish()
}

/// Gives a recorder what [`recorded`] would.
pub fn feed(recorder: &mut Recorder, events: &[(u64, EventKind<'_>)]) -> io::Result<()> {
    let file = EventKind::File {
        file: FILE,
        path: b"/pm/pool",
        size: SIZE,
        reason: PmReason::Glob,
        created: false,
    };
    let map = EventKind::Map {
        addr: AT,
        len: SIZE,
        file: FILE,
        offset: 0,
        prot: 3,
        flags: 1,
    };
    let opening = beginning(PROGRAM).into_iter().chain([file, map]);
    let opening = opening.map(|kind| (0, kind));
    for (offset, kind) in opening.chain(events.iter().cloned()) {
        recorder.event(&Event {
            thread: ThreadId(1),
            pc: TargetAddr(PROGRAM.0 + offset),
            context: ContextId(0),
            kind,
        })?;
    }
    Ok(())
}

/// What every stream begins with.
fn beginning((addr, path): (u64, &'static str)) -> [EventKind<'static>; 3] {
    let (thread, process) = (ThreadId(1), ProcessId(1));
    let path = path.as_bytes();
    [
        EventKind::ProcessStart {
            process,
            parent: ProcessId(0),
            pid: 1,
            exe: path,
        },
        EventKind::ThreadStart {
            thread,
            process,
            tid: 1,
        },
        EventKind::Module {
            process,
            addr: TargetAddr(addr),
            len: 0x1000,
            offset: 0,
            path,
        },
    ]
}

/// Number of the first event behind what the stream begins with.
pub const FIRST: u64 = 5;

/// A store to an offset in the file.
pub fn stores(at: u64, bytes: &[u8]) -> EventKind<'_> {
    EventKind::Store(Access {
        addr: TargetAddr(AT.0 + at),
        size: bytes.len() as u32,
        bytes,
    })
}

pub fn nt_stores(at: u64, bytes: &[u8]) -> EventKind<'_> {
    EventKind::NtStore(Access {
        addr: TargetAddr(AT.0 + at),
        size: bytes.len() as u32,
        bytes,
    })
}

pub fn flushes(kind: FlushKind, at: u64) -> EventKind<'static> {
    let addr = TargetAddr(AT.0 + at);
    EventKind::Flush { kind, addr }
}

pub fn fences() -> EventKind<'static> {
    EventKind::Fence(FenceKind::Sfence)
}

/// How streams are recorded, unless something else is meant.
pub fn record_options() -> RecordOptions {
    RecordOptions {
        model: Config::default(),
        judge_acknowledgements: false,
        names: None,
        names_max: 1,
    }
}

/// As [`record_options`], where names may be lost, too.
pub fn names_options() -> RecordOptions {
    RecordOptions {
        names: Some(Promise::Ordered),
        names_max: 64,
        ..record_options()
    }
}

/// The file is renamed.
pub fn renames() -> EventKind<'static> {
    EventKind::Name {
        change: NameChange::Rename,
        file: FILE,
        replaced: FileId(0),
        names: b"/pm/pool\0/pm/new",
    }
}

/// What a run does.
#[derive(Clone, Debug)]
pub enum Act {
    Store(u64, u64),
    /// Not ordered with others of its line.
    NtStore(u64, u64),
    Flush(u64),
    Fence,
    /// The power may fail here.
    Point,
}

/// The recording of a run that does this. There is a failure point at its end.
pub fn recording(acts: &[Act]) -> Recording {
    recording_on(Base::Files(BTreeMap::new()), acts)
}

/// The same on what was there before.
pub fn recording_on(base: Base, acts: &[Act]) -> Recording {
    let mut history = History::new(Config::default());
    let mut timeline = Timeline::new(base, LINE as u64);
    let before = FileState {
        exists: true,
        size: SIZE,
    };
    let files: Files = BTreeMap::from([(FILE, before)]).into();
    let files = Arc::new(files);
    let mut initialised = BTreeSet::new();
    let mut steps = Vec::new();
    let mut points: Vec<FailurePoint> = Vec::new();
    for act in acts.iter().chain([&Act::Point]) {
        let site = Site {
            thread: ThreadId(1),
            process: ProcessId(1),
            epoch: Epoch::default(),
            pc: STORE,
            context: ContextId(0),
            event: steps.len() as u64,
        };
        let (op, did) = match act {
            Act::Store(at, value) | Act::NtStore(at, value) => {
                if initialised.insert(unit(*at)) {
                    let initial = timeline.initial(unit(*at));
                    history.set_initial(key(at / LINE as u64 * LINE as u64), &initial);
                }
                let write = Write::new(key(*at), value.to_le_bytes().to_vec());
                let did = Did::Store(write.range(), TargetAddr(key(*at).0));
                match act {
                    Act::Store(..) => (Op::Store(write), did),
                    _ => (Op::NtStore(write), did),
                }
            }
            Act::Flush(at) => {
                let line = Line(LineKey::of(key(*at).0).0);
                let kind = FlushKind::Clwb;
                (Op::Flush { kind, line }, Did::Flush(line.range()))
            }
            Act::Fence => (Op::Sfence, Did::Fence),
            Act::Point => {
                let changed = history.take_changed().into_iter();
                timeline.close(changed.filter_map(|unit| history.choices(unit)).collect());
                points.push(FailurePoint {
                    reason: Reason::Completes,
                    site: Some(site),
                    moment: steps.len() as u64,
                    consumed: None,
                    outputs: 0,
                    output_bytes: 0,
                    files: files.clone(),
                    lost: Arc::from([]),
                    place: points.len() as u32,
                    is_oldest: true,
                });
                continue;
            }
        };
        let event = ModelEvent::new(Thread(1), op);
        history.apply(&event).expect("values are there");
        steps.push(Step { site, did });
    }
    let tracked = TrackedFile {
        path: "/pm/pool".into(),
        created: false,
        before,
        base: "/pm/before".into(),
        original: None,
    };
    Recording {
        timeline: Arc::new(timeline),
        points,
        steps,
        files: BTreeMap::from([(FILE, tracked)]),
        definitions: Definitions::default(),
        digest: [0; 32],
        storing_threads: 1,
        is_interleaved: false,
        input: None,
        reads_ahead: false,
        synced_beside: false,
        outputs: 0,
        touched: true,
        names: Vec::new(),
        unfollowed: BTreeSet::new(),
        attributes: BTreeSet::new(),
        names_sampled: false,
        initial: files,
        registered: Default::default(),
    }
}

pub fn setting() -> Arc<Setting> {
    setting_until(Arc::default())
}

/// What ends when this is set.
pub fn setting_until(stop: Arc<AtomicBool>) -> Arc<Setting> {
    Arc::new(Setting {
        pm_globs: Vec::new(),
        recover: Command::shell("recover", None),
        checker: None,
        limits: Limits::default(),
        program_limits: Limits::default(),
        end: End::new(stop),
        names: None,
        expected: OnceLock::new(),
        varying: None,
        turns: Turns::default(),
        touches: None,
        opens: false,
        notices_changes: false,
    })
}

/// An outcome with this exit code, which prints this.
pub fn exits(code: i32, stdout: impl Into<Vec<u8>>) -> Outcome {
    Outcome {
        status: Status::Exit(code),
        stdout: stdout.into(),
        stderr: Vec::new(),
        checker: None,
        again: None,
        broken: Vec::new(),
    }
}

/// An execution that read this and ended so.
pub fn execution(path: Vec<(Read, LineBytes)>, outcome: Outcome) -> Execution {
    Execution {
        outcome,
        events: path.len() as u64,
        path,
        wall: Duration::ZERO,
        longest: Duration::ZERO,
        threads: 1,
        has_threads: false,
        helper_killed: None,
        first_was_cut: false,
        changes_nothing: false,
        reads_files: true,
        names_files: true,
        used: BTreeSet::new(),
        detail: None,
    }
}

/// Where in the code of a recovery its reads were made, and where it ended: each read is an
/// instruction further than the one before.
fn in_detail(execution: &Execution) -> Detail {
    let mut definitions = Definitions::default();
    for kind in beginning(RECOVERY) {
        definitions.observe(&Event {
            thread: ThreadId(1),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        });
    }
    let reads: Vec<Site> = (0..execution.path.len() as u64)
        .map(|read| Site {
            thread: ThreadId(1),
            process: ProcessId(1),
            epoch: definitions.epoch(ProcessId(1)),
            pc: TargetAddr(RECOVERY.0 + read),
            context: ContextId(0),
            event: read,
        })
        .collect();
    let last = reads.last().copied();
    let is_killed = matches!(execution.outcome.status, Status::Signal(_));
    Detail {
        definitions,
        reads,
        last,
        died: last.filter(|_| is_killed),
        found: None,
    }
}

/// Persistent memory as a made-up recovery sees it. As in a real one, a byte counts as read the
/// first time only.
pub struct Memory<'i> {
    image: &'i Image,
    read: BTreeMap<LineKey, LineMask>,
    path: Vec<(Read, LineBytes)>,
    written: BTreeMap<u64, u64>,
    acts: Vec<Act>,
}

impl Memory<'_> {
    /// Whether a file is there. As in a real recovery, that is no read of what it holds.
    pub fn has(&self, path: &str) -> bool {
        let entry = self.image.files.names.get(path.as_bytes());
        matches!(entry, Some(Entry::File(_)))
    }

    /// Does something to the memory. What is stored is no longer read.
    pub fn act(&mut self, act: Act) {
        if let Act::Store(at, value) | Act::NtStore(at, value) = act {
            self.written.insert(at, value);
        }
        self.acts.push(act);
    }

    /// The word at an offset.
    pub fn word(&mut self, at: u64) -> u64 {
        if let Some(written) = self.written.get(&at) {
            return *written;
        }
        let line = LineKey::of(key(at).0);
        let first = at as usize % LINE;
        let mask = 0xff << first;
        let before = self.read.entry(line).or_default();
        let bytes = self.image.line(line);
        if *before & mask != mask {
            let mask = mask & !*before;
            *before |= mask;
            let pc = LOAD;
            let read = Read { line, mask, pc };
            self.path.push((read, masked(&bytes, mask)));
        }
        u64::from_le_bytes(bytes[first..first + 8].try_into().expect("eight bytes"))
    }
}

/// What a recovery read, and how it ended.
pub fn recover(
    image: &Image,
    program: impl Fn(&mut Memory<'_>) -> Outcome,
) -> (Vec<(Read, LineBytes)>, Outcome) {
    let (path, outcome, _) = recover_and_store(image, program);
    (path, outcome)
}

/// The same, and what it did to the memory.
pub fn recover_and_store(
    image: &Image,
    program: impl Fn(&mut Memory<'_>) -> Outcome,
) -> (Vec<(Read, LineBytes)>, Outcome, Vec<Act>) {
    let mut memory = Memory {
        image,
        read: BTreeMap::new(),
        path: Vec::new(),
        written: BTreeMap::new(),
        acts: Vec::new(),
    };
    let outcome = program(&mut memory);
    (memory.path, outcome, memory.acts)
}

/// Paths of the recoveries that were asked for, in order.
pub type Asked = Rc<RefCell<Vec<Vec<(Read, LineBytes)>>>>;

/// Answers by a closure on the image. The answer to the last request comes first, since nobody may
/// rely on an order.
pub struct Fake<P> {
    program: P,
    answers: Vec<(u64, Answer)>,
    next: u64,
    pub asked: Asked,
}

impl<P: Fn(&mut Memory<'_>) -> Outcome> Fake<P> {
    pub fn new(program: P) -> Fake<P> {
        Fake {
            program,
            answers: Vec::new(),
            next: 0,
            asked: Asked::default(),
        }
    }
}

impl<P: Fn(&mut Memory<'_>) -> Outcome> Executor for Fake<P> {
    fn size(&self) -> usize {
        2
    }

    fn start(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        let answer = match request.want {
            Want::Outcome { detail, .. } => {
                let (path, outcome) = recover(&request.image, &self.program);
                self.asked.borrow_mut().push(path.clone());
                let mut execution = execution(path, outcome);
                execution.detail = detail.then(|| in_detail(&execution));
                Answer::Executed(Ok(Box::new(execution)))
            }
            Want::Recording(_) => {
                let (_, _, acts) = recover_and_store(&request.image, &self.program);
                let base = Base::Crashed(request.image);
                Answer::Recorded(Ok(Box::new(recording_on(base, &acts))))
            }
            Want::After(_) => {
                Answer::Executed(Err(LaunchError::Bug("nobody should ask for that".into())))
            }
        };
        self.answers.push((id, answer));
        id
    }

    fn wait(&mut self, _: Duration) -> Option<(u64, Answer)> {
        self.answers.pop()
    }

    fn in_flight(&self) -> usize {
        self.answers.len()
    }

    fn is_broken(&self) -> bool {
        false
    }
}
