//! Where an image in this process has its unwind tables.

use core::ptr::with_exposed_provenance;
use core::slice;

use crate::rule::{FrameRule, LookupPc};
use crate::table::Tables;

/// The smallest page: segments are mapped from the beginning of the page that they begin in.
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

/// A stretch of a file's executable part in memory, as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// Its first address.
    pub start: u64,
    /// Where in the file that is.
    pub offset: u64,
}

/// An image in this process with unwind tables, as its program headers describe it.
///
/// Only the unsafe constructors make one: whoever called them promised that the tables stay
/// readable, so that [`rule_for`] is safe. Forget the module when the image is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    start: u64,
    end: u64,
    load_bias: u64,
    eh_frame_hdr: u64,
    /// 0: the linker has written no such section.
    eh_frame_hdr_bytes: usize,
    eh_frame: u64,
    /// Up to the end of the segment that holds it: its own length is recorded nowhere in memory.
    eh_frame_bytes_max: usize,
}

impl Module {
    /// Reads a module's program headers, which are `count` entries at `headers`, for an image whose
    /// addresses at run time are `load_bias` above those in its file.
    ///
    /// Without `PT_GNU_EH_FRAME` (`gcc -static` asks for none) the tables are looked for in the
    /// readable segments, and the module is not [indexed](Self::is_indexed).
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
            .find(|header| header.kind == PT_GNU_EH_FRAME);
        let Some(tables) = tables else {
            let (eh_frame, eh_frame_bytes_max) = segments()
                .filter(|segment| segment.flags & PF_R != 0)
                .find_map(|segment| {
                    let start = load_bias.wrapping_add(segment.vaddr);
                    let bytes = bytes_from(start)?;
                    // SAFETY: the range is a readable segment's file-backed part; the rest is the
                    // caller's promise.
                    let content = unsafe { bytes_at(start, bytes) };
                    let at = Tables::find_in(content)?;
                    Some((start + at as u64, bytes - at))
                })?;
            return Some(Self {
                start,
                end,
                load_bias,
                eh_frame_hdr: 0,
                eh_frame_hdr_bytes: 0,
                eh_frame,
                eh_frame_bytes_max,
            });
        };
        let eh_frame_hdr = load_bias.wrapping_add(tables.vaddr);
        let eh_frame_hdr_bytes = usize::try_from(tables.memsz)
            .unwrap_or(usize::MAX)
            .min(bytes_from(eh_frame_hdr)?);
        // SAFETY: the range lies in a readable segment, and the caller promises that such segments
        // are mapped as the program headers say and that nobody writes to the tables.
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

    /// Whether a look-up is a binary search. If not, make an [`index`](Self::with_index) of the
    /// module's entries.
    pub fn is_indexed(&self) -> bool {
        self.tables().is_indexed()
    }

    /// Calls `visit` with the first address and the entry of each function of the module, in the
    /// order of the section.
    pub fn each_entry(&self, mut visit: impl FnMut(u64, u64)) {
        self.tables().each_entry(|start, end, entry| {
            if self.start <= start && start < end && end <= self.end {
                visit(start, entry);
            }
        });
    }

    /// The module with an index in the form of `.eh_frame_hdr`, which
    /// [`encode_index`](crate::encode_index) makes.
    pub fn with_index(self, index: &'static [u8]) -> Self {
        Self {
            eh_frame_hdr: index.as_ptr().expose_provenance() as u64,
            eh_frame_hdr_bytes: index.len(),
            ..self
        }
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
        let hdr = match self.eh_frame_hdr_bytes {
            0 => &[][..],
            // SAFETY: the constructor put the range inside of a readable segment, and its caller
            // promised that it stays mapped and unwritten for as long as this module is used; or it
            // is the slice of `with_index`, which lives for ever.
            bytes => unsafe { bytes_at(self.eh_frame_hdr, bytes) },
        };
        // SAFETY: the first of these two.
        let eh_frame = unsafe { bytes_at(self.eh_frame, self.eh_frame_bytes_max) };
        Tables::new(hdr, self.eh_frame_hdr, eh_frame, self.eh_frame)
    }
}

