//! However recovery reads the pool, explore sees it: through the kernel, through descriptors, by
//! executing it.
//!
//! The program loses a datum whose flag is persistent. That can only be found if the read of the
//! datum is seen: else recovery is never run with the old content.

use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::check::show;
use brownout_tests::{Invocation, Scratch, explore, layout};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

const WAYS: &[&str] = &[
    "load",
    "write",
    "vmsplice",
    "mem",
    "mem_by_pid",
    "process_vm",
    "pread",
    "sendfile",
    "splice",
    "execute",
];

pub fn trials() -> Vec<Trial> {
    let all = WAYS.iter();
    all.map(|how| trial(format!("reads::{how}"), move || seen(how)))
        .collect()
}

fn seen(how: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = layout::programs().join("pm_reads");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo xtask build`",
        program.display()
    );
    let recover = format!("{} pool check {how}", program.display());
    let native = Invocation::new(
        [program.as_os_str(), "pool".as_ref(), "run".as_ref()],
        scratch.path(),
    )
    .timeout(TIMEOUT);
    let explored = explore::run(&native, &["--pm", "pool", "--recover", &recover])?;
    explored.expect_findings()?;
    ensure!(
        explored.report.findings.len() == 1,
        "{}",
        show(&explored.report)
    );
    Ok(())
}
