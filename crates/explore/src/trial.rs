//! One crash of a recorded run at a time: for analyses that know which crash they want to see.
//!
//! ```text
//!  Run ─▶ Trial ─▶ crash(wish) ─▶ recover ─▶ Tried: how it ended, what is wrong with that, what is there now
//!                     └▶ all_survive, right_before: what to compare it with    └▶ show: the same natively
//! ```
//! Guarantee: a crash that is given is legal, whatever was asked for; there is none if what was
//! asked for cannot be. Whether a recovery has failed is judged as an exploration judges it, by how
//! it ends on what the whole run leaves. Threads of a recovery take turns, so that it ends the same
//! way each time.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brownout_findings::touched::Touch;
use brownout_findings::{Frame, Place, Reproduction};
use brownout_host::Limits;
use brownout_model::{ByteRange, Choices, Moment, Survivors, Unit, keys};
use brownout_trace::event::{FileId, ThreadId};
use rustc_hash::FxHashMap;

use crate::execution::{self, Acknowledged, Command, End, Setting, Turns};
use crate::finding::{self, OneCrash};
use crate::native::{self, Stage};
use crate::options::{Error, Options, io_error};
use crate::oracle::{Oracle, Span, Symptom};
use crate::outcome::{Hang, Outcome, Status};
use crate::recording::{Did, Reason, Recording};
use crate::run::{Recorded, Run};
use crate::site::Site;
use crate::stacks::Resolver;
use crate::unit::{PAGE, is_ordinary, unit_of};
use crate::view::{Image, View};
use crate::world::World;

/// A recovery that makes so many times the steps of one without a crash does not end; nor one that
/// takes so many times as long.
const STEPS_FACTOR: u64 = 20;
const STEPS_MIN: u64 = 300_000;
const TIME_FACTOR: u32 = 30;
const TIME_MIN: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_millis(1500);
/// Of the first run, on which the others' bound depends.
const FIRST_IDLE: Duration = Duration::from_secs(10);

/// A store of the run, by its place in the total order of the run's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The number of its event.
    pub event: u64,
}

/// Which crash is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// All of this is lost.
    pub lost: &'a [Stored],
    /// All of this is there.
    pub kept: &'a [Stored],
    /// The power fails after this event.
    pub after: Option<u64>,
    /// The power fails before this event.
    pub before: Option<u64>,
}

/// Where in the run something happened, for people.
#[derive(Clone, Debug)]
pub struct Happened {
    /// Who did it.
    pub thread: ThreadId,
    /// Its place in the total order of the run's events.
    pub event: u64,
    /// Where in the code, innermost first.
    pub stack: Vec<Frame>,
    /// To which bytes.
    pub place: Option<Place>,
}

/// A crash of the run.
#[derive(Clone)]
pub struct Crash {
    image: Image,
    point: u32,
    /// What was to be kept is there in every crash at this moment. Else it is there only if its
    /// line has left the cache by itself.
    pub is_certain: bool,
}

/// What a recovery came to.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What was seen of it.
    pub outcome: Outcome,
    /// What is wrong with it, in words that complete "after a crash here, …".
    pub failure: Option<String>,
}

/// What runs after a crash, and how it ends if nothing was lost.
struct Procedure {
    setting: Setting,
    oracle: Oracle,
    control: Outcome,
    wall: Duration,
}

/// See the module's header.
pub struct Trial {
    recording: Recording,
    /// By the number of the event: its steps.
    stores: FxHashMap<u64, Vec<usize>>,
    resolver: Option<Resolver>,
    /// Ended before what it stands on.
    world: World,
    procedures: Vec<Procedure>,
    setup: Option<String>,
    run: Run,
}

