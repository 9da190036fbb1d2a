//! Trees of files as plain data, and folders to lay them in.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brownout_images::{Content, Contents, PAGE_LEN, Special};
use brownout_random::Random;

/// Folders of a test; they go with it.
pub struct Workspace {
    _folder: tempfile::TempDir,
    pub store: PathBuf,
    pub machine: PathBuf,
    pub view: PathBuf,
}

impl Workspace {
    pub fn new() -> Workspace {
        let folder = tempfile::tempdir().unwrap();
        let [store, machine, view] = ["store", "machine", "view"].map(|name| {
            let path = folder.path().join(name);
            if name != "store" {
                fs::create_dir(&path).unwrap();
            }
            path
        });
        Workspace {
            _folder: folder,
            store,
            machine,
            view,
        }
    }

    /// Where a program's path leads in the view, and on the machine.
    pub fn paths(
        &self,
    ) -> (
        impl Fn(&Path) -> PathBuf + '_,
        impl Fn(&Path) -> PathBuf + '_,
    ) {
        (
            |path: &Path| under(&self.view, path),
            |path: &Path| under(&self.machine, path),
        )
    }
}

fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap())
}

#[derive(Clone, Debug, PartialEq)]
pub enum Thing {
    Folder(u32),
    Link(PathBuf),
    File(u32, Vec<u8>),
    Special(Special, u32),
}

/// Everything that a view shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree(pub BTreeMap<PathBuf, Thing>);

impl Tree {
    pub fn random(random: &mut Random, changes: u64) -> Tree {
        let mut tree = Tree::default();
        for _ in 0..changes {
            tree.change(random);
        }
        tree
    }

    /// The same, with files that can be read.
    pub fn readable(mut self) -> Tree {
        for thing in self.0.values_mut() {
            if let Thing::File(mode, _) = thing {
                *mode |= 0o400;
            }
        }
        self
    }

    /// Does something to it that a program might do.
    pub fn change(&mut self, random: &mut Random) {
        let paths: Vec<PathBuf> = self.0.keys().cloned().collect();
        let mode = [0o644, 0o600, 0o755, 0o444, 0o700, 0o000][random.index(6)];
        if paths.is_empty() || random.percent(30) {
            // Something new, perhaps where something was.
            let folders = paths
                .iter()
                .filter(|path| matches!(self.0[*path], Thing::Folder(_)));
            let mut folders: Vec<&Path> = folders.map(PathBuf::as_path).collect();
            folders.push(Path::new("/"));
            let name = ["a", "b", "c", "a-b", "a.b"][random.index(5)];
            let path = folders[random.index(folders.len())].join(name);
            let thing = match random.below(10) {
                0..3 => Thing::Folder(mode | 0o500),
                3 => Thing::Link(["b", "/c/d", "nowhere"][random.index(3)].into()),
                4 => Thing::Special(Special::Fifo, mode),
                5 => Thing::Special(Special::Socket, mode),
                _ => {
                    let mut data = vec![0; random.index(9 * PAGE_LEN)];
                    for _ in 0..random.below(6) {
                        scribble(&mut data, random);
                    }
                    Thing::File(mode, data)
                }
            };
            let is_folder = matches!(thing, Thing::Folder(_));
            let stays = is_folder && matches!(self.0.get(&path), Some(Thing::Folder(_)));
            if !stays {
                self.0.retain(|other, _| !other.starts_with(&path));
            }
            self.0.insert(path, thing);
            return;
        }
        let path = &paths[random.index(paths.len())];
        if random.percent(12) {
            self.0.retain(|other, _| !other.starts_with(path));
            return;
        }
        match self.0.get_mut(path) {
            Some(Thing::File(own_mode, data)) => match random.below(6) {
                0 => *own_mode = mode,
                1 => data.truncate(random.index(data.len() + 1)),
                2 => data.resize(data.len() + random.index(70 * PAGE_LEN), 0),
                3 => {
                    // A page, or more, of zeros.
                    let start = random.index(data.len() + 1) / PAGE_LEN * PAGE_LEN;
                    let end = data.len().min(start + (1 + random.index(3)) * PAGE_LEN);
                    data[start..end].fill(0);
                }
                _ => (0..=random.below(5)).for_each(|_| scribble(data, random)),
            },
            Some(Thing::Folder(own)) => *own = mode | 0o500,
            Some(Thing::Special(_, own)) => *own = mode,
            Some(Thing::Link(to)) => to.push("further"),
            None => {}
        }
    }

