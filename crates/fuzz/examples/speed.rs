//! One test case run again and again with all detectors on, against the same program launched
//! natively: executions a second, and where their time goes. `cargo xtask bench fuzz` calls it.
//!
//! ```text
//!  speed RUNS POOL INPUT PROGRAM ARGS…
//! ```
#![allow(clippy::print_stdout)] // it is a program

use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brownout_explore::Ground;
use brownout_fuzz::{Case, Judge, Runner, Target, Workshop};
use brownout_images::{Contents, Origin, Store, View, capture};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut word = || words.next().ok_or("RUNS POOL INPUT PROGRAM ARGS…");
    let runs = word()?.to_str().and_then(|n| n.parse().ok());
    let runs: u32 = runs.ok_or("RUNS is a number")?;
    let pool = PathBuf::from(word()?).canonicalize()?;
    let path = PathBuf::from(word()?);
    let input = fs::read(&path)?;
    let program = word()?;
    let args: Vec<_> = words.collect();
    let before = fs::read(&pool)?;
    let mut native = Duration::ZERO;
    let launches = (runs / 10).max(1);
    for _ in 0..launches {
        let begun = Instant::now();
        let mut command = Command::new(&program);
        command.args(&args).stdin(File::open(&path)?);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        native += begun.elapsed();
        fs::write(&pool, &before)?;
    }
    let folder = tempfile::tempdir()?;
    let store = Arc::new(Store::create(&folder.path().join("images"))?);
    // The pool as it is, as an image.
    let here = |path: &std::path::Path| path.to_path_buf();
    let nowhere = |_: &std::path::Path| PathBuf::from("/nonexistent");
    let contents: Contents = capture(
        [pool.clone()],
        &View {
            at: &here,
            machine: &nowhere,
        },
    )?
    .contents;
    let root = store.add(None, Origin::Root("a pool".into()), &contents)?;
    let target = Target {
        program,
        args,
        pm_globs: vec![pool.to_string_lossy().into_owned()],
        delivery: Default::default(),
    };
    let patience = Duration::from_secs(60);
    let workshop = Arc::new(Workshop::new(Ground::new()?, store, target, patience));
    let judge = Judge::new(Default::default(), Default::default());
    let mut runner = Runner::new(workshop, judge);
    let case = Case {
        image: root.id,
        input,
    };
    // The first run opens the server, the second finds out about memory.
    runner.run(&case)?;
    runner.run(&case)?;
    let opening = runner.times.opening;
    let before = runner.times;
    let begun = Instant::now();
    for _ in 0..runs {
        runner.run(&case)?;
    }
    let all = begun.elapsed().as_secs_f64();
    let each = all / f64::from(runs);
    let native = native.as_secs_f64() / f64::from(launches);
    println!(
        "{:.0} executions a second ({:.2} ms each: {:.2} running, {:.2} judging); launched natively {:.0} a second ({:.2} ms each): {:.1} times as many. \
         Opening took {:.0} ms, {} of {} runs were forked.",
        1.0 / each,
        each * 1e3,
        (runner.times.running - before.running) / f64::from(runs) * 1e3,
        (runner.times.judging - before.judging) / f64::from(runs) * 1e3,
        1.0 / native,
        native * 1e3,
        native / each,
        opening * 1e3,
        runner.warm,
        runs + 2,
    );
    Ok(())
}
