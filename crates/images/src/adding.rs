//! How contents become an image in a store.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::content::{self, Content, Contents, Others, is_zero, permissions, plain_path};
use crate::delta::delta;
use crate::error::{BadContent, Doing, Error};
use crate::index::{ImageSlot, Index, PATCHES_MAX, Way};
use crate::lay::special;
use crate::manifest::{Entry, Manifest, Pages, page_count};
use crate::pack::{Pack, Tail};
use crate::record::{self, Form, Meta, NewPage};
use crate::{ImageId, PAGE_LEN, Page, PageId, patch};

/// Pages wait for their image until they are this many bytes; then they get a record of their own.
const WAITING_MAX: usize = 1 << 16;
/// An image whose level is a multiple of this is written as what differs from the one that is so
/// many levels above it, so that few deltas lead to an image however deep it is.
const STRIDE: u32 = 32;
/// A page that differs from another in more words than this is written as a whole.
const PATCH_WORDS_MAX: usize = PAGE_LEN / 8 / 2;
/// So many pages that stood at a place lately may be what the next one there resembles.
const RECENT_LEN: usize = 4;

/// What only the one who writes needs.
pub(crate) struct Writer {
    pub tail: Tail,
    /// Pages that stood at a place lately; the last is the newest.
    recent: HashMap<Place, Vec<u32>>,
}

impl Writer {
    pub fn new(tail: Tail) -> Writer {
        Writer {
            tail,
            recent: HashMap::new(),
        }
    }
}

/// A page of a file, by the number of its path.
type Place = (u32, u64);

/// The names of pages that are given, by path, in the order in which they are given.
pub(crate) type Names<'a> = HashMap<&'a Path, Vec<PageId>>;

/// The names of all pages that are given, by path, in the order in which they are given.
pub(crate) fn names_of_pages(contents: &Contents) -> Names<'_> {
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
pub(crate) struct Adding<'a> {
    pack: &'a Pack,
    writer: &'a mut Writer,
    /// The parent.
    before: &'a Manifest,
    names: &'a Names<'a>,
    waiting: Waiting,
    /// Paths that are new to the store, in the order in which they get their numbers.
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

impl<'a> Adding<'a> {
    pub fn new(
        pack: &'a Pack,
        writer: &'a mut Writer,
        before: &'a Manifest,
        names: &'a Names<'a>,
    ) -> Adding<'a> {
        Adding {
            pack,
            writer,
            before,
            names,
            waiting: Waiting::default(),
            paths: Vec::new(),
            places: Vec::new(),
        }
    }

    /// What the image consists of. Writes pages, if there are many.
    pub fn resolve(&mut self, contents: &Contents) -> Result<Manifest, Error> {
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
        let index = self.pack.index();
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
                let page = self.pack.page(id)?;
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
        let file = content::open_anyway(from, mode).doing("open", from)?;
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
        let is_known = self.pack.index().page_numbers.contains_key(&id);
        if is_known || self.waiting.ids.contains_key(&id) {
            return Ok(Some(id));
        }
        let base = self.resembling(place, before, page)?;
        let number = (self.pack.index().pages.len() + self.waiting.pages.len()) as u32;
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
            let index = self.pack.index();
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
            let content = self.pack.page_at(number)?;
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
        self.pack.append(&mut self.writer.tail, meta, &stored)
    }

    /// Writes the image itself.
    pub fn image(mut self, id: ImageId, way: Way, manifest: Manifest) -> Result<(), Error> {
        let base = base_of(&self.pack.index(), way.parent);
        let from = match base {
            Some(base) => self.pack.manifest_at(base)?,
            None => Arc::default(),
        };
        let paths = std::mem::take(&mut self.paths);
        let waiting = std::mem::take(&mut self.waiting);
        let mut plain = waiting.body;
        let (number, named) = {
            let index = self.pack.index();
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
        self.pack.append(&mut self.writer.tail, meta, &stored)?;
        self.pack.remember(number, manifest);
        let index = self.pack.index();
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
