//! The files of a run: which names they have, how long they are, and under which keys their
//! contents are known.
//!
//! The stream numbers files in order of appearance. A recording numbers *contents*: a file has a
//! new one when it is made and whenever it is cut short, because what was there before comes back
//! if the cut is lost in a crash ([`brownout_model::names`]). Keys, lines and units are those of
//! contents. Contents of persistent memory come first; those of ordinary files, which are written
//! back by the page whatever the domain, have numbers of their own range, so that a unit tells of
//! which kind it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use brownout_model::names::{Change, Content, NameState, Names, Node, Path, Promise, Shape, Sync};
use brownout_trace::event::{FileId, NameChange, split_names};
use rustc_hash::FxHashSet;

use crate::site::Site;
use crate::unit::{ORDINARY, PAGE, is_ordinary};
use crate::view::{Entry, FileState, Files};

/// Those of persistent memory end here: so that units of lines lie below those of ordinary files'
/// pages.
const PM_END: u32 = 1 << 13;

/// Something that was done to names or sizes, for whoever reads a finding.
#[derive(Clone, Debug)]
pub struct NameStep {
    pub site: Site,
    /// "the renaming of 'a' to 'b'".
    pub what: String,
    /// The file that it is about.
    pub file: FileId,
    /// What that held then.
    pub content: FileId,
    /// It gave the file a name.
    pub publishes: bool,
    /// It made the file longer by writing behind its end.
    pub extends: bool,
}

/// See the module's header.
pub struct Filing {
    pub names: Names,
    /// Names are what this is about; else every change is durable at once, and a file keeps its
    /// content.
    is_exact: bool,
    /// The content that each file has now.
    contents: BTreeMap<FileId, FileId>,
    next_pm: u32,
    next_ordinary: u32,
    pub steps: Vec<NameStep>,
    /// What happened and is not part of the crash states, in words.
    pub unfollowed: BTreeSet<String>,
    /// Paths of files whose permissions, owner or extended attributes have changed, and what of
    /// them.
    attributes: BTreeSet<(Vec<u8>, String)>,
    /// Pages that were stored to since the file was last mapped.
    faulted: FxHashSet<(FileId, u64)>,
    /// Counts changes.
    version: u64,
    states: Option<(u64, usize, States)>,
}

/// What names and sizes a crash may leave.
#[derive(Clone)]
pub struct States {
    /// The newest last.
    pub list: Vec<NameState>,
    /// Which of them has lost all that can be lost.
    pub oldest: usize,
    /// There are no others.
    pub all: bool,
}

impl Filing {
    pub fn new(promise: Option<Promise>) -> Filing {
        Filing {
            names: Names::new(promise.unwrap_or_default()),
            is_exact: promise.is_some(),
            contents: BTreeMap::new(),
            next_pm: 1,
            next_ordinary: ORDINARY,
            steps: Vec::new(),
            unfollowed: BTreeSet::new(),
            attributes: BTreeSet::new(),
            faulted: FxHashSet::default(),
            version: 0,
            states: None,
        }
    }

    /// For a run on what a crash has left.
    pub fn on(promise: Option<Promise>, files: &Files) -> Filing {
        let mut filing = Filing::new(promise);
        let names = files.names.iter().map(|(path, entry)| {
            let node = match entry {
                Entry::Absent => None,
                Entry::File(content) => Some(Node::File(*content)),
                Entry::Folder => Some(Node::Folder),
                Entry::Link(to) => Some(Node::Link(to.as_slice().into())),
            };
            (path.as_slice().into(), node)
        });
        let state = NameState {
            names: names.collect(),
            files: files
                .iter()
                .filter(|(_, state)| state.exists)
                .map(|(content, state)| {
                    let shape = Shape {
                        content: Content(content.0),
                        size: state.size,
                    };
                    (*content, shape)
                })
                .collect(),
            lost: Vec::new(),
        };
        filing.names = Names::on(promise.unwrap_or_default(), &state);
        filing.contents = state.files.keys().map(|file| (*file, *file)).collect();
        (filing.next_pm, filing.next_ordinary) = files.next;
        filing.next_pm = filing.next_pm.max(1);
        filing.next_ordinary = filing.next_ordinary.max(ORDINARY);
        filing
    }

