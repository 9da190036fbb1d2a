//! What images cost: bytes on disk, and time to add, open and lay them.
//!
//! `cargo run --release -p brownout-images --example measure -- [RUNS] [PROGRAM ARGS…]` makes a
//! tree of images as fuzzing does. A run starts from one that is there and leaves another behind;
//! each has 24 crash images, between the two. With a program (libpmemobj's `mapcli btree POOL`,
//! say, where `POOL` stands for the file), runs are real: it gets ten random commands a line each.
//! Without, a run touches 20 lines over 12 pages of a file of 8 MiB.
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brownout_images::{
    Content, Contents, Entry, FailureLocation, ImageId, InputId, Kept, Moment, Origin, PAGE_LEN,
    Page, Store, View, lay,
};
use brownout_random::Random;

/// Crash images of a run.
const CRASHES: u64 = 24;
const LINE_LEN: usize = 64;

struct Measuring {
    store: Store,
    random: Random,
    scratch: PathBuf,
    program: Vec<String>,
    pool: PathBuf,
    /// What lies in the scratch file.
    laid: Option<ImageId>,
    adding: Vec<Duration>,
    lines: u64,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let runs: u64 = args.next().map_or(Ok(300), |runs| runs.parse())?;
    let folder = tempfile::tempdir()?;
    let scratch = folder.path().join("pool");
    let store = Store::create(&folder.path().join("store"))?;
    let mut measuring = Measuring {
        store,
        random: Random::new(1),
        scratch,
        program: args.collect(),
        pool: "/pm/pool".into(),
        laid: None,
        adding: Vec::new(),
        lines: 0,
    };
    let root = measuring.run(None, 0)?;
    let root_bytes = measuring.store.statistics().disk_bytes;
    println!("the root            {root_bytes} bytes on disk");
    measuring.grow(root, runs)?;
    let lines = measuring.lines / runs;
    let Measuring {
        store, mut adding, ..
    } = measuring;
    let statistics = store.statistics();
    println!("{statistics:?}");
    let per = |bytes: u64| bytes as f64 / statistics.images as f64;
    println!("a run               {lines} lines changed");
    println!(
        "an image            {:.0} bytes on disk",
        per(statistics.disk_bytes - root_bytes)
    );
    println!("                    {:.2} new pages", per(statistics.pages));
    adding.sort();
    let (median, most) = (adding[adding.len() / 2], adding[adding.len() * 99 / 100]);
    println!("adding              {median:?}, 99 % in {most:?}");

    let path = store.folder().to_owned();
    drop(store);
    let (took, store) = timed(|| Store::open(&path))?;
    println!("opening the store   {took:?}");
    let images: Vec<_> = store.iter().collect();
    let deepest = images
        .iter()
        .max_by_key(|node| node.depth)
        .ok_or("no images")?;
    let at_30 = images
        .iter()
        .rev()
        .find(|node| node.depth == 30)
        .unwrap_or(deepest);
    let (took, _) = timed(|| store.manifest(at_30.id))?;
    println!(
        "manifest, depth {:3} {took:?}, nothing in memory",
        at_30.depth
    );
    let (took, _) = timed(|| store.manifest(deepest.id))?;
    println!("manifest, depth {:3} {took:?}", deepest.depth);
    drop(store);
    let store = Store::open(&path)?;
    let file = folder.path().join("laid");
    let (at, machine) = (|_: &Path| file.clone(), |_: &Path| folder.path().join("no"));
    let view = View {
        at: &at,
        machine: &machine,
    };
    let root = store.root().ok_or("no root")?;
    let (took, _) =
        timed(|| -> Result<_, Failure> { Ok(lay(&store.difference(None, root)?, &view)?) })?;
    println!("laying the root     {took:?}");
    let mut from = root;
    let mut random = Random::new(2);
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for round in 0..400 {
        let to = images[random.index(images.len())].id;
        let mut pages = 0;
        let (took, ()) = timed(|| -> Result<_, Failure> {
            let changes = store.difference(Some(from), to)?;
            pages = changed(&changes);
            Ok(lay(&changes, &view)?)
        })?;
        if round < 100 { &mut cold } else { &mut warm }.push((took, pages));
        from = to;
    }
    show("laying, the first", &cold);
    show("laying, later", &warm);
    let (took, wrong) = timed(|| Ok::<_, std::convert::Infallible>(store.check().len()))?;
    println!("checking it all     {took:?}, {wrong} faults");
    Ok(())
}

