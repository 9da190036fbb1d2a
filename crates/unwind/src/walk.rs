//! From a frame to its caller.

use crate::rule::{FrameRule, LookupPc, PcKind, RbpRule, Register};

/// Reads of the stack. An implementation may fail, and must not fault.
pub trait Memory {
    /// The eight bytes at an address of any alignment, or None if they cannot be read.
    fn read_u64(&self, addr: u64) -> Option<u64>;
}

/// Offsets in the kernel's `ucontext_t` for x86-64 (`uc_mcontext` begins at 40).
pub(crate) mod ucontext {
    pub(crate) const RBP: u64 = 120;
    pub(crate) const RSP: u64 = 160;
    pub(crate) const RIP: u64 = 168;
}

/// The registers of one frame that lead to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The program counter.
    pub pc: u64,
    /// What the program counter is.
    pub kind: PcKind,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer register, unless a frame on the way lost it.
    pub rbp: Option<u64>,
}

impl Cursor {
    /// The innermost frame, from the registers before its next instruction.
    pub fn innermost(pc: u64, rsp: u64, rbp: u64) -> Self {
        Self {
            pc,
            kind: PcKind::Exact,
            rsp,
            rbp: Some(rbp),
        }
    }

    /// The address at which to look up this frame's rule.
    #[inline]
    pub fn lookup_pc(&self) -> LookupPc {
        LookupPc::new(self.pc, self.kind)
    }
}

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where the frame returns to; for a signal frame, the interrupted program counter.
    pub return_addr: u64,
    /// The address in memory that holds it.
    pub slot: u64,
}

/// Why there is no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This is the outermost frame: the stack is complete. All others mean a stack that is cut
    /// short.
    Outermost,
    /// The rule is [`FrameRule::Unknown`].
    NoRule,
    /// The rule needs a register whose value is not known in this frame.
    RegisterUnknown,
    /// Memory that the rule points at cannot be read.
    Unreadable,
    /// The caller's frame would not lie above this one, or (by frame pointer) does not look like
    /// one.
    Implausible,
}

/// Advances the cursor to the caller. On an error the cursor is unchanged.
///
/// Loops are not detected beyond a single frame (stacks may be switched, so that addresses need not
/// rise): bound the depth.
#[inline]
pub fn step(rule: FrameRule, cursor: &mut Cursor, memory: &impl Memory) -> Result<Step, Stop> {
    step_with_registers(rule, cursor, memory, |_| None)
}

/// As [`step`], for a frame in which more registers are known, usually the innermost: `registers`
/// gives those other than `rsp` and `rbp`.
#[inline]
pub fn step_with_registers(
    rule: FrameRule,
    cursor: &mut Cursor,
    memory: &impl Memory,
    registers: impl FnOnce(Register) -> Option<u64>,
) -> Result<Step, Stop> {
    let read = |addr: u64| memory.read_u64(addr).ok_or(Stop::Unreadable);
    let at = |base: u64, offset: i32| base.wrapping_add_signed(i64::from(offset));
    let deref = |base: u64, offset: i32, add: i16| {
        read(at(base, offset)).map(|value| value.wrapping_add_signed(i64::from(add)))
    };
    let this_rbp = || cursor.rbp.ok_or(Stop::RegisterUnknown);
    let (cfa, rbp_rule) = match rule {
        FrameRule::Rsp { cfa_offset, rbp } => {
            let cfa = at(cursor.rsp, cfa_offset);
            if cfa <= cursor.rsp {
                return Err(Stop::Implausible);
            }
            (cfa, rbp)
        }
        FrameRule::Rbp { cfa_offset, rbp } => (at(this_rbp()?, cfa_offset), rbp),
        FrameRule::Other {
            register,
            cfa_offset,
            rbp,
        } => (
            at(
                registers(register).ok_or(Stop::RegisterUnknown)?,
                cfa_offset,
            ),
            rbp,
        ),
        FrameRule::RspDeref { offset, add, rbp } => (deref(cursor.rsp, offset, add)?, rbp),
        FrameRule::RbpDeref { offset, add, rbp } => (deref(this_rbp()?, offset, add)?, rbp),
        FrameRule::SignalFrame => return step_out_of_signal(cursor, memory),
        FrameRule::End => return Err(Stop::Outermost),
        FrameRule::Unknown => return Err(Stop::NoRule),
    };
    if cfa == cursor.rsp {
        return Err(Stop::Implausible);
    }
    let slot = cfa.wrapping_sub(8);
    let return_addr = read(slot)?;
    if return_addr == 0 {
        // Hand-made stacks (coroutines, `clone`) end like this where they do not say so in tables.
        return Err(Stop::Outermost);
    }
    // Not being able to read it matters only if an outer frame needs it.
    let rbp = match rbp_rule {
        RbpRule::Unchanged => cursor.rbp,
        RbpRule::AtCfa(offset) => memory.read_u64(at(cfa, offset)),
        RbpRule::AtRsp(offset) => memory.read_u64(at(cursor.rsp, offset)),
        RbpRule::AtRbp(offset) => cursor.rbp.and_then(|rbp| memory.read_u64(at(rbp, offset))),
        RbpRule::Lost => None,
    };
    *cursor = Cursor {
        pc: return_addr,
        kind: PcKind::ReturnAddress,
        rsp: cfa,
        rbp,
    };
    Ok(Step { return_addr, slot })
}

