//! From a failing crash state to something that a person can act on.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brownout_findings::{
    CrashFile, Event, Finding, Frame, Place, Reproduction, Role, blame as whose,
};
use brownout_host::LaunchError;
use brownout_model::{ByteRange, Moment, keys, mask_within, masked};
use brownout_trace::event::FileId;
use serde::{Deserialize, Serialize};

use crate::blame::{self, Facts, WrittenBack};
use crate::execution::{Command, quote};
use crate::filing::NameStep;
use crate::line::LineKey;
use crate::minimise::Minimal;
use crate::oracle::Symptom;
use crate::outcome::{Outcome, Status};
use crate::recording::{Did, FailurePoint, Reason, Recording, Step};
use crate::search::{Failure, Search};
use crate::site::Site;
use crate::stacks::Resolver;
use crate::unit::{PAGE, is_ordinary};
use crate::view::{Entry, Image, Narrowed};
use crate::world::World;

/// More lost stores are counted, not shown.
const LOST_SHOWN: usize = 6;

/// Which crash: enough to make its image again from a recording of the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashSpec {
    /// From the recorded run to the innermost recovery that was cut short.
    pub crashes: Vec<OneCrash>,
    /// How recovery ended.
    pub status: String,
    /// Hash of what it printed.
    pub output: String,
    /// What a checker was told.
    pub operations: u64,
    /// Likewise.
    pub text: Vec<u8>,
}

impl CrashSpec {
    /// Notes down what recovery did.
    pub fn expect(&mut self, outcome: &Outcome) {
        (self.status, self.output) = Self::signature(outcome);
    }

    /// Whether this is what recovery did.
    pub fn is_expected(&self, outcome: &Outcome) -> bool {
        (self.status.clone(), self.output.clone()) == Self::signature(outcome)
    }

    fn signature(outcome: &Outcome) -> (String, String) {
        let mut status = outcome.status.to_string();
        if let Some((checker, _)) = &outcome.checker {
            status += &format!(", checker {checker}");
        }
        for broken in &outcome.broken {
            status += &format!(", {broken}");
        }
        // A recovery that hangs is ended at some moment, and has printed what it has printed.
        let output = match outcome.status {
            Status::Hang(_) => String::new(),
            _ => blake3::hash(&outcome.stdout).to_hex()[..16].to_owned(),
        };
        (status, output)
    }
}

/// A crash of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneCrash {
    /// Number of the failure point.
    pub point: u32,
    /// Which run it is a failure point of: a hash of all that it stored, and of the files that it found.
    #[serde(default)]
    pub run: String,
    /// What survived of the units that lost something: unit, ordered stores, unordered stores.
    pub survivors: Vec<(u64, usize, Vec<bool>)>,
}

/// A finding and what belongs to it.
pub struct Found {
    pub finding: Finding,
    pub image: Image,
    pub symptom: Symptom,
    pub spec: CrashSpec,
    pub layer: usize,
    pub point: u32,
    pub outcome: u32,
    /// Lines of code that it blames.
    pub cause: Cause,
    /// The stores that were lost.
    pub lost_sites: Vec<Vec<Frame>>,
    /// What [`explain`] goes by.
    known: Known,
}

/// What is known of a failure before anybody asks what else is to blame.
struct Known {
    narrowed: Narrowed,
    lost: Vec<Moment>,
    /// How the first lost store was written back, and whether it is lost in part.
    first: Option<(WrittenBack, bool)>,
    survivor: Option<Vec<Frame>>,
    /// Where recovery looked for its file and found it.
    found_at: Option<(Site, Vec<Frame>)>,
}

/// What two findings of one cause share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(pub String);

/// Names of the stacks of all layers.
#[derive(Default)]
pub struct Resolvers {
    layers: BTreeMap<usize, Resolver>,
}

impl Resolvers {
    /// The stack of a place in a layer's run.
    pub fn stack(&mut self, layer: usize, recording: &Recording, site: Site) -> Vec<Frame> {
        let resolver = self
            .layers
            .entry(layer)
            .or_insert_with(|| recording.definitions.resolve());
        resolver.stack(site)
    }
}

