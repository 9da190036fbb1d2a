//! `brownout fuzz` on real programs: what it reaches, that it can be repeated and resumed, and that
//! it leaves the user's files alone.
//!
//! Campaigns are limited by executions, not by time, so that a busy machine reaches the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_findings::{Finding, Report};
use brownout_fuzz::{Case, Judge, Kept, Runner, Target, Workshop};
use brownout_images::{ImageId, Node, Origin, View, lay};
use brownout_tests::check::is_at_line;
use brownout_tests::fuzz::{self, Build, FuzzProgram};
use brownout_tests::{Invocation, Scratch, layout, trial};
use libtest_mimic::{Arguments, Trial};

const TIMEOUT: Duration = Duration::from_secs(300);
/// Neither shows any of the bugs that are looked for.
const SEED: &str = "i 1\nr 1\n";

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = vec![
        trial("known_bugs_of_btree_are_reached", reaches),
        trial("one_seed_gives_one_campaign", repeats),
        trial("killed_campaigns_go_on", resumes),
        trial("kept_programs_show_what_launched_ones_show", warm_is_cold),
        trial("campaigns_can_be_looked_at", looks),
        trial("commands_make_images_again", exports),
        trial(
            "commands_make_images_with_addresses_again",
            exports_with_addresses,
        ),
        trial("what_cannot_be_done_is_said", refuses),
        trial("planted::split_separator", || {
            planted("split_separator", "missing-flush", "3000")
        }),
        trial("planted::magic_value", || {
            planted("magic_value", "missing-flush", "400")
        }),
        trial("what_is_not_tracked_is_not_called_clean", untouched),
        trial("planted::full_bucket", || {
            planted("full_bucket", "crash", "8000")
        }),
        // The crash comes before the commands that show it.
        trial("planted::lazy_recovery", || {
            planted("lazy_recovery", "crash", "16000")
        }),
        trial("planted::leak_fills_pool", || {
            planted("leak_fills_pool", "crash", "16000")
        }),
        trial("creation_in_the_run_is_crashed", creation),
        trial("planted::repair_twice", || {
            planted("repair_twice", "recovery-error", "8000")
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn mapcli() -> PathBuf {
    layout::examples().join("mapcli")
}

/// A folder with a seed, and the command that fuzzes a map there.
struct Map {
    scratch: Scratch,
    kind: &'static str,
}

impl Map {
    fn new(kind: &'static str) -> Result<Map> {
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), SEED)?;
        Ok(Map { scratch, kind })
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn setup(&self) -> String {
        format!("{} {} pool < /dev/null", mapcli().display(), self.kind)
    }

    fn command(&self, out: &str, options: &[&str]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
        let setup = self.setup();
        let fixed = [
            "--out", out, "--seeds", "seed", "--setup", &setup, "--pm", "pool",
        ];
        words.extend(fixed.iter().map(OsString::from));
        words.extend(options.iter().map(OsString::from));
        words.extend([
            "--".into(),
            mapcli().into(),
            self.kind.into(),
            "pool".into(),
        ]);
        words
    }

    fn fuzz(&self, out: &str, options: &[&str]) -> Result<Report> {
        let file = format!("{out}.json");
        let mut all = vec!["--format", "json", "-o", &file, "--jobs", "1"];
        all.extend(options);
        let outcome = Invocation::new(self.command(out, &all), self.folder())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            matches!(outcome.status, 0 | 1),
            "it fails\n{}",
            outcome.describe()
        );
        let text = fs::read(self.folder().join(&file))?;
        serde_json::from_slice(&text).context("the report cannot be read")
    }
}

fn is_at(finding: &Finding, rule: &str, line: u32) -> bool {
    let mut events = finding.events.iter();
    finding.rule.as_str() == rule && events.any(|event| is_at_line(event, "btree_map.c", line))
}

fn reaches() -> Result<()> {
    let map = Map::new("btree")?;
    let report = map.fuzz("out", &["--executions", "500", "--explore-share", "5"])?;
    let found = report.findings.iter();
    let found: Vec<&Finding> = found.filter(|f| is_at(f, "duplicate-log", 249)).collect();
    ensure!(!found.is_empty(), "a node never split in a full parent");
    let reached = |f: &&&Finding| {
        f.notes
            .iter()
            .any(|note| note.contains("reached by fuzzing"))
    };
    ensure!(
        found.iter().filter(reached).count() == found.len(),
        "the seed cannot show it"
    );
    let wrong = correctness(&report);
    ensure!(wrong.is_empty(), "btree has no correctness bug: {wrong:#?}");
    Ok(())
}

/// Names of the queue, without what the clock says.
fn queue(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("queue"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let parts = name.split(',').filter(|part| !part.starts_with("time:"));
        names.push(parts.collect::<Vec<_>>().join(","));
    }
    names.sort();
    Ok(names)
}

fn repeats() -> Result<()> {
    let map = Map::new("hashmap_tx")?;
    let mut both = Vec::new();
    for out in ["one", "two"] {
        let report = map.fuzz(out, &["--executions", "120", "--seed", "7"])?;
        let found: BTreeSet<String> = report
            .findings
            .iter()
            .map(|f| f.fingerprint.clone())
            .collect();
        let tree = Kept::look(&map.folder().join(out))?.tree()?;
        both.push((queue(&map.folder().join(out))?, found, tree));
    }
    ensure!(both[0].0.len() > 5, "hardly anything was kept");
    ensure!(both[0] == both[1], "{:#?}", both);
    Ok(())
}

fn resumes() -> Result<()> {
    let map = Map::new("rbtree")?;
    let out = map.folder().join("out");
    let words = map.command("out", &["--jobs", "2", "--time", "100s", "-o", "ignored"]);
    for round in 0..3 {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..2]);
        if round > 0 {
            command.arg("--resume");
        }
        command.args(&words[2..]).current_dir(map.folder());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let before = if round > 0 { queue(&out)?.len() } else { 0 };
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(50));
            if let Some(status) = child.try_wait()? {
                bail!("it has ended by itself in round {round}: {status}");
            }
            if out.join("queue").is_dir() && queue(&out)?.len() >= before + 3 {
                break;
            }
        }
        child.kill()?;
        child.wait()?;
        // Every case that has a file is in the journal, once, and its image and input are there.
        let kept = Kept::look(&out)?;
        let ids: BTreeSet<u64> = kept.cases.iter().map(|case| case.id).collect();
        ensure!(ids.len() == kept.cases.len(), "a case is there twice");
        let inputs: BTreeSet<_> = kept.cases.iter().map(|c| (c.image, c.input)).collect();
        ensure!(inputs.len() == kept.cases.len(), "a case was counted twice");
        ensure!(ids.len() >= queue(&out)?.len(), "a case was lost");
        for case in &kept.cases {
            kept.store.input_bytes(case.input)?;
            kept.store.difference(None, case.image)?;
        }
    }
    Ok(())
}

