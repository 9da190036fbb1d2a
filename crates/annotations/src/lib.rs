//! Annotations: what a Rust program can tell Brownout, and what it can ask it to check.
//!
//! **Purpose.** The same as `include/brownout.h`, for Rust: assertions (this range is persistent
//! now, this one persists before that one), transactions of one's own undo log, and the scope of
//! what is judged.
//!
//! **Guarantee.** A request is five instructions that do nothing when the program runs by itself,
//! so annotations may stay in production code. Natively every request answers its default: `false`,
//! 0 or `None`. With the feature `disable`, and on other architectures, every function is empty.
//! Requests never read or write through the pointers that they are given; that is why they are
//! safe. The compiler does not move accesses to memory over a request.
//!
//! An assertion never panics. A failed one is a finding in Brownout's report, with the place of the
//! call.
//!
//! **Source.** Valgrind's client request: the address of six words (code, five arguments) in `rax`,
//! the default answer in `rdx`. The numbers stand in [`code`]. Under Valgrind itself they are
//! unknown and answer their default, too.
//!
//! **Ranges.** Most functions come in two forms: one takes a reference and means all bytes of that
//! value, the other (`…_range`) an address and a length in bytes, for memory that other threads or
//! devices write to while you annotate it. A reference to something that merely *points* to the
//! data (`&Vec<T>`, `&Box<T>`) names the pointer; write `&vector[..]` or `&*boxed`.
//!
//! ```
//! use brownout_annotations as brownout;
//!
//! # fn persist<T>(_: &T) {}
//! struct Slot {
//!     value: u64,
//!     valid: u64,
//! }
//!
//! fn publish(slot: &mut Slot, value: u64) {
//!     let section = brownout::Section::begin();
//!     slot.value = value;
//!     persist(&slot.value); // write back, fence
//!     slot.valid = 1;
//!     brownout::is_ordered_before(&slot.value, &slot.valid);
//!     persist(&slot.valid);
//!     drop(section); // all that was stored since `begin` must be persistent
//! }
//!
//! publish(&mut Slot { value: 0, valid: 0 }, 7);
//! assert_eq!(brownout::checkpoint(), 0, "checks failed so far; natively always 0");
//! ```
#![no_std]

use core::ffi::CStr;
use core::marker::PhantomData;
use core::mem::size_of_val;
use core::ptr::{addr_of, addr_of_mut};

/// Numbers of the requests, relative to [`code::BASE`]. They never change.
///
/// Use the functions of this crate; these are for bindings to other languages. Their meanings are
/// those of the functions of the same name.
pub mod code {
    #![allow(missing_docs)]

    /// What is added to the other numbers ('B', 'O').
    pub const BASE: u64 = 0x424f_0000;
    /// What the request [`RUNNING`] answers under a tool that knows all of the others.
    pub const INTERFACE: u64 = 1;

    pub const RUNNING: u32 = 0x00;
    pub const START: u32 = 0x01;
    pub const STOP: u32 = 0x02;
    pub const EXCLUDE: u32 = 0x03;
    pub const INCLUDE: u32 = 0x04;
    pub const IS_PERSISTED: u32 = 0x05;
    pub const IS_ORDERED_BEFORE: u32 = 0x06;
    pub const TX_BEGIN: u32 = 0x07;
    pub const TX_END: u32 = 0x08;
    pub const TX_ADD: u32 = 0x09;
    pub const TX_ONLY: u32 = 0x0a;
    pub const SECTION_BEGIN: u32 = 0x0b;
    pub const SECTION_END: u32 = 0x0c;
    pub const CHECKPOINT: u32 = 0x0d;
    pub const OFENCE: u32 = 0x0e;
    pub const DFENCE: u32 = 0x0f;
    pub const STORE: u32 = 0x10;
    pub const FLUSH: u32 = 0x11;
    pub const FENCE: u32 = 0x12;
    pub const TX_ALLOC: u32 = 0x13;
    pub const SET_CLEAN: u32 = 0x14;
    pub const SYNC_VAR: u32 = 0x15;
    // From here on the first argument is a string.
    pub const REGISTER_VARIABLE: u32 = 0x8000;
    pub const UNREGISTER_VARIABLE: u32 = 0x8001;
    pub const FIND_VARIABLE: u32 = 0x8002;
    pub const MARKER: u32 = 0x8003;
    pub const MUST_HOLD: u32 = 0x8004;
}

