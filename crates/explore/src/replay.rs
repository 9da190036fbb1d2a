//! Makes the crash of a finding again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use brownout_findings::Event;
use brownout_host::Limits;
use brownout_trace::EventSink;
use brownout_trace::event::FileId;

use crate::execution::{self, Acknowledged, End, Setting, Turns};
use crate::finding::{self, CrashSpec, OneCrash};
use crate::native::{self, Stage};
use crate::options::{Error, Options, io_error};
use crate::outcome::Outcome;
use crate::recording::{FailurePoint, RecordOptions, Recorder, Recording};
use crate::run::{Besides, Recorded, Run, record_beside, record_run};
use crate::view::{Base, Image, View};
use crate::world::World;

/// How often a run of several threads is recorded anew, until it is the one that was explored.
const INTERLEAVINGS: u32 = 4;

/// What a replay has shown.
pub struct Replayed {
    /// What recovery did under the engine.
    pub outcome: Outcome,
    /// What it did natively.
    pub native: Option<Outcome>,
    /// It is what the finding says.
    pub is_same: bool,
    /// The commands to see it again.
    pub reproduction: brownout_findings::Reproduction,
}

/// What a crash leaves of a run.
fn image_of(recording: &Recording, point: &FailurePoint, crash: &OneCrash) -> Image {
    let survivors = crash.survivors.iter();
    let survivors = survivors.map(|(unit, ordered, unordered)| {
        let survivors = brownout_model::Survivors {
            ordered: *ordered,
            unordered: unordered.clone(),
        };
        (brownout_model::Unit(*unit), survivors)
    });
    Image {
        view: View {
            timeline: recording.timeline.clone(),
            point: crash.point,
        },
        survivors: survivors.collect(),
        files: point.files.clone(),
    }
}

/// The run of a finding, recorded again.
pub struct Located {
    /// The run.
    pub run: Run,
    /// The stores that the crash loses, with what was to make them durable; and last the crash.
    /// They have the numbers of the events that `raw` got.
    pub events: Vec<Event>,
}

/// Records the run of a finding again, and says where in it the finding's crash happens. `None` if
/// it is another run this time: the program, its input or its files have changed, or threads have
/// stored in another order.
pub fn locate(
    options: &Options,
    spec: &CrashSpec,
    raw: &mut dyn EventSink,
) -> Result<Option<Located>, Error> {
    let [crash] = &spec.crashes[..] else {
        return Err(Error::Usage(
            "in this finding the power fails a second time, in recovery, and the run before has nowhere to stop; take --gdb recovery".into(),
        ));
    };
    let besides = Besides {
        raw: Some(raw),
        prepare: Some(&|config| config.beginnings = true),
        ..Besides::default()
    };
    let mut run = record_beside(options, besides)?;
    let Recorded { recording, .. } = run.take()?;
    let point = recording.points.get(crash.point as usize);
    let Some(point) = point.filter(|_| crash.run == recording.name()) else {
        return Ok(None);
    };
    let image = image_of(&recording, point, crash);
    let events = finding::told(&recording, point, &image);
    Ok(Some(Located { run, events }))
}

/// Makes the crash of a finding again, and runs recovery on it.
pub fn replay(options: &Options, spec: &CrashSpec) -> Result<Replayed, Error> {
    let mut run = record_run(options, None)?;
    let explored = spec.crashes.first().map(|crash| crash.run.as_str());
    for _ in 0..INTERLEAVINGS {
        // Threads may have stored in another order: that is chance, and not another program.
        let Some(Recorded { recording, .. }) = &run.recorded else {
            break;
        };
        if !recording.is_interleaved || explored == run.name().as_deref() {
            break;
        }
        drop(run);
        run = record_run(options, None)?;
    }
    let Recorded { recording, .. } = run.take()?;
    if !recording.touched {
        return Err(Error::Usage(
            "the program did not touch persistent memory this time".into(),
        ));
    }
    run.restore()
        .map_err(io_error("cannot put a file back as it was"))?;
    let names: BTreeMap<FileId, PathBuf> = recording
        .files
        .iter()
        .map(|(id, file)| (*id, file.path.clone()))
        .collect();
    let mut world = World::new(&run.origin, &recording.files)
        .map_err(io_error("cannot make a folder for crash images"))?;
    let setting = Setting {
        pm_globs: run.origin.pm_globs.clone(),
        recover: options.recover.clone(),
        checker: options.checker.clone(),
        limits: Limits {
            events: Some(100_000_000),
            idle: Some(Duration::from_secs(10)),
            wall: Some(options.patience.unwrap_or(Duration::from_secs(10))),
            steps: None,
            memory: None,
        },
        program_limits: Limits::default(),
        end: End::new(options.stop.clone()),
        names: run.origin.enclosures.is_some().then_some(options.promise),
        expected: OnceLock::new(),
        varying: None,
        turns: Turns::new(options.schedule.is_some()),
        touches: None,
        opens: false,
        notices_changes: false,
    };
    let differs = || {
        Error::Usage("the program's run is not the one that was explored: it, its input or its files have changed".into())
    };
    let mut recording = recording;
    let mut image: Option<Image> = None;
    for (i, crash) in spec.crashes.iter().enumerate() {
        if i > 0 {
            let before = image.take().ok_or_else(differs)?;
            let record_options = RecordOptions {
                model: options.model,
                judge_acknowledgements: false,
                names: setting.names,
                names_max: options.names_max(),
            };
            let recorder =
                Recorder::on(record_options, Base::Crashed(before.clone()), &before.files);
            let (recorder, _) = execution::record(
                &setting,
                &setting.recover,
                before.crashes(),
                &mut world,
                &before,
                recorder,
            )?;
            recording = recorder.finish();
        }
        if crash.run != recording.name() {
            return Err(differs());
        }
        let point = recording
            .points
            .get(crash.point as usize)
            .ok_or_else(differs)?;
        image = Some(image_of(&recording, point, crash));
    }
    let image = image.ok_or_else(differs)?;
    let acknowledged = Acknowledged {
        operations: spec.operations,
        text: spec.text.clone(),
    };
    let execution = execution::execute(
        &setting,
        &setting.recover,
        image.crashes(),
        &mut world,
        &image,
        &acknowledged,
        false,
    )?;
    let images = finding::write_image(&image, &mut world, &names, &options.folder)
        .map_err(io_error("cannot write a crash image"))?;
    let setup = run.setup_needed(options);
    let mut reproduction = finding::reproduction(&names, &images, &image, &setting.recover, setup);
    let mut stage = Stage {
        setting: &setting,
        world: &mut world,
        originals: run.originals.as_ref(),
        control: None,
        patience: native::patience(execution.longest, options.patience),
        until: None,
    };
    let native = stage
        .recover(&image, &images, &acknowledged, &execution.outcome)
        .ok();
    reproduction.status = execution.outcome.status.to_string();
    reproduction.stdout = String::from_utf8_lossy(&execution.outcome.stdout).into_owned();
    reproduction.confirmed = native
        .as_ref()
        .is_some_and(|native| native.status.to_string() == reproduction.status);
    Ok(Replayed {
        is_same: spec.is_expected(&execution.outcome),
        outcome: execution.outcome,
        native,
        reproduction,
    })
}
