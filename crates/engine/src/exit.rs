//! Reasons for leaving the cache: the low 8 bits of `exit_arg`; the rest is the payload.

/// A direct branch that is not linked yet; payload: exit number.
pub const LINK: u64 = 0;
/// An indirect branch whose target (`ctx.target`) is in no table.
pub const INDIRECT: u64 = 1;
/// A `syscall` instruction at `ctx.rip`.
pub const SYSCALL: u64 = 2;
/// A Valgrind client request at `ctx.rip`.
pub const REQUEST: u64 = 3;
/// An instruction at `ctx.rip` that the engine performs; payload: its length.
pub const EMULATE: u64 = 4;
/// A tracked access happened; payload: its site; the record is still to be appended.
pub const LOG: u64 = 5;
/// A tracked access of irregular form; payload: its site.
pub const SITE_BEGIN: u64 = 6;
/// The redirected instruction of the irregular form was executed; payload: its site.
pub const SITE_END: u64 = 7;
/// The ring is locked by another thread; payload: site. Retry from the instruction's start.
pub const LOCKED: u64 = 8;
/// An instruction that cannot be supported; `ctx.rip`.
pub const UNSUPPORTED: u64 = 9;
/// The instruction at `ctx.rip` runs over the end of executable memory; payload: after how many
/// bytes.
pub const FETCH_FAULT: u64 = 11;
/// As [`LOG`], but the ring is locked by another thread.
pub const LOG_WAITING: u64 = 12;
/// The code of a self-checking block changed; `ctx.rip` = its start.
pub const CODE_CHANGED: u64 = 10;
/// An instruction that Rust code executes; payload: which.
pub const INTERPRET: u64 = 13;
