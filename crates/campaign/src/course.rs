//! How a search went: what was reached when, a line each moment, for whoever draws it.
//!
//! **Purpose.** `plot_data` has the columns of AFL++, and only fuzzing has those. This file has
//! what a [`Snapshot`] has, so every search can keep one, and a page shows all of them alike, also
//! while they go on.
//!
//! **Guarantee.** A line is written at once and whole; one that was cut short by `kill -9` is
//! removed before the next one is added, and is not seen by readers. Reading changes nothing, and
//! never fails for what a line holds: what is no [`Moment`] is left out. The file stays small:
//! moments are close together at the beginning and further apart later ([`is_due`]), so a day takes
//! less than two thousand. That something was found is written down at once.
//!
//! **Deviations.** Figures of coverage begin anew when a search is resumed, because what was
//! reached is known only when it is reached again. The first moment of each run of the tool says so
//! ([`Moment::is_first`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::status::Snapshot;

/// Longer files are not read to their end.
const BYTES_MAX: u64 = 64 << 20;
/// Moments are at least so far apart, unless something was found.
const APART: Duration = Duration::from_millis(200);
/// And at least so much of the time that has passed.
const SHARE: f64 = 1.0 / 200.0;

/// What was reached at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// How long the search had run, without breaks.
    pub seconds: f64,
    /// Executions until then.
    pub executions: u64,
    /// What is counted as progress, by name.
    pub coverage: Vec<(String, u64)>,
    /// Findings by severity, the worst first.
    pub findings: Vec<(String, u64)>,
    /// The tool was started: figures of coverage begin anew.
    #[serde(default, rename = "first", skip_serializing_if = "std::ops::Not::not")]
    pub is_first: bool,
}

/// What the times and executions of snapshots count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The beginning of the search, whoever resumed it.
    Search,
    /// The start of the tool: what earlier runs of it took is added here.
    Run,
}

/// The file, for who searches.
#[derive(Debug)]
pub struct Course {
    file: File,
    end: u64,
    /// What is added to times and executions.
    before: (f64, u64),
    last: Option<Moment>,
}

impl Course {
    /// Opens the file, or begins it.
    pub fn open(path: &Path, clock: Clock) -> io::Result<Course> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let mut text = Vec::new();
        (&file).take(BYTES_MAX).read_to_end(&mut text)?;
        let end = text.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |at| at as u64 + 1);
        let before = match (clock, moments(&text).last()) {
            (Clock::Run, Some(last)) => (last.seconds, last.executions),
            _ => (0.0, 0),
        };
        Ok(Course {
            file,
            end,
            before,
            last: None,
        })
    }

    /// Writes down what was reached, if it is time to. On an error the file is as it was.
    pub fn note(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let moment = self.moment(snapshot);
        match is_due(self.last.as_ref(), &moment) {
            true => self.append(moment),
            false => Ok(()),
        }
    }

    /// Writes down what was reached in the end.
    pub fn note_last(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let moment = self.moment(snapshot);
        match &self.last {
            Some(last) if last.seconds == moment.seconds => Ok(()),
            _ => self.append(moment),
        }
    }

    fn moment(&self, snapshot: &Snapshot) -> Moment {
        let figures = snapshot.coverage.iter();
        Moment {
            seconds: round(self.before.0 + snapshot.elapsed.as_secs_f64()),
            executions: self.before.1 + snapshot.executions,
            coverage: figures.map(|f| (f.name.clone(), f.value)).collect(),
            findings: snapshot.findings.clone(),
            is_first: self.last.is_none(),
        }
    }

    fn append(&mut self, moment: Moment) -> io::Result<()> {
        let mut text = serde_json::to_string(&moment)?;
        text.push('\n');
        // What an earlier writer has left of a line goes.
        if self.file.metadata()?.len() > self.end {
            self.file.set_len(self.end)?;
        }
        self.file
            .write_all_at(text.as_bytes(), self.end)
            .inspect_err(|_| {
                // The error that matters is the first; what is left would be removed as a torn
                // line.
                let _ = self.file.set_len(self.end);
            })?;
        self.end += text.len() as u64;
        self.last = Some(moment);
        Ok(())
    }
}

/// Milliseconds will do.
fn round(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Whether a moment is to be written down after the last one that was.
pub fn is_due(last: Option<&Moment>, moment: &Moment) -> bool {
    let Some(last) = last else {
        return true;
    };
    let apart = APART.as_secs_f64().max(moment.seconds * SHARE);
    moment.findings != last.findings || moment.seconds >= last.seconds + apart
}

/// Reads a course, which may be being written. What is not there is empty.
pub fn read(path: &Path) -> io::Result<Vec<Moment>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(moments(&text))
}

