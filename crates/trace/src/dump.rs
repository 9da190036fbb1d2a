//! Prints events: as text for people, as JSON lines for programs.
//!
//! # Text
//!
//! One event a line, whatever it contains: index, thread, kind, what it did, and where in the
//! code (`@pc`, `/c` and the calling context, then the frames if a [`Symbolize`] was given,
//! innermost first, `<` before each caller).
//!
//! ```text
//!       7  t1   store         pool.img+0x40 8 = 0x2a  [0x7e0000000040]  @0x401136/c3  put (kv.c:12)
//! ```
//!
//! # JSON
//!
//! One object a line. Addresses (of data and code) are strings of hexadecimal digits with `0x`,
//! because JSON numbers lose digits above 2^53; everything else that counts is a number.
//!
//! | member | in | meaning |
//! |---|---|---|
//! | `index` | all | place in the stream, from 0 |
//! | `thread`, `pc`, `context` | all | as in [`Event`] |
//! | `process` | all, once known | the thread's process |
//! | `kind` | all | [`EventKind::name`] |
//! | `addr`, `size` | accesses, flushes, mappings | target address; bytes (`len` of mappings) |
//! | `bytes` | accesses, `file_write` | values as hexadecimal digits in address order; absent if not recorded |
//! | `file`, `offset` | accesses, flushes, `signal` | where `addr` lies; absent outside tracked mappings |
//! | `syscall` | `kernel_store`, `lookup` | number |
//! | `file`, `path`, `size`, `reason`, `created` | `file` | definition; `created` is there only if true |
//! | `file`, `offset`, `prot`, `flags` | `map` | `flags` also in `msync` |
//! | `old_addr`, `old_size` | `remap` | besides `addr`, `size`: the new place |
//! | `file`, `size`, `offset` | `truncate`, `file_write`, `file_read`, `fsync`, `fdatasync` | as far as they have them |
//! | `fd`, `size` | `input`, `output` | `size` only of `output` |
//! | `path` | `opened` | as the kernel has it |
//! | `result`, `path` | `lookup` | besides `syscall`; a negative result is an error number |
//! | `change`, `path`, `to`, `file`, `replaced` | `name` | the word of [`NameChange::name`](crate::event::NameChange::name); those that there are |
//! | `signal`, `addr` | `signal` | `addr` is what the fault reports; zero if the signal was sent |
//! | `started`, `parent`, `pid`, `exe` | `process_start` | `started` is the process |
//! | `exited`, `code` or `signal` or `exec` | `process_exit` | `end` has the latter three |
//! | `started`, `of_process`, `tid` | `thread_start` | `started` is the thread |
//! | `addr`, `op`, `val`, `result` | `futex` | |
//! | `code`, `args`, `text` | `pmemcheck`, `annotation` | arguments as hexadecimal strings |
//! | `function`, `args` | `library_call` | name; arguments as hexadecimal strings |
//! | `of_process`, `addr`, `size`, `offset`, `path` | `module` | |
//! | `defined`, `parent`, `return_addr` | `context` | |
//! | `text` | `note` | |
//! | `frames` | all with a pc, given a [`Symbolize`] | array, innermost first: `function`, `file`, `line`, `module`, `module_offset` |
//!
//! Strings that are not UTF-8 have U+FFFD in place of the bad bytes. With
//! [`DumpOptions::keep_going`] a damaged stretch is one line with the single member `gap`:
//! `{"offset_from", "offset_to", "event_from", "event_to", "error"}`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Read, Seek, Write};
use std::ops::Range;

use brownout_kinds::event_kinds;
use serde_json::{Value, json};

use crate::error::Error;
use crate::event::{
    Access, ContextId, Elements, Event, EventKind, ExitStatus, FileId, LIBRARY_FUNCTIONS,
    NameChange, PmReason, ProcessId, TargetAddr, ThreadId, split_names,
};
use crate::maps::{AddressSpaces, Translation};
use crate::reader::Reader;

/// Bytes of a wide value that the text form shows.
const TEXT_BYTES_MAX: usize = 32;

/// Which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// JSON lines.
    Json,
}

