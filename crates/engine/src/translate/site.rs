//! Instrumentation: accesses to tracked memory, flushes, fences.
//!
//! A store that was seen to touch tracked memory becomes
//! ```text
//!   hot:  spill rcx; rcx = address; rcx = granules[rcx >> 31]; rcx ≠ 0 → cold
//!         reload rcx; the store as it is
//!   cold: spill r2; r2 = address + rcx (the alias); [ring lock]; the store on [r2]; append the record → next instruction
//! ```
//! Nothing before the store itself writes anything but spill slots, and no flag changes, so a fault
//! restarts cleanly. What does not fit this scheme goes through `pm/irregular.rs`.
//!
//! Who appends the record:
//!
//! | site | by |
//! |---|---|
//! | the first of its block, or with values | `bo_log`, which finds out the calling context and sees to it that there is room for the rest of the block |
//! | further ones, while there is one thread | [`Builder::log_quickly`], which looks nothing up |
//! | further ones of copy loops, or among several threads | a copy of `bo_log_inline` |

use super::builder::{Builder, Decoded, Pass, Placed};
use crate::address::{CacheAddr, ProgramAddr};
use crate::block::Saved;
use crate::context::{
    GRANULE_MIXED, GRANULE_SHIFT, GRANULES_OFFSET, Peer, ThreadContext, off, slot,
};
use crate::emit::{Emitter, Gpr, RAX, RCX, RDX};
use crate::exit;
use crate::pm::{ring, site};
use alloc::vec::Vec;
use brownout_abi::{CONTROL_BASE, Control, HEAD_LEN, RecordHead, kind};
use brownout_insn::{FlushKind, MemoryForm};
use core::mem::offset_of;
use iced_x86::{Code, Encoder, FlowControl, Instruction, MemoryOperand, Mnemonic, Register};

/// Candidates for scratch registers; those below 8 first, because high-byte operands forbid REX.
const SCRATCH: [u8; 11] = [2, 6, 7, 3, 0, 8, 9, 10, 11, 12, 13];

/// Where the System V calling convention passes the first five integer arguments: rdi, rsi, rdx,
/// rcx, r8.
const CALL_ARGUMENTS: [Gpr; 5] = [Gpr(7), Gpr(6), RDX, RCX, Gpr(8)];

/// See the module's header.
pub struct PmTracking;

impl Pass for PmTracking {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.record
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        if let Some(function) = crate::pm::hooks::at(d.pc()) {
            b.library_call(d.pc(), function);
        }
    }

    fn instead(&self, b: &mut Builder, d: &Decoded) -> Placed {
        /// `rol rdi, 3`, with which client requests begin.
        const PREAMBLE: [u8; 4] = [0x48, 0xC1, 0xC7, 0x03];
        let next = d.behind();
        if d.raw == PREAMBLE
            && d.rest[PREAMBLE.len()..].starts_with(&crate::requests::PREAMBLE_REST)
        {
            let behind = next + crate::requests::PREAMBLE_REST.len() as u64;
            // Fast requests go on in this block.
            b.request(d.pc(), behind);
            return Placed::Instead(behind);
        }
        let is_straight = matches!(
            d.insn.flow_control(),
            FlowControl::Next | FlowControl::Exception | FlowControl::Interrupt
        );
        match is_straight && b.instrument(&d.insn, d.raw) {
            true => Placed::Instead(next),
            false => Placed::Nothing,
        }
    }
}

