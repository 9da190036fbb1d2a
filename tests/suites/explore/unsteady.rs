//! Recoveries whose reads are no simple function of what they have read: their length depends on
//! the content, threads take turns, chance decides what is looked at first. They are explored to
//! the end all the same, and what is wrong is found.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_findings::Limit;
use brownout_tests::check::{compile, show};
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, tool};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A text that is replaced by longer ones, and numbers with their count. Recovery looks at them in
/// the way that it is told.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { NUMBERS = 6 };
struct pool {
    _Alignas(64) char text[64];
    _Alignas(64) char copy[64];
    struct { _Alignas(64) long number; } slots[NUMBERS];
    _Alignas(64) long count;
};

static struct pool *pool;

static void persist(void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

/* Word by word, so that it may be torn. */
static void set(char *to, const char *text)
{
    char buffer[64] = { 0 };
    strncpy(buffer, text, 63);
    for (int i = 0; i < 8; i++)
        ((volatile uint64_t *)to)[i] = ((uint64_t *)buffer)[i];
    persist(to);
}

static size_t scan(const char *text)
{
    size_t left = 64;
    const char *at = text;
    __asm__ volatile("repne scasb" : "+D"(at), "+c"(left) : "a"(0) : "cc", "memory");
    return 63 - left;
}

static size_t compare(const char *a, const char *b)
{
    size_t left = 64;
    __asm__ volatile("repe cmpsb" : "+S"(a), "+D"(b), "+c"(left) : : "cc", "memory");
    return 63 - left;
}

static long sum_of(int from, int step)
{
    long sum = 0;
    for (long i = from; i < pool->count; i += step) {
        sum += pool->slots[i].number;
        usleep(200);
    }
    return sum;
}

static void *odd(void *sum)
{
    *(long *)sum = sum_of(1, 2);
    return NULL;
}

static void *even(void *sum)
{
    *(long *)sum = sum_of(0, 2);
    return NULL;
}

static int wrong_sum(long sum)
{
    long count = pool->count;
    printf("%ld numbers\n", count);
    return sum != count * (count + 1) / 2;
}

static int check(const char *how)
{
    if (strcmp(how, "scan") == 0) {
        size_t length = scan(pool->text);
        printf("%zu\n", length);
        /* The second word of a text without its first. */
        return memchr("\x00\x05\x08\x0b\x10\x14", (int)length, 6) == NULL;
    }
    if (strcmp(how, "compare") == 0) {
        printf("%zu\n", compare(pool->text, pool->copy));
        return 0;
    }
    if (strcmp(how, "path") == 0) {
        printf("%d\n", access(pool->text, F_OK) == 0 ? 0 : errno);
        return 0;
    }
    if (strcmp(how, "threads") == 0) {
        pthread_t threads[2];
        long sums[2];
        pthread_create(&threads[0], NULL, even, &sums[0]);
        pthread_create(&threads[1], NULL, odd, &sums[1]);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        return wrong_sum(sums[0] + sums[1]);
    }
    unsigned char start = 0;
    if (strcmp(how, "getrandom") == 0)
        start = getrandom(&start, 1, 0) == 1 ? start : 0;
    if (strcmp(how, "urandom") == 0) {
        int fd = open("/dev/urandom", O_RDONLY);
        start = read(fd, &start, 1) == 1 ? start : 0;
        close(fd);
    }
    if (strcmp(how, "address") == 0)
        start = (uintptr_t)malloc(1) >> 12;
    if (strcmp(how, "cycles") == 0)
        start = __builtin_ia32_rdtsc() >> 4;
    if (strcmp(how, "clock") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        start = now.tv_nsec >> 4;
    }
    long sum = 0;
    for (long i = 0; i < NUMBERS; i++) {
        long at = (start + i) % NUMBERS;
        long number = pool->slots[at].number;
        sum += at < pool->count ? number : 0;
    }
    return wrong_sum(sum);
}

int main(int argc, char **argv)
{
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED || argc < 2)
        return 2;
    if (strcmp(argv[1], "check") == 0)
        return check(argv[2]);
    int is_wrong = strcmp(argv[1], "wrong") == 0;
    set(pool->copy, "abcdefghijklmnopqrst");
    set(pool->text, "abcde");
    set(pool->text, is_wrong ? "abc" : "abcdefghijk");
    set(pool->text, is_wrong ? "abcdefghijk" : "abcdefghijklmnopqrst");
    for (long i = 0; i < NUMBERS; i++) {
        pool->slots[i].number = i + 1;
        if (!is_wrong)
            persist(&pool->slots[i]);
        pool->count = i + 1;
        persist(&pool->count);
        if (is_wrong)
            persist(&pool->slots[i]);
    }
    return 0;
}
"#;

