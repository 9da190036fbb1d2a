//! Crashes in recovery: what the first recovery has not read may decide; and what is not tried
//! because nobody asked for it is said.

use std::fs;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Limit, Verdict};
use brownout_tests::check::{compile, show};
use brownout_tests::explore::{self, Explored};
use brownout_tests::fuzz::{self, Build};
use brownout_tests::{Invocation, Scratch};
use libtest_mimic::Trial;

use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("nested::what_was_overwritten_unread_comes_back", unread),
        trial("nested::some_of_many_recoveries", many),
        trial("nested::only_an_ordinary_file_is_changed", ordinary),
        trial("nested::what_changes_nothing_is_not_cut_short", idle),
    ]
}

fn explored(build: Build, scratch: &Scratch) -> Result<Explored> {
    let folder = scratch.path();
    fs::write(folder.join("commands"), "t 1 2 5\n")?;
    fs::write(folder.join("after"), "p\n")?;
    let program = fuzz::find("repair_twice")?.binary(build);
    let native = Invocation::new([program.as_os_str(), "pool".as_ref()], folder);
    let options = [
        "--pm",
        "pool",
        "--stdin",
        "commands",
        "--recover-stdin",
        "after",
        "--depth",
        "2",
    ];
    explore::run(&native, &options)
}

/// Recovery overwrites two accounts unread. After most first crashes that changes nothing, and it
/// reads the same after all of them; but where a transfer was half done, a second crash leaves it
/// so.
fn unread() -> Result<()> {
    let scratch = Scratch::new()?;
    let found = explored(Build::Bug, &scratch)?;
    found.expect_rule("recovery-error")?;
    let scratch = Scratch::new()?;
    explored(Build::Fixed, &scratch)?
        .expect_clean()
        .context("the twin")
}

/// Keeps a sum of its words, which recovery makes anew with a word of its own that says that it is
/// under way. With `-DBUG` that word survives before anything else, and whoever finds it takes the
/// sum for made.
const SUMS: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 128 };
struct word { _Alignas(64) long value; };
struct pool { struct word words[WORDS], count, sum, made; };

static struct pool *pool;

static void set(struct word *word, long value)
{
    word->value = value;
    _mm_clflush(word);
    _mm_sfence();
}

static long sum(void)
{
    long sum = 0;
    for (long i = 0; i < pool->count.value; i++)
        sum += pool->words[i].value;
    return sum;
}

int main(int argc, char **argv)
{
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (argc < 2 || fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") != 0) {
        for (long i = 0; i < atol(argv[1]); i++) {
            set(&pool->words[i], i + 7);
            set(&pool->count, i + 1);
        }
        return 0;
    }
    if (pool->made.value == 0) {
#ifdef BUG
        set(&pool->made, 1);
        set(&pool->sum, sum());
#else
        set(&pool->sum, sum());
        set(&pool->made, 1);
#endif
    }
    printf("%ld words\n", pool->count.value);
    return pool->sum.value == sum() ? 0 : 1;
}
"#;

/// So many words, without a wish for a depth.
fn sums(words: u32, flags: &[&str], options: &[&str]) -> Result<Explored> {
    let scratch = Scratch::new()?;
    let source = scratch.join("sums.c");
    fs::write(&source, SUMS)?;
    let program = compile(&source, scratch.join("sums"), &[&["-O1"], flags].concat())?;
    let words = words.to_string();
    let native = Invocation::new([program.as_os_str(), words.as_ref()], scratch.path());
    let recover = format!("{} check", program.display());
    explore::run(
        &native,
        &[&["--pm", "pool", "--recover", &recover][..], options].concat(),
    )
}

/// Nothing was found, that counts as success, and it is said that not all crashes in recovery were
/// tried.
fn expect_accepted_depth(explored: &Explored) -> Result<()> {
    explored.expect_clean()?;
    let coverage = &explored.report.coverage;
    ensure!(coverage.accepted() == [Limit::Depth], "{coverage:?}");
    ensure!(explored.report.statistics.get("complete") == Some(&false.into()));
    ensure!(explored.number("depth")? == 1);
    explored.expect_note("--depth 2")
}

/// With few recoveries, all are cut short in turn; with many, some, so that a mistake which each of
/// them makes is found, and silence is not praise.
fn many() -> Result<()> {
    const FEW: u32 = 10;
    const MANY: u32 = 120;
    for words in [FEW, MANY] {
        let found = sums(words, &["-DBUG"], &[])?;
        found
            .expect_rule("recovery-error")
            .with_context(|| format!("{words} words"))?;
    }
    let all = sums(FEW, &[], &[])?;
    all.expect_clean()?;
    ensure!(all.report.coverage.is_exhaustive() && all.number("depth")? == 2);
    let some = sums(MANY, &[], &[])?;
    expect_accepted_depth(&some)?;
    ensure!(some.number("nested_recoveries")? > 5);
    // Which of many, does not depend on what runs side by side.
    let [one, three] = ["1", "3"].map(|jobs| sums(MANY, &[], &["--jobs", jobs]));
    let (one, three) = (one?, three?);
    for name in ["nested_recoveries", "nested_failure_points"] {
        ensure!(
            one.number(name)? == three.number(name)?,
            "{name} depends on the jobs"
        );
    }
    // Who asks for it gets it.
    let asked = sums(MANY, &[], &["--depth", "2"])?;
    asked.expect_clean()?;
    ensure!(asked.report.coverage.is_exhaustive() && asked.number("depth")? == 2);
    Ok(())
}

/// A recovery that only looks leaves the crash state as it was, so it is run once and not recorded.
/// One that makes a file and takes it away again, while it looks, is another matter.
fn idle() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = scratch.join("sums.c");
    fs::write(&source, SUMS)?;
    let program = compile(&source, scratch.join("sums"), &["-O1"])?;
    let native = Invocation::new([program.as_os_str(), "4".as_ref()], scratch.path());
    let explored = |recover: &str| {
        let options = ["--pm", "pool", "--recover", recover, "--depth", "2"];
        explore::run(&native, &options)
    };
    let looks = explored("cat pool > /dev/null; [ ! -e lock ]")?;
    looks.expect_clean()?;
    ensure!(looks.report.coverage.is_exhaustive() && looks.number("depth")? == 2);
    ensure!(looks.number("nested_recoveries")? == 0);
    let locks = explored("[ ! -e lock ] && : > lock && cat pool > /dev/null && rm lock")?;
    locks.expect_rule("recovery-error")?;
    ensure!(locks.number("nested_failure_points")? > 0);
    Ok(())
}

/// Recovery leaves persistent memory as it is, and begins a file of its own that it takes for whole
/// if it is there.
fn ordinary() -> Result<()> {
    let scratch = Scratch::new()?;
    let source = scratch.join("sums.c");
    fs::write(&source, SUMS)?;
    let program = compile(&source, scratch.join("sums"), &["-O1"])?;
    let native = Invocation::new([program.as_os_str(), "2".as_ref()], scratch.path());
    let recover = |makes: &str| {
        format!("cat pool > /dev/null; [ -e log ] || {{ {makes}; }}; grep -q end log")
    };
    let explored = |recover: &str| {
        let options = ["--pm", "pool", "--recover", recover];
        explore::run(&native, &options)
    };
    let found = explored(&recover("echo begin > log; echo end >> log"))?;
    found.expect_rule("recovery-error")?;
    let made = "echo end > new; sync; mv new log";
    let clean = explored(&recover(made))?;
    ensure!(
        clean.report.verdict == Verdict::Clean,
        "{}",
        show(&clean.report)
    );
    Ok(())
}
