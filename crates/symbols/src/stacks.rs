//! Whole call stacks of recorded events.
//!
//! Feed every event of a trace to [`Stacks::observe`] in order; it keeps the modules, threads and
//! calling contexts that the stream defines. Then any event seen so far can be asked about.

use std::sync::Arc;

use brownout_trace::dump;
use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ContextId, Event, ProcessId, TargetAddr, ThreadId};

use crate::callers::Callers;
use crate::frame::Frame;
use crate::locate::Options;
use crate::modules::CodeAddr;
use crate::symbolizer::Symbolizer;

/// Turns events into call stacks.
#[derive(Debug)]
pub struct Stacks {
    symbolizer: Symbolizer,
    callers: Callers,
}

impl Stacks {
    /// One that has seen nothing.
    pub fn new(options: Options) -> Stacks {
        Stacks {
            symbolizer: Symbolizer::new(options),
            callers: Callers::default(),
        }
    }

    /// Forgets the run, for another one of programs that are the same files.
    pub fn begin_again(&mut self) {
        self.symbolizer.begin_again();
        self.callers = Callers::default();
    }

    /// Takes note of what `event` defines; other events change nothing.
    #[inline(always)]
    pub fn observe(&mut self, event: &Event<'_>) {
        self.callers.observe(event, &mut self.symbolizer.modules);
    }

    /// The process that a thread belongs to, once its start was seen.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.callers.process_of(thread)
    }

    /// Who made a process, and in which epoch of the maker; 0 is nobody of the run.
    pub fn parent_of(&self, process: ProcessId) -> Option<(ProcessId, Epoch)> {
        self.callers.parent_of(process)
    }

    /// The epoch that a process is in now.
    pub fn epoch_of(&self, process: ProcessId) -> Epoch {
        self.callers.epoch_of(process)
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

    /// The stack of a place in a process's code in one of its epochs, innermost first, up to
    /// `main`: what is above it tells nothing.
    pub fn stack_of(
        &mut self,
        process: ProcessId,
        epoch: Epoch,
        pc: TargetAddr,
        mut context: ContextId,
    ) -> Vec<Frame> {
        let mut stack = Vec::new();
        if pc != TargetAddr(0) {
            let place = self.symbolizer.locate_in(process, epoch, CodeAddr::Pc(pc));
            stack.extend_from_slice(&self.symbolizer.frames_at(place));
        }
        while !stack.iter().any(is_main)
            && let Some((parent, frames)) = self.caller(process, context)
        {
            stack.extend_from_slice(&frames);
            context = parent;
        }
        stack
    }

    /// What the instruction at a place in a process's code, in one of its epochs, accesses, if it
    /// is `size` bytes and can be said for certain.
    pub fn accessed(
        &mut self,
        process: ProcessId,
        epoch: Epoch,
        pc: TargetAddr,
        size: u64,
    ) -> Option<String> {
        let place = self.symbolizer.locate_in(process, epoch, CodeAddr::Pc(pc));
        let accessed = self.symbolizer.accessed_at(place)?;
        (accessed.size == size).then_some(accessed.name)
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
            && let Some((parent, frames)) = self.caller(process, context)
        {
            stack.extend_from_slice(&frames);
            context = parent;
        }
        stack
    }

    /// The frames of a context's call, and the context that this was made in.
    fn caller(
        &mut self,
        process: ProcessId,
        context: ContextId,
    ) -> Option<(ContextId, Arc<[Frame]>)> {
        let modules = &self.symbolizer.modules;
        let (parent, place) = self.callers.caller(process, context, modules)?;
        Some((parent, self.symbolizer.frames_at(place)))
    }
}

pub(crate) fn is_main(frame: &Frame) -> bool {
    frame.function.as_deref() == Some("main")
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
    use brownout_trace::event::EventKind;

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
            let by = match kind {
                EventKind::Context { .. } => 1,
                _ => 0,
            };
            stacks.observe(&event(by, 0, 0, kind));
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
        assert_eq!(show(&mut stacks, 2, 0x1030, 0), "b+0x30");
        // Its earlier calls are still those of the program that it was.
        let was = |stacks: &mut Stacks, epoch| {
            let frames =
                stacks.stack_of(ProcessId(2), Epoch(epoch), TargetAddr(0x1030), ContextId(1));
            frames
                .iter()
                .map(Frame::to_string)
                .collect::<Vec<_>>()
                .join(" < ")
        };
        assert_eq!(was(&mut stacks, 0), "a+0x30 < a+0x10");
        assert_eq!(show(&mut stacks, 1, 0x1030, 0), "a+0x30");
        assert!(
            stacks
                .frames(&event(1, 0, 0, EventKind::ThreadExit))
                .is_none()
        );
    }
}
