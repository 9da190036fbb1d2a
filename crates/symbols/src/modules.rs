//! Which file an address of code belongs to: of any number of processes, whose code comes and goes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ProcessId, TargetAddr};

/// An address of code, and which instruction it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddr {
    /// The instruction at this address.
    Pc(TargetAddr),
    /// The call that returns to this address. It lies before, and may be the last of its function:
    /// the address itself can belong to the next line, or the next function.
    Return(TargetAddr),
}

impl CodeAddr {
    fn lookup_addr(self) -> u64 {
        match self {
            CodeAddr::Pc(addr) => addr.0,
            CodeAddr::Return(addr) => addr.0.saturating_sub(1),
        }
    }
}

/// The number of a file of code, in the order in which they were first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleFile(pub(crate) usize);

/// A mapped range of a module's file.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    /// Offset in the file of the range's first byte.
    offset: u64,
    file: ModuleFile,
}

/// The code of one process.
#[derive(Clone, Debug, Default)]
struct Code {
    /// What is mapped now, by first address.
    now: BTreeMap<u64, Mapping>,
    /// What has gone, by time: the last epoch in which it was there, its first address, the
    /// mapping.
    gone: Vec<(Epoch, u64, Mapping)>,
}

/// Code in terms of files: what an address meant when it was asked about. It stays true when other
/// code comes to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePlace(pub(crate) Within);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Within {
    /// An offset in a module's file.
    File(ModuleFile, u64),
    /// An address in no module.
    NoFile(u64),
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modules {
    paths: Vec<Arc<Path>>,
    file_by_path: HashMap<Arc<Path>, ModuleFile>,
    /// By process, by first address; ranges do not overlap.
    code: HashMap<ProcessId, Code>,
}

impl Modules {
    /// Forgets all processes, for another run. Files keep their numbers.
    pub fn begin_again(&mut self) {
        self.code.clear();
    }

    /// The name of a file.
    pub fn path(&self, file: ModuleFile) -> &Arc<Path> {
        &self.paths[file.0]
    }

    /// All files, with their numbers.
    pub fn paths(&self) -> impl Iterator<Item = (ModuleFile, &Arc<Path>)> {
        let paths = self.paths.iter().enumerate();
        paths.map(|(number, path)| (ModuleFile(number), path))
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.paths.len()
    }

    /// Code of `path` from `offset` on was mapped at `addr`. Replaces what was there before.
    pub fn add(
        &mut self,
        process: ProcessId,
        addr: TargetAddr,
        len: u64,
        offset: u64,
        path: &[u8],
    ) {
        let file = self.intern(Path::new(OsStr::from_bytes(path)));
        let start = addr.0;
        let end = start.saturating_add(len);
        if end > start {
            let mappings = &mut self.code.entry(process).or_default().now;
            carve(mappings, start, end);
            mappings.insert(start, Mapping { end, offset, file });
        }
    }

    /// The code at `addr` went away at the end of an epoch of the process.
    pub fn remove(&mut self, process: ProcessId, addr: TargetAddr, len: u64, last: Epoch) {
        let code = self.code.entry(process).or_default();
        let gone = carve(&mut code.now, addr.0, addr.0.saturating_add(len));
        let gone = gone
            .into_iter()
            .map(|(start, mapping)| (last, start, mapping));
        code.gone.extend(gone);
    }

    /// `process` starts as a copy of `parent` (fork).
    pub fn fork(&mut self, parent: ProcessId, process: ProcessId) {
        let now = self.code.get(&parent).map(|code| code.now.clone());
        let code = Code {
            now: now.unwrap_or_default(),
            gone: Vec::new(),
        };
        self.code.insert(process, code);
    }

    /// `process` begins anew with an empty address space (exec) after an epoch.
    pub fn clear(&mut self, process: ProcessId, last: Epoch) {
        self.remove(process, TargetAddr(0), u64::MAX, last);
    }

    /// Where the code at `addr` of a process is, now.
    pub fn locate(&self, process: ProcessId, addr: CodeAddr) -> CodePlace {
        self.locate_in(process, Epoch(u32::MAX), addr)
    }

    /// Where the code at `addr` of a process was in one of its epochs.
    pub fn locate_in(&self, process: ProcessId, epoch: Epoch, addr: CodeAddr) -> CodePlace {
        let addr = addr.lookup_addr();
        let offset = |start: u64, mapping: &Mapping| {
            (start <= addr && addr < mapping.end).then(|| {
                let offset = (addr - start).wrapping_add(mapping.offset);
                CodePlace(Within::File(mapping.file, offset))
            })
        };
        let Some(code) = self.code.get(&process) else {
            return CodePlace(Within::NoFile(addr));
        };
        // What went first after the epoch was there in it.
        let since = code.gone.partition_point(|(last, ..)| *last < epoch);
        let gone = code.gone[since..].iter();
        gone.filter_map(|(_, start, mapping)| offset(*start, mapping))
            .next()
            .or_else(|| {
                let (start, mapping) = code.now.range(..=addr).next_back()?;
                offset(*start, mapping)
            })
            .unwrap_or(CodePlace(Within::NoFile(addr)))
    }

    fn intern(&mut self, path: &Path) -> ModuleFile {
        if let Some(file) = self.file_by_path.get(path) {
            return *file;
        }
        let path: Arc<Path> = path.into();
        let file = ModuleFile(self.paths.len());
        self.paths.push(path.clone());
        self.file_by_path.insert(path, file);
        file
    }
}

/// Removes `start..end` from the ranges, keeping the rest of those that are cut. Returns what was
/// removed.
fn carve(mappings: &mut BTreeMap<u64, Mapping>, start: u64, end: u64) -> Vec<(u64, Mapping)> {
    let mut removed = Vec::new();
    let overlapping: Vec<(u64, Mapping)> = mappings
        .range(..end)
        .rev()
        .take_while(|(_, mapping)| mapping.end > start)
        .map(|(first, mapping)| (*first, *mapping))
        .collect();
    for (first, mapping) in overlapping {
        mappings.remove(&first);
        if first < start {
            mappings.insert(
                first,
                Mapping {
                    end: start,
                    ..mapping
                },
            );
        }
        if mapping.end > end {
            let offset = mapping.offset.wrapping_add(end - first);
            mappings.insert(end, Mapping { offset, ..mapping });
        }
        let from = first.max(start);
        let cut = Mapping {
            end: mapping.end.min(end),
            offset: mapping.offset.wrapping_add(from - first),
            ..mapping
        };
        removed.push((from, cut));
    }
    removed
}
