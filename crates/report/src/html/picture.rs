//! What a finding looks like: cache lines over the events, or threads beside each other.
//!
//! **Purpose.** Decides what the picture shows; the page's script only draws it. So it is tested
//! without a browser.
//!
//! **Guarantee.** A picture says nothing that the finding does not. A cell has a state only if an
//! event of the finding gave its line one: what happened to a line before its first event, or in
//! between without being told, is [`State::Untold`] or stays as the last event left it. *Lost* and
//! *survived* come from the finding's timeline, which has the model's answer, or else from the
//! roles of events, whose meaning `docs/report.md` has; no model is asked here.
//!
//! **Deviations.** Few events carry no place and still have a line: a write-back in a finding of
//! `explore` is that of the store before it in the list (so `explore` lists them), and what has an
//! `earlier-` role happened to the finding's line, if it has only one. A fence counts for the
//! write-backs of its own thread, if both threads are told. Until the crash, the state of a line
//! follows from stores, write-backs and fences alone: that a `clflush` needs no fence, or that
//! caches survive in this domain, shows right of the crash. At most [`ROWS_MAX`] lines are shown;
//! the others are counted.

use std::collections::BTreeSet;

use brownout_findings::rules::Analysis;
use brownout_findings::{BuiltIn, Event, Fate, Finding, Place, Role, TimelineStep, blame};
use serde::{Serialize, Serializer};

/// How many cache lines are shown.
pub const ROWS_MAX: usize = 12;
/// More threads do not fit beside each other.
pub const THREADS_MAX: usize = 8;
/// Bytes of a cache line.
const LINE: u64 = 64;

/// A picture of a finding.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Picture {
    /// Cache lines as rows, events as columns.
    Lines(Lines),
    /// Threads as columns, events as rows.
    Threads(Threads),
}

/// What is known of a cache line after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The finding does not say.
    Untold,
    /// Stored to, and not written back.
    Dirty,
    /// Written back, which no fence is told to have completed.
    WrittenBack,
    /// Written back, and the thread has fenced.
    Durable,
    /// What the finding names in it is not there after the crash.
    Lost,
    /// What the finding names in it is there after the crash.
    Survived,
    /// Some of what the finding names is there after the crash, some is not.
    LostInPart,
}

impl State {
    /// As the page's script knows it. Pictures of ten thousand findings have many of them.
    fn letter(self) -> char {
        match self {
            State::Untold => '.',
            State::Dirty => 'd',
            State::WrittenBack => 'w',
            State::Durable => 'p',
            State::Lost => 'l',
            State::Survived => 's',
            State::LostInPart => 'h',
        }
    }
}

/// A letter each.
fn letters<S: Serializer>(states: &[State], serializer: S) -> Result<S::Ok, S::Error> {
    let letters = states.iter().map(|state| state.letter());
    serializer.serialize_str(&letters.collect::<String>())
}

fn maybe_letter<S: Serializer>(state: &Option<State>, serializer: S) -> Result<S::Ok, S::Error> {
    state.map(State::letter).serialize(serializer)
}

/// Cache lines over the events.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Lines {
    /// The files that the lines lie in.
    pub files: Vec<String>,
    /// One each cache line, by file and offset.
    pub rows: Vec<Row>,
    /// How many lines are not shown.
    pub hidden: u64,
    /// In the order in which things happened.
    pub columns: Vec<Column>,
    /// What recovery does after a crash at the same point that loses nothing, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_lost: Option<String>,
}

/// A cache line.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The file that it lies in, by its position in the list.
    pub file: usize,
    /// Its offset there, in hexadecimal digits.
    pub offset: String,
    /// What the program calls the bytes of it that the finding is about, as far as that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its state after each column.
    #[serde(serialize_with = "letters")]
    pub states: Vec<State>,
    /// The columns whose event is about this line.
    pub touched: Vec<usize>,
    /// Its state after a crash at the same point that loses nothing.
    #[serde(
        serialize_with = "maybe_letter",
        skip_serializing_if = "Option::is_none"
    )]
    pub beside: Option<State>,
}

