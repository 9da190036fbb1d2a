//! Which processes belong to a run, and what their numbers are: as the kernel says, never as a
//! program says.
//!
//! A program tells its own number, which is the number in *its* PID namespace. Here that may be
//! nobody's number, or a stranger's. So a number that came from a program is only a hint where to
//! look:
//!
//! - A **process** belongs to a run if it has the run's control memory mapped, by device and inode,
//!   at the place where the engine has it. Only such a process is ever opened, and it is opened by
//!   pidfd, so that it stays the same one.
//! - The **thread** that makes a service request puts a mark into memory of its own. The thread
//!   that has this mark is the one.
//!
//! Three kinds of numbers meet: the program's (in its namespace), ours (in that of this process,
//! for system calls), and those by which `/proc` calls its folders (of the namespace that `/proc`
//! was mounted in: ours, or one around it). `NSpid` in `/proc/N/status` has all of them, from the
//! outermost inwards.
//!
//! Deviation: where the memory of a process cannot be looked at (it has made itself not dumpable,
//! and we are not privileged), it counts as one of the run if it descends from this process. That
//! is no stranger; it might be of another run of the same tool.

use crate::control::Shared;
use brownout_abi::CONTROL_BASE;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// A process as `/proc` calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcNumber(pub u32);

/// The control memory of a run, as `/proc` shows it: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub device: u64,
    pub inode: u64,
}

/// Tells the processes of one run from all others.
#[derive(Clone)]
pub struct Members {
    mark: Mark,
    /// Which of the numbers in `NSpid` is ours.
    level: usize,
    shared: Shared,
}

/// A process of the run that has been opened.
pub struct Member {
    /// Its number in our namespace.
    pub pid: libc::pid_t,
    pub number: ProcNumber,
    pub fd: OwnedFd,
}

/// A thread that has made a service request.
pub struct Requester {
    /// Its number in our namespace.
    pub tid: libc::pid_t,
    /// That of its process.
    pub pid: libc::pid_t,
    /// What `/proc` has of it.
    pub folder: String,
}

/// What `/proc/N/status` says.
struct Status {
    /// `Z` and `X` have ended.
    state: u8,
    parent: u32,
    /// Numbers of the thread, from the namespace of `/proc` inwards.
    numbers: Vec<u32>,
    /// Those of its process.
    process: Vec<u32>,
}

