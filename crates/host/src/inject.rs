//! Puts the engine into a process that is stopped at its first instruction.
//!
//! The kernel has loaded program and interpreter and not one instruction has run. System calls are
//! made in the stopped process, one at a time, by stepping over a `syscall` instruction that stands
//! for a moment at its entry point: open the engine's memory file, map it, map control block and
//! ring, map a first stack. Then registers are set to the engine's entry and the process is let go.

use crate::enclosure::{Enclosure, Handed};
use brownout_abi::{CONTROL_BASE, CONTROL_LEN, ENGINE_BASE, Launch, RING_BASE, RING_LEN};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The engine, laid out flat and relocated.
mod image {
    include!(concat!(env!("OUT_DIR"), "/engine.rs"));

    /// Page-aligned in memory, and so in the file that the executable was loaded from: it can be
    /// mapped from there.
    #[repr(C, align(4096))]
    pub struct Pages<const N: usize>(pub [u8; N]);
    pub static BYTES: &Pages<{ include_bytes!(concat!(env!("OUT_DIR"), "/engine.bin")).len() }> =
        &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/engine.bin")));
}
const _: () = assert!(image::BASE == ENGINE_BASE);

/// Where the engine's very first stack goes: behind the image, before the control block.
const FIRST_STACK: u64 = ENGINE_BASE + 0x1000_0000;
const FIRST_STACK_LEN: u64 = 0x4_0000;

/// What injection needs, shared by all tracer threads.
pub struct Image {
    /// Where the engine is in this very executable, or in the file that was handed over.
    offset: u64,
    control: File,
    /// Files for a program that may not look into our descriptors: the engine, and the control
    /// block.
    handed: Option<(Handed, Handed)>,
}

impl Image {
    /// Finds the engine in the file that this program was loaded from: targets map it from there,
    /// so its pages are shared by all of them and read from disk once.
    pub fn new(control: File) -> io::Result<Image> {
        static OFFSET: OnceLock<u64> = OnceLock::new();
        let offset = match OFFSET.get() {
            Some(offset) => *offset,
            None => {
                let found = Image::find()?;
                *OFFSET.get_or_init(|| found)
            }
        };
        Ok(Image {
            offset,
            control,
            handed: None,
        })
    }

    /// For a program in a view from which our own descriptors cannot be seen.
    pub fn handed(control: File, enclosure: &Enclosure, control_path: Handed) -> io::Result<Image> {
        let Some((engine, engine_path)) = enclosure.hand("engine")? else {
            return Image::new(control);
        };
        engine.write_all_at(&image::BYTES.0, 0)?;
        Ok(Image {
            offset: 0,
            control,
            handed: Some((engine_path, control_path)),
        })
    }

    fn find() -> io::Result<u64> {
        let at = image::BYTES.0.as_ptr() as u64;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let offset = maps.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
            let (start, end) = (
                u64::from_str_radix(start, 16).ok()?,
                u64::from_str_radix(end, 16).ok()?,
            );
            (start..end).contains(&at).then(|| offset + (at - start))
        });
        offset.ok_or_else(|| io::Error::other("the engine's place in the executable is not known"))
    }
}

/// What is carried over `execve` by other means than the kernel.
#[derive(Clone, Copy, Default)]
pub struct Previous {
    pub process: u64,
    pub ignored_sync: u64,
    pub blocked_sync: u64,
    pub shown_pid: u64,
    /// The signal mask that the program begins with, if it is not the one that it has.
    pub mask: Option<u64>,
}

/// Signals that came while the process was being changed.
type Kept = RefCell<Vec<(i32, libc::siginfo_t)>>;

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// A stopped process that this thread traces.
pub struct Target {
    pid: libc::pid_t,
}

type VmCall = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

fn check(r: libc::c_long) -> io::Result<libc::c_long> {
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r)
    }
}

