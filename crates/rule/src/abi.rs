//! The border between the tool and a rule's library.
//!
//! **Purpose.** All that crosses it: two tables of functions, and the structures that they pass.
//! Everything is `repr(C)` and made of integers and pointers, so any compiler with a C interface
//! can be on either side.
//!
//! **How it grows.** A library exports one [`PluginTable`] as [`SYMBOL`]. `magic`, `version` and
//! `size` come first in every version; nothing else is read until they fit.
//!
//! - [`VERSION`] grows when something changes its meaning or goes. The tool then refuses older
//!   libraries, by name.
//! - New fields go to the end of a structure that begins with its `size`. The tool accepts a
//!   library's table that is longer than its own, and a library accepts a longer [`HostTable`] and
//!   longer events. A library refuses a tool whose structures are shorter than those that it was
//!   built with.
//! - A structure without `size` is frozen for its version. New [`KindCode`]s may appear: a library
//!   that does not know one ignores it.
//!
//! **Promises.** Pointers that are passed to a function are valid until it returns, and no longer;
//! the instance and the static tables are the exceptions. `call` is valid for the call that it was
//! passed to. No function unwinds. The tool calls one instance from one thread at a time, and may
//! change the thread between calls. Text is UTF-8 unless it comes from the checked program.

use std::ffi::c_void;

use crate::event::{
    Access, Address, ContextId, Event, EventIndex, FenceKind, FileId, FlushKind, Kind, KindCode,
    Place, ProcessId, Site, ThreadId,
};
use crate::state::{State, Status};

/// First word of a [`PluginTable`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"BROWNRUL");
/// Version of the interface.
pub const VERSION: u32 = 1;
/// Name of the exported table.
pub const SYMBOL: &str = "brownout_rule_plugin";

/// What an entry point of a library returns when all went well. Anything else: it has called
/// [`HostTable::fail`].
pub const OK: u32 = 0;
/// See [`OK`].
pub const FAILED: u32 = 1;

/// [`RawInfo::severity`]: correctness.
pub const SEVERITY_CORRECTNESS: u32 = 0;
/// [`RawInfo::severity`]: performance.
pub const SEVERITY_PERFORMANCE: u32 = 1;
/// Bit of [`RawInfo::needs`]: bytes of stores.
pub const NEEDS_VALUES: u32 = 1;
/// Bit of [`RawInfo::needs`]: loads.
pub const NEEDS_LOADS: u32 = 2;

/// Bytes that somebody else owns. A null pointer goes with length 0 only.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawBytes {
    /// First byte.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

impl RawBytes {
    /// None.
    pub const EMPTY: RawBytes = RawBytes {
        data: std::ptr::null(),
        len: 0,
    };

