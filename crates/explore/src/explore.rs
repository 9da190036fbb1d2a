//! An exploration from beginning to end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brownout_findings::numbers::either;
use brownout_findings::touched::Touch;
use brownout_findings::{Coverage, Finding, Limit, Severity};
use brownout_host::{KNOWN_FILES_MAX, LaunchError, Limits};
use brownout_trace::event::FileId;
use rustc_hash::FxHashSet;

use crate::before::Before;
use crate::confirm;
use crate::crashes::{Location, Maker, Subset};
use crate::execution::{self, Acknowledged, End, Setting, Turns};
use crate::finding::{self, CrashSpec, Found, Resolvers};
use crate::interleaving::interleaved;
use crate::journal::{self, Journal, Kept};
use crate::line::LineKey;
use crate::minimise;
use crate::native::{self, Stage};
use crate::nested::{self, Nesting};
use crate::operations::{self as ops, Operations};
use crate::options::{Distinct, Error, Exploration, Files, Options, io_error, io_error_at};
use crate::oracle::Symptom;
use crate::outcome::{Outcome, Status};
use crate::pool::Pool;
use crate::recording::{RecordOptions, Recording};
use crate::run::{Recorded, Run, record_run, until};
use crate::search::{Failure, Halt, LeftOver, Progress, Search, Settings};
use crate::statistics::{Numbers, nothing_explored, statistics, write_outcomes};
use crate::unit::is_ordinary;
use crate::view::{Base, Image, Narrowed, Timeline, View};
use crate::world::World;

/// A program is made ready ahead of time in one more world for each so many failure points.
const POINTS_PER_WORLD: usize = 8;
/// Of one guessed cause.
const FAILURES_PER_CAUSE: usize = 3;
/// Crashes in a row, if nobody asks for a depth.
const DEPTH: u32 = 2;
/// If nobody asks for a depth, all recoveries are cut short in turn if there are so few. Else some
/// are: so many more are run for that, or this part of those until then, if that is more.
const NESTED_AUTO: u64 = 64;
const NESTED_PART: u64 = 4;
/// Name of the journal in the folder.
const JOURNAL: &str = "journal";
/// When time is up, what was found is looked into for so long.
const AFTERWORK: Duration = Duration::from_secs(10);
/// Behind that, where the time is bounded, native runs on crash images are begun for so long. Each
/// has its own time, which does not depend on what is left: one that is cut off would look like one
/// that never ends.
const CONFIRMATION: Duration = Duration::from_secs(30);
/// Bounds of the first recovery, on which the others' depend.
const FIRST_LIMITS: Limits = Limits {
    events: Some(200_000_000),
    idle: Some(Duration::from_secs(10)),
    wall: Some(Duration::from_secs(60)),
    steps: None,
    memory: None,
};
/// Recoveries in which nobody uses the processor for so long, beyond what the first has taken, wait
/// for ever.
const IDLE: Duration = Duration::from_secs(3);
/// A recovery that makes so many times the steps of one without a crash does not end; nor one that
/// takes so many times as long.
const STEPS_FACTOR: u64 = 20;
const STEPS_MIN: u64 = 1_000_000;
const TIME_FACTOR: u32 = 50;
const TIME_MIN: Duration = Duration::from_secs(10);

/// Records and explores.
pub fn explore(options: &Options, progress: &mut dyn Progress) -> Result<Exploration, Error> {
    explore_run(options, record_run(options, None)?, progress)
}

/// Explores a recorded run.
pub fn explore_run(
    options: &Options,
    mut run: Run,
    progress: &mut dyn Progress,
) -> Result<Exploration, Error> {
    let recorded = run.take()?;
    explore_recorded(options, progress, &run, recorded)
}

/// The stages of an exploration, one after the other.
fn explore_recorded(
    options: &Options,
    progress: &mut dyn Progress,
    run: &Run,
    recorded: Recorded,
) -> Result<Exploration, Error> {
    let Recorded {
        recording,
        status,
        hints,
        mut notes,
        is_whole,
        wall,
        events,
        overlaps,
        mut coverage,
        stdout,
    } = recorded;
    if recording.is_interleaved {
        coverage.limit(Limit::Interleaving, interleaved("the program stores"));
    }
    let mut exploration = Exploration {
        findings: Vec::new(),
        causes: BTreeSet::new(),
        blamed: Vec::new(),
        statistics: Numbers::Nothing {},
        coverage,
        unsettled: BTreeSet::new(),
        distinct: Vec::new(),
        left: Vec::new(),
        notes: Vec::new(),
        hints,
        ended: status,
        bug: None,
    };
    if !is_whole {
        exploration.statistics = nothing_explored(recording.points.len(), run.begun);
        exploration.notes = notes;
        return Ok(exploration);
    }
    if !recording.touched {
        limit_untouched(&mut exploration.coverage, options);
        exploration.notes = notes;
        return Ok(exploration);
    }
    run.restore()
        .map_err(io_error("cannot put a file back as it was"))?;
    let initial = initial_image(&recording)?;
    let world = new_world(run, &recording)?;
    let mut operations = Operations::new(&recording, stdout);
    let deadline = options.time.map(|time| run.begun + time);
    let mut setting = first_setting(options, run, &recording, deadline);
    setting.program_limits = program_limits(wall, events);
    let (control, worlds) = begin_worlds(options, run, &setting, world, &recording, &operations)?;
    if let Some((kind, what)) = is_over_already(&setting, deadline) {
        let all = recording.points.len();
        exploration.coverage.limit(
            kind,
            format!("{what} before all was explored: 0 of {all} failure points done (0 %)"),
        );
        exploration.statistics = nothing_explored(all, run.begun);
        exploration.notes = notes;
        return Ok(exploration);
    }
    setting.limits = limits_by(&control, options, setting.limits);
    limit_by_run(&mut exploration.coverage, &recording, &control);
    if options.store_buffers {
        limit_by_delays(&mut exploration.coverage, &recording, overlaps);
    }
    if let Some(denied) = &run.ground.denied {
        notes.push(format!(
            "programs cannot be given a private view of this machine ({denied}): recoveries run one at a time, beside your \
             files, and what programs do to files that are not persistent memory stays"
        ));
    }
    let setting = Arc::new(setting);
    let pool = Pool::new(worlds, &setting);
    let settings = settings(options, &setting, deadline, &operations, &control);
    let mut search = Search::new(recording, settings, Box::new(pool), progress);
    forget_images(&options.folder);
    if options.journal {
        open_journal(&mut search, options, &run.origin.scratch, &control.used)?;
    }
    if options.operations || options.acknowledged_survives && !operations.are_lines() {
        refer(
            &mut search,
            &mut operations,
            options,
            &initial,
            &run.origin.scratch,
        )?;
    }
    let depth = search_all(&mut search, options, &control)?;
    let afterwork = allow_afterwork(&mut search);
    let halted = afterwork.halted;
    let mut found = look_into(&mut search, options, halted.is_some(), &mut exploration)?;
    if halted.is_none() {
        let witnesses = confirm::witnesses(&mut search, &options.suspects, &found)?;
        found.extend(witnesses.found);
        exploration.unsettled = witnesses.unsettled;
        limit_by_suspects(&mut search, &exploration.unsettled);
    }
    let mut is_done = halted.or(search.ledger.stopped).is_none();
    if !found.is_empty() {
        let mut world = new_world(run, &search.layers[0].recording)?;
        is_done &= show_all(
            &search,
            &mut exploration,
            found,
            options,
            run,
            &mut world,
            &control,
            &afterwork,
        )?;
    }
    count_crashes(&search, options);
    exploration.distinct = distinct(&search);
    if options.distinct_max > 0 {
        exploration.left = left(&search, &exploration.findings);
    }
    exploration.bug = search.ledger.bug.clone();
    limit_by_search(&mut search, halted);
    let coverage = std::mem::take(&mut search.ledger.coverage);
    exploration.coverage.extend(coverage);
    let is_complete = exploration.coverage.is_exhaustive();
    exploration.statistics = statistics(&search, depth, is_complete, control.wall, run.begun);
    if let Some(path) = &options.outcomes {
        write_outcomes(&search, path).map_err(io_error_at("cannot write the outcomes", path))?;
    }
    exploration.notes = conclude(&mut search, options, is_done, notes);
    Ok(exploration)
}

