//! Suppressions: findings that somebody has looked at and decided to live with.
//!
//! **Purpose.** Reads the TOML files that describe them (the format is in `docs/report.md`), takes
//! the findings out that they describe, and says which entries did nothing or are out of date.
//! [`generate`] writes such a file.
//!
//! **Guarantee.** A finding is hidden only by an entry all of whose conditions it meets. A mistake
//! in a file is an error with file, line and column, never an entry that quietly means something
//! else. What [`generate`] writes hides exactly the findings that it was given.
//!
//! ```
//! use brownout_report::suppress::Suppressions;
//!
//! let text = r#"
//! [[suppress]]
//! rule = "missing-flush"
//! stack = ["fun:memset", "...", "fun:pool_create"]
//! reason = "the pool is made anew if its creation was cut short"
//! "#;
//! let suppressions = Suppressions::parse("brownout.supp", text)?;
//! assert_eq!(suppressions.len(), 1);
//!
//! let error = Suppressions::parse("brownout.supp", "[[suppress]]\nstack = ['memset']").unwrap_err();
//! assert!(error.to_string().starts_with("brownout.supp:2:10: "));
//! # Ok::<(), brownout_report::suppress::ParseError>(())
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use brownout_findings::{Finding, rules};
pub use jiff::civil::Date;
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use crate::bounded;
use crate::fingerprint::is_fingerprint;
use crate::pattern::{self, Pattern};
use crate::site;
use crate::text::{base_name, visible};

/// Longer files are not suppressions; parsing them would take a while.
const BYTES_MAX: u64 = 64 << 20;

/// The current day, in UTC.
pub fn today() -> Date {
    jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date()
}

/// What is wrong with a file of suppressions, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The file, as it was named to us.
    pub path: String,
    /// Line from 1; `None` if the file could not be read at all.
    pub line: Option<usize>,
    /// Column from 1, in characters.
    pub column: usize,
    /// One sentence, no final stop.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}:{}: {}", self.path, self.column, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

impl Error for ParseError {}

/// One `[[suppress]]`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file.
    pub path: String,
    /// The line where it begins.
    pub line: usize,
    /// Only findings of this rule; `None` for any.
    pub rule: Option<String>,
    /// Only the finding with this fingerprint.
    pub fingerprint: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The last day on which it counts.
    pub expires: Option<Date>,
    stack: Option<Vec<Pattern>>,
    name: Option<Regex>,
}

impl Entry {
    fn matches(&self, finding: &Finding) -> bool {
        let rule = self.rule.as_ref().is_none_or(|rule| finding.rule == *rule);
        let fingerprint = self.fingerprint.as_ref();
        rule && fingerprint.is_none_or(|wanted| *wanted == finding.fingerprint)
            && self.stack.as_ref().is_none_or(|patterns| {
                let mut events = finding.all_events();
                events.any(|event| pattern::matches_stack(patterns, &event.stack))
            })
            && self.name.as_ref().is_none_or(|wanted| {
                let mut places = finding
                    .all_events()
                    .filter_map(|event| event.place.as_ref());
                places.any(|place| {
                    place
                        .name
                        .as_deref()
                        .is_some_and(|name| wanted.is_match(name))
                })
            })
    }

    fn place(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }
}

/// Entries of one or more files.
#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    entries: Vec<Entry>,
}

/// What remains when suppressions were applied.
#[derive(Debug)]
pub struct Applied<'a> {
    /// Findings that no entry describes, in their order.
    pub kept: Vec<Finding>,
    /// How many findings were taken out.
    pub suppressed: u64,
    /// Entries that describe none of the findings, and are not expired.
    pub unused: Vec<&'a Entry>,
    /// Entries whose day has passed. They hide nothing.
    pub expired: Vec<&'a Entry>,
}

impl Applied<'_> {
    /// Unused and expired entries as sentences for a report.
    pub fn notes(&self) -> Vec<String> {
        let expired = self.expired.iter().map(|entry| {
            let day = entry.expires.map(|day| day.to_string()).unwrap_or_default();
            format!(
                "{}: the suppression expired on {day} and hides nothing",
                entry.place()
            )
        });
        let unused = self.unused.iter().map(|entry| {
            let unknown = entry.rule.as_deref().filter(|id| rules::find(id).is_none());
            match unknown {
                Some(id) => format!(
                    "{}: the suppression was not used, and there is no built-in rule {id}",
                    entry.place()
                ),
                None => format!("{}: the suppression was not used", entry.place()),
            }
        });
        expired.chain(unused).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    suppress: Vec<Spanned<RawEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    rule: Option<Spanned<String>>,
    stack: Option<Spanned<Vec<Spanned<String>>>>,
    fingerprint: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    reason: Option<String>,
    expires: Option<Spanned<toml::Value>>,
}

