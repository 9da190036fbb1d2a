//! A campaign: what is fuzzed, for how long, by how many workers, and what is kept of it.
//!
//! ```text
//!  workers ──news──▶ coordinator ──▶ journal, queue/, crashes/, findings/, fuzzer_stats, plot_data
//!     ▲                  │
//!     └──── others' news ┘
//! ```
//! Guarantee: a case or a finding is in the journal before anybody counts it, so that `kill -9` at
//! any moment loses none that was told; a campaign that is resumed begins with all of them. The
//! files of cases and findings are for people and other tools; those that are missing are made
//! anew, from the journal and the images, when a campaign is resumed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brownout_campaign::afl::{FuzzerStats, PlotLine};
use brownout_campaign::budget::{Budget, Over, Spent};
use brownout_campaign::case_name::CaseName;
use brownout_campaign::course::{Clock, Course};
use brownout_campaign::files::Durability;
use brownout_campaign::folder::{Folder, Shelf};
use brownout_campaign::journal::Journal;
use brownout_campaign::status::Snapshot;
use brownout_campaign::sync::Seen;
use brownout_campaign::workers::{Ended, Pool, Stop, Worker};
use brownout_explore::Ground;
use brownout_findings::Severity;
use brownout_images::Store;

use crate::case::{Begun, Case};
use crate::error::Error;
use crate::judge::{Found, Judge};
use crate::live::Live;
use crate::options::Options;
use crate::partners::{Inbox, Partners};
use crate::progress::Progress;
use crate::record::{KeptCase, Record};
use crate::runner::{Runner, Times};
use crate::worker::{Beginning, Figures, News, Seat, work};
use brownout_stage::{Origins, Workshop, root};

/// What came of a campaign.
pub struct Campaign {
    /// What was found, by key.
    pub found: BTreeMap<String, Found>,
    /// How far it came.
    pub progress: Progress,
    /// Why it ended: the time, executions; `None` if somebody ended it.
    pub over: Option<Over>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Files that the program maps writable and shared, and that are not tracked.
    pub hints: BTreeSet<PathBuf>,
    /// The user's detector has failed: how the first time, and how often.
    pub unjudged: Option<(String, u64)>,
    /// Runs could not be made: why the first time, and how often.
    pub failed: Option<(String, u64)>,
    /// What was wanted has been found.
    pub is_found: bool,
    /// A bug of ours, in one sentence, because of which something may be missing.
    pub bug: Option<String>,
}

/// A worker of the pool.
type Member = Worker<(), News, Result<Figures, String>>;

struct At<'a> {
    worker: &'a Member,
}

impl Seat for At<'_> {
    fn publish(&self, news: News) {
        self.worker.publish(news);
    }

    fn stopped(&self) -> bool {
        self.worker.stopped()
    }

    fn index(&self) -> usize {
        self.worker.index()
    }

    fn news(&self) -> Vec<News> {
        let news = self.worker.take().into_iter();
        news.map(|(_, news)| (*news).clone()).collect()
    }
}

