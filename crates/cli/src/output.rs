//! The file that a trace goes to.
//!
//! Guarantee: everything that can be wrong with the place is reported before the program starts;
//! nothing that is not a trace is overwritten unless asked for; and until the first byte is
//! written an existing trace stays as it is, so a program that cannot be started costs nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use brownout_trace::{Error, Reader};

use crate::exit::Failure;
use crate::resolve::plain;
use crate::terminal::quote;

/// An output that was opened and not yet written to.
#[derive(Debug)]
pub struct TraceOutput {
    path: PathBuf,
    file: File,
    /// It did not exist before.
    created: bool,
    /// It can be emptied; devices and pipes cannot.
    regular: bool,
    touched: bool,
}

impl TraceOutput {
    /// Opens `path` for a trace.
    pub fn open(path: &Path, force: bool) -> Result<TraceOutput, Failure> {
        let shown = quote(path);
        let cannot = |error: &io::Error| {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "its folder does not exist".to_owned(),
                _ => plain(error),
            };
            Failure::usage(format!("cannot write the trace to {shown}: {reason}"))
        };
        if path.as_os_str().is_empty() {
            return Err(Failure::usage("the name of the trace file is empty"));
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(cannot(&error)),
        };
        let kind = metadata.as_ref().map(fs::Metadata::file_type);
        if kind.is_some_and(|kind| kind.is_dir()) {
            return Err(Failure::usage(format!(
                "cannot write the trace to {shown}: it is a folder"
            )));
        }
        if kind.is_some_and(|kind| kind.is_block_device() || kind.is_socket()) {
            return Err(Failure::usage(format!(
                "cannot write the trace to {shown}: it is neither a file nor a pipe"
            )));
        }
        let regular = kind.is_none_or(|kind| kind.is_file());
        let old_len = metadata.map_or(0, |metadata| metadata.len());
        if regular && old_len > 0 && !force && !is_trace(path) {
            return Err(Failure::usage(format!(
                "{shown} exists and is not a trace; choose another name, or give --force to replace it"
            )));
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| cannot(&error))?;
        let path = path.to_owned();
        Ok(TraceOutput {
            path,
            file,
            created: kind.is_none(),
            regular,
            touched: false,
        })
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder for temporary files on the same file system, where there is one.
    pub fn folder(&self) -> PathBuf {
        match (self.regular, self.path.parent()) {
            (true, Some(folder)) if !folder.as_os_str().is_empty() => folder.to_owned(),
            (true, _) => ".".into(),
            (false, _) => std::env::temp_dir(),
        }
    }

    /// Leaves things as they were before [`TraceOutput::open`], if nothing was written.
    pub fn abandon(&self) {
        if self.created && !self.touched {
            // Whether it can be removed makes no difference to the user's real problem.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Write for TraceOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.touched {
            self.touched = true;
            if self.regular {
                self.file.set_len(0)?;
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Whether the file begins as a trace does, of whatever version and in whatever state.
fn is_trace(path: &Path) -> bool {
    match Reader::<File>::open(path) {
        Ok(_) => true,
        Err(error) => !matches!(error, Error::NotATrace { .. } | Error::Io { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::{Meta, Writer};

    #[test]
    fn an_old_trace_stays_until_the_first_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        Writer::<File>::create(&path, &Meta::default())
            .unwrap()
            .finish()
            .unwrap();
        let old = fs::read(&path).unwrap();
        let mut output = TraceOutput::open(&path, false).unwrap();
        output.abandon();
        assert_eq!(fs::read(&path).unwrap(), old);
        output.write_all(b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        output.abandon();
        assert!(path.exists());
    }

    #[test]
    fn a_new_file_is_removed_if_nothing_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let output = TraceOutput::open(&path, false).unwrap();
        assert!(path.exists());
        output.abandon();
        assert!(!path.exists());
    }

    #[test]
    fn other_files_are_refused_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        fs::write(&path, "dear reader").unwrap();
        let failure = TraceOutput::open(&path, false).unwrap_err();
        assert!(failure.sentence.contains("is not a trace"), "{failure}");
        assert_eq!(fs::read(&path).unwrap(), b"dear reader");
        TraceOutput::open(&path, true)
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn an_empty_file_may_be_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        TraceOutput::open(file.path(), false).unwrap();
    }
}
