//! Programs that are kept ready in a world, so that the next run of one costs a fork and not a
//! launch.
//!
//! Guarantee: a run is what a launch would have been ([`Session`]). The runs of an exploration
//! differ in what lies in the folders of the tracked files, so a kept program has not looked there.
//! It is kept as long as the world's view is, in which it was launched; where it cannot be kept, it
//! is launched each time. So is one whose threads take turns: who has the turn, and all that was
//! decided, lies in memory that the kept process and its children would share, and nothing sets
//! that back.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use brownout_host::{LaunchConfig, LaunchError, Outcome, Session, StopAt};
use brownout_trace::EventSink;

/// So many programs are kept at once; of more, those that were used last.
const KEPT_MAX: usize = 4;

/// What tells the programs apart.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    program: OsString,
    args: Vec<OsString>,
    layout: u32,
    names: bool,
    /// Device and inode of standard input.
    stdin: Option<(u64, u64)>,
}

impl Key {
    fn of(config: &LaunchConfig) -> Key {
        let inode = |file: &File| file.metadata().ok().map(|m| (m.dev(), m.ino()));
        Key {
            program: config.program.clone(),
            args: config.args.clone(),
            layout: config.layout,
            names: config.names,
            stdin: config.stdin.as_ref().and_then(inode),
        }
    }
}

enum State {
    /// It was launched once.
    Launched,
    Kept {
        session: Box<Session>,
        places: BTreeSet<PathBuf>,
    },
    CannotBeKept,
}

/// See the module's header.
#[derive(Default)]
pub struct Ready {
    /// The last used is the last.
    programs: Vec<(Key, State)>,
    /// Some run has made objects that the kernel keeps for all forked runs, message queues among
    /// them.
    makes_objects: bool,
}

impl Ready {
    /// The view is about to go, and everything in it.
    pub fn clear(&mut self) {
        self.programs
            .retain(|(_, state)| matches!(state, State::CannotBeKept));
    }

    /// Keeps a program from now on that will be run often.
    pub fn prepare(&mut self, config: &LaunchConfig, places: BTreeSet<PathBuf>) {
        let key = Key::of(config);
        if config.schedule.is_none() && self.programs.iter().all(|(known, _)| *known != key) {
            self.programs.push((key, open(config, places)));
        }
    }

    /// Runs a program. Anything may differ between runs in the folders `places`. One that will be
    /// run `often` is kept from the first time on; what is run once only need not be.
    pub fn run(
        &mut self,
        config: &LaunchConfig,
        places: BTreeSet<PathBuf>,
        often: bool,
        sink: &mut dyn EventSink,
    ) -> Result<Outcome, LaunchError> {
        if config.schedule.is_some() {
            return brownout_host::record(config, sink);
        }
        if self.makes_objects {
            brownout_host::await_queue_room();
        }
        let key = Key::of(config);
        let found = self.programs.iter().position(|(k, _)| *k == key);
        let state = found.map(|at| self.programs.remove(at).1);
        let state = match state {
            None if often => open(config, places),
            None => State::Launched,
            Some(State::CannotBeKept) => State::CannotBeKept,
            // Where it may have looked by now, things may differ.
            Some(State::Kept { places: old, .. }) if !places.is_subset(&old) => {
                open(config, places)
            }
            Some(kept @ State::Kept { .. }) => kept,
            Some(State::Launched) => open(config, places),
        };
        let kept_max = self.programs.len().saturating_sub(KEPT_MAX - 1);
        self.programs.drain(..kept_max);
        self.programs.push((key, state));
        if let Some((_, State::Kept { session, .. })) = self.programs.last_mut() {
            match session.run(config, sink) {
                Err(LaunchError::NotKept(_)) => {
                    if session.is_spent() {
                        self.makes_objects = true;
                        brownout_host::await_queue_room();
                    }
                    self.programs.pop();
                }
                run => return run,
            }
        }
        brownout_host::record(config, sink)
    }
}

fn open(config: &LaunchConfig, places: BTreeSet<PathBuf>) -> State {
    let stop = StopAt::World(places.iter().cloned().collect());
    match Session::open(config, stop) {
        Ok(session) => State::Kept {
            session: Box::new(session),
            places,
        },
        // If it can be launched, it will be; if not, that says why.
        Err(_) => State::CannotBeKept,
    }
}
