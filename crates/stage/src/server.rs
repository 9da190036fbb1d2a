//! The program on one image, ready to be run with one input after the other.
//!
//! ```text
//!  image ─▶ laid into a private view ─▶ program launched there, up to its first look at its input ─▶ kept
//!                                                                                                  │ forked for each input
//!                                                       pages that it wrote to are set back ◀── run ┘
//! ```
//! Guarantee: what a run does depends on the image and its input alone, and is what a freshly
//! launched program would do. Pages of tracked files are set back to what they held when the
//! program was kept; if a run does anything else to files (makes, removes, renames, resizes one,
//! writes to one that is not tracked), the whole view is made anew before the next run. A program
//! that cannot be kept is launched each time. How the input comes to it says `delivery.rs`.
//!
//! What a run has left behind ([`Server::left`]) can be asked for until the next run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use brownout_explore::Ground;
use brownout_host::{
    Address, Changed, Client, Enclosure, Enclosures, LaunchConfig, LaunchError, Outcome, Schedule,
    Session, StopAt, Stopped, StrategyKind, record,
};
use brownout_images::{Content, Contents, ImageId, Node, Origin, Page, Store, View, capture, lay};
use brownout_symbols::{Part, Touches};
use brownout_trace::{EventSink, Tee};

use crate::client::{Feeder, Noter, Served};
use crate::delivery::{Delivery, InputFile};
use crate::error::Error;
use crate::target::Target;
use crate::watch::{PAGE, Watch};

/// See [`Workshop::events_max`].
const EVENTS_MAX: u64 = 400_000;

/// So often it is tried to keep a program of which that never succeeded. On crash images it may
/// fail because recovery does.
const REFUSED_MAX: u32 = 4;

/// Which addresses a run on an image gets ([`LaunchConfig::layout`]): others than the run that left
/// the image had. So a pointer to ordinary memory that an earlier run has left in a file leads
/// nowhere, as after a real restart.
pub fn layout_after(image: &Node) -> u32 {
    image.depth % 2
}

/// The contents of a file at one time.
struct Snapshot {
    file: File,
    len: u64,
    mode: u32,
    /// When it was changed last, as the file system says.
    stamp: (i64, i64),
    /// Those that are not all zeros.
    pages: BTreeMap<u64, Box<Page>>,
}

impl Snapshot {
    fn take(path: &Path) -> io::Result<Snapshot> {
        let file = File::options().read(true).write(true).open(path)?;
        let meta = file.metadata()?;
        let mut pages = BTreeMap::new();
        let mut at = 0;
        while let Some(data) = next_data(&file, at) {
            let number = data / PAGE;
            let mut page: Box<Page> = Box::new([0; PAGE as usize]);
            let mut filled = 0;
            while filled < page.len() {
                match file.read_at(&mut page[filled..], number * PAGE + filled as u64)? {
                    0 => break,
                    n => filled += n,
                }
            }
            if page.iter().any(|byte| *byte != 0) {
                pages.insert(number, page);
            }
            at = (number + 1) * PAGE;
        }
        Ok(Snapshot {
            len: meta.len(),
            mode: meta.mode() & 0o7777,
            stamp: stamp(&meta),
            file,
            pages,
        })
    }

    fn set_back(&self, page: u64) -> io::Result<()> {
        let len = (self.len.saturating_sub(page * PAGE)).min(PAGE) as usize;
        match self.pages.get(&page) {
            Some(bytes) => self.file.write_all_at(&bytes[..len], page * PAGE),
            None => self
                .file
                .write_all_at(&[0; PAGE as usize][..len], page * PAGE),
        }
    }

    fn now(&self, page: u64) -> io::Result<Box<Page>> {
        let mut bytes: Box<Page> = Box::new([0; PAGE as usize]);
        let len = (self.len.saturating_sub(page * PAGE)).min(PAGE) as usize;
        self.file.read_exact_at(&mut bytes[..len], page * PAGE)?;
        Ok(bytes)
    }
}

