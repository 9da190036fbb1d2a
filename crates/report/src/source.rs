//! Lines of source files, for excerpts.
//!
//! Each file is read once. A file that is gone, changed, too long or no ordinary file is nothing
//! special: the excerpt is then missing, or comes with a warning.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use unicode_width::UnicodeWidthChar;

use crate::text::push_visible;

/// Longer files are generated, and nobody wants to see a line of them.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longer lines are not source text.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How many columns of a line are shown.
const COLUMNS_MAX: usize = 100;
const TAB: usize = 4;

/// Files that were read, by the path in the debug information.
pub struct Sources {
    folder: Option<PathBuf>,
    files: HashMap<String, Option<Rc<SourceFile>>>,
    modules: HashMap<String, Option<SystemTime>>,
}

/// A source file in memory.
pub struct SourceFile {
    text: String,
    line_starts: Vec<usize>,
    modified: Option<SystemTime>,
}

/// One line of an excerpt.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: u32,
    /// Harmless, without tabs, cut to a readable width.
    pub text: String,
    /// Columns before the one to point at; only on the line in question.
    pub mark: Option<usize>,
}

impl Sources {
    /// Relative paths start in the folder.
    pub fn new(folder: Option<&Path>) -> Sources {
        Sources {
            folder: folder.map(Path::to_path_buf),
            files: HashMap::new(),
            modules: HashMap::new(),
        }
    }

    /// The file, if it can be read.
    pub fn file(&mut self, path: &str) -> Option<Rc<SourceFile>> {
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let full = match &self.folder {
            Some(folder) => folder.join(path),
            None => PathBuf::from(path),
        };
        let file = read(&full).map(Rc::new);
        self.files.insert(path.to_owned(), file.clone());
        file
    }

    /// True if the source was changed after the module was built, so that lines may have moved.
    pub fn is_newer(&mut self, file: &SourceFile, module: Option<&str>) -> bool {
        let Some(module) = module else { return false };
        let built = match self.modules.get(module) {
            Some(known) => *known,
            None => {
                let built = std::fs::metadata(module)
                    .and_then(|data| data.modified())
                    .ok();
                self.modules.insert(module.to_owned(), built);
                built
            }
        };
        matches!((file.modified, built), (Some(source), Some(built)) if source > built)
    }
}

fn read(path: &Path) -> Option<SourceFile> {
    // Debug information may name a pipe or a device; reading those could take for ever.
    let data = std::fs::metadata(path).ok()?;
    if !data.is_file() || data.len() > FILE_BYTES_MAX {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some(SourceFile::new(
        String::from_utf8_lossy(&bytes).into_owned(),
        data.modified().ok(),
    ))
}

impl SourceFile {
    fn new(text: String, modified: Option<SystemTime>) -> SourceFile {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let mut line_starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
        // What follows the last line end is a line only if there is something.
        if line_starts.last() == Some(&text.len()) {
            line_starts.pop();
        }
        SourceFile {
            text,
            line_starts,
            modified,
        }
    }

    /// A line, from 1, without its end; none if the file has no such line or it is too long for
    /// source text.
    pub fn line(&self, number: u32) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = *self.line_starts.get(at)?;
        let end = self
            .line_starts
            .get(at + 1)
            .copied()
            .unwrap_or(self.text.len());
        let line = self.text[start..end].trim_end_matches(['\n', '\r']);
        (line.len() <= LINE_BYTES_MAX).then_some(line)
    }

    /// The line with its neighbours, or nothing if the file has no such line. The column (from 1,
    /// in bytes) gets a mark if the line has text there.
    pub fn excerpt(&self, number: u32, column: Option<u32>) -> Vec<Line> {
        let Some(line) = self.line(number) else {
            return Vec::new();
        };
        let offset = column
            .and_then(|column| usize::try_from(column).ok()?.checked_sub(1))
            .filter(|&offset| offset < line.len() && line.is_char_boundary(offset));
        let mark = offset.map(|offset| {
            let before = layout(line).take_while(|cell| cell.offset < offset);
            before.last().map_or(0, |cell| cell.start + cell.width)
        });
        // A mark far to the right moves the window, for the neighbours too.
        let first = match mark {
            Some(mark) if mark + 20 > COLUMNS_MAX => mark - COLUMNS_MAX / 2,
            _ => 0,
        };
        (number.saturating_sub(1)..=number.saturating_add(1))
            .filter_map(|at| {
                Some(Line {
                    number: at,
                    text: window(self.line(at)?, first),
                    mark: mark.filter(|_| at == number).map(|mark| mark - first),
                })
            })
            .collect()
    }
}

/// One character on the screen.
struct Cell {
    offset: usize,
    start: usize,
    width: usize,
    c: char,
}

