//! Which names and sizes of files a crash may leave.
//!
//! **Purpose.** [`Names`] follows what a run does to names (files, folders, symbolic links) and to
//! the sizes of files, and gives the [`NameState`]s that a crash may leave. What files hold is not
//! its business: a state says which *content* of a file is visible, and [`History`](crate::History)
//! says what that may be. A content begins when a file is made, and anew when it is cut short,
//! because what was there before comes back only if the cut is lost, and what is written afterwards
//! is there only if it is not.
//!
//! **Guarantee.** Exactly the states of the chosen [`Promise`], each once, unless there are more
//! than the caller wants; then it says so. A property test compares them with brute force over all
//! subsets of the operations.
//!
//! Every operation that is not yet certain *needs* some earlier ones. A crash keeps any set of
//! operations that holds, with each, those that it needs, and all that are certain. The two
//! promises differ in who needs whom, and in what a sync makes certain.
//!
//! **[`Promise::Ordered`]**, the default: what journalling file systems (ext4 with `data=ordered`,
//! XFS) do. Operations on names, and explicit changes of size (`ftruncate`, `fallocate`,
//! `O_TRUNC`), go to one journal in their order: each needs the one before. A file that grows by
//! `write` has its new size only when its data is written back (delayed allocation), which may be
//! long after a later renaming has become durable: such a growth needs only earlier changes of the
//! same file's size, and nothing needs it. That is the file of length zero that is found after a
//! crash where data was renamed into place without `fsync`. `fsync` of a file makes certain the
//! last operation on that file and all before it; `fdatasync` (and `msync`, and the first store to
//! a page of a mapping with `MAP_SYNC`) the last one that made it or changed its size. `fsync` of a
//! folder makes certain the last operation in that folder and all before it. ext4 commits its whole
//! journal instead, later operations on other files included; XFS only does what is said here, so
//! nothing more is promised.
//!
//! **[`Promise::Posix`]**: what the standard says and no more. Each operation may or may not have
//! happened. It needs only earlier ones on the same names, those that made the folders it is in,
//! and, of sizes, those on the same file. Names become certain by `fsync` of their folder alone,
//! sizes by `fsync` of the file alone. A renaming is still atomic.
//!
//! **Source.** `fsync(2)`, `rename(2)`, `open(2)`; the kernel's `fs/ext4/fsync.c`,
//! `fs/xfs/xfs_file.c`, `mm/msync.c`; Pillai et al., "All file systems are not created equal" (OSDI
//! 2014), from which the view as a partial order of operations comes.
//!
//! **Deviations.** 1. Contents of a file are independent of its size: bytes below the size whose
//! write is lost read as what was there before, or zero. 2. Owners, permissions, times and
//! attributes are not modelled. 3. Allocated space (`FALLOC_FL_KEEP_SIZE`) is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brownout_trace::event::FileId;

/// What a file system promises about names and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promise {
    /// One journal, in order.
    #[default]
    Ordered,
    /// Each operation by itself.
    Posix,
}

/// An absolute path.
pub type Path = Arc<[u8]>;

/// What a file holds from its creation, or from being cut short, on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(pub u32);

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A regular file.
    File(FileId),
    /// A folder.
    Folder,
    /// A symbolic link that says this.
    Link(Path),
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A name appeared: a file was made, linked, a folder or a symbolic link made.
    Put {
        /// The name.
        path: Path,
        /// What it stands for.
        node: Node,
        /// It is a new file, not one more name of an old one.
        is_new: bool,
    },
    /// A name went.
    Remove {
        /// The name.
        path: Path,
    },
    /// A name became another one, which may have stood for something else. A folder moves with all
    /// that is in it.
    Move {
        /// The old name.
        from: Path,
        /// The new name.
        to: Path,
    },
    /// Two names were exchanged.
    Swap {
        /// One.
        from: Path,
        /// The other.
        to: Path,
    },
    /// The size was set.
    Resize {
        /// Whose.
        file: FileId,
        /// What the file holds from now on; another content than before if it was cut short.
        content: Content,
        /// The new size.
        size: u64,
    },
    /// The file grew because something was written behind its end.
    Extend {
        /// Which.
        file: FileId,
        /// The new size.
        size: u64,
    },
}

