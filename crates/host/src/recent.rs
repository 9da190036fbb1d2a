//! What came last before the engine failed, on request.
//!
//! `BROWNOUT_LAST_EVENTS=50` keeps the last fifty events of each run in words, and adds them to the
//! message if the run ends with a bug of ours. Without the variable nothing is kept, and nothing is
//! slower.

use brownout_trace::maps::MapFault;
use brownout_trace::{EventSink, LastEvents, Tee};

use crate::{LaunchError, Outcome};

/// The variable that says how many events are kept.
const VARIABLE: &str = "BROWNOUT_LAST_EVENTS";

/// Makes a run whose events go to `sink`, and watches them if that is wanted.
pub fn watched(
    sink: &mut dyn EventSink,
    run: impl FnOnce(&mut dyn EventSink) -> Result<Outcome, LaunchError>,
) -> Result<Outcome, LaunchError> {
    let Some(count) = wanted(std::env::var(VARIABLE).ok().as_deref())? else {
        return run(sink);
    };
    let mut last = LastEvents::new(count);
    // It comes first, so that it has the event that the other sink failed at.
    let result = run(&mut Tee::of([&mut last, sink]));
    result.map_err(|error| {
        let text = match error {
            LaunchError::Bug(text) => text,
            LaunchError::Sink(error, _) if MapFault::is_in(&error) => {
                format!("the events make no sense: {error}")
            }
            other => return other,
        };
        LaunchError::Bug(with_events(&text, &last.to_string()))
    })
}

fn wanted(value: Option<&str>) -> Result<Option<usize>, LaunchError> {
    match value {
        None | Some("" | "0") => Ok(None),
        Some(text) => match text.parse() {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(LaunchError::Variable(format!(
                "{VARIABLE} must be a number of events, not {text:?}"
            ))),
        },
    }
}

fn with_events(text: &str, events: &str) -> String {
    match events {
        "" => format!("{text}\nno event had come before"),
        events => format!("{text}\nthe last events before:\n{}", events.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_is_a_number_of_events() {
        assert_eq!(wanted(None).unwrap(), None);
        assert_eq!(wanted(Some("0")).unwrap(), None);
        assert_eq!(wanted(Some("50")).unwrap(), Some(50));
        assert!(wanted(Some("many")).is_err() && wanted(Some("-1")).is_err());
    }

    #[test]
    fn the_message_says_if_there_were_none() {
        assert_eq!(
            with_events("why", "1 a\n2 b\n"),
            "why\nthe last events before:\n1 a\n2 b"
        );
        assert_eq!(with_events("why", ""), "why\nno event had come before");
    }
}
