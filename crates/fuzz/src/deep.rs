//! A closer look at a test case that was worth keeping: what crashes of its run leave, and what recovery makes of them.
//!
//! The run is recorded once more, from the same image. The crash images that the model allows become parents of further test cases; and, as far as the
//! budget allows, an exploration tries all that recovery can tell apart, and judges.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brownout_explore::crashes::{self, FileContent, Points, Subset, Wanted};
use brownout_explore::{
    Command, Exploration, Options, Run, RunRecorder, Start, explore_run, record_run,
};
use brownout_findings::Limit;
use brownout_host::{Client, Enclosure, LaunchConfig};
use brownout_images::{
    Content, Contents, FailureLocation, ImageId, Kept, Manifest, Moment, Origin, Page,
};

use crate::case::Case;
use crate::error::Error;
use crate::mutate::below;
use brownout_stage::Delivery;
use brownout_stage::PAGE;
use brownout_stage::Workshop;

/// Launches that may go into what recovery prints after whole operations; the recorded run is the measure otherwise.
const REFERENCES_MAX: usize = 12;

/// So much of what a program prints is of interest.
const PRINTED_MAX: u64 = 1 << 20;

/// Causes of failing crash states that explorations of other cases have looked into. To look into one is most of what an exploration costs that finds something,
/// and nearly all cases of a campaign show the same.
#[derive(Clone, Debug, Default)]
pub struct Causes(BTreeMap<String, u32>);

/// What seems to be of one cause may be of two: so many explorations look into it.
const LOOKS: u32 = 3;

impl Causes {
    /// Those that need not be looked into again.
    fn well_known(&self) -> BTreeSet<String> {
        let known = self.0.iter().filter(|(_, looks)| **looks >= LOOKS);
        known.map(|(cause, _)| cause.clone()).collect()
    }

    /// One more exploration has seen these.
    pub fn add(&mut self, causes: &BTreeSet<String>) {
        for cause in causes {
            *self.0.entry(cause.clone()).or_default() += 1;
        }
    }
}

/// How a closer look is taken.
#[derive(Clone, Debug)]
pub struct Deep {
    /// Crash images of one run, at most.
    pub images_max: usize,
    /// At so many ordering points.
    pub points_max: usize,
    /// What recovers; the program itself, with no input, if not given.
    pub recover: Option<Command>,
    /// How long one exploration may take: a last resort, because what is bounded by time is not the same next time.
    pub patience: Duration,
    /// How many recoveries one may take.
    pub recoveries_max: u64,
    /// The model.
    pub model: brownout_model::Config,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

/// A recorded run of a case.
pub struct Recorded {
    run: Option<Run>,
    options: Options,
    image: ImageId,
    /// The name of the input: it is no part of an image.
    input_path: Option<PathBuf>,
    /// What recovers would not end by itself.
    is_endless: bool,
    /// Keeps the folder of crash images.
    _folder: tempfile::TempDir,
    /// Keeps what the files held before.
    _before: Arc<Enclosure>,
}

impl Deep {
    /// As campaigns do it. `recover` is a shell command.
    pub fn new(
        recover: Option<&str>,
        model: brownout_model::Config,
        stop: Arc<AtomicBool>,
    ) -> Deep {
        Deep {
            images_max: 24,
            points_max: 12,
            recover: recover.map(|line| Command::shell(line, None)),
            patience: Duration::from_secs(20),
            recoveries_max: 150,
            model,
            stop,
        }
    }

