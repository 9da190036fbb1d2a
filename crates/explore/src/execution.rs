//! One run of a recovery on one image, and everything that it read.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brownout_host::{
    ExitStatus, LaunchConfig, LaunchError, Limits, Schedule, Stopped, StrategyKind,
};
use brownout_model::names::Promise;
use brownout_model::{ByteRange, LINE_BYTES, LineBytes, keys, mask_within, masked};
use brownout_symbols::{Part, Touches};
use brownout_trace::epochs::Epoch;
use brownout_trace::event::{self as trace, Event, EventKind, FileId, TargetAddr};
use brownout_trace::maps::{AddressSpaces, MapFault};
use brownout_trace::{EventSink, Tee};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::line::LineKey;
use crate::outcome::{Hang, Outcome, Status};
use crate::recording::Recorder;
use crate::site::Site;
use crate::stacks::Definitions;
use crate::trie::Read;
use crate::view::Image;
use crate::world::World;

/// As much of a recovery's standard error is kept.
const LAST_WORDS: usize = 4096;

/// As much of its output: a recovery that prints for ever must not fill the memory.
pub const OUTPUT_MAX: u64 = 16 << 20;

/// A program to run.
#[derive(Clone, Debug)]
pub struct Command {
    /// A path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Standard input; nothing if there is none.
    pub stdin: Option<PathBuf>,
}

impl Command {
    /// A command line as a shell takes it. A shell is started only if something in it needs one.
    pub fn shell(line: &str, stdin: Option<PathBuf>) -> Command {
        const SPECIAL: &str = "|&;<>()$`\\\"'*?[]#~=%{}!\n";
        // Not all of them are programs, too.
        const BUILT_IN: [&str; 12] = [
            ".", ":", "[", "cd", "eval", "exec", "exit", "export", "set", "test", "trap", "ulimit",
        ];
        let mut words = line.split_whitespace();
        if let Some(program) = words.next()
            && !BUILT_IN.contains(&program)
            && !line.contains(|c| SPECIAL.contains(c))
        {
            return Command {
                program: program.into(),
                args: words.map(Into::into).collect(),
                stdin,
            };
        }
        Command {
            program: "sh".into(),
            args: vec!["-c".into(), line.into()],
            stdin,
        }
    }

    /// As a person would type it.
    pub fn display(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        let quoted: Vec<String> = words.map(|w| quote(&w.to_string_lossy())).collect();
        quoted.join(" ")
    }
}

/// A word that a shell takes as it is.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What all runs of an exploration have in common.
pub struct Setting {
    pub pm_globs: Vec<String>,
    pub recover: Command,
    /// Run after a recovery that ended well, with the image and the number of operations.
    pub checker: Option<String>,
    pub limits: Limits,
    /// Bounds of the program's own runs, whose measure is the recorded one.
    pub program_limits: Limits,
    /// When the exploration ends early.
    pub end: End,
    /// What is promised about names and sizes, if they are explored.
    pub names: Option<Promise>,
    /// What recovery prints after whole operations, once that is known.
    pub expected: OnceLock<HashSet<Vec<u8>>>,
    /// Lines whose content differs between failure points; what is read elsewhere is the same for
    /// all. `None`: any may.
    pub varying: Option<FxHashSet<LineKey>>,
    /// Whether threads take turns.
    pub turns: Turns,
    /// Counts where persistent memory is touched.
    pub touches: Option<Touches>,
    /// Whether files that recoveries open are to be told.
    pub opens: bool,
    /// Whether it is to be seen which recoveries change nothing, because crashes in recovery are
    /// explored.
    pub notices_changes: bool,
}

impl Setting {
    /// What happens to names is recorded, wherever it matters what a recovery changes. A recovery
    /// that is to be cut short is then the same program as one that is not, kept ready once.
    fn recovers_with_names(&self) -> bool {
        self.names.is_some() && self.notices_changes
    }
}

/// When an exploration ends early, and runs under way with it. Whoever waits for the time sets a
/// flag of its own: the user's is not ours. Others may look at it, and it must not be forgotten
/// when more time is allowed.
#[derive(Debug, Default)]
pub struct End {
    /// Somebody wants it to end. It is only read.
    stop: Arc<AtomicBool>,
    /// That wish was heard: what is done now is what comes after it.
    heard: AtomicBool,
    /// The time is up.
    expired: Arc<AtomicBool>,
}