/// What is in a file, up to a mebibyte.
fn read(file: &Option<File>) -> io::Result<Vec<u8>> {
    let Some(file) = file else {
        return Ok(Vec::new());
    };
    let mut bytes = vec![0; file.metadata()?.len().min(1 << 20) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Where data begins, at or behind a place; `None` if only a hole is left.
fn next_data(file: &File, at: u64) -> Option<u64> {
    // SAFETY: a number and our own descriptor.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
    u64::try_from(found).ok()
}

fn stamp(meta: &fs::Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

/// What a run came to, besides what its sinks have seen.
pub struct Ran {
    /// From the host.
    pub outcome: Outcome,
    /// What steers the search.
    pub watch: Watch,
    /// It is a server that had nothing to do any more, and was told to end.
    pub is_done: bool,
    /// How long it took to set files back before it.
    pub setting_back: Duration,
    /// How long it took to see what else has changed after it.
    pub looking: Duration,
}

/// What runs tell, besides what they do to persistent memory and which branches they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tells {
    /// Nothing.
    #[default]
    Path,
    /// What was compared. Such runs are slow.
    Comparisons,
    /// The state in front of these instructions, sorted by their addresses, once the program has
    /// come to its input.
    Captured(Arc<[u64]>),
    /// Everything that is executed. Such runs are launched, and very slow.
    Executed,
}

/// See the module's header.
pub struct Server {
    /// Ended before its view is.
    session: Option<Session>,
    view: Arc<Enclosure>,
    image: ImageId,
    tells: Tells,
    config: LaunchConfig,
    delivery: Delivery,
    served: Arc<Served>,
    /// Where it listens, if it is kept there.
    address: Option<Address>,
    args: Vec<OsString>,
    /// Standard input, if that is not the input.
    stdin: PathBuf,
    /// What is standard input, or the file that takes its place.
    input: File,
    /// The name of that file, if it has one: it is no part of an image.
    input_path: Option<PathBuf>,
    /// Names that were changed when the program was kept (or would have been launched).
    changed: BTreeMap<PathBuf, Changed>,
    /// The files among them.
    files: BTreeMap<PathBuf, Snapshot>,
    /// Of the last run: what it wrote to, and whether that is all it did.
    last: Option<Last>,
    /// Counts where runs touch persistent memory.
    touches: Option<Touches>,
    /// The image is what a crash has left.
    is_after_crash: bool,
}

struct Last {
    pages: Vec<(PathBuf, u64)>,
    is_all: bool,
}

/// What servers are made of.
pub struct Workshop {
    /// Where programs run.
    pub ground: Ground,
    /// The images.
    pub store: Arc<Store>,
    /// What to run.
    pub target: Target,
    /// A run that takes longer does not end.
    pub patience: Duration,
    /// A run that has more memory of its own, in bytes, is cut off.
    pub memory_max: Option<u64>,
    /// A run that does more to persistent memory is cut off there, and is no finding: somebody has
    /// asked for a lot.
    pub events_max: u64,
    /// Ends whatever runs when true.
    pub stop: Arc<AtomicBool>,
    /// Programs are kept where they can be; else each is launched, which is slower and shows the
    /// same.
    pub keeps: bool,
    /// Programs are shown a plain processor ([`LaunchConfig::plain_cpu`]).
    pub plain_cpu: bool,
    /// Loads of persistent memory are told: a custom rule looks at them.
    pub loads: bool,
    /// One thread runs at a time, and programs are launched.
    pub takes_turns: AtomicBool,
    /// How often one was kept, and how often that was not possible.
    kept: AtomicU32,
    /// Likewise.
    refused: AtomicU32,
    /// What servers have done, if that is what is fuzzed.
    pub served: Arc<Served>,
    /// What the program reads as its standard input if that is not what its input is; nothing by
    /// default.
    pub stdin: Option<PathBuf>,
    /// Counts where runs touch persistent memory; nobody does by default.
    pub touches: Option<Touches>,
}

impl Workshop {
    /// One that keeps programs where it can, waits for a run as long as `patience` says, and has no
    /// other limits.
    pub fn new(ground: Ground, store: Arc<Store>, target: Target, patience: Duration) -> Workshop {
        Workshop {
            ground,
            store,
            target,
            patience,
            memory_max: None,
            events_max: EVENTS_MAX,
            stop: Arc::default(),
            keeps: true,
            plain_cpu: false,
            loads: false,
            takes_turns: AtomicBool::new(false),
            kept: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            served: Arc::default(),
            stdin: None,
            touches: None,
        }
    }

    /// What makes private views.
    pub fn enclosures(&self) -> Result<&Arc<Enclosures>, Error> {
        let denied = |why: &str| Error::NoView(why.to_owned());
        self.ground.enclosures().map_err(denied)
    }

    /// A private view in which the files are as an image has them.
    pub fn laid(&self, image: ImageId) -> Result<Enclosure, Error> {
        let view = self.enclosures()?.enclose(&[])?;
        lay(
            &self.store.difference(None, image)?,
            &View {
                at: &|path| view.path(path),
                machine: &Path::to_path_buf,
            },
        )?;
        Ok(view)
    }

    /// The same, with an empty file for the input if it comes in one.
    pub fn laid_with_input(
        &self,
        image: ImageId,
    ) -> Result<(Arc<Enclosure>, Option<InputFile>), Error> {
        let view = Arc::new(self.laid(image)?);
        let input = match self.target.delivery {
            Delivery::File => Some(InputFile::make(&view)?),
            Delivery::Place(ref place) => Some(InputFile::at(&view, place)?),
            Delivery::Socket(_) if !view.has_network() => return Err(Error::NoNetwork),
            _ => None,
        };
        Ok((view, input))
    }

    /// A client for a run in a view, if the program is a server.
    pub fn feeder(
        &self,
        view: &Arc<Enclosure>,
        input: &[u8],
        patience: Duration,
    ) -> Option<Arc<Feeder>> {
        Feeder::of(
            &self.target.delivery,
            view,
            &self.served,
            input,
            patience,
            false,
        )
    }

    /// Whether it is worth trying to keep a program: not if that has failed some times, and never
    /// succeeded.
    fn tries_to_keep(&self) -> bool {
        let [kept, refused] = [&self.kept, &self.refused].map(|n| n.load(Ordering::Relaxed));
        let can_be =
            self.target.delivery.can_wait() && !self.served.is_unkeepable.load(Ordering::Relaxed);
        self.keeps && can_be && (kept > 0 || refused < REFUSED_MAX)
    }

    /// Whether an image is what a crash has left.
    pub fn is_after_crash(&self, image: ImageId) -> Result<bool, Error> {
        let origin = self.store.node(image)?.origin;
        Ok(matches!(origin, Origin::Crash { .. }))
    }
}

impl Server {
    /// Lays the image down and has the program ready.
    pub fn open(workshop: &Workshop, image: ImageId, tells: &Tells) -> Result<Server, Error> {
        let (view, named) = workshop.laid_with_input(image)?;
        let target = &workshop.target;
        let node = workshop.store.node(image)?;
        let mut config = LaunchConfig::new(&target.program, &target.args);
        config.pm_globs = target.pm_globs.clone();
        config.deterministic = true;
        config.plain_cpu = workshop.plain_cpu;
        config.loads = workshop.loads;
        config.layout = layout_after(&node);
        config.boundaries = true;
        config.edges = true;
        match tells {
            Tells::Path => {}
            Tells::Comparisons => config.comparisons = true,
            Tells::Captured(chosen) => config.capture = Some(chosen.clone()),
            Tells::Executed => (config.loads, config.follow) = (true, true),
        }
        config.beginnings = target.delivery.is_argument() && *tells != Tells::Path;
        config.enclosure = Some(view.clone());
        config.dies_with_tool = true;
        config.stop = Some(workshop.stop.clone());
        config.limits.wall = Some(workshop.patience);
        // What a program leaves behind when it ends is not waited for, unless it may be a server
        // that waits for clients.
        let serves = matches!(workshop.target.delivery, Delivery::Socket(_));
        config.limits.idle = (!serves).then_some(workshop.patience);
        config.limits.memory = workshop.memory_max;
        config.limits.events = Some(workshop.events_max);
        config.stdout = Some(tempfile::tempfile_in(workshop.ground.scratch())?);
        config.stderr = Some(tempfile::tempfile_in(workshop.ground.scratch())?);
        let mut server = Server {
            session: None,
            view,
            image,
            tells: tells.clone(),
            config,
            delivery: target.delivery.clone(),
            served: workshop.served.clone(),
            address: None,
            args: target.args.clone(),
            stdin: workshop.stdin.clone().unwrap_or("/dev/null".into()),
            input: tempfile::tempfile_in(workshop.ground.scratch())?,
            input_path: None,
            changed: BTreeMap::new(),
            files: BTreeMap::new(),
            last: None,
            touches: workshop.touches.clone(),
            is_after_crash: matches!(node.origin, Origin::Crash { .. }),
        };
        server.take_input(named)?;
        // Only threads that take turns can be followed, and only such runs do the same each time if
        // there are several.
        let takes_turns = *tells == Tells::Executed || workshop.takes_turns.load(Ordering::Relaxed);
        if takes_turns {
            server.config.schedule = Some(Schedule::new(StrategyKind::GoOn, 0));
        }
        if workshop.tries_to_keep() {
            let noter = Noter::of(&server.delivery);
            server.config.client = noter.clone().map(|noter| noter as Arc<dyn Client>);
            let opened = Session::open(&server.config, StopAt::Input);
            server.address = noter.and_then(|noter| noter.found());
            let listens = !server.is_server() || server.address.is_some();
            let opened = opened.and_then(|session| match listens {
                true => Ok(session),
                false => Err(LaunchError::NotKept(
                    "it waits for something before it listens".to_owned(),
                )),
            });
            match opened {
                Ok(session) => {
                    workshop.kept.fetch_add(1, Ordering::Relaxed);
                    server.session = Some(session);
                }
                Err(LaunchError::NotKept(_)) => {
                    workshop.refused.fetch_add(1, Ordering::Relaxed);
                    // It has run on its way to the stop, and may have done anything.
                    server.lay_again(workshop)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        server.changed = server.view.changed()?;
        let paths: Vec<PathBuf> = server.changed.keys().cloned().collect();
        for path in paths {
            if server.is_input(&path) {
                continue;
            }
            let at = server.view.path(&path);
            if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
                server.files.insert(path, Snapshot::take(&at)?);
            }
        }
        Ok(server)
    }

    /// Makes the view anew.
    fn lay_again(&mut self, workshop: &Workshop) -> Result<(), Error> {
        let (view, named) = workshop.laid_with_input(self.image)?;
        self.view = view;
        self.config.enclosure = Some(self.view.clone());
        Ok(self.take_input(named)?)
    }

    fn is_server(&self) -> bool {
        matches!(self.delivery, Delivery::Socket(_))
    }

    /// Has the launch use what the input will be in; `named` is in its view.
    fn take_input(&mut self, named: Option<InputFile>) -> io::Result<()> {
        // A file that the input is only a part of belongs to the image.
        let is_part = self.delivery.is_part();
        let path = named.as_ref().filter(|_| !is_part);
        let path = path.map(|named| named.path.clone());
        match named {
            Some(named) => {
                self.config.stdin = Some(File::open(&self.stdin)?);
                self.config.input = Some(named.file.try_clone()?);
                self.input = named.file;
            }
            None if self.delivery.is_stdin() => self.config.stdin = Some(self.input.try_clone()?),
            None => self.config.stdin = Some(File::open(&self.stdin)?),
        }
        self.input_path = path;
        self.config.args = self
            .delivery
            .args(&self.args, &[], self.input_path.as_deref());
        Ok(())
    }

    /// A name that is the tool's, not the program's.
    fn is_input(&self, path: &Path) -> bool {
        self.input_path.as_deref() == Some(path)
    }

    /// Which image it has.
    pub fn image(&self) -> ImageId {
        self.image
    }

    /// What its runs tell.
    pub fn tells(&self) -> &Tells {
        &self.tells
    }

    /// Has its next runs tell that instead, if it can: of other instructions, where it captures.
    pub fn tell(&mut self, tells: &Tells) -> bool {
        if let (Tells::Captured(chosen), Tells::Captured(_)) = (tells, &self.tells) {
            self.config.capture = Some(chosen.clone());
            self.tells = tells.clone();
        }
        self.tells == *tells
    }

    /// Whether runs are forked from a kept program.
    pub fn is_warm(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the next run can be made here: else open another server.
    pub fn is_usable(&self) -> bool {
        match &self.last {
            None => true,
            Some(last) => last.is_all && self.session.is_some(),
        }
    }

    /// From the next run on, each may have so many events.
    pub fn allow_events(&mut self, most: u64) {
        self.config.limits.events = Some(most);
    }

    /// One run, which is ended if it takes longer than this. The other sinks get its events, too.
    pub fn run(
        &mut self,
        input: &[u8],
        patience: Duration,
        others: &mut dyn EventSink,
    ) -> Result<Ran, Error> {
        self.config.limits.wall = Some(patience);
        self.config.limits.idle = self.config.limits.idle.map(|_| patience);
        let begun = Instant::now();
        self.set_back()?;
        let setting_back = begun.elapsed();
        self.delivery.write(&self.input, input)?;
        if let Delivery::Place(place) = &self.delivery
            && let Some(snapshot) = self.files.get_mut(&place.path)
        {
            snapshot.stamp = stamp(&snapshot.file.metadata()?);
        }
        if self.session.is_none() && !self.delivery.is_stdin() {
            self.config.stdin = Some(File::open(&self.stdin)?);
        }
        let mut watch = Watch::default();
        if self.delivery.is_argument() {
            self.config.args = self.delivery.args(&self.args, input, None);
            watch.has_input = true;
        }
        let feeder = Feeder::of(
            &self.delivery,
            &self.view,
            &self.served,
            input,
            patience,
            self.config.schedule.is_some(),
        );
        self.config.client = feeder.clone().map(|feeder| feeder as Arc<dyn Client>);
        let part = match self.is_after_crash && !watch.has_input {
            true => Part::RecoveryFirst,
            false => Part::Program,
        };
        let touches = self.touches.as_ref();
        let mut counting = touches.map(|touches| touches.run(part));
        let mut sinks = Tee::of([&mut watch, others]).and(counting.as_mut());
        let begins = |feeder: &Arc<Feeder>| {
            let address = self.address.as_ref();
            address.is_some_and(|address| feeder.begin(address))
        };
        let ran = match &mut self.session {
            Some(_) if feeder.as_ref().is_some_and(|feeder| !begins(feeder)) => {
                self.served.is_unkeepable.store(true, Ordering::Relaxed);
                let why = "nobody listens any more where it did";
                Err(LaunchError::NotKept(why.to_owned()))
            }
            Some(session) => session.run(&self.config, &mut sinks),
            None => {
                let stdin = &self.input;
                // SAFETY: our own descriptor.
                unsafe { libc::lseek(stdin.as_raw_fd(), 0, libc::SEEK_SET) };
                record(&self.config, &mut sinks)
            }
        };
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(error) => {
                self.last = Some(Last {
                    pages: Vec::new(),
                    is_all: false,
                });
                self.session = None;
                return Err(error.into());
            }
        };
        let ended = Instant::now();
        let is_left = feeder.as_ref().is_some_and(|feeder| !feeder.is_over());
        // Nobody has seen what a run did last that was ended in the middle of it.
        let is_whole = matches!(outcome.stopped, None | Some(Stopped::LeftBehind));
        let mut is_all = is_whole && !watch.reshaped && outcome.hints.is_empty() && !is_left;
        let mut pages = Vec::new();
        for (file, page) in &watch.pages {
            match watch.files.get(file) {
                Some(path) if self.files.contains_key(path) => pages.push((path.clone(), *page)),
                _ => is_all = false,
            }
        }
        is_all = is_all && self.view.changed()? == self.changed && self.others_are_same(&watch)?;
        self.last = Some(Last { pages, is_all });
        let is_done = feeder.is_some_and(|feeder| feeder.has_ended_it());
        Ok(Ran {
            outcome,
            watch,
            is_done,
            setting_back,
            looking: ended.elapsed(),
        })
    }

    /// Files that are not tracked are as they were, and the others are as long as they were.
    fn others_are_same(&self, watch: &Watch) -> io::Result<bool> {
        for (path, snapshot) in &self.files {
            let meta = snapshot.file.metadata()?;
            let is_tracked = watch.files.values().any(|tracked| tracked == path);
            if meta.len() != snapshot.len || (!is_tracked && stamp(&meta) != snapshot.stamp) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn set_back(&mut self) -> Result<(), Error> {
        if let Some(last) = self.last.take() {
            for (path, page) in &last.pages {
                if let Some(snapshot) = self.files.get(path) {
                    snapshot.set_back(*page)?;
                }
            }
        }
        Ok(())
    }

    /// What the last run has left behind, relative to nothing: the contents of an image.
    pub fn left(&self) -> Result<Contents, Error> {
        let last = self.last.as_ref();
        if !last.is_some_and(|last| last.is_all) {
            let paths = self.view.changed()?.into_keys();
            let paths = paths.filter(|path| !self.is_input(path));
            let view = View {
                at: &|path| self.view.path(path),
                machine: &Path::to_path_buf,
            };
            return Ok(capture(paths, &view)?.contents);
        }
        // All that was there when the program was kept, and what has changed since. The store keeps
        // what differs from the parent.
        let mut pages: BTreeMap<&PathBuf, BTreeMap<u64, Box<Page>>> = BTreeMap::new();
        for (path, page) in last.into_iter().flat_map(|last| &last.pages) {
            if let Some(snapshot) = self.files.get(path) {
                pages
                    .entry(path)
                    .or_default()
                    .insert(*page, snapshot.now(*page)?);
            }
        }
        let view = View {
            at: &|path| self.view.path(path),
            machine: &Path::to_path_buf,
        };
        let paths = self.changed.keys().filter(|path| !self.is_input(path));
        let mut contents = capture(paths.cloned(), &view)?.contents;
        for (path, snapshot) in &self.files {
            let mut all = snapshot.pages.clone();
            all.extend(pages.remove(path).unwrap_or_default());
            let content = Content::File {
                mode: snapshot.mode,
                len: snapshot.len,
                pages: all.into_iter().collect(),
            };
            contents.entries.insert(path.clone(), content);
        }
        Ok(contents)
    }

    /// What the program has printed in the last run.
    pub fn printed(&self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        Ok((read(&self.config.stdout)?, read(&self.config.stderr)?))
    }

    /// What it has printed on its standard error.
    pub fn complained(&self) -> io::Result<Vec<u8>> {
        read(&self.config.stderr)
    }
}
