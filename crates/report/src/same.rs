//! Which findings of two reports are the same bug.
//!
//! **Purpose.** A [fingerprint](crate::fingerprint) is made of functions, so that moved lines do
//! not matter. The price is that it does not tell apart what two lines of one function do: who
//! mends one of them and makes the same mistake at another has the same fingerprint as before.
//! Where both reports have more to go by, [`pairs`] looks at that, too: the text of the source line
//! that is to blame, the lines around it, and what the program calls the bytes.
//!
//! **Guarantee.** Each finding has at most one partner, and swapping the reports gives the same
//! pairs. Two findings of one fingerprint are different only if both reports show that: another
//! text at the line *and* other lines around it, or other names of the bytes. Where one of the
//! reports lacks the lines (it was made without sources, or they were changed after the build) or
//! the names, the fingerprint alone counts. Lines that move, blank lines and indentation make no
//! difference.
//!
//! **Deviations.**
//!
//! 1. Whoever changes a line that has a known finding, and also one of the two lines before or
//!    after it, gets a new finding, unless the bytes have the same name as before and neither
//!    report shows both lines.
//! 2. Of lines with the same text, the same names and the same lines around them, or of which
//!    nothing is known, as many are known as there were before; which ones may be told wrongly.
//!    One that could be several others takes the first, which may leave none for the next.
//! 3. Callers count by the names of their functions alone.

use std::collections::{HashMap, HashSet, VecDeque};

use brownout_findings::{Event, Finding, Frame, Report, Role, SourceText};

use crate::{fingerprint, site};

/// So many lines with something on them are looked at before and after the one in question.
const AROUND: usize = 2;

/// What a finding is known again by.
#[derive(Clone, Debug)]
pub struct Known {
    fingerprint: String,
    /// The same for all that only lines, bytes and numbers tell apart.
    kind: String,
    looks: Vec<Look>,
}

/// What stands at one place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Look {
    text: Option<String>,
    /// Lines before and behind.
    around: (Vec<String>, Vec<String>),
    /// What the bytes are called; elements of an array all have the same name.
    name: Option<String>,
}

/// The findings of a report, and the lines that it shows.
#[derive(Clone, Debug, Default)]
pub struct Side {
    findings: Vec<Known>,
    lines: HashSet<String>,
}

impl Side {
    /// Of a whole report.
    pub fn of(report: &Report) -> Side {
        Side::made(&report.findings, &report.sources)
    }

    /// Of findings, and the source lines that came with them.
    pub fn made(findings: &[Finding], sources: &[SourceText]) -> Side {
        let mut side = Side::default();
        side.add(findings, sources);
        side
    }

    /// Puts more findings behind those that are there.
    pub fn add(&mut self, findings: &[Finding], sources: &[SourceText]) {
        let lines = Lines::of(sources);
        self.findings
            .extend(findings.iter().map(|finding| Known::of(finding, &lines)));
        self.lines.extend(lines.all().map(squeezed));
    }

    /// Takes the findings at these places of another side.
    pub fn take(&mut self, other: &Side, places: impl Iterator<Item = usize>) {
        let taken = places.map(|at| other.findings[at].clone());
        self.findings.extend(taken);
        self.lines.extend(other.lines.iter().cloned());
    }

    /// A finding of which nothing is known but its fingerprint.
    pub fn add_fingerprint(&mut self, fingerprint: String) {
        self.findings.push(Known {
            fingerprint,
            kind: String::new(),
            looks: Vec::new(),
        });
    }

    /// How many findings there are.
    pub fn len(&self) -> usize {
        self.findings.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }
}

/// For each finding of `new` the one of `old` that is the same. What has no fingerprint has no
/// partner.
pub fn pairs(old: &Side, new: &Side) -> Vec<Option<usize>> {
    let mut pairing = Pairing {
        old,
        new,
        of_old: vec![None; old.len()],
        of_new: vec![None; new.len()],
    };
    type Key<'a> = Option<(&'a str, Vec<&'a Look>)>;
    // The strongest reasons come first. With each, one that has the same fingerprint is the first
    // choice.
    let by_name: [fn(&Known) -> &str; 2] = [|known| &known.fingerprint, |known| &known.kind];
    for name in by_name {
        pairing.by(|known| -> Key { Some((name(known), known.whole()?.collect())) });
    }
    for name in by_name {
        pairing.by(|known| {
            let texts = known.whole()?.map(|look| (&look.text, &look.name));
            Some((name(known), texts.collect::<Vec<_>>()))
        });
    }
    // The line itself was changed, and nothing around it.
    for name in by_name {
        pairing.by(|known| {
            let is_certain = |look: &Look| look.around.0.len() + look.around.1.len() > AROUND;
            let places = known.whole()?.map(|look| (&look.around, &look.name));
            let places: Vec<_> = places.collect();
            known
                .looks
                .iter()
                .all(is_certain)
                .then(|| (name(known), places))
        });
    }
    pairing.by_fingerprint();
    pairing.of_new
}