impl Target {
    /// `pid` is in a ptrace stop of the calling thread.
    pub fn new(pid: libc::pid_t) -> Self {
        Target { pid }
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain data, filled by the kernel.
        unsafe {
            let mut r: libc::user_regs_struct = std::mem::zeroed();
            check(libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &mut r))?;
            Ok(r)
        }
    }

    fn set_registers(&self, r: &libc::user_regs_struct) -> io::Result<()> {
        // SAFETY: reads our structure.
        unsafe { check(libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, r)).map(|_| ()) }
    }

    fn peek(&self, addr: u64) -> io::Result<u64> {
        // SAFETY: errno tells an error from a value of -1.
        unsafe {
            *libc::__errno_location() = 0;
            let v = libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid, addr, 0);
            if *libc::__errno_location() != 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(v as u64)
            }
        }
    }

    fn poke(&self, addr: u64, value: u64) -> io::Result<()> {
        // SAFETY: writes into the stopped process only.
        unsafe { check(libc::ptrace(libc::PTRACE_POKETEXT, self.pid, addr, value)).map(|_| ()) }
    }

    /// Copies between our memory and the stopped process's in one call.
    fn copy(&self, addr: u64, bytes: *mut u8, len: usize, call: VmCall) -> io::Result<()> {
        let local = libc::iovec {
            iov_base: bytes.cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: addr as *mut libc::c_void,
            iov_len: len,
        };
        // SAFETY: the caller's buffer is `len` bytes; the kernel checks the other side.
        let n = unsafe { call(self.pid, &local, 1, &remote, 1, 0) };
        match n {
            n if n == len as isize => Ok(()),
            n if n < 0 => Err(io::Error::last_os_error()),
            _ => Err(io::Error::other("the program's memory ends too early")),
        }
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> io::Result<()> {
        self.copy(
            addr,
            bytes.as_ptr().cast_mut(),
            bytes.len(),
            libc::process_vm_writev,
        )
    }

    fn read(&self, addr: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.copy(
            addr,
            bytes.as_mut_ptr(),
            bytes.len(),
            libc::process_vm_readv,
        )
    }

    fn mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        // SAFETY: eight bytes of ours.
        unsafe { check(libc::ptrace(PTRACE_GETSIGMASK, self.pid, 8, &mut mask))? };
        Ok(mask)
    }

    /// Sets the signals that the stopped process blocks.
    pub fn set_mask(&self, mask: u64) -> io::Result<()> {
        // SAFETY: eight bytes of ours.
        unsafe { check(libc::ptrace(PTRACE_SETSIGMASK, self.pid, 8, &mask)).map(|_| ()) }
    }

    /// A signal has stopped the process that cannot be blocked, or must not be: it is kept for
    /// later. SIGTRAP by whatever but a step: somebody has sent it.
    fn keep(&self, signal: i32, kept: &Kept) {
        // SAFETY: plain data, filled by the kernel.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: our tracee, in a stop for a signal; our own variable.
        let known = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0, &mut info) } == 0;
        if known {
            kept.borrow_mut().push((signal, info));
        }
    }

    /// Sends what was kept. The process is still stopped, so it waits there.
    fn send(&self, kept: &Kept) {
        for (signal, info) in kept.borrow_mut().drain(..) {
            // SAFETY: our tracee, which has not been waited for. Who may not say what another has
            // said sends it in its own name.
            unsafe {
                let pid = self.pid;
                let call = libc::SYS_rt_tgsigqueueinfo;
                if libc::syscall(call, pid, pid, signal, &info) != 0 {
                    libc::syscall(libc::SYS_tgkill, pid, pid, signal);
                }
            }
        }
    }

    /// Makes one system call in the stopped process, whose RIP is at a `syscall` instruction.
    fn syscall(
        &self,
        kept: &Kept,
        base: &libc::user_regs_struct,
        nr: i64,
        a: [u64; 6],
    ) -> io::Result<u64> {
        let mut r = *base;
        r.rax = nr as u64;
        r.orig_rax = u64::MAX;
        (r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9) = (a[0], a[1], a[2], a[3], a[4], a[5]);
        self.set_registers(&r)?;
        loop {
            // SAFETY: steps the stopped process.
            unsafe { check(libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0))? };
            let mut status = 0;
            // SAFETY: waits for our own tracee.
            if unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } < 0 {
                return Err(io::Error::last_os_error());
            }
            if !libc::WIFSTOPPED(status) {
                // It was killed.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            let signal = libc::WSTOPSIG(status);
            if status >> 16 != 0 {
                // A group stop: the process is to stop, and will when it is let go.
                continue;
            }
            if signal != libc::SIGTRAP || self.was_sent()? {
                self.keep(signal, kept);
                continue;
            }
            let now = self.registers()?;
            if now.rip == base.rip + 2 {
                let v = now.rax;
                return if v > -4096i64 as u64 {
                    Err(io::Error::from_raw_os_error(-(v as i64) as i32))
                } else {
                    Ok(v)
                };
            }
            // Leaving `execve` counts as a step, and sets rax: not our instruction yet.
            self.set_registers(&r)?;
        }
    }

    /// Whether the signal that has stopped the process was sent by a process.
    fn was_sent(&self) -> io::Result<bool> {
        // SAFETY: plain data, filled by the kernel.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            check(libc::ptrace(
                libc::PTRACE_GETSIGINFO,
                self.pid,
                0,
                &mut info,
            ))?;
            Ok(info.si_code <= 0)
        }
    }

    /// Maps the engine and sets the registers to its entry. If that fails, the program is as it
    /// was, so that it can run on its own.
    ///
    /// Signals wait meanwhile: the kernel keeps those that can be blocked, we keep the others.
    pub fn inject(&self, image: &Image, previous: Previous) -> io::Result<()> {
        let mask = match previous.mask {
            Some(mask) => mask,
            None => self.mask()?,
        };
        // Not SIGTRAP: that is how a step ends, and blocking it would have the kernel forget what
        // the program does about it.
        self.set_mask(!(1 << (libc::SIGTRAP - 1)))?;
        let kept = Kept::default();
        let result = self.inject_masked(image, previous, &kept);
        // If these fail, the process is gone, and whoever lets it go will know.
        let _ = self.set_mask(mask);
        self.send(&kept);
        result
    }

    fn inject_masked(&self, image: &Image, previous: Previous, kept: &Kept) -> io::Result<()> {
        let start = self.registers()?;
        let saved = self.peek(start.rip)?;
        let result = self.inject_at(image, previous, &start, saved, kept);
        if result.is_err() {
            // If these fail too, the process is gone, and the error that we have says why.
            let _ = self.poke(start.rip, saved);
            let _ = self.set_registers(&libc::user_regs_struct {
                orig_rax: u64::MAX,
                ..start
            });
        }
        result
    }

    fn inject_at(
        &self,
        image: &Image,
        previous: Previous,
        start: &libc::user_regs_struct,
        saved: u64,
        kept: &Kept,
    ) -> io::Result<()> {
        self.poke(start.rip, saved & !0xffff | 0x050f)?; // syscall
        let sc = |nr: i64, a: [u64; 6]| self.syscall(kept, start, nr, a);
        let me = crate::members::own_number()
            .ok_or_else(|| io::Error::other("/proc does not tell our number"))?
            .0;
        let (engine_path, control_path) = match &image.handed {
            Some((engine, control)) => (engine.inside.clone(), control.inside.clone()),
            None => (
                format!("/proc/{me}/exe"),
                format!("/proc/{me}/fd/{}", image.control.as_raw_fd()),
            ),
        };
        let scratch = (start.rsp - 512) & !15;
        let mut saved_stack = [0u8; 64];
        self.read(scratch, &mut saved_stack)?;
        let open = |path: &str, flags: i32| -> io::Result<u64> {
            self.write(scratch, format!("{path}\0").as_bytes())?;
            let flags = (flags | libc::O_CLOEXEC) as u64;
            sc(
                libc::SYS_openat,
                [libc::AT_FDCWD as u64, scratch, flags, 0, 0, 0],
            )
        };
        let fixed = libc::MAP_FIXED_NOREPLACE as u64;
        let shared = libc::MAP_SHARED as u64 | fixed;
        let private = libc::MAP_PRIVATE as u64 | fixed;
        let anonymous = private | libc::MAP_ANONYMOUS as u64;
        let fd = open(&engine_path, libc::O_RDONLY)?;
        let loaded = image::BYTES.0.len() as u64;
        sc(
            libc::SYS_mmap,
            [ENGINE_BASE, loaded, 7, private, fd, image.offset],
        )?;
        sc(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        if image::MEMORY > loaded {
            sc(
                libc::SYS_mmap,
                [
                    ENGINE_BASE + loaded,
                    image::MEMORY - loaded,
                    3,
                    anonymous,
                    u64::MAX,
                    0,
                ],
            )?;
        }
        let fd = open(&control_path, libc::O_RDWR)?;
        sc(
            libc::SYS_mmap,
            [CONTROL_BASE, CONTROL_LEN, 3, shared, fd, 0],
        )?;
        sc(
            libc::SYS_mmap,
            [RING_BASE, RING_LEN, 3, shared, fd, CONTROL_LEN],
        )?;
        sc(
            libc::SYS_mmap,
            [RING_BASE + RING_LEN, RING_LEN, 3, shared, fd, CONTROL_LEN],
        )?;
        sc(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        let anonymous = private | libc::MAP_ANONYMOUS as u64;
        sc(
            libc::SYS_mmap,
            [FIRST_STACK, FIRST_STACK_LEN, 3, anonymous, u64::MAX, 0],
        )?;
        self.write(scratch, &saved_stack)?;
        self.poke(start.rip, saved)?;
        let launch = Launch {
            gpr: [
                start.rax, start.rcx, start.rdx, start.rbx, start.rsp, start.rbp, start.rsi,
                start.rdi, start.r8, start.r9, start.r10, start.r11, start.r12, start.r13,
                start.r14, start.r15,
            ],
            rip: start.rip,
            rflags: start.eflags,
            previous_process: previous.process,
            ignored_sync: previous.ignored_sync,
            blocked_sync: previous.blocked_sync,
            shown_pid: previous.shown_pid,
        };
        let at = FIRST_STACK + FIRST_STACK_LEN - 1024;
        // SAFETY: the bytes of a plain structure.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                &launch as *const Launch as *const u8,
                std::mem::size_of::<Launch>(),
            )
        };
        self.write(at, bytes)?;
        let mut r = *start;
        r.rip = ENGINE_BASE + image::ENTRY;
        r.rsp = at;
        r.orig_rax = u64::MAX;
        self.set_registers(&r)
    }

    /// Lets the process go; `signal` is delivered to it if not 0.
    pub fn detach(&self, signal: i32) -> io::Result<()> {
        // SAFETY: ends our tracing.
        unsafe { check(libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, signal)).map(|_| ()) }
    }

    /// RIP, to recognise where a trap came from.
    pub fn rip(&self) -> io::Result<u64> {
        Ok(self.registers()?.rip)
    }
}