    /// The content that a file has now.
    pub fn content(&self, file: FileId) -> Option<FileId> {
        self.contents.get(&file).copied()
    }

    /// What all files hold now.
    pub fn all(&self) -> Vec<FileId> {
        self.contents.values().copied().collect()
    }

    /// Numbers that are not given to contents yet.
    pub fn next(&self) -> (u32, u32) {
        (self.next_pm, self.next_ordinary)
    }

    fn allocate(&mut self, ordinary: bool) -> FileId {
        let is_spent = !ordinary && self.next_pm >= PM_END;
        if is_spent {
            self.unfollowed.insert(format!(
                "single lines of persistent memory that is made or cut short after {} others: it counts as written back by the page",
                PM_END - 1
            ));
        }
        let next = match ordinary || is_spent {
            true => &mut self.next_ordinary,
            false => &mut self.next_pm,
        };
        *next += 1;
        FileId(*next - 1)
    }

    /// A file that was not known.
    pub fn add(&mut self, file: FileId, size: u64, ordinary: bool) -> FileId {
        let content = self.allocate(ordinary);
        self.contents.insert(file, content);
        let shape = Shape {
            content: Content(content.0),
            size,
        };
        self.names.known(file, shape);
        self.version += 1;
        content
    }

    /// A file has turned out to be persistent memory: its content gets another number. Both
    /// numbers, if it had one of an ordinary file.
    pub fn upgrade(&mut self, file: FileId) -> Option<(FileId, FileId)> {
        let old = self.content(file).filter(|content| is_ordinary(*content))?;
        let new = self.allocate(false);
        self.contents.insert(file, new);
        self.names.renumber(Content(old.0), Content(new.0));
        self.version += 1;
        Some((old, new))
    }

    /// The file is cut short: what it holds from now on is another content. Both numbers.
    pub fn cut(&mut self, file: FileId) -> Option<(FileId, FileId)> {
        let old = self.content(file)?;
        if !self.is_exact {
            return None;
        }
        let new = self.allocate(is_ordinary(old));
        self.contents.insert(file, new);
        Some((old, new))
    }

    pub fn size(&self, file: FileId) -> Option<u64> {
        self.names.shape(file).map(|shape| shape.size)
    }

    fn apply(&mut self, step: NameStep, change: Change) {
        self.names.apply(self.steps.len() as u32, change);
        self.steps.push(step);
        self.version += 1;
    }

    pub fn resize(&mut self, site: Site, file: FileId, size: u64) {
        let Some(content) = self.content(file) else {
            return;
        };
        let step = NameStep {
            site,
            what: format!("setting the size to {size}"),
            file,
            content,
            publishes: false,
            extends: false,
        };
        let content = Content(content.0);
        self.apply(
            step,
            Change::Resize {
                file,
                content,
                size,
            },
        );
    }

    /// The file has grown because something was written behind its end.
    pub fn extend(&mut self, site: Site, file: FileId, size: u64) {
        let step = NameStep {
            site,
            what: format!("the growth to {size} bytes"),
            file,
            content: self.content(file).unwrap_or_default(),
            publishes: false,
            extends: true,
        };
        self.apply(step, Change::Extend { file, size });
    }

    /// The file was made, and there will be no event that says under which name.
    pub fn made(&mut self, site: Site, file: FileId, path: &[u8]) {
        self.named(site, NameChange::Create, file, FileId(0), path);
    }

