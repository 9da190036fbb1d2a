//! `kill -9` at any moment costs nothing that was acknowledged.
//!
//! The test starts itself again as a process that fills a campaign's folder and says what it has
//! recorded, kills it after some of that, looks at what is there, and goes on with the same folder.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use brownout_campaign::case_name::CaseName;
use brownout_campaign::files::{self, Durability};
use brownout_campaign::folder::{Folder, FolderError, Identity, Layout, Shelf};
use brownout_campaign::journal::Journal;
use brownout_random::Random;

const FOLDER: &str = "BROWNOUT_KILL_FOLDER";
const KILLS: usize = 20;

type Record = (u64, Vec<u8>);

fn identity() -> Identity {
    Identity::new("fuzz", &"the same", &"whatever").unwrap()
}

fn record(number: u64) -> Record {
    // Long enough to span pages now and then.
    (number, vec![number as u8; (number * 97 % 9000) as usize])
}

fn journal(layout: &Layout) -> (Journal<Record>, Vec<Record>) {
    let (journal, records, _) = Journal::open(&layout.journal(), &identity().hash()).unwrap();
    (journal, records)
}

/// Fills the folder until somebody kills it.
fn fill(path: &Path) {
    let folder = match Folder::create(path, &identity()) {
        Err(FolderError::Exists { .. }) => Folder::resume(path, &identity()).unwrap(),
        folder => folder.unwrap(),
    };
    let (mut journal, records) = journal(folder.layout());
    let mut out = std::io::stdout();
    for number in records.len() as u64.. {
        // The case first: what the journal has must be there.
        let (_, input) = record(number);
        let name = CaseName::from_case(number, 0, None, "havoc");
        let how = Durability::Process;
        folder.add_case(Shelf::Queue, &name, &input, how).unwrap();
        journal.append(&record(number)).unwrap();
        // In one write, so that the parent does not see half a number.
        out.write_all(format!("recorded {number}\n").as_bytes())
            .unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(Path::new(&folder));
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("campaign");
    let mut random = Random::new(13);
    let mut acknowledged = 0;
    for _ in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "what_was_acknowledged_is_there_after_a_kill",
                "--nocapture",
            ])
            .env(FOLDER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut wanted = random.below(25);
        let mut line = String::new();
        while wanted > 0 {
            line.clear();
            assert_ne!(
                lines.read_line(&mut line).unwrap(),
                0,
                "it has ended by itself"
            );
            if let Some((_, number)) = line.trim_end().split_once("recorded ") {
                acknowledged = number.parse::<u64>().unwrap() + 1;
                wanted -= 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died counts, too.
        for line in lines.lines() {
            if let Some((_, number)) = line.unwrap().split_once("recorded ") {
                acknowledged = number.parse::<u64>().unwrap() + 1;
            }
        }
        let folder = match Folder::resume(&path, &identity()) {
            Err(FolderError::NotACampaign { .. }) => {
                assert_eq!(acknowledged, 0);
                continue;
            }
            folder => folder.unwrap(),
        };
        let (_, records) = journal(folder.layout());
        let count = records.len() as u64;
        // One may have been appended and not acknowledged.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&count),
            "{count}, {acknowledged}"
        );
        assert!(records.into_iter().eq((0..count).map(record)));
        let cases = folder.layout().cases(Shelf::Queue).unwrap();
        let ids: Vec<u64> = cases.iter().map(|case| case.name.id).collect();
        assert!(ids.len() as u64 >= count && ids.len() as u64 <= count + 1);
        assert!(ids.iter().copied().eq(0..ids.len() as u64));
        for case in &cases {
            let (_, input) = record(case.name.id);
            assert_eq!(std::fs::read(&case.path).unwrap(), input, "{:?}", case.path);
        }
        let names = std::fs::read_dir(folder.layout().shelf(Shelf::Queue)).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name());
        assert!(!names.any(|name| files::is_temporary(&name)));
    }
    assert!(acknowledged > 0);
}
