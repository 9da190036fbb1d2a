//! What is said, where it is said of, and what is advised: as the author of the program would read
//! it.

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Scratch, check, explore, layout};
use libtest_mimic::Trial;

use crate::{TIMEOUT, trial};

/// A seeded program (kind and name), its build, a rule, and words that its suggestion must have.
const ADVICE: [(&str, &str, &str, &str); 14] = [
    // Both stores, and which of them comes too early.
    (
        "correctness-flag_before_data",
        "bug_assert",
        "not-ordered",
        "now it is stored first",
    ),
    (
        "correctness-flag_without_fence",
        "bug_assert",
        "not-ordered",
        "fence between the write-back at flag_without_fence.c:",
    ),
    (
        "correctness-undo_truncated_early",
        "bug_assert",
        "not-ordered",
        "before the store at undo_truncated_early.c:",
    ),
    // Both are made by one helper: then its callers are named.
    (
        "correctness-free_before_unlink",
        "bug_assert",
        "not-ordered",
        "only when what is stored at free_before_unlink.c:",
    ),
    (
        "correctness-ack_before_durable",
        "bug_assert",
        "not-persisted",
        "where it is relied on",
    ),
    (
        "correctness-derived_from_unpersisted",
        "bug_assert",
        "not-persisted",
        "another thread relies on it",
    ),
    // A lock must not outlive its holder.
    (
        "correctness-lock_still_held",
        "bug",
        "missing-flush",
        "are a lock, initialise it whenever the file is opened",
    ),
    // In an initialiser the object is what is assigned to.
    (
        "correctness-handle_on_stack",
        "bug",
        "missing-flush",
        "write back 8 bytes at node ",
    ),
    // What a header does can be mended where it is used.
    (
        "correctness-nt_without_fence",
        "bug",
        "missing-fence",
        "before returning from operation, nt_without_fence.c:",
    ),
    (
        "rules-counter_in_pool",
        "bug",
        "missing-flush",
        "keep it in ordinary memory",
    ),
    (
        "rules-mark_never_durable",
        "bug",
        "overwritten-unpersisted",
        "before it is overwritten at mark_never_durable.c:",
    ),
    (
        "performance-flush_twice",
        "bug",
        "double-flush",
        "or the one at flush_twice.c:",
    ),
    (
        "performance-empty_fence",
        "bug",
        "empty-fence",
        "leave out the fence at empty_fence.c:",
    ),
    (
        "performance-log_twice",
        "bug_assert",
        "duplicate-log",
        "has logged it",
    ),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = ADVICE
        .into_iter()
        .map(|(program, build, rule, words)| {
            trial(format!("words::advice::{program}"), move || {
                advice(program, build, rule, words)
            })
        })
        .collect();
    trials.push(trial("words::a_header_is_named", a_header_is_named));
    trials
}

fn seeded(program: &str, build: &str, scratch: &Scratch) -> Result<Invocation> {
    let binary = layout::seeded().join(format!("{program}-{build}"));
    ensure!(
        binary.is_file(),
        "{} is missing: run `cargo xtask build`",
        binary.display()
    );
    let argv = [binary.into_os_string(), "run".into(), "pool".into()];
    Ok(Invocation::new(argv, scratch.path()).timeout(TIMEOUT))
}

fn advice(program: &str, build: &str, rule: &str, words: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let native = seeded(program, build, &scratch)?;
    let checked = check::run(&native, &["--pm", "pool", "--enable", "all"])?;
    let findings = checked.of(rule);
    let help: Vec<&String> = findings.iter().flat_map(|finding| &finding.help).collect();
    ensure!(
        help.iter().any(|help| help.contains(words)),
        "{rule} advises {help:?}"
    );
    Ok(())
}

/// The store is in an inline function of the program's own header, which itself uses one of the
/// compiler's.
fn a_header_is_named() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = seeded("correctness-nt_without_fence", "bug", &scratch)?;
    let shown = check::command(&native, &["--pm", "pool"]).run()?;
    let text = shown.stderr_text();
    let headline = text.lines().find(|line| line.starts_with("error["));
    ensure!(
        headline.is_some_and(|line| line.starts_with("error[missing-fence]: pm.h:")),
        "{headline:?}"
    );

    std::fs::remove_file(scratch.join("pool"))?;
    let program = native.argv[0].to_string_lossy().into_owned();
    let recover = format!("{program} check pool");
    let options = ["--pm", "pool", "--recover", &recover];
    let explored = explore::run(&native, &options)?;
    let message = &explored
        .report
        .findings
        .first()
        .context("a finding")?
        .message;
    ensure!(
        message.contains("the store at pm.h:") && message.contains(", for nt_without_fence.c:"),
        "{message}"
    );
    Ok(())
}
