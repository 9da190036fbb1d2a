//! What is known of a translated block: plain data.

use crate::address::{CacheAddr, ProgramAddr};
use crate::context::slot;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub type BlockId = u32;
pub const NO_BLOCK: BlockId = u32::MAX;

/// Program registers that are in spill slots while a stretch of emitted code runs: what a fault in
/// it must give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Hardware number and slot.
    registers: [(u8, u8); 2],
    /// The flags are in [`slot::PASS_FLAGS`].
    pub flags: bool,
}

/// In place of a register's number.
const NO_REGISTER: u8 = u8::MAX;
const RCX: u8 = 1;
const RDX: u8 = 2;

impl Saved {
    /// All registers are the program's.
    pub const NONE: Saved = Saved {
        registers: [(NO_REGISTER, 0); 2],
        flags: false,
    };
    /// In the sequence of an indirect branch.
    pub const BRANCH: Saved = Saved {
        registers: [(RCX, slot::BRANCH_RCX as u8), (RDX, slot::BRANCH_RDX as u8)],
        flags: false,
    };
    /// Where it is checked whether an access is tracked.
    pub const CHECK: Saved = Saved {
        registers: [(RCX, slot::SITE_RCX as u8), (NO_REGISTER, 0)],
        flags: false,
    };

    /// In a tracked access, or where an operand is out of reach: rcx and one more.
    pub const fn site(scratch: u8) -> Saved {
        Saved {
            registers: [(RCX, slot::SITE_RCX as u8), (scratch, slot::SITE_R2 as u8)],
            flags: false,
        }
    }

    /// Adds a register that is in a slot. There is room for two.
    pub fn add(&mut self, register: u8, slot: usize) {
        let place = self.registers.iter_mut().find(|r| r.0 == NO_REGISTER);
        *place.expect("room for two") = (register, slot as u8);
    }

    /// The registers, and the numbers of the slots that they are in.
    pub fn registers(self) -> impl Iterator<Item = (u8, usize)> {
        let there =
            |(register, slot)| (register != NO_REGISTER).then_some((register, slot as usize));
        self.registers.into_iter().filter_map(there)
    }
}

/// A stretch of a block's code that belongs to one program instruction.
#[derive(Clone, Copy)]
pub struct InsnMap {
    /// Where it begins, from the block's body.
    pub code: u16,
    /// Offset of the instruction's address from the block's.
    pub pc: u16,
    /// What is not in its register, from the second instruction of the stretch on.
    pub saved: Saved,
    /// It begins where all registers are the program's, and nothing of the instruction is done.
    pub is_boundary: bool,
}

pub struct Block {
    pub pc: ProgramAddr,
    pub pc_end: ProgramAddr,
    /// As [`Exit::returns_to`] of the exits that lead here.
    pub returns_to: ProgramAddr,
    /// Where the tag check is, if there is one yet.
    pub prefix: CacheAddr,
    pub body: CacheAddr,
    pub code_end: CacheAddr,
    pub insns: Box<[InsnMap]>,
    /// Exits of this block: a run of numbers.
    pub exits: core::ops::Range<u32>,
    /// Exits of other blocks that are linked to this one.
    pub incoming: Vec<u32>,
    pub sites: Vec<&'static crate::pm::site::Site>,
    pub dead: bool,
}

pub struct Exit {
    pub target: ProgramAddr,
    /// If there is one: what the top of the stack holds for certain at the target, because a call
    /// has just pushed it and nothing was written since. There the target has a block of its own,
    /// which returns by a direct jump.
    pub returns_to: ProgramAddr,
    /// Address of the branch's rel32.
    pub patch: CacheAddr,
    pub stub: CacheAddr,
    pub linked: BlockId,
}
