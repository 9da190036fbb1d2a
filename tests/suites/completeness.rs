//! Nothing that reaches persistent memory is missed.
//!
//! The proof is `record --verify`: a PM file's first content plus the recorded stores must give its
//! last content, byte for byte. It runs over libpmemobj's own examples (`maps::`, `examples::`) and
//! over our programs that touch the pool in every way we know (`programs::`). Loads, flushes and
//! fences leave no bytes behind, so `exact::` compares them with lists that the programs print
//! themselves. Both also with pools at an address that the program insists on, beside other memory,
//! where the engine works differently (`_at_a_fixed_address`). `deterministic::` compares two
//! recordings event for event; `unsupported::` is refused with a clear message.
//!
//! Does not check: that events are in an order that the processor could have produced where the
//! final bytes do not depend on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::examples::{binary, random_commands};
use brownout_tests::programs::{self, Build};
use brownout_tests::{Invocation, Outcome, Scratch, dump, exec, layout, tool, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(300);
const COMMANDS: usize = 1000;

/// Map types that `mapcli` survives. `ctree` dereferences null there (a bug of the example), so it
/// is driven by `data_store`.
const MAPS: &[&str] = &[
    "btree",
    "rbtree",
    "rtree",
    "skiplist",
    "hashmap_tx",
    "hashmap_atomic",
    "hashmap_rp",
];

/// Unattended uses of the other examples: name, then commands run one after the other on one pool
/// `P`, and what they read from stdin.
const EXAMPLES: &[(&str, &[&str], &str)] = &[
    (
        "queue",
        &[
            "@mkpool P queue",
            "queue P new 20",
            "queue P enqueue one",
            "queue P enqueue two",
            "queue P dequeue",
            "queue P show",
        ],
        "",
    ),
    (
        "fifo",
        &[
            "fifo P insert a",
            "fifo P insert b",
            "fifo P print",
            "fifo P remove",
            "fifo P print",
        ],
        "",
    ),
    (
        "obj_pmemlog",
        &["obj_pmemlog c P a:hello v:3 w t r a:again w"],
        "",
    ),
    (
        "obj_pmemlog_macros",
        &["obj_pmemlog_macros c P a:hello v:3 w t r a:again w"],
        "",
    ),
    (
        "obj_pmemlog_minimal",
        &["obj_pmemlog_minimal c P a:hello v:3 w r a:again w"],
        "",
    ),
    (
        "obj_pmemlog_simple",
        &["obj_pmemlog_simple c P a:hello v:3 w t r a:again w"],
        "",
    ),
    (
        "obj_pmemblk",
        &[
            "obj_pmemblk c P 512 w:1:hello w:2:world r:1 z:1 e:2",
            "obj_pmemblk o P 512 r:2",
        ],
        "",
    ),
    ("slab_allocator", &["slab_allocator P"], ""),
    (
        "string_store",
        &["string_store_writer P", "string_store_reader P"],
        "hello\n",
    ),
    (
        "string_store_tx",
        &["string_store_tx_writer P", "string_store_tx_reader P"],
        "hello\n",
    ),
    (
        "string_store_tx_type",
        &[
            "string_store_tx_type_writer P",
            "string_store_tx_type_reader P",
        ],
        "hello\n",
    ),
    (
        "btree",
        &[
            "btree P i 5 five",
            "btree P i 3 three",
            "btree P i 9 nine",
            "btree P f 3",
            "btree P p",
        ],
        "",
    ),
    ("pi", &["pi P c 4 100", "pi P p"], ""),
    (
        "lists",
        &[
            "lists P 1 foo 5",
            "lists P 1 bar 6",
            "lists P 2 foo 7",
            "lists P 1 foo print",
            "lists P 1 bar print",
        ],
        "",
    ),
    (
        "buffons_needle_problem",
        &["buffons_needle_problem P 1000"],
        "",
    ),
    (
        "arttree",
        &["arttree -m f -n 4 P", "arttree -m d P"],
        "k1\nv1\nk2\nv2\nkey3\nvalue3\nkey4\nvalue4\n",
    ),
];

/// Our programs that are told by `--pm`, recorded and verified; arguments are in their headers.
const PROGRAMS: &[&str] = &[
    "pm_all_insns",
    "pm_exits",
    "pm_fault",
    "pm_fault_state",
    "pm_flush",
    "pm_forks",
    "pm_hash",
    "pm_loads",
    "pm_signal",
    "pm_syscalls",
    "pm_threads8",
];

/// What `pm_refused` does, and words of the message.
const REFUSED: &[(&str, &str)] = &[
    ("child_mem", "persistent memory of another process"),
    ("child_vm", "persistent memory of another process"),
    ("child_ptrace", "persistent memory of another process"),
    ("remap", "remap_file_pages"),
    ("waited_for", "remap_file_pages"),
    ("aio", "io_submit"),
    (
        "tid",
        "leaves an address in persistent memory with the kernel",
    ),
    ("clone", "a thread's number"),
    ("shmat", "shared memory over persistent memory"),
    ("hidden", "may point to persistent memory"),
];

/// Where a program maps its pool.
#[derive(Clone, Copy)]
enum Place {
    Any,
    Fixed,
}

impl Place {
    fn suffix(self) -> &'static str {
        match self {
            Place::Any => "",
            Place::Fixed => "_at_a_fixed_address",
        }
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for map in MAPS {
        trials.push(trial(format!("maps::{map}"), move || verify_mapcli(map)));
    }
    trials.push(trial("maps::ctree".to_owned(), || {
        verify_steps(&["data_store ctree P 500", "data_store ctree P 300"], "")
    }));
    trials.push(trial("maps::data_store_btree".to_owned(), || {
        verify_steps(&["data_store btree P 500"], "")
    }));
    for (name, steps, stdin) in EXAMPLES {
        trials.push(trial(format!("examples::{name}"), move || {
            verify_steps(steps, stdin)
        }));
    }
    for name in PROGRAMS {
        for place in [Place::Any, Place::Fixed] {
            for loads in [false, true] {
                let with = if loads { "_with_loads" } else { "" };
                let name_of_trial = format!("programs::{name}{with}{}", place.suffix());
                trials.push(trial(name_of_trial, move || {
                    verify_program(name, loads, place)
                }));
            }
        }
    }
    trials.push(trial(
        "programs::pm_syscalls_deterministic".to_owned(),
        deterministic_calls,
    ));
    trials.push(trial("unsupported::stack_in_pm".to_owned(), stack_in_pm));
    for (how, words) in REFUSED {
        trials.push(trial(format!("unsupported::{how}"), move || {
            refused(how, words)
        }));
    }
    for place in [Place::Any, Place::Fixed] {
        let suffix = place.suffix();
        trials.push(trial(format!("exact::loads{suffix}"), move || {
            exact_loads(place)
        }));
        trials.push(trial(
            format!("exact::flushes_and_fences{suffix}"),
            move || exact_flushes(place),
        ));
    }
    trials.push(trial(
        "deterministic::mapcli_btree".to_owned(),
        deterministic,
    ));
    trials.push(trial("deterministic::devices".to_owned(), devices));
    libtest_mimic::run(&arguments, trials).exit();
}

/// mapcli prints the seed of its own generator, which is the time.
fn without_seed(outcome: &Outcome) -> Outcome {
    let text = outcome.stdout_text();
    let kept: String = text
        .lines()
        .filter(|line| !line.starts_with("seed: "))
        .map(|line| format!("{line}\n"))
        .collect();
    Outcome {
        stdout: kept.into_bytes(),
        ..outcome.clone()
    }
}

fn verify_mapcli(map: &str) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let commands = scratch.join("commands");
    // Follows from the name: another sequence for each map, the same on every run.
    let seed = map
        .bytes()
        .fold(7u64, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
    fs::write(&commands, random_commands(seed, COMMANDS))?;
    let argv = [
        binary("mapcli")?.into_os_string(),
        map.into(),
        "pool".into(),
    ];
    let natively = scratch.folder("n")?;
    let under_tool = scratch.folder("t")?;
    let native = Invocation::new(argv.clone(), &natively)
        .stdin(&commands)
        .timeout(TIMEOUT)
        // Otherwise libpmem natively calls msync for every persist on an ordinary file.
        .env("PMEM_IS_PMEM_FORCE", "1")
        .run()?
        .expect_success("natively")?;
    let recorded = tool::record(
        &Invocation::new(argv, &under_tool).timeout(TIMEOUT),
        &scratch.join("trace.bwt"),
        &["--verify", "--stdin", &commands.to_string_lossy()],
    )
    .run()?;
    exec::compare(&without_seed(&native), &without_seed(&recorded), false)
        .map_err(|error| error.context(format!("seed of the commands: {seed}")))?;
    tool::expect_verified(&recorded)?;
    expect_stores(&scratch.join("trace.bwt"), &scratch)
}

fn verify_steps(steps: &[&str], stdin: &str) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let input = scratch.join("input");
    fs::write(&input, stdin)?;
    let natively = scratch.folder("n")?;
    let under_tool = scratch.folder("t")?;
    for (number, step) in steps.iter().enumerate() {
        let mut words = step.split_whitespace();
        let mut argv = vec![binary(words.next().unwrap_or_default())?.into_os_string()];
        argv.extend(words.map(|word| {
            if word == "P" {
                "pool".into()
            } else {
                word.into()
            }
        }));
        let native = Invocation::new(argv.clone(), &natively)
            .stdin(&input)
            .timeout(TIMEOUT)
            .run()?;
        let trace = scratch.join(format!("step{number}.bwt"));
        let recorded = tool::record(
            &Invocation::new(argv, &under_tool).timeout(TIMEOUT),
            &trace,
            &["--verify", "--stdin", &input.to_string_lossy()],
        )
        .run()?;
        // `pi` and the needle print an estimate from random numbers.
        let random = step.starts_with("pi ") || step.starts_with("buffons");
        if random {
            ensure!(
                native.status == recorded.status,
                "{step}: exit status {} natively, {} under the tool\n{}",
                native.status,
                recorded.status,
                recorded.describe()
            );
        } else {
            exec::compare(&native, &recorded, false)
                .map_err(|error| error.context((*step).to_owned()))?;
        }
        tool::expect_verified(&recorded).map_err(|error| error.context((*step).to_owned()))?;
    }
    Ok(())
}

