//! The table: what each opcode family does to memory.
//!
//! # Guarantee
//!
//! [`classify`] never answers [`MemoryForm::None`] for an instruction that can touch a file
//! mapping, and what it answers for an instruction with a memory operand agrees with iced's own
//! description (`tests/table.rs` checks every opcode of 64-bit mode). Where iced's description is
//! coarser than the CPU (masked operands) the CPU is the oracle (`tests/native.rs`). An opcode that
//! the table does not know is [`MemoryForm::Unsupported`], never `None`.
//!
//! # Source
//!
//! Intel SDM volume 2 (the exception class of an EVEX instruction says whether its memory operand
//! is masked lane by lane: classes with the suffix NF access the whole operand whatever the mask),
//! AMD APM volumes 3 and 4.
//!
//! # What counts as no access
//!
//! 1. Hints and address arithmetic: `lea`, `nop`, `prefetch*`, gather and scatter prefetches,
//!    `cldemote`, `invlpg`, `monitor*`, `ud0`, `ud1`.
//! 2. MPX. Linux has not enabled it since 5.6, and without it these opcodes are no-operations.
//! 3. Shadow-stack instructions without a memory operand (`incssp` …): a shadow stack is never a
//!    file.
//! 4. System-wide tables that the kernel owns (`senduipi`, segment descriptors read by `lar` …).

use iced_x86::{Code, EncodingKind, Instruction, MemorySize, Mnemonic, OpKind, Register};

/// What an instruction does to the bytes of one memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effect {
    /// The bytes are read.
    pub read: bool,
    /// The bytes are written (`cmpxchg` counts as written, also when the comparison fails: the CPU
    /// then writes the old value back).
    pub write: bool,
    /// The store bypasses the cache: it needs a fence to persist, but no flush.
    pub non_temporal: bool,
    /// Atomic, and a full fence: a `lock` prefix, `xchg` with memory, `cmpccxadd`.
    pub locked: bool,
    /// Bytes of the operand; 0 if only known at run time.
    pub size: u32,
}

/// Where the lanes of a masked memory operand lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneShape {
    /// Lane *i* is the memory element *i*.
    Lanewise,
    /// The active lanes are contiguous in memory (compress, expand).
    Packed,
    /// Lane *i* is the memory element *i* modulo `elements` (1 for an embedded broadcast).
    Broadcast {
        /// Elements in memory.
        elements: u8,
    },
}

/// The register that says which lanes are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// An opmask register, by number (1–7): bit *i* is lane *i*.
    Opmask(u8),
    /// A vector register, by number: the top bit of lane *i*.
    Vector(u8),
}

/// A memory operand of which only the lanes chosen by a mask are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked {
    /// What happens to the active lanes; `size` is the size of the whole operand.
    pub effect: Effect,
    /// Who chooses.
    pub mask: Mask,
    /// How many lanes the mask has.
    pub lanes: u8,
    /// Bytes of one lane in memory.
    pub lane_bytes: u8,
    /// Where the lanes lie.
    pub shape: LaneShape,
}

/// A memory operand with a vector of indices (gather or scatter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorIndexed {
    /// What happens to each active element; `size` is 0, because the elements lie apart.
    pub effect: Effect,
    /// Which elements are active. The instruction clears it element by element.
    pub mask: Mask,
    /// Elements.
    pub elements: u8,
    /// Bytes of one element.
    pub element_bytes: u8,
    /// Bytes of one index (4 or 8), sign-extended.
    pub index_bytes: u8,
    /// The number of the vector register that holds the indices.
    pub index: u8,
}

/// The repeat prefix of a string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once.
    Once,
    /// `rcx` times.
    Count,
    /// At most `rcx` times, while the comparison says equal (`repe cmps`, `repe scas`).
    WhileEqual,
    /// At most `rcx` times, while the comparison says not equal.
    WhileNotEqual,
}

/// A string instruction: elements at `rsi`, at `rdi`, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringOperation {
    /// Bytes of one element.
    pub element_bytes: u8,
    /// How often.
    pub repeat: Repeat,
    /// Reads at `[rsi]` (movs, lods, cmps, outs); the only one that a segment prefix applies to.
    pub reads_source: bool,
    /// Reads at `[rdi]` (scas, cmps).
    pub reads_destination: bool,
    /// Writes at `[rdi]` (movs, stos, ins).
    pub writes_destination: bool,
}

