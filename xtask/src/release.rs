//! `cargo xtask release`: whether a release can be made of what is here, and the file that would be
//! released.
//!
//! It publishes nothing and tags nothing; it says what is missing, or the command that tags.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::layout;

use crate::{dependencies, shell};

/// More than this, and something has come in that does not belong there (debug information, most
/// likely).
const BYTES_MAX: u64 = 24 << 20;

/// Checks what `cargo xtask test` does not, and builds the binary.
pub fn release() -> Result<()> {
    let (version, _) = dependencies::version()?;
    println!("== changelog");
    let changelog = fs::read_to_string(layout::workspace().join("CHANGELOG.md"))?;
    check_changelog(&changelog, &version)?;
    println!("== oldest Rust");
    oldest_rust()?;
    println!("== binary");
    let binary = build()?;
    println!("{}", binary);
    let status = shell::output(Command::new("git").args(["status", "--porcelain"]))?;
    ensure!(status.is_empty(), "commit first:\n{status}");
    println!("ready, if `cargo xtask test` is green: git tag v{version}");
    Ok(())
}

/// Compiles everything with the oldest Rust that `Cargo.toml` promises, and what promises an older
/// one with that.
pub fn oldest_rust() -> Result<()> {
    let (_, oldest) = dependencies::version()?;
    let older = dependencies::older()?;
    let toolchains = shell::output(Command::new("rustup").args(["toolchain", "list"]))
        .context("rustup is needed to compile with another Rust")?;
    let is_missing = |version: &&str| {
        let toolchain = format!("{version}-");
        !toolchains.lines().any(|line| line.starts_with(&toolchain))
    };
    let all = older.iter().map(|(_, version)| version.as_str());
    let missing: Vec<&str> = all.chain([oldest.as_str()]).filter(is_missing).collect();
    ensure!(
        missing.is_empty(),
        "Rust {0} is not installed: rustup toolchain install {1} --profile minimal",
        missing.join(" and "),
        missing.join(" ")
    );
    for (package, version) in &older {
        library_with(package, version)?;
    }
    shell::run(
        Command::new("rustup")
            .current_dir(layout::workspace())
            .args(["run", &oldest, "cargo", "check", "--quiet", "--locked"])
            .args(["--workspace", "--all-targets", "--target-dir"])
            .arg(layout::workspace().join("target/oldest-rust"))
            // Those of the cargo that runs us.
            .env_remove("CARGO")
            .env_remove("RUSTUP_TOOLCHAIN"),
    )
}

/// Compiles a package's library with an older Rust, by itself: a cargo of that age does not read
/// this workspace. Such a package depends on nothing.
fn library_with(package: &str, version: &str) -> Result<()> {
    let folder = package.strip_prefix("brownout-").unwrap_or(package);
    let source = layout::workspace().join(format!("crates/{folder}/src/lib.rs"));
    let out = layout::workspace().join("target/oldest-rust");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    for disabled in [false, true] {
        let mut rustc = Command::new("rustup");
        rustc
            .args(["run", version, "rustc", "--edition", "2021"])
            .args(["--crate-type", "rlib", "--emit", "metadata"])
            .args(["--crate-name", &package.replace('-', "_")])
            .args(["-D", "warnings", "--out-dir"])
            .arg(&out)
            .arg(&source)
            .env_remove("RUSTUP_TOOLCHAIN");
        if disabled {
            rustc.args(["--cfg", "feature=\"disable\""]);
        }
        shell::run(&mut rustc)?;
    }
    Ok(())
}

/// Builds the tool as it is released.
pub fn distributed() -> Result<PathBuf> {
    shell::run(shell::cargo().args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "brownout",
    ]))?;
    Ok(layout::target().join("dist/brownout"))
}

/// Builds and tries the tool as it is released; a sentence about the file.
fn build() -> Result<String> {
    let file = distributed()?;
    let bytes = fs::metadata(&file)?.len();
    let version = shell::output(Command::new(&file).arg("--version"))?;
    ensure!(
        bytes <= BYTES_MAX,
        "{} has {bytes} bytes, more than {BYTES_MAX}",
        file.display()
    );
    // The engine must still be found in the file, wherever stripping has moved it.
    let said = shell::output(Command::new(&file).args(["run", "--", "/bin/echo", "alive"]))?;
    ensure!(
        said == "alive\n",
        "the binary does not run a program: {said:?}"
    );
    Ok(format!(
        "{}: {:.1} MB, {}",
        file.display(),
        bytes as f64 / 1e6,
        version.trim()
    ))
}

/// A release has a section with its version and its date, and nothing is left above it.
fn check_changelog(text: &str, version: &str) -> Result<()> {
    let heading = format!("## [{version}] - ");
    let mut sections = text.lines().filter(|line| line.starts_with("## "));
    match sections.next() {
        Some(first) if first.starts_with(&heading) => {
            let date = &first[heading.len()..];
            ensure!(
                is_date(date),
                "CHANGELOG.md: the date of {version} is {date:?}, not YYYY-MM-DD"
            );
            Ok(())
        }
        first => bail!(
            "CHANGELOG.md begins with {:?}; give that section the heading \"{heading}YYYY-MM-DD\"",
            first.unwrap_or("no section")
        ),
    }
}

fn is_date(text: &str) -> bool {
    let lens: Vec<usize> = text.split('-').map(str::len).collect();
    lens == [4, 2, 2] && text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_its_section_first() {
        let good = "# Changelog\n\n## [0.2.0] - 2027-01-31\n\n- x\n\n## [0.1.0] - 2026-12-01\n";
        check_changelog(good, "0.2.0").unwrap();
        for bad in [
            "# Changelog\n",
            "# Changelog\n\n## [Unreleased]\n\n- y\n\n## [0.2.0] - 2027-01-31\n",
            "# Changelog\n\n## [0.2.0] - soon\n",
            "# Changelog\n\n## [0.1.0] - 2026-12-01\n",
        ] {
            assert!(check_changelog(bad, "0.2.0").is_err(), "{bad}");
        }
    }
}
