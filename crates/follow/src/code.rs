//! Blocks of code, decoded and analysed once.

use brownout_flow::{Analyzer, Flow, MemoryOperand, Op, Place, Span, Summary};
use brownout_insn::{Repeat, StateTransfer};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// One instruction, as far as data flow is concerned.
pub struct Step {
    /// Its address.
    pub pc: u64,
    /// What is done once, before any repetition.
    pub opening: Box<[Op]>,
    /// What is done for each repetition, or once.
    pub body: Box<[Op]>,
    /// Its memory operands.
    pub memory: Box<[MemoryOperand]>,
    /// How often.
    pub repeat: Repeat,
    /// It saves or restores processor state.
    pub state: Option<StateTransfer>,
    /// What it touches.
    pub summary: Summary,
    /// Its operand is relative to `fs`.
    pub in_fs: bool,
    /// Its string operands are at 32-bit addresses.
    pub narrow: bool,
    /// It looks for the first bit that is set in this register; what it holds is told.
    pub first_bit_of: Option<Span>,
    /// Nothing is known of it but which registers it writes.
    pub unknown: Option<Box<[Span]>>,
}

/// A block.
pub struct Block {
    /// The address behind it.
    pub end: u64,
    /// Its instructions.
    pub steps: Vec<Step>,
    /// One of them is not known.
    pub has_unknown: bool,
}

impl Block {
    /// The step at `pc`; the number of all steps if that is the end of the block.
    pub fn step_at(&self, pc: u64) -> Option<usize> {
        // Words have 48 bits of an address.
        match self.steps.binary_search_by_key(&pc, |step| step.pc) {
            Ok(step) => Some(step),
            Err(_) if pc == self.end => Some(self.steps.len()),
            Err(_) => None,
        }
    }
}

/// Makes blocks.
pub struct Reader {
    analyzer: Analyzer,
    flow: Box<Flow>,
    info: InstructionInfoFactory,
}

impl Reader {
    pub fn new() -> Reader {
        Reader {
            analyzer: Analyzer::new(),
            flow: Box::new(Flow::new()),
            info: InstructionInfoFactory::new(),
        }
    }

    /// The block at `pc` with this code; `steps` are the lengths of its steps.
    pub fn block(&mut self, pc: u64, steps: &[u8], code: &[u8]) -> Block {
        let mut at = 0;
        let mut block = Block {
            end: pc.wrapping_add(code.len() as u64),
            steps: Vec::with_capacity(steps.len()),
            has_unknown: false,
        };
        for len in steps {
            let rest = code.get(at..).unwrap_or(&[]);
            let here = pc.wrapping_add(at as u64);
            let mut insn = Decoder::with_ip(64, rest, here, DecoderOptions::NONE).decode();
            if insn.is_invalid() {
                let options = DecoderOptions::NO_INVALID_CHECK;
                insn = Decoder::with_ip(64, rest, here, options).decode();
            }
            block.steps.push(self.step(&insn, here));
            at += usize::from(*len);
        }
        block.has_unknown = block.steps.iter().any(|step| step.unknown.is_some());
        block
    }

    fn step(&mut self, insn: &Instruction, pc: u64) -> Step {
        let known = !insn.is_invalid() && self.analyzer.analyze(insn, &mut self.flow).is_ok();
        let is_narrow = |kind: OpKind| {
            matches!(
                kind,
                OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI
            )
        };
        let mut step = Step {
            pc,
            opening: Box::new([]),
            body: Box::new([]),
            memory: Box::new([]),
            repeat: Repeat::Once,
            state: None,
            summary: Summary::default(),
            in_fs: insn.memory_segment() == Register::FS,
            narrow: insn.op_kinds().any(is_narrow),
            first_bit_of: match insn.mnemonic() {
                Mnemonic::Tzcnt | Mnemonic::Bsf if insn.op1_kind() == OpKind::Register => {
                    Place::of_register(insn.op1_register())
                }
                _ => None,
            },
            unknown: None,
        };
        if known {
            step.opening = self.flow.opening().into();
            step.body = self.flow.body().into();
            step.memory = self.flow.memory().into();
            step.repeat = self.flow.repeat();
            step.state = self.flow.state();
            step.summary = *self.flow.summary();
        } else {
            step.unknown = Some(self.written(insn));
        }
        step
    }

    /// The registers that an instruction writes.
    fn written(&mut self, insn: &Instruction) -> Box<[Span]> {
        if insn.is_invalid() {
            return Box::new([]);
        }
        let used = self.info.info(insn).used_registers();
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        used.iter()
            .filter(|used| writes(used.access()))
            .filter_map(|used| Place::of_register(used.register()))
            .collect()
    }
}
