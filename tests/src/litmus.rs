//! The litmus tests in `tests/race/litmus`: what threads can see of each other, and what a crash
//! can leave of it.
//!
//! The form is that of `crates/model/tests/litmus`, except that threads are programs: the lines of
//! a thread stand in its order, and the order between threads is not given. One directive a line,
//! `#` begins a comment:
//!
//! ```text
//! threads: programs                           in every file here, to tell the two forms apart
//! var NAME ADDR SIZE                          at first 0
//! T1 store NAME VALUE|REGISTER
//! T1 load NAME REGISTER
//! T1 rmw NAME VALUE|REGISTER [REGISTER]       an exchange; the register gets what was there
//! T1 clwb|clflushopt|clflush NAME
//! T1 sfence|mfence|locked
//! reaches: NAME=VALUE …                       some run ends so (registers and memory)
//! never: NAME=VALUE …                         none does
//! allowed: NAME=VALUE …                       after some crash, anywhere in some run, memory holds this
//! forbidden: NAME=VALUE …                     after none
//! outcomes sc|tso: … | …                      how runs end: exactly these, without and with store buffers
//! survives sc|tso: … | …                      what crashes leave: exactly these
//! ```
//!
//! The four sets are those of an exhaustive search over an operational model: store buffers that
//! stores, `clflush` and `sfence` leave in order; `clwb` and `clflushopt`, which leave as soon as
//! nothing that they must follow is before them (stores and `clflush` of the same line, `sfence`)
//! and complete with the next fence or locked instruction of their thread; and lines that survive
//! as they were at any moment since their last completed write-back. What `reaches`, `never`,
//! `allowed` and `forbidden` say was written by hand, from the papers on x86-TSO and Px86, and the
//! search agrees with all of it.
//!
//! `litmus POOL FILE` runs a file with real threads and real instructions and prints one element of
//! `outcomes`; `litmus POOL FILE recover` prints one of `survives`. So a runner compares the lines
//! that it gets over all schedules (and crash points) with [`Litmus::outcomes`] and
//! [`Litmus::survives`]: for one thread at a time with [`Buffers::None`], for a search that also
//! delays stores with [`Buffers::Tso`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{layout, race};

/// Whether stores are seen at once, or wait in a buffer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// They are seen at once: sequential consistency.
    None,
    /// They leave in order, some time later.
    Tso,
}

/// What a thread does in one line of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A variable, by number, gets a value.
    Store(usize, Value),
    /// A register gets what a variable holds.
    Load(usize, usize),
    /// A variable gets a value, and a register, if there is one, what was there.
    Rmw(usize, Value, Option<usize>),
    /// `clwb` or `clflushopt` of a variable's line: complete at the thread's next fence.
    WriteBack(usize),
    /// `clflush` of a variable's line.
    Clflush(usize),
    /// `sfence`, `mfence`.
    Fence,
    /// A locked instruction on ordinary memory.
    Locked,
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// This number.
    Number(u64),
    /// What a register holds, by number.
    Register(usize),
}

/// One file.
#[derive(Clone, Debug)]
pub struct Litmus {
    /// The file without its extension.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// How many threads it has.
    pub threads: usize,
    /// Names and addresses of variables.
    pub variables: Vec<(String, u64)>,
    /// Registers, in the order in which loads name them.
    pub registers: Vec<String>,
    /// What each thread does, in its order.
    pub programs: Vec<Vec<Operation>>,
    outcomes: [BTreeSet<String>; 2],
    survives: [BTreeSet<String>; 2],
}

impl Litmus {
    /// What a run can print in the end.
    pub fn outcomes(&self, buffers: Buffers) -> &BTreeSet<String> {
        &self.outcomes[buffers as usize]
    }

    /// What recovery can print after a crash anywhere in a run, its beginning and end included.
    pub fn survives(&self, buffers: Buffers) -> &BTreeSet<String> {
        &self.survives[buffers as usize]
    }

