//! Reports that were saved as JSON, read back.
//!
//! **Guarantee.** Whatever the file holds, the answer is a report or one sentence that names the
//! file, says what is wrong with it and what to do. Nothing is guessed: a report that was cut off
//! is refused as a whole, and so is one of a later form, whose fields may mean something else.

use std::error::Error;
use std::fmt;
use std::path::Path;

use brownout_findings::{Report, SCHEMA_VERSION};
use serde_json::{Value, error::Category};

use crate::text::visible;
use crate::{bounded, json};

/// Longer files are no reports that a page could show.
const BYTES_MAX: u64 = 1 << 30;

/// Why a file is no report; one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedError(String);

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SavedError {}

/// Reads a report that was written with `--format json`.
pub fn load(path: &Path) -> Result<Report, SavedError> {
    let shown = path.to_string_lossy();
    let shown = visible(&shown);
    let bytes = bounded::read(path, BYTES_MAX, "a report")
        .map_err(|error| SavedError(format!("cannot read {shown}: {}", reason(&error))))?;
    parse(&bytes).map_err(|error| SavedError(format!("{shown}: {error}")))
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "reading it is not permitted".into(),
        std::io::ErrorKind::IsADirectory => {
            "it is a folder; name the report that lies in it".into()
        }
        _ => error.to_string(),
    }
}

/// What makes a new report of the right form.
const ANEW: &str = "make the report anew with --format json -o FILE";

/// As [`load`], from memory. The sentence does not name a file.
pub fn parse(bytes: &[u8]) -> Result<Report, SavedError> {
    let say = |what: String| Err(SavedError(what));
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return say(format!(
            "the file is empty, perhaps because the analysis did not come to its end; {ANEW}"
        ));
    }
    let first = match json::parse(bytes) {
        Ok(report) => return Ok(report),
        Err(error) => error,
    };
    // What is wrong with it decides what to do about it.
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) if error.classify() == Category::Eof => {
            return say(format!(
                "the report is cut off at line {}; {ANEW}",
                error.line()
            ));
        }
        Err(_) if bytes.starts_with(b"<") || bytes.starts_with(b"\xef\xbb\xbf<") => {
            return say(format!(
                "this is HTML or XML, and pages are made of reports in JSON; {ANEW}"
            ));
        }
        Err(error) => {
            return say(format!(
                "this is no JSON, or it is damaged: {}; {ANEW}",
                visible(&error.to_string())
            ));
        }
    };
    let is_ours = value["tool"]["name"] == "brownout";
    match value["schema"].as_u64() {
        Some(schema) if is_ours && schema > u64::from(SCHEMA_VERSION) => say(format!(
            "the report has schema {schema}, and this version of Brownout knows schemas up to {SCHEMA_VERSION}; \
             take the version that made it, or a later one"
        )),
        Some(_) if is_ours => say(format!(
            "the report is damaged: {}; {ANEW}",
            visible(&first)
        )),
        _ if value.get("runs").is_some() && value.get("version").is_some() => say(format!(
            "this is SARIF, and pages are made of Brownout's own JSON; {ANEW}"
        )),
        _ => say(format!("this is JSON, but no report of Brownout's; {ANEW}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{Analysed, Outcome};
    use proptest::prelude::*;

    fn whole() -> Vec<u8> {
        let outcome = Outcome::<serde_json::Map<_, _>>::default();
        let mut bytes = Vec::new();
        json::render(&outcome.report(Analysed::by("check")), &mut bytes).unwrap();
        bytes
    }

    fn error(bytes: &[u8]) -> String {
        parse(bytes).expect_err("it is no report").to_string()
    }

    #[test]
    fn each_fault_has_its_own_sentence() {
        assert!(parse(&whole()).is_ok());
        assert!(error(b" \n").contains("the file is empty"));
        assert!(error(&whole()[..200]).contains("cut off at line"));
        assert!(error(b"<!doctype html>").contains("HTML or XML"));
        assert!(error(b"\x7fELF\x02").contains("no JSON"));
        assert!(error(br#"{"a":1}"#).contains("no report of Brownout's"));
        assert!(error(br#"{"version":"2.1.0","runs":[]}"#).contains("SARIF"));
        let text = String::from_utf8(whole()).unwrap();
        let newer = text.replace("\"schema\": 1", "\"schema\": 7");
        assert!(error(newer.as_bytes()).contains("schema 7"));
        // A later form need not even look like this one.
        let later = br#"{"schema":2,"tool":{"name":"brownout"},"findings":{}}"#;
        assert!(error(later).contains("schema 2"));
        let damaged = text.replace("\"clean\"", "\"clear\"");
        assert!(error(damaged.as_bytes()).contains("the report is damaged"));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a\u{202e}b.json");
        let error = load(&path).expect_err("it is not there").to_string();
        assert!(error.contains("a\\u{202e}b.json"), "{error}");
        assert!(error.ends_with("there is no such file"), "{error}");
        std::fs::write(&path, "{").unwrap();
        let error = load(&path).expect_err("it is cut off").to_string();
        assert!(error.contains("b.json: the report is cut off"), "{error}");
        assert!(
            load(folder.path())
                .unwrap_err()
                .to_string()
                .contains("folder")
        );
        assert!(load(Path::new("/dev/zero")).is_err());
    }

    proptest! {
        /// A report that lacks its end, or has another byte somewhere, is a report or an error of
        /// one line, and never a panic.
        #[test]
        fn damage_is_never_more_than_an_error(cut in 0usize..2000, at in 0usize..2000, byte: u8) {
            let whole = whole();
            let cut = cut.min(whole.len());
            if cut + 1 < whole.len() {
                let error = error(&whole[..cut]);
                prop_assert!(!error.contains('\n') && error.contains("--format json"));
            }
            let mut changed = whole;
            let at = at % changed.len();
            changed[at] = byte;
            if let Err(error) = parse(&changed) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn any_bytes_are_refused_in_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!error(&bytes).contains('\n'));
        }
    }
}