fn verify_program(name: &str, loads: bool, place: Place) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut options = vec!["--verify", "--pm", "pool*"];
    if loads {
        options.push("--loads");
    }
    let recorded = record_program(name, place, &options, &scratch)?;
    recorded.clone().expect_success(name)?;
    tool::expect_verified(&recorded)?;
    expect_stores(&scratch.join("trace.bwt"), &scratch)
}

/// The one thing that is detected and refused: pushes and calls on a stack inside the pool.
fn stack_in_pm() -> Result<()> {
    const UNSUPPORTED: i32 = 3;
    let scratch = Scratch::new()?;
    let recorded = record_program(
        "pm_stack",
        Place::Any,
        &["--verify", "--pm", "pool"],
        &scratch,
    )?;
    let message = recorded.stderr_text();
    ensure!(
        recorded.status == UNSUPPORTED && message.contains("stack in persistent memory"),
        "exit status {}\n{}",
        recorded.status,
        recorded.describe()
    );
    Ok(())
}

fn record_program(
    name: &str,
    place: Place,
    options: &[&str],
    scratch: &Scratch,
) -> Result<Outcome> {
    tool::expect_built()?;
    let program = programs::discover()?
        .into_iter()
        .find(|program| program.name == name)
        .ok_or_else(|| anyhow::anyhow!("no program {name}"))?;
    let mut argv = vec![binary(&format!("@{name}"))?.into_os_string()];
    ensure!(
        program.builds.contains(&Build::Dynamic),
        "{name} has no dynamic build"
    );
    argv.extend(program.args.iter().map(|arg| {
        if arg == "POOL" {
            "pool".into()
        } else {
            arg.into()
        }
    }));
    let mut native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    if let Place::Fixed = place {
        native = native.env("PM_POOL_AT", "0x10000000");
    }
    tool::record(&native, &scratch.join("trace.bwt"), options).run()
}

