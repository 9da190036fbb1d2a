//! What is shown while a search goes on: a screen on a terminal, a line now and then in a log.
//!
//! **Purpose.** A [`Snapshot`] is plain data. [`screen()`] and [`line()`] make text of it and
//! depend on nothing else; [`Screen`] and [`Log`] write that text, not too often, and [`Display`]
//! picks one of them. [`History`] and [`Speed`] collect what a snapshot needs from the past.
//!
//! **Guarantee.** A screen has at most the rows and columns that it was asked for; 80 by 24 hold
//! all that is in it, and what is left out is counted. No text from outside (names of programs, of
//! findings) reaches the terminal with control characters in it. The terminal's screen and cursor
//! are as before when a [`Screen`] is dropped, also by a panic. A screen is drawn at most five
//! times a second, by one write, so that it does not flicker. The intervals between lines in a log
//! grow with the time that has passed; a new finding is told at once.
//!
//! There is no library for terminals behind it: all that is used are seven control sequences that
//! every terminal since the VT220 has.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a search is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It prepares.
    Starting,
    /// It searches.
    #[default]
    Running,
    /// It waits for the user.
    Paused,
    /// It has been asked to end, and is about to.
    Stopping,
}

impl Phase {
    fn text(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Stopping => "stopping",
        }
    }
}

/// A search at one moment. What is `None` is not shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Who searches: `brownout fuzz`.
    pub title: String,
    /// In what: the program and its arguments.
    pub subject: String,
    /// What it is doing.
    pub phase: Phase,
    /// How long the campaign has run, without pauses.
    pub elapsed: Duration,
    /// How much time it has left.
    pub time_left: Option<Duration>,
    /// How many executions it has left.
    pub executions_left: Option<u64>,
    /// Executions so far.
    pub executions: u64,
    /// Executions a second, lately ([`Speed::now`]).
    pub per_second_now: f64,
    /// Executions a second, over all of the time.
    pub per_second_overall: f64,
    /// How many workers there are.
    pub workers: usize,
    /// What is counted as progress: PM paths, edges, situations…
    pub coverage: Vec<Figure>,
    /// How long ago something new was found.
    pub since_new: Option<Duration>,
    /// What waits to be worked on.
    pub queue: Option<Queue>,
    /// Length of the longest chain of images.
    pub tree_depth: Option<u64>,
    /// How much of the behaviour repeats, of 100.
    pub stability: Option<f64>,
    /// How many findings there are of each severity, the worst first.
    pub findings: Vec<(String, u64)>,
    /// Who has had how much of the work, of 100.
    pub activities: Vec<(String, f64)>,
    /// What happened lately, the newest last: findings, workers that ended, a full disk.
    pub notes: Vec<String>,
}

/// Cases that are kept, to be changed further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// All of them.
    pub cases: u64,
    /// Those that were not worked on yet.
    pub pending: u64,
    /// The favoured among these.
    pub pending_favoured: u64,
}

/// A named number, and what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// `PM paths`.
    pub name: String,
    /// What it is now.
    pub value: u64,
    /// What it was.
    pub history: History,
}

/// A number over time, in a bounded number of equal steps. When these are used up, each two become
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    step: Duration,
    /// The last value of each step.
    values: Vec<u64>,
}

/// How many steps a history has at most.
const STEPS_MAX: usize = 64;

impl Default for History {
    fn default() -> History {
        History {
            step: Duration::from_secs(1),
            values: Vec::new(),
        }
    }
}

impl History {
    /// Notes what the number is at a time. Times do not go back.
    pub fn record(&mut self, elapsed: Duration, value: u64) {
        let mut at = (elapsed.as_nanos() / self.step.as_nanos().max(1)) as usize;
        while at >= STEPS_MAX {
            let pairs = self.values.chunks(2);
            self.values = pairs.map(|pair| pair[pair.len() - 1]).collect();
            self.step *= 2;
            at /= 2;
        }
        // Where nothing was recorded, it was what it was before.
        let before = self.values.last().copied().unwrap_or(0);
        if self.values.len() <= at {
            self.values.resize(at, before);
            self.values.push(value);
        } else {
            self.values.truncate(at + 1);
            self.values[at] = value;
        }
    }

    /// How long a step is now.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// The value at the end of each step.
    pub fn values(&self) -> &[u64] {
        &self.values
    }
}

