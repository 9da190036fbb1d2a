//! The name of a test case's file, as AFL++ makes it.
//!
//! ```text
//! id:000000,time:0,execs:0,orig:seed.txt                                    a seed
//! id:000007,src:000003,time:1475,execs:2251,op:havoc,rep:8,+cov             made from case 3
//! id:000021,src:000000+000012,time:14809,execs:32932,op:splice,rep:4        spliced from two
//! id:000023,sync:main,src:000004,+cov                                       taken over from another fuzzer
//! id:000000,sig:06,src:000002,time:88,execs:901,op:flip1,pos:3              in `crashes`
//! ```
//!
//! **Guarantee.** A name that is made here is at most [`NAME_BYTES_MAX`] bytes long, has neither
//! `/` nor control characters, and [`CaseName::parse`] gives back what it was made from, as far as
//! that fitted. Names that AFL++ 4.04 writes are parsed and made again byte for byte, those of
//! custom mutators with their own descriptions included.
//!
//! **Source.** `describe_op`, `save_if_interesting` and `pivot_inputs` of AFL++ 4.04c, and names
//! that it has written.

use std::fmt;

/// What Linux allows for one name.
pub const NAME_BYTES_MAX: usize = 255;

/// A parsed name. Make one with [`CaseName::seed`], [`CaseName::from_case`] or
/// [`CaseName::imported`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseName {
    /// The case's number in its folder.
    pub id: u64,
    /// The signal that ended the program; in `crashes` only.
    pub signal: Option<u8>,
    /// Where it comes from.
    pub origin: Origin,
    /// Milliseconds of the campaign until it was found. AFL++ gives none for imported cases.
    pub time_ms: Option<u64>,
    /// Executions until it was found; likewise.
    pub execs: Option<u64>,
    /// What made it: the part after `op:`.
    pub op: Option<String>,
    /// What else is said: `rep:8`, `pos:3`, `val:be:+7`, or a custom mutator's description.
    pub details: Vec<String>,
    /// The program did not end in time, but it showed something new (`+tout`).
    pub timed_out: bool,
    /// It reached something new, and not only another count (`+cov`).
    pub new_coverage: bool,
}

/// Where a case comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file that the user gave, by its name.
    Seed(String),
    /// One case of the same folder, or two that were spliced.
    Case(u64, Option<u64>),
    /// Case `src` of the fuzzer `party`.
    Imported {
        /// The other fuzzer's folder.
        party: String,
        /// The case's number there.
        src: u64,
    },
    /// The name does not say.
    Unknown,
}

impl CaseName {
    /// A seed that lay in a file called `file_name`.
    pub fn seed(id: u64, file_name: &str) -> CaseName {
        CaseName {
            time_ms: Some(0),
            execs: Some(0),
            ..CaseName::blank(id, Origin::Seed(tidy(file_name)))
        }
    }

    /// A case made from another by `op`, or from two.
    pub fn from_case(id: u64, src: u64, with: Option<u64>, op: &str) -> CaseName {
        CaseName {
            time_ms: Some(0),
            execs: Some(0),
            op: Some(tidy_field(op)),
            ..CaseName::blank(id, Origin::Case(src, with))
        }
    }

    /// A case that was another fuzzer's.
    pub fn imported(id: u64, party: &str, src: u64) -> CaseName {
        let party = tidy_field(party);
        CaseName::blank(id, Origin::Imported { party, src })
    }

    /// When it was found.
    pub fn at(mut self, time_ms: u64, execs: u64) -> CaseName {
        (self.time_ms, self.execs) = (Some(time_ms), Some(execs));
        self
    }

    /// By which signal the program ended.
    pub fn signal(mut self, signal: u8) -> CaseName {
        self.signal = Some(signal);
        self
    }

    /// Adds `rep:8` or whatever else there is to say.
    pub fn detail(mut self, detail: &str) -> CaseName {
        self.details.push(tidy_field(detail));
        self
    }

    /// Whether it reached something new.
    pub fn new_coverage(mut self, yes: bool) -> CaseName {
        self.new_coverage = yes;
        self
    }

    fn blank(id: u64, origin: Origin) -> CaseName {
        CaseName {
            id,
            signal: None,
            origin,
            time_ms: None,
            execs: None,
            op: None,
            details: Vec::new(),
            timed_out: false,
            new_coverage: false,
        }
    }