impl Status {
    fn read(path: &str) -> Option<Status> {
        let text = std::fs::read_to_string(format!("{path}/status")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        // A kernel without PID namespaces has only the one number.
        let numbers = |name: &str, alone: &str| -> Vec<u32> {
            let numbers = field(name).or(field(alone)).unwrap_or_default();
            let numbers = numbers.split_ascii_whitespace();
            numbers.filter_map(|n| n.parse().ok()).collect()
        };
        Some(Status {
            state: *field("State:")?.as_bytes().first()?,
            parent: field("PPid:")?.parse().ok()?,
            numbers: numbers("NSpid:", "Pid:"),
            process: numbers("NStgid:", "Tgid:"),
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// What a thread has where the engine has its control memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// That of this run.
    Ours,
    /// Something else, or nothing there.
    Others,
    /// It has no memory: it has ended, or is the kernel's.
    None,
    /// We may not know.
    Hidden,
}

/// The numbers of the entries of a folder in `/proc`.
fn numbers_in(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

impl Mark {
    /// Of the run with this control memory.
    pub fn of(control: &File) -> io::Result<Mark> {
        let meta = control.metadata()?;
        Ok(Mark {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }

    /// Whether a process has it, as far as we may know.
    pub fn is_on(self, number: ProcNumber) -> bool {
        self.memory_of(number) == Memory::Ours
    }

    fn memory(self, path: &str) -> Memory {
        let file = match File::open(format!("{path}/maps")) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Memory::Hidden,
            Err(_) => return Memory::None,
        };
        let mut found = Memory::None;
        for line in BufReader::new(file).lines() {
            let Ok(line) = line else { break };
            found = Memory::Others;
            let mut fields = line.split_ascii_whitespace();
            let start = fields.next().and_then(|range| range.split('-').next());
            let Some(start) = start.and_then(|start| u64::from_str_radix(start, 16).ok()) else {
                continue;
            };
            if start < CONTROL_BASE {
                continue;
            }
            let (device, inode) = (fields.nth(2).unwrap_or_default(), fields.next());
            let device = device.split_once(':').and_then(|(major, minor)| {
                let part = |text| u32::from_str_radix(text, 16).ok();
                Some((part(major)?, part(minor)?))
            });
            let own = (libc::major(self.device), libc::minor(self.device));
            let is_ours = start == CONTROL_BASE
                && device == Some(own)
                && inode.and_then(|inode| inode.parse().ok()) == Some(self.inode);
            return if is_ours {
                Memory::Ours
            } else {
                Memory::Others
            };
        }
        found
    }

    /// What a process has. Its first thread may have ended before the others.
    fn memory_of(self, number: ProcNumber) -> Memory {
        let folder = format!("/proc/{}", number.0);
        let first = self.memory(&folder);
        if first != Memory::None {
            return first;
        }
        let tasks = numbers_in(&format!("{folder}/task")).into_iter();
        tasks
            .map(|task| self.memory(&format!("{folder}/task/{task}")))
            .find(|memory| *memory != Memory::None)
            .unwrap_or(Memory::None)
    }
}

impl Members {
    /// Of the run with this control memory.
    pub fn new(shared: &Shared, control: &File) -> io::Result<Members> {
        let level = Status::read("/proc/self")
            .and_then(|status| status.numbers.len().checked_sub(1))
            .ok_or_else(|| io::Error::other("/proc does not tell the numbers of processes"))?;
        Ok(Members {
            mark: Mark::of(control)?,
            level,
            shared: shared.clone(),
        })
    }

    /// Whether a process that runs is one of the run.
    fn has(&self, number: ProcNumber) -> bool {
        match self.mark.memory_of(number) {
            Memory::Ours => true,
            Memory::Others | Memory::None => false,
            Memory::Hidden => self.descends_from_us(number),
        }
    }

    fn descends_from_us(&self, number: ProcNumber) -> bool {
        let Some(us) = own_number() else {
            return false;
        };
        let mut at = number.0;
        // Numbers of parents are not always smaller; a chain as long as this is a circle of numbers
        // that were given anew.
        for _ in 0..10_000 {
            match Status::read(&format!("/proc/{at}")) {
                Some(status) if status.parent == us.0 => return true,
                Some(status) if status.parent > 1 => at = status.parent,
                _ => return false,
            }
        }
        false
    }

    /// Opens a process of the run by a number that one of its processes has told, which need not be
    /// right.
    pub fn open(&self, told: libc::pid_t) -> Option<Member> {
        let (fd, number) = pidfd(told)?;
        // It is the same process before and behind the look at its memory: it has not given its
        // number away.
        let is_member = self.has(number) && number_of(&fd) == Some(number);
        is_member.then_some(Member {
            pid: told,
            number,
            fd,
        })
    }

    /// Opens a process that has ended, by a number that was told in our own namespace. It has
    /// nothing left to be known by, and no signal can hurt it; but it is to be taken note of,
    /// should it become a child of ours.
    pub fn open_ended(&self, told: libc::pid_t) -> Option<Member> {
        let (fd, number) = pidfd(told)?;
        let has_ended = Status::read(&format!("/proc/{}", number.0))?.has_ended();
        let is_member =
            has_ended && self.descends_from_us(number) && number_of(&fd) == Some(number);
        is_member.then_some(Member {
            pid: told,
            number,
            fd,
        })
    }

    /// Opens a child of ours.
    pub fn open_child(&self, pid: libc::pid_t) -> Option<Member> {
        let (fd, number) = pidfd(pid)?;
        Some(Member { pid, number, fd })
    }

    /// Opens all processes of the run but those that are known.
    pub fn open_others(&self, known: impl Fn(ProcNumber) -> bool) -> Vec<Member> {
        let numbers = numbers_in("/proc").into_iter().map(ProcNumber);
        let unknown = numbers.filter(|number| !known(*number));
        let open = |number: ProcNumber| {
            let status = Status::read(&format!("/proc/{}", number.0))?;
            let pid = *status.numbers.get(self.level)?;
            // Only what is a process here, too: the number is from `/proc`, the descriptor by our
            // number.
            self.open(pid as libc::pid_t)
                .filter(|member| member.number == number)
        };
        unknown.filter_map(open).collect()
    }

    /// The run's control block.
    pub fn control(&self) -> &brownout_abi::Control {
        self.shared.control()
    }

    /// Whether processes of the run may have numbers of their own.
    pub fn have_namespaces(&self) -> bool {
        self.shared.control().pid_namespaces.load(Ordering::Relaxed) != 0
    }

    /// Whether a process is in another PID namespace than we are.
    pub fn is_elsewhere(&self, number: ProcNumber) -> bool {
        Status::read(&format!("/proc/{}", number.0))
            .is_some_and(|status| status.numbers.len() != self.level + 1)
    }

    /// The thread that makes the present service request and calls itself `told`.
    pub fn requester(&self, told: u32) -> Option<Requester> {
        let c = self.shared.control();
        let (at, mark) = (
            c.service_mark_at.load(Ordering::Relaxed),
            c.service_mark.load(Ordering::Relaxed),
        );
        let is_it = |path: &str| {
            let status = Status::read(path)?;
            let tid = *status.numbers.get(self.level)? as libc::pid_t;
            let is_it = status.numbers.last() == Some(&told) && word(tid, at) == Some(mark);
            is_it.then_some(Requester {
                tid,
                pid: *status.process.get(self.level)? as libc::pid_t,
                folder: format!(
                    "/proc/{}/task/{}",
                    status.process.first()?,
                    status.numbers.first()?
                ),
            })
        };
        is_it(&format!("/proc/{told}"))
            .or_else(|| self.tasks().into_iter().find_map(|path| is_it(&path)))
    }

    /// Whether a thread of the run that calls itself `told` is there and runs.
    pub fn has_thread(&self, told: u32) -> bool {
        let is_it = |path: &str| {
            Status::read(path)
                .is_some_and(|status| status.numbers.last() == Some(&told) && !status.has_ended())
        };
        // Most often it is where it says, and nothing need be searched.
        let path = format!("/proc/{told}");
        is_it(&path) && self.mark.memory(&path) == Memory::Ours
            || self.tasks().iter().any(|path| is_it(path))
    }

    /// Whether a process that calls itself `told` is there and runs, whatever memory it has: one
    /// that is just executing another program has none of ours. In another PID namespace it may be
    /// mistaken for one that has the same number there.
    pub fn is_running(&self, told: u32) -> bool {
        let is_it = |path: &str| {
            Status::read(path)
                .is_some_and(|status| status.process.last() == Some(&told) && !status.has_ended())
        };
        let mut numbers = numbers_in("/proc").into_iter();
        is_it(&format!("/proc/{told}")) || numbers.any(|number| is_it(&format!("/proc/{number}")))
    }

    /// The folders of all threads of the run.
    fn tasks(&self) -> Vec<String> {
        let numbers = numbers_in("/proc").into_iter().map(ProcNumber);
        numbers
            .filter(|number| self.has(*number))
            .flat_map(|ProcNumber(number)| {
                let folder = format!("/proc/{number}/task");
                let tasks = numbers_in(&folder).into_iter();
                tasks.map(move |task| format!("{folder}/{task}"))
            })
            .collect()
    }
}

/// All processes, as `/proc` calls them.
pub fn all() -> impl Iterator<Item = ProcNumber> {
    numbers_in("/proc").into_iter().map(ProcNumber)
}

/// The parent of a process; `None` if that is gone, or is not one that `/proc` shows.
pub fn parent(number: ProcNumber) -> Option<ProcNumber> {
    let status = Status::read(&format!("/proc/{}", number.0))?;
    (status.parent > 0).then_some(ProcNumber(status.parent))
}

/// A descriptor for the process that `/proc` calls so. This process must be in the namespace of
/// `/proc`, or one in it.
pub fn open(number: ProcNumber) -> Option<OwnedFd> {
    let us = Status::read("/proc/self")?;
    let status = Status::read(&format!("/proc/{}", number.0))?;
    let pid = *status.numbers.get(us.numbers.len().checked_sub(1)?)?;
    let (fd, found) = pidfd(pid as libc::pid_t)?;
    (found == number).then_some(fd)
}

/// Where `/proc` has the process with this number here; nowhere, if there is none.
pub fn folder(pid: libc::pid_t) -> PathBuf {
    match pidfd(pid) {
        Some((_, number)) => PathBuf::from(format!("/proc/{}", number.0)),
        None => PathBuf::from("/proc/0"),
    }
}

/// What `/proc` calls this process.
pub fn own_number() -> Option<ProcNumber> {
    let link = std::fs::read_link("/proc/self").ok()?;
    link.to_str()?.parse().ok().map(ProcNumber)
}

/// A descriptor for the process that has this number here, and what `/proc` calls it.
fn pidfd(pid: libc::pid_t) -> Option<(OwnedFd, ProcNumber)> {
    // SAFETY: a fresh descriptor or an error: there is no such process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: just made.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let number = number_of(&fd)?;
    Some((fd, number))
}

/// What `/proc` calls a process; `None` once its end has been taken note of.
fn number_of(fd: &OwnedFd) -> Option<ProcNumber> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number
        .trim()
        .parse()
        .ok()
        .filter(|n| *n > 0)
        .map(ProcNumber)
}

/// A word of the memory of a thread.
fn word(pid: libc::pid_t, at: u64) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec {
        iov_base: (&raw mut word).cast(),
        iov_len: 8,
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: 8,
    };
    // SAFETY: eight bytes of ours; the kernel checks the other side.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    (n == 8).then_some(word)
}
