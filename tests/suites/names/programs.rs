//! Small programs that publish something, each with its bug and its fixed twin.

use std::fs;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Role, Verdict};
use brownout_tests::check::show;
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch};
use libtest_mimic::Trial;

use crate::{compile, source, trial};

/// A program and what its bug must be said to be.
struct Case {
    name: &'static str,
    rule: &'static str,
    /// What the message says.
    says: &'static str,
    /// The marked line that is blamed; none if no change is lost.
    blames: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        name: "publish_rename",
        rule: "recovery-error",
        says: "the growth to 100 bytes",
        blames: Some("data"),
    },
    Case {
        name: "publish_link",
        rule: "recovery-error",
        says: "the pool has its name and not its content",
        blames: Some("data"),
    },
    Case {
        name: "unlink_create",
        rule: "recovery-error",
        says: "there is no pool",
        blames: None,
    },
    Case {
        name: "log_beside",
        rule: "recovery-error",
        says: "a record is counted and not there",
        blames: Some("data"),
    },
    Case {
        name: "sized_file",
        rule: "recovery-crash",
        says: "setting the size to 8192",
        blames: Some("size"),
    },
    Case {
        name: "folder",
        rule: "recovery-error",
        says: "the file is",
        blames: None,
    },
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in CASES {
        let name = case.name;
        trials.push(trial(format!("programs::{name}_bug"), || bug(case)));
        trials.push(trial(format!("programs::{name}_twin"), || twin(case)));
    }
    trials.push(trial("programs::what_is_not_followed_is_said", unfollowed));
    trials.push(trial("programs::rename_needs_its_folder_by_posix", posix));
    trials.push(trial("programs::o_dsync_is_as_good_as_fdatasync", dsync));
    trials.push(trial("programs::files_are_left_alone", left_alone));
    trials.push(trial(
        "programs::what_comes_later_is_no_creation",
        later_is_no_creation,
    ));
    trials
}

fn explored(name: &str, build: &[&str], options: &[&str], scratch: &Scratch) -> Result<Explored> {
    let program = compile(name, build, scratch.path())?;
    let program = program.to_string_lossy().into_owned();
    let init = Invocation::new([program.as_str(), "init"], scratch.path());
    init.run()?.expect_success("init")?;
    let recover = format!("{program} check");
    let mut all = vec!["--pm", "pool*", "--recover", &recover];
    all.extend(options);
    let native = Invocation::new([program.as_str(), "run"], scratch.path());
    explore::run(&native, &all)
}

fn bug(case: &Case) -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explored(case.name, &["-DBUG"], &[], &scratch)?;
    explored.expect_findings()?;
    // One bug may have several findings, in any order.
    let mut place = String::new();
    if let Some(marker) = case.blames {
        let text = fs::read_to_string(source(case.name))?;
        let marker = format!("/* @{marker} */");
        let line = text.lines().position(|line| line.contains(&marker));
        let line = line.context("the marker is not there")? + 1;
        place = format!("{}.c:{line}", case.name);
    }
    let found = explored.report.findings.iter().find(|finding| {
        let message = &finding.message;
        finding.rule == case.rule && message.contains(case.says) && message.contains(&place)
    });
    let found = found.with_context(|| {
        format!(
            "no {} that says '{}' and blames {place}\n{}",
            case.rule,
            case.says,
            show(&explored.report)
        )
    })?;
    let reproduction = found.reproduction.as_ref().context("no reproduction")?;
    ensure!(
        reproduction.confirmed,
        "not confirmed natively: {:?}",
        found.notes
    );
    Ok(())
}

fn twin(case: &Case) -> Result<()> {
    let scratch = Scratch::new()?;
    explored(case.name, &[], &[], &scratch)?.expect_clean()
}

/// That a pool was made in the same run, and that this may be lost as well, does not make a store
/// that is lost much later a part of it.
fn later_is_no_creation() -> Result<()> {
    let name = "made_anew";
    let scratch = Scratch::new()?;
    let page = ["--domain", "page"];
    explored(name, &[], &page, &scratch)?.expect_clean()?;
    let scratch = Scratch::new()?;
    let explored = explored(name, &["-DBUG"], &page, &scratch)?;
    explored.expect_findings()?;
    let text = fs::read_to_string(source(name))?;
    let line = text.lines().position(|line| line.contains("/* @record */"));
    let line = line.context("the marker is not there")? + 1;
    let says = format!("if the store at {name}.c:{line} is lost");
    let findings = &explored.report.findings;
    let found = findings.iter().find(|f| f.message.contains(&says));
    let found = found.with_context(|| format!("{says}\n{}", show(&explored.report)))?;
    let help = found.help.join("\n");
    ensure!(
        help.contains(&format!("{name}.c:{line}")) && !help.contains("while the file is created"),
        "{help}"
    );
    let lookup = found.events.iter().find(|event| event.role == Role::Lookup);
    ensure!(lookup.is_none(), "{lookup:?}");
    Ok(())
}

/// A pipe is no part of a crash state, and the verdict says so.
fn unfollowed() -> Result<()> {
    let scratch = Scratch::new()?;
    let with = explored("unfollowed", &["-DBUG"], &[], &scratch)?;
    ensure!(with.report.verdict == Verdict::Incomplete, "{with:?}");
    ensure!(with.outcome.status == 3, "{with:?}");
    ensure!(
        with.outcome
            .stderr_text()
            .contains("a pipe, socket or device")
            || format!("{:?}", with.report.coverage).contains("a pipe, socket or device"),
        "{:?}",
        with.report.coverage
    );
    let scratch = Scratch::new()?;
    explored("unfollowed", &[], &[], &scratch)?.expect_clean()
}

/// What a descriptor with `O_DSYNC` writes is durable, with the size of the file.
fn dsync() -> Result<()> {
    let scratch = Scratch::new()?;
    explored("log_beside", &["-DDSYNC"], &[], &scratch)?.expect_clean()
}

/// By the letter of POSIX a synced file may lack its name; by one ordered journal it does not.
fn posix() -> Result<()> {
    for (options, has_findings) in [(&[][..], false), (&["--names", "posix"][..], true)] {
        let scratch = Scratch::new()?;
        let explored = explored("folder", &["-DFILE_ONLY"], options, &scratch)?;
        match has_findings {
            true => explored.expect_findings()?,
            false => explored.expect_clean()?,
        }
    }
    Ok(())
}

/// Whatever the run did to files, the user's are as they were.
fn left_alone() -> Result<()> {
    for case in CASES {
        let scratch = Scratch::new()?;
        let program = compile(case.name, &["-DBUG"], scratch.path())?;
        Invocation::new([program.as_os_str(), "init".as_ref()], scratch.path()).run()?;
        let listing = || -> Result<Vec<(String, Vec<u8>)>> {
            let mut files = Vec::new();
            for entry in fs::read_dir(scratch.path())? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name != "brownout-explore" && name != "report.json" {
                    files.push((name, fs::read(entry.path()).unwrap_or_default()));
                }
            }
            files.sort();
            Ok(files)
        };
        let before = listing()?;
        explored(case.name, &["-DBUG"], &[], &scratch)?;
        ensure!(before == listing()?, "{}: files have changed", case.name);
    }
    Ok(())
}
