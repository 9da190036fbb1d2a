//! What a store knows without looking at its file: rebuilt from the records when it is opened, and
//! kept in step with what is written.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::content::plain_path;
use crate::error::Damage;
use crate::origin::{Node, Origin};
use crate::record::{Form, Meta, NewPage, StoredOrigin};
use crate::{ImageId, InputId, PageId};

/// So many pages may have to be read for one; each is a patch of the next.
pub(crate) const PATCHES_MAX: u8 = 8;
/// So many ways to an image are kept.
pub(crate) const WAYS_MAX: usize = 4;

/// Where things are. Images, pages, inputs and paths have numbers, in order of arrival.
#[derive(Default)]
pub(crate) struct Index {
    pub images: Vec<ImageSlot>,
    pub image_numbers: HashMap<ImageId, u32>,
    pub pages: Vec<PageSlot>,
    pub page_numbers: HashMap<PageId, u32>,
    pub inputs: Vec<InputSlot>,
    pub input_numbers: HashMap<InputId, u32>,
    pub paths: Vec<Arc<Path>>,
    pub path_numbers: HashMap<Arc<Path>, u32>,
}

pub(crate) struct ImageSlot {
    pub id: ImageId,
    /// Where its record begins.
    pub offset: u64,
    /// What its delta is relative to.
    pub base: Option<u32>,
    /// How many pages the store had when it had come.
    pub page_count: u32,
    /// How many steps from its root it was when it came.
    pub level: u32,
    /// How many it is now.
    pub depth: u32,
    /// How it can be made; the first is how it came.
    pub ways: Vec<Way>,
    /// Which of these is the shortest, the first among equals.
    pub best: usize,
    /// Images that have it as the parent of a way.
    pub followers: Vec<u32>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct Way {
    pub parent: Option<u32>,
    pub origin: StoredOrigin,
}

#[derive(Clone, Copy)]
pub(crate) struct PageSlot {
    pub id: PageId,
    /// Where the record begins that has it.
    pub offset: u64,
    /// Which of its pages it is.
    pub within: u32,
    pub form: PageForm,
    /// How many other pages it needs.
    pub patches: u8,
}

/// How a page is written; like [`Form`], with the page's number.
#[derive(Clone, Copy)]
pub(crate) enum PageForm {
    Whole,
    Zero,
    Patch(u32),
}

pub(crate) struct InputSlot {
    pub id: InputId,
    pub offset: u64,
}

impl Index {
    /// Takes note of a record. If it makes no sense, nothing is changed.
    pub fn note(&mut self, meta: Meta, offset: u64) -> Result<(), Damage> {
        match meta {
            Meta::Input { id, .. } => self.note_input(id, offset),
            Meta::Pages { pages, .. } => self.note_pages(&pages, offset),
            Meta::Image {
                id,
                parent,
                origin,
                base,
                paths,
                pages,
                ..
            } => {
                let way = Way { parent, origin };
                self.note_image(id, way, base, paths, &pages, offset)
            }
            Meta::Way {
                image,
                parent,
                origin,
            } => self.note_way(image, Way { parent, origin }),
        }
    }

    fn note_input(&mut self, id: InputId, offset: u64) -> Result<(), Damage> {
        let number = next(self.inputs.len())?;
        if self.input_numbers.contains_key(&id) {
            return Err(Damage::Nonsense("an input is there twice"));
        }
        self.inputs.push(InputSlot { id, offset });
        self.input_numbers.insert(id, number);
        Ok(())
    }

    fn note_pages(&mut self, pages: &[NewPage], offset: u64) -> Result<(), Damage> {
        let before = self.pages.len();
        let noted = pages.iter().enumerate().try_for_each(|(within, page)| {
            let number = next(self.pages.len())?;
            let (form, patches) = match page.form {
                Form::Whole => (PageForm::Whole, 0),
                Form::Zero => (PageForm::Zero, 0),
                Form::Patch(age) => {
                    let base = number.checked_sub(age).filter(|base| *base < number);
                    let base = base.ok_or(Damage::Nonsense("a page is a patch of none"))?;
                    (PageForm::Patch(base), self.pages[base as usize].patches + 1)
                }
            };
            if patches > PATCHES_MAX {
                return Err(Damage::Nonsense("a page is a patch of too many"));
            }
            if self.page_numbers.insert(page.id, number).is_some() {
                // It would be worse to have taken the old one away.
                return Err(Damage::Nonsense("a page is there twice"));
            }
            self.pages.push(PageSlot {
                id: page.id,
                offset,
                within: within as u32,
                form,
                patches,
            });
            Ok(())
        });
        if noted.is_err() {
            // The index is as it was, so that a reader goes on with what is sound.
            self.pages.truncate(before);
            let known = self.pages.iter().zip(0..);
            self.page_numbers = known.map(|(page, number)| (page.id, number)).collect();
        }
        noted
    }

