//! Whether a native run will end: what its processes are doing, by what `/proc` says.
//!
//! A run that has not ended yet may be computing, may sleep until a time that it has set, or may
//! wait for something that never comes. Only the last is known for what it is. The others are
//! waited for: the one as long as it gets the processor, so that a busy machine makes no hang of
//! it, and the other for a time within which most programs give up.

use std::fs;
use std::time::{Duration, Instant};

/// How often it is looked at.
const LOOKS: Duration = Duration::from_millis(100);
/// All of it waits for so long, and nothing of that has a time limit: it waits for ever.
const BLOCKED: Duration = Duration::from_secs(2);
/// Whatever it does.
const TIME_MAX: Duration = Duration::from_secs(300);

/// What takes longer hangs.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time on the processor.
    pub busy: Duration,
    /// Time in which nobody wants the processor, though somebody may want it later.
    pub asleep: Duration,
}

/// What a thread does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// It waits, and not until a time that it has set.
    Blocked,
    /// It sleeps or waits until then, or nobody says what it does.
    Sleeps,
    Runs,
}

/// Watches the processes that come from one.
pub struct Waits {
    first: i32,
    patience: Patience,
    begun: Instant,
    looked: Instant,
    blocked: Duration,
    asleep: Duration,
}

impl Waits {
    pub fn new(first: i32, patience: Patience) -> Waits {
        let now = Instant::now();
        Waits {
            first,
            patience,
            begun: now,
            looked: now,
            blocked: Duration::ZERO,
            asleep: Duration::ZERO,
        }
    }

    /// Whether it is not to be waited for any longer. The first process must not have been waited
    /// for.
    pub fn is_hang(&mut self) -> bool {
        let passed = self.looked.elapsed();
        if passed < LOOKS {
            return false;
        }
        self.looked = Instant::now();
        let (doing, busy) = look(self.first);
        if doing == Doing::Blocked {
            self.blocked += passed;
        } else {
            self.blocked = Duration::ZERO;
        }
        if doing < Doing::Runs {
            self.asleep += passed;
        }
        self.blocked >= BLOCKED
            || busy >= self.patience.busy
            || self.asleep >= self.patience.asleep
            || self.begun.elapsed() >= TIME_MAX
    }
}

/// What the liveliest thread of a process and of all that come from it does, and the time on the
/// processor that they have had together.
fn look(first: i32) -> (Doing, Duration) {
    let mut doing = Doing::Blocked;
    let mut ticks = 0;
    let mut left = vec![first];
    while let Some(pid) = left.pop() {
        let folder = format!("/proc/{pid}");
        let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
        ticks += fields(&stat).map_or(0, |(_, ticks)| ticks);
        for task in fs::read_dir(format!("{folder}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            // One that has just ended does nothing.
            if let Some((state, _)) = fields(&read("stat")) {
                doing = doing.max(doing_by(state, &read("syscall")));
            }
            let children = read("children");
            left.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
    }
    // SAFETY: asks only.
    let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    (doing, Duration::from_millis(ticks * 1000 / second))
}

/// State, and time on the processor of a process and of those of its children that it has waited
/// for, of a line in `/proc/PID/stat`.
fn fields(stat: &str) -> Option<(char, u64)> {
    // The name may hold anything.
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut words = rest.split_whitespace();
    let state = words.next()?.chars().next()?;
    let times = words.skip(10).take(4);
    Some((
        state,
        times.filter_map(|word| word.parse::<u64>().ok()).sum(),
    ))
}

/// `syscall` is `/proc/PID/syscall`: the number of the call that the thread is in and its
/// arguments.
fn doing_by(state: char, syscall: &str) -> Doing {
    match state {
        'R' | 'D' => return Doing::Runs,
        'S' => {}
        // Stopped, or ended and not waited for.
        _ => return Doing::Blocked,
    }
    let mut words = syscall.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Doing::Sleeps;
    };
    let args: Vec<u64> = words
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .collect();
    let arg = |n: usize| args.get(n).copied().unwrap_or(1);
    let no_address = |n: usize| arg(n) == 0;
    let negative = |n: usize| (arg(n) as i32) < 0;
    let is_blocked = match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_flock
        | libc::SYS_fcntl
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_semop
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd => true,
        libc::SYS_futex => no_address(3),
        libc::SYS_ppoll | libc::SYS_rt_sigtimedwait => no_address(2),
        libc::SYS_select | libc::SYS_pselect6 => no_address(4),
        libc::SYS_poll => negative(2),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => negative(3),
        _ => false,
    };
    match is_blocked {
        true => Doing::Blocked,
        false => Doing::Sleeps,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// What a shell command does once it has come to rest.
    fn at_rest(script: &str) -> Doing {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut child = child.expect("there is a shell");
        let mut last = look(child.id() as i32).0;
        // On its way it does all kinds of things; at rest it does the same for a while.
        let mut same = 0;
        while same < 20 {
            std::thread::sleep(Duration::from_millis(20));
            let now = look(child.id() as i32).0;
            same = if now == last && now != Doing::Runs {
                same + 1
            } else {
                0
            };
            last = now;
        }
        child.kill().expect("it can be ended");
        child.wait().expect("it is ours");
        last
    }

    #[test]
    fn sleeping_is_not_waiting_for_ever() {
        assert_eq!(at_rest("read x"), Doing::Blocked);
        assert_eq!(at_rest("exec sleep 1000"), Doing::Sleeps);
        // The shell waits for the one that sleeps.
        assert_eq!(at_rest("sleep 30; :"), Doing::Sleeps);
    }

    #[test]
    fn calls_with_a_time_limit_are_sleep() {
        let futex = |timeout: &str| format!("202 0x7f00 0x80 0x2 {timeout} 0x0 0x0 0x7ff 0x7f1");
        assert_eq!(doing_by('S', &futex("0x0")), Doing::Blocked);
        assert_eq!(doing_by('S', &futex("0x7ffc")), Doing::Sleeps);
        let poll = |time: &str| format!("7 0x7f00 0x1 {time} 0x0 0x0 0x0 0x7ff 0x7f1");
        assert_eq!(doing_by('S', &poll("0xffffffff")), Doing::Blocked);
        assert_eq!(doing_by('S', &poll("0x3e8")), Doing::Sleeps);
        assert_eq!(doing_by('R', "running"), Doing::Runs);
        assert_eq!(doing_by('S', ""), Doing::Sleeps);
    }

    #[test]
    fn a_line_of_proc_is_read_behind_the_name() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194560 100 0 0 0 7 5 3 2 20 0 1 0 100 1 1";
        assert_eq!(fields(stat), Some(('S', 17)));
        assert_eq!(fields(""), None);
    }
}