impl End {
    /// When this flag is set, or when somebody says that the time is up.
    pub fn new(stop: Arc<AtomicBool>) -> End {
        End {
            stop,
            ..End::default()
        }
    }

    /// The user's flag, if it still counts.
    fn wish(&self) -> Option<Arc<AtomicBool>> {
        let heard = self.heard.load(Ordering::Relaxed);
        (!heard).then(|| self.stop.clone())
    }

    /// Somebody wants it to end, and was not heard yet.
    pub fn is_wanted(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && !self.heard.load(Ordering::Relaxed)
    }

    /// Whether runs under way are to end, for whatever reason.
    pub fn is_now(&self) -> bool {
        self.is_wanted() || self.expired.load(Ordering::Relaxed)
    }

    /// The time is up.
    pub fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
    }

    /// Something else is begun, which has its own time. Says whether somebody wanted the end; that
    /// is heard now, and does not count any more.
    pub fn begin_anew(&self) -> bool {
        self.expired.store(false, Ordering::Relaxed);
        let is_wanted = self.is_wanted();
        self.heard.fetch_or(is_wanted, Ordering::Relaxed);
        is_wanted
    }

    /// More time is allowed.
    pub fn extend(&self) {
        self.expired.store(false, Ordering::Relaxed);
    }
}

/// Whether the threads of recoveries take turns, so that they do the same each time.
#[derive(Debug, Default)]
pub struct Turns {
    are_wanted: bool,
    /// Some recovery had more than one thread.
    are_needed: AtomicBool,
}

impl Turns {
    pub fn new(are_wanted: bool) -> Turns {
        Turns {
            are_wanted,
            are_needed: AtomicBool::new(false),
        }
    }

    pub fn are_wanted(&self) -> bool {
        self.are_wanted
    }

    /// What the threads of all runs are decided by, except those of the recorded one: nobody is
    /// interrupted without need.
    fn schedule() -> Schedule {
        Schedule::new(StrategyKind::GoOn, 0)
    }
}

/// What was seen of one run.
pub struct Execution {
    pub outcome: Outcome,
    /// What it read, in order, and what it saw.
    pub path: Vec<(Read, LineBytes)>,
    pub events: u64,
    pub wall: Duration,
    /// The longest of it and of those that judge it, of those that have ended by themselves.
    pub longest: Duration,
    /// More than one thread accessed persistent memory.
    pub threads: usize,
    /// It had more than one thread, whatever they did.
    pub has_threads: bool,
    /// A process of it, but not the first, was killed by this signal.
    pub helper_killed: Option<i32>,
    /// The program that ran before it was ended, because it took too long or seemed to wait for
    /// ever.
    pub first_was_cut: bool,
    /// It was seen to change nothing that a crash could leave changed in part: no file, no name. A
    /// crash in it leaves what was there before. What judges it does not count.
    pub changes_nothing: bool,
    /// It, or what judges it, has read something of the run's files.
    pub reads_files: bool,
    /// It, or what judges it, has asked for one of the run's files by name.
    pub names_files: bool,
    /// Programs and libraries that it executed, and, if the setting says so, files that it opened.
    pub used: BTreeSet<PathBuf>,
    pub detail: Option<Detail>,
}

/// What only a person wants to know.
pub struct Detail {
    pub definitions: Definitions,
    /// Where each read of the path was made.
    pub reads: Vec<Site>,
    /// The last access to persistent memory.
    pub last: Option<Site>,
    /// Where a signal ended it.
    pub died: Option<Site>,
    /// Where it looked for a tracked file and found one.
    pub found: Option<Site>,
}

/// Operations at the time of the crash, for a checker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acknowledged {
    pub operations: u64,
    /// Their text: the lines of input, or the output.
    pub text: Vec<u8>,
}

/// Runs a recovery on an image.
///
/// A program whose threads take turns cannot be kept ready ([`brownout_host::Session`]), so it
/// costs a launch. Most recoveries have one thread, and do the same with turns and without: those
/// are run without. Only when one shows more threads it is run again with turns, and all that
/// follow are run with turns at once.
pub fn execute(
    setting: &Setting,
    recover: &Command,
    layout: u32,
    world: &mut World,
    image: &Image,
    acknowledged: &Acknowledged,
    detail: bool,
) -> Result<Execution, LaunchError> {
    let turns = &setting.turns;
    let mut execute = |turns| {
        execute_with(
            setting,
            (recover, layout),
            world,
            image,
            acknowledged,
            detail,
            turns,
        )
    };
    if !turns.are_wanted || turns.are_needed.load(Ordering::Relaxed) {
        return execute(turns.are_wanted);
    }
    let execution = execute(false)?;
    if !execution.has_threads {
        return Ok(execution);
    }
    turns.are_needed.store(true, Ordering::Relaxed);
    execute(true)
}

