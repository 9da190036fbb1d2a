//! What is made of a run that has shown something new.
//!
//! ```text
//!  the same run again, followed ─▶ effects ─▶ crash, recovery ─▶ fewer context switches ─▶ finding, proof
//! ```
//! Deadlocks, crashes of the program, and what is read and never written back, need no crash of the
//! machine.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_explore::Trial;
use brownout_findings::blame;
use brownout_findings::numbers::{counted, either, grouped};
use brownout_host::{Decision, ExitStatus};
use rustc_hash::FxHashSet;

use super::state::{CHANGE_TRIES_MAX, Looked, Pairs, State};
use super::{Books, Over, Search, Shown, choosing};
use crate::deadlock::{self, deadlock_name};
use crate::discoveries::{Discovery, Remark};
use crate::effects::{Effect, Effects, How};
use crate::ending;
use crate::finding;
use crate::judge::{self, Judged, Verdict, is_same};
use crate::minimise::{Effort, Least, minimise};
use crate::options::{Error, io_error};
use crate::proof::{Proof, What};
use crate::site::pair_of;
use crate::stage::{Act, Ran};
use crate::watch::{Sighting, Watch};
use crate::words::Suspect;

/// If recovery fails so often though nothing is lost, there is nothing to be learnt from this run.
const FAIL_ANYWAY_MAX: u32 = 3;
/// What may be spent to make a list shorter.
const EFFORT: Effort = Effort {
    runs: 60,
    time: Duration::from_secs(4),
};

impl Shown {
    /// What it takes to see this again.
    fn proof(&self, what: What) -> Proof {
        Proof::new(&self.decisions, self.check, self.input.made.clone(), what)
    }
}

/// How many context switches of a list the finding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switches {
    /// All of them.
    Needed,
    /// Nobody has tried to the end whether fewer do.
    Seen,
}

impl From<&Least> for Switches {
    fn from(least: &Least) -> Switches {
        match least.is_least {
            true => Switches::Needed,
            false => Switches::Seen,
        }
    }
}

