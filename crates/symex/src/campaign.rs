//! A search from beginning to end: one searcher or several side by side, and the folder that keeps
//! what came of it.
//!
//! ```text
//!  searcher ─┬─▶ inputs that did something new to persistent memory ─▶ tests/, journal, the other searchers
//!            └─▶ findings ─▶ journal
//! ```
//! Searchers differ in their seeds. What one has found worth keeping, the others run, too, and turn
//! its decisions; nothing else is shared, so a search by several cannot be repeated exactly.
//!
//! **Guarantee.** What is in the folder is there when it was found, so nothing is lost if the tool
//! is killed. To resume is to run all inputs that were kept, and to go on from there: which
//! decisions were turned before is not known any more, and some are turned again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brownout_campaign::course::{Clock, Course};
use brownout_campaign::folder::{Folder, FolderError, Identity};
use brownout_campaign::journal::Journal;
use brownout_campaign::status::{Figure, Snapshot};
use brownout_findings::Finding;
use serde::{Deserialize, Serialize};

use crate::judge::{Found, Proof};
use crate::numbers::Numbers;
use crate::options::{Error, Options, io_error};
use crate::search::{Company, Over, Search, Step};
use crate::shadow::Losses;
use crate::stage::Stage;

/// Who is told how it goes.
pub trait Progress {
    /// From time to time.
    fn show(&mut self, numbers: &Numbers);
}

/// What came of a search.
pub struct Searched {
    /// What was found, and by which input.
    pub found: Vec<Found>,
    /// What was done.
    pub numbers: Numbers,
    /// What was not followed.
    pub losses: Losses,
    /// Inputs that together do all that was done to persistent memory.
    pub kept: Vec<Vec<u8>>,
    /// Of these, how many were kept before the campaign was resumed.
    pub kept_before: usize,
    /// What explorations have to say.
    pub notes: Vec<String>,
    /// Why it has ended.
    pub over: Over,
}

/// What a journal has.
#[derive(Serialize, Deserialize)]
enum Entry {
    /// An input has come to stay. Those of one folder are numbered in their order.
    Kept {
        input: Vec<u8>,
        from: Option<usize>,
        turned: Option<String>,
    },
    /// A finding, and what shows it.
    Found {
        finding: Box<Finding>,
        proof: Proof,
        by_first: bool,
        behind: Option<usize>,
    },
}

/// What must be the same when a campaign goes on.
#[derive(Serialize)]
struct Key {
    program: String,
    delivery: String,
    input: String,
    free: String,
    stdin: Option<PathBuf>,
    setup: Option<String>,
    recover: Option<String>,
    pm: Vec<String>,
}

/// What `campaign.json` calls it.
const KIND: &str = "symex";

/// What may change in a campaign: as it was begun, for those who look at it.
#[derive(Serialize, Deserialize)]
struct Settings {
    /// The program and its arguments.
    program: Vec<String>,
    /// The words after `brownout`.
    command_line: Vec<String>,
}

/// A campaign as its folder has it, also while it goes on.
pub struct Looked {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// How the tool was called: the words after `brownout`.
    pub command_line: Vec<String>,
    /// What was found until now.
    pub found: Vec<Found>,
    /// The paths that did something new to persistent memory, in the order of their numbers.
    pub kept: Vec<Step>,
}

/// Reads a campaign's folder, and changes nothing in it.
///
/// # Errors
///
/// It is no such folder, or cannot be read.
pub fn look(folder: &Path) -> Result<Looked, Error> {
    let (layout, identity) = Folder::look(folder)?;
    if identity.kind != KIND {
        return Err(Error::Folder(FolderError::OtherKind {
            path: folder.to_path_buf(),
            found: identity.kind,
            expected: KIND.to_owned(),
        }));
    }
    let settings = serde_json::from_value(identity.settings.clone());
    let Settings {
        program,
        command_line,
    } = settings.map_err(|e| {
        Error::Usage(format!(
            "{} was made by another version of Brownout: {e}",
            folder.display()
        ))
    })?;
    let (entries, _) = Journal::<String>::read(&layout.journal(), &identity.hash())?;
    let mut looked = Looked {
        program,
        command_line,
        found: Vec::new(),
        kept: Vec::new(),
    };
    for text in &entries {
        match serde_json::from_str(text) {
            Ok(Entry::Kept {
                input,
                from,
                turned,
            }) => looked.kept.push(Step {
                input,
                from,
                turned,
            }),
            Ok(Entry::Found {
                finding,
                proof,
                by_first,
                behind,
            }) => looked.found.push(Found {
                finding: *finding,
                proof,
                by_first,
                behind,
            }),
            Err(_) => {}
        }
    }
    Ok(looked)
}

