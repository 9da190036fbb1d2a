//! The stages in which a failure is told. Each takes the crash as plain data and gives a part of
//! the story: what is lost of stores and of names, what survives, where the power fails, what
//! recovery saw; then the words that follow from these.

use std::collections::BTreeMap;

use brownout_findings::numbers::either;
use brownout_findings::{Event, Frame, Place, Role, blame as whose};
use brownout_model::{ByteRange, LineBytes, LineMask, Moment, keys, mask_within, masked};
use brownout_trace::event::FileId;

use super::resolvers::Resolvers;
use crate::blame::WrittenBack;
use crate::execution::Execution;
use crate::filing::NameStep;
use crate::line::LineKey;
use crate::recording::{Did, FailurePoint, Reason, Recording, Step, TrackedFile};
use crate::site::Site;
use crate::unit::is_ordinary;
use crate::view::Image;

/// More lost stores are counted, not shown.
pub const LOST_SHOWN: usize = 6;

/// A crash, in its run.
pub struct Scene<'s> {
    /// Which run it is: 0, or that of a recovery.
    pub layer: usize,
    pub recording: &'s Recording,
    pub point: &'s FailurePoint,
    pub image: &'s Image,
    /// The files of the recorded run: a recovery stores to them, too.
    pub files: &'s BTreeMap<FileId, TrackedFile>,
}

impl Scene<'_> {
    fn stack(&self, resolvers: &mut Resolvers, site: Site) -> Vec<Frame> {
        resolvers.stack(self.layer, self.recording, site)
    }

    /// Where in a file something was stored.
    pub fn place(&self, step: &Step, range: ByteRange) -> Place {
        place_of(self.recording, self.files, step, range)
    }

    /// The same, with what the program calls it: the name that it has registered, else what its
    /// store says. Of a part of a store that says nothing.
    pub fn named_place(&self, resolvers: &mut Resolvers, step: &Step, range: ByteRange) -> Place {
        let registered = &self.recording.registered;
        let mut name = registered.name(range, Some(Moment(step.site.event)));
        if name.is_none() && matches!(step.did, Did::Store(whole, _) if whole == range) {
            name = resolvers.accessed(self.layer, self.recording, step.site, range.len());
        }
        Place {
            name,
            ..self.place(step, range)
        }
    }
}

/// Stores that are lost, or a part of each.
pub struct Lost {
    /// In the order in which they were made, with the bytes that are gone.
    pub stores: Vec<(Step, ByteRange)>,
    /// Their moments, and whether each was in no order with others.
    pub moments: Vec<(Moment, bool)>,
    /// How many bytes of each are gone.
    pub gone: BTreeMap<Moment, u64>,
}

impl Lost {
    /// What an image lacks of what was stored until the crash.
    pub fn of(scene: &Scene<'_>) -> Lost {
        let mut stores = Vec::new();
        let mut moments = Vec::new();
        let mut gone = BTreeMap::new();
        for (unit, survivors) in &scene.image.survivors {
            let Some(choices) = scene.image.view.choices(*unit) else {
                continue;
            };
            for write in choices.lost(survivors) {
                if let Some(step) = scene.recording.steps.get(write.moment.0 as usize - 1) {
                    stores.push((*step, write.range));
                    moments.push((write.moment, write.unordered));
                    *gone.entry(write.moment).or_default() += write.range.len();
                }
            }
        }
        stores.sort_by_key(|(step, range): &(Step, ByteRange)| (step.site.event, range.start()));
        moments.sort();
        moments.dedup();
        Lost {
            stores,
            moments,
            gone,
        }
    }

    /// What is lost first was written by a system call, to an ordinary file.
    fn is_written(&self) -> bool {
        let first = self.stores.first();
        first.is_some_and(|(_, range)| is_ordinary(keys::place(range.start()).0))
    }
}

/// The lost stores, as they are told.
#[derive(Default)]
pub struct LostStores {
    pub events: Vec<Event>,
    /// The stack of each, also of those that are not shown.
    pub sites: Vec<Vec<Frame>>,
    /// How the first was written back, and whether it is lost in part.
    pub first: Option<(WrittenBack, bool)>,
    /// What to do, if that is clear already.
    pub help: Option<String>,
}

