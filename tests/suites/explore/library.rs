//! What other analyses take from the crate `explore`: explorations that begin with files which are
//! on no disk, crash images of a run as plain data, and recordings of runs that are forked from a
//! kept process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use brownout_explore::crashes::{self, CrashImage, FileContent, Location, Points, Subset, Wanted};
use brownout_explore::{Command, Exploration, Ground, Options, Run, RunRecorder, Start, Status};
use brownout_host::{Enclosure, ExitStatus, LaunchConfig, Layer, Session, StopAt};
use brownout_tests::seeded::{self, Build};
use brownout_tests::{Scratch, examples};
use libtest_mimic::Trial;

use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("library::explores_from_an_image", from_an_image),
        trial("library::crash_images_can_be_used", crash_images),
        trial("library::distinct_recoveries", distinct_recoveries),
        trial("library::records_a_forked_run", forked_run),
        trial("library::small_explorations_are_deterministic", small),
        trial("library::known_causes_are_not_looked_into", known_causes),
    ]
}

/// What is in the map before anything is explored.
const BEFORE: &str = "i 1\ni 2\n";
/// What is explored: the first command shows that the files of the beginning are there.
const COMMANDS: &str = "c 2\ni 3\nr 1\n";
/// Recovery looks up every key.
const LOOKUPS: &str = "c 1\nc 2\nc 3\n";
/// What it may find, key by key: nothing is done, one operation, both.
const STATES: [[bool; 3]; 3] = [[true, true, false], [true, true, true], [false, true, true]];

/// A pool that is in a layer and nowhere else.
struct Stage {
    scratch: Scratch,
    ground: Ground,
    layer: Layer,
    mapcli: PathBuf,
}

impl Stage {
    fn new() -> Result<Stage> {
        let ground = Ground::new()?;
        let scratch = Scratch::new()?;
        for (name, text) in [
            ("before", BEFORE),
            ("commands", COMMANDS),
            ("lookups", LOOKUPS),
        ] {
            fs::write(scratch.join(name), text)?;
        }
        let view = enclose(&ground, &[])?;
        let mapcli = examples::binary("mapcli")?;
        let (status, _) = run(&mapcli, &scratch, "before", &view)?;
        ensure!(status == ExitStatus::Code(0), "{status:?}");
        let layer = view.layer().clone();
        Ok(Stage {
            scratch,
            ground,
            layer,
            mapcli,
        })
    }

    fn pool(&self) -> PathBuf {
        self.scratch.join("pool")
    }

    fn view(&self) -> Result<Arc<Enclosure>> {
        enclose(&self.ground, std::slice::from_ref(&self.layer))
    }

    fn command(&self, input: &str) -> Command {
        Command {
            program: self.mapcli.clone().into(),
            args: vec!["btree".into(), self.pool().into()],
            stdin: Some(self.scratch.join(input)),
        }
    }

    fn options(&self) -> Result<Options> {
        let program = self.command("commands");
        let recover = self.command("lookups");
        let folder = self.scratch.join("findings");
        Ok(Options {
            start: Some(Start {
                enclosures: enclosures(&self.ground)?.clone(),
                layers: vec![self.layer.clone()],
            }),
            pm_globs: vec![self.pool().to_string_lossy().into_owned()],
            operations: true,
            depth: Some(1),
            journal: false,
            distinct_max: 30,
            ..Options::new(program, recover, folder)
        })
    }

    fn record(&self) -> Result<Run> {
        Ok(brownout_explore::record_run(&self.options()?, None)?)
    }

    fn explore(&self) -> Result<Exploration> {
        Ok(brownout_explore::explore(&self.options()?, &mut ())?)
    }

    /// What is in the map that a view has.
    fn look_up(&self, view: &Arc<Enclosure>) -> Result<[bool; 3]> {
        let (status, printed) = run(&self.mapcli, &self.scratch, "lookups", view)?;
        ensure!(status == ExitStatus::Code(0), "{status:?}: {printed}");
        found(&printed)
    }
}

fn enclosures(ground: &Ground) -> Result<&Arc<brownout_host::Enclosures>> {
    let denied = |why: &str| {
        anyhow!("this machine allows no private views, without which this cannot be tested: {why}")
    };
    ground.enclosures().map_err(denied)
}

fn enclose(ground: &Ground, below: &[Layer]) -> Result<Arc<Enclosure>> {
    Ok(Arc::new(enclosures(ground)?.enclose(below)?))
}

/// Runs `mapcli` in a view.
fn run(
    mapcli: &Path,
    scratch: &Scratch,
    input: &str,
    view: &Arc<Enclosure>,
) -> Result<(ExitStatus, String)> {
    let mut config = LaunchConfig::new(mapcli, [Path::new("btree"), &scratch.join("pool")]);
    config.deterministic = true;
    config.enclosure = Some(view.clone());
    config.stdin = Some(File::open(scratch.join(input))?);
    let printed = scratch.join("printed");
    config.stdout = Some(File::create(&printed)?);
    let outcome = brownout_host::run(&config)?;
    Ok((outcome.status, fs::read_to_string(&printed)?))
}

