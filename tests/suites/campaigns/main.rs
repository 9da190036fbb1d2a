//! `brownout fuzz` as a campaign that somebody watches, ends, makes small and shares: what the
//! terminal shows, and what is in the folder.
//!
//! What campaigns reach is in `suites/fuzz.rs`. Campaigns here are limited by executions, or are
//! ended when they have done what is waited for, so that a busy machine sees the same.

mod detect;
mod endings;
mod least;
mod robust;
mod sanitizers;
mod sync;
mod terminal;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::Report;
use brownout_tests::exec::Outcome;
use brownout_tests::fuzz::{self, Build};
use brownout_tests::{Invocation, Scratch, layout};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(240);

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = [
        terminal::trials(),
        least::trials(),
        detect::trials(),
        endings::trials(),
        sanitizers::trials(),
        sync::trials(),
        robust::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// A program in a folder of its own, with a seed.
struct Scene {
    scratch: Scratch,
    program: PathBuf,
}

impl Scene {
    /// With a program of `tests/fuzz`.
    fn of(name: &str, build: Build) -> Result<Scene> {
        let program = fuzz::find(name)?;
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), program.seed.input())?;
        Ok(Scene {
            scratch,
            program: program.binary(build),
        })
    }

    /// With a program of its own.
    fn with_source(source: &str, flags: &[&str], seed: &str) -> Result<Scene> {
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), seed)?;
        let file = scratch.path().join("program.c");
        fs::write(&file, source)?;
        let program = scratch.path().join("program");
        sanitizers::compile(&file, flags, &program)?;
        Ok(Scene { scratch, program })
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The command line of a campaign in `out`, with one worker.
    fn words(&self, options: &[&str]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
        let seeds = ["--seeds", "seed"];
        let fixed = ["--pm", "pool", "--jobs", "1"];
        if !options.contains(&"--seeds") {
            words.extend(seeds.map(OsString::from));
        }
        words.extend(fixed.iter().chain(options).map(OsString::from));
        words.extend(["--".into(), self.program.clone().into(), "pool".into()]);
        words
    }

    /// Runs it, and gives its report.
    fn fuzz(&self, options: &[&str]) -> Result<Report> {
        let mut all = vec!["--format", "json", "-o", "report.json"];
        all.extend(options);
        let outcome = self.run(self.words(&all))?;
        ensure!(
            matches!(outcome.status, 0 | 1),
            "it fails\n{}",
            outcome.describe()
        );
        let text = fs::read(self.path("report.json"))?;
        serde_json::from_slice(&text).context("the report cannot be read")
    }

    /// Another command of the tool.
    fn tool(&self, words: &[&str]) -> Result<Outcome> {
        let words = words.iter().map(OsString::from);
        self.run(
            std::iter::once(layout::brownout().into())
                .chain(words)
                .collect(),
        )
    }

    fn run(&self, words: Vec<OsString>) -> Result<Outcome> {
        self.invocation(words).run()
    }

    fn invocation(&self, words: Vec<OsString>) -> Invocation {
        Invocation::new(words, self.folder()).timeout(TIMEOUT)
    }
}