/// Tells who counts where in the recorded run the power failed, and in how many states that were
/// settled.
fn count_crashes(search: &Search<'_>, options: &Options) {
    let Some(touches) = &options.touches else {
        return;
    };
    let recording = &search.layers[0].recording;
    let mut resolver = recording.definitions.resolve();
    for (point, times) in &search.ledger.crashed {
        let site = recording.points.get(*point as usize);
        // The end of the run has no place in the code.
        if let Some(site) = site.and_then(|point| point.site) {
            touches.add(&resolver.stack(site), Touch::Crashes, *times);
        }
    }
}

/// The run has stored nothing to persistent memory.
fn limit_untouched(coverage: &mut Coverage, options: &Options) {
    coverage.limit(Limit::Untouched, "no persistent memory was touched");
    if !options.pm_globs.is_empty() {
        coverage.limit(
            Limit::Unmatched,
            "no file that matches --pm was mapped and stored to",
        );
    }
}

fn new_world(run: &Run, recording: &Recording) -> Result<World, Error> {
    World::new(&run.origin, &recording.files)
        .map_err(io_error("cannot make a folder for crash images"))
}

/// What all recoveries have in common, with the bounds of the first.
fn first_setting(
    options: &Options,
    run: &Run,
    recording: &Recording,
    deadline: Option<Instant>,
) -> Setting {
    let patience = options.patience.or(FIRST_LIMITS.wall);
    Setting {
        pm_globs: run.origin.pm_globs.clone(),
        recover: options.recover.clone(),
        checker: options.checker.clone(),
        limits: Limits {
            wall: [patience, until(deadline).wall].into_iter().flatten().min(),
            ..FIRST_LIMITS
        },
        program_limits: Limits::default(),
        end: End::new(options.stop.clone()),
        names: run.origin.enclosures.is_some().then_some(options.promise),
        expected: OnceLock::new(),
        varying: (options.depth == Some(1)).then(|| varying(recording)),
        turns: Turns::new(options.schedule.is_some()),
        touches: options.touches.clone(),
        opens: options.journal,
        notices_changes: options.depth != Some(1),
    }
}

/// What recovery does if nothing is lost at the end of the run. It says how long others may take,
/// and how they should end.
struct Control {
    image: Image,
    /// What a checker is told of it.
    told: Acknowledged,
    outcome: Outcome,
    events: u64,
    wall: Duration,
    /// What that one or what judges it has taken, if it has ended.
    longest: Duration,
    /// It, or what judges it, looks at the run's files: at what they hold, or for one by its name.
    looks: bool,
    /// What it executes and opens.
    used: BTreeSet<PathBuf>,
}

impl Control {
    /// The exit code that counts as good.
    fn good_exit(&self) -> i32 {
        match self.outcome.status {
            status if status.killed_by().is_some() => 0,
            Status::Exit(code) => code,
            _ => 0,
        }
    }

    fn ends_well(&self) -> bool {
        self.outcome.status == Status::Exit(0)
    }

    fn never_ends(&self) -> bool {
        matches!(self.outcome.status, Status::Hang(_))
    }
}

/// Runs the first recovery, and makes the worlds of all others. While it runs, the program is made
/// ready in the other worlds, as far as they will have something to do.
fn begin_worlds(
    options: &Options,
    run: &Run,
    setting: &Setting,
    mut first: World,
    recording: &Recording,
    operations: &Operations,
) -> Result<(Control, Vec<World>), Error> {
    let jobs = match run.ground.denied {
        // Side by side they would meet each other's lock files and ports.
        Some(_) => 1,
        None => options.jobs.max(1),
    };
    let image = newest_at(recording, recording.points.len() as u32 - 1);
    let busy = recording.points.len() / POINTS_PER_WORLD;
    std::thread::scope(|scope| {
        let others = (1..jobs).map(|number| {
            let image = &image;
            scope.spawn(move || {
                let mut world = new_world(run, recording)?;
                if number <= busy {
                    execution::make_ready(setting, &mut world, image)?;
                }
                Ok::<World, Error>(world)
            })
        });
        let others: Vec<_> = others.collect();
        let control = control(setting, &mut first, recording, operations);
        let mut worlds = vec![first];
        for other in others {
            let made = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            worlds.push(made?);
        }
        Ok((control?, worlds))
    })
}

/// Runs the first recovery.
fn control(
    setting: &Setting,
    world: &mut World,
    recording: &Recording,
    operations: &Operations,
) -> Result<Control, LaunchError> {
    let last = recording.points.len() as u32 - 1;
    let image = newest_at(recording, last);
    let told = operations.acknowledged(recording, last);
    let execution = execution::execute(
        setting,
        &setting.recover,
        image.crashes(),
        world,
        &image,
        &told,
        false,
    )?;
    Ok(Control {
        image,
        told,
        outcome: execution.outcome,
        events: execution.events,
        wall: execution.wall,
        longest: execution.longest,
        looks: execution.reads_files || execution.names_files,
        used: execution.used,
    })
}

/// Whether the exploration ends before it has begun, and why.
fn is_over_already(setting: &Setting, deadline: Option<Instant>) -> Option<(Limit, &'static str)> {
    if setting.end.is_wanted() {
        return Some((Limit::Interrupted, "stopped"));
    }
    let is_up = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    is_up.then_some((Limit::Time, "the time was up"))
}

/// The bounds of all further recoveries, by what the first has taken.
fn limits_by(control: &Control, options: &Options, first: Limits) -> Limits {
    if control.never_ends() {
        // More than once is not waited for.
        return first;
    }
    let steps = control.events.saturating_mul(STEPS_FACTOR);
    let time = (control.longest * TIME_FACTOR).max(TIME_MIN);
    Limits {
        events: Some(steps.max(STEPS_MIN)),
        idle: Some(IDLE + 2 * control.longest),
        wall: Some(options.patience.unwrap_or(time)),
        ..first
    }
}

