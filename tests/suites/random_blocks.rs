//! Random code ends in the same state natively and translated: registers, flags, vectors, memory,
//! and the signal if it faults.
//!
//! Each test has its own seed and mix of instructions. The native run, without address-space
//! randomisation as under the tool, is the oracle. A difference is shown with the seed, the blob's
//! disassembly and both states, and can be repeated:
//!
//! | variable | meaning |
//! |---|---|
//! | `BROWNOUT_RANDOM_SEED=N` | this seed instead of the test's own |
//! | `BROWNOUT_RANDOM_ROUNDS=N` | so many seeds in a row, one if absent |
//!
//! In `pool_` tests the memory that registers point into is persistent, so nearly every access
//! becomes an event, by every way of recording; recordings with values are verified, too, and those
//! without must tell of the same accesses.
//!
//! Does not check: what `random_code::Exclusion` lists, code in several threads, asynchronous
//! signals (but for blobs without end, which one interrupts).

#![allow(
    clippy::print_stdout,
    reason = "the closing line says what was executed"
)]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_abi as abi;
use brownout_tests::random_code::{self, Blob, Family, Mapping, Material, Mix};
use brownout_tests::{Invocation, Outcome, Scratch, check, cpu, dump, layout, tool, trial};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Differing blobs of one run that are shown in full.
const SHOWN_MAX: usize = 2;
const STATE_LINES_MAX: usize = 40;

const RWX: &[Mapping] = &[Mapping::WritableExecutable];
const W_XOR_X: &[Mapping] = &[Mapping::WriteXorExecute];
const TWO: &[Mapping] = &[Mapping::TwoMappings];
const ALL: &[Mapping] = &[
    Mapping::WritableExecutable,
    Mapping::WriteXorExecute,
    Mapping::TwoMappings,
];

const INTEGER: &[(Family, u64)] = &[(Family::Integer, 1)];
const EVERYTHING: &[(Family, u64)] = &[
    (Family::Integer, 6),
    (Family::X87, 2),
    (Family::Sse, 3),
    (Family::Vex, 3),
    (Family::Evex, 4),
];

/// Straight code of one family.
const fn straight(families: &'static [(Family, u64)]) -> Mix {
    Mix {
        material: Material::Program,
        blobs: 300,
        families,
        control_percent: 4,
        invalid_permille: 1,
        mappings: W_XOR_X,
        runs: 2,
        in_pool: false,
    }
}

/// On persistent memory. Three runs: in the first, instructions are found to touch it; in the last,
/// none is new.
const fn pool(families: &'static [(Family, u64)], control_percent: u64) -> Mix {
    Mix {
        blobs: 120,
        control_percent,
        mappings: ALL,
        runs: 3,
        in_pool: true,
        ..straight(families)
    }
}

/// What the program runs under.
#[derive(Clone, Copy)]
enum Under {
    Nothing,
    Run,
    /// Nothing but addresses is recorded, and as little as will do.
    Check,
    Record {
        loads: bool,
    },
}

/// How a test runs its blobs.
#[derive(Clone, Copy)]
struct Setting {
    under: Under,
    in_pool: bool,
    /// The program insists on the pool's address, which is near other memory.
    is_fixed: bool,
    /// There was a second thread: records are made under a lock.
    is_parallel: bool,
    /// A signal interrupts each blob.
    is_stormy: bool,
    /// Instrumentation that the program must not feel: names of the translator's passes.
    passes: &'static str,
}

const PLAIN: Setting = Setting {
    under: Under::Run,
    in_pool: false,
    is_fixed: false,
    is_parallel: false,
    is_stormy: false,
    passes: "",
};
const CHECK: Setting = Setting {
    under: Under::Check,
    in_pool: true,
    ..PLAIN
};
const RECORD: Setting = Setting {
    under: Under::Record { loads: false },
    ..CHECK
};
const LOADS: Setting = Setting {
    under: Under::Record { loads: true },
    ..CHECK
};

const PASS_TESTS: &[(&str, u64, Mix, Setting)] = &[
    (
        "passes_edges_control",
        801,
        Mix {
            families: EVERYTHING,
            ..control(ALL)
        },
        Setting {
            passes: "edges",
            ..PLAIN
        },
    ),
    (
        "passes_interpret_everything",
        802,
        straight(EVERYTHING),
        Setting {
            passes: "interpret",
            ..PLAIN
        },
    ),
    (
        "passes_comparisons_control",
        804,
        Mix {
            families: EVERYTHING,
            ..control(ALL)
        },
        Setting {
            passes: "comparisons",
            ..PLAIN
        },
    ),
    (
        "passes_all_in_pool_interrupted",
        803,
        Mix {
            runs: 6,
            ..pool(EVERYTHING, 20)
        },
        Setting {
            is_stormy: true,
            passes: "comparisons,edges,interpret",
            ..RECORD
        },
    ),
];

