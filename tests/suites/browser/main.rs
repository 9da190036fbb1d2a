//! The page that `--format html` and `brownout report` write, in a real browser.
//!
//! Reports of every analysis are made by the tool, become pages, and are used as a person uses
//! them. Pictures of them are left in `target/screenshots`. What each page must keep to: it throws
//! and logs no error, asks nobody for anything, and has no barrier that axe-core (`tests/browser`)
//! finds, in light and in dark colours, in a wide and in a narrow window.
//!
//! Rows are few, because each is a process of its own and starts a browser.

#![allow(
    clippy::print_stdout,
    reason = "what was measured is for people to look at, and no matter of passing"
)]

mod driver;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_findings::touched::TouchedFile;
use brownout_findings::{
    BuiltIn, Effort, Event, Fate, Finding, Frame, Place, Report, Role, Severity, Verdict,
};
use brownout_tests::seeded::{self, Build};
use brownout_tests::{Invocation, Scratch, layout, tool, trial};
use driver::{Browser, Tab};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(300);

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = vec![
        trial("the_judges_object", the_judges_object),
        trial("lines_are_shown_once", lines_are_shown_once),
        trial("every_analysis", every_analysis),
        trial("as_a_person_uses_it", as_a_person_uses_it),
        trial("ten_thousand_findings", ten_thousand_findings),
        trial("hostile_text_is_text", hostile_text_is_text),
        trial(
            "several_reports_and_two_compared",
            several_reports_and_two_compared,
        ),
        trial("a_campaign_that_goes_on", a_campaign_that_goes_on),
        trial("the_paths_of_a_campaign", the_paths_of_a_campaign),
        trial("script_is_strict_and_typed", script_is_strict_and_typed),
        trial("timelines_show_what_is_lost", timelines_show_what_is_lost),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

// ------------------------------------------------------------------ reports

/// What makes a report: the tool's words, and its program.
struct Making {
    name: &'static str,
    words: Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// One of every analysis, and some of what looks different.
fn makings() -> Vec<Making> {
    let seeded = |name: &str| layout::seeded().join(name).display().to_string();
    let check = |name, program: &str| Making {
        name,
        words: [
            words("check --fail-on never --coverage pm.info --pm pool --"),
            vec![seeded(program), "run".into(), "pool".into()],
        ]
        .concat(),
    };
    let explore = |name, program: &str| Making {
        name,
        words: [
            words("explore --coverage pm.info --pm pool --recover"),
            vec![format!("{} check pool", seeded(program)), "--".into()],
            vec![seeded(program), "run".into(), "pool".into()],
        ]
        .concat(),
    };
    let race = layout::race_programs().join("item_flags-bug");
    let race = race.display();
    let symex = layout::symex_programs().join("torn-bug");
    let symex = symex.display();
    let fuzz = layout::fuzz_programs().join("magic_value-bug");
    vec![
        check("check", "correctness-data_never_flushed-bug"),
        check("check-clean", "correctness-data_never_flushed-fixed"),
        check("check-performance", "performance-flush_twice-bug"),
        explore("explore", "correctness-undo_truncated_early-bug"),
        explore("explore-names", "correctness-creation_not_retried-bug"),
        Making {
            name: "race",
            words: [
                words("race --coverage pm.info --pm pool --jobs 1 --until-found --time 60s --recover"),
                vec![format!("{race} pool recover"), "--".into()],
                vec![race.to_string(), "pool".into()],
            ]
            .concat(),
        },
        Making {
            name: "symex",
            words: [
                words("symex --coverage pm.info --pm pool --stdin-symbolic 4 --until-found --time 60s --recover"),
                vec![format!("{symex} pool check"), "--".into()],
                vec![symex.to_string(), "pool".into()],
            ]
            .concat(),
        },
        Making {
            name: "fuzz",
            words: [
                words("fuzz --coverage pm.info --pm pool --out campaign --seeds seed --time 1s --jobs 1 --"),
                vec![fuzz.display().to_string(), "pool".into()],
            ]
            .concat(),
        },
    ]
}

/// Runs the tool in a folder of its own, and gives the report in both forms.
fn make(making: &Making, scratch: &Scratch) -> Result<(PathBuf, Report)> {
    let folder = scratch.folder(making.name)?;
    // The magic value itself: it is the page that is tried here, and not the search.
    fs::write(folder.join("seed"), "k 0xc0ffee\np\n")?;
    let report = folder.join("report.json");
    let mut argv = vec![
        layout::brownout().display().to_string(),
        "--no-config".into(),
        making.words[0].clone(),
        "--format".into(),
        "json".into(),
        "-o".into(),
        report.display().to_string(),
    ];
    argv.extend(making.words[1..].iter().cloned());
    let outcome = Invocation::new(argv, &folder).timeout(TIMEOUT).run()?;
    let text = fs::read_to_string(&report);
    let text = text.with_context(|| format!("{}: {}", making.name, outcome.describe()))?;
    let page = page_of(&report, &folder)?;
    Ok((page, serde_json::from_str(&text)?))
}

/// `brownout report`.
fn page_of(report: &Path, folder: &Path) -> Result<PathBuf> {
    let page = folder.join("page.html");
    let argv = [
        layout::brownout(),
        "report".into(),
        report.into(),
        "-o".into(),
        page.clone(),
    ];
    Invocation::new(argv, folder)
        .timeout(TIMEOUT)
        .run()?
        .expect_success("brownout report")?;
    Ok(page)
}

/// A report of so many findings, in a hundred functions of ten files.
fn large(count: usize) -> Report {
    let finding = |number: usize| {
        let frame = |function: String, line: usize| Frame {
            function: Some(function),
            file: Some(format!("/src/part{}.c", number % 10)),
            line: Some(line as u32),
            ..Frame::default()
        };
        let stack = vec![
            frame(format!("store_{}", number % 100), 10 + number),
            frame("main".into(), 5),
        ];
        let mut finding = Finding::new(
            BuiltIn::MissingFlush,
            Severity::Correctness,
            format!("{} bytes are stored, never written back", 8 + number % 64),
        );
        finding.fingerprint = format!("{number:016x}");
        finding.events = vec![
            Event {
                thread: Some(1),
                index: Some(number as u64),
                place: Some(Place {
                    file: "/pm/pool".into(),
                    offset: 64 * number as u64,
                    size: 8,
                    address: 0,
                    name: Some(format!("slots[{number}].key")),
                }),
                stack,
                ..Event::new(Role::Store, "8 bytes are stored here")
            },
            Event::new(Role::Exit, "the program ends"),
        ];
        finding
    };
    let outcome = brownout_findings::Outcome::<serde_json::Map<_, _>> {
        findings: (0..count).map(finding).collect(),
        ..Default::default()
    };
    let mut report = outcome.report(brownout_findings::Analysed::by("check"));
    report.verdict = Verdict::Findings;
    report
}

// ------------------------------------------------------------------- judges

const AXE: &str = include_str!("../../browser/axe.min.js");

/// What axe-core objects to in the page as it is now.
fn barriers(tab: &Tab<'_>) -> Result<Vec<String>> {
    if tab.evaluate("typeof window.axe")? != json!("object") {
        tab.evaluate(&format!("{AXE};0"))?;
    }
    let found = tab.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations.map((one) => \
         `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | ')}`))",
    )?;
    let found = found.as_array().context("axe has not run")?;
    Ok(found
        .iter()
        .map(|one| one.as_str().unwrap_or_default().to_owned())
        .collect())
}

