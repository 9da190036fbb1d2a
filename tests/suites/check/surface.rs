//! Options, forms of the report, exit codes, recordings, and programs that end in other ways than
//! by returning.
//!
//! Most trials run `check_modes` (`tests/programs`), whose functions are named for what they do:
//! `forget` and `forget_too` leave 8 bytes unflushed, `flush_clean` flushes a line for nothing,
//! `assert_too_early` asserts what does not hold yet.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Report, Role, Verdict, rules};
use brownout_tests::check::{self, Checked};
use brownout_tests::{Invocation, Scratch, examples, layout, tool};
use jsonschema::Validator;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::{TIMEOUT, modes, trial};

const FORGET: (&str, &str) = ("missing-flush", "forget");
const FORGET_TOO: (&str, &str) = ("missing-flush", "forget_too");
const FLUSH_CLEAN: (&str, &str) = ("clean-flush", "flush_clean");

pub fn trials() -> Vec<Trial> {
    vec![
        trial("surface::no_pm", no_pm),
        trial("surface::mapped_and_not_told", mapped_and_not_told),
        trial("surface::never_writes_back", never_writes_back),
        trial("surface::json_and_sarif_are_valid", valid_forms),
        trial("surface::junit", junit),
        trial("surface::fail_on", fail_on),
        trial("surface::error_exitcode", error_exitcode),
        trial("surface::rule_selection", rule_selection),
        trial("surface::suppressions", suppressions),
        trial("surface::baseline", baseline),
        trial("surface::config_file", config_file),
        trial("surface::compat_pmemcheck", compat_pmemcheck),
        trial("surface::domain_eadr", domain_eadr),
        trial("surface::fingerprints_survive_moved_lines", moved_lines),
        trial("surface::sketches_mend", sketches_mend),
        trial("surface::bytes_have_names", bytes_have_names),
        trial("recorded::modes", recorded_modes),
        trial("recorded::mapcli", recorded_mapcli),
        trial("recorded::import_pmemcheck", import_pmemcheck),
        trial("recorded::cut_off", cut_off),
        trial("recorded::flipped_byte", flipped_byte),
        trial("recorded::not_a_trace", not_a_trace),
        trial("ending::signal", ended_by_signal),
        trial("ending::ctrl_c", ctrl_c),
        trial("ending::sigterm", || ended_from_outside("TERM", 15)),
        trial("ending::sighup", || ended_from_outside("HUP", 1)),
        trial("ending::deaf_to_sigterm", deaf_to_sigterm),
        trial("ending::suppressed", ended_by_signal_and_suppressed),
        trial("surface::pattern_matches_nothing", pattern_matches_nothing),
        trial("surface::pattern_of_a_shell_user", pattern_of_a_shell_user),
        trial("processor::without_clwb", without_clwb),
        trial(
            "processor::libpmem_takes_what_is_there",
            libpmem_takes_what_is_there,
        ),
        trial("processor::wrong_names_and_needs", wrong_names_and_needs),
        trial("ending::child", child),
    ]
}

/// `check_modes` with that mode, its pool being persistent memory.
fn run(mode: &str, options: &[&str]) -> Result<Checked> {
    let scratch = Scratch::new()?;
    run_in(mode, options, &scratch)
}

fn run_in(mode: &str, options: &[&str], scratch: &Scratch) -> Result<Checked> {
    let mut all = vec!["--pm", "pool"];
    all.extend(options);
    check::run(&modes(mode, scratch)?, &all)
}

fn verdict(checked: &Checked, expected: Verdict) -> Result<()> {
    ensure!(
        checked.report.verdict == expected,
        "{:?}\n{}",
        checked.report.notes,
        check::show(&checked.report)
    );
    Ok(())
}

// ---------------------------------------------------------------------- what was checked

/// A program without persistent memory is not called clean, and keeps its exit status.
/// A program with two stores that nobody writes back; one has a fence behind it.
const FORGETFUL: &str = r#"#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

struct pool {
    _Alignas(64) uint64_t first;
    _Alignas(64) uint64_t second;
};

static void pmem_flush(const void *start, unsigned long bytes)
{
    for (unsigned long at = 0; at < bytes; at += 64)
        _mm_clflush((const char *)start + at);
}

static void pmem_drain(void)
{
    _mm_sfence();
}

static void pmem_persist(const void *start, unsigned long bytes)
{
    pmem_flush(start, bytes);
    pmem_drain();
}

__attribute__((noinline)) static void forgets_the_write_back(struct pool *pool)
{
    pool->first = 1;
    pmem_drain();
}

__attribute__((noinline)) static void forgets_all(struct pool *pool)
{
    pool->second = 2; /* a comment */
}

