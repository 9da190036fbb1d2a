//! Where programs run: each run in a private view of the machine, on the files that the set-up has
//! left, under a schedule.
//!
//! Guarantee: every run begins with the same files and the same input, and no run sees what another
//! has left. So what a run does depends on its schedule alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brownout_explore::{Ground, Options as ExploreOptions, PmOnly, Run, RunRecorder, Start};
use brownout_host::{
    Enclosure, Enclosures, ExitStatus, LaunchConfig, Limits, Outcome, Schedule, Scheduled, Stopped,
};
use brownout_symbols::{Counting, Part};
use brownout_trace::{EventSink, Tee};
use serde::{Deserialize, Serialize};

use crate::inputs::Input;
use crate::options::{Error, Options, io_error};

/// A run that does more to persistent memory than so many times as much as the first one does not
/// end.
const EVENTS_FACTOR: u64 = 40;
const EVENTS_MIN: u64 = 200_000;
/// Bounds of the first run.
const FIRST_EVENTS: u64 = 20_000_000;
const FIRST_WALL: Duration = Duration::from_secs(60);
const WALL_FACTOR: u32 = 40;
const WALL_MIN: Duration = Duration::from_secs(5);
/// A run that spins comes to points at which others could go on, again and again, without an event.
/// So many are enough to tell.
const STEPS_FACTOR: u64 = 40;
const STEPS_MIN: u64 = 1_000_000;

/// How a run ended.
pub struct Ran {
    /// From the host.
    pub outcome: Outcome,
    /// What was decided.
    pub scheduled: Scheduled,
    /// The program was ended because it did not end.
    pub is_endless: bool,
    /// It was ended because the time of the search was up, which says nothing about it.
    pub is_cut: bool,
}

impl Ran {
    /// The program has come to its own end.
    pub fn has_ended(&self) -> bool {
        self.outcome.stopped.is_none() && !self.scheduled.is_deadlock
    }
}

/// What a run may do, where that is counted and not timed: a run under the same schedule is ended
/// at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    events: Option<u64>,
    steps: Option<u64>,
}

/// What to run.
#[derive(Clone)]
pub struct Act {
    /// Who goes on.
    pub schedule: Schedule,
    /// What the program reads.
    pub input: Arc<Input>,
    /// Tell what instructions do.
    pub follow: bool,
    /// Tell how threads exclude each other and wait for each other.
    pub locks: bool,
    /// Note which branches are taken.
    pub edges: bool,
}

impl Act {
    /// A plain run.
    pub fn new(schedule: Schedule, input: &Arc<Input>) -> Act {
        Act {
            schedule,
            input: input.clone(),
            follow: false,
            locks: false,
            edges: false,
        }
    }

    /// One that tells what instructions do, if `follow` says so.
    pub fn following(self, follow: bool) -> Act {
        Act { follow, ..self }
    }

    /// One that tells how threads exclude each other, if `locks` says so.
    pub fn with_locks(self, locks: bool) -> Act {
        Act { locks, ..self }
    }

    /// One that notes which branches are taken, if `edges` says so.
    pub fn with_edges(self, edges: bool) -> Act {
        Act { edges, ..self }
    }
}

/// See the module's header.
pub struct Stage {
    /// With the files to begin with.
    pub explore: ExploreOptions,
    enclosures: Arc<Enclosures>,
    /// Nothing runs here: it shows what files hold before a run.
    pristine: Arc<Enclosure>,
    /// Set by the first run.
    limits: Limits,
    /// When the time of the search is up. No run goes on then.
    until: Option<Instant>,
    /// Last, because everything else lies in it.
    ground: Ground,
}

