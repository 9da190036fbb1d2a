//! The way of a system call: stages with one signature, in one order.
//!
//! ```text
//!  program ─▶ stage ─▶ stage ─▶ … ─▶ the last one makes the call
//!          ◀─       ◀─       ◀─ … ◀─ its result
//! ```
//! A stage gets a call as the stage before it has left it. It may answer it by itself, or have the
//! [`Rest`] make it, with the same arguments or with others, and look at the result. So what a
//! stage does *before* a call and what it does *behind* it is one function, and what must outlive
//! the call (a copied path, a buffer) is a local variable of it.
//!
//! **Blocking and waking.** [`Call::may_block`] says before the call whether the thread may come to
//! wait in it for somebody else, and the return of [`Rest::make`] says that it is back, with a
//! result or because a signal comes first. Every stage sees that; a scheduler of threads is a stage
//! that lets another thread go on in between.
//!
//! **Cost.** A stage says once, for each number, whether it takes such calls ([`Stage::takes`]). A
//! call goes only through those that do.
//!
//! ```
//! use brownout_syscalls::pipeline::{Call, Pipeline, Stage};
//!
//! struct Thread { waits: u32 }
//!
//! static PIPELINE: Pipeline<Thread> = Pipeline::new(&[
//!     Stage {
//!         name: "counts waits",
//!         takes: |_| true,
//!         pass: |thread, call, rest| {
//!             thread.waits += u32::from(call.may_block());
//!             rest.make(thread, call)
//!         },
//!     },
//!     Stage { name: "kernel", takes: |_| true, pass: |_, call, _| Some(call.args[2] as i64) },
//! ]);
//!
//! PIPELINE.prepare();
//! let mut thread = Thread { waits: 0 };
//! let read = Call { number: 0, args: [0, 0, 17, 0, 0, 0] };
//! assert_eq!(PIPELINE.make(&mut thread, &read), Some(17));
//! assert_eq!(thread.waits, 1);
//! ```

use core::sync::atomic::{AtomicU16, Ordering};

/// A system call: its number and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which call it is.
    pub number: u64,
    /// What it is given.
    pub args: [u64; 6],
}

impl Call {
    /// The same call with other arguments.
    pub fn with(&self, args: [u64; 6]) -> Call {
        Call {
            number: self.number,
            args,
        }
    }

    /// Whether the thread may come to wait in it: see [`may_block`](crate::may_block).
    pub fn may_block(&self) -> bool {
        crate::may_block(self.number, &self.args)
    }
}

/// One stage of a pipeline; `T` is the thread that makes the call.
pub struct Stage<T: 'static> {
    /// What it is called where the order is shown.
    pub name: &'static str,
    /// Whether calls with this number concern it. Asked once, by [`Pipeline::prepare`].
    pub takes: fn(u64) -> bool,
    /// Takes one call. The result is what the stage before gets to see, in the end the program;
    /// `None`: a signal comes first, and the program will make the call again behind it.
    pub pass: fn(&mut T, &Call, Rest<T>) -> Option<i64>,
}

/// The stages that a call has still to go through.
pub struct Rest<T: 'static> {
    stages: &'static [Stage<T>],
    /// Bit `n`: stage `n` is among them.
    left: u16,
}

impl<T> Clone for Rest<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Rest<T> {}

impl<T> Rest<T> {
    /// Has the rest make this call. If a stage gives it another number, the stages behind it are
    /// still those of the number that the program gave.
    #[inline]
    pub fn make(self, thread: &mut T, call: &Call) -> Option<i64> {
        const ENOSYS: i64 = 38;
        match self.stages.get(self.left.trailing_zeros() as usize) {
            Some(stage) => {
                let rest = Rest {
                    stages: self.stages,
                    left: self.left & self.left.wrapping_sub(1),
                };
                (stage.pass)(thread, call, rest)
            }
            // Nobody wants it.
            None => Some(-ENOSYS),
        }
    }
}

/// Numbers that have an entry of their own in a pipeline's table; the kernel has fewer. Beyond them
/// one entry, the last, stands for all.
pub const NUMBERS: usize = 512;

/// Stages in their order.
pub struct Pipeline<T: 'static> {
    stages: &'static [Stage<T>],
    /// Which stages take the calls of a number, as bits.
    takers: [AtomicU16; NUMBERS + 1],
}

impl<T> Pipeline<T> {
    /// Every stage gets every call, until [`Pipeline::prepare`] was called.
    pub const fn new(stages: &'static [Stage<T>]) -> Pipeline<T> {
        assert!(stages.len() <= u16::BITS as usize, "too many stages");
        Pipeline {
            stages,
            takers: [const { AtomicU16::new(u16::MAX) }; NUMBERS + 1],
        }
    }

    /// Asks the stages what they take. [`NUMBERS`] stands for all numbers from there on.
    pub fn prepare(&self) {
        for (number, takers) in self.takers.iter().enumerate() {
            let bits = self.stages.iter().enumerate();
            let bits = bits.filter(|(_, stage)| (stage.takes)(number as u64));
            let bits = bits.fold(0, |bits, (n, _)| bits | 1 << n);
            takers.store(bits, Ordering::Relaxed);
        }
    }

    /// The names of the stages that calls of this number go through, in their order.
    pub fn way(&self, number: u64) -> impl Iterator<Item = &'static str> + use<T> {
        let takers = self.takers(number);
        let stages = self.stages.iter().enumerate();
        let taking = stages.filter(move |(n, _)| takers >> n & 1 != 0);
        taking.map(|(_, stage)| stage.name)
    }

    /// Takes a call through the stages.
    #[inline]
    pub fn make(&self, thread: &mut T, call: &Call) -> Option<i64> {
        let rest = Rest {
            stages: self.stages,
            left: self.takers(call.number),
        };
        rest.make(thread, call)
    }

    #[inline]
    fn takers(&self, number: u64) -> u16 {
        let entry = usize::try_from(number).unwrap_or(NUMBERS).min(NUMBERS);
        self.takers[entry].load(Ordering::Relaxed)
    }
}
