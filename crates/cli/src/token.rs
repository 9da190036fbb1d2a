//! Replay tokens: all that it takes to see a finding again, in one word.
//!
//! A token is a version and everything that the run needs: the command line, the folder, the
//! finding's fingerprint. It is self-contained, so it survives being pasted into a bug report;
//! files that the program reads are not in it. Its size is bounded, whoever made it.

use std::env;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brownout_explore::CrashSpec;
use brownout_findings as findings;
use brownout_race::Proof;
use brownout_symex::Proof as InputProof;
use serde::{Deserialize, Serialize};

/// In front of every token: grows when old tokens are no longer understood.
const VERSION: &str = "bo1-";
/// Longest text that a token may expand to: nobody's command line is longer, and a crafted one
/// shall not fill memory.
const TEXT_LEN_MAX: usize = 4 << 20;

/// How to see a finding again.
#[derive(Debug, Clone, Default)]
pub struct Again {
    /// The words after `brownout`.
    pub words: Vec<String>,
    /// Which crash, if the finding is about one.
    pub crash: Option<CrashSpec>,
    /// Which schedule, and what it shows, if the finding needs one.
    pub race: Option<Proof>,
    /// Which input, and what it shows, if the finding has one that was solved for.
    pub symex: Option<InputProof>,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the command ran.
    pub folder: PathBuf,
    /// The words after `brownout`.
    pub words: Vec<String>,
    /// Which finding.
    pub fingerprint: String,
    /// Which crash, if the finding is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashSpec>,
    /// Which schedule, and what it shows, if the finding needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<Proof>,
    /// Which input, and what it shows, if the finding has one that was solved for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symex: Option<InputProof>,
}

impl Token {
    /// For a finding. `None` if the current folder is gone.
    pub fn new(again: Again, fingerprint: &str) -> Option<Token> {
        Some(Token {
            folder: env::current_dir().ok()?,
            words: again.words,
            fingerprint: fingerprint.to_owned(),
            crash: again.crash,
            race: again.race,
            symex: again.symex,
        })
    }

    /// As one word, and as a command to paste.
    pub fn replay(self) -> findings::Replay {
        let token = self.encode();
        let command = format!("brownout replay {token}");
        findings::Replay { token, command }
    }

    /// As one word.
    pub fn encode(&self) -> String {
        // Plain data without maps: neither step can fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut packed = zstd::bulk::compress(&text, 19).unwrap_or_default();
        packed.extend_from_slice(&check_sum(&text));
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(packed))
    }

    /// Takes one apart.
    pub fn decode(token: &str) -> Result<Token, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_come_back(words in prop::collection::vec(".{0,40}", 0..8), fingerprint in "[0-9a-f]{16}") {
            let token = Token { folder: "/a b".into(), words, fingerprint, crash: None, race: None, symex: None };
            prop_assert_eq!(Token::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn damage_is_an_error(cut in 0usize..200, letter in "[A-Za-z0-9_-]") {
            let token = Token { folder: "/".into(), words: vec!["check".into(), "x".repeat(300)], fingerprint: "0".repeat(16), crash: None, race: None, symex: None };
            let text = token.encode();
            let cut = cut % text.len();
            prop_assert!(Token::decode(&text[..cut]).is_err());
            let mut changed = text.clone();
            changed.replace_range(cut..cut + 1, &letter);
            if changed != text {
                // Bits that the compression does not use may differ; then it is still the same
                // token.
                prop_assert!(Token::decode(&changed).is_ok_and(|read| read == token) || Token::decode(&changed).is_err());
            }
        }
    }

    #[test]
    fn a_token_that_grows_without_bound_is_refused() {
        let large = Token {
            folder: "/".into(),
            words: vec!["check".into(), "x".repeat(TEXT_LEN_MAX)],
            fingerprint: "0123456789abcdef".into(),
            crash: None,
            race: None,
            symex: None,
        };
        let refused = Token::decode(&large.encode());
        assert!(refused.is_err_and(|why| why.contains("damaged")));
    }
}
