//! A rule's file: looked into first, then loaded.
//!
//! **Purpose.** The dynamic linker believes what a file says: it dies of a truncated one, and runs
//! the initialisers of whatever it is given. So the file is parsed first, and loaded only if it is
//! complete and exports a rule's table.
//!
//! **Deviation.** A file that is damaged *inside* its segments, or that changes between look and
//! load, is the linker's to judge.

use std::ffi::c_void;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, elf};

use crate::abi::SYMBOL;
use crate::error::LoadError;

/// A table that a loaded library exports.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) address: *const c_void,
    /// As the library's symbol table says.
    pub(crate) size: usize,
}

/// Loads the library for good and finds its table. `name` is the path for messages.
pub(crate) fn table(path: &Path, name: &str) -> Result<Exported, LoadError> {
    // Absolute: the dynamic linker would look for a name without slash elsewhere.
    let read = path
        .canonicalize()
        .and_then(|absolute| Ok((std::fs::read(&absolute)?, absolute)));
    let (bytes, absolute) = read.map_err(|error| LoadError::Unreadable {
        path: name.to_string(),
        reason: error.to_string(),
    })?;
    let not_loadable = |reason: String| LoadError::NotLoadable {
        path: name.to_string(),
        reason,
    };
    let not_a_rule = || LoadError::NotARule {
        path: name.to_string(),
    };
    let size = exported_size(&bytes)
        .map_err(|reason| not_loadable(reason.to_string()))?
        .ok_or_else(not_a_rule)?;
    // SAFETY: initialisers of the library run now. It is a rule, and the user has asked for it.
    let opened = unsafe { Library::open(Some(&absolute), RTLD_NOW | RTLD_LOCAL) };
    let library = opened.map_err(|error| {
        not_loadable(match error {
            // Without the words that libloading puts around it.
            libloading::Error::DlOpen { source, .. } => source.to_string(),
            other => other.to_string(),
        })
    })?;
    // SAFETY: only its address is used; `host` checks what lies there.
    let symbol = unsafe { library.get::<*const c_void>(SYMBOL) };
    let address = symbol.map_err(|_| not_a_rule())?.as_raw_ptr().cast_const();
    // See the header of `host`.
    std::mem::forget(library);
    Ok(Exported { address, size })
}

/// The size of the table that a file exports, if it exports one; why it is not a library, if it is
/// none.
fn exported_size(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let file = ElfFile64::<LittleEndian>::parse(bytes)
        .map_err(|_| "it is not a complete 64-bit ELF file")?;
    let header = file.elf_header();
    if header.e_machine.get(LittleEndian) != elf::EM_X86_64 {
        return Err("it is for another processor");
    }
    if header.e_type.get(LittleEndian) != elf::ET_DYN {
        return Err("it is a program or an object file");
    }
    for segment in file.elf_program_headers() {
        segment
            .data(LittleEndian, bytes)
            .map_err(|()| "it is truncated")?;
    }
    let table = file
        .dynamic_symbols()
        .find(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(SYMBOL.as_bytes()));
    Ok(table.map(|symbol| usize::try_from(symbol.size()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// This test's own program: a real ELF file without a table.
    fn own_image() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("read")
    }

    #[test]
    fn program_without_table_exports_none() {
        assert_eq!(exported_size(&own_image()), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in vec(any::<u8>(), 0..300)) {
            let _ = exported_size(&bytes);
        }
    }

    #[test]
    fn damaged_and_truncated_files_get_an_answer() {
        let image = own_image();
        for at in 0..64 {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = image.clone();
                damaged[at] = value;
                let _ = exported_size(&damaged);
            }
        }
        for part in 1..16 {
            let cut = &image[..image.len() * part / 16];
            assert!(exported_size(cut).is_err(), "{part}");
        }
        assert_eq!(
            exported_size(&image[..4096]),
            Err("it is not a complete 64-bit ELF file")
        );
    }
}
