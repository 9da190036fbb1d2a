//! The recipes of `docs/recipes.md`: each builds a tiny project as its page says, runs its tests
//! under Brownout, and sees the one that is wrong.
//!
//! All of them have the same two tests: `good` writes back what it stores, `bad` does not.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Finding, Report};
use brownout_tests::seeded::{self, Build};
use brownout_tests::{Invocation, Outcome, Scratch, layout, tool, trial};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(600);

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = vec![
        trial("make", make),
        trial("cmake::emulator", cmake_emulator),
        trial("cmake::memcheck", cmake_memcheck),
        trial("cmake::whole_suite", cmake_whole_suite),
        trial("meson", meson),
        trial("cargo::runner", || cargo(&["cargo", "test", "--offline"])),
        trial("cargo::nextest", || {
            cargo(&["cargo", "nextest", "run", "--offline", "--no-fail-fast"])
        }),
        trial("pytest", pytest),
        trial("merge", merge),
        trial("explore_names_the_test", explore_names_the_test),
        trial("two_versions_compared", two_versions_compared),
        trial("valgrind_options", valgrind_options),
        trial("genhtml", genhtml),
        trial("coverage_of_every_analysis", coverage_of_every_analysis),
        trial("gdb::store", || {
            gdb("store", "slot->value = 7", "missing-flush", "")
        }),
        trial("gdb::store_of_a_program_that_has_input", || {
            gdb("store", "slot->value = 7", "missing-flush", "--stdin t.c")
        }),
        trial(
            "gdb::store_of_a_program_that_reads_to_its_end",
            gdb_of_reading,
        ),
        trial("gdb::store_of_a_seeded_bug", gdb_of_a_seeded_bug),
        trial("gdb::crash", || {
            gdb("crash", "slot->value = 7", "missing-flush", "")
        }),
        trial("gdb::of_a_program_that_makes_its_pool", || of_refusing(&[])),
        trial("gdb::without_private_views", || {
            of_refusing(&[("BROWNOUT_ISOLATION", "redirect")])
        }),
        trial("gdb::of_a_program_in_another_folder", gdb_elsewhere),
        trial("gdb::recovery", gdb_in_recovery),
        trial("gdb::refusals", gdb_refusals),
        trial("in_ci_nothing_checked_is_no_success", in_ci),
        trial(
            "explore_names_what_cannot_be_made",
            explore_names_what_cannot_be_made,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// Debian's commands come first, as in all suites.
const DEBIAN: &str = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Stores to a pool that it makes anew. With a second argument it forgets to write back.
const PROGRAM: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <immintrin.h>

struct slot { uint64_t value; };

__attribute__((noinline)) static void put(struct slot *slot)
{
    slot->value = 7;
}

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 9;
    struct slot *slots = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED)
        return 9;
    put(&slots[0]);
    if (argc == 2) {
        _mm_clflush(&slots[0]);
        _mm_sfence();
    }
    puts("done");
    return 0;
}
"#;

/// A project in a folder of its own.
struct Project {
    scratch: Scratch,
}

