//! The store: images, their pages and inputs in one file that only grows.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cache::Cache;
use crate::content::{self, Content, Contents, Others, is_zero, permissions, plain_path};
use crate::error::{BadContent, Damage, Doing, Error};
use crate::index::{ImageSlot, Index, PATCHES_MAX, PageForm, Way};
use crate::lay::{Change, Target, special};
use crate::manifest::{Entry, Manifest, Pages, page_count};
use crate::origin::{Action, Chain, Node, Origin, Step};
use crate::record::{
    self, Delta, DeltaEntry, DeltaPage, Form, Found, Meta, NewPage, START_LEN, StoredOrigin,
};
use crate::{ImageId, InputId, PAGE_LEN, Page, PageId, patch};

/// The name of the file in the store's folder.
const PACK: &str = "images.pack";
/// Pages wait for their image until they are this many bytes; then they get a record of their own.
const WAITING_MAX: usize = 1 << 16;
/// An image whose level is a multiple of this is written as what differs from the one that is so
/// many levels above it, so that few deltas lead to an image however deep it is.
const STRIDE: u32 = 32;
/// A page that differs from another in more words than this is written as a whole.
const PATCH_WORDS_MAX: usize = PAGE_LEN / 8 / 2;
/// So many pages that stood at a place lately may be what the next one there resembles.
const RECENT_LEN: usize = 4;

/// Pages in memory: at most twice this.
const PAGES_CACHED: usize = 4096;
/// Manifests in memory: at most twice this. They share most of what they consist of.
const MANIFESTS_CACHED: usize = 256;
/// Bodies of records in memory: at most twice this.
const BODIES_CACHED: usize = 64;

/// A store of images. It can be shared by threads.
pub struct Store {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    index: RwLock<Index>,
    /// `None`: for reading only.
    writer: Option<Mutex<Writer>>,
    pages: Mutex<Cache<u32, Arc<Page>>>,
    manifests: Mutex<Cache<u32, Arc<Manifest>>>,
    bodies: Mutex<Cache<u64, Arc<Opened>>>,
}

/// What only the one who writes needs.
struct Writer {
    /// Where the next record begins.
    len: u64,
    /// Something that does not count may follow there: a write that failed.
    litter: bool,
    /// Pages that stood at a place lately; the last is the newest.
    recent: HashMap<Place, Vec<u32>>,
}

/// A page of a file, by the number of its path.
type Place = (u32, u64);

/// A body that was read.
struct Opened {
    plain: Vec<u8>,
    /// Where its pages are.
    pages: Vec<Range<usize>>,
    /// Where what follows them begins.
    rest: usize,
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
        let path = folder.join(PACK);
        if path.exists() {
            return Err(Error::Exists(folder.to_owned()));
        }
        // It appears as a whole or not at all.
        let new = folder.join(format!("{PACK}.{}.new", std::process::id()));
        let written = fs::write(&new, start()).and_then(|()| fs::rename(&new, &path));
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

    /// Opens a store for reading, also while another process writes to it. What is added later is not
    /// seen.
    pub fn open_for_reading(folder: &Path) -> Result<Store, Error> {
        Store::open_as(folder, false)
    }