/// A byte-masked store at `[rdi]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMasked {
    /// Always a non-temporal write; `size` is 8 or 16.
    pub effect: Effect,
    /// `maskmovq`: the registers are MMX registers.
    pub mmx: bool,
}

/// `bt`, `bts`, `btr`, `btc` with a bit offset in a register: the offset moves the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitString {
    /// What happens to the word that holds the bit; `size` is the operand size (2, 4 or 8).
    pub effect: Effect,
    /// The number of the general register that holds the offset.
    pub offset: u8,
}

/// The layout of a processor-state area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateArea {
    /// `fxsave`, `fxrstor`: 512 bytes.
    Fxsave,
    /// `xsave`, `xsaveopt`, `xrstor`: the components chosen by `edx:eax`, at the offsets of CPUID
    /// leaf 0xD.
    Standard,
    /// `xsavec`: the chosen components, moved together.
    Compacted,
}

/// Saving or restoring processor state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTransfer {
    /// `size` is 512 for [`StateArea::Fxsave`], otherwise 0.
    pub effect: Effect,
    /// Where the components lie.
    pub area: StateArea,
}

/// Which instruction flushes a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// Ordered like a store.
    Clflush,
    /// Ordered by fences only.
    Clflushopt,
    /// Ordered by fences only; the line may stay in the cache.
    Clwb,
}

/// What an instruction does to memory. See [`classify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryForm {
    /// Touches no memory that could be persistent; see the module header for what counts as none.
    None,
    /// One memory operand of known size, accessed as a whole. If the instruction also uses the
    /// stack (`push [m]`, `pop [m]`, `call [m]`), only the operand is meant here.
    Explicit {
        /// What happens to the operand.
        effect: Effect,
    },
    /// One memory operand, of which a mask chooses the lanes.
    Masked(Masked),
    /// Reads at a vector of indices.
    Gather(VectorIndexed),
    /// Writes at a vector of indices, in ascending element order.
    Scatter(VectorIndexed),
    /// A string instruction.
    String(StringOperation),
    /// A byte-masked store at `[rdi]` (`maskmovdqu`, `maskmovq`, `vmaskmovdqu`).
    ImplicitRdi(ByteMasked),
    /// `clzero`: zeroes the line that holds `[rax]`, as a non-temporal store of 64 bytes.
    ImplicitRax {
        /// A non-temporal write of 64 bytes.
        effect: Effect,
    },
    /// `movdir64b`: copies 64 bytes from the memory operand to the line that operand 0 (a register)
    /// points at, as a direct (non-temporal) store.
    RegisterAddress {
        /// What happens at the register's address: a non-temporal write of 64 bytes.
        destination: Effect,
        /// What happens at the memory operand: a read of 64 bytes.
        source: Effect,
    },
    /// A bit test whose register operand moves the address.
    BitString(BitString),
    /// Processor state of a size known at run time.
    XState(StateTransfer),
    /// A cache line flush. Not an access: it faults only where a load would.
    Flush(FlushKind),
    /// Only the implicit access to the stack.
    StackImplicit,
    /// Touches memory in a way that this crate does not resolve, and why.
    Unsupported(&'static str),
}

impl MemoryForm {
    /// Whether the instruction may store anywhere but to the stack.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            MemoryForm::None
            | MemoryForm::Gather(_)
            | MemoryForm::Flush(_)
            | MemoryForm::StackImplicit => false,
            MemoryForm::Explicit { effect } => effect.write,
            MemoryForm::Masked(masked) => masked.effect.write,
            MemoryForm::BitString(bits) => bits.effect.write,
            MemoryForm::XState(state) => state.effect.write,
            MemoryForm::String(string) => string.writes_destination,
            MemoryForm::Scatter(_)
            | MemoryForm::ImplicitRdi(_)
            | MemoryForm::ImplicitRax { .. }
            | MemoryForm::RegisterAddress { .. }
            | MemoryForm::Unsupported(_) => true,
        }
    }

    /// Whether the instruction may load from anywhere but the stack.
    #[must_use]
    pub fn reads(&self) -> bool {
        match self {
            MemoryForm::None
            | MemoryForm::Scatter(_)
            | MemoryForm::ImplicitRdi(_)
            | MemoryForm::ImplicitRax { .. }
            | MemoryForm::Flush(_)
            | MemoryForm::StackImplicit => false,
            MemoryForm::Explicit { effect } => effect.read,
            MemoryForm::Masked(masked) => masked.effect.read,
            MemoryForm::BitString(bits) => bits.effect.read,
            MemoryForm::XState(state) => state.effect.read,
            MemoryForm::String(string) => string.reads_source || string.reads_destination,
            MemoryForm::Gather(_)
            | MemoryForm::RegisterAddress { .. }
            | MemoryForm::Unsupported(_) => true,
        }
    }
}

