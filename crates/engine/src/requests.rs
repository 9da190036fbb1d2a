//! Client requests: Valgrind's preamble, as libpmem and libpmemobj contain it.

use crate::context::ThreadContext;

/// What follows `rol rdi, 3`: `rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx`.
pub const PREAMBLE_REST: [u8; 15] = [
    0x48, 0xC1, 0xC7, 0x0D, 0x48, 0xC1, 0xC7, 0x3D, 0x48, 0xC1, 0xC7, 0x33, 0x48, 0x87, 0xDB,
];
const PREAMBLE_LEN: u64 = 4 + PREAMBLE_REST.len() as u64;

/// pmemcheck requests that are recorded and need no other action or answer, as bits: flush and fence (5, 6), and everything
/// about clean ranges and transactions (17 to 27).
pub const PLAIN: u32 = 1 << 5 | 1 << 6 | 0x7ff << 17;
/// Of those: the thread's own transaction begins, or ends.
pub const START_TX: u32 = 18;
pub const END_TX: u32 = 20;
/// Of those: a range is written back, or is clean.
pub const DO_FLUSH: u32 = 5;
pub const SET_CLEAN: u32 = 17;
/// Of those: requests that lean recordings leave out where they change nothing. Ranges come into a transaction and leave it, or are clean
/// (17, 22, 24), and there is no transaction, or no tracked memory there, or no rule wants it in one ([`crate::pm::UNLOGGED`]). A range is written
/// back that is on its way past the cache.
pub const OPTIONAL: u32 = 1 << DO_FLUSH | 1 << SET_CLEAN | 1 << 22 | 1 << 24;

/// Of those, requests that no finding will ever name: flush and fence, clean ranges, what is taken out of a transaction. Where
/// values are not recorded, their calling contexts are not either: they are a third of what a libpmemobj program does.
pub const BOOKKEEPING: u32 = 1 << 5 | 1 << 6 | 1 << 17 | 1 << 24 | 1 << 25;

/// A request at `ctx.rip`: block address in rax, default result in rdx, result to rdx.
pub fn handle(ctx: &mut ThreadContext) {
    let mut block = [0u64; 6];
    if crate::signal::read_value(ctx.gpr[0], &mut block)
        && let Some(result) = crate::pm::client_request(ctx, &block)
    {
        ctx.gpr[2] = result;
    }
    ctx.rip += PREAMBLE_LEN;
    crate::dispatch::resume_at_rip(ctx);
}
