//! The translator with passes, without a program: what is emitted is decoded again, and some of it
//! is executed.

use super::builder;
use super::*;
use crate::context::EDGES_OFFSET;
use crate::hash::PcHash;
use crate::mode::Mode;
use std::sync::{Mutex, MutexGuard};

/// Memory that code can be written to and executed from: hot and cold halves.
const CODE_LEN: usize = 1 << 16;

/// Which passes are in force is known to the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Made {
    block: Translated,
    hot: Vec<u8>,
    hot_at: CacheAddr,
    cold: Vec<u8>,
    cold_at: CacheAddr,
    _alone: MutexGuard<'static, ()>,
}

fn passes(edges: bool, interpret: bool) -> Mode {
    Mode {
        edges,
        interpret,
        ..crate::mode()
    }
}

/// Translates `program` with the passes that `mode` asks for.
fn translate(mode: Mode, program: &'static [u8]) -> Made {
    translate_with(|| super::passes::choose(&mode), program)
}

/// The same, with the passes that `choose` puts in force.
fn translate_with(choose: impl FnOnce(), program: &'static [u8]) -> Made {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    choose();
    // SAFETY: fresh memory, which is never unmapped.
    let at = unsafe { map_code() };
    let middle = at + CODE_LEN as u64 / 2;
    // SAFETY: both halves are ours alone.
    let (mut hot, mut cold) = unsafe {
        (
            Emitter::new(at, middle),
            Emitter::new(middle, at + CODE_LEN as u64),
        )
    };
    let pc = ProgramAddr::new(program.as_ptr() as u64);
    let block = block(
        &mut hot,
        &mut cold,
        &Request {
            pc,
            limit: pc + program.len() as u64,
            readable: pc + program.len() as u64,
            prefix: false,
            writable: false,
            self_check: false,
            returns_to: ProgramAddr::NONE,
            first_exit: 0,
            module: pc,
            known: &hashbrown::HashMap::with_hasher(PcHash),
            resumed: &hashbrown::HashSet::with_hasher(PcHash),
        },
    );
    let bytes = |from: CacheAddr, to: CacheAddr| {
        // SAFETY: written just now.
        unsafe { std::slice::from_raw_parts(from.get() as *const u8, (to - from) as usize) }
            .to_vec()
    };
    Made {
        block,
        hot: bytes(at, hot.at),
        hot_at: at,
        cold: bytes(middle, cold.at),
        cold_at: middle,
        _alone: alone,
    }
}

/// # Safety
/// Makes memory that is executable and writable.
unsafe fn map_code() -> CacheAddr {
    const ALL: u64 = crate::sys::PROT_READ | crate::sys::PROT_WRITE | 4;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    // SAFETY: the caller knows; a mapping where there is none.
    let at = unsafe {
        crate::sys::sc!(
            crate::sys::nr::MMAP,
            0,
            CODE_LEN,
            ALL,
            PRIVATE_ANONYMOUS,
            -1i64,
            0
        )
    };
    assert!(at > 0, "no memory: {at}");
    CacheAddr::new(at as u64)
}

fn decoded(bytes: &[u8], at: CacheAddr) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, at.get(), DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// Which edges the code marks.
fn marks(bytes: &[u8], at: CacheAddr) -> Vec<u64> {
    let is_store =
        |i: &&Instruction| i.code() == Code::Mov_rm8_imm8 && i.segment_prefix() == Register::GS;
    decoded(bytes, at)
        .iter()
        .filter(is_store)
        .map(|i| i.memory_displacement64())
        .collect()
}

fn boundaries(code: &Made) -> Vec<(u16, u16)> {
    let insns = code.block.insns.iter();
    insns
        .filter(|m| m.is_boundary)
        .map(|m| (m.pc, m.code))
        .collect()
}

