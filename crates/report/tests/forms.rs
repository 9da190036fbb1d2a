//! What programs read: SARIF, JUnit, pmemcheck's lines, baselines.

mod support;

use brownout_findings::{Excerpt, Report, SourceText, Verdict, rules};
use brownout_report::baseline::Baseline;
use brownout_report::suppress::{Suppressions, today};
use brownout_report::{Format, Options, finish};
use serde_json::{Value, json};
use support::*;

fn sample() -> Report {
    let mut made = report(Verdict::Findings, vec![missing_flush(3), clean_flush()]);
    finish(&mut made, None, None, today());
    made
}

fn sarif(report: &Report, folder: Option<&str>) -> Value {
    let options = Options {
        folder: folder.map(Into::into),
        ..Options::default()
    };
    serde_json::from_str(&rendered(report, Format::Sarif, &options)).unwrap()
}

#[test]
fn sarif_has_rules_levels_flows_and_fingerprints() {
    let report = sample();
    let run = &sarif(&report, None)["runs"][0];
    let listed = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(listed.len(), rules::RULES.len());
    assert!(
        listed
            .iter()
            .all(|rule| rule["help"]["markdown"].as_str().unwrap().starts_with("# "))
    );

    let error = &run["results"][0];
    assert_eq!(error["ruleId"], "missing-flush");
    assert_eq!(error["level"], "error");
    assert_eq!(
        error["partialFingerprints"]["brownout/v1"],
        report.findings[0].fingerprint
    );
    assert!(
        error["message"]["text"]
            .as_str()
            .unwrap()
            .contains("\nhelp: call pmem_persist")
    );
    let place = &error["locations"][0]["physicalLocation"];
    assert_eq!(place["region"], json!({ "startLine": 3, "startColumn": 9 }));
    assert_eq!(
        error["relatedLocations"][1]["message"]["text"],
        "the program ends"
    );

    let warning = &run["results"][1];
    assert_eq!(warning["level"], "warning");
    assert_eq!(warning["occurrenceCount"], 1234);
    // Two threads, the second event in the second one.
    let flows = &warning["codeFlows"][0]["threadFlows"];
    assert_eq!(flows[0]["id"], "thread 1");
    assert_eq!(flows[1]["locations"][0]["executionOrder"], 2);
    // The caller of libpmem is the place; the stack has all frames.
    assert_eq!(
        warning["locations"][0]["logicalLocations"][0]["fullyQualifiedName"],
        "push"
    );
    assert_eq!(warning["stacks"][0]["frames"].as_array().unwrap().len(), 6);
    assert_eq!(warning["properties"]["replay"]["token"], "b1:abc");
}

#[test]
fn sarif_uris_are_relative_below_the_folder() {
    let artifact = |file: &str, folder: Option<&str>| {
        let mut report = sample();
        report.findings.truncate(1);
        report.findings[0].events[0].stack[0].file = Some(file.into());
        let log = sarif(&report, folder);
        log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"].clone()
    };
    let folder = Some("/home/u/my project");
    for (file, expected) in [
        (
            "/home/u/my project/src/a b:c.c",
            json!({ "uri": "src/a%20b%3Ac.c", "uriBaseId": "%SRCROOT%" }),
        ),
        (
            "src/../src/ü.c",
            json!({ "uri": "src/%C3%BC.c", "uriBaseId": "%SRCROOT%" }),
        ),
        ("../other/a.c", json!({ "uri": "file:///home/u/other/a.c" })),
        (
            "/srv/include/a.h",
            json!({ "uri": "file:///srv/include/a.h" }),
        ),
    ] {
        assert_eq!(artifact(file, folder), expected, "{file}");
    }
    assert_eq!(
        artifact("/usr/a.h", None),
        json!({ "uri": "file:///usr/a.h" })
    );
    let log = sarif(&sample(), folder);
    assert_eq!(
        log["runs"][0]["originalUriBaseIds"]["%SRCROOT%"]["uri"],
        "file:///home/u/my%20project/"
    );
}

#[test]
fn sarif_says_when_a_run_was_cut_short() {
    let invocation = |verdict| {
        let log = sarif(&report(verdict, vec![]), None);
        log["runs"][0]["invocations"][0].clone()
    };
    assert_eq!(
        invocation(Verdict::Incomplete)["executionSuccessful"],
        false
    );
    assert_eq!(invocation(Verdict::Clean)["executionSuccessful"], true);
    let nothing = invocation(Verdict::NothingChecked);
    assert_eq!(nothing["toolExecutionNotifications"][0]["level"], "warning");
}

