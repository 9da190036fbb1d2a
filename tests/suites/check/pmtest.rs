//! Programs annotated for PMTest, compiled with `include/pmtest.h` and no library.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brownout_findings::Verdict;
use brownout_tests::check::{self, Checked};
use brownout_tests::{Invocation, Scratch, layout};
use libtest_mimic::Trial;

use crate::{TIMEOUT, own_program, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("pmtest::list_good", list_good),
        trial("pmtest::list_bad", list_bad),
        trial("pmtest::result", result),
    ]
}

fn source() -> PathBuf {
    layout::workspace().join("tests/seeded/pmtest/pmtest_list.c")
}

fn list(mode: &str) -> Result<Checked> {
    let scratch = Scratch::new()?;
    let binary = check::compile(&source(), scratch.join("list"), &["-O2"])?;
    let argv = [binary.into_os_string(), "pool".into(), mode.into()];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let natively = native.run()?.expect_success("natively")?;
    let checked = check::run(&native, &["--pm", "pool"])?;
    ensure!(natively.stdout == checked.outcome.stdout);
    Ok(checked)
}

/// Every assertion holds, and the counter that is never written back is excluded.
fn list_good() -> Result<()> {
    let checked = list("good")?;
    checked.expect_places(&[])?;
    ensure!(checked.report.verdict == Verdict::Clean);
    checked.expect_status(0)
}

fn list_bad() -> Result<()> {
    let text = fs::read_to_string(source())?;
    let marked = text
        .lines()
        .zip(1..)
        .find(|(line, _)| line.contains("/* @order */"));
    let (_, line) = marked.context("no line is marked @order")?;
    let checked = list("bad")?;
    checked.expect_status(1)?;
    let findings = &checked.report.findings;
    ensure!(
        findings.len() == 1 && findings[0].rule == "not-ordered",
        "not exactly the one\n{}",
        check::show(&checked.report)
    );
    let asserted = findings[0].events.last().context("no events")?;
    ensure!(
        check::is_at_line(asserted, "pmtest_list.c", line),
        "not at line {line}\n{}",
        check::show(&checked.report)
    );
    Ok(())
}

/// A program is told how many of its assertions have failed; natively none has.
fn result() -> Result<()> {
    let scratch = Scratch::new()?;
    let argv = [own_program("check_result")?.into_os_string(), "pool".into()];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let expect = |stdout: String, counts: [u32; 4]| -> Result<()> {
        let whens = ["at first", "then", "at last", "again"];
        let lines = whens
            .iter()
            .zip(counts)
            .map(|(when, count)| format!("{when}: {count} failed\n"));
        ensure!(stdout == lines.collect::<String>(), "it says\n{stdout}");
        Ok(())
    };
    expect(
        native.run()?.expect_success("natively")?.stdout_text(),
        [0; 4],
    )?;
    let checked = check::run(&native, &["--pm", "pool"])?;
    checked.expect_status(1)?;
    expect(checked.outcome.stdout_text(), [0, 1, 2, 2])?;
    checked.expect_places(&[("not-ordered", "main"), ("not-persisted", "main")])
}
