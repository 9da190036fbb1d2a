//! The programs in `tests/seeded`: small ones whose bugs, and whose lack of bugs, are known.
//!
//! A source has the bug with `-DBUG` and is its own fixed twin without. Its header comment says
//! what is wrong and why, and, one directive a line (` * key: value`), what a tool must make of it:
//!
//! | directive | meaning |
//! |---|---|
//! | `bug: RULE @ PLACE` | one run of the wrong build shows this |
//! | `assert: RULE @ PLACE` | so does the wrong build with `-DASSERT`, whose annotations state what should hold |
//! | `allow: RULE @ PLACE` | left so on purpose: may be reported, except in the `-DANNOTATE` build, which says so |
//! | `check: none` | one run of the wrong build shows nothing |
//! | `explore: yes` or `no` | whether some crash state of the wrong build is wrong |
//! | `symptom: exit`, `signal`, `hang`, `ops` | how that shows; `ops`: work is lost that was acknowledged, or is torn |
//! | `explored: RULE @ PLACE` | what `brownout explore` reports of the wrong build: the lost store or, without one, the crash |
//! | `normal: …` | it shows after an undisturbed run as well, so |
//! | `crashes: 2` | only a second crash, inside recovery, shows it |
//! | `clean` | there is no bug |
//! | `domain: eadr` | where caches survive |
//! | `flags: …` | more compiler flags |
//! | `needs: clflushopt` | the bug is one only where write-backs pass each other; with `clflush` alone there is none |
//! | `options: …` | more options of `brownout check`, for every build |
//! | `case N: KIND, RULE @ PLACE` | `run POOL N` plants bug N (`tests/seeded/pmtest42`); 0 plants none |
//!
//! A place is a marker: `/* @name */` stands on each line that belongs to it. `a|b` accepts either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::layout;

/// Folders below `tests/seeded`, in the order of their programs' names.
const FOLDERS: &[&str] = &["clean", "correctness", "performance", "pmtest42", "rules"];

/// One way to compile a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    /// Without the bug.
    Fixed,
    /// With it.
    Bug,
    /// Without the bug, with assertions.
    FixedAssert,
    /// With both.
    BugAssert,
    /// Without the bug; what is unflushed on purpose is declared.
    Annotated,
}

impl Build {
    /// For names of files and tests.
    pub fn name(self) -> &'static str {
        match self {
            Build::Fixed => "fixed",
            Build::Bug => "bug",
            Build::FixedAssert => "fixed_assert",
            Build::BugAssert => "bug_assert",
            Build::Annotated => "annotated",
        }
    }

    fn defines(self) -> &'static [&'static str] {
        match self {
            Build::Fixed => &[],
            Build::Bug => &["-DBUG"],
            Build::FixedAssert => &["-DASSERT"],
            Build::BugAssert => &["-DBUG", "-DASSERT"],
            Build::Annotated => &["-DANNOTATE"],
        }
    }

    /// True for the builds that carry the bug.
    pub fn has_bug(self) -> bool {
        matches!(self, Build::Bug | Build::BugAssert)
    }
}

/// A rule, and the marked lines at which it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Id of the rule.
    pub rule: String,
    /// Names of markers, any of which will do.
    pub markers: Vec<String>,
}

/// How a wrong recovery shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// Exit code 1.
    Exit,
    /// A signal ends it.
    Signal,
    /// It does not end.
    Hang,
    /// It ends well, and prints what no sequence of operations explains.
    Ops,
}

impl Symptom {
    /// The rules of `brownout explore` that can report it. What is lost may also be noticed by a
    /// command that judges (`PROG verify`, see `pm.h`), or by the program's own statement of what
    /// must hold.
    pub fn rules(self) -> &'static [&'static str] {
        match self {
            Symptom::Exit => &["recovery-error"],
            Symptom::Signal => &["recovery-crash"],
            Symptom::Hang => &["recovery-hang"],
            Symptom::Ops => &["not-atomic", "checker-failed", "recovery-assertion"],
        }
    }
}

/// A bug that is chosen at run time.
#[derive(Clone, Debug)]
pub struct Case {
    /// What `run POOL` is given.
    pub number: u32,
    /// Its kind in PMTest's classification.
    pub kind: String,
    /// What must be reported.
    pub expected: Expectation,
}