/// What is drawn of a search.
fn snapshot(numbers: &Numbers) -> Snapshot {
    let figure = |name: &str, value| Figure {
        name: name.to_owned(),
        value,
        ..Figure::default()
    };
    let mut findings = vec![("correctness".to_owned(), numbers.errors)];
    if numbers.others > 0 {
        findings.push(("others".to_owned(), numbers.others));
    }
    Snapshot {
        elapsed: Duration::from_secs_f64(numbers.seconds.max(0.0)),
        executions: numbers.paths,
        coverage: vec![
            figure("PM paths", numbers.pm_paths),
            figure("edges", numbers.edges),
            figure("branches to turn", numbers.waiting),
        ],
        findings,
        ..Snapshot::default()
    }
}

/// The folder of a campaign.
struct Kept {
    journal: Journal<String>,
    /// What was reached when; none if it cannot be written, which is no reason to end.
    course: Option<Course>,
    tests: PathBuf,
    _folder: Folder,
}

impl Kept {
    /// Opens it, and says what was there before.
    fn open(options: &Options) -> Result<(Option<Kept>, Vec<Entry>), Error> {
        let Some(out) = &options.out else {
            return Ok((None, Vec::new()));
        };
        let key = Key {
            program: options.program.display(),
            delivery: format!("{:?}", options.delivery),
            input: options.first.escape_ascii().to_string(),
            free: format!("{:?}", options.free),
            stdin: options.stdin.clone(),
            setup: options.setup.clone(),
            recover: options.recover.clone(),
            pm: options.pm_globs.clone(),
        };
        let words = std::iter::once(&options.program.program).chain(&options.program.args);
        let settings = Settings {
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            command_line: options.command_line.clone(),
        };
        let identity = Identity::new(KIND, &key, &settings)
            .map_err(|error| Error::Usage(format!("cannot name the campaign: {error}")))?;
        let folder = match options.resume {
            true => Folder::resume(out, &identity)?,
            false => Folder::create(out, &identity)?,
        };
        let tests = out.join("tests");
        fs::create_dir_all(&tests).map_err(io_error("cannot make the folder 'tests' in --out"))?;
        let path = folder.layout().journal();
        let (journal, entries, _) = Journal::<String>::open(&path, &identity.hash())?;
        let entries = entries.iter();
        let entries = entries.filter_map(|text| serde_json::from_str(text).ok());
        let entries = entries.collect();
        let kept = Kept {
            journal,
            course: Course::open(&folder.layout().course(), Clock::Run).ok(),
            tests,
            _folder: folder,
        };
        Ok((Some(kept), entries))
    }

    fn write(&mut self, entry: &Entry) {
        if let Ok(text) = serde_json::to_string(entry) {
            // What cannot be kept is still reported.
            let _ = self.journal.append(&text);
        }
    }
}

/// What searchers have in common.
struct Shared {
    /// Inputs that were kept, and by whom.
    kept: Vec<(Option<usize>, Vec<u8>)>,
    found: Vec<Found>,
    numbers: Vec<Numbers>,
    books: Option<Kept>,
}

impl Shared {
    /// Which of the inputs that were kept this is.
    fn number(&self, input: &[u8]) -> Option<usize> {
        self.kept.iter().position(|(_, known)| known == input)
    }

