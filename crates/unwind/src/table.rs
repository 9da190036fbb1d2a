//! From a program counter to its rule, over `.eh_frame_hdr` and `.eh_frame` as byte slices.
//!
//! Entirely safe code: [`crate::image`] turns a mapped image into the slices, and tests bring their own.

use gimli::{
    BaseAddresses, CallFrameInstruction, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, UnwindExpression, UnwindSection, X86_64,
};

use crate::expression::{self, Base, Value};
use crate::rule::{FrameRule, LookupPc, RbpRule, Register};
use crate::walk::ucontext;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

const ADDRESS_BYTES: u8 = 8;

/// The deepest nesting of `DW_CFA_remember_state`. Compilers use 1, rarely 2.
const REMEMBERED_MAX: usize = 8;

/// The unwind tables of one image.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    hdr: &'a [u8],
    hdr_addr: u64,
    eh_frame: &'a [u8],
    eh_frame_addr: u64,
}

impl<'a> Tables<'a> {
    /// Tables from their bytes and the addresses at which the image has them at run time.
    /// `eh_frame` may be longer than the section: a terminator or the look-up bounds what is read.
    pub fn new(hdr: &'a [u8], hdr_addr: u64, eh_frame: &'a [u8], eh_frame_addr: u64) -> Self {
        Self {
            hdr,
            hdr_addr,
            eh_frame,
            eh_frame_addr,
        }
    }

    /// Where an `.eh_frame_hdr` at this address says that `.eh_frame` begins.
    pub fn eh_frame_addr_of(hdr: &[u8], hdr_addr: u64) -> Option<u64> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(hdr_addr);
        let parsed = EhFrameHdr::new(hdr, LittleEndian)
            .parse(&bases, ADDRESS_BYTES)
            .ok()?;
        parsed.eh_frame_ptr().direct().ok()
    }

    /// The rule for the frame of the instruction at `pc`.
    pub fn rule_for(&self, pc: LookupPc) -> FrameRule {
        self.compile(pc.get()).unwrap_or(FrameRule::Unknown)
    }

    fn compile(&self, pc: u64) -> Option<FrameRule> {
        let mut section = EhFrame::new(self.eh_frame, LittleEndian);
        section.set_address_size(ADDRESS_BYTES);
        let bases = BaseAddresses::default().set_eh_frame(self.eh_frame_addr);
        let fde = match Index::parse(self.hdr) {
            Some(index) => {
                let offset = index
                    .lookup(self.hdr_addr, pc)?
                    .checked_sub(self.eh_frame_addr)
                    .and_then(|offset| usize::try_from(offset).ok())?;
                let fde = section
                    .fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
                    .ok()?;
                fde.contains(pc).then_some(fde)?
            }
            // The linker wrote no table, or one in an encoding that no known linker writes: slow but
            // right.
            None => section
                .fde_for_address(&bases, pc, EhFrame::cie_from_offset)
                .ok()?,
        };
        Program {
            section: &section,
            bases: &bases,
            fde: &fde,
            pc,
        }
        .run()
    }
}

/// The sorted table in `.eh_frame_hdr`: pairs of (first address of a function, address of its entry),
/// both relative to the header.
///
/// gimli has this search too; its arithmetic overflows on corrupt headers.
struct Index<'a> {
    rows: &'a [u8],
    field_bytes: usize,
}

