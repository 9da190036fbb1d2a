//! The shared control file and ring, as the tool sees them.

use brownout_abi::cpu::Features;
use brownout_abi::{
    COMPARED_LEN, CONTROL_LEN, Control, KNOWN_MAX, KnownFile, MAGIC, MODE_EDGES, REDIRECTS_LEN,
    RING_BASE, RING_LEN, RecordHead, VERSION, WORLD_LEN,
};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::Comparison;

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

/// What a run begins with.
pub struct Beginning {
    /// `MODE_*` bits.
    pub mode: u32,
    /// Which addresses a deterministic program gets.
    pub layout: u32,
    /// What the program must not see of the processor.
    pub cpu_hidden: Features,
    /// Instructions that the processor does not have.
    pub cpu_lacking: Features,
    /// Device and inode of standard input, and whether it is a regular file.
    pub input: (u64, u64, bool),
    /// At most [`KNOWN_MAX`].
    pub known: Vec<KnownFile>,
    /// How many pairs of paths are in the text; a NUL behind each path.
    pub redirect_count: u32,
    /// At most [`REDIRECTS_LEN`] bytes.
    pub redirects: Vec<u8>,
    /// Where the program stops, to be forked from: one of [`brownout_abi::stop_at`].
    pub stop_at: u32,
    /// Bits of [`brownout_abi::kept_flags`].
    pub kept_flags: u32,
    /// How many folders are in the text; a NUL behind each path.
    pub world_count: u32,
    /// At most [`WORLD_LEN`] bytes.
    pub world: Vec<u8>,
}

/// The control block and ring. Clones share one mapping, which is undone with the last of them.
#[derive(Clone)]
pub struct Shared(Arc<Mapping>);

struct Mapping {
    control: *mut Control,
    ring: *mut u8,
}
// SAFETY: all shared fields are atomics or guarded by the protocol in the ABI.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Shared::create`; whoever holds a reference into it holds a `Shared`.
        unsafe {
            libc::munmap(self.control.cast(), CONTROL_LEN as usize);
            libc::munmap(self.ring.cast(), 2 * RING_LEN as usize);
        }
    }
}

/// Maps `len` bytes. With a file from its offset, shared; else a reservation.
///
/// # Safety
/// `at`, if not null, is the caller's own range to replace.
unsafe fn map(at: *mut u8, len: u64, file: Option<(&File, u64)>) -> io::Result<*mut u8> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let (prot, flags, fd, offset) = match file {
        Some((file, offset)) => (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset,
        ),
        None => (
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        ),
    };
    // SAFETY: the caller's promise.
    let got = unsafe {
        libc::mmap(
            at.cast(),
            len as usize,
            prot,
            flags | fixed,
            fd,
            offset as i64,
        )
    };
    if got == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(got.cast())
    }
}

impl Shared {
    /// Creates the file, unless there is an empty one already, and maps it.
    pub fn create(beginning: &Beginning, file: Option<File>) -> io::Result<(Shared, File)> {
        let file = match file {
            Some(file) => file,
            None => memory_file(c"brownout-control")?,
        };
        file.set_len(CONTROL_LEN + RING_LEN)?;
        // SAFETY: fresh mappings of our own file; the ring goes twice in a row over a reservation
        // of twice its size. From the third line on they belong to a value that undoes them.
        let mapping = unsafe {
            let ring = map(std::ptr::null_mut(), 2 * RING_LEN, None)?;
            let control = map(std::ptr::null_mut(), CONTROL_LEN, Some((&file, 0)))
                .inspect_err(|_| {
                    libc::munmap(ring.cast(), 2 * RING_LEN as usize);
                })?
                .cast();
            let mapping = Mapping { control, ring };
            map(ring, RING_LEN, Some((&file, CONTROL_LEN)))?;
            map(
                ring.add(RING_LEN as usize),
                RING_LEN,
                Some((&file, CONTROL_LEN)),
            )?;
            mapping
        };
        // SAFETY: nobody else knows of it yet; a zeroed block is a valid one.
        let control = unsafe { &mut *mapping.control };
        control.magic = MAGIC;
        control.version = VERSION;
        control.mode = beginning.mode;
        // So that no request of another run has the same.
        let mut mark = [0u8; 8];
        // SAFETY: our own buffer. Should there be no random numbers, the marks of this run begin
        // at 0.
        unsafe { libc::getrandom(mark.as_mut_ptr().cast(), mark.len(), 0) };
        control
            .service_mark
            .store(u64::from_le_bytes(mark), Relaxed);
        control.layout = beginning.layout;
        control.cpu_hidden = beginning.cpu_hidden.0;
        control.cpu_lacking = beginning.cpu_lacking.0;
        control.seed = 0x0b57_0c4a_5eed_0001;
        control.ring_write.store(RING_BASE, Relaxed);
        control.ring_tail.store(RING_BASE, Relaxed);
        control.next_thread.store(1, Relaxed);
        control.next_process.store(1, Relaxed);
        control.next_context.store(1, Relaxed);
        control.next_site.store(1, Relaxed);
        control.tool_process.store(std::process::id(), Relaxed);
        // Looks like a pid, and is none that a system process has.
        control.next_pid.store(1000, Relaxed);
        (control.input_device, control.input_inode) = (beginning.input.0, beginning.input.1);
        control.input_is_file = beginning.input.2.into();
        control.stop_at = beginning.stop_at;
        control.kept_flags = beginning.kept_flags;
        let world = &beginning.world[..beginning.world.len().min(WORLD_LEN)];
        control.world_count = beginning.world_count;
        control.world[..world.len()].copy_from_slice(world);
        let shared = Shared(Arc::new(mapping));
        // SAFETY: nobody else knows of it yet.
        unsafe {
            shared.begin(
                &beginning.known,
                beginning.redirect_count,
                &beginning.redirects,
            );
        }
        Ok((shared, file))
    }

