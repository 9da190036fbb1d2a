//! The programs in `tests/race`: threads on persistent memory whose bugs need the right
//! interleaving.
//!
//! | folder | what is in it |
//! |---|---|
//! | `tests/race` | programs with a bug, each its own fixed twin, and correct ones |
//! | `tests/race/replay` | programs that use threads in every way there is; a schedule must give the same run again |
//! | `tests/race/unscheduled` | programs that a schedule cannot repeat, or that the suite counts the points of; `tests/suites/schedules.rs` compiles them |
//! | `tests/race/search` | programs whose bugs depend on their input, or that locks keep apart which nobody sees; `tests/suites/race.rs` compiles them |
//! | `tests/race/litmus` | store-buffer and persist-order litmus tests (see [`crate::litmus`]) |
//!
//! A source in `tests/race` has the bug with `-DBUG` and is its own fixed twin without
//! (`tests/race/race.h` says how it is run). Its header says in prose what is wrong and what would
//! be right, and in directives (` * key: value`) what a tool must make of it:
//!
//! | directive | meaning |
//! |---|---|
//! | `bug: RULE` | `brownout race` reports this of the wrong build, at the marked lines |
//! | `verdict: confirmed`, `unrepaired`, `repaired` | what recovery says on an image in which the effect is there and its source is not; deadlocks and mere publications have none |
//! | `continue` | recovery ends well, and the workload after it shows the bug (`PROG POOL continue`) |
//! | `predicted: yes` | a run in which both threads come to the same address, in whatever order and with nothing lost, suffices to tell that one can read the other's store before it is durable (`check --threads`) |
//! | `published` | in the right build, too, another thread can read something before it is durable; what follows makes that harmless, so `check --threads` may mention it |
//! | `setup` | `PROG POOL create` makes the pool, because making it is not crash-proof |
//! | `check: RULE @ PLACE` | what `brownout check` reports of one run of the wrong build; nothing, if there is no such line |
//! | `allow: RULE @ PLACE` | what `brownout check` may report of any build: left so on purpose |
//! | `hangs` | one in many native runs of the wrong build does not end |
//! | `clean` | there is no bug, and no wrong build; with `verdict: repaired`, there is an inconsistency that recovery mends |
//! | `flags: …`, `libs: …` | more for the compiler |
//! | `prints: TEXT` | in `replay`: what it may print (without its last line feed); one line for each possibility |
//!
//! A place is a marker: `/* @name */` stands on each line that belongs to it. `a|b` accepts either.
//! The markers `store`, `read` and `effect` say where the value comes from, where it is read too
//! early, and where what was computed of it becomes durable or leaves the process. A persistent
//! lock has only `store`: where it is taken. A deadlock has only `effect`: where a thread waits for
//! ever.
//!
//! A wrong build with `-DSHOW` shows its bug natively (`Build::Show`): see `pm_window` in `race.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::layout;

/// The rules of `brownout race`.
pub const RULES: &[&str] = &[
    "inter-thread-inconsistency",
    "intra-thread-inconsistency",
    "persistent-lock",
    "unpersisted-publication",
    "deadlock",
];

/// One way to compile a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Without the bug.
    Fixed,
    /// With it.
    Bug,
    /// With it, on the most forgetful machine; the power fails where it hurts.
    Show,
}

impl Build {
    /// For names of files and tests.
    pub fn name(self) -> &'static str {
        match self {
            Build::Fixed => "fixed",
            Build::Bug => "bug",
            Build::Show => "show",
        }
    }

    fn defines(self) -> &'static [&'static str] {
        match self {
            Build::Fixed => &[],
            Build::Bug => &["-DBUG"],
            Build::Show => &["-DBUG", "-DSHOW"],
        }
    }
}

/// What recovery makes of an inconsistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fails, hangs, or breaks an oracle.
    Confirmed,
    /// The effect is still there, and nothing failed.
    Unrepaired,
    /// It overwrites the effect.
    Repaired,
}

impl Verdict {
    fn parse(word: &str) -> Result<Verdict> {
        Ok(match word {
            "confirmed" => Verdict::Confirmed,
            "unrepaired" => Verdict::Unrepaired,
            "repaired" => Verdict::Repaired,
            _ => bail!("no verdict {word:?}"),
        })
    }
}

