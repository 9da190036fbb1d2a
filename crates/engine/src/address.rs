//! Addresses that are easily taken for each other, as types of their own.
//!
//! ```text
//!  ProgramAddr   where the program has its code and data, and what it sees
//!  CacheAddr     code that the processor really executes: translated, or a routine of the engine
//!  AliasAddr     the writable second mapping of tracked memory ── ProgramAddr + Distance
//!  Reach         where engine and kernel reach a byte of the program's: one of the above
//! ```
//! What the program's registers, its memory and its system calls hold are numbers: they become
//! addresses where it is decided what they are addresses of.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

macro_rules! addresses {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// In place of an address: there is none.
            pub const NONE: $name = $name(0);

            /// A number that is such an address.
            pub const fn new(addr: u64) -> $name {
                $name(addr)
            }

            /// The address as a number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl Add<u64> for $name {
            type Output = $name;
            fn add(self, bytes: u64) -> $name {
                $name(self.0.wrapping_add(bytes))
            }
        }

        impl AddAssign<u64> for $name {
            fn add_assign(&mut self, bytes: u64) {
                *self = *self + bytes;
            }
        }

        /// How many bytes behind the other one it is.
        impl Sub for $name {
            type Output = u64;
            fn sub(self, other: $name) -> u64 {
                self.0.wrapping_sub(other.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )* };
}

addresses! {
    /// Where the program has something. It never sees any other address.
    ProgramAddr;
    /// Code that the processor executes in place of the program's own: in the code cache, or a
    /// routine of the engine that translated code jumps to.
    CacheAddr;
    /// Where tracked memory can be written: in the second mapping of what the program has mapped.
    AliasAddr;
}

impl ProgramAddr {
    /// Whether there is none.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Where an instruction of the program's is.
    pub fn of(insn: &iced_x86::Instruction) -> ProgramAddr {
        ProgramAddr(insn.ip())
    }

    /// What is behind an instruction of the program's.
    pub fn behind(insn: &iced_x86::Instruction) -> ProgramAddr {
        ProgramAddr(insn.next_ip())
    }

    /// Where a direct branch of the program's leads.
    pub fn target_of(branch: &iced_x86::Instruction) -> ProgramAddr {
        ProgramAddr(branch.near_branch_target())
    }

    /// The number of its page.
    pub const fn page(self) -> u64 {
        self.0 >> 12
    }
}

impl CacheAddr {
    /// Whether there is none.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The next multiple of a power of two.
    pub const fn aligned(self, to: u64) -> CacheAddr {
        CacheAddr(self.0.next_multiple_of(to))
    }
}

/// From tracked memory to its alias (wrapping).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Distance(u64);

impl Distance {
    /// From one to the other.
    pub const fn between(program: ProgramAddr, alias: AliasAddr) -> Distance {
        Distance(alias.0.wrapping_sub(program.0))
    }

    /// The alias of what the program has at an address.
    pub const fn alias_of(self, program: ProgramAddr) -> AliasAddr {
        AliasAddr(program.0.wrapping_add(self.0))
    }

    /// Where the program has what is at an alias.
    pub const fn program_of(self, alias: AliasAddr) -> ProgramAddr {
        ProgramAddr(alias.0.wrapping_sub(self.0))
    }

    /// The distance as a number, for emitted code to add.
    pub const fn get(self) -> u64 {
        self.0
    }
}

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
    pub const fn alias(addr: AliasAddr) -> Reach {
        Reach(addr.0)
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
