//! A verdict never says more than was looked at: what is left out is said, and is no success.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Limit, Verdict};
use brownout_tests::check::{compile, show};
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

/// Stores sixteen lines without writing them back, then a flag with it. What recovery makes of the
/// lines is the macro's.
const LINES: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINES = 16 };
struct line { _Alignas(64) uint64_t word; };
struct pool { struct line lines[LINES]; struct line valid; };

static struct pool *pool;

static void persist(void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

static void *worker(void *unused)
{
    (void)unused;
    pool->lines[1].word = 2;
    persist(&pool->lines[1]);
    return NULL;
}

static int is_there(int i)
{
    return *(volatile uint64_t *)&pool->lines[i].word == (uint64_t)i + 1;
}

int main(int argc, char **argv)
{
    (void)argc;
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "threads") == 0) {
        pthread_t thread;
        pool->lines[0].word = 1;
        persist(&pool->lines[0]);
        if (pthread_create(&thread, NULL, worker, NULL) != 0)
            return 2;
        pool->lines[2].word = 3;
        persist(&pool->lines[2]);
        pthread_join(thread, NULL);
        return 0;
    }
    if (strcmp(argv[1], "killed") == 0) {
        pool->lines[0].word = 1;
        persist(&pool->lines[0]);
        raise(SIGSEGV);
    }
    if (strcmp(argv[1], "look") == 0)
        return 0;
    if (strcmp(argv[1], "die") == 0)
        raise(SIGSEGV);
    if (strcmp(argv[1], "stops") == 0) {
        for (int i = 0; pool->valid.word && i < LINES && is_there(i); i++) { }
        return 0;
    }
    if (strcmp(argv[1], "one") == 0 || strcmp(argv[1], "six") == 0) {
        int there = 0, lost = strcmp(argv[1], "one") == 0 ? 1 : 6;
        for (int i = 0; pool->valid.word && i < LINES; i++)
            there += is_there(i);
        if (there != LINES - lost)
            return 0;
        for (int i = 9; i < 9 + lost; i++)
            if (is_there(i))
                return 0;
        return 1;
    }
    for (int i = 0; i < LINES; i++)
        pool->lines[i].word = i + 1;
    pool->valid.word = 1;
    persist(&pool->valid);
    return 0;
}
"#;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("coverage::sampled", sampled),
        trial("coverage::checksummed", checksummed),
        trial("coverage::attributes", attributes),
        trial("coverage::few_ways_are_no_sample", few_ways),
        trial("coverage::one_lost_line_of_many", one_lost_line),
        trial("coverage::nothing_sampled_is_harmless", nothing_is_harmless),
        trial("coverage::one_interleaving", one_interleaving),
        trial("coverage::killed_run", killed_run),
        trial("coverage::dies_with_nothing_lost", dies_with_nothing_lost),
        trial("coverage::unmatched_pattern", unmatched_pattern),
        trial("coverage::recovery_that_does_not_look", does_not_look),
        trial("coverage::time_bounds_everything", time_bounds_everything),
        trial("coverage::suppressed_is_not_looked_at", suppressed),
    ]
}

fn program(scratch: &Scratch) -> Result<PathBuf> {
    let file = scratch.join("lines.c");
    fs::write(&file, LINES)?;
    compile(&file, scratch.join("lines"), &["-O1", "-pthread"])
}

/// Explores `PROGRAM MODE pool`, with `PROGRAM RECOVER pool` as recovery.
fn explored(program: &Path, mode: &str, recover: &str, more: &[&str]) -> Result<Explored> {
    let folder = program.parent().context("it is in a folder")?;
    let words = [program.as_os_str(), mode.as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, folder).timeout(TIMEOUT);
    let recover = format!("{} {recover} pool", program.display());
    let mut options = vec!["--pm", "pool", "--recover", &recover, "--depth", "1"];
    options.extend(more);
    explore::run(&native, &options)
}

fn expect_incomplete(explored: &Explored, limits: &[Limit]) -> Result<()> {
    ensure!(
        explored.report.verdict == Verdict::Incomplete && explored.report.findings.is_empty(),
        "{}",
        show(&explored.report)
    );
    ensure!(explored.report.statistics.get("complete") != Some(&true.into()));
    explored.expect_limits(limits)?;
    explored.expect_status(3)
}

/// Only the loss of six certain lines breaks recovery: no sample shows that, so there is no praise.
fn sampled() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let part = explored(&program, "run", "six", &[])?;
    expect_incomplete(&part, &[Limit::Sampled])?;
    // Who knows that, and can live with it, says so.
    let accepted = explored(&program, "run", "six", &["--accept", "time,sampled"])?;
    accepted.expect_clean()?;
    ensure!(accepted.report.coverage.accepted() == [Limit::Sampled]);
    let other = explored(&program, "run", "six", &["--accept", "interleaving"])?;
    expect_incomplete(&other, &[Limit::Sampled])
}

