//! Where an image in this process has its unwind tables.

use core::ptr::with_exposed_provenance;
use core::slice;

use crate::rule::{FrameRule, LookupPc};
use crate::table::Tables;

/// The smallest page, hence how much of an image is surely mapped where its header is.
const PAGE_BYTES: u64 = 4096;

const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_R: u32 = 4;
const EM_X86_64: u16 = 62;
/// Magic, 64-bit, little-endian, version 1 (the start of `e_ident`).
const IDENT: [u8; 7] = *b"\x7fELF\x02\x01\x01";

/// `Elf64_Ehdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileHeader {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    phoff: u64,
    shoff: u64,
    flags: u32,
    ehsize: u16,
    phentsize: u16,
    phnum: u16,
    shentsize: u16,
    shnum: u16,
    shstrndx: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

const _: () = assert!(size_of::<FileHeader>() == 64);
const _: () = assert!(size_of::<ProgramHeader>() == 56);

/// An image in this process with unwind tables, as its program headers describe it.
///
/// Only the unsafe constructors make one: whoever called them promised that the tables stay readable, so
/// that [`rule_for`] is safe. Forget the module when the image is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    start: u64,
    end: u64,
    load_bias: u64,
    eh_frame_hdr: u64,
    eh_frame_hdr_bytes: usize,
    eh_frame: u64,
    /// Up to the end of the segment that holds it: its own length is recorded nowhere in memory.
    eh_frame_bytes_max: usize,
}

impl Module {
    /// Reads a module's program headers, which are `count` entries at `headers`, for an image whose
    /// addresses at run time are `load_bias` above those in its file. For images whose program headers do
    /// not follow the file header (some tools move them); otherwise see [`module_from_image`].
    ///
    /// # Safety
    ///
    /// As [`module_from_image`], for the program headers instead of the file header.
    pub unsafe fn from_program_headers(headers: u64, count: u16, load_bias: u64) -> Option<Self> {
        let header = |index: u16| {
            let at = headers.wrapping_add(u64::from(index) * size_of::<ProgramHeader>() as u64);
            // SAFETY: the caller promises `count` readable program headers at `headers`; all bit
            // patterns are valid, and the read does not ask for alignment.
            unsafe { with_exposed_provenance::<ProgramHeader>(at as usize).read_unaligned() }
        };
        let segments = || {
            (0..count)
                .map(header)
                .filter(|header| header.kind == PT_LOAD)
        };
        // What is left, from an address, of the file-backed part of the readable segment around it.
        let bytes_from = |addr: u64| {
            segments()
                .filter(|segment| segment.flags & PF_R != 0)
                .find_map(|segment| {
                    let start = load_bias.wrapping_add(segment.vaddr);
                    let end = start.checked_add(segment.filesz.min(segment.memsz))?;
                    let bytes = (start..end).contains(&addr).then(|| end - addr)?;
                    usize::try_from(bytes)
                        .ok()
                        .filter(|&bytes| bytes <= isize::MAX as usize)
                })
        };

        let code = || segments().filter(|segment| segment.flags & PF_X != 0);
        let start = code()
            .map(|segment| load_bias.wrapping_add(segment.vaddr))
            .min()?;
        let end = code()
            .map(|segment| {
                load_bias
                    .wrapping_add(segment.vaddr)
                    .wrapping_add(segment.memsz)
            })
            .max()?;

        let tables = (0..count)
            .map(header)
            .find(|header| header.kind == PT_GNU_EH_FRAME)?;
        let eh_frame_hdr = load_bias.wrapping_add(tables.vaddr);
        let eh_frame_hdr_bytes = usize::try_from(tables.memsz)
            .unwrap_or(usize::MAX)
            .min(bytes_from(eh_frame_hdr)?);
        // SAFETY: the range lies in a readable segment, and the caller promises that such segments are
        // mapped as the program headers say and that nobody writes to the tables.
        let hdr = unsafe { bytes_at(eh_frame_hdr, eh_frame_hdr_bytes) };
        let eh_frame = Tables::eh_frame_addr_of(hdr, eh_frame_hdr)?;
        let eh_frame_bytes_max = bytes_from(eh_frame)?;
        Some(Self {
            start,
            end,
            load_bias,
            eh_frame_hdr,
            eh_frame_hdr_bytes,
            eh_frame,
            eh_frame_bytes_max,
        })
    }

