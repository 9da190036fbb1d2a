//! The store: images, their pages and inputs in one file that only grows.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::adding::{Adding, Writer, names_of_pages};
use crate::content::{self, Contents, View, permissions};
use crate::delta::differing;
use crate::error::{Damage, Doing, Error};
use crate::index::{Index, Way};
use crate::lay::{Change, Target, special};
use crate::manifest::{Entry, Manifest, Pages, page_count};
use crate::origin::{Action, Chain, Node, Origin, Step};
use crate::pack::{self, Pack, Salvaged};
use crate::record::{self, Meta, StoredOrigin};
use crate::{ImageId, InputId, Page, PageId};

/// A store of images. It can be shared by threads.
pub struct Store {
    pack: Pack,
    /// `None`: for reading only.
    writer: Option<Mutex<Writer>>,
}

/// What [`Store::add`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The name of the image.
    pub id: ImageId,
    /// Whether the store did not have it before.
    pub is_new: bool,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// All that the store occupies.
    pub disk_bytes: u64,
    /// Images.
    pub images: u64,
    /// Pages that differ.
    pub pages: u64,
    /// Inputs that differ.
    pub inputs: u64,
}

impl Store {
    /// Makes an empty store in a folder, which is made if it is not there.
    pub fn create(folder: &Path) -> Result<Store, Error> {
        fs::create_dir_all(folder).doing("make the folder", folder)?;
        let path = folder.join(pack::NAME);
        if path.exists() {
            return Err(Error::Exists(folder.to_owned()));
        }
        // It appears as a whole or not at all.
        let new = folder.join(format!("{}.{}.new", pack::NAME, std::process::id()));
        let written = fs::write(&new, pack::start()).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            // There may be nothing to remove; the error says why.
            let _ = fs::remove_file(&new);
        }
        written.doing("write", &path)?;
        Store::open(folder)
    }

    /// Opens a store for reading and writing. Another process may read it meanwhile.
    ///
    /// A record that was cut short, because its writer was killed or the disk was full, is dropped.
    pub fn open(folder: &Path) -> Result<Store, Error> {
        Store::open_as(folder, true)
    }

    /// Opens a store for reading, also while another process writes to it. What is added later is
    /// not seen.
    pub fn open_for_reading(folder: &Path) -> Result<Store, Error> {
        Store::open_as(folder, false)
    }

    /// Makes a store that is damaged one that can be opened, by cutting it off where the damage
    /// begins. What was cut off is kept in a file beside it. `None`: nothing is wrong with it.
    ///
    /// Images that were added after the damage are lost: others that refer to them by their ids get
    /// [`Error::UnknownImage`].
    pub fn salvage(folder: &Path) -> Result<Option<Salvaged>, Error> {
        pack::salvage(folder)
    }

    fn open_as(folder: &Path, write: bool) -> Result<Store, Error> {
        let (pack, tail) = Pack::open(folder, write)?;
        let writer = write.then(|| Mutex::new(Writer::new(tail)));
        Ok(Store { pack, writer })
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>, Error> {
        let writer = self.writer.as_ref();
        let writer = writer.ok_or_else(|| Error::ReadOnly(self.pack.folder.clone()))?;
        // A thread that panicked has appended a record or has not.
        Ok(writer.lock().unwrap_or_else(|poison| poison.into_inner()))
    }

    /// The folder that it is in.
    pub fn folder(&self) -> &Path {
        &self.pack.folder
    }

    // ------------------------------------------------------------ the tree

    /// The first image that was there from the beginning.
    pub fn root(&self) -> Option<ImageId> {
        let index = self.pack.index();
        let first = index.images.first();
        // The first image that a store gets can only be a root.
        first.map(|slot| slot.id)
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.pack.index().images.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has an image.
    pub fn contains(&self, id: ImageId) -> bool {
        self.pack.index().image_numbers.contains_key(&id)
    }

    /// The image with that number, in order of arrival.
    pub fn nth(&self, number: u32) -> Option<ImageId> {
        self.pack
            .index()
            .images
            .get(number as usize)
            .map(|slot| slot.id)
    }

    /// All images that are there now, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.len() as u32).map(|number| self.pack.index().node(number))
    }

    /// An image's place in the tree, by the shortest way to it that is known.
    pub fn node(&self, id: ImageId) -> Result<Node, Error> {
        let index = self.pack.index();
        Ok(index.node(number_of(&index, id)?))
    }

    /// All ways to an image that are known, each with the image that it starts from; the first is
    /// how it came.
    pub fn ways(&self, id: ImageId) -> Result<Vec<(Option<ImageId>, Origin)>, Error> {
        let index = self.pack.index();
        let slot = &index.images[number_of(&index, id)? as usize];
        Ok(slot.ways.iter().map(|way| index.way(way)).collect())
    }

    /// The images whose [`node`](Store::node) has this one as parent, in order of arrival.
    pub fn children(&self, id: ImageId) -> Result<Vec<ImageId>, Error> {
        let index = self.pack.index();
        let number = number_of(&index, id)?;
        let followers = &index.images[number as usize].followers;
        let mut children: Vec<u32> = followers.clone();
        children.sort_unstable();
        children.dedup();
        children.retain(|child| {
            let slot = &index.images[*child as usize];
            slot.ways[slot.best].parent == Some(number)
        });
        let children = children.iter();
        Ok(children
            .map(|child| index.images[*child as usize].id)
            .collect())
    }

    /// The images from the root to this one.
    pub fn chain(&self, id: ImageId) -> Result<Vec<Node>, Error> {
        let index = self.pack.index();
        let mut chain = vec![index.node(number_of(&index, id)?)];
        while let Some(parent) = chain.last().and_then(|node| node.parent) {
            chain.push(index.node(number_of(&index, parent)?));
        }
        chain.reverse();
        Ok(chain)
    }

    /// How an image is made from nothing.
    pub fn export(&self, id: ImageId) -> Result<Chain, Error> {
        let mut chain = Chain {
            setup: String::new(),
            root: id,
            steps: Vec::new(),
        };
        for node in self.chain(id)? {
            let action = match node.origin {
                Origin::Root(what) => {
                    (chain.setup, chain.root) = (what, node.id);
                    continue;
                }
                Origin::Run { input } => Action::Run {
                    input: self.input_bytes(input)?,
                },
                Origin::Crash { input, at } => Action::Crash {
                    input: self.input_bytes(input)?,
                    at,
                },
                Origin::Flipped { seed } => Action::Flip { seed },
            };
            chain.steps.push(Step {
                action,
                image: node.id,
            });
        }
        Ok(chain)
    }

    // ------------------------------------------------------------ inputs

    /// Keeps an input.
    pub fn input(&self, bytes: &[u8]) -> Result<InputId, Error> {
        let id = InputId::of(bytes);
        if self.pack.index().input_numbers.contains_key(&id) {
            return Ok(id);
        }
        let (body, stored) = record::pack_body(bytes.to_vec());
        let mut writer = self.writer()?;
        // Another thread may have brought it meanwhile.
        if !self.pack.index().input_numbers.contains_key(&id) {
            self.pack
                .append(&mut writer.tail, Meta::Input { id, body }, &stored)?;
        }
        Ok(id)
    }

    /// An input that was kept.
    pub fn input_bytes(&self, id: InputId) -> Result<Vec<u8>, Error> {
        let offset = {
            let index = self.pack.index();
            let number = index.input_numbers.get(&id);
            let number = *number.ok_or(Error::UnknownInput(id))?;
            index.inputs[number as usize].offset
        };
        let (_, plain) = self.pack.read(offset)?;
        if InputId::of(&plain) != id {
            return Err(self.pack.damaged(offset, Damage::Input(id)));
        }
        Ok(plain)
    }

    // ------------------------------------------------------------ contents

    /// What an image consists of.
    pub fn manifest(&self, id: ImageId) -> Result<Arc<Manifest>, Error> {
        let number = number_of(&self.pack.index(), id)?;
        self.pack.manifest_at(number)
    }

    /// What a page holds.
    pub fn page(&self, id: PageId) -> Result<Arc<Page>, Error> {
        self.pack.page(id)
    }

    /// What must be done to files that hold one image, or nothing but what the user's machine has,
    /// so that they hold another. [`lay`](crate::lay()) does it.
    pub fn difference(&self, from: Option<ImageId>, to: ImageId) -> Result<Vec<Change>, Error> {
        let from = match from {
            Some(from) => self.manifest(from)?,
            None => Arc::default(),
        };
        let to = self.manifest(to)?;
        self.difference_of(&from, &to)
    }

    /// The paths at which the files of a view are not what an image has there. Paths that the image
    /// does not name are not looked at.
    pub fn unlike(&self, id: ImageId, view: &View<'_>) -> Result<Vec<PathBuf>, Error> {
        let manifest = self.manifest(id)?;
        let mut unlike = Vec::new();
        for (path, entry) in &manifest.entries {
            let at = (view.at)(path);
            if !is_like(&at, entry).doing("look at", &at)? {
                unlike.push(path.to_path_buf());
            }
        }
        Ok(unlike)
    }

    fn difference_of(&self, from: &Manifest, to: &Manifest) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        for (path, was, is) in differing(from, to) {
            let target = match is {
                None => {
                    // Below something that is no folder any more nothing is left to be done.
                    if let Some((_, above)) = to.above(path)
                        && !matches!(above, Entry::Folder { .. })
                    {
                        continue;
                    }
                    Target::AsOnMachine
                }
                Some(Entry::Removed) => Target::Removed,
                Some(Entry::Folder { mode }) => Target::Folder { mode: *mode },
                Some(Entry::Link(to)) => Target::Link(to.clone()),
                Some(Entry::Special { kind, mode }) => Target::Special {
                    kind: *kind,
                    mode: *mode,
                },
                Some(Entry::File { mode, len, pages }) => {
                    self.file_target(was, *mode, *len, pages)?
                }
            };
            let path = path.clone();
            changes.push(Change { path, to: target });
        }
        Ok(changes)
    }

    fn file_target(
        &self,
        was: Option<&Entry>,
        mode: u32,
        len: u64,
        pages: &Pages,
    ) -> Result<Target, Error> {
        let Some(Entry::File { pages: old, .. }) = was else {
            let pages = pages
                .iter()
                .map(|(number, id)| Ok((number, self.page(id)?)));
            let pages = pages.collect::<Result<_, Error>>()?;
            return Ok(Target::File { mode, len, pages });
        };
        let mut changed = Vec::new();
        for (number, id) in old.difference(pages) {
            // What is cut off needs no zeros.
            if number < page_count(len) {
                changed.push((number, id.map(|id| self.page(id)).transpose()?));
            }
        }
        Ok(Target::Pages {
            mode,
            len,
            pages: changed,
        })
    }

    // ------------------------------------------------------------ adding

    /// Keeps an image. If it is there already, nothing but the way to it is new.
    ///
    /// The contents are relative to the parent, if they say so; if there is none, to the user's
    /// machine.
    pub fn add(
        &self,
        parent: Option<ImageId>,
        origin: Origin,
        contents: &Contents,
    ) -> Result<Added, Error> {
        if matches!(origin, Origin::Root(_)) != parent.is_none() {
            return Err(Error::ParentMismatch);
        }
        // What costs most can be done while others write.
        let names = names_of_pages(contents);
        let mut writer = self.writer()?;
        let (parent, way) = {
            let index = self.pack.index();
            let parent = parent.map(|id| number_of(&index, id)).transpose()?;
            let origin = stored(&index, origin)?;
            (parent, Way { parent, origin })
        };
        let before = match parent {
            Some(parent) => self.pack.manifest_at(parent)?,
            None => Arc::default(),
        };
        let mut adding = Adding::new(&self.pack, &mut writer, &before, &names);
        let manifest = adding.resolve(contents)?;
        let id = manifest.id();
        let known = self.pack.index().image_numbers.get(&id).copied();
        let Some(number) = known else {
            adding.image(id, way, manifest)?;
            return Ok(Added { id, is_new: true });
        };
        if self.pack.index().wants(number, &way) {
            let meta = Meta::Way {
                image: number,
                parent: way.parent,
                origin: way.origin,
            };
            self.pack.append(&mut writer.tail, meta, &[])?;
        }
        Ok(Added { id, is_new: false })
    }

    /// Waits until everything that was added has reached the disk. A killed process loses nothing
    /// without it; this is for the case that the machine fails.
    pub fn sync(&self) -> Result<(), Error> {
        self.pack.file.sync_data().doing("write", &self.pack.path)
    }

    /// How much there is.
    pub fn statistics(&self) -> Statistics {
        let index = self.pack.index();
        let disk_bytes = self
            .pack
            .file
            .metadata()
            .map_or(0, |meta| meta.blocks() * 512);
        Statistics {
            disk_bytes,
            images: index.images.len() as u64,
            pages: index.pages.len() as u64,
            inputs: index.inputs.len() as u64,
        }
    }

    /// Reads everything, and says all that is wrong: whether each input, page and image is what its
    /// name says. (That records match their checksums, and refer to nothing that is missing, is
    /// seen whenever a store is opened.)
    pub fn check(&self) -> Vec<Error> {
        let (inputs, pages, images) = {
            let index = self.pack.index();
            let inputs: Vec<InputId> = index.inputs.iter().map(|slot| slot.id).collect();
            (inputs, index.pages.len(), index.images.len())
        };
        let mut wrong = Vec::new();
        // From the disk, not from memory.
        self.pack.forget();
        for number in 0..pages as u32 {
            wrong.extend(self.pack.page_at(number).err());
        }
        for id in inputs {
            wrong.extend(self.input_bytes(id).err());
        }
        for number in 0..images as u32 {
            wrong.extend(self.pack.manifest_at(number).err());
        }
        wrong
    }
}

