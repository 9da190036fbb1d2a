//! What the tests share.

#![allow(dead_code, reason = "each test uses its part")]

pub mod pmreorder;

use brownout_storelog::{Error, Exported, Exporter, Importer};
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, FileId, FlushKind, PmReason, ProcessId, TargetAddr,
    ThreadId,
};

pub const MARKER: u32 = 0x8003;
pub const MS_SYNC: u32 = 4;

pub fn by(thread: u32, kind: EventKind<'_>) -> Event<'_> {
    Event {
        thread: ThreadId(thread),
        pc: TargetAddr(0),
        context: ContextId(0),
        kind,
    }
}

pub fn event(kind: EventKind<'_>) -> Event<'_> {
    by(1, kind)
}

pub fn access(addr: u64, bytes: &[u8]) -> Access<'_> {
    Access {
        addr: TargetAddr(addr),
        size: bytes.len() as u32,
        bytes,
    }
}

pub fn store(addr: u64, bytes: &[u8]) -> Event<'_> {
    event(EventKind::Store(access(addr, bytes)))
}

pub fn flush(kind: FlushKind, addr: u64) -> Event<'static> {
    event(EventKind::Flush {
        kind,
        addr: TargetAddr(addr),
    })
}

pub fn request(code: u32, a: u64, b: u64, text: &[u8]) -> Event<'_> {
    event(EventKind::Pmemcheck {
        code,
        args: [a, b, 0, 0],
        text,
    })
}

pub fn thread_start(thread: u32, process: u32) -> Event<'static> {
    by(
        thread,
        EventKind::ThreadStart {
            thread: ThreadId(thread),
            process: ProcessId(process),
            tid: 1,
        },
    )
}

pub fn file(file: u32, path: &[u8], size: u64) -> Event<'_> {
    event(EventKind::File {
        file: FileId(file),
        path,
        size,
        reason: PmReason::Glob,
        created: false,
    })
}

pub fn map(thread: u32, addr: u64, len: u64, file: u32, offset: u64) -> Event<'static> {
    by(
        thread,
        EventKind::Map {
            addr: TargetAddr(addr),
            len,
            file: FileId(file),
            offset,
            prot: 3,
            flags: 1,
        },
    )
}

pub fn export(events: &[Event<'_>]) -> (String, Exported) {
    let mut log = Vec::new();
    let mut exporter = Exporter::new(&mut log);
    for event in events {
        exporter.event(event).expect("the event is exportable");
    }
    let exported = exporter.finish().expect("memory takes it all");
    assert_eq!(exported.len, log.len() as u64);
    (String::from_utf8(log).expect("a log is UTF-8"), exported)
}

/// Events as text, and how reading ended.
pub fn import(log: &[u8]) -> (Vec<String>, Result<(), Error>) {
    let mut importer = Importer::new(log);
    let mut events = Vec::new();
    let result = loop {
        match importer.next() {
            Ok(Some(event)) => events.push(line(&event)),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    (events, result)
}

/// An event as one short line.
pub fn line(event: &Event<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &event.kind {
        EventKind::Store(access) => {
            let bytes: Vec<String> = access.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let mut line = format!("store {} {}", access.addr, bytes.join(" "));
            if event.context != ContextId(0) {
                line += &format!(" at {} context {}", event.pc, event.context);
            }
            line
        }
        EventKind::Flush { kind, addr } => format!("{} {addr}", kind.name()),
        EventKind::Fence(kind) => kind.name().to_owned(),
        EventKind::File {
            file, path, size, ..
        } => format!("file {file} {} {size:#x}", text(path)),
        EventKind::Map {
            addr,
            len,
            file,
            offset,
            ..
        } => format!("map {addr} {len:#x} {file} {offset:#x}"),
        EventKind::Annotation {
            code: MARKER,
            text: marker,
            ..
        } => format!("marker {}", text(marker)),
        EventKind::Note { text: note } => format!("note {}", text(note)),
        EventKind::Context {
            context,
            return_addr,
            ..
        } => format!("context {context} {return_addr}"),
        EventKind::ProcessStart { pid, exe, .. } => format!("process_start {pid} {}", text(exe)),
        other => other.name().to_owned(),
    }
}
