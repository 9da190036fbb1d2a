//! Runs that give up, hang or cannot be made: one does not hide others, each is counted once, and
//! what a seed shows is told apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Report, Role, Severity};
use brownout_tests::trial;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::Scene;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("endings::failures_of_recovery_are_told_apart", failures),
        trial("endings::what_a_seed_shows_does_not_end_it", by_seed),
        trial("endings::hangs_are_told_apart_and_kept_as_such", hangs),
        trial("endings::runs_that_cannot_be_made_are_counted", unmade),
        trial("endings::crashes_of_findings_run_natively", natively),
        trial("endings::words_of_a_dictionary_are_tried", dictionary),
        trial("endings::missing_files_are_made_again", again),
        trial("endings::what_is_cut_off_leaves_nothing_behind", cut),
    ]
}

/// `a` and `b` leave something half done, which opening refuses; `h` and `i` do not end; `g` does
/// what is not supported.
const PROGRAM: &str = r#"#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct pool {
    _Alignas(64) long count;
    _Alignas(64) long head;
    _Alignas(64) long tail;
};

static void set(long *at, long to) {
    *at = to;
    __builtin_ia32_clflush(at);
    __builtin_ia32_sfence();
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, 4096) != 0)
        return 2;
    struct pool *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm->head) {
        fprintf(stderr, "entry %ld: the head is bad\n", pm->count);
        return 1;
    }
    if (pm->tail) {
        fprintf(stderr, "entry %ld: the tail is bad\n", pm->count);
        return 1;
    }
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        set(&pm->count, pm->count + 1);
        switch (line[0]) {
        case 'a':
            set(&pm->head, 1);
            set(&pm->head, 0);
            break;
#ifdef HAS_B
        case 'b':
            set(&pm->tail, 1);
            set(&pm->tail, 0);
            break;
#endif
#ifdef HAS_G
        case 'g':
            syscall(SYS_arch_prctl, 0x1001, 4096);
            break;
#endif
#ifdef HAS_H
        case 'h':
            set(&pm->head, 0);
            for (;;)
                pause();
        case 'i':
            set(&pm->tail, 0);
            for (;;)
                pause();
#endif
        }
    }
    return 0;
}
"#;

/// A campaign on it whose operations are these letters. It has no others: what a program compares
/// its input with is tried, too.
fn scene(seed: &str, letters: &str) -> Result<Scene> {
    let has = letters.to_uppercase();
    let has: Vec<String> = has
        .chars()
        .map(|letter| format!("-DHAS_{letter}"))
        .collect();
    let has = has.iter().map(String::as_str);
    let flags: Vec<&str> = ["-g", "-O1"].into_iter().chain(has).collect();
    let scene = Scene::with_source(PROGRAM, &flags, seed)?;
    let templates: String = letters
        .chars()
        .map(|letter| format!("{letter}\n"))
        .collect();
    fs::write(scene.path("letters"), templates)?;
    Ok(scene)
}

fn fuzz(scene: &Scene, options: &[&str]) -> Result<Report> {
    let fixed = ["--out", "out", "--operations", "letters"];
    scene.fuzz(&[&fixed[..], options].concat())
}

/// What an execution has shown that gave up or hung, and no exploration.
fn of_runs<'r>(report: &'r Report, rule: &str) -> Vec<&'r Finding> {
    let is_of_run = |finding: &&Finding| {
        let first = finding.events.first();
        finding.rule.as_str() == rule && first.is_some_and(|event| event.role == Role::Symptom)
    };
    report.findings.iter().filter(is_of_run).collect()
}

fn notes(finding: &Finding, text: &str) -> bool {
    finding.notes.iter().any(|note| note.contains(text))
}

fn failures() -> Result<()> {
    let scene = scene("a\n", "ab")?;
    let report = fuzz(&scene, &["--executions", "1200", "--explore-share", "20%"])?;
    let found = of_runs(&report, "recovery-error");
    for (said, by_seed) in [("the head is bad", true), ("the tail is bad", false)] {
        let saying = found.iter().filter(|finding| notes(finding, said));
        let saying: Vec<_> = saying.collect();
        // The number of the entry differs from image to image.
        ensure!(saying.len() == 1, "{said}: {found:#?}");
        let is_seed = notes(saying[0], "a seed shows it");
        ensure!(is_seed == by_seed, "{said}: {:#?}", saying[0]);
    }
    ensure!(found.len() == 2, "{found:#?}");
    Ok(())
}

