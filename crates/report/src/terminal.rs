//! For people: each finding as a numbered story with source lines, after the manner of miri and
//! rustc.
//!
//! **Guarantee.** Correctness comes first, and the last line is one that scripts can grep:
//! `brownout: 2 correctness and 3 performance findings (1 suppressed, 4 known)`, `brownout: no
//! findings`, `brownout: no persistent memory was touched; see --pm`, or `brownout: incomplete: …`.
//! "No findings" stands there only if everything was looked at, but for what the user has accepted,
//! which is named. Text from the program cannot move the cursor, change colours or break a line.
//!
//! If there is more than one place to look at, a table of them comes before that line, and then the
//! place to begin with.
//!
//! **Deviations.** What is too much to read is shortened, and said to be: warnings about what
//! libpmemobj and its kin do inside are one line beside findings of the program's own; of findings
//! that are alike (one rule, one function) the first is told and the others are listed,
//! [`Options::limit`] and [`Options::rows_max`] bound both, stacks end at `main`, and a tail that
//! an earlier event of the finding has shown is only counted.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use brownout_findings::numbers::{counted, grouped};
use brownout_findings::{Event, Finding, Frame, Limit, Report, Severity, Verdict, blame};

use crate::options::Options;
use crate::source::Sources;
use crate::text::{base_name, visible};
use crate::{order, site, timeline};

/// Writes the report.
pub fn render(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(options, true);
    let findings = order::sorted(&report.findings);
    let kinds = order::alike(&findings);
    let (kinds, inside) = match options.limit_per_kind {
        Some(_) => order::folded(kinds),
        None => (kinds, Vec::new()),
    };
    let mut in_full = 0;
    for kind in &kinds {
        let room = options.limit.unwrap_or(usize::MAX) - in_full;
        if room == 0 {
            break;
        }
        let shown = kind
            .len()
            .min(room)
            .min(options.limit_per_kind.unwrap_or(usize::MAX));
        for finding in &kind[..shown] {
            page.finding(finding);
        }
        page.more_of_kind(kind[0], &kind[shown..]);
        in_full += shown;
        // One piece at a time, so that memory does not grow with the report.
        out.write_all(page.take().as_bytes())?;
    }
    page.inside(&inside);
    if kinds.len() > 1 {
        page.table(&order::by_importance(&kinds), findings.len() - inside.len());
    }
    for limitation in report.coverage.told() {
        let label = format!("limit[{}]", limitation.kind.name());
        let accepted = match limitation.accepted {
            true => " (accepted)",
            false => "",
        };
        let text = format!("{}{accepted}", limitation.text);
        page.labelled(&label, WARNING, &text, "");
    }
    for note in &report.notes {
        page.labelled("note", NOTE, note, "");
    }
    if let Some(ended) = report
        .analysed
        .ended
        .as_ref()
        .filter(|e| *e != "exit code 0")
    {
        page.labelled("note", NOTE, &format!("the program ended with {ended}"), "");
    }
    out.write_all(page.take().as_bytes())?;
    writeln!(out, "{}", last_line(report))
}

/// The line that every report ends with.
pub fn last_line(report: &Report) -> String {
    let of = |severity| {
        let all = report.findings.iter();
        grouped(all.filter(|finding| finding.severity == severity).count() as u64)
    };
    let mut counts = format!(
        "{} correctness and {} performance findings",
        of(Severity::Correctness),
        of(Severity::Performance)
    );
    match of(Severity::Warning).as_str() {
        "0" => {}
        "1" => counts += ", and 1 warning",
        n => counts += &format!(", and {n} warnings"),
    }
    let left_out: Vec<String> = [(report.suppressed, "suppressed"), (report.known, "known")]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{} {word}", grouped(number)))
        .collect();
    let left_out = match left_out.is_empty() {
        true => String::new(),
        false => format!(" ({})", left_out.join(", ")),
    };
    let nothing = report.findings.is_empty();
    let names = |limits: Vec<Limit>| {
        let names: Vec<&str> = limits.into_iter().map(Limit::name).collect();
        names.join(", ")
    };
    let accepted = match names(report.coverage.accepted()) {
        names if names.is_empty() => names,
        names => format!("; accepted: {names}"),
    };
    let open = names(report.coverage.open());
    match report.verdict {
        Verdict::NothingChecked if nothing => {
            "brownout: no persistent memory was touched; see --pm".into()
        }
        Verdict::Incomplete => {
            let missing = match open.is_empty() {
                true => "the rest is unknown".into(),
                false => format!("not all was looked at ({open})"),
            };
            format!("brownout: incomplete: {counts}{left_out}; {missing}{accepted}")
        }
        _ if nothing => format!("brownout: no findings{left_out}{accepted}"),
        _ if !open.is_empty() => {
            format!("brownout: {counts}{left_out}; not all was looked at ({open}){accepted}")
        }
        _ => format!("brownout: {counts}{left_out}{accepted}"),
    }
}

