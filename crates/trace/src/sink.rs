//! Who takes events: [`EventSink`], and [`Tee`] for several at once.
//!
//! ```text
//!  live run ─┐                      ┌▶ an analysis
//!  trace    ─┼─ events ─▶ EventSink ┼▶ a trace writer
//!  log      ─┘                      └▶ a counter
//! ```
//! The trait belongs to the vocabulary and not to the host, so that a consumer of events neither
//! builds the engine nor knows where its events come from. Whoever has many events hands them over
//! as a slice: then a sink is called once for some dozens of events, its loop over them is compiled
//! together with what it does to each, and a `dyn EventSink` costs nothing that can be measured.
//!
//! ```
//! use brownout_trace::{Event, EventKind, EventSink, Tee};
//!
//! /// Counts fences.
//! #[derive(Default)]
//! struct Fences(u64);
//!
//! impl EventSink for Fences {
//!     fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
//!         self.0 += u64::from(matches!(event.kind, EventKind::Fence(_)));
//!         Ok(())
//!     }
//! }
//!
//! let (mut one, mut other) = (Fences::default(), Fences::default());
//! let both = Tee::of([&mut one, &mut other]);
//! ```

use std::io;
use std::path::{Path, PathBuf};

use crate::event::{Event, FileId, ProcessId, ThreadId};

/// What an annotation is answered by somebody who has no answer.
pub const NO_ANSWER: [u64; 3] = [0; 3];

/// What threads execute, told by a run whose data flow is followed. These are no events: they are
/// not counted, and no trace has them.
///
/// `words` are 8 bytes each, in the byte order of the machine; `brownout_abi::follow` says what
/// they mean, and `brownout_follow` makes sense of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed<'a> {
    /// A block of code that a thread may execute from now on.
    Block {
        /// Its number, of which each stands for one block in all processes of the run.
        number: u32,
        /// Its address.
        pc: u64,
        /// For each step, how many bytes of code it has.
        steps: &'a [u8],
        /// Its code.
        code: &'a [u8],
    },
    /// What a thread has executed.
    Words {
        /// Who.
        thread: ThreadId,
        /// The base of its `fs` segment.
        fs: u64,
        /// What.
        words: &'a [u8],
    },
    /// The state in front of a chosen instruction.
    Captured {
        /// Of whom.
        thread: ThreadId,
        /// The instruction.
        pc: u64,
        /// As `brownout_abi::captured` says.
        words: &'a [u8],
    },
    /// A system call of a thread.
    Call {
        /// Whose.
        thread: ThreadId,
        /// Its number.
        number: u32,
        /// Whether it begins or ends, one of `brownout_abi::follow::call`.
        what: u32,
        /// As that says.
        words: &'a [u8],
    },
}

/// What a program of the run was started with. This is no event: it is not counted, and no trace
/// has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// The kernel's number of its process.
    pub pid: u32,
    /// Its command line. Empty if it is not known.
    pub words: Vec<String>,
    /// Its working folder. Empty if it is not known.
    pub folder: PathBuf,
    /// Which test it belongs to, as variables of the environment say it; the others are not told.
    pub variables: Vec<(String, String)>,
    /// Behind the last of its words in its memory; 0 if that is not known.
    pub words_end: u64,
}

/// Takes events, in order.
pub trait EventSink {
    /// One event. After an error no more events come.
    fn event(&mut self, event: &Event<'_>) -> io::Result<()>;

    /// Several events, in order; by default one after the other. A sink to which every nanosecond
    /// of an event matters has its own loop.
    fn events(&mut self, events: &[Event<'_>]) -> io::Result<()> {
        events.iter().try_for_each(|event| self.event(event))
    }

    /// What to answer to an annotation that asks for an answer; called right after
    /// [`event`](Self::event) had it. The program waits. What the words mean is the annotation's
    /// business; [`NO_ANSWER`] is all zeros.
    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        let _ = question;
        NO_ANSWER
    }

    /// What threads have executed, in its place among the events: what an instruction does to
    /// tracked memory comes as events first, and then the instruction. Only of runs that are to be
    /// followed; by default it is nobody's business.
    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        let _ = what;
        Ok(())
    }

    /// What the program was started with that is in the process from its last `ProcessStart` on; of
    /// live runs only. A process that was forked has none of its own: its program is its parent's.
    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        let _ = (process, what);
        Ok(())
    }

    /// A tracked file is about to be mapped for the first time; the program waits until this
    /// returns, so the content is still the initial one. `path` opens the live file.
    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let _ = (file, path);
        Ok(())
    }
}