impl Project {
    fn new(files: &[(&str, &str)]) -> Result<Project> {
        tool::expect_built()?;
        let scratch = Scratch::new()?;
        let project = Project { scratch };
        let program = [("t.c", PROGRAM)];
        for (name, text) in program.iter().chain(files) {
            let path = project.path(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, text)?;
        }
        // The names that people have in PATH.
        fs::create_dir(project.path("bin"))?;
        for name in ["brownout", "brownout-valgrind"] {
            symlink(layout::brownout(), project.path("bin").join(name))?;
        }
        Ok(project)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A shell command, with the tool in `PATH`.
    fn shell(&self, command: &str) -> Invocation {
        let bin = self.path("bin");
        let path = env::var("PATH").unwrap_or_default();
        Invocation::shell(command, self.scratch.path())
            .timeout(TIMEOUT)
            .env("PATH", &format!("{}:{DEBIAN}:{path}", bin.display()))
    }

    fn run(&self, command: &str) -> Result<Outcome> {
        self.shell(command).run()
    }

    fn compile(&self) -> Result<()> {
        self.run("gcc -g -O1 -o t t.c")?.expect_success("gcc")?;
        Ok(())
    }

    fn report(&self, name: &str) -> Result<Report> {
        let text = fs::read(self.path(name)).with_context(|| format!("no report {name}"))?;
        Ok(serde_json::from_slice(&text)?)
    }
}

fn said(outcome: &Outcome) -> String {
    let out = String::from_utf8_lossy(&outcome.stdout);
    format!("{out}{}", String::from_utf8_lossy(&outcome.stderr))
}

fn expect_said(outcome: &Outcome, what: &str) -> Result<()> {
    let said = said(outcome);
    ensure!(said.contains(what), "{what:?} is not in\n{said}");
    Ok(())
}

/// The one finding that counts.
fn error(report: &Report) -> Result<&Finding> {
    let mut errors = report.findings.iter().filter(|f| f.rule == "missing-flush");
    match (errors.next(), errors.next()) {
        (Some(one), None) => Ok(one),
        (one, _) => bail!("not one missing-flush: {one:?} and others"),
    }
}

// ---------------------------------------------------------------------- recipes

fn make() -> Result<()> {
    let makefile = "RUN =\ncheck: t\n\t$(RUN) ./t good.pool\n\t$(RUN) ./t bad.pool bad\nt: t.c\n\tgcc -g -O1 -o t t.c\n";
    let project = Project::new(&[("Makefile", makefile)])?;
    project.run("make check")?.expect_success("natively")?;
    let checked = project.run("make check RUN=\"brownout check --pm '*.pool' --\"")?;
    ensure!(checked.status == 2, "make did not fail: {}", said(&checked));
    expect_said(&checked, "error[missing-flush]")?;
    // All processes of one command, in one report.
    let whole =
        project.run("brownout check --pm '*.pool' --format json -o r.json -- make check")?;
    ensure!(whole.status == 1, "{}", said(&whole));
    let report = project.report("r.json")?;
    let origin = error(&report)?.origins.first().context("no origin")?;
    ensure!(
        origin.command == ["./t", "bad.pool", "bad"] && origin.pid.is_some(),
        "{origin:?}"
    );
    Ok(())
}

const CMAKE: &str = "cmake_minimum_required(VERSION 3.16)
project(tiny C)
set(CMAKE_C_FLAGS \"-g -O1\")
include(CTest)
add_executable(t t.c)
add_test(NAME good COMMAND t good.pool)
add_test(NAME bad_one COMMAND t bad.pool bad)
";

fn cmake(options: &str) -> Result<Project> {
    let project = Project::new(&[("CMakeLists.txt", CMAKE)])?;
    let command = format!("cmake -G Ninja -S . -B build {options} && cmake --build build");
    project.run(&command)?.expect_success("cmake")?;
    Ok(project)
}

fn cmake_emulator() -> Result<()> {
    let project = cmake(
        "\"-DCMAKE_CROSSCOMPILING_EMULATOR=brownout;check;--pm;*.pool;--format;json;-o;report.json;--\"",
    )?;
    let tested = project.run("ctest --test-dir build --output-on-failure")?;
    ensure!(tested.status != 0, "{}", said(&tested));
    expect_said(&tested, "50% tests passed, 1 tests failed")?;
    // The last test is the bad one; ctest does not say so, its list of tests does.
    let report = project.report("build/report.json")?;
    let origin = error(&report)?.origins.first().context("no origin")?;
    ensure!(
        origin.test.as_deref() == Some("bad_one") && origin.runner.as_deref() == Some("ctest"),
        "{origin:?}"
    );
    Ok(())
}

fn cmake_memcheck() -> Result<()> {
    let project = cmake(
        "-DMEMORYCHECK_COMMAND=$PWD/bin/brownout-valgrind \"-DMEMORYCHECK_COMMAND_OPTIONS=--pm=*.pool\" \
         -DMEMORYCHECK_SUPPRESSIONS_FILE=$PWD/old.supp",
    )?;
    // A project that was tested with Valgrind until now.
    fs::write(
        project.path("old.supp"),
        "{\n   leaks\n   Memcheck:Leak\n   fun:malloc\n}\n",
    )?;
    let tested = project.run("cd build && VALGRIND_OPTS=--num-callers=3 ctest -T memcheck")?;
    let text = said(&tested);
    ensure!(text.contains("Defects: 1"), "{text}");
    ensure!(text.contains("IPW - 1"), "one defect in all: {text}");
    Ok(())
}

fn cmake_whole_suite() -> Result<()> {
    let project = cmake("")?;
    let whole = project.run(
        "brownout check --pm '*.pool' --format json -o r.json -- ctest --test-dir build -j2",
    )?;
    ensure!(whole.status == 1, "{}", said(&whole));
    let report = project.report("r.json")?;
    let origin = error(&report)?.origins.first().context("no origin")?;
    ensure!(origin.test.as_deref() == Some("bad_one"), "{origin:?}");
    Ok(())
}

fn meson() -> Result<()> {
    let build = "project('tiny', 'c', default_options: ['debug=true', 'optimization=1'])
t = executable('t', 't.c')
test('good', t, args: ['good.pool'])
test('bad', t, args: ['bad.pool', 'bad'])
";
    let project = Project::new(&[("meson.build", build)])?;
    let set_up = project.run("meson setup build && meson compile -C build")?;
    set_up.expect_success("meson")?;
    let tested = project.run(
        "meson test -C build --no-rebuild --print-errorlogs --wrap \"brownout check --pm *.pool --\"",
    )?;
    ensure!(tested.status == 1, "{}", said(&tested));
    for line in ["Ok:                 1", "Fail:               1"] {
        expect_said(&tested, line)?;
    }
    expect_said(&tested, "error[missing-flush]")
}

const RUST: &str = r#"use std::ffi::c_void;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
}

/// Stores to a pool that it makes anew.
pub fn put(name: &str, write_back: bool) {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(name).unwrap();
    file.set_len(4096).unwrap();
    let slots = unsafe { mmap(std::ptr::null_mut(), 4096, 3, 1, file.as_raw_fd(), 0) } as *mut u64;
    unsafe {
        slots.write_volatile(7);
        if write_back {
            std::arch::x86_64::_mm_clflush(slots as *const u8);
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn good() {
        super::put("good.pool", true);
    }

    #[test]
    fn bad() {
        super::put("bad.pool", false);
    }
}
"#;

fn cargo(words: &[&str]) -> Result<()> {
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    let project = Project::new(&[("Cargo.toml", manifest), ("src/lib.rs", RUST)])?;
    let nextest = words.contains(&"nextest");
    let report = "--format json -o $PWD/report.json";
    let command = format!(
        "export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=\"brownout check --pm *.pool --accept unmatched {report} --\"\n{}",
        words.join(" ")
    );
    let tested = project
        .shell(&command)
        .env(
            "CARGO_TARGET_DIR",
            &project.path("target").to_string_lossy(),
        )
        .run()?;
    ensure!(tested.status != 0, "{}", said(&tested));
    // nextest runs each test by itself: the report of the last is there, whichever it is.
    if nextest {
        expect_said(&tested, "1 passed")?;
        return expect_said(&tested, "1 failed");
    }
    let report = project.report("report.json")?;
    let origin = error(&report)?.origins.first().context("no origin")?;
    ensure!(
        origin.test.as_deref() == Some("tests::bad")
            && origin.runner.as_deref() == Some("cargo test"),
        "{origin:?}"
    );
    Ok(())
}

fn pytest() -> Result<()> {
    let tests = "import subprocess\n\ndef test_good():\n    subprocess.run(['./t', 'good.pool'], check=True)\n\n\
                 def test_bad():\n    subprocess.run(['./t', 'bad.pool', 'bad'], check=True)\n";
    let project = Project::new(&[("test_store.py", tests)])?;
    project.compile()?;
    let whole = project.run(
        "brownout check --pm '*.pool' --format json -o r.json -- python3 -m pytest -q -p no:cacheprovider",
    )?;
    ensure!(whole.status == 1, "{}", said(&whole));
    expect_said(&whole, "2 passed")?;
    let report = project.report("r.json")?;
    let origin = error(&report)?.origins.first().context("no origin")?;
    ensure!(
        origin.test.as_deref() == Some("test_store.py::test_bad")
            && origin.runner.as_deref() == Some("pytest"),
        "{origin:?}"
    );
    Ok(())
}

/// Reports of many runs become one, in every form; the same finding is one.
fn merge() -> Result<()> {
    let project = Project::new(&[])?;
    project.compile()?;
    for (name, words) in [("a", "a.pool bad"), ("b", "b.pool bad"), ("c", "c.pool")] {
        let json = format!("--format json -o {name}.json");
        project.run(&format!(
            "brownout check --pm '*.pool' {json} -- ./t {words}"
        ))?;
    }
    let merged = project.run("brownout merge a.json b.json c.json --format json -o all.json")?;
    ensure!(merged.status == 1, "{}", said(&merged));
    let report = project.report("all.json")?;
    let finding = error(&report)?;
    ensure!(
        finding.count == 2 && finding.origins.len() == 2,
        "{finding:?}"
    );
    // A report for each program of a makefile, by the script that the page shows.
    let script = "#!/bin/sh\nexec brownout check --pm '*.pool' --format json -o \"$REPORTS/$$.json\" -- \"$@\"\n";
    fs::write(project.path("bin/each"), script)?;
    let each = project.run(
        "chmod +x bin/each; mkdir reports; export REPORTS=$PWD/reports; each ./t d.pool bad; each ./t e.pool; brownout merge reports/*.json",
    )?;
    ensure!(each.status == 1, "{}", said(&each));
    expect_said(&each, "brownout: 1 correctness")?;
    let fine = project.run("brownout merge c.json")?;
    ensure!(fine.status == 0, "{}", said(&fine));
    let junit = project.run("brownout merge a.json c.json --format junit --suite 'my suite'")?;
    let text = String::from_utf8(junit.stdout.clone())?;
    let xml = roxmltree::Document::parse(&text)?;
    let suite = xml
        .descendants()
        .find(|node| node.has_tag_name("testsuite"))
        .context("no suite")?;
    ensure!(suite.attribute("name") == Some("my suite"), "{text}");
    ensure!(suite.attribute("failures") == Some("1"), "{text}");
    ensure!(suite.attribute("time").is_some(), "{text}");
    let lost = project.run("brownout merge a.json b.json -o a.json --format json")?;
    ensure!(lost.status == 2, "{}", said(&lost));
    expect_said(&lost, "is one of the reports")
}

/// Two stores in one function; each is written back if the version says so.
const VERSIONED: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <immintrin.h>

struct account { uint64_t balance; uint64_t pad[15]; uint64_t valid; uint64_t more[15]; uint64_t end; };

static void persist(void *at)
{
    _mm_clflush(at);
    _mm_sfence();
}

__attribute__((noinline)) static void fill(struct account *account)
{
    account->balance = 100;
    PERSIST_BALANCE
    account->valid = 1;
    PERSIST_VALID
    account->end = 1;
    persist(&account->end);
}

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 9;
    struct account *account = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (account == MAP_FAILED)
        return 9;
    fill(account);
    return 0;
}
"#;

/// One bug is mended and another introduced, of the same rule in the same function, so that both
/// have one fingerprint: the old one is gone and the new one new, in a comparison and against a
/// baseline. An edit elsewhere changes nothing.
fn two_versions_compared() -> Result<()> {
    let project = Project::new(&[])?;
    let (balance, valid) = ("persist(&account->balance);", "persist(&account->valid);");
    let version = |balance: &str, valid: &str| {
        let program = VERSIONED.replace("PERSIST_BALANCE", balance);
        program.replace("PERSIST_VALID", valid)
    };
    let check = |source: String, options: &str| -> Result<Outcome> {
        fs::write(project.path("v.c"), source)?;
        let build = project.run("gcc -g -O1 -o v v.c")?;
        build.expect_success("gcc")?;
        project.run(&format!(
            "brownout check --pm '*.pool' {options} -- ./v v.pool"
        ))
    };
    let compared = |new: &str| {
        project.run(&format!(
            "brownout report --compare old.json {new}.json -o page.html"
        ))
    };

    let old = check(version("", valid), "--format json -o old.json")?;
    ensure!(old.status == 1, "{}", said(&old));
    let swapped = check(version(balance, ""), "--format json -o swapped.json")?;
    ensure!(swapped.status == 1, "{}", said(&swapped));
    let (before, after) = (project.report("old.json")?, project.report("swapped.json")?);
    ensure!(
        error(&before)?.fingerprint == error(&after)?.fingerprint,
        "the test has lost its point"
    );
    let outcome = compared("swapped")?;
    ensure!(outcome.status == 1, "{}", said(&outcome));
    expect_said(
        &outcome,
        "brownout: 1 new (1 of correctness), 1 gone, 0 still there",
    )?;
    let page = fs::read_to_string(project.path("page.html"))?;
    ensure!(
        page.contains("New findings") && page.contains("1 new, 1 gone"),
        "the page"
    );
    let known = check(version(balance, ""), "--baseline old.json")?;
    ensure!(known.status == 1, "{}", said(&known));
    expect_said(&known, "&account->valid")?;

    // The same bug, after other functions have changed and everything has moved.
    let moved = version("", valid)
        .replace(
            "static void persist",
            "/* The line, and what was stored before. */\nstatic void persist",
        )
        .replace(
            "fill(account);",
            "if (account->balance != 3)\n        fill(account);",
        );
    let outcome = check(moved.clone(), "--format json -o moved.json")?;
    ensure!(outcome.status == 1, "{}", said(&outcome));
    let outcome = compared("moved")?;
    ensure!(outcome.status == 0, "{}", said(&outcome));
    expect_said(&outcome, "brownout: 0 new, 0 gone, 1 still there")?;
    let known = check(moved, "--baseline old.json")?;
    ensure!(known.status == 0, "{}", said(&known));
    expect_said(&known, "(1 known)")
}

/// Valgrind's options in front of a program.
fn valgrind_options() -> Result<()> {
    let project = Project::new(&[])?;
    project.compile()?;
    let own = project.run("brownout-valgrind --tool=pmemcheck --pm='*.pool' ./t bad.pool bad")?;
    ensure!(own.status == 0, "the program's own: {}", said(&own));
    expect_said(
        &own,
        "Invalid write of size 8: not safe from a crash: missing-flush",
    )?;
    expect_said(&own, ": put (t.c:")?;
    expect_said(
        &own,
        "ERROR SUMMARY: 1 errors from 1 contexts (suppressed: 0 from 0)",
    )?;
    let counted = project.run(
        "brownout valgrind -q --error-exitcode=42 --log-file=log.%p --gen-suppressions=all --time-stamp=yes --pm='*.pool' ./t bad.pool bad",
    )?;
    ensure!(counted.status == 42, "{}", said(&counted));
    expect_said(&counted, "--time-stamp=yes has no effect")?;
    let log = fs::read_dir(project.scratch.path())?
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with("log."))
        .context("no log")?;
    let log = fs::read_to_string(log.path())?;
    ensure!(
        log.contains("missing-flush") && log.contains("[[suppress"),
        "{log}"
    );
    let quiet = project.run("brownout-valgrind -q --pm='*.pool' ./t good.pool 2>&1")?;
    ensure!(quiet.stdout == b"done\n", "{}", said(&quiet));
    let pmemcheck = project.run(
        "brownout check --compat pmemcheck --error-summary=yes --pm '*.pool' -- ./t good.pool",
    )?;
    ensure!(pmemcheck.status == 0, "{}", said(&pmemcheck));
    expect_said(&pmemcheck, "ERROR SUMMARY: 0 errors")
}

// ---------------------------------------------------------------------- where it is

/// Lines that touch persistent memory, as lcov's own viewer reads them.
fn genhtml() -> Result<()> {
    let project = Project::new(&[])?;
    project.compile()?;
    let line = |text: &str| {
        PROGRAM
            .lines()
            .position(|l| l.contains(text))
            .map_or(0, |n| n + 1)
    };
    let checked =
        project.run("brownout check --pm '*.pool' --coverage pm.info -- ./t good.pool")?;
    ensure!(checked.status == 0, "{}", said(&checked));
    let text = fs::read_to_string(project.path("pm.info"))?;
    for (sort, what) in [
        ("pm_stores", "slot->value = 7"),
        ("pm_flushes", "_mm_clflush"),
        ("pm_fences", "_mm_sfence"),
    ] {
        let section = text
            .split("end_of_record")
            .find(|section| section.contains(&format!("TN:{sort}\n")))
            .with_context(|| format!("no {sort} in\n{text}"))?;
        let expected = format!("\nDA:{},1\n", line(what));
        ensure!(
            section.contains(&expected),
            "{expected:?} is not in {section}"
        );
    }
    // The other way through the program does not write back, and a viewer shows where it could.
    let checked =
        project.run("brownout check --pm '*.pool' --coverage bad.info -- ./t bad.pool bad")?;
    ensure!(checked.status == 1, "{}", said(&checked));
    expect_said(
        &checked,
        "2 lines could write back, fence or call libpmem's functions, and were not seen to",
    )?;
    let text = fs::read_to_string(project.path("bad.info"))?;
    for (sort, what) in [("flushes", "_mm_clflush"), ("fences", "_mm_sfence")] {
        ensure!(times(&text, sort, line(what)) == Some(0), "{what}: {text}");
    }
    let shown =
        project.run("genhtml pm.info -o html && grep -q t.c html/index.html html/*/index.html")?;
    shown.expect_success("genhtml")?;
    Ok(())
}

/// Each run stores once, recovers once, and reads its standard input.
const COUNTED: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <immintrin.h>

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 9;
    volatile uint64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 9;
    if (argc > 2) {
        _mm_clflush((const void *)&words[1]); /* only recovery writes back */
        _mm_sfence(); /* only recovery fences */
        return words[0] > 1; /* recovery reads */
    }
    words[0] = 1; /* each run stores */
    _mm_clflush((const void *)&words[0]); /* each run writes back */
    _mm_sfence();
    if (getchar() == 'x')
        words[8] = 2; /* only some do */
    return 0;
}
"#;

