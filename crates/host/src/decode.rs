//! Ring records to events.

use crate::control::Shared;
use crate::{EventSink, ExitStatus, LaunchError};
use brownout_abi::{HEAD_LEN, RecordHead, annotation, kind, rare};
use brownout_trace::event::{self, *};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::io;

/// Compiles `--pm` patterns. `*` does not cross `/`; `**` does.
pub fn globs(patterns: &[String]) -> Result<GlobSet, LaunchError> {
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        // A relative pattern means relative to here: files are matched by absolute path.
        let full = if p.starts_with('/') || p.starts_with("**") {
            p.clone()
        } else {
            let here =
                std::env::current_dir().map_err(|e| LaunchError::Launch("current folder", e))?;
            format!(
                "{}/{}",
                globset::escape(&here.to_string_lossy()),
                p.strip_prefix("./").unwrap_or(p)
            )
        };
        let glob = GlobBuilder::new(&full)
            .literal_separator(true)
            .build()
            .map_err(|e| LaunchError::BadGlob(p.clone(), e.kind().to_string()))?;
        set.add(glob);
    }
    set.build()
        .map_err(|e| LaunchError::BadGlob(patterns.join(", "), e.kind().to_string()))
}

/// Turns records into events, resolving site numbers to addresses.
pub struct Decoder {
    /// Site number to program address.
    sites: Vec<u64>,
    events: u64,
    /// A long access whose pieces are being put together.
    long: Option<Long>,
}

struct Long {
    thread: ThreadId,
    pc: TargetAddr,
    context: ContextId,
    kind: u8,
    syscall: u32,
    addr: u64,
    bytes: Vec<u8>,
    total: u64,
    values: bool,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("in bounds"))
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("in bounds"))
}

