//! `brownout check --rule`: rules in shared libraries, on real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds a rule as its author would; returns the library.
fn build(folder: &str, name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rules");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--manifest-path"])
        .arg(format!("{CRATE}/{folder}/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} does not build:\n{errors}");
    let name = name.replace('-', "_");
    target.join("debug").join(format!("lib{name}.so"))
}

fn example(name: &str) -> PathBuf {
    build(&format!("../../examples/rules/{name}"), name)
}

fn redundant_undo_log() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        example("redundant-undo-log")
            .to_str()
            .expect("UTF-8")
            .to_owned()
    })
}

#[track_caller]
fn compile(args: &[&str], source: &str, output: &Path) {
    let status = Command::new("cc")
        .args(["-g", "-Wall", "-Werror"])
        .args(args)
        .arg("-I")
        .arg(format!("{CRATE}/../../include"))
        .arg("-o")
        .arg(output)
        .arg(format!("{CRATE}/{source}"))
        .status()
        .expect("cc starts: it is what Rust links with");
    assert!(status.success());
}

/// A folder with `prog` in it, the program of `programs/undo.c`.
fn folder(flags: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    compile(flags, "tests/programs/undo.c", &folder.path().join("prog"));
    folder
}

/// Adds the rule in C, which fails at the program's marker.
fn rule_in_c(folder: &TempDir, macros: &[&str]) {
    let mut flags = vec!["-shared", "-fPIC", "-I../../include"];
    flags.extend(macros);
    let source = "../rule/tests/plugins/rule.c";
    compile(&flags, source, &folder.path().join("rule.so"));
}

fn brownout(folder: &TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_brownout"))
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap()
}

/// Checks the program with built-in rules about correctness, and with `options`. Returns exit
/// status and report.
fn check(folder: &TempDir, options: &[&str]) -> (Option<i32>, Value) {
    let mut args = vec![
        "check",
        "--only=correctness",
        "--format=json",
        "-o",
        "report",
    ];
    args.extend(options);
    if !options.contains(&"--trace") {
        args.extend(["--pm=*.pool", "--", "./prog", "a.pool"]);
    }
    let output = brownout(folder, &args);
    let report = fs::read_to_string(folder.path().join("report"));
    let report = report.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    fs::remove_file(folder.path().join("report")).unwrap();
    (output.status.code(), serde_json::from_str(&report).unwrap())
}

#[track_caller]
fn refused(folder: &TempDir, rules: &[&str], sentence: &str) {
    let mut args = vec!["check", "--pm=*.pool"];
    args.extend(rules.iter().flat_map(|rule| ["--rule", rule]));
    args.extend(["--", "./prog", "a.pool"]);
    let output = brownout(folder, &args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(sentence), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let pool = folder.path().join("a.pool");
    assert!(!pool.exists(), "the program was started");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The line of `programs/undo.c` with that marker.
fn line_of(marker: &str) -> u64 {
    let source = fs::read_to_string(format!("{CRATE}/tests/programs/undo.c")).unwrap();
    let at = source.lines().position(|line| line.contains(marker));
    at.expect("it is marked") as u64 + 1
}

fn rules(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect()
}

fn fingerprints(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| finding["fingerprint"].as_str().unwrap())
        .collect()
}

// ---------------------------------------------------------------- the examples

#[test]
fn redundant_undo_log_is_found_where_it_is() {
    let folder = folder(&["-DBUG"]);
    let options = ["--rule", redundant_undo_log(), "--fail-on=performance"];
    let (status, report) = check(&folder, &options);
    assert_eq!(status, Some(1));
    // `change` is called from two lines.
    assert_eq!(rules(&report), ["redundant-undo-log"; 2], "{report:#}");
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["severity"], "performance");
        assert_eq!(finding["count"], 1);
        assert_ne!(finding["fingerprint"], "");
        assert_eq!(
            finding["help"][0],
            "log the range once, before the first change to it"
        );
        let [again, first] = &finding["events"].as_array().unwrap()[..] else {
            panic!("{finding:#}")
        };
        for (event, function, marker, size) in [
            (again, "change", "@again", 8),
            (first, "main", "@first", 16),
        ] {
            assert_eq!(event["role"], "log");
            assert_eq!(event["stack"][0]["function"], function);
            assert_eq!(event["stack"][0]["line"], line_of(marker));
            assert_eq!(event["place"]["size"], size);
            assert!(
                event["place"]["file"]
                    .as_str()
                    .unwrap()
                    .ends_with("/a.pool")
            );
        }
    }
    let [a, b] = fingerprints(&report)[..] else {
        panic!()
    };
    assert_ne!(a, b);

    // People read the same, and are not sent to a page that does not exist.
    let mut args = vec!["check", "--only=correctness", "--pm=*.pool"];
    args.extend(options);
    args.extend(["--", "./prog", "a.pool"]);
    let stderr = text(&brownout(&folder, &args).stderr);
    assert!(
        stderr.contains("a transaction logs bytes that it has logged already"),
        "{stderr}"
    );
    assert!(
        !stderr.contains("brownout explain redundant-undo-log"),
        "{stderr}"
    );
}

