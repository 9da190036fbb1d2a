//! Inputs are exchanged with AFL++ while both run.
//!
//! ```text
//! SYNC/main/queue/id:000000,…          AFL++ (`afl-fuzz -M main -o SYNC …`)      ──take──▶  this campaign
//! SYNC/second/queue/id:000000,…        another AFL++ (`-S second`)               ──take──▶
//! SYNC/brownout-1f2e3d4c/queue/id:…    what AFL++ takes over from us             ◀──give──
//! ```
//!
//! If the campaign's own folder lies in `SYNC`, AFL++ reads its queue there, and nothing is copied.
//!
//! **Guarantee.** Each input of another fuzzer is given to the caller at least once, in the order
//! of its queue; and once only, as long as [`Exchange::seen`] is remembered and the other fuzzer is
//! not started again while this tool is not running. What came from this campaign in the first
//! place is not taken back. What is given appears whole. Nobody else's folder is written to, and
//! what is odd there (a pipe that is called like a case, a file that vanishes) is passed over.
//!
//! **Source.** `sync_fuzzers` and `pivot_inputs` of AFL++ 4.04, and what Debian's does.
//! - It sorts the names in `OTHER/queue`, begins with the first whose number it has not had, and
//!   then *counts*. So numbers must be without gaps, and nothing else may lie between the cases;
//!   that is why cases are given in the order of their numbers.
//! - Instances that were started with `-S` take over only from the one with `-M`, which takes over
//!   from all. So one should be started with `-M`, or be the only one.
//! - An instance that goes on (`-i -`) numbers its whole queue anew, in another order. So a queue
//!   whose last known file has another name now is read again from its beginning, and what was
//!   taken before is recognised by its content. That also saves what several instances have taken
//!   from each other.
//!
//! **Limits.** Inputs of more than [`INPUT_BYTES_MAX`] are left where they are, as AFL++ does.
//! Files that are younger than [`SETTLED_AFTER`] wait for the next time, because AFL++ may not have
//! finished them.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::case_name::{CaseName, Origin};
use crate::files::{self, Durability};
use crate::folder::{FolderError, Layout, Shelf};

/// AFL++'s own limit (`MAX_FILE`).
pub const INPUT_BYTES_MAX: u64 = 1 << 20;
/// AFL++ creates a file and then writes it, which takes far less.
pub const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Why nothing can be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// It is what one fuzzer has written, not the folder of several.
    #[error(
        "{} is the folder of a single fuzzer; give the folder above it, which is what afl-fuzz has got as -o",
        path.display()
    )]
    SingleFuzzer {
        /// The folder.
        path: PathBuf,
    },
    /// The campaign's own folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// `create`, `read`…
        what: &'static str,
        /// What it was about.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Up to where the queues of others were read. Plain data, for the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    parties: BTreeMap<String, Party>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Party {
    /// The first number that was not seen.
    next: u64,
    /// The name of the last one that was; if it is not there any more, this is another queue.
    last: String,
}

/// An input of another fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The other fuzzer's folder in `SYNC`.
    pub party: String,
    /// What its name says.
    pub name: CaseName,
    /// The input.
    pub input: Vec<u8>,
}

/// What [`Exchange::take`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The inputs, in the order of each queue.
    pub imports: Vec<Import>,
    /// How many were passed over because they are too large, empty or cannot be read.
    pub passed_over: u64,
    /// There is more than was asked for.
    pub more: bool,
}

/// The exchange of one campaign with the other fuzzers in a folder.
#[derive(Debug)]
pub struct Exchange {
    sync: PathBuf,
    own: String,
    /// Where copies for others go; `None` if they can read the campaign's own queue.
    outbox: Option<PathBuf>,
    /// The first number that was not given yet.
    given: u64,
    seen: Seen,
    /// Hashes of what was taken since this was opened.
    taken: HashSet<u64>,
}

