//! Patterns of suppressions, and how a list of them matches a stack.
//!
//! `*` stands for any text, `?` for one character, `\` takes away the meaning of the next
//! character. Brackets and braces mean themselves, because names of functions are full of them
//! (`Vec<[u8; 4]>`, `{closure#0}`).

use brownout_findings::Frame;
use regex::Regex;

use crate::fingerprint::plain_name;

/// One element of a `stack` list.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// `...`: any number of frames, also none.
    Any,
    /// `fun:`: the function.
    Function(Regex),
    /// `obj:`: the file that holds the code.
    Module(Regex),
    /// `src:`: the source file, or the source file and line.
    Source(Regex),
}

impl Pattern {
    /// Reads one element; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text == "..." {
            return Ok(Pattern::Any);
        }
        let (kind, glob) = text.split_once(':').unwrap_or((text, ""));
        if !matches!(kind, "fun" | "obj" | "src") {
            return Err(format!(
                "the pattern {text:?} begins with none of fun:, obj:, src:, and is not \"...\""
            ));
        }
        if glob.is_empty() {
            return Err(format!(
                "the pattern {text:?} is empty after the colon; write {kind}:* for any"
            ));
        }
        Ok(match kind {
            "fun" => Pattern::Function(regex(glob, false)?),
            "obj" => Pattern::Module(regex(glob, true)?),
            _ => Pattern::Source(regex(glob, true)?),
        })
    }

    fn matches(&self, frame: &Frame) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Function(regex) => frame
                .function
                .as_deref()
                .is_some_and(|name| regex.is_match(name) || regex.is_match(plain_name(name))),
            Pattern::Module(regex) => frame.module.as_deref().is_some_and(|m| regex.is_match(m)),
            Pattern::Source(regex) => frame.file.as_deref().is_some_and(|file| {
                let with_line = |line| regex.is_match(&format!("{file}:{line}"));
                regex.is_match(file) || frame.line.is_some_and(with_line)
            }),
        }
    }
}

/// A relative path matches in any folder.
fn regex(glob: &str, is_path: bool) -> Result<Regex, String> {
    let mut out = String::from(r"(?s)\A");
    if is_path && !glob.starts_with('/') {
        out += "(?:.*/)?";
    }
    let mut chars = glob.chars();
    let mut after_star = false;
    while let Some(c) = chars.next() {
        let star = c == '*';
        match c {
            // Two stars are one; `char**` must not cost more than `char*`.
            '*' if after_star => {}
            '*' => out += ".*",
            '?' => out.push('.'),
            '\\' => {
                let next = chars.next().ok_or_else(|| {
                    format!(r"the pattern {glob:?} ends in \; write \\ for the character itself")
                })?;
                out += &regex::escape(next.encode_utf8(&mut [0; 4]));
            }
            c => out += &regex::escape(c.encode_utf8(&mut [0; 4])),
        }
        after_star = star;
    }
    out += r"\z";
    // Only the size can be wrong: the expression is built of escaped characters.
    Regex::new(&out).map_err(|_| format!("the pattern {glob:?} is too long"))
}

/// A pattern for text that is no path.
pub fn of_text(glob: &str) -> Result<Regex, String> {
    regex(glob, false)
}

