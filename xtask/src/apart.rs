//! The packages that are no members of the workspace, and are held to the same standard.
//!
//! `cargo --workspace` does not see them, so every step that speaks of all code goes through this
//! list as well.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use brownout_tests::layout;

use crate::shell;

/// A package with a workspace of its own.
pub struct Package {
    /// Where its `Cargo.toml` is.
    pub folder: &'static str,
    /// Whether it has its `Cargo.lock` in the repository; then that is what counts.
    pub locked: bool,
}

/// All of them.
pub const PACKAGES: &[Package] = &[
    // Needs its own profile and link arguments; `crates/host/build.rs` builds it.
    Package {
        folder: "crates/engine",
        locked: true,
    },
    // Needs a nightly compiler and sanitizers to run, though not to compile.
    Package {
        folder: "fuzz",
        locked: true,
    },
    // Rules as a user would write them, each on its own.
    Package {
        folder: "examples/rules/atomic-operation",
        locked: false,
    },
    Package {
        folder: "examples/rules/redundant-undo-log",
        locked: false,
    },
];

impl Package {
    /// A cargo command on this package, to which arguments may be added.
    pub fn cargo(&self, command: &str) -> Command {
        let mut cargo = shell::cargo();
        cargo
            .arg(command)
            .arg("--manifest-path")
            .arg(self.manifest());
        cargo
    }

    /// A cargo command that compiles; its results are kept apart from those of the workspace, which
    /// has other flags.
    pub fn cargo_compiling(&self, command: &str) -> Command {
        let mut cargo = self.cargo(command);
        if self.locked {
            cargo.arg("--locked");
        }
        cargo
            .arg("--quiet")
            .arg("--target-dir")
            .arg(layout::workspace().join("target/apart"));
        cargo
    }

    fn lint(&self) -> Result<()> {
        let mut clippy = self.cargo_compiling("clippy");
        shell::run(clippy.args(["--all-targets", "--", "--deny", "warnings"]))
    }

    /// Its `Cargo.toml`.
    pub fn manifest(&self) -> PathBuf {
        layout::workspace().join(self.folder).join("Cargo.toml")
    }
}

/// Whether all of them are formatted.
pub fn check_format() -> Result<()> {
    PACKAGES
        .iter()
        .try_for_each(|package| shell::run(package.cargo("fmt").arg("--check")))
}

/// Whether all of them are free of what clippy warns about.
pub fn lint() -> Result<()> {
    PACKAGES.iter().try_for_each(Package::lint)
}

fn engine() -> impl Iterator<Item = &'static Package> {
    PACKAGES
        .iter()
        .filter(|package| package.folder == "crates/engine")
}

/// Whether the engine is.
pub fn lint_engine() -> Result<()> {
    engine().try_for_each(Package::lint)
}

/// Runs the engine's unit tests.
pub fn test_engine() -> Result<()> {
    engine().try_for_each(|package| shell::run(&mut package.cargo_compiling("test")))
}
