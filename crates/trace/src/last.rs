//! The last events of a stream, as lines of a dump, for whoever has to find out what went wrong.
//!
//! Each event is put into words when it comes, because what it refers to (files, mappings) may be
//! gone later. That is slow, and meant for debugging only.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::dump::Scene;
use crate::event::Event;
use crate::sink::EventSink;

/// Keeps the last events; it is displayed as their lines, each ended.
///
/// ```
/// use brownout_trace::{ContextId, Event, EventKind, EventSink, FenceKind, LastEvents, TargetAddr, ThreadId};
///
/// let mut last = LastEvents::new(2);
/// for thread in 1..=3 {
///     let kind = EventKind::Fence(FenceKind::Sfence);
///     last.event(&Event { thread: ThreadId(thread), pc: TargetAddr(0), context: ContextId(0), kind })?;
/// }
/// let text = last.to_string();
/// assert_eq!(text.lines().count(), 2);
/// assert!(text.contains("t2") && text.contains("t3"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LastEvents {
    scene: Scene,
    lines: VecDeque<String>,
    count: usize,
    seen: u64,
}

impl LastEvents {
    /// Keeps so many.
    pub fn new(count: usize) -> LastEvents {
        LastEvents {
            scene: Scene::default(),
            lines: VecDeque::new(),
            count,
            seen: 0,
        }
    }
}

impl EventSink for LastEvents {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.scene.observe(event);
        let mut line = if self.lines.len() < self.count {
            String::new()
        } else {
            self.lines.pop_front().unwrap_or_default()
        };
        line.clear();
        self.scene.text(&mut line, self.seen, event, &[]);
        self.seen += 1;
        self.lines.push_back(line);
        self.lines.truncate(self.count);
        Ok(())
    }
}

impl fmt::Display for LastEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ContextId, EventKind, FenceKind, TargetAddr, ThreadId};

    fn kept(count: usize, events: u32) -> Vec<String> {
        let mut last = LastEvents::new(count);
        for thread in 0..events {
            last.event(&Event {
                thread: ThreadId(thread),
                pc: TargetAddr(0x40_1000),
                context: ContextId(0),
                kind: EventKind::Fence(FenceKind::Sfence),
            })
            .unwrap();
        }
        last.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_last_ones_are_kept_with_their_numbers() {
        let lines = kept(3, 10);
        let numbers: Vec<&str> = lines
            .iter()
            .map(|line| line.split_whitespace().next().unwrap())
            .collect();
        assert_eq!(numbers, ["7", "8", "9"]);
        assert!(
            lines[2].contains("t9") && lines[2].contains("sfence"),
            "{lines:?}"
        );
    }

    #[test]
    fn fewer_than_asked_for_and_none_at_all() {
        assert_eq!(kept(5, 2).len(), 2);
        assert!(kept(5, 0).is_empty());
        assert!(kept(0, 4).is_empty());
    }
}
