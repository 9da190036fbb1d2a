//! libpmemobj's example programs, built from the package's documentation folder.
//!
//! Nothing of theirs is kept in this repository: the sources are copied into the target folder (some are
//! compressed there) and compiled as they are. They include one header that the package lacks,
//! `ex_common.h`; [`EX_COMMON`] is our own.
//!
//! Left out: `pminvaders` (needs a terminal), `pmemobjfs` (needs FUSE), `kv_server` (needs libuv),
//! `manpage` and `setjmp` (use a fixed path in a folder that only root of a PM machine has).
//!
//! Our own drivers of their maps ([`OWN_PROGRAMS`]) are linked with these sources, so they are built here, too.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
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

/// The maps, which two drivers share.
const MAP_SOURCES: &[&str] = &[
    "map/map.c",
    "map/map_btree.c",
    "map/map_ctree.c",
    "map/map_hashmap_atomic.c",
    "map/map_hashmap_rp.c",
    "map/map_hashmap_tx.c",
    "map/map_rbtree.c",
    "map/map_rtree.c",
    "map/map_skiplist.c",
    "tree_map/btree_map.c",
    "tree_map/ctree_map.c",
    "tree_map/rbtree_map.c",
    "tree_map/rtree_map.c",
    "hashmap/hashmap_atomic.c",
    "hashmap/hashmap_rp.c",
    "hashmap/hashmap_tx.c",
    "list_map/skiplist_map.c",
];

/// Binary, its own sources, and whether it takes the maps.
const PROGRAMS: &[(&str, &[&str], bool)] = &[
    ("mapcli", &["map/mapcli.c"], true),
    ("data_store", &["map/data_store.c"], true),
    ("queue", &["queue/queue.c"], false),
    ("fifo", &["linkedlist/fifo.c"], false),
    ("obj_pmemlog", &["pmemlog/obj_pmemlog.c"], false),
    (
        "obj_pmemlog_macros",
        &["pmemlog/obj_pmemlog_macros.c"],
        false,
    ),
    (
        "obj_pmemlog_minimal",
        &["pmemlog/obj_pmemlog_minimal.c"],
        false,
    ),
    (
        "obj_pmemlog_simple",
        &["pmemlog/obj_pmemlog_simple.c"],
        false,
    ),
    ("obj_pmemblk", &["pmemblk/obj_pmemblk.c"], false),
    (
        "slab_allocator",
        &["slab_allocator/main.c", "slab_allocator/slab_allocator.c"],
        false,
    ),
    ("string_store_writer", &["string_store/writer.c"], false),
    ("string_store_reader", &["string_store/reader.c"], false),
    (
        "string_store_tx_writer",
        &["string_store_tx/writer.c"],
        false,
    ),
    (
        "string_store_tx_reader",
        &["string_store_tx/reader.c"],
        false,
    ),
    (
        "string_store_tx_type_writer",
        &["string_store_tx_type/writer.c"],
        false,
    ),
    (
        "string_store_tx_type_reader",
        &["string_store_tx_type/reader.c"],
        false,
    ),
    ("btree", &["btree.c"], false),
    ("pi", &["pi.c"], false),
    ("lists", &["lists.c"], false),
    (
        "buffons_needle_problem",
        &["buffons_needle_problem.c"],
        false,
    ),
    ("arttree", &["libart/arttree.c", "libart/art.c"], false),
    (
        "examine_arttree",
        &[
            "libart/arttree_structures.c",
            "libart/arttree_examine.c",
            "libart/arttree_search.c",
        ],
        false,
    ),
];

/// As [`PROGRAMS`], with sources of this repository.
const OWN_PROGRAMS: &[(&str, &[&str], bool)] = &[("bench_map", &["pmdk/bench_map.c"], true)];

/// Builds all that are missing or older than their sources.
pub fn build() -> Result<()> {
    let origin = Path::new(SOURCES);
    if !origin.is_dir() {
        bail!(
            "{SOURCES} is missing: install libpmemobj-dev with its documentation (`cargo xtask setup`; a dpkg `path-exclude` of /usr/share/doc must be lifted)"
        );
    }
    let folder = layout::examples();
    let sources = folder.join("src");
    // Written only if it differs: the programs depend on its time.
    let common = sources.join("ex_common.h");
    copy_tree(origin, &sources)?;
    if fs::read(&common).ok().as_deref() != Some(EX_COMMON.as_bytes()) {
        fs::write(&common, EX_COMMON)?;
    }
    let own_sources = layout::program_sources();
    let harness = own_sources.join("harness.h");
    let theirs = PROGRAMS.iter().map(|program| (program, &sources));
    let ours = OWN_PROGRAMS.iter().map(|program| (program, &own_sources));
    for ((name, own, with_maps), from) in theirs.chain(ours) {
        let mut inputs: Vec<PathBuf> = own.iter().map(|source| from.join(source)).collect();
        if *with_maps {
            inputs.extend(MAP_SOURCES.iter().map(|source| sources.join(source)));
        }
        let binary = folder.join(name);
        let mut depends: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        depends.extend([common.as_path(), harness.as_path()]);
        if !shell::is_fresh(&binary, &depends) {
            compile(&sources, &inputs, &binary)?;
        }
    }
    Ok(())
}

fn compile(sources: &Path, inputs: &[PathBuf], binary: &Path) -> Result<()> {
    let mut command = Command::new("gcc");
    // muldefs: libart's header defines a table. -w: their warnings are not ours to fix.
    command.args(["-g", "-O2", "-w", "-Wl,-z,muldefs", "-pthread"]);
    for folder in [".", "map", "hashmap", "tree_map", "list_map"] {
        command.arg("-I").arg(sources.join(folder));
    }
    command
        .args(inputs)
        .arg("-o")
        .arg(binary)
        .args(["-lpmemobj", "-lpmem", "-lm"]);
    shell::run_quiet(&mut command)
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