/// What ordering an instruction imposes on the stores and flushes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// `sfence`.
    Sfence,
    /// `mfence`, and what drains the store buffer as it does (`serialize`, `mcommit`).
    Mfence,
    /// A locked instruction, which is a fence around one load and one store.
    Locked,
}

/// The ordering that an instruction imposes, if any. Instructions that serialise as a side effect
/// (`cpuid`, `iret`) are not fences of the persistency model.
#[must_use]
pub fn fence(insn: &Instruction) -> Option<FenceKind> {
    match insn.mnemonic() {
        Mnemonic::Sfence => Some(FenceKind::Sfence),
        Mnemonic::Mfence | Mnemonic::Serialize | Mnemonic::Mcommit => Some(FenceKind::Mfence),
        _ => is_locked(insn).then_some(FenceKind::Locked),
    }
}

/// Whether the instruction completes earlier `clwb`, `clflushopt` and non-temporal stores of its
/// thread.
#[must_use]
pub fn is_fence_like(insn: &Instruction) -> bool {
    fence(insn).is_some()
}

fn is_locked(insn: &Instruction) -> bool {
    if insn.has_lock_prefix() {
        return true;
    }
    let memory_first = insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory;
    memory_first
        && matches!(
            row_of(insn.mnemonic()).map(|row| row.what),
            Some(What::Operand(Access::Locked, _))
        )
}

/// The column "operand 0 is memory: what happens to it". A memory operand elsewhere is always read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    NonTemporal,
    ReadWrite,
    /// Read and written atomically, with or without a `lock` prefix.
    Locked,
}

/// The column "an opmask chooses …".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lanes {
    /// … elements of the size that iced gives for the operand.
    Element,
    /// … lanes of this many bytes.
    Bytes(u8),
    /// … what becomes of the result; the whole operand is read (exception classes with NF).
    Whole,
    /// … how many contiguous elements.
    Packed,
    /// … elements of a result that repeats the operand.
    Repeated,
    /// … elements if the memory operand is what is shifted; a shift count in memory is read as a
    /// whole.
    ShiftCount,
}

/// What a family does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Operand(Access, Lanes),
    Nothing,
    BitTest(Access),
    /// Near through memory, or far.
    Transfer,
    VectorMasked,
    Gather,
    Scatter,
    MaskMove,
    ZeroLine,
    DirectStore,
    State(StateArea, Access),
    Flush(FlushKind),
    Unsupported(&'static str),
}

/// One family of opcodes.
struct Row {
    what: What,
    mnemonics: &'static [Mnemonic],
}

const fn row(what: What, mnemonics: &'static [Mnemonic]) -> Row {
    Row { what, mnemonics }
}

const PRIVILEGED: What =
    What::Unsupported("privileged: faults in user mode before it touches memory");