/// Finds the unwind tables of the image that the code at `pc` belongs to. `header` is where the
/// beginning of its file is mapped, `header_bytes` of it, and `code` the mapping of the same file
/// that `pc` lies in. None if that is not an x86-64 ELF file, or its program headers do not say
/// that there is code at `pc`, or it has no tables, or its program headers are not in those bytes.
///
/// The header says what the image looks like, and `code` says where it is. They are separate,
/// because the header may be in memory several times: where segments share a page of the file, as
/// in small programs that lld or mold have linked, each of them maps that page, and the copy that
/// is nearest to the code is not where the image begins.
///
/// # Safety
///
/// `header` is an address from a mapping (so that its provenance is exposed or foreign to this
/// program), and the bytes there are readable. If they hold an ELF image, then the readable
/// segments of the image around `code` are mapped as its program headers say, and they stay mapped
/// and their unwind tables unwritten for as long as the returned module, or a copy of it, is used.
pub unsafe fn module_from_image(
    header: u64,
    header_bytes: u64,
    code: CodeMapping,
    pc: LookupPc,
) -> Option<Module> {
    if header_bytes < size_of::<FileHeader>() as u64 {
        return None;
    }
    let base = header;
    // SAFETY: the caller promises that these bytes are readable; all bit patterns are valid.
    let header = unsafe { with_exposed_provenance::<FileHeader>(base as usize).read_unaligned() };
    let table_bytes = u64::from(header.phnum) * size_of::<ProgramHeader>() as u64;
    let is_usable = header.ident.starts_with(&IDENT)
        && header.machine == EM_X86_64
        && usize::from(header.phentsize) == size_of::<ProgramHeader>()
        && header
            .phoff
            .checked_add(table_bytes)
            .is_some_and(|end| end <= header_bytes);
    if !is_usable {
        return None;
    }
    let headers = base.wrapping_add(header.phoff);
    let segments = || {
        (0..u64::from(header.phnum))
            .map(|index| {
                let at = headers.wrapping_add(index * size_of::<ProgramHeader>() as u64);
                // SAFETY: inside of the bytes that the caller promises, as just checked.
                unsafe { with_exposed_provenance::<ProgramHeader>(at as usize).read_unaligned() }
            })
            .filter(|header| header.kind == PT_LOAD && header.flags & PF_X != 0)
    };
    let pc_offset = pc.get().checked_sub(code.start)?.checked_add(code.offset)?;
    // A segment's mapping has whole pages; what is in them before and after it may be another
    // segment's.
    let itself = |segment: &ProgramHeader| {
        let end = segment.offset.saturating_add(segment.filesz);
        (segment.offset..end).contains(&pc_offset)
    };
    let its_pages = |segment: &ProgramHeader| {
        let start = segment.offset & !(PAGE_BYTES - 1);
        let end = segment.offset.saturating_add(segment.filesz);
        (start..end.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1)).contains(&pc_offset)
    };
    let segment = segments()
        .find(itself)
        .or_else(|| segments().find(its_pages))?;
    let load_bias = code
        .start
        .wrapping_sub(code.offset)
        .wrapping_sub(segment.vaddr.wrapping_sub(segment.offset));
    // SAFETY: the program headers lie in the readable bytes; the rest is the caller's promise.
    unsafe { Module::from_program_headers(headers, header.phnum, load_bias) }
}

/// The rule for the frame of the instruction at `pc`, from the tables of the module that contains
/// it. About a microsecond: cache it.
pub fn rule_for(module: &Module, pc: LookupPc) -> FrameRule {
    module.tables().rule_for(pc)
}

/// # Safety
///
/// The range is readable and nobody writes to it during `'a`, and it is not longer than
/// `isize::MAX`.
unsafe fn bytes_at<'a>(addr: u64, bytes: usize) -> &'a [u8] {
    // SAFETY: passed on to the caller; bytes need no alignment. A null address cannot be inside of
    // a mapped segment.
    unsafe { slice::from_raw_parts(with_exposed_provenance(addr as usize), bytes) }
}
