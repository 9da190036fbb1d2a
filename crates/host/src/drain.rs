//! Feeds the sink, watches the limits, and notices the end.

use crate::client::{Activity, Wish};
use crate::control::{Records, Shared, futex_wake};
use crate::decode::{Broken, Failure, Reader};
use crate::processes::{PASS_ON_AFTER, Processes};
use crate::service::State;
use crate::{EventSink, ExitStatus, LaunchConfig, Stopped, decode, turns};
use brownout_abi as abi;
use brownout_trace::Beginning;
use brownout_trace::event::FileId;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Fewer bytes than these are left for a moment: a reader on the writer's heels takes its cache
/// lines away, record by record, and slows it down more than all that is done with the records.
const BATCH: u64 = 128 << 10;
/// That moment. The program fills a hundredth of the ring in it.
const PAUSE: Duration = Duration::from_micros(50);

/// How long the drain loop sleeps at most before it looks for records.
const IDLE: Duration = Duration::from_micros(300);

/// How often it is looked whether the thread whose turn it is is still there.
const LOOKS: Duration = Duration::from_millis(100);

/// How long an announced process is waited for: if it was killed at birth, it never comes.
const BIRTH: Duration = Duration::from_millis(100);

/// How long those that a program has left behind may wait for something.
const LEFT_BEHIND: Duration = Duration::from_millis(200);
/// How often memory is looked at: what is had by touching pages comes to some 100 MB meanwhile.
const WEIGHING: Duration = Duration::from_millis(20);
/// How long the program may take, when it got a signal that was passed on, to end in order. Whoever
/// has sent it will not wait for ever.
const PASS_ON_GRACE: Duration = Duration::from_secs(3);

/// What came of a run.
pub struct Drained {
    pub status: ExitStatus,
    pub events: u64,
    pub stopped: Option<Stopped>,
    pub sink_error: Option<io::Error>,
    /// What was in the ring was not a record: the program has been ended there.
    pub broken: Option<Broken>,
}

/// Takes nothing in.
pub struct Nothing;

impl EventSink for Nothing {
    fn event(&mut self, _: &brownout_trace::event::Event<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// What records mean to the drain loop.
struct Listener<'a> {
    processes: &'a mut Processes,
    state: &'a State,
}

impl Reader for Listener<'_> {
    fn announced(&mut self, pid: i32) -> Option<Beginning> {
        self.processes.announced(pid);
        self.state.take_beginning(pid)
    }

    fn answered(&mut self, thread: u32, answer: [u64; 3]) {
        self.state.answered(thread, answer);
    }
}

/// When a run is to be ended.
struct Watch<'a> {
    config: &'a LaunchConfig,
    begun: Instant,
    /// Processor time at the last look, and since when it is the same.
    quiet: (Duration, Instant),
    next_look: Instant,
    /// When their memory is looked at next.
    next_weighing: Instant,
    /// When their output is.
    next_trimming: Instant,
    /// Since when there is a signal to be passed on, and whether it was.
    signalled: Option<(Instant, bool)>,
}

