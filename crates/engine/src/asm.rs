//! The hand-written routines between emitted code and engine code.
//!
//! ```text
//!  stub ──▶ bo_exit ──▶ engine_dispatch() ──▶ bo_enter ──▶ block        (all registers saved)
//!  failed tag check ──▶ bo_miss ──▶ block | bo_exit                     (two registers and flags)
//!  tracked access ──▶ bo_log ──▶ rest of the block | bo_exit             (a few registers and flags)
//! ```
//! Engine code is built for baseline x86-64: it may use xmm0–15 but never their wider parts, so
//! saving those sixteen is enough.
//!
//! `bo_fast_begin..bo_fast_end` may be single-stepped by `signal.rs`: no engine lock is taken
//! there.

use crate::address::CacheAddr;
use crate::context::{GRANULES_OFFSET, IBTC_OFFSET, ThreadContext, off, slot};
use crate::lookup::{LookupEntry, LookupTable};
use crate::pm::context_cache::{Entry, GROUP, PAIR_LEN, PAIRS_OFFSET, SETS_SHIFT, WAYS};
use crate::requests::Unlogged;
use crate::sigdata::{SigInfo, UContext};
use crate::sys::nr;
use brownout_abi::{CONTROL_BASE, Control, RING_BASE, RING_LEN, RecordHead};
use core::mem::{offset_of, size_of};

/// What these routines call. They lie below all of it, so [`install`] is told once where it is.
#[repr(C)]
pub struct Upcalls {
    /// A thread has left the cache; it goes on where the context says when this returns.
    pub dispatch: extern "C" fn(&mut ThreadContext),
    /// A new thread begins, on its own engine stack.
    pub thread_start: extern "C" fn(&mut ThreadContext),
    /// The kernel has brought a signal.
    pub signal: extern "C" fn(i32, &mut SigInfo, &mut UContext),
}

static mut UPCALLS: Upcalls = Upcalls {
    dispatch: too_early,
    thread_start: too_early,
    signal: signal_too_early,
};

extern "C" fn too_early(_: &mut ThreadContext) {
    crate::fatal_bug("a thread before the engine is set up");
}

extern "C" fn signal_too_early(_: i32, _: &mut SigInfo, _: &mut UContext) {
    crate::fatal_bug("a signal before the engine is set up");
}

/// Called once, by the first thread, before it enters the cache and before there is a signal
/// handler.
pub fn install(upcalls: Upcalls) {
    // SAFETY: the only thread, and nothing has been called by it yet.
    unsafe { UPCALLS = upcalls };
}

macro_rules! save_xmm { () => { concat!(
 "movups gs:[{xmm}+0x00], xmm0\n movups gs:[{xmm}+0x10], xmm1\n movups gs:[{xmm}+0x20], xmm2\n movups gs:[{xmm}+0x30], xmm3\n",
 "movups gs:[{xmm}+0x40], xmm4\n movups gs:[{xmm}+0x50], xmm5\n movups gs:[{xmm}+0x60], xmm6\n movups gs:[{xmm}+0x70], xmm7\n",
 "movups gs:[{xmm}+0x80], xmm8\n movups gs:[{xmm}+0x90], xmm9\n movups gs:[{xmm}+0xa0], xmm10\n movups gs:[{xmm}+0xb0], xmm11\n",
 "movups gs:[{xmm}+0xc0], xmm12\n movups gs:[{xmm}+0xd0], xmm13\n movups gs:[{xmm}+0xe0], xmm14\n movups gs:[{xmm}+0xf0], xmm15\n") } }
macro_rules! load_xmm { () => { concat!(
 "movups xmm0, gs:[{xmm}+0x00]\n movups xmm1, gs:[{xmm}+0x10]\n movups xmm2, gs:[{xmm}+0x20]\n movups xmm3, gs:[{xmm}+0x30]\n",
 "movups xmm4, gs:[{xmm}+0x40]\n movups xmm5, gs:[{xmm}+0x50]\n movups xmm6, gs:[{xmm}+0x60]\n movups xmm7, gs:[{xmm}+0x70]\n",
 "movups xmm8, gs:[{xmm}+0x80]\n movups xmm9, gs:[{xmm}+0x90]\n movups xmm10, gs:[{xmm}+0xa0]\n movups xmm11, gs:[{xmm}+0xb0]\n",
 "movups xmm12, gs:[{xmm}+0xc0]\n movups xmm13, gs:[{xmm}+0xd0]\n movups xmm14, gs:[{xmm}+0xe0]\n movups xmm15, gs:[{xmm}+0xf0]\n") } }
macro_rules! load_gpr { () => { concat!(
 "mov rax, gs:[{gpr}+0]\n mov rcx, gs:[{gpr}+8]\n mov rdx, gs:[{gpr}+16]\n mov rbx, gs:[{gpr}+24]\n",
 "mov rbp, gs:[{gpr}+40]\n mov rsi, gs:[{gpr}+48]\n mov rdi, gs:[{gpr}+56]\n mov r8, gs:[{gpr}+64]\n",
 "mov r9, gs:[{gpr}+72]\n mov r10, gs:[{gpr}+80]\n mov r11, gs:[{gpr}+88]\n mov r12, gs:[{gpr}+96]\n",
 "mov r13, gs:[{gpr}+104]\n mov r14, gs:[{gpr}+112]\n mov r15, gs:[{gpr}+120]\n mov rsp, gs:[{gpr}+32]\n") } }

