//! A campaign as its folder has it: for those who look at it, also while it runs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use brownout_campaign::case_name::CaseName;
use brownout_campaign::folder::Folder;
use brownout_campaign::journal::Journal;
use brownout_explore::Ground;
use brownout_findings::numbers::counted;
use brownout_host::Enclosure;
use brownout_images::{ImageId, Kept as Survived, Moment, Origin, Store};
use brownout_model::Domain;
use brownout_symbols::Options as SymbolOptions;

use crate::case::Case;
use crate::chain::nearer;
use crate::deep::Deep;
use crate::detect::{Detector, Verdict};
use crate::error::Error;
use crate::judge::{Found, Judge};
use crate::least::{Cover, Shown};
use crate::mutate::chain_max;
use crate::record::{KeptCase, Key, Record, Settings};
use crate::runner::Runner;
use brownout_stage::Causes;
use brownout_stage::Target;
use brownout_stage::Workshop;

/// See the module's header.
pub struct Kept {
    /// What is fuzzed.
    pub key: Key,
    /// How it is judged.
    pub settings: Settings,
    /// The images.
    pub store: Arc<Store>,
    /// The queue.
    pub cases: Vec<KeptCase>,
    /// What was found.
    pub found: BTreeMap<String, Found>,
}

/// The smallest set of test cases that shows the same as all.
#[derive(Clone, Debug)]
pub struct Least {
    /// How many cases there were.
    pub cases: usize,
    /// Cases whose inputs were written.
    pub written: Vec<u64>,
    /// Cases that are needed besides, but only show what they show on an image that no input makes.
    pub left_out: Vec<u64>,
    /// How much the written ones show, and how much all show: places in all maps, with their
    /// classes of counters.
    pub shown: (usize, usize),
}

/// An image's place in the tree, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInTree {
    /// In order of arrival, from 0.
    pub number: u32,
    /// The image that it came from, by number; none for a root.
    pub parent: Option<u32>,
    /// How.
    pub way: Way,
    /// The same in one short line.
    pub origin: String,
    /// How many test cases start from it.
    pub cases: u64,
    /// What these have shown: keys of findings.
    pub found: Vec<String>,
}

/// How an image came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It was there from the beginning.
    Root,
    /// A run left it behind.
    Run,
    /// A crash left it behind.
    Crash,
    /// Its bytes were flipped.
    Flipped,
}

impl Way {
    fn of(origin: &Origin) -> Way {
        match origin {
            Origin::Root(_) => Way::Root,
            Origin::Run { .. } => Way::Run,
            Origin::Crash { .. } => Way::Crash,
            Origin::Flipped { .. } => Way::Flipped,
        }
    }
}

/// What a user may name.
pub enum Named {
    /// A test case: of the queue, or of a finding.
    Case(Case),
    /// A finding, by its key.
    Finding(String, Box<Found>),
    /// An image.
    Image(ImageId),
}

impl Kept {
    /// Reads a campaign's folder.
    pub fn look(folder: &Path) -> Result<Kept, Error> {
        let (layout, identity) = Folder::look(folder)?;
        let key: Key = serde_json::from_value(identity.key.clone())
            .map_err(|error| Error::Corrupt(error.to_string()))?;
        let settings: Settings = serde_json::from_value(identity.settings.clone())
            .map_err(|error| Error::Corrupt(error.to_string()))?;
        let store = Arc::new(Store::open_for_reading(&layout.root().join("images"))?);
        let (records, _) = Journal::<Record>::read(&layout.journal(), &identity.hash())?;
        let mut cases = Vec::new();
        let mut found = BTreeMap::new();
        for record in records {
            match record {
                Record::Case(case) => cases.push(case),
                Record::Found(key, text) => {
                    let read: Found = serde_json::from_str(&text)
                        .map_err(|error| Error::Corrupt(error.to_string()))?;
                    found.insert(key, read);
                }
                Record::Spent(_) | Record::Seen(_) | Record::Named(..) | Record::Looked(_) => {}
            }
        }
        Ok(Kept {
            key,
            settings,
            store,
            cases,
            found,
        })
    }