/// One finding without colours and source lines, for other forms.
pub(crate) fn plain_finding(finding: &Finding, options: &Options) -> String {
    let mut page = Page::new(options, false);
    page.colour = false;
    page.finding(finding);
    page.take().trim_end().to_owned()
}

/// One finding on one line, without colours.
pub(crate) fn one_line(finding: &Finding, options: &Options) -> String {
    let mut line = format!(
        "{}[{}]",
        level(finding.severity),
        visible(finding.rule.as_str())
    );
    if let Some(frame) = site::of_finding(finding) {
        let _ = write!(line, " {}", located(frame, options, false));
    }
    line
}

/// `error` or `warning`.
pub(crate) fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Correctness => "error",
        Severity::Warning | Severity::Performance => "warning",
    }
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const BOLD: Style = Style::new().bold();
const GUTTER: Style = AnsiColor::Blue.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();
const NOTE: Style = AnsiColor::Green.on_default().bold();
const DIM: Style = Style::new().dimmed();

fn level_style(severity: Severity) -> Style {
    match severity {
        Severity::Correctness => ERROR,
        Severity::Warning | Severity::Performance => WARNING,
    }
}

/// `list.c:42:9 in push`.
fn located(frame: &Frame, options: &Options, column: bool) -> String {
    let place = site::place(frame, options.folder.as_deref(), column);
    match &frame.function {
        Some(function) => format!("{place} in {}", visible(function)),
        None => place,
    }
}

/// `push (list.c:42)`, `push (libx.so+0x12)`, `libx.so+0x12`.
fn short(frame: &Frame, options: &Options) -> String {
    let place = site::place(frame, options.folder.as_deref(), false);
    match &frame.function {
        Some(function) => format!("{} ({place})", visible(function)),
        None => place,
    }
}

/// As many programs and tests are named under a finding, and so many characters of each one's
/// command line.
const ORIGINS_MAX: usize = 3;
const COMMAND_MAX: usize = 120;

/// Names of bytes are cut to so many characters.
const NAME_MAX: usize = 80;

/// A word as a shell would have to read it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Text under construction. Writing to it cannot fail, hence the `let _`.
struct Page<'a> {
    text: String,
    options: &'a Options,
    colour: bool,
    excerpts: bool,
    /// Of the mark under a source line.
    mark: Style,
    sources: Sources,
}