/// One event for each store that is lost, with what would have kept it.
pub fn lost_stores(scene: &Scene<'_>, lost: &Lost, resolvers: &mut Resolvers) -> LostStores {
    let mut told = LostStores::default();
    let mut shown: Vec<Site> = Vec::new();
    for (step, range) in &lost.stores {
        if shown.contains(&step.site) {
            continue;
        }
        shown.push(step.site);
        let stack = scene.stack(resolvers, step.site);
        told.sites.push(stack.clone());
        if shown.len() > LOST_SHOWN {
            continue;
        }
        let whole = match step.did {
            Did::Store(keys, _) => keys,
            _ => *range,
        };
        let same = lost.stores.iter().filter(|(s, _)| s.site == step.site);
        let gone: u64 = same.map(|(_, range)| range.len()).sum();
        let is_torn = gone < whole.len();
        let is_written = is_ordinary(keys::place(range.start()).0);
        let verb = if is_written { "written" } else { "stored" };
        let bytes = bytes_are(whole.len());
        let text = match is_torn {
            true => format!("{bytes} {verb} here, and lost in part ({gone})"),
            false => format!("{bytes} {verb} here, and lost"),
        };
        let place = scene.named_place(resolvers, step, *range);
        told.events.push(event(
            Role::Store,
            text,
            step.site,
            stack.clone(),
            Some(place),
        ));
        let saved = savers(scene.recording, scene.point.moment, step, *range);
        if told.first.is_none() {
            let is_unordered = lost
                .moments
                .first()
                .is_some_and(|(_, unordered)| *unordered);
            let written_back = match saved {
                _ if is_unordered => WrittenBack::NonTemporal,
                Saved::Unfenced(_) => WrittenBack::Unfenced,
                Saved::Later(_) => WrittenBack::Later,
                Saved::Never => WrittenBack::Never,
            };
            told.first = Some((written_back, is_torn));
        }
        let text = match &saved {
            Saved::Unfenced(_) => "written back here, but no fence has completed that yet",
            Saved::Later(_) if is_written => "synced only here, after the crash",
            Saved::Later(_) => "written back only here, after the crash",
            Saved::Never => "",
        };
        if let Saved::Unfenced(site) | Saved::Later(site) = saved {
            let stack = scene.stack(resolvers, site);
            let flush = event(Role::Flush, text.to_owned(), site, stack, None);
            told.events.push(flush);
        }
        if is_written && told.help.is_none() {
            told.help = Some(sync_after(&stack));
        }
    }
    told
}

/// What was done to names and sizes and is lost, as it is told.
#[derive(Default)]
pub struct LostNames {
    pub events: Vec<Event>,
    /// The first: what it was, and where.
    pub first: Option<(String, Vec<Frame>)>,
    /// What to do about the first.
    pub help: Option<String>,
}

/// One event for each change of a name or a size that is lost.
pub fn lost_names(scene: &Scene<'_>, resolvers: &mut Resolvers) -> LostNames {
    let mut told = LostNames::default();
    for number in scene.point.lost.iter().take(LOST_SHOWN) {
        let Some(step) = scene.recording.names.get(*number as usize) else {
            continue;
        };
        let stack = scene.stack(resolvers, step.site);
        told.events.push(event(
            Role::Name,
            format!("{} is done here, and lost", step.what),
            step.site,
            stack.clone(),
            None,
        ));
        if told.first.is_none() {
            told.help = Some(match published(scene, *number, step) {
                Some(publication) if step.extends => {
                    let stack = scene.stack(resolvers, publication.site);
                    format!(
                        "fsync the file before {} at {}: its name may survive although its data does not",
                        publication.what,
                        whose::place(&stack)
                    )
                }
                _ if step.extends => sync_after(&stack),
                _ => format!(
                    "fsync the folder (or the file, if its size was set) after {} at {}, before anything depends on it",
                    step.what,
                    whose::place(&stack)
                ),
            });
            told.first = Some((step.what.clone(), stack));
        }
    }
    told
}

/// What gave the file of a lost change its name afterwards, before the crash, and survives.
fn published<'s>(scene: &Scene<'s>, number: u32, lost: &NameStep) -> Option<&'s NameStep> {
    let names = (0..).zip(&scene.recording.names).skip(number as usize);
    let (at, step) = names
        .into_iter()
        .find(|(_, step): &(u32, _)| step.publishes && step.file == lost.file)?;
    let crash = scene.point.site.map_or(u64::MAX, |site| site.event);
    (!scene.point.lost.contains(&at) && step.site.event < crash).then_some(step)
}