impl<'a> Index<'a> {
    fn parse(hdr: &'a [u8]) -> Option<Self> {
        let (&[1, eh_frame_ptr_enc, fde_count_enc, table_enc], rest) = hdr.split_first_chunk()?
        else {
            return None;
        };
        let eh_frame_ptr_bytes = match gimli::DwEhPe(eh_frame_ptr_enc).format() {
            gimli::DW_EH_PE_sdata4 | gimli::DW_EH_PE_udata4 => 4,
            gimli::DW_EH_PE_sdata8 | gimli::DW_EH_PE_udata8 | gimli::DW_EH_PE_absptr => 8,
            _ => return None,
        };
        let rest = rest.get(eh_frame_ptr_bytes..)?;
        let (count, rows) = match gimli::DwEhPe(fde_count_enc) {
            gimli::DW_EH_PE_udata4 => {
                let (count, rows) = rest.split_first_chunk()?;
                (u64::from(u32::from_le_bytes(*count)), rows)
            }
            gimli::DW_EH_PE_udata8 => {
                let (count, rows) = rest.split_first_chunk()?;
                (u64::from_le_bytes(*count), rows)
            }
            _ => return None,
        };
        let table_enc = gimli::DwEhPe(table_enc);
        let field_bytes = match table_enc.format() {
            gimli::DW_EH_PE_sdata4 => 4,
            gimli::DW_EH_PE_sdata8 => 8,
            _ => return None,
        };
        if table_enc.application() != gimli::DW_EH_PE_datarel || table_enc.is_indirect() {
            return None;
        }
        let bytes = usize::try_from(count).ok()?.checked_mul(2 * field_bytes)?;
        Some(Self {
            rows: rows.get(..bytes)?,
            field_bytes,
        })
    }

    /// The address of the last entry that begins at or before `pc`.
    fn lookup(&self, hdr_addr: u64, pc: u64) -> Option<u64> {
        let (mut low, mut high) = (0, self.rows.len() / (2 * self.field_bytes));
        while low < high {
            let middle = low + (high - low) / 2;
            if hdr_addr.wrapping_add(self.field(2 * middle)?) <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(hdr_addr.wrapping_add(self.field(2 * low.checked_sub(1)? + 1)?))
    }

    /// A field, sign-extended.
    fn field(&self, index: usize) -> Option<u64> {
        let bytes = self.rows.get(index * self.field_bytes..)?;
        Some(match self.field_bytes {
            4 => i64::from(i32::from_le_bytes(*bytes.first_chunk()?)) as u64,
            _ => u64::from_le_bytes(*bytes.first_chunk()?),
        })
    }
}

/// Where a register's value in the caller is, as the instructions left it.
#[derive(Clone, Copy)]
enum Saved {
    /// No instruction mentions it.
    Unspecified,
    SameValue,
    Undefined,
    AtCfa(i64),
    At(UnwindExpression<usize>),
    /// In another register, or computed.
    Elsewhere,
}

#[derive(Clone, Copy)]
enum Cfa {
    Undefined,
    RegisterOffset {
        register: gimli::Register,
        offset: i64,
    },
    Expression(UnwindExpression<usize>),
}

/// The columns of a row that matter for a chain of return addresses.
#[derive(Clone, Copy)]
struct Row {
    cfa: Cfa,
    rbp: Saved,
    return_addr: Saved,
}

impl Row {
    const EMPTY: Self = Self {
        cfa: Cfa::Undefined,
        rbp: Saved::Unspecified,
        return_addr: Saved::Unspecified,
    };

    fn column(&mut self, register: gimli::Register) -> Option<&mut Saved> {
        match register {
            X86_64::RBP => Some(&mut self.rbp),
            X86_64::RA => Some(&mut self.return_addr),
            _ => None,
        }
    }

    fn save(&mut self, register: gimli::Register, saved: Saved) {
        if let Some(column) = self.column(register) {
            *column = saved;
        }
    }
}

/// The instructions of one entry, run up to the row of one program counter.
struct Program<'p, 'a> {
    section: &'p EhFrame<Slice<'a>>,
    bases: &'p BaseAddresses,
    fde: &'p FrameDescriptionEntry<Slice<'a>>,
    pc: u64,
}

impl Program<'_, '_> {
    fn run(&self) -> Option<FrameRule> {
        let cie = self.fde.cie();
        if cie.return_address_register() != X86_64::RA {
            return None;
        }
        let mut machine = Machine {
            row: Row::EMPTY,
            initial: None,
            remembered: [Row::EMPTY; REMEMBERED_MAX],
            remembered_len: 0,
            location: self.fde.initial_address(),
            code_alignment: cie.code_alignment_factor(),
            data_alignment: cie.data_alignment_factor(),
        };
        let mut instructions = cie.instructions(self.section, self.bases);
        while let Some(instruction) = instructions.next().ok()? {
            // The location of initial instructions is not defined; compilers write none that move it.
            machine.execute(instruction, u64::MAX)?;
        }
        machine.location = self.fde.initial_address();
        machine.initial = Some(machine.row);
        let mut instructions = self.fde.instructions(self.section, self.bases);
        while let Some(instruction) = instructions.next().ok()? {
            match machine.execute(instruction, self.pc)? {
                Progress::InRow => {}
                Progress::PastPc => break,
            }
        }
        self.compile(&machine.row)
    }

