//! Reads `brownout trace dump --format json`, whose form `brownout-trace` documents.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::tool;

/// What the suites look at of one event. Traces have hundreds of thousands of them, so no more is
/// kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// The kind's name.
    pub kind: Box<str>,
    /// Address of the instruction.
    pub pc: Option<Box<str>>,
    /// Number of its calling context.
    pub context: Option<u64>,
    /// Number of the tracked file that was accessed.
    pub file: Option<u64>,
    /// Offset in that file.
    pub offset: Option<u64>,
    /// Number of bytes.
    pub size: Option<u64>,
}

/// A line of the dump: an event, or a note about a damaged stretch.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Event(Event),
    Gap {
        #[serde(rename = "gap")]
        _gap: IgnoredAny,
    },
}

/// All events of a trace, which must be readable to its end.
pub fn events(trace: &Path, folder: &Path) -> Result<Vec<Event>> {
    let outcome = tool::trace("dump", trace, &["--format", "json", "--no-symbols"], folder)
        .timeout(Duration::from_secs(300))
        .run()?
        .expect_success("trace dump")?;
    parse(&outcome.stdout)
}

/// The events of a dump; lines about damaged stretches are left out.
pub fn parse(dump: &[u8]) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in dump.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let line: Line = serde_json::from_slice(line)
            .with_context(|| format!("line {} of the dump is no event", number + 1))?;
        match line {
            Line::Event(event) => events.push(event),
            Line::Gap { .. } => {}
        }
    }
    Ok(events)
}

/// How many events of each kind.
pub fn counts(events: &[Event]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.kind.to_string()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_and_gaps_are_not() {
        let text = br#"{"index":0,"kind":"store","file":1,"offset":64,"size":8}
{"gap":{"offset_from":1,"offset_to":2}}
{"index":1,"kind":"sfence"}
"#;
        let events = parse(text).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(
            (events[0].file, events[0].offset, events[0].size),
            (Some(1), Some(64), Some(8))
        );
        assert_eq!(counts(&events)["sfence"], 1);
        assert!(parse(b"not json\n").is_err());
        assert!(parse(b"{\"neither\":1}\n").is_err());
    }
}
