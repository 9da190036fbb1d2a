//! Redirected instructions: everything but the address stays, and both implementations agree.

#![allow(clippy::print_stdout, reason = "a failing run must show its seed")]

mod common;

use brownout_insn::{
    Encode, EncodeError, INSTRUCTION_BYTES_MAX, MemoryForm, classify, encode, memory_operand,
    redirect, redirect_bytes, redirect_linear,
};
use common::{Random, SAMPLE_IP, choices, decode, random_bytes, sample};
use iced_x86::{Code, Instruction, OpKind, Register};
use std::collections::BTreeSet;

const SCRATCHES: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Everything about an instruction that must survive, its address excepted.
fn essence(insn: &Instruction) -> impl PartialEq + std::fmt::Debug + use<> {
    let operands: Vec<_> = (0..insn.op_count())
        .map(|operand| match insn.op_kind(operand) {
            OpKind::Register => (insn.op_kind(operand), insn.op_register(operand) as u64),
            OpKind::Memory => (OpKind::Memory, 0),
            kind => (kind, insn.immediate(operand)),
        })
        .collect();
    let prefixes = [
        insn.has_lock_prefix(),
        insn.has_repe_prefix(),
        insn.has_repne_prefix(),
        insn.has_xacquire_prefix(),
        insn.has_xrelease_prefix(),
        insn.zeroing_masking(),
        insn.is_broadcast(),
        insn.suppress_all_exceptions(),
    ];
    (
        insn.code(),
        operands,
        prefixes,
        insn.op_mask(),
        insn.rounding_control(),
        insn.memory_size(),
    )
}

/// Checks one instruction with one scratch register; false if it was not redirected.
fn check(insn: &Instruction, bytes: &[u8], scratch: Register, encoder: &mut Encode) -> bool {
    let context = || format!("{:?} {insn} {bytes:02x?} on {scratch:?}", insn.code());
    let Some(redirected) = redirect_linear(insn, scratch) else {
        let mut out = [0; INSTRUCTION_BYTES_MAX];
        assert_eq!(
            redirect_bytes(insn, bytes, scratch, &mut out),
            None,
            "{}",
            context()
        );
        return false;
    };
    let segment = matches!(insn.segment_prefix(), Register::FS | Register::GS);
    assert_eq!(redirect(insn, scratch).is_none(), segment, "{}", context());

    let mut code = [0; INSTRUCTION_BYTES_MAX];
    let length = encoder
        .encode(&redirected, SAMPLE_IP, &mut code)
        .unwrap_or_else(|error| panic!("{error:?} {}", context()));
    let again = decode(&code[..length]).unwrap();
    assert_eq!(again.len(), length);
    let absolute = matches!(insn.code(), Code::Xlat_m8) || insn.memory_base() == Register::None;
    if insn.code() == again.code() {
        assert_eq!(essence(&again), essence(insn), "{}", context());
    } else {
        assert!(
            absolute && again.code() == redirected.code(),
            "{}",
            context()
        );
    }
    assert_eq!(again.memory_base(), scratch, "{}", context());
    assert_eq!(again.memory_index(), Register::None, "{}", context());
    assert_eq!(again.memory_displacement64(), 0, "{}", context());
    assert!(
        !matches!(again.segment_prefix(), Register::FS | Register::GS),
        "{}",
        context()
    );
    assert_eq!(classify(&again), classify(insn), "{}", context());

    // The patched bytes are the same instruction. They may keep prefixes that iced drops as
    // meaningless, so that an instruction full of them can become too long.
    let mut patched = [0; INSTRUCTION_BYTES_MAX];
    match redirect_bytes(insn, bytes, scratch, &mut patched) {
        None => assert!(insn.len() >= 14, "{}", context()),
        Some(length) => {
            let other = decode(&patched[..length])
                .unwrap_or_else(|| panic!("{patched:02x?} {}", context()));
            assert_eq!(other.len(), length, "{}", context());
            assert_eq!(
                essence(&other),
                essence(&again),
                "{patched:02x?} {}",
                context()
            );
            assert_eq!(other.memory_base(), scratch, "{}", context());
            assert_eq!(other.memory_index(), Register::None, "{}", context());
            assert_eq!(other.memory_displacement64(), 0, "{}", context());
            assert!(
                !matches!(other.segment_prefix(), Register::FS | Register::GS),
                "{}",
                context()
            );
        }
    }
    true
}

#[test]
fn every_opcode_with_a_memory_operand() {
    let mut encoder = Encode::new();
    let mut redirected = 0;
    for code in Code::values() {
        for insn in choices().filter_map(|choice| sample(code, choice)) {
            let mut bytes = [0; INSTRUCTION_BYTES_MAX];
            let length = encode(&insn, SAMPLE_IP, &mut bytes).unwrap();
            let mut any = false;
            for scratch in SCRATCHES {
                any |= check(&insn, &bytes[..length], scratch, &mut encoder);
            }
            redirected += usize::from(any);
            let expected = matches!(
                classify(&insn),
                MemoryForm::Explicit { .. }
                    | MemoryForm::Masked(_)
                    | MemoryForm::BitString(_)
                    | MemoryForm::XState(_)
                    | MemoryForm::Flush(_)
                    | MemoryForm::RegisterAddress { .. }
            );
            assert_eq!(any, expected, "{insn}");
        }
    }
    assert!(redirected > 6000, "{redirected} redirected");
}

#[test]
fn random_instructions() {
    let seed = 0x5EED_0003;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut encoder = Encode::new();
    let mut codes = BTreeSet::new();
    for _ in 0..12_000_000 {
        let bytes = random_bytes(&mut random);
        let Some(insn) = decode(&bytes) else { continue };
        if memory_operand(&insn).is_none() {
            continue;
        }
        let scratch = SCRATCHES[random.below(16) as usize];
        if check(&insn, &bytes[..insn.len()], scratch, &mut encoder) {
            codes.insert(insn.code() as usize);
        }
    }
    assert!(codes.len() > 3000, "{} opcodes", codes.len());
}

#[test]
fn high_byte_registers_exclude_extended_scratch_registers() {
    let insn = decode(&[0x88, 0x27]).unwrap(); // mov [rdi], ah
    assert!(redirect(&insn, Register::R8).is_none());
    assert!(redirect(&insn, Register::RDX).is_some());
}

#[test]
fn encoding_reports_what_is_wrong() {
    let insn = decode(&[0x48, 0x89, 0x07]).unwrap();
    assert_eq!(
        encode(&insn, 0, &mut [0; 2]),
        Err(EncodeError::BufferTooSmall)
    );
    let mut broken = insn;
    broken.set_op1_register(Register::XMM0);
    assert_eq!(encode(&broken, 0, &mut [0; 15]), Err(EncodeError::Invalid));
}
