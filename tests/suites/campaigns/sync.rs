//! `--sync DIR`: inputs are exchanged with fuzzers that write AFL++'s layout.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use brownout_fuzz::Kept;
use brownout_tests::fuzz::Build;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::Scene;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("sync::inputs_go_both_ways", both_ways),
        trial("sync::a_campaign_within_the_folder_copies_nothing", within),
    ]
}

/// A file in the queue of another fuzzer that was written some time ago.
fn offer(scene: &Scene, number: u64, input: &str) -> Result<()> {
    let queue = scene.path("both/main/queue");
    fs::create_dir_all(&queue)?;
    let name = format!("id:{number:06},src:000000,time:1,execs:2,op:havoc,rep:2");
    let mut file = File::create(queue.join(name))?;
    file.write_all(input.as_bytes())?;
    file.set_modified(SystemTime::now() - Duration::from_secs(10))?;
    Ok(())
}

fn names(scene: &Scene, folder: &str) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(scene.path(folder)).with_context(|| folder.to_owned())?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

fn both_ways() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    // More of the same than changes of the seed come up with at once.
    let many: String = (0..40).map(|n| format!("i {n}\n")).collect();
    offer(&scene, 0, &many)?;
    offer(&scene, 1, "p\np\np\np\np\np\np\np\np\n")?;
    let options = ["--out", "out", "--sync", "both", "--executions", "150"];
    scene.fuzz(&options)?;
    let queue = names(&scene, "out/queue")?;
    let taken: Vec<_> = queue
        .iter()
        .filter(|name| name.contains("sync:main"))
        .collect();
    ensure!(!taken.is_empty(), "{queue:#?}");
    ensure!(taken[0].contains(",sync:main,src:000000"), "{taken:?}");
    let kept = Kept::look(&scene.path("out"))?;
    let inputs: Vec<_> = kept
        .cases
        .iter()
        .map(|case| kept.store.input_bytes(case.input))
        .collect();
    let has = |text: &str| {
        inputs
            .iter()
            .flatten()
            .any(|input| input == text.as_bytes())
    };
    ensure!(has(&many), "the first was not kept");
    // Ours are offered, all of them, and nothing else is.
    let parties = names(&scene, "both")?;
    let ours = parties.iter().find(|name| name.starts_with("brownout-"));
    let ours = ours.with_context(|| format!("{parties:?}"))?;
    ensure!(names(&scene, &format!("both/{ours}/queue"))? == queue);
    // Nobody else's folder has changed, and nothing is taken twice.
    ensure!(names(&scene, "both/main/queue")?.len() == 2);
    offer(&scene, 2, "r 1\nr 2\nr 3\nr 4\nr 5\nr 6\nr 7\nr 8\nr 9\n")?;
    let more = [
        "--out",
        "out",
        "--sync",
        "both",
        "--resume",
        "--executions",
        "300",
    ];
    scene.fuzz(&more)?;
    let after = names(&scene, "out/queue")?;
    let taken: BTreeSet<_> = after
        .iter()
        .filter_map(|name| name.split("sync:main,src:").nth(1))
        .collect();
    let twice = after
        .iter()
        .filter(|name| name.contains("sync:main"))
        .count();
    ensure!(taken.len() == twice, "{after:#?}");
    ensure!(queue.is_subset(&after), "{after:#?}");
    Ok(())
}

fn within() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    offer(&scene, 0, "p\np\np\n")?;
    let options = ["--out", "both/us", "--sync", "both", "--executions", "100"];
    scene.fuzz(&options)?;
    let parties = names(&scene, "both")?;
    ensure!(parties.len() == 2, "{parties:?}");
    // The folder of one fuzzer is not that of several.
    let wrong = ["--out", "out", "--sync", "both/main", "--executions", "100"];
    let refused = scene.run(scene.words(&wrong))?;
    ensure!(refused.status == 2, "{}", refused.describe());
    ensure!(
        refused.stderr_text().contains("the folder above it"),
        "{}",
        refused.describe()
    );
    Ok(())
}
