//! The table: which rule gives the data flow of which instructions.
//!
//! A legacy instruction without a row is unknown. For a vector instruction without one, every
//! output byte depends on every input byte.

use crate::Unknown;
use crate::build::{Answer, Builder};
use crate::flow::{At, Flow};
use crate::integer::{Logic, Shift, Sum};
use crate::place::Flag;
use crate::vector::{Opmask, Shuffle, Vector};
use crate::x87::X87;
use brownout_insn::{MemoryForm, classify};
use iced_x86::{EncodingKind, Instruction, InstructionInfoFactory, InstructionInfoOptions};
use iced_x86::{Mnemonic, OpKind, Register};

/// How the data flow of a family of instructions is built.
#[derive(Clone, Copy)]
enum Rule {
    /// No data is moved.
    Nothing,
    /// Every output byte depends on every input byte, as iced describes them.
    Everything,
    /// Outputs come from nowhere.
    Fresh,
    Move,
    Extend(bool),
    Widen,
    Reverse,
    Address,
    Exchange,
    ExchangeAdd,
    CompareExchange,
    CompareExchangeWide,
    Sum(Sum),
    CarryChain(Flag),
    Logic(Logic),
    Kept,
    Not,
    LowestBit,
    Shift(Shift),
    ShiftEverything,
    ShiftWithoutFlags(Shift),
    Multiply,
    Divide,
    BitTest,
    CountBits,
    ConditionalMove,
    SetCondition,
    Push,
    Pop,
    PushFlags,
    PopFlags,
    FlagsAndAh,
    ConstantFlag,
    Leave,
    Enter,
    Branch,
    SystemCall,
    TranslateByte,
    SegmentBase,
    Selector,
    VectorMove(u8),
    Vector(Vector),
    Opmask(Opmask, u8),
    X87(X87),
}

struct Row {
    rule: Rule,
    mnemonics: &'static [Mnemonic],
}

const fn row(rule: Rule, mnemonics: &'static [Mnemonic]) -> Row {
    Row { rule, mnemonics }
}

