//! Plain data about signals: the kernel's structures, and what a thread keeps of them. `signal.rs`
//! says what is done with it.

use crate::address::{CacheAddr, ProgramAddr};

pub const SIGILL: i32 = 4;
pub const SIGTRAP: i32 = 5;
pub const SIGBUS: i32 = 7;
pub const SIGFPE: i32 = 8;
pub const SIGKILL: i32 = 9;
pub const SIGSEGV: i32 = 11;
pub const SIGSTOP: i32 = 19;
/// Signals that faults raise.
pub const SYNC: [i32; 5] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV];

pub const fn bit(sig: i32) -> u64 {
    1 << (sig - 1)
}
/// Signals that the program never really blocks.
pub const SYNC_MASK: u64 = bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV);
pub const ALL_ASYNC: u64 = !SYNC_MASK;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SigAction {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Dispositions as the program set them. Shared by threads, copied for other children.
pub struct SignalHandlers {
    pub actions: [SigAction; 65],
    /// Which entries are the program's (else the kernel knows).
    pub ours: u128,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigInfo {
    pub words: [u64; 16],
}
impl SigInfo {
    pub fn signo(&self) -> i32 {
        self.words[0] as i32
    }
    pub fn code(&self) -> i32 {
        self.words[1] as i32
    }
    pub fn addr(&self) -> u64 {
        self.words[2]
    }
    pub fn fault(sig: i32, code: i32, addr: u64) -> SigInfo {
        let mut words = [0; 16];
        words[0] = sig as u64;
        words[1] = code as u32 as u64;
        words[2] = addr;
        SigInfo { words }
    }
}

/// A signal that waits for a boundary. `sig` 0: none.
#[derive(Clone, Copy)]
pub struct Pending {
    pub sig: i32,
    pub info: SigInfo,
    /// The mask to go back to.
    pub mask: u64,
    /// A fault that engine code found on the program's behalf; goes first.
    pub fault: Option<Fault>,
    /// The mask that its handler starts from, where that is not `mask` (`sigsuspend` and its kin).
    pub base: Option<u64>,
}

impl Pending {
    /// Whether anything waits.
    pub fn is_any(&self) -> bool {
        self.sig != 0 || self.fault.is_some()
    }
}

/// A fault, with the processor's error code for it.
#[derive(Clone, Copy)]
pub struct Fault {
    pub info: SigInfo,
    pub trap: u64,
    pub error: u64,
}

/// Synchronous signals that were sent to a thread while the program believes them blocked.
#[derive(Clone, Copy, Default)]
pub struct Held {
    pub infos: [Option<SigInfo>; SYNC.len()],
}

impl Held {
    pub fn mask(&self) -> u64 {
        SYNC.iter()
            .zip(&self.infos)
            .fold(0, |m, (s, i)| if i.is_some() { m | bit(*s) } else { m })
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MContext {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub eflags: u64,
    pub segments: u64,
    pub err: u64,
    pub trapno: u64,
    pub oldmask: u64,
    pub cr2: u64,
    pub fpstate: u64,
    pub reserved: [u64; 8],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UContext {
    pub flags: u64,
    pub link: u64,
    pub stack_sp: u64,
    pub stack_flags: i32,
    _pad: u32,
    pub stack_size: u64,
    pub m: MContext,
    pub sigmask: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigFrame {
    pub pretcode: u64,
    pub uc: UContext,
    pub info: SigInfo,
}
const _: () = assert!(core::mem::size_of::<SigFrame>() == 440);

/// `rip` is an address of the program's while a handler looks at, or prepares, the state that the
/// program sees, and one of real code in what the kernel gives and gets back.
impl MContext {
    /// Where the processor is: in the cache or in the engine.
    pub fn code(&self) -> CacheAddr {
        CacheAddr::new(self.rip)
    }

    /// Lets the thread go on in the cache or in the engine.
    pub fn set_code(&mut self, code: CacheAddr) {
        self.rip = code.get();
    }

    /// Where the program is, in a state that the program sees.
    pub fn pc(&self) -> ProgramAddr {
        ProgramAddr::new(self.rip)
    }

    /// Makes it a state that the program sees.
    pub fn set_pc(&mut self, pc: ProgramAddr) {
        self.rip = pc.get();
    }

    /// Access by hardware register number.
    pub fn gpr(&mut self, n: u8) -> &mut u64 {
        match n {
            0 => &mut self.rax,
            1 => &mut self.rcx,
            2 => &mut self.rdx,
            3 => &mut self.rbx,
            4 => &mut self.rsp,
            5 => &mut self.rbp,
            6 => &mut self.rsi,
            7 => &mut self.rdi,
            8 => &mut self.r8,
            9 => &mut self.r9,
            10 => &mut self.r10,
            11 => &mut self.r11,
            12 => &mut self.r12,
            13 => &mut self.r13,
            14 => &mut self.r14,
            _ => &mut self.r15,
        }
    }
}
