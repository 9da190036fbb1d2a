//! Which module an address belongs to, and what was already answered.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ProcessId, TargetAddr};

use crate::demangle::demangle;
use crate::frame::{Frame, Location};
use crate::image::Image;
use crate::locate::Options;
use crate::shape::Accessed;

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

/// Index into [`Symbolizer::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ModuleFile(usize);

/// A mapped range of a module's file.
#[derive(Clone, Copy)]
struct Mapping {
    end: u64,
    /// Offset in the file of the range's first byte.
    offset: u64,
    file: ModuleFile,
}

/// The code of one process.
#[derive(Clone, Default)]
struct Code {
    /// What is mapped now, by first address.
    now: BTreeMap<u64, Mapping>,
    /// What has gone, by time: the last epoch in which it was there, its first address, the mapping.
    gone: Vec<(Epoch, u64, Mapping)>,
}

/// Code in terms of files: what an address meant when it was asked about. It stays true when other code comes to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodePlace(Within);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Within {
    /// An offset in a module's file.
    File(ModuleFile, u64),
    /// An address in no module.
    NoFile(u64),
}

enum Opened {
    NotYet,
    Failed,
    Image(Box<Image>),
}

struct FileEntry {
    path: Arc<Path>,
    opened: Opened,
}

/// Answers look-ups for any number of processes. See the crate's header.
pub struct Symbolizer {
    options: Options,
    files: Vec<FileEntry>,
    file_by_path: HashMap<Arc<Path>, ModuleFile>,
    /// By process, by first address; ranges do not overlap.
    code: HashMap<ProcessId, Code>,
    /// By place in a file and not by address, so that it is shared between processes and stays
    /// right when an address range is reused. Bounded by the amount of distinct code asked about.
    answers: HashMap<(ModuleFile, u64), Arc<[Frame]>>,
    source_names: HashMap<String, Arc<str>>,
    /// What instructions access, by place in a file.
    accessed: HashMap<(ModuleFile, u64), Option<Accessed>>,
}

impl fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbolizer")
            .field("options", &self.options)
            .field("files", &self.files.len())
            .field("answers", &self.answers.len())
            .finish_non_exhaustive()
    }
}

impl Symbolizer {
    /// One that knows no module yet.
    pub fn new(options: Options) -> Symbolizer {
        Symbolizer {
            options,
            files: Vec::new(),
            file_by_path: HashMap::new(),
            code: HashMap::new(),
            answers: HashMap::new(),
            source_names: HashMap::new(),
            accessed: HashMap::new(),
        }
    }

    /// Forgets all processes, for another run. What was read of files is kept: they are taken to be the same.
    pub fn begin_again(&mut self) {
        self.code.clear();
    }