/// The bounds of the program's further runs, by what the recorded one has taken. Those have a part
/// of its input, so none has reason to wait for longer than that one has taken as a whole. What a
/// recovery takes says nothing about them.
fn program_limits(wall: Duration, events: u64) -> Limits {
    Limits {
        events: Some(events.saturating_mul(STEPS_FACTOR).max(STEPS_MIN)),
        idle: Some(IDLE + 2 * wall),
        wall: Some((wall * TIME_FACTOR).max(TIME_MIN)),
        ..FIRST_LIMITS
    }
}

/// What is known not to be explored, or not to be judged, before the search begins.
fn limit_by_run(coverage: &mut Coverage, recording: &Recording, control: &Control) {
    for what in recording.unfollowed.iter().take(5) {
        coverage.limit(
            Limit::Unsupported,
            format!("not part of the crash states: {what}"),
        );
    }
    if let Some(text) = recording.attributes_left("the run") {
        coverage.spare(Limit::Unsupported, text);
    }
    if recording.files.len() > KNOWN_FILES_MAX {
        coverage.limit(
            Limit::Unsupported,
            format!(
                "the run changes {} files, and of {KNOWN_FILES_MAX} at most it is seen what recovery reads",
                recording.files.len()
            ),
        );
    }
    if recording.names_sampled {
        coverage.limit(
            Limit::Sampled,
            "where many changes of names and sizes may be lost, not all combinations were tried; --exhaustive tries all",
        );
    }
    let good_exit = control.good_exit();
    if good_exit != 0 {
        coverage.limit(
            Limit::Unjudged,
            format!(
                "recovery ends with exit code {good_exit} even if nothing is lost at the end of the run ({}): that code is not \
                 judged, and there is no verdict",
                control.outcome.last_words().unwrap_or_default()
            ),
        );
    }
    if control.ends_well() && !control.looks && is_seen_to_look(recording) {
        coverage.limit(
            Limit::Unjudged,
            "recovery ends well and has not looked at any file of the run, even if nothing is lost at the end of it: there is no verdict \
             (does it name the right file?)",
        );
    }
}

/// Whether it is seen if recovery looks at anything that this run has changed. Who lists a folder,
/// or asks for the size of an ordinary file, is not seen.
fn is_seen_to_look(recording: &Recording) -> bool {
    let files = &recording.files;
    let pm = files.iter().filter(|(content, _)| !is_ordinary(**content));
    let pm: BTreeSet<&Path> = pm.map(|(_, file)| file.path.as_path()).collect();
    let mut names = recording.names.iter();
    recording.storing_threads > 0
        && names.all(|step| {
            let file = files.get(&step.content);
            file.is_some_and(|file| pm.contains(file.path.as_path()))
        })
}

/// What delays in store buffers may add. `overlaps`: where they may, if threads took turns (see
/// `brownout_schedule`'s `buffers.rs`).
fn limit_by_delays(coverage: &mut Coverage, recording: &Recording, overlaps: Option<u64>) {
    if recording.storing_threads < 2 {
        return;
    }
    let why = match overlaps {
        None => "delays in the store buffers of several threads are not explored, so there is no verdict with --tso; under a \
                 --schedule it would be known whether they can matter"
            .to_owned(),
        // The kernel stores on its own behalf, where no thread stands before an instruction.
        Some(_) if recording.synced_beside => {
            "system calls store to persistent memory, or sync it, beside the stores of other threads: what delays in their \
             store buffers add is not explored, so there is no verdict with --tso"
                .to_owned()
        }
        Some(0) => return,
        Some(overlaps) => format!(
            "a thread stored, wrote back or fenced {} while the store buffer of another one may still have held something: what such \
             delays add is not explored, so there is no verdict with --tso",
            match overlaps {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            }
        ),
    };
    coverage.limit(Limit::StoreBuffers, why);
}

/// What the search is told.
fn settings(
    options: &Options,
    setting: &Arc<Setting>,
    deadline: Option<Instant>,
    operations: &Operations,
    control: &Control,
) -> Settings {
    let mut settings = Settings::new(setting.clone());
    settings.sampling.exhaustive = options.exhaustive;
    settings.deadline = deadline;
    settings.self_test = options.self_test;
    settings.keep_unexplained = !options.suspects.is_empty();
    settings.keep_outcomes = options.outcomes.is_some();
    settings.keep_crashes = options.touches.is_some();
    settings.distinct_max = options.distinct_max;
    settings.executions_max = options.recoveries_max;
    settings.keep_survivors = options.depth.unwrap_or(DEPTH) > 1;
    settings.oracle.good_exit = control.good_exit();
    settings.oracle.ordered = options.ordered;
    let known = operations.clone();
    settings.operations = Box::new(move |recording, point| known.span(recording, point));
    let known = operations.clone();
    settings.acknowledgements =
        Box::new(move |recording, point| known.acknowledged(recording, point));
    settings
}

/// Finds out what recovery prints after whole operations, to judge others by that.
fn refer(
    search: &mut Search<'_>,
    operations: &mut Operations,
    options: &Options,
    initial: &Image,
    scratch: &Path,
) -> Result<(), Error> {
    let runs_max = options.references_max;
    let mut references =
        operations.references(search, &options.program, runs_max, initial, scratch)?;
    if let (Some(references), Some(input)) = (&mut references, &options.recover.stdin) {
        let input = fs::read(input).unwrap_or_default();
        references.questions = input.iter().filter(|byte| **byte == b'\n').count();
    }
    if references.is_none() && options.operations && search.ledger.stopped.is_none() {
        if !operations.reads_lines() {
            return Err(Error::Usage(
                "--oracle ops has no operations to go by: the program neither reads lines from its standard input \
                 (see --stdin) nor writes to its standard output"
                    .into(),
            ));
        }
        search.ledger.coverage.limit(
            Limit::Unjudged,
            "--oracle ops has no operations to go by, so there is no verdict: the program writes nothing to its standard \
             output either",
        );
    }
    if let Some(references) = &references
        && options.operations
    {
        let outputs = references.outputs.iter().cloned().collect();
        // By lines, it is set already.
        let _ = search.settings.runs.expected.set(outputs);
    }
    let known = operations.clone();
    search.settings.operations = Box::new(move |recording, point| known.span(recording, point));
    search.settings.oracle.references = references;
    // Recoveries of other crashes, and natively, lie elsewhere.
    if search.settings.oracle.references.is_some()
        && ops::prints_addresses(search)? == Some(true)
        && let Some(references) = &mut search.settings.oracle.references
    {
        references.ignore_addresses();
    }
    search.settings.oracle.only_durability = !operations.are_lines();
    Ok(())
}

