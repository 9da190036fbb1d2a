//! Runs test cases: LibAFL's executor, on servers that are kept ready.
//!
//! Servers of the images that were used last stay open; opening one costs as much as some dozens of
//! runs on it. Each run is judged by `judge.rs` as soon as it has ended.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brownout_check::Analysis;
use brownout_host::{Comparison, ExitStatus, LaunchError, Stopped};
use brownout_images::{Contents, ImageId, Origin};
use brownout_trace::Tee;
use libafl::executors::{ExitKind, HasObservers};
use libafl_bolts::tuples::RefIndexable;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::detect::{Detector, Left, Verdict};
use crate::error::Error;
use crate::feedback::{Map, Sight};
use crate::judge::{Ended, Ending, Judge};
use crate::traces::Traces;
use brownout_stage::{Error as StageError, Ran, Server, Tells, Workshop};

/// So many servers are open at once.
const SERVERS_MAX: usize = 6;

/// A run that seems to hang gets so many times as long before that is believed.
const HANG_FACTOR: u32 = 5;

fn is_hang(ran: &Ran) -> bool {
    matches!(ran.outcome.stopped, Some(Stopped::Wall | Stopped::Idle))
}

/// Where the time of executions goes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Laying images down and launching programs up to their input.
    pub opening: f64,
    /// Setting files back, forking, running, and looking at what was done.
    pub running: f64,
    /// Judging, and giving findings their words.
    pub judging: f64,
}

/// A run that was made, and is to be judged.
struct Attempt {
    ran: Ran,
    analysis: Analysis,
    traces: Traces,
    begun: Instant,
}

/// See the module's header.
pub struct Runner {
    workshop: Arc<Workshop>,
    /// The last used is the last.
    servers: Vec<Server>,
    observers: (Sight, ()),
    /// What was found.
    pub judge: Judge,
    /// Servers that were opened.
    pub opened: u64,
    /// Runs that were forked from a kept program.
    pub warm: u64,
    /// Where the time went.
    pub times: Times,
    /// Runs that were cut off because they did too much, or had too much memory.
    pub cut: u64,
    /// Runs that have written to tracked files.
    pub touched: u64,
    /// Files that were mapped writable and shared, and not tracked.
    pub hints: BTreeSet<PathBuf>,
    /// How much the last run did to persistent memory (`Traces::weight`).
    pub weight: u64,
    /// The last run has failed before it came to its input: another input would not help.
    pub is_refused: bool,
    /// Whether images are what crashes of seeds' runs have left, as far as that was asked for.
    of_seeds: FxHashMap<ImageId, bool>,
}

impl Runner {
    /// One that has run nothing.
    pub fn new(workshop: Arc<Workshop>, judge: Judge) -> Runner {
        Runner {
            workshop,
            servers: Vec::new(),
            observers: (Sight::default(), ()),
            judge,
            opened: 0,
            warm: 0,
            times: Times::default(),
            cut: 0,
            touched: 0,
            hints: BTreeSet::new(),
            weight: 0,
            is_refused: false,
            of_seeds: FxHashMap::default(),
        }
    }

    /// What servers are made of.
    pub fn workshop(&self) -> &Arc<Workshop> {
        &self.workshop
    }

    /// What the last run has shown.
    pub fn sight(&self) -> &Sight {
        &self.observers.0
    }

    /// Shows again what an earlier run has shown.
    pub fn show_again(&mut self, sight: Sight) {
        self.observers.0 = sight;
    }

    /// What the last run has left behind.
    pub fn left(&self) -> Result<Contents, Error> {
        match self.servers.last() {
            Some(server) => Ok(server.left()?),
            None => Err(Error::Nothing),
        }
    }

    /// Whether an image is what a crash of a seed's run has left.
    fn is_of_seed(&mut self, image: ImageId) -> Result<bool, Error> {
        if let Some(known) = self.of_seeds.get(&image) {
            return Ok(*known);
        }
        let store = &self.workshop.store;
        let node = store.node(image)?;
        let is_of_seed = match (node.parent, node.origin) {
            (Some(parent), Origin::Crash { input, .. }) => {
                let input = store.input_bytes(input)?;
                let case = Case {
                    image: parent,
                    input,
                };
                self.judge.seeds.contains(&case)
            }
            _ => false,
        };
        self.of_seeds.insert(image, is_of_seed);
        Ok(is_of_seed)
    }