int main(void)
{
    int file = open("pool", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 4096))
        return 1;
    struct pool *pool = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    forgets_the_write_back(pool);
    forgets_all(pool);
    if (pool->first == 0)
        pmem_persist(pool, sizeof *pool);
    return 0;
}
"#;

/// What a report says would mend its findings, mends them: put where it says and compiled, the
/// program is clean.
const NAMED: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "brownout.h"

struct bucket { uint64_t key, value; };
struct map { uint64_t count; struct bucket buckets[8]; uint64_t registered[8]; };

__attribute__((noinline, noclone)) void count(struct map *map) { map->count = 1; }
__attribute__((noinline, noclone)) void key(struct map *map) { map->buckets[3].key = 2; }
__attribute__((noinline, noclone)) void plain(void *memory) { *(volatile uint64_t *)memory = 3; }
__attribute__((noinline, noclone)) void told(struct map *map) { map->registered[1] = 4; }

int main(int argc, char **argv)
{
    (void)argv;
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    struct map *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    brownout_register_variable("the numbers", map->registered, sizeof map->registered);
    if (argc > 1)
        return map->count == 1 && map->registered[1] != 4;
    count(map);
    key(map);
    plain(&map->buckets[5].value);
    told(map);
    return 0;
}
"#;

/// Bytes are named in findings, with optimisation and without, and not where nothing says what they
/// are.
fn bytes_have_names() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = scratch.join("named.c");
    fs::write(&source, NAMED)?;
    for level in ["-O0", "-O2"] {
        let binary = check::compile(&source, scratch.join("named"), &[level])?;
        let argv = [
            layout::brownout().into_os_string(),
            "--no-config".into(),
            "check".into(),
            "--pm".into(),
            "pool".into(),
            "--fail-on".into(),
            "never".into(),
            "--format".into(),
            "json".into(),
            "--".into(),
            binary.into_os_string(),
        ];
        let outcome = Invocation::new(argv, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        let report: Report =
            serde_json::from_slice(&outcome.stdout).with_context(|| outcome.describe())?;
        let name = |function: &str| -> Result<Option<String>> {
            let stores = report.findings.iter().flat_map(|finding| &finding.events);
            let store = stores
                .filter(|event| event.role == Role::Store)
                .find(|event| event.stack[0].function.as_deref() == Some(function));
            let place = store.and_then(|event| event.place.clone());
            Ok(place.with_context(|| outcome.describe())?.name)
        };
        let expected = [
            ("count", Some("map->count")),
            ("key", Some("map->buckets[3].key")),
            ("plain", None),
            ("told", Some("the numbers+0x8")),
        ];
        for (function, expected) in expected {
            let name = name(function)?;
            ensure!(name.as_deref() == expected, "{level}: {function}: {name:?}");
        }
        // Recovery misses what has a registered name.
        let explored = [
            layout::brownout().into_os_string(),
            "--no-config".into(),
            "explore".into(),
            "--pm".into(),
            "pool".into(),
            "--recover".into(),
            "./named recover".into(),
            "--format".into(),
            "json".into(),
            "--".into(),
            "./named".into(),
        ];
        fs::remove_file(scratch.join("pool"))?;
        let outcome = Invocation::new(explored, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        let report: Report =
            serde_json::from_slice(&outcome.stdout).with_context(|| outcome.describe())?;
        let events = report.findings.iter().flat_map(|finding| &finding.events);
        let mut names = events
            .filter(|event| event.role == Role::Store)
            .filter_map(|event| event.place.as_ref()?.name.as_deref());
        ensure!(
            names.any(|name| name == "the numbers+0x8"),
            "{level}: {}",
            outcome.describe()
        );
    }
    Ok(())
}

fn sketches_mend() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = scratch.join("forgetful.c");
    let program = scratch.join("forgetful");
    let report = scratch.join("report.json");
    let check = || -> Result<Report> {
        let binary = check::compile(&source, program.clone(), &["-O1"])?;
        let argv = [
            layout::brownout().into_os_string(),
            "--no-config".into(),
            "check".into(),
            "--pm".into(),
            "pool".into(),
            "--fail-on".into(),
            "never".into(),
            "--format".into(),
            "json".into(),
            "-o".into(),
            report.clone().into_os_string(),
            "--".into(),
            binary.into_os_string(),
        ];
        let outcome = Invocation::new(argv, scratch.path())
            .timeout(TIMEOUT)
            .run()?;
        let text = fs::read_to_string(&report).with_context(|| outcome.describe())?;
        Ok(serde_json::from_str(&text)?)
    };
    fs::write(&source, FORGETFUL)?;
    let before = check()?;
    let flushes = before
        .findings
        .iter()
        .filter(|f| f.rule.as_str() == "missing-flush");
    let mut sketches: Vec<_> = flushes.filter_map(|f| f.sketch.clone()).collect();
    sketches.sort_by_key(|sketch| sketch.line);
    let texts: Vec<&str> = sketches.iter().map(|sketch| sketch.text.as_str()).collect();
    ensure!(
        texts
            == [
                "    pmem_flush(&pool->first, 8);",
                "    pmem_persist(&pool->second, 8);"
            ],
        "{texts:?}"
    );
    let mut lines: Vec<String> = FORGETFUL.lines().map(str::to_owned).collect();
    for sketch in sketches.iter().rev() {
        ensure!(sketch.file == source.display().to_string(), "{sketch:?}");
        lines.insert(sketch.line as usize, sketch.text.clone());
    }
    fs::write(&source, lines.join("\n") + "\n")?;
    let after = check()?;
    ensure!(after.verdict == Verdict::Clean, "{:?}", after.findings);
    Ok(())
}