/// One request with up to four arguments (the fifth is not in use yet). Answers 0 natively.
///
/// Always inlined, so that the program counter of a request lies in the function that annotates.
#[cfg(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(miri),
    not(feature = "disable")
))]
#[inline(always)]
fn request(code: u32, args: [u64; 4]) -> u64 {
    let block = [
        code::BASE + u64::from(code),
        args[0],
        args[1],
        args[2],
        args[3],
        0,
    ];
    let mut answer = 0u64;
    // SAFETY: the rotations make 128 bits and the exchange is of a register with itself, so nothing
    // changes but flags, which `asm!` takes for clobbered. The tool, if there, reads the block and
    // writes `rdx`; two words more for FIND_VARIABLE, whose caller owns them. Without `nomem` the
    // compiler takes memory that others can reach for read and written.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") addr_of!(block),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(not(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(miri),
    not(feature = "disable")
)))]
#[inline(always)]
fn request(_code: u32, _args: [u64; 4]) -> u64 {
    0
}

#[inline(always)]
fn ask(code: u32) -> u64 {
    request(code, [0; 4])
}

/// The address as a number, by a cast that lets others make a pointer of it: the words for it are
/// younger than this crate's Rust.
#[inline(always)]
fn exposed(pointer: *const u8) -> u64 {
    pointer as usize as u64
}

#[inline(always)]
fn range(code: u32, start: *const u8, len: usize) {
    request(code, [exposed(start), len as u64, 0, 0]);
}

#[inline(always)]
fn value<T: ?Sized>(code: u32, value: &T) {
    range(code, addr_of!(*value).cast(), size_of_val(value));
}

// ---------------------------------------------------------------- who watches, and what

/// Whether the program runs under Brownout.
#[inline(always)]
pub fn running() -> bool {
    ask(code::RUNNING) != 0
}

/// From here on the calling thread's accesses are judged: so it is at the beginning, and again
/// after [`stop`].
#[inline(always)]
pub fn start() {
    ask(code::START);
}

/// From here on the calling thread's accesses are followed, but not judged, until [`start`].
#[inline(always)]
pub fn stop() {
    ask(code::STOP);
}

/// Stores to the value are not judged, whoever makes them: it need not survive a crash, or is
/// protected otherwise.
#[inline(always)]
pub fn exclude<T: ?Sized>(excluded: &T) {
    value(code::EXCLUDE, excluded);
}

/// [`exclude`] for `len` bytes.
#[inline(always)]
pub fn exclude_range(start: *const u8, len: usize) {
    range(code::EXCLUDE, start, len);
}

/// Takes [`exclude`] back, for all of it or for a part.
#[inline(always)]
pub fn include<T: ?Sized>(included: &T) {
    value(code::INCLUDE, included);
}

/// [`include`](fn@include) for `len` bytes.
#[inline(always)]
pub fn include_range(start: *const u8, len: usize) {
    range(code::INCLUDE, start, len);
}

// ---------------------------------------------------------------- assertions

/// Asserts that everything stored to the value so far is persistent now: written back, and fenced
/// since.
#[inline(always)]
pub fn is_persisted<T: ?Sized>(stored: &T) {
    value(code::IS_PERSISTED, stored);
}

/// [`is_persisted`] for `len` bytes.
#[inline(always)]
pub fn is_persisted_range(start: *const u8, len: usize) {
    range(code::IS_PERSISTED, start, len);
}

/// Asserts that `first` is persistent before `second` can be: no crash shows what was last stored
/// to `second` without what was last stored to `first`.
#[inline(always)]
pub fn is_ordered_before<T: ?Sized, U: ?Sized>(first: &T, second: &U) {
    is_ordered_before_range(
        (addr_of!(*first).cast(), size_of_val(first)),
        (addr_of!(*second).cast(), size_of_val(second)),
    );
}

/// [`is_ordered_before`] for ranges: start, and length in bytes.
#[inline(always)]
pub fn is_ordered_before_range(first: (*const u8, usize), second: (*const u8, usize)) {
    request(
        code::IS_ORDERED_BEFORE,
        [
            exposed(first.0),
            first.1 as u64,
            exposed(second.0),
            second.1 as u64,
        ],
    );
}