fn execute_with(
    setting: &Setting,
    (recover, layout): (&Command, u32),
    world: &mut World,
    image: &Image,
    acknowledged: &Acknowledged,
    detail: bool,
    turns: bool,
) -> Result<Execution, LaunchError> {
    let names = setting.recovers_with_names();
    let how = |names| How {
        names,
        turns,
        part: Part::Recovery,
    };
    let lost = |what: &'static str| move |e| LaunchError::Launch(what, e);
    world
        .lay(image)
        .map_err(lost("laying down the crash image"))?;
    let mut watcher = Watcher::new(image, setting.varying.as_ref(), detail);
    let recovered = run(setting, recover, layout, world, &mut watcher, how(names))?;
    let changes_nothing = setting.notices_changes && !watcher.changes;
    let mut longest = recovered.ended_within();
    let mut again = None;
    if let Some(expected) = setting.expected.get()
        && matches!(recovered.status, Status::Exit(_))
        && !expected.contains(&recovered.stdout)
    {
        // It may have told of the crash; then the second time shows what is there.
        watcher.begin_another();
        let second = run(
            setting,
            recover,
            layout + 1,
            world,
            &mut watcher,
            how(false),
        )?;
        longest = longest.max(second.ended_within());
        again = matches!(second.status, Status::Exit(_)).then_some(second.stdout);
    }
    let mut checked = None;
    if let Some(checker) = &setting.checker
        && recovered.status == Status::Exit(0)
    {
        let command =
            judging(checker, world, acknowledged).map_err(lost("writing what was acknowledged"))?;
        watcher.begin_another();
        let judged = run(
            setting,
            &command,
            layout + 2,
            world,
            &mut watcher,
            how(false),
        )?;
        longest = longest.max(judged.ended_within());
        let mut said = judged.stdout;
        said.extend(judged.stderr);
        said.drain(..said.len().saturating_sub(LAST_WORDS));
        checked = Some((judged.status, said));
    }
    let mut execution = watcher.into_execution(recovered, world);
    execution.longest = longest;
    execution.changes_nothing = changes_nothing;
    execution.outcome.checker = checked;
    execution.outcome.again = again;
    Ok(execution)
}

/// Makes the program ready that will be run most often in the world, on images like this one. Where
/// it cannot be kept ready, nothing is done.
pub fn make_ready(setting: &Setting, world: &mut World, image: &Image) -> Result<(), LaunchError> {
    if setting.turns.are_wanted && setting.turns.are_needed.load(Ordering::Relaxed) {
        return Ok(());
    }
    let how = How {
        names: setting.recovers_with_names(),
        turns: false,
        part: Part::Recovery,
    };
    world
        .lay(image)
        .map_err(|e| LaunchError::Launch("laying down the crash image", e))?;
    let config = configure(setting, &setting.recover, image.crashes(), world, how)?;
    world.make_ready(&config);
    Ok(())
}

/// The command that judges what a recovery has left in the world.
pub fn judging(checker: &str, world: &World, acknowledged: &Acknowledged) -> io::Result<Command> {
    let text = world.tell(&acknowledged.text)?;
    let first = world.names().into_iter().next().unwrap_or_default();
    Ok(Command {
        program: "sh".into(),
        args: vec![
            "-c".into(),
            format!("{checker} \"$@\"").into(),
            "sh".into(),
            first.into(),
            acknowledged.operations.to_string().into(),
            text.into(),
        ],
        stdin: None,
    })
}

