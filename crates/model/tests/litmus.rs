//! The litmus files: each expectation is checked against the lazy view *and* the reference.
//!
//! One directive a line, `#` begins a comment:
//!
//! ```text
//! domain: x86 | eadr | hops | page            (default x86)
//! atomicity: word | line                      (default word)
//! flush-order: recorded | program             (default recorded)
//! var NAME ADDR SIZE [= VALUE]                little-endian, at most 16 bytes, at first 0
//! T1 store|nt|rmw NAME VALUE                  the events, in their one total order
//! T1 string up|down 1|2|4|8 NAME VALUE        a store by elements of so many bytes, first or last one first
//! T1 load|clwb|clflushopt|clflush|msync NAME
//! T1 sfence|mfence|locked|ofence|dfence
//! crash at N | N+M | end                      for what follows: after N events (and M pieces of the next)
//! allowed: NAME=VALUE …                       some crash state has all of these
//! forbidden: NAME=VALUE …                     none has
//! exactly: NAME=VALUE … | NAME=VALUE … | …    these and no others (each with the same names)
//! persisted: NAME    not-persisted: NAME      what intervals say
//! ordered: A B       not-ordered: A B         is A ordered before B
//! ```

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use brownout_model::{
    Atomicity, ByteRange, Config, Domain, Event, FlushKind, FlushOrder, History, Intervals, Key,
    Line, Op, Thread, Write, reference,
};
use brownout_trace::event::Elements;
use common::{image_outcomes, lazy_outcomes};

#[derive(Clone, Debug)]
struct Var {
    range: ByteRange,
    initial: u128,
}

type Assignment = Vec<(String, u128)>;

#[derive(Clone, Copy, Debug)]
enum CrashAt {
    End,
    After { events: usize, pieces: usize },
}

#[derive(Clone, Debug)]
enum Expect {
    Allowed(Assignment),
    Forbidden(Assignment),
    Exactly(Vec<Assignment>),
    Persisted(String, bool),
    Ordered(String, String, bool),
}

#[derive(Debug, Default)]
struct Litmus {
    config: Config,
    vars: BTreeMap<String, Var>,
    events: Vec<Event<'static>>,
    expects: Vec<(usize, CrashAt, Expect)>,
}

fn number(text: &str) -> Result<u128, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(&hex.replace('_', ""), 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not a number"))
}

