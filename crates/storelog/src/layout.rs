//! Where in a log's address space each file lies.
//!
//! A file gets one range of addresses, in which its byte at offset n has address base + n, and is
//! registered once. In the common case, a file mapped once and whole, these are the addresses of
//! the program. But programs map files in pieces, twice, or after another file at the same address,
//! and `pmreorder` cannot follow that: it ignores the offset in `REGISTER_FILE`, does a store in
//! *every* registered file that has its address, and drops a second registration at the same place.
//!
//! A file that outgrows its range is registered again at another place, and stores go there from
//! then on.

use std::collections::HashMap;
use std::io;

use brownout_trace::event::FileId;

use crate::ranges::Ranges;

/// Where ranges are made up; far from what the kernel hands out.
const MADE_UP_FROM: u64 = 0x1000_0000_0000;
const MADE_UP_ALIGN: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// A range of addresses for a file, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub base: u64,
    pub size: u64,
}

#[derive(Debug)]
struct File {
    path: Vec<u8>,
    size: u64,
    /// The last one is in use; stores that are not yet persistent may lie in the others.
    places: Vec<Place>,
}

/// All files and their ranges.
#[derive(Debug, Default)]
pub struct Layout {
    files: HashMap<FileId, File>,
    taken: Ranges,
}

impl Layout {
    /// Takes note of a file.
    pub fn define(&mut self, file: FileId, path: &[u8], size: u64) {
        let path = path.to_vec();
        let places = Vec::new();
        self.files.insert(file, File { path, size, places });
    }

    /// The file's size was set; it counts when the file is placed the next time.
    pub fn resize(&mut self, file: FileId, size: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.size = file.size.max(size);
        }
    }

    /// The ranges that a file has had.
    pub fn places(&self, file: FileId) -> &[Place] {
        self.files.get(&file).map_or(&[], |file| &file.places)
    }

    /// A range for `file` that holds its bytes before `end`, at `wanted` if that is possible. With
    /// it, the path under which it must be registered, if it is new.
    pub fn place(
        &mut self,
        file: FileId,
        end: u64,
        wanted: Option<u64>,
    ) -> io::Result<(Place, Option<&str>)> {
        let Some(known) = self.files.get_mut(&file) else {
            return Err(invalid(format!("file {file} is used, and never defined")));
        };
        if let Some(&place) = known.places.last()
            && end <= place.size
        {
            return Ok((place, None));
        }
        let size = known.size.max(end);
        let path = registrable(&known.path)?;
        let is_free = |&base: &u64| {
            base.checked_add(size - 1)
                .is_some_and(|last| !self.taken.touches(base, last))
        };
        // Words stay words: the place inside the page is kept.
        let in_page = wanted.unwrap_or(0) % PAGE;
        let made_up = || {
            let base = self
                .taken
                .free(MADE_UP_FROM, size.checked_add(in_page)?, MADE_UP_ALIGN)?;
            Some(base + in_page)
        };
        let Some(base) = wanted.filter(is_free).or_else(made_up) else {
            return Err(invalid(format!(
                "{path} is too large to have a place in the log"
            )));
        };
        self.taken.insert(base, base + (size - 1));
        let place = Place { base, size };
        known.places.push(place);
        Ok((place, Some(path)))
    }
}

/// The path as text, if `pmreorder` can find the file by it.
fn registrable(path: &[u8]) -> io::Result<&str> {
    let text = str::from_utf8(path).map_err(|_| {
        invalid(format!(
            "the path {} is not UTF-8, and pmreorder reads nothing else; rename the file",
            path.escape_ascii()
        ))
    })?;
    let why = if text.contains(['|', ';']) || text.contains(char::is_control) {
        "has a character that ends a field of the log"
    } else if text.contains("START") {
        "has START in it, which pmreorder takes for the beginning of the log"
    } else {
        return Ok(text);
    };
    Err(invalid(format!(
        "the path {} {why}; rename the file",
        text.escape_debug()
    )))
}

pub fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.define(A, b"/pm/a", 0x3000);
        layout.define(B, b"/pm/b", 0x1000);
        layout
    }

    fn place(layout: &mut Layout, file: FileId, end: u64, wanted: u64) -> (u64, u64, bool) {
        let (place, new) = layout.place(file, end, Some(wanted)).expect("a place");
        (place.base, place.size, new.is_some())
    }

    #[test]
    fn a_file_lies_where_it_is_mapped_and_stays_there() {
        let mut layout = layout();
        assert_eq!(
            place(&mut layout, A, 0x1000, 0x7000_0000),
            (0x7000_0000, 0x3000, true)
        );
        assert_eq!(
            place(&mut layout, A, 0x3000, 0x9000_0000),
            (0x7000_0000, 0x3000, false)
        );
    }

    #[test]
    fn two_files_at_one_address_are_kept_apart() {
        let mut layout = layout();
        place(&mut layout, A, 0x1000, 0x7000_0000);
        let (base, size, new) = place(&mut layout, B, 0x1000, 0x7000_2000);
        assert_eq!((base, size, new), (MADE_UP_FROM, 0x1000, true));
        layout.define(FileId(3), b"/pm/c", 8);
        let (base, ..) = place(&mut layout, FileId(3), 8, 0x7000_0040);
        assert_eq!(base, MADE_UP_FROM + MADE_UP_ALIGN + 0x40);
    }

    #[test]
    fn a_file_that_grows_gets_a_second_place() {
        let mut layout = layout();
        place(&mut layout, B, 0x1000, 0x7000_0000);
        layout.resize(B, 0x4000);
        assert_eq!(
            place(&mut layout, B, 0x1001, 0x8000_0000),
            (0x8000_0000, 0x4000, true)
        );
        assert_eq!(layout.places(B).len(), 2);
    }

    #[test]
    fn what_pmreorder_cannot_open_is_refused() {
        for (path, word) in [
            (&b"/pm/a|b"[..], "ends a field"),
            (b"/pm/a;b", "ends a field"),
            (b"/pm/a\nb", "ends a field"),
            (b"/pm/RESTART/a", "START"),
            (b"/pm/\xff", "UTF-8"),
        ] {
            let mut layout = Layout::default();
            layout.define(A, path, 8);
            let error = layout.place(A, 8, None).expect_err("a bad path");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(layout().place(FileId(9), 8, None).is_err());
    }
}
