//! Which slots of a call frame hold the same, in code that is not optimised.
//!
//! **Purpose.** A compiler that does not optimise may put a parameter twice into the frame: once
//! where debug information says that it is, and once where its own code takes it from. Rust does.
//! Then what the code loads is no variable's home. And where it takes a parameter from its
//! register, debug information still says that it is in the frame.
//!
//! **Guarantee.** Two slots are called copies only if they are given the same register right
//! behind each other, without a call, a jump, a place to jump to or another value of the register
//! between, and if nothing else in the function writes to either; and a register a copy only where
//! it is put into the home, if nothing else is. The slot that is read lies below
//! everything whose address the function takes, so that nobody else can write to it; the address of
//! the home itself is never taken. The stack pointer stays where the prologue has put it.

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::address::{Code, whole};

/// How far behind each other two copies are made.
const APART_MAX: usize = 16;

/// A slot, by its distance from the stack pointer.
type Slot = i64;

/// What a function does with its frame.
pub(super) struct Frame<'c> {
    code: &'c Code,
    /// The lowest address in the frame that the function takes.
    taken: Option<Slot>,
    /// All of them.
    all_taken: Vec<Slot>,
    /// Slots and how many bytes each access has; whether it writes; the instruction.
    accesses: Vec<(Slot, i64, bool, usize)>,
}

fn writes(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

impl<'c> Frame<'c> {
    /// None if the stack pointer moves after the prologue, or anything may be anywhere.
    pub(super) fn of(code: &'c Code) -> Option<Frame<'c>> {
        let mut frame = Frame {
            code,
            taken: None,
            all_taken: Vec::new(),
            accesses: Vec::new(),
        };
        let mut factory = InstructionInfoFactory::new();
        let mut is_laid_out = false;
        let mut is_leaving = false;
        let is_end = |mnemonic| matches!(mnemonic, Mnemonic::Pop | Mnemonic::Ret);
        for (at, instruction) in code.instructions().iter().enumerate() {
            let info = factory.info(instruction);
            let moves = info.used_registers().iter().any(|used| {
                used.register().full_register() == Register::RSP && writes(used.access())
            });
            let is_call = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            match instruction.mnemonic() {
                // Its end: nothing but registers that are put back.
                mnemonic if is_leaving && !is_end(mnemonic) => return None,
                Mnemonic::Ret => is_leaving = false,
                _ if is_call || !moves => is_laid_out = true,
                Mnemonic::Push if !is_laid_out => {}
                Mnemonic::Sub if !is_laid_out => is_laid_out = true,
                Mnemonic::Add | Mnemonic::Pop => is_leaving = true,
                _ => return None,
            }
            if instruction.mnemonic() == Mnemonic::Lea {
                if [instruction.memory_base(), instruction.memory_index()].contains(&Register::RSP)
                {
                    let slot = instruction.memory_displacement64() as i64;
                    frame.all_taken.push(slot);
                    frame.taken = Some(frame.taken.map_or(slot, |lowest| lowest.min(slot)));
                }
                continue;
            }
            // Its value somewhere else is an address, too.
            let is_copied = (0..instruction.op_count()).any(|number| {
                instruction.op_kind(number) == OpKind::Register
                    && instruction.op_register(number).full_register() == Register::RSP
            });
            if is_copied && !moves {
                return None;
            }
            if is_call || matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop) {
                continue;
            }
            for used in info.used_memory() {
                if used.base() != Register::RSP {
                    continue;
                }
                if used.index() != Register::None {
                    return None;
                }
                let size = i64::try_from(used.memory_size().size()).ok()?;
                let slot = used.displacement() as i64;
                let access = (slot, size, writes(used.access()), at);
                frame.accesses.push(access);
            }
        }
        Some(frame)
    }

    /// The instruction that alone writes to a slot of so many bytes, if all else reads just these.
    fn one_store(&self, slot: Slot, width: i64) -> Option<usize> {
        let mut store = None;
        for (other, size, is_write, at) in &self.accesses {
            if *other >= slot + width || slot >= other + size {
                continue;
            }
            if *is_write {
                if store.is_some() || (*other, *size) != (slot, width) {
                    return None;
                }
                store = Some(*at);
            }
        }
        let store = store?;
        let instruction = &self.code.instructions()[store];
        let is_plain = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register().size() as i64 == width;
        is_plain.then_some(store)
    }

    /// Whether the `at`th instruction puts a register into `home`, which gets nothing else.
    pub(super) fn is_put(&self, at: usize, register: u8, width: u8, home: Slot) -> bool {
        let instruction = &self.code.instructions()[at];
        !self.all_taken.contains(&home)
            && self.one_store(home, width.into()) == Some(at)
            && whole(instruction.op1_register()) == Some((register, width))
    }

    /// Whether what lies in the slot `read` is what lies in `home`, so many bytes of both.
    pub(super) fn are_copies(&self, read: Slot, home: Slot, width: i64) -> bool {
        let is_safe = self.taken.is_none_or(|lowest| read + width <= lowest);
        if !is_safe || self.all_taken.contains(&home) || read == home {
            return false;
        }
        let stores = (self.one_store(read, width), self.one_store(home, width));
        let (Some(one), Some(other)) = stores else {
            return false;
        };
        let (first, last) = (one.min(other), one.max(other));
        let between = &self.code.instructions()[first..=last];
        let register = between[0].op1_register();
        if last - first > APART_MAX || between[between.len() - 1].op1_register() != register {
            return false;
        }
        let mut factory = InstructionInfoFactory::new();
        between.iter().enumerate().all(|(at, instruction)| {
            let follows = at == 0 || !self.code.is_target(instruction.ip());
            let goes_on =
                at == between.len() - 1 || instruction.flow_control() == FlowControl::Next;
            let info = factory.info(instruction);
            let keeps = !info.used_registers().iter().any(|used| {
                used.register().full_register() == register.full_register() && writes(used.access())
            });
            follows && goes_on && keeps
        })
    }
}