/// A rule of `brownout check`, and the lines at which it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Id of the rule.
    pub rule: String,
    /// The marked lines.
    pub lines: BTreeSet<u32>,
}

/// One source, and what its header says.
#[derive(Clone, Debug)]
pub struct RaceProgram {
    /// The file without its extension.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// The rule that `brownout race` reports of the wrong build.
    pub bug: Option<String>,
    /// What validation says of it.
    pub verdict: Option<Verdict>,
    /// Only the workload after recovery shows it.
    pub continues: bool,
    /// One run suffices to predict it.
    pub predicted: bool,
    /// In the right build, too, something can be read early, and that is harmless.
    pub published: bool,
    /// `PROG POOL create` makes the pool.
    pub setup: bool,
    /// What `brownout check` reports of one run of the wrong build.
    pub checks: Vec<Expectation>,
    /// What it may report of any build.
    pub allows: Vec<Expectation>,
    /// A native run of the wrong build may not end.
    pub hangs: bool,
    /// There is no bug.
    pub clean: bool,
    /// More compiler flags.
    pub flags: Vec<String>,
    /// Libraries.
    pub libs: Vec<String>,
    markers: BTreeMap<String, BTreeSet<u32>>,
}

impl RaceProgram {
    /// The builds that it has.
    pub fn builds(&self) -> Vec<Build> {
        let mut builds = vec![Build::Fixed];
        if !self.clean {
            builds.push(Build::Bug);
        }
        if self.shows() {
            builds.push(Build::Show);
        }
        builds
    }

    /// A native build can show the bug: the power fails, and recovery or what follows it fails.
    pub fn shows(&self) -> bool {
        !self.clean && self.verdict == Some(Verdict::Confirmed)
    }

    /// Where a build of it lies.
    pub fn binary(&self, build: Build) -> PathBuf {
        layout::race_programs().join(format!("{}-{}", self.name, build.name()))
    }

    /// The compiler's command line, except for where to put the result. Warnings are errors.
    pub fn compiler(&self, build: Build) -> Command {
        compiler(&self.source, build.defines(), &self.flags, &self.libs)
    }

    /// The lines that carry this marker; none, if there is no such marker.
    pub fn lines(&self, marker: &str) -> BTreeSet<u32> {
        self.markers.get(marker).cloned().unwrap_or_default()
    }

    fn parse(source: &Path) -> Result<RaceProgram> {
        let text = read(source)?;
        RaceProgram::parse_text(&stem(source), source, &text)
            .with_context(|| source.display().to_string())
    }

    fn parse_text(name: &str, source: &Path, text: &str) -> Result<RaceProgram> {
        let mut program = RaceProgram {
            name: name.to_owned(),
            source: source.to_path_buf(),
            bug: None,
            verdict: None,
            continues: false,
            predicted: false,
            published: false,
            setup: false,
            checks: Vec::new(),
            allows: Vec::new(),
            hangs: false,
            clean: false,
            flags: Vec::new(),
            libs: Vec::new(),
            markers: markers(text),
        };
        for line in directives(text) {
            match line {
                "clean" => program.clean = true,
                "hangs" => program.hangs = true,
                "continue" => program.continues = true,
                "published" => program.published = true,
                "setup" => program.setup = true,
                _ => {}
            }
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match key {
                "bug" => program.bug = Some(value.to_owned()),
                "verdict" => program.verdict = Some(Verdict::parse(value)?),
                "predicted" => program.predicted = value == "yes",
                "check" => program.checks.push(program.expectation(value)?),
                "allow" => program.allows.push(program.expectation(value)?),
                "flags" => program.flags = words(value),
                "libs" => program.libs = words(value),
                _ => {}
            }
        }
        program.validate()?;
        Ok(program)
    }

    /// `RULE @ PLACE`.
    fn expectation(&self, text: &str) -> Result<Expectation> {
        let (rule, place) = text
            .split_once(" @ ")
            .with_context(|| format!("{text:?} is no `RULE @ PLACE`"))?;
        ensure!(
            brownout_findings::rules::find(rule).is_some(),
            "no rule {rule}"
        );
        let mut lines = BTreeSet::new();
        for marker in place.split('|').map(str::trim) {
            let marked = self.lines(marker);
            ensure!(!marked.is_empty(), "no line is marked @{marker}");
            lines.extend(marked);
        }
        Ok(Expectation {
            rule: rule.to_owned(),
            lines,
        })
    }