impl Decoder {
    pub fn new() -> Self {
        Decoder {
            sites: vec![0],
            events: 0,
            long: None,
        }
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    /// The run is over.
    pub fn end(&mut self, status: ExitStatus, sink: &mut dyn EventSink) -> io::Result<()> {
        let status = match status {
            ExitStatus::Code(c) => event::ExitStatus::Code(c),
            ExitStatus::Signal(s) => event::ExitStatus::Signal(s),
        };
        self.emit(
            sink,
            ThreadId(0),
            TargetAddr(0),
            ContextId(0),
            EventKind::End { status },
        )
    }

    fn define_site(&mut self, site: u32, pc: u64) {
        if self.sites.len() <= site as usize {
            self.sites.resize(site as usize + 1, 0);
        }
        self.sites[site as usize] = pc;
    }

    /// Where a site is.
    #[inline]
    fn pc(&self, site: u32) -> TargetAddr {
        TargetAddr(self.sites.get(site as usize).copied().unwrap_or(0))
    }

    fn emit(
        &mut self,
        sink: &mut dyn EventSink,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        kind: EventKind<'_>,
    ) -> io::Result<()> {
        self.events += 1;
        sink.event(&Event {
            thread,
            pc,
            context,
            kind,
        })
    }

    /// One whole record, of those that a [`Batch`] leaves. If it asks for an answer, that is returned with the thread that waits for it.
    pub fn record(
        &mut self,
        r: &[u8],
        sink: &mut dyn EventSink,
    ) -> io::Result<Option<(u32, [u64; 3])>> {
        let Some(asker) = asker(r) else {
            self.pass_on(r, sink)?;
            return Ok(None);
        };
        let mut asking = Asking {
            sink,
            answer: [0; 3],
        };
        self.pass_on(r, &mut asking)?;
        Ok(Some((asker, asking.answer)))
    }

    fn pass_on(&mut self, r: &[u8], sink: &mut dyn EventSink) -> io::Result<()> {
        let record_kind = r[1];
        let thread = ThreadId(u16::from_le_bytes([r[2], r[3]]) as u32);
        let site = u32_at(r, 4);
        let context = ContextId(u32_at(r, 8));
        let size = u32_at(r, 12);
        let addr = u64_at(r, 16);
        let payload = &r[HEAD_LEN..];
        let pc = self.pc(site);
        match record_kind {
            kind::STORE | kind::NT_STORE | kind::LOAD | kind::RMW | kind::KERNEL_STORE => {
                let (syscall, payload) = if record_kind == kind::KERNEL_STORE {
                    (u64_at(payload, 0) as u32, &payload[8..])
                } else {
                    (0, payload)
                };
                let values = !payload.is_empty();
                if values && (size as usize) > payload.len() {
                    // The first piece of a long access: `MORE` records follow at once.
                    self.long = Some(Long {
                        thread,
                        pc,
                        context,
                        kind: record_kind,
                        syscall,
                        addr,
                        bytes: payload.to_vec(),
                        total: size as u64,
                        values,
                    });
                    return Ok(());
                }
                let bytes = if values {
                    &payload[..size as usize]
                } else {
                    &[][..]
                };
                let access = Access {
                    addr: TargetAddr(addr),
                    size,
                    bytes,
                };
                self.emit(
                    sink,
                    thread,
                    pc,
                    context,
                    access_kind(record_kind, syscall, access),
                )
            }
            kind::MORE => {
                let Some(mut long) = self.long.take() else {
                    return Err(io::Error::other(
                        "bug: a continuation record without its beginning",
                    ));
                };
                let left = (long.total as usize - long.bytes.len()).min(payload.len());
                long.bytes.extend_from_slice(&payload[..left]);
                if (long.bytes.len() as u64) < long.total {
                    self.long = Some(long);
                    return Ok(());
                }
                let bytes = if long.values {
                    &long.bytes[..]
                } else {
                    &[][..]
                };
                let access = Access {
                    addr: TargetAddr(long.addr),
                    size: long.total as u32,
                    bytes,
                };
                let (t, p, c, k) = (
                    long.thread,
                    long.pc,
                    long.context,
                    access_kind(long.kind, long.syscall, access),
                );
                self.emit(sink, t, p, c, k)
            }
            kind::CONTEXT => self.emit(
                sink,
                thread,
                TargetAddr(0),
                ContextId(0),
                EventKind::Context {
                    context,
                    parent: ContextId(size),
                    return_addr: TargetAddr(addr),
                },
            ),
            kind::RARE => {
                let used = &payload[..(size as usize).min(payload.len())];
                if used.len() < 48 {
                    return Err(io::Error::other("bug: a short record in the event ring"));
                }
                let w: [u64; 6] = std::array::from_fn(|i| u64_at(used, 8 * i));
                let Some(kind) = rare_kind(addr, w, &used[48..]) else {
                    return Err(io::Error::other("bug: an unknown record in the event ring"));
                };
                self.emit(sink, thread, pc, context, kind)
            }
            _ => Err(io::Error::other("bug: an unknown record in the event ring")),
        }
    }
}

/// Bytes of a write-back.
const LINE: u32 = 64;

/// A stretch of the stream, as events. Given to [`EventSink::events`].
///
/// It ends before a record that is more than an event: one that asks, or that announces a process, or that is put together from several.
pub struct Batch<'a> {
    shared: &'a Shared,
    decoder: &'a mut Decoder,
    /// Where the next record begins.
    read: u64,
    end: u64,
    events_max: u64,
    /// Lines of the record at `read` that were events already.
    lines: u32,
}