fn layout(line: &str) -> impl Iterator<Item = Cell> {
    let mut column = 0;
    line.char_indices().map(move |(offset, c)| {
        let start = column;
        let width = match c {
            '\t' => TAB - start % TAB,
            c => {
                let mut text = String::new();
                push_visible(&mut text, c);
                match text.len() > c.len_utf8() {
                    true => text.len(),
                    false => c.width().unwrap_or(0),
                }
            }
        };
        column += width;
        Cell {
            offset,
            start,
            width,
            c,
        }
    })
}

/// The columns from `first` on, with `…` where something is cut.
fn window(line: &str, first: usize) -> String {
    let mut out = String::new();
    for cell in layout(line) {
        if cell.start + cell.width <= first && cell.width > 0
            || cell.start < first && cell.width == 0
        {
            continue;
        }
        if cell.start >= first + COLUMNS_MAX {
            out.push('…');
            break;
        }
        // The first column shown says that there is more to the left, and half a wide character or
        // tab is blank.
        let shown = cell.start + cell.width - first.max(cell.start);
        if first > 0 && cell.start <= first && cell.width > 0 {
            out.push('…');
            out.extend(std::iter::repeat_n(' ', shown - 1));
            continue;
        }
        match cell.c {
            '\t' => out.extend(std::iter::repeat_n(' ', cell.width)),
            c => push_visible(&mut out, c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    fn file(text: &str) -> SourceFile {
        SourceFile::new(text.into(), None)
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn neighbours_end_with_the_file() {
        let three = file("a\r\nb\nc\n");
        assert_eq!(texts(&three.excerpt(1, None)), ["a", "b"]);
        assert_eq!(texts(&three.excerpt(2, None)), ["a", "b", "c"]);
        assert_eq!(texts(&three.excerpt(3, None)), ["b", "c"]);
        for none in [0, 4, u32::MAX] {
            assert!(three.excerpt(none, None).is_empty());
        }
        assert!(file("").excerpt(1, None).is_empty());
    }

    #[test]
    fn tabs_wide_and_hostile_characters_keep_the_mark_in_place() {
        let marked = |text: &str, column| {
            let line = file(text).excerpt(1, Some(column)).remove(0);
            (line.text, line.mark)
        };
        assert_eq!(marked("\tx = 1;", 2), ("    x = 1;".into(), Some(4)));
        assert_eq!(marked("a\tx", 3), ("a   x".into(), Some(4)));
        assert_eq!(marked("漢x", 4), ("漢x".into(), Some(2)));
        assert_eq!(marked("\x1bx", 2), ("\\u{1b}x".into(), Some(6)));
        // Columns that the line does not have: the file has changed.
        assert_eq!(marked("漢x", 2).1, None);
        assert_eq!(marked("x", 2).1, None);
        assert_eq!(marked("x", 0).1, None);
    }

    #[test]
    fn long_lines_show_where_the_mark_is() {
        let long = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let line = file(&long).excerpt(1, Some(501)).remove(0);
        assert_eq!(line.text.chars().nth(line.mark.unwrap()), Some('X'));
        assert!(line.text.starts_with('…') && line.text.ends_with('…'));
        let line = file(&long).excerpt(1, None).remove(0);
        assert_eq!(line.text, format!("{}…", "a".repeat(COLUMNS_MAX)));
        assert!(
            file(&"a".repeat(LINE_BYTES_MAX + 1))
                .excerpt(1, None)
                .is_empty()
        );
    }

    #[test]
    fn only_ordinary_files_are_read_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.c"), "one\n").unwrap();
        let mut sources = Sources::new(Some(folder.path()));
        assert!(sources.file("/dev/zero").is_none());
        assert!(sources.file("missing.c").is_none());
        let first = sources.file("a.c").unwrap();
        std::fs::remove_file(folder.path().join("a.c")).unwrap();
        assert!(Rc::ptr_eq(&first, &sources.file("a.c").unwrap()));
    }

    #[test]
    fn a_source_newer_than_its_module_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
        let at = |name, seconds| {
            let file = std::fs::File::create(path(name)).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        at("a.c", 2000);
        at("old", 1000);
        at("new", 3000);
        let mut sources = Sources::new(None);
        let source = sources.file(&path("a.c")).unwrap();
        assert!(sources.is_newer(&source, Some(&path("old"))));
        assert!(!sources.is_newer(&source, Some(&path("new"))));
        assert!(!sources.is_newer(&source, Some("/nonexistent")));
        assert!(!sources.is_newer(&source, None));
    }

    proptest! {
        #[test]
        fn any_line_fits_and_the_mark_is_in_it(line in "([a-z\t]|\\PC|\\pC){0,300}", column in 0u32..400) {
            for shown in file(&line).excerpt(1, Some(column)) {
                prop_assert!(shown.text.chars().all(|c| !c.is_control()));
                prop_assert!(shown.text.width() <= COLUMNS_MAX + 20);
                prop_assert!(shown.mark.is_none_or(|mark| mark <= COLUMNS_MAX));
            }
        }
    }
}
