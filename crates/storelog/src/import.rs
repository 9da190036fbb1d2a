//! Reads a store log as events.
//!
//! | element | events |
//! |---|---|
//! | `START` | `ProcessStart` (process 1), `ThreadStart` (thread 1) |
//! | `REGISTER_FILE;path;base;size;offset` | `File` (once a path), `Map` |
//! | `STORE;addr;value;size[;frame…]` | `Context` (once a call stack), `Store` with its bytes |
//! | `FLUSH;addr;size` | `Flush(Clwb)` for each line that the range touches |
//! | `FENCE` | `Fence(Sfence)` |
//! | `STOP` | `ProcessExit`, `End` |
//! | a message of Valgrind | `Note` |
//! | anything else | `Annotation` `MARKER` with the element as its text |
//!
//! Guarantee: the events are sound as those of a recording are (definitions first). Whatever the
//! bytes, the importer yields events or an error that says where, never panics, and holds one
//! element, the distinct call stacks and the file names. A log that is cut off yields all its whole
//! elements and then [`Error::Truncated`].
//!
//! Before `START` only Valgrind's banner is looked at (process number, command). After `STOP`
//! nothing but its summary may follow.
//!
//! Deviations, since the log does not say more:
//! 1. All is done by thread 1. The log knows no threads, and a fence in it completes all flushes.
//! 2. Every write-back is a `clwb`. Behind a `clflush` pmemcheck writes a `FENCE` by itself, which
//!    has the same effect.
//! 3. Non-temporal stores and locked instructions are plain stores. libpmem's flush request behind
//!    its non-temporal stores is in the log as a `FLUSH`.
//! 4. Mappings never end before the process does.
//! 5. Stores outside every registered file belong to a file `[unregistered]`, whose offsets are
//!    addresses.
//! 6. The exit status is 0.
//!
//! ```
//! use brownout_storelog::Importer;
//!
//! let log: &[u8] = b"START|STORE;0x7f0000000000;0x1;0x8;0x401136: main (a.c:5)|FENCE|STOP\n";
//! let mut importer = Importer::new(log);
//! while let Some((event, frames)) = importer.next_with_frames()? {
//!     println!("{:?} {:?}", event.kind, frames.get(event.context));
//! }
//! # Ok::<(), brownout_storelog::Error>(())
//! ```

use std::collections::{HashMap, VecDeque};
use std::io::Read;

use brownout_trace::annotation::MARKER;
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind, PmReason,
    ProcessId, TargetAddr, ThreadId,
};

use crate::LINE;
use crate::elements::{Element, Elements};
use crate::error::Error;
use crate::frames::{Frames, Known, Stack};
use crate::ranges::Ranges;

/// Largest store. pmemcheck cuts stores into words; 256 bytes is what it could ever meet.
const STORE_SIZE_MAX: u64 = 1 << 20;
/// Largest flush: more persistent memory than a machine holds, and an end to counting its lines.
const FLUSH_SIZE_MAX: u64 = 1 << 40;
const PAGE: u64 = 4096;
/// How much is mapped around a store to an unregistered place.
const UNREGISTERED_MAP_LEN: u64 = 2 << 20;
const UNREGISTERED: &[u8] = b"[unregistered]";

const PROCESS: ProcessId = ProcessId(1);
const THREAD: ThreadId = ThreadId(1);
/// Of `<sys/mman.h>`.
const PROT_READ_WRITE: u32 = 3;
const MAP_SHARED: u32 = 1;

/// Reads events from the store log `R`, which need not be buffered.
pub struct Importer<R> {
    elements: Elements<R>,
    state: State,
    /// Events of the last element that are still to be given out.
    steps: VecDeque<Step>,
    /// What they refer to.
    scratch: Scratch,
    frames: Frames,
    files: HashMap<Vec<u8>, FileId>,
    /// Addresses that lie in a mapping.
    mapped: Ranges,
    /// The part of it that the last store went to.
    recent: (u64, u64),
    /// The rest of this line belongs to a message of Valgrind.
    in_message: bool,
    /// Call stacks had to be left out, and a note says so.
    frames_full: bool,
    events: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// `START` is still to come.
    Before,
    Inside,
    /// `STOP` was there.
    After,
    Ended,
    Failed(Error),
}