core::arch::global_asm!(
    ".global bo_exit", ".global bo_enter", ".global bo_enter_checked", ".global bo_safepoint", ".global bo_miss", ".global bo_miss_tag",
    ".global bo_fast_begin", ".global bo_fast_end",
    ".p2align 6",
    "bo_exit:",
    "mov gs:[{gpr}+0], rax", "mov gs:[{gpr}+8], rcx", "mov gs:[{gpr}+16], rdx", "mov gs:[{gpr}+24], rbx",
    "mov gs:[{gpr}+32], rsp", "mov gs:[{gpr}+40], rbp", "mov gs:[{gpr}+48], rsi", "mov gs:[{gpr}+56], rdi",
    "mov gs:[{gpr}+64], r8", "mov gs:[{gpr}+72], r9", "mov gs:[{gpr}+80], r10", "mov gs:[{gpr}+88], r11",
    "mov gs:[{gpr}+96], r12", "mov gs:[{gpr}+104], r13", "mov gs:[{gpr}+112], r14", "mov gs:[{gpr}+120], r15",
    "mov rsp, gs:[{stack}]",
    "pushfq", "pop qword ptr gs:[{rflags}]", "cld",
    // A program that sets the alignment-check flag means its own accesses, not ours.
    "test dword ptr gs:[{rflags}], 0x40000", "je 2f",
    "push 0x202", "popfq",
    "2:",
    save_xmm!(),
    "mov rdi, gs:[{self_ptr}]",
    "call [rip + {upcalls} + {up_dispatch}]",
    "bo_enter:",
    load_xmm!(),
    "mov rsp, gs:[{stack}]",
    ".p2align 4",
    "bo_fast_begin:",
    "bo_enter_checked:",
    "cmp qword ptr gs:[{pending}], 0",
    "jne 2f",
    "push qword ptr gs:[{rflags}]", "popfq",
    load_gpr!(),
    "jmp qword ptr gs:[{resume}]",
    "2:",
    "push qword ptr gs:[{rflags}]", "popfq",
    load_gpr!(),
    "bo_safepoint:",
    "int3",
    // ------------------------------------------------------------------ indirect branch missed
    // From a failed tag check: rcx = target - tag, rdx = -tag. BRANCH_RCX and BRANCH_RDX hold the
    // program's.
    ".p2align 4",
    "bo_miss_tag:",
    "not rdx",
    "lea rcx, [rcx + rdx + 1]",
    // From an empty entry: rcx = target.
    "bo_miss:",
    "mov gs:[{target}], rcx",
    "mov gs:[{asm}+0], rax",
    "lahf", "seto al", "mov gs:[{asm}+8], rax",
    "mov rax, 0x9E3779B97F4A7C15", "imul rax, rcx",
    "mov rdx, rax",
    // The shift before the table: a concurrent growth publishes them the other way round.
    "mov rcx, [rip + {lookup} + {lookup_shift}]",
    "shr rdx, cl",
    "mov rcx, [rip + {lookup} + {lookup_entries}]",
    "mov rax, gs:[{target}]",
    "shl rdx, {lookup_entry_shift}",
    "add rcx, rdx",
    "cmp [rcx], rax", "je 3f",
    "add rcx, {lookup_entry}", "cmp [rcx], rax", "je 3f",
    "add rcx, {lookup_entry}", "cmp [rcx], rax", "je 3f",
    "add rcx, {lookup_entry}", "cmp [rcx], rax", "je 3f",
    "4:",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "mov rcx, gs:[{s_rcx}]", "mov rdx, gs:[{s_rdx}]",
    "mov qword ptr gs:[{exit_arg}], {exit_indirect}",
    "jmp bo_exit",
    "3:",
    "mov rdx, [rcx + {lookup_prefix}]",
    "test rdx, rdx", "je 4b",
    "rorx ecx, eax, {ibtc_shift}", "movzx ecx, cx",
    "mov gs:[rcx*8 + {ibtc}], rdx",
    "mov gs:[{resume}], rdx",
    "mov rcx, rax",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "jmp qword ptr gs:[{resume}]",

    // ------------------------------------------------------------------ a further event of a block
    // As bo_log, where an earlier site of the same block has logged and the record has no value;
    // falls through at its end, with the program's rcx still in its slot. Never run here: sites
    // have copies of it, so that nothing but direct jumps are between a program's instructions. It
    // must not depend on where it is.
    //
    // Stores are dear: they wait behind the program's, which may miss all caches, and the processor
    // holds only so many.
    ".global bo_log_inline_begin", ".global bo_log_inline_end", ".p2align 4",
    "bo_log_inline_begin:",
    "mov gs:[{asm}+0], rax",
    "lahf", "seto al", "mov gs:[{asm}+8], rax",
    "mov gs:[{asm}+16], rdx", "mov gs:[{asm}+24], rbx",
    // -- an earlier site of the same block logged since the block was entered: same activation,
    // same context
    "mov rdx, [rcx + {site_token}]",
    "cmp rdx, gs:[{last_token}]", "jne 54f",
    "movabs rbx, {control}",
    // -- does it go on where this thread's last record ends?
    "mov rax, [rbx + {ring_write}]",
    "cmp rax, [rbx + {ring_tail}]", "je 51f",
    "movzx edx, byte ptr [rax]",
    "lea rdx, [rax + rdx*8]",
    "cmp rdx, [rbx + {ring_tail}]", "jne 51f",
    "mov edx, [rcx + {site_join}]",
    "cmp edx, [rax + {head_site}]", "jne 51f",
    "mov edx, [rax]",
    "xor edx, gs:[{thread_bits}]",
    "shr edx, 16", "jne 51f",
    "mov edx, gs:[{last_context}]",
    "cmp edx, [rax + {head_context}]", "jne 51f",
    "mov edx, [rax + {head_size}]",
    "add rdx, [rax + {head_addr}]",
    "cmp rdx, gs:[{site_addr}]", "jne 51f",
    "mov edx, [rax + {head_size}]",
    "add edx, [rcx + {site_size}]",
    "cmp edx, {join_max}", "ja 51f",
    "mov [rax + {head_size}], edx",
    "jmp 52f",
    // -- room in the ring?
    "51:",
    "mov rax, [rbx + {ring_tail}]",
    "mov edx, [rbx + {ring_read}]",
    "sub edx, eax", "dec edx",
    "and edx, {ring_mask}",
    "cmp edx, {ring_room}", "jb 54f",
    // -- the record
    "and eax, {ring_mask}",
    "movabs rdx, {ring}",
    "add rax, rdx",
    "mov rdx, [rcx + {site_head}]",
    "or rdx, gs:[{thread_bits}]",
    "mov [rax], rdx",
    "mov edx, [rcx + {site_size}]",
    "shl rdx, 32",
    "or rdx, gs:[{last_context}]",
    "mov [rax + {head_context}], rdx",
    "mov rdx, gs:[{site_addr}]",
    "mov [rax + {head_addr}], rdx",
    // The tail first: whoever is killed in between leaves a whole record for the next to publish.
    "lea rdx, [rax + {head_len}]",
    "mov [rbx + {ring_tail}], rdx",
    "cmp dword ptr [rcx + {site_join}], 0", "je 53f",
    // It may be added to: only what is before it is published.
    "mov [rbx + {ring_write}], rax",
    "jmp 52f",
    "53:",
    "mov [rbx + {ring_write}], rdx",
    "52:",
    "cmp dword ptr [rbx + {ring_shared}], 0", "je 55f",
    "mov dword ptr [rbx + {ring_lock}], 0",
    "55:",
    "movzx edx, byte ptr [rcx + {site_unfenced}]",
    "cmp edx, 2", "je 56f",
    "mov gs:[{unfenced}], rdx",
    "56:",
    "mov rdx, gs:[{asm}+16]", "mov rbx, gs:[{asm}+24]",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "jmp 57f",
    // -- everything back, and the long way
    "54:",
    "mov rdx, gs:[{asm}+16]", "mov rbx, gs:[{asm}+24]",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "jmp qword ptr gs:[{entry_log}]",
    "57:",
    "bo_log_inline_end:",

    // ------------------------------------------------------------------ a tracked access happened
    // rcx = site; the program's rcx is in SITE_RCX; site_addr is set, and site_alias if the record
    // has the value; everything else is the program's. Appends the record and goes on at the site's
    // continuation.
    ".global bo_log", ".p2align 6",
    "bo_log:",
    "mov gs:[{asm}+0], rax",
    "lahf", "seto al", "mov gs:[{asm}+8], rax",
    "mov gs:[{asm}+16], rdx", "mov gs:[{asm}+24], rbx",
    "mov gs:[{asm}+32], rsi", "mov gs:[{asm}+40], rdi",
    // Between here and bo_log_known only the program's stack is read that could fault: see `fixup`.
    ".global bo_log_context", "bo_log_context:",
    // -- an earlier site of the same block logged since the block was entered: same activation,
    // same context
    "mov rdx, [rcx + {site_token}]",
    "cmp rdx, gs:[{last_token}]", "jne 4f",
    "mov esi, gs:[{last_context}]",
    "jmp 30f",
    "4:",
    // -- calling context: same site, same frame, and every return address still in its slot?
    "movsxd rdi, dword ptr [rcx + {site_cfa}]",
    "test byte ptr [rcx + {site_flags}], {flag_rbp}",
    "jne 5f",
    "add rdi, rsp",
    "6:",
    "mov esi, [rcx + {site_id}]",   // not the site's address: code may be translated more than once
    "shl rsi, 32",
    "mov edx, edi",
    "or rsi, rdx",                  // the key
    // -- the entry that this site used last
    "mov rbx, [rcx + {site_hint}]",
    "cmp [rbx], rsi", "jne 40f",
    // The chain: context, length, (slot, value) pairs in groups of four, a zero slot ends it.
    // Groups, because the end of a loop over single pairs is mispredicted nearly every time.
    "mov rdx, [rbx + {entry_chain}]",
    "41:",
    "mov rax, [rdx + {pairs}]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 8]", "jne 40f",
    "mov rax, [rdx + {pairs} + 16]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 24]", "jne 40f",
    "mov rax, [rdx + {pairs} + 32]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 40]", "jne 40f",
    "mov rax, [rdx + {pairs} + 48]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 56]", "jne 40f",
    "add rdx, {group_len}",
    "cmp qword ptr [rdx + {pairs}], 0", "jne 41b",
    "jmp 42f",
    "5:", "add rdi, rbp", "jmp 6b",
    // -- its set in the thread's cache
    "40:",
    "mov rdx, [rdi - 8]",
    "mov eax, [rcx + {site_id}]",
    "imul eax, eax, 0x9E3779B1",
    "lea edx, [rdx*8]",
    "xor eax, edx",
    "xor eax, edi",
    "imul eax, eax, 0x85EBCA6B", "shr eax, {cache_shift}",
    "shl eax, {set_shift}",
    "mov rbx, gs:[{context_cache}]",
    "add rbx, rax",
    "lea rdi, [rbx + {set_len}]",
    "jmp 8f",
    "9:",                           // next way
    "add rbx, {entry_len}", "cmp rbx, rdi", "je 90f",
    "8:",
    "cmp [rbx], rsi", "jne 9b",
    "mov rdx, [rbx + {entry_chain}]",
    "7:",
    "mov rax, [rdx + {pairs}]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 8]", "jne 9b",
    "mov rax, [rdx + {pairs} + 16]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 24]", "jne 9b",
    "mov rax, [rdx + {pairs} + 32]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 40]", "jne 9b",
    "mov rax, [rdx + {pairs} + 48]", "mov rax, [rax]", "cmp rax, [rdx + {pairs} + 56]", "jne 9b",
    "add rdx, {group_len}",
    "cmp qword ptr [rdx + {pairs}], 0", "jne 7b",
    "test byte ptr [rcx + {site_flags}], {flag_hint}", "je 42f",
    "mov [rcx + {site_hint}], rbx",
    "42:",
    "mov rdx, [rbx + {entry_chain}]",
    "mov esi, [rdx]",             // context number
    "mov rdx, [rcx + {site_token}]",
    "mov gs:[{last_token}], rdx",
    "mov gs:[{last_context}], rsi",
    ".global bo_log_known", "bo_log_known:",
    "30:",
    "movabs rbx, {control}",
    // -- does it go on where this thread's last record ends?
    "mov rax, [rbx + {ring_write}]",
    "cmp rax, [rbx + {ring_tail}]", "je 31f",
    "movzx edx, byte ptr [rax]",
    "lea rdx, [rax + rdx*8]",
    "cmp rdx, [rbx + {ring_tail}]", "jne 31f",
    "mov edx, [rcx + {site_join}]",
    "cmp edx, [rax + {head_site}]", "jne 31f",
    "mov edx, [rax]",
    "xor edx, gs:[{thread_bits}]",
    "shr edx, 16", "jne 31f",
    "cmp [rax + {head_context}], esi", "jne 31f",
    "mov edi, [rax + {head_size}]",
    "mov edx, edi",
    "add rdi, [rax + {head_addr}]",
    "cmp rdi, gs:[{site_addr}]", "jne 31f",
    "add edx, [rcx + {site_size}]",
    "cmp edx, {join_max}", "ja 31f",
    "mov [rax + {head_size}], edx",
    "jmp 23f",
    // -- room in the ring?
    "31:",
    "mov rax, [rbx + {ring_tail}]",
    "mov edx, [rbx + {ring_read}]",
    "sub edx, eax", "dec edx",
    "and edx, {ring_mask}",
    "cmp edx, {ring_room}", "jb 90f",
    // -- the record
    "and eax, {ring_mask}",
    "movabs rdx, {ring}",
    "add rax, rdx",
    "movzx edi, byte ptr [rcx + {site_head}]",
    "lea rdi, [rax + rdi*8]",
    "mov rdx, [rcx + {site_head}]",
    "or rdx, gs:[{thread_bits}]",
    "mov [rax], rdx",
    "mov [rax + {head_context}], esi",
    "mov edx, [rcx + {site_size}]",
    "mov [rax + {head_size}], edx",
    "mov rsi, gs:[{site_addr}]",
    "mov [rax + {head_addr}], rsi",
    "test byte ptr [rcx + {site_flags}], {flag_value}",
    "je 20f",
    "mov rsi, gs:[{site_alias}]",
    "add rax, {head_len}",
    "sub edx, 8", "jb 12f",
    "11:",
    "mov rbx, [rsi]", "mov [rax], rbx",
    "add rsi, 8", "add rax, 8",
    "sub edx, 8", "jae 11b",
    "12:",
    "add edx, 8", "je 19f",
    // 1..7 bytes
    "cmp edx, 4", "jne 13f",
    "mov ebx, [rsi]", "mov [rax], rbx", "jmp 19f",
    "13:",
    "cmp edx, 1", "jne 14f",
    "movzx ebx, byte ptr [rsi]", "mov [rax], rbx", "jmp 19f",
    "14:",
    "cmp edx, 2", "jne 15f",
    "movzx ebx, word ptr [rsi]", "mov [rax], rbx", "jmp 19f",
    "15:", // odd sizes, byte by byte from the top
    "xor ebx, ebx",
    "16:",
    "shl rbx, 8",
    "dec edx",
    "mov bl, [rsi + rdx]",
    "test edx, edx", "jne 16b",
    "mov [rax], rbx",
    "19:",
    "movabs rbx, {control}",
    "20:",
    "cmp dword ptr [rcx + {site_join}], 0", "jne 22f",
    // The tail first: whoever is killed in between leaves a whole record for the next to publish.
    "mov [rbx + {ring_tail}], rdi",
    "mov [rbx + {ring_write}], rdi",
    "23:",
    "mov dword ptr [rbx + {ring_lock}], 0",
    "movzx edx, byte ptr [rcx + {site_unfenced}]",
    "cmp edx, 2", "je 21f",
    "mov gs:[{unfenced}], rdx",
    "21:",
    "mov rcx, [rcx + {site_next}]",
    "mov gs:[{resume}], rcx",
    "mov rdx, gs:[{asm}+16]", "mov rbx, gs:[{asm}+24]", "mov rsi, gs:[{asm}+32]", "mov rdi, gs:[{asm}+40]",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "mov rcx, gs:[{site_rcx}]",
    "jmp qword ptr gs:[{resume}]",
    // -- it may be added to: only what is before it is published
    "22:",
    "movzx eax, byte ptr [rcx + {site_head}]",
    "shl eax, 3",
    "neg rax",
    "add rax, rdi",
    "mov [rbx + {ring_tail}], rdi",
    "mov [rbx + {ring_write}], rax",
    "jmp 23b",
    // -- slow: everything back as the program has it, then let engine code append
    ".global bo_log_slow", "bo_log_slow:",
    "90:",
    "mov rdx, rcx", "shl rdx, 8", "or rdx, {exit_log}",
    "98:",
    "mov gs:[{exit_arg}], rdx",
    "mov rdx, gs:[{asm}+16]", "mov rbx, gs:[{asm}+24]", "mov rsi, gs:[{asm}+32]", "mov rdi, gs:[{asm}+40]",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "mov rcx, gs:[{site_rcx}]",
    "jmp bo_exit",

    // ------------------------------------------------------------------ a client request
    // As bo_log, but rcx = site of the request; the program's rax points at the request block.
    // Requests that are only recorded are appended here; others leave.
    ".global bo_request", ".p2align 4",
    "bo_request:",
    "mov gs:[{asm}+0], rax",
    "mov gs:[{site_alias}], rax",
    "lahf", "seto al", "mov gs:[{asm}+8], rax",
    "mov gs:[{asm}+16], rdx", "mov gs:[{asm}+24], rbx", "mov gs:[{asm}+32], rsi", "mov gs:[{asm}+40], rdi",
    "mov rax, gs:[{asm}+0]",
    ".global bo_request_read", "bo_request_read:",
    "mov rdx, [rax]",
    "sub rdx, {pmemcheck}",
    "cmp rdx, 31", "ja 91f",
    "mov eax, {plain_requests}",
    "bt eax, edx", "jnc 91f",
    "mov qword ptr gs:[{asm}+16], 0", // the answer, in rdx
    "mov qword ptr gs:[{site_addr}], 0",
    // -- how deep in transactions?
    "cmp edx, {start_tx}", "jne 95f",
    "inc qword ptr gs:[{tx_depth}]",
    "jmp 94f",
    "95:",
    "cmp edx, {end_tx}", "jne 96f",
    "sub qword ptr gs:[{tx_depth}], 1",
    "adc qword ptr gs:[{tx_depth}], 0",
    "jmp 94f",
    // -- does it change anything?
    "96:",
    "mov eax, gs:[{optional}]",
    "bt eax, edx", "jnc 94f",
    "mov rbx, gs:[{asm}+0]",
    "mov rdi, [rbx + {request_start}]",
    "cmp edx, {do_flush}", "je 97f",
    "rorx rax, rdi, {granule_shift}", "movzx eax, ax",
    "cmp qword ptr gs:[rax*8 + {granules}], 0", "je 21b",
    "cmp edx, {set_clean}", "je 94f",
    "cmp qword ptr gs:[{tx_depth}], 0", "je 21b",
    "sub rdi, [rip + {unlogged} + {unlogged_start}]",
    "cmp rdi, [rip + {unlogged} + {unlogged_len}]", "jb 21b",
    "jmp 94f",
    "97:", // exactly what this thread's last record stores past the cache?
    "movabs rax, {control}",
    "cmp dword ptr [rax + {ring_shared}], 0", "jne 94f",
    "mov rsi, rdi",
    "mov rdi, [rax + {ring_write}]",
    "mov rax, [rax + {ring_tail}]",
    "sub rax, rdi",
    "cmp rax, {head_len}", "jne 94f",
    "mov rax, rdi",
    "cmp byte ptr [rax + {head_kind}], {nt_store}", "jne 94f",
    "cmp rsi, [rax + {head_addr}]", "jne 94f",
    "mov edi, [rax + {head_size}]",
    "cmp rdi, [rbx + {request_len}]", "je 21b",
    "94:",
    // -- alone, or under the lock, which bo_log gives back
    "movabs rbx, {control}",
    "cmp dword ptr [rbx + {ring_shared}], 0", "je 93f",
    "mov esi, gs:[{thread}]",
    "mov edi, 64",
    "92:",
    "xor eax, eax",
    "lock cmpxchg [rbx + {ring_lock}], esi",
    "je 93f",
    // Looking on takes the line away from nobody.
    "88:",
    "pause",
    "dec edi", "je 87f",
    "cmp dword ptr [rbx + {ring_lock}], 0",
    "je 92b",
    "jmp 88b",
    "87:",
    "mov rdx, rcx", "shl rdx, 8", "or rdx, {exit_log_waiting}",
    "jmp 98b",
    "93:",
    "mov eax, gs:[{context_free}]",
    "bt eax, edx", "jnc bo_log_context",
    "xor esi, esi",
    "jmp bo_log_known",
    ".global bo_request_slow", "bo_request_slow:",
    "91:",
    "mov qword ptr gs:[{exit_arg}], {exit_request}",
    "mov rdx, gs:[{asm}+16]", "mov rbx, gs:[{asm}+24]", "mov rsi, gs:[{asm}+32]", "mov rdi, gs:[{asm}+40]",
    "mov rax, gs:[{asm}+8]", "add al, 0x7f", "sahf",
    "mov rax, gs:[{asm}+0]",
    "mov rcx, gs:[{site_rcx}]",
    "jmp bo_exit",
    "bo_fast_end:",

    // ------------------------------------------------------------------ system calls of the program
    // rdi = [u64; 7] (number, arguments). Returns the result in rax, rdx = 0; or rdx = 1 if a
    // signal came first and the call was not made.
    ".global bo_syscall", ".global bo_syscall_check", ".global bo_syscall_insn", ".global bo_syscall_abort",
    "bo_syscall:",
    "push rbx",
    "mov rbx, rdi",
    "mov rax, [rbx]", "mov rdi, [rbx+8]", "mov rsi, [rbx+16]", "mov rdx, [rbx+24]",
    "mov r10, [rbx+32]", "mov r8, [rbx+40]", "mov r9, [rbx+48]",
    "bo_syscall_check:",
    "cmp qword ptr gs:[{pending}], 0",
    "jne bo_syscall_abort",
    "bo_syscall_insn:",
    "syscall",
    "xor edx, edx",
    "pop rbx",
    "ret",
    "bo_syscall_abort:",
    "xor eax, eax",
    "mov edx, 1",
    "pop rbx",
    "ret",

    // ------------------------------------------------------------------ thread creation
    // rdi = flags, rsi = the child's context, rdx = ptid, rcx = ctid, r8 = tls. The child starts on
    // its own engine stack in bo_thread_start with nothing but its context.
    ".global bo_clone",
    "bo_clone:",
    "mov r10, rcx",
    "mov r9, rsi",                   // the child's context survives in a register
    "mov rsi, [rsi + {stack}]",
    "mov eax, {clone}",
    "syscall",
    "test rax, rax",
    "je 2f",
    "ret",
    "2:",
    "mov rdi, r9",
    "xor ebp, ebp",
    "mov rsp, [rdi + {stack}]",
    "call [rip + {upcalls} + {up_thread_start}]",
    "jmp bo_enter",

    // rdi = address of the context's in_use word: frees the context and ends the thread, using no
    // stack in between.
    ".global bo_thread_exit",
    "bo_thread_exit:",
    "mov edx, esi",
    "mov qword ptr [rdi], 0",
    "mov edi, edx",
    "mov eax, {exit}",
    "syscall",
    "ud2",

    // rdi = rsp of a complete rt_sigframe (behind pretcode): the kernel restores everything from
    // it.
    ".global bo_sigreturn",
    "bo_sigreturn:",
    "mov rsp, rdi",
    "mov eax, {sigreturn}",
    "syscall",
    "ud2",
    ".global bo_restorer",
    "bo_restorer:",
    "mov eax, {sigreturn}",
    "syscall",
    "ud2",

    // ------------------------------------------------------------------ the kernel calls this
    ".global bo_signal_entry",
    "bo_signal_entry:",
    "push 0x202", "popfq", // neither direction nor alignment check of the program
    "sub rsp, 8",
    "call [rip + {upcalls} + {up_signal}]",
    "add rsp, 8",
    "ret",

    gpr = const off::GPR, stack = const off::ENGINE_STACK, rflags = const off::RFLAGS, xmm = const off::XMM,
    self_ptr = const off::SELF, pending = const off::PENDING_FLAG, resume = const off::RESUME,
    target = const off::TARGET, exit_arg = const off::EXIT_ARG, ibtc = const IBTC_OFFSET, ibtc_shift = const crate::context::IBTC_SHIFT,
    asm = const off::spill(slot::ASM), s_rcx = const off::spill(slot::BRANCH_RCX), s_rdx = const off::spill(slot::BRANCH_RDX),
    site_rcx = const off::spill(slot::SITE_RCX),
    site_addr = const off::SITE_ADDR, site_alias = const off::SITE_ALIAS, thread_bits = const off::THREAD_BITS,
    unfenced = const off::UNFENCED, context_cache = const off::CONTEXT_CACHE,
    cache_shift = const 32 - SETS_SHIFT,
    site_cfa = const offset_of!(crate::pm::site::Site, cfa_offset),
    site_flags = const offset_of!(crate::pm::site::Site, flags),
    site_id = const offset_of!(crate::pm::site::Site, id),
    site_head = const offset_of!(crate::pm::site::Site, head),
    site_size = const offset_of!(crate::pm::site::Site, size),
    site_unfenced = const offset_of!(crate::pm::site::Site, unfenced),
    site_token = const offset_of!(crate::pm::site::Site, token),
    last_token = const off::LAST_TOKEN, last_context = const off::LAST_CONTEXT,
    site_next = const offset_of!(crate::pm::site::Site, next_code),
    flag_rbp = const crate::pm::site::FLAG_CFA_FROM_RBP, flag_value = const crate::pm::site::FLAG_VALUE,
    flag_hint = const crate::pm::site::FLAG_HINT, site_hint = const offset_of!(crate::pm::site::Site, hint),
    control = const CONTROL_BASE, ring = const RING_BASE, ring_mask = const RING_LEN - 1,
    ring_write = const offset_of!(Control, ring_write), ring_read = const offset_of!(Control, ring_read),
    ring_lock = const offset_of!(Control, ring_lock),
    ring_shared = const offset_of!(Control, ring_shared), ring_tail = const offset_of!(Control, ring_tail),
    ring_room = const brownout_abi::RECORD_MAX + brownout_abi::RING_RESERVE,
    join_max = const JOIN_MAX,
    site_join = const offset_of!(crate::pm::site::Site, join),
    entry_log = const off::ENTRY_LOG, tx_depth = const off::TX_DEPTH, optional = const off::OPTIONAL_REQUESTS,
    start_tx = const brownout_abi::pmemcheck::START_TX, end_tx = const brownout_abi::pmemcheck::END_TX,
    do_flush = const brownout_abi::pmemcheck::DO_FLUSH, set_clean = const brownout_abi::pmemcheck::SET_CLEAN,
    granules = const GRANULES_OFFSET, granule_shift = const crate::context::GRANULE_SHIFT,
    nt_store = const brownout_abi::kind::NT_STORE,
    thread = const offset_of!(ThreadContext, thread), context_free = const offset_of!(ThreadContext, context_free_requests),
    exit_log = const crate::exit::LOG, exit_log_waiting = const crate::exit::LOG_WAITING,
    exit_request = const crate::exit::REQUEST,
    pmemcheck = const brownout_abi::PMEMCHECK_BASE, plain_requests = const crate::requests::PLAIN,
    unlogged = sym crate::requests::UNLOGGED,
    lookup = sym crate::lookup::LOOKUP,
    lookup_entries = const offset_of!(LookupTable, entries), lookup_shift = const offset_of!(LookupTable, shift),
    lookup_prefix = const offset_of!(LookupEntry, prefix), lookup_entry = const size_of::<LookupEntry>(),
    lookup_entry_shift = const size_of::<LookupEntry>().trailing_zeros(),
    exit_indirect = const crate::exit::INDIRECT,
    head_kind = const offset_of!(RecordHead, kind), head_site = const offset_of!(RecordHead, site),
    head_context = const offset_of!(RecordHead, ctx), head_size = const offset_of!(RecordHead, size),
    head_addr = const offset_of!(RecordHead, addr), head_len = const size_of::<RecordHead>(),
    entry_chain = const offset_of!(Entry, chain), entry_len = const size_of::<Entry>(),
    set_len = const WAYS * size_of::<Entry>(), set_shift = const (WAYS * size_of::<Entry>()).trailing_zeros(),
    pairs = const PAIRS_OFFSET, group_len = const GROUP * PAIR_LEN,
    request_start = const 8, request_len = const 16, // what every request about a range has behind its code
    unlogged_start = const offset_of!(Unlogged, start), unlogged_len = const offset_of!(Unlogged, len),
    clone = const nr::CLONE, exit = const nr::EXIT, sigreturn = const nr::RT_SIGRETURN,
    upcalls = sym UPCALLS,
    up_dispatch = const offset_of!(Upcalls, dispatch),
    up_thread_start = const offset_of!(Upcalls, thread_start),
    up_signal = const offset_of!(Upcalls, signal),
);

