//! Register and flag usage against the CPU.
//!
//! An instruction is run with random registers, then again with one register or flag changed that
//! it is said not to read. Nothing else may differ afterwards. Known from hardware only: what this
//! CPU does with flags that manuals call undefined.

#![allow(clippy::print_stdout, reason = "a failing run must show its seed")]

mod common;
#[path = "common/native.rs"]
mod harness;

use brownout_insn::{
    MemoryForm, Usage, UsageAnalyzer, classify, encode, flags_killed, read_gprs, redirect_linear,
    used_gprs, written_gprs,
};
use common::{Random, SAMPLE_IP, decode, random_bytes};
use harness::{Arena, Cpu, Registers};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register, RflagsBits};
use std::collections::BTreeSet;

const RBX: usize = 3;
const RSP: usize = 4;

/// (iced's bit, position in the register)
const FLAG_BITS: [(u32, u64); 7] = [
    (RflagsBits::CF, 1 << 0),
    (RflagsBits::PF, 1 << 2),
    (RflagsBits::AF, 1 << 4),
    (RflagsBits::ZF, 1 << 6),
    (RflagsBits::SF, 1 << 7),
    (RflagsBits::DF, 1 << 10),
    (RflagsBits::OF, 1 << 11),
];

fn hardware_flags(set: u32) -> u64 {
    FLAG_BITS
        .iter()
        .filter(|(bit, _)| set & bit != 0)
        .fold(0, |flags, (_, position)| flags | position)
}

/// Can be run any number of times on the test's own thread, with the same result.
fn is_repeatable(insn: &Instruction) -> bool {
    use Mnemonic::*;
    let writes_segment = insn.op_count() > 0
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().is_segment_register();
    insn.flow_control() == FlowControl::Next
        && !insn.is_stack_instruction()
        && !insn.is_privileged()
        && !writes_segment
        && !(0..insn.op_count()).any(|operand| {
            insn.op_kind(operand) == OpKind::Register
                && insn.op_register(operand).full_register() == Register::RSP
        })
        && !matches!(
            insn.mnemonic(),
            Rdtsc
                | Rdtscp
                | Rdrand
                | Rdseed
                | Rdpid
                | Rdpru
                | Rdpmc
                | Cpuid
                | Xgetbv
                | Wrfsbase
                | Wrgsbase
                | Rdfsbase
                | Rdgsbase
                | Wrpkru
                | Rdpkru
                | Monitor
                | Monitorx
                | Umonitor
                | Mwait
                | Mwaitx
                | Umwait
                | Tpause
                | Lfs
                | Lgs
                | Lss
                | Fldcw
                | Fldenv
                | Frstor
                | Ldmxcsr
                | Vldmxcsr
                | Wait
                | Sgdt
                | Sidt
                | Smsw
                | Sldt
                | Str
                | Xbegin
                | Xend
                | Xabort
                | Hreset
                | Enclu
                | Serialize
        )
        && !matches!(
            classify(insn),
            MemoryForm::Unsupported(_)
                | MemoryForm::XState(_)
                | MemoryForm::String(_)
                | MemoryForm::ImplicitRdi(_)
                | MemoryForm::ImplicitRax { .. }
        )
}

struct Bench {
    cpu: Cpu,
    arena: Arena,
    contents: Vec<u8>,
}

impl Bench {
    /// The registers and the memory afterwards; `None` if it faults.
    fn run(&mut self, bytes: &[u8], before: &Registers) -> Option<(Registers, Vec<u8>)> {
        self.arena.fill(&self.contents);
        let (after, outcome) = self.cpu.run(bytes, before);
        outcome.ok().map(|()| (after, self.arena.contents()))
    }
}

