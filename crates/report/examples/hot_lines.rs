//! Which ten lines of persistent memory are stored to most often? A whole analysis.
//!
//! It takes events as any analysis does ([`EventSink`]), without the engine or the host, and yields
//! what any analysis yields ([`Outcome`]). `cargo run -p brownout-report --example hot_lines --
//! TRACE` takes a trace of `brownout record`.

use std::collections::{BTreeMap, HashMap};
use std::io;

use brownout_findings::{Analysed, Event as Shown, Finding, Limit, Outcome, Place, Role, Severity};
use brownout_report::{Format, Options, Report, finish, render, suppress};
use brownout_trace::event::{Event, EventKind, FileId};
use brownout_trace::maps::{AddressSpaces, MapFault};
use brownout_trace::{EventSink, Reader};

const LINE: u64 = 64;

#[derive(Default)]
pub(crate) struct HotLines {
    spaces: AddressSpaces,
    files: BTreeMap<FileId, String>,
    /// How often each line of a file was stored to.
    stores: HashMap<(FileId, u64), u64>,
    ended: Option<String>,
}

#[derive(Default, serde::Serialize)]
pub(crate) struct Statistics {
    pub(crate) lines: usize,
}

impl EventSink for HotLines {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.spaces.observe(event).map_err(MapFault::into_error)?;
        if let EventKind::File { file, path, .. } = event.kind {
            self.files
                .insert(file, String::from_utf8_lossy(path).into_owned());
        } else if let EventKind::End { status } = event.kind {
            self.ended = Some(status.to_string());
        } else if let Some(stored) = event.kind.access()
            && !matches!(event.kind, EventKind::Load(_))
        {
            let size = stored.size.into();
            for part in self.spaces.ranges(event.thread, stored.addr, size) {
                for line in part.offset / LINE..(part.offset + part.len).div_ceil(LINE) {
                    *self.stores.entry((part.file, line)).or_default() += 1;
                }
            }
        }
        Ok(())
    }
}

impl HotLines {
    pub(crate) fn finish(self) -> Outcome<Statistics> {
        let mut outcome = Outcome::<Statistics>::default();
        outcome.statistics.lines = self.stores.len();
        let coverage = &mut outcome.coverage;
        if self.ended.is_none() {
            coverage.limit(Limit::Unfinished, "the recording has no end");
        }
        if self.stores.is_empty() {
            coverage.limit(Limit::Untouched, "no persistent memory was touched");
        }
        let mut hottest: Vec<_> = self.stores.into_iter().collect();
        hottest.sort_by_key(|(line, count)| (u64::MAX - count, *line));
        for ((file, line), count) in hottest.into_iter().take(10) {
            let message = format!("line {line} of the file is stored to {count} times");
            let mut finding = Finding::new("hot-line", Severity::Performance, message);
            let mut bytes = Shown::new(Role::Store, "these bytes");
            let place = bytes.place.insert(Place::default());
            place.file = self.files.get(&file).cloned().unwrap_or_default();
            (place.offset, place.size) = (line * LINE, LINE);
            finding.events.push(bytes);
            outcome.findings.push(finding);
        }
        outcome.ended = self.ended;
        outcome
    }
}

pub(crate) fn report(outcome: Outcome<Statistics>) -> Report {
    let mut report = outcome.report(Analysed::by("hot-lines"));
    finish(&mut report, None, None, suppress::today());
    report
}

fn main() -> io::Result<()> {
    let trace = std::env::args_os().nth(1).expect("usage: hot_lines TRACE");
    let mut reader = Reader::<std::fs::File>::open(trace.as_ref()).map_err(io::Error::other)?;
    let mut analysis = HotLines::default();
    while let Some(event) = reader.next().map_err(io::Error::other)? {
        analysis.event(&event)?;
    }
    let (report, options) = (report(analysis.finish()), Options::default());
    render(&report, Format::Terminal, &options, &mut io::stdout())
}
