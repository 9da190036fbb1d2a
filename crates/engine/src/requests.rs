//! Client requests: Valgrind's preamble, as libpmem and libpmemobj contain it.

use brownout_abi::pmemcheck::*;
use core::sync::atomic::AtomicU64;

/// What follows `rol rdi, 3`: `rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx`.
pub const PREAMBLE_REST: [u8; 15] = [
    0x48, 0xC1, 0xC7, 0x0D, 0x48, 0xC1, 0xC7, 0x3D, 0x48, 0xC1, 0xC7, 0x33, 0x48, 0x87, 0xDB,
];
pub const PREAMBLE_LEN: u64 = 4 + PREAMBLE_REST.len() as u64;

/// pmemcheck requests that are recorded and need no other action or answer, as bits: flush and
/// fence, and everything about clean ranges and transactions, whose numbers are in a row.
pub const PLAIN: u32 =
    1 << DO_FLUSH | 1 << DO_FENCE | ((2 << REMOVE_THREAD_FROM_TX_N) - (1 << SET_CLEAN));
/// Of those: requests that lean recordings leave out where they change nothing. Ranges come into a
/// transaction and leave it, or are clean, and there is no transaction, or no tracked memory there,
/// or no rule wants it in one ([`UNLOGGED`]). A range is written back that is on its way past the
/// cache.
pub const OPTIONAL: u32 = 1 << DO_FLUSH | 1 << SET_CLEAN | 1 << ADD_TO_TX | 1 << REMOVE_FROM_TX;

/// Of those, requests that no finding will ever name: flush and fence, clean ranges, what is taken
/// out of a transaction. Where values are not recorded, their calling contexts are not either: they
/// are a third of what a libpmemobj program does.
pub const BOOKKEEPING: u32 =
    1 << DO_FLUSH | 1 << DO_FENCE | 1 << SET_CLEAN | 1 << REMOVE_FROM_TX | 1 << REMOVE_FROM_TX_N;

/// The largest range that need not be in a transaction (start, length): libpmemobj's lanes. In lean
/// recordings, that parts of it come into a transaction and leave it again is left out: the rules
/// do not ask, and it is every seventh event of a libpmemobj program.
#[repr(C)]
pub struct Unlogged {
    pub start: AtomicU64,
    pub len: AtomicU64,
}

/// Read by `bo_request`.
pub static UNLOGGED: Unlogged = Unlogged {
    start: AtomicU64::new(0),
    len: AtomicU64::new(0),
};
