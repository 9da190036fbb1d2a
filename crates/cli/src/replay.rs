//! `brownout replay`: see a finding again.
//!
//! A token is a version and, in one word, everything that the run needs: the command line, the folder, the finding's fingerprint. It
//! is self-contained, so it survives being pasted into a bug report; files that the program reads are not in it.
//!
//! Guarantee: looking at a token (`--show`, or the question before it is run) does no harm, whoever made it. Its size is bounded, what is
//! shown cannot deceive a terminal, no folder is entered, no file read or written and nothing run before the user has agreed to the
//! command line that was shown. Names of files are not made of what it says, but for a fingerprint, which is checked.

use std::env;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brownout_explore::CrashSpec;
use brownout_findings::{self as findings, Finding};
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::exit::{self, Failure};
use crate::resolve::{self, Replay, Task};
use crate::terminal::{message, quote};
use crate::{check, cli, explore};

/// In front of every token: grows when old tokens are no longer understood.
const VERSION: &str = "bo1-";
/// Longest text that a token may expand to: nobody's command line is longer, and a crafted one shall not fill memory.
const TEXT_LEN_MAX: usize = 4 << 20;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the command ran.
    folder: PathBuf,
    /// The words after `brownout`.
    words: Vec<String>,
    /// Which finding.
    fingerprint: String,
    /// Which crash, if the finding is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crash: Option<CrashSpec>,
}

impl Token {
    /// For a finding of `check`; `None` if the current folder is gone.
    pub fn check(words: Vec<String>, fingerprint: &str) -> Option<Token> {
        Some(Token {
            folder: env::current_dir().ok()?,
            words,
            fingerprint: fingerprint.to_owned(),
            crash: None,
        })
    }

    /// For a finding of `explore`.
    pub fn explore(words: Vec<String>, fingerprint: &str, crash: CrashSpec) -> Option<Token> {
        let token = Token::check(words, fingerprint)?;
        Some(Token {
            crash: Some(crash),
            ..token
        })
    }

    /// As one word, and as a command to paste.
    pub fn replay(self) -> findings::Replay {
        let token = self.encode();
        let command = format!("brownout replay {token}");
        findings::Replay { token, command }
    }

    fn encode(&self) -> String {
        // Plain data without maps: neither step can fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut packed = zstd::bulk::compress(&text, 19).unwrap_or_default();
        packed.extend_from_slice(&check_sum(&text));
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(packed))
    }

    fn decode(token: &str) -> Result<Token, String> {
        let Some(packed) = token.strip_prefix(VERSION) else {
            return Err(format!("it does not begin with {VERSION}"));
        };
        let damaged = "it is damaged; copy all of it";
        let packed = URL_SAFE_NO_PAD.decode(packed).map_err(|_| damaged)?;
        let (packed, sum) = packed.split_last_chunk().ok_or(damaged)?;
        let text = zstd::bulk::decompress(packed, TEXT_LEN_MAX).map_err(|_| damaged)?;
        if check_sum(&text) != *sum {
            return Err(damaged.to_owned());
        }
        let token: Token = serde_json::from_slice(&text).map_err(|_| damaged)?;
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        match token.fingerprint.len() == 16 && token.fingerprint.chars().all(is_digit) {
            true => Ok(token),
            false => Err("its fingerprint is none".to_owned()),
        }
    }
}

/// A letter that was mistyped must not give another command.
fn check_sum(text: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = *blake3::hash(text).as_bytes();
    [a, b, c, d]
}

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

/// Shows what the token says, and if the user agrees runs it again and shows its finding if it is there again.
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
        Task::Check(mut check) => {
            // The report of the first run stays as it is.
            check.report.output = None;
            check.report.format = resolve::ReportFormat::Terminal;
            check.report.gen_suppressions = None;
            check.save_trace = None;
            check::conduct(*check, Some(&token.fingerprint))
        }
        Task::Explore(explore) => {
            let crash = token.crash.unwrap_or_default();
            explore::replay(*explore, &token.fingerprint, &crash)
        }
        _ => Err(Failure::usage(
            "this token names nothing that can be replayed",
        )),
    }
}

/// Says whether it was there again.
pub fn conclude(findings: &[Finding], fingerprint: &str) {
    message(&match findings.is_empty() {
        true => format!("finding {fingerprint} did not show again"),
        false => format!("finding {fingerprint} shows again"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_come_back(words in prop::collection::vec(".{0,40}", 0..8), fingerprint in "[0-9a-f]{16}") {
            let token = Token { folder: "/a b".into(), words, fingerprint, crash: None };
            prop_assert_eq!(Token::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn damage_is_an_error(cut in 0usize..200, letter in "[A-Za-z0-9_-]") {
            let token = Token { folder: "/".into(), words: vec!["check".into(), "x".repeat(300)], fingerprint: "0".repeat(16), crash: None };
            let text = token.encode();
            let cut = cut % text.len();
            prop_assert!(Token::decode(&text[..cut]).is_err());
            let mut changed = text.clone();
            changed.replace_range(cut..cut + 1, &letter);
            if changed != text {
                // Bits that the compression does not use may differ; then it is still the same token.
                prop_assert!(Token::decode(&changed).is_ok_and(|read| read == token) || Token::decode(&changed).is_err());
            }
        }
    }

    fn refusal(token: &str, only_show: bool) -> String {
        let replay = Replay {
            token: token.into(),
            only_show,
            agreed: false,
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

    #[test]
    fn a_token_that_grows_without_bound_is_refused() {
        let large = token(&["check", &"x".repeat(TEXT_LEN_MAX)], "0123456789abcdef");
        assert!(refusal(&large.encode(), true).contains("damaged"));
    }
}