/// What to print, and how.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// Default: text.
    pub format: Format,
    /// Only events of this thread. Default: all.
    pub thread: Option<ThreadId>,
    /// Only events with an index in this range. Default: all.
    pub range: Range<u64>,
    /// At most so many. Default: no limit.
    pub limit: Option<u64>,
    /// Frames printed of each calling context. Default 3: enough to tell the caller's purpose.
    pub frames_max: usize,
    /// Step over damaged blocks instead of stopping at the first. Default: stop.
    pub keep_going: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions {
            format: Format::Text,
            thread: None,
            range: 0..u64::MAX,
            limit: None,
            frames_max: 3,
            keep_going: false,
        }
    }
}

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Function, demangled.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Module, for what has no source.
    pub module: Option<String>,
    /// Offset in the module.
    pub module_offset: u64,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.module) {
            (Some(function), _) => write!(f, "{function}")?,
            (None, Some(module)) => write!(f, "{module}+{:#x}", self.module_offset)?,
            (None, None) => write!(f, "?")?,
        }
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            _ => Ok(()),
        }
    }
}

/// Turns code addresses into source places. Implemented where debug information is read.
pub trait Symbolize {
    /// Takes note of an event: `Module` and `Context` define what [`Symbolize::frames`] needs.
    /// Called for every event in order, printed or not.
    fn observe(&mut self, event: &Event<'_>);

    /// The frames of `pc` in `process`, innermost first (inlined ones before their caller),
    /// followed by those of the calling context, about `max` in all.
    fn frames(
        &mut self,
        process: ProcessId,
        pc: TargetAddr,
        context: ContextId,
        max: usize,
    ) -> Vec<Frame>;
}

/// Why a dump stopped early. What was printed before is valid.
#[derive(Debug)]
pub enum DumpError {
    /// The trace could not be read further.
    Trace(Error),
    /// The output failed.
    Output(io::Error),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::Trace(error) => write!(f, "{error}"),
            DumpError::Output(error) => write!(f, "cannot write the dump: {error}"),
        }
    }
}

impl std::error::Error for DumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DumpError::Trace(error) => Some(error),
            DumpError::Output(error) => Some(error),
        }
    }
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> Self {
        DumpError::Output(error)
    }
}

/// What a dump printed.
#[derive(Clone, Debug, Default)]
pub struct Dumped {
    /// Events printed.
    pub events: u64,
    /// Damage that was stepped over, with [`DumpOptions::keep_going`].
    pub errors: Vec<Error>,
}

/// Prints the events of `reader`, from where it stands, that `options` selects.
///
/// Reads from the beginning even if the range starts late, because definitions (files, mappings,
/// modules, contexts) may be anywhere before; stops reading behind the range.
pub fn dump<R: Read + Seek>(
    reader: &mut Reader<R>,
    out: &mut dyn Write,
    options: &DumpOptions,
    mut symbols: Option<&mut dyn Symbolize>,
) -> Result<Dumped, DumpError> {
    let mut dumped = Dumped::default();
    let mut scene = Scene::default();
    let mut line = String::new();
    loop {
        let index = reader.position();
        if index >= options.range.end || options.limit.is_some_and(|limit| dumped.events >= limit) {
            return Ok(dumped);
        }
        let error = match reader.next() {
            Ok(None) => return Ok(dumped),
            Ok(Some(event)) => {
                scene.observe(&event);
                if let Some(symbols) = &mut symbols {
                    symbols.observe(&event);
                }
                let wanted = index >= options.range.start
                    && options.thread.is_none_or(|thread| thread == event.thread);
                if wanted {
                    let frames = match &mut symbols {
                        Some(symbols) if event.pc.0 != 0 => symbols.frames(
                            scene.spaces.process_of(event.thread).unwrap_or_default(),
                            event.pc,
                            event.context,
                            options.frames_max,
                        ),
                        _ => Vec::new(),
                    };
                    let frames = &frames[..frames.len().min(options.frames_max)];
                    line.clear();
                    match options.format {
                        Format::Text => scene.text(&mut line, index, &event, frames),
                        Format::Json => scene.json(&mut line, index, &event, frames),
                    }
                    line.push('\n');
                    out.write_all(line.as_bytes())?;
                    dumped.events += 1;
                }
                continue;
            }
            Err(error) => error,
        };
        if !options.keep_going {
            return Err(DumpError::Trace(error));
        }
        match reader.resync().map_err(DumpError::Trace)? {
            None => return Err(DumpError::Trace(error)),
            Some(gap) => {
                match options.format {
                    Format::Text => writeln!(
                        out,
                        "-- events {}..{} are lost: {error}",
                        gap.event_from, gap.event_to
                    )?,
                    Format::Json => {
                        let gap = json!({"gap": {
                            "error": error.to_string(),
                            "event_from": gap.event_from,
                            "event_to": gap.event_to,
                            "offset_from": gap.offset_from,
                            "offset_to": gap.offset_to,
                        }});
                        writeln!(out, "{gap}")?;
                    }
                }
                dumped.errors.push(error);
            }
        }
    }
}

