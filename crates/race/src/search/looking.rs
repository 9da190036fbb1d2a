//! What is made of a run that has shown something new.
//!
//! ```text
//!  the same run again, followed ─▶ effects ─▶ crash, recovery ─▶ fewer context switches ─▶ finding, proof
//! ```
//! Deadlocks, and what is read and never written back, need no crash.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_explore::Trial;
use brownout_findings::blame;
use brownout_host::Decision;
use brownout_symbols::Stacks;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Books, CHANGE_TRIES_MAX, Over, Search, Shown, State};
use crate::deadlock::{self, deadlock_name};
use crate::discoveries::Discovery;
use crate::effects::{Effect, Effects, How};
use crate::finding;
use crate::judge::{self, Judged, Verdict, is_same};
use crate::minimise::{Effort, minimise};
use crate::options::{Error, io_error};
use crate::proof::{Proof, What};
use crate::site::Site;
use crate::stage::Ran;
use crate::watch::{Sighting, Watch};
use crate::words::Change;

/// An effect that is not confirmed is tried so often.
const TRIES_MAX: u32 = 3;
/// What is only stored afterwards is tried so often.
const AFTERWARDS_TRIES_MAX: u32 = 2;
/// Effects that are tried of one store and one load, unless one is confirmed.
const EFFECTS_PER_PAIR: u32 = 16;
/// If recovery fails so often though nothing is lost, there is nothing to be learnt from this run.
const FAIL_ANYWAY_MAX: u32 = 3;
/// Effects that are tried of one run; the others are when they show again.
const RUN_MAX: usize = 16;
/// Of these, the ones in which libraries have a hand that look after themselves.
const THEIRS_MAX: usize = 4;
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