/// Forty words with their sum in front, in no order. Recovery believes them if the sum is right; or
/// if any but some rare ones are there, whether it has looked at the sum or not.
const SUMMED: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 40 };

static uint64_t fletcher(const uint64_t *words)
{
    uint32_t low = 0, high = 0;
    for (int i = 0; i < WORDS; i++) {
        uint64_t word = i == 0 ? 0 : words[i];
        low += (uint32_t)word;
        high += low;
        low += (uint32_t)(word >> 32);
        high += low;
    }
    return (uint64_t)high << 32 | low;
}

int main(int argc, char **argv)
{
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (argc < 2 || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    uint64_t *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    uint64_t words[WORDS];
    if (strcmp(argv[1], "run") == 0) {
        for (uint64_t i = 1; i < WORDS; i++)
            words[i] = i * 0x9e3779b97f4a7c15;
        words[0] = fletcher(words);
        for (int i = 0; i < WORDS; i++)
            _mm_stream_si64((long long *)&pool[i], (long long)words[i]);
        _mm_sfence();
        return 0;
    }
    int first = strcmp(argv[1], "blind") == 0;
    for (int i = first; i < WORDS; i++)
        words[i] = *(volatile uint64_t *)&pool[i];
    if (strcmp(argv[1], "verify") == 0)
        return words[0] != 0 && fletcher(words) == words[0] && words[1] == 0;
    int there = 0;
    for (int i = 1; i < WORDS; i++)
        there += words[i] != 0;
    return there == WORDS - 7 && !words[3] && !words[9] && !words[21] && !words[22] && !words[38];
}
"#;

/// What a checksum is believed to reject is not tried in full, and that is said. Who has not looked
/// at the sum is not believed to verify it.
fn checksummed() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.join("summed.c");
    fs::write(&file, SUMMED)?;
    let program = compile(&file, scratch.join("summed"), &["-O1"])?;
    for recover in ["verify", "rare"] {
        let most = explored(&program, "run", recover, &[])?;
        most.expect_clean()?;
        let accepted = most.report.coverage.accepted();
        ensure!(accepted == [Limit::Checksummed], "{recover}: {accepted:?}");
        ensure!(most.report.statistics.get("complete") == Some(&false.into()));
    }
    let part = explored(&program, "run", "blind", &[])?;
    expect_incomplete(&part, &[Limit::Sampled])
}

/// Permissions are not part of the crash states; that is said if they are changed, of files that
/// matter, and is no reason to fail.
fn attributes() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let recover = format!("{} look pool", program.display());
    for (also, accepted) in [
        ("chmod 640 pool", &[Limit::Unsupported][..]),
        ("chmod 640 other", &[]),
    ] {
        fs::write(scratch.join("other"), "")?;
        let script = format!("{} run pool; {also}", program.display());
        let native = Invocation::shell(&script, scratch.path()).timeout(TIMEOUT);
        let options = ["--pm", "pool", "--recover", &recover, "--depth", "1"];
        let explored = explore::run(&native, &options)?;
        explored.expect_clean()?;
        ensure!(
            explored.report.coverage.accepted() == accepted,
            "{also}: {:?}",
            explored.report.coverage
        );
    }
    Ok(())
}

/// Recovery stops at the first line that is missing: sixteen lines, but only eighteen ways.
fn few_ways() -> Result<()> {
    let scratch = Scratch::new()?;
    let all = explored(&program(&scratch)?, "run", "stops", &[])?;
    all.expect_clean()?;
    ensure!(all.number("sampled_reads")? == 0);
    ensure!(all.number("distinct_recoveries")? >= 17);
    Ok(())
}

/// What differs in one place is tried before anything else.
fn one_lost_line() -> Result<()> {
    let scratch = Scratch::new()?;
    let found = explored(&program(&scratch)?, "run", "one", &[])?;
    found.expect_rule("recovery-error")?;
    ensure!(found.report.verdict == Verdict::Findings);
    found.expect_limits(&[Limit::Sampled])?;
    found.expect_status(1)
}

/// A real missing flush is not called harmless because no sample shows what it does.
fn nothing_is_harmless() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let recover = format!("{} six pool", program.display());
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    let options = ["--pm", "pool", "--confirm", "--recover", &recover];
    let options = [&options[..], &["--accept", "sampled"]].concat();
    let checked = check::run(&native, &options)?;
    let lost: Vec<_> = checked
        .report
        .findings
        .iter()
        .filter(|finding| finding.rule == "missing-flush")
        .collect();
    ensure!(!lost.is_empty(), "{}", show(&checked.report));
    for finding in lost {
        ensure!(
            finding
                .notes
                .iter()
                .any(|note| note.starts_with("unsettled: ")),
            "{}",
            show(&checked.report)
        );
    }
    Ok(())
}

