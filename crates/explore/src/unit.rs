//! What is written back at once: lines of persistent memory, pages of ordinary files.
//!
//! A unit is known by its number alone: contents of ordinary files have numbers of their own range
//! ([`ORDINARY`]), so that its number tells of which kind it is.

use brownout_model::{Key, Unit, keys};
use brownout_trace::event::FileId;

/// Contents of ordinary files have numbers from here on.
pub const ORDINARY: u32 = 1 << 19;
/// An ordinary file is written back by the page.
pub const PAGE: u64 = 4096;

/// Whether a content is that of an ordinary file.
pub fn is_ordinary(content: FileId) -> bool {
    content.0 >= ORDINARY
}

/// Whether a unit is a page of an ordinary file.
pub fn is_page(unit: Unit) -> bool {
    unit.0 >= keys::key(FileId(ORDINARY), 0).0 / PAGE
}

/// The unit that holds a key; `unit_bytes` are those of the domain.
pub fn unit_of(key: u64, unit_bytes: u64) -> Unit {
    match is_ordinary(keys::place(Key(key)).0) {
        true => Unit(key / PAGE),
        false => Unit(key / unit_bytes),
    }
}

/// Bytes of a unit.
pub fn bytes_of(unit: Unit, unit_bytes: u64) -> u64 {
    if is_page(unit) { PAGE } else { unit_bytes }
}
