//! What holds for every report, however strange.

mod support;

use std::sync::LazyLock;

use brownout_findings::Severity;
use brownout_report::{Format, Options, baseline, finish, json, suppress};
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::Value;
use support::{any_options, any_report, rendered};

fn validator(schema: &str) -> Validator {
    let mut schema = serde_json::from_str(schema).expect("the schema is JSON");
    // The official schema of SARIF has an unbalanced bracket in its pattern for `language`, which
    // we do not write.
    for part in ["run", "toolComponent"] {
        let language = format!("/definitions/{part}/properties/language");
        if let Some(Value::Object(language)) = Value::pointer_mut(&mut schema, &language) {
            language.remove("pattern");
        }
    }
    jsonschema::options()
        .should_validate_formats(true)
        .build(&schema)
        .expect("the schema is one")
}

static REPORT: LazyLock<Validator> =
    LazyLock::new(|| validator(include_str!("../../../schema/report.schema.json")));
static SARIF: LazyLock<Validator> =
    LazyLock::new(|| validator(include_str!("data/sarif-schema-2.1.0.json")));

/// What a validator objects to.
fn objections(validator: &Validator, text: &str) -> Vec<String> {
    let value = serde_json::from_str(text).expect("JSON");
    let shown = |error: jsonschema::ValidationError| format!("{}: {error}", error.instance_path());
    validator.iter_errors(&value).map(shown).collect()
}

/// The validators can object, formats included.
#[test]
fn validators_object_to_what_is_wrong() {
    let good = rendered(
        &support::report(
            brownout_findings::Verdict::Findings,
            vec![support::missing_flush(3)],
        ),
        Format::Sarif,
        &Options::default(),
    );
    assert_eq!(objections(&SARIF, &good), [""; 0]);
    for (from, to) in [
        ("\"startLine\":3", "\"startLine\":0"),
        ("\"level\":\"error\"", "\"level\":\"bad\""),
        ("\"uri\":\"src/list.c\"", "\"uri\":\"src/l st.c\""),
        ("\"ruleId\"", "\"ruleid\""),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        assert!(!objections(&SARIF, &bad).is_empty(), "{to}");
    }
    let good = rendered(
        &support::report(
            brownout_findings::Verdict::Findings,
            vec![support::missing_flush(3)],
        ),
        Format::Json,
        &Options::default(),
    );
    assert_eq!(objections(&REPORT, &good), [""; 0]);
    for (from, to) in [
        ("\"schema\": 1", "\"schema\": 2"),
        ("\"count\": 1", "\"count\": -1"),
        ("\"severity\"", "\"severities\""),
        ("\"offset\": 4355", "\"offset\": \"4355\""),
        ("\"verdict\": \"findings\"", "\"verdict\": \"Findings\""),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        assert!(!objections(&REPORT, &bad).is_empty(), "{to}");
    }
}

