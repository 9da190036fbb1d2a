//! Campaigns of `brownout fuzz` that benchmarks start: with a program in a folder, for so long, or
//! until something is found.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Report};
use brownout_tests::layout;
use serde_json::Value;

use crate::shell;

/// What campaigns on maps begin with.
pub const SEED: &str = "i 1\nr 1\n";

/// The beginning of a campaign on a map in a folder, whose pool is there already.
pub fn of_map(map: &str, folder: &Path) -> Command {
    let mapcli = layout::examples().join("mapcli");
    let text = mapcli.to_string_lossy();
    let create = format!("{} {map} pool < /dev/null", shell::quoted(&text));
    let mut command = Command::new(layout::brownout());
    command
        .current_dir(folder)
        .args(["fuzz", "--out", "out"])
        .args(["--setup", &create, "--pm", "pool"]);
    command
}

/// The report of a campaign on a map, from its beginning.
pub fn report_of_map(map: &str, folder: &Path, words: &[&str]) -> Result<Report> {
    let mut command = of_map(map, folder);
    let mapcli = layout::examples().join("mapcli");
    let program = [mapcli.as_os_str(), map.as_ref(), "pool".as_ref()];
    report(command.args(words), folder, &program)
}

/// The report of a campaign in a folder, of which all is there but the program.
pub fn report<W: AsRef<std::ffi::OsStr>>(
    command: &mut Command,
    folder: &Path,
    program: &[W],
) -> Result<Report> {
    command
        .args(["--fail-on", "never", "--format", "json"])
        .args(["-o", "report.json", "--"])
        .args(program);
    let ran = command.output().context("cannot run brownout")?;
    ensure!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let text = fs::read(folder.join("report.json"))?;
    serde_json::from_slice(&text).context("the report cannot be read")
}

/// What was found.
pub struct Found {
    pub after: Duration,
    pub rule: String,
    /// What the campaign began with shows it, or a crash of that.
    pub by_seed: bool,
}

impl Found {
    /// The campaign itself has found it, in time. What is found at the end of a campaign may come
    /// after that, because explorations end what they are at.
    pub fn counts(&self, limit: Duration) -> bool {
        self.after <= limit && !self.by_seed
    }

    /// For a table.
    pub fn by_seed(&self) -> &'static str {
        match self.by_seed {
            true => "yes",
            false => "no",
        }
    }
}

/// Ends a campaign that is no longer needed.
pub struct Campaign(pub Child);

impl Drop for Campaign {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Campaign {
    /// Waits until a campaign in `out` has found it, or has ended. What it prints is in `log`.
    pub fn hunt(
        &mut self,
        folder: &Path,
        is_it: impl Fn(&Finding) -> bool,
    ) -> Result<Option<Found>> {
        let begun = Instant::now();
        loop {
            // Whatever it has found, it has written before it ends.
            let ended = self.0.try_wait()?;
            if let Some(mut found) = look(&folder.join("out/findings"), &is_it)? {
                found.after = begun.elapsed();
                return Ok(Some(found));
            }
            if let Some(status) = ended {
                let log = fs::read_to_string(folder.join("log"))?;
                ensure!(matches!(status.code(), Some(0 | 1)), "{log}");
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The finding that is wanted, if it is there; one that a seed shows, if there is one.
fn look(findings: &Path, is_it: &impl Fn(&Finding) -> bool) -> Result<Option<Found>> {
    let Ok(entries) = fs::read_dir(findings) else {
        return Ok(None);
    };
    let mut best: Option<Found> = None;
    for entry in entries {
        let text = fs::read(entry?.path())?;
        // It may be half written.
        let Ok(value) = serde_json::from_slice::<Value>(&text) else {
            continue;
        };
        let finding: Finding = serde_json::from_value(value["finding"].clone())?;
        if is_it(&finding) && !best.as_ref().is_some_and(|best| best.by_seed) {
            best = Some(Found {
                after: Duration::ZERO,
                rule: finding.rule.as_str().to_owned(),
                by_seed: value["by_seed"] == true,
            });
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::rules::BuiltIn;

    #[test]
    fn late_finds_and_those_of_seeds_do_not_count() {
        let found = |seconds, by_seed| Found {
            after: Duration::from_secs(seconds),
            rule: String::new(),
            by_seed,
        };
        let limit = Duration::from_secs(90);
        assert!(found(90, false).counts(limit));
        assert!(!found(91, false).counts(limit));
        assert!(!found(5, true).counts(limit));
    }

    #[test]
    fn what_a_seed_shows_is_not_counted_because_of_another_finding() {
        let folder = brownout_tests::Scratch::new().expect("a folder");
        let write = |name: &str, rule: BuiltIn, by_seed: bool| {
            let finding = Finding::new(rule, rule.rule().severity, "");
            let value = serde_json::json!({"finding": finding, "by_seed": by_seed});
            fs::write(folder.join(name), value.to_string()).expect("it is written");
        };
        let crash = |finding: &Finding| finding.rule.as_str() == "crash";
        let by_seed = || {
            let found = look(folder.path(), &crash).expect("they are read");
            found.map(|found| found.by_seed)
        };
        assert_eq!(by_seed(), None);
        write("b", BuiltIn::Hang, true);
        write("c", BuiltIn::Crash, false);
        fs::write(folder.join("d"), "{\"find").expect("it is written");
        assert_eq!(by_seed(), Some(false));
        write("a", BuiltIn::Crash, true);
        write("e", BuiltIn::Crash, false);
        assert_eq!(by_seed(), Some(true));
    }
}