    /// What an id means: `12` or `id:000012` (a case of the queue), `img:5` (an image), 16 digits
    /// (a finding).
    pub fn find(&self, id: &str) -> Result<Named, Error> {
        if let Some(found) = self.found.get(id) {
            return Ok(Named::Finding(id.to_owned(), Box::new(found.clone())));
        }
        let unknown = || Error::Unknown(id.to_owned());
        if let Some(number) = id.strip_prefix("img:") {
            let number = number.parse().map_err(|_| unknown())?;
            return self.store.nth(number).map(Named::Image).ok_or_else(unknown);
        }
        let number = id.strip_prefix("id:").unwrap_or(id);
        let number: u64 = number
            .split(',')
            .next()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(unknown)?;
        let case = self.cases.iter().find(|case| case.id == number);
        let case = case.ok_or_else(unknown)?;
        Ok(Named::Case(Case {
            image: case.image,
            input: self.store.input_bytes(case.input)?,
        }))
    }

    /// All images, in order of arrival.
    pub fn images(&self) -> Result<Vec<ImageInTree>, Error> {
        let mut cases: HashMap<ImageId, u64> = HashMap::new();
        for case in &self.cases {
            *cases.entry(case.image).or_default() += 1;
        }
        let mut found: HashMap<ImageId, Vec<String>> = HashMap::new();
        for (key, one) in &self.found {
            found.entry(one.case.image).or_default().push(key.clone());
        }
        let nodes: Vec<_> = self.store.iter().collect();
        let numbers: HashMap<ImageId, u32> = nodes.iter().map(|n| (n.id, n.number)).collect();
        let told = nodes.iter().map(|node| {
            Ok(ImageInTree {
                number: node.number,
                parent: node.parent.and_then(|id| numbers.get(&id).copied()),
                way: Way::of(&node.origin),
                origin: self.origin(&node.origin)?,
                cases: cases.get(&node.id).copied().unwrap_or(0),
                found: found.remove(&node.id).unwrap_or_default(),
            })
        });
        told.collect()
    }

    /// All images as a tree, a line each.
    pub fn tree(&self) -> Result<String, Error> {
        let images = self.images()?;
        let mut children: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for (at, image) in images.iter().enumerate() {
            children.entry(image.parent).or_default().push(at);
        }
        let mut text = String::new();
        let roots = children.get(&None).cloned().unwrap_or_default();
        let mut left: Vec<(usize, usize)> = roots.into_iter().rev().map(|at| (0, at)).collect();
        while let Some((depth, at)) = left.pop() {
            let image = &images[at];
            let indent = "  ".repeat(depth);
            text += &format!("{indent}img:{} {}", image.number, image.origin);
            if image.cases > 0 {
                text += &format!(", {}", counted(image.cases, "test case"));
            }
            if !image.found.is_empty() {
                text += &format!(", {}", counted(image.found.len() as u64, "finding"));
            }
            text.push('\n');
            let below = children.get(&Some(image.number)).into_iter().flatten();
            left.extend(below.rev().map(|child| (depth + 1, *child)));
        }
        Ok(text)
    }

    fn origin(&self, origin: &Origin) -> Result<String, Error> {
        let shown = |input| -> Result<String, Error> {
            let bytes = self.store.input_bytes(input)?;
            Ok(shown(&bytes))
        };
        Ok(match origin {
            Origin::Root(made) if made.is_empty() => "nothing".to_owned(),
            Origin::Root(made) => format!("made by {made}"),
            Origin::Run { input } => format!("left by {}", shown(*input)?),
            Origin::Crash { input, at } => {
                let place = match at.moment {
                    Moment::OrderingPoint(n) => format!("at ordering point {n}"),
                    Moment::Event(n) => format!("before ordering point {}", n as u32),
                };
                let kept = match &at.kept {
                    Survived::Certain => "only what is certain survives",
                    Survived::Everything => "everything survives",
                    Survived::Seed(_) | Survived::Chosen(_) => "some of the rest survives",
                };
                format!("left by a crash in {} {place}, {kept}", shown(*input)?)
            }
            Origin::Flipped { .. } => "bytes flipped".to_owned(),
        })
    }

    /// How runs are checked.
    fn check(&self) -> brownout_check::Options {
        let domain = Domain::from_name(&self.settings.domain);
        brownout_check::Options {
            model: brownout_model::Config {
                domain: domain.unwrap_or_default(),
                ..brownout_model::Config::default()
            },
            ..brownout_check::Options::default()
        }
    }