/// Whether what stands at a path is what an image has.
fn is_like(at: &Path, entry: &Entry) -> io::Result<bool> {
    let meta = content::metadata(at)?;
    let Some(meta) = meta else {
        return Ok(matches!(entry, Entry::Removed));
    };
    let mode_is = permissions(&meta);
    Ok(match entry {
        Entry::Removed => false,
        Entry::Folder { mode } => meta.is_dir() && mode_is == *mode,
        Entry::Link(to) => meta.is_symlink() && fs::read_link(at)? == *to,
        Entry::Special { kind, mode } => special(&meta) == Some(*kind) && mode_is == *mode,
        Entry::File { mode, len, pages } => {
            if !meta.is_file() || mode_is != *mode || meta.len() != *len {
                return Ok(false);
            }
            let (mut count, mut same) = (0, true);
            content::read_pages(&content::open_anyway(at, mode_is)?, |number, page| {
                count += 1;
                same &= pages.get(number) == Some(PageId::of(&page[..]));
                io::Result::Ok(())
            })?;
            same && count == pages.len()
        }
    })
}

fn number_of(index: &Index, id: ImageId) -> Result<u32, Error> {
    let number = index.image_numbers.get(&id);
    number.copied().ok_or(Error::UnknownImage(id))
}

fn stored(index: &Index, origin: Origin) -> Result<StoredOrigin, Error> {
    let number = |id: InputId| {
        let number = index.input_numbers.get(&id);
        number.copied().ok_or(Error::UnknownInput(id))
    };
    Ok(match origin {
        Origin::Root(what) => StoredOrigin::Root(what),
        Origin::Run { input } => StoredOrigin::Run {
            input: number(input)?,
        },
        Origin::Crash { input, at } => StoredOrigin::Crash {
            input: number(input)?,
            at,
        },
        Origin::Flipped { seed } => StoredOrigin::Flipped { seed },
    })
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;
    use crate::record::START_LEN;
    use crate::{Content, PAGE_LEN};

    /// The contents of all records.
    fn records(pack: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = &pack[START_LEN as usize..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let (record, others) = rest.split_at(record::HEAD_LEN as usize + len);
            records.push(record[record::HEAD_LEN as usize..].to_vec());
            rest = others;
        }
        records
    }

    /// Records that make no sense although their checksums are right: as good as anything that a
    /// faulty program might have written. Nothing may panic, hang, or give a content that does not
    /// match its name.
    #[test]
    fn nonsense_with_right_checksums_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = Store::create(&path).unwrap();
        let mut random = Random::new(4);
        let mut parent = None;
        for n in 0..12_u64 {
            let pages = (0..3).map(|at| {
                let mut page = Box::new([0; PAGE_LEN]);
                page[..4].copy_from_slice(&[1, 2, 3, at as u8]);
                page[random.index(PAGE_LEN)] = n as u8;
                (at, page)
            });
            let (mode, len, pages) = (0o644, 3 * PAGE_LEN as u64, pages.collect());
            let file = Content::File { mode, len, pages };
            let contents = Contents::whole([
                (PathBuf::from("/a/file"), file),
                (PathBuf::from(format!("/b{n}")), Content::Removed),
            ]);
            let origin = match parent {
                None => Origin::Root("x".into()),
                Some(_) => Origin::Run {
                    input: store.input(&n.to_le_bytes()).unwrap(),
                },
            };
            parent = Some(store.add(parent, origin, &contents).unwrap().id);
        }
        let bytes = fs::read(&store.pack.path).unwrap();
        drop(store);
        let good = records(&bytes);
        let (mut refused, mut wrong, mut sound) = (0, 0, 0);
        for _ in 0..1000 {
            let mut changed = good.clone();
            for _ in 0..=random.below(2) {
                let at = random.index(changed.len());
                match random.below(10) {
                    0 => {
                        changed.remove(at);
                    }
                    1 => {
                        let other = random.index(changed.len());
                        changed.swap(at, other);
                    }
                    2 => {
                        let again = changed[at].clone();
                        changed.push(again);
                    }
                    3 => {
                        let len = random.index(changed[at].len() + 1);
                        changed[at].truncate(len);
                    }
                    _ => {
                        let bytes = &mut changed[at];
                        if !bytes.is_empty() {
                            // What matters most is at the beginning.
                            let len = bytes.len().min(60);
                            bytes[random.index(len)] = random.bits() as u8;
                        }
                    }
                }
            }
            let mut bytes = pack::start();
            changed
                .iter()
                .for_each(|content| bytes.extend(record::seal(content)));
            fs::write(path.join(pack::NAME), bytes).unwrap();
            let store = match Store::open(&path) {
                Err(Error::Damaged { .. }) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
                Ok(store) => store,
            };
            match store.check() {
                faults if faults.is_empty() => sound += 1,
                _ => wrong += 1,
            }
            for node in store.iter() {
                // Whatever it says, it says it.
                let _ = store.export(node.id);
                let _ = store.difference(None, node.id);
            }
        }
        // All three happen, or the test has become pointless.
        assert!(
            refused > 100 && wrong > 100 && sound > 5,
            "{refused} {wrong} {sound}"
        );
    }
}
