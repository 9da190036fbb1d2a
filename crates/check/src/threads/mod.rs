//! Prediction: which store could another thread read before it is persistent, though it perhaps did
//! not this time.
//!
//! ```text
//!  event ─▶ who, which lock, which bytes ─▶ Watch ─▶ sightings ─▶ findings of `unpersisted-publication`
//!            (this file)                     windows, clocks, locks
//! ```
//! **Which way it errs.** A finding is a pair of accesses that no lock and no order that was *seen*
//! keeps apart; it may be missing where one run does not show it. It can be wrong only where
//! threads agree in a way that is not followed: by ordinary loads and stores of ordinary memory. So
//! every way of waiting that can be seen counts as knowing all that the others have done: see
//! `Call::Listen`.
//!
//! **Source.** HawkSet (EuroSys'25): lock sets over the time from a store until it is persistent,
//! thread creation and join as order, and the exemption of what is initialised before it is
//! published.
//!
//! **Deviations.**
//!
//! 1. A pair without a common lock that came one after the other by way of *some* lock is no
//!    finding: it would be a data race if that order were chance. HawkSet reports it (memory that
//!    is used again is its example of a false alarm).
//! 2. Semaphores, condition variables, barriers and reading another thread's store order, too.
//! 3. A reader that writes back what it has read, and fences, before it makes anything of it, is no
//!    finding.
//! 4. Words that locked instructions change are taken for locks, unless they are written back for
//!    their own sake.
//! 5. The entry of a function that takes a lock counts as having it: nothing that is looked at
//!    happens before it returns. A lock that was only tried counts, too, until another thread turns
//!    out to have it.
//! 6. Order by locked instructions on PM comes from what they read; every thread that has used such
//!    a word in ordinary memory counts as having released it right before the next one uses it,
//!    because a release by an ordinary store is not seen.

mod clocks;
pub mod known;
mod locks;
#[cfg(test)]
mod tests;
mod watch;
mod windows;

use brownout_findings::numbers::counted;
use brownout_findings::{BuiltIn, Role};
use brownout_model::{ByteRange, Domain, Moment, Tag};
use brownout_trace::event::{Access, Event, EventKind, FlushKind, MS_SYNC, TargetAddr, ThreadId};
use brownout_trace::maps::FileRange;
use brownout_trace::{annotation, pmemcheck};

use crate::checker::Checker;
use crate::collect::RawEvent;
use clocks::Who;
use known::{Call, Threads};
use locks::Held;
use watch::{End, Kind, Sighting, Why};

/// An access, as the rule sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Load,
    Store(Kind),
}

impl Checker {
    /// The event, for the sake of threads. After [`event`](Checker::event).
    pub(crate) fn thread_event(&mut self, event: &Event<'_>) {
        let Some(mut threads) = self.threads_watch.take() else {
            return;
        };
        self.observe_threads(&mut threads, event);
        self.threads_watch = Some(threads);
    }

