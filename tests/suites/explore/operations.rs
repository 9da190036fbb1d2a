//! `--oracle ops` on programs that take commands: what is a whole operation, what was acknowledged,
//! and what differs.
//!
//! One small list in persistent memory ([`LIST`]), correct unless a flag breaks it, with every way
//! of reading input that there is.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_findings::{Finding, Severity, Verdict};
use brownout_tests::check::{compile, show};
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, examples};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(300);

/// `i N` appends a number. `check` prints all, one a line.
///
/// Reading: by `fgets`; with `-DBYTES` byte by byte, with `-DBLOCKS` in blocks of seven bytes that
/// end anywhere, with `-DALL` all before anything is done, with `-DGROUP` two lines at a time. With
/// a third argument that number is appended and nothing is read.
///
/// Writing: with `-DACK` "ok" when it is durable, with `-DEARLY` before it is, with `-DCHATTY` how
/// far it has come.
///
/// Effort: with `-DWORK` each number costs many more loads than recovery makes, with `-DPAUSE` the
/// program waits for ever unless its input ends with `q`.
const LIST: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENTRIES = 30 };
struct pool { _Alignas(64) long count; struct { _Alignas(64) long value; } entries[ENTRIES]; };
static struct pool *pool;

static void persist(void *address) { _mm_clflush(address); _mm_sfence(); }
static void say(const char *words) { if (write(1, words, strlen(words)) < 0) _exit(3); }

static void append(long value)
{
#ifdef CHATTY
    say("appending\n");
#endif
#ifdef WORK
    for (int i = 0; i < 600000; i++)
        (void)*(volatile long *)&pool->entries[i % ENTRIES].value;
#endif
    pool->entries[pool->count].value = value;
    persist(&pool->entries[pool->count]);
    pool->count++;
#ifdef CHATTY
    say("appended, not yet durable\n");
#endif
#ifdef EARLY
    say("ok\n");
#endif
    persist(&pool->count);
#ifdef ACK
    say("ok\n");
#endif
    say("> ");
}

#if defined(BYTES)
static char *line(char *to, int room)
{
    int n = 0;
    while (n < room - 1 && read(0, to + n, 1) == 1)
        if (to[n++] == '\n')
            break;
    to[n] = 0;
    return n ? to : NULL;
}
#elif defined(BLOCKS)
static char *line(char *to, int room)
{
    static char kept[7];
    static int at, have;
    int n = 0;
    for (;;) {
        if (at == have) {
            have = read(0, kept, sizeof kept);
            at = 0;
            if (have <= 0)
                break;
        }
        to[n++] = kept[at++];
        if (to[n - 1] == '\n' || n == room - 1)
            break;
    }
    to[n] = 0;
    return n ? to : NULL;
}
#elif defined(ALL)
static char *line(char *to, int room)
{
    static char all[4096], *at;
    if (!at) {
        all[fread(all, 1, sizeof all - 1, stdin)] = 0;
        at = all;
    }
    char *end = strchr(at, '\n');
    if (!end)
        return NULL;
    int n = end + 1 - at < room ? end + 1 - at : room - 1;
    memcpy(to, at, n);
    to[n] = 0;
    at = end + 1;
    return to;
}
#else
#define line(to, room) fgets(to, room, stdin)
#endif

int main(int argc, char **argv)
{
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") == 0) {
        for (long i = 0; i < pool->count; i++)
            printf("%ld\n", pool->entries[i].value);
        return 0;
    }
    if (argc > 3) {
        append(atol(argv[3]));
        return 0;
    }
    char text[200];
#ifdef GROUP
    long waiting[2];
    int n = 0;
    while (line(text, sizeof text)) {
        waiting[n++] = atol(text + 2);
        for (; n == 2; n = 0) {
            append(waiting[0]);
            append(waiting[1]);
        }
    }
    if (n == 1)
        append(waiting[0]);
