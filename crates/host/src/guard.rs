//! What is to be done when this process is gone, whatever has ended it.
//!
//! A *guard* is a process that was forked for that, and only waits. The kernel tells it of our end
//! by a pipe, so that SIGKILL is no exception. It is nobody's child, and neither the terminal's
//! signals nor the end of a process group concern it.
//!
//! Programs that [die with the tool](crate::LaunchConfig::dies_with_tool) have one guard for all
//! launches of this process. It is told of each run by the run's control memory, and ends every
//! process that has that memory, and what descends from such a process (a program that is not
//! followed). The kernel itself ends the first process of a run (`PR_SET_PDEATHSIG`), but no other.
//! Programs in a private view are left to whoever has made the view.
//!
//! Deviation: a process that is just executing another program has no control memory, and none of
//! its parents may have it either; such a one stays, and runs natively. If the guard is ended, too,
//! processes end when they next need the tool.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::members::{self, Mark, ProcNumber};

/// Whether a run has begun or ended, and the two numbers of its mark.
const MESSAGE: usize = 17;
/// One may just be making another; but nobody is hunted for ever.
const ROUNDS_MAX: u32 = 1000;

/// Whether orphans come to this process is a property of all of it. It is read where somebody wants
/// them, and written where somebody does not want one for a moment, which must not undo the other.
static ORPHANS: RwLock<()> = RwLock::new(());

/// Orphans come to us from now on: starts what may leave some.
pub fn with_orphans<T>(start: impl FnOnce() -> T) -> T {
    let _stays = ORPHANS.read().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    start()
}

/// Forks a process that does this work and ends. It has nothing of ours but memory and the reading
/// end of a pipe; what is written to the other end reaches it, and when nobody has that any more,
/// it reads the end.
///
/// The work must not wait for other threads of ours: they are not there. So it must not print, nor
/// take a lock that another thread may hold; it may use memory, files and processes.
///
/// While it is forked, which takes about a millisecond, an orphan of a program that another thread
/// runs already goes to whoever takes ours.
pub fn fork(work: impl FnOnce(PipeReader)) -> io::Result<PipeWriter> {
    let (waits, tells) = io::pipe()?;
    // An orphan, as this process will be, would come to us, and we would wait for it as for a
    // program's.
    let _changes = ORPHANS.write().unwrap_or_else(PoisonError::into_inner);
    let mut was = 0;
    // SAFETY: asks and sets a property of this process; fills our variable.
    unsafe {
        libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut was, 0, 0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    }
    // SAFETY: POSIX allows the child of a process with several threads async-signal-safe functions
    // only, because another thread may have held a lock at that moment. The work needs more: it
    // allocates (`Vec`, `format!`, the text of a file of `/proc`). With glibc, the only C library
    // that this tool is built for, that is sound: its `fork` takes all locks of `malloc` before,
    // and makes them anew in the child, so that no arena is locked or half changed there; all
    // allocators of ours end in it and have no state of their own. The library's functions for
    // files, folders and sleep take no lock but those of what they are given; `opendir` and
    // `readdir` have one for each folder. The child ends by `_exit`, without what others have
    // registered for the end, also if it panics.
    let between = unsafe { libc::fork() };
    if between == 0 {
        // SAFETY: as above.
        unsafe {
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"brownout-guard".as_ptr(), 0, 0, 0);
            let keep = waits.as_raw_fd() as u32;
            if keep > 0 {
                libc::syscall(libc::SYS_close_range, 0, keep - 1, 0);
            }
            libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0);
        }
        // It must not go on in the frames of our callers.
        let done = catch_unwind(AssertUnwindSafe(|| work(waits)));
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    // SAFETY: our own child, which ends at once; and as above.
    unsafe {
        let mut status = 0;
        if between > 0 {
            libc::waitpid(between, &mut status, 0);
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, was, 0, 0, 0);
    }
    match between {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(tells),
    }
}

/// The guard of this process, once it has one. It stays until we end.
static GUARD: Mutex<Option<PipeWriter>> = Mutex::new(None);

