//! Operations of the recorded run: how many are over at a failure point, and what recovery prints
//! after each.
//!
//! Operations are the lines of its input, if it reads any: when it has consumed a line wholly and
//! asks for more, that operation is over. Else they are its outputs. What recovery prints after k
//! operations is found out by running the program on the first k lines; by outputs, by running
//! recovery on the state in which the k-th was written, with everything surviving.
//!
//! Guarantee: no correct program is blamed for how it reads. A program need not carry out a line
//! before it asks for the next (it may read all first, or commit several together). So what it has
//! stored when it asks, with everything surviving, is compared with what is there after each number
//! of lines: that many are over, no more.
//!
//! With lines, outputs acknowledge, too. An output counts if it ends a line, if what it may speak
//! of is already there with everything surviving, and if no other such output follows before more
//! input is asked for: so a prompt, an echo of the command or a word on how far it has come are not
//! taken for a promise.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::compare::without_addresses;
use crate::execution::{Acknowledged, Command};
use crate::executor::{Answer, Request};
use crate::input::Lines;
use crate::options::{Error, io_error};
use crate::oracle::{References, Span};
use crate::outcome::Outcome;
use crate::recording::{FailurePoint, Reason, Recording};
use crate::search::Search;
use crate::view::{Base, Image, Narrowed, Timeline, View};

/// Where references come from the recorded run instead of runs of their own, so many are compared
/// with runs.
const REFERENCE_SAMPLES: usize = 8;

/// See the module's header.
#[derive(Clone)]
pub struct Operations {
    /// Lines of input, if the program reads them.
    lines: Option<Lines>,
    stdout: Vec<u8>,
    /// By failure point: how many operations must be there. Found out with the references.
    floors: Option<Vec<u64>>,
    /// What is known of lines is of no use: they are judged by outputs, if at all.
    by_outputs: bool,
}

impl Operations {
    pub fn new(recording: &Recording, stdout: Vec<u8>) -> Operations {
        let lines = recording.input.clone();
        Operations {
            lines: lines.filter(|lines| lines.count() > 0),
            stdout,
            floors: None,
            by_outputs: false,
        }
    }

    /// Whether operations are lines of input.
    pub fn are_lines(&self) -> bool {
        self.lines.is_some() && !self.by_outputs
    }

    /// Whether the program reads lines, though they may tell nothing.
    pub fn reads_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// How many may be there after a crash at a failure point.
    pub fn span(&self, recording: &Recording, point: u32) -> Span {
        let at = &recording.points[point as usize];
        match &self.lines {
            Some(lines) if !self.by_outputs => {
                let consumed = at.consumed.unwrap_or(0);
                let floors = self.floors.as_ref();
                let from = floors.and_then(|f| f.get(point as usize).copied());
                Span {
                    from: from.unwrap_or(consumed),
                    to: (consumed + 1).min(lines.count() as u64),
                }
            }
            _ => Span {
                from: at.outputs,
                to: at.outputs + 1,
            },
        }
    }

    /// What a checker is told.
    pub fn acknowledged(&self, recording: &Recording, point: u32) -> Acknowledged {
        let at = &recording.points[point as usize];
        match &self.lines {
            // If all is read before anything is done, lines say nothing.
            Some(lines) if !recording.reads_ahead => {
                let operations = at.consumed.unwrap_or(0);
                Acknowledged {
                    operations,
                    text: lines.first(operations as usize).to_vec(),
                }
            }
            _ => {
                let bytes = at.output_bytes as usize;
                Acknowledged {
                    operations: at.outputs,
                    text: self.stdout[..bytes.min(self.stdout.len())].to_vec(),
                }
            }
        }
    }

