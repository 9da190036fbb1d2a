//! `brownout completions`, `brownout man` and `brownout header`: what an installation consists of
//! beside the tool. The first two are made from the definitions of the command line, so they never
//! lag behind it.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::cli::{Cli, Header, Shell};
use crate::exit::{self, Failure};
use crate::resolve::plain;
use crate::terminal::quote;

/// `completions`
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    print(&script(shell))
}

/// `man`
pub fn man(folder: Option<&Path>) -> Result<u8, Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| unwritten(&error))?;
        return print(&page);
    };
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => Ok(exit::OK),
        Err(error) => Err(Failure::usage(format!(
            "cannot write the manual pages to {}: {}",
            quote(folder),
            plain(&error)
        ))),
    }
}

/// `header`
pub fn header(name: Header) -> Result<u8, Failure> {
    let text = match name {
        Header::Brownout => include_str!("../../../include/brownout.h"),
        Header::Pmrace => include_str!("../../../include/pmrace.h"),
        Header::Pmtest => include_str!("../../../include/pmtest.h"),
        Header::PmtestCpp => include_str!("../../../include/pmtest.hh"),
        Header::Rule => include_str!("../../../include/brownout_rule.h"),
    };
    print(text.as_bytes())
}

fn script(shell: Shell) -> Vec<u8> {
    use clap_complete::{Shell as Known, generate};
    let known = match shell {
        Shell::Bash => Known::Bash,
        Shell::Zsh => Known::Zsh,
        Shell::Fish => Known::Fish,
    };
    // Into memory first: the generator panics when its output fails.
    let mut script = Vec::new();
    generate(known, &mut Cli::command(), "brownout", &mut script);
    script
}

/// Writes a result to stdout. A reader that closed the pipe early (`| head`) has what it wanted.
pub fn print(bytes: &[u8]) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(exit::OK),
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write the output: {}", plain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_complete_commands_options_and_rules() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            for word in ["check", "gen-suppressions", "missing-flush", "sarif"] {
                assert!(script.contains(word), "{shell:?}: {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(Some(&folder.path().join("new/man1"))).unwrap();
        for page in [
            "brownout",
            "brownout-check",
            "brownout-record",
            "brownout-trace-dump",
        ] {
            let path = folder.path().join(format!("new/man1/{page}.1"));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(".SH NAME"), "{page}: {text}");
        }
        let check = std::fs::read_to_string(folder.path().join("new/man1/brownout-check.1"));
        let check = check.unwrap();
        assert!(check.contains("error\\-exitcode"), "{check}");
        assert!(!check.contains("indiff"), "hidden: {check}");
    }
}
