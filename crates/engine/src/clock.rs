//! The time that a program sees where randomness is removed: when it begins.

/// 2020-01-01T00:00:00Z, in nanoseconds.
pub const EPOCH_NS: u64 = 1_577_836_800_000_000_000;

/// Nanoseconds since the start, of a time since the epoch.
pub fn since_start(ns: u64) -> u64 {
    ns.saturating_sub(EPOCH_NS)
}
