//! Where sources and built things are.

use std::env;
use std::path::{Path, PathBuf};

/// The top folder of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package lies in a folder of the workspace")
        .to_path_buf()
}

/// Cargo's target folder: `CARGO_TARGET_DIR`, or `target` in the workspace.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// Sources of our own test programs.
pub fn program_sources() -> PathBuf {
    workspace().join("tests/programs")
}

/// Our own test programs, built.
pub fn programs() -> PathBuf {
    target().join("test-programs")
}

/// The seeded programs, built.
pub fn seeded() -> PathBuf {
    target().join("seeded")
}

/// The programs for fuzzing, built.
pub fn fuzz_programs() -> PathBuf {
    target().join("fuzz-programs")
}

/// The programs whose paths are searched, built.
pub fn symex_programs() -> PathBuf {
    target().join("symex-programs")
}

/// The programs whose threads race, built.
pub fn race_programs() -> PathBuf {
    target().join("race-programs")
}

/// libpmemobj's examples, built.
pub fn examples() -> PathBuf {
    target().join("pmdk-examples")
}

/// Results of native runs that are slow and do not change.
pub fn native_cache() -> PathBuf {
    target().join("native-results")
}

/// The tool under test: `BROWNOUT_BIN`, or the release build.
pub fn brownout() -> PathBuf {
    match env::var_os("BROWNOUT_BIN") {
        Some(path) => PathBuf::from(path),
        None => target().join("release/brownout"),
    }
}
