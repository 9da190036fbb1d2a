//! Text from programs made harmless, and names out of paths.

use std::borrow::Cow;

/// True for characters that would change how a terminal or a page shows what follows, break a line,
/// or show as nothing.
///
/// Beside control characters these are the bidirectional controls, which can make source text look
/// like other source text, Unicode's own line ends, characters without width or ink (soft hyphen,
/// joiners, fillers, tags, by which two names can look the same), and the two non-characters that
/// XML forbids. Variation selectors that choose between two looks of a character are not among
/// them. The page's script has the same list.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(
            c,
            '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
        )
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The text on one line, with hostile characters as `\n`, `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push_visible(&mut out, c);
    }
    Cow::Owned(out)
}

/// Appends one character as [`visible`] shows it.
pub fn push_visible(out: &mut String, c: char) {
    match is_hostile(c) {
        true => out.extend(c.escape_default()),
        false => out.push(c),
    }
}

/// Last part of a path.
pub fn base_name(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_become_visible_and_others_stay() {
        assert_eq!(visible("a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(
            visible("x\u{202e}y\u{85}\u{2029}"),
            "x\\u{202e}y\\u{85}\\u{2029}"
        );
        assert_eq!(
            visible("pay\u{200b}\u{ad}pal\u{2060}\u{e0041}"),
            "pay\\u{200b}\\u{ad}pal\\u{2060}\\u{e0041}"
        );
        assert!(matches!(
            visible("größe <T> \\ ✓"),
            Cow::Borrowed("größe <T> \\ ✓")
        ));
    }

    #[test]
    fn names_are_last_parts_of_paths() {
        assert_eq!(base_name("/usr/lib/libc.so.6"), "libc.so.6");
        assert_eq!(base_name("prog"), "prog");
        assert_eq!(base_name("/"), "/");
        assert_eq!(base_name(""), "");
    }
}