/// Runs a program on an image and records what it does.
pub fn record(
    setting: &Setting,
    command: &Command,
    layout: u32,
    world: &mut World,
    image: &Image,
    mut recorder: Recorder,
) -> Result<(Recorder, Status), LaunchError> {
    let lost = |what: &'static str| move |e| LaunchError::Launch(what, e);
    world
        .lay(image)
        .map_err(lost("laying down the crash image"))?;
    let mut watcher = Watcher::new(image, None, false);
    let how = How {
        names: setting.names.is_some(),
        turns: setting.turns.are_wanted,
        part: Part::Recovery,
    };
    let ran = run(
        setting,
        command,
        layout,
        world,
        &mut Tee::of([&mut watcher, &mut recorder]),
        how,
    )?;
    watcher.tell(&ran, world);
    Ok((recorder, ran.status))
}

/// Runs a command on an image, and another one on what it leaves.
pub fn refer(
    setting: &Setting,
    first: &Command,
    then: &Command,
    layout: u32,
    world: &mut World,
    image: &Image,
) -> Result<Execution, LaunchError> {
    let lost = |what: &'static str| move |e| LaunchError::Launch(what, e);
    world
        .lay(image)
        .map_err(lost("laying down the crash image"))?;
    let mut watcher = Watcher::new(image, None, false);
    let how = How {
        names: false,
        turns: setting.turns.are_wanted,
        part: Part::Program,
    };
    let ran = run(setting, first, layout, world, &mut watcher, how)?;
    if ran.is_distrusted() {
        // What it was killed in the middle of is not known; what recovery then does to that is.
        world.distrust();
    }
    watcher.begin_another();
    let how = How {
        part: Part::Recovery,
        ..how
    };
    let recovered = run(setting, then, layout + 1, world, &mut watcher, how)?;
    let mut execution = watcher.into_execution(recovered, world);
    execution.first_was_cut = matches!(ran.status, Status::Hang(_));
    execution.path.clear();
    Ok(execution)
}

/// How a run looked from outside.
pub struct Ran {
    pub status: Status,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub wall: Duration,
    /// It has left processes behind, which were ended.
    pub left_behind: bool,
}

impl Ran {
    /// How long it has taken; nothing if it had to be ended.
    fn ended_within(&self) -> Duration {
        match self.status {
            Status::Hang(_) => Duration::ZERO,
            _ => self.wall,
        }
    }

    /// Something was killed, which may have stored more than was seen.
    fn is_distrusted(&self) -> bool {
        self.left_behind || matches!(self.status, Status::Hang(_))
    }
}

/// What differs between the runs of an exploration.
#[derive(Clone, Copy)]
struct How {
    /// What happens to names is recorded.
    names: bool,
    /// Threads take turns.
    turns: bool,
    /// Whose run it is, for those who count.
    part: Part,
}

fn run(
    setting: &Setting,
    command: &Command,
    layout: u32,
    world: &mut World,
    sink: &mut dyn EventSink,
    how: How,
) -> Result<Ran, LaunchError> {
    let lost = |what: &'static str| move |e| LaunchError::Launch(what, e);
    let [out, err] = streams(world);
    let config = configure(setting, command, layout, world, how)?;
    // Most recoveries follow one crash: they have the layout 1, and are all the same program.
    let often = layout == 1
        && how.names == setting.recovers_with_names()
        && command.program == setting.recover.program;
    let touches = setting.touches.as_ref();
    let mut counting = touches.map(|touches| touches.run(how.part));
    let mut sink = Tee::of([sink]).and(counting.as_mut());
    let ended = world.run(&config, often, &mut sink)?;
    if ended.stopped.is_some()
        && let Some(view) = world.view()
    {
        // One that was just being made may have been missed.
        view.end_all();
    }
    let is_deadlock = ended.scheduled.is_some_and(|turns| turns.is_deadlock);
    let status = match ended.stopped {
        None if is_deadlock => Status::Hang(Hang::Blocked),
        Some(Stopped::Events | Stopped::Steps) => Status::Hang(Hang::Steps),
        Some(Stopped::Idle) => Status::Hang(Hang::Blocked),
        Some(Stopped::Wall | Stopped::Memory | Stopped::Asked) => Status::Hang(Hang::Time),
        None | Some(Stopped::LeftBehind) => match ended.status {
            ExitStatus::Code(code) => Status::Exit(code),
            ExitStatus::Signal(signal) => Status::Signal(signal),
        },
    };
    let mut stderr = read_head(&err).map_err(lost("reading the output"))?;
    stderr.drain(..stderr.len().saturating_sub(LAST_WORDS));
    Ok(Ran {
        status,
        stdout: read_head(&out).map_err(lost("reading the output"))?,
        stderr,
        wall: ended.wall,
        left_behind: ended.stopped == Some(Stopped::LeftBehind),
    })
}

