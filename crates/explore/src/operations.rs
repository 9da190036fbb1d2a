//! Operations of the recorded run: how many are over at a failure point, and what recovery prints after each.
//!
//! Operations are the lines of its input, if it reads any: when it asks for the next line, those before are over. Else they are its
//! outputs. What recovery prints after k operations is found out by running the program on the first k lines; by outputs, by
//! running recovery on the state in which the k-th was written, with everything surviving.

use std::fs;
use std::path::Path;

use crate::execution::{Acknowledged, Command};
use crate::options::{Error, Options, io_error};
use crate::oracle::References;
use crate::pool::{Done, Work};
use crate::recording::{FailurePoint, Reason, Recording};
use crate::search::Search;
use crate::view::{Image, Narrowed};

/// With more operations, references come from the recorded run instead of runs of their own.
const REFERENCE_RUNS_MAX: usize = 100;

/// See the module's header.
#[derive(Clone)]
pub struct Operations {
    /// Lines of input, if the program reads them.
    lines: Option<Vec<Vec<u8>>>,
    stdout: Vec<u8>,
}

impl Operations {
    pub fn new(
        options: &Options,
        recording: &Recording,
        stdout: Vec<u8>,
    ) -> Result<Operations, Error> {
        let mut lines = None;
        if let Some(path) = &options.program.stdin
            && recording.asked > 0
        {
            let text = fs::read(path).map_err(io_error("cannot read the standard input"))?;
            let split = text.split_inclusive(|byte| *byte == b'\n');
            let split: Vec<Vec<u8>> = split.map(<[u8]>::to_vec).collect();
            lines = (!split.is_empty()).then_some(split);
        }
        Ok(Operations { lines, stdout })
    }

    /// Whether operations are lines of input.
    pub fn are_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// How many are over at a failure point.
    pub fn done(&self, recording: &Recording, point: u32) -> u64 {
        let point = &recording.points[point as usize];
        match &self.lines {
            Some(lines) => point.asked.saturating_sub(1).min(lines.len() as u64),
            None => point.outputs,
        }
    }

    /// What a checker is told.
    pub fn acknowledged(&self, recording: &Recording, point: u32) -> Acknowledged {
        let operations = self.done(recording, point);
        let text = match &self.lines {
            Some(lines) => lines[..operations as usize].concat(),
            None => {
                let bytes = recording.points[point as usize].output_bytes as usize;
                self.stdout[..bytes.min(self.stdout.len())].to_vec()
            }
        };
        Acknowledged { operations, text }
    }

    /// What recovery prints after each number of operations; `None` if there are none, or the search was stopped.
    pub fn references(
        &self,
        search: &mut Search<'_>,
        program: &Command,
        initial: &Image,
        scratch: &Path,
    ) -> Result<Option<References>, Error> {
        match &self.lines {
            Some(lines) => by_lines(search, program, lines, initial, scratch),
            None => by_outputs(search, initial),
        }
    }
}

/// What recovery prints after the first k lines of input, for each k.
fn by_lines(
    search: &mut Search<'_>,
    program: &Command,
    lines: &[Vec<u8>],
    initial: &Image,
    scratch: &Path,
) -> Result<Option<References>, Error> {
    if lines.len() > REFERENCE_RUNS_MAX {
        return by_points(search, initial, lines.len(), |point| {
            point.asked.checked_sub(1)
        });
    }
    let mut works = Vec::new();
    for k in 0..=lines.len() {
        let input = scratch.join(format!("reference-stdin-{k}"));
        fs::write(&input, lines[..k].concat()).map_err(io_error("cannot write an input"))?;
        let first = Command {
            stdin: Some(input),
            ..program.clone()
        };
        works.push(Work::Refer {
            image: initial.clone(),
            first,
        });
    }
    let Some(done) = search.perform_all(works)? else {
        return Ok(None);
    };
    let mut outputs: Vec<Vec<u8>> = Vec::new();
    for done in done {
        if let Done::Recovered(execution) = done {
            outputs.push(execution?.outcome.stdout);
        }
    }
    // If already the state before the first operation prints something else when the program did not end in order, the output tells
    // of the crash itself. Then the recorded run is the measure.
    let done = |point: &FailurePoint| point.asked.checked_sub(1);
    let before = by_points(search, initial, 0, done)?;
    if let Some(before) = before
        && before.outputs.first() != outputs.first()
        && let Some(in_run) = by_points(search, initial, lines.len(), done)?
    {
        search.notes.insert(
            "recovery prints something else after an orderly end, so it is compared with states of the recorded run".into(),
        );
        return Ok(Some(in_run));
    }
    Ok(Some(References { outputs }))
}

/// What recovery prints after each output, if everything survives.
fn by_outputs(search: &mut Search<'_>, initial: &Image) -> Result<Option<References>, Error> {
    let count = search.layers[0].recording.outputs as usize;
    if count == 0 {
        return Ok(None);
    }
    by_points(search, initial, count, |point| Some(point.outputs))
}

