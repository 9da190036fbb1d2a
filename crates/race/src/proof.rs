//! What it takes to see a finding again: the schedule, the crash, and what is to be seen.

use std::fmt;
use std::sync::Arc;

use brownout_explore::{OneCrash, Trial};
use brownout_findings::numbers::{counted, either};
use brownout_host::{
    Decision, ExitStatus, Misfit, Schedule, Stopped, decode_decisions, encode_decisions,
};
use brownout_trace::event::FileId;
use serde::{Deserialize, Serialize};

use crate::deadlock::{deadlock_name, waits};
use crate::effects::Effects;
use crate::ending::{self, death};
use crate::inputs::{Input, Inputs};
use crate::judge::{self, Judged, Verdict, is_same};
use crate::options::{Error, Options, io_error, together};
use crate::stage::{Act, Bounds, Ran, Stage};
use crate::watch::Watch;

/// What is to be seen. Names are made of addresses of code: the same for the same program and
/// libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// An effect that outlives its source.
    Effect {
        /// Its name.
        name: u64,
    },
    /// A lock that stays taken.
    Change {
        /// The name of the place that takes it.
        name: u64,
    },
    /// Threads that wait for ever.
    Deadlock {
        /// The name of the places at which they wait.
        name: u64,
    },
    /// Something that is read, and never written back.
    Publication {
        /// The name of the store.
        store: u64,
    },
    /// A signal that ends the program.
    Crash {
        /// The name of the signal and of the place.
        name: u64,
    },
    /// An exit code of the program.
    Exit {
        /// Which.
        code: i32,
    },
    /// A signal that somebody sends to the program, perhaps itself.
    Killed {
        /// Which.
        signal: i32,
    },
}

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The list of the schedule.
    schedule: Vec<u8>,
    /// [`Scheduled::check`](brownout_host::Scheduled::check) of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<u64>,
    /// What ended its run, if it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bounds: Option<Bounds>,
    /// What the program reads, if that is not the user's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Vec<u8>>,
    /// What is to be seen.
    what: What,
    /// Which crash, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crash: Option<OneCrash>,
    /// What runs after it: 0 is recovery alone.
    #[serde(default)]
    procedure: usize,
    /// What then fails; nothing if the effect is only left unrepaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Nothing fails, but recovery does not leave this: file, offset, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    initial: Vec<(u32, u64, Vec<u8>)>,
}

/// What a replay has shown.
pub struct Replayed {
    /// It is what the finding says.
    pub is_same: bool,
    /// What happened, for people.
    pub says: Vec<String>,
}

impl Proof {
    pub(crate) fn new(
        decisions: &[Decision],
        check: Option<u64>,
        input: Option<Vec<u8>>,
        what: What,
    ) -> Proof {
        Proof {
            schedule: encode_decisions(decisions),
            check,
            bounds: None,
            input,
            what,
            crash: None,
            procedure: 0,
            failure: None,
            initial: Vec::new(),
        }
    }

    /// It is seen when a run is ended, because it does not end.
    pub(crate) fn with_bounds(self, bounds: Bounds) -> Proof {
        Proof {
            bounds: Some(bounds),
            ..self
        }
    }

    pub(crate) fn with_crash(self, judged: &Judged, trial: &Trial) -> Proof {
        Proof {
            crash: judged.spec(trial),
            procedure: judged.procedure,
            failure: match &judged.verdict {
                Verdict::Confirmed(failure) => Some(failure.clone()),
                _ => None,
            },
            ..self
        }
    }

    pub(crate) fn with_initial(self, initial: Vec<(FileId, u64, Vec<u8>)>) -> Proof {
        let initial = initial.into_iter();
        Proof {
            initial: initial
                .map(|(file, at, bytes)| (file.0, at, bytes))
                .collect(),
            ..self
        }
    }

    /// Whether it takes a crash of the machine, and a recovery.
    pub fn has_crash(&self) -> bool {
        self.crash.is_some()
    }

    /// What the program reads, if the search has made that.
    pub fn input(&self) -> Option<&[u8]> {
        self.input.as_deref()
    }

    /// The decisions of its schedule; none if they are damaged.
    pub fn decisions(&self) -> Option<Vec<Decision>> {
        decode_decisions(&self.schedule)
    }

