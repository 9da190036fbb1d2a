//! Which code is the program's own.
//!
//! A branch of the C library that no run has taken is rarely what somebody searches for; one of the
//! program, or of a library that is about persistent memory, is. So some effort is made for the
//! latter only.

use std::collections::BTreeMap;

/// Libraries that belong to the language, not to the program: the beginnings of their files' names.
const RUNTIME: [&[u8]; 8] = [
    b"libc.",
    b"libc-",
    b"ld-linux",
    b"libm.",
    b"libstdc++",
    b"libgcc_s",
    b"libpthread",
    b"libdl.",
];

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct OwnCode {
    /// From where to where, and whether it is.
    modules: BTreeMap<u64, (u64, bool)>,
}

impl OwnCode {
    /// A file is mapped.
    pub fn add(&mut self, start: u64, len: u64, path: &[u8]) {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_own = !RUNTIME.iter().any(|begin| name.starts_with(begin));
        self.modules
            .insert(start, (start.saturating_add(len), is_own));
    }

    /// Whether an instruction is the program's own; what lies nowhere is.
    pub fn contains(&self, pc: u64) -> bool {
        let module = self.modules.range(..=pc).next_back();
        module.is_none_or(|(_, (end, is_own))| pc >= *end || *is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_language_are_not() {
        let mut own = OwnCode::default();
        own.add(0x1000, 0x1000, b"/usr/bin/prog");
        own.add(0x4000, 0x2000, b"/lib/x86_64-linux-gnu/libc.so.6");
        own.add(0x8000, 0x1000, b"/lib/x86_64-linux-gnu/libpmemobj.so.1");
        let is = |pc| own.contains(pc);
        assert!(is(0x1000) && is(0x1fff) && is(0x8123) && is(0x9999_0000));
        assert!(!is(0x4000) && !is(0x5fff) && is(0x6000));
    }
}
