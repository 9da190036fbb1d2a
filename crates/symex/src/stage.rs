//! Where programs run: on the files that the set-up has left, each run as if it were the first.
//!
//! Guarantee: every run begins with the same files, and no run sees what another has left. Time,
//! random numbers, addresses and the order of threads are the same each time. So what a run does
//! depends on its input alone.
//!
//! A program is kept where it first looks at its input, and forked from there for each run
//! (`brownout_stage`); for runs that tell everything, another one is kept beside it. Where it
//! starts threads or processes, they take turns: only then they do the same each time. If it does
//! so before it looks at its input, it is launched each time instead.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_explore::{Exploration, Ground};
use brownout_images::{ImageId, Store};
use brownout_stage::{
    Causes, Closer, Delivery, Origins, Place, Ran, Server, Target, Tells, Workshop, root,
};
use brownout_trace::EventSink;
use tempfile::TempDir;

use crate::options::{Error, Options, io_error};
use crate::patience::{EVENTS_MAX, Patience};

/// What a run may take at most.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Of time.
    pub time: Duration,
    /// Of events of persistent memory.
    pub events: u64,
}

/// What a part of a file holds that the set-up has left; `path` is what the user calls it.
fn part(at: &Path, path: &Path, from: u64, len: usize) -> Result<Vec<u8>, Error> {
    let wrong = |why: String| Error::Usage(format!("{}: {why}", path.display()));
    let file = File::open(at).map_err(|error| wrong(error.kind().to_string()))?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, from).map_err(|error| {
        let has = file.metadata().map_or(0, |meta| meta.len());
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => wrong(format!(
                "it has {has} bytes after the set-up, so there is no range from {from} to {}",
                from + len as u64
            )),
            kind => wrong(kind.to_string()),
        }
    })?;
    Ok(bytes)
}

/// See the module's header.
pub struct Stage {
    /// What captures, and what tells everything. They end before what they were made of.
    server: Option<Server>,
    follower: Option<Server>,
    workshop: Workshop,
    root: ImageId,
    /// What the part of a file holds that the input takes the place of.
    pub first: Option<Vec<u8>>,
    /// How often a program was launched, to be kept or not.
    pub launches: u64,
    /// How long it took to get programs ready.
    pub opening: Duration,
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
            delivery: options.delivery.clone(),
        };
        let patience = Patience::new(options.patience).of_run(false);
        let mut workshop = Workshop::new(ground, store, target, patience);
        workshop.stop = options.stop.clone();
        workshop.stdin = options.stdin.clone();
        workshop.touches = options.touches.clone();
        workshop.events_max = EVENTS_MAX;
        workshop.loads = options.loads;
        workshop.plain_cpu = !options.native_cpu;
        let first = match &options.delivery {
            Delivery::Place(Place {
                path,
                from: Some(from),
            }) => {
                let view = workshop.laid(root)?;
                Some(part(&view.path(path), path, *from, options.first.len())?)
            }
            _ => None,
        };
        Ok(Stage {
            server: None,
            follower: None,
            workshop,
            root,
            first,
            launches: 0,
            opening: Duration::ZERO,
            _images: images,
        })
    }

    /// The program starts threads or processes: from now on they take turns.
    pub fn take_turns(&mut self) -> bool {
        // What was kept without that would go on without it.
        self.server = None;
        !self.workshop.takes_turns.swap(true, Ordering::Relaxed)
    }

    /// Has recovery run on what crashes leave of the run on an input. `None`: what recovers would
    /// not end by itself.
    pub fn explore(
        &mut self,
        options: &Options,
        input: &[u8],
        time: Option<Duration>,
        known: &Causes,
    ) -> Result<Option<Exploration>, Error> {
        let recover = options.recover.as_deref();
        let closer = Closer::new(recover, options.check.model, options.stop.clone());
        let mut recorded = closer.record(&self.workshop, self.root, input)?;
        let time = time.map_or(closer.patience, |time| time.min(closer.patience));
        Ok(closer.explore(&mut recorded, Some(time), known)?)
    }

    /// Whether they do.
    pub fn takes_turns(&self) -> bool {
        self.workshop.takes_turns.load(Ordering::Relaxed)
    }

    /// Runs the program on an input, with no more than `most`. After [`Error::is_not_kept`]
    /// the sinks may have seen a part of a run; another one can be made.
    pub fn run(
        &mut self,
        input: &[u8],
        tells: &Tells,
        most: Most,
        sink: &mut dyn EventSink,
    ) -> Result<Ran, Error> {
        // To get there takes a program that is kept as long as a launched one.
        self.workshop.patience = most.time.max(self.workshop.patience);
        let kept = match tells {
            Tells::Executed => self.follower.take(),
            _ => self.server.take(),
        };
        let kept = kept.filter(Server::is_usable);
        let kept = kept.and_then(|mut kept| kept.tell(tells).then_some(kept));
        let mut server = match kept {
            Some(server) => server,
            None => self.open(tells)?,
        };
        server.allow_events(most.events);
        let ran = server.run(input, most.time, sink)?;
        match tells {
            Tells::Executed => self.follower = Some(server),
            _ => self.server = Some(server),
        }
        Ok(ran)
    }

    fn open(&mut self, tells: &Tells) -> Result<Server, Error> {
        let begun = Instant::now();
        let server = Server::open(&self.workshop, self.root, tells);
        self.launches += 1;
        self.opening += begun.elapsed();
        Ok(server?)
    }
}
