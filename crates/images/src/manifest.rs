//! What an image consists of.
//!
//! Manifests of neighbours in the tree differ in a few pages, and thousands of them are looked at.
//! So the pages of a file are kept in groups that manifests share: a copy of one costs a pointer a
//! group, and its name and what differs from another follow from the groups that are not shared.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::id::half;
use crate::{ImageId, PAGE_LEN, PageId};

/// Pages that manifests share or do not share together.
const GROUP_LEN: u64 = 64;

/// What stands at a path that differs from the user's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder. What is in it has entries of its own.
    Folder {
        /// Permissions, 12 bits.
        mode: u32,
    },
    /// A symbolic link, and what it says.
    Link(PathBuf),
    /// A file.
    File {
        /// Permissions, 12 bits.
        mode: u32,
        /// In bytes.
        len: u64,
        /// Those that are not all zeros. What the last one has behind the end of the file is zero.
        pages: Pages,
    },
    /// A FIFO or a socket: only its name is there to be kept.
    Special {
        /// Which of them.
        kind: Special,
        /// Permissions, 12 bits.
        mode: u32,
    },
    /// Something is there on the user's machine, and is gone here.
    Removed,
}

/// Something other than a file that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A Unix socket that was bound.
    Socket,
}

/// Everything in which an image differs from the user's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By absolute path, as the program names it.
    pub entries: BTreeMap<Arc<Path>, Entry>,
}

impl Manifest {
    /// The name of the image: it depends on nothing but what the image consists of.
    pub fn id(&self) -> ImageId {
        let mut hash = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
        };
        for (path, entry) in &self.entries {
            let text = path.as_os_str().as_encoded_bytes();
            put(&(text.len() as u64).to_le_bytes());
            put(text);
            match entry {
                Entry::Folder { mode } => {
                    put(b"d");
                    put(&mode.to_le_bytes());
                }
                Entry::Link(to) => {
                    let to = to.as_os_str().as_encoded_bytes();
                    put(b"l");
                    put(&(to.len() as u64).to_le_bytes());
                    put(to);
                }
                Entry::File { mode, len, pages } => {
                    put(b"f");
                    put(&mode.to_le_bytes());
                    put(&len.to_le_bytes());
                    put(&(pages.groups.len() as u64).to_le_bytes());
                    for (number, group) in &pages.groups {
                        put(&number.to_le_bytes());
                        put(group.digest());
                    }
                }
                Entry::Special { kind, mode } => {
                    put(match kind {
                        Special::Fifo => b"p",
                        Special::Socket => b"s",
                    });
                    put(&mode.to_le_bytes());
                }
                Entry::Removed => put(b"r"),
            }
        }
        ImageId::from_bytes(half(hash.finalize()))
    }

    /// The nearest entry above a path.
    pub(crate) fn above(&self, path: &Path) -> Option<(&Path, &Entry)> {
        let mut ancestors = path.ancestors().skip(1);
        ancestors.find_map(|above| {
            let (path, entry) = self.entries.get_key_value(above)?;
            Some((&**path, entry))
        })
    }

    /// All paths below one.
    pub(crate) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Arc<Path>> {
        // Paths are ordered part by part, so those below one follow it.
        let from = (
            std::ops::Bound::Excluded(path),
            std::ops::Bound::<&Path>::Unbounded,
        );
        let following = self.entries.range::<Path, _>(from).map(|(path, _)| path);
        following.take_while(move |other| other.starts_with(path))
    }
}

/// The pages of a file that are not all zeros, by their number.
#[derive(Clone, Default)]
pub struct Pages {
    groups: BTreeMap<u64, Arc<Group>>,
}

#[derive(Clone, Default)]
struct Group {
    /// By the number within the group, in order; never empty.
    pages: Vec<(u8, PageId)>,
    /// The hash of these, once it was asked for.
    digest: OnceLock<[u8; 16]>,
}

