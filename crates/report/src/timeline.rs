//! An interleaving as a picture: a column for each thread, an event in each line.
//!
//! ```text
//!   thread 2           thread 3
//!   (1) store at a.c:34
//!                      (2) load at a.c:48
//!                      (3) early at a.c:50
//!   ──────────────── (4) crash ────────────────
//! ```

use std::collections::BTreeSet;

use brownout_findings::rules::Analysis;
use brownout_findings::{Event, Finding, Role, blame};

/// Narrower columns cannot hold a place; wider ones tear apart what belongs together.
const WIDTH: std::ops::RangeInclusive<usize> = 14..=38;
/// More columns do not fit beside each other.
const THREADS_MAX: usize = 5;

/// The lines of it, if the finding is about an interleaving of a few threads.
pub fn of(finding: &Finding, events: &[&Event]) -> Option<Vec<String>> {
    let rule = finding.rule.built_in()?.rule();
    let threads: BTreeSet<u32> = events.iter().filter_map(|event| event.thread).collect();
    if rule.analysis != Analysis::Race || !(2..=THREADS_MAX).contains(&threads.len()) {
        return None;
    }
    let cells = (1..).zip(events).map(|(number, event)| {
        let place = match event.stack.is_empty() {
            true => String::new(),
            false => format!(" at {}", blame::place(&event.stack)),
        };
        (event, format!("({number}) {}{place}", word(event.role)))
    });
    let cells: Vec<(&&Event, String)> = cells.collect();
    let longest = cells.iter().map(|(_, text)| text.chars().count() + 2).max();
    let width = longest.unwrap_or(0).clamp(*WIDTH.start(), *WIDTH.end());
    let mut lines = Vec::new();
    let heads = threads
        .iter()
        .map(|thread| format!("{:width$}", format!("thread {thread}")));
    lines.push(heads.collect::<String>().trim_end().to_owned());
    for (event, text) in cells {
        let column = event
            .thread
            .and_then(|thread| threads.iter().position(|t| *t == thread));
        lines.push(match (event.role, column) {
            (Role::Crash, _) | (_, None) => {
                let room = (width * threads.len()).saturating_sub(text.chars().count() + 2);
                let rule = "─".repeat(room / 2);
                format!("{rule} {text} {rule}").trim().to_owned()
            }
            (_, Some(column)) => format!("{:indent$}{text}", "", indent = column * width),
        });
    }
    Some(lines)
}

/// What happened, for a narrow column.
fn word(role: Role) -> &'static str {
    match role {
        Role::Early => "survives",
        Role::Write => "leaves",
        Role::Event => "waits",
        role => role.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{BuiltIn, Severity};

    fn event(role: Role, thread: u32) -> Event {
        Event {
            thread: Some(thread),
            ..Event::new(role, "")
        }
    }

    #[test]
    fn each_thread_has_its_column() {
        let mut finding = Finding::new(
            BuiltIn::InterThreadInconsistency,
            Severity::Correctness,
            "lost",
        );
        finding.events = vec![
            event(Role::Store, 2),
            event(Role::Load, 7),
            event(Role::Early, 7),
            Event::new(Role::Crash, ""),
        ];
        let events: Vec<&Event> = finding.events.iter().collect();
        let lines = of(&finding, &events).expect("two threads");
        assert_eq!(lines[0], "thread 2      thread 7");
        assert_eq!(lines[1], "(1) store");
        assert_eq!(lines[2], "              (2) load");
        assert_eq!(lines[3], "              (3) survives");
        assert!(lines[4].contains("─ (4) crash ─"));
    }

    #[test]
    fn what_is_about_one_thread_has_none() {
        let mut finding = Finding::new(BuiltIn::Deadlock, Severity::Correctness, "stuck");
        finding.events = vec![event(Role::Event, 2), event(Role::Event, 2)];
        let events: Vec<&Event> = finding.events.iter().collect();
        assert!(of(&finding, &events).is_none());
        let mut other = Finding::new(BuiltIn::MissingFlush, Severity::Correctness, "dirty");
        other.events = vec![event(Role::Store, 1), event(Role::Load, 2)];
        let events: Vec<&Event> = other.events.iter().collect();
        assert!(of(&other, &events).is_none());
    }
}
