//! Random machine code that ends by itself, for `programs/run_blob.c`.
//!
//! ```text
//!  seed, mix ──▶ items (instruction of any opcode, or a control-flow pattern) ──▶ bytes
//!            └─▶ random or damaged bytes ──▶ bytes, without what no two runs agree on
//! ```
//!
//! Guarantees: the same seed and mix give the same bytes on machines with the same instructions; a
//! `Program` blob ends after a bounded number of steps, by returning or by a fault; no blob
//! contains, at any offset, an instruction of [`Exclusion`]. Operands come from iced's description
//! of each opcode, so no opcode is left out by forgetting it.
//!
//! Deviations: where the manuals leave flags undefined, an instruction that defines all follows.
//! AF after logic instructions is compared nevertheless: every processor clears it.

use brownout_random::Random;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, CpuidFeature, Decoder, DecoderOptions, Encoder,
    EncodingKind, FlowControl, Formatter, Instruction, InstructionBlock, InstructionInfoFactory,
    MemoryOperand, Mnemonic, NasmFormatter, OpAccess, OpCodeOperandKind, OpKind, Register,
    RoundingControl,
};

use brownout_abi::cpu::Features;

use crate::cpu;

// The layout of `run_blob.c`.
const CODE: u64 = 0x30_0000_0000;
const CONSTANTS: u64 = 0x30_0001_0000;
const ARENA_MIDDLE: u64 = 0x4000_4000;
/// Displacements from the middle of the arena that are surely inside, with room for any operand.
const ARENA_REACH: i64 = 0x3000;
const ARENA_READ_ONLY: i64 = 0x4000;
const ARENA_NOTHING: i64 = 0x8000;
const SMALL_32: i64 = 0x800;
const SMALL_64: i64 = 0x900;
/// Where patterns keep pointers; other instructions may hit them, which makes for wild jumps.
const SLOTS: i64 = 0x3100;
const OTHER_STACK: i64 = 0x3800;

/// How the code is mapped; the numbers are those of `run_blob.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mapping {
    /// Writable and executable.
    WritableExecutable = 0,
    /// Made writable, written, made executable.
    WriteXorExecute = 1,
    /// Written through another mapping of the same memory.
    TwoMappings = 2,
}

/// Groups of opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// General registers, flags, strings.
    Integer,
    /// x87 and MMX, which share registers.
    X87,
    /// SSE in all versions.
    Sse,
    /// VEX encoding: AVX, AVX2, FMA, BMI, mask registers.
    Vex,
    /// EVEX encoding: AVX-512.
    Evex,
}

/// What blobs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material {
    /// Instructions and control flow that make sense.
    Program,
    /// The same with some bytes changed.
    Damaged,
    /// Random bytes.
    Bytes,
}

/// What a test's blobs look like.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Kind of blob.
    pub material: Material,
    /// Number of blobs.
    pub blobs: u64,
    /// Opcode families with their weights.
    pub families: &'static [(Family, u64)],
    /// How many of a hundred items are control-flow patterns.
    pub control_percent: u64,
    /// How many of a thousand memory operands are invalid.
    pub invalid_permille: u64,
    /// Ways to map the code, one chosen for each blob.
    pub mappings: &'static [Mapping],
    /// Executions of each blob; all but the first meet code that was translated before.
    pub runs: u32,
    /// The arena is persistent memory: no stack lies there.
    pub in_pool: bool,
}

/// One piece of code, and how to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    seed: u64,
    bytes: Vec<u8>,
    offset: u32,
    mapping: Mapping,
    base: u32,
    runs: u32,
    pointers: u32,
}

/// The blobs of a seed.
pub fn generate(seed: u64, mix: &Mix) -> Vec<Blob> {
    let mut random = Random::new(seed);
    (0..mix.blobs)
        .map(|_| {
            let seed = random.bits();
            blob(seed, mix)
        })
        .collect()
}

/// The file that `run_blob` reads.
pub fn file(blobs: &[Blob]) -> Vec<u8> {
    let mut out = b"BLOBS01\n".to_vec();
    out.extend((blobs.len() as u64).to_le_bytes());
    for blob in blobs {
        out.extend(blob.seed.to_le_bytes());
        let words = [
            blob.bytes.len() as u32,
            blob.offset,
            blob.mapping as u32,
            blob.base,
            blob.runs,
            blob.pointers,
        ];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(&blob.bytes);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

impl Blob {
    /// One line an instruction: offset in the code area, bytes, text.
    pub fn disassemble(&self) -> String {
        let mut text = format!(
            "seed {:#x}, {:?}, arena in register {}, pointers {:#x}\n",
            self.seed, self.mapping, self.base, self.pointers
        );
        let ip = CODE + u64::from(self.offset);
        let mut decoder = Decoder::with_ip(64, &self.bytes, ip, DecoderOptions::NONE);
        let mut formatter = NasmFormatter::new();
        while decoder.can_decode() {
            let position = decoder.position();
            let insn = decoder.decode();
            let mut line = String::new();
            formatter.format(&insn, &mut line);
            let bytes: String = self.bytes[position..decoder.position()]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let _ = writeln!(text, "  code+{:#x} {bytes:30} {line}", insn.ip() - CODE);
        }
        text
    }
}

fn blob(seed: u64, mix: &Mix) -> Blob {
    let mut random = Random::new(seed);
    loop {
        // Any alignment, on either side of a page boundary and across it.
        let offset = 0x4000 + random.below(0x2000) as u32;
        let base = random.pick(&BASES);
        let mapping = random.pick(mix.mappings);
        let writable = mapping == Mapping::WritableExecutable;
        let bytes = match mix.material {
            Material::Program => program(&mut random, mix, base, offset, writable),
            Material::Damaged => {
                program(&mut random, mix, base, offset, writable).and_then(|mut bytes| {
                    for _ in 0..1 + random.below(4) {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] = random.bits() as u8;
                    }
                    exclude(bytes, offset)
                })
            }
            Material::Bytes => exclude(random_bytes(&mut random), offset),
        };
        if let Some(bytes) = bytes {
            return Blob {
                seed,
                bytes,
                offset,
                mapping,
                base: base.number() as u32,
                runs: mix.runs,
                pointers: match mix.material {
                    Material::Bytes => random.bits() as u32 & 0xFFFF,
                    _ => random.bits() as u32 & random.bits() as u32 & 0xFFFF,
                },
            };
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Opcodes

/// Registers that may point at the arena throughout a blob. Not rcx, which counts, nor rsp.
const BASES: [Register; 10] = [
    Register::RBX,
    Register::RBP,
    Register::RSI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Why an opcode does not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Its result differs from run to run or between processors: time, random numbers, identity.
    Nondeterministic,
    /// Stores the address of an x87 instruction, which a translator executes elsewhere.
    InstructionPointer,
    /// Depends on which components the processor considers in use, or on earlier saves.
    SaveArea,
    /// Enters the kernel, so what happens is not up to the code alone.
    System,
    /// Changes or uses FS and GS, which are the C library's and the tool's.
    Segment,
    /// Of a feature that is hidden: natively it would work, under the tool it must not.
    Hidden,
    /// Far transfers, transactions, single-stepping and alignment checks: not supported by the
    /// tool.
    Unsupported,
}

/// Whether this instruction must not occur anywhere in a blob.
pub fn exclusion(insn: &Instruction) -> Option<Exclusion> {
    use Mnemonic as M;
    let code = insn.code();
    if matches!(insn.segment_prefix(), Register::FS | Register::GS) {
        return Some(Exclusion::Segment);
    }
    let hidden = cpu::hidden();
    if !hidden.is_empty() && brownout_insn::feature_of(insn).is_some_and(|f| hidden.has(f)) {
        return Some(Exclusion::Hidden);
    }
    for op in 0..insn.op_count() {
        if insn.op_kind(op) == OpKind::Register && insn.op_register(op).is_segment_register() {
            return Some(Exclusion::Segment);
        }
    }
    if code.op_code().is_save_restore() {
        return Some(Exclusion::SaveArea);
    }
    // Far transfers, and what returns from or enters a more privileged mode.
    let transfer = match insn.flow_control() {
        FlowControl::UnconditionalBranch => !insn.is_jmp_short_or_near(),
        FlowControl::IndirectBranch => !insn.is_jmp_near_indirect(),
        FlowControl::Call => !insn.is_call_near(),
        FlowControl::IndirectCall => !insn.is_call_near_indirect(),
        FlowControl::Return => insn.mnemonic() != M::Ret,
        _ => false,
    };
    Some(match insn.mnemonic() {
        M::Rdtsc
        | M::Rdtscp
        | M::Rdrand
        | M::Rdseed
        | M::Rdpid
        | M::Rdpmc
        | M::Rdpru
        | M::Cpuid
        | M::Xgetbv
        | M::Lsl
        | M::Lar
        | M::Verr
        | M::Verw
        | M::Sgdt
        | M::Sidt
        | M::Sldt
        | M::Str
        | M::Smsw
        | M::Rdpkru
        | M::Wrpkru
        | M::Mwaitx
        | M::Monitorx
        | M::Mcommit
        | M::Clzero => Exclusion::Nondeterministic,
        M::Fnstenv
        | M::Fstenv
        | M::Fnsave
        | M::Fsave
        | M::Fxsave
        | M::Fxsave64
        | M::Fldenv
        | M::Frstor => Exclusion::InstructionPointer,
        M::Syscall | M::Sysenter | M::Int | M::Int1 => Exclusion::System,
        M::Rdfsbase
        | M::Rdgsbase
        | M::Wrfsbase
        | M::Wrgsbase
        | M::Swapgs
        | M::Lfs
        | M::Lgs
        | M::Lss => Exclusion::Segment,
        M::Popf | M::Popfd | M::Popfq | M::Xbegin | M::Xabort | M::Xend | M::Xtest => {
            Exclusion::Unsupported
        }
        _ if transfer => Exclusion::Unsupported,
        _ => return None,
    })
}

/// Opcodes of a family that this processor has.
fn opcodes(family: Family) -> &'static [Code] {
    static TABLE: OnceLock<[Vec<Code>; 5]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: [Vec<Code>; 5] = Default::default();
        for code in Code::values() {
            if let Some(family) = family_of(code) {
                table[family as usize].push(code);
            }
        }
        table
    });
    &table[family as usize]
}

/// The instruction forms that the tests could draw on some processor, and those that this one
/// lacks, by the feature's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// All of them.
    pub known: usize,
    /// Those that were not executed.
    pub lacking: BTreeMap<&'static str, usize>,
}