impl<'a> Batch<'a> {
    /// The records from `read` on, up to `end`, as far as there are no more than `events_max` events.
    ///
    /// # Safety
    /// The writer has published this stretch, and it is not released while the batch, or an event from it, lives.
    pub unsafe fn new(
        shared: &'a Shared,
        decoder: &'a mut Decoder,
        (read, end): (u64, u64),
        events_max: u64,
    ) -> Batch<'a> {
        Batch {
            shared,
            decoder,
            read,
            end,
            events_max,
            lines: 0,
        }
    }

    /// The next line of a write-back; `self.lines` is 0 if it is the last.
    #[inline(always)]
    fn flush(&mut self, head: &RecordHead, kind: FlushKind) -> EventKind<'a> {
        let into = self.lines * LINE;
        let is_last = head.size <= into + LINE;
        self.lines = if is_last { 0 } else { self.lines + 1 };
        EventKind::Flush {
            kind,
            addr: TargetAddr(head.addr.wrapping_add(into.into())),
        }
    }

    /// Where the first record begins that was not an event of this batch.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// The next event.
    #[inline(always)]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would be tempted to outlive its stretch"
    )]
    pub fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if self.read >= self.end || self.decoder.events >= self.events_max {
                return None;
            }
            // SAFETY: `new`'s caller has promised that records begin here.
            let head = unsafe { self.shared.head(self.read) };
            let len = usize::from(head.words) * 8;
            let payload_len = len.checked_sub(HEAD_LEN)?;
            // SAFETY: likewise, the whole record. The ring is not written to before it is released.
            let payload = unsafe { self.shared.ring(self.read + HEAD_LEN as u64, payload_len) };
            let access = |payload: &'a [u8]| {
                let bytes = match payload.is_empty() {
                    true => &[][..],
                    // `None` is the first piece of a long access.
                    false => payload.get(..head.size as usize)?,
                };
                Some(Access {
                    addr: TargetAddr(head.addr),
                    size: head.size,
                    bytes,
                })
            };
            let kind = match head.kind {
                kind::STORE => EventKind::Store(access(payload)?),
                kind::NT_STORE => EventKind::NtStore(access(payload)?),
                kind::LOAD => EventKind::Load(access(payload)?),
                kind::RMW => EventKind::Rmw(access(payload)?),
                kind::CLFLUSH => self.flush(&head, FlushKind::Clflush),
                kind::CLFLUSHOPT => self.flush(&head, FlushKind::Clflushopt),
                kind::CLWB => self.flush(&head, FlushKind::Clwb),
                kind::FENCE => EventKind::Fence(fence_kind(head.size)),
                kind::REQUEST if payload_len >= 40 => EventKind::Pmemcheck {
                    code: (u64_at(payload, 0) & 0xffff) as u32,
                    args: std::array::from_fn(|i| u64_at(payload, 8 * i + 8)),
                    text: &[],
                },
                kind::CALL if payload_len >= 40 => EventKind::LibraryCall {
                    function: head.addr as u32,
                    args: std::array::from_fn(|i| u64_at(payload, 8 * i)),
                },
                kind::SITE => {
                    self.decoder.define_site(head.site, head.addr);
                    self.read += len as u64;
                    continue;
                }
                _ => return None,
            };
            if self.lines == 0 {
                self.read += len as u64;
            }
            self.decoder.events += 1;
            return Some(Event {
                thread: ThreadId(head.thread.into()),
                pc: self.decoder.pc(head.site),
                context: ContextId(head.ctx),
                kind,
            });
        }
    }
}

fn fence_kind(size: u32) -> FenceKind {
    match size {
        0 => FenceKind::Sfence,
        1 => FenceKind::Mfence,
        _ => FenceKind::Locked,
    }
}

/// The thread that waits for an answer to this record, if it is such a record.
pub fn asker(r: &[u8]) -> Option<u32> {
    let asks = r[1] == kind::RARE
        && u64_at(r, 16) == rare::ANNOTATION
        && r.len() >= HEAD_LEN + 8
        && matches!(
            u64_at(r, HEAD_LEN) as u32,
            annotation::CHECKPOINT | annotation::FIND_VARIABLE
        );
    asks.then(|| u16::from_le_bytes([r[2], r[3]]) as u32)
}

/// The kernel's number of the process that this record announces, if it is such a record.
pub fn announced(r: &[u8]) -> Option<i32> {
    if r[1] != kind::RARE
        || !matches!(u64_at(r, 16), rare::PROCESS_START | rare::THREAD_START)
        || r.len() < HEAD_LEN + 32
    {
        return None;
    }
    let pid = u64_at(r, HEAD_LEN + 24) as i32;
    (pid > 0).then_some(pid)
}

/// Passes one event on and asks for the answer.
struct Asking<'a> {
    sink: &'a mut dyn EventSink,
    answer: [u64; 3],
}

impl EventSink for Asking<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.sink.event(event)?;
        self.answer = self.sink.answer(event);
        Ok(())
    }
}