    fn open_as(folder: &Path, write: bool) -> Result<Store, Error> {
        let path = folder.join(PACK);
        let opened = OpenOptions::new().read(true).write(write).open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Missing(folder.to_owned()));
            }
            opened => opened.doing("open", &path)?,
        };
        if write && !lock(&file).doing("lock", &path)? {
            return Err(Error::InUse(folder.to_owned()));
        }
        let mut first = [0; START_LEN as usize];
        let read = content::read_full(&file, &mut first, 0).doing("read", &path)?;
        if read < first.len() || !first.starts_with(record::MAGIC) {
            return Err(Error::NotAStore(path));
        }
        let found = u32::from_le_bytes([first[12], first[13], first[14], first[15]]);
        if found != record::VERSION {
            let expected = record::VERSION;
            return Err(Error::Version {
                path,
                found,
                expected,
            });
        }
        let mut index = Index::default();
        let len = file.metadata().doing("look at", &path)?.len();
        let end = scan(&file, &path, len, &mut index)?;
        if write && end < len {
            file.set_len(end).doing("shorten", &path)?;
        }
        let writer = Writer {
            len: end,
            litter: false,
            recent: HashMap::new(),
        };
        Ok(Store {
            folder: folder.to_owned(),
            path,
            file,
            index: RwLock::new(index),
            writer: write.then(|| Mutex::new(writer)),
            pages: Mutex::new(Cache::new(PAGES_CACHED)),
            manifests: Mutex::new(Cache::new(MANIFESTS_CACHED)),
            bodies: Mutex::new(Cache::new(BODIES_CACHED)),
        })
    }

    /// The folder that it is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    // ------------------------------------------------------------ the tree

    /// The first image that was there from the beginning.
    pub fn root(&self) -> Option<ImageId> {
        let index = self.index();
        let first = index.images.first();
        // The first image that a store gets can only be a root.
        first.map(|slot| slot.id)
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.index().images.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has an image.
    pub fn contains(&self, id: ImageId) -> bool {
        self.index().image_numbers.contains_key(&id)
    }

    /// The image with that number, in order of arrival.
    pub fn nth(&self, number: u32) -> Option<ImageId> {
        self.index().images.get(number as usize).map(|slot| slot.id)
    }

    /// All images that are there now, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.len() as u32).map(|number| self.index().node(number))
    }

    /// An image's place in the tree, by the shortest way to it that is known.
    pub fn node(&self, id: ImageId) -> Result<Node, Error> {
        let index = self.index();
        Ok(index.node(number_of(&index, id)?))
    }

    /// All ways to an image that are known, each with the image that it starts from; the first is how
    /// it came.
    pub fn ways(&self, id: ImageId) -> Result<Vec<(Option<ImageId>, Origin)>, Error> {
        let index = self.index();
        let slot = &index.images[number_of(&index, id)? as usize];
        Ok(slot.ways.iter().map(|way| index.way(way)).collect())
    }

    /// The images whose [`node`](Store::node) has this one as parent, in order of arrival.
    pub fn children(&self, id: ImageId) -> Result<Vec<ImageId>, Error> {
        let index = self.index();
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
        let index = self.index();
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
        if self.index().input_numbers.contains_key(&id) {
            return Ok(id);
        }
        let (body, stored) = record::pack_body(bytes.to_vec());
        let mut writer = self.writer()?;
        // Another thread may have brought it meanwhile.
        if !self.index().input_numbers.contains_key(&id) {
            self.append(&mut writer, Meta::Input { id, body }, &stored)?;
        }
        Ok(id)
    }

    /// An input that was kept.
    pub fn input_bytes(&self, id: InputId) -> Result<Vec<u8>, Error> {
        let offset = {
            let index = self.index();
            let number = index.input_numbers.get(&id);
            let number = *number.ok_or(Error::UnknownInput(id))?;
            index.inputs[number as usize].offset
        };
        let (_, plain) = self.read(offset)?;
        if InputId::of(&plain) != id {
            return Err(self.damaged(offset, Damage::Input(id)));
        }
        Ok(plain)
    }

    // ------------------------------------------------------------ contents

    /// What an image consists of.
    pub fn manifest(&self, id: ImageId) -> Result<Arc<Manifest>, Error> {
        let number = number_of(&self.index(), id)?;
        self.manifest_at(number)
    }

    /// What a page holds.
    pub fn page(&self, id: PageId) -> Result<Arc<Page>, Error> {
        let number = {
            let index = self.index();
            let number = index.page_numbers.get(&id);
            *number.ok_or(Error::UnknownPage(id))?
        };
        self.page_at(number)
    }

    /// What must be done to files that hold one image, or nothing but what the user's machine has, so
    /// that they hold another. [`lay`](crate::lay()) does it.
    pub fn difference(&self, from: Option<ImageId>, to: ImageId) -> Result<Vec<Change>, Error> {
        let from = match from {
            Some(from) => self.manifest(from)?,
            None => Arc::default(),
        };
        let to = self.manifest(to)?;
        self.difference_of(&from, &to)
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
    /// The contents are relative to the parent, if they say so; if there is none, to the user's machine.
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
            let index = self.index();
            let parent = parent.map(|id| number_of(&index, id)).transpose()?;
            let origin = stored(&index, origin)?;
            (parent, Way { parent, origin })
        };
        let before = match parent {
            Some(parent) => self.manifest_at(parent)?,
            None => Arc::default(),
        };
        let mut adding = Adding {
            store: self,
            writer: &mut writer,
            before: &before,
            names: &names,
            waiting: Waiting::default(),
            paths: Vec::new(),
            places: Vec::new(),
        };
        let manifest = adding.resolve(contents)?;
        let id = manifest.id();
        let known = self.index().image_numbers.get(&id).copied();
        let Some(number) = known else {
            adding.image(id, way, manifest)?;
            return Ok(Added { id, is_new: true });
        };
        if self.index().wants(number, &way) {
            let meta = Meta::Way {
                image: number,
                parent: way.parent,
                origin: way.origin,
            };
            self.append(&mut writer, meta, &[])?;
        }
        Ok(Added { id, is_new: false })
    }

    /// Waits until everything that was added has reached the disk. A killed process loses nothing
    /// without it; this is for the case that the machine fails.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().doing("write", &self.path)
    }

    /// How much there is.
    pub fn statistics(&self) -> Statistics {
        let index = self.index();
        let disk_bytes = self.file.metadata().map_or(0, |meta| meta.blocks() * 512);
        Statistics {
            disk_bytes,
            images: index.images.len() as u64,
            pages: index.pages.len() as u64,
            inputs: index.inputs.len() as u64,
        }
    }

    /// Reads everything, and says all that is wrong: whether each input, page and image is what its
    /// name says. (That records match their checksums, and refer to nothing that is missing, is seen
    /// whenever a store is opened.)
    pub fn check(&self) -> Vec<Error> {
        let (inputs, pages, images) = {
            let index = self.index();
            let inputs: Vec<InputId> = index.inputs.iter().map(|slot| slot.id).collect();
            (inputs, index.pages.len(), index.images.len())
        };
        let mut wrong = Vec::new();
        // From the disk, not from memory.
        locked(&self.pages).clear();
        locked(&self.manifests).clear();
        locked(&self.bodies).clear();
        for number in 0..pages as u32 {
            wrong.extend(self.page_at(number).err());
        }
        for id in inputs {
            wrong.extend(self.input_bytes(id).err());
        }
        for number in 0..images as u32 {
            wrong.extend(self.manifest_at(number).err());
        }
        wrong
    }

    // ------------------------------------------------------------ reading

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        // What a thread that panicked has left is whole: records are noted all or not at all.
        self.index
            .read()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index
            .write()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>, Error> {
        let writer = self.writer.as_ref();
        let writer = writer.ok_or_else(|| Error::ReadOnly(self.folder.clone()))?;
        Ok(locked(writer))
    }

    fn damaged(&self, offset: u64, what: Damage) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            offset,
            what,
        }
    }

    /// The record at a place, with its body as it was before it was packed.
    fn read(&self, offset: u64) -> Result<(Meta, Vec<u8>), Error> {
        let found = record::find(&self.file, offset, u64::MAX).doing("read", &self.path)?;
        let content = match found {
            Ok(Found::Record { content, .. }) => content,
            Ok(Found::End | Found::Torn) => return Err(self.damaged(offset, Damage::Gone)),
            Err(what) => return Err(self.damaged(offset, what)),
        };
        let opened = record::parse(&content).and_then(|(meta, stored)| {
            let plain = match meta.body() {
                Some(body) => record::unpack_body(*body, stored)?,
                None => Vec::new(),
            };
            Ok((meta, plain))
        });
        opened.map_err(|what| self.damaged(offset, what))
    }

    /// A body, taken apart.
    fn body(&self, offset: u64) -> Result<Arc<Opened>, Error> {
        if let Some(opened) = locked(&self.bodies).get(offset) {
            return Ok(opened);
        }
        let (meta, plain) = self.read(offset)?;
        let count = match &meta {
            Meta::Pages { pages, .. } | Meta::Image { pages, .. } => pages.len(),
            Meta::Input { .. } | Meta::Way { .. } => 0,
        };
        let opened = open_body(plain, count).map_err(|what| self.damaged(offset, what))?;
        let opened = Arc::new(opened);
        locked(&self.bodies).insert(offset, opened.clone());
        Ok(opened)
    }

    fn page_at(&self, number: u32) -> Result<Arc<Page>, Error> {
        if let Some(page) = locked(&self.pages).get(number) {
            return Ok(page);
        }
        let page = self.page_from_disk(number)?;
        locked(&self.pages).insert(number, page.clone());
        Ok(page)
    }

    fn page_from_disk(&self, number: u32) -> Result<Arc<Page>, Error> {
        // First down to a page that is known or whole, then up again.
        let mut patches = Vec::new();
        let mut next = number;
        let mut page: Page = loop {
            let slot = self.index().pages[next as usize];
            let below = match slot.form {
                PageForm::Whole => {
                    let body = self.body(slot.offset)?;
                    let whole = Page::try_from(page_of(&body, slot.within));
                    let bad = Damage::Nonsense("a page has not 4096 bytes");
                    break whole.map_err(|_| self.damaged(slot.offset, bad))?;
                }
                PageForm::Zero => None,
                PageForm::Patch(base) => Some(base),
            };
            patches.push((slot.offset, slot.within));
            let Some(base) = below else {
                break [0; PAGE_LEN];
            };
            if let Some(page) = locked(&self.pages).get(base) {
                break *page;
            }
            next = base;
        };
        for (offset, within) in patches.into_iter().rev() {
            let body = self.body(offset)?;
            let bad = || self.damaged(offset, Damage::Nonsense("a patch cannot be decoded"));
            patch::apply(&mut page, page_of(&body, within)).ok_or_else(bad)?;
        }
        let slot = self.index().pages[number as usize];
        if PageId::of(&page) != slot.id {
            return Err(self.damaged(slot.offset, Damage::Page(slot.id)));
        }
        Ok(Arc::new(page))
    }

    fn manifest_at(&self, number: u32) -> Result<Arc<Manifest>, Error> {
        if let Some(manifest) = locked(&self.manifests).get(number) {
            return Ok(manifest);
        }
        let manifest = self.manifest_from_disk(number)?;
        locked(&self.manifests).insert(number, manifest.clone());
        Ok(manifest)
    }

    fn manifest_from_disk(&self, number: u32) -> Result<Arc<Manifest>, Error> {
        let mut deltas = Vec::new();
        let mut next = Some(number);
        let mut manifest = Manifest::default();
        while let Some(number) = next {
            let base = self.index().images[number as usize].base;
            deltas.push(number);
            if let Some(base) = base
                && let Some(known) = locked(&self.manifests).get(base)
            {
                manifest = Manifest::clone(&known);
                break;
            }
            next = base;
        }
        for number in deltas.into_iter().rev() {
            let offset = self.index().images[number as usize].offset;
            let body = self.body(offset)?;
            let applied = apply_delta(
                &self.index(),
                number,
                &body.plain[body.rest..],
                &mut manifest,
            );
            applied.map_err(|what| self.damaged(offset, what))?;
        }
        let (id, offset) = {
            let slot = &self.index().images[number as usize];
            (slot.id, slot.offset)
        };
        if manifest.id() != id {
            return Err(self.damaged(offset, Damage::Image(id)));
        }
        Ok(Arc::new(manifest))
    }

    // ------------------------------------------------------------ writing

    /// Writes a record and takes note of it, or does neither.
    fn append(&self, writer: &mut Writer, meta: Meta, body: &[u8]) -> Result<(), Error> {
        let too_large = || Error::BadContent {
            path: self.path.clone(),
            why: BadContent::TooLarge,
        };
        let record = record::frame(&meta, body).ok_or_else(too_large)?;
        if writer.litter {
            self.file.set_len(writer.len).doing("shorten", &self.path)?;
            writer.litter = false;
        }
        let offset = writer.len;
        if let Err(error) = self.file.write_all_at(&record, offset) {
            writer.litter = self.file.set_len(offset).is_err();
            return Err(error).doing("write", &self.path);
        }
        let noted = self.index_mut().note(meta, offset);
        if let Err(what) = noted {
            // Never, but for more things than there are numbers; what does not count must not stay.
            writer.litter = self.file.set_len(offset).is_err();
            return Err(self.damaged(offset, what));
        }
        writer.len += record.len() as u64;
        Ok(())
    }
}