/// A trace without a single store would verify if the program did nothing.
fn expect_stores(trace: &Path, scratch: &Scratch) -> Result<()> {
    let stat = tool::trace("stat", trace, &[], scratch.path())
        .run()?
        .expect_success("trace stat")?;
    ensure!(
        stat.stdout_text().contains("store"),
        "no stores in the trace\n{}",
        stat.describe()
    );
    Ok(())
}

fn exact_loads(place: Place) -> Result<()> {
    let scratch = Scratch::new()?;
    let recorded = record_program("pm_loads", place, &["--loads", "--pm", "pool"], &scratch)?
        .expect_success("pm_loads")?;
    let expected: Vec<(u64, u64)> = recorded
        .stdout_text()
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("load ")?.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
        .collect();
    ensure!(
        expected.len() > 1000,
        "the program announced only {} loads",
        expected.len()
    );
    let found: Vec<(u64, u64)> = dump::events(&scratch.join("trace.bwt"), scratch.path())?
        .iter()
        .filter(|event| &*event.kind == "load")
        .filter_map(|event| Some((event.offset?, event.size?)))
        .collect();
    let same = expected
        .iter()
        .zip(&found)
        .take_while(|(a, b)| a == b)
        .count();
    if same != expected.len() || same != found.len() {
        bail!(
            "loads differ from number {same}: {:?} expected, {:?} recorded ({} and {} in all)",
            expected.get(same),
            found.get(same),
            expected.len(),
            found.len()
        );
    }
    Ok(())
}