/// The moments of a file. Times do not go back: a search that was killed is taken up again a little
/// before its end.
fn moments(text: &[u8]) -> Vec<Moment> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..whole].split(|byte| *byte == b'\n');
    let mut moments: Vec<Moment> = Vec::new();
    for moment in lines.filter_map(|line| serde_json::from_slice::<Moment>(line).ok()) {
        if !moment.seconds.is_finite() || moment.seconds < 0.0 {
            continue;
        }
        while moments.last().is_some_and(|l| l.seconds > moment.seconds) {
            moments.pop();
        }
        moments.push(moment);
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Figure;
    use std::fs;

    fn snapshot(milliseconds: u64, executions: u64, errors: u64) -> Snapshot {
        Snapshot {
            elapsed: Duration::from_millis(milliseconds),
            executions,
            coverage: vec![Figure {
                name: "PM paths".into(),
                value: executions / 2,
                ..Figure::default()
            }],
            findings: vec![("correctness".into(), errors)],
            ..Snapshot::default()
        }
    }

    fn times(path: &Path) -> Vec<(f64, u64, bool)> {
        let moments = read(path).expect("it can be read").into_iter();
        moments
            .map(|m| (m.seconds, m.executions, m.is_first))
            .collect()
    }

    #[test]
    fn moments_are_kept_as_they_come_and_further_apart_later() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("course");
        assert_eq!(times(&path), []);
        let mut course = Course::open(&path, Clock::Search).expect("it is made");
        for at in [0, 100, 200, 210, 100_000, 100_300, 100_600] {
            course.note(&snapshot(at, at, 0)).expect("it is written");
        }
        // That something was found is not kept waiting.
        course
            .note(&snapshot(100_601, 7, 1))
            .expect("it is written");
        course
            .note_last(&snapshot(100_602, 8, 1))
            .expect("it is written");
        course
            .note_last(&snapshot(100_602, 8, 1))
            .expect("it is there already");
        let seconds: Vec<f64> = times(&path).iter().map(|(s, _, _)| *s).collect();
        assert_eq!(seconds, [0.0, 0.2, 100.0, 100.6, 100.601, 100.602]);
        let last = read(&path)
            .expect("it can be read")
            .pop()
            .expect("there is one");
        assert_eq!(last.coverage, [("PM paths".to_owned(), 4)]);
        assert_eq!(last.findings, [("correctness".to_owned(), 1)]);
        assert!(fs::metadata(&path).expect("it is there").len() < 1000);
    }

    #[test]
    fn a_day_takes_less_than_two_thousand() {
        let mut last = None;
        let mut count = 0;
        for tick in 0..24 * 3600 * 5 {
            let moment = Moment {
                seconds: f64::from(tick) / 5.0,
                ..Moment::default()
            };
            if is_due(last.as_ref(), &moment) {
                count += 1;
                last = Some(moment);
            }
        }
        assert!((1000..2000).contains(&count), "{count}");
    }

    #[test]
    fn a_search_goes_on_behind_what_it_was() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("course");
        let mut course = Course::open(&path, Clock::Run).expect("it is made");
        course.note(&snapshot(1000, 10, 0)).expect("it is written");
        drop(course);
        // The next line was cut short.
        let mut text = fs::read(&path).expect("it is there");
        text.extend(b"{\"seconds\":1.3,\"exec");
        fs::write(&path, text).expect("it can be written");
        assert_eq!(times(&path), [(1.0, 10, true)]);
        let mut course = Course::open(&path, Clock::Run).expect("it is there");
        course.note(&snapshot(500, 4, 0)).expect("it is written");
        assert_eq!(times(&path), [(1.0, 10, true), (1.5, 14, true)]);
        // One whose times are those of the search: it was killed before it could write down how
        // long it had run.
        let mut course = Course::open(&path, Clock::Search).expect("it is there");
        course.note(&snapshot(1200, 12, 0)).expect("it is written");
        assert_eq!(times(&path), [(1.0, 10, true), (1.2, 12, true)]);
    }

    #[test]
    fn what_is_no_moment_is_left_out() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("course");
        let text = "nothing\n{}\n\0\n{\"seconds\":-1,\"executions\":0,\"coverage\":[],\"findings\":[]}\n\
                    {\"seconds\":2,\"executions\":5,\"coverage\":[],\"findings\":[],\"later\":1}\n";
        fs::write(&path, text).expect("it can be written");
        assert_eq!(times(&path), [(2.0, 5, false)]);
    }
}