    /// The line of a variable, or of a thread.
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["var", name, address, "8"] => {
                let address = address.strip_prefix("0x").context("not hexadecimal")?;
                let address = u64::from_str_radix(address, 16)?;
                self.variables.push((name.to_owned(), address));
            }
            [thread, ref operation @ ..] => {
                let thread = thread.strip_prefix('T').context("not understood")?;
                let thread = thread.parse::<usize>()?.checked_sub(1);
                let thread = thread.context("threads are counted from 1 on")?;
                let operation = self.operation(operation)?;
                if self.programs.len() <= thread {
                    self.programs.resize(thread + 1, Vec::new());
                }
                self.programs[thread].push(operation);
            }
        }
        Ok(())
    }

    fn operation(&mut self, words: &[&str]) -> Result<Operation> {
        Ok(match words {
            ["store", name, value] => Operation::Store(self.variable(name)?, self.value(value)?),
            ["load", name, into] => Operation::Load(self.variable(name)?, self.register(into)),
            ["rmw", name, value, into @ ..] => {
                let (variable, value) = (self.variable(name)?, self.value(value)?);
                let into = into.first().map(|into| self.register(into));
                Operation::Rmw(variable, value, into)
            }
            ["clwb" | "clflushopt", name] => Operation::WriteBack(self.variable(name)?),
            ["clflush", name] => Operation::Clflush(self.variable(name)?),
            ["sfence" | "mfence"] => Operation::Fence,
            ["locked"] => Operation::Locked,
            _ => bail!("not understood"),
        })
    }

    fn variable(&self, name: &str) -> Result<usize> {
        let found = self.variables.iter().position(|(known, _)| known == name);
        found.with_context(|| format!("there is no variable {name}"))
    }

    fn register(&mut self, name: &str) -> usize {
        let found = self.registers.iter().position(|known| known == name);
        found.unwrap_or_else(|| {
            self.registers.push(name.to_owned());
            self.registers.len() - 1
        })
    }

    fn value(&mut self, text: &str) -> Result<Value> {
        Ok(match text.starts_with('r') {
            true => Value::Register(self.register(text)),
            false => Value::Number(text.parse()?),
        })
    }

    fn parse(path: &Path) -> Result<Litmus> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Litmus::parse_text(&name, path, &text).with_context(|| path.display().to_string())
    }

    fn parse_text(name: &str, path: &Path, text: &str) -> Result<Litmus> {
        let mut litmus = Litmus {
            name: name.to_owned(),
            path: path.to_path_buf(),
            threads: 0,
            variables: Vec::new(),
            registers: Vec::new(),
            programs: Vec::new(),
            outcomes: Default::default(),
            survives: Default::default(),
        };
        let (mut threads, mut programs) = (BTreeSet::new(), false);
        let mut claims = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            let Some((key, value)) = line.split_once(':') else {
                if let Some(thread) = line.strip_prefix('T') {
                    threads.insert(thread.split(' ').next().unwrap_or_default());
                }
                litmus.line(line).with_context(|| line.to_owned())?;
                continue;
            };
            let set = || value.split('|').map(|one| one.trim().to_owned()).collect();
            match key {
                "threads" => programs = value.trim() == "programs",
                "outcomes sc" => litmus.outcomes[0] = set(),
                "outcomes tso" => litmus.outcomes[1] = set(),
                "survives sc" => litmus.survives[0] = set(),
                "survives tso" => litmus.survives[1] = set(),
                "reaches" | "never" | "allowed" | "forbidden" => claims.push((key, value.trim())),
                _ => bail!("unknown directive `{key}`"),
            }
        }
        litmus.threads = threads.len();
        ensure!(programs, "there is no `threads: programs`");
        ensure!(litmus.threads >= 2, "one thread is no litmus test");
        for sets in [&litmus.outcomes, &litmus.survives] {
            ensure!(!sets[0].is_empty(), "a set is missing");
            ensure!(
                sets[0].is_subset(&sets[1]),
                "store buffers take nothing away"
            );
        }
        for (key, claim) in claims {
            let set = match key {
                "reaches" | "never" => &litmus.outcomes[1],
                _ => &litmus.survives[1],
            };
            let holds = set.iter().any(|one| contains(one, claim));
            ensure!(
                holds == matches!(key, "reaches" | "allowed"),
                "`{key}: {claim}` contradicts the set"
            );
        }
        Ok(litmus)
    }
}

/// Whether an outcome has all of these values.
fn contains(outcome: &str, claim: &str) -> bool {
    let values: BTreeSet<&str> = outcome.split(' ').collect();
    claim.split(' ').all(|value| values.contains(value))
}

fn folder() -> PathBuf {
    layout::workspace().join("tests/race/litmus")
}

/// All files, by name.
pub fn discover() -> Result<Vec<Litmus>> {
    race::files(&folder(), "lit")?
        .iter()
        .map(|path| Litmus::parse(path))
        .collect()
}

/// The program that runs them, built.
pub fn runner() -> PathBuf {
    layout::race_programs().join("litmus")
}

/// Its source.
pub fn runner_source() -> PathBuf {
    folder().join("litmus.c")
}

/// What compiles it, except for where to put the result.
pub fn runner_compiler() -> Command {
    race::compiler(&runner_source(), &[], &[], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_agrees_with_itself() {
        let files = discover().expect("all files parse");
        assert!(files.len() >= 60, "only {}: some are missing", files.len());
        assert!(files.iter().filter(|litmus| litmus.threads > 2).count() >= 10);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let good = "threads: programs\nvar x 0x1000 8\nT1 store x 1\nT2 load x r1\nreaches: r1=1\nnever: r1=2\noutcomes sc: r1=1\n\
                    outcomes tso: r1=1 | r1=0\nsurvives sc: x=1\nsurvives tso: x=1\nforbidden: x=0\n";
        let parse = |text: &str| Litmus::parse_text("x", Path::new("x.lit"), text);
        let litmus = parse(good).expect("well-formed");
        assert_eq!(litmus.threads, 2);
        assert_eq!(litmus.variables, [("x".to_owned(), 0x1000)]);
        assert_eq!(litmus.programs[1], [Operation::Load(0, 0)]);
        assert_eq!(litmus.outcomes(Buffers::Tso).len(), 2);
        for (from, to) in [
            ("threads: programs\n", ""),
            ("T2 ", "T1 "),
            ("reaches: r1=1", "reaches: r1=3"),
            ("never: r1=2", "never: r1=0"),
            ("forbidden: x=0", "forbidden: x=1"),
            ("outcomes sc: r1=1", "outcomes sc: r1=9"),
            ("survives sc: x=1\n", ""),
            ("never:", "maybe:"),
            ("store x 1", "store y 1"),
            ("load x r1", "look x r1"),
        ] {
            assert!(good.contains(from));
            assert!(parse(&good.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }
}
