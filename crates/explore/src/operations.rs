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