impl Search<'_> {
    /// What may be spent to make a list shorter, now.
    fn effort(&self) -> Effort {
        let left = self.stage.time_left().unwrap_or(EFFORT.time);
        Effort {
            time: EFFORT.time.min(left),
            ..EFFORT
        }
    }

    /// Runs again what is to be looked into, and tries its crashes.
    pub(super) fn look_into(
        &self,
        shown: &Shown,
        check: u64,
        follows: bool,
        books: &dyn Books,
    ) -> Result<Looked, Error> {
        let mut effects = Effects::new(self.options.model);
        let act = shown.again().following(follows);
        let (run, again) = match self.stage.record(act, &mut effects) {
            Err(error) if error.is_other_run() => {
                self.lock().has_diverged += 1;
                return Ok(Looked::InVain);
            }
            recorded => recorded?,
        };
        if self.options.stop.load(Ordering::Relaxed) || again.is_cut {
            return Ok(Looked::Over);
        }
        if again.outcome.stopped.is_some() {
            return Ok(Looked::InVain);
        }
        if again.scheduled.check != check {
            self.lock().has_diverged += 1;
            return Ok(Looked::InVain);
        }
        let (effects, lost, mut watch) = effects.finish();
        {
            let mut state = self.lock();
            state.numbers.followed += 1;
            state.numbers.given_up += lost.instructions;
            state.numbers.crowded += lost.crowded;
        }
        let stacks = &mut watch.stacks;
        let is_foundation = |site| finding::is_foundation(stacks, site);
        let effects = choosing::ranked(&self.state, effects, is_foundation);
        let mut changes = self.changes_worth_trying(&watch);
        // Locks of libpmemobj begin with the number of the run that has initialised them: after a
        // crash they are free.
        changes
            .retain(|suspect| !finding::is_foundation(&mut watch.stacks, suspect.change.done.site));
        if effects.is_empty() && changes.is_empty() || watch.storing.is_empty() {
            return Ok(Looked::Followed(Pairs::default()));
        }
        let begun = Instant::now();
        let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
        let can_be = |effect: &Effect| judge::can_be(&trial, effect);
        let (effects, fruitless) = choosing::worth_trying(&self.state, effects, can_be);
        let procedures = 1 + self.more.len();
        if let Some(why) = trial.not_judged() {
            self.lock().not_judged.get_or_insert(why);
        }
        // Locks first: where one stays taken, whatever else is tried may hang.
        for suspect in &changes {
            if self.is_over() {
                break;
            }
            // One crash that leaves a lock taken is enough.
            if self.lock().stuck_words.contains(&suspect.place) {
                continue;
            }
            self.lock().numbers.locks_tried += 1;
            let judged = judge::change(&mut trial, suspect, procedures)?;
            if matches!(judged.verdict, Verdict::Confirmed(_)) {
                self.lock().stuck_words.insert(suspect.place);
                self.conclude_change(suspect, judged, &mut trial, &mut watch, shown, books)?;
            }
        }
        let mut fail_anyway = 0;
        for effect in &effects {
            if self.is_over() || fail_anyway >= FAIL_ANYWAY_MAX {
                break;
            }
            let pair = effect.source.pair();
            let is_settled = |state: &State| {
                matches!(state.judged.get(&effect.name), Some(Verdict::Confirmed(_)))
                    || effect.how == How::Afterwards && state.confirmed.contains(&pair)
            };
            if is_settled(&self.lock()) {
                continue;
            }
            let judged = judge::effect(&mut trial, effect, procedures)?;
            if let Some(failure) = &judged.fails_anyway {
                fail_anyway += 1;
                let at = finding::stack(&mut watch.stacks, effect.done.site);
                let text = format!("after a crash behind {}, {failure}", blame::place(&at));
                self.lock().fails_anyway.get_or_insert(text);
            }
            if let Some(failure) = &judged.fails_before {
                let at = finding::stack(&mut watch.stacks, effect.source.store.site);
                let text = format!(
                    "after a crash in which what is stored at {} is lost, before another thread has made anything of it, {failure}",
                    blame::place(&at)
                );
                self.lock().fails_before.get_or_insert(text);
            }
            self.settle(effect, &judged);
            self.conclude_effect(effect, judged, &mut trial, &mut watch, shown, books)?;
        }
        self.lock().numbers.validating_seconds += begun.elapsed().as_secs_f64();
        Ok(Looked::Followed(fruitless))
    }

    fn changes_worth_trying(&self, watch: &Watch) -> Vec<Suspect> {
        let mut wanted = watch.words.suspects();
        let mut state = self.lock();
        wanted.retain(|suspect| {
            if state.stuck_words.contains(&suspect.place) {
                return false;
            }
            let name = suspect.change.done.site.name;
            let tries = state.changes.entry(name).or_default();
            let is_wanted = *tries < CHANGE_TRIES_MAX;
            *tries += u32::from(is_wanted);
            is_wanted
        });
        wanted
    }

    fn settle(&self, effect: &Effect, judged: &Judged) {
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Nothing => 0,
            Verdict::Repaired => 1,
            Verdict::Unrepaired => 2,
            Verdict::Confirmed(_) => 3,
        };
        let mut state = self.lock();
        let source = &effect.source;
        if judged.verdict != Verdict::Nothing {
            let pair = (source.store.site.pc.0, source.load.site.pc.0);
            state.goals.judged(pair);
        }
        if matches!(judged.verdict, Verdict::Confirmed(_)) {
            state.confirmed.insert(source.pair());
        }
        let known = state.judged.entry(effect.name).or_insert(Verdict::Nothing);
        if rank(&judged.verdict) > rank(known) {
            *known = judged.verdict.clone();
        }
    }

    fn conclude_effect(
        &self,
        effect: &Effect,
        judged: Judged,
        trial: &mut Trial,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let is_error = match judged.verdict {
            Verdict::Confirmed(_) => true,
            // Of what a thread makes of its own stores, only what fails is worth telling.
            Verdict::Unrepaired if effect.source.is_inter => false,
            _ => return Ok(()),
        };
        let sites = [
            effect.source.store.site,
            effect.source.load.site,
            effect.done.site,
        ];
        if !is_error
            && sites
                .iter()
                .any(|site| finding::is_foundation(&mut watch.stacks, *site))
        {
            return Ok(());
        }
        let lines = sites[..2].iter().map(|site| {
            let stack = finding::stack(&mut watch.stacks, *site);
            blame::line(&stack)
        });
        let lines: Vec<String> = lines.collect();
        let rule = if effect.source.is_inter {
            "inter"
        } else {
            "intra"
        };
        let key = format!("{rule} {}", lines.join(" "));
        if !self.is_worth_telling(&key, is_error) {
            return Ok(());
        }
        let pair = (effect.source.store.site.pc.0, effect.source.load.site.pc.0);
        let unlock = self.lock().goals.unlock_of(pair);
        let unlock = unlock.as_deref();
        let name = effect.name;
        let (least, switches) = self.least(shown, self.effort(), |act| {
            let mut effects = Effects::new(self.options.model);
            let ran = self.stage.run(act.following(true), &mut effects)?;
            let shows = effects.finish().0.iter().any(|effect| effect.name == name);
            Ok((ran, shows))
        })?;
        let what = What::Effect { name };
        // Should it not be confirmed on the short list, the long one stays.
        let least_is_whole = least.decisions.len() == shown.decisions.len();
        if !least_is_whole {
            match self.confirm(least, name, &judged.verdict, unlock, &key) {
                Ok(Some(discovery)) => return self.tell(&key, discovery, switches, books),
                Ok(None) => {}
                Err(error) if error.is_stop() || error.is_other_run() => {}
                Err(error) => return Err(error),
            }
        }
        let folder = self.folder(&key);
        let natively = judged.show(trial, &folder)?;
        let proof = shown.proof(what).with_crash(&judged, trial);
        let finding = finding::of_effect(effect, &judged, natively, unlock, trial, watch);
        let switches = match least_is_whole {
            true => switches,
            false => Switches::Seen,
        };
        self.tell(&key, Discovery { finding, proof }, switches, books)
    }

    /// Judges an effect once more under a shorter list of decisions; nothing if that comes to
    /// another verdict.
    fn confirm(
        &self,
        mut least: Shown,
        name: u64,
        verdict: &Verdict,
        unlock: Option<&str>,
        key: &str,
    ) -> Result<Option<Discovery>, Error> {
        let mut effects = Effects::new(self.options.model);
        let act = least.again().following(true);
        let (run, ran) = self.stage.record(act, &mut effects)?;
        if ran.outcome.stopped.is_some() {
            return Ok(None);
        }
        least.check = Some(ran.scheduled.check);
        let (effects, _, mut watch) = effects.finish();
        let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
        for effect in effects.iter().filter(|effect| effect.name == name) {
            let judged = judge::effect(&mut trial, effect, 1 + self.more.len())?;
            if is_same(&judged.verdict, verdict) {
                let natively = judged.show(&mut trial, &self.folder(key))?;
                let proof = least
                    .proof(What::Effect { name })
                    .with_crash(&judged, &trial);
                let finding =
                    finding::of_effect(effect, &judged, natively, unlock, &mut trial, &mut watch);
                return Ok(Some(Discovery { finding, proof }));
            }
        }
        Ok(None)
    }

    fn conclude_change(
        &self,
        suspect: &Suspect,
        judged: Judged,
        trial: &mut Trial,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let done = suspect.change.done;
        let at = finding::stack(&mut watch.stacks, done.site);
        let key = format!("lock {}", blame::line(&at));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let name = done.site.name;
        let (least, switches) = self.least(shown, self.effort(), |act| {
            let mut watch = Watch::new(self.options.model);
            let ran = self.stage.run(act, &mut watch)?;
            let shows = ran.outcome.stopped.is_none()
                && watch.words.suspects().iter().any(|s| s.is_like(suspect));
            Ok((ran, shows))
        })?;
        // Should it not be confirmed on the short list, the long one stays.
        let least_is_whole = least.decisions.len() == shown.decisions.len();
        if !least_is_whole {
            match self.confirm_change(least, suspect, &key) {
                Ok(Some(discovery)) => return self.tell(&key, discovery, switches, books),
                Ok(None) => {}
                Err(error) if error.is_stop() || error.is_other_run() => {}
                Err(error) => return Err(error),
            }
        }
        let folder = self.folder(&key);
        let natively = judged.show(trial, &folder)?;
        let mut proof = shown
            .proof(What::Change { name })
            .with_crash(&judged, trial);
        if judged.not_set_back {
            proof = proof.with_initial(judge::initial(suspect));
        }
        let finding = finding::of_change(&suspect.change, &judged, natively, trial, watch);
        let switches = match least_is_whole {
            true => switches,
            false => Switches::Seen,
        };
        self.tell(&key, Discovery { finding, proof }, switches, books)
    }

    /// Judges changes at the same place in the program once more under a shorter list of decisions,
    /// those of the same word first; nothing if no crash leaves a word as it should not.
    fn confirm_change(
        &self,
        mut least: Shown,
        suspect: &Suspect,
        key: &str,
    ) -> Result<Option<Discovery>, Error> {
        let mut watch = Watch::new(self.options.model);
        let (run, ran) = self.stage.record(least.again(), &mut watch)?;
        if ran.outcome.stopped.is_some() {
            return Ok(None);
        }
        least.check = Some(ran.scheduled.check);
        let mut suspects = watch.words.suspects();
        suspects.retain(|s| s.is_like(suspect));
        suspects.sort_by_key(|s| s.place != suspect.place);
        suspects.truncate(CHANGE_TRIES_MAX as usize);
        let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
        for suspect in suspects {
            let judged = judge::change(&mut trial, &suspect, 1 + self.more.len())?;
            if !matches!(judged.verdict, Verdict::Confirmed(_)) {
                continue;
            }
            let natively = judged.show(&mut trial, &self.folder(key))?;
            let what = What::Change {
                name: suspect.change.done.site.name,
            };
            let mut proof = least.proof(what).with_crash(&judged, &trial);
            if judged.not_set_back {
                proof = proof.with_initial(judge::initial(&suspect));
            }
            let change = &suspect.change;
            let finding = finding::of_change(change, &judged, natively, &mut trial, &mut watch);
            return Ok(Some(Discovery { finding, proof }));
        }
        Ok(None)
    }

    /// Whoever waits for ever.
    pub(super) fn look_for_deadlock(
        &self,
        ran: &Ran,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let Some((waits, spins)) = deadlock::waits(ran, watch) else {
            return Ok(());
        };
        let name = deadlock_name(&waits);
        if !self.lock().deadlocks.insert(name) {
            return Ok(());
        }
        let lines = waits.iter().map(|(done, _)| {
            let stack = finding::stack(&mut watch.stacks, done.site);
            blame::line(&stack)
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort_unstable();
        lines.dedup();
        let key = format!("deadlock {}", lines.join(" "));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let mut effort = self.effort();
        if spins {
            // Each takes as long as it takes to see that nothing changes.
            effort.runs = 20;
        }
        let (least, switches) = self.least(shown, effort, |act| {
            let mut watch = Watch::new(self.options.model);
            let ran = self.stage.run(act, &mut watch)?;
            let shows = deadlock::waits(&ran, &watch)
                .is_some_and(|(waits, _)| deadlock_name(&waits) == name);
            Ok((ran, shows))
        })?;
        let mut again = Watch::new(self.options.model);
        let ran = self.run_again(&least, &mut again)?;
        let what = What::Deadlock { name };
        let shortest = ran.and_then(|ran| deadlock::waits(&ran, &again));
        let shortest = shortest.filter(|(waits, _)| deadlock_name(waits) == name);
        let (finding, proof, switches) = match shortest {
            Some((waits, spins)) => (
                finding::of_deadlock(&mut again, &waits, spins),
                least.proof(what),
                switches,
            ),
            None => (
                finding::of_deadlock(watch, &waits, spins),
                shown.proof(what),
                Switches::Seen,
            ),
        };
        // Who spins is seen when the run is ended, and that must come at the same place again.
        let proof = match spins {
            true => proof.with_bounds(self.stage.bounds()),
            false => proof,
        };
        self.tell(&key, Discovery { finding, proof }, switches, books)
    }

    /// A program that a signal ends, or that ends otherwise than in the first run.
    pub(super) fn look_for_ending(
        &self,
        ran: &Ran,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let Some(status) = ending::ending(ran) else {
            return Ok(());
        };
        let Some(death) = ending::death(ran, watch) else {
            let what = match status {
                ExitStatus::Code(0) => return Ok(()),
                ExitStatus::Code(code) => What::Exit { code },
                ExitStatus::Signal(signal) => What::Killed { signal },
            };
            let mut state = self.lock();
            if state.endings.insert(what) {
                let text = format!(
                    "under a schedule with {} the program ends with {}; if nobody is interrupted, it {}",
                    counted(shown.decisions.len() as u64, "decision"),
                    ending::words(status),
                    match self.usual_end {
                        Some(usual) => format!("ends with {}", ending::words(usual)),
                        None => "does not end".to_owned(),
                    }
                );
                let proof = shown.proof(what);
                state.remarks.push(Remark { text, proof });
            }
            return Ok(());
        };
        let what = What::Crash { name: death.name };
        if !self.lock().endings.insert(what) {
            return Ok(());
        }
        let at = match death.at {
            Some(done) => finding::stack(&mut watch.stacks, done.site),
            None => Vec::new(),
        };
        let key = format!("crash {} {}", death.signal, blame::line(&at));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let (least, switches) = self.least(shown, self.effort(), |act| {
            let mut watch = Watch::new(self.options.model);
            let ran = self.stage.run(act, &mut watch)?;
            let again = ending::death(&ran, &watch);
            let shows = again.is_some_and(|again| again.name == death.name);
            Ok((ran, shows))
        })?;
        let mut again = Watch::new(self.options.model);
        let ran = self.run_again(&least, &mut again)?;
        let shortest = ran.and_then(|ran| ending::death(&ran, &again));
        let shortest = shortest.filter(|again| again.name == death.name);
        let (finding, proof, switches) = match shortest {
            Some(death) => (
                finding::of_death(&mut again, &death),
                least.proof(what),
                switches,
            ),
            None => (
                finding::of_death(watch, &death),
                shown.proof(what),
                Switches::Seen,
            ),
        };
        self.tell(&key, Discovery { finding, proof }, switches, books)
    }

    /// What others read and nobody ever writes back.
    pub(super) fn look_for_publications(
        &self,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        for sighting in publications(watch) {
            let sites = [sighting.store.site, sighting.load.site];
            if sites
                .iter()
                .any(|site| finding::is_foundation(&mut watch.stacks, *site))
            {
                continue;
            }
            let store = finding::stack(&mut watch.stacks, sighting.store.site);
            let key = format!("publication {}", blame::line(&store));
            if !self.is_worth_telling(&key, false) {
                continue;
            }
            let what = What::Publication {
                store: sighting.store.site.name,
            };
            let pair = pair_of(&sighting.store, &sighting.load);
            let same = |watch: &Watch| -> Option<Sighting> {
                let mut all = publications(watch).into_iter();
                all.find(|sighting| pair_of(&sighting.store, &sighting.load) == pair)
            };
            let (least, switches) = self.least(shown, self.effort(), |act| {
                let mut watch = Watch::new(self.options.model);
                let ran = self.stage.run(act, &mut watch)?;
                let shows = ran.has_ended() && same(&watch).is_some();
                Ok((ran, shows))
            })?;
            let (mut finding, mut proof, mut switches) = (
                finding::of_sighting(&sighting, watch),
                shown.proof(what),
                switches,
            );
            if least.decisions.len() < shown.decisions.len() {
                let mut again = Watch::new(self.options.model);
                let ran = self.run_again(&least, &mut again)?;
                let has_ended = ran.is_some_and(|ran| ran.has_ended());
                match same(&again).filter(|_| has_ended) {
                    Some(sighting) => {
                        finding = finding::of_sighting(&sighting, &mut again);
                        proof = least.proof(what);
                    }
                    None => switches = Switches::Seen,
                }
            }
            self.tell(&key, Discovery { finding, proof }, switches, books)?;
        }
        Ok(())
    }

    /// Makes the same run again; nothing if it went another way.
    fn run_again(&self, shown: &Shown, watch: &mut Watch) -> Result<Option<Ran>, Error> {
        match self.stage.run(shown.again(), watch) {
            Err(error) if error.is_other_run() => Ok(None),
            ran => ran.map(Some),
        }
    }

    /// The shortest list found of decisions under which the same is seen, within bounds. `sees`
    /// makes a run, and says whether it shows it.
    fn least(
        &self,
        shown: &Shown,
        effort: Effort,
        mut sees: impl FnMut(Act) -> Result<(Ran, bool), Error>,
    ) -> Result<(Shown, Switches), Error> {
        let shows = |decisions: &[Decision]| -> Result<Option<Vec<Decision>>, Error> {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let (ran, is_seen) = sees(shown.steered(decisions))?;
            Ok(is_seen.then_some(ran.scheduled.decisions))
        };
        let least = minimise(shown.decisions.clone(), effort, shows)?;
        let switches = Switches::from(&least);
        Ok((shown.with(least.decisions), switches))
    }

    /// Whether a finding of that key says more than what is known.
    fn is_worth_telling(&self, key: &str, is_error: bool) -> bool {
        self.lock().found.is_worth_telling(key, is_error)
    }

    fn tell(
        &self,
        key: &str,
        discovery: Discovery,
        switches: Switches,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let mut discovery = discovery;
        let count = discovery.proof.decisions();
        let count = count.map_or(0, |decisions| decisions.len() as u64);
        discovery.finding.notes.push(match (count, switches) {
            (0, _) => "nobody needs to be interrupted for it: it shows in a run in which every thread goes on until it waits or ends".to_owned(),
            (1, Switches::Needed) => {
                "it takes one context switch that would not come by itself".to_owned()
            }
            (n, Switches::Needed) => {
                format!("it takes {n} context switches that would not come by themselves")
            }
            (n, Switches::Seen) => format!(
                "it was seen with {} that would not come by {}; whether it takes {} was not tried to the end",
                format_args!("{} {}", grouped(n), either(n, "context switch", "context switches")),
                either(n, "itself", "themselves"),
                either(n, "it", "all of them")
            ),
        });
        if let Some(input) = discovery.proof.input() {
            let path = self.named(key, "input");
            fs::create_dir_all(&self.options.folder)
                .and_then(|()| fs::write(&path, input))
                .map_err(io_error("cannot keep the input of a finding"))?;
            let note = format!(
                "the program reads an input that was made: {}",
                path.display()
            );
            discovery.finding.notes.push(note);
        }
        let is_error = discovery.is_error();
        let mut state = self.lock();
        if !state.found.add(key, &discovery) {
            return Ok(());
        }
        books.found(key, &discovery);
        if is_error && state.numbers.first_error_seconds.is_none() {
            state.numbers.first_error_seconds = Some(self.begun.elapsed().as_secs_f64());
        }
        drop(state);
        if is_error && self.options.until_found {
            self.end(Over::Found);
        }
        Ok(())
    }

    /// Where the images of a finding go.
    fn folder(&self, key: &str) -> PathBuf {
        self.named(key, "crash")
    }

    fn named(&self, key: &str, what: &str) -> PathBuf {
        let number = key
            .bytes()
            .fold(0, |hash, byte| crate::site::mix(hash, u64::from(byte)));
        self.options.folder.join(format!("{what}-{number:016x}"))
    }
}

/// What others read in a run and nobody ever writes back, in the order in which it is read. (What
/// is a lock needs not be written back.)
fn publications(watch: &Watch) -> Vec<Sighting> {
    let locks: FxHashSet<u64> = watch.words.places().collect();
    let is_one = |sighting: &&Sighting| {
        sighting.is_inter
            && sighting.is_never_flushed
            && watch.is_never_flushed(sighting.range)
            && !locks.contains(&(sighting.range.start().0 & !7))
    };
    let mut found: Vec<Sighting> = watch.sightings.values().filter(is_one).copied().collect();
    found.sort_unstable_by_key(|sighting| sighting.load.event);
    found
}
