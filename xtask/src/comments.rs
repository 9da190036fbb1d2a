//! `cargo xtask comments`: comments within the width that rustfmt gives to code.
//!
//! rustfmt leaves them alone (on a stable compiler it has to), so they grew wider than a window.
//! Paragraphs with a line that is too long are filled anew; `--wrap` writes them. Tables, drawings,
//! code, links by themselves and headings stay as they are, and nothing but the places of line
//! breaks changes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brownout_tests::layout;

/// `max_width` of `rustfmt.toml`.
const WIDTH: usize = 100;

/// Folders whose Rust files are looked at.
const FOLDERS: &[&str] = &["crates", "examples", "fuzz", "tests", "xtask"];

/// Says which files have comments that are too wide, or wraps those of the files that are named
/// (all, if none is).
pub fn comments(words: &[&str]) -> Result<()> {
    let (wrap, named) = match words {
        ["--wrap", named @ ..] => (true, named),
        named => (false, named),
    };
    let files = match named {
        [] => rust_files()?,
        named => named.iter().map(PathBuf::from).collect(),
    };
    look_at(files, wrap)
}

/// Whether all comments fit.
pub fn check() -> Result<()> {
    look_at(rust_files()?, false)
}

fn look_at(files: Vec<PathBuf>, wrap: bool) -> Result<()> {
    let mut wide = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let filled = fill(&text);
        if filled != text {
            if wrap {
                fs::write(&file, filled)?;
            }
            wide.push(file.display().to_string());
        }
    }
    match wide.is_empty() || wrap {
        true => Ok(()),
        false => bail!(
            "comments wider than {WIDTH} columns in {} files (`cargo xtask comments --wrap [FILE…]` wraps them):\n{}",
            wide.len(),
            wide.join("\n")
        ),
    }
}

fn rust_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&layout::workspace().join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// A line that is nothing but a comment: what stands before its words, and the words.
fn comment(line: &str) -> Option<(&str, &str)> {
    let indent = line.len() - line.trim_start().len();
    let marker = ["///", "//!", "//"]
        .into_iter()
        .find(|marker| line[indent..].starts_with(marker))?;
    let (lead, text) = line.split_at(indent + marker.len());
    match text.strip_prefix(' ') {
        Some(text) => Some((lead, text)),
        None if text.is_empty() => Some((lead, "")),
        None => None,
    }
}

/// The file with comments that fit.
fn fill(file: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut paragraph = Paragraph::default();
    let mut in_fence = false;
    let mut in_raw = false;
    for line in file.lines() {
        // Sources of other programs are data.
        if in_raw {
            in_raw = !line.contains("\"#");
            out.push(line.to_owned());
            continue;
        }
        let Some((lead, text)) = comment(line) else {
            paragraph.flush(&mut out);
            in_fence = false;
            in_raw = line
                .rfind("r#\"")
                .is_some_and(|at| !line[at + 3..].contains("\"#"));
            out.push(line.to_owned());
            continue;
        };
        if text.trim_start().starts_with("```") {
            in_fence = !in_fence;
            paragraph.flush(&mut out);
            out.push(line.to_owned());
        } else if in_fence || !is_prose(text) {
            paragraph.flush(&mut out);
            out.push(line.to_owned());
        } else {
            let item = item_len(text);
            let indent = text.len() - text.trim_start().len();
            if item > 0 || !paragraph.goes_on(lead, indent) {
                paragraph.flush(&mut out);
                paragraph.begin(lead, &text[..indent + item]);
            }
            paragraph.add(line, &text[indent + item..]);
        }
    }
    paragraph.flush(&mut out);
    let mut text = out.join("\n");
    if file.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Whether its breaks may be moved: no table, heading, drawing, rule, indented code, definition of
/// a link, or part of a string that is written into a source.
fn is_prose(text: &str) -> bool {
    let inner = text.trim_start();
    let drawn = |c: char| matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2500}'..='\u{25ff}');
    !(inner.is_empty()
        || inner.starts_with(['|', '#', '>'])
        || inner.starts_with("---")
        || (inner.starts_with('[') && inner.contains("]: "))
        || text.starts_with("    ")
        || inner.contains("  ")
        || inner.ends_with('\\')
        || inner.ends_with("\",")
        || inner.chars().any(drawn))
}

