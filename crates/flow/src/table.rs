//! The table: which rule gives the data flow of which instructions.
//!
//! A legacy instruction without a row is unknown.

use crate::Unknown;
use crate::build::{Answer, Builder};
use crate::flow::Flow;
use crate::integer::{Logic, Shift, Sum};
use crate::place::Flag;
use brownout_insn::{MemoryForm, classify};
use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions};
use iced_x86::{Mnemonic, Register};

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
    VectorMove(u8),
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
    &[
        // Row 0 is "no row".
        row(R::Nothing, &[]),

        // ── integer ─────────────────────────────────────────────────────────────────────────────
        row(R::Nothing, &[
            Nop, Fnop, Reservednop, Pause, Endbr64, Endbr32, Lfence, Mfence, Sfence, Serialize, Mcommit, Clflush,
            Clflushopt, Clwb, Cldemote, Prefetch, Prefetchit0, Prefetchit1, Prefetchnta, Prefetcht0,
            Prefetcht1, Prefetcht2, Prefetchw, Prefetchwt1, Wait, Cmc,
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
        row(R::Fresh, &[Rdtsc, Rdtscp, Rdrand, Rdseed, Rdpid]),
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
    ]
};

/// More than iced's mnemonics; what lies beyond has no row, and a test compares.
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

fn rule_of(mnemonic: Mnemonic) -> Option<Rule> {
    match ROW_OF_MNEMONIC.get(mnemonic as usize) {
        None | Some(0) => None,
        Some(&row) => Some(ROWS[usize::from(row)].rule),
    }
}

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
            Ok(()) if builder.flow.overflowed() => Err(Unknown("too long a list of operations")),
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
    fn build(&mut self) -> Answer {
        if self.insn.is_invalid() {
            return Err(Unknown("not an instruction"));
        }
        let form = classify(self.insn);
        if let MemoryForm::String(string) = form {
            return self.string(&string);
        }
        if let MemoryForm::Unsupported(reason) = form {
            return Err(Unknown(reason));
        }
        let Some(rule) = rule_of(self.insn.mnemonic()) else {
            return Err(Unknown("no rule"));
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
            Rule::VectorMove(lane) => self.vector_move(usize::from(lane)),
        }
    }
}