/// An event, or several that are the same; or a step of the run that no event tells.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Their numbers in the finding, from 1; none if no event tells it.
    pub events: Vec<usize>,
    /// What it was.
    pub role: &'static str,
    /// When.
    pub part: Part,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Where in the code, in few words, if no event says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// It is shown on demand only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub folded: bool,
    /// How many steps on these lines, right before it, are not in the report.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Before the power fails, or in a run in which it does not.
    Run,
    /// The power fails.
    Crash,
    /// Afterwards: in recovery, or what would have come.
    After,
}

/// Threads beside each other.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Threads {
    /// Their numbers, ascending.
    pub threads: Vec<u32>,
    /// In the order in which things happened.
    pub steps: Vec<Step>,
    /// From which step to which something was handed on, by their positions.
    pub arrows: Vec<(usize, usize)>,
}

/// What one thread did.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The event's number in the finding, from 1.
    pub event: usize,
    /// Which of the threads, by its position; none if the event is nobody's.
    pub thread: Option<usize>,
    /// What it was.
    pub role: &'static str,
    /// Where, in few words.
    pub at: String,
    /// Another thread went on here.
    pub switched: bool,
}

/// The pictures of a finding that its events make.
pub fn of(finding: &Finding) -> Vec<Picture> {
    let events: Vec<&Event> = finding.all_events().collect();
    let threads = threads(finding, &events).map(Picture::Threads);
    let lines = lines(finding, &events).map(Picture::Lines);
    threads.into_iter().chain(lines).collect()
}

fn analysis(finding: &Finding) -> Option<Analysis> {
    Some(finding.rule.built_in()?.rule().analysis)
}

// ------------------------------------------------------------------ threads

fn threads(finding: &Finding, events: &[&Event]) -> Option<Threads> {
    let numbers: BTreeSet<u32> = events.iter().filter_map(|event| event.thread).collect();
    let is_about_threads = analysis(finding) == Some(Analysis::Race)
        || finding.rule == BuiltIn::UnpersistedPublication;
    if !is_about_threads || !(2..=THREADS_MAX).contains(&numbers.len()) {
        return None;
    }
    let threads: Vec<u32> = numbers.into_iter().collect();
    let mut steps: Vec<Step> = Vec::new();
    let mut last = None;
    for number in in_order(events) {
        let event = events[number];
        let thread = match event.role {
            Role::Crash | Role::Symptom => None,
            _ => event.thread,
        };
        // Who waits for ever does not take turns.
        let switched = thread.is_some()
            && last.is_some()
            && last != thread
            && finding.rule != BuiltIn::Deadlock;
        last = thread.or(last);
        steps.push(Step {
            event: number + 1,
            thread: thread.and_then(|thread| threads.iter().position(|t| *t == thread)),
            role: event.role.name(),
            at: match event.stack.is_empty() {
                true => String::new(),
                false => blame::place(&event.stack),
            },
            switched,
        });
    }
    // A store is read, and what is read becomes an effect.
    let find = |wanted: &[Role]| {
        steps
            .iter()
            .position(|step| wanted.contains(&events[step.event - 1].role))
    };
    let chain = [
        find(&[Role::Store]),
        find(&[Role::Load]),
        find(&[Role::Early, Role::Write]),
    ];
    let arrows = chain
        .windows(2)
        .filter_map(|pair| Some((pair[0]?, pair[1]?)));
    let arrows = arrows.filter(|(from, to)| from < to).collect();
    Some(Threads {
        threads,
        steps,
        arrows,
    })
}

// -------------------------------------------------------------------- lines

/// Positions of the events in the order in which they happened. What comes before the crash in the
/// list came before it, but for write-backs that are too late.
fn in_order(events: &[&Event]) -> Vec<usize> {
    let crash = events.iter().position(|event| event.role == Role::Crash);
    let end = crash.unwrap_or(events.len());
    let is_late = |at: &usize| crash.is_some_and(|crash| is_too_late(events[*at], events[crash]));
    let (late, mut before): (Vec<usize>, Vec<usize>) = (0..end).partition(is_late);
    match events[..end].iter().all(|event| event.index.is_some()) {
        true => before.sort_by_key(|&at| events[at].index),
        false => before.sort_by_key(|&at| !is_earlier(events[at].role)),
    }
    before.extend(crash);
    before.extend(late);
    before.extend(crash.map_or(events.len(), |crash| crash + 1)..events.len());
    before
}

