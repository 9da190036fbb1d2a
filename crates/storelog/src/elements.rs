//! Cuts a log into elements, one at a time.
//!
//! An element ends at `|` or at the end of a line. pmemcheck itself ends lines only after `STOP`,
//! but Valgrind's own messages may stand between, and people wrap logs to look at them.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;

/// Longest element. Deep call stacks of C++ templates are some ten kilobytes.
pub const ELEMENT_LEN_MAX: usize = 1 << 20;
const READ_LEN: usize = 128 << 10;

/// An element: its place in the buffer, valid until the next is taken.
#[derive(Clone, Debug)]
pub struct Element {
    pub range: Range<usize>,
    /// Of its first byte in the log.
    pub offset: u64,
    /// Nothing stands before it in its line.
    pub starts_line: bool,
    /// A separator follows, so it is whole.
    pub ended: bool,
}

pub struct Elements<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is read and not yet given out is `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Of `start` in the log.
    offset: u64,
    starts_line: bool,
    at_end: bool,
}

impl<R: Read> Elements<R> {
    pub fn new(input: R) -> Elements<R> {
        Elements {
            input,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            starts_line: true,
            at_end: false,
        }
    }

    /// Where the next element begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of an element that was just taken.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next element, possibly empty; `None` at the end of the log.
    pub fn next(&mut self) -> Result<Option<Element>, Error> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr2(b'|', b'\n', &unread[searched..]) {
                let len = searched + at;
                let ends_line = unread[len] == b'\n';
                return Ok(Some(self.take(len, Some(ends_line))));
            }
            searched = unread.len();
            if searched > ELEMENT_LEN_MAX {
                return Err(Error::Corrupt {
                    offset: self.offset,
                    what: "an element is longer than 1 MiB",
                });
            }
            if self.at_end {
                return Ok((searched > 0).then(|| self.take(searched, None)));
            }
            self.fill()?;
        }
    }

    /// `ends_line`: which separator follows; `None` at the end of the log.
    fn take(&mut self, len: usize, ends_line: Option<bool>) -> Element {
        let element = Element {
            range: self.start..self.start + len,
            offset: self.offset,
            starts_line: self.starts_line,
            ended: ends_line.is_some(),
        };
        let step = len + usize::from(ends_line.is_some());
        self.start += step;
        self.offset += step as u64;
        self.starts_line = ends_line == Some(true);
        element
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + READ_LEN {
            self.buffer.resize(self.end + READ_LEN, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(len) => self.end += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Error::Io {
                        offset: self.offset + self.end as u64,
                        source: Arc::new(error),
                    });
                }
            }
            return Ok(());
        }
    }
}