/// How a file begins.
fn start() -> Vec<u8> {
    [&record::MAGIC[..], &record::VERSION.to_le_bytes()].concat()
}

/// Reads all records; returns where they end.
fn scan(file: &File, path: &Path, len: u64, index: &mut Index) -> Result<u64, Error> {
    let mut at = START_LEN;
    loop {
        let damaged = |what| Error::Damaged {
            path: path.to_owned(),
            offset: at,
            what,
        };
        let found = record::find(file, at, len).doing("read", path)?;
        match found.map_err(damaged)? {
            Found::End | Found::Torn => return Ok(at),
            Found::Record { content, next } => {
                let (meta, _) = record::parse(&content).map_err(damaged)?;
                index.note(meta, at).map_err(damaged)?;
                at = next;
            }
        }
    }
}

/// Whether this process is the only one that writes from now on. The lock goes with the file.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: a descriptor that is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(false),
        _ => Err(error),
    }
}

/// What a thread that panicked has left in one of our caches is whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
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

fn open_body(plain: Vec<u8>, count: usize) -> Result<Opened, Damage> {
    let mut pages = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let bad = Damage::Nonsense("it has fewer pages than it says");
        let Ok((len, rest)) = postcard::take_from_bytes::<u32>(&plain[at..]) else {
            return Err(bad);
        };
        let start = plain.len() - rest.len();
        let end = start + len as usize;
        if end > plain.len() {
            return Err(bad);
        }
        pages.push(start..end);
        at = end;
    }
    let rest = at;
    Ok(Opened { plain, pages, rest })
}