/// Fails if the page did anything that it should not.
fn expect_silent(tab: &Tab<'_>) -> Result<()> {
    let complaints = tab.take_complaints()?;
    ensure!(complaints.is_empty(), "the page {}", complaints.join("; "));
    Ok(())
}

fn expect_no_barriers(tab: &Tab<'_>) -> Result<()> {
    let found = barriers(tab)?;
    ensure!(found.is_empty(), "axe-core says: {}", found.join("\n"));
    Ok(())
}

fn screenshot(tab: &Tab<'_>, name: &str) -> Result<()> {
    tab.screenshot(&layout::target().join(format!("screenshots/{name}.png")))
}

/// A page that does everything wrong: who looks for it must find it.
fn the_judges_object() -> Result<()> {
    let scratch = Scratch::new()?;
    let page = scratch.join("bad.html");
    fs::write(
        &page,
        "<!doctype html><html><body><img src='http://127.0.0.1:9/picture'><p style='color:#ccc;background:#fff'>pale</p>\
         <script>console.error('said'); fetch('http://127.0.0.1:9/data').catch(() => {}); setTimeout(() => { window.after = 1; }); nowhere();</script></body></html>",
    )?;
    let browser = Browser::start()?;
    let tab = browser.tab()?;
    tab.go_to(&page, "")?;
    tab.wait_for("window.after === 1")?;
    let complaints = tab.take_complaints()?.join("\n");
    for wanted in [
        "asks for http://127.0.0.1:9/picture",
        "asks for http://127.0.0.1:9/data",
        "logs an error: [{\"type\":\"string\",\"value\":\"said\"}]",
        "nowhere is not defined",
    ] {
        ensure!(
            complaints.contains(wanted),
            "nobody saw {wanted}:\n{complaints}"
        );
    }
    let found = barriers(&tab)?.join("\n");
    for wanted in ["image-alt", "color-contrast", "html-has-lang"] {
        ensure!(
            found.contains(wanted),
            "axe-core does not say {wanted}:\n{found}"
        );
    }
    // A policy that is broken is an error, too.
    let strict = scratch.join("strict.html");
    fs::write(
        &strict,
        "<!doctype html><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\"><p style='color:red'>x</p><script>1</script>",
    )?;
    tab.go_to(&strict, "")?;
    let complaints = tab.take_complaints()?.join("\n");
    ensure!(
        complaints.contains("Content Security Policy"),
        "{complaints}"
    );
    Ok(())
}

// ---------------------------------------------------------------- the pages

/// `brownout report` of several reports, with these options.
fn page_of_all(reports: &[(&str, Report)], options: &[&str], folder: &Path) -> Result<PathBuf> {
    let mut argv = vec![layout::brownout(), "report".into()];
    argv.extend(options.iter().map(PathBuf::from));
    for (name, report) in reports {
        let path = folder.join(name);
        fs::write(&path, serde_json::to_vec(report)?)?;
        argv.push(path);
    }
    let page = folder.join("several.html");
    argv.extend(["-o".into(), page.clone()]);
    // Something new is exit status 1.
    let outcome = Invocation::new(argv, folder).timeout(TIMEOUT).run()?;
    ensure!(outcome.status <= 1, "{}", outcome.describe());
    Ok(page)
}

/// What two runs have in common is shown once, with both. And of a function in which one bug was
/// mended and another made, both of which have one fingerprint, each can be chosen.
fn several_reports_and_two_compared() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let browser = Browser::start()?;
    let program = |name: &str| {
        let mut report = large(3);
        report.analysed.program = vec![name.to_owned()];
        report
    };
    let both = [("a.json", program("./one")), ("b.json", program("./two"))];
    let page = page_of_all(&both, &[], scratch.path())?;
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    tab.expect("document.querySelectorAll('#rows li').length === 3")?;
    let finding = "document.getElementById('finding').textContent";
    for text in ["check of ./one; check of ./two", "the program ./two"] {
        tab.expect(&format!("{finding}.includes('{text}')"))?;
    }
    expect_no_barriers(&tab)?;
    expect_silent(&tab)?;

    let at = |line: u32| {
        let mut report = large(1);
        let frame = &mut report.findings[0].events[0].stack[0];
        (frame.file, frame.line) = (Some("/src/a.c".into()), Some(line));
        report.findings[0].message = format!("lost in line {line}");
        report.findings[0].events[0].place = None;
        report.sources = vec![brownout_findings::SourceText {
            file: "/src/a.c".into(),
            newer: false,
            excerpts: vec![brownout_findings::Excerpt {
                line: 1,
                text: ["a = 1;", "f();", "g();", "b = 1;"]
                    .map(String::from)
                    .to_vec(),
            }],
        }];
        report
    };
    let versions = [("old.json", at(1)), ("new.json", at(4))];
    let page = page_of_all(&versions, &["--compare"], scratch.path())?;
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    let heading = "document.querySelector('#finding h3').textContent";
    tab.expect("document.querySelectorAll('#rows li').length === 2")?;
    tab.expect(&format!("{heading}.includes('lost in line 4')"))?;
    tab.press("j")?;
    tab.wait_for(&format!("{heading}.includes('lost in line 1')"))?;
    tab.evaluate("[...document.querySelectorAll('.bar')].find((bar) => bar.textContent.startsWith('gone')).click()")?;
    tab.wait_for("document.querySelectorAll('#rows li').length === 1")?;
    tab.expect("location.hash.includes('change=gone')")?;
    expect_no_barriers(&tab)?;
    screenshot(&tab, "compared")?;
    expect_silent(&tab)
}

/// The lines of an event are folded if one before it has shown them.
fn lines_are_shown_once() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let browser = Browser::start()?;
    let mut report = large(1);
    let store = report.findings[0].events[0].clone();
    let mut elsewhere = store.clone();
    elsewhere.stack[0].line = Some(12);
    report.findings[0].events = vec![store.clone(), elsewhere, store];
    report.sources = vec![brownout_findings::SourceText {
        file: "/src/part0.c".into(),
        newer: false,
        excerpts: vec![brownout_findings::Excerpt {
            line: 9,
            text: ["a", "b", "c", "d", "e"].map(String::from).to_vec(),
        }],
    }];
    let page = page_of_all(&[("one.json", report)], &[], scratch.path())?;
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    tab.expect("document.querySelectorAll('.events > li .source').length === 3")?;
    let folded = "[...document.querySelectorAll('.events > li')].map((one) => (one.querySelector('.again summary') || {}).textContent || '').join('|')";
    let folded = tab.text(folded)?;
    ensure!(folded == "||Source, as at (1)", "{folded}");
    expect_no_barriers(&tab)?;
    expect_silent(&tab)
}