/// What a failure is probably about, before anything is known of what it needs.
pub fn guess(search: &Search<'_>, resolvers: &mut Resolvers, failure: &Failure) -> Cause {
    let recording = &search.layers[failure.layer].recording;
    let view = search.view(failure.layer, failure.point);
    let mut lost: Vec<u64> = failure
        .narrowed
        .iter()
        .filter_map(|(unit, cuts)| {
            let survivors = cuts.iter().max()?.newest();
            let choices = view.choices(*unit)?;
            Some(choices.lost(&survivors).first()?.moment.0)
        })
        .collect();
    lost.sort_unstable();
    let crash = recording.points[failure.point as usize].site;
    let mut text = failure.symptom.rule().id().to_owned();
    if let Symptom::Reordered(_) = failure.symptom {
        return Cause(text);
    }
    let first = lost
        .first()
        .and_then(|m| recording.steps.get(*m as usize - 1))
        .map(|step| step.site);
    for site in [first, crash].into_iter().flatten() {
        let stack = resolvers.stack(failure.layer, recording, site);
        text += &format!(" {}", whose::line(&stack));
    }
    Cause(text)
}

/// Makes the finding. If the search was stopped meanwhile, it lacks what recovery did and where.
pub fn build(
    search: &mut Search<'_>,
    resolvers: &mut Resolvers,
    failure: &Failure,
    minimal: Minimal,
) -> Result<Found, LaunchError> {
    let layer = failure.layer;
    let image = minimal.image;
    let outcome = search.known.outcomes[minimal.outcome as usize].clone();
    // Once more, with stacks.
    let acknowledged = search.acknowledged_at(layer, failure.point);
    let execution = search.recover(&image, acknowledged, true)?;
    let recording = &search.layers[layer].recording;
    let point = &recording.points[failure.point as usize];
    let mut lost: Vec<(Step, ByteRange)> = Vec::new();
    let mut moments: Vec<(Moment, bool)> = Vec::new();
    for (unit, survivors) in &image.survivors {
        let Some(choices) = image.view.choices(*unit) else {
            continue;
        };
        for write in choices.lost(survivors) {
            if let Some(step) = recording.steps.get(write.moment.0 as usize - 1) {
                lost.push((*step, write.range));
                moments.push((write.moment, write.unordered));
            }
        }
    }
    lost.sort_by_key(|(step, range)| (step.site.event, range.start()));
    moments.sort();
    moments.dedup();
    let mut events = Vec::new();
    let mut lost_sites = Vec::new();
    let mut help: Vec<String> = Vec::new();
    let mut shown: Vec<Site> = Vec::new();
    let total = lost.len();
    let mut first = None;
    for (step, range) in &lost {
        if shown.contains(&step.site) {
            continue;
        }
        shown.push(step.site);
        let stack = resolvers.stack(layer, recording, step.site);
        lost_sites.push(stack.clone());
        if shown.len() > LOST_SHOWN {
            continue;
        }
        let whole = match step.did {
            Did::Store(keys, _) => keys,
            _ => *range,
        };
        let gone: u64 = lost
            .iter()
            .filter(|(other, _)| other.site == step.site)
            .map(|(_, range)| range.len())
            .sum();
        let is_torn = gone < whole.len();
        let is_written = is_ordinary(keys::place(range.start()).0);
        let verb = if is_written { "written" } else { "stored" };
        let text = match is_torn {
            true => format!(
                "{} {verb} here, and lost in part ({gone})",
                bytes_are(whole.len())
            ),
            false => format!("{} {verb} here, and lost", bytes_are(whole.len())),
        };
        events.push(event(
            Role::Store,
            text,
            step.site,
            stack.clone(),
            Some(place_of(search, recording, step, *range)),
        ));
        let saved = savers(recording, point.moment, step, *range);
        if first.is_none() {
            let is_unordered = moments.first().is_some_and(|(_, unordered)| *unordered);
            let written_back = match saved {
                _ if is_unordered => WrittenBack::NonTemporal,
                Saved::Unfenced(_) => WrittenBack::Unfenced,
                Saved::Later(_) => WrittenBack::Later,
                Saved::Never => WrittenBack::Never,
            };
            first = Some((written_back, is_torn));
        }
        let text = match &saved {
            Saved::Unfenced(_) => "written back here, but no fence has completed that yet",
            Saved::Later(_) if is_written => "synced only here, after the crash",
            Saved::Later(_) => "written back only here, after the crash",
            Saved::Never => "",
        };
        if let Saved::Unfenced(site) | Saved::Later(site) = saved {
            let stack = resolvers.stack(layer, recording, site);
            events.push(event(Role::Flush, text.to_owned(), site, stack, None));
        }
        if help.is_empty() && is_written {
            help.push(format!(
                "fsync the file after it is written at {}, before anything depends on it",
                whose::place(&stack)
            ));
        }
    }
    // What was done to names and sizes and is lost.
    let mut lost_name = None;
    for number in point.lost.iter().take(LOST_SHOWN) {
        let Some(step) = recording.names.get(*number as usize) else {
            continue;
        };
        let stack = resolvers.stack(layer, recording, step.site);
        events.push(event(
            Role::Name,
            format!("{} is done here, and lost", step.what),
            step.site,
            stack.clone(),
            None,
        ));
        if lost_name.is_none() {
            let later = recording.names[*number as usize..].iter();
            let published = later.clone().find(|s| s.publishes && s.file == step.file);
            let is_published = published.is_some_and(|s| {
                let at = recording.names.iter().position(|o| std::ptr::eq(o, s));
                at.is_some_and(|at| !point.lost.contains(&(at as u32)))
                    && s.site.event < point.site.map_or(u64::MAX, |site| site.event)
            });
            help.push(match (step.extends, published) {
                (true, Some(publication)) if is_published => {
                    let stack = resolvers.stack(layer, recording, publication.site);
                    format!(
                        "fsync the file before {} at {}: its name may survive although its data does not",
                        publication.what,
                        whose::place(&stack)
                    )
                }
                (true, _) => format!(
                    "fsync the file after it is written at {}, before anything depends on it",
                    whose::place(&stack)
                ),
                (false, _) => format!(
                    "fsync the folder (or the file, if its size was set) after {} at {}, before anything depends on it",
                    step.what,
                    whose::place(&stack)
                ),
            });
            lost_name = Some((step.what.clone(), stack));
        }
    }
    if total > 0
        && lost_name.is_none()
        && let Some((step, range)) = lost.first()
        && let Some(publication) = publication_of(recording, point, step, *range)
    {
        let stack = resolvers.stack(layer, recording, publication.site);
        help.insert(
            0,
            format!(
                "fsync the file (or write back and fence what is stored) before {} at {}: its name survives, its data does not",
                publication.what,
                whose::place(&stack)
            ),
        );
    }
    let mut survivor_stack = None;
    for moment in minimal.survivors.iter().take(LOST_SHOWN) {
        let Some(step) = recording.steps.get(moment.0 as usize - 1) else {
            continue;
        };
        let Did::Store(range, _) = step.did else {
            continue;
        };
        let stack = resolvers.stack(layer, recording, step.site);
        if survivor_stack.is_none() {
            survivor_stack = Some(stack.clone());
        }
        events.push(event(
            Role::Store,
            format!("{} stored here, and survive", bytes_are(range.len())),
            step.site,
            stack,
            Some(place_of(search, recording, step, range)),
        ));
    }
    let crash_stack = match point.site {
        Some(site) => resolvers.stack(layer, recording, site),
        None => Vec::new(),
    };
    let crash = Event {
        role: Role::Crash,
        text: match (point.reason, layer) {
            (Reason::Completes, 0) => "the power fails here, before this takes effect".into(),
            (Reason::Completes, _) => {
                "the power fails again here, in recovery, before this takes effect".into()
            }
            (Reason::Acknowledges, _) => {
                "the power fails here, right after the outside was told".into()
            }
            (Reason::End, _) => "the power fails after the last event of the run".into(),
        },
        thread: point.site.map(|site| site.thread.0),
        index: point.site.map(|site| site.event),
        place: None,
        stack: crash_stack.clone(),
    };
    events.push(crash.clone());
    let mut symptom_stack = Vec::new();
    let mut seen_at = "";
    let mut found_at = None;
    if let Some(execution) = &execution
        && let Some(detail) = &execution.detail
    {
        let mut resolver = detail.definitions.resolve();
        let stale = execution
            .path
            .iter()
            .zip(&detail.reads)
            .find(|((read, seen), _)| {
                let newest = newest_line(&image, read.line);
                lost.iter()
                    .any(|(_, range)| mask_within(*range, read.line.start()) & read.mask != 0)
                    && masked(&newest, read.mask) != *seen
            });
        if let Some((_, site)) = stale {
            let stack = resolver.stack(*site);
            let text = "recovery reads the stale content here";
            events.push(event(Role::Load, text.to_owned(), *site, stack, None));
        }
        if let Some(site) = detail.found {
            found_at = Some((site, resolver.stack(site)));
        }
        if let Some(site) = detail.died.or(detail.last) {
            symptom_stack = resolver.stack(site);
            seen_at = match detail.died {
                Some(_) => " here",
                None => " (its last access to persistent memory was here)",
            };
        }
    }
    let symptom_line = whose::line(&symptom_stack);
    events.push(Event {
        role: Role::Symptom,
        text: format!("{}{seen_at}", minimal.symptom.describe(&outcome)),
        thread: None,
        index: None,
        place: None,
        stack: symptom_stack,
    });
    let mut notes = search
        .settings
        .oracle
        .differences(&minimal.symptom, &outcome);
    if total > 0 {
        let hidden = shown.len().saturating_sub(LOST_SHOWN);
        if hidden > 0 {
            notes.push(format!("{hidden} more stores are lost in this crash state"));
        }
    } else if survivor_stack.is_some() {
        notes.push(
            "no store is lost: what was stored too early survives, while its operation is not over"
                .into(),
        );
    } else if lost_name.is_some() {
        let more = point.lost.len().saturating_sub(LOST_SHOWN);
        if more > 0 {
            notes.push(format!("{more} more changes of names and sizes are lost"));
        }
    } else if layer == 0 {
        notes.push("no store is lost: the crash point alone breaks recovery".into());
    } else {
        notes.push(
            "recovery was cut short by a second crash; run again, it must come to the same end"
                .into(),
        );
    }
    let lost_name_stack = lost_name.as_ref().map(|(_, stack)| stack);
    let blamed = lost_sites.first().or(lost_name_stack);
    let cause = match blamed.or(survivor_stack.as_ref()) {
        // One warning is enough: whether the order matters is decided once.
        _ if matches!(minimal.symptom, Symptom::Reordered(_)) => {
            minimal.symptom.rule().id().to_owned()
        }
        Some(stack) => whose::line(stack),
        // No store is to blame: crashes in one function with one symptom are one.
        None => {
            let function = whose::frame(&crash_stack).and_then(|frame| frame.function.clone());
            format!("{} {symptom_line}", function.unwrap_or_default())
        }
    };
    let survives = match &survivor_stack {
        Some(stack) => Some(format!(
            "{} if the store at {} survives",
            minimal.symptom.describe(&outcome),
            whose::place(stack)
        )),
        None => None,
    };
    let message = match lost_sites.first() {
        _ if survives.is_some() => survives.unwrap_or_default(),
        Some(stack)
            if lost
                .first()
                .is_some_and(|(_, range)| is_ordinary(keys::place(range.start()).0)) =>
        {
            format!(
                "{} if what is written at {} is lost",
                minimal.symptom.describe(&outcome),
                whose::place(stack)
            )
        }
        Some(stack) => format!(
            "{} if the store at {} is lost",
            minimal.symptom.describe(&outcome),
            whose::place(stack)
        ),
        None if lost_name.is_some() => {
            let (what, stack) = lost_name.clone().unwrap_or_default();
            format!(
                "{} if {what} at {} is lost",
                minimal.symptom.describe(&outcome),
                whose::place(&stack)
            )
        }
        None if crash_stack.is_empty() => format!(
            "{} after a crash at the end of the run",
            minimal.symptom.describe(&outcome)
        ),
        None => format!(
            "{} after a crash at {}",
            minimal.symptom.describe(&outcome),
            whose::place(&crash_stack)
        ),
    };
    let rule = minimal.symptom.rule();
    let finding = Finding {
        events,
        help,
        notes,
        crash_point: Some(crash),
        ..Finding::new(rule, rule.rule().severity, message)
    };
    Ok(Found {
        finding,
        spec: spec(search, layer, failure.point, &image),
        image,
        symptom: minimal.symptom,
        layer,
        point: failure.point,
        outcome: minimal.outcome,
        cause: Cause(cause),
        lost_sites,
        known: Known {
            narrowed: failure.narrowed.clone(),
            lost: moments.into_iter().map(|(moment, _)| moment).collect(),
            first,
            survivor: survivor_stack,
            found_at,
        },
    })
}

