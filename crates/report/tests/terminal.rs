//! What people see. The snapshots are in `tests/snapshots`; `INSTA_UPDATE=always cargo test -p
//! brownout-report` accepts the output as it is now.

mod support;

use std::path::Path;
use std::time::{Duration, SystemTime};

use brownout_findings::{Finding, Frame, Limit, Report, Verdict};
use brownout_report::{Format, Options, fingerprint, finish, suppress};
use support::*;

const LIST_C: &str = "\
void push(struct list *list, struct node *node) {
	node->next = list->head;
	node->value = 1; // größer
	pmem_persist(&list->head, 8);
}
";

/// A folder with the sources that the findings name.
fn sources() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/list.c"), LIST_C).unwrap();
    folder
}

fn shown_with(mut report: Report, options: Options) -> String {
    finish(&mut report, None, None, suppress::today());
    rendered(&report, Format::Terminal, &options)
}

fn shown(folder: &Path, findings: Vec<Finding>) -> String {
    let options = Options {
        folder: Some(folder.into()),
        ..Options::default()
    };
    shown_with(report(Verdict::Findings, findings), options)
}

#[test]
fn a_finding_tells_its_story() {
    let folder = sources();
    insta::assert_snapshot!(shown(folder.path(), vec![missing_flush(3)]));
}

#[test]
fn threads_counts_replay_and_shared_callers() {
    let folder = sources();
    insta::assert_snapshot!(shown(folder.path(), vec![clean_flush()]));
}

#[test]
fn correctness_comes_first_and_causes_are_grouped() {
    let folder = sources();
    let mut other_rule = missing_flush(3);
    other_rule.rule = "overwritten-unpersisted".into();
    let findings = vec![
        clean_flush(),
        missing_flush(3),
        missing_flush(2),
        other_rule,
    ];
    insta::assert_snapshot!(shown(folder.path(), findings));
}

#[test]
fn a_crash_point_is_the_last_event() {
    let folder = sources();
    let mut made = missing_flush(2);
    made.events.pop();
    made.crash_point = Some(event("crash", "the power fails here", push_stack(4, 0)));
    insta::assert_snapshot!(shown(folder.path(), vec![made]));
}

#[test]
fn colours() {
    let folder = sources();
    let options = Options {
        colour: true,
        folder: Some(folder.path().into()),
        ..Options::default()
    };
    let text = shown_with(report(Verdict::Findings, vec![missing_flush(3)]), options);
    insta::assert_snapshot!(text.replace('\x1b', "ESC"));
}

#[test]
fn places_without_source_lines() {
    let folder = sources();
    let stripped = vec![
        bare(Some("__memmove_avx"), "/usr/lib/libc.so.6", 0x1234),
        bare(None, "/usr/lib/libpmemobj.so.1", 0x2345),
        bare(Some("commit"), "/usr/lib/libpmemobj.so.1", 0x3456),
    ];
    let mut called = stripped.clone();
    called.extend(push_stack(4, 2));
    let nowhere = brownout_findings::Frame {
        offset: 0x7fff_0000,
        ..Default::default()
    };
    let mut foreign = finding(
        "my-rule",
        "a rule of a plug-in",
        vec![event("store", "stored here", vec![nowhere])],
    );
    foreign.help = vec!["two\nlines\x1b[2J".into()];
    let findings = vec![
        finding(
            "empty-fence",
            "nothing to fence",
            vec![event("fence", "fenced here", called)],
        ),
        finding(
            "empty-fence",
            "nothing to fence",
            vec![event("fence", "fenced here", stripped)],
        ),
        foreign,
    ];
    insta::assert_snapshot!(shown(folder.path(), findings));
}

#[test]
fn files_that_have_changed() {
    let folder = sources();
    let module = folder.path().join("list");
    std::fs::write(&module, "").unwrap();
    let file = std::fs::File::options().write(true).open(&module).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
    let mut newer = missing_flush(3);
    newer.events[0].stack[0].module = Some(module.to_str().unwrap().into());
    let mut past_the_end = missing_flush(60);
    past_the_end.events[0].stack[0].function = Some("pop".into());
    let text = shown(folder.path(), vec![newer, past_the_end]);
    assert!(
        text.contains("= the file is newer than the program: lines may have moved"),
        "{text}"
    );
    assert!(
        text.contains("= the file has no line 60: it has changed since the build"),
        "{text}"
    );
}

#[test]
fn deep_stacks_are_cut_and_said_to_be() {
    let folder = sources();
    let mut deep = missing_flush(3);
    let recursion = std::iter::repeat_n(frame("walk", "src/tree.c", 7, 0), 200);
    deep.events[0].stack.splice(1..1, recursion);
    let text = shown(folder.path(), vec![deep]);
    assert_eq!(text.matches("by walk (src/tree.c:7)").count(), 12);
    assert!(
        text.contains("… 191 more frames (--all shows them)"),
        "{text}"
    );
}

/// Many distinct places, `per_cause` findings each.
fn many(count: u32, per_cause: u32) -> Vec<Finding> {
    let one = |at: u32| {
        let mut made = match at % 5 {
            0 => clean_flush(),
            _ => missing_flush(1),
        };
        let line = at / per_cause + 1;
        for frame in made.events.iter_mut().flat_map(|event| &mut event.stack) {
            if frame.function.as_deref() == Some("push") {
                frame.function = Some(format!("push_{line}"));
                frame.line = Some(line);
            }
        }
        made
    };
    (0..count).map(one).collect()
}

