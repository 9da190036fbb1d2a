//! Counts where runs touch persistent memory, over any number of runs, some of them side by side.
//!
//! ```text
//!  run ─▶ Counting ─┐ at its end: instructions, with their callers, become places in files
//!  run ─▶ Counting ─┼▶ Touches ─▶ lines, when all runs are over
//!  run ─▶ Counting ─┘
//! ```
//! **Purpose.** `--coverage` of every analysis. A campaign makes thousands of short runs, nearly
//! all of which do what others have done.
//!
//! **Guarantee.** Every event that a [`Counting`] has seen counts once, at the line that
//! [`brownout_findings::blame`] says. Nothing is given its name while runs go on: that is done in
//! the end, once for each place and its callers. Lines of the program's own files that [could
//! persist something](crate::persisting) and were not seen to do so are named, too.
//!
//! **Deviation.** Files of code are taken to be the same in all runs. What lies below `/lib`,
//! `/usr/lib` and their kin is not the program's own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use brownout_findings::Frame as PlainFrame;
use brownout_findings::touched::{Adding, Touch, Touched};
use brownout_trace::event::{ContextId, Event, EventKind, TargetAddr, ThreadId};
use brownout_trace::{EventSink, pmemcheck};

use crate::callers::Callers;
use crate::elf::ElfFile;
use crate::frame::Frame;
use crate::locate::Options;
use crate::modules::{CodeAddr, CodePlace, Modules, Within};
use crate::persisting::{self, Persisting};
use crate::stacks::is_main;
use crate::symbolizer::Symbolizer;

/// Whose run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The program's.
    Program,
    /// Of what runs after a crash.
    Recovery,
    /// The program's on what a crash has left: recovery until it looks at its input.
    RecoveryFirst,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Touches(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Of runs that are over. Each begins another one.
    idle: Mutex<Vec<Tally>>,
    /// What somebody else has given its name.
    named: Mutex<Adding>,
}

/// What one run after the other has done.
#[derive(Debug, Default)]
struct Tally {
    /// Files of code keep their numbers from run to run.
    modules: Modules,
    callers: Callers,
    /// Of the run that goes on.
    sites: HashMap<Site, u64>,
    /// By an instruction's place and those of its callers, innermost first.
    places: HashMap<Box<[CodePlace]>, Times>,
    /// Kept for its room.
    chain: Vec<CodePlace>,
}

/// How often each thing was done.
type Times = HashMap<Touch, u64>;

/// An instruction, who executed it, and who called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Site {
    touch: Touch,
    thread: ThreadId,
    pc: TargetAddr,
    context: ContextId,
}

/// What is lost if another thread has ended in the middle of it is lost; the rest is good.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

impl Touches {
    /// Counts a run, until the value goes.
    pub fn run(&self, part: Part) -> Counting {
        let tally = locked(&self.0.idle).pop();
        let mut tally = tally.unwrap_or_default();
        tally.modules.begin_again();
        tally.callers = Callers::default();
        Counting {
            home: self.0.clone(),
            tally: Some(tally),
            part,
        }
    }

    /// Something was done so many times at the place of a stack, innermost first.
    pub fn add(&self, stack: &[PlainFrame], touch: Touch, times: u64) {
        locked(&self.0.named).at(stack, [(touch, times)]);
    }

    /// All that was counted in runs that are over.
    pub fn total(&self) -> Touched {
        let mut adding = locked(&self.0.named).clone();
        // Several tallies may know a place: where it has no line, it is one that has none.
        let mut all: HashMap<Vec<PlainFrame>, Times> = HashMap::new();
        for tally in locked(&self.0.idle).iter() {
            let mut symbolizer = Symbolizer::over(tally.modules.clone(), Options::for_findings());
            for (chain, times) in &tally.places {
                let stack = stack_through(&mut symbolizer, chain);
                let known = all.entry(stack).or_default();
                for (touch, times) in times {
                    *known.entry(*touch).or_default() += times;
                }
            }
        }
        for (stack, times) in all {
            adding.at(&stack, times);
        }
        self.persisting(&mut adding);
        adding.total()
    }