/// A file as far as it is not its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// What it holds.
    pub content: Content,
    /// How many bytes of that.
    pub size: u64,
}

/// Names and sizes that a crash may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameState {
    /// Every name that the run has touched, and what it stands for; nothing if it is not there.
    pub names: BTreeMap<Path, Option<Node>>,
    /// The files that have a name.
    pub files: BTreeMap<FileId, Shape>,
    /// Operations that are lost, by the numbers that the caller gave them.
    pub lost: Vec<u32>,
}

/// What is made certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sync<'a> {
    /// `fsync` of a file.
    File(FileId),
    /// `fdatasync`, `msync`, a fault on a mapping with `MAP_SYNC`.
    Data(FileId),
    /// `fsync` of a folder.
    Folder(&'a [u8]),
    /// `sync`.
    All,
}

#[derive(Clone, Debug)]
struct Pending {
    /// The caller's number.
    number: u32,
    change: Change,
    certain: bool,
    /// Places in the list of those that it needs directly.
    needs: Vec<usize>,
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Names {
    promise: Promise,
    /// What is certain.
    base: Tree,
    pending: Vec<Pending>,
    /// With everything that happened.
    now: Tree,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    names: BTreeMap<Path, Option<Node>>,
    files: BTreeMap<FileId, Shape>,
}

fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end.max(1).min(path.len())]
}

/// Whether a path lies below a folder.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl Tree {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { path, node, .. } => {
                self.names.insert(path.clone(), Some(node.clone()));
            }
            Change::Remove { path } => {
                self.names.insert(path.clone(), None);
            }
            Change::Move { from, to } => {
                let node = self.names.insert(from.clone(), None).flatten();
                let is_folder = node == Some(Node::Folder);
                self.names.insert(to.clone(), node);
                if is_folder {
                    let below: Vec<Path> = self
                        .names
                        .range(from.clone()..)
                        .map(|(path, _)| path.clone())
                        .filter(|path| is_below(path, from))
                        .collect();
                    for path in below {
                        let node = self.names.insert(path.clone(), None).flatten();
                        let mut moved = to.to_vec();
                        moved.extend_from_slice(&path[from.len()..]);
                        self.names.insert(moved.into(), node);
                    }
                }
            }
            Change::Swap { from, to } => {
                let one = self.names.get(from).cloned().flatten();
                let two = self.names.insert(to.clone(), one).flatten();
                self.names.insert(from.clone(), two);
            }
            Change::Resize {
                file,
                content,
                size,
            } => {
                let shape = Shape {
                    content: *content,
                    size: *size,
                };
                self.files.insert(*file, shape);
            }
            Change::Extend { file, size } => {
                let shape = self.files.entry(*file).or_default();
                shape.size = shape.size.max(*size);
            }
        }
    }
}

impl Change {
    /// The names that it changes.
    fn names(&self) -> impl Iterator<Item = &Path> {
        let (one, two) = match self {
            Change::Put { path, .. } | Change::Remove { path } => (Some(path), None),
            Change::Move { from, to } | Change::Swap { from, to } => (Some(from), Some(to)),
            Change::Resize { .. } | Change::Extend { .. } => (None, None),
        };
        one.into_iter().chain(two)
    }

    /// The file whose size it changes.
    fn sized(&self) -> Option<FileId> {
        match self {
            Change::Resize { file, .. } | Change::Extend { file, .. } => Some(*file),
            _ => None,
        }
    }

    fn is_extend(&self) -> bool {
        matches!(self, Change::Extend { .. })
    }
}

impl Names {
    /// Nothing has happened, and nothing is known to be there.
    pub fn new(promise: Promise) -> Names {
        Names {
            promise,
            base: Tree::default(),
            pending: Vec::new(),
            now: Tree::default(),
        }
    }

    /// Begins with a state that a crash has left.
    pub fn on(promise: Promise, state: &NameState) -> Names {
        let tree = Tree {
            names: state.names.clone(),
            files: state.files.clone(),
        };
        Names {
            promise,
            base: tree.clone(),
            pending: Vec::new(),
            now: tree,
        }
    }

    /// Says what a name has stood for since before the run, if nothing has been said of it yet.
    pub fn found(&mut self, path: &[u8], node: Option<Node>) {
        if !self.now.names.contains_key(path) {
            let path: Path = path.into();
            self.base.names.insert(path.clone(), node.clone());
            self.now.names.insert(path, node);
        }
    }