/// Asks what else is to blame, and says what to do.
pub fn explain(
    search: &mut Search<'_>,
    resolvers: &mut Resolvers,
    found: &mut Found,
) -> Result<(), LaunchError> {
    if let Symptom::Reordered(_) = found.symptom {
        found.finding.help = vec![
            "if the order matters (in a queue, in a log), say --oracle ops:ordered, and this is an error; if it does not, let recovery \
             print in an order that depends on the content alone"
                .into(),
        ];
        return Ok(());
    }
    let (layer, point) = (found.layer, found.point);
    let failure = Failure {
        layer,
        point,
        narrowed: found.known.narrowed.clone(),
        symptom: found.symptom.clone(),
    };
    let is_partial = matches!(found.known.first, Some((how, true)) if how != WrittenBack::Never);
    let blame = blame::look(
        search,
        &failure,
        &found.image,
        &found.known.lost,
        is_partial,
    )?;
    let recording = &search.layers[layer].recording;
    let mut store = |moment: Moment| {
        let step = recording.steps.get(moment.0 as usize - 1)?;
        let Did::Store(range, _) = step.did else {
            return None;
        };
        let stack = resolvers.stack(layer, recording, step.site);
        Some((*step, range, stack))
    };
    let overtaker = blame.overtaker.and_then(&mut store);
    let completes = blame.completes.and_then(&mut store);
    // For advice: messages name the header, too.
    let named = |stack: &Vec<Frame>| whose::mended_at(stack);
    let lost = found.lost_sites.first().map(named);
    let survivor = found.known.survivor.as_ref().map(named);
    let overtaken_by = overtaker.as_ref().map(|(_, _, stack)| named(stack));
    let completed_by = completes.as_ref().map(|(_, _, stack)| named(stack));
    let first_lost = found.known.lost.first().copied().and_then(&mut store);
    let both = |test: &dyn Fn(ByteRange, ByteRange) -> bool| match (&overtaker, &first_lost) {
        (Some((_, a, _)), Some((_, b, _))) => test(*a, *b),
        _ => false,
    };
    let facts = Facts {
        symptom: &found.symptom,
        reason: recording.points[point as usize].reason,
        in_recovery: layer > 0,
        lost: lost
            .as_deref()
            .zip(found.known.first.map(|(written_back, _)| written_back)),
        survivor: survivor.as_deref(),
        overtaker: overtaken_by.as_deref(),
        overtaker_first: blame.overtaker < found.known.lost.first().copied(),
        same_bytes: both(&|a, b| a.overlaps(b)),
        same_line: both(&|a, b| LineKey::of(a.start().0) == LineKey::of(b.start().0)),
        together: blame.together,
        torn: blame.torn,
        creation: blame.creation,
        completes: completed_by.as_deref(),
        by_calls: recording.timeline.unit_bytes() == PAGE
            || first_lost.is_some_and(|(_, range, _)| is_ordinary(keys::place(range.start()).0)),
    };
    // What is to be done about a lost change of a file is known already.
    if found.finding.help.is_empty() {
        found.finding.help = blame::advice(&facts);
    }
    let message = &mut found.finding.message;
    let events = &mut found.finding.events;
    let crash = events.iter().position(|event| event.role == Role::Crash);
    let crash = crash.unwrap_or(events.len());
    if lost.is_some()
        && !blame.creation
        && !blame.torn
        && let Some((step, range, stack)) = overtaker
        && overtaken_by != lost
    {
        *message += &format!(" and the one at {} survives", whose::place(&stack));
        let place = place_of(search, recording, &step, range);
        let text = format!("{} stored here, and survive", bytes_are(range.len()));
        events.insert(
            crash,
            event(Role::Early, text, step.site, stack, Some(place)),
        );
    } else if survivor.is_some()
        && let Some((step, range, stack)) = completes
        && completed_by != survivor
    {
        *message += &format!(" and the one at {} is not made yet", whose::place(&stack));
        let place = place_of(search, recording, &step, range);
        let text = format!(
            "{} stored only here, after the crash",
            bytes_are(range.len())
        );
        events.insert(
            crash + 1,
            event(Role::Late, text, step.site, stack, Some(place)),
        );
    }
    if blame.creation
        && let Some((site, stack)) = found.known.found_at.take()
    {
        let text = "recovery finds the file there, and takes it for complete".to_owned();
        let symptom = events.iter().position(|event| event.role == Role::Symptom);
        let at = symptom.unwrap_or(events.len());
        events.insert(at, event(Role::Lookup, text, site, stack, None));
    }
    Ok(())
}

