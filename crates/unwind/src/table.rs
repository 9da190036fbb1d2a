//! From a program counter to its rule, over `.eh_frame_hdr` and `.eh_frame` as byte slices.
//!
//! Entirely safe code: [`crate::image`] turns a mapped image into the slices, and tests bring their
//! own.

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

    /// Whether `.eh_frame_hdr` has a table to search in.
    pub fn is_indexed(&self) -> bool {
        Index::parse(self.hdr).is_some()
    }

    /// Where `.eh_frame` begins in the content of a segment, as far as that can be told without
    /// section headers.
    ///
    /// What every compiler writes at the beginning of a common entry (CIE) for x86-64 is looked
    /// for: a version, an augmentation that begins with `z`, alignment factors 1 and -8, and column
    /// 16 for the return address. That is eleven bytes which hardly stand together by chance. If
    /// they do, the entries that follow make no sense, and the search goes on.
    pub fn find_in(segment: &[u8]) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = next_common_entry(segment, from)?;
            let first = segment.get(at..).and_then(entry_bytes)?;
            // The entry of a function that refers to it follows at once.
            let next = at + first;
            let refers_back = segment.get(next + 4..).and_then(|rest| {
                Some(u32::from_le_bytes(*rest.first_chunk()?) as usize == next + 4 - at)
            });
            if refers_back == Some(true) {
                return Some(at);
            }
            from = at + 4;
        }
    }

    /// Calls `visit` with the first address, the end and the address of each function's entry. What
    /// is not an entry is skipped: the end of the section is known only where the linker has
    /// written a terminator.
    pub fn each_entry(&self, mut visit: impl FnMut(u64, u64, u64)) {
        let mut section = EhFrame::new(self.eh_frame, LittleEndian);
        section.set_address_size(ADDRESS_BYTES);
        let bases = BaseAddresses::default().set_eh_frame(self.eh_frame_addr);
        let mut at = 0;
        while let Some(rest) = self.eh_frame.get(at..)
            && !rest.is_empty()
        {
            let id = rest.get(4..).and_then(|rest| rest.first_chunk());
            let bytes = entry_bytes(rest);
            let (Some(id), Some(bytes)) = (id, bytes) else {
                match next_common_entry(self.eh_frame, at + 4) {
                    Some(next) => at = next,
                    None => return,
                }
                continue;
            };
            if u32::from_le_bytes(*id) != 0
                && let Ok(fde) =
                    section.fde_from_offset(&bases, at.into(), EhFrame::cie_from_offset)
            {
                let start = fde.initial_address();
                let end = start.saturating_add(fde.len());
                visit(start, end, self.eh_frame_addr + at as u64);
            }
            at += bytes;
        }
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
            // The linker wrote no table, or one in an encoding that no known linker writes: slow
            // but right.
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

/// The bytes of the entry at the beginning of `rest`, its length field included. None for a
/// terminator and for what cannot be one: entries of 4 GiB do not exist.
fn entry_bytes(rest: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    let bytes = length as usize + 4;
    ((8..0xffff_fff0).contains(&length) && bytes <= rest.len()).then_some(bytes)
}

/// The next place that looks like a common entry. The section is aligned, and so are its entries.
fn next_common_entry(content: &[u8], from: usize) -> Option<usize> {
    let looks_like_one = |at: &usize| {
        let rest = &content[*at..];
        let Some(bytes) = entry_bytes(rest) else {
            return false;
        };
        let Some([0, 0, 0, 0, 1 | 3, b'z', augmentation @ ..]) = rest.get(4..bytes.min(64)) else {
            return false;
        };
        let Some(end) = augmentation.iter().position(|letter| *letter == 0) else {
            return false;
        };
        augmentation[..end]
            .iter()
            .all(|letter| b"RPLSB".contains(letter))
            && augmentation[end + 1..].starts_with(&[1, 0x78, 16])
    };
    let from = from.next_multiple_of(4);
    (from..content.len().saturating_sub(15))
        .step_by(4)
        .find(looks_like_one)
}

/// How many bytes an index of so many functions takes.
pub const fn index_bytes(functions: usize) -> usize {
    INDEX_HEAD_BYTES + 16 * functions
}

/// Version and encodings, where `.eh_frame` is (not needed), number of rows.
const INDEX_HEAD_BYTES: usize = 16;

/// Writes what a linker would have written into `.eh_frame_hdr`: a table of (first address, address
/// of the entry), which must be sorted by the first. `index` has [`index_bytes`] and stays where it
/// is. None if it has another size.
pub fn encode_index(functions: &[(u64, u64)], index: &mut [u8]) -> Option<()> {
    if index.len() != index_bytes(functions.len()) {
        return None;
    }
    let base = index.as_ptr().addr() as u64;
    let (head, rows) = index.split_at_mut(INDEX_HEAD_BYTES);
    // `.eh_frame` as an address, four bytes of count, rows relative to the index in eight bytes a
    // field.
    head[..4].copy_from_slice(&[
        1,
        gimli::DW_EH_PE_absptr.0,
        gimli::DW_EH_PE_udata4.0,
        gimli::DW_EH_PE_datarel.0 | gimli::DW_EH_PE_sdata8.0,
    ]);
    head[4..12].fill(0);
    head[12..].copy_from_slice(&u32::try_from(functions.len()).ok()?.to_le_bytes());
    for (row, (start, entry)) in rows.chunks_exact_mut(16).zip(functions) {
        row[..8].copy_from_slice(&start.wrapping_sub(base).to_le_bytes());
        row[8..].copy_from_slice(&entry.wrapping_sub(base).to_le_bytes());
    }
    Some(())
}

/// The sorted table in `.eh_frame_hdr`: pairs of (first address of a function, address of its
/// entry), both relative to the header.
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
            // The location of initial instructions is not defined; compilers write none that move
            // it.
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