fn every_analysis() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let browser = Browser::start()?;
    for making in makings() {
        let (page, report) = make(&making, &scratch)?;
        ensure!(
            report.findings.is_empty() == (making.name == "check-clean"),
            "{}: {} findings",
            making.name,
            report.findings.len()
        );
        let tab = browser.tab()?;
        look_at(&tab, making.name, &page, &report).with_context(|| making.name)?;
        if report.findings.is_empty() {
            // Nobody is shown an empty list, and how to choose from it.
            for id in ["#filters", ".panes"] {
                tab.expect(&format!(
                    "document.querySelector('{id}').getBoundingClientRect().height === 0"
                ))?;
            }
        }
    }
    Ok(())
}

/// The pictures of `docs/report.md`: the report, the element, the file.
const DOCS: &[(&str, &str, &str)] = &[
    ("explore", ".picture", "timeline"),
    ("race", ".picture .scroll", "threads"),
    ("check-performance", ".flame", "flame-graph"),
];

fn look_at(tab: &Tab<'_>, name: &str, page: &Path, report: &Report) -> Result<()> {
    tab.prefer_dark(false)?;
    tab.open(page, "")?;
    let count = report.findings.len();
    let rows = tab.evaluate("document.querySelectorAll('#rows li').length")?;
    ensure!(
        rows == json!(count),
        "{rows} of {count} findings are listed"
    );
    // Each finding, with everything that can be opened.
    for number in 0..count {
        wait_until_shown(tab, &report.findings[number])?;
        expect_picture(tab, &report.findings[number])?;
        tab.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })",
        )?;
        tab.press("j")?;
        let next = (number + 1).min(count - 1);
        let key = &report.findings[next].fingerprint;
        tab.wait_for(&format!(
            "new URLSearchParams(location.hash.slice(1)).get('finding') === '{key}' || {count} === 1"
        ))?;
    }
    expect_coverage(tab, report)?;
    expect_list_fits(tab, count)?;
    tab.evaluate("document.querySelectorAll('.picture, #costs:not([hidden])').forEach((one) => one.scrollIntoView())")?;
    screenshot(tab, &format!("{name}-wide"))?;
    for (of, selector, file) in DOCS {
        if *of == name {
            let path = layout::target().join(format!("screenshots/docs-{file}.png"));
            tab.screenshot_of(selector, &path)?;
        }
    }
    expect_no_barriers(tab)?;
    let light = tab.text("getComputedStyle(document.body).backgroundColor")?;
    tab.prefer_dark(true)?;
    let dark = tab.text("getComputedStyle(document.body).backgroundColor")?;
    ensure!(light != dark, "dark is as light: {dark}");
    expect_no_barriers(tab).context("dark")?;
    screenshot(tab, &format!("{name}-dark"))?;
    tab.prefer_dark(false)?;
    tab.resize(360, 740)?;
    tab.expect("document.documentElement.scrollWidth <= 360")
        .context("the page is wider than a narrow window")?;
    expect_no_barriers(tab).context("narrow")?;
    tab.expect("[...document.querySelectorAll('#filters select, #filters input')].every((one) => one.offsetHeight < 60)")
        .context("a field is higher than its text")?;
    expect_list_fits(tab, count).context("narrow")?;
    // Of a file the name counts, and not the folder.
    tab.expect(
        "[...document.querySelectorAll('.strip .name')].every((one) => { \
         const name = document.createRange(); \
         name.selectNode(one.firstChild); \
         return name.getBoundingClientRect().right <= one.getBoundingClientRect().right; })",
    )
    .context("the name of a file is cut off")?;
    tab.evaluate("window.scrollTo(0, 0)")?;
    screenshot(tab, &format!("{name}-narrow"))?;
    ensure!(tab.print()?.starts_with(b"%PDF"), "it cannot be printed");
    expect_paper(tab).context("on paper")?;
    expect_silent(tab)
}

/// The list is as high as what is in it, unless that is higher than there is room.
fn expect_list_fits(tab: &Tab<'_>, count: usize) -> Result<()> {
    tab.expect(&format!(
        "document.getElementById('list').offsetHeight <= 76 * Math.max(1, {count}) + 2"
    ))
    .context("the list is mostly empty")
}

/// On paper text is dark, whatever was chosen for the screen, and nothing has to be scrolled.
fn expect_paper(tab: &Tab<'_>) -> Result<()> {
    tab.on_paper(true)?;
    tab.resize(720, 1000)?;
    tab.evaluate("document.documentElement.dataset.theme = 'dark'")?;
    tab.evaluate("document.querySelectorAll('#finding details, #touched details, #costs details').forEach((one) => { one.open = true; })")?;
    tab.expect("getComputedStyle(document.body).color === 'rgb(27, 31, 39)'")
        .context("the text is pale")?;
    tab.expect("[...document.querySelectorAll('.source, .picture .scroll, #touched .scroll')].every((one) => one.scrollWidth <= one.clientWidth + 1 && one.scrollHeight <= one.clientHeight + 1)")
        .context("something is cut off")?;
    tab.evaluate("delete document.documentElement.dataset.theme")?;
    tab.on_paper(false)
}

/// The address changes first, and the page follows it.
fn wait_until_shown(tab: &Tab<'_>, finding: &Finding) -> Result<()> {
    tab.wait_for(&format!(
        "document.querySelector('#finding h3').textContent.includes({})",
        json!(finding.message)
    ))
}

/// Every line that touched persistent memory is there, with its source and with how often it did
/// what; so is every line that could have, with a 0.
fn expect_coverage(tab: &Tab<'_>, report: &Report) -> Result<()> {
    let touched = report.touched.as_ref().context("nothing was counted")?;
    let numbers = |files: &[TouchedFile]| -> BTreeSet<(String, u32)> {
        let lines = files.iter().flat_map(|file| {
            let lines = file.lines.iter();
            lines.map(|line| (file.file.clone(), line.line))
        });
        lines.collect()
    };
    let missed = numbers(&touched.missed);
    let all = &numbers(&touched.files) | &missed;
    if all.is_empty() {
        ensure!(
            report.findings.is_empty(),
            "there is a finding, and no line touched persistent memory"
        );
        return tab.expect("document.querySelectorAll('#touched details').length === 0");
    }
    tab.evaluate(
        "document.querySelectorAll('#touched details').forEach((one) => { one.open = true; })",
    )?;
    let rows = "#touched tbody tr";
    tab.wait_for(&format!(
        "document.querySelectorAll('{rows}').length === {}",
        all.len()
    ))?;
    tab.expect(&format!(
        "[...document.querySelectorAll('{rows}')].filter((row) => row.querySelector('td.missed')).length === {}",
        missed.len()
    ))?;
    if touched.lines() == 0 {
        return Ok(());
    }
    // Our own programs are at hand; a library's source may not be.
    let file = &touched.files[0];
    let line = &file.lines[0];
    let excerpts = report.sources.iter().find(|one| one.file == file.file);
    let excerpts = excerpts
        .map(|one| one.excerpts.as_slice())
        .unwrap_or_default();
    let text = excerpts.iter().find_map(|excerpt| {
        let at = line.line.checked_sub(excerpt.line)?;
        excerpt.text.get(at as usize)
    });
    let text = text.with_context(|| format!("no source of {}:{}", file.file, line.line))?;
    let shown = tab.text(&format!(
        "document.querySelector('{rows} td:last-child').textContent"
    ))?;
    ensure!(shown.trim() == text.trim(), "{shown:?} and not {text:?}");
    tab.expect(&format!(
        "[...document.querySelectorAll('{rows}')].every((row) => [...row.querySelectorAll('td')].slice(0, -1).some((cell) => /^[0-9,]+$/.test(cell.textContent)))"
    ))
}

