//! `--detect CMD`: the user's own judge.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use brownout_findings::{Finding, Report};
use brownout_fuzz::Kept;
use brownout_images::ImageId;
use brownout_tests::fuzz::Build;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::Scene;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("detect::findings_are_small_and_replay", finds),
        trial("detect::a_detector_that_fails_is_no_finding", fails),
    ]
}

fn detected(report: &Report) -> Vec<&Finding> {
    let found = report.findings.iter();
    found.filter(|f| f.rule == "detected").collect()
}

/// Writes a script into the scene's folder.
fn script(scene: &Scene, text: &str) -> Result<()> {
    let path = scene.path("detector");
    fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn finds() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    // It spoils the pool, if a crash has left one, and wants short inputs.
    script(
        &scene,
        "test -s \"$1/status\" || exit 9\n\
         pool=$1/files$PWD/pool\n\
         test -s \"$pool\" || exit 0\n\
         echo broken > \"$pool\" || exit 7\n\
         if test $(wc -l < \"$1/input\") -gt 3; then echo 'many lines'; wc -l < \"$1/input\"; exit 1; fi",
    )?;
    let mut both = Vec::new();
    for out in ["one", "two"] {
        let options = [
            "--out",
            out,
            "--executions",
            "600",
            "--detect",
            "./detector",
        ];
        let report = scene.fuzz(&options)?;
        let found = detected(&report);
        ensure!(found.len() == 1, "{:#?}", report.findings);
        ensure!(found[0].message == "many lines", "{:#?}", found[0]);
        let kept = Kept::look(&scene.path(out))?;
        let is_detected = |found: &&brownout_fuzz::Found| found.finding.rule == "detected";
        let one = kept.found.values().find(is_detected).context("not kept")?;
        let lines = one.case.input.split(|byte| *byte == b'\n').count() - 1;
        ensure!(lines == 4, "it is not small: {:?}", one.case.input);
        ensure!(Some(one.case.image) == kept.store.root(), "not on the root");
        let images = kept.store.iter().map(|node| node.id);
        let images: Vec<ImageId> = images.collect();
        both.push((images, one.case.clone()));
        let token = &found[0].replay.as_ref().context("no token")?.token;
        let again = scene.tool(&["replay", "--yes", token])?;
        ensure!(again.status == 1, "{}", again.describe());
    }
    ensure!(
        both[0] == both[1],
        "two campaigns find it in another way: {both:#?}"
    );
    // It cannot change what it looks at: without it, the first images are the same. (Later ones
    // need not be: what it finds is made small, and that takes executions.)
    scene.fuzz(&["--out", "three", "--executions", "600"])?;
    let kept = Kept::look(&scene.path("three"))?;
    let images: Vec<ImageId> = kept.store.iter().map(|node| node.id).collect();
    ensure!(images[..3] == both[0].0[..3], "images have changed");
    ensure!(
        !scene.path("pool").exists(),
        "the user's folder has changed"
    );
    Ok(())
}

fn fails() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    script(&scene, "echo 'where is it?' >&2; exit 3")?;
    let options = [
        "--out",
        "out",
        "--executions",
        "100",
        "--detect",
        "./detector",
    ];
    let ended = scene.run(scene.words(&options))?;
    let text = ended.stdout_text() + &ended.stderr_text();
    ensure!(ended.status == 3, "{}", ended.describe());
    ensure!(!text.contains("[detected]"), "{}", ended.describe());
    let said = text.matches("where is it?").count();
    ensure!(said == 1, "said {said} times: {}", ended.describe());
    Ok(())
}
