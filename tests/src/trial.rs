//! One row of a suite as a test with a name of its own.

use anyhow::Result;
use libtest_mimic::{Failed, Trial};

/// A test that fails with the whole chain of an error's causes.
pub fn trial(name: impl Into<String>, test: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// A test in place of those that could not be made: a suite whose rows cannot be read fails,
/// instead of being empty.
pub fn broken(name: impl Into<String>, error: &anyhow::Error) -> Trial {
    let message = format!("{error:#}");
    Trial::test(name, move || Err(Failed::from(message)))
}