const POOL_TESTS: &[(&str, u64, Mix, Setting)] = &[
    ("pool_check_integer", 601, pool(INTEGER, 4), CHECK),
    ("pool_check_everything", 602, pool(EVERYTHING, 20), CHECK),
    (
        "pool_check_faults",
        603,
        Mix {
            invalid_permille: 60,
            ..pool(EVERYTHING, 10)
        },
        CHECK,
    ),
    (
        "pool_check_parallel",
        604,
        pool(EVERYTHING, 10),
        Setting {
            is_parallel: true,
            ..CHECK
        },
    ),
    (
        "pool_check_interrupted",
        609,
        Mix {
            runs: 15,
            ..pool(EVERYTHING, 10)
        },
        Setting {
            is_stormy: true,
            ..CHECK
        },
    ),
    (
        "pool_check_parallel_interrupted",
        610,
        Mix {
            runs: 15,
            ..pool(EVERYTHING, 10)
        },
        Setting {
            is_stormy: true,
            is_parallel: true,
            ..CHECK
        },
    ),
    (
        "pool_record_interrupted",
        611,
        Mix {
            runs: 15,
            ..pool(EVERYTHING, 10)
        },
        Setting {
            is_stormy: true,
            ..RECORD
        },
    ),
    (
        "pool_check_fixed",
        607,
        pool(EVERYTHING, 10),
        Setting {
            is_fixed: true,
            ..CHECK
        },
    ),
    (
        "pool_loads_fixed",
        608,
        pool(EVERYTHING, 10),
        Setting {
            is_fixed: true,
            ..LOADS
        },
    ),
    ("pool_record_everything", 605, pool(EVERYTHING, 10), RECORD),
    ("pool_loads_everything", 606, pool(EVERYTHING, 10), LOADS),
];

/// Mostly branches, calls and returns.
const fn control(mappings: &'static [Mapping]) -> Mix {
    Mix {
        control_percent: 45,
        mappings,
        runs: 3,
        ..straight(INTEGER)
    }
}

const TESTS: &[(&str, u64, Mix)] = &[
    ("straight_integer", 101, straight(INTEGER)),
    (
        "straight_x87_mmx",
        102,
        straight(&[(Family::X87, 5), (Family::Integer, 1)]),
    ),
    (
        "straight_sse",
        103,
        straight(&[(Family::Sse, 5), (Family::Integer, 1)]),
    ),
    (
        "straight_vex",
        104,
        straight(&[(Family::Vex, 5), (Family::Integer, 1)]),
    ),
    (
        "straight_evex",
        105,
        straight(&[(Family::Evex, 5), (Family::Integer, 1)]),
    ),
    ("straight_everything", 106, straight(EVERYTHING)),
    (
        "straight_everything_two_mappings",
        107,
        Mix {
            mappings: TWO,
            ..straight(EVERYTHING)
        },
    ),
    (
        "straight_everything_rwx",
        108,
        Mix {
            mappings: RWX,
            ..straight(EVERYTHING)
        },
    ),
    ("control_w_xor_x", 201, control(W_XOR_X)),
    ("control_rwx", 202, control(RWX)),
    ("control_two_mappings", 203, control(TWO)),
    ("control_all_mappings", 204, control(ALL)),
    (
        "control_everything",
        205,
        Mix {
            families: EVERYTHING,
            ..control(ALL)
        },
    ),
    (
        "control_many_runs",
        206,
        Mix {
            runs: 20,
            blobs: 60,
            ..control(RWX)
        },
    ),
    (
        "faults_integer",
        301,
        Mix {
            invalid_permille: 60,
            ..straight(INTEGER)
        },
    ),
    (
        "faults_everything",
        302,
        Mix {
            invalid_permille: 60,
            ..straight(EVERYTHING)
        },
    ),
    (
        "faults_control",
        303,
        Mix {
            invalid_permille: 40,
            ..control(ALL)
        },
    ),
    (
        "damaged_integer",
        401,
        Mix {
            material: Material::Damaged,
            ..control(W_XOR_X)
        },
    ),
    (
        "damaged_everything",
        402,
        Mix {
            material: Material::Damaged,
            families: EVERYTHING,
            ..control(ALL)
        },
    ),
    (
        "bytes_w_xor_x",
        501,
        Mix {
            material: Material::Bytes,
            blobs: 1000,
            ..control(W_XOR_X)
        },
    ),
    (
        "bytes_all_mappings",
        502,
        Mix {
            material: Material::Bytes,
            blobs: 600,
            ..control(ALL)
        },
    ),
];

