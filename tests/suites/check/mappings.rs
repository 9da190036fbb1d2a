//! What a mapping leaves behind can still be made persistent: through the next mapping, or by the
//! file's descriptor.

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Scratch, check, trial};
use libtest_mimic::Trial;

use super::TIMEOUT;
use super::modules::compile;

/// Stores through a mapping, gives it up, and goes on as its third argument says.
const GROWS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define SIZE 8192
static volatile char *map(int fd, int size)
{
    return mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    const char *then = argv[2];
    if (argc != 3 || ftruncate(fd, 2 * SIZE) != 0)
        return 2;
    volatile char *pm = map(fd, SIZE);
    pm[100] = 1;
    if (!strcmp(then, "moved-flushed")) {
        pm = mremap((void *)pm, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    } else if (!strcmp(then, "over-flushed")) {
        pm = mmap((void *)pm, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    } else {
        munmap((void *)pm, SIZE);
        pm = 0;
    }
    if (!strcmp(then, "mapped-synced") || !strcmp(then, "mapped-flushed") || !strcmp(then, "mapped-forgotten"))
        pm = map(fd, 2 * SIZE);
    if (strstr(then, "flushed")) {
        _mm_clflush((void *)(pm + 100));
        _mm_sfence();
    }
    if (!strcmp(then, "mapped-synced"))
        msync((void *)pm, 2 * SIZE, MS_SYNC);
    if (!strcmp(then, "synced"))
        fsync(fd);
    if (!strcmp(then, "killed"))
        raise(SIGKILL);
    return 0;
}
"#;

/// What the program does next, the domain, and the text of the last event of the only finding, if
/// there is one.
const CASES: &[(&str, &str, Option<&str>)] = &[
    ("mapped-flushed", "x86", None),
    ("moved-flushed", "x86", None),
    ("over-flushed", "x86", None),
    ("mapped-synced", "x86", None),
    ("mapped-synced", "page", None),
    ("synced", "page", None),
    ("killed", "page", None),
    ("nothing", "x86", Some("the region is unmapped here")),
    ("nothing", "page", Some("the region is unmapped here")),
    ("killed", "x86", Some("the region is unmapped here")),
    ("mapped-forgotten", "x86", Some("the program ends")),
    ("mapped-forgotten", "page", Some("the program ends")),
];

pub fn trials() -> Vec<Trial> {
    vec![trial("mappings::unmapped", unmapped)]
}

fn unmapped() -> Result<()> {
    let scratch = Scratch::new()?;
    compile(&scratch, GROWS, "grows", &[])?;
    for (number, (then, domain, wanted)) in CASES.iter().enumerate() {
        let pool = format!("{number}.pm");
        let native = Invocation::new(["./grows", &pool, then], scratch.path()).timeout(TIMEOUT);
        let checked = check::run(&native, &["--pm", "*.pm", "--domain", domain])
            .with_context(|| format!("{then} in {domain}"))?;
        let found: Vec<&str> = checked
            .report
            .findings
            .iter()
            .filter(|finding| finding.rule == "missing-flush")
            .filter_map(|finding| Some(finding.events.last()?.text.as_str()))
            .collect();
        let wanted: Vec<&str> = wanted.iter().copied().collect();
        ensure!(found == wanted, "{then} in {domain}: {found:?}");
    }
    Ok(())
}
