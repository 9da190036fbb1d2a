//! `--schedule`: who goes on, as users write it.
//!
//! `NAME`, `NAME:SEED`, or `list:…`, which is what a scheduled run prints: the decisions that make
//! it what it was. `list:@FILE` takes that list from a file, which `--schedule-out` writes.
//!
//! A list is one word: the number that is made of all points of its run (eight bytes) and the
//! decisions, compressed, with a check sum behind them, in the letters of base64. So a list that
//! was cut off or changed is refused before anything runs, and one of another run is at the latest
//! when that run has ended. In a file, lines that begin with `#` and empty lines mean nothing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brownout_findings::numbers::counted;
use brownout_host::{
    LaunchConfig, Outcome, Schedule, Scheduled, StrategyKind, decode_decisions, encode_decisions,
};

use crate::exit::Failure;
use crate::terminal::plain;
use crate::terminal::quote;

/// In front of a list.
const LIST: &str = "list:";
/// In front of the name of a file that has it.
const FILE: char = '@';
/// A longer list is no argument: Linux allows 128 KiB for one.
const PRINTED_MAX: usize = 100_000;
/// What is read of a file, or unpacked of a list, at most: more than the longest list has.
const LEN_MAX: u64 = 4 << 20;

/// What `--schedule` was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleArg(pub Box<Schedule>);

impl FromStr for ScheduleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ScheduleArg, String> {
        let schedule = match text.strip_prefix(LIST) {
            Some(list) => match list.strip_prefix(FILE) {
                Some(path) => from_file(Path::new(path))?,
                None => {
                    let what = "this is no list of decisions; copy it whole, as it was printed";
                    unpack(list).ok_or(what)?
                }
            },
            None => strategy(text)?,
        };
        Ok(ScheduleArg(Box::new(schedule)))
    }
}

fn strategy(text: &str) -> Result<Schedule, String> {
    let (name, seed) = match text.split_once(':') {
        Some((name, seed)) => {
            let number = seed.parse::<u64>();
            (
                name,
                number.map_err(|_| format!("the seed '{seed}' is no number"))?,
            )
        }
        None => (text, 0),
    };
    match StrategyKind::named(name) {
        // These two are told by a list, not by a name.
        Some(StrategyKind::Replay | StrategyKind::Steer) | None => {
            let lists = [StrategyKind::Replay, StrategyKind::Steer];
            let names = StrategyKind::NAMES.iter();
            let names = names.filter(|(kind, _)| !lists.contains(kind));
            let names: Vec<&str> = names.map(|(_, name)| *name).collect();
            Err(format!(
                "known are {}, each with ':SEED', 'list:…' and 'list:@FILE'",
                names.join(", ")
            ))
        }
        Some(kind) => Ok(Schedule::new(kind, seed)),
    }
}

fn from_file(path: &Path) -> Result<Schedule, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LEN_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {}", quote(path), plain(&error)))?;
    from_lines(&bytes).map_err(|what| format!("{} {what}", quote(path)))
}

/// What a file holds.
fn from_lines(bytes: &[u8]) -> Result<Schedule, &'static str> {
    const NONE: &str =
        "holds no list of decisions; 'record --schedule STRATEGY --schedule-out FILE' writes one";
    const DAMAGED: &str =
        "is damaged or not whole; the strategy and the seed that it came from write it again";
    let text = std::str::from_utf8(bytes).map_err(|_| NONE)?;
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let list = lines.next().and_then(|line| line.strip_prefix(LIST));
    let list = list.filter(|list| !list.starts_with(FILE)).ok_or(NONE)?;
    match (unpack(list), lines.next()) {
        (Some(schedule), None) => Ok(schedule),
        _ => Err(DAMAGED),
    }
}

fn pack(check: u64, decisions: &[brownout_host::Decision]) -> io::Result<String> {
    let mut plain = check.to_le_bytes().to_vec();
    plain.extend(encode_decisions(decisions));
    // In one piece, so that its tables are as large as this needs: an encoder that does not know
    // the length makes some for megabytes, which takes a twentieth of a second.
    let mut packed = zstd::bulk::compress(&plain, 19)?;
    let sum = check_sum(&packed);
    packed.extend_from_slice(&sum);
    Ok(URL_SAFE_NO_PAD.encode(packed))
}