/// Recorded with and without values. Loops are few, so that none is endless: the timer that ends it
/// is not the same each time.
const SAME_EVENTS: &[(&str, u64, Mix, Setting)] = &[
    ("pool_same_events", 701, pool(EVERYTHING, 2), RECORD),
    ("pool_same_events_integer", 702, pool(INTEGER, 2), RECORD),
    (
        "pool_same_events_with_loads",
        703,
        pool(EVERYTHING, 2),
        LOADS,
    ),
    (
        "pool_same_events_fixed",
        704,
        pool(EVERYTHING, 2),
        Setting {
            is_fixed: true,
            ..RECORD
        },
    ),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = TESTS
        .iter()
        .map(|(name, seed, mix)| trial(*name, move || compare_rounds(*seed, mix, PLAIN)))
        .collect();
    trials.extend(
        POOL_TESTS
            .iter()
            .chain(PASS_TESTS)
            .map(|(name, seed, mix, setting)| {
                trial(*name, move || compare_rounds(*seed, mix, *setting))
            }),
    );
    trials.extend(SAME_EVENTS.iter().map(|(name, seed, mix, setting)| {
        trial(*name, move || same_events_rounds(*seed, mix, *setting))
    }));
    trials.push(trial("canary", canary));
    trials.push(trial("blobs_mostly_run_to_their_end", mostly_whole));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("executed: {}", random_code::forms(cpu::hidden()));
    }
    conclusion.exit();
}

fn number(variable: &str) -> Result<Option<u64>> {
    match env::var(variable) {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{variable} must be a number, not {text:?}"),
        },
    }
}

fn compare_rounds(seed: u64, mix: &Mix, setting: Setting) -> Result<()> {
    in_rounds(seed, mix, |blobs| compare(blobs, setting))
}

fn same_events_rounds(seed: u64, mix: &Mix, setting: Setting) -> Result<()> {
    in_rounds(seed, mix, |blobs| same_events(blobs, setting))
}

fn in_rounds(seed: u64, mix: &Mix, test: impl Fn(&[Blob]) -> Result<()>) -> Result<()> {
    tool::expect_built()?;
    let first = number("BROWNOUT_RANDOM_SEED")?.unwrap_or(seed);
    // Far apart, so that tests whose own seeds are neighbours do not repeat each other.
    for round in 0..number("BROWNOUT_RANDOM_ROUNDS")?.unwrap_or(1) {
        let seed = first + 1000 * round;
        test(&random_code::generate(seed, mix))
            .with_context(|| format!("BROWNOUT_RANDOM_SEED={seed} repeats this"))?;
    }
    Ok(())
}

