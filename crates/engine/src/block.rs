//! What is known of a translated block: plain data.

use alloc::boxed::Box;
use alloc::vec::Vec;

pub type BlockId = u32;
pub const NO_BLOCK: BlockId = u32::MAX;

/// What a stretch of emitted code does to registers until it is through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InsnClass {
    /// Copied or rewritten in one instruction: registers are exact at a fault.
    Plain,
    /// Branch sequence: rcx and rdx are in their branch slots.
    Branch,
    /// Check whether an access is tracked: rcx is in its site slot.
    Check,
    /// Operand out of reach, or request: rcx and `scratch` are in their site slots.
    Site { scratch: u8 },
}

/// One program instruction in a block.
#[derive(Clone, Copy)]
pub struct InsnMap {
    /// Offset of its code from the block's body.
    pub code: u16,
    /// Offset of its address from the block's.
    pub pc: u16,
    pub class: InsnClass,
}

pub struct Block {
    pub pc: u64,
    pub pc_end: u64,
    /// As [`Exit::returns_to`] of the exits that lead here.
    pub returns_to: u64,
    /// Where the tag check is, 0 if there is none yet.
    pub prefix: u64,
    pub body: u64,
    pub code_end: u64,
    pub insns: Box<[InsnMap]>,
    /// Exits of this block: a run of numbers.
    pub exits: core::ops::Range<u32>,
    /// Exits of other blocks that are linked to this one.
    pub incoming: Vec<u32>,
    pub sites: Vec<&'static crate::pm::site::Site>,
    pub dead: bool,
}

pub struct Exit {
    pub target: u64,
    /// Not 0: what the top of the stack holds for certain at the target, because a call has just pushed it and nothing was
    /// written since. There the target has a block of its own, which returns by a direct jump.
    pub returns_to: u64,
    /// Address of the branch's rel32.
    pub patch: u64,
    pub stub: u64,
    pub linked: BlockId,
}
