//! A finding's token shows its symptom again, and so does its command, without Brownout.
//!
//! `BROWNOUT_SEED` chooses other findings.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::Finding;
use brownout_random::Random;
use brownout_tests::explore::{self, Explored, reproduction};
use brownout_tests::seeded::{self, Seeded};
use brownout_tests::{Invocation, Scratch, check};
use libtest_mimic::Trial;

use crate::{seeded as seeded_suite, trial};

const SEED: u64 = 1;

/// Findings of seeded programs; those of the maps are replayed where they are found (`maps`).
const SEEDED: usize = 4;

/// A native recovery that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(3);

pub fn trials() -> Vec<Trial> {
    vec![
        trial("replay::four_at_random", four_at_random),
        trial("replay::each_its_own_crash", each_its_own_crash),
        trial("replay::another_run", another_run),
        trial("replay::nothing_runs_unasked", nothing_runs_unasked),
    ]
}

/// Two functions on one line forget to write back what they store. Only their names tell the
/// findings apart, and not their words.
const TWINS: &str = r#"
#include <fcntl.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct line { _Alignas(64) long word; };
struct pool { struct line data[2], flag[2]; };
static struct pool *pool;

#define SETTER(name, i) __attribute__((noinline)) static void name(void) { pool->data[i].word = VALUE; }
SETTER(set_first, 0) SETTER(set_second, 1)

static void publish(int i)
{
    pool->flag[i].word = 1;
    _mm_clflush(&pool->flag[i]);
    _mm_sfence();
    _mm_clflush(&pool->data[i]);
    _mm_sfence();
}

int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *pool) != 0)
        return 2;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    if (strcmp(argv[1], "check") == 0) {
        for (int i = 0; i < 2; i++)
            if (pool->flag[i].word && pool->data[i].word != VALUE)
                abort();
        return 0;
    }
    set_first();
    publish(0);
    set_second();
    publish(1);
    return 0;
}
"#;

fn explore_twins(value: &str, scratch: &Scratch) -> Result<Explored> {
    let source = scratch.join("twins.c");
    fs::write(&source, TWINS)?;
    let value = format!("-DVALUE={value}");
    let program = check::compile(&source, scratch.join("twins"), &["-O1", "-g", &value])?;
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(Duration::from_secs(120));
    let recover = format!("{} check pool", program.display());
    explore::run(
        &native,
        &["--pm", "pool", "--recover", &recover, "--depth", "1"],
    )
}

fn token(finding: &Finding) -> Result<&str> {
    Ok(&finding.replay.as_ref().context("no token")?.token)
}

fn each_its_own_crash() -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_twins("7", &scratch)?;
    explored.expect_findings()?;
    let findings = &explored.report.findings;
    ensure!(
        findings.len() == 2 && findings[0].message == findings[1].message,
        "{}",
        check::show(&explored.report)
    );
    let mut images = Vec::new();
    for finding in findings {
        let outcome = check::replay(token(finding)?, scratch.path()).run()?;
        let text = outcome.stderr_text();
        ensure!(outcome.status == 1, "{text}");
        let folder = format!("brownout-explore/replay-{}/pool", finding.fingerprint);
        let image = fs::read(scratch.join(&folder))?;
        let expected = reproduction(finding)?.files[0].image.as_ref();
        ensure!(
            image == fs::read(expected.context("no image")?)?,
            "another crash"
        );
        images.push(image);
    }
    ensure!(images[0] != images[1], "one crash for both");
    Ok(())
}

/// The program was built anew, and stores something else.
fn another_run() -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_twins("7", &scratch)?;
    explored.expect_findings()?;
    explore_twins("8", &scratch)?;
    let outcome = check::replay(token(&explored.report.findings[0])?, scratch.path()).run()?;
    let text = outcome.stderr_text();
    ensure!(
        outcome.status == 2 && text.contains("is not the one that was explored"),
        "exit status {}: {text}",
        outcome.status
    );
    Ok(())
}