impl Forms {
    /// How many were not executed.
    pub fn lacking_count(&self) -> usize {
        self.lacking.values().sum()
    }
}

impl std::fmt::Display for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lacking = self.lacking_count();
        write!(
            f,
            "{} of {} instruction forms",
            self.known - lacking,
            self.known
        )?;
        if lacking == 0 {
            return Ok(());
        }
        write!(f, "; this processor lacks ")?;
        for (at, (name, count)) in self.lacking.iter().enumerate() {
            write!(f, "{}{name} ({count})", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What this machine can execute of all that the tests know, with some features hidden.
pub fn forms(hidden: Features) -> Forms {
    let mut forms = Forms::default();
    for code in Code::values().filter(|code| is_drawable(*code)) {
        let names: Option<Vec<&str>> = code.cpuid_features().iter().map(|f| flag(*f)).collect();
        let Some(names) = names else {
            continue;
        };
        forms.known += 1;
        // The narrowest feature is named last; a form is counted once.
        if let Some(missing) = names.iter().rfind(|name| !cpu::has_beside(name, hidden)) {
            *forms.lacking.entry(missing).or_default() += 1;
        }
    }
    forms
}

/// Whether blobs may have it on a processor that has it.
fn is_drawable(code: Code) -> bool {
    let description = code.op_code();
    let mut insn = Instruction::default();
    insn.set_code(code);
    description.is_instruction()
        && description.mode64()
        && !description.is_privileged()
        && !description.is_input_output()
        && !description.is_stack_instruction()
        && !description.is_reserved_nop()
        && insn.flow_control() == FlowControl::Next
        && exclusion(&insn).is_none_or(|why| why == Exclusion::Hidden)
        && matches!(
            description.encoding(),
            EncodingKind::Legacy | EncodingKind::VEX | EncodingKind::EVEX
        )
        // Undefined result, not only flags.
        && !matches!(
            code,
            Code::Bswap_r16 | Code::Shld_rm16_r16_CL | Code::Shrd_rm16_r16_CL
        )
}

fn family_of(code: Code) -> Option<Family> {
    let description = code.op_code();
    let has = |feature: &CpuidFeature| flag(*feature).is_some_and(cpu::has);
    if !is_drawable(code) || !code.cpuid_features().iter().all(has) {
        return None;
    }
    Some(match description.encoding() {
        EncodingKind::VEX => Family::Vex,
        EncodingKind::EVEX => Family::Evex,
        EncodingKind::Legacy => {
            let has = |wanted: fn(CpuidFeature) -> bool| {
                code.cpuid_features().iter().copied().any(wanted)
            };
            if has(|f| {
                use CpuidFeature as F;
                matches!(f, F::FPU | F::FPU287 | F::FPU387 | F::MMX)
            }) {
                Family::X87
            } else if has(|f| {
                use CpuidFeature as F;
                matches!(
                    f,
                    F::SSE
                        | F::SSE2
                        | F::SSE3
                        | F::SSSE3
                        | F::SSE4_1
                        | F::SSE4_2
                        | F::SSE4A
                        | F::AES
                        | F::PCLMULQDQ
                        | F::SHA
                        | F::GFNI
                )
            }) {
                Family::Sse
            } else {
                Family::Integer
            }
        }
        _ => return None,
    })
}

/// The kernel's name for a feature; features without an entry are not used. What a processor lacks
/// faults, which `Material::Bytes` tests.
fn flag(feature: CpuidFeature) -> Option<&'static str> {
    use CpuidFeature as F;
    Some(match feature {
        F::INTEL8086 | F::INTEL186 | F::INTEL286 | F::INTEL386 | F::INTEL486 | F::X64 => "lm",
        F::FPU | F::FPU287 | F::FPU387 => "fpu",
        F::MULTIBYTENOP => "nopl",
        F::PAUSE => "sse2",
        F::CMOV => "cmov",
        F::CX8 => "cx8",
        F::CMPXCHG16B => "cx16",
        F::MMX => "mmx",
        F::SSE => "sse",
        F::SSE2 => "sse2",
        F::SSE3 => "pni",
        F::SSSE3 => "ssse3",
        F::SSE4_1 => "sse4_1",
        F::SSE4_2 => "sse4_2",
        F::SSE4A => "sse4a",
        F::POPCNT => "popcnt",
        F::LZCNT => "abm",
        F::BMI1 => "bmi1",
        F::BMI2 => "bmi2",
        F::ADX => "adx",
        F::MOVBE => "movbe",
        F::AES => "aes",
        F::PCLMULQDQ => "pclmulqdq",
        F::SHA => "sha_ni",
        F::GFNI => "gfni",
        F::VAES => "vaes",
        F::VPCLMULQDQ => "vpclmulqdq",
        F::AVX => "avx",
        F::AVX2 => "avx2",
        F::FMA => "fma",
        F::F16C => "f16c",
        F::AVX_VNNI => "avx_vnni",
        F::AVX512F => "avx512f",
        F::AVX512DQ => "avx512dq",
        F::AVX512BW => "avx512bw",
        F::AVX512CD => "avx512cd",
        F::AVX512VL => "avx512vl",
        F::AVX512_IFMA => "avx512ifma",
        F::AVX512_VBMI => "avx512vbmi",
        F::AVX512_VBMI2 => "avx512_vbmi2",
        F::AVX512_VNNI => "avx512_vnni",
        F::AVX512_BITALG => "avx512_bitalg",
        F::AVX512_VPOPCNTDQ => "avx512_vpopcntdq",
        F::AVX512_BF16 => "avx512_bf16",
        F::AVX512_FP16 => "avx512_fp16",
        F::CLFSH => "clflush",
        F::CLFLUSHOPT => "clflushopt",
        F::CLWB => "clwb",
        F::PREFETCHW => "3dnowprefetch",
        F::MOVDIRI => "movdiri",
        F::MOVDIR64B => "movdir64b",
        _ => return None,
    })
}

// ---------------------------------------------------------------------------------------------
// One instruction

/// Register `number` of a class given by its first register.
fn nth(first: Register, number: u64) -> Register {
    Register::try_from(first as usize + number as usize).expect("within the class")
}

/// An instruction with what must precede it to make it mean something.
struct Prepared {
    before: Vec<Instruction>,
    insn: Instruction,
}

struct Operands<'a> {
    random: &'a mut Random,
    mix: &'a Mix,
    base: Register,
    before: Vec<Instruction>,
}