    /// Says what a file has been since before the run, or since it was made.
    pub fn known(&mut self, file: FileId, shape: Shape) {
        self.base.files.insert(file, shape);
        self.now.files.insert(file, shape);
    }

    /// A content gets another number.
    pub fn renumber(&mut self, old: Content, new: Content) {
        let files = self
            .base
            .files
            .values_mut()
            .chain(self.now.files.values_mut());
        for shape in files.filter(|shape| shape.content == old) {
            shape.content = new;
        }
        for pending in &mut self.pending {
            if let Change::Resize { content, .. } = &mut pending.change
                && *content == old
            {
                *content = new;
            }
        }
    }

    /// What a name stands for now.
    pub fn node(&self, path: &[u8]) -> Option<&Node> {
        self.now.names.get(path)?.as_ref()
    }

    /// Whether anything is known of a name, be it that nothing has it.
    pub fn knows(&self, path: &[u8]) -> bool {
        self.now.names.contains_key(path)
    }

    /// Names in or below a folder.
    pub fn below(&self, folder: &[u8]) -> usize {
        let names = self.now.names.iter();
        names
            .filter(|(path, node)| node.is_some() && is_below(path, folder))
            .count()
    }

    /// What a file is now.
    pub fn shape(&self, file: FileId) -> Option<Shape> {
        self.now.files.get(&file).copied()
    }

    /// Whether anything is uncertain.
    pub fn is_uncertain(&self) -> bool {
        self.pending.iter().any(|pending| !pending.certain)
    }

    /// Takes the next operation. `number` stands for it in [`NameState::lost`].
    pub fn apply(&mut self, number: u32, change: Change) {
        self.now.apply(&change);
        let needs = self.needs(&change);
        self.pending.push(Pending {
            number,
            change,
            certain: false,
            needs,
        });
    }

    fn needs(&self, change: &Change) -> Vec<usize> {
        let mut needs = Vec::new();
        let earlier = || self.pending.iter().enumerate().rev();
        if let Some(file) = change.sized() {
            // Of sizes, the last; an explicit one is valid whatever the file grew to before.
            let explicit = matches!(change, Change::Resize { .. });
            needs.extend(
                earlier()
                    .find(|(_, p)| {
                        p.change.sized() == Some(file) && !(explicit && p.change.is_extend())
                    })
                    .map(|(at, _)| at),
            );
        }
        match (self.promise, change.is_extend()) {
            (_, true) => {}
            (Promise::Ordered, false) => {
                let before = earlier().find(|(_, p)| !p.change.is_extend());
                needs.extend(before.map(|(at, _)| at));
            }
            (Promise::Posix, false) => {
                for (at, pending) in earlier() {
                    let touches = |name: &Path| {
                        change
                            .names()
                            .any(|own| own == name || is_below(own, name) || is_below(name, own))
                    };
                    if pending.change.names().any(touches) {
                        needs.push(at);
                    }
                }
            }
        }
        needs
    }

    /// The operations that a sync makes certain, and all that they need.
    fn covered(&self, sync: &Sync<'_>) -> BTreeSet<usize> {
        let is_of = |pending: &Pending, file: FileId| match &pending.change {
            Change::Put { node, .. } => *node == Node::File(file),
            Change::Resize { file: other, .. } | Change::Extend { file: other, .. } => {
                *other == file
            }
            _ => false,
        };
        // What a name stood for when it was removed or moved.
        let mut tree = self.base.clone();
        let mut chosen = BTreeSet::new();
        for (at, pending) in self.pending.iter().enumerate() {
            let moved: Vec<Option<Node>> = pending
                .change
                .names()
                .map(|name| tree.names.get(name).cloned().flatten())
                .collect();
            tree.apply(&pending.change);
            let is_name = pending.change.sized().is_none();
            let covers = match (sync, self.promise) {
                (Sync::All, _) => true,
                (Sync::File(file), Promise::Ordered) => {
                    is_of(pending, *file) || moved.contains(&Some(Node::File(*file)))
                }
                (Sync::Data(file), Promise::Ordered) => {
                    let is_link = matches!(pending.change, Change::Put { is_new: false, .. });
                    is_of(pending, *file) && !is_link
                }
                (Sync::File(file) | Sync::Data(file), Promise::Posix) => {
                    pending.change.sized() == Some(*file)
                }
                (Sync::Folder(folder), promise) => {
                    let mut names = pending.change.names();
                    let is_itself = promise == Promise::Ordered;
                    is_name
                        && names.any(|name| {
                            parent(name) == *folder || is_itself && &name[..] == *folder
                        })
                }
            };
            if covers {
                chosen.insert(at);
            }
        }
        let mut open: Vec<usize> = chosen.iter().copied().collect();
        while let Some(at) = open.pop() {
            for need in &self.pending[at].needs {
                if chosen.insert(*need) {
                    open.push(*need);
                }
            }
        }
        chosen
    }

