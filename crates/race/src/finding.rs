//! What was found, in words: the interleaving as numbered events, each with its thread, its stack
//! and its bytes.

use brownout_explore::{Happened, Stored, Trial, signal_name};
use brownout_findings::numbers::{counted, either};
use brownout_findings::rules::BuiltIn;
use brownout_findings::{Event, Finding, Frame, Place, Reproduction, Role, Severity, blame};
use brownout_symbols::Stacks;
use brownout_trace::event::TargetAddr;

use crate::effects::{Effect, How};
use crate::ending::Death;
use crate::judge::{Judged, Verdict};
use crate::site::{Done, Site};
use crate::watch::{Sighting, Watch};
use crate::words::Change;

/// The stack of a place, innermost first.
pub fn stack(stacks: &mut Stacks, site: Site) -> Vec<Frame> {
    let stack = stacks.stack_of(site.process, site.epoch, site.pc, site.context);
    stack.into_iter().map(Frame::from).collect()
}

/// True if this is a library's own doing, and none of the program's: libpmemobj looks after itself.
pub fn is_foundation(stacks: &mut Stacks, site: Site) -> bool {
    blame::in_foundation(&stack(stacks, site))
}

fn event(role: Role, text: String, done: Done, stack: Vec<Frame>, place: Option<Place>) -> Event {
    Event {
        role,
        text,
        thread: Some(done.site.thread.0),
        index: Some(done.event),
        place,
        stack,
    }
}

/// How many bytes it is about; 0 if that is not known.
fn bytes(place: Option<&Place>) -> u64 {
    place.map_or(0, |place| place.size)
}

fn bytes_are(count: u64) -> String {
    match count {
        0 => "bytes are".to_owned(),
        1 => "1 byte is".to_owned(),
        n => format!("{n} bytes are"),
    }
}

/// The power fails, and what then happens.
fn ending(trial: &mut Trial, judged: &Judged) -> (Option<Event>, Vec<Event>) {
    let mut events = Vec::new();
    let Some(crash) = &judged.crash else {
        return (None, events);
    };
    let (text, happened) = trial.place_of(crash);
    let crash = match happened {
        Some(Happened {
            thread,
            event,
            stack,
            ..
        }) => Event {
            role: Role::Crash,
            text,
            thread: Some(thread.0),
            index: Some(event),
            place: None,
            stack,
        },
        None => Event::new(Role::Crash, text),
    };
    events.push(crash.clone());
    if let Verdict::Confirmed(failure) = &judged.verdict {
        events.push(Event::new(Role::Symptom, failure.clone()));
    }
    (Some(crash), events)
}

/// What natively happens decides whether it is an error.
fn finish(
    mut finding: Finding,
    trial: &mut Trial,
    judged: &Judged,
    reproduction: Option<Reproduction>,
) -> Finding {
    let (crash, events) = ending(trial, judged);
    finding.crash_point = crash;
    finding.events.extend(events);
    if let (Verdict::Confirmed(_), Some(reproduction)) = (&judged.verdict, &reproduction)
        && !reproduction.confirmed
    {
        finding.severity = Severity::Warning;
        finding
            .notes
            .push("natively it was not seen: recovery did something else there".to_owned());
    }
    finding.reproduction = reproduction;
    finding
}