/// An instruction of a random opcode; `None` if the random choices do not fit together.
fn random_instruction(random: &mut Random, mix: &Mix, base: Register) -> Option<Prepared> {
    let family = weighted(random, mix.families);
    let code = random.pick(opcodes(family));
    let description = code.op_code();
    let mut operands = Operands {
        random,
        mix,
        base,
        before: Vec::new(),
    };
    let mut insn = Instruction::default();
    insn.set_code(code);
    for index in 0..description.op_count() {
        operands.set(&mut insn, index, description.op_kind(index))?;
    }
    let Operands {
        random, mut before, ..
    } = operands;
    let has_memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    if description.require_op_mask_register()
        || description.can_use_op_mask_register() && random.percent(60)
    {
        insn.set_op_mask(nth(Register::K1, random.below(7)));
        let zeroing = description.can_use_zeroing_masking() && insn.op0_kind() != OpKind::Memory;
        insn.set_zeroing_masking(zeroing && random.percent(40));
    }
    if has_memory {
        insn.set_is_broadcast(description.can_broadcast() && random.percent(30));
        if random.percent(3) {
            let ignored = [Register::ES, Register::CS, Register::DS, Register::SS];
            insn.set_segment_prefix(random.pick(&ignored));
        }
    } else if description.can_use_rounding_control() && random.percent(30) {
        insn.set_rounding_control(random.pick(&[
            RoundingControl::RoundDown,
            RoundingControl::RoundUp,
            RoundingControl::RoundToNearest,
            RoundingControl::RoundTowardZero,
        ]));
    } else if description.can_suppress_all_exceptions() && random.percent(30) {
        insn.set_suppress_all_exceptions(true);
    }
    if description.can_use_lock_prefix() && insn.op0_kind() == OpKind::Memory {
        insn.set_has_lock_prefix(random.percent(30));
    }
    if insn.is_string_instruction() && random.percent(70) {
        before.push(mov32(Register::ECX, random.below(20) as u32));
        if description.can_use_repne_prefix() && random.percent(50) {
            insn.set_has_repne_prefix(true);
        } else {
            insn.set_has_rep_prefix(description.can_use_rep_prefix());
        }
    }
    match insn.mnemonic() {
        // A bit number in a register reaches far beyond the operand.
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            if has_memory && insn.op1_kind() == OpKind::Register =>
        {
            before.push(small(insn.op1_register().full_register()));
        }
        Mnemonic::Div | Mnemonic::Idiv if random.percent(80) => {
            // Quotients that fit, unless the divisor happens to be 0.
            let mask = if insn.memory_size().size() == 1 || insn.op0_register().is_gpr8() {
                0x7F
            } else {
                0x7FFF
            };
            before.push(mov32(Register::EAX, random.bits() as u32 & mask));
            before.push(mov32(Register::EDX, 0));
        }
        Mnemonic::Shld | Mnemonic::Shrd => insn.set_immediate8(insn.immediate8() & 15),
        _ => {}
    }
    // Repeated registers are #UD for some; enough of these come from random bytes.
    if description.requires_unique_reg_nums() || description.requires_unique_dest_reg_num() {
        let mut numbers: Vec<usize> = (0..insn.op_count())
            .filter(|op| insn.op_kind(*op) == OpKind::Register)
            .map(|op| insn.op_register(op).number())
            .collect();
        numbers.push(insn.memory_index().number());
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() != count {
            return None;
        }
    }
    let reserved = [base, Register::RSP];
    let mut info = InstructionInfoFactory::new();
    for each in before.iter().chain([&insn]) {
        Encoder::new(64).encode(each, CODE).ok()?;
        let writes_reserved = info.info(each).used_registers().iter().any(|used| {
            reserved.contains(&used.register().full_register())
                && !matches!(
                    used.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                )
        });
        if writes_reserved {
            return None;
        }
    }
    Some(Prepared { before, insn })
}

/// One of the families that this processor has anything of: what is left of a mix must still be
/// drawn from.
fn weighted(random: &mut Random, families: &[(Family, u64)]) -> Family {
    let there = || {
        families
            .iter()
            .filter(|(family, _)| !opcodes(*family).is_empty())
    };
    let total = there().map(|(_, weight)| weight).sum();
    let mut left = random.below(total);
    for (family, weight) in there() {
        if left < *weight {
            return *family;
        }
        left -= weight;
    }
    unreachable!("the number was below the sum of the weights")
}

fn make(built: Result<Instruction, iced_x86::IcedError>) -> Instruction {
    built.expect("operands fit the opcode")
}

fn mov32(register: Register, value: u32) -> Instruction {
    make(Instruction::with2(Code::Mov_r32_imm32, register, value))
}

/// Makes a register at most 255.
fn small(full: Register) -> Instruction {
    let dword = nth(Register::EAX, full.number() as u64);
    // The first four byte registers, then (after the high ones) spl to r15l.
    let byte = match full.number() as u64 {
        number @ 0..4 => nth(Register::AL, number),
        number => nth(Register::SPL, number - 4),
    };
    make(Instruction::with2(Code::Movzx_r32_rm8, dword, byte))
}