fn workshop(map: &Map, kept: &Kept, keeps: bool) -> Result<Arc<Workshop>> {
    let target = Target {
        program: mapcli().into(),
        args: vec![map.kind.into(), map.folder().join("pool").into()],
        pm_globs: vec![map.folder().join("pool").to_string_lossy().into_owned()],
        delivery: Default::default(),
    };
    let ground = brownout_explore::Ground::new()?;
    let mut workshop = Workshop::new(ground, kept.store.clone(), target, TIMEOUT);
    workshop.keeps = keeps;
    Ok(Arc::new(workshop))
}

/// What a forked run shows and leaves is what a fresh process shows and leaves, on normal and on
/// crash images, in any order.
fn warm_is_cold() -> Result<()> {
    let map = Map::new("skiplist")?;
    map.fuzz("out", &["--executions", "60", "--explore-share", "0"])?;
    let kept = Kept::look(&map.folder().join("out"))?;
    let images: Vec<ImageId> = kept.store.iter().map(|node| node.id).collect();
    let is_crash = |id: &&ImageId| {
        let node = kept.store.node(**id);
        node.is_ok_and(|node| matches!(node.origin, Origin::Crash { .. }))
    };
    let crash = images.iter().find(is_crash).context("no crash image")?;
    let normal = images.last().context("no image")?;
    let inputs = [
        "i 5\ni 7\nr 5\n",
        "",
        "i 1\ni 2\ni 3\ni 4\nr 2\nc 3\nn 5\n",
        "x\n",
    ];
    let mut seen = BTreeMap::new();
    for keeps in [false, true] {
        let judge = Judge::new(Default::default(), Default::default());
        let mut runner = Runner::new(workshop(&map, &kept, keeps)?, judge);
        for round in 0..2 {
            for image in [images[0], *crash, *normal] {
                for input in inputs {
                    let case = Case {
                        image,
                        input: input.as_bytes().to_vec(),
                    };
                    runner.run(&case)?;
                    let left = format!("{:?}", runner.left()?);
                    let sight = serde_json::to_vec(runner.sight())?;
                    let all = (left, sight);
                    let first = seen.entry((image, input)).or_insert_with(|| all.clone());
                    ensure!(
                        first.0 == all.0,
                        "{keeps} {round} {input:?}: leaves something else"
                    );
                    ensure!(
                        first.1 == all.1,
                        "{keeps} {round} {input:?}: does something else"
                    );
                }
            }
        }
        ensure!((runner.warm > 0) == keeps, "{} warm runs", runner.warm);
    }
    Ok(())
}

