//! What is made of a run while it goes on: which instructions touch the input, and what the path
//! depends on.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use brownout_abi::follow::call;
use brownout_follow::{Access, Follower, Given, Label, Observer, Received, Sets};
use brownout_solve::Pool;
use brownout_trace::event::{Event, EventKind, FileId, ProcessId, ThreadId};
use brownout_trace::{Beginning, EventSink, Executed};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::captured::State;
use crate::input::{Layout, Position, byte};
use crate::modules::OwnCode;
use crate::path::mix;
use crate::shadow::Shadow;
use crate::tables::Tables;

/// Finds the instructions that touch the input: the run has to be followed.
pub struct Learning {
    follower: Follower,
    source: Source,
}

struct Source {
    position: Position,
    input: Vec<u8>,
}

impl Observer for Source {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        if let Some((file, offset)) = access.place {
            self.position.loads(file, offset, sources);
        }
    }

    fn stores(&mut self, _: &Access, _: &[Label], _: Label, _: &Sets) {}

    fn leaves(&mut self, _: &Access, _: &[Label], _: &Sets) {}

    fn receives(&mut self, call: &Received) -> Vec<Given> {
        self.position.call(call)
    }
}

impl Learning {
    /// A run on this input.
    pub fn new(layout: &Layout, input: &[u8]) -> Learning {
        Learning {
            follower: Follower::new().touching(),
            source: Source {
                position: Position::new(layout, input),
                input: input.to_vec(),
            },
        }
    }

    /// The addresses of the instructions.
    pub fn touched(&self) -> impl Iterator<Item = u64> + '_ {
        self.follower.touched().into_iter().flatten().copied()
    }

    /// How many instructions were executed, and how many of them are not understood.
    pub fn executed(&self) -> (u64, u64) {
        let follower = &self.follower;
        (follower.executed_instructions(), follower.given_up())
    }
}

impl EventSink for Learning {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.source.position.event(event);
        self.follower.event(event, &mut self.source)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        let Source { position, input } = &mut self.source;
        for (address, given) in position.begins(what, input) {
            self.follower.begins_with(process, address, &given);
        }
        Ok(())
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        self.follower.executed(what, &mut self.source)
    }
}

/// Follows what a run computes from the input: its instructions that touch the input have to be
/// captured.
pub struct Following<'p> {
    /// All expressions.
    pub pool: &'p mut Pool,
    /// What tables hold.
    tables: &'p mut Tables,
    own: &'p mut OwnCode,
    /// What follows from the input, and the path.
    pub shadow: Shadow,
    /// Instructions that have done something to persistent memory, in pairs that follow each other,
    /// and about how often; and behind how many decisions that was first.
    pub pm: FxHashMap<u64, u32>,
    /// Behind how many decisions which instructions have done something to persistent memory.
    pub pm_sites: FxHashSet<(u32, u64)>,
    /// How many events of persistent memory there were.
    pub pm_events: u64,
    /// Where the program is in its input.
    pub position: Position,
    input: Vec<u8>,
    processes: FxHashMap<ThreadId, ProcessId>,
    /// The process that is followed: the first that reads the input.
    process: Option<ProcessId>,
    last_pm: u64,
    times: FxHashMap<u64, u64>,
    /// How often instructions have made a fence.
    fences: FxHashMap<u64, u64>,
    /// Records that made no sense.
    pub senseless: u64,
    /// There was more than one thread.
    pub has_company: bool,
    /// The run is ended then.
    pub stops_at_company: bool,
    evaluated_max: u64,
    /// Files that are persistent memory, and where they were mapped.
    files: FxHashMap<FileId, String>,
    mapped: Vec<(u64, u64, FileId)>,
    /// The address at which it was killed.
    fault: Option<u64>,
    begun: Instant,
    /// How long it was until the first thing was heard of the run.
    pub awaited: Option<Duration>,
    /// How long it took to say what instructions compute, as far as samples tell.
    pub lifting: Duration,
    captured: u64,
}

