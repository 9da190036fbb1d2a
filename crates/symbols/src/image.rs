//! One module's files, mapped and parsed as far as needed.
//!
//! ```text
//!  main file ──┬── own DWARF ───────────────┐
//!              ├── separate debug file ─────┼─▶ supplementary file (dwz)
//!              ├── .gnu_debugdata (xz) ─────┤   symbols only
//!              └── split DWARF ─────────────┘   package (.dwp), else a file a unit (.dwo), opened when a look-up wants it
//! ```

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{LookupContinuation, LookupResult};
use gimli::{EndianSlice, LittleEndian, SectionId};
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection};
use self_cell::self_cell;

use crate::locate::{self, Options};
use crate::symtab::SymbolTable;

type Slice<'data> = EndianSlice<'data, LittleEndian>;
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

    fn section(&self, wanted: SectionId) -> Slice<'_> {
        self.section_named(wanted.name())
    }

    /// The section as split DWARF names it.
    fn split_section(&self, wanted: SectionId) -> Slice<'_> {
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
    fn mini_table(&self) -> Option<Vec<u8>> {
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

/// The files that together describe one module.
struct Files {
    main: ElfFile,
    debug: Option<ElfFile>,
    supplementary: Option<ElfFile>,
    mini: Option<Vec<u8>>,
    /// All split DWARF of the module in one file.
    package: Option<ElfFile>,
    /// Split DWARF that was opened.
    split: Kept,
    /// Lines are not wanted.
    names_only: bool,
}

/// Files that are opened while others are in use: they stay where they are.
#[derive(Default)]
struct Kept(OnceCell<Box<(ElfFile, Kept)>>);

impl Kept {
    fn keep(&self, file: ElfFile) -> &ElfFile {
        let mut last = self;
        while let Some(next) = last.0.get() {
            last = &next.1;
        }
        &last.0.get_or_init(|| Box::new((file, Kept::default()))).0
    }
}

impl Files {
    /// The file whose DWARF is used.
    fn described_by(&self) -> &ElfFile {
        self.debug.as_ref().unwrap_or(&self.main)
    }
}

/// What was parsed out of [`Files`]; each part on first need.
struct Parsed<'files> {
    files: &'files Files,
    dwarf: OnceCell<Option<addr2line::Context<Slice<'files>>>>,
    package: OnceCell<Option<gimli::DwarfPackage<Slice<'files>>>>,
    symbols: OnceCell<SymbolTable<'files>>,
}

impl<'files> Parsed<'files> {
    fn dwarf(&self) -> Option<&addr2line::Context<Slice<'files>>> {
        let load = || {
            let file = self.files.described_by();
            if self.files.names_only || !file.has_dwarf() {
                return None;
            }
            let mut dwarf =
                gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(file.section(id))).ok()?;
            if let Some(supplementary) = &self.files.supplementary {
                dwarf
                    .load_sup(|id| Ok::<_, gimli::Error>(supplementary.section(id)))
                    .ok()?;
            }
            addr2line::Context::from_dwarf(dwarf).ok()
        };
        self.dwarf.get_or_init(load).as_ref()
    }

    /// The part of split DWARF that describes a unit. `None` if it is not to be found: then the unit has lines and no functions.
    fn split(
        &self,
        load: &addr2line::SplitDwarfLoad<Slice<'files>>,
    ) -> Option<Arc<gimli::Dwarf<Slice<'files>>>> {
        let package = self.package.get_or_init(|| {
            let file = self.files.package.as_ref()?;
            let empty = EndianSlice::new(&[], LittleEndian);
            let section = |id| Ok::<_, gimli::Error>(file.split_section(id));
            gimli::DwarfPackage::load(section, empty).ok()
        });
        if let Some(package) = package
            && let Ok(Some(unit)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(unit));
        }
        let name = Path::new(OsStr::from_bytes(load.path?.slice()));
        let built_in = load.comp_dir.map(|folder| folder.slice());
        let built_in = built_in.map(|folder| Path::new(OsStr::from_bytes(folder)));
        let candidates = locate::split_files(name, built_in, &self.files.main.path);
        candidates.into_iter().find_map(|path| {
            let file = ElfFile::open(&path).ok()?;
            is_unit(&file, load.dwo_id).then_some(())?;
            let file = self.files.split.keep(file);
            let mut dwarf = split_dwarf(file)?;
            dwarf.make_dwo(&load.parent);
            Some(Arc::new(dwarf))
        })
    }

    fn symbols(&self) -> &SymbolTable<'files> {
        self.symbols.get_or_init(|| {
            let files = self.files;
            let images = [
                Some(files.main.bytes()),
                files.debug.as_ref().map(ElfFile::bytes),
                files.mini.as_deref(),
            ];
            SymbolTable::build(images.into_iter().flatten())
        })
    }
}

