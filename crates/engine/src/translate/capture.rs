//! The state of the program in front of chosen instructions, told to the tool: what it takes to say
//! what they compute, and from what.
//!
//! ```text
//!  Control::chosen ─▶ at translation: is this instruction among them? ─▶ leave, tell, go on with the instruction
//! ```
//! The tool knows from an earlier run which instructions touch what it is interested in; the others
//! are translated as without this pass, and run as fast.
//!
//! A record (`kind::CAPTURED`) has the words of [`Layout`](brownout_abi::captured): the instruction
//! itself, flags, the base of `fs`, all general registers, then pieces of memory and vector
//! registers that the instruction names. Memory that cannot be read is left out; of a repeated
//! string instruction there are as many bytes of each side as have room. An operand that may be an
//! entry of a table comes with what lies around it: whoever wonders what another index would have
//! found there finds it.
//!
//! A program that is to be kept (`session.rs`) tells nothing before it stops. From then on, the
//! tool may choose more instructions from run to run.
//!
//! Deviation: what an instruction reads beyond that (gathers, saved processor states, mask
//! registers) is not told. Whoever reads the record has to know that it cannot say what such an
//! instruction computes.

use super::builder::{Builder, Decoded, Form, Pass};
use super::interpret::{Goes, Interpreter};
use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::copy::read_memory;
use crate::machine::Machine;
use crate::pm::reach;
use crate::pm::ring::Writer;
use crate::sync::SpinLock;
use alloc::boxed::Box;
use alloc::vec::Vec;
use brownout_abi::{CHOSEN_MAX, captured, kind};
use brownout_insn::{MemoryForm, Repeat, classify};
use core::sync::atomic::{AtomicU64, Ordering};
use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind, Register};

/// See the module's header.
pub struct Capture;

impl Pass for Capture {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.capture
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        if d.form == Form::Valid && is_chosen(d.pc()) {
            let mut code = [0; captured::CODE_LEN];
            let len = d.raw.len().min(code.len());
            code[..len].copy_from_slice(&d.raw[..len]);
            let look = Box::leak(Box::new(Look {
                code: core::array::from_fn(|n| word(&code[8 * n..])),
            }));
            b.interpreted(&d.insn, look);
        } else if d.form == Form::Valid && d.insn.mnemonic() == Mnemonic::Wrfsbase {
            b.interpreted(&d.insn, &ChangesFs);
        }
    }
}

/// What is told of `fs` is remembered, because to ask the kernel each time would take longer than
/// all the rest. (System calls that change it are seen by `syscall/follow.rs`.)
struct ChangesFs;

impl Interpreter for ChangesFs {
    fn execute(&self, machine: &mut Machine, _: &Instruction) -> Goes {
        machine.thread().follow_fs = 0;
        Goes::Here
    }
}

/// What was chosen when the translations were made that there are.
static TRANSLATED: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());

/// Of a program that is kept, and of a run that is forked from it: the tool may have chosen more
/// instructions meanwhile. Blocks that hold any of them are translated anew.
pub fn take_choice() {
    if !crate::mode().capture {
        return;
    }
    let now: Vec<u64> = chosen()
        .iter()
        .map(|pc| pc.load(Ordering::Relaxed))
        .collect();
    let mut known = TRANSLATED.lock();
    if *known == now {
        return;
    }
    let mut engine = crate::blocks::ENGINE.lock();
    for pc in now.iter().filter(|pc| known.binary_search(pc).is_err()) {
        engine.invalidate(*pc, pc + 1);
    }
    *known = now;
}

fn chosen() -> &'static [AtomicU64] {
    let control = crate::control::control();
    let count = control.chosen_count.load(Ordering::Acquire) as usize;
    &control.chosen[..count.min(CHOSEN_MAX)]
}

/// The tool has sorted them.
fn is_chosen(pc: ProgramAddr) -> bool {
    chosen()
        .binary_search_by_key(&pc.get(), |entry| entry.load(Ordering::Relaxed))
        .is_ok()
}

/// The first eight bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

/// A chosen instruction. Lives for ever: code refers to it.
struct Look {
    code: [u64; captured::CODE_LEN / 8],
}

impl Interpreter for Look {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        // What a kept program does before it comes to its input cannot depend on it, and would be
        // told again with each run.
        if crate::follow::is_silent() {
            return Goes::Here;
        }
        let mut words: Vec<u64> = Vec::with_capacity(64);
        words.extend(self.code);
        words.push(machine.flags());
        words.push(fs_base(machine.thread()));
        words.extend((0..16).map(|n| machine.gpr(n)));
        let pieces = words.len();
        words.push(0);
        let around = table(machine, insn).into_iter().flatten();
        for (at, len) in memory(machine, insn).into_iter().flatten().chain(around) {
            let mut bytes = alloc::vec![0; len.next_multiple_of(8)];
            if len != 0 && read_memory(reach(ProgramAddr::new(at)), &mut bytes[..len]) {
                words[pieces] += 1;
                words.extend([at, len as u64]);
                words.extend(bytes.chunks(8).map(word));
            }
        }
        let vectors = words.len();
        words.push(0);
        for number in vector_registers(insn) {
            let [a, b, c, d, ..] = match insn.encoding() {
                EncodingKind::Legacy => machine.low_vector(number),
                _ => machine.vector(number),
            };
            words[vectors] += 1;
            words.extend([number as u64, a, b, c, d]);
        }
        // SAFETY: the bytes of integers.
        let bytes =
            unsafe { core::slice::from_raw_parts(words.as_ptr() as *const u8, 8 * words.len()) };
        let ctx = machine.thread();
        let thread = ctx.thread;
        let mut ring = Writer::lock(ctx);
        ring.raw(
            kind::CAPTURED,
            thread,
            0,
            0,
            bytes.len() as u32,
            insn.ip(),
            &[bytes],
        );
        Goes::Here
    }
}