/// The families that differ from the default, which is: operand 0 in memory is written (VEX and
/// EVEX only; a legacy opcode must have a row), any other memory operand is read, and an opmask
/// chooses elements.
#[rustfmt::skip]
static ROWS: &[Row] = {
    use Mnemonic::*;
    use What::*;
    use Access::{Locked, NonTemporal, Read, ReadWrite, Write};
    use Lanes::{Bytes, Element, Packed, Repeated, ShiftCount, Whole};
    &[
        // Row 0 is "no row".
        row(Nothing, &[]),

        // ── integer ─────────────────────────────────────────────────────────────────────────────
        row(Operand(ReadWrite, Element), &[
            Adc, Add, And, Dec, Inc, Neg, Not, Or, Rcl, Rcr, Rol, Ror, Sal, Sar, Sbb,
            Shl, Shld, Shr, Shrd, Sub, Xadd, Xor, Cmpxchg, Cmpxchg8b, Cmpxchg16b, Aadd,
            Aand, Aor, Axor,
        ]),
        row(Operand(Locked, Element), &[
            Xchg, Cmpbexadd, Cmpbxadd, Cmplexadd, Cmplxadd, Cmpnbexadd, Cmpnbxadd,
            Cmpnlexadd, Cmpnlxadd, Cmpnoxadd, Cmpnpxadd, Cmpnsxadd, Cmpnzxadd, Cmpoxadd,
            Cmppxadd, Cmpsxadd, Cmpzxadd,
        ]),
        row(Operand(Read, Element), &[
            Cmp, Test, Div, Idiv, Mul, Imul, Push, Ptwrite, Verr, Verw, Xlatb,
        ]),
        row(Operand(Write, Element), &[
            Mov, Movbe, Pop, Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle,
            Setne, Setno, Setnp, Setns, Seto, Setp, Sets, Sgdt, Sidt, Sldt, Smsw, Str,
        ]),
        row(Operand(NonTemporal, Element), &[Movnti, Movdiri]),
        row(BitTest(Read), &[Bt]),
        row(BitTest(ReadWrite), &[Btc, Btr, Bts]),
        row(Transfer, &[Call, Jmp]),

        // ── x87, MMX, SSE ───────────────────────────────────────────────────────────────────────
        row(Operand(Read, Element), &[
            Fadd, Fbld, Fcom, Fcomp, Fdiv, Fdivr, Fiadd, Ficom, Ficomp, Fidiv, Fidivr,
            Fild, Fimul, Fisub, Fisubr, Fld, Fldcw, Fldenv, Fmul, Frstor, Fsub, Fsubr,
            Ldmxcsr, Vldmxcsr, Aesdecwide128kl, Aesdecwide256kl, Aesencwide128kl,
            Aesencwide256kl,
        ]),
        row(Operand(Write, Element), &[
            Fbstp, Fist, Fistp, Fisttp, Fnsave, Fnstcw, Fnstenv, Fnstsw, Fsave, Fst,
            Fstcw, Fstenv, Fstp, Fstsw, Stmxcsr, Extractps, Movapd, Movaps, Movd,
            Movdqa, Movdqu, Movhpd, Movhps, Movlpd, Movlps, Movq, Movsd, Movss, Movupd,
            Movups, Pextrb, Pextrd, Pextrq, Pextrw,
        ]),
        row(Operand(NonTemporal, Element), &[
            Movntdq, Movntpd, Movntps, Movntq, Movntsd, Movntss, Vmovntdq, Vmovntpd,
            Vmovntps,
        ]),
        row(MaskMove, &[Maskmovdqu, Maskmovq, Vmaskmovdqu]),

        // ── AVX: masks in vector registers, vectors of addresses ────────────────────────────────
        row(VectorMasked, &[Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq]),
        row(Gather, &[
            Vgatherdpd, Vgatherdps, Vgatherqpd, Vgatherqps, Vpgatherdd, Vpgatherdq,
            Vpgatherqd, Vpgatherqq,
        ]),
        row(Scatter, &[
            Vpscatterdd, Vpscatterdq, Vpscatterqd, Vpscatterqq, Vscatterdpd,
            Vscatterdps, Vscatterqpd, Vscatterqps,
        ]),

        // ── AVX-512: what an opmask chooses ─────────────────────────────────────────────────────
        row(Operand(Write, Packed), &[
            Vcompresspd, Vcompressps, Vpcompressb, Vpcompressd, Vpcompressq,
            Vpcompressw, Vexpandpd, Vexpandps, Vpexpandb, Vpexpandd, Vpexpandq,
            Vpexpandw,
        ]),
        row(Operand(Read, Repeated), &[
            Vbroadcastf32x2, Vbroadcastf32x4, Vbroadcastf32x8, Vbroadcastf64x2,
            Vbroadcastf64x4, Vbroadcasti32x2, Vbroadcasti32x4, Vbroadcasti32x8,
            Vbroadcasti64x2, Vbroadcasti64x4, Vbroadcastsd, Vbroadcastss, Vpbroadcastb,
            Vpbroadcastd, Vpbroadcastq, Vpbroadcastw,
        ]),
        row(Operand(Read, Bytes(4)), &[
            Vpdpbusd, Vpdpbusds, Vpdpwssd, Vpdpwssds, Vdpbf16ps, Vfcmaddcph, Vfcmaddcsh,
            Vfcmulcph, Vfcmulcsh, Vfmaddcph, Vfmaddcsh, Vfmulcph, Vfmulcsh,
        ]),
        row(Operand(Read, Bytes(8)), &[Vpmuldq, Vpmuludq]),
        row(Operand(Read, Whole), &[
            Valignd, Valignq, Vcvtne2ps2bf16, Vdbpsadbw, Vgf2p8affineinvqb,
            Vgf2p8affineqb, Vinsertf32x4, Vinsertf32x8, Vinsertf64x2, Vinsertf64x4,
            Vinserti32x4, Vinserti32x8, Vinserti64x2, Vinserti64x4, Vmovddup, Vmovshdup,
            Vmovsldup, Vpackssdw, Vpacksswb, Vpackusdw, Vpackuswb, Vpalignr,
            Vpconflictd, Vpconflictq, Vpermb, Vpermd, Vpermi2b, Vpermi2d, Vpermi2pd,
            Vpermi2ps, Vpermi2q, Vpermi2w, Vpermilpd, Vpermilps, Vpermpd, Vpermps,
            Vpermq, Vpermt2b, Vpermt2d, Vpermt2pd, Vpermt2ps, Vpermt2q, Vpermt2w,
            Vpermw, Vpmaddubsw, Vpmaddwd, Vpmultishiftqb, Vpshufb, Vpshufd, Vpshufhw,
            Vpshuflw, Vpunpckhbw, Vpunpckhdq, Vpunpckhqdq, Vpunpckhwd, Vpunpcklbw,
            Vpunpckldq, Vpunpcklqdq, Vpunpcklwd, Vshuff32x4, Vshuff64x2, Vshufi32x4,
            Vshufi64x2, Vshufpd, Vshufps, Vunpckhpd, Vunpckhps, Vunpcklpd, Vunpcklps,
            V4fmaddps, V4fmaddss, V4fnmaddps, V4fnmaddss, Vp4dpwssd, Vp4dpwssds,
        ]),

        row(Operand(Read, ShiftCount), &[
            Vpslld, Vpsllq, Vpsllw, Vpsrad, Vpsraq, Vpsraw, Vpsrld, Vpsrlq, Vpsrlw,
        ]),

        // ── processor state, cache lines, whole lines ───────────────────────────────────────────
        row(State(StateArea::Fxsave, Write), &[Fxsave, Fxsave64]),
        row(State(StateArea::Fxsave, Read), &[Fxrstor, Fxrstor64]),
        row(State(StateArea::Standard, ReadWrite), &[Xsave, Xsave64, Xsaveopt, Xsaveopt64]),
        row(State(StateArea::Compacted, Write), &[Xsavec, Xsavec64]),
        row(State(StateArea::Standard, Read), &[Xrstor, Xrstor64]),
        row(Flush(FlushKind::Clflush), &[Clflush]),
        row(Flush(FlushKind::Clflushopt), &[Clflushopt]),
        row(Flush(FlushKind::Clwb), &[Clwb]),
        row(ZeroLine, &[Clzero]),
        row(DirectStore, &[Movdir64b]),

        // ── nothing (see the module header) ─────────────────────────────────────────────────────
        row(Nothing, &[
            Lea, Nop, Reservednop, Ud0, Ud1, Cldemote, Invlpg, Prefetch, Prefetchit0,
            Prefetchit1, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw,
            Prefetchwt1, Vgatherpf0dpd, Vgatherpf0dps, Vgatherpf0qpd, Vgatherpf0qps,
            Vgatherpf1dpd, Vgatherpf1dps, Vgatherpf1qpd, Vgatherpf1qps, Vscatterpf0dpd,
            Vscatterpf0dps, Vscatterpf0qpd, Vscatterpf0qps, Vscatterpf1dpd,
            Vscatterpf1dps, Vscatterpf1qpd, Vscatterpf1qps, Bndcl, Bndcn, Bndcu, Bndldx,
            Bndmk, Bndmov, Bndstx, Umonitor,
        ]),

        // ── not handled ─────────────────────────────────────────────────────────────────────────
        row(Unsupported("AMX tile: rows with a stride"), &[
            Tileloadd, Tileloaddt1, Tilestored, Ldtilecfg, Sttilecfg,
        ]),
        row(Unsupported("enqueue command: the destination is a device register"), &[
            Enqcmd, Enqcmds,
        ]),
        row(Unsupported("shadow stack: never a file mapping"), &[Clrssbsy, Rstorssp, Wrssd, Wrssq]),
        row(Unsupported("lightweight profiling: writes a ring buffer"), &[
            Lwpins, Lwpval, Llwpcb, Slwpcb,
        ]),
        row(Unsupported("PadLock: repeated operation at implicit addresses"), &[
            Montmul, Xcryptcbc, Xcryptcfb, Xcryptctr, Xcryptecb, Xcryptofb, Xsha1,
            Xsha256, Xsha512, Xsha512_alt, Xstore, Xstore_alt, Ccs_hash, Ccs_encrypt,
        ]),
        row(Unsupported("SGX enclave call: the leaf decides what memory is touched"), &[Enclu]),
        row(PRIVILEGED, &[
            Encls, Enclv, Getsec, Getsecq, Invept, Invpcid, Invvpid, Lgdt, Lidt, Lkgs,
            Lldt, Lmsw, Ltr, Pbndkb, Rdmsrlist, Wrmsrlist, Rmpupdate, Rmpadjust,
            Rmpquery, Pvalidate, Psmash, Skinit, Vmclear, Vmload, Vmptrld, Vmptrst,
            Vmread, Vmrun, Vmsave, Vmwrite, Vmxon, Wrussd, Wrussq, Xrstors, Xrstors64,
            Xsaves, Xsaves64, Seamcall, Seamops, Seamret, Tdcall,
        ]),
    ]
};

