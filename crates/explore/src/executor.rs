//! The seam between those who want programs run on images and those who run them.
//!
//! ```text
//!  search, minimise, operations ─▶ Request ─▶ Executor ─▶ Answer
//!                                             │ pool.rs: threads, each with a world of its own
//!                                             └ tests: a closure that reads the image, or a plain process
//! ```
//! A [`Request`] is plain data: this program with this input on these files under this schedule. It
//! refers to nothing that an executor keeps, so requests may be answered in any order, by anybody
//! who has the files that the image stands on.
//!
//! Guarantee: each request that was started is answered once, by its number, unless the executor
//! says that it is broken. An answer depends on the request alone: what an earlier one has done to
//! the files is never seen by a later one. What cannot be promised is that a program does the same
//! each time; who asks must expect two answers to the same request to differ.

use std::time::Duration;

use brownout_host::LaunchError;

use crate::execution::{Acknowledged, Command, Execution};
use crate::recording::{RecordOptions, Recording};
use crate::view::Image;

/// One program to run on one image.
#[derive(Clone)]
pub struct Request {
    /// What is run, with its input.
    pub program: Command,
    /// What the files hold, and which there are.
    pub image: Image,
    pub schedule: Schedule,
    pub want: Want,
}

/// What is decided for a run besides its input. Whether threads take turns is the same for all runs
/// of an exploration ([`Turns`](crate::execution::Turns)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Where the program's memory lies: other numbers, other addresses. What is run after the
    /// program on the same files gets the numbers that follow.
    pub layout: u32,
}

/// What is to be told of a run.
#[derive(Clone, Debug)]
pub enum Want {
    /// How it ended, and what it read until then; and what a checker says of what it has left.
    Outcome {
        /// What the checker is told.
        acknowledged: Acknowledged,
        /// Where in the code things happened, too.
        detail: bool,
    },
    /// All that it did, so that it can be cut short.
    Recording(RecordOptions),
    /// How this second program ends, which is run on what the first has left.
    After(Command),
}

impl Request {
    /// A recovery on what a crash has left. It gets other addresses than the runs before it that
    /// have written to these files: a pointer to ordinary memory that one of them has left there
    /// leads nowhere, as it does after a real restart.
    pub fn recovery(program: &Command, image: Image, want: Want) -> Request {
        Request {
            program: program.clone(),
            schedule: Schedule {
                layout: image.crashes(),
            },
            image,
            want,
        }
    }

    /// A run of the program that the exploration is about, from its beginning; then the recovery.
    /// It lies where the recorded run did.
    pub fn orderly(program: Command, image: Image, recovery: &Command) -> Request {
        Request {
            program,
            image,
            schedule: Schedule { layout: 0 },
            want: Want::After(recovery.clone()),
        }
    }
}

/// What came of a request.
pub enum Answer {
    /// If an outcome was asked for, of the program or of the one after it.
    Executed(Result<Box<Execution>, LaunchError>),
    /// If a recording was.
    Recorded(Result<Box<Recording>, LaunchError>),
}

/// See the module's header.
pub trait Executor {
    /// How many requests it works on at once.
    fn size(&self) -> usize;

    /// Begins with a request, or queues it. The number names it in the answer; later requests have
    /// larger ones.
    fn start(&mut self, request: Request) -> u64;

    /// The next answer, if there is one within the time.
    fn wait(&mut self, time: Duration) -> Option<(u64, Answer)>;

    /// Requests that were started and whose answers were not taken yet.
    fn in_flight(&self) -> usize;

    /// Whether some request will never be answered.
    fn is_broken(&self) -> bool;
}

#[cfg(test)]
mod toy;
