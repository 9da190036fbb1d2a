//! Library functions whose calls are recorded.
//!
//! Their addresses come from the tool, which reads symbol tables; they are asked for when code is
//! mapped, before any of it can run. `translate` puts a record in front of each function's first
//! instruction.

use crate::address::ProgramAddr;
use crate::service;
use crate::sync::SpinLock;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use hashbrown::HashMap;

static FUNCTIONS: SpinLock<HashMap<u64, u32, crate::hash::PcHash>> =
    SpinLock::new(HashMap::with_hasher(crate::hash::PcHash));
/// Most programs have none: then nothing is looked up.
static ANY: AtomicBool = AtomicBool::new(false);

/// Code of the C library, where threads are looked at.
static C_LIBRARY: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

/// Whether this is code of the C library, and threads are looked at.
pub fn is_of_c_library(pc: ProgramAddr) -> bool {
    let ranges = C_LIBRARY.lock();
    ranges
        .iter()
        .any(|(start, end)| (*start..*end).contains(&pc.get()))
}

/// The number of the function that begins at `pc`.
pub fn at(pc: ProgramAddr) -> Option<u32> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    FUNCTIONS.lock().get(&pc.get()).copied()
}

/// The C library, in one file or, of old, with threads in one of its own; musl has it in the
/// loader.
fn is_c_library(name: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 5] = [
        b"libc.so",
        b"libc-",
        b"libpthread",
        b"ld-musl-",
        b"libc.musl-",
    ];
    BEGINNINGS.iter().any(|start| name.starts_with(start))
}

/// Code was mapped from `path`.
pub fn code_mapped(start: u64, len: u64, offset: u64, path: &[u8], is_program: bool) {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let threads = crate::mode().threads;
    let has_some = name.starts_with(b"libpmemobj") || threads && is_c_library(name);
    if !is_program && !has_some {
        return;
    }
    if threads && is_c_library(name) {
        C_LIBRARY.lock().push((start, start + len));
    }
    let about = service::LibraryOf {
        is_program,
        threads,
    };
    service::library_functions(start, len, offset, path, about, |address, number| {
        FUNCTIONS.lock().insert(address, number);
        ANY.store(true, Ordering::Relaxed);
    });
}

/// Code was unmapped or replaced.
pub fn code_unmapped(start: u64, end: u64) {
    if crate::mode().threads {
        C_LIBRARY
            .lock()
            .retain(|(from, until)| *from >= end || *until <= start);
    }
    if ANY.load(Ordering::Relaxed) {
        FUNCTIONS.lock().retain(|pc, _| *pc < start || *pc >= end);
    }
}

/// In a forked child other threads' locks are nobody's.
pub fn reset_after_fork() {
    FUNCTIONS.reset_after_fork();
    C_LIBRARY.reset_after_fork();
}