/// What to do if the file of the first lost store got its name before the crash, and keeps it.
pub fn help_by_publication(
    scene: &Scene<'_>,
    lost: &Lost,
    resolvers: &mut Resolvers,
) -> Option<String> {
    let (step, range) = lost.stores.first()?;
    let publication = publication_of(scene.recording, scene.point, step, *range)?;
    let stack = scene.stack(resolvers, publication.site);
    Some(format!(
        "fsync the file (or write back and fence what is stored) before {} at {}: its name survives, its data does not",
        publication.what,
        whose::place(&stack)
    ))
}

fn sync_after(stack: &[Frame]) -> String {
    format!(
        "fsync the file after it is written at {}, before anything depends on it",
        whose::place(stack)
    )
}

/// Stores that do harm because they survive, as they are told.
#[derive(Default)]
pub struct Surviving {
    pub events: Vec<Event>,
    /// The stack of the first.
    pub first: Option<Vec<Frame>>,
}

/// One event for each of these stores.
pub fn surviving(scene: &Scene<'_>, moments: &[Moment], resolvers: &mut Resolvers) -> Surviving {
    let mut told = Surviving::default();
    for moment in moments.iter().take(LOST_SHOWN) {
        let Some(step) = scene.recording.steps.get(moment.0 as usize - 1) else {
            continue;
        };
        let Did::Store(range, _) = step.did else {
            continue;
        };
        let stack = scene.stack(resolvers, step.site);
        let place = scene.named_place(resolvers, step, range);
        told.first.get_or_insert_with(|| stack.clone());
        told.events.push(event(
            Role::Survivor,
            format!(
                "{} stored here, and {}",
                bytes_are(range.len()),
                either(range.len(), "survives", "survive")
            ),
            step.site,
            stack,
            Some(place),
        ));
    }
    told
}

/// Where the power fails.
pub fn crash(scene: &Scene<'_>, resolvers: &mut Resolvers) -> Event {
    let site = scene.point.site;
    let text = match (scene.point.reason, scene.layer) {
        (Reason::Completes, 0) => "the power fails here, before this takes effect",
        (Reason::Completes, _) => {
            "the power fails again here, in recovery, before this takes effect"
        }
        (Reason::Acknowledges, _) => "the power fails here, right after the outside was told",
        (Reason::End, _) => "the power fails after the last event of the run",
    };
    Event {
        role: Role::Crash,
        text: text.into(),
        thread: site.map(|site| site.thread.0),
        index: site.map(|site| site.event),
        place: None,
        stack: site.map_or(Vec::new(), |site| scene.stack(resolvers, site)),
    }
}

/// What recovery did on the image.
#[derive(Default)]
pub struct Seen {
    /// The load that saw what a lost store has left as it was.
    pub stale: Option<Event>,
    /// Where it ended, as far as that is known.
    pub stack: Vec<Frame>,
    /// How that place is spoken of.
    pub at: &'static str,
    /// Where it looked for its file and found it.
    pub found_at: Option<(Site, Vec<Frame>)>,
}

/// Where in its code recovery met the loss, and where it ended.
pub fn seen(scene: &Scene<'_>, lost: &Lost, execution: &Execution) -> Seen {
    let mut seen = Seen::default();
    let Some(detail) = &execution.detail else {
        return seen;
    };
    let mut resolver = detail.definitions.resolve();
    let stale = execution
        .path
        .iter()
        .zip(&detail.reads)
        .find(|((read, seen), _)| {
            let is_lost = |range: ByteRange| mask_within(range, read.line.start()) & read.mask != 0;
            lost.stores.iter().any(|(_, range)| is_lost(*range))
                && masked(&newest_line(scene.image, read.line), read.mask) != *seen
        });
    if let Some(((read, _), site)) = stale {
        let text = "recovery reads the stale content here".to_owned();
        let stack = resolver.stack(*site);
        let place = read_place(scene, read.line, read.mask);
        seen.stale = Some(event(Role::Load, text, *site, stack, place));
    }
    if let Some(site) = detail.found {
        seen.found_at = Some((site, resolver.stack(site)));
    }
    if let Some(site) = detail.died.or(detail.last) {
        seen.stack = resolver.stack(site);
        seen.at = match detail.died {
            Some(_) => " here",
            None => " (its last access to persistent memory was here)",
        };
    }
    seen
}

/// The bytes of a line that are read, from the first to the last. At which address recovery has the
/// file is not known here.
fn read_place(scene: &Scene<'_>, line: LineKey, mask: LineMask) -> Option<Place> {
    let file = scene.recording.files.get(&line.file());
    let file = file.or(scene.files.get(&line.file()))?;
    let first = u64::from(mask.trailing_zeros());
    let size = u64::from(LineMask::BITS - mask.leading_zeros()).checked_sub(first)?;
    Some(Place {
        file: file.path.to_string_lossy().into_owned(),
        offset: line.offset() + first,
        size,
        address: 0,
        name: None,
    })
}