    pub fn write(&self, root: &Path) {
        for (path, thing) in &self.0 {
            let at = under(root, path);
            match thing {
                Thing::Folder(_) => fs::create_dir(&at).unwrap(),
                Thing::Link(to) => std::os::unix::fs::symlink(to, &at).unwrap(),
                Thing::File(mode, data) => {
                    fs::write(&at, data).unwrap();
                    fs::set_permissions(&at, Permissions::from_mode(*mode)).unwrap();
                }
                Thing::Special(kind, mode) => {
                    make(&at, *kind);
                    fs::set_permissions(&at, Permissions::from_mode(*mode)).unwrap();
                }
            }
        }
        for (path, thing) in self.0.iter().rev() {
            if let Thing::Folder(mode) = thing {
                fs::set_permissions(under(root, path), Permissions::from_mode(*mode)).unwrap();
            }
        }
    }

    pub fn read(root: &Path) -> Tree {
        let mut tree = Tree::default();
        let mut left = vec![PathBuf::from("/")];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(under(root, &folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                let meta = entry.metadata().unwrap();
                let mode = meta.mode() & 0o7777;
                let thing = if meta.is_dir() {
                    left.push(path.clone());
                    Thing::Folder(mode)
                } else if meta.is_symlink() {
                    Thing::Link(fs::read_link(entry.path()).unwrap())
                } else if meta.file_type().is_fifo() {
                    Thing::Special(Special::Fifo, mode)
                } else if meta.file_type().is_socket() {
                    Thing::Special(Special::Socket, mode)
                } else {
                    Thing::File(mode, read(&entry.path(), mode))
                };
                tree.0.insert(path, thing);
            }
        }
        tree
    }

    /// Panics with what differs, rather than with all there is.
    pub fn compare(&self, expected: &Tree) {
        let paths: BTreeSet<&PathBuf> = self.0.keys().chain(expected.0.keys()).collect();
        for path in paths {
            let (found, wanted) = (self.0.get(path), expected.0.get(path));
            if found == wanted {
                continue;
            }
            if let (Some(Thing::File(mode, data)), Some(Thing::File(wanted_mode, wanted))) =
                (found, wanted)
            {
                let at = data.iter().zip(wanted).position(|(a, b)| a != b);
                panic!(
                    "{}: mode {mode:o} and not {wanted_mode:o}, {} bytes and not {}, differs at {at:?}",
                    path.display(),
                    data.len(),
                    wanted.len()
                );
            }
            panic!("{}: {found:?} and not {wanted:?}", path.display());
        }
    }

    /// The paths at which it differs from what the machine has.
    pub fn changed_paths(&self, machine: &Tree) -> Vec<PathBuf> {
        let paths = self.0.keys().chain(machine.0.keys());
        let paths: BTreeSet<&PathBuf> = paths.collect();
        let differing = paths
            .into_iter()
            .filter(|path| self.0.get(*path) != machine.0.get(*path));
        differing.cloned().collect()
    }

    /// What an image of it has, where it differs from the machine; `None` is `Removed`.
    fn entries(&self, machine: &Tree) -> BTreeMap<PathBuf, Option<Thing>> {
        let mut entries = BTreeMap::new();
        for path in self.changed_paths(machine) {
            let thing = self.0.get(&path).cloned();
            let parent = path.parent().unwrap();
            let in_folder =
                parent == Path::new("/") || matches!(self.0.get(parent), Some(Thing::Folder(_)));
            if thing.is_some() || in_folder {
                entries.insert(path, thing);
            }
        }
        entries
    }

