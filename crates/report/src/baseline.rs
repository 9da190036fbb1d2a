//! Baselines: an earlier report, whose findings are known.
//!
//! **Purpose.** A project that has findings already wants to hear of new ones only.
//!
//! **Guarantee.** A finding is known if the baseline holds one with the same
//! [fingerprint](crate::fingerprint), unless both reports show that it is at another place of the
//! same function (`same.rs` has the details); each finding of the baseline makes one known. Nothing
//! else of the baseline counts. So it may come from another machine and from any version of
//! Brownout whose reports have the same or an older schema; what this version cannot read of it is
//! taken for unknown, and the fingerprint counts alone.

use std::error::Error;
use std::fmt;
use std::path::Path;

use brownout_findings::numbers::counted;
use brownout_findings::{Finding, SCHEMA_VERSION, SourceText};
use serde::Deserialize;
use serde_json::Value;

use crate::bounded;
use crate::same::{self, Side};

/// Longer files are no reports that somebody keeps.
const BYTES_MAX: u64 = 1 << 30;

/// What an earlier report found.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    side: Side,
    known: u64,
}

/// Why a file is no baseline; one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineError(String);

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BaselineError {}

/// What is read of a report. Fields that other versions add or drop do not matter.
#[derive(Deserialize)]
struct Head {
    schema: u32,
    findings: Vec<Known>,
    #[serde(default)]
    known: u64,
    #[serde(default)]
    sources: Value,
}

#[derive(Deserialize)]
struct Known {
    fingerprint: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

impl Known {
    /// The whole finding, if this version can read it.
    fn finding(&self) -> Option<Finding> {
        let mut fields = self.rest.clone();
        fields.insert("fingerprint".into(), self.fingerprint.clone().into());
        serde_json::from_value(Value::Object(fields)).ok()
    }
}

impl Baseline {
    /// Reads a report in JSON from a file.
    pub fn load(path: &Path) -> Result<Baseline, BaselineError> {
        let name = path.display();
        let text = bounded::read(path, BYTES_MAX, "a report").map_err(|error| {
            BaselineError(format!("{name}: the baseline cannot be read: {error}"))
        })?;
        Baseline::parse(&text).map_err(|error| BaselineError(format!("{name}: {error}")))
    }

    /// Reads a report in JSON.
    pub fn parse(json: &[u8]) -> Result<Baseline, BaselineError> {
        let head: Head = serde_json::from_slice(json).map_err(|error| {
            BaselineError(format!(
                "this is no report of the form json, which a baseline must be: {error}"
            ))
        })?;
        if head.schema > SCHEMA_VERSION {
            return Err(BaselineError(format!(
                "the report has schema {}, and this version knows schemas up to {SCHEMA_VERSION}; take a newer version \
                 or make the baseline anew",
                head.schema
            )));
        }
        let sources: Vec<SourceText> = serde_json::from_value(head.sources).unwrap_or_default();
        let (mut whole, mut side) = (Vec::new(), Side::default());
        for known in head.findings {
            match known.finding() {
                Some(finding) => whole.push(finding),
                None => side.add_fingerprint(known.fingerprint),
            }
        }
        side.add(&whole, &sources);
        Ok(Baseline {
            side,
            known: head.known,
        })
    }

    /// How many findings it holds.
    pub fn len(&self) -> usize {
        self.side.len()
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.side.is_empty()
    }

    /// A sentence for the report if the baseline was itself made against a baseline, and so lacks
    /// what that one held.
    pub fn note(&self) -> Option<String> {
        (self.known > 0).then(|| {
            format!(
                "the baseline leaves out {} that an older baseline knew; make it without a baseline to include them",
                counted(self.known, "finding")
            )
        })
    }
}

/// Takes out what the baseline knows; also says how many findings that were. They need their
/// fingerprints, and the source lines around them, as far as those could be read.
pub fn new_only(
    findings: Vec<Finding>,
    sources: &[SourceText],
    baseline: &Baseline,
) -> (Vec<Finding>, u64) {
    let before = findings.len();
    let partners = same::pairs(&baseline.side, &Side::made(&findings, sources));
    let new = findings.into_iter().zip(partners);
    let new: Vec<Finding> = new
        .filter(|(_, partner)| partner.is_none())
        .map(|(finding, _)| finding)
        .collect();
    let known = (before - new.len()) as u64;
    (new, known)
}