/// An effect that outlives its source. `unlock` is where the lock that both threads take is given
/// back too early, if that is known.
pub fn of_effect(
    effect: &Effect,
    judged: &Judged,
    reproduction: Option<Reproduction>,
    unlock: Option<&str>,
    trial: &mut Trial,
    watch: &mut Watch,
) -> Finding {
    let source = &effect.source;
    let stored = trial.store(Stored {
        event: source.store.event,
    });
    let place = stored.and_then(|stored| stored.place);
    let store = stack(&mut watch.stacks, source.store.site);
    let load = stack(&mut watch.stacks, source.load.site);
    let done = stack(&mut watch.stacks, effect.done.site);
    let kept = effect.range.and_then(|_| {
        let stored = trial.store(Stored {
            event: effect.done.event,
        });
        stored.and_then(|stored| stored.place)
    });
    let rule = match source.is_inter {
        true => BuiltIn::InterThreadInconsistency,
        false => BuiltIn::IntraThreadInconsistency,
    };
    let severity = match judged.verdict {
        Verdict::Confirmed(_) => Severity::Correctness,
        _ => Severity::Warning,
    };
    let whose = match source.is_inter {
        true => format!("thread {} had stored", source.store.site.thread.0),
        false => "it had itself stored".to_owned(),
    };
    let makes = match effect.range {
        None => "tells the world",
        Some(_) => "makes durable",
    };
    let what = match effect.how {
        How::Content => "what it computed from bytes",
        How::Address => "something: the place comes from bytes",
        How::Afterwards => "something after it has read bytes",
    };
    let outcome = match &judged.verdict {
        Verdict::Confirmed(failure) => format!("; after a crash in between, {failure}"),
        _ if effect.range.is_none() => {
            "; after a crash in between, they were never there".to_owned()
        }
        _ => "; a crash in between leaves the one without the other, and recovery leaves it so"
            .to_owned(),
    };
    let message = format!(
        "thread {} {makes} at {} {what} that {whose} at {} and that were not persistent yet{outcome}",
        effect.done.site.thread.0,
        blame::place(&done),
        blame::place(&store),
    );
    let mut finding = Finding::new(rule, severity, message);
    let lost = bytes(place.as_ref());
    let stored = format!(
        "{} stored here, and {} lost in the crash",
        bytes_are(lost),
        either(lost, "is", "are")
    );
    let [they_are, them] = [["they are", "them"], ["it is", "it"]][usize::from(lost == 1)];
    finding.events.push(event(
        Role::Store,
        match effect.how {
            How::Afterwards => format!(
                "{stored}, with whatever else thread {} has not made persistent",
                source.store.site.thread.0
            ),
            _ => stored,
        },
        source.store,
        store.clone(),
        place,
    ));
    finding.events.push(event(
        Role::Load,
        format!("{they_are} read here before {they_are} persistent"),
        source.load,
        load,
        None,
    ));
    let text = match effect.range {
        Some(_) => {
            let count = bytes(kept.as_ref());
            let depend = either(count, "depends", "depend");
            let how = match effect.how {
                How::Content => format!("that {depend} on {them}"),
                How::Address => {
                    format!(
                        "that {depend} on {them} by {} place",
                        either(count, "its", "their")
                    )
                }
                How::Afterwards => "after that".to_owned(),
            };
            format!(
                "{} stored here {how}, and {}",
                bytes_are(count),
                either(count, "survives", "survive")
            )
        }
        None => format!("bytes that depend on {them} leave the process here"),
    };
    let role = if effect.range.is_some() {
        Role::Early
    } else {
        Role::Write
    };
    finding
        .events
        .push(event(role, text, effect.done, done.clone(), kept));
    finding.help = match source.is_inter {
        true => vec![
            format!(
                "make what is stored at {} persistent (write back, fence) before another thread can read it: {}",
                blame::mended_at(&store),
                match unlock {
                    Some(unlock) => format!("before the lock is given back at {unlock}"),
                    None => "before a lock is given back, or before it is published".to_owned(),
                }
            ),
            format!(
                "or have the reader write back and fence what it has read, before it stores {} at {}",
                match effect.how {
                    How::Afterwards => "anything",
                    _ => "what depends on it",
                },
                blame::mended_at(&done)
            ),
        ],
        false => vec![format!(
            "make what is stored at {} persistent (write back, fence) before something is stored at {} that depends on it",
            blame::mended_at(&store),
            blame::mended_at(&done)
        )],
    };
    finish(finding, trial, judged, reproduction)
}

/// A lock that a crash leaves taken.
pub fn of_change(
    change: &Change,
    judged: &Judged,
    reproduction: Option<Reproduction>,
    trial: &mut Trial,
    watch: &mut Watch,
) -> Finding {
    let place = trial.store(Stored {
        event: change.done.event,
    });
    let place = place.and_then(|stored| stored.place);
    let at = stack(&mut watch.stacks, change.done.site);
    let failure = match &judged.verdict {
        Verdict::Confirmed(failure) => failure.clone(),
        _ => "it stays as it is".to_owned(),
    };
    let message = format!(
        "a word in persistent memory by which threads exclude each other is taken at {} and survives a crash; then {failure}",
        blame::place(&at),
    );
    let mut finding = Finding::new(BuiltIn::PersistentLock, Severity::Correctness, message);
    let count = bytes(place.as_ref());
    let text = format!(
        "{} stored here, and {}: the lock is taken, and nobody is left who gives it back",
        bytes_are(count),
        either(count, "survives", "survive")
    );
    finding
        .events
        .push(event(Role::Store, text, change.done, at.clone(), place));
    finding.help = vec![
        "set the word to its initial value when the file is opened, before anybody uses it"
            .to_owned(),
        "or keep the lock in ordinary memory, where it ends with the process".to_owned(),
    ];
    finish(finding, trial, judged, reproduction)
}

