//! libpmemobj's examples: which there are, how they are compiled, and how to use them unattended.

use brownout_random::Random;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::layout;

/// How a program is made: its name, its own sources, and whether it takes the maps. Sources lie
/// below the examples' folder.
pub type Recipe = (&'static str, &'static [&'static str], bool);

/// The maps, which several drivers share.
pub const MAP_SOURCES: &[&str] = &[
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

/// Every example that is built.
pub const PROGRAMS: &[Recipe] = &[
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

/// The sources of an example, below the examples' folder.
pub fn sources_of(program: &str) -> Result<Vec<&'static str>> {
    let recipe = PROGRAMS.iter().find(|(name, ..)| *name == program);
    let Some((_, own, with_maps)) = recipe else {
        bail!("there is no example {program:?}");
    };
    let maps = if *with_maps { MAP_SOURCES } else { &[] };
    Ok(own.iter().chain(maps).copied().collect())
}

/// The examples' sources, as plain text.
pub fn sources() -> PathBuf {
    layout::examples().join("src")
}

/// Where the object of a source is kept.
pub fn object(source: &str) -> PathBuf {
    let name = source.trim_end_matches(".c").replace('/', "-");
    layout::examples().join("objects").join(name + ".o")
}

/// A compiler that makes an object of one of the examples' sources, or of one that uses their
/// headers.
pub fn compiler(sources: &Path, source: &Path, object: &Path) -> Command {
    let mut command = Command::new("gcc");
    // -w: their warnings are not ours to fix.
    command.args(["-g", "-O2", "-w", "-pthread", "-c"]);
    for folder in [".", "map", "hashmap", "tree_map", "list_map"] {
        command.arg("-I").arg(sources.join(folder));
    }
    command.arg(source).arg("-o").arg(object);
    command
}

/// A linker that makes an example of its objects.
pub fn linker(objects: &[PathBuf], binary: &Path) -> Command {
    let mut command = Command::new("gcc");
    // muldefs: libart's header defines a table.
    command
        .args(["-Wl,-z,muldefs", "-pthread"])
        .args(objects)
        .arg("-o")
        .arg(binary)
        .args(["-lpmemobj", "-lpmem", "-lm"]);
    command
}

/// Map types that `mapcli` survives. `ctree` dereferences null there (a bug of the example);
/// `data_store` drives it.
pub const MAPS: &[&str] = &[
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
];

/// Map types that `data_store` knows.
pub const DATA_STORES: &[&str] = &[
    "ctree",
    "btree",
    "rbtree",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
    "skiplist",
];

/// What an example is used for.
pub struct Use {
    /// Name of the test.
    pub name: &'static str,
    /// Command lines that follow each other on one pool. `P` stands for it, `@` before a name for a
    /// program of ours.
    pub steps: &'static [&'static str],
    /// What each reads from its standard input.
    pub stdin: &'static str,
    /// Whether the output is the same on every run.
    pub repeatable: bool,
}

const fn example(name: &'static str, steps: &'static [&'static str]) -> Use {
    Use {
        name,
        steps,
        stdin: "",
        repeatable: true,
    }
}

/// The examples that are no maps.
pub const USES: &[Use] = &[
    example(
        "queue",
        &[
            "@mkpool P queue",
            "queue P new 20",
            "queue P enqueue one",
            "queue P enqueue two",
            "queue P dequeue",
            "queue P show",
        ],
    ),
    example(
        "fifo",
        &[
            "fifo P insert a",
            "fifo P insert b",
            "fifo P print",
            "fifo P remove",
            "fifo P print",
        ],
    ),
    example(
        "obj_pmemlog",
        &[
            "obj_pmemlog c P a:hello v:3 w t r a:again w",
            "obj_pmemlog o P a:more v:2 w t n",
        ],
    ),
    example(
        "obj_pmemlog_macros",
        &[
            "obj_pmemlog_macros c P a:hello v:3 w t r a:again w",
            "obj_pmemlog_macros o P a:more v:2 w t n",
        ],
    ),
    example(
        "obj_pmemlog_minimal",
        &[
            "obj_pmemlog_minimal c P a:hello v:3 w r a:again w",
            "obj_pmemlog_minimal o P a:more v:2 w n",
        ],
    ),
    example(
        "obj_pmemlog_simple",
        &[
            "obj_pmemlog_simple c P a:hello v:3 w t r a:again w",
            "obj_pmemlog_simple o P a:more v:2 w t n",
        ],
    ),
    example(
        "obj_pmemblk",
        &[
            "obj_pmemblk c P 512 w:1:hello w:2:world r:1 z:1 e:2",
            "obj_pmemblk o P 512 r:2 w:3:again",
        ],
    ),
    example("slab_allocator", &["slab_allocator P", "slab_allocator P"]),
    Use {
        stdin: "hello\n",
        ..example(
            "string_store",
            &["string_store_writer P", "string_store_reader P"],
        )
    },
    Use {
        stdin: "hello\n",
        ..example(
            "string_store_tx",
            &["string_store_tx_writer P", "string_store_tx_reader P"],
        )
    },
    Use {
        stdin: "hello\n",
        ..example(
            "string_store_tx_type",
            &[
                "string_store_tx_type_writer P",
                "string_store_tx_type_reader P",
            ],
        )
    },
    example(
        "btree",
        &[
            "btree P i 5 five",
            "btree P i 3 three",
            "btree P i 9 nine",
            "btree P f 3",
            "btree P p",
        ],
    ),
    Use {
        // Estimates from random numbers, by several threads.
        repeatable: false,
        ..example("pi", &["pi P c 4 100", "pi P p", "pi P c 2 10", "pi P f"])
    },
    example(
        "lists",
        &[
            "lists P 1 foo 5",
            "lists P 1 bar 6",
            "lists P 2 foo 7",
            "lists P 1 foo print",
            "lists P 1 bar print",
        ],
    ),
    Use {
        // As `pi`.
        repeatable: false,
        ..example(
            "buffons_needle_problem",
            &[
                "buffons_needle_problem P 1000",
                "buffons_needle_problem P 500",
            ],
        )
    },
    Use {
        stdin: "k1\nv1\nk2\nv2\nkey3\nvalue3\nkey4\nvalue4\n",
        ..example(
            "arttree",
            &[
                "arttree -m f -n 4 P",
                "arttree -m i key5:five P",
                "arttree -m s key3 P",
                "arttree -m r k1 P",
                "arttree -m d P",
            ],
        )
    },
];

/// A built example, or with `@` one of our programs.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = match name.strip_prefix('@') {
        Some(own) => layout::programs().join(own),
        None => layout::examples().join(name),
    };
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// Random commands for `mapcli`: insert, remove, look up. The same for the same seed.
pub fn random_commands(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed);
    let mut text = String::new();
    for _ in 0..count {
        let key = random.below(200) + 1;
        let command = match random.below(10) {
            0..=5 => 'i',
            6..=7 => 'r',
            _ => 'c',
        };
        text.push_str(&format!("{command} {key}\n"));
    }
    text.push_str("q\n");
    text
}

/// Fails unless Debian's package has this upstream version: what is known about it holds for no
/// other.
pub fn expect_version(package: &str, upstream: &str) -> Result<()> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output()
        .context("cannot run dpkg-query")?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        version.split('-').next() == Some(upstream),
        "what is expected here was found in {package} {upstream}, and {version:?} is installed: look at each row anew"
    );
    Ok(())
}

/// Fails unless the line of an example's source is this statement.
pub fn expect_statement(file: &str, line: u32, statement: &str) -> Result<()> {
    let path = sources().join(file);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = text.lines().nth(line as usize - 1).unwrap_or_default();
    ensure!(
        found.trim() == statement,
        "line {line} of {file} is {found:?}, not {statement:?}: this is another version of the example"
    );
    Ok(())
}
