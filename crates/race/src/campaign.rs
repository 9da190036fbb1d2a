//! A search from beginning to end: the first run, the search, and the folder that keeps what was
//! found.
//!
//! With a folder, each finding is written down when it is made, so that nothing is lost if the tool
//! is killed; `resume` takes them over and goes on behind the last schedule.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use brownout_campaign::course::{Clock, Course};
use brownout_campaign::folder::{Folder, FolderError, Identity, content_name};
use brownout_campaign::journal::Journal;
use brownout_campaign::status::Snapshot;
use brownout_explore::Command;
use brownout_findings::numbers::{counted, either};
use brownout_findings::{Coverage, Finding, Limit};
use brownout_follow::MEMBERS_MAX;
use brownout_host::{ExitStatus, Schedule, Stopped, StrategyKind, find_program};
use serde::{Deserialize, Serialize};

use crate::discoveries::{Discoveries, Discovery, Remark};
use crate::ending::{self, death};
use crate::goals::Prospect;
use crate::inputs::{Inputs, Seeds};
use crate::live::{Live, Standing};
use crate::numbers::Numbers;
use crate::options::{Error, Options, io_error};
use crate::proof::Proof;
use crate::search::{Books, First, Over, Progress, Search, Searched, time_limit};
use crate::stage::{Act, Stage};
use crate::watch::Watch;

/// What came of it.
pub struct Raced {
    /// What was found, and what it takes to see it again.
    pub found: Vec<Discovery>,
    /// Numbers.
    pub numbers: Numbers,
    /// What was looked at.
    pub coverage: Coverage,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// How else the program ends under some schedule.
    pub remarks: Vec<Remark>,
    /// Files that may be meant to be persistent memory.
    pub hints: Vec<std::path::PathBuf>,
    /// Why it has ended.
    pub over: Over,
    /// How the first run ended, if it did so by itself.
    pub ended: Option<String>,
}

/// What a journal has.
#[derive(Serialize, Deserialize)]
enum Entry {
    /// A finding, by its key; it replaces an earlier one of the same key.
    Found {
        key: String,
        finding: Box<Finding>,
        proof: Box<Proof>,
    },
    /// So much has been done.
    Did(Box<Numbers>),
    /// An input has come to stay.
    Input(Vec<u8>),
}

/// What `campaign.json` calls it.
const KIND: &str = "race";

/// What must be the same when a campaign goes on.
#[derive(Serialize)]
struct Key {
    program: String,
    input: Option<String>,
    /// Made of seeds and templates.
    seeds: Option<u64>,
    setup: Option<String>,
    recover: String,
    continues: Option<String>,
    checker: Option<String>,
    pm: Vec<String>,
    model: String,
    strategy: Option<&'static str>,
    seed: u64,
    program_content: Option<String>,
    recover_content: Option<String>,
    continue_content: Option<String>,
}

/// What the file of a command holds; nothing if it is not found, which whoever runs it says.
fn content_of(command: &Command) -> Option<String> {
    content_name(&find_program(&command.program).ok()?).ok()
}

/// What may change in a campaign: as it was begun, for those who look at it.
#[derive(Serialize, Deserialize)]
struct Settings {
    /// The program and its arguments.
    program: Vec<String>,
    /// The words after `brownout`.
    command_line: Vec<String>,
    /// The persistence domain, by name.
    domain: String,
}

/// A campaign as its folder has it, also while it goes on.
pub struct Looked {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// How the tool was called: the words after `brownout`.
    pub command_line: Vec<String>,
    /// The persistence domain, by name.
    pub domain: String,
    /// What was found until now.
    pub found: Vec<Discovery>,
}

/// Reads a campaign's folder, and changes nothing in it.
pub fn look(folder: &Path) -> Result<Looked, Error> {
    let (layout, identity) = Folder::look(folder)?;
    if identity.kind != KIND {
        return Err(Error::Folder(FolderError::OtherKind {
            path: folder.to_path_buf(),
            found: identity.kind,
            expected: KIND.to_owned(),
        }));
    }
    let settings: Settings = serde_json::from_value(identity.settings.clone()).map_err(|e| {
        Error::Usage(format!(
            "{} was made by another version of Brownout: {e}",
            folder.display()
        ))
    })?;
    let (entries, _) = Journal::<String>::read(&layout.journal(), &identity.hash())?;
    let Settings {
        program,
        command_line,
        domain,
    } = settings;
    Ok(Looked {
        program,
        command_line,
        domain,
        found: Recalled::of(&entries).known.into_list(),
    })
}

/// What the entries of a journal come to.
#[derive(Default)]
struct Recalled {
    did: Numbers,
    known: Discoveries,
    inputs: Vec<Vec<u8>>,
}