/// A section of the calling thread begins; see [`Section`], which cannot be left open.
#[inline(always)]
pub fn section_begin() {
    ask(code::SECTION_BEGIN);
}

/// It ends. Asserts that everything that the thread stored since its beginning is persistent.
#[inline(always)]
pub fn section_end() {
    ask(code::SECTION_END);
}

/// Waits until everything up to here is checked. Answers the number of failed checks (correctness
/// findings) so far; natively 0.
#[inline(always)]
pub fn checkpoint() -> u64 {
    ask(code::CHECKPOINT)
}

// ---------------------------------------------------------------- transactions

/// A transaction of the calling thread begins; see [`Transaction`], which cannot be left open.
///
/// They nest; the outermost one counts. Asserts, until it ends, that the thread stores only to what
/// it has added or allocated. libpmemobj's transactions are known without annotations.
#[inline(always)]
pub fn tx_begin() {
    ask(code::TX_BEGIN);
}

/// It ends. Asserts, at the outermost level, that everything written in it is persistent.
#[inline(always)]
pub fn tx_end() {
    ask(code::TX_END);
}

/// The value is in the log of the calling thread's transaction, which may store to it from here on.
#[inline(always)]
pub fn tx_add<T: ?Sized>(logged: &T) {
    value(code::TX_ADD, logged);
}

/// [`tx_add`] for `len` bytes.
#[inline(always)]
pub fn tx_add_range(start: *const u8, len: usize) {
    range(code::TX_ADD, start, len);
}

/// The `len` bytes were allocated in the calling thread's transaction, which may store to them and
/// need not log them.
#[inline(always)]
pub fn tx_alloc_range(start: *const u8, len: usize) {
    range(code::TX_ALLOC, start, len);
}

/// Asserts of all threads that from here on they store to the value in transactions only.
#[inline(always)]
pub fn tx_only<T: ?Sized>(transactional: &T) {
    value(code::TX_ONLY, transactional);
}

/// [`tx_only`] for `len` bytes.
#[inline(always)]
pub fn tx_only_range(start: *const u8, len: usize) {
    range(code::TX_ONLY, start, len);
}

/// What belongs to one thread stays there.
type NotSend = PhantomData<*const ()>;

/// An open section of the calling thread. Its end (when dropped, by a panic, too) asserts that
/// everything that the thread stored since [`Section::begin`] is persistent.
#[must_use = "the section ends when this is dropped"]
#[derive(Debug)]
pub struct Section(NotSend);

impl Section {
    /// Begins a section.
    #[inline(always)]
    pub fn begin() -> Self {
        section_begin();
        Section(PhantomData)
    }
}

impl Drop for Section {
    #[inline(always)]
    fn drop(&mut self) {
        section_end();
    }
}

/// An open transaction of the calling thread.
///
/// Until it ends it asserts that the thread stores only to what it has [added](Transaction::add) or
/// [allocated](Transaction::alloc_range); its end (when dropped, by a panic, too) asserts that all
/// of that is persistent.
///
/// ```
/// use brownout_annotations::Transaction;
///
/// let mut counter = 41u64; // in persistent memory, let us say
/// let tx = Transaction::begin();
/// tx.add(&counter); // once its old value is in the log
/// counter += 1;
/// drop(tx); // once the new value is persistent
/// assert_eq!(counter, 42);
/// ```
#[must_use = "the transaction ends when this is dropped"]
#[derive(Debug)]
pub struct Transaction(NotSend);

impl Transaction {
    /// Begins a transaction, or a nested one.
    #[inline(always)]
    pub fn begin() -> Self {
        tx_begin();
        Transaction(PhantomData)
    }

    /// The value is in the log.
    #[inline(always)]
    pub fn add<T: ?Sized>(&self, logged: &T) {
        tx_add(logged);
    }

    /// The `len` bytes are in the log.
    #[inline(always)]
    pub fn add_range(&self, start: *const u8, len: usize) {
        tx_add_range(start, len);
    }

    /// The `len` bytes were allocated in this transaction and need no log.
    #[inline(always)]
    pub fn alloc_range(&self, start: *const u8, len: usize) {
        tx_alloc_range(start, len);
    }
}

impl Drop for Transaction {
    #[inline(always)]
    fn drop(&mut self) {
        tx_end();
    }
}