/// More than iced's mnemonics; `row_of` treats what lies beyond as having no row, and a test
/// compares.
const MNEMONICS_MAX: usize = 2048;

/// Row of each mnemonic, made from [`ROWS`] at compile time.
static ROW_OF_MNEMONIC: [u8; MNEMONICS_MAX] = {
    let mut table = [0u8; MNEMONICS_MAX];
    let mut row = 1;
    while row < ROWS.len() {
        let mnemonics = ROWS[row].mnemonics;
        let mut at = 0;
        while at < mnemonics.len() {
            let mnemonic = mnemonics[at] as usize;
            assert!(table[mnemonic] == 0, "a mnemonic may have one row only");
            table[mnemonic] = row as u8;
            at += 1;
        }
        row += 1;
    }
    assert!(ROWS.len() < 256);
    table
};

fn row_of(mnemonic: Mnemonic) -> Option<&'static Row> {
    match ROW_OF_MNEMONIC.get(mnemonic as usize) {
        None | Some(0) => None,
        Some(&row) => Some(&ROWS[usize::from(row)]),
    }
}

/// The operand that is memory with a ModRM address, if any. No instruction has two.
#[must_use]
pub fn memory_operand(insn: &Instruction) -> Option<u32> {
    (0..insn.op_count()).find(|&index| insn.op_kind(index) == OpKind::Memory)
}