/// Where a run's standard output and error go.
fn streams(world: &World) -> [PathBuf; 2] {
    ["stdout", "stderr"].map(|name| world.folder().join(name))
}

/// How a program is launched in a world.
fn configure(
    setting: &Setting,
    command: &Command,
    layout: u32,
    world: &World,
    how: How,
) -> Result<LaunchConfig, LaunchError> {
    let lost = |what: &'static str| move |e| LaunchError::Launch(what, e);
    let [out, err] = streams(world);
    let mut config = LaunchConfig::new(&command.program, &command.args);
    config.pm_globs = setting.pm_globs.clone();
    config.loads = true;
    config.deterministic = true;
    config.layout = layout;
    config.boundaries = true;
    config.names = how.names;
    config.opens = setting.opens;
    config.schedule = how.turns.then(Turns::schedule);
    world.equip(&mut config);
    config.limits = match how.part {
        Part::Program => setting.program_limits,
        _ => setting.limits,
    };
    config.output_max = Some(OUTPUT_MAX);
    config.stop = setting.end.wish();
    config.expired = Some(setting.end.expired.clone());
    let stdin = command.stdin.as_deref().unwrap_or(Path::new("/dev/null"));
    config.stdin = Some(
        world
            .open(stdin)
            .map_err(lost("opening the standard input"))?,
    );
    config.stdout = Some(File::create(&out).map_err(lost("making a file for the output"))?);
    config.stderr = Some(File::create(&err).map_err(lost("making a file for the output"))?);
    Ok(config)
}

fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, OUTPUT_MAX)
}

/// The first bytes of a file.
pub fn read_at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Collects what a recovery reads before it has written it.
struct Watcher<'i> {
    image: &'i Image,
    varying: Option<&'i FxHashSet<LineKey>>,
    spaces: AddressSpaces,
    /// Bytes that it has read or written.
    known: FxHashMap<LineKey, u64>,
    path: Vec<(Read, LineBytes)>,
    dirty: FxHashSet<LineKey>,
    resized: FxHashSet<FileId>,
    /// Tracked files outside this world that the recovery has made.
    foreign: Vec<PathBuf>,
    broken: Vec<String>,
    /// Something was changed, or may have been: a file, or a name.
    changes: bool,
    /// Something of the run's files was read, whether it differs between crash states or not.
    reads_files: bool,
    names_files: bool,
    /// Threads that accessed persistent memory, by run and process.
    threads: FxHashMap<(u32, u32), FxHashSet<u32>>,
    has_threads: bool,
    /// Which run of several this is.
    nth: u32,
    events: u64,
    helper_killed: Option<i32>,
    used: BTreeSet<PathBuf>,
    detail: Option<Detail>,
}

impl<'i> Watcher<'i> {
    fn new(image: &'i Image, varying: Option<&'i FxHashSet<LineKey>>, detail: bool) -> Self {
        Watcher {
            image,
            varying,
            spaces: AddressSpaces::new(),
            known: FxHashMap::default(),
            path: Vec::new(),
            dirty: FxHashSet::default(),
            resized: FxHashSet::default(),
            foreign: Vec::new(),
            broken: Vec::new(),
            changes: false,
            reads_files: false,
            names_files: false,
            threads: FxHashMap::default(),
            has_threads: false,
            nth: 0,
            events: 0,
            helper_killed: None,
            used: BTreeSet::new(),
            detail: detail.then(|| Detail {
                definitions: Definitions::default(),
                reads: Vec::new(),
                last: None,
                died: None,
                found: None,
            }),
        }
    }

    /// Another program follows on the same files. Its numbers begin anew.
    fn begin_another(&mut self) {
        self.nth += 1;
        self.spaces = AddressSpaces::new();
    }

    /// Tells the world what has changed in it.
    fn tell(&self, ran: &Ran, world: &mut World) {
        world.dirtied(self.dirty.iter().copied());
        for file in &self.resized {
            world.resized(*file);
        }
        if ran.is_distrusted() {
            world.distrust();
        }
        world.after(&self.foreign);
    }

