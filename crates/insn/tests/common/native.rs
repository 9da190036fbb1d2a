//! Executes one instruction on this CPU with all registers given, and catches its fault.
//!
//! One instruction at a time: the trampoline keeps its context in statics, so callers hold [`Cpu`],
//! of which one exists at a time.

#![allow(dead_code, reason = "each test binary uses its own part")]

use brownout_abi::cpu::cpuid;
use brownout_abi::cpu::{Feature, Features, HIDE_VARIABLE};
use brownout_insn::{XsaveLayout, feature_of};
use iced_x86::{Decoder, DecoderOptions};
use std::arch::x86_64::_xgetbv;
use std::sync::{Mutex, MutexGuard};

/// x87, SSE, AVX and the three AVX-512 components; PKRU must stay as it is.
const COMPONENTS: u64 = 0xE7;
const XSAVE_BYTES: usize = 16384;

/// A standard-format XSAVE image.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Image(pub [u8; XSAVE_BYTES]);

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
/// Signal, code and address of the fault, if armed and hit.
static mut FAULT: Option<Fault> = None;
static mut ARMED: bool = false;

/// How an instruction faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub signal: i32,
    pub code: i32,
    pub address: u64,
}

impl Fault {
    /// A page fault, as opposed to a general protection fault (misalignment, say).
    pub fn is_page_fault(&self) -> bool {
        self.signal == libc::SIGSEGV && self.code != libc::SI_KERNEL
    }

    /// This CPU does not have the instruction.
    pub fn is_unknown_instruction(&self) -> bool {
        self.signal == libc::SIGILL
    }
}

std::arch::global_asm!(
    ".globl brownout_native_run",
    "brownout_native_run:",
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
    ".globl brownout_native_return",
    "brownout_native_return:",
    "mov [rip + {saved_rdi}], rdi",
    "mov rdi, [rip + {context}]",
    // The instruction may have moved the stack pointer; the gpr slot keeps what it was.
    "mov rsp, [rdi + 144]",
    "pushfq",
    "pop qword ptr [rdi + 160]",
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
    "cld",
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
    fn brownout_native_run(context: *mut Context);
    fn brownout_native_return();
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers; the statics are only used by the thread that holds
    // the `Cpu`, and a fault while armed is a fault of the instruction under test, on that thread.
    unsafe {
        if !ARMED {
            // Not ours: let it kill the test when the instruction is tried again.
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
        ARMED = false;
        FAULT = Some(Fault {
            signal,
            code: (*info).si_code,
            address: (*info).si_addr() as u64,
        });
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_RIP as usize] =
            brownout_native_return as *const () as i64;
    }
}

static CPU: Mutex<()> = Mutex::new(());

/// The right to execute, with a page of code.
pub struct Cpu {
    code: *mut u8,
    pub layout: XsaveLayout,
    /// What the tests shall not use although it may be there.
    pub hidden: Features,
    components: u64,
    _alone: MutexGuard<'static, ()>,
}

/// The registers before or after.
#[derive(Clone)]
pub struct Registers {
    pub gpr: [u64; 16],
    pub image: Box<Image>,
    /// The arithmetic flags and the direction flag; the others are left alone.
    pub rflags: u64,
}

/// CF, PF, AF, ZF, SF, DF, OF.
pub const FLAGS: u64 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x400 | 0x800;

impl Registers {
    pub fn new() -> Self {
        Registers {
            gpr: [0; 16],
            image: Box::new(Image([0; XSAVE_BYTES])),
            rflags: 0,
        }
    }
}