/// The answers to look-ups.
fn found(printed: &str) -> Result<[bool; 3]> {
    let answers = printed
        .lines()
        .map(|line| line.trim_start_matches("$ ").trim());
    let answers: Vec<bool> = answers
        .filter_map(|line| match line {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
        .collect();
    <[bool; 3]>::try_from(answers).map_err(|_| anyhow!("not three answers: {printed}"))
}

/// The program, recoveries and the references of the oracle all find the pool of the layer; neither
/// it nor the user's folder is changed.
fn from_an_image() -> Result<()> {
    let stage = Stage::new()?;
    let recorded = stage.record()?;
    ensure!(recorded.status() == Status::Exit(0));
    let (printed, _) = recorded.output();
    let printed = String::from_utf8_lossy(&printed);
    ensure!(printed.contains('1'), "the map is empty: {printed}");
    let explored = brownout_explore::explore_run(&stage.options()?, recorded, &mut ())?;
    ensure!(explored.findings.is_empty(), "{:?}", explored.findings);
    ensure!(
        explored.coverage.open().is_empty(),
        "{:?}",
        explored.coverage
    );
    ensure!(!stage.pool().exists(), "the user's folder is changed");
    ensure!(
        !stage.scratch.join("findings").exists(),
        "nothing was found, and there is a folder"
    );
    ensure!(
        stage.look_up(&stage.view()?)? == STATES[0],
        "the layer is changed"
    );
    // A recovery that does nothing but look whether the pool is there finds it, wherever the power
    // fails.
    let mut options = stage.options()?;
    options.recover = Command::shell(&format!("test -f {}", stage.pool().display()), None);
    options.operations = false;
    let explored = brownout_explore::explore(&options, &mut ())?;
    ensure!(explored.findings.is_empty(), "{:?}", explored.findings);
    Ok(())
}

fn wanted() -> Wanted {
    Wanted {
        points: Points::Drawn(12),
        per_point: 3,
        seed: 7,
    }
}

/// Lays an image down, on what it is told as a difference from.
fn lay(image: &CrashImage, view: &Enclosure) -> Result<()> {
    for (path, content) in &image.files {
        let FileContent::File {
            size, from, bytes, ..
        } = content
        else {
            return Err(anyhow!("{}: {content:?}", path.display()));
        };
        ensure!(from.as_ref() == Some(path), "{from:?}");
        let file = File::options().write(true).open(view.path(path))?;
        file.set_len(*size)?;
        for (at, bytes) in bytes {
            file.write_all_at(bytes, *at)?;
        }
    }
    Ok(())
}

/// The program opens each image, and finds that each operation was done, or not.
fn crash_images() -> Result<()> {
    let stage = Stage::new()?;
    let run = stage.record()?;
    let images: Vec<CrashImage> = crashes::images(&run, wanted()).collect();
    ensure!((7..=36).contains(&images.len()), "{} images", images.len());
    let mut seen = Vec::new();
    for image in &images {
        let again = crashes::image(&run, image.at, &image.subset);
        ensure!(again.as_ref() == Some(image), "another one: {:?}", image.at);
        let view = stage.view()?;
        lay(image, &view)?;
        let state = stage.look_up(&view)?;
        ensure!(
            STATES.contains(&state),
            "{state:?} at {:?} {:?}",
            image.at,
            image.subset
        );
        seen.push(state);
    }
    ensure!(
        seen.contains(&STATES[0]) && seen.contains(&STATES[2]),
        "{seen:?}"
    );
    // Another recording is the same run, and has the same images.
    let other = stage.record()?;
    ensure!(run.name().is_some() && run.name() == other.name());
    ensure!(crashes::images(&other, wanted()).eq(images));
    Ok(())
}

/// Each recovery that did something different comes with its crash, which another recording of the
/// run has, too.
fn distinct_recoveries() -> Result<()> {
    let stage = Stage::new()?;
    let explored = stage.explore()?;
    let all = explored.distinct.len();
    ensure!(all >= 3, "{all} recoveries");
    let run = stage.record()?;
    for distinct in &explored.distinct {
        let [crash] = distinct.crash.crashes.as_slice() else {
            return Err(anyhow!("{:?}", distinct.crash));
        };
        ensure!(distinct.status == Status::Exit(0), "{:?}", distinct.status);
        ensure!(Some(&crash.run) == run.name().as_ref(), "another run");
        let subset = Subset::Chosen(crash.survivors.clone());
        let image = crashes::image(&run, Location::point(crash.point), &subset);
        let image = image.context("the crash is not legal")?;
        ensure!(image.files == distinct.files, "another image");
    }
    // With little room, those that end differently are kept.
    let mut options = stage.options()?;
    options.distinct_max = 2;
    let few = brownout_explore::explore(&options, &mut ())?.distinct;
    ensure!(
        few.len() == 2 && few[0].outcome != few[1].outcome,
        "{few:?}"
    );
    Ok(())
}

/// A process that waits for its input is forked for each input. What is recorded of a copy is what
/// is recorded of a launch, although the pool has been opened, and changed, before the copy was
/// made.
fn forked_run() -> Result<()> {
    let stage = Stage::new()?;
    let options = stage.options()?;
    let view = stage.view()?;
    let input = stage.scratch.join("input");
    let printed = stage.scratch.join("printed");
    fs::write(&input, "")?;
    let mut config = LaunchConfig::new(&stage.mapcli, [Path::new("btree"), &stage.pool()]);
    config.enclosure = Some(view.clone());
    config.stdin = Some(File::open(&input)?);
    config.stdout = Some(File::create(&printed)?);
    RunRecorder::prepare(&options, &mut config);
    // An overlay shows two different files to who has opened one to read and then to write.
    File::options().write(true).open(view.path(&stage.pool()))?;
    let mut session = Session::open(&config, StopAt::Input)?;
    let at_stop = fs::read(view.path(&stage.pool()))?;
    let before = stage.view()?;
    ensure!(
        at_stop != fs::read(before.path(&stage.pool()))?,
        "nothing was changed before the stop"
    );
    for commands in ["i 7\n", COMMANDS, ""] {
        let file = File::options().write(true).open(view.path(&stage.pool()))?;
        file.write_all_at(&at_stop, 0)?;
        fs::write(&input, commands)?;
        fs::write(stage.scratch.join("commands"), commands)?;
        let originals = before.clone();
        let originals = move |path: &Path| Some(originals.path(path)).filter(|path| path.exists());
        let mut recorder = RunRecorder::new(&options, commands.into(), originals)?;
        let outcome = session.run(&config, &mut recorder)?;
        let run = recorder.finish(outcome, fs::read(&printed)?, Vec::new())?;
        let launched = stage.record()?;
        ensure!(run.status() == launched.status());
        ensure!(
            run.output().0 == launched.output().0,
            "it prints something else"
        );
        ensure!(run.name() == launched.name(), "another run of {commands:?}");
        let images: Vec<CrashImage> = crashes::images(&run, wanted()).collect();
        ensure!(crashes::images(&launched, wanted()).eq(images));
        if commands == COMMANDS {
            let explored = brownout_explore::explore_run(&options, run, &mut ())?;
            ensure!(explored.findings.is_empty(), "{:?}", explored.findings);
            ensure!(
                explored.coverage.open().is_empty(),
                "{:?}",
                explored.coverage
            );
        }
    }
    Ok(())
}

/// With a bound on recoveries and few references, two explorations do the same, and say that there
/// was more to see.
fn small() -> Result<()> {
    let stage = Stage::new()?;
    let mut options = stage.options()?;
    options.references_max = 2;
    let whole = brownout_explore::explore(&options, &mut ())?;
    ensure!(whole.findings.is_empty(), "{:?}", whole.findings);
    ensure!(whole.coverage.open().is_empty(), "{:?}", whole.coverage);
    options.recoveries_max = Some(3);
    let first = brownout_explore::explore(&options, &mut ())?;
    let second = brownout_explore::explore(&options, &mut ())?;
    for small in [&first, &second] {
        ensure!(small.findings.is_empty(), "{:?}", small.findings);
        ensure!(
            !small.coverage.is_exhaustive(),
            "it says that all was explored"
        );
    }
    ensure!(
        first.distinct == second.distinct,
        "two different explorations"
    );
    ensure!(first.distinct.len() < whole.distinct.len());
    Ok(())
}

/// A cause that is known is not looked into again, and is still told as something that was not.
fn known_causes() -> Result<()> {
    let stage = Stage::new()?;
    let mut options = stage.options()?;
    let seeded = seeded::discover()?;
    let wrong = seeded
        .iter()
        .find(|seeded| seeded.name == "correctness/flag_before_data");
    let wrong = wrong
        .context("the seeded program is gone")?
        .binary(Build::Bug);
    let pool = stage.scratch.join("pool-of-another");
    let command = |what: &str| Command {
        program: wrong.clone().into(),
        args: vec![what.into(), pool.clone().into()],
        stdin: None,
    };
    options.program = command("run");
    options.recover = command("check");
    options.operations = false;
    options.pm_globs = vec![pool.to_string_lossy().into_owned()];
    let first = brownout_explore::explore(&options, &mut ())?;
    ensure!(!first.findings.is_empty(), "{:?}", first.coverage);
    ensure!(!first.causes.is_empty());
    options.known_causes = first.causes.clone();
    let second = brownout_explore::explore(&options, &mut ())?;
    ensure!(second.findings.is_empty(), "{:?}", second.findings);
    ensure!(second.causes == first.causes, "{:?}", second.causes);
    let limits = second.coverage.limitations.iter();
    let told = limits.filter(|limit| limit.text.contains("known cause"));
    ensure!(told.count() == 1, "{:?}", second.coverage);
    Ok(())
}