/// Of what was compressed, not of what it was compressed from: the compression's own header has
/// bits that change nothing, and one that says whether its own sum is there to be looked at.
fn check_sum(packed: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = *blake3::hash(packed).as_bytes();
    [a, b, c, d]
}

fn unpack(list: &str) -> Option<Schedule> {
    let packed = URL_SAFE_NO_PAD.decode(list).ok()?;
    let (packed, sum) = packed.split_last_chunk()?;
    if check_sum(packed) != *sum {
        return None;
    }
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::new(packed).ok()?;
    let len = decoder.take(LEN_MAX).read_to_end(&mut bytes).ok()?;
    let (check, decisions) = bytes.split_first_chunk::<8>()?;
    if len as u64 == LEN_MAX {
        return None;
    }
    let decisions = decode_decisions(decisions)?;
    Some(Schedule::repeat_exactly(
        decisions,
        u64::from_le_bytes(*check),
    ))
}

/// The list of a run, as an argument.
fn list(scheduled: &Scheduled) -> io::Result<String> {
    let packed = pack(scheduled.check, &scheduled.decisions)?;
    Ok(format!("{LIST}{packed}"))
}

/// A file for the list of a run that has not begun.
pub struct ListFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl ListFile {
    /// What is wrong with the file is said before the program runs; what it holds stays until the
    /// program has ended.
    pub fn open(path: &Path) -> Result<ListFile, Failure> {
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| {
            let (path, why) = (quote(path), plain(&error));
            Failure::usage(format!("cannot write the schedule to {path}: {why}"))
        })?;
        Ok(ListFile {
            path: path.to_owned(),
            file,
            is_new,
        })
    }

    /// There is no list.
    pub fn abandon(self) {
        if self.is_new {
            // Nobody has asked for an empty file; if it stays, that is all.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Writes the list. The program has run, so what goes wrong does not undo that.
    pub fn write(mut self, scheduled: &Scheduled) -> Result<(), Failure> {
        let list = match list(scheduled) {
            Ok(list) => list,
            Err(error) => {
                self.abandon();
                let what = format!("cannot compress the schedule: {}", plain(&error));
                return Err(Failure::cannot_run(what));
            }
        };
        let decisions = scheduled.decisions.len() as u64;
        let text = format!(
            "# brownout record --schedule-out: {} at {}\n{list}\n",
            counted(decisions, "decision"),
            counted(scheduled.steps, "point")
        );
        let is_plain = self.file.metadata().is_ok_and(|file| file.is_file());
        let emptied = if is_plain {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        let written = emptied.and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| {
            let (path, why) = (quote(&self.path), plain(&error));
            Failure::cannot_run(format!("the schedule {path} is not whole: {why}"))
        })
    }
}

/// Fails if a run was to repeat another one and did not.
pub fn expect_repeated(launch: &LaunchConfig, outcome: &Outcome) -> Result<(), Failure> {
    let repeats = launch.schedule.as_ref().zip(outcome.scheduled.as_ref());
    match repeats.and_then(|(schedule, scheduled)| scheduled.misfit(schedule)) {
        Some(misfit) => Err(Failure::cannot_run(misfit.to_string())),
        None => Ok(()),
    }
}

/// What was decided in a run, and how to have it again.
pub struct Decisions<'a> {
    /// What came of the run.
    pub scheduled: &'a Scheduled,
    /// Where its list is kept.
    pub file: Option<&'a Path>,
}