impl Cpu {
    /// `None` if this CPU or kernel has no XSAVE.
    pub fn acquire() -> Option<Cpu> {
        if !std::arch::is_x86_feature_detected!("xsave")
            || !std::arch::is_x86_feature_detected!("avx")
        {
            return None;
        }
        let alone = CPU.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let hidden = hidden_features();
        // SAFETY: the feature was detected.
        let xcr0 = hidden.hide_in_xcr0(unsafe { xcr0() });
        let layout = XsaveLayout::from_cpuid(xcr0, |leaf, subleaf| {
            let answer = cpuid(leaf, subleaf);
            [answer.eax, answer.ebx, answer.ecx, answer.edx]
        });
        assert!(layout.standard_size(COMPONENTS) as usize <= XSAVE_BYTES);
        let code = map(4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        // SAFETY: a plain system call with a handler that is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            for signal in [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
                libc::SIGTRAP,
            ] {
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
        Some(Cpu {
            code,
            layout,
            hidden,
            components: xcr0 & COMPONENTS,
            _alone: alone,
        })
    }

    /// Whether the processor has the parts of AVX-512 that most processors with any have.
    pub fn has_avx512(&self) -> bool {
        use std::arch::is_x86_feature_detected as detected;
        !self.hidden.has(Feature::Avx512)
            && detected!("avx512f")
            && detected!("avx512bw")
            && detected!("avx512dq")
            && detected!("avx512vl")
            && detected!("avx512vbmi2")
    }

    /// Runs the instruction. `Err` holds the fault; the registers are then as the fault found them.
    ///
    /// `rsp` is not set: the instruction runs on the test's stack. The caller chooses instructions
    /// that keep away from it and that continue behind themselves.
    pub fn run(&mut self, bytes: &[u8], before: &Registers) -> (Registers, Result<(), Fault>) {
        let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        if feature_of(&insn).is_some_and(|feature| self.hidden.has(feature)) {
            let fault = Fault {
                signal: libc::SIGILL,
                code: 0,
                address: self.code as u64,
            };
            return (before.clone(), Err(fault));
        }
        let mut after = before.clone();
        after.image.0[512..576].fill(0);
        let mut jump = [0xFF, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        jump[6..].copy_from_slice(&(brownout_native_return as *const () as u64).to_le_bytes());
        let mut context = Context {
            gpr: before.gpr,
            image_in: &*before.image,
            image_out: &mut *after.image,
            stack: 0,
            components: self.components,
            // Interrupts are on in user mode, and bit 1 is always set.
            rflags: before.rflags & FLAGS | 0x202,
        };
        // SAFETY: `code` is a page of ours, and the bytes and the jump fit. The trampoline saves
        // and restores what the ABI asks for; the caller promises an instruction that falls
        // through. The statics are ours while `self` exists.
        let fault = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.code, bytes.len());
            std::ptr::copy_nonoverlapping(jump.as_ptr(), self.code.add(bytes.len()), jump.len());
            CODE = self.code;
            FAULT = None;
            ARMED = true;
            brownout_native_run(&mut context);
            ARMED = false;
            FAULT
        };
        after.gpr = context.gpr;
        after.rflags = context.rflags & FLAGS;
        (after, fault.map_or(Ok(()), Err))
    }
}

/// As the tool does, so that the tests can be run as on another processor.
fn hidden_features() -> Features {
    let text = std::env::var(HIDE_VARIABLE).unwrap_or_default();
    Features::parse(&text).unwrap_or_else(|word| panic!("{HIDE_VARIABLE} names {word:?}"))
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // SAFETY: mapped by `acquire`, and nothing runs there any more.
        unsafe { libc::munmap(self.code.cast(), 4096) };
    }
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever XSAVE does.
    unsafe { _xgetbv(0) }
}

fn map(bytes: usize, protection: i32) -> *mut u8 {
    // Below 2 GiB, so that 32-bit addresses reach it.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    // SAFETY: a fresh anonymous mapping.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address.cast()
}

/// Memory for instructions under test, with an inaccessible page before and behind.
pub struct Arena {
    start: *mut u8,
    bytes: usize,
}

pub const PAGE: usize = 4096;

impl Arena {
    pub fn new(bytes: usize) -> Arena {
        let start = map(bytes + 2 * PAGE, libc::PROT_NONE);
        // SAFETY: inside the fresh mapping.
        unsafe {
            let inner = start.add(PAGE);
            assert_eq!(
                libc::mprotect(inner.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            Arena {
                start: inner,
                bytes,
            }
        }
    }

    pub fn address(&self) -> u64 {
        self.start as u64
    }

    pub fn end(&self) -> u64 {
        self.address() + self.bytes as u64
    }

    pub fn contents(&self) -> Vec<u8> {
        // SAFETY: ours, accessible, and nobody writes while no instruction runs.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes).to_vec() }
    }

    pub fn fill(&mut self, contents: &[u8]) {
        assert_eq!(contents.len(), self.bytes);
        // SAFETY: as above, and we are the only owner.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), self.start, self.bytes) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.start.sub(PAGE).cast(), self.bytes + 2 * PAGE) };
    }
}
