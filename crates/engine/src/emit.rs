//! Machine code, written byte by byte: the few instruction forms that emitted sequences are made
//! of.
//!
//! Only forms that leave the flags alone are offered, except where a name says otherwise. Program
//! instructions that need a changed operand go through iced's encoder instead.

use crate::address::CacheAddr;
use crate::context::off;

/// A general register by its hardware number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpr(pub u8);
pub const RAX: Gpr = Gpr(0);
pub const RCX: Gpr = Gpr(1);
pub const RDX: Gpr = Gpr(2);

/// Appends to a region of code-cache memory.
pub struct Emitter {
    pub at: CacheAddr,
    end: CacheAddr,
}

impl Emitter {
    /// # Safety
    /// `start..end` is writable code-cache memory that no other emitter uses.
    pub unsafe fn new(start: CacheAddr, end: CacheAddr) -> Self {
        Emitter { at: start, end }
    }

    #[inline]
    pub fn bytes(&mut self, b: &[u8]) {
        if self.at + b.len() as u64 > self.end {
            crate::fatal_bug("code cache block overflow");
        }
        // SAFETY: checked against the region that `new`'s caller promised.
        unsafe { core::ptr::copy_nonoverlapping(b.as_ptr(), self.at.get() as *mut u8, b.len()) };
        self.at += b.len() as u64;
    }

    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.bytes(&v.to_le_bytes());
    }

    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.bytes(&v.to_le_bytes());
    }

    /// `mov gs:[disp], r`
    pub fn spill(&mut self, disp: u32, r: Gpr) {
        self.bytes(&[
            0x65,
            0x48 | (r.0 >> 3) << 2,
            0x89,
            0x04 | (r.0 & 7) << 3,
            0x25,
        ]);
        self.u32(disp);
    }

    /// `mov r, gs:[disp]`
    pub fn reload(&mut self, r: Gpr, disp: u32) {
        self.bytes(&[
            0x65,
            0x48 | (r.0 >> 3) << 2,
            0x8B,
            0x04 | (r.0 & 7) << 3,
            0x25,
        ]);
        self.u32(disp);
    }

    /// `mov dword gs:[disp], imm`
    pub fn store_imm32(&mut self, disp: u32, imm: u32) {
        self.bytes(&[0x65, 0xC7, 0x04, 0x25]);
        self.u32(disp);
        self.u32(imm);
    }

    /// A 64-bit constant into a slot, without a register.
    pub fn store_imm64(&mut self, disp: u32, imm: u64) {
        if imm as i64 == imm as i32 as i64 {
            self.bytes(&[0x65, 0x48, 0xC7, 0x04, 0x25]);
            self.u32(disp);
            self.u32(imm as u32);
        } else {
            self.store_imm32(disp, imm as u32);
            self.store_imm32(disp + 4, (imm >> 32) as u32);
        }
    }

    /// `mov r, imm64`
    pub fn mov_imm64(&mut self, r: Gpr, imm: u64) {
        self.bytes(&[0x48 | r.0 >> 3, 0xB8 | (r.0 & 7)]);
        self.u64(imm);
    }

    /// `jmp gs:[disp]`
    pub fn jmp_gs(&mut self, disp: u32) {
        self.bytes(&[0x65, 0xFF, 0x24, 0x25]);
        self.u32(disp);
    }

    /// `jmp gs:[rdx*8 + disp]`
    pub fn jmp_gs_rdx8(&mut self, disp: u32) {
        self.bytes(&[0x65, 0xFF, 0x24, 0xD5]);
        self.u32(disp);
    }

    /// `mov rcx, gs:[rcx*8 + disp]`
    pub fn mov_rcx_gs_rcx8(&mut self, disp: u32) {
        self.bytes(&[0x65, 0x48, 0x8B, 0x0C, 0xCD]);
        self.u32(disp);
    }

    /// `rorx edx, ecx, shift; movzx edx, dx`
    pub fn index_edx_ecx(&mut self, shift: u8) {
        self.bytes(&[0xC4, 0xE3, 0x7B, 0xF0, 0xD1, shift, 0x0F, 0xB7, 0xD2]);
    }

    /// `movzx edx, dx`
    pub fn movzx_edx_dx(&mut self) {
        self.bytes(&[0x0F, 0xB7, 0xD2]);
    }

    /// `lea r32, [r + addend]`, for the eight old registers but rsp.
    pub fn lea_sum32(&mut self, r: Gpr, addend: u32) {
        self.bytes(&[0x8D, 0x80 | r.0 << 3 | r.0]);
        self.u32(addend);
    }

    /// `xor r32, r32`, for the eight old registers. Changes flags.
    pub fn xor_self(&mut self, r: Gpr) {
        self.bytes(&[0x31, 0xC0 | r.0 << 3 | r.0]);
    }

    /// `mov byte gs:[disp], 1`
    pub fn mark_at(&mut self, disp: u32) {
        self.bytes(&[0x65, 0xC6, 0x04, 0x25]);
        self.u32(disp);
        self.bytes(&[1]);
    }

    /// `mov byte gs:[rdx + disp], 1`
    pub fn mark_at_rdx(&mut self, disp: u32) {
        self.bytes(&[0x65, 0xC6, 0x82]);
        self.u32(disp);
        self.bytes(&[1]);
    }

    /// `lahf; seto al`
    pub fn flags_to_rax(&mut self) {
        self.bytes(&[0x9F, 0x0F, 0x90, 0xC0]);
    }

    /// `add al, 0x7f; sahf`
    pub fn flags_from_rax(&mut self) {
        self.bytes(&[0x04, 0x7F, 0x9E]);
    }

    /// `movzx ecx, cx`
    pub fn movzx_ecx_cx(&mut self) {
        self.bytes(&[0x0F, 0xB7, 0xC9]);
    }

    /// `rorx rcx, r, imm`
    pub fn rorx_rcx(&mut self, r: Gpr, imm: u8) {
        // VEX.LZ.F2.0F3A.W1 F0 /r ib; R and B are stored inverted.
        self.bytes(&[
            0xC4,
            0xC3 | ((r.0 >> 3) ^ 1) << 5,
            0xFB,
            0xF0,
            0xC8 | (r.0 & 7),
            imm,
        ]);
    }

    /// `lea d, [a + b + disp]`, or without `b`
    pub fn lea_sum(&mut self, d: Gpr, a: Gpr, b: Option<Gpr>, disp: i8) {
        // [base + index*1 + disp8]: the disp8 form is valid for every base. rsp as index means none.
        let b = b.unwrap_or(Gpr(4)).0;
        self.bytes(&[
            0x48 | (d.0 >> 3) << 2 | (b >> 3) << 1 | a.0 >> 3,
            0x8D,
            0x44 | (d.0 & 7) << 3,
            (b & 7) << 3 | (a.0 & 7),
            disp as u8,
        ]);
    }

    /// `lea rcx, [rcx + disp]`
    pub fn add_rcx(&mut self, disp: i32) {
        self.bytes(&[0x48, 0x8D, 0x89]);
        self.u32(disp as u32);
    }

    /// `mov [rcx + disp], r`
    pub fn store_at_rcx(&mut self, disp: i8, r: Gpr) {
        self.bytes(&[
            0x48 | (r.0 >> 3) << 2,
            0x89,
            0x41 | (r.0 & 7) << 3,
            disp as u8,
        ]);
    }

    /// `mov dword [rcx + disp], imm`
    pub fn store_imm32_at_rcx(&mut self, disp: i8, imm: u32) {
        self.bytes(&[0xC7, 0x41, disp as u8]);
        self.u32(imm);
    }

    /// `lea rsp, [rsp + imm]`
    pub fn add_rsp(&mut self, imm: i32) {
        self.bytes(&[0x48, 0x8D, 0xA4, 0x24]);
        self.u32(imm as u32);
    }

    /// `push qword [rip + (target - next)]`
    pub fn push_rip(&mut self, target: CacheAddr) {
        let next = self.at + 6;
        self.bytes(&[0xFF, 0x35]);
        self.u32(rel32(next, target.get()));
    }

    /// `jrcxz +rel8`
    pub fn jrcxz(&mut self, rel: u8) {
        self.bytes(&[0xE3, rel]);
    }

    /// Lets the `jrcxz` that ends at `end` go here.
    pub fn jrcxz_goes_here(&mut self, end: CacheAddr) {
        let distance = self.at - end;
        if distance > 127 {
            crate::fatal_bug("a short jump out of reach");
        }
        // SAFETY: our own byte, not yet reachable.
        unsafe { *((end.get() - 1) as *mut u8) = distance as u8 };
    }

    /// `jmp rel32` to a known place. Returns the address of the displacement.
    pub fn jmp(&mut self, target: CacheAddr) -> CacheAddr {
        let next = self.at + 5;
        self.bytes(&[0xE9]);
        let patch = self.at;
        self.u32(rel32(next, target.get()));
        patch
    }

    /// Lets the [`jmp`](Self::jmp) with its displacement at `patch` go here.
    pub fn jmp_goes_here(&mut self, patch: CacheAddr) {
        let distance = rel32(patch + 4, self.at.get());
        // SAFETY: our own four bytes, not yet reachable.
        unsafe { (patch.get() as *mut u32).write_unaligned(distance) };
    }

    /// Pads with no-operations so that the 4 bytes at `at + lead` do not straddle a cache line:
    /// only then is patching them one atomic store for other threads.
    pub fn align_patch(&mut self, lead: u64) {
        let p = (self.at + lead).get();
        if p & 63 > 60 {
            self.nops(64 - (p & 63));
        }
    }

    /// `n` bytes of no-operations.
    pub fn nops(&mut self, mut n: u64) {
        while n > 0 {
            let k: &[u8] = match n {
                1 => &[0x90],
                2 => &[0x66, 0x90],
                _ => &[0x0F, 0x1F, 0x00],
            };
            self.bytes(k);
            n -= k.len() as u64;
        }
    }

    /// Leaves the cache: `exit_arg` says why.
    pub fn leave(&mut self, exit_arg: u64) {
        self.store_imm64(off::EXIT_ARG, exit_arg);
        self.jmp_gs(off::ENTRY_EXIT);
    }
}

/// Displacement from the code at `next` to other code, or to data of the program's; the caller
/// knows that both ends are in reach.
pub fn rel32(next: CacheAddr, target: u64) -> u32 {
    let d = target.wrapping_sub(next.get()) as i64;
    if d != d as i32 as i64 {
        crate::fatal_bug("branch out of reach");
    }
    d as u32
}

/// Whether a rel32 from `next` reaches `target`.
pub fn in_reach(next: CacheAddr, target: u64) -> bool {
    let d = target.wrapping_sub(next.get()) as i64;
    d == d as i32 as i64
}
