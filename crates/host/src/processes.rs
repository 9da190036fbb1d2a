//! The processes of one run: which there are, whether they have ended, how to end them.
//!
//! The program is a child of the thread that launched it. Others are announced in the stream and
//! are watched by pidfd, because an orphan becomes a child of the tool's *first* thread, whichever
//! thread launched its ancestor. So runs on several threads do not mix up each other's processes.
//!
//! Guarantee: nobody else is ever sent a signal. What the stream says is a program's word, and
//! means another process, or none, if the program is in a PID namespace of its own. Whoever is
//! watched has shown that it belongs to the run ([`Members`]), and signals go to descriptors, not
//! to numbers. Where there are such namespaces, the run's processes are looked for in `/proc`.
//!
//! Deviation: a process that a program makes which is not followed (see the engine's limitations)
//! announces nothing. A run on the first thread waits for it, as its reaper; a run on another
//! thread does not.

use crate::ExitStatus;
use crate::client::Activity;
use crate::members::{Member, Members, ProcNumber};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// What the kernel counts memory in.
const PAGE: u64 = 4096;

/// How often `/proc` is searched at most for processes that could not be found otherwise.
const SEARCH: Duration = Duration::from_millis(20);

/// A flag that a thread can wait for together with the ends of processes.
pub struct Wake(OwnedFd);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        // SAFETY: a fresh descriptor or an error.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        Ok(Wake(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Ends the other thread's wait, or its next one.
    pub fn wake(&self) {
        // SAFETY: eight bytes of ours. It cannot fail but by a counter near 2^64.
        unsafe { libc::write(self.0.as_raw_fd(), (&1u64 as *const u64).cast(), 8) };
    }

    fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of ours; without a count it fails, which is as good.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

struct Watched(Member);

impl Watched {
    fn has_ended(&self) -> bool {
        has_ended(&self.0.fd)
    }

    /// Whether somebody has taken note of its end, after it has ended. We do, if it is a child of
    /// any thread of ours.
    fn is_reaped(&self) -> bool {
        let fd = self.0.fd.as_raw_fd();
        // SAFETY: plain data, filled by the kernel; a descriptor of ours, and a signal that is
        // none.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
            libc::waitid(libc::P_PIDFD, fd as libc::id_t, &mut info, flags) == 0
                || libc::syscall(libc::SYS_pidfd_send_signal, fd, 0, 0, 0) != 0
        }
    }

    /// Bytes of memory that it shares with nobody, but for those that it was forked from; 0 if it
    /// is gone.
    fn memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.0.pid));
        let text = text.unwrap_or_default();
        let mut pages = text
            .split(' ')
            .skip(1)
            .map(|word| word.parse().unwrap_or(0));
        let resident: u64 = pages.next().unwrap_or(0);
        resident.saturating_sub(pages.next().unwrap_or(0)) * PAGE
    }

    /// Processor time of all its threads.
    fn cpu_time(&self) -> Duration {
        let mut clock: libc::clockid_t = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both write to our own variables. A process that is gone leaves zeros.
        unsafe {
            if libc::clock_getcpuclockid(self.0.pid, &mut clock) == 0 {
                libc::clock_gettime(clock, &mut time);
            }
        }
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Whether the process that a pidfd names has ended.
pub fn has_ended(fd: &OwnedFd) -> bool {
    let mut poll = [readable(fd)];
    wait_for(&mut poll, Duration::ZERO);
    poll[0].revents != 0
}

fn readable(fd: &OwnedFd) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

fn wait_for(fds: &mut [libc::pollfd], timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos() as i64,
    };
    // SAFETY: our own array. An interruption is as good as a time-out.
    unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            &timeout,
            std::ptr::null(),
        )
    };
}

/// How long the program may have got a signal by itself, before it is passed on: `timeout` and
/// terminals send it to all of a group.
pub const PASS_ON_AFTER: Duration = Duration::from_millis(200);