    /// What recovery prints after each number of operations; `None` if nothing is known of them, or
    /// the search was stopped. With more operations than `runs_max` allows, references come from
    /// the recorded run instead of runs of their own.
    pub fn references(
        &mut self,
        search: &mut Search<'_>,
        program: &Command,
        runs_max: usize,
        initial: &Image,
        scratch: &Path,
    ) -> Result<Option<References>, Error> {
        let Some(lines) = self.lines.clone() else {
            return by_outputs(search, initial);
        };
        match by_lines(search, program, runs_max, &lines, initial, scratch)? {
            Measured::Stopped => Ok(None),
            Measured::Nothing => {
                search.ledger.notes.insert(READS_AHEAD_UNKNOWN.into());
                self.by_outputs = true;
                by_outputs(search, initial)
            }
            Measured::Lines(references) => {
                self.floors = self.acknowledged_lines(search, &references)?;
                Ok(self.floors.is_some().then_some(references))
            }
        }
    }

    /// By failure point: how many lines the program has acknowledged, by asking for more or by what
    /// it printed. `None` if the search was stopped.
    fn acknowledged_lines(
        &self,
        search: &mut Search<'_>,
        references: &References,
    ) -> Result<Option<Vec<u64>>, Error> {
        let recording = &search.layers[0].recording;
        let count = recording.points.len();
        let told: Vec<(usize, Tells)> = (0..count)
            .filter_map(|point| Some((point, self.tells(&recording.points, point)?)))
            .collect();
        let images: Vec<Image> = told
            .iter()
            .map(|(point, _)| newest_at(search, *point as u32))
            .collect();
        let Some(outcomes) = search.evaluate_all(0, &images)? else {
            return Ok(None);
        };
        let points = &search.layers[0].recording.points;
        let told: Vec<Told> = told
            .into_iter()
            .zip(outcomes)
            .map(|((point, how), outcome)| Told {
                point,
                how,
                consumed: points[point].consumed.unwrap_or(0),
                seen: search.known.outcomes[outcome as usize].clone(),
            })
            .collect();
        let (floors, lags) = floors(&told, references, count);
        if lags {
            search.ledger.notes.insert(READS_AHEAD.into());
        }
        Ok(Some(floors))
    }

    /// What the outside learns right at a failure point.
    fn tells(&self, points: &[FailurePoint], point: usize) -> Option<Tells> {
        let now = &points[point];
        let before = point.checked_sub(1).map(|before| &points[before]);
        if now.reason != Reason::Acknowledges {
            return None;
        }
        if now.consumed != before.and_then(|before| before.consumed) {
            return Some(Tells::Asks);
        }
        // A write may end anywhere, because buffers are full; what ends a line is meant to be read.
        let printed = now.outputs > before.map_or(0, |before| before.outputs);
        let end = (now.output_bytes as usize).checked_sub(1)?;
        (printed && self.stdout.get(end) == Some(&b'\n')).then_some(Tells::Prints)
    }
}

/// Told if lines are judged all the same.
const READS_AHEAD: &str = "when the program asks for more input, it has not carried out all the lines that it has read: it reads ahead, or \
     commits several together. Each of those may be missing after a crash, unless an output has acknowledged it. To have every \
     line judged, let the program read a line only when it has carried out the one before";

/// Told if they are not.
const READS_AHEAD_UNKNOWN: &str = "when the program asks for more input, it has not carried out all the lines that it has read: it reads \
     ahead, or commits several together. So operations are told by its outputs, not by its lines";

/// What the outside learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    /// More input is asked for.
    Asks,
    /// A line was printed.
    Prints,
}

/// Something that the outside was told.
struct Told {
    point: usize,
    how: Tells,
    /// Lines that were consumed by then.
    consumed: u64,
    /// What recovery makes of it if everything survives.
    seen: Outcome,
}

