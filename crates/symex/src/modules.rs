//! Which code is the program's own, and what code is called.
//!
//! A branch of the C library that no run has taken is rarely what somebody searches for; one of the
//! program, or of a library that is about persistent memory, is. So some effort is made for the
//! latter only. Parts of a language's library may lie in the program's own file: all of it in
//! Rust's, templates in C++'s. What they are is told by the source file that debug information has,
//! else by the function's name.
//!
//! **Guarantee.** What is not known is the program's own.

use std::collections::BTreeMap;

use brownout_findings::Frame;
use brownout_symbols::{CodeAddr, Options, Symbolizer};
use brownout_trace::event::{ProcessId, TargetAddr};
use rustc_hash::FxHashSet;

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

/// What the names of functions begin with that come with a language: Rust's library and what it
/// consists of, and C++'s.
const LANGUAGE: [&str; 10] = [
    "core::",
    "alloc::",
    "std::",
    "hashbrown::",
    "std_detect::",
    "addr2line::",
    "gimli::",
    "rustc_demangle::",
    "miniz_oxide::",
    "__gnu_cxx::",
];

/// All runs have their code at the same places, so they count as one process.
const PROCESS: ProcessId = ProcessId(1);

/// A file of code that is mapped.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    end: u64,
    offset: u64,
    path: Vec<u8>,
    is_own: bool,
}

/// See the module's header.
#[derive(Debug)]
pub struct OwnCode {
    modules: BTreeMap<u64, Module>,
    symbolizer: Symbolizer,
    /// Instructions that were looked at; and those of a language's library.
    looked: FxHashSet<u64>,
    language: FxHashSet<u64>,
}

impl Default for OwnCode {
    fn default() -> OwnCode {
        OwnCode {
            modules: BTreeMap::new(),
            symbolizer: Symbolizer::new(Options::for_findings()),
            looked: FxHashSet::default(),
            language: FxHashSet::default(),
        }
    }
}

impl OwnCode {
    /// A file is mapped.
    pub fn add(&mut self, start: u64, len: u64, offset: u64, path: &[u8]) {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let module = Module {
            end: start.saturating_add(len),
            offset,
            path: path.to_vec(),
            is_own: !RUNTIME.iter().any(|begin| name.starts_with(begin)),
        };
        // Each run says it again.
        if self.modules.get(&start) == Some(&module) {
            return;
        }
        let is_elsewhere = |pc: &u64| !(start..module.end).contains(pc);
        self.looked.retain(is_elsewhere);
        self.language.retain(is_elsewhere);
        if !path.is_empty() {
            (self.symbolizer).add_module(PROCESS, TargetAddr(start), len, offset, path);
        }
        self.modules.insert(start, module);
    }

    /// Looks at an instruction, once: whether it belongs to a language's library.
    pub fn look(&mut self, pc: u64) {
        if self.is_in_own_module(pc) && self.looked.insert(pc) {
            let frames = (self.symbolizer).frames(PROCESS, CodeAddr::Pc(TargetAddr(pc)));
            // What the compiler has put into the program's own functions is the program's.
            let frames = frames.iter().cloned().map(Frame::from);
            if frames.into_iter().all(|frame| is_of_language(&frame)) {
                self.language.insert(pc);
            }
        }
    }

    /// Whether an instruction is the program's own; what lies nowhere is. It was looked at.
    pub fn contains(&self, pc: u64) -> bool {
        self.is_in_own_module(pc) && !self.language.contains(&pc)
    }

    fn is_in_own_module(&self, pc: u64) -> bool {
        let module = self.modules.range(..=pc).next_back();
        module.is_none_or(|(_, module)| pc >= module.end || module.is_own)
    }

    /// Where an instruction is, for people.
    pub fn place(&mut self, pc: u64) -> String {
        let frames = (self.symbolizer).frames(PROCESS, CodeAddr::Pc(TargetAddr(pc)));
        let frames: Vec<Frame> = frames.iter().cloned().map(Frame::from).collect();
        let own = frames.iter().find(|frame| !is_of_language(frame));
        let Some(frame) = own.or(frames.first()) else {
            return format!("{pc:#x}");
        };
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let module = frame.module.as_deref().map(last);
        match (&frame.file, frame.line, &frame.function, module) {
            (Some(file), Some(line), _, _) => format!("{}:{line}", last(file)),
            (_, _, Some(function), Some(module)) => format!("{function} in {module}"),
            (_, _, Some(function), None) => function.clone(),
            (_, _, None, Some(module)) => format!("{module}+{:#x}", frame.offset),
            _ => format!("{pc:#x}"),
        }
    }
}

fn is_of_language(frame: &Frame) -> bool {
    match (&frame.file, &frame.function) {
        (Some(_), _) => frame.is_standard_library(),
        (None, Some(name)) => has_language_name(name),
        (None, None) => false,
    }
}

/// Whether a function is called as those of a language's library are.
fn has_language_name(name: &str) -> bool {
    let is_there = |path: &str| LANGUAGE.iter().any(|begin| path.starts_with(begin));
    // Rust: `<TYPE as TRAIT>::function`. A type that has no path is everybody's.
    if let Some(inner) = name.strip_prefix('<') {
        let (of, by) = inner.split_once(" as ").unwrap_or((inner, ""));
        let of = of.trim_start_matches(['&', '*', '[', '(']);
        let of = of.trim_start_matches("mut ").trim_start_matches("const ");
        let of = of.trim_start_matches("dyn ");
        return match of.contains("::") {
            true => is_there(of),
            false => is_there(by),
        };
    }
    // C++: a template's name has its result in front.
    let mut depth = 0u32;
    let mut from = 0;
    for (at, letter) in name.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && at > 0 => break,
            ' ' if depth == 0 && !name[at..].starts_with(" <") => from = at + 1,
            _ => {}
        }
    }
    is_there(&name[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_language_are_not() {
        let mut own = OwnCode::default();
        own.add(0x1000, 0x1000, 0, b"/usr/bin/prog");
        own.add(0x4000, 0x2000, 0, b"/lib/x86_64-linux-gnu/libc.so.6");
        own.add(0x8000, 0x1000, 0, b"/lib/x86_64-linux-gnu/libpmemobj.so.1");
        let is = |pc| own.contains(pc);
        assert!(is(0x1000) && is(0x1fff) && is(0x8123) && is(0x9999_0000));
        assert!(!is(0x4000) && !is(0x5fff) && is(0x6000));
    }

    #[test]
    fn functions_of_a_language_are_told_by_their_names() {
        for name in [
            "core::str::converts::from_utf8",
            "<core::str::iter::Split<P> as core::iter::Iterator>::next",
            "<&mut std::io::StdinLock as std::io::BufRead>::fill_buf",
            "<T as alloc::string::ToString>::to_string",
            "core::num::<impl core::str::traits::FromStr for u64>::from_str",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "void std::sort<int*>(int*, int*)",
            "__gnu_cxx::__stoa<long>(long (*)(char const*))",
        ] {
            assert!(has_language_name(name), "{name}");
        }
        for name in [
            "main",
            "parse(std::string const&)",
            "shop::Order::parse",
            "<shop::Order as core::str::FromStr>::from_str",
            "int lookup<std::string>(std::string)",
            "score::core::run",
        ] {
            assert!(!has_language_name(name), "{name}");
        }
    }
}
