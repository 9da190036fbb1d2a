//! All registers of a thread that has left the cache, for Rust code to read and to change.
//!
//! General registers and flags are in the context anyway. Of vector registers only the low 128 bits
//! are there; what lies above them, mask registers and the x87 stack are still in the processor,
//! because engine code never touches them. They are fetched when they are first asked for, by
//! `xsave`, and put back, by `xrstor`, if they were changed.

use crate::context::ThreadContext;
use alloc::boxed::Box;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};
use iced_x86::Instruction;

/// x87, SSE, AVX, mask registers, and both parts of AVX-512. Not protection keys, which are the
/// process's; not tiles, which are large, and which nobody asks for.
const COMPONENTS: u64 = 0xE7;
const X87: u64 = 1 << 0;
const SSE: u64 = 1 << 1;
const AVX: usize = 2;
const MASKS: usize = 5;
const ZMM_UPPER: usize = 6;
const ZMM_MORE: usize = 7;
/// Where an area of `xsave` says which of its components are not in their initial state.
const HEADER: usize = 512;
const XMM: usize = 160;
/// The control word of an x87 unit in its initial state, which `xsave` does not write.
const FCW: u16 = 0x037F;

/// An area of `xsave`: in its standard form [`COMPONENTS`] fit.
#[repr(C, align(64))]
struct Area([u8; 4096]);

/// See the module's header.
pub struct Machine<'a> {
    ctx: &'a mut ThreadContext,
    area: Option<Box<Area>>,
    is_changed: bool,
}

impl<'a> Machine<'a> {
    /// Of the thread that has just left the cache: nothing but engine code has run since.
    pub fn of(ctx: &'a mut ThreadContext) -> Self {
        Machine {
            ctx,
            area: None,
            is_changed: false,
        }
    }

    /// The thread itself.
    pub fn thread(&mut self) -> &mut ThreadContext {
        self.ctx
    }

    /// A general register, by its hardware number.
    pub fn gpr(&self, n: usize) -> u64 {
        self.ctx.gpr[n & 15]
    }

    /// Changes one.
    pub fn set_gpr(&mut self, n: usize, value: u64) {
        self.ctx.gpr[n & 15] = value;
    }

    /// The address of an instruction's explicit memory operand.
    pub fn address(&self, insn: &Instruction) -> u64 {
        crate::insn::effective_address(self.ctx, insn)
    }

    /// RFLAGS.
    pub fn flags(&self) -> u64 {
        self.ctx.rflags
    }

    /// Changes the six arithmetic flags; the others stay.
    pub fn set_arithmetic_flags(&mut self, value: u64) {
        const ARITHMETIC: u64 = 0x8D5;
        self.ctx.rflags = self.ctx.rflags & !ARITHMETIC | value & ARITHMETIC;
    }

    /// Vector register `n`, of 32, all 512 bits: what the processor does not have is 0.
    pub fn vector(&mut self, n: usize) -> [u64; 8] {
        let mut value = [0; 8];
        if n < 16 {
            let [low, high] = self.ctx.xmm[n];
            value[..2].copy_from_slice(&[low, high]);
            self.read(AVX, 16 * n, &mut value[2..4]);
            self.read(ZMM_UPPER, 32 * n, &mut value[4..]);
        } else {
            self.read(ZMM_MORE, 64 * (n - 16), &mut value);
        }
        value
    }

    /// The low 128 bits of vector register `n`, of 16; the others as 0, because they were not asked
    /// for.
    pub fn low_vector(&self, n: usize) -> [u64; 8] {
        let [low, high] = self.ctx.xmm[n & 15];
        [low, high, 0, 0, 0, 0, 0, 0]
    }

    /// Changes it. What the processor does not have must be 0.
    pub fn set_vector(&mut self, n: usize, value: [u64; 8]) {
        if n < 16 {
            self.ctx.xmm[n] = [value[0], value[1]];
            // Also where `xrstor` would put back what it was.
            let at = XMM + 16 * n;
            let low = &value[..2];
            write_words(&mut self.area().0[at..at + 16], low);
            self.write(AVX, 16 * n, &value[2..4]);
            self.write(ZMM_UPPER, 32 * n, &value[4..]);
        } else {
            self.write(ZMM_MORE, 64 * (n - 16), &value);
        }
    }

    /// Mask register `n`.
    pub fn mask(&mut self, n: usize) -> u64 {
        let mut value = [0];
        self.read(MASKS, 8 * n, &mut value);
        value[0]
    }

    /// Changes it.
    pub fn set_mask(&mut self, n: usize, value: u64) {
        self.write(MASKS, 8 * n, &[value]);
    }