    /// What runs its cases.
    pub fn workshop(&self) -> Result<Workshop, Error> {
        let target = Target {
            program: OsString::from(&self.key.program),
            args: self.key.args.iter().map(OsString::from).collect(),
            pm_globs: self.key.pm.clone(),
            delivery: self.key.delivery.clone(),
        };
        let patience = Duration::from_secs_f64(self.settings.hang_after.clamp(0.1, 1e6));
        let mut workshop = Workshop::new(Ground::new()?, self.store.clone(), target, patience);
        workshop.memory_max = self.settings.memory_max;
        Ok(workshop)
    }

    /// Runs a case once more and says what it shows; with a key, only whether it shows that
    /// finding, which may take an exploration.
    pub fn repeat(&self, case: &Case, key: Option<&str>) -> Result<Vec<Found>, Error> {
        let judge = Judge::new(self.check(), SymbolOptions::default());
        let workshop = Arc::new(self.workshop()?);
        let mut runner = Runner::new(workshop.clone(), judge);
        let found = key.and_then(|key| self.found.get(key));
        let by_exploration = found.is_some_and(|found| found.by_exploration);
        let command = match found {
            Some(found) => found.detector.as_ref(),
            None => self.settings.detect.as_ref(),
        };
        match command {
            None => drop(runner.run(case)?),
            Some(command) => {
                let folder = &self.settings.folder;
                let patience = workshop.patience;
                let detector = Detector::new(command, folder, patience, Arc::default());
                match runner.detect(case, &detector)? {
                    Verdict::Fine => {}
                    Verdict::Finding(finding) => {
                        runner.judge.keep_detected(*finding, case, command);
                    }
                    Verdict::Failed(why) => return Err(Error::Detector(why)),
                }
            }
        }
        if by_exploration {
            let recover = self.settings.recover.as_deref();
            let deep = Deep::new(recover, self.check().model, Arc::default());
            let mut recorded = deep.record(&workshop, case)?;
            if let Some(exploration) = deep.explore(&mut recorded, None, &Causes::default())? {
                for finding in exploration.into_outcome().0.findings {
                    runner.judge.keep_explored(finding, case, None);
                }
            }
        }
        let shown = runner.judge.take_new().into_iter();
        let shown = shown.filter(|(shown, _)| key.is_none_or(|key| shown == key));
        Ok(shown.map(|(_, found)| found).collect())
    }

    /// Runs all cases again, and writes the smallest set of inputs into a folder that shows the
    /// same.
    ///
    /// A folder of inputs knows no images. So whatever can be shown from the root is shown by
    /// inputs from there: those of cases on the root, and those of cases on normal images with all
    /// that led there in front. What only cases on other images show is theirs; they are named, and
    /// not written.
    pub fn least(
        &self,
        to: &Path,
        stop: &std::sync::atomic::AtomicBool,
        mut tell: impl FnMut(usize, usize),
    ) -> Result<Least, Error> {
        if to.exists() && fs::read_dir(to)?.next().is_some() {
            return Err(Error::Occupied(to.to_path_buf()));
        }
        let root = self.store.root().ok_or(Error::Nothing)?;
        let judge = Judge::new(self.check(), SymbolOptions::default());
        let mut runner = Runner::new(Arc::new(self.workshop()?), judge);
        let mut show = |case: &Case| -> Result<Shown, Error> {
            runner.run(case)?;
            Ok(Shown::of(runner.sight()))
        };
        // Those of one image together, so that the program is kept ready for each once.
        let mut order: Vec<&KeptCase> = self.cases.iter().collect();
        order.sort_by_key(|case| (case.image != root, case.image, case.id));
        let mut whole = Cover::default();
        let seeds = self.cases.iter().filter(|case| case.is_seed);
        let lengths: Result<Vec<usize>, _> = seeds
            .map(|seed| self.store.input_bytes(seed.input).map(|input| input.len()))
            .collect();
        let chain_max = chain_max(lengths?);
        // Number of the case, its input if that is for the root, what it shows and how long it is.
        let mut from_root = Vec::new();
        let mut others = Vec::new();
        for (done, kept) in order.iter().enumerate() {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            tell(done, order.len());
            let case = Case {
                image: kept.image,
                input: self.store.input_bytes(kept.input)?,
            };
            let shown = show(&case)?;
            whole.add(&shown);
            if kept.image == root {
                let cost = case.input.len();
                from_root.push((kept.id, case.input, (shown, cost)));
                continue;
            }
            others.push((kept.id, (shown, case.input.len())));
            let nearest = nearer(&self.store, &case, chain_max)?.into_iter().next();
            if let Some(case) = nearest.filter(|case| case.image == root) {
                let shown = show(&case)?;
                let cost = case.input.len();
                from_root.push((kept.id, case.input, (shown, cost)));
            }
        }
        let candidates: Vec<_> = from_root
            .iter()
            .map(|(_, _, shown)| shown.clone())
            .collect();
        let mut cover = Cover::default();
        let chosen = cover.choose(&candidates, Some(&whole));
        let by_inputs = cover.len();
        let candidates: Vec<_> = others.iter().map(|(_, shown)| shown.clone()).collect();
        let rest = cover.choose(&candidates, Some(&whole));
        fs::create_dir_all(to)?;
        let mut written = Vec::new();
        for (number, at) in chosen.into_iter().enumerate() {
            let (id, input, _) = &from_root[at];
            let name = CaseName::seed(number as u64, &format!("{id:06}"));
            fs::write(to.join(name.to_string()), input)?;
            written.push(*id);
        }
        Ok(Least {
            cases: self.cases.len(),
            written,
            left_out: rest.into_iter().map(|at| others[at].0).collect(),
            shown: (by_inputs, whole.len()),
        })
    }

