//! Executes instructions on this processor with all registers and a window of memory given, and
//! tells them afterwards, fault or not.
//!
//! The state lies in statics while instructions run, so callers hold [`Machine`], of which one
//! exists at a time.

use brownout_abi::cpu::{Feature, Features, HIDE_VARIABLE, cpuid};
use brownout_flow::{Flag, Place, PlaceKind};
use brownout_insn::{XsaveLayout, feature_of};
use iced_x86::Instruction;
use std::arch::x86_64::_xgetbv;
use std::sync::{Mutex, MutexGuard};

/// x87, SSE, AVX and the three AVX-512 components; PKRU must stay as it is.
const COMPONENTS: u64 = 0xE7;
const IMAGE_BYTES: usize = 4096;
/// The memory that instructions may use.
pub const WINDOW_BYTES: usize = 4096;
const PAGE: usize = 4096;

/// The flags in the order of [`Flag::ALL`]; the last is `ID`, which stands for all others.
const FLAG_BITS: [u32; 8] = [0, 2, 4, 6, 7, 10, 11, 21];
const RFLAGS_BASE: u64 = 0x202;

const FCW: usize = 0;
const FSW: usize = 2;
const FTW: usize = 4;
const MXCSR: usize = 24;
const ST_AT: usize = 32;
const XMM_AT: usize = 160;
const XSTATE_BV: usize = 512;
const AVX: usize = 2;
const OPMASK: usize = 5;
const ZMM_HI256: usize = 6;
const HI16_ZMM: usize = 7;
const CONDITIONS: u16 = 0x4700;
const TOP: u16 = 0x3800;
const MXCSR_STATUS: u32 = 0x3F;

/// A standard-format XSAVE image.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Image(pub [u8; IMAGE_BYTES]);

/// Registers and memory.
#[derive(Clone)]
pub struct State {
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub image: Box<Image>,
    pub memory: Box<[u8; WINDOW_BYTES]>,
}

#[repr(C)]
struct Context {
    gpr: [u64; 16],
    image_in: *const Image,
    image_out: *mut Image,
    stack: u64,
    components: u64,
    rflags: u64,
}

static mut CONTEXT: *mut Context = std::ptr::null_mut();
static mut CODE: *const u8 = std::ptr::null();
static mut SAVED_RDI: u64 = 0;
static mut FAULT: i32 = 0;
static mut ARMED: bool = false;

std::arch::global_asm!(
    ".globl brownout_flow_run",
    "brownout_flow_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + {context}], rdi",
    "mov [rdi + 144], rsp",
    "mov eax, [rdi + 152]",
    "xor edx, edx",
    "mov rsi, [rdi + 128]",
    "xrstor64 [rsi]",
    "push qword ptr [rdi + 160]",
    "popfq",
    "mov rax, [rdi + 0]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rsp, [rdi + 32]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "jmp [rip + {code}]",
    ".globl brownout_flow_return",
    "brownout_flow_return:",
    "mov [rip + {saved_rdi}], rdi",
    "mov rdi, [rip + {context}]",
    "mov [rdi + 32], rsp",
    "mov rsp, [rdi + 144]",
    "pushfq",
    "pop qword ptr [rdi + 160]",
    "push 0x202",
    "popfq",
    "mov [rdi + 0], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], rdx",
    "mov [rdi + 24], rbx",
    "mov [rdi + 40], rbp",
    "mov [rdi + 48], rsi",
    "mov [rdi + 64], r8",
    "mov [rdi + 72], r9",
    "mov [rdi + 80], r10",
    "mov [rdi + 88], r11",
    "mov [rdi + 96], r12",
    "mov [rdi + 104], r13",
    "mov [rdi + 112], r14",
    "mov [rdi + 120], r15",
    "mov rax, [rip + {saved_rdi}]",
    "mov [rdi + 56], rax",
    "mov eax, [rdi + 152]",
    "xor edx, edx",
    "mov rsi, [rdi + 136]",
    "xsave64 [rsi]",
    "fninit",
    "sub rsp, 8",
    "mov dword ptr [rsp], 0x1F80",
    "ldmxcsr [rsp]",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    context = sym CONTEXT,
    code = sym CODE,
    saved_rdi = sym SAVED_RDI,
);