fn exact_flushes(place: Place) -> Result<()> {
    let scratch = Scratch::new()?;
    let recorded = record_program("pm_flush", place, &["--pm", "pool"], &scratch)?
        .expect_success("pm_flush")?;
    let text = recorded.stdout_text();
    let expected: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let (kind, count) = line.strip_prefix("expect ")?.split_once(' ')?;
            Some((kind, count.parse().ok()?))
        })
        .collect();
    ensure!(
        expected.len() == 9,
        "the program announced only {expected:?}"
    );
    let found = dump::counts(&dump::events(&scratch.join("trace.bwt"), scratch.path())?);
    for (kind, count) in expected {
        let recorded = found.get(kind).copied().unwrap_or(0);
        ensure!(
            recorded == count,
            "{kind}: {count} expected, {recorded} recorded; all: {found:?}"
        );
    }
    Ok(())
}

/// Some calls are answered by the engine in deterministic mode; what they write is recorded all the
/// same.
fn deterministic_calls() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let program = binary("@pm_syscalls")?;
    let native = Invocation::new([program.as_os_str(), "pool".as_ref()], scratch.path());
    let recorded = tool::record(
        &native.timeout(TIMEOUT),
        &scratch.join("trace.bwt"),
        &["--verify", "--loads", "--deterministic", "--pm", "pool*"],
    )
    .run()?;
    ensure!(recorded.status == 0, "{}", recorded.describe());
    tool::expect_verified(&recorded)
}

/// What cannot be followed ends the run with a message, and never goes unseen.
fn refused(how: &str, words: &str) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let program = binary("@pm_refused")?;
    let argv = [program.as_os_str(), "pool".as_ref(), how.as_ref()];
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let outcome = tool::record(&native, &scratch.join("trace.bwt"), &["--pm", "pool"]).run()?;
    ensure!(
        outcome.status == 3 && outcome.stderr_text().contains(words),
        "not refused\n{}",
        outcome.describe()
    );
    Ok(())
}

/// A file system that has no device is known by a number that follows from where it is mounted,
/// however it is asked for, and not by the kernel's.
fn devices() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let stat = [
        "stat",
        "-L",
        "-c",
        "%d",
        "/proc",
        "/proc/version",
        "/dev/shm",
        "/dev/null",
    ];
    let run = |before: &[&str]| -> Result<Vec<u64>> {
        let words = before.iter().chain(&stat).map(OsString::from);
        let outcome = Invocation::new(words, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(outcome.status == 0, "{}", outcome.describe());
        let text = outcome.stdout_text();
        text.lines()
            .map(|line| line.parse().context("no number"))
            .collect()
    };
    let tool = layout::brownout().into_os_string();
    let tool = tool.to_str().context("a path")?;
    let native = run(&[])?;
    let shown = run(&[tool, "run", "--deterministic", "--"])?;
    ensure!(
        native[0] == native[1] && native[0] != native[2],
        "{native:?}"
    );
    ensure!(shown[0] == shown[1] && shown[0] != shown[2], "{shown:?}");
    ensure!(shown[0] != native[0] && shown[2] != native[2], "{shown:?}");
    ensure!(
        shown == run(&[tool, "run", "--deterministic", "--"])?,
        "{shown:?}"
    );
    Ok(())
}

fn deterministic() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let commands = scratch.join("commands");
    fs::write(&commands, random_commands(11, COMMANDS))?;
    let pool = scratch.join("pool");
    let mut dumps = Vec::new();
    for number in 0..2 {
        // The same names both times: paths are part of the recording.
        if pool.exists() {
            fs::remove_file(&pool)?;
        }
        let trace = scratch.join("trace.bwt");
        let native = Invocation::new(
            [
                binary("mapcli")?.into_os_string(),
                "btree".into(),
                pool.clone().into(),
            ],
            scratch.path(),
        )
        .timeout(TIMEOUT);
        tool::record(
            &native,
            &trace,
            &["--deterministic", "--stdin", &commands.to_string_lossy()],
        )
        .run()?
        .expect_success("record")?;
        let dump = tool::trace(
            "dump",
            &trace,
            &["--format", "json", "--no-symbols"],
            scratch.path(),
        )
        .timeout(TIMEOUT)
        .run()?
        .expect_success("trace dump")?;
        ensure!(
            dump::counts(&dump::parse(&dump.stdout)?)
                .get("store")
                .is_some_and(|stores| *stores > 1000),
            "recording {number} has hardly any stores"
        );
        dumps.push(dump.stdout);
    }
    let lines = |dump: &[u8]| {
        dump.split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (first, second) = (lines(&dumps[0]), lines(&dumps[1]));
    let same = first
        .iter()
        .zip(&second)
        .take_while(|(a, b)| a == b)
        .count();
    if same != first.len() || same != second.len() {
        let show = |lines: &[Vec<u8>]| {
            lines.get(same).map_or("(end)".to_owned(), |line| {
                String::from_utf8_lossy(line).into_owned()
            })
        };
        bail!(
            "recordings differ from line {}:\n{}\n{}",
            same + 1,
            show(&first),
            show(&second)
        );
    }
    Ok(())
}
