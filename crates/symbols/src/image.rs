//! One module's files, mapped and parsed as far as needed.
//!
//! ```text
//!  main file ──┬── own DWARF ───────────────┐
//!              ├── separate debug file ─────┼─▶ supplementary file (dwz)
//!              ├── .gnu_debugdata (xz) ─────┤   symbols only
//!              └── split DWARF ─────────────┘   package (.dwp), else a file a unit (.dwo), opened when a look-up wants it
//! ```

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use addr2line::{LookupContinuation, LookupResult};
use gimli::{EndianSlice, LittleEndian};
use self_cell::self_cell;

use crate::elf::{ElfFile, Slice};
use crate::locate::{self, Options};
use crate::shape::{self, Accessed, UnitIndex};
use crate::symtab::SymbolTable;

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
    unwinding: OnceCell<Option<Unwinding<'files>>>,
    /// By where the unit lies in memory, which is where it stays.
    units: RefCell<HashMap<usize, Rc<UnitIndex>>>,
}

/// What says where call frames lie.
struct Unwinding<'files> {
    table: gimli::ParsedEhFrameHdr<Slice<'files>>,
    frames: gimli::EhFrame<Slice<'files>>,
    bases: gimli::BaseAddresses,
}

impl<'files> Unwinding<'files> {
    fn of(file: &'files ElfFile) -> Option<Self> {
        let (table, table_addr) = file.loaded_section(".eh_frame_hdr")?;
        let (frames, frames_addr) = file.loaded_section(".eh_frame")?;
        let bases = gimli::BaseAddresses::default()
            .set_eh_frame_hdr(table_addr)
            .set_eh_frame(frames_addr);
        let table = gimli::EhFrameHdr::new(table.slice(), LittleEndian);
        let frames = gimli::EhFrame::new(frames.slice(), LittleEndian);
        Some(Unwinding {
            table: table.parse(&bases, 8).ok()?,
            frames,
            bases,
        })
    }

    /// The register that the call frame's address is counted from at `addr`, and the distance.
    fn frame(&self, addr: u64) -> Option<(u8, i64)> {
        use gimli::UnwindSection;
        let mut context = gimli::UnwindContext::new();
        let row = self
            .table
            .table()?
            .unwind_info_for_address(
                &self.frames,
                &self.bases,
                &mut context,
                addr,
                gimli::EhFrame::cie_from_offset,
            )
            .ok()?;
        match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } if register.0 < 16 => {
                Some((register.0 as u8, *offset))
            }
            _ => None,
        }
    }
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

    /// The part of split DWARF that describes a unit. `None` if it is not to be found: then the
    /// unit has lines and no functions.
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

    /// The unit that has code at `addr`.
    fn unit(&self, addr: u64) -> Option<gimli::UnitRef<'_, Slice<'files>>> {
        let mut result = self.dwarf()?.find_dwarf_and_unit(addr);
        loop {
            match result {
                LookupResult::Output(unit) => return unit,
                LookupResult::Load { load, continuation } => {
                    result = continuation.resume(self.split(&load));
                }
            }
        }
    }

    /// What the instruction at `addr` accesses.
    fn accessed(&self, addr: u64) -> Option<Accessed> {
        let unit = self.unit(addr)?;
        let key = std::ptr::from_ref(unit.unit).addr();
        let known = self.units.borrow().get(&key).cloned();
        let index = known.unwrap_or_else(|| {
            let index = Rc::new(UnitIndex::build(unit));
            self.units.borrow_mut().insert(key, index.clone());
            index
        });
        let main = &self.files.main;
        let unwinding = || self.unwinding.get_or_init(|| Unwinding::of(main)).as_ref();
        shape::accessed(
            unit,
            &index,
            addr,
            |start, end| main.bytes_at(start, end),
            || unwinding()?.frame(addr),
        )
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
            unwinding: OnceCell::new(),
            units: RefCell::default(),
        })))
    }

    /// The address, as the ELF file counts, of a file offset.
    pub(crate) fn addr_of_offset(&self, offset: u64) -> Option<u64> {
        self.0.borrow_owner().main.addr_of_offset(offset)
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

    /// What the instruction at `addr` accesses, if that can be said for certain.
    pub(crate) fn accessed(&self, addr: u64) -> Option<Accessed> {
        self.0.with_dependent(|_, parsed| parsed.accessed(addr))
    }

    /// The symbol that covers `addr`, mangled, and the distance from its start.
    pub(crate) fn symbol(&self, addr: u64) -> Option<(String, u64)> {
        self.0.with_dependent(|_, parsed| {
            let (name, offset) = parsed.symbols().find(addr)?;
            Some((String::from_utf8_lossy(name).into_owned(), offset))
        })
    }
}
