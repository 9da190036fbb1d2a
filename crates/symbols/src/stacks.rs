//! Whole call stacks of recorded events.
//!
//! Feed every event of a trace to [`Stacks::observe`] in order; it keeps the modules, threads and
//! calling contexts that the stream defines. Then any event seen so far can be asked about.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use brownout_trace::dump;
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr, ThreadId};

use crate::frame::Frame;
use crate::locate::Options;
use crate::symbolizer::{CodeAddr, Symbolizer};

/// Turns events into call stacks.
#[derive(Debug)]
pub struct Stacks {
    symbolizer: Symbolizer,
    contexts: HashMap<ContextId, (ContextId, TargetAddr)>,
    process_of: HashMap<ThreadId, ProcessId>,
    started: std::collections::HashSet<ProcessId>,
}

impl Stacks {
    /// One that has seen nothing.
    pub fn new(options: Options) -> Stacks {
        Stacks {
            symbolizer: Symbolizer::new(options),
            contexts: HashMap::new(),
            process_of: HashMap::new(),
            started: std::collections::HashSet::new(),
        }
    }

    /// Takes note of what `event` defines; other events change nothing.
    #[inline(always)]
    pub fn observe(&mut self, event: &Event<'_>) {
        if matches!(
            event.kind,
            EventKind::Module { .. }
                | EventKind::ProcessStart { .. }
                | EventKind::ThreadStart { .. }
                | EventKind::Context { .. }
        ) {
            // A copy, lest the caller have to keep every event in memory for the sake of these.
            self.define(&event.clone());
        }
    }

    #[inline(never)]
    fn define(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Module {
                process,
                addr,
                len,
                offset,
                path,
            } => {
                self.symbolizer.add_module(process, addr, len, offset, path);
            }
            EventKind::ProcessStart {
                process, parent, ..
            } => {
                if self.started.insert(process) {
                    self.symbolizer.fork(parent, process);
                } else {
                    self.symbolizer.clear(process);
                }
            }
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
                    entry.insert((parent, return_addr));
                }
            }
            _ => {}
        }
    }

    /// The process that a thread belongs to, once its start was seen.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.process_of.get(&thread).copied()
    }

    /// Frames of the event's own instruction, innermost first; `None` if it has none.
    pub fn frames(&mut self, event: &Event<'_>) -> Option<Arc<[Frame]>> {
        let process = self.process_of(event.thread).unwrap_or_default();
        (event.pc != TargetAddr(0)).then(|| self.symbolizer.frames(process, CodeAddr::Pc(event.pc)))
    }

    /// The whole stack of an event, innermost first.
    pub fn stack(&mut self, event: &Event<'_>) -> Vec<Frame> {
        self.stack_at(event.thread, event.pc, event.context)
    }

    /// The whole stack at a place that was noted down earlier, innermost first.
    pub fn stack_at(&mut self, thread: ThreadId, pc: TargetAddr, context: ContextId) -> Vec<Frame> {
        let process = self.process_of(thread).unwrap_or_default();
        self.stack_in(process, pc, context, usize::MAX)
    }

    /// The stack of a place in a process's code, innermost first, up to `main`: what is above it tells nothing.
    pub fn stack_of(
        &mut self,
        process: ProcessId,
        pc: TargetAddr,
        mut context: ContextId,
    ) -> Vec<Frame> {
        let mut stack = self.stack_in(process, pc, ContextId(0), usize::MAX);
        let is_main = |frame: &Frame| frame.function.as_deref() == Some("main");
        while !stack.iter().any(is_main)
            && let Some(&(parent, return_addr)) = self.contexts.get(&context)
        {
            let frames = self
                .symbolizer
                .frames(process, CodeAddr::Return(return_addr));
            stack.extend_from_slice(&frames);
            context = parent;
        }
        stack
    }

    /// Stops at the first physical frame that reaches `frames_max`.
    fn stack_in(
        &mut self,
        process: ProcessId,
        pc: TargetAddr,
        mut context: ContextId,
        frames_max: usize,
    ) -> Vec<Frame> {
        let mut stack = Vec::new();
        if pc != TargetAddr(0) {
            stack.extend_from_slice(&self.symbolizer.frames(process, CodeAddr::Pc(pc)));
        }
        while stack.len() < frames_max
            && let Some(&(parent, return_addr)) = self.contexts.get(&context)
        {
            let frames = self
                .symbolizer
                .frames(process, CodeAddr::Return(return_addr));
            stack.extend_from_slice(&frames);
            context = parent;
        }
        stack
    }
}