/// The picture of a finding of `explore` has its crash, and a cross for each line that is lost.
fn expect_picture(tab: &Tab<'_>, finding: &Finding) -> Result<()> {
    let is_lost = |event: &Event| event.role == Role::Store && event.text.contains("lost");
    let rule = finding.rule.built_in().map(|rule| rule.rule().analysis);
    if rule == Some(brownout_findings::rules::Analysis::Explore)
        && finding.events.iter().any(is_lost)
    {
        tab.expect("document.querySelectorAll('.picture svg .crash-line').length === 1")?;
        tab.expect("document.querySelectorAll('.picture .scroll path.lost, .picture .scroll path.lost-in-part').length > 0")?;
    }
    Ok(())
}

fn as_a_person_uses_it() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let all = makings();
    let by = |name: &str| all.iter().find(|making| making.name == name);
    let (page, report) = make(by("explore").context("explore")?, &scratch)?;
    ensure!(report.findings.len() >= 2, "two findings are needed");
    let browser = Browser::start()?;
    browser.permit_clipboard()?;
    let tab = browser.tab()?;
    let [first, second] = [&report.findings[0], &report.findings[1]];
    let chosen = "new URLSearchParams(location.hash.slice(1)).get('finding')";
    let shown = "document.querySelector('#finding h3').textContent";

    // Keys.
    tab.open(&page, "")?;
    for (key, finding) in [("j", second), ("k", first), ("j", second)] {
        tab.press(key)?;
        tab.wait_for(&format!("{chosen} === '{}'", finding.fingerprint))?;
        wait_until_shown(&tab, finding)?;
    }
    tab.press("?")?;
    tab.wait_for("document.getElementById('help').open")?;
    tab.evaluate("document.querySelector('#help button').click()")?;
    tab.expect("!document.getElementById('help').open")?;
    tab.press("t")?;
    tab.wait_for("document.documentElement.dataset.theme === 'light'")?;
    tab.press("t")?;
    tab.wait_for("document.documentElement.dataset.theme === 'dark'")?;
    tab.press("t")?;

    // Search: typed after `/`, it filters; `j` in the field is a letter.
    tab.press("/")?;
    tab.wait_for("document.activeElement.id === 'search'")?;
    for letter in second.fingerprint.chars() {
        tab.press(&letter.to_string())?;
    }
    tab.wait_for("document.querySelectorAll('#rows li').length === 1")?;
    tab.press("Escape")?;
    tab.expect("document.activeElement.id !== 'search'")?;
    tab.expect("document.getElementById('count').textContent.startsWith('1 of ')")?;
    tab.evaluate("document.querySelector('#filters button[type=reset]').click()")?;
    let all_rows = format!(
        "document.querySelectorAll('#rows li').length === {}",
        report.findings.len()
    );
    tab.wait_for(&all_rows)?;

    // Filters, by the bars and by the lists.
    tab.evaluate("document.querySelector('.bar.correctness').click()")?;
    tab.expect("location.hash.includes('severity=correctness')")?;
    tab.expect(
        "document.querySelector('.bar.correctness').getAttribute('aria-pressed') === 'true'",
    )?;
    tab.evaluate("(() => { const list = document.getElementById('rule'); list.value = list.options[1].value; list.dispatchEvent(new Event('change')); })()")?;
    tab.expect("location.hash.includes('rule=')")?;
    tab.evaluate("document.querySelector('#filters button[type=reset]').click()")?;
    tab.expect("!location.hash.includes('rule=') && !location.hash.includes('severity=')")?;

    // Links to a finding, to a list, to nothing.
    tab.open(&page, &format!("finding={}", second.fingerprint))?;
    ensure!(
        tab.text(shown)?.contains(second.message.as_str()),
        "the link"
    );
    tab.open(&page, "q=no+such+thing")?;
    tab.expect("document.querySelectorAll('#rows li').length === 0")?;
    tab.open(&page, "finding=0000000000000000")?;
    tab.expect("document.getElementById('finding').textContent.includes('There is no finding')")?;
    expect_silent(&tab)?;

    // What leads to a part of the page chooses nothing.
    tab.open(&page, &format!("finding={}", second.fingerprint))?;
    tab.evaluate("document.querySelector('.skip').click()")?;
    tab.wait_for("document.activeElement.id === 'findings-heading'")?;
    tab.expect("document.querySelectorAll('#rows a[aria-current=true]').length === 1")?;
    wait_until_shown(&tab, second)?;
    tab.open(&page, &format!("finding={}", second.fingerprint))?;
    let parts = "[...document.querySelectorAll('#parts button')]";
    let names = tab.text(&format!("{parts}.map((one) => one.textContent).join('|')"))?;
    ensure!(
        names == "2 findings ↓|Where memory was touched ↓",
        "{names}"
    );
    tab.evaluate(&format!("{parts}.pop().click()"))?;
    tab.wait_for("document.activeElement.id === 'touched-heading'")?;
    tab.expect(&format!("{chosen} === '{}'", second.fingerprint))?;

    // Folding: stacks, and the steps before what matters.
    tab.open(&page, &format!("finding={}", first.fingerprint))?;
    tab.expect("[...document.querySelectorAll('#finding .stack')].length > 0 && [...document.querySelectorAll('#finding .stack')].every((one) => !one.open)")?;
    tab.evaluate("document.querySelector('#finding .stack summary').click()")?;
    tab.expect("document.querySelector('#finding .stack').open")?;
    let columns = "document.querySelectorAll('.picture svg .event, .picture svg .step').length";
    let before = tab.evaluate(columns)?.as_u64().unwrap_or(0);
    tab.evaluate("document.querySelector('.unfold').click()")?;
    let after = tab.evaluate(columns)?.as_u64().unwrap_or(0);
    ensure!(after > before, "{before} columns, and {after} unfolded");
    tab.expect("document.activeElement.className === 'unfold'")?;
    screenshot(&tab, "explore-unfolded")?;
    tab.evaluate("document.querySelector('.unfold').click()")?;
    ensure!(
        tab.evaluate(columns)?.as_u64() == Some(before),
        "folded again"
    );

    // Copying: what is in the clipboard is the command.
    let replay = &first.replay.as_ref().context("a replay")?.command;
    tab.press("c")?;
    tab.wait_for("document.getElementById('said').textContent === 'replay copied.'")?;
    let copied = tab.text("navigator.clipboard.readText()")?;
    ensure!(copied == *replay, "copied: {copied}");
    let button = "[...document.querySelectorAll('.commands button')].find((one) => one.textContent.includes('debugger'))";
    tab.evaluate(&format!("{button}.click()"))?;
    tab.wait_for("document.getElementById('said').textContent === 'debugger copied.'")?;
    let gdb = &first.reproduction.as_ref().context("a reproduction")?.gdb;
    let copied = tab.text("navigator.clipboard.readText()")?;
    ensure!(copied == *gdb, "copied: {copied}");

    // An event of the picture leads to its text.
    tab.evaluate("document.querySelector('.picture svg .event').dispatchEvent(new MouseEvent('click', {bubbles: true}))")?;
    tab.expect("document.querySelectorAll('.events > .lit').length === 1")?;
    expect_silent(&tab)?;

    // What costs can be sorted, and the graph shows one call alone.
    let (page, _) = make(by("check-performance").context("check")?, &scratch)?;
    tab.open(&page, "")?;
    let column = "[...document.querySelectorAll('#costs table')][0].querySelectorAll('tbody tr td:nth-child(2)')";
    let numbers = format!("JSON.stringify([...{column}].map((one) => Number(one.textContent)))");
    let sorted = |text: String, down: bool| -> Result<bool> {
        let numbers: Vec<u64> = serde_json::from_str(&text)?;
        ensure!(numbers.len() > 1, "one row cannot be sorted");
        Ok(numbers.windows(2).all(|pair| {
            if down {
                pair[0] >= pair[1]
            } else {
                pair[0] <= pair[1]
            }
        }))
    };
    ensure!(sorted(tab.text(&numbers)?, true)?, "most needless first");
    tab.evaluate("document.querySelectorAll('#costs th button')[1].click()")?;
    ensure!(sorted(tab.text(&numbers)?, false)?, "least needless first");
    tab.expect(
        "document.querySelectorAll('#costs th')[1].getAttribute('aria-sort') === 'ascending'",
    )?;
    let boxes = "document.querySelectorAll('.flame .call').length";
    let before = tab.evaluate(boxes)?.as_u64().unwrap_or(0);
    tab.evaluate("[...document.querySelectorAll('.flame .call')].pop().dispatchEvent(new MouseEvent('click', {bubbles: true}))")?;
    let after = tab.evaluate(boxes)?.as_u64().unwrap_or(0);
    ensure!(before > 1 && after == 1, "{before} boxes, then {after}");
    expect_silent(&tab)
}