impl Trial {
    /// Has the recovery of the options run on what the whole run leaves; then each of `more` as
    /// well. They are known by their numbers: the recovery is 0.
    pub fn new(options: &Options, mut run: Run, more: &[Command]) -> Result<Trial, Error> {
        let Recorded { recording, .. } = run.take()?;
        // A run that was cut short may have touched nothing yet.
        unless_stopped(options.stop.load(Ordering::Relaxed))?;
        if !recording.touched || recording.points.is_empty() {
            return Err(Error::Usage("no persistent memory was touched".into()));
        }
        let mut world = World::new(&run.origin, &recording.files)
            .map_err(io_error("cannot make a folder for crash images"))?;
        let last = recording.points.len() as u32 - 1;
        let whole = newest(&recording, last);
        let mut procedures = Vec::new();
        for command in std::iter::once(&options.recover).chain(more) {
            let mut setting = Setting {
                pm_globs: run.origin.pm_globs.clone(),
                recover: command.clone(),
                checker: options.checker.clone(),
                limits: Limits {
                    events: Some(100_000_000),
                    idle: Some(FIRST_IDLE),
                    wall: Some(options.patience.unwrap_or(Duration::from_secs(60))),
                    steps: None,
                    memory: None,
                },
                program_limits: Limits::default(),
                end: End::new(options.stop.clone()),
                names: run.origin.enclosures.is_some().then_some(options.promise),
                expected: OnceLock::new(),
                varying: None,
                turns: Turns::new(true),
                touches: options.touches.clone(),
                opens: false,
                notices_changes: false,
            };
            let told = Acknowledged::default();
            let mut execute = |setting: &Setting| {
                execution::execute(
                    setting,
                    command,
                    whole.crashes(),
                    &mut world,
                    &whole,
                    &told,
                    false,
                )
            };
            let mut execution = execute(&setting)?;
            unless_stopped(options.stop.load(Ordering::Relaxed))?;
            if let Status::Hang(Hang::Blocked | Hang::Time) = execution.outcome.status {
                // As in `recover`: all others are compared with this one.
                let limits = setting.limits;
                setting.limits = patient(limits);
                execution = execute(&setting)?;
                setting.limits = limits;
                unless_stopped(options.stop.load(Ordering::Relaxed))?;
            }
            let steps = execution.events.saturating_mul(STEPS_FACTOR);
            let time = (execution.longest * TIME_FACTOR).max(TIME_MIN);
            setting.limits.idle = Some(IDLE + 2 * execution.longest);
            setting.limits.events = Some(steps.max(STEPS_MIN));
            setting.limits.wall = Some(options.patience.unwrap_or(time));
            let good_exit = match execution.outcome.status {
                status if status.killed_by().is_some() => 0,
                Status::Exit(code) => code,
                _ => 0,
            };
            procedures.push(Procedure {
                setting,
                oracle: Oracle {
                    good_exit,
                    references: None,
                    only_durability: false,
                    ordered: false,
                },
                control: execution.outcome,
                wall: execution.longest,
            });
        }
        let mut stores: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (number, step) in recording.steps.iter().enumerate() {
            if matches!(step.did, Did::Store(..)) {
                stores.entry(step.site.event).or_default().push(number);
            }
        }
        Ok(Trial {
            recording,
            stores,
            resolver: None,
            world,
            procedures,
            setup: run.setup_needed(options).map(str::to_owned),
            run,
        })
    }

    /// Why what a procedure does after a crash says nothing: it does not end well although nothing
    /// was lost.
    pub fn is_unfit(&self, procedure: usize) -> Option<String> {
        let procedure = &self.procedures[procedure];
        let symptom = procedure
            .oracle
            .judge(&procedure.control, Span::default())?;
        Some(symptom.describe(&procedure.control))
    }

    /// What of the procedures' ends cannot be judged, although nothing was lost: the first, for
    /// people.
    pub fn not_judged(&self) -> Option<String> {
        const ANYWAY: &str = "even if nothing is lost at the end of the run";
        let told = |(number, procedure): (usize, &Procedure)| {
            let who = match number {
                0 => "",
                _ => "with what --continue adds, ",
            };
            if let Some(why) = self.is_unfit(number) {
                return Some(format!(
                    "{who}{why} {ANYWAY}: what it does after a crash proves nothing"
                ));
            }
            let code = procedure.oracle.good_exit;
            let words = procedure.control.last_words();
            let words = words.map_or(String::new(), |words| format!(" ({words})"));
            (code != 0).then(|| {
                format!("{who}recovery ends with exit code {code} {ANYWAY}{words}: that code is not judged")
            })
        };
        self.procedures.iter().enumerate().find_map(told)
    }

    /// Equal for equal runs.
    pub fn name(&self) -> String {
        self.recording.name()
    }