    /// Runs the case once more and records it.
    pub fn record(&self, workshop: &Workshop, case: &Case) -> Result<Recorded, Error> {
        let target = &workshop.target;
        let (before, named) = workshop.laid_with_input(case.image)?;
        let layer = before.layer().clone();
        let enclosures = workshop.enclosures()?;
        let folder = tempfile::tempdir_in(workshop.ground.scratch())?;
        let input = folder.path().join("input");
        fs::write(&input, &case.input)?;
        let input_path = named.map(|named| named.path);
        let args = |input: &[u8]| {
            target
                .delivery
                .args(&target.args, input, input_path.as_deref())
        };
        let is_stdin = target.delivery.is_stdin();
        let program = Command {
            program: target.program.clone(),
            args: args(&case.input),
            stdin: is_stdin.then_some(input),
        };
        let recover = self.recover.clone().unwrap_or_else(|| Command {
            program: target.program.clone(),
            args: args(&[]),
            stdin: None,
        });
        let options = Options {
            start: Some(Start {
                enclosures: enclosures.clone(),
                layers: vec![layer],
            }),
            pm_globs: target.pm_globs.clone(),
            model: self.model,
            // What the program prints after so many operations is found out by runs with so many lines of standard input.
            operations: self.recover.is_some() && is_stdin,
            depth: Some(1),
            journal: false,
            time: Some(self.patience),
            recoveries_max: Some(self.recoveries_max),
            references_max: REFERENCES_MAX,
            stop: self.stop.clone(),
            ..Options::new(program, recover, folder.path().join("explored"))
        };
        let run = match is_stdin {
            true => record_run(&options, None)?,
            false => self.record_launch(workshop, case, &options, &before)?,
        };
        Ok(Recorded {
            run: Some(run),
            options,
            image: case.image,
            input_path,
            is_endless: self.recover.is_none() && matches!(target.delivery, Delivery::Socket(_)),
            _folder: folder,
            _before: before,
        })
    }

    /// Runs a case whose input is not standard input, which explorations do not know. `before` has the files as they are before.
    fn record_launch(
        &self,
        workshop: &Workshop,
        case: &Case,
        options: &Options,
        before: &Arc<Enclosure>,
    ) -> Result<Run, Error> {
        let scratch = workshop.ground.scratch();
        let (view, named) = workshop.laid_with_input(case.image)?;
        let mut config = LaunchConfig::new(&options.program.program, &options.program.args);
        config.enclosure = Some(view.clone());
        config.dies_with_tool = true;
        config.stop = Some(self.stop.clone());
        config.limits.wall = Some(self.patience);
        config.stdin = Some(File::open("/dev/null")?);
        let feeder = workshop.feeder(&view, &case.input, self.patience);
        config.client = feeder.map(|feeder| feeder as Arc<dyn Client>);
        if let Some(named) = named {
            named.file.write_all_at(&case.input, 0)?;
            config.input = Some(named.file);
        }
        let printed = [
            tempfile::tempfile_in(&scratch)?,
            tempfile::tempfile_in(&scratch)?,
        ];
        config.stdout = Some(printed[0].try_clone()?);
        config.stderr = Some(printed[1].try_clone()?);
        RunRecorder::prepare(options, &mut config);
        let originals = before.clone();
        let originals = move |path: &Path| Some(originals.path(path)).filter(|path| path.exists());
        let mut recorder = RunRecorder::new(options, case.input.clone(), originals)?;
        let outcome = brownout_host::record(&config, &mut recorder)?;
        let [stdout, stderr] = printed.map(|file| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; file.metadata()?.len().min(PRINTED_MAX) as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        });
        Ok(recorder.finish(outcome, stdout?, stderr?)?)
    }