fn fs_base(ctx: &mut ThreadContext) -> u64 {
    if ctx.follow_fs == 0 {
        ctx.follow_fs = crate::insn::fs_base();
    }
    ctx.follow_fs
}

/// Where the instruction may read: address and length.
fn memory(machine: &Machine, insn: &Instruction) -> [Option<(u64, usize)>; 3] {
    const RCX: usize = 1;
    const RSP: usize = 4;
    const RBP: usize = 5;
    const RSI: usize = 6;
    const RDI: usize = 7;
    const WORD: usize = 8;
    if let MemoryForm::String(string) = classify(insn) {
        let element = insn.memory_size().size();
        let count = match string.repeat {
            Repeat::Once => 1,
            _ => machine.gpr(RCX) as usize,
        };
        let len = count.saturating_mul(element).min(captured::STRING_MAX);
        // From the last to the first, they lie in front of the registers.
        const DIRECTION: u64 = 1 << 10;
        let lowest = |at: u64| match machine.flags() & DIRECTION {
            0 => at,
            _ => at.wrapping_add(element as u64).wrapping_sub(len as u64),
        };
        let side = |n: usize| Some((lowest(machine.gpr(n)), len));
        return [side(RSI), side(RDI), None];
    }
    let explicit = insn.op_kinds().any(|kind| kind == OpKind::Memory);
    let is_address_only = matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    let operand = (explicit && !is_address_only).then(|| {
        let at = machine.address(insn);
        // A bit beside the operand may be meant.
        let at = match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts, OpKind::Register) => {
                let bits = 8 * insn.memory_size().size() as i64;
                let index = match insn.op1_register().size() {
                    8 => machine.gpr(insn.op1_register().number()) as i64,
                    4 => i64::from(machine.gpr(insn.op1_register().number()) as i32),
                    _ => i64::from(machine.gpr(insn.op1_register().number()) as i16),
                };
                at.wrapping_add((index.div_euclid(bits) * (bits / 8)) as u64)
            }
            _ => at,
        };
        (at, insn.memory_size().size().min(captured::OPERAND_MAX))
    });
    let stack = match insn.mnemonic() {
        Mnemonic::Leave => Some((machine.gpr(RBP), WORD)),
        _ => insn
            .is_stack_instruction()
            .then(|| (machine.gpr(RSP), WORD)),
    };
    let table = (insn.mnemonic() == Mnemonic::Xlatb).then(|| {
        const RAX: usize = 0;
        const RBX: usize = 3;
        let at = machine.gpr(RBX).wrapping_add(machine.gpr(RAX) & 0xFF);
        (at, 1)
    });
    [operand, stack, table]
}

/// What lies around an operand that may be an entry of a table, in one piece a page: one page may
/// be there and the next one not.
fn table(machine: &Machine, insn: &Instruction) -> [Option<(u64, usize)>; 3] {
    const PAGE: u64 = 4096;
    /// Larger numbers are taken for addresses.
    const INDEX_MAX: u64 = 256;
    const LEN: u64 = captured::TABLE_MAX as u64;
    const WORD: usize = 8;
    let size = insn.memory_size().size();
    let is_operand = insn.op_kinds().any(|kind| kind == OpKind::Memory);
    let (base, index) = (insn.memory_base(), insn.memory_index());
    // What lies at a fixed distance from the stack is a variable.
    let is_variable = index == Register::None
        && matches!(
            base,
            Register::RSP | Register::RBP | Register::RIP | Register::None
        );
    if !is_operand || is_variable || size == 0 || size > WORD || insn.mnemonic() == Mnemonic::Lea {
        return [None; 3];
    }
    let at = machine.address(insn);
    let scale = u64::from(insn.memory_index_scale());
    let value = |register: Register| match register.is_gpr() {
        true => machine.gpr(register.full_register().number()),
        false => u64::MAX,
    };
    let (index, base) = (value(index), value(base));
    let first = if index < INDEX_MAX && INDEX_MAX * scale + size as u64 <= LEN {
        at.wrapping_sub(index * scale)
    } else if base < INDEX_MAX {
        at.wrapping_sub(base)
    } else {
        at.wrapping_sub(LEN / 2)
    };
    let end = first.wrapping_add(LEN);
    let page = at & !(PAGE - 1);
    let cut = |from: u64, to: u64| {
        let (from, to) = (first.max(from), end.min(to));
        (from < to).then(|| (from, (to - from) as usize))
    };
    [
        cut(page.wrapping_sub(PAGE), page),
        cut(page, page.wrapping_add(PAGE)),
        cut(page.wrapping_add(PAGE), page.wrapping_add(2 * PAGE)),
    ]
}

/// Numbers of the vector registers that it names. The first one is always there if there is any:
/// some forms mean it without naming it.
fn vector_registers(insn: &Instruction) -> Vec<usize> {
    let named = (0..insn.op_count())
        .filter(|n| insn.op_kind(*n) == OpKind::Register)
        .map(|n| insn.op_register(n))
        .filter(|register| register.is_vector_register());
    let mut numbers: Vec<usize> = named.map(|register| register.number()).collect();
    if !numbers.is_empty() {
        numbers.push(0);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