    fn compile(&self, row: &Row) -> Option<FrameRule> {
        let rbp = self.rbp_rule(row.rbp);
        let cfa = self.cfa_value(row.cfa);
        if self.fde.is_signal_trampoline() {
            // Any other layout than the kernel's is somebody's own invention.
            let is_kernel_layout = self.address(row.return_addr)? == at_rsp(ucontext::RIP)
                && rbp == RbpRule::AtRsp(ucontext::RBP as i32)
                && cfa? == load_rsp(ucontext::RSP);
            return is_kernel_layout.then_some(FrameRule::SignalFrame);
        }
        match row.return_addr {
            Saved::Undefined => return Some(FrameRule::End),
            Saved::AtCfa(-8) => {}
            _ => return None,
        }
        Some(match cfa? {
            Value::Sum {
                base: Base::Register(register),
                offset,
            } => {
                let cfa_offset = i32::try_from(offset).ok()?;
                match register {
                    Register::RSP => FrameRule::Rsp { cfa_offset, rbp },
                    Register::RBP => FrameRule::Rbp { cfa_offset, rbp },
                    _ => FrameRule::Other {
                        register,
                        cfa_offset,
                        rbp,
                    },
                }
            }
            Value::Load {
                base: Base::Register(register),
                offset,
                add,
            } => {
                let (offset, add) = (i32::try_from(offset).ok()?, i16::try_from(add).ok()?);
                match register {
                    Register::RSP => FrameRule::RspDeref { offset, add, rbp },
                    Register::RBP => FrameRule::RbpDeref { offset, add, rbp },
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    fn cfa_value(&self, cfa: Cfa) -> Option<Value> {
        match cfa {
            Cfa::Undefined => None,
            Cfa::RegisterOffset { register, offset } => {
                let base = Base::Register(Register::from_dwarf(register.0)?);
                Some(Value::Sum { base, offset })
            }
            Cfa::Expression(expression) => self.evaluate(expression, None),
        }
    }

    /// The address at which a register is saved.
    fn address(&self, saved: Saved) -> Option<Value> {
        match saved {
            Saved::AtCfa(offset) => Some(Value::Sum {
                base: Base::Cfa,
                offset,
            }),
            Saved::At(expression) => self.evaluate(expression, Some(Base::Cfa)),
            _ => None,
        }
    }

    fn rbp_rule(&self, saved: Saved) -> RbpRule {
        if matches!(saved, Saved::Unspecified | Saved::SameValue) {
            // Callee-saved, so that silence means that it was not touched.
            return RbpRule::Unchanged;
        }
        let Some(Value::Sum { base, offset }) = self.address(saved) else {
            return RbpRule::Lost;
        };
        let Ok(offset) = i32::try_from(offset) else {
            return RbpRule::Lost;
        };
        match base {
            Base::Cfa => RbpRule::AtCfa(offset),
            Base::Register(Register::RSP) => RbpRule::AtRsp(offset),
            Base::Register(Register::RBP) => RbpRule::AtRbp(offset),
            Base::Register(_) => RbpRule::Lost,
        }
    }

    fn evaluate(
        &self,
        expression: UnwindExpression<usize>,
        initial: Option<Base>,
    ) -> Option<Value> {
        let expression = expression.get(self.section).ok()?;
        expression::evaluate(expression, self.fde.cie().encoding(), self.pc, initial)
    }
}

fn at_rsp(offset: u64) -> Value {
    Value::Sum {
        base: Base::Register(Register::RSP),
        offset: offset as i64,
    }
}

fn load_rsp(offset: u64) -> Value {
    Value::Load {
        base: Base::Register(Register::RSP),
        offset: offset as i64,
        add: 0,
    }
}

enum Progress {
    InRow,
    /// The next row begins after the program counter: the current one is it.
    PastPc,
}

struct Machine {
    row: Row,
    /// The row after the common instructions, which `DW_CFA_restore` returns to.
    initial: Option<Row>,
    remembered: [Row; REMEMBERED_MAX],
    remembered_len: usize,
    location: u64,
    code_alignment: u64,
    data_alignment: i64,
}

impl Machine {
    /// Executes one instruction; None if it is invalid here.
    fn execute(&mut self, instruction: CallFrameInstruction<usize>, pc: u64) -> Option<Progress> {
        use CallFrameInstruction as I;
        let factored = |offset: i64| offset.wrapping_mul(self.data_alignment);
        match instruction {
            I::SetLoc { address } => return self.advance_to(address, pc),
            I::AdvanceLoc { delta } => {
                let delta = u64::from(delta).wrapping_mul(self.code_alignment);
                return self.advance_to(self.location.checked_add(delta)?, pc);
            }
            I::DefCfa { register, offset } => {
                self.row.cfa = Cfa::RegisterOffset {
                    register,
                    offset: offset as i64,
                };
            }
            I::DefCfaSf {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset);
                self.row.cfa = Cfa::RegisterOffset { register, offset };
            }
            I::DefCfaRegister { register: new } => match &mut self.row.cfa {
                Cfa::RegisterOffset { register, .. } => *register = new,
                _ => return None,
            },
            I::DefCfaOffset { offset } => self.set_cfa_offset(offset as i64)?,
            I::DefCfaOffsetSf { factored_offset } => {
                self.set_cfa_offset(factored(factored_offset))?;
            }
            I::DefCfaExpression { expression } => self.row.cfa = Cfa::Expression(expression),
            I::Undefined { register } => self.row.save(register, Saved::Undefined),
            I::SameValue { register } => self.row.save(register, Saved::SameValue),
            I::Offset {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset as i64);
                self.row.save(register, Saved::AtCfa(offset));
            }
            I::OffsetExtendedSf {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset);
                self.row.save(register, Saved::AtCfa(offset));
            }
            I::Expression {
                register,
                expression,
            } => {
                self.row.save(register, Saved::At(expression));
            }
            I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::Register {
                dest_register: register,
                ..
            }
            | I::ValExpression { register, .. } => self.row.save(register, Saved::Elsewhere),
            I::Restore { register } => {
                let mut initial = self.initial?;
                if let Some(saved) = initial.column(register) {
                    self.row.save(register, *saved);
                }
            }
            I::RememberState => {
                *self.remembered.get_mut(self.remembered_len)? = self.row;
                self.remembered_len += 1;
            }
            I::RestoreState => {
                self.remembered_len = self.remembered_len.checked_sub(1)?;
                self.row = *self.remembered.get(self.remembered_len)?;
            }
            I::ArgsSize { .. } | I::Nop => {}
            // Of another architecture.
            _ => return None,
        }
        Some(Progress::InRow)
    }

    fn advance_to(&mut self, location: u64, pc: u64) -> Option<Progress> {
        if location < self.location {
            return None;
        }
        self.location = location;
        Some(if location > pc {
            Progress::PastPc
        } else {
            Progress::InRow
        })
    }

    fn set_cfa_offset(&mut self, new: i64) -> Option<()> {
        match &mut self.row.cfa {
            Cfa::RegisterOffset { offset, .. } => *offset = new,
            _ => return None,
        }
        Some(())
    }
}
