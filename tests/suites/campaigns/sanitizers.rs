//! Programs that were built with sanitizers: what these report is what is found.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use brownout_fuzz::Kept;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::Scene;

pub fn trials() -> Vec<Trial> {
    let address = ["-fsanitize=address"];
    let undefined = [
        "-fsanitize=signed-integer-overflow",
        "-fno-sanitize-recover=all",
    ];
    let goes_on = ["-fsanitize=signed-integer-overflow"];
    vec![
        trial("sanitizers::address", move || {
            finds(&address, "", "AddressSanitizer: heap-buffer-overflow", 21)
        }),
        trial("sanitizers::undefined", move || {
            finds(&undefined, "", "signed integer overflow", 24)
        }),
        trial("sanitizers::undefined_that_goes_on", move || {
            finds(&goes_on, "print_summary=1", "signed integer overflow", 24)
        }),
    ]
}

const PROGRAM: &str = r#"#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, 4096) != 0)
        return 2;
    long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        volatile int n = atoi(line + 1) & 15;
        pm[0]++;
        __builtin_ia32_clflush(pm);
        __builtin_ia32_sfence();
        if (line[0] == 'h') {
            char *p = malloc(8);
            p[n] = 1;
            free(p);
        } else if (line[0] == 'o') {
            n = INT_MAX - 5 + n;
        }
        printf("%d\n", n);
    }
    return 0;
}
"#;

fn finds(flags: &[&str], options: &str, message: &str, line: u32) -> Result<()> {
    let scene = Scene::with_source(PROGRAM, flags, "h 1\no 1\n")?;
    let campaign = [
        "--out",
        "out",
        "--executions",
        "400",
        "--explore-share",
        "0",
        "--until-found",
    ];
    let all = [&campaign[..], &["--format", "json", "-o", "report.json"]].concat();
    let mut invocation = scene.invocation(scene.words(&all));
    if !options.is_empty() {
        invocation = invocation.env("UBSAN_OPTIONS", options);
    }
    let ended = invocation.run()?;
    ensure!(ended.status == 1, "{}", ended.describe());
    let kept = Kept::look(&scene.path("out"))?;
    let is_it = |found: &&brownout_fuzz::Found| found.finding.message.contains(message);
    let found = kept.found.values().find(is_it);
    let found = found.with_context(|| format!("{:#?}", kept.found))?;
    ensure!(
        found.finding.rule == "crash" && !found.by_seed,
        "{found:#?}"
    );
    let top = found.finding.events[0].stack.first().context("no stack")?;
    ensure!(top.line == Some(line), "{top:?}");
    let alike = kept.found.values().filter(is_it).count();
    ensure!(alike == 1, "told {alike} times: {:#?}", kept.found);
    let lines = found.case.input.split(|byte| *byte == b'\n').count();
    ensure!(lines <= 2, "not small: {:?}", found.case.input);
    Ok(())
}

/// Compiles a program into the scene's folder.
pub fn compile(source: &std::path::Path, flags: &[&str], to: &std::path::Path) -> Result<()> {
    let output = Command::new("gcc")
        .args(["-g", "-O1", "-Wno-aggressive-loop-optimizations"])
        .args(flags)
        .arg("-o")
        .args([to, source])
        .output()
        .context("cannot run gcc")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