impl Watch<'_> {
    fn new(config: &LaunchConfig, begun: Instant) -> Watch<'_> {
        Watch {
            config,
            begun,
            quiet: (Duration::MAX, begun),
            next_look: begun,
            // Most runs of a kept process have ended by then.
            next_weighing: begun + WEIGHING,
            next_trimming: begun + WEIGHING,
            signalled: None,
        }
    }

    /// Passes a signal on. True if that was of no avail.
    fn pass_on(&mut self, processes: &Processes) -> bool {
        let signal = self.config.pass_on.as_ref();
        let signal = signal.map_or(0, |signal| signal.load(Ordering::Relaxed));
        if signal == 0 {
            return false;
        }
        let (since, is_passed) = self.signalled.get_or_insert((Instant::now(), false));
        if !*is_passed && since.elapsed() >= PASS_ON_AFTER {
            *is_passed = true;
            processes.signal(signal);
        }
        since.elapsed() >= PASS_ON_GRACE
    }

    /// Throws away what nobody will read of the program's output.
    fn trim_output(&mut self) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let Some(max) = self.config.output_max else {
            return;
        };
        let now = Instant::now();
        if now < self.next_trimming {
            return;
        }
        self.next_trimming = now + WEIGHING;
        let files = [&self.config.stdout, &self.config.stderr];
        for file in files.into_iter().flatten() {
            let len = file.metadata().map_or(0, |meta| meta.len());
            if len > max {
                let (from, len) = (max as libc::off_t, (len - max) as libc::off_t);
                // SAFETY: an open file. Where the file system has no holes, all of it stays.
                unsafe { libc::fallocate(file.as_raw_fd(), PUNCH, from, len) };
            }
        }
    }

    /// Why the run is to be ended now, for reasons of time.
    fn reason(
        &mut self,
        shared: &Shared,
        processes: &Processes,
        waits_for_us: bool,
    ) -> Option<Stopped> {
        if self.config.is_stopped() || self.pass_on(processes) {
            return Some(Stopped::Asked);
        }
        self.trim_output();
        let limits = &self.config.limits;
        if let Some(steps) = limits.steps
            && turns::steps(shared) >= steps
        {
            return Some(Stopped::Steps);
        }
        if limits.wall.is_none() && limits.idle.is_none() && limits.memory.is_none() {
            return None;
        }
        let now = Instant::now();
        if limits.wall.is_some_and(|wall| now - self.begun >= wall) {
            return Some(Stopped::Wall);
        }
        if let Some(memory) = limits.memory
            && now >= self.next_weighing
        {
            self.next_weighing = now + WEIGHING;
            if processes.memory() > memory {
                return Some(Stopped::Memory);
            }
        }
        let is_over = processes.first_has_ended();
        let idle = limits.idle?;
        let idle = if is_over { idle.min(LEFT_BEHIND) } else { idle };
        if now < self.next_look {
            return None;
        }
        self.next_look = now + (idle / 8).max(Duration::from_millis(1));
        let used = processes.cpu_time();
        if used != self.quiet.0 || waits_for_us {
            self.quiet = (used, now);
        }
        let reason = match is_over {
            true => Stopped::LeftBehind,
            false => Stopped::Idle,
        };
        if now - self.quiet.1 < idle {
            return None;
        }
        if processes.is_kept_waiting() {
            // The machine has other things to do.
            self.quiet.1 = now;
            return None;
        }
        Some(reason)
    }
}

/// What the process that a run was forked from has recorded before.
#[derive(Default)]
pub struct Prologue {
    /// The records.
    pub words: Vec<u64>,
    /// Files that were seen for the first time: before which byte, which, and where the tool finds
    /// them.
    pub files: Vec<(u64, FileId, PathBuf)>,
}

impl Prologue {
    /// How many events these are.
    pub fn events(&self, shared: &Shared) -> u64 {
        struct Nobody;
        impl Reader for Nobody {
            fn announced(&mut self, _: i32) -> Option<Beginning> {
                None
            }
            fn answered(&mut self, _: u32, _: [u64; 3]) {}
        }
        let mut decoder = decode::Decoder::new(shared);
        let end = self.words.len() as u64 * 8;
        // SAFETY: a copy of ours, up to where it ends. What is wrong with it a run will say.
        unsafe {
            let range = (0, end, end);
            let records = Records::of(&self.words);
            decode::take(
                records,
                &mut decoder,
                range,
                u64::MAX,
                Some(&mut Nothing),
                &mut Nobody,
            );
        }
        decoder.events()
    }

    /// Gives all of it to the sink.
    fn replay(
        &self,
        decoder: &mut decode::Decoder,
        events_max: u64,
        sink: &mut dyn EventSink,
        listener: &mut Listener<'_>,
    ) -> Result<(), Failure> {
        let records = Records::of(&self.words);
        let end = self.words.len() as u64 * 8;
        let files = self
            .files
            .iter()
            .map(|(at, file, path)| (*at, Some((*file, path))));
        let mut read = 0;
        for (at, file) in files.chain([(end, None)]) {
            // SAFETY: a copy of ours, up to where it ends.
            let taken = unsafe {
                let range = (read, at, end);
                decode::take(
                    records,
                    decoder,
                    range,
                    events_max,
                    Some(&mut *sink),
                    listener,
                )
            };
            read = taken.read;
            if let Some(failure) = taken.failure {
                return Err(failure);
            }
            if let Some((file, path)) = file {
                sink.new_file(file, path)?;
            }
        }
        Ok(())
    }
}