// ---------------------------------------------------------------- events by hand
//
// Brownout sees the program's own stores, write-backs and fences. These are for what it cannot see,
// such as the work of a device, or for what other hardware would do.

/// Someone else (a device, say) has stored to the `len` bytes. Brownout sees the program's own
/// stores by itself.
#[inline(always)]
pub fn store_range(start: *const u8, len: usize) {
    range(code::STORE, start, len);
}

/// The `len` bytes were written back by someone else, to be complete at the thread's next fence.
#[inline(always)]
pub fn flush_range(start: *const u8, len: usize) {
    range(code::FLUSH, start, len);
}

/// A fence of the calling thread that Brownout does not see: its write-backs are complete.
#[inline(always)]
pub fn fence() {
    ask(code::FENCE);
}

/// HOPS' ordering fence: the calling thread's stores before it persist before those after it. It
/// persists nothing.
#[inline(always)]
pub fn ofence() {
    ask(code::OFENCE);
}

/// HOPS' draining fence: all stores of the calling thread are persistent.
#[inline(always)]
pub fn dfence() {
    ask(code::DFENCE);
}

/// Forgets what is pending on the value: from here on it is as good as persistent.
#[inline(always)]
pub fn set_clean<T: ?Sized>(clean: &T) {
    value(code::SET_CLEAN, clean);
}

/// [`set_clean`] for `len` bytes.
#[inline(always)]
pub fn set_clean_range(start: *const u8, len: usize) {
    range(code::SET_CLEAN, start, len);
}

// ---------------------------------------------------------------- synchronisation

/// The value is a lock, a flag or a version by which threads wait for each other, and it lies in
/// persistent memory.
///
/// A crash may leave whatever it holds at that moment, so recovery must set it back: `initial` is
/// what it then holds, as a number of as many bytes (bytes after the eighth are 0). Say so whenever
/// the program has opened its pool, before threads use it.
#[inline(always)]
pub fn sync_var<T: ?Sized>(word: &T, initial: u64) {
    sync_var_range(addr_of!(*word).cast(), size_of_val(word), initial);
}

/// [`sync_var`] for `len` bytes.
#[inline(always)]
pub fn sync_var_range(start: *const u8, len: usize, initial: u64) {
    request(code::SYNC_VAR, [exposed(start), len as u64, initial, 0]);
}

// ---------------------------------------------------------------- names and markers

#[inline(always)]
fn text(text: &CStr) -> u64 {
    exposed(text.as_ptr().cast())
}

/// Gives the value a name, for reports and for [`find_variable`] in another function.
#[inline(always)]
pub fn register_variable<T: ?Sized>(name: &CStr, named: &T) {
    register_variable_range(name, addr_of!(*named).cast(), size_of_val(named));
}

/// [`register_variable`] for `len` bytes.
#[inline(always)]
pub fn register_variable_range(name: &CStr, start: *const u8, len: usize) {
    request(
        code::REGISTER_VARIABLE,
        [text(name), exposed(start), len as u64, 0],
    );
}

/// Forgets the name.
#[inline(always)]
pub fn unregister_variable(name: &CStr) {
    request(code::UNREGISTER_VARIABLE, [text(name), 0, 0, 0]);
}

/// Start and length in bytes of what has the name; natively always `None`.
#[inline(always)]
pub fn find_variable(name: &CStr) -> Option<(*mut u8, usize)> {
    let mut found = [0u64; 2];
    let found_at = exposed(addr_of_mut!(found).cast());
    let known = request(code::FIND_VARIABLE, [text(name), found_at, 0, 0]) == 1;
    known.then(|| {
        (
            // What the tool has answered is an address that was exposed before.
            found[0] as usize as *mut u8,
            found[1] as usize,
        )
    })
}

/// A marker in the trace: at most 1024 bytes of text.
#[inline(always)]
pub fn marker(marker: &CStr) {
    request(code::MARKER, [text(marker), 0, 0, 0]);
}

// ---------------------------------------------------------------- after a crash

/// Says that the condition must hold after recovery, whatever the crash left. `name` names it in
/// the report of `brownout explore`. The program runs on either way.
#[inline(always)]
pub fn must_hold(name: &CStr, condition: bool) {
    request(code::MUST_HOLD, [text(name), u64::from(condition), 0, 0]);
}
