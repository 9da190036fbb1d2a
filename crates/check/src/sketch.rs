//! A line of source that would mend a finding, where that can be said.
//!
//! **Guarantee.** The line is right as far as it goes: put behind the statement that it is for, it
//! writes back exactly the bytes that the finding is about, or fences where a write-back is made,
//! in the same thread. It is given only if the statement stands alone on its line and not below an
//! `if` or a loop without braces, and if what it stores to is named by an expression without side
//! effects.
//!
//! **Deviations.** It is a sketch. Nobody has compiled it; the names are libpmem's, and the program
//! may have its own; in a loop one call behind the loop may do. What is stored by `memcpy` and the
//! like, or in a header, has none.

use brownout_findings::{BuiltIn, Event, Frame, Role, Sketch, blame};

use crate::source::{Sources, destination};

/// The line, if there is one.
pub fn of(rule: BuiltIn, events: &[Event], sources: &mut Sources) -> Option<Sketch> {
    let find = |role: Role| events.iter().find(|event| event.role == role);
    let store = find(Role::Store)?;
    let own = blame::frame(&store.stack)?;
    if let Some(flush) = find(Role::Flush) {
        let is_unfenced = matches!(
            rule,
            BuiltIn::MissingFence | BuiltIn::NotPersisted | BuiltIn::NotOrdered
        );
        // The frame in the source of the store: what a wrapper does inside concerns its other
        // users, too.
        let same_file = |frame: &&Frame| frame.line.is_some() && frame.file == own.file;
        let frame = flush.stack.iter().find(same_file)?;
        return match is_unfenced && flush.thread == store.thread {
            true => after(frame, "pmem_drain();", sources),
            false => None,
        };
    }
    match rule {
        BuiltIn::MissingFlush | BuiltIn::NotPersisted => {}
        // Where the other store comes first, the order is wrong, and no write-back mends that.
        BuiltIn::NotOrdered if store.index? < find(Role::LaterStore)?.index? => {}
        _ => return None,
    }
    let is_header = blame::including(&store.stack).is_some_and(|user| !std::ptr::eq(user, own));
    let size = store.place.as_ref()?.size;
    let statement = alone(own, sources)?;
    let target = destination(&statement).filter(|target| is_harmless(target))?;
    // What copies is given by its first argument, and may be stored in pieces.
    if is_header || size == 0 || statement.contains('(') {
        return None;
    }
    let fence = find(Role::Fence).and_then(|fence| {
        let same = |frame: &&Frame| (&frame.function, &frame.file) == (&own.function, &own.file);
        fence.stack.iter().find(same)
    });
    let call = match fence {
        Some(fence) if fence.line > own.line => "pmem_flush",
        _ => "pmem_persist",
    };
    after(own, &format!("{call}({target}, {size});"), sources)
}

/// The line behind that of a frame, with its indentation.
fn after(frame: &Frame, text: &str, sources: &mut Sources) -> Option<Sketch> {
    alone(frame, sources)?;
    let (file, line) = (frame.file.clone()?, frame.line?);
    let above = sources.text(&file, line)?;
    let indent: String = above.chars().take_while(|c| c.is_whitespace()).collect();
    Some(Sketch {
        file,
        line,
        text: format!("{indent}{text}"),
    })
}

/// The statement on a frame's line, without comments, if nothing else is on the line and something
/// may be put behind it.
fn alone(frame: &Frame, sources: &mut Sources) -> Option<String> {
    let (file, line) = (frame.file.as_deref()?, frame.line?);
    let is_c = [".c", ".cc", ".cpp", ".cxx"];
    if !is_c.iter().any(|ending| file.ends_with(ending)) {
        return None;
    }
    let statement = uncommented(sources.text(file, line)?)?;
    let is_one = statement.ends_with(';')
        && statement.matches(';').count() == 1
        && !statement.contains(['{', '}', '"', '#', '\\']);
    let word: String = statement
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    let leads = [
        "if", "for", "while", "else", "do", "switch", "case", "default", "return", "goto", "break",
    ];
    if !is_one || leads.contains(&word.as_str()) {
        return None;
    }
    // It must not be the only statement of something, nor the end of one that began above.
    for above in (1..line).rev().take(8) {
        let text = uncommented(sources.text(file, above)?)?;
        if text.is_empty() {
            continue;
        }
        return text.ends_with([';', '{', '}']).then_some(statement);
    }
    None
}

