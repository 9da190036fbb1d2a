//! The block under construction, and the passes that may add to it.
//!
//! ```text
//!  decode the block ─▶ pass.look ─▶ for each instruction: pass.before │ pass.instead, or as it is │ pass.after ─▶ pass.emitted
//!                                    for each way out:     pass.edge, pass.computed_edge
//! ```
//! Passes are asked in the order of `passes.rs`. A pass writes through the [`Builder`]: in front of
//! an instruction, instead of it, behind it, on a branch. Three promises make passes independent of
//! each other:
//! - at an instruction's boundary all registers and flags are the program's; in between a pass
//!   takes registers by [`Builder::with_scratch`], which gives them back, also if a fault comes in
//!   between;
//! - a fault is undone in one place (`restore` in `signal.rs`), which goes by what was declared
//!   ([`Saved`]);
//! - one instruction has one form: the first pass that places it decides.
//!
//! A pass may have an instruction executed by Rust code instead, with all of the program's
//! registers in its hands: see `interpret.rs`.

use crate::address::{CacheAddr, ProgramAddr};
use crate::block::{Exit, InsnMap, NO_BLOCK, Saved};
use crate::context::{off, slot};
use crate::emit::{Emitter, Gpr, RAX, RCX, RDX};
use crate::exit;
use crate::mode::Mode;
use alloc::boxed::Box;
use alloc::vec::Vec;
use iced_x86::{Encoder, Instruction, Register};

/// The passes in force, in the order in which they are asked.
static mut IN_FORCE: &[&dyn Pass] = &[];

/// Puts those of `all` in force that this run asks for. Once, before anything is translated.
pub fn choose(all: &[&'static dyn Pass], mode: &Mode) {
    let wanted = all.iter().copied().filter(|pass| pass.is_wanted(mode));
    let wanted: Vec<&dyn Pass> = wanted.collect();
    // SAFETY: the only thread.
    unsafe { IN_FORCE = Box::leak(wanted.into_boxed_slice()) };
}

/// The passes in force.
pub fn in_force() -> impl Iterator<Item = &'static dyn Pass> {
    // SAFETY: written once, before any other thread exists.
    unsafe { IN_FORCE }.iter().copied()
}

/// What a pass did about an instruction.
pub enum Placed {
    /// Nothing: it is still to be emitted.
    Nothing,
    /// All of it, in a form of its own. The block goes on at this program address.
    Instead(ProgramAddr),
    /// All of it, and the block ends there.
    Last,
}

/// A way from one instruction to another that is not the next.
#[derive(Clone, Copy)]
pub struct Edge {
    /// The branch.
    pub from: ProgramAddr,
    /// Where it leads; for a conditional branch that is not taken, the instruction behind it.
    pub to: ProgramAddr,
    /// The branch is conditional.
    pub is_choice: bool,
}

/// See the module's header. Every method but the first does nothing unless a pass says otherwise.
pub trait Pass: Sync {
    /// Whether this run asks for it.
    fn is_wanted(&self, mode: &Mode) -> bool;

    /// Sees the block before any of it is emitted.
    fn look(&self, _block: &[Decoded]) {}

    /// Code in front of an instruction, begun by [`Builder::begin`].
    fn before(&self, _b: &mut Builder, _insn: &Decoded) {}

    /// Code instead of an instruction, begun by [`Builder::begin`].
    fn instead(&self, _b: &mut Builder, _insn: &Decoded) -> Placed {
        Placed::Nothing
    }

    /// Code behind an instruction that goes on to the next one. It may not touch the program's
    /// memory: what has been executed cannot fault any more.
    fn after(&self, _b: &mut Builder, _insn: &Decoded) {}

    /// Code that runs when a direct branch is taken, or a conditional one is not.
    fn edge(&self, _b: &mut Builder, _edge: Edge) {}

    /// Code that runs when the indirect branch at `from`, a jump or a call, is taken. rcx holds the
    /// target and must hold it behind; rdx is free.
    fn computed_edge(&self, _b: &mut Builder, _from: ProgramAddr) {}

    /// Sees the block when it is emitted, at program addresses `pc..pc_end`.
    fn emitted(&self, _pc: ProgramAddr, _pc_end: ProgramAddr) {}
}

/// What inserted code needs beside the program's own registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// How many registers, of two.
    pub registers: usize,
    /// Whether it changes flags.
    pub flags: bool,
}

