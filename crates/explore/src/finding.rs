//! From a failing crash state to something that a person can act on.

use brownout_findings::numbers::either;
use brownout_findings::{Event, Finding, Frame, NothingLost, Role, Timeline, blame as whose};
use brownout_host::LaunchError;
use brownout_model::{ByteRange, Moment, keys};

use crate::blame::{self, Facts, WrittenBack};
use crate::line::LineKey;
use crate::minimise::Minimal;
use crate::oracle::Symptom;
use crate::recording::{Did, FailurePoint, Recording};
use crate::search::{Failure, Search};
use crate::site::Site;
use crate::unit::{PAGE, is_ordinary};
use crate::view::{Image, Narrowed};

mod reproduction;
mod resolvers;
mod spec;
mod stages;
mod timeline;

pub use reproduction::{reproduction, write_image};
pub use resolvers::Resolvers;
pub use spec::{CrashSpec, OneCrash, spec};
use stages::{Lost, Scene, Told, bytes_are, event};

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
    /// Stores that do harm because they survive.
    surviving: Vec<Moment>,
    /// How the first lost store was written back, and whether it is lost in part.
    first: Option<(WrittenBack, bool)>,
    survivor: Option<Vec<Frame>>,
    /// Where recovery looked for its file and found it.
    found_at: Option<(Site, Vec<Frame>)>,
}

/// What two findings of one cause share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(pub String);

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
    let (layer, point) = (failure.layer, failure.point);
    // Once more, with stacks.
    let acknowledged = search.acknowledged_at(layer, point);
    let execution = search.recover(&minimal.image, acknowledged, true)?;
    let outcome = &search.known.outcomes[minimal.outcome as usize];
    let scene = scene(search, layer, point, &minimal.image);
    let lost = Lost::of(&scene);
    let stores = stages::lost_stores(&scene, &lost, resolvers);
    let names = stages::lost_names(&scene, resolvers);
    let surviving = stages::surviving(&scene, &minimal.survivors, resolvers);
    let crash = stages::crash(&scene, resolvers);
    let seen = execution.as_ref().map(|e| stages::seen(&scene, &lost, e));
    let seen = seen.unwrap_or_default();
    let symptom = minimal.symptom.describe(outcome);
    let told = Told {
        scene: &scene,
        lost: &lost,
        stores: &stores,
        names: &names,
        surviving: &surviving,
        crash: &crash,
        seen: &seen,
        symptom: &symptom,
    };
    let rule = minimal.symptom.rule();
    let cause = match minimal.symptom {
        // One warning is enough: whether the order matters is decided once.
        Symptom::Reordered(_) => rule.id().to_owned(),
        _ => told.cause(),
    };
    let mut notes = search
        .settings
        .oracle
        .differences(&minimal.symptom, outcome);
    notes.extend(told.note());
    let message = told.message();
    let publication = match names.first {
        Some(_) => None,
        None => stages::help_by_publication(&scene, &lost, resolvers),
    };
    let help = publication.into_iter().chain(stores.help).chain(names.help);
    let symptom = Event {
        role: Role::Symptom,
        text: format!("{symptom}{}", seen.at),
        thread: None,
        index: None,
        place: None,
        stack: seen.stack,
    };
    let mut events = stores.events;
    events.extend(names.events);
    events.extend(surviving.events);
    events.push(crash.clone());
    events.extend(seen.stale);
    events.push(symptom);
    // A name that is lost may be all there is.
    let recording = scene.recording;
    let first = lost.moments.first();
    let first = first.and_then(|(moment, _)| recording.steps.get(moment.0 as usize - 1));
    let site = first.map(|step| step.site).or(scene.point.site);
    let origin = site.and_then(|site| resolvers.origin(layer, recording, site));
    let finding = Finding {
        origins: Vec::from_iter(origin),
        events,
        help: help.collect(),
        notes,
        crash_point: Some(crash),
        ..Finding::new(rule, rule.rule().severity, message)
    };
    Ok(Found {
        finding,
        spec: spec(search, layer, point, &minimal.image),
        symptom: minimal.symptom,
        layer,
        point,
        outcome: minimal.outcome,
        cause: Cause(cause),
        lost_sites: stores.sites,
        known: Known {
            narrowed: failure.narrowed.clone(),
            lost: lost.moments.into_iter().map(|(moment, _)| moment).collect(),
            surviving: minimal.survivors,
            first: stores.first,
            survivor: surviving.first,
            found_at: seen.found_at,
        },
        image: minimal.image,
    })
}

/// What is lost in a crash of the recorded run, and where the power fails.
pub fn told(recording: &Recording, point: &FailurePoint, image: &Image) -> Vec<Event> {
    let scene = Scene {
        layer: 0,
        recording,
        point,
        image,
        files: &recording.files,
    };
    let mut resolvers = Resolvers::default();
    let stores = stages::lost_stores(&scene, &Lost::of(&scene), &mut resolvers);
    let mut events = stores.events;
    events.push(stages::crash(&scene, &mut resolvers));
    events
}

/// A crash of one of the runs.
fn scene<'s>(search: &'s Search<'_>, layer: usize, point: u32, image: &'s Image) -> Scene<'s> {
    let recording = &search.layers[layer].recording;
    Scene {
        layer,
        recording,
        point: &recording.points[point as usize],
        image,
        files: &search.layers[0].recording.files,
    }
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
    let nothing_lost = nothing_lost(search, &failure, found)?;
    let scene = scene(search, layer, point, &found.image);
    let besides: Vec<Moment> = found
        .known
        .surviving
        .iter()
        .copied()
        .chain(blame.overtaker)
        .collect();
    let lost_stores = Lost::of(&scene);
    found.finding.timeline =
        timeline::timeline(&scene, &lost_stores, &besides, resolvers).map(|timeline| Timeline {
            nothing_lost,
            ..timeline
        });
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
        let place = scene.named_place(resolvers, &step, range);
        let text = format!(
            "{} stored here, and {}",
            bytes_are(range.len()),
            either(range.len(), "survives", "survive")
        );
        events.insert(
            crash,
            event(Role::Early, text, step.site, stack, Some(place)),
        );
    } else if survivor.is_some()
        && let Some((step, range, stack)) = completes
        && completed_by != survivor
    {
        *message += &format!(" and the one at {} is not made yet", whose::place(&stack));
        let place = scene.named_place(resolvers, &step, range);
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

/// What recovery does after a crash at the same point that loses no store, unless this one lost
/// none.
fn nothing_lost(
    search: &mut Search<'_>,
    failure: &Failure,
    found: &Found,
) -> Result<Option<NothingLost>, LaunchError> {
    if found.known.lost.is_empty() {
        return Ok(None);
    }
    let mut whole = found.image.clone();
    whole.survivors.clear();
    let Some(outcome) = search.evaluate(failure.layer, &whole)? else {
        return Ok(None);
    };
    let done = search.done(failure.layer, failure.point);
    let outcome = &search.known.outcomes[outcome as usize];
    let symptom = search.settings.oracle.judge(outcome, done);
    Ok(Some(NothingLost {
        status: outcome.status.to_string(),
        symptom: symptom.map(|symptom| symptom.describe(outcome)),
    }))
}

#[cfg(test)]
mod tests;