impl Exchange {
    /// Between the campaign in `campaign` and whoever is in `sync` (which is made if it is not
    /// there, because AFL++ may be started later).
    pub fn open(sync: &Path, campaign: &Layout, seen: Seen) -> Result<Exchange, SyncError> {
        fs::create_dir_all(sync).map_err(|e| io_error("create", sync, e))?;
        let real = |path: &Path| path.canonicalize().map_err(|e| io_error("find", path, e));
        let (sync, campaign) = (real(sync)?, real(campaign.root())?);
        if sync.join("queue").is_dir() {
            return Err(SyncError::SingleFuzzer { path: sync });
        }
        let mut exchange = Exchange {
            sync,
            own: String::new(),
            outbox: None,
            given: 0,
            seen,
            taken: HashSet::new(),
        };
        if campaign.parent() == Some(&exchange.sync) {
            let name = campaign.file_name().unwrap_or_default();
            exchange.own = name.to_string_lossy().into_owned();
            return Ok(exchange);
        }
        // The same for each run of the campaign, and another for each campaign.
        let hash = blake3::hash(campaign.as_os_str().as_encoded_bytes());
        exchange.own = format!("brownout-{}", &hash.to_hex()[..8]);
        let folder = exchange.sync.join(&exchange.own);
        let queue = folder.join("queue");
        fs::create_dir_all(&queue).map_err(|e| io_error("create", &queue, e))?;
        files::remove_temporaries(&queue).map_err(|e| io_error("tidy", &queue, e))?;
        let readme = folder.join("README.txt");
        let text = format!(
            "Copies of the inputs in {}/queue, so that AFL++ takes them over.\n",
            campaign.display()
        );
        let written = files::write_whole(&readme, text.as_bytes(), Durability::Process);
        written.map_err(|e| io_error("write", &readme, e))?;
        let there = list(&queue).map_err(|e| io_error("read", &queue, e))?;
        let there = there.unwrap_or_default();
        // What lies behind a gap is of no use to AFL++, and is given again.
        while there.contains_key(&exchange.given) {
            exchange.given += 1;
        }
        exchange.outbox = Some(queue);
        Ok(exchange)
    }

    /// The name under which others know this campaign.
    pub fn own_name(&self) -> &str {
        &self.own
    }

    /// Up to where the others' queues were read: to be remembered after what was taken is safe.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Takes up to `at_most` inputs that are new.
    pub fn take(&mut self, at_most: usize) -> Result<Taken, SyncError> {
        self.take_at(at_most, SystemTime::now())
    }

    fn take_at(&mut self, at_most: usize, now: SystemTime) -> Result<Taken, SyncError> {
        let mut taken = Taken::default();
        for party in self.parties()? {
            let folder = self.sync.join(&party);
            // While afl-fuzz goes on with an old queue, it fills it anew.
            if folder.join("_resume").exists() {
                continue;
            }
            let queue = folder.join("queue");
            // A party may leave at any time, and its folder may be closed to us.
            let Ok(Some(there)) = list(&queue) else {
                continue;
            };
            let mut state = self.seen.parties.get(&party).cloned().unwrap_or_default();
            if let Some(last) = state.next.checked_sub(1)
                && there.get(&last).is_none_or(|name| *name != state.last)
            {
                state = Party::default();
            }
            for (id, file) in there.range(state.next..) {
                if taken.imports.len() >= at_most {
                    taken.more = true;
                    break;
                }
                let parsed = CaseName::parse(file);
                let ours = parsed.as_ref().is_some_and(
                    |n| matches!(&n.origin, Origin::Imported { party, .. } if *party == self.own),
                );
                match parsed {
                    Some(name) if !ours => match read(&queue.join(file), now) {
                        Readable::Input(input) if self.taken.insert(hash(&input)) => {
                            let party = party.clone();
                            taken.imports.push(Import { party, name, input });
                        }
                        Readable::Input(_) => {}
                        Readable::No => taken.passed_over += 1,
                        Readable::NotYet => break,
                    },
                    _ => {}
                }
                state.next = id + 1;
                state.last.clone_from(file);
            }
            self.seen.parties.insert(party, state);
        }
        Ok(taken)
    }

    /// Gives others all cases of the campaign's queue that they have not got yet, and says how many
    /// these were. Cases from the first missing number on wait, because AFL++ counts.
    pub fn give(&mut self, campaign: &Layout) -> Result<u64, SyncError> {
        let Some(outbox) = &self.outbox else {
            return Ok(0);
        };
        let first = self.given;
        for case in campaign.cases(Shelf::Queue)? {
            if case.name.id < self.given {
                continue;
            }
            if case.name.id > self.given {
                break;
            }
            let input = fs::read(&case.path).map_err(|e| io_error("read", &case.path, e))?;
            let to = outbox.join(case.name.to_string());
            let written = files::write_whole(&to, &input, Durability::Process);
            written.map_err(|e| io_error("write", &to, e))?;
            self.given += 1;
        }
        Ok(self.given - first)
    }

