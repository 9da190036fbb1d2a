//! Ten thousand findings: all are in the report, and what people read stays readable.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Result, ensure};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::{TIMEOUT, trial};

const FUNCTIONS: usize = 100;
const STORES: usize = 100;
const FINDINGS: usize = FUNCTIONS * STORES;

pub fn trials() -> Vec<Trial> {
    vec![trial("large::ten_thousand_findings", ten_thousand)]
}

/// Each store is on a line of its own, in code and in memory.
fn source() -> String {
    let mut text = String::from("#include \"pm_pool.h\"\n");
    for function in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "static void f{function}(volatile unsigned char *p)\n{{"
        );
        for store in 0..STORES {
            let _ = writeln!(text, "    p[{}] = 1;", 64 * (function * STORES + store));
        }
        text.push_str("}\n");
    }
    text.push_str("int main(int argc, char **argv)\n{\n");
    let _ = writeln!(
        text,
        "    struct pool p = pool_create(argc, argv, {});",
        64 * FINDINGS
    );
    for function in 0..FUNCTIONS {
        let _ = writeln!(text, "    f{function}(p.base);");
    }
    text.push_str("    return 0;\n}\n");
    text
}

fn ten_thousand() -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.join("large.c");
    fs::write(&path, source())?;
    let binary = check::compile(&path, scratch.join("large"), &["-O0"])?;
    let argv = [binary.into_os_string(), "pool".into()];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);

    let checked = check::run(&native, &["--pm", "pool"])?;
    checked.expect_status(1)?;
    let findings = &checked.report.findings;
    ensure!(findings.len() == FINDINGS, "{} findings", findings.len());
    ensure!(
        findings
            .iter()
            .all(|finding| finding.rule == "missing-flush")
    );
    let fingerprints: BTreeSet<&str> = findings.iter().map(|f| f.fingerprint.as_str()).collect();
    ensure!(
        fingerprints.len() == FINDINGS,
        "{} differ",
        fingerprints.len()
    );

    let terminal = check::command(&native, &["--pm", "pool"]).run()?;
    ensure!(terminal.status == 1);
    let text = terminal.stderr_text();
    let in_full = text
        .lines()
        .filter(|line| line.starts_with("error["))
        .count();
    ensure!(in_full <= 100, "{in_full} findings in full");
    let lines = text.lines().count();
    // Each function has a hundred findings of one kind: the first in full, in some twenty lines, a
    // dozen in one each.
    ensure!((1000..4000).contains(&lines), "{lines} lines");
    ensure!(text.contains("\n10,000 findings in 100 places:\n"));
    let last_words = text.lines().rev().take(5);
    ensure!(
        last_words
            .clone()
            .any(|line| line.starts_with("look first: at large.c:")),
        "{:?}",
        last_words.collect::<Vec<_>>()
    );
    ensure!(
        text.lines().last() == Some("brownout: 10,000 correctness and 0 performance findings"),
        "{:?}",
        text.lines().last()
    );
    Ok(())
}