fn changed(changes: &[brownout_images::Change]) -> usize {
    let pages = changes.iter().map(|change| match &change.to {
        brownout_images::Target::Pages { pages, .. } => pages.len(),
        brownout_images::Target::File { pages, .. } => pages.len(),
        _ => 0,
    });
    pages.sum()
}

fn show(what: &str, laid: &[(Duration, usize)]) {
    let took: Duration = laid.iter().map(|(took, _)| *took).sum();
    let most = laid.iter().max().copied().unwrap_or_default();
    let pages: usize = laid.iter().map(|(_, pages)| pages).sum();
    println!(
        "{what:19} {:?} for {} pages; at most {:?} for {}",
        took / laid.len() as u32,
        pages / laid.len(),
        most.0,
        most.1
    );
}

fn timed<T, E>(act: impl FnOnce() -> Result<T, E>) -> Result<(Duration, T), E> {
    let start = Instant::now();
    let done = act()?;
    Ok((start.elapsed(), done))
}

/// Pages that are not zeros.
type Sparse = BTreeMap<u64, Box<Page>>;

impl Measuring {
    fn grow(&mut self, root: ImageId, runs: u64) -> Result<(), Failure> {
        let mut parents: Vec<ImageId> = vec![root];
        for n in 1..=runs {
            // What is new is what fuzzing likes.
            let at = parents.len() - 1 - self.random.index(parents.len().min(8));
            let parent = parents[at];
            let id = self.run(Some(parent), n)?;
            let (before, after) = (self.file(parent)?, self.file(id)?);
            let input = self.input(n)?;
            // The lines that differ, in the order in which they were written.
            let zero = Box::new([0; PAGE_LEN]);
            let mut lines: Vec<(u64, usize)> = Vec::new();
            for (number, page) in &after {
                let was = before.get(number).unwrap_or(&zero);
                let starts = (0..PAGE_LEN).step_by(LINE_LEN);
                let differing =
                    starts.filter(|at| was[*at..][..LINE_LEN] != page[*at..][..LINE_LEN]);
                lines.extend(differing.map(|at| (*number, at)));
            }
            for n in (1..lines.len()).rev() {
                lines.swap(n, self.random.index(n + 1));
            }
            self.lines += lines.len() as u64;
            for crash in 0..CRASHES {
                let mut pages = Sparse::new();
                let certain = lines.len() as u64 * crash / CRASHES;
                for (n, (number, at)) in lines.iter().enumerate() {
                    // A few lines at a time may have been written back or not.
                    let n = n as u64;
                    if n < certain || (n < certain + 4 && self.random.percent(50)) {
                        let page = pages
                            .entry(*number)
                            .or_insert_with(|| before.get(number).unwrap_or(&zero).clone());
                        page[*at..][..LINE_LEN].copy_from_slice(&after[number][*at..][..LINE_LEN]);
                    }
                }
                let at = FailureLocation {
                    moment: Moment::OrderingPoint(crash),
                    kept: Kept::Seed(n),
                };
                let crashed = self.add(parent, Origin::Crash { input, at }, pages)?;
                if self.random.percent(5) && self.program.is_empty() {
                    parents.push(crashed);
                }
            }
            parents.push(id);
        }
        Ok(())
    }

    fn input(&self, n: u64) -> Result<InputId, Failure> {
        Ok(self
            .store
            .input(format!("commands of {n}\n").repeat(10).as_bytes())?)
    }