    fn note_image(
        &mut self,
        id: ImageId,
        way: Way,
        base: Option<u32>,
        paths: Vec<Vec<u8>>,
        pages: &[NewPage],
        offset: u64,
    ) -> Result<(), Damage> {
        let number = next(self.images.len())?;
        if self.image_numbers.contains_key(&id) {
            return Err(Damage::Nonsense("an image is there twice"));
        }
        if base.is_some_and(|base| base >= number) {
            return Err(Damage::Nonsense(
                "an image differs from one that is not there",
            ));
        }
        self.examine(&way)?;
        let mut new_paths: Vec<Arc<Path>> = Vec::new();
        for path in paths {
            let path = Path::new(OsStr::from_bytes(&path));
            let plain = plain_path(path).filter(|plain| plain.as_os_str() == path.as_os_str());
            let plain = plain.ok_or(Damage::Nonsense("a path is not absolute and plain"))?;
            new_paths.push(plain.into());
        }
        self.note_pages(pages, offset)?;
        for path in new_paths {
            let number = self.paths.len() as u32;
            self.paths.push(path.clone());
            self.path_numbers.insert(path, number);
        }
        let depth = self.depth_by(&way);
        if let Some(parent) = way.parent {
            self.images[parent as usize].followers.push(number);
        }
        self.images.push(ImageSlot {
            id,
            offset,
            base,
            page_count: self.pages.len() as u32,
            level: match way.parent {
                Some(parent) => self.images[parent as usize].level.saturating_add(1),
                None => 0,
            },
            depth,
            ways: vec![way],
            best: 0,
            followers: Vec::new(),
        });
        self.image_numbers.insert(id, number);
        Ok(())
    }

    fn note_way(&mut self, image: u32, way: Way) -> Result<(), Damage> {
        if image as usize >= self.images.len() {
            return Err(Damage::Nonsense(
                "a way leads to an image that is not there",
            ));
        }
        self.examine(&way)?;
        if let Some(parent) = way.parent {
            self.images[parent as usize].followers.push(image);
        }
        let slot = &mut self.images[image as usize];
        if slot.ways.len() < WAYS_MAX {
            slot.ways.push(way);
        } else {
            // The first stays; of the others the last goes, unless it is the best.
            let out = if slot.best == WAYS_MAX - 1 {
                WAYS_MAX - 2
            } else {
                WAYS_MAX - 1
            };
            slot.ways[out] = way;
        }
        self.shorten(image);
        Ok(())
    }

    /// Whether another way to an image is worth being kept.
    pub fn wants(&self, image: u32, way: &Way) -> bool {
        let slot = &self.images[image as usize];
        way.parent != Some(image)
            && !slot.ways.contains(way)
            && (slot.ways.len() < WAYS_MAX || self.depth_by(way) < slot.depth)
    }

    /// Finds the best way to an image, and from there to those that follow.
    fn shorten(&mut self, image: u32) {
        let mut left = vec![image];
        while let Some(image) = left.pop() {
            let slot = &self.images[image as usize];
            let ways = slot.ways.iter().enumerate();
            let depths = ways.map(|(n, way)| (self.depth_by(way), n));
            let Some((depth, best)) = depths.min() else {
                continue;
            };
            if depth < slot.depth {
                let slot = &mut self.images[image as usize];
                (slot.depth, slot.best) = (depth, best);
                left.extend_from_slice(&slot.followers);
            }
        }
    }

    fn depth_by(&self, way: &Way) -> u32 {
        let parent = way.parent.map(|parent| &self.images[parent as usize]);
        parent.map_or(0, |parent| parent.depth.saturating_add(1))
    }

    fn examine(&self, way: &Way) -> Result<(), Damage> {
        let is_root = matches!(way.origin, StoredOrigin::Root(_));
        if is_root != way.parent.is_none() {
            return Err(Damage::Nonsense(
                "an image is neither a root nor has a parent",
            ));
        }
        if way
            .parent
            .is_some_and(|parent| parent as usize >= self.images.len())
        {
            return Err(Damage::Nonsense(
                "an image comes from one that is not there",
            ));
        }
        match way.origin {
            StoredOrigin::Run { input } | StoredOrigin::Crash { input, .. }
                if input as usize >= self.inputs.len() =>
            {
                Err(Damage::Nonsense(
                    "an image comes from an input that is not there",
                ))
            }
            _ => Ok(()),
        }
    }

    pub fn node(&self, number: u32) -> Node {
        let slot = &self.images[number as usize];
        let (parent, origin) = self.way(&slot.ways[slot.best]);
        Node {
            id: slot.id,
            number,
            parent,
            origin,
            depth: slot.depth,
        }
    }

    /// As others know it.
    pub fn way(&self, way: &Way) -> (Option<ImageId>, Origin) {
        let input = |number: u32| self.inputs[number as usize].id;
        let origin = match &way.origin {
            StoredOrigin::Root(what) => Origin::Root(what.clone()),
            StoredOrigin::Run { input: number } => Origin::Run {
                input: input(*number),
            },
            StoredOrigin::Crash { input: number, at } => Origin::Crash {
                input: input(*number),
                at: at.clone(),
            },
            StoredOrigin::Flipped { seed } => Origin::Flipped { seed: *seed },
        };
        let parent = way.parent.map(|parent| self.images[parent as usize].id);
        (parent, origin)
    }

    /// Whether a path is known, and its number.
    pub fn path_number(&self, path: &Path) -> Option<u32> {
        self.path_numbers.get(path).copied()
    }
}

/// The number of what comes next.
fn next(len: usize) -> Result<u32, Damage> {
    u32::try_from(len).map_err(|_| Damage::Nonsense("there are too many of them"))
}
