//! The page: what it is made of, that nothing of a program's gets out of its place, and how large
//! it is.

mod support;

use std::cell::RefCell;

use brownout_findings::touched::{Adding, Touch};
use brownout_findings::{
    CrashFile, Effort, Excerpt, Fate, Finding, Frame, Limit, NothingLost, Origin, Report,
    Reproduction, Role, Severity, Sketch, SourceText, Timeline, TimelineStep, Verdict, rules,
};
use brownout_report::compare::{Change, Comparison};
use brownout_report::html::campaign::{Campaign, Image, Moment, Way};
use brownout_report::suppress::today;
use brownout_report::{Format, Options, finish, html};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use proptest::prelude::*;
use serde_json::Value;
use support::*;

// ------------------------------------------------------------------ reading

/// A page as a browser reads it: tags with their attributes, and what stands in the elements that
/// hold text only.
#[derive(Default)]
struct Read {
    tags: RefCell<Vec<String>>,
    inside: RefCell<Option<String>>,
    scripts: RefCell<Vec<String>>,
    style: RefCell<String>,
    text: RefCell<String>,
    errors: RefCell<Vec<String>>,
    comments: RefCell<usize>,
}

impl TokenSink for Read {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) => {
                let name = tag.name.to_string();
                let end = matches!(tag.kind, TagKind::EndTag);
                let attributes = tag
                    .attrs
                    .iter()
                    .map(|a| format!(" {}={:?}", &*a.name.local, &*a.value));
                let slash = if end { "/" } else { "" };
                self.tags
                    .borrow_mut()
                    .push(format!("<{slash}{name}{}>", attributes.collect::<String>()));
                *self.inside.borrow_mut() = (!end).then(|| name.clone());
                if !end {
                    match name.as_str() {
                        "script" => {
                            self.scripts.borrow_mut().push(String::new());
                            return TokenSinkResult::RawData(RawKind::ScriptData);
                        }
                        "style" => return TokenSinkResult::RawData(RawKind::Rawtext),
                        "title" => return TokenSinkResult::RawData(RawKind::Rcdata),
                        _ => {}
                    }
                }
            }
            Token::CharacterTokens(text) => match self.inside.borrow().as_deref() {
                Some("script") => {
                    if let Some(script) = self.scripts.borrow_mut().last_mut() {
                        *script += &text;
                    }
                }
                Some("style") => *self.style.borrow_mut() += &text,
                _ => *self.text.borrow_mut() += &text,
            },
            Token::NullCharacterToken => self.errors.borrow_mut().push("NUL".into()),
            Token::CommentToken(_) => *self.comments.borrow_mut() += 1,
            Token::ParseError(error) => self.errors.borrow_mut().push(error.into_owned()),
            Token::DoctypeToken(_) | Token::EOFToken => {}
        }
        TokenSinkResult::Continue
    }
}

fn read(page: &str) -> Read {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(page));
    let tokenizer = Tokenizer::new(
        Read::default(),
        TokenizerOpts {
            exact_errors: true,
            ..TokenizerOpts::default()
        },
    );
    // The sink never stops it, so it ends when all is read.
    let _ = tokenizer.feed(&input);
    assert!(input.is_empty());
    tokenizer.end();
    tokenizer.sink
}

fn page(reports: &[Report]) -> String {
    let mut out = Vec::new();
    html::render(reports, &Options::default(), &mut out).expect("writing to memory");
    String::from_utf8(out).expect("UTF-8")
}

/// The data that the page's script reads.
fn data(page: &str) -> Value {
    let read = read(page);
    let scripts = read.scripts.borrow();
    assert_eq!(scripts.len(), 2, "the data and the script");
    serde_json::from_str(&scripts[0]).expect("the data is JSON")
}

fn strings(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(fields) => fields.values().for_each(|item| strings(item, out)),
        _ => {}
    }
}

fn sample() -> Report {
    let mut made = report(Verdict::Findings, vec![missing_flush(3), clean_flush()]);
    made.sources = vec![SourceText {
        file: "src/list.c".into(),
        newer: false,
        excerpts: vec![Excerpt {
            line: 1,
            text: ["void push(void)", "{", "    node->value = 1;", "}"]
                .map(String::from)
                .to_vec(),
        }],
    }];
    finish(&mut made, None, None, today());
    made
}