impl Suppressions {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Suppressions, ParseError> {
        let name = path.to_string_lossy();
        let unreadable = |message: String| ParseError {
            path: name.clone().into_owned(),
            line: None,
            column: 0,
            message,
        };
        let failed = |error| unreadable(format!("the suppressions cannot be read: {error}"));
        let text = bounded::read_text(path, BYTES_MAX, "suppressions").map_err(failed)?;
        Suppressions::parse(&name, &text)
    }

    /// Reads the text of a file; the path is for messages.
    pub fn parse(path: &str, text: &str) -> Result<Suppressions, ParseError> {
        let places = Places::new(text);
        let error = |at: Range<usize>, message: String| {
            let (line, column) = places.of(at.start);
            ParseError {
                path: path.into(),
                line: Some(line),
                column,
                message,
            }
        };
        let raw: RawFile = toml::from_str(text).map_err(|problem| {
            let message = problem.message().trim_end_matches('.').replace('\n', "; ");
            error(problem.span().unwrap_or(0..0), message)
        })?;
        let mut entries = Vec::new();
        for entry in raw.suppress {
            let span = entry.span();
            let entry = check(entry.into_inner(), span.clone())
                .map_err(|(at, message)| error(at, message))?;
            let (line, _) = places.of(span.start);
            entries.push(Entry {
                path: path.into(),
                line,
                ..entry
            });
        }
        Ok(Suppressions { entries })
    }

    /// Adds the entries of another file.
    pub fn extend(&mut self, other: Suppressions) {
        self.entries.extend(other.entries);
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes out what the entries describe. The findings need their fingerprints
    /// ([`assign`](crate::fingerprint::assign)).
    pub fn apply(&self, findings: Vec<Finding>, today: Date) -> Applied<'_> {
        let is_expired = |entry: &&Entry| entry.expires.is_some_and(|day| day < today);
        // Files that were generated have thousands of entries, all with a fingerprint.
        let mut by_fingerprint: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut others = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            match &entry.fingerprint {
                _ if is_expired(&entry) => {}
                Some(wanted) => by_fingerprint.entry(wanted).or_default().push(at),
                None => others.push(at),
            }
        }
        let mut used = vec![false; self.entries.len()];
        let before = findings.len();
        let mut kept = findings;
        kept.retain(|finding| {
            let exact = by_fingerprint.get(finding.fingerprint.as_str());
            let mut hidden = false;
            // Every entry is tried, so that one which always comes second does not count as unused.
            for &at in exact.into_iter().flatten().chain(&others) {
                if self.entries[at].matches(finding) {
                    used[at] = true;
                    hidden = true;
                }
            }
            !hidden
        });
        let (expired, current): (Vec<_>, Vec<_>) = self
            .entries
            .iter()
            .zip(used)
            .partition(|(entry, _)| is_expired(entry));
        Applied {
            suppressed: (before - kept.len()) as u64,
            kept,
            unused: current
                .into_iter()
                .filter(|(_, used)| !used)
                .map(|(e, _)| e)
                .collect(),
            expired: expired.into_iter().map(|(entry, _)| entry).collect(),
        }
    }
}

fn check(raw: RawEntry, whole: Range<usize>) -> Result<Entry, (Range<usize>, String)> {
    let rule = match raw.rule {
        Some(rule) if rule.get_ref().is_empty() => {
            return Err((rule.span(), "the rule is empty; write \"*\" for any".into()));
        }
        Some(rule) => Some(rule.into_inner()).filter(|rule| rule != "*"),
        None => None,
    };
    let fingerprint = match raw.fingerprint {
        Some(text) if !is_fingerprint(text.get_ref()) => {
            let message = "a fingerprint has 16 of the digits 0-9 and a-f; copy it from a report";
            return Err((text.span(), message.into()));
        }
        text => text.map(Spanned::into_inner),
    };
    let stack = match raw.stack {
        Some(list) if list.get_ref().is_empty() => {
            let message = "the stack has no patterns; write [\"...\"] for any, or leave it out";
            return Err((list.span(), message.into()));
        }
        Some(list) => {
            let mut patterns = Vec::new();
            for text in list.into_inner() {
                let parsed = Pattern::parse(text.get_ref());
                patterns.push(parsed.map_err(|message| (text.span(), message))?);
            }
            Some(patterns)
        }
        None => None,
    };
    let name = match raw.name {
        Some(text) if text.get_ref().is_empty() => {
            let message = "the name is empty; write \"*\" for any finding whose bytes have a name";
            return Err((text.span(), message.into()));
        }
        Some(text) => {
            let read = pattern::of_text(text.get_ref());
            Some(read.map_err(|message| (text.span(), message))?)
        }
        None => None,
    };
    if rule.is_none() && fingerprint.is_none() && stack.is_none() && name.is_none() {
        let message =
            "this entry would hide every finding; give it a rule, a stack, a name or a fingerprint";
        return Err((whole, message.into()));
    }
    let expires = match raw.expires {
        Some(value) => Some(date(value.get_ref()).ok_or_else(|| {
            let message = "expires takes a day without quotes, such as 2027-01-31";
            (value.span(), message.to_owned())
        })?),
        None => None,
    };
    Ok(Entry {
        path: String::new(),
        line: 0,
        rule,
        fingerprint,
        reason: raw.reason,
        expires,
        stack,
        name,
    })
}