impl Stage {
    /// Makes it ready, and runs the set-up.
    pub fn new(options: &Options) -> Result<Stage, Error> {
        let ground = Ground::new().map_err(io_error("cannot make a folder for runs"))?;
        let enclosures = ground
            .enclosures()
            .map_err(|why| Error::NoView(why.to_owned()))?
            .clone();
        let no_view = || io_error("cannot make a private view of the machine");
        let mut layers = Vec::new();
        if let Some(setup) = &options.setup {
            let view = Arc::new(enclosures.enclose(&[]).map_err(no_view())?);
            set_up(options, setup, &view)?;
            layers.push(view.layer().clone());
        }
        let pristine = Arc::new(enclosures.enclose(&layers).map_err(no_view())?);
        let mut explore = ExploreOptions::new(
            options.program.clone(),
            options.recover.clone(),
            options.folder.clone(),
        );
        explore.start = Some(Start {
            enclosures: enclosures.clone(),
            layers,
        });
        explore.pm_globs = options.pm_globs.clone();
        explore.model = options.model;
        explore.promise = options.promise;
        explore.checker = options.checker.clone();
        explore.patience = options.patience;
        explore.stop = options.stop.clone();
        explore.journal = false;
        explore.touches = options.touches.clone();
        Ok(Stage {
            explore,
            enclosures,
            pristine,
            limits: Limits {
                events: Some(FIRST_EVENTS),
                wall: Some(options.patience.unwrap_or(FIRST_WALL)),
                ..Limits::default()
            },
            until: None,
            ground,
        })
    }

    /// The bounds of all further runs, by what the first has taken.
    pub fn bound(&mut self, first: &Ran, patience: Option<Duration>) {
        let events = first.outcome.events.saturating_mul(EVENTS_FACTOR);
        let wall = (first.outcome.wall * WALL_FACTOR).max(WALL_MIN);
        self.limits.events = Some(events.max(EVENTS_MIN));
        self.limits.wall = Some(patience.unwrap_or(wall));
        self.bound_steps(first.scheduled.steps);
    }

    /// Runs that take many more steps than so many do not end.
    pub fn bound_steps(&mut self, steps: u64) {
        self.limits.steps = Some(steps.saturating_mul(STEPS_FACTOR).max(STEPS_MIN));
    }