fn event(role: Role, text: String, site: Site, stack: Vec<Frame>, place: Option<Place>) -> Event {
    Event {
        role,
        text,
        thread: Some(site.thread.0),
        index: Some(site.event),
        place,
        stack,
    }
}

fn bytes_are(count: u64) -> String {
    match count {
        1 => "1 byte is".into(),
        n => format!("{n} bytes are"),
    }
}

fn newest_line(image: &Image, line: LineKey) -> brownout_model::LineBytes {
    let mut newest = image.clone();
    newest.survivors.clear();
    newest.line(line)
}

fn place_of(search: &Search<'_>, recording: &Recording, step: &Step, range: ByteRange) -> Place {
    let (file, offset) = keys::place(range.start());
    let files = match recording.files.get(&file) {
        Some(file) => Some(file),
        None => search.layers[0].recording.files.get(&file),
    };
    let address = match step.did {
        Did::Store(keys, addr) => addr.0 + (range.start().0 - keys.start().0),
        _ => 0,
    };
    Place {
        file: files.map_or(String::new(), |f| f.path.to_string_lossy().into_owned()),
        offset,
        size: range.len(),
        address,
    }
}

/// What gave the file of a lost store its name afterwards, before the crash, and survives.
fn publication_of<'r>(
    recording: &'r Recording,
    point: &FailurePoint,
    lost: &Step,
    range: ByteRange,
) -> Option<&'r NameStep> {
    let (content, _) = keys::place(range.start());
    let path = &recording.files.get(&content)?.path;
    let crash = point.site.map_or(u64::MAX, |site| site.event);
    (0..).zip(&recording.names).find_map(|(number, step)| {
        let is_later = step.site.event > lost.site.event && step.site.event < crash;
        let file = recording.files.get(&step.content)?;
        (is_later && step.publishes && file.path == *path && !point.lost.contains(&number))
            .then_some(step)
    })
}