    /// The first crash of those that are wanted, in which everything has survived that may; if
    /// there are several, the first in which what is kept is certain.
    pub fn crash(&self, wish: Wish<'_>) -> Option<Crash> {
        let (lost, kept) = (self.parts(wish.lost)?, self.parts(wish.kept)?);
        let moments = lost.iter().chain(&kept).map(|(_, moment, _)| moment.0);
        // Steps come in the order of their events.
        let steps = &self.recording.steps;
        let until = |event: u64| steps.partition_point(|step| step.site.event <= event) as u64;
        let from = moments.chain(wish.after.map(until)).max().unwrap_or(0);
        let end = wish.before.map_or(u64::MAX, |event| {
            steps.partition_point(|step| step.site.event < event) as u64
        });
        let mut first: Option<Crash> = None;
        for (number, point) in (0..).zip(&self.recording.points) {
            // Of names and sizes, nothing is lost.
            if point.moment < from || !point.lost.is_empty() {
                continue;
            }
            if point.moment > end {
                break;
            }
            let view = View {
                timeline: self.recording.timeline.clone(),
                point: number,
            };
            let mut survivors = BTreeMap::new();
            if !lose(&view, &lost, &mut survivors) {
                break;
            }
            let kept = kept.iter().map(|(unit, moment, _)| {
                let choices = view.choices(*unit)?;
                presence(choices, survivors.get(unit), *moment)
            });
            let kept: Option<Vec<Kept>> = kept.collect();
            let Some(kept) = kept.filter(|kept| !kept.contains(&Kept::Lost)) else {
                continue;
            };
            let is_certain = kept.iter().all(|kept| *kept == Kept::Certain);
            let crash = Crash {
                image: Image {
                    view,
                    survivors,
                    files: point.files.clone(),
                },
                point: number,
                is_certain,
            };
            if is_certain {
                return Some(crash);
            }
            first.get_or_insert(crash);
        }
        first
    }

    /// The crash right before a store, in which all of `lost` is lost, as far as it can be, and
    /// everything else has survived.
    pub fn right_before(&self, store: Stored, lost: &[Stored]) -> Option<Crash> {
        let first = *self.stores.get(&store.event)?.first()? as u64;
        let last = Moment(first);
        let mut points = (0..).zip(&self.recording.points);
        let is_it = |(_, point): &(u32, &crate::recording::FailurePoint)| {
            point.moment >= last.0 && point.lost.is_empty()
        };
        let (number, point) = points.find(is_it)?;
        let view = View {
            timeline: self.recording.timeline.clone(),
            point: number,
        };
        let mut survivors: BTreeMap<Unit, Survivors> = BTreeMap::new();
        for unit in view.open() {
            if let Some(choices) = view.choices(*unit) {
                survivors.insert(*unit, choices.open_until(last).newest());
            }
        }
        for part in self.parts(lost)? {
            lose(&view, &[part], &mut survivors);
        }
        Some(Crash {
            image: Image {
                view,
                survivors,
                files: point.files.clone(),
            },
            point: number,
            is_certain: true,
        })
    }

    /// The parts of stores, by unit, with their moments; none if there is no such store.
    fn parts(&self, stored: &[Stored]) -> Option<Vec<(Unit, Moment, ByteRange)>> {
        let bytes = self.recording.timeline.unit_bytes();
        let mut found = Vec::new();
        for one in stored {
            for number in self.stores.get(&one.event)? {
                let Did::Store(range, _) = self.recording.steps[*number].did else {
                    continue;
                };
                let size = if is_ordinary(keys::place(range.start()).0) {
                    PAGE
                } else {
                    bytes
                };
                for part in range.split(size) {
                    let unit = unit_of(part.start().0, bytes);
                    found.push((unit, Moment(*number as u64 + 1), part));
                }
            }
        }
        Some(found)
    }

    /// Whether two stores touch a line in common (a page, if that is what is written back): then
    /// one cannot be lost without what came after it there.
    pub fn share_unit(&self, one: Stored, other: Stored) -> bool {
        let units = |stored| {
            let parts = self.parts(&[stored]).unwrap_or_default();
            parts.into_iter().map(|(unit, ..)| unit)
        };
        let ones: Vec<Unit> = units(one).collect();
        units(other).any(|unit| ones.contains(&unit))
    }

