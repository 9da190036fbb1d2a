//! The last word on a finding: the recovery run natively, on its image, at the program's own path.
//!
//! [`Originals`] keeps what the user's files are and puts it back, whatever happens between.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use brownout_trace::event::FileId;

use crate::execution::Command;
use crate::files::copy_sparse;
use crate::outcome::{Hang, Outcome, Status};
use crate::recording::TrackedFile;

/// A native recovery that takes longer hangs: under the engine it already did.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The tracked files as they were before the recorded run.
pub struct Originals {
    files: BTreeMap<FileId, TrackedFile>,
}

impl Originals {
    pub fn new(files: &BTreeMap<FileId, TrackedFile>) -> Originals {
        Originals {
            files: files.clone(),
        }
    }

    /// Puts them back. Files that the run has made are removed.
    pub fn restore(&self) -> io::Result<()> {
        for file in self.files.values() {
            if file.created {
                match fs::remove_file(&file.path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            } else {
                place(file.original.as_ref().unwrap_or(&file.base), &file.path)?;
            }
        }
        Ok(())
    }

    /// Puts an image there instead; files without one are removed. They stay until the next [`restore`](Self::restore).
    pub fn replace(&self, images: &BTreeMap<FileId, PathBuf>) -> io::Result<()> {
        for (id, file) in &self.files {
            match images.get(id) {
                Some(image) => place(image, &file.path)?,
                None => match fs::remove_file(&file.path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                },
            }
        }
        Ok(())
    }
}

/// Replaces the content of a file; other links to it, its owner and its permissions stay.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    copy_sparse(&File::open(from)?, to)?;
    Ok(())
}

/// Runs a command natively.
pub fn run(command: &Command, patience: Duration) -> io::Result<Outcome> {
    let stdin = match &command.stdin {
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    let mut child = Process::new(&command.program)
        .args(&command.args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that all of it can be ended.
        .process_group(0)
        .spawn()?;
    let collect = |pipe: Option<Box<dyn io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                // What was read until an error is what there is.
                let _ = pipe.take(16 << 20).read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let stdout = collect(child.stdout.take().map(|p| Box::new(p) as _));
    let stderr = collect(child.stderr.take().map(|p| Box::new(p) as _));
    let begun = Instant::now();
    let mut pause = Duration::from_micros(200);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break match (status.code(), status.signal()) {
                (Some(code), _) => Status::Exit(code),
                (None, signal) => Status::Signal(signal.unwrap_or(0)),
            };
        }
        if begun.elapsed() > patience {
            // SAFETY: the group of our own child.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            break Status::Hang(Hang::Time);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    Ok(Outcome {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
        checker: None,
        again: None,
        broken: Vec::new(),
    })
}