fn one_interleaving() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let one = explored(&program, "threads", "look", &[])?;
    expect_incomplete(&one, &[Limit::Interleaving])?;
    let accepted = ["--accept", "interleaving"];
    explored(&program, "threads", "look", &accepted)?.expect_clean()
}

/// It did something, and what it would have done is unknown.
fn killed_run() -> Result<()> {
    let scratch = Scratch::new()?;
    let part = explored(&program(&scratch)?, "killed", "look", &[])?;
    expect_incomplete(&part, &[Limit::Killed])?;
    part.expect_note("killed by SIGSEGV")
}

/// A recovery that is killed although nothing is lost is found, also through a shell.
fn dies_with_nothing_lost() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    for recover in [
        format!("{} die pool", program.display()),
        format!("{} die pool; exit $?", program.display()),
    ] {
        let options = ["--pm", "pool", "--recover", &recover, "--depth", "1"];
        let found = explore::run(&native, &options)?;
        found.expect_rule("recovery-crash").context(recover)?;
        found.expect_status(1)?;
    }
    // One of several processes: nobody waits for it to end well.
    let recover = format!("{} die pool; true", program.display());
    let options = ["--pm", "pool", "--recover", &recover, "--depth", "1"];
    let silent = explore::run(&native, &options)?;
    silent.expect_note("killed by SIGSEGV")
}

/// A recovery that never looks at the run's files (it names another one) ends well after every
/// crash. That praises nothing, and what is lost is not harmless.
fn does_not_look() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    fs::write(scratch.join("other"), [0; 4096])?;
    for recover in [
        "true".to_owned(),
        "cat other".to_owned(),
        format!("{} stops other", program.display()),
    ] {
        let options = ["--pm", "pool", "--recover", &recover];
        let explored = explore::run(&native, &options)?;
        ensure!(
            explored.report.verdict == Verdict::Incomplete,
            "{recover}: {}",
            show(&explored.report)
        );
        let coverage = &explored.report.coverage;
        ensure!(coverage.has(Limit::Unjudged), "{coverage:?}");
        explored.expect_status(3)?;
        let options = ["--confirm", "--pm", "pool", "--recover", &recover];
        let confirmed = check::command(&native, &options).run()?;
        let said = String::from_utf8_lossy(&confirmed.stdout).into_owned();
        ensure!(
            confirmed.status == 1 && !said.contains("harmless"),
            "{recover}: {said}"
        );
    }
    // One that looks at the file through something else does look.
    for recover in ["cat < pool", "cp pool other; cat other"] {
        let explored = explore::run(&native, &["--pm", "pool", "--recover", recover])?;
        let coverage = &explored.report.coverage;
        ensure!(!coverage.has(Limit::Unjudged), "{recover}: {coverage:?}");
    }
    Ok(())
}

fn unmatched_pattern() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    let missed = explore::run(&native, &["--pm", "poool"])?;
    ensure!(missed.report.verdict == Verdict::NothingChecked);
    missed.expect_note("--pm")?;
    missed.expect_note(&scratch.join("pool").to_string_lossy())?;
    missed.expect_status(3)
}

/// Whatever takes too long: there is a report, and it says so.
fn time_bounds_everything() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let sleeps = "sleep 1000";
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let quick = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    let slow = Invocation::new(["sleep", "1000"], scratch.path()).timeout(TIMEOUT);
    let recover = format!("{} look pool", program.display());
    for (native, options) in [
        (&quick, ["--setup", sleeps]),
        (&slow, ["--recover", recover.as_str()]),
        (&quick, ["--recover", sleeps]),
    ] {
        let options = [&options[..], &["--pm", "pool", "--time", "1s"]].concat();
        let part = explore::run(native, &options).with_context(|| format!("{options:?}"))?;
        ensure!(part.report.verdict == Verdict::Incomplete, "{options:?}");
        part.expect_limits(&[Limit::Time])?;
        part.expect_status(3)?;
        ensure!(
            !scratch.join("pool").exists(),
            "{options:?}: a pool is left"
        );
    }
    Ok(())
}

/// What was found is suppressed; that does not make the rest looked at.
fn suppressed() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program(&scratch)?;
    let known = scratch.join("known.toml");
    let known = known.to_string_lossy();
    explored(&program, "run", "one", &["--gen-suppressions", &known])?.expect_status(1)?;
    let silent = explored(&program, "run", "one", &["--suppressions", &known])?;
    expect_incomplete(&silent, &[Limit::Sampled])
}
