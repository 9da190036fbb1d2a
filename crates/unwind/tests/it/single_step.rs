//! The stack before every single instruction of a run through several libraries, against a record
//! of the calls that were executed.
//!
//! The trap flag makes the processor raise SIGTRAP after each instruction. The handler follows
//! calls and returns by what they do to the stack, and compares the unwound stack with that. This
//! covers prologues, epilogues, linkage tables and the vDSO at each address that really occurs.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;

use brownout_unwind::{
    Cursor, FrameRule, LookupPc, Memory, Module, PcKind, Register, Stop, rule_from_code, step,
    step_with_registers,
};

use crate::process::{OwnMemory, c_library, images, modules, rule_in};

const DEPTH_MAX: usize = 256;
const TRAP_FLAG: i64 = 0x100;
/// `si_code` of a trap by the trap flag (`TRAP_TRACE`); a breakpoint instruction has another.
const TRAP_TRACE: c_int = 2;

/// An executed call that has not returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Call {
    slot: u64,
    return_addr: u64,
}

/// The state of the stepped thread. The handler may interrupt anything, so it must not allocate.
struct Tracker {
    modules: Vec<Module>,
    calls: [Call; DEPTH_MAX],
    depth: usize,
    depth_max: usize,
    /// The stack pointer of the function that runs the code: frames above it are not ours to check.
    base: u64,
    /// The return address of that function.
    outer: Option<u64>,
    previous: (u64, u64),
    instructions: u64,
    cut_short: u64,
    mismatches: u64,
    first_mismatch: Option<Mismatch>,
    /// The C++ runtime, and how many stacks were wrong while no function of it was active.
    runtime: Module,
    mismatches_elsewhere: u64,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "shown by the failing assertion")]
struct Mismatch {
    pc: u64,
    at_depth: usize,
    expected: Option<Call>,
    unwound: Result<Call, Stop>,
    rule: FrameRule,
}

thread_local!(static TRACKER: Cell<*mut Tracker> = const { Cell::new(std::ptr::null_mut()) });

impl Tracker {
    fn observe(&mut self, pc: u64, rsp: u64, gregs: &[i64; 23]) {
        self.instructions += 1;
        let (pc_before, rsp_before) = self.previous;
        // A call: the stack holds the address after the instruction (2 to 7 bytes), which did not
        // run on there.
        if rsp == rsp_before.wrapping_sub(8) {
            let top = OwnMemory.read_u64(rsp).unwrap_or(0);
            if (pc_before + 2..=pc_before + 7).contains(&top) && pc != top {
                self.calls[self.depth] = Call {
                    slot: rsp,
                    return_addr: top,
                };
                self.depth += 1;
                self.depth_max = self.depth_max.max(self.depth);
            }
        }
        while self.depth > 0 && self.calls[self.depth - 1].slot < rsp {
            self.depth -= 1;
        }
        self.previous = (pc, rsp);
        self.compare(pc, rsp, gregs);
    }

    fn compare(&mut self, pc: u64, rsp: u64, gregs: &[i64; 23]) {
        let mut cursor = Cursor::innermost(pc, rsp, gregs[libc::REG_RBP as usize] as u64);
        for index in (0..=self.depth).rev() {
            let mut rule = rule_in(&self.modules, cursor.lookup_pc());
            if rule == FrameRule::Unknown {
                // lld writes linkage tables without call-frame information.
                let word = OwnMemory.read_u64(cursor.pc).unwrap_or(0).to_le_bytes();
                rule = rule_from_code(&word, cursor.kind);
            }
            let result = if cursor.kind == PcKind::Exact {
                step_with_registers(rule, &mut cursor, &OwnMemory, |register| {
                    Some(gregs[greg_index(register)] as u64)
                })
            } else {
                step(rule, &mut cursor, &OwnMemory)
            };
            let unwound = result.map(|step| Call {
                slot: step.slot,
                return_addr: step.return_addr,
            });
            let expected = index.checked_sub(1).map(|index| self.calls[index]);
            let is_right = match (expected, unwound) {
                (Some(expected), Ok(call)) => expected == call,
                // The function that runs the code: always the same caller.
                (None, Ok(call)) => {
                    call.slot >= self.base
                        && *self.outer.get_or_insert(call.return_addr) == call.return_addr
                }
                // Deviation 1 of the crate: `_dl_runtime_resolve` keeps its CFA in rbx.
                (_, Err(Stop::RegisterUnknown)) if matches!(rule, FrameRule::Other { .. }) => {
                    self.cut_short += 1;
                    return;
                }
                (_, Err(_)) => false,
            };
            if !is_right {
                self.mismatches += 1;
                let is_runtime = |pc: u64| self.runtime.contains(LookupPc::new(pc, PcKind::Exact));
                let mut active = self.calls[..self.depth].iter();
                let in_runtime = is_runtime(pc) || active.any(|call| is_runtime(call.return_addr));
                self.mismatches_elsewhere += u64::from(!in_runtime);
                let at_depth = self.depth - index;
                self.first_mismatch.get_or_insert(Mismatch {
                    pc,
                    at_depth,
                    expected,
                    unwound,
                    rule,
                });
                return;
            }
        }
    }
}

fn greg_index(register: Register) -> usize {
    let index = match register.dwarf() {
        0 => libc::REG_RAX,
        1 => libc::REG_RDX,
        2 => libc::REG_RCX,
        3 => libc::REG_RBX,
        4 => libc::REG_RSI,
        5 => libc::REG_RDI,
        6 => libc::REG_RBP,
        7 => libc::REG_RSP,
        n => libc::REG_R8 + c_int::from(n - 8),
    };
    index as usize
}