/// How often a line did something, as an lcov file has it.
fn times(lcov: &str, sort: &str, line: usize) -> Option<u64> {
    let mut sections = lcov.split("end_of_record");
    let section = sections.find(|section| section.contains(&format!("TN:pm_{sort}\n")))?;
    let mut counts = section.lines();
    let count = counts.find_map(|text| text.strip_prefix(&format!("DA:{line},")))?;
    count.parse().ok()
}

/// Each run counts, also those of other jobs, of recovery, and of a campaign that is interrupted;
/// lcov's own viewer reads it.
fn coverage_of_every_analysis() -> Result<()> {
    let project = Project::new(&[("c.c", COUNTED), ("in", "a")])?;
    project.run("gcc -g -O1 -o c c.c")?.expect_success("gcc")?;
    let line = |text: &str| {
        let at = COUNTED.lines().position(|line| line.contains(text));
        at.map_or(0, |at| at + 1)
    };
    let (stores, writes_back) = (line("each run stores"), line("each run writes back"));
    let (recovery, some) = (line("recovery reads"), line("only some do"));
    let only = [
        ("flushes", line("only recovery writes back")),
        ("fences", line("only recovery fences")),
    ];
    let counted = |command: &str| -> Result<(String, serde_json::Value)> {
        let _ = fs::remove_file(project.path("c.pool"));
        let options = "--pm '*.pool' --coverage pm.info --format json -o r.json";
        let (analysis, rest) = command.split_once(' ').unwrap_or((command, ""));
        let outcome = project.run(&format!("{analysis} {options} {rest}"))?;
        let text = fs::read_to_string(project.path("pm.info"));
        let text = text.with_context(|| format!("{command}: {}", said(&outcome)))?;
        fs::remove_file(project.path("pm.info"))?;
        fs::write(project.path("all.info"), &text)?;
        project
            .run("genhtml all.info -o html")?
            .expect_success("genhtml")?;
        let report = fs::read(project.path("r.json"))?;
        let report: serde_json::Value = serde_json::from_slice(&report)?;
        Ok((text, report["statistics"].clone()))
    };
    // Options come behind the name of the analysis.
    for name in ["check", "explore", "fuzz", "race", "symex"] {
        let path = project.path(&format!("bin/{name}"));
        fs::write(
            &path,
            format!("#!/bin/sh\nexec brownout --no-config {name} \"$@\"\n"),
        )?;
        project
            .run(&format!("chmod +x {}", path.display()))?
            .expect_success("chmod")?;
    }
    let (text, _) = counted("check --stdin in -- ./c c.pool")?;
    ensure!(times(&text, "stores", stores) == Some(1), "{text}");
    ensure!(times(&text, "flushes", writes_back) == Some(1), "{text}");
    ensure!(times(&text, "stores", some).is_none(), "{text}");
    for (sort, line) in only {
        ensure!(times(&text, sort, line) == Some(0), "{sort}: {text}");
    }
    ensure!(
        !text.contains("recovery") && !text.contains("crashes"),
        "{text}"
    );

    let recover = "--recover './c c.pool recover'";
    for jobs in [1, 2] {
        let (text, _) = counted(&format!(
            "explore --stdin in --jobs {jobs} {recover} -- ./c c.pool"
        ))?;
        ensure!(times(&text, "stores", stores) == Some(1), "{text}");
        ensure!(times(&text, "recovery", recovery) >= Some(2), "{text}");
        ensure!(times(&text, "crashes", writes_back) >= Some(1), "{text}");
        // It was executed, and says so, although the program itself never does it.
        for (sort, line) in only {
            ensure!(times(&text, "recovery", line) >= Some(2), "{sort}: {text}");
            ensure!(times(&text, sort, line).is_none(), "{sort}: {text}");
        }
    }

    let (text, numbers) =
        counted("fuzz --out campaign --seeds in --executions 300 --jobs 2 -- ./c c.pool")?;
    let runs = numbers["executions"].as_u64();
    ensure!(runs >= Some(300), "{numbers}");
    // On what a crash has left, what comes before the input is recovery.
    let both = ["stores", "recovery"].map(|sort| times(&text, sort, stores).unwrap_or(0));
    ensure!(Some(both[0] + both[1]) >= runs, "{runs:?}: {text}");
    // Ctrl-C ends it, and what it has counted is there; going on counts its own runs.
    let (text, numbers) =
        counted("fuzz --out campaign --resume --executions 400 --jobs 1 -- ./c c.pool")?;
    ensure!(
        times(&text, "stores", stores) >= Some(1),
        "{numbers}: {text}"
    );
    let ended = project.run(
        "timeout -s INT 3 brownout fuzz --pm '*.pool' --coverage i.info --out other --seeds in --jobs 2 -- ./c c.pool",
    )?;
    let text = fs::read_to_string(project.path("i.info")).with_context(|| said(&ended))?;
    ensure!(times(&text, "stores", stores) >= Some(1), "{text}");

    let (text, numbers) = counted("symex --stdin-symbolic 1 --jobs 2 -- ./c c.pool")?;
    let paths = numbers["paths"].as_u64();
    ensure!(paths >= Some(2), "{numbers}");
    ensure!(times(&text, "stores", stores) >= paths, "{paths:?}: {text}");
    ensure!(times(&text, "stores", some) >= Some(1), "{text}");

    let (text, _) = counted(&format!(
        "race --stdin in --time 2s --jobs 1 {recover} -- ./c c.pool"
    ))?;
    ensure!(times(&text, "stores", stores) >= Some(1), "{text}");
    Ok(())
}