    /// The others, by name.
    fn parties(&self) -> Result<Vec<String>, SyncError> {
        let read = |e| io_error("read", &self.sync, e);
        let mut parties = Vec::new();
        for entry in fs::read_dir(&self.sync).map_err(read)? {
            // What is not text cannot be remembered; AFL++ makes no such names.
            let Ok(name) = entry.map_err(read)?.file_name().into_string() else {
                continue;
            };
            if name != self.own && !name.starts_with('.') {
                parties.push(name);
            }
        }
        parties.sort();
        Ok(parties)
    }
}

fn io_error(what: &'static str, path: &Path, error: io::Error) -> SyncError {
    let path = path.to_path_buf();
    SyncError::Io { what, path, error }
}

/// The cases in a queue: number and name. `None` if there is no such folder.
fn list(queue: &Path) -> io::Result<Option<BTreeMap<u64, String>>> {
    let entries = match fs::read_dir(queue) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        entries => entries?,
    };
    let mut cases = BTreeMap::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string()
            && let Some(case) = CaseName::parse(&name)
        {
            cases.insert(case.id, name);
        }
    }
    Ok(Some(cases))
}

fn hash(input: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(input).as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

enum Readable {
    Input(Vec<u8>),
    /// Empty, too large, gone or not a file.
    No,
    /// It may not be whole.
    NotYet,
}

fn read(path: &Path, now: SystemTime) -> Readable {
    let open = || -> io::Result<(File, fs::Metadata)> {
        // A pipe must not make us wait for somebody who writes to it.
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    };
    let Ok((file, metadata)) = open() else {
        return Readable::No;
    };
    if !metadata.is_file() || metadata.len() > INPUT_BYTES_MAX {
        return Readable::No;
    }
    // Where clocks differ, a file may come from the future; it is not waited for.
    let age = metadata
        .modified()
        .ok()
        .and_then(|m| now.duration_since(m).ok());
    if age.is_some_and(|age| age < SETTLED_AFTER) {
        return Readable::NotYet;
    }
    let mut input = Vec::new();
    match file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut input) {
        Ok(1..) if input.len() as u64 <= INPUT_BYTES_MAX => Readable::Input(input),
        _ => Readable::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{Folder, Identity};

    /// A campaign in `place`, and what AFL++'s folder would be.
    struct Scene {
        _place: tempfile::TempDir,
        sync: PathBuf,
        folder: Folder,
    }

    impl Scene {
        fn new(campaign: &str) -> Scene {
            let place = tempfile::tempdir().unwrap();
            let identity = Identity::new("fuzz", &1, &2).unwrap();
            let folder = Folder::create(&place.path().join(campaign), &identity).unwrap();
            let sync = place.path().join("sync");
            Scene {
                _place: place,
                sync,
                folder,
            }
        }

        fn open(&self, seen: Seen) -> Exchange {
            Exchange::open(&self.sync, self.folder.layout(), seen).unwrap()
        }

        /// A file in another fuzzer's queue, old enough.
        fn write(&self, party: &str, name: &str, input: &[u8]) {
            let queue = self.sync.join(party).join("queue");
            fs::create_dir_all(&queue).unwrap();
            let file = File::create(queue.join(name)).unwrap();
            io::Write::write_all(&mut &file, input).unwrap();
            file.set_modified(SystemTime::now() - 2 * SETTLED_AFTER)
                .unwrap();
        }

        fn add(&self, id: u64) {
            let name = CaseName::from_case(id, 0, None, "havoc");
            let input = format!("input {id}");
            let how = Durability::Process;
            let added = self
                .folder
                .add_case(Shelf::Queue, &name, input.as_bytes(), how);
            added.unwrap();
        }
    }

    fn inputs(taken: &Taken) -> Vec<(&str, u64, &str)> {
        let imports = taken.imports.iter();
        imports
            .map(|import| {
                let text = std::str::from_utf8(&import.input).unwrap();
                (import.party.as_str(), import.name.id, text)
            })
            .collect()
    }

    #[test]
    fn what_is_new_is_taken_once() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
        scene.write(
            "main",
            "id:000001,src:000000,time:1,execs:2,op:havoc,rep:2",
            b"b",
        );
        scene.write("main", "id:000000,time:0,execs:0,orig:seed", b"a");
        scene.write("other", "id:000000,time:0,execs:0,orig:seed", b"c");
        scene.write("main", "README.txt", b"no case");
        let taken = exchange.take(10).unwrap();
        let all = [("main", 0, "a"), ("main", 1, "b"), ("other", 0, "c")];
        assert_eq!(inputs(&taken), all);
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
        // The next run of the tool.
        let bytes = postcard::to_allocvec(exchange.seen()).unwrap();
        let mut exchange = scene.open(postcard::from_bytes(&bytes).unwrap());
        scene.write("main", "id:000002,src:000001,time:1,execs:2,op:havoc", b"d");
        assert_eq!(inputs(&exchange.take(10).unwrap()), [("main", 2, "d")]);
    }

    #[test]
    fn a_bounded_number_at_a_time_loses_none() {
        let scene = Scene::new("out");
        for id in 0..7 {
            scene.write("a", &format!("id:{id:06},src:000000"), &[b'a' + id as u8]);
            scene.write("b", &format!("id:{id:06},src:000000"), &[b'A' + id as u8]);
        }
        let mut exchange = scene.open(Seen::default());
        let mut text = Vec::new();
        loop {
            let taken = exchange.take(3).unwrap();
            assert!(taken.imports.len() <= 3);
            text.extend(taken.imports.iter().flat_map(|import| import.input.clone()));
            if !taken.more {
                break;
            }
        }
        assert_eq!(text, b"abcdefgABCDEFG");
    }

    #[test]
    fn a_fuzzer_that_begins_anew_is_read_anew() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        for id in 0..3 {
            scene.write("main", &format!("id:{id:06},src:000000,time:1"), &[id]);
        }
        assert_eq!(exchange.take(10).unwrap().imports.len(), 3);
        fs::remove_dir_all(scene.sync.join("main")).unwrap();
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
        for id in 0..5 {
            scene.write("main", &format!("id:{id:06},src:000000,time:2"), &[id + 10]);
        }
        assert_eq!(exchange.take(10).unwrap().imports.len(), 5);
    }

    #[test]
    fn a_fuzzer_that_goes_on_gives_only_what_is_new() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        let old = |id: u8| format!("id:{id:06},src:000000,time:1,execs:1,op:havoc,rep:2");
        for id in 0..3 {
            scene.write("main", &old(id), &[id]);
        }
        assert_eq!(exchange.take(10).unwrap().imports.len(), 3);
        // As Debian's afl-fuzz does: it moves the queue away, fills it again in another order, and
        // then goes on.
        let main = scene.sync.join("main");
        fs::rename(main.join("queue"), main.join("_resume")).unwrap();
        scene.write(
            "main",
            &format!("id:000000,time:0,execs:0,orig:{}", old(2)),
            &[2],
        );
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
        scene.write(
            "main",
            &format!("id:000001,time:0,execs:0,orig:{}", old(1)),
            &[1],
        );
        scene.write(
            "main",
            &format!("id:000002,time:0,execs:0,orig:{}", old(0)),
            &[0],
        );
        fs::remove_dir_all(main.join("_resume")).unwrap();
        scene.write(
            "main",
            "id:000003,src:000000,time:9,execs:9,op:havoc,rep:2",
            b"new",
        );
        assert_eq!(inputs(&exchange.take(10).unwrap()), [("main", 3, "new")]);
        // Another instance has taken it over.
        scene.write("second", "id:000000,sync:main,src:000003", b"new");
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
    }

    #[test]
    fn a_queue_that_is_being_filled_again_is_waited_for() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        scene.write("main", "id:000000,src:000000", b"a");
        fs::create_dir(scene.sync.join("main/_resume")).unwrap();
        assert_eq!(exchange.take(10).unwrap(), Taken::default());
        fs::remove_dir(scene.sync.join("main/_resume")).unwrap();
        assert_eq!(inputs(&exchange.take(10).unwrap()), [("main", 0, "a")]);
    }

    #[test]
    fn ours_are_not_taken_back_and_odd_files_are_passed_over() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        let own = exchange.own_name().to_owned();
        scene.write("main", &format!("id:000000,sync:{own},src:000004"), b"ours");
        scene.write("main", "id:000001,sync:other,src:000004", b"another's");
        scene.write("main", "id:000002,src:000000", b"");
        let long = vec![0; INPUT_BYTES_MAX as usize + 1];
        scene.write("main", "id:000003,src:000000", &long);
        let queue = scene.sync.join("main/queue");
        let pipe = queue.join("id:000004,src:000000");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        std::os::unix::fs::symlink("/nowhere", queue.join("id:000005,src:000000")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", queue.join("id:000006,src:000000")).unwrap();
        fs::create_dir(queue.join("id:000007,src:000000")).unwrap();
        scene.write("main", "id:000008,src:000000", b"last");
        fs::write(scene.sync.join("a file"), "").unwrap();
        fs::create_dir(scene.sync.join(".hidden")).unwrap();
        let taken = exchange.take(10).unwrap();
        assert_eq!(
            inputs(&taken),
            [("main", 1, "another's"), ("main", 8, "last")]
        );
        assert_eq!(taken.passed_over, 6);
    }

    #[test]
    fn a_file_that_is_being_written_is_waited_for() {
        let scene = Scene::new("out");
        scene.write("main", "id:000000,src:000000", b"a");
        let path = scene.sync.join("main/queue/id:000000,src:000000");
        let written = path.metadata().unwrap().modified().unwrap();
        for (after, waits) in [(0, true), (999, true), (1000, false), (5000, false)] {
            let now = written + Duration::from_millis(after);
            assert_eq!(matches!(read(&path, now), Readable::NotYet), waits);
        }
        // Where clocks differ, it may be from the future.
        let now = written - Duration::from_secs(9);
        assert!(matches!(read(&path, now), Readable::Input(_)));
    }

    #[test]
    fn a_young_file_holds_back_those_after_it() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        scene.write("main", "id:000000,src:000000", b"a");
        scene.write("main", "id:000001,src:000000", b"b");
        scene.write("main", "id:000002,src:000000", b"c");
        let young = scene.sync.join("main/queue/id:000001,src:000000");
        let young = young.metadata().unwrap().modified().unwrap();
        let others = SystemTime::now() - 100 * SETTLED_AFTER;
        for id in [0, 2] {
            let path = scene.sync.join(format!("main/queue/id:{id:06},src:000000"));
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(others).unwrap();
        }
        let taken = exchange.take_at(9, young + SETTLED_AFTER / 2).unwrap();
        assert_eq!(inputs(&taken), [("main", 0, "a")]);
        let taken = exchange.take_at(9, young + SETTLED_AFTER).unwrap();
        assert_eq!(inputs(&taken), [("main", 1, "b"), ("main", 2, "c")]);
    }

    #[test]
    fn cases_are_given_without_gaps_and_once() {
        let scene = Scene::new("out");
        let mut exchange = scene.open(Seen::default());
        let outbox = scene.sync.join(exchange.own_name()).join("queue");
        for id in [0, 1, 3] {
            scene.add(id);
        }
        let layout = scene.folder.layout();
        assert_eq!(exchange.give(layout).unwrap(), 2);
        assert_eq!(exchange.give(layout).unwrap(), 0);
        scene.add(2);
        // The next run of the tool, after a kill.
        fs::write(
            outbox.join(format!("{}9-9", files::TEMPORARY_PREFIX)),
            "half",
        )
        .unwrap();
        let mut exchange = scene.open(Seen::default());
        assert_eq!(exchange.give(layout).unwrap(), 2);
        let mut names: Vec<_> = fs::read_dir(&outbox).unwrap().collect();
        names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
        assert_eq!(names.len(), 4);
        for (id, entry) in names.into_iter().enumerate() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(
                name.starts_with(&format!("id:{id:06},src:000000,time:")),
                "{name}"
            );
            assert_eq!(fs::read_to_string(path).unwrap(), format!("input {id}"));
        }
        assert_eq!(exchange.take(9).unwrap(), Taken::default(), "its own");
    }

    #[test]
    fn a_campaign_within_the_folder_is_read_where_it_is() {
        let scene = Scene::new("sync/us");
        scene.write("main", "id:000000,sync:us,src:000000", b"ours");
        scene.add(0);
        let mut exchange = scene.open(Seen::default());
        assert_eq!(exchange.own_name(), "us");
        assert_eq!(exchange.give(scene.folder.layout()).unwrap(), 0);
        assert_eq!(exchange.take(9).unwrap(), Taken::default());
        let parties: Vec<_> = fs::read_dir(&scene.sync).unwrap().collect();
        assert_eq!(parties.len(), 2);
    }

    #[test]
    fn the_folder_of_one_fuzzer_is_refused() {
        let scene = Scene::new("out");
        scene.write("main", "id:000000,src:000000", b"x");
        let one = scene.sync.join("main");
        let error = Exchange::open(&one, scene.folder.layout(), Seen::default()).unwrap_err();
        assert!(matches!(error, SyncError::SingleFuzzer { .. }), "{error}");
        let mut names = fs::read_dir(&one).unwrap();
        assert!(names.all(|entry| entry.unwrap().file_name() == "queue"));
    }
}
