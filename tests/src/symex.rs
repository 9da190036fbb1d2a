//! The programs in `tests/symex`: they read their input in ways of their own, and their bug shows
//! only after the right commands.
//!
//! A source has its bug with `-DBUG` and is its own fixed twin without. `-DAFTER=N` has it show
//! after N other commands.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout;

/// One way to compile a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Without the bug.
    Fixed,
    /// With it, behind two other commands.
    Bug,
    /// With it, behind one other command.
    BugAfterOne,
}

impl Build {
    /// All of them.
    pub const ALL: [Build; 3] = [Build::Fixed, Build::Bug, Build::BugAfterOne];

    /// For names of files and tests.
    pub fn name(self) -> &'static str {
        match self {
            Build::Fixed => "fixed",
            Build::Bug => "bug",
            Build::BugAfterOne => "bug_after_one",
        }
    }

    fn defines(self) -> &'static [&'static str] {
        match self {
            Build::Fixed => &[],
            Build::Bug => &["-DBUG"],
            Build::BugAfterOne => &["-DBUG", "-DAFTER=1"],
        }
    }
}

/// One source.
#[derive(Clone, Debug)]
pub struct SymexProgram {
    /// The file without its extension.
    pub name: String,
    /// The source.
    pub source: PathBuf,
}

impl SymexProgram {
    /// Where a build of it lies.
    pub fn binary(&self, build: Build) -> PathBuf {
        binary(&self.name, build)
    }

    /// The compiler's command line, except for where to put the result. Warnings are errors.
    pub fn compiler(&self, build: Build) -> Command {
        let mut command = Command::new("gcc");
        command
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            // Lazy binding has locked instructions, which complete write-backs.
            .args(["-Wl,-z,now"])
            .args(build.defines())
            .arg(&self.source);
        command
    }
}

/// Where a build of a program lies.
pub fn binary(name: &str, build: Build) -> PathBuf {
    layout::symex_programs().join(format!("{name}-{}", build.name()))
}

fn folder() -> PathBuf {
    layout::workspace().join("tests/symex")
}

fn with_extension(extension: &str) -> Result<Vec<PathBuf>> {
    let folder = folder();
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new(extension)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// All programs, sorted by name.
pub fn discover() -> Result<Vec<SymexProgram>> {
    let programs = with_extension("c")?.into_iter().map(|source| SymexProgram {
        name: source
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        source,
    });
    Ok(programs.collect())
}

/// What they include.
pub fn headers() -> Result<Vec<PathBuf>> {
    with_extension("h")
}
