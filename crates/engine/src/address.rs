//! Addresses that are easily taken for each other, as types of their own.

/// Where engine and kernel reach a byte of the program's memory: at its alias if it is tracked,
/// else where the program has it.
///
/// The program's own view of tracked memory cannot be written, and with loads recorded not even
/// read. So a program address is not good enough for an access; `pm::reach` makes one of these of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Reach(u64);

impl Reach {
    /// Memory of which the caller knows that it is not tracked, or that nothing is lost if it is
    /// and cannot be read.
    pub const fn untracked(addr: u64) -> Reach {
        Reach(addr)
    }

    /// Memory of a tracked mapping, by its address there.
    pub const fn alias(addr: u64) -> Reach {
        Reach(addr)
    }

    /// A number that is such an address already.
    pub const fn real(addr: u64) -> Reach {
        Reach(addr)
    }

    /// The address as a number, for the kernel or for emitted code.
    pub const fn get(self) -> u64 {
        self.0
    }
}
