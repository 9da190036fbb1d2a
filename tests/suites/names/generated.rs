//! `brownout explore` against brute force: exactly the same listings, for 120 generated scripts of
//! file operations.
//!
//! Brute force knows nothing of the tool's model. It follows a script in memory, and after each
//! operation tries every subset of the changes of names and sizes so far: legal is one that fits
//! the words of `--names ordered` or `--names posix`, restated here in [`legal`]. For each it tries
//! every beginning of the writes to each file. Each distinct state is laid down in a folder and
//! listed natively.
//!
//! `BROWNOUT_SEED=17` runs one script only, `BROWNOUT_SEED=1000..3000` many others.

use brownout_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use brownout_tests::{Invocation, Scratch, explore, tool};
use libtest_mimic::Trial;
use serde::Deserialize;

use crate::{compile, trial};

const SEEDS: Range<u64> = 0..120;
/// Scripts in a trial.
const CHUNK: usize = 10;

pub fn trials() -> Vec<Trial> {
    let seeds = chosen().unwrap_or(SEEDS);
    let mut trials: Vec<Trial> = seeds
        .clone()
        .step_by(CHUNK)
        .map(|from| {
            let chunk = from..(from + CHUNK as u64).min(seeds.end);
            let name = format!("generated::seeds_{:03}_{:03}", chunk.start, chunk.end - 1);
            trial(name, move || compare_all(chunk))
        })
        .collect();
    trials.push(trial("generated::comparison_can_fail", comparison_can_fail));
    trials
}

fn chosen() -> Option<Range<u64>> {
    let text = env::var("BROWNOUT_SEED").ok()?;
    match text.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => {
            let one: u64 = text.parse().ok()?;
            Some(one..one + 1)
        }
    }
}

fn compare_all(seeds: Range<u64>) -> Result<()> {
    tool::expect_built()?;
    let scratch = Scratch::new()?;
    let vm = compile("vm", &[], scratch.path())?;
    let mut failures = String::new();
    for seed in seeds {
        if let Err(error) = compare_one(seed, &vm) {
            let _ = writeln!(failures, "seed {seed}: {error:#}");
        }
    }
    ensure!(failures.is_empty(), "{failures}");
    Ok(())
}

/// Two outcomes that differ are seen to.
fn comparison_can_fail() -> Result<()> {
    let scratch = Scratch::new()?;
    let vm = compile("vm", &[], scratch.path())?;
    let script = vec![Op::Create("d/c".into())];
    let truth = listings(&script, false, &vm)?;
    let explored = explored(&[Op::Create("d/x".into())], false, &vm)?;
    ensure!(truth != explored, "{truth:?}");
    Ok(())
}

fn compare_one(seed: u64, vm: &Path) -> Result<()> {
    let posix = seed % 2 == 1;
    let script = generate(seed);
    let truth = listings(&script, posix, vm)?;
    let explored = explored(&script, posix, vm)?;
    let text: String = script.iter().map(|op| format!("  {op}\n")).collect();
    let only = |one: &BTreeSet<String>, two: &BTreeSet<String>| -> String {
        let only: Vec<&str> = one.difference(two).map(String::as_str).collect();
        only.join("--\n")
    };
    ensure!(
        truth == explored,
        "posix: {posix}, script:\n{text}only by brute force:\n{}only by the tool:\n{}",
        only(&truth, &explored),
        only(&explored, &truth)
    );
    Ok(())
}

// ---------------------------------------------------------------- scripts

#[derive(Clone, Debug)]
enum Op {
    Create(String),
    Write(String, usize, usize, char),
    Resize(String, usize),
    Empty(String),
    Rename(String, String),
    Link(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Fsync(String),
    Fdatasync(String),
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Op::Create(a) => write!(f, "create {a}"),
            Op::Write(a, at, len, byte) => write!(f, "write {a} {at} {len} {byte}"),
            Op::Resize(a, size) => write!(f, "resize {a} {size}"),
            Op::Empty(a) => write!(f, "empty {a}"),
            Op::Rename(a, b) => write!(f, "rename {a} {b}"),
            Op::Link(a, b) => write!(f, "link {a} {b}"),
            Op::Unlink(a) => write!(f, "unlink {a}"),
            Op::Mkdir(a) => write!(f, "mkdir {a}"),
            Op::Rmdir(a) => write!(f, "rmdir {a}"),
            Op::Fsync(a) => write!(f, "fsync {a}"),
            Op::Fdatasync(a) => write!(f, "fdatasync {a}"),
        }
    }
}

