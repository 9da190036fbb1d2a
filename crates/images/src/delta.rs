//! What a manifest has other than another one, as it is stored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::PageId;
use crate::error::Damage;
use crate::index::Index;
use crate::manifest::{Entry, Manifest, Pages};
use crate::record::{Delta, DeltaEntry, DeltaPage};

/// The paths at which two manifests differ, and what they have there.
pub(crate) fn differing<'a>(
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
pub(crate) fn delta(
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
pub(crate) fn apply(
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
