//! `sweep cpython`: what passes of CPython's regression tests natively passes under `run`.
//!
//! Modules come from the suite's own list. A module is alike if every test case that passes
//! natively passes under the tool, and if the runner's exit status is 0 in both.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use brownout_tests::cpython::{self, PYTHON, Verdict};
use brownout_tests::{Scratch, tool};

use super::common::{Comparison, Options, Try};
use crate::shell;

/// Natively; a module that takes longer is not worth its time.
const NATIVE_LIMIT: Duration = Duration::from_secs(180);

/// Under the tool, on a machine that does other things, too. Generated interpreters, many short
/// processes and modules that are loaded anew are what takes longest.
const TOOL_LIMIT: Duration = Duration::from_secs(900);

/// What is not run, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("test_smtpnet", "needs the network"),
    ("test_urllib2net", "needs the network"),
    ("test_urllibnet", "needs the network"),
    ("test_xmlrpc_net", "needs the network"),
    ("test_nntplib", "needs the network"),
    ("test_ensurepip", "fetches packages"),
    ("test_venv", "fetches packages"),
    (
        "test_multiprocessing_spawn",
        "takes longer than the limit, and leaves semaphores in /dev/shm when it is ended",
    ),
    ("test_bigaddrspace", "needs more memory than it may have"),
    ("test_bigmem", "needs more memory than it may have"),
    ("test_zipfile64", "needs 6 GB of disk"),
    ("test_idle", "needs a screen"),
    ("test_tcl", "needs a screen"),
    ("test_tix", "needs a screen"),
    ("test_tk", "needs a screen"),
    ("test_ttk_guionly", "needs a screen"),
    ("test_ttk_textonly", "needs a screen"),
    ("test_turtle", "needs a screen"),
    ("test_ossaudiodev", "needs a sound card"),
    ("test_winsound", "needs a sound card"),
    (
        "test_peg_generator",
        "takes minutes to compile C, and tests the compiler's speed",
    ),
    (
        "test_tools",
        "belongs to CPython's source tree, which the package lacks",
    ),
];

/// The modules to be run.
pub fn modules(options: &Options) -> Result<Vec<String>> {
    let text = shell::output(Command::new(PYTHON).args(["-m", "test", "--list-tests"]))?;
    let names = text.lines().map(str::trim).filter(|name| {
        // Parts of a package are listed as test.NAME.PART.
        let top = name.strip_prefix("test.").unwrap_or(name);
        let top = top.split('.').next().unwrap_or(top);
        !top.is_empty() && LEFT_OUT.iter().all(|(left_out, _)| *left_out != top)
    });
    let names = names.map(str::to_owned).collect();
    for (name, why) in LEFT_OUT {
        eprintln!("left out: {name}, which {why}");
    }
    options.select(names)
}

/// Runs a module on both sides.
pub fn compare(module: &str, attempt: Try) -> Result<Comparison> {
    let native = match attempt {
        Try::First => cpython::native(module, NATIVE_LIMIT),
        Try::Again => afresh(module),
    };
    let native = match native {
        Ok(native) if !native.passed.is_empty() => native,
        Ok(_) => return Ok(Comparison::NotNatively("no test case passes".into())),
        Err(error) => return Ok(Comparison::NotNatively(format!("{error:#}"))),
    };
    let scratch = Scratch::new()?;
    let invocation = cpython::invocation(module, scratch.path(), TOOL_LIMIT);
    let outcome = tool::run(&invocation).run()?;
    let translated = cpython::verdict(&outcome, scratch.path())?;
    Ok(match difference(&native, &translated) {
        None => Comparison::Alike,
        Some(text) => Comparison::Differs(format!("{text}\n{}", outcome.describe())),
    })
}

fn afresh(module: &str) -> Result<Verdict> {
    let scratch = Scratch::new()?;
    let outcome = cpython::invocation(module, scratch.path(), NATIVE_LIMIT).run()?;
    cpython::verdict(&outcome, scratch.path())
}

/// What the tool's side lacks, in one line.
fn difference(native: &Verdict, translated: &Verdict) -> Option<String> {
    let lost: Vec<&str> = native
        .passed
        .difference(&translated.passed)
        .map(String::as_str)
        .collect();
    if !lost.is_empty() {
        let of = native.passed.len();
        return Some(format!("{} of {of}: {}", lost.len(), lost.join(", ")));
    }
    (native.status == 0 && translated.status != 0)
        .then(|| format!("all cases pass, yet exit status {}", translated.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: i32, names: &[&str]) -> Verdict {
        Verdict {
            status,
            passed: names.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn less_is_a_difference_and_more_is_none() {
        let native = verdict(0, &["a", "b"]);
        assert_eq!(difference(&native, &verdict(0, &["a", "b", "c"])), None);
        assert_eq!(
            difference(&native, &verdict(2, &["a"])).as_deref(),
            Some("1 of 2: b")
        );
        assert!(difference(&native, &verdict(2, &["a", "b"])).is_some());
        // A case that fails on both sides is no difference.
        assert_eq!(difference(&verdict(2, &["a"]), &verdict(2, &["a"])), None);
    }
}
