//! The file of a store, and what is known of it: records are read and appended here, and pages and
//! manifests put together from them.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cache::Cache;
use crate::content;
use crate::delta;
use crate::error::{BadContent, Damage, Doing, Error};
use crate::index::{Index, PageForm};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::record::{self, Found, Meta, START_LEN};
use crate::{PAGE_LEN, Page, PageId, patch};

/// The name of the file in the store's folder.
pub(crate) const NAME: &str = "images.pack";

/// So many pages in memory.
const PAGES_CACHED: usize = 8192;
/// So many manifests in memory. They share most of what they consist of.
const MANIFESTS_CACHED: usize = 512;
/// So many bytes of bodies of records in memory. Most are a few hundred bytes, and a page takes
/// several of them.
const BODIES_CACHED: usize = 32 << 20;
/// What a body takes in memory beside its content, about.
const BODY_OVERHEAD: usize = 200;

/// A file of records, with its index and what was read of it lately.
pub(crate) struct Pack {
    pub folder: PathBuf,
    pub path: PathBuf,
    pub file: File,
    /// Keeps others from writing.
    _lock: Option<Lock>,
    index: RwLock<Index>,
    pages: Mutex<Cache<u32, Arc<Page>>>,
    manifests: Mutex<Cache<u32, Arc<Manifest>>>,
    bodies: Mutex<Cache<u64, Arc<Opened>>>,
}

/// Where the file ends; whoever has this may append.
pub(crate) struct Tail {
    /// Where the next record begins.
    len: u64,
    /// Something that does not count may follow there: a write that failed.
    litter: bool,
}

/// A body that was read.
struct Opened {
    plain: Vec<u8>,
    /// Where its pages are.
    pages: Vec<Range<usize>>,
    /// Where what follows them begins.
    rest: usize,
}

/// What was cut off from a damaged store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// What was wrong first.
    pub what: Damage,
    /// Where; what lies before it is still there.
    pub offset: u64,
    /// How many bytes were cut off.
    pub lost_bytes: u64,
    /// The file that has them now.
    pub kept_as: PathBuf,
}

/// Opens the file, for writing only if nobody else does, and sees that it is one of ours.
fn open_file(folder: &Path, path: &Path, write: bool) -> Result<(File, Option<Lock>), Error> {
    let opened = OpenOptions::new().read(true).write(write).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing(folder.to_owned()));
        }
        opened => opened.doing("open", path)?,
    };
    let lock = if write {
        let lock = Lock::take(folder).doing("lock", folder)?;
        Some(lock.ok_or_else(|| Error::InUse(folder.to_owned()))?)
    } else {
        None
    };
    let mut first = [0; START_LEN as usize];
    let read = content::read_full(&file, &mut first, 0).doing("read", path)?;
    if read < first.len() || !first.starts_with(record::MAGIC) {
        return Err(Error::NotAStore(path.to_owned()));
    }
    let found = u32::from_le_bytes([first[12], first[13], first[14], first[15]]);
    if found != record::VERSION {
        return Err(Error::Version {
            path: path.to_owned(),
            found,
            expected: record::VERSION,
        });
    }
    Ok((file, lock))
}

/// Cuts a file off where it is damaged first, and keeps what was cut off beside it.
pub(crate) fn salvage(folder: &Path) -> Result<Option<Salvaged>, Error> {
    let path = folder.join(NAME);
    let (file, _lock) = open_file(folder, &path, true)?;
    let len = file.metadata().doing("look at", &path)?.len();
    let (offset, what) = match scan(&file, &path, len, &mut Index::default()) {
        Ok(_) => return Ok(None),
        Err(Error::Damaged { offset, what, .. }) => (offset, what),
        Err(error) => return Err(error),
    };
    let names = (1..).map(|n| folder.join(format!("{NAME}.damaged-{n}")));
    for kept_as in names {
        let mut kept = match File::create_new(&kept_as) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created.doing("make", &kept_as)?,
        };
        let mut rest = File::open(&path).doing("open", &path)?;
        let copied = rest
            .seek(SeekFrom::Start(offset))
            .and_then(|_| io::copy(&mut rest, &mut kept))
            .and_then(|lost_bytes| kept.sync_all().map(|()| lost_bytes));
        let lost_bytes = copied.doing("write", &kept_as)?;
        file.set_len(offset).doing("shorten", &path)?;
        return Ok(Some(Salvaged {
            what,
            offset,
            lost_bytes,
            kept_as,
        }));
    }
    unreachable!("there are names without end")
}