fn access_kind(record_kind: u8, syscall: u32, access: Access<'_>) -> EventKind<'_> {
    match record_kind {
        kind::STORE => EventKind::Store(access),
        kind::NT_STORE => EventKind::NtStore(access),
        kind::LOAD => EventKind::Load(access),
        kind::RMW => EventKind::Rmw(access),
        _ => EventKind::KernelStore { syscall, access },
    }
}

fn rare_kind(which: u64, w: [u64; 6], text: &[u8]) -> Option<EventKind<'_>> {
    Some(match which {
        rare::FILE => EventKind::File {
            file: FileId(w[0] as u32),
            size: w[1],
            reason: match w[2] {
                0 => PmReason::Glob,
                1 => PmReason::MapSync,
                2 => PmReason::Registered,
                3 => PmReason::Dax,
                _ => PmReason::Changed,
            },
            created: w[3] != 0,
            path: text,
        },
        rare::MAP => EventKind::Map {
            addr: TargetAddr(w[0]),
            len: w[1],
            file: FileId(w[2] as u32),
            offset: w[3],
            prot: w[4] as u32,
            flags: w[5] as u32,
        },
        rare::UNMAP => EventKind::Unmap {
            addr: TargetAddr(w[0]),
            len: w[1],
        },
        rare::REMAP => EventKind::Remap {
            old_addr: TargetAddr(w[0]),
            old_len: w[1],
            new_addr: TargetAddr(w[2]),
            new_len: w[3],
        },
        rare::TRUNCATE => EventKind::Truncate {
            file: FileId(w[0] as u32),
            size: w[1],
        },
        rare::FILE_WRITE => EventKind::FileWrite {
            file: FileId(w[0] as u32),
            offset: w[1],
            size: w[2] as u32,
            bytes: text,
        },
        rare::FILE_READ => EventKind::FileRead {
            file: FileId(w[0] as u32),
            offset: w[1],
            size: w[2] as u32,
        },
        rare::INPUT => EventKind::Input { fd: w[0] as i32 },
        rare::OUTPUT => EventKind::Output {
            fd: w[0] as i32,
            size: w[1],
        },
        rare::LOOKUP => EventKind::Lookup {
            syscall: w[0] as u32,
            result: w[1] as i64,
            path: text,
        },
        rare::NAME => EventKind::Name {
            change: *NameChange::ALL.get(w[0] as usize)?,
            file: FileId(w[1] as u32),
            replaced: FileId(w[2] as u32),
            names: text,
        },
        rare::SIGNAL => EventKind::Signal {
            signal: w[0] as i32,
            addr: TargetAddr(w[1]),
        },
        rare::MSYNC => EventKind::Msync {
            addr: TargetAddr(w[0]),
            len: w[1],
            flags: w[2] as u32,
        },
        rare::FSYNC => EventKind::Fsync {
            file: FileId(w[0] as u32),
            data_only: w[1] != 0,
        },
        rare::PROCESS_START => EventKind::ProcessStart {
            process: ProcessId(w[0] as u32),
            parent: ProcessId(w[1] as u32),
            pid: w[2] as u32,
            exe: text,
        },
        rare::PROCESS_EXIT => EventKind::ProcessExit {
            process: ProcessId(w[0] as u32),
            status: match w[1] {
                0 => event::ExitStatus::Code(w[2] as i32),
                1 => event::ExitStatus::Signal(w[2] as i32),
                _ => event::ExitStatus::Exec,
            },
        },
        rare::THREAD_START => EventKind::ThreadStart {
            thread: ThreadId(w[0] as u32),
            process: ProcessId(w[1] as u32),
            tid: w[2] as u32,
        },
        rare::THREAD_EXIT => EventKind::ThreadExit,
        rare::FUTEX => EventKind::Futex {
            addr: TargetAddr(w[0]),
            op: w[1] as u32,
            val: w[2] as u32,
            result: w[3] as i64,
        },
        rare::PMEMCHECK => EventKind::Pmemcheck {
            code: w[0] as u32,
            args: [w[1], w[2], w[3], w[4]],
            text,
        },
        rare::ANNOTATION => EventKind::Annotation {
            code: w[0] as u32,
            args: [w[1], w[2], w[3], w[4], w[5]],
            text,
        },
        rare::MODULE => EventKind::Module {
            process: ProcessId(w[0] as u32),
            addr: TargetAddr(w[1]),
            len: w[2],
            offset: w[3],
            path: text,
        },
        rare::NOTE => EventKind::Note { text },
        _ => return None,
    })
}