/// A process that is asked to end when this goes.
struct Background(std::process::Child);

impl Background {
    fn start(argv: &[&str], folder: &Path, said: &Path) -> Result<Background> {
        let said = fs::File::create(said)?;
        let mut command = std::process::Command::new(layout::brownout());
        command.args(argv).current_dir(folder).stderr(said);
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        Ok(Background(command.spawn()?))
    }

    /// As Ctrl-C does. Whoever does not end then is an error, and no reason to wait for ever.
    fn interrupt(&mut self) -> Result<std::process::ExitStatus> {
        let id = self.0.id().to_string();
        std::process::Command::new("kill")
            .args(["-INT", &id])
            .status()?;
        let begun = std::time::Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "process {id} goes on after SIGINT"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A campaign of `fuzz` is watched: its curves grow without the page being loaded again, what it
/// finds is offered, and the way to the finding is drawn. The page that is written afterwards shows
/// the same, and asks nobody.
fn a_campaign_that_goes_on() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let folder = scratch.folder("campaign")?;
    fs::write(folder.join("seed"), "t 1 2 5\n")?;
    let program = layout::fuzz_programs().join("repair_twice-bug");
    let program = program.display().to_string();
    let words = "--no-config fuzz --pm pool --out kept --seeds seed --time 120s --jobs 1 --";
    let mut argv: Vec<&str> = words.split(' ').collect();
    argv.extend([program.as_str(), "pool"]);
    let mut fuzzing = Background::start(&argv, &folder, &folder.join("fuzzed"))?;
    wait_for_file(&folder.join("kept/course"), "\n")?;

    let said = folder.join("served");
    let mut serving = Background::start(&["report", "kept", "--watch"], &folder, &said)?;
    let address = wait_for_file(&said, " until Ctrl-C")?;
    let address = address
        .split(' ')
        .find(|word| word.starts_with("http://127.0.0.1:"));
    let address = address.context("no address")?;
    let browser = Browser::start()?;
    let tab = browser.tab()?;
    tab.open_served(address)?;
    tab.evaluate("window.loaded = 'once'")?;
    let figure = "Number(document.querySelector('#campaigns p:not([id])').textContent.match(/: ([0-9,]+) execution/)[1].replaceAll(',', ''))";
    let before = tab.evaluate(figure)?.as_u64().context("a number")?;
    tab.wait_for(&format!("{figure} > {before}"))?;
    tab.expect(
        "document.querySelector('#campaigns p:not([id])').textContent.startsWith('It goes on')",
    )?;
    // There may have been findings before the page was opened.
    let listed = "document.querySelectorAll('#rows li').length";
    if tab.evaluate(listed)? == json!(0) {
        tab.wait_for("document.querySelector('#watched button') !== null")?;
        tab.expect("window.loaded === 'once'")?;
        tab.evaluate("document.querySelector('#watched button').click()")?;
        tab.wait_for(&format!("document.documentElement.dataset.ready === 'true' && window.loaded === undefined && {listed} > 0"))?;
    }
    // A server that cannot answer, or cannot be reached for a while, is asked again.
    let watched = "document.getElementById('watched').textContent";
    tab.evaluate("window.fetch_now = window.fetch; window.fetch = async () => new Response('full <b>disk', {status: 503}); 0")?;
    tab.wait_for(&format!(
        "{watched}.includes('tried again. (full <b>disk)')"
    ))?;
    tab.evaluate("window.fetch = () => Promise.reject(new TypeError('gone')); 0")?;
    tab.wait_for(&format!("{watched}.includes('cannot be reached')"))?;
    tab.evaluate("window.fetch = window.fetch_now; 0")?;
    tab.wait_for(&format!("!{watched}.includes('cannot be reached')"))?;
    fuzzing.interrupt()?;
    tab.wait_for("document.querySelector('#campaigns p:not([id])').textContent.startsWith('It does not run now')")?;
    // It has asked for its own data, and for nothing else.
    let complaints = tab.take_complaints()?;
    let own = [
        format!("asks for {address}now.json"),
        format!("asks for {address}"),
    ];
    let others: Vec<&String> = complaints.iter().filter(|one| !own.contains(one)).collect();
    ensure!(others.is_empty(), "the page {others:?}");
    ensure!(
        complaints.contains(&own[0]),
        "the page has asked for nothing"
    );
    let ended = serving.interrupt()?;
    ensure!(ended.success(), "serving ended with {ended}");
    tab.wait_for(&format!("{watched}.includes('cannot be reached')"))?;

    // The page as a file, of what is over.
    let files = listing(&folder.join("kept"))?;
    let page = page_of(Path::new("kept"), &folder)?;
    ensure!(
        files == listing(&folder.join("kept"))?,
        "the campaign's folder has changed"
    );
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    tab.expect("document.querySelectorAll('.chart').length >= 5")?;
    tab.expect("document.querySelectorAll('.chart path.curve').length >= 5 && [...document.querySelectorAll('.chart path.curve')].every((one) => one.getAttribute('d').startsWith('M'))")?;
    tab.expect("document.querySelector('.tree') !== null && document.querySelectorAll('.tree .way').length > 1")?;
    // Every finding that an image has shows its way from the root on.
    let links = tab.evaluate(
        "[...document.querySelectorAll('.tree a')].map((one) => one.getAttribute('href'))",
    )?;
    let links = links.as_array().context("links")?;
    ensure!(!links.is_empty(), "no image has a finding");
    for link in links {
        tab.evaluate(&format!("location.hash = {link}"))?;
        tab.wait_for("document.querySelectorAll('#finding .chain li').length >= 2")?;
        tab.expect("document.querySelectorAll('.tree g.lit').length === document.querySelectorAll('#finding .chain li').length - 1")?;
        tab.expect("document.querySelectorAll('.tree path.lit').length === document.querySelectorAll('.tree g.lit').length - 1")?;
    }
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")?;
    tab.evaluate("document.getElementById('campaigns').scrollIntoView()")?;
    screenshot(&tab, "campaign-wide")?;
    let path = layout::target().join("screenshots/docs-campaign.png");
    tab.screenshot_of(".charts", &path)?;
    expect_no_barriers(&tab)?;
    tab.prefer_dark(true)?;
    expect_no_barriers(&tab).context("dark")?;
    screenshot(&tab, "campaign-dark")?;
    tab.prefer_dark(false)?;
    tab.resize(360, 740)?;
    tab.expect("document.documentElement.scrollWidth <= 360")
        .context("the page is wider than a narrow window")?;
    expect_no_barriers(&tab).context("narrow")?;
    screenshot(&tab, "campaign-narrow")?;
    expect_silent(&tab)
}

/// What a file holds, once it has a text in it.
/// A campaign of `symex` has its paths as a tree, with the way to each finding.
fn the_paths_of_a_campaign() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let folder = scratch.folder("campaign")?;
    let program = layout::symex_programs().join("numbers-bug");
    let program = program.display().to_string();
    let words = "--no-config symex --pm pool --out kept --stdin-symbolic 36 --seed 0 --paths 60 --explore-share 0 --";
    let mut argv: Vec<OsString> = vec![layout::brownout().into()];
    argv.extend(words.split(' ').map(OsString::from));
    argv.extend([program.as_str().into(), "pool".into()]);
    let outcome = Invocation::new(argv, &folder).timeout(TIMEOUT).run()?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let page = page_of(Path::new("kept"), &folder)?;
    let data = data_of(&page)?;
    let campaign = &data["campaigns"][0];
    let tree = campaign["tree"].as_array().context("a tree")?;
    let tests = fs::read_dir(folder.join("kept/tests"))?.count();
    ensure!(
        tree.len() == tests,
        "{} paths of {tests} are drawn",
        tree.len()
    );
    // The first input does nothing to the pool. What does so first, was solved for; each of the
    // others came from one before it.
    for (row, node) in tree.iter().enumerate() {
        ensure!(node["way"] != "root", "{node}");
        ensure!((row == 0) == node["parent"].is_null(), "{node}");
    }
    let origin = tree[0]["origin"].as_str().unwrap_or_default();
    ensure!(
        tree[0]["way"] == "turned" && origin.ends_with(" turned"),
        "no branch is named: {origin}"
    );
    let finding = &data["findings"][0]["fingerprint"];
    let at = tree.iter().position(|node| {
        let findings = node["findings"].as_array();
        findings.is_some_and(|all| all.contains(finding))
    });
    let at = at.context("the finding hangs below no path")?;
    ensure!(at > 0, "the first input shows it");