    /// Adds the lines of the program's own files that could have made something persistent.
    fn persisting(&self, adding: &mut Adding) {
        let mut looked = HashSet::new();
        for tally in locked(&self.0.idle).iter() {
            let mut symbolizer = Symbolizer::over(tally.modules.clone(), Options::for_findings());
            for (file, path) in tally.modules.paths() {
                if is_of_system(path) || !looked.insert(path.clone()) {
                    continue;
                }
                let Ok(elf) = ElfFile::open(path) else {
                    continue;
                };
                for Persisting { offset, touch } in persisting::all(&elf) {
                    let frames = symbolizer.frames_at(CodePlace(Within::File(file, offset)));
                    let stack: Vec<PlainFrame> =
                        frames.iter().cloned().map(PlainFrame::from).collect();
                    adding.could(&stack, touch);
                }
            }
        }
    }
}

/// A file that the system brings.
fn is_of_system(path: &Path) -> bool {
    let folders = ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64"];
    folders.iter().any(|folder| path.starts_with(folder))
}

/// The stack of a chain of places, innermost first, up to `main`: what is above it tells nothing.
fn stack_through(symbolizer: &mut Symbolizer, chain: &[CodePlace]) -> Vec<PlainFrame> {
    let mut stack: Vec<Frame> = Vec::new();
    for place in chain {
        if stack.iter().any(is_main) {
            break;
        }
        stack.extend_from_slice(&symbolizer.frames_at(*place));
    }
    stack.into_iter().map(PlainFrame::from).collect()
}

impl Tally {
    fn count(&mut self, event: &Event<'_>, touch: Touch) {
        let site = Site {
            touch,
            thread: event.thread,
            pc: event.pc,
            context: event.context,
        };
        *self.sites.entry(site).or_default() += 1;
    }

    /// Instructions become places, while it is known what their addresses mean.
    fn settle(&mut self) {
        for (site, times) in self.sites.drain() {
            let process = self.callers.process_of(site.thread).unwrap_or_default();
            self.chain.clear();
            if site.pc != TargetAddr(0) {
                let place = self.modules.locate(process, CodeAddr::Pc(site.pc));
                self.chain.push(place);
            }
            let mut context = site.context;
            while let Some((parent, call)) = self.callers.caller(process, context, &self.modules) {
                self.chain.push(call);
                context = parent;
            }
            let times_of = match self.places.get_mut(&self.chain[..]) {
                Some(known) => known,
                None => self.places.entry(self.chain[..].into()).or_default(),
            };
            *times_of.entry(site.touch).or_default() += times;
        }
    }
}

/// Counts the events of one run.
#[derive(Debug)]
pub struct Counting {
    home: Arc<Shared>,
    /// Until it goes.
    tally: Option<Tally>,
    part: Part,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(mut tally) = self.tally.take() {
            tally.settle();
            locked(&self.home.idle).push(tally);
        }
    }
}

impl Counting {
    /// The next event of the run.
    pub fn observe(&mut self, event: &Event<'_>) {
        let Some(tally) = &mut self.tally else { return };
        let is_program = self.part == Part::Program;
        let touch = match event.kind {
            // From now on, addresses may mean something else.
            EventKind::Module { .. } | EventKind::ProcessStart { .. } => {
                tally.settle();
                None
            }
            EventKind::Input { .. } if self.part == Part::RecoveryFirst => {
                self.part = Part::Program;
                None
            }
            EventKind::Load(_) if is_program => None,
            EventKind::Load(_) => Some(Touch::Recovery),
            EventKind::Store(_)
            | EventKind::NtStore(_)
            | EventKind::Rmw(_)
            | EventKind::StringStore { .. }
            | EventKind::KernelStore { .. } => Some(match is_program {
                true => Touch::Stores,
                false => Touch::Recovery,
            }),
            EventKind::Flush { .. } | EventKind::Fence(_) if !is_program => Some(Touch::Recovery),
            EventKind::Flush { .. } => Some(Touch::Flushes),
            EventKind::Fence(_) => Some(Touch::Fences),
            _ if !is_program => None,
            EventKind::Pmemcheck {
                code:
                    pmemcheck::START_TX
                    | pmemcheck::START_TX_N
                    | pmemcheck::ADD_TO_TX
                    | pmemcheck::ADD_TO_TX_N,
                ..
            } => Some(Touch::Transactions),
            _ => None,
        };
        match touch {
            Some(touch) => tally.count(event, touch),
            None => tally.callers.observe(event, &mut tally.modules),
        }
    }
}

impl EventSink for Counting {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.observe(event);
        Ok(())
    }
}
