//! What a row means, by gimli's own execution of the instructions and evaluation of the
//! expressions, on concrete registers and a memory in which every word differs.

use brownout_unwind::{Cursor, FrameRule, Memory, Stop, step_with_registers};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, EvaluationResult, FrameDescriptionEntry,
    LittleEndian, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression,
    UnwindTableRow, Value, X86_64,
};

pub type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// Storage that no real row exceeds.
pub struct Roomy;

impl UnwindContextStorage<usize> for Roomy {
    type Rules = [(gimli::Register, RegisterRule<usize>); 64];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

pub type Context = UnwindContext<usize, Roomy>;
pub type Row = UnwindTableRow<usize, Roomy>;

/// Every aligned or unaligned word has its own value (splitmix64 of its address), never zero.
pub struct HashMemory;

impl Memory for HashMemory {
    fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut z = addr.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((z ^ (z >> 31)) | 1)
    }
}

fn word(addr: u64) -> u64 {
    HashMemory.read_u64(addr).unwrap()
}

const RSP: u64 = 0x7ffd_0000_1000;
const RBP: u64 = 0x7ffd_0000_5550;

/// The value of a register by DWARF number.
fn register(number: u16, pc: u64) -> u64 {
    match gimli::Register(number) {
        X86_64::RSP => RSP,
        X86_64::RBP => RBP,
        X86_64::RA => pc,
        _ => 0x1111_0000_0000 * (u64::from(number) + 1),
    }
}

/// The caller's registers.
#[derive(Debug, PartialEq, Eq)]
pub enum Caller {
    Outermost,
    Frame {
        rsp: u64,
        /// None: the rule says that it is nowhere, or nothing that can be computed.
        rbp: Option<u64>,
        /// None as above.
        slot: Option<u64>,
    },
    /// The row has no CFA.
    Nothing,
}

pub struct Oracle<'a, 'b> {
    pub section: &'b EhFrame<Slice<'a>>,
    pub fde: &'b Fde<'a>,
}

impl Oracle<'_, '_> {
    pub fn caller(&self, row: &Row, pc: u64) -> Caller {
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Caller::Outermost;
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset {
                register: number,
                offset,
            } => register(number.0, pc).wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => match self.evaluate(*expression, pc, None) {
                Some(cfa) => cfa,
                None => return Caller::Nothing,
            },
        };
        let address = |rule: Option<RegisterRule<usize>>| match rule? {
            RegisterRule::Offset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Expression(expression) => self.evaluate(expression, pc, Some(cfa)),
            _ => None,
        };
        let rbp = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => Some(RBP),
            rule => address(rule).map(word),
        };
        Caller::Frame {
            rsp: cfa,
            rbp,
            slot: address(row.register(X86_64::RA)),
        }
    }

    fn evaluate(
        &self,
        expression: UnwindExpression<usize>,
        pc: u64,
        initial: Option<u64>,
    ) -> Option<u64> {
        let expression = expression.get(self.section).ok()?;
        let mut evaluation = expression.evaluation(self.fde.cie().encoding());
        evaluation.set_max_iterations(100);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister {
                    register: number,
                    base_type,
                } => {
                    if base_type.0 != 0 || number.0 > 16 {
                        return None;
                    }
                    let value = Value::Generic(register(number.0, pc));
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory {
                    address,
                    size: 8,
                    space: None,
                    base_type,
                } if base_type.0 == 0 => evaluation
                    .resume_with_memory(Value::Generic(word(address)))
                    .ok()?,
                _ => return None,
            };
        }
        let result = evaluation.as_result();
        match result {
            [
                gimli::Piece {
                    location: gimli::Location::Address { address },
                    ..
                },
            ] => Some(*address),
            _ => None,
        }
    }
}

/// What this crate makes of a rule on the same registers and memory: None if it gives none.
pub fn ours(rule: FrameRule, pc: u64) -> Option<Caller> {
    let mut cursor = Cursor::innermost(pc, RSP, RBP);
    let registers =
        |number: brownout_unwind::Register| Some(register(u16::from(number.dwarf()), pc));
    match step_with_registers(rule, &mut cursor, &HashMemory, registers) {
        Ok(step) => {
            assert_eq!(step.return_addr, word(step.slot));
            assert_eq!(step.return_addr, cursor.pc);
            Some(Caller::Frame {
                rsp: cursor.rsp,
                rbp: cursor.rbp,
                slot: Some(step.slot),
            })
        }
        Err(Stop::Outermost) => Some(Caller::Outermost),
        Err(_) => None,
    }
}

pub fn section(eh_frame: &[u8]) -> EhFrame<Slice<'_>> {
    let mut section = EhFrame::new(eh_frame, LittleEndian);
    section.set_address_size(8);
    section
}

pub fn bases(eh_frame_addr: u64) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame(eh_frame_addr)
}