    /// The control block.
    pub fn control(&self) -> &Control {
        // SAFETY: mapped as long as this value lives.
        unsafe { &*self.0.control }
    }

    /// The control block, for fields guarded by the service protocol.
    pub fn control_ptr(&self) -> *mut Control {
        self.0.control
    }

    /// The stream position up to which records are published, for a reader that has taken all
    /// before `read`. A program may have written anything there; records begin at multiples of 8
    /// whatever it is.
    pub fn published(&self, read: u64) -> u64 {
        let write = self.control().ring_write.load(Acquire);
        read + (write.wrapping_sub(read) & (RING_LEN - 1) & !7)
    }

    /// Where the instruction of a site is; 0 if there is no such site.
    #[inline]
    pub fn site(&self, site: u32) -> u64 {
        let sites = &self.control().sites;
        sites.get(site as usize).map_or(0, |pc| pc.load(Relaxed))
    }

    /// Which edges were taken, if that is asked for.
    pub fn edges(&self) -> Option<Box<[u8]>> {
        let control = self.control();
        let edges = control.edges.0.iter();
        (control.mode & MODE_EDGES != 0).then(|| edges.map(|n| n.load(Relaxed)).collect())
    }

    /// Sets which edges were taken.
    pub fn set_edges(&self, to: &[u8]) {
        for (edge, value) in self.control().edges.0.iter().zip(to) {
            edge.store(*value, Relaxed);
        }
    }

    /// Says in front of which instructions the state is told; sorted, and no more than there is
    /// room for. Before the program begins.
    pub fn choose(&self, chosen: &[u64]) {
        let control = self.control();
        let count = chosen.len().min(control.chosen.len());
        for (entry, pc) in control.chosen.iter().zip(&chosen[..count]) {
            entry.store(*pc, Relaxed);
        }
        control.chosen_count.store(count as u32, Release);
    }

    /// What was compared, as far as it was noted.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let table = &self.control().comparisons;
        let count = table.count.load(Relaxed) as usize;
        let bytes = |words: &[AtomicU64], len: usize| {
            let words = words.iter().map(|word| word.load(Relaxed).to_le_bytes());
            words.flatten().take(len).collect()
        };
        let noted = table.entries.iter().take(count);
        // The program may have written anything there.
        let lens = noted.map(|entry| (entry, entry.len.load(Acquire) as usize));
        lens.filter(|(_, len)| (1..=COMPARED_LEN).contains(len))
            .map(|(entry, len)| Comparison {
                name: entry.name.load(Relaxed),
                left: bytes(&entry.left, len),
                right: bytes(&entry.right, len),
            })
            .collect()
    }

    /// Forgets what was compared.
    pub fn forget_comparisons(&self) {
        let table = &self.control().comparisons;
        let noted = table.count.swap(0, Relaxed) as usize;
        for entry in table.entries.iter().take(noted) {
            entry.len.store(0, Relaxed);
        }
    }

    /// The records in the ring, by stream position.
    pub fn records(&self) -> Records<'_> {
        // The ring is mapped twice in a row, so any start has RING_LEN bytes behind it.
        Records {
            base: self.0.ring,
            mask: RING_LEN - 1,
            of: PhantomData,
        }
    }

    /// The control block, to write down what a run begins with. A NUL is behind each of the paths.
    ///
    /// # Safety
    /// No process of the run is there yet, or all that are wait to be told to go on.
    pub unsafe fn begin(&self, known: &[KnownFile], redirect_count: u32, redirects: &[u8]) {
        // SAFETY: the caller's promise; fields of our own mapping.
        let control = unsafe { &mut *self.0.control };
        let known = &known[..known.len().min(KNOWN_MAX)];
        control.known_count = known.len() as u32;
        control.known[..known.len()].copy_from_slice(known);
        let text = &redirects[..redirects.len().min(REDIRECTS_LEN)];
        control.redirect_count = redirect_count;
        control.redirects[..text.len()].copy_from_slice(text);
    }
}

/// Where records lie: the ring, or a copy of a stretch of the stream, whose positions begin at 0.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    base: *const u8,
    mask: u64,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Records<'a> {
    /// Of a copy.
    pub fn of(bytes: &'a [u64]) -> Records<'a> {
        Records {
            base: bytes.as_ptr().cast(),
            mask: u64::MAX,
            of: PhantomData,
        }
    }

    /// `len` bytes from stream position `at`.
    ///
    /// # Safety
    /// The writer has published these bytes and the reader has not released them.
    #[inline]
    pub unsafe fn bytes(&self, at: u64, len: usize) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add((at & self.mask) as usize), len) }
    }

    /// The fixed part of the record at stream position `at`.
    ///
    /// # Safety
    /// As for [`bytes`](Self::bytes).
    #[inline]
    pub unsafe fn head(&self, at: u64) -> RecordHead {
        // SAFETY: as above. Records begin at multiples of 8, and any bytes are a head.
        unsafe { *self.base.add((at & self.mask) as usize).cast() }
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
