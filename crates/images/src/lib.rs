//! Images of a program's files: a tree of them, content-addressed, as differences, on disk.
//!
//! An *image* is what a program's files hold: every path that differs from the user's machine, with
//! its content in pages of 4 KiB. Fuzzing makes images by the hundred thousand, each from another
//! one: by running the program on it, or by a crash of such a run. So they form a tree, in which
//! neighbours differ in a few words, and a [`Store`] keeps that tree in one file.
//!
//! ```
//! use std::path::PathBuf;
//!
//! use brownout_images::{Content, Contents, Origin, Store, View, lay};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let store = Store::create(&folder.path().join("store"))?;
//! // A pool of 8 MiB, of which one page is not empty.
//! let mut page = Box::new([0; 4096]);
//! page[..4].copy_from_slice(b"POOL");
//! let (mode, len) = (0o644, 8 << 20);
//! let pages = vec![(0, page.clone())];
//! let pool = PathBuf::from("/pm/pool");
//! let contents = Contents::whole([(pool.clone(), Content::File { mode, len, pages })]);
//! let root = store.add(None, Origin::Root("make-pool".into()), &contents)?;
//!
//! // A run has changed a word of it.
//! page[100] = 1;
//! let input = store.input(b"insert 5\n")?;
//! let pages = vec![(0, page)];
//! let contents = Contents::changes([(pool, Content::Pages { mode, len, pages })]);
//! let after = store.add(Some(root.id), Origin::Run { input }, &contents)?;
//! assert!(after.is_new);
//!
//! // As files again, from nothing, and then by what differs.
//! let below = |path: &std::path::Path| folder.path().join(path.strip_prefix("/").unwrap_or(path));
//! let nothing = |_: &std::path::Path| folder.path().join("nothing");
//! let view = View { at: &below, machine: &nothing };
//! lay(&store.difference(None, after.id)?, &view)?;
//! assert_eq!(std::fs::read(folder.path().join("pm/pool"))?[100], 1);
//! lay(&store.difference(Some(after.id), root.id)?, &view)?;
//! assert_eq!(std::fs::read(folder.path().join("pm/pool"))?[100], 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! - The same content is one image, whatever way it came about; its name, the [`ImageId`], follows
//!   from its content alone. Further ways to it are kept, a few of them, and the shortest is the
//!   one that [`Store::chain`] and [`Store::export`] tell.
//! - A process that is killed at any moment loses nothing for which [`Store::add`] or
//!   [`Store::input`] has returned. What it was writing is dropped when the store is opened. After
//!   a failure of the machine that holds for what was there at the last [`Store::sync`].
//! - If the disk is full, an addition fails, and the store is as it was before.
//! - Whatever is read was compared with its checksum, and pages, inputs and images with their
//!   names. A store that was damaged says so, and where ([`Error::Damaged`]); it never gives wrong
//!   contents. [`Store::salvage`] saves what lies before the damage.
//! - The same additions in the same order give the same ids and numbers.
//!
//! # How it is stored
//!
//! ```text
//!  store     the tree: nodes, ways, chains; what differs between two images
//!    ▼
//!  adding    contents become a manifest, new pages and a delta
//!    ▼
//!  pack      the file with its index: records appended and read, pages and manifests put together
//!    ▼
//!  record    what is on disk          delta, patch   manifests and pages as differences
//! ```
//!
//! The file is a sequence of records (`src/record.rs` has the format). A record of an image has the
//! pages that are new with it, and the *delta*, by which its manifest differs from that of its
//! parent. (At every 32nd level the delta is relative to the image 32 levels above, so that a
//! manifest 1,000 levels deep takes 40 records.) A page is written as the words in which it
//! differs from a page that stood at the same place in the same file lately, whichever is nearest;
//! at most 8 patches lead to a page. All of a record is then compressed together. An index of where
//! everything is lies in memory only: a store is read once when it is opened.
//!
//! What that is worth, in bytes on disk for an image, over 100 runs of ten commands and 24 crash
//! images of each (`examples/measure.rs`):
//!
//! | pages are written as | `btree` | `hashmap_tx` | 20 lines in 8 MiB |
//! |---|---:|---:|---:|
//! | they are | 368 | 464 | 634 |
//! | what differs from the parent's | 200 | 187 | 136 |
//! | what differs from the nearest | 155 | 178 | 132 |
//!
//! Adding one takes 30 µs, a manifest 30 levels deep 0.25 ms, and laying an image about 8 µs a
//! page. 110,000 images (the last column) are 17 MB on disk and 125 MB in memory, caches included.
//!
//! # What an image does not hold
//!
//! Owners, times and extended attributes of files. Devices. That two names are one file: each
//! becomes a file of its own ([`capture`] says so).

mod adding;
mod cache;
mod content;
mod delta;
mod error;
mod id;
mod index;
mod lay;
mod lock;
mod manifest;
mod origin;
mod pack;
mod patch;
mod record;
mod store;

pub use content::{Captured, Content, Contents, Others, View, capture};
pub use error::{BadContent, Damage, Error};
pub use id::{BadId, ImageId, InputId, Page, PageId};
pub use lay::{Change, Target, lay};
pub use manifest::{Entry, Manifest, Pages, Special};
pub use origin::{
    Action, Chain, FailureLocation, Kept, LeftOut, Moment, Node, Origin, Step, WhyLeftOut,
};
pub use pack::Salvaged;
pub use store::{Added, Statistics, Store};

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;
