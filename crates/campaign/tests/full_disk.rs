//! A disk that is really full, as far as one process is concerned: the kernel refuses to make a
//! file longer than `RLIMIT_FSIZE`.
//!
//! The limit is one of a whole process, so the test starts itself again, with the limit, and looks
//! at what that leaves.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use brownout_campaign::case_name::CaseName;
use brownout_campaign::files::{Durability, write_whole};
use brownout_campaign::folder::{Folder, Identity, Shelf};
use brownout_campaign::journal::{Journal, JournalError};

const LIMIT_BYTES: u64 = 64 << 10;
const IDENTITY: [u8; 32] = [3; 32];
const FOLDER: &str = "BROWNOUT_FULL_DISK_FOLDER";

fn limit(soft: u64) -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is whole, and the call only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Starts `test` of this file again in a process whose files stay below the limit.
fn again(test: &str, folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(FOLDER, folder);
    // SAFETY: between fork and exec nothing but two system calls happens, both of which may be made
    // there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            limit(LIMIT_BYTES)
        });
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    assert!(text.contains("1 passed"), "{text}");
}

fn limited_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

#[test]
fn an_append_that_fails_leaves_the_journal_as_it_was() {
    let record = |i: u64| (i, vec![i as u8; 1000]);
    let Some(folder) = limited_folder() else {
        let folder = tempfile::tempdir().unwrap();
        again(
            "an_append_that_fails_leaves_the_journal_as_it_was",
            folder.path(),
        );
        let (_, records, opened) =
            Journal::<(u64, Vec<u8>)>::open(&folder.path().join("journal"), &IDENTITY).unwrap();
        assert_eq!(opened.torn_bytes, 0);
        let expected: Vec<_> = (0..records.len() as u64).map(record).collect();
        assert_eq!(records, expected);
        assert!(
            records.len() as u64 > LIMIT_BYTES / 1000,
            "{}",
            records.len()
        );
        return;
    };
    let path = folder.join("journal");
    let (mut journal, _, _) = Journal::open(&path, &IDENTITY).unwrap();
    let mut next = 0;
    let error = loop {
        match journal.append(&record(next)) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    assert!(error.to_string().contains("append"), "{error}");
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(
        length,
        journal.frames().bytes(),
        "half a record was left behind"
    );
    assert!(journal.append(&record(next)).is_err(), "it is still full");
    // What is shorter may fit, and then the room is there again.
    limit(4 * LIMIT_BYTES).unwrap();
    for _ in 0..20 {
        journal.append(&record(next)).unwrap();
        next += 1;
    }
}

#[test]
fn a_whole_file_that_does_not_fit_leaves_the_old_one() {
    let Some(folder) = limited_folder() else {
        let folder = tempfile::tempdir().unwrap();
        return again(
            "a_whole_file_that_does_not_fit_leaves_the_old_one",
            folder.path(),
        );
    };
    let path = folder.join("file");
    write_whole(&path, b"old", Durability::Synced).unwrap();
    let long = vec![1; LIMIT_BYTES as usize + 1];
    write_whole(&path, &long, Durability::Synced).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");

    let identity = Identity::new("fuzz", &"key", &"other").unwrap();
    let campaign = Folder::create(&folder.join("campaign"), &identity).unwrap();
    let name = CaseName::seed(0, "seed");
    campaign
        .add_case(Shelf::Queue, &name, &long, Durability::Process)
        .unwrap_err();
    assert!(campaign.layout().cases(Shelf::Queue).unwrap().is_empty());
    let names = std::fs::read_dir(campaign.layout().shelf(Shelf::Queue)).unwrap();
    assert_eq!(names.count(), 0, "no temporary file is left");
}