impl Recalled {
    fn of(entries: &[String]) -> Recalled {
        let mut recalled = Recalled::default();
        let entries = entries.iter();
        for entry in entries.filter_map(|text| serde_json::from_str(text).ok()) {
            match entry {
                Entry::Did(numbers) => recalled.did = *numbers,
                Entry::Input(input) => recalled.inputs.push(input),
                Entry::Found {
                    key,
                    finding,
                    proof,
                } => {
                    let discovery = Discovery {
                        finding: *finding,
                        proof: *proof,
                    };
                    recalled.known.add(&key, &discovery);
                }
            }
        }
        recalled
    }
}

/// The folder of a campaign, and what was known when it was opened.
struct Kept {
    journal: Mutex<Journal<String>>,
    /// What was reached when; none if it cannot be written, which is no reason to end.
    course: Mutex<Option<Course>>,
    _folder: Folder,
    did: Numbers,
    known: Discoveries,
    inputs: Vec<Vec<u8>>,
}

impl Kept {
    fn open(options: &Options) -> Result<Option<Kept>, Error> {
        let Some(out) = &options.out else {
            return Ok(None);
        };
        let key = Key {
            program: options.program.display(),
            input: options
                .program
                .stdin
                .as_ref()
                .map(|path| path.display().to_string()),
            seeds: options.seeds.as_ref().map(Seeds::name),
            setup: options.setup.clone(),
            recover: options.recover.display(),
            continues: options.continues.as_ref().map(|command| command.display()),
            checker: options.checker.clone(),
            pm: options.pm_globs.clone(),
            model: format!("{:?}, {:?}", options.model, options.promise),
            strategy: options.strategy.map(StrategyKind::name),
            seed: options.seed,
            program_content: content_of(&options.program),
            recover_content: content_of(&options.recover),
            continue_content: options.continues.as_ref().and_then(content_of),
        };
        let words = std::iter::once(&options.program.program).chain(&options.program.args);
        let settings = Settings {
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            command_line: options.command_line.clone(),
            domain: options.model.domain.name().to_owned(),
        };
        let identity = Identity::new(KIND, &key, &settings)
            .map_err(|error| Error::Usage(format!("cannot name the campaign: {error}")))?;
        let folder = match options.resume {
            true => Folder::resume(out, &identity)?,
            false => Folder::create(out, &identity)?,
        };
        let path = folder.layout().journal();
        let (journal, entries, _) = Journal::<String>::open(&path, &identity.hash())?;
        let Recalled { did, known, inputs } = Recalled::of(&entries);
        Ok(Some(Kept {
            journal: Mutex::new(journal),
            course: Mutex::new(Course::open(&folder.layout().course(), Clock::Search).ok()),
            _folder: folder,
            did,
            known,
            inputs,
        }))
    }

    fn write(&self, entry: &Entry) {
        let Ok(text) = serde_json::to_string(entry) else {
            return;
        };
        let mut journal = self.journal.lock().unwrap_or_else(|p| p.into_inner());
        // What cannot be kept is still reported.
        let _ = journal.append(&text);
    }
}

impl Kept {
    /// For whoever draws it. What cannot be written, because the disk is full, is missing there.
    fn note(&self, snapshot: &Snapshot, is_last: bool) {
        let mut course = self.course.lock().unwrap_or_else(|p| p.into_inner());
        let Some(course) = course.as_mut() else {
            return;
        };
        let _ = match is_last {
            true => course.note_last(snapshot),
            false => course.note(snapshot),
        };
    }
}

/// The folder, if there is one.
struct Shelf<'a>(Option<&'a Kept>);

impl Books for Shelf<'_> {
    fn found(&self, key: &str, discovery: &Discovery) {
        if let Some(kept) = self.0 {
            kept.write(&Entry::Found {
                key: key.to_owned(),
                finding: Box::new(discovery.finding.clone()),
                proof: Box::new(discovery.proof.clone()),
            });
        }
    }

    fn keeps(&self, input: &[u8]) {
        if let Some(kept) = self.0 {
            kept.write(&Entry::Input(input.to_vec()));
        }
    }
}

