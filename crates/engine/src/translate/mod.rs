//! Program code to cache code, one block at a time.
//!
//! ```text
//!  decode ─▶ passes: before, instead, behind │ copy │ relocate │ rewrite branch ─▶ exits and stubs
//! ```
//! A block begins at a branch target and runs through not-taken conditional branches until an
//! unconditional transfer. Instructions are copied; only RIP-relative operands, branches, system
//! calls and what a pass (`builder.rs`) places are rewritten. Registers are the program's at every
//! instruction boundary: a signal or fault can be delivered there with nothing to restore.
//!
//! Original return addresses go on the stack, so unwinding, longjmp and exceptions see what they
//! expect.

mod atomics;
mod builder;
pub mod capture;
mod comparisons;
mod edges;
mod follow;
mod interpret;
pub mod passes;
mod points;
mod simple;
mod site;
#[cfg(test)]
mod tests;

pub use interpret::{Goes, Interpreted};
pub use simple::is_simple_function;

use crate::address::{CacheAddr, ProgramAddr};
use crate::block::{Exit, InsnMap, NO_BLOCK, Saved};
use crate::context::{GRANULES_OFFSET, IBTC_OFFSET, IBTC_SHIFT, off, slot};
use crate::emit::{Emitter, Gpr, RCX, RDX};
use crate::exit;
use alloc::boxed::Box;
use alloc::vec::Vec;
pub use builder::Request;
use builder::{Builder, Decoded, Edge, Form, Placed, in_force};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Longest block. Long enough that straight-line code is not cut often, short enough that a block
/// killed for one byte does not cost much.
const INSNS_MAX: usize = 64;
/// Longest x86 instruction.
const INSN_LEN_MAX: u64 = 15;

pub struct Translated {
    pub pc_end: ProgramAddr,
    /// Where the tag check is, if it was asked for.
    pub prefix: CacheAddr,
    pub body: CacheAddr,
    pub insns: Box<[InsnMap]>,
    pub exits: Vec<Exit>,
    pub sites: Vec<&'static crate::pm::site::Site>,
}

/// The tag check in front of a block that indirect branches reach. rcx holds the target; rcx
/// and rdx of the program are in their branch slots.
pub fn prefix(e: &mut Emitter, pc: ProgramAddr) -> CacheAddr {
    // 8-aligned: `spoil_prefix` replaces the first bytes by one store.
    while e.at.get() & 7 != 0 {
        e.nops(1);
    }
    let start = e.at;
    e.mov_imm64(RDX, pc.get().wrapping_neg());
    e.lea_sum(RCX, RCX, Some(RDX), 0);
    e.jrcxz(8);
    e.jmp_gs(off::ENTRY_MISS_TAG);
    e.reload(RCX, off::spill(slot::BRANCH_RCX));
    e.reload(RDX, off::spill(slot::BRANCH_RDX));
    start
}

/// Makes a dead block's tag check fail always: its first instruction becomes `jmp gs:[entry_miss]`.
pub fn spoil_prefix(prefix: CacheAddr) {
    let mut b = [0x65, 0xFF, 0x24, 0x25, 0, 0, 0, 0];
    b[4..].copy_from_slice(&off::ENTRY_MISS.to_le_bytes());
    // SAFETY: `prefix` is 8-aligned code of ours; one atomic store (CACHE-1).
    unsafe {
        (*(prefix.get() as *const core::sync::atomic::AtomicU64))
            .store(u64::from_le_bytes(b), core::sync::atomic::Ordering::Release)
    };
}