    /// The crash at the same moment in which everything has survived.
    pub fn all_survive(&self, crash: &Crash) -> Crash {
        Crash {
            image: newest(&self.recording, crash.point),
            point: crash.point,
            is_certain: true,
        }
    }

    /// The crash at the same moment in which these are lost, too; none if they cannot be.
    pub fn without(&self, crash: &Crash, lost: &[Stored]) -> Option<Crash> {
        let parts = self.parts(lost)?;
        let mut without = crash.clone();
        lose(&crash.image.view, &parts, &mut without.image.survivors).then_some(without)
    }

    /// The crash in numbers.
    pub fn spec(&self, crash: &Crash) -> OneCrash {
        let survivors = crash.image.survivors.iter();
        OneCrash {
            point: crash.point,
            run: self.name(),
            survivors: survivors
                .map(|(unit, s)| (unit.0, s.ordered, s.unordered.clone()))
                .collect(),
        }
    }

    /// The crash of those numbers; none if this is another run.
    pub fn crash_of(&self, spec: &OneCrash) -> Option<Crash> {
        if spec.run != self.name() {
            return None;
        }
        let point = self.recording.points.get(spec.point as usize)?;
        let view = View {
            timeline: self.recording.timeline.clone(),
            point: spec.point,
        };
        let mut survivors = BTreeMap::new();
        for (unit, ordered, unordered) in &spec.survivors {
            let chosen = Survivors {
                ordered: *ordered,
                unordered: unordered.clone(),
            };
            let choices = view.choices(Unit(*unit))?;
            if !choices.open().allows(&chosen) {
                return None;
            }
            survivors.insert(Unit(*unit), chosen);
        }
        Some(Crash {
            image: Image {
                view,
                survivors,
                files: point.files.clone(),
            },
            point: spec.point,
            is_certain: true,
        })
    }

    /// Where the power fails.
    pub fn place_of(&mut self, crash: &Crash) -> (String, Option<Happened>) {
        let point = &self.recording.points[crash.point as usize];
        let text = match point.reason {
            Reason::Completes => "the power fails before this has completed anything",
            Reason::Acknowledges => "the power fails right after this",
            Reason::End => "the power fails at the end of the run",
        };
        let site = point.site;
        (text.to_owned(), site.map(|site| self.happened(site, None)))
    }

    /// Who made a store, where, and to which bytes.
    pub fn store(&mut self, stored: Stored) -> Option<Happened> {
        let number = *self.stores.get(&stored.event)?.first()?;
        let step = self.recording.steps[number];
        let Did::Store(range, addr) = step.did else {
            return None;
        };
        let (file, offset) = keys::place(range.start());
        let registered = &self.recording.registered;
        let name = registered
            .name(range, Some(Moment(stored.event)))
            .or_else(|| self.resolver().accessed(step.site, range.len()));
        let path = self.recording.files.get(&file).map(|file| &file.path);
        let place = Place {
            file: path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
            offset,
            size: range.len(),
            address: addr.0,
            name,
        };
        Some(self.happened(step.site, Some(place)))
    }

    fn happened(&mut self, site: Site, place: Option<Place>) -> Happened {
        Happened {
            thread: site.thread,
            event: site.event,
            stack: self.resolver().stack(site),
            place,
        }
    }

    fn resolver(&mut self) -> &mut Resolver {
        let definitions = &self.recording.definitions;
        self.resolver.get_or_insert_with(|| definitions.resolve())
    }

    /// What a store has changed: its bytes right before it, and right after. None if nothing was
    /// uncertain about it at any failure point.
    pub fn change(&self, stored: Stored) -> Option<(Vec<u8>, Vec<u8>)> {
        let parts = self.parts(&[stored])?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (unit, moment, range) in parts {
            let points = &self.recording.points;
            let number = points.iter().position(|point| point.moment >= moment.0)?;
            let view = View {
                timeline: self.recording.timeline.clone(),
                point: number as u32,
            };
            let choices = view.choices(unit)?;
            let size = choices.size() as u64;
            let at = (range.start().0 % size) as usize;
            let content = |last: u64| {
                let made = choices.open_until(Moment(last)).newest();
                choices.content(&made)[at..at + range.len() as usize].to_vec()
            };
            choices
                .writes()
                .iter()
                .find(|write| write.moment == moment)?;
            before.extend(content(moment.0 - 1));
            after.extend(content(moment.0));
        }
        Some((before, after))
    }

