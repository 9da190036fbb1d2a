//! `--schedule`: who goes on, as users write it.
//!
//! `NAME`, `NAME:SEED`, or `list:…`, which is what a scheduled run prints: the decisions that make it what it was.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brownout_host::{Decision, Schedule, StrategyKind, decode_decisions, encode_decisions};

/// In front of a list.
const LIST: &str = "list:";

/// What `--schedule` was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleArg(pub Box<Schedule>);

impl FromStr for ScheduleArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ScheduleArg, String> {
        if let Some(list) = text.strip_prefix(LIST) {
            let bytes = URL_SAFE_NO_PAD.decode(list);
            let bytes = bytes
                .ok()
                .and_then(|bytes| zstd::decode_all(&bytes[..]).ok());
            let decisions = bytes.and_then(|bytes| decode_decisions(&bytes));
            return match decisions {
                Some(decisions) => Ok(ScheduleArg(Box::new(Schedule::repeat(decisions)))),
                None => {
                    Err("this is no list of decisions; copy it whole, as it was printed".into())
                }
            };
        }
        let (name, seed) = match text.split_once(':') {
            Some((name, seed)) => {
                let number = seed.parse::<u64>();
                (
                    name,
                    number.map_err(|_| format!("the seed '{seed}' is no number"))?,
                )
            }
            None => (text, 0),
        };
        match StrategyKind::named(name) {
            Some(StrategyKind::Replay) | None => {
                let names = StrategyKind::NAMES.iter();
                let names = names.filter(|(kind, _)| *kind != StrategyKind::Replay);
                let names: Vec<&str> = names.map(|(_, name)| *name).collect();
                Err(format!(
                    "known are {}, each with ':SEED', and 'list:…'",
                    names.join(", ")
                ))
            }
            Some(kind) => Ok(ScheduleArg(Box::new(Schedule::new(kind, seed)))),
        }
    }
}

/// A list, as an argument.
pub struct List<'a>(pub &'a [Decision]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = encode_decisions(self.0);
        // Compression of bytes in memory does not fail.
        let packed = zstd::encode_all(&bytes[..], 19).map_err(|_| fmt::Error)?;
        write!(f, "{LIST}{}", URL_SAFE_NO_PAD.encode(packed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_what_they_say() {
        let decisions: Vec<Decision> = (1..200)
            .map(|step| Decision {
                step: step * 7,
                thread: (step % 5) as u16,
                check: (step * 31) as u16,
            })
            .collect();
        let text = List(&decisions).to_string();
        let again: ScheduleArg = text.parse().unwrap();
        assert_eq!(again.0.decisions, decisions);
        assert!(text[..text.len() - 5].parse::<ScheduleArg>().is_err());
        assert_eq!("list:".parse::<ScheduleArg>().ok(), None);
    }

    #[test]
    fn names_and_seeds() {
        let schedule = |text: &str| text.parse::<ScheduleArg>().map(|arg| *arg.0);
        assert_eq!(schedule("pct:7"), Ok(Schedule::new(StrategyKind::Pct, 7)));
        assert_eq!(schedule("go-on"), Ok(Schedule::new(StrategyKind::GoOn, 0)));
        assert!(schedule("pct:x").unwrap_err().contains("no number"));
        assert!(schedule("fast").unwrap_err().contains("round-robin"));
        assert!(schedule("replay").is_err());
    }
}