    /// Borrows `bytes`: the caller keeps them alive as long as the other side reads.
    pub fn new(bytes: &[u8]) -> Self {
        RawBytes {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// The bytes. A null pointer means none, whatever the length says.
    ///
    /// # Safety
    ///
    /// The other side promises that `data` points at `len` bytes that stay unchanged for `'a`.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// The bytes as text; what is not UTF-8 is replaced.
    ///
    /// # Safety
    ///
    /// As [`RawBytes::as_slice`].
    pub unsafe fn to_text(self) -> String {
        // SAFETY: the caller's promise.
        String::from_utf8_lossy(unsafe { self.as_slice() }).into_owned()
    }
}

/// What a library exports. Its first three fields are the same in every version.
#[derive(Debug)]
#[repr(C)]
pub struct PluginTable {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Size of this structure, as the library knows it.
    pub size: u32,
    /// Makes an instance and describes it in `info`, whose strings live as long as the instance.
    /// Returns null after it has called [`HostTable::fail`]. `host` lives as long as the instance.
    /// No other function of `host` may be called here.
    pub create: Option<
        unsafe extern "C" fn(
            host: *const HostTable,
            call: *mut c_void,
            options: RawBytes,
            info: *mut RawInfo,
        ) -> *mut c_void,
    >,
    /// Takes an event. Returns [`OK`] or [`FAILED`].
    pub event: Option<
        unsafe extern "C" fn(
            instance: *mut c_void,
            host: *const HostTable,
            call: *mut c_void,
            event: *const RawEvent,
        ) -> u32,
    >,
    /// The run is over. Returns [`OK`] or [`FAILED`].
    pub end: Option<
        unsafe extern "C" fn(
            instance: *mut c_void,
            host: *const HostTable,
            call: *mut c_void,
        ) -> u32,
    >,
    /// Frees an instance. Called once, last, also after a failure.
    pub destroy: Option<unsafe extern "C" fn(instance: *mut c_void)>,
}

/// What the tool offers to a rule.
#[derive(Debug)]
#[repr(C)]
pub struct HostTable {
    /// [`VERSION`].
    pub version: u32,
    /// Size of this structure, as the tool knows it.
    pub size: u32,
    /// Size of [`RawEvent`], as the tool knows it.
    pub event_size: u32,
    /// Size of [`RawStatus`], as the tool knows it.
    pub status_size: u32,
    /// Why the call fails: one sentence for the user.
    pub fail: unsafe extern "C" fn(call: *mut c_void, message: RawBytes),
    /// [`Pm::is_persisted`](crate::Pm::is_persisted): 0 or 1.
    pub is_persisted: unsafe extern "C" fn(call: *mut c_void, place: Place) -> u32,
    /// [`Pm::is_ordered_before`](crate::Pm::is_ordered_before): 0 or 1.
    pub is_ordered_before:
        unsafe extern "C" fn(call: *mut c_void, earlier: Place, later: Place) -> u32,
    /// [`Pm::status`](crate::Pm::status): calls `visit` for each part.
    pub status: unsafe extern "C" fn(
        call: *mut c_void,
        place: Place,
        visit: unsafe extern "C" fn(data: *mut c_void, status: *const RawStatus),
        data: *mut c_void,
    ),
    /// [`Pm::in_transaction`](crate::Pm::in_transaction): 0 or 1.
    pub in_transaction: unsafe extern "C" fn(call: *mut c_void, thread: ThreadId) -> u32,
    /// [`Pm::is_logged`](crate::Pm::is_logged): 0 or 1.
    pub is_logged: unsafe extern "C" fn(call: *mut c_void, thread: ThreadId, place: Place) -> u32,
    /// Reports a finding; the tool copies it.
    pub report: unsafe extern "C" fn(call: *mut c_void, finding: *const RawFinding),
}

/// [`Info`](crate::Info) at the border. The tool sets `size` before the call; the library fills in
/// the rest.
#[derive(Debug)]
#[repr(C)]
pub struct RawInfo {
    /// Size of this structure, as the tool knows it.
    pub size: u32,
    /// `SEVERITY_*`.
    pub severity: u32,
    /// `NEEDS_*` bits.
    pub needs: u32,
    /// 0.
    pub reserved: u32,
    /// Bit *n* stands for the kind of number *n*: the tool may leave out events whose bit is 0. It
    /// sets all bits before the call.
    pub kinds: u64,
    /// The rule's id.
    pub id: RawBytes,
    /// What it looks for.
    pub summary: RawBytes,
}

/// [`Event`] at the border: one structure for all kinds. A field that a kind does not use is 0 or
/// empty.
///
/// | kind | `code` | `flags` | `args` | `bytes` | `text` |
/// |---|---|---|---|---|---|
/// | stores, load, file write | system call number (kernel store) | | | content | |
/// | flush | 0 `clflush`, 1 `clflushopt`, 2 `clwb`, 3 request | | | | |
/// | fence | 0 `sfence`, 1 `mfence`, 2 locked, 3 request | | | | |
/// | file, truncate | | | size | | path (file) |
/// | map | `PROT_*` | `MAP_*` | | | |
/// | msync | | `MS_*` | | | |
/// | transaction begin, end | depth | | id | | |
/// | library call | | | arguments | | function |
/// | pmemcheck, annotation | request | | arguments | | its string |
/// | marker, variable, variable gone | | | | | text, or name |
/// | process start | parent | | | | executable |
///
/// `place` is set wherever bytes are concerned; events about a file as a whole set its `file` only.
#[derive(Debug)]
#[repr(C)]
pub struct RawEvent {
    /// Size of this structure, as the tool knows it.
    pub size: u32,
    /// What happened.
    pub kind: KindCode,
    /// Place in the total order.
    pub index: EventIndex,
    /// The instruction.
    pub pc: Address,
    /// Its callers.
    pub context: ContextId,
    /// Who.
    pub thread: ThreadId,
    /// In which process.
    pub process: ProcessId,
    /// See the table above.
    pub code: u32,
    /// See the table above.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Which bytes.
    pub place: Place,
    /// See the table above.
    pub args: [u64; 6],
    /// See the table above.
    pub bytes: RawBytes,
    /// See the table above.
    pub text: RawBytes,
}

/// [`Status`] at the border.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawStatus {
    /// Size of this structure, as the tool knows it.
    pub size: u32,
    /// 1 dirty, 2 flushing, 3 draining, 4 persisted.
    pub state: u32,
    /// Which bytes.
    pub place: Place,
    /// The last store to them.
    pub store: Site,
}

/// A finding at the border.
#[derive(Debug)]
#[repr(C)]
pub struct RawFinding {
    /// Size of this structure, as the library knows it.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// One sentence, no final stop.
    pub message: RawBytes,
    /// What happened; the first is where to look first.
    pub events: *const RawFindingEvent,
    /// How many events, at least one.
    pub event_count: usize,
    /// What to do about it.
    pub help: *const RawBytes,
    /// How many sentences of help.
    pub help_count: usize,
    /// What else is worth knowing.
    pub notes: *const RawBytes,
    /// How many notes.
    pub note_count: usize,
}

/// An event of a finding.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFindingEvent {
    /// Where and when. All 0: the end of the run.
    pub site: Site,
    /// One line, no final stop.
    pub text: RawBytes,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Place>() == 32);
    assert!(size_of::<Site>() == 64);
    assert!(size_of::<PluginTable>() == 48);
    assert!(size_of::<HostTable>() == 72);
    assert!(size_of::<RawInfo>() == 56);
    assert!(size_of::<RawEvent>() == 160);
    assert!(size_of::<RawStatus>() == 104);
    assert!(size_of::<RawFinding>() == 72);
    assert!(size_of::<RawFindingEvent>() == 80);
};