unsafe extern "C" {
    pub fn bo_exit();
    pub fn bo_enter() -> !;
    pub fn bo_safepoint();
    pub fn bo_miss();
    pub fn bo_miss_tag();
    pub fn bo_log();
    pub fn bo_request();
    pub fn bo_request_read();
    pub fn bo_request_slow();
    fn bo_log_inline_begin();
    fn bo_log_inline_end();
    fn bo_log_context();
    fn bo_log_known();
    pub fn bo_log_slow();
    pub fn bo_fast_begin();
    pub fn bo_fast_end();
    pub fn bo_syscall_check();
    pub fn bo_syscall_insn();
    pub fn bo_syscall_abort();
    pub fn bo_clone(flags: u64, child: u64, ptid: u64, ctid: u64, tls: u64) -> i64;
    pub fn bo_thread_exit(in_use: *const u64, code: u64) -> !;
    pub fn bo_sigreturn(frame: u64) -> !;
    pub fn bo_restorer();
    pub fn bo_signal_entry();
}

/// What sites copy: see `bo_log_inline_begin`.
pub fn log_inline() -> &'static [u8] {
    let begin = bo_log_inline_begin as *const () as usize;
    let end = bo_log_inline_end as *const () as usize;
    // SAFETY: code of this image, between two labels.
    unsafe { core::slice::from_raw_parts(begin as *const u8, end - begin) }
}