// mov rax, rbx; add rax, 1; je +4; mov rcx, rdx; ret
static BRANCHES: [u8; 13] = [
    0x48, 0x89, 0xD8, 0x48, 0x83, 0xC0, 0x01, 0x74, 0x04, 0x48, 0x89, 0xD1, 0xC3,
];

#[test]
fn without_passes_instructions_are_copied() {
    let code = translate(passes(false, false), &BRANCHES);
    assert!(code.hot.starts_with(&BRANCHES[..7]), "{:x?}", code.hot);
    assert_eq!(code.block.pc_end.get(), BRANCHES.as_ptr() as u64 + 13);
    assert_eq!(marks(&code.hot, code.hot_at), []);
    let at: Vec<u16> = boundaries(&code).iter().map(|(pc, _)| *pc).collect();
    assert_eq!(at, [0, 3, 7, 9, 12]);
    assert_eq!(code.block.exits.len(), 1);
}

#[test]
fn both_ways_of_a_branch_are_marked_apart() {
    let code = translate(passes(true, false), &BRANCHES);
    let (hot, cold) = (
        marks(&code.hot, code.hot_at),
        marks(&code.cold, code.cold_at),
    );
    // Not taken; a return is no choice. Taken: out of line.
    assert_eq!((hot.len(), cold.len()), (1, 1), "{hot:x?} {cold:x?}");
    assert_ne!(hot[0], cold[0]);
    // The branch itself leads to the mark, and what can be patched is behind that.
    let jump = decoded(&code.hot, code.hot_at)
        .into_iter()
        .find(|i| i.is_jcc_near())
        .expect("a branch");
    let patch = code.block.exits[0].patch.get();
    assert!(jump.near_branch_target() >= code.cold_at.get() && patch > jump.near_branch_target());
    assert!(patch & 63 <= 60, "a patch is one store");
}

#[test]
fn edges_have_the_same_name_wherever_the_module_is() {
    static AGAIN: [u8; 13] = BRANCHES;
    let one = translate(passes(true, false), &BRANCHES);
    let first = marks(&one.hot, one.hot_at);
    drop(one);
    let other = translate(passes(true, false), &AGAIN);
    assert_ne!(BRANCHES.as_ptr(), AGAIN.as_ptr());
    assert_eq!(first, marks(&other.hot, other.hot_at));
}

#[test]
fn an_interpreted_instruction_leaves_and_comes_back_behind_itself() {
    let code = translate(passes(false, true), &BRANCHES);
    let leaves = |m: &InsnMap| {
        let rest = &code.hot[(code.block.body - code.hot_at) as usize + m.code as usize..];
        decoded(rest, CacheAddr::NONE)[..8]
            .iter()
            .any(|i| i.code() == Code::Jmp_rm64 && i.segment_prefix() == Register::GS)
    };
    // Other code may stand in front of an instruction: it has a boundary of its own.
    let of = |pc: u16| {
        let mut boundaries = code.block.insns.iter().rev().filter(|m| m.is_boundary);
        boundaries.find(|m| m.pc == pc).expect("there")
    };
    assert!(leaves(of(0)), "mov rax, rbx is interpreted");
    // add rax, 1 is not, and follows in the same block.
    let add = of(3).code as usize;
    let body = (code.block.body - code.hot_at) as usize;
    assert_eq!(code.hot[body + add..][..4], BRANCHES[3..7]);
}