/// Searches the recorded run and, where that is wanted, recoveries in turn; then the search tests
/// itself. Returns the depth that was reached.
fn search_all(search: &mut Search<'_>, options: &Options, control: &Control) -> Result<u32, Error> {
    if control.never_ends() {
        search.ledger.coverage.limit(
            Limit::Unjudged,
            "recovery does not end even if nothing is lost at the end of the run: no other crash state was tried",
        );
        let point = search.layers[0].recording.points.len() as u32 - 1;
        search.ledger.failures.push(Failure {
            layer: 0,
            point,
            narrowed: Narrowed::new(),
            symptom: Symptom::Hang,
        });
    } else {
        search.explore(0)?;
    }
    let depth = options.depth.unwrap_or(DEPTH);
    let mut depth_reached = 1;
    let statistics = &search.ledger.statistics;
    let single = statistics.executions + statistics.resumed;
    let some = NESTED_AUTO.max(single / NESTED_PART);
    if depth > 1 && search.ledger.stopped.is_none() && !control.never_ends() {
        let record = RecordOptions {
            model: options.model,
            judge_acknowledgements: false,
            names: search.settings.runs.names,
            names_max: options.names_max(),
        };
        let is_asked = options.depth.is_some();
        let nesting = Nesting {
            depth,
            is_asked,
            recoveries_max: (!is_asked && single > NESTED_AUTO).then_some(some),
            record,
        };
        depth_reached = nested::nest(search, &nesting)?;
    }
    let differing = search.test_itself()?;
    if differing > 0 {
        let tested = search.ledger.statistics.self_tested;
        search.ledger.coverage.limit(
            Limit::Nondeterministic,
            format!(
                "self-test: {differing} of {tested} outcomes that were looked up came out differently when run: recovery is not \
                 deterministic"
            ),
        );
    }
    Ok(depth_reached)
}

/// What comes after the search.
struct Afterwork {
    /// Why the search has ended early, if it has.
    halted: Option<Halt>,
    /// Somebody has asked for the end, and waits.
    is_asked: bool,
}

/// What was found is worth being looked into, even if time is up; but not for long.
fn allow_afterwork(search: &mut Search<'_>) -> Afterwork {
    let halted = search.ledger.stopped.take();
    // Somebody may also have asked after the time was up, or after all was done.
    let is_asked = search.settings.runs.end.begin_anew();
    let deadline = &mut search.settings.deadline;
    *deadline = match halted {
        _ if is_asked => Some(Instant::now() + AFTERWORK / 2),
        Some(Halt::Time | Halt::Bug) => Some(Instant::now() + AFTERWORK),
        None | Some(Halt::Enough | Halt::Asked) => deadline.map(|deadline| deadline + AFTERWORK),
    };
    Afterwork { halted, is_asked }
}

/// Suspects that were not settled because the search was stopped meanwhile.
fn limit_by_suspects(search: &mut Search<'_>, unsettled: &BTreeSet<String>) {
    if let Some(halt) = search.ledger.stopped
        && !unsettled.is_empty()
    {
        let (kind, what) = cut_by(halt);
        let suspects = count_of(unsettled.len(), "suspected line", "suspected lines");
        let text = format!("{suspects} of the program not settled: {what}");
        search.ledger.coverage.limit(kind, text);
    }
}

/// Writes the image of each finding and tries it natively. False if that was cut short.
#[expect(clippy::too_many_arguments, reason = "all stages come together here")]
fn show_all(
    search: &Search<'_>,
    exploration: &mut Exploration,
    found: Vec<Found>,
    options: &Options,
    run: &Run,
    world: &mut World,
    control: &Control,
    afterwork: &Afterwork,
) -> Result<bool, Error> {
    let patience = native::patience(control.longest, options.patience);
    let is_bounded = search.settings.deadline.is_some();
    let until = is_bounded.then(|| Instant::now() + confirmation(afterwork.is_asked));
    // That was for recoveries under way.
    search.settings.runs.end.extend();
    let mut cut: Vec<Halt> = Vec::new();
    for (number, found) in (1..).zip(found) {
        let folder = options.folder.join(format!("finding-{number}"));
        let good = control.ends_well();
        let mut stage = Stage {
            setting: &search.settings.runs,
            world,
            originals: run.originals.as_ref(),
            control: good.then(|| (control.image.clone(), control.told.clone())),
            patience,
            until,
        };
        let setup = run.setup_needed(options);
        let (shown, halt) = show(search, &mut stage, found, &folder, setup)?;
        cut.extend(halt);
        let at = exploration.findings.len();
        let blamed = shown.lost_sites.into_iter().map(|stack| (stack, at));
        exploration.blamed.extend(blamed);
        exploration.findings.push((shown.finding, shown.spec));
    }
    limit_by_doubts(&mut exploration.coverage, &cut);
    Ok(cut.is_empty())
}

/// What was not confirmed natively, and would be an error if it was.
fn limit_by_doubts(coverage: &mut Coverage, cut: &[Halt]) {
    for halt in [Halt::Asked, Halt::Time] {
        let count = cut.iter().filter(|other| **other == halt).count();
        if count > 0 {
            let (kind, what) = cut_by(halt);
            let findings = count_of(count, "finding was", "findings were");
            coverage.limit(kind, format!("{findings} not confirmed natively: {what}"));
        }
    }
}

/// The last words, and what becomes of the journal and of the folder.
fn conclude(
    search: &mut Search<'_>,
    options: &Options,
    is_done: bool,
    mut notes: Vec<String>,
) -> Vec<String> {
    notes.extend(search.ledger.notes.iter().cloned());
    match search.known.journal.take() {
        None => {}
        Some(journal) if is_done => journal.remove(),
        Some(_) => notes.push(format!(
            "the same command with --resume goes on where this one ended, if all that recovery runs and reads is still the same; its \
             journal is in {}",
            options.folder.display()
        )),
    }
    // It goes if it is empty: nothing was found, and nothing is to go on with.
    let _ = fs::remove_dir(&options.folder);
    notes
}

/// Takes what an interrupted exploration has left, if the user wants that, and writes down what
/// this one finds out.
fn open_journal(
    search: &mut Search<'_>,
    options: &Options,
    scratch: &Path,
    used: &BTreeSet<PathBuf>,
) -> Result<(), Error> {
    let recording = &search.layers[0].recording;
    let identity = identity(options, recording);
    let tracked = recording.files.values().map(|file| file.path.clone());
    let kept = Kept::new(tracked.collect(), scratch);
    let folder = &options.folder;
    fs::create_dir_all(folder).map_err(io_error_at("cannot make the folder", folder))?;
    let path = options.folder.join(JOURNAL);
    if !options.resume {
        // Of what recovery knows besides persistent memory, only the files that it opens are seen:
        // not that one is not there, nor variables, nor what comes from a server. So only the user
        // can say that it is the same.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(io_error("cannot begin the journal anew")(e));
            }
            _ => {}
        }
    }
    let opened = Journal::open(&path, &identity, kept);
    let (mut journal, known) = opened.map_err(io_error_at("cannot open the journal", &path))?;
    journal.uses(used);
    search.remember(&known);
    search.known.journal = Some(journal);
    if search.ledger.statistics.resumed > 0 {
        search.ledger.notes.insert(format!(
            "resumed: {} {} run before an interruption",
            search.ledger.statistics.resumed,
            either(
                search.ledger.statistics.resumed,
                "recovery was",
                "recoveries were"
            )
        ));
    }
    Ok(())
}

