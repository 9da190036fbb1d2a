//! Requests to the tool outside, one at a time, through the shared control block.

use crate::control::{control, publish};
use crate::sys;
use brownout_abi::{
    CONTROL_BASE, ClassifyAnswer, Control, FatalKind, Request, TEXT_LEN, TOOL_IS_GONE,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest wait before looking again whether the tool is alive.
const WAIT_NS: u64 = 200_000_000;

/// The mark of the last request of this process.
static MARK: AtomicU64 = AtomicU64::new(0);

fn call(request: Request, args: &[u64], text: &[u8]) -> (u32, [u64; 8]) {
    call_for_text(request, args, text, |_| {})
}

/// `read` sees the answer's text.
fn call_for_text(
    request: Request,
    args: &[u64],
    text: &[u8],
    read: impl FnOnce(&[u8]),
) -> (u32, [u64; 8]) {
    let c = control();
    // What the thread did before it asks comes before the answer.
    publish();
    // The lock names its holder, so that the tool can free it if that is killed. Among processes of
    // several PID namespaces the name may be that of two: then the tool frees it when both are
    // gone. SAFETY: no arguments.
    let own = unsafe { sys::sc!(sys::nr::GETTID) } as u32;
    while let Err(holder) =
        c.service_lock
            .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
    {
        sys::futex_wait(&c.service_lock, holder, WAIT_NS);
        exit_if_orphaned();
    }
    // Numbers do not tell the tool who asks, if this is a PID namespace of its own. This does. (The
    // lock is ours.)
    let mark = c.service_mark.load(Ordering::Relaxed).wrapping_add(1);
    MARK.store(mark, Ordering::Relaxed);
    c.service_mark.store(mark, Ordering::Relaxed);
    c.service_mark_at
        .store(MARK.as_ptr() as u64, Ordering::Relaxed);
    let p = CONTROL_BASE as *mut Control;
    let n = text.len().min(TEXT_LEN);
    // SAFETY: the lock is ours; the service thread reads only after `service_state` says so.
    unsafe {
        (*p).service_request = request as u32;
        let mut a = [0u64; 8];
        a[..args.len()].copy_from_slice(args);
        (*p).service_args = a;
        (&raw mut (*p).service_text as *mut u8).copy_from_nonoverlapping(text.as_ptr(), n);
        (*p).service_text_len = n as u64;
    }
    c.service_state.store(1, Ordering::Release);
    sys::futex_wake(&c.service_state, 1);
    while c.service_state.load(Ordering::Acquire) != 2 {
        sys::futex_wait(&c.service_state, 1, WAIT_NS);
        exit_if_orphaned();
    }
    let answer = (c.service_result, c.service_args);
    read(&c.service_text[..(c.service_text_len as usize).min(TEXT_LEN)]);
    c.service_state.store(0, Ordering::Release);
    c.service_lock.store(0, Ordering::Release);
    sys::futex_wake(&c.service_lock, 1);
    answer
}

/// The tool was killed, or has ended this run: without it nothing is recorded and no program
/// replaced. The target must not hang.
pub fn exit_if_orphaned() {
    if control().tool.load(Ordering::Acquire) & TOOL_IS_GONE != 0 {
        // SAFETY: ends the process.
        unsafe { sys::sc!(sys::nr::EXIT_GROUP, 137) };
    }
}

/// See [`Request::AttachForExec`]. True if the thread is seized and its next program will have the
/// engine.
pub fn attach_for_exec(args: &[u64; 8]) -> bool {
    call(Request::AttachForExec, args, &[]).0 == 1
}

/// See [`Request::ClassifyFile`].
pub fn classify_file(args: &[u64; 8], path: &[u8]) -> (ClassifyAnswer, u32, bool) {
    let (r, a) = call(Request::ClassifyFile, args, path);
    let answer = match r {
        1 => ClassifyAnswer::TrackedNew,
        2 => ClassifyAnswer::TrackedKnown,
        _ => ClassifyAnswer::Ordinary,
    };
    (answer, a[0] as u32, a[1] != 0)
}

/// See [`Request::SameFile`].
pub fn same_file(device: u64, inode: u64, life: u64, file: u32) {
    call(Request::SameFile, &[device, inode, file as u64, life], &[]);
}

/// See [`Request::Files`]. Of more than fit, the last are not told.
pub fn files(device: u64) -> alloc::vec::Vec<u32> {
    let mut numbers = alloc::vec::Vec::new();
    call_for_text(Request::Files, &[device], &[], |text| {
        for number in text.chunks_exact(8) {
            let number = u64::from_le_bytes(core::array::from_fn(|i| number[i]));
            numbers.push(number as u32);
        }
    });
    numbers
}

/// Whose functions are asked for, and which.
pub struct LibraryOf {
    /// The program itself.
    pub is_program: bool,
    /// Those about threads, too.
    pub threads: bool,
}

/// See [`Request::LibraryFunctions`]; `found` is called with the address and number of each.
pub fn library_functions(
    start: u64,
    len: u64,
    offset: u64,
    path: &[u8],
    about: LibraryOf,
    mut found: impl FnMut(u64, u32),
) {
    let args = [
        start,
        len,
        offset,
        about.is_program as u64,
        about.threads as u64,
    ];
    let mut pairs = alloc::vec::Vec::new();
    call_for_text(Request::LibraryFunctions, &args, path, |text| {
        pairs.extend_from_slice(text);
    });
    for pair in pairs.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| pair[at + i]));
        found(word(0), word(8) as u32);
    }
}

/// What the sink answers to the last annotation of thread number `thread`, once it has seen it.
pub fn answer(thread: u32) -> [u64; 3] {
    let (_, words) = call(Request::Answer, &[thread as u64], &[]);
    [words[0], words[1], words[2]]
}

/// See [`Request::Listening`].
pub fn listening(address: &[u8]) {
    call(Request::Listening, &[], address);
}

/// One sentence for the user.
pub fn note(text: &[u8]) {
    call(Request::Note, &[], text);
}

/// Reports and ends the process.
pub fn fatal(kind: FatalKind, text: &[u8]) -> ! {
    call(Request::Fatal, &[kind as u64], text);
    // SAFETY: ends the process.
    unsafe {
        sys::sc!(
            sys::nr::EXIT_GROUP,
            if kind == FatalKind::Bug { 70 } else { 3 }
        )
    };
    loop {
        core::hint::spin_loop()
    }
}