fn by_seed() -> Result<()> {
    let scene = scene("a\n", "a")?;
    let report = fuzz(&scene, &["--executions", "200", "--until-found"])?;
    let serious = report.findings.iter();
    let serious: Vec<_> = serious
        .filter(|finding| finding.severity == Severity::Correctness)
        .collect();
    ensure!(serious.len() > 1, "{serious:#?}");
    for finding in serious {
        ensure!(notes(finding, "a seed shows it"), "{finding:#?}");
    }
    let executions = &report.statistics["executions"];
    ensure!(executions.as_u64() >= Some(200), "{executions}");
    Ok(())
}

fn count(folder: &Path) -> Result<usize> {
    Ok(fs::read_dir(folder)?.count())
}

fn figure(scene: &Scene, name: &str) -> Result<usize> {
    let stats = fs::read_to_string(scene.path("out/fuzzer_stats"))?;
    let line = stats.lines().find(|line| line.starts_with(name));
    let (_, value) = line
        .and_then(|line| line.split_once(':'))
        .context("no line")?;
    Ok(value.trim().parse()?)
}

fn hangs() -> Result<()> {
    let scene = scene("x\n", "xhi")?;
    let options = ["--executions", "60", "--explore-share", "0"];
    let report = fuzz(&scene, &[&options[..], &["--hang-after", "200ms"]].concat())?;
    let found = of_runs(&report, "hang");
    // Where they hang, nothing is done to persistent memory; the last that was done tells them
    // apart.
    ensure!(found.len() >= 2, "{found:#?}");
    let hangs = count(&scene.path("out/hangs"))?;
    ensure!(hangs == found.len(), "{hangs} files");
    ensure!(figure(&scene, "saved_hangs")? == hangs, "another count");
    ensure!(count(&scene.path("out/crashes"))? == 0 && figure(&scene, "saved_crashes")? == 0);
    Ok(())
}

fn unmade() -> Result<()> {
    let scene = scene("a\n", "ag")?;
    let report = fuzz(&scene, &["--executions", "150"])?;
    ensure!(!report.findings.is_empty(), "it has not gone on");
    let told = serde_json::to_value(&report.coverage)?.to_string();
    ensure!(
        told.contains("could not be made") && told.contains("not supported"),
        "{told}"
    );
    // If no run can be made, the campaign ends, and says why.
    let none = scene_of_failures()?;
    let options = ["--out", "out", "--executions", "100000"];
    let ended = none.run(none.words(&options))?;
    let said = ended.stderr_text();
    ensure!(
        ended.status > 1 && said.contains("not supported"),
        "{}",
        ended.describe()
    );
    Ok(())
}

fn scene_of_failures() -> Result<Scene> {
    let source = "#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(void) { char c; read(0, &c, 1); syscall(SYS_arch_prctl, 0x1001, 4096); return 0; }\n";
    Scene::with_source(source, &[], "a\n")
}

fn natively() -> Result<()> {
    let scene = scene("a\n", "a")?;
    fuzz(&scene, &["--executions", "60"])?;
    let mut tried = 0;
    for entry in fs::read_dir(scene.path("out/findings"))? {
        let path = entry?.path();
        let found: Value = serde_json::from_slice(&fs::read(&path)?)?;
        if found["by_exploration"] != true || found["finding"]["rule"] != "recovery-error" {
            continue;
        }
        let key = path.file_stem().context("no name")?.to_string_lossy();
        let ended = scene.tool(&["fuzz", "repro", "out", &key, "--native"])?;
        ensure!(
            ended.status == 1 && ended.stderr_text().contains("the head is bad"),
            "{}",
            ended.describe()
        );
        tried += 1;
    }
    ensure!(tried > 0, "no exploration has found it");
    Ok(())
}

