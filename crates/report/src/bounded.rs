//! Reads files that users name and that are small if they are what they are meant to be: an option
//! may name a device that never ends, or a core file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The content of a file of at most `max` bytes; `what` it should be is for the error.
pub fn read(path: &Path, max: u64, what: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::other(format!("it is too long to be {what}"))),
        false => Ok(bytes),
    }
}

/// The same, of text.
pub fn read_text(path: &Path, max: u64, what: &str) -> io::Result<String> {
    let bytes = read(path, max, what)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let error = read(Path::new("/dev/zero"), 1 << 20, "a letter").unwrap_err();
        assert_eq!(error.to_string(), "it is too long to be a letter");
        assert_eq!(read(Path::new("/dev/null"), 0, "a letter").unwrap(), b"");
        assert!(read_text(Path::new("/proc/self/exe"), 1 << 30, "a letter").is_err());
    }
}