/// How fast a number grows.
#[derive(Clone, Debug, Default)]
pub struct Speed {
    /// When it was what; the oldest is at most a minute old, or the only one before that.
    points: std::collections::VecDeque<(Duration, u64)>,
}

impl Speed {
    /// Notes what the number is at a time. More than ten times a second makes no difference.
    pub fn record(&mut self, now: Duration, count: u64) {
        let close = Duration::from_millis(100);
        // The last point is moved as long as it is close to the one before.
        if let [.., before, last] = self.points.make_contiguous()
            && last.0 < before.0 + close
        {
            self.points.pop_back();
        }
        self.points.push_back((now, count));
        let minute = Duration::from_secs(60);
        while self.points.len() > 2 && self.points[1].0 + minute <= now {
            self.points.pop_front();
        }
    }

    /// A second, over the last five.
    pub fn now(&self) -> f64 {
        self.over(Duration::from_secs(5))
    }

    /// A second, over the last minute.
    pub fn last_minute(&self) -> f64 {
        self.over(Duration::from_secs(60))
    }

    fn over(&self, span: Duration) -> f64 {
        let Some((end, last)) = self.points.back() else {
            return 0.0;
        };
        let older = self.points.iter().rev().skip(1);
        // The first that is as old as that, or the oldest.
        let mut from = None;
        for point in older {
            from = Some(point);
            if point.0 + span <= *end {
                break;
            }
        }
        match from {
            Some((begin, first)) if begin < end => {
                last.saturating_sub(*first) as f64 / (*end - *begin).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a row.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

impl Size {
    /// What everybody has at least.
    pub const USUAL: Size = Size {
        columns: 80,
        rows: 24,
    };

    /// That of the terminal behind a descriptor; `None` if there is none, or it does not say.
    pub fn of(terminal: impl AsFd) -> Option<Size> {
        // SAFETY: all zeros are a valid `winsize`.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        let terminal = terminal.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed, and the call writes one `winsize` to where it is
        // told.
        let answer = unsafe { libc::ioctl(terminal, libc::TIOCGWINSZ, &mut size) };
        if answer != 0 || size.ws_col == 0 || size.ws_row == 0 {
            return None;
        }
        Some(Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        })
    }
}

/// What a terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Characters other than ASCII's.
    pub unicode: bool,
    /// Colours.
    pub colour: bool,
}

impl Style {
    /// By `NO_COLOR`, `TERM` and the locale.
    pub fn from_environment() -> Style {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Style::from_settings(
            set("LC_ALL")
                .or_else(|| set("LC_CTYPE"))
                .or_else(|| set("LANG")),
            set("NO_COLOR").is_some(),
            set("TERM"),
        )
    }

    fn from_settings(locale: Option<String>, no_colour: bool, terminal: Option<String>) -> Style {
        let locale = locale.unwrap_or_default().to_lowercase();
        let plain = terminal.is_none_or(|terminal| terminal == "dumb");
        Style {
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
            colour: !no_colour && !plain,
        }
    }
}

/// How a piece of text is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
}

/// A row of a screen.
#[derive(Default)]
struct Row(Vec<(Paint, String)>);

impl Row {
    fn add(mut self, paint: Paint, text: impl Into<String>) -> Row {
        self.0.push((paint, text.into()));
        self
    }

    fn plain(self, text: impl Into<String>) -> Row {
        self.add(Paint::Plain, text)
    }

    fn width(&self) -> usize {
        let chars = self.0.iter().flat_map(|(_, text)| text.chars());
        chars.map(|c| shown(c).map_or(0, |(_, width)| width)).sum()
    }

    /// `to` at the right end, if it fits.
    fn right(self, columns: usize, to: &str) -> Row {
        let width = self.width() + to.chars().count();
        if width >= columns {
            return self;
        }
        self.plain(" ".repeat(columns - width)).plain(to)
    }

    /// At most `columns` wide, without anything that a terminal would obey.
    fn render(&self, columns: usize, style: Style) -> String {
        let mut out = String::new();
        let mut left = columns;
        'row: for (paint, text) in &self.0 {
            let code = match paint {
                _ if !style.colour => "",
                Paint::Plain => "",
                Paint::Bold => "\x1b[1m",
                Paint::Dim => "\x1b[2m",
                Paint::Red => "\x1b[1;31m",
            };
            let end = if code.is_empty() { "" } else { "\x1b[0m" };
            out += code;
            for c in text.chars() {
                let Some((c, width)) = shown(c) else {
                    continue;
                };
                if width > left {
                    out += end;
                    break 'row;
                }
                out.push(if style.unicode || c.is_ascii() {
                    c
                } else {
                    '?'
                });
                left -= width;
            }
            out += end;
        }
        out.truncate(out.trim_end_matches(' ').len());
        out
    }
}