impl Search<'_> {
    /// Runs again what is to be looked into, and tries its crashes.
    pub(super) fn look_into(
        &self,
        shown: &Shown,
        check: u64,
        follows: bool,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let mut effects = Effects::new(self.options.model);
        let act = shown.again().following(follows);
        let (run, again) = self.stage.record(act, &mut effects)?;
        if self.options.stop.load(Ordering::Relaxed) || again.outcome.stopped.is_some() {
            return Ok(());
        }
        if again.scheduled.check != check {
            self.lock().has_diverged += 1;
            return Ok(());
        }
        let (effects, given_up, mut watch) = effects.finish();
        {
            let mut state = self.lock();
            state.numbers.followed += 1;
            state.numbers.given_up += given_up;
        }
        let effects = self.worth_trying(effects, &mut watch.stacks);
        let mut changes = self.changes_worth_trying(&watch);
        // Locks of libpmemobj begin with the number of the run that has initialised them: after a crash they are free.
        changes
            .retain(|(_, change, _)| !finding::is_foundation(&mut watch.stacks, change.done.site));
        if effects.is_empty() && changes.is_empty() || watch.storing.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let mut trial = Trial::new(&self.stage.explore, run, &self.more)?;
        let procedures = 1 + self.more.len();
        if let Some(why) = trial.is_unfit(0) {
            self.note(&format!("what runs after a crash does not end well even if nothing is lost ({why}), so that its failure proves nothing"));
        }
        // Locks first: where one stays taken, whatever else is tried may hang.
        for (place, change, next) in &changes {
            if self.is_over() {
                break;
            }
            // One crash that leaves a lock taken is enough.
            if self.lock().stuck_words.contains(place) {
                continue;
            }
            self.lock().numbers.locks_tried += 1;
            let judged = judge::change(&mut trial, change, next.as_ref(), procedures)?;
            if matches!(judged.verdict, Verdict::Confirmed(_)) {
                self.lock().stuck_words.insert(*place);
                self.conclude_change(change, judged, &mut trial, &mut watch, shown, books)?;
            }
        }
        let mut fail_anyway = 0;
        for effect in &effects {
            if self.is_over() || fail_anyway >= FAIL_ANYWAY_MAX {
                break;
            }
            let pair = (effect.source.store.site.name, effect.source.load.site.name);
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
            self.settle(effect, &judged);
            self.conclude_effect(effect, judged, &mut trial, &mut watch, shown, books)?;
        }
        self.lock().numbers.validating_seconds += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// What of a run's effects is tried, the most telling first: the program's own before those in which libpmemobj and its kin have a hand, and what depends on its
    /// source for sure before what is only stored afterwards.
    fn worth_trying(&self, effects: Vec<Effect>, stacks: &mut Stacks) -> Vec<Effect> {
        let mut known: FxHashMap<u64, bool> = FxHashMap::default();
        let mut is_foundation = |site: Site| {
            let known = known.entry(site.name);
            *known.or_insert_with(|| finding::is_foundation(stacks, site))
        };
        let mut ranked: Vec<(bool, bool, Effect)> = Vec::new();
        for effect in effects {
            let source = &effect.source;
            let sites = [source.store.site, source.load.site, effect.done.site];
            let is_theirs = sites.into_iter().any(&mut is_foundation);
            let is_after = effect.how == How::Afterwards;
            if !(is_theirs && is_after) {
                ranked.push((is_theirs, is_after, effect));
            }
        }
        ranked.sort_by_key(|(is_theirs, is_after, _)| (*is_theirs, *is_after));
        let mut state = self.lock();
        let mut wanted = Vec::new();
        let mut theirs = 0;
        state.has_more = false;
        for (is_theirs, is_after, effect) in ranked {
            let pair = (effect.source.store.site.name, effect.source.load.site.name);
            if is_after && state.confirmed.contains(&pair) {
                continue;
            }
            let (tries, tries_max) = match is_after {
                true => (&mut state.afterwards, AFTERWARDS_TRIES_MAX),
                false => (&mut state.effects, TRIES_MAX),
            };
            let tries = tries.entry(effect.name).or_default();
            if *tries >= tries_max {
                continue;
            }
            theirs += usize::from(is_theirs);
            if wanted.len() >= RUN_MAX || is_theirs && theirs > THEIRS_MAX {
                state.has_more |= !is_theirs;
                continue;
            }
            *tries += 1;
            let kind = u64::from(is_after);
            let of_pair = state.by_pair.entry((pair.0, pair.1, kind)).or_default();
            if *of_pair < EFFECTS_PER_PAIR {
                *of_pair += 1;
                wanted.push(effect);
            }
        }
        wanted
    }

    fn changes_worth_trying(&self, watch: &Watch) -> Vec<(u64, Change, Option<Change>)> {
        let mut state = self.lock();
        let mut wanted = Vec::new();
        for (place, word) in watch.words.suspects() {
            if state.stuck_words.contains(&place) {
                continue;
            }
            for (at, change) in word.changes.iter().enumerate() {
                let tries = state.changes.entry(change.done.site.name).or_default();
                if *tries < CHANGE_TRIES_MAX {
                    *tries += 1;
                    wanted.push((place, *change, word.changes.get(at + 1).copied()));
                }
            }
        }
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
        if matches!(judged.verdict, Verdict::Confirmed(_)) {
            let pair = (effect.source.store.site.name, effect.source.load.site.name);
            state.confirmed.insert(pair);
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
        let shows = |decisions: &[Decision]| -> Result<Option<Vec<Decision>>, Error> {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut effects = Effects::new(self.options.model);
            let act = shown.steered(decisions).following(true);
            let ran = self.stage.run(act, &mut effects)?;
            let shows = effects.finish().0.iter().any(|effect| effect.name == name);
            Ok(ran.scheduled.decisions.filter(|_| shows))
        };
        let what = What::Effect { name };
        let least = shown.with(minimise(shown.decisions.clone(), EFFORT, shows)?);
        // Should it not be confirmed on the short list, the long one stays.
        if least.decisions.len() < shown.decisions.len() {
            match self.confirm(least, name, &judged.verdict, unlock, &key) {
                Ok(Some(discovery)) => return self.tell(&key, discovery, books),
                Ok(None) => {}
                Err(error) if error.is_stop() => {}
                Err(error) => return Err(error),
            }
        }
        let folder = self.folder(&key);
        let natively = judged.show(trial, &folder)?;
        let proof = shown.proof(what).with_crash(&judged, trial);
        let finding = finding::of_effect(effect, &judged, natively, unlock, trial, watch);
        self.tell(&key, Discovery { finding, proof }, books)
    }

    /// Judges an effect once more under a shorter list of decisions; nothing if that comes to another verdict.
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
        change: &Change,
        judged: Judged,
        trial: &mut Trial,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let at = finding::stack(&mut watch.stacks, change.done.site);
        let key = format!("lock {}", blame::line(&at));
        if !self.is_worth_telling(&key, true) {
            return Ok(());
        }
        let what = What::Change {
            name: change.done.site.name,
        };
        let folder = self.folder(&key);
        let natively = judged.show(trial, &folder)?;
        let proof = shown.proof(what).with_crash(&judged, trial);
        let finding = finding::of_change(change, &judged, natively, trial, watch);
        self.tell(&key, Discovery { finding, proof }, books)
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
        let shows = |decisions: &[Decision]| -> Result<Option<Vec<Decision>>, Error> {
            let mut watch = Watch::new(self.options.model);
            let ran = self.stage.run(shown.steered(decisions), &mut watch)?;
            let shows = deadlock::waits(&ran, &watch)
                .is_some_and(|(waits, _)| deadlock_name(&waits) == name);
            Ok(ran.scheduled.decisions.filter(|_| shows))
        };
        let effort = match spins {
            // Each takes as long as it takes to see that nothing changes.
            true => Effort { runs: 12, ..EFFORT },
            false => EFFORT,
        };
        let least = shown.with(minimise(shown.decisions.clone(), effort, shows)?);
        let mut again = Watch::new(self.options.model);
        let ran = self.stage.run(least.again(), &mut again)?;
        let what = What::Deadlock { name };
        let (finding, proof) = match deadlock::waits(&ran, &again) {
            Some((waits, spins)) => (
                finding::of_deadlock(&mut again, &waits, spins),
                least.proof(what),
            ),
            None => (
                finding::of_deadlock(watch, &waits, spins),
                shown.proof(what),
            ),
        };
        self.tell(&key, Discovery { finding, proof }, books)
    }

    /// What others read and nobody ever writes back.
    pub(super) fn look_for_publications(
        &self,
        watch: &mut Watch,
        shown: &Shown,
        books: &dyn Books,
    ) -> Result<(), Error> {
        let suspects: FxHashSet<u64> = watch
            .words
            .suspects()
            .into_iter()
            .map(|(place, _)| place)
            .collect();
        let is_one = |sighting: &&Sighting| {
            sighting.is_inter
                && sighting.is_never_flushed
                && watch.is_never_flushed(sighting.range)
                && !suspects.contains(&(sighting.range.start().0 & !7))
        };
        let mut found: Vec<Sighting> = watch.sightings.values().filter(is_one).copied().collect();
        found.sort_unstable_by_key(|sighting| sighting.load.event);
        for sighting in found {
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
            let proof = shown.proof(what);
            let finding = finding::of_sighting(&sighting, watch);
            self.tell(&key, Discovery { finding, proof }, books)?;
        }
        Ok(())
    }

    /// Whether a finding of that key says more than what is known.
    fn is_worth_telling(&self, key: &str, is_error: bool) -> bool {
        self.lock().found.is_worth_telling(key, is_error)
    }

    fn tell(&self, key: &str, discovery: Discovery, books: &dyn Books) -> Result<(), Error> {
        let mut discovery = discovery;
        let switches = discovery
            .proof
            .decisions()
            .map_or(0, |decisions| decisions.len());
        discovery.finding.notes.push(match switches {
            0 => "nobody needs to be interrupted for it: it shows in a run in which every thread goes on until it waits or ends".to_owned(),
            1 => "it takes one context switch that would not come by itself".to_owned(),
            n => format!("it takes {n} context switches that would not come by themselves"),
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