/// Feeds the sink until the program and everything it started has ended, or was stopped.
pub fn drain(
    shared: &Shared,
    config: &LaunchConfig,
    begun: Instant,
    mut processes: Processes,
    state: &State,
    sink: &mut dyn EventSink,
    prologue: &Prologue,
) -> io::Result<Drained> {
    let control = shared.control();
    let events_max = config.limits.events.unwrap_or(u64::MAX);
    let mut watch = Watch::new(config, begun);
    let mut decoder = decode::Decoder::new(shared);
    let mut stuck = None;
    let mut looked = Instant::now();
    let mut sink_error = None;
    let mut stopped = None;
    let mut ended_since = None;
    let mut broken = None;
    let mut listener = Listener {
        processes: &mut processes,
        state,
    };
    match prologue.replay(&mut decoder, events_max, sink, &mut listener) {
        Ok(()) => {}
        Err(Failure::Sink(e)) => sink_error = Some(e),
        Err(Failure::Broken(what)) => broken = Some(what),
    }
    loop {
        if stopped.is_none() && decoder.events() >= events_max {
            stopped = Some(Stopped::Events);
        }
        let mut read = control.ring_read.load(Ordering::Relaxed);
        let mut write = shared.published(read);
        if stopped.is_none() {
            stopped = watch.reason(shared, &processes, read != write);
        }
        if stopped.is_none()
            && let Some(client) = &config.client
        {
            let mut activity = || {
                let asks_us = control.service_state.load(Ordering::Relaxed) == 1;
                match asks_us || read != write {
                    true => Activity::Busy,
                    false => processes.activity(),
                }
            };
            match client.look(&mut activity) {
                Wish::Nothing => {}
                Wish::Terminate => processes.signal(libc::SIGTERM),
                Wish::Kill => processes.kill(),
            }
        }
        // What one process cannot be followed in makes the answer about all of them void. The
        // others may wait for it for ever.
        if stopped.is_some() || broken.is_some() || state.is_fatal() {
            processes.kill();
        }
        if read != write {
            if write - read < BATCH && stopped.is_none() && broken.is_none() {
                processes.wait(state.wake(), PAUSE);
                write = shared.published(read);
            }
            // Release space in portions: often enough that the writer never waits for long.
            let stop = write.min(read + (abi::RING_LEN / 16));
            if broken.is_some() {
                // Nobody knows where a record begins.
                read = write;
            } else {
                let wanted: Option<&mut dyn EventSink> = match sink_error {
                    None => Some(&mut *sink),
                    Some(_) => None,
                };
                let mut listener = Listener {
                    processes: &mut processes,
                    state,
                };
                let range = (read, stop, write);
                // SAFETY: published by the writer, and released below.
                let taken = unsafe {
                    decode::take(
                        shared.records(),
                        &mut decoder,
                        range,
                        events_max,
                        wanted,
                        &mut listener,
                    )
                };
                read = taken.read;
                match taken.failure {
                    None => {}
                    Some(Failure::Sink(e)) => sink_error = Some(e),
                    Some(Failure::Broken(what)) => broken = Some(what),
                }
            }
            control.ring_read.store(read, Ordering::Release);
            if control.ring_starved.load(Ordering::Relaxed) != 0 {
                control.ring_space.fetch_add(1, Ordering::Release);
                futex_wake(&control.ring_space);
            }
            continue;
        }
        if let Some((file, path)) = state.take_new_file() {
            if sink_error.is_none()
                && stopped != Some(Stopped::Events)
                && let Err(e) = sink.new_file(file, &path)
            {
                sink_error = Some(e);
            }
            state.new_file_done();
            continue;
        }
        for member in state.take_replaced() {
            processes.watch(member);
        }
        let one_has_ended = processes.reap()?;
        if control.ring_lock.load(Ordering::Relaxed) != 0 {
            state.free_ring_of_the_dead(shared, &mut stuck, one_has_ended);
        }
        if config.schedule.is_some() && (one_has_ended || looked.elapsed() >= LOOKS) {
            state.pass_on_turn_of_the_dead(shared);
            looked = Instant::now();
        }
        if one_has_ended || processes.search(false) {
            continue;
        }
        if processes.all_ended() {
            let since = *ended_since.get_or_insert_with(Instant::now);
            let all_known = control.unannounced.load(Ordering::Acquire) == 0;
            // The last records may be such as their writer had not published yet.
            let tail = control.ring_tail.load(Ordering::Acquire);
            control.ring_write.store(tail, Ordering::Release);
            if shared.published(read) != read {
                // What was written before the last end. It may announce one more.
                continue;
            }
            if all_known || since.elapsed() >= BIRTH {
                // Whoever is not where it was said to be, or has not been able to say anything, is
                // looked for.
                let may_be_more = !all_known || processes.may_miss_some();
                if may_be_more && processes.search(true) {
                    continue;
                }
                break;
            }
        } else {
            ended_since = None;
        }
        processes.wait(state.wake(), IDLE);
    }
    state.close();
    let status = processes.status()?;
    if sink_error.is_none()
        && stopped.is_none()
        && broken.is_none()
        && let Err(e) = decoder.end(status, sink)
    {
        sink_error = Some(e);
    }
    Ok(Drained {
        status,
        events: decoder.events(),
        stopped,
        sink_error,
        broken,
    })
}