#[test]
fn many_findings_become_a_table() {
    let folder = sources();
    let options = Options {
        limit: Some(1),
        folder: Some(folder.path().into()),
        ..Options::default()
    };
    insta::assert_snapshot!(shown_with(report(Verdict::Findings, many(7, 1)), options));
}

#[test]
fn ten_thousand_findings_stay_readable_and_none_is_lost() {
    let mut all = report(Verdict::Findings, many(10_000, 1));
    finish(&mut all, None, None, suppress::today());
    let text = rendered(&all, Format::Terminal, &Options::default());
    assert_eq!(text.matches("= explain: ").count(), 100);
    assert!(
        text.contains("\n10,000 findings in 10,000 places:\n"),
        "{text}"
    );
    assert!(text.contains("\n  … 9,988 more\n\nlook first: at "));
    assert!(text.ends_with("\nbrownout: 8,000 correctness and 2,000 performance findings\n"));
    assert!(text.lines().count() < 100 * 20 + 30);
    let everything = rendered(&all, Format::Terminal, &Options::default().all());
    assert_eq!(everything.matches("= explain: ").count(), 10_000);
}

#[test]
fn findings_that_are_alike_are_told_once() {
    let folder = sources();
    let mut findings = Vec::new();
    for caller in ["a", "b", "c", "d", "e"] {
        let mut made = missing_flush(3);
        made.events[0].stack[1].function = Some(caller.into());
        findings.push(made);
    }
    // Another line of the same function, and more bytes.
    let mut other = missing_flush(2);
    other.message = "64 bytes are stored and not written back at the end".into();
    other.count = 3;
    findings.push(other);
    insta::assert_snapshot!(shown(folder.path(), findings));
}

/// The one rule is about the program, the other about what a library does inside, however often.
#[test]
fn the_table_begins_with_what_to_look_at_first() {
    let folder = sources();
    let mut inside = clean_flush();
    inside.events[0].stack.insert(
        0,
        Frame {
            function: Some("tx_commit".into()),
            module: Some("/usr/lib/libpmemobj.so.1".into()),
            ..Frame::default()
        },
    );
    inside.count = 1_000_000;
    let mut own = clean_flush();
    own.count = 7;
    let mut header = missing_flush(3);
    header.events[0]
        .stack
        .insert(0, frame("pm_set", "include/pm.h", 7, 3));
    let text = shown(folder.path(), vec![inside, own, header, missing_flush(2)]);
    let table = text.split_once(" places:\n").expect("a table").1;
    insta::assert_snapshot!(table);
}

#[test]
fn the_last_line_says_it_all() {
    let last = |verdict, findings: Vec<Finding>, suppressed, known| {
        let mut made = report(verdict, findings);
        fingerprint::assign(&mut made.findings);
        (made.suppressed, made.known) = (suppressed, known);
        let text = rendered(&made, Format::Terminal, &Options::default());
        text.lines().last().unwrap().to_owned()
    };
    let some = || vec![missing_flush(3), missing_flush(2), clean_flush()];
    for (line, expected) in [
        (last(Verdict::Clean, vec![], 0, 0), "brownout: no findings"),
        (
            last(Verdict::Clean, vec![], 1, 2000),
            "brownout: no findings (1 suppressed, 2,000 known)",
        ),
        (
            last(Verdict::Findings, some(), 0, 4),
            "brownout: 2 correctness and 1 performance findings (4 known)",
        ),
        (
            last(Verdict::NothingChecked, vec![], 0, 0),
            "brownout: no persistent memory was touched; see --pm",
        ),
        (
            last(Verdict::Incomplete, vec![], 0, 0),
            "brownout: incomplete: 0 correctness and 0 performance findings; the rest is unknown",
        ),
        (
            last(Verdict::Incomplete, some(), 3, 0),
            "brownout: incomplete: 2 correctness and 1 performance findings (3 suppressed); the rest is unknown",
        ),
    ] {
        assert_eq!(line, expected);
    }
}

/// What was not looked at has a line each, and is named in the last one.
#[test]
fn limits_are_told() {
    let shown = |verdict, findings: Vec<Finding>, accepted: &[Limit]| {
        let mut made = report(verdict, findings);
        made.coverage
            .limit(Limit::Sampled, "some \u{1b} were tried");
        made.coverage.limit(Limit::Time, "the time was up");
        made.coverage.accept(accepted);
        let text = rendered(&made, Format::Terminal, &Options::default());
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len() - 3..].join("\n")
    };
    assert_eq!(
        shown(Verdict::Incomplete, vec![], &[]),
        "limit[sampled]: some \\u{1b} were tried\nlimit[time]: the time was up\n\
         brownout: incomplete: 0 correctness and 0 performance findings; not all was looked at (sampled, time)"
    );
    assert_eq!(
        shown(Verdict::Clean, vec![], &[Limit::Sampled, Limit::Time]),
        "limit[sampled]: some \\u{1b} were tried (accepted)\nlimit[time]: the time was up (accepted)\n\
         brownout: no findings; accepted: sampled, time"
    );
    let some = shown(Verdict::Findings, vec![missing_flush(3)], &[Limit::Time]);
    assert!(some.ends_with(
        "brownout: 1 correctness and 0 performance findings; not all was looked at (sampled); accepted: time"
    ));
}

#[test]
fn notes_and_an_unhappy_end_are_told() {
    let mut made = report(Verdict::Clean, vec![]);
    made.notes = vec!["s.toml:3: the suppression was not used".into()];
    made.analysed.ended = Some("signal 11".into());
    assert_eq!(
        shown_with(made, Options::default()),
        "note: s.toml:3: the suppression was not used\nnote: the program ended with signal 11\nbrownout: no findings\n"
    );
}
