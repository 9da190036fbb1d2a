//! JSON that can stand in an HTML page.
//!
//! **Guarantee.** What is written is JSON that a parser reads back to the same strings. In it
//! stands no `<`, `>` or `&`, so that it cannot end the element it is in, nor begin a comment,
//! whatever the strings hold. No control character, no line end of Unicode's and no bidirectional
//! control stands in it either, so that the page's source looks as it is.
//!
//! **Source.** The HTML standard, "Restrictions for contents of script elements"; JSON, RFC 8259,
//! section 7.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::text::is_hostile;

/// The value as JSON for a `<script type="application/json">` element.
pub fn json(value: &impl Serialize) -> io::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Harmless))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// As serde_json's own, but for characters that mean something to a browser before JSON is read.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(needs_escape) {
            let (before, from) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, before)?;
            let Some(c) = from.chars().next() else { break };
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &from[c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

fn needs_escape(c: char) -> bool {
    matches!(c, '<' | '>' | '&') || is_unfit(c)
}

/// What is shown as an escape: as everywhere, and the other characters that HTML forbids.
fn is_unfit(c: char) -> bool {
    let is_noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    is_hostile(c) || is_noncharacter
}

/// The text on one line, with unfit characters as `\n`, `\u{1b}`: what the page's script makes of
/// text, for the template.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unfit(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_end_the_element_is_escaped() {
        let text = json(&"</script><!--\u{2028}\u{202e}&\0").unwrap();
        assert_eq!(
            text,
            r#""\u003c/script\u003e\u003c!--\u2028\u202e\u0026\u0000""#
        );
    }

    /// The ranges of a class of a regular expression of JavaScript's.
    fn ranges(class: &str) -> Vec<(u32, u32)> {
        let code = |text: &str| {
            let digits = text.trim_start_matches('{').trim_end_matches('}');
            u32::from_str_radix(digits, 16).expect("a number")
        };
        let mut ranges = Vec::new();
        let mut words = class.split("\\u").skip(1).peekable();
        while let Some(word) = words.next() {
            let first = word.strip_suffix('-').unwrap_or(word);
            let last = match word.ends_with('-') {
                true => words.next().expect("the end of a range"),
                false => first,
            };
            ranges.push((code(first), code(last)));
        }
        ranges
    }

    /// The script shows as escapes what this does, and nothing else.
    #[test]
    fn the_script_has_the_same_list() {
        let script = include_str!("page.js");
        let class = script
            .split("const HOSTILE = /[")
            .nth(1)
            .expect("it has one");
        let class = class.split("\\p{Noncharacter_Code_Point}]/gu").next();
        let ranges = ranges(class.expect("it ends with the non-characters"));
        assert!(ranges.len() > 10);
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let code = u32::from(c);
            let is_none = matches!(code, 0xfdd0..=0xfdef) || code & 0xfffe == 0xfffe;
            let shown = is_none || ranges.iter().any(|(a, b)| (a..=b).contains(&&code));
            assert_eq!(shown, is_unfit(c), "{code:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in "([a-z]|\\pC|\\PC|[<>&\u{2028}\u{2029}\u{202e}\0\\\\\"]){0,40}") {
            let written = json(&text).unwrap();
            prop_assert!(!written.contains(needs_escape), "{}", written);
            prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        }
    }
}