    /// Whether a sync would make something certain that is not: the moment before it is worth a
    /// crash.
    pub fn completes(&self, sync: &Sync<'_>) -> bool {
        self.is_uncertain()
            && self
                .covered(sync)
                .iter()
                .any(|at| !self.pending[*at].certain)
    }

    /// A sync has succeeded.
    pub fn sync(&mut self, sync: &Sync<'_>) {
        if self.pending.is_empty() {
            return;
        }
        for at in self.covered(sync) {
            self.pending[at].certain = true;
        }
        let done = self.pending.iter().take_while(|p| p.certain).count();
        for pending in self.pending.drain(..done) {
            self.base.apply(&pending.change);
        }
        for pending in &mut self.pending {
            pending
                .needs
                .retain_mut(|need| match need.checked_sub(done) {
                    Some(left) => {
                        *need = left;
                        true
                    }
                    None => false,
                });
        }
    }

    /// Everything has survived.
    pub fn newest(&self) -> NameState {
        self.state(&vec![true; self.pending.len()])
    }

    /// Only what is certain has survived.
    pub fn oldest(&self) -> NameState {
        let certain: Vec<bool> = self.pending.iter().map(|p| p.certain).collect();
        self.state(&certain)
    }

    /// The states that a crash may leave, the newest first, and whether these are all. At most
    /// about `max`.
    pub fn states(&self, max: usize) -> (Vec<NameState>, bool) {
        let mut found = Found::default();
        let n = self.pending.len();
        let certain: Vec<bool> = self.pending.iter().map(|p| p.certain).collect();
        found.add(self.newest());
        // If there are too many: those that are more telling than others.
        let mut spread = vec![certain.clone()];
        for cut in 0..n {
            let early = (0..n).map(|at| at < cut || certain[at]).collect();
            spread.push(self.closed(early));
            let without = (0..n).map(|at| at != cut || certain[at]).collect();
            spread.push(self.closed(without));
        }
        let mut kept = vec![true; n];
        let mut tries = max.saturating_mul(16).max(4096);
        let all = self.each(0, &mut kept, &mut tries, &mut |kept| {
            found.add(self.state(kept));
            found.list.len() <= max
        });
        if all {
            return (found.list, true);
        }
        let mut found = Found::default();
        found.add(self.newest());
        let step = spread.len().div_ceil(max.max(2) - 1).max(1);
        for kept in spread.iter().step_by(step) {
            found.add(self.state(kept));
        }
        (found.list, false)
    }

    /// Without what lacks something that it needs.
    fn closed(&self, mut kept: Vec<bool>) -> Vec<bool> {
        for (at, pending) in self.pending.iter().enumerate() {
            kept[at] &= pending.needs.iter().all(|need| kept[*need]);
        }
        kept
    }

    /// Calls `each` with every legal set; false if it, or the number of tries, has ended that.
    fn each(
        &self,
        at: usize,
        kept: &mut Vec<bool>,
        tries: &mut usize,
        each: &mut impl FnMut(&[bool]) -> bool,
    ) -> bool {
        let Some(pending) = self.pending.get(at) else {
            *tries = tries.saturating_sub(1);
            return *tries > 0 && each(kept);
        };
        let possible = pending.needs.iter().all(|need| kept[*need]);
        for choice in [true, false] {
            if choice && !possible || !choice && pending.certain {
                continue;
            }
            kept[at] = choice;
            if !self.each(at + 1, kept, tries, each) {
                return false;
            }
        }
        true
    }