/// What a program compares only as a sum nobody sees in its comparisons.
fn dictionary() -> Result<()> {
    let source = r#"#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    unsigned char bytes[256];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, 4096) != 0)
        return 2;
    long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    long n = read(0, bytes, sizeof bytes);
    for (long i = 0; i + 6 <= n; i++) {
        unsigned sum = 0;
        for (int j = 0; j < 6; j++)
            sum = 31 * sum + bytes[i + j];
        pm[0] = sum;
        if (sum == SUM)
            abort();
    }
    return 0;
}
"#;
    let word = b"\x89qzx\xf0\x01";
    let sum = word.iter().fold(0u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let scene = Scene::with_source(source, &[&format!("-DSUM={sum}u")], "\u{1}\u{2}345678\u{3}")?;
    fs::write(
        scene.path("words"),
        "other=\"abcdef\"\nword=\"\\x89qzx\\xf0\\x01\"\n",
    )?;
    let options = ["--executions", "400", "--explore-share", "0"];
    let found = |out: &str, more: &[&str]| -> Result<bool> {
        let report = scene.fuzz(&[&["--out", out], &options[..], more].concat())?;
        Ok(report.findings.iter().any(|f| f.rule.as_str() == "crash"))
    };
    ensure!(!found("without", &[])?, "it is found by chance");
    ensure!(found("with", &["-x", "words"])?, "it is not found");
    fs::write(scene.path("words"), "a=\"b\"\nfour=\n")?;
    let options = ["--out", "none", "--executions", "1", "-x", "words"];
    let ended = scene.run(scene.words(&options))?;
    let said = ended.stderr_text();
    ensure!(
        ended.status == 2 && said.contains("line 2"),
        "{}",
        ended.describe()
    );
    Ok(())
}

/// Files of some folders of a campaign, with what is in them.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for shelf in ["queue", "crashes", "hangs", "findings"] {
        for entry in fs::read_dir(folder.join(shelf))? {
            let path = entry?.path();
            // AFL++'s tools expect a text beside the cases.
            if path.is_file() && path.extension().is_none_or(|kind| kind != "txt") {
                files.insert(path.clone(), fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

/// A kill may come after something was written down and before it has its file.
fn again() -> Result<()> {
    let scene = scene("a\n", "ab")?;
    let options = ["--executions", "80", "--explore-share", "10"];
    fuzz(&scene, &options)?;
    let out = scene.path("out");
    let before = files(&out)?;
    let crashes = count(&out.join("crashes"))?;
    ensure!(crashes > 0 && before.len() > 2 * crashes, "{before:?}");
    ensure!(figure(&scene, "saved_crashes")? == crashes);
    for path in before.keys() {
        fs::remove_file(path)?;
    }
    fuzz(&scene, &[&options[..], &["--resume"]].concat())?;
    let after = files(&out)?;
    for (path, content) in &before {
        ensure!(
            after.get(path) == Some(content),
            "{path:?} is not as it was"
        );
    }
    ensure!(figure(&scene, "saved_crashes")? == count(&out.join("crashes"))?);
    Ok(())
}

/// `f` writes to the first page more often than a run may, and then to others. `c` looks whether
/// one has written there and the other has not.
const GOES_ON: &str = r#"#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 1000, WORDS = 512 };

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, (PAGES + 1) * 4096) != 0)
        return 2;
    volatile long *pm = mmap(0, (PAGES + 1) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'f')
            for (long i = 1; i < 2000000; i++)
                pm[i < 400000 ? 0 : WORDS * (1 + i % PAGES)] = i;
        if (line[0] == 'c')
            for (int page = 1; page <= PAGES; page++)
                if (pm[0] == 0 && pm[WORDS * page] != 0)
                    abort();
    }
    return 0;
}
"#;

/// What a run does behind the last event that counts is not seen, and must not be there in the next
/// one.
fn cut() -> Result<()> {
    let scene = Scene::with_source(GOES_ON, &["-O1", "-Wno-unused-result"], "f\n")?;
    fs::create_dir(scene.path("seeds"))?;
    for (name, input) in [("1", "f\n"), ("2", "c\n"), ("3", "f\nc\n"), ("4", "c\nc\n")] {
        fs::write(scene.path("seeds").join(name), input)?;
    }
    let report = scene.fuzz(&["--seeds", "seeds", "--out", "out", "--executions", "12"])?;
    let crashes: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.rule == "crash")
        .collect();
    ensure!(crashes.is_empty(), "{crashes:#?}");
    Ok(())
}