impl<'p> Following<'p> {
    /// A run on this input, of which no more than so many instructions are evaluated.
    pub fn new(
        pool: &'p mut Pool,
        tables: &'p mut Tables,
        own: &'p mut OwnCode,
        (layout, input): (&Layout, &[u8]),
        evaluated_max: u64,
    ) -> Following<'p> {
        Following {
            pool,
            tables,
            own,
            shadow: Shadow::default(),
            pm: FxHashMap::default(),
            pm_sites: FxHashSet::default(),
            pm_events: 0,
            position: Position::new(layout, input),
            input: input.to_vec(),
            processes: FxHashMap::default(),
            process: None,
            last_pm: 0,
            times: FxHashMap::default(),
            fences: FxHashMap::default(),
            senseless: 0,
            has_company: false,
            stops_at_company: false,
            evaluated_max,
            files: FxHashMap::default(),
            mapped: Vec::new(),
            fault: None,
            begun: Instant::now(),
            awaited: None,
            lifting: Duration::ZERO,
            captured: 0,
        }
    }

    fn is_followed(&self, thread: ThreadId) -> bool {
        let process = self.processes.get(&thread);
        self.process.is_some() && process == self.process.as_ref()
    }

    /// What lies near the address at which the program was killed, if that is persistent memory.
    pub fn near_fault(&self) -> Option<String> {
        /// What is further away is no matter of an index or a length that is too large.
        const NEAR: u64 = 1 << 32;
        let fault = self.fault.filter(|address| *address != 0)?;
        let distance = |(start, end, _): &(u64, u64, FileId)| match fault {
            _ if fault < *start => start - fault,
            _ => fault.saturating_sub(*end),
        };
        let nearest = self.mapped.iter().rev().min_by_key(|it| distance(it))?;
        let path = self.files.get(&nearest.2)?;
        let (start, end, _) = *nearest;
        let far = distance(nearest);
        match fault {
            _ if far > NEAR => None,
            _ if fault < start => Some(format!(
                "it accesses memory {far} bytes in front of where {path} is mapped"
            )),
            _ if fault >= end => Some(format!(
                "it accesses memory {far} bytes behind the end of where {path} is mapped"
            )),
            _ => Some(format!("it accesses memory where {path} is mapped")),
        }
    }

    /// A system call is over.
    fn call(&mut self, thread: ThreadId, number: u32, words: &[u8]) {
        let (chunks, _) = words.as_chunks::<8>();
        let given: Vec<u64> = chunks.iter().map(|c| u64::from_le_bytes(*c)).collect();
        let Some((head, ranges)) = given.split_first_chunk::<7>() else {
            return;
        };
        let [result, args @ ..] = *head;
        let process = self.processes.get(&thread).copied().unwrap_or_default();
        let given = self.position.call(&Received {
            process,
            thread,
            number,
            args,
            result: result as i64,
        });
        if !given.is_empty() && self.process.is_none() {
            self.process = Some(process);
        }
        if self.process != Some(process) {
            return;
        }
        self.shadow.calls(self.pool, thread, number, &args);
        if matches!(number, MMAP | MUNMAP) && (result as i64) >= 0 {
            let at = if number == MMAP { result } else { args[0] };
            self.shadow.overwritten(at, args[1]);
            self.receives(at, 0..args[1], &given);
        }
        let mut wrote = 0;
        let (pairs, _) = ranges.as_chunks::<2>();
        for [address, len] in pairs {
            self.shadow.overwritten(*address, *len);
            self.receives(*address, wrote..wrote + len, &given);
            wrote += len;
        }
    }

    /// Of bytes that the program has been given, those in `part` lie at an address.
    fn receives(&mut self, address: u64, part: Range<u64>, given: &[Given]) {
        for given in given {
            let from = given.from.max(part.start);
            let end = (given.from + given.len).min(part.end);
            if from >= end {
                continue;
            }
            let first = byte(given.source) + (from - given.from) as usize;
            let rest = self.input.get(first..).unwrap_or_default();
            let bytes = &rest[..rest.len().min((end - from) as usize)];
            let address = address.wrapping_add(from - part.start);
            self.shadow
                .receives(self.pool, address, first as u32, bytes);
        }
    }
}