fn at(base: Register, displacement: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, displacement)
}

impl Operands<'_> {
    fn gpr(&mut self, first: Register) -> Register {
        nth(first, self.random.below(16))
    }

    fn vector(&mut self, insn: &Instruction, first: Register) -> Register {
        let evex = insn.code().op_code().encoding() == EncodingKind::EVEX;
        nth(first, self.random.below(if evex { 32 } else { 16 }))
    }

    fn set(&mut self, insn: &mut Instruction, index: u32, kind: OpCodeOperandKind) -> Option<()> {
        use OpCodeOperandKind as K;
        let choose_memory = self.random.percent(55);
        let register = match kind {
            K::mem | K::mem_mib | K::sibmem => return self.memory(insn, index),
            K::r8_or_mem
            | K::r16_or_mem
            | K::r32_or_mem
            | K::r64_or_mem
            | K::mm_or_mem
            | K::xmm_or_mem
            | K::ymm_or_mem
            | K::zmm_or_mem
            | K::k_or_mem
                if choose_memory =>
            {
                return self.memory(insn, index);
            }
            K::mem_vsib32x | K::mem_vsib64x => {
                return self.vector_memory(insn, index, kind, Register::XMM0);
            }
            K::mem_vsib32y | K::mem_vsib64y => {
                return self.vector_memory(insn, index, kind, Register::YMM0);
            }
            K::mem_vsib32z | K::mem_vsib64z => {
                return self.vector_memory(insn, index, kind, Register::ZMM0);
            }
            K::mem_offs => {
                insn.set_op_kind(index, OpKind::Memory);
                let displacement = self.random.between(-ARENA_REACH, ARENA_REACH);
                insn.set_memory_displacement64(ARENA_MIDDLE.wrapping_add_signed(displacement));
                insn.set_memory_displ_size(8);
                return Some(());
            }
            K::seg_rBX_al => {
                self.point(Register::RBX);
                insn.set_op_kind(index, OpKind::Memory);
                insn.set_memory_base(Register::RBX);
                insn.set_memory_index(Register::AL);
                return Some(());
            }
            K::seg_rSI => {
                self.point(Register::RSI);
                insn.set_op_kind(index, OpKind::MemorySegRSI);
                return Some(());
            }
            K::es_rDI | K::seg_rDI => {
                self.point(Register::RDI);
                let string = kind == K::es_rDI;
                insn.set_op_kind(
                    index,
                    if string {
                        OpKind::MemoryESRDI
                    } else {
                        OpKind::MemorySegRDI
                    },
                );
                return Some(());
            }
            K::r8_reg | K::r8_opcode | K::r8_or_mem => nth(Register::AL, self.random.below(20)),
            K::r16_reg | K::r16_rm | K::r16_opcode | K::r16_or_mem => self.gpr(Register::AX),
            K::r32_reg | K::r32_rm | K::r32_opcode | K::r32_vvvv | K::r32_or_mem => {
                self.gpr(Register::EAX)
            }
            K::r64_reg | K::r64_rm | K::r64_opcode | K::r64_vvvv | K::r64_or_mem => {
                self.gpr(Register::RAX)
            }
            // movdir64b: an aligned address in a register.
            K::r64_reg_mem => {
                let displacement = self.random.between(-0x40, 0x40) * 64;
                let pointer = make(Instruction::with2(
                    Code::Lea_r64_m,
                    Register::RDX,
                    at(self.base, displacement),
                ));
                self.before.push(pointer);
                Register::RDX
            }
            K::k_reg | K::k_rm | K::k_vvvv | K::k_or_mem => nth(Register::K0, self.random.below(8)),
            K::kp1_reg => nth(Register::K0, self.random.below(4) * 2),
            K::mm_reg | K::mm_rm | K::mm_or_mem => nth(Register::MM0, self.random.below(8)),
            K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 | K::xmm_is5 | K::xmm_or_mem => {
                self.vector(insn, Register::XMM0)
            }
            K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 | K::ymm_or_mem => {
                self.vector(insn, Register::YMM0)
            }
            K::zmm_reg | K::zmm_rm | K::zmm_vvvv | K::zmm_or_mem => {
                self.vector(insn, Register::ZMM0)
            }
            K::al => Register::AL,
            K::cl => Register::CL,
            K::ax => Register::AX,
            K::dx => Register::DX,
            K::eax => Register::EAX,
            K::rax => Register::RAX,
            K::st0 => Register::ST0,
            K::sti_opcode => nth(Register::ST0, self.random.below(8)),
            _ => return self.immediate(insn, index, kind),
        };
        insn.set_op_kind(index, OpKind::Register);
        insn.set_op_register(index, register);
        Some(())
    }

    fn immediate(
        &mut self,
        insn: &mut Instruction,
        index: u32,
        kind: OpCodeOperandKind,
    ) -> Option<()> {
        use OpCodeOperandKind as K;
        let value = self.random.bits();
        let second = (0..index).any(|earlier| insn.op_kind(earlier) == OpKind::Immediate8);
        let op_kind = match kind {
            K::imm8_const_1 => {
                insn.set_op_kind(index, OpKind::Immediate8);
                insn.set_immediate8(1);
                return Some(());
            }
            K::imm4_m2z => return None,
            K::imm8 if second => {
                insn.set_op_kind(index, OpKind::Immediate8_2nd);
                insn.set_immediate8_2nd(value as u8);
                return Some(());
            }
            K::imm8 => OpKind::Immediate8,
            K::imm8sex16 => OpKind::Immediate8to16,
            K::imm8sex32 => OpKind::Immediate8to32,
            K::imm8sex64 => OpKind::Immediate8to64,
            K::imm16 => OpKind::Immediate16,
            K::imm32 => OpKind::Immediate32,
            K::imm32sex64 => OpKind::Immediate32to64,
            K::imm64 => OpKind::Immediate64,
            _ => return None,
        };
        insn.set_op_kind(index, op_kind);
        match op_kind {
            OpKind::Immediate8 => insn.set_immediate8(value as u8),
            OpKind::Immediate8to16 => insn.set_immediate8to16(i16::from(value as i8)),
            OpKind::Immediate8to32 => insn.set_immediate8to32(i32::from(value as i8)),
            OpKind::Immediate8to64 => insn.set_immediate8to64(i64::from(value as i8)),
            OpKind::Immediate16 => insn.set_immediate16(value as u16),
            OpKind::Immediate32 => insn.set_immediate32(value as u32),
            OpKind::Immediate32to64 => insn.set_immediate32to64(i64::from(value as i32)),
            _ => insn.set_immediate64(value),
        }
        Some(())
    }

    /// Before the instruction: `register` = somewhere in the arena.
    fn point(&mut self, register: Register) {
        if register != self.base {
            let displacement = self.random.between(-ARENA_REACH, ARENA_REACH);
            let base = self.base;
            self.before.push(make(Instruction::with2(
                Code::Lea_r64_m,
                register,
                at(base, displacement),
            )));
        }
    }

    fn displacement(&mut self, alignment: i64) -> i64 {
        let reach = match self.random.below(3) {
            0 => 0x80,
            1 => 0x400,
            _ => ARENA_REACH,
        };
        self.random.between(-reach, reach) & -alignment
    }

    fn memory(&mut self, insn: &mut Instruction, index: u32) -> Option<()> {
        insn.set_op_kind(index, OpKind::Memory);
        insn.set_memory_displ_size(1);
        insn.set_memory_index_scale(1);
        let size = insn.memory_size().size() as i64;
        let misaligned = match insn.code().op_code().encoding() {
            EncodingKind::Legacy => 1,
            _ => 10,
        };
        let alignment = if size >= 16 && !self.random.percent(misaligned) {
            size.min(64)
        } else {
            1
        };
        if self.random.below(1000) < self.mix.invalid_permille {
            let beyond = match self.random.below(4) {
                0 => ARENA_READ_ONLY + self.random.below(0xF00) as i64,
                // Begins inside, ends outside.
                1 => ARENA_READ_ONLY - self.random.below(8) as i64,
                2 => ARENA_READ_ONLY + 0x1000 - self.random.below(8) as i64,
                _ => ARENA_NOTHING + self.random.below(0x8000) as i64,
            };
            insn.set_memory_base(self.base);
            if self.random.percent(20) {
                // Whatever is in there; most values are no addresses at all.
                insn.set_memory_base(self.gpr(Register::RAX));
            }
            insn.set_memory_displacement64((beyond & -alignment) as u64);
            return Some(());
        }
        let displacement = match self.random.below(100) {
            0..55 => {
                insn.set_memory_base(self.base);
                self.displacement(alignment)
            }
            55..75 if alignment == 1 => {
                let scaled = self.gpr(Register::RAX);
                if scaled == self.base || scaled == Register::RSP {
                    return None;
                }
                self.before.push(small(scaled));
                insn.set_memory_base(self.base);
                insn.set_memory_index(scaled);
                insn.set_memory_index_scale(self.random.pick(&[1, 2, 4, 8]));
                self.displacement(1)
            }
            75..88 => {
                insn.set_memory_base(Register::RIP);
                insn.set_memory_displ_size(8);
                CONSTANTS as i64 + (self.random.below(0xF00) as i64 & -alignment)
            }
            88..92 => {
                // Below the stack pointer, which whoever interrupts must leave alone; and below
                // what returns have given up, where the tool keeps addresses of its own.
                insn.set_memory_base(Register::RSP);
                -0x800 - self.random.below(0x200) as i64
            }
            92..96 => {
                insn.set_memory_base(nth(Register::EAX, self.base.number() as u64));
                self.displacement(alignment)
            }
            _ => {
                insn.set_memory_displ_size(4);
                ARENA_MIDDLE as i64 + self.displacement(alignment)
            }
        };
        insn.set_memory_displacement64(displacement as u64);
        Some(())
    }

    fn vector_memory(
        &mut self,
        insn: &mut Instruction,
        index: u32,
        kind: OpCodeOperandKind,
        first: Register,
    ) -> Option<()> {
        use OpCodeOperandKind as K;
        let narrow = matches!(kind, K::mem_vsib32x | K::mem_vsib32y | K::mem_vsib32z);
        let evex = insn.code().op_code().encoding() == EncodingKind::EVEX;
        let indices = self.vector(insn, first);
        let load = match (first, evex) {
            (Register::XMM0, false) => Code::VEX_Vmovdqu_xmm_xmmm128,
            (Register::YMM0, false) => Code::VEX_Vmovdqu_ymm_ymmm256,
            (Register::XMM0, true) => Code::EVEX_Vmovdqu32_xmm_k1z_xmmm128,
            (Register::YMM0, true) => Code::EVEX_Vmovdqu32_ymm_k1z_ymmm256,
            _ => Code::EVEX_Vmovdqu32_zmm_k1z_zmmm512,
        };
        let table = if narrow { SMALL_32 } else { SMALL_64 };
        self.before.push(make(Instruction::with2(
            load,
            indices,
            at(self.base, table),
        )));
        insn.set_op_kind(index, OpKind::Memory);
        insn.set_memory_base(self.base);
        insn.set_memory_index(indices);
        insn.set_memory_index_scale(self.random.pick(&[1, 2, 4, 8]));
        insn.set_memory_displ_size(1);
        let displacement = if self.random.below(1000) < self.mix.invalid_permille {
            // Some elements inside, some not: a part of the work is done before the fault.
            ARENA_READ_ONLY + 0x1000
        } else {
            self.displacement(1) / 2
        };
        insn.set_memory_displacement64(displacement as u64);
        Some(())
    }
}