fn page_of(body: &Opened, within: u32) -> &[u8] {
    // A record has as many pages as were noted when it was.
    let range = body.pages.get(within as usize).cloned();
    &body.plain[range.unwrap_or(0..0)]
}

// ---------------------------------------------------------------- manifests and deltas

/// The paths at which two manifests differ, and what they have there.
fn differing<'a>(
    from: &'a Manifest,
    to: &'a Manifest,
) -> impl Iterator<Item = (&'a Arc<Path>, Option<&'a Entry>, Option<&'a Entry>)> {
    let mut from = from.entries.iter().peekable();
    let mut to = to.entries.iter().peekable();
    let merged = std::iter::from_fn(move || {
        let path = match (from.peek(), to.peek()) {
            (None, None) => return None,
            (Some((path, _)), None) | (None, Some((path, _))) => *path,
            (Some((a, _)), Some((b, _))) => (*a).min(*b),
        };
        let was = from.next_if(|(other, _)| *other == path);
        let is = to.next_if(|(other, _)| *other == path);
        Some((
            path,
            was.map(|(_, entry)| entry),
            is.map(|(_, entry)| entry),
        ))
    });
    merged.filter(|(_, was, is)| was != is)
}

/// What must be done to one manifest to get another.
fn delta(
    from: &Manifest,
    to: &Manifest,
    mut path_number: impl FnMut(&Arc<Path>) -> u32,
    mut age: impl FnMut(PageId) -> u32,
) -> Delta {
    let mut pages_of = |pages: Vec<(u64, Option<PageId>)>| {
        let mut next = 0;
        let pages = pages.into_iter().map(|(number, id)| {
            let gap = number - next;
            next = number + 1;
            let age = id.map_or(0, &mut age);
            DeltaPage { gap, age }
        });
        pages.collect()
    };
    let entries = differing(from, to).map(|(path, was, is)| {
        let entry = match is {
            None => DeltaEntry::Machine,
            Some(Entry::Removed) => DeltaEntry::Removed,
            Some(Entry::Folder { mode }) => DeltaEntry::Folder { mode: *mode },
            Some(Entry::Link(to)) => DeltaEntry::Link(to.as_os_str().as_bytes().to_vec()),
            Some(Entry::Special { kind, mode }) => DeltaEntry::Special {
                kind: *kind,
                mode: *mode,
            },
            Some(Entry::File { mode, len, pages }) => {
                let (mode, len) = (*mode, *len);
                match was {
                    Some(Entry::File { pages: old, .. }) => {
                        let pages = pages_of(old.difference(pages));
                        DeltaEntry::Pages { mode, len, pages }
                    }
                    _ => {
                        let pages = pages_of(Pages::default().difference(pages));
                        DeltaEntry::File { mode, len, pages }
                    }
                }
            }
        };
        (path_number(path), entry)
    });
    entries.collect()
}

