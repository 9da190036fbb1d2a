//! The ordered stream of persistent-memory events, and its file format.
//!
//! Purpose: one vocabulary ([`event`]) between the engine and every analysis, and a file that
//! holds a run of it. An analysis takes events; whether they come live or from a file it cannot
//! tell.
//!
//! | module | what |
//! |---|---|
//! | [`event`] | what can happen |
//! | [`annotation`], [`pmemcheck`] | the numbers by which programs and libraries say something |
//! | [`sink`] | who takes events, one or several |
//! | [`writer`], [`reader`] | the trace file; its bytes are described in [`mod@format`] |
//! | [`maps`] | which file lies at which target address |
//! | [`stat`], [`dump`] | for people and scripts |
//! | [`verify`] | proof that a recording misses no write |
//!
//! Guarantees: a trace is readable up to its last whole block after `kill -9`; damage is an error
//! that says where; no input makes a reader panic or take unbounded memory; what was written is
//! what is read, event for event (the one exception, splitting of huge payloads, is described in
//! [`writer`]).
//!
//! Numbers (one core of a small virtual machine, `examples/throughput.rs`): 30 to 70 million
//! events a second written, twice that read, 1 to 3 bytes an event.
//!
//! ```
//! use brownout_trace::{
//!     Access, ContextId, Event, EventKind, Meta, Reader, TargetAddr, ThreadId, Writer,
//! };
//!
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file, &Meta::default())?;
//! let store = Event {
//!     thread: ThreadId(1),
//!     pc: TargetAddr(0x40_1136),
//!     context: ContextId(0),
//!     kind: EventKind::Store(Access { addr: TargetAddr(0x7e00), size: 2, bytes: &[1, 2] }),
//! };
//! writer.push(&store)?;
//! writer.finish()?;
//!
//! let mut reader = Reader::new(std::io::Cursor::new(file))?;
//! assert_eq!(reader.next()?, Some(store));
//! assert_eq!(reader.next()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod codec;
pub mod dump;
pub mod epochs;
mod error;
pub mod event;
pub mod format;
mod image;
mod last;
pub mod maps;
pub mod reader;
pub mod sink;
pub mod stat;
pub mod verify;
pub mod writer;

/// Meaning of an [`Annotation`](EventKind::Annotation) event's code and arguments, and of a
/// [`Pmemcheck`](EventKind::Pmemcheck) event's.
pub use brownout_requests::{annotation, pmemcheck};
pub use error::{Error, Place};
pub use event::{
    Access, ContextId, Elements, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind,
    NameChange, PmReason, ProcessId, TargetAddr, ThreadId,
};
pub use format::Meta;
pub use last::LastEvents;
pub use reader::{Gap, Reader};
pub use sink::{Beginning, EventSink, Executed, Tee};
pub use writer::{Writer, WriterOptions, Written};

/// For the fuzz target only: takes `payload` apart as a block of `count` events, past the
/// checksums that would keep most mutations away from the decoder. Returns the events decoded.
#[doc(hidden)]
pub fn decode_payload_for_fuzzing(payload: &[u8], count: u32) -> u32 {
    let mut decoder = codec::Decoder::default();
    let loaded = decoder.load(count, |raw| -> Result<(), codec::Fault> {
        raw.extend_from_slice(payload);
        Ok(())
    });
    let mut decoded = 0;
    while loaded.is_ok() && decoder.remaining() > 0 && decoder.next().is_ok() {
        decoded += 1;
    }
    decoded
}