/// Of so many instructions, the time that one takes is measured.
const TIMED_EVERY: u32 = 32;
const MMAP: u32 = 9;
const MUNMAP: u32 = 11;
/// What was done so often to persistent memory was not done more often in a way that matters.
const TIMES_MAX: u64 = 128;

impl EventSink for Following<'_> {
    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        if self.process.is_none() {
            for (address, given) in self.position.begins(what, &self.input) {
                self.process = Some(process);
                self.receives(address, 0..u64::MAX, &given);
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.awaited.is_none() {
            self.awaited = Some(self.begun.elapsed());
        }
        self.position.event(event);
        match event.kind {
            EventKind::Module {
                addr,
                len,
                offset,
                path,
                ..
            } => self.own.add(addr.0, len, offset, path),
            EventKind::File { file, path, .. } => {
                let path = String::from_utf8_lossy(path).into_owned();
                self.files.insert(file, path);
            }
            EventKind::Map {
                addr, len, file, ..
            } => {
                self.mapped.push((addr.0, addr.0 + len, file));
                self.shadow.areas.add(addr.0, len);
            }
            EventKind::Unmap { addr, len } => self.shadow.areas.remove(addr.0, len),
            EventKind::Signal { addr, .. } => self.fault = Some(addr.0),
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                self.processes.insert(thread, process);
                self.has_company |= self.processes.len() > 1;
                if self.has_company && self.stops_at_company {
                    return Err(io::Error::other("it has started a thread or a process"));
                }
            }
            EventKind::Store(_)
            | EventKind::NtStore(_)
            | EventKind::Rmw(_)
            | EventKind::Fence(_)
            | EventKind::Flush { .. } => {
                self.pm_events += 1;
                if let EventKind::Fence(_) = event.kind {
                    let times = self.fences.entry(event.pc.0).or_default();
                    *times += 1;
                    self.shadow.pm.fence(event.pc.0, *times);
                }
                let times = self.times.entry(mix(self.last_pm, event.pc.0)).or_default();
                *times += 1;
                let at = self.shadow.path.decisions.len() as u32;
                self.pm_sites.insert((at, event.pc.0));
                // Once, twice, three times; then each time that it doubles. To do it ever more
                // often is nothing new: that would only lead to ever longer runs.
                if *times <= 3 || times.is_power_of_two() && *times <= TIMES_MAX {
                    let pair = mix(mix(self.last_pm, event.pc.0), *times);
                    self.pm.entry(pair).or_insert(at);
                }
                self.last_pm = event.pc.0;
            }
            _ => {}
        }
        Ok(())
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        match *what {
            // There is no room for more decisions, and expressions would only take memory.
            Executed::Captured { .. } if self.shadow.path.is_cut => {}
            Executed::Captured { thread, pc, words } if self.is_followed(thread) => {
                self.shadow.path.is_cut |= self.shadow.evaluated >= self.evaluated_max;
                // To look at the clock takes about as long as to lift an instruction.
                let is_timed = self.captured.is_multiple_of(TIMED_EVERY.into());
                self.captured += 1;
                let begun = is_timed.then(Instant::now);
                match State::read(pc, words) {
                    Some(state) => self.shadow.execute(self.pool, self.tables, thread, &state),
                    None => self.senseless += 1,
                }
                if let Some(begun) = begun {
                    self.lifting += TIMED_EVERY * begun.elapsed();
                }
            }
            Executed::Call {
                thread,
                number,
                what: call::ENDS,
                words,
            } => self.call(thread, number, words),
            _ => {}
        }
        Ok(())
    }
}

/// Addresses of instructions, sorted, as a launch wants them.
pub fn sorted(touched: &HashSet<u64>) -> Vec<u64> {
    let mut all: Vec<u64> = touched.iter().copied().collect();
    all.sort_unstable();
    all
}
