//! Room for message queues of POSIX.
//!
//! The kernel counts the bytes of a user's queues over all IPC namespaces (`RLIMIT_MSGQUEUE`, by
//! default enough for nine queues), and takes its time to free those of a namespace in which nobody
//! is any more. So a program that makes one queue, as it may after each restart of the machine,
//! fails with `EMFILE` if it is launched a dozen times in quick succession, each time in a
//! namespace of its own. Whoever does that waits for room first.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Somebody else may have taken all that there is.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);
/// Room for so many, because others may be about to make theirs.
const QUEUES: usize = 4;

/// A queue of the usual size under a name that nobody else knows, which is taken away in the end.
struct Queue {
    name: CString,
    queue: libc::mqd_t,
}

impl Queue {
    fn make() -> io::Result<Queue> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("/brownout-room-{}-{number}", std::process::id()))?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let usual: *const libc::mq_attr = std::ptr::null();
        // SAFETY: a name; no attributes, which are then the usual ones.
        let queue = unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, usual) };
        match queue < 0 {
            true => Err(io::Error::last_os_error()),
            false => Ok(Queue { name, queue }),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: our own queue and its name.
        unsafe {
            libc::mq_unlink(self.name.as_ptr());
            libc::mq_close(self.queue);
        }
    }
}

/// Waits until there is room for a few more queues, or is not likely to be soon.
pub fn await_queue_room() {
    let begun = Instant::now();
    while !has_room() && begun.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
}

fn has_room() -> bool {
    let queues: io::Result<Vec<Queue>> = (0..QUEUES).map(|_| Queue::make()).collect();
    let error = queues.err().and_then(|error| error.raw_os_error());
    error != Some(libc::EMFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_looking_for_room() {
        for _ in 0..50 {
            await_queue_room();
        }
        let own = format!("brownout-room-{}-", std::process::id());
        let left = std::fs::read_dir("/dev/mqueue")
            .into_iter()
            .flatten()
            .flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
        assert_eq!(left.count(), 0);
    }
}