/// What the instruction does to memory.
#[must_use]
pub fn classify(insn: &Instruction) -> MemoryForm {
    if insn.is_string_instruction() {
        return string_form(insn);
    }
    if insn.encoding() == EncodingKind::MVEX {
        return MemoryForm::Unsupported("MVEX: Knights Corner only");
    }
    let what = row_of(insn.mnemonic()).map(|row| row.what);
    let Some(operand) = memory_operand(insn) else {
        return form_without_operand(insn, what);
    };
    let what = match what {
        Some(what) => what,
        None if operand > 0 => What::Operand(Access::Read, Lanes::Element),
        None if insn.encoding() != EncodingKind::Legacy => {
            What::Operand(Access::Write, Lanes::Element)
        }
        None => return MemoryForm::Unsupported("unknown opcode with a memory operand"),
    };
    match what {
        What::Nothing => MemoryForm::None,
        What::Unsupported(reason) => MemoryForm::Unsupported(reason),
        What::Operand(access, lanes) => {
            let access = if operand > 0 && access != Access::Locked {
                Access::Read
            } else {
                access
            };
            operand_form(insn, effect_of(insn, access), lanes)
        }
        What::BitTest(access) => {
            let effect = effect_of(insn, access);
            if insn.op1_kind() == OpKind::Register {
                MemoryForm::BitString(BitString {
                    effect,
                    offset: insn.op1_register().number() as u8,
                })
            } else {
                MemoryForm::Explicit { effect }
            }
        }
        What::Transfer => match insn.memory_size() {
            MemorySize::SegPtr16 | MemorySize::SegPtr32 | MemorySize::SegPtr64 => {
                MemoryForm::Unsupported("far transfer through memory")
            }
            _ => MemoryForm::Explicit {
                effect: effect_of(insn, Access::Read),
            },
        },
        What::VectorMasked => {
            let store = operand == 0;
            let effect = effect_of(insn, if store { Access::Write } else { Access::Read });
            let lane_bytes = insn.memory_size().element_size() as u8;
            MemoryForm::Masked(Masked {
                effect,
                // The mask is operand 1 of both forms: `m, mask, v` and `v, mask, m`.
                mask: Mask::Vector(insn.op1_register().number() as u8),
                lanes: (effect.size / u32::from(lane_bytes)) as u8,
                lane_bytes,
                shape: LaneShape::Lanewise,
            })
        }
        What::Gather => MemoryForm::Gather(vector_indexed(insn, 0, Access::Read)),
        What::Scatter => MemoryForm::Scatter(vector_indexed(insn, 1, Access::Write)),
        What::DirectStore => MemoryForm::RegisterAddress {
            destination: Effect {
                write: true,
                non_temporal: true,
                size: 64,
                ..Effect::default()
            },
            source: Effect {
                read: true,
                size: 64,
                ..Effect::default()
            },
        },
        What::State(area, access) => MemoryForm::XState(StateTransfer {
            effect: effect_of(insn, access),
            area,
        }),
        What::Flush(kind) => MemoryForm::Flush(kind),
        What::MaskMove | What::ZeroLine => MemoryForm::Unsupported("unexpected memory operand"),
    }
}