fn file_only(file: FileId) -> Place {
    Place {
        file,
        ..Place::default()
    }
}

impl RawEvent {
    /// The event as it crosses the border; it borrows what `event` borrows.
    pub fn new(event: &Event<'_>) -> Self {
        let mut raw = RawEvent {
            size: size_of::<RawEvent>() as u32,
            kind: event.kind.code(),
            index: event.index,
            pc: event.pc,
            context: event.context,
            thread: event.thread,
            process: event.process,
            code: 0,
            flags: 0,
            reserved: 0,
            place: event.kind.place().unwrap_or_default(),
            args: [0; 6],
            bytes: RawBytes::EMPTY,
            text: RawBytes::EMPTY,
        };
        match event.kind {
            Kind::Store(access)
            | Kind::NtStore(access)
            | Kind::Rmw(access)
            | Kind::Load(access)
            | Kind::FileWrite(access) => raw.bytes = RawBytes::new(access.bytes),
            Kind::KernelStore { syscall, access } => {
                raw.code = syscall;
                raw.bytes = RawBytes::new(access.bytes);
            }
            Kind::Flush { kind, .. } => {
                raw.code = match kind {
                    FlushKind::Clflush => 0,
                    FlushKind::Clflushopt => 1,
                    FlushKind::Clwb => 2,
                    FlushKind::Request => 3,
                }
            }
            Kind::Fence(kind) => {
                raw.code = match kind {
                    FenceKind::Sfence => 0,
                    FenceKind::Mfence => 1,
                    FenceKind::Locked => 2,
                    FenceKind::Request => 3,
                }
            }
            Kind::File { file, path, size } => {
                raw.place = file_only(file);
                raw.text = RawBytes::new(path);
                raw.args[0] = size;
            }
            Kind::Truncate { file, size } => {
                raw.place = file_only(file);
                raw.args[0] = size;
            }
            Kind::Fsync { file } => raw.place = file_only(file),
            Kind::Map { prot, flags, .. } => {
                raw.code = prot;
                raw.flags = flags;
            }
            Kind::Msync { flags, .. } => raw.flags = flags,
            Kind::TxBegin { id, depth } | Kind::TxEnd { id, depth } => {
                raw.args[0] = id;
                raw.code = depth;
            }
            Kind::LibraryCall { function, args } => {
                raw.text = RawBytes::new(function.as_bytes());
                raw.args = args;
            }
            Kind::Pmemcheck { code, args, text } | Kind::Annotation { code, args, text } => {
                raw.code = code;
                raw.args = args;
                raw.text = RawBytes::new(text);
            }
            Kind::Marker { text: name }
            | Kind::Variable { name, .. }
            | Kind::VariableGone { name } => raw.text = RawBytes::new(name),
            Kind::ProcessStart { parent, exe } => {
                raw.code = parent.0;
                raw.text = RawBytes::new(exe);
            }
            Kind::Unmap { .. }
            | Kind::TxAdd(_)
            | Kind::TxRemove(_)
            | Kind::TxAlloc(_)
            | Kind::TxFree(_)
            | Kind::ProcessExit
            | Kind::ThreadStart
            | Kind::ThreadExit
            | Kind::End
            | Kind::Other => {}
        }
        raw
    }

