//! The lines of a program's standard input, and how many of them it has consumed when it asks for
//! more.
//!
//! What counts is the position in the file, not how often the program reads: a shell reads byte by
//! byte, a long line comes in several pieces, and a block may hold several lines.

use std::sync::Arc;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    text: Arc<[u8]>,
    /// Positions behind each line feed.
    ends: Arc<[u64]>,
}

impl Lines {
    pub fn new(text: Vec<u8>) -> Lines {
        let feeds = text.iter().zip(1..).filter(|(byte, _)| **byte == b'\n');
        let ends = feeds.map(|(_, end)| end).collect();
        Lines {
            text: text.into(),
            ends,
        }
    }

    /// Whether the last line has no line feed.
    fn is_open(&self) -> bool {
        self.ends.last().copied().unwrap_or(0) < self.text.len() as u64
    }

    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.ends.len() + usize::from(self.is_open())
    }

    /// The text of the first `k` lines.
    pub fn first(&self, k: usize) -> &[u8] {
        let end = match k {
            0 => 0,
            k => self
                .ends
                .get(k - 1)
                .map_or(self.text.len(), |e| *e as usize),
        };
        &self.text[..end]
    }
}

/// How far a program has come in its input.
#[derive(Clone, Debug, Default)]
pub struct Consumed {
    lines: Lines,
    /// It has asked at the end of the input.
    at_end: bool,
    /// Whole lines consumed when it last asked; `None` before it has asked at all.
    pub whole: Option<u64>,
}

impl Consumed {
    pub fn new(lines: Lines) -> Consumed {
        Consumed {
            lines,
            ..Consumed::default()
        }
    }

    /// How many lines there are to be consumed.
    pub fn count(&self) -> u64 {
        self.lines.count() as u64
    }

    pub fn into_lines(self) -> Lines {
        self.lines
    }

    /// The program asks for what is at a position. Whether it is done with more lines than when it
    /// last asked.
    pub fn asks(&mut self, at: u64) -> bool {
        let lines = &self.lines;
        let mut whole = lines.ends.partition_point(|end| *end <= at) as u64;
        if at == u64::MAX {
            // No file: nothing is known of lines.
            whole = 0;
        } else if lines.is_open() && at >= lines.text.len() as u64 {
            // A line without line feed is over only when its reader is told that nothing follows.
            // Whoever asks a second time knows.
            whole += u64::from(self.at_end);
            self.at_end = true;
        }
        let before = self.whole;
        self.whole = Some(whole.max(before.unwrap_or(0)));
        before != self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumed(text: &str, asked_at: &[u64]) -> Vec<u64> {
        let mut consumed = Consumed::new(Lines::new(text.into()));
        assert_eq!(consumed.whole, None);
        let mut seen = Vec::new();
        for at in asked_at {
            let before = consumed.whole;
            assert_eq!(consumed.asks(*at), before != consumed.whole);
            seen.extend(consumed.whole);
        }
        seen
    }

    #[test]
    fn lines_have_their_line_feeds() {
        let lines = Lines::new(b"a\n\nbc".to_vec());
        assert_eq!(lines.count(), 3);
        let firsts: Vec<&[u8]> = (0..5).map(|k| lines.first(k)).collect();
        assert_eq!(firsts, [&b""[..], b"a\n", b"a\n\n", b"a\n\nbc", b"a\n\nbc"]);
        assert_eq!(Lines::new(Vec::new()).count(), 0);
        assert_eq!(Lines::new(b"\n".to_vec()).count(), 1);
        assert_eq!(Lines::new(b"x".to_vec()).count(), 1);
    }

    #[test]
    fn a_line_is_consumed_when_more_is_asked_for_behind_it() {
        // Line by line, byte by byte, and in blocks of three.
        assert_eq!(consumed("i 1\ni 2\n", &[0, 4, 8]), [0, 1, 2]);
        let all: Vec<u64> = (0..9).collect();
        assert_eq!(consumed("i 1\ni 2\n", &all), [0, 0, 0, 0, 1, 1, 1, 1, 2]);
        assert_eq!(consumed("i 1\ni 2\n", &[0, 3, 4, 7, 8]), [0, 0, 1, 1, 2]);
        // All at once.
        assert_eq!(consumed("i 1\ni 2\n", &[0, 8, 8]), [0, 2, 2]);
        // Who goes back has still seen it.
        assert_eq!(consumed("i 1\ni 2\n", &[0, 4, 0, 4, 8]), [0, 1, 1, 1, 2]);
        assert_eq!(consumed("", &[0, 0]), [0, 0]);
        assert_eq!(consumed("a\n", &[u64::MAX, u64::MAX]), [0, 0]);
    }

    #[test]
    fn a_line_without_line_feed_is_over_when_the_end_is_known() {
        assert_eq!(consumed("a\nb", &[0, 2, 3]), [0, 1, 1]);
        assert_eq!(consumed("a\nb", &[0, 2, 3, 3]), [0, 1, 1, 2]);
    }
}