/// Control characters, those that turn the direction, end a line for some viewers, or show as
/// nothing, and the non-characters that XML forbids.
///
/// The reports have the same set; a test of the command compares them.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(
            c,
            '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
        )
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Bytes as text that stays on one line and in its order, and shows all that it has: such
/// characters are escaped, bad UTF-8 is replaced.
pub fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// What is known at a point of the stream.
#[derive(Default)]
pub(crate) struct Scene {
    spaces: AddressSpaces,
    /// Short names for the text form.
    names: BTreeMap<FileId, String>,
}

impl Scene {
    pub(crate) fn observe(&mut self, event: &Event<'_>) {
        // Contradictions are the verifier's business; a dump shows the stream as it is.
        let _ = self.spaces.observe(event);
        if let EventKind::File { file, path, .. } = event.kind {
            let base = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            let mut name = one_line(base);
            if self.names.values().any(|other| *other == name) {
                let _ = write!(name, "#{file}");
            }
            self.names.insert(file, name);
        }
    }

    fn name(&self, file: FileId) -> String {
        self.names
            .get(&file)
            .cloned()
            .unwrap_or_else(|| format!("file#{file}"))
    }

    /// `pool.img+0x40`, or the address itself outside tracked mappings.
    fn place(&mut self, thread: ThreadId, addr: TargetAddr) -> String {
        match self.spaces.translate(thread, addr) {
            Some(Translation { file, offset, .. }) => format!("{}+{offset:#x}", self.name(file)),
            None => "?".to_owned(),
        }
    }