    /// The event in Rust's terms. What this crate does not know is [`Kind::Other`].
    ///
    /// # Safety
    ///
    /// `bytes` and `text` are valid for as long as `self` is borrowed.
    pub unsafe fn event(&self) -> Event<'_> {
        // SAFETY: the caller's promise.
        let (bytes, text): (&[u8], &[u8]) =
            unsafe { (self.bytes.as_slice(), self.text.as_slice()) };
        let (place, code, args) = (self.place, self.code, self.args);
        let access = Access { place, bytes };
        let kind = match self.kind {
            KindCode::STORE => Kind::Store(access),
            KindCode::NT_STORE => Kind::NtStore(access),
            KindCode::RMW => Kind::Rmw(access),
            KindCode::KERNEL_STORE => Kind::KernelStore {
                syscall: code,
                access,
            },
            KindCode::LOAD => Kind::Load(access),
            KindCode::FLUSH => match code {
                0 => Some(FlushKind::Clflush),
                1 => Some(FlushKind::Clflushopt),
                2 => Some(FlushKind::Clwb),
                3 => Some(FlushKind::Request),
                _ => None,
            }
            .map_or(Kind::Other, |kind| Kind::Flush { kind, place }),
            KindCode::FENCE => match code {
                0 => Kind::Fence(FenceKind::Sfence),
                1 => Kind::Fence(FenceKind::Mfence),
                2 => Kind::Fence(FenceKind::Locked),
                3 => Kind::Fence(FenceKind::Request),
                _ => Kind::Other,
            },
            KindCode::FILE => Kind::File {
                file: place.file,
                path: text,
                size: args[0],
            },
            KindCode::MAP => Kind::Map {
                place,
                prot: code,
                flags: self.flags,
            },
            KindCode::UNMAP => Kind::Unmap { place },
            KindCode::MSYNC => Kind::Msync {
                place,
                flags: self.flags,
            },
            KindCode::FSYNC => Kind::Fsync { file: place.file },
            KindCode::FILE_WRITE => Kind::FileWrite(access),
            KindCode::TRUNCATE => Kind::Truncate {
                file: place.file,
                size: args[0],
            },
            KindCode::TX_BEGIN => Kind::TxBegin {
                id: args[0],
                depth: code,
            },
            KindCode::TX_END => Kind::TxEnd {
                id: args[0],
                depth: code,
            },
            KindCode::TX_ADD => Kind::TxAdd(place),
            KindCode::TX_REMOVE => Kind::TxRemove(place),
            KindCode::TX_ALLOC => Kind::TxAlloc(place),
            KindCode::TX_FREE => Kind::TxFree(place),
            KindCode::LIBRARY_CALL => match std::str::from_utf8(text) {
                Ok(function) => Kind::LibraryCall { function, args },
                Err(_) => Kind::Other,
            },
            KindCode::PMEMCHECK => Kind::Pmemcheck { code, args, text },
            KindCode::ANNOTATION => Kind::Annotation { code, args, text },
            KindCode::MARKER => Kind::Marker { text },
            KindCode::VARIABLE => Kind::Variable { name: text, place },
            KindCode::VARIABLE_GONE => Kind::VariableGone { name: text },
            KindCode::PROCESS_START => Kind::ProcessStart {
                parent: ProcessId(code),
                exe: text,
            },
            KindCode::PROCESS_EXIT => Kind::ProcessExit,
            KindCode::THREAD_START => Kind::ThreadStart,
            KindCode::THREAD_EXIT => Kind::ThreadExit,
            KindCode::END => Kind::End,
            _ => Kind::Other,
        };
        Event {
            index: self.index,
            thread: self.thread,
            process: self.process,
            pc: self.pc,
            context: self.context,
            kind,
        }
    }
}