/// Removes the images of an earlier exploration: they would pass for this one's.
fn forget_images(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("finding-"));
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            // One that cannot be removed is written over, or stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Writes the image of a finding, and sees natively whether it is true. Nothing else runs
/// meanwhile. If it does not show natively, it is tried once more, natively and under the engine,
/// to say why; and it does not count as an error. Also gives what has cut that short, if anything
/// has.
fn show(
    search: &Search<'_>,
    stage: &mut Stage<'_>,
    mut found: Found,
    folder: &Path,
    setup: Option<&str>,
) -> Result<(Found, Option<Halt>), Error> {
    let names: BTreeMap<FileId, PathBuf> = search.layers[0]
        .recording
        .files
        .iter()
        .map(|(id, file)| (*id, file.path.clone()))
        .collect();
    let recover = &search.settings.runs.recover;
    let images = finding::write_image(&found.image, stage.world, &names, folder)
        .map_err(io_error("cannot write a crash image"))?;
    let mut reproduction = finding::reproduction(&names, &images, &found.image, recover, setup);
    let outcome = search.known.outcomes[found.outcome as usize].clone();
    found.spec.expect(&outcome);
    reproduction.status = outcome.status.to_string();
    reproduction.stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
    if let Some(halt) = stage.over() {
        let why = match halt {
            Halt::Asked => "somebody ended the exploration",
            _ => "no time was left",
        };
        doubt(&mut found.finding, format!("not run natively: {why}"));
        found.finding.reproduction = Some(reproduction);
        return Ok((found, Some(halt)));
    }
    let told = search.acknowledged_at(found.layer, found.point);
    let done = search.done(found.layer, found.point);
    let shows = |outcome: &Outcome| {
        let again = search.settings.oracle.judge(outcome, done);
        again.is_some_and(|again| again.is_like(&found.symptom))
    };
    let cannot_run = io_error("cannot run recovery natively");
    let mut native = stage
        .recover(&found.image, &images, &told, &outcome)
        .map_err(&cannot_run)?;
    if !shows(&native) {
        native = stage
            .recover(&found.image, &images, &told, &outcome)
            .map_err(&cannot_run)?;
    }
    reproduction.confirmed = shows(&native);
    let mut cut_short = None;
    if !reproduction.confirmed {
        let why;
        (why, cut_short) = not_confirmed(stage, &found, &told, &native, shows)?;
        doubt(&mut found.finding, why);
    } else if let Some((good, told)) = &stage.control
        && stage.originals.is_some()
    {
        // Beside the user's files, what another recovery has left (a file, a port that is still
        // blocked) may be the reason. Then recovery does not do well any more what it did well
        // before.
        let (good, told) = (good.clone(), told.clone());
        let folder = stage.world.folder().join("control");
        let images = finding::write_image(&good, stage.world, &names, &folder)
            .map_err(io_error("cannot write a crash image"))?;
        let control = stage
            .recover(&good, &images, &told, &outcome)
            .map_err(&cannot_run)?;
        if shows(&control) {
            reproduction.confirmed = false;
            doubt(
                &mut found.finding,
                "recovery now fails in the same way if nothing is lost, and did not before: something that is left of another run is the reason"
                    .into(),
            );
        }
    }
    found.finding.reproduction = Some(reproduction);
    Ok((found, cut_short))
}

/// How long native runs are begun, where the time is bounded.
fn confirmation(somebody_waits: bool) -> Duration {
    match somebody_waits {
        true => CONFIRMATION / 6,
        false => CONFIRMATION,
    }
}

/// Why a finding did not show natively: it is tried once more under the engine. Also gives what has
/// cut that short, if anything has.
fn not_confirmed(
    stage: &mut Stage<'_>,
    found: &Found,
    told: &Acknowledged,
    native: &Outcome,
    shows: impl Fn(&Outcome) -> bool,
) -> Result<(String, Option<Halt>), Error> {
    let alone = execution::execute(
        stage.setting,
        &stage.setting.recover,
        found.image.crashes(),
        stage.world,
        &found.image,
        told,
        false,
    )?;
    let (under_engine, cut_short) = match shows(&alone.outcome) {
        true => ("it fails under Brownout only", None),
        // Then this one was cut off.
        false if stage.setting.end.is_now() => (
            "it was ended before it was tried under Brownout again",
            Some(Halt::Asked),
        ),
        false => (
            "it does not fail under Brownout either when nothing else runs",
            None,
        ),
    };
    let why = format!(
        "natively, recovery ended with {} on this image, and {under_engine}",
        native.status
    );
    Ok((why, cut_short))
}

/// What sort of limitation it is that something has ended the work, and what is said of it.
fn cut_by(halt: Halt) -> (Limit, &'static str) {
    match halt {
        Halt::Time => (Limit::Time, "the time was up"),
        Halt::Asked => (Limit::Interrupted, "stopped"),
        Halt::Bug => (Limit::Faulty, "a bug of this tool ended it"),
        Halt::Enough => (Limit::Limits, "as many recoveries as were wanted were run"),
    }
}

/// Whatever the reason for a doubt, the finding is not a fact about the program.
fn doubt(finding: &mut Finding, why: String) {
    finding.severity = Severity::Warning;
    finding.message = format!("unconfirmed: {}", finding.message);
    finding.notes.insert(0, why);
}

/// What is known at the end only.
fn limit_by_search(search: &mut Search<'_>, halted: Option<Halt>) {
    let statistics = search.ledger.statistics.clone();
    let coverage = &mut search.ledger.coverage;
    let left_over = match halted {
        Some(Halt::Bug) => search.ledger.left_over.or(Some(LeftOver::Points)),
        _ => search.ledger.left_over,
    };
    if let Some((halted, left)) = halted.zip(left_over) {
        let (kind, what) = cut_by(halted);
        let all = statistics.failure_points + statistics.nested_points;
        let done = statistics.points_done;
        let share = done * 100 / all.max(1);
        let also = match left {
            LeftOver::Points => String::new(),
            LeftOver::Recoveries(count) => {
                let recoveries = count_of(count, "recovery", "recoveries");
                format!("; {recoveries} were still to be cut short in turn")
            }
            LeftOver::SelfTest => "; the self-test was not finished".to_owned(),
        };
        coverage.limit(
            kind,
            format!(
                "{what} before all was explored: {done} of {all} failure points done ({share} %){also}"
            ),
        );
    }
    let (sampled, unsettled) = (search.sampled_groups(), search.unsettled());
    let coverage = &mut search.ledger.coverage;
    if sampled > 0 {
        let groups = count_of(sampled, "group", "groups");
        coverage.limit(
            Limit::Sampled,
            format!(
                "{groups} of loads read more uncertain data than all combinations can be tried of (as a checksum does): some were \
                 tried; --exhaustive tries all"
            ),
        );
    }
    if statistics.abandoned > 0 {
        coverage.limit(
            Limit::Abandoned,
            "where many crash states of a failure point fail, not all were tried; --exhaustive tries all",
        );
    }
    if halted.is_none() && unsettled > 0 {
        coverage.limit(
            Limit::Limits,
            format!(
                "{} not settled",
                count_of(unsettled, "failure point was", "failure points were")
            ),
        );
    }
    if statistics.checksummed > 0 {
        let contents = statistics.checksummed as usize;
        let contents = count_of(contents, "torn content", "torn contents");
        coverage.spare(
            Limit::Checksummed,
            format!(
                "{contents} of data whose checksum recovery reads not tried, because those that were tried ended alike; --exhaustive tries all"
            ),
        );
    }
    if statistics.unsteady > 0 {
        let recoveries = count_of(statistics.unsteady as usize, "recovery", "recoveries");
        coverage.spare(
            Limit::Nondeterministic,
            format!(
                "{recoveries} read in another order when run again, and ended alike: threads or chance decide on it, and other orders \
                 were not tried"
            ),
        );
    }
}