    /// The bytes of a store as the crash has left them.
    pub fn left(&self, crash: &Crash, stored: Stored) -> Option<Vec<(FileId, u64, Vec<u8>)>> {
        let mut parts = Vec::new();
        for range in self.ranges(stored)? {
            let mut bytes = Vec::new();
            for at in range.start().0..range.end().0 {
                let line = crash.image.line(crate::line::LineKey::of(at));
                bytes.push(line[(at % crate::line::LINE as u64) as usize]);
            }
            let (file, offset) = keys::place(range.start());
            parts.push((file, offset, bytes));
        }
        Some(parts)
    }

    /// Whether those bytes are still the same after the last recovery.
    pub fn is_still_there(&self, parts: &[(FileId, u64, Vec<u8>)]) -> bool {
        let is_there = |(file, offset, bytes): &(FileId, u64, Vec<u8>)| {
            let path = self.world.called(*file).cloned();
            let path = path.or_else(|| Some(self.recording.files.get(file)?.path.clone()));
            let opened = path.and_then(|path| File::open(self.world.find(&path)).ok());
            let mut now = vec![0; bytes.len()];
            opened.is_some_and(|opened| opened.read_exact_at(&mut now, *offset).is_ok())
                && now == *bytes
        };
        parts.iter().all(is_there)
    }

    fn ranges(&self, stored: Stored) -> Option<Vec<ByteRange>> {
        let steps = self.stores.get(&stored.event)?.iter();
        let ranges = steps.filter_map(|number| match self.recording.steps[*number].did {
            Did::Store(range, _) => Some(range),
            _ => None,
        });
        Some(ranges.collect())
    }

    /// Runs a procedure on what a crash leaves.
    pub fn recover(&mut self, crash: &Crash, procedure: usize) -> Result<Tried, Error> {
        let mut outcome = self.execute(crash, procedure)?;
        if let Status::Hang(Hang::Blocked | Hang::Time) = outcome.status {
            // A busy machine may keep anybody waiting. It has to hang twice, the second time for
            // longer.
            let limits = self.procedures[procedure].setting.limits;
            self.procedures[procedure].setting.limits = patient(limits);
            let again = self.execute(crash, procedure);
            self.procedures[procedure].setting.limits = limits;
            outcome = again?;
        }
        let procedure = &self.procedures[procedure];
        let symptom = procedure.oracle.judge(&outcome, Span::default());
        // What does not end well although nothing is lost cannot be judged.
        let control = procedure.oracle.judge(&procedure.control, Span::default());
        let symptom = symptom.filter(|symptom| !control.is_some_and(|c| c.is_like(symptom)));
        Ok(Tried {
            failure: symptom.map(|symptom: Symptom| symptom.describe(&outcome)),
            outcome,
        })
    }

    fn execute(&mut self, crash: &Crash, procedure: usize) -> Result<Outcome, Error> {
        let setting = &self.procedures[procedure].setting;
        let point = &self.recording.points[crash.point as usize];
        if let (Some(touches), Some(site)) = (&setting.touches, point.site) {
            let resolver = self
                .resolver
                .get_or_insert_with(|| self.recording.definitions.resolve());
            touches.add(&resolver.stack(site), Touch::Crashes, 1);
        }
        let execution = execution::execute(
            setting,
            &setting.recover,
            crash.image.crashes(),
            &mut self.world,
            &crash.image,
            &Acknowledged::default(),
            false,
        )?;
        unless_stopped(setting.end.is_wanted())?;
        Ok(execution.outcome)
    }

