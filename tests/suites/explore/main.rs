//! `brownout explore` on programs whose crash states are known.
//!
//! | trials | what |
//! |---|---|
//! | `generated::` | on random small programs it finds exactly the outcomes that brute force finds |
//!
//! To add a group, add a module with `pub fn trials() -> Vec<Trial>`, its line above and its line in [`GROUPS`].

mod generated;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

/// The trials of each module.
const GROUPS: &[fn() -> Vec<Trial>] = &[generated::trials];

fn main() {
    let arguments = Arguments::from_args();
    let trials = GROUPS.iter().flat_map(|trials| trials()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: impl Into<String>, test: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name.into(), move || {
        test().map_err(|error| Failed::from(format!("{error:#}")))
    })
}