    /// Runs a case natively, on its image in a private view; the terminal is the program's.
    pub fn run_natively(&self, case: &Case) -> Result<ExitStatus, Error> {
        let workshop = self.workshop()?;
        let (view, named) = workshop.laid_with_input(case.image)?;
        let target = &workshop.target;
        let path = named.as_ref().map(|named| named.path.as_path());
        let args = target.delivery.args(&target.args, &case.input, path);
        let mut command = std::process::Command::new(&target.program);
        command.args(args);
        if let Some(named) = &named {
            target.delivery.write(&named.file, &case.input)?;
        }
        if target.delivery.is_stdin() {
            let input = workshop.ground.scratch().join("input");
            fs::write(&input, &case.input)?;
            command.stdin(File::open(&input)?);
        } else {
            command.stdin(File::open("/dev/null")?);
        }
        self.put_into(&view, &mut command)?;
        match workshop.feeder(&view, &case.input, workshop.patience) {
            Some(feeder) => Ok(feeder.serve_natively(command.spawn()?)?),
            None => Ok(command.status()?),
        }
    }

    /// Runs natively what an exploration runs after a crash, on what that has left; the terminal is
    /// its own.
    pub fn recover_natively(&self, crash: ImageId) -> Result<ExitStatus, Error> {
        let workshop = self.workshop()?;
        let (view, named) = workshop.laid_with_input(crash)?;
        let mut command = match &self.settings.recover {
            Some(line) => {
                let mut command = std::process::Command::new("sh");
                command.args(["-c", line]);
                command
            }
            None => {
                let target = &workshop.target;
                let path = named.as_ref().map(|named| named.path.as_path());
                let mut command = std::process::Command::new(&target.program);
                command.args(target.delivery.args(&target.args, &[], path));
                command
            }
        };
        command.stdin(File::open("/dev/null")?);
        self.put_into(&view, &mut command)?;
        Ok(command.status()?)
    }

    /// Has a command run in a view, where the campaign was begun.
    fn put_into(&self, view: &Enclosure, command: &mut std::process::Command) -> Result<(), Error> {
        command.current_dir(&self.settings.folder);
        let enter = view.enter(&self.settings.folder)?;
        // SAFETY: it makes system calls only, and whoever has the view keeps it until the command
        // has ended.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }
}

/// An input, in one short line.
fn shown(bytes: &[u8]) -> String {
    const MAX: usize = 48;
    let text = bytes.escape_ascii().to_string();
    match text.char_indices().nth(MAX) {
        Some((at, _)) => format!("\"{}…\" ({} bytes)", &text[..at], bytes.len()),
        None => format!("\"{text}\""),
    }
}