    /// Tells the world what has changed in it, and keeps the rest.
    fn into_execution(self, ran: Ran, world: &mut World) -> Execution {
        self.tell(&ran, world);
        let longest = ran.ended_within();
        Execution {
            outcome: Outcome {
                status: ran.status,
                stdout: ran.stdout,
                stderr: ran.stderr,
                checker: None,
                again: None,
                broken: self.broken,
            },
            path: self.path,
            events: self.events,
            wall: ran.wall,
            longest,
            threads: self.threads.values().map(|t| t.len()).max().unwrap_or(0),
            has_threads: self.has_threads,
            helper_killed: self.helper_killed,
            first_was_cut: false,
            changes_nothing: false,
            reads_files: self.reads_files,
            names_files: self.names_files,
            used: self.used,
            detail: self.detail,
        }
    }

    fn site(&self, event: &Event<'_>) -> Site {
        let process = self.spaces.process_of(event.thread).unwrap_or_default();
        Site {
            thread: event.thread,
            process,
            epoch: self
                .detail
                .as_ref()
                .map_or(Epoch::default(), |detail| detail.definitions.epoch(process)),
            pc: event.pc,
            context: event.context,
            event: self.events,
        }
    }

    fn lines(range: ByteRange) -> impl Iterator<Item = (LineKey, u64)> {
        range.split(LINE_BYTES).map(|part| {
            let line = LineKey::of(part.start().0);
            (line, mask_within(part, line.start()))
        })
    }

    fn read(&mut self, event: &Event<'_>, range: ByteRange) {
        for (line, mask) in Self::lines(range) {
            if self.image.files.get(&line.file()).is_none() {
                continue;
            }
            self.reads_files = true;
            let known = self.known.entry(line).or_default();
            let new = mask & !*known;
            *known |= mask;
            if new == 0 || self.varying.is_some_and(|varying| !varying.contains(&line)) {
                continue;
            }
            let read = Read {
                line,
                mask: new,
                pc: event.pc.0,
            };
            let seen = masked(&self.image.line(line), new);
            self.path.push((read, seen));
            let site = self.site(event);
            if let Some(detail) = &mut self.detail {
                detail.reads.push(site);
            }
        }
    }

    fn write(&mut self, range: ByteRange) {
        self.changes = true;
        for (line, mask) in Self::lines(range) {
            *self.known.entry(line).or_default() |= mask;
            // Of what the run never had, nothing is laid down.
            if self.image.files.get(&line.file()).is_some() {
                self.dirty.insert(line);
            }
        }
    }

    /// It executes or opens this file.
    fn uses(&mut self, path: &[u8]) {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        if path.is_absolute() && !self.used.contains(path) {
            self.used.insert(path.to_path_buf());
        }
    }

    fn keys(
        &mut self,
        event: &Event<'_>,
        addr: TargetAddr,
        len: u64,
    ) -> Result<Vec<ByteRange>, MapFault> {
        let mut parts = Vec::new();
        keys::translate(&mut self.spaces, event.thread, addr, len, |keys, _| {
            parts.push(keys);
        })?;
        Ok(parts)
    }
}

