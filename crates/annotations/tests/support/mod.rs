//! What the tests of this crate share: compilers, and a tool in miniature that receives requests.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod tool;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The `include` folder of the workspace.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

/// A source in `tests/c` or `tests/rust`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// A file of that name in this test program's own folder.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("annotations")
        .join(env!("CARGO_CRATE_NAME"));
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder.join(name)
}

/// Warnings that the headers must not cause; all are errors.
pub const WARNINGS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wundef",
    "-Werror",
];

/// A C or C++ compiler.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    pub command: &'static str,
    pub cpp: bool,
}

/// The system's compilers, which must be there, and clang where it is.
pub fn compilers() -> Vec<Compiler> {
    let all = [
        ("cc", false),
        ("c++", true),
        ("clang", false),
        ("clang++", true),
    ];
    let compilers: Vec<Compiler> = all
        .into_iter()
        .map(|(command, cpp)| Compiler { command, cpp })
        .filter(|compiler| !compiler.command.starts_with("clang") || compiler.answers())
        .collect();
    for compiler in &compilers {
        assert!(
            compiler.answers(),
            "no `{}` here: install a C and C++ compiler (cargo xtask setup)",
            compiler.command
        );
    }
    compilers
}

impl Compiler {
    fn answers(&self) -> bool {
        Command::new(self.command).arg("--version").output().is_ok()
    }

    /// Compiles a source of `tests/c`; the result, or what the compiler said.
    pub fn try_compile(
        &self,
        name: &str,
        flags: &[&str],
        result: &Path,
    ) -> Result<PathBuf, String> {
        let output = Command::new(self.command)
            .args(["-x", if self.cpp { "c++" } else { "c" }])
            .arg(source("c").join(name))
            .args(["-x", "none", "-I"])
            .arg(include())
            .args(flags)
            .arg("-o")
            .arg(result)
            .output()
            .expect("the compiler starts");
        if output.status.success() {
            Ok(result.to_owned())
        } else {
            Err(format!(
                "{} {flags:?} {name}:\n{}",
                self.command,
                String::from_utf8_lossy(&output.stderr)
            ))
        }
    }

    /// Compiles with all warnings.
    pub fn compile(&self, name: &str, flags: &[&str], result: &str) -> PathBuf {
        let result = scratch(&format!("{}-{result}", self.command));
        let flags = [WARNINGS, flags].concat();
        self.try_compile(name, &flags, &result)
            .unwrap_or_else(|message| panic!("{message}"))
    }
}

/// Compiles a program of `tests/rust` together with this crate, by itself: how features and
/// optimisation are chosen here. The crate has the edition that it declares, the program a later
/// one, as users may have.
pub fn compile_rust(name: &str, flags: &[&str], result: &str) -> PathBuf {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let library = scratch(&format!("lib{result}.rlib"));
    let program = scratch(result);
    let run = |edition: &str, command: &mut Command| {
        let output = command
            .args(["--edition", edition, "-D", "warnings"])
            .args(flags)
            .output()
            .expect("rustc starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(
        "2021",
        Command::new(&rustc)
            .args([
                "--crate-type",
                "rlib",
                "--crate-name",
                "brownout_annotations",
            ])
            .args(["--check-cfg", r#"cfg(feature, values("disable"))"#, "-o"])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")),
    );
    run(
        "2024",
        Command::new(&rustc)
            .arg("--extern")
            .arg(format!("brownout_annotations={}", library.display()))
            .arg("-o")
            .arg(&program)
            .arg(source("rust").join(name)),
    );
    program
}

/// Runs a program natively; it must succeed.
pub fn run(program: &Path) -> String {
    let Output { status, stdout, .. } = Command::new(program).output().expect("the program starts");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{}: {status}\n{text}", program.display());
    text
}

/// How many requests a file's code contains.
pub fn count_requests(file: &Path) -> usize {
    let bytes = fs::read(file).expect("it was just made");
    bytes
        .windows(tool::PREAMBLE.len())
        .filter(|window| *window == tool::PREAMBLE)
        .count()
}