/// Searches.
pub fn race(options: &Options, progress: &mut dyn Progress) -> Result<Raced, Error> {
    let kept = Kept::open(options)?;
    let mut stage = Stage::new(options)?;
    let mut begun = Instant::now();
    let (did, known, earlier) = match &kept {
        Some(kept) => (kept.did, kept.known.clone(), kept.inputs.clone()),
        None => Default::default(),
    };
    let start = did.schedules;
    let inputs = match &options.seeds {
        Some(seeds) if !seeds.can_be_changed() => {
            return Err(Error::Usage(
                "the seeds do not look like operations, a line each: --operations says what operations look like".into(),
            ));
        }
        // What is made after a campaign has been taken up again is not what it has made before.
        Some(seeds) => {
            Inputs::made_of(seeds, earlier, &stage.scratch(), options.seed ^ start << 32)
                .map_err(io_error("cannot write an input"))?
        }
        None => Inputs::one(options.program.stdin.clone()),
    };
    let mut watch = Watch::new(options.model);
    let act = Act::new(Schedule::new(StrategyKind::GoOn, 0), &inputs.first());
    // Without a time of the user's, the first run has its own.
    stage.end_at(options.time.map(|time| begun + time));
    let first = stage.run(act, &mut watch)?;
    stage.bound(&first, options.patience);
    let mut raced = Raced {
        found: Vec::new(),
        numbers: Numbers::default(),
        coverage: Coverage::default(),
        notes: first.outcome.notes.clone(),
        remarks: Vec::new(),
        hints: first.outcome.hints.clone(),
        over: Over::Quiet,
        // Who was ended was not seen to end.
        ended: match (first.outcome.stopped, first.outcome.status) {
            (Some(_), _) => None,
            (None, ExitStatus::Code(code)) => Some(format!("exit code {code}")),
            (None, ExitStatus::Signal(signal)) => Some(format!("signal {signal}")),
        },
    };
    if let Some(kept) = &kept {
        // Whatever becomes of this search, what is known is reported.
        raced.found = kept.known.clone().into_list();
        raced.numbers = kept.did;
    }
    raced.numbers.threads = watch.threads as u64;
    if options.stop.load(Ordering::Relaxed) {
        raced
            .coverage
            .limit(Limit::Interrupted, "ended in the first run");
        raced.over = Over::Stopped;
        return Ok(raced);
    }
    if first.is_cut {
        raced.coverage.limit(
            Limit::Time,
            "the time was up before the first run had ended",
        );
        raced.over = Over::Time;
        return Ok(raced);
    }
    if first.is_endless {
        raced.notes.push(format!(
            "the first run, in which nobody is interrupted, did not end {}, and was ended",
            match first.outcome.stopped {
                Some(Stopped::Events) => {
                    format!("within {}", counted(first.outcome.events, "event"))
                }
                Some(Stopped::Steps) => {
                    format!("within {}", counted(first.scheduled.steps, "point"))
                }
                _ => format!("in {:.0} s", first.outcome.wall.as_secs_f64()),
            }
        ));
    }
    if watch.touching.is_empty() {
        raced
            .coverage
            .limit(Limit::Untouched, "no persistent memory was touched");
        if !options.pm_globs.is_empty() {
            raced.coverage.limit(
                Limit::Unmatched,
                "no file that matches --pm was mapped and used",
            );
        }
        return Ok(raced);
    }
    if watch.threads <= 1 {
        raced.coverage.limit(
            Limit::Unsupported,
            "the program has one thread: there is nothing to schedule (`brownout check` and `brownout explore` judge such programs)",
        );
        return Ok(raced);
    }
    let shown = First {
        begun: match options.time {
            Some(_) => begun,
            None => Instant::now(),
        },
        end: ending::ending(&first),
        death: death(&first, &watch).map(|death| death.name),
    };
    begun = shown.begun;
    stage.end_at(time_limit(options).map(|limit| begun + limit));
    let search = Search::new(options, &stage, inputs, start, known, &shown);
    let mut live = Live::new(options);
    let mut written = Instant::now();
    let mut shows = |standing: &Standing| {
        const EVERY: Duration = Duration::from_secs(1);
        let standing = &Standing {
            numbers: standing.numbers.after(&did),
            ..*standing
        };
        let snapshot = live.snapshot(standing);
        progress.show(&snapshot);
        if let Some(kept) = &kept {
            kept.note(&snapshot, false);
            if written.elapsed() > EVERY {
                kept.write(&Entry::Did(Box::new(standing.numbers)));
                written = Instant::now();
            }
        }
    };
    let mut searched = search.run(&mut shows, &Shelf(kept.as_ref()))?;
    searched.numbers.seconds = begun.elapsed().as_secs_f64();
    searched.numbers = searched.numbers.after(&did);
    if let Some(kept) = &kept {
        kept.write(&Entry::Did(Box::new(searched.numbers)));
        let errors = searched.found.iter().filter(|found| found.is_error());
        let errors = errors.count() as u64;
        let end = Standing {
            numbers: searched.numbers,
            found: (errors, searched.found.len() as u64 - errors),
            is_stopping: true,
            ..Standing::default()
        };
        kept.note(&live.snapshot(&end), true);
    }
    conclude(&mut raced, searched);
    // It goes if it is empty.
    let _ = fs::remove_dir(&options.folder);
    Ok(raced)
}