/// How long a signal waits at most until it is seen.
const LOOK: Duration = Duration::from_millis(20);

/// The processes of one run. To be used on the thread that launched it.
pub struct Processes {
    members: Members,
    first: libc::pid_t,
    /// The first process leads a group of its own.
    own_group: bool,
    status: Option<ExitStatus>,
    /// Those that have not ended, as far as they are known.
    watched: Vec<Watched>,
    /// Those that have ended and that their parents have not asked for. They come to us when these
    /// end.
    zombies: Vec<Watched>,
    /// This thread has no children any more.
    childless: bool,
    /// The program was begun in another PID namespace than ours.
    begun_elsewhere: bool,
    /// One was announced that is not where it was said to be.
    missing: bool,
    searched: Option<Instant>,
    /// The first process was forked from this one, which has the run's memory, too, and is not of
    /// the run. Then the first is the child of another thread of ours.
    kept: Option<ProcNumber>,
}

impl Processes {
    /// Of a run whose first process was forked from another one.
    pub fn forked(
        members: Members,
        first: libc::pid_t,
        own_group: bool,
        kept: ProcNumber,
    ) -> Processes {
        Processes {
            kept: Some(kept),
            ..Processes::new(members, first, own_group)
        }
    }

    pub fn new(members: Members, first: libc::pid_t, own_group: bool) -> Processes {
        let child = members.open_child(first);
        let begun_elsewhere = child
            .as_ref()
            .is_some_and(|child| members.is_elsewhere(child.number));
        Processes {
            members,
            first,
            own_group,
            status: None,
            watched: child.map(Watched).into_iter().collect(),
            zombies: Vec::new(),
            childless: false,
            begun_elsewhere,
            missing: false,
            searched: None,
            kept: None,
        }
    }

    /// Whether numbers that processes tell need not be theirs here.
    fn numbers_differ(&self) -> bool {
        self.begun_elsewhere || self.members.have_namespaces()
    }

    /// A process of the run has said a number: its own, or that of its child.
    pub fn announced(&mut self, told: libc::pid_t) {
        let differ = self.numbers_differ();
        if !differ && self.watched.iter().any(|w| w.0.pid == told) {
            return;
        }
        match self.members.open(told) {
            Some(member) => self.watch(member),
            None if differ => self.missing = true,
            None => self
                .zombies
                .extend(self.members.open_ended(told).map(Watched)),
        }
    }

    /// Looks after a process of the run from now on.
    pub fn watch(&mut self, member: Member) {
        if !self.watched.iter().any(|w| w.0.number == member.number) {
            self.watched.push(Watched(member));
        }
    }

    /// Searches for processes of the run that are not known, if there may be any. True if one was
    /// found.
    pub fn search(&mut self, is_urgent: bool) -> bool {
        let is_due = self.missing && self.searched.is_none_or(|at| at.elapsed() >= SEARCH);
        if !is_due && !is_urgent {
            return false;
        }
        let known =
            |number| Some(number) == self.kept || self.watched.iter().any(|w| w.0.number == number);
        let found = self.members.open_others(known);
        let any = !found.is_empty();
        self.watched.extend(found.into_iter().map(Watched));
        self.missing = false;
        self.searched = Some(Instant::now());
        any
    }

    /// Whether `search` could find one that nobody has announced at its place.
    pub fn may_miss_some(&self) -> bool {
        self.numbers_differ()
    }

    /// Takes what has ended. True if anything has.
    pub fn reap(&mut self) -> io::Result<bool> {
        let mut any = false;
        while !self.childless {
            let whom = match self.kept {
                None => Whom::AnyOfThisThread,
                Some(_) => Whom::One(self.first),
            };
            match reap(whom) {
                Ok(Some((pid, status))) => {
                    any = true;
                    if pid == self.first {
                        self.status = Some(exit_status(status));
                        self.childless |= self.kept.is_some();
                    }
                }
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => self.childless = true,
                Err(e) => return Err(e),
            }
        }
        // The first is left to the loop above: it says how it ended.
        let (first, first_is_taken) = (self.first, self.status.is_some() || self.childless);
        let ended = self.watched.extract_if(.., |w| {
            (w.0.pid != first || first_is_taken) && w.has_ended()
        });
        let before = self.zombies.len();
        self.zombies.extend(ended);
        any |= self.zombies.len() != before;
        self.zombies.retain(|zombie| !zombie.is_reaped());
        Ok(any)
    }