/// By failure point, how many operations were acknowledged; and whether the program asks for more
/// before it has carried out what it has read.
fn floors(told: &[Told], references: &References, points: usize) -> (Vec<u64>, bool) {
    // How many operations are there with everything surviving: the fewest, if several numbers fit.
    let mut there: Vec<Option<u64>> = Vec::new();
    let mut least = 0;
    for told in told {
        let found = references.count_in(&told.seen, least, told.consumed + 1);
        least = found.unwrap_or(least);
        there.push(found);
    }
    let lags = told.iter().zip(&there).any(|(told, there)| {
        told.how == Tells::Asks
            && there.is_some_and(|there| there < told.consumed)
            && references.count_in(&told.seen, told.consumed, told.consumed) != Some(told.consumed)
    });
    let mut floors = vec![0; points];
    let mut floor = 0;
    let mut next_point = 0;
    for (i, now) in told.iter().enumerate() {
        floors[next_point..now.point].fill(floor);
        next_point = now.point;
        let acknowledged = match now.how {
            // If what is there is no whole number of operations, the program is to blame, unless it
            // asks at any time.
            Tells::Asks if lags => there[i].unwrap_or(floor),
            Tells::Asks => there[i].unwrap_or(now.consumed),
            // Another line that speaks of the same follows: this one need not be the promise.
            Tells::Prints => match told.get(i + 1) {
                Some(next) if next.how == Tells::Prints && there[i + 1] == there[i] => floor,
                _ => there[i].unwrap_or(floor),
            },
        };
        floor = floor.max(acknowledged);
    }
    floors[next_point..].fill(floor);
    (floors, lags)
}

/// What is known of lines.
enum Measured {
    Lines(References),
    /// They say nothing about this program.
    Nothing,
    Stopped,
}

/// What recovery prints after the first k lines of input, for each k.
fn by_lines(
    search: &mut Search<'_>,
    program: &Command,
    runs_max: usize,
    lines: &Lines,
    initial: &Image,
    scratch: &Path,
) -> Result<Measured, Error> {
    let count = lines.count();
    let is_few = count <= runs_max;
    let samples = REFERENCE_SAMPLES.min(runs_max.saturating_sub(1)).max(1);
    let numbers: Vec<usize> = match is_few {
        true => (0..=count).collect(),
        false => (0..=samples).map(|i| count * i / samples).collect(),
    };
    let Some(runs) = after_lines(search, program, lines, &numbers, scratch, initial)? else {
        return Ok(Measured::Stopped);
    };
    // What a run has done that had to be ended is no measure.
    let runs: Vec<(usize, Vec<u8>)> = numbers
        .into_iter()
        .zip(runs)
        .filter_map(|(k, run)| Some((k, run?)))
        .collect();
    let is_known = is_few && runs.len() == count + 1;
    let mut outputs = vec![Vec::new(); count + 1];
    for (k, output) in &runs {
        outputs[*k].clone_from(output);
    }
    let references = References {
        outputs,
        addresses: false,
        questions: 0,
    };
    if is_known {
        let expected: HashSet<Vec<u8>> = references.outputs.iter().cloned().collect();
        // From now on, a recovery that prints something else is run twice. Nobody else sets it
        // before.
        let _ = search.settings.runs.expected.set(expected);
    }
    let asks = |point: &FailurePoint| point.consumed;
    let Some(before) = by_points(search, initial, 0, asks)? else {
        return Ok(Measured::Stopped);
    };
    // If already the state before the first operation prints something else when the program did
    // not end in order, the output tells of the crash itself. Then the recorded run is the measure.
    let begins = runs.first().is_some_and(|(k, _)| *k == 0);
    let ends_otherwise = begins
        && before
            .first()
            .is_none_or(|before| references.count_in(before, 0, 0) != Some(0));
    if is_known && !ends_otherwise {
        return Ok(Measured::Lines(references));
    }
    let Some(in_run) = by_points(search, initial, count, asks)? else {
        return Ok(Measured::Stopped);
    };
    let mut outputs: Vec<Vec<u8>> = in_run.into_iter().map(|outcome| outcome.stdout).collect();
    // The last is that of the end of the run.
    outputs.truncate(count + 1);
    let lags = match ends_otherwise {
        // Lines change what is there, and the run does not show it.
        true => runs
            .windows(2)
            .any(|run| run[0].1 != run[1].1 && outputs[run[0].0] == outputs[run[1].0]),
        false => runs.iter().any(|(k, run)| outputs[*k] != *run),
    };
    if lags {
        return Ok(Measured::Nothing);
    }
    if is_few && !is_known {
        search.ledger.notes.insert(
            "the program does not end soon if it is given only the first lines of its input, so recovery is compared with states \
             of the recorded run"
                .into(),
        );
    }
    if ends_otherwise {
        search.ledger.notes.insert(
            "recovery prints something else after an orderly end, so it is compared with states of the recorded run".into(),
        );
    }
    Ok(Measured::Lines(References {
        outputs,
        addresses: false,
        questions: 0,
    }))
}

