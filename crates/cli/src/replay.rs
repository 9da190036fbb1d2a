//! `brownout replay`: see a finding again.
//!
//! Guarantee: looking at a token (`--show`, or the question before it is run) does no harm, whoever
//! made it. Its size is bounded, what is shown cannot deceive a terminal, no folder is entered, no
//! file read or written and nothing run before the user has agreed to the command line that was
//! shown. Names of files are not made of what it says, but for a fingerprint, which is checked.

use std::env;
use std::path::PathBuf;

use brownout_race::Proof;
use clap::Parser;

use crate::cli::Stage;
use crate::exit::{self, Failure};
use crate::gdb;
use crate::resolve::{self, Replay, Task};
use crate::terminal::{message, quote};
use crate::token::Token;
use crate::{check, cli, explore, fuzz, race, symex};

/// Whether the user wants it.
fn is_agreed() -> bool {
    use std::io::{IsTerminal, Write};
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let _ = write!(std::io::stderr(), "brownout: run it? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let is_read = std::io::stdin().read_line(&mut answer).is_ok();
    is_read && ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

/// Shows what the token says, and if the user agrees runs it again and shows its finding if it is
/// there again.
pub fn replay(replay: &Replay) -> Result<u8, Failure> {
    let token = Token::decode(replay.token.trim())
        .map_err(|why| Failure::usage(format!("this is no replay token: {why}")))?;
    let words: Vec<String> = token.words.iter().map(quote).collect();
    message(&format!(
        "finding {}, in the folder {}:",
        token.fingerprint,
        quote(&token.folder)
    ));
    message(&format!("  brownout {}", words.join(" ")));
    if replay.only_show {
        return Ok(exit::OK);
    }
    if !replay.agreed && !is_agreed() {
        return Err(Failure::usage(
            "nothing was run; if this is what you want to run, add --yes",
        ));
    }
    env::set_current_dir(&token.folder).map_err(|error| {
        let folder = quote(&token.folder);
        Failure::usage(format!(
            "cannot go to {folder}, where the run was: {}",
            resolve::plain(&error)
        ))
    })?;
    let words = ["brownout".to_owned()]
        .into_iter()
        .chain(token.words.clone());
    let cli = cli::Cli::try_parse_from(words)
        .map_err(|_| Failure::usage("this token was made by another version of Brownout"))?;
    let line = token.words.iter().map(Into::into).collect();
    match resolve::resolve(cli, line)? {
        Task::Check(check) if replay.gdb.is_some() => debug(*check, &token, replay.gdb),
        Task::Check(mut check) => {
            // The report of the first run stays as it is.
            check.report.output = None;
            check.report.format = resolve::ReportFormat::Terminal;
            check.report.gen_suppressions = None;
            check.report.coverage = None;
            check.save_trace = None;
            check::conduct(*check, Some(&token.fingerprint))
        }
        Task::Explore(explore) => {
            let crash = token.crash.unwrap_or_default();
            match replay.gdb {
                Some(stage @ (Stage::Store | Stage::Crash)) => {
                    explore::debug(*explore, &crash, stage)
                }
                in_gdb => explore::replay(*explore, &token.fingerprint, &crash, in_gdb.is_some()),
            }
        }
        task if replay.gdb.is_some() => Err(Failure::usage(no_gdb(&task, &token))),
        Task::Race(race) => match &token.race {
            Some(proof) => race::replay(*race, &token.fingerprint, proof),
            None => Err(Failure::usage("this token has no schedule to replay")),
        },
        Task::Symex(symex) => match &token.symex {
            Some(proof) => symex::replay(*symex, &token.fingerprint, proof),
            None => Err(Failure::usage("this token has no input to replay")),
        },
        Task::Campaign(command) => fuzz::look(command, Some(&token.fingerprint)),
        _ => Err(Failure::usage(
            "this token names nothing that can be replayed",
        )),
    }
}

/// Why gdb does not show a finding of this analysis, and what does.
fn no_gdb(task: &Task, token: &Token) -> String {
    const ONLY: &str = "gdb stops for findings of 'brownout check' and 'brownout explore' only";
    const SCHEDULE: &str =
        "a finding of 'brownout race' takes a schedule, which gdb does not follow";
    let has_crash = token.race.as_ref().is_some_and(Proof::has_crash);
    let (why, instead) = match task {
        Task::Race(_) if has_crash => (
            SCHEDULE,
            "without --gdb it is shown again, and the command behind 'debugger:' runs recovery in gdb on what the crash leaves",
        ),
        Task::Race(_) => (
            SCHEDULE,
            "without --gdb it is shown again; it takes no power failure, so there is no recovery to run in gdb",
        ),
        Task::Symex(_) => (
            ONLY,
            "without --gdb this one is shown again; give its input to one of these, and take the token of the finding there",
        ),
        _ => (
            ONLY,
            "without --gdb this one is shown again; 'brownout fuzz repro DIR ID --native' runs it without Brownout",
        ),
    };
    format!("{why}; {instead}")
}

/// Sees the finding again, and hands the program to gdb.
fn debug(check: resolve::Check, token: &Token, stage: Option<Stage>) -> Result<u8, Failure> {
    let stage = stage.unwrap_or(Stage::Store);
    if stage == Stage::Recovery {
        return Err(Failure::usage(
            "a finding of 'brownout check' has no crash image to recover; take --gdb store, or 'brownout explore'",
        ));
    }
    let stdin = standard_input(&token.words);
    let stdin = stdin.and_then(|path| std::path::absolute(path).ok());
    let again = check::find(&check, &token.fingerprint, stdin)?;
    let Some(finding) = &again.finding else {
        message(&format!(
            "finding {} did not show again, so there is nowhere to stop; the program ran on the files as they are now",
            token.fingerprint
        ));
        return Ok(exit::OK);
    };
    gdb::debug(gdb::Session {
        finding,
        stage,
        program: &again.program,
        run: again.run,
        seen: again.seen,
    })
}

/// What a command line names as the program's standard input.
fn standard_input(words: &[String]) -> Option<PathBuf> {
    let options = words.iter().take_while(|word| *word != "--");
    let mut found = None;
    let mut options = options.peekable();
    while let Some(word) = options.next() {
        if word == "--stdin" {
            found = options.peek().map(PathBuf::from);
        } else if let Some(path) = word.strip_prefix("--stdin=") {
            found = Some(path.into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(token: &str, only_show: bool) -> String {
        let replay = Replay {
            token: token.into(),
            only_show,
            agreed: false,
            gdb: None,
        };
        super::replay(&replay).expect_err("it is refused").sentence
    }

    #[test]
    fn what_is_no_token_says_so() {
        for only_show in [false, true] {
            assert!(refusal("hello", only_show).contains("does not begin with bo1-"));
            assert!(refusal("bo1-!!", only_show).contains("damaged"));
        }
    }

    fn token(words: &[&str], fingerprint: &str) -> Token {
        Token {
            folder: "/no/such/folder".into(),
            words: words.iter().map(|w| w.to_string()).collect(),
            fingerprint: fingerprint.into(),
            crash: None,
            race: None,
            symex: None,
        }
    }

    /// Tests have no terminal to ask on.
    #[test]
    fn nothing_runs_unless_the_user_agrees() {
        let harmful = token(&["check", "--", "rm", "-rf", "x"], "0123456789abcdef").encode();
        assert!(refusal(&harmful, false).contains("--yes"));
        let show = Replay {
            token: harmful,
            only_show: true,
            agreed: false,
            gdb: None,
        };
        assert_eq!(super::replay(&show).ok(), Some(exit::OK));
    }

    #[test]
    fn a_fingerprint_names_no_path() {
        for name in ["../../../etc/x", "", "0123456789ABCDEF", "/123456789abcdef"] {
            let crafted = token(&["explore"], name).encode();
            assert!(refusal(&crafted, true).contains("fingerprint"), "{name}");
        }
    }

    /// What is promised instead of gdb is there.
    #[test]
    fn what_gdb_cannot_show_is_shown_otherwise() {
        let words = ["race", "--no-config", "--", "true"];
        let told = |proof: &str| {
            let mut token = token(&words, "0123456789abcdef");
            token.race = Some(serde_json::from_str(proof).expect("a proof"));
            let line = ["brownout"].iter().chain(&words);
            let cli = cli::Cli::try_parse_from(line).expect("a command line");
            let Ok(task) = resolve::resolve(cli, Vec::new()) else {
                panic!("a task");
            };
            no_gdb(&task, &token)
        };
        let deadlock = told(r#"{"schedule": [], "what": {"deadlock": {"name": 1}}}"#);
        assert!(!deadlock.contains("debugger:"), "{deadlock}");
        let lock = told(
            r#"{"schedule": [], "what": {"change": {"name": 1}},
                "crash": {"point": 1, "run": "x", "survivors": []}}"#,
        );
        assert!(lock.contains("debugger:"), "{lock}");
    }
}