fn is_earlier(role: Role) -> bool {
    matches!(
        role,
        Role::EarlierStore | Role::EarlierFlush | Role::EarlierLog
    )
}

fn is_store(role: Role) -> bool {
    matches!(
        role,
        Role::Store
            | Role::EarlierStore
            | Role::LaterStore
            | Role::Early
            | Role::Survivor
            | Role::Late
    )
}

fn is_flush(role: Role) -> bool {
    matches!(role, Role::Flush | Role::EarlierFlush)
}

/// The lines that an event is about, as (file, number of the line).
type Touched<'a> = BTreeSet<(&'a str, u64)>;

/// The lines of a place, of which only a few are ever needed, and how many there are.
fn of_place(place: Option<&Place>) -> (Touched<'_>, u64) {
    let Some(place) = place else {
        return (Touched::new(), 0);
    };
    let first = place.offset / LINE;
    let last = place.offset.saturating_add(place.size.saturating_sub(1)) / LINE;
    let shown = last.min(first.saturating_add(ROWS_MAX as u64));
    let lines = (first..=shown).map(|line| (place.file.as_str(), line));
    (lines.collect(), last - shown)
}

/// A column before its cells are known.
struct Item<'a> {
    column: Column,
    /// Its events, by their positions.
    members: Vec<usize>,
    index: Option<u64>,
    thread: Option<u32>,
    kind: Kind,
    lines: Touched<'a>,
    fate: Option<Fate>,
}

/// What an item does to the lines that it is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Store,
    Flush,
    Fence,
    Other,
}

impl Kind {
    fn of(role: Role) -> Kind {
        match role {
            role if is_store(role) => Kind::Store,
            role if is_flush(role) => Kind::Flush,
            Role::Sync => Kind::Flush,
            Role::Fence => Kind::Fence,
            _ => Kind::Other,
        }
    }
}

fn lines(finding: &Finding, events: &[&Event]) -> Option<Lines> {
    let steps: &[TimelineStep] = match &finding.timeline {
        Some(timeline) => &timeline.steps,
        None => &[],
    };
    let mut all: Touched<'_> = BTreeSet::new();
    let mut beyond = 0;
    let places = events.iter().map(|event| event.place.as_ref());
    for place in places.chain(steps.iter().map(|step| step.place.as_ref())) {
        let (lines, more) = of_place(place);
        all.extend(lines);
        beyond = beyond.max(more);
    }
    let is_drawn = |role: Role| Kind::of(role) != Kind::Other || role == Role::Crash;
    if all.is_empty() || !events.iter().any(|event| is_drawn(event.role)) {
        return None;
    }
    let hidden = beyond.saturating_add(all.len().saturating_sub(ROWS_MAX) as u64);
    let rows: Vec<(&str, u64)> = all.into_iter().take(ROWS_MAX).collect();
    let mut items = items(events, &touched(events, &rows));
    if !steps.is_empty() {
        items = with_steps(items, steps);
        fold(&mut items);
    }
    let nothing_lost = finding
        .timeline
        .as_ref()
        .and_then(|timeline| timeline.nothing_lost.as_ref());
    let files: BTreeSet<&str> = rows.iter().map(|(file, _)| *file).collect();
    let files: Vec<&str> = files.into_iter().collect();
    let is_clean = finding.rule == BuiltIn::CleanFlush.id();
    let mut out: Vec<Row> = Vec::new();
    for row in &rows {
        let mut state = State::Untold;
        let mut flushed_by = None;
        let mut states = Vec::new();
        let mut marks = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let is_mine = item.lines.contains(row);
            if is_mine {
                marks.push(position);
            }
            match (item.column.part, item.kind) {
                (Part::Crash, _) => {
                    let told = after_crash(finding, &items, *row, state);
                    state = told;
                }
                (Part::After, _) => {}
                (Part::Run, Kind::Store) if is_mine => state = State::Dirty,
                // What is wrong with this one is that the line was persistent.
                (Part::Run, Kind::Flush)
                    if is_mine && is_clean && item.column.role == Role::Flush.name() =>
                {
                    state = State::Durable;
                }
                // A line that is persistent already stays so.
                (Part::Run, Kind::Flush) if is_mine && state != State::Durable => {
                    state = State::WrittenBack;
                    flushed_by = item.thread;
                }
                (Part::Run, Kind::Fence)
                    if state == State::WrittenBack
                        && item.thread.is_some()
                        && flushed_by == item.thread =>
                {
                    state = State::Durable;
                }
                _ => {}
            }
            states.push(state);
        }
        out.push(Row {
            file: files.iter().position(|file| *file == row.0).unwrap_or(0),
            offset: format!("{:x}", row.1.saturating_mul(LINE)),
            name: name_of(*row, events, steps),
            beside: nothing_lost.map(|_| match state {
                State::Lost | State::LostInPart => State::Survived,
                other => other,
            }),
            states,
            touched: marks,
        });
    }
    Some(Lines {
        files: files.into_iter().map(str::to_owned).collect(),
        rows: out,
        hidden,
        columns: items.into_iter().map(|item| item.column).collect(),
        nothing_lost: nothing_lost.map(|beside| match &beside.symptom {
            None => format!("recovery ends with {}, as it should", beside.status),
            Some(symptom) => symptom.clone(),
        }),
    })
}