/// Does it, for the image with that number.
fn apply_delta(
    index: &Index,
    number: u32,
    encoded: &[u8],
    manifest: &mut Manifest,
) -> Result<(), Damage> {
    let bad = |_| Damage::Nonsense("what an image consists of cannot be decoded");
    let delta: Delta = postcard::from_bytes(encoded).map_err(bad)?;
    let page_count = index.images[number as usize].page_count;
    let set = |pages: &mut Pages, changed: Vec<DeltaPage>| {
        let mut next = 0_u64;
        for page in changed {
            let at = next.checked_add(page.gap);
            let at = at.ok_or(Damage::Nonsense("a page has too large a number"))?;
            next = at.saturating_add(1);
            let id = match page.age {
                0 => None,
                age => {
                    let number = page_count.checked_sub(age);
                    let slot = number.and_then(|number| index.pages.get(number as usize));
                    Some(slot.ok_or(Damage::Nonsense("a page is not there"))?.id)
                }
            };
            pages.set(at, id);
        }
        Ok(())
    };
    for (path, entry) in delta {
        let path = index.paths.get(path as usize);
        let path = path.ok_or(Damage::Nonsense("a path is not there"))?;
        let entry = match entry {
            DeltaEntry::Machine => {
                manifest.entries.remove(path);
                continue;
            }
            DeltaEntry::Removed => Entry::Removed,
            DeltaEntry::Folder { mode } => Entry::Folder { mode },
            DeltaEntry::Link(to) => Entry::Link(OsStr::from_bytes(&to).into()),
            DeltaEntry::Special { kind, mode } => Entry::Special { kind, mode },
            DeltaEntry::File {
                mode,
                len,
                pages: changed,
            } => {
                let mut pages = Pages::default();
                set(&mut pages, changed)?;
                Entry::File { mode, len, pages }
            }
            DeltaEntry::Pages {
                mode,
                len,
                pages: changed,
            } => {
                let Some(Entry::File { pages, .. }) = manifest.entries.get(path) else {
                    return Err(Damage::Nonsense("a file is not there"));
                };
                let mut pages = pages.clone();
                set(&mut pages, changed)?;
                Entry::File { mode, len, pages }
            }
        };
        manifest.entries.insert(path.clone(), entry);
    }
    Ok(())
}

// ---------------------------------------------------------------- adding