/// What is shown for a character, and how wide it is; `None` for what has no width of its own.
fn shown(c: char) -> Option<(char, usize)> {
    match u32::from(c) {
        _ if c.is_control() => Some(('?', 1)),
        // Combining characters, and those that turn the direction of text around.
        0x300..=0x36f
        | 0x200b..=0x200f
        | 0x2028..=0x202e
        | 0x2060..=0x206f
        | 0xfe00..=0xfe0f
        | 0xfeff => None,
        // East Asian and pictures.
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => Some((c, 2)),
        _ => Some((c, 1)),
    }
}

/// Text from outside, in one line of a log.
fn tidy(text: &str) -> String {
    let shown = text.chars().filter_map(shown);
    shown.map(|(c, _)| c).collect()
}

/// `1,234,567`.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 case`, `2,000 cases`.
fn counted(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", number(n))
}

/// `812`, `3.4`: three digits say enough.
fn rate(per_second: f64) -> String {
    match per_second {
        r if !r.is_finite() || r < 0.0 => "0".to_owned(),
        r if r < 9.95 => format!("{r:.1}"),
        r => number(r.round() as u64),
    }
}

/// `45 s`, `12 min 03 s`, `2 h 07 min`, `3 d 04 h`.
fn span(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s:02} s"),
        (0, h, min, _) => format!("{h} h {min:02} min"),
        (d, h, _, _) => format!("{d} d {h:02} h"),
    }
}

fn percent(value: f64) -> String {
    // 99.96 is not 100: what is not perfect must not look so.
    let value = if value < 100.0 {
        value.min(99.9)
    } else {
        value
    };
    format!("{value:.1} %")
}

fn findings(snapshot: &Snapshot) -> String {
    let some = snapshot.findings.iter().filter(|(_, count)| *count > 0);
    let list: Vec<String> = some
        .map(|(severity, count)| format!("{} {severity}", number(*count)))
        .collect();
    match list.is_empty() {
        true => "none".to_owned(),
        false => list.join(", "),
    }
}

fn left(snapshot: &Snapshot) -> Option<String> {
    match (snapshot.time_left, snapshot.executions_left) {
        (Some(time), _) => Some(span(time)),
        (None, Some(executions)) => Some(counted(executions, "execution")),
        (None, None) => None,
    }
}

/// The history as a row of little bars, the lowest value at the bottom.
fn bars(history: &History, columns: usize, style: Style) -> String {
    let values = history.values();
    if columns == 0 || values.is_empty() {
        return String::new();
    }
    // Each column shows the last value of its part.
    let columns = columns.min(values.len());
    let parts = (1..=columns).map(|i| values[i * values.len() / columns - 1]);
    let parts: Vec<u64> = parts.collect();
    let (low, high) = parts
        .iter()
        .fold((u64::MAX, 0), |(low, high), v| (low.min(*v), high.max(*v)));
    let marks: &[char] = match style.unicode {
        true => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => &['_', '.', '-', '=', '#'],
    };
    let top = marks.len() as u128 - 1;
    let height = |v: u64| match high - low {
        0 => 0,
        range => (u128::from(v - low) * top / u128::from(range)) as usize,
    };
    parts.iter().map(|v| marks[height(*v)]).collect()
}

/// How many rows a list gets before the rest is only counted.
const FIGURES_MAX: usize = 6;
const NOTES_MAX: usize = 4;

/// The rows of a full screen, without line ends. None is wider than `size.columns`, and there are
/// at most `size.rows`.
pub fn screen(snapshot: &Snapshot, size: Size, style: Style) -> Vec<String> {
    let mut rows = rows(snapshot, size, style);
    // On a small terminal empty rows go first, then what is at the bottom.
    while rows.len() > size.rows {
        match rows.iter().rposition(|row| row.0.is_empty()) {
            Some(empty) => drop(rows.remove(empty)),
            None => rows.truncate(size.rows),
        }
    }
    let rendered = rows.iter().map(|row| row.render(size.columns, style));
    rendered.collect()
}