impl RawStatus {
    /// The status as it crosses the border.
    pub fn new(status: &Status) -> Self {
        RawStatus {
            size: size_of::<RawStatus>() as u32,
            state: match status.state {
                State::Dirty => 1,
                State::Flushing => 2,
                State::Draining => 3,
                State::Persisted => 4,
            },
            place: status.place,
            store: status.store,
        }
    }

    /// The status in Rust's terms. A state that this crate does not know counts as the weakest,
    /// dirty.
    pub fn status(&self) -> Status {
        Status {
            place: self.place,
            state: match self.state {
                2 => State::Flushing,
                3 => State::Draining,
                4 => State::Persisted,
                _ => State::Dirty,
            },
            store: self.store,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Every kind, by number, from arbitrary parts. `None` past the last.
    fn kind<'a>(
        code: u32,
        place: Place,
        words: [u64; 6],
        bytes: &'a [u8],
        text: &'a str,
    ) -> Option<Kind<'a>> {
        let access = Access { place, bytes };
        let small = words[0] as u32;
        let flush = [
            FlushKind::Clflush,
            FlushKind::Clflushopt,
            FlushKind::Clwb,
            FlushKind::Request,
        ];
        let fence = [
            FenceKind::Sfence,
            FenceKind::Mfence,
            FenceKind::Locked,
            FenceKind::Request,
        ];
        Some(match KindCode(code) {
            KindCode::OTHER => Kind::Other,
            KindCode::STORE => Kind::Store(access),
            KindCode::NT_STORE => Kind::NtStore(access),
            KindCode::RMW => Kind::Rmw(access),
            KindCode::KERNEL_STORE => Kind::KernelStore {
                syscall: small,
                access,
            },
            KindCode::LOAD => Kind::Load(access),
            KindCode::FLUSH => Kind::Flush {
                kind: flush[words[0] as usize % 4],
                place,
            },
            KindCode::FENCE => Kind::Fence(fence[words[0] as usize % 4]),
            KindCode::FILE => Kind::File {
                file: place.file,
                path: bytes,
                size: words[1],
            },
            KindCode::MAP => Kind::Map {
                place,
                prot: small,
                flags: words[1] as u32,
            },
            KindCode::UNMAP => Kind::Unmap { place },
            KindCode::MSYNC => Kind::Msync {
                place,
                flags: small,
            },
            KindCode::FSYNC => Kind::Fsync { file: place.file },
            KindCode::FILE_WRITE => Kind::FileWrite(access),
            KindCode::TRUNCATE => Kind::Truncate {
                file: place.file,
                size: words[0],
            },
            KindCode::TX_BEGIN => Kind::TxBegin {
                id: words[1],
                depth: small,
            },
            KindCode::TX_END => Kind::TxEnd {
                id: words[1],
                depth: small,
            },
            KindCode::TX_ADD => Kind::TxAdd(place),
            KindCode::TX_REMOVE => Kind::TxRemove(place),
            KindCode::TX_ALLOC => Kind::TxAlloc(place),
            KindCode::TX_FREE => Kind::TxFree(place),
            KindCode::LIBRARY_CALL => Kind::LibraryCall {
                function: text,
                args: words,
            },
            KindCode::PMEMCHECK => Kind::Pmemcheck {
                code: small,
                args: words,
                text: bytes,
            },
            KindCode::ANNOTATION => Kind::Annotation {
                code: small,
                args: words,
                text: bytes,
            },
            KindCode::MARKER => Kind::Marker { text: bytes },
            KindCode::VARIABLE => Kind::Variable { name: bytes, place },
            KindCode::VARIABLE_GONE => Kind::VariableGone { name: bytes },
            KindCode::PROCESS_START => Kind::ProcessStart {
                parent: ProcessId(small),
                exe: bytes,
            },
            KindCode::PROCESS_EXIT => Kind::ProcessExit,
            KindCode::THREAD_START => Kind::ThreadStart,
            KindCode::THREAD_EXIT => Kind::ThreadExit,
            KindCode::END => Kind::End,
            _ => return None,
        })
    }