    /// Keeps crash images of a run, so many at most. The new ones are returned.
    pub fn crash_images(
        &self,
        workshop: &Workshop,
        recorded: &Recorded,
        case: &Case,
        seed: u64,
        images_max: usize,
    ) -> Result<Vec<ImageId>, Error> {
        let Some(run) = &recorded.run else {
            return Ok(Vec::new());
        };
        let wanted = Wanted {
            points: Points::AtMost(self.points_max.min(images_max)),
            per_point: images_max.div_ceil(self.points_max).clamp(1, 3),
            seed,
        };
        let store = &workshop.store;
        let input = store.input(&case.input)?;
        let parent = store.manifest(recorded.image)?;
        let mut new = Vec::new();
        for crash in crashes::images(run, wanted) {
            if new.len() >= images_max {
                break;
            }
            let files = crash.files.iter();
            let files = files.filter(|(path, _)| Some(path) != recorded.input_path.as_ref());
            let Some(contents) = contents(workshop, &parent, files)? else {
                continue;
            };
            let at = FailureLocation {
                moment: match crash.at.moment {
                    Some(moment) => Moment::Event(moment << 32 | u64::from(crash.at.point)),
                    None => Moment::OrderingPoint(u64::from(crash.at.point)),
                },
                kept: match crash.subset {
                    Subset::Certain => Kept::Certain,
                    Subset::Everything => Kept::Everything,
                    Subset::Random(seed) => Kept::Seed(seed),
                    Subset::Chosen(chosen) => {
                        Kept::Chosen(serde_json::to_vec(&chosen).unwrap_or_default())
                    }
                },
            };
            let added = store.add(Some(recorded.image), Origin::Crash { input, at }, &contents)?;
            if added.is_new {
                new.push(added.id);
            }
        }
        Ok(new)
    }

    /// Has recovery run on all that it can tell apart. Not if it would be a server, which waits for clients and does not end.
    /// It ends when the time is up, if it must.
    pub fn explore(
        &self,
        recorded: &mut Recorded,
        time: Option<Duration>,
        known: &Causes,
    ) -> Result<Option<Exploration>, Error> {
        if recorded.is_endless {
            return Ok(None);
        }
        recorded.options.time = time;
        recorded.options.known_causes = known.well_known();
        match recorded.run.take() {
            Some(run) => {
                let exploration = explore_run(&recorded.options, run, &mut ())?;
                // An exploration that is asked to stop takes the wish for granted, and sets the flag back for what it has yet to do. The campaign is to hear it, too.
                if exploration.coverage.has(Limit::Interrupted) {
                    self.stop.store(true, Ordering::Relaxed);
                }
                Ok(Some(exploration))
            }
            None => Ok(None),
        }
    }
}

/// An image with some of its bytes flipped, as a fuzzer does it that knows nothing of images: for comparison. `None` if it has no bytes.
pub fn flipped(workshop: &Workshop, image: ImageId, seed: u64) -> Result<Option<ImageId>, Error> {
    use brownout_images::Entry;
    use libafl_bolts::rands::StdRand;
    let store = &workshop.store;
    let manifest = store.manifest(image)?;
    let mut random = StdRand::with_seed(seed);
    let mut places = Vec::new();
    for (path, entry) in &manifest.entries {
        if let Entry::File { mode, len, pages } = entry {
            places.extend(
                pages
                    .iter()
                    .map(|(number, id)| (path, *mode, *len, number, id)),
            );
        }
    }
    if places.is_empty() {
        return Ok(None);
    }
    let (path, mode, len, number, id) = places[below(&mut random, places.len())];
    let mut page: Box<Page> = Box::new(*store.page(id)?);
    for _ in 0..=below(&mut random, 8) {
        let at = below(&mut random, PAGE as usize);
        page[at] ^= 1 + below(&mut random, 255) as u8;
    }
    let content = Content::Pages {
        mode,
        len,
        pages: vec![(number, page)],
    };
    let contents = Contents::changes([(path.to_path_buf(), content)]);
    let added = store.add(Some(image), Origin::Flipped { seed }, &contents)?;
    Ok(Some(added.id))
}

/// What a crash has left, as the contents of an image. `None` if it has left something that is not kept.
fn contents<'c>(
    workshop: &Workshop,
    parent: &Manifest,
    files: impl Iterator<Item = &'c (PathBuf, FileContent)>,
) -> Result<Option<Contents>, Error> {
    let mut entries = Vec::new();
    for (path, content) in files {
        let content = match content {
            FileContent::Absent => match fs::symlink_metadata(path) {
                Ok(_) => Content::Removed,
                Err(_) => Content::AsOnMachine,
            },
            FileContent::Folder => Content::Folder { mode: 0o755 },
            FileContent::Link(to) => Content::Link(to.clone()),
            FileContent::SameAs(_) => return Ok(None),
            FileContent::File {
                size,
                from,
                bytes,
                mode,
            } => {
                let base = Base::find(workshop, parent, from.as_deref())?;
                let is_same = from.as_ref() == Some(path);
                file(&base, is_same, *size, bytes, *mode)?
            }
        };
        entries.push((path.clone(), content));
    }
    Ok(Some(Contents::changes(entries)))
}

