//! What a sanitizer says on standard error: a program that was built with `-fsanitize=address`,
//! `undefined`, `leak` or `thread` notices more than a signal shows.
//!
//! ```text
//! ==4277==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000019 at pc 0x5618198c3453 …
//!     #0 0x5618198c3452 in main /home/me/map.c:17
//!     #1 0x7fb807e45249 in __libc_start_call_main (/lib/x86_64-linux-gnu/libc.so.6+0x27249)
//! SUMMARY: AddressSanitizer: heap-buffer-overflow /home/me/map.c:17 in main
//!
//! map.c:18:50: runtime error: signed integer overflow: 5 + 2147483647 cannot be represented in type 'int'
//! ```
//! A report is believed only if the run also ended badly, or if there is a summary: a program may
//! print such words about somebody else.

use brownout_findings::Frame;

/// What a sanitizer has reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// In one line.
    pub message: String,
    /// Where, innermost first; empty if it does not say.
    pub stack: Vec<Frame>,
}

/// Frames of a stack that are kept.
const FRAMES_MAX: usize = 32;

/// The report in a text, if there is one.
pub fn read(text: &[u8], ended_badly: bool) -> Option<Reported> {
    // Most runs print nothing, or nothing of that kind.
    let text = String::from_utf8_lossy(text);
    let mut summary = None;
    let mut headline = None;
    let mut wrong = None;
    let mut stack = Vec::new();
    let mut is_whole = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(said) = line.strip_prefix("SUMMARY: ")
            && said.contains("Sanitizer: ")
        {
            summary.get_or_insert(said);
        } else if let Some((_, said)) = line.split_once("ERROR: ").or(line.split_once("WARNING: "))
            && line.starts_with("==")
            && said.contains("Sanitizer: ")
        {
            headline.get_or_insert(said);
        } else if let Some((place, said)) = line.split_once(": runtime error: ") {
            if headline.is_none() && wrong.is_none() {
                wrong = Some(said);
                stack.extend(at(place));
            }
        } else if let Some(frame) = line.strip_prefix('#') {
            if (headline.is_some() || wrong.is_some()) && !is_whole && stack.len() < FRAMES_MAX {
                let frame = parsed(frame);
                // A runtime error may have a stack, too, whose first frame is the place that it has
                // named.
                if stack.len() == 1 && headline.is_none() && frame.as_ref().is_some_and(is_first) {
                    stack.clear();
                }
                stack.extend(frame.map(|(_, frame)| frame));
            }
        } else if stack.len() > 1 || (headline.is_some() && !stack.is_empty()) {
            // What follows are the stacks of who allocated it, who freed it….
            is_whole = true;
        }
    }
    let said = summary.or(headline).or(wrong)?;
    if !ended_badly && summary.is_none() {
        return None;
    }
    let message = match (wrong, headline) {
        // Its summary says only that something is undefined.
        (Some(wrong), None) => format!("UndefinedBehaviorSanitizer: {wrong}"),
        _ => said.to_owned(),
    };
    let message = message.chars().take(300).collect();
    Some(Reported { message, stack })
}

fn is_first(frame: &(u32, Frame)) -> bool {
    frame.0 == 0
}

/// `map.c:18:50` or `map.c:18`.
fn at(place: &str) -> Option<Frame> {
    let mut parts = place.rsplitn(3, ':');
    let last: u32 = parts.next()?.parse().ok()?;
    let before = parts.next()?;
    let (file, line, column) = match (before.parse::<u32>(), parts.next()) {
        (Ok(line), Some(file)) => (file.to_owned(), line, Some(last)),
        (_, None) => (before.to_owned(), last, None),
        (Err(_), Some(file)) => (format!("{file}:{before}"), last, None),
    };
    Some(Frame {
        file: Some(file),
        line: Some(line),
        column,
        ..Frame::default()
    })
}