    /// The first executable address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The end (exclusive) of the last executable segment.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether an address lies between the first and the last executable address.
    #[inline]
    pub fn contains(&self, pc: LookupPc) -> bool {
        (self.start..self.end).contains(&pc.get())
    }

    /// What to add to an address in the file to get the one in memory.
    pub fn load_bias(&self) -> u64 {
        self.load_bias
    }

    /// The tables.
    pub fn tables(&self) -> Tables<'_> {
        // SAFETY: the constructor put both ranges inside of readable segments, and its caller promised
        // that those stay mapped and unwritten for as long as this module is used.
        let (hdr, eh_frame) = unsafe {
            (
                bytes_at(self.eh_frame_hdr, self.eh_frame_hdr_bytes),
                bytes_at(self.eh_frame, self.eh_frame_bytes_max),
            )
        };
        Tables::new(hdr, self.eh_frame_hdr, eh_frame, self.eh_frame)
    }
}

/// Finds the unwind tables of the image whose ELF header is mapped at `base`. None if that is not an
/// x86-64 ELF header, or the image has no `.eh_frame_hdr`, or its program headers are not in the page of the
/// header (then see [`Module::from_program_headers`]).
///
/// # Safety
///
/// `base` is an address from a mapping (so that its provenance is exposed or foreign to this program), and
/// the page there is readable. If it holds an ELF image, then the image's readable segments are mapped as
/// its program headers say, and they stay mapped and their unwind tables unwritten for as long as the
/// returned module, or a copy of it, is used.
pub unsafe fn module_from_image(base: u64) -> Option<Module> {
    // SAFETY: the caller promises a readable page; all bit patterns are valid.
    let header = unsafe { with_exposed_provenance::<FileHeader>(base as usize).read_unaligned() };
    let table_bytes = u64::from(header.phnum) * size_of::<ProgramHeader>() as u64;
    let is_usable = header.ident.starts_with(&IDENT)
        && header.machine == EM_X86_64
        && usize::from(header.phentsize) == size_of::<ProgramHeader>()
        && header
            .phoff
            .checked_add(table_bytes)
            .is_some_and(|end| end <= PAGE_BYTES);
    if !is_usable {
        return None;
    }
    let headers = base.wrapping_add(header.phoff);
    let first_load = (0..u64::from(header.phnum)).find_map(|index| {
        let at = headers.wrapping_add(index * size_of::<ProgramHeader>() as u64);
        // SAFETY: inside of the page that the caller promises, as just checked.
        let header =
            unsafe { with_exposed_provenance::<ProgramHeader>(at as usize).read_unaligned() };
        (header.kind == PT_LOAD).then_some(header)
    })?;
    // The header is at offset 0 of the file.
    let load_bias = base.wrapping_sub(first_load.vaddr.wrapping_sub(first_load.offset));
    // SAFETY: the program headers lie in the readable page; the rest is the caller's promise.
    unsafe { Module::from_program_headers(headers, header.phnum, load_bias) }
}

/// The rule for the frame of the instruction at `pc`, from the tables of the module that contains it.
/// About a microsecond: cache it.
pub fn rule_for(module: &Module, pc: LookupPc) -> FrameRule {
    module.tables().rule_for(pc)
}

/// # Safety
///
/// The range is readable and nobody writes to it during `'a`, and it is not longer than `isize::MAX`.
unsafe fn bytes_at<'a>(addr: u64, bytes: usize) -> &'a [u8] {
    // SAFETY: passed on to the caller; bytes need no alignment. A null address cannot be inside of a
    // mapped segment.
    unsafe { slice::from_raw_parts(with_exposed_provenance(addr as usize), bytes) }
}