fn form_without_operand(insn: &Instruction, what: Option<What>) -> MemoryForm {
    match what {
        Some(What::ZeroLine) => MemoryForm::ImplicitRax {
            effect: Effect {
                write: true,
                non_temporal: true,
                size: 64,
                ..Effect::default()
            },
        },
        Some(What::MaskMove) => {
            let mmx = insn.mnemonic() == Mnemonic::Maskmovq;
            let size = if mmx { 8 } else { 16 };
            let effect = Effect {
                write: true,
                non_temporal: true,
                size,
                ..Effect::default()
            };
            MemoryForm::ImplicitRdi(ByteMasked { effect, mmx })
        }
        Some(What::Unsupported(reason)) => MemoryForm::Unsupported(reason),
        // `lea`-like rows do not occur without an operand; a register form of any other row touches
        // nothing but possibly the stack (`push r`, `call r`).
        _ if insn.is_stack_instruction() => MemoryForm::StackImplicit,
        _ => MemoryForm::None,
    }
}

fn effect_of(insn: &Instruction, access: Access) -> Effect {
    Effect {
        read: matches!(access, Access::Read | Access::ReadWrite | Access::Locked),
        write: access != Access::Read,
        non_temporal: access == Access::NonTemporal,
        locked: access == Access::Locked || insn.has_lock_prefix(),
        size: insn.memory_size().size() as u32,
    }
}