fn no_pm() -> Result<()> {
    let scratch = Scratch::new()?;
    for (words, status) in [
        (&["/bin/true"][..], 0),
        (&["/bin/false"], 1),
        (&["python3", "-c", "pass"], 0),
        (&["sh", "-c", "exit 9"], 9),
    ] {
        let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
        let checked = check::run(&native, &[])?;
        checked.expect_status(status)?;
        verdict(&checked, Verdict::NothingChecked)?;
        let text = fs::read_to_string(scratch.join("report.json"))?;
        let json: Value = serde_json::from_str(&text)?;
        ensure!(json["verdict"] == "nothing-checked");
        let terminal = check::command(&native, &[]).run()?;
        ensure!(terminal.status == status);
        let text = terminal.stderr_text();
        ensure!(
            text.lines().last() == Some("brownout: no persistent memory was touched; see --pm"),
            "{text}"
        );
    }
    Ok(())
}

/// A file that is mapped, and that nobody called persistent memory, is named.
fn mapped_and_not_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let checked = check::run(&modes("forget", &scratch)?, &[])?;
    checked.expect_status(0)?;
    verdict(&checked, Verdict::NothingChecked)?;
    checked.expect_note(&format!("--pm {}", scratch.join("pool").display()))
}

/// A program that was not written for persistent memory is told of the other way to keep a file;
/// one that only forgot a write-back is not.
fn never_writes_back() -> Result<()> {
    const HINT: &str = "add --domain page";
    let scratch = Scratch::new()?;
    let stranger = check::run(&modes("forget_all", &scratch)?, &["--pm", "pool"])?;
    stranger.expect_status(1)?;
    stranger.expect_note(HINT)?;
    for (mode, options) in [
        ("forget", &["--pm", "pool"][..]),
        ("forget_all", &["--pm", "pool", "--domain", "page"]),
    ] {
        let checked = check::run(&modes(mode, &scratch)?, options)?;
        checked.expect_status(1)?;
        let notes = &checked.report.notes;
        ensure!(
            !notes.iter().any(|note| note.contains(HINT)),
            "{mode}: {notes:?}"
        );
    }
    Ok(())
}

// ---------------------------------------------------------------------- forms

fn validator(path: &Path) -> Result<Validator> {
    let mut schema: Value = serde_json::from_slice(&fs::read(path)?)?;
    // The official schema of SARIF has an unbalanced bracket in its pattern for `language`, which
    // we do not write.
    for part in ["run", "toolComponent"] {
        let language = schema.pointer_mut(&format!("/definitions/{part}/properties/language"));
        if let Some(Value::Object(language)) = language {
            language.remove("pattern");
        }
    }
    jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .with_context(|| format!("{} is no schema", path.display()))
}

fn expect_valid(validator: &Validator, instance: &Value) -> Result<()> {
    let objections: Vec<String> = validator
        .iter_errors(instance)
        .take(5)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(objections.is_empty(), "{}", objections.join("\n"));
    Ok(())
}

/// A run with many kinds of findings: `mapcli` on a b-tree.
fn btree(scratch: &Scratch) -> Result<Invocation> {
    let commands = scratch.join("commands");
    fs::write(&commands, examples::random_commands(5, 100))?;
    let argv = [
        examples::binary("mapcli")?.into_os_string(),
        "btree".into(),
        "pool".into(),
    ];
    Ok(Invocation::new(argv, scratch.path())
        .stdin(&commands)
        .timeout(TIMEOUT))
}