/// What recovery prints after runs of the program on the first lines of its input, each `None` if
/// that run had to be ended; `None` if the search was stopped.
fn after_lines(
    search: &mut Search<'_>,
    program: &Command,
    lines: &Lines,
    numbers: &[usize],
    scratch: &Path,
    initial: &Image,
) -> Result<Option<Vec<Option<Vec<u8>>>>, Error> {
    let recovery = search.settings.runs.recover.clone();
    let mut requests = Vec::new();
    for k in numbers {
        let input = scratch.join(format!("reference-stdin-{k}"));
        fs::write(&input, lines.first(*k)).map_err(io_error("cannot write an input"))?;
        let first = Command {
            stdin: Some(input),
            ..program.clone()
        };
        requests.push(Request::orderly(first, initial.clone(), &recovery));
    }
    let Some(answers) = search.perform_all(requests)? else {
        return Ok(None);
    };
    let mut outputs = Vec::new();
    for answer in answers {
        if let Answer::Executed(execution) = answer {
            let execution = execution?;
            outputs.push((!execution.first_was_cut).then_some(execution.outcome.stdout));
        }
    }
    Ok(Some(outputs))
}

/// What recovery prints after each output, if everything survives.
fn by_outputs(search: &mut Search<'_>, initial: &Image) -> Result<Option<References>, Error> {
    let count = search.layers[0].recording.outputs as usize;
    if count == 0 {
        return Ok(None);
    }
    let found = by_points(search, initial, count, |point| Some(point.outputs))?;
    let outputs = |outcomes: Vec<Outcome>| outcomes.into_iter().map(|o| o.stdout).collect();
    Ok(found.map(|outcomes| References {
        outputs: outputs(outcomes),
        addresses: false,
        questions: 0,
    }))
}

/// What recovery does where the recorded run has just completed k operations, for each k; and at
/// the end. `None` if the search was stopped.
fn by_points(
    search: &mut Search<'_>,
    initial: &Image,
    count: usize,
    done: impl Fn(&FailurePoint) -> Option<u64>,
) -> Result<Option<Vec<Outcome>>, Error> {
    let points = &search.layers[0].recording.points;
    let last = points.len() - 1;
    let mut at: Vec<Option<usize>> = (0..=count as u64)
        .map(|k| {
            // If several were completed at once, where that was.
            let is_there =
                |p: &FailurePoint| p.reason == Reason::Acknowledges && done(p) >= Some(k);
            // Of the states that a crash may leave at one place, the newest.
            points
                .iter()
                .position(|point| point.lost.is_empty() && is_there(point))
        })
        .collect();
    let mut outcomes = Vec::new();
    if at
        .first()
        .is_some_and(|first| first.is_none_or(|at| done(&points[at]) != Some(0)))
    {
        at.remove(0);
        let Some(execution) = search.recover(initial, Acknowledged::default(), false)? else {
            return Ok(None);
        };
        outcomes.push(execution.outcome.clone());
    }
    let at = at.into_iter().map(|point| point.unwrap_or(last));
    let images: Vec<Image> = at
        .chain([last])
        .map(|point| newest_at(search, point as u32))
        .collect();
    let Some(found) = search.evaluate_all(0, &images)? else {
        return Ok(None);
    };
    let found = found
        .into_iter()
        .map(|o| search.known.outcomes[o as usize].clone());
    outcomes.extend(found);
    Ok(Some(outcomes))
}