/// SARIF wants the stacks of a result to be unique, and two events can look the same.
#[test]
fn sarif_keeps_equal_stacks_apart() {
    let mut made = missing_flush(3);
    made.events[1] = made.events[0].clone();
    let log = sarif(&report(Verdict::Findings, vec![made]), None);
    let result = &log["runs"][0]["results"][0];
    for list in ["stacks", "relatedLocations"] {
        assert_eq!(result[list].as_array().unwrap().len(), 2, "{list}");
        assert_ne!(result[list][0], result[list][1], "{list}");
    }
}

/// Name and outcome of each case.
fn cases(report: &Report) -> Vec<(String, String)> {
    let text = rendered(report, Format::Junit, &Options::default());
    let xml = roxmltree::Document::parse(&text).unwrap();
    let outcome = |case: roxmltree::Node| {
        let child = case.children().find(|child| child.is_element());
        child.map_or("passed".into(), |child| child.tag_name().name().to_owned())
    };
    xml.descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .map(|case| (case.attribute("name").unwrap().to_owned(), outcome(case)))
        .collect()
}

#[test]
fn junit_has_a_case_for_each_rule_that_is_on() {
    let is_on = |rule: &&rules::Rule| rule.default_on && rule.analysis == rules::Analysis::Check;
    let on = rules::RULES.iter().filter(is_on).count();
    let clean = cases(&report(Verdict::Clean, vec![]));
    assert_eq!(clean.len(), on);
    assert!(clean.iter().all(|(_, outcome)| outcome == "passed"));

    let mut made = sample();
    let mut foreign = clean_flush();
    foreign.rule = "my-rule".into();
    made.findings.push(foreign);
    let found = cases(&made);
    assert_eq!(found.len(), on + 1);
    let failed: Vec<&str> = found
        .iter()
        .filter(|(_, outcome)| outcome == "failure")
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(failed, ["missing-flush"], "the others do not count");
}

#[test]
fn junit_passes_only_what_was_looked_at() {
    let nothing = cases(&report(Verdict::NothingChecked, vec![]));
    assert!(nothing.iter().all(|(_, outcome)| outcome == "skipped"));
    let cut = cases(&report(Verdict::Incomplete, vec![missing_flush(3)]));
    assert!(cut.iter().all(|(_, outcome)| outcome != "passed"));
    assert_eq!(
        cut.last().unwrap(),
        &("complete".to_owned(), "error".to_owned())
    );
}

#[test]
fn junit_text_has_the_finding() {
    insta::assert_snapshot!(rendered(&sample(), Format::Junit, &Options::default()));
}

#[test]
fn pmemcheck_lines() {
    let mut made = sample();
    for rule in [
        "tx-unlogged-store",
        "missing-fence",
        "double-flush",
        "not-ordered",
    ] {
        let mut more = missing_flush(4);
        more.rule = rule.into();
        more.severity = rules::find(rule).unwrap().severity;
        made.findings.push(more);
    }
    insta::assert_snapshot!(rendered(&made, Format::Pmemcheck, &Options::default()));
    let clean = rendered(
        &report(Verdict::Clean, vec![]),
        Format::Pmemcheck,
        &Options::default(),
    );
    assert_eq!(
        clean,
        "==0== Number of stores not made persistent: 0\n==0== ERROR SUMMARY: 0 errors\n"
    );
    let nothing = rendered(
        &report(Verdict::NothingChecked, vec![]),
        Format::Pmemcheck,
        &Options::default(),
    );
    assert!(nothing.contains("Warning: no persistent memory was touched"));
}

