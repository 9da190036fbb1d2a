//! What a rule may ask about persistent memory.

use std::ffi::c_void;

use crate::abi::{HostTable, RawBytes, RawFinding, RawStatus};
use crate::event::{Place, ThreadId};
use crate::state::Status;

/// The tool's end of a call.
///
/// Safe to use because of how it is made: only [`Link::new`] makes one, and that is where the
/// promise is given.
#[derive(Clone, Copy)]
pub(crate) struct Link<'a> {
    host: &'a HostTable,
    call: *mut c_void,
}

impl<'a> Link<'a> {
    /// # Safety
    ///
    /// `call` is the one that the tool passed together with `host`, and that call lasts for `'a`.
    pub(crate) unsafe fn new(host: &'a HostTable, call: *mut c_void) -> Self {
        Link { host, call }
    }

    pub(crate) fn fail(self, message: &str) {
        // SAFETY: `Link::new`; the message outlives the call.
        unsafe { (self.host.fail)(self.call, RawBytes::new(message.as_bytes())) }
    }

    pub(crate) fn report(self, finding: &RawFinding) {
        // SAFETY: `Link::new`; the caller borrows what the finding points at.
        unsafe { (self.host.report)(self.call, finding) }
    }
}

/// The state of persistent memory, as the tool's model has it.
///
/// At an event it is the state *before* the event takes effect; in [`Rule::end`](crate::Rule::end),
/// after the last. A question is about a [`Place`], in its file; or about a
/// [`ByteRange`](crate::ByteRange), at its address in the event's process. In
/// [`Rule::end`](crate::Rule::end) there is no such process: ask for places there.
///
/// Answers err on one side: what is called persisted or ordered is so in every crash that the model
/// allows; what no crash shows out of order may still be called unordered.
pub struct Pm<'a> {
    link: Link<'a>,
}

impl<'a> Pm<'a> {
    pub(crate) fn new(link: Link<'a>) -> Self {
        Pm { link }
    }

    /// True if the last stores to all of `place` survive every crash from now on. Bytes that were
    /// never stored to do.
    pub fn is_persisted(&self, place: impl Into<Place>) -> bool {
        // SAFETY: `Link::new`.
        unsafe { (self.link.host.is_persisted)(self.link.call, place.into()) != 0 }
    }

    /// True if no crash leaves any of the last stores to `later` without all of the last stores to
    /// `earlier`.
    pub fn is_ordered_before(&self, earlier: impl Into<Place>, later: impl Into<Place>) -> bool {
        let (earlier, later) = (earlier.into(), later.into());
        // SAFETY: `Link::new`.
        unsafe { (self.link.host.is_ordered_before)(self.link.call, earlier, later) != 0 }
    }

    /// The parts of `place` that were stored to in this run, in address order.
    pub fn status(&self, place: impl Into<Place>) -> Vec<Status> {
        unsafe extern "C" fn push(data: *mut c_void, status: *const RawStatus) {
            // SAFETY: `data` is the vector below, which nobody else touches meanwhile; `status` is
            // valid for this call, and as long as we think, which `export::create` has checked.
            let (found, status) = unsafe { (&mut *data.cast::<Vec<Status>>(), &*status) };
            found.push(status.status());
        }
        let mut found = Vec::new();
        let data = (&raw mut found).cast();
        // SAFETY: `Link::new`; `push` fits `data`.
        unsafe { (self.link.host.status)(self.link.call, place.into(), push, data) }
        found
    }

    /// True if the thread has an open transaction.
    pub fn in_transaction(&self, thread: ThreadId) -> bool {
        // SAFETY: `Link::new`.
        unsafe { (self.link.host.in_transaction)(self.link.call, thread) != 0 }
    }

    /// True if the thread's open transaction covers all of `place`: every byte was logged by it, or
    /// allocated in it.
    pub fn is_logged(&self, thread: ThreadId, place: impl Into<Place>) -> bool {
        // SAFETY: `Link::new`.
        unsafe { (self.link.host.is_logged)(self.link.call, thread, place.into()) != 0 }
    }
}