/// Where engine code that faulted at `rip` on program memory goes on.
pub fn fixup(rip: CacheAddr) -> Option<CacheAddr> {
    let rip = rip.get();
    let verifying = bo_log_context as *const () as u64..bo_log_known as *const () as u64;
    if verifying.contains(&rip) {
        return Some(CacheAddr::new(bo_log_slow as *const () as u64));
    }
    let table: [(u64, u64); 2] = [
        (
            bo_request_read as *const () as usize as u64,
            bo_request_slow as *const () as usize as u64,
        ),
        (
            crate::pm::bo_verify_read as *const () as usize as u64,
            crate::pm::bo_verify_no as *const () as usize as u64,
        ),
    ];
    let known = table.iter().find(|f| f.0 == rip).map(|f| f.1);
    known
        .or_else(|| crate::copy::fixup(rip))
        .map(CacheAddr::new)
}

/// Result of [`program_syscall`].
pub enum Outcome {
    Done(i64),
    /// A signal is to be delivered first; the call was not made.
    Interrupted,
}

/// Makes a system call for the program; a signal that arrives before it wins.
///
/// # Safety
/// The arguments are the program's, checked or rewritten so that the engine's memory stays intact.
pub unsafe fn program_syscall(call: &[u64; 7]) -> Outcome {
    let (ret, interrupted): (i64, u64);
    // SAFETY: `bo_syscall` follows the C ABI; the rest is the caller's promise.
    unsafe {
        core::arch::asm!("call bo_syscall", in("rdi") call, lateout("rax") ret, lateout("rdx") interrupted,
            clobber_abi("C"));
    }
    if interrupted != 0 {
        Outcome::Interrupted
    } else {
        Outcome::Done(ret)
    }
}