/// Payload of the events of one element.
#[derive(Debug, Default)]
struct Scratch {
    pid: u32,
    exe: Vec<u8>,
    path: Vec<u8>,
    bytes: Vec<u8>,
    marker: Vec<u8>,
    message: Vec<u8>,
}

/// An event to come, without its payload.
#[derive(Clone, Copy, Debug)]
enum Step {
    ProcessStart,
    ThreadStart,
    File {
        file: FileId,
        size: u64,
        unregistered: bool,
    },
    Map {
        addr: u64,
        len: u64,
        file: FileId,
        offset: u64,
    },
    Context(Stack),
    Store {
        addr: u64,
        stack: Stack,
    },
    /// One `Flush` a line, from this line to the last.
    Flush {
        line: u64,
        last: u64,
    },
    Fence,
    Marker,
    Message,
    FramesFull,
    ProcessExit,
    End,
}

impl<R: Read> Importer<R> {
    /// Nothing is read yet.
    pub fn new(input: R) -> Importer<R> {
        Importer {
            elements: Elements::new(input),
            state: State::Before,
            steps: VecDeque::new(),
            scratch: Scratch::default(),
            frames: Frames::default(),
            files: HashMap::new(),
            mapped: Ranges::default(),
            // Holds nothing, so that the first store looks.
            recent: (1, 0),
            in_message: false,
            frames_full: false,
            events: 0,
        }
    }