/// A line without its comments. None if one begins or ends in another line.
fn uncommented(line: &str) -> Option<String> {
    let line = line.split("//").next()?;
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, comment)) = rest.split_once("/*") {
        text += before;
        rest = comment.split_once("*/")?.1;
    }
    text += rest;
    // A line that goes on with a comment from above says so in most styles.
    let text = text.trim().to_owned();
    match text.contains("*/") || text.starts_with("* ") {
        true => None,
        false => Some(text),
    }
}

/// Whether an expression means the same when it is evaluated once more.
fn is_harmless(expression: &str) -> bool {
    !expression.replace("->", ".").contains(['+', '-', '(', '='])
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::Place;

    fn event(role: Role, index: u64, file: &str, line: u32) -> Event {
        Event {
            thread: Some(1),
            index: Some(index),
            place: Some(Place {
                file: "/pm/pool".into(),
                offset: 64,
                size: 8,
                address: 0,
                name: None,
            }),
            stack: vec![Frame {
                function: Some("push".into()),
                file: Some(file.into()),
                line: Some(line),
                ..Frame::default()
            }],
            ..Event::new(role, "")
        }
    }

    /// What is put behind the line of the store, which is the last.
    fn sketched(lines: &str, others: &[(Role, u32)], rule: BuiltIn) -> Option<(u32, String)> {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("list.c");
        std::fs::write(&file, lines).expect("it can be written");
        let file = file.display().to_string();
        let line = lines.lines().count() as u32;
        let mut events = vec![event(Role::Store, 1, &file, line)];
        for (number, (role, line)) in others.iter().enumerate() {
            events.push(event(*role, 2 + number as u64, &file, *line));
        }
        let sketch = of(rule, &events, &mut Sources::default())?;
        assert_eq!(sketch.file, file);
        Some((sketch.line, sketch.text))
    }

    #[test]
    fn a_statement_that_stands_alone_has_a_line_behind_it() {
        let rule = BuiltIn::MissingFlush;
        let plain = "{\n    int i;\n    node->value = 1; /* @store */\n";
        let persist = "    pmem_persist(&node->value, 8);".to_owned();
        assert_eq!(sketched(plain, &[], rule), Some((3, persist)));
        // A fence that comes later in the same function completes it.
        let flush = "    pmem_flush(&node->value, 8);".to_owned();
        assert_eq!(sketched(plain, &[(Role::Fence, 9)], rule), Some((3, flush)));
        // A write-back is there, and wants a fence.
        let drain = "    pmem_drain();".to_owned();
        let fenced = "{\n    flush(node);\n    node->value = 1;\n";
        let flushed = [(Role::Flush, 2)];
        assert_eq!(
            sketched(fenced, &flushed, BuiltIn::MissingFence),
            Some((2, drain))
        );
        assert_eq!(sketched(fenced, &flushed, rule), None);
        let pointer = "{\n\t*slot = 1;\n";
        let persist = "\tpmem_persist(slot, 8);".to_owned();
        assert_eq!(sketched(pointer, &[], rule), Some((2, persist)));
    }

    #[test]
    fn what_cannot_be_said_is_not() {
        for lines in [
            "{\n    if (full)\n        node->value = 1;\n",
            "{\n    if (full) node->value = 1;\n",
            "{\n    node->value = 1; node->next = 0;\n",
            "{\n    node->\n        value = 1;\n",
            "{\n    *slot++ = 1;\n",
            "{\n    at(i)->value = 1;\n",
            "{\n    memcpy(node->text, text, 8);\n",
            "{\n    for (;;) node->value = 1;\n",
            "{\n    while (more)\n        node->value = 1;\n",
            "#define SET node->value = 1;\n",
            "{\n    /* a comment\n    node->value = 1;\n",
            "{\n    SET(\"a\", node->value = 1);\n",
        ] {
            assert_eq!(sketched(lines, &[], BuiltIn::MissingFlush), None, "{lines}");
        }
        let plain = "{\n    node->value = 1;\n";
        assert_eq!(sketched(plain, &[], BuiltIn::TxUnloggedStore), None);
        // The other store comes first: the order is wrong.
        let later = [(Role::LaterStore, 1)];
        assert!(sketched(plain, &later, BuiltIn::NotOrdered).is_some());
    }
}
