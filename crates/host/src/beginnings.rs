//! What programs were started with: their words, their folder, and what a test runner has told
//! them.
//!
//! Guarantee: what is told is what the kernel has of a program that has not executed an instruction
//! yet, so the program cannot have changed it. Of the environment only the variables of
//! [`VARIABLES`] are looked at; nothing else of it leaves this module.
//!
//! Deviation: a process in a PID namespace of its own goes by another number there, and its
//! programs are not told.

use std::collections::{HashMap, VecDeque};

use brownout_trace::Beginning;

/// By which test runners tell a program which test it belongs to, and `BROWNOUT_TEST` for all that
/// do not.
pub const VARIABLES: [&str; 6] = [
    "BROWNOUT_TEST",
    "NEXTEST",
    "NEXTEST_TEST_NAME",
    "NEXTEST_BINARY_ID",
    "PYTEST_CURRENT_TEST",
    // Bazel's.
    "TEST_TARGET",
];

/// Longer command lines are cut: nobody reads them, and every finding may name one.
const WORDS_LEN_MAX: usize = 8 << 10;
/// As many programs may be waiting to be announced. Those that are killed before never are.
const WAITING_MAX: usize = 4096;

/// Programs that have been started and not announced yet, by the number of their process.
#[derive(Default)]
pub struct Beginnings {
    waiting: HashMap<libc::pid_t, VecDeque<Beginning>>,
    count: usize,
}

impl Beginnings {
    /// A program is in this process now, and has not run yet.
    pub fn note(&mut self, pid: libc::pid_t, beginning: Beginning) {
        if self.count >= WAITING_MAX {
            self.waiting.clear();
            self.count = 0;
        }
        self.count += 1;
        self.waiting.entry(pid).or_default().push_back(beginning);
    }

    /// The first program of this process that has not been asked for yet.
    pub fn take(&mut self, pid: libc::pid_t) -> Option<Beginning> {
        let waiting = self.waiting.get_mut(&pid)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&pid);
        }
        self.count -= usize::from(first.is_some());
        first
    }
}

/// What the program in this process was started with.
pub fn of(pid: libc::pid_t) -> Beginning {
    let folder = crate::members::folder(pid);
    let mut bytes = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    bytes.truncate(WORDS_LEN_MAX);
    let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
    Beginning {
        pid: pid as u32,
        words: words(&bytes),
        folder: std::fs::read_link(folder.join("cwd")).unwrap_or_default(),
        variables: variables(&environment),
        words_end: std::fs::read(folder.join("stat")).map_or(0, |text| words_end(&text)),
    }
}

/// Of `/proc/PID/stat`, the 49th field (`arg_end`). The second is a name in parentheses, which may
/// hold anything.
fn words_end(stat: &[u8]) -> u64 {
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else {
        return 0;
    };
    let behind = String::from_utf8_lossy(&stat[name_end + 1..]).into_owned();
    let field = behind.split_ascii_whitespace().nth(49 - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Each word ends with a zero byte.
fn words(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let words = bytes.split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn variables(environment: &[u8]) -> Vec<(String, String)> {
    let all = environment.split(|byte| *byte == 0);
    all.filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&variable[..at], &variable[at + 1..]);
        let name = VARIABLES.iter().find(|known| known.as_bytes() == name)?;
        let value = String::from_utf8_lossy(value).into_owned();
        Some(((*name).to_owned(), value))
    })
    .collect()
}

/// What this process itself was started with, and the process that has started it.
pub fn of_ourselves() -> [Option<Beginning>; 2] {
    let own = std::process::id() as libc::pid_t;
    // SAFETY: only asks.
    let parent = unsafe { libc::getppid() };
    [own, parent].map(|pid| (pid > 1).then(|| of(pid)).filter(|b| !b.words.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_with_zero_bytes() {
        assert_eq!(words(b"a\0b c\0\0"), ["a", "b c", ""]);
        assert_eq!(words(b""), [] as [&str; 0]);
        assert_eq!(words(b"cut off"), ["cut off"]);
    }

    #[test]
    fn of_the_environment_only_what_test_runners_say_is_kept() {
        let environment =
            b"HOME=/root\0PYTEST_CURRENT_TEST=t.py::a=b (call)\0TEST_TARGET\0TEST_TARGETS=x\0";
        let kept = variables(environment);
        let expected = (
            "PYTEST_CURRENT_TEST".to_owned(),
            "t.py::a=b (call)".to_owned(),
        );
        assert_eq!(kept, [expected]);
    }

    #[test]
    fn programs_of_one_process_come_in_their_order() {
        let mut beginnings = Beginnings::default();
        let own = std::process::id() as libc::pid_t;
        assert!(beginnings.take(own).is_none());
        beginnings.note(own, of(own));
        beginnings.note(own, of(own));
        let first = beginnings.take(own).expect("it was noted");
        assert_eq!(first.folder, std::env::current_dir().unwrap());
        assert!(!first.words.is_empty());
        assert!(beginnings.take(own).is_some());
        assert!(beginnings.take(own).is_none());
        assert_eq!(beginnings.count, 0);
    }
}
