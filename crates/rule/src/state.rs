//! How far stores have come.

use crate::event::{Place, Site};

/// How far the last store to some bytes has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// In the cache. May persist at any time, or never.
    Dirty,
    /// With a write-back under way. Persistent at the next fence of a thread that flushed it.
    Flushing,
    /// Stored past the cache. Persistent at the next fence of the thread that stored it.
    Draining,
    /// Survives every crash from here on.
    Persisted,
}

/// The last store to some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which bytes. The address is 0 if the event's process does not see them.
    pub place: Place,
    /// How far it has come.
    pub state: State,
    /// Who stored, where and when.
    pub store: Site,
}
