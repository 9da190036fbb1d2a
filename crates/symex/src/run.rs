//! What is made of a run while it goes on: which instructions touch the input, and what the path depends on.

use std::collections::HashSet;
use std::io;

use brownout_abi::follow::call;
use brownout_follow::{Access, Follower, Label, Observer, Received, Sets};
use brownout_solve::Pool;
use brownout_trace::event::{Event, EventKind, ProcessId, ThreadId};
use brownout_trace::{EventSink, Executed};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::captured::State;
use crate::input::Position;
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
}

impl Observer for Source {
    fn loads(&mut self, _: &Access, _: &mut [u32]) {}

    fn stores(&mut self, _: &Access, _: &[Label], _: Label, _: &Sets) {}

    fn leaves(&mut self, _: &Access, _: &[Label], _: &Sets) {}

    fn receives(&mut self, call: &Received) -> u32 {
        // 0 is no source.
        self.position.call(call).map_or(0, |first| first as u32 + 1)
    }
}

impl Learning {
    /// A run on an input of that length.
    pub fn new(len: usize) -> Learning {
        Learning {
            follower: Follower::new().touching(),
            source: Source {
                position: Position::new(len),
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
        self.follower.event(event, &mut self.source)
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        self.follower.executed(what, &mut self.source)
    }
}

/// Follows what a run computes from the input: its instructions that touch the input have to be captured.
pub struct Following<'p> {
    /// All expressions.
    pub pool: &'p mut Pool,
    /// What tables hold.
    tables: &'p mut Tables,
    own: &'p mut OwnCode,
    /// What follows from the input, and the path.
    pub shadow: Shadow,
    /// Instructions that have done something to persistent memory, in pairs that follow each other, and about how often.
    pub pm: FxHashSet<u64>,
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
}

impl<'p> Following<'p> {
    /// A run on this input.
    pub fn new(
        pool: &'p mut Pool,
        tables: &'p mut Tables,
        own: &'p mut OwnCode,
        input: &[u8],
    ) -> Following<'p> {
        Following {
            pool,
            tables,
            own,
            shadow: Shadow::default(),
            pm: FxHashSet::default(),
            pm_events: 0,
            position: Position::new(input.len()),
            input: input.to_vec(),
            processes: FxHashMap::default(),
            process: None,
            last_pm: 0,
            times: FxHashMap::default(),
            fences: FxHashMap::default(),
            senseless: 0,
            has_company: false,
        }
    }

    fn is_followed(&self, thread: ThreadId) -> bool {
        let process = self.processes.get(&thread);
        self.process.is_some() && process == self.process.as_ref()
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
        let first = self.position.call(&Received {
            process,
            number,
            args,
            result: result as i64,
        });
        if first.is_some() && self.process.is_none() {
            self.process = Some(process);
        }
        if self.process != Some(process) {
            return;
        }
        self.shadow.calls(self.pool, thread, number, &args);
        let mut next = first.map(|first| first as usize);
        let (pairs, _) = ranges.as_chunks::<2>();
        for [address, len] in pairs {
            self.shadow.overwritten(*address, *len);
            if let Some(first) = &mut next {
                let rest = self.input.get(*first..).unwrap_or_default();
                let bytes = &rest[..rest.len().min(*len as usize)];
                self.shadow
                    .receives(self.pool, *address, *first as u32, bytes);
                *first += bytes.len();
            }
        }
    }
}

impl EventSink for Following<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event.kind {
            EventKind::Module {
                addr, len, path, ..
            } => self.own.add(addr.0, len, path),
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                self.processes.insert(thread, process);
                self.has_company |= self.processes.len() > 1;
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
                // Once, twice, three times; then each time that it doubles.
                if *times <= 3 || times.is_power_of_two() {
                    self.pm.insert(mix(mix(self.last_pm, event.pc.0), *times));
                }
                self.last_pm = event.pc.0;
            }
            _ => {}
        }
        Ok(())
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        match *what {
            Executed::Captured { thread, pc, words } if self.is_followed(thread) => {
                match State::read(pc, words) {
                    Some(state) => self.shadow.execute(self.pool, self.tables, thread, &state),
                    None => self.senseless += 1,
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
