//! `cargo xtask bench session`: runs that are forked from a kept process, against launches.
//!
//! The work is done by an example of the host, because both ways are calls into it:
//! `crates/host/examples/session.rs`. Launches and forked runs come one after the other, not in
//! turn: a kept process may have locked its pool.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;

use super::Options;
use super::places::Places;
use crate::shell;

/// Ten commands of `mapcli`.
const COMMANDS: &str = "i 21\ni 26\ni 5\ni 7\ni 4\nr 7\nc 26\nr 4\ni 16\nr 26\n";
const RUNS: u32 = 1000;
const RUNS_QUICK: u32 = 100;

pub fn bench(options: &Options) -> Result<()> {
    let maps = ["btree", "hashmap_tx", "skiplist"].map(str::to_owned);
    let maps = options.select(maps.to_vec(), |map| map)?;
    let runs = if options.quick { RUNS_QUICK } else { RUNS };
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "brownout-host",
        "--example",
        "session",
    ]))?;
    let places = Places::new()?;
    let mapcli = layout::examples().join("mapcli");
    let commands = places.scratch.join("commands");
    fs::write(&commands, COMMANDS)?;
    for map in maps {
        let pool = places.pools.join(&format!("{map}.pool"));
        let made = Command::new(&mapcli)
            .args([map.as_ref(), pool.as_os_str()])
            .stdin(Stdio::null())
            .output()
            .context("cannot run mapcli")?;
        ensure!(made.status.success(), "mapcli cannot make a pool");
        for (place, stdin) in [
            ("input", commands.as_path()),
            ("world", "/dev/null".as_ref()),
        ] {
            println!("{map}, kept before {place}:");
            let mut command = Command::new(layout::target().join("release/examples/session"));
            command
                .args([runs.to_string().as_ref(), place])
                .args([pool.as_os_str(), stdin.as_os_str(), mapcli.as_os_str()])
                .args([map.as_ref(), pool.as_os_str()]);
            shell::run(&mut command)?;
        }
        fs::remove_file(&pool)?;
    }
    Ok(())
}