/// Files before the run.
const BEFORE: [(&str, usize, char); 2] = [("d/a", 20, 'A'), ("d/b", 7, 'B')];
const NAMES: [&str; 6] = ["d/a", "d/b", "d/c", "d/e", "d/s/a", "d/s/c"];

/// A script whose operations all succeed.
fn generate(seed: u64) -> Vec<Op> {
    let mut random = Random::new(seed);
    let mut world = World::new();
    let mut script = Vec::new();
    let mut changes = 0;
    let wanted = 4 + random.index(4);
    let mut byte = b'm';
    for _ in 0..200 {
        if changes >= wanted {
            break;
        }
        let a = NAMES[random.index(NAMES.len())].to_owned();
        let b = NAMES[random.index(NAMES.len())].to_owned();
        let op = match random.index(16) {
            0 | 1 => Op::Create(a),
            2..=4 => {
                byte += 1;
                Op::Write(a, random.index(25), 1 + random.index(30), byte as char)
            }
            5 => Op::Resize(a, random.index(40)),
            6 => Op::Empty(a),
            7..=9 => Op::Rename(a, b),
            10 => Op::Link(a, b),
            11 => Op::Unlink(a),
            12 => match random.index(3) {
                0 => Op::Rmdir("d/s".into()),
                _ => Op::Mkdir("d/s".into()),
            },
            13 => Op::Fsync(a),
            14 => Op::Fdatasync(a),
            _ => Op::Fsync(if random.index(3) == 0 { "d/s" } else { "d" }.into()),
        };
        if world.can(&op) {
            changes += usize::from(!matches!(op, Op::Fsync(_) | Op::Fdatasync(_)));
            world.apply(&op);
            script.push(op);
        }
    }
    script
}

// ---------------------------------------------------------------- brute force

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    File(usize),
    Folder,
}

/// A change of names or sizes.
#[derive(Clone, Debug)]
enum Change {
    /// Names that get another meaning.
    Names(Vec<(String, Option<Node>)>),
    /// A size that is set, and the content that the file has from then on.
    Size(usize, usize, usize),
    /// A file grows because it is written to.
    Grow(usize, usize),
}

struct Done {
    change: Change,
    /// Files that it gives or takes a name.
    files: Vec<usize>,
    /// It made this file.
    made: Option<usize>,
    forced: bool,
}

impl Done {
    fn sized(&self) -> Option<usize> {
        match self.change {
            Change::Size(file, ..) | Change::Grow(file, _) => Some(file),
            Change::Names(_) => None,
        }
    }

    fn grows(&self) -> bool {
        matches!(self.change, Change::Grow(..))
    }

    fn names(&self) -> Vec<&str> {
        match &self.change {
            Change::Names(names) => names.iter().map(|(name, _)| name.as_str()).collect(),
            _ => Vec::new(),
        }
    }
}

/// What a file may hold: what is there for sure, and writes of which some beginning survives.
#[derive(Clone, Debug, Default)]
struct Content {
    base: Vec<u8>,
    writes: Vec<(usize, Vec<u8>)>,
}