/// Fuzzes. `tell` is called several times a second, with what is to be shown.
pub fn fuzz(options: Options, mut tell: impl FnMut(&Snapshot)) -> Result<Campaign, Error> {
    let identity = options.identity()?;
    let folder = match options.resume {
        true => Folder::resume(&options.out, &identity)?,
        false => Folder::create(&options.out, &identity)?,
    };
    let images = folder.layout().root().join("images");
    let store = match images.exists() {
        true => Store::open(&images)?,
        false => Store::create(&images)?,
    };
    let store = Arc::new(store);
    let (journal, records, _) =
        Journal::open(&folder.layout().journal(), &folder.identity().hash())?;
    let ground = Ground::new()?;
    let origins = Origins {
        setup: options.setup.clone(),
        image: options.image.clone(),
        stop: options.stop.clone(),
    };
    let root = root(&origins, &ground, &store)?;
    let mut books = Books::new(folder, journal, store.clone(), &options);
    let mut beginning = Beginning {
        root,
        cases: Vec::new(),
        found: Vec::new(),
    };
    let spent = books.recall(records, &mut beginning)?;
    for (name, input) in &options.seeds {
        let case = Case {
            image: root,
            input: input.clone(),
        };
        // A campaign that was killed may not have come to the last of them.
        if !books.numbers.contains_key(&case) {
            books.seeds.insert(case.clone(), name.clone());
            beginning.cases.push(Begun {
                case,
                is_seed: true,
                is_looked: false,
            });
        }
    }
    let mut workshop = Workshop::new(ground, store, options.target.clone(), options.patience);
    workshop.memory_max = options.memory_max;
    workshop.stop = options.stop.clone();
    workshop.touches = options.touches.clone();
    let workshop = Arc::new(workshop);
    let budget = Arc::new(Budget::new(options.limits, &spent));
    let inbox = Arc::new(Inbox::default());
    let mut partners = match &options.sync {
        Some(folder) => Some(Partners::open(
            folder,
            books.folder.layout(),
            books.seen.clone(),
        )?),
        None => None,
    };
    // What is there already is among the first that is run.
    if let Some(partners) = &mut partners {
        books.meet(partners, &inbox, false)?;
    }
    let stop = Stop::with_flag(options.stop.clone());
    let options = Arc::new(options);
    let beginning = Arc::new(beginning);
    let pool: Pool<(), News, Result<Figures, String>> = {
        let (options, budget) = (options.clone(), budget.clone());
        let (workshop, beginning) = (workshop.clone(), beginning.clone());
        let inbox = inbox.clone();
        Pool::start_with(options.jobs, stop, move |worker: &Member| {
            let judge = Judge::new(options.check, options.symbols.clone());
            let runner = Runner::new(workshop.clone(), judge);
            let seat = At { worker };
            work(runner, &options, &budget, &beginning, &seat, &inbox)
                .map_err(|error| error.to_string())
        })?
    };
    let mut failure = None;
    loop {
        let news = pool.wait(Duration::from_millis(200));
        for (_, news) in &news.discoveries {
            if let Err(error) = books.take(news, &budget) {
                failure.get_or_insert(error);
                pool.stop();
            }
        }
        if options.until_found && books.has_found() {
            pool.stop();
        }
        if let Some(partners) = &mut partners {
            books.meet(partners, &inbox, false)?;
        }
        let stopping = options.stop.load(Ordering::Relaxed) || budget.over().is_some();
        let snapshot = books.snapshot(&budget, stopping);
        tell(&snapshot);
        books.note(&snapshot);
        books.keep_figures(&budget)?;
        if news.living == 0 || failure.is_some() {
            break;
        }
    }
    let (ended, left) = pool.join(Duration::from_secs(30));
    for (_, news) in &left {
        books.take(news, &budget)?;
    }
    if let Some(partners) = &mut partners {
        books.meet(partners, &inbox, true)?;
    }
    books.journal.append(&Record::Spent(budget.spent()))?;
    books.write_figures(&budget)?;
    let snapshot = books.snapshot(&budget, true);
    books.note_last(&snapshot);
    if let Some(error) = failure {
        return Err(error);
    }
    let mut notes = std::mem::take(&mut books.notes);
    notes.extend(workshop.served.note(&options.target.delivery));
    let mut bug = None;
    for worker in ended {
        match worker {
            Ended::Finished(Ok(_)) => {}
            Ended::Finished(Err(error)) => return Err(Error::Worker(error)),
            Ended::Panicked { message, .. } => {
                bug = Some(format!("bug in Brownout: a worker has ended: {message}"));
            }
            Ended::Stuck { .. } => notes.push("a worker did not stop in time".to_owned()),
        }
    }
    let progress = books.progress(&budget);
    Ok(Campaign {
        unjudged: books.unjudged.take(),
        failed: books.failed.take(),
        is_found: options.until_found && books.has_found(),
        hints: books.hints,
        found: books.found,
        progress,
        over: budget.over(),
        notes,
        bug,
    })
}

/// What the coordinator writes down.
struct Books {
    folder: Folder,
    journal: Journal<Record>,
    /// What was reached when; none if it cannot be written, which is no reason to end.
    course: Option<Course>,
    store: Arc<Store>,
    seeds: HashMap<Case, String>,
    numbers: HashMap<Case, u64>,
    found: BTreeMap<String, Found>,
    /// How many files there are in `crashes` and in `hangs`.
    crashes: u64,
    hangs: u64,
    hints: BTreeSet<PathBuf>,
    reached: Vec<(f64, u32)>,
    figures: BTreeMap<usize, Figures>,
    begun: Instant,
    written: Instant,
    live: Live,
    /// How far the queues of other fuzzers were read.
    seen: Seen,
    notes: Vec<String>,
    unjudged: Option<(String, u64)>,
    failed: Option<(String, u64)>,
    last_find: u64,
    command_line: String,
    patience: Duration,
}

/// Where a finding is written, below the campaign's folder.
fn finding_file(key: &str) -> String {
    format!("findings/{key}.json")
}