    /// `from` is the number of the one that it hangs below.
    fn keep(
        &mut self,
        by: Option<usize>,
        input: &[u8],
        from: Option<usize>,
        turned: Option<&str>,
    ) -> Result<(), Error> {
        if self.number(input).is_some() {
            return Ok(());
        }
        if let Some(books) = &mut self.books {
            let path = books.tests.join(format!("{:06}", self.kept.len()));
            fs::write(path, input).map_err(io_error("cannot keep an input"))?;
            if by.is_some() {
                books.write(&Entry::Kept {
                    input: input.to_vec(),
                    from,
                    turned: turned.map(str::to_owned),
                });
            }
        }
        self.kept.push((by, input.to_vec()));
        Ok(())
    }

    fn find(&mut self, found: &Found, is_new: bool) {
        let is_known = |known: &Found| known.proof.is_same(&found.proof);
        match self.found.iter_mut().find(|known| is_known(known)) {
            Some(known) => known.finding.count = known.finding.count.max(found.finding.count),
            None => {
                if let (Some(books), true) = (&mut self.books, is_new) {
                    books.write(&Entry::Found {
                        finding: Box::new(found.finding.clone()),
                        proof: found.proof.clone(),
                        by_first: found.by_first,
                        behind: found.behind,
                    });
                }
                self.found.push(found.clone());
            }
        }
    }
}

/// One of the searchers, as the others see it.
struct Member<'s> {
    number: usize,
    shared: &'s Mutex<Shared>,
    enough: &'s AtomicBool,
    progress: Option<&'s mut dyn Progress>,
    /// So many of its own inputs and findings are known to all, and so many inputs of all to it.
    told: (usize, usize),
    heard: usize,
}

impl Member<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // A panic elsewhere is being reported already; the data stays usable.
        self.shared.lock().unwrap_or_else(|p| p.into_inner())
    }
}

impl Company for Member<'_> {
    fn show(&mut self, numbers: &Numbers) {
        let mut shared = self.lock();
        shared.numbers[self.number] = *numbers;
        let all = Numbers::of_all(&shared.numbers);
        if let Some(course) = shared
            .books
            .as_mut()
            .and_then(|books| books.course.as_mut())
        {
            // What cannot be written, because the disk is full, is not drawn.
            let _ = course.note(&snapshot(&all));
        }
        drop(shared);
        if let Some(progress) = &mut self.progress {
            progress.show(&all);
        }
    }

    fn tells(&mut self, kept: &[Step], found: &[(u64, Found)]) -> Result<(), Error> {
        if (kept.len(), found.len()) == self.told {
            return Ok(());
        }
        let mut shared = self.lock();
        // Numbers are those of the folder there, and of this searcher here.
        for step in &kept[self.told.0..] {
            let from = step.from.and_then(|from| shared.number(&kept[from].input));
            let turned = step.turned.as_deref();
            shared.keep(Some(self.number), &step.input, from, turned)?;
        }
        for (_, found) in &found[self.told.1..] {
            let behind = found.behind.map(|at| &kept[at].input);
            let behind = behind.and_then(|input| shared.number(input));
            let found = Found {
                behind,
                ..found.clone()
            };
            shared.find(&found, true);
        }
        drop(shared);
        self.told = (kept.len(), found.len());
        Ok(())
    }

    fn hears(&mut self) -> Option<Vec<u8>> {
        let shared = self.shared.lock().unwrap_or_else(|p| p.into_inner());
        while let Some((by, input)) = shared.kept.get(self.heard) {
            self.heard += 1;
            if *by != Some(self.number) {
                return Some(input.clone());
            }
        }
        None
    }

    fn has_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }
}

/// What one searcher has come to.
struct Ended {
    over: Over,
    losses: Losses,
    notes: Vec<String>,
}

fn one(options: &Options, stage: Stage, mut member: Member<'_>) -> Result<Ended, Error> {
    let mut search = Search::new(options, stage);
    let over = search.run(&mut member);
    // The others need not go on.
    if matches!(over, Ok(Over::Found) | Err(_)) {
        member.enough.store(true, Ordering::Relaxed);
    }
    let over = over?;
    member.tells(&search.kept, &search.judge.found)?;
    // Counts of what was found more often.
    let mut shared = member.lock();
    shared.numbers[member.number] = search.numbers;
    for (_, found) in &search.judge.found {
        shared.find(found, true);
    }
    drop(shared);
    search.name_places();
    Ok(Ended {
        over,
        losses: search.losses,
        notes: search.notes.into_iter().chain(search.judge.notes).collect(),
    })
}

