//! Where programs run: each run in a private view of the machine, on the files that the set-up has left.
//!
//! Guarantee: every run begins with the same files, and no run sees what another has left. Time, random numbers, addresses and the order of threads are the
//! same each time. So what a run does depends on its input alone.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brownout_explore::Ground;
use brownout_host::{
    Enclosures, ExitStatus, LaunchConfig, Layer, Limits, Outcome, Schedule, StrategyKind,
};
use brownout_trace::EventSink;

use crate::options::{Error, Options, io_error};

/// What a run is to tell.
#[derive(Clone, Debug)]
pub enum Telling {
    /// All that is executed.
    All,
    /// The state in front of these instructions.
    At(Arc<[u64]>),
}

const WALL: Duration = Duration::from_secs(20);
/// More events than a run has that ends.
const EVENTS: u64 = 20_000_000;

/// See the module's header.
pub struct Stage {
    enclosures: Arc<Enclosures>,
    layers: Vec<Layer>,
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
        let mut stage = Stage {
            enclosures,
            layers: Vec::new(),
            ground,
        };
        if let Some(setup) = &options.setup {
            stage.set_up(options, setup)?;
        }
        Ok(stage)
    }

    fn set_up(&mut self, options: &Options, setup: &str) -> Result<(), Error> {
        let view = self.enclosures.enclose(&[]);
        let view = Arc::new(view.map_err(io_error("cannot make a private view of the machine"))?);
        let null = || File::options().read(true).write(true).open("/dev/null");
        // Under the engine, though nothing is recorded: what it makes must be the same next time, identifiers and seeds included.
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
            (None, ExitStatus::Code(0)) => {
                self.layers.push(view.layer().clone());
                Ok(())
            }
            (None, ExitStatus::Code(code)) => Err(Error::Usage(format!(
                "the set-up failed with exit code {code}: {setup}"
            ))),
            (None, ExitStatus::Signal(signal)) => Err(Error::Usage(format!(
                "the set-up was killed by signal {signal}: {setup}"
            ))),
        }
    }

    /// Runs the program on an input.
    pub fn run(
        &self,
        options: &Options,
        input: &[u8],
        telling: Telling,
        sink: &mut dyn EventSink,
    ) -> Result<Outcome, Error> {
        let view = self.enclosures.enclose(&self.layers);
        let view = view.map_err(io_error("cannot make a private view of the machine"))?;
        let program = &options.program;
        let mut config = LaunchConfig::new(&program.program, &program.args);
        config.pm_globs = options.pm_globs.clone();
        config.schedule = Some(Schedule::new(StrategyKind::GoOn, 0));
        config.edges = true;
        config.boundaries = true;
        match telling {
            Telling::All => (config.loads, config.follow) = (true, true),
            Telling::At(chosen) => config.capture = Some(chosen),
        }
        let path = self.input_path();
        fs::write(&path, input).map_err(io_error("cannot write the input"))?;
        let input = File::open(&path).map_err(io_error("cannot open the input"))?;
        config.stdin = Some(input);
        let null = || File::options().write(true).open("/dev/null");
        config.stdout = Some(null().map_err(io_error("cannot open /dev/null"))?);
        config.stderr = Some(null().map_err(io_error("cannot open /dev/null"))?);
        config.enclosure = Some(Arc::new(view));
        config.dies_with_tool = true;
        config.stop = Some(options.stop.clone());
        config.limits = Limits {
            events: Some(EVENTS),
            wall: Some(options.patience.unwrap_or(WALL)),
            ..Limits::default()
        };
        Ok(brownout_host::record(&config, sink)?)
    }

    fn input_path(&self) -> PathBuf {
        self.ground.scratch().join("input")
    }
}