#[test]
fn a_baseline_leaves_new_findings_only() {
    let old = sample();
    let baseline =
        Baseline::parse(rendered(&old, Format::Json, &Options::default()).as_bytes()).unwrap();
    // Lines have moved, and there is a new finding.
    let mut new = missing_flush(2);
    new.events[0].stack[0].function = Some("pop".into());
    let mut now = report(
        Verdict::Findings,
        vec![missing_flush(33), new, clean_flush()],
    );
    finish(&mut now, None, Some(&baseline), today());
    assert_eq!(now.findings.len(), 1);
    assert_eq!(
        now.findings[0].events[0].stack[0].function.as_deref(),
        Some("pop")
    );
    assert_eq!(
        (now.known, now.gone, now.verdict),
        (2, Some(0), Verdict::Findings)
    );
    let mut same = report(Verdict::Findings, vec![missing_flush(33)]);
    finish(&mut same, None, Some(&baseline), today());
    assert_eq!(
        (same.known, same.gone, same.verdict),
        (1, Some(1), Verdict::Clean)
    );
    // A report that was made against a baseline is an incomplete one itself.
    let chained =
        Baseline::parse(rendered(&now, Format::Json, &Options::default()).as_bytes()).unwrap();
    assert!(chained.note().is_some() && baseline.note().is_none());
}

/// The lines of the file that findings by [`missing_flush`] are in.
fn sources(text: &[&str]) -> Vec<SourceText> {
    vec![SourceText {
        file: "src/list.c".into(),
        newer: false,
        excerpts: vec![Excerpt {
            line: 1,
            text: text.iter().map(|line| (*line).to_owned()).collect(),
        }],
    }]
}

#[test]
fn a_baseline_does_not_hide_what_was_made_where_something_else_was_mended() {
    let text = [
        "{",
        "p->a = 1;",
        "persist(p);",
        "p->b = 1;",
        "persist(p);",
        "}",
    ];
    let mut old = report(Verdict::Findings, vec![missing_flush(2)]);
    old.sources = sources(&text);
    finish(&mut old, None, None, today());
    let baseline =
        Baseline::parse(rendered(&old, Format::Json, &Options::default()).as_bytes()).unwrap();
    let at = |line: u32, sources: Vec<SourceText>| {
        let mut now = report(Verdict::Findings, vec![missing_flush(line)]);
        now.sources = sources;
        finish(&mut now, None, Some(&baseline), today());
        (now.findings.len(), now.known)
    };
    assert_eq!(at(2, sources(&text)), (0, 1));
    assert_eq!(at(4, sources(&text)), (1, 0));
    // Without the lines nobody can know.
    assert_eq!(at(4, Vec::new()), (0, 1));
}

#[test]
fn what_is_no_baseline_is_refused() {
    let says = |text: &str| Baseline::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(says("{}").contains("missing field `schema`"));
    assert!(says("[[suppress]]").contains("no report of the form json"));
    assert!(says(r#"{"schema": 99, "findings": []}"#).contains("take a newer version"));
    let missing = Baseline::load(std::path::Path::new("/nonexistent/b.json")).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("/nonexistent/b.json: the baseline cannot be read")
    );
}

#[test]
fn finish_sorts_counts_notes_and_settles_the_verdict() {
    let text = "[[suppress]]\nrule = 'clean-flush'\n[[suppress]]\nrule = 'fresh-log'\n\
                [[suppress]]\nrule = 'missing-flush'\nexpires = 2001-01-01\n";
    let suppressions = Suppressions::parse("s.toml", text).unwrap();
    let run = |verdict, findings| {
        let mut made = report(verdict, findings);
        finish(&mut made, Some(&suppressions), None, today());
        made
    };
    // JSON has no order but this one.
    let mut unsorted = report(
        Verdict::Findings,
        vec![
            clean_flush(),
            missing_flush(3),
            missing_flush(2),
            missing_flush(3),
        ],
    );
    unsorted.findings[3].rule = "missing-fence".into();
    finish(&mut unsorted, None, None, today());
    let order: Vec<&str> = unsorted.findings.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(
        order,
        [
            "missing-flush",
            "missing-fence",
            "missing-flush",
            "clean-flush"
        ]
    );

    let made = run(Verdict::Clean, vec![clean_flush(), missing_flush(3)]);
    assert_eq!(
        (made.suppressed, made.findings.len(), made.verdict),
        (1, 1, Verdict::Findings)
    );
    assert_eq!(
        made.notes,
        [
            "s.toml:5: the suppression expired on 2001-01-01 and hides nothing",
            "s.toml:3: the suppression was not used",
        ]
    );
    assert_eq!(
        run(Verdict::Findings, vec![clean_flush()]).verdict,
        Verdict::Clean
    );
    assert_eq!(
        run(Verdict::Incomplete, vec![clean_flush()]).verdict,
        Verdict::Incomplete
    );
    assert_eq!(
        run(Verdict::NothingChecked, vec![]).verdict,
        Verdict::NothingChecked
    );
}