    /// A header that contradicts itself, or the source, would make tests that test nothing.
    fn validate(&self) -> Result<()> {
        ensure!(
            self.clean != self.bug.is_some(),
            "the header must say `clean` or `bug:`"
        );
        ensure!(
            !self.clean || matches!(self.verdict, None | Some(Verdict::Repaired)),
            "what is clean is at most `repaired`"
        );
        ensure!(
            !self.clean || (self.checks.is_empty() && !self.predicted),
            "nothing is found in what is clean"
        );
        let Some(bug) = &self.bug else {
            return Ok(());
        };
        // Which places a finding of this rule names, and whether recovery can say anything about
        // it.
        let (places, validated): (&[&str], bool) = match bug.as_str() {
            "inter-thread-inconsistency" | "intra-thread-inconsistency" => {
                (&["store", "read", "effect"], true)
            }
            "unpersisted-publication" => (&["store", "read"], false),
            "persistent-lock" => (&["store"], true),
            "deadlock" => (&["effect"], false),
            _ => bail!("no rule {bug}: one of {RULES:?}"),
        };
        for place in places {
            ensure!(
                !self.lines(place).is_empty(),
                "no line is marked @{place}, which {bug} names"
            );
        }
        ensure!(
            self.verdict.is_some() == validated,
            "`verdict:` goes with what can be validated"
        );
        Ok(())
    }
}

/// A program whose runs must be the same under the same schedule.
#[derive(Clone, Debug)]
pub struct ReplayProgram {
    /// The file without its extension.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// All that it may print.
    pub prints: Vec<String>,
    /// More compiler flags.
    pub flags: Vec<String>,
    /// Libraries.
    pub libs: Vec<String>,
}

impl ReplayProgram {
    /// Where it lies when it is built.
    pub fn binary(&self) -> PathBuf {
        layout::race_programs().join(format!("replay-{}", self.name))
    }

    /// The compiler's command line, except for where to put the result. Warnings are errors.
    pub fn compiler(&self) -> Command {
        compiler(&self.source, &[], &self.flags, &self.libs)
    }

    /// Whether a native run can print this.
    pub fn may_print(&self, output: &str) -> bool {
        let output = output.strip_suffix('\n').unwrap_or(output);
        self.prints.iter().any(|text| text == output)
    }

    fn parse(source: &Path) -> Result<ReplayProgram> {
        let text = read(source)?;
        ReplayProgram::parse_text(&stem(source), source, &text)
            .with_context(|| source.display().to_string())
    }

    fn parse_text(name: &str, source: &Path, text: &str) -> Result<ReplayProgram> {
        let mut program = ReplayProgram {
            name: name.to_owned(),
            source: source.to_path_buf(),
            prints: Vec::new(),
            flags: Vec::new(),
            libs: Vec::new(),
        };
        for (key, value) in directives(text).filter_map(|line| line.split_once(": ")) {
            match key {
                "prints" => program.prints.push(value.to_owned()),
                "flags" => program.flags = words(value),
                "libs" => program.libs = words(value),
                _ => {}
            }
        }
        ensure!(
            !program.prints.is_empty(),
            "the header does not say what it `prints:`"
        );
        Ok(program)
    }
}

pub(crate) fn compiler(
    source: &Path,
    defines: &[&str],
    flags: &[String],
    libs: &[String],
) -> Command {
    let mut command = Command::new("gcc");
    command
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-pthread",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        // Lazy binding has locked instructions, which complete write-backs.
        .args(["-Wl,-z,now"])
        .arg("-I")
        .arg(layout::workspace().join("include"))
        .args(defines)
        .args(flags)
        .arg(source)
        .args(libs);
    command
}

/// The lines of the header comment, without what makes them a comment.
fn directives(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !line.starts_with(" */"))
        .filter_map(|line| line.strip_prefix(" * "))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Lines that carry a comment `/* @name */`.
fn markers(text: &str) -> BTreeMap<String, BTreeSet<u32>> {
    let mut markers: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        for part in line.split("/* @").skip(1) {
            if let Some((name, _)) = part.split_once(" */") {
                markers.entry(name.to_owned()).or_default().insert(number);
            }
        }
    }
    markers
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn sources() -> PathBuf {
    layout::workspace().join("tests/race")
}