/// A report in which every text that can come from a program, or from somebody's rule, is the same.
fn all_of(text: &str) -> Report {
    let mut found = missing_flush(3);
    found.rule = text.into();
    found.message = text.into();
    found.help = vec![text.into()];
    found.notes = vec![text.into()];
    found.fingerprint = text.into();
    found.replay = Some(brownout_findings::Replay {
        token: text.into(),
        command: text.into(),
    });
    found.reproduction = Some(Reproduction {
        files: vec![CrashFile {
            path: text.into(),
            image: Some(text.into()),
        }],
        command: text.into(),
        gdb: text.into(),
        status: text.into(),
        stdout: text.into(),
        confirmed: true,
    });
    for event in &mut found.events {
        event.text = text.into();
        if let Some(place) = &mut event.place {
            place.file = text.into();
            place.name = Some(text.into());
        }
        for frame in &mut event.stack {
            frame.function = Some(text.into());
            frame.file = Some(text.into());
            frame.module = Some(text.into());
        }
    }
    found.crash_point = Some(event(Role::Crash.name(), text, Vec::new()));
    found.origins = vec![Origin {
        test: Some(text.into()),
        runner: Some(text.into()),
        command: vec![text.into()],
        folder: Some(text.into()),
        pid: Some(7),
    }];
    found.sketch = Some(Sketch {
        file: text.into(),
        line: 2,
        text: text.into(),
    });
    found.timeline = Some(Timeline {
        steps: vec![TimelineStep {
            role: Role::Store,
            thread: 1,
            index: 1,
            place: found.events[0].place.clone(),
            fate: Some(Fate::Lost),
            at: text.into(),
            skipped: 3,
        }],
        nothing_lost: Some(NothingLost {
            status: text.into(),
            symptom: Some(text.into()),
        }),
    });
    let effort = Effort {
        needless: 1,
        stack: found.events[0].stack.clone(),
        ..Effort::default()
    };
    let mut made = report(Verdict::Findings, vec![found]);
    made.tool.version = text.into();
    made.analysed.program = vec![text.into(), text.into()];
    made.analysed.command = vec![text.into()];
    made.analysed.domain = Some(text.into());
    made.analysed.ended = Some(text.into());
    made.analysed.trace = Some(text.into());
    made.analysed.analysis = text.into();
    made.coverage.limit(Limit::Time, text);
    made.notes = vec![text.into()];
    made.statistics.insert(text.into(), text.into());
    let effort = serde_json::to_value([effort]).expect("it is JSON");
    made.statistics.insert(Effort::STATISTIC.into(), effort);
    let mut adding = Adding::default();
    adding.at(&made.findings[0].events[0].stack, [(Touch::Stores, 1)]);
    made.touched = Some(adding.total());
    made.sources = vec![SourceText {
        file: text.into(),
        newer: true,
        excerpts: vec![Excerpt {
            line: 1,
            text: vec![text.into(); 5],
        }],
    }];
    made
}

// -------------------------------------------------------------------- form

#[test]
fn a_page_has_its_parts() {
    let page = page(&[sample()]);
    let read = read(&page);
    assert_eq!(read.errors.take(), [""; 0]);
    let tags = read.tags.borrow();
    for part in [
        "<html lang=\"en\">",
        "<section id=\"overview\" aria-label=\"Overview\">",
        "<h2 id=\"verdict\">",
        "<nav id=\"list\" aria-label=\"List of findings\" tabindex=\"-1\">",
        "<article id=\"finding\" aria-live=\"off\" tabindex=\"-1\">",
        "<template id=\"rule-missing-flush\">",
        "<template id=\"rule-clean-flush\">",
        "<dialog id=\"help\" aria-labelledby=\"help-heading\">",
        "<script type=\"application/json\" id=\"data\">",
    ] {
        assert!(tags.iter().any(|tag| tag == part), "{part}");
    }
    // The pages of rules that nothing is about stay out.
    let pages = tags
        .iter()
        .filter(|tag| tag.starts_with("<template"))
        .count();
    assert_eq!(pages, 2);
    let text = read.text.borrow();
    for words in [
        "1 correctness and 1 performance findings",
        "check of ./list pool",
        "brownout 0.1.0",
        "exit code 0",
    ] {
        assert!(text.contains(words), "{words}");
    }
    let data = data(&page);
    let first = &data["findings"][0];
    assert_eq!(first["rule"], "missing-flush");
    assert_eq!(first["at"], "src/list.c:3:9 in push");
    assert_eq!(first["events"][0]["place"], "pool+0x1040..0x1048");
    assert_eq!(first["pictures"][0]["rows"][0]["offset"], "1040");
    let frame = data["stacks"][first["events"][0]["stack"].as_u64().unwrap() as usize][0]
        .as_u64()
        .unwrap();
    assert_eq!(data["frames"][frame as usize]["function"], "push");
    assert_eq!(
        data["reports"][0]["sources"][0]["excerpts"][0]["text"][2],
        "    node->value = 1;"
    );
}