fn valid_forms() -> Result<()> {
    let workspace = layout::workspace();
    let json_schema = validator(&workspace.join("schema/report.schema.json"))?;
    let sarif_schema =
        validator(&workspace.join("crates/report/tests/data/sarif-schema-2.1.0.json"))?;
    let scratch = Scratch::new()?;
    for native in [
        modes("forget_too_clean_early", &scratch)?,
        btree(&scratch)?,
        Invocation::new(["/bin/true"], scratch.path()).timeout(TIMEOUT),
    ] {
        let mut counts = Vec::new();
        for (form, schema) in [("json", &json_schema), ("sarif", &sarif_schema)] {
            let pool = scratch.join("pool");
            if pool.exists() {
                fs::remove_file(pool)?;
            }
            let options = ["--pm", "pool", "--format", form, "-o", "out"];
            check::command(&native, &options).run()?;
            let value: Value = serde_json::from_slice(&fs::read(scratch.join("out"))?)?;
            expect_valid(schema, &value).with_context(|| format!("{form} of {}", native.line()))?;
            let list = match form {
                "json" => &value["findings"],
                _ => &value["runs"][0]["results"],
            };
            counts.push(list.as_array().context("no list of findings")?.len());
        }
        ensure!(counts[0] == counts[1], "{counts:?} findings");
    }
    // The schemas are able to object.
    ensure!(expect_valid(&json_schema, &serde_json::json!({ "schema": "one" })).is_err());
    ensure!(expect_valid(&sarif_schema, &serde_json::json!({ "version": 2 })).is_err());
    Ok(())
}

/// One case a rule; those with findings that count have failed.
fn junit() -> Result<()> {
    junit_of(&[], &["missing-flush"])?;
    junit_of(&["--fail-on", "never"], &[])?;
    junit_of(
        &["--fail-on", "performance"],
        &["clean-flush", "missing-flush"],
    )
}

fn junit_of(fail_on: &[&str], expected: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut options = vec!["--pm", "pool", "--format", "junit", "-o", "out.xml"];
    options.extend(fail_on);
    check::command(&modes("forget_clean", &scratch)?, &options).run()?;
    let text = fs::read_to_string(scratch.join("out.xml"))?;
    let xml = roxmltree::Document::parse(&text)?;
    ensure!(xml.root_element().attribute("time").is_some(), "{text}");
    let cases = xml
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    let (mut names, mut failed) = (0, Vec::new());
    for case in cases {
        names += 1;
        if case.children().any(|node| node.has_tag_name("failure")) {
            failed.push(case.attribute("name").unwrap_or_default());
        }
    }
    let is_on = |rule: &&rules::Rule| rule.default_on && rule.analysis == rules::Analysis::Check;
    let on = rules::RULES.iter().filter(is_on).count();
    ensure!(names == on, "{names} cases for {on} rules");
    failed.sort_unstable();
    ensure!(failed == expected, "{failed:?}");
    Ok(())
}

// ---------------------------------------------------------------------- exit status

fn fail_on() -> Result<()> {
    for (mode, option, status) in [
        ("keep", "performance", 0),
        ("keep_seven", "performance", 7),
        ("clean", "correctness", 0),
        ("clean", "performance", 1),
        ("clean_seven", "correctness", 7),
        ("clean_seven", "performance", 1),
        ("forget", "correctness", 1),
        ("forget", "never", 0),
        ("forget_seven", "never", 7),
        ("forget_seven", "correctness", 1),
    ] {
        run(mode, &["--fail-on", option])?
            .expect_status(status)
            .with_context(|| format!("{mode}, --fail-on {option}"))?;
    }
    Ok(())
}

fn error_exitcode() -> Result<()> {
    run("forget", &["--error-exitcode", "99"])?.expect_status(99)?;
    run("keep_seven", &["--error-exitcode", "99"])?.expect_status(7)
}

// ---------------------------------------------------------------------- what is reported

fn rule_selection() -> Result<()> {
    let places = |options: &[&str], expected: &[(&str, &str)]| -> Result<()> {
        run("forget_clean", options)?
            .expect_places(expected)
            .with_context(|| format!("{options:?}"))
    };
    places(&[], &[FLUSH_CLEAN, FORGET])?;
    places(&["--only", "missing-flush"], &[FORGET])?;
    places(&["--only", "performance"], &[FLUSH_CLEAN])?;
    places(&["--disable", "missing-flush"], &[FLUSH_CLEAN])?;
    places(
        &["--disable", "all", "--enable", "missing-flush"],
        &[FORGET],
    )?;
    let nothing = run("forget_clean", &["--disable", "all"])?;
    nothing.expect_places(&[])?;
    nothing.expect_status(0)
}

/// What was written for one run silences that run, and nothing that comes new.
fn suppressions() -> Result<()> {
    let scratch = Scratch::new()?;
    run_in(
        "forget_clean",
        &["--gen-suppressions", "known.toml"],
        &scratch,
    )?
    .expect_places(&[FLUSH_CLEAN, FORGET])?;
    let hide = ["--suppressions", "known.toml"];

    let silent = run_in("forget_clean", &hide, &scratch)?;
    silent.expect_places(&[])?;
    silent.expect_status(0)?;
    ensure!(silent.report.suppressed == 2);
    ensure!(silent.report.notes.is_empty(), "{:?}", silent.report.notes);

    let more = run_in("forget_too_clean", &hide, &scratch)?;
    more.expect_places(&[FORGET_TOO])?;
    more.expect_status(1)?;
    ensure!(more.report.suppressed == 2);

    let less = run_in("forget", &hide, &scratch)?;
    less.expect_places(&[])?;
    ensure!(less.report.suppressed == 1);
    less.expect_note("the suppression was not used")
}

