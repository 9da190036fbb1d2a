//! Programs annotated for PMTest and for PMRace, compiled with `include/pmtest.h` and
//! `include/pmrace.h` and no library.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brownout_findings::Verdict;
use brownout_tests::check::{self, Checked};
use brownout_tests::{Invocation, Scratch, layout, tool};
use brownout_trace::annotation;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::{TIMEOUT, own_program, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("pmtest::list_good", list_good),
        trial("pmtest::list_bad", list_bad),
        trial("pmtest::result", result),
        trial("pmrace::sync_var", sync_var),
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

/// What a program says of its locks comes into the trace, where the words lie in the pool; no rule
/// of one run makes anything of it.
fn sync_var() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = layout::workspace().join("tests/seeded/pmrace/sync_var.c");
    let binary = check::compile(&source, scratch.join("sync_var"), &["-O2"])?;
    let native = Invocation::new([binary.into_os_string(), "pool".into()], scratch.path());
    let native = native.timeout(TIMEOUT);
    let trace = scratch.join("trace");
    let recorded = tool::record(&native, &trace, &["--pm", "pool"]).run()?;
    recorded.expect_success("record")?;
    let options = ["--format", "json", "--no-symbols"];
    let dump = tool::trace("dump", &trace, &options, scratch.path()).run()?;
    let dump = dump.expect_success("trace dump")?.stdout_text();
    let mut pool = None;
    let mut said = Vec::new();
    for line in dump.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["kind"] == "map" {
            pool = number(&event["addr"]).or(pool);
        }
        if event["kind"] == "annotation" {
            ensure!(event["code"] == annotation::SYNC_VAR, "{line}");
            let args = event["args"].as_array().context("no arguments")?;
            said.push(args.iter().filter_map(number).collect::<Vec<u64>>());
        }
    }
    let pool = pool.context("no mapping in the trace")?;
    let expected = [vec![pool, 4, 0, 0, 0], vec![pool + 8, 8, 2, 0, 0]];
    ensure!(said == expected, "{said:x?}, not {expected:x?}");
    let checked = check::run(&native, &["--pm", "pool"])?;
    checked.expect_places(&[])?;
    checked.expect_status(0)
}

/// Of a hexadecimal string, as dumps have them.
fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}