extern "C" fn on_trap(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let tracker = TRACKER.get();
    assert!(!tracker.is_null(), "a trap in a thread that is not stepped");
    // SAFETY: the kernel gives a valid info and context; the tracker belongs to this thread, which
    // waits in this handler, and lives until the stepped run is over.
    let (info, gregs, tracker) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        (&*info, &mut context.uc_mcontext.gregs, &mut *tracker)
    };
    let (pc, rsp) = (
        gregs[libc::REG_RIP as usize] as u64,
        gregs[libc::REG_RSP as usize] as u64,
    );
    if info.si_code == TRAP_TRACE {
        tracker.observe(pc, rsp, gregs);
    } else if gregs[libc::REG_EFL as usize] & TRAP_FLAG == 0 {
        // The first breakpoint.
        tracker.base = rsp;
        tracker.previous = (pc, rsp);
        gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
    } else {
        gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

#[inline(never)]
fn run_between_breakpoints(code: &dyn Fn()) {
    // SAFETY: the handler returns to the next instruction.
    unsafe { std::arch::asm!("int3") };
    code();
    // SAFETY: as above.
    unsafe { std::arch::asm!("int3") };
}

fn run_stepped(code: &dyn Fn()) -> Tracker {
    // SAFETY: all-zero is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction =
        on_trap as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // Not on the thread's alternate stack: Rust's is small.
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler uses nothing that it may interrupt.
    let result = unsafe { libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
    let mut tracker = Tracker {
        modules: modules(),
        calls: [Call::default(); DEPTH_MAX],
        depth: 0,
        depth_max: 0,
        base: 0,
        outer: None,
        previous: (0, 0),
        instructions: 0,
        cut_short: 0,
        mismatches: 0,
        first_mismatch: None,
        runtime: images()
            .iter()
            .find(|image| image.path.contains("libgcc_s"))
            .expect("Rust programs on this platform load it")
            .module,
        mismatches_elsewhere: 0,
    };
    TRACKER.set(&raw mut tracker);
    run_between_breakpoints(code);
    TRACKER.set(std::ptr::null_mut());
    tracker
}

fn check(name: &str, instructions_min: u64, depth_min: usize, code: &dyn Fn()) -> Tracker {
    let tracker = run_stepped(code);
    println!(
        "{name}: {} instructions, depth {}, cut short {}, wrong {}",
        tracker.instructions, tracker.depth_max, tracker.cut_short, tracker.mismatches
    );
    assert_eq!(
        tracker.mismatches, 0,
        "{name}: {:x?}",
        tracker.first_mismatch
    );
    assert!(tracker.instructions >= instructions_min, "{name}");
    assert!(tracker.depth_max >= depth_min, "{name}");
    tracker
}

#[test]
fn the_stack_is_right_before_every_instruction() {
    let library = c_library();
    // SAFETY: the functions have these types in frames.c.
    let (frames, slot_frame) = unsafe {
        (
            std::mem::transmute::<*mut c_void, extern "C" fn() -> i64>(library.symbol(c"frames")),
            std::mem::transmute::<*mut c_void, extern "C" fn(i64) -> i64>(
                library.symbol(c"slot_frame"),
            ),
        )
    };
    let first = check("C, binding lazily", 10_000, 6, &|| {
        black_box(frames());
    });
    let second = check("C, bound", 1_000, 4, &|| {
        black_box(frames());
    });
    assert!(first.cut_short > 0, "the first run resolves symbols");
    assert_eq!(second.cut_short, 0, "the second does not");
    check("slot frame", 10, 3, &|| {
        assert_eq!(black_box(slot_frame(41)), 42);
    });
    check("vDSO and formatting", 1_000, 5, &|| {
        let now = std::time::SystemTime::now();
        black_box(format!("{now:?} {:.3}", black_box(1.5_f64)));
    });
}

/// While the C++ runtime unwinds for an exception, the stack is right up to the moment when the
/// runtime overwrites its own saved registers with those of the landing place, and right again from
/// there.
#[test]
fn the_stack_is_right_around_exceptions() {
    let tracker = run_stepped(&|| {
        let result = std::panic::catch_unwind(|| {
            std::panic::resume_unwind(Box::new(black_box(7_u32)));
        });
        assert!(result.is_err());
    });
    println!(
        "exception: {} instructions, {} wrong",
        tracker.instructions, tracker.mismatches
    );
    assert!(tracker.instructions > 10_000);
    assert!(
        tracker.mismatches < tracker.instructions / 20,
        "{:x?}",
        tracker.first_mismatch
    );
    assert_eq!(
        tracker.mismatches_elsewhere, 0,
        "{:x?}",
        tracker.first_mismatch
    );
}

/// A canary: an unwinder that is wrong in one rule must be caught by the tracker.
#[test]
fn the_tracker_can_fail() {
    let mut tracker = run_stepped(&|| {
        black_box(format!("{:?}", black_box(1_u32)));
    });
    assert_eq!(tracker.mismatches, 0);
    tracker.depth = 1;
    tracker.calls[0] = Call {
        slot: 1,
        return_addr: 1,
    };
    let here = crate::process::here();
    tracker.compare(here.pc, here.rsp, &[0; 23]);
    assert_eq!(tracker.mismatches, 1);
}