/// gdb stands in front of the instruction that a finding is about, natively.
fn gdb(stage: &str, line: &str, rule: &str, options: &str) -> Result<()> {
    let project = Project::new(&[])?;
    project.compile()?;
    project.run(&format!(
        "brownout check --pm '*.pool' {options} --format json -o r.json -- ./t bad.pool bad"
    ))?;
    let report = project.report("r.json")?;
    let finding = report.findings.iter().find(|f| f.rule == rule);
    let replay = finding
        .and_then(|f| f.replay.as_ref())
        .context("no token")?;
    fs::write(
        project.path("commands"),
        "frame\ninfo locals\nbacktrace\nquit\n",
    )?;
    let command = format!("brownout replay --yes --gdb {stage} {}", replay.token);
    let debugged = project
        .shell(&command)
        .stdin(&project.path("commands"))
        .run()?;
    expect_said(&debugged, "brownout: stopped where 8 bytes are stored here")?;
    expect_said(&debugged, line)?;
    expect_said(&debugged, "put (slot=")?;
    expect_said(&debugged, "main (argc=3")
}

/// Without `--stdin` neither run has anything to read: not even what gdb's user types.
fn gdb_of_reading() -> Result<()> {
    let ending = "    if (getchar() != EOF)\n        return 3;\n    put(";
    let program = PROGRAM.replacen("    put(", ending, 1);
    let project = Project::new(&[("t.c", &program)])?;
    project.compile()?;
    project.run("brownout check --pm '*.pool' --format json -o r.json -- ./t bad.pool bad")?;
    let report = project.report("r.json")?;
    let replay = error(&report)?.replay.as_ref().context("no token")?;
    fs::write(project.path("commands"), "frame\nquit\n")?;
    let debugged = project
        .shell(&format!(
            "brownout replay --yes --gdb store {}",
            replay.token
        ))
        .stdin(&project.path("commands"))
        .run()?;
    expect_said(&debugged, "brownout: stopped where 8 bytes are stored here")?;
    expect_said(&debugged, "slot->value = 7")
}