    pub fn all_ended(&self) -> bool {
        self.childless && self.watched.is_empty()
    }

    /// Whether the first process has ended.
    pub fn first_has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// How the first process ended.
    pub fn status(&self) -> io::Result<ExitStatus> {
        self.status
            .ok_or_else(|| io::Error::other("the program was reaped by somebody else"))
    }

    /// Processor time of those that run.
    pub fn cpu_time(&self) -> Duration {
        self.watched.iter().map(Watched::cpu_time).sum()
    }

    /// Whether a thread of theirs would go on if it got a processor, or what it has asked a disk
    /// for. On a busy machine that takes any time, in which no processor time is used.
    pub fn is_kept_waiting(&self) -> bool {
        self.watched.iter().any(|w| is_kept_waiting(w.0.pid))
    }

    /// What their threads do.
    pub fn activity(&self) -> Activity {
        let all = self.watched.iter().map(|w| activity_of(w.0.pid));
        all.max().unwrap_or(Activity::Busy)
    }

    /// Bytes of memory that those that run have for themselves.
    pub fn memory(&self) -> u64 {
        self.watched.iter().map(Watched::memory).sum()
    }

    /// Kills those that run. To be repeated until all have ended: one may just be making another.
    pub fn kill(&mut self) {
        self.search(false);
        // SAFETY: the group has its number as long as its leader has not been taken note of; a
        // process is named by descriptor.
        unsafe {
            if self.own_group && self.status.is_none() && !self.childless {
                libc::kill(-self.first, libc::SIGKILL);
            }
            for w in &self.watched {
                let fd = w.0.fd.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, 0, 0);
            }
        }
    }

    /// Sends a signal to those that run, once.
    pub fn signal(&self, signal: i32) {
        for w in &self.watched {
            // SAFETY: a process named by descriptor. One that has ended does not mind.
            unsafe {
                let fd = w.0.fd.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, 0, 0);
            }
        }
    }

    /// Waits until all have ended, if nobody else is to be looked after.
    pub fn wait_for_all(mut self, pass_on: Option<&AtomicI32>) -> io::Result<ExitStatus> {
        if let Some(signal) = pass_on {
            self.wait_for_first(signal)?;
        }
        while !self.childless {
            if let Some(signal) = pass_on {
                // Those that the first has left behind. They are not known, so that they are
                // searched for if need be.
                wait_for(&mut [], LOOK);
                if signal.load(Ordering::Relaxed) != 0 {
                    self.search(true);
                    self.signal(signal.swap(0, Ordering::Relaxed));
                }
                self.reap()?;
                continue;
            }
            // SAFETY: plain data, filled by the kernel.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: waits for a child of this thread to end. An error shows again in `reap`.
            unsafe { libc::waitid(libc::P_ALL, 0, &mut info, flags) };
            if !self.reap()? && !self.childless {
                // A ptrace stop, which is for a tracer thread.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.status()
    }

    /// Waits until the first process has ended, and passes a signal on to it if there is one.
    fn wait_for_first(&mut self, signal: &AtomicI32) -> io::Result<()> {
        let mut since = None;
        while self.status.is_none() && !self.childless {
            let mut fds: Vec<libc::pollfd> =
                self.watched.iter().map(|w| readable(&w.0.fd)).collect();
            wait_for(&mut fds, LOOK);
            let number = signal.load(Ordering::Relaxed);
            if number != 0 && since.get_or_insert_with(Instant::now).elapsed() >= PASS_ON_AFTER {
                signal.store(0, Ordering::Relaxed);
                since = None;
                self.signal(number);
            }
            if !self.reap()? && fds.iter().any(|fd| fd.revents != 0) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Sleeps until a process ends or `wake` is called, at most so long.
    pub fn wait(&self, wake: &Wake, timeout: Duration) {
        // More than these are looked after when the time is up.
        const FDS_MAX: usize = 16;
        let mut fds: Vec<libc::pollfd> = std::iter::once(&wake.0)
            .chain(self.watched.iter().map(|w| &w.0.fd))
            .take(FDS_MAX)
            .map(readable)
            .collect();
        wait_for(&mut fds, timeout);
        if fds[0].revents != 0 {
            wake.clear();
        }
    }
}

/// See [`Processes::is_kept_waiting`].
fn is_kept_waiting(pid: libc::pid_t) -> bool {
    let tasks = crate::members::folder(pid).join("task");
    let states = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
    let mut states = states.map(|entry| state_of(&entry.path()));
    states.any(|state| matches!(state, Some('R' | 'D')))
}

/// The letter by which the kernel shows what a thread does.
fn state_of(task: &std::path::Path) -> Option<char> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    // The name is in parentheses, and may hold some itself.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// What the threads of a process do, as the kernel shows it at this moment.
pub fn activity_of(pid: libc::pid_t) -> Activity {
    let tasks = crate::members::folder(pid).join("task");
    let Ok(entries) = std::fs::read_dir(&tasks) else {
        return Activity::Busy;
    };
    let mut found = Activity::Waiting;
    for entry in entries.flatten() {
        let task = entry.path();
        match state_of(&task) {
            Some('S') => {}
            // Gone, or nearly so.
            None | Some('Z' | 'X' | 'x') => continue,
            _ => return Activity::Busy,
        }
        // nanosleep, clock_nanosleep; what cannot be read may be one of them.
        let call = std::fs::read_to_string(task.join("syscall")).unwrap_or_default();
        match call.split_whitespace().next() {
            None | Some("35" | "230") => found = found.max(Activity::Pausing),
            Some("running") => return Activity::Busy,
            Some(_) => {}
        }
    }
    found
}

fn exit_status(status: i32) -> ExitStatus {
    if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    }
}

/// Which children are meant.
enum Whom {
    AnyOfThisThread,
    /// Of whichever thread of ours.
    One(libc::pid_t),
}

/// Takes one ended child. `None`: none has ended yet.
///
/// A child that one of our tracer threads has seized also shows its ptrace stops here. Those are
/// the tracer's: so this only looks first, and takes what has really ended.
fn reap(whom: Whom) -> io::Result<Option<(libc::pid_t, i32)>> {
    let flags = libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::WNOHANG;
    let (kind, id, flags) = match whom {
        Whom::AnyOfThisThread => (libc::P_ALL, 0, flags | libc::__WNOTHREAD),
        Whom::One(pid) => (libc::P_PID, pid as libc::id_t, flags),
    };
    // SAFETY: plain data, filled by the kernel.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: asks only.
    while unsafe { libc::waitid(kind, id, &mut info, flags) } < 0 {
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    // SAFETY: filled by waitid.
    let pid = unsafe { info.si_pid() };
    let ended = matches!(
        info.si_code,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
    );
    if pid == 0 || !ended {
        return Ok(None);
    }
    let mut status = 0;
    // SAFETY: it has ended; this takes it.
    let r = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    if r == pid {
        Ok(Some((pid, status)))
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_not_kept_waiting() {
        // This thread is at work while it looks.
        assert!(is_kept_waiting(std::process::id() as i32));
        let mut sleeper = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = sleeper.id() as i32;
        // It has to start first.
        while activity_of(pid) == Activity::Busy {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_kept_waiting(pid));
        // Nor is who was stopped: nothing goes on by itself there.
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        while state_of(&std::path::Path::new("/proc").join(pid.to_string())) != Some('T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_kept_waiting(pid));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
