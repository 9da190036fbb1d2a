//! Known bugs of libpmemobj 1.12.1 and its examples that one run shows. All of them cost time and
//! lose nothing.
//!
//! A row is tied to the version twice: the statement must stand on its line, and Debian's package
//! must have the version. libpmemobj itself is stripped, so what lies in it is told by the exported
//! function that is on the stack.

use std::fs;

use anyhow::{Result, ensure};
use brownout_findings::{Event, Finding, Severity};
use brownout_tests::check::{self, Checked, is_at_line, is_inside};
use brownout_tests::{Invocation, Scratch, examples};
use libtest_mimic::Trial;

use crate::{TIMEOUT, trial};

const UPSTREAM: &str = "1.12.1";

/// Where a bug is.
enum Site {
    /// File below the examples' folder, line, what stands there.
    Statement(&'static str, u32, &'static str),
    /// On the stack, from the inside: functions that libpmem and libpmemobj export.
    Library(&'static [&'static str]),
}
use Site::{Library, Statement};

struct Row {
    name: &'static str,
    /// Which map.
    map: &'static str,
    /// Commands for `mapcli`, separated by commas. It creates the pool and the map in any case.
    commands: &'static str,
    /// Any of these.
    rules: &'static [&'static str],
    site: Site,
    /// Words of the message.
    message: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        name: "hashmap_tx_61",
        map: "hashmap_tx",
        commands: "",
        rules: &["fresh-log"],
        site: Statement("hashmap/hashmap_tx.c", 61, "TX_ADD(hashmap);"),
        message: "",
    },
    Row {
        name: "rbtree_200",
        map: "rbtree",
        commands: "i 1",
        rules: &["fresh-log"],
        site: Statement("tree_map/rbtree_map.c", 200, "TX_SET(n, parent, parent);"),
        message: "",
    },
    Row {
        name: "rbtree_255",
        map: "rbtree",
        commands: "i 1",
        rules: &["fresh-log"],
        site: Statement(
            "tree_map/rbtree_map.c",
            255,
            "TX_SET(RB_FIRST(map), color, COLOR_BLACK);",
        ),
        message: "",
    },
    Row {
        name: "rbtree_226",
        map: "rbtree",
        commands: "i 10,i 5,i 7",
        rules: &["duplicate-log"],
        site: Statement(
            "tree_map/rbtree_map.c",
            226,
            "TX_SET(NODE_P(n), color, COLOR_BLACK);",
        ),
        message: "",
    },
    Row {
        name: "btree_249",
        map: "btree",
        commands: "i 2,i 3,i 4,i 5,i 6,i 7,i 8,i 1",
        rules: &["duplicate-log"],
        site: Statement("tree_map/btree_map.c", 249, "TX_ADD(node);"),
        message: "",
    },
    Row {
        name: "btree_309",
        map: "btree",
        commands: "i 1,i 2,i 3,i 4,i 5,i 6,i 7,i 8,r 1",
        rules: &["duplicate-log"],
        site: Statement(
            "tree_map/btree_map.c",
            309,
            "TX_ADD_FIELD(node, slots[D_RO(node)->n]);",
        ),
        message: "",
    },
    Row {
        name: "btree_359",
        map: "btree",
        commands: "i 10,i 20,i 30,i 40,i 50,i 60,i 70,i 80,r 80,r 10",
        rules: &["duplicate-log"],
        site: Statement("tree_map/btree_map.c", 359, "TX_ADD(node);"),
        message: "",
    },
    Row {
        name: "hashmap_atomic_115",
        map: "hashmap_atomic",
        commands: "",
        rules: &["clean-flush"],
        site: Statement(
            "hashmap/hashmap_atomic.c",
            115,
            "pmemobj_persist(pop, D_RW(hashmap), sizeof(*D_RW(hashmap)));",
        ),
        message: "1 of 2 lines",
    },
    Row {
        name: "hashmap_atomic_91",
        map: "hashmap_atomic",
        commands: "",
        rules: &["clean-flush"],
        site: Statement(
            "hashmap/hashmap_atomic.c",
            91,
            "pmemobj_persist(pop, &b->nbuckets, sizeof(b->nbuckets));",
        ),
        message: "",
    },
    Row {
        // Of the 48 lines of each of 1,024 lanes, the heads of three logs are stored to, two lines
        // each.
        name: "lanes",
        map: "btree",
        commands: "",
        rules: &["oversized-flush"],
        site: Library(&["pmem_persist", "pmemobj_create"]),
        message: "43,008 of 49,152 lines",
    },
    Row {
        name: "allocation_fence",
        map: "hashmap_atomic",
        commands: "",
        rules: &["empty-fence"],
        site: Library(&["pmemobj_zalloc"]),
        message: "",
    },
    Row {
        name: "commit",
        map: "btree",
        commands: "i 1,i 2",
        rules: &["clean-flush", "oversized-flush"],
        site: Library(&["pmem_flush", "pmemobj_tx_commit"]),
        message: "of 5 lines",
    },
    Row {
        // Closing also writes back the pool's header, but by pmem_deep_flush.
        name: "statistics_at_close",
        map: "btree",
        commands: "",
        rules: &["clean-flush"],
        site: Library(&["pmem_persist", "pmemobj_close"]),
        message: "",
    },
    Row {
        name: "first_allocation_of_a_class",
        map: "btree",
        commands: "",
        rules: &["clean-flush"],
        site: Library(&["pmem_persist", "pmemobj_root"]),
        message: "",
    },
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = ROWS
        .iter()
        .map(|row| trial(format!("known::{}", row.name), || find(row)))
        .collect();
    trials.push(trial("known::canary", canary));
    trials
}