/// Threads that wait for each other for ever.
pub fn of_deadlock(watch: &mut Watch, waits: &[(Done, TargetAddr)], spins: bool) -> Finding {
    let count = waits.len() as u64;
    let how = match (spins, count) {
        (true, 1) => "looks again and again at what nobody changes any more",
        (true, _) => "look again and again at what nobody changes any more",
        (false, 1) => "waits for what does not come",
        (false, _) => "wait for each other",
    };
    let message = format!("{} {how} for ever", counted(count, "thread"));
    let mut finding = Finding::new(BuiltIn::Deadlock, Severity::Correctness, message);
    // Who waits for the others to end comes last: that is no news.
    let first = waits.iter().map(|(done, _)| done.site.thread).min();
    let is_first = |(done, _): &&(Done, TargetAddr)| Some(done.site.thread) == first;
    let others = waits.iter().filter(|wait| !is_first(wait));
    for (done, address) in others.chain(waits.iter().filter(is_first)) {
        let at = stack(&mut watch.stacks, done.site);
        let text = match (spins, address.0) {
            (true, _) => "it was last seen here, and comes no further".to_owned(),
            (false, 0) => "it waits here".to_owned(),
            (false, address) => format!("it waits here, for the futex at {address:#x}"),
        };
        finding
            .events
            .push(event(Role::Event, text, *done, at, None));
    }
    finding.help = vec![
        "take locks in the same order everywhere, give each back on every way out, and wake who waits after what it waits for has changed".to_owned(),
    ];
    finding
}

/// A program that a signal ends.
pub fn of_death(watch: &mut Watch, death: &Death) -> Finding {
    let signal = signal_name(death.signal);
    let mut event = Event::new(Role::Symptom, format!("{signal} ends the program here"));
    let message = match death.at {
        Some(done) => {
            event.thread = Some(done.site.thread.0);
            event.index = Some(done.event);
            event.stack = stack(&mut watch.stacks, done.site);
            format!(
                "under a schedule thread {} is killed by {signal} at {}",
                done.site.thread.0,
                blame::place(&event.stack)
            )
        }
        None => format!("under a schedule the program is killed by {signal}"),
    };
    let mut finding = Finding::new(BuiltIn::Crash, Severity::Correctness, message);
    finding.events.push(event);
    finding.help = vec![
        "what the thread relies on there must hold whoever runs in between: have a lock, or an order that the program enforces, see to that"
            .to_owned(),
    ];
    finding
}

/// Something that others read, and that nobody ever makes persistent.
pub fn of_sighting(sighting: &Sighting, watch: &mut Watch) -> Finding {
    let store = stack(&mut watch.stacks, sighting.store.site);
    let load = stack(&mut watch.stacks, sighting.load.site);
    let message = format!(
        "thread {} reads at {} what thread {} stores at {}, and nobody ever writes that back",
        sighting.load.site.thread.0,
        blame::place(&load),
        sighting.store.site.thread.0,
        blame::place(&store),
    );
    let mut finding = Finding::new(BuiltIn::UnpersistedPublication, Severity::Warning, message);
    let text = "it is stored here, and never written back".to_owned();
    finding.events.push(event(
        Role::Store,
        text,
        sighting.store,
        store.clone(),
        None,
    ));
    finding.events.push(event(
        Role::Load,
        "another thread reads it here".to_owned(),
        sighting.load,
        load,
        None,
    ));
    finding.help = vec![format!(
        "make what is stored at {} persistent before another thread can read it; or keep it in ordinary memory, if recovery does not need it",
        blame::mended_at(&store)
    )];
    finding
}
