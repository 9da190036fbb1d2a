//! Whole stacks of this process, against the unwinder of the C++ runtime.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;

use brownout_unwind::{Module, PcKind, Step, Stop};

use crate::process::{here, modules, unwind};

/// A stack as both unwinders see it.
struct Both {
    ours: Vec<(Step, PcKind)>,
    stop: Stop,
    theirs: Vec<u64>,
}

impl Both {
    fn addresses(&self) -> Vec<u64> {
        self.ours.iter().map(|(step, _)| step.return_addr).collect()
    }

    /// Theirs begins with the frames of the oracle itself and of the function that took the stack.
    fn assert_equal(&self, frames_min: usize) {
        assert_eq!(self.stop, Stop::Outermost);
        let ours = self.addresses();
        assert!(ours.len() >= frames_min, "{ours:x?}");
        assert!(
            self.theirs.ends_with(&ours),
            "ours {ours:x?}\ntheirs {:x?}",
            self.theirs
        );
        assert!(
            self.theirs.len() - ours.len() <= 6,
            "ours {ours:x?}\ntheirs {:x?}",
            self.theirs
        );
    }
}

#[inline(never)]
fn take(modules: &[Module]) -> Both {
    let (ours, stop) = unwind(modules, here());
    let mut theirs = Vec::new();
    backtrace::trace(|frame| {
        theirs.push(frame.ip() as u64);
        true
    });
    // What it calls the caller of the outermost frame.
    theirs.pop_if(|ip| *ip == 0);
    Both { ours, stop, theirs }
}

#[inline(never)]
fn descend(depth: u32, modules: &[Module]) -> Both {
    // A frame of changing size that the optimiser must keep.
    let local = black_box([depth; 9]);
    let result = if depth == 0 {
        take(modules)
    } else {
        ascend(depth - 1, modules)
    };
    black_box(local);
    result
}

#[inline(never)]
fn ascend(depth: u32, modules: &[Module]) -> Both {
    let result = descend(depth, modules);
    black_box(depth);
    result
}

#[test]
fn nested_calls() {
    let modules = modules();
    let both = descend(20, &modules);
    both.assert_equal(41);
    // 20 times the same two call sites.
    let addresses = both.addresses();
    for pair in addresses[1..41].windows(3) {
        assert_eq!(pair[0], pair[2]);
    }
    // Slots lie above each other on one stack.
    assert!(
        both.ours
            .windows(2)
            .all(|pair| pair[0].0.slot < pair[1].0.slot)
    );
}

#[test]
fn through_a_callback_of_the_c_library() {
    thread_local!(static TAKEN: RefCell<Option<Both>> = const { RefCell::new(None) });
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        TAKEN.with(|taken| *taken.borrow_mut() = Some(take(&modules())));
        0
    }
    let mut numbers = [3_u32, 1];
    // SAFETY: two elements of four bytes, and a comparison that touches neither.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 4, Some(compare)) };
    TAKEN.take().unwrap().assert_equal(5);
}

thread_local!(static IN_HANDLER: RefCell<Option<Both>> = const { RefCell::new(None) });

extern "C" fn handler(_signal: c_int) {
    let both = descend(2, &modules());
    IN_HANDLER.with(|taken| *taken.borrow_mut() = Some(both));
}

#[inline(never)]
fn interrupted() -> u64 {
    // SAFETY: delivers to this thread before it returns.
    unsafe { libc::raise(libc::SIGUSR1) };
    black_box(here().pc)
}

fn signal_test(flags: c_int) {
    // SAFETY: an all-zero action is valid; the handler is set right below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the handler interrupts `raise` only, so that it may allocate and lock.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
    let after_raise = interrupted();
    let both = IN_HANDLER.take().expect("the handler ran");
    both.assert_equal(8);
    let exact: Vec<_> = both
        .ours
        .iter()
        .filter(|(_, kind)| *kind == PcKind::Exact)
        .collect();
    assert_eq!(exact.len(), 1, "exactly one frame was interrupted");
    let interrupted_at = both
        .ours
        .iter()
        .position(|(_, kind)| *kind == PcKind::Exact)
        .unwrap();
    let near = |pc: u64| pc <= after_raise && after_raise - pc < 64;
    assert!(
        both.addresses()[interrupted_at..]
            .iter()
            .any(|&pc| near(pc)),
        "reaches the raiser"
    );
}

/// One test, because the handler is the process's.
#[test]
fn through_a_signal_handler() {
    signal_test(0);
    // On a stack of its own, which here lies below or above the interrupted one.
    let mut stack = vec![0_u8; 256 << 10];
    // SAFETY: all-zero is valid and overwritten.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    let new = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    // SAFETY: the stack outlives its use: the old one is put back below.
    assert_eq!(unsafe { libc::sigaltstack(&new, &mut old) }, 0);
    signal_test(libc::SA_ONSTACK);
    // SAFETY: what the kernel gave us.
    assert_eq!(unsafe { libc::sigaltstack(&old, std::ptr::null_mut()) }, 0);
}
