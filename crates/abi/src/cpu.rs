//! Processor features that are hidden on purpose, so that one machine can stand for others.
//!
//! `BROWNOUT_HIDE_CPU=avx512,clwb` makes the tool believe that the processor lacks these. The
//! program under the tool is told so by `cpuid` and `xgetbv`, so that its libraries choose other
//! code, and an instruction of a hidden feature raises SIGILL. The tests believe the same (what
//! they run natively still could use them, so they leave them out themselves).
//!
//! What is not hidden: the sizes in CPUID leaf 0xD. `xsave` goes on saving what the processor
//! really has, and a program that were told less would reserve too little.

/// The variable that names what is hidden, separated by commas.
pub const HIDE_VARIABLE: &str = "BROWNOUT_HIDE_CPU";

/// A feature that can be hidden; a bit in [`Features`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// All of AVX-512: EVEX encodings and mask registers.
    Avx512 = 1 << 0,
    /// AVX2, and what no processor has without it (AVX-512, VAES, VPCLMULQDQ).
    Avx2 = 1 << 1,
    /// `clwb`.
    Clwb = 1 << 2,
    /// `clflushopt`.
    Clflushopt = 1 << 3,
    /// BMI2, which the tool itself needs: it then refuses to run.
    Bmi2 = 1 << 4,
    /// Fast `rep movsb` and `rep stosb`: the C library then copies by vectors only.
    Erms = 1 << 5,
    /// `xsavec`: the dynamic linker then saves registers by `xsave`.
    Xsavec = 1 << 6,
}

/// Each feature by the word that hides it.
pub const FEATURES: [(&str, Feature); 7] = [
    ("avx512", Feature::Avx512),
    ("avx2", Feature::Avx2),
    ("clwb", Feature::Clwb),
    ("clflushopt", Feature::Clflushopt),
    ("bmi2", Feature::Bmi2),
    ("erms", Feature::Erms),
    ("xsavec", Feature::Xsavec),
];

/// A set of features.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u32);

/// Registers of one CPUID leaf: eax, ebx, ecx, edx.
pub type Registers = [u32; 4];

/// Bits to clear: leaf, sub-leaf, eax, ebx, ecx, edx. Names of the bits: Intel SDM volume 2, CPUID.
type Mask = (u32, u32, Registers);

const AVX512_MASKS: [Mask; 3] = [
    (
        7,
        0,
        [
            0,
            // F, DQ, IFMA, PF, ER, CD, BW, VL
            1 << 16 | 1 << 17 | 1 << 21 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31,
            // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
            1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14,
            // 4VNNIW, 4FMAPS, VP2INTERSECT, FP16
            1 << 2 | 1 << 3 | 1 << 8 | 1 << 23,
        ],
    ),
    // BF16; AVX10
    (7, 1, [1 << 5, 0, 0, 1 << 19]),
    // Opmask, ZMM_Hi256, Hi16_ZMM
    (0xD, 0, [0xE0, 0, 0, 0]),
];
const AVX2_MASKS: [Mask; 2] = [
    // AVX2; VAES, VPCLMULQDQ
    (7, 0, [0, 1 << 5, 1 << 9 | 1 << 10, 0]),
    // AVX-VNNI, AVX-IFMA; AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16
    (7, 1, [1 << 4 | 1 << 23, 0, 0, 1 << 4 | 1 << 5 | 1 << 10]),
];
const CLWB_MASKS: [Mask; 1] = [(7, 0, [0, 1 << 24, 0, 0])];
const CLFLUSHOPT_MASKS: [Mask; 1] = [(7, 0, [0, 1 << 23, 0, 0])];
const BMI2_MASKS: [Mask; 1] = [(7, 0, [0, 1 << 8, 0, 0])];
const ERMS_MASKS: [Mask; 2] = [
    // ERMS; FSRM
    (7, 0, [0, 1 << 9, 0, 1 << 4]),
    // FZRM, FSRS, FSRC
    (7, 1, [1 << 10 | 1 << 11 | 1 << 12, 0, 0, 0]),
];
const XSAVEC_MASKS: [Mask; 1] = [(0xD, 1, [1 << 1, 0, 0, 0])];