    /// The next event; `None` when the log ended in order. After an error the same error again.
    #[allow(
        clippy::should_implement_trait,
        reason = "the event borrows from the importer"
    )]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        Ok(self.next_with_frames()?.map(|(event, _)| event))
    }

    /// The next event with the call stacks known so far, for who wants them at once.
    pub fn next_with_frames(&mut self) -> Result<Option<(Event<'_>, &Frames)>, Error> {
        while self.steps.is_empty() {
            match &self.state {
                State::Ended => return Ok(None),
                State::Failed(error) => return Err(error.clone()),
                State::Before | State::Inside | State::After => {}
            }
            if let Err(error) = self.read_element() {
                self.steps.clear();
                self.state = State::Failed(error.clone());
                return Err(error);
            }
        }
        let Some(step) = self.steps.pop_front() else {
            return Ok(None);
        };
        if let Step::Flush { line, last } = step
            && line < last
        {
            let line = line + LINE;
            self.steps.push_front(Step::Flush { line, last });
        }
        self.events += 1;
        Ok(Some((self.scratch.event(step), &self.frames)))
    }

    /// The call stack of an event's context as the log has it, innermost frame first; empty if it
    /// has none.
    pub fn frames(&self, context: ContextId) -> &[String] {
        self.frames.get(context)
    }

    /// Events given out so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of the log that are taken apart.
    pub fn offset(&self) -> u64 {
        self.elements.offset()
    }

    fn read_element(&mut self) -> Result<(), Error> {
        let Some(element) = self.elements.next()? else {
            return self.end_of_log();
        };
        if element.starts_line {
            self.in_message = false;
        }
        if self.in_message {
            return Ok(());
        }
        let bytes = self.elements.bytes(element.range.clone());
        let (text, mut message) = split_message(bytes);
        let mut text = text.trim_ascii();
        let mut operation = Operation::of(text);
        if let Some((pid, rest)) = message
            && text.is_empty()
            && !matches!(Operation::of(rest), Operation::Marker)
        {
            // Not a message: a log whose every line has Valgrind's prefix.
            self.scratch.pid = pid;
            (text, operation, message) = (rest, Operation::of(rest), None);
        }
        match self.state {
            State::Before => {
                if let Some((pid, rest)) = message {
                    self.scratch.pid = pid;
                    if let Some(command) = rest.strip_prefix(b"Command: ") {
                        let end = command.iter().position(|&byte| byte == b' ');
                        self.scratch.exe = command[..end.unwrap_or(command.len())].to_vec();
                    }
                } else if matches!(operation, Operation::Start) {
                    self.state = State::Inside;
                    self.steps.extend([Step::ProcessStart, Step::ThreadStart]);
                }
                Ok(())
            }
            State::Inside if !element.ended && !matches!(operation, Operation::Stop) => {
                // What follows is missing, so this may be the beginning of something longer.
                Err(Error::Truncated {
                    offset: element.offset,
                    events: self.events,
                })
            }
            State::Inside => {
                if let Some((_, rest)) = message
                    && !rest.is_empty()
                {
                    self.in_message = true;
                    self.scratch.message.clear();
                    self.scratch.message.extend_from_slice(rest);
                    self.steps.push_back(Step::Message);
                }
                if text.is_empty() {
                    return Ok(());
                }
                // The operation needs the whole importer, and the text lies in its buffer.
                let from = text.as_ptr() as usize - bytes.as_ptr() as usize + element.range.start;
                let range = from..from + text.len();
                self.operation(operation, Element { range, ..element })
            }
            State::After => match operation {
                Operation::Marker => Ok(()),
                _ => Err(Error::Corrupt {
                    offset: element.offset,
                    what: "the log goes on after STOP, so several processes wrote it (give each its own with \
                           valgrind's --log-file=NAME.%p)",
                }),
            },
            State::Ended | State::Failed(_) => Ok(()),
        }
    }

    fn end_of_log(&mut self) -> Result<(), Error> {
        match self.state {
            State::Before => Err(Error::NotAStoreLog {
                what: "there is no START in it",
            }),
            State::Inside => Err(Error::Truncated {
                offset: self.elements.offset(),
                events: self.events,
            }),
            State::After | State::Ended | State::Failed(_) => {
                self.state = State::Ended;
                Ok(())
            }
        }
    }

    fn operation(&mut self, operation: Operation, element: Element) -> Result<(), Error> {
        let corrupt = |what| Error::Corrupt {
            offset: element.offset,
            what,
        };
        let text = self.elements.bytes(element.range);
        match operation {
            Operation::Start => {
                return Err(corrupt(
                    "there is a second START, so several programs wrote the log (give each its own with \
                     valgrind's --log-file=NAME.%p)",
                ));
            }
            Operation::Stop => {
                self.state = State::After;
                self.steps.extend([Step::ProcessExit, Step::End]);
            }
            Operation::Fence => self.steps.push_back(Step::Fence),
            Operation::Marker => {
                self.scratch.marker.clear();
                self.scratch.marker.extend_from_slice(text);
                self.steps.push_back(Step::Marker);
            }
            Operation::Flush => {
                let mut fields = text.split(|&byte| byte == b';').skip(1);
                let addr = number(fields.next()).map_err(corrupt)?;
                let size = number(fields.next()).map_err(corrupt)?;
                if size > FLUSH_SIZE_MAX {
                    return Err(corrupt("a flush is larger than 1 TiB"));
                }
                if size > 0 {
                    let last = last_of(addr, size).map_err(corrupt)?;
                    self.steps.push_back(Step::Flush {
                        line: addr & !(LINE - 1),
                        last: last & !(LINE - 1),
                    });
                }
            }
            Operation::RegisterFile => {
                let (path, addr, size, offset) = registration(text).map_err(corrupt)?;
                if size == 0 {
                    return Ok(());
                }
                self.scratch.path.clear();
                self.scratch.path.extend_from_slice(path);
                // The kernel maps whole pages.
                let len = size.checked_next_multiple_of(PAGE).unwrap_or(size);
                let last = last_of(addr, len)
                    .or_else(|_| last_of(addr, size))
                    .map_err(corrupt)?;
                let len = last - addr + 1;
                let size = offset
                    .checked_add(size)
                    .ok_or_else(|| corrupt(BEYOND_THE_END))?;
                let file = self.file(false, size);
                self.steps.push_back(Step::Map {
                    addr,
                    len,
                    file,
                    offset,
                });
                self.mapped.insert(addr, last);
            }
            Operation::Store => {
                let mut fields = text.splitn(5, |&byte| byte == b';').skip(1);
                let addr = number(fields.next()).map_err(corrupt)?;
                let value = fields.next();
                let size = number(fields.next()).map_err(corrupt)?;
                if size == 0 || size > STORE_SIZE_MAX {
                    return Err(corrupt("a store has no bytes, or more than 1 MiB"));
                }
                value_bytes(value, size as usize, &mut self.scratch.bytes).map_err(corrupt)?;
                let last = last_of(addr, size).map_err(corrupt)?;
                let mut stack = Stack::default();
                if let Some(text) = fields.next() {
                    match self.frames.number(text) {
                        Known::Before(known) => stack = known,
                        Known::New(new) => {
                            stack = new;
                            self.steps.push_back(Step::Context(new));
                        }
                        Known::Full if self.frames_full => {}
                        Known::Full => {
                            self.frames_full = true;
                            self.steps.push_back(Step::FramesFull);
                        }
                    }
                }
                if !(self.recent.0 <= addr && last <= self.recent.1) {
                    self.map_unregistered(addr, last);
                }
                self.steps.push_back(Step::Store { addr, stack });
            }
        }
        Ok(())
    }

    /// The number of the file whose path is in the scratch (or of the one without name), defined if
    /// it is new.
    fn file(&mut self, unregistered: bool, size: u64) -> FileId {
        let path = if unregistered {
            UNREGISTERED
        } else {
            &self.scratch.path
        };
        if let Some(&file) = self.files.get(path) {
            return file;
        }
        let file = FileId(self.files.len() as u32 + 1);
        self.files.insert(path.to_vec(), file);
        self.steps.push_back(Step::File {
            file,
            size,
            unregistered,
        });
        file
    }

    /// Maps what of `first..=last` is not mapped, with its surroundings.
    fn map_unregistered(&mut self, first: u64, last: u64) {
        let mut at = first;
        loop {
            let chunk = at & !(UNREGISTERED_MAP_LEN - 1);
            let gap = self
                .mapped
                .gap(at, chunk, chunk | (UNREGISTERED_MAP_LEN - 1));
            if let Some((from, to)) = gap {
                let file = self.file(true, 0);
                self.steps.push_back(Step::Map {
                    addr: from,
                    len: to - from + 1,
                    file,
                    offset: from,
                });
                self.mapped.insert(from, to);
            }
            let Some(around) = self.mapped.around(at) else {
                return;
            };
            self.recent = around;
            if last <= around.1 {
                return;
            }
            at = around.1 + 1;
        }
    }
}