/// Files of a folder that end so, by name.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All programs of `tests/race`, by name.
pub fn discover() -> Result<Vec<RaceProgram>> {
    files(&sources(), "c")?
        .iter()
        .map(|path| RaceProgram::parse(path))
        .collect()
}

/// One of them.
pub fn find(name: &str) -> Result<RaceProgram> {
    RaceProgram::parse(&sources().join(format!("{name}.c")))
}

/// All programs of `tests/race/replay`, by name.
pub fn discover_replay() -> Result<Vec<ReplayProgram>> {
    files(&sources().join("replay"), "c")?
        .iter()
        .map(|path| ReplayProgram::parse(path))
        .collect()
}

/// One of them.
pub fn find_replay(name: &str) -> Result<ReplayProgram> {
    ReplayProgram::parse(&sources().join(format!("replay/{name}.c")))
}

/// Headers that every program depends on.
pub fn headers() -> Result<Vec<PathBuf>> {
    let mut headers = files(&sources(), "h")?;
    headers.extend(files(&sources().join("replay"), "h")?);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RaceProgram> {
        RaceProgram::parse_text("x", Path::new("x.c"), text)
    }

    #[test]
    fn headers_are_read() {
        let text = "/* Prose: this is no directive.\n *\n * bug: inter-thread-inconsistency\n * verdict: confirmed\n * \
                    predicted: yes\n * check: missing-flush @ store|other\n */\nx = 1; /* @store */\ny = x; /* @read */\n\
                    z = y; /* @effect */ /* @other */\n";
        let program = parse(text).expect("a header");
        assert_eq!(program.bug.as_deref(), Some("inter-thread-inconsistency"));
        assert_eq!(program.verdict, Some(Verdict::Confirmed));
        assert!(program.predicted && !program.clean && !program.hangs);
        assert_eq!(program.lines("store"), BTreeSet::from([8]));
        assert_eq!(program.checks[0].lines, BTreeSet::from([8, 10]));
        assert_eq!(program.builds(), [Build::Fixed, Build::Bug, Build::Show]);
    }

    #[test]
    fn headers_that_contradict_themselves_are_refused() {
        let marked = "/* @store */ /* @read */ /* @effect */";
        for text in [
            "/* x\n */\n",
            "/* x\n * clean\n * bug: deadlock\n */\n/* @effect */",
            "/* x\n * clean\n * verdict: confirmed\n */\n",
            "/* x\n * bug: deadlock\n */\n",
            "/* x\n * bug: persistent-lock\n */\n/* @store */",
            "/* x\n * bug: inter-thread-inconsistency\n * verdict: confirmed\n */\n/* @store */ /* @read */",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for header in [
            " * bug: no-such-rule\n * verdict: confirmed\n",
            " * bug: inter-thread-inconsistency\n * verdict: maybe\n",
            " * bug: inter-thread-inconsistency\n",
            " * bug: inter-thread-inconsistency\n * verdict: confirmed\n * check: missing-flush @ nowhere\n",
            " * bug: inter-thread-inconsistency\n * verdict: confirmed\n * check: no-such-rule @ store\n",
        ] {
            let text = format!("/* x\n{header} */\n{marked}\n");
            assert!(parse(&text).is_err(), "{text}");
        }
        assert!(ReplayProgram::parse_text("x", Path::new("x.c"), "/* x\n */\n").is_err());
    }

    #[test]
    fn what_may_be_printed_is_a_set() {
        let text = "/* x\n * prints: sum 1\n * prints: sum 2\n */\n";
        let program = ReplayProgram::parse_text("x", Path::new("x.c"), text).expect("a header");
        assert!(program.may_print("sum 1\n") && program.may_print("sum 2"));
        assert!(!program.may_print("sum 3\n") && !program.may_print(""));
    }

    /// What the collection must cover at least; a class that loses its program is noticed.
    #[test]
    fn every_rule_has_its_program() {
        let programs = discover().expect("all headers parse");
        for rule in RULES {
            assert!(
                programs
                    .iter()
                    .any(|program| program.bug.as_deref() == Some(rule)),
                "no program for {rule}"
            );
        }
        assert!(programs.iter().filter(|program| program.clean).count() >= 12);
        assert!(discover_replay().expect("all headers parse").len() >= 12);
    }
}