    /// The bounds as they are.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            events: self.limits.events,
            steps: self.limits.steps,
        }
    }

    /// The bounds as they were elsewhere.
    pub fn bound_by(&mut self, bounds: Bounds) {
        (self.limits.events, self.limits.steps) = (bounds.events, bounds.steps);
    }

    /// Ends all runs then.
    pub fn end_at(&mut self, moment: Option<Instant>) {
        self.until = moment;
    }

    /// How much time is left; none: that is not limited.
    pub fn time_left(&self) -> Option<Duration> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map(left)
    }

    /// How a run ended.
    fn ran(&self, outcome: Outcome) -> Result<Ran, Error> {
        let Some(scheduled) = outcome.scheduled.clone() else {
            return Err(Error::Usage("the program was not scheduled".into()));
        };
        let is_over = self.time_left() == Some(Duration::ZERO);
        let is_cut = is_over && outcome.stopped == Some(Stopped::Wall);
        let is_endless = matches!(
            outcome.stopped,
            Some(Stopped::Events | Stopped::Wall | Stopped::Idle | Stopped::Steps)
        );
        Ok(Ran {
            outcome,
            scheduled,
            is_endless: is_endless && !is_cut,
            is_cut,
        })
    }

    /// A folder for whatever a search needs while it lasts.
    pub fn scratch(&self) -> PathBuf {
        self.ground.scratch()
    }

    /// Runs the program.
    pub fn run(&self, act: Act, sink: &mut dyn EventSink) -> Result<Ran, Error> {
        let (config, out, err) = self.config(act)?;
        let mut counting = self.counting();
        let mut counting = counting.as_mut().map(|counting| PmOnly::new(counting));
        let mut sink = Tee::of([sink]).and(counting.as_mut());
        let outcome = brownout_host::record(&config, &mut sink);
        let _ = (fs::remove_file(&out), fs::remove_file(&err));
        self.ran(outcome?)
    }

    /// The same, so that crashes of the run can be tried.
    pub fn record(&self, act: Act, sink: &mut dyn EventSink) -> Result<(Run, Ran), Error> {
        let input = match (&act.input.made, &act.input.path) {
            (Some(content), _) => content.clone(),
            (None, Some(path)) => fs::read(self.pristine.path(path))
                .or_else(|_| fs::read(path))
                .map_err(io_error("cannot read the standard input"))?,
            (None, None) => Vec::new(),
        };
        let (config, out, err) = self.config(act)?;
        let pristine = self.pristine.clone();
        let before = move |path: &Path| {
            let path = pristine.path(path);
            path.is_file().then_some(path)
        };
        let mut recorder = RunRecorder::new(&self.explore, input, before)?;
        let outcome = {
            let mut counting = self.counting();
            let mut counting = counting.as_mut().map(|counting| PmOnly::new(counting));
            let mut sink = Tee::of([sink, &mut recorder]).and(counting.as_mut());
            brownout_host::record(&config, &mut sink)?
        };
        let printed = |path: &Path| fs::read(path).unwrap_or_default();
        let again = outcome.clone();
        let run = recorder.finish(outcome, printed(&out), printed(&err))?;
        let _ = (fs::remove_file(&out), fs::remove_file(&err));
        Ok((run, self.ran(again)?))
    }

    /// Counts where a run touches persistent memory, if anybody wants to know.
    fn counting(&self) -> Option<Counting> {
        let touches = self.explore.touches.as_ref();
        touches.map(|touches| touches.run(Part::Program))
    }

    fn config(&self, act: Act) -> Result<(LaunchConfig, PathBuf, PathBuf), Error> {
        let program = &self.explore.program;
        let start = self.explore.start.as_ref();
        let layers = start.map_or(&[][..], |start| &start.layers);
        let view = self.enclosures.enclose(layers);
        let view = view.map_err(io_error("cannot make a private view of the machine"))?;
        let mut config = LaunchConfig::new(&program.program, &program.args);
        RunRecorder::prepare(&self.explore, &mut config);
        config.loads = true;
        config.threads = act.locks;
        config.follow = act.follow;
        config.edges = act.edges;
        config.schedule = Some(act.schedule);
        let stdin = match (&act.input.path, &act.input.made) {
            (Some(path), Some(_)) => File::open(path),
            (Some(path), None) => File::open(view.path(path)).or_else(|_| File::open(path)),
            (None, _) => File::open("/dev/null"),
        };
        config.stdin = Some(stdin.map_err(io_error("cannot open the standard input"))?);
        let output = |name: &str| -> Result<(File, PathBuf), Error> {
            let made = tempfile::Builder::new()
                .prefix(name)
                .tempfile_in(self.ground.scratch());
            let (file, path) = made
                .and_then(|file| file.keep().map_err(|error| error.error))
                .map_err(io_error("cannot keep the output"))?;
            Ok((file, path))
        };
        let (out, out_path) = output("stdout-")?;
        let (err, err_path) = output("stderr-")?;
        (config.stdout, config.stderr) = (Some(out), Some(err));
        config.enclosure = Some(Arc::new(view));
        config.dies_with_tool = true;
        config.stop = Some(self.explore.stop.clone());
        config.limits = self.limits;
        config.limits.wall = [self.limits.wall, self.time_left()]
            .into_iter()
            .flatten()
            .min();
        Ok((config, out_path, err_path))
    }
}

fn set_up(options: &Options, setup: &str, view: &Arc<Enclosure>) -> Result<(), Error> {
    let null = || File::options().read(true).write(true).open("/dev/null");
    // Under the engine, though nothing is recorded: what it makes must be the same next time,
    // identifiers and seeds included.
    let mut config = LaunchConfig::new("sh", ["-c", setup]);
    config.deterministic = true;
    config.enclosure = Some(view.clone());
    config.dies_with_tool = true;
    config.stop = Some(options.stop.clone());
    config.stdin = Some(null().map_err(io_error("cannot open /dev/null"))?);
    config.stdout = Some(null().map_err(io_error("cannot open /dev/null"))?);
    let outcome = brownout_host::run(&config)?;
    match (outcome.stopped, outcome.status) {
        (Some(_), _) => Err(Error::Usage(
            "stopped in the set-up: nothing was searched".into(),
        )),
        (None, ExitStatus::Code(0)) => Ok(()),
        (None, ExitStatus::Code(code)) => Err(Error::Usage(format!(
            "the set-up failed with exit code {code}: {setup}"
        ))),
        (None, ExitStatus::Signal(signal)) => Err(Error::Usage(format!(
            "the set-up was killed by signal {signal}: {setup}"
        ))),
    }
}
