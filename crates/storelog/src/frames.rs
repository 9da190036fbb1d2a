//! The call stacks of a log: text, as Valgrind described them when it ran the program.
//!
//! `--log-stores-stacktraces=yes` puts them behind each store, innermost first, each beginning with
//! its address: `0x109189: insert (list.c:20)`. They cannot be looked up again, so they are kept as
//! they are. Each distinct stack has a number of its own, which the events of an
//! [`Importer`](crate::Importer) carry as their context.
//!
//! Frames that the compiler inlined follow their caller's frame without a separator, with the same
//! address; they are taken apart here.

use std::collections::HashMap;

use brownout_trace::event::{ContextId, TargetAddr};

/// Text that is kept. Programs have some thousands of distinct stacks; what comes beyond this goes
/// without.
const KEPT_LEN_MAX: usize = 256 << 20;

/// The distinct call stacks seen so far.
#[derive(Debug)]
pub struct Frames {
    /// By the text as it stands in the log.
    known: HashMap<Box<[u8]>, Stack>,
    /// That of context n is at n - 1.
    stacks: Vec<Vec<String>>,
    kept_len: usize,
    kept_len_max: usize,
}

/// A stack's number, and what events say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    pub context: ContextId,
    /// Address of the innermost frame; 0 if its text has none.
    pub pc: TargetAddr,
    /// Address of the frame above it, likewise.
    pub caller: TargetAddr,
}

/// Where a stack's number comes from.
pub(crate) enum Known {
    /// It was there.
    Before(Stack),
    /// It is new, and must be defined.
    New(Stack),
    /// There is no room for more.
    Full,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            known: HashMap::new(),
            stacks: Vec::new(),
            kept_len: 0,
            kept_len_max: KEPT_LEN_MAX,
        }
    }
}

impl Frames {
    /// The frames of a context, innermost first; empty if it has none.
    pub fn get(&self, context: ContextId) -> &[String] {
        (context.0 as usize)
            .checked_sub(1)
            .and_then(|at| self.stacks.get(at))
            .map_or(&[], Vec::as_slice)
    }

    /// `text` is what follows a store's size and `;`.
    pub(crate) fn number(&mut self, text: &[u8]) -> Known {
        if let Some(stack) = self.known.get(text) {
            return Known::Before(*stack);
        }
        let frames: Vec<String> = text.split(|&byte| byte == b';').flat_map(inlined).collect();
        // Twice the text, once as the key, and what a string costs by itself.
        let cost = 2 * text.len() + frames.len() * size_of::<String>();
        let Ok(number) = u32::try_from(self.stacks.len() + 1) else {
            return Known::Full;
        };
        if cost > self.kept_len_max - self.kept_len {
            return Known::Full;
        }
        self.kept_len += cost;
        let addr = |nth: usize| {
            let addr = frames.get(nth).and_then(|frame| leading_addr(frame));
            TargetAddr(addr.map_or(0, |(_, addr)| addr))
        };
        let stack = Stack {
            context: ContextId(number),
            pc: addr(0),
            caller: addr(1),
        };
        self.known.insert(text.into(), stack);
        self.stacks.push(frames);
        Known::New(stack)
    }

    #[cfg(test)]
    fn with_room_for(kept_len_max: usize) -> Frames {
        Frames {
            kept_len_max,
            ..Frames::default()
        }
    }
}

/// `0x1234: ` at the beginning: its text and its value.
fn leading_addr(frame: &str) -> Option<(&str, u64)> {
    let digits = frame.strip_prefix("0x")?;
    let len = digits.find(": ")?;
    let addr = u64::from_str_radix(&digits[..len], 16).ok()?;
    Some((&frame[..2 + len + 2], addr))
}

/// One frame of the log: a function, and those it was inlined into.
fn inlined(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut rest = text.trim();
    let mut frames = Vec::new();
    if let Some((addr, _)) = leading_addr(rest) {
        let addr = addr.to_owned();
        while let Some(at) = rest[addr.len()..].find(&addr) {
            let (frame, others) = rest.split_at(addr.len() + at);
            frames.push(frame.to_owned());
            rest = others;
        }
    }
    if !rest.is_empty() {
        frames.push(rest.to_owned());
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(frames: &mut Frames, text: &str) -> Stack {
        match frames.number(text.as_bytes()) {
            Known::New(stack) => stack,
            _ => panic!("{text:?} is not new"),
        }
    }

    #[test]
    fn equal_stacks_share_a_number() {
        let mut frames = Frames::default();
        let text = "0x109189: insert (list.c:20);0x1092AF: main (list.c:31)";
        let first = new(&mut frames, text);
        let other = new(&mut frames, "0x109190: insert (list.c:21)");
        assert_ne!(first.context, other.context);
        match frames.number(text.as_bytes()) {
            Known::Before(again) => assert_eq!(again, first),
            _ => panic!("it is known"),
        }
        assert_eq!(
            (first.pc, first.caller),
            (TargetAddr(0x109189), TargetAddr(0x1092af))
        );
        assert_eq!(
            frames.get(first.context),
            ["0x109189: insert (list.c:20)", "0x1092AF: main (list.c:31)"]
        );
        assert!(frames.get(ContextId(0)).is_empty());
        assert!(frames.get(ContextId(99)).is_empty());
    }

    #[test]
    fn inlined_frames_are_taken_apart() {
        let mut frames = Frames::default();
        let text =
            "0x40: set (a.h:3)0x40: insert (list.c:20)0x40: run (list.c:30);0x60: main (list.c:40)";
        let stack = new(&mut frames, text);
        assert_eq!(
            frames.get(stack.context),
            [
                "0x40: set (a.h:3)",
                "0x40: insert (list.c:20)",
                "0x40: run (list.c:30)",
                "0x60: main (list.c:40)"
            ]
        );
    }

    #[test]
    fn frames_without_an_address_are_kept() {
        let mut frames = Frames::default();
        let stack = new(&mut frames, "???;(below main)");
        assert_eq!(frames.get(stack.context), ["???", "(below main)"]);
        assert_eq!(stack.pc, TargetAddr(0));
    }

    #[test]
    fn room_is_bounded() {
        let mut frames = Frames::with_room_for(200);
        new(&mut frames, "0x1: a (a.c:1)");
        assert!(matches!(frames.number(&[b'x'; 100]), Known::Full));
        assert!(matches!(frames.number(b"0x1: a (a.c:1)"), Known::Before(_)));
    }
}
