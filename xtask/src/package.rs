//! `cargo xtask package`: a Debian package of the tool, tried as it is installed.
//!
//! What is in it: the stripped tool, with the name by which it takes Valgrind's place; manual pages
//! and completions, which the tool writes itself; the headers for annotations and for custom rules,
//! with a file for pkg-config and a module for CMake; the documentation and the licences.
//!
//! Guarantee: before anybody hears of the package it is installed into an empty root, and its tool,
//! headers and modules are used from there. `--binary FILE` packages a tool that is built already.
//!
//! Deviation: they are used on this machine, with its C library, compiler and CMake. That the
//! packages it names as dependencies are enough, and that they are there under these names
//! elsewhere, is not tried.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::{Scratch, layout};

use crate::{dependencies, release, setup, shell};

/// Debian's word for what the engine translates.
const ARCHITECTURE: &str = "amd64";

/// Makes the package and tries it.
pub fn package(words: &[&str]) -> Result<()> {
    let binary = match words {
        [] => release::distributed()?,
        ["--binary", file] => PathBuf::from(file),
        _ => bail!("usage: cargo xtask package [--binary FILE]"),
    };
    let (version, _) = dependencies::version()?;
    for (package, command) in [
        ("dpkg", "dpkg-deb"),
        ("pkg-config", "pkg-config"),
        ("cmake", "cmake"),
        ("gzip", "gzip"),
        ("binutils", "strip"),
    ] {
        setup::expect(package, command)?;
    }
    let file = make(&binary, &version, &layout::target().join("package"), "-Zxz")?;
    try_out(&file, &version)?;
    let bytes = fs::metadata(&file)?.len();
    println!("{}: {:.1} MB", file.display(), bytes as f64 / 1e6);
    Ok(())
}

/// Lays the files out and packs them, into a folder; `dpkg-deb` is told how to compress them.
fn make(binary: &Path, version: &str, target: &Path, compression: &str) -> Result<PathBuf> {
    let scratch = Scratch::new()?;
    let root = scratch.folder("root")?;
    let source = layout::workspace();
    let folder = |name: &str| -> Result<PathBuf> {
        let path = root.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    };

    let bin = folder("usr/bin")?;
    let tool = bin.join("brownout");
    fs::copy(binary, &tool).with_context(|| format!("no tool at {}", binary.display()))?;
    shell::run(Command::new("strip").arg(&tool))?;
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755))?;
    symlink("brownout", bin.join("brownout-valgrind"))?;

    let pages = folder("usr/share/man/man1")?;
    shell::run(Command::new(&tool).args(["man", "--dir"]).arg(&pages))?;
    let mut names: Vec<PathBuf> = fs::read_dir(&pages)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    names.sort();
    shell::run(Command::new("gzip").args(["-9", "-n"]).args(&names))?;
    for (shell_name, path) in [
        ("bash", "usr/share/bash-completion/completions/brownout"),
        ("zsh", "usr/share/zsh/vendor-completions/_brownout"),
        ("fish", "usr/share/fish/vendor_completions.d/brownout.fish"),
    ] {
        let script = shell::output(Command::new(&tool).args(["completions", shell_name]))?;
        write(&root.join(path), &script)?;
    }

    let headers = folder("usr/include")?;
    for entry in fs::read_dir(source.join("include"))? {
        let path = entry?.path();
        let name = path.file_name().context("a header has a name")?;
        fs::copy(&path, headers.join(name))?;
    }
    let filled = |name: &str| -> Result<String> {
        let text = fs::read_to_string(source.join("packaging").join(name))?;
        Ok(text.replace("@VERSION@", version))
    };
    let config = filled("brownout.pc.in")?;
    write(&root.join("usr/share/pkgconfig/brownout.pc"), &config)?;
    let module = filled("BrownoutConfig.cmake.in")?;
    let cmake = root.join("usr/share/cmake/Brownout");
    write(&cmake.join("BrownoutConfig.cmake"), &module)?;
    let module = filled("BrownoutConfigVersion.cmake.in")?;
    write(&cmake.join("BrownoutConfigVersion.cmake"), &module)?;

    let documents = folder("usr/share/doc/brownout")?;
    shell::run(
        Command::new("cp")
            .arg("-r")
            .arg(source.join("docs"))
            .arg(source.join("README.md"))
            .arg(source.join("CHANGELOG.md"))
            .arg(&documents),
    )?;
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| source.join(name));
    let mut copyright = String::from("Brownout, under either of these licences, as you like.\n");
    for licence in licences {
        copyright += "\n----\n\n";
        copyright += &fs::read_to_string(licence)?;
    }
    write(&documents.join("copyright"), &copyright)?;

    let size = shell::output(
        Command::new("du")
            .args(["-sk", "--apparent-size"])
            .arg(&root),
    )?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let control = format!(
        "Package: brownout\nVersion: {version}\nArchitecture: {ARCHITECTURE}\nMaintainer: The Brownout project <brownout@localhost>\n\
         Installed-Size: {size}\nDepends: libc6, libgcc-s1\nSuggests: gdb, lcov\nSection: devel\nPriority: optional\n\
         Description: find crash-consistency and performance bugs of persistent-memory programs\n \
         Runs unmodified x86-64 programs, sees every access that they make to persistent\n \
         memory, and finds what a power failure would break.\n"
    );
    write(&root.join("DEBIAN/control"), &control)?;
    fs::create_dir_all(target)?;
    let file = target.join(format!("brownout_{version}_{ARCHITECTURE}.deb"));
    shell::run_quiet(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", compression, "--build"])
            .arg(&root)
            .arg(&file),
    )?;
    Ok(file)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