fn run(row: &Row) -> Result<Checked> {
    let scratch = Scratch::new()?;
    let commands = scratch.join("commands");
    let lines = row.commands.replace(',', "\n");
    fs::write(&commands, format!("{lines}\nq\n"))?;
    let argv = [
        examples::binary("mapcli")?.into_os_string(),
        row.map.into(),
        "pool".into(),
    ];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let checked = check::run(&native, &["--stdin", "commands"])?;
    checked.expect_status(0)?;
    Ok(checked)
}

fn find(row: &Row) -> Result<()> {
    for package in ["libpmemobj-dev", "libpmemobj1"] {
        examples::expect_version(package, UPSTREAM)?;
    }
    if let Statement(file, line, statement) = row.site {
        examples::expect_statement(file, line, statement)?;
    }
    let checked = run(row)?;
    checked.expect_correct()?;
    ensure!(
        checked.report.findings.iter().any(|found| fits(row, found)),
        "it is not among them\n{}",
        check::show(&checked.report)
    );
    Ok(())
}

/// The rule and the message are right, and the first event, which is where to look first, is at the
/// site.
fn fits(row: &Row, finding: &Finding) -> bool {
    let is_there = |event: &Event| match row.site {
        Statement(path, line, _) => {
            is_at_line(event, path.rsplit('/').next().unwrap_or(path), line)
        }
        Library(functions) => functions.iter().all(|name| is_inside(event, name)),
    };
    row.rules.contains(&finding.rule.as_str())
        && finding.severity == Severity::Performance
        && finding.message.contains(row.message)
        && finding.events.first().is_some_and(is_there)
}

/// The judgement can fail: one command less, and the bug of `btree_309` is not there.
fn canary() -> Result<()> {
    let with = ROWS.iter().find(|row| row.name == "btree_309");
    let with = with.expect("a row of the table");
    let without = Row {
        commands: "i 1,i 2,i 3,i 4,i 5,i 6,i 7,i 8",
        site: Statement("tree_map/btree_map.c", 309, ""),
        ..*with
    };
    let checked = run(&without)?;
    ensure!(
        checked
            .report
            .findings
            .iter()
            .all(|found| !fits(&without, found)),
        "found where it is not\n{}",
        check::show(&checked.report)
    );
    Ok(())
}
