//! `brownout replay`: see a finding again.
//!
//! A token is a version and, in one word, everything that the run needs: the command line, the folder, the finding's fingerprint. It
//! is self-contained, so it survives being pasted into a bug report; files that the program reads are not in it.

use std::env;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brownout_explore::CrashSpec;
use brownout_findings::{Finding, Replay};
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::resolve::{self, Task};
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
    pub fn replay(self) -> Replay {
        let token = self.encode();
        let command = format!("brownout replay {token}");
        Replay { token, command }
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
        serde_json::from_slice(&text).map_err(|_| damaged.to_owned())
    }
}

/// A letter that was mistyped must not give another command.
fn check_sum(text: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = *blake3::hash(text).as_bytes();
    [a, b, c, d]
}

/// Runs again what the token says, and shows its finding if it is there again.
pub fn replay(token: &str) -> Result<u8, Failure> {
    let token = Token::decode(token.trim())
        .map_err(|why| Failure::usage(format!("this is no replay token: {why}")))?;
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

    #[test]
    fn what_is_no_token_says_so() {
        assert!(replay("hello").is_err_and(|f| f.sentence.contains("does not begin with bo1-")));
        assert!(replay("bo1-!!").is_err_and(|f| f.sentence.contains("damaged")));
    }
}
