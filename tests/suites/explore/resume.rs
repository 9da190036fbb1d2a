//! `--resume`: an interrupted exploration goes on where it ended, but takes over nothing that is no
//! longer true.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use brownout_tests::check::compile;
use brownout_tests::explore::{self, Explored};
use brownout_tests::{Invocation, Scratch};
use libtest_mimic::Trial;

use crate::cli::LONG;
use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);

/// What the recovery's library says.
const LIBRARY: &str = "int verdict(void) { return ANSWER; }";

/// Recovery asks the library.
const RECOVERY: &str = r#"
int verdict(void);
int main(void) { return verdict(); }
"#;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("resume::goes_on_if_asked", goes_on),
        trial("resume::what_recovery_runs_has_changed", changed_programs),
        trial("resume::what_recovery_reads_has_changed", changed_file),
    ]
}

/// The program, explored with this recovery for a short time.
fn explored(recover: &str, more: &[&str], scratch: &Scratch) -> Result<Explored> {
    let program = scratch.join("program");
    let words = [program.as_os_str(), "run".as_ref(), "pool".as_ref()];
    let native = Invocation::new(words, scratch.path()).timeout(TIMEOUT);
    let options = ["--pm", "pool", "--recover", recover, "--time", "2s"];
    explore::run(&native, &[&options[..], more].concat())
}

fn build(source: &str, name: &str, flags: &[&str], scratch: &Scratch) -> Result<()> {
    let file = scratch.join(format!("{name}.c"));
    fs::write(&file, source)?;
    compile(&file, scratch.join(name), flags)?;
    Ok(())
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn goes_on() -> Result<()> {
    let scratch = Scratch::new()?;
    build(LONG, "program", &["-O1"], &scratch)?;
    let recover = format!("{} check pool", scratch.join("program").display());
    let first = explored(&recover, &[], &scratch)?;
    first.expect_note("--resume")?;
    ensure!(first.number("resumed")? == 0);
    let second = explored(&recover, &["--resume"], &scratch)?;
    ensure!(second.number("resumed")? > 0, "it begins anew");
    // Nobody asked.
    let third = explored(&recover, &[], &scratch)?;
    ensure!(third.number("resumed")? == 0, "it goes on");
    Ok(())
}

/// A library, a program that a script runs, the script: all of it counts, even if the user believes
/// that nothing has changed.
fn changed_programs() -> Result<()> {
    let scratch = Scratch::new()?;
    build(LONG, "program", &["-O1"], &scratch)?;
    let folder = scratch.path().to_string_lossy();
    let library = |answer: &str| {
        let answer = format!("-DANSWER={answer}");
        build(
            LIBRARY,
            "libverdict.so",
            &["-shared", "-fPIC", &answer],
            &scratch,
        )
    };
    library("0")?;
    // The library behind the source: the linker forgets what nobody has asked for yet.
    let (library_path, search) = (
        format!("{folder}/libverdict.so"),
        format!("-Wl,-rpath,{folder}"),
    );
    let flags = ["-Wl,--no-as-needed", &*search, &*library_path];
    build(RECOVERY, "recovery", &flags, &scratch)?;
    let helper = scratch.join("helper.sh");
    script(
        &helper,
        &format!("{folder}/program check pool && {folder}/recovery"),
    )?;
    let recover = format!("{} pool", helper.display());
    let good = explored(&recover, &[], &scratch)?;
    ensure!(good.report.findings.is_empty());
    ensure!(explored(&recover, &["--resume"], &scratch)?.number("resumed")? > 0);
    library("(__builtin_trap(), 1)")?;
    let bad = explored(&recover, &["--resume"], &scratch)?;
    ensure!(bad.number("resumed")? == 0, "outcomes of another library");
    bad.expect_rule("recovery-crash")?;
    library("0")?;
    ensure!(
        explored(&recover, &[], &scratch)?
            .report
            .findings
            .is_empty()
    );
    script(&helper, "kill -SEGV $$")?;
    let bad = explored(&recover, &["--resume"], &scratch)?;
    ensure!(bad.number("resumed")? == 0, "outcomes of another script");
    bad.expect_rule("recovery-crash")
}

/// A program that only some recoveries execute, and a file that a script reads which the command
/// line names: neither is taken for the same.
fn changed_file() -> Result<()> {
    let scratch = Scratch::new()?;
    build(LONG, "program", &["-O1"], &scratch)?;
    let folder = scratch.path().to_string_lossy();
    let other = |answer: &str| {
        let source = format!("int main(void) {{ return {answer}; }}");
        build(&source, "other", &["-O1"], &scratch)
    };
    other("0")?;
    let config = scratch.join("config");
    fs::write(&config, "true\n")?;
    let helper = scratch.join("helper.sh");
    // The last recovery, on the whole run, counts to more than this.
    let lines = [
        ". ./config".to_owned(),
        format!("{folder}/program check pool || exit 1"),
        "count=$(od -An -j320000 -N2 -td2 pool)".to_owned(),
        format!("[ $count -ge 2 ] || exec {folder}/other"),
    ];
    script(&helper, &lines.join("\n"))?;
    let recover = format!("{} pool", helper.display());
    let good = explored(&recover, &[], &scratch)?;
    ensure!(
        good.report.findings.is_empty(),
        "{:?}",
        good.report.findings
    );
    other("(__builtin_trap(), 1)")?;
    let bad = explored(&recover, &["--resume"], &scratch)?;
    ensure!(bad.number("resumed")? == 0, "outcomes of another program");
    bad.expect_rule("recovery-crash")?;
    // As long as nothing changes, it goes on.
    let more = explored(&recover, &["--resume"], &scratch)?;
    ensure!(more.number("resumed")? > 0, "it begins anew");
    fs::write(&config, "kill -SEGV $$\n")?;
    let bad = explored(&recover, &["--resume"], &scratch)?;
    ensure!(bad.number("resumed")? == 0, "outcomes of another file");
    bad.expect_rule("recovery-crash")
}