impl Builder<'_> {
    /// Emits an instrumented form. False: nothing to instrument, copy it.
    fn instrument(&mut self, insn: &Instruction, raw: &[u8]) -> bool {
        let pc = ProgramAddr::of(insn);
        let flush = matches!(
            insn.mnemonic(),
            Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb
        );
        let known = site::any_known() && site::is_known(pc);
        if flush || known {
            let form = brownout_insn::classify(insn);
            match form {
                MemoryForm::None | MemoryForm::StackImplicit => {}
                MemoryForm::Flush(k) => return self.flush(insn, raw, k),
                MemoryForm::Unsupported(_) => {
                    self.begin(pc, Saved::NONE);
                    self.special(exit::UNSUPPORTED, pc, 0);
                    return true;
                }
                MemoryForm::Explicit { effect } => {
                    if !self.regular(insn, raw, effect) {
                        self.irregular(insn, raw, form);
                    }
                    return true;
                }
                _ => {
                    self.irregular(insn, raw, form);
                    return true;
                }
            }
        }
        match brownout_insn::fence(insn) {
            Some(brownout_insn::FenceKind::Locked) => {
                self.begin(pc, Saved::NONE);
                self.copy(insn, raw);
                self.locked_tail(insn);
                true
            }
            Some(_) => {
                self.begin(pc, Saved::NONE);
                let is_sfence = insn.mnemonic() == Mnemonic::Sfence;
                // With write-backs and non-temporal stores to tracked memory not done as such,
                // `sfence` orders nothing that a lone thread could tell; but it waits until the
                // other core has given up the ring's lines.
                let has_effect = !is_sfence || ring::shared() || crate::mode().execute_flushes;
                if has_effect {
                    self.copy(insn, raw);
                }
                let which = if is_sfence { 0 } else { 1 };
                let s = site::new(
                    site::id(pc),
                    pc,
                    ProgramAddr::behind(insn),
                    kind::FENCE,
                    which,
                    0,
                    RDX.0,
                    *insn,
                    MemoryForm::None,
                    false,
                );
                self.share_context(s);
                self.hot.spill(off::spill(slot::SITE_RCX), RCX);
                if let Some(tail) = quick(s) {
                    self.hot.spill(off::spill(slot::SITE_R2), RDX);
                    Self::log_quickly(self.hot, s, tail, Address::None, RDX, CacheAddr::NONE);
                } else {
                    self.hot.store_imm64(off::SITE_ADDR, 0);
                    if ring::shared() {
                        // The fence is done; only its record waits: there is nothing to restart.
                        lock_or_wait(self.hot, s);
                    }
                    Self::log(self.hot, s, CacheAddr::NONE);
                }
                s.next_code = self.hot.at;
                self.sites.push(s);
                true
            }
            None => false,
        }
    }

    /// Gives a site its block's token; the first one of a block forgets what an earlier execution
    /// left.
    fn share_context(&mut self, s: &mut site::Site) {
        s.token = *self.token.get_or_insert_with(|| {
            self.hot.store_imm64(off::LAST_TOKEN, 0);
            s.id.into()
        });
    }

    /// Logs site `s` and goes on at `next`; 0: behind. The program's rcx is in its slot, the
    /// address in `site_addr`.
    fn log(e: &mut Emitter, s: &site::Site, next: CacheAddr) {
        e.mov_imm64(RCX, s as *const _ as u64);
        if s.has_value() || s.finds_context() {
            e.jmp_gs(off::ENTRY_LOG);
            return;
        }
        e.bytes(crate::asm::log_inline());
        e.reload(RCX, off::spill(slot::SITE_RCX));
        if !next.is_none() {
            e.jmp(next);
        }
    }

    /// As [`Self::log`], where [`quick`] says so, with the program's `r2` in its slot, too. Between
    /// a program's cache misses every instruction counts: they fill the window in which the
    /// processor finds the next miss.
    fn log_quickly(
        e: &mut Emitter,
        s: &site::Site,
        tail: u32,
        addr: Address,
        r2: Gpr,
        next: CacheAddr,
    ) {
        // -- did an earlier site of this block log since the block was entered? Then there is room,
        // and the context is known.
        e.reload(RCX, off::LAST_TOKEN);
        e.add_rcx(-(s.token as i32));
        e.jrcxz(0);
        let known = e.at;
        addr.put_into(e, r2);
        e.spill(off::SITE_ADDR, r2);
        e.reload(r2, off::spill(slot::SITE_R2));
        e.mov_imm64(RCX, s as *const _ as u64);
        e.jmp_gs(off::ENTRY_LOG);
        e.jrcxz_goes_here(known);
        // -- the record
        e.reload(RCX, tail);
        e.mov_imm64(r2, s.head | Peer::current().thread_bits());
        e.store_at_rcx(0, r2);
        e.reload(r2, off::LAST_CONTEXT);
        e.store_at_rcx(offset_of!(RecordHead, ctx) as i8, r2);
        e.store_imm32_at_rcx(offset_of!(RecordHead, size) as i8, s.size);
        addr.put_into(e, r2);
        e.store_at_rcx(offset_of!(RecordHead, addr) as i8, r2);
        e.add_rcx(HEAD_LEN as i32);
        // Whoever is killed before leaves nothing, and a whole record after.
        e.spill(tail, RCX);
        if s.unfenced != 2 {
            e.store_imm64(off::UNFENCED, s.unfenced.into());
        }
        e.reload(r2, off::spill(slot::SITE_R2));
        e.reload(RCX, off::spill(slot::SITE_RCX));
        if !next.is_none() {
            e.jmp(next);
        }
    }

    /// Lets a store or write-back share a record with its neighbours: see [`site::Site::join`].
    /// Wide stores are copy loops, whose instructions a report need not tell apart; smaller ones
    /// are fields of structures.
    fn join(&self, s: &mut site::Site, record: u8) {
        const WIDE: u32 = 32;
        const WIDE_NON_TEMPORAL: u32 = 16;
        if !crate::mode().lean || crate::mode().values {
            return;
        }
        let is_wide = match record {
            kind::STORE => s.size >= WIDE,
            kind::NT_STORE => s.size >= WIDE_NON_TEMPORAL,
            kind::CLFLUSH | kind::CLFLUSHOPT | kind::CLWB => false,
            _ => return,
        };
        s.join = s.id;
        if is_wide {
            let is_alike =
                |other: &&&site::Site| other.is_wide && (other.head >> 8) as u8 == record;
            s.is_wide = true;
            if let Some(first) = self.sites.iter().find(is_alike) {
                s.join = first.join;
                s.head = s.head as u32 as u64 | (s.join as u64) << 32;
            }
        }
    }

    /// A client request at `pc`. Plain ones are appended without leaving; the program goes on at
    /// `next`.
    fn request(&mut self, pc: ProgramAddr, next: ProgramAddr) {
        self.begin(pc, Saved::site(RDX.0));
        let s = site::new(
            site::id(pc),
            pc,
            next,
            kind::REQUEST,
            40,
            2,
            RDX.0,
            Instruction::default(),
            MemoryForm::None,
            true,
        );
        self.share_context(s);
        self.hot.spill(off::spill(slot::SITE_RCX), RCX);
        self.hot.spill(off::spill(slot::SITE_R2), RDX);
        self.hot
            .store_imm64(offset_of!(ThreadContext, rip) as u32, pc.get());
        self.hot.mov_imm64(RCX, s as *const _ as u64);
        self.hot.jmp_gs(off::ENTRY_REQUEST);
        s.next_code = self.hot.at;
        self.sites.push(s);
    }

    /// The program enters library function number `function` at `pc`, whose first instruction
    /// follows.
    fn library_call(&mut self, pc: ProgramAddr, function: u32) {
        self.begin(pc, Saved::NONE);
        let s = site::new(
            site::id(pc),
            pc,
            pc,
            kind::CALL,
            size_of::<[u64; 5]>() as u32,
            2,
            RDX.0,
            Instruction::default(),
            MemoryForm::None,
            true,
        );
        self.share_context(s);
        for (i, register) in CALL_ARGUMENTS.into_iter().enumerate() {
            self.hot.spill(off::CALL_ARGS + 8 * i as u32, register);
        }
        self.hot.spill(off::spill(slot::SITE_RCX), RCX);
        // rcx = linear address of the arguments: bo_log takes the value from there.
        self.hot.reload(RCX, off::SELF);
        self.hot.bytes(&[0x48, 0x8D, 0x89]); // lea rcx, [rcx + disp32]
        self.hot.u32(off::CALL_ARGS);
        self.hot.spill(off::SITE_ALIAS, RCX);
        self.hot.store_imm64(off::SITE_ADDR, function.into());
        if ring::shared() {
            lock_or_wait(self.hot, s);
        }
        self.hot.mov_imm64(RCX, s as *const _ as u64);
        self.hot.jmp_gs(off::ENTRY_LOG);
        s.next_code = self.hot.at;
        self.sites.push(s);
    }

    /// Behind a locked instruction on ordinary memory: a fence, if this thread has something to
    /// fence.
    fn locked_tail(&mut self, insn: &Instruction) {
        let pc = ProgramAddr::of(insn);
        let s = site::new(
            site::id(pc),
            pc,
            ProgramAddr::behind(insn),
            kind::FENCE,
            2,
            0,
            RDX.0,
            *insn,
            MemoryForm::None,
            false,
        );
        self.hot.spill(off::spill(slot::SITE_RCX), RCX);
        self.hot.reload(RCX, off::UNFENCED);
        self.hot.jrcxz(5);
        let cold = self.cold.at;
        self.hot.jmp(cold);
        self.hot.reload(RCX, off::spill(slot::SITE_RCX));
        self.cold.store_imm64(off::SITE_ADDR, 0);
        self.cold.store_imm64(off::LAST_TOKEN, 0);
        if ring::shared() {
            lock_or_wait(self.cold, s);
        }
        self.cold.mov_imm64(RCX, s as *const _ as u64);
        self.cold.jmp_gs(off::ENTRY_LOG);
        s.next_code = self.hot.at;
        self.sites.push(s);
    }

    /// The check whether the operand is tracked. Leaves the hot part in the "no" case with
    /// registers reloaded, and goes to [`Builder::finish_cold`] in the "yes" case, with rcx =
    /// distance.
    fn check(&mut self, operand: &Operand) -> PendingJump {
        let e = &mut *self.hot;
        e.spill(off::spill(slot::SITE_RCX), RCX);
        match operand.base {
            Some(base) => e.rorx_rcx(base, GRANULE_SHIFT as u8),
            None => {
                e.bytes(&operand.into_rcx);
                e.rorx_rcx(RCX, GRANULE_SHIFT as u8);
            }
        }
        e.movzx_ecx_cx();
        e.mov_rcx_gs_rcx8(GRANULES_OFFSET);
        e.jrcxz(5);
        let jump = PendingJump(e.jmp(e.at));
        e.reload(RCX, off::spill(slot::SITE_RCX));
        jump
    }

    fn regular(&mut self, insn: &Instruction, raw: &[u8], effect: brownout_insn::Effect) -> bool {
        let pc = ProgramAddr::of(insn);
        let loads = crate::mode().loads;
        let plain_operand = insn.segment_prefix() == Register::None
            && insn.memory_base().size() != 4
            && insn.memory_index().size() != 4
            && insn.mnemonic() != Mnemonic::Pop
            && insn.mnemonic() != Mnemonic::Push;
        if !plain_operand
            || effect.size == 0
            || effect.size > 64
            || loads && effect.read && effect.write && !effect.locked
        {
            return false;
        }
        let (record, unfenced) = match effect {
            e if e.locked => (kind::RMW, 0),
            e if e.write && e.non_temporal => (kind::NT_STORE, 1),
            e if e.write => (kind::STORE, 2),
            e if e.read && loads => (kind::LOAD, 2),
            _ => return false,
        };
        let used = crate::insn::gprs_used(insn);
        let mut free = SCRATCH
            .into_iter()
            .filter(|r| used & 1 << r == 0 && *r != 1);
        let (Some(r2), Some(r3)) = (free.next(), free.find(|r| *r != RAX.0)) else {
            return false;
        };
        let (r2, r3) = (Gpr(r2), Gpr(r3));
        let mut redirected = [0u8; 15];
        let Some(mut n) =
            brownout_insn::redirect_bytes(insn, raw, crate::insn::register(r2.0), &mut redirected)
        else {
            return false;
        };
        let Some(operand) = Operand::of(insn, r2) else {
            return false;
        };
        if effect.non_temporal
            && effect.write
            && !crate::mode().execute_flushes
            && let Some((bytes, len)) = temporal(insn, r2)
        {
            (redirected, n) = (bytes, len);
        }
        let form = MemoryForm::Explicit { effect };
        let value = crate::mode().values;
        let s = site::new(
            site::id(pc),
            pc,
            ProgramAddr::behind(insn),
            record,
            effect.size,
            unfenced,
            r2.0,
            *insn,
            form,
            value,
        );
        self.begin(pc, Saved::CHECK);
        self.share_context(s);
        self.join(s, record);
        let cold = self.cold.at;
        let jump = self.check(&operand);
        self.copy(insn, raw);
        if effect.locked {
            self.locked_tail(insn);
        }
        s.next_code = self.hot.at;
        let access = Access {
            bytes: &redirected[..n],
            uses_rcx: used & 1 << RCX.0 != 0,
            value,
            is_store: !effect.read,
        };
        s.fast = self.finish_cold(jump, s, &operand, (r2, r3), access, s.next_code);
        self.two_step(s, insn, raw, &redirected[..n], cold);
        self.sites.push(s);
        true
    }

    /// The cold part behind [`Builder::check`]: access on the alias and record. Yields the stretch
    /// of code in which the program's rcx and `r2` are in their slots if the access faults.
    fn finish_cold(
        &mut self,
        jump: PendingJump,
        s: &site::Site,
        operand: &Operand,
        (r2, r3): (Gpr, Gpr),
        access: Access,
        next: CacheAddr,
    ) -> (CacheAddr, CacheAddr) {
        let payload = s as *const _ as u64;
        let quick = quick(s);
        let e = &mut *self.cold;
        // A granule shared with other memory is the engine's business.
        let mixed = e.at;
        e.reload(RCX, off::spill(slot::SITE_RCX));
        e.leave(exit::SITE_BEGIN | payload << 8);
        let start = e.at;
        jump.goes_to(start);
        // rcx = distance - 1: 0 means mixed.
        e.lea_sum(RCX, RCX, None, -(GRANULE_MIXED as i8));
        e.jrcxz((mixed - (e.at + 2)) as u8);
        // The address again behind the access, or from its slot.
        let addr = match quick {
            Some(_) if !operand.has_rcx && access.is_store => Address::Code(&operand.into_r2),
            _ => Address::Slot,
        };
        e.spill(off::spill(slot::SITE_R2), r2);
        if operand.has_rcx {
            e.lea_sum(r2, RCX, None, GRANULE_MIXED as i8);
            e.reload(RCX, off::spill(slot::SITE_RCX));
            e.bytes(&operand.into_rcx);
            e.spill(off::SITE_ADDR, RCX);
            e.lea_sum(r2, r2, Some(RCX), 0);
        } else {
            e.bytes(&operand.into_r2);
            if let Address::Slot = addr {
                e.spill(off::SITE_ADDR, r2);
            }
            e.lea_sum(r2, r2, Some(RCX), GRANULE_MIXED as i8);
        }
        if access.value {
            e.spill(off::SITE_ALIAS, r2);
        }
        if ring::shared() {
            self.lock(payload, r2, r3);
        }
        let e = &mut *self.cold;
        if access.uses_rcx {
            e.reload(RCX, off::spill(slot::SITE_RCX));
        }
        e.bytes(access.bytes);
        if access.uses_rcx {
            // It may be other now (a load, an exchange).
            e.spill(off::spill(slot::SITE_RCX), RCX);
        }
        let end = e.at;
        match quick {
            Some(tail) => Self::log_quickly(e, s, tail, addr, r2, next),
            None => {
                e.reload(r2, off::spill(slot::SITE_R2));
                Self::log(e, s, next);
            }
        }
        (start, end)
    }

    /// Takes the ring lock, or leaves to wait and start the instruction over.
    fn lock(&mut self, payload: u64, r2: Gpr, r3: Gpr) {
        /// Another thread has the lock for the length of a record: waiting here is cheaper than
        /// leaving.
        const ATTEMPTS: usize = 4;
        let e = &mut *self.cold;
        e.spill(off::spill(slot::SITE_R3), r3);
        try_lock(e, r3, ATTEMPTS, |e| {
            e.reload(r3, off::spill(slot::SITE_R3));
            e.reload(RCX, off::spill(slot::SITE_RCX));
            e.reload(r2, off::spill(slot::SITE_R2));
            e.leave(exit::LOCKED | payload << 8);
        });
        e.reload(r3, off::spill(slot::SITE_R3));
    }

    fn flush(&mut self, insn: &Instruction, raw: &[u8], k: FlushKind) -> bool {
        let pc = ProgramAddr::of(insn);
        let record = match k {
            FlushKind::Clflush => kind::CLFLUSH,
            FlushKind::Clflushopt => kind::CLFLUSHOPT,
            FlushKind::Clwb => kind::CLWB,
        };
        let used = crate::insn::gprs_used(insn);
        let mut free = SCRATCH
            .into_iter()
            .filter(|r| used & 1 << r == 0 && *r != 1);
        let (Some(r2), Some(r3)) = (free.next(), free.find(|r| *r != RAX.0)) else {
            crate::fatal_bug("no scratch register")
        };
        let (r2, r3) = (Gpr(r2), Gpr(r3));
        let mut redirected = [0u8; 15];
        let Some(n) =
            brownout_insn::redirect_bytes(insn, raw, crate::insn::register(r2.0), &mut redirected)
        else {
            crate::fatal_bug("cannot redirect a flush")
        };
        // clflush needs no fence.
        let unfenced = if record == kind::CLFLUSH { 2 } else { 1 };
        let s = site::new(
            site::id(pc),
            pc,
            ProgramAddr::behind(insn),
            record,
            LINE,
            unfenced,
            r2.0,
            *insn,
            MemoryForm::Flush(k),
            false,
        );
        // Like the write-back it stands for, a load faults where nothing is mapped.
        let touch = touch(r2);
        let redirected = match crate::mode().execute_flushes {
            true => &redirected[..n],
            false => &touch[..],
        };
        // The other segments begin at 0.
        let has_base = matches!(insn.segment_prefix(), Register::FS | Register::GS);
        let Some(operand) = Operand::of(insn, r2).filter(|_| !has_base) else {
            self.through_engine(s, insn, raw, redirected);
            return true;
        };
        self.begin(pc, Saved::CHECK);
        let cold = self.cold.at;
        self.share_context(s);
        self.join(s, record);
        let jump = self.check(&operand);
        // Ordinary memory: rare where files are tracked, and then worth telling, until enough is
        // told.
        let payload = &raw const *s as u64;
        self.hot.mov_imm64(RCX, &raw const s.tells_outside as u64);
        self.hot.bytes(&[0x48, 0x8B, 0x09]); // mov rcx, [rcx]
        self.hot.jrcxz(0);
        let end = self.hot.at;
        self.hot.reload(RCX, off::spill(slot::SITE_RCX));
        self.hot.leave(exit::SITE_BEGIN | payload << 8);
        self.hot.jrcxz_goes_here(end);
        self.hot.reload(RCX, off::spill(slot::SITE_RCX));
        self.copy(insn, raw);
        s.next_code = self.hot.at;
        let access = Access {
            bytes: redirected,
            uses_rcx: false,
            value: false,
            is_store: true,
        };
        s.fast = self.finish_cold(jump, s, &operand, (r2, r3), access, s.next_code);
        self.two_step(s, insn, raw, redirected, cold);
        self.sites.push(s);
        true
    }

    /// An access or write-back whose bytes are not known before.
    fn irregular(&mut self, insn: &Instruction, raw: &[u8], form: MemoryForm) {
        let pc = ProgramAddr::of(insn);
        let used = crate::insn::gprs_used(insn);
        let mut redirected = [0u8; 15];
        let implicit = matches!(
            form,
            MemoryForm::String(_) | MemoryForm::ImplicitRdi(_) | MemoryForm::ImplicitRax { .. }
        );
        let mut scratch = 2;
        let mut n = 0;
        if implicit || matches!(form, MemoryForm::Gather(_) | MemoryForm::Scatter(_)) {
            redirected[..raw.len()].copy_from_slice(raw);
            n = raw.len();
        } else {
            for r in SCRATCH.into_iter().chain([1]) {
                if used & 1 << r != 0 {
                    continue;
                }
                if let Some(len) = brownout_insn::redirect_bytes(
                    insn,
                    raw,
                    crate::insn::register(r),
                    &mut redirected,
                ) {
                    (scratch, n) = (r, len);
                    break;
                }
            }
            if n == 0 {
                self.begin(pc, Saved::NONE);
                self.special(exit::UNSUPPORTED, pc, 0);
                return;
            }
        }
        let s = site::new(
            site::id(pc),
            pc,
            ProgramAddr::behind(insn),
            0,
            0,
            2,
            scratch,
            *insn,
            form,
            false,
        );
        self.through_engine(s, insn, raw, &redirected[..n]);
    }

    /// Asks the engine before and after each execution.
    fn through_engine(
        &mut self,
        s: &'static mut site::Site,
        insn: &Instruction,
        raw: &[u8],
        redirected: &[u8],
    ) {
        self.begin(ProgramAddr::of(insn), Saved::NONE);
        let cold = self.cold.at;
        let payload = &raw const *s as u64;
        self.hot.leave(exit::SITE_BEGIN | payload << 8);
        s.next_code = self.hot.at;
        self.two_step(s, insn, raw, redirected, cold);
        self.sites.push(s);
    }

    /// The instruction on its alias, and as it is, for `pm/irregular.rs` to send the thread to.
    fn two_step(
        &mut self,
        s: &mut site::Site,
        insn: &Instruction,
        raw: &[u8],
        redirected: &[u8],
        cold: CacheAddr,
    ) {
        s.redirected = self.cold.at;
        self.cold.bytes(redirected);
        self.cold
            .leave(exit::SITE_END | (s as *const _ as u64) << 8);
        s.original = self.cold.at;
        core::mem::swap(self.hot, self.cold);
        let saved = self.insns.last().expect("begun").saved;
        self.copy(insn, raw);
        // `copy` may have saved registers of its own; that belongs to the hot copy only.
        self.insns.last_mut().expect("begun").saved = saved;
        core::mem::swap(self.hot, self.cold);
        self.cold.jmp(s.next_code);
        s.cold = (cold, self.cold.at);
    }
}

