//! A closer look at a run: recorded once more, and what recovery makes of every crash that it can
//! tell apart.
//!
//! Guarantee: the recorded run begins with the files of the image and gets its input as any run
//! does; what an exploration of it finds is what `brownout explore` would find.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brownout_explore::{
    Command, Exploration, Options, PmOnly, Run, RunRecorder, Start, explore_run, record_run,
};
use brownout_findings::Limit;
use brownout_host::{Client, Enclosure, LaunchConfig};
use brownout_images::ImageId;
use brownout_symbols::Part;
use brownout_trace::Tee;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::server::Workshop;

/// Launches that may go into what recovery prints after whole operations; the recorded run is the
/// measure otherwise.
const REFERENCES_MAX: usize = 12;

/// So much of what a program prints is of interest.
const PRINTED_MAX: u64 = 1 << 20;

/// Causes of failing crash states that explorations of other cases have looked into. To look into
/// one is most of what an exploration costs that finds something, and nearly all cases of a
/// campaign show the same.
#[derive(Clone, Debug, Default)]
pub struct Causes(BTreeMap<String, u32>);

/// What seems to be of one cause may be of two: so many explorations look into it.
const LOOKS: u32 = 3;

impl Causes {
    /// Those that need not be looked into again.
    fn well_known(&self) -> BTreeSet<String> {
        let known = self.0.iter().filter(|(_, looks)| **looks >= LOOKS);
        known.map(|(cause, _)| cause.clone()).collect()
    }

    /// One more exploration has seen these.
    pub fn add(&mut self, causes: &BTreeSet<String>) {
        for cause in causes {
            *self.0.entry(cause.clone()).or_default() += 1;
        }
    }
}

/// How a closer look is taken.
#[derive(Clone, Debug)]
pub struct Closer {
    /// What recovers; the program itself, with no input, if not given.
    pub recover: Option<Command>,
    /// How long one exploration may take: a last resort, because what is bounded by time is not the
    /// same next time.
    pub patience: Duration,
    /// How many recoveries one may take.
    pub recoveries_max: u64,
    /// So many recoveries that did something different are told, with what the crashes before them
    /// have left; and likewise of findings, if this is not 0.
    pub distinct_max: usize,
    /// The model.
    pub model: brownout_model::Config,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

/// A recorded run.
pub struct Recorded {
    /// Taken by an exploration.
    pub run: Option<Run>,
    options: Options,
    /// The image.
    pub image: ImageId,
    /// The name of the input: it is no part of an image.
    pub input_path: Option<PathBuf>,
    /// What recovers would not end by itself.
    is_endless: bool,
    /// Keeps the folder of crash images.
    _folder: tempfile::TempDir,
    /// Keeps what the files held before.
    _before: Arc<Enclosure>,
}

impl Closer {
    /// As campaigns do it. `recover` is a shell command.
    pub fn new(
        recover: Option<&str>,
        model: brownout_model::Config,
        stop: Arc<AtomicBool>,
    ) -> Closer {
        Closer {
            recover: recover.map(|line| Command::shell(line, None)),
            patience: Duration::from_secs(20),
            recoveries_max: 150,
            distinct_max: 0,
            model,
            stop,
        }
    }

    /// Runs the program once more, on an image and with an input, and records that.
    pub fn record(
        &self,
        workshop: &Workshop,
        image: ImageId,
        bytes: &[u8],
    ) -> Result<Recorded, Error> {
        let target = &workshop.target;
        let (before, named) = workshop.laid_with_input(image)?;
        let layer = before.layer().clone();
        let enclosures = workshop.enclosures()?;
        let folder = tempfile::tempdir_in(workshop.ground.scratch())?;
        let input = folder.path().join("input");
        fs::write(&input, bytes)?;
        // A file that the input is a part of is what a crash may change, so that what it held
        // before has to be known.
        if let (Delivery::Place(_), Some(named)) = (&target.delivery, &named) {
            target.delivery.write(&named.file, bytes)?;
        }
        let is_part = target.delivery.is_part();
        let input_path = named.filter(|_| !is_part).map(|named| named.path);
        let args = |input: &[u8]| {
            target
                .delivery
                .args(&target.args, input, input_path.as_deref())
        };
        let is_stdin = target.delivery.is_stdin();
        let program = Command {
            program: target.program.clone(),
            args: args(bytes),
            stdin: is_stdin.then_some(input),
        };
        let recover = self.recover.clone().unwrap_or_else(|| Command {
            program: target.program.clone(),
            args: args(&[]),
            stdin: None,
        });
        let options = Options {
            start: Some(Start {
                enclosures: enclosures.clone(),
                layers: vec![layer],
            }),
            pm_globs: target.pm_globs.clone(),
            model: self.model,
            // What the program prints after so many operations is found out by runs with so many
            // lines of standard input.
            operations: self.recover.is_some() && is_stdin,
            depth: Some(1),
            journal: false,
            time: Some(self.patience),
            recoveries_max: Some(self.recoveries_max),
            distinct_max: self.distinct_max,
            references_max: REFERENCES_MAX,
            stop: self.stop.clone(),
            touches: workshop.touches.clone(),
            ..Options::new(program, recover, folder.path().join("explored"))
        };
        let run = match is_stdin {
            true => record_run(&options, None)?,
            false => self.record_launch(workshop, (image, bytes), &options, &before)?,
        };
        Ok(Recorded {
            run: Some(run),
            options,
            image,
            input_path,
            is_endless: self.recover.is_none() && matches!(target.delivery, Delivery::Socket(_)),
            _folder: folder,
            _before: before,
        })
    }

