//! libpmemobj's example programs, built from the package's documentation folder.
//!
//! Nothing of theirs is kept in this repository: the sources are copied into the target folder
//! (some are compressed there) and compiled as they are. Objects stay: the maps are in several
//! programs, and tests link edited ones with them. They include one header that the package lacks,
//! `ex_common.h`; [`EX_COMMON`] is our own.
//!
//! Left out: `pminvaders` (needs a terminal), `pmemobjfs` (needs FUSE), `kv_server` (needs libuv),
//! `manpage` and `setjmp` (use a fixed path in a folder that only root of a PM machine has).
//!
//! Our own drivers of their maps ([`OWN_PROGRAMS`]) are linked with these sources, so they are
//! built here, too.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use brownout_tests::examples::{self, Recipe};
use brownout_tests::layout;

use crate::shell;

const SOURCES: &str = "/usr/share/doc/libpmemobj-dev/examples";

const EX_COMMON: &str = "\
/* What libpmemobj's examples expect of their common header; written from how they use it. */
#ifndef EX_COMMON_H
#define EX_COMMON_H

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREATE_MODE_RW (S_IRUSR | S_IWUSR)

#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif

/* 0 if it exists. */
static inline int
file_exists(const char *path)
{
	return access(path, F_OK);
}

/* Number of the highest bit set, -1 if none. */
static inline int
find_last_set_64(uint64_t v)
{
	return v == 0 ? -1 : 63 - __builtin_clzll(v);
}

#endif
";

/// As [`examples::PROGRAMS`], with sources of this repository.
const OWN_PROGRAMS: &[Recipe] = &[("bench_map", &["pmdk/bench_map.c"], true)];

/// Builds all that are missing or older than their sources.
pub fn build() -> Result<()> {
    let origin = Path::new(SOURCES);
    if !origin.is_dir() {
        bail!(
            "{SOURCES} is missing: install libpmemobj-dev with its documentation (`cargo xtask setup`; a dpkg `path-exclude` of /usr/share/doc must be lifted)"
        );
    }
    let folder = layout::examples();
    let sources = examples::sources();
    // Written only if it differs: the objects depend on its time.
    let common = sources.join("ex_common.h");
    copy_tree(origin, &sources)?;
    if fs::read(&common).ok().as_deref() != Some(EX_COMMON.as_bytes()) {
        fs::write(&common, EX_COMMON)?;
    }
    fs::create_dir_all(folder.join("objects"))?;
    let own_sources = layout::program_sources();
    let harness = own_sources.join("harness.h");
    let theirs = examples::PROGRAMS.iter().map(|recipe| (recipe, &sources));
    let ours = OWN_PROGRAMS.iter().map(|recipe| (recipe, &own_sources));
    for ((name, own, with_maps), from) in theirs.chain(ours) {
        let mut objects = Vec::new();
        let maps = if *with_maps {
            examples::MAP_SOURCES
        } else {
            &[]
        };
        let own = own.iter().map(|source| (source, from));
        for (source, from) in own.chain(maps.iter().map(|source| (source, &sources))) {
            let path = from.join(source);
            let object = examples::object(source);
            if !shell::is_fresh(&object, &[&path, &common, &harness]) {
                shell::run_quiet(&mut examples::compiler(&sources, &path, &object))?;
            }
            objects.push(object);
        }
        let binary = folder.join(name);
        let depends: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
        if !shell::is_fresh(&binary, &depends) {
            shell::run_quiet(&mut examples::linker(&objects, &binary))?;
        }
    }
    Ok(())
}

/// Copies what is newer, decompressing `*.gz`.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            copy_tree(&path, &to.join(name))?;
        } else if path.extension() == Some(OsStr::new("gz")) {
            let plain = to.join(path.file_stem().unwrap_or_default());
            if !shell::is_fresh(&plain, &[&path]) {
                let output = Command::new("gzip").arg("-dc").arg(&path).output()?;
                if !output.status.success() {
                    bail!("cannot decompress {}", path.display());
                }
                fs::write(plain, output.stdout)?;
            }
        } else if !shell::is_fresh(&to.join(name), &[&path]) {
            // Not fs::copy, which would keep a read-only mode.
            fs::write(to.join(name), fs::read(&path)?)?;
        }
    }
    Ok(())
}