/// Bytes that a write-back writes back.
const LINE: u32 = 64;

/// A jump whose target is not known yet: the address of its rel32.
struct PendingJump(CacheAddr);

impl PendingJump {
    fn goes_to(self, target: CacheAddr) {
        let displacement = crate::emit::rel32(self.0 + 4, target.get());
        // SAFETY: our own bytes, not yet reachable.
        unsafe { (self.0.get() as *mut u32).write_unaligned(displacement) };
    }
}

/// The access itself, as the cold part makes it.
struct Access<'a> {
    /// On `[r2]`.
    bytes: &'a [u8],
    /// Names or implies rcx.
    uses_rcx: bool,
    /// The record has the value.
    value: bool,
    /// Changes no register but the scratch register.
    is_store: bool,
}

/// Where the address of a record comes from.
enum Address<'a> {
    /// There is none.
    None,
    /// Already in `site_addr`.
    Slot,
    /// This code puts it into the site's scratch register.
    Code(&'a [u8]),
}

impl Address<'_> {
    fn put_into(&self, e: &mut Emitter, r2: Gpr) {
        match self {
            Address::None => e.mov_imm64(r2, 0),
            Address::Slot => e.reload(r2, off::SITE_ADDR),
            Address::Code(code) => e.bytes(code),
        }
    }
}