/// A token is shown, and run only if the user agrees.
fn nothing_runs_unasked() -> Result<()> {
    let scratch = Scratch::new()?;
    let explored = explore_twins("7", &scratch)?;
    let token = token(&explored.report.findings[0])?;
    let elsewhere = Scratch::new()?;
    for (option, status) in [(None, 2), (Some("--show"), 0)] {
        let mut invocation = check::replay(token, elsewhere.path());
        invocation.argv.retain(|word| word != "--yes");
        invocation.argv.extend(option.map(Into::into));
        let outcome = invocation.run()?;
        let text = outcome.stderr_text();
        ensure!(outcome.status == status, "{option:?}: {text}");
        ensure!(text.contains("twins run pool"), "{text}");
        ensure!(text.contains("--yes") == option.is_none(), "{text}");
        ensure!(!text.contains("recovery ends"), "it ran: {text}");
    }
    let left = fs::read_dir(elsewhere.path())?.count();
    ensure!(left == 0, "{left} files were written");
    Ok(())
}

fn four_at_random() -> Result<()> {
    let seed = match env::var("BROWNOUT_SEED") {
        // The trials of generated programs also take ranges.
        Ok(text) => text.split("..").next().unwrap_or(&text).parse()?,
        Err(_) => SEED,
    };
    let mut random = Random::new(seed);
    let mut programs: Vec<Seeded> = seeded::discover()?;
    programs.retain(|program| program.explore && !program.lacks_bug());
    for _ in 0..SEEDED {
        let program = programs.swap_remove(random.below(programs.len() as u64) as usize);
        let scratch = Scratch::new()?;
        let explored = seeded_suite::explore_bug(&program, scratch.path())?;
        shows_again(one_of(&explored, &mut random)?, scratch.path())
            .with_context(|| format!("BROWNOUT_SEED={seed}: {}", program.name))?;
    }
    Ok(())
}

fn one_of<'e>(explored: &'e Explored, random: &mut Random) -> Result<&'e Finding> {
    explored.expect_findings()?;
    let findings = &explored.report.findings;
    Ok(&findings[random.below(findings.len() as u64) as usize])
}

/// Whether its token and its command show a finding again.
pub fn shows_again(finding: &Finding, folder: &Path) -> Result<()> {
    by_token(finding, folder).with_context(|| finding.message.clone())?;
    by_command(finding, folder).with_context(|| finding.message.clone())
}

fn by_token(finding: &Finding, folder: &Path) -> Result<()> {
    let expected = reproduction(finding)?;
    let replay = finding.replay.as_ref().context("no token")?;
    ensure!(replay.command == format!("brownout replay {}", replay.token));
    let (pool, report) = (folder.join("pool"), fs::read(folder.join("report.json"))?);
    let before = fs::read(&pool).ok();
    // From another folder: the token knows where the run was.
    let elsewhere = Scratch::new()?;
    let outcome = check::replay(&replay.token, elsewhere.path()).run()?;
    let text = outcome.stderr_text();
    for words in [
        format!(
            "finding {}: recovery ends with {} under Brownout",
            finding.fingerprint, expected.status
        ),
        format!("natively it ends with {}", expected.status),
    ] {
        ensure!(text.contains(&words), "no {words:?}\n{text}");
    }
    ensure!(outcome.status == 1, "exit status {}", outcome.status);
    // What a set-up creates is created anew.
    if before.is_none() {
        ensure!(!pool.exists(), "a pool is left");
    }
    ensure!(
        fs::read(folder.join("report.json"))? == report,
        "the first report was overwritten"
    );
    Ok(())
}

fn by_command(finding: &Finding, folder: &Path) -> Result<()> {
    let expected = reproduction(finding)?;
    let invocation = Invocation::shell(&expected.command, folder);
    if expected.status == "hang" {
        let ended = invocation.timeout(PATIENCE).run();
        ensure!(
            ended.is_err_and(|error| error.to_string().contains("no end after")),
            "it ends"
        );
        return Ok(());
    }
    let outcome = invocation.run()?;
    // A shell says 128 + n for signal n.
    let status = match outcome.status {
        code if code > 128 => format!("signal {}", code - 128),
        code => format!("exit code {code}"),
    };
    ensure!(
        status == expected.status && outcome.stdout_text() == expected.stdout,
        "{status} instead of {}, {:?}\n{}",
        expected.status,
        expected.stdout,
        outcome.describe()
    );
    Ok(())
}
