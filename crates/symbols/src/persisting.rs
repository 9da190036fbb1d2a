//! Instructions of a file that write back or fence, and calls of libpmem's functions: what a run
//! may not have reached.
//!
//! **Purpose.** `--coverage` tells what was executed. A line that persists and was not executed is
//! what somebody looks for who asks which tests are missing.
//!
//! **Guarantee.** Each place that is named has such an instruction, or calls such a function
//! through its name.
//!
//! **Deviations.** Only files with debug information are looked into, and only their section
//! `.text`, from its beginning on; data between functions may hide instructions behind it. Of
//! stores, only those by libpmem's functions are named: nobody knows of another instruction that
//! was not executed whether it stores to persistent memory. Calls through pointers, and jumps to a
//! function at the end of another one, are not named either.

use std::collections::HashMap;

use brownout_findings::touched::Touch;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};

use crate::elf::ElfFile;

/// More code than this is not looked through.
const CODE_BYTES_MAX: usize = 256 << 20;

/// Something that makes stores persistent, by the offset in the file of its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Persisting {
    pub(crate) offset: u64,
    pub(crate) touch: Touch,
}

/// What there is in a file.
pub(crate) fn all(file: &ElfFile) -> Vec<Persisting> {
    if !file.has_dwarf() {
        return Vec::new();
    }
    let Ok(elf) = ElfFile64::<object::LittleEndian>::parse(file.bytes()) else {
        return Vec::new();
    };
    let Some(section) = elf.section_by_name(".text") else {
        return Vec::new();
    };
    let (Ok(code), Some((at, _))) = (section.data(), section.file_range()) else {
        return Vec::new();
    };
    if code.len() > CODE_BYTES_MAX {
        return Vec::new();
    }
    let names = names(&elf);
    let mut found = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let offset = at + (instruction.ip() - section.address());
        let of = |touch| Persisting { offset, touch };
        match instruction.mnemonic() {
            Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb => {
                found.push(of(Touch::Flushes));
            }
            Mnemonic::Sfence | Mnemonic::Mfence => found.push(of(Touch::Fences)),
            Mnemonic::Call => {
                let slot = slot_of(&instruction).or_else(|| stub(file, &instruction));
                let name = slot.and_then(|slot| names.get(&slot));
                found.extend(
                    name.into_iter()
                        .flat_map(|name| touches(name))
                        .map(|t| of(*t)),
                );
            }
            _ => {}
        }
    }
    found
}

/// Where the address of a function stands that is called through it.
fn slot_of(instruction: &Instruction) -> Option<u64> {
    let is_memory = instruction.op0_kind() == OpKind::Memory;
    (is_memory && instruction.memory_base() == Register::RIP)
        .then(|| instruction.memory_displacement64())
}

/// The same, where the call goes to a stub of the procedure linkage table.
fn stub(file: &ElfFile, call: &Instruction) -> Option<u64> {
    /// The longest that jumps through a slot: `endbr64`, `bnd jmp`.
    const BYTES: u64 = 16;
    if call.op0_kind() != OpKind::NearBranch64 {
        return None;
    }
    let target = call.near_branch64();
    let code = file.bytes_at(target, target.checked_add(BYTES)?)?;
    let mut decoder = Decoder::with_ip(64, code, target, DecoderOptions::NONE);
    let mut jump = decoder.decode();
    if jump.mnemonic() == Mnemonic::Endbr64 {
        jump = decoder.decode();
    }
    (jump.mnemonic() == Mnemonic::Jmp).then(|| slot_of(&jump))?
}

/// Which of libpmem's functions stands in which slot.
fn names(elf: &ElfFile64<'_, object::LittleEndian>) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    let symbols = elf.dynamic_symbol_table();
    for (slot, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            continue;
        };
        let symbol = symbols
            .as_ref()
            .and_then(|s| s.symbol_by_index(symbol).ok());
        let name = symbol.as_ref().and_then(|symbol| symbol.name().ok());
        if let Some(name) = name.filter(|name| name.starts_with("pmem_")) {
            names.insert(slot, name.to_owned());
        }
    }
    names
}

/// What a function of libpmem's always does, as far as it has something to do.
fn touches(name: &str) -> &'static [Touch] {
    match name {
        "pmem_flush" | "pmem_deep_flush" => &[Touch::Flushes],
        "pmem_drain" | "pmem_deep_drain" => &[Touch::Fences],
        "pmem_persist" | "pmem_deep_persist" => &[Touch::Flushes, Touch::Fences],
        "pmem_memcpy_persist" | "pmem_memmove_persist" | "pmem_memset_persist" => {
            &[Touch::Stores, Touch::Fences]
        }
        "pmem_memcpy"
        | "pmem_memmove"
        | "pmem_memset"
        | "pmem_memcpy_nodrain"
        | "pmem_memmove_nodrain"
        | "pmem_memset_nodrain" => &[Touch::Stores],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Built with and without the table through which libraries are called.
    #[test]
    fn instructions_and_calls_are_found() {
        const SOURCE: &str = "#include <immintrin.h>\n\
            void pmem_persist(const void *, unsigned long);\nint pmem_is_pmem(const void *, unsigned long);\n\
            int put(char *at) { _mm_clflush(at); _mm_sfence(); pmem_persist(at, 1); return pmem_is_pmem(at, 1); }\n";
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.c"), SOURCE).expect("a write");
        for option in ["-fplt", "-fno-plt"] {
            let status = Command::new("cc")
                .current_dir(folder.path())
                .args(["-g", "-O1", "-shared", "-fPIC", option, "-o", "a.so", "a.c"])
                .status();
            assert!(status.expect("cc starts").success());
            let file = ElfFile::open(&folder.path().join("a.so")).expect("an ELF file");
            let touches: Vec<Touch> = all(&file).iter().map(|one| one.touch).collect();
            assert_eq!(
                touches,
                [Touch::Flushes, Touch::Fences, Touch::Flushes, Touch::Fences],
                "{option}"
            );
        }
    }
}
