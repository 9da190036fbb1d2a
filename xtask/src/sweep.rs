//! `cargo xtask sweep`: large test suites of others, natively and under `brownout run`.
//!
//! ```text
//!  sweep.rs        workers, the table of differences
//!  ├─ common.rs    options, what a comparison comes to
//!  ├─ cpython.rs   `sweep cpython`: modules of CPython's regression tests
//!  └─ stress.rs    `sweep stress-ng`: stressors for signals, processes, memory and pipes
//! ```
//!
//! These take the better part of an hour and are no part of `test`: some of what they run depends
//! on time, and is not ours to change. Guarantee: whatever passes natively and not under the tool
//! is in the table. It is tried a second time, natively too, with nothing beside it; only what
//! differs again makes the command fail, and what does not says so.
//!
//! All files are made in folders that are removed at the end.

mod common;
mod cpython;
mod stress;

use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::{build, setup};
use common::{Comparison, Options, Try};

/// Runs the sweep that is asked for; fails if something differs.
pub fn sweep(words: &[&str]) -> Result<ExitCode> {
    let (which, rest) = words
        .split_first()
        .context("which sweep: cpython or stress-ng?")?;
    let options = Options::parse(rest)?;
    setup::setup()?;
    let rows: Vec<Row> = match *which {
        "cpython" => {
            build::tool()?;
            compare_all(&cpython::modules(&options)?, &options, cpython::compare)
        }
        "stress-ng" => {
            setup::expect("stress-ng", "stress-ng")?;
            build::tool()?;
            compare_all(&stress::stressors(&options)?, &options, stress::compare)
        }
        other => bail!("no such sweep: {other}; there are cpython and stress-ng"),
    };
    Ok(conclude(&rows))
}

struct Row {
    name: String,
    comparison: Comparison,
}

/// Compares all, several at a time, then those that differ once more, one after the other.
fn compare_all(
    names: &[String],
    options: &Options,
    compare: fn(&str, Try) -> Result<Comparison>,
) -> Vec<Row> {
    let jobs = options
        .jobs
        .unwrap_or_else(|| thread::available_parallelism().map_or(2, usize::from));
    let queue = Mutex::new(names.iter());
    let rows = Mutex::new(Vec::new());
    let judge = |name: &str, attempt| match compare(name, attempt) {
        Ok(comparison) => comparison,
        Err(error) => Comparison::Differs(format!("{error:#}")),
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").next();
                    let Some(name) = next else { return };
                    let comparison = judge(name, Try::First);
                    let mut rows = rows.lock().expect("no worker panics");
                    rows.push(Row {
                        name: name.clone(),
                        comparison,
                    });
                    let row = &rows[rows.len() - 1];
                    eprintln!(
                        "{}/{} {name}: {}",
                        rows.len(),
                        names.len(),
                        first_line(&row.comparison)
                    );
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no worker panics");
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    for row in &mut rows {
        let Comparison::Differs(before) = &row.comparison else {
            continue;
        };
        eprintln!("{} once more, alone", row.name);
        row.comparison = match judge(&row.name, Try::Again) {
            Comparison::Differs(text) => Comparison::Differs(text),
            Comparison::NotNatively(text) => Comparison::NotNatively(text),
            _ => Comparison::DifferedOnce(before.clone()),
        };
    }
    rows
}

fn first_line(comparison: &Comparison) -> &str {
    match comparison {
        Comparison::Alike => "alike",
        Comparison::NotNatively(text)
        | Comparison::Differs(text)
        | Comparison::DifferedOnce(text) => text.lines().next().unwrap_or_default(),
    }
}

/// Prints what differs, and the counts.
fn conclude(rows: &[Row]) -> ExitCode {
    println!("| name | outcome | what |\n|---|---|---|");
    let mut counts = [0; 4];
    for row in rows {
        let (index, word, text) = match &row.comparison {
            Comparison::Alike => {
                counts[0] += 1;
                continue;
            }
            Comparison::NotNatively(text) => (1, "not natively either", text),
            Comparison::DifferedOnce(text) => (2, "differed once, not again", text),
            Comparison::Differs(text) => (3, "**differs**", text),
        };
        counts[index] += 1;
        let text = text.lines().next().unwrap_or_default();
        println!("| {} | {word} | {} |", row.name, text.replace('|', "\\|"));
    }
    for row in rows {
        if let Comparison::Differs(text) | Comparison::DifferedOnce(text) = &row.comparison {
            println!("\n== {}\n{text}", row.name);
        }
    }
    let [alike, not_natively, once, differ] = counts;
    println!(
        "\n{} compared: {alike} alike, {once} differed once and not again, {differ} differ; \
         {not_natively} do not pass natively",
        alike + once + differ
    );
    match differ {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_spread_over_all() {
        let names: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
        let some = Options {
            modules: Some(4),
            ..Options::default()
        };
        assert_eq!(
            some.select(names.clone()).unwrap(),
            ["m0", "m2", "m5", "m7"]
        );
        assert_eq!(Options::default().select(names.clone()).unwrap(), names);
        let none = Options {
            only: Some("x".into()),
            ..Options::default()
        };
        assert!(none.select(names).is_err());
    }

    #[test]
    fn what_differs_is_tried_again_and_fails_only_then() {
        let compare = |name: &str, attempt: Try| -> Result<Comparison> {
            match (name, attempt) {
                ("good", _) | ("flaky", Try::Again) => Ok(Comparison::Alike),
                ("broken", _) => bail!("no report"),
                _ => Ok(Comparison::Differs("a case".into())),
            }
        };
        let run = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            compare_all(&names, &Options::default(), compare)
        };
        let rows = run(&["good", "flaky"]);
        assert_eq!(conclude(&rows), ExitCode::SUCCESS);
        assert!(matches!(rows[0].comparison, Comparison::DifferedOnce(_)));
        assert_eq!(conclude(&run(&["good", "bad"])), ExitCode::FAILURE);
        assert_eq!(conclude(&run(&["broken"])), ExitCode::FAILURE);
    }

    #[test]
    fn options_are_understood() {
        let options = Options::parse(&["--modules", "150", "--jobs", "2"]).unwrap();
        assert_eq!((options.modules, options.jobs), (Some(150), Some(2)));
        for wrong in [&["--modules"][..], &["--jobs", "0"], &["--quick", "1"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
