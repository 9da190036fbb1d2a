//! The way of a call through stages, and that a stage can schedule threads by what it is told.

use brownout_syscalls::pipeline::{Call, NUMBERS, Pipeline, Rest, Stage};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

#[allow(dead_code)]
mod common;
use common::{must, syscall};

const READ: u64 = 0;
const WRITE: u64 = 1;
const PIPE: u64 = 22;
const GETPID: u64 = 39;

fn call(number: u64, args: [u64; 6]) -> Call {
    Call { number, args }
}

// ---------------------------------------------------------------- the way

/// What the stages of a test have done.
#[derive(Default)]
struct Log(Vec<String>);

fn outer(log: &mut Log, call: &Call, rest: Rest<Log>) -> Option<i64> {
    log.0.push(format!("outer gets {}", call.args[0]));
    let mut args = call.args;
    args[0] += 1;
    let result = rest.make(log, &call.with(args));
    log.0.push(format!("outer still has {}", call.args[0]));
    result.map(|result| result + 100)
}

fn inner(log: &mut Log, call: &Call, rest: Rest<Log>) -> Option<i64> {
    log.0.push(format!("inner gets {}", call.args[0]));
    match call.args[0] {
        8 => Some(-1),
        _ => rest.make(log, call),
    }
}

fn last(log: &mut Log, call: &Call, _: Rest<Log>) -> Option<i64> {
    log.0.push("last".into());
    (call.args[0] != 9).then_some(call.args[0] as i64)
}

static WAY: Pipeline<Log> = Pipeline::new(&[
    Stage {
        name: "outer",
        takes: |number| number < 2,
        pass: outer,
    },
    Stage {
        name: "inner",
        takes: |number| number != 1 && number != NUMBERS as u64,
        pass: inner,
    },
    Stage {
        name: "last",
        takes: |_| true,
        pass: last,
    },
]);

#[test]
fn a_call_goes_down_the_stages_that_take_it_and_its_result_comes_back_up() {
    WAY.prepare();
    let way = |number: u64| WAY.way(number).collect::<Vec<_>>().join(" ");
    assert_eq!(way(0), "outer inner last");
    assert_eq!(way(1), "outer last");
    assert_eq!(way(2), "inner last");
    // Beyond the table, all numbers are alike.
    assert_eq!(way(NUMBERS as u64), "last");
    assert_eq!(way(u64::MAX), "last");

    let make = |number: u64, first: u64| {
        let mut log = Log::default();
        let result = WAY.make(&mut log, &call(number, [first, 0, 0, 0, 0, 0]));
        (result, log.0.join(", "))
    };
    assert_eq!(
        make(0, 5),
        (
            Some(106),
            "outer gets 5, inner gets 6, last, outer still has 5".into()
        )
    );
    // The inner stage answers by itself; a signal that comes first is nobody's result.
    assert_eq!(
        make(0, 7),
        (
            Some(99),
            "outer gets 7, inner gets 8, outer still has 7".into()
        )
    );
    assert_eq!(
        make(1, 8),
        (None, "outer gets 8, last, outer still has 8".into())
    );
    assert_eq!(make(u64::MAX, 3), (Some(3), "last".into()));
}

#[test]
fn a_call_that_no_stage_takes_does_not_exist() {
    static EMPTY: Pipeline<()> = Pipeline::new(&[]);
    EMPTY.prepare();
    assert_eq!(EMPTY.make(&mut (), &call(GETPID, [0; 6])), Some(-38));
}

// ---------------------------------------------------------------- a scheduler, as a stage

/// One thread goes on at a time: the one whose turn it is.
struct Baton {
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
struct Turn {
    holder: Option<usize>,
    /// Threads that could go on, in the order in which they came.
    ready: Vec<usize>,
}

static BATON: Baton = Baton {
    turn: Mutex::new(Turn {
        holder: None,
        ready: Vec::new(),
    }),
    changed: Condvar::new(),
};

impl Baton {
    /// The thread may wait from here on: another one goes on.
    fn give(&self) {
        let mut turn = self.turn.lock().unwrap();
        turn.holder = match turn.ready.is_empty() {
            true => None,
            false => Some(turn.ready.remove(0)),
        };
        self.changed.notify_all();
    }

    /// The thread is back. It goes on when it is its turn.
    fn take(&self, thread: usize) {
        let mut turn = self.turn.lock().unwrap();
        match turn.holder {
            None => turn.holder = Some(thread),
            Some(_) => turn.ready.push(thread),
        }
        while turn.holder != Some(thread) {
            turn = self.changed.wait(turn).unwrap();
        }
    }
}

/// A thread of the program, which counts what it does between its calls.
struct Thread {
    number: usize,
    waits: u32,
}

static SCHEDULED: Pipeline<Thread> = Pipeline::new(&[
    Stage {
        name: "schedule",
        takes: |_| true,
        pass: |thread, call, rest| {
            if !call.may_block() {
                return rest.make(thread, call);
            }
            thread.waits += 1;
            BATON.give();
            let result = rest.make(thread, call);
            BATON.take(thread.number);
            result
        },
    },
    Stage {
        name: "kernel",
        takes: |_| true,
        pass: |_, call, _| Some(syscall(call.number, &call.args)),
    },
]);

/// Two threads that wait for each other by pipes. With a scheduler that is not told of blocking,
/// the first `read` would keep the baton for ever; with one that is not told of the return, both
/// threads would go on at once.
#[test]
fn a_stage_can_let_one_thread_go_on_at_a_time() {
    const ROUNDS: u8 = 50;
    static AT_WORK: AtomicUsize = AtomicUsize::new(0);
    SCHEDULED.prepare();
    let pipe = || {
        let mut ends = [0i32; 2];
        must(PIPE, &[ends.as_mut_ptr() as u64]);
        ends.map(|end| end as u64)
    };
    let (there, back) = (pipe(), pipe());
    let run = |number: usize, from: u64, to: u64, begins: bool| {
        let mut thread = Thread { number, waits: 0 };
        let mut byte = 0u8;
        let make = |thread: &mut Thread, number: u64, args: [u64; 3]| {
            let [a, b, c] = args;
            SCHEDULED.make(thread, &call(number, [a, b, c, 0, 0, 0]))
        };
        BATON.take(number);
        for round in 0..ROUNDS {
            let at = &raw mut byte as u64;
            if begins || round != 0 {
                assert_eq!(make(&mut thread, WRITE, [to, at, 1]), Some(1));
            }
            assert_eq!(make(&mut thread, READ, [from, at, 1]), Some(1));
            // What the program does between its calls.
            assert_eq!(AT_WORK.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
            assert!(make(&mut thread, GETPID, [0; 3]) > Some(0));
            std::thread::yield_now();
            byte += 1;
            AT_WORK.fetch_sub(1, Ordering::SeqCst);
        }
        let at = &raw const byte as u64;
        if !begins {
            assert_eq!(make(&mut thread, WRITE, [to, at, 1]), Some(1));
        }
        BATON.give();
        (byte, thread.waits)
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(1, back[0], there[1], true));
        let second = scope.spawn(|| run(2, there[0], back[1], false));
        (first.join().unwrap(), second.join().unwrap())
    });
    // Each round is a write and a read, which may wait, and a `getpid`, which may not.
    assert_eq!(first, (2 * ROUNDS, 2 * u32::from(ROUNDS)));
    assert_eq!(second, (2 * ROUNDS - 1, 2 * u32::from(ROUNDS)));
}