impl EventSink for Watcher<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        if let Some(access) = event.kind.access() {
            let process = self.spaces.process_of(event.thread).unwrap_or_default();
            let threads = self.threads.entry((self.nth, process.0)).or_default();
            threads.insert(event.thread.0);
            let (reads, writes) = match event.kind {
                EventKind::Load(_) => (true, false),
                EventKind::Rmw(_) => (true, true),
                _ => (false, true),
            };
            let keys = self.keys(event, access.addr, u64::from(access.size));
            for keys in keys.map_err(MapFault::into_error)? {
                if reads {
                    self.read(event, keys);
                }
                if writes {
                    self.write(keys);
                }
            }
        }
        match &event.kind {
            EventKind::FileRead { file, offset, size } => {
                let start = keys::key(*file, *offset);
                self.read(event, ByteRange::new(start, u64::from(*size)));
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                let start = keys::key(*file, *offset);
                self.write(ByteRange::new(start, u64::from(*size)));
            }
            EventKind::ProcessExit {
                process,
                status: trace::ExitStatus::Signal(signal),
            } if process.0 > 1 => {
                self.helper_killed.get_or_insert(*signal);
            }
            EventKind::ProcessStart { exe, .. } => self.uses(exe),
            EventKind::Opened { path } => self.uses(path),
            // Those of other processes count, too: they run side by side.
            EventKind::ThreadStart { .. } if event.thread.0 > 1 => self.has_threads = true,
            EventKind::Module { path, .. } => self.uses(path),
            EventKind::Truncate { file, .. } => {
                self.changes = true;
                self.resized.insert(*file);
            }
            EventKind::Lookup { .. } => self.names_files = true,
            // To sync changes nothing either, but is done by those that do.
            EventKind::Name { .. } => self.changes = true,
            EventKind::File {
                file,
                path,
                created,
                ..
            } => {
                use std::os::unix::ffi::OsStrExt;
                // What is not known is followed because it is changed, or has no known content.
                self.changes |= *created || self.image.files.get(file).is_none();
                if *created {
                    self.foreign
                        .push(PathBuf::from(std::ffi::OsStr::from_bytes(path)));
                }
            }
            EventKind::Annotation { code, args, text }
                if *code == brownout_trace::annotation::MUST_HOLD && args[1] == 0 =>
            {
                self.broken.push(String::from_utf8_lossy(text).into_owned());
            }
            _ => {}
        }
        if let Some(detail) = &mut self.detail {
            detail.definitions.observe(event);
        }
        let site = self.site(event);
        if let Some(detail) = &mut self.detail {
            match &event.kind {
                EventKind::Signal { .. } => detail.died = Some(site),
                EventKind::Lookup { result, .. } if *result >= 0 => {
                    detail.found.get_or_insert(site);
                }
                kind if kind.access().is_some() => detail.last = Some(site),
                _ => {}
            }
        }
        self.events += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(command: &Command) -> Vec<String> {
        let words = std::iter::once(&command.program).chain(&command.args);
        words.map(|w| w.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_shell_is_started_only_if_one_is_needed() {
        let plain = [
            ("check pool", vec!["check", "pool"]),
            ("  ./a.out\t-v  --x:1 ", vec!["./a.out", "-v", "--x:1"]),
            ("prog", vec!["prog"]),
            (
                "/usr/bin/prog a,b @c +d",
                vec!["/usr/bin/prog", "a,b", "@c", "+d"],
            ),
        ];
        for (line, expected) in plain {
            assert_eq!(words(&Command::shell(line, None)), expected);
        }
        let special = [
            "a | b",
            "a && b",
            "a; b",
            "a < in",
            "a > out",
            "(a)",
            "a $HOME",
            "a `b`",
            "a \\ b",
            "a \"b c\"",
            "a 'b'",
            "a *",
            "a ?",
            "a [b]",
            "# a",
            "~/a",
            "X=1 a",
            "a {b,c}",
            "! a",
            "a\nb",
            "",
        ];
        for line in special {
            assert_eq!(words(&Command::shell(line, None)), ["sh", "-c", line]);
        }
        let stdin = Some(PathBuf::from("in"));
        for line in ["a", "a | b"] {
            assert_eq!(Command::shell(line, stdin.clone()).stdin, stdin);
        }
    }

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        let command = Command {
            program: "./check".into(),
            args: vec!["--pm=a.pool".into(), "it's".into(), "".into(), "a b".into()],
            stdin: None,
        };
        assert_eq!(command.display(), r"./check --pm=a.pool 'it'\''s' '' 'a b'");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// A shell takes a quoted word as it is.
        #[test]
        fn a_shell_unquotes_what_is_quoted(given in prop::collection::vec("[ -~\n\u{e4}\u{2019}]{0,12}", 1..12)) {
            let quoted: Vec<String> = given.iter().map(|word| quote(word)).collect();
            let script = format!("printf '%s\\0' {}", quoted.join(" "));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
            let got: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
            // Behind the last zero is nothing.
            let got = &got[..got.len() - 1];
            prop_assert_eq!(got, given.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        }

        /// The two ways to run a command line without special characters do the same.
        #[test]
        fn a_line_without_special_characters_means_the_same_to_a_shell(
            given in prop::collection::vec("[a-zA-Z0-9_.,:@+/-]{1,8}", 1..6),
            gap in "[ \t]{1,3}",
        ) {
            // Those are the shell's own.
            prop_assume!(![".", ":"].contains(&given[0].as_str()) && given[0].len() > 1);
            let line = given.join(&gap);
            let script = format!("printf '%s\\0' {line}");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
            let split: Vec<String> = words(&Command::shell(&line, None));
            let ended: String = split.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(ended.as_bytes(), &output.stdout);
            prop_assert_eq!(split, given);
        }
    }
}