    fn server(&mut self, image: ImageId, tells: Tells) -> Result<&mut Server, Error> {
        let is_it = |server: &Server| server.image() == image && *server.tells() == tells;
        let found = self.servers.iter().position(is_it);
        let server = match found.map(|at| self.servers.remove(at)) {
            Some(server) if server.is_usable() => server,
            _ => {
                let begun = Instant::now();
                let opened = Server::open(&self.workshop, image, &tells)?;
                self.opened += 1;
                self.times.opening += begun.elapsed().as_secs_f64();
                opened
            }
        };
        let surplus = self.servers.len().saturating_sub(SERVERS_MAX - 1);
        self.servers.drain(..surplus);
        self.servers.push(server);
        let last = self.servers.len() - 1;
        Ok(&mut self.servers[last])
    }

    /// Runs a case and judges it.
    pub fn run(&mut self, case: &Case) -> Result<ExitKind, Error> {
        let (kind, ()) = self.execute(case, |judge, ended, analysis| {
            judge.look(case, ended, analysis);
        })?;
        Ok(kind)
    }

    /// Runs a case and asks a detector of the user's about it.
    pub fn detect(&mut self, case: &Case, detector: &Detector) -> Result<Verdict, Error> {
        let (_, ending) = self.execute(case, |judge, ended, analysis| {
            judge.look(case, ended, analysis);
            ended.ending
        })?;
        let Some(server) = self.servers.last() else {
            return Err(Error::Nothing);
        };
        let left = Left {
            input: &case.input,
            files: server.left()?,
            ending,
            printed: server.printed()?,
        };
        detector.ask(&left)
    }

    /// Whether a case shows what a detector of the user's has found.
    pub fn is_detected(
        &mut self,
        case: &Case,
        key: &str,
        detector: &Detector,
    ) -> Result<bool, Error> {
        Ok(match self.detect(case, detector)? {
            Verdict::Finding(finding) => crate::judge::key(&finding) == key,
            Verdict::Fine | Verdict::Failed(_) => false,
        })
    }

    /// Whether a case shows a finding.
    pub fn shows(&mut self, case: &Case, key: &str) -> Result<bool, Error> {
        let (_, keys) = self.execute(case, |judge, ended, analysis| {
            judge.keys(case, ended, analysis)
        })?;
        Ok(keys.iter().any(|shown| shown == key))
    }

