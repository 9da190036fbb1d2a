//! Starts the program, follows it, and feeds the sink.

use crate::control::{Shared, futex_wait, futex_wake};
use crate::inject::{Image, Previous, Stopped};
use crate::service::{Service, State};
use crate::{EventSink, ExitStatus, LaunchConfig, LaunchError, Outcome, decode, preflight};
use brownout_abi as abi;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Fewer bytes than these are left for a moment: a reader on the writer's heels takes its cache lines away, record by
/// record, and slows it down more than all that is done with the records.
const BATCH: u64 = 128 << 10;
/// That moment. The program fills a hundredth of the ring in it.
const PAUSE: Duration = Duration::from_micros(50);

/// How long the drain loop sleeps at most before it looks for exited processes.
const IDLE: Duration = Duration::from_micros(300);

/// Runs the program under the engine, without events.
pub fn run(config: &LaunchConfig) -> Result<Outcome, LaunchError> {
    launch(config, None)
}

/// Runs the program and feeds its events to `sink`.
pub fn record(config: &LaunchConfig, sink: &mut dyn EventSink) -> Result<Outcome, LaunchError> {
    launch(config, Some(sink))
}

fn launch(config: &LaunchConfig, sink: Option<&mut dyn EventSink>) -> Result<Outcome, LaunchError> {
    preflight::check_machine()?;
    let globs = decode::globs(&config.pm_globs)?;
    let program = preflight::resolve(&config.program)?;
    let mut mode = 0;
    if sink.is_some() {
        mode |= abi::MODE_RECORD;
    }
    for (on, bit) in [
        (config.loads, abi::MODE_LOADS),
        (config.values, abi::MODE_VALUES),
        (config.deterministic, abi::MODE_DETERMINISTIC),
        (config.execute_flushes, abi::MODE_EXECUTE_FLUSHES),
        (config.lean, abi::MODE_LEAN),
    ] {
        if on {
            mode |= bit;
        }
    }
    let begun = Instant::now();
    let (shared, control_file) =
        Shared::create(mode).map_err(|e| LaunchError::Launch("shared memory", e))?;
    let image =
        Arc::new(Image::new(control_file).map_err(|e| LaunchError::Launch("engine image", e))?);
    // SAFETY: orphans of the program come to us, so that they can be followed and waited for.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let mut command = Command::new(&program);
    command.arg0(&config.program).args(&config.args);
    if let Some(f) = &config.stdin {
        command.stdin(
            f.try_clone()
                .map_err(|e| LaunchError::Launch("standard input", e))?,
        );
    }
    let deterministic = config.deterministic;
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let persona = libc::personality(0xffff_ffff);
            libc::personality(persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            if deterministic {
                // One fixed core count and no migration between what differs by core.
                libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            }
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = command
        .spawn()
        .map_err(|e| LaunchError::Launch("exec", e))?;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    if !libc::WIFSTOPPED(status) {
        return Err(LaunchError::Launch(
            "exec",
            io::Error::other("the program ended before it began"),
        ));
    }
    let stopped = Stopped::new(pid);
    let state = Arc::new(State::new(globs));
    let service = Service::start(shared, image.clone(), state.clone());
    if let Err(e) = stopped
        .inject(&image, Previous::default())
        .and_then(|()| stopped.detach(0))
    {
        // SAFETY: our own child, which cannot go on.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        return Err(LaunchError::Launch(
            "putting the engine into the program",
            e,
        ));
    }
    let result = match sink {
        None => wait_all(pid).map(|s| (s, 0, None)),
        Some(sink) => drain(shared, pid, &state, sink),
    };
    service.stop();
    let (status, events, sink_error) =
        result.map_err(|e| LaunchError::Launch("waiting for the program", e))?;
    if let Some((kind, text)) = state.fatal() {
        return Err(if kind == abi::FatalKind::Bug as u64 {
            LaunchError::Bug(text)
        } else {
            LaunchError::UnsupportedAction(text)
        });
    }
    let outcome = Outcome {
        status,
        hints: state.hints(),
        notes: state.notes(),
        wall: begun.elapsed(),
        events,
        waited: Duration::from_nanos(shared.control().ring_waited_ns.load(Ordering::Relaxed)),
    };
    match sink_error {
        Some(e) => Err(LaunchError::Sink(e, outcome)),
        None => Ok(outcome),
    }
}

fn exit_status(status: i32) -> ExitStatus {
    if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    }
}

