//! Cache lines of tracked files, whoever maps them where: what recovery reads and what a crash
//! leaves are told by the line.

use brownout_model::{Key, LINE_BYTES, keys};
use brownout_trace::event::FileId;

/// Bytes of a cache line.
pub const LINE: usize = LINE_BYTES as usize;

/// A cache line of a tracked file: its first [key](keys) divided by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineKey(pub u64);

impl LineKey {
    /// The line that holds a key.
    pub fn of(key: u64) -> LineKey {
        LineKey(key / LINE_BYTES)
    }

    /// Key of the first byte.
    pub fn start(self) -> u64 {
        self.0 * LINE_BYTES
    }

    /// The file.
    pub fn file(self) -> FileId {
        keys::place(Key(self.start())).0
    }

    /// Offset in the file of the first byte.
    pub fn offset(self) -> u64 {
        keys::place(Key(self.start())).1
    }
}