/// What the bytes of a line are called by the finding's events, or else by the steps of its run.
fn name_of(row: (&str, u64), events: &[&Event], steps: &[TimelineStep]) -> String {
    const NAMES_MAX: usize = 2;
    fn told<'a>(row: (&str, u64), places: impl Iterator<Item = Option<&'a Place>>) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for place in places {
            let name = place.and_then(|place| place.name.as_deref());
            if let Some(name) = name
                && of_place(place).0.contains(&row)
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names
    }
    let mut names = told(row, events.iter().map(|event| event.place.as_ref()));
    if names.is_empty() {
        names = told(row, steps.iter().map(|step| step.place.as_ref()));
    }
    let more = names.len() > NAMES_MAX;
    names.truncate(NAMES_MAX);
    let mut name = names.join(", ");
    if more {
        name += ", …";
    }
    name
}

/// One item an event, or several that are the same: one write-back may be told for several stores.
fn items<'a>(events: &[&'a Event], touched: &[Touched<'a>]) -> Vec<Item<'a>> {
    let crash = events.iter().position(|event| event.role == Role::Crash);
    let mut items: Vec<Item<'a>> = Vec::new();
    // How recovery ends is about no line.
    let order = in_order(events).into_iter();
    for at in order.filter(|&at| events[at].role != Role::Symptom) {
        let event = events[at];
        let part = match crash {
            Some(crash) if at == crash => Part::Crash,
            Some(crash) if at > crash || is_too_late(event, events[crash]) => Part::After,
            _ => Part::Run,
        };
        let same = items.iter_mut().find(|item| {
            item.column.part == part
                && part != Part::Crash
                && event.index.is_some()
                && (events[item.members[0]].role, item.index, item.thread)
                    == (event.role, event.index, event.thread)
        });
        match same {
            Some(item) => {
                item.column.events.push(at + 1);
                item.members.push(at);
                item.lines.extend(&touched[at]);
            }
            None => items.push(Item {
                column: Column {
                    events: vec![at + 1],
                    role: event.role.name(),
                    part,
                    thread: event.thread,
                    at: String::new(),
                    folded: false,
                    skipped: 0,
                },
                members: vec![at],
                index: event.index,
                thread: event.thread,
                kind: Kind::of(event.role),
                lines: touched[at].clone(),
                fate: fate_by_role(event.role),
            }),
        }
    }
    items
}

/// Told before the crash, because it belongs to what was lost, but not reached: the write-back that
/// comes too late.
fn is_too_late(event: &Event, crash: &Event) -> bool {
    is_flush(event.role) && matches!((event.index, crash.index), (Some(at), Some(end)) if at >= end)
}

/// What the role of a store says about it, in every analysis.
fn fate_by_role(role: Role) -> Option<Fate> {
    match role {
        Role::Early | Role::Survivor => Some(Fate::Survived),
        _ => None,
    }
}

/// The steps of the run in their order, with the events that they are.
fn with_steps<'a>(events: Vec<Item<'a>>, steps: &'a [TimelineStep]) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> = steps
        .iter()
        .map(|step| Item {
            column: Column {
                events: Vec::new(),
                role: step.role.name(),
                part: Part::Run,
                thread: Some(step.thread),
                at: step.at.clone(),
                folded: false,
                skipped: step.skipped,
            },
            members: Vec::new(),
            index: Some(step.index),
            thread: Some(step.thread),
            kind: Kind::of(step.role),
            lines: of_place(step.place.as_ref()).0,
            fate: step.fate,
        })
        .collect();
    let mut after = Vec::new();
    for event in events {
        if event.column.part != Part::Run {
            after.push(event);
            continue;
        }
        let same = items
            .iter_mut()
            .find(|item| item.kind == event.kind && item.index == event.index);
        match same {
            Some(item) => {
                item.column.events.extend(&event.column.events);
                item.members.extend(event.members);
            }
            None => items.push(event),
        }
    }
    // What has no index stays behind what has one.
    items.sort_by_key(|item| item.index.unwrap_or(u64::MAX));
    items.extend(after);
    items
}