/// All parts of the story, from which the words follow.
pub struct Told<'t> {
    pub scene: &'t Scene<'t>,
    pub lost: &'t Lost,
    pub stores: &'t LostStores,
    pub names: &'t LostNames,
    pub surviving: &'t Surviving,
    pub crash: &'t Event,
    pub seen: &'t Seen,
    /// What is wrong, as a clause.
    pub symptom: &'t str,
}

impl Told<'_> {
    /// What a finding of this cause is known by, among others of the same exploration.
    pub fn cause(&self) -> String {
        let name = self.names.first.as_ref().map(|(_, stack)| stack);
        let blamed = self.stores.sites.first().or(name);
        match blamed.or(self.surviving.first.as_ref()) {
            Some(stack) => whose::line(stack),
            // No store is to blame: crashes in one function with one symptom are one.
            None => {
                let frame = whose::frame(&self.crash.stack);
                let function = frame.and_then(|frame| frame.function.clone());
                let symptom = whose::line(&self.seen.stack);
                format!("{} {symptom}", function.unwrap_or_default())
            }
        }
    }

    /// The headline.
    pub fn message(&self) -> String {
        let symptom = self.symptom;
        if let Some(stack) = &self.surviving.first {
            let place = whose::place(stack);
            return format!("{symptom} if the store at {place} survives");
        }
        if let Some(stack) = self.stores.sites.first() {
            let place = whose::place(stack);
            return match self.lost.is_written() {
                true => format!("{symptom} if what is written at {place} is lost"),
                false => format!("{symptom} if the store at {place} is lost"),
            };
        }
        if let Some((what, stack)) = &self.names.first {
            let place = whose::place(stack);
            return format!("{symptom} if {what} at {place} is lost");
        }
        match self.crash.stack.is_empty() {
            true => format!("{symptom} after a crash at the end of the run"),
            false => format!(
                "{symptom} after a crash at {}",
                whose::place(&self.crash.stack)
            ),
        }
    }

    /// What the events do not say.
    pub fn note(&self) -> Option<String> {
        let more = |count: usize| Some(count.saturating_sub(LOST_SHOWN)).filter(|more| *more > 0);
        if !self.lost.stores.is_empty() {
            let hidden = more(self.stores.sites.len())?;
            return Some(format!(
                "{hidden} more {} lost in this crash state",
                either(hidden as u64, "store is", "stores are")
            ));
        }
        if self.surviving.first.is_some() {
            return Some(
                "no store is lost: what was stored too early survives, while its operation is not over"
                    .into(),
            );
        }
        if self.names.first.is_some() {
            let hidden = more(self.scene.point.lost.len())?;
            return Some(match hidden {
                1 => "1 more change of a name or a size is lost".to_owned(),
                n => format!("{n} more changes of names and sizes are lost"),
            });
        }
        Some(match self.scene.layer {
            0 => "no store is lost: the crash point alone breaks recovery".into(),
            _ => {
                "recovery was cut short by a second crash; run again, it must come to the same end"
                    .into()
            }
        })
    }
}

pub fn event(
    role: Role,
    text: String,
    site: Site,
    stack: Vec<Frame>,
    place: Option<Place>,
) -> Event {
    Event {
        role,
        text,
        thread: Some(site.thread.0),
        index: Some(site.event),
        place,
        stack,
    }
}

pub fn bytes_are(count: u64) -> String {
    match count {
        1 => "1 byte is".into(),
        n => format!("{n} bytes are"),
    }
}

fn newest_line(image: &Image, line: LineKey) -> LineBytes {
    let mut newest = image.clone();
    newest.survivors.clear();
    newest.line(line)
}

/// Where in a file something was stored. A recovery's files may be known from the recorded run
/// only.
fn place_of(
    recording: &Recording,
    files: &BTreeMap<FileId, TrackedFile>,
    step: &Step,
    range: ByteRange,
) -> Place {
    let (file, offset) = keys::place(range.start());
    let file = recording.files.get(&file).or(files.get(&file));
    let address = match step.did {
        Did::Store(keys, addr) => addr.0 + (range.start().0 - keys.start().0),
        _ => 0,
    };
    Place {
        file: file.map_or(String::new(), |f| f.path.to_string_lossy().into_owned()),
        offset,
        size: range.len(),
        address,
        name: None,
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