/// Translates the block at `request.pc`.
pub fn block(hot: &mut Emitter, cold: &mut Emitter, request: &Request) -> Translated {
    let pc = request.pc;
    let prefix_at = match request.prefix {
        true => prefix(hot, pc),
        false => CacheAddr::NONE,
    };
    let body = hot.at;
    let mut b = Builder {
        hot,
        cold,
        request,
        body,
        insns: Vec::with_capacity(16),
        exits: Vec::new(),
        sites: Vec::new(),
        token: None,
        displacement_at: 0,
        out_of_line: false,
        followed: None,
    };
    if request.self_check {
        b.leave_room_for_self_check();
    }
    let len = (request.readable - pc).min(INSNS_MAX as u64 * INSN_LEN_MAX) as usize;
    let source = crate::pm::reach(pc).get();
    // SAFETY: the caller found `pc..readable` to be mapped code; the program may unmap it under our
    // feet, which natively would be a fault at a random place just as well.
    let there = unsafe { core::slice::from_raw_parts(source as *const u8, len) };
    // What is decoded, what is copied and what is compared later must be the same bytes, whatever
    // another thread does meanwhile.
    let mut copy = [0; INSNS_MAX * INSN_LEN_MAX as usize];
    let bytes = match request.writable {
        true => {
            copy[..len].copy_from_slice(there);
            &copy[..len]
        }
        false => there,
    };
    let decoded = decode(request, bytes);
    for pass in in_force() {
        pass.look(&decoded);
    }
    let pc_end = b.emit(&decoded);
    if request.self_check {
        b.self_check(&bytes[..(pc_end - pc) as usize]);
    }
    for pass in in_force() {
        pass.emitted(pc, pc_end);
    }
    if let Some(block) = b.followed.take() {
        block.define(pc, &bytes[..((pc_end - pc) as usize).min(bytes.len())]);
    }
    let Builder {
        insns,
        exits,
        sites,
        ..
    } = b;
    Translated {
        pc_end,
        prefix: prefix_at,
        body,
        insns: insns.into_boxed_slice(),
        exits,
        sites,
    }
}

/// The instructions of the block at `request.pc`, whose code is `bytes`. Emission may end it
/// earlier.
fn decode<'a>(request: &Request, bytes: &'a [u8]) -> Vec<Decoded<'a>> {
    let pc = request.pc;
    let mut decoder = Decoder::with_ip(64, bytes, pc.get(), DecoderOptions::NONE);
    let mut insns = Vec::with_capacity(16);
    loop {
        let at = ProgramAddr::new(decoder.ip());
        let is_cut = at != pc
            && request.returns_to.is_none()
            && request.known.contains_key(&at)
            && !request.resumed.contains(&at);
        if at >= request.limit || insns.len() >= INSNS_MAX || is_cut {
            return insns;
        }
        let rest = &bytes[(at - pc) as usize..];
        let mut insn = decoder.decode();
        let mut form = Form::Valid;
        if insn.is_invalid() {
            form = Form::Invalid;
            let left = request.readable - at;
            if left < INSN_LEN_MAX && decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
                form = Form::CutOff;
            }
            let lax =
                Decoder::with_ip(64, rest, at.get(), DecoderOptions::NO_INVALID_CHECK).decode();
            if form == Form::Invalid
                && !lax.is_invalid()
                && lax.flow_control() == FlowControl::Next
                && !lax.is_ip_rel_memory_operand()
            {
                form = Form::Reserved;
                insn = lax;
            }
        }
        let displacement_at = match insn.is_ip_rel_memory_operand() {
            true => decoder.get_constant_offsets(&insn).displacement_offset(),
            false => 0,
        };
        let end = match form {
            Form::Valid | Form::Reserved => ProgramAddr::behind(&insn),
            // Which of its bytes make it invalid nobody says, so none of them may change.
            Form::Invalid => at + INSN_LEN_MAX.min(rest.len() as u64),
            Form::CutOff => request.readable,
        };
        insns.push(Decoded {
            insn,
            raw: &rest[..(end - at) as usize],
            rest,
            displacement_at,
            form,
        });
        let goes_on = match form {
            Form::Valid => goes_on(&insn),
            Form::Reserved => decoder.set_position((end - pc) as usize).is_ok(),
            Form::Invalid | Form::CutOff => false,
        };
        if !goes_on {
            return insns;
        }
        decoder.set_ip(end.get());
    }
}

/// Whether the instruction behind it may belong to the same block.
fn goes_on(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::Next
        | FlowControl::Interrupt
        | FlowControl::ConditionalBranch
        | FlowControl::XbeginXabortXend => true,
        FlowControl::Exception => insn.mnemonic() != Mnemonic::Ud2,
        _ => false,
    }
}