fn date(value: &toml::Value) -> Option<Date> {
    let toml::Value::Datetime(moment) = value else {
        return None;
    };
    if moment.time.is_some() || moment.offset.is_some() {
        return None;
    }
    let date = moment.date?;
    let year = i16::try_from(date.year).ok()?;
    let month = i8::try_from(date.month).ok()?;
    Date::new(year, month, i8::try_from(date.day).ok()?).ok()
}

/// Lines and columns of byte offsets.
struct Places<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl Places<'_> {
    fn new(text: &str) -> Places<'_> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Places {
            text,
            line_starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// Line and column, from 1.
    fn of(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let before = self.text.get(self.line_starts[line - 1]..offset);
        (line, before.map_or(0, |text| text.chars().count()) + 1)
    }
}

/// A file that suppresses exactly these findings. They need their fingerprints.
pub fn generate(findings: &[Finding]) -> String {
    let mut out = String::from(
        "# Suppressions for Brownout. Say in `reason` why each is acceptable, or delete it.\n\
         # A stack instead of the fingerprint covers all findings at that place.\n",
    );
    for finding in findings {
        let stack = site::causing_event(finding).map(|event| site::inside_main(&event.stack));
        let rule = match finding.rule.as_str() {
            "" | "*" => String::new(),
            rule => format!("rule = {}\n", quoted(rule)),
        };
        // What is written to a String cannot fail to be written.
        let _ = write!(
            out,
            "\n# {}\n[[suppress]]\n{rule}fingerprint = {}\nreason = \"\"\n",
            visible(&finding.message),
            quoted(&finding.fingerprint),
        );
        if let Some(stack) = stack.filter(|stack| !stack.is_empty()) {
            let patterns: Vec<String> = stack.iter().map(pattern_of).map(|p| quoted(&p)).collect();
            let _ = writeln!(out, "# stack = [{}]", patterns.join(", "));
        }
        let place = site::causing_event(finding).and_then(|event| event.place.as_ref());
        if let Some(name) = place.and_then(|place| place.name.as_deref()) {
            let _ = writeln!(out, "# name = {}", quoted(&pattern::escape(name)));
        }
    }
    out
}

fn pattern_of(frame: &brownout_findings::Frame) -> String {
    match (&frame.function, &frame.module) {
        (Some(function), _) if !function.is_empty() => format!("fun:{}", pattern::escape(function)),
        (_, Some(module)) if !module.is_empty() => {
            format!("obj:{}", pattern::escape(base_name(module)))
        }
        _ => "...".into(),
    }
}