fn rows(s: &Snapshot, size: Size, style: Style) -> Vec<Row> {
    let row = Row::default;
    let label = |text: &str| row().plain("  ").add(Paint::Dim, format!("{text:<12}"));
    let mut rows = Vec::new();

    let title = row().add(Paint::Bold, tidy(&s.title));
    rows.push(title.right(size.columns, s.phase.text()));
    rows.push(row().plain(format!("  {}", tidy(&s.subject))));
    rows.push(row());

    let time = label("time").plain(span(s.elapsed));
    rows.push(match left(s) {
        Some(left) => time.plain(format!(", {left} left")),
        None => time,
    });
    let workers = match s.workers {
        0 | 1 => String::new(),
        n => format!(" by {n} workers"),
    };
    rows.push(label("executions").plain(format!(
        "{}; {} a second now, {} overall{workers}",
        number(s.executions),
        rate(s.per_second_now),
        rate(s.per_second_overall)
    )));
    let worst = s.findings.first().is_some_and(|(_, count)| *count > 0);
    let paint = if worst { Paint::Red } else { Paint::Plain };
    rows.push(label("findings").add(paint, tidy(&findings(s))));
    if let Some(since) = s.since_new {
        rows.push(label("last new").plain(format!("{} ago", span(since))));
    }
    rows.push(row());

    if let Some(queue) = &s.queue {
        let (cases, pending) = (counted(queue.cases, "case"), number(queue.pending));
        let favoured = number(queue.pending_favoured);
        let queue = format!("{cases}, {pending} not worked on yet, {favoured} of these favoured");
        rows.push(label("queue").plain(queue));
    }
    if let Some(depth) = s.tree_depth {
        rows.push(label("tree").plain(format!("{} deep", number(depth))));
    }
    if let Some(stability) = s.stability {
        rows.push(label("stability").plain(percent(stability)));
    }
    if !s.activities.is_empty() {
        let activities = s.activities.iter();
        let list = activities.map(|(name, share)| format!("{} {share:.0} %", tidy(name)));
        rows.push(label("work").plain(list.collect::<Vec<_>>().join(", ")));
    }

    if !s.coverage.is_empty() {
        rows.push(row());
        let width = |text: &str| text.chars().count();
        let figures = &s.coverage[..s.coverage.len().min(FIGURES_MAX)];
        let names = figures.iter().map(|figure| width(&tidy(&figure.name)));
        let names = names.max().unwrap_or(0).min(24);
        let values = figures.iter().map(|f| number(f.value).len()).max();
        let values = values.unwrap_or(0);
        for figure in figures {
            let name: String = tidy(&figure.name).chars().take(names).collect();
            let value = number(figure.value);
            let columns = size.columns.saturating_sub(2 + names + 2 + values + 2);
            let bars = bars(&figure.history, columns.min(48), style);
            rows.push(
                row()
                    .plain("  ")
                    .add(Paint::Dim, format!("{name:<names$}"))
                    .plain(format!("  {value:>values$}  {bars}")),
            );
        }
        let more = s.coverage.len() - figures.len();
        if more > 0 {
            rows.push(row().plain(format!("  and {more} more")));
        }
    }

    if !s.notes.is_empty() {
        rows.push(row());
        let more = s.notes.len().saturating_sub(NOTES_MAX);
        if more > 0 {
            let more = counted(more as u64, "earlier note");
            rows.push(row().plain(format!("  {more}")));
        }
        for note in &s.notes[more..] {
            rows.push(row().plain(format!("  {}", tidy(note))));
        }
    }
    rows
}

/// One line for a log, without its end.
pub fn line(s: &Snapshot) -> String {
    let mut text = format!("{}: ", tidy(&s.title));
    if s.phase != Phase::Running {
        let _ = write!(text, "{}, ", s.phase.text());
    }
    text += &span(s.elapsed);
    if let Some(left) = left(s) {
        let _ = write!(text, " ({left} left)");
    }
    let _ = write!(
        text,
        ", {} ({} a second, {} overall)",
        counted(s.executions, "execution"),
        rate(s.per_second_now),
        rate(s.per_second_overall)
    );
    for figure in &s.coverage {
        let _ = write!(text, ", {} {}", number(figure.value), tidy(&figure.name));
    }
    if let Some(queue) = &s.queue {
        let (cases, favoured) = (number(queue.cases), number(queue.pending_favoured));
        let _ = write!(text, ", queue {cases} ({favoured} favoured left)");
    }
    if let Some(depth) = s.tree_depth {
        let _ = write!(text, ", depth {depth}");
    }
    if let Some(stability) = s.stability {
        let _ = write!(text, ", stability {}", percent(stability));
    }
    let _ = write!(text, ", findings: {}", tidy(&findings(s)));
    text
}

