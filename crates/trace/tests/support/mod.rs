//! What the tests of this crate share: events to record, and traces made of them.

// Each test program uses its own part.
#![allow(dead_code)]

use std::io::Cursor;

use brownout_trace::{
    Access, ContextId, Elements, Error, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind,
    Meta, NameChange, PmReason, ProcessId, Reader, TargetAddr, ThreadId, Writer, WriterOptions,
};
use proptest::prelude::*;

pub fn event(thread: u32, pc: u64, context: u32, kind: EventKind<'_>) -> Event<'_> {
    Event {
        thread: ThreadId(thread),
        pc: TargetAddr(pc),
        context: ContextId(context),
        kind,
    }
}

pub fn access(addr: u64, bytes: &[u8]) -> Access<'_> {
    Access {
        addr: TargetAddr(addr),
        size: bytes.len() as u32,
        bytes,
    }
}

pub fn meta() -> Meta {
    Meta {
        tool: "brownout 0.1.0".to_owned(),
        command: vec!["prog".to_owned(), "pool.img".to_owned()],
        created_unix_ms: Some(1_700_000_000_000),
        notes: [("values".to_owned(), "yes".to_owned())].into(),
    }
}

/// The file, with a footer or as a killed recorder leaves it.
pub fn write(events: &[Event<'_>], options: &WriterOptions, finish: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer =
        Writer::with_options(&mut file, &meta(), options).expect("memory takes everything");
    for event in events {
        writer.push(event).expect("memory takes everything");
    }
    if finish {
        writer.finish().expect("memory takes everything");
    } else {
        writer.flush().expect("memory takes everything");
        drop(writer);
    }
    file
}

pub fn blocks_of(events: u32) -> WriterOptions {
    WriterOptions {
        events_per_block: events,
        ..WriterOptions::default()
    }
}

/// Where the blocks begin and end, found as a reader would not: by their marker.
pub fn block_offsets(file: &[u8]) -> Vec<usize> {
    let marker = [0xb1, 0x6f, 0xd0, 0x93, 0x0a, 0xe5, 0x7c, 0x4e];
    (0..file.len())
        .filter(|&at| file[at..].starts_with(&marker))
        .collect()
}

/// The payload of the only block of a file, decompressed.
pub fn payload_of(events: &[Event<'_>]) -> Vec<u8> {
    let file = write(events, &WriterOptions::default(), false);
    let header = block_offsets(&file)[0];
    let field = |at: usize| {
        let bytes = &file[header + at..header + at + 4];
        u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
    };
    let stored = &file[header + 56..header + 56 + field(32)];
    if field(36) == 0 {
        return stored.to_vec();
    }
    zstd::bulk::decompress(stored, field(28)).expect("sound")
}

/// An event out of a reader, rendered, because it borrows.
pub fn render(event: &Event<'_>) -> String {
    format!("{event:?}")
}

/// Everything up to the end or the first error.
pub fn read(file: &[u8]) -> (Vec<String>, Option<Error>) {
    let mut reader = match Reader::new(Cursor::new(file)) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(event)) => events.push(render(&event)),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

/// A small run with every kind of event.
pub fn every_kind() -> Vec<Event<'static>> {
    const WIDE: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef tail";
    let addr = TargetAddr;
    let base = 0x7e00_0000_0000;
    vec![
        event(
            0,
            0,
            0,
            EventKind::ProcessStart {
                process: ProcessId(1),
                parent: ProcessId(0),
                pid: 4242,
                exe: b"/usr/bin/prog",
            },
        ),
        event(
            0,
            0,
            0,
            EventKind::ThreadStart {
                thread: ThreadId(1),
                process: ProcessId(1),
                tid: 4242,
            },
        ),
        event(
            1,
            0,
            0,
            EventKind::Module {
                process: ProcessId(1),
                addr: addr(0x40_1000),
                len: 0x2000,
                offset: 0x1000,
                path: b"/usr/bin/prog",
            },
        ),
        event(
            1,
            0,
            0,
            EventKind::Context {
                context: ContextId(1),
                parent: ContextId(0),
                return_addr: addr(0x40_1080),
            },
        ),
        event(
            1,
            0,
            0,
            EventKind::Context {
                context: ContextId(2),
                parent: ContextId(1),
                return_addr: addr(0x40_1100),
            },
        ),
        event(
            1,
            0x40_1200,
            1,
            EventKind::File {
                file: FileId(1),
                path: b"/mnt/pmem/pool.img",
                size: 0x4000,
                reason: PmReason::Glob,
                created: false,
            },
        ),
        event(
            1,
            0x40_1200,
            1,
            EventKind::File {
                file: FileId(2),
                path: b"/mnt/other/pool.img",
                size: 0,
                reason: PmReason::MapSync,
                created: true,
            },
        ),
        event(
            1,
            0x40_1200,
            1,
            EventKind::Map {
                addr: addr(base),
                len: 0x4000,
                file: FileId(1),
                offset: 0,
                prot: 3,
                flags: 0x80003,
            },
        ),
        event(
            1,
            0x40_1300,
            2,
            EventKind::Store(access(base + 0x40, &[0x2a, 0, 0, 0, 0, 0, 0, 0])),
        ),
        event(1, 0x40_1304, 2, EventKind::Store(access(base + 0x48, &[7]))),
        event(
            1,
            0x40_1308,
            2,
            EventKind::NtStore(access(base + 0x80, WIDE)),
        ),
        event(
            1,
            0x40_130c,
            2,
            EventKind::Load(access(base + 0x48, &[7, 0, 0, 0])),
        ),
        event(
            1,
            0x40_1310,
            2,
            EventKind::Rmw(access(base + 0x50, &[1, 0, 0, 0, 0, 0, 0, 0x80])),
        ),
        event(
            1,
            0x40_1314,
            2,
            EventKind::Store(Access {
                addr: addr(base + 0x100),
                size: 4096,
                bytes: b"",
            }),
        ),
        event(
            1,
            0x40_1314,
            2,
            EventKind::KernelStore {
                syscall: 0,
                access: access(base + 0x200, b"read by the kernel"),
            },
        ),
        event(
            1,
            0x40_1318,
            2,
            EventKind::Flush {
                kind: FlushKind::Clwb,
                addr: addr(base + 0x40),
            },
        ),
        event(
            1,
            0x40_1318,
            2,
            EventKind::Flush {
                kind: FlushKind::Clflushopt,
                addr: addr(base + 0x80),
            },
        ),
        event(
            1,
            0x40_1318,
            2,
            EventKind::Flush {
                kind: FlushKind::Clflush,
                addr: addr(0x1234),
            },
        ),
        event(1, 0x40_131c, 2, EventKind::Fence(FenceKind::Sfence)),
        event(1, 0x40_1320, 2, EventKind::Fence(FenceKind::Mfence)),
        event(1, 0x40_1324, 2, EventKind::Fence(FenceKind::Locked)),
        event(
            1,
            0x40_1400,
            1,
            EventKind::Truncate {
                file: FileId(2),
                size: 8192,
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::FileWrite {
                file: FileId(2),
                offset: 16,
                size: 5,
                bytes: b"hello",
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::FileRead {
                file: FileId(2),
                offset: 17,
                size: 3,
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::FileSync {
                file: FileId(2),
                offset: 16,
                size: 5,
            },
        ),
        event(1, 0x40_1404, 1, EventKind::Input { fd: 0, at: 12 }),
        event(1, 0x40_1404, 1, EventKind::Output { fd: 1, size: 12 }),
        event(
            1,
            0x40_1404,
            1,
            EventKind::Lookup {
                syscall: 21,
                result: -2,
                path: b"./pool",
            },
        ),
        event(
            1,
            0x40_1404,
            1,
            EventKind::Opened {
                path: b"/etc/program.conf",
            },
        ),
        event(
            1,
            0x40_1404,
            1,
            EventKind::Name {
                change: NameChange::Rename,
                file: FileId(1),
                replaced: FileId(0),
                names: b"/pm/pool.new\0/pm/pool",
            },
        ),
        event(
            1,
            0x40_1404,
            1,
            EventKind::Signal {
                signal: 11,
                addr: addr(base + 8),
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::Msync {
                addr: addr(base),
                len: 0x1000,
                flags: 4,
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::Fsync {
                file: FileId(1),
                data_only: false,
            },
        ),
        event(
            1,
            0x40_1400,
            1,
            EventKind::Fsync {
                file: FileId(2),
                data_only: true,
            },
        ),
        event(
            1,
            0x40_1500,
            1,
            EventKind::ThreadStart {
                thread: ThreadId(2),
                process: ProcessId(1),
                tid: 4243,
            },
        ),
        event(
            2,
            0x40_1504,
            0,
            EventKind::Futex {
                addr: addr(base + 0x300),
                op: 0x80,
                val: 1,
                result: -11,
            },
        ),
        event(
            2,
            0x40_1504,
            0,
            EventKind::Stuck {
                addr: addr(base + 0x300),
            },
        ),
        event(
            2,
            0x40_1508,
            0,
            EventKind::Pmemcheck {
                code: 22,
                args: [base + 0x40, 64, 0, 0],
                text: b"",
            },
        ),
        event(
            2,
            0x40_1508,
            0,
            EventKind::Pmemcheck {
                code: 30,
                args: [0, 0, 0, 0],
                text: b"insert.BEGIN",
            },
        ),
        event(
            2,
            0x40_150c,
            0,
            EventKind::Annotation {
                code: 3,
                args: [1, 2, 3, 4, u64::MAX],
                text: b"two\nlines \xff",
            },
        ),
        event(
            2,
            0x40_1510,
            0,
            EventKind::Remap {
                old_addr: addr(base),
                old_len: 0x4000,
                new_addr: addr(base + 0x10_0000),
                new_len: 0x4000,
            },
        ),
        event(
            2,
            0x40_1514,
            0,
            EventKind::Store(access(base + 0x10_0008, &[1, 2])),
        ),
        event(
            2,
            0x40_1518,
            0,
            EventKind::Unmap {
                addr: addr(base + 0x10_0000),
                len: 0x4000,
            },
        ),
        event(
            2,
            0x40_1519,
            0,
            EventKind::StringStore {
                access: access(base + 0x40, &[1, 2, 3, 4, 5, 6]),
                elements: Elements {
                    bytes: 2,
                    descending: true,
                },
            },
        ),
        event(
            2,
            0x40_1519,
            0,
            EventKind::Atomic {
                addr: addr(0x7fff_0008),
            },
        ),
        event(
            2,
            0x40_151a,
            0,
            EventKind::FlushOutside {
                addr: addr(0x7fff_0000),
                word: base + 0x40,
            },
        ),
        event(
            2,
            0x40_151b,
            0,
            EventKind::LibraryCall {
                function: 1,
                args: [1, 2, 3, 4, 5],
            },
        ),
        event(2, 0x40_151c, 0, EventKind::ThreadExit),
        event(
            1,
            0x40_1520,
            0,
            EventKind::Note {
                text: b"vfork was treated as fork",
            },
        ),
        event(
            1,
            0x40_1524,
            0,
            EventKind::ProcessExit {
                process: ProcessId(1),
                status: ExitStatus::Signal(11),
            },
        ),
        event(
            0,
            0,
            0,
            EventKind::ProcessExit {
                process: ProcessId(1),
                status: ExitStatus::Exec,
            },
        ),
        event(
            0,
            0,
            0,
            EventKind::End {
                status: ExitStatus::Code(-1),
            },
        ),
    ]
}

/// Arbitrary bytes that live as long as the test program: events borrow, strategies cannot.
fn leaked(bytes: std::ops::Range<usize>) -> impl Strategy<Value = &'static [u8]> {
    prop::collection::vec(any::<u8>(), bytes).prop_map(|bytes| &*bytes.leak())
}

/// Close to each other, equal, small, or anything: what the residuals distinguish.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..64).prop_map(|n| 0x7e00_0000_0000 + n * 8),
        2 => 0u64..300,
        1 => any::<u64>(),
        1 => prop::sample::select(vec![0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0xff, 0x100]),
    ]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..4, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn accesses() -> impl Strategy<Value = Access<'static>> {
    let word = (number(), 1usize..=8)
        .prop_map(|(value, size)| &*value.to_le_bytes()[..size].to_vec().leak());
    let values = prop_oneof![4 => word, 1 => leaked(0..80)];
    prop_oneof![
        4 => (number(), values).prop_map(|(addr, bytes)| Access {
            addr: TargetAddr(addr),
            size: bytes.len() as u32,
            bytes,
        }),
        1 => (number(), small()).prop_map(|(addr, size)| Access {
            addr: TargetAddr(addr),
            size,
            bytes: b"",
        }),
    ]
}

fn status() -> impl Strategy<Value = ExitStatus> {
    prop_oneof![
        any::<i32>().prop_map(ExitStatus::Code),
        any::<i32>().prop_map(ExitStatus::Signal),
        Just(ExitStatus::Exec),
    ]
}

fn kinds() -> impl Strategy<Value = EventKind<'static>> {
    let reason = prop::sample::select(vec![
        PmReason::Glob,
        PmReason::MapSync,
        PmReason::Registered,
        PmReason::Dax,
        PmReason::Changed,
    ]);
    let flush = prop::sample::select(vec![
        FlushKind::Clflush,
        FlushKind::Clflushopt,
        FlushKind::Clwb,
    ]);
    let fence = prop::sample::select(vec![
        FenceKind::Sfence,
        FenceKind::Mfence,
        FenceKind::Locked,
    ]);
    prop_oneof![
        8 => accesses().prop_map(EventKind::Store),
        2 => accesses().prop_map(EventKind::NtStore),
        2 => accesses().prop_map(EventKind::Load),
        2 => accesses().prop_map(EventKind::Rmw),
        1 => (small(), accesses())
            .prop_map(|(syscall, access)| EventKind::KernelStore { syscall, access }),
        1 => (0u32..4, any::<bool>(), accesses()).prop_map(|(log, descending, access)| {
            let bytes = 1 << log;
            let elements = Elements { bytes, descending };
            EventKind::StringStore { access, elements }
        }),
        4 => (flush, number())
            .prop_map(|(kind, addr)| EventKind::Flush { kind, addr: TargetAddr(addr) }),
        3 => fence.prop_map(EventKind::Fence),
        1 => (small(), leaked(0..40), number(), reason, any::<bool>()).prop_map(
            |(file, path, size, reason, created)| EventKind::File {
                file: FileId(file), path, size, reason, created,
            }
        ),
        1 => (number(), number(), small(), number(), small(), small()).prop_map(
            |(addr, len, file, offset, prot, flags)| EventKind::Map {
                addr: TargetAddr(addr), len, file: FileId(file), offset, prot, flags,
            }
        ),
        1 => (number(), number())
            .prop_map(|(addr, len)| EventKind::Unmap { addr: TargetAddr(addr), len }),
        1 => (number(), number(), number(), number()).prop_map(
            |(old, old_len, new, new_len)| EventKind::Remap {
                old_addr: TargetAddr(old), old_len, new_addr: TargetAddr(new), new_len,
            }
        ),
        1 => (small(), number())
            .prop_map(|(file, size)| EventKind::Truncate { file: FileId(file), size }),
        1 => (small(), number(), leaked(0..90)).prop_map(|(file, offset, bytes)| {
            EventKind::FileWrite { file: FileId(file), offset, size: bytes.len() as u32, bytes }
        }),
        1 => (small(), number(), small()).prop_map(|(file, offset, size)| {
            EventKind::FileWrite { file: FileId(file), offset, size, bytes: b"" }
        }),
        1 => (small(), number(), small()).prop_map(|(file, offset, size)| {
            EventKind::FileRead { file: FileId(file), offset, size }
        }),
        1 => (small(), number(), number()).prop_map(|(file, offset, size)| {
            EventKind::FileSync { file: FileId(file), offset, size }
        }),
        1 => (any::<i32>(), any::<u64>()).prop_map(|(fd, at)| EventKind::Input { fd, at }),
        1 => (any::<i32>(), number()).prop_map(|(fd, size)| EventKind::Output { fd, size }),
        1 => (small(), any::<i64>(), leaked(0..40)).prop_map(|(syscall, result, path)| {
            EventKind::Lookup { syscall, result, path }
        }),
        1 => leaked(0..40).prop_map(|path| EventKind::Opened { path }),
        1 => (0..NameChange::ALL.len(), small(), small(), leaked(0..40)).prop_map(
            |(change, file, replaced, names)| EventKind::Name {
                change: NameChange::ALL[change],
                file: FileId(file),
                replaced: FileId(replaced),
                names,
            }
        ),
        1 => (any::<i32>(), number())
            .prop_map(|(signal, addr)| EventKind::Signal { signal, addr: TargetAddr(addr) }),
        1 => (any::<u64>(), any::<u64>())
            .prop_map(|(addr, word)| EventKind::FlushOutside { addr: TargetAddr(addr), word }),
        1 => (number(), number(), small()).prop_map(|(addr, len, flags)| EventKind::Msync {
            addr: TargetAddr(addr), len, flags,
        }),
        1 => (small(), any::<bool>())
            .prop_map(|(file, data_only)| EventKind::Fsync { file: FileId(file), data_only }),
        1 => (small(), small(), small(), leaked(0..40)).prop_map(|(process, parent, pid, exe)| {
            EventKind::ProcessStart {
                process: ProcessId(process), parent: ProcessId(parent), pid, exe,
            }
        }),
        1 => (small(), status()).prop_map(|(process, status)| EventKind::ProcessExit {
            process: ProcessId(process), status,
        }),
        1 => (small(), small(), small()).prop_map(|(thread, process, tid)| {
            EventKind::ThreadStart { thread: ThreadId(thread), process: ProcessId(process), tid }
        }),
        1 => Just(EventKind::ThreadExit),
        1 => (number(), small(), small(), any::<i64>()).prop_map(|(addr, op, val, result)| {
            EventKind::Futex { addr: TargetAddr(addr), op, val, result }
        }),
        1 => number().prop_map(|addr| EventKind::Atomic { addr: TargetAddr(addr) }),
        1 => number().prop_map(|addr| EventKind::Stuck { addr: TargetAddr(addr) }),
        2 => (small(), prop::array::uniform4(number()), leaked(0..20))
            .prop_map(|(code, args, text)| EventKind::Pmemcheck { code, args, text }),
        1 => (small(), prop::array::uniform5(number()), leaked(0..20))
            .prop_map(|(code, args, text)| EventKind::Annotation { code, args, text }),
        1 => (small(), prop::array::uniform5(number()))
            .prop_map(|(function, args)| EventKind::LibraryCall { function, args }),
        1 => (small(), number(), number(), number(), leaked(0..40)).prop_map(
            |(process, addr, len, offset, path)| EventKind::Module {
                process: ProcessId(process), addr: TargetAddr(addr), len, offset, path,
            }
        ),
        1 => (small(), small(), number()).prop_map(|(context, parent, addr)| EventKind::Context {
            context: ContextId(context), parent: ContextId(parent), return_addr: TargetAddr(addr),
        }),
        1 => leaked(0..60).prop_map(|text| EventKind::Note { text }),
        1 => status().prop_map(|status| EventKind::End { status }),
    ]
}

/// Any event.
pub fn events() -> impl Strategy<Value = Event<'static>> {
    (small(), number(), small(), kinds())
        .prop_map(|(thread, pc, context, kind)| event(thread, pc, context, kind))
}