/// One source and what its header says.
#[derive(Clone, Debug)]
pub struct Seeded {
    /// Folder and file, without extension: `clean/redo_log`.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// What one run of the wrong build shows.
    pub bugs: Vec<Expectation>,
    /// What it shows besides if it has assertions.
    pub asserts: Vec<Expectation>,
    /// What may be reported of any build that declares nothing.
    pub allows: Vec<Expectation>,
    /// One run shows nothing.
    pub check_none: bool,
    /// A crash shows it.
    pub explore: bool,
    /// How.
    pub symptom: Option<Symptom>,
    /// What an exploration reports, and where.
    pub explored: Vec<Expectation>,
    /// How it shows without a crash, if it does.
    pub normal: Option<Symptom>,
    /// How many crashes it takes.
    pub crashes: u32,
    /// There is no bug, and no wrong build.
    pub clean: bool,
    /// Persistency domain, if not the default.
    pub domain: Option<String>,
    /// More compiler flags.
    pub flags: Vec<String>,
    /// More options of `brownout check`.
    pub options: Vec<String>,
    /// Processor features (as in `/proc/cpuinfo`) without which the bug is none.
    pub needs: Vec<String>,
    /// Bugs that are chosen at run time.
    pub cases: Vec<Case>,
    /// Lines of each marker.
    markers: BTreeMap<String, BTreeSet<u32>>,
}

impl Seeded {
    /// Whether this processor lacks what the bug needs.
    pub fn lacks_bug(&self) -> bool {
        !crate::programs::processor_has(&self.needs)
    }

    /// The builds that this program has.
    pub fn builds(&self) -> Vec<Build> {
        let mut builds = vec![Build::Fixed];
        if !self.clean && self.cases.is_empty() {
            builds.push(Build::Bug);
        }
        if !self.asserts.is_empty() {
            builds.extend([Build::FixedAssert, Build::BugAssert]);
        }
        if !self.allows.is_empty() {
            builds.push(Build::Annotated);
        }
        builds
    }

    /// Where a build of it lies.
    pub fn binary(&self, build: Build) -> PathBuf {
        let name = format!("{}-{}", self.name.replace('/', "-"), build.name());
        layout::seeded().join(name)
    }

    /// The compiler's command line, except for where to put the result. Warnings are errors.
    pub fn compiler(&self, build: Build) -> Command {
        let mut command = Command::new("gcc");
        command
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            // Lazy binding has locked instructions, which complete write-backs.
            .args(["-Wl,-z,now"])
            .arg("-I")
            .arg(layout::workspace().join("include"))
            .args(build.defines())
            .args(&self.flags)
            .arg(&self.source);
        command
    }

    /// The lines that belong to a place.
    pub fn lines(&self, expectation: &Expectation) -> BTreeSet<u32> {
        expectation
            .markers
            .iter()
            .flat_map(|marker| self.markers.get(marker).cloned().unwrap_or_default())
            .collect()
    }

