//! `--coverage`: a sink that counts where a run touches persistent memory.
//!
//! Nothing is symbolised while the program runs: an instruction in its calling context is a number
//! of times, and gets its line at the end. A store that the C library or libpmem makes belongs to
//! the line that called it, as in findings.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use brownout_findings::numbers::counted;
use brownout_findings::{Frame, blame};
use brownout_report::lcov::{Lines, Sort};
use brownout_symbols::{Options, Stacks};
use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr};
use brownout_trace::{EventSink, pmemcheck};

use crate::exit::Failure;
use crate::resolve::plain;
use crate::terminal::{message, quote};

/// An instruction of a process, at a time, and who called.
type Site = (ProcessId, Epoch, TargetAddr, ContextId);

/// Counts.
pub struct Counter {
    stacks: Stacks,
    times: HashMap<(Sort, Site), u64>,
}

impl Counter {
    pub fn new() -> Counter {
        Counter {
            stacks: Stacks::new(Options::for_findings()),
            times: HashMap::new(),
        }
    }

    /// The next event of the run.
    pub fn event(&mut self, event: &Event<'_>) {
        self.stacks.observe(event);
        let sort = match event.kind {
            EventKind::Store(_)
            | EventKind::NtStore(_)
            | EventKind::Rmw(_)
            | EventKind::StringStore { .. }
            | EventKind::KernelStore { .. } => Sort::Stores,
            EventKind::Flush { .. } => Sort::Flushes,
            EventKind::Fence(_) => Sort::Fences,
            EventKind::Pmemcheck {
                code:
                    pmemcheck::START_TX
                    | pmemcheck::START_TX_N
                    | pmemcheck::ADD_TO_TX
                    | pmemcheck::ADD_TO_TX_N,
                ..
            } => Sort::Transactions,
            _ => return,
        };
        let process = self.stacks.process_of(event.thread).unwrap_or_default();
        let epoch = self.stacks.epoch_of(process);
        let site = (process, epoch, event.pc, event.context);
        *self.times.entry((sort, site)).or_default() += 1;
    }

    /// The lines, and how many sites have none.
    fn lines(mut self) -> (Lines, u64) {
        let mut lines = Lines::default();
        let mut unknown = 0;
        for ((sort, (process, epoch, pc, context)), times) in self.times {
            let stack = self.stacks.stack_of(process, epoch, pc, context);
            let stack: Vec<Frame> = stack.into_iter().map(Frame::from).collect();
            let place = blame::frame(&stack).and_then(|frame| {
                let (file, line) = (frame.file.as_deref()?, frame.line?);
                Some((file, line, frame.function.as_deref()))
            });
            match place {
                Some((file, line, function)) => lines.add(sort, file, line, function, times),
                None => unknown += 1,
            }
        }
        (lines, unknown)
    }

    /// No event follows: writes what was counted.
    pub fn finish(self, path: &Path) -> Result<(), Failure> {
        let (lines, unknown) = self.lines();
        let cannot = |error: io::Error| {
            Failure::cannot_run(format!("cannot write {}: {}", quote(path), plain(&error)))
        };
        let mut file = File::create(path).map_err(cannot)?;
        lines.write(&mut file).map_err(cannot)?;
        let unknown = match unknown {
            0 => String::new(),
            n => format!(
                ", and {} without (compile with -g to see where they are)",
                counted(n, "place")
            ),
        };
        message(&format!(
            "persistent memory was touched at {} of source code{unknown}: {}",
            counted(lines.len() as u64, "line"),
            quote(path)
        ));
        Ok(())
    }
}

impl EventSink for Counter {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.event(event);
        Ok(())
    }
}