/// What recovery prints where the recorded run has just completed k operations, for each k; and at the end.
fn by_points(
    search: &mut Search<'_>,
    initial: &Image,
    count: usize,
    done: impl Fn(&FailurePoint) -> Option<u64>,
) -> Result<Option<References>, Error> {
    let mut outputs = Vec::new();
    let recording = &search.layers[0].recording;
    let at: Vec<Option<u32>> = (0..=count as u64)
        .map(|k| {
            let is_there =
                |p: &FailurePoint| p.reason == Reason::Acknowledges && done(p) == Some(k);
            recording.points.iter().position(is_there).map(|i| i as u32)
        })
        .collect();
    let last = recording.points.len() as u32 - 1;
    for (k, point) in at.into_iter().enumerate() {
        let image = match point {
            None if k == 0 => {
                let Some(execution) = search.recover(initial, Acknowledged::default(), false)?
                else {
                    return Ok(None);
                };
                outputs.push(execution.outcome.stdout);
                continue;
            }
            point => newest_at(search, point.unwrap_or(last)),
        };
        let Some(outcome) = search.evaluate(0, &image)? else {
            return Ok(None);
        };
        outputs.push(search.outcomes[outcome as usize].stdout.clone());
    }
    let image = newest_at(search, last);
    let Some(outcome) = search.evaluate(0, &image)? else {
        return Ok(None);
    };
    outputs.push(search.outcomes[outcome as usize].stdout.clone());
    Ok(Some(References { outputs }))
}

fn newest_at(search: &Search<'_>, point: u32) -> Image {
    let files = &search.layers[0].recording.points[point as usize].files;
    Image::newest(&search.view(0, point), &Narrowed::new(), files)
}

#[cfg(test)]
mod tests {
    use brownout_host::EventSink;
    use brownout_model::Config;
    use brownout_trace::event::{
        Access, ContextId, Event, EventKind, FileId, PmReason, ProcessId, TargetAddr, ThreadId,
    };

    use crate::recording::{RecordOptions, Recorder};

    use super::*;

    const AT: TargetAddr = TargetAddr(0x10000);

    /// Feeds what a program did to the world; it has one pool mapped from the beginning.
    fn record(judge_acknowledgements: bool, kinds: &[EventKind<'_>]) -> Recording {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        fs::write(&pool, vec![0; 4096]).expect("a write");
        let model = Config::default();
        let options = RecordOptions {
            model,
            judge_acknowledgements,
        };
        let mut recorder = Recorder::new(options, folder.path());
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

    const ASKS: EventKind<'_> = EventKind::Input { fd: 0 };

    fn prints(fd: i32, size: u64) -> EventKind<'static> {
        EventKind::Output { fd, size }
    }

    fn told(operations: &Operations, recording: &Recording) -> Vec<(u64, String)> {
        let points = 0..recording.points.len() as u32;
        points
            .map(|point| {
                let told = operations.acknowledged(recording, point);
                assert_eq!(told.operations, operations.done(recording, point));
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

    /// When the next line is asked for, those before are over. The end of the input is asked for, too.
    #[test]
    fn lines_are_over_when_the_next_is_asked_for() {
        let recording = record(
            true,
            &[
                ASKS,
                store(&[1; 8]),
                ASKS,
                store(&[2; 8]),
                ASKS,
                ASKS,
                store(&[3; 8]),
            ],
        );
        assert_eq!(recording.asked, 4);
        let lines = ["i 1\n", "i 2\n"].map(|line| line.as_bytes().to_vec());
        let operations = Operations {
            lines: Some(lines.into()),
            stdout: b"not looked at".to_vec(),
        };
        assert!(operations.are_lines());
        let expected = [
            (0, ""),
            (1, "i 1\n"),
            (2, "i 1\ni 2\n"),
            (2, "i 1\ni 2\n"),
            (2, "i 1\ni 2\n"),
        ];
        assert_eq!(told(&operations, &recording), pairs(&expected));
    }

    /// Only what went to standard output acknowledges; but a crash may fall at any output.
    #[test]
    fn outputs_are_over_when_they_are_written() {
        let recording = record(
            true,
            &[
                store(&[1; 8]),
                prints(1, 3),
                store(&[2; 8]),
                prints(2, 100),
                prints(1, 4),
                store(&[3; 8]),
            ],
        );
        assert_eq!((recording.outputs, recording.asked), (2, 0));
        let operations = Operations {
            lines: None,
            stdout: b"ok\nok2\nmore".to_vec(),
        };
        assert!(!operations.are_lines());
        let expected = [(1, "ok\n"), (1, "ok\n"), (2, "ok\nok2\n"), (2, "ok\nok2\n")];
        assert_eq!(told(&operations, &recording), pairs(&expected));
        // What was kept of the output may be less.
        let operations = Operations {
            lines: None,
            stdout: b"ok".to_vec(),
        };
        let texts = told(&operations, &recording)
            .into_iter()
            .map(|(_, text)| text);
        assert!(texts.eq(["ok"; 4].map(str::to_owned)));
    }

    /// If nobody judges them, acknowledgements are worth a crash only while a new store is uncertain.
    #[test]
    fn acknowledgements_that_nobody_judges_add_few_failure_points() {
        let events = [
            prints(1, 1),
            store(&[1; 8]),
            prints(1, 1),
            prints(1, 1),
            ASKS,
            store(&[2; 8]),
        ];
        let reasons = |judged: bool| -> Vec<Reason> {
            record(judged, &events)
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
        let recording = record(false, &[store(&[1; 8])]);
        let operations = Operations {
            lines: None,
            stdout: Vec::new(),
        };
        assert_eq!(told(&operations, &recording), pairs(&[(0, "")]));
    }
}