    /// What the file of an image holds.
    fn file(&self, id: ImageId) -> Result<Sparse, Failure> {
        let manifest = self.store.manifest(id)?;
        let Some(Entry::File { pages, .. }) = manifest.entries.get(&*self.pool) else {
            return Err("no file".into());
        };
        let pages = pages.iter();
        pages
            .map(|(number, id)| Ok((number, Box::new(*self.store.page(id)?))))
            .collect()
    }

    fn add(&mut self, parent: ImageId, origin: Origin, pages: Sparse) -> Result<ImageId, Failure> {
        let manifest = self.store.manifest(parent)?;
        let Some(Entry::File { mode, len, .. }) = manifest.entries.get(&*self.pool) else {
            return Err("no file".into());
        };
        let (mode, len) = (*mode, *len);
        let pages = pages.into_iter().collect();
        let file = Content::Pages { mode, len, pages };
        let contents = Contents::changes([(self.pool.clone(), file)]);
        let (took, added) = timed(|| self.store.add(Some(parent), origin, &contents))?;
        self.adding.push(took);
        Ok(added.id)
    }

    /// Keeps what a run leaves behind.
    fn run(&mut self, parent: Option<ImageId>, n: u64) -> Result<ImageId, Failure> {
        let origin = match parent {
            None => Origin::Root("measure".into()),
            Some(_) => Origin::Run {
                input: self.input(n)?,
            },
        };
        if self.program.is_empty() {
            let Some(parent) = parent else {
                let mut random = self.random.clone();
                let page = |n| {
                    let mut page = Box::new([0; PAGE_LEN]);
                    page.fill_with(|| random.bits() as u8);
                    (n, page)
                };
                let pages = (0..256).map(page).collect();
                let (mode, len) = (0o644, 8 << 20);
                let file = Content::File { mode, len, pages };
                let contents = Contents::whole([(self.pool.clone(), file)]);
                return Ok(self.store.add(None, origin, &contents)?.id);
            };
            let mut file = self.file(parent)?;
            let random = &mut self.random;
            let places: Vec<u64> = (0..12).map(|_| random.below(2048)).collect();
            let mut touched = Sparse::new();
            for _ in 0..20 {
                let number = places[random.index(places.len())];
                let page = touched.entry(number).or_insert_with(|| {
                    file.remove(&number)
                        .unwrap_or_else(|| Box::new([0; PAGE_LEN]))
                });
                let at = random.index(PAGE_LEN / LINE_LEN) * LINE_LEN;
                page[at..at + 8].copy_from_slice(&random.bits().to_le_bytes());
                page[at + 16..at + 18].copy_from_slice(&(n as u16).to_le_bytes());
            }
            return self.add(parent, origin, touched);
        }
        let (at, machine) = (
            |_: &Path| self.scratch.clone(),
            |_: &Path| self.scratch.join("no"),
        );
        if let Some(parent) = parent {
            let view = View {
                at: &at,
                machine: &machine,
            };
            lay(&self.store.difference(self.laid, parent)?, &view)?;
        }
        let scratch = self.scratch.to_str().ok_or("a path that is no text")?;
        let words = self.program[1..].iter();
        let words = words.map(|word| if word == "POOL" { scratch } else { word });
        let mut child = Command::new(&self.program[0])
            .args(words)
            .env("PMEM_IS_PMEM_FORCE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("no input")?;
        for _ in 0..10 {
            let verb = ["i", "i", "i", "r", "i", "c"][self.random.index(6)];
            writeln!(stdin, "{verb} {}", self.random.below(200))?;
        }
        writeln!(stdin, "q")?;
        drop(stdin);
        child.wait()?;
        let contents =
            Contents::whole([(self.pool.clone(), Content::CopyOf(self.scratch.clone()))]);
        let id = self.store.add(parent, origin, &contents)?.id;
        self.laid = Some(id);
        Ok(id)
    }
}