    let browser = Browser::start()?;
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    tab.expect("document.querySelectorAll('.tree g.lit').length >= 2")?;
    tab.expect("document.querySelectorAll('.tree g.lit').length === document.querySelectorAll('#finding .chain li').length - 1")?;
    // Blanks of an input are shown, too: what stands behind the text is near its end.
    tab.expect("(() => { const link = document.querySelector('.tree a'); const text = link.previousElementSibling.getBBox(); return link.getBBox().x - text.x - text.width < 40; })()")?;
    tab.expect("document.querySelector('.tree-box').previousElementSibling.textContent.startsWith('Inputs that did something new')")?;
    tab.evaluate("document.querySelector('.tree-box').scrollIntoView()")?;
    screenshot(&tab, "paths")?;
    expect_no_barriers(&tab)?;
    expect_silent(&tab)
}

fn wait_for_file(path: &Path, text: &str) -> Result<String> {
    let begun = std::time::Instant::now();
    loop {
        let found = fs::read_to_string(path).unwrap_or_default();
        if found.contains(text) {
            return Ok(found);
        }
        ensure!(begun.elapsed() < TIMEOUT, "{}: {found:?}", path.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every file below a folder, with its length and when it was changed.
fn listing(folder: &Path) -> Result<BTreeSet<(PathBuf, u64, std::time::SystemTime)>> {
    let mut all = BTreeSet::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let about = fs::metadata(&path)?;
            if about.is_dir() {
                left.push(path.clone());
            }
            all.insert((path, about.len(), about.modified()?));
        }
    }
    Ok(all)
}

/// The list has no more elements in the page for ten thousand findings than for a hundred; times
/// are printed, for people.
fn ten_thousand_findings() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let browser = Browser::start()?;
    let mut elements = Vec::new();
    for count in [100, 10_000] {
        let folder = scratch.folder(&count.to_string())?;
        let report = folder.join("report.json");
        fs::write(&report, serde_json::to_vec(&large(count))?)?;
        let page = page_of(&report, &folder)?;
        let tab = browser.tab()?;
        tab.open(&page, "")?;
        let ready = tab
            .evaluate("Math.round(performance.getEntriesByType('navigation')[0].domInteractive)")?;
        let most = tab.evaluate(
            "(async () => { const list = document.getElementById('list'); const frame = () => new Promise(requestAnimationFrame); \
             let most = 0, steps = 0; const start = performance.now(); \
             for (let at = 0; at <= 20; at += 1) { list.scrollTop = (list.scrollHeight * at) / 20; await frame(); await frame(); steps += 1; \
             most = Math.max(most, document.querySelectorAll('#rows li').length); } \
             return [most, Math.round((performance.now() - start) / steps)]; })()",
        )?;
        // Far more than it takes: a page that took ten thousand elements for its ticks took longer.
        tab.expect("document.querySelectorAll('*').length < 10000")?;
        println!(
            "{count} findings: interactive after {ready} ms; a step of scrolling, two frames, takes {} ms",
            most[1]
        );
        // The last one is really there, and can be found.
        tab.expect(&format!(
            "[...document.querySelectorAll('#rows li')].some((one) => one.getAttribute('aria-posinset') === '{count}')"
        ))?;
        let search = format!(
            "(() => {{ const start = performance.now(); const field = document.getElementById('search'); field.value = '{:016x}'; \
             field.dispatchEvent(new Event('input')); return Math.round(performance.now() - start); }})()",
            count - 1
        );
        println!(
            "{count} findings: a search takes {} ms",
            tab.evaluate(&search)?
        );
        tab.expect("document.querySelectorAll('#rows li').length === 1")?;
        elements.push(most[0].as_u64().unwrap_or(u64::MAX));
        if count > 100 {
            expect_no_barriers(&tab)?;
            screenshot(&tab, "ten-thousand")?;
        }
        expect_silent(&tab)?;
    }
    ensure!(
        elements[1] <= elements[0],
        "{} rows in the page for ten thousand findings, {} for a hundred",
        elements[1],
        elements[0]
    );
    Ok(())
}