fn baseline() -> Result<()> {
    let scratch = Scratch::new()?;
    run_in("forget_clean", &[], &scratch)?.expect_status(1)?;
    fs::rename(scratch.join("report.json"), scratch.join("old.json"))?;
    let hide = ["--baseline", "old.json"];

    let same = run_in("forget_clean", &hide, &scratch)?;
    same.expect_places(&[])?;
    same.expect_status(0)?;
    ensure!(same.report.known == 2);

    let more = run_in("forget_too_clean", &hide, &scratch)?;
    more.expect_places(&[FORGET_TOO])?;
    more.expect_status(1)?;
    ensure!(more.report.known == 2);
    Ok(())
}

/// The file gives options; the command line has the last word.
fn config_file() -> Result<()> {
    let scratch = Scratch::new()?;
    let config =
        "[check]\npm = [\"./pool\"]\nfail-on = \"performance\"\ndisable = [\"missing-flush\"]\n";
    fs::write(scratch.join("brownout.toml"), config)?;
    let native = modes("forget_clean", &scratch)?;

    let by_file = check::run(&native, &[])?;
    by_file.expect_places(&[FLUSH_CLEAN])?;
    by_file.expect_status(1)?;

    let overruled = check::run(
        &native,
        &["--fail-on", "never", "--enable", "missing-flush"],
    )?;
    overruled.expect_places(&[FLUSH_CLEAN, FORGET])?;
    overruled.expect_status(0)?;

    let without = check::run(&native, &["--no-config"])?;
    verdict(&without, Verdict::NothingChecked)
}

fn compat_pmemcheck() -> Result<()> {
    let scratch = Scratch::new()?;
    for (mode, errors) in [("keep", 0), ("clean", 0), ("forget", 1), ("forget_too", 2)] {
        let options = ["--compat", "pmemcheck", "--pm", "pool"];
        let outcome = check::command(&modes(mode, &scratch)?, &options).run()?;
        let text = outcome.stderr_text();
        let last = text.lines().last().unwrap_or_default();
        ensure!(
            last.ends_with(&format!("ERROR SUMMARY: {errors} errors")),
            "{mode}\n{}",
            outcome.describe()
        );
        ensure!(outcome.status == i32::from(errors > 0));
    }
    Ok(())
}

/// Where caches survive, a write-back is never worth its time, and nothing is lost that lacks one.
fn domain_eadr() -> Result<()> {
    let checked = run("forget_clean", &["--domain", "eadr"])?;
    checked.expect_places(&[FLUSH_CLEAN, ("clean-flush", "keep")])?;
    checked.expect_status(0)
}

/// The same program with other line numbers has the same findings.
fn moved_lines() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = layout::program_sources().join("check_modes.c");
    // Its includes are relative to where it lies.
    let text = fs::read_to_string(&source)?.replace("../../include/", "");
    let mut seen = Vec::new();
    for (name, lines) in [("first", 0), ("second", 57)] {
        let folder = scratch.folder(name)?;
        let moved = folder.join("check_modes.c");
        fs::write(&moved, "\n".repeat(lines) + &text)?;
        let binary = check::compile(&moved, folder.join("check_modes"), &["-O2"])?;
        let argv = [
            binary.into_os_string(),
            "pool".into(),
            "forget_too_clean_early".into(),
        ];
        let native = Invocation::new(argv, &folder).timeout(TIMEOUT);
        let checked = check::run(&native, &["--pm", "pool"])?;
        let line = checked.of("clean-flush")[0].events[0].stack[0].line;
        seen.push((checked.fingerprints(), line.context("no line")?));
    }
    ensure!(seen[1].1 == seen[0].1 + 57, "the lines did not move");
    ensure!(seen[0].0.len() == 5, "{:?}", seen[0].0);
    ensure!(seen[0].0 == seen[1].0, "{:?}\n{:?}", seen[0].0, seen[1].0);
    Ok(())
}

// ---------------------------------------------------------------------- recordings