/// Gives events to several sinks, to each of them in order.
///
/// A sink that fails ends the stream for all; those before it may have had some dozens of events
/// more than those behind it.
#[derive(Default)]
pub struct Tee<'s> {
    sinks: Vec<&'s mut dyn EventSink>,
}

impl<'s> Tee<'s> {
    /// These, in this order.
    pub fn of<const N: usize>(sinks: [&'s mut dyn EventSink; N]) -> Tee<'s> {
        Tee {
            sinks: Vec::from(sinks),
        }
    }

    /// One more, if there is one.
    pub fn and<S: EventSink>(mut self, sink: Option<&'s mut S>) -> Tee<'s> {
        if let Some(sink) = sink {
            self.sinks.push(sink);
        }
        self
    }
}

impl EventSink for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| sink.event(event))
    }

    fn events(&mut self, events: &[Event<'_>]) -> io::Result<()> {
        let mut sinks = self.sinks.iter_mut();
        sinks.try_for_each(|sink| sink.events(events))
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        let mut sinks = self.sinks.iter_mut();
        sinks.try_for_each(|sink| sink.executed(what))
    }

    /// The answer of the first sink that has one.
    fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        let mut answers = self.sinks.iter_mut().map(|sink| sink.answer(question));
        let given = answers.find(|answer| *answer != NO_ANSWER);
        given.unwrap_or(NO_ANSWER)
    }

    fn beginning(&mut self, process: ProcessId, what: &Beginning) -> io::Result<()> {
        let mut sinks = self.sinks.iter_mut();
        sinks.try_for_each(|sink| sink.beginning(process, what))
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let mut sinks = self.sinks.iter_mut();
        sinks.try_for_each(|sink| sink.new_file(file, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ContextId, EventKind, FenceKind, TargetAddr};

    /// Remembers what it got; fails at the event of this number, and answers with these words.
    #[derive(Default)]
    struct Heard {
        events: Vec<u32>,
        files: Vec<u32>,
        executed: u32,
        fails_at: Option<u32>,
        answer: [u64; 3],
    }

    impl EventSink for Heard {
        fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
            if self.fails_at == Some(event.thread.0) {
                return Err(io::ErrorKind::Other.into());
            }
            self.events.push(event.thread.0);
            Ok(())
        }

        fn executed(&mut self, _: &Executed<'_>) -> io::Result<()> {
            self.executed += 1;
            Ok(())
        }

        fn answer(&mut self, _: &Event<'_>) -> [u64; 3] {
            self.answer
        }

        fn new_file(&mut self, file: FileId, _: &Path) -> io::Result<()> {
            self.files.push(file.0);
            Ok(())
        }
    }

    fn event(number: u32) -> Event<'static> {
        Event {
            thread: ThreadId(number),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind: EventKind::Fence(FenceKind::Sfence),
        }
    }

    #[test]
    fn all_sinks_get_all_events_in_order() {
        let (mut one, mut two, mut three) = <(Heard, Heard, Heard)>::default();
        let mut tee = Tee::of([&mut one, &mut two])
            .and(Some(&mut three))
            .and(None::<&mut Heard>);
        tee.event(&event(1)).unwrap();
        tee.events(&[event(2), event(3)]).unwrap();
        tee.new_file(FileId(7), Path::new("/p")).unwrap();
        let words = Executed::Words {
            thread: ThreadId(1),
            fs: 0,
            words: &[],
        };
        tee.executed(&words).unwrap();
        for heard in [one, two, three] {
            assert_eq!((heard.events, heard.files), (vec![1, 2, 3], vec![7]));
            assert_eq!(heard.executed, 1);
        }
    }

    #[test]
    fn a_failure_is_passed_on_and_ends_what_is_handed_over() {
        let mut one = Heard::default();
        let mut two = Heard {
            fails_at: Some(2),
            ..Heard::default()
        };
        let mut three = Heard::default();
        let mut tee = Tee::of([&mut one, &mut two, &mut three]);
        assert!(tee.events(&[event(1), event(2), event(3)]).is_err());
        assert_eq!(one.events, [1, 2, 3]);
        assert_eq!(two.events, [1]);
        assert!(three.events.is_empty());
    }

    #[test]
    fn whoever_has_an_answer_gives_it() {
        let mut silent = Heard::default();
        let mut first = Heard {
            answer: [1, 2, 3],
            ..Heard::default()
        };
        let mut second = Heard {
            answer: [4, 5, 6],
            ..Heard::default()
        };
        let mut tee = Tee::of([&mut silent, &mut first, &mut second]);
        assert_eq!(tee.answer(&event(1)), [1, 2, 3]);
        assert_eq!(Tee::default().answer(&event(1)), NO_ANSWER);
    }
}
