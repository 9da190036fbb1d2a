//! `record --verify`: the proof that nothing was missed.
//!
//! Copies of the tracked files' first content, and the files themselves, are held by this process
//! until the end, so that it makes no difference whether the program renames or removes them.
//! Trouble with the copies never disturbs the program: it ends the verification, and
//! the exit code says that there was none.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use brownout_findings::numbers::grouped;
use brownout_symbols::{Options, Stacks};
use brownout_trace::EventSink;
use brownout_trace::event::{Event, FileId};
use brownout_trace::verify::{Mismatch, Verifier, VerifierOptions, VerifyReport};
use tempfile::TempDir;

use crate::exit::Failure;
use crate::resolve::plain;
use crate::snapshot;
use crate::terminal::{message, quote};

/// Follows a recording and compares at its end.
pub struct Verification {
    /// Holds the copies; removed with this value.
    folder: TempDir,
    verifier: Verifier<'static>,
    stacks: Stacks,
    /// The tracked files, whatever they are called by now.
    live: HashMap<FileId, File>,
    /// Why nothing can be said any more.
    trouble: Option<String>,
}

impl EventSink for Verification {
    /// Never fails: the program runs on, and [`conclude`](Verification::conclude) says what went
    /// wrong.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.trouble.is_none() {
            self.stacks.observe(event);
            if let Err(error) = self.verifier.feed(event) {
                self.give_up(error.to_string());
            }
        }
        Ok(())
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let copied = snapshot::copy(path, &copy_path(self.folder.path(), file));
        match copied.and_then(|()| File::open(path)) {
            Ok(live) => drop(self.live.insert(file, live)),
            Err(error) => self.give_up(format!("cannot copy {}: {}", quote(path), plain(&error))),
        }
        Ok(())
    }
}

impl Verification {
    /// Copies will lie in a new folder inside `folder`.
    pub fn new(folder: &Path) -> Result<Verification, Failure> {
        let folder = tempfile::Builder::new()
            .prefix(".brownout-verify-")
            .tempdir_in(folder)
            .map_err(|error| {
                let folder = quote(folder);
                Failure::usage(format!("cannot keep copies in {folder}: {}", plain(&error)))
            })?;
        let copies = folder.path().to_owned();
        let snapshot_of = move |file, _: &Path| {
            let copy = copy_path(&copies, file);
            match copy.exists() {
                true => Ok(Some(copy)),
                false => Err(io::Error::other("its first content was not seen")),
            }
        };
        Ok(Verification {
            verifier: Verifier::new(folder.path(), VerifierOptions::default(), snapshot_of),
            folder,
            stacks: Stacks::new(Options::default()),
            live: HashMap::new(),
            trouble: None,
        })
    }

    fn give_up(&mut self, reason: String) {
        self.trouble.get_or_insert(reason);
    }

    /// Compares, prints what differs, and fails if anything does.
    pub fn conclude(mut self) -> Result<(), Failure> {
        if let Some(trouble) = self.trouble {
            return Err(Failure::cannot_run(format!(
                "nothing was verified: {trouble}"
            )));
        }
        let live = &self.live;
        let report = self
            .verifier
            .finish_with(|file, path| match live.get(&file) {
                Some(live) => format!("/proc/self/fd/{}", live.as_raw_fd()).into(),
                None => path.to_owned(),
            });
        if report.is_ok() {
            let events = grouped(report.events);
            let files = match report.files.len() {
                1 => "the PM file".to_owned(),
                n => format!("all {} PM files", grouped(n as u64)),
            };
            message(&format!(
                "verified: {events} events reproduce {files} byte for byte"
            ));
            return Ok(());
        }
        show(&report, &mut self.stacks);
        Err(Failure::finding(verdict(&report)))
    }
}

fn copy_path(folder: &Path, file: FileId) -> PathBuf {
    folder.join(format!("file-{file}"))
}

fn show(report: &VerifyReport, stacks: &mut Stacks) {
    for inconsistency in &report.inconsistencies {
        message(&format!(
            "the recording contradicts itself: {inconsistency}"
        ));
    }
    for file in &report.files {
        let path = quote(&file.path);
        if let Some(error) = &file.unavailable {
            message(&format!("{path} could not be compared: {}", plain(error)));
        } else if file.size_expected != file.size_actual {
            let (actual, expected) = (grouped(file.size_actual), grouped(file.size_expected));
            message(&format!(
                "{path} has {actual} bytes, by the recording it has {expected}"
            ));
        }
    }
    for mismatch in &report.mismatches {
        message(&describe(mismatch, stacks));
    }
    let unlisted = (report.mismatches_total - report.mismatches.len() as u64)
        + (report.inconsistencies_total - report.inconsistencies.len() as u64);
    if unlisted > 0 {
        message(&format!("… and {} more", grouped(unlisted)));
    }
}

