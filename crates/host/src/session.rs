//! A program that is kept ready, and forked for one run after the other.
//!
//! ```text
//!  open ─▶ launched, runs to the place where it stops ──────────▶ waits ─────────────▶ waits ─▶ … ─▶ dropped: ends
//!                              │ its records are kept             │ forks              │ forks
//!                              ▼                                  ▼                    ▼
//!                          prologue ─────────────────────────▶ run: prologue, then what the child does ─▶ EventSink
//! ```
//! Guarantee: a run gives the sink the events that a launch would have given it. It costs a fork
//! instead of an `execve`, and neither loads nor relocates nor translates again what was loaded and
//! translated before, by the kept process or by any earlier run. The engine's `session.rs` says
//! where a program can stop for this to be true, and by which protocol the shared memory is set
//! back.
//!
//! The kept process and its children are children of the session's service thread: so a run can be
//! made on any thread, and other launches on that thread do not take the kept process for theirs.

use crate::control::{futex_wait, futex_wake};
use crate::drain::{Prologue, drain};
use crate::guard::Guarded;
use crate::launch::{self, Place, Prepared};
use crate::members::{Member, Members};
use crate::processes::{Processes, has_ended};
use crate::recent;
use crate::service::{Service, State, Stopped};
use crate::turns;
use crate::{ExitStatus, LaunchConfig, LaunchError, Outcome, control::Shared, decode};
use brownout_abi::schedule::Alone;
use brownout_abi::{kept_state, stop_at};
use brownout_trace::EventSink;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Where a program stops, to be forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// Before it looks at anything in these folders (absolute paths), or does more than look
    /// anywhere. Runs may then find there what they like.
    World(Vec<PathBuf>),
    /// Before it first turns to its standard input, or names the [file](LaunchConfig::input) that
    /// is its input. Runs may then read what they like. What the program has done to files until
    /// then it has done once: whoever starts a run sees to it that files are as they were at the
    /// stop.
    Input,
}

/// How long the tool sleeps at most before it sees whether the kept process is still there.
const LOOK: Duration = Duration::from_millis(20);
/// The event behind all others.
const END: u64 = 1;
/// A program that has not stopped after so long is not worth waiting for.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// See the module's header. Dropping it ends the kept process.
pub struct Session {
    shared: Shared,
    members: Members,
    state: Arc<State>,
    own_group: bool,
    service: Option<Service>,
    kept: Member,
    prologue: Prologue,
    prologue_events: u64,
    /// The edges taken until the stop, if that is asked for.
    edges: Option<Box<[u8]>>,
    /// Words of the prologue that are the number of the first process.
    numbers: Vec<usize>,
    stopped: Stopped,
    /// Standard output and error, and how long they were at the stop.
    streams: Vec<(File, u64)>,
    /// Where turns are taken: whose it was at the stop.
    turns: Option<Alone>,
    /// Files that were seen on the way to the stop.
    _opened: Vec<File>,
    /// Ends all of it if we are gone.
    _guarded: Option<Guarded>,
}