#[rustfmt::skip]
static ROWS: &[Row] = {
    use Mnemonic::*;
    use Rule as R;
    use Shuffle as S;
    use Vector as V;
    &[
        // Row 0 is "no row".
        row(R::Nothing, &[]),

        // ── integer ─────────────────────────────────────────────────────────────────────────────
        row(R::Nothing, &[
            Ud0, Ud1, Ud2, Hlt, Int3, Nop, Fnop, Reservednop, Pause, Endbr64, Endbr32, Lfence,
            Mfence, Sfence, Serialize, Mcommit, Clflush, Clflushopt, Clwb, Cldemote, Prefetch,
            Prefetchit0, Prefetchit1, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw,
            Prefetchwt1, Wait, Cmc, Ptwrite,
        ]),
        // Constants of the process. Without shadow stacks, or when the kernel emulates them, they
        // keep some or all of the destination, so its labels stay.
        row(R::Kept, &[Rdsspd, Rdsspq, Smsw, Sldt, Str, Sgdt, Sidt]),
        row(R::Move, &[Mov, Movnti, Movdiri]),
        row(R::Extend(false), &[Movzx]),
        row(R::Extend(true), &[Movsx, Movsxd]),
        row(R::Widen, &[Cbw, Cwde, Cdqe, Cwd, Cdq, Cqo]),
        row(R::Reverse, &[Bswap, Movbe]),
        row(R::Address, &[Lea]),
        row(R::Exchange, &[Xchg]),
        row(R::ExchangeAdd, &[Xadd]),
        row(R::CompareExchange, &[Cmpxchg]),
        row(R::CompareExchangeWide, &[Cmpxchg8b, Cmpxchg16b]),
        row(R::Sum(Sum::Add), &[Add]),
        row(R::Sum(Sum::Subtract), &[Sub]),
        row(R::Sum(Sum::AddCarry), &[Adc]),
        row(R::Sum(Sum::SubtractBorrow), &[Sbb]),
        row(R::Sum(Sum::Compare), &[Cmp]),
        row(R::Sum(Sum::Increment), &[Inc, Dec]),
        row(R::Sum(Sum::Negate), &[Neg]),
        row(R::CarryChain(Flag::Carry), &[Adcx]),
        row(R::CarryChain(Flag::Overflow), &[Adox]),
        row(R::Logic(Logic::And), &[And]),
        row(R::Logic(Logic::Or), &[Or]),
        row(R::Logic(Logic::Xor), &[Xor]),
        row(R::Logic(Logic::Test), &[Test]),
        row(R::Logic(Logic::AndNot), &[Andn]),
        row(R::Not, &[Not]),
        row(R::LowestBit, &[Blsi, Blsr, Blsmsk]),
        row(R::Shift(Shift::Left), &[Shl, Sal]),
        row(R::Shift(Shift::Right), &[Shr]),
        row(R::Shift(Shift::Arithmetic), &[Sar]),
        row(R::Shift(Shift::RotateLeft), &[Rol]),
        row(R::Shift(Shift::RotateRight), &[Ror]),
        row(R::ShiftEverything, &[Rcl, Rcr, Shld, Shrd]),
        row(R::ShiftWithoutFlags(Shift::Left), &[Shlx]),
        row(R::ShiftWithoutFlags(Shift::Right), &[Shrx]),
        row(R::ShiftWithoutFlags(Shift::Arithmetic), &[Sarx]),
        row(R::ShiftWithoutFlags(Shift::RotateRight), &[Rorx]),
        row(R::Multiply, &[Mul, Imul]),
        row(R::Divide, &[Div, Idiv]),
        row(R::BitTest, &[Bt, Btc, Btr, Bts]),
        row(R::CountBits, &[Bsf, Bsr, Tzcnt, Lzcnt, Popcnt]),
        row(R::ConditionalMove, &[
            Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno,
            Cmovnp, Cmovns, Cmovo, Cmovp, Cmovs,
        ]),
        row(R::SetCondition, &[
            Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle, Setne, Setno, Setnp, Setns,
            Seto, Setp, Sets,
        ]),
        row(R::Push, &[Push]),
        row(R::Pop, &[Pop]),
        row(R::PushFlags, &[Pushf, Pushfq]),
        row(R::PopFlags, &[Popf, Popfq]),
        row(R::FlagsAndAh, &[Lahf, Sahf]),
        row(R::ConstantFlag, &[Clc, Stc, Cld, Std]),
        row(R::Leave, &[Leave]),
        row(R::Enter, &[Enter]),
        row(R::Branch, &[
            Jmp, Call, Ret, Ja, Jae, Jb, Jbe, Je, Jg, Jge, Jl, Jle, Jne, Jno, Jnp, Jns, Jo, Jp, Js,
            Jrcxz, Jecxz, Loop, Loope, Loopne,
        ]),
        row(R::SystemCall, &[Syscall]),
        row(R::TranslateByte, &[Xlatb]),
        row(R::SegmentBase, &[Rdfsbase, Rdgsbase, Wrfsbase, Wrgsbase]),
        row(R::Selector, &[Lar, Lsl, Verr, Verw]),
        row(R::Fresh, &[Xtest, Rdtsc, Rdtscp, Rdrand, Rdseed, Rdpid]),
        row(R::Everything, &[
            Bextr, Bzhi, Pdep, Pext, Mulx, Crc32, Cpuid, Xgetbv, Blcfill, Blci, Blcic, Blcmsk, Blcs, Blsfill,
            Blsic, T1mskc, Tzmsk, Cmpbexadd, Cmpbxadd, Cmplexadd, Cmplxadd, Cmpnbexadd, Cmpnbxadd,
            Cmpnlexadd, Cmpnlxadd, Cmpnoxadd, Cmpnpxadd, Cmpnsxadd, Cmpnzxadd, Cmpoxadd, Cmppxadd,
            Cmpsxadd, Cmpzxadd, Aadd, Aand, Aor, Axor,
        ]),

        // ── vectors ─────────────────────────────────────────────────────────────────────────────
        row(R::VectorMove(1), &[
            Movdqa, Movdqu, Movapd, Movaps, Movupd, Movups, Lddqu, Movntdq, Movntdqa, Movntpd, Movntps, Vmovdqa,
            Vmovdqu, Vlddqu, Vmovntdq, Vmovntdqa, Vmovntpd, Vmovntps, Vmovdqu8,
        ]),
        row(R::VectorMove(2), &[Vmovdqu16]),
        row(R::VectorMove(4), &[Vmovdqa32, Vmovdqu32, Vmovaps, Vmovups]),
        row(R::VectorMove(8), &[Vmovdqa64, Vmovdqu64, Vmovapd, Vmovupd]),
        row(R::Vector(V::Bitwise(4)), &[
            Andps, Vandps, Andnps, Vandnps, Orps, Vorps, Xorps, Vxorps, Vpandd, Vpandnd, Vpord,
            Vpxord,
        ]),
        row(R::Vector(V::Bitwise(8)), &[
            Pand, Vpand, Pandn, Vpandn, Por, Vpor, Pxor, Vpxor, Andpd, Vandpd, Andnpd, Vandnpd,
            Orpd, Vorpd, Xorpd, Vxorpd, Vpandq, Vpandnq, Vporq, Vpxorq,
        ]),
        row(R::Vector(V::Ternary(4)), &[Vpternlogd]),
        row(R::Vector(V::Ternary(8)), &[Vpternlogq]),
        row(R::Vector(V::Sum(1)), &[Paddb, Vpaddb, Psubb, Vpsubb]),
        row(R::Vector(V::Sum(2)), &[Paddw, Vpaddw, Psubw, Vpsubw, Pmullw, Vpmullw]),
        row(R::Vector(V::Sum(4)), &[Paddd, Vpaddd, Psubd, Vpsubd, Pmulld, Vpmulld]),
        row(R::Vector(V::Sum(8)), &[Paddq, Vpaddq, Psubq, Vpsubq, Vpmullq]),
        row(R::Vector(V::Lanes(1)), &[
            Paddsb, Vpaddsb, Paddusb, Vpaddusb, Psubsb, Vpsubsb, Psubusb, Vpsubusb, Pavgb, Vpavgb,
            Pmaxsb, Vpmaxsb, Pmaxub, Vpmaxub, Pminsb, Vpminsb, Pminub, Vpminub, Pabsb, Vpabsb,
            Psignb, Vpsignb, Vpopcntb, Gf2p8mulb, Vgf2p8mulb,
        ]),
        row(R::Vector(V::Lanes(2)), &[
            Paddsw, Vpaddsw, Paddusw, Vpaddusw, Psubsw, Vpsubsw, Psubusw, Vpsubusw, Pavgw, Vpavgw,
            Pmaxsw, Vpmaxsw, Pmaxuw, Vpmaxuw, Pminsw, Vpminsw, Pminuw, Vpminuw, Pabsw, Vpabsw,
            Psignw, Vpsignw, Pmulhw, Vpmulhw, Pmulhuw, Vpmulhuw, Pmulhrsw, Vpmulhrsw, Pmaddubsw,
            Vpmaddubsw, Vpopcntw, Vpsllvw, Vpsravw, Vpsrlvw, Vpshldw, Vpshrdw, Vpshldvw, Vpshrdvw,
        ]),
        row(R::Vector(V::Lanes(4)), &[
            Pmaxsd, Vpmaxsd, Pmaxud, Vpmaxud, Pminsd, Vpminsd, Pminud, Vpminud, Pabsd, Vpabsd,
            Psignd, Vpsignd, Pmaddwd, Vpmaddwd, Vpopcntd, Vpsllvd, Vpsravd, Vpsrlvd, Vprolvd,
            Vprorvd, Vpshldd, Vpshrdd, Vpshldvd, Vpshrdvd, Vplzcntd, Vpdpbusd, Vpdpbusds, Vpdpwssd,
            Vpdpwssds, Vpdpbssd, Vpdpbssds, Vpdpbsud, Vpdpbsuds, Vpdpbuud, Vpdpbuuds, Vpdpwsud,
            Vpdpwsuds, Vpdpwusd, Vpdpwusds, Vpdpwuud, Vpdpwuuds,
        ]),
        row(R::Vector(V::Lanes(8)), &[
            Vpmaxsq, Vpmaxuq, Vpminsq, Vpminuq, Vpabsq, Pmuldq, Vpmuldq, Pmuludq, Vpmuludq,
            Vpopcntq, Vpsllvq, Vpsravq, Vpsrlvq, Vprolvq, Vprorvq, Vpshldq, Vpshrdq, Vpshldvq,
            Vpshrdvq, Vplzcntq, Vpmadd52huq, Vpmadd52luq,             Psadbw, Vpsadbw,
        ]),
        row(R::Vector(V::LanesOfBytes(8)), &[
            Vpmultishiftqb, Gf2p8affineqb, Vgf2p8affineqb, Gf2p8affineinvqb, Vgf2p8affineinvqb,
        ]),
        row(R::Vector(V::Compare(1)), &[Pcmpeqb, Vpcmpeqb, Pcmpgtb, Vpcmpgtb]),
        row(R::Vector(V::Compare(2)), &[Pcmpeqw, Vpcmpeqw, Pcmpgtw, Vpcmpgtw]),
        row(R::Vector(V::Compare(4)), &[Pcmpeqd, Vpcmpeqd, Pcmpgtd, Vpcmpgtd]),
        row(R::Vector(V::Compare(8)), &[Pcmpeqq, Vpcmpeqq, Pcmpgtq, Vpcmpgtq]),
        row(R::Vector(V::Lanes(16)), &[
            Aesdec, Vaesdec, Aesdeclast, Vaesdeclast, Aesenc, Vaesenc, Aesenclast, Vaesenclast,
            Aesimc, Vaesimc, Aeskeygenassist, Vaeskeygenassist, Pclmulqdq, Vpclmulqdq, Mpsadbw,
            Vmpsadbw, Phminposuw, Vphminposuw, Sha1msg1, Sha1msg2, Sha1nexte, Sha1rnds4, Sha256msg1,
            Sha256msg2,
        ]),
        row(R::Vector(V::Mixed), &[
            Sha256rnds2, Pcmpestri, Vpcmpestri, Pcmpestri64, Vpcmpestri64, Pcmpestrm, Vpcmpestrm,
            Pcmpestrm64, Vpcmpestrm64, Pcmpistri, Vpcmpistri, Pcmpistrm, Vpcmpistrm, Extrq, Insertq,
            Vdbpsadbw, Vpermb, Vpermd, Vpermi2b, Vpermi2d, Vpermi2q, Vpermi2w, Vpermi2ps, Vpermi2pd,
            Vpermt2b, Vpermt2d, Vpermt2q, Vpermt2w, Vpermt2ps, Vpermt2pd, Vpermw, Vpermps,
            Vpcompressb, Vpcompressd, Vpcompressq, Vpcompressw, Vcompresspd, Vcompressps, Vpexpandb,
            Vpexpandd, Vpexpandq, Vpexpandw, Vexpandpd, Vexpandps, Vpconflictd, Vpconflictq,
            Vpshufbitqmb, Vp2intersectd, Vp2intersectq, Vpbroadcastmb2q, Vpbroadcastmw2d,
        ]),
        row(R::Vector(V::Float(4)), &[
            Addps, Vaddps, Addsubps, Vaddsubps, Divps, Vdivps, Maxps, Vmaxps, Minps, Vminps, Mulps,
            Vmulps, Subps, Vsubps, Sqrtps, Vsqrtps, Rcpps, Vrcpps, Rsqrtps, Vrsqrtps, Roundps,
            Vroundps, Vrcp14ps, Vrsqrt14ps, Vrcp28ps, Vrsqrt28ps, Vexp2ps, Vgetexpps, Vgetmantps,
            Vfixupimmps, Vrangeps, Vreduceps, Vrndscaleps, Vscalefps, Vfmadd132ps, Vfmadd213ps,
            Vfmadd231ps, Vfmsub132ps, Vfmsub213ps, Vfmsub231ps, Vfnmadd132ps, Vfnmadd213ps,
            Vfnmadd231ps, Vfnmsub132ps, Vfnmsub213ps, Vfnmsub231ps, Vfmaddsub132ps, Vfmaddsub213ps,
            Vfmaddsub231ps, Vfmsubadd132ps, Vfmsubadd213ps, Vfmsubadd231ps, Cvtdq2ps, Vcvtdq2ps,
            Cvtps2dq, Vcvtps2dq, Cvttps2dq, Vcvttps2dq, Vcvtudq2ps, Vcvtps2udq, Vcvttps2udq,
            Vdpbf16ps,
        ]),
        row(R::Vector(V::Float(8)), &[
            Addpd, Vaddpd, Addsubpd, Vaddsubpd, Divpd, Vdivpd, Maxpd, Vmaxpd, Minpd, Vminpd, Mulpd,
            Vmulpd, Subpd, Vsubpd, Sqrtpd, Vsqrtpd, Roundpd, Vroundpd, Vrcp14pd, Vrsqrt14pd,
            Vrcp28pd, Vrsqrt28pd, Vexp2pd, Vgetexppd, Vgetmantpd, Vfixupimmpd, Vrangepd, Vreducepd,
            Vrndscalepd, Vscalefpd, Vfmadd132pd, Vfmadd213pd, Vfmadd231pd, Vfmsub132pd, Vfmsub213pd,
            Vfmsub231pd, Vfnmadd132pd, Vfnmadd213pd, Vfnmadd231pd, Vfnmsub132pd, Vfnmsub213pd,
            Vfnmsub231pd, Vfmaddsub132pd, Vfmaddsub213pd, Vfmaddsub231pd, Vfmsubadd132pd,
            Vfmsubadd213pd, Vfmsubadd231pd, Vcvtqq2pd, Vcvtuqq2pd, Vcvtpd2qq, Vcvtpd2uqq,
            Vcvttpd2qq, Vcvttpd2uqq,
        ]),
        row(R::Vector(V::Float(2)), &[
            Vaddph, Vdivph, Vmaxph, Vminph, Vmulph, Vsubph, Vsqrtph, Vrcpph, Vrsqrtph, Vgetexpph,
            Vgetmantph, Vreduceph, Vrndscaleph, Vscalefph, Vfmadd132ph, Vfmadd213ph, Vfmadd231ph,
            Vfmsub132ph, Vfmsub213ph, Vfmsub231ph, Vfnmadd132ph, Vfnmadd213ph, Vfnmadd231ph,
            Vfnmsub132ph, Vfnmsub213ph, Vfnmsub231ph, Vfmaddsub132ph, Vfmaddsub213ph,
            Vfmaddsub231ph, Vfmsubadd132ph, Vfmsubadd213ph, Vfmsubadd231ph, Vcvtw2ph, Vcvtuw2ph,
            Vcvtph2w, Vcvtph2uw, Vcvttph2w, Vcvttph2uw,
        ]),
        row(R::Vector(V::Horizontal(2)), &[Phaddw, Vphaddw, Phaddsw, Vphaddsw, Phsubw, Vphsubw, Phsubsw, Vphsubsw]),
        row(R::Vector(V::Horizontal(4)), &[Phaddd, Vphaddd, Phsubd, Vphsubd, Haddps, Vhaddps, Hsubps, Vhsubps]),
        row(R::Vector(V::Horizontal(8)), &[Haddpd, Vhaddpd, Hsubpd, Vhsubpd]),
        row(R::Vector(V::MixedFloat), &[Dppd, Vdppd, Dpps, Vdpps]),
        row(R::Vector(V::Scalar(4, 4, 2)), &[
            Addss, Vaddss, Divss, Vdivss, Maxss, Vmaxss, Minss, Vminss, Mulss, Vmulss, Subss,
            Vsubss, Vrangess, Vscalefss,
        ]),
        row(R::Vector(V::Scalar(4, 4, 1)), &[
            Sqrtss, Vsqrtss, Rcpss, Vrcpss, Rsqrtss, Vrsqrtss, Roundss, Vroundss, Vrcp14ss,
            Vrsqrt14ss, Vrcp28ss, Vrsqrt28ss, Vgetexpss, Vgetmantss, Vreducess, Vrndscaless,
        ]),
        row(R::Vector(V::Scalar(4, 4, 3)), &[
            Vfmadd132ss, Vfmadd213ss, Vfmadd231ss, Vfmsub132ss, Vfmsub213ss, Vfmsub231ss,
            Vfnmadd132ss, Vfnmadd213ss, Vfnmadd231ss, Vfnmsub132ss, Vfnmsub213ss, Vfnmsub231ss,
            
        ]),
        row(R::Vector(V::Scalar(8, 8, 2)), &[
            Addsd, Vaddsd, Divsd, Vdivsd, Maxsd, Vmaxsd, Minsd, Vminsd, Mulsd, Vmulsd, Subsd,
            Vsubsd, Vrangesd, Vscalefsd,
        ]),
        row(R::Vector(V::Scalar(8, 8, 1)), &[
            Sqrtsd, Vsqrtsd, Roundsd, Vroundsd, Vrcp14sd, Vrsqrt14sd, Vrcp28sd, Vrsqrt28sd,
            Vgetexpsd, Vgetmantsd, Vreducesd, Vrndscalesd,
        ]),
        row(R::Vector(V::Scalar(8, 8, 3)), &[
            Vfmadd132sd, Vfmadd213sd, Vfmadd231sd, Vfmsub132sd, Vfmsub213sd, Vfmsub231sd,
            Vfnmadd132sd, Vfnmadd213sd, Vfnmadd231sd, Vfnmsub132sd, Vfnmsub213sd, Vfnmsub231sd,
            
        ]),
        row(R::Vector(V::Scalar(2, 2, 2)), &[Vaddsh, Vdivsh, Vmaxsh, Vminsh, Vmulsh, Vsubsh, Vscalefsh]),
        row(R::Vector(V::Scalar(2, 2, 1)), &[
            Vsqrtsh, Vrcpsh, Vrsqrtsh, Vgetexpsh, Vgetmantsh, Vreducesh, Vrndscalesh,
        ]),
        row(R::Vector(V::Scalar(2, 2, 3)), &[
            Vfmadd132sh, Vfmadd213sh, Vfmadd231sh, Vfmsub132sh, Vfmsub213sh, Vfmsub231sh,
            Vfnmadd132sh, Vfnmadd213sh, Vfnmadd231sh, Vfnmsub132sh, Vfnmsub213sh, Vfnmsub231sh,
        ]),
        row(R::Vector(V::Scalar(4, 4, 4)), &[Vfixupimmss]),
        row(R::Vector(V::Scalar(8, 8, 4)), &[Vfixupimmsd]),
        row(R::Vector(V::Scalar(8, 4, 1)), &[Cvtss2sd, Vcvtss2sd]),
        row(R::Vector(V::Scalar(4, 8, 1)), &[Cvtsd2ss, Vcvtsd2ss]),
        row(R::Vector(V::Scalar(8, 8, 1)), &[Cvtsi2sd, Vcvtsi2sd, Vcvtusi2sd]),
        row(R::Vector(V::Scalar(4, 8, 1)), &[Cvtsi2ss, Vcvtsi2ss, Vcvtusi2ss]),
        row(R::Vector(V::ToGpr(2)), &[Vcvtsh2si, Vcvttsh2si, Vcvtsh2usi, Vcvttsh2usi]),
        row(R::Vector(V::ToGpr(4)), &[Cvtss2si, Vcvtss2si, Cvttss2si, Vcvttss2si, Vcvtss2usi, Vcvttss2usi]),
        row(R::Vector(V::ToGpr(8)), &[Cvtsd2si, Vcvtsd2si, Cvttsd2si, Vcvttsd2si, Vcvtsd2usi, Vcvttsd2usi]),
        row(R::Vector(V::Convert(8, 4)), &[
            Cvtps2pd, Vcvtps2pd, Cvtdq2pd, Vcvtdq2pd, Vcvtudq2pd, Vcvtps2qq, Vcvtps2uqq, Vcvttps2qq,
            Vcvttps2uqq,
        ]),
        row(R::Vector(V::Convert(4, 8)), &[
            Cvtpd2ps, Vcvtpd2ps, Cvtpd2dq, Vcvtpd2dq, Cvttpd2dq, Vcvttpd2dq, Vcvtpd2udq,
            Vcvttpd2udq, Vcvtqq2ps, Vcvtuqq2ps,
        ]),
        row(R::Vector(V::Convert(4, 2)), &[Vcvtph2ps]),
        row(R::Vector(V::Convert(2, 4)), &[Vcvtps2ph, Vcvtneps2bf16]),
        row(R::Vector(V::MixedFloat), &[Cvtpd2pi, Cvttpd2pi, Cvtpi2pd, Cvtpi2ps, Cvtps2pi, Cvttps2pi]),
        row(R::Vector(V::CompareScalar(4)), &[Cmpss, Vcmpss]),
        row(R::Vector(V::CompareScalar(8)), &[Cmpsd, Vcmpsd]),
        row(R::Vector(V::CompareFloat(4)), &[Cmpps, Vcmpps]),
        row(R::Vector(V::CompareFloat(8)), &[Cmppd, Vcmppd]),
        row(R::Vector(V::ToMask(1)), &[Vpcmpb, Vpcmpub, Vptestmb, Vptestnmb]),
        row(R::Vector(V::ToMask(2)), &[Vpcmpw, Vpcmpuw, Vptestmw, Vptestnmw]),
        row(R::Vector(V::ToMask(4)), &[Vpcmpd, Vpcmpud, Vptestmd, Vptestnmd, Vfpclassps]),
        row(R::Vector(V::ToMask(8)), &[Vpcmpq, Vpcmpuq, Vptestmq, Vptestnmq, Vfpclasspd]),
        row(R::Vector(V::ScalarToMask(4)), &[Vfpclassss]),
        row(R::Vector(V::ScalarToMask(8)), &[Vfpclasssd]),
        row(R::Vector(V::SignsToMask(1)), &[Vpmovb2m]),
        row(R::Vector(V::SignsToMask(2)), &[Vpmovw2m]),
        row(R::Vector(V::SignsToMask(4)), &[Vpmovd2m]),
        row(R::Vector(V::SignsToMask(8)), &[Vpmovq2m]),
        row(R::Vector(V::FromMask(1)), &[Vpmovm2b]),
        row(R::Vector(V::FromMask(2)), &[Vpmovm2w]),
        row(R::Vector(V::FromMask(4)), &[Vpmovm2d]),
        row(R::Vector(V::FromMask(8)), &[Vpmovm2q]),
        row(R::Vector(V::Signs(1)), &[Pmovmskb, Vpmovmskb]),
        row(R::Vector(V::Signs(4)), &[Movmskps, Vmovmskps]),
        row(R::Vector(V::Signs(8)), &[Movmskpd, Vmovmskpd]),
        row(R::Vector(V::Flags(0)), &[Ptest, Vptest, Vtestps, Vtestpd]),
        row(R::Vector(V::Flags(4)), &[Comiss, Vcomiss, Ucomiss, Vucomiss]),
        row(R::Vector(V::Flags(8)), &[Comisd, Vcomisd, Ucomisd, Vucomisd]),
        row(R::Vector(V::Flags(2)), &[Vcomish, Vucomish]),
        row(R::Vector(V::Shift(Shift::Left, 2)), &[Psllw, Vpsllw]),
        row(R::Vector(V::Shift(Shift::Left, 4)), &[Pslld, Vpslld]),
        row(R::Vector(V::Shift(Shift::Left, 8)), &[Psllq, Vpsllq]),
        row(R::Vector(V::Shift(Shift::Right, 2)), &[Psrlw, Vpsrlw]),
        row(R::Vector(V::Shift(Shift::Right, 4)), &[Psrld, Vpsrld]),
        row(R::Vector(V::Shift(Shift::Right, 8)), &[Psrlq, Vpsrlq]),
        row(R::Vector(V::Shift(Shift::Arithmetic, 2)), &[Psraw, Vpsraw]),
        row(R::Vector(V::Shift(Shift::Arithmetic, 4)), &[Psrad, Vpsrad]),
        row(R::Vector(V::Shift(Shift::Arithmetic, 8)), &[Vpsraq]),
        row(R::Vector(V::Shift(Shift::RotateLeft, 4)), &[Vprold]),
        row(R::Vector(V::Shift(Shift::RotateLeft, 8)), &[Vprolq]),
        row(R::Vector(V::Shift(Shift::RotateRight, 4)), &[Vprord]),
        row(R::Vector(V::Shift(Shift::RotateRight, 8)), &[Vprorq]),
        row(R::Vector(V::Shuffle(S::Dwords, 4)), &[Pshufd, Vpshufd]),
        row(R::Vector(V::Shuffle(S::WordsLow, 2)), &[Pshuflw, Vpshuflw, Pshufw]),
        row(R::Vector(V::Shuffle(S::WordsHigh, 2)), &[Pshufhw, Vpshufhw]),
        row(R::Vector(V::Shuffle(S::Singles, 4)), &[Shufps, Vshufps]),
        row(R::Vector(V::Shuffle(S::Doubles, 8)), &[Shufpd, Vshufpd]),
        row(R::Vector(V::PermuteInLanes(4)), &[Vpermilps]),
        row(R::Vector(V::PermuteInLanes(8)), &[Vpermilpd]),
        row(R::Vector(V::PermuteQuads), &[Vpermq, Vpermpd]),
        row(R::Vector(V::Shuffle(S::Halves, 16)), &[Vperm2f128, Vperm2i128]),
        row(R::Vector(V::Shuffle(S::Sixteens, 4)), &[Vshuff32x4, Vshufi32x4]),
        row(R::Vector(V::Shuffle(S::Sixteens, 8)), &[Vshuff64x2, Vshufi64x2]),
        row(R::Vector(V::Shuffle(S::Align, 1)), &[Palignr, Vpalignr]),
        row(R::Vector(V::Shuffle(S::AlignElements, 4)), &[Valignd]),
        row(R::Vector(V::Shuffle(S::AlignElements, 8)), &[Valignq]),
        row(R::Vector(V::Shuffle(S::BytesLeft, 1)), &[Pslldq, Vpslldq]),
        row(R::Vector(V::Shuffle(S::BytesRight, 1)), &[Psrldq, Vpsrldq]),
        row(R::Vector(V::Shuffle(S::UnpackLow, 1)), &[Punpcklbw, Vpunpcklbw]),
        row(R::Vector(V::Shuffle(S::UnpackHigh, 1)), &[Punpckhbw, Vpunpckhbw]),
        row(R::Vector(V::Shuffle(S::UnpackLow, 2)), &[Punpcklwd, Vpunpcklwd]),
        row(R::Vector(V::Shuffle(S::UnpackHigh, 2)), &[Punpckhwd, Vpunpckhwd]),
        row(R::Vector(V::Shuffle(S::UnpackLow, 4)), &[Punpckldq, Vpunpckldq, Unpcklps, Vunpcklps]),
        row(R::Vector(V::Shuffle(S::UnpackHigh, 4)), &[Punpckhdq, Vpunpckhdq, Unpckhps, Vunpckhps]),
        row(R::Vector(V::Shuffle(S::UnpackLow, 8)), &[Punpcklqdq, Vpunpcklqdq, Unpcklpd, Vunpcklpd]),
        row(R::Vector(V::Shuffle(S::UnpackHigh, 8)), &[Punpckhqdq, Vpunpckhqdq, Unpckhpd, Vunpckhpd]),
        row(R::Vector(V::Shuffle(S::DuplicateEven, 4)), &[Movsldup, Vmovsldup]),
        row(R::Vector(V::Shuffle(S::DuplicateOdd, 4)), &[Movshdup, Vmovshdup]),
        row(R::Vector(V::Shuffle(S::DuplicateDoubles, 8)), &[Movddup, Vmovddup]),
        row(R::Vector(V::Shuffle(S::Blend, 4)), &[Blendps, Vblendps, Vpblendd]),
        row(R::Vector(V::Shuffle(S::Blend, 8)), &[Blendpd, Vblendpd]),
        row(R::Vector(V::Shuffle(S::BlendWords, 2)), &[Pblendw, Vpblendw]),
        row(R::Vector(V::Shuffle(S::Broadcast(1), 1)), &[Vpbroadcastb]),
        row(R::Vector(V::Shuffle(S::Broadcast(2), 2)), &[Vpbroadcastw]),
        row(R::Vector(V::Shuffle(S::Broadcast(4), 4)), &[Vpbroadcastd, Vbroadcastss]),
        row(R::Vector(V::Shuffle(S::Broadcast(8), 8)), &[Vpbroadcastq, Vbroadcastsd]),
        row(R::Vector(V::Shuffle(S::Broadcast(8), 4)), &[Vbroadcastf32x2, Vbroadcasti32x2]),
        row(R::Vector(V::Shuffle(S::Broadcast(16), 4)), &[
            Vbroadcastf32x4, Vbroadcasti32x4, Vbroadcastf128, Vbroadcasti128,
        ]),
        row(R::Vector(V::Shuffle(S::Broadcast(16), 8)), &[Vbroadcastf64x2, Vbroadcasti64x2]),
        row(R::Vector(V::Shuffle(S::Broadcast(32), 4)), &[Vbroadcastf32x8, Vbroadcasti32x8]),
        row(R::Vector(V::Shuffle(S::Broadcast(32), 8)), &[Vbroadcastf64x4, Vbroadcasti64x4]),
        row(R::Vector(V::Shuffle(S::Insert, 4)), &[
            Vinsertf128, Vinserti128, Vinsertf32x4, Vinsertf32x8, Vinserti32x4, Vinserti32x8,
        ]),
        row(R::Vector(V::Shuffle(S::Insert, 8)), &[Vinsertf64x2, Vinsertf64x4, Vinserti64x2, Vinserti64x4]),
        row(R::Vector(V::Shuffle(S::ExtractPart, 4)), &[
            Vextractf128, Vextracti128, Vextractf32x4, Vextractf32x8, Vextracti32x4, Vextracti32x8,
        ]),
        row(R::Vector(V::Shuffle(S::ExtractPart, 8)), &[Vextractf64x2, Vextractf64x4, Vextracti64x2, Vextracti64x4]),
        row(R::Vector(V::Shuffle(S::InsertElement, 1)), &[Pinsrb, Vpinsrb]),
        row(R::Vector(V::Shuffle(S::InsertElement, 2)), &[Pinsrw, Vpinsrw]),
        row(R::Vector(V::Shuffle(S::InsertElement, 4)), &[Pinsrd, Vpinsrd]),
        row(R::Vector(V::Shuffle(S::InsertElement, 8)), &[Pinsrq, Vpinsrq]),
        row(R::Vector(V::Shuffle(S::InsertSingle, 4)), &[Insertps, Vinsertps]),
        row(R::Vector(V::Shuffle(S::HighToLow, 8)), &[Movhlps, Vmovhlps]),
        row(R::Vector(V::Shuffle(S::LowToHigh, 8)), &[Movlhps, Vmovlhps]),
        row(R::Vector(V::Extract(1)), &[Pextrb, Vpextrb]),
        row(R::Vector(V::Extract(2)), &[Pextrw, Vpextrw]),
        row(R::Vector(V::Extract(4)), &[Pextrd, Vpextrd, Extractps, Vextractps]),
        row(R::Vector(V::Extract(8)), &[Pextrq, Vpextrq]),
        row(R::Vector(V::Choose(1)), &[Pshufb, Vpshufb]),
        row(R::Vector(V::BlendVariable(1)), &[Pblendvb, Vpblendvb]),
        row(R::Vector(V::BlendVariable(4)), &[Blendvps, Vblendvps]),
        row(R::Vector(V::BlendVariable(8)), &[Blendvpd, Vblendvpd]),
        row(R::Vector(V::BlendMask(1)), &[Vpblendmb]),
        row(R::Vector(V::BlendMask(2)), &[Vpblendmw]),
        row(R::Vector(V::BlendMask(4)), &[Vpblendmd, Vblendmps]),
        row(R::Vector(V::BlendMask(8)), &[Vpblendmq, Vblendmpd]),
        row(R::Vector(V::Pack(2)), &[Packsswb, Vpacksswb, Packuswb, Vpackuswb]),
        row(R::Vector(V::Pack(4)), &[Packssdw, Vpackssdw, Packusdw, Vpackusdw]),
        row(R::Vector(V::ZeroExtend(2, 1)), &[Pmovzxbw, Vpmovzxbw]),
        row(R::Vector(V::SignExtend(2, 1)), &[Pmovsxbw, Vpmovsxbw]),
        row(R::Vector(V::Truncate(1, 2)), &[Vpmovwb]),
        row(R::Vector(V::Saturate(1, 2)), &[Vpmovswb, Vpmovuswb]),
        row(R::Vector(V::ZeroExtend(4, 1)), &[Pmovzxbd, Vpmovzxbd]),
        row(R::Vector(V::SignExtend(4, 1)), &[Pmovsxbd, Vpmovsxbd]),
        row(R::Vector(V::Truncate(1, 4)), &[Vpmovdb]),
        row(R::Vector(V::Saturate(1, 4)), &[Vpmovsdb, Vpmovusdb]),
        row(R::Vector(V::ZeroExtend(8, 1)), &[Pmovzxbq, Vpmovzxbq]),
        row(R::Vector(V::SignExtend(8, 1)), &[Pmovsxbq, Vpmovsxbq]),
        row(R::Vector(V::Truncate(1, 8)), &[Vpmovqb]),
        row(R::Vector(V::Saturate(1, 8)), &[Vpmovsqb, Vpmovusqb]),
        row(R::Vector(V::ZeroExtend(4, 2)), &[Pmovzxwd, Vpmovzxwd]),
        row(R::Vector(V::SignExtend(4, 2)), &[Pmovsxwd, Vpmovsxwd]),
        row(R::Vector(V::Truncate(2, 4)), &[Vpmovdw]),
        row(R::Vector(V::Saturate(2, 4)), &[Vpmovsdw, Vpmovusdw]),
        row(R::Vector(V::ZeroExtend(8, 2)), &[Pmovzxwq, Vpmovzxwq]),
        row(R::Vector(V::SignExtend(8, 2)), &[Pmovsxwq, Vpmovsxwq]),
        row(R::Vector(V::Truncate(2, 8)), &[Vpmovqw]),
        row(R::Vector(V::Saturate(2, 8)), &[Vpmovsqw, Vpmovusqw]),
        row(R::Vector(V::ZeroExtend(8, 4)), &[Pmovzxdq, Vpmovzxdq]),
        row(R::Vector(V::SignExtend(8, 4)), &[Pmovsxdq, Vpmovsxdq]),
        row(R::Vector(V::Truncate(4, 8)), &[Vpmovqd]),
        row(R::Vector(V::Saturate(4, 8)), &[Vpmovsqd, Vpmovusqd]),
        row(R::Vector(V::MoveLow(4)), &[Movd, Vmovd]),
        row(R::Vector(V::MoveLow(8)), &[Movq, Vmovq, Movdq2q, Movq2dq, Movntq]),
        row(R::Vector(V::MoveLow(2)), &[Vmovw]),
        row(R::Vector(V::MoveScalar(4)), &[Movss, Vmovss, Movntss]),
        row(R::Vector(V::MoveScalar(8)), &[Movsd, Vmovsd, Movntsd]),
        row(R::Vector(V::MoveScalar(2)), &[Vmovsh]),
        row(R::Vector(V::MoveHalf { high: false }), &[Movlps, Vmovlps, Movlpd, Vmovlpd]),
        row(R::Vector(V::MoveHalf { high: true }), &[Movhps, Vmovhps, Movhpd, Vmovhpd]),
        row(R::Vector(V::ByteMasked), &[Maskmovdqu, Vmaskmovdqu, Maskmovq]),
        row(R::Vector(V::LaneMasked(4)), &[Vmaskmovps, Vpmaskmovd]),
        row(R::Vector(V::LaneMasked(8)), &[Vmaskmovpd, Vpmaskmovq]),
        row(R::Vector(V::Gather), &[
            Vgatherdpd, Vgatherdps, Vgatherqpd, Vgatherqps, Vpgatherdd, Vpgatherdq, Vpgatherqd,
            Vpgatherqq,
        ]),
        row(R::Vector(V::Scatter), &[
            Vpscatterdd, Vpscatterdq, Vpscatterqd, Vpscatterqq, Vscatterdpd, Vscatterdps,
            Vscatterqpd, Vscatterqps,
        ]),
        row(R::Nothing, &[
            Vgatherpf0dpd, Vgatherpf0dps, Vgatherpf0qpd, Vgatherpf0qps, Vgatherpf1dpd,
            Vgatherpf1dps, Vgatherpf1qpd, Vgatherpf1qps, Vscatterpf0dpd, Vscatterpf0dps,
            Vscatterpf0qpd, Vscatterpf0qps, Vscatterpf1dpd, Vscatterpf1dps, Vscatterpf1qpd,
            Vscatterpf1qps,
        ]),
        row(R::Vector(V::ZeroFrom(0)), &[Vzeroall]),
        row(R::Vector(V::ZeroFrom(16)), &[Vzeroupper]),
        row(R::Vector(V::ZeroLine), &[Clzero]),
        row(R::Vector(V::DirectStore), &[Movdir64b]),
        row(R::Vector(V::Mxcsr), &[Ldmxcsr, Vldmxcsr, Stmxcsr, Vstmxcsr]),
        row(R::Opmask(Opmask::Bitwise, 1), &[Kandb, Kandnb, Korb, Kxorb, Kxnorb, Knotb]),
        row(R::Opmask(Opmask::Bitwise, 2), &[Kandw, Kandnw, Korw, Kxorw, Kxnorw, Knotw]),
        row(R::Opmask(Opmask::Bitwise, 4), &[Kandd, Kandnd, Kord, Kxord, Kxnord, Knotd]),
        row(R::Opmask(Opmask::Bitwise, 8), &[Kandq, Kandnq, Korq, Kxorq, Kxnorq, Knotq]),
        row(R::Opmask(Opmask::Move, 1), &[Kmovb]),
        row(R::Opmask(Opmask::Move, 2), &[Kmovw]),
        row(R::Opmask(Opmask::Move, 4), &[Kmovd]),
        row(R::Opmask(Opmask::Move, 8), &[Kmovq]),
        row(R::Opmask(Opmask::ShiftLeft, 1), &[Kshiftlb]),
        row(R::Opmask(Opmask::ShiftLeft, 2), &[Kshiftlw]),
        row(R::Opmask(Opmask::ShiftLeft, 4), &[Kshiftld]),
        row(R::Opmask(Opmask::ShiftLeft, 8), &[Kshiftlq]),
        row(R::Opmask(Opmask::ShiftRight, 1), &[Kshiftrb]),
        row(R::Opmask(Opmask::ShiftRight, 2), &[Kshiftrw]),
        row(R::Opmask(Opmask::ShiftRight, 4), &[Kshiftrd]),
        row(R::Opmask(Opmask::ShiftRight, 8), &[Kshiftrq]),
        row(R::Opmask(Opmask::Sum, 1), &[Kaddb]),
        row(R::Opmask(Opmask::Sum, 2), &[Kaddw]),
        row(R::Opmask(Opmask::Sum, 4), &[Kaddd]),
        row(R::Opmask(Opmask::Sum, 8), &[Kaddq]),
        row(R::Opmask(Opmask::Test, 1), &[Kortestb, Ktestb]),
        row(R::Opmask(Opmask::Test, 2), &[Kortestw, Ktestw]),
        row(R::Opmask(Opmask::Test, 4), &[Kortestd, Ktestd]),
        row(R::Opmask(Opmask::Test, 8), &[Kortestq, Ktestq]),
        row(R::Opmask(Opmask::Unpack, 2), &[Kunpckbw]),
        row(R::Opmask(Opmask::Unpack, 4), &[Kunpckwd]),
        row(R::Opmask(Opmask::Unpack, 8), &[Kunpckdq]),

        // ── x87 ─────────────────────────────────────────────────────────────────────────────────
        row(R::X87(X87::Nothing), &[
            Emms, Femms, Fdecstp, Fincstp, Ffree, Ffreep, Fndisi, Fneni, Fnsetpm,
        ]),
        row(R::X87(X87::Load), &[
            Fld, Fild, Fbld, Fld1, Fldl2e, Fldl2t, Fldlg2, Fldln2, Fldpi, Fldz,
        ]),
        row(R::X87(X87::Store), &[Fst, Fstp, Fist, Fistp, Fisttp, Fbstp]),
        row(R::X87(X87::Arithmetic), &[
            Fadd, Faddp, Fdiv, Fdivp, Fdivr, Fdivrp, Fiadd, Fidiv, Fidivr, Fimul, Fisub, Fisubr,
            Fmul, Fmulp, Fsub, Fsubp, Fsubr, Fsubrp, F2xm1, Fcos, Fsin, Frndint, Fsqrt,
        ]),
        row(R::X87(X87::Binary), &[Fprem, Fprem1, Fscale]),
        row(R::X87(X87::BinaryPop), &[Fpatan, Fyl2x, Fyl2xp1]),
        row(R::X87(X87::Push), &[Fptan, Fsincos, Fxtract]),
        row(R::X87(X87::Sign), &[Fabs, Fchs]),
        row(R::X87(X87::Exchange), &[Fxch]),
        row(R::X87(X87::Compare), &[
            Fcom, Fcomp, Fcompp, Ficom, Ficomp, Ftst, Fucom, Fucomp, Fucompp, Fxam,
        ]),
        row(R::X87(X87::CompareFlags), &[Fcomi, Fcomip, Fucomi, Fucomip]),
        row(R::X87(X87::ConditionalMove), &[
            Fcmovb, Fcmovbe, Fcmove, Fcmovnb, Fcmovnbe, Fcmovne, Fcmovnu, Fcmovu,
        ]),
        row(R::X87(X87::StoreStatus), &[Fnstsw]),
        row(R::X87(X87::StoreControl), &[Fnstcw]),
        row(R::X87(X87::LoadControl), &[Fldcw]),
        row(R::X87(X87::StoreEnvironment), &[Fnstenv]),
        row(R::X87(X87::LoadEnvironment), &[Fldenv]),
        row(R::X87(X87::Initialize), &[Fninit]),
        row(R::X87(X87::ClearExceptions), &[Fnclex]),
    ]
};