/// Text that tries to become a part of the page: tags, attributes, templates, control characters;
/// see `crates/report/tests/html.rs`, which has them, too, and sees in the page's source that
/// nothing gets out.
const PAYLOADS: &str = include_str!("../../../crates/report/tests/data/payloads.json");

/// A finding in which every text is this.
fn hostile(number: usize, text: &str) -> Finding {
    let frame = Frame {
        function: Some(text.into()),
        file: Some(text.into()),
        line: Some(2),
        module: Some(text.into()),
        ..Frame::default()
    };
    let mut finding = Finding::new(BuiltIn::MissingFlush, Severity::Correctness, text);
    if number % 2 == 1 {
        finding.rule = text.into();
    }
    finding.fingerprint = format!("{number:016x}");
    finding.events = vec![Event {
        thread: Some(1),
        index: Some(1),
        place: Some(Place {
            file: text.into(),
            offset: 64,
            size: 8,
            address: 0,
            name: Some(text.into()),
        }),
        stack: vec![frame],
        ..Event::new(Role::Store, text)
    }];
    finding.help = vec![text.into()];
    finding.notes = vec![text.into()];
    finding.origins = vec![brownout_findings::Origin {
        test: Some(text.into()),
        runner: Some(text.into()),
        command: vec![text.into()],
        ..Default::default()
    }];
    finding.replay = Some(brownout_findings::Replay {
        token: text.into(),
        command: text.into(),
    });
    finding.sketch = Some(brownout_findings::Sketch {
        file: text.into(),
        line: 2,
        text: text.into(),
    });
    finding.timeline = Some(brownout_findings::Timeline {
        steps: vec![brownout_findings::TimelineStep {
            role: Role::Store,
            thread: 1,
            index: 1,
            place: finding.events[0].place.clone(),
            fate: Some(Fate::Lost),
            at: text.into(),
            skipped: 3,
        }],
        nothing_lost: Some(brownout_findings::NothingLost {
            status: text.into(),
            symptom: Some(text.into()),
        }),
    });
    finding.reproduction = Some(brownout_findings::Reproduction {
        files: Vec::new(),
        command: text.into(),
        gdb: text.into(),
        status: text.into(),
        stdout: text.into(),
        confirmed: true,
    });
    finding
}

/// In the browser itself: nothing of it is executed, nothing asks for anything, no element comes of
/// it, and it is shown as it is.
fn hostile_text_is_text() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let mut texts: Vec<String> = serde_json::from_str(PAYLOADS)?;
    ensure!(texts.len() >= 40, "{} texts", texts.len());
    texts.push(format!(
        "<img src=x onerror=alert(1)>{}",
        "A".repeat(1 << 20)
    ));
    let outcome = brownout_findings::Outcome::<serde_json::Map<_, _>> {
        findings: (texts.iter().enumerate())
            .map(|(number, text)| hostile(number, text))
            .collect(),
        notes: texts.clone(),
        ..Default::default()
    };
    let mut adding = brownout_findings::touched::Adding::default();
    for finding in &outcome.findings {
        let stack = &finding.events[0].stack;
        adding.at(stack, [(brownout_findings::touched::Touch::Stores, 1)]);
    }
    let mut report = outcome.report(brownout_findings::Analysed::by("check"));
    report.touched = Some(adding.total());
    let effort: Vec<Effort> = (report.findings.iter())
        .map(|finding| Effort {
            needless: 1,
            stack: finding.events[0].stack.clone(),
            ..Effort::default()
        })
        .collect();
    let effort = serde_json::to_value(effort)?;
    report.statistics.insert(Effort::STATISTIC.into(), effort);
    for text in texts.iter().filter(|text| text.len() < 1000) {
        report.statistics.insert(text.clone(), json!(text));
        report
            .coverage
            .limit(brownout_findings::Limit::Time, text.as_str());
    }
    report.analysed.program = texts.clone();
    report.sources = texts
        .iter()
        .map(|text| brownout_findings::SourceText {
            file: text.clone(),
            newer: false,
            excerpts: vec![brownout_findings::Excerpt {
                line: 1,
                text: vec![text.clone(), text.clone(), text.clone()],
            }],
        })
        .collect();
    let saved = scratch.join("report.json");
    fs::write(&saved, serde_json::to_vec(&report)?)?;
    let page = page_of(&saved, scratch.path())?;
    let browser = Browser::start()?;
    let tab = browser.tab()?;
    tab.open(&page, "")?;
    // What such text would have made, were it taken for HTML; the page itself has none of them.
    let made = "document.querySelectorAll('img, iframe, base, link, math, animate, [onerror], [onload], [onmouseover], [onclick]').length === 0 && \
                document.querySelectorAll('script').length === 2 && document.querySelectorAll('meta[http-equiv=refresh]').length === 0";
    for (number, text) in texts.iter().enumerate() {
        tab.evaluate(&format!("location.hash = 'finding={number:016x}'"))?;
        tab.wait_for(&format!(
            "document.querySelector('#finding .meta a').textContent === '{number:016x}'"
        ))?;
        tab.evaluate(
            "document.querySelectorAll('#finding details, #touched details').forEach((one) => { one.open = true; })",
        )?;
        tab.expect(made).with_context(|| format!("{text:.60?}"))?;
        tab.expect("document.documentElement.scrollWidth <= window.innerWidth")
            .with_context(|| format!("wider than the window: {text:.60?}"))?;
        let is_plain = |c: char| !c.is_control() && c.is_ascii();
        if text.len() < 1000 && text.chars().all(is_plain) {
            let shown = tab.text("document.querySelector('#finding h3').textContent")?;
            ensure!(
                shown.contains(text.as_str()),
                "{text:?} is shown as {shown:?}"
            );
        }
    }
    expect_no_barriers(&tab)?;
    screenshot(&tab, "hostile")?;
    expect_silent(&tab)
}

