//! Points: where a thread may lose its turn (`schedule/`).
//!
//! In front of every access to tracked memory, write-back, fence, locked instruction and `pause`
//! the thread leaves the cache and asks. Jumps backwards, indirect branches and returns only count;
//! after many of them without a point the thread asks, too, so that nobody who waits by looking
//! again and again keeps all others from going on.
//!
//! Where the points are follows from what the program executes, not from how its code happens to be
//! cut into blocks, nor from which instructions are known to touch tracked memory already: an
//! instruction that turns out to do so is started over, with its point if it had none before.

use super::builder::{Builder, Decoded, Form, Needs, Pass};
use super::interpret::{Goes, Interpreted, Interpreter};
use crate::address::{CacheAddr, ProgramAddr};
use crate::block::Saved;
use crate::context::{off, slot};
use crate::emit::RCX;
use crate::exit;
use crate::insn::{always_asks, is_flush};
use crate::machine::Machine;
use crate::pm::{is_tracked, site};
use crate::schedule::turn;
use alloc::boxed::Box;
use brownout_insn::MemoryForm;
use brownout_schedule::{Point, PointKind};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

/// See the module's header.
pub struct Points;

impl Pass for Points {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.schedule
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        if d.form != Form::Valid {
            return;
        }
        match what(&d.insn) {
            What::Asks => b.interpreted(&d.insn, &Points),
            What::Counts => b.counted(&d.insn),
            What::Nothing => {}
        }
    }
}

enum What {
    Nothing,
    Counts,
    Asks,
}

fn what(insn: &Instruction) -> What {
    let may_go_back = match insn.flow_control() {
        FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return => true,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            insn.near_branch_target() <= insn.ip()
        }
        _ => false,
    };
    if may_go_back {
        return What::Counts;
    }
    let asks = always_asks(insn) || site::any_known() && site::is_known(ProgramAddr::of(insn));
    match asks {
        true => What::Asks,
        false => What::Nothing,
    }
}

impl Interpreter for Points {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        if let Some(point) = point(machine, insn) {
            let ctx = machine.thread();
            if ctx.skip_point == ProgramAddr::of(insn) {
                // It has passed here already, and was started over.
                ctx.skip_point = ProgramAddr::NONE;
                return Goes::Here;
            }
            // `ctx.rip` is where the thread stands.
            turn::point(ctx, point);
        } else {
            // It may access tracked memory all the same.
            crate::follow::stands(machine.thread());
        }
        Goes::Here
    }
}

/// What the instruction is about to do; none if it is nobody's business this time.
fn point(machine: &mut Machine, insn: &Instruction) -> Option<Point> {
    let at = |kind, addr, size| Point {
        kind,
        size,
        pc: insn.ip(),
        addr,
    };
    if insn.mnemonic() == Mnemonic::Pause {
        return Some(at(PointKind::Yield, 0, 0));
    }
    if is_flush(insn) {
        let addr = machine.address(insn);
        return is_tracked(addr).then(|| at(PointKind::Flush, addr, 64));
    }
    let form = brownout_insn::classify(insn);
    let fence = brownout_insn::fence(insn);
    let (addr, size, writes) = accessed(machine, insn, form)?;
    match fence {
        Some(brownout_insn::FenceKind::Locked) if is_tracked(addr) => {
            Some(at(PointKind::Rmw, addr, size))
        }
        Some(brownout_insn::FenceKind::Locked) => Some(at(PointKind::Locked, addr, size)),
        Some(_) => Some(at(PointKind::Fence, 0, 0)),
        None if !is_tracked(addr) && !is_tracked(addr.wrapping_add(u64::from(size.max(1)) - 1)) => {
            None
        }
        None if writes => Some(at(PointKind::Store, addr, size)),
        None => Some(at(PointKind::Load, addr, size)),
    }
}

/// Address and size of what is accessed, and whether it is written to. Of several places, one in
/// tracked memory.
fn accessed(machine: &Machine, insn: &Instruction, form: MemoryForm) -> Option<(u64, u32, bool)> {
    const RCX_NUMBER: usize = 1;
    const RSI: usize = 6;
    const RDI: usize = 7;
    let kinds = || (0..insn.op_count()).map(|i| insn.op_kind(i));
    let is_string = |kind: OpKind| {
        matches!(
            kind,
            OpKind::MemoryESRDI | OpKind::MemorySegRSI | OpKind::MemorySegRDI
        )
    };
    if kinds().any(is_string) {
        if insn.has_rep_prefix() || insn.has_repne_prefix() {
            let count = machine.gpr(RCX_NUMBER);
            if count == 0 {
                return None;
            }
        }
        let size = insn.memory_size().size() as u32;
        let writes = matches!(insn.op0_kind(), OpKind::MemoryESRDI | OpKind::MemorySegRDI)
            && !matches!(
                insn.mnemonic(),
                Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq
            );
        let destination = machine.gpr(RDI);
        if kinds().any(|kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRDI))
            && is_tracked(destination)
        {
            return Some((destination, size, writes));
        }
        return Some((machine.gpr(RSI), size, false));
    }
    if kinds().all(|kind| kind != OpKind::Memory) {
        // A fence has no place.
        return Some((0, 0, false));
    }
    // Lanes may lie anywhere: not worth a decision.
    if insn.is_vsib() {
        return None;
    }
    let writes = match form {
        MemoryForm::Explicit { effect } => effect.write,
        _ => insn.op0_kind() == OpKind::Memory,
    };
    Some((
        machine.address(insn),
        insn.memory_size().size() as u32,
        writes,
    ))
}

/// A thread that has gone on for long.
struct Counted;

impl Interpreter for Counted {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        let point = Point {
            kind: PointKind::Spin,
            size: 0,
            pc: insn.ip(),
            addr: 0,
        };
        turn::point(machine.thread(), point);
        Goes::Here
    }
}

impl Builder<'_> {
    /// Counts that the program comes to `insn`; has it ask when it has been counted often.
    fn counted(&mut self, insn: &Instruction) {
        const JMP_LEN: u8 = 5;
        const ONE_REGISTER: Needs = Needs {
            registers: 1,
            flags: false,
        };
        let pc = ProgramAddr::of(insn);
        let it = Box::leak(Box::new(Interpreted {
            insn: *insn,
            next_code: CacheAddr::NONE,
            by: &Counted,
        }));
        let payload = &raw const *it as u64;
        self.begin(pc, Saved::NONE);
        self.with_scratch(pc, ONE_REGISTER, |b, _| {
            b.hot.reload(RCX, off::BUDGET);
            b.hot.add_rcx(-1);
            b.hot.spill(off::BUDGET, RCX);
            // To the asking, which is behind the jump over it.
            b.hot.jrcxz(JMP_LEN);
            let over = b.hot.jmp(b.hot.at);
            b.hot.reload(RCX, off::spill(slot::PASS));
            b.special(exit::INTERPRET, pc, payload);
            b.hot.jmp_goes_here(over);
        });
        it.next_code = self.hot.at;
    }
}
