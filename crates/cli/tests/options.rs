//! Options from `brownout.toml`, and the commands that explain the tool itself.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn brownout(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brownout"))
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn refused(folder: &Path, args: &[&str], sentence: &str) {
    let output = brownout(folder, args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(sentence), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

// ---------------------------------------------------------------- brownout.toml

#[test]
fn a_repository_sets_options_for_all_of_its_folders() {
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("tests/deep");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(folder.path().join(".git")).unwrap();
    let config = "[record]\noutput = 'out/run.bwt'\npm = ['*.pool']\nloads = true\n";
    fs::write(folder.path().join("brownout.toml"), config).unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();

    // No pool is there for the pattern, which is how the test sees that the pattern counts.
    let output = brownout(&deep, &["record", "--", "true"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("--pm matches no file"), "{said}");
    let trace = folder.path().join("out/run.bwt");
    assert!(trace.exists(), "the path starts where the file is");
    let stat = brownout(&deep, &["trace", "stat", trace.to_str().unwrap()]);
    assert_eq!(stat.status.code(), Some(0));

    // The command line wins.
    let output = brownout(&deep, &["record", "-o", "mine.bwt", "--", "true"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(deep.join("mine.bwt").exists());

    refused(
        &deep,
        &["record", "--no-config", "--", "true"],
        "required but not given: --output <FILE>",
    );
}

#[test]
fn mistakes_in_the_file_are_found_where_they_are() {
    let folder = TempDir::new().unwrap();
    let (path, config) = (folder.path(), folder.path().join("brownout.toml"));
    let run = ["run", "--", "true"];

    fs::write(&config, "[run]\n\ndeterministc = true\n").unwrap();
    let nearest =
        "brownout.toml:3: 'brownout run' has no option deterministc; did you mean 'deterministic'?";
    refused(path, &run, nearest);
    assert_eq!(
        brownout(path, &["--no-config", "run", "--", "true"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(brownout(path, &["run", "--help"]).status.code(), Some(0));

    fs::write(&config, "[check]\nenable = [\n  'mising-flush',\n]\n").unwrap();
    assert_eq!(brownout(path, &run).status.code(), Some(0));
    let nearest = "brownout.toml:2: invalid value 'mising-flush' for '--enable <RULE>'; did you mean 'missing-flush'?";
    refused(path, &["check", "--", "true"], nearest);

    fs::write(&config, "[check\n").unwrap();
    refused(path, &run, "brownout.toml:1: ");
    refused(
        path,
        &["run", "--config", "none.toml", "--", "true"],
        "cannot read none.toml: No such file",
    );
}

// ---------------------------------------------------------------- explain

#[test]
fn explain_shows_a_rules_page() {
    let here = Path::new(".");
    let output = brownout(here, &["explain", "missing-fence"]);
    assert_eq!(output.status.code(), Some(0));
    let page = text(&output.stdout);
    assert!(page.starts_with("# missing-fence\n"), "{page}");
    for part in ["## Example", "## How to fix it", "## When it is not a bug"] {
        assert!(page.contains(part), "{page}");
    }
    let list = text(&brownout(here, &["explain"]).stdout);
    assert!(
        list.lines().any(|line| line.starts_with("empty-fence ")),
        "{list}"
    );
    refused(
        here,
        &["explain", "missing-fense"],
        "did you mean 'missing-fence'?",
    );
}

// ---------------------------------------------------------------- shells and manuals

#[test]
fn bash_accepts_its_completions_and_completes() {
    let folder = TempDir::new().unwrap();
    let script = brownout(folder.path(), &["completions", "bash"]).stdout;
    let path = folder.path().join("brownout.bash");
    fs::write(&path, script).unwrap();
    // What pressing the tabulator after `brownout check --gen` does.
    let press = r#"source "$0"; COMP_WORDS=(brownout check --gen); COMP_CWORD=2
        _brownout brownout --gen check; echo "${COMPREPLY[@]}""#;
    let output = Command::new("bash")
        .args(["--norc", "-c", press])
        .arg(&path)
        .output()
        .expect("bash");
    assert_eq!(
        text(&output.stdout).trim(),
        "--gen-suppressions",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn every_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish"] {
        let output = brownout(Path::new("."), &["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("gen-suppressions"), "{shell}");
    }
    refused(
        Path::new("."),
        &["completions", "dosbox"],
        "invalid value 'dosbox'",
    );
}

#[test]
fn manual_pages() {
    let folder = TempDir::new().unwrap();
    let page = text(&brownout(folder.path(), &["man"]).stdout);
    assert!(page.contains(".TH brownout 1"), "{page}");
    let output = brownout(folder.path(), &["man", "--dir", "man1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let pages = fs::read_dir(folder.path().join("man1")).unwrap().count();
    let commands = text(&brownout(folder.path(), &["--help"]).stdout);
    let commands = commands
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .count();
    // One for each command, one for the whole, two below `trace` and three below `fuzz`.
    assert_eq!(pages, commands + 7);
    fs::write(folder.path().join("file"), "").unwrap();
    refused(
        folder.path(),
        &["man", "--dir", "file"],
        "cannot write the manual pages to file: ",
    );
}

#[test]
fn results_can_be_cut_short() {
    for args in [
        &["explain", "missing-flush"][..],
        &["completions", "bash"],
        &["man"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_brownout"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

// ---------------------------------------------------------------- check

#[test]
fn check_refuses_what_makes_no_sense() {
    let here = TempDir::new().unwrap();
    let here = here.path();
    let cases: [(&[&str], &str); 9] = [
        (&["check"], "no program was given"),
        (&["check", "true"], "put '--' before the program"),
        (
            &["check", "--trace", "t", "--", "true"],
            "cannot be used with",
        ),
        (
            &["check", "--trace", "t", "--pm", "x"],
            "cannot be used with",
        ),
        (
            &["check", "--trace", "t", "--import-pmemcheck", "l"],
            "cannot be used with",
        ),
        (
            &["check", "--error-exitcode", "0", "--", "true"],
            "0 is not in 1..=255",
        ),
        (&["check", "--jobs", "0", "--", "true"], "0 is not in 1..="),
        (
            &["check", "--rule", "none.so:x", "--", "true"],
            "cannot read the rule none.so: No such file",
        ),
        (
            &["check", "--flush-check=no", "--", "true"],
            "required but not given: --compat <TOOL>",
        ),
    ];
    for (args, sentence) in cases {
        refused(here, args, sentence);
    }
}

#[test]
fn options_of_pmemcheck_without_effect_are_named() {
    let folder = TempDir::new().unwrap();
    let output = brownout(
        folder.path(),
        &[
            "check",
            "--compat=pmemcheck",
            "--isa-rec=no",
            "--mult-stores=yes",
            "--tx-only=yes",
            "--",
            "true",
        ],
    );
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("brownout: --isa-rec=no has no effect: "),
        "{stderr}"
    );
    assert!(!stderr.contains("--mult-stores"), "{stderr}");
    assert!(!stderr.contains("try '"), "accepted: {stderr}");
}

/// Dumps of traces and reports, which know nothing of each other, escape the same characters.
#[test]
fn dumps_and_reports_agree_on_what_is_shown_as_it_is() {
    for c in (0..=char::MAX as u32).filter_map(char::from_u32) {
        let text = c.to_string();
        assert_eq!(
            brownout_trace::dump::one_line(text.as_bytes()),
            brownout_report::visible(&text),
            "{:?}",
            c.escape_unicode().to_string()
        );
    }
}
