//! Where reports go: a file, or a descriptor that the caller has opened.
//!
//! Guarantee: a file that is named is emptied first, as by a shell's `>`. A descriptor
//! (`/dev/stdout`, `/dev/fd/9`, `/proc/self/fd/9`) is written to where it stands, so whatever the
//! program or the caller has written there stays: opening such a name would empty the file behind
//! it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;

use crate::exit::Failure;
use crate::resolve::plain;
use crate::terminal::quote;

/// The descriptor of this process that a path names, if it does.
fn descriptor(path: &Path) -> Option<RawFd> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        text => {
            let number = text
                .strip_prefix("/dev/fd/")
                .or_else(|| text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok().filter(|number| *number >= 0)
        }
    }
}

/// Whether a descriptor is open for writing.
fn is_writable(number: RawFd) -> io::Result<()> {
    // SAFETY: it only asks for the flags, whatever the number is.
    match unsafe { libc::fcntl(number, libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
        _ => Ok(()),
    }
}

/// Opens the place for writing. A file is empty then.
pub fn create(path: &Path) -> io::Result<File> {
    let Some(number) = descriptor(path) else {
        return File::create(path);
    };
    is_writable(number)?;
    // SAFETY: it is open, as was just seen, and nothing here closes what the caller has opened.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(descriptor.try_clone_to_owned()?))
}

/// As [`std::fs::write`].
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    create(path)?.write_all(content)
}

/// Whether the place can be written to, before the run that fills it. What is in it stays for now.
pub fn try_it(path: &Path) -> Result<(), Failure> {
    let cannot = |why: &str| Failure::usage(format!("cannot write to {}: {why}", quote(path)));
    if let Some(number) = descriptor(path) {
        let why = format!("descriptor {number} is not open for writing");
        return is_writable(number).map_err(|_| cannot(&why));
    }
    let existed = path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    match opened {
        Ok(_) if existed => Ok(()),
        Ok(_) => {
            // It was only a try: a run that fails leaves nothing behind.
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Err(error) => Err(cannot(&plain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn names_of_descriptors_are_known() {
        let of = |path: &str| descriptor(Path::new(path));
        assert_eq!(of("/dev/stdout"), Some(1));
        assert_eq!(of("/dev/stderr"), Some(2));
        assert_eq!(of("/dev/fd/9"), Some(9));
        assert_eq!(of("/proc/self/fd/12"), Some(12));
        for other in ["/dev/fd/", "/dev/fd/-1", "/dev/fd/x", "/dev/null", "1", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn what_stands_behind_a_descriptor_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"the program's own\n").expect("a write");
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        write(Path::new(&name), b"report\n").expect("a write");
        file.write_all(b"more\n").expect("it is open still");
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text, "the program's own\nreport\nmore\n");
    }

    #[test]
    fn a_descriptor_that_cannot_be_written_to_is_refused_before_the_run() {
        let file = File::open("/dev/null").expect("it is there");
        let name = format!("/dev/fd/{}", file.as_raw_fd());
        let failure = try_it(Path::new(&name)).expect_err("it is open for reading only");
        assert!(failure.sentence.contains("not open for writing"));
        assert!(create(Path::new(&name)).is_err());
        assert!(try_it(Path::new("/dev/fd/987654")).is_err());
    }
}
