//! Reads `brownout trace dump --format json`, whose form `brownout-trace` documents.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tool;

/// One event as the dump shows it.
#[derive(Clone, Debug)]
pub struct Event(Value);

impl Event {
    /// The kind's name.
    pub fn kind(&self) -> &str {
        self.0["kind"].as_str().unwrap_or("")
    }

    /// Number of the tracked file that was accessed.
    pub fn file(&self) -> Option<u64> {
        self.0["file"].as_u64()
    }

    /// Offset in that file.
    pub fn offset(&self) -> Option<u64> {
        self.0["offset"].as_u64()
    }

    /// Number of bytes.
    pub fn size(&self) -> Option<u64> {
        self.0["size"].as_u64()
    }

    /// Path, in the definition of a file.
    pub fn path(&self) -> Option<&str> {
        self.0["path"].as_str()
    }
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
        let value: Value = serde_json::from_slice(line)
            .with_context(|| format!("line {} of the dump is not JSON", number + 1))?;
        if value.get("kind").is_some() {
            events.push(Event(value));
        }
    }
    Ok(events)
}

/// How many events of each kind.
pub fn counts(events: &[Event]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.kind().to_owned()).or_insert(0) += 1;
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
            (events[0].file(), events[0].offset(), events[0].size()),
            (Some(1), Some(64), Some(8))
        );
        assert_eq!(counts(&events)["sfence"], 1);
        assert!(parse(b"not json\n").is_err());
    }
}
