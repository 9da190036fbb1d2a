//! What `O_DSYNC` makes durable is certain, with the size that it takes to read it back; without it
//! neither is.

use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::check::show;
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, layout};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

pub fn trials() -> Vec<Trial> {
    vec![
        trial("synced::records_survive", || {
            let explored = explored("run")?;
            let findings = &explored.report.findings;
            ensure!(findings.is_empty(), "{}", show(&explored.report));
            explored.expect_complete()
        }),
        trial("synced::plain_records_do_not", || {
            explored("plain")?.expect_rule("recovery-error")
        }),
    ]
}

/// A log beside a pool that counts its records.
fn explored(how: &str) -> Result<Explored> {
    let scratch = Scratch::new()?;
    let program = layout::programs().join("dsync_log");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo xtask build`",
        program.display()
    );
    let recover = format!("{} pool check", program.display());
    let words = [program.as_os_str(), "pool".as_ref(), how.as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    explore::run(&native, &["--pm", "pool", "--recover", &recover])
}
