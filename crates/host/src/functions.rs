//! Where a program or library has the functions whose calls are recorded.
//!
//! A file that cannot be read or parsed has none: its calls are then not seen, which loses performance findings and
//! causes none.

use brownout_trace::event::LIBRARY_FUNCTIONS;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::Path;

/// Code of a file as it is mapped.
pub struct Mapped {
    /// Address of its first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// It is the program itself. That has such functions only if the library is linked into it.
    pub is_program: bool,
}

/// Addresses in the mapping, with numbers as in [`LIBRARY_FUNCTIONS`].
pub fn find(path: &Path, mapped: &Mapped) -> BTreeMap<u64, u32> {
    let mut found = BTreeMap::new();
    let Ok(bytes) = std::fs::read(path) else {
        return found;
    };
    let Ok(file) = object::File::parse(&*bytes) else {
        return found;
    };
    let dynamic = file.section_by_name(".interp").is_some();
    if mapped.is_program && dynamic {
        return found;
    }
    // Both tables: a stripped library has the first only, a static program the second.
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if !symbol.is_definition() {
            continue;
        }
        let Some(number) = LIBRARY_FUNCTIONS.iter().position(|f| *f == name) else {
            continue;
        };
        let place = file.segments().find_map(|segment| {
            let into = symbol.address().checked_sub(segment.address())?;
            (into < segment.size()).then(|| segment.file_range().0 + into)
        });
        if let Some(into) = place.and_then(|place| place.checked_sub(mapped.offset))
            && into < mapped.len
        {
            found.insert(mapped.start + into, number as u32);
        }
    }
    found
}