#[test]
fn redundant_undo_log_passes_the_fixed_program() {
    let folder = folder(&[]);
    let (status, report) = check(
        &folder,
        &["--rule", redundant_undo_log(), "--fail-on=performance"],
    );
    assert_eq!(
        (status, &report["verdict"]),
        (Some(0), &Value::from("clean")),
        "{report:#}"
    );
}

#[test]
fn atomic_operation_asks_the_model() {
    let rule = format!("{}:variable=pool", example("atomic-operation").display());
    let (status, report) = check(&folder(&[]), &["--rule", &rule]);
    assert_eq!((status, rules(&report).len()), (Some(0), 0), "{report:#}");
    let (status, report) = check(&folder(&["-DOUTSIDE"]), &["--rule", &rule]);
    assert_eq!(
        (status, rules(&report)),
        (Some(1), vec!["atomic-operation"]),
        "{report:#}"
    );
    let message = &report["findings"][0]["message"];
    assert_eq!(message, "a structure is changed outside a transaction");
}

// ---------------------------------------------------------------- like all other findings

#[test]
fn recordings_and_suppressions_know_custom_rules() {
    let folder = folder(&["-DBUG"]);
    let live = [
        "--rule",
        redundant_undo_log(),
        "--save-trace",
        "t",
        "--gen-suppressions",
        "s",
    ];
    let (_, report) = check(&folder, &live);
    let (_, again) = check(&folder, &["--rule", redundant_undo_log(), "--trace", "t"]);
    assert_eq!(fingerprints(&report), fingerprints(&again));
    let (_, report) = check(
        &folder,
        &["--rule", redundant_undo_log(), "--suppressions", "s"],
    );
    assert_eq!(
        (rules(&report).len(), &report["suppressed"]),
        (0, &Value::from(2))
    );
    let unused = report["notes"].to_string();
    assert!(!unused.contains("not used"), "{unused}");
}

#[test]
fn options_reach_the_rule() {
    let folder = folder(&["-DBUG"]);
    let rule = format!("{}:ignore-below=9", redundant_undo_log());
    let (_, report) = check(&folder, &["--rule", &rule]);
    assert_eq!(rules(&report).len(), 0, "{report:#}");
}

#[test]
fn a_rule_that_fails_is_reported_and_the_check_goes_on() {
    let folder = folder(&["-DBUG"]);
    rule_in_c(&folder, &[]);
    let options = ["--rule", "rule.so", "--rule", redundant_undo_log()];
    let (status, report) = check(&folder, &options);
    assert_eq!((status, rules(&report).len()), (Some(0), 2), "{report:#}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("the rule c-rule failed and is off"),
        "{notes}"
    );
}

// ---------------------------------------------------------------- which are on

