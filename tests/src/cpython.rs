//! CPython's regression tests, from Debian's libpython3.11-testsuite, module by module.
//!
//! What is compared is which test cases pass, by the JUnit report that their own runner writes, and
//! the runner's exit status. Does not check: what the modules print.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::exec::{Invocation, Outcome};
use crate::layout;
use crate::scratch::Scratch;

/// The interpreter that the test suite belongs to.
pub const PYTHON: &str = "/usr/bin/python3.11";

/// What came of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The runner's exit status; 0 if nothing has failed.
    pub status: i32,
    /// Names of the test cases that passed.
    pub passed: BTreeSet<String>,
}

/// The command that runs a module in a folder. Its report goes there, too.
pub fn invocation(module: &str, folder: &Path, limit: Duration) -> Invocation {
    let argv = [
        PYTHON,
        "-m",
        "test",
        "-q",
        "-W",
        "--junit-xml",
        REPORT,
        module,
    ];
    Invocation::new(argv, folder).timeout(limit)
}

const REPORT: &str = "report.xml";

/// What a run of [`invocation`] came to, by the report that it has left in its folder.
pub fn verdict(outcome: &Outcome, folder: &Path) -> Result<Verdict> {
    let report = fs::read_to_string(folder.join(REPORT))
        .with_context(|| format!("no report was written\n{}", outcome.describe()))?;
    Ok(Verdict {
        status: outcome.status,
        passed: passes(&report),
    })
}

/// Runs a module natively; what came of it is remembered, as it is slow and does not change.
pub fn native(module: &str, limit: Duration) -> Result<Verdict> {
    let scratch = Scratch::new()?;
    let version = format!("{PYTHON} -VV; dpkg-query -W libpython3.11-testsuite");
    let version = Invocation::shell(&version, scratch.path())
        .run()?
        .stdout_text();
    let cache = layout::native_cache().join(format!("cpython-{module}"));
    let remembered = fs::read_to_string(&cache).ok();
    if let Some(verdict) = remembered.and_then(|text| parse(text.strip_prefix(&version)?)) {
        return Ok(verdict);
    }
    let outcome = invocation(module, scratch.path(), limit).run()?;
    let verdict = verdict(&outcome, scratch.path()).context("natively")?;
    fs::create_dir_all(layout::native_cache())?;
    let mut text = format!("{version}{}\n", verdict.status);
    for name in &verdict.passed {
        let _ = writeln!(text, "{name}");
    }
    fs::write(&cache, text)?;
    Ok(verdict)
}

fn parse(text: &str) -> Option<Verdict> {
    let mut lines = text.lines();
    Some(Verdict {
        status: lines.next()?.parse().ok()?,
        passed: lines.map(str::to_owned).collect(),
    })
}

/// The `name` attributes of the `testcase` elements of a JUnit report that ended well.
fn passes(report: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for case in report.split("<testcase ").skip(1) {
        // The element ends at the next one; failures, errors and skips are children of it.
        let bad = ["<failure", "<error", "<skipped"]
            .iter()
            .any(|child| case.contains(child));
        let ran = attribute(case, "result") != Some("skipped");
        if let (Some(name), false, true) = (attribute(case, "name"), bad, ran) {
            names.insert(name.to_owned());
        }
    }
    names
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let start = element.find(&format!("{name}=\""))? + name.len() + 2;
    let rest = &element[start..];
    Some(&rest[..rest.find('"')?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cases_that_ended_well_pass() {
        let report = "<testsuite>\
            <testcase name=\"a.good\" status=\"run\" result=\"completed\" time=\"0.1\"/>\
            <testcase name=\"a.bad\" status=\"run\" result=\"completed\"><failure>x</failure></testcase>\
            <testcase name=\"a.left_out\" status=\"run\" result=\"skipped\"/>\
            <testcase name=\"a.wrong\" result=\"completed\"><error>y</error></testcase>\
            <testcase name=\"a.last\" result=\"completed\"/></testsuite>";
        let names: Vec<String> = passes(report).into_iter().collect();
        assert_eq!(names, ["a.good", "a.last"]);
    }

    #[test]
    fn what_is_remembered_is_what_it_was() {
        let verdict = parse("2\na\nb\n").unwrap();
        assert_eq!((verdict.status, verdict.passed.len()), (2, 2));
        // A file of an older version of this module.
        assert_eq!(parse("test_a (b)\n"), None);
        assert_eq!(parse(""), None);
    }
}
