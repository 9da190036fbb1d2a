//! The compiled form of one row of call-frame information.

/// What a program counter is, which decides the address at which its frame is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcKind {
    /// The instruction about to run: the innermost frame, or one that a signal interrupted.
    /// Looked up as it is.
    Exact,
    /// The instruction after a call, as found on the stack. Looked up one byte before, inside of
    /// the call.
    ReturnAddress,
}

/// An address inside of the instruction whose frame is wanted: the key of every look-up, and the
/// right key for a cache of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupPc(u64);

impl LookupPc {
    /// The address to look up for a program counter of this kind.
    #[inline]
    pub fn new(pc: u64, kind: PcKind) -> Self {
        match kind {
            PcKind::Exact => Self(pc),
            PcKind::ReturnAddress => Self(pc.wrapping_sub(1)),
        }
    }

    /// The address.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A general-purpose register by its DWARF number (psABI figure 3.36: rax, rdx, rcx, rbx, rsi, rdi,
/// rbp, rsp, then r8 to r15), which is *not* the number in instruction encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

impl Register {
    /// `rbp`.
    pub const RBP: Self = Self(6);
    /// `rsp`.
    pub const RSP: Self = Self(7);

    /// The register with this DWARF number, if it is one of the sixteen.
    pub fn from_dwarf(number: u16) -> Option<Self> {
        (number < 16).then_some(Self(number as u8))
    }

    /// The DWARF number, 0 to 15.
    #[inline]
    pub fn dwarf(self) -> u8 {
        self.0
    }

    /// The number in instruction encodings, 0 to 15 (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 …).
    #[inline]
    pub fn encoding(self) -> u8 {
        const ENCODING: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
        ENCODING[usize::from(self.0 & 15)]
    }
}

/// Where the caller's `rbp` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbpRule {
    /// Still in `rbp`.
    Unchanged,
    /// In memory at the CFA plus this.
    AtCfa(i32),
    /// In memory at this frame's `rsp` plus this.
    AtRsp(i32),
    /// In memory at this frame's `rbp` plus this (how GCC writes it in functions that realign the
    /// stack).
    AtRbp(i32),
    /// Nowhere, or in a place that this crate does not model.
    Lost,
}

/// How to get from a frame to its caller: the CFA (canonical frame address, the caller's `rsp`
/// after the return), below which lies the return address, and the caller's `rbp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRule {
    /// CFA = rsp + `cfa_offset`.
    Rsp {
        /// Distance from `rsp` to the CFA.
        cfa_offset: i32,
        /// Where the caller's `rbp` is.
        rbp: RbpRule,
    },
    /// CFA = rbp + `cfa_offset`.
    Rbp {
        /// Distance from `rbp` to the CFA.
        cfa_offset: i32,
        /// Where the caller's `rbp` is.
        rbp: RbpRule,
    },
    /// CFA = `register` + `cfa_offset`: in prologues that realign the stack and in hand-written
    /// assembly.
    Other {
        /// The register, neither `rsp` nor `rbp`.
        register: Register,
        /// Distance from the register to the CFA.
        cfa_offset: i32,
        /// Where the caller's `rbp` is.
        rbp: RbpRule,
    },
    /// CFA = *(rsp + `offset`) + `add`: OpenSSL's assembly, which saves the old `rsp` on a
    /// realigned stack.
    RspDeref {
        /// Distance from `rsp` to the slot.
        offset: i32,
        /// What to add to the slot's content.
        add: i16,
        /// Where the caller's `rbp` is.
        rbp: RbpRule,
    },
    /// CFA = *(rbp + `offset`) + `add`: GCC's realigned stacks.
    RbpDeref {
        /// Distance from `rbp` to the slot.
        offset: i32,
        /// What to add to the slot's content.
        add: i16,
        /// Where the caller's `rbp` is.
        rbp: RbpRule,
    },
    /// A signal trampoline: `rsp` points at the `ucontext_t` that the kernel pushed, and the
    /// interrupted registers are in there.
    SignalFrame,
    /// The outermost frame: its return address is undefined.
    End,
    /// No call-frame information for this program counter, or a rule that is not modelled.
    Unknown,
}

// The engine caches one for each distinct program counter.
const _: () = assert!(size_of::<FrameRule>() <= 16);
