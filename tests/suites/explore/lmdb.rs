//! LMDB on files that persist by `fsync` and its kin (`--domain page`).
//!
//! By default it writes with `pwrite`, makes that durable by `fdatasync`, and commits with one page
//! through a descriptor that was opened with `O_DSYNC`: nothing acknowledged is ever lost. With
//! `MDB_WRITEMAP` it commits by stores to the mapping, and Debian's build has one bug in that, an
//! instruction wide (the compiler moved the store of the transaction's number).

use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::check::show;
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, layout};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(300);

pub fn trials() -> Vec<Trial> {
    vec![
        trial("lmdb::default_is_silent", default_is_silent),
        trial("lmdb::writemap_has_its_one_bug", writemap_has_its_one_bug),
    ]
}

fn explored(mode: &str) -> Result<Explored> {
    let scratch = Scratch::new()?;
    let program = layout::programs().join("lmdb_kv");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo xtask build`",
        program.display()
    );
    let setup = format!("rm -f db db-lock; {} db default check", program.display());
    let recover = format!("{} db {mode} check", program.display());
    let options = [
        "--domain",
        "page",
        "--pm",
        "db",
        "--setup",
        &setup,
        "--recover",
        &recover,
        "--oracle",
        "ops",
    ];
    let words = [
        program.as_os_str(),
        "db".as_ref(),
        mode.as_ref(),
        "run".as_ref(),
    ];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    explore::run(&native, &options)
}

fn default_is_silent() -> Result<()> {
    let explored = explored("default")?;
    ensure!(
        explored.report.findings.is_empty(),
        "{}",
        show(&explored.report)
    );
    explored.expect_complete()
}

fn writemap_has_its_one_bug() -> Result<()> {
    let explored = explored("writemap")?;
    explored.expect_rule("not-atomic")?;
    ensure!(
        explored.report.findings.len() == 1,
        "{}",
        show(&explored.report)
    );
    explored.expect_complete()
}