/// gdb stands in front of a store that a program with a known bug never writes back.
fn gdb_of_a_seeded_bug() -> Result<()> {
    const NAME: &str = "correctness/data_never_flushed";
    let programs = seeded::discover()?;
    let mut programs = programs.iter();
    let program = programs.find(|program| program.name == NAME);
    let program = program.with_context(|| format!("no {NAME}"))?;
    let bug = program.bugs.first().context("no bug")?;
    let project = Project::new(&[])?;
    let binary = program.binary(Build::Bug);
    project.run(&format!(
        "brownout check --pm pool --format json -o r.json -- {} run pool",
        binary.display()
    ))?;
    let report = project.report("r.json")?;
    let replay = error(&report)?.replay.as_ref().context("no token")?;
    fs::write(project.path("commands"), "backtrace\nprint i\nquit\n")?;
    let debugged = project
        .shell(&format!(
            "brownout replay --yes --gdb store {}",
            replay.token
        ))
        .stdin(&project.path("commands"))
        .run()?;
    expect_said(&debugged, "brownout: stopped where ")?;
    let file = program.source.file_name().context("no name")?;
    let file = file.to_string_lossy();
    let lines = program.lines(bug);
    let text = said(&debugged);
    let is_there = |line: &u32| text.contains(&format!("{file}:{line}"));
    ensure!(
        lines.iter().any(is_there),
        "none of {lines:?} of {file} is in\n{text}"
    );
    // It is the store of the first message, and not of a later one.
    expect_said(&debugged, "$1 = 0")
}