/// The names of all pages that are given, by path, in the order in which they are given.
fn names_of_pages(contents: &Contents) -> HashMap<&Path, Vec<PageId>> {
    let mut names = HashMap::new();
    for (path, content) in &contents.entries {
        if let Content::File { pages, .. } | Content::Pages { pages, .. } = content {
            let ids = pages.iter().map(|(_, page)| PageId::of(&page[..]));
            names.insert(path.as_path(), ids.collect());
        }
    }
    names
}

/// An image on its way into the store.
struct Adding<'a> {
    store: &'a Store,
    writer: &'a mut Writer,
    /// The parent.
    before: &'a Manifest,
    names: &'a HashMap<&'a Path, Vec<PageId>>,
    waiting: Waiting,
    /// Paths that are new to the store, and the number that the first of them will have.
    paths: Vec<Arc<Path>>,
    /// What stands where now, to be remembered.
    places: Vec<(Place, PageId)>,
}

/// Pages that are new and not written yet.
#[derive(Default)]
struct Waiting {
    pages: Vec<NewPage>,
    /// How many of them come before one.
    ids: HashMap<PageId, u32>,
    body: Vec<u8>,
}

impl Adding<'_> {
    /// What the image consists of. Writes pages, if there are many.
    fn resolve(&mut self, contents: &Contents) -> Result<Manifest, Error> {
        let mut manifest = match contents.others {
            Others::AsInParent => self.before.clone(),
            Others::AsOnMachine => Manifest::default(),
        };
        // What is above comes first, so that what it takes away can be given again.
        for (given, content) in &contents.entries {
            let bad = |why| Error::BadContent {
                path: given.clone(),
                why,
            };
            let path: Arc<Path> = plain_path(given)
                .ok_or_else(|| bad(BadContent::Path))?
                .into();
            let number = self.path_number(&path);
            let entry = match content {
                Content::AsOnMachine => {
                    manifest.entries.remove(&path);
                    continue;
                }
                Content::Removed => Entry::Removed,
                Content::Folder { mode } => Entry::Folder {
                    mode: mode & 0o7777,
                },
                Content::Link(to) => Entry::Link(to.clone()),
                Content::Special { kind, mode } => Entry::Special {
                    kind: *kind,
                    mode: mode & 0o7777,
                },
                Content::File {
                    mode,
                    len,
                    pages: new,
                } => {
                    let pages = Pages::default();
                    let pages = self.pages(given, number, *len, pages, new)?;
                    let (mode, len) = (mode & 0o7777, *len);
                    Entry::File { mode, len, pages }
                }
                Content::Pages {
                    mode,
                    len,
                    pages: new,
                } => {
                    let Some(Entry::File { pages, .. }) = self.before.entries.get(&path) else {
                        return Err(bad(BadContent::NoFileInParent));
                    };
                    let pages = self.pages(given, number, *len, pages.clone(), new)?;
                    let (mode, len) = (mode & 0o7777, *len);
                    Entry::File { mode, len, pages }
                }
                Content::CopyOf(from) => self.copy(given, &path, number, from)?,
            };
            if !matches!(entry, Entry::Folder { .. }) {
                let below: Vec<Arc<Path>> = manifest.below(&path).cloned().collect();
                for path in below {
                    manifest.entries.remove(&path);
                }
            }
            manifest.entries.insert(path, entry);
        }
        let lost = manifest.entries.keys().find(|path| {
            let above = manifest.above(path);
            above.is_some_and(|(_, above)| !matches!(above, Entry::Folder { .. }))
        });
        match lost {
            None => Ok(manifest),
            Some(path) => Err(Error::BadContent {
                path: path.to_path_buf(),
                why: BadContent::BelowNoFolder,
            }),
        }
    }

    fn path_number(&mut self, path: &Arc<Path>) -> u32 {
        let index = self.store.index();
        if let Some(number) = index.path_number(path) {
            return number;
        }
        let known = self.paths.iter().position(|other| other == path);
        let at = known.unwrap_or_else(|| {
            self.paths.push(path.clone());
            self.paths.len() - 1
        });
        (index.paths.len() + at) as u32
    }

    /// The pages of a file: some are as they were, some are given.
    fn pages(
        &mut self,
        path: &Path,
        number: u32,
        len: u64,
        mut pages: Pages,
        new: &[(u64, Box<Page>)],
    ) -> Result<Pages, Error> {
        // What stood there before is what a page most likely resembles, even if it is given anew.
        let before = match self.before.entries.get(path) {
            Some(Entry::File { pages, .. }) => pages.clone(),
            _ => Pages::default(),
        };
        let names = self.names;
        let ids = names.get(path).map_or(&[][..], Vec::as_slice);
        pages.truncate(page_count(len));
        for ((at, page), id) in new.iter().zip(ids) {
            if *at >= page_count(len) {
                return Err(Error::BadContent {
                    path: path.to_owned(),
                    why: BadContent::PageBehindEnd,
                });
            }
            let before = before.get(*at);
            let id = match tail(*at, len) {
                Some(tail) if !is_zero(&page[tail..]) => {
                    let page = cut(page, tail);
                    self.page((number, *at), before, PageId::of(&page), &page)?
                }
                _ => self.page((number, *at), before, *id, page)?,
            };
            pages.set(*at, id);
        }
        // A file that has become shorter has lost a part of what is now its last page.
        let last = page_count(len).saturating_sub(1);
        if let (Some(tail), Some(id)) = (tail(last, len), pages.get(last)) {
            let is_given = new.iter().any(|(at, _)| *at == last);
            if !is_given {
                let page = self.store.page(id)?;
                if !is_zero(&page[tail..]) {
                    let page = cut(&page, tail);
                    let cut = self.page((number, last), Some(id), PageId::of(&page), &page)?;
                    pages.set(last, cut);
                }
            }
        }
        Ok(pages)
    }

    fn copy(
        &mut self,
        given: &Path,
        path: &Path,
        number: u32,
        from: &Path,
    ) -> Result<Entry, Error> {
        let meta = fs::symlink_metadata(from).doing("look at", from)?;
        let mode = permissions(&meta);
        if meta.is_dir() {
            return Ok(Entry::Folder { mode });
        } else if meta.is_symlink() {
            return Ok(Entry::Link(fs::read_link(from).doing("read", from)?));
        } else if let Some(kind) = special(&meta) {
            return Ok(Entry::Special { kind, mode });
        } else if content::is_device(&meta) {
            return Err(Error::BadContent {
                path: given.to_owned(),
                why: BadContent::Device,
            });
        }
        let before = match self.before.entries.get(path) {
            Some(Entry::File { pages, .. }) => pages.clone(),
            _ => Pages::default(),
        };
        let file = open_anyway(from, mode).doing("open", from)?;
        let mut pages = Pages::default();
        let len = content::read_pages(&file, |at, page| {
            let id = PageId::of(&page[..]);
            let id = self.page((number, at), before.get(at), id, &page)?;
            pages.set(at, id);
            Ok(())
        })
        .map_err(|error| match error {
            Reading::Io(source) => Error::Io {
                doing: "read",
                path: from.to_owned(),
                source,
            },
            Reading::Store(error) => error,
        })?;
        Ok(Entry::File { mode, len, pages })
    }

    /// Sees that a page is in the store or on its way there; `None` if it is all zeros.
    fn page(
        &mut self,
        place: Place,
        before: Option<PageId>,
        id: PageId,
        page: &Page,
    ) -> Result<Option<PageId>, Error> {
        if is_zero(page) {
            return Ok(None);
        }
        if before == Some(id) {
            return Ok(Some(id));
        }
        self.places.push((place, id));
        let is_known = self.store.index().page_numbers.contains_key(&id);
        if is_known || self.waiting.ids.contains_key(&id) {
            return Ok(Some(id));
        }
        let base = self.resembling(place, before, page)?;
        let number = (self.store.index().pages.len() + self.waiting.pages.len()) as u32;
        let (form, encoded) = match base {
            Base::None => (Form::Whole, page.to_vec()),
            Base::Zero => (Form::Zero, patch::diff(&[0; PAGE_LEN], page)),
            Base::Page(base, content) => (Form::Patch(number - base), patch::diff(&content, page)),
        };
        let waiting = &mut self.waiting;
        waiting.ids.insert(id, waiting.pages.len() as u32);
        waiting.pages.push(NewPage { id, form });
        put_bytes(&mut waiting.body, &encoded);
        if waiting.body.len() >= WAITING_MAX {
            self.flush()?;
        }
        Ok(Some(id))
    }

    /// What a page is best written as a patch of.
    fn resembling(&self, place: Place, before: Option<PageId>, page: &Page) -> Result<Base, Error> {
        let mut best = Base::Zero;
        let mut least = patch::distance(&[0; PAGE_LEN], page);
        let candidates: Vec<u32> = {
            let index = self.store.index();
            let before = before.and_then(|id| index.page_numbers.get(&id));
            let recent = self.writer.recent.get(&place).into_iter().flatten().rev();
            let candidates = before.into_iter().chain(recent).copied();
            let usable = |number: &u32| {
                let slot = index.pages.get(*number as usize);
                slot.is_some_and(|slot| slot.patches < PATCHES_MAX)
            };
            candidates.filter(usable).collect()
        };
        for number in candidates {
            let content = self.store.page_at(number)?;
            let distance = patch::distance(&content, page);
            if distance < least {
                least = distance;
                best = Base::Page(number, content);
            }
        }
        Ok(if least > PATCH_WORDS_MAX {
            Base::None
        } else {
            best
        })
    }

    /// Writes the pages that wait.
    fn flush(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        let (body, stored) = record::pack_body(waiting.body);
        let pages = waiting.pages;
        let meta = Meta::Pages { pages, body };
        self.store.append(self.writer, meta, &stored)
    }

    /// Writes the image itself.
    fn image(mut self, id: ImageId, way: Way, manifest: Manifest) -> Result<(), Error> {
        let base = base_of(&self.store.index(), way.parent);
        let from = match base {
            Some(base) => self.store.manifest_at(base)?,
            None => Arc::default(),
        };
        let paths = std::mem::take(&mut self.paths);
        let waiting = std::mem::take(&mut self.waiting);
        let mut plain = waiting.body;
        let (number, named) = {
            let index = self.store.index();
            // Only paths that the delta names are worth a number.
            let mut named: Vec<Arc<Path>> = Vec::new();
            let path_number = |path: &Arc<Path>| {
                index.path_number(path).unwrap_or_else(|| {
                    named.push(path.clone());
                    (index.paths.len() + named.len() - 1) as u32
                })
            };
            let first = index.pages.len() as u32;
            let end = first + waiting.pages.len() as u32;
            let age = |id: PageId| {
                let number = index.page_numbers.get(&id).copied();
                let number = number.or_else(|| waiting.ids.get(&id).map(|nth| first + nth));
                end - number.expect("pages of a manifest are in the store or wait")
            };
            let delta = delta(&from, &manifest, path_number, age);
            plain = postcard::to_extend(&delta, plain).expect("plain data can be encoded");
            (index.images.len() as u32, named)
        };
        // The numbers that places were given beforehand hold if all new paths are in the image.
        let places = std::mem::take(&mut self.places);
        let places = if named == paths { places } else { Vec::new() };
        let (body, stored) = record::pack_body(plain);
        let meta = Meta::Image {
            id,
            parent: way.parent,
            origin: way.origin,
            base,
            paths: named
                .iter()
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .collect(),
            pages: waiting.pages,
            body,
        };
        self.store.append(self.writer, meta, &stored)?;
        locked(&self.store.manifests).insert(number, Arc::new(manifest));
        let index = self.store.index();
        for (place, id) in places {
            let Some(number) = index.page_numbers.get(&id) else {
                continue;
            };
            let recent = self.writer.recent.entry(place).or_default();
            recent.retain(|other| other != number);
            if recent.len() == RECENT_LEN {
                recent.remove(0);
            }
            recent.push(*number);
        }
        Ok(())
    }
}

