//! Words for people: messages on stderr, and names quoted so that a shell reads them back.

use std::ffi::OsStr;
use std::io::{self, Write};

use brownout_report::visible;

/// Writes `brownout: <text>` to stderr. That nobody reads stderr is no reason to fail.
pub fn message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "brownout: {text}");
}

/// The text as one word of a shell command; left alone where no quotes are needed.
pub fn quote(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref().to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "_-./:=+,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into_owned(),
        false => format!("'{}'", visible(&text).replace('\'', r"'\''")),
    }
}

/// A number of bytes in the unit that gives one to three digits before the point.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    // 999.95 would be shown as 1000.0.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The system's words for an error, without the number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        assert_eq!(quote("/a/b-c.txt"), "/a/b-c.txt");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("*.pool"), "'*.pool'");
        assert_eq!(quote("a\nb\x1b"), r"'a\nb\u{1b}'");
        assert_eq!(quote("a \u{202e}b"), r"'a \u{202e}b'");
        assert_eq!(quote("a\u{200b}b"), r"'a\u{200b}b'");
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.0 kB");
        assert_eq!(bytes(999_949), "999.9 kB");
        assert_eq!(bytes(999_950), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
    }
}