impl Feature {
    fn masks(self) -> &'static [Mask] {
        match self {
            Feature::Avx512 => &AVX512_MASKS,
            Feature::Avx2 => &AVX2_MASKS,
            Feature::Clwb => &CLWB_MASKS,
            Feature::Clflushopt => &CLFLUSHOPT_MASKS,
            Feature::Bmi2 => &BMI2_MASKS,
            Feature::Erms => &ERMS_MASKS,
            Feature::Xsavec => &XSAVEC_MASKS,
        }
    }
}

impl Features {
    /// Nothing.
    pub const NONE: Features = Features(0);

    /// From words separated by commas. `Err` is the first word that names no feature.
    pub fn parse(text: &str) -> Result<Features, &str> {
        let mut set = Features::NONE;
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match FEATURES.iter().find(|(name, _)| *name == word) {
                Some((_, feature)) => set.0 |= *feature as u32,
                None => return Err(word),
            }
        }
        if set.has(Feature::Avx2) {
            // No processor has the wider vectors without the narrower.
            set.0 |= Feature::Avx512 as u32;
        }
        Ok(set)
    }

    /// Whether it is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature as u32 != 0
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// With this feature in the set.
    #[must_use]
    pub fn with(self, feature: Feature) -> Features {
        Features(self.0 | feature as u32)
    }

    /// What `cpuid` answers with the features of this set hidden.
    #[must_use]
    pub fn hide_in_cpuid(self, leaf: u32, sub: u32, mut answer: Registers) -> Registers {
        for (_, feature) in FEATURES {
            if !self.has(feature) {
                continue;
            }
            for (_, _, bits) in feature.masks().iter().filter(|m| (m.0, m.1) == (leaf, sub)) {
                for (register, bits) in answer.iter_mut().zip(bits) {
                    *register &= !bits;
                }
            }
        }
        answer
    }

    /// What `xgetbv` answers for XCR0 with the features of this set hidden.
    #[must_use]
    pub fn hide_in_xcr0(self, xcr0: u64) -> u64 {
        if self.has(Feature::Avx512) {
            xcr0 & !0xE0
        } else {
            xcr0
        }
    }
}

/// What [`plain_cpuid`] clears, besides AVX-512, AVX2 and BMI2.
const PLAIN_MASKS: [Mask; 3] = [
    // PCLMULQDQ, SSSE3, FMA, SSE4.1, SSE4.2, MOVBE, AES, AVX, F16C
    (
        1,
        0,
        [
            0,
            0,
            1 << 1 | 1 << 9 | 1 << 12 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 25 | 1 << 28 | 1 << 29,
            0,
        ],
    ),
    (
        7,
        0,
        [
            0,
            // BMI1, ADX, SHA
            1 << 3 | 1 << 19 | 1 << 29,
            // GFNI
            1 << 8,
            // AMX-BF16, AMX-TILE, AMX-INT8
            1 << 22 | 1 << 24 | 1 << 25,
        ],
    ),
    // LZCNT, SSE4A, XOP, FMA4, TBM
    (
        0x8000_0001,
        0,
        [0, 0, 1 << 5 | 1 << 6 | 1 << 11 | 1 << 16 | 1 << 21, 0],
    ),
];

/// What `cpuid` answers to a program that is shown a plain processor: no vectors but those of SSE2
/// and SSE3, and none of the instructions that came with or after AVX but those that write back
/// cache lines. Libraries that ask choose their simplest code. What they would have chosen still
/// works.
///
/// Leaves whose answers do not depend on the sub-leaf are told so by whatever `sub` is.
#[must_use]
pub fn plain_cpuid(leaf: u32, sub: u32, answer: Registers) -> Registers {
    let vectors = Features::NONE
        .with(Feature::Avx512)
        .with(Feature::Avx2)
        .with(Feature::Bmi2);
    let mut answer = vectors.hide_in_cpuid(leaf, sub, answer);
    let is_it = |mask: &&Mask| mask.0 == leaf && (leaf != 7 || mask.1 == sub);
    for (_, _, bits) in PLAIN_MASKS.iter().filter(is_it) {
        for (register, bits) in answer.iter_mut().zip(bits) {
            *register &= !bits;
        }
    }
    answer
}

