//! Function names from ELF symbol tables: what is left when there is no debug information.

use std::collections::HashMap;
use std::ops::Range;

use object::elf::{SHF_EXECINSTR, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionIndex, SymbolFlags};

/// A named stretch of code.
#[derive(Clone, Copy, Debug)]
struct Symbol<'data> {
    addr: u64,
    /// As the table says; 0 for labels.
    size: u64,
    /// End of the section that it lies in.
    section_end: u64,
    name: &'data [u8],
    /// Lower is better: a function before a label, then the name by which programmers call it
    /// (`munmap`, not `__munmap` or `__GI_munmap`). Whether it is global does not matter, because
    /// linkers differ in that.
    rank: (bool, usize),
}

/// The code symbols of one module, from any number of tables, sorted by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable<'data> {
    symbols: Vec<Symbol<'data>>,
}

impl<'data> SymbolTable<'data> {
    /// Merges the tables of several views of one module (the file itself, its debug file, its
    /// compressed mini table). Unreadable tables count as empty.
    pub(crate) fn build(images: impl Iterator<Item = &'data [u8]>) -> SymbolTable<'data> {
        let mut symbols = Vec::new();
        for image in images {
            let Ok(elf) = ElfFile64::<object::LittleEndian, _>::parse(image) else {
                continue;
            };
            let sections = code_sections(&elf);
            let all = elf.symbols().chain(elf.dynamic_symbols());
            symbols.extend(all.filter_map(|symbol| code(&symbol, &sections)));
        }
        symbols.sort_by_key(|s: &Symbol<'_>| (s.addr, s.rank, s.name));
        // One name per address: the best-ranked.
        symbols.dedup_by_key(|s| s.addr);
        SymbolTable { symbols }
    }

    /// The symbol that covers `addr`, and how far into it `addr` lies.
    pub(crate) fn find(&self, addr: u64) -> Option<(&'data [u8], u64)> {
        let after = self.symbols.partition_point(|s| s.addr <= addr);
        // A label without a size reaches up to the next symbol; a sized one may be hidden behind
        // a label inside it, so look back a little.
        const LOOK_BACK: usize = 8;
        let candidates = self.symbols[..after].iter().rev().take(LOOK_BACK);
        let mut unsized_label = None;
        for (distance, symbol) in candidates.enumerate() {
            let offset = addr - symbol.addr;
            if offset < symbol.size {
                return Some((symbol.name, offset));
            }
            if distance == 0 && symbol.size == 0 && addr < symbol.section_end {
                unsized_label = Some((symbol.name, offset));
            }
        }
        unsized_label
    }
}

/// The addresses of executable sections, by index.
fn code_sections<'data>(
    elf: &ElfFile64<'data, object::LittleEndian>,
) -> HashMap<SectionIndex, Range<u64>> {
    let executable = |section: &object::read::elf::ElfSection64<'data, '_, _>| match section.flags()
    {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(SHF_EXECINSTR),
        _ => false,
    };
    elf.sections()
        .filter(executable)
        .map(|section| {
            let end = section.address().saturating_add(section.size());
            (section.index(), section.address()..end)
        })
        .collect()
}

fn code<'data>(
    symbol: &impl ObjectSymbol<'data>,
    sections: &HashMap<SectionIndex, Range<u64>>,
) -> Option<Symbol<'data>> {
    // Undefined and absolute symbols have no section; those of data are not code.
    let section = sections.get(&symbol.section_index()?)?;
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else {
        return None;
    };
    let kind = st_info.st_type();
    let function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
    if !function && kind != STT_NOTYPE {
        return None;
    }
    let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
    let underscores = name.iter().take_while(|byte| **byte == b'_').count();
    let rank = (!function, underscores);
    Some(Symbol {
        addr: symbol.address(),
        size: symbol.size(),
        section_end: section.end,
        name,
        rank,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u64, u64, &'static [u8])]) -> SymbolTable<'static> {
        let symbols = rows
            .iter()
            .map(|&(addr, size, name)| Symbol {
                addr,
                size,
                section_end: 0x400,
                name,
                rank: (false, 0),
            })
            .collect();
        SymbolTable { symbols }
    }

    #[test]
    fn sizes_bound_names() {
        let table = table(&[
            (0x100, 0x20, b"f"),
            (0x200, 0, b"label"),
            (0x300, 0x10, b"g"),
            (0x380, 0, b"last"),
        ]);
        assert_eq!(table.find(0xff), None);
        assert_eq!(table.find(0x100), Some((b"f".as_slice(), 0)));
        assert_eq!(table.find(0x11f), Some((b"f".as_slice(), 0x1f)));
        assert_eq!(table.find(0x120), None);
        assert_eq!(table.find(0x2ff), Some((b"label".as_slice(), 0xff)));
        assert_eq!(table.find(0x310), None);
        assert_eq!(table.find(0x3ff), Some((b"last".as_slice(), 0x7f)));
        assert_eq!(table.find(0x400), None, "the section ends");
    }

    #[test]
    fn a_label_inside_a_function_does_not_hide_it() {
        let table = table(&[(0x100, 0x100, b"f"), (0x110, 0, b"inner")]);
        assert_eq!(table.find(0x118), Some((b"f".as_slice(), 0x18)));
    }
}