    fn parse(folder: &str, source: &Path) -> Result<Seeded> {
        let text = fs::read_to_string(source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        Seeded::parse_text(&format!("{folder}/{stem}"), source, &text)
            .with_context(|| source.display().to_string())
    }

    fn parse_text(name: &str, source: &Path, text: &str) -> Result<Seeded> {
        let mut program = Seeded {
            name: name.to_owned(),
            source: source.to_path_buf(),
            bugs: Vec::new(),
            asserts: Vec::new(),
            allows: Vec::new(),
            check_none: false,
            explore: false,
            symptom: None,
            explored: Vec::new(),
            normal: None,
            crashes: 1,
            clean: false,
            domain: None,
            flags: Vec::new(),
            options: Vec::new(),
            needs: Vec::new(),
            cases: Vec::new(),
            markers: markers(text),
        };
        for line in text.lines().take_while(|line| !line.starts_with(" */")) {
            let Some(line) = line.strip_prefix(" * ") else {
                continue;
            };
            if line == "clean" {
                program.clean = true;
            }
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match key {
                "bug" => program.bugs.push(expectation(value)?),
                "assert" => program.asserts.push(expectation(value)?),
                "allow" => program.allows.push(expectation(value)?),
                "check" => program.check_none = value == "none",
                "explore" => program.explore = value == "yes",
                "symptom" => program.symptom = Some(symptom(value)?),
                "explored" => program.explored.push(expectation(value)?),
                "normal" => program.normal = Some(symptom(value)?),
                "crashes" => program.crashes = value.parse().context("crashes")?,
                "domain" => program.domain = Some(value.to_owned()),
                "flags" => program.flags = words(value),
                "options" => program.options = words(value),
                "needs" => program.needs = words(value),
                _ => {
                    if let Some(number) = key.strip_prefix("case ") {
                        program.cases.push(case(number, value)?);
                    }
                }
            }
        }
        program.validate()?;
        Ok(program)
    }

    /// A header that contradicts itself, or the source, would make tests that test nothing.
    fn validate(&self) -> Result<()> {
        let says = [
            self.clean,
            !self.bugs.is_empty() || !self.asserts.is_empty() || self.check_none,
            !self.cases.is_empty(),
        ];
        ensure!(
            says.iter().filter(|said| **said).count() == 1,
            "the header must say `clean`, or what is wrong, or list cases"
        );
        ensure!(
            !self.check_none || self.bugs.is_empty(),
            "`check: none` and `bug:`"
        );
        ensure!(
            self.explore == self.symptom.is_some(),
            "`explore: yes` goes with a symptom"
        );
        ensure!(
            self.explore != self.explored.is_empty(),
            "`explore: yes` goes with what is `explored:`"
        );
        if let Some(symptom) = self.symptom {
            let fits = |expected: &Expectation| symptom.rules().contains(&expected.rule.as_str());
            ensure!(
                self.explored.iter().all(fits),
                "{symptom:?} is reported by one of {:?}",
                symptom.rules()
            );
        }
        let all = self.bugs.iter().chain(&self.asserts).chain(&self.allows);
        let all = all.chain(&self.explored);
        for expected in all.chain(self.cases.iter().map(|case| &case.expected)) {
            ensure!(
                brownout_findings::rules::find(&expected.rule).is_some(),
                "no rule {}",
                expected.rule
            );
            for marker in &expected.markers {
                ensure!(
                    self.markers.contains_key(marker),
                    "no line is marked @{marker}"
                );
            }
        }
        Ok(())
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn expectation(text: &str) -> Result<Expectation> {
    let (rule, place) = text
        .split_once(" @ ")
        .with_context(|| format!("{text:?} is no `RULE @ PLACE`"))?;
    Ok(Expectation {
        rule: rule.trim().to_owned(),
        markers: place
            .split('|')
            .map(|marker| marker.trim().to_owned())
            .collect(),
    })
}

fn symptom(word: &str) -> Result<Symptom> {
    Ok(match word {
        "exit" => Symptom::Exit,
        "signal" => Symptom::Signal,
        "hang" => Symptom::Hang,
        "ops" => Symptom::Ops,
        _ => bail!("no symptom {word:?}"),
    })
}

fn case(number: &str, text: &str) -> Result<Case> {
    let (kind, rest) = text
        .split_once(", ")
        .with_context(|| format!("{text:?} is no `KIND, RULE @ PLACE`"))?;
    Ok(Case {
        number: number.parse().with_context(|| format!("case {number}"))?,
        kind: kind.to_owned(),
        expected: expectation(rest)?,
    })
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

/// All programs, by name.
pub fn discover() -> Result<Vec<Seeded>> {
    let mut programs = Vec::new();
    for folder in FOLDERS {
        let path = layout::workspace().join("tests/seeded").join(folder);
        let entries =
            fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ext| ext == "c") {
                programs.push(Seeded::parse(folder, &path)?);
            }
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Headers that every program depends on.
pub fn headers() -> Result<Vec<PathBuf>> {
    let mut headers = Vec::new();
    for folder in ["tests/seeded", "tests/seeded/pmtest42", "include"] {
        let path = layout::workspace().join(folder);
        for entry in
            fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?
        {
            let path = entry?.path();
            if path.extension().is_some_and(|ext| ext == "h") {
                headers.push(path);
            }
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tests/seeded` must cover at least; a class that loses its program is noticed.
    #[test]
    fn every_class_has_its_program() {
        let programs = discover().expect("all headers parse");
        let count = |folder: &str| {
            programs
                .iter()
                .filter(|program| program.name.starts_with(folder))
                .count()
        };
        assert!(count("correctness/") >= 25);
        assert!(count("performance/") >= 6);
        assert!(count("clean/") >= 16);
        assert!(
            programs
                .iter()
                .map(|program| program.cases.len())
                .sum::<usize>()
                >= 42,
            "PMTest validated 42 cases"
        );
        for program in &programs {
            let folder = program.name.split('/').next().expect("a folder");
            assert_eq!(program.clean, folder == "clean", "{}", program.name);
        }
    }

    #[test]
    fn case_numbers_are_unique() {
        for program in discover().expect("all headers parse") {
            let numbers: BTreeSet<u32> = program.cases.iter().map(|case| case.number).collect();
            assert_eq!(numbers.len(), program.cases.len(), "{}", program.name);
            assert!(
                !numbers.contains(&0),
                "{}: 0 is the fixed one",
                program.name
            );
        }
    }

    /// A rule without a program that it must find, and whose fixed twin it must pass, is only
    /// claimed to work.
    #[test]
    fn every_rule_has_its_program() {
        let programs = discover().expect("all headers parse");
        let expected: BTreeSet<&str> = programs
            .iter()
            .flat_map(|program| {
                let cases = program.cases.iter().map(|case| &case.expected);
                let builds = program.bugs.iter().chain(&program.asserts);
                builds.chain(&program.explored).chain(cases)
            })
            .map(|expectation| expectation.rule.as_str())
            .collect();
        // What only warns is no bug to plant: such programs are with the suite that explores
        // operations. What only fuzzing shows is in tests/fuzz, what only schedules show in
        // tests/race.
        let bare: Vec<&str> = brownout_findings::rules::RULES
            .iter()
            .filter(|rule| rule.severity != brownout_findings::Severity::Warning)
            .filter(|rule| {
                use brownout_findings::rules::Analysis;
                !matches!(rule.analysis, Analysis::Fuzz | Analysis::Race)
            })
            .map(|rule| rule.id)
            .filter(|id| !expected.contains(id))
            .collect();
        assert!(bare.is_empty(), "no program in tests/seeded has: {bare:?}");
    }

    fn parse(header: &str) -> Result<Seeded> {
        let text = format!("/* Something.\n{header} */\nx = 1; /* @here */\n");
        Seeded::parse_text("correctness/x", Path::new("x.c"), &text)
    }

    #[test]
    fn a_header_says_what_where_and_how() {
        let program = parse(
            " * bug: missing-flush @ here\n * explore: yes\n * symptom: ops\n * explored: not-atomic @ here\n \
             * options: --enable x\n",
        )
        .unwrap();
        assert_eq!(program.bugs[0].rule, "missing-flush");
        let line = program.lines(&program.bugs[0]).into_iter().next().unwrap();
        assert_eq!(line, 8);
        assert_eq!(program.symptom, Some(Symptom::Ops));
        assert_eq!(program.explored[0].rule, "not-atomic");
        assert_eq!(program.lines(&program.explored[0]), BTreeSet::from([line]));
        assert_eq!(program.options, ["--enable", "x"]);
        assert_eq!(program.builds(), [Build::Fixed, Build::Bug]);
    }

    #[test]
    fn contradictions_are_refused() {
        for header in [
            "",
            " * clean\n * bug: missing-flush @ here\n",
            " * bug: missing-flush @ nowhere\n",
            " * bug: no-such-rule @ here\n",
            " * bug: missing-flush\n",
            " * check: none\n * explore: yes\n",
            " * check: none\n * symptom: often\n",
            " * check: none\n * explore: yes\n * symptom: exit\n",
            " * check: none\n * explored: not-atomic @ here\n",
            " * check: none\n * explore: yes\n * symptom: exit\n * explored: not-atomic @ here\n",
            " * check: none\n * explore: yes\n * symptom: ops\n * explored: not-atomic @ nowhere\n",
        ] {
            assert!(parse(header).is_err(), "{header:?} was accepted");
        }
    }
}
