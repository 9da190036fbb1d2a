//! The Debian packages that tests, demo and benchmarks use.
//!
//! Installs what is missing when run as root, else names it with the command that installs it, and
//! fails. Guarantee: no daemon is started by an installation (`policy-rc.d` says no for its
//! duration).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A package, and the command whose presence does as well, for what other packages provide.
struct Package {
    name: &'static str,
    or_command: Option<&'static str>,
}

const fn package(name: &'static str) -> Package {
    Package {
        name,
        or_command: None,
    }
}

const fn command(name: &'static str, command: &'static str) -> Package {
    Package {
        name,
        or_command: Some(command),
    }
}

const PACKAGES: &[Package] = &[
    // Persistent memory: the libraries, and libpmemobj's examples, which are in its documentation.
    package("libpmem-dev"),
    package("libpmemobj-dev"),
    package("libpmemlog-dev"),
    package("libpmemblk-dev"),
    // A database that persists by `fsync` and its kin.
    package("liblmdb-dev"),
    // Compilers and what the examples include.
    command("gcc", "gcc"),
    command("g++", "g++"),
    command("make", "make"),
    command("binutils", "objdump"),
    command("lld", "ld.lld"),
    command("mold", "mold"),
    package("libc6-dev"),
    package("uuid-dev"),
    package("libglib2.0-dev"),
    package("libncurses-dev"),
    // Programs of the transparency suite.
    command("bash", "bash"),
    command("dash", "dash"),
    package("python3"),
    package("libpython3.11-testsuite"),
    command("perl", "perl"),
    command("nodejs", "node"),
    command("default-jdk-headless", "javac"),
    command("luajit", "luajit"),
    command("sqlite3", "sqlite3"),
    command("gdb", "gdb"),
    command("git", "git"),
    // Build systems, test runners and viewers of the recipes.
    command("cmake", "cmake"),
    command("ninja-build", "ninja"),
    command("meson", "meson"),
    package("python3-pytest"),
    command("lcov", "genhtml"),
    // The browser in which the page is tried, and what checks the types of its script.
    package("chromium"),
    command("node-typescript", "tsc"),
    command("openssl", "openssl"),
    command("gzip", "gzip"),
    command("bzip2", "bzip2"),
    command("xz-utils", "xz"),
    command("zstd", "zstd"),
    command("tar", "tar"),
    command("mawk", "mawk"),
    command("gawk", "gawk"),
    command("bc", "bc"),
    command("dc", "dc"),
    command("diffutils", "diff"),
    command("patch", "patch"),
    command("findutils", "find"),
    command("redis-server", "redis-server"),
    command("redis-tools", "redis-cli"),
    command("memcached", "memcached"),
];

/// Installs what is missing, or says what is.
pub fn setup() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !is_present(package))
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root()? {
        bail!(
            "these packages are missing; install them and try again:\n  sudo apt-get install --no-install-recommends {list}"
        );
    }
    if !shell::exists("apt-get") {
        bail!("these Debian packages are missing, and there is no apt-get here: {list}");
    }
    println!("installing {list}");
    let policy = DaemonPolicy::deny()?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(words);
        shell::run_quiet(&mut command)
    };
    apt(&["update"])?;
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(&missing);
    let installed = apt(&install);
    drop(policy);
    installed?;
    let still: Vec<&str> = PACKAGES
        .iter()
        .filter(|p| !is_present(p))
        .map(|p| p.name)
        .collect();
    if !still.is_empty() {
        bail!(
            "apt-get succeeded, yet these are missing: {}",
            still.join(" ")
        );
    }
    Ok(())
}

/// Fails unless a package is there that only one command needs, and that [`setup`] therefore does
/// not install.
pub fn expect(name: &'static str, or_command: &'static str) -> Result<()> {
    if !is_present(&command(name, or_command)) {
        bail!("a package is missing: apt-get install --no-install-recommends {name}");
    }
    Ok(())
}

fn is_present(package: &Package) -> bool {
    if package.or_command.is_some_and(shell::exists) {
        return true;
    }
    Command::new("dpkg-query")
        .args(["-W", "-f=${db:Status-Status}", package.name])
        .output()
        .is_ok_and(|output| output.stdout == b"installed")
}

fn is_root() -> Result<bool> {
    let output = Command::new("id")
        .arg("-u")
        .output()
        .context("cannot run `id`")?;
    Ok(output.stdout == b"0\n")
}

/// `invoke-rc.d` asks this script before it starts a service. Ours denies; an existing one stays.
struct DaemonPolicy {
    ours: bool,
}

impl DaemonPolicy {
    const PATH: &str = "/usr/sbin/policy-rc.d";

    fn deny() -> Result<DaemonPolicy> {
        if Path::new(Self::PATH).exists() {
            return Ok(DaemonPolicy { ours: false });
        }
        // 101: action forbidden by policy.
        fs::write(Self::PATH, "#!/bin/sh\nexit 101\n")
            .context("cannot write the service policy")?;
        fs::set_permissions(Self::PATH, Permissions::from_mode(0o755))?;
        Ok(DaemonPolicy { ours: true })
    }
}

impl Drop for DaemonPolicy {
    fn drop(&mut self) {
        if self.ours {
            // Leaving it would keep services from starting; that it fails to go away is worth a
            // word.
            if let Err(error) = fs::remove_file(Self::PATH) {
                eprintln!("xtask: cannot remove {}: {error}", Self::PATH);
            }
        }
    }
}