// ---------------------------------------------------------------------------------------------
// Control flow

/// A place in the code, as the address that iced's block encoder replaces.
#[derive(Clone, Copy, Debug)]
struct Label(u64);

/// A function of the blob that other parts call.
#[derive(Clone, Copy, Debug)]
struct Function {
    label: Label,
    /// Bytes of arguments that its `ret` removes.
    arguments: u16,
}

struct ProgramBuilder<'a> {
    random: &'a mut Random,
    mix: &'a Mix,
    base: Register,
    /// The code may change itself; elsewhere it rarely tries.
    writable: bool,
    items: Vec<Instruction>,
    label_pending: Option<Label>,
    labels: u64,
    functions: Vec<Function>,
    /// Functions from this one on may be called, so that there is no unbounded recursion.
    callable: usize,
    /// On the other stack.
    switched: bool,
}

const JCC: [Code; 16] = [
    Code::Jo_rel32_64,
    Code::Jno_rel32_64,
    Code::Jb_rel32_64,
    Code::Jae_rel32_64,
    Code::Je_rel32_64,
    Code::Jne_rel32_64,
    Code::Jbe_rel32_64,
    Code::Ja_rel32_64,
    Code::Js_rel32_64,
    Code::Jns_rel32_64,
    Code::Jp_rel32_64,
    Code::Jnp_rel32_64,
    Code::Jl_rel32_64,
    Code::Jge_rel32_64,
    Code::Jle_rel32_64,
    Code::Jg_rel32_64,
];

/// Nesting of loops, branches and stack switches.
const DEPTH_MAX: u32 = 3;

fn program(
    random: &mut Random,
    mix: &Mix,
    base: Register,
    offset: u32,
    writable: bool,
) -> Option<Vec<u8>> {
    let mut builder = ProgramBuilder {
        random,
        mix,
        base,
        writable,
        items: Vec::new(),
        label_pending: None,
        labels: 0,
        functions: Vec::new(),
        callable: 0,
        switched: false,
    };
    builder.whole();
    let block = InstructionBlock::new(&builder.items, CODE + u64::from(offset));
    let result = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    // Choices that do not fit together in the end (a branch that is too far for `loop`).
    result.ok().map(|result| result.code_buffer)
}