struct Pairing<'a> {
    old: &'a Side,
    new: &'a Side,
    of_old: Vec<Option<usize>>,
    of_new: Vec<Option<usize>>,
}

impl<'a> Pairing<'a> {
    /// Those are the same that are left and have the same key, in their order.
    fn by<K: std::hash::Hash + Eq>(&mut self, key: impl Fn(&'a Known) -> Option<K>) {
        let mut waiting: HashMap<K, VecDeque<usize>> = HashMap::new();
        for (at, known) in self.old.findings.iter().enumerate() {
            if self.of_old[at].is_none()
                && known.is_named()
                && let Some(key) = key(known)
            {
                waiting.entry(key).or_default().push_back(at);
            }
        }
        for (at, known) in self.new.findings.iter().enumerate() {
            if self.of_new[at].is_none()
                && known.is_named()
                && let Some(partner) = key(known)
                    .and_then(|key| waiting.get_mut(&key))
                    .and_then(VecDeque::pop_front)
            {
                self.of_new[at] = Some(partner);
                self.of_old[partner] = Some(at);
            }
        }
    }

    /// Those are the same that have the same fingerprint, unless more is known and speaks against
    /// it. Both sides would choose the first that is left, so it does not matter which one does.
    fn by_fingerprint(&mut self) {
        let mut waiting: HashMap<&str, VecDeque<usize>> = HashMap::new();
        for (at, known) in self.old.findings.iter().enumerate() {
            if self.of_old[at].is_none() && known.is_named() {
                waiting.entry(&known.fingerprint).or_default().push_back(at);
            }
        }
        for (at, known) in self.new.findings.iter().enumerate() {
            if self.of_new[at].is_some() {
                continue;
            }
            let Some(others) = waiting.get_mut(known.fingerprint.as_str()) else {
                continue;
            };
            let first = others
                .iter()
                .position(|other| !self.is_other(&self.old.findings[*other], known));
            if let Some(partner) = first.and_then(|first| others.remove(first)) {
                self.of_new[at] = Some(partner);
                self.of_old[partner] = Some(at);
            }
        }
    }

    /// True if both reports tell enough of the two to say that they are at different places.
    fn is_other(&self, old: &Known, new: &Known) -> bool {
        if old.looks.len() != new.looks.len() {
            return false;
        }
        let mut places = old.looks.iter().zip(&new.looks);
        places.any(|(old, new)| {
            let names = old.name.as_ref().zip(new.name.as_ref());
            let texts = old.text.as_ref().zip(new.text.as_ref());
            match (texts, names) {
                (_, Some((before, after))) if before != after => true,
                (Some((before, after)), _) if before == after => false,
                // Two lines that do the same, both of which are there; else it was changed.
                (Some((before, after)), Some(_)) => {
                    self.new.lines.contains(before) || self.old.lines.contains(after)
                }
                (Some(_), None) => true,
                (None, _) => false,
            }
        })
    }
}

impl Known {
    fn of(finding: &Finding, lines: &Lines<'_>) -> Known {
        Known {
            fingerprint: finding.fingerprint.clone(),
            kind: fingerprint::kind(finding),
            looks: blamed(finding)
                .flat_map(|event| looks(event, lines))
                .collect(),
        }
    }

    fn is_named(&self) -> bool {
        !self.fingerprint.is_empty()
    }

    /// The looks, if the text of each is known.
    fn whole(&self) -> Option<impl Iterator<Item = &Look>> {
        let is_known = !self.looks.is_empty() && self.looks.iter().all(|look| look.text.is_some());
        is_known.then(|| self.looks.iter())
    }
}

/// The events that say where the mistake is: the stores, or what else causes the finding.
fn blamed(finding: &Finding) -> impl Iterator<Item = &Event> {
    let stores = finding
        .events
        .iter()
        .filter(|event| matches!(event.role, Role::Store | Role::Survivor));
    let has_store = stores.clone().next().is_some();
    let other = site::causing_event(finding).filter(|_| !has_store);
    stores.chain(other)
}

/// What stands where the event is, and where a header is used that it is in.
fn looks<'a>(event: &'a Event, lines: &'a Lines<'a>) -> impl Iterator<Item = Look> + 'a {
    let name = event.place.as_ref().and_then(|place| place.name.as_deref());
    let site = site::site(&event.stack).map(|at| &event.stack[at]);
    let frames = site.into_iter().chain(site::including(&event.stack));
    frames.map(move |frame| Look {
        name: name.map(without_numbers),
        ..lines.look(frame).unwrap_or_default()
    })
}

