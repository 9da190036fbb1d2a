//! What code is called, and what was already answered.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use brownout_trace::epochs::Epoch;
use brownout_trace::event::{ProcessId, TargetAddr};

use crate::demangle::demangle;
use crate::frame::{Frame, Location};
use crate::image::Image;
use crate::locate::Options;
use crate::modules::{CodeAddr, CodePlace, ModuleFile, Modules, Within};
use crate::shape::Accessed;

enum Opened {
    NotYet,
    Failed,
    Image(Box<Image>),
}

/// Answers look-ups for any number of processes. See the crate's header.
pub struct Symbolizer {
    options: Options,
    pub(crate) modules: Modules,
    /// By number of the file, as far as they were asked about.
    opened: Vec<Opened>,
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
            .field("files", &self.modules.files())
            .field("answers", &self.answers.len())
            .finish_non_exhaustive()
    }
}

impl Symbolizer {
    /// One that knows no module yet.
    pub fn new(options: Options) -> Symbolizer {
        Symbolizer::over(Modules::default(), options)
    }

    /// One that knows these modules, and whatever is in terms of their files.
    pub(crate) fn over(modules: Modules, options: Options) -> Symbolizer {
        Symbolizer {
            options,
            modules,
            opened: Vec::new(),
            answers: HashMap::new(),
            source_names: HashMap::new(),
            accessed: HashMap::new(),
        }
    }

    /// Forgets all processes, for another run. What was read of files is kept: they are taken to be
    /// the same.
    pub fn begin_again(&mut self) {
        self.modules.begin_again();
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
        self.modules.add(process, addr, len, offset, path);
    }

    /// The code at `addr` went away at the end of an epoch of the process.
    pub fn remove_module(&mut self, process: ProcessId, addr: TargetAddr, len: u64, last: Epoch) {
        self.modules.remove(process, addr, len, last);
    }

    /// `process` starts as a copy of `parent` (fork).
    pub fn fork(&mut self, parent: ProcessId, process: ProcessId) {
        self.modules.fork(parent, process);
    }

    /// `process` begins anew with an empty address space (exec) after an epoch.
    pub fn clear(&mut self, process: ProcessId, last: Epoch) {
        self.modules.clear(process, last);
    }

    /// Where the code at `addr` of a process is, now.
    pub fn locate(&self, process: ProcessId, addr: CodeAddr) -> CodePlace {
        self.modules.locate(process, addr)
    }

    /// Where the code at `addr` of a process was in one of its epochs.
    pub fn locate_in(&self, process: ProcessId, epoch: Epoch, addr: CodeAddr) -> CodePlace {
        self.modules.locate_in(process, epoch, addr)
    }

    /// What `addr` means in `process`, now: at least one frame, innermost first; all but the last
    /// are inlined into the last.
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

    /// What the instruction at a place accesses, in the programmer's words, if that can be said for
    /// certain: `root->count`.
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

    /// The module, opened at the first need.
    fn image(&mut self, file: ModuleFile) -> Option<&Image> {
        if self.opened.len() <= file.0 {
            self.opened.resize_with(file.0 + 1, || Opened::NotYet);
        }
        let opened = &mut self.opened[file.0];
        if let Opened::NotYet = opened {
            let path = self.modules.path(file);
            // Names such as `[vdso]` and relative paths must not pick up a file of this process's
            // working directory.
            let image = match path.is_absolute() {
                true => Image::open(path, &self.options).ok(),
                false => None,
            };
            *opened = image.map_or(Opened::Failed, |image| Opened::Image(Box::new(image)));
        }
        match opened {
            Opened::Image(image) => Some(image),
            _ => None,
        }
    }

    fn look_up(&mut self, file: ModuleFile, offset: u64) -> Vec<Frame> {
        self.image(file);
        let plain = Frame {
            module: Some(self.modules.path(file).clone()),
            ..Frame::unknown(offset)
        };
        let Some(Opened::Image(image)) = self.opened.get(file.0) else {
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