impl Pack {
    /// Opens what is there; drops a record that was cut short if it is to be written to.
    pub fn open(folder: &Path, write: bool) -> Result<(Pack, Tail), Error> {
        let path = folder.join(NAME);
        let (file, lock) = open_file(folder, &path, write)?;
        let mut index = Index::default();
        let len = file.metadata().doing("look at", &path)?.len();
        let end = scan(&file, &path, len, &mut index)?;
        if write && end < len {
            file.set_len(end).doing("shorten", &path)?;
        }
        let pack = Pack {
            folder: folder.to_owned(),
            path,
            file,
            _lock: lock,
            index: RwLock::new(index),
            pages: Mutex::new(Cache::new(PAGES_CACHED)),
            manifests: Mutex::new(Cache::new(MANIFESTS_CACHED)),
            bodies: Mutex::new(Cache::new(BODIES_CACHED)),
        };
        let litter = false;
        Ok((pack, Tail { len: end, litter }))
    }

    /// Forgets everything but where it is, so that it is read anew.
    pub fn forget(&self) {
        locked(&self.pages).clear();
        locked(&self.manifests).clear();
        locked(&self.bodies).clear();
    }

    /// Keeps a manifest in memory that nobody had to read.
    pub fn remember(&self, number: u32, manifest: Manifest) {
        locked(&self.manifests).insert(number, Arc::new(manifest), 1);
    }

    /// The page with that name.
    pub fn page(&self, id: PageId) -> Result<Arc<Page>, Error> {
        let number = self.index().page_numbers.get(&id).copied();
        self.page_at(number.ok_or(Error::UnknownPage(id))?)
    }

    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
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

    pub fn damaged(&self, offset: u64, what: Damage) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            offset,
            what,
        }
    }

    /// The record at a place, with its body as it was before it was packed.
    pub fn read(&self, offset: u64) -> Result<(Meta, Vec<u8>), Error> {
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
        let weight = opened.plain.len() + BODY_OVERHEAD;
        locked(&self.bodies).insert(offset, opened.clone(), weight);
        Ok(opened)
    }

    /// The page with that number.
    pub fn page_at(&self, number: u32) -> Result<Arc<Page>, Error> {
        if let Some(page) = locked(&self.pages).get(number) {
            return Ok(page);
        }
        let page = self.page_from_disk(number)?;
        locked(&self.pages).insert(number, page.clone(), 1);
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

    /// What the image with that number consists of.
    pub fn manifest_at(&self, number: u32) -> Result<Arc<Manifest>, Error> {
        if let Some(manifest) = locked(&self.manifests).get(number) {
            return Ok(manifest);
        }
        let manifest = self.manifest_from_disk(number)?;
        locked(&self.manifests).insert(number, manifest.clone(), 1);
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
            let applied = delta::apply(
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

    /// Writes a record and takes note of it, or does neither.
    pub fn append(&self, tail: &mut Tail, meta: Meta, body: &[u8]) -> Result<(), Error> {
        let too_large = || Error::BadContent {
            path: self.path.clone(),
            why: BadContent::TooLarge,
        };
        let record = record::frame(&meta, body).ok_or_else(too_large)?;
        if tail.litter {
            self.file.set_len(tail.len).doing("shorten", &self.path)?;
            tail.litter = false;
        }
        let offset = tail.len;
        if let Err(error) = self.file.write_all_at(&record, offset) {
            tail.litter = self.file.set_len(offset).is_err();
            return Err(error).doing("write", &self.path);
        }
        let noted = self.index_mut().note(meta, offset);
        if let Err(what) = noted {
            // Never, but for more things than there are numbers; what does not count must not stay.
            tail.litter = self.file.set_len(offset).is_err();
            return Err(self.damaged(offset, what));
        }
        tail.len += record.len() as u64;
        Ok(())
    }
}

/// How a file begins.
pub(crate) fn start() -> Vec<u8> {
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

/// What a thread that panicked has left in one of our caches is whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
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
