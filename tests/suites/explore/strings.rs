//! String instructions are one store for each element, in the order of the direction flag: what
//! relies on another order, or on their being one store, is found; what relies on this one is not
//! reported.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::check::compile;
use brownout_tests::explore;
use brownout_tests::{Invocation, Scratch, tool};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

/// `run` stores to an existing pool in one of several ways, `check` says whether what is there is
/// one of two whole states.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* All in one line: what is stored first is never missing if what is stored later is there. */
struct pool { uint64_t low, high; };

static void copy_words(struct pool *to, const struct pool *from, int down)
{
    const uint64_t *si = down ? &from->high : &from->low;
    uint64_t *di = down ? &to->high : &to->low;
    uint64_t n = 2;
    if (down)
        __asm__ volatile("std\n rep movsq\n cld" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
    else
        __asm__ volatile("rep movsq" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
}

int main(int argc, char **argv)
{
    int fd = open(argv[2], O_RDWR);
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const char *how = argc > 3 ? argv[3] : "";
    const uint64_t all = 0x0101010101010101;
    struct pool both = {all, all};
    if (pool == MAP_FAILED)
        return 9;
    if (strcmp(argv[1], "run") == 0) {
        const void *si = &both;
        void *di = pool;
        uint64_t n = 8;
        if (strcmp(how, "bytes") == 0)
            __asm__ volatile("rep movsb" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
        else if (strcmp(how, "word") == 0)
            *(volatile uint64_t *)&pool->low = all;
        else
            copy_words(pool, &both, strcmp(how, "down") == 0);
        _mm_clflush(pool);
        _mm_sfence();
        return 0;
    }
    if (pool->low != 0 && pool->low != all)
        return 1; /* torn */
    if (strcmp(how, "high-first") == 0 && pool->low != 0 && pool->high == 0)
        return 1;
    if (strcmp(how, "low-first") == 0 && pool->high != 0 && pool->low == 0)
        return 1;
    return 0;
}
"#;

pub fn trials() -> Vec<Trial> {
    [
        ("bytes_are_torn", "bytes", "", true),
        ("a_word_is_not", "word", "", false),
        ("upwards_as_expected", "up", "low-first", false),
        ("upwards_the_wrong_way_round", "up", "high-first", true),
        ("downwards_as_expected", "down", "high-first", false),
        ("downwards_the_wrong_way_round", "down", "low-first", true),
    ]
    .into_iter()
    .map(|(name, how, expects, is_wrong)| {
        trial(format!("strings::{name}"), move || {
            strings(how, expects, is_wrong)
        })
    })
    .collect()
}

fn strings(how: &str, expects: &str, is_wrong: bool) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let source = scratch.join("program.c");
    fs::write(&source, PROGRAM)?;
    let program = compile(&source, scratch.join("program"), &["-O1"])?;
    let program = program.display();
    fs::write(scratch.join("pool"), [0; 4096])?;
    let argv = [&program.to_string(), "run", "pool", how].map(String::from);
    let native = Invocation::new(argv, scratch.path()).timeout(TIMEOUT);
    let recover = format!("{program} check pool {expects}");
    let explored = explore::run(&native, &["--pm", "*pool", "--recover", &recover])?;
    ensure!(explored.number("failure_points")? > 0, "no crash was tried");
    match is_wrong {
        true => explored.expect_findings(),
        false => explored.expect_clean(),
    }
}