#[test]
fn every_label_and_every_id_that_is_named_is_there() {
    let page = page(&[sample()]);
    let read = read(&page);
    let tags = read.tags.borrow();
    let script = &read.scripts.borrow()[1];
    let ids: Vec<&str> = tags
        .iter()
        .filter_map(|tag| tag.split(" id=\"").nth(1)?.split('"').next())
        .collect();
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[..at].contains(id), "{id} is there twice");
    }
    for wanted in script
        .split("byId('")
        .skip(1)
        .filter_map(|rest| rest.split('\'').next())
    {
        assert!(ids.contains(&wanted), "the script looks for {wanted}");
    }
    for tag in tags.iter() {
        for name in ["aria-labelledby=\"", "href=\"#"] {
            if let Some(id) = tag
                .split(name)
                .nth(1)
                .and_then(|rest| rest.split('"').next())
            {
                assert!(ids.contains(&id), "{tag}");
            }
        }
    }
    // Each control is inside a label or has words of its own.
    assert!(
        tags.iter()
            .filter(|tag| tag.starts_with("<select") || tag.starts_with("<input"))
            .count()
            >= 5
    );
    assert_eq!(
        tags.iter().filter(|tag| tag.starts_with("<label")).count(),
        5
    );
}

/// Nothing is fetched, and nothing runs but the one script, which the policy names by its hash.
#[test]
fn the_page_asks_for_nothing_and_the_policy_allows_nothing_else() {
    use base64::Engine as _;
    use sha2::Digest as _;
    let page = page(&[sample()]);
    let read = read(&page);
    let hash = |text: &str| {
        let hash = sha2::Sha256::digest(text.as_bytes());
        base64::engine::general_purpose::STANDARD.encode(hash)
    };
    let tags = read.tags.borrow();
    let policy = tags
        .iter()
        .find(|tag| tag.contains("Content-Security-Policy"))
        .expect("a policy");
    assert!(policy.contains("default-src 'none'"));
    assert!(policy.contains("require-trusted-types-for 'script'"));
    let script = format!("script-src 'sha256-{}';", hash(&read.scripts.borrow()[1]));
    let style = format!("style-src 'sha256-{}';", hash(&read.style.borrow()));
    assert!(
        policy.contains(&script) && policy.contains(&style),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"));
    for tag in tags.iter() {
        for wrong in [
            " src=", " style=", " on", "<link", "<iframe", "<object", "<embed", "<base", "<img",
            "http:", "https:",
        ] {
            assert!(!tag.contains(wrong), "{tag}");
        }
    }
    let (script, style) = (&read.scripts.borrow()[1], read.style.borrow());
    for wrong in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "WebSocket",
    ] {
        assert!(!script.contains(wrong), "{wrong}");
    }
    for wrong in ["url(", "@import", "@font-face", "expression("] {
        assert!(!style.contains(wrong), "{wrong}");
    }
}

#[test]
fn the_page_itself_is_small() {
    let page = page(&[report(Verdict::Clean, vec![])]);
    assert!(page.len() < 128 << 10, "{} bytes", page.len());
    // With the pages of all rules.
    let all = rules::RULES
        .iter()
        .map(|rule| finding(rule.id, "found", vec![]))
        .collect();
    let made = self::page(&[report(Verdict::Findings, all)]);
    assert!(made.len() < html::OWN_BYTES_MAX / 2, "{} bytes", made.len());
}