    /// The x87 unit and MXCSR, as `fxsave` lays them out. (The vector registers in it are not the
    /// program's.)
    pub fn legacy(&mut self) -> &[u8; 512] {
        self.area().0.first_chunk().expect("the area is longer")
    }

    /// Changes them.
    pub fn change_legacy(&mut self, change: impl FnOnce(&mut [u8; 512])) {
        change(self.area().0.first_chunk_mut().expect("the area is longer"));
        self.uses(X87 | SSE);
    }

    fn area(&mut self) -> &mut Area {
        let ctx = &*self.ctx;
        self.area.get_or_insert_with(|| {
            let mut area = Box::new(Area([0; 4096]));
            // SAFETY: the area is aligned and large enough for these components, see `place`; the
            // processor has `xsave`, because the operating system could not have switched on what
            // emitted code needs (`rorx`) without.
            unsafe {
                asm!("xsave64 [{}]", in(reg) &raw mut *area, in("eax") COMPONENTS as u32, in("edx") 0, options(nostack, preserves_flags))
            };
            if in_use(&area) & X87 == 0 {
                area.0[..2].copy_from_slice(&FCW.to_le_bytes());
            }
            for (n, xmm) in ctx.xmm.iter().enumerate() {
                write_words(&mut area.0[XMM + 16 * n..][..16], xmm);
            }
            area
        })
    }

    fn read(&mut self, component: usize, at: usize, words: &mut [u64]) {
        let Some(start) = place(component) else {
            return;
        };
        let area = self.area();
        if in_use(area) >> component & 1 == 0 {
            return;
        }
        let (bytes, _) = area.0[start + at..].as_chunks::<8>();
        for (word, bytes) in words.iter_mut().zip(bytes) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    fn write(&mut self, component: usize, at: usize, words: &[u64]) {
        let is_zero = words.iter().all(|w| *w == 0);
        let area = self.area();
        // A component that was never used stays so: the program can see the difference, and the
        // processor feels it.
        if is_zero && in_use(area) >> component & 1 == 0 {
            return self.uses(SSE);
        }
        let Some(start) = place(component) else {
            return;
        };
        write_words(&mut self.area().0[start + at..], words);
        self.uses(SSE | 1 << component);
    }

    fn uses(&mut self, components: u64) {
        self.is_changed = true;
        let area = self.area();
        let now = in_use(area) | components;
        area.0[HEADER..HEADER + 8].copy_from_slice(&now.to_le_bytes());
    }

    /// Puts back what was changed. From here on nothing but engine code runs until the thread is in
    /// the cache again.
    pub fn put_back(self) {
        let Some(area) = self.area.filter(|_| self.is_changed) else {
            return;
        };
        // SAFETY: an area that `xsave` has filled, and changes to values that registers can have.
        // The low parts of vector registers are in the context, from where they are loaded last.
        unsafe {
            asm!("xrstor64 [{}]", in(reg) &raw const *area, in("eax") COMPONENTS as u32, in("edx") 0, options(nostack, preserves_flags),
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _)
        };
    }
}

fn in_use(area: &Area) -> u64 {
    let bytes = area.0[HEADER..].first_chunk().expect("the area is longer");
    u64::from_le_bytes(*bytes)
}

fn write_words(bytes: &mut [u8], words: &[u64]) {
    let (chunks, _) = bytes.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
}

/// Where each component lies in an area, once that was asked: 0 before, [`ABSENT`] if there is
/// none.
static PLACES: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
const ABSENT: u32 = u32::MAX;

/// Where a component lies in an area. `None`: the processor, or the operating system, does not have
/// it.
fn place(component: usize) -> Option<usize> {
    let known = PLACES[component].load(Ordering::Relaxed);
    if known != 0 {
        return (known != ABSENT).then_some(known as usize);
    }
    let place = ask_place(component);
    // The answer is always the same, so it does not matter who writes it down. In a virtual machine
    // the question costs more than all else.
    PLACES[component].store(place.unwrap_or(ABSENT), Ordering::Relaxed);
    place.map(|at| at as usize)
}

fn ask_place(component: usize) -> Option<u32> {
    let all = brownout_abi::cpu::cpuid(0xD, 0).eax;
    if all >> component & 1 == 0 {
        return None;
    }
    let leaf = brownout_abi::cpu::cpuid(0xD, component as u32);
    let (len, start) = (leaf.eax, leaf.ebx);
    (len != 0 && start + len <= size_of::<Area>() as u32).then_some(start)
}
