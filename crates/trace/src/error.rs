//! What can be wrong with a trace file, and where.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::format::VERSION;

/// Where in a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Byte offset in the file.
    pub offset: u64,
    /// Number of the block, from 0; the number of blocks read before it.
    pub block: u64,
    /// Index of the first event that could not be read; the events before it were.
    pub event: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {} (block {}, event {})",
            self.offset, self.block, self.event
        )
    }
}

/// Why a trace could not be read (further). What was read before stays valid.
#[derive(Clone, Debug)]
pub enum Error {
    /// The file does not begin as a trace does.
    NotATrace {
        /// One clause: what it has instead.
        what: &'static str,
    },
    /// Written by another version of the format.
    UnsupportedVersion {
        /// The version that the file says.
        found: u32,
    },
    /// The file ends before the recording did: the recorder was killed, or the disk was full.
    Truncated(Place),
    /// The file's content is damaged.
    Corrupt {
        /// Where the damaged block begins.
        place: Place,
        /// One clause: what is wrong with it.
        what: &'static str,
    },
    /// The operating system failed.
    Io {
        /// Byte offset at which the file was read.
        offset: u64,
        /// Its error.
        source: Arc<io::Error>,
    },
}

impl Error {
    pub(crate) fn io(offset: u64, source: io::Error) -> Error {
        Error::Io {
            offset,
            source: Arc::new(source),
        }
    }

    /// Where reading stopped, for damage inside the event blocks.
    pub fn place(&self) -> Option<Place> {
        match self {
            Error::Truncated(place) | Error::Corrupt { place, .. } => Some(*place),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotATrace { what } => write!(f, "this is not a Brownout trace: {what}"),
            Error::UnsupportedVersion { found } => write!(
                f,
                "this trace has format version {found}, and this program reads version {VERSION}"
            ),
            Error::Truncated(place) => write!(
                f,
                "the trace is cut off at byte {}: {} events in {} blocks are readable",
                place.offset, place.event, place.block
            ),
            Error::Corrupt { place, what } => write!(f, "the trace is corrupt at {place}: {what}"),
            Error::Io { offset, source } => {
                write!(f, "cannot read the trace at byte {offset}: {source}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