impl<'a> Page<'a> {
    fn new(options: &'a Options, excerpts: bool) -> Page<'a> {
        Page {
            text: String::new(),
            options,
            colour: options.colour,
            excerpts,
            mark: ERROR,
            sources: Sources::new(options.folder.as_deref()),
        }
    }

    fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The text in a style. It must be harmless already.
    fn styled(&mut self, style: Style, text: &str) {
        let _ = match self.colour {
            true => write!(self.text, "{style}{text}{style:#}"),
            false => write!(self.text, "{text}"),
        };
    }

    fn labelled(&mut self, label: &str, style: Style, text: &str, indent: &str) {
        self.text += indent;
        self.styled(style, label);
        let _ = writeln!(self.text, ": {}", visible(text));
    }

    /// Warnings about what libraries do inside, in one line.
    fn inside(&mut self, findings: &[&Finding]) {
        if findings.is_empty() {
            return;
        }
        let mut libraries: Vec<&str> = Vec::new();
        for finding in findings {
            let stack = finding.events.first().map_or(&[][..], |e| &e.stack);
            let modules = stack.iter().filter_map(|frame| frame.module.as_deref());
            // Of its kin, the one that the program calls: others act for it.
            let library = modules
                .map(base_name)
                .rfind(|name| name.starts_with("libpmem"));
            let library =
                library.map_or("a library", |name| name.split(".so").next().unwrap_or(name));
            if !libraries.contains(&library) {
                libraries.push(library);
            }
        }
        let text = format!(
            "{} about what {} does inside, which its user cannot change ({} shows them)",
            counted(findings.len() as u64, "finding"),
            libraries.join(" and "),
            self.options.show_all
        );
        self.labelled("warning", WARNING, &text, "");
        self.text.push('\n');
    }

    /// The others of a kind, a line each.
    fn more_of_kind(&mut self, first: &Finding, more: &[&Finding]) {
        if more.is_empty() {
            return;
        }
        let function = site::of_finding(first).and_then(|frame| frame.function.as_deref());
        let place = match function {
            Some(function) => format!(" in {}", visible(function)),
            None => String::new(),
        };
        let _ = writeln!(
            self.text,
            "{} more of this kind{place} ({} shows them in full):",
            grouped(more.len() as u64),
            visible(&self.options.show_all)
        );
        for finding in more.iter().take(self.options.rows_max) {
            let _ = write!(self.text, "  {} ", visible(&finding.fingerprint));
            if let Some((stack, at)) = shown_stack(finding) {
                self.text += &site::place(&stack[at], self.options.folder.as_deref(), false);
                if let Some(caller) = stack.get(at + 1) {
                    let _ = write!(self.text, ", by {}", short(caller, self.options));
                }
            }
            if finding.message != first.message {
                let _ = write!(self.text, ": {}", visible(&finding.message));
            }
            if finding.count > 1 {
                let _ = write!(self.text, ", seen {}", counted(finding.count, "time"));
            }
            self.text.push('\n');
        }
        self.rows_left_out(more.len());
        self.text.push('\n');
    }

    fn rows_left_out(&mut self, all: usize) {
        let left_out = all.saturating_sub(self.options.rows_max);
        if left_out > 0 {
            let _ = writeln!(self.text, "  … {} more", grouped(left_out as u64));
        }
    }

    /// Where there are findings, a line a kind, and where to begin.
    fn table(&mut self, kinds: &[&[&Finding]], findings: usize) {
        let heads = ["rule", "place", "findings", "seen", "worst"];
        let cells = |kind: &&[&Finding]| {
            let frame = site::of_finding(kind[0]);
            let place = frame.map_or("an unknown place".into(), |frame| {
                let function = frame.function.as_deref();
                let place = visible(&blame::spoken(frame)).into_owned();
                match function.filter(|_| frame.line.is_some()) {
                    Some(function) => format!("{place} in {}", visible(function)),
                    None => place,
                }
            });
            let seen = kind.iter().map(|finding| finding.count).sum();
            [
                visible(kind[0].rule.as_str()).into_owned(),
                shortened(&place, CELL_MAX),
                grouped(kind.len() as u64),
                grouped(seen),
                shortened(&visible(&worst(kind).message), CELL_MAX),
            ]
        };
        let rows: Vec<[String; 5]> = kinds
            .iter()
            .take(self.options.rows_max.max(1))
            .map(cells)
            .collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heads[column].len()]).max().unwrap_or(0)
        };
        let widths = [0, 1, 2, 3].map(width);
        let line = |cells: [&str; 5]| {
            let [rule, place, findings, seen, worst] = cells;
            let [a, b, c, d] = widths;
            format!("  {rule:a$}  {place:b$}  {findings:>c$}  {seen:>d$}  {worst}")
        };
        let _ = writeln!(
            self.text,
            "{} in {}:\n",
            counted(findings as u64, "finding"),
            counted(kinds.len() as u64, "place"),
        );
        self.styled(BOLD, &line(heads));
        self.text.push('\n');
        for row in &rows {
            self.text += &line([&row[0], &row[1], &row[2], &row[3], &row[4]]);
            self.text.push('\n');
        }
        self.rows_left_out(kinds.len());
        let first = kinds[0][0];
        let place = rows[0][1].clone();
        let what = match first.help.first() {
            Some(help) => help.clone(),
            None => first.message.clone(),
        };
        self.text.push('\n');
        self.labelled("look first", HELP, &format!("at {place}: {what}"), "");
        self.text.push('\n');
    }

    fn finding(&mut self, finding: &Finding) {
        let head = format!(
            "{}[{}]",
            level(finding.severity),
            visible(finding.rule.as_str())
        );
        self.mark = level_style(finding.severity);
        self.styled(self.mark, &head);
        // What is about a crash says where in its own words.
        let place = match &finding.crash_point {
            None => site::of_finding(finding).map(blame::spoken),
            Some(_) => None,
        };
        let message = match place {
            Some(place) => format!(": {}: {}", visible(&place), visible(&finding.message)),
            None => format!(": {}", visible(&finding.message)),
        };
        self.styled(BOLD, &message);
        self.text.push('\n');

        let events: Vec<&Event> = finding.all_events().collect();
        let first_thread = events.iter().find_map(|event| event.thread);
        let threads_differ = events
            .iter()
            .any(|event| event.thread.is_some() && event.thread != first_thread);
        if let Some(lines) = timeline::of(finding, &events) {
            for line in lines {
                let _ = writeln!(self.text, "  {}", visible(&line));
            }
        }
        for at in 0..events.len() {
            self.event(&events, at, threads_differ);
        }
        for help in &finding.help {
            self.labelled("help", HELP, help, "  ");
        }
        for note in &finding.notes {
            self.labelled("note", NOTE, note, "  ");
        }
        if finding.count > 1 {
            let _ = writeln!(self.text, "  = seen {}", counted(finding.count, "time"));
        }
        self.origins(finding);
        if finding.rule.built_in().is_some() {
            let _ = writeln!(self.text, "  = explain: brownout explain {}", finding.rule);
        }
        if let Some(reproduction) = &finding.reproduction {
            let _ = writeln!(
                self.text,
                "  = natively: {}",
                visible(&reproduction.command)
            );
            let _ = writeln!(self.text, "  = debugger: {}", visible(&reproduction.gdb));
        }
        if let Some(replay) = &finding.replay {
            let _ = writeln!(self.text, "  = replay: {}", visible(&replay.command));
        }
        if !finding.fingerprint.is_empty() {
            let _ = writeln!(
                self.text,
                "  = fingerprint: {}",
                visible(&finding.fingerprint)
            );
        }
        self.text.push('\n');
    }

    /// In which programs and tests it was seen.
    fn origins(&mut self, finding: &Finding) {
        let shown = match self.options.limit_per_kind {
            None => finding.origins.len(),
            Some(_) => finding.origins.len().min(ORIGINS_MAX),
        };
        for origin in &finding.origins[..shown] {
            let command: Vec<String> = origin.command.iter().map(|word| quoted(word)).collect();
            let command = shortened(&visible(&command.join(" ")), COMMAND_MAX);
            let line = match (&origin.test, &origin.runner) {
                (Some(test), Some(runner)) => {
                    format!("test: {} ({}): {command}", visible(test), visible(runner))
                }
                (Some(test), None) => format!("test: {}: {command}", visible(test)),
                (None, _) => match origin.pid {
                    Some(pid) => format!("program: {command} (process {pid})"),
                    None => format!("program: {command}"),
                },
            };
            let _ = writeln!(self.text, "  = {}", line.trim_end_matches([' ', ':']));
        }
        let left_out = finding.origins.len() - shown;
        if left_out > 0 {
            let more = counted(left_out as u64, "more program");
            let _ = writeln!(self.text, "  = {more}");
        }
    }

    fn event(&mut self, events: &[&Event], at: usize, threads_differ: bool) {
        let event = events[at];
        let mut line = format!("({}) {}", at + 1, visible(&event.text));
        if let Some(place) = &event.place {
            let file = visible(base_name(&place.file));
            let end = place.offset.saturating_add(place.size);
            let name = match &place.name {
                Some(name) => format!("{}, ", visible(&shortened(name, NAME_MAX))),
                None => String::new(),
            };
            let _ = write!(line, " [{name}{file}+{:#x}..{end:#x}]", place.offset);
        }
        if let Some(thread) = event.thread.filter(|_| threads_differ) {
            let _ = write!(line, " [thread {thread}]");
        }
        let _ = writeln!(self.text, "  {line}");

        let stack = site::inside_main(&event.stack);
        let Some(site_at) = site::site(stack) else {
            return;
        };
        self.frames("in", &stack[..site_at]);
        let frame = &stack[site_at];
        self.text += "     ";
        self.styled(GUTTER, "-->");
        let _ = writeln!(self.text, " {}", located(frame, self.options, true));
        let seen = events[..at].iter().any(|earlier| {
            let stack = site::inside_main(&earlier.stack);
            site::site(stack).is_some_and(|at| same_place(&stack[at], frame))
        });
        if self.excerpts && !seen {
            self.excerpt(frame);
        }
        self.tail(events, at, &stack[site_at + 1..]);
    }

    fn frame(&mut self, word: &str, frame: &Frame) {
        let text = format!("{word} {}", short(frame, self.options));
        self.text += "      ";
        self.styled(DIM, &text);
        self.text.push('\n');
    }

    fn frames(&mut self, word: &str, frames: &[Frame]) {
        let shown = frames.len().min(self.options.frames_max);
        // Addresses in a library without symbols say where, once; the rest of them say how deep.
        let nameless = |frame: &Frame| frame.function.is_none() && frame.line.is_none();
        for run in frames[..shown].chunk_by(|a, b| {
            nameless(a) && nameless(b) && a.module == b.module && a.module.is_some()
        }) {
            self.frame(word, &run[0]);
            let folded = &run[1..];
            match folded {
                [] => {}
                [only] => self.frame(word, only),
                _ => {
                    let text = format!("{} in it", counted(folded.len() as u64, "more frame"));
                    let _ = writeln!(self.text, "      … {text}");
                }
            }
        }
        let hidden = frames.len() - shown;
        if hidden > 0 {
            let _ = writeln!(
                self.text,
                "      … {} ({} shows them)",
                counted(hidden as u64, "more frame"),
                visible(&self.options.show_all)
            );
        }
    }

    /// The callers, as far as no earlier event has shown them.
    fn tail(&mut self, events: &[&Event], at: usize, callers: &[Frame]) {
        let (shared, with) = events[..at]
            .iter()
            .enumerate()
            .map(|(number, earlier)| {
                let other = site::inside_main(&earlier.stack);
                let below = site::site(other).map_or(&other[..0], |site| &other[site + 1..]);
                (shared_tail(callers, below), number + 1)
            })
            // The first of equals is the one to point at.
            .max_by_key(|(shared, number)| (*shared, usize::MAX - number))
            .filter(|(shared, _)| *shared > 1)
            .unwrap_or((0, 0));
        self.frames("by", &callers[..callers.len() - shared]);
        if shared > 0 {
            let _ = writeln!(
                self.text,
                "      … {} as in ({with})",
                counted(shared as u64, "frame")
            );
        }
    }

    fn excerpt(&mut self, frame: &Frame) {
        let (Some(path), Some(number)) = (&frame.file, frame.line) else {
            return;
        };
        let Some(file) = self.sources.file(path) else {
            return;
        };
        let lines = file.excerpt(number, frame.column);
        let newer = self.sources.is_newer(&file, frame.module.as_deref());
        let Some(last) = lines.last() else {
            let text = format!("the file has no line {number}: it has changed since the build");
            self.gutter_note(5, &text);
            return;
        };
        let width = last.number.to_string().len().max(5);
        self.gutter(width, "");
        self.text.push('\n');
        for line in &lines {
            self.gutter(width, &line.number.to_string());
            let _ = match line.text.is_empty() {
                true => writeln!(self.text),
                false => writeln!(self.text, " {}", line.text),
            };
            if let Some(mark) = line.mark {
                self.gutter(width, "");
                let _ = write!(self.text, " {:mark$}", "");
                self.styled(self.mark, "^");
                self.text.push('\n');
            }
        }
        match newer {
            true => self.gutter_note(
                width,
                "the file is newer than the program: lines may have moved",
            ),
            false => {
                self.gutter(width, "");
                self.text.push('\n');
            }
        }
    }

    fn gutter(&mut self, width: usize, number: &str) {
        self.styled(GUTTER, &format!("{number:>width$} |"));
    }

    fn gutter_note(&mut self, width: usize, text: &str) {
        self.styled(GUTTER, &format!("{:>width$} =", ""));
        let _ = writeln!(self.text, " {text}");
    }
}

/// Widest cell of the table that holds text.
const CELL_MAX: usize = 60;

fn shortened(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The finding of a kind that concerns the most bytes, or else was seen most often.
fn worst<'a>(kind: &[&'a Finding]) -> &'a Finding {
    let weight = |finding: &&Finding| {
        let bytes = finding.all_events().find_map(|event| event.place.as_ref());
        (bytes.map_or(0, |place| place.size), finding.count)
    };
    let mut worst = kind[0];
    for finding in kind {
        if weight(finding) > weight(&worst) {
            worst = finding;
        }
    }
    worst
}

/// The stack that stands for a finding, up to `main`, and which frame of it.
fn shown_stack(finding: &Finding) -> Option<(&[Frame], usize)> {
    finding.all_events().find_map(|event| {
        let stack = site::inside_main(&event.stack);
        Some((stack, site::site(stack)?))
    })
}

fn same_place(a: &Frame, b: &Frame) -> bool {
    a.file.is_some() && (&a.file, a.line, a.column) == (&b.file, b.line, b.column)
}

/// How many frames two stacks have in common at their outer ends.
fn shared_tail(a: &[Frame], b: &[Frame]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take_while(|(a, b)| a == b).count()
}