/// The same findings, whether the run is checked as it happens, or later.
fn recorded(native: &Invocation, scratch: &Scratch) -> Result<Report> {
    let live = check::run(native, &["--pm", "pool", "--save-trace", "run.bwt"])?;
    ensure!(!live.report.findings.is_empty());
    let later = check::run_recorded(&["--trace", "run.bwt"], scratch.path())?;
    ensure!(
        live.fingerprints() == later.fingerprints(),
        "live\n{}\nlater\n{}",
        check::show(&live.report),
        check::show(&later.report)
    );
    verdict(&later, Verdict::Findings)?;
    let correctness = live.outcome.status == 1;
    later.expect_status(i32::from(correctness))?;
    Ok(later.report)
}

fn recorded_modes() -> Result<()> {
    let scratch = Scratch::new()?;
    recorded(&modes("forget_too_clean_early_fork", &scratch)?, &scratch)?;
    Ok(())
}

fn recorded_mapcli() -> Result<()> {
    let scratch = Scratch::new()?;
    let report = recorded(&btree(&scratch)?, &scratch)?;
    ensure!(report.findings.len() > 10, "{}", check::show(&report));
    Ok(())
}

/// A store log tells which bytes were forgotten, though not by whom.
fn import_pmemcheck() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = modes("forget", &scratch)?;
    let mut argv = vec![layout::brownout().into_os_string(), "record".into()];
    argv.extend(["--pmemcheck-log", "stores.log", "--pm", "pool", "--"].map(Into::into));
    argv.extend(native.argv.iter().cloned());
    Invocation {
        argv,
        ..native.clone()
    }
    .run()?
    .expect_success("record --pmemcheck-log")?;
    let imported = check::run_recorded(&["--import-pmemcheck", "stores.log"], scratch.path())?;
    imported.expect_status(1)?;
    let live = run_in("forget", &[], &scratch)?;
    let place = |checked: &Checked| -> Result<(u64, u64)> {
        let findings = checked.of("missing-flush");
        ensure!(
            findings.len() == 1 && checked.report.findings.len() == 1,
            "{}",
            check::show(&checked.report)
        );
        let place = findings[0].events[0].place.as_ref().context("no place")?;
        Ok((place.offset, place.size))
    };
    ensure!(place(&imported)? == place(&live)?);
    Ok(())
}

/// A trace of a run of some length, and its bytes.
fn saved(scratch: &Scratch) -> Result<Vec<u8>> {
    check::run(&btree(scratch)?, &["--save-trace", "run.bwt"])?.expect_status(0)?;
    Ok(fs::read(scratch.join("run.bwt"))?)
}

/// What is left of a recording is checked, is not called whole, and is no success.
fn expect_incomplete(scratch: &Scratch, words: &str) -> Result<()> {
    let checked = check::run_recorded(&["--trace", "run.bwt"], scratch.path())?;
    verdict(&checked, Verdict::Incomplete)?;
    checked.expect_status(3)?;
    checked.expect_note(words)?;
    checked.expect_correct()?;
    let terminal = check::command_without_program(&["--trace", "run.bwt"], scratch.path()).run()?;
    let text = terminal.stderr_text();
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.starts_with("brownout: incomplete: "), "{text}");
    ensure!(terminal.status == 3);
    Ok(())
}

fn cut_off() -> Result<()> {
    let scratch = Scratch::new()?;
    let bytes = saved(&scratch)?;
    fs::write(scratch.join("run.bwt"), &bytes[..bytes.len() * 2 / 3])?;
    expect_incomplete(&scratch, "the trace is damaged")
}

fn flipped_byte() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut bytes = saved(&scratch)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(scratch.join("run.bwt"), &bytes)?;
    expect_incomplete(&scratch, "the trace is damaged")
}

fn not_a_trace() -> Result<()> {
    let scratch = Scratch::new()?;
    fs::write(scratch.join("letter"), "dear reader")?;
    for words in [
        ["--trace", "letter"],
        ["--trace", "none"],
        ["--import-pmemcheck", "letter"],
    ] {
        let outcome = check::command_without_program(&words, scratch.path()).run()?;
        ensure!(outcome.status == 2, "{}", outcome.describe());
        let text = outcome.stderr_text();
        ensure!(
            text.starts_with("brownout: cannot read the ") && text.lines().count() == 1,
            "{text}"
        );
    }
    Ok(())
}

// ---------------------------------------------------------------------- endings

/// The crash came before the program could make things persistent: only what it claimed earlier is
/// wrong.
fn ended_by_signal() -> Result<()> {
    let checked = run("forget_early_segv", &["--fail-on", "never"])?;
    checked.expect_places(&[("not-persisted", "assert_too_early")])?;
    checked.expect_status(128 + 11)?;
    checked.expect_note("a signal ended the program")?;
    run("forget_early_segv", &[])?.expect_status(1)?;

    let nothing_claimed = run("forget_segv", &[])?;
    nothing_claimed.expect_places(&[])?;
    nothing_claimed.expect_status(128 + 11)?;
    nothing_claimed.expect_note("a signal ended the program")
}

