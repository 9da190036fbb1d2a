//! Programs that are right, fuzzed: correctness findings other than the known ones are a failure.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use brownout_findings::{Event, Finding, Report, Role, Severity};
use brownout_tests::check::{is_at_line, is_inside};
use brownout_tests::fuzz::{self, Build};
use brownout_tests::layout;

use super::Options;
use super::campaigns::{self, SEED};
use super::places::Places;

/// What is fuzzed: its name, and the campaign in a folder.
type Case<'m> = (String, Box<dyn Fn(&Path, &str) -> Result<Report> + 'm>);

/// Fuzzes each map on a pool that was made beforehand, and the right build of each program in
/// `tests/fuzz`, for ten minutes each, or for `--time`.
pub fn bench(options: &Options, maps: &[String]) -> Result<()> {
    let time = options.time_or(if options.quick { 60 } else { 600 });
    let mut cases: Vec<Case<'_>> = Vec::new();
    for map in maps {
        let of_map = |folder: &Path, time: &str| -> Result<Report> {
            fs::write(folder.join("seed"), SEED)?;
            campaigns::report_of_map(map, folder, &["--seeds", "seed", "--time", time])
        };
        cases.push((map.clone(), Box::new(of_map)));
    }
    for program in fuzz::discover()? {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !program.name.contains(only))
        {
            continue;
        }
        let name = format!("{}, right build", program.name);
        let of_program = move |folder: &Path, time: &str| -> Result<Report> {
            fs::write(folder.join("seed"), program.seed.input())?;
            let mut command = Command::new(layout::brownout());
            command
                .current_dir(folder)
                .args(["fuzz", "--out", "out", "--pm", "pool"])
                .args(["--seeds", "seed", "--time", time]);
            let mut words: Vec<OsString> = vec![program.binary(Build::Fixed).into(), "pool".into()];
            if program.server {
                command.arg("--socket");
                words.push("7777".into());
            }
            campaigns::report(&mut command, folder, &words)
        };
        cases.push((name, Box::new(of_program)));
    }
    println!(
        "\n| right program, {time} s | executions | correctness findings | of these known |\n|---|---:|---:|---:|"
    );
    let mut wrong = Vec::new();
    for (name, campaign) in cases {
        let places = Places::new()?;
        let report = campaign(&places.pools.join(""), &format!("{time}s"))?;
        let found = report.findings.iter();
        let found = found.filter(|finding| finding.severity == Severity::Correctness);
        let (known, unknown): (Vec<_>, Vec<_>) = found.partition(|f| is_known(&name, f));
        let executions = &report.statistics["executions"];
        println!(
            "| {name} | {executions} | {} | {} |",
            known.len() + unknown.len(),
            known.len()
        );
        let told = unknown.iter().map(|finding| {
            let rule = finding.rule.as_str();
            format!("{name}: {rule}: {}", finding.message)
        });
        wrong.extend(told);
    }
    ensure!(
        wrong.is_empty(),
        "right programs have correctness findings:\n{}",
        wrong.join("\n")
    );
    println!("\nNo correctness finding but the known ones.");
    Ok(())
}

/// A handle that lies across two lines is assigned when `hashmap_atomic` is rebuilt; half of it may
/// survive a crash, and the next rebuild, which follows it, dies.
fn is_known(name: &str, finding: &Finding) -> bool {
    let is_it = |event: &Event| {
        is_at_line(event, "hashmap_atomic.c", 169)
            || event.role == Role::Symptom && is_inside(event, "hm_atomic_rebuild_finish")
    };
    name == "hashmap_atomic" && finding.events.iter().any(is_it)
}