/// What lies well before anything that matters is shown on demand only.
fn fold(items: &mut [Item<'_>]) {
    const BEFORE: usize = 1;
    let matters = |item: &Item<'_>| {
        !item.column.events.is_empty() || matches!(item.fate, Some(Fate::Lost | Fate::LostInPart))
    };
    let first = items.iter().position(matters).unwrap_or(0);
    let shown = first.saturating_sub(BEFORE);
    // To fold one would not make it shorter.
    if shown > 1 {
        for item in &mut items[..shown] {
            item.column.folded = true;
        }
    }
}

/// Which of the rows each event is about.
fn touched<'a>(events: &[&'a Event], rows: &[(&'a str, u64)]) -> Vec<Touched<'a>> {
    let mut touched: Vec<Touched<'a>> = Vec::new();
    let mut last_store: Touched<'a> = BTreeSet::new();
    let is_crash = events.iter().any(|event| event.role == Role::Crash);
    for event in events {
        let (mut lines, _) = of_place(event.place.as_ref());
        if matches!(event.role, Role::Store | Role::Survivor) {
            last_store = lines.clone();
        } else if event.role == Role::Flush && event.place.is_none() && is_crash {
            lines = last_store.clone();
        } else if is_earlier(event.role) && event.place.is_none() && rows.len() == 1 {
            lines = rows.iter().copied().collect();
        }
        touched.push(lines);
    }
    touched
}

/// What becomes of a line in the crash: as the timeline has it, else as far as roles tell.
fn after_crash(finding: &Finding, items: &[Item<'_>], row: (&str, u64), before: State) -> State {
    let stores_survive = finding.rule == BuiltIn::PersistentLock;
    let stores_are_lost = analysis(finding) == Some(Analysis::Explore)
        || finding.rule == BuiltIn::InterThreadInconsistency
        || finding.rule == BuiltIn::IntraThreadInconsistency;
    let fates = items
        .iter()
        .filter(|item| item.kind == Kind::Store && item.column.part == Part::Run)
        .filter(|item| item.lines.contains(&row))
        .filter_map(|item| match item.fate {
            Some(fate) => Some(fate),
            None if item.column.role != Role::Store.name() => None,
            None if stores_survive => Some(Fate::Survived),
            None if stores_are_lost => Some(Fate::Lost),
            None => None,
        });
    let fates: Vec<Fate> = fates.collect();
    let has = |fate| fates.contains(&fate);
    match (has(Fate::Lost), has(Fate::Survived)) {
        _ if has(Fate::LostInPart) => State::LostInPart,
        (true, true) => State::LostInPart,
        (true, false) => State::Lost,
        (false, true) => State::Survived,
        // A line that had reached persistent memory is still there.
        (false, false) if has(Fate::Durable) || before == State::Durable => State::Durable,
        (false, false) => State::Untold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{NothingLost, Severity, Timeline};

    fn event(role: Role, index: Option<u64>, place: Option<(u64, u64)>) -> Event {
        Event {
            index,
            thread: Some(1),
            place: place.map(|(offset, size)| Place {
                file: "pool".into(),
                offset,
                size,
                address: 0,
                name: None,
            }),
            ..Event::new(role, "")
        }
    }

    fn lines_of(rule: BuiltIn, events: Vec<Event>) -> Lines {
        let mut finding = Finding::new(rule, Severity::Correctness, "");
        finding.events = events;
        match of(&finding).pop() {
            Some(Picture::Lines(lines)) => lines,
            other => panic!("{other:?}"),
        }
    }

    /// By its events; where they have no names, by the other steps of the run.
    #[test]
    fn a_line_is_called_as_the_program_calls_it() {
        let named = |offset, size, name: &str| Place {
            name: Some(name.into()),
            ..event(Role::Store, None, Some((offset, size)))
                .place
                .expect("a place")
        };
        let told = |places: Vec<Place>, steps: Vec<Place>| -> Vec<String> {
            let mut finding = Finding::new(BuiltIn::RecoveryError, Severity::Correctness, "");
            finding.events = (1..)
                .zip(places)
                .map(|(index, place)| Event {
                    place: Some(place),
                    ..event(Role::Store, Some(index), None)
                })
                .collect();
            let step = |(index, place)| TimelineStep {
                role: Role::Store,
                thread: 1,
                index,
                place: Some(place),
                fate: None,
                at: String::new(),
                skipped: 0,
            };
            finding.timeline = Some(Timeline {
                steps: (100..).zip(steps).map(step).collect(),
                nothing_lost: None,
            });
            match of(&finding).pop() {
                Some(Picture::Lines(lines)) => lines.rows.into_iter().map(|row| row.name).collect(),
                other => panic!("{other:?}"),
            }
        };
        let unnamed = || event(Role::Store, None, Some((192, 8))).place.expect("one");
        assert_eq!(
            told(
                vec![
                    named(64, 8, "log->valid"),
                    named(120, 16, "log->text"),
                    named(64, 8, "log->valid"),
                    unnamed(),
                ],
                vec![named(72, 8, "log->size"), named(200, 8, "root->count")],
            ),
            ["log->valid, log->text", "log->text", "root->count"]
        );
        assert_eq!(
            told(
                vec![named(0, 8, "a"), named(8, 8, "b"), named(16, 8, "c")],
                vec![]
            ),
            ["a, b, …"]
        );
    }

    #[test]
    fn the_lost_line_and_the_one_that_overtook_it() {
        let picture = lines_of(
            BuiltIn::RecoveryError,
            vec![
                event(Role::Store, Some(72), Some((64, 8))),
                event(Role::Flush, Some(76), None),
                event(Role::Store, Some(73), Some((72, 8))),
                event(Role::Flush, Some(76), None),
                event(Role::Early, Some(78), Some((192, 8))),
                event(Role::Crash, Some(80), None),
                event(Role::Load, Some(15), None),
            ],
        );
        let columns: Vec<(&[usize], Part)> = picture
            .columns
            .iter()
            .map(|column| (column.events.as_slice(), column.part))
            .collect();
        assert_eq!(
            columns,
            [
                (&[1][..], Part::Run),
                (&[3], Part::Run),
                (&[2, 4], Part::Run),
                (&[5], Part::Run),
                (&[6], Part::Crash),
                (&[7], Part::After),
            ]
        );
        use State::*;
        assert_eq!(picture.rows.len(), 2);
        assert_eq!(picture.rows[0].offset, "40");
        assert_eq!(
            picture.rows[0].states,
            [Dirty, Dirty, WrittenBack, WrittenBack, Lost, Lost]
        );
        assert_eq!(picture.rows[0].touched, [0, 1, 2]);
        assert_eq!(
            picture.rows[1].states,
            [Untold, Untold, Untold, Dirty, Survived, Survived]
        );
    }

    #[test]
    fn a_write_back_after_the_crash_is_drawn_there() {
        let picture = lines_of(
            BuiltIn::RecoveryError,
            vec![
                event(Role::Store, Some(60), Some((192, 8))),
                event(Role::Flush, Some(65), None),
                event(Role::Crash, Some(64), None),
            ],
        );
        let parts: Vec<(usize, Part)> = picture
            .columns
            .iter()
            .map(|column| (column.events[0], column.part))
            .collect();
        assert_eq!(parts, [(1, Part::Run), (3, Part::Crash), (2, Part::After)]);
        use State::*;
        assert_eq!(picture.rows[0].states, [Dirty, Lost, Lost]);
    }

    #[test]
    fn what_survives_and_does_harm_is_not_drawn_as_lost() {
        let picture = lines_of(
            BuiltIn::RecoveryCrash,
            vec![
                event(Role::Survivor, Some(1), Some((0, 8))),
                event(Role::Crash, Some(2), None),
            ],
        );
        assert_eq!(picture.rows[0].states, [State::Dirty, State::Survived]);
    }

    fn step(role: Role, index: u64, offset: u64, fate: Option<Fate>) -> TimelineStep {
        TimelineStep {
            role,
            thread: 1,
            index,
            place: event(role, None, Some((offset, 8)))
                .place
                .filter(|_| role != Role::Fence),
            fate,
            at: format!("list.c:{index}"),
            skipped: 0,
        }
    }

    /// Steps of the run stand between the events, what is far before them is folded, and the
    /// timeline decides what is lost.
    #[test]
    fn a_timeline_fills_in_what_events_leave_out() {
        let mut finding = Finding::new(BuiltIn::RecoveryError, Severity::Correctness, "");
        finding.events = vec![
            event(Role::Store, Some(60), Some((64, 8))),
            event(Role::Flush, Some(90), None),
            event(Role::Early, Some(62), Some((0, 8))),
            event(Role::Crash, Some(64), None),
            event(Role::Load, Some(5), Some((64, 8))),
        ];
        let mut steps = vec![
            step(Role::Store, 1, 64, Some(Fate::Durable)),
            step(Role::Flush, 2, 64, None),
            step(Role::Fence, 3, 64, None),
            step(Role::Store, 10, 0, Some(Fate::Durable)),
            step(Role::Flush, 11, 0, None),
            step(Role::Fence, 12, 0, None),
            step(Role::Store, 60, 64, Some(Fate::Lost)),
            step(Role::Store, 62, 0, Some(Fate::Survived)),
        ];
        steps[0].skipped = 7;
        finding.timeline = Some(Timeline {
            steps,
            nothing_lost: Some(NothingLost {
                status: "exit code 0".into(),
                symptom: None,
            }),
        });
        let Some(Picture::Lines(picture)) = of(&finding).pop() else {
            panic!("lines");
        };
        let columns: Vec<(&str, &[usize], bool)> = picture
            .columns
            .iter()
            .map(|column| (column.role, column.events.as_slice(), column.folded))
            .collect();
        assert_eq!(
            columns,
            [
                ("store", &[][..], true),
                ("flush", &[], true),
                ("fence", &[], true),
                ("store", &[], true),
                ("flush", &[], true),
                ("fence", &[], false),
                ("store", &[1], false),
                ("store", &[3], false),
                ("crash", &[4], false),
                ("flush", &[2], false),
                ("load", &[5], false),
            ]
        );
        assert_eq!(picture.columns[0].skipped, 7);
        use State::*;
        let first = &picture.rows[0];
        assert_eq!(first.states[3..6], [Dirty, WrittenBack, Durable]);
        assert_eq!(first.states[7..9], [Dirty, Survived]);
        let second = &picture.rows[1];
        assert_eq!(second.states[..3], [Dirty, WrittenBack, Durable]);
        assert_eq!(second.states[6..9], [Dirty, Dirty, Lost]);
        assert_eq!(
            (first.beside, second.beside),
            (Some(Survived), Some(Survived))
        );
        assert!(second.touched.contains(&10), "recovery reads it");
        let said = picture.nothing_lost.expect("it was tried");
        assert_eq!(said, "recovery ends with exit code 0, as it should");
    }

    #[test]
    fn a_fence_completes_only_the_write_backs_of_its_thread() {
        let mut events = vec![
            event(Role::Store, Some(1), Some((0, 8))),
            event(Role::Flush, Some(2), Some((0, 64))),
            event(Role::Fence, Some(3), None),
        ];
        let states = |events: &[Event]| {
            lines_of(BuiltIn::MissingFence, events.to_vec()).rows[0]
                .states
                .clone()
        };
        assert_eq!(states(&events)[2], State::Durable);
        events[2].thread = Some(2);
        assert_eq!(states(&events)[2], State::WrittenBack);
        events[2].thread = None;
        assert_eq!(states(&events)[2], State::WrittenBack);
    }

    #[test]
    fn what_happened_earlier_comes_first() {
        let picture = lines_of(
            BuiltIn::CleanFlush,
            vec![
                event(Role::Flush, Some(9), Some((0, 64))),
                event(Role::EarlierStore, None, None),
                event(Role::EarlierFlush, None, None),
            ],
        );
        let order: Vec<usize> = picture.columns.iter().map(|c| c.events[0]).collect();
        assert_eq!(order, [2, 3, 1]);
        assert_eq!(picture.rows[0].touched, [0, 1, 2]);
        // The fence that has made it persistent is not told, but that it was is.
        let states = &picture.rows[0].states;
        assert_eq!(*states, [State::Dirty, State::WrittenBack, State::Durable]);
        let twice = vec![
            event(Role::EarlierFlush, None, Some((0, 64))),
            event(Role::Flush, Some(9), Some((0, 64))),
        ];
        let picture = lines_of(BuiltIn::DoubleFlush, twice);
        assert_eq!(picture.rows[0].states[1], State::WrittenBack);
    }

    #[test]
    fn nothing_is_claimed_of_a_crash_that_roles_do_not_tell() {
        let events = vec![
            event(Role::Store, Some(1), Some((0, 8))),
            event(Role::Crash, Some(2), None),
        ];
        let after = |rule| lines_of(rule, events.clone()).rows[0].states[1];
        assert_eq!(after(BuiltIn::MissingFlush), State::Untold);
        assert_eq!(after(BuiltIn::NotAtomic), State::Lost);
        assert_eq!(after(BuiltIn::PersistentLock), State::Survived);
    }

    #[test]
    fn huge_and_strange_places_are_bounded() {
        for (offset, size) in [(0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0), (63, 2)] {
            let picture = lines_of(
                BuiltIn::OversizedFlush,
                vec![event(Role::Flush, None, Some((offset, size)))],
            );
            assert!(picture.rows.len() <= ROWS_MAX);
            let shown = picture.rows.len() as u64;
            let last = offset.saturating_add(size.saturating_sub(1)) / LINE;
            assert_eq!(shown + picture.hidden, last - offset / LINE + 1);
        }
        let mut finding = Finding::new(BuiltIn::EmptyFence, Severity::Performance, "");
        finding.events = vec![event(Role::Fence, Some(1), None)];
        assert_eq!(of(&finding), []);
    }

    #[test]
    fn threads_stand_beside_each_other() {
        let mut finding =
            Finding::new(BuiltIn::InterThreadInconsistency, Severity::Correctness, "");
        let of_thread = |role, index, thread| Event {
            thread: Some(thread),
            ..event(role, Some(index), Some((0, 8)))
        };
        finding.events = vec![
            of_thread(Role::Store, 50, 2),
            of_thread(Role::Load, 69, 3),
            of_thread(Role::Early, 70, 3),
            of_thread(Role::Crash, 81, 3),
        ];
        let pictures = of(&finding);
        let [Picture::Threads(picture), Picture::Lines(_)] = pictures.as_slice() else {
            panic!("two threads");
        };
        assert_eq!(picture.threads, [2, 3]);
        let threads: Vec<Option<usize>> = picture.steps.iter().map(|s| s.thread).collect();
        assert_eq!(threads, [Some(0), Some(1), Some(1), None]);
        assert_eq!(picture.arrows, [(0, 1), (1, 2)]);
        let switched: Vec<bool> = picture.steps.iter().map(|s| s.switched).collect();
        assert_eq!(switched, [false, true, false, false]);
    }
}