#[test]
fn inserted_code_changes_nothing_of_the_program() {
    static NOTHING: [u8; 1] = [0xC3];
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    super::passes::choose(&passes(true, false));
    // SAFETY: fresh memory.
    let at = unsafe { map_code() };
    let middle = at + CODE_LEN as u64 / 2;
    // SAFETY: both halves are ours alone.
    let (mut hot, mut cold) = unsafe {
        (
            Emitter::new(at, middle),
            Emitter::new(middle, at + CODE_LEN as u64),
        )
    };
    let request = Request {
        pc: ProgramAddr::new(NOTHING.as_ptr() as u64),
        limit: ProgramAddr::NONE,
        readable: ProgramAddr::NONE,
        prefix: false,
        writable: false,
        self_check: false,
        returns_to: ProgramAddr::NONE,
        first_exit: 0,
        module: ProgramAddr::NONE,
        known: &hashbrown::HashMap::with_hasher(PcHash),
        resumed: &hashbrown::HashSet::with_hasher(PcHash),
    };
    let mut b = Builder {
        hot: &mut hot,
        cold: &mut cold,
        request: &request,
        body: at,
        insns: Vec::new(),
        exits: Vec::new(),
        sites: Vec::new(),
        token: None,
        displacement_at: 0,
        out_of_line: false,
        followed: None,
    };
    b.edge(Edge {
        from: request.pc,
        to: request.pc + 1,
        is_choice: true,
    });
    let needs = builder::Needs {
        registers: 2,
        flags: true,
    };
    b.with_scratch(request.pc, needs, |b, registers| {
        for register in registers {
            b.hot.xor_self(register);
        }
    });
    // What a fault in there must give back.
    let [within] = &b.insns[..] else {
        panic!("one stretch with saved registers")
    };
    assert!(!within.is_boundary && within.saved.flags);
    let saved: Vec<(u8, usize)> = within.saved.registers().collect();
    assert_eq!(saved, [(1, slot::PASS), (2, slot::PASS + 1)]);
    b.hot.bytes(&[0xC3]);
    let end = b.hot.at;
    // SAFETY: written just now.
    let bytes = unsafe { std::slice::from_raw_parts(at.get() as *const u8, (end - at) as usize) };
    let mark = marks(bytes, at)[0] as usize;
    let mut context = vec![0u64; (EDGES_OFFSET as usize + brownout_abi::EDGES) / 8 + 1];
    let base = context.as_mut_ptr() as u64;
    const ARCH_SET_GS: u64 = 0x1001;
    let (rax, rcx, rdx, flags): (u64, u64, u64, u64);
    // SAFETY: GS is nobody's in a test; the code above returns, and writes to the memory that GS
    // points to.
    unsafe {
        crate::sys::sc!(158, ARCH_SET_GS, base);
        core::arch::asm!(
            "stc", "call r8", "pushfq", "pop r9",
            in("r8") at.get(), out("r9") flags,
            inout("rax") 1u64 => rax, inout("rcx") 2u64 => rcx, inout("rdx") 3u64 => rdx,
        );
        crate::sys::sc!(158, ARCH_SET_GS, 0);
    }
    assert_eq!((rax, rcx, rdx), (1, 2, 3));
    assert_ne!(flags & 1, 0, "the carry flag is still there");
    assert_eq!(context[mark / 8] >> (8 * (mark % 8)) & 0xFF, 1);
}

/// Notes what it is shown, and adds nothing.
struct Watching;

static SEEN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn seen(what: &'static str) {
    SEEN.lock().expect("no test has failed with it").push(what);
}

impl builder::Pass for Watching {
    fn is_wanted(&self, _mode: &Mode) -> bool {
        true
    }
    fn look(&self, block: &[Decoded]) {
        assert_eq!(block.len(), 5);
        seen("look");
    }
    fn after(&self, _b: &mut Builder, _insn: &Decoded) {
        seen("after");
    }
    fn emitted(&self, pc: ProgramAddr, pc_end: ProgramAddr) {
        assert_eq!(pc_end - pc, BRANCHES.len() as u64);
        seen("emitted");
    }
}

#[test]
fn a_pass_sees_the_block_before_and_behind_and_each_instruction_that_goes_on() {
    let code = translate_with(|| builder::choose(&[&Watching], &crate::mode()), &BRANCHES);
    // Not behind the return, which goes elsewhere.
    let expected = ["look", "after", "after", "after", "after", "emitted"];
    assert_eq!(*SEEN.lock().expect("unpoisoned"), expected);
    assert!(code.hot.starts_with(&BRANCHES[..7]), "it has added nothing");
}