    /// All of it.
    pub fn contents(&self, machine: &Tree) -> Contents {
        let entries = self.entries(machine).into_iter();
        Contents::whole(entries.map(|(path, thing)| (path, whole(thing.as_ref()))))
    }

    /// What has changed, and a little that has not.
    pub fn changes_since(&self, before: &Tree, machine: &Tree, random: &mut Random) -> Contents {
        let (was, is) = (before.entries(machine), self.entries(machine));
        let mut changes = BTreeMap::new();
        for path in was.keys().filter(|path| !is.contains_key(*path)) {
            changes.insert(path.clone(), Content::AsOnMachine);
        }
        for (path, thing) in &is {
            let old = was.get(path);
            if old == Some(thing) && random.percent(80) {
                continue;
            }
            let content = match (old, thing) {
                (Some(Some(Thing::File(_, old))), Some(Thing::File(mode, data))) => {
                    let pages = pages(data);
                    let pages = pages.enumerate().filter_map(|(number, page)| {
                        // What is cut off or grows is known by the length.
                        let start = number * PAGE_LEN;
                        let was = old.get(start..).unwrap_or_default();
                        let len = was.len().min(PAGE_LEN).min(data.len() - start);
                        let mut same = [0; PAGE_LEN];
                        same[..len].copy_from_slice(&was[..len]);
                        (same != *page || random.percent(10)).then_some((number as u64, page))
                    });
                    let mut pages: Vec<_> = pages.collect();
                    if random.percent(30) {
                        pages.reverse();
                    }
                    let (mode, len) = (*mode, data.len() as u64);
                    Content::Pages { mode, len, pages }
                }
                (_, thing) => whole(thing.as_ref()),
            };
            changes.insert(path.clone(), content);
        }
        Contents::changes(changes)
    }
}

fn whole(thing: Option<&Thing>) -> Content {
    match thing {
        None => Content::Removed,
        Some(Thing::Folder(mode)) => Content::Folder { mode: *mode },
        Some(Thing::Link(to)) => Content::Link(to.clone()),
        Some(Thing::Special(kind, mode)) => Content::Special {
            kind: *kind,
            mode: *mode,
        },
        Some(Thing::File(mode, data)) => {
            let pages = pages(data).enumerate();
            let pages = pages.map(|(number, page)| (number as u64, page)).collect();
            let (mode, len) = (*mode, data.len() as u64);
            Content::File { mode, len, pages }
        }
    }
}

/// All pages of a file, those of zeros, too.
pub fn pages(data: &[u8]) -> impl Iterator<Item = Box<[u8; PAGE_LEN]>> + '_ {
    data.chunks(PAGE_LEN).map(|bytes| {
        let mut page = Box::new([0; PAGE_LEN]);
        page[..bytes.len()].copy_from_slice(bytes);
        page
    })
}

/// What a file holds, though it may not be for reading.
fn read(path: &Path, mode: u32) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|_| {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        let data = fs::read(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        data
    })
}

/// Writes a few bytes somewhere.
fn scribble(data: &mut [u8], random: &mut Random) {
    if data.is_empty() {
        return;
    }
    let at = random.index(data.len());
    let most = if random.percent(10) {
        3 * PAGE_LEN as u64
    } else {
        100
    };
    let len = (1 + random.below(most) as usize).min(data.len() - at);
    let value = random.bits() as u8;
    for byte in &mut data[at..at + len] {
        *byte = if value & 1 == 0 {
            value
        } else {
            random.bits() as u8
        };
    }
}

fn make(at: &Path, kind: Special) {
    match kind {
        Special::Fifo => {
            let path = CString::new(at.as_os_str().as_bytes()).unwrap();
            // SAFETY: a path of ours.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        }
        Special::Socket => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
    }
}