/// Most of what many findings say is shared.
#[test]
fn ten_thousand_findings_are_not_larger_than_they_need_be() {
    let findings: Vec<_> = (0..10_000u32)
        .map(|number| {
            let mut made = missing_flush(3 + number % 50);
            made.fingerprint = format!("{number:016x}");
            made
        })
        .collect();
    let report = report(Verdict::Findings, findings);
    let json = rendered(&report, Format::Json, &Options::default());
    let page = rendered(&report, Format::Html, &Options::default());
    assert!(page.len() < 10_000 * 1500, "{} bytes", page.len());
    assert!(
        page.len() < json.len() / 2,
        "{} of {}",
        page.len(),
        json.len()
    );
    assert_eq!(data(&page)["findings"].as_array().unwrap().len(), 10_000);
}

#[test]
fn verdicts_claim_no_more_than_was_looked_at() {
    let text = |reports: &[Report]| {
        let page = page(reports);
        read(&page).text.take()
    };
    let clean = report(Verdict::Clean, vec![]);
    let mut cut = report(Verdict::Incomplete, vec![]);
    cut.coverage.limit(Limit::Time, "the time was up");
    let nothing = report(Verdict::NothingChecked, vec![]);
    assert!(text(std::slice::from_ref(&clean)).contains("No findings"));
    let shown = text(std::slice::from_ref(&cut));
    assert!(
        shown.contains("Incomplete")
            && shown.contains("time: the time was up")
            && !shown.contains("No findings")
    );
    assert!(text(std::slice::from_ref(&nothing)).contains("Nothing was checked"));
    let several = text(&[clean.clone(), cut.clone(), nothing.clone()]);
    assert!(several.contains("Incomplete") && !several.contains("No findings"));
    assert!(
        several.contains("1 did not look at everything")
            && several.contains("1 touched no persistent memory")
    );
    assert!(text(&[clean.clone(), nothing]).contains("Nothing was checked"));
    assert!(text(&[clean.clone(), clean]).contains("no findings in any of them"));
    assert!(text(&[cut, sample()]).contains("1 did not look at everything"));
}

/// Who sees the page for a second knows how bad it is: by a word, a shape and a colour.
#[test]
fn the_verdict_is_as_bad_as_the_worst_finding() {
    let of = |severities: &[Severity]| {
        let finding = |severity: &Severity| Finding::new("some-rule", *severity, "m");
        report(Verdict::Findings, severities.iter().map(finding).collect())
    };
    use Severity::*;
    let all: [(&[Severity], &str, &str); 4] = [
        (
            &[Performance, Correctness, Warning],
            "verdict findings",
            "✖ Correctness findings",
        ),
        (&[Performance, Warning], "verdict warnings", "▲ Warnings"),
        (
            &[Performance],
            "verdict performance",
            "◆ Performance findings",
        ),
        (&[], "verdict findings", "✖ Findings"),
    ];
    for (severities, class, words) in all {
        let page = page(&[of(severities)]);
        let read = read(&page);
        assert!(
            page.contains(&format!("<div class=\"{class}\">")),
            "{class}"
        );
        assert!(read.text.borrow().contains(words), "{words}");
    }
    let mut cut = of(&[Performance]);
    cut.verdict = Verdict::Incomplete;
    assert!(page(&[cut]).contains("<div class=\"verdict incomplete\">"));
}

#[test]
fn what_has_changed_since_the_baseline_is_told() {
    let text = |report: &Report| {
        let page = page(std::slice::from_ref(report));
        read(&page).text.take()
    };
    let mut with = sample();
    assert!(!text(&with).contains("Since the baseline"));
    let new = with.findings.len();
    (with.known, with.gone) = (3, Some(0));
    assert!(text(&with).contains(&format!("{new} new, 3 known, 0 gone")));
    with.gone = Some(1200);
    let told = text(&with);
    assert!(told.contains("Since the baseline"));
    assert!(told.contains("3 known, 1,200 gone: mended or suppressed, or the run"));
}

/// What was not reached stands beside what was, in both forms.
#[test]
fn lines_that_could_persist_are_in_the_page() {
    let frame = |line| Frame {
        file: Some("/s/a.c".into()),
        line: Some(line),
        ..Frame::default()
    };
    let mut adding = Adding::default();
    adding.at(&[frame(9)], [(Touch::Flushes, 2)]);
    adding.could(&[frame(9)], Touch::Fences);
    adding.could(&[frame(20)], Touch::Flushes);
    let mut with = sample();
    with.touched = Some(adding.total());
    let touched = &data(&page(&[with]))["touched"];
    assert_eq!(touched["sorts"], serde_json::json!(["flushes", "fences"]));
    let lines = touched["files"][0]["lines"].as_array().unwrap();
    let times: Vec<(&Value, &Value)> = lines.iter().map(|l| (&l["line"], &l["times"])).collect();
    let (both, none) = (
        serde_json::json!({ "flushes": "2", "fences": "0" }),
        serde_json::json!({ "flushes": "0" }),
    );
    assert_eq!(times, [(&Value::from(9), &both), (&Value::from(20), &none)]);
}