/// More than iced's mnemonics; what lies beyond has no row, and a test compares.
const MNEMONICS_MAX: usize = 2048;

/// Row of each mnemonic, made from [`ROWS`] at compile time.
static ROW_OF_MNEMONIC: [u16; MNEMONICS_MAX] = {
    let mut table = [0u16; MNEMONICS_MAX];
    let mut row = 1;
    while row < ROWS.len() {
        let mnemonics = ROWS[row].mnemonics;
        let mut at = 0;
        while at < mnemonics.len() {
            let mnemonic = mnemonics[at] as usize;
            assert!(table[mnemonic] == 0, "a mnemonic may have one row only");
            table[mnemonic] = row as u16;
            at += 1;
        }
        row += 1;
    }
    table
};

fn rule_of(mnemonic: Mnemonic) -> Option<Rule> {
    match ROW_OF_MNEMONIC.get(mnemonic as usize) {
        None | Some(0) => None,
        Some(&row) => Some(ROWS[usize::from(row)].rule),
    }
}

/// Never the answer: `OPS_MAX` is large enough.
const TOO_LONG: &str = "too long a list of operations";

/// Tells the data flow of one instruction after another without allocating.
pub struct Analyzer {
    factory: InstructionInfoFactory,
}

impl Default for Analyzer {
    fn default() -> Self {
        Self::new()
    }
}

