//! Addresses as sums of registers and of what memory held, and where these came from.

use std::collections::HashSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Registers, one bit each.
pub(super) type Registers = u16;

/// Pointers that are followed to reach a member: `a->b->c->d`.
pub(super) const DEPTH_MAX: usize = 4;

/// What a sum consists of. Registers have DWARF's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// What a register held; so many of its bytes count.
    Register(u8, u8),
    /// What memory held at an address; so many bytes.
    Loaded(Box<Linear>, u8),
}

/// A sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Linear {
    pub terms: Vec<(i64, Leaf)>,
    pub constant: i64,
}

/// Larger sums are nothing that a name comes of.
const TERMS_MAX: usize = 8;

impl Linear {
    fn constant(constant: i64) -> Linear {
        Linear {
            terms: Vec::new(),
            constant,
        }
    }

    fn leaf(leaf: Leaf) -> Linear {
        Linear {
            terms: vec![(1, leaf)],
            constant: 0,
        }
    }

    /// Adds `other`, so many times.
    fn plus(mut self, other: Linear, times: i64) -> Option<Linear> {
        self.constant = self
            .constant
            .checked_add(other.constant.checked_mul(times)?)?;
        for (coefficient, leaf) in other.terms {
            let coefficient = coefficient.checked_mul(times)?;
            match self.terms.iter_mut().find(|(_, known)| *known == leaf) {
                Some((known, _)) => *known = known.checked_add(coefficient)?,
                None => self.terms.push((coefficient, leaf)),
            }
        }
        self.terms.retain(|(coefficient, _)| *coefficient != 0);
        (self.terms.len() <= TERMS_MAX).then_some(self)
    }

    fn registers(&self) -> Registers {
        self.terms.iter().fold(0, |set, (_, leaf)| {
            set | match leaf {
                Leaf::Register(register, _) => 1 << register,
                Leaf::Loaded(address, _) => address.registers(),
            }
        })
    }

    fn is_loaded(&self) -> bool {
        let is_loaded = |(_, leaf): &(i64, Leaf)| matches!(leaf, Leaf::Loaded(..));
        self.terms.iter().any(is_loaded)
    }

    /// The same, before an instruction has given a register its value.
    fn before(&self, register: u8, written: u8, value: &Linear) -> Option<Linear> {
        let mut sum = Linear::constant(self.constant);
        for (coefficient, leaf) in &self.terms {
            let earlier = match leaf {
                // The lower half of something wider would be another value.
                Leaf::Register(own, width) if *own == register => {
                    (*width >= written).then(|| value.clone())?
                }
                Leaf::Register(..) => Linear::leaf(leaf.clone()),
                Leaf::Loaded(address, width) => {
                    let address = address.before(register, written, value)?;
                    Linear::leaf(Leaf::Loaded(Box::new(address), *width))
                }
            };
            sum = sum.plus(earlier, *coefficient)?;
        }
        Some(sum)
    }
}

/// The instructions of a function, in ascending order.
pub(super) struct Code {
    instructions: Vec<Instruction>,
    /// Where its jumps lead to.
    targets: HashSet<u64>,
    /// It has jumps that may lead anywhere.
    jumps_anywhere: bool,
}

/// Longer functions are not looked at.
const CODE_BYTES_MAX: u64 = 1 << 20;

impl Code {
    /// In ascending order.
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Whether something may jump there.
    pub(super) fn is_target(&self, ip: u64) -> bool {
        self.jumps_anywhere || self.targets.contains(&ip)
    }

    /// Decodes these ranges of addresses one after the other.
    pub(super) fn decode<'data>(
        ranges: &[(u64, u64)],
        bytes: impl Fn(u64, u64) -> Option<&'data [u8]>,
    ) -> Option<Code> {
        let mut code = Code {
            instructions: Vec::new(),
            targets: HashSet::new(),
            jumps_anywhere: false,
        };
        let all = ranges.iter().map(|(start, end)| end.saturating_sub(*start));
        if all.sum::<u64>() > CODE_BYTES_MAX {
            return None;
        }
        for (start, end) in ranges {
            let bytes = bytes(*start, *end)?;
            let decoder = Decoder::with_ip(64, bytes, *start, DecoderOptions::NONE);
            for instruction in decoder {
                if instruction.is_invalid() {
                    return None;
                }
                match instruction.flow_control() {
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                        code.targets.insert(instruction.near_branch_target());
                    }
                    FlowControl::IndirectBranch
                    | FlowControl::XbeginXabortXend
                    | FlowControl::Exception => {
                        // `ud2` goes nowhere.
                        code.jumps_anywhere |= instruction.mnemonic() != Mnemonic::Ud2;
                    }
                    _ => {}
                }
                code.instructions.push(instruction);
            }
        }
        code.instructions
            .sort_by_key(|instruction| instruction.ip());
        Some(code)
    }
}

/// An address, seen from further and further back.
pub(super) struct Walk<'c> {
    code: &'c Code,
    at: usize,
    address: Linear,
    changed: Registers,
    info: InstructionInfoFactory,
}

impl<'c> Walk<'c> {
    /// The one memory operand of the instruction at `pc`, and its size.
    pub(super) fn begin(code: &'c Code, pc: u64) -> Option<(Walk<'c>, u64)> {
        let found = code
            .instructions
            .binary_search_by_key(&pc, |instruction| instruction.ip());
        let at = found.ok()?;
        let instruction = &code.instructions[at];
        let operands = (0..instruction.op_count()).map(|number| instruction.op_kind(number));
        let plain = operands.filter(|kind| *kind == OpKind::Memory).count() == 1;
        let size = instruction.memory_size().size() as u64;
        if !plain || size == 0 || instruction.has_op_mask() || instruction.is_broadcast() {
            return None;
        }
        let address = address_of(instruction)?;
        let walk = Walk {
            code,
            at,
            address,
            changed: 0,
            info: InstructionInfoFactory::new(),
        };
        Some((walk, size))
    }