/// Which other fuzzer's case it was, if an operation is that it was taken over.
fn given(operation: &str) -> Option<(&str, u64)> {
    let (party, number) = operation.strip_prefix("sync:")?.rsplit_once(":")?;
    Some((party, number.parse().ok()?))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Books {
    fn new(
        folder: Folder,
        journal: Journal<Record>,
        store: Arc<Store>,
        options: &Options,
    ) -> Books {
        Books {
            course: Course::open(&folder.layout().course(), Clock::Search).ok(),
            folder,
            journal,
            store,
            seeds: HashMap::new(),
            numbers: HashMap::new(),
            found: BTreeMap::new(),
            crashes: 0,
            hangs: 0,
            hints: BTreeSet::new(),
            reached: Vec::new(),
            figures: BTreeMap::new(),
            begun: Instant::now(),
            written: Instant::now(),
            live: Live::new(options),
            seen: Seen::default(),
            notes: Vec::new(),
            unjudged: None,
            failed: None,
            last_find: 0,
            command_line: options.command_line.clone(),
            patience: options.patience,
        }
    }

    /// What an earlier run of the tool has left. Files that are missing, because it was killed
    /// before it had made them, are made.
    fn recall(&mut self, records: Vec<Record>, into: &mut Beginning) -> Result<Spent, Error> {
        let mut spent = Spent::default();
        let mut names = HashMap::new();
        let layout = self.folder.layout();
        let there = |shelf: Shelf| -> Result<BTreeSet<u64>, Error> {
            let cases = layout.cases(shelf)?;
            Ok(cases.iter().map(|case| case.name.id).collect())
        };
        let shelves = [
            there(Shelf::Queue)?,
            there(Shelf::Crashes)?,
            there(Shelf::Hangs)?,
        ];
        let lacks = |shelf: Shelf, id: u64| !shelves[shelf as usize].contains(&id);
        for record in records {
            match record {
                Record::Case(kept) => {
                    let case = Case {
                        image: kept.image,
                        input: self.store.input_bytes(kept.input)?,
                    };
                    if lacks(Shelf::Queue, kept.id) {
                        let name = names.get(&kept.id).map(String::as_str);
                        self.write_case(&kept, name, &case.input)?;
                    }
                    self.numbers.insert(case.clone(), kept.id);
                    into.cases.push(Begun {
                        case,
                        is_seed: kept.is_seed,
                        is_looked: false,
                    });
                }
                Record::Found(key, text) => {
                    let found: Found = serde_json::from_str(&text)
                        .map_err(|error| Error::Corrupt(error.to_string()))?;
                    let shelved = self.shelved(&found);
                    if let Some((shelf, name)) = shelved
                        && lacks(shelf, name.id)
                    {
                        let input = &found.case.input;
                        self.folder
                            .add_case(shelf, &name, input, Durability::Process)?;
                    }
                    let name = finding_file(&key);
                    if !self.folder.layout().root().join(&name).exists() {
                        self.folder
                            .write(name, text.as_bytes(), Durability::Process)?;
                    }
                    self.found.insert(key.clone(), found.clone());
                    into.found.push((key, found));
                }
                Record::Spent(now) => spent = now,
                Record::Seen(seen) => self.seen = seen,
                Record::Named(id, name) => drop(names.insert(id, name)),
                Record::Looked(id) => {
                    if let Some(begun) = into.cases.get_mut(id as usize) {
                        begun.is_looked = true;
                    }
                }
            }
        }
        Ok(spent)
    }

    /// Exchanges inputs with other fuzzers.
    fn meet(&mut self, partners: &mut Partners, inbox: &Inbox, is_last: bool) -> Result<(), Error> {
        let (seen, told) = partners.meet(inbox, self.folder.layout(), is_last);
        if let Some(seen) = seen {
            self.journal.append(&Record::Seen(seen))?;
        }
        if let Some(told) = told {
            self.live.note(told.clone());
            self.notes.push(told);
        }
        Ok(())
    }

    fn take(&mut self, news: &News, budget: &Budget) -> Result<(), Error> {
        match news {
            News::Case {
                case,
                parent,
                operation,
                priority,
                executions,
            } => {
                let at = (budget.elapsed().as_millis() as u64, *executions);
                let before = self.numbers.len();
                self.take_case(case, parent.as_ref(), operation, *priority, at)?;
                if self.numbers.len() > before {
                    self.live.kept(budget);
                }
                Ok(())
            }
            News::Found { key, found } => self.take_found(key, found, budget),
            News::Unjudged(why) => {
                if self.unjudged.is_none() {
                    self.live.note(why.clone());
                }
                self.unjudged.get_or_insert((why.clone(), 0)).1 += 1;
                Ok(())
            }
            News::Failed(why) => {
                if self.failed.is_none() {
                    self.live.note(why.clone());
                }
                self.failed.get_or_insert((why.clone(), 0)).1 += 1;
                Ok(())
            }
            News::Looked(case) => {
                if let Some(id) = self.numbers.get(case) {
                    self.journal.append(&Record::Looked(*id))?;
                }
                Ok(())
            }
            News::Hints(hints) => {
                self.hints.extend(hints.iter().cloned());
                Ok(())
            }
            News::Figures(figures) => {
                self.figures.insert(figures.worker, *figures);
                Ok(())
            }
        }
    }

    fn take_case(
        &mut self,
        case: &Case,
        parent: Option<&Case>,
        operation: &str,
        priority: u8,
        at: (u64, u64),
    ) -> Result<(), Error> {
        if self.numbers.contains_key(case) {
            return Ok(());
        }
        let id = self.numbers.len() as u64;
        let parent = parent.and_then(|parent| self.numbers.get(parent)).copied();
        let seed = self.seeds.get(case);
        let kept = KeptCase {
            id,
            image: case.image,
            input: self.store.input(&case.input)?,
            parent,
            operation: operation.to_owned(),
            priority,
            is_seed: seed.is_some(),
            at,
        };
        let seed = seed.cloned();
        if let Some(name) = &seed {
            self.journal.append(&Record::Named(id, name.clone()))?;
        }
        self.journal.append(&Record::Case(kept.clone()))?;
        self.write_case(&kept, seed.as_deref(), &case.input)?;
        self.numbers.insert(case.clone(), id);
        self.last_find = now();
        Ok(())
    }

    /// Writes the file of a case; of a seed, `seed` is what that was called.
    fn write_case(&self, kept: &KeptCase, seed: Option<&str>, input: &[u8]) -> Result<(), Error> {
        let name = match (kept.is_seed, given(&kept.operation)) {
            (true, _) => CaseName::seed(kept.id, seed.unwrap_or("seed")),
            (false, Some((party, number))) => CaseName::imported(kept.id, party, number),
            (false, None) => {
                CaseName::from_case(kept.id, kept.parent.unwrap_or(0), None, &kept.operation)
            }
        };
        let image = self.store.node(kept.image)?.number;
        let name = name
            .at(kept.at.0, kept.at.1)
            .detail(&format!("img:{image}"))
            .new_coverage(kept.priority == 2);
        self.folder
            .add_case(Shelf::Queue, &name, input, Durability::Process)?;
        Ok(())
    }

    /// Where a finding's case belongs, and its name there; it counts from now on. `None` for what
    /// is only slow.
    fn shelved(&mut self, found: &Found) -> Option<(Shelf, CaseName)> {
        let is_wrong = found.finding.severity == Severity::Correctness;
        let (shelf, count) = match found.is_hang() {
            true => (Shelf::Hangs, &mut self.hangs),
            false if is_wrong => (Shelf::Crashes, &mut self.crashes),
            false => return None,
        };
        let parent = self.numbers.get(&found.case).copied().unwrap_or(0);
        let name = CaseName::from_case(*count, parent, None, found.finding.rule.as_str())
            .at(found.milliseconds, found.execution);
        *count += 1;
        Some((shelf, name))
    }

    fn take_found(&mut self, key: &str, found: &Found, budget: &Budget) -> Result<(), Error> {
        if self.found.contains_key(key) {
            return Ok(());
        }
        let found = Found {
            milliseconds: budget.elapsed().as_millis() as u64,
            ..found.clone()
        };
        let text = serde_json::to_string(&found).map_err(|e| Error::Corrupt(e.to_string()))?;
        self.journal
            .append(&Record::Found(key.to_owned(), text.clone()))?;
        self.live.found(&found.finding);
        if let Some((shelf, name)) = self.shelved(&found) {
            self.folder
                .add_case(shelf, &name, &found.case.input, Durability::Process)?;
        }
        self.folder
            .write(finding_file(key), text.as_bytes(), Durability::Process)?;
        self.found.insert(key.to_owned(), found);
        Ok(())
    }

    /// Fuzzing has reached a correctness finding.
    fn has_found(&self) -> bool {
        let counts =
            |found: &Found| found.finding.severity == Severity::Correctness && !found.by_seed;
        self.found.values().any(counts)
    }

    /// For whoever draws it. What cannot be written, because the disk is full, is missing there.
    fn note(&mut self, snapshot: &Snapshot) {
        let _ = self.course.as_mut().map(|course| course.note(snapshot));
    }

    fn note_last(&mut self, snapshot: &Snapshot) {
        let _ = self
            .course
            .as_mut()
            .map(|course| course.note_last(snapshot));
    }

    /// To be shown.
    fn snapshot(&mut self, budget: &Budget, stopping: bool) -> Snapshot {
        let progress = self.progress(budget);
        self.live.snapshot(&progress, budget, stopping)
    }

    fn progress(&mut self, budget: &Budget) -> Progress {
        let elapsed = budget.elapsed();
        let executions = budget.executions();
        self.live.executed(budget);
        let mut figures = Figures::default();
        for worker in self.figures.values() {
            figures = Figures {
                worker: 0,
                executions: figures.executions + worker.executions,
                warm: figures.warm + worker.warm,
                opened: figures.opened + worker.opened,
                recorded: figures.recorded + worker.recorded,
                explored: figures.explored + worker.explored,
                recoveries: figures.recoveries + worker.recoveries,
                paths: figures.paths.max(worker.paths),
                path_classes: figures.path_classes.max(worker.path_classes),
                situations: figures.situations.max(worker.situations),
                openings: figures.openings.max(worker.openings),
                edges: figures.edges.max(worker.edges),
                images: figures.images.max(worker.images),
                depth: figures.depth.max(worker.depth),
                cases: figures.cases.max(worker.cases),
                times: Times {
                    opening: figures.times.opening + worker.times.opening,
                    running: figures.times.running + worker.times.running,
                    judging: figures.times.judging + worker.times.judging,
                },
                repeated: figures.repeated + worker.repeated,
                stable: figures.stable + worker.stable,
                cut: figures.cut + worker.cut,
                left_out: figures.left_out + worker.left_out,
                touched: figures.touched + worker.touched,
                recording: figures.recording + worker.recording,
                exploring: figures.exploring + worker.exploring,
                ..Figures::default()
            };
        }
        // Whoever has worked on a case has done so for all.
        let fewest = |of: fn(&Figures) -> u64| self.figures.values().map(of).min().unwrap_or(0);
        figures.pending = fewest(|worker| worker.pending);
        figures.pending_favoured = fewest(|worker| worker.pending_favoured);
        let correctness = self.found.values();
        let correctness =
            correctness.filter(|found| found.finding.severity == Severity::Correctness);
        let correctness = correctness.count() as u64;
        let paths = figures.paths + figures.openings;
        if self.reached.last().is_none_or(|(_, last)| *last != paths) {
            let seconds = self.begun.elapsed().as_secs_f64();
            self.reached.push(((seconds * 1e3).round() / 1e3, paths));
        }
        Progress {
            reached: self.reached.clone(),
            elapsed,
            executions,
            figures,
            cases: self.numbers.len() as u64,
            findings: (correctness, self.found.len() as u64 - correctness),
            rate: self.live.rates().0,
        }
    }

    /// Now and then.
    fn keep_figures(&mut self, budget: &Budget) -> Result<(), Error> {
        if self.written.elapsed() < Duration::from_secs(5) {
            return Ok(());
        }
        self.journal.append(&Record::Spent(budget.spent()))?;
        self.write_figures(budget)
    }

    fn write_figures(&mut self, budget: &Budget) -> Result<(), Error> {
        self.written = Instant::now();
        let progress = self.progress(budget);
        let figures = progress.figures;
        let elapsed = progress.elapsed.as_secs_f64().max(0.001);
        let stats = FuzzerStats {
            start_time: now() - self.begun.elapsed().as_secs(),
            last_update: now(),
            run_time: progress.elapsed.as_secs(),
            fuzzer_pid: std::process::id(),
            execs_done: progress.executions,
            execs_per_sec: progress.executions as f64 / elapsed,
            execs_ps_last_min: self.live.rates().1,
            corpus_count: progress.cases,
            corpus_found: progress.cases,
            max_depth: u64::from(figures.depth),
            // Nothing is known before the first case was run again.
            stability: figures.stability().unwrap_or(0.0),
            pending_total: figures.pending,
            pending_favs: figures.pending_favoured,
            bitmap_cvg: 100.0 * f64::from(figures.edges) / 65536.0,
            saved_crashes: self.crashes,
            saved_hangs: self.hangs,
            last_find: self.last_find,
            exec_timeout: self.patience.as_millis() as u64,
            edges_found: u64::from(figures.edges),
            total_edges: 65536,
            banner: "brownout".to_owned(),
            target_mode: "default".to_owned(),
            command_line: self.command_line.clone(),
            ..FuzzerStats::default()
        };
        self.folder.write_stats(&stats)?;
        self.folder
            .append_plot(&PlotLine::of(&stats, progress.rate))?;
        Ok(())
    }
}