    // Writing to a `String` cannot fail, so the results of `write!` below say nothing.
    pub(crate) fn text(
        &mut self,
        line: &mut String,
        index: u64,
        event: &Event<'_>,
        frames: &[Frame],
    ) {
        let name = event.kind.name();
        let thread = format!("t{}", event.thread);
        let _ = write!(line, "{index:>8}  {thread:<4} {name:<13} ");
        match &event.kind {
            EventKind::Store(access)
            | EventKind::NtStore(access)
            | EventKind::Load(access)
            | EventKind::Rmw(access)
            | EventKind::StringStore { access, .. }
            | EventKind::KernelStore { access, .. } => {
                let place = self.place(event.thread, access.addr);
                let _ = write!(line, "{place} {}", access.size);
                value_text(line, access.bytes);
                let _ = write!(line, "  [{}]", access.addr);
                if let EventKind::KernelStore { syscall, .. } = event.kind {
                    let _ = write!(line, "  syscall {syscall}");
                }
                if let EventKind::StringStore { elements, .. } = event.kind {
                    let order = if elements.descending {
                        ", last first"
                    } else {
                        ""
                    };
                    let _ = write!(line, "  by {}{order}", elements.bytes);
                }
            }
            EventKind::Flush { addr, .. } => {
                let place = self.place(event.thread, *addr);
                let _ = write!(line, "{place}  [{addr}]");
            }
            EventKind::Fence(_) | EventKind::ThreadExit => {}
            EventKind::File {
                file,
                path,
                size,
                reason,
                created,
            } => {
                let (path, reason) = (one_line(path), reason.name());
                let created = if *created { ", created" } else { "" };
                let _ = write!(
                    line,
                    "file {file} = {path}, {size} bytes, tracked by {reason}{created}"
                );
            }
            EventKind::Map {
                addr,
                len,
                file,
                offset,
                prot,
                flags,
            } => {
                let name = self.name(*file);
                let _ = write!(
                    line,
                    "{addr} {len:#x} of {name}+{offset:#x}, prot {prot:#x}, flags {flags:#x}"
                );
            }
            EventKind::Unmap { addr, len } => {
                let _ = write!(line, "{addr} {len:#x}");
            }
            EventKind::Remap {
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                let _ = write!(line, "{old_addr} {old_len:#x} to {new_addr} {new_len:#x}");
            }
            EventKind::Truncate { file, size } => {
                let name = self.name(*file);
                let _ = write!(line, "{name} to {size} bytes");
            }
            EventKind::FileWrite {
                file,
                offset,
                size,
                bytes,
            } => {
                let name = self.name(*file);
                let _ = write!(line, "{name}+{offset:#x} {size}");
                value_text(line, bytes);
            }
            EventKind::FileRead { file, offset, size } => {
                let name = self.name(*file);
                let _ = write!(line, "{name}+{offset:#x} {size}");
            }
            EventKind::FileSync { file, offset, size } => {
                let name = self.name(*file);
                let _ = write!(line, "{name}+{offset:#x} {size}");
            }
            EventKind::Input { fd, at } => {
                let _ = write!(line, "fd {fd}");
                if *at != u64::MAX {
                    let _ = write!(line, " at {at}");
                }
            }
            EventKind::Output { fd, size } => {
                let _ = write!(line, "fd {fd}, {size}");
            }
            EventKind::Lookup {
                syscall,
                result,
                path,
            } => {
                let path = one_line(path);
                let _ = write!(line, "{path}, syscall {syscall}, result {result}");
            }
            EventKind::Opened { path } => line.push_str(&one_line(path)),
            EventKind::Name {
                change,
                file,
                replaced,
                names,
            } => {
                let (path, to) = split_names(names);
                let _ = write!(line, "{} {}", change.name(), one_line(path));
                if !to.is_empty() {
                    let _ = write!(line, " to {}", one_line(to));
                }
                if *file != FileId(0) {
                    let _ = write!(line, ", file {file}");
                }
                if *replaced != FileId(0) {
                    let _ = write!(line, ", replaces file {replaced}");
                }
            }
            EventKind::Signal { signal, addr } => {
                let place = self.place(event.thread, *addr);
                let _ = write!(line, "{signal}, {place}  [{addr}]");
            }
            EventKind::Atomic { addr } => {
                let _ = write!(line, "{addr}");
            }
            EventKind::FlushOutside { addr, word } => {
                let _ = write!(line, "{addr}, which holds {word:#x}");
            }
            EventKind::Msync { addr, len, flags } => {
                let place = self.place(event.thread, *addr);
                let _ = write!(line, "{place} {len:#x}, flags {flags:#x}  [{addr}]");
            }
            EventKind::Fsync { file, .. } => {
                let name = self.name(*file);
                line.push_str(&name);
            }
            EventKind::ProcessStart {
                process,
                parent,
                pid,
                exe,
            } => {
                let exe = one_line(exe);
                let _ = write!(line, "process {process} of {parent}, pid {pid}, {exe}");
            }
            EventKind::ProcessExit { process, status } => {
                let _ = write!(line, "process {process}: {status}");
            }
            EventKind::ThreadStart {
                thread,
                process,
                tid,
            } => {
                let _ = write!(line, "thread {thread} of process {process}, tid {tid}");
            }
            EventKind::Futex {
                addr,
                op,
                val,
                result,
            } => {
                let _ = write!(line, "{addr} op {op:#x} val {val} = {result}");
            }
            EventKind::Stuck { addr } => {
                let _ = match addr.0 {
                    0 => write!(line, "all threads wait for each other"),
                    _ => write!(line, "all threads wait for each other; this one at {addr}"),
                };
            }
            EventKind::Pmemcheck { code, args, text } => request_text(line, *code, args, text),
            EventKind::Annotation { code, args, text } => request_text(line, *code, args, text),
            EventKind::LibraryCall { function, args } => {
                let _ = write!(line, "{}", library_function(*function));
                for arg in args {
                    let _ = write!(line, " {arg:#x}");
                }
            }
            EventKind::Module {
                process,
                addr,
                len,
                offset,
                path,
            } => {
                let path = one_line(path);
                let _ = write!(
                    line,
                    "{addr} {len:#x} of {path}+{offset:#x} in process {process}"
                );
            }
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => {
                let _ = write!(line, "c{context} = c{parent} / {return_addr}");
            }
            EventKind::Note { text } => line.push_str(&one_line(text)),
            EventKind::End { status } => {
                let _ = write!(line, "{status}");
            }
        }
        if event.pc.0 != 0 {
            let _ = write!(line, "  @{}", event.pc);
            if event.context.0 != 0 {
                let _ = write!(line, "/c{}", event.context);
            }
        }
        for (nth, frame) in frames.iter().enumerate() {
            let separator = if nth == 0 { "  " } else { " < " };
            line.push_str(separator);
            line.push_str(&one_line(frame.to_string().as_bytes()));
        }
        let kept = line.trim_end().len();
        line.truncate(kept);
    }