impl Builder<'_> {
    /// Emits the instructions and what passes add. Yields the end of what was made use of.
    fn emit(&mut self, block: &[Decoded]) -> ProgramAddr {
        let request = self.request;
        let mut next = request.pc;
        for d in block {
            let at = d.pc();
            if at < next {
                // A pass has placed it together with the one before.
                continue;
            }
            self.displacement_at = d.displacement_at;
            if !request.returns_to.is_none() && !crate::insn::keeps_stack(&d.insn) {
                // From here on the return address may change.
                self.begin(at, Saved::NONE);
                self.exit_jump(at);
                return at + 1;
            }
            next = at + d.raw.len() as u64;
            for pass in in_force() {
                pass.before(self, d);
            }
            if self.engines_own(d) {
                return next;
            }
            let placed = in_force().find_map(|pass| match pass.instead(self, d) {
                Placed::Nothing => None,
                placed => Some(placed),
            });
            match placed {
                Some(Placed::Instead(behind)) => next = behind,
                Some(_) => return next,
                None if self.instruction(d) => return next,
                None => {}
            }
            for pass in in_force() {
                pass.after(self, d);
            }
            if request.self_check && crate::insn::writes_memory(&d.insn) {
                // It may have written the next instruction: check again.
                self.exit_jump(next);
                return next;
            }
        }
        self.jump(next, request.returns_to);
        next
    }

    /// What no pass may have a say in: instructions that the engine performs, refuses, or lets
    /// fault. True if it is one: the block ends.
    fn engines_own(&mut self, d: &Decoded) -> bool {
        let insn = &d.insn;
        let pc = d.pc();
        match d.form {
            Form::Valid | Form::Reserved => {}
            Form::Invalid => {
                self.begin(pc, Saved::NONE);
                self.hot.bytes(&[0x0F, 0x0B]); // ud2: SIGILL at this address, as natively
                return true;
            }
            Form::CutOff => {
                self.begin(pc, Saved::NONE);
                self.special(exit::FETCH_FAULT, pc, d.raw.len() as u64);
                return true;
            }
        }
        if d.form == Form::Reserved {
            return false;
        }
        match insn.code() {
            Code::Syscall => {
                self.begin(pc, Saved::NONE);
                self.special(exit::SYSCALL, pc, 0);
                return true;
            }
            Code::Sysenter | Code::Wrgsbase_r64 | Code::Wrgsbase_r32 => {
                self.begin(pc, Saved::NONE);
                self.special(exit::UNSUPPORTED, pc, 0);
                return true;
            }
            // All others fault, or trap, for the program to see.
            Code::Int_imm8 if insn.immediate8() == 0x80 => {
                self.begin(pc, Saved::NONE);
                self.special(exit::UNSUPPORTED, pc, 0);
                return true;
            }
            Code::Rdgsbase_r32
            | Code::Rdgsbase_r64
            | Code::Iretq
            | Code::Iretd
            | Code::Retfq
            | Code::Retfd
            | Code::Retfq_imm16
            | Code::Retfd_imm16
            | Code::Jmp_m1632
            | Code::Call_m1632 => {
                self.begin(pc, Saved::NONE);
                self.special(exit::EMULATE, pc, insn.len() as u64);
                return true;
            }
            _ => {}
        }
        if insn.segment_prefix() == Register::GS
            && insn.op_kinds().any(|k| k == OpKind::Memory)
            && insn.mnemonic() != Mnemonic::Nop
        {
            self.begin(pc, Saved::NONE);
            self.special(exit::UNSUPPORTED, pc, 0);
            return true;
        }
        if crate::mode().deterministic {
            match insn.mnemonic() {
                Mnemonic::Rdtsc
                | Mnemonic::Rdtscp
                | Mnemonic::Rdrand
                | Mnemonic::Rdseed
                | Mnemonic::Rdpid
                | Mnemonic::Cpuid => {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::EMULATE, pc, insn.len() as u64);
                    return true;
                }
                _ => {}
            }
        }
        if (!crate::mode().hidden.is_empty() || crate::mode().plain_cpu)
            && matches!(insn.mnemonic(), Mnemonic::Cpuid | Mnemonic::Xgetbv)
        {
            self.begin(pc, Saved::NONE);
            self.special(exit::EMULATE, pc, insn.len() as u64);
            return true;
        }
        if crate::insn::missing_feature(insn).is_some() {
            // Also write-backs, which need no processor to be recorded: natively the program would
            // not get past them.
            self.begin(pc, Saved::NONE);
            self.hot.bytes(&[0x0F, 0x0B]); // ud2: SIGILL at this address
            return true;
        }
        false
    }

    /// One instruction as it is, as far as that is possible; true if the block ends with it.
    fn instruction(&mut self, d: &Decoded) -> bool {
        let (insn, raw) = (&d.insn, d.raw);
        let pc = d.pc();
        if d.form == Form::Reserved {
            self.begin(pc, Saved::NONE);
            self.hot.bytes(raw);
            return false;
        }
        match insn.flow_control() {
            FlowControl::Next | FlowControl::Exception | FlowControl::Interrupt => {
                self.begin(pc, Saved::NONE);
                self.copy(insn, raw);
                insn.flow_control() == FlowControl::Exception && insn.mnemonic() == Mnemonic::Ud2
            }
            FlowControl::UnconditionalBranch => {
                if !insn.is_jmp_short_or_near() {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::UNSUPPORTED, pc, 0);
                    return true;
                }
                self.begin(pc, Saved::NONE);
                let target = ProgramAddr::target_of(insn);
                self.edge(Edge {
                    from: pc,
                    to: target,
                    is_choice: false,
                });
                self.jump(target, self.returns_to_at(pc, target));
                true
            }
            FlowControl::ConditionalBranch => {
                self.begin(pc, Saved::NONE);
                self.conditional(insn, raw);
                false
            }
            FlowControl::Call => {
                if insn.is_call_near() {
                    self.begin(pc, Saved::NONE);
                    self.push_constant(insn.next_ip());
                    // An own boundary would be wrong: the push is already done. Fault and step both
                    // see the pushed state only at the target's boundary.
                    let target = ProgramAddr::target_of(insn);
                    self.edge(Edge {
                        from: pc,
                        to: target,
                        is_choice: false,
                    });
                    self.jump(target, d.behind());
                } else {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::UNSUPPORTED, pc, 0);
                }
                true
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                if insn.is_jmp_far_indirect()
                    || insn.is_call_far_indirect()
                    || insn.is_call_far()
                    || insn.is_jmp_far()
                {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::UNSUPPORTED, pc, 0);
                    return true;
                }
                if crate::mode().loads
                    && insn.op0_kind() == OpKind::Memory
                    && crate::pm::site::is_known(pc)
                {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::EMULATE, pc, insn.len() as u64);
                    return true;
                }
                self.begin(pc, Saved::BRANCH);
                self.indirect(insn, raw);
                true
            }
            FlowControl::Return => {
                self.begin(pc, Saved::BRANCH);
                let pop = match insn.code() {
                    Code::Retnq => 8,
                    Code::Retnq_imm16 => 8 + insn.immediate16() as i32,
                    _ => {
                        self.special(exit::UNSUPPORTED, pc, 0);
                        return true;
                    }
                };
                if !self.request.returns_to.is_none() {
                    self.insns.last_mut().expect("begun").saved = Saved::NONE;
                    self.hot.add_rsp(pop);
                    self.exit_jump(self.request.returns_to);
                    return true;
                }
                self.hot.spill(off::spill(slot::BRANCH_RCX), RCX);
                self.hot.spill(off::spill(slot::BRANCH_RDX), RDX);
                if pop == 8 {
                    self.hot.bytes(&[0x59]); // pop rcx
                } else {
                    self.hot.bytes(&[0x59]);
                    self.hot.add_rsp(pop - 8);
                }
                self.jump_by_table();
                true
            }
            FlowControl::XbeginXabortXend => {
                self.begin(pc, Saved::NONE);
                if insn.mnemonic() == Mnemonic::Xbegin && has_rtm() {
                    // A transaction that always aborts at once, with no reason given: programs must
                    // have a fallback for that.
                    self.hot.bytes(&[0xB8, 0, 0, 0, 0]); // mov eax, 0
                    self.exit_jump(ProgramAddr::target_of(insn));
                    return true;
                }
                self.copy(insn, raw);
                false
            }
        }
    }

    /// Pushes a code address without touching a register.
    fn push_constant(&mut self, value: u64) {
        if value as i64 == value as i32 as i64 {
            self.hot.bytes(&[0x68]);
            self.hot.u32(value as u32);
        } else {
            while self.cold.at.get() & 7 != 0 {
                self.cold.bytes(&[0xCC]);
            }
            let at = self.cold.at;
            self.cold.u64(value);
            self.hot.push_rip(at);
        }
    }

    /// What is known at `target` of the return address, coming from `pc`. Nothing behind a jump
    /// backwards: a loop may wait for another thread, and that may have changed it.
    fn returns_to_at(&self, pc: ProgramAddr, target: ProgramAddr) -> ProgramAddr {
        if target > pc {
            self.request.returns_to
        } else {
            ProgramAddr::NONE
        }
    }

    fn conditional(&mut self, insn: &Instruction, raw: &[u8]) {
        let target = ProgramAddr::target_of(insn);
        let taken = Edge {
            from: ProgramAddr::of(insn),
            to: target,
            is_choice: true,
        };
        let stub = self.stub();
        // Code of passes for the way that is taken stands between the branch and its target.
        let out_of_line = self.edge_out_of_line(taken);
        let is_direct = self.cold.at == out_of_line;
        let mut patch = CacheAddr::NONE;
        if !is_direct {
            self.cold.align_patch(1);
            patch = self.cold.jmp(stub);
        }
        let goes_to = if is_direct { stub } else { out_of_line };
        let rel32_at = if insn.is_jcc_short_or_near() {
            let cc = if raw.len() >= 2 && insn.is_jcc_near() {
                raw[raw.len() - 5] & 0xf
            } else {
                raw[raw.len() - 2] & 0xf
            };
            self.hot.align_patch(2);
            self.hot.bytes(&[0x0F, 0x80 | cc]);
            let at = self.hot.at;
            self.hot.u32(crate::emit::rel32(at + 4, goes_to.get()));
            at
        } else {
            // loop, loope, loopne, jrcxz, jecxz: only a rel8 form exists.
            //   loopcc +2 ; jmp short over ; jmp exit ; over:
            let prefixes = &raw[..raw.len() - 1];
            self.hot.bytes(prefixes);
            self.hot.bytes(&[2]);
            // The jump behind must not move: align it before measuring.
            let lead = (self.hot.at + 2).get();
            let pad = if (lead + 1) & 63 > 60 {
                64 - ((lead + 1) & 63)
            } else {
                0
            };
            self.hot.bytes(&[0xEB, (5 + pad) as u8]);
            self.hot.nops(pad);
            self.hot.jmp(goes_to)
        };
        self.exits.push(Exit {
            target,
            returns_to: self.returns_to_at(ProgramAddr::of(insn), target),
            patch: if is_direct { rel32_at } else { patch },
            stub,
            linked: NO_BLOCK,
        });
        self.edge(Edge {
            to: ProgramAddr::behind(insn),
            ..taken
        });
    }

    fn indirect(&mut self, insn: &Instruction, raw: &[u8]) {
        let call = insn.flow_control() == FlowControl::IndirectCall;
        self.hot.spill(off::spill(slot::BRANCH_RCX), RCX);
        self.hot.spill(off::spill(slot::BRANCH_RDX), RDX);
        if insn.op0_kind() == OpKind::Register {
            let r = Gpr(insn.op0_register().number() as u8);
            if r != RCX {
                // mov rcx, r
                self.hot
                    .bytes(&[0x48 | (r.0 >> 3) << 2, 0x89, 0xC1 | (r.0 & 7) << 3]);
            }
        } else {
            self.load_rcx(insn, raw);
        }
        if call {
            self.push_constant(insn.next_ip());
        }
        for pass in in_force() {
            pass.computed_edge(self, ProgramAddr::of(insn));
        }
        self.jump_by_table();
    }

    /// `mov rcx, [operand of the branch]`, made from the branch's own bytes: FF /2 or /4 becomes 8B
    /// /1.
    fn load_rcx(&mut self, insn: &Instruction, raw: &[u8]) {
        let mut at = 0;
        let mut out = [0u8; 16];
        let mut n = 0;
        let mut rex = 0x48;
        while raw[at] != 0xFF {
            // A REX prefix counts only right before the opcode.
            rex = 0x48;
            match raw[at] {
                r @ 0x40..=0x4F => rex |= r & 0x03,
                // Only an FS base and narrow addresses mean anything for a load.
                p @ (0x64 | 0x67) => {
                    out[n] = p;
                    n += 1;
                }
                _ => {}
            }
            at += 1;
        }
        out[n] = rex;
        out[n + 1] = 0x8B;
        let rest = &raw[at + 1..];
        out[n + 2..n + 2 + rest.len()].copy_from_slice(rest);
        out[n + 2] = out[n + 2] & 0xC7 | 0x08;
        n += 2 + rest.len();
        if insn.is_ip_rel_memory_operand() {
            let target = insn.ip_rel_memory_address();
            let next = self.hot.at + n as u64;
            if !crate::emit::in_reach(next, target) {
                self.hot.mov_imm64(RCX, target);
                self.hot.bytes(&[0x48, 0x8B, 0x09]); // mov rcx, [rcx]
                return;
            }
            out[n - 4..n].copy_from_slice(&crate::emit::rel32(next, target).to_le_bytes());
        }
        self.hot.bytes(&out[..n]);
    }

    /// Goes on at rcx; both branch slots are filled.
    fn jump_by_table(&mut self) {
        self.hot.index_edx_ecx(IBTC_SHIFT);
        self.hot.jmp_gs_rdx8(IBTC_OFFSET);
    }

    // ------------------------------------------------------------ code that may change unseen

    const SELF_CHECK_JUMP: u64 = 5;

    /// The check's size depends on the block's length, so it stands in the cold part and comes
    /// back.
    fn leave_room_for_self_check(&mut self) {
        self.hot.nops(Self::SELF_CHECK_JUMP);
    }

    /// `code` is what was translated.
    fn self_check(&mut self, code: &[u8]) {
        let pc = self.request.pc;
        let check = self.cold.at;
        let back = self.body + Self::SELF_CHECK_JUMP;
        // Flags and two registers saved in site slots; compare 8 bytes at a time, then bytes.
        let rax = Gpr(0);
        self.cold.spill(off::spill(slot::BRANCH_RCX), RCX);
        self.cold.spill(off::spill(slot::BRANCH_RDX), RDX);
        self.cold.spill(off::spill(slot::SITE_R3), rax);
        self.cold.flags_to_rax();
        // Code in persistent memory may be unreadable where the program sees it.
        self.cold.mov_imm64(RDX, crate::pm::reach(pc).get());
        let mut fail = Vec::new();
        let mut differs = |e: &mut Emitter| {
            e.bytes(&[0x0F, 0x85]); // jne fail
            fail.push(e.at);
            e.u32(0);
        };
        let (words, rest) = code.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            self.cold.mov_imm64(RCX, u64::from_le_bytes(*word));
            self.cold.bytes(&[0x48, 0x39, 0x8A]); // cmp [rdx+d], rcx
            self.cold.u32(8 * i as u32);
            differs(self.cold);
        }
        for (i, byte) in rest.iter().enumerate() {
            self.cold.bytes(&[0x80, 0xBA]); // cmp byte [rdx+d], imm8
            self.cold.u32((8 * words.len() + i) as u32);
            self.cold.bytes(&[*byte]);
            differs(self.cold);
        }
        let restore = |e: &mut Emitter| {
            e.flags_from_rax();
            e.reload(rax, off::spill(slot::SITE_R3));
            e.reload(RCX, off::spill(slot::BRANCH_RCX));
            e.reload(RDX, off::spill(slot::BRANCH_RDX));
        };
        restore(self.cold);
        self.cold.jmp(back);
        let fail_at = self.cold.at;
        for f in fail {
            // SAFETY: our own bytes, not yet reachable.
            unsafe {
                (f.get() as *mut u32).write_unaligned(crate::emit::rel32(f + 4, fail_at.get()))
            };
        }
        restore(self.cold);
        self.cold.store_imm64(
            core::mem::offset_of!(crate::context::ThreadContext, rip) as u32,
            pc.get(),
        );
        self.cold.leave(exit::CODE_CHANGED);
        // SAFETY: the room left at the body's start; the block is not yet reachable.
        let mut e = unsafe { Emitter::new(self.body, back) };
        e.jmp(check);
        // The first instruction begins at the body, not behind the check: a boundary there
        // re-checks.
        if let Some(first) = self.insns.first_mut() {
            first.code = 0;
        }
    }
}

/// Whether the processor offers transactions at all; without, `xbegin` is an invalid instruction.
fn has_rtm() -> bool {
    brownout_abi::cpu::cpuid(7, 0).ebx & 1 << 11 != 0
}

const _: () = assert!(GRANULES_OFFSET != 0);