/// `bucket[3].key` is the key of any bucket.
fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut is_inside = false;
    for c in name.chars() {
        is_inside = match c {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        if c == '[' || !is_inside {
            out.push(c);
        }
    }
    out
}

/// A line without what only its layout is made of.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The source lines of a report that are those of its program.
struct Lines<'a> {
    files: HashMap<&'a str, HashMap<u32, &'a str>>,
}

impl<'a> Lines<'a> {
    fn of(sources: &'a [SourceText]) -> Lines<'a> {
        let mut files: HashMap<&str, HashMap<u32, &str>> = HashMap::new();
        // What has been changed since has other lines at these numbers.
        for source in sources.iter().filter(|source| !source.newer) {
            let lines = files.entry(&source.file).or_default();
            for excerpt in &source.excerpts {
                let text = excerpt.text.iter().map(String::as_str);
                lines.extend((excerpt.line..).zip(text));
            }
        }
        Lines { files }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.files
            .values()
            .flat_map(|lines| lines.values().copied())
    }

    fn look(&self, frame: &Frame) -> Option<Look> {
        let lines = self.files.get(frame.file.as_deref()?)?;
        let at = frame.line?;
        let text = squeezed(lines.get(&at)?);
        // A bracket alone stands everywhere.
        if !text.contains(char::is_alphanumeric) {
            return None;
        }
        let near = |numbers: &mut dyn Iterator<Item = u32>| -> Vec<String> {
            let lines = numbers.map_while(|number| lines.get(&number));
            let lines = lines.map(|line| squeezed(line));
            lines.filter(|line| !line.is_empty()).take(AROUND).collect()
        };
        let last = at.checked_add(1)?;
        Some(Look {
            text: Some(text),
            around: (near(&mut (1..at).rev()), near(&mut (last..u32::MAX))),
            name: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{Excerpt, Place, Severity};
    use proptest::prelude::*;

    /// A report on a program of one file: findings are at the lines with a mark, `@name` or `@`
    /// alone, which are not part of them.
    fn side(program: &str) -> Side {
        let mut findings = Vec::new();
        let mut text = Vec::new();
        for (number, line) in (1..).zip(program.lines()) {
            let (line, mark) = match line.split_once('@') {
                Some((line, mark)) => (line, Some(mark)),
                None => (line, None),
            };
            text.push(line.to_owned());
            findings.extend(mark.map(|name| finding(number, name)));
        }
        fingerprint::assign(&mut findings);
        let sources = SourceText {
            file: "a.c".into(),
            newer: false,
            excerpts: vec![Excerpt { line: 1, text }],
        };
        Side::made(&findings, &[sources])
    }

    fn finding(line: u32, name: &str) -> Finding {
        let mut made = Finding::new("missing-flush", Severity::Correctness, "m");
        made.events.push(Event {
            stack: vec![Frame {
                function: Some("put".into()),
                file: Some("a.c".into()),
                line: Some(line),
                ..Frame::default()
            }],
            place: Some(Place {
                file: "pool".into(),
                offset: 0,
                size: 8,
                address: 0,
                name: (!name.is_empty()).then(|| name.to_owned()),
            }),
            ..Event::new(Role::Store, "stored")
        });
        made
    }

    fn partners(old: &str, new: &str) -> Vec<Option<usize>> {
        let (old, new) = (side(old), side(new));
        let there = pairs(&old, &new);
        let back = pairs(&new, &old);
        for (at, partner) in there.iter().enumerate() {
            assert!(partner.is_none_or(|partner| back[partner] == Some(at)));
        }
        there
    }

    #[test]
    fn a_bug_that_was_mended_is_not_one_that_was_made() {
        let old = "void put(p)\n{\n p->a = 1;@\n p->b = 2;\n persist(&p->b);\n}";
        let swapped = "void put(p)\n{\n p->a = 1;\n persist(&p->a);\n p->b = 2;@\n}";
        assert_eq!(partners(old, swapped), [None]);
        // One is mended, and one stays: it is that one, although it has got the fingerprint of the
        // other.
        let two = "{\n p->a = 1;@\n p->b = 2;@\n}";
        assert_eq!(partners(two, "{\n p->b = 2;@\n}"), [Some(1)]);
        assert_eq!(partners("{\n p->b = 2;@\n}", two), [None, Some(0)]);
    }

    #[test]
    fn what_is_edited_around_a_bug_makes_no_other_bug_of_it() {
        let old = "{\n a();\n b();\n p->a = 1;@\n c();\n d();\n}";
        let moved = "/* new */\n\n{\n  a();\n\n  b();\n    p->a  =  1;@\n  e();\n  c();\n}";
        assert_eq!(partners(old, moved), [Some(0)]);
        // The line itself, and nothing else.
        assert_eq!(partners(old, &old.replace("a = 1", "a = 2")), [Some(0)]);
        // The line and what stands beside it, but the bytes have the same name.
        let named = |text: &str| text.replace('@', "@p->a");
        let edited = old.replace("a = 1", "a = 2").replace("c();", "e();");
        assert_eq!(partners(old, &edited), [None]);
        assert_eq!(partners(&named(old), &named(&edited)), [Some(0)]);
        // Unless the line that it was is still there.
        let other = edited
            .replace("a = 2;@", "a = 2;@p->a")
            .replace("d();", "p->a = 1;");
        assert_eq!(partners(&named(old), &other), [None]);
    }

    #[test]
    fn names_count_as_far_as_they_are_known() {
        let line = |name: &str| format!("{{\n a();\n *to = v;@{name}\n b();\n}}");
        assert_eq!(partners(&line("x->a"), &line("x->b")), [None]);
        assert_eq!(partners(&line("x[3].a"), &line("x[12].a")), [Some(0)]);
        assert_eq!(partners(&line("x->a"), &line("")), [Some(0)]);
    }

    fn arbitrary_side() -> impl Strategy<Value = Side> {
        let word = |words: &'static [&'static str]| {
            prop::option::of(prop::sample::select(words).prop_map(str::to_owned))
        };
        let look = (
            word(&["a = 1;", "b = 2;"]),
            word(&["{", "}"]),
            word(&["x", "y"]),
        );
        let look = look.prop_map(|(text, before, name)| Look {
            text,
            around: (before.into_iter().collect(), Vec::new()),
            name,
        });
        let known = (
            // One of them has none.
            prop::sample::select(vec!["", "one", "two"]),
            prop::sample::select(vec!["this", "that"]),
            prop::collection::vec(look, 0..2),
        );
        let known = known.prop_map(|(fingerprint, kind, looks)| Known {
            fingerprint: fingerprint.to_owned(),
            kind: kind.to_owned(),
            looks,
        });
        let lines = prop::sample::subsequence(vec!["a = 1;", "b = 2;"], 0..=2);
        (prop::collection::vec(known, 0..8), lines).prop_map(|(findings, lines)| Side {
            findings,
            lines: lines.into_iter().map(str::to_owned).collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Also where a report has a fingerprint several times.
        #[test]
        fn swapping_the_reports_gives_the_same_pairs(old in arbitrary_side(), new in arbitrary_side()) {
            let there = pairs(&old, &new);
            let mut swapped = vec![None; old.len()];
            for (at, partner) in there.iter().enumerate() {
                if let Some(partner) = *partner {
                    prop_assert!(swapped[partner].is_none(), "it has two partners");
                    swapped[partner] = Some(at);
                }
            }
            prop_assert_eq!(pairs(&new, &old), swapped);
        }
    }

    /// What is not the same as the first may be the same as the next.
    #[test]
    fn of_several_with_one_fingerprint_each_is_looked_at() {
        let (a, b) = (finding(2, "x->a"), finding(2, "x->b"));
        let mut both = [a, b];
        let fingerprint = "the same".to_owned();
        both.iter_mut()
            .for_each(|one| one.fingerprint.clone_from(&fingerprint));
        let old = Side::made(&both, &[]);
        let new = Side::made(&both[1..], &[]);
        assert_eq!(pairs(&old, &new), [Some(1)]);
        assert_eq!(pairs(&new, &old), [None, Some(0)]);
    }

    #[test]
    fn without_lines_the_fingerprint_counts() {
        let with = side("{\n a = 1;@\n}");
        let mut findings = vec![finding(40, "")];
        fingerprint::assign(&mut findings);
        let without = Side::made(&findings, &[]);
        assert_eq!(pairs(&with, &without), [Some(0)]);
        assert_eq!(pairs(&without, &with), [Some(0)]);
        let newer = SourceText {
            file: "a.c".into(),
            newer: true,
            excerpts: vec![Excerpt {
                line: 40,
                text: vec!["b = 1;".into()],
            }],
        };
        let changed = Side::made(&findings, &[newer]);
        assert_eq!(pairs(&with, &changed), [Some(0)]);
        let mut bare = Side::default();
        bare.add_fingerprint(findings[0].fingerprint.clone());
        assert_eq!(pairs(&bare, &with), [Some(0)]);
        bare.add_fingerprint(String::new());
        assert_eq!(pairs(&with, &bare), [Some(0), None]);
    }
}
