//! Whether a run's stores might have come in another order.
//!
//! Which way it errs: a run that could not have gone otherwise (a thread that is joined before the
//! next one stores) may be called interleaved, since what orders threads is not looked at. The
//! converse needs a process that runs on its own, stores, and happens to be over before the next
//! one begins: it is taken for waited for, as a shell does.

use std::collections::{BTreeMap, BTreeSet};

use brownout_trace::event::{Event, EventKind, ProcessId, ThreadId};

#[derive(Debug, Default)]
struct Process {
    parent: ProcessId,
    begun: u64,
    ended: Option<u64>,
    /// Threads that have stored.
    storing: BTreeSet<ThreadId>,
    has_forked: bool,
    /// It stored when it had a child already. What comes before that comes first in every order.
    stored_beside_child: bool,
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Interleaving {
    processes: BTreeMap<ProcessId, Process>,
    now: u64,
}

impl Interleaving {
    /// Every event of the run, in order.
    pub fn observe(&mut self, event: &Event<'_>) {
        self.now += 1;
        match &event.kind {
            EventKind::ProcessStart {
                process, parent, ..
            } => {
                if let Some(parent) = self.processes.get_mut(parent) {
                    parent.has_forked = true;
                }
                let new = Process {
                    parent: *parent,
                    begun: self.now,
                    ..Process::default()
                };
                self.processes.insert(*process, new);
            }
            EventKind::ProcessExit { process, .. } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.ended = Some(self.now);
                }
            }
            _ => {}
        }
    }

    /// A thread has stored to persistent memory.
    pub fn stored(&mut self, process: ProcessId, thread: ThreadId) {
        let process = self.processes.entry(process).or_default();
        process.storing.insert(thread);
        process.stored_beside_child |= process.has_forked;
    }

    /// How many threads have stored, of all processes.
    pub fn threads(&self) -> usize {
        self.processes.values().map(|p| p.storing.len()).sum()
    }

    /// Whether any other thread than this one has stored. (Threads have one number in all
    /// processes.)
    pub fn have_others_stored(&self, thread: ThreadId) -> bool {
        let mut storing = self.processes.values().flat_map(|p| &p.storing);
        storing.any(|other| *other != thread)
    }

    /// Whether another order was possible.
    pub fn is_there(&self) -> bool {
        let storing: Vec<(&ProcessId, &Process)> = self
            .processes
            .iter()
            .filter(|(_, process)| !process.storing.is_empty())
            .collect();
        let beside = |(i, one): (usize, &(&ProcessId, &Process))| {
            let mut others = storing[i + 1..].iter();
            others.any(|other| !self.is_ordered(*one, *other) && !self.is_ordered(*other, *one))
        };
        storing.iter().any(|(_, process)| process.storing.len() > 1)
            || storing.iter().enumerate().any(beside)
    }

    /// All stores of `one` come before those of the other.
    fn is_ordered(&self, one: (&ProcessId, &Process), other: (&ProcessId, &Process)) -> bool {
        let is_over = one.1.ended.is_some_and(|end| end <= other.1.begun);
        is_over || !one.1.stored_beside_child && self.descends(other.1, *one.0)
    }

    fn descends(&self, process: &Process, from: ProcessId) -> bool {
        let mut parent = process.parent;
        // Numbers grow, so this ends.
        while let Some(next) = self.processes.get(&parent) {
            if parent == from {
                return true;
            }
            if next.parent >= parent {
                return false;
            }
            parent = next.parent;
        }
        false
    }
}

/// What is said where several threads store.
pub fn interleaved(who: &str) -> String {
    format!(
        "{who} to persistent memory in several threads or processes: the one interleaving that was recorded is explored"
    )
}

#[cfg(test)]
mod tests {
    use brownout_trace::event::{ContextId, ExitStatus, TargetAddr};

    use super::*;

    enum Does {
        /// Process and parent.
        Start(u32, u32),
        Exit(u32),
        /// Process and thread.
        Store(u32, u32),
    }
    use Does::{Exit, Start, Store};

    fn is_interleaved(story: &[Does]) -> bool {
        let mut interleaving = Interleaving::default();
        for does in story {
            let kind = match does {
                Start(process, parent) => EventKind::ProcessStart {
                    process: ProcessId(*process),
                    parent: ProcessId(*parent),
                    pid: 1,
                    exe: b"",
                },
                Exit(process) => EventKind::ProcessExit {
                    process: ProcessId(*process),
                    status: ExitStatus::Code(0),
                },
                Store(process, thread) => {
                    interleaving.stored(ProcessId(*process), ThreadId(*thread));
                    continue;
                }
            };
            interleaving.observe(&Event {
                thread: ThreadId(1),
                pc: TargetAddr(0),
                context: ContextId(0),
                kind,
            });
        }
        interleaving.is_there()
    }

    #[test]
    fn one_thread_has_one_order() {
        assert!(!is_interleaved(&[Start(1, 0), Store(1, 1), Store(1, 1)]));
        assert!(!is_interleaved(&[Start(1, 0)]));
    }

    #[test]
    fn two_threads_have_several() {
        assert!(is_interleaved(&[Start(1, 0), Store(1, 1), Store(1, 2)]));
    }

    #[test]
    fn a_shell_runs_one_after_the_other() {
        let story = [
            Start(1, 0),
            Start(2, 1),
            Store(2, 2),
            Exit(2),
            Start(3, 1),
            Store(3, 3),
            Exit(3),
        ];
        assert!(!is_interleaved(&story));
        // In the background.
        let story = [
            Start(1, 0),
            Start(2, 1),
            Store(2, 2),
            Start(3, 1),
            Store(3, 3),
        ];
        assert!(is_interleaved(&story));
    }

    #[test]
    fn what_comes_before_a_fork_comes_first() {
        let story = [Start(1, 0), Store(1, 1), Start(2, 1), Store(2, 2)];
        assert!(!is_interleaved(&story));
        let story = [
            Start(1, 0),
            Store(1, 1),
            Start(2, 1),
            Store(2, 2),
            Store(1, 1),
        ];
        assert!(is_interleaved(&story));
        // A grandchild descends, too.
        let story = [
            Start(1, 0),
            Store(1, 1),
            Start(2, 1),
            Start(3, 2),
            Store(3, 3),
        ];
        assert!(!is_interleaved(&story));
        // Brothers do not.
        let story = [
            Start(1, 0),
            Start(2, 1),
            Start(3, 1),
            Store(3, 3),
            Store(2, 2),
        ];
        assert!(is_interleaved(&story));
    }
}