    /// Code of `path` from `offset` on was mapped at `addr`. Replaces what was there before.
    pub fn add_module(
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
    pub fn remove_module(&mut self, process: ProcessId, addr: TargetAddr, len: u64, last: Epoch) {
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
        self.remove_module(process, TargetAddr(0), u64::MAX, last);
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

    /// What `addr` means in `process`, now: at least one frame, innermost first; all but the last are
    /// inlined into the last.
    pub fn frames(&mut self, process: ProcessId, addr: CodeAddr) -> Arc<[Frame]> {
        self.frames_at(self.locate(process, addr))
    }

    /// The frames of a place.
    pub fn frames_at(&mut self, place: CodePlace) -> Arc<[Frame]> {
        let key = match place.0 {
            Within::File(file, offset) => (file, offset),
            Within::NoFile(addr) => return Arc::new([Frame::unknown(addr)]),
        };
        if let Some(answer) = self.answers.get(&key) {
            return answer.clone();
        }
        let answer: Arc<[Frame]> = self.look_up(key.0, key.1).into();
        self.answers.insert(key, answer.clone());
        answer
    }

    /// What the instruction at a place accesses, in the programmer's words, if that can be said for certain: `root->count`.
    pub fn accessed_at(&mut self, place: CodePlace) -> Option<Accessed> {
        let Within::File(file, offset) = place.0 else {
            return None;
        };
        if let Some(known) = self.accessed.get(&(file, offset)) {
            return known.clone();
        }
        let found = self.image(file).and_then(|image| {
            let addr = image.addr_of_offset(offset)?;
            image.accessed(addr)
        });
        self.accessed.insert((file, offset), found.clone());
        found
    }

    fn intern(&mut self, path: &Path) -> ModuleFile {
        if let Some(file) = self.file_by_path.get(path) {
            return *file;
        }
        let path: Arc<Path> = path.into();
        let file = ModuleFile(self.files.len());
        self.files.push(FileEntry {
            path: path.clone(),
            opened: Opened::NotYet,
        });
        self.file_by_path.insert(path, file);
        file
    }

    /// The module, opened at the first need.
    fn image(&mut self, file: ModuleFile) -> Option<&Image> {
        let entry = &mut self.files[file.0];
        if let Opened::NotYet = entry.opened {
            // Names such as `[vdso]` and relative paths must not pick up a file of this process's
            // working directory.
            let image = match entry.path.is_absolute() {
                true => Image::open(&entry.path, &self.options).ok(),
                false => None,
            };
            entry.opened = image.map_or(Opened::Failed, |image| Opened::Image(Box::new(image)));
        }
        match &entry.opened {
            Opened::Image(image) => Some(image),
            _ => None,
        }
    }

    fn look_up(&mut self, file: ModuleFile, offset: u64) -> Vec<Frame> {
        self.image(file);
        let entry = &self.files[file.0];
        let plain = Frame {
            module: Some(entry.path.clone()),
            ..Frame::unknown(offset)
        };
        let Opened::Image(image) = &entry.opened else {
            return vec![plain];
        };
        let Some(addr) = image.addr_of_offset(offset) else {
            return vec![plain];
        };
        let plain = Frame {
            module_addr: addr,
            ..plain
        };

        let mut frames = Vec::new();
        let source_names = &mut self.source_names;
        image.each_frame(addr, |raw| {
            let location = raw.file.map(|file| Location {
                file: shared(source_names, file),
                line: raw.line,
                column: raw.column,
            });
            let function = raw.function.map(|name| Arc::from(demangle(&name)));
            frames.push(Frame {
                function,
                location,
                inlined: true,
                ..plain.clone()
            });
        });
        let mut outermost = frames.pop().unwrap_or(plain);
        outermost.inlined = false;
        if outermost.function.is_none()
            && let Some((name, offset)) = image.symbol(addr)
        {
            outermost.function = Some(Arc::from(demangle(&name)));
            outermost.function_offset = Some(offset);
        }
        frames.push(outermost);
        frames
    }
}

/// One copy of each source path.
fn shared(names: &mut HashMap<String, Arc<str>>, name: &str) -> Arc<str> {
    match names.get(name) {
        Some(shared) => shared.clone(),
        None => names
            .entry(name.to_owned())
            .or_insert_with(|| Cow::Borrowed(name).into())
            .clone(),
    }
}

/// Removes `start..end` from the ranges, keeping the rest of those that are cut. Returns what was removed.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(symbolizer: &mut Symbolizer, process: u32, addr: u64) -> String {
        symbolizer.frames(ProcessId(process), CodeAddr::Pc(TargetAddr(addr)))[0].to_string()
    }

    fn symbolizer() -> Symbolizer {
        Symbolizer::new(Options {
            debug_roots: vec![],
            debuginfod_cache: None,
            names_only: Vec::new(),
        })
    }