    /// `None` if it is not the name of a case (`README.txt`, `.state`).
    pub fn parse(name: &str) -> Option<CaseName> {
        // AFL++ built for file systems without colons writes `id_000000`, and `id_000000_06` in
        // `crashes`.
        if let Some(simple) = name.strip_prefix("id_") {
            let (id, signal) = simple.split_once('_').unwrap_or((simple, ""));
            let mut case = CaseName::blank(number(id)?, Origin::Unknown);
            if !signal.is_empty() {
                case.signal = Some(signal.parse().ok()?);
            }
            return Some(case);
        }
        let rest = name.strip_prefix("id:")?;
        let (id, mut rest) = rest.split_once(',').unwrap_or((rest, ""));
        let mut case = CaseName::blank(number(id)?, Origin::Unknown);
        let mut party: Option<String> = None;
        while !rest.is_empty() {
            // A seed's name is the last field and may have commas in it.
            if let Some(name) = rest.strip_prefix("orig:")
                && case.origin == Origin::Unknown
                && case.details.is_empty()
            {
                case.origin = Origin::Seed(name.to_owned());
                break;
            }
            let (field, next) = rest.split_once(',').unwrap_or((rest, ""));
            rest = next;
            let (key, value) = field.split_once(':').unwrap_or((field, ""));
            // Each is known only where AFL++ writes it: a custom mutator's description may say
            // anything.
            let early = case.op.is_none() && case.details.is_empty();
            match key {
                "sig" if early && case.signal.is_none() && value.parse::<u8>().is_ok() => {
                    case.signal = value.parse().ok();
                }
                "sync" if early && party.is_none() && case.origin == Origin::Unknown => {
                    party = Some(value.to_owned());
                }
                "src" if early && case.origin == Origin::Unknown && source(value).is_some() => {
                    let (src, with) = source(value)?;
                    case.origin = match party.take() {
                        Some(party) => Origin::Imported { party, src },
                        None => Origin::Case(src, with),
                    };
                }
                "time" if early && case.time_ms.is_none() && number(value).is_some() => {
                    case.time_ms = number(value);
                }
                "execs" if early && case.execs.is_none() && number(value).is_some() => {
                    case.execs = number(value);
                }
                "op" if early => case.op = Some(value.to_owned()),
                "+tout" if matches!(rest, "" | "+cov") => case.timed_out = true,
                "+cov" if rest.is_empty() => case.new_coverage = true,
                _ => case.details.push(field.to_owned()),
            }
        }
        if let Some(party) = party {
            case.details.insert(0, format!("sync:{party}"));
        }
        Some(case)
    }
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn source(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once('+') {
        Some((one, other)) => Some((number(one)?, Some(number(other)?))),
        None => Some((number(text)?, None)),
    }
}

/// What cannot be in a file's name, or would do something to a terminal, becomes `_`.
fn tidy(text: &str) -> String {
    let tidy = |c: char| match c {
        '/' => '_',
        c if c.is_control() => '_',
        c => c,
    };
    text.chars().map(tidy).collect()
}

/// The same for one field among several.
fn tidy_field(text: &str) -> String {
    tidy(text).replace(',', "_")
}

/// The longest beginning of `text` that has at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl fmt::Display for CaseName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = format!("id:{:06}", self.id);
        if let Some(signal) = self.signal {
            name += &format!(",sig:{signal:02}");
        }
        match &self.origin {
            Origin::Case(src, None) => name += &format!(",src:{src:06}"),
            Origin::Case(src, Some(with)) => name += &format!(",src:{src:06}+{with:06}"),
            Origin::Imported { party, src } => {
                // The folder of another fuzzer may have as long a name as ours.
                name += &format!(",sync:{},src:{src:06}", cut(party, 100));
            }
            Origin::Seed(_) | Origin::Unknown => {}
        }
        if let Some(time) = self.time_ms {
            name += &format!(",time:{time}");
        }
        if let Some(execs) = self.execs {
            name += &format!(",execs:{execs}");
        }
        let mut end = String::new();
        if self.timed_out {
            end += ",+tout";
        }
        if self.new_coverage {
            end += ",+cov";
        }
        let mut left = NAME_BYTES_MAX.saturating_sub(name.len() + end.len());
        let mut add = |prefix: &str, text: &str| {
            if prefix.len() < left {
                let text = cut(text, left - prefix.len());
                left -= prefix.len() + text.len();
                name += prefix;
                name += text;
            }
        };
        if let Some(op) = &self.op {
            add(",op:", op);
        }
        for detail in &self.details {
            add(",", detail);
        }
        if let Origin::Seed(orig) = &self.origin {
            add(",orig:", orig);
        }
        name += &end;
        out.write_str(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All of these were written by Debian's afl-fuzz 4.04c, or follow its format strings.
    const WRITTEN_BY_AFL: &[&str] = &[
        "id:000000,time:0,execs:0,orig:two.txt",
        "id:000002,src:000000,time:4,execs:15,op:havoc,rep:8,+cov",
        "id:000014,src:000000,time:2455,execs:4179,op:havoc,rep:16",
        "id:000021,src:000000+000012,time:14809,execs:32932,op:splice,rep:4",
        "id:000023,sync:brownout,src:000000,+cov",
        "id:000000,sig:06,sync:brownout,src:000002",
        "id:000001,sig:11,src:000003,time:88,execs:901,op:flip1,pos:3",
        "id:000004,src:000001,time:7,execs:77,op:int32,pos:12,val:be:+100663046,+tout,+cov",
        "id:000004,src:000001,time:7,execs:77,op:arith8,pos:12,val:-7",
        "id:000005,src:000001,time:7,execs:77,what the mutator says:op:x,y",
        "id:1000000,src:999999,time:7,execs:77,op:havoc,rep:2",
        "id:000003,time:0,execs:0,orig:a,b,+cov,id:000001",
        "id:000006,time:0,execs:0,orig:",
    ];

    #[test]
    fn names_of_afl_are_understood_and_made_again() {
        for name in WRITTEN_BY_AFL {
            let parsed = CaseName::parse(name).unwrap();
            assert_eq!(&parsed.to_string(), name);
        }
        let spliced = CaseName::parse(WRITTEN_BY_AFL[3]).unwrap();
        assert_eq!(spliced.id, 21);
        assert_eq!(spliced.origin, Origin::Case(0, Some(12)));
        assert_eq!((spliced.time_ms, spliced.execs), (Some(14809), Some(32932)));
        assert_eq!(spliced.op.as_deref(), Some("splice"));
        assert_eq!(spliced.details, ["rep:4"]);
        let crash = CaseName::parse(WRITTEN_BY_AFL[5]).unwrap();
        let party = "brownout".to_owned();
        assert_eq!(crash.origin, Origin::Imported { party, src: 2 });
        assert_eq!(crash.signal, Some(6));
        let custom = CaseName::parse(WRITTEN_BY_AFL[9]).unwrap();
        assert_eq!(custom.op, None);
        assert_eq!(custom.details, ["what the mutator says:op:x", "y"]);
        let late = CaseName::parse(WRITTEN_BY_AFL[7]).unwrap();
        assert!(late.timed_out && late.new_coverage);
    }

    #[test]
    fn simple_names_are_understood() {
        assert_eq!(CaseName::parse("id_000012").unwrap().id, 12);
        let crash = CaseName::parse("id_000012_11").unwrap();
        assert_eq!((crash.id, crash.signal), (12, Some(11)));
    }

    #[test]
    fn other_files_are_not_cases() {
        for name in [
            "",
            "README.txt",
            ".state",
            "id:",
            "id:x",
            "id:-1",
            "id: 1",
            "id:99999999999999999999999",
            "id_",
            "id_1_x",
        ] {
            assert_eq!(CaseName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn our_names_look_like_theirs() {
        let seed = CaseName::seed(0, "dir/a\nb\x1b[2J.txt");
        assert_eq!(
            seed.to_string(),
            "id:000000,time:0,execs:0,orig:dir_a_b_[2J.txt"
        );
        let havoc = CaseName::from_case(7, 3, None, "havoc")
            .at(12, 34)
            .detail("rep:4,x")
            .new_coverage(true);
        assert_eq!(
            havoc.to_string(),
            "id:000007,src:000003,time:12,execs:34,op:havoc,rep:4_x,+cov"
        );
    }

    proptest! {
        #[test]
        fn any_name_fits_and_comes_back(
            id in any::<u64>(), src in any::<u64>(), with in any::<Option<u64>>(),
            time in any::<u64>(), execs in any::<u64>(), text in "\\PC{0,300}",
            signal in any::<Option<u8>>(), cov in any::<bool>(), which in 0..3,
        ) {
            let case = match which {
                0 => CaseName::seed(id, &text),
                1 => CaseName::from_case(id, src, with, &text).detail("rep:2"),
                _ => CaseName::imported(id, &text, src),
            };
            let mut case = case.at(time, execs);
            // A seed's name is the last field, so AFL++ adds nothing to it.
            case.new_coverage = cov && which != 0;
            case.signal = signal;
            let name = case.to_string();
            prop_assert!(name.len() <= NAME_BYTES_MAX, "{}", name.len());
            let again = CaseName::parse(&name).unwrap();
            prop_assert_eq!((again.id, again.signal), (id, signal));
            prop_assert_eq!((again.time_ms, again.execs), (Some(time), Some(execs)));
            prop_assert_eq!(again.new_coverage, case.new_coverage);
            prop_assert_eq!(again.to_string(), name);
            if text.len() < 60 {
                prop_assert_eq!(again, case);
            }
        }

        #[test]
        fn nonsense_is_survived(name in "(id[:_])?[\\PC,:+0-9]{0,80}") {
            if let Some(case) = CaseName::parse(&name) {
                prop_assert!(case.to_string().len() <= NAME_BYTES_MAX);
            }
        }
    }
}
