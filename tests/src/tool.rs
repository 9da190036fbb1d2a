//! The `brownout` command lines that the suites use.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail};

use crate::exec::{Invocation, Outcome};
use crate::layout;

/// `brownout run -- …`, otherwise the same invocation.
pub fn run(native: &Invocation) -> Invocation {
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "run".into(), "--".into()];
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
}

/// `brownout record -o TRACE OPTIONS -- …`, otherwise the same invocation.
pub fn record(native: &Invocation, trace: &Path, options: &[&str]) -> Invocation {
    let mut argv: Vec<OsString> = vec![
        layout::brownout().into(),
        "record".into(),
        "-o".into(),
        trace.into(),
    ];
    argv.extend(options.iter().map(OsString::from));
    argv.push("--".into());
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
}

/// `brownout check OPTIONS -- …`, otherwise the same invocation.
pub fn check(native: &Invocation, options: &[&str]) -> Invocation {
    let mut argv: Vec<OsString> = vec![layout::brownout().into(), "check".into()];
    argv.extend(options.iter().map(OsString::from));
    argv.push("--".into());
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
}

/// `brownout trace COMMAND TRACE OPTIONS`.
pub fn trace(command: &str, trace: &Path, options: &[&str], folder: &Path) -> Invocation {
    let mut argv: Vec<OsString> = vec![
        layout::brownout().into(),
        "trace".into(),
        command.into(),
        trace.into(),
    ];
    argv.extend(options.iter().map(OsString::from));
    Invocation::new(argv, folder)
}

/// Fails unless a recording with `--verify` really verified something.
pub fn expect_verified(outcome: &Outcome) -> Result<()> {
    let stderr = outcome.stderr_text();
    if stderr.contains("nothing was verified") {
        bail!("no persistent memory was seen\n{}", outcome.describe());
    }
    Ok(())
}

/// Fails unless the binary is there, with the command that makes it.
pub fn expect_built() -> Result<()> {
    let path = layout::brownout();
    if !path.is_file() {
        bail!("{} is missing: run `cargo xtask build`", path.display());
    }
    Ok(())
}