impl Content {
    fn with(&self, writes: usize) -> Vec<u8> {
        let mut bytes = self.base.clone();
        for (at, new) in &self.writes[..writes] {
            bytes.resize(bytes.len().max(at + new.len()), 0);
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        bytes
    }
}

struct World {
    done: Vec<Done>,
    /// Before the run.
    first_names: BTreeMap<String, Option<Node>>,
    first_files: Vec<(usize, usize)>,
    /// Now.
    names: BTreeMap<String, Option<Node>>,
    /// Content and size.
    files: Vec<(usize, usize)>,
    contents: Vec<Content>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            done: Vec::new(),
            first_names: BTreeMap::new(),
            first_files: Vec::new(),
            names: BTreeMap::new(),
            files: Vec::new(),
            contents: Vec::new(),
        };
        for (name, size, byte) in BEFORE {
            let file = world.new_file();
            world.contents[file].base = vec![byte as u8; size];
            world.files[file].1 = size;
            world.first_files[file].1 = size;
            world.names.insert(name.into(), Some(Node::File(file)));
        }
        world.names.insert("d".into(), Some(Node::Folder));
        world.first_names = world.names.clone();
        world
    }

    fn new_file(&mut self) -> usize {
        self.contents.push(Content::default());
        self.files.push((self.contents.len() - 1, 0));
        self.first_files.push((self.contents.len() - 1, 0));
        self.files.len() - 1
    }

    fn at(&self, name: &str) -> Option<Node> {
        self.names.get(name).copied().flatten()
    }

    fn file(&self, name: &str) -> Option<usize> {
        match self.at(name) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        }
    }

    fn has_folder(&self, name: &str) -> bool {
        self.at(parent(name)) == Some(Node::Folder)
    }

    fn can(&self, op: &Op) -> bool {
        let file = |name: &str| self.file(name);
        match op {
            Op::Create(a) => self.at(a).is_none() && self.has_folder(a),
            Op::Write(a, ..) | Op::Empty(a) | Op::Unlink(a) => file(a).is_some(),
            Op::Resize(a, size) => file(a).is_some_and(|file| self.files[file].1 != *size),
            Op::Rename(a, b) => file(a).is_some() && self.has_folder(b) && file(a) != file(b),
            Op::Link(a, b) => file(a).is_some() && self.at(b).is_none() && self.has_folder(b),
            Op::Mkdir(a) => self.at(a).is_none(),
            Op::Rmdir(a) => {
                let mut below = self.names.iter();
                self.at(a) == Some(Node::Folder)
                    && !below.any(|(name, node)| parent(name) == a && node.is_some())
            }
            Op::Fsync(a) | Op::Fdatasync(a) => self.at(a).is_some(),
        }
    }

    fn change(&mut self, change: Change, files: Vec<usize>, made: Option<usize>) {
        match &change {
            Change::Names(names) => self.names.extend(names.iter().cloned()),
            Change::Size(file, content, size) => self.files[*file] = (*content, *size),
            Change::Grow(file, size) => self.files[*file].1 = *size,
        }
        self.done.push(Done {
            change,
            files,
            made,
            forced: false,
        });
    }

    fn resize(&mut self, file: usize, size: usize) {
        let (mut content, old) = self.files[file];
        if size == old {
            return;
        }
        if size < old {
            let mut cut = self.contents[content].clone();
            cut.base.truncate(size);
            for (at, bytes) in &mut cut.writes {
                bytes.truncate(size.saturating_sub(*at));
            }
            self.contents.push(cut);
            content = self.contents.len() - 1;
        }
        self.change(Change::Size(file, content, size), vec![], None);
    }

    fn apply(&mut self, op: &Op) {
        let one = |name: &String, node| Change::Names(vec![(name.clone(), node)]);
        match op {
            Op::Create(a) => {
                let file = self.new_file();
                self.change(one(a, Some(Node::File(file))), vec![file], Some(file));
            }
            Op::Mkdir(a) => self.change(one(a, Some(Node::Folder)), vec![], None),
            Op::Rmdir(a) => self.change(one(a, None), vec![], None),
            Op::Unlink(a) => {
                let files = self.file(a).into_iter().collect();
                self.change(one(a, None), files, None);
            }
            Op::Link(a, b) => {
                let node = self.at(a);
                let files = self.file(a).into_iter().collect();
                self.change(one(b, node), files, None);
            }
            Op::Rename(a, b) => {
                let names = vec![(a.clone(), None), (b.clone(), self.at(a))];
                let files = self.file(a).into_iter().chain(self.file(b)).collect();
                self.change(Change::Names(names), files, None);
            }
            Op::Write(a, at, len, byte) => {
                let Some(file) = self.file(a) else { return };
                let (content, size) = self.files[file];
                if at + len > size {
                    self.change(Change::Grow(file, at + len), vec![], None);
                }
                let bytes = vec![*byte as u8; *len];
                self.contents[content].writes.push((*at, bytes));
            }
            Op::Resize(a, size) => {
                let Some(file) = self.file(a) else { return };
                self.resize(file, *size);
            }
            Op::Empty(a) => {
                let Some(file) = self.file(a) else { return };
                self.resize(file, 0);
            }
            Op::Fsync(_) | Op::Fdatasync(_) => {}
        }
    }

    /// What a sync makes certain.
    fn sync(&mut self, op: &Op, posix: bool) {
        let (name, data) = match op {
            Op::Fsync(name) => (name, false),
            Op::Fdatasync(name) => (name, true),
            _ => return,
        };
        let node = self.at(name);
        if let Some(Node::File(file)) = node {
            let content = self.files[file].0;
            let all = self.contents[content].writes.len();
            self.contents[content] = Content {
                base: self.contents[content].with(all),
                writes: Vec::new(),
            };
        }
        for done in &mut self.done {
            done.forced |= match node {
                Some(Node::File(file)) => match (posix, data) {
                    (true, _) => done.sized() == Some(file),
                    (false, true) => done.sized() == Some(file) || done.made == Some(file),
                    (false, false) => done.sized() == Some(file) || done.files.contains(&file),
                },
                _ => done
                    .names()
                    .iter()
                    .any(|own| parent(own) == name || !posix && own == name),
            };
        }
        // And what those need: whatever no legal subset lacks.
        let mut always = u32::MAX;
        for kept in 0..1u32 << self.done.len() {
            if self.legal(posix, kept) {
                always &= kept;
            }
        }
        for (at, done) in self.done.iter_mut().enumerate() {
            done.forced |= always >> at & 1 != 0;
        }
    }

    /// Whether a crash may keep exactly these changes.
    fn legal(&self, posix: bool, kept: u32) -> bool {
        let has = |at: usize| kept >> at & 1 != 0;
        for (at, done) in self.done.iter().enumerate() {
            if !has(at) {
                if done.forced {
                    return false;
                }
                continue;
            }
            for (before, other) in self.done[..at].iter().enumerate() {
                if has(before) {
                    continue;
                }
                // Sizes of one file come in order; but one that is set does not need what the file
                // grew to before.
                let same_file = done.sized().is_some() && done.sized() == other.sized();
                if same_file && (done.grows() || !other.grows()) {
                    return false;
                }
                // One journal.
                if !posix && !done.grows() && !other.grows() {
                    return false;
                }
                // One entry of a folder, and the folder itself.
                let needs = |own: &str, name: &str| {
                    own == name || parent(own) == name || parent(name) == own
                };
                let own = done.names();
                if posix
                    && other
                        .names()
                        .iter()
                        .any(|name| own.iter().any(|o| needs(o, name)))
                {
                    return false;
                }
            }
        }
        true
    }

    /// All states that a crash may leave now: names, and for each file what it holds.
    fn states(&self, posix: bool, all: &mut BTreeSet<State>) {
        for kept in 0..1u32 << self.done.len() {
            if !self.legal(posix, kept) {
                continue;
            }
            let mut names = self.first_names.clone();
            let mut files = self.first_files.clone();
            for (at, done) in self.done.iter().enumerate() {
                if kept >> at & 1 == 0 {
                    continue;
                }
                match &done.change {
                    Change::Names(new) => names.extend(new.iter().cloned()),
                    Change::Size(file, content, size) => files[*file] = (*content, *size),
                    Change::Grow(file, size) => files[*file].1 = (*size).max(files[*file].1),
                }
            }
            let there: BTreeSet<usize> = names
                .values()
                .filter_map(|node| match node {
                    Some(Node::File(file)) => Some(*file),
                    _ => None,
                })
                .collect();
            let mut held: Vec<BTreeMap<usize, Vec<u8>>> = vec![BTreeMap::new()];
            for file in there {
                let (content, size) = files[file];
                let content = &self.contents[content];
                let mut next = Vec::new();
                for writes in 0..=content.writes.len() {
                    let mut bytes = content.with(writes);
                    bytes.resize(size, 0);
                    for held in &held {
                        let mut held = held.clone();
                        held.insert(file, bytes.clone());
                        next.push(held);
                    }
                }
                held = next;
            }
            let names: BTreeMap<String, Node> = names
                .into_iter()
                .filter_map(|(name, node)| Some((name, node?)))
                .collect();
            all.extend(held.into_iter().map(|held| (names.clone(), held)));
        }
    }
}