/// What would have kept a lost store.
enum Saved {
    /// Written back before the crash, but not fenced.
    Unfenced(Site),
    /// Written back after it.
    Later(Site),
    /// Never.
    Never,
}

fn savers(recording: &Recording, crash: u64, lost: &Step, range: ByteRange) -> Saved {
    let after = recording
        .steps
        .partition_point(|step| step.site.event <= lost.site.event);
    let flush = recording.steps[after..].iter().zip(after as u64 + 1..).find(|(step, _)| {
        matches!(step.did, Did::Flush(line) | Did::Sync(line) if line.overlaps(range))
    });
    match flush {
        Some((step, moment)) if moment <= crash => Saved::Unfenced(step.site),
        Some((step, _)) => Saved::Later(step.site),
        None => Saved::Never,
    }
}

/// The crash in numbers.
pub fn spec(search: &Search<'_>, layer: usize, point: u32, image: &Image) -> CrashSpec {
    let mut crashes = match &search.layers[layer].parent {
        Some(parent) => spec(search, parent.layer, parent.point, &parent.image).crashes,
        None => Vec::new(),
    };
    let survivors = image
        .survivors
        .iter()
        .map(|(unit, s)| (unit.0, s.ordered, s.unordered.clone()));
    crashes.push(OneCrash {
        point,
        run: search.layers[layer].recording.name(),
        survivors: survivors.collect(),
    });
    let acknowledged = search.acknowledged_at(layer, point);
    CrashSpec {
        crashes,
        operations: acknowledged.operations,
        text: acknowledged.text,
        ..CrashSpec::default()
    }
}