fn operand_form(insn: &Instruction, effect: Effect, lanes: Lanes) -> MemoryForm {
    let whole = match lanes {
        Lanes::Whole => true,
        Lanes::ShiftCount => insn.op2_kind() == OpKind::Memory,
        _ => false,
    };
    if insn.encoding() != EncodingKind::EVEX || !insn.has_op_mask() || whole {
        return MemoryForm::Explicit { effect };
    }
    let lane_bytes = match lanes {
        Lanes::Bytes(bytes) => u32::from(bytes),
        _ => insn.memory_size().element_size() as u32,
    };
    let (lanes, shape) = match lanes {
        Lanes::Packed => (effect.size / lane_bytes, LaneShape::Packed),
        Lanes::Repeated => {
            let elements = (effect.size / lane_bytes) as u8;
            (
                insn.op0_register().size() as u32 / lane_bytes,
                LaneShape::Broadcast { elements },
            )
        }
        _ if insn.is_broadcast() => {
            let mut whole = *insn;
            whole.set_is_broadcast(false);
            (
                whole.memory_size().size() as u32 / lane_bytes,
                LaneShape::Broadcast { elements: 1 },
            )
        }
        _ => (effect.size / lane_bytes, LaneShape::Lanewise),
    };
    let mask = Mask::Opmask(insn.op_mask().number() as u8);
    MemoryForm::Masked(Masked {
        effect,
        mask,
        lanes: lanes as u8,
        lane_bytes: lane_bytes as u8,
        shape,
    })
}

fn vector_indexed(insn: &Instruction, data_operand: u32, access: Access) -> VectorIndexed {
    let data = insn.op_register(data_operand);
    let index = insn.memory_index();
    let index_bytes = if insn.is_vsib64() { 8 } else { 4 };
    let element_bytes = insn.memory_size().element_size();
    // The wider of the two registers has the encoded vector length; the other holds as many
    // elements.
    let elements = data.size().max(index.size()) / element_bytes.max(index_bytes);
    let mask = if insn.has_op_mask() {
        Mask::Opmask(insn.op_mask().number() as u8)
    } else {
        Mask::Vector(insn.op2_register().number() as u8)
    };
    VectorIndexed {
        effect: Effect {
            size: 0,
            ..effect_of(insn, access)
        },
        mask,
        elements: elements as u8,
        element_bytes: element_bytes as u8,
        index_bytes: index_bytes as u8,
        index: index.number() as u8,
    }
}

fn string_form(insn: &Instruction) -> MemoryForm {
    use Mnemonic as M;
    let (reads_source, reads_destination, writes_destination, compares) = match insn.mnemonic() {
        M::Movsb | M::Movsw | M::Movsd | M::Movsq => (true, false, true, false),
        M::Stosb | M::Stosw | M::Stosd | M::Stosq | M::Insb | M::Insw | M::Insd => {
            (false, false, true, false)
        }
        M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq | M::Outsb | M::Outsw | M::Outsd => {
            (true, false, false, false)
        }
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => (true, true, false, true),
        M::Scasb | M::Scasw | M::Scasd | M::Scasq => (false, true, false, true),
        _ => return MemoryForm::Unsupported("unknown string instruction"),
    };
    let repeat = match (insn.has_repe_prefix(), insn.has_repne_prefix()) {
        (false, false) => Repeat::Once,
        (true, _) if compares => Repeat::WhileEqual,
        (_, true) if compares => Repeat::WhileNotEqual,
        // `repne` repeats a non-comparing string instruction just as `rep` does.
        _ => Repeat::Count,
    };
    MemoryForm::String(StringOperation {
        element_bytes: insn.memory_size().size() as u8,
        repeat,
        reads_source,
        reads_destination,
        writes_destination,
    })
}

/// Whether the register operands forbid a REX prefix, and with it `r8`–`r15` as a base.
pub(crate) fn uses_high_byte_register(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|index| {
        insn.op_kind(index) == OpKind::Register
            && matches!(
                insn.op_register(index),
                Register::AH | Register::BH | Register::CH | Register::DH
            )
    })
}

/// `xlatb` and the moves with a 64-bit absolute address have no ModRM byte; this is the opcode of
/// the same effect that has.
pub(crate) fn modrm_equivalent(code: Code) -> Code {
    match code {
        Code::Xlat_m8 | Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mnemonic_fits_the_index() {
        assert!(Mnemonic::values().count() <= MNEMONICS_MAX);
    }
}