fn looks() -> Result<()> {
    let map = Map::new("btree")?;
    let listing = |map: &Map| -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(map.folder())? {
            let path = entry?.path();
            if path.is_file() {
                files.push((path.clone(), fs::read(&path)?));
            }
        }
        files.sort();
        Ok(files)
    };
    fs::write(map.folder().join("mine"), "mine")?;
    let before = listing(&map)?;
    map.fuzz("out", &["--executions", "80", "--explore-share", "0"])?;
    fs::remove_file(map.folder().join("out.json"))?;
    ensure!(listing(&map)? == before, "the user's files have changed");
    let run = |words: &[&str]| {
        let words = std::iter::once("fuzz").chain(words.iter().copied());
        let words = std::iter::once(layout::brownout().into()).chain(words.map(OsString::from));
        Invocation::new(words.collect::<Vec<OsString>>(), map.folder())
            .timeout(TIMEOUT)
            .run()
    };
    let tree = run(&["tree", "out"])?;
    let text = tree.stdout_text();
    ensure!(
        text.contains("img:0 made by") && text.contains("left by"),
        "{text}"
    );
    let kept = Kept::look(&map.folder().join("out"))?;
    let (key, _) = kept.found.iter().next().context("nothing was found")?;
    let again = run(&["repro", "out", key])?;
    ensure!(
        again.status == 1 && again.stderr_text().contains("shows again"),
        "{}",
        again.describe()
    );
    let native = run(&["repro", "out", "0", "--native"])?;
    ensure!(native.status == 0, "{}", native.describe());
    ensure!(listing(&map)? == before, "the user's files have changed");
    let unknown = run(&["repro", "out", "99999"])?;
    ensure!(unknown.status == 2, "{}", unknown.describe());
    Ok(())
}

/// What the script of an exported image says, and whether it has made the image again, byte for
/// byte. The script may use the tool.
fn rebuilt(folder: &Path, kept: &Kept, node: &Node, by_tool: bool) -> Result<(String, bool)> {
    let id = format!("img:{}", node.number);
    let words = ["fuzz", "export", "out", &id, "-o", "exported"];
    let words = std::iter::once(layout::brownout().into()).chain(words.map(OsString::from));
    let exported = Invocation::new(words.collect::<Vec<OsString>>(), folder).run()?;
    ensure!(exported.status == 0, "{}", exported.describe());
    let mut script = Command::new(folder.join("exported/rebuild.sh"));
    script.current_dir(folder).env_remove("BROWNOUT");
    if by_tool {
        script.env("BROWNOUT", layout::brownout());
    }
    let made = script.output()?;
    ensure!(made.status.success(), "{id}: {made:?}");
    let there = fs::read(folder.join("pool"))?;
    let expected = folder.join("expected");
    let at = |path: &Path| expected.join(path.file_name().unwrap_or_default());
    fs::create_dir_all(&expected)?;
    lay(
        &kept.store.difference(None, node.id)?,
        &View {
            at: &at,
            machine: &|_| PathBuf::from("/nonexistent"),
        },
    )?;
    let is_same = there == fs::read(expected.join("pool"))?;
    fs::remove_dir_all(&expected)?;
    fs::remove_dir_all(folder.join("exported"))?;
    fs::remove_file(folder.join("pool"))?;
    Ok((String::from_utf8(made.stderr)?, is_same))
}