/// What a file held before the run.
enum Base<'a> {
    Nothing,
    /// With its permissions.
    Image(&'a Workshop, &'a brownout_images::Pages, u32),
    Machine(fs::File),
}

impl Base<'_> {
    fn find<'a>(
        workshop: &'a Workshop,
        parent: &'a Manifest,
        from: Option<&Path>,
    ) -> Result<Base<'a>, Error> {
        use brownout_images::Entry;
        let Some(from) = from else {
            return Ok(Base::Nothing);
        };
        Ok(match parent.entries.get(from) {
            Some(Entry::File { pages, mode, .. }) => Base::Image(workshop, pages, *mode),
            Some(_) => Base::Nothing,
            None => Base::Machine(fs::File::open(from)?),
        })
    }

    fn page(&self, number: u64) -> Result<Box<Page>, Error> {
        let mut page: Box<Page> = Box::new([0; PAGE as usize]);
        match self {
            Base::Nothing => {}
            Base::Image(workshop, pages, _) => {
                if let Some(id) = pages.get(number) {
                    page.copy_from_slice(&*workshop.store.page(id)?);
                }
            }
            Base::Machine(file) => {
                let mut filled = 0;
                while filled < page.len() {
                    match file.read_at(&mut page[filled..], number * PAGE + filled as u64)? {
                        0 => break,
                        n => filled += n,
                    }
                }
            }
        }
        Ok(page)
    }

    /// Pages of it that may not be zeros.
    fn numbers(&self, size: u64) -> Vec<u64> {
        match self {
            Base::Nothing => Vec::new(),
            Base::Image(_, pages, _) => pages.iter().map(|(number, _)| number).collect(),
            Base::Machine(_) => (0..size.div_ceil(PAGE)).collect(),
        }
    }
}

/// A file made of what it held before and of what has changed; `is_same` if it has the name that it had.
fn file(
    base: &Base<'_>,
    is_same: bool,
    size: u64,
    bytes: &[(u64, Vec<u8>)],
    mode: Option<u32>,
) -> Result<Content, Error> {
    let in_parent = match base {
        Base::Image(_, _, mode) if is_same => Some(*mode),
        _ => None,
    };
    let mut pages: BTreeMap<u64, Box<Page>> = BTreeMap::new();
    if in_parent.is_none() {
        for number in base.numbers(size) {
            if number * PAGE < size {
                pages.insert(number, base.page(number)?);
            }
        }
    }
    for (offset, stretch) in bytes {
        let mut at = *offset;
        let mut left = &stretch[..];
        while !left.is_empty() {
            let page = match pages.entry(at / PAGE) {
                Entry::Vacant(entry) => entry.insert(base.page(at / PAGE)?),
                Entry::Occupied(entry) => entry.into_mut(),
            };
            let from = (at % PAGE) as usize;
            let len = left.len().min(PAGE as usize - from);
            page[from..from + len].copy_from_slice(&left[..len]);
            at += len as u64;
            left = &left[len..];
        }
    }
    let pages = pages.into_iter().collect();
    let len = size;
    Ok(match in_parent {
        Some(before) => Content::Pages {
            mode: before,
            len,
            pages,
        },
        None => Content::File {
            mode: mode.unwrap_or(0o644),
            len,
            pages,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_looked_into_some_times() {
        let mut causes = Causes::default();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for look in 0..LOOKS {
            assert!(causes.well_known().is_empty(), "after {look}");
            causes.add(&of(&["lost store at map.c:7"]));
        }
        causes.add(&of(&["another"]));
        assert_eq!(causes.well_known(), of(&["lost store at map.c:7"]));
    }
}
