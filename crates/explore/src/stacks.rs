//! Call stacks of events, made when somebody asks.
//!
//! Most recoveries end well and nobody wants their stacks. So only what the stream defines is kept,
//! as it came; symbols are looked up later, on another thread.

use brownout_findings::{Frame, Origin};
use brownout_symbols::{Options, Programs, Stacks};
use brownout_trace::Beginning;
use brownout_trace::epochs::{CodeEpochs, Epoch};
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr, ThreadId};

use crate::site::Site;

enum Definition {
    Module(ProcessId, TargetAddr, u64, u64, Vec<u8>),
    Process(ProcessId, ProcessId),
    Thread(ThreadId, ProcessId),
    Context(ThreadId, ContextId, ContextId, TargetAddr),
}

/// What a stream has defined.
#[derive(Default)]
pub struct Definitions {
    list: Vec<Definition>,
    epochs: CodeEpochs,
    /// What programs were started with, if that was asked for.
    begun: Vec<(ProcessId, Epoch, Beginning)>,
}

impl Definitions {
    /// Takes note of what an event defines.
    pub fn observe(&mut self, event: &Event<'_>) {
        self.epochs.observe(event);
        self.list.push(match event.kind {
            EventKind::Module {
                process,
                addr,
                len,
                offset,
                path,
            } => Definition::Module(process, addr, len, offset, path.to_vec()),
            EventKind::ProcessStart {
                process, parent, ..
            } => Definition::Process(process, parent),
            EventKind::ThreadStart {
                thread, process, ..
            } => Definition::Thread(thread, process),
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => Definition::Context(event.thread, context, parent, return_addr),
            _ => return,
        });
    }

    /// A program is in this process from now on.
    pub fn begin(&mut self, process: ProcessId, what: &Beginning) {
        let epoch = self.epoch(process);
        self.begun.push((process, epoch, what.clone()));
    }

    /// The epoch that events of a process happen in now.
    pub fn epoch(&self, process: ProcessId) -> Epoch {
        self.epochs.of(process)
    }

    /// Something that can be asked for stacks.
    pub fn resolve(&self) -> Resolver {
        let mut stacks = Stacks::new(Options::for_findings());
        for definition in &self.list {
            let thread = match definition {
                Definition::Context(thread, ..) => *thread,
                _ => ThreadId(0),
            };
            let kind = match definition {
                Definition::Module(process, addr, len, offset, path) => EventKind::Module {
                    process: *process,
                    addr: *addr,
                    len: *len,
                    offset: *offset,
                    path,
                },
                Definition::Process(process, parent) => EventKind::ProcessStart {
                    process: *process,
                    parent: *parent,
                    pid: 0,
                    exe: b"",
                },
                Definition::Thread(thread, process) => EventKind::ThreadStart {
                    thread: *thread,
                    process: *process,
                    tid: 0,
                },
                Definition::Context(_, context, parent, return_addr) => EventKind::Context {
                    context: *context,
                    parent: *parent,
                    return_addr: *return_addr,
                },
            };
            stacks.observe(&Event {
                thread,
                pc: TargetAddr(0),
                context: ContextId(0),
                kind,
            });
        }
        let mut programs = Programs::default();
        for (process, epoch, what) in &self.begun {
            programs.begin(*process, *epoch, what);
        }
        let around = brownout_host::of_ourselves();
        programs.started_by(around.into_iter().flatten().collect());
        Resolver { stacks, programs }
    }
}

/// Gives call stacks, and says whose they are.
pub struct Resolver {
    stacks: Stacks,
    programs: Programs,
}

impl Resolver {
    /// What the instruction of a place is said to access, if it is so many bytes.
    pub fn accessed(&mut self, site: Site, size: u64) -> Option<String> {
        self.stacks
            .accessed(site.process, site.epoch, site.pc, size)
    }

    /// The stack of a place, innermost first.
    pub fn stack(&mut self, site: Site) -> Vec<Frame> {
        let stack = self
            .stacks
            .stack_of(site.process, site.epoch, site.pc, site.context);
        stack.into_iter().map(Frame::from).collect()
    }

    /// The program and the test that a place with this stack belongs to, if that says more than the
    /// command line does. The number of its process is left out: it is another one in each run.
    pub fn origin(&mut self, site: Site, stack: &[Frame]) -> Option<Origin> {
        let origin = self
            .programs
            .origin(&self.stacks, site.process, site.epoch, stack)?;
        Some(Origin {
            pid: None,
            ..origin
        })
    }
}
