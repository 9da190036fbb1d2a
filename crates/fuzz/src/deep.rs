//! A closer look at a test case that was worth keeping: what crashes of its run leave, and what
//! recovery makes of them.
//!
//! The run is recorded once more, from the same image. The crash images that the model allows
//! become parents of further test cases; and, as far as the budget allows, an exploration tries all
//! that recovery can tell apart, and judges.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use brownout_explore::crashes::{self, FileContent, Points, Subset, Wanted};
use brownout_explore::{CrashSpec, Exploration, Files};
use brownout_images::{
    Content, Contents, FailureLocation, ImageId, Kept, Manifest, Moment, Origin, Page,
};
use brownout_stage::{Causes, Closer, PAGE, Recorded, Workshop};

use crate::case::Case;
use crate::error::Error;
use crate::mutate::below;

/// Of one exploration, so many crashes become images that recovery can tell apart.
const DISTINCT_MAX: usize = 8;

/// How a closer look is taken.
#[derive(Clone, Debug)]
pub struct Deep {
    /// Crash images of one run, at most.
    pub images_max: usize,
    /// At so many ordering points, which are drawn.
    pub points_max: usize,
    /// What records and explores.
    pub closer: Closer,
}

impl Deep {
    /// As campaigns do it. `recover` is a shell command.
    pub fn new(
        recover: Option<&str>,
        model: brownout_model::Config,
        stop: Arc<AtomicBool>,
    ) -> Deep {
        let mut closer = Closer::new(recover, model, stop);
        closer.distinct_max = DISTINCT_MAX;
        Deep {
            images_max: 24,
            points_max: 12,
            closer,
        }
    }

    /// Runs the case once more and records it.
    pub fn record(&self, workshop: &Workshop, case: &Case) -> Result<Recorded, Error> {
        Ok(self.closer.record(workshop, case.image, &case.input)?)
    }

    /// Has recovery run on all that it can tell apart ([`Closer::explore`]).
    pub fn explore(
        &self,
        recorded: &mut Recorded,
        time: Option<Duration>,
        known: &Causes,
    ) -> Result<Option<Exploration>, Error> {
        Ok(self.closer.explore(recorded, time, known)?)
    }

    /// Keeps crash images of a run, so many at most. Which of those that the model allows these are
    /// is drawn.
    pub fn crash_images(
        &self,
        workshop: &Workshop,
        recorded: &Recorded,
        case: &Case,
        seed: u64,
        images_max: usize,
    ) -> Result<(), Error> {
        let Some(run) = &recorded.run else {
            return Ok(());
        };
        let wanted = Wanted {
            points: Points::Drawn(self.points_max.min(images_max)),
            per_point: images_max.div_ceil(self.points_max).clamp(1, 3),
            seed,
        };
        let mut new = 0;
        for crash in crashes::images(run, wanted) {
            if new >= images_max {
                break;
            }
            let at = FailureLocation {
                moment: match crash.at.moment {
                    Some(moment) => Moment::Event(moment << 32 | u64::from(crash.at.point)),
                    None => Moment::OrderingPoint(u64::from(crash.at.point)),
                },
                kept: match crash.subset {
                    Subset::Certain => Kept::Certain,
                    Subset::Everything => Kept::Everything,
                    Subset::Random(seed) => Kept::Seed(seed),
                    Subset::Chosen(chosen) => chosen_as(&chosen),
                },
            };
            let added = keep(workshop, recorded, case, &crash.files, at)?;
            new += usize::from(added.is_some_and(|(_, is_new)| is_new));
        }
        Ok(())
    }

    /// Keeps what the crashes have left that an exploration has found recovery to tell apart, and
    /// those of its findings; the latter are returned.
    pub fn explored_images(
        &self,
        workshop: &Workshop,
        recorded: &Recorded,
        case: &Case,
        exploration: &Exploration,
    ) -> Result<Vec<Option<ImageId>>, Error> {
        let keep = |spec: &CrashSpec, files: &Files| match &spec.crashes[..] {
            [one] => {
                let at = FailureLocation {
                    moment: Moment::OrderingPoint(u64::from(one.point)),
                    kept: chosen_as(&one.survivors),
                };
                keep(workshop, recorded, case, files, at)
            }
            _ => Ok(None),
        };
        for distinct in &exploration.distinct {
            keep(&distinct.crash, &distinct.files)?;
        }
        let mut kept = Vec::new();
        for (number, (_, spec)) in exploration.findings.iter().enumerate() {
            let files = exploration.left.get(number).and_then(Option::as_ref);
            let image = files.map_or(Ok(None), |files| keep(spec, files))?;
            kept.push(image.map(|(id, _)| id));
        }
        Ok(kept)
    }
}

fn chosen_as(chosen: &[(u64, usize, Vec<bool>)]) -> Kept {
    Kept::Chosen(serde_json::to_vec(chosen).unwrap_or_default())
}

/// Keeps what a crash of a run has left, and says whether it is new. `None` if that cannot be an
/// image.
fn keep(
    workshop: &Workshop,
    recorded: &Recorded,
    case: &Case,
    files: &Files,
    at: FailureLocation,
) -> Result<Option<(ImageId, bool)>, Error> {
    let store = &workshop.store;
    let input = store.input(&case.input)?;
    let parent = store.manifest(recorded.image)?;
    let files = files.iter();
    let files = files.filter(|(path, _)| Some(path) != recorded.input_path.as_ref());
    let Some(contents) = contents(workshop, &parent, files)? else {
        return Ok(None);
    };
    let added = store.add(Some(recorded.image), Origin::Crash { input, at }, &contents)?;
    Ok(Some((added.id, added.is_new)))
}

/// An image with some of its bytes flipped, as a fuzzer does it that knows nothing of images: for
/// comparison. `None` if it has no bytes.
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

/// What a crash has left, as the contents of an image. `None` if it has left something that is not
/// kept.
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

/// A file made of what it held before and of what has changed; `is_same` if it has the name that it
/// had.
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