    #[test]
    fn a_later_module_replaces_what_it_covers() {
        let mut s = symbolizer();
        s.add_module(ProcessId(1), TargetAddr(0x1000), 0x4000, 0, b"/none/a");
        s.add_module(
            ProcessId(1),
            TargetAddr(0x2000),
            0x1000,
            0x70000,
            b"/none/b",
        );
        assert_eq!(at(&mut s, 1, 0xfff), "0xfff");
        assert_eq!(at(&mut s, 1, 0x1fff), "a+0xfff");
        assert_eq!(at(&mut s, 1, 0x2001), "b+0x70001");
        assert_eq!(at(&mut s, 1, 0x3000), "a+0x2000");
        assert_eq!(at(&mut s, 1, 0x5000), "0x5000");
        s.add_module(ProcessId(1), TargetAddr(0), 0x10000, 0, b"/none/c");
        assert_eq!(at(&mut s, 1, 0x2001), "c+0x2001");
    }

    #[test]
    fn processes_are_separate_and_inherit_by_fork() {
        let mut s = symbolizer();
        s.add_module(ProcessId(1), TargetAddr(0x1000), 0x1000, 0, b"/none/a");
        assert_eq!(at(&mut s, 2, 0x1000), "0x1000");
        s.fork(ProcessId(1), ProcessId(2));
        assert_eq!(at(&mut s, 2, 0x1000), "a+0x0");
        s.clear(ProcessId(2), Epoch(0));
        assert_eq!(at(&mut s, 2, 0x1000), "0x1000");
        assert_eq!(at(&mut s, 1, 0x1000), "a+0x0");
    }

    #[test]
    fn what_has_gone_keeps_its_name_in_its_epoch() {
        let mut s = symbolizer();
        let process = ProcessId(1);
        let pc = CodeAddr::Pc(TargetAddr(0x1800));
        let name = |s: &mut Symbolizer, epoch| {
            let place = s.locate_in(process, Epoch(epoch), pc);
            s.frames_at(place)[0].to_string()
        };
        s.add_module(process, TargetAddr(0x1000), 0x1000, 0, b"/none/a");
        s.remove_module(process, TargetAddr(0x1400), 0x800, Epoch(0));
        s.add_module(process, TargetAddr(0x1800), 0x1000, 0x40, b"/none/b");
        s.clear(process, Epoch(1));
        s.add_module(process, TargetAddr(0x1000), 0x1000, 0, b"/none/c");
        assert_eq!(name(&mut s, 0), "a+0x800");
        assert_eq!(name(&mut s, 1), "b+0x40");
        assert_eq!(name(&mut s, 2), "c+0x800");
        assert_eq!(at(&mut s, 1, 0x1000), "c+0x0");
        // A place is what it was, whatever happens later.
        let place = s.locate(process, pc);
        s.clear(process, Epoch(2));
        assert_eq!(s.frames_at(place)[0].to_string(), "c+0x800");
    }

    #[test]
    fn odd_modules_are_harmless() {
        let mut s = symbolizer();
        s.add_module(ProcessId(1), TargetAddr(0x1000), 0x1000, 0, b"[vdso]");
        s.add_module(ProcessId(1), TargetAddr(0x2000), 0x1000, 0, b"/dev/null");
        s.add_module(ProcessId(1), TargetAddr(0x3000), 0x1000, u64::MAX, b"/");
        s.add_module(
            ProcessId(1),
            TargetAddr(u64::MAX - 1),
            0x1000,
            0,
            b"/none/\xff\n",
        );
        s.add_module(ProcessId(1), TargetAddr(0x4000), 0, 0, b"");
        assert_eq!(at(&mut s, 1, 0x1010), "[vdso]+0x10");
        assert_eq!(at(&mut s, 1, 0x2010), "null+0x10");
        assert_eq!(at(&mut s, 1, 0x3001), "/+0x0");
        assert_eq!(at(&mut s, 1, 0x4000), "0x4000");
        let zero = s.frames(ProcessId(1), CodeAddr::Return(TargetAddr(0)));
        assert_eq!(zero[0].to_string(), "0x0");
    }
}
