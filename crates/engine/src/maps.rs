//! The process's mappings as the kernel lists them, and which ranges are code.

use alloc::vec::Vec;

/// One line of `/proc/self/maps`.
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    pub shared: bool,
    pub offset: u64,
    /// Major and minor number of the device, a byte pair each.
    pub device: u64,
    pub inode: u64,
    pub path: Vec<u8>,
}

fn hex(s: &[u8]) -> u64 {
    s.iter().fold(0, |a, &c| {
        a << 4
            | match c {
                b'0'..=b'9' => c - b'0',
                b'a'..=b'f' => c - b'a' + 10,
                _ => 0,
            } as u64
    })
}

/// Reads the current mappings.
pub fn read() -> Vec<Mapping> {
    let text = crate::sys::read_file(c"/proc/self/maps");
    let mut out = Vec::new();
    for line in text.split(|&c| c == b'\n') {
        let mut f = line.splitn(6, |&c| c == b' ');
        let (Some(range), Some(perm), Some(offset)) = (f.next(), f.next(), f.next()) else {
            continue;
        };
        let Some(dash) = range.iter().position(|&c| c == b'-') else {
            continue;
        };
        if perm.len() < 4 {
            continue;
        }
        let device = f.next().unwrap_or(b"");
        let inode = f.next().unwrap_or(b"");
        let path = f.next().unwrap_or(b"");
        let skip = path.iter().position(|&c| c != b' ').unwrap_or(path.len());
        out.push(Mapping {
            start: hex(&range[..dash]),
            end: hex(&range[dash + 1..]),
            read: perm[0] == b'r',
            write: perm[1] == b'w',
            exec: perm[2] == b'x',
            shared: perm[3] == b's',
            offset: hex(offset),
            device: hex(device),
            inode: crate::sys::read_decimal(inode).map_or(0, |(number, _)| number),
            path: path[skip..].to_vec(),
        });
    }
    out
}

/// A range that the program may execute.
#[derive(Clone, Copy, Debug)]
pub struct CodeRange {
    pub start: u64,
    pub end: u64,
    /// The program may also write it: pages with translated code are write-protected.
    pub writable: bool,
    /// Shared with another mapping that may be written behind our back: blocks check themselves.
    pub shared: bool,
}

/// Code that was mapped from a file.
pub struct CodeFile {
    pub file: FileId,
    pub start: u64,
    pub end: u64,
}

/// Device and number of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileId(pub u64, pub u64);

/// The program's executable ranges, sorted, not overlapping.
pub struct CodeRanges {
    list: Vec<CodeRange>,
}

impl CodeRanges {
    pub const fn new() -> Self {
        CodeRanges { list: Vec::new() }
    }

    pub fn find(&self, pc: u64) -> Option<CodeRange> {
        let i = self.list.partition_point(|r| r.end <= pc);
        self.list.get(i).copied().filter(|r| r.start <= pc)
    }

    /// End of the executable bytes that follow `pc` without a gap.
    pub fn contiguous_end(&self, pc: u64) -> u64 {
        let mut end = pc;
        while let Some(r) = self.find(end) {
            end = r.end;
        }
        end
    }

    /// The parts of all ranges that lie in `start..end`.
    pub fn within(&self, start: u64, end: u64) -> Vec<CodeRange> {
        let first = self.list.partition_point(|r| r.end <= start);
        let some = self.list[first..].iter().take_while(|r| r.start < end);
        let part = |r: &CodeRange| CodeRange {
            start: r.start.max(start),
            end: r.end.min(end),
            ..*r
        };
        some.map(part).collect()
    }

    pub fn remove(&mut self, start: u64, end: u64) -> bool {
        let mut changed = false;
        let mut out = Vec::with_capacity(self.list.len() + 1);
        for r in &self.list {
            if r.end <= start || r.start >= end {
                out.push(*r);
                continue;
            }
            changed = true;
            if r.start < start {
                out.push(CodeRange { end: start, ..*r });
            }
            if r.end > end {
                out.push(CodeRange { start: end, ..*r });
            }
        }
        if changed {
            self.list = out;
        }
        changed
    }

    pub fn insert(&mut self, r: CodeRange) {
        self.remove(r.start, r.end);
        let i = self.list.partition_point(|x| x.start < r.start);
        self.list.insert(i, r);
    }
}