/// `0 0x55a22d053452 in main /home/me/map.c:17`, `3 0x55 in _start (/home/me/map+0x1170) (BuildId: …)`, `1 0x7f  (/lib/libc.so.6+0x1)`.
fn parsed(text: &str) -> Option<(u32, Frame)> {
    let (number, rest) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    let (_, rest) = rest.trim().split_once(' ')?;
    let rest = rest.trim();
    let (function, place) = match rest.strip_prefix("in ") {
        // A function's name may have spaces in it; a place has none in front of it but in brackets.
        Some(named) => match named.find(" (/").or_else(|| named.rfind(" /")) {
            Some(end) => (Some(named[..end].to_owned()), named[end..].trim()),
            None => match named.rsplit_once(' ') {
                Some((function, place)) => (Some(function.to_owned()), place),
                None => (Some(named.to_owned()), ""),
            },
        },
        None => (None, rest),
    };
    let mut frame = match place.strip_prefix('(') {
        Some(inside) => {
            let inside = inside.split(')').next().unwrap_or_default();
            let (module, offset) = inside.rsplit_once('+')?;
            let offset = offset.strip_prefix("0x").unwrap_or(offset);
            Frame {
                module: Some(module.to_owned()),
                offset: u64::from_str_radix(offset, 16).ok()?,
                ..Frame::default()
            }
        }
        None => at(place).unwrap_or_default(),
    };
    frame.function = function;
    Some((number, frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "ok\n\
=================================================================\n\
==4277==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000019 at pc 0x5618198c3453 bp 0x7f sp 0x7e\n\
WRITE of size 1 at 0x602000000019 thread T0\n    \
    #0 0x5618198c3452 in main /home/me/san.c:17\n    \
    #1 0x7fb807e45249 in operator new(unsigned long) ../sysdeps/nptl/start.h:58:3\n    \
    #2 0x55a22d053170 in _start (/home/me/asan+0x1170) (BuildId: 1234)\n    \
    #3 0x7ffc08bf8b17  ([stack]+0x1fb17)\n\
\n\
0x602000000019 is located 1 bytes to the right of 8-byte region\n\
allocated by thread T0 here:\n    \
    #0 0x7fb8080b89cf in __interceptor_malloc ../asan_malloc_linux.cpp:69\n\
\n\
SUMMARY: AddressSanitizer: heap-buffer-overflow /home/me/san.c:17 in main\n\
Shadow bytes around the buggy address:\n";

    type Place<'f> = (Option<&'f str>, Option<&'f str>, Option<u32>, u64);

    fn place(frame: &Frame) -> Place<'_> {
        let file = frame.file.as_deref().or(frame.module.as_deref());
        (frame.function.as_deref(), file, frame.line, frame.offset)
    }

    fn places(reported: &Reported) -> Vec<Place<'_>> {
        reported.stack.iter().map(place).collect()
    }

    #[test]
    fn a_report_has_its_summary_and_its_first_stack() {
        for badly in [false, true] {
            let reported = read(ADDRESS.as_bytes(), badly).expect("a report");
            let message = "AddressSanitizer: heap-buffer-overflow /home/me/san.c:17 in main";
            assert_eq!(reported.message, message);
            let expected = [
                (Some("main"), Some("/home/me/san.c"), Some(17), 0),
                (
                    Some("operator new(unsigned long)"),
                    Some("../sysdeps/nptl/start.h"),
                    Some(58),
                    0,
                ),
                (Some("_start"), Some("/home/me/asan"), None, 0x1170),
                (None, Some("[stack]"), None, 0x1fb17),
            ];
            assert_eq!(places(&reported), expected);
        }
        // It was cut off.
        let cut = ADDRESS.split("SUMMARY").next().expect("the rest");
        assert_eq!(read(cut.as_bytes(), false), None);
        let reported = read(cut.as_bytes(), true).expect("a report");
        assert!(
            reported
                .message
                .starts_with("AddressSanitizer: heap-buffer-overflow on")
        );
        assert_eq!(reported.stack.len(), 4);
    }

    #[test]
    fn a_runtime_error_has_its_place() {
        let text = "san.c:18:50: runtime error: signed integer overflow: 5 + 2147483647 cannot be represented\n";
        assert_eq!(read(text.as_bytes(), false), None);
        let reported = read(text.as_bytes(), true).expect("a report");
        assert_eq!(
            reported.message,
            "UndefinedBehaviorSanitizer: signed integer overflow: 5 + 2147483647 cannot be represented"
        );
        assert_eq!(places(&reported), [(None, Some("san.c"), Some(18), 0)]);
        let more = format!(
            "{text}    #0 0x55 in add /home/me/san.c:18\n    #1 0x56 in main /home/me/san.c:30\nok\n    #0 0x1 in other x.c:1\n\
             SUMMARY: UndefinedBehaviorSanitizer: undefined-behavior san.c:18:50 in \n"
        );
        let reported = read(more.as_bytes(), false).expect("a report");
        assert!(reported.message.contains("signed integer overflow"));
        let functions: Vec<_> = places(&reported).iter().map(|place| place.0).collect();
        assert_eq!(functions, [Some("add"), Some("main")]);
    }

    #[test]
    fn other_words_are_none() {
        for text in [
            "",
            "error: no such key\n",
            "SUMMARY: 3 keys\n",
            "ERROR: the log speaks of AddressSanitizer: really\n",
            "#0 0x55 in main san.c:1\n",
        ] {
            assert_eq!(read(text.as_bytes(), true), None, "{text}");
        }
        // Whatever there is, it is read.
        for cut in 0..ADDRESS.len() {
            read(&ADDRESS.as_bytes()[..cut], true);
        }
        read(b"==1==ERROR: XSanitizer: \xff\n#\n#0\n# 0\n#0 0x\n#1 0x1 in \n#2 0x1 ()\n#3 0x1 (a+zz)\n:: runtime error: \n", true);
    }
}
