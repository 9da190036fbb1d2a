//! `brownout report`, and `--format html` of an analysis.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

fn brownout(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// As on a developer's own machine, wherever the tests run: in CI, having checked nothing is a
/// failure.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brownout"));
    command
        .current_dir(folder)
        .env_remove("CI")
        .args(["--no-config"])
        .args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn finding(fingerprint: &str, function: &str) -> Value {
    json!({
        "rule": "missing-flush", "severity": "correctness", "message": "8 bytes are stored, never written back",
        "fingerprint": fingerprint, "root_cause": fingerprint, "count": 1,
        "events": [{ "role": "store", "text": "8 bytes are stored here", "thread": 1, "index": 3,
            "place": { "file": "/pm/pool", "offset": 64, "size": 8, "address": 4096 },
            "stack": [{ "function": function, "file": "/src/list.c", "line": 7, "module": "/bin/list", "offset": 1, "inlined": false }] }],
    })
}

fn save(folder: &TempDir, name: &str, findings: Vec<Value>) {
    let verdict = if findings.is_empty() {
        "clean"
    } else {
        "findings"
    };
    let report = json!({
        "schema": 1, "tool": { "name": "brownout", "version": "0.1.0" },
        "analysed": { "analysis": "check", "program": ["./list"] },
        "verdict": verdict, "coverage": { "limitations": [] }, "findings": findings,
        "suppressed": 0, "known": 0, "statistics": {},
    });
    fs::write(folder.path().join(name), report.to_string()).unwrap();
}

/// What the page's script gets.
fn data(page: &str) -> Value {
    let start = "<script type=\"application/json\" id=\"data\">";
    let data = page
        .split(start)
        .nth(1)
        .unwrap()
        .split("</script>")
        .next()
        .unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn saved_reports_become_one_page() {
    let folder = TempDir::new().unwrap();
    save(&folder, "a.json", vec![finding("00000000000000aa", "push")]);
    save(
        &folder,
        "b.json",
        vec![
            finding("00000000000000aa", "push"),
            finding("00000000000000bb", "pop"),
        ],
    );
    let output = brownout(
        folder.path(),
        &["report", "a.json", "b.json", "-o", "all.html"],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        text(&output.stderr),
        "brownout: 2 reports with 3 findings in all.html\n"
    );
    let page = fs::read_to_string(folder.path().join("all.html")).unwrap();
    assert_eq!(data(&page)["findings"].as_array().unwrap().len(), 2);
    // To a pipe, the same.
    let piped = brownout(folder.path(), &["report", "a.json", "b.json"]);
    assert_eq!(text(&piped.stdout), page);
}

#[test]
fn a_comparison_fails_if_something_is_new() {
    let folder = TempDir::new().unwrap();
    save(
        &folder,
        "old.json",
        vec![
            finding("00000000000000aa", "push"),
            finding("00000000000000bb", "pop"),
        ],
    );
    save(
        &folder,
        "new.json",
        vec![
            finding("00000000000000bb", "pop"),
            finding("00000000000000cc", "merge"),
        ],
    );
    save(
        &folder,
        "fixed.json",
        vec![finding("00000000000000bb", "pop")],
    );
    let output = brownout(
        folder.path(),
        &[
            "report",
            "--compare",
            "old.json",
            "new.json",
            "-o",
            "c.html",
        ],
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = text(&output.stdout);
    let words: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(words, ["new", "still", "gone", "brownout:"], "{lines}");
    assert!(lines.contains("/src/list.c:7 in merge"), "{lines}");
    let page = fs::read_to_string(folder.path().join("c.html")).unwrap();
    let changes: Vec<Value> = data(&page)["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["change"].clone())
        .collect();
    assert_eq!(changes, ["new", "still there", "gone"]);
    for (old, new, code) in [
        ("old.json", "fixed.json", 0),
        ("fixed.json", "fixed.json", 0),
        ("fixed.json", "old.json", 1),
    ] {
        let output = brownout(folder.path(), &["report", "--compare", old, new]);
        assert_eq!(output.status.code(), Some(code), "{old} {new}");
    }
}

#[test]
fn what_is_no_report_is_named_with_the_way_out() {
    let folder = TempDir::new().unwrap();
    save(&folder, "good.json", vec![]);
    let good = fs::read_to_string(folder.path().join("good.json")).unwrap();
    for (name, content, says) in [
        ("empty.json", String::new(), "empty"),
        ("cut.json", good[..good.len() / 2].to_owned(), "cut off"),
        ("damaged.json", good.replace("\"clean\"", "17"), "damaged"),
        (
            "later.json",
            good.replace("\"schema\":1", "\"schema\":9"),
            "schema 9",
        ),
        (
            "sarif.json",
            r#"{"version":"2.1.0","runs":[]}"#.into(),
            "SARIF",
        ),
        ("foreign.json", "[1,2,3]".into(), "no report of Brownout's"),
        ("page.html", "<!doctype html>".into(), "HTML"),
        ("missing.json", "-".into(), "there is no such file"),
    ] {
        if content != "-" {
            fs::write(folder.path().join(name), content).unwrap();
        }
        for args in [
            &["report", "good.json", name, "-o", "out.html"][..],
            &["report", "--compare", name, "good.json"],
        ] {
            let output = brownout(folder.path(), args);
            assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
            let error = text(&output.stderr);
            assert!(
                error.starts_with("brownout: ") && error.contains(name) && error.contains(says),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
            assert_eq!(text(&output.stdout), "");
        }
        assert!(!folder.path().join("out.html").exists());
    }
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    let folder = TempDir::new().unwrap();
    save(&folder, "a.json", vec![]);
    for args in [
        &["report"][..],
        &["report", "--compare", "a.json"],
        &["report", "--compare", "a.json", "a.json", "a.json"],
        &["report", "a.json", "-o", "./a.json"],
        &["report", "a.json", "-o", "none/x.html"],
    ] {
        let output = brownout(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
    // The report is still what it was.
    let kept = fs::read_to_string(folder.path().join("a.json")).unwrap();
    assert!(kept.starts_with('{'));
}

/// A report may come from anybody: what it names is not read.
#[test]
fn no_file_that_a_saved_report_names_is_opened() {
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret.c");
    fs::write(&secret, "one\ntwo\nthree\nfour\nfive\nsix\nTOP SECRET\n").unwrap();
    let mut found = finding("00000000000000aa", "push");
    found["events"][0]["stack"][0]["file"] = secret.to_str().unwrap().into();
    save(&folder, "a.json", vec![found]);
    let output = brownout(folder.path(), &["report", "a.json"]);
    assert!(!text(&output.stdout).contains("TOP SECRET"));
}

#[test]
fn paths_are_shortened_everywhere() {
    let folder = TempDir::new().unwrap();
    let mut found = finding("00000000000000aa", "push");
    found["events"][0]["stack"][0]["file"] = "/home/ann/src/list.c".into();
    found["events"][0]["place"]["file"] = folder.path().join("pool").to_str().unwrap().into();
    found["replay"] = json!({ "token": "token", "command": "brownout replay token" });
    found["notes"] = json!(["see /home/ann/notes"]);
    save(&folder, "a.json", vec![found]);
    let plain = text(&brownout(folder.path(), &["report", "a.json"]).stdout);
    let here = folder.path().to_str().unwrap();
    assert!(plain.contains("/home/ann") && plain.contains(here) && plain.contains("replay token"));
    let short = brownout(folder.path(), &["report", "--redact-paths", "a.json"]);
    let short = text(&short.stdout);
    assert!(!short.contains("/home/ann") && !short.contains(here));
    assert!(!short.contains("replay token"));
    assert!(short.contains("see ~/notes"));
}

#[test]
fn a_browser_is_asked_to_show_the_page_and_its_absence_is_told() {
    let folder = TempDir::new().unwrap();
    save(&folder, "a.json", vec![]);
    let browser = folder.path().join("browser");
    fs::write(&browser, "#!/bin/sh\nprintf %s \"$1\" > \"$0.shown\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&browser, mode).unwrap();
    let args = ["report", "a.json", "-o", "page.html", "--open"];
    let shown = command(folder.path(), &args)
        .env("BROWSER", &browser)
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let page = folder.path().join("page.html").canonicalize().unwrap();
    let opened = fs::read_to_string(folder.path().join("browser.shown")).unwrap();
    assert_eq!(opened, page.to_str().unwrap());
    // The page is there all the same.
    for (browser, says) in [
        ("no-such-browser", "there is no"),
        ("false", "cannot show the page"),
    ] {
        fs::remove_file(&page).unwrap();
        let failed = command(folder.path(), &args)
            .env("BROWSER", browser)
            .output()
            .unwrap();
        assert_eq!(failed.status.code(), Some(0), "{failed:?}");
        let error = text(&failed.stderr);
        assert!(
            error.contains(says) && error.contains("page.html"),
            "{error}"
        );
        assert!(page.exists());
    }
    let without = brownout(folder.path(), &["report", "a.json", "--open"]);
    assert_eq!(without.status.code(), Some(2));
}

/// A program without persistent memory is enough to see that the form is there.
#[test]
fn an_analysis_writes_a_page() {
    let folder = TempDir::new().unwrap();
    let args = ["check", "--format", "html", "-o", "r.html", "--", "true"];
    // The page is there whether or not the status says that nothing was checked.
    for (ci, status) in [("false", 0), ("true", 3)] {
        let output = command(folder.path(), &args)
            .env("CI", ci)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
        assert!(page.contains("Nothing was checked"));
        assert!(
            page.contains(
                "<code>brownout --no-config check --format html -o r.html -- true</code>"
            )
        );
        assert!(page.contains("<dt>Persistency domain</dt><dd>x86</dd>"));
        fs::remove_file(folder.path().join("r.html")).unwrap();
    }
}
