//! Where frames of the program lie: unwind tables of its modules, and the rules that were compiled
//! from them.

use crate::address::{ProgramAddr, Reach};
use crate::copy::read_memory;
use crate::hash::PcHash;
use crate::sync::SpinLock;
use alloc::vec::Vec;
use brownout_abi::learned;
use brownout_unwind::{CodeMapping, FrameRule, LookupPc, Memory, Module, PcKind, RbpRule};
use hashbrown::HashMap;

/// All that is known of the program's stacks, behind one lock.
pub struct Tables {
    pub modules: Vec<Module>,
    /// Ranges with no unwind tables, so as not to look again and again.
    pub bare: Vec<(u64, u64)>,
    pub rules: HashMap<u64, FrameRule, PcHash>,
    /// (parent context, return address) to context.
    pub contexts: HashMap<(u32, u64), u32, PcHash>,
    /// Code that the stream knows as part of a file: (start, end).
    pub announced: Vec<(u64, u64)>,
}

pub static TABLES: SpinLock<Tables> = SpinLock::new(Tables {
    modules: Vec::new(),
    bare: Vec::new(),
    rules: HashMap::with_hasher(PcHash),
    contexts: HashMap::with_hasher(PcHash),
    announced: Vec::new(),
});

impl Tables {
    pub fn module(&mut self, pc: LookupPc) -> Option<Module> {
        if let Some(m) = self.modules.iter().find(|m| m.contains(pc)) {
            return Some(*m);
        }
        let addr = pc.get();
        if self.bare.iter().any(|b| b.0 <= addr && addr < b.1) {
            return None;
        }
        let maps = crate::maps::read();
        let here = maps.iter().find(|m| m.start <= addr && addr < m.end)?;
        let found = if here.path.is_empty() {
            None
        } else {
            // The file's header says what the image looks like, wherever it is mapped; the mapping
            // of `addr` says where it is.
            let code = CodeMapping {
                start: here.start,
                offset: here.offset,
            };
            maps.iter()
                .filter(|m| m.path == here.path && m.offset == 0 && m.read)
                .find_map(|m| {
                    // SAFETY: the header is mapped and readable, and so are the image's tables;
                    // `code_unmapped` drops the module before that changes.
                    unsafe {
                        brownout_unwind::module_from_image(m.start, m.end - m.start, code, pc)
                    }
                })
                .filter(|m| m.contains(pc))
        };
        match found {
            Some(m) => {
                let m = indexed(m);
                self.modules.push(m);
                Some(m)
            }
            None => {
                self.bare.push((here.start, here.end));
                None
            }
        }
    }

    pub fn rule(&mut self, pc: LookupPc, kind: PcKind, exact: u64) -> FrameRule {
        if let Some(r) = self.rules.get(&pc.get()) {
            return *r;
        }
        let mut rule = match self.module(pc) {
            Some(m) => brownout_unwind::rule_for(&m, pc),
            None => FrameRule::Unknown,
        };
        if matches!(rule, FrameRule::Unknown) {
            let mut code = [0u8; brownout_unwind::RULE_CODE_BYTES_MAX];
            // Code in tracked memory counts as unknown where loads are recorded. (Whoever forks
            // locks the regions before these tables.)
            if read_memory(Reach::untracked(exact), &mut code) {
                rule = brownout_unwind::rule_from_code(&code, kind);
            }
        }
        if matches!(rule, FrameRule::Unknown) && kind == PcKind::Exact && !is_code(exact) {
            // A call through a bad pointer: nothing has been pushed since.
            rule = FrameRule::Rsp {
                cfa_offset: 8,
                rbp: RbpRule::Unchanged,
            };
        }
        self.rules.insert(pc.get(), rule);
        crate::learned::found(learned::FRAME | pc.get(), exact);
        rule
    }

    /// A run has looked this up. What its module says is the same here, and in all runs.
    fn learn(&mut self, exact: u64, kind: PcKind) {
        let pc = LookupPc::new(exact, kind);
        if self.rules.contains_key(&pc.get()) {
            return;
        }
        let Some(module) = self.module(pc) else {
            return;
        };
        let rule = brownout_unwind::rule_for(&module, pc);
        if !matches!(rule, FrameRule::Unknown) {
            self.rules.insert(pc.get(), rule);
        }
    }
}

/// Does what a run has done: `pc` is what it has looked up, for the address `exact`.
pub fn learn(pc: u64, exact: u64) {
    let kind = match pc == exact {
        true => PcKind::Exact,
        false => PcKind::ReturnAddress,
    };
    TABLES.lock().learn(exact, kind);
}

/// The module with an index. Linkers write one unless the program is linked statically; then it is
/// made once, and stays: such a program's own code is never unmapped.
fn indexed(module: Module) -> Module {
    if module.is_indexed() {
        return module;
    }
    let mut functions = Vec::new();
    module.each_entry(|start, entry| functions.push((start, entry)));
    functions.sort_unstable();
    let index = alloc::vec![0; brownout_unwind::index_bytes(functions.len())].leak();
    match brownout_unwind::encode_index(&functions, index) {
        Some(()) => module.with_index(index),
        None => module,
    }
}

fn is_code(addr: u64) -> bool {
    crate::maps::read()
        .iter()
        .any(|m| m.exec && m.start <= addr && addr < m.end)
}

/// The program's stack; a bad address is no fault.
pub struct Stack;

impl Memory for Stack {
    fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut v = 0u64;
        // SAFETY: our own variable.
        unsafe { crate::copy::copy_program(&mut v as *mut u64 as u64, addr, 8) }.then_some(v)
    }
}

/// Where the frame of code at `pc` is: (offset, from rbp instead of rsp).
pub fn frame_of(pc: ProgramAddr) -> (i32, bool) {
    let pc = pc.get();
    let lookup = LookupPc::new(pc, PcKind::Exact);
    match TABLES.lock().rule(lookup, PcKind::Exact, pc) {
        FrameRule::Rsp { cfa_offset, .. } => (cfa_offset, false),
        FrameRule::Rbp { cfa_offset, .. } => (cfa_offset, true),
        // Whatever the frame is, rsp identifies it well enough as a cache key.
        _ => (8, false),
    }
}

impl Tables {
    pub fn forget(&mut self, start: u64, end: u64) {
        self.modules
            .retain(|m| m.end() <= start || m.start() >= end);
        self.bare.retain(|b| b.1 <= start || b.0 >= end);
        self.rules.retain(|pc, _| *pc < start || *pc >= end);
    }
}

/// What keeps others out of the table.
pub struct Lock {
    _held: crate::sync::Guard<'static, Tables>,
}

/// Keeps others out: for a fork.
pub fn lock() -> Lock {
    Lock {
        _held: TABLES.lock(),
    }
}