impl Group {
    fn digest(&self) -> &[u8; 16] {
        self.digest.get_or_init(|| {
            let mut bytes = Vec::with_capacity(self.pages.len() * 17);
            for (within, id) in &self.pages {
                bytes.push(*within);
                bytes.extend_from_slice(id.as_bytes());
            }
            half(blake3::hash(&bytes))
        })
    }
}

impl Pages {
    /// The page with that number; `None` if it is all zeros.
    pub fn get(&self, number: u64) -> Option<PageId> {
        let group = self.groups.get(&(number / GROUP_LEN))?;
        let within = (number % GROUP_LEN) as u8;
        let at = group.pages.binary_search_by_key(&within, |page| page.0);
        at.ok().map(|at| group.pages[at].1)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, PageId)> {
        self.groups.iter().flat_map(|(group, pages)| {
            let pages = pages.pages.iter();
            pages.map(move |(within, id)| (group * GROUP_LEN + u64::from(*within), *id))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.groups.values().map(|group| group.pages.len()).sum()
    }

    /// Whether the file is all zeros.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Puts another page there, or one of zeros.
    pub(crate) fn set(&mut self, number: u64, page: Option<PageId>) {
        if self.get(number) == page {
            return;
        }
        let within = (number % GROUP_LEN) as u8;
        let group = self.groups.entry(number / GROUP_LEN).or_default();
        let group = Arc::make_mut(group);
        group.digest = OnceLock::new();
        let at = group.pages.binary_search_by_key(&within, |page| page.0);
        match (at, page) {
            (Ok(at), Some(id)) => group.pages[at].1 = id,
            (Err(at), Some(id)) => group.pages.insert(at, (within, id)),
            (Ok(at), None) => {
                group.pages.remove(at);
            }
            (Err(_), None) => {}
        }
        if group.pages.is_empty() {
            self.groups.remove(&(number / GROUP_LEN));
        }
    }

    /// Forgets the pages from this number on.
    pub(crate) fn truncate(&mut self, number: u64) {
        self.groups.split_off(&number.div_ceil(GROUP_LEN));
        let last = number / GROUP_LEN;
        let gone: Vec<u64> = match self.groups.get(&last) {
            Some(group) => {
                let numbers = group.pages.iter();
                let numbers = numbers.map(|(within, _)| last * GROUP_LEN + u64::from(*within));
                numbers.filter(|n| *n >= number).collect()
            }
            None => Vec::new(),
        };
        gone.into_iter().for_each(|number| self.set(number, None));
    }

    /// Where `to` has another page than this; `None` where it has zeros. In order.
    pub(crate) fn difference(&self, to: &Pages) -> Vec<(u64, Option<PageId>)> {
        let mut found = Vec::new();
        let mut other = to.groups.iter().peekable();
        let none = Group::default();
        let mut compare = |number: u64, a: &Group, b: &Group| {
            let (mut a, mut b) = (a.pages.iter().peekable(), b.pages.iter().peekable());
            loop {
                let next = match (a.peek(), b.peek()) {
                    (None, None) => break,
                    (Some((n, _)), None) | (None, Some((n, _))) => *n,
                    (Some((n, _)), Some((m, _))) => *n.min(m),
                };
                let was = a.next_if(|page| page.0 == next).map(|page| page.1);
                let is = b.next_if(|page| page.0 == next).map(|page| page.1);
                if was != is {
                    found.push((number * GROUP_LEN + u64::from(next), is));
                }
            }
        };
        for (number, group) in &self.groups {
            while let Some((before, new)) = other.next_if(|(other, _)| *other < number) {
                compare(*before, &none, new);
            }
            match other.next_if(|(other, _)| *other == number) {
                Some((_, same)) if Arc::ptr_eq(same, group) => {}
                Some((_, changed)) => compare(*number, group, changed),
                None => compare(*number, group, &none),
            }
        }
        other.for_each(|(number, new)| compare(*number, &none, new));
        found
    }
}

impl FromIterator<(u64, PageId)> for Pages {
    fn from_iter<I: IntoIterator<Item = (u64, PageId)>>(from: I) -> Pages {
        let mut pages = Pages::default();
        for (number, id) in from {
            pages.set(number, Some(id));
        }
        pages
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Pages) -> bool {
        self.groups.len() == other.groups.len()
            && self
                .groups
                .iter()
                .zip(&other.groups)
                .all(|(a, b)| a.0 == b.0 && (Arc::ptr_eq(a.1, b.1) || a.1.pages == b.1.pages))
    }
}

impl Eq for Pages {}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// How many pages a file of that length has.
pub(crate) fn page_count(len: u64) -> u64 {
    len.div_ceil(PAGE_LEN as u64)
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;

    /// The same with a plain map.
    #[test]
    fn pages_are_a_map() {
        let mut random = Random::new(3);
        for _ in 0..200 {
            let mut model = BTreeMap::new();
            let mut pages = Pages::default();
            for _ in 0..random.below(60) {
                let before = (model.clone(), pages.clone());
                for _ in 0..=random.below(4) {
                    let number = random.below(400);
                    if random.percent(10) {
                        model.retain(|n, _| *n < number);
                        pages.truncate(number);
                    } else if random.percent(30) {
                        model.remove(&number);
                        pages.set(number, None);
                    } else {
                        let id = PageId::of(&random.below(3).to_le_bytes());
                        model.insert(number, id);
                        pages.set(number, Some(id));
                    }
                }
                assert!(pages.iter().eq(model.iter().map(|(n, id)| (*n, *id))));
                assert_eq!(pages.len(), model.len());
                assert_eq!(pages.is_empty(), model.is_empty());
                assert_eq!(pages, model.iter().map(|(n, id)| (*n, *id)).collect());
                let numbers = before.0.keys().chain(model.keys());
                let numbers: std::collections::BTreeSet<u64> = numbers.copied().collect();
                let differing = numbers
                    .into_iter()
                    .filter(|n| before.0.get(n) != model.get(n));
                let expected: Vec<_> = differing.map(|n| (n, model.get(&n).copied())).collect();
                assert_eq!(before.1.difference(&pages), expected);
                assert_eq!(before.1 == pages, expected.is_empty());
            }
        }
    }

    /// The name must follow from the content only, not from how it came about.
    #[test]
    fn the_name_is_that_of_the_content() {
        let file = |numbers: &[u64]| {
            let pages = numbers.iter().map(|n| (*n, PageId::of(&n.to_le_bytes())));
            let (mode, len) = (0o644, 1 << 20);
            let pages = pages.collect();
            let entry = Entry::File { mode, len, pages };
            Manifest {
                entries: [(Arc::from(Path::new("/a/b")), entry)].into(),
            }
        };
        assert_eq!(file(&[1, 2, 100]).id(), file(&[100, 1, 2]).id());
        assert_ne!(file(&[1, 2, 100]).id(), file(&[1, 2]).id());
        // The same pages, each a group further.
        let mut moved = file(&[]);
        for entry in moved.entries.values_mut() {
            if let Entry::File { pages, .. } = entry {
                pages.set(65, Some(PageId::of(&1u64.to_le_bytes())));
            }
        }
        assert_ne!(moved.id(), file(&[1]).id());
        // A change and its contrary.
        let mut again = file(&[1, 2]);
        let named = again.id();
        for entry in again.entries.values_mut() {
            if let Entry::File { pages, .. } = entry {
                pages.set(200, Some(PageId::of(b"x")));
                pages.set(200, None);
            }
        }
        assert_eq!(again.id(), named);
    }

    #[test]
    fn what_lies_below() {
        let mut manifest = Manifest::default();
        for path in ["/a", "/a/b", "/a/b/c", "/a-b", "/a.c/d", "/ab"] {
            manifest
                .entries
                .insert(Path::new(path).into(), Entry::Removed);
        }
        let below: Vec<_> = manifest
            .below(Path::new("/a"))
            .map(|path| path.to_str().unwrap())
            .collect();
        assert_eq!(below, ["/a/b", "/a/b/c"]);
    }
}