fn split_dwarf(file: &ElfFile) -> Option<gimli::Dwarf<Slice<'_>>> {
    gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(file.split_section(id))).ok()
}

/// Whether a file has the unit, and not one of another build.
fn is_unit(file: &ElfFile, wanted: gimli::DwoId) -> bool {
    let id = || {
        let dwarf = split_dwarf(file)?;
        let header = dwarf.units().next().ok()??;
        dwarf.unit(header).ok()?.dwo_id
    };
    id() == Some(wanted)
}

self_cell! {
    struct Cell {
        owner: Files,
        #[not_covariant]
        dependent: Parsed,
    }
}

/// A frame as found in debug information: borrowed, not yet demangled.
pub(crate) struct RawFrame<'data> {
    pub(crate) function: Option<std::borrow::Cow<'data, str>>,
    pub(crate) file: Option<&'data str>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// A module that can be asked.
pub(crate) struct Image(Cell);

impl Image {
    /// Opens the module's file and finds the files with its debug information.
    pub(crate) fn open(path: &Path, options: &Options) -> io::Result<Image> {
        let main = ElfFile::open(path)?;
        let debug = match main.has_dwarf() {
            true => None,
            false => locate::debug_file(&main, options),
        };
        let supplementary = locate::supplementary_file(debug.as_ref().unwrap_or(&main), options);
        let mini = match debug {
            Some(_) => None,
            None => main.mini_table(),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let names_only = options
            .names_only
            .iter()
            .any(|start| name.starts_with(start));
        let package = locate::package(debug.as_ref().unwrap_or(&main), path);
        let files = Files {
            main,
            debug,
            supplementary,
            mini,
            package,
            split: Kept::default(),
            names_only,
        };
        Ok(Image(Cell::new(files, |files| Parsed {
            files,
            dwarf: OnceCell::new(),
            package: OnceCell::new(),
            symbols: OnceCell::new(),
        })))
    }

    /// The address, as the ELF file counts, of a file offset.
    pub(crate) fn addr_of_offset(&self, offset: u64) -> Option<u64> {
        // The kernel maps whole pages; the bytes around a segment in its pages belong to others.
        self.0
            .borrow_owner()
            .main
            .segments
            .iter()
            .find_map(|segment| {
                let distance = offset.checked_sub(segment.file_offset)?;
                (distance < segment.file_size).then(|| segment.addr.wrapping_add(distance))
            })
    }

    /// Calls `visit` with each frame at `addr`, innermost first.
    pub(crate) fn each_frame(&self, addr: u64, mut visit: impl FnMut(RawFrame<'_>)) {
        self.0.with_dependent(|_, parsed| {
            let Some(dwarf) = parsed.dwarf() else { return };
            let mut result = dwarf.find_frames(addr);
            let frames = loop {
                match result {
                    LookupResult::Output(frames) => break frames,
                    LookupResult::Load { load, continuation } => {
                        result = continuation.resume(parsed.split(&load));
                    }
                }
            };
            let Ok(mut frames) = frames else { return };
            while let Ok(Some(frame)) = frames.next() {
                let location = frame.location.as_ref();
                visit(RawFrame {
                    function: frame
                        .function
                        .as_ref()
                        .and_then(|name| name.raw_name().ok()),
                    file: location.and_then(|l| l.file),
                    line: location.and_then(|l| l.line).filter(|&line| line != 0),
                    column: location
                        .and_then(|l| l.column)
                        .filter(|&column| column != 0),
                });
            }
        });
    }

    /// The symbol that covers `addr`, mangled, and the distance from its start.
    pub(crate) fn symbol(&self, addr: u64) -> Option<(String, u64)> {
        self.0.with_dependent(|_, parsed| {
            let (name, offset) = parsed.symbols().find(addr)?;
            Some((String::from_utf8_lossy(name).into_owned(), offset))
        })
    }
}