    const KINDS: u32 = 32;

    #[test]
    fn test_knows_every_kind() {
        let of = |code| kind(code, Place::default(), [0; 6], &[], "");
        for code in 0..KINDS {
            assert_eq!(of(code).expect("a kind").code(), KindCode(code));
        }
        assert_eq!(of(KINDS), None, "a new kind: raise KINDS");
    }

    proptest! {
        #[test]
        fn events_cross_the_border_unchanged(
            code in 0..KINDS,
            numbers: (u64, u32, u32, u64, u32),
            place: (u64, u64, u64, u32),
            words: [u64; 6],
            bytes in vec(any::<u8>(), 0..20),
            text: String,
        ) {
            let place = Place::new(Address(place.0), place.1, FileId(place.3), place.2);
            let event = Event {
                index: EventIndex(numbers.0),
                thread: ThreadId(numbers.1),
                process: ProcessId(numbers.2),
                pc: Address(numbers.3),
                context: ContextId(numbers.4),
                kind: kind(code, place, words, &bytes, &text).expect("a kind"),
            };
            let raw = RawEvent::new(&event);
            // SAFETY: `bytes` and `text` outlive `raw`.
            prop_assert_eq!(unsafe { raw.event() }, event);
        }

        /// What a newer tool may send: numbers that this crate has not heard of.
        #[test]
        fn unknown_numbers_are_no_event_that_we_know(
            kind in KINDS..,
            code in 4u32..,
            bytes in vec(any::<u8>(), 0..20),
        ) {
            let mut raw = RawEvent::new(&Event {
                index: EventIndex(1),
                thread: ThreadId(1),
                process: ProcessId(1),
                pc: Address(0),
                context: ContextId(0),
                kind: Kind::Marker { text: &bytes },
            });
            raw.code = code;
            for unknown in [KindCode(kind), KindCode::FLUSH, KindCode::FENCE] {
                raw.kind = unknown;
                // SAFETY: `bytes` outlives `raw`.
                prop_assert_eq!(unsafe { raw.event() }.kind, Kind::Other);
            }
        }
    }
}