/// `run_blob` on these blobs, natively.
fn invocation(
    blobs: &[Blob],
    words: &[&str],
    setting: Setting,
    scratch: &Scratch,
) -> Result<Invocation> {
    let program = layout::programs().join("run_blob");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo xtask build`",
        program.display()
    );
    let file = scratch.join("blobs");
    fs::write(&file, random_code::file(blobs))?;
    let mut argv = vec![program.into_os_string(), file.into_os_string()];
    argv.extend(words.iter().map(Into::into));
    let mut native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    if setting.in_pool {
        native = native.env("RUN_BLOB_POOL", "pool");
    }
    if setting.is_fixed {
        native = native.env("RUN_BLOB_FIXED", "yes");
    }
    if setting.is_stormy {
        native = native.env("RUN_BLOB_STORM", "yes");
    }
    if setting.is_parallel {
        native = native.env("RUN_BLOB_THREAD", "yes");
    }
    if !setting.passes.is_empty() {
        native = native.env("BROWNOUT_PASSES", setting.passes);
    }
    Ok(native)
}

/// Options of `record`.
fn record_options(loads: bool) -> Vec<&'static str> {
    let mut options = vec!["--pm", "pool"];
    if loads {
        options.push("--loads");
    }
    options
}

fn execute(blobs: &[Blob], words: &[&str], setting: Setting) -> Result<Outcome> {
    let scratch = Scratch::new()?;
    let mut native = invocation(blobs, words, setting, &scratch)?;
    match setting.under {
        Under::Nothing => {
            native.argv.splice(0..0, ["setarch".into(), "-R".into()]);
            native.run()
        }
        Under::Run => tool::run(&native).run(),
        Under::Check => {
            let report = ["--format", "json", "-o", "report.json"];
            let options = [&["--pm", "pool", "--fail-on", "never"], &report[..]].concat();
            check::command(&native, &options).run()
        }
        Under::Record { loads } => {
            let options = [&record_options(loads)[..], &["--verify"]].concat();
            let recorded = tool::record(&native, &scratch.join("trace.bwt"), &options).run()?;
            tool::expect_verified(&recorded)?;
            Ok(recorded)
        }
    }
}

/// What a recording tells of each access, but for its value.
fn accesses(blobs: &[Blob], setting: Setting, more: &[&str]) -> Result<Vec<dump::Event>> {
    let scratch = Scratch::new()?;
    let native = invocation(blobs, &[], setting, &scratch)?;
    let loads = matches!(setting.under, Under::Record { loads: true });
    let options = [&record_options(loads)[..], more].concat();
    let trace = scratch.join("trace.bwt");
    let recorded = tool::record(&native, &trace, &options)
        .run()?
        .expect_success("recording")?;
    ensure!(
        !recorded.stdout_text().contains("endless"),
        "a blob has no end: this seed cannot be compared"
    );
    let mut events = dump::events(&trace, scratch.path())?;
    events.retain(|event| event.pc.is_some());
    Ok(events)
}

fn same_events(blobs: &[Blob], setting: Setting) -> Result<()> {
    let full = accesses(blobs, setting, &[])?;
    let brief = accesses(blobs, setting, &["--no-values"])?;
    ensure!(full.len() > 1000, "only {} accesses", full.len());
    let same = full.iter().zip(&brief).take_while(|(a, b)| a == b).count();
    ensure!(
        same == full.len() && same == brief.len(),
        "they differ from number {same}: {:?} with values, {:?} without ({} and {} in all)",
        full.get(same),
        brief.get(same),
        full.len(),
        brief.len()
    );
    Ok(())
}

fn natively(setting: Setting) -> Setting {
    Setting {
        under: Under::Nothing,
        ..setting
    }
}

fn compare(blobs: &[Blob], setting: Setting) -> Result<()> {
    let native = execute(blobs, &[], natively(setting))?
        .expect_success("natively, where it must succeed")?;
    let translated = execute(blobs, &[], setting)?;
    judge(blobs, setting, &native, &translated)
}

/// Fails, with the blobs and states that differ, unless both outputs are the same.
fn judge(blobs: &[Blob], setting: Setting, native: &Outcome, translated: &Outcome) -> Result<()> {
    if native.stdout == translated.stdout && translated.status == 0 {
        return Ok(());
    }
    let translated_status = translated.status;
    let (mut native, mut stdout) = (native.stdout_text(), translated.stdout_text());
    if let Under::Record { loads: true } = setting.under {
        // All access is taken from the memory, so no page is ever "present" (docs/engine.md,
        // limitations).
        (native, stdout) = (without_presence(&native), without_presence(&stdout));
    }
    let mut message = String::new();
    if translated.status != 0 {
        let _ = writeln!(
            message,
            "exit status {} under the tool after {} of {} lines: {}",
            translated.status,
            stdout.lines().count(),
            native.lines().count(),
            translated.stderr_text()
        );
    }
    let mut others = stdout.lines();
    let mut differing: Vec<(usize, &str, &str)> = Vec::new();
    for line in native.lines() {
        let other = others.next().unwrap_or("nothing");
        let number = blob_number(line)?;
        let known = differing.last().is_some_and(|(last, ..)| *last == number);
        if line != other && !known && !is_wild_jump(line, other) && !hits_engine(line) {
            differing.push((number, line, other));
        }
        if other == "nothing" || blob_number(other)? != number {
            break;
        }
    }
    if differing.is_empty() && translated_status == 0 {
        return Ok(());
    }
    let _ = writeln!(message, "{} blobs differ", differing.len());
    for (number, line, other) in differing.iter().take(SHOWN_MAX) {
        let _ = writeln!(message, "natively   {line}\ntranslated {other}");
        let _ = writeln!(message, "{}", blobs[*number].disassemble());
        let words = ["dump", &number.to_string()];
        let whole = (
            execute(blobs, &words, natively(setting))?,
            execute(blobs, &words, setting)?,
        );
        message += &differing_lines(&whole.0.stdout_text(), &whole.1.stdout_text());
    }
    bail!(message)
}

/// With the lowest bit of page-fault codes cleared.
fn without_presence(output: &str) -> String {
    output
        .replace(" trap 14 error 5 ", " trap 14 error 4 ")
        .replace(" trap 14 error 7 ", " trap 14 error 6 ")
}

/// A branch to an address that no 48-bit pointer has. The processor refuses it at the branch; the
/// engine learns of it behind the branch, and reports a fetch from there (docs/engine.md,
/// limitations).
fn is_wild_jump(native: &str, translated: &str) -> bool {
    let rip = translated
        .split(" rip 0x")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|hex| u64::from_str_radix(hex, 16).ok());
    native.contains("SIGSEGV code 128 ")
        && native.contains(" trap 13 ")
        && translated.contains("SIGSEGV code 1 ")
        && rip.is_some_and(|rip| rip >> 47 != 0)
}

/// A wild pointer into the address space that the engine keeps for itself (docs/engine.md,
/// limitations). Sums of pointers into the pool get there.
fn hits_engine(native: &str) -> bool {
    const OWN: [std::ops::Range<u64>; 2] = [
        abi::ENGINE_BASE..abi::ENGINE_LIMIT,
        // Aliases.
        abi::PM_ALIAS_BASE..abi::ENGINE_BASE,
    ];
    let is_own = |address: u64| OWN.iter().any(|range| range.contains(&address));
    let address = native
        .split(" addr 0x")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|hex| u64::from_str_radix(hex, 16).ok());
    native.contains(": SIGSEGV ") && address.is_some_and(is_own)
}

fn blob_number(line: &str) -> Result<usize> {
    let number = line
        .strip_prefix("blob ")
        .and_then(|rest| rest.split(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("not a line of run_blob: {line:?}"))
}

/// Lines of two dumps that differ, side by side.
fn differing_lines(native: &str, translated: &str) -> String {
    let pairs = native
        .lines()
        .zip(translated.lines())
        .filter(|(a, b)| a != b && a.starts_with(' '));
    let mut text = String::new();
    for (a, b) in pairs.take(STATE_LINES_MAX) {
        let _ = writeln!(text, "  natively   {}\n  translated {}", a.trim(), b.trim());
    }
    text
}

/// The judgement that the tests use rejects the output of other blobs and a failed run, and accepts
/// two native runs of the same blobs.
fn canary() -> Result<()> {
    let mix = Mix {
        blobs: 30,
        ..control(ALL)
    };
    let blobs = random_code::generate(1, &mix);
    let native = |blobs: &[Blob]| execute(blobs, &[], natively(PLAIN))?.expect_success("canary");
    let (one, again) = (native(&blobs)?, native(&blobs)?);
    let other = native(&random_code::generate(2, &mix))?;
    judge(&blobs, PLAIN, &one, &again).context("the same blobs gave different output natively")?;
    ensure!(
        judge(&blobs, PLAIN, &one, &other).is_err(),
        "the output of other blobs was accepted"
    );
    let (one, other) = (one.stdout_text(), other.stdout_text());
    let same = one
        .lines()
        .zip(other.lines())
        .filter(|(a, b)| a == b)
        .count();
    ensure!(same == 0, "{same} lines are the same for different blobs");
    let failed = Outcome {
        status: 1,
        ..again.clone()
    };
    ensure!(
        judge(&blobs, PLAIN, &again, &failed).is_err(),
        "a run that failed was accepted"
    );
    Ok(())
}

/// A test of faults only would pass as well: about half of the blobs must get to their end.
fn mostly_whole() -> Result<()> {
    let plain = TESTS
        .iter()
        .map(|(name, seed, mix)| (name, seed, mix, &PLAIN));
    let in_pool = POOL_TESTS
        .iter()
        .map(|(name, seed, mix, setting)| (name, seed, mix, setting));
    for (name, seed, mix, setting) in plain.chain(in_pool) {
        let whole = mix.material == Material::Program && mix.invalid_permille <= 1;
        if !whole {
            continue;
        }
        let blobs = random_code::generate(*seed, mix);
        let output = execute(&blobs, &[], natively(*setting))?
            .expect_success(name)?
            .stdout_text();
        let returned = output
            .lines()
            .filter(|line| line.contains(": returned"))
            .count();
        let lines = output.lines().count();
        // Without wide vectors more of them are SSE's, which want their operands aligned.
        ensure!(
            5 * returned > 2 * lines,
            "{name}: only {returned} of {lines} runs returned"
        );
    }
    Ok(())
}