/// Searches.
///
/// # Errors
///
/// The program cannot be run, or kept apart from the machine; the folder cannot be used.
pub fn symex(options: &Options, progress: &mut dyn Progress) -> Result<Searched, Error> {
    let (books, entries) = Kept::open(options)?;
    let stage = Stage::new(options)?;
    let options = &begun(options, &stage);
    let jobs = options.jobs.max(1);
    let mut shared = Shared {
        kept: Vec::new(),
        found: Vec::new(),
        numbers: vec![Numbers::default(); jobs],
        books,
    };
    for entry in entries {
        match entry {
            Entry::Kept { input, .. } if input.len() == options.first.len() => {
                shared.keep(None, &input, None, None)?;
            }
            Entry::Kept { .. } => {}
            Entry::Found {
                finding,
                proof,
                by_first,
                behind,
            } => shared.find(
                &Found {
                    finding: *finding,
                    proof,
                    by_first,
                    behind,
                },
                false,
            ),
        }
    }
    let kept_before = shared.kept.len();
    let shared = Mutex::new(shared);
    let enough = AtomicBool::new(false);
    let member = |number: usize| Member {
        number,
        shared: &shared,
        enough: &enough,
        progress: None,
        told: (0, 0),
        heard: 0,
    };
    let each = |number: usize| Options {
        seed: options.seed.wrapping_add(number as u64),
        paths: options.paths.map(|paths| paths.div_ceil(jobs as u64)),
        ..options.clone()
    };
    let ended: Vec<Result<Ended, Error>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs)
            .map(|number| {
                let (options, member) = (each(number), &member);
                scope.spawn(move || one(&options, Stage::new(&options)?, member(number)))
            })
            .collect();
        let mut first = member(0);
        first.progress = Some(progress);
        let first = one(&each(0), stage, first);
        let others = others.into_iter().map(|other| match other.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect()
    });
    let mut over = Over::All;
    let mut losses = Losses::default();
    let mut notes = Vec::new();
    for ended in ended {
        let ended = ended?;
        over = over.max(ended.over);
        losses.add(&ended.losses);
        notes.extend(ended.notes);
    }
    notes.sort();
    notes.dedup();
    let mut shared = shared.into_inner().unwrap_or_else(|p| p.into_inner());
    let numbers = Numbers::of_all(&shared.numbers);
    if let Some(course) = shared
        .books
        .as_mut()
        .and_then(|books| books.course.as_mut())
    {
        let _ = course.note_last(&snapshot(&numbers));
    }
    Ok(Searched {
        found: shared.found,
        numbers,
        losses,
        kept: shared.kept.into_iter().map(|(_, input)| input).collect(),
        kept_before,
        notes,
        over,
    })
}

/// With the first input, which may be known only after the set-up.
fn begun(options: &Options, stage: &Stage) -> Options {
    let first = stage.first.clone();
    Options {
        first: first.unwrap_or_else(|| options.first.clone()),
        ..options.clone()
    }
}

/// Runs the program on the input of a finding: whether it shows again.
///
/// # Errors
///
/// As [`symex`].
pub fn replay(options: &Options, proof: &Proof) -> Result<bool, Error> {
    let options = Options {
        first: proof.input.clone(),
        paths: Some(1),
        ..options.clone()
    };
    let mut search = Search::new(&options, Stage::new(&options)?);
    match proof.by_exploration {
        true => search.explore(&proof.input, None)?,
        false => {
            search.run(&mut Alone)?;
        }
    }
    Ok(search.judge.has(proof))
}

/// Nobody else searches, and nobody wants to know.
struct Alone;

impl Company for Alone {
    fn show(&mut self, _: &Numbers) {}

    fn tells(&mut self, _: &[Step], _: &[(u64, Found)]) -> Result<(), Error> {
        Ok(())
    }

    fn hears(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn has_enough(&self) -> bool {
        false
    }
}