/// Whether [`Builder::log_quickly`] is for this site: displacement from GS to the ring's tail. A
/// lone thread needs no lock; behind another record of the same block (but in copy loops) there is
/// nothing to find out and nothing to join.
fn quick(s: &site::Site) -> Option<u32> {
    if ring::shared() || s.has_value() || s.is_wide || s.finds_context() {
        return None;
    }
    let tail = CONTROL_BASE + offset_of!(Control, ring_tail) as u64;
    let distance = tail.wrapping_sub(Peer::current().address()) as i64;
    i32::try_from(distance).ok().map(|d| d as u32)
}

/// How the address of a memory operand comes into a register.
struct Operand {
    /// The register that holds it as it is.
    base: Option<Gpr>,
    /// rcx is part of it.
    has_rcx: bool,
    into_rcx: Vec<u8>,
    into_r2: Vec<u8>,
}

impl Operand {
    /// `None` for operands that `lea` cannot express.
    fn of(insn: &Instruction, r2: Gpr) -> Option<Operand> {
        let (base, index) = (insn.memory_base(), insn.memory_index());
        let alone = base.is_gpr64() && index == Register::None && insn.memory_displacement64() == 0;
        Some(Operand {
            base: alone.then(|| Gpr(base.number() as u8)),
            has_rcx: base == Register::RCX || index == Register::RCX,
            into_rcx: address_code(insn, RCX)?,
            into_r2: address_code(insn, r2)?,
        })
    }
}

