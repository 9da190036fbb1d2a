//! How the tool ends: the exit codes, and the one error type that carries them.
//!
//! `run` and `record` end with the *program's* status whenever the tool did its work, so that they
//! can stand in front of any command in a script; a program's own status may therefore coincide
//! with a code below. The tool's message on stderr (it begins with `brownout: `) tells them apart.

use std::fmt;

use brownout_host::{ExitStatus, LaunchError};

/// All is well.
pub const OK: u8 = 0;
/// Findings, a failed verification, or a file for `trace` that is damaged (what was readable was
/// shown).
pub const FINDINGS: u8 = 1;
/// The command line makes no sense, or names files that cannot be used.
pub const USAGE: u8 = 2;
/// The program could not be run, does something unsupported, or could not be recorded to its end;
/// or what was looked at has no findings, but is not all, as with a damaged trace.
pub const CANNOT_RUN: u8 = 3;
/// A bug in Brownout. `EX_SOFTWARE` of sysexits.h.
pub const BUG: u8 = 70;
/// Added to the signal's number when a signal ended the program, as shells do.
const SIGNAL_BASE: i32 = 128;

/// Why the tool gives up: one sentence, and the code to exit with.
#[derive(Debug)]
pub struct Failure {
    /// One of the constants of this module.
    pub code: u8,
    /// One sentence, without final stop.
    pub sentence: String,
}

impl Failure {
    /// The command line is at fault.
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure {
            code: USAGE,
            sentence: without_numbers(sentence.into()),
        }
    }

    /// The run is at fault.
    pub fn cannot_run(sentence: impl Into<String>) -> Failure {
        Failure {
            code: CANNOT_RUN,
            sentence: without_numbers(sentence.into()),
        }
    }

    /// We are at fault.
    pub fn bug(sentence: impl Into<String>) -> Failure {
        Failure {
            code: BUG,
            sentence: sentence.into(),
        }
    }

    /// A trace is damaged, or a check failed.
    pub fn finding(sentence: impl Into<String>) -> Failure {
        Failure {
            code: FINDINGS,
            sentence: sentence.into(),
        }
    }
}

/// The system's words for errors are for people, its numbers are not.
fn without_numbers(mut sentence: String) -> String {
    const BEGIN: &str = " (os error ";
    let mut from = 0;
    while let Some(at) = sentence[from..].find(BEGIN).map(|at| from + at) {
        let number = &sentence[at + BEGIN.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && number[digits..].starts_with(')') {
            sentence.replace_range(at..=at + BEGIN.len() + digits, "");
        } else {
            from = at + BEGIN.len();
        }
    }
    sentence
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Failure {
        let cause = cause(&error).unwrap_or_default();
        Failure {
            code: if error.is_bug() { BUG } else { CANNOT_RUN },
            sentence: format!("{error}{cause}"),
        }
    }
}

/// What is behind a failure of the launch, where the system does not say it.
fn cause(error: &LaunchError) -> Option<&'static str> {
    let LaunchError::Launch(_, error) = error else {
        return None;
    };
    let has_proc = std::path::Path::new("/proc/self/status").exists();
    match error.raw_os_error() {
        _ if !has_proc => Some("; /proc is not mounted here, and it is needed"),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Some(
            "; tracing a program (ptrace) may be forbidden here: in a container, add the capability SYS_PTRACE; docs/recipes.md tells what each command needs",
        ),
        _ => None,
    }
}

/// The status that stands for how the program ended.
pub fn of_program(status: &ExitStatus) -> u8 {
    let status = match status {
        ExitStatus::Code(code) => *code,
        ExitStatus::Signal(signal) => SIGNAL_BASE + signal,
    };
    // The kernel keeps eight bits as well.
    (status & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let said = |text: &str| Failure::usage(text).sentence;
        assert_eq!(
            said("a: no (os error 2); b: gone (os error 13)"),
            "a: no; b: gone"
        );
        let other = "the file ' (os error x)' (os error";
        assert_eq!(said(other), other);
    }

    #[test]
    fn a_launch_that_is_forbidden_says_what_to_do() {
        let failed = |number| {
            let error = std::io::Error::from_raw_os_error(number);
            Failure::from(LaunchError::Launch("tracing", error)).sentence
        };
        assert!(failed(libc::EPERM).contains("SYS_PTRACE"));
        assert!(!failed(libc::ENOMEM).contains("SYS_PTRACE"));
    }

    #[test]
    fn program_status_is_what_a_shell_would_see() {
        assert_eq!(of_program(&ExitStatus::Code(0)), 0);
        assert_eq!(of_program(&ExitStatus::Code(42)), 42);
        assert_eq!(of_program(&ExitStatus::Code(-1)), 255);
        assert_eq!(of_program(&ExitStatus::Signal(libc::SIGKILL)), 137);
        assert_eq!(of_program(&ExitStatus::Signal(libc::SIGSEGV)), 139);
    }
}
