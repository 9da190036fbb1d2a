//! Findings name the calling path on which the store was made, however many paths share the
//! instruction.
//!
//! `pm_paths` writes the path into the address. So every finding can be judged alone, and every
//! path must have its own.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::{TIMEOUT, own_program, trial};

const STEPS: u64 = 3;
const DEPTH: usize = 4;
const PATHS: u64 = STEPS.pow(DEPTH as u32);
const SLOT: u64 = 128;
/// Stores that each leaf makes to its slot, by different instructions.
const STORES: [u64; 5] = [1, 2, 1, 2, 2];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("paths::of_a_lone_thread", || every_path(&[])),
        trial("paths::after_a_second_thread", || every_path(&["thread"])),
    ]
}

fn every_path(arguments: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut argv = vec![own_program("pm_paths")?.into_os_string(), "pool".into()];
    argv.extend(arguments.iter().map(|argument| argument.into()));
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let checked = check::run(&native, &["--pm", "pool"])?;
    checked.expect_status(1)?;
    let mut seen = BTreeSet::new();
    for finding in &checked.report.findings {
        if finding.rule != "missing-flush" {
            continue;
        }
        let store = &finding.events[0];
        let offset = store.place.as_ref().context("a place")?.offset;
        let functions: Vec<&str> = store
            .stack
            .iter()
            .map(|frame| frame.function.as_deref().unwrap_or_default())
            .collect();
        let by_stack = slot_of(&functions).with_context(|| format!("{functions:?}"))?;
        ensure!(
            offset / SLOT == by_stack,
            "slot {}, but {functions:?}",
            offset / SLOT
        );
        ensure!(seen.insert(offset), "twice: {functions:?}");
    }
    let wanted = PATHS * STORES.iter().sum::<u64>();
    ensure!(
        seen.len() as u64 == wanted,
        "{} stores of {wanted}",
        seen.len()
    );
    Ok(())
}

/// The slot that belongs to a stack, from the leaf outwards.
fn slot_of(functions: &[&str]) -> Option<u64> {
    let number = |name: &str, of: &str| name.strip_prefix(of)?.parse::<u64>().ok();
    let leaf = number(functions.first()?, "leaf_")?;
    let steps = functions.get(1..=DEPTH)?;
    // The outermost step is the path's lowest digit.
    let path = (0..DEPTH)
        .rev()
        .zip(steps)
        .try_fold(0, |path, (level, step)| {
            Some(path * STEPS + number(step, &format!("step_{level}_"))?)
        })?;
    (functions.get(DEPTH + 1)? == &"main").then_some(leaf * PATHS + path)
}
