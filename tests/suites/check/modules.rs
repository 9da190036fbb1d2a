//! Every site keeps the name of its own code, however the program was linked and whatever comes to
//! its addresses later; and every file its own, whatever comes to its inode.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::{TIMEOUT, trial};

/// Two bugs that a store in a shared function makes: only the callers tell them apart. Each of the
/// functions does something after its call, lest the call become a jump.
const TWO_CALLERS: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile uint64_t *pm;
__attribute__((noinline)) static void put(int at) { pm[at] = 1; __asm__ volatile(""); }
__attribute__((noinline)) static void first(void) { put(0); __asm__ volatile(""); }
__attribute__((noinline)) static void second(void) { put(64); __asm__ volatile(""); }
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (argc != 2 || ftruncate(fd, 8192) != 0)
        return 2;
    pm = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    first();
    second();
    return munmap((void *)pm, 8192);
}
"#;

/// One of several libraries that are loaded to the same addresses.
const PLUGIN: &str = r#"
#include <stdint.h>
__attribute__((noinline)) void WHO(volatile uint64_t *at) { *at = 1; __asm__ volatile(""); }
void run(volatile uint64_t *pm) { WHO(pm + 64 * NUMBER); __asm__ volatile(""); }
"#;

/// Loads each, calls it and unloads it. Fails if one comes to another address, because then it
/// would show nothing.
const PLUGIN_HOST: &str = r#"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 8192) != 0)
        return 2;
    void *pm = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *before = 0;
    for (int i = 2; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        if (!library)
            return 3;
        void *run = dlsym(library, "run");
        if (before && run != before)
            return 4;
        before = run;
        ((void (*)(void *))run)(pm);
        dlclose(library);
    }
    return munmap(pm, 8192);
}
"#;

/// Stores, then becomes another program, whose code is at the same addresses.
const SUCCESSOR: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void WHO(volatile uint64_t *at) { *at = 1; __asm__ volatile(""); }
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 8192) != 0)
        return 2;
    uint64_t *pm = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WHO(pm + 64 * NUMBER);
    if (argc > 2) {
        char *next[] = {argv[2], argv[1], 0};
        execv(argv[2], next);
        return 3;
    }
    return 0;
}
"#;

/// Makes a file, stores to it and deletes it, again and again: file systems give the next one the
/// same inode.
const TEMPORARY_FILES: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#define STORE(n) __attribute__((noinline)) static void store_##n(volatile uint64_t *at) { *at = n + 1; __asm__ volatile(""); }
STORE(0) STORE(1) STORE(2)
int main(void)
{
    void (*stores[])(volatile uint64_t *) = {store_0, store_1, store_2};
    for (int i = 0; i < 3; i++) {
        char name[32];
        sprintf(name, "temporary-%d.pm", i);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (ftruncate(fd, 4096) != 0)
            return 2;
        void *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        stores[i](pm);
        munmap(pm, 4096);
        close(fd);
        unlink(name);
    }
    return 0;
}
"#;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("modules::every_linker", every_linker),
        trial("modules::static_programs", static_programs),
        trial("modules::after_dlclose", after_dlclose),
        trial("modules::after_execve", after_execve),
        trial("modules::reused_inode", reused_inode),
    ]
}

