//! What can be wrong with a store log, and where.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a log could not be read (further). What was read before stays valid.
#[derive(Clone, Debug)]
pub enum Error {
    /// It does not begin as a store log does.
    NotAStoreLog {
        /// One clause: what it has instead.
        what: &'static str,
    },
    /// It ends before the program did. All whole elements were given out.
    Truncated {
        /// Where the element begins that is cut off; the length of the log if none is.
        offset: u64,
        /// Events given out.
        events: u64,
    },
    /// It holds something that pmemcheck does not write.
    Corrupt {
        /// Where the element begins.
        offset: u64,
        /// One clause: what is wrong with it, and a way out if there is one.
        what: &'static str,
    },
    /// The operating system failed.
    Io {
        /// Byte offset at which the log was read.
        offset: u64,
        /// Its error.
        source: Arc<io::Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAStoreLog { what } => write!(
                f,
                "this is not a store log of pmemcheck: {what} (logs are made by \
                 valgrind --tool=pmemcheck --log-stores=yes --log-file=FILE)"
            ),
            Error::Truncated { offset, events } => write!(
                f,
                "the store log is cut off at byte {offset}: it has no STOP, and the {events} events before are \
                 not the whole run"
            ),
            Error::Corrupt { offset, what } => {
                write!(f, "the store log is corrupt at byte {offset}: {what}")
            }
            Error::Io { offset, source } => {
                write!(f, "cannot read the store log at byte {offset}: {source}")
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