/// Ctrl-C goes to the program and to the tool; the report of what was found comes all the same.
fn ctrl_c() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let options = [
        "--pm",
        "pool",
        "--format",
        "json",
        "-o",
        "out",
        "--fail-on",
        "never",
    ];
    let invocation = check::command(&modes("forget_early_wait", &scratch)?, &options);
    // It has a process group of its own, as a terminal's foreground job.
    let mut child = invocation
        .command()?
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "ready\n" {
        brownout_tests::exec::kill_group(child.id());
        bail!("the program says {line:?}");
    }
    let interrupt = format!("kill -s INT -- -{}", child.id());
    ensure!(
        Command::new("/bin/sh")
            .args(["-c", &interrupt])
            .status()?
            .success()
    );
    let status = child.wait()?;
    ensure!(status.code() == Some(128 + 2), "{status}");
    let report: Report = serde_json::from_slice(&fs::read(scratch.join("out"))?)?;
    ensure!(
        report.findings.len() == 1 && report.findings[0].rule == "not-persisted",
        "{}",
        check::show(&report)
    );
    Ok(())
}

/// Starts a check of a program that waits, and tells its process number when the program is ready.
fn start_waiting(mode: &str, scratch: &Scratch) -> Result<std::process::Child> {
    tool::expect_built()?;
    let options = ["--pm", "pool", "--format", "json", "-o", "out"];
    let options = [&options[..], &["--fail-on", "never"]].concat();
    let invocation = check::command(&modes(mode, scratch)?, &options);
    let mut child = invocation
        .command()?
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line != "ready\n" {
        brownout_tests::exec::kill_group(child.id());
        bail!("the program says {line:?}");
    }
    Ok(child)
}

/// Waits for the end of a check that gets a signal, alone, and reads its report.
fn end_by(
    mut child: std::process::Child,
    signal: &str,
    scratch: &Scratch,
) -> Result<(i32, Report)> {
    let send = format!("kill -s {signal} {}", child.id());
    let sent = Command::new("/bin/sh").args(["-c", &send]).status()?;
    ensure!(sent.success());
    let status = child.wait()?;
    let status = status
        .code()
        .with_context(|| format!("the tool died: {status}"))?;
    let text = fs::read(scratch.join("out")).context("no report was written")?;
    Ok((status, serde_json::from_slice(&text)?))
}

/// What ends the tool (`timeout`, a supervisor, a terminal that goes away) ends the program, and
/// the report comes all the same.
fn ended_from_outside(signal: &str, number: i32) -> Result<()> {
    let scratch = Scratch::new()?;
    let child = start_waiting("forget_early_wait", &scratch)?;
    let (status, report) = end_by(child, signal, &scratch)?;
    ensure!(status == 128 + number, "{status}");
    ensure!(
        report.findings.len() == 1 && report.findings[0].rule == "not-persisted",
        "{}",
        check::show(&report)
    );
    let scratch = Scratch::new()?;
    let child = start_waiting("keep_wait", &scratch)?;
    let (status, report) = end_by(child, signal, &scratch)?;
    ensure!(status == 128 + number, "{status}");
    ensure!(
        report.verdict == Verdict::Incomplete,
        "{:?}",
        report.verdict
    );
    Ok(())
}

/// A program that does not listen is killed after a while: whoever asked will not wait for ever.
fn deaf_to_sigterm() -> Result<()> {
    let scratch = Scratch::new()?;
    let child = start_waiting("keep_deaf_wait", &scratch)?;
    let (status, report) = end_by(child, "TERM", &scratch)?;
    ensure!(status != 0, "{status}");
    ensure!(
        report.verdict == Verdict::Incomplete,
        "{:?}",
        report.verdict
    );
    Ok(())
}

/// Findings that somebody has accepted do not make a run complete that a signal has ended.
fn ended_by_signal_and_suppressed() -> Result<()> {
    let scratch = Scratch::new()?;
    let baseline = ["--format", "json", "-o", "known.json", "--fail-on", "never"];
    let options = [&["--pm", "pool"], &baseline[..]].concat();
    let first = check::command(&modes("forget_early_segv", &scratch)?, &options).run()?;
    ensure!(first.status == 128 + 11, "{}", first.describe());
    let again = run_in("forget_early_segv", &["--baseline", "known.json"], &scratch)?;
    again.expect_places(&[])?;
    verdict(&again, Verdict::Incomplete)?;
    again.expect_status(128 + 11)
}