/// Bytes of the mark of a list item: `- `, `* `, `1. `.
fn item_len(text: &str) -> usize {
    let inner = text.trim_start();
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    if inner.starts_with("- ") || inner.starts_with("* ") {
        2
    } else if digits > 0 && inner[digits..].starts_with(". ") {
        digits + 2
    } else {
        0
    }
}

/// Lines that are filled together.
#[derive(Default)]
struct Paragraph {
    lead: String,
    /// What the first line begins with, and how far the others are indented.
    first: String,
    words: Vec<String>,
    lines: Vec<String>,
}

impl Paragraph {
    fn begin(&mut self, lead: &str, first: &str) {
        self.lead = lead.to_owned();
        self.first = first.to_owned();
    }

    fn goes_on(&self, lead: &str, indent: usize) -> bool {
        !self.lines.is_empty() && self.lead == lead && self.first.chars().count() == indent
    }

    fn add(&mut self, line: &str, text: &str) {
        self.words
            .extend(text.split_whitespace().map(str::to_owned));
        self.lines.push(line.to_owned());
    }

    fn flush(&mut self, out: &mut Vec<String>) {
        let lines = std::mem::take(&mut self.lines);
        let words = std::mem::take(&mut self.words);
        if lines.iter().all(|line| line.chars().count() <= WIDTH) {
            out.extend(lines);
            return;
        }
        let others = " ".repeat(self.first.chars().count());
        let mut begin = self.first.as_str();
        let mut line: Vec<String> = Vec::new();
        let width = |begin: &str, line: &[String]| {
            self.lead.chars().count()
                + 1
                + begin.chars().count()
                + line
                    .iter()
                    .map(|word| word.chars().count() + 1)
                    .sum::<usize>()
        };
        for word in words {
            if !line.is_empty() && width(begin, &line) + word.chars().count() > WIDTH {
                // A line must not begin with what would make it a list or a heading.
                let kept = match reads_as_mark(&word) && line.len() > 1 {
                    true => line.pop(),
                    false => None,
                };
                out.push(format!("{} {begin}{}", self.lead, line.join(" ")));
                begin = &others;
                line = kept.into_iter().collect();
            }
            line.push(word);
        }
        out.push(format!("{} {begin}{}", self.lead, line.join(" ")));
    }
}

fn reads_as_mark(word: &str) -> bool {
    matches!(word, "-" | "*" | "+" | "=" | ">")
        || word.starts_with(['#', '|', '>'])
        || word
            .strip_suffix('.')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(words: usize) -> String {
        vec!["word"; words].join(" ")
    }

    #[test]
    fn long_paragraphs_are_filled_and_lose_no_word() {
        for lead in ["//!", "    ///", "        //"] {
            let text = format!("{lead} {}\n{lead} end\nfn f() {{}}\n", long(40));
            let filled = fill(&text);
            assert!(
                filled.lines().all(|line| line.chars().count() <= WIDTH),
                "{filled}"
            );
            let words = |text: &str| {
                text.split_whitespace()
                    .filter(|w| !w.starts_with("//"))
                    .count()
            };
            assert_eq!(words(&filled), words(&text));
            assert_eq!(fill(&filled), filled);
        }
    }

    #[test]
    fn items_keep_their_indentation() {
        let filled = fill(&format!("//! - {}\n//!   more\n//! - short\n", long(30)));
        let lines: Vec<&str> = filled.lines().collect();
        assert!(lines[0].starts_with("//! - word") && lines[1].starts_with("//!   word"));
        assert_eq!(lines.last(), Some(&"//! - short"));
        assert!(lines[lines.len() - 2].ends_with("more"));
    }

    #[test]
    fn what_is_no_prose_stays() {
        for text in [
            format!("//! | {} |\n", long(40)),
            format!("//! ```text\n//! {}\n//! ```\n", long(40)),
            format!("//! a ─▶ {}\n", long(40)),
            format!("//!     {}\n", long(40)),
            format!("let x = 1; // {}\n", long(40)),
            format!("const C: &str = r#\"\n// {}\n\"#;\n", long(40)),
            "//! short\n//! lines\n".to_owned(),
        ] {
            assert_eq!(fill(&text), text);
        }
    }

    #[test]
    fn no_line_begins_with_a_mark() {
        // Whatever the column, the dash is never the first word of a line.
        for words in 10..30 {
            let filled = fill(&format!("/// {} - {}\n", long(words), long(30)));
            assert!(
                filled.lines().all(|line| !line.starts_with("/// - ")),
                "{filled}"
            );
        }
    }
}