    /// A name has changed. True if something has become uncertain.
    pub fn named(
        &mut self,
        site: Site,
        change: NameChange,
        file: FileId,
        replaced: FileId,
        names: &[u8],
    ) -> bool {
        let (path, to) = split_names(names);
        let node = |file: FileId| (file != FileId(0)).then_some(Node::File(file));
        let short = |path: &[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            format!("'{}'", String::from_utf8_lossy(name))
        };
        let owned: Path = path.into();
        let put = |node: Node, is_new: bool| Change::Put {
            path: owned.clone(),
            node,
            is_new,
        };
        let (what, publishes, change) = match change {
            NameChange::Create => {
                self.names.found(path, None);
                let what = format!("the creation of {}", short(path));
                (what, true, put(Node::File(file), true))
            }
            NameChange::Link => {
                self.names.found(path, None);
                let what = format!("the name {}", short(path));
                (what, true, put(Node::File(file), false))
            }
            NameChange::Mkdir => {
                self.names.found(path, None);
                let what = format!("the creation of the folder {}", short(path));
                (what, false, put(Node::Folder, true))
            }
            NameChange::Symlink => {
                self.names.found(path, None);
                let what = format!("the symbolic link {}", short(path));
                (what, false, put(Node::Link(to.into()), true))
            }
            NameChange::Unlink | NameChange::Rmdir => {
                let was = match change {
                    NameChange::Rmdir => Some(Node::Folder),
                    _ => node(file),
                };
                if was.is_some() {
                    self.names.found(path, was);
                }
                if self.names.node(path).is_none() {
                    return self.not_followed(path, "the removal of something that is not a file");
                }
                let what = format!("the removal of {}", short(path));
                let path = owned.clone();
                (what, false, Change::Remove { path })
            }
            NameChange::Rename | NameChange::RenameFolder => {
                if let Some(node) = node(file) {
                    self.names.found(path, Some(node));
                }
                self.names.found(to, node(replaced));
                if self.names.node(path).is_none() {
                    let what = match change {
                        NameChange::Rename => "the renaming of something that is not a file",
                        _ => "the renaming of a folder that was there before",
                    };
                    return self.not_followed(path, what);
                }
                let what = format!("the renaming of {} to {}", short(path), short(to));
                let (from, to) = (owned.clone(), to.into());
                (what, true, Change::Move { from, to })
            }
            NameChange::Exchange => {
                self.names.found(path, node(file));
                self.names.found(to, node(replaced));
                let what = format!("the exchange of {} and {}", short(path), short(to));
                let (from, to) = (owned.clone(), to.into());
                (what, true, Change::Swap { from, to })
            }
            NameChange::Unfollowed => {
                let what = String::from_utf8_lossy(to).into_owned();
                return self.not_followed(path, &what);
            }
            NameChange::SyncFolder | NameChange::SyncAll | NameChange::Attributes => return false,
        };
        let step = NameStep {
            site,
            what,
            file,
            content: self.content(file).unwrap_or_default(),
            publishes,
            extends: false,
        };
        self.apply(step, change);
        true
    }

    fn not_followed(&mut self, path: &[u8], what: &str) -> bool {
        let path = String::from_utf8_lossy(path);
        self.unfollowed.insert(match path.is_empty() {
            true => what.to_owned(),
            false => format!("{what} ({path})"),
        });
        false
    }

    /// Permissions, owner or extended attributes of a file have changed.
    pub fn attributed(&mut self, path: &[u8], what: &[u8]) {
        let what = String::from_utf8_lossy(what).into_owned();
        self.attributes.insert((path.to_vec(), what));
    }

    /// What of the attributes of files that are followed has changed: crashes leave all of it as it
    /// was first.
    pub fn attributes(&self) -> impl Iterator<Item = String> {
        let known = self.attributes.iter();
        let known = known.filter(|(path, _)| self.names.knows(path));
        known.map(|(path, what)| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            format!("{what} of '{}'", String::from_utf8_lossy(name))
        })
    }

    /// A mapping of the file begins: its pages are yet to be touched.
    pub fn mapped(&mut self, file: FileId) {
        self.faulted.retain(|(other, _)| *other != file);
    }

    /// A store to a page of a mapping, the first one: then the kernel makes durable what is needed
    /// to find the page again, because the mapping counts as one with `MAP_SYNC`.
    pub fn faults(&mut self, file: FileId, offset: u64) -> bool {
        self.faulted.insert((file, offset / PAGE))
    }

    pub fn completes(&self, sync: &Sync<'_>) -> bool {
        self.names.completes(sync)
    }

    pub fn sync(&mut self, sync: &Sync<'_>) {
        self.names.sync(sync);
        self.version += 1;
    }

    /// Whether changes are durable as soon as they are made.
    pub fn is_at_once(&self) -> bool {
        !self.is_exact
    }

    /// What a crash may leave now.
    pub fn states(&mut self, max: usize) -> States {
        if let Some((version, limit, states)) = &self.states
            && (*version, *limit) == (self.version, max)
        {
            return states.clone();
        }
        let (mut list, all) = self.names.states(max);
        list.reverse();
        // By what it looks like: the same may come about by losing less.
        let oldest = self.names.oldest();
        let is_oldest =
            |state: &NameState| state.names == oldest.names && state.files == oldest.files;
        let states = States {
            oldest: list.iter().position(is_oldest).unwrap_or(0),
            list,
            all,
        };
        self.states = Some((self.version, max, states.clone()));
        states
    }
}