#[test]
fn usage_is_what_the_cpu_uses() {
    let Some(cpu) = Cpu::acquire() else { return };
    let seed = 0x5EED_0008;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut contents = vec![0; harness::PAGE];
    random.fill(&mut contents);
    let mut bench = Bench {
        cpu,
        arena: Arena::new(harness::PAGE),
        contents,
    };
    let mut analyzer = UsageAnalyzer::new();
    let mut codes = BTreeSet::new();
    let mut wrong = std::collections::BTreeMap::new();
    for _ in 0..400_000 {
        let Some(original) = decode(&random_bytes(&mut random)) else {
            continue;
        };
        if !is_repeatable(&original) {
            continue;
        }
        let insn = match classify(&original) {
            MemoryForm::None if original.op_count() > 0 => original,
            _ => redirect_linear(&original, Register::RBX).unwrap_or(original),
        };
        let mut bytes = [0; 15];
        let Ok(length) = encode(&insn, SAMPLE_IP, &mut bytes) else {
            continue;
        };
        let insn = decode(&bytes[..length]).unwrap();
        let Usage {
            reads,
            writes,
            kills,
            flags_read,
            flags_written,
            flags_killed,
        } = analyzer.usage(&insn);

        let mut before = Registers::new();
        // Small numbers too: zero operands and counts are where instructions behave differently.
        before.gpr.fill_with(|| {
            if random.below(4) == 0 {
                random.below(3)
            } else {
                random.bits()
            }
        });
        before.gpr[RBX] = bench.arena.address() + 1024;
        before.rflags = random.bits() & !(1 << 10);
        before.image.0[..2].copy_from_slice(&0x37Fu16.to_le_bytes());
        before.image.0[24..28].copy_from_slice(&0x1F80u32.to_le_bytes());
        let Some((after, memory)) = bench.run(&bytes[..length], &before) else {
            continue;
        };
        codes.insert(insn.code() as usize);
        let mut complain = |what: String| {
            wrong
                .entry(format!("{:?}", insn.mnemonic()))
                .or_insert(format!("{insn}: {what}"));
        };

        for number in (0..16).filter(|&number| number != RSP && writes >> number & 1 == 0) {
            if after.gpr[number] != before.gpr[number] {
                complain(format!("writes register {number}"));
            }
        }
        let unwritten = !hardware_flags(flags_written) & harness::FLAGS;
        if (after.rflags ^ before.rflags) & unwritten != 0 {
            complain(format!(
                "flags {:#x} became {:#x}",
                before.rflags & harness::FLAGS,
                after.rflags
            ));
        }

        for number in (0..16).filter(|&number| number != RSP && reads >> number & 1 == 0) {
            let mut other = before.clone();
            other.gpr[number] = random.bits();
            let Some((changed, changed_memory)) = bench.run(&bytes[..length], &other) else {
                complain(format!("faults because of register {number}"));
                continue;
            };
            let killed = kills >> number & 1 == 1;
            let partly = writes >> number & 1 == 1 && !killed;
            for register in (0..16).filter(|&register| register != RSP) {
                let own = register == number;
                let expected = if own && !killed {
                    other.gpr[number]
                } else {
                    after.gpr[register]
                };
                if changed.gpr[register] != expected && !(own && partly) {
                    complain(format!(
                        "register {number} decides about register {register}"
                    ));
                }
            }
            // Undefined flags may come from anywhere.
            let defined = !hardware_flags(insn.rflags_undefined());
            if (changed.rflags ^ after.rflags) & defined != 0 || changed_memory != memory {
                complain(format!("register {number} decides about flags or memory"));
            }
        }
        for (bit, position) in FLAG_BITS
            .into_iter()
            .filter(|(bit, _)| flags_read & bit == 0 && *bit != RflagsBits::DF)
        {
            let mut other = before.clone();
            other.rflags ^= position;
            let Some((changed, changed_memory)) = bench.run(&bytes[..length], &other) else {
                complain(format!("faults because of flag {position:#x}"));
                continue;
            };
            if changed.gpr != after.gpr || changed_memory != memory {
                complain(format!(
                    "flag {position:#x} decides about registers or memory"
                ));
            }
            let difference = (changed.rflags ^ after.rflags) & harness::FLAGS;
            // A killed flag does not depend on what it was; any other may keep its own value.
            let excused = if flags_killed & bit != 0 { 0 } else { position };
            let defined = !hardware_flags(insn.rflags_undefined()) | hardware_flags(flags_killed);
            if difference & !excused & defined != 0 {
                complain(format!(
                    "flag {position:#x} decides about flags {difference:#x}"
                ));
            }
        }
    }
    println!("{} opcodes", codes.len());
    for text in wrong.values() {
        println!("{text}");
    }
    assert!(wrong.is_empty(), "{:?}", wrong.keys());
    assert!(codes.len() > 1000, "{}", codes.len());
}

