//! `explore --schedule`: the recorded run is the same each time, whatever its threads do; and so it
//! is known whether store buffers matter (`--tso`).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::Limit;
use brownout_tests::check::{self, compile, show};
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch, tool};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);
const CANNOT_RUN: i32 = 3;
const FINDINGS: i32 = 1;

/// `wrong` and `right`: one thread stores a number and makes it durable, too late or in time; the
/// other copies it. `locked` and `free`: both store and make durable what they store, one at a time
/// or side by side.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 6 };
struct line { _Alignas(64) long word; };
static struct pool { struct line data, copy, slots[2][ROUNDS]; } *pool;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *mode;

static int is(const char *name)
{
    return strcmp(mode, name) == 0;
}

static void persist(void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

static void *store(void *unused)
{
    pthread_mutex_lock(&mutex);
    pool->data.word = 1;
    if (is("right"))
        persist(&pool->data);
    pthread_mutex_unlock(&mutex);
    if (is("wrong"))
        persist(&pool->data);
    return unused;
}

static void *copy(void *unused)
{
    pthread_mutex_lock(&mutex);
    long word = pool->data.word;
    pthread_mutex_unlock(&mutex);
    pool->copy.word = word;
    persist(&pool->copy);
    return unused;
}

static void *fill(void *slots)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (is("locked"))
            pthread_mutex_lock(&mutex);
        struct line *line = (struct line *)slots + i;
        line->word = i + 1;
        persist(line);
        if (is("locked"))
            pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int fd = open("pool", O_RDWR | O_CREAT, 0600);
    if (argc < 2 || fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    mode = argv[1];
    if (is("check"))
        return pool->copy.word && !pool->data.word;
    int fills = is("locked") || is("free");
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, fills ? fill : store, pool->slots[0]);
    pthread_create(&threads[1], NULL, fills ? fill : copy, pool->slots[1]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
"#;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("schedule::decides_what_is_found", decides_what_is_found),
        trial(
            "schedule::silent_on_the_fixed_twin",
            silent_on_the_fixed_twin,
        ),
        trial("schedule::list_of_another_run", list_of_another_run),
        trial("schedule::store_buffers_that_cannot_matter", cannot_matter),
        trial("schedule::store_buffers_that_may_matter", may_matter),
    ]
}

struct Setup {
    scratch: Scratch,
    program: PathBuf,
}

fn setup() -> Result<Setup> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let source = scratch.join("program.c");
    std::fs::write(&source, PROGRAM)?;
    let program = compile(&source, scratch.join("program"), &["-O1"])?;
    Ok(Setup { scratch, program })
}

impl Setup {
    fn explore(&self, mode: &str, options: &[&str]) -> Result<Explored> {
        let (native, recover) = self.native(mode);
        let mut all = vec!["--pm", "pool", "--recover", &recover];
        all.extend(options);
        explore::run(&native, &all)
    }

    fn native(&self, mode: &str) -> (Invocation, String) {
        let argv = [self.program.as_os_str(), mode.as_ref()];
        let native = Invocation::new(argv, self.scratch.path()).timeout(TIMEOUT);
        (native, format!("{} check", self.program.display()))
    }
}

fn fingerprints(explored: &Explored) -> Vec<&str> {
    let findings = explored.report.findings.iter();
    findings.map(|finding| &*finding.fingerprint).collect()
}

/// As one thread follows the other, nothing goes wrong; some schedule shows it, always the same,
/// and its token does, too.
fn decides_what_is_found() -> Result<()> {
    let setup = setup()?;
    let calm = setup.explore("wrong", &["--schedule", "go-on"])?;
    ensure!(calm.report.findings.is_empty(), "{}", show(&calm.report));
    for seed in 0..40 {
        let schedule = format!("random:{seed}");
        let first = setup.explore("wrong", &["--schedule", &schedule])?;
        let Some(finding) = first.report.findings.first() else {
            continue;
        };
        let again = setup.explore("wrong", &["--schedule", &schedule])?;
        ensure!(
            fingerprints(&first) == fingerprints(&again),
            "{schedule} is not the same each time"
        );
        let token = &finding.replay.as_ref().context("no token")?.token;
        for _ in 0..3 {
            let outcome = check::replay(token, setup.scratch.path()).run()?;
            ensure!(outcome.status == FINDINGS, "{}", outcome.describe());
        }
        return Ok(());
    }
    bail!("no schedule shows it")
}

fn silent_on_the_fixed_twin() -> Result<()> {
    let setup = setup()?;
    for seed in 0..10 {
        let schedule = format!("random:{seed}");
        let explored = setup.explore("right", &["--schedule", &schedule])?;
        let report = &explored.report;
        ensure!(report.findings.is_empty(), "{schedule}: {}", show(report));
    }
    Ok(())
}

fn list_of_another_run() -> Result<()> {
    let setup = setup()?;
    let (native, recover) = setup.native("free");
    let trace = setup.scratch.join("trace");
    let options = ["--pm", "pool", "--schedule", "round-robin:1"];
    let recorded = tool::record(&native, &trace, &options).run()?;
    let said = recorded.stderr_text();
    let list = said
        .split_whitespace()
        .find(|word| word.starts_with("list:"));
    let list = list.with_context(|| format!("no list: {said}"))?;
    let options = ["--pm", "pool", "--recover", &recover, "--schedule", list];
    // What `record` prints is what `explore` takes.
    std::fs::remove_file(setup.scratch.join("pool"))?;
    let refused = "belongs to another run";
    let same = explore::command(&native, &options).run()?;
    ensure!(!same.stderr_text().contains(refused), "{}", same.describe());
    ensure!(
        same.stderr_text().contains("0 correctness"),
        "{}",
        same.describe()
    );
    let (other, _) = setup.native("locked");
    let outcome = explore::command(&other, &options).run()?;
    ensure!(
        outcome.status == CANNOT_RUN && outcome.stderr_text().contains(refused),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn limits(explored: &Explored, limit: Limit) -> bool {
    explored.report.coverage.has(limit)
}

/// A locked instruction lies between what one thread stores and what the next one does, in every
/// order.
fn cannot_matter() -> Result<()> {
    let setup = setup()?;
    for schedule in ["go-on", "random:1", "random:2", "pct:3", "round-robin:4"] {
        let explored = setup.explore("locked", &["--tso", "--schedule", schedule])?;
        ensure!(
            !limits(&explored, Limit::StoreBuffers),
            "{schedule}: {}",
            show(&explored.report)
        );
    }
    // Without a schedule nobody knows.
    let explored = setup.explore("locked", &["--tso"])?;
    ensure!(limits(&explored, Limit::StoreBuffers));
    Ok(())
}

fn may_matter() -> Result<()> {
    let setup = setup()?;
    let mut shown = false;
    for seed in 0..10 {
        let schedule = format!("random:{seed}");
        let explored = setup.explore("free", &["--tso", "--schedule", &schedule])?;
        if !limits(&explored, Limit::StoreBuffers) {
            continue;
        }
        // Who does not ask is not told.
        let explored = setup.explore("free", &["--schedule", &schedule])?;
        ensure!(!limits(&explored, Limit::StoreBuffers));
        shown = true;
        break;
    }
    ensure!(shown, "in no order do the threads store side by side");
    // One after the other, they do not even without a lock: a thread that ends leaves nothing in
    // its buffer.
    let explored = setup.explore("free", &["--tso", "--schedule", "go-on"])?;
    ensure!(
        !limits(&explored, Limit::StoreBuffers),
        "{}",
        show(&explored.report)
    );
    Ok(())
}
