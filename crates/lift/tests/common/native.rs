//! Executes one instruction on this processor with all registers and a window of memory given, and
//! tells them afterwards, fault or not, and whether it branched.
//!
//! The state lies in statics while the instruction runs, so callers hold [`Native`], of which one
//! exists at a time.

use super::state::{State, WINDOW_BYTES};
use brownout_abi::cpu::{Feature, Features, HIDE_VARIABLE};
use brownout_insn::feature_of;
use iced_x86::Instruction;
use std::sync::{Mutex, MutexGuard};

const PAGE: usize = 4096;
/// Where in the page of code a branch goes to.
const TAKEN_AT: usize = 64;

#[repr(C, align(32))]
struct Context {
    gpr: [u64; 16],
    rflags: u64,
    stack: u64,
    unused: [u64; 2],
    vectors: [[u128; 2]; 16],
}

static mut CONTEXT: *mut Context = std::ptr::null_mut();
static mut CODE: *const u8 = std::ptr::null();
static mut SAVED_RDI: u64 = 0;
static mut FAULT: i32 = 0;
static mut ARMED: bool = false;
static mut TAKEN: u8 = 0;

std::arch::global_asm!(
    ".globl brownout_lift_run",
    "brownout_lift_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + {context}], rdi",
    "mov [rdi + 136], rsp",
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovdqa ymm\\number, [rdi + 160 + 32 * \\number]",
    ".endr",
    "push qword ptr [rdi + 128]",
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
    ".globl brownout_lift_taken",
    "brownout_lift_taken:",
    "mov byte ptr [rip + {taken}], 1",
    ".globl brownout_lift_return",
    "brownout_lift_return:",
    "mov [rip + {saved_rdi}], rdi",
    "mov rdi, [rip + {context}]",
    "mov [rdi + 32], rsp",
    "mov rsp, [rdi + 136]",
    "pushfq",
    "pop qword ptr [rdi + 128]",
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
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovdqa [rdi + 160 + 32 * \\number], ymm\\number",
    ".endr",
    "vzeroupper",
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
    taken = sym TAKEN,
);

unsafe extern "C" {
    fn brownout_lift_run(context: *mut Context);
    fn brownout_lift_taken();
    fn brownout_lift_return();
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
        registers[libc::REG_RIP as usize] = brownout_lift_return as *const () as i64;
        registers[libc::REG_EFL as usize] = 0x202;
    }
}

static ALONE: Mutex<()> = Mutex::new(());

/// The right to execute, with a page of code and a window of memory.
pub struct Native {
    code: *mut u8,
    window: *mut u8,
    hidden: Features,
    pub fs_base: u64,
    pub gs_base: u64,
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

fn segment_base(what: i32) -> u64 {
    let mut base = 0u64;
    // SAFETY: the kernel writes one word.
    let answer = unsafe { libc::syscall(libc::SYS_arch_prctl, what, &raw mut base) };
    assert_eq!(answer, 0);
    base
}

impl Native {
    /// Panics where there is no AVX: the tool asks for more than that.
    pub fn acquire() -> Native {
        assert!(
            std::arch::is_x86_feature_detected!("avx"),
            "these tests need a processor with AVX"
        );
        let alone = ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = std::env::var(HIDE_VARIABLE).unwrap_or_default();
        let hidden = Features::parse(&text).unwrap_or_else(|word| panic!("{word:?} is no feature"));
        let code = map(PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        // An inaccessible page lies before and behind the one with the window.
        let start = map(3 * PAGE, libc::PROT_NONE);
        // SAFETY: inside the fresh mapping; a handler that is async-signal-safe, on a stack of its
        // own, because the code under test may leave anything in `rsp`. That stack is leaked.
        let window = unsafe {
            let page = start.add(PAGE);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(page.cast(), PAGE, access), 0);
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
            page.add(PAGE / 2)
        };
        Native {
            code,
            window,
            hidden,
            fs_base: segment_base(0x1003),
            gs_base: segment_base(0x1004),
            _alone: alone,
        }
    }

    /// The address of the window.
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// Where the instruction is.
    pub fn ip(&self) -> u64 {
        self.code as u64
    }

    /// Where a branch has to go.
    pub fn branch_target(&self) -> u64 {
        self.code as u64 + TAKEN_AT as u64
    }

    /// Whether the test run pretends that this processor lacks the instruction.
    pub fn hides(&self, insn: &Instruction) -> bool {
        feature_of(insn).is_some_and(|feature| self.hidden.has(feature))
            || (self.hidden.has(Feature::Bmi2)
                && insn
                    .cpuid_features()
                    .contains(&iced_x86::CpuidFeature::BMI2))
    }

    /// Puts an instruction into place. It must fall through, or branch to the target.
    pub fn load(&mut self, code: &[u8]) {
        let jump = |to: unsafe extern "C" fn()| {
            let mut jump = [0xFF, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            jump[6..].copy_from_slice(&(to as *const () as u64).to_le_bytes());
            jump
        };
        let (falls, taken) = (jump(brownout_lift_return), jump(brownout_lift_taken));
        assert!(code.len() + falls.len() <= TAKEN_AT);
        // SAFETY: a page of ours that nothing executes now.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.code, code.len());
            std::ptr::copy_nonoverlapping(falls.as_ptr(), self.code.add(code.len()), falls.len());
            std::ptr::copy_nonoverlapping(taken.as_ptr(), self.code.add(TAKEN_AT), taken.len());
        }
    }

    /// Runs the loaded instruction on `before`; what it leaves is put into `after`. Tells whether
    /// it went to the branch target.
    pub fn run(&mut self, before: &State, after: &mut State) -> Result<bool, Fault> {
        let mut context = Context {
            gpr: before.gpr,
            rflags: before.rflags,
            stack: 0,
            unused: [0; 2],
            vectors: before.vectors,
        };
        // SAFETY: the window is ours. The trampoline saves and restores what the ABI asks for; the
        // caller promises an instruction that ends at one of the two jumps. The statics are ours
        // while `self` exists.
        let (fault, taken) = unsafe {
            std::ptr::copy_nonoverlapping(before.memory.as_ptr(), self.window, WINDOW_BYTES);
            CODE = self.code;
            FAULT = 0;
            TAKEN = 0;
            ARMED = true;
            brownout_lift_run(&mut context);
            ARMED = false;
            std::ptr::copy_nonoverlapping(self.window, after.memory.as_mut_ptr(), WINDOW_BYTES);
            (FAULT, TAKEN)
        };
        after.gpr = context.gpr;
        after.rflags = context.rflags;
        after.vectors = context.vectors;
        if fault == 0 {
            Ok(taken != 0)
        } else {
            Err(Fault(fault))
        }
    }
}
