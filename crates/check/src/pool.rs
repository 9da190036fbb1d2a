//! Checkers on threads of their own.
//!
//! ```text
//!  events ─▶ batches ─┬▶ worker: persistency
//!                     └▶ worker: logging
//! ```
//! The two halves of the rules share no state, so each takes the whole stream by itself. Guarantee:
//! each worker sees every event in order, so the findings are those of one checker with both
//! duties. Batches wait in bounded queues: a slow worker holds the stream up, memory does not grow.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use brownout_trace::event::Event;

use crate::Options;
use crate::checker::{Checker, Duties};
use crate::owned::Owned;

/// Events handed over at a time: enough that handing over costs nothing, few enough to stay in the
/// cache.
const BATCH_LEN: usize = 2048;
/// Batches that wait for a worker at most.
const BATCHES_WAITING_MAX: usize = 16;

/// A question is put to every worker: the annotation's event, and where the answers go.
struct Question {
    event: Owned,
    reply: Sender<[u64; 3]>,
}

enum Work {
    Events(Arc<Vec<Owned>>),
    Question(Arc<Question>),
}

#[derive(Debug)]
struct Worker {
    queue: SyncSender<Work>,
    thread: JoinHandle<Checker>,
}

/// Workers, and the events that they have not been given yet.
#[derive(Debug)]
pub struct Pool {
    workers: Vec<Worker>,
    batch: Vec<Owned>,
}

impl Pool {
    /// Two workers, one for each half.
    pub fn start(options: Options) -> Pool {
        let start = |duties| {
            let (queue, work) = sync_channel(BATCHES_WAITING_MAX);
            let checker = Checker::with_duties(options, duties);
            let thread = std::thread::spawn(move || serve(checker, &work));
            Worker { queue, thread }
        };
        Pool {
            workers: vec![start(Duties::PERSISTENCY), start(Duties::LOGGING)],
            batch: Vec::with_capacity(BATCH_LEN),
        }
    }

    /// The next event of the run.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>) {
        self.batch.push(Owned::new(event));
        if self.batch.len() >= BATCH_LEN {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_LEN));
        self.give(&Arc::new(batch), Work::Events);
    }

    /// A worker that is gone has panicked; `finish` passes that on.
    fn give<T>(&self, work: &Arc<T>, of: impl Fn(Arc<T>) -> Work) {
        for worker in &self.workers {
            let _ = worker.queue.send(of(work.clone()));
        }
    }

    /// What the workers answer to an annotation, together: failures add up, and one of them knows a
    /// name if any does.
    pub fn answer(&mut self, question: &Event<'_>) -> [u64; 3] {
        self.hand_over();
        let (reply, replies) = channel();
        let event = Owned::new(question);
        self.give(&Arc::new(Question { event, reply }), Work::Question);
        let answers: Vec<[u64; 3]> = replies.iter().take(self.workers.len()).collect();
        crate::checker::join_answers(question, &answers)
    }

    /// The checkers, when all is done.
    pub fn finish(mut self) -> Vec<Checker> {
        self.hand_over();
        let done = self.workers.into_iter().map(|worker| {
            drop(worker.queue);
            match worker.thread.join() {
                Ok(checker) => checker,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        done.collect()
    }
}

fn serve(mut checker: Checker, work: &Receiver<Work>) -> Checker {
    for work in work {
        match work {
            Work::Events(events) => {
                for event in events.iter() {
                    event.with(|event| checker.event(event));
                }
            }
            Work::Question(question) => {
                let mut answer = [0; 3];
                question.event.with(|event| answer = checker.answer(event));
                // Whoever asked waits for it.
                let _ = question.reply.send(answer);
            }
        }
    }
    checker.finish();
    checker
}
