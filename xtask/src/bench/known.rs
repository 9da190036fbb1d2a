//! Known bugs of libpmemobj and its examples that commands trigger: how long `brownout fuzz` takes
//! to find each, from a seed that shows nothing of it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use brownout_findings::Finding;
use brownout_tests::check::{is_at_line, is_inside};
use brownout_tests::layout;

use super::Options;
use super::campaigns::{Campaign, SEED, of_map};
use super::places::Places;

/// A bug.
struct Bug {
    name: &'static str,
    map: &'static str,
    /// Commands that do not show it.
    seed: &'static str,
    /// Any of these.
    rules: &'static [&'static str],
    site: Site,
}

/// Where it is.
enum Site {
    /// A line of a source file.
    Line(&'static str, u32),
    /// In libpmemobj, which is stripped: exported functions that are on the stack, from the inside.
    Library(&'static [&'static str]),
}
use Site::{Library, Line};

/// What looks up a key, and changes nothing.
const LOOK: &str = "c 1\n";
const DUPLICATE: &[&str] = &["duplicate-log"];
const FRESH: &[&str] = &["fresh-log"];

/// Of `btree`, `rbtree` and `ctree` the seed inserts nothing, or one key.
const KNOWN: [Bug; 9] = [
    bug(SEED, "btree", DUPLICATE, Line("btree_map.c", 249)),
    bug(SEED, "btree", DUPLICATE, Line("btree_map.c", 309)),
    bug(SEED, "btree", DUPLICATE, Line("btree_map.c", 359)),
    bug(LOOK, "rbtree", FRESH, Line("rbtree_map.c", 200)),
    bug(LOOK, "rbtree", FRESH, Line("rbtree_map.c", 255)),
    bug(SEED, "rbtree", DUPLICATE, Line("rbtree_map.c", 226)),
    bug(LOOK, "ctree", &["crash"], Line("ctree_map.c", 131)),
    bug(
        "i 1\nc 1\n",
        "hashmap_atomic",
        &["recovery-crash"],
        Line("hashmap_atomic.c", 169),
    ),
    Bug {
        name: "tx.c:410",
        ..bug(
            LOOK,
            "btree",
            &["clean-flush", "oversized-flush"],
            Library(&["pmem_flush", "pmemobj_tx_commit"]),
        )
    },
];

const fn bug(
    seed: &'static str,
    map: &'static str,
    rules: &'static [&'static str],
    site: Site,
) -> Bug {
    Bug {
        name: "",
        map,
        seed,
        rules,
        site,
    }
}

impl Bug {
    fn name(&self) -> String {
        match self.site {
            Line(file, line) => format!("{file}:{line}"),
            Library(_) => self.name.to_owned(),
        }
    }

    fn is_it(&self, finding: &Finding) -> bool {
        let mut events = finding.events.iter();
        self.rules.contains(&finding.rule.as_str())
            && match self.site {
                Line(file, line) => events.any(|event| is_at_line(event, file, line)),
                // Where to look first.
                Library(functions) => events
                    .next()
                    .is_some_and(|event| functions.iter().all(|name| is_inside(event, name))),
            }
    }
}

/// How long it takes to find each of those that are asked for. A campaign that takes longer than
/// 90 seconds has not found it, and what the seed shows was not found.
pub fn bench(options: &Options) -> Result<()> {
    let limit = Duration::from_secs(if options.quick { 20 } else { 90 });
    println!("\n| known bug | by | found after | seed shows it |\n|---|---|---:|---|");
    let (mut all, mut counted) = (0, 0);
    let is_wanted = |bug: &&Bug| {
        let only = options.only.as_ref();
        only.is_none_or(|only| {
            bug.map.contains(only.as_str()) || bug.name().contains(only.as_str())
        })
    };
    for bug in KNOWN.iter().filter(is_wanted) {
        all += 1;
        let places = Places::new()?;
        let folder = places.pools.join("");
        fs::write(folder.join("seed"), bug.seed)?;
        let mut command = of_map(bug.map, &folder);
        let time = format!("{}s", limit.as_secs());
        command
            .args(["--seeds", "seed", "--time", &time, "--"])
            .args([layout::examples().join("mapcli").as_os_str()])
            .args([bug.map, "pool"])
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?);
        let child = command.spawn().context("cannot run brownout")?;
        let name = format!("{} on {}", bug.name(), bug.map);
        match Campaign(child).hunt(&folder, |finding| bug.is_it(finding))? {
            Some(found) => {
                counted += u32::from(found.counts(limit));
                println!(
                    "| {name} | {} | {:.1} s | {} |",
                    found.rule,
                    found.after.as_secs_f64(),
                    found.by_seed()
                );
            }
            None => println!("| {name} | | not in {} s | |", limit.as_secs()),
        }
    }
    println!(
        "\n{counted} of {all} found in time, and not by the seed (goal: each within 90 s; --quick: 20 s)"
    );
    Ok(())
}
