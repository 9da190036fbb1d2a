//! Where programs run: on the files that the set-up has left, each run as if it were the first.
//!
//! Guarantee: every run begins with the same files, and no run sees what another has left. Time, random numbers, addresses and the order of threads are the
//! same each time. So what a run does depends on its input alone.
//!
//! A program is kept where it first looks at its input, and forked from there for each run (`brownout_stage`). One that starts threads or processes
//! is launched each time instead, and they take turns: only then they do the same each time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brownout_explore::Ground;
use brownout_images::{ImageId, Store};
use brownout_stage::{Delivery, Origins, Ran, Server, Target, Tells, Workshop, root};
use brownout_trace::EventSink;
use tempfile::TempDir;

use crate::options::{Error, Options, io_error};

const WALL: Duration = Duration::from_secs(20);
/// More events than a run has that ends.
const EVENTS: u64 = 20_000_000;

/// See the module's header.
pub struct Stage {
    /// Ends before what it was made of.
    server: Option<Server>,
    workshop: Workshop,
    root: ImageId,
    /// How often a program was launched, to be kept or not.
    pub launches: u64,
    /// Runs that were forked from a kept program.
    pub forks: u64,
    _images: TempDir,
}

impl Stage {
    /// Makes it ready, and runs the set-up.
    pub fn new(options: &Options) -> Result<Stage, Error> {
        let ground = Ground::new().map_err(io_error("cannot make a folder for runs"))?;
        let images = tempfile::tempdir_in(ground.scratch());
        let images = images.map_err(io_error("cannot make a folder for images"))?;
        let store = Arc::new(Store::create(&images.path().join("images"))?);
        let origins = Origins {
            setup: options.setup.clone(),
            image: None,
            stop: options.stop.clone(),
        };
        let root = root(&origins, &ground, &store)?;
        let target = Target {
            program: options.program.program.clone(),
            args: options.program.args.clone(),
            pm_globs: options.pm_globs.clone(),
            delivery: Delivery::Stdin,
        };
        let patience = options.patience.unwrap_or(WALL);
        let mut workshop = Workshop::new(ground, store, target, patience);
        workshop.stop = options.stop.clone();
        workshop.events_max = EVENTS;
        workshop.plain_cpu = !options.native_cpu;
        Ok(Stage {
            server: None,
            workshop,
            root,
            launches: 0,
            forks: 0,
            _images: images,
        })
    }

    /// The program starts threads or processes: from now on they take turns.
    pub fn take_turns(&mut self) -> bool {
        !self.workshop.takes_turns.swap(true, Ordering::Relaxed)
    }

    /// Runs the program on an input. After [`Error::is_not_kept`] the sinks may have seen a part of a run; another one can be made.
    pub fn run(
        &mut self,
        input: &[u8],
        tells: &Tells,
        sink: &mut dyn EventSink,
    ) -> Result<Ran, Error> {
        let is_it = |server: &Server| server.tells() == tells && server.is_usable();
        let mut server = match self.server.take() {
            Some(server) if is_it(&server) => server,
            kept => {
                // Two at a time would be one too many.
                drop(kept);
                self.launches += 1;
                Server::open(&self.workshop, self.root, tells)?
            }
        };
        self.forks += u64::from(server.is_warm());
        let ran = server.run(input, self.workshop.patience, sink)?;
        // What tells everything is wanted once.
        if *tells != Tells::Executed {
            self.server = Some(server);
        }
        Ok(ran)
    }
}