impl Analyzer {
    /// Allocates what iced needs.
    #[must_use]
    pub fn new() -> Analyzer {
        Analyzer {
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Puts the data flow of `insn` into `flow`, whatever was in it before.
    ///
    /// # Errors
    ///
    /// The reason, if it is not known; `flow` is empty then.
    pub fn analyze(&mut self, insn: &Instruction, flow: &mut Flow) -> Result<(), Unknown> {
        // iced calls a destination read if a mask may keep some of it. Whether the operation
        // itself reads it shows without the mask.
        let mut plain = *insn;
        plain.set_op_mask(Register::None);
        plain.set_zeroing_masking(false);
        let info = self
            .factory
            .info_options(&plain, InstructionInfoOptions::NO_MEMORY_USAGE);
        let mut builder = Builder::new(insn, info, flow);
        let answer = builder.build();
        let answer = match answer {
            Ok(()) if builder.flow.overflowed() => Err(Unknown(TOO_LONG)),
            other => other,
        };
        if answer.is_err() {
            flow.reset();
        }
        flow.summarize();
        answer
    }
}

impl Builder<'_> {
    /// A vector instruction without a row: everything depends on everything, as iced describes it.
    fn without_rule(&mut self) -> Answer {
        let insn = self.insn;
        let writes_vector = insn.op_count() > 0
            && match insn.op0_kind() {
                OpKind::Register => {
                    let register = insn.op0_register();
                    register.is_vector_register() || register.is_k() || register.is_mm()
                }
                OpKind::Memory => true,
                _ => false,
            };
        let described = matches!(
            insn.encoding(),
            EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::XOP | EncodingKind::D3NOW
        );
        if writes_vector && described {
            self.vector(Vector::MixedFloat)
        } else {
            Err(Unknown("no rule"))
        }
    }

    fn build(&mut self) -> Answer {
        if self.insn.is_invalid() {
            return Err(Unknown("not an instruction"));
        }
        let form = classify(self.insn);
        if let MemoryForm::String(string) = form {
            return self.string(&string);
        }
        if let MemoryForm::XState(transfer) = form {
            let bytes = transfer.effect.size as usize;
            self.memory_at(At::Operand, bytes);
            self.flow.state = Some(transfer);
            return Ok(());
        }
        if let MemoryForm::Unsupported(reason) = form {
            return Err(Unknown(reason));
        }
        let Some(rule) = rule_of(self.insn.mnemonic()) else {
            return self.without_rule();
        };
        match rule {
            Rule::Nothing => Ok(()),
            Rule::Everything => self.everything(),
            Rule::Fresh => self.fresh(),
            Rule::Move => self.move_plain(),
            Rule::Extend(signed) => self.extend(signed),
            Rule::Widen => self.widen(),
            Rule::Reverse => self.reverse(),
            Rule::Address => self.load_address(),
            Rule::Exchange => self.exchange(),
            Rule::ExchangeAdd => self.exchange_add(),
            Rule::CompareExchange => self.compare_exchange(),
            Rule::CompareExchangeWide => self.compare_exchange_wide(),
            Rule::Sum(sum) => self.sum(sum),
            Rule::CarryChain(flag) => self.carry_chain(flag),
            Rule::Logic(logic) => self.logic(logic),
            Rule::Kept => self.kept(),
            Rule::Not => self.not(),
            Rule::LowestBit => self.lowest_bit(),
            Rule::Shift(shift) => self.shift(shift),
            Rule::ShiftEverything => self.shift_everything(),
            Rule::ShiftWithoutFlags(shift) => self.shift_without_flags(shift),
            Rule::Multiply => self.multiply(),
            Rule::Divide => self.divide(),
            Rule::BitTest => self.bit_test(),
            Rule::CountBits => self.count_bits(),
            Rule::ConditionalMove => self.conditional_move(),
            Rule::SetCondition => self.set_condition(),
            Rule::Push => self.push(),
            Rule::Pop => self.pop(),
            Rule::PushFlags => self.push_flags(),
            Rule::PopFlags => self.pop_flags(),
            Rule::FlagsAndAh => self.flags_and_ah(),
            Rule::ConstantFlag => self.constant_flag(),
            Rule::Leave => self.leave(),
            Rule::Enter => self.enter(),
            Rule::Branch => self.branch(),
            Rule::SystemCall => self.system_call(),
            Rule::TranslateByte => self.translate_byte(),
            Rule::SegmentBase => self.segment_base_moves(),
            Rule::Selector => self.selector(),
            Rule::Vector(rule) => self.vector(rule),
            Rule::Opmask(what, bytes) => self.opmask(what, bytes.into()),
            Rule::X87(rule) => self.x87(rule),
            Rule::VectorMove(lane) => self.vector_move(usize::from(lane)),
        }
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