type State = (BTreeMap<String, Node>, BTreeMap<usize, Vec<u8>>);

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What the listing prints in all states that a crash may leave, whenever it comes.
fn listings(script: &[Op], posix: bool, vm: &Path) -> Result<BTreeSet<String>> {
    let mut world = World::new();
    let mut states = BTreeSet::new();
    world.states(posix, &mut states);
    for op in script {
        world.apply(op);
        world.states(posix, &mut states);
        world.sync(op, posix);
        world.states(posix, &mut states);
    }
    let scratch = Scratch::new()?;
    let mut seen = BTreeSet::new();
    for (names, held) in states {
        let folder = scratch.join("d");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let mut first: BTreeMap<usize, String> = BTreeMap::new();
        for (name, node) in &names {
            let path = scratch.join(name);
            match node {
                Node::Folder => fs::create_dir(&path)?,
                Node::File(file) => match first.get(file) {
                    Some(other) => fs::hard_link(scratch.join(other), &path)?,
                    None => {
                        fs::write(&path, &held[file])?;
                        first.insert(*file, name.clone());
                    }
                },
            }
        }
        let listed = Invocation::new([vm.as_os_str(), "list".as_ref()], scratch.path()).run()?;
        ensure!(listed.status == 0, "{}", listed.describe());
        seen.insert(listed.stdout_text());
    }
    Ok(seen)
}