fn count_of(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    }
}

/// The recoveries that did something different, with what the crashes before them have left.
fn distinct(search: &Search<'_>) -> Vec<Distinct> {
    let maker = Maker::new(&search.layers[0].recording);
    let told = search.ledger.distinct.iter();
    let told = told.map(|(crash, outcome)| {
        let of_outcome = &search.known.outcomes[*outcome as usize];
        let mut spec = finding::spec(search, crash.layer, crash.point, &crash.image);
        spec.expect(of_outcome);
        Distinct {
            crash: spec,
            files: maker.files(&crash.image),
            status: of_outcome.status,
            outcome: *outcome,
        }
    });
    told.collect()
}

/// What the crash of each finding has left, if it was one crash of the recorded run.
fn left(search: &Search<'_>, findings: &[(Finding, CrashSpec)]) -> Vec<Option<Files>> {
    let maker = Maker::new(&search.layers[0].recording);
    let left = |spec: &CrashSpec| match &spec.crashes[..] {
        [one] => {
            let survived = Subset::Chosen(one.survivors.clone());
            let image = maker.image(Location::point(one.point), &survived);
            image.map(|image| image.files)
        }
        _ => None,
    };
    findings.iter().map(|(_, spec)| left(spec)).collect()
}

/// Files as they were before the run, as an image.
fn initial_image(recording: &Recording) -> Result<Image, Error> {
    let mut files = BTreeMap::new();
    for (id, file) in &recording.files {
        if !file.base.as_os_str().is_empty() {
            let base = File::open(&file.base).map_err(io_error("cannot read a copy"))?;
            files.insert(*id, Before::new(base));
        }
    }
    let mut timeline = Timeline::new(Base::Files(files), 64);
    timeline.close(Vec::new());
    Ok(Image {
        view: View {
            timeline: Arc::new(timeline),
            point: 0,
        },
        survivors: BTreeMap::new(),
        files: recording.initial.clone(),
    })
}

/// Lines that the run stored to: only they differ between failure points.
fn varying(recording: &Recording) -> FxHashSet<LineKey> {
    let point = recording.points.len() as u32 - 1;
    let image = Image {
        view: View {
            timeline: recording.timeline.clone(),
            point,
        },
        survivors: BTreeMap::new(),
        files: Arc::default(),
    };
    image.lines()
}

/// What is there at a failure point of the recorded run if everything survives.
fn newest_at(recording: &Recording, point: u32) -> Image {
    let view = View {
        timeline: recording.timeline.clone(),
        point,
    };
    let files = &recording.points[point as usize].files;
    Image::newest(&view, &Narrowed::new(), files)
}

/// What an exploration is known by: the recorded run, and how recovery is run and judged.
fn identity(options: &Options, recording: &Recording) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    hash.update(&recording.digest);
    hash.update(options.setup.as_deref().unwrap_or_default().as_bytes());
    hash.update(options.program.display().as_bytes());
    for file in recording.files.values() {
        hash.update(file.path.as_os_str().as_encoded_bytes());
    }
    hash.update(format!("{:?} {:?}", options.model, options.promise).as_bytes());
    hash.update(options.checker.as_deref().unwrap_or_default().as_bytes());
    hash.update(format!("{} {}", options.operations, options.depth == Some(1)).as_bytes());
    // Which turns the recorded run has taken is in its digest. Those of recoveries are always
    // decided alike, if they are.
    hash.update(&[u8::from(options.schedule.is_some())]);
    hash.update(options.recover.display().as_bytes());
    for file in options.recover.stdin.iter().chain(&options.program.stdin) {
        hash.update(&fs::read(file).unwrap_or_default());
    }
    // Programs that were built anew may recover otherwise, so may scripts and configurations: the
    // journal itself has what recoveries have used. A file that the command line names and that
    // none has opened yet is one that the next may open.
    let recover = std::iter::once(&options.recover.program).chain(&options.recover.args);
    let recover = recover.map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = recover.chain(options.checker.clone()).collect();
    let words = words.iter().flat_map(|word| word.split_whitespace());
    let is_tracked = |path: &Path| {
        let path = fs::canonicalize(path).unwrap_or_default();
        recording.files.values().any(|file| file.path == path)
    };
    for path in words.map(PathBuf::from).filter(|path| !is_tracked(path)) {
        if let Some(content) = journal::content_of(&path) {
            hash.update(path.as_os_str().as_encoded_bytes());
            hash.update(&content);
        }
    }
    *hash.finalize().as_bytes()
}