/// Compiles one file; a compiler or linker that is missing is a failure (`cargo xtask setup`
/// installs all).
pub fn compile(scratch: &Scratch, source: &str, out: &str, flags: &[&str]) -> Result<()> {
    let file = scratch.path().join(format!("{out}.c"));
    std::fs::write(&file, source)?;
    let output = Command::new("gcc")
        .args(["-g", "-O1", "-fomit-frame-pointer"])
        .args(flags)
        .arg("-o")
        .arg(scratch.path().join(out))
        .arg(&file)
        .output()
        .context("gcc")?;
    ensure!(
        output.status.success(),
        "gcc {flags:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// What a finding's store is called: functions from the innermost one on, joined; its fingerprint;
/// the file that it stored to.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Store {
    stack: String,
    fingerprint: String,
    offset: u64,
    file: String,
}

fn stores(scratch: &Scratch, argv: &[&str]) -> Result<BTreeSet<Store>> {
    let native = Invocation::new(argv.iter().copied(), scratch.path());
    let checked = check::run(&native.timeout(TIMEOUT), &["--pm", "*.pm"])?;
    checked.expect_status(1)?;
    let findings = checked.report.findings.iter();
    findings
        .filter(|finding| finding.rule == "missing-flush")
        .map(|finding| {
            let store = &finding.events[0];
            let functions = store.stack.iter().map(|frame| frame.function.as_deref());
            let functions: Vec<&str> = functions.map(|name| name.unwrap_or("?")).collect();
            let place = store.place.as_ref().context("a place")?;
            let file = Path::new(&place.file).file_name().unwrap_or_default();
            Ok(Store {
                stack: functions.join(" < "),
                fingerprint: finding.fingerprint.clone(),
                offset: place.offset,
                file: file.to_string_lossy().into_owned(),
            })
        })
        .collect()
}

fn expect(stores: &BTreeSet<Store>, wanted: &[(&str, u64)]) -> Result<()> {
    let seen: BTreeSet<_> = stores
        .iter()
        .map(|s| (s.stack.as_str(), s.offset))
        .collect();
    let wanted: BTreeSet<_> = wanted.iter().copied().collect();
    ensure!(seen == wanted, "{seen:?} instead of {wanted:?}");
    Ok(())
}

const CALLERS: [(&str, u64); 2] = [("put < first < main", 0), ("put < second < main", 512)];

/// Small programs of lld and mold have the file's first page in several segments. Callers are found
/// there as everywhere, and so the fingerprints do not depend on the linker.
fn every_linker() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut fingerprints = BTreeSet::new();
    let ways: [&[&str]; 8] = [
        &["-fuse-ld=bfd"],
        &["-fuse-ld=gold"],
        &["-fuse-ld=lld"],
        &["-fuse-ld=mold"],
        &["-fuse-ld=lld", "-no-pie"],
        &["-fuse-ld=mold", "-no-pie"],
        &["-fuse-ld=bfd", "-Wl,-z,noseparate-code"],
        &["-fuse-ld=bfd", "-Wl,--no-eh-frame-hdr"],
    ];
    for flags in ways {
        // One name: it is part of the fingerprint.
        compile(&scratch, TWO_CALLERS, "program", flags)?;
        let seen = stores(&scratch, &["./program", "pool.pm"])?;
        expect(&seen, &CALLERS).with_context(|| format!("{flags:?}"))?;
        fingerprints.insert(seen);
    }
    ensure!(fingerprints.len() == 1, "they differ: {fingerprints:#?}");
    Ok(())
}

/// `gcc -static` asks the linker for no index of the unwind tables.
fn static_programs() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut fingerprints = BTreeSet::new();
    for flags in [
        ["-static", "-fuse-ld=bfd"],
        ["-static", "-fuse-ld=lld"],
        ["-static", "-fuse-ld=mold"],
        ["-static-pie", "-fuse-ld=bfd"],
    ] {
        compile(&scratch, TWO_CALLERS, "program", &flags)?;
        let seen = stores(&scratch, &["./program", "pool.pm"])?;
        expect(&seen, &CALLERS).with_context(|| format!("{flags:?}"))?;
        fingerprints.insert(seen);
    }
    ensure!(fingerprints.len() == 1, "they differ: {fingerprints:#?}");
    Ok(())
}

fn after_dlclose() -> Result<()> {
    let scratch = Scratch::new()?;
    compile(&scratch, PLUGIN_HOST, "host", &[])?;
    for number in ["0", "1", "2"] {
        let who = format!("-DWHO=store_{number}");
        let number_is = format!("-DNUMBER={number}");
        compile(
            &scratch,
            PLUGIN,
            &format!("plugin{number}.so"),
            &["-shared", "-fPIC", &who, &number_is],
        )?;
    }
    let plugins = [
        "./plugin0.so",
        "./plugin1.so",
        "./plugin2.so",
        "./plugin1.so",
    ];
    let seen = stores(&scratch, &[&["./host", "pool.pm"], &plugins[..]].concat())?;
    expect(
        &seen,
        &[
            ("store_0 < run < main", 0),
            ("store_1 < run < main", 512),
            ("store_2 < run < main", 1024),
        ],
    )
}

fn after_execve() -> Result<()> {
    let scratch = Scratch::new()?;
    let builds = [("first", "0"), ("second", "1")];
    for (name, number) in builds {
        let who = format!("-DWHO=in_{name}");
        let number = format!("-DNUMBER={number}");
        compile(&scratch, SUCCESSOR, name, &["-no-pie", &who, &number])?;
    }
    let seen = stores(&scratch, &["./first", "pool.pm", "./second"])?;
    expect(&seen, &[("in_first < main", 0), ("in_second < main", 512)])
}

fn reused_inode() -> Result<()> {
    let scratch = Scratch::new()?;
    compile(&scratch, TEMPORARY_FILES, "program", &[])?;
    let seen = stores(&scratch, &["./program"])?;
    let seen: BTreeSet<_> = seen
        .iter()
        .map(|s| (s.stack.as_str(), s.file.as_str()))
        .collect();
    let wanted = BTreeSet::from([
        ("store_0 < main", "temporary-0.pm"),
        ("store_1 < main", "temporary-1.pm"),
        ("store_2 < main", "temporary-2.pm"),
    ]);
    ensure!(seen == wanted, "{seen:?} instead of {wanted:?}");
    Ok(())
}
