//! One ELF file: its sections, segments and the names by which it refers to others.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gimli::{EndianSlice, LittleEndian, SectionId};
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection};

pub(crate) type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// A unit of debug information in it.
pub(crate) type Unit<'u, 'data> = gimli::UnitRef<'u, Slice<'data>>;
type Elf<'data> = ElfFile64<'data, object::LittleEndian>;

/// `.gnu_debugdata` holds a symbol table, a few MB at most; more is damage or malice.
const MINI_TABLE_BYTES_MAX: u64 = 256 << 20;

/// Where the bytes of a debug section are.
enum Part {
    /// In the mapped file: start and end.
    Mapped(usize, usize),
    /// Compressed in the file; unpacked at the first need, because that takes a while.
    Packed(OnceCell<Vec<u8>>),
}

/// A mapped 64-bit little-endian ELF file and what was found in its headers.
pub(crate) struct ElfFile {
    /// As opened.
    pub(crate) path: PathBuf,
    bytes: Mmap,
    /// Debug sections by name; absent ones are empty.
    parts: Vec<(&'static str, Part)>,
    /// `NT_GNU_BUILD_ID`.
    pub(crate) build_id: Option<Vec<u8>>,
    /// `.gnu_debuglink`: file name and CRC.
    pub(crate) debug_link: Option<(Vec<u8>, u32)>,
    /// `.gnu_debugaltlink`: file name and build-id.
    pub(crate) debug_alt_link: Option<(Vec<u8>, Vec<u8>)>,
    segments: Vec<Segment>,
}

/// A `PT_LOAD` header.
struct Segment {
    file_offset: u64,
    file_size: u64,
    addr: u64,
}

impl ElfFile {
    /// Maps and reads the headers of `path`.
    pub(crate) fn open(path: &Path) -> io::Result<ElfFile> {
        let not_elf = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        // Opening a FIFO or a device could block or have effects.
        if !std::fs::metadata(path)?.is_file() {
            return Err(not_elf("not a regular file".into()));
        }
        let file = File::open(path)?;
        // SAFETY: the map is read-only and private. That nobody truncates or rewrites the file
        // meanwhile is promised by whoever installs programs and debug files (they replace files
        // by renaming); breaking it gives SIGBUS or wrong names, as the crate's header says. All
        // parsing is of untrusted bytes with bounds checks.
        let bytes = unsafe { Mmap::map(&file)? };
        let elf = Elf::parse(&*bytes).map_err(|error| not_elf(error.to_string()))?;
        let endian = elf.endian();
        let segments = elf
            .elf_program_headers()
            .iter()
            .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
            .map(|header| Segment {
                file_offset: header.p_offset(endian),
                file_size: header.p_filesz(endian),
                addr: header.p_vaddr(endian),
            })
            .collect();
        let parts = SECTIONS
            .iter()
            .flat_map(|id| {
                [
                    Some(id.name()),
                    id.dwo_name().filter(|name| *name != id.name()),
                ]
            })
            .flatten()
            .filter_map(|name| Some((name, part(&elf, &bytes, name)?)))
            .collect();
        let build_id = elf.build_id().ok().flatten().map(<[u8]>::to_vec);
        let debug_link = elf
            .gnu_debuglink()
            .ok()
            .flatten()
            .map(|(name, crc)| (name.to_vec(), crc));
        let debug_alt_link = elf
            .gnu_debugaltlink()
            .ok()
            .flatten()
            .map(|(name, id)| (name.to_vec(), id.to_vec()));
        let path = path.to_owned();
        Ok(ElfFile {
            path,
            bytes,
            parts,
            build_id,
            debug_link,
            debug_alt_link,
            segments,
        })
    }

    /// The address, as the file counts, of a file offset.
    pub(crate) fn addr_of_offset(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages; the bytes around a segment in its pages belong to others.
        self.segments.iter().find_map(|segment| {
            let distance = offset.checked_sub(segment.file_offset)?;
            (distance < segment.file_size).then(|| segment.addr.wrapping_add(distance))
        })
    }

    /// The content at some addresses, as the file counts, if one segment has all of it.
    pub(crate) fn bytes_at(&self, start: u64, end: u64) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let from = start.checked_sub(segment.addr)?;
            let to = end.checked_sub(segment.addr)?;
            if from > to || to > segment.file_size {
                return None;
            }
            let place =
                |offset: u64| usize::try_from(segment.file_offset.checked_add(offset)?).ok();
            self.bytes.get(place(from)?..place(to)?)
        })
    }

    /// A section that is mapped when the program runs, and its address.
    pub(crate) fn loaded_section(&self, wanted: &str) -> Option<(Slice<'_>, u64)> {
        let elf = Elf::parse(&*self.bytes).ok()?;
        let section = elf.section_by_name(wanted)?;
        let bytes = section.data().ok()?;
        Some((EndianSlice::new(bytes, LittleEndian), section.address()))
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if the file has line or function information.
    pub(crate) fn has_dwarf(&self) -> bool {
        let info = [SectionId::DebugInfo.name(), SectionId::DebugLine.name()];
        self.parts.iter().any(|(name, part)| {
            info.contains(name)
                && match part {
                    Part::Mapped(start, end) => start < end,
                    Part::Packed(_) => true,
                }
        })
    }

    pub(crate) fn section(&self, wanted: SectionId) -> Slice<'_> {
        self.section_named(wanted.name())
    }

    /// The section as split DWARF names it.
    pub(crate) fn split_section(&self, wanted: SectionId) -> Slice<'_> {
        match wanted.dwo_name() {
            Some(name) => self.section_named(name),
            None => EndianSlice::new(&[], LittleEndian),
        }
    }

    fn section_named(&self, wanted: &str) -> Slice<'_> {
        let bytes = match self.parts.iter().find(|(name, _)| *name == wanted) {
            Some((_, Part::Mapped(start, end))) => &self.bytes[*start..*end],
            Some((_, Part::Packed(bytes))) => bytes.get_or_init(|| self.unpack(wanted)),
            None => &[],
        };
        EndianSlice::new(bytes, LittleEndian)
    }

    /// Damage is as good as absence.
    fn unpack(&self, wanted: &str) -> Vec<u8> {
        let elf = Elf::parse(&*self.bytes).ok();
        let section = elf.as_ref().and_then(|elf| elf.section_by_name(wanted));
        let data = section.and_then(|section| section.uncompressed_data().ok());
        data.map(std::borrow::Cow::into_owned).unwrap_or_default()
    }

    /// The mini symbol table that Fedora and others ship inside stripped files.
    pub(crate) fn mini_table(&self) -> Option<Vec<u8>> {
        let elf = Elf::parse(&*self.bytes).ok()?;
        let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
        let mut unpacked = Vec::new();
        let reader = lzma_rust2::XzReader::new(packed, false);
        reader
            .take(MINI_TABLE_BYTES_MAX)
            .read_to_end(&mut unpacked)
            .ok()?;
        Some(unpacked)
    }
}

/// The sections that addr2line reads, and the index of a package of split DWARF.
const SECTIONS: [SectionId; 13] = [
    SectionId::DebugCuIndex,
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

fn part(elf: &Elf<'_>, file: &[u8], name: &str) -> Option<Part> {
    let section = elf.section_by_name(name)?;
    let packed = section.compressed_data().ok()?;
    if packed.format != object::CompressionFormat::None {
        return Some(Part::Packed(OnceCell::new()));
    }
    // The slice lies in `file`, except for sections without content.
    let start = (packed.data.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
    let end = start.checked_add(packed.data.len())?;
    file.get(start..end)?;
    Some(Part::Mapped(start, end))
}