/// The page's script parses as a strict one (Debian's node says so) and its types fit (Debian's tsc
/// does), and both checks can fail.
fn script_is_strict_and_typed() -> Result<()> {
    let scratch = Scratch::new()?;
    let folder = layout::workspace().join("crates/report/src/html");
    let script = folder.join("page.js");
    let check = |path: &Path| {
        Invocation::new(
            ["node".into(), "--check".into(), path.as_os_str().to_owned()],
            scratch.path(),
        )
        .run()
    };
    check(&script)?.expect_success("node --check page.js")?;
    check(&folder.join("watch.js"))?.expect_success("node --check watch.js")?;
    let text = fs::read_to_string(&script)?;
    let broken = scratch.join("broken.js");
    fs::write(
        &broken,
        text.replacen("'use strict';", "'use strict'; with (Math) { max(1); }", 1),
    )?;
    ensure!(check(&broken)?.status != 0, "node takes what is not strict");
    // Types are those that follow from the script and from what browsers have: data is anything.
    let types = |paths: &[&Path]| {
        let mut words: Vec<OsString> = vec!["tsc".into()];
        let options = "--noEmit --allowJs --checkJs --noImplicitReturns --noFallthroughCasesInSwitch --target es2022 \
                       --lib es2022,dom,dom.iterable";
        words.extend(options.split_whitespace().map(OsString::from));
        words.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        Invocation::new(words, scratch.path()).run()
    };
    types(&[&script, &folder.join("watch.js")])?.expect_success("tsc page.js watch.js")?;
    let wrong = scratch.join("wrong.js");
    let line = "let silence = 0;";
    let other = format!("{line}\n  counted(1, 'line').push(1);");
    ensure!(text.contains(line), "the test has lost its point");
    fs::write(&wrong, text.replacen(line, &other, 1))?;
    let told = types(&[&wrong])?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    ensure!(told.contains("error TS2339"), "tsc does not see it: {told}");
    // What makes HTML of text, or code, has no business there.
    for word in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
        "setHTML",
    ] {
        ensure!(!text.contains(word), "the script says {word}");
    }
    Ok(())
}

/// What the pictures of the seeded programs show is what `explore` has found out; and their pages
/// work.
///
/// Of every finding with a lost store: its line has a cross right of the crash, it was stored to
/// and not persistent right before, and no other line has one; the lost stores of the timeline are
/// at the places that the events name.
fn timelines_show_what_is_lost() -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let browser = Browser::start()?;
    let tab = browser.tab()?;
    let programs = seeded::discover()?;
    let mut without = Vec::new();
    for program in &programs {
        let is_one = program
            .source
            .parent()
            .is_some_and(|folder| folder.ends_with("correctness"))
            && program.explore
            && program.crashes == 1
            && !program.lacks_bug();
        if !is_one {
            continue;
        }
        let binary = program.binary(Build::Bug).display().to_string();
        let mut all = words("explore --pm pool --recover");
        all.push(format!("{binary} check pool"));
        if let Some(domain) = &program.domain {
            all.extend(["--domain".into(), domain.clone()]);
        }
        all.extend(["--".into(), binary, "run".into(), "pool".into()]);
        let making = Making {
            name: Box::leak(program.name.clone().into_boxed_str()),
            words: all,
        };
        let (page, report) = make(&making, &scratch)?;
        let data = data_of(&page)?;
        let mut seen = 0;
        for finding in &report.findings {
            seen += u32::from(
                timeline_is_right(finding, &data)
                    .with_context(|| format!("{}: {}", program.name, finding.message))?,
            );
        }
        if seen == 0 && !report.findings.is_empty() {
            without.push(program.name.as_str());
        }
        let opened = open_each_finding(&tab, &page, &report);
        opened.with_context(|| format!("the page of {}", program.name))?;
    }
    ensure!(without == NOTHING_LOST, "{without:?}");
    Ok(())
}

/// What is wrong in these is what survives: no finding of theirs has a store that is lost.
const NOTHING_LOST: [&str; 5] = [
    "correctness/eadr_wide_store",
    "correctness/free_before_unlink",
    "correctness/function_pointer",
    "correctness/lock_pointer",
    "correctness/pointer_to_dram",
];

/// Each finding is shown with its picture, nothing complains, and nothing is in anybody's way.
fn open_each_finding(tab: &Tab<'_>, page: &Path, report: &Report) -> Result<()> {
    tab.open(page, "")?;
    for finding in &report.findings {
        tab.evaluate(&format!(
            "location.hash = 'finding={}'",
            finding.fingerprint
        ))?;
        wait_until_shown(tab, finding)?;
        expect_picture(tab, finding)?;
    }
    expect_no_barriers(tab)?;
    expect_silent(tab)
}

/// What the page's script gets.
fn data_of(page: &Path) -> Result<Value> {
    let text = fs::read_to_string(page)?;
    let (_, data) = text.split_once("id=\"data\">").context("no data")?;
    let (data, _) = data.split_once("</script>").context("no end")?;
    Ok(serde_json::from_str(data)?)
}

/// Whether there is a picture of something lost, and it is right.
fn timeline_is_right(finding: &Finding, data: &Value) -> Result<bool> {
    let is_lost = |event: &&Event| event.role == Role::Store && event.text.contains("lost");
    let lost: Vec<&Event> = finding.events.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(false);
    }
    let timeline = finding.timeline.as_ref().context("no timeline")?;
    for event in &lost {
        let same = timeline.steps.iter().find(|step| {
            Some(step.index) == event.index
                && matches!(step.fate, Some(Fate::Lost | Fate::LostInPart))
        });
        ensure!(
            same.is_some(),
            "event {:?} is not lost in the timeline",
            event.index
        );
    }
    let findings = data["findings"].as_array().context("findings")?;
    let shown = findings
        .iter()
        .find(|one| one["fingerprint"] == json!(finding.fingerprint))
        .context("the finding is not in the page")?;
    let pictures = shown["pictures"].as_array().context("pictures")?;
    let picture = pictures.iter().find(|one| one["kind"] == json!("lines"));
    let picture = picture.context("no picture of lines")?;
    let columns = picture["columns"].as_array().context("columns")?;
    let crash = columns
        .iter()
        .position(|column| column["part"] == json!("crash"));
    let crash = crash.context("no crash in the picture")?;
    let places = timeline
        .steps
        .iter()
        .filter(|step| matches!(step.fate, Some(Fate::Lost | Fate::LostInPart)))
        .filter_map(|step| step.place.as_ref());
    let lines: BTreeSet<(String, String)> = places
        .flat_map(|place| {
            let last = place.offset + place.size.max(1) - 1;
            (place.offset / 64..=last / 64)
                .map(|line| (place.file.clone(), format!("{:x}", line * 64)))
        })
        .collect();
    let mut crossed = 0;
    for row in picture["rows"].as_array().context("rows")? {
        let file = &picture["files"][row["file"].as_u64().unwrap_or(0) as usize];
        let name = (
            file.as_str().unwrap_or_default().to_owned(),
            row["offset"].as_str().unwrap_or_default().to_owned(),
        );
        let states: Vec<char> = row["states"].as_str().unwrap_or_default().chars().collect();
        let is_crossed = matches!(states[crash], 'l' | 'h');
        ensure!(
            !is_crossed || lines.contains(&name),
            "{name:?} is drawn as lost, and is not: {lines:?}"
        );
        if lines.contains(&name) {
            ensure!(
                is_crossed,
                "{name:?} is lost, and drawn as {}",
                states[crash]
            );
            ensure!(
                matches!(states[crash - 1], 'd' | 'w'),
                "{name:?} is lost, and was {} before",
                states[crash - 1]
            );
            crossed += 1;
        }
    }
    ensure!(crossed > 0, "nothing is drawn as lost");
    Ok(true)
}