impl Scratch {
    fn event(&self, step: Step) -> Event<'_> {
        let mut event = Event {
            thread: THREAD,
            pc: TargetAddr(0),
            context: ContextId(0),
            kind: EventKind::Fence(FenceKind::Sfence),
        };
        event.kind = match step {
            Step::ProcessStart => EventKind::ProcessStart {
                process: PROCESS,
                parent: ProcessId(0),
                pid: self.pid,
                exe: &self.exe,
            },
            Step::ThreadStart => EventKind::ThreadStart {
                thread: THREAD,
                process: PROCESS,
                tid: self.pid,
            },
            Step::File {
                file,
                size,
                unregistered,
            } => EventKind::File {
                file,
                path: if unregistered {
                    UNREGISTERED
                } else {
                    &self.path
                },
                size,
                reason: PmReason::Registered,
                created: false,
            },
            Step::Map {
                addr,
                len,
                file,
                offset,
            } => EventKind::Map {
                addr: TargetAddr(addr),
                len,
                file,
                offset,
                prot: PROT_READ_WRITE,
                flags: MAP_SHARED,
            },
            Step::Context(stack) => EventKind::Context {
                context: stack.context,
                parent: ContextId(0),
                return_addr: stack.caller,
            },
            Step::Store { addr, stack } => {
                event.pc = stack.pc;
                event.context = stack.context;
                EventKind::Store(Access {
                    addr: TargetAddr(addr),
                    size: self.bytes.len() as u32,
                    bytes: &self.bytes,
                })
            }
            Step::Flush { line, .. } => EventKind::Flush {
                kind: FlushKind::Clwb,
                addr: TargetAddr(line),
            },
            Step::Fence => EventKind::Fence(FenceKind::Sfence),
            Step::Marker => EventKind::Annotation {
                code: MARKER,
                args: [0; 5],
                text: &self.marker,
            },
            Step::Message => EventKind::Note {
                text: &self.message,
            },
            Step::FramesFull => EventKind::Note {
                text: b"the store log has more distinct call stacks than are kept; further ones are left out",
            },
            Step::ProcessExit => EventKind::ProcessExit {
                process: PROCESS,
                status: ExitStatus::Code(0),
            },
            Step::End => {
                event.thread = ThreadId(0);
                EventKind::End {
                    status: ExitStatus::Code(0),
                }
            }
        };
        event
    }
}

