//! Crashes in recovery, where what the first recovery has not read decides.

use std::fs;

use anyhow::{Context, Result};
use brownout_tests::explore::{self, Explored};
use brownout_tests::fuzz::{self, Build};
use brownout_tests::{Invocation, Scratch};
use libtest_mimic::Trial;

use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![trial(
        "nested::what_was_overwritten_unread_comes_back",
        unread,
    )]
}

fn explored(build: Build, scratch: &Scratch) -> Result<Explored> {
    let folder = scratch.path();
    fs::write(folder.join("commands"), "t 1 2 5\n")?;
    fs::write(folder.join("after"), "p\n")?;
    let program = fuzz::find("repair_twice")?.binary(build);
    let native = Invocation::new([program.as_os_str(), "pool".as_ref()], folder);
    let options = [
        "--pm",
        "pool",
        "--stdin",
        "commands",
        "--recover-stdin",
        "after",
        "--depth",
        "2",
    ];
    explore::run(&native, &options)
}

/// Recovery overwrites two accounts unread. After most first crashes that changes nothing, and it reads the same after all of them; but where a transfer was half done, a second
/// crash leaves it so.
fn unread() -> Result<()> {
    let scratch = Scratch::new()?;
    let found = explored(Build::Bug, &scratch)?;
    found.expect_rule("recovery-error")?;
    let scratch = Scratch::new()?;
    explored(Build::Fixed, &scratch)?
        .expect_clean()
        .context("the twin")
}