/// Text as a pattern that matches only itself.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// True if the patterns match the stack from its innermost frame on. Frames further out than the
/// last pattern are free.
pub fn matches_stack(patterns: &[Pattern], stack: &[Frame]) -> bool {
    // Greedy: it is enough to go back to the last `...`, as in any matching of wildcards.
    let (mut pattern, mut frame) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match patterns.get(pattern) {
            None => return true,
            Some(Pattern::Any) => {
                retry = Some((pattern + 1, frame));
                pattern += 1;
                continue;
            }
            Some(wanted) if stack.get(frame).is_some_and(|f| wanted.matches(f)) => {
                pattern += 1;
                frame += 1;
                continue;
            }
            Some(_) => {}
        }
        match &mut retry {
            Some((after, from)) if *from < stack.len() => {
                *from += 1;
                (pattern, frame) = (*after, *from);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(function: &str) -> Frame {
        Frame {
            function: Some(function.into()),
            file: Some("/home/u/p/src/list.c".into()),
            line: Some(42),
            module: Some("/usr/lib/libpmemobj.so.1.0.0".into()),
            ..Frame::default()
        }
    }

    fn one(pattern: &str, frame: &Frame) -> bool {
        Pattern::parse(pattern).unwrap().matches(frame)
    }

    #[test]
    fn each_kind_looks_at_its_field() {
        let push = frame("list_push.part.0");
        for yes in [
            "fun:list_push",
            "fun:list_*",
            "fun:list_push.part.?",
            "obj:libpmemobj.so*",
            "obj:/usr/lib/*",
            "obj:lib/libpmemobj.so.1.0.0",
            "src:list.c",
            "src:list.c:4*",
            "src:list.c:42",
            "src:src/list.c:42",
            "src:/home/*/list.c:4?",
        ] {
            assert!(one(yes, &push), "{yes}");
        }
        for no in [
            "fun:push",
            "fun:list_push.part.??",
            "fun:libpmemobj*",
            "obj:libpmem.so*",
            "obj:/lib/libpmemobj*",
            "src:ist.c",
            "src:list.c:4",
            "src:list.c:43",
            "src:rc/list.c",
        ] {
            assert!(!one(no, &push), "{no}");
        }
        let bare = Frame::default();
        assert!(!one("fun:*", &bare) && !one("obj:*", &bare) && !one("src:*", &bare));
    }

    #[test]
    fn brackets_mean_themselves_and_backslash_escapes() {
        let name = "Vec<[u8; 4]>::{closure#0}(char**)";
        assert!(one(&format!("fun:{}", escape(name)), &frame(name)));
        assert!(!one(r"fun:f(\*)", &frame("f(x)")));
        assert!(one("fun:f(*)", &frame("f(x)")));
        assert!(one("fun:gr?ße", &frame("größe")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, says) in [
            ("list_push", "begins with none of"),
            ("function:x", "begins with none of"),
            ("fun:", "empty after the colon"),
            ("..", "begins with none of"),
            (r"fun:a\", "ends in"),
        ] {
            assert!(Pattern::parse(text).unwrap_err().contains(says), "{text}");
        }
    }

    fn list(patterns: &[&str]) -> Vec<Pattern> {
        patterns
            .iter()
            .map(|p| Pattern::parse(p).unwrap())
            .collect()
    }

    #[test]
    fn lists_are_anchored_at_the_innermost_frame() {
        let stack = ["a", "b", "c", "b", "d"].map(frame);
        let matches = |patterns: &[&str]| matches_stack(&list(patterns), &stack);
        assert!(matches(&["fun:a"]));
        assert!(matches(&["fun:a", "fun:b"]));
        assert!(!matches(&["fun:b"]));
        assert!(matches(&["...", "fun:b", "fun:d"]));
        assert!(matches(&["fun:a", "...", "fun:b", "..."]));
        assert!(!matches(&["...", "fun:d", "fun:a"]));
        assert!(!matches(&[
            "fun:a", "fun:b", "fun:c", "fun:b", "fun:d", "fun:*"
        ]));
        assert!(matches_stack(&list(&["..."]), &[]));
        assert!(!matches_stack(&list(&["...", "fun:a"]), &[]));
    }

    proptest! {
        /// The same question by trying every length for every `...`.
        #[test]
        fn greedy_matching_is_matching(
            wanted in prop::collection::vec(prop::sample::select(vec!["...", "fun:a", "fun:b", "fun:*"]), 0..6),
            names in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 0..7),
        ) {
            fn slow(wanted: &[Pattern], stack: &[Frame]) -> bool {
                match wanted.split_first() {
                    None => true,
                    Some((Pattern::Any, rest)) => (0..=stack.len()).any(|n| slow(rest, &stack[n..])),
                    Some((first, rest)) => !stack.is_empty() && first.matches(&stack[0]) && slow(rest, &stack[1..]),
                }
            }
            let wanted = list(&wanted);
            let stack: Vec<Frame> = names.into_iter().map(frame).collect();
            prop_assert_eq!(matches_stack(&wanted, &stack), slow(&wanted, &stack));
        }

        #[test]
        fn an_escaped_name_matches_itself_alone(name in "[a*?\\\\.]{1,6}", other in "[a*?\\\\.]{1,6}") {
            let pattern = format!("fun:{}", escape(&name));
            prop_assert!(one(&pattern, &frame(&name)));
            prop_assert_eq!(one(&pattern, &frame(&other)), name == other);
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(text in "(fun:|obj:|src:)?\\PC{0,20}") {
            let _ = Pattern::parse(&text);
        }
    }
}