    fn json(&mut self, line: &mut String, index: u64, event: &Event<'_>, frames: &[Frame]) {
        // By hand, because the order of a `serde_json::Map` depends on a feature that any crate
        // of a build may turn on.
        let mut put = |name: &str, value: Value| {
            let separator = if line.is_empty() { '{' } else { ',' };
            let _ = write!(line, "{separator}\"{name}\":{value}");
        };
        let hex = |n: u64| Value::from(format!("{n:#x}"));
        put("index", index.into());
        put("kind", event.kind.name().into());
        put("thread", event.thread.0.into());
        if let Some(process) = self.spaces.process_of(event.thread) {
            put("process", process.0.into());
        }
        put("pc", hex(event.pc.0));
        put("context", event.context.0.into());
        for turn in [Turn::First, Turn::Second] {
            let mut members = Members {
                put: &mut put,
                turn,
                thread: event.thread,
                spaces: &mut self.spaces,
            };
            members_of(&event.kind, &mut members);
        }
        if !frames.is_empty() {
            let frames = frames.iter().map(|frame| {
                json!({
                    "file": frame.file,
                    "function": frame.function,
                    "line": frame.line,
                    "module": frame.module,
                    "module_offset": frame.module_offset,
                })
            });
            put("frames", frames.collect());
        }
        line.push('}');
    }
}

/// Some fields come first in an object, wherever the kind has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Second,
}

/// Where the members of one event go, in one of the two turns. One method for each way to show a
/// field that the table of kinds names.
struct Members<'m> {
    put: &'m mut dyn FnMut(&str, Value),
    turn: Turn,
    thread: ThreadId,
    spaces: &'m mut AddressSpaces,
}

impl Members<'_> {
    fn put(&mut self, turn: Turn, name: &str, value: impl Into<Value>) {
        if self.turn == turn {
            (self.put)(name, value.into());
        }
    }

    /// As its type is shown.
    fn member(&mut self, name: &str, field: &impl Member) {
        let (name, value) = field.member(name);
        self.put(Turn::Second, name, value);
    }
    fn first(&mut self, name: &str, field: &impl Member) {
        let (name, value) = field.member(name);
        self.put(Turn::First, name, value);
    }
    /// An address, and where in a file that is.
    fn placed(&mut self, name: &str, addr: &TargetAddr) {
        self.first(name, addr);
        if let Some(place) = self.spaces.translate(self.thread, *addr) {
            self.first("file", &place.file);
            self.first("offset", &place.offset);
        }
    }
    fn access(&mut self, name: &str, access: &Access<'_>) {
        self.placed(name, &access.addr);
        self.first("size", &access.size);
        if !access.bytes.is_empty() {
            self.put(Turn::First, "bytes", hex_digits(access.bytes));
        }
    }
    fn elements(&mut self, name: &str, elements: &Elements) {
        self.put(Turn::Second, name, elements.bytes);
        self.put(Turn::Second, "descending", elements.descending);
    }
    fn digits(&mut self, name: &str, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put(Turn::Second, name, hex_digits(bytes));
        }
    }
    fn hex(&mut self, name: &str, word: &u64) {
        self.member(name, &TargetAddr(*word));
    }
    fn function(&mut self, name: &str, function: &u32) {
        self.put(Turn::Second, name, library_function(*function));
    }
    fn if_true(&mut self, name: &str, flag: &bool) {
        if *flag {
            self.put(Turn::Second, name, true);
        }
    }
    fn if_any(&mut self, name: &str, file: &FileId) {
        if *file != FileId(0) {
            self.member(name, file);
        }
    }
    fn names(&mut self, name: &str, names: &[u8]) {
        let (path, to) = split_names(names);
        self.put(Turn::First, name, lossy(path));
        if !to.is_empty() {
            self.put(Turn::First, "to", lossy(to));
        }
    }
    /// The kind's name tells it.
    fn named(&mut self, _: &str, _: &bool) {}
}