/// Whether recovery prints addresses: the same state is recovered once more, elsewhere in memory.
/// `None` if the search was stopped.
pub fn prints_addresses(search: &mut Search<'_>) -> Result<Option<bool>, Error> {
    let last = search.layers[0].recording.points.len() as u32 - 1;
    let here = newest_at(search, last);
    let Some(outcome) = search.evaluate(0, &here)? else {
        return Ok(None);
    };
    let here_printed = search.known.outcomes[outcome as usize].stdout.clone();
    let mut timeline = Timeline::new(Base::Crashed(here.clone()), 64);
    timeline.close(Vec::new());
    let elsewhere = Image {
        view: View {
            timeline: Arc::new(timeline),
            point: 0,
        },
        survivors: BTreeMap::new(),
        files: here.files.clone(),
    };
    let told = search.acknowledged_at(0, last);
    let Some(execution) = search.recover(&elsewhere, told, false)? else {
        return Ok(None);
    };
    let printed = &execution.outcome.stdout;
    let is_so =
        *printed != here_printed && without_addresses(printed) == without_addresses(&here_printed);
    Ok(Some(is_so))
}

fn newest_at(search: &Search<'_>, point: u32) -> Image {
    let files = &search.layers[0].recording.points[point as usize].files;
    Image::newest(&search.view(0, point), &Narrowed::new(), files)
}

#[cfg(test)]
mod tests {
    use brownout_model::Config;
    use brownout_trace::EventSink;
    use brownout_trace::event::{
        Access, ContextId, Event, EventKind, FileId, PmReason, ProcessId, TargetAddr, ThreadId,
    };

    use crate::recording::{RecordOptions, Recorder};

    use super::*;

    const AT: TargetAddr = TargetAddr(0x10000);

    /// Feeds what a program did to the world; it has one pool mapped from the beginning.
    fn record(judge_acknowledgements: bool, input: &str, kinds: &[EventKind<'_>]) -> Recording {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        fs::write(&pool, vec![0; 4096]).expect("a write");
        let model = Config::default();
        let options = RecordOptions {
            model,
            judge_acknowledgements,
            names: None,
            names_max: 1,
        };
        let lines = Lines::new(input.into());
        let mut recorder = Recorder::new(options, folder.path()).with_input(lines);
        let (thread, process, file) = (ThreadId(1), ProcessId(1), FileId(1));
        recorder.new_file(file, &pool).expect("it can be copied");
        let opening = [
            EventKind::ProcessStart {
                process,
                parent: ProcessId(0),
                pid: 1,
                exe: b"program",
            },
            EventKind::ThreadStart {
                thread,
                process,
                tid: 1,
            },
            EventKind::File {
                file,
                path: b"/pm/pool",
                size: 4096,
                reason: PmReason::Glob,
                created: false,
            },
            EventKind::Map {
                addr: AT,
                len: 4096,
                file,
                offset: 0,
                prot: 3,
                flags: 1,
            },
        ];
        for kind in opening.iter().chain(kinds) {
            let event = Event {
                thread,
                pc: TargetAddr(0x40_0000),
                context: ContextId(0),
                kind: kind.clone(),
            };
            recorder.event(&event).expect("it is in order");
        }
        recorder.finish()
    }

    fn store(value: &[u8; 8]) -> EventKind<'_> {
        EventKind::Store(Access {
            addr: AT,
            size: 8,
            bytes: value,
        })
    }