    fn state(&self, kept: &[bool]) -> NameState {
        let mut tree = self.base.clone();
        let mut lost = Vec::new();
        for (pending, kept) in self.pending.iter().zip(kept) {
            match kept {
                true => tree.apply(&pending.change),
                false => lost.push(pending.number),
            }
        }
        // Names that come later are not there yet.
        for path in self.now.names.keys() {
            tree.names.entry(path.clone()).or_insert(None);
        }
        let named: BTreeSet<FileId> = tree
            .names
            .values()
            .filter_map(|node| match node {
                Some(Node::File(file)) => Some(*file),
                _ => None,
            })
            .collect();
        tree.files.retain(|file, _| named.contains(file));
        NameState {
            names: tree.names,
            files: tree.files,
            lost,
        }
    }
}

/// What recovery can tell two states apart by.
type Looks = (BTreeMap<Path, Option<Node>>, BTreeMap<FileId, Shape>);

/// States, each once: of two that look alike, the one that has lost less.
#[derive(Default)]
struct Found {
    list: Vec<NameState>,
    seen: BTreeMap<Looks, usize>,
}

impl Found {
    fn add(&mut self, state: NameState) {
        let key = (state.names.clone(), state.files.clone());
        match self.seen.get(&key) {
            Some(&at) if self.list[at].lost.len() <= state.lost.len() => {}
            Some(&at) => self.list[at] = state,
            None => {
                self.seen.insert(key, self.list.len());
                self.list.push(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> Path {
        text.as_bytes().into()
    }

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn create(name: &str, file: FileId) -> Change {
        Change::Put {
            path: path(name),
            node: Node::File(file),
            is_new: true,
        }
    }

    fn rename(from: &str, to: &str) -> Change {
        Change::Move {
            from: path(from),
            to: path(to),
        }
    }

    fn extend(file: FileId, size: u64) -> Change {
        Change::Extend { file, size }
    }

    /// `/d/a=1:5` for a name, its file and that file's size; a folder as `/d/`, a link as `/s->t`.
    fn show(state: &NameState) -> String {
        let mut words = Vec::new();
        for (path, node) in &state.names {
            let path = String::from_utf8_lossy(path);
            match node {
                None => {}
                Some(Node::Folder) => words.push(format!("{path}/")),
                Some(Node::Link(to)) => {
                    words.push(format!("{path}->{}", String::from_utf8_lossy(to)))
                }
                Some(Node::File(file)) => {
                    let shape = state.files[file];
                    let content = match shape.content {
                        Content(0) => String::new(),
                        Content(n) => format!("#{n}"),
                    };
                    words.push(format!("{path}={}{content}", shape.size));
                }
            }
        }
        words.join(" ")
    }

    fn shown(names: &Names) -> BTreeSet<String> {
        shown_by(names, show)
    }

    fn shown_by(names: &Names, show: impl Fn(&NameState) -> String) -> BTreeSet<String> {
        let (states, all) = names.states(10_000);
        assert!(all);
        let shown: BTreeSet<String> = states.iter().map(show).collect();
        assert_eq!(shown.len(), states.len(), "no state twice");
        shown
    }

    /// With the numbers of the files.
    fn exactly(state: &NameState) -> String {
        let names = state.names.iter().filter(|(_, node)| node.is_some());
        format!("{} {:?}", show(state), names.collect::<Vec<_>>())
    }

    fn set(states: &[&str]) -> BTreeSet<String> {
        states.iter().map(|state| (*state).to_owned()).collect()
    }

    /// A new file of ten bytes is renamed over an old one of five.
    fn publish(promise: Promise, sync_file: bool, sync_folder: bool) -> Names {
        let mut names = Names::new(promise);
        names.found(b"/d/a", Some(Node::File(A)));
        let size = |size| Shape {
            content: Content(0),
            size,
        };
        names.known(A, size(5));
        names.found(b"/d/a.new", None);
        names.known(B, size(0));
        names.apply(1, create("/d/a.new", B));
        names.apply(2, extend(B, 10));
        if sync_file {
            names.sync(&Sync::File(B));
        }
        names.apply(3, rename("/d/a.new", "/d/a"));
        if sync_folder {
            names.sync(&Sync::Folder(b"/d"));
        }
        names
    }

    #[test]
    fn a_renamed_file_is_empty_if_its_data_was_not_synced() {
        let ordered = |file, folder| shown(&publish(Promise::Ordered, file, folder));
        assert_eq!(
            ordered(false, false),
            set(&[
                "/d/a=5",
                "/d/a=5 /d/a.new=0",
                "/d/a=5 /d/a.new=10",
                "/d/a=0",
                "/d/a=10"
            ])
        );
        assert_eq!(
            ordered(true, false),
            set(&["/d/a=5 /d/a.new=10", "/d/a=10"])
        );
        assert_eq!(ordered(false, true), set(&["/d/a=0", "/d/a=10"]));
        assert_eq!(ordered(true, true), set(&["/d/a=10"]));
    }

    /// By the letter, `fsync` of a file says nothing of its name.
    #[test]
    fn posix_promises_names_by_their_folder_only() {
        let posix = |file, folder| shown(&publish(Promise::Posix, file, folder));
        assert_eq!(
            posix(true, false),
            set(&["/d/a=5", "/d/a=5 /d/a.new=10", "/d/a=10"])
        );
        assert_eq!(posix(true, true), set(&["/d/a=10"]));
        assert_eq!(posix(false, true), set(&["/d/a=0", "/d/a=10"]));
        // Two files, in any order.
        let both = |promise| {
            let mut names = Names::new(promise);
            names.known(A, Shape::default());
            names.known(B, Shape::default());
            names.apply(1, create("/a", A));
            names.apply(2, create("/b", B));
            shown(&names)
        };
        assert_eq!(both(Promise::Ordered), set(&["", "/a=0", "/a=0 /b=0"]));
        assert_eq!(
            both(Promise::Posix),
            set(&["", "/a=0", "/b=0", "/a=0 /b=0"])
        );
    }

    #[test]
    fn what_was_cut_off_comes_back_only_if_the_cut_is_lost() {
        let mut names = Names::new(Promise::Ordered);
        names.found(b"/a", Some(Node::File(A)));
        names.known(
            A,
            Shape {
                content: Content(0),
                size: 5,
            },
        );
        let cut = Change::Resize {
            file: A,
            content: Content(7),
            size: 0,
        };
        names.apply(1, cut);
        names.apply(2, extend(A, 3));
        names.apply(3, extend(A, 6));
        assert_eq!(shown(&names), set(&["/a=5", "/a=0#7", "/a=3#7", "/a=6#7"]));
        names.sync(&Sync::Data(A));
        assert_eq!(shown(&names), set(&["/a=6#7"]));
    }

    #[test]
    fn folders_move_with_what_they_hold() {
        for promise in [Promise::Ordered, Promise::Posix] {
            let mut names = Names::new(promise);
            names.known(A, Shape::default());
            let folder = Change::Put {
                path: path("/d"),
                node: Node::Folder,
                is_new: true,
            };
            names.apply(1, folder);
            names.apply(2, create("/d/a", A));
            names.apply(3, rename("/d", "/e"));
            assert_eq!(
                shown(&names),
                set(&["", "/d/", "/d/ /d/a=0", "/e/ /e/a=0"]),
                "{promise:?}"
            );
            assert_eq!(names.below(b"/e"), 1);
            names.sync(&Sync::Folder(b"/"));
            assert_eq!(shown(&names), set(&["/e/ /e/a=0"]));
        }
    }

    #[test]
    fn a_sync_reaches_as_far_as_the_last_operation_on_its_file() {
        let two = |sync: Sync<'_>| {
            let mut names = Names::new(Promise::Ordered);
            for file in [A, B] {
                names.known(file, Shape::default());
            }
            names.apply(1, create("/d/a", A));
            names.apply(2, create("/e/b", B));
            names.apply(3, rename("/d/a", "/d/c"));
            assert!(names.completes(&sync));
            names.sync(&sync);
            shown(&names)
        };
        assert_eq!(two(Sync::File(A)), set(&["/d/c=0 /e/b=0"]));
        assert_eq!(
            two(Sync::Data(A)),
            set(&["/d/a=0", "/d/a=0 /e/b=0", "/d/c=0 /e/b=0"])
        );
        assert_eq!(two(Sync::File(B)), set(&["/d/a=0 /e/b=0", "/d/c=0 /e/b=0"]));
        assert_eq!(two(Sync::Folder(b"/e")), two(Sync::File(B)));
        assert_eq!(two(Sync::All), set(&["/d/c=0 /e/b=0"]));
    }

    #[test]
    fn too_many_states_are_said_to_be() {
        let mut names = Names::new(Promise::Posix);
        for n in 0..40u32 {
            names.known(FileId(n), Shape::default());
            names.apply(n, create(&format!("/f{n}"), FileId(n)));
        }
        let (states, all) = names.states(50);
        assert!(!all);
        assert!(states.len() > 20 && states.len() <= 51, "{}", states.len());
        assert!(states[0].lost.is_empty(), "the newest comes first");
        assert!(states.iter().any(|state| state.lost.len() == 40));
    }

    /// What a generated program does.
    #[derive(Clone, Debug)]
    enum Did {
        Create(usize),
        Remove(usize),
        Rename(usize, usize),
        Swap(usize, usize),
        Cut(usize),
        Grow(usize, u64),
        Extend(usize, u64),
        SyncFile(usize),
        SyncData(usize),
        SyncFolder(bool),
    }

    const NAMES: [&str; 5] = ["/d/a", "/d/b", "/d/c", "/e/a", "/e/b"];

    fn did() -> impl Strategy<Value = Did> {
        let name = || 0..NAMES.len();
        prop_oneof![
            4 => name().prop_map(Did::Create),
            2 => name().prop_map(Did::Remove),
            4 => (name(), name()).prop_map(|(a, b)| Did::Rename(a, b)),
            1 => (name(), name()).prop_map(|(a, b)| Did::Swap(a, b)),
            2 => name().prop_map(Did::Cut),
            1 => (name(), 1u64..4).prop_map(|(a, n)| Did::Grow(a, n)),
            3 => (name(), 1u64..4).prop_map(|(a, n)| Did::Extend(a, n)),
            1 => name().prop_map(Did::SyncFile),
            1 => name().prop_map(Did::SyncData),
            1 => any::<bool>().prop_map(Did::SyncFolder),
        ]
    }

    /// An operation as the reference sees it.
    struct Done {
        change: Change,
        /// The files that it concerns, by name or by size.
        files: Vec<FileId>,
        forced: bool,
    }

    /// All legal sets, by the words of the header and not by the code above.
    fn legal(promise: Promise, done: &[Done], kept: u32) -> bool {
        let has = |at: usize| kept >> at & 1 != 0;
        for (at, op) in done.iter().enumerate() {
            if op.forced && !has(at) {
                return false;
            }
            if !has(at) {
                continue;
            }
            for (before, other) in done[..at].iter().enumerate() {
                if has(before) {
                    continue;
                }
                let same_size = match (op.change.sized(), other.change.sized()) {
                    (Some(one), Some(two)) if one == two => {
                        // A size that is set is valid without what the file grew to before.
                        op.change.is_extend() || !other.change.is_extend()
                    }
                    _ => false,
                };
                let journal = promise == Promise::Ordered
                    && !op.change.is_extend()
                    && !other.change.is_extend();
                let own: Vec<&Path> = op.change.names().collect();
                let same_name = other.change.names().any(|name| own.contains(&name));
                if same_size || journal || same_name && promise == Promise::Posix {
                    return false;
                }
            }
        }
        true
    }

    /// Forces what a sync covers; what that needs follows from [`legal`] once nothing else is
    /// legal.
    fn force(promise: Promise, done: &mut [Done], covers: impl Fn(&Done) -> bool) {
        let chosen: Vec<bool> = done.iter().map(covers).collect();
        for (at, chosen) in chosen.into_iter().enumerate() {
            done[at].forced |= chosen;
        }
        // An operation is forced, too, if no legal set that has the forced ones lacks it.
        let n = done.len();
        let mut always = u32::MAX;
        for kept in 0..1u32 << n {
            if legal(promise, done, kept) {
                always &= kept;
            }
        }
        for (at, op) in done.iter_mut().enumerate() {
            op.forced |= always >> at & 1 != 0;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn states_are_those_of_brute_force(steps in prop::collection::vec(did(), 1..9), posix in any::<bool>()) {
            let promise = if posix { Promise::Posix } else { Promise::Ordered };
            let mut names = Names::new(promise);
            let mut done: Vec<Done> = Vec::new();
            let mut tree = Tree::default();
            for (name, file) in [("/d/a", A), ("/e/a", B)] {
                names.found(name.as_bytes(), Some(Node::File(file)));
                let shape = Shape { content: Content(0), size: 2 };
                names.known(file, shape);
                tree.names.insert(path(name), Some(Node::File(file)));
                tree.files.insert(file, shape);
            }
            let start = tree.clone();
            let mut start_files = start.files.clone();
            let mut next = 3;
            for (number, step) in (0..).zip(&steps) {
                let file_at = |tree: &Tree, name: &usize| match tree.names.get(NAMES[*name].as_bytes()) {
                    Some(Some(Node::File(file))) => Some(*file),
                    _ => None,
                };
                let (change, files) = match step {
                    Did::Create(name) => {
                        if file_at(&tree, name).is_some() { continue }
                        let file = FileId(next);
                        next += 1;
                        names.known(file, Shape::default());
                        tree.files.insert(file, Shape::default());
                        start_files.insert(file, Shape::default());
                        (create(NAMES[*name], file), vec![file])
                    }
                    Did::Remove(name) => {
                        let Some(file) = file_at(&tree, name) else { continue };
                        (Change::Remove { path: path(NAMES[*name]) }, vec![file])
                    }
                    Did::Rename(one, two) => {
                        let Some(file) = file_at(&tree, one) else { continue };
                        if one == two { continue }
                        let mut files = vec![file];
                        files.extend(file_at(&tree, two));
                        (rename(NAMES[*one], NAMES[*two]), files)
                    }
                    Did::Swap(one, two) => {
                        let (Some(a), Some(b)) = (file_at(&tree, one), file_at(&tree, two)) else { continue };
                        if one == two { continue }
                        (Change::Swap { from: path(NAMES[*one]), to: path(NAMES[*two]) }, vec![a, b])
                    }
                    Did::Cut(name) => {
                        let Some(file) = file_at(&tree, name) else { continue };
                        next += 1;
                        (Change::Resize { file, content: Content(next), size: 0 }, vec![file])
                    }
                    Did::Grow(name, more) => {
                        let Some(file) = file_at(&tree, name) else { continue };
                        let Shape { content, size } = tree.files[&file];
                        (Change::Resize { file, content, size: size + more }, vec![file])
                    }
                    Did::Extend(name, more) => {
                        let Some(file) = file_at(&tree, name) else { continue };
                        (extend(file, tree.files[&file].size + more), vec![file])
                    }
                    Did::SyncFile(name) | Did::SyncData(name) => {
                        let Some(file) = file_at(&tree, name) else { continue };
                        let data = matches!(step, Did::SyncData(_));
                        names.sync(&if data { Sync::Data(file) } else { Sync::File(file) });
                        force(promise, &mut done, |op| {
                            let is_size = op.change.sized() == Some(file);
                            let is_new = matches!(&op.change, Change::Put { node, is_new: true, .. } if *node == Node::File(file));
                            match (promise, data) {
                                (Promise::Posix, _) => is_size,
                                (Promise::Ordered, true) => is_size || is_new,
                                (Promise::Ordered, false) => op.files.contains(&file),
                            }
                        });
                        continue;
                    }
                    Did::SyncFolder(first) => {
                        let folder = if *first { "/d" } else { "/e" };
                        names.sync(&Sync::Folder(folder.as_bytes()));
                        force(promise, &mut done, |op| {
                            op.change.names().any(|name| name.starts_with(folder.as_bytes()))
                        });
                        continue;
                    }
                };
                tree.apply(&change);
                names.apply(number, change.clone());
                done.push(Done { change, files, forced: false });
            }
            let mut expected = BTreeSet::new();
            for kept in 0..1u32 << done.len() {
                if !legal(promise, &done, kept) {
                    continue;
                }
                let mut state = Tree { names: start.names.clone(), files: start_files.clone() };
                for (at, op) in done.iter().enumerate() {
                    if kept >> at & 1 != 0 {
                        state.apply(&op.change);
                    }
                }
                expected.insert(exactly(&NameState { names: state.names, files: state.files, lost: Vec::new() }));
            }
            prop_assert_eq!(shown_by(&names, exactly), expected);
        }
    }
}