/// Writes the image's files into a folder. Files that the crash leaves absent have none.
pub fn write_image(
    image: &Image,
    world: &mut World,
    names: &BTreeMap<FileId, PathBuf>,
    folder: &Path,
) -> io::Result<BTreeMap<FileId, PathBuf>> {
    fs::create_dir_all(folder)?;
    world.lay(image)?;
    let mut written = BTreeMap::new();
    for (path, id) in world.existing() {
        let own = world.called(id).or(names.get(&id));
        let name = own.and_then(|path| path.file_name()).unwrap_or_default();
        let name = name.to_owned();
        let mut to = folder.join(&name);
        if written.values().any(|other| *other == to) {
            to = folder.join(format!("{}-{}", id.0, name.to_string_lossy()));
        }
        crate::files::copy_sparse(&fs::File::open(path)?, &to)?;
        written.insert(id, to);
    }
    Ok(written)
}

/// The commands that show it natively; `setup` comes first if recovery needs more of it than the tracked files.
pub fn reproduction(
    names: &BTreeMap<FileId, PathBuf>,
    images: &BTreeMap<FileId, PathBuf>,
    image: &Image,
    recover: &Command,
    setup: Option<&str>,
) -> Reproduction {
    let mut steps: Vec<String> = setup
        .map(|line| format!("( {line} )"))
        .into_iter()
        .collect();
    let mut files = Vec::new();
    let mut called: BTreeMap<FileId, String> = BTreeMap::new();
    for (path, entry) in &image.files.names {
        let path = crate::filing::path_of(path);
        let to = quote(&path.to_string_lossy());
        let mut file = CrashFile {
            path: path.to_string_lossy().into_owned(),
            image: None,
        };
        match entry {
            // Folders, too, that the run has made.
            Entry::Absent => steps.push(format!("rm -rf {to}")),
            Entry::Folder => steps.push(format!("mkdir -p {to}")),
            Entry::Link(target) => {
                let target = String::from_utf8_lossy(target);
                steps.push(format!("ln -sfn {} {to}", quote(&target)));
            }
            Entry::File(id) => match (called.get(id), images.get(id)) {
                (Some(first), _) => steps.push(format!("ln -f {first} {to}")),
                (None, Some(image)) => {
                    let image = image.to_string_lossy().into_owned();
                    steps.push(format!("cp {} {to}", quote(&image)));
                    called.insert(*id, to);
                    file.image = Some(image);
                }
                (None, None) => {}
            },
        }
        files.push(file);
    }
    // Where names are not what the image is about, each file has its own.
    let fixed = names.iter().filter(|_| image.files.names.is_empty());
    for (id, path) in fixed {
        if let Some(folder) = path.parent()
            && !folder.is_dir()
            && images.contains_key(id)
        {
            // The run has made it, in its private view.
            steps.push(format!("mkdir -p {}", quote(&folder.to_string_lossy())));
        }
        let to = quote(&path.to_string_lossy());
        match images.get(id) {
            Some(image) => steps.push(format!("cp {} {to}", quote(&image.to_string_lossy()))),
            None => steps.push(format!("rm -f {to}")),
        }
        files.push(CrashFile {
            path: path.to_string_lossy().into_owned(),
            image: images.get(id).map(|p| p.to_string_lossy().into_owned()),
        });
    }
    let stdin = match &recover.stdin {
        Some(path) => format!(" < {}", quote(&path.to_string_lossy())),
        None => " < /dev/null".into(),
    };
    let place = steps.join(" && ");
    let command = format!("{place} && {}{stdin}", recover.display());
    let gdb = format!(
        "{place} && gdb -ex 'run{}' --args {}",
        stdin.replace('\'', ""),
        recover.display()
    );
    Reproduction {
        files,
        command,
        gdb,
        status: String::new(),
        stdout: String::new(),
        confirmed: false,
    }
}