/// Looks into failures until each cause has its finding.
fn look_into(
    search: &mut Search<'_>,
    options: &Options,
    in_a_hurry: bool,
    exploration: &mut Exploration,
) -> Result<Vec<Found>, Error> {
    let failures_max = options.failures_max;
    let mut resolvers = Resolvers::default();
    let mut guesses: BTreeMap<finding::Cause, usize> = BTreeMap::new();
    let mut failures: Vec<Failure> = search.ledger.failures.clone();
    // The fewer losses, the clearer.
    failures.sort_by_key(|failure| {
        let points = &search.layers[failure.layer].recording.points;
        let names = points[failure.point as usize].lost.len();
        (
            failure.layer > 0,
            failure.narrowed.len() + names,
            failure.point,
        )
    });
    let mut found: Vec<Found> = Vec::new();
    let mut looked = 0;
    let mut passed_over = 0;
    let mut known = 0;
    let mut cut = 0;
    for failure in failures {
        let guess = finding::guess(search, &mut resolvers, &failure);
        let cause = guess.0.clone();
        if options.known_causes.contains(&cause) {
            exploration.causes.insert(cause);
            known += 1;
            search.pass_over(&failure);
            continue;
        }
        let seen = guesses.entry(guess).or_default();
        *seen += 1;
        let limit = if in_a_hurry { 1 } else { FAILURES_PER_CAUSE };
        if looked >= failures_max && *seen == 1 {
            passed_over += 1;
        }
        if *seen > limit || looked >= failures_max {
            search.pass_over(&failure);
            continue;
        }
        looked += 1;
        let failure = minimise::keep_names(search, failure)?;
        let minimal = minimise::minimise(search, &failure)?;
        if minimal.is_none() && search.ledger.stopped.is_some() {
            cut += 1;
            search.pass_over(&failure);
            continue;
        }
        exploration.causes.insert(cause);
        let Some(minimal) = minimal else {
            search.ledger.coverage.limit(
                Limit::Nondeterministic,
                "recovery failed on a crash state, and did not fail in the same way when that was tried again",
            );
            continue;
        };
        let is_minimal = search.ledger.stopped.is_none();
        let mut new = finding::build(search, &mut resolvers, &failure, minimal)?;
        if !is_minimal {
            let note =
                "it was not tried to the end which of the losses matter: the search was stopped";
            new.finding.notes.push(note.into());
        }
        match found.iter_mut().find(|old| old.cause == new.cause) {
            Some(old) => {
                old.finding.count += 1;
                old.finding.seen_in(new.finding.origins);
                old.lost_sites.extend(new.lost_sites);
                if old.symptom != new.symptom {
                    let outcome = &search.known.outcomes[new.outcome as usize];
                    let note = format!(
                        "another crash of this cause: {}",
                        new.symptom.describe(outcome)
                    );
                    if !old.finding.notes.contains(&note) && old.finding.notes.len() < 6 {
                        old.finding.notes.push(note);
                    }
                }
            }
            None => {
                finding::explain(search, &mut resolvers, &mut new)?;
                found.push(new);
            }
        }
    }
    if known > 0 {
        let states = count_of(
            known,
            "failing crash state that seems to be of a known cause was",
            "failing crash states that seem to be of known causes were",
        );
        search
            .ledger
            .coverage
            .limit(Limit::Limits, format!("{states} not looked into"));
    }
    if let Some(halt) = search.ledger.stopped
        && cut > 0
    {
        let (kind, what) = cut_by(halt);
        let states = count_of(cut, "failing crash state was", "failing crash states were");
        let text = format!("{states} not looked into: {what}");
        search.ledger.coverage.limit(kind, text);
    }
    if passed_over > 0 {
        search.ledger.coverage.limit(
            Limit::Limits,
            format!(
                "{failures_max} failing crash states were looked into, and at least {passed_over} that may be of other causes were not: \
                 mend what was found, and explore again"
            ),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use brownout_findings::Verdict;

    use super::*;
    use crate::execution::Command;
    use crate::executor::{Answer, Executor, Request, Want};
    use crate::fake::{self, Act, Fake, Memory, exits, record_options};

    /// Something that ends the search when the first recovery is to be cut short.
    struct Ends<E> {
        inner: E,
        end: Box<dyn Fn()>,
    }

    impl<E: Executor> Executor for Ends<E> {
        fn size(&self) -> usize {
            self.inner.size()
        }

        fn start(&mut self, request: Request) -> u64 {
            if matches!(request.want, Want::Recording(_)) {
                (self.end)();
            }
            self.inner.start(request)
        }

        fn wait(&mut self, time: Duration) -> Option<(u64, Answer)> {
            self.inner.wait(time)
        }

        fn in_flight(&self) -> usize {
            self.inner.in_flight()
        }

        fn is_broken(&self) -> bool {
            self.inner.is_broken()
        }
    }

    /// A search that is ended among the crashes of recoveries: what it says, and the depth that it
    /// has reached.
    fn ended_while_nesting(halt: Halt, is_asked: bool) -> (Coverage, u32) {
        let program = |memory: &mut Memory<'_>| exits(0, memory.word(0).to_string());
        let mut progress = ();
        let stop = Arc::new(AtomicBool::new(false));
        let runs = fake::setting_until(stop.clone());
        let end = move || {
            if halt == Halt::Asked {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let executor = Ends {
            inner: Fake::new(program),
            end: Box::new(end),
        };
        let mut settings = Settings::new(runs);
        settings.keep_survivors = true;
        let recording = fake::recording(&[Act::Store(0, 1)]);
        let mut search = Search::new(recording, settings, Box::new(executor), &mut progress);
        search.explore(0).expect("the executor answers");
        if halt == Halt::Time {
            search.settings.deadline = Some(Instant::now());
        }
        let nesting = Nesting {
            depth: 2,
            is_asked,
            recoveries_max: None,
            record: record_options(),
        };
        let depth = nested::nest(&mut search, &nesting).expect("it ends in order");
        let Afterwork { halted, is_asked } = allow_afterwork(&mut search);
        assert_eq!(halted, Some(halt));
        assert_eq!(is_asked, halt == Halt::Asked);
        limit_by_search(&mut search, halted);
        (search.ledger.coverage, depth)
    }

    /// Whoever ends an exploration while recoveries are cut short has not seen everything, and is
    /// told so; also if nobody asked for that depth.
    #[test]
    fn an_exploration_that_is_ended_while_it_nests_is_cut() {
        for is_asked in [true, false] {
            let (coverage, depth) = ended_while_nesting(Halt::Asked, is_asked);
            let limits: Vec<Limit> = coverage.limitations.iter().map(|l| l.kind).collect();
            assert_eq!(limits, [Limit::Interrupted]);
            let text = &coverage.limitations[0].text;
            assert!(
                text.contains("2 recoveries were still to be cut short"),
                "{text}"
            );
            assert_eq!(coverage.verdict(false), Verdict::Incomplete);
            assert_eq!(depth, 2);
        }
    }

    /// What was found in a search of which only the end was left, and what is said of it, if
    /// somebody ends it while findings are looked into. `is_known`: the failing state was run.
    fn stopped_while_looked_into(is_known: bool) -> (Vec<Found>, Coverage) {
        let program = |memory: &mut Memory<'_>| match memory.word(0) {
            0 => exits(0, ""),
            _ => exits(1, ""),
        };
        let mut progress = ();
        let stop = Arc::new(AtomicBool::new(false));
        let settings = Settings::new(fake::setting_until(stop.clone()));
        let recording = fake::recording(&[Act::Store(0, 1), Act::Store(64, 1)]);
        let executor = Box::new(Fake::new(program));
        let mut search = Search::new(recording, settings, executor, &mut progress);
        if is_known {
            search.explore(0).expect("the executor answers");
        } else {
            search.ledger.failures.push(Failure {
                layer: 0,
                point: 0,
                narrowed: Narrowed::new(),
                symptom: Symptom::Hang,
            });
        }
        let afterwork = allow_afterwork(&mut search);
        assert!(afterwork.halted.is_none() && !afterwork.is_asked);
        stop.store(true, Ordering::Relaxed);
        let nothing = Command::shell("recover", None);
        let options = Options::new(nothing.clone(), nothing, "nowhere".into());
        let mut exploration = Exploration {
            findings: Vec::new(),
            causes: BTreeSet::new(),
            blamed: Vec::new(),
            statistics: Numbers::Nothing {},
            coverage: Coverage::default(),
            unsettled: BTreeSet::new(),
            distinct: Vec::new(),
            left: Vec::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            ended: Status::Exit(0),
            bug: None,
        };
        let found = look_into(&mut search, &options, false, &mut exploration);
        assert_eq!(search.ledger.stopped, Some(Halt::Asked));
        assert_eq!(exploration.causes.len(), usize::from(is_known));
        (found.expect("it ends in order"), search.ledger.coverage)
    }

    /// What was found is told, and that not all of it was done.
    #[test]
    fn who_ends_it_while_findings_are_looked_into_is_told_so() {
        let (found, coverage) = stopped_while_looked_into(true);
        assert_eq!(found.len(), 1);
        let notes = &found[0].finding.notes;
        assert!(
            notes
                .iter()
                .any(|note| note.contains("the search was stopped"))
        );
        assert!(coverage.is_exhaustive(), "that is known: {coverage:?}");
        let (found, coverage) = stopped_while_looked_into(false);
        assert_eq!(found.len(), 0);
        assert_eq!(coverage.open(), [Limit::Interrupted]);
        assert_eq!(
            coverage.limitations[0].text,
            "1 failing crash state was not looked into: stopped"
        );
    }

    /// A finding that was not tried natively, because somebody or the time has ended it, may be a
    /// fact: nothing is clean then.
    #[test]
    fn what_was_not_tried_natively_is_a_limitation() {
        let mut coverage = Coverage::default();
        limit_by_doubts(&mut coverage, &[]);
        assert!(coverage.is_exhaustive());
        limit_by_doubts(&mut coverage, &[Halt::Time, Halt::Asked, Halt::Time]);
        let texts = coverage.limitations.iter().map(|one| one.text.as_str());
        let expected = [
            "1 finding was not confirmed natively: stopped",
            "2 findings were not confirmed natively: the time was up",
        ];
        assert!(texts.eq(expected), "{coverage:?}");
        assert_eq!(coverage.open(), [Limit::Interrupted, Limit::Time]);
        assert_eq!(coverage.verdict(false), Verdict::Incomplete);
    }

    /// Who wants the end after the time was up, or when the search is over, waits no longer than
    /// one who has wanted it before.
    #[test]
    fn a_wish_that_comes_late_is_heard() {
        for halt in [None, Some(Halt::Time)] {
            let stop = Arc::new(AtomicBool::new(false));
            let runs = fake::setting_until(stop.clone());
            let executor = Fake::new(|_: &mut Memory<'_>| exits(0, ""));
            let mut progress = ();
            let settings = Settings::new(runs.clone());
            let recording = fake::recording(&[Act::Store(0, 1)]);
            let mut search = Search::new(recording, settings, Box::new(executor), &mut progress);
            if halt.is_some() {
                search.settings.deadline = Some(Instant::now());
            }
            search.explore(0).expect("the executor answers");
            assert_eq!(search.ledger.stopped, halt);
            assert_eq!(runs.end.is_now(), halt.is_some());
            assert!(!runs.end.is_wanted(), "nobody wants it yet");
            stop.store(true, Ordering::Relaxed);
            let afterwork = allow_afterwork(&mut search);
            assert_eq!(afterwork.halted, halt);
            assert!(afterwork.is_asked);
            assert!(search.left().is_some_and(|left| left <= AFTERWORK / 2));
            assert!(!runs.end.is_now(), "what is allowed goes on");
            // Others may look at it, too; and a second signal is told by it.
            assert!(stop.load(Ordering::Relaxed));
        }
    }

    /// An executor that breaks: after so many recoveries it has nothing but a bug of this tool.
    struct Breaks<E> {
        inner: E,
        after: u64,
    }

    impl<E: Executor> Executor for Breaks<E> {
        fn size(&self) -> usize {
            self.inner.size()
        }

        fn start(&mut self, request: Request) -> u64 {
            self.inner.start(request)
        }

        fn wait(&mut self, time: Duration) -> Option<(u64, Answer)> {
            let (id, answer) = self.inner.wait(time)?;
            let broken = || Err(LaunchError::Bug("a malformed record in the ring".into()));
            Some(match answer {
                Answer::Executed(_) if id >= self.after => (id, Answer::Executed(broken())),
                answer => (id, answer),
            })
        }

        fn in_flight(&self) -> usize {
            self.inner.in_flight()
        }

        fn is_broken(&self) -> bool {
            self.inner.is_broken()
        }
    }

    /// A bug of this tool in one recovery ends the search. What was found until then is told, as is
    /// that not everything was looked at, and whose fault that is.
    #[test]
    fn a_bug_of_this_tool_does_not_lose_what_was_found() {
        let program = |memory: &mut Memory<'_>| match memory.word(0) {
            0 => exits(0, ""),
            _ => exits(1, memory.word(64).to_string()),
        };
        let mut progress = ();
        let runs = fake::setting();
        let acts = [
            Act::Store(0, 1),
            Act::Point,
            Act::Store(64, 1),
            Act::Point,
            Act::Store(64, 2),
        ];
        let executor = Breaks {
            inner: Fake::new(program),
            after: 3,
        };
        let settings = Settings::new(runs);
        let recording = fake::recording(&acts);
        let mut search = Search::new(recording, settings, Box::new(executor), &mut progress);
        search.explore(0).expect("what was found is worth telling");
        let told = search.ledger.bug.clone();
        assert!(told.is_some_and(|text| text.contains("malformed record")));
        assert!(
            !search.ledger.failures.is_empty(),
            "one of the first recoveries fails"
        );
        let Afterwork { halted, .. } = allow_afterwork(&mut search);
        assert_eq!(halted, Some(Halt::Bug));
        limit_by_search(&mut search, halted);
        let coverage = &search.ledger.coverage;
        assert_eq!(coverage.open(), [Limit::Faulty]);
        assert_eq!(coverage.verdict(false), Verdict::Incomplete);
    }

    /// What was not confirmed, for whatever reason, is no error.
    #[test]
    fn a_doubt_makes_a_finding_a_warning() {
        let rule = brownout_findings::BuiltIn::RecoveryError;
        let mut finding = Finding::new(rule, Severity::Correctness, "recovery fails");
        doubt(&mut finding, "not run natively: no time was left".into());
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(finding.message, "unconfirmed: recovery fails");
        assert_eq!(finding.notes, ["not run natively: no time was left"]);
    }

    /// If the time is up, single crashes are all that was to be explored, unless somebody asked for
    /// more.
    #[test]
    fn without_a_wish_recoveries_are_cut_short_as_long_as_there_is_time() {
        let (coverage, depth) = ended_while_nesting(Halt::Time, true);
        assert_eq!(coverage.limitations[0].kind, Limit::Time);
        assert_eq!(depth, 2);
        let (coverage, depth) = ended_while_nesting(Halt::Time, false);
        assert_eq!(coverage.verdict(false), Verdict::Clean);
        assert_eq!(coverage.accepted(), [Limit::Depth]);
        assert!(!coverage.is_exhaustive());
        let text = &coverage.limitations[0].text;
        assert!(text.contains("0 of 2 recoveries were cut short"), "{text}");
        assert_eq!(depth, 1, "not all of the second level was seen");
    }
}
