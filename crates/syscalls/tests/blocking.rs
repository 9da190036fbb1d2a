//! Which calls may block, against the kernel: threads are sent into calls in which they wait, and
//! found there.

use brownout_syscalls::{SyscallInfo, all, may_block, name};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[allow(dead_code)]
mod common;
use common::{must, syscall};

const SIGUSR1: i32 = 10;

unsafe extern "C" {
    fn signal(sig: i32, handler: extern "C" fn(i32)) -> usize;
    fn siginterrupt(sig: i32, flag: i32) -> i32;
}

extern "C" fn nothing(_: i32) {}

/// Whether a thread that makes the call is found waiting in it. A signal brings it back.
fn waits(number: u64, args: [u64; 6]) -> bool {
    let (tell, told) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            tell.send(must(186, &[])).unwrap();
            syscall(number, &args);
            done.send(()).unwrap();
        });
        let thread = told.recv().unwrap();
        let begun = Instant::now();
        let mut found = false;
        // Twice in a row, because one may also meet it on its way through.
        let mut in_a_row = 0;
        while is_done.try_recv().is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{}",
                name(number)
            );
            let status = format!("/proc/self/task/{thread}/syscall");
            let status = std::fs::read_to_string(status).unwrap_or_default();
            let is_in_call = status.split(' ').next() == Some(&number.to_string());
            in_a_row = if is_in_call { in_a_row + 1 } else { 0 };
            if in_a_row == 3 {
                found = true;
            }
            if found {
                // Until it is back: the first may come before it has gone to sleep.
                syscall(
                    234,
                    &[std::process::id().into(), thread, SIGUSR1 as u64, 0, 0, 0],
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        found
    })
}

#[test]
fn calls_in_which_a_thread_is_found_waiting_may_block() {
    // SAFETY: a handler that does nothing; calls are to be interrupted by it.
    unsafe {
        signal(SIGUSR1, nothing);
        siginterrupt(SIGUSR1, 1);
    }
    let pair = |number: u64, first: &[u64]| {
        let mut ends = [0i32; 2];
        let mut args = first.to_vec();
        args.push(ends.as_mut_ptr() as u64);
        must(number, &args);
        ends.map(|end| end as u64)
    };
    let pipe = pair(22, &[]);
    let full = pair(22, &[]);
    must(72, &[full[1], 4, 0o4000]);
    let page = vec![0u8; 4096];
    while syscall(1, &[full[1], page.as_ptr() as u64, 4096, 0, 0, 0]) > 0 {}
    must(72, &[full[1], 4, 0]);
    let sockets = pair(53, &[1, 1, 0]);
    let word = 0u32;
    let mut byte = [0u8; 64];
    let byte = byte.as_mut_ptr() as u64;
    let poll = [pipe[0] | 1 << 32];
    let long = [1000u64, 0];
    let vector = [byte, 1];
    let set = 1u64 << 40;
    let epoll = must(291, &[0]);
    let queue = must(68, &[0, 0o600]);
    let semaphore = must(64, &[0, 1, 0o600]);
    let take_one = [0u16, u16::MAX, 0];
    let zero = 0u64;
    let [read, write] = pipe;
    let at = |value: &[u64]| value.as_ptr() as u64;
    let cases: &[(u64, [u64; 6])] = &[
        (0, [read, byte, 1, 0, 0, 0]),
        (19, [read, at(&vector), 1, 0, 0, 0]),
        (1, [full[1], page.as_ptr() as u64, 4096, 0, 0, 0]),
        (275, [read, 0, full[1], 0, 1, 0]),
        (7, [at(&poll), 1, u64::MAX, 0, 0, 0]),
        (271, [at(&poll), 1, 0, 0, 0, 0]),
        (23, [0, 0, 0, 0, 0, 0]),
        (270, [0, 0, 0, 0, 0, 0]),
        (232, [epoll, byte, 1, u64::MAX, 0, 0]),
        (281, [epoll, byte, 1, 100_000, 0, 8]),
        (34, [0; 6]),
        (35, [at(&long), 0, 0, 0, 0, 0]),
        (230, [1, 0, at(&long), 0, 0, 0]),
        (128, [&raw const set as u64, 0, 0, 8, 0, 0]),
        (130, [&raw const zero as u64, 8, 0, 0, 0, 0]),
        (45, [sockets[0], byte, 1, 0, 0, 0]),
        (202, [&raw const word as u64, 0, 0, 0, 0, 0]),
        (
            202,
            [&raw const word as u64, 128 | 9, 0, 0, 0, u32::MAX.into()],
        ),
        (65, [semaphore, take_one.as_ptr() as u64, 1, 0, 0, 0]),
        (70, [queue, byte, 8, 0, 0, 0]),
    ];
    for &(number, args) in cases {
        assert!(waits(number, args), "{} does not wait here", name(number));
        assert!(may_block(number, &args), "{}", name(number));
    }
    // The same calls where their arguments say that they do not wait.
    let not: &[(u64, [u64; 6])] = &[
        (7, [at(&poll), 1, 0, 0, 0, 0]),
        (232, [epoll, byte, 1, 0, 0, 0]),
        (202, [&raw const word as u64, 1, 1, 0, 0, 0]),
        (70, [queue, byte, 8, 0, 0o4000, 0]),
        (61, [u64::MAX, 0, 1, 0, 0, 0]),
        (73, [epoll, 2 | 4, 0, 0, 0, 0]),
        (39, [0; 6]),
        (72, [write, 3, 0, 0, 0, 0]),
    ];
    for &(number, args) in not {
        assert!(!waits(number, args), "{} waits", name(number));
        assert!(!may_block(number, &args), "{}", name(number));
    }
    must(71, &[queue, 0]);
    must(66, &[semaphore, 0, 0]);
}

/// What is not known is taken for the worse, and most of what is known is not.
#[test]
fn unknown_calls_may_block_and_most_others_do_not() {
    assert!(may_block(100_000, &[0; 6]));
    assert!(may_block(u64::MAX, &[0; 6]));
    let (blocking, others): (Vec<&SyscallInfo>, Vec<&SyscallInfo>) =
        all().partition(|row| may_block(row.nr.into(), &[0; 6]));
    assert!(blocking.len() < others.len() / 3, "{}", blocking.len());
    for never in ["getpid", "mmap", "futex_wake", "rt_sigprocmask", "exit"] {
        assert!(others.iter().any(|row| row.name == never), "{never}");
    }
}