    /// In terms of what registers and memory held where the walk is.
    pub(super) fn address(&self) -> &Linear {
        &self.address
    }

    /// The registers that hold something else since.
    pub(super) fn changed(&self) -> Registers {
        self.changed
    }

    /// Before which instruction that is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Goes back by one instruction. False if that cannot be done for certain.
    pub(super) fn back(&mut self) -> bool {
        self.go_back().is_some()
    }

    fn go_back(&mut self) -> Option<()> {
        let here = self.code.instructions[self.at].ip();
        if self.code.is_target(here) {
            return None;
        }
        let before = self.code.instructions[..self.at].last()?;
        let goes_on = matches!(
            before.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        if before.next_ip() != here || !goes_on {
            return None;
        }
        let info = self.info.info(before);
        let writes = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let memory = info.used_memory().iter();
        if self.address.is_loaded() && memory.into_iter().any(|used| writes(used.access())) {
            return None;
        }
        let registers = info.used_registers().iter();
        let written = registers
            .filter(|used| writes(used.access()))
            .filter_map(|used| number(used.register()))
            .fold(0, |set, register| set | 1 << register);
        if written & self.address.registers() != 0 {
            let to = match before.mnemonic() {
                Mnemonic::Cdqe => Register::RAX,
                _ => before.op0_register(),
            };
            let (register, width) = whole(to)?;
            if written != 1 << register {
                return None;
            }
            self.address = self
                .address
                .before(register, width, &value_of(before)?)
                .filter(|sum| sum.depth() <= DEPTH_MAX)?;
        }
        self.changed |= written;
        self.at -= 1;
        Some(())
    }
}

impl Linear {
    fn depth(&self) -> usize {
        let of = |(_, leaf): &(i64, Leaf)| match leaf {
            Leaf::Register(..) => 0,
            Leaf::Loaded(address, _) => address.depth() + 1,
        };
        self.terms.iter().map(of).max().unwrap_or(0)
    }
}

/// What an instruction gives its register.
fn value_of(instruction: &Instruction) -> Option<Linear> {
    let operand = |number| operand(instruction, number);
    let immediate = |number| operand(number).filter(|sum| sum.terms.is_empty());
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movsxd => operand(1),
        // Of registers, only a part counts here, which is not a variable for certain.
        Mnemonic::Movzx | Mnemonic::Movsx if instruction.op1_kind() == OpKind::Memory => operand(1),
        Mnemonic::Cdqe => Some(Linear::leaf(Leaf::Register(0, 4))),
        Mnemonic::Lea => address_of(instruction),
        Mnemonic::Add => operand(0)?.plus(operand(1)?, 1),
        Mnemonic::Sub => operand(0)?.plus(operand(1)?, -1),
        Mnemonic::Shl => {
            let bits = u32::try_from(immediate(1)?.constant).ok()?;
            let times = 1_i64.checked_shl(bits).filter(|times| *times > 0)?;
            Linear::default().plus(operand(0)?, times)
        }
        Mnemonic::Imul if instruction.op_count() == 3 => {
            Linear::default().plus(operand(1)?, immediate(2)?.constant)
        }
        _ => None,
    }
}

fn operand(instruction: &Instruction, number: u32) -> Option<Linear> {
    match instruction.op_kind(number) {
        OpKind::Register => {
            let (register, width) = whole(instruction.op_register(number))?;
            Some(Linear::leaf(Leaf::Register(register, width)))
        }
        OpKind::Memory => {
            let size = u8::try_from(instruction.memory_size().size()).ok()?;
            let address = address_of(instruction)?;
            Some(Linear::leaf(Leaf::Loaded(Box::new(address), size)))
        }
        OpKind::Immediate8
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32
        | OpKind::Immediate32to64 => {
            let value = instruction.immediate(number) as i64;
            // Of an operation on 32 bits, `-1` is 4294967295 here.
            Some(Linear::constant(match instruction.op_kind(number) {
                OpKind::Immediate8to32 | OpKind::Immediate32 => i64::from(value as i32),
                _ => value,
            }))
        }
        _ => None,
    }
}

fn address_of(instruction: &Instruction) -> Option<Linear> {
    if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
        return None;
    }
    let mut sum = Linear::constant(instruction.memory_displacement64() as i64);
    let parts = [
        (instruction.memory_base(), 1),
        (
            instruction.memory_index(),
            i64::from(instruction.memory_index_scale()),
        ),
    ];
    for (register, times) in parts {
        // The displacement of an address that is relative to the instruction is the address.
        if !matches!(register, Register::None | Register::RIP) {
            let (register, 8) = whole(register)? else {
                return None;
            };
            sum = sum.plus(Linear::leaf(Leaf::Register(register, 8)), times)?;
        }
    }
    Some(sum)
}

/// The number of a general register, if all of it or its lower half is meant, and the width of
/// that.
pub(super) fn whole(register: Register) -> Option<(u8, u8)> {
    let width = match register {
        _ if register.is_gpr64() => 8,
        _ if register.is_gpr32() => 4,
        _ => return None,
    };
    Some((number(register)?, width))
}

/// The number that DWARF has for a general register, or the one that a part belongs to.
fn number(register: Register) -> Option<u8> {
    const NUMBERS: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let full = register.full_register();
    full.is_gpr64()
        .then(|| NUMBERS[full as usize - Register::RAX as usize])
}