fn normal_images(kept: &Kept) -> Vec<Node> {
    let is_run = |node: &Node| matches!(node.origin, Origin::Run { .. });
    kept.store.iter().filter(is_run).collect()
}

/// So many normal images are made again, at least. `cargo xtask bench fuzz --part storage`
/// takes 100.
const EXPORTED_MIN: usize = 8;

/// Commands make the same image natively, byte for byte, if the program does not store addresses.
fn exports() -> Result<()> {
    let program = fuzz::find("clean_tree")?;
    let map = Planted::new(&program, Build::Fixed)?;
    map.fuzz(&["--executions", "3000", "--explore-share", "0"])?;
    let kept = Kept::look(&map.folder().join("out"))?;
    let nodes = normal_images(&kept);
    ensure!(nodes.iter().any(|node| node.depth > 1), "the tree is flat");
    ensure!(
        nodes.len() >= EXPORTED_MIN,
        "only {} normal images",
        nodes.len()
    );
    for node in nodes {
        let (said, is_same) = rebuilt(map.folder(), &kept, &node, false)?;
        ensure!(is_same, "img:{} differs", node.number);
        ensure!(said.contains("as in the campaign, byte for byte"), "{said}");
    }
    Ok(())
}

/// libpmemobj keeps addresses in its pools. Under the tool, these are what they were, too.
fn exports_with_addresses() -> Result<()> {
    let map = Map::new("hashmap_atomic")?;
    map.fuzz("out", &["--executions", "300", "--explore-share", "0"])?;
    let kept = Kept::look(&map.folder().join("out"))?;
    // How deep the tree is after so few executions depends on the folder, whose name is in the
    // images.
    let nodes = normal_images(&kept);
    let deepest = nodes.iter().max_by_key(|node| node.depth);
    for node in nodes.iter().take(3).chain(deepest) {
        let (said, is_same) = rebuilt(map.folder(), &kept, node, true)?;
        ensure!(is_same, "img:{} differs: {said}", node.number);
        ensure!(said.contains("as in the campaign, byte for byte"), "{said}");
    }
    let first = nodes.first().context("no image")?;
    let (said, is_same) = rebuilt(map.folder(), &kept, first, false)?;
    ensure!(!is_same, "addresses are as in the campaign by chance");
    ensure!(said.contains("set BROWNOUT to the tool"), "{said}");
    Ok(())
}

/// A program of `tests/fuzz` in a folder of its own.
struct Planted {
    scratch: Scratch,
    binary: PathBuf,
}

impl Planted {
    fn new(program: &FuzzProgram, build: Build) -> Result<Planted> {
        let scratch = Scratch::new()?;
        fs::write(scratch.path().join("seed"), program.seed.input())?;
        let binary = program.binary(build);
        Ok(Planted { scratch, binary })
    }

    fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn fuzz(&self, options: &[&str]) -> Result<Report> {
        let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
        let fixed = [
            "--out", "out", "--seeds", "seed", "--pm", "pool", "--jobs", "1",
        ];
        words.extend(fixed.iter().map(OsString::from));
        words.extend(["--format", "json", "-o", "report.json"].map(OsString::from));
        words.extend(options.iter().map(OsString::from));
        words.extend(["--".into(), self.binary.clone().into(), "pool".into()]);
        let outcome = Invocation::new(words, self.folder())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            matches!(outcome.status, 0 | 1),
            "it fails\n{}",
            outcome.describe()
        );
        let text = fs::read(self.folder().join("report.json"))?;
        serde_json::from_slice(&text).context("the report cannot be read")
    }
}

fn correctness(report: &Report) -> Vec<&Finding> {
    let found = report.findings.iter();
    found
        .filter(|f| f.severity == brownout_findings::Severity::Correctness)
        .collect()
}