/// Makes a pool, and refuses one that is there; what says that it is valid is persistent before
/// what it says it of.
const REFUSING: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <immintrin.h>

struct pool { uint64_t value; uint64_t pad[7]; uint64_t valid; uint64_t more[7]; uint64_t end; };

static struct pool *map(const char *name, int flags)
{
    int fd = open(name, O_RDWR | flags, 0600);
    if (fd < 0 || (flags != 0 && ftruncate(fd, 4096) != 0))
        _exit(0);
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        _exit(9);
    return pool;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        volatile struct pool *pool = map(argv[1], 0);
        return pool->valid == 1 && pool->value != 7;
    }
    struct pool *pool = map(argv[1], O_CREAT | O_EXCL);
    pool->value = 7; /* forgotten */
    pool->valid = 1;
    _mm_clflush(&pool->valid);
    _mm_sfence();
    pool->end = 1;
    _mm_clflushopt(&pool->end); /* the power fails */
    _mm_sfence();
    return 0;
}
"#;

/// gdb finds the files as the recorded run did, and leaves them so; for findings of `check` and of
/// `explore`.
fn of_refusing(variables: &[(&str, &str)]) -> Result<()> {
    let project = Project::new(&[("x.c", REFUSING)])?;
    project
        .run("gcc -g -O1 -mclflushopt -o x x.c")?
        .expect_success("gcc")?;
    fs::write(project.path("commands"), "frame\nquit\n")?;
    let made = |command: &str| {
        variables
            .iter()
            .fold(project.shell(command), |made, (name, value)| {
                made.env(name, value)
            })
    };
    let shell = |command: &str| -> Result<Outcome> { made(command).run() };
    let pool = project.path("x.pool");
    let stops = |report: &str, rule: &str, stage: &str, line: &str| -> Result<()> {
        let report = project.report(report)?;
        let finding = report.findings.iter().find(|f| f.rule == rule);
        let finding = finding.with_context(|| format!("no {rule} in {report:?}"))?;
        let token = &finding.replay.as_ref().context("no token")?.token;
        let debugged = made(&format!("brownout replay --yes --gdb {stage} {token}"));
        let debugged = debugged.stdin(&project.path("commands")).run()?;
        expect_said(&debugged, "brownout: stopped where ")?;
        expect_said(&debugged, line)?;
        ensure!(!pool.exists(), "{stage} has left the pool");
        Ok(())
    };
    shell("brownout check --pm '*.pool' --format json -o check.json -- ./x x.pool")?;
    // What the first run has made would be in its way.
    fs::remove_file(&pool)?;
    stops("check.json", "missing-flush", "store", "/* forgotten */")?;
    shell(
        "brownout explore --pm '*.pool' --recover './x x.pool check' --format json -o explore.json -- ./x x.pool",
    )?;
    ensure!(!pool.exists(), "explore has left the pool");
    for (stage, line) in [("store", "/* forgotten */"), ("crash", "_mm_")] {
        stops("explore.json", "recovery-error", stage, line)?;
    }
    Ok(())
}

