//! Emulation and run-time resolution against the CPU that the tests run on.
//!
//! Instructions that this CPU lacks are skipped, and the tests say which; that all families are
//! exercised is only asserted where the CPU has them.

#![allow(clippy::print_stdout, reason = "a failing run must show its seed")]

mod common;
#[path = "common/native.rs"]
mod harness;

use brownout_insn::{
    EmulateError, INSTRUCTION_BYTES_MAX, LaneShape, Memory, MemoryForm, RegisterState,
    SegmentBases, classify, element_accesses, emulate, encode, memory_operand,
};
use common::{Random, SAMPLE_IP, choices, decode, sample};
use harness::{Arena, Cpu, Registers};
use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;

const ARENA_BYTES: usize = 16 * harness::PAGE;
const RBX: usize = 3;
const RDI: usize = 7;

/// A copy of the arena that the emulation works on.
struct Copy {
    address: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, PartialEq)]
struct Outside(u64);

impl Copy {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Outside> {
        let offset = address.wrapping_sub(self.address) as usize;
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes.len() => Ok(offset..end),
            _ => Err(Outside(address)),
        }
    }
}

impl Memory for Copy {
    type Fault = Outside;

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let range = self.range(address, bytes.len())?;
        bytes.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let range = self.range(address, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
}

fn state<'a>(cpu: &'a Cpu, registers: &'a mut Registers) -> RegisterState<'a> {
    RegisterState {
        gpr: &registers.gpr,
        rflags: 0,
        segments: SegmentBases::default(),
        xsave: &mut registers.image.0,
        layout: &cpu.layout,
    }
}

fn random_registers(cpu: &Cpu, random: &mut Random) -> Registers {
    let mut registers = Registers::new();
    registers.gpr.fill_with(|| random.bits());
    for (_, component) in [2, 5, 6, 7].map(|number| (number, cpu.layout.components[number])) {
        let place = component.offset as usize..(component.offset + component.size) as usize;
        random.fill(&mut registers.image.0[place]);
    }
    let image = &mut registers.image.0;
    random.fill(&mut image[32..416]);
    image[..2].copy_from_slice(&0x37Fu16.to_le_bytes());
    // Any top of the x87 stack, no pending exception.
    image[2..4].copy_from_slice(&((random.below(8) as u16) << 11).to_le_bytes());
    image[4] = random.bits() as u8;
    image[24..28].copy_from_slice(&0x1F80u32.to_le_bytes());
    // Now and then some components are in their initial state, whatever the bytes say.
    let used = if random.below(4) == 0 {
        random.bits()
    } else {
        u64::MAX
    };
    let enabled = cpu.layout.enabled & 0xE7;
    image[512..520].copy_from_slice(&(used & enabled).to_le_bytes());
    // Few bits, half the bits, most bits.
    let mut state = state(cpu, &mut registers);
    for number in 0..8 {
        let value = match random.below(4) {
            0 => random.bits() & random.bits() & random.bits(),
            1 => random.bits() | random.bits() | random.bits(),
            _ => random.bits(),
        };
        if state.opmask(number) != 0 {
            state.set_opmask(number, value);
        }
    }
    registers
}

/// Other registers of the same class, all different.
fn shuffle_registers(insn: &mut Instruction, random: &mut Random) {
    let bound = if insn.encoding() == EncodingKind::EVEX {
        32
    } else {
        16
    };
    let mut taken = Vec::new();
    let mut other = |register: Register, random: &mut Random| {
        let (class, bound) = if register.is_vector_register() {
            let class = match register.size() {
                16 => Register::XMM0,
                32 => Register::YMM0,
                _ => Register::ZMM0,
            };
            (class, bound)
        } else if register.is_mm() {
            (Register::MM0, 8)
        } else {
            return register;
        };
        loop {
            let number = random.below(bound) as usize;
            if !taken.contains(&number) {
                taken.push(number);
                return Register::try_from(class as usize + number).unwrap();
            }
        }
    };
    for operand in 0..insn.op_count() {
        if insn.op_kind(operand) == OpKind::Register {
            insn.set_op_register(operand, other(insn.op_register(operand), random));
        }
    }
    if insn.is_vsib() {
        insn.set_memory_index(other(insn.memory_index(), random));
    }
    if insn.has_op_mask() {
        insn.set_op_mask(
            Register::try_from(Register::K1 as usize + random.below(7) as usize).unwrap(),
        );
    }
}

/// Puts the operand into the middle of the arena; sometimes with a 32-bit address.
fn place_operand(
    insn: &mut Instruction,
    registers: &mut Registers,
    cpu: &Cpu,
    arena: &Arena,
    random: &mut Random,
) {
    let middle = arena.address() + (ARENA_BYTES / 2) as u64 + random.below(64);
    registers.gpr[RDI] = middle;
    if memory_operand(insn).is_none() {
        // `clzero` takes the address in rax, the masked byte stores in rdi.
        registers.gpr[0] = middle;
        return;
    }
    let displacement = random.below(512) as i64 - 256;
    insn.set_memory_displacement64(displacement as u64);
    insn.set_memory_displ_size(if displacement == 0 { 0 } else { 8 });
    // The address size of `movdir64b` is that of its destination register, `r8` in the samples.
    registers.gpr[8] = arena.address() + 64 * random.below(ARENA_BYTES as u64 / 64);
    let narrow = random.below(4) == 0 && insn.mnemonic() != Mnemonic::Movdir64b;
    insn.set_memory_base(if narrow { Register::EBX } else { Register::RBX });
    registers.gpr[RBX] = middle | if narrow { random.bits() << 32 } else { 0 };
    if narrow {
        insn.set_memory_displacement64(displacement as u32 as u64);
        insn.set_memory_displ_size(if displacement == 0 { 0 } else { 4 });
    }
    if let MemoryForm::Gather(vector) | MemoryForm::Scatter(vector) = classify(insn) {
        let scale = 1 << random.below(4);
        insn.set_memory_index_scale(scale);
        // Small ranges make indices collide, which decides who wins in a scatter.
        let range = [4, 64, 1024][random.below(3) as usize];
        let mut indices = [0; 64];
        let step = usize::from(vector.index_bytes);
        for place in indices.chunks_mut(step) {
            let index = random.below(2 * range) as i64 - range as i64;
            // An address that is cut to 32 bits does not depend on the upper half of the index.
            let garbage = if narrow && step == 8 {
                (random.bits() >> 1 << 34) as i64
            } else {
                0
            };
            place.copy_from_slice(&(index.wrapping_add(garbage)).to_le_bytes()[..step]);
        }
        state(cpu, registers).set_vector(vector.index, &indices);
    }
}

fn assert_same_registers(
    cpu: &Cpu,
    native: &mut Registers,
    emulated: &mut Registers,
    context: &str,
) {
    assert_eq!(native.gpr, emulated.gpr, "{context}");
    let (native_mmx, emulated_mmx) = {
        let (native, emulated) = (state(cpu, native), state(cpu, emulated));
        for number in 0..32 {
            assert_eq!(
                native.vector(number),
                emulated.vector(number),
                "vector {number} of {context}"
            );
        }
        for number in 0..8 {
            assert_eq!(
                native.opmask(number),
                emulated.opmask(number),
                "k{number} of {context}"
            );
        }
        let mmx =
            |state: &RegisterState<'_>| (0..8).map(|number| state.mmx(number)).collect::<Vec<_>>();
        (mmx(&native), mmx(&emulated))
    };
    assert_eq!(native_mmx, emulated_mmx, "mmx of {context}");
    // Control, status and tag of the x87 unit, if they are not in their initial state.
    let x87 = |registers: &Registers| {
        if registers.image.0[512] & 1 == 1 {
            registers.image.0[..5].to_vec()
        } else {
            vec![0x7F, 3, 0, 0, 0]
        }
    };
    assert_eq!(x87(native), x87(emulated), "x87 of {context}");
}

#[test]
fn emulation_does_what_the_cpu_does() {
    let Some(mut cpu) = Cpu::acquire() else {
        return;
    };
    let seed = 0x5EED_0004;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut arena = Arena::new(ARENA_BYTES);
    let (mut run, mut lacking) = (BTreeSet::new(), BTreeSet::new());
    for code in Code::values() {
        for choice in choices() {
            let Some(original) = sample(code, choice) else {
                continue;
            };
            let covered = matches!(
                classify(&original),
                MemoryForm::Gather(_)
                    | MemoryForm::Scatter(_)
                    | MemoryForm::Masked(_)
                    | MemoryForm::ImplicitRdi(_)
                    | MemoryForm::ImplicitRax { .. }
                    | MemoryForm::RegisterAddress { .. }
            );
            if !covered {
                continue;
            }
            for _ in 0..60 {
                let mut insn = original;
                let mut before = random_registers(&cpu, &mut random);
                shuffle_registers(&mut insn, &mut random);
                place_operand(&mut insn, &mut before, &cpu, &arena, &mut random);
                let aligned = ["ap", "dqa"].iter().any(|part| {
                    format!("{:?}", insn.mnemonic()).starts_with(&format!("Vmov{part}"))
                });
                if aligned {
                    before.gpr[RBX] = before.gpr[RBX] & !0x1FF | 0x100;
                    insn.set_memory_displacement64(0);
                    insn.set_memory_displ_size(0);
                }
                let mut bytes = [0; INSTRUCTION_BYTES_MAX];
                let length = encode(&insn, SAMPLE_IP, &mut bytes)
                    .unwrap_or_else(|error| panic!("{error:?} {insn:?}"));
                let insn = decode(&bytes[..length]).unwrap();
                let mut contents = vec![0; ARENA_BYTES];
                random.fill(&mut contents);
                arena.fill(&contents);
                let context = format!("{:?} {insn} {:02x?}", insn.code(), &bytes[..length]);

                let mut emulated = before.clone();
                let mut copy = Copy {
                    address: arena.address(),
                    bytes: contents,
                };
                match emulate(&insn, &mut state(&cpu, &mut emulated), &mut copy) {
                    Err(EmulateError::NotEmulated) => break,
                    Err(EmulateError::Fault(fault)) => panic!("{fault:x?} {context}"),
                    Ok(()) => {}
                }
                let (mut native, outcome) = cpu.run(&bytes[..length], &before);
                match outcome {
                    Err(fault) if fault.is_unknown_instruction() => {
                        lacking.insert(insn.mnemonic());
                        break;
                    }
                    Err(fault) => panic!("{fault:x?} {context}"),
                    Ok(()) => {}
                }
                assert_same_registers(&cpu, &mut native, &mut emulated, &context);
                let contents = arena.contents();
                if let Some(at) = (0..ARENA_BYTES).find(|&at| contents[at] != copy.bytes[at]) {
                    panic!(
                        "byte {at:#x} is {:#x} and not {:#x}: {context}",
                        contents[at], copy.bytes[at]
                    );
                }
                run.insert(format!("{:?}", insn.mnemonic()));
            }
        }
    }
    println!(
        "compared {} mnemonics: {run:?}; this CPU lacks {lacking:?}",
        run.len()
    );
    if cpu.has_avx512() {
        lacking.retain(|mnemonic| {
            !matches!(
                mnemonic,
                Mnemonic::Vmovsh | Mnemonic::Movdir64b | Mnemonic::Clzero
            )
        });
        assert!(lacking.is_empty(), "{lacking:?}");
        // 8 gathers, 8 scatters, 4 vector-masked, 3 byte-masked, 12 plain moves, 6 compresses, 6
        // expands, 16 broadcasts, 18 down-conversions, 12 extensions, 8 extracts.
        let optional = ["Clzero", "Movdir64b", "Vmovsh"];
        assert_eq!(
            run.iter()
                .filter(|name| !optional.contains(&name.as_str()))
                .count(),
            101,
            "{run:?}"
        );
    }
}

/// Elements before the faulting one are complete, the faulting one and later ones untouched.
#[test]
fn a_fault_leaves_what_the_cpu_leaves() {
    let Some(mut cpu) = Cpu::acquire() else {
        return;
    };
    let seed = 0x5EED_0005;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut arena = Arena::new(ARENA_BYTES);
    let mut faults = 0;
    for code in Code::values() {
        let Some(original) = sample(code, common::Choice::default()) else {
            continue;
        };
        let (MemoryForm::Gather(vector) | MemoryForm::Scatter(vector)) = classify(&original) else {
            continue;
        };
        for _ in 0..20 {
            let insn = original;
            let mut before = random_registers(&cpu, &mut random);
            before.gpr[RBX] = arena.address().wrapping_sub(0x1234_5678) + (ARENA_BYTES / 2) as u64;
            let mut indices = [0; 64];
            let step = usize::from(vector.index_bytes);
            let bad = random.below(u64::from(vector.elements)) as usize;
            for (element, place) in indices.chunks_mut(step).enumerate() {
                let index = if element == bad {
                    1i64 << 20
                } else {
                    random.below(512) as i64 * 8
                };
                place.copy_from_slice(&index.to_le_bytes()[..step]);
            }
            state(&cpu, &mut before).set_vector(vector.index, &indices);
            let mut bytes = [0; INSTRUCTION_BYTES_MAX];
            let length = encode(&insn, SAMPLE_IP, &mut bytes).unwrap();
            let mut contents = vec![0; ARENA_BYTES];
            random.fill(&mut contents);
            arena.fill(&contents);

            let mut emulated = before.clone();
            let mut copy = Copy {
                address: arena.address(),
                bytes: contents,
            };
            let answer = emulate(&insn, &mut state(&cpu, &mut emulated), &mut copy);
            let (mut native, outcome) = cpu.run(&bytes[..length], &before);
            if outcome.is_err_and(|fault| fault.is_unknown_instruction()) {
                break;
            }
            assert_eq!(
                outcome.is_err(),
                answer.is_err(),
                "{insn} {outcome:?} {answer:?}"
            );
            if let Err(fault) = outcome {
                assert!(fault.is_page_fault(), "{fault:?}");
                faults += 1;
                let EmulateError::Fault(Outside(address)) = answer.unwrap_err() else {
                    panic!("{insn}")
                };
                assert_eq!(
                    address,
                    arena.address() + (ARENA_BYTES / 2) as u64 + (4 << 20),
                    "{insn}"
                );
            }
            // The architecture lets a CPU complete fewer or later elements than we do before it
            // reports the fault, but what is complete must have the value and be unmasked; compare
            // the finished operation instead. Retried with a good index, both must end alike.
            let mut repaired = indices;
            let good = 64i64.to_le_bytes();
            repaired[bad * step..(bad + 1) * step].copy_from_slice(&good[..step]);
            state(&cpu, &mut native).set_vector(vector.index, &repaired);
            state(&cpu, &mut emulated).set_vector(vector.index, &repaired);
            let (mut native, outcome) = cpu.run(&bytes[..length], &native);
            assert_eq!(outcome, Ok(()), "{insn}");
            emulate(&insn, &mut state(&cpu, &mut emulated), &mut copy).unwrap();
            assert_same_registers(&cpu, &mut native, &mut emulated, &format!("{insn}"));
            assert!(arena.contents() == copy.bytes, "{insn}");
        }
    }
    println!("{faults} faults");
    if cpu.has_avx512() {
        assert!(faults > 100, "{faults}");
    }
}

/// Instructions that cannot be executed with any memory content on the test's own stack, or whose
/// data decides whether they fault.
fn can_run(insn: &Instruction) -> bool {
    use Mnemonic::*;
    !matches!(
        insn.mnemonic(),
        Call | Jmp
            | Push
            | Pop
            | Div
            | Idiv
            | Ldmxcsr
            | Vldmxcsr
            | Fldcw
            | Fldenv
            | Frstor
            | Fxrstor
            | Fxrstor64
            | Xrstor
            | Xrstor64
            | Sgdt
            | Sidt
            | Sldt
            | Smsw
            | Str
            | Mov
            | Lss
            | Lfs
            | Lgs
            | Ptwrite
    ) || (insn.mnemonic() == Mov
        && !insn.op0_register().is_segment_register()
        && insn.memory_base() == Register::RBX)
}

/// Faults on bytes that it does not access.
fn may_fault_beyond(insn: &Instruction) -> bool {
    use Mnemonic::*;
    match insn.mnemonic() {
        // Exception class E6NF: inactive lanes are not written, but their pages are checked.
        Vextractf32x4 | Vextractf32x8 | Vextractf64x2 | Vextractf64x4 | Vextracti32x4
        | Vextracti32x8 | Vextracti64x2 | Vextracti64x4 => true,
        // Intel reads two bytes, AMD four.
        Movsxd => insn.op0_register().size() == 2,
        _ => false,
    }
}

/// An instruction whose operand lies across the end of accessible memory faults if and only if one
/// of the bytes that we say it accesses lies behind that end; likewise at the beginning.
#[test]
fn accesses_are_the_bytes_that_fault() {
    let Some(mut cpu) = Cpu::acquire() else {
        return;
    };
    let seed = 0x5EED_0006;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let arena = Arena::new(harness::PAGE);
    let (mut ran, mut faulted, mut completed) = (BTreeSet::new(), 0, 0);
    let mut wrong = std::collections::BTreeMap::new();
    for code in Code::values() {
        for choice in choices() {
            let Some(original) = sample(code, choice) else {
                continue;
            };
            let size = match classify(&original) {
                MemoryForm::Explicit { effect } => effect.size,
                MemoryForm::Masked(masked) => masked.effect.size,
                _ => continue,
            };
            if !can_run(&original) {
                continue;
            }
            for trial in 0..48 {
                let mut insn = original;
                insn.set_memory_displacement64(0);
                insn.set_memory_displ_size(0);
                let mut bytes = [0; INSTRUCTION_BYTES_MAX];
                let length = encode(&insn, SAMPLE_IP, &mut bytes).unwrap();
                let insn = decode(&bytes[..length]).unwrap();
                let mut registers = random_registers(&cpu, &mut random);
                // How many bytes are on the accessible side; whole operands are tried often,
                // because they are the only aligned ones, and because off by one is the likeliest
                // error.
                let inside = match trial % 6 {
                    0 => 0,
                    1 => u64::from(size),
                    2 => u64::from(size) - 1,
                    3 => 1,
                    _ => random.below(u64::from(size) + 1),
                };
                let operand = if trial % 2 == 0 {
                    arena.end() - inside
                } else {
                    arena.address().wrapping_sub(u64::from(size) - inside)
                };
                registers.gpr[RBX] = operand;
                let mut predicted = false;
                element_accesses(&insn, &state(&cpu, &mut registers), &mut |access| {
                    predicted |= access.address < arena.address()
                        || access.address + access.bytes > arena.end();
                })
                .unwrap();
                let (_, outcome) = cpu.run(&bytes[..length], &registers);
                match outcome {
                    Err(fault) if fault.is_unknown_instruction() => break,
                    // Misaligned, or a value that this instruction rejects: says nothing about the
                    // bytes.
                    Err(fault) if !fault.is_page_fault() => continue,
                    _ => {}
                }
                ran.insert(code as usize);
                let actual = outcome.is_err();
                faulted += usize::from(actual);
                completed += usize::from(!actual);
                if actual != predicted && !(actual && may_fault_beyond(&insn)) {
                    let text = format!(
                        "{insn}: {inside} of {size} inside, predicted {predicted}, {outcome:x?}"
                    );
                    wrong
                        .entry(format!("{:?}", insn.mnemonic()))
                        .or_insert(text);
                }
            }
        }
    }
    println!(
        "{} opcodes, {faulted} faults, {completed} completions",
        ran.len()
    );
    for text in wrong.values() {
        println!("{text}");
    }
    assert!(wrong.is_empty(), "{:?}", wrong.keys());
    assert!(ran.len() > 1000 && faulted > 10_000 && completed > 10_000);
}

/// Every byte that a state-saving instruction changes is among those that we report, and where
/// nothing may be left out, the other way round.
#[test]
fn state_areas_cover_what_changes() {
    let Some(mut cpu) = Cpu::acquire() else {
        return;
    };
    let seed = 0x5EED_0007;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut arena = Arena::new(ARENA_BYTES);
    let area = arena.address() + 4096;
    let mut ran = BTreeSet::new();
    for code in Code::values() {
        let Some(mut insn) = sample(code, common::Choice::default()) else {
            continue;
        };
        let MemoryForm::XState(transfer) = classify(&insn) else {
            continue;
        };
        if !transfer.effect.write {
            continue;
        }
        insn.set_memory_displacement64(0);
        insn.set_memory_displ_size(0);
        let mut bytes = [0; INSTRUCTION_BYTES_MAX];
        let length = encode(&insn, SAMPLE_IP, &mut bytes).unwrap();
        for _ in 0..50 {
            let mut before = random_registers(&cpu, &mut random);
            before.gpr[RBX] = area;
            // Hidden components would be saved nevertheless, if they were asked for.
            before.gpr[0] = random.bits() & cpu.hidden.hide_in_xcr0(0xE7);
            before.gpr[2] = 0;
            let mut reported = vec![false; ARENA_BYTES];
            let report = &mut |access: brownout_insn::Access| {
                let from = (access.address - arena.address()) as usize;
                if access.write {
                    reported[from..from + access.bytes as usize].fill(true);
                }
            };
            element_accesses(&insn, &state(&cpu, &mut before), report).unwrap();
            // A byte that keeps its value by chance is not kept in both runs.
            let mut changed = vec![false; ARENA_BYTES];
            for pattern in [0x00, 0xFF] {
                let mut contents = vec![pattern; ARENA_BYTES];
                contents[4096 + 512..4096 + 576].fill(0);
                arena.fill(&contents);
                let (_, outcome) = cpu.run(&bytes[..length], &before);
                if outcome.is_err_and(|fault| fault.is_unknown_instruction()) {
                    break;
                }
                assert_eq!(outcome, Ok(()), "{insn}");
                ran.insert(insn.mnemonic());
                for (at, (now, then)) in arena.contents().into_iter().zip(&contents).enumerate() {
                    changed[at] |= now != *then;
                }
            }
            for at in 0..ARENA_BYTES {
                assert!(
                    reported[at] || !changed[at],
                    "{insn} changes byte {} of the area, unreported",
                    at as i64 - 4096
                );
            }
            let whole = matches!(insn.mnemonic(), Mnemonic::Xsave | Mnemonic::Xsave64);
            let header = 4096 + 512..4096 + 576;
            for at in (0..ARENA_BYTES).filter(|at| whole && !header.contains(at)) {
                // Components are padded, and x87 registers have 10 of 16 bytes; allow short
                // unwritten stretches only there.
                let padding = at < 4096 + 32 || at < 4096 + 160 && (at - 4096) % 16 >= 10;
                assert!(
                    changed[at] || !reported[at] || padding,
                    "{insn} leaves byte {} alone",
                    at - 4096
                );
            }
        }
    }
    println!("{ran:?}");
    assert!(ran.len() >= 4, "{ran:?}");
}

/// Pure, because few CPUs have the instruction.
#[test]
fn movdir64b_copies_a_line() {
    let insn = decode(&[0x66, 0x0F, 0x38, 0xF8, 0x43, 0x08]).unwrap(); // movdir64b rax, [rbx+8]
    let mut registers = Registers::new();
    registers.gpr[0] = 0x1040;
    registers.gpr[RBX] = 0x1080;
    let mut copy = Copy {
        address: 0x1000,
        bytes: (0..=255).collect(),
    };
    let mut state = RegisterState {
        gpr: &registers.gpr,
        rflags: 0,
        segments: SegmentBases::default(),
        xsave: &mut registers.image.0,
        layout: &brownout_insn::XsaveLayout::LEGACY,
    };
    emulate(&insn, &mut state, &mut copy).unwrap();
    let expected: Vec<u8> = (0..64).chain(0x88..0xC8).chain(128..=255).collect();
    assert_eq!(copy.bytes, expected);
}

#[test]
fn lane_shapes_are_as_documented() {
    let shape = |bytes: &[u8]| match classify(&decode(bytes).unwrap()) {
        MemoryForm::Masked(masked) => (masked.lanes, masked.lane_bytes, masked.shape),
        other => panic!("{other:?}"),
    };
    // vmovdqu8 [rdi]{k1}, zmm0; vpaddd zmm0{k1}, zmm0, [rdi]{1to16}; vbroadcasti32x4 zmm0{k1},
    // [rdi]; vpcompressd [rdi]{k1}, zmm0
    assert_eq!(
        shape(&[0x62, 0xF1, 0x7F, 0x49, 0x7F, 0x07]),
        (64, 1, LaneShape::Lanewise)
    );
    assert_eq!(
        shape(&[0x62, 0xF1, 0x7D, 0x59, 0xFE, 0x07]),
        (16, 4, LaneShape::Broadcast { elements: 1 })
    );
    assert_eq!(
        shape(&[0x62, 0xF2, 0x7D, 0x49, 0x5A, 0x07]),
        (16, 4, LaneShape::Broadcast { elements: 4 })
    );
    assert_eq!(
        shape(&[0x62, 0xF2, 0x7D, 0x49, 0x8B, 0x07]),
        (16, 4, LaneShape::Packed)
    );
}