/// What is planted is reached from a seed that does not show it, and replays; nothing is found in
/// the twin.
fn planted(name: &str, rule: &str, executions: &str) -> Result<()> {
    let program = fuzz::find(name)?;
    let mut bug = Planted::new(&program, Build::Bug)?;
    let mut report = bug.fuzz(&["--executions", executions, "--until-found"])?;
    let of_rule = |f: &&&Finding| f.rule.as_str() == rule;
    // Something else may be found first; then it is searched again, to the end.
    if correctness(&report).iter().find(of_rule).is_none() {
        bug = Planted::new(&program, Build::Bug)?;
        report = bug.fuzz(&["--executions", executions])?;
    }
    let found = correctness(&report);
    let wanted = found.iter().find(of_rule);
    let wanted = wanted.with_context(|| format!("no {rule}: {found:#?}"))?;
    let token = &wanted.replay.as_ref().context("no replay token")?.token;
    let words = ["replay", "--yes", token].map(OsString::from);
    let words = std::iter::once(layout::brownout().into()).chain(words);
    let again = Invocation::new(words.collect::<Vec<OsString>>(), bug.folder()).run()?;
    ensure!(again.status == 1, "{}", again.describe());
    let twin = Planted::new(&program, Build::Fixed)?;
    let report = twin.fuzz(&["--executions", "1000"])?;
    ensure!(
        correctness(&report).is_empty(),
        "{:#?}",
        correctness(&report)
    );
    Ok(())
}

/// libpmemobj writes back some ten thousands of lines when it makes a pool; crashes of that are
/// tried all the same.
fn creation() -> Result<()> {
    let map = Map::new("btree")?;
    let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
    let fixed = ["--out", "out", "--seeds", "seed", "--pm", "pool"];
    let report = ["--jobs", "1", "--format", "json", "-o", "report.json"];
    let bounds = ["--executions", "60", "--"];
    words.extend(
        fixed
            .iter()
            .chain(&report)
            .chain(&bounds)
            .map(OsString::from),
    );
    words.extend([mapcli().into(), "btree".into(), "pool".into()]);
    let outcome = Invocation::new(words, map.folder())
        .timeout(TIMEOUT)
        .run()?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    let text = fs::read(map.folder().join("report.json"))?;
    let report: Report = serde_json::from_slice(&text)?;
    let is_refused = |finding: &&Finding| finding.rule.as_str() == "recovery-error";
    ensure!(
        report.findings.iter().find(is_refused).is_some(),
        "no crash of the creation was tried: {:#?}",
        report.coverage
    );
    Ok(())
}

/// Without `--pm` the pool is an ordinary file: nothing was looked at, and that is said.
fn untouched() -> Result<()> {
    let program = fuzz::find("full_bucket")?;
    let planted = Planted::new(&program, Build::Bug)?;
    let mut words: Vec<OsString> = vec![layout::brownout().into(), "fuzz".into()];
    words.extend(
        [
            "--out",
            "out",
            "--seeds",
            "seed",
            "--executions",
            "20",
            "--",
        ]
        .map(OsString::from),
    );
    words.extend([planted.binary.clone().into(), "pool".into()]);
    let outcome = Invocation::new(words, planted.folder())
        .timeout(TIMEOUT)
        .run()?;
    let said = outcome.stderr_text();
    ensure!(
        outcome.status == 0
            && !said.contains("no findings")
            && said.contains("no persistent memory was touched")
            && said.contains("add --pm"),
        "{}",
        outcome.describe()
    );
    Ok(())
}

fn refuses() -> Result<()> {
    let map = Map::new("btree")?;
    fs::create_dir(map.folder().join("full"))?;
    fs::write(map.folder().join("full/file"), "mine")?;
    for (out, options, said) in [
        ("full", vec!["--executions", "1"], "full"),
        ("none", vec!["--executions", "1", "--resume"], "none"),
        (
            "x",
            vec!["--executions", "1", "--seeds", "nowhere"],
            "nowhere",
        ),
        (
            "x",
            vec!["--executions", "1", "--setup", "exit 3"],
            "exit 3",
        ),
    ] {
        let words = map.command(out, &options);
        let outcome = Invocation::new(words, map.folder())
            .timeout(TIMEOUT)
            .run()?;
        ensure!(
            outcome.status == 2 && outcome.stderr_text().contains(said),
            "{out} {options:?}\n{}",
            outcome.describe()
        );
    }
    ensure!(fs::read(map.folder().join("full/file"))? == b"mine");
    Ok(())
}