// ---------------------------------------------------------------- the tool

#[derive(Deserialize)]
struct Line {
    status: String,
    stdout: String,
}

/// What the listing prints in all crash states that the tool explores.
fn explored(script: &[Op], posix: bool, vm: &Path) -> Result<BTreeSet<String>> {
    let scratch = Scratch::new()?;
    fs::create_dir(scratch.join("d"))?;
    for (name, size, byte) in BEFORE {
        fs::write(scratch.join(name), vec![byte as u8; size])?;
    }
    fs::write(scratch.join("pool"), vec![0; 4096])?;
    let text: String = script.iter().map(|op| format!("{op}\n")).collect();
    fs::write(scratch.join("script"), text)?;
    let vm = vm.to_string_lossy();
    let recover = format!("{vm} list");
    let options = [
        "--pm",
        "pool",
        "--outcomes",
        "outcomes.jsonl",
        "--depth",
        "1",
        "--exhaustive",
        "--names",
        if posix { "posix" } else { "ordered" },
        "--recover",
        &recover,
    ];
    let native = Invocation::new([&*vm, "run", "script"], scratch.path());
    let explored = explore::run(&native, &options)?;
    explored.expect_clean()?;
    let outcomes = fs::read_to_string(scratch.join("outcomes.jsonl")).context("no outcomes")?;
    let mut seen = BTreeSet::new();
    for line in outcomes.lines() {
        let line: Line = serde_json::from_str(line)?;
        ensure!(line.status == "exit code 0", "{}", line.status);
        seen.insert(line.stdout);
    }
    if seen.is_empty() {
        return Err(anyhow!("nothing was explored"));
    }
    Ok(seen)
}