fn conclude(raced: &mut Raced, searched: Searched) {
    raced.numbers = searched.numbers;
    raced.found = searched.found;
    raced.over = searched.over;
    raced.remarks = searched.remarks;
    // That is what a search of schedules is, so nobody need accept it; but nobody is told that all
    // was looked at.
    raced.coverage.limit(
        Limit::Interleaving,
        format!(
            "{} of {} {} run; others may show more",
            counted(raced.numbers.schedules, "schedule"),
            match raced.numbers.inputs {
                1 => "one input".to_owned(),
                n => format!("{n} inputs"),
            },
            if raced.numbers.schedules == 1 {
                "was"
            } else {
                "were"
            }
        ),
    );
    raced.coverage.accept(&[Limit::Interleaving]);
    if searched.over == Over::Stopped {
        raced
            .coverage
            .limit(Limit::Interrupted, "ended before its time");
    }
    if searched.has_diverged > 0 {
        raced.coverage.limit(
            Limit::Nondeterministic,
            format!(
                "{} another way when run again: the program depends on something else than its input and its schedule \
                 (the time, another process), and what was seen then is not judged",
                match searched.has_diverged {
                    1 => "1 schedule went".to_owned(),
                    n => format!("{n} schedules went"),
                }
            ),
        );
    }
    if let Some(text) = &searched.fails_anyway {
        raced.coverage.limit(
            Limit::Unjudged,
            format!(
                "{text}, even though no store is lost; no early read is to blame for that, so it is not judged here: `brownout explore` (with --schedule) is for such crashes"
            ),
        );
    }
    // What is reported has to be mended first, and may be the reason.
    let has_errors = raced.found.iter().any(Discovery::is_error);
    if let Some(text) = searched.fails_before.filter(|_| !has_errors) {
        raced.coverage.limit(
            Limit::Unjudged,
            format!(
                "{text}; that takes no second thread, so it is not judged here: `brownout explore` (with --schedule) is for such crashes"
            ),
        );
    }
    if let Some(text) = searched.not_judged {
        raced.coverage.limit(Limit::Unjudged, text);
    }
    if raced.numbers.endless > 0 {
        raced.notes.push(match raced.numbers.endless {
            1 => "1 schedule was cut off because it did not end; whether threads wait in it for ever was looked at, and no crash of it was tried".to_owned(),
            n => format!("{n} schedules were cut off because they did not end; whether threads wait in them for ever was looked at, and no crash of them was tried"),
        });
    }
    if searched.not_followed > 0 {
        raced.coverage.limit(
            Limit::Limits,
            format!(
                "{} only in schedules that did not end: what the program makes of {} is not known",
                match searched.not_followed {
                    1 => "1 early read was seen".to_owned(),
                    n => format!("{n} early reads were seen"),
                },
                either(searched.not_followed, "it", "them")
            ),
        );
    }
    not_followed(raced);
    raced.notes.extend(open_predictions(&searched.predictions));
}

/// Says where the data flow of a run was lost.
fn not_followed(raced: &mut Raced) {
    let Numbers {
        given_up, crowded, ..
    } = raced.numbers;
    if given_up > 0 {
        let instructions = counted(given_up, "executed instruction");
        raced.coverage.limit(
            Limit::Limits,
            format!(
                "the data flow of {instructions} is not known: what {} computed from early reads is not followed",
                either(given_up, "it has", "they have")
            ),
        );
    }
    if crowded > 0 {
        raced.coverage.limit(
            Limit::Limits,
            format!(
                "{} on more than {MEMBERS_MAX} early reads, of which no more than {MEMBERS_MAX} each were looked at",
                match crowded {
                    1 => "1 store or output depends".to_owned(),
                    n => format!("{n} stores or outputs depend"),
                }
            ),
        );
    }
}

/// What could be read too early by locks and order, and was not seen to be.
fn open_predictions(predictions: &[(String, Prospect, u32)]) -> Vec<String> {
    const SHOWN: usize = 8;
    let open = predictions
        .iter()
        .filter(|(_, standing, _)| *standing == Prospect::Open);
    let told = |(words, _, tries): &(String, Prospect, u32)| {
        format!(
            "predicted, and neither shown nor refuted by the {} directed at it: {words} before it is persistent",
            counted(u64::from(*tries), "schedule")
        )
    };
    let mut notes: Vec<String> = open.clone().take(SHOWN).map(told).collect();
    let more = open.count().saturating_sub(SHOWN);
    if more > 0 {
        notes.push(format!(
            "{more} more {} open",
            either(more as u64, "prediction is", "predictions are")
        ));
    }
    notes
}
