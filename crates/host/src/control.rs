//! The shared control file and ring, as the tool sees them.

use brownout_abi::{CONTROL_LEN, Control, MAGIC, RING_LEN, VERSION};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// An anonymous file, shared with the target by `/proc/PID/fd/N`.
pub fn memory_file(name: &std::ffi::CStr) -> io::Result<File> {
    // SAFETY: `name` is NUL-terminated; the result is a fresh descriptor.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(File::from_raw_fd(fd))
        }
    }
}

/// The control block and ring, mapped for the life of the process.
#[derive(Clone, Copy)]
pub struct Shared {
    control: *mut Control,
    ring: *const u8,
}
// SAFETY: all shared fields are atomics or guarded by the protocol in the ABI.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates the file and maps it; the mapping is never undone.
    pub fn create(mode: u32) -> io::Result<(Shared, File)> {
        let file = memory_file(c"brownout-control")?;
        file.set_len(CONTROL_LEN + RING_LEN)?;
        let fd = file.as_raw_fd();
        // SAFETY: maps our own file; the ring goes twice in a row over a reservation of twice its size.
        unsafe {
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            let control = libc::mmap(
                std::ptr::null_mut(),
                CONTROL_LEN as usize,
                rw,
                libc::MAP_SHARED,
                fd,
                0,
            );
            let room = libc::mmap(
                std::ptr::null_mut(),
                2 * RING_LEN as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if control == libc::MAP_FAILED || room == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            for i in 0..2 {
                let at = room.byte_add(i * RING_LEN as usize);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                if libc::mmap(at, RING_LEN as usize, rw, flags, fd, CONTROL_LEN as i64)
                    == libc::MAP_FAILED
                {
                    return Err(io::Error::last_os_error());
                }
            }
            let control = control as *mut Control;
            (*control).magic = MAGIC;
            (*control).version = VERSION;
            (*control).mode = mode;
            (*control).host_pid = std::process::id();
            (*control).control_fd = fd as u32;
            (*control).seed = 0x0b57_0c4a_5eed_0001;
            (*control)
                .next_thread
                .store(1, std::sync::atomic::Ordering::Relaxed);
            (*control)
                .next_process
                .store(1, std::sync::atomic::Ordering::Relaxed);
            (*control)
                .next_context
                .store(1, std::sync::atomic::Ordering::Relaxed);
            (*control)
                .next_site
                .store(1, std::sync::atomic::Ordering::Relaxed);
            // Looks like a pid, and is none that a system process has.
            (*control)
                .next_pid
                .store(1000, std::sync::atomic::Ordering::Relaxed);
            Ok((
                Shared {
                    control,
                    ring: room as *const u8,
                },
                file,
            ))
        }
    }

    /// The control block.
    pub fn control(&self) -> &Control {
        // SAFETY: mapped for good.
        unsafe { &*self.control }
    }

    /// The control block, for fields guarded by the service protocol.
    pub fn control_ptr(&self) -> *mut Control {
        self.control
    }

    /// `len` bytes of the ring from stream position `at`.
    ///
    /// # Safety
    /// The writer has published these bytes and the reader has not released them.
    pub unsafe fn ring(&self, at: u64, len: usize) -> &[u8] {
        // SAFETY: the ring is mapped twice in a row, so any start has RING_LEN bytes behind it.
        unsafe { std::slice::from_raw_parts(self.ring.add((at & (RING_LEN - 1)) as usize), len) }
    }
}

/// Sleeps while `*word == expected`.
pub fn futex_wait(
    word: &std::sync::atomic::AtomicU32,
    expected: u32,
    timeout: std::time::Duration,
) {
    let ts = libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos() as i64,
    };
    // SAFETY: `word` and `ts` live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &ts,
        )
    };
}

/// Wakes sleepers.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: `word` lives through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
