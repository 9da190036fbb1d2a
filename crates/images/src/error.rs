//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use crate::{ImageId, InputId, PageId};

/// Why a store could not do what it was asked for. The store itself stays usable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused, for example because the disk is full.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is a store already where one was to be created.
    #[error("`{}` holds a store of images already", .0.display())]
    Exists(PathBuf),
    /// There is no store.
    #[error("`{}` holds no store of images", .0.display())]
    Missing(PathBuf),
    /// Another process writes to it.
    #[error("the store of images in `{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// It was opened for reading.
    #[error("the store of images in `{}` was opened for reading only", .0.display())]
    ReadOnly(PathBuf),
    /// The file is something else.
    #[error("`{}` is not a store of images", .0.display())]
    NotAStore(PathBuf),
    /// It was written by a version of the tool that this one does not understand.
    #[error("`{}` is a store of images of version {found}; this is made for version {expected}", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The one that is understood.
        expected: u32,
    },
    /// What is on disk is not what was written.
    #[error("`{}` is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where the record begins that is wrong.
        offset: u64,
        /// What is wrong with it.
        what: Damage,
    },
    /// An image that is not in the store.
    #[error("there is no image {0} in this store")]
    UnknownImage(ImageId),
    /// An input that is not in the store.
    #[error("there is no input {0} in this store")]
    UnknownInput(InputId),
    /// A page that is not in the store.
    #[error("there is no page {0} in this store")]
    UnknownPage(PageId),
    /// The origin does not fit: a root has no parent, everything else has one.
    #[error("an image is either a root or has a parent")]
    ParentMismatch,
    /// Contents that cannot be an image.
    #[error("`{}` cannot be part of an image: {why}", path.display())]
    BadContent {
        /// Which path.
        path: PathBuf,
        /// What is wrong with it.
        why: BadContent,
    },
}

/// What is wrong with a record on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The checksum of a record's head.
    #[error("the head of a record does not match its checksum")]
    Head,
    /// The checksum of a record.
    #[error("a record does not match its checksum")]
    Record,
    /// The checksum is right, but the record makes no sense.
    #[error("a record makes no sense: {0}")]
    Nonsense(&'static str),
    /// A page is not what its name says.
    #[error("the content of page {0} does not match its name")]
    Page(PageId),
    /// An input is not what its name says.
    #[error("the content of input {0} does not match its name")]
    Input(InputId),
    /// An image is not what its name says.
    #[error("the content of image {0} does not match its name")]
    Image(ImageId),
    /// The file has become shorter.
    #[error("the file ends within a record that was there before")]
    Gone,
}

/// Why something cannot be part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadContent {
    /// Paths are absolute and have no `.` or `..`.
    #[error("the path is not absolute and plain")]
    Path,
    /// Only a folder has something below it.
    #[error("it lies below something that is not a folder")]
    BelowNoFolder,
    /// A page that begins at the end of its file, or later.
    #[error("a page lies behind the end of the file")]
    PageBehindEnd,
    /// Pages that change a file that the parent does not have.
    #[error("pages of it are given, but the parent image has no such file")]
    NoFileInParent,
    /// Neither file, folder, link, FIFO nor socket.
    #[error("it is a device")]
    Device,
    /// More than one record can hold.
    #[error("there is too much of it")]
    TooLarge,
}

/// Says what was tried on which file.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str, path: &std::path::Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &std::path::Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            doing,
            path: path.to_owned(),
            source,
        })
    }
}