/// Removes the escape codes that colours need; whatever else is a control character stays.
fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        out += &rest[..at];
        let code = &rest[at + 2..];
        let end = code
            .find(|c: char| !c.is_ascii_digit() && c != ';')
            .unwrap_or(0);
        match code[end..].strip_prefix('m') {
            Some(after) => rest = after,
            None => {
                out.push('\x1b');
                rest = code;
            }
        }
    }
    out + rest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn json_comes_back_and_fits_its_schema(report in any_report()) {
        let text = rendered(&report, Format::Json, &Options::default());
        prop_assert_eq!(json::parse(text.as_bytes()).unwrap(), report);
        prop_assert_eq!(objections(&REPORT, &text), [""; 0]);
    }

    #[test]
    fn sarif_fits_its_schema_and_pleases_github(report in any_report(), options in any_options()) {
        let text = rendered(&report, Format::Sarif, &options);
        prop_assert_eq!(objections(&SARIF, &text), [""; 0]);
        let log: Value = serde_json::from_str(&text).unwrap();
        let run = &log["runs"][0];
        let results = run["results"].as_array().unwrap();
        prop_assert_eq!(results.len(), report.findings.len());
        for result in results {
            let index = result["ruleIndex"].as_u64().unwrap() as usize;
            prop_assert_eq!(&run["tool"]["driver"]["rules"][index]["id"], &result["ruleId"]);
            let steps = result["codeFlows"].as_array().into_iter().flatten()
                .flat_map(|flow| flow["threadFlows"].as_array().unwrap())
                .flat_map(|flow| flow["locations"].as_array().unwrap())
                .map(|step| &step["location"]);
            let related = result["relatedLocations"].as_array().into_iter().flatten();
            for location in result["locations"].as_array().unwrap().iter().chain(steps).chain(related) {
                let place = &location["physicalLocation"];
                prop_assert!(!place["artifactLocation"]["uri"].as_str().unwrap().is_empty());
                prop_assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
            }
        }
    }

    #[test]
    fn junit_parses_and_its_counts_are_right(report in any_report(), options in any_options()) {
        let text = rendered(&report, Format::Junit, &options);
        let xml = roxmltree::Document::parse(&text).unwrap();
        let all = |name| xml.descendants().filter(|node| node.has_tag_name(name)).collect::<Vec<_>>();
        let suite = all("testsuite")[0];
        for (attribute, element) in [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")] {
            let stated: usize = suite.attribute(attribute).unwrap().parse().unwrap();
            prop_assert_eq!(stated, all(element).len());
        }
        let counting = report.findings.iter().filter(|f| options.fail_on.counts(f));
        let failed: std::collections::BTreeSet<&str> = counting.map(|f| f.rule.as_str()).collect();
        prop_assert_eq!(failed.len(), all("failure").len());
    }

    #[test]
    fn people_see_no_control_characters(report in any_report(), options in any_options()) {
        let text = rendered(&report, Format::Terminal, &options);
        let plain = without_colours(&text);
        let hostile = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
        prop_assert!(!plain.contains(hostile), "{:?}", plain);
        prop_assert_eq!(options.colour || plain == text, true);
        prop_assert!(plain.lines().last().unwrap().starts_with("brownout: "));
        // A limit leaves findings to the table, which names places; without one each is there, in
        // full or in a line.
        let unlimited = Options { limit: None, ..options.clone() };
        let plain = without_colours(&rendered(&report, Format::Terminal, &unlimited));
        for finding in report.findings.iter().filter(|f| !f.fingerprint.is_empty()) {
            prop_assert!(plain.contains(&finding.fingerprint), "{} is gone", finding.fingerprint);
        }
        let text = rendered(&report, Format::Pmemcheck, &options);
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        let errors = report.findings.iter().filter(|f| f.severity == Severity::Correctness).count();
        let end = format!("ERROR SUMMARY: {errors} errors\n");
        prop_assert!(text.ends_with(&end));
    }

    #[test]
    fn a_report_as_its_own_baseline_leaves_nothing(report in any_report()) {
        let mut first = report.clone();
        finish(&mut first, None, None, suppress::today());
        let text = rendered(&first, Format::Json, &Options::default());
        let baseline = baseline::Baseline::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(baseline.len(), report.findings.len());
        let mut second = report.clone();
        second.findings.reverse();
        finish(&mut second, None, Some(&baseline), suppress::today());
        prop_assert!(second.findings.is_empty());
        prop_assert_eq!(second.known, report.known.saturating_add(report.findings.len() as u64));
    }

    #[test]
    fn generated_suppressions_leave_nothing(report in any_report()) {
        let mut first = report.clone();
        finish(&mut first, None, None, suppress::today());
        let text = suppress::generate(&first.findings);
        let suppressions = suppress::Suppressions::parse("g", &text).unwrap();
        let mut second = report;
        finish(&mut second, Some(&suppressions), None, suppress::today());
        prop_assert!(second.findings.is_empty(), "{}", text);
    }

    #[test]
    fn any_bytes_are_a_baseline_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        prop_assert!(baseline::Baseline::parse(&bytes).is_err());
        prop_assert!(json::parse(&bytes).is_err());
    }
}
