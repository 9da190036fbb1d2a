//! Who called: the threads, processes and calling contexts that a stream defines.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use brownout_trace::epochs::{CodeEpochs, Epoch};
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr, ThreadId};

use crate::modules::{CodeAddr, CodePlace, Modules};

/// Where a context's call is.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// As it was when the context was defined: by then the call had been made, and later its code
    /// may go.
    At(CodePlace),
    /// The process that defined it is unknown.
    Somewhere(TargetAddr),
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    contexts: HashMap<ContextId, (ContextId, Call)>,
    process_of: HashMap<ThreadId, ProcessId>,
    /// Who made a process, and when in the maker's life.
    parents: HashMap<ProcessId, (ProcessId, Epoch)>,
    epochs: CodeEpochs,
}

impl Callers {
    /// Takes note of what `event` defines, code included; other events change nothing.
    #[inline(always)]
    pub fn observe(&mut self, event: &Event<'_>, modules: &mut Modules) {
        if matches!(
            event.kind,
            EventKind::Module { .. }
                | EventKind::ProcessStart { .. }
                | EventKind::ThreadStart { .. }
                | EventKind::Context { .. }
        ) {
            // A copy, lest the caller have to keep every event in memory for the sake of these.
            self.define(&event.clone(), modules);
        }
    }

    #[inline(never)]
    fn define(&mut self, event: &Event<'_>, modules: &mut Modules) {
        let before = match event.kind {
            EventKind::Module { process, .. } | EventKind::ProcessStart { process, .. } => {
                self.epochs.of(process)
            }
            _ => Epoch::default(),
        };
        let is_new_epoch = self.epochs.observe(event);
        match event.kind {
            EventKind::Module {
                process,
                addr,
                len,
                offset,
                path,
            } => match path.is_empty() {
                true => modules.remove(process, addr, len, before),
                false => modules.add(process, addr, len, offset, path),
            },
            EventKind::ProcessStart {
                process, parent, ..
            } => match is_new_epoch {
                true => modules.clear(process, before),
                false => {
                    let then = self.epochs.of(parent);
                    self.parents.insert(process, (parent, then));
                    modules.fork(parent, process);
                }
            },
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                self.process_of.insert(thread, process);
            }
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => {
                // A definition counts once, and only with a parent that is already there: so even
                // a damaged trace cannot make the chain a loop.
                let known = parent == ContextId(0) || self.contexts.contains_key(&parent);
                if context != ContextId(0)
                    && known
                    && let Entry::Vacant(entry) = self.contexts.entry(context)
                {
                    let call = match self.process_of.get(&event.thread) {
                        Some(process) => {
                            let addr = CodeAddr::Return(return_addr);
                            Call::At(modules.locate(*process, addr))
                        }
                        None => Call::Somewhere(return_addr),
                    };
                    entry.insert((parent, call));
                }
            }
            _ => {}
        }
    }

    /// The process that a thread belongs to, once its start was seen.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.process_of.get(&thread).copied()
    }

    /// Who made a process, and in which epoch of the maker; 0 is nobody of the run.
    pub fn parent_of(&self, process: ProcessId) -> Option<(ProcessId, Epoch)> {
        self.parents.get(&process).copied()
    }

    /// The epoch that a process is in now.
    pub fn epoch_of(&self, process: ProcessId) -> Epoch {
        self.epochs.of(process)
    }

    /// Where a context's call is, and the context that it was made in.
    pub fn caller(
        &self,
        process: ProcessId,
        context: ContextId,
        modules: &Modules,
    ) -> Option<(ContextId, CodePlace)> {
        let &(parent, call) = self.contexts.get(&context)?;
        let place = match call {
            Call::At(place) => place,
            Call::Somewhere(addr) => modules.locate(process, CodeAddr::Return(addr)),
        };
        Some((parent, place))
    }
}