    fn observe_threads(&mut self, threads: &mut Threads, event: &Event<'_>) {
        let by_msync = threads.domain == Domain::Page;
        let in_caches = threads.domain == Domain::Eadr;
        let plain = match in_caches {
            true => Kind::Persistent,
            false => Kind::Plain,
        };
        match &event.kind {
            EventKind::Load(access) => self.thread_access(threads, event, access, Does::Load),
            EventKind::Store(access)
            | EventKind::KernelStore { access, .. }
            | EventKind::StringStore { access, .. } => {
                self.thread_access(threads, event, access, Does::Store(plain));
            }
            EventKind::NtStore(access) => {
                self.thread_access(threads, event, access, Does::Store(Kind::NonTemporal));
            }
            EventKind::Rmw(access) => {
                self.thread_access(threads, event, access, Does::Store(Kind::Locked));
            }
            EventKind::Flush { kind, addr } if !by_msync => {
                let at_once = *kind == FlushKind::Clflush;
                let who = self.known_as(threads, event.thread);
                if let Some(range) = self.whole(event.thread, *addr, 1) {
                    let tag = self.tag_here(event);
                    let now = self.moment();
                    threads.watch.flush(who, range.start(), now, tag, at_once);
                }
            }
            EventKind::Fence(_) if !by_msync => self.thread_fence(threads, event),
            EventKind::LibraryCall { function, args } => {
                if let Some(Some((call, len))) = threads.calls.get(*function as usize).copied() {
                    let tag = self.tag_here(event);
                    let this = (*function, *args, tag);
                    let last = threads.last_calls.insert(event.thread, this);
                    // An object in persistent memory, and the function's first instruction found
                    // out that it is: that begins again.
                    let is_again = last == Some(this);
                    let object = TargetAddr(args[0]);
                    if !is_again || self.whole(event.thread, object, 1).is_none() {
                        self.thread_call(threads, event, call, len, args);
                    }
                }
            }
            EventKind::Atomic { addr } => {
                let who = self.known_as(threads, event.thread);
                threads.watch.meet(who, 1 << 61 | addr.0);
            }
            EventKind::Msync { addr, len, flags } if flags & MS_SYNC != 0 => {
                for (range, _) in self.parts(event.thread, *addr, *len) {
                    self.thread_sync(threads, event, range);
                }
            }
            EventKind::Fsync { file, .. } => {
                let range = brownout_model::keys::whole_file(*file);
                self.thread_sync(threads, event, range);
            }
            EventKind::FileSync { file, offset, size } => {
                let (file, offset, len) = (*file, *offset, *size);
                let range = brownout_model::keys::range(FileRange { file, offset, len });
                self.thread_sync(threads, event, range);
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                let (file, offset, len) = (*file, *offset, u64::from(*size));
                let range = brownout_model::keys::range(FileRange { file, offset, len });
                threads.watch.forget(range);
            }
            EventKind::Truncate { file, size } => {
                let (file, offset, len) = (*file, *size, u64::MAX);
                let range = brownout_model::keys::range(FileRange { file, offset, len });
                threads.watch.forget(range);
            }
            EventKind::Annotation { code, args, .. } => {
                let (addr, len) = (TargetAddr(args[0]), args[1]);
                match *code {
                    annotation::SET_CLEAN | annotation::EXCLUDE => {
                        self.thread_forgets(threads, event, addr, len);
                    }
                    annotation::FLUSH => self.thread_flushes(threads, event, addr, len),
                    annotation::FENCE | annotation::DFENCE => self.thread_fence(threads, event),
                    _ => {}
                }
            }
            EventKind::Pmemcheck { code, args, .. } => {
                let (addr, len) = (TargetAddr(args[0]), args[1]);
                match *code {
                    pmemcheck::SET_CLEAN => self.thread_forgets(threads, event, addr, len),
                    pmemcheck::DO_FLUSH => self.thread_flushes(threads, event, addr, len),
                    pmemcheck::DO_FENCE => self.thread_fence(threads, event),
                    _ => {}
                }
            }
            EventKind::ProcessStart {
                process, parent, ..
            } => threads.watch.process(*process, *parent),
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                threads.who(*thread, *process);
            }
            EventKind::ThreadExit => {
                let who = self.known_as(threads, event.thread);
                threads.watch.end(who);
            }
            EventKind::ProcessExit { process, .. } => threads.watch.end_process(*process),
            _ => {}
        }
    }

    fn known_as(&self, threads: &mut Threads, thread: ThreadId) -> Who {
        match threads.who.get(&thread) {
            Some(who) => *who,
            None => {
                let process = self.spaces.process_of(thread).unwrap_or_default();
                threads.who(thread, process)
            }
        }
    }

    fn tag_here(&mut self, event: &Event<'_>) -> Tag {
        let at = self.thread(event.thread);
        self.tag(at, event.pc, event.context)
    }

    fn thread_access(
        &mut self,
        threads: &mut Threads,
        event: &Event<'_>,
        access: &Access<'_>,
        does: Does,
    ) {
        let who = self.known_as(threads, event.thread);
        let len = u64::from(access.size);
        let at = self.thread(event.thread);
        let (process, stopped) = self.process_and_pause(at);
        let tag = self.tag(at, event.pc, event.context);
        let now = self.moment();
        // What libpmem and libpmemobj do for themselves is kept consistent by other means.
        let is_quiet = stopped || self.library_code.contains(process, event.pc);
        threads.last_calls.remove(&event.thread);
        if let Some(slept) = threads.slept.get_mut(&event.thread) {
            slept.clear();
        }
        for (range, _) in self.parts(event.thread, access.addr, len) {
            if range.is_empty() || threads.watch.is_all_sync(range) {
                continue;
            }
            let is_quiet = is_quiet || self.excluded.overlaps(range);
            match does {
                Does::Load => threads.watch.load(who, range, now, tag, is_quiet),
                Does::Store(kind) => threads.watch.store(who, range, now, tag, kind, is_quiet),
            }
        }
    }

    fn thread_fence(&mut self, threads: &mut Threads, event: &Event<'_>) {
        let who = self.known_as(threads, event.thread);
        let tag = self.tag_here(event);
        threads.watch.fence(who, self.moment(), tag);
    }

    fn thread_sync(&mut self, threads: &mut Threads, event: &Event<'_>, range: ByteRange) {
        let who = self.known_as(threads, event.thread);
        let tag = self.tag_here(event);
        let now = self.moment();
        threads.watch.synchronised(who, range, now, tag);
    }

    fn thread_forgets(
        &mut self,
        threads: &mut Threads,
        event: &Event<'_>,
        addr: TargetAddr,
        len: u64,
    ) {
        for (range, _) in self.parts(event.thread, addr, len) {
            threads.watch.forget(range);
        }
    }

    fn thread_flushes(
        &mut self,
        threads: &mut Threads,
        event: &Event<'_>,
        addr: TargetAddr,
        len: u64,
    ) {
        let who = self.known_as(threads, event.thread);
        let tag = self.tag_here(event);
        let now = self.moment();
        for (range, _) in self.parts(event.thread, addr, len) {
            for line in windows::by_line(range) {
                threads.watch.flush(who, line.start(), now, tag, false);
            }
        }
    }

    fn thread_call(
        &mut self,
        threads: &mut Threads,
        event: &Event<'_>,
        call: Call,
        len: u64,
        args: &[u64; 5],
    ) {
        let who = self.known_as(threads, event.thread);
        let tag = self.tag_here(event);
        let mut key = |checker: &mut Checker, at: usize, len: u64| {
            // A lock in persistent memory is the same lock wherever it is mapped.
            match checker.whole(event.thread, TargetAddr(args[at]), len) {
                Some(range) => {
                    threads.watch.is_sync(range);
                    1 << 63 | range.start().0
                }
                None => args[at],
            }
        };
        // One of these functions may call another. It goes round in circles if it comes to the same
        // place again.
        let slept = threads.slept.entry(event.thread).or_default();
        let sleeps_again = slept.contains(&tag);
        match call {
            Call::Sleep if !sleeps_again => slept.push(tag),
            Call::Sleep => {}
            _ => slept.clear(),
        }
        match call {
            Call::Create => threads.watch.create(who),
            Call::Join => threads.watch.join(who),
            Call::Take { shared, surely } => {
                let key = key(self, 0, len);
                let lock = threads.lock(key);
                threads.watch.take(who, Held { lock, shared }, surely);
            }
            Call::Give => {
                let key = key(self, 0, len);
                let lock = threads.lock(key);
                threads.watch.give(who, lock, tag);
            }
            Call::WaitWithout => {
                let condition = key(self, 0, len);
                let key = key(self, 1, Call::object_len("mutex"));
                let lock = threads.lock(key);
                threads.watch.wait_without(who, lock, condition, tag);
            }
            Call::Post => {
                let key = key(self, 0, len);
                threads.watch.post(who, key);
            }
            Call::Wait => {
                let key = key(self, 0, len);
                threads.watch.wait(who, key);
            }
            Call::Meet => {
                let key = key(self, 0, len);
                threads.watch.post(who, key);
                threads.watch.wait(who, key);
            }
            Call::Once => {
                let key = key(self, 0, len);
                threads.watch.meet(who, key);
            }
            Call::Listen => threads.watch.listen(who),
            Call::Sleep if sleeps_again => threads.watch.listen(who),
            Call::Sleep => {}
        }
    }

    /// No event follows: what was found becomes findings.
    pub(crate) fn finish_threads(&mut self) {
        let Some(threads) = &mut self.threads_watch else {
            return;
        };
        let found = threads.watch.finish();
        if !threads.watch.has_persisted() {
            // Nothing was to be persistent, so nobody reads it too early.
            return;
        }
        for sighting in found {
            self.report_publication(&sighting);
        }
    }

    fn report_publication(&mut self, sighting: &Sighting) {
        let Sighting { store, load, .. } = sighting;
        let len = store.range.len();
        let (primary, secondary) = (store.tag, load.tag);
        let rule = BuiltIn::UnpersistedPublication;
        for _ in 1..sighting.count {
            self.collector
                .report(rule, primary, secondary, len, || describe(sighting));
        }
        self.collector
            .report(rule, primary, secondary, len, || describe(sighting));
    }
}

