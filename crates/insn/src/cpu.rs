//! Which processor feature an instruction belongs to, of those that can be hidden.

use brownout_abi::cpu::Feature;
use iced_x86::{CpuidFeature, EncodingKind, Instruction, Mnemonic, OpKind};

/// The feature without which this instruction does not exist; `None` if that is none that can be
/// hidden.
///
/// Faster strings ([`Feature::Erms`]) are no instructions of their own, and BMI2 is never missing
/// where this is asked.
#[must_use]
pub fn feature_of(insn: &Instruction) -> Option<Feature> {
    Some(match insn.mnemonic() {
        Mnemonic::Clwb => Feature::Clwb,
        Mnemonic::Clflushopt => Feature::Clflushopt,
        Mnemonic::Xsavec | Mnemonic::Xsavec64 => Feature::Xsavec,
        _ => match insn.encoding() {
            EncodingKind::EVEX => Feature::Avx512,
            EncodingKind::VEX if names_mask_register(insn) => Feature::Avx512,
            EncodingKind::VEX if needs_avx2(insn) => Feature::Avx2,
            _ => return None,
        },
    })
}

fn names_mask_register(insn: &Instruction) -> bool {
    (0..insn.op_count())
        .any(|op| insn.op_kind(op) == OpKind::Register && insn.op_register(op).is_k())
}

fn needs_avx2(insn: &Instruction) -> bool {
    use CpuidFeature as F;
    insn.cpuid_features().iter().any(|feature| {
        matches!(
            feature,
            F::AVX2
                | F::VAES
                | F::VPCLMULQDQ
                | F::AVX_VNNI
                | F::AVX_IFMA
                | F::AVX_VNNI_INT8
                | F::AVX_NE_CONVERT
        )
    })
}