/// What a field's type looks like in JSON.
trait Member {
    /// The member's name, which is `name` for all but those that are told apart by it, and its
    /// value.
    fn member<'n>(&self, name: &'n str) -> (&'n str, Value);
}

macro_rules! plain_members {
    ($($ty:ty: $field:ident => $value:expr;)*) => { $(
        impl Member for $ty {
            fn member<'n>(&self, name: &'n str) -> (&'n str, Value) {
                let $field = *self;
                (name, $value)
            }
        }
    )* };
}
plain_members! {
    u64: number => number.into();
    i64: number => number.into();
    u32: number => number.into();
    i32: number => number.into();
    FileId: id => id.0.into();
    ProcessId: id => id.0.into();
    ThreadId: id => id.0.into();
    ContextId: id => id.0.into();
    TargetAddr: addr => addr.to_string().into();
    PmReason: reason => reason.name().into();
    NameChange: change => change.name().into();
    &[u8]: text => lossy(text);
}

impl<const N: usize> Member for [u64; N] {
    fn member<'n>(&self, name: &'n str) -> (&'n str, Value) {
        let args = self.iter().map(|arg| Value::from(format!("{arg:#x}")));
        (name, args.collect())
    }
}

impl Member for ExitStatus {
    fn member<'n>(&self, _: &'n str) -> (&'n str, Value) {
        match *self {
            ExitStatus::Code(code) => ("code", code.into()),
            ExitStatus::Signal(signal) => ("signal", signal.into()),
            ExitStatus::Exec => ("exec", true.into()),
        }
    }
}

/// What the JSON form needs of the table of kinds: the members.
macro_rules! define_members {
    (
        ring {
            $(
                $(#[$_doc:meta])*
                $_tag:literal $_TAG:ident ring $_ring:literal $_name:literal $Kind:ident
                $({ $( $(#[$_field_doc:meta])* $field:ident: $_ty:ty = $_place:ident, $how:ident $member:literal; )* })?
            )*
        }
        other {
            $(
                $(#[$_other_doc:meta])*
                $_other_tag:literal $_OTHER_TAG:ident $_other_name:literal $Other:ident
                { $( $(#[$_other_field_doc:meta])* $other_field:ident: $_other_ty:ty = $_other_place:ident, $other_how:ident $other_member:literal; )* }
            )*
        }
    ) => {
        fn members_of(kind: &EventKind<'_>, members: &mut Members<'_>) {
            match kind {
                EventKind::Store(access)
                | EventKind::NtStore(access)
                | EventKind::Load(access)
                | EventKind::Rmw(access) => members.access("addr", access),
                EventKind::Flush { addr, .. } => members.placed("addr", addr),
                EventKind::Fence(_) => {}
                $( EventKind::$Other { $( $other_field, )* } => {
                    $( members.$other_how($other_member, $other_field); )*
                } )*
                $( EventKind::$Kind { $($( $field, )*)? } => {
                    $($( members.$how($member, $field); )*)?
                } )*
            }
        }
    };
}

event_kinds!(define_members);

fn value_text(line: &mut String, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if bytes.len() <= 8 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let _ = write!(line, " = {:#x}", u64::from_le_bytes(word));
        return;
    }
    line.push_str(" =");
    for (nth, byte) in bytes.iter().take(TEXT_BYTES_MAX).enumerate() {
        let space = if nth % 8 == 0 { " " } else { "" };
        let _ = write!(line, "{space}{byte:02x}");
    }
    if bytes.len() > TEXT_BYTES_MAX {
        let _ = write!(line, " … {} more", bytes.len() - TEXT_BYTES_MAX);
    }
}

fn request_text(line: &mut String, code: u32, args: &[u64], text: &[u8]) {
    let _ = write!(line, "request {code}:");
    for arg in args {
        let _ = write!(line, " {arg:#x}");
    }
    if !text.is_empty() {
        let _ = write!(line, " \"{}\"", one_line(text));
    }
}

fn library_function(number: u32) -> &'static str {
    LIBRARY_FUNCTIONS
        .get(number as usize)
        .copied()
        .unwrap_or("unknown")
}

fn lossy(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

fn hex_digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