    /// Runs a procedure natively on what a crash leaves, and says how to do that by hand; the files
    /// go to a folder.
    pub fn show(
        &mut self,
        crash: &Crash,
        procedure: usize,
        tried: &Tried,
        folder: &Path,
    ) -> Result<Reproduction, Error> {
        let procedure = &self.procedures[procedure];
        let names: BTreeMap<FileId, PathBuf> = self
            .recording
            .files
            .iter()
            .map(|(id, file)| (*id, file.path.clone()))
            .collect();
        let image = &crash.image;
        let images = finding::write_image(image, &mut self.world, &names, folder)
            .map_err(io_error("cannot write a crash image"))?;
        let recover = &procedure.setting.recover;
        let setup = self.setup.as_deref();
        let mut reproduction = finding::reproduction(&names, &images, image, recover, setup);
        let mut stage = Stage {
            setting: &procedure.setting,
            world: &mut self.world,
            originals: self.run.originals.as_ref(),
            control: None,
            patience: native::patience(procedure.wall, None),
            until: None,
        };
        let told = Acknowledged::default();
        let native = stage.recover(image, &images, &told, &tried.outcome).ok();
        reproduction.status = tried.outcome.status.to_string();
        reproduction.stdout = String::from_utf8_lossy(&tried.outcome.stdout).into_owned();
        let alike = |native: &Outcome| {
            let shown = procedure.oracle.judge(native, Span::default());
            let expected = procedure.oracle.judge(&tried.outcome, Span::default());
            match (shown, expected) {
                (Some(shown), Some(expected)) => shown.is_like(&expected),
                (None, None) => true,
                _ => false,
            }
        };
        reproduction.confirmed = native.as_ref().is_some_and(alike);
        Ok(reproduction)
    }
}

/// Twice as long.
fn patient(limits: Limits) -> Limits {
    Limits {
        idle: limits.idle.map(|idle| 2 * idle),
        wall: limits.wall.map(|wall| 2 * wall),
        ..limits
    }
}

/// A program that ran while somebody wanted all to end was cut short, perhaps. That looks as if it
/// hung, and must not be judged.
fn unless_stopped(is_wanted: bool) -> Result<(), Error> {
    match is_wanted {
        true => Err(Error::Stopped),
        false => Ok(()),
    }
}

/// What is there at a failure point if everything survives.
fn newest(recording: &Recording, point: u32) -> Image {
    Image {
        view: View {
            timeline: recording.timeline.clone(),
            point,
        },
        survivors: BTreeMap::new(),
        files: recording.points[point as usize].files.clone(),
    }
}

/// Takes stores out of what survives, and with them what cannot have survived then. False if one of
/// them cannot be lost.
fn lose(
    view: &View,
    lost: &[(Unit, Moment, ByteRange)],
    survivors: &mut BTreeMap<Unit, Survivors>,
) -> bool {
    for (unit, moment, range) in lost {
        let Some(choices) = view.choices(*unit) else {
            return false;
        };
        let mut chosen = match survivors.get(unit) {
            Some(chosen) => chosen.clone(),
            None => choices.newest(),
        };
        let (mut ordered, mut unordered, mut is_there) = (0, 0, false);
        for write in choices.writes() {
            let is_meant = write.moment == *moment && write.range.overlaps(*range);
            is_there |= is_meant;
            if write.unordered {
                if is_meant {
                    chosen.unordered[unordered] = false;
                }
                unordered += 1;
            } else {
                if is_meant {
                    chosen.ordered = chosen.ordered.min(ordered);
                }
                ordered += 1;
            }
        }
        // What is not there any more is certain.
        if !is_there || !choices.open().allows(&chosen) {
            return false;
        }
        survivors.insert(*unit, chosen);
    }
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Certain,
    Chosen,
    Lost,
}

/// Whether a store is there if these survive.
fn presence(choices: &Choices, survivors: Option<&Survivors>, moment: Moment) -> Option<Kept> {
    let is_it = |write: &&brownout_model::UncertainWrite| write.moment == moment;
    let write = choices.writes().iter().find(is_it);
    let Some(write) = write else {
        return Some(Kept::Certain);
    };
    let lost = survivors.is_some_and(|survivors| {
        let lost = choices.lost(survivors);
        lost.iter().any(|lost| lost.moment == moment)
    });
    let oldest = choices.open().oldest();
    let may_be_lost = choices.lost(&oldest).iter().any(|w| w.moment == moment);
    Some(match (lost, write.certain || !may_be_lost) {
        (true, _) => Kept::Lost,
        (false, true) => Kept::Certain,
        (false, false) => Kept::Chosen,
    })
}