/// A finding of `explore` says which program that the command has started it is about, and which
/// test; of the program itself nothing more is to be said.
fn explore_names_the_test() -> Result<()> {
    let script = "#!/bin/sh\nBROWNOUT_TEST=mine ./x x.pool\n";
    let project = Project::new(&[("x.c", REFUSING), ("all", script)])?;
    project
        .run("gcc -g -O1 -mclflushopt -o x x.c && chmod +x all")?
        .expect_success("gcc")?;
    let explored = |program: &str| -> Result<Finding> {
        project.run(&format!(
            "brownout explore --pm '*.pool' --recover './x x.pool check' --format json -o r.json -- {program}"
        ))?;
        let mut findings = project.report("r.json")?.findings.into_iter();
        let finding = findings.find(|finding| finding.rule == "recovery-error");
        finding.with_context(|| format!("no recovery-error of {program}"))
    };
    let finding = explored("./all")?;
    let [origin] = &finding.origins[..] else {
        bail!("not one origin: {:?}", finding.origins);
    };
    ensure!(origin.test.as_deref() == Some("mine"), "{origin:?}");
    ensure!(origin.command == ["./x", "x.pool"], "{origin:?}");
    let finding = explored("./x x.pool")?;
    ensure!(finding.origins.is_empty(), "{:?}", finding.origins);
    Ok(())
}

/// Which folder or file it is, in the system's words and without its numbers.
fn explore_names_what_cannot_be_made() -> Result<()> {
    let project = Project::new(&[])?;
    project.compile()?;
    for (option, text) in [
        (
            "--folder",
            "cannot make the folder: /dev/null/x: Not a directory\n",
        ),
        (
            "--outcomes",
            "cannot write the outcomes: /dev/null/x: Not a directory\n",
        ),
    ] {
        let outcome = project.run(&format!(
            "brownout explore {option} /dev/null/x --pm '*.pool' -- ./t x.pool"
        ))?;
        ensure!(outcome.status == 3, "{}", outcome.describe());
        expect_said(&outcome, text)?;
    }
    Ok(())
}

