//! How this crate sees the target: which addresses are PM, and what is at them.

/// Which addresses are tracked PM, and where their alias is.
///
/// The answer may change only at page borders, and not between [`prepare`](crate::prepare) and
/// [`finish`](crate::finish) of one call for the memory that this call uses.
pub trait Translate {
    /// The alias of `addr` if it is in tracked PM.
    fn alias_of(&self, addr: u64) -> Option<u64>;

    /// How far from `addr` on, at most `len` bytes, the answer stays the same: no PM, or PM whose
    /// alias is at the same distance.
    ///
    /// The default asks page by page; an engine that keeps a list of mappings can do better for
    /// long ranges.
    #[inline]
    fn run(&self, addr: u64, len: u64) -> Run {
        let alias = self.alias_of(addr);
        let distance = alias.map(|alias| alias.wrapping_sub(addr));
        let end = addr.saturating_add(len);
        let mut at = addr;
        loop {
            at = (at | (PAGE - 1)).saturating_add(1);
            if at >= end {
                return Run { alias, len };
            }
            if self.alias_of(at).map(|alias| alias.wrapping_sub(at)) != distance {
                return Run {
                    alias,
                    len: at - addr,
                };
            }
        }
    }

    /// The program's address of an alias address: the reverse of `alias_of`. The kernel hands
    /// `iocb` addresses back to the program.
    fn program_of(&self, alias: u64) -> Option<u64> {
        let _ = alias;
        None
    }

    /// Whether `pid` names this very process, so that `process_vm_readv` reads our own PM.
    fn is_self(&self, pid: i32) -> bool {
        let _ = pid;
        false
    }
}

const PAGE: u64 = 4096;

/// A stretch of memory that is PM as a whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The alias of its first byte, if it is PM.
    pub alias: Option<u64>,
    /// Its length, at most what was asked for.
    pub len: u64,
}

/// The target's memory.
///
/// Addresses are real ones: aliases where the program's own address is PM. Any of them may be bad,
/// which must be answered by `false`, not by a fault; a part may have been copied then.
pub trait Memory {
    /// Copies from the target.
    fn read(&self, addr: u64, to: &mut [u8]) -> bool;
    /// Copies to the target.
    fn write(&self, addr: u64, from: &[u8]) -> bool;
}

/// The target's memory as the program addresses it.
pub(crate) struct View<'a, T, M> {
    pub(crate) t: &'a T,
    pub(crate) m: &'a M,
}

impl<T: Translate, M: Memory> View<'_, T, M> {
    pub(crate) fn read(&self, mut addr: u64, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            let run = self.t.run(addr, to.len() as u64);
            let (now, later) = to.split_at_mut(run.len as usize);
            if !self.m.read(run.alias.unwrap_or(addr), now) {
                return false;
            }
            addr = addr.wrapping_add(run.len);
            to = later;
        }
        true
    }

    pub(crate) fn write(&self, mut addr: u64, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let run = self.t.run(addr, from.len() as u64);
            let (now, later) = from.split_at(run.len as usize);
            if !self.m.write(run.alias.unwrap_or(addr), now) {
                return false;
            }
            addr = addr.wrapping_add(run.len);
            from = later;
        }
        true
    }

    pub(crate) fn read_u32(&self, addr: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }

    pub(crate) fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// How long the string at `addr` is, its NUL included; `max` if it is longer than that, none
    /// if it runs into memory that cannot be read.
    pub(crate) fn string_len(&self, addr: u64, max: u64) -> Option<u64> {
        let mut chunk = [0; 256];
        let mut len = 0;
        while len < max {
            let at = addr.wrapping_add(len);
            // Not past the page: the next one may be missing without the string minding.
            let take = (PAGE - at % PAGE).min(max - len).min(chunk.len() as u64);
            let bytes = &mut chunk[..take as usize];
            if !self.read(at, bytes) {
                return None;
            }
            if let Some(nul) = bytes.iter().position(|byte| *byte == 0) {
                return Some(len + nul as u64 + 1);
            }
            len += take;
        }
        Some(max)
    }

    /// Calls `f` for the parts of a range that are PM.
    pub(crate) fn pm_parts(&self, mut addr: u64, mut len: u64, f: &mut dyn FnMut(u64, u64)) {
        while len > 0 {
            let run = self.t.run(addr, len);
            if run.alias.is_some() {
                f(addr, run.len);
            }
            addr = addr.wrapping_add(run.len);
            len -= run.len;
        }
    }

    pub(crate) fn touches_pm(&self, addr: u64, len: u64) -> bool {
        if len == 0 {
            return false;
        }
        let run = self.t.run(addr, len);
        run.alias.is_some() || run.len < len
    }
}