unsafe extern "C" {
    fn brownout_flow_run(context: *mut Context);
    fn brownout_flow_return();
}

extern "C" fn on_fault(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread; the statics are only touched
    // by the thread that holds the lock, and an armed fault is one of the code under test, there.
    unsafe {
        if !ARMED {
            // Not ours: let it kill the test when the instruction is tried again.
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
        ARMED = false;
        FAULT = signal;
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = brownout_flow_return as *const () as i64;
        registers[libc::REG_EFL as usize] = RFLAGS_BASE as i64;
    }
}

static ALONE: Mutex<()> = Mutex::new(());

/// The right to execute, with a page of code and a window of memory.
pub struct Machine {
    code: *mut u8,
    window: *mut u8,
    pub layout: XsaveLayout,
    hidden: Features,
    components: u64,
    _alone: MutexGuard<'static, ()>,
}

/// The signal of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub i32);

fn map(bytes: usize, protection: i32) -> *mut u8 {
    // Below 2 GiB, so that 32-bit addresses reach it.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    // SAFETY: a fresh anonymous mapping.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address.cast()
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever XSAVE does.
    unsafe { _xgetbv(0) }
}

impl Machine {
    /// Panics where there is no AVX: the tool asks for more than that.
    pub fn acquire() -> Machine {
        assert!(
            std::arch::is_x86_feature_detected!("xsave")
                && std::arch::is_x86_feature_detected!("avx"),
            "these tests need a processor with AVX"
        );
        let alone = ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = std::env::var(HIDE_VARIABLE).unwrap_or_default();
        let hidden = Features::parse(&text).unwrap_or_else(|word| panic!("{word:?} is no feature"));
        // SAFETY: the feature was detected.
        let xcr0 = hidden.hide_in_xcr0(unsafe { xcr0() });
        let layout = XsaveLayout::from_cpuid(xcr0, |leaf, subleaf| {
            let answer = cpuid(leaf, subleaf);
            [answer.eax, answer.ebx, answer.ecx, answer.edx]
        });
        assert!(layout.standard_size(COMPONENTS) as usize <= IMAGE_BYTES);
        let code = map(PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        // An inaccessible page lies before and behind the window.
        let start = map(WINDOW_BYTES + 2 * PAGE, libc::PROT_NONE);
        // SAFETY: inside the fresh mapping; a handler that is async-signal-safe, on a stack of its
        // own, because the code under test may leave anything in `rsp`. That stack is leaked.
        let window = unsafe {
            let window = start.add(PAGE);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(window.cast(), WINDOW_BYTES, access), 0);
            let bytes = 1 << 16;
            let stack = libc::stack_t {
                ss_sp: map(bytes, access).cast(),
                ss_flags: 0,
                ss_size: bytes,
            };
            assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for signal in [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
                libc::SIGTRAP,
            ] {
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
            window
        };
        Machine {
            code,
            window,
            layout,
            hidden,
            components: xcr0 & COMPONENTS,
            _alone: alone,
        }
    }

    /// The address of the window.
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// Whether the test run pretends that this processor lacks the instruction.
    pub fn hides(&self, insn: &Instruction) -> bool {
        feature_of(insn).is_some_and(|feature| self.hidden.has(feature))
            || (insn.op_count() > 0 && insn.has_op_mask() && self.hidden.has(Feature::Avx512))
    }

    pub fn has_avx512(&self) -> bool {
        self.components & 0xE0 == 0xE0
    }

    /// Puts code into place; `run` executes it until the next call. It must fall through.
    pub fn load(&mut self, code: &[u8]) {
        let mut jump = [0xFF, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        jump[6..].copy_from_slice(&(brownout_flow_return as *const () as u64).to_le_bytes());
        assert!(code.len() + jump.len() <= PAGE);
        // SAFETY: a page of ours that nothing executes now.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.code, code.len());
            std::ptr::copy_nonoverlapping(jump.as_ptr(), self.code.add(code.len()), jump.len());
        }
    }

    /// A state with everything zero or initial.
    pub fn blank(&self) -> State {
        let mut image = Box::new(Image([0; IMAGE_BYTES]));
        blank_image(&mut image.0);
        image.0[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&self.components.to_le_bytes());
        State {
            gpr: [0; 16],
            rflags: RFLAGS_BASE,
            image,
            memory: Box::new([0; WINDOW_BYTES]),
        }
    }

    /// Runs the loaded code on `before`; what it leaves is put into `after`.
    pub fn run(&mut self, before: &State, after: &mut State) -> Result<(), Fault> {
        blank_image(&mut after.image.0);
        let mut context = Context {
            gpr: before.gpr,
            image_in: &*before.image,
            image_out: &mut *after.image,
            stack: 0,
            components: self.components,
            rflags: before.rflags,
        };
        // SAFETY: the window is ours. The trampoline saves and restores what the ABI asks for; the
        // caller promises code that falls through. The statics are ours while `self` exists.
        let fault = unsafe {
            std::ptr::copy_nonoverlapping(before.memory.as_ptr(), self.window, WINDOW_BYTES);
            CODE = self.code;
            FAULT = 0;
            ARMED = true;
            brownout_flow_run(&mut context);
            ARMED = false;
            std::ptr::copy_nonoverlapping(self.window, after.memory.as_mut_ptr(), WINDOW_BYTES);
            FAULT
        };
        after.gpr = context.gpr;
        after.rflags = context.rflags;
        after.image.0[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&self.components.to_le_bytes());
        if fault == 0 {
            Ok(())
        } else {
            Err(Fault(fault))
        }
    }

    /// Where a byte of a vector register lies in an image; `None` if this processor has none.
    fn vector_at(&self, number: usize, byte: usize) -> Option<usize> {
        let place = |component: usize, at: usize| {
            (self.components >> component & 1 == 1)
                .then(|| self.layout.components[component].offset as usize + at)
        };
        match (number, byte) {
            (16.., _) => place(HI16_ZMM, 64 * (number - 16) + byte),
            (_, 32..) => place(ZMM_HI256, 32 * number + byte - 32),
            (_, 16..) => place(AVX, 16 * number + byte - 16),
            _ => Some(XMM_AT + 16 * number + byte),
        }
    }

    fn opmask_at(&self, number: usize, byte: usize) -> Option<usize> {
        (self.components >> OPMASK & 1 == 1)
            .then(|| self.layout.components[OPMASK].offset as usize + 8 * number + byte)
    }

    /// The bits of a place that can be flipped without leaving what processors accept: the byte in
    /// the image, general register or flags they are in is told by `flip`.
    pub fn flip(&self, state: &mut State, place: Place, bit: u32) -> bool {
        let image = &mut state.image.0;
        match place.kind() {
            PlaceKind::Gpr(number, byte) => {
                state.gpr[usize::from(number)] ^= 1 << (8 * u32::from(byte) + bit);
            }
            PlaceKind::Flag(number) => state.rflags ^= 1 << FLAG_BITS[usize::from(number)],
            PlaceKind::Vector(number, byte) => {
                match self.vector_at(usize::from(number), usize::from(byte)) {
                    Some(at) => image[at] ^= 1 << bit,
                    None => return false,
                }
            }
            PlaceKind::Opmask(number, byte) => {
                match self.opmask_at(usize::from(number), usize::from(byte)) {
                    Some(at) => image[at] ^= 1 << bit,
                    None => return false,
                }
            }
            PlaceKind::X87(number, byte) => {
                let top = (u16::from_le_bytes([image[FSW], image[FSW + 1]]) & TOP) >> 11;
                let st = (usize::from(number) + 8 - usize::from(top)) & 7;
                image[ST_AT + 16 * st + usize::from(byte)] ^= 1 << bit;
            }
            PlaceKind::MxcsrControl => image[MXCSR + 1] ^= [0x20, 0x40, 0x80][bit as usize % 3],
            PlaceKind::MxcsrStatus => image[MXCSR] ^= 1 << (bit % 6),
            PlaceKind::X87Control => image[FCW + 1] ^= [1, 2, 4, 8][bit as usize % 4],
            PlaceKind::X87Exceptions => image[FSW] ^= 1 << (bit % 6),
            PlaceKind::X87Conditions => image[FSW + 1] ^= [1, 2, 4, 0x40][bit as usize % 4],
            _ => return false,
        }
        true
    }

    /// Calls with every register place, and every offset in the window, in which two states differ.
    pub fn differences(
        &self,
        a: &State,
        b: &State,
        mut register: impl FnMut(Place),
        mut memory: impl FnMut(usize),
    ) {
        for number in 0..16 {
            let changed = (a.gpr[number] ^ b.gpr[number]).to_le_bytes();
            for (byte, bits) in changed.iter().enumerate() {
                if *bits != 0 {
                    register(Place::gpr(number).plus(byte));
                }
            }
        }
        let flags = a.rflags ^ b.rflags;
        for (flag, bit) in Flag::ALL.iter().zip(FLAG_BITS) {
            if flags >> bit & 1 != 0 {
                register(Place::flag(*flag));
            }
        }
        if a.memory != b.memory {
            for at in 0..WINDOW_BYTES {
                if a.memory[at] != b.memory[at] {
                    memory(at);
                }
            }
        }
        let (x, y) = (&a.image.0, &b.image.0);
        if x == y {
            return;
        }
        for number in 0..32 {
            for byte in 0..64 {
                if let Some(at) = self.vector_at(number, byte)
                    && x[at] != y[at]
                {
                    register(Place::vector(number).plus(byte));
                }
            }
        }
        for number in 0..8 {
            for byte in 0..8 {
                if let Some(at) = self.opmask_at(number, byte)
                    && x[at] != y[at]
                {
                    register(Place::opmask(number).plus(byte));
                }
            }
        }
        let word = |image: &[u8], at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
        let status = word(x, FSW) ^ word(y, FSW);
        if status & 0xFF != 0 {
            register(Place::X87_EXCEPTIONS);
        }
        if status & CONDITIONS != 0 {
            register(Place::X87_CONDITIONS);
        }
        if status & TOP != 0 || x[FTW] != y[FTW] {
            register(Place::X87_STACK);
        }
        if word(x, FCW) != word(y, FCW) {
            register(Place::X87_CONTROL);
        }
        let mxcsr = |image: &[u8]| {
            u32::from_le_bytes([
                image[MXCSR],
                image[MXCSR + 1],
                image[MXCSR + 2],
                image[MXCSR + 3],
            ])
        };
        let changed = mxcsr(x) ^ mxcsr(y);
        if changed & MXCSR_STATUS != 0 {
            register(Place::MXCSR_STATUS);
        }
        if changed & !MXCSR_STATUS != 0 {
            register(Place::MXCSR_CONTROL);
        }
        for number in 0..8 {
            let st = |image: &[u8], byte: usize| {
                let top = usize::from((word(image, FSW) & TOP) >> 11);
                image[ST_AT + 16 * ((number + 8 - top) & 7) + byte]
            };
            for byte in 0..10 {
                if st(x, byte) != st(y, byte) {
                    register(Place::mmx(number).plus(byte));
                }
            }
        }
    }

    /// Fills vector or mask registers and the x87 stack with something random that suits them.
    pub fn randomize(&self, state: &mut State, random: &mut brownout_random::Random) {
        let image = &mut state.image.0;
        // Vectors: any bits, or floating-point numbers of a modest size, or much that is equal.
        let style = random.below(4);
        for number in 0..32 {
            let mut value = [0u8; 64];
            random.fill(&mut value);
            match style {
                0 => {
                    for lane in value.chunks_mut(4) {
                        let number = (random.between(-1000, 1000) as f32) / 8.0;
                        lane.copy_from_slice(&number.to_le_bytes());
                    }
                }
                1 => {
                    for lane in value.chunks_mut(8) {
                        let number = (random.between(-100_000, 100_000) as f64) / 16.0;
                        lane.copy_from_slice(&number.to_le_bytes());
                    }
                }
                2 => {
                    for byte in &mut value {
                        *byte = [0, 0xFF, 1, 0x80][random.index(4)];
                    }
                }
                _ => {}
            }
            for (byte, bits) in value.iter().enumerate() {
                if let Some(at) = self.vector_at(number, byte) {
                    image[at] = *bits;
                }
            }
        }
        for number in 0..8 {
            let value = match random.below(4) {
                0 => random.bits() & random.bits() & random.bits(),
                1 => random.bits() | random.bits() | random.bits(),
                _ => random.bits(),
            };
            for (byte, bits) in value.to_le_bytes().iter().enumerate() {
                if let Some(at) = self.opmask_at(number, byte) {
                    image[at] = *bits;
                }
            }
        }
        for number in 0..8 {
            let st = &mut image[ST_AT + 16 * number..][..10];
            random.fill(st);
            if !random.percent(25) {
                // A normal number of a modest size.
                st[7] |= 0x80;
                let exponent = 0x3FFF + random.between(-20, 20) as u16;
                let sign = (random.below(2) as u16) << 15;
                st[8..].copy_from_slice(&(exponent | sign).to_le_bytes());
            }
        }
        let top = random.below(8) as u16;
        let conditions = random.bits() as u16 & CONDITIONS;
        image[FSW..FSW + 2].copy_from_slice(&(top << 11 | conditions).to_le_bytes());
        image[FTW] = match random.below(3) {
            0 => random.bits() as u8,
            _ => 0xFF,
        };
        image[MXCSR..MXCSR + 4].copy_from_slice(
            &(0x1F80 | random.bits() as u32 & 0x3F | (random.bits() as u32 & 0xE040)).to_le_bytes(),
        );
    }

    /// The top of the x87 stack.
    pub fn top(state: &State) -> u8 {
        (state.image.0[FSW + 1] >> 3) & 7
    }

    /// Sets a vector register.
    pub fn set_vector(&self, state: &mut State, number: usize, value: &[u8; 64]) {
        for (byte, bits) in value.iter().enumerate() {
            if let Some(at) = self.vector_at(number, byte) {
                state.image.0[at] = *bits;
            }
        }
    }

    /// A vector register's value.
    pub fn vector(&self, state: &State, number: usize) -> [u8; 64] {
        std::array::from_fn(|byte| {
            self.vector_at(number, byte)
                .map_or(0, |at| state.image.0[at])
        })
    }

    /// Flips a bit in the window.
    pub fn flip_memory(state: &mut State, at: usize, bit: u32) {
        state.memory[at] ^= 1 << bit;
    }
}

/// What `xsave` leaves out is in its initial state.
fn blank_image(image: &mut [u8; IMAGE_BYTES]) {
    image.fill(0);
    image[FCW..FCW + 2].copy_from_slice(&0x37Fu16.to_le_bytes());
    image[MXCSR..MXCSR + 4].copy_from_slice(&0x1F80u32.to_le_bytes());
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: mapped by `acquire`, and nothing runs there any more.
        unsafe {
            libc::munmap(self.code.cast(), PAGE);
            libc::munmap(self.window.sub(PAGE).cast(), WINDOW_BYTES + 2 * PAGE);
        }
    }
}