impl dump::Symbolize for Stacks {
    fn observe(&mut self, event: &Event<'_>) {
        Stacks::observe(self, event);
    }

    fn frames(
        &mut self,
        process: ProcessId,
        pc: TargetAddr,
        context: ContextId,
        max: usize,
    ) -> Vec<dump::Frame> {
        let stack = self.stack_in(process, pc, context, max);
        stack.into_iter().take(max).map(dump::Frame::from).collect()
    }
}

impl From<Frame> for dump::Frame {
    fn from(frame: Frame) -> dump::Frame {
        let function = frame
            .function
            .as_deref()
            .map(|name| match frame.function_offset {
                Some(offset) => format!("{name}+{offset:#x}"),
                None => name.to_owned(),
            });
        dump::Frame {
            function,
            module: frame.module_name().map(|name| name.into_owned()),
            module_offset: frame.module_addr,
            line: frame.location.as_ref().and_then(|location| location.line),
            file: frame
                .location
                .map(|location| location.file.as_ref().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(thread: u32, pc: u64, context: u32, kind: EventKind<'_>) -> Event<'_> {
        Event {
            thread: ThreadId(thread),
            pc: TargetAddr(pc),
            context: ContextId(context),
            kind,
        }
    }

    fn define(context: u32, parent: u32, return_addr: u64) -> EventKind<'static> {
        EventKind::Context {
            context: ContextId(context),
            parent: ContextId(parent),
            return_addr: TargetAddr(return_addr),
        }
    }

    fn start(process: u32, parent: u32) -> EventKind<'static> {
        EventKind::ProcessStart {
            process: ProcessId(process),
            parent: ProcessId(parent),
            pid: 1,
            exe: b"/none/a",
        }
    }

    fn module(process: u32, path: &[u8]) -> EventKind<'_> {
        EventKind::Module {
            process: ProcessId(process),
            addr: TargetAddr(0x1000),
            len: 0x1000,
            offset: 0,
            path,
        }
    }

    #[test]
    fn stacks_follow_threads_contexts_fork_and_exec() {
        let mut stacks = Stacks::new(Options {
            debug_roots: vec![],
            debuginfod_cache: None,
            names_only: Vec::new(),
        });
        let thread = |thread, process| EventKind::ThreadStart {
            thread: ThreadId(thread),
            process: ProcessId(process),
            tid: 1,
        };
        let definitions = [
            start(1, 0),
            thread(1, 1),
            module(1, b"/none/a"),
            define(1, 0, 0x1011),
            define(2, 1, 0x1021),
            // Damage: a loop, a redefinition and an unknown parent.
            define(3, 3, 0x1),
            define(1, 2, 0x1),
            define(5, 4, 0x1),
            start(2, 1),
            thread(2, 2),
        ];
        for kind in definitions {
            stacks.observe(&event(0, 0, 0, kind));
        }
        let show = |stacks: &mut Stacks, thread, pc, context| {
            let store = event(thread, pc, context, EventKind::ThreadExit);
            stacks
                .stack(&store)
                .iter()
                .map(Frame::to_string)
                .collect::<Vec<_>>()
                .join(" < ")
        };
        // Return addresses are looked up one byte back.
        assert_eq!(show(&mut stacks, 1, 0x1030, 2), "a+0x30 < a+0x20 < a+0x10");
        assert_eq!(show(&mut stacks, 2, 0x1030, 1), "a+0x30 < a+0x10");
        assert_eq!(show(&mut stacks, 1, 0, 3), "");
        stacks.observe(&event(2, 0, 0, start(2, 2)));
        stacks.observe(&event(2, 0, 0, module(2, b"/none/b")));
        assert_eq!(show(&mut stacks, 2, 0x1030, 1), "b+0x30 < b+0x10");
        assert_eq!(show(&mut stacks, 1, 0x1030, 0), "a+0x30");
        assert!(
            stacks
                .frames(&event(1, 0, 0, EventKind::ThreadExit))
                .is_none()
        );
    }
}