/// As images have it.
pub fn files_of(state: &NameState, next: (u32, u32)) -> Files {
    let mut files = Files {
        next,
        ..Files::default()
    };
    for shape in state.files.values() {
        let there = FileState {
            exists: true,
            size: shape.size,
        };
        files.states.insert(FileId(shape.content.0), there);
    }
    for (path, node) in &state.names {
        let entry = match node {
            None => Entry::Absent,
            Some(Node::File(file)) => match state.files.get(file) {
                Some(shape) => Entry::File(FileId(shape.content.0)),
                None => Entry::Absent,
            },
            Some(Node::Folder) => Entry::Folder,
            Some(Node::Link(to)) => Entry::Link(to.to_vec()),
        };
        files.names.insert(path.to_vec(), entry);
    }
    files
}

/// Folders that are in memory and empty when a machine starts.
const IN_MEMORY: [&[u8]; 2] = [b"/dev/shm/", b"/run/"];
/// Semaphores of POSIX.
const SEMAPHORES: &[u8] = b"/dev/shm/sem.";

/// Folders of [`IN_MEMORY`] in which these files have persistent memory: there it stands for a
/// file system that keeps what it is given, and so does what lies beside it.
pub fn stand_ins(files: &Files) -> BTreeSet<&'static [u8]> {
    let persistent = files
        .names
        .iter()
        .filter(|(_, entry)| matches!(entry, Entry::File(content) if !is_ordinary(*content)));
    persistent
        .filter_map(|(path, _)| folder_in_memory(path))
        .collect()
}

/// Which of [`IN_MEMORY`] a path lies in.
pub fn folder_in_memory(path: &[u8]) -> Option<&'static [u8]> {
    IN_MEMORY
        .into_iter()
        .find(|folder| path.starts_with(folder))
}

/// Takes away what no power failure leaves: shared memory and semaphores of POSIX, which are files
/// for the C library's and the kernel's convenience, and whatever else lies in memory.
pub fn lose_memory(files: &mut Files, kept: &BTreeSet<&'static [u8]>) {
    let is_lost = |path: &[u8]| {
        path.starts_with(SEMAPHORES)
            || folder_in_memory(path).is_some_and(|folder| !kept.contains(folder))
    };
    let mut nameless = BTreeSet::new();
    for (path, entry) in &mut files.names {
        if is_lost(path)
            && let Entry::File(content) = std::mem::replace(entry, Entry::Absent)
        {
            nameless.insert(content);
        }
    }
    for entry in files.names.values() {
        if let Entry::File(content) = entry {
            nameless.remove(content);
        }
    }
    files
        .states
        .retain(|content, _| !nameless.contains(content));
}