impl Session {
    /// Launches the program and lets it run to its stop. It must be deterministic, and its standard
    /// input a file.
    ///
    /// Where it cannot be kept, that is [`LaunchError::NotKept`]: it may well be launched.
    pub fn open(config: &LaunchConfig, stop: StopAt) -> Result<Session, LaunchError> {
        if !config.deterministic {
            return Err(not_kept("it is not deterministic"));
        }
        let place = match stop {
            StopAt::World(world) => Place {
                stop_at: stop_at::WORLD,
                world,
            },
            StopAt::Input => Place {
                stop_at: stop_at::INPUT,
                world: Vec::new(),
            },
        };
        let Prepared {
            shared,
            members,
            image,
            state,
            command,
            own_group,
            known,
            guarded,
            ..
        } = launch::prepare(config, true, place)?;
        let (tell, told) = channel();
        let injected = image.clone();
        let noted = state.clone();
        let start = move || {
            let pid = launch::spawn(command).and_then(|pid| {
                noted.note_lost_rights(pid);
                launch::let_go(pid, &injected)?;
                Ok(pid)
            });
            let child = pid.as_ref().ok().copied();
            // The receiver waits for exactly this.
            let _ = tell.send(pid);
            child
        };
        let ending = shared.clone();
        let end = move |child: Option<libc::pid_t>| {
            if let Some(pid) = child {
                let state = &ending.control().kept_state;
                state.store(kept_state::ENDS, Ordering::Release);
                launch::end_child(pid);
                // The one that was to be the next run.
                futex_wake(&ending.control().kept_turn);
                launch::wait_for_children();
            }
        };
        let service = Service::start_between(shared.clone(), image, state.clone(), start, end);
        let kept = told
            .recv()
            .unwrap_or_else(|_| Err(not_kept("nobody has started it")))
            .and_then(|pid| {
                members
                    .open_child(pid)
                    .ok_or_else(|| not_kept("it is gone"))
            });
        let kept = match kept {
            Ok(kept) => kept,
            Err(e) => {
                service.stop();
                return Err(e);
            }
        };
        let files = [&config.stdout, &config.stderr].into_iter().flatten();
        // What is no file keeps nothing.
        let files = files.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()));
        let streams: io::Result<Vec<(File, u64)>> =
            files.map(|file| Ok((file.try_clone()?, 0))).collect();
        let mut session = Session {
            shared,
            members,
            state,
            own_group,
            service: Some(service),
            kept,
            prologue: Prologue::default(),
            prologue_events: 0,
            edges: None,
            numbers: Vec::new(),
            stopped: Stopped::default(),
            streams: streams.map_err(|e| LaunchError::Launch("standard output", e))?,
            turns: None,
            _opened: Vec::new(),
            _guarded: guarded,
        };
        session.reach_stop(config)?;
        if config.schedule.is_some() {
            let alone = turns::alone(&session.shared);
            session.turns =
                Some(alone.ok_or_else(|| not_kept("it has several threads, or a timer"))?);
        }
        session.stopped = session.state.stopped(&known);
        for (file, len) in &mut session.streams {
            let meta = file.metadata();
            *len = meta
                .map_err(|e| LaunchError::Launch("standard output", e))?
                .len();
        }
        session.edges = session.shared.edges();
        session.prologue_events = session.prologue.events(&session.shared);
        session.numbers = decode::own_numbers(&session.prologue.words, session.kept.pid as u32);
        Ok(session)
    }

    /// Takes in what the program does until it stops.
    fn reach_stop(&mut self, config: &LaunchConfig) -> Result<(), LaunchError> {
        let control = self.shared.control();
        let begun = Instant::now();
        let within = config.limits.wall.unwrap_or(STOP_WITHIN).min(STOP_WITHIN);
        loop {
            let is_there = control.kept_state.load(Ordering::Acquire) == kept_state::WAITS;
            let read = control.ring_read.load(Ordering::Relaxed);
            let write = self.shared.published(read);
            if read != write {
                let len = (write - read) as usize;
                // SAFETY: published by the writer, and released below.
                let bytes = unsafe { self.shared.records().bytes(read, len) };
                let words = bytes.chunks_exact(8);
                let word = |b: &[u8]| u64::from_ne_bytes(std::array::from_fn(|i| b[i]));
                self.prologue.words.extend(words.map(word));
                control.ring_read.store(write, Ordering::Release);
                if control.ring_starved.load(Ordering::Relaxed) != 0 {
                    control.ring_space.fetch_add(1, Ordering::Release);
                    futex_wake(&control.ring_space);
                }
                continue;
            }
            if let Some((file, path)) = self.state.take_new_file() {
                let at = self.prologue.words.len() as u64 * 8;
                // The program may close it before it stops.
                let opened = File::open(&path);
                let path = match &opened {
                    Ok(file) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
                    Err(_) => path,
                };
                self._opened.extend(opened);
                self.prologue.files.push((at, file, path));
                self.state.new_file_done();
                continue;
            }
            if is_there {
                return Ok(());
            }
            if has_ended(&self.kept.fd) {
                return Err(match self.state.fatal() {
                    Some((_, text)) => LaunchError::NotKept(text),
                    None => not_kept("it ends before the place at which it was to stop"),
                });
            }
            if begun.elapsed() > within || config.is_stopped() {
                return Err(not_kept(
                    "it has not come to the place at which it was to stop",
                ));
            }
            futex_wait(
                &control.kept_state,
                kept_state::RUNS,
                Duration::from_micros(200),
            );
        }
    }

    /// One run. Of the configuration counts what may differ between runs:
    /// [`known_files`](LaunchConfig::known_files), [`last_file`](LaunchConfig::last_file),
    /// [`redirects`](LaunchConfig::redirects), [`limits`](LaunchConfig::limits),
    /// [`stop`](LaunchConfig::stop) and, if there was one when the session was opened,
    /// [`schedule`](LaunchConfig::schedule) and [`capture`](LaunchConfig::capture). All else is as
    /// it was when the session was opened.
    ///
    /// After [`LaunchError::NotKept`] no run was made, and none can be made any more.
    pub fn run(
        &mut self,
        config: &LaunchConfig,
        sink: &mut dyn EventSink,
    ) -> Result<Outcome, LaunchError> {
        recent::watched(sink, |sink| self.run_once(config, sink))
    }

    fn run_once(
        &mut self,
        config: &LaunchConfig,
        sink: &mut dyn EventSink,
    ) -> Result<Outcome, LaunchError> {
        if self.is_spent() {
            return Err(not_kept(
                "a run has left shared memory, semaphores or queues to the next",
            ));
        }
        let begun = Instant::now();
        let known = launch::known_files(config)?;
        let (redirect_count, redirects) = launch::redirects(config)?;
        for (file, len) in &self.streams {
            file.set_len(*len)
                .map_err(|e| LaunchError::Launch("standard output", e))?;
        }
        if let Some(service) = &self.service {
            service.settle();
        }
        self.state.begin(&self.stopped, &known, config.last_file.0);
        // SAFETY: the last run is over, and the kept process waits.
        unsafe { self.shared.begin(&known, redirect_count, &redirects) };
        if let Some(edges) = &self.edges {
            self.shared.set_edges(edges);
        }
        // The table of turns is shared by all that run.
        if let (Some(turns), Some(schedule)) = (&self.turns, &config.schedule)
            && !turns::begin_forked(&self.shared, turns, schedule)
        {
            return Err(not_kept(
                "it has come to places before it stopped at which another strategy might decide otherwise",
            ));
        }
        if let Some(chosen) = &config.capture {
            self.shared.choose(chosen);
        }
        self.shared.forget_comparisons();
        let child = self.fork()?;
        for &word in &self.numbers {
            self.prologue.words[word] = child as u64;
        }
        let processes = Processes::forked(
            self.members.clone(),
            child,
            self.own_group,
            self.kept.number,
        );
        let result = drain(
            &self.shared,
            config,
            begun,
            processes,
            &self.state,
            sink,
            &self.prologue,
        );
        if let Ok(drained) = &result
            && drained.status == ExitStatus::Signal(libc::SIGKILL)
            && drained.stopped.is_none()
            && drained.events <= self.prologue_events + END
        {
            return Err(not_kept(
                "a copy of it was killed before it could do anything",
            ));
        }
        launch::outcome(&self.shared, &self.state, begun, result)
    }

    /// A run has left objects of the system to the next: shared memory, semaphores, queues. No
    /// other can be made.
    pub fn is_spent(&self) -> bool {
        self.shared.control().kept_spent.load(Ordering::Acquire) != 0
    }

    fn fork(&self) -> Result<libc::pid_t, LaunchError> {
        let control = self.shared.control();
        let state = &control.kept_state;
        if state
            .compare_exchange(
                kept_state::WAITS,
                kept_state::FORKS,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_err()
        {
            return Err(not_kept("it does not wait"));
        }
        futex_wake(state);
        while state.load(Ordering::Acquire) == kept_state::FORKS {
            if has_ended(&self.kept.fd) {
                return Err(not_kept("it was ended"));
            }
            futex_wait(state, kept_state::FORKS, LOOK);
        }
        let child = control.kept_child.load(Ordering::Acquire);
        if child < 0 {
            let error = io::Error::from_raw_os_error(-child);
            return Err(not_kept(&format!("it cannot fork: {error}")));
        }
        Ok(child)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            // Its last deed is to end the kept process.
            service.stop();
        }
    }
}

fn not_kept(why: &str) -> LaunchError {
    LaunchError::NotKept(why.to_owned())
}
