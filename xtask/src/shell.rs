//! Running other programs with a message that names them when they fail.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use brownout_tests::layout;

/// Cargo as it started us, so that the same toolchain builds everything.
pub fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(layout::workspace());
    command
}

/// Runs it, output passing through.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs it silently; its output is shown only if it fails.
pub fn run_quiet(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs it and gives back what it prints; all of its output is shown if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", line(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}\n{}{}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command of this name is in PATH.
pub fn exists(name: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// As one word of a shell command.
pub fn quoted(word: &str) -> Cow<'_, str> {
    // Only a NUL cannot be quoted; no argument of a program has one.
    shlex::try_quote(word).unwrap_or(Cow::Borrowed(word))
}

/// Whether `output` is at least as new as all inputs.
pub fn is_fresh(output: &Path, inputs: &[&Path]) -> bool {
    let time = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let Some(made) = time(output) else {
        return false;
    };
    inputs
        .iter()
        .all(|input| time(input).is_some_and(|changed| changed <= made))
}

fn line(command: &Command) -> String {
    let mut text = String::from("`");
    text.push_str(&command.get_program().to_string_lossy());
    for word in command.get_args().map(OsStr::to_string_lossy) {
        let _ = write!(text, " {word}");
    }
    text.push('`');
    text
}