fn tell(message: &[u8; MESSAGE]) -> io::Result<()> {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tells) = &mut *guard
        && tells.write_all(message).is_ok()
    {
        return Ok(());
    }
    // There is none yet, or somebody has ended it.
    guard.insert(fork(stand)?).write_all(message)
}

fn message(begins: bool, mark: Mark) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[0] = u8::from(begins);
    message[1..9].copy_from_slice(&mark.device.to_le_bytes());
    message[9..].copy_from_slice(&mark.inode.to_le_bytes());
    message
}

/// A run that is guarded, as long as this lives.
pub struct Guarded(Mark);

impl Guarded {
    /// The run with this control memory.
    pub fn new(control: &File) -> io::Result<Guarded> {
        let mark = Mark::of(control)?;
        tell(&message(true, mark))?;
        Ok(Guarded(mark))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // A guard that is gone need not know.
        let _ = tell(&message(false, self.0));
    }
}

/// What the guard does.
fn stand(mut waits: PipeReader) {
    let mut runs: Vec<Mark> = Vec::new();
    let mut message = [0; MESSAGE];
    while waits.read_exact(&mut message).is_ok() {
        let number = |at: usize| {
            let bytes = message[at..at + 8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        let mark = Mark {
            device: number(1),
            inode: number(9),
        };
        match message[0] {
            0 => runs.retain(|other| *other != mark),
            _ => runs.push(mark),
        }
    }
    if !runs.is_empty() {
        end_all(&runs);
    }
}

/// Ends the processes of these runs.
fn end_all(runs: &[Mark]) {
    let own = members::own_number();
    for _ in 0..ROUNDS_MAX {
        let mut known = BTreeMap::new();
        let all = members::all().filter(|number| Some(*number) != own);
        let meant: Vec<ProcNumber> = all.filter(|one| is_meant(*one, runs, &mut known)).collect();
        if meant.is_empty() {
            return;
        }
        // All are opened before one is ended: what descends from it would not be found any more.
        let opened: Vec<OwnedFd> = meant
            .iter()
            .filter_map(|number| {
                let fd = members::open(*number)?;
                // The descriptor is that of the process that was looked at.
                is_meant(*number, runs, &mut BTreeMap::new()).then_some(fd)
            })
            .collect();
        for fd in opened {
            // SAFETY: a process named by descriptor.
            unsafe {
                let fd = fd.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, 0, 0);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process is of these runs, or descends from one that is. `known` has the answers for
/// its ancestors.
fn is_meant(number: ProcNumber, runs: &[Mark], known: &mut BTreeMap<u32, bool>) -> bool {
    let mut way = Vec::new();
    let mut at = Some(number);
    let mut found = false;
    while let Some(ProcNumber(now)) = at {
        if let Some(answer) = known.get(&now) {
            found = *answer;
            break;
        }
        // Numbers that were given anew may make a circle.
        if way.contains(&now) {
            break;
        }
        way.push(now);
        if runs.iter().any(|mark| mark.is_on(ProcNumber(now))) {
            found = true;
            break;
        }
        at = members::parent(ProcNumber(now));
    }
    // Those between are what it is: nothing above them, or all below the one that was found.
    known.extend(way.into_iter().map(|one| (one, found)));
    found
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn orphans_come() -> bool {
        let mut comes = 0;
        // SAFETY: fills our variable.
        unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut comes, 0, 0, 0) };
        comes != 0
    }

    /// Whoever starts a program has its orphans, also while another thread forks guards.
    #[test]
    fn a_guard_takes_nobodys_orphans() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(fork(|_| {}).expect("it can be forked"));
                }
            });
            let have_come: Vec<bool> = (0..200)
                .map(|_| {
                    with_orphans(|| {
                        std::thread::sleep(Duration::from_micros(300));
                        orphans_come()
                    })
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            assert!(have_come.iter().all(|come| *come), "{have_come:?}");
        });
        assert!(orphans_come(), "a guard has undone it");
    }
}