/// A pattern that matches nothing is a mistake in it, and no success, whatever the program says.
fn pattern_matches_nothing() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = modes("forget", &scratch)?;
    let checked = check::run(&native, &["--pm", "poool"])?;
    checked.expect_status(3)?;
    verdict(&checked, Verdict::NothingChecked)?;
    checked.expect_note("--pm matches no file")?;
    checked.expect_note(&format!("--pm {}", scratch.join("pool").display()))?;
    // The program's own failure comes first.
    let failing = check::run(&modes("forget_seven", &scratch)?, &["--pm", "poool"])?;
    failing.expect_status(7)?;
    let trace = scratch.join("run.bwt");
    let recorded = tool::record(&native, &trace, &["--pm", "poool"]).run()?;
    ensure!(recorded.status == 3, "{}", recorded.describe());
    ensure!(recorded.stderr_text().contains("--pm matches no file"));
    ensure!(recorded.stderr_text().contains("add --pm /"));
    let of_trace = check::run_recorded(&["--trace", "run.bwt"], scratch.path())?;
    of_trace.expect_status(3)?;
    // One that matches is enough, and so is a file that is only read.
    let both = check::run(
        &native,
        &["--pm", "poool", "--pm", "pool", "--fail-on", "never"],
    )?;
    both.expect_status(0)
}

/// `*/pool` is a file `pool` in whatever folder; a folder is all that is in it.
fn pattern_of_a_shell_user() -> Result<()> {
    for pattern in ["*/pool", "**/pool", "./pool", "./", "p[n-p]ol"] {
        let scratch = Scratch::new()?;
        let checked = check::run(&modes("forget", &scratch)?, &["--pm", pattern])?;
        checked
            .expect_places(&[FORGET])
            .with_context(|| pattern.to_owned())?;
    }
    let scratch = Scratch::new()?;
    let below = check::run(&modes("forget", &scratch)?, &["--pm", "./*/pool"])?;
    below.expect_status(3)
}

// ---------------------------------------------------------------------- other processors

fn hiding(native: Invocation, features: &str) -> Invocation {
    native.env("BROWNOUT_HIDE_CPU", features)
}

/// A program that executes what the processor lacks dies as it does natively, and the reason is
/// said.
fn without_clwb() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = layout::programs().join("bare_clwb");
    let native = Invocation::new([program.as_os_str(), "pool".as_ref()], scratch.path());
    let checked = check::run(&hiding(native.clone(), "clwb"), &["--pm", "pool"])?;
    checked.expect_status(128 + 4)?;
    verdict(&checked, Verdict::Incomplete)?;
    checked.expect_note("needs clwb, which this processor does not have")?;
    if brownout_tests::cpu::has("clwb") {
        let checked = check::run(&native, &["--pm", "pool"])?;
        checked.expect_status(0)?;
        verdict(&checked, Verdict::Clean)?;
    }
    Ok(())
}

/// libpmem asks the processor, which is the tool's to answer.
fn libpmem_takes_what_is_there() -> Result<()> {
    let used = |features: &str| -> Result<Vec<&'static str>> {
        let scratch = Scratch::new()?;
        fs::write(scratch.join("words"), "i 1\nq\n")?;
        let native = Invocation::new(
            [
                examples::binary("mapcli")?.as_os_str(),
                "btree".as_ref(),
                "pool".as_ref(),
            ],
            scratch.path(),
        )
        .stdin(&scratch.join("words"))
        .timeout(TIMEOUT);
        let trace = scratch.join("run.bwt");
        tool::record(&hiding(native, features), &trace, &[])
            .run()?
            .expect_success("record")?;
        let events = brownout_tests::dump::events(&trace, scratch.path())?;
        let kinds = ["clwb", "clflushopt", "clflush"].into_iter();
        Ok(kinds
            .filter(|kind| events.iter().any(|event| &*event.kind == *kind))
            .collect())
    };
    let best = used("")?;
    let (second, last) = (used("clwb")?, used("clwb,clflushopt")?);
    ensure!(last == ["clflush"], "{last:?}");
    ensure!(!second.contains(&"clwb") && second.len() == 1, "{second:?}");
    if brownout_tests::cpu::has("clwb") {
        ensure!(best.contains(&"clwb"), "{best:?}");
    }
    Ok(())
}

/// What cannot be hidden is named; what the tool cannot do without is said.
fn wrong_names_and_needs() -> Result<()> {
    let scratch = Scratch::new()?;
    let native = Invocation::new(["/bin/true"], scratch.path());
    for (features, text) in [("avx3", "cannot hide 'avx3'"), ("bmi2", "lacks BMI2")] {
        let outcome = tool::run(&hiding(native.clone(), features)).run()?;
        ensure!(
            outcome.status == 3 && outcome.stderr_text().contains(text),
            "{}",
            outcome.describe()
        );
    }
    Ok(())
}

/// Children belong to the run.
fn child() -> Result<()> {
    let checked = run("forget_fork", &[])?;
    checked.expect_places(&[FORGET, ("missing-flush", "forget_in_child")])?;
    checked.expect_status(1)
}