/// The ordinary store with the effect of a non-temporal one, on `[r2]`. Like flushes, non-temporal
/// stores are events, not work: on ordinary files they gain nothing, and reading the value back
/// would wait for the memory controller.
fn temporal(insn: &Instruction, r2: Gpr) -> Option<([u8; 15], usize)> {
    use Code::*;
    let code = match insn.code() {
        Movnti_m32_r32 => Mov_rm32_r32,
        Movnti_m64_r64 => Mov_rm64_r64,
        Movntq_m64_mm => Movq_mmm64_mm,
        Movntps_m128_xmm => Movaps_xmmm128_xmm,
        Movntpd_m128_xmm => Movapd_xmmm128_xmm,
        Movntdq_m128_xmm => Movdqa_xmmm128_xmm,
        VEX_Vmovntps_m128_xmm => VEX_Vmovaps_xmmm128_xmm,
        VEX_Vmovntps_m256_ymm => VEX_Vmovaps_ymmm256_ymm,
        VEX_Vmovntpd_m128_xmm => VEX_Vmovapd_xmmm128_xmm,
        VEX_Vmovntpd_m256_ymm => VEX_Vmovapd_ymmm256_ymm,
        VEX_Vmovntdq_m128_xmm => VEX_Vmovdqa_xmmm128_xmm,
        VEX_Vmovntdq_m256_ymm => VEX_Vmovdqa_ymmm256_ymm,
        EVEX_Vmovntps_m128_xmm => EVEX_Vmovaps_xmmm128_k1z_xmm,
        EVEX_Vmovntps_m256_ymm => EVEX_Vmovaps_ymmm256_k1z_ymm,
        EVEX_Vmovntps_m512_zmm => EVEX_Vmovaps_zmmm512_k1z_zmm,
        EVEX_Vmovntpd_m128_xmm => EVEX_Vmovapd_xmmm128_k1z_xmm,
        EVEX_Vmovntpd_m256_ymm => EVEX_Vmovapd_ymmm256_k1z_ymm,
        EVEX_Vmovntpd_m512_zmm => EVEX_Vmovapd_zmmm512_k1z_zmm,
        EVEX_Vmovntdq_m128_xmm => EVEX_Vmovdqa32_xmmm128_k1z_xmm,
        EVEX_Vmovntdq_m256_ymm => EVEX_Vmovdqa32_ymmm256_k1z_ymm,
        EVEX_Vmovntdq_m512_zmm => EVEX_Vmovdqa32_zmmm512_k1z_zmm,
        _ => return None,
    };
    let mut i = brownout_insn::redirect(insn, crate::insn::register(r2.0))?;
    i.set_code(code);
    let mut out = [0u8; 15];
    let n = brownout_insn::encode(&i, 0, &mut out).ok()?;
    Some((out, n))
}