/// A program that make has started in another folder is started there in gdb, too.
fn gdb_elsewhere() -> Result<()> {
    let makefile = "check:\n\tcd sub && ../t bad.pool bad\n";
    let project = Project::new(&[("Makefile", makefile), ("sub/empty", "")])?;
    project.compile()?;
    project.run("brownout check --pm '*.pool' --format json -o r.json -- make check")?;
    let report = project.report("r.json")?;
    let finding = error(&report)?;
    let origin = finding.origins.first().context("no origin")?;
    let folder = origin.folder.as_deref().context("no folder")?;
    ensure!(folder.ends_with("/sub"), "{folder}");
    let token = &finding.replay.as_ref().context("no token")?.token;
    fs::write(project.path("commands"), "frame\npwd\nquit\n")?;
    let debugged = project
        .shell(&format!("brownout replay --yes --gdb store {token}"))
        .stdin(&project.path("commands"))
        .run()?;
    expect_said(&debugged, "brownout: stopped where 8 bytes are stored here")?;
    expect_said(&debugged, "slot->value = 7")?;
    expect_said(&debugged, "/sub.")
}

/// gdb runs recovery with its arguments on what the crash has left, and sees how it fails.
fn gdb_in_recovery() -> Result<()> {
    let project = Project::new(&[])?;
    let program = layout::seeded().join("correctness-data_never_flushed-bug");
    symlink(program, project.path("seeded"))?;
    project.run(
        "brownout explore --pm '*.pool' --recover './seeded check x.pool' --format json -o r.json -- ./seeded run x.pool",
    )?;
    let report = project.report("r.json")?;
    let finding = report.findings.first().context("no finding")?;
    let replay = finding.replay.as_ref().context("no token")?;
    fs::write(project.path("commands"), "show args\nquit\n")?;
    let command = format!("brownout replay --yes --gdb recovery {}", replay.token);
    let debugged = project
        .shell(&command)
        .stdin(&project.path("commands"))
        .run()?;
    expect_said(&debugged, "check x.pool < /dev/null")?;
    let native = finding.reproduction.as_ref().context("no reproduction")?;
    let code = native.status.strip_prefix("exit code ").context("a code")?;
    expect_said(&debugged, &format!("exited with code {code:0>2}"))
}

fn gdb_refusals() -> Result<()> {
    let project = Project::new(&[("c.c", COUNTED)])?;
    project.compile()?;
    project.run("brownout check --pm '*.pool' --format json -o r.json -- ./t bad.pool bad")?;
    let report = project.report("r.json")?;
    let token = &error(&report)?.replay.as_ref().context("no token")?.token;
    let recovery = project.run(&format!("brownout replay --yes --gdb recovery {token}"))?;
    ensure!(recovery.status == 2, "{}", said(&recovery));
    expect_said(&recovery, "no crash image")?;
    // Of another analysis, what does show it is said.
    project.run("gcc -g -O1 -o c c.c")?.expect_success("gcc")?;
    project.run(
        "brownout symex --pm '*.pool' --stdin-symbolic 1 --until-found --format json -o s.json -- ./c s.pool",
    )?;
    let report = project.report("s.json")?;
    let solved = report.findings.first().context("no finding of symex")?;
    let solved = &solved.replay.as_ref().context("no token")?.token;
    for stage in ["store", "recovery"] {
        let outcome = project.run(&format!("brownout replay --yes --gdb {stage} {solved}"))?;
        ensure!(outcome.status == 2, "{}", said(&outcome));
        expect_said(&outcome, "without --gdb this one is shown again")?;
    }
    let unknown = project.run(&format!("brownout replay --yes --gdb start {token}"))?;
    ensure!(unknown.status == 2, "{}", said(&unknown));
    Ok(())
}

/// Where a CI service runs it, a run that checked nothing has not passed; every form says the same.
fn in_ci() -> Result<()> {
    let project = Project::new(&[])?;
    let run = |options: &str, ci: &str| {
        let command = format!("brownout check {options} -- true");
        project.shell(&command).env("CI", ci).run()
    };
    for (options, ci, status) in [
        ("", "true", 3),
        ("", "", 0),
        ("", "false", 0),
        ("--fail-on correctness", "true", 0),
        ("--fail-on correctness,nothing-checked", "", 3),
        ("--fail-on never", "true", 0),
    ] {
        let outcome = run(options, ci)?;
        ensure!(
            outcome.status == status,
            "{options:?}, CI={ci:?}: {} and not {status}: {}",
            outcome.status,
            said(&outcome)
        );
    }
    for (ci, fails) in [("true", true), ("", false)] {
        let sarif: serde_json::Value = serde_json::from_slice(&run("--format sarif", ci)?.stdout)?;
        let success = &sarif["runs"][0]["invocations"][0]["executionSuccessful"];
        ensure!(*success == !fails, "CI={ci}: {success}");
        let driver = &sarif["runs"][0]["tool"]["driver"];
        ensure!(driver["informationUri"].is_string(), "{driver}");
        for rule in driver["rules"].as_array().into_iter().flatten() {
            // Microsoft's validator does not care about their cases.
            let text = |field: &str| rule[field].as_str().map(str::to_lowercase);
            ensure!(text("name") != text("id"), "{rule}");
        }
        let junit = String::from_utf8(run("--format junit", ci)?.stdout)?;
        let xml = roxmltree::Document::parse(&junit)?;
        let errors = xml.root_element().attribute("errors");
        ensure!(errors == Some(if fails { "1" } else { "0" }), "{junit}");
        ensure!(
            xml.root_element().attribute("name") == Some("true"),
            "{junit}"
        );
    }
    Ok(())
}
