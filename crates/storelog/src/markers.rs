//! Markers as `pmreorder` takes them: pairs `NAME.BEGIN`, `NAME.END` that nest.
//!
//! `pmreorder` gives up on a marker without one of these suffixes, and on an end that is not that
//! of the innermost section. Programs write both: markers are free text, and the sections of
//! several threads cross. So
//!
//! - other markers become an empty section of their name,
//! - sections that cross are closed and opened again inside out, so that each covers what it did,
//! - an end without a beginning is left out.

/// Sections that may be open at once. A program that leaves more open only loses the further ones.
const OPEN_MAX: usize = 4096;
const BEGIN: &str = ".BEGIN";
const END: &str = ".END";

/// The sections that are open.
#[derive(Debug, Default)]
pub struct Sections {
    open: Vec<String>,
}

impl Sections {
    /// What to write for a marker, given to `write` one by one. False if it is left out.
    pub fn marker(&mut self, text: &[u8], mut write: impl FnMut(&str, &str)) -> bool {
        let text = plain(&String::from_utf8_lossy(text));
        if let Some(name) = text.strip_suffix(BEGIN) {
            if self.open.len() == OPEN_MAX {
                return false;
            }
            write(name, BEGIN);
            self.open.push(name.to_owned());
        } else if let Some(name) = text.strip_suffix(END) {
            let Some(at) = self.open.iter().rposition(|open| open == name) else {
                return false;
            };
            self.open[at..]
                .iter()
                .rev()
                .for_each(|open| write(open, END));
            self.open.remove(at);
            self.open[at..].iter().for_each(|open| write(open, BEGIN));
        } else if text.is_empty() {
            return false;
        } else {
            write(&text, BEGIN);
            write(&text, END);
        }
        true
    }
}

/// Text that is safe inside an element. Separators and control characters become `_`. `pmreorder`
/// takes every element that has START in it, anywhere, for the beginning of the log, so that word
/// changes its case.
pub fn plain(text: &str) -> String {
    let text = text
        .trim()
        .replace(|c: char| c == '|' || c == ';' || c.is_control(), "_");
    text.replace("START", "Start")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(markers: &[&str]) -> (Vec<String>, usize) {
        let mut sections = Sections::default();
        let mut written = Vec::new();
        let mut left_out = 0;
        for marker in markers {
            let write = |name: &str, suffix: &str| written.push(format!("{name}{suffix}"));
            left_out += usize::from(!sections.marker(marker.as_bytes(), write));
        }
        (written, left_out)
    }

    #[test]
    fn nested_sections_stay_as_they_are() {
        let markers = ["a.BEGIN", "b.BEGIN", "b.END", "b.BEGIN", "b.END", "a.END"];
        assert_eq!(written(&markers), (markers.map(String::from).to_vec(), 0));
    }

    #[test]
    fn crossing_sections_are_opened_again() {
        let (written, left_out) = written(&["a.BEGIN", "b.BEGIN", "a.END", "b.END"]);
        assert_eq!(
            written,
            ["a.BEGIN", "b.BEGIN", "b.END", "a.END", "b.BEGIN", "b.END"]
        );
        assert_eq!(left_out, 0);
    }

    #[test]
    fn free_text_is_an_empty_section() {
        let (written, left_out) = written(&["step 2|;\n", " ", "RESTART", "FENCE"]);
        assert_eq!(
            written,
            [
                "step 2__.BEGIN",
                "step 2__.END",
                "REStart.BEGIN",
                "REStart.END",
                "FENCE.BEGIN",
                "FENCE.END"
            ]
        );
        assert_eq!(left_out, 1);
    }

    #[test]
    fn ends_without_beginning_and_too_many_beginnings() {
        assert_eq!(written(&["a.END"]), (vec![], 1));
        let many = vec!["a.BEGIN"; OPEN_MAX + 3];
        assert_eq!(written(&many).1, 3);
    }
}