/// The text as a TOML string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Not every character that `visible` escapes must be, but all of them may.
            c if visible(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8() => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint;
    use brownout_findings::Role;
    use brownout_findings::{Event, Frame, Severity};
    use proptest::prelude::*;

    fn finding(rule: &str, functions: &[&str]) -> Finding {
        let frame = |name: &&str| Frame {
            function: (!name.is_empty()).then(|| name.to_string()),
            module: Some("/opt/prog".into()),
            ..Frame::default()
        };
        Finding {
            rule: rule.into(),
            severity: Severity::Correctness,
            message: "8 bytes\nare lost".into(),
            fingerprint: String::new(),
            root_cause: String::new(),
            count: 1,
            events: vec![
                Event {
                    role: Role::Exit,
                    ..Event::default()
                },
                Event {
                    role: Role::Store,
                    stack: functions.iter().map(frame).collect(),
                    ..Event::default()
                },
            ],
            help: Vec::new(),
            notes: Vec::new(),
            crash_point: None,
            reproduction: None,
            origins: Vec::new(),
            timeline: None,
            sketch: None,
            replay: None,
        }
    }

    fn findings() -> Vec<Finding> {
        let mut all = vec![
            finding("missing-flush", &["push", "insert", "main"]),
            finding("missing-fence", &["push", "insert", "main"]),
            finding("missing-flush", &["pop", "main"]),
            finding("missing-flush", &["pop", "main"]),
        ];
        fingerprint::assign(&mut all);
        all
    }

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    /// Which findings are left, and which entries were unused and expired (by line).
    fn run(text: &str) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let all = findings();
        let suppressions = Suppressions::parse("s", text).unwrap();
        let applied = suppressions.apply(all.clone(), day("2026-05-05"));
        assert_eq!(applied.suppressed as usize + applied.kept.len(), all.len());
        let index = |kept: &Finding| all.iter().position(|f| f == kept).unwrap();
        let lines = |entries: &[&Entry]| entries.iter().map(|e| e.line).collect();
        (
            applied.kept.iter().map(index).collect(),
            lines(&applied.unused),
            lines(&applied.expired),
        )
    }

    #[test]
    fn conditions_are_joined_and_any_event_counts() {
        let none = Vec::new;
        let entry = |body: &str| run(&format!("[[suppress]]\n{body}"));
        assert_eq!(
            entry("rule = 'missing-fence'"),
            (vec![0, 2, 3], none(), none())
        );
        assert_eq!(
            entry("rule = '*'\nstack = ['fun:push']"),
            (vec![2, 3], none(), none())
        );
        assert_eq!(
            entry("rule = 'missing-flush'\nstack = ['...', 'fun:insert']"),
            (vec![1, 2, 3], none(), none())
        );
        let print = &findings()[3].fingerprint;
        assert_eq!(
            entry(&format!("fingerprint = '{print}'")),
            (vec![0, 1, 2], none(), none())
        );
        assert_eq!(
            entry(&format!("fingerprint = '{print}'\nrule = 'missing-fence'")),
            (vec![0, 1, 2, 3], vec![1], none())
        );
        assert_eq!(
            entry("stack = ['fun:insert']"),
            (vec![0, 1, 2, 3], vec![1], none())
        );
    }

    #[test]
    fn the_last_day_counts_and_the_next_does_not() {
        let on = |date: &str| {
            run(&format!(
                "[[suppress]]\nrule = 'missing-fence'\nexpires = {date}"
            ))
        };
        assert_eq!(on("2026-05-05"), (vec![0, 2, 3], vec![], vec![]));
        assert_eq!(on("2026-05-04"), (vec![0, 1, 2, 3], vec![], vec![1]));
    }

    #[test]
    fn an_entry_that_comes_second_is_used() {
        let text = "[[suppress]]\nrule = 'missing-fence'\n[[suppress]]\nstack = ['fun:push']\n\
                    [[suppress]]\nrule = 'no-such-rule'\nreason = 'x'\n";
        let (kept, unused, _) = run(text);
        assert_eq!((kept, unused), (vec![2, 3], vec![5]));
        let suppressions = Suppressions::parse("s.toml", text).unwrap();
        assert_eq!(
            suppressions.apply(findings(), day("2026-05-05")).notes(),
            ["s.toml:5: the suppression was not used, and there is no built-in rule no-such-rule"]
        );
    }

    #[test]
    fn bytes_are_named() {
        let place = |name: Option<&str>| brownout_findings::Place {
            file: "pool".into(),
            offset: 0,
            size: 8,
            address: 0,
            name: name.map(str::to_owned),
        };
        let mut all = findings();
        for (finding, name) in all.iter_mut().zip([
            Some("root->slots[3].key"),
            Some("root->slots[12].key"),
            Some("root->count"),
            None,
        ]) {
            finding.events[1].place = Some(place(name));
        }
        let kept = |name: &str| {
            let text = format!("[[suppress]]\nname = '{name}'\n");
            let suppressions = Suppressions::parse("f", &text).unwrap();
            let applied = suppressions.apply(all.clone(), day("2026-05-05"));
            (applied.kept.len(), applied.unused.len())
        };
        assert_eq!(kept("root->slots[*].key"), (2, 0));
        assert_eq!(kept("root->slots[?].key"), (3, 0));
        assert_eq!(kept("root->count"), (3, 0));
        assert_eq!(kept("*"), (1, 0));
        assert_eq!(kept("count"), (4, 1), "the whole name counts");
        assert!(generate(&all).contains("# name = \"root->slots[3].key\"\n"));
        let error = Suppressions::parse("f", "[[suppress]]\nname = ''\n").unwrap_err();
        assert!(error.to_string().starts_with("f:2:8: "), "{error}");
    }

    #[test]
    fn errors_name_the_place() {
        for (text, place, says) in [
            (
                "[[suppress]]\nrul = 'x'\n",
                "f:2:1: ",
                "unknown field `rul`",
            ),
            (
                "[[suppres]]\nrule = 'x'\n",
                "f:1:3: ",
                "unknown field `suppres`",
            ),
            ("[[suppress]]\nrule = 5\n", "f:2:8: ", "expected a string"),
            ("\n[[suppress]]\n", "f:2:1: ", "would hide every finding"),
            (
                "[[suppress]]\nrule = '*'\n",
                "f:1:1: ",
                "would hide every finding",
            ),
            (
                "[[suppress]]\nstack = ['fun:a',\n  'b']\n",
                "f:3:3: ",
                "begins with none of",
            ),
            ("[[suppress]]\nstack = []\n", "f:2:9: ", "no patterns"),
            (
                "[[suppress]]\nstack = 'fun:a'\n",
                "f:2:9: ",
                "expected a sequence",
            ),
            (
                "[[suppress]]\nfingerprint = 'ABC'\n",
                "f:2:15: ",
                "16 of the digits",
            ),
            (
                "[[suppress]]\nrule='r'\nexpires = '2027-01-31'\n",
                "f:3:11: ",
                "without quotes",
            ),
            (
                "[[suppress]]\nrule='r'\nexpires = 2027-01-31T00:00:00Z\n",
                "f:3:11: ",
                "a day",
            ),
            ("[[suppress]]\nrule='r'\nexpires = 2027-02-30\n", "f:3:", ""),
            (
                "[[suppress]]\nrule = 'a'\nrule = 'b'\n",
                "f:3:1: ",
                "duplicate key",
            ),
            ("[[suppress\n", "f:1:", ""),
        ] {
            let error = Suppressions::parse("f", text).unwrap_err().to_string();
            assert!(
                error.starts_with(place) && error.contains(says),
                "{text:?}: {error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = Suppressions::load(Path::new("/nonexistent/s")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/nonexistent/s: the suppressions cannot be read: ")
        );
        assert!(Suppressions::parse("f", "# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn what_is_generated_hides_exactly_that() {
        let all = findings();
        for chosen in [&all[..0], &all[..1], &all[1..3], &all[..]] {
            let text = generate(chosen);
            let suppressions = Suppressions::parse("g", &text).unwrap();
            let applied = suppressions.apply(all.clone(), today());
            assert!(
                applied.kept.iter().all(|kept| !chosen.contains(kept)),
                "{text}"
            );
            assert_eq!(applied.suppressed as usize, chosen.len());
            assert!(applied.unused.is_empty() && applied.expired.is_empty());
        }
        // The stack that is offered instead works when its comment sign goes.
        let text = generate(&all[..1])
            .replace("# stack", "stack")
            .lines()
            .filter(|line| !line.starts_with("fingerprint"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(run(&text).0, [1, 2, 3], "{text}");
    }

    proptest! {
        #[test]
        fn generated_files_survive_any_names(
            rules in prop::collection::vec(any::<String>(), 1..6),
            name in any::<String>(),
            chosen in any::<u8>(),
        ) {
            let mut all: Vec<Finding> = rules.iter().map(|rule| {
                let mut made = finding(rule, &[&name]);
                made.message = name.clone();
                made
            }).collect();
            fingerprint::assign(&mut all);
            let (chosen, rest): (Vec<_>, Vec<_>) =
                all.iter().cloned().enumerate().partition(|(at, _)| chosen >> at & 1 != 0);
            let chosen: Vec<Finding> = chosen.into_iter().map(|(_, f)| f).collect();
            let rest: Vec<Finding> = rest.into_iter().map(|(_, f)| f).collect();
            let text = generate(&chosen);
            let suppressions = Suppressions::parse("g", &text).unwrap();
            prop_assert_eq!(suppressions.apply(all, today()).kept, rest);
            let with_stack = text.replace("\n# stack", "\nstack");
            prop_assert!(Suppressions::parse("g", &with_stack).is_ok());
        }

        #[test]
        fn any_text_parses_or_says_where(text in "(\\[\\[suppress\\]\\]|rule|stack|=|\"|'|\n|\\[|\\]|fun:|2027-01-31|expires|\\PC){0,30}") {
            if let Err(error) = Suppressions::parse("f", &text) {
                let lines = text.split('\n').count();
                prop_assert!(error.line.is_some_and(|line| line >= 1 && line <= lines), "{}", error);
            }
        }
    }
}