#else
    while (line(text, sizeof text))
        if (*text == 'i')
            append(atol(text + 2));
#endif
#ifdef PAUSE
    if (*text != 'q')
        pause();
#endif
    return 0;
}
"#;

/// A set of up to eight one-byte numbers in a word. `i N` adds one and commits, then sorts and
/// commits again. `check` prints them.
const SET: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void commit(unsigned char *set, const unsigned char *value)
{
    unsigned long word;
    memcpy(&word, value, sizeof word);
    *(volatile unsigned long *)set = word;
    _mm_clflush(set);
    _mm_sfence();
}

static int larger_first(const void *a, const void *b)
{
    return *(const unsigned char *)b - *(const unsigned char *)a;
}

int main(int argc, char **argv)
{
    int fd = argc > 2 ? open(argv[2], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    unsigned char *set = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (set == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") == 0) {
        for (int i = 0; i < 8 && set[i]; i++)
            printf("%d ", set[i]);
        printf("\n");
        return 0;
    }
    char text[200];
    while (fgets(text, sizeof text, stdin)) {
        unsigned char next[8];
        memcpy(next, set, sizeof next);
        next[strnlen((char *)next, 7)] = atoi(text + 2);
        commit(set, next);
        qsort(next, 8, 1, larger_first);
        commit(set, next);
    }
    return 0;
}
"#;

const INPUT: &str = "i 11\n# a line that is longer than a block\ni 22\ni 33\n";

pub fn trials() -> Vec<Trial> {
    // Every way of reading, by a correct program.
    let readers: [(&str, &[&str], bool); 8] = [
        ("lines", &[], false),
        ("bytes", &["-DBYTES"], false),
        ("blocks", &["-DBLOCKS"], false),
        ("all_first", &["-DALL"], true),
        ("all_first_and_acknowledged", &["-DALL", "-DACK"], true),
        ("groups", &["-DGROUP"], true),
        ("acknowledged", &["-DACK"], false),
        ("chatty", &["-DCHATTY", "-DACK"], false),
    ];
    let mut trials: Vec<Trial> = readers
        .into_iter()
        .map(|(name, flags, reads_ahead)| {
            trial(format!("operations::{name}"), move || {
                correct(flags, reads_ahead)
            })
        })
        .collect();
    for (name, flags) in [
        ("lines", &["-DEARLY"][..]),
        ("bytes", &["-DEARLY", "-DBYTES"]),
        ("all_first", &["-DEARLY", "-DALL"]),
    ] {
        let name = format!("operations::acknowledged_too_early_by_{name}");
        trials.push(trial(name, || too_early(flags)));
    }
    trials.extend([
        trial(
            "operations::a_run_costs_more_than_recovery",
            more_than_recovery,
        ),
        trial("operations::a_run_on_less_input_never_ends", never_ends),
        trial("operations::a_checker_takes_its_time", slow_checker),
        trial("operations::recovery_waits_until_a_lock_is_old", old_lock),
        trial("operations::no_line_feed_at_the_end", no_line_feed),
        trial("operations::a_shell_reads", shell),
        trial("operations::another_order", another_order),
        trial("operations::hashmap_tx_shrinks", hashmap_shrinks),
        trial("operations::a_pipe_is_no_input", pipe),
    ]);
    trials
}

struct Program {
    scratch: Scratch,
    binary: PathBuf,
}

impl Program {
    fn new(source: &str, flags: &[&str]) -> Result<Program> {
        let scratch = Scratch::new()?;
        let file = scratch.join("program.c");
        fs::write(&file, source)?;
        let binary = scratch.join("program");
        compile(&file, binary.clone(), &[&["-O1"], flags].concat())?;
        Ok(Program { scratch, binary })
    }

    /// Explores a command on this input.
    fn explore(&self, command: &[&str], input: &str, oracle: &str) -> Result<Explored> {
        fs::write(self.scratch.join("input"), input)?;
        let check = format!("{} check pool", self.binary.display());
        let options = [
            "--pm",
            "pool",
            "--setup",
            &check,
            "--recover",
            &check,
            "--stdin",
            "input",
            "--oracle",
            oracle,
        ];
        let native = Invocation::new(command, self.scratch.path()).timeout(TIMEOUT);
        explore::run(&native, &options)
    }

    fn explore_run(&self, input: &str, oracle: &str) -> Result<Explored> {
        let binary = self.binary.to_string_lossy();
        self.explore(&[&binary, "run", "pool"], input, oracle)
    }
}

const READS_AHEAD: &str = "it reads ahead, or commits several together";

fn correct(flags: &[&str], reads_ahead: bool) -> Result<()> {
    let explored = Program::new(LIST, flags)?.explore_run(INPUT, "ops")?;
    explored.expect_clean()?;
    match reads_ahead {
        true => explored.expect_note(READS_AHEAD),
        false => {
            ensure!(explored.expect_note(READS_AHEAD).is_err(), "it does not");
            Ok(())
        }
    }
}

/// What recovery takes is no measure of the program: its runs on part of the input are not cut
/// short, and recovery compared with what half of a run has left.
fn more_than_recovery() -> Result<()> {
    let explored = Program::new(LIST, &["-DWORK"])?.explore_run("i 11\ni 22\n", "ops")?;
    explored.expect_clean()
}

/// A run that must be ended is no measure, either. The recorded run is.
fn never_ends() -> Result<()> {
    let program = |flags: &[&str]| -> Result<Explored> {
        let flags = [&["-DPAUSE"], flags].concat();
        Program::new(LIST, &flags)?.explore_run("i 11\ni 22\nq\n", "ops")
    };
    let explored = program(&[])?;
    explored.expect_clean()?;
    explored.expect_note("does not end soon if it is given only the first lines")?;
    program(&["-DEARLY"])?.expect_rule("not-atomic")
}

/// Has lines that recovery, or a checker, runs by a shell.
fn explore_judged(recover: &str, oracle: &str) -> Result<Explored> {
    let Program { scratch, binary } = Program::new(LIST, &[])?;
    let binary = binary.display();
    let options = [
        "--pm",
        "pool",
        "--setup",
        &format!("{binary} check pool"),
        "--recover",
        &recover.replace("CHECK", &format!("{binary} check pool")),
        "--oracle",
        oracle,
    ];
    let command = [&binary.to_string(), "run", "pool", "11"];
    let native = Invocation::new(command, scratch.path()).timeout(TIMEOUT);
    explore::run(&native, &options)
}

/// A checker that takes longer than recovery does not hang, neither under the tool nor natively.
fn slow_checker() -> Result<()> {
    explore_judged("CHECK", "cmd:sleep 4; true")?.expect_clean()
}

/// In some crash states recovery waits for longer than it takes in others, and ends. It is no
/// error, however long that seems under the tool.
fn old_lock() -> Result<()> {
    let explored = explore_judged("x=$(CHECK); [ -n \"$x\" ] || sleep 5", "cmd:true")?;
    let is_error = |f: &&Finding| f.severity == Severity::Correctness;
    let errors = explored.report.findings.iter().filter(is_error).count();
    ensure!(errors == 0, "{}", show(&explored.report));
    Ok(())
}

/// The one finding.
fn only(explored: &Explored) -> Result<&Finding> {
    match explored.report.findings.as_slice() {
        [finding] => Ok(finding),
        _ => anyhow::bail!("not one finding:\n{}", show(&explored.report)),
    }
}

fn expect_note(finding: &Finding, note: &str) -> Result<()> {
    ensure!(
        finding.notes.iter().any(|n| n == note),
        "no note is {note:?}: {:?}",
        finding.notes
    );
    Ok(())
}

fn too_early(flags: &[&str]) -> Result<()> {
    let explored = Program::new(LIST, flags)?.explore_run(INPUT, "ops")?;
    explored.expect_findings()?;
    explored.expect_rule("not-atomic")?;
    let finding = only(&explored)?;
    let gone = "acknowledged data is gone: after 1 operation recovery prints nothing";
    ensure!(finding.message.starts_with(gone), "{}", finding.message);
    expect_note(
        finding,
        "it is what is there after 0 operations, but 1 was acknowledged",
    )?;
    let missing = r#"compared with what is there after 1 operation: "11" is missing"#;
    expect_note(finding, missing)
}

/// Its reader asks once more before it knows that the line is over: then nothing is acknowledged
/// yet.
fn no_line_feed() -> Result<()> {
    for flags in [&[][..], &["-DBYTES"]] {
        let program = Program::new(LIST, flags)?;
        program.explore_run("i 11\ni 22", "ops")?.expect_clean()?;
    }
    Ok(())
}

/// Any shell reads byte by byte, or gives back what it has read too much. Each line is carried out
/// by a program of its own.
fn shell() -> Result<()> {
    let program = Program::new(LIST, &[])?;
    let append = format!(
        "while read word number; do {} run pool $number; done",
        program.binary.display()
    );
    for shell in ["sh", "bash"] {
        let explored = program.explore(&[shell, "-c", &append], "i 11\ni 22\n", "ops")?;
        explored.expect_clean()?;
    }
    Ok(())
}

/// Between two commits the same numbers are there in another order: only the user knows whether
/// that matters.
fn another_order() -> Result<()> {
    let program = Program::new(SET, &[])?;
    let input = "i 1\ni 2\ni 3\n";
    let explored = program.explore_run(input, "ops")?;
    let finding = only(&explored)?;
    ensure!(
        finding.rule == "other-order" && finding.severity == Severity::Warning,
        "{}",
        show(&explored.report)
    );
    explored.expect_status(0)?;
    expect_note(
        finding,
        r#"compared with what is there after 2 operations: "2" is elsewhere"#,
    )?;
    let ordered = program.explore_run(input, "ops:ordered")?;
    ordered.expect_findings()?;
    ordered.expect_rule("not-atomic")
}

/// It removes a key in one transaction and shrinks its table in another.
fn hashmap_shrinks() -> Result<()> {
    let mapcli = examples::binary("mapcli")?;
    let scratch = Scratch::new()?;
    fs::write(scratch.join("input"), "i 3\nr 1\n")?;
    fs::write(scratch.join("look"), "p\n")?;
    let map = format!("{} hashmap_tx pool 1", mapcli.display());
    let setup = format!("rm -f pool; printf 'i 1\\ni 2\\n' | {map}");
    let words = [mapcli.as_os_str(), "hashmap_tx".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    let options = [
        "--setup",
        &setup,
        "--stdin",
        "input",
        "--recover-stdin",
        "look",
        "--oracle",
        "ops",
        "--depth",
        "1",
    ];
    let explored = explore::run(&native, &options)?;
    explored.expect_status(0)?;
    let is_warning = |finding: &Finding| finding.severity == Severity::Warning;
    ensure!(
        explored.report.verdict != Verdict::Incomplete
            && explored.report.findings.iter().all(is_warning),
        "{}",
        show(&explored.report)
    );
    explored.expect_rule("other-order")
}

fn pipe() -> Result<()> {
    let program = Program::new(LIST, &[])?;
    let explore = format!(
        "echo 'i 1' | {} explore --pm pool --stdin /dev/stdin -- {} run pool",
        brownout_tests::layout::brownout().display(),
        program.binary.display()
    );
    let outcome = Invocation::new(["sh", "-c", &explore], program.scratch.path())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(
        outcome.status == 2 && outcome.stderr_text().contains("must be a file"),
        "{}",
        outcome.describe()
    );
    Ok(())
}