const ANNOTATED: &str = "#include <brownout.h>\n\
    int main(void) { char data[64]; brownout_is_persisted(data, sizeof data); return 0; }\n";

/// Installs the package into an empty root and uses what it has brought.
fn try_out(file: &Path, version: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let root = scratch.folder("root")?;
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    // What it depends on is this machine's, outside of the root.
    let mut install = Command::new("dpkg");
    let mut option = std::ffi::OsString::from("--root=");
    option.push(&root);
    install.arg(option);
    install.args([
        "--force-depends",
        "--force-not-root",
        "--log=/dev/null",
        "-i",
    ]);
    shell::run_quiet(install.arg(file))?;
    let tool = root.join("usr/bin/brownout");
    let said = shell::output(Command::new(&tool).arg("--version"))?;
    ensure!(said.contains(version), "{said}");
    let said = shell::output(Command::new(&tool).args(["run", "--", "/bin/echo", "alive"]))?;
    ensure!(said == "alive\n", "it runs no program: {said:?}");
    let valgrind = root.join("usr/bin/brownout-valgrind");
    let said = shell::output(Command::new(&valgrind).args(["-q", "/bin/echo", "alive"]))?;
    ensure!(
        said == "alive\n",
        "it does not take Valgrind's place: {said:?}"
    );

    let project = scratch.folder("project")?;
    fs::write(project.join("t.c"), ANNOTATED)?;
    fs::write(project.join("rule.c"), "#include <brownout_rule.h>\n")?;
    let config = root.join("usr/share/pkgconfig");
    let flags = shell::output(
        Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", &config)
            .env("PKG_CONFIG_SYSROOT_DIR", &root)
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .args(["--cflags", "brownout"]),
    )?;
    ensure!(flags.contains("usr/include"), "pkg-config says {flags:?}");
    shell::run(
        Command::new("cc")
            .current_dir(&project)
            .args(flags.split_whitespace())
            .args(["-o", "t", "t.c"]),
    )?;
    shell::run(
        Command::new("cc")
            .current_dir(&project)
            .args(flags.split_whitespace())
            .args(["-fsyntax-only", "rule.c"]),
    )?;
    let lists = "cmake_minimum_required(VERSION 3.16)\nproject(t C)\nfind_package(Brownout REQUIRED)\n\
                 add_executable(t t.c)\ntarget_link_libraries(t PRIVATE Brownout::annotations)\n\
                 enable_testing()\nbrownout_add_test(NAME t COMMAND t CHECK_OPTIONS --fail-on correctness)\n";
    fs::write(project.join("CMakeLists.txt"), lists)?;
    let mut prefix = std::ffi::OsString::from("-DCMAKE_PREFIX_PATH=");
    prefix.push(root.join("usr"));
    shell::run_quiet(
        Command::new("cmake")
            .current_dir(&project)
            .args(["-S", ".", "-B", "build"])
            .arg(prefix),
    )?;
    shell::run_quiet(
        Command::new("cmake")
            .current_dir(&project)
            .args(["--build", "build"]),
    )?;
    let tested = shell::output(Command::new("ctest").current_dir(&project).args([
        "--test-dir",
        "build",
        "-V",
    ]))?;
    ensure!(
        tested.contains("brownout: "),
        "ctest did not run it under Brownout:\n{tested}"
    );
    for name in [
        "usr/share/man/man1/brownout-check.1.gz",
        "usr/share/bash-completion/completions/brownout",
        "usr/share/doc/brownout/copyright",
    ] {
        let bytes = fs::metadata(root.join(name)).with_context(|| name.to_owned())?;
        ensure!(bytes.len() > 100, "{name} is empty");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_tests::tool;

    /// The package of the tool that the tests use, as somebody has it who installs it.
    #[test]
    fn the_package_is_installed_into_an_empty_root_and_used() {
        tool::expect_built().expect("the tool");
        let scratch = Scratch::new().expect("a folder");
        let version = env!("CARGO_PKG_VERSION");
        let file = make(&layout::brownout(), version, scratch.path(), "-Znone").expect("a package");
        try_out(&file, version).expect("it can be used");
        // Who uses it would notice if something was missing.
        assert!(try_out(&file, "0.0.0").is_err());
    }
}