/// A terminal whose whole screen is taken.
pub struct Screen<W: Write> {
    out: W,
    style: Style,
    drawn: Option<Duration>,
}

/// Another screen than the one that the user had, without a cursor, and without going on in the
/// next row where one is full.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
/// All of that undone.
pub const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// A screen is not drawn more often.
pub const DRAW_INTERVAL: Duration = Duration::from_millis(200);

impl<W: Write> Screen<W> {
    /// Takes the screen.
    pub fn enter(mut out: W, style: Style) -> io::Result<Screen<W>> {
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Screen {
            out,
            style,
            drawn: None,
        })
    }

    /// Whether it is time to draw, so that a snapshot is worth making. `now` is any clock.
    pub fn is_due(&self, now: Duration) -> bool {
        self.drawn.is_none_or(|drawn| now >= drawn + DRAW_INTERVAL)
    }

    /// Draws, if it is time to.
    pub fn draw(&mut self, now: Duration, size: Size, snapshot: &Snapshot) -> io::Result<()> {
        if !self.is_due(now) {
            return Ok(());
        }
        self.drawn = Some(now);
        let mut text = String::from("\x1b[H");
        let rows = screen(snapshot, size, self.style);
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                text += "\r\n";
            }
            // What was there before goes first: after a row that is full, the cursor is still on
            // its last character.
            text += if i + 1 < rows.len() {
                "\x1b[K"
            } else {
                "\x1b[J"
            };
            text += row;
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // If the terminal has gone, there is nothing to restore.
        let _ = self.out.write_all(LEAVE.as_bytes());
        let _ = self.out.flush();
    }
}

/// A log, to which a line is added now and then.
pub struct Log<W: Write> {
    out: W,
    last: Option<(Duration, u64)>,
}

impl<W: Write> Log<W> {
    /// Nothing is written yet.
    pub fn new(out: W) -> Log<W> {
        Log { out, last: None }
    }

    /// Whether it is time for a line, without a new finding. `now` is any clock.
    pub fn is_due(&self, now: Duration) -> bool {
        match self.last {
            None => true,
            Some((last, _)) => now >= last + (last / 2).clamp(SHORT, LONG),
        }
    }

    /// Writes a line, if it is time to, or something was found.
    pub fn tell(&mut self, now: Duration, snapshot: &Snapshot) -> io::Result<()> {
        let found = snapshot.findings.iter().map(|(_, count)| count).sum();
        let new = self
            .last
            .is_some_and(|(last, before)| found > before && now >= last + SHORT);
        if !self.is_due(now) && !new {
            return Ok(());
        }
        self.last = Some((now, found));
        writeln!(self.out, "{}", line(snapshot))?;
        self.out.flush()
    }
}

/// Between two lines of a log there is at least and at most so much.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(600);

/// A screen or a log, whatever fits what it is written to.
pub enum Display<W: Write + AsFd> {
    /// On a terminal.
    Screen(Screen<W>),
    /// Elsewhere.
    Log(Log<W>),
}

impl<W: Write + AsFd + IsTerminal> Display<W> {
    /// By whether `out` is a terminal that can move its cursor.
    pub fn new(out: W) -> io::Result<Display<W>> {
        let dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
        Display::with(out, !dumb, Style::from_environment())
    }

    fn with(out: W, moves_cursor: bool, style: Style) -> io::Result<Display<W>> {
        match out.is_terminal() && moves_cursor {
            true => Screen::enter(out, style).map(Display::Screen),
            false => Ok(Display::Log(Log::new(out))),
        }
    }
}

impl<W: Write + AsFd> Display<W> {
    /// Whether it is worth making a snapshot now. A log is also asked for findings, so once a
    /// second it is.
    pub fn is_due(&self, now: Duration) -> bool {
        match self {
            Display::Screen(screen) => screen.is_due(now),
            Display::Log(log) => log.last.is_none_or(|(last, _)| now >= last + SHORT),
        }
    }

