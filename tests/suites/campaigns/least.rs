//! `brownout fuzz min`: fewer inputs, the same coverage.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use brownout_fuzz::{Case, Cover, Judge, Kept, Runner, Shown};
use brownout_tests::fuzz::Build;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::Scene;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("least::fewer_inputs_show_the_same", same),
        trial("least::images_are_led_to_or_left_out", with_images),
    ]
}

fn inputs(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    let read = |entry: &fs::DirEntry| Ok(fs::read(entry.path())?);
    names.iter().map(read).collect()
}

/// What each of these cases shows.
fn shown(kept: &Kept, cases: &[Case]) -> Result<Vec<Shown>> {
    let judge = Judge::new(Default::default(), Default::default());
    let mut runner = Runner::new(kept.workshop()?.into(), judge);
    let mut all = Vec::new();
    for case in cases {
        runner.run(case)?;
        all.push(Shown::of(runner.sight()));
    }
    Ok(all)
}

fn of_queue(kept: &Kept) -> Result<Vec<Case>> {
    let case = |kept_case: &brownout_fuzz::KeptCase| {
        Ok(Case {
            image: kept_case.image,
            input: kept.store.input_bytes(kept_case.input)?,
        })
    };
    kept.cases.iter().map(case).collect()
}

fn covered(all: &[Shown]) -> Cover {
    let mut cover = Cover::default();
    for shown in all {
        cover.add(shown);
    }
    cover
}

fn same() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    let options = ["--out", "out", "--executions", "1200", "--images", "none"];
    scene.fuzz(&options)?;
    let made = scene.tool(&["fuzz", "min", "out", "-o", "small"])?;
    ensure!(made.status == 0, "{}", made.describe());
    ensure!(
        !made.stderr_text().contains("left out"),
        "{}",
        made.describe()
    );
    std::env::set_current_dir(scene.folder())?;
    let kept = Kept::look(&scene.path("out"))?;
    let root = kept.store.root().context("no root")?;
    let small: Vec<Case> = inputs(&scene.path("small"))?
        .into_iter()
        .map(|input| Case { image: root, input })
        .collect();
    let queue = of_queue(&kept)?;
    ensure!(queue.len() > 10, "hardly anything was kept");
    ensure!(
        small.len() < queue.len(),
        "{} of {}",
        small.len(),
        queue.len()
    );
    let whole = covered(&shown(&kept, &queue)?);
    let of_small = shown(&kept, &small)?;
    let cover = covered(&of_small);
    ensure!(
        cover.len() == whole.len(),
        "{} of {}",
        cover.len(),
        whole.len()
    );
    for without in 0..small.len() {
        let mut rest = of_small.clone();
        rest.remove(without);
        ensure!(
            covered(&rest).len() < whole.len(),
            "{without} is superfluous"
        );
    }
    // Another campaign begins with them.
    let again = ["--out", "again", "--seeds", "small", "--executions", "100"];
    scene.fuzz(&again)?;
    let begun = Kept::look(&scene.path("again"))?;
    let seeds: BTreeSet<Vec<u8>> = of_queue(&begun)?
        .into_iter()
        .map(|case| case.input)
        .collect();
    ensure!(small.iter().all(|case| seeds.contains(&case.input)));
    // Nothing is written over.
    let refused = scene.tool(&["fuzz", "min", "out", "-o", "small"])?;
    ensure!(refused.status == 2, "{}", refused.describe());
    Ok(())
}

fn with_images() -> Result<()> {
    let scene = Scene::of("repair_twice", Build::Fixed)?;
    scene.fuzz(&[
        "--out",
        "out",
        "--executions",
        "1000",
        "--explore-share",
        "0",
    ])?;
    let made = scene.tool(&["fuzz", "min", "out", "-o", "small"])?;
    ensure!(made.status == 0, "{}", made.describe());
    let text = made.stderr_text();
    let (_, names) = text
        .split_once("left out: ")
        .with_context(|| made.describe())?;
    let names: BTreeSet<u64> = names
        .trim()
        .split(", ")
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    std::env::set_current_dir(scene.folder())?;
    let kept = Kept::look(&scene.path("out"))?;
    let root = kept.store.root().context("no root")?;
    let queue = of_queue(&kept)?;
    let mut cases: Vec<Case> = inputs(&scene.path("small"))?
        .into_iter()
        .map(|input| Case { image: root, input })
        .collect();
    for (kept_case, case) in kept.cases.iter().zip(&queue) {
        if names.contains(&kept_case.id) {
            ensure!(case.image != root, "{} needs no image", kept_case.id);
            cases.push(case.clone());
        }
    }
    ensure!(
        cases.len() < queue.len(),
        "{} of {}",
        cases.len(),
        queue.len()
    );
    let whole = covered(&shown(&kept, &queue)?);
    let cover = covered(&shown(&kept, &cases)?);
    ensure!(
        cover.has_all_of(&whole),
        "{} of {}",
        cover.len(),
        whole.len()
    );
    Ok(())
}
