//! The stage of system calls that tells what leaves the process by a call, and what the kernel has
//! written to its memory.
//!
//! It stands first, so that it sees calls as the program makes them, with the program's addresses,
//! and sees all of them, also those that the engine answers by itself. What the kernel writes is
//! what `brownout_syscalls` knows of a call if all memory is taken for tracked.

use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::follow;
use crate::sys::nr;
use crate::values::read_value;
use alloc::vec::Vec;
use brownout_abi::follow::call;
use brownout_syscalls::pipeline::{Call, Rest, Stage};
use brownout_syscalls::{Memory, Prepared, Run, Translate};

/// See the module's header.
pub const STAGE: Stage<ThreadContext> = Stage {
    name: "follow",
    takes: |_| crate::mode().follow || crate::mode().capture,
    pass,
};

fn pass(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, args) = (call.number, call.args);
    follow::stands(ctx);
    let leaves = leaves(number, &args);
    follow::system_call(ctx, call::BEGINS, number, &[], &leaves);
    if number == nr::ARCH_PRCTL {
        ctx.follow_fs = 0;
    }
    if makes_or_leaves_a_process(number) {
        let result = rest.make(ctx, call)?;
        tell_end(ctx, call, result, &[]);
        return Some(result);
    }
    let mut prepared = Prepared::new();
    let mut rewritten = args;
    // What is not known of a call, `pm` has said already, or will.
    let _ = brownout_syscalls::prepare(number, &mut rewritten, &All, &All, &mut prepared);
    let result = rest.make(ctx, call)?;
    let mut written: Vec<(u64, u64)> = Vec::new();
    brownout_syscalls::finish(&prepared, result, &All, &All, &mut |addr, len| {
        written.push((addr, len));
    });
    tell_end(ctx, call, result, &written);
    Some(result)
}

fn tell_end(ctx: &mut ThreadContext, call: &Call, result: i64, written: &[(u64, u64)]) {
    let [a, b, c, d, e, f] = call.args;
    let words = [result as u64, a, b, c, d, e, f];
    follow::system_call(ctx, call::ENDS, call.number, &words, written);
}

/// They come back twice, or not at all, and what they write is a number.
fn makes_or_leaves_a_process(number: u64) -> bool {
    const CLONE3: u64 = 435;
    matches!(
        number,
        nr::CLONE | nr::FORK | nr::VFORK | CLONE3 | nr::EXECVE | nr::EXECVEAT
    )
}

/// All memory of the program, as if it were tracked, and were where the program sees it. Nothing is
/// written there: the call is made as the program makes it.
struct All;

const USER: core::ops::Range<u64> = 0x1_0000..0x8000_0000_0000;

impl Translate for All {
    fn alias_of(&self, addr: u64) -> Option<u64> {
        USER.contains(&addr).then_some(addr)
    }

    fn run(&self, addr: u64, len: u64) -> Run {
        Run {
            alias: self.alias_of(addr),
            len,
        }
    }
}

impl Memory for All {
    fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        crate::copy::read_memory(crate::pm::reach(ProgramAddr::new(addr)), to)
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        true
    }
}

/// Which memory leaves the process by this call, if all of it is taken: in the order in which it
/// does.
fn leaves(number: u64, a: &[u64; 6]) -> Vec<(u64, u64)> {
    const WRITE: u64 = 1;
    const PWRITE64: u64 = 18;
    const WRITEV: u64 = 20;
    const SENDTO: u64 = 44;
    const SENDMSG: u64 = 46;
    const MSGSND: u64 = 69;
    const MQ_TIMEDSEND: u64 = 242;
    const VMSPLICE: u64 = 278;
    const PWRITEV: u64 = 296;
    const SENDMMSG: u64 = 307;
    const PWRITEV2: u64 = 328;
    /// The kernel takes no more messages at once.
    const MESSAGES_MAX: u64 = 1024;
    let mut found = Vec::new();
    match number {
        WRITE | PWRITE64 | SENDTO | MQ_TIMEDSEND => found.push((a[1], a[2])),
        MSGSND => found.push((a[1].wrapping_add(8), a[2])),
        WRITEV | PWRITEV | PWRITEV2 | VMSPLICE => vector(a[1], a[2], &mut found),
        SENDMSG => message(a[1], &mut found),
        SENDMMSG => {
            for n in 0..u64::from(a[2] as u32).min(MESSAGES_MAX) {
                message(a[1].wrapping_add(64 * n), &mut found);
            }
        }
        _ => {}
    }
    found.retain(|(_, len)| *len != 0);
    found
}

/// The buffers of an array of `struct iovec`.
fn vector(at: u64, count: u64, found: &mut Vec<(u64, u64)>) {
    const IOV_MAX: u64 = 1024;
    for n in 0..count.min(IOV_MAX) {
        let mut buffer = [0u64; 2];
        if !read_value(at.wrapping_add(16 * n), &mut buffer) {
            return;
        }
        found.push((buffer[0], buffer[1]));
    }
}

/// Those of a `struct msghdr`.
fn message(at: u64, found: &mut Vec<(u64, u64)>) {
    let mut buffers = [0u64; 2];
    if read_value(at.wrapping_add(16), &mut buffers) {
        vector(buffers[0], buffers[1], found);
    }
}