impl fmt::Display for Decisions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheduled = self.scheduled;
        if scheduled.threads <= 1 {
            return write!(
                f,
                "schedule: nothing to schedule, because the program never had more than one thread"
            );
        }
        write!(f, "schedule: {}, ", counted(scheduled.steps, "point"))?;
        match scheduled.decisions.len() {
            0 => write!(f, "nobody was interrupted")?,
            n => write!(f, "{}", counted(n as u64, "decision"))?,
        }
        if let Some(file) = self.file {
            let file = quote(file);
            return write!(f, "; the same run again: --schedule {LIST}{FILE}{file}");
        }
        match list(scheduled) {
            Ok(list) if list.len() <= PRINTED_MAX => {
                write!(f, "; the same run again: --schedule {list}")
            }
            _ => write!(
                f,
                "; its list is too long for a command line, and --schedule-out FILE keeps it; the strategy and its seed repeat this run, too"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_host::Decision;
    use proptest::prelude::*;

    fn decisions() -> impl Strategy<Value = Vec<Decision>> {
        let one = (1u32..5000, any::<u16>(), any::<u16>());
        proptest::collection::vec(one, 0..300).prop_map(|steps| {
            let mut step = 0;
            let decision = |(distance, thread, check)| {
                step += distance;
                Decision {
                    step,
                    thread,
                    check,
                }
            };
            steps.into_iter().map(decision).collect()
        })
    }

    proptest! {
        #[test]
        fn lists_come_back_as_they_were(decisions in decisions(), check: u64) {
            let text = format!("{LIST}{}", pack(check, &decisions).unwrap());
            let expected = Schedule::repeat_exactly(decisions, check);
            let again: ScheduleArg = text.parse().unwrap();
            prop_assert_eq!(&*again.0, &expected);
            let file = format!("# of a run\n\n{text}\r\n\n");
            prop_assert_eq!(from_lines(file.as_bytes()), Ok(expected));
        }

        /// Neither a piece of a list nor one with a letter changed is taken for a list.
        #[test]
        fn damage_is_seen(decisions in decisions(), at: prop::sample::Index, letter in "[A-Za-z0-9_-]") {
            let list = pack(7, &decisions).unwrap();
            let at = at.index(list.len());
            prop_assert_eq!(unpack(&list[..at]), None);
            let mut changed = list.clone();
            changed.replace_range(at..=at, &letter);
            // The last letter may have bits that mean nothing.
            prop_assume!(URL_SAFE_NO_PAD.decode(&changed).ok() != URL_SAFE_NO_PAD.decode(&list).ok());
            prop_assert_eq!(unpack(&changed), None);
            let twice = format!("{LIST}{list}\n{LIST}{list}\n");
            prop_assert!(from_lines(twice.as_bytes()).is_err());
        }

        #[test]
        fn anything_else_is_refused(bytes: Vec<u8>) {
            prop_assert!(from_lines(&bytes).is_err());
            let mut list = LIST.as_bytes().to_vec();
            list.extend(bytes);
            prop_assert!(from_lines(&list).is_err());
        }
    }

    /// Wherever it is: the compression's header is a few bytes among thousands, and chance rarely
    /// meets it.
    #[test]
    fn any_changed_bit_is_seen() {
        let decision = |step: u32| Decision {
            step: 1 + 128 * step,
            thread: 1,
            check: 0,
        };
        let decisions: Vec<Decision> = (0..40).map(decision).collect();
        let list = pack(7, &decisions).unwrap();
        let whole = URL_SAFE_NO_PAD.decode(&list).unwrap();
        for bit in 0..8 * whole.len() {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&URL_SAFE_NO_PAD.encode(changed)), None, "bit {bit}");
        }
    }

    #[test]
    fn a_small_list_that_unpacks_to_much_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 19).unwrap();
        encoder.write_all(&vec![1; 64 << 20]).unwrap();
        let mut packed = encoder.finish().unwrap();
        let sum = check_sum(&packed);
        packed.extend_from_slice(&sum);
        let packed = URL_SAFE_NO_PAD.encode(packed);
        assert!(packed.len() < 20_000);
        assert_eq!(unpack(&packed), None);
    }

    #[test]
    fn files_say_what_is_wrong_with_them() {
        let refused = |text: &str| from_lines(text.as_bytes()).unwrap_err();
        assert!(refused("").contains("holds no list"));
        assert!(refused("# only words\n").contains("holds no list"));
        assert!(refused("random:7\n").contains("holds no list"));
        assert!(refused("list:@other\n").contains("holds no list"));
        assert!(refused("list:AAAA\n").contains("damaged"));
        let missing = "list:@/no/such/file".parse::<ScheduleArg>().unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
        let folder = "list:@/".parse::<ScheduleArg>().unwrap_err();
        assert!(folder.contains("cannot read"), "{folder}");
    }

    #[test]
    fn names_and_seeds() {
        let schedule = |text: &str| text.parse::<ScheduleArg>().map(|arg| *arg.0);
        assert_eq!(schedule("pct:7"), Ok(Schedule::new(StrategyKind::Pct, 7)));
        assert_eq!(schedule("go-on"), Ok(Schedule::new(StrategyKind::GoOn, 0)));
        assert!(schedule("pct:x").unwrap_err().contains("no number"));
        assert!(schedule("fast").unwrap_err().contains("round-robin"));
        assert!(schedule("replay").is_err());
        assert!(schedule("list:").unwrap_err().contains("no list"));
    }
}