/// Opens a file of a view for reading, also if its owner has forbidden it to himself.
fn open_anyway(path: &Path, mode: u32) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, Permissions::from_mode(mode | 0o400))?;
            let file = File::open(path);
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            file
        }
        other => other,
    }
}

/// What a page is written relative to.
enum Base {
    None,
    Zero,
    Page(u32, Arc<Page>),
}

/// Why a file could not be copied.
enum Reading {
    Io(io::Error),
    Store(Error),
}

impl From<io::Error> for Reading {
    fn from(error: io::Error) -> Reading {
        Reading::Io(error)
    }
}

impl From<Error> for Reading {
    fn from(error: Error) -> Reading {
        Reading::Store(error)
    }
}

/// The image that the delta of a child of `parent` is relative to.
fn base_of(index: &Index, parent: Option<u32>) -> Option<u32> {
    let parent = parent?;
    let slot = |number: u32| -> &ImageSlot { &index.images[number as usize] };
    if !(slot(parent).level + 1).is_multiple_of(STRIDE) {
        return Some(parent);
    }
    let mut above = parent;
    for _ in 1..STRIDE {
        above = slot(above).ways[0].parent?;
    }
    Some(above)
}

/// Where the end of a file lies within a page, if it does.
fn tail(number: u64, len: u64) -> Option<usize> {
    let within = (len % PAGE_LEN as u64) as usize;
    (number == len / PAGE_LEN as u64 && within != 0).then_some(within)
}

/// The page without what is behind the end of its file.
fn cut(page: &Page, tail: usize) -> Page {
    let mut page = *page;
    page[tail..].fill(0);
    page
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len() as u32;
    *to = postcard::to_extend(&len, std::mem::take(to)).expect("a number can be encoded");
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use brownout_random::Random;

    use super::*;

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
        let pack = fs::read(&store.path).unwrap();
        drop(store);
        let good = records(&pack);
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
            let mut bytes = start();
            changed
                .iter()
                .for_each(|content| bytes.extend(record::seal(content)));
            fs::write(path.join(PACK), bytes).unwrap();
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