pub fn trials() -> Vec<Trial> {
    let ways = [
        "scan",
        "compare",
        "path",
        "threads",
        "getrandom",
        "urandom",
        "address",
        "cycles",
        "clock",
    ];
    let mut trials = Vec::new();
    for how in ways {
        trials.push(trial(format!("unsteady::right::{how}"), move || right(how)));
        if !["compare", "path"].contains(&how) {
            trials.push(trial(format!("unsteady::wrong::{how}"), move || wrong(how)));
        }
    }
    trials.push(trial("unsteady::turns", turns));
    trials
}

fn explored(mode: &str, how: &str) -> Result<Explored> {
    explored_with(mode, how, &[])
}

fn explored_with(mode: &str, how: &str, options: &[&str]) -> Result<Explored> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let source = scratch.join("program.c");
    std::fs::write(&source, PROGRAM)?;
    let flags = ["-g", "-O1", "-pthread"];
    let program: PathBuf = compile(&source, scratch.join("program"), &flags)?;
    let recover = format!("{} check {how}", program.display());
    let native =
        Invocation::new([program.as_os_str(), mode.as_ref()], scratch.path()).timeout(TIMEOUT);
    let mut all = vec!["--pm", "pool", "--recover", &recover];
    all.extend(options);
    explore::run(&native, &all)
}

fn right(how: &str) -> Result<()> {
    let explored = explored("right", how)?;
    explored.expect_clean()?;
    // Nothing, and each text and number of numbers, whole and torn.
    let outcomes = explored.number("distinct_outcomes")?;
    // That threads, or chance, have decided is no reason to fail, but not all that they might
    // decide was looked at.
    let accepted = explored.report.coverage.accepted();
    let is_told = accepted.contains(&Limit::Nondeterministic);
    ensure!(
        is_told == (explored.number("unsteady")? > 0),
        "{accepted:?}"
    );
    ensure!(accepted.contains(&Limit::Interleaving) == (how == "threads"));
    let least = match how {
        "scan" | "compare" => 6,
        "path" => 1,
        _ => 7,
    };
    ensure!(
        outcomes >= least,
        "{outcomes} outcomes\n{}",
        show(&explored.report)
    );
    Ok(())
}

fn wrong(how: &str) -> Result<()> {
    let explored = explored("wrong", how)?;
    explored.expect_findings()?;
    explored.expect_rule("recovery-error")
}

/// Threads of a recovery that take turns read in the same order each time.
fn turns() -> Result<()> {
    let options = ["--schedule", "random:1", "--self-test", "20"];
    let explored = explored_with("right", "threads", &options)?;
    explored.expect_clean()?;
    explored.expect_note("the same each time")?;
    ensure!(explored.number("unsteady")? == 0);
    ensure!(explored.report.coverage.accepted() == [Limit::Interleaving]);
    let explored = explored_with("wrong", "threads", &options)?;
    explored.expect_rule("recovery-error")?;
    // One thread needs no turns, and is not told about.
    let explored = explored_with("right", "scan", &options)?;
    explored.expect_clean()?;
    let coverage = &explored.report.coverage;
    ensure!(!coverage.has(Limit::Interleaving), "{coverage:?}");
    Ok(())
}