fn describe(mismatch: &Mismatch, stacks: &mut Stacks) -> String {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut text = format!(
        "{} differs at offset {:#x}:\n  recorded {}\n  found    {}",
        quote(&mismatch.path),
        mismatch.offset,
        hex(&mismatch.expected),
        hex(&mismatch.actual),
    );
    let Some(nearest) = &mismatch.nearest else {
        text.push_str("\n  no recorded event wrote this file");
        return text;
    };
    text.push_str(&format!(
        "\n  nearest: event {}, {} of {} bytes to offset {:#x} by thread {}",
        nearest.event, nearest.kind, nearest.size, nearest.offset, nearest.thread
    ));
    for frame in stacks.stack_at(nearest.thread, nearest.pc, nearest.context) {
        let inlined = if frame.inlined { " [inlined]" } else { "" };
        text.push_str(&format!("\n    {frame}{inlined}"));
    }
    text
}

fn verdict(report: &VerifyReport) -> String {
    let files = report
        .files
        .iter()
        .filter(|file| {
            file.unavailable.is_some()
                || file.bytes_different > 0
                || file.size_expected != file.size_actual
        })
        .count();
    let of = report.files.len();
    format!("verification failed: {files} of {of} PM files are not as the recording says")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;
    use brownout_trace::event::{
        Access, ContextId, EventKind, PmReason, ProcessId, TargetAddr, ThreadId,
    };
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    const BASE: u64 = 0x2000_0000_0000;

    /// A pool of one page, its verification, and the events up to its mapping.
    fn begin(folder: &Path) -> (PathBuf, Verification) {
        let pool = folder.join("pool");
        fs::write(&pool, [0; 4096]).unwrap();
        let mut verification = Verification::new(folder).unwrap();
        let (process, file) = (ProcessId(1), FileId(1));
        let parent = ProcessId(0);
        let path = pool.as_os_str().as_bytes();
        verification.new_file(file, &pool).unwrap();
        let events = [
            EventKind::ProcessStart {
                process,
                parent,
                pid: 1,
                exe: b"/none/a",
            },
            EventKind::ThreadStart {
                thread: ThreadId(1),
                process,
                tid: 1,
            },
            EventKind::Module {
                process,
                addr: TargetAddr(0x1000),
                len: 0x1000,
                offset: 0,
                path: b"/none/a",
            },
            EventKind::File {
                file,
                path,
                size: 4096,
                reason: PmReason::Glob,
                created: false,
            },
            EventKind::Map {
                addr: TargetAddr(BASE),
                len: 4096,
                file,
                offset: 0,
                prot: 3,
                flags: 1,
            },
        ];
        for kind in events {
            verification.event(&event(kind)).unwrap();
        }
        (pool, verification)
    }

    fn event(kind: EventKind<'_>) -> Event<'_> {
        let (thread, pc) = (ThreadId(1), TargetAddr(0x1234));
        let context = ContextId(0);
        Event {
            thread,
            pc,
            context,
            kind,
        }
    }

    fn store(verification: &mut Verification, offset: u64, bytes: &[u8]) {
        let addr = TargetAddr(BASE + offset);
        let size = bytes.len() as u32;
        verification
            .event(&event(EventKind::Store(Access { addr, size, bytes })))
            .unwrap();
    }

    #[test]
    fn a_whole_recording_passes_even_if_the_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, mut verification) = begin(folder.path());
        let mut content = fs::read(&pool).unwrap();
        content[8..10].copy_from_slice(b"hi");
        fs::write(&pool, content).unwrap();
        store(&mut verification, 8, b"hi");
        fs::remove_file(&pool).unwrap();
        verification.conclude().unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "no copies are left"
        );
    }

    #[test]
    fn a_missed_store_is_found_and_described() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, mut verification) = begin(folder.path());
        let mut content = fs::read(&pool).unwrap();
        content[8..10].copy_from_slice(b"hi");
        content[12] = 0xff;
        fs::write(&pool, content).unwrap();
        store(&mut verification, 8, b"hi");
        let failure = verification.conclude().unwrap_err();
        assert_eq!(failure.code, exit::FINDINGS);
        let expected = "verification failed: 1 of 1 PM files are not as the recording says";
        assert_eq!(failure.sentence, expected);
    }

    #[test]
    fn a_mismatch_names_the_place_and_the_nearest_event_with_its_stack() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, mut verification) = begin(folder.path());
        store(&mut verification, 8, b"hi");
        let report = verification.verifier.finish_with(|_, _| pool.clone());
        let text = describe(&report.mismatches[0], &mut verification.stacks);
        for part in [
            "pool differs at offset 0x8:",
            "recorded 68 69",
            "found    00 00",
            "nearest: event 5, store of 2 bytes to offset 0x8 by thread 1",
            "a+0x234",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn without_the_first_content_there_is_no_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let mut verification = Verification::new(folder.path()).unwrap();
        verification
            .new_file(FileId(1), Path::new("/no/such/pool"))
            .unwrap();
        let failure = verification.conclude().unwrap_err();
        assert_eq!(failure.code, exit::CANNOT_RUN);
        assert!(
            failure
                .sentence
                .starts_with("nothing was verified: cannot copy /no/such/pool")
        );

        let mut verification = Verification::new(folder.path()).unwrap();
        verification
            .event(&event(EventKind::File {
                file: FileId(1),
                path: b"/p",
                size: 1,
                reason: PmReason::Dax,
                created: false,
            }))
            .unwrap();
        let failure = verification.conclude().unwrap_err();
        assert!(failure.sentence.contains("its first content was not seen"));
    }
}