fn step_out_of_signal(cursor: &mut Cursor, memory: &impl Memory) -> Result<Step, Stop> {
    let field = |offset: u64| {
        memory
            .read_u64(cursor.rsp.wrapping_add(offset))
            .ok_or(Stop::Unreadable)
    };
    let (pc, rsp, rbp) = (
        field(ucontext::RIP)?,
        field(ucontext::RSP)?,
        field(ucontext::RBP)?,
    );
    let slot = cursor.rsp.wrapping_add(ucontext::RIP);
    // Not necessarily above: the handler may have run on an alternate stack.
    *cursor = Cursor {
        pc,
        kind: PcKind::Exact,
        rsp,
        rbp: Some(rbp),
    };
    Ok(Step {
        return_addr: pc,
        slot,
    })
}

/// The largest frame that [`step_by_frame_pointer`] believes in. JIT compilers keep frames small;
/// the usual main stack is eight times as large, so that a stale `rbp` from far above is mostly
/// refused.
pub const FRAME_BYTES_MAX: u64 = 1 << 20;

/// Advances the cursor to the caller in code without call-frame information (JITs), supposing that
/// `rbp` is a frame pointer: it is aligned, not below `rsp`, at most [`FRAME_BYTES_MAX`] above it,
/// and `is_code` accepts the return address next to it.
///
/// A heuristic. In the first and last instructions of a function, and in functions that do not
/// set up `rbp`, it skips one caller. On an error the cursor is unchanged.
pub fn step_by_frame_pointer(
    cursor: &mut Cursor,
    memory: &impl Memory,
    is_code: impl FnOnce(u64) -> bool,
) -> Result<Step, Stop> {
    let frame = cursor.rbp.ok_or(Stop::RegisterUnknown)?;
    let is_plausible = frame % 8 == 0
        && frame
            .checked_sub(cursor.rsp)
            .is_some_and(|distance| distance <= FRAME_BYTES_MAX);
    if !is_plausible {
        return Err(Stop::Implausible);
    }
    let slot = frame.wrapping_add(8);
    let rbp = memory.read_u64(frame).ok_or(Stop::Unreadable)?;
    let return_addr = memory.read_u64(slot).ok_or(Stop::Unreadable)?;
    if !is_code(return_addr) {
        return Err(Stop::Implausible);
    }
    *cursor = Cursor {
        pc: return_addr,
        kind: PcKind::ReturnAddress,
        rsp: frame.wrapping_add(16),
        rbp: Some(rbp),
    };
    Ok(Step { return_addr, slot })
}

/// How many bytes [`rule_from_code`] looks at.
pub const RULE_CODE_BYTES_MAX: usize = 10;

/// The rule for code that has no call-frame information but that its bytes give away: signal
/// trampolines (musl, Go), and linkage entries (lld). Otherwise [`FrameRule::Unknown`].
///
/// Give it the code at the program counter *itself*, whatever its kind; fewer than
/// [`RULE_CODE_BYTES_MAX`] bytes will do if no more are readable.
pub fn rule_from_code(code: &[u8], kind: PcKind) -> FrameRule {
    // `mov rax, 15; syscall` and `mov eax, 15; syscall`: nobody else calls `rt_sigreturn`.
    let is_sigreturn = code.starts_with(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05])
        || code.starts_with(&[0xb8, 15, 0, 0, 0, 0x0f, 0x05]);
    if is_sigreturn {
        return FrameRule::SignalFrame;
    }
    // `endbr64` may come first, then `jmp [rip + n]`: what the entry was called with is all there
    // is on the stack.
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    if kind == PcKind::Exact && code.starts_with(&[0xff, 0x25]) {
        return FrameRule::Rsp {
            cfa_offset: 8,
            rbp: RbpRule::Unchanged,
        };
    }
    FrameRule::Unknown
}