/// Waits for one ended child of this thread. `None`: none has ended yet (only with `block` false).
///
/// A child that one of our tracer threads has seized also shows its ptrace stops here. Those are the tracer's: so this only
/// looks first, and takes what has really ended.
fn reap(block: bool) -> io::Result<Option<(libc::pid_t, i32)>> {
    let flags = libc::WEXITED
        | libc::WNOWAIT
        | libc::__WALL
        | libc::__WNOTHREAD
        | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: plain data, filled by the kernel.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waits for children of this thread.
        if unsafe { libc::waitid(libc::P_ALL, 0, &mut info, flags) } < 0 {
            let e = io::Error::last_os_error();
            if e.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(e);
        }
        // SAFETY: filled by waitid.
        let pid = unsafe { info.si_pid() };
        if pid == 0 {
            return Ok(None);
        }
        if matches!(
            info.si_code,
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
        ) {
            let mut status = 0;
            // SAFETY: it has ended; this takes it.
            let r = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
            return if r == pid {
                Ok(Some((pid, status)))
            } else {
                Err(io::Error::last_os_error())
            };
        }
        if !block {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until the program and everything it started has ended.
fn wait_all(pid: libc::pid_t) -> io::Result<ExitStatus> {
    let mut first = None;
    loop {
        match reap(true) {
            Ok(Some((p, status))) if p == pid => first = Some(exit_status(status)),
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
            Err(e) => return Err(e),
        }
    }
    first.ok_or_else(|| io::Error::other("the program was reaped by somebody else"))
}

type Drained = (ExitStatus, u64, Option<io::Error>);

/// Feeds the sink until the program and everything it started has ended.
fn drain(
    shared: Shared,
    pid: libc::pid_t,
    state: &State,
    sink: &mut dyn EventSink,
) -> io::Result<Drained> {
    let control = shared.control();
    let mut decoder = decode::Decoder::new();
    let mut first = None;
    let mut alone = false;
    let mut stuck = None;
    let mut sink_error = None;
    loop {
        let mut write = control.ring_write.load(Ordering::Acquire);
        let mut read = control.ring_read.load(Ordering::Relaxed);
        if read != write {
            if write - read < BATCH && !alone {
                std::thread::sleep(PAUSE);
                write = control.ring_write.load(Ordering::Acquire);
            }
            while read != write {
                // Release space in portions: often enough that the writer never waits for long.
                let stop = write.min(read + (abi::RING_LEN / 16));
                while read < stop {
                    // SAFETY: published by the writer, not yet released by us.
                    let head = unsafe { shared.ring(read, abi::HEAD_LEN) };
                    let words = head[0] as u64;
                    if words < 3 {
                        return Err(io::Error::other("bug: malformed record in the event ring"));
                    }
                    // SAFETY: as above, the whole record.
                    let record = unsafe { shared.ring(read, words as usize * 8) };
                    let answered = match sink_error {
                        None => decoder.record(record, sink),
                        Some(_) => Ok(decode::asker(record).map(|thread| (thread, [0; 3]))),
                    };
                    match answered {
                        Ok(None) => {}
                        Ok(Some((thread, answer))) => state.answered(thread, answer),
                        Err(e) => {
                            if let Some(thread) = decode::asker(record) {
                                state.answered(thread, [0; 3]);
                            }
                            sink_error = Some(e);
                        }
                    }
                    read += words * 8;
                }
                control.ring_read.store(read, Ordering::Release);
                if control.ring_starved.load(Ordering::Relaxed) != 0 {
                    control.ring_space.fetch_add(1, Ordering::Release);
                    futex_wake(&control.ring_space);
                }
            }
            continue;
        }
        if let Some((file, path)) = state.take_new_file() {
            if sink_error.is_none()
                && let Err(e) = sink.new_file(file, &path)
            {
                sink_error = Some(e);
            }
            state.new_file_done();
            continue;
        }
        if alone {
            break;
        }
        match reap(false) {
            Ok(Some((p, status))) => {
                if p == pid {
                    first = Some(exit_status(status));
                }
                continue;
            }
            Ok(None) => {}
            Err(e) if e.raw_os_error() == Some(libc::ECHILD) => {
                alone = true;
                continue;
            }
            Err(e) => return Err(e),
        }
        if control.ring_lock.load(Ordering::Relaxed) != 0 {
            state.free_ring_of_the_dead(&shared, &mut stuck);
        }
        futex_wait(&control.ring_sleeping, 0, IDLE);
    }
    let status =
        first.ok_or_else(|| io::Error::other("the program was reaped by somebody else"))?;
    if sink_error.is_none()
        && let Err(e) = decoder.end(status, sink)
    {
        sink_error = Some(e);
    }
    Ok((status, decoder.events(), sink_error))
}