pub struct Request<'a> {
    pub pc: ProgramAddr,
    /// First address that may not begin an instruction of this block.
    pub limit: ProgramAddr,
    /// End of readable code bytes.
    pub readable: ProgramAddr,
    /// Reached by an indirect branch: put the tag check in front.
    pub prefix: bool,
    /// Other threads may write the code while it is translated.
    pub writable: bool,
    /// The code may change unseen: compare it with what was translated at every entry.
    pub self_check: bool,
    /// If there is one: translate for [`Exit::returns_to`].
    pub returns_to: ProgramAddr,
    pub first_exit: u32,
    /// Where the code around it begins, which belongs to the same module.
    pub module: ProgramAddr,
    /// Blocks that exist: running into one ends this one, rather than having its code twice.
    pub known: &'a hashbrown::HashMap<ProgramAddr, crate::block::BlockId, crate::hash::PcHash>,
    /// But for these. A row of stores to tracked memory, each of which has faulted once, would else
    /// be as many blocks, and each would have to find out its calling context.
    pub resumed: &'a hashbrown::HashSet<ProgramAddr, crate::hash::PcHash>,
}

/// An instruction of a block, before it is emitted.
pub struct Decoded<'a> {
    pub insn: Instruction,
    /// Its bytes.
    pub raw: &'a [u8],
    /// All readable bytes from it on.
    pub rest: &'a [u8],
    /// Where its displacement is, if it is RIP-relative.
    pub(super) displacement_at: usize,
    pub(super) form: Form,
}

impl Decoded<'_> {
    /// Where it is.
    pub fn pc(&self) -> ProgramAddr {
        ProgramAddr::of(&self.insn)
    }

    /// What is behind it.
    pub fn behind(&self) -> ProgramAddr {
        ProgramAddr::behind(&self.insn)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Valid,
    /// An encoding with reserved bits set: the processor may know better, so it gets to decide.
    Reserved,
    /// No instruction at all.
    Invalid,
    /// It runs over the end of what can be read.
    CutOff,
}

/// The block under construction, as passes see it.
pub struct Builder<'a> {
    /// Where the instructions go, one behind the other.
    pub hot: &'a mut Emitter,
    /// Where goes what is executed rarely.
    pub cold: &'a mut Emitter,
    /// Code for an edge is being written to the cold part.
    pub(super) out_of_line: bool,
    pub(super) request: &'a Request<'a>,
    /// Where the displacement of the current instruction is, if it is RIP-relative.
    pub(super) displacement_at: usize,
    pub(super) body: CacheAddr,
    pub(super) insns: Vec<InsnMap>,
    pub(super) exits: Vec<Exit>,
    pub(super) sites: Vec<&'static crate::pm::site::Site>,
    /// The block as the tool is told of it, if it is.
    pub(super) followed: Option<crate::follow::Block>,
    /// Of the sites that share their calling context, once there is one: see
    /// [`crate::pm::site::Site::token`].
    pub(super) token: Option<u64>,
}