    /// Runs a program whose input is not standard input, which explorations do not know. `before`
    /// has the files as they are before.
    fn record_launch(
        &self,
        workshop: &Workshop,
        (image, bytes): (ImageId, &[u8]),
        options: &Options,
        before: &Arc<Enclosure>,
    ) -> Result<Run, Error> {
        let scratch = workshop.ground.scratch();
        let (view, named) = workshop.laid_with_input(image)?;
        let mut config = LaunchConfig::new(&options.program.program, &options.program.args);
        config.enclosure = Some(view.clone());
        config.dies_with_tool = true;
        config.stop = Some(self.stop.clone());
        config.limits.wall = Some(self.patience);
        config.stdin = Some(File::open("/dev/null")?);
        let feeder = workshop.feeder(&view, bytes, self.patience);
        config.client = feeder.map(|feeder| feeder as Arc<dyn Client>);
        if let Some(named) = named {
            let delivery = &workshop.target.delivery;
            delivery.write(&named.file, bytes)?;
            config.input = Some(named.file);
        }
        let printed = [
            tempfile::tempfile_in(&scratch)?,
            tempfile::tempfile_in(&scratch)?,
        ];
        config.stdout = Some(printed[0].try_clone()?);
        config.stderr = Some(printed[1].try_clone()?);
        RunRecorder::prepare(options, &mut config);
        let originals = before.clone();
        let originals = move |path: &Path| Some(originals.path(path)).filter(|path| path.exists());
        let mut recorder = RunRecorder::new(options, bytes.to_vec(), originals)?;
        let touches = options.touches.as_ref();
        let mut counting = touches.map(|touches| touches.run(Part::Program));
        let mut counting = counting.as_mut().map(|counting| PmOnly::new(counting));
        let outcome = {
            let mut sink = Tee::of([&mut recorder]).and(counting.as_mut());
            brownout_host::record(&config, &mut sink)?
        };
        let [stdout, stderr] = printed.map(|file| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; file.metadata()?.len().min(PRINTED_MAX) as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        });
        Ok(recorder.finish(outcome, stdout?, stderr?)?)
    }

    /// Has recovery run on all that it can tell apart. Not if it would be a server, which waits for
    /// clients and does not end. It ends when the time is up, if it must.
    pub fn explore(
        &self,
        recorded: &mut Recorded,
        time: Option<Duration>,
        known: &Causes,
    ) -> Result<Option<Exploration>, Error> {
        if recorded.is_endless {
            return Ok(None);
        }
        recorded.options.time = time;
        recorded.options.known_causes = known.well_known();
        match recorded.run.take() {
            Some(run) => {
                let exploration = explore_run(&recorded.options, run, &mut ())?;
                // An exploration that is asked to stop takes the wish for granted, and sets the
                // flag back for what it has yet to do. The campaign is to hear it, too.
                if exploration.coverage.has(Limit::Interrupted) {
                    self.stop.store(true, Ordering::Relaxed);
                }
                Ok(Some(exploration))
            }
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_looked_into_some_times() {
        let mut causes = Causes::default();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for look in 0..LOOKS {
            assert!(causes.well_known().is_empty(), "after {look}");
            causes.add(&of(&["lost store at map.c:7"]));
        }
        causes.add(&of(&["another"]));
        assert_eq!(causes.well_known(), of(&["lost store at map.c:7"]));
    }
}