/// `movzx r2d, byte [r2]`. A write-back names two registers at most, so its scratch register is one
/// of the first.
fn touch(r2: Gpr) -> [u8; 3] {
    if !matches!(r2.0, 0 | 2 | 3 | 6 | 7) {
        crate::fatal_bug("unencodable scratch register of a write-back");
    }
    [0x0F, 0xB6, r2.0 << 3 | r2.0]
}

/// Code that puts the address of the memory operand into `r`; `None` for operands that `lea` cannot
/// express.
pub(super) fn address_code(insn: &Instruction, r: Gpr) -> Option<Vec<u8>> {
    let absolute = if insn.is_ip_rel_memory_operand() {
        Some(insn.ip_rel_memory_address())
    } else if insn.memory_base() == Register::None && insn.memory_index() == Register::None {
        // Also the 64-bit absolute addresses that only `mov` with the accumulator has.
        Some(insn.memory_displacement64())
    } else {
        None
    };
    if let Some(addr) = absolute {
        let mut code = alloc::vec![0x48 | r.0 >> 3, 0xB8 | (r.0 & 7)];
        code.extend_from_slice(&addr.to_le_bytes());
        return Some(code);
    }
    let narrow = |r: Register| r != Register::None && r.size() != 8;
    if narrow(insn.memory_base()) || narrow(insn.memory_index()) {
        return None;
    }
    let mem = MemoryOperand::new(
        insn.memory_base(),
        insn.memory_index(),
        insn.memory_index_scale(),
        insn.memory_displacement64() as i64,
        insn.memory_displ_size(),
        false,
        Register::None,
    );
    let lea = Instruction::with2(Code::Lea_r64_m, crate::insn::register(r.0), mem).ok()?;
    let mut encoder = Encoder::new(64);
    encoder.encode(&lea, 0).ok()?;
    Some(encoder.take_buffer())
}

