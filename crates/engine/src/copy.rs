//! Memory of the program that may be bad: it is copied, and a fault on the way is an answer.

use crate::address::Reach;

core::arch::global_asm!(
    // rdi = to, rsi = from, rdx = length: 1 if all was copied.
    ".global bo_copy",
    ".global bo_copy_insn",
    ".global bo_copy_load",
    ".global bo_copy_store",
    ".global bo_copy_fail",
    "bo_copy:",
    "mov rcx, rdx",
    "cmp rcx, 8",
    "jne 2f",
    "bo_copy_load:",
    "mov rax, [rsi]",
    "bo_copy_store:",
    "mov [rdi], rax",
    "mov eax, 1",
    "ret",
    "2:",
    "bo_copy_insn:",
    "rep movsb",
    "mov eax, 1",
    "ret",
    "bo_copy_fail:",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    fn bo_copy(to: u64, from: u64, len: u64) -> u64;
    fn bo_copy_insn();
    fn bo_copy_load();
    fn bo_copy_store();
    fn bo_copy_fail();
}

/// Copies to or from program memory; false if it faulted on the way.
///
/// # Safety
/// One side is memory of the engine, large enough; the other is the program's, good or bad.
pub unsafe fn copy_program(to: u64, from: u64, len: u64) -> bool {
    // SAFETY: faults in `bo_copy` continue at its failure exit.
    unsafe { bo_copy(to, from, len) == 1 }
}

/// Where a copy that faulted at `rip` goes on.
pub fn fixup(rip: u64) -> Option<u64> {
    let at = |label: unsafe extern "C" fn()| label as *const () as usize as u64;
    let copies = [bo_copy_insn, bo_copy_load, bo_copy_store];
    let is_copy = copies.into_iter().any(|label| at(label) == rip);
    is_copy.then(|| at(bo_copy_fail))
}

/// Copies program memory that may be unmapped. False if any byte could not be read.
pub fn read_memory(from: Reach, out: &mut [u8]) -> bool {
    // SAFETY: `out` is ours.
    unsafe { copy_program(out.as_mut_ptr() as u64, from.get(), out.len() as u64) }
}

/// Writes program memory that may be unmapped or read-only. False if any byte could not be written.
pub fn write_memory(to: Reach, data: &[u8]) -> bool {
    // SAFETY: `data` is ours.
    unsafe { copy_program(to.get(), data.as_ptr() as u64, data.len() as u64) }
}