/// What `xgetbv` answers for XCR0 to such a program: the state of AVX-512 and AMX does not exist.
/// That of AVX does, because `xsave` saves it.
#[must_use]
pub fn plain_xcr0(xcr0: u64) -> u64 {
    const AMX: u64 = 0x6_0000;
    Features::NONE.with(Feature::Avx512).hide_in_xcr0(xcr0) & !AMX
}

/// What the processor answers to `cpuid`.
#[cfg(target_arch = "x86_64")]
pub fn cpuid(leaf: u32, subleaf: u32) -> core::arch::x86_64::CpuidResult {
    // Compilers from some version on call it safe; the oldest that we promise does not.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        core::arch::x86_64::__cpuid_count(leaf, subleaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_and_others_named() {
        assert_eq!(Features::parse(""), Ok(Features::NONE));
        let set = Features::parse("clwb, erms,").expect("both exist");
        assert!(set.has(Feature::Clwb) && set.has(Feature::Erms) && !set.has(Feature::Avx2));
        assert!(
            Features::parse("avx2")
                .expect("exists")
                .has(Feature::Avx512)
        );
        assert_eq!(Features::parse("clwb,avx3"), Err("avx3"));
        for (name, feature) in FEATURES {
            assert!(Features::parse(name).expect(name).has(feature));
        }
    }

    #[test]
    fn a_plain_processor_keeps_its_write_backs() {
        let all = [u32::MAX; 4];
        // Whatever register 3 holds, leaf 1 is leaf 1.
        for sub in [0, 9] {
            let [_, _, ecx, edx] = plain_cpuid(1, sub, all);
            // AVX, SSE4.2, SSSE3; SSE3, POPCNT, OSXSAVE
            assert_eq!(ecx & (1 << 28 | 1 << 20 | 1 << 9), 0);
            assert_eq!(ecx & (1 | 1 << 23 | 1 << 27), 1 | 1 << 23 | 1 << 27);
            assert_eq!(edx, u32::MAX);
        }
        let [_, ebx, ecx, _] = plain_cpuid(7, 0, all);
        // AVX2, BMI1, BMI2, AVX512F; CLFLUSHOPT, CLWB
        assert_eq!(ebx & (1 << 5 | 1 << 3 | 1 << 8 | 1 << 16), 0);
        assert_eq!(ebx & (1 << 23 | 1 << 24), 1 << 23 | 1 << 24);
        assert_eq!(ecx & (1 << 9 | 1 << 10), 0);
        assert_eq!(plain_cpuid(0, 0, all), all);
        assert_eq!(plain_xcr0(0x6_00E7), 7);
    }

    #[test]
    fn only_the_bits_of_a_feature_are_cleared() {
        let all = [u32::MAX; 4];
        let clwb = Features::NONE.with(Feature::Clwb);
        assert_eq!(
            clwb.hide_in_cpuid(7, 0, all),
            [u32::MAX, !(1 << 24), u32::MAX, u32::MAX]
        );
        assert_eq!(clwb.hide_in_cpuid(7, 1, all), all);
        assert_eq!(clwb.hide_in_xcr0(0xE7), 0xE7);
        assert_eq!(Features::NONE.with(Feature::Avx512).hide_in_xcr0(0xE7), 7);
        // Sizes stay: `xsave` writes as much as ever.
        let avx512 = Features::NONE.with(Feature::Avx512);
        assert_eq!(avx512.hide_in_cpuid(0xD, 0, all)[1..], all[1..]);
    }
}