impl ProgramBuilder<'_> {
    fn label(&mut self) -> Label {
        self.labels += 1;
        // Far from every address that occurs in an operand.
        Label(0x7000_0000_0000 + self.labels)
    }

    fn bind(&mut self, label: Label) {
        if self.label_pending.is_some() {
            self.emit(Code::Nopd);
        }
        self.label_pending = Some(label);
    }

    fn push(&mut self, mut insn: Instruction) {
        insn.set_ip(self.label_pending.take().map_or(0, |label| label.0));
        self.items.push(insn);
    }

    fn emit(&mut self, code: Code) {
        self.push(Instruction::with(code));
    }

    fn emit_register(&mut self, code: Code, register: Register) {
        self.push(make(Instruction::with1(code, register)));
    }

    fn emit_memory(&mut self, code: Code, memory: MemoryOperand) {
        self.push(make(Instruction::with1(code, memory)));
    }

    fn load(&mut self, register: Register, memory: MemoryOperand) {
        self.push(make(Instruction::with2(
            Code::Mov_r64_rm64,
            register,
            memory,
        )));
    }

    fn store(&mut self, memory: MemoryOperand, register: Register) {
        self.push(make(Instruction::with2(
            Code::Mov_rm64_r64,
            memory,
            register,
        )));
    }

    fn lea(&mut self, register: Register, memory: MemoryOperand) {
        self.push(make(Instruction::with2(Code::Lea_r64_m, register, memory)));
    }

    fn lea_label(&mut self, register: Register, label: Label) {
        let memory = MemoryOperand::with_base_displ_size(Register::RIP, label.0 as i64, 8);
        self.lea(register, memory);
    }

    fn branch(&mut self, code: Code, label: Label) {
        self.push(make(Instruction::with_branch(code, label.0)));
    }

    fn push_small(&mut self, value: i32) {
        self.push(make(Instruction::with1(Code::Pushq_imm8, value)));
    }

    /// A register that may be overwritten. Not rcx, which counts loops.
    fn temporary(&mut self) -> Register {
        loop {
            let register = nth(Register::RAX, self.random.below(16));
            if ![self.base, Register::RSP, Register::RCX].contains(&register) {
                return register;
            }
        }
    }

    fn slot(&self, number: i64) -> MemoryOperand {
        at(self.base, SLOTS + 8 * number)
    }

    fn whole(&mut self) {
        for _ in 0..self.random.below(5) {
            let label = self.label();
            let arguments = self.random.pick(&[0, 0, 0, 8, 24]);
            self.functions.push(Function { label, arguments });
        }
        let length = 8 + self.random.below(24);
        self.body(length, 0);
        self.emit(Code::Retnq);
        for index in 0..self.functions.len() {
            self.callable = index + 1;
            self.function(index);
        }
    }

    fn function(&mut self, index: usize) {
        let Function { label, arguments } = self.functions[index];
        self.bind(label);
        let length = 2 + self.random.below(6);
        self.body(length, 1);
        // A tail call needs a function that removes the same arguments.
        let tail = self.functions[index + 1..]
            .iter()
            .find(|other| other.arguments == arguments)
            .copied();
        match tail {
            Some(other) if self.random.percent(40) => {
                if self.random.percent(50) {
                    self.branch(Code::Jmp_rel32_64, other.label);
                } else {
                    let register = self.temporary();
                    self.lea_label(register, other.label);
                    self.emit_register(Code::Jmp_rm64, register);
                }
            }
            _ if arguments == 0 => self.emit(Code::Retnq),
            _ => self.push(make(Instruction::with1(
                Code::Retnq_imm16,
                u32::from(arguments),
            ))),
        }
    }

    fn body(&mut self, length: u64, depth: u32) {
        for _ in 0..length {
            if depth < DEPTH_MAX && self.random.percent(self.mix.control_percent) {
                self.pattern(depth + 1);
            } else {
                self.ordinary();
            }
        }
    }

    fn short_body(&mut self, depth: u32) {
        let length = 1 + self.random.below(4);
        self.body(length, depth);
    }

    fn ordinary(&mut self) {
        let prepared = loop {
            if let Some(prepared) = random_instruction(self.random, self.mix, self.base) {
                break prepared;
            }
        };
        for insn in prepared.before {
            self.push(insn);
        }
        self.push(prepared.insn);
        let undefined = prepared.insn.rflags_undefined();
        if undefined & !iced_x86::RflagsBits::AF != 0 {
            self.define_flags();
        }
    }

    /// An instruction after which all status flags are defined.
    fn define_flags(&mut self) {
        let (register, other) = (self.temporary(), nth(Register::RAX, self.random.below(16)));
        let code = self.random.pick(&[
            Code::Cmp_r64_rm64,
            Code::Cmp_r64_rm64,
            Code::Add_r64_rm64,
            Code::Sub_r64_rm64,
        ]);
        self.push(make(Instruction::with2(code, register, other)));
    }

    fn pattern(&mut self, depth: u32) {
        match self.random.below(20) {
            0..4 => self.skip(depth),
            4 => self.counted_on_stack(depth),
            5 => self.counted_in_rcx(depth),
            6 => self.jrcxz(depth),
            7..10 => self.call(),
            10 => self.recursion(depth),
            11 => self.jump_table(depth),
            12 => self.own_address(),
            13 => self.return_elsewhere(depth),
            14 => self.adjusted_return(),
            15 => self.long_jump(depth),
            16 => self.stack_switch(depth),
            17 if self.writable || self.random.percent(5) => self.self_modification(),
            17 => self.skip(depth),
            18 => self.stack_use(depth),
            _ => self.trap_or_control_word(),
        }
    }

    /// A conditional branch over some code, now and then an unconditional one.
    fn skip(&mut self, depth: u32) {
        let end = self.label();
        let code = match self.random.below(17) {
            16 => Code::Jmp_rel32_64,
            condition => JCC[condition as usize],
        };
        self.branch(code, end);
        self.short_body(depth);
        self.bind(end);
    }

    fn counted_on_stack(&mut self, depth: u32) {
        let top = self.label();
        let count = 1 + self.random.below(4) as i32;
        self.push_small(count);
        self.bind(top);
        self.short_body(depth);
        self.emit_memory(Code::Dec_rm64, at(Register::RSP, 0));
        self.branch(Code::Jne_rel32_64, top);
        self.lea(Register::RSP, at(Register::RSP, 8));
    }

    fn counted_in_rcx(&mut self, depth: u32) {
        let top = self.label();
        let count = 1 + self.random.below(4) as u32;
        self.push(mov32(Register::ECX, count));
        self.bind(top);
        self.emit_register(Code::Push_r64, Register::RCX);
        self.short_body(depth);
        self.emit_register(Code::Pop_r64, Register::RCX);
        let code = self.random.pick(&[
            Code::Loop_rel8_64_RCX,
            Code::Loopne_rel8_64_RCX,
            Code::Loope_rel8_64_RCX,
            Code::Loop_rel8_64_ECX,
        ]);
        self.branch(code, top);
    }

    fn jrcxz(&mut self, depth: u32) {
        let end = self.label();
        if self.random.percent(50) {
            self.push(mov32(Register::ECX, 0));
        }
        let code = self
            .random
            .pick(&[Code::Jrcxz_rel8_64, Code::Jecxz_rel8_64]);
        self.branch(code, end);
        self.short_body(depth);
        self.bind(end);
    }

    /// A function of the blob called directly, through a register or through memory.
    fn call(&mut self) {
        if self.callable >= self.functions.len() {
            return self.ordinary();
        }
        let choices = (self.functions.len() - self.callable) as u64;
        let chosen = self.callable + self.random.below(choices) as usize;
        let Function { label, arguments } = self.functions[chosen];
        for _ in 0..arguments / 8 {
            let register = nth(Register::RAX, self.random.below(16));
            self.emit_register(Code::Push_r64, register);
        }
        match self.random.below(4) {
            0 | 1 => self.branch(Code::Call_rel32_64, label),
            2 => {
                let register = self.temporary();
                self.lea_label(register, label);
                self.emit_register(Code::Call_rm64, register);
            }
            _ => {
                let (register, slot) = (self.temporary(), self.random.below(8) as i64);
                self.lea_label(register, label);
                self.store(self.slot(slot), register);
                self.emit_memory(Code::Call_rm64, self.slot(slot));
            }
        }
    }

    /// `f(n) = n ? f(n - 1) : done`, with work before and after the call.
    fn recursion(&mut self, depth: u32) {
        let (function, done, after) = (self.label(), self.label(), self.label());
        let count = 1 + self.random.below(12) as u32;
        self.push(mov32(Register::ECX, count));
        self.branch(Code::Call_rel32_64, function);
        self.branch(Code::Jmp_rel32_64, after);
        self.bind(function);
        self.branch(Code::Jrcxz_rel8_64, done);
        self.emit_register(Code::Push_r64, Register::RCX);
        self.emit_register(Code::Dec_rm64, Register::RCX);
        self.branch(Code::Call_rel32_64, function);
        if depth < 2 {
            self.ordinary();
        }
        self.emit_register(Code::Pop_r64, Register::RCX);
        self.bind(done);
        self.emit(Code::Retnq);
        self.bind(after);
    }

    /// `switch` over a table of addresses in the arena.
    fn jump_table(&mut self, depth: u32) {
        let register = self.temporary();
        let cases: Vec<Label> = (0..4).map(|_| self.label()).collect();
        let end = self.label();
        for (number, case) in cases.iter().enumerate() {
            self.lea_label(register, *case);
            self.store(self.slot(16 + number as i64), register);
        }
        let number = self.temporary();
        let dword = nth(Register::EAX, number.number() as u64);
        self.push(make(Instruction::with2(Code::And_rm32_imm8, dword, 3)));
        let entry =
            MemoryOperand::with_base_index_scale_displ_size(self.base, number, 8, SLOTS + 128, 8);
        if self.random.percent(50) {
            self.emit_memory(Code::Jmp_rm64, entry);
        } else {
            self.load(register, entry);
            self.emit_register(Code::Jmp_rm64, register);
        }
        for case in cases {
            self.bind(case);
            self.short_body(depth);
            self.branch(Code::Jmp_rel32_64, end);
        }
        self.bind(end);
    }

    /// `call next; next: pop r`, as old position-independent code does.
    fn own_address(&mut self) {
        let (next, register) = (self.label(), self.temporary());
        self.branch(Code::Call_rel32_64, next);
        self.bind(next);
        self.emit_register(Code::Pop_r64, register);
    }

    /// A return that matches no call.
    fn return_elsewhere(&mut self, depth: u32) {
        let (target, register) = (self.label(), self.temporary());
        self.lea_label(register, target);
        self.emit_register(Code::Push_r64, register);
        self.emit(Code::Retnq);
        self.short_body(depth);
        self.bind(target);
    }

    /// A function that returns behind the 5-byte instruction that follows its call.
    fn adjusted_return(&mut self) {
        let (function, after) = (self.label(), self.label());
        let skipped = self.random.bits() as u32;
        self.branch(Code::Call_rel32_64, function);
        self.push(mov32(Register::EAX, skipped));
        self.branch(Code::Jmp_rel32_64, after);
        self.bind(function);
        // `mov eax` may hit the arena's pointer if it is in rax, which it never is.
        let top = at(Register::RSP, 0);
        self.push(make(Instruction::with2(Code::Add_rm64_imm8, top, 5)));
        self.emit(Code::Retnq);
        self.bind(after);
    }

    /// Leaves two calls at once by restoring a saved stack pointer.
    fn long_jump(&mut self, depth: u32) {
        let (outer, inner, back) = (self.label(), self.label(), self.label());
        let register = self.temporary();
        self.store(self.slot(24), Register::RSP);
        self.lea_label(register, back);
        self.store(self.slot(25), register);
        self.branch(Code::Call_rel32_64, outer);
        self.emit(Code::Ud2);
        self.bind(outer);
        self.branch(Code::Call_rel32_64, inner);
        self.emit(Code::Ud2);
        self.bind(inner);
        if depth < 2 {
            self.ordinary();
        }
        self.load(Register::RSP, self.slot(24));
        self.emit_memory(Code::Jmp_rm64, self.slot(25));
        self.bind(back);
    }

    /// A while on another stack, as coroutines do. There is one, so nothing called from there may
    /// switch again.
    fn stack_switch(&mut self, depth: u32) {
        if self.callable > 0 || self.switched || self.mix.in_pool {
            return self.skip(depth);
        }
        self.switched = true;
        let register = self.temporary();
        self.lea(register, at(self.base, OTHER_STACK));
        self.push(make(Instruction::with2(
            Code::Xchg_rm64_r64,
            Register::RSP,
            register,
        )));
        self.emit_register(Code::Push_r64, register);
        self.short_body(depth);
        if self.random.percent(50) {
            self.call();
        }
        self.emit_register(Code::Pop_r64, Register::RSP);
        self.switched = false;
    }

    /// Stores into the immediate of an instruction that is executed next, or a bit later.
    fn self_modification(&mut self) {
        let (target, pointer) = (self.label(), self.temporary());
        self.lea_label(pointer, target);
        let value = nth(Register::RAX, self.random.below(16));
        let number = value.number() as u64;
        let store = match self.random.below(3) {
            0 => Instruction::with2(
                Code::Mov_rm8_r8,
                at(pointer, 1 + self.random.below(4) as i64),
                match number {
                    0..4 => nth(Register::AL, number),
                    _ => nth(Register::SPL, number - 4),
                },
            ),
            1 => Instruction::with2(
                Code::Mov_rm16_r16,
                at(pointer, 1 + self.random.below(3) as i64),
                nth(Register::AX, number),
            ),
            _ => Instruction::with2(
                Code::Mov_rm32_r32,
                at(pointer, 1),
                nth(Register::EAX, number),
            ),
        };
        self.push(make(store));
        for _ in 0..self.random.below(3) {
            self.ordinary();
        }
        self.bind(target);
        // One byte of opcode, then the immediate: only the first eight registers have this form.
        let destination = loop {
            let register = nth(Register::RAX, self.random.below(8));
            if register != self.base && register != Register::RSP {
                break register;
            }
        };
        let old = self.random.bits() as u32;
        self.push(mov32(nth(Register::EAX, destination.number() as u64), old));
    }

    /// Pushes and pops of all kinds, frames, flags on the stack.
    fn stack_use(&mut self, depth: u32) {
        let register = self.temporary();
        let value = self.random.bits();
        match self.random.below(6) {
            0 => {
                let other = nth(Register::RAX, self.random.below(16));
                self.emit_register(Code::Push_r64, other);
                self.short_body(depth);
                self.emit_register(Code::Pop_r64, register);
            }
            1 => {
                let displacement = self.random.between(-ARENA_REACH, ARENA_REACH);
                self.emit_memory(Code::Push_rm64, at(self.base, displacement));
                self.emit_memory(Code::Pop_rm64, at(self.base, displacement + 8));
            }
            2 => {
                let word = nth(Register::AX, register.number() as u64);
                self.push(make(Instruction::with1(
                    Code::Push_imm16,
                    (value & 0x7FFF) as u32,
                )));
                self.emit_register(Code::Pop_r16, word);
            }
            3 => {
                // Status and direction flags only: the others are the system's.
                let flags = (value & 0xCD5) as i32 | 0x202;
                self.push(make(Instruction::with1(Code::Pushq_imm32, flags)));
                self.emit(Code::Popfq);
            }
            4 => {
                self.emit(Code::Pushfq);
                self.emit_register(Code::Pop_r64, register);
            }
            _ if self.base != Register::RBP => {
                self.emit_register(Code::Push_r64, Register::RBP);
                self.lea(Register::RBP, at(Register::RSP, 0));
                let (size, level) = ((value & 0x78) as u32, (value >> 8 & 3) as u32);
                self.push(make(Instruction::with2(
                    Code::Enterq_imm16_imm8,
                    size,
                    level,
                )));
                self.emit(Code::Leaveq);
                self.emit_register(Code::Pop_r64, Register::RBP);
            }
            _ => self.ordinary(),
        }
    }

    /// Rarely a trap; otherwise rounding modes, which sometimes unmask exceptions.
    fn trap_or_control_word(&mut self) {
        let value = self.random.bits();
        let place = at(self.base, self.random.between(-ARENA_REACH, ARENA_REACH));
        match self.random.below(60) {
            0 => self.emit(Code::Int3),
            1 => self.emit(Code::Ud2),
            2 => self.emit(Code::Hlt),
            3 => self.emit_register(Code::Jmp_rm64, nth(Register::RAX, value & 15)),
            4..32 => {
                let unmasked = if value & 0xF0_0000 == 0 { 0 } else { 0x1F80 };
                let word = (value & 0xE040) as u32 | unmasked;
                self.push(make(Instruction::with2(Code::Mov_rm32_imm32, place, word)));
                self.emit_memory(Code::Ldmxcsr_m32, place);
            }
            _ => {
                let unmasked = if value & 0xF0_0000 == 0 { 0x40 } else { 0x7F };
                let word = (value & 0xF00) as u32 | unmasked;
                self.push(make(Instruction::with2(Code::Mov_rm16_imm16, place, word)));
                self.emit_memory(Code::Fldcw_m2byte, place);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Bytes

/// Random bytes that are likelier than chance to begin with a prefix or a rarely met opcode map.
fn random_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(12) {
        match random.below(10) {
            0 => bytes.push(random.pick(&[0xC4, 0xC5, 0x8F])),
            1 => {
                // EVEX: the fixed bits right, the map one that exists.
                let (p0, p1) = (random.bits() as u8, random.bits() as u8);
                bytes.extend([0x62, p0 & 0xF0 | random.pick(&[1, 2, 3, 5, 6]), p1 | 4]);
            }
            2 => bytes.push(random.pick(&[0x66, 0xF2, 0xF3, 0xF0, 0x2E, 0x3E, 0x26])),
            3 => bytes.push(0x40 | random.below(16) as u8),
            4 => bytes.push(0x0F),
            5 => bytes.extend([0x0F, random.pick(&[0x38, 0x3A])]),
            _ => {}
        }
        for _ in 0..1 + random.below(6) {
            bytes.push(random.bits() as u8);
        }
    }
    bytes.push(0xC3);
    bytes
}

/// Replaces what must not occur, at every offset, since any can be jumped to. `None` if there is
/// no end to it.
///
/// Also keeps displacements near: the tool has memory of its own within reach of far ones, where
/// there is nothing natively.
fn exclude(mut bytes: Vec<u8>, offset: u32) -> Option<Vec<u8>> {
    /// Replacements a byte, on average, before giving up.
    const CHANGES_MAX: usize = 4;
    let mut changes_left = bytes.len() * CHANGES_MAX;
    // Backwards, so that a change concerns instructions that begin before it, mostly.
    let mut start = bytes.len();
    while start > 0 {
        start -= 1;
        if let Some(last) = exclude_at(&mut bytes, start, offset) {
            changes_left = changes_left.checked_sub(1)?;
            // Whatever begins up to there may have become something else.
            start = (last + 1).min(bytes.len());
        }
    }
    Some(bytes)
}

/// Changes the instruction at `start` if it must not occur. The last byte changed, if any was.
fn exclude_at(bytes: &mut [u8], start: usize, offset: u32) -> Option<usize> {
    /// As `run_blob` fills the rest of the code area.
    const FILLER: u8 = 0xCC;
    let mut window = [FILLER; 15];
    let length = (bytes.len() - start).min(window.len());
    window[..length].copy_from_slice(&bytes[start..start + length]);
    let ip = CODE + u64::from(offset) + start as u64;
    // Processors of the two makers disagree on some prefixes.
    for options in [DecoderOptions::NONE, DecoderOptions::AMD] {
        let mut decoder = Decoder::with_ip(64, &window, ip, options);
        let insn = decoder.decode();
        let address_size = window[0] == 0x67;
        // The makers disagree where such a branch goes.
        let odd_branch = window[0] == 0x66 && insn.flow_control() != FlowControl::Next;
        if address_size || odd_branch || !insn.is_invalid() && exclusion(&insn).is_some() {
            bytes[start] = 0x90;
            return Some(start);
        }
        if insn.is_invalid() {
            continue;
        }
        let constants = decoder.get_constant_offsets(&insn);
        let branch = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::NearBranch64);
        let displacement = (constants.has_displacement() && constants.displacement_size() == 4)
            .then(|| constants.displacement_offset());
        let distance =
            (branch && constants.immediate_size() == 4).then(|| constants.immediate_offset());
        for at in displacement.into_iter().chain(distance) {
            let sign = if window[at + 1] & 0x80 == 0 { 0 } else { 0xFF };
            let mut last = None;
            for at in [start + at + 2, start + at + 3] {
                if bytes.get(at).is_some_and(|byte| *byte != sign) {
                    bytes[at] = sign;
                    last = Some(at);
                }
            }
            if last.is_some() {
                return last;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: Mix = Mix {
        material: Material::Program,
        blobs: 20,
        families: &[(Family::Integer, 1), (Family::X87, 1), (Family::Sse, 1)],
        control_percent: 20,
        invalid_permille: 2,
        mappings: &[Mapping::WritableExecutable, Mapping::TwoMappings],
        runs: 1,
        in_pool: false,
    };

    #[test]
    fn a_seed_repeats_and_another_differs() {
        assert_eq!(generate(1, &MIX), generate(1, &MIX));
        assert_ne!(generate(1, &MIX), generate(2, &MIX));
    }

    #[test]
    fn excluded_instructions_are_gone_at_every_offset() {
        let mix = Mix {
            material: Material::Bytes,
            ..MIX
        };
        for blob in generate(3, &mix) {
            for start in 0..blob.bytes.len() {
                let insn = Decoder::new(64, &blob.bytes[start..], DecoderOptions::NONE).decode();
                assert!(
                    insn.is_invalid() || exclusion(&insn).is_none(),
                    "{}",
                    blob.disassemble()
                );
            }
        }
        // syscall; rdtsc; mov eax, fs:[rax]
        let bytes = vec![0x0F, 0x05, 0x0F, 0x31, 0x64, 0x8B, 0x00];
        assert_ne!(exclude(bytes.clone(), 0x4000), Some(bytes));
    }

    #[test]
    fn every_family_has_opcodes() {
        // What every x86-64 processor has; the others depend on the machine.
        for family in [Family::Integer, Family::X87, Family::Sse] {
            assert!(
                opcodes(family).len() > 100,
                "{family:?}: {}",
                opcodes(family).len()
            );
        }
    }
}
