//! What a rule must remember of each thread.

use brownout_model::{ByteRange, Key, Line, Moment, Tag};
use brownout_trace::event::{ProcessId, TargetAddr, ThreadId};

/// Write-backs of neighbouring lines by one instruction: a loop over a range.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlushRun {
    pub tag: Tag,
    /// The write-back that a repeated one repeats.
    pub earlier: Tag,
    /// First byte of the next line, if the run goes on.
    pub next: u64,
    pub first: Key,
    pub first_addr: TargetAddr,
    pub begun: Moment,
    /// 0: there is no run.
    pub lines: u64,
    pub clean: u64,
    pub again: u64,
    pub redirtied: u64,
    /// The write-back that was in vain because of it.
    pub earlier_redirtied: Tag,
    /// Store and write-back that last persisted a clean line, if the run met such.
    pub persisted: Option<(Tag, Tag)>,
}

impl FlushRun {
    /// True if a write-back of `line` at `tag` belongs to the run.
    #[inline]
    pub fn goes_on(&self, tag: Tag, line: ByteRange) -> bool {
        self.lines != 0 && self.tag == tag && self.next == line.start().0
    }
}

/// The last write-backs of a thread that no fence of its own has completed: a small table, in which
/// a later one may take an earlier one's place.
#[derive(Clone, Debug)]
pub struct RecentWriteBacks {
    /// Line, who wrote it back, and after how many fences.
    lines: [(Line, Tag, u32); RECENT_LINES],
    /// From 1, so that an empty place is of no time.
    fences: u32,
}

/// A power of two.
const RECENT_LINES: usize = 32;

impl Default for RecentWriteBacks {
    fn default() -> Self {
        RecentWriteBacks {
            lines: [(Line(0), Tag(0), 0); RECENT_LINES],
            fences: 1,
        }
    }
}

impl RecentWriteBacks {
    /// The line is written back at `tag`; answers who has done that since the last fence.
    #[inline(always)]
    pub fn write_back(&mut self, line: Line, tag: Tag) -> Option<Tag> {
        let place = &mut self.lines[line.0 as usize % RECENT_LINES];
        let earlier = (place.0 == line && place.2 == self.fences).then_some(place.1);
        *place = (line, tag, self.fences);
        earlier
    }

    /// All is complete.
    #[inline(always)]
    pub fn fenced(&mut self) {
        self.fences = self.fences.wrapping_add(1).max(1);
    }
}

/// Lines that were stored to since some moment, without repetition in the long run.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    lines: Vec<u64>,
    tidy_at: usize,
}

/// Below this length nothing is gained by looking for repetitions.
const TIDY_MIN: usize = 1024;

impl Touched {
    #[inline(always)]
    pub fn add(&mut self, range: ByteRange) {
        const LINE: u64 = brownout_model::LINE_BYTES;
        let (first, last) = (range.start().0 / LINE, (range.end().0 - 1) / LINE);
        // A structure is stored to field by field.
        if first != last || self.lines.last() != Some(&first) {
            self.add_lines(first, last);
        }
    }

    #[inline(never)]
    fn add_lines(&mut self, first: u64, last: u64) {
        for line in first..=last {
            // Two at a time when something is copied.
            let known = match *self.lines {
                [.., before, last] => last == line || before == line,
                [last] => last == line,
                [] => false,
            };
            if !known {
                self.lines.push(line);
            }
        }
        if self.lines.len() >= self.tidy_at.max(TIDY_MIN) {
            self.tidy();
            self.tidy_at = self.lines.len() * 2;
        }
    }

    fn tidy(&mut self) {
        self.lines.sort_unstable();
        self.lines.dedup();
    }

    pub fn clear(&mut self) {
        self.lines.clear();
        self.tidy_at = 0;
    }

    /// The lines, in no order, some perhaps more than once.
    pub fn lines(&self) -> impl Iterator<Item = ByteRange> {
        self.lines
            .iter()
            .map(|line| brownout_model::Line(*line).range())
    }

    /// The lines, in order.
    pub fn take(&mut self) -> Vec<ByteRange> {
        self.tidy();
        let range = |line: &u64| brownout_model::Line(*line).range();
        let lines = self.lines.iter().map(range).collect();
        self.clear();
        lines
    }
}

/// A section that the program has marked.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub begun: Moment,
    pub touched: Touched,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub id: ThreadId,
    pub process: ProcessId,
    /// Its accesses are not judged at present.
    pub stopped: bool,
    pub run: FlushRun,
    pub recent_write_backs: RecentWriteBacks,
    /// Write-backs and non-temporal stores since its last `sfence` or `mfence`.
    pub to_fence: u64,
    /// It has stored to persistent memory.
    pub has_stored: bool,
    /// Sites that it stored at since its last fence and whose next fence is not known yet.
    pub before_fence: Vec<Tag>,
    pub section: Option<Section>,
    /// Transactions that it takes part in, outermost first.
    pub transactions: Vec<u64>,
    /// The pool of its current transaction.
    pub pool: TargetAddr,
    /// Inside a library function that allocates: what is added to the transaction now is new.
    pub allocates: bool,
}

/// Sites remembered between two fences for the sake of suggestions.
const BEFORE_FENCE_MAX: usize = 64;

impl Thread {
    /// The next fence is the first after a store at `tag`.
    #[inline(never)]
    pub fn wants_fence(&mut self, tag: Tag) {
        if self.before_fence.len() < BEFORE_FENCE_MAX && !self.before_fence.contains(&tag) {
            self.before_fence.push(tag);
        }
    }
}