/// What an element is.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Start,
    RegisterFile,
    Store,
    Flush,
    Fence,
    Stop,
    /// Anything else.
    Marker,
}

impl Operation {
    fn of(text: &[u8]) -> Operation {
        let name_len = memchr::memchr(b';', text).unwrap_or(text.len());
        match &text[..name_len] {
            b"STORE" => Operation::Store,
            b"FLUSH" => Operation::Flush,
            b"FENCE" => Operation::Fence,
            b"REGISTER_FILE" => Operation::RegisterFile,
            b"START" => Operation::Start,
            b"STOP" => Operation::Stop,
            _ => Operation::Marker,
        }
    }
}

/// Cuts a message of Valgrind off an element: `==pid== text`, at its beginning or where pmemcheck's
/// line was interrupted. The marks are `==` for users, `--` for debugging and `**` for the
/// program's own.
fn split_message(element: &[u8]) -> (&[u8], Option<(u32, &[u8])>) {
    for at in memchr::memchr3_iter(b'=', b'-', b'*', element) {
        if let Some((pid, rest)) = valgrind_prefix(&element[at..]) {
            return (&element[..at], Some((pid, rest.trim_ascii())));
        }
    }
    (element, None)
}

fn valgrind_prefix(text: &[u8]) -> Option<(u32, &[u8])> {
    let mark = text.get(..2)?;
    if mark[0] != mark[1] {
        return None;
    }
    let digits = &text[2..];
    let len = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let pid = str::from_utf8(&digits[..len]).ok()?.parse().ok()?;
    let rest = digits[len..].strip_prefix(mark)?;
    Some((pid, rest))
}

const BEYOND_THE_END: &str = "a range goes beyond the end of the address space";
const NOT_A_NUMBER: &str = "a field is not a hexadecimal number (has the program printed into the log? \
                            valgrind's --log-file keeps them apart)";

fn last_of(addr: u64, size: u64) -> Result<u64, &'static str> {
    addr.checked_add(size - 1).ok_or(BEYOND_THE_END)
}

/// The hexadecimal digits of a field, `0x` or not.
fn digits(field: Option<&[u8]>) -> Result<&[u8], &'static str> {
    let field = field.ok_or("a field is missing")?.trim_ascii();
    let digits = field.strip_prefix(b"0x").unwrap_or(field);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(NOT_A_NUMBER);
    }
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    Ok(&digits[zeros..])
}

fn number(field: Option<&[u8]>) -> Result<u64, &'static str> {
    let digits = digits(field)?;
    if digits.len() > 16 {
        return Err("a number has more than 64 bits");
    }
    Ok(digits
        .iter()
        .fold(0, |value, &digit| value << 4 | u64::from(nibble(digit))))
}

/// Of a hexadecimal digit.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// The value as it lies in memory, `size` bytes, least significant first.
fn value_bytes(field: Option<&[u8]>, size: usize, bytes: &mut Vec<u8>) -> Result<(), &'static str> {
    let digits = digits(field)?;
    if digits.len() > 2 * size {
        return Err("a value has more bytes than its store");
    }
    bytes.clear();
    bytes.extend(digits.rchunks(2).map(|pair| {
        pair.iter()
            .fold(0, |value, &digit| value << 4 | nibble(digit))
    }));
    bytes.resize(size, 0);
    Ok(())
}

/// Path, base, size and offset. They are taken from the end, because a path may hold `;`.
fn registration(text: &[u8]) -> Result<(&[u8], u64, u64, u64), &'static str> {
    let fields = &text[b"REGISTER_FILE".len()..];
    let mut parts = fields.rsplitn(4, |&byte| byte == b';');
    let offset = number(parts.next())?;
    let size = number(parts.next())?;
    let addr = number(parts.next())?;
    let path = parts.next().and_then(|path| path.strip_prefix(b";"));
    match path {
        Some(path) if !path.is_empty() => Ok((path, addr, size, offset)),
        _ => Err("a file has no path"),
    }
}