impl Builder<'_> {
    /// The code of the instruction at `pc` begins here, where all registers are the program's.
    /// `saved`: which ones are not, behind the first instruction of that code.
    pub fn begin(&mut self, pc: ProgramAddr, saved: Saved) {
        self.map(pc, saved, true);
    }

    /// From here on these registers are saved, in the code of the instruction at `pc`.
    pub(super) fn within(&mut self, pc: ProgramAddr, saved: Saved) {
        if !self.out_of_line {
            self.map(pc, saved, false);
        }
    }

    fn map(&mut self, pc: ProgramAddr, saved: Saved, is_boundary: bool) {
        self.insns.push(InsnMap {
            code: (self.hot.at - self.body) as u16,
            pc: (pc - self.request.pc) as u16,
            saved,
            is_boundary,
        });
    }

    /// What an address is called in every run: its distance from the beginning of the module's
    /// code.
    pub fn name(&self, pc: ProgramAddr) -> u64 {
        pc - self.request.module
    }

    /// Inserts what `code` emits, with registers for its own use; behind it everything is the
    /// program's again. The code may fault on the program's memory where that is allowed: that is a
    /// fault of the instruction at `pc`.
    pub fn with_scratch(
        &mut self,
        pc: ProgramAddr,
        needs: Needs,
        code: impl FnOnce(&mut Self, [Gpr; 2]),
    ) {
        const REGISTERS: [Gpr; 2] = [RCX, RDX];
        const SLOTS: [usize; 2] = [slot::PASS, slot::PASS + 1];
        let mut saved = Saved::NONE;
        saved.flags = needs.flags;
        for i in 0..needs.registers {
            self.hot.spill(off::spill(SLOTS[i]), REGISTERS[i]);
            saved.add(REGISTERS[i].0, SLOTS[i]);
        }
        if needs.flags {
            // Through rax, which is the program's again right away.
            self.hot.spill(off::spill(slot::PASS_RAX), RAX);
            self.hot.flags_to_rax();
            self.hot.spill(off::spill(slot::PASS_FLAGS), RAX);
            self.hot.reload(RAX, off::spill(slot::PASS_RAX));
        }
        self.within(pc, saved);
        code(self, REGISTERS);
        if needs.flags {
            self.hot.spill(off::spill(slot::PASS_RAX), RAX);
            self.hot.reload(RAX, off::spill(slot::PASS_FLAGS));
            self.hot.flags_from_rax();
            self.hot.reload(RAX, off::spill(slot::PASS_RAX));
        }
        for i in (0..needs.registers).rev() {
            self.hot.reload(REGISTERS[i], off::spill(SLOTS[i]));
        }
    }

    /// Has the passes insert their code for a branch, into the hot part.
    pub(super) fn edge(&mut self, edge: Edge) {
        for pass in in_force() {
            pass.edge(self, edge);
        }
    }

    /// The same, into the cold part. Yields where that begins.
    pub(super) fn edge_out_of_line(&mut self, edge: Edge) -> CacheAddr {
        core::mem::swap(self.hot, self.cold);
        let at = self.hot.at;
        self.out_of_line = true;
        self.edge(edge);
        self.out_of_line = false;
        core::mem::swap(self.hot, self.cold);
        at
    }

    /// Leaves the cache for good reason; `ctx.rip` is the instruction's address.
    pub(super) fn special(&mut self, kind: u64, pc: ProgramAddr, payload: u64) {
        self.hot.store_imm64(
            core::mem::offset_of!(crate::context::ThreadContext, rip) as u32,
            pc.get(),
        );
        self.hot.leave(kind | payload << 8);
    }

    /// An instruction without control flow, operands relocated.
    pub(super) fn copy(&mut self, insn: &Instruction, raw: &[u8]) {
        if !insn.is_ip_rel_memory_operand() {
            self.hot.bytes(raw);
            return;
        }
        let target = insn.ip_rel_memory_address();
        let next = self.hot.at + raw.len() as u64;
        if !crate::emit::in_reach(next, target) {
            return self.copy_far(insn);
        }
        // Patched by hand: iced's encoder costs half a millisecond when first used.
        let mut bytes = [0u8; 15];
        bytes[..raw.len()].copy_from_slice(raw);
        bytes[self.displacement_at..self.displacement_at + 4]
            .copy_from_slice(&crate::emit::rel32(next, target).to_le_bytes());
        self.hot.bytes(&bytes[..raw.len()]);
    }

    /// Encodes at the current place; false if an operand is out of reach.
    fn encode_here(&mut self, insn: &Instruction) -> bool {
        let mut encoder = Encoder::new(64);
        match encoder.encode(insn, self.hot.at.get()) {
            Ok(_) => {
                self.hot.bytes(&encoder.take_buffer());
                true
            }
            Err(_) => false,
        }
    }

    /// A RIP-relative operand more than 2 GiB away: through a register that the instruction does
    /// not use.
    fn copy_far(&mut self, insn: &Instruction) {
        let used = crate::insn::gprs_used(insn);
        let scratch = [2u8, 6, 7, 8, 9, 10, 11]
            .into_iter()
            .find(|r| used & 1 << r == 0)
            .unwrap_or(3);
        let r = Gpr(scratch);
        // The map calls this a site so that a fault gives the register back.
        self.insns.last_mut().expect("begun").saved = Saved::site(scratch);
        self.hot.spill(off::spill(slot::SITE_RCX), RCX);
        self.hot.spill(off::spill(slot::SITE_R2), r);
        self.hot.mov_imm64(r, insn.ip_rel_memory_address());
        let mut i = *insn;
        i.set_memory_base(crate::insn::register(scratch));
        i.set_memory_index(Register::None);
        i.set_memory_displacement64(0);
        i.set_memory_displ_size(0);
        if !self.encode_here(&i) {
            crate::fatal_bug("cannot encode a far operand");
        }
        self.hot.reload(r, off::spill(slot::SITE_R2));
    }

    /// Jumps to another block: to its stub until linked.
    pub(super) fn exit_jump(&mut self, target: ProgramAddr) {
        self.jump(target, ProgramAddr::NONE);
    }

    /// The same, where the return address may be known: see [`Exit::returns_to`].
    pub(super) fn jump(&mut self, target: ProgramAddr, returns_to: ProgramAddr) {
        self.hot.align_patch(1);
        let stub = self.stub();
        let patch = self.hot.jmp(stub);
        self.exits.push(Exit {
            target,
            returns_to,
            patch,
            stub,
            linked: NO_BLOCK,
        });
    }

    pub(super) fn stub(&mut self) -> CacheAddr {
        let n = self.request.first_exit as u64 + self.exits.len() as u64;
        let stub = self.cold.at;
        self.cold.leave(exit::LINK | n << 8);
        stub
    }
}