    /// What the program compares when it runs a case.
    pub fn compared(&mut self, case: &Case) -> Result<Vec<Comparison>, Error> {
        let patience = self.workshop.patience;
        let mut run = |patience| -> Result<Ran, Error> {
            let server = self.server(case.image, Tells::Comparisons)?;
            Ok(server.run(&case.input, patience, &mut Tee::default())?)
        };
        let mut ran = run(patience);
        // The machine may have been busy with something else: then it has compared half of it, and
        // the same campaign goes on in another way.
        if ran.as_ref().is_ok_and(is_hang) {
            ran = run(HANG_FACTOR * patience);
        }
        match ran {
            Ok(ran) => Ok(ran.outcome.comparisons),
            // Nobody depends on the answer.
            Err(Error::Launch(LaunchError::NotKept(_))) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The same, by a detector of the user's if that has found it.
    pub fn shows_by(
        &mut self,
        case: &Case,
        key: &str,
        detector: Option<&Detector>,
    ) -> Result<bool, Error> {
        match detector {
            Some(detector) => self.is_detected(case, key, detector),
            None => self.shows(case, key),
        }
    }

    fn execute<T>(
        &mut self,
        case: &Case,
        look: impl FnOnce(&mut Judge, Ended<'_>, Analysis) -> T,
    ) -> Result<(ExitKind, T), Error> {
        let patience = self.workshop.patience;
        let after_crash = self.workshop.is_after_crash(case.image)?;
        let of_seed = after_crash && self.is_of_seed(case.image)?;
        let mut attempt = self.attempt(case, patience)?;
        if is_hang(&attempt.ran) {
            let printed = self.printed(&attempt.ran, Ending::Hang, after_crash)?;
            let ended = Ended {
                ran: &attempt.ran,
                ending: Ending::Hang,
                printed: &printed,
                after_crash,
                of_seed,
                last: attempt.traces.last,
            };
            if !self.judge.knows_hang(&ended) {
                // The machine may have been busy with something else. Who says that a program does
                // not end must have waited.
                attempt = self.attempt(case, HANG_FACTOR * patience)?;
            }
        }
        let Attempt {
            ran,
            analysis,
            traces,
            begun,
        } = attempt;
        self.times.running += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        self.show(&ran);
        self.weight = traces.weight;
        self.touched += u64::from(ran.watch.has_touched);
        self.hints.extend(ran.outcome.hints.iter().cloned());
        let is_cut = |stopped| matches!(stopped, Stopped::Events | Stopped::Memory);
        self.cut += u64::from(ran.outcome.stopped.is_some_and(is_cut));
        let ending = match (ran.outcome.stopped, ran.outcome.status) {
            _ if is_hang(&ran) => Ending::Hang,
            // However it ends when it is told to, that is not what it was told to do with its
            // input.
            (None, ExitStatus::Code(_)) if ran.is_done => Ending::Code(0),
            (None, ExitStatus::Signal(libc::SIGTERM | libc::SIGKILL)) if ran.is_done => {
                Ending::Code(0)
            }
            (Some(Stopped::Asked | Stopped::Events | Stopped::Memory), _) => Ending::Stopped,
            (_, ExitStatus::Signal(signal)) => Ending::Signal(signal),
            (_, ExitStatus::Code(code)) => Ending::Code(code),
        };
        self.is_refused =
            !ran.watch.has_input && !matches!(ending, Ending::Code(0) | Ending::Stopped);
        let printed = self.printed(&ran, ending, after_crash)?;
        let ended = Ended {
            ran: &ran,
            ending,
            printed: &printed,
            after_crash,
            of_seed,
            last: traces.last,
        };
        let looked = look(&mut self.judge, ended, analysis);
        self.times.judging += begun.elapsed().as_secs_f64();
        let kind = match ending {
            Ending::Hang | Ending::Stopped => ExitKind::Timeout,
            Ending::Signal(_) => ExitKind::Crash,
            Ending::Code(_) => ExitKind::Ok,
        };
        Ok((kind, looked))
    }

    /// What the last run has printed that says how it ended.
    fn printed(&self, ran: &Ran, ending: Ending, after_crash: bool) -> Result<Vec<u8>, Error> {
        let Some(server) = self.servers.last() else {
            return Ok(Vec::new());
        };
        if ending == Ending::Stopped {
            return Ok(Vec::new());
        }
        // Nearly always it is nothing.
        let complained = server.complained()?;
        let is_well = ending == Ending::Code(0);
        match complained.is_empty() && !is_well && after_crash && !ran.watch.has_input {
            true => Ok(server.printed()?.0),
            false => Ok(complained),
        }
    }

    /// Runs a case, on another kept program if the one that there was has gone.
    fn attempt(&mut self, case: &Case, patience: Duration) -> Result<Attempt, Error> {
        let mut is_last = false;
        loop {
            let mut analysis = self.judge.analysis();
            let mut traces = Traces::default();
            let server = self.server(case.image, Tells::Path)?;
            let begun = Instant::now();
            let is_warm = server.is_warm();
            let mut sinks = Tee::of([&mut analysis, &mut traces]);
            match server.run(&case.input, patience, &mut sinks) {
                Err(StageError::Launch(LaunchError::NotKept(_))) if !is_last => is_last = true,
                Err(error) => return Err(error.into()),
                Ok(ran) => {
                    self.warm += u64::from(is_warm);
                    return Ok(Attempt {
                        ran,
                        analysis,
                        traces,
                        begun,
                    });
                }
            }
        }
    }

    fn show(&mut self, ran: &Ran) {
        let sight = &mut self.observers.0;
        for (map, bytes) in [
            (Map::Path, ran.watch.path.bytes()),
            (Map::Situations, ran.watch.situations.bytes()),
            (Map::Opening, ran.watch.opening.bytes()),
        ] {
            sight.map_mut(map).copy_from_slice(bytes);
        }
        match &ran.outcome.edges {
            Some(edges) => sight.map_mut(Map::Edges).copy_from_slice(edges),
            None => sight.map_mut(Map::Edges).fill(0),
        }
    }
}

impl HasObservers for Runner {
    type Observers = (Sight, ());

    fn observers(&self) -> RefIndexable<&Self::Observers, Self::Observers> {
        RefIndexable::from(&self.observers)
    }

    fn observers_mut(&mut self) -> RefIndexable<&mut Self::Observers, Self::Observers> {
        RefIndexable::from(&mut self.observers)
    }
}