    /// Runs the schedule again, makes the crash again, and looks whether the same comes of it.
    pub fn replay(&self, options: &Options) -> Result<Replayed, Error> {
        let damaged = || Error::Usage("the schedule of this token is damaged".into());
        let decisions = self.decisions().ok_or_else(damaged)?;
        let mut stage = Stage::new(options)?;
        if let Some(bounds) = self.bounds {
            stage.bound_by(bounds);
        } else if let What::Deadlock { .. } = self.what {
            // Who spins for ever does so behind the last decision.
            stage.bound_steps(
                decisions
                    .last()
                    .map_or(0, |decision| u64::from(decision.step)),
            );
        }
        let path = options.program.stdin.clone();
        let input = match &self.input {
            Some(content) => Inputs::write(stage.scratch().join("input"), content.clone())
                .map_err(io_error("cannot write the input"))?,
            None => Input { path, made: None },
        };
        let schedule = match self.check {
            Some(check) => Schedule::repeat_exactly(decisions, check),
            None => Schedule::repeat(decisions),
        };
        let act = Act::new(schedule.clone(), &Arc::new(input));
        let mut says = Vec::new();
        let is_same = match self.what {
            What::Deadlock { name } => {
                let mut watch = Watch::new(options.model);
                let ran = stage.run(act, &mut watch)?;
                let waits = waits(&ran, &watch);
                if let Some((waits, _)) = &waits {
                    let count = waits.len() as u64;
                    let wait = either(count, "waits", "wait");
                    says.push(format!("{} {wait} for ever", counted(count, "thread")));
                }
                waits.is_some_and(|(waits, _)| deadlock_name(&waits) == name)
            }
            What::Publication { store } => {
                let mut watch = Watch::new(options.model);
                stage.run(act, &mut watch)?;
                watch
                    .sightings
                    .values()
                    .any(|s| s.is_inter && s.store.site.name == store)
            }
            What::Crash { name } => {
                let mut watch = Watch::new(options.model);
                let ran = stage.run(act, &mut watch)?;
                expect_repeated(&ran, &schedule)?;
                says.push(ends(&ran));
                death(&ran, &watch).is_some_and(|death| death.name == name)
            }
            What::Exit { .. } | What::Killed { .. } => {
                let ran = stage.run(act, &mut Watch::new(options.model))?;
                expect_repeated(&ran, &schedule)?;
                says.push(ends(&ran));
                match self.what {
                    What::Killed { signal } => ran.outcome.status == ExitStatus::Signal(signal),
                    What::Exit { code } => ran.outcome.status == ExitStatus::Code(code),
                    _ => false,
                }
            }
            What::Effect { .. } | What::Change { .. } => {
                self.replay_crash(options, &stage, act, &mut says)?
            }
        };
        Ok(Replayed { is_same, says })
    }

    fn replay_crash(
        &self,
        options: &Options,
        stage: &Stage,
        act: Act,
        says: &mut Vec<String>,
    ) -> Result<bool, Error> {
        let follows = matches!(self.what, What::Effect { .. });
        let mut effects = Effects::new(options.model);
        let schedule = act.schedule.clone();
        let (run, ran) = stage.record(act.following(follows), &mut effects)?;
        expect_repeated(&ran, &schedule)?;
        let (effects, _, _) = effects.finish();
        let more: Vec<_> = options
            .continues
            .iter()
            .map(|c| together(&options.recover, c))
            .collect();
        let mut trial = Trial::new(&stage.explore, run, &more)?;
        let no_crash = || Error::Usage("this token names no crash".into());
        let spec = self.crash.as_ref().ok_or_else(no_crash)?;
        let crash = trial.crash_of(spec).ok_or_else(|| {
            other_run(match spec.run == trial.name() {
                true => "it stores the same, and yet may not leave this crash",
                false => "its threads took the same turns, but something else was stored",
            })
        })?;
        let tried = trial.recover(&crash, self.procedure)?;
        let initial = self.initial.iter();
        let initial: Vec<_> = initial
            .map(|(file, at, bytes)| (FileId(*file), *at, bytes.clone()))
            .collect();
        let is_set_back = trial.is_still_there(&initial);
        says.push(match &tried.failure {
            Some(failure) => format!("after the crash, {failure}"),
            None => format!(
                "after the crash, recovery ends with {}",
                tried.outcome.status
            ),
        });
        if !is_set_back {
            says.push("it does not set the word back to what brownout_sync_var says".to_owned());
        }
        let shown = trial.show(&crash, self.procedure, &tried, &options.folder)?;
        says.push(format!("natively: {}", shown.command));
        says.push(format!("debugger: {}", shown.gdb));
        let What::Effect { name } = self.what else {
            if !initial.is_empty() {
                return Ok(tried.failure.is_none() && !is_set_back);
            }
            // How it is seen that something hangs depends on the machine's load.
            return Ok(tried.failure.is_some() == self.failure.is_some());
        };
        let expected = match &self.failure {
            Some(failure) => Verdict::Confirmed(failure.clone()),
            None => Verdict::Unrepaired,
        };
        for effect in effects.iter().filter(|effect| effect.name == name) {
            let judged = judge::effect(&mut trial, effect, 1 + more.len())?;
            if is_same(&judged.verdict, &expected)
                && tried.failure.is_some() == self.failure.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn ends(ran: &Ran) -> String {
    format!(
        "the program ends with {}",
        ending::words(ran.outcome.status)
    )
}

fn other_run(how: impl fmt::Display) -> Error {
    Error::Usage(format!(
        "the program's run is not the one that was searched: it, its input or its files have changed ({how})"
    ))
}

/// Fails unless the run came to its end, with the same turns as the one that is repeated.
fn expect_repeated(ran: &Ran, schedule: &Schedule) -> Result<(), Error> {
    let outcome = &ran.outcome;
    match (outcome.stopped, ran.scheduled.misfit(schedule)) {
        (Some(Stopped::Asked), _) => Err(Error::Usage("stopped before anything was seen".into())),
        // What the program has left behind is waited for, in the search as here.
        (Some(_), _) => Err(Error::Usage(format!(
            "the program was ended after {:.0} s and {} events, before its end; the run that was searched did end: if this machine is busy, try again",
            outcome.wall.as_secs_f64(),
            outcome.events
        ))),
        (_, Some(Misfit::Short(left))) => Err(other_run(format!(
            "it ended before the last {left} of its decisions"
        ))),
        (_, Some(_)) => Err(other_run("its threads came to other places")),
        (None, None) => Ok(()),
    }
}