/// The finding in words.
fn describe(sighting: &Sighting) -> (String, Vec<RawEvent>) {
    let Sighting {
        why,
        store,
        load,
        unlock,
        end,
        ..
    } = sighting;
    let len = store.range.len();
    let (is, they) = match len {
        1 => ("is", "it"),
        _ => ("are", "they"),
    };
    let bytes = counted(len, "byte");
    let message = match why {
        Why::Happened => {
            format!("{bytes} {is} read by another thread before {they} {is} persistent")
        }
        Why::GivenBack | Why::Unordered => {
            format!("{bytes} can be read by another thread before {they} {is} persistent")
        }
    };
    let mut events = vec![
        RawEvent::new(Role::Store, format!("{bytes} {is} stored here"), store.tag)
            .by(store.thread)
            .at(store.moment)
            .on(store.range, TargetAddr(0)),
    ];
    if let Some(unlock) = unlock {
        let text = "the lock that both threads take is given back here, too early";
        events.push(RawEvent::new(Role::Unlock, text, *unlock).by(store.thread));
    }
    let text = match why {
        Why::Happened => {
            "another thread reads here what is not persistent: it happened in this run"
        }
        Why::GivenBack if load.moment < store.moment => {
            "another thread reads here; in this run it had the lock before the store"
        }
        Why::GivenBack => {
            "another thread reads here; in this run it had the lock late enough, by chance"
        }
        Why::Unordered if load.moment < store.moment => {
            "another thread reads here; in this run that was before the store, by chance"
        }
        Why::Unordered => "another thread reads here; in this run that was late enough, by chance",
    };
    let read = RawEvent::new(Role::Load, text, load.tag)
        .by(load.thread)
        .at(load.moment);
    let end = match end {
        End::Persistent(closed) => {
            let text = format!("{they} {is} persistent only from here on");
            let end = RawEvent::new(Role::Fence, text, closed.tag);
            Some(end.by(closed.thread).at(closed.moment))
        }
        End::Overwritten => {
            let text = format!("{they} {is} stored over before {they} {is} ever persistent");
            Some(RawEvent::new(Role::Event, text, Tag(0)))
        }
        End::Never => {
            let text = format!("the run ends, and {they} {is} still not persistent");
            Some(RawEvent::new(Role::Exit, text, Tag(0)))
        }
    };
    let is_before = |end: &RawEvent| {
        end.moment
            .is_some_and(|end| end < read.moment.unwrap_or(Moment(0)))
    };
    match end {
        // In the order of the run.
        Some(end) if is_before(&end) => events.extend([end, read]),
        end => {
            events.push(read);
            events.extend(end);
        }
    }
    (message, events)
}
