//! Pictures of the page, as a browser shows it.
//!
//! The suite `tests/suites/browser` takes them while it tests, into `target/screenshots`. Those
//! whose names begin with `docs-` belong to `docs/report.md`, and are copied to `docs/screenshots`.
//! They must stay small: the whole repository is cloned by everybody.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{build, setup, shell};

/// What the pictures of the documentation may take together, in bytes.
const DOCS_MAX: u64 = 150_000;

/// Takes all of them.
pub fn screenshots() -> Result<()> {
    setup::setup()?;
    build::build()?;
    // The harness takes one filter at a time.
    for name in ["every_analysis", "a_campaign_that_goes_on"] {
        let words = "test --release --workspace --test browser --";
        shell::run(shell::cargo().args(words.split(' ')).arg(name))?;
    }
    let workspace = brownout_tests::layout::workspace();
    let taken = brownout_tests::layout::target().join("screenshots");
    let docs = workspace.join("docs/screenshots");
    fs::create_dir_all(&docs)?;
    let mut bytes = 0;
    for entry in fs::read_dir(&taken).context("no screenshots were taken")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix("docs-")) else {
            continue;
        };
        bytes += fs::copy(entry.path(), docs.join(name))?;
    }
    println!(
        "those of the documentation take {bytes} bytes; all are in {}",
        taken.display()
    );
    ensure!(bytes > 0, "there is none for the documentation");
    ensure!(bytes <= DOCS_MAX, "that is more than {DOCS_MAX}");
    Ok(())
}