/// Bytes that one record of joined stores covers at most: the reader should not wait for ever.
const JOIN_MAX: u32 = 1 << 20;

pub fn set_entry_points(ctx: &mut ThreadContext) {
    ctx.entry_exit = CacheAddr::new(bo_exit as *const () as usize as u64);
    ctx.entry_miss = CacheAddr::new(bo_miss as *const () as usize as u64);
    ctx.entry_miss_tag = CacheAddr::new(bo_miss_tag as *const () as usize as u64);
    ctx.entry_log = CacheAddr::new(bo_log as *const () as usize as u64);
    ctx.entry_request = CacheAddr::new(bo_request as *const () as usize as u64);
    ctx.context_free_requests = match crate::mode().values {
        true => 0,
        false => crate::requests::BOOKKEEPING as u64,
    };
    ctx.optional_requests = match crate::mode().lean {
        true => crate::requests::OPTIONAL as u64,
        false => 0,
    };
}

/// Whether `addr` lies in routines that may be single-stepped.
pub fn is_fast(addr: CacheAddr) -> bool {
    let addr = addr.get();
    addr >= bo_fast_begin as *const () as usize as u64
        && addr < bo_fast_end as *const () as usize as u64
}

const _: () = assert!(GRANULES_OFFSET > IBTC_OFFSET);
// `bo_log` has the comparisons of a group written out, and those of `bo_miss` with them.
const _: () = assert!(GROUP == 4 && crate::lookup::PROBES == 4);