/// Takes the ring lock, or lets engine code wait for it and append the record of `s`. The program's
/// rcx is in its slot; everything else stays as it is.
fn lock_or_wait(e: &mut Emitter, s: &site::Site) {
    const ATTEMPTS: usize = 8;
    e.spill(off::spill(slot::SITE_R2), RDX);
    try_lock(e, RDX, ATTEMPTS, |e| {
        e.reload(RDX, off::spill(slot::SITE_R2));
        e.reload(RCX, off::spill(slot::SITE_RCX));
        e.leave(exit::LOG_WAITING | (&raw const *s as u64) << 8);
    });
    e.reload(RDX, off::spill(slot::SITE_R2));
}

/// Tries to put this thread's number into the ring lock, and goes on behind if that worked, else
/// with what `fail` emits. Changes rcx and `at`, which is neither rcx nor rax.
///
/// One compare-and-exchange: the lock says from its first moment on who has it. (An `xchg` of a
/// mark, and the name behind it, would leave the flags alone and cost less; but then there is a
/// moment at which a thread that had the lock before, and is still named, takes itself for its
/// holder.)
fn try_lock(e: &mut Emitter, at: Gpr, attempts: usize, fail: impl FnOnce(&mut Emitter)) {
    e.mov_imm64(at, CONTROL_BASE + offset_of!(Control, ring_lock) as u64);
    e.spill(off::spill(slot::ASM), RAX);
    e.flags_to_rax();
    e.spill(off::spill(slot::ASM + 1), RAX);
    e.bytes(&[0x65, 0x8B, 0x0C, 0x25]); // mov ecx, gs:[thread]
    e.u32(offset_of!(ThreadContext, thread) as u32);
    let restore = |e: &mut Emitter| {
        e.reload(RAX, off::spill(slot::ASM + 1));
        e.flags_from_rax();
        e.reload(RAX, off::spill(slot::ASM));
    };
    // With no or one more byte of address, as the register wants it, and 8 bits of displacement.
    let operand = |e: &mut Emitter, reg: u8, displacement: u8| {
        e.bytes(&[0x40 | reg << 3 | (at.0 & 7)]);
        if at.0 & 7 == 4 {
            e.bytes(&[0x24]);
        }
        e.bytes(&[displacement]);
    };
    let high = 0x40 | at.0 >> 3;
    e.bytes(&[high, 0x83]); // cmp dword [at + 4], 0: `ring_wanted`
    operand(e, 7, 4);
    e.bytes(&[0, 0x0F, 0x85]); // jne
    let gives_way = PendingJump(e.at);
    e.u32(0);
    let mut got = Vec::with_capacity(attempts);
    for i in 0..attempts {
        if i > 0 {
            e.bytes(&[0xF3, 0x90]); // pause
        }
        e.bytes(&[0x31, 0xC0]); // xor eax, eax
        e.bytes(&[0xF0, high, 0x0F, 0xB1]); // lock cmpxchg [at], ecx
        operand(e, RCX.0, 0);
        e.bytes(&[0x0F, 0x84]); // je
        got.push(PendingJump(e.at));
        e.u32(0);
    }
    gives_way.goes_to(e.at);
    restore(e);
    fail(e);
    for jump in got {
        jump.goes_to(e.at);
    }
    restore(e);
}