    fn asks(at: u64) -> EventKind<'static> {
        EventKind::Input { fd: 0, at }
    }

    fn prints(fd: i32, size: u64) -> EventKind<'static> {
        EventKind::Output { fd, size }
    }

    fn told(operations: &Operations, recording: &Recording) -> Vec<(u64, String)> {
        let points = 0..recording.points.len() as u32;
        points
            .map(|point| {
                let told = operations.acknowledged(recording, point);
                assert_eq!(told.operations, operations.span(recording, point).from);
                (
                    told.operations,
                    String::from_utf8_lossy(&told.text).into_owned(),
                )
            })
            .collect()
    }

    fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected
            .iter()
            .map(|(n, text)| (*n, (*text).to_owned()))
            .collect()
    }

    /// When the program asks behind a line, that line is over: whether it reads lines, bytes or
    /// blocks. The end of the input is asked for, too.
    #[test]
    fn lines_are_over_when_more_is_asked_for_behind_them() {
        let by_line = [
            asks(0),
            store(&[1; 8]),
            asks(4),
            store(&[2; 8]),
            asks(8),
            asks(8),
            store(&[3; 8]),
        ];
        let by_byte: Vec<EventKind<'_>> = (0..4)
            .map(asks)
            .chain([store(&[1; 8])])
            .chain((4..8).map(asks))
            .chain([store(&[2; 8]), asks(8), store(&[3; 8])])
            .collect();
        let expected = [(0, ""), (1, "i 1\n"), (2, "i 1\ni 2\n"), (2, "i 1\ni 2\n")];
        for events in [&by_line[..], &by_byte] {
            let recording = record(true, "i 1\ni 2\n", events);
            assert!(!recording.reads_ahead);
            let operations = Operations::new(&recording, b"not looked at".to_vec());
            assert!(operations.are_lines());
            assert_eq!(told(&operations, &recording), pairs(&expected));
        }
    }

    /// If all is consumed before the first store, a checker is told the outputs.
    #[test]
    fn a_checker_is_not_told_lines_that_were_only_read() {
        let events = [
            asks(0),
            asks(4),
            asks(8),
            store(&[1; 8]),
            prints(1, 3),
            store(&[2; 8]),
        ];
        let recording = record(true, "i 1\ni 2\n", &events);
        assert!(recording.reads_ahead);
        let operations = Operations::new(&recording, b"ok\n".to_vec());
        let last = recording.points.len() as u32 - 1;
        let told = operations.acknowledged(&recording, last);
        assert_eq!((told.operations, told.text), (1, b"ok\n".to_vec()));
    }

    fn references(outputs: &[&str]) -> References {
        let outputs = outputs.iter().map(|o| o.as_bytes().to_vec()).collect();
        References {
            outputs,
            addresses: false,
            questions: 0,
        }
    }

    /// Events at failure points 0, 1, 2, …, by consumed lines and what recovery prints with
    /// everything surviving.
    fn floors_of(events: &[(Tells, u64, &str)]) -> (Vec<u64>, bool) {
        let references = references(&["", "a\n", "a\nb\n", "a\nb\n", "b\n"]);
        let told: Vec<Told> = events
            .iter()
            .enumerate()
            .map(|(point, (how, consumed, seen))| Told {
                point,
                how: *how,
                consumed: *consumed,
                seen: Outcome {
                    status: crate::outcome::Status::Exit(0),
                    stdout: (*seen).into(),
                    stderr: Vec::new(),
                    checker: None,
                    again: None,
                    broken: Vec::new(),
                },
            })
            .collect();
        floors(&told, &references, events.len() + 1)
    }

    #[test]
    fn asking_acknowledges_what_is_there() {
        use Tells::Asks;
        let in_step = [
            (Asks, 0, ""),
            (Asks, 1, "a\n"),
            (Asks, 2, "a\nb\n"),
            // This line changes nothing.
            (Asks, 3, "a\nb\n"),
            (Asks, 4, "b\n"),
        ];
        assert_eq!(floors_of(&in_step), (vec![0, 1, 2, 2, 4, 4], false));
        // All is read first; two lines are carried out together.
        let ahead = [(Asks, 0, ""), (Asks, 2, ""), (Asks, 4, "")];
        assert_eq!(floors_of(&ahead), (vec![0; 4], true));
        let grouped = [(Asks, 0, ""), (Asks, 1, ""), (Asks, 2, "a\nb\n")];
        assert_eq!(floors_of(&grouped), (vec![0, 0, 2, 2], true));
        // What is there is nothing whole: nobody reads ahead, so it is the operation's fault.
        let torn = [(Asks, 0, ""), (Asks, 1, "?"), (Asks, 2, "a\nb\n")];
        assert_eq!(floors_of(&torn), (vec![0, 1, 2, 2], false));
    }

    #[test]
    fn the_last_line_printed_acknowledges_what_is_there() {
        use Tells::{Asks, Prints};
        // An echo before anything is done, then the promise.
        let promised = [
            (Asks, 0, ""),
            (Prints, 0, ""),
            (Prints, 0, "a\n"),
            (Asks, 1, "a\n"),
        ];
        assert_eq!(floors_of(&promised), (vec![0, 0, 1, 1, 1], false));
        // How far it has come, then the promise.
        let chatty = [
            (Asks, 0, ""),
            (Prints, 0, "a\n"),
            (Prints, 0, "a\n"),
            (Asks, 1, "a\n"),
        ];
        assert_eq!(floors_of(&chatty), (vec![0, 0, 1, 1, 1], false));
        // Who reads all first acknowledges by outputs alone.
        let ahead = [
            (Asks, 0, ""),
            (Asks, 4, ""),
            (Prints, 4, "a\n"),
            (Prints, 4, "a\nb\n"),
        ];
        assert_eq!(floors_of(&ahead), (vec![0, 0, 1, 2, 2], true));
    }

    #[test]
    fn only_what_ends_a_line_is_a_promise() {
        let events = [asks(0), store(&[1; 8]), prints(1, 2), prints(1, 3), asks(2)];
        let recording = record(true, "x\ny\n", &events);
        let operations = Operations::new(&recording, b"> ok\n".to_vec());
        let tells: Vec<Option<Tells>> = (0..recording.points.len())
            .map(|point| operations.tells(&recording.points, point))
            .collect();
        let (asks, prints) = (Some(Tells::Asks), Some(Tells::Prints));
        assert_eq!(tells, [asks, None, prints, asks, None]);
    }

    /// Only what went to standard output acknowledges; but a crash may fall at any output.
    #[test]
    fn outputs_are_over_when_they_are_written() {
        let recording = record(
            true,
            "",
            &[
                store(&[1; 8]),
                prints(1, 3),
                store(&[2; 8]),
                prints(2, 100),
                prints(1, 4),
                store(&[3; 8]),
            ],
        );
        assert_eq!(recording.outputs, 2);
        assert!(recording.input.is_none());
        let operations = Operations::new(&recording, b"ok\nok2\nmore".to_vec());
        assert!(!operations.are_lines());
        let expected = [(1, "ok\n"), (1, "ok\n"), (2, "ok\nok2\n"), (2, "ok\nok2\n")];
        assert_eq!(told(&operations, &recording), pairs(&expected));
        // What was kept of the output may be less.
        let operations = Operations::new(&recording, b"ok".to_vec());
        let texts = told(&operations, &recording)
            .into_iter()
            .map(|(_, text)| text);
        assert!(texts.eq(["ok"; 4].map(str::to_owned)));
    }

    /// If nobody judges them, acknowledgements are worth a crash only while a new store is
    /// uncertain.
    #[test]
    fn acknowledgements_that_nobody_judges_add_few_failure_points() {
        let events = [
            prints(1, 1),
            store(&[1; 8]),
            prints(1, 1),
            prints(1, 1),
            asks(0),
            store(&[2; 8]),
        ];
        let reasons = |judged: bool| -> Vec<Reason> {
            record(judged, "", &events)
                .points
                .iter()
                .map(|p| p.reason)
                .collect()
        };
        assert_eq!(reasons(false), [Reason::Acknowledges, Reason::End]);
        let mut all = vec![Reason::Acknowledges; 4];
        all.push(Reason::End);
        assert_eq!(reasons(true), all);
    }

    /// Nothing was asked for and nothing written: there are no operations.
    #[test]
    fn a_silent_program_has_done_nothing() {
        let recording = record(false, "", &[store(&[1; 8])]);
        let operations = Operations::new(&recording, Vec::new());
        assert_eq!(told(&operations, &recording), pairs(&[(0, "")]));
    }
}