#[test]
fn rules_are_switched_by_their_names() {
    let folder = folder(&["-DBUG"]);
    let rule = build("tests/rules/counting", "counting");
    let both = [
        "--rule",
        redundant_undo_log(),
        "--rule",
        rule.to_str().expect("UTF-8"),
    ];
    let found = |edits: &[&str]| {
        let options: Vec<&str> = both.iter().chain(edits).copied().collect();
        let (_, report) = check(&folder, &options);
        let found = rules(&report).into_iter().map(str::to_owned);
        let mut found: Vec<String> = found.collect();
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(found(&[]), ["counting", "redundant-undo-log"]);
    assert_eq!(found(&["--disable", "counting"]), ["redundant-undo-log"]);
    assert_eq!(found(&["--only", "counting"]), ["counting"]);
    let but_one = ["--only", "empty-fence", "--disable", "redundant-undo-log"];
    assert_eq!(found(&but_one), ["counting"]);
    let again = ["--disable", "counting", "--enable", "counting"];
    assert_eq!(found(&again), ["counting", "redundant-undo-log"]);
    // A name that is nobody's is said with those that there are; without such rules, what is near.
    let refused = |options: &[&str]| {
        let mut args = vec!["check"];
        args.extend(options);
        args.extend(["--pm=*.pool", "--", "./prog", "a.pool"]);
        let output = brownout(&folder, &args);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let [_, path, ..] = both;
    let unknown = refused(&["--rule", path, "--disable", "redundant-log"]);
    assert!(
        unknown.contains("there is no rule 'redundant-log'")
            && unknown.contains("--rule loads redundant-undo-log"),
        "{unknown}"
    );
    let near = refused(&["--only", "mising-flush"]);
    assert!(near.contains("did you mean 'missing-flush'?"), "{near}");
}

/// The same for a search: the rules look at every run, and say it when they fail.
#[test]
fn a_search_has_custom_rules() {
    let folder = folder(&["-DBUG"]);
    rule_in_c(&folder, &[]);
    let rule = build("tests/rules/counting", "counting");
    let rule = format!("{}:ask", rule.to_str().expect("UTF-8"));
    let options = [
        "--rule",
        &rule,
        "--rule",
        redundant_undo_log(),
        "--rule",
        "rule.so",
    ];
    let search = |more: &[&str]| {
        let mut args = vec![
            "symex",
            "--stdin-symbolic=1",
            "--paths=2",
            "--only=correctness",
        ];
        args.extend(["--format=json", "-o", "report", "--pm=*.pool"]);
        args.extend(options.iter().chain(more));
        args.extend(["--", "./prog", "a.pool"]);
        let output = brownout(&folder, &args);
        let report = fs::read_to_string(folder.path().join("report"));
        let report = report.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        serde_json::from_str::<Value>(&report).unwrap()
    };
    let report = search(&[]);
    let found = rules(&report);
    assert!(
        found.contains(&"redundant-undo-log") && found.contains(&"counting"),
        "{report:#}"
    );
    assert!(
        report
            .to_string()
            .contains("2 stores, 2 with bytes, 2 loads"),
        "{report:#}"
    );
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("the rule c-rule failed and is off"),
        "{notes}"
    );
    let report = search(&["--disable=counting,c-rule"]);
    let found = rules(&report);
    assert!(
        !found.contains(&"counting") && !found.is_empty(),
        "{found:?}"
    );
}

// ---------------------------------------------------------------- what rules ask of the recording

#[test]
fn values_and_loads_come_to_a_rule_that_asks() {
    let folder = folder(&[]);
    let rule = build("tests/rules/counting", "counting");
    let rule = rule.to_str().expect("UTF-8");
    let given = |rule: &str| {
        let (_, report) = check(&folder, &["--rule", rule]);
        report["findings"][0]["notes"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(given(rule), "2 stores, 0 with bytes, 0 loads");
    assert_eq!(
        given(&format!("{rule}:ask")),
        "2 stores, 2 with bytes, 2 loads"
    );
}

#[test]
fn what_a_recording_lacks_is_said() {
    let folder = folder(&[]);
    let record = [
        "record",
        "--no-values",
        "-o",
        "t",
        "--pm=*.pool",
        "--",
        "./prog",
        "a.pool",
    ];
    assert_eq!(brownout(&folder, &record).status.code(), Some(0));
    for (needs, values, loads) in [(0, false, false), (1, true, false), (2, false, true)] {
        rule_in_c(&folder, &[&format!("-DNEEDS={needs}")]);
        let (_, report) = check(&folder, &["--rule", "rule.so", "--trace", "t"]);
        let notes = report["notes"].to_string();
        assert_eq!(
            notes.contains("recorded with --no-values"),
            values,
            "{notes}"
        );
        assert_eq!(notes.contains("recorded without --loads"), loads, "{notes}");
    }
}

// ---------------------------------------------------------------- before the program starts

#[test]
fn what_is_no_rule_is_refused() {
    let folder = folder(&[]);
    refused(
        &folder,
        &["none.so:x"],
        "cannot read the rule none.so: No such file or directory",
    );
    fs::write(folder.path().join("text"), "not a library").unwrap();
    refused(&folder, &["text"], "cannot load the rule");
    refused(&folder, &["prog"], "is a shared library but not a rule");
    let wrong = format!("{}:colour=red", redundant_undo_log());
    refused(
        &folder,
        &[&wrong],
        "\"colour=red\" is not of the form ignore-below=BYTES",
    );
}

#[test]
fn ids_are_taken_once() {
    let folder = folder(&[]);
    let mine = redundant_undo_log();
    refused(
        &folder,
        &[mine, mine],
        "two custom rules have the id redundant-undo-log",
    );
    rule_in_c(&folder, &["-DID=\"empty-fence\""]);
    refused(
        &folder,
        &["rule.so"],
        "the id empty-fence, which is a built-in rule's",
    );
}

#[test]
fn help_shows_the_form() {
    let folder = TempDir::new().unwrap();
    let help = text(&brownout(&folder, &["check", "--help"]).stdout);
    assert!(help.contains("--rule <FILE[:OPTIONS]>"), "{help}");
    let list = text(&brownout(&folder, &["explain"]).stdout);
    assert!(list.contains("'brownout check --rule FILE'"), "{list}");
}