fn usage(bytes: &[u8]) -> Usage {
    UsageAnalyzer::new().usage(&decode(bytes).unwrap())
}

#[test]
fn implicit_and_partial_uses() {
    let (rax, rcx, rdx, rbx, rsp, rsi, rdi) =
        (1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 6, 1 << 7);
    // rep movsb; mul rcx; mov al, 1; mov eax, 1; xor eax, eax; cmovz eax, ecx; bsf eax, ecx; push
    // rbx
    let movs = usage(&[0xF3, 0xA4]);
    assert_eq!(
        (movs.reads, movs.kills),
        (rcx | rsi | rdi, 0),
        "a count of 0 writes nothing"
    );
    assert_eq!(movs.flags_read, RflagsBits::DF);
    let mul = usage(&[0x48, 0xF7, 0xE1]);
    assert_eq!(
        (mul.reads, mul.writes, mul.kills),
        (rax | rcx, rax | rdx, rax | rdx)
    );
    let byte = usage(&[0xB0, 1]);
    assert_eq!((byte.reads, byte.writes, byte.kills), (0, rax, 0));
    assert_eq!(usage(&[0xB8, 1, 0, 0, 0]).kills, rax);
    let zero = usage(&[0x31, 0xC0]);
    assert_eq!((zero.reads, zero.kills), (0, rax));
    assert_eq!(usage(&[0x0F, 0x44, 0xC1]).reads & (rax | rcx), rax | rcx);
    let scan = usage(&[0x0F, 0xBC, 0xC1]);
    assert_eq!(
        (scan.reads & rcx, scan.writes, scan.kills),
        (rcx, rax, 0),
        "of 0 it keeps the register"
    );
    assert_eq!(usage(&[0x53]).used(), rbx | rsp);
    // A system call may read everything.
    assert_eq!(
        (usage(&[0x0F, 0x05]).reads, usage(&[0x0F, 0x05]).kills),
        (u16::MAX, 0)
    );
    // The free functions say the same.
    let insn = decode(&[0x48, 0xF7, 0xE1]).unwrap();
    assert_eq!(
        (used_gprs(&insn), read_gprs(&insn), written_gprs(&insn)),
        (rax | rcx | rdx, rax | rcx, rax | rdx)
    );
}

#[test]
fn flags_that_may_survive_are_not_killed() {
    // shl eax, cl; repe cmpsb; test eax, eax; inc eax; bt eax, ecx
    assert_eq!(usage(&[0xD3, 0xE0]).flags_killed, 0);
    assert_eq!(usage(&[0xF3, 0xA6]).flags_killed, 0);
    let all = RflagsBits::OF
        | RflagsBits::SF
        | RflagsBits::ZF
        | RflagsBits::AF
        | RflagsBits::CF
        | RflagsBits::PF;
    assert_eq!(usage(&[0x85, 0xC0]).flags_killed, all);
    assert_eq!(usage(&[0xFF, 0xC0]).flags_killed, all & !RflagsBits::CF);
    let insn = decode(&[0x0F, 0xA3, 0xC8]).unwrap();
    assert_eq!(insn.code(), Code::Bt_rm32_r32);
    assert_eq!(flags_killed(&insn), RflagsBits::CF);
}