    /// Shows it, if it is time to.
    pub fn show(&mut self, now: Duration, snapshot: &Snapshot) -> io::Result<()> {
        match self {
            Display::Screen(screen) => {
                let size = Size::of(&screen.out).unwrap_or(Size::USUAL);
                screen.draw(now, size, snapshot)
            }
            Display::Log(log) => log.tell(now, snapshot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Style = Style {
        unicode: false,
        colour: false,
    };
    const RICH: Style = Style {
        unicode: true,
        colour: true,
    };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn figure(name: &str, values: &[u64]) -> Figure {
        let mut history = History::default();
        for (i, value) in values.iter().enumerate() {
            history.record(s(i as u64), *value);
        }
        Figure {
            name: name.into(),
            value: *values.last().unwrap(),
            history,
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            title: "brownout fuzz".into(),
            subject: "mapcli btree /mnt/pmem/pool".into(),
            phase: Phase::Running,
            elapsed: s(723),
            time_left: Some(s(2877)),
            executions_left: None,
            executions: 1_234_567,
            per_second_now: 812.4,
            per_second_overall: 9.04,
            workers: 2,
            coverage: vec![
                figure("PM paths", &[0, 100, 200, 300, 1204]),
                figure("edges", &[20_000, 20_000, 23_004]),
            ],
            since_new: Some(s(12)),
            queue: Some(Queue {
                cases: 431,
                pending: 40,
                pending_favoured: 12,
            }),
            tree_depth: Some(9),
            stability: Some(99.97),
            findings: vec![("correctness".into(), 3), ("performance".into(), 1)],
            activities: vec![("fuzzing".into(), 80.4), ("exploring".into(), 19.6)],
            notes: vec!["missing-flush at btree.c:120".into()],
        }
    }

    #[test]
    fn a_screen() {
        let rows = screen(&snapshot(), Size::USUAL, PLAIN);
        let expected = "\
brownout fuzz                                                            running
  mapcli btree /mnt/pmem/pool

  time        12 min 03 s, 47 min 57 s left
  executions  1,234,567; 812 a second now, 9.0 overall by 2 workers
  findings    3 correctness, 1 performance
  last new    12 s ago

  queue       431 cases, 40 not worked on yet, 12 of these favoured
  tree        9 deep
  stability   99.9 %
  work        fuzzing 80 %, exploring 20 %

  PM paths   1,204  ____#
  edges     23,004  __#

  missing-flush at btree.c:120";
        assert_eq!(rows.join("\n"), expected);
    }

    #[test]
    fn a_rich_screen_is_the_same_with_paint() {
        let rich = screen(&snapshot(), Size::USUAL, RICH).join("\n");
        assert!(rich.contains("\x1b[1;31m3 correctness, 1 performance\x1b[0m"));
        assert!(rich.contains("▁▁▂▂█"), "{rich}");
        let plain = screen(&snapshot(), Size::USUAL, PLAIN).join("\n");
        assert!(!plain.contains('\x1b') && plain.is_ascii());
    }

    #[test]
    fn a_line_for_a_log() {
        assert_eq!(
            line(&snapshot()),
            "brownout fuzz: 12 min 03 s (47 min 57 s left), 1,234,567 executions (812 a second, 9.0 overall), \
             1,204 PM paths, 23,004 edges, queue 431 (12 favoured left), depth 9, stability 99.9 %, \
             findings: 3 correctness, 1 performance"
        );
        let empty = Snapshot {
            title: "brownout race".into(),
            phase: Phase::Starting,
            executions_left: Some(1),
            ..Snapshot::default()
        };
        assert_eq!(
            line(&empty),
            "brownout race: starting, 0 s (1 execution left), 0 executions (0.0 a second, 0.0 overall), \
             findings: none"
        );
    }

    #[test]
    fn everything_at_once_fits_a_usual_terminal() {
        let mut full = snapshot();
        full.coverage = (0..9)
            .map(|i| figure(&format!("figure {i}"), &[i]))
            .collect();
        full.notes = (0..9).map(|i| format!("note {i}")).collect();
        let all = rows(&full, Size::USUAL, PLAIN);
        let (empty, told): (Vec<_>, Vec<_>) = all.iter().partition(|row| row.0.is_empty());
        assert!(told.len() <= Size::USUAL.rows, "{}", told.len());
        assert!(!empty.is_empty());
        let text = screen(&full, Size::USUAL, PLAIN).join("\n");
        for part in ["and 3 more", "5 earlier notes", "note 8", "figure 5"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("note 4") && !text.contains("figure 6"));
    }

    #[test]
    fn spans_and_rates() {
        let spans = [0, 59, 60, 3599, 3600, 86_399, 86_400, 1_000_000].map(|n| span(s(n)));
        let expected = [
            "0 s",
            "59 s",
            "1 min 00 s",
            "59 min 59 s",
            "1 h 00 min",
            "23 h 59 min",
            "1 d 00 h",
            "11 d 13 h",
        ];
        assert_eq!(spans, expected);
        let rates = [0.04, 9.94, 9.96, 999.6, f64::NAN, f64::INFINITY, -1.0].map(rate);
        assert_eq!(rates, ["0.0", "9.9", "10", "1,000", "0", "0", "0"]);
        assert_eq!(percent(100.0), "100.0 %");
        let numbers = [0, 999, 1000, 1_000_000].map(number);
        assert_eq!(numbers, ["0", "999", "1,000", "1,000,000"]);
    }

    #[test]
    fn a_history_is_bounded_and_keeps_its_shape() {
        let mut history = History::default();
        for second in 0..10_000 {
            history.record(s(second), second);
        }
        assert!(history.values().len() <= STEPS_MAX);
        assert!(history.values().len() > STEPS_MAX / 2);
        let step = history.step().as_secs();
        for (i, value) in history.values().iter().enumerate() {
            let end_of_step = (i as u64 + 1) * step - 1;
            assert_eq!(*value, end_of_step.min(9_999));
        }
        // After a long time without anything.
        history.record(s(100_000), 7);
        assert!(history.values().len() <= STEPS_MAX);
        assert_eq!(history.values().last(), Some(&7));
        assert!(history.values().contains(&9_999));
    }

    #[test]
    fn speed_is_that_of_late() {
        let mut speed = Speed::default();
        assert_eq!((speed.now(), speed.last_minute()), (0.0, 0.0));
        let mut count = 0;
        for tick in 0..2000u64 {
            // Twenty times a second; a hundred a second at first, ten in the end.
            speed.record(Duration::from_millis(tick * 50), count);
            count += if tick < 1800 {
                5
            } else {
                u64::from(tick % 2 == 0)
            };
        }
        assert!((speed.now() - 10.0).abs() < 1.0, "{}", speed.now());
        let minute = (50.0 * 100.0 + 10.0 * 10.0) / 60.0;
        let got = speed.last_minute();
        assert!((got - minute).abs() < 2.0, "{got}");
        assert!(speed.points.len() < 700, "{}", speed.points.len());
    }

    #[test]
    fn a_terminal_is_given_back_as_it_was() {
        let mut out = Vec::new();
        let mut screen = Screen::enter(&mut out, PLAIN).unwrap();
        for ms in [0, 10, 199, 200, 399, 401] {
            let now = Duration::from_millis(ms);
            screen.draw(now, Size::USUAL, &snapshot()).unwrap();
        }
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with(ENTER) && text.ends_with(LEAVE));
        assert_eq!(text.matches("\x1b[H").count(), 3);
        let mut out = Vec::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _screen = Screen::enter(&mut out, PLAIN).unwrap();
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        assert!(out.ends_with(LEAVE.as_bytes()));
    }

    #[test]
    fn a_real_terminal_is_drawn_on_in_its_own_size() {
        let size = libc::winsize {
            ws_row: 6,
            ws_col: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut user, mut program) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: the call writes two descriptors to where it is told, and reads the size; the rest
        // may be null.
        let opened = unsafe {
            libc::openpty(
                &mut user,
                &mut program,
                null,
                std::ptr::null_mut(),
                &size as *const _ as *mut _,
            )
        };
        assert_eq!(opened, 0);
        // SAFETY: the call has just made both, and nobody else has them.
        let (mut user, program) = unsafe {
            use std::os::fd::FromRawFd as _;
            let file = |fd| std::fs::File::from_raw_fd(fd);
            (file(user), file(program))
        };
        let mut display = Display::with(program, true, PLAIN).unwrap();
        assert!(display.is_due(s(0)));
        display.show(s(0), &snapshot()).unwrap();
        assert!(!display.is_due(s(0)));
        drop(display);
        // All of it was written, and fits what a terminal buffers.
        let mut shown = Vec::new();
        let mut some = [0; 4096];
        while !shown.ends_with(LEAVE.as_bytes()) {
            let n = io::Read::read(&mut user, &mut some).unwrap();
            shown.extend_from_slice(&some[..n]);
        }
        let shown = String::from_utf8(shown).unwrap();
        let drawn = shown.strip_prefix(ENTER).unwrap().strip_suffix(LEAVE);
        let rows: Vec<&str> = drawn.unwrap().split("\r\n").collect();
        // The terminal itself adds a carriage return before each line feed.
        let rows: Vec<&str> = rows.iter().map(|row| row.trim_end_matches('\r')).collect();
        assert_eq!(rows.len(), 6);
        assert!(rows[0].contains("running"), "{rows:?}");
        assert_eq!(rows[2], "\x1b[K  time        12 min 03 s, 47 min 57 s l");
        assert_eq!(rows[5], "\x1b[J  last new    12 s ago");

        let file = tempfile::tempfile().unwrap();
        let log = Display::with(file, true, PLAIN).unwrap();
        assert!(matches!(log, Display::Log(_)));
    }

    #[test]
    fn a_log_gets_lines_at_growing_intervals() {
        let mut out = Vec::new();
        let mut log = Log::new(&mut out);
        let mut snapshot = snapshot();
        let mut told = Vec::new();
        for second in 0..7200 {
            let due = log.is_due(s(second));
            log.tell(s(second), &snapshot).unwrap();
            if due {
                told.push(second);
            }
        }
        assert_eq!(told[..9], [0, 1, 2, 3, 5, 8, 12, 18, 27]);
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] <= 600));
        assert!(told.len() < 35, "{}", told.len());
        snapshot.findings[0].1 += 1;
        log.tell(s(7200), &snapshot).unwrap();
        log.tell(s(7201), &snapshot).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text.lines().count(),
            told.len() + 1,
            "a finding is told at once"
        );
        assert!(text.ends_with("4 correctness, 1 performance\n"), "{text}");
    }

    #[test]
    fn what_a_terminal_can_show() {
        let style = |locale: &str, no_colour, terminal: &str| {
            Style::from_settings(Some(locale.into()), no_colour, Some(terminal.into()))
        };
        assert_eq!(style("en_GB.UTF-8", false, "xterm"), RICH);
        assert_eq!(
            style("C.utf8", true, "xterm"),
            Style {
                colour: false,
                ..RICH
            }
        );
        assert_eq!(style("C", false, "dumb"), PLAIN);
        assert_eq!(Style::from_settings(None, false, None), PLAIN);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Size::of(&file), None);
    }

    /// What a terminal with the width of `columns` would show: no control character but our paint,
    /// no row too wide.
    fn width(row: &str) -> usize {
        let mut width = 0;
        let mut rest = row;
        while let Some(c) = rest.chars().next() {
            let paint = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;31m"];
            if let Some(paint) = paint.iter().find(|paint| rest.starts_with(**paint)) {
                rest = &rest[paint.len()..];
                continue;
            }
            assert!(!c.is_control(), "{row:?}");
            width += shown(c).unwrap().1;
            rest = &rest[c.len_utf8()..];
        }
        width
    }

    proptest! {
        #[test]
        fn any_snapshot_fits_any_terminal(
            columns in 0..200usize, rows in 0..60usize, rich in any::<bool>(),
            texts in prop::collection::vec("[\\PC\\x00-\\x1f\\x7f\u{202e}漢\u{9b}]{0,120}", 6),
            numbers in prop::collection::vec(any::<u64>(), 12),
            lists in 0..10usize,
        ) {
            let mut full = snapshot();
            full.title = texts[0].clone();
            full.subject = texts[1].clone();
            full.findings = vec![(texts[2].clone(), numbers[0])];
            full.notes = vec![texts[3].clone(); lists];
            full.activities = vec![(texts[4].clone(), 50.0); lists];
            full.coverage = vec![figure(&texts[5], &numbers); lists];
            full.executions = numbers[1];
            full.elapsed = Duration::from_secs(numbers[2]);
            full.since_new = Some(Duration::from_secs(numbers[3]));
            full.time_left = None;
            full.executions_left = Some(numbers[4]);
            full.per_second_now = f64::from_bits(numbers[5]);
            full.stability = Some(f64::from_bits(numbers[6]));
            let style = if rich { RICH } else { PLAIN };
            let shown = screen(&full, Size { columns, rows }, style);
            prop_assert!(shown.len() <= rows);
            for row in shown {
                prop_assert!(width(&row) <= columns, "{:?}", row);
            }
            let line = line(&full);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