#[test]
fn what_several_reports_have_is_shown_once() {
    let one = sample();
    let mut two = sample();
    two.findings.remove(0);
    two.analysed.program = vec!["./other".into()];
    let data = data(&page(&[one, two]));
    let reports: Vec<&Value> = data["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| &f["reports"])
        .collect();
    assert_eq!(
        reports,
        [&serde_json::json!([0]), &serde_json::json!([0, 1])]
    );
    assert_eq!(data["reports"][1]["title"], "check of ./other");
    // As often as all have seen it, and in each of their programs.
    let both = &data["findings"][1];
    assert_eq!(both["seen"], "2,468");
    let programs: Vec<&Value> = (both["origins"].as_array().unwrap().iter())
        .map(|origin| &origin["command"][0])
        .collect();
    assert_eq!(programs, ["./list", "./other"]);
}

// ----------------------------------------------------------------- hostile

/// Text that tries to become a part of the page. The browser suite has the same.
fn payloads() -> Vec<String> {
    let text = include_str!("data/payloads.json");
    let mut all: Vec<String> = serde_json::from_str(text).expect("a list of texts");
    // Names that are no UTF-8 are replaced before they come here.
    all.push(String::from_utf8_lossy(b"a\xff\xc0\x80\xed\xa0\x80</script>").into_owned());
    all
}

/// The page of a hostile report has exactly the tags of a harmless one, and its data has the text
/// as it was.
#[test]
fn nothing_of_a_program_becomes_part_of_the_page() {
    let harmless = read(&page(&[all_of("x")])).tags.take();
    let payloads = payloads();
    assert!(payloads.len() >= 40);
    for payload in payloads {
        let start: String = payload.chars().take(60).collect();
        let report = all_of(&payload);
        let page = page(std::slice::from_ref(&report));
        let read = read(&page);
        assert_eq!(read.errors.take(), [""; 0], "{start:?}");
        assert_eq!(*read.comments.borrow(), 0, "{start:?}");
        let tags = read.tags.borrow();
        if !payload.is_empty() {
            assert_eq!(*tags, harmless, "{start:?}");
        }
        // Whatever changes how text is shown is an escape, in the page's source, too.
        assert!(
            page.chars().all(|c| c == '\n' || !is_unseen(c)),
            "{start:?}"
        );
        let mut found = Vec::new();
        strings(&data(&page), &mut found);
        let same = found.iter().filter(|text| **text == payload).count();
        assert!(same >= 15, "{start:?}: {same}");
    }
}

fn campaign(text: &str) -> Campaign {
    let moment = |seconds| Moment {
        seconds,
        executions: 3,
        coverage: vec![(text.into(), 2)],
        findings: vec![(text.into(), 1)],
        is_first: true,
    };
    let image = |number, parent, way| Image {
        number,
        parent,
        way,
        origin: text.into(),
        cases: 1,
        findings: vec![text.into()],
    };
    Campaign {
        title: text.into(),
        folder: text.into(),
        is_running: Some(true),
        moments: vec![moment(0.0), moment(1.5)],
        images: vec![image(0, None, Way::Root), image(1, Some(0), Way::Crash)],
        is_of_paths: false,
    }
}

fn page_of_campaign(text: &str, is_watched: bool) -> String {
    let mut out = Vec::new();
    html::render_with(
        &[all_of(text)],
        &[campaign(text)],
        is_watched,
        &Options::default(),
        &mut out,
    )
    .expect("writing to memory");
    String::from_utf8(out).expect("UTF-8")
}

/// Names of figures, folders and inputs of a campaign are no more trusted than those of a program.
#[test]
fn nothing_of_a_campaign_becomes_part_of_the_page() {
    let harmless = read(&page_of_campaign("x", false)).tags.take();
    for payload in payloads() {
        let start: String = payload.chars().take(60).collect();
        let page = page_of_campaign(&payload, false);
        let read = read(&page);
        assert_eq!(read.errors.take(), [""; 0], "{start:?}");
        if !payload.is_empty() {
            assert_eq!(*read.tags.borrow(), harmless, "{start:?}");
        }
        let shown = &data(&page)["campaigns"][0];
        for text in [
            &shown["title"],
            &shown["folder"],
            &shown["curves"][1]["name"],
            &shown["tree"][1]["origin"],
            &shown["tree"][1]["findings"][0],
        ] {
            assert_eq!(text.as_str(), Some(payload.as_str()), "{start:?}");
        }
        let reports = [all_of(&payload)];
        let now = html::watched(&reports, &[campaign(&payload)]).expect("it is JSON");
        assert!(now.chars().all(|c| !is_unseen(c)), "{start:?}");
        let now: Value = serde_json::from_str(&now).expect("it is JSON");
        assert_eq!(now["campaigns"][0], *shown, "{start:?}");
    }
}

/// Only a page that is served may ask, and only its server.
#[test]
fn only_a_watched_page_may_ask_its_server() {
    let policy = |page: &str| {
        let tags = read(page).tags.take();
        let tag = tags
            .iter()
            .find(|tag| tag.contains("Content-Security-Policy"));
        tag.expect("a policy").clone()
    };
    let (file, served) = (page_of_campaign("x", false), page_of_campaign("x", true));
    assert!(!policy(&file).contains("connect-src"));
    assert!(policy(&served).contains("connect-src 'self';"));
    assert_eq!(read(&file).scripts.borrow().len(), 2);
    assert_eq!(read(&served).scripts.borrow().len(), 3);
    assert!(!file.contains("fetch("));
    // What tells the findings of a page from others is in both.
    let now = html::watched(&[all_of("x")], &[campaign("x")]).expect("it is JSON");
    let now: Value = serde_json::from_str(&now).expect("it is JSON");
    let scripts = read(&served).scripts.take();
    let data: Value = serde_json::from_str(&scripts[0]).expect("the data is JSON");
    assert_eq!(now["version"], data["watch"]);
    let others = html::watched(&[all_of("y")], &[campaign("x")]).expect("it is JSON");
    assert!(!others.contains(now["version"].as_str().expect("text")));
}

/// A sketch becomes a diff, if the report has the lines; and who showed a finding is there.
#[test]
fn sketches_and_tests_are_in_the_page() {
    let mut made = sample();
    made.findings[0].sketch = Some(brownout_findings::Sketch {
        file: "src/list.c".into(),
        line: 3,
        text: "    pmem_persist(&node->value, 8);".into(),
    });
    made.findings[0].origins = vec![brownout_findings::Origin {
        test: Some("push_works".into()),
        runner: Some("ctest".into()),
        command: vec!["./list".into()],
        folder: None,
        pid: Some(12),
    }];
    let told = data(&page(&[made.clone()]));
    let lines = told["findings"][0]["sketch"].as_array().expect("a diff");
    assert!(
        lines.contains(&"+    pmem_persist(&node->value, 8);".into()),
        "{lines:?}"
    );
    assert_eq!(told["findings"][0]["origins"][0]["test"], "push_works");
    assert!(told["findings"][1].get("sketch").is_none());
    made.sources.clear();
    assert!(data(&page(&[made]))["findings"][0].get("sketch").is_none());
}

/// Names of a megabyte, in a few places: a page that has them everywhere is as large as they are.
#[test]
fn huge_names_are_as_harmless() {
    let with = |name: &str| {
        let mut made = all_of("x");
        let found = &mut made.findings[0];
        found.message = name.into();
        found.events[0].stack[0].function = Some(name.into());
        found.reproduction.as_mut().expect("one").stdout = name.into();
        made.analysed.program = vec![name.into()];
        made
    };
    let harmless = read(&page(&[with("x")])).tags.take();
    for name in [
        "</script>".repeat((1 << 20) / 9),
        "\u{202e}<".repeat(1 << 18),
    ] {
        let page = page(&[with(&name)]);
        let read = read(&page);
        assert_eq!(read.errors.take(), [""; 0]);
        assert_eq!(*read.tags.borrow(), harmless);
        assert!(page.chars().all(|c| c == '\n' || !is_unseen(c)));
        let data = data(&page);
        assert_eq!(data["findings"][0]["message"], name);
        assert_eq!(data["findings"][0]["native"]["stdout"], name);
        // The overview has the beginning of it.
        assert!(read.text.borrow().len() < 256 << 10);
    }
}

/// Control characters, line ends of Unicode's and bidirectional controls.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// That the test above can fail.
#[test]
fn the_judge_sees_what_gets_out() {
    let bad = "<p>a</p><script type=\"application/json\">\"</script><b onclick=x>\"</script>";
    let read = read(bad);
    assert!(
        read.tags
            .borrow()
            .iter()
            .any(|tag| tag == "<b onclick=\"x\">")
    );
    let doubled = self::read("<!-- --><p>\0</p>");
    assert_eq!(*doubled.comments.borrow(), 1);
    assert!(!doubled.errors.borrow().is_empty());
}

#[test]
fn a_comparison_is_as_safe() {
    let (old, new) = (all_of("</script><b>"), all_of("<!--\u{202e}"));
    let comparison = Comparison::of(&old, &new);
    let mut out = Vec::new();
    html::compare(&comparison, &Options::default(), &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let read = read(&page);
    assert_eq!(read.errors.take(), [""; 0]);
    assert_eq!(*read.comments.borrow(), 0);
    assert!(
        !read
            .tags
            .borrow()
            .iter()
            .any(|tag| tag == "<b>" && page.contains("</script><b>"))
    );
    assert_eq!(data(&page)["findings"][0]["change"], "new");
    let text = comparison.to_string();
    assert!(text.chars().all(|c| c == '\n' || !is_unseen(c)), "{text:?}");
}

// ----------------------------------------------------------------- compare

#[test]
fn a_comparison_tells_new_gone_and_still_there() {
    let mut old = sample();
    let mut new = sample();
    // The first is mended, and another has come, with another caller.
    new.findings[0].fingerprint = "0000000000000001".into();
    new.findings[0].events[0].stack[1].function = Some("other".into());
    let comparison = Comparison::of(&old, &new);
    assert_eq!(
        [Change::New, Change::Gone, Change::Still].map(|c| comparison.count(c)),
        [1, 1, 1]
    );
    assert_eq!(comparison.summary(), "1 new, 1 gone, 1 still there");
    assert_eq!(comparison.doubts(), [""; 0]);
    let text = comparison.to_string();
    assert!(
        text.starts_with(
            "new   0000000000000001 error[missing-flush] src/list.c:3 in push: 8 bytes"
        ),
        "{text}"
    );
    assert!(text.contains("\ngone  "), "{text}");
    assert!(
        text.ends_with("brownout: 1 new (1 of correctness), 1 gone, 1 still there\n"),
        "{text}"
    );

    new.verdict = Verdict::Incomplete;
    old.analysed.domain = Some("x86".into());
    new.analysed.domain = Some("eadr".into());
    new.analysed.analysis = "explore".into();
    new.suppressed = 2;
    old.known = 1;
    assert_eq!(Comparison::of(&old, &new).doubts().len(), 5);
    let same = Comparison::of(&old, &old);
    assert_eq!(same.summary(), "0 new, 0 gone, 2 still there");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of any two reports, each finding is told once, and swapping them swaps new and gone.
    #[test]
    fn comparisons_are_complete_and_symmetric(mut old in any_report(), mut new in any_report()) {
        for report in [&mut old, &mut new] {
            brownout_report::fingerprint::assign(&mut report.findings);
        }
        let (there, back) = (Comparison::of(&old, &new), Comparison::of(&new, &old));
        prop_assert_eq!(there.count(Change::New), back.count(Change::Gone));
        prop_assert_eq!(there.count(Change::Still), back.count(Change::Still));
        prop_assert_eq!(there.count(Change::New) + there.count(Change::Still), new.findings.len());
    }

    /// Any report becomes a page that a browser reads without an error, and equal reports become
    /// equal pages.
    #[test]
    fn any_report_becomes_a_page(one in any_report(), two in any_report()) {
        let reports = [one, two];
        let made = page(&reports);
        let read = read(&made);
        prop_assert_eq!(read.errors.take(), [""; 0]);
        prop_assert_eq!(*read.comments.borrow(), 0);
        prop_assert!(made.chars().all(|c| c == '\n' || !is_unseen(c)));
        data(&made);
        prop_assert_eq!(page(&reports), made);
    }
}