impl Litmus {
    fn parse(text: &str) -> Result<Litmus, String> {
        let mut litmus = Litmus::default();
        let mut crash_at = CrashAt::End;
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                litmus
                    .directive(line, i + 1, &mut crash_at)
                    .map_err(|problem| format!("line {}: {problem}: `{line}`", i + 1))?;
            }
        }
        if litmus.expects.is_empty() {
            return Err("nothing is expected: such a file cannot fail".into());
        }
        Ok(litmus)
    }

    fn var(&self, name: &str) -> Result<&Var, String> {
        self.vars
            .get(name)
            .ok_or_else(|| format!("no variable `{name}`"))
    }

    fn assignment(&self, text: &str) -> Result<Assignment, String> {
        let pairs: Assignment = text
            .split_whitespace()
            .map(|pair| {
                let (name, value) = pair
                    .split_once('=')
                    .ok_or(format!("`{pair}` is not NAME=VALUE"))?;
                let value = number(value)?;
                let len = self.var(name)?.range.len();
                if len < 16 && value >> (8 * len) != 0 {
                    return Err(format!("{value:#x} does not fit into `{name}`"));
                }
                Ok((name.to_string(), value))
            })
            .collect::<Result<_, String>>()?;
        if pairs.is_empty() {
            Err("no NAME=VALUE".into())
        } else {
            Ok(pairs)
        }
    }

    fn directive(
        &mut self,
        line: &str,
        number_of_line: usize,
        crash: &mut CrashAt,
    ) -> Result<(), String> {
        if let Some((key, rest)) = line.split_once(':') {
            let (key, rest) = (key.trim(), rest.trim());
            let unknown = || format!("`{rest}` is no {key}");
            let two = || {
                rest.split_once(' ')
                    .ok_or(format!("`{key}` wants two names"))
            };
            let name = |name: &str| self.var(name.trim()).map(|_| name.trim().to_string());
            let expect = match key {
                "domain" => {
                    self.config.domain = Domain::from_name(rest).ok_or_else(unknown)?;
                    return Ok(());
                }
                "atomicity" => {
                    self.config.atomicity = match rest {
                        "word" => Atomicity::Word,
                        "line" => Atomicity::Line,
                        _ => return Err(unknown()),
                    };
                    return Ok(());
                }
                "flush-order" => {
                    self.config.flush_order = match rest {
                        "recorded" => FlushOrder::Recorded,
                        "program" => FlushOrder::Program,
                        _ => return Err(unknown()),
                    };
                    return Ok(());
                }
                "allowed" => Expect::Allowed(self.assignment(rest)?),
                "forbidden" => Expect::Forbidden(self.assignment(rest)?),
                "exactly" => Expect::Exactly(
                    rest.split('|')
                        .map(|one| self.assignment(one))
                        .collect::<Result<_, _>>()?,
                ),
                "persisted" => Expect::Persisted(name(rest)?, true),
                "not-persisted" => Expect::Persisted(name(rest)?, false),
                "ordered" => Expect::Ordered(name(two()?.0)?, name(two()?.1)?, true),
                "not-ordered" => Expect::Ordered(name(two()?.0)?, name(two()?.1)?, false),
                _ => return Err(format!("unknown directive `{key}`")),
            };
            self.expects.push((number_of_line, *crash, expect));
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["var", name, addr, size] => self.declare(name, addr, size, "0"),
            ["var", name, addr, size, "=", value] => self.declare(name, addr, size, value),
            ["crash", "at", "end"] => {
                *crash = CrashAt::End;
                Ok(())
            }
            ["crash", "at", place] => {
                let (events, pieces) = place.split_once('+').unwrap_or((place, "0"));
                let (events, pieces) = (number(events)? as usize, number(pieces)? as usize);
                if events + usize::from(pieces > 0) > self.events.len() {
                    return Err(format!(
                        "there are only {} events so far",
                        self.events.len()
                    ));
                }
                *crash = CrashAt::After { events, pieces };
                Ok(())
            }
            [thread, ref op @ ..] => {
                let thread = thread
                    .strip_prefix('T')
                    .and_then(|n| n.parse().ok())
                    .ok_or(format!(
                        "`{thread}` is neither a directive nor a thread (T1, T2, …)"
                    ))?;
                if self
                    .expects
                    .iter()
                    .any(|(_, at, _)| matches!(at, CrashAt::End))
                {
                    return Err(
                        "an event after what is expected at the end; say `crash at N` first".into(),
                    );
                }
                let op = self.op(op)?;
                self.events.push(Event::new(Thread(thread), op));
                Ok(())
            }
            [] => Ok(()),
        }
    }

    fn declare(&mut self, name: &str, addr: &str, size: &str, value: &str) -> Result<(), String> {
        let (addr, size, initial) = (number(addr)? as u64, number(size)? as u64, number(value)?);
        if !(1..=16).contains(&size) {
            return Err("the size must be 1 to 16".into());
        }
        let var = Var {
            range: ByteRange::new(Key(addr), size),
            initial,
        };
        match self.vars.insert(name.to_string(), var) {
            Some(_) => Err(format!("`{name}` stands twice")),
            None => Ok(()),
        }
    }

    fn op(&self, words: &[&str]) -> Result<Op<'static>, String> {
        let range = |name: &str| Ok::<_, String>(self.var(name)?.range);
        let flush = |kind, name: &str| {
            Ok::<_, String>(Op::Flush {
                kind,
                line: Line::of(range(name)?.start()),
            })
        };
        let write = |name: &str, value: &str| {
            let value = self.assignment(&format!("{name}={value}"))?[0].1;
            let range = range(name)?;
            Ok::<_, String>(Write::new(
                range.start(),
                value.to_le_bytes()[..range.len() as usize].to_vec(),
            ))
        };
        Ok(match *words {
            ["store", name, value] => Op::Store(write(name, value)?),
            [
                "string",
                direction @ ("up" | "down"),
                bytes @ ("1" | "2" | "4" | "8"),
                name,
                value,
            ] => {
                let elements = Elements {
                    bytes: bytes.parse().map_err(|_| "not a size")?,
                    descending: direction == "down",
                };
                Op::Store(write(name, value)?.by(elements))
            }
            ["nt", name, value] => Op::NtStore(write(name, value)?),
            ["rmw", name, value] => Op::Rmw(write(name, value)?),
            ["load", name] => Op::Load(range(name)?),
            ["clwb", name] => flush(FlushKind::Clwb, name)?,
            ["clflushopt", name] => flush(FlushKind::Clflushopt, name)?,
            ["clflush", name] => flush(FlushKind::Clflush, name)?,
            ["msync", name] => Op::Msync(range(name)?),
            ["sfence"] => Op::Sfence,
            ["mfence"] => Op::Mfence,
            ["locked"] => Op::Locked,
            ["ofence"] => Op::Ofence,
            ["dfence"] => Op::Dfence,
            _ => return Err("unknown or incomplete operation".into()),
        })
    }

    fn events_until(&self, crash: CrashAt) -> Vec<Event<'_>> {
        match crash {
            CrashAt::End => self.events.clone(),
            CrashAt::After { events, pieces } => {
                let mut until: Vec<Event<'_>> = self.events[..events].to_vec();
                if pieces > 0 {
                    let next = self.events[events].pieces(self.config.atomicity);
                    until.extend(next.into_iter().take(pieces));
                }
                until
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for (line, crash, expect) in &self.expects {
            self.check_one(*crash, expect)
                .map_err(|problem| format!("line {line}: {problem}"))?;
        }
        Ok(())
    }

    fn check_one(&self, crash: CrashAt, expect: &Expect) -> Result<(), String> {
        let events = self.events_until(crash);
        let mut history = History::new(self.config);
        let mut intervals = Intervals::new(self.config);
        let mut initial = BTreeMap::new();
        for var in self.vars.values().filter(|var| var.initial != 0) {
            let bytes = &var.initial.to_le_bytes()[..var.range.len() as usize];
            history.set_initial(var.range.start(), bytes);
            initial.extend((var.range.start().0..).zip(bytes.iter().copied()));
        }
        for event in &events {
            history.apply(event).map_err(|error| error.to_string())?;
            intervals.apply(event);
        }
        let images =
            reference::enumerate(self.config, &initial, &events).ok_or("too many stores")?;
        let outcomes = |names: &Assignment| -> Result<BTreeSet<Vec<u128>>, String> {
            let ranges: Vec<ByteRange> = names
                .iter()
                .map(|(name, _)| self.vars[name].range)
                .collect();
            let values = |outcomes: BTreeSet<Vec<Vec<u8>>>| -> BTreeSet<Vec<u128>> {
                let value =
                    |bytes: &Vec<u8>| bytes.iter().rev().fold(0, |v, b| v << 8 | u128::from(*b));
                outcomes
                    .iter()
                    .map(|outcome| outcome.iter().map(value).collect())
                    .collect()
            };
            let lazy = values(lazy_outcomes(&history.crash(), &ranges));
            let brute = values(image_outcomes(&images, &ranges));
            if lazy != brute {
                return Err(format!(
                    "the lazy view says {lazy:x?}, the reference {brute:x?}"
                ));
            }
            Ok(lazy)
        };
        let wanted = |one: &Assignment| one.iter().map(|(_, value)| *value).collect::<Vec<u128>>();
        match expect {
            Expect::Allowed(one) | Expect::Forbidden(one) => {
                let possible = outcomes(one)?;
                let allowed = matches!(expect, Expect::Allowed(_));
                if possible.contains(&wanted(one)) != allowed {
                    let word = if allowed { "not possible" } else { "possible" };
                    return Err(format!("{one:x?} is {word}; possible are {possible:x?}"));
                }
            }
            Expect::Exactly(all) => {
                let names =
                    |one: &Assignment| one.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
                if all.iter().any(|one| names(one) != names(&all[0])) {
                    return Err("`exactly` wants the same names in the same order".into());
                }
                let possible = outcomes(&all[0])?;
                let expected: BTreeSet<_> = all.iter().map(wanted).collect();
                if possible != expected {
                    return Err(format!(
                        "expected exactly {expected:x?}; possible are {possible:x?}"
                    ));
                }
            }
            Expect::Persisted(name, expected) => {
                if intervals.is_persisted(self.vars[name].range) != *expected {
                    return Err(format!("is_persisted({name}) is {}", !expected));
                }
            }
            Expect::Ordered(a, b, expected) => {
                let (a_range, b_range) = (self.vars[a].range, self.vars[b].range);
                if intervals.is_ordered_before(a_range, b_range) != *expected {
                    return Err(format!("is_ordered_before({a}, {b}) is {}", !expected));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn every_file_holds() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/litmus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "lit"))
        .collect();
    files.sort();
    assert!(
        files.len() >= 100,
        "only {} litmus files: some are missing",
        files.len()
    );
    let mut problems = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("readable");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Err(problem) = Litmus::parse(&text).and_then(|litmus| litmus.check()) {
            problems.push(format!("{name}: {problem}"));
        }
    }
    assert!(
        problems.is_empty(),
        "{} of {} fail:\n{}",
        problems.len(),
        files.len(),
        problems.join("\n")
    );
}

const PERSISTED: &str =
    "var x 0x1000 8\nvar y 0x1040 8\nT1 store x 1\nT1 clwb x\nT1 sfence\nT1 store y 1\n";

#[test]
fn canary_wrong_expectations_fail() {
    for (expectation, complaint) in [
        ("allowed: x=0", "not possible"),
        ("forbidden: x=1 y=0", "is possible"),
        ("exactly: x=1 y=1", "expected exactly"),
        ("not-persisted: x", "is_persisted(x) is true"),
        ("persisted: y", "is_persisted(y) is false"),
        ("ordered: y x", "is_ordered_before(y, x) is false"),
        ("not-ordered: x y", "is_ordered_before(x, y) is true"),
        ("crash at 2\nforbidden: x=0", "is possible"),
    ] {
        let litmus = Litmus::parse(&format!("{PERSISTED}{expectation}")).expect("well-formed");
        let problem = litmus.check().expect_err(expectation);
        assert!(problem.contains(complaint), "{expectation}: {problem}");
    }
}

#[test]
fn malformed_files_say_where_and_what() {
    for (line, complaint) in [
        ("domain: arm", "`arm` is no domain"),
        ("var x 0x2000 8", "`x` stands twice"),
        ("var z 0x2000 17", "the size must be 1 to 16"),
        ("T1 store z 1", "no variable `z`"),
        ("T1 store x", "unknown or incomplete operation"),
        ("T1 store x 0x1_0000_0000_0000_0000", "does not fit"),
        ("P1 sfence", "neither a directive nor a thread"),
        ("crash at 9", "there are only 4 events"),
        ("allowed: x", "not NAME=VALUE"),
        ("allowed:", "no NAME=VALUE"),
        ("ordered: x", "wants two names"),
        ("maybe: x=1", "unknown directive `maybe`"),
    ] {
        let problem = Litmus::parse(&format!("{PERSISTED}{line}")).expect_err(line);
        assert!(
            problem.starts_with("line 7: ") && problem.contains(complaint),
            "{line}: {problem}"
        );
    }
    assert!(
        Litmus::parse(PERSISTED)
            .expect_err("no expectation")
            .contains("cannot fail")
    );
    let late =
        Litmus::parse(&format!("{PERSISTED}allowed: x=1\nT1 sfence")).expect_err("late event");
    assert!(
        late.starts_with("line 8: ") && late.contains("say `crash at N` first"),
        "{late}"
    );
}