/// A path of the stream as the tool has paths.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use brownout_trace::epochs::Epoch;
    use brownout_trace::event::{ContextId, ProcessId, TargetAddr, ThreadId};

    use super::*;

    const POOL: FileId = FileId(1);
    const LOG: FileId = FileId(2);

    fn site() -> Site {
        Site {
            thread: ThreadId(1),
            process: ProcessId(1),
            epoch: Epoch::default(),
            pc: TargetAddr(0x1000),
            context: ContextId(0),
            event: 0,
        }
    }

    /// Names and sizes are what it is about.
    fn exact() -> Filing {
        Filing::new(Some(Promise::Ordered))
    }

    fn named(filing: &mut Filing, change: NameChange, file: FileId, names: &[u8]) -> bool {
        filing.named(site(), change, file, FileId(0), names)
    }

    #[test]
    fn what_lies_in_memory_is_lost_unless_it_stands_for_something_else() {
        let there = FileState {
            exists: true,
            size: 1,
        };
        let beside = |pool: &str| {
            let contents = [1, ORDINARY, ORDINARY + 1, ORDINARY + 2].map(FileId);
            let names = [pool, "/dev/shm/sem.a", "/dev/shm/b", "/home/c"];
            Files {
                states: contents.map(|content| (content, there)).into(),
                names: names
                    .into_iter()
                    .zip(contents)
                    .map(|(name, content)| (name.into(), Entry::File(content)))
                    .collect(),
                next: (0, 0),
            }
        };
        let left = |mut files: Files| {
            let kept = stand_ins(&files);
            lose_memory(&mut files, &kept);
            let is_there = |entry: &Entry| *entry != Entry::Absent;
            let names = files.names.iter().filter(|(_, entry)| is_there(entry));
            assert_eq!(names.clone().count(), files.states.len());
            let names = names.map(|(path, _)| String::from_utf8_lossy(path).into_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(left(beside("/home/pool")), ["/home/c", "/home/pool"]);
        assert_eq!(
            left(beside("/dev/shm/pool")),
            ["/dev/shm/b", "/dev/shm/pool", "/home/c"]
        );
    }

    #[test]
    fn contents_of_each_kind_have_their_own_numbers() {
        let mut filing = exact();
        assert_eq!(filing.add(POOL, 4096, false), FileId(1));
        assert_eq!(filing.add(LOG, 0, true), FileId(ORDINARY));
        assert_eq!(filing.all(), [FileId(1), FileId(ORDINARY)]);
        assert_eq!(filing.next(), (2, ORDINARY + 1));
        assert_eq!(filing.content(FileId(9)), None);
    }

    #[test]
    fn when_the_numbers_of_persistent_memory_are_spent_that_is_said() {
        let mut filing = exact();
        filing.next_pm = PM_END - 1;
        assert!(!is_ordinary(filing.add(POOL, 0, false)));
        assert!(filing.unfollowed.is_empty());
        let (_, new) = filing.cut(POOL).expect("it is known");
        assert!(is_ordinary(new));
        // It is explored with fewer crash states than it has, and nobody is to believe otherwise.
        assert_eq!(filing.unfollowed.len(), 1);
    }

    #[test]
    fn a_file_that_turns_out_to_be_persistent_memory_is_numbered_anew_once() {
        let mut filing = exact();
        let ordinary = filing.add(LOG, 10, true);
        let (old, new) = filing.upgrade(LOG).expect("it was ordinary");
        assert_eq!(old, ordinary);
        assert!(!is_ordinary(new) && filing.content(LOG) == Some(new));
        assert_eq!(filing.upgrade(LOG), None);
        assert_eq!(filing.upgrade(FileId(9)), None);
    }

    #[test]
    fn a_cut_gives_another_content_of_the_same_kind() {
        let mut filing = exact();
        for (file, ordinary) in [(POOL, false), (LOG, true)] {
            let before = filing.add(file, 100, ordinary);
            let (old, new) = filing.cut(file).expect("it is known");
            assert_eq!(old, before);
            assert!(new != old && is_ordinary(new) == ordinary);
            assert_eq!(filing.content(file), Some(new));
        }
        assert_eq!(filing.cut(FileId(9)), None);
    }

    #[test]
    fn where_nobody_asks_about_names_a_file_keeps_its_content() {
        let mut filing = Filing::new(None);
        let content = filing.add(POOL, 100, false);
        assert!(filing.is_at_once());
        assert_eq!(filing.cut(POOL), None);
        assert_eq!(filing.content(POOL), Some(content));
    }

    #[test]
    fn steps_say_what_was_done_and_whether_it_publishes() {
        let mut filing = exact();
        filing.add(LOG, 0, true);
        assert!(named(&mut filing, NameChange::Create, LOG, b"/d/new"));
        assert!(named(
            &mut filing,
            NameChange::Rename,
            LOG,
            b"/d/new\0/d/log"
        ));
        assert!(named(&mut filing, NameChange::Mkdir, FileId(0), b"/d/sub"));
        assert!(named(&mut filing, NameChange::Unlink, LOG, b"/d/log"));
        filing.resize(site(), LOG, 7);
        let steps: Vec<_> = filing
            .steps
            .iter()
            .map(|step| (step.what.as_str(), step.publishes))
            .collect();
        assert_eq!(
            steps,
            [
                ("the creation of 'new'", true),
                ("the renaming of 'new' to 'log'", true),
                ("the creation of the folder 'sub'", false),
                ("the removal of 'log'", false),
                ("setting the size to 7", false),
            ]
        );
    }

    #[test]
    fn what_is_not_followed_is_said_and_no_step() {
        let mut filing = exact();
        assert!(!named(
            &mut filing,
            NameChange::Unlink,
            FileId(0),
            b"/d/pipe"
        ));
        assert!(!named(
            &mut filing,
            NameChange::RenameFolder,
            FileId(0),
            b"/old\0/new"
        ));
        let said: Vec<&str> = filing.unfollowed.iter().map(String::as_str).collect();
        assert_eq!(
            said,
            [
                "the removal of something that is not a file (/d/pipe)",
                "the renaming of a folder that was there before (/old)",
            ]
        );
        assert!(filing.steps.is_empty());
    }

    #[test]
    fn a_creation_may_be_lost_until_it_is_synchronised() {
        let mut filing = exact();
        filing.add(LOG, 0, true);
        named(&mut filing, NameChange::Create, LOG, b"/d/log");
        let name: Path = b"/d/log".as_slice().into();
        let there = |states: &[NameState]| -> Vec<bool> {
            states
                .iter()
                .map(|state| state.names[&name].is_some())
                .collect()
        };
        let States {
            list: states, all, ..
        } = filing.states(64);
        assert!(all);
        // The newest last.
        assert_eq!(there(&states), [false, true]);
        assert_eq!(filing.states(64).list, states);
        assert!(filing.completes(&Sync::All));
        filing.sync(&Sync::All);
        let states = filing.states(64).list;
        assert_eq!(there(&states), [true]);
    }

    #[test]
    fn a_run_on_what_a_crash_left_begins_with_it() {
        let mut filing = exact();
        let pool = filing.add(POOL, 4096, false);
        named(&mut filing, NameChange::Create, POOL, b"/d/pool");
        named(&mut filing, NameChange::Mkdir, FileId(0), b"/d/sub");
        named(
            &mut filing,
            NameChange::Symlink,
            FileId(0),
            b"/d/link\0pool",
        );
        let state = filing.states(64).list.pop().expect("the newest");
        let files = files_of(&state, filing.next());
        assert_eq!(files.names[b"/d/pool".as_slice()], Entry::File(pool));
        assert_eq!(files.names[b"/d/sub".as_slice()], Entry::Folder);
        assert_eq!(
            files.names[b"/d/link".as_slice()],
            Entry::Link(b"pool".to_vec())
        );

        let mut next = Filing::on(Some(Promise::Ordered), &files);
        assert_eq!(next.content(pool), Some(pool));
        assert_eq!(next.size(pool), Some(4096));
        assert_eq!(next.next(), filing.next());
        let states = next.states(64).list;
        assert_eq!(states.len(), 1);
        assert_eq!(files_of(&states[0], next.next()).names, files.names);
    }

    #[test]
    fn a_page_faults_once_for_each_mapping() {
        let mut filing = exact();
        assert!(filing.faults(POOL, 10));
        assert!(!filing.faults(POOL, PAGE - 1));
        assert!(filing.faults(POOL, PAGE) && filing.faults(LOG, 10));
        filing.mapped(POOL);
        assert!(filing.faults(POOL, 10) && !filing.faults(LOG, 10));
    }
}
