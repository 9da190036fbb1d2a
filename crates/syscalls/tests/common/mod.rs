//! What the tests that make real system calls share: doubly mapped memory as in a target.

use brownout_syscalls::{Memory, Prepared, Run, Translate, Unsupported, finish, prepare};
use std::arch::asm;

pub const PAGE: u64 = 4096;

/// Makes a system call.
pub fn syscall(nr: u64, args: &[u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: every test passes only addresses of memory that it owns (or bad ones, to see EFAULT),
    // and makes no call that changes the Rust runtime's own mappings or descriptors.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as i64 => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// The same with fewer arguments; fails the test on an error.
#[track_caller]
pub fn must(nr: u64, args: &[u64]) -> u64 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let result = syscall(nr, &all);
    assert!(result >= 0, "{}: {result}", brownout_syscalls::name(nr));
    result as u64
}

const PROT_NONE: u64 = 0;
const PROT_READ: u64 = 1;
const PROT_RW: u64 = 3;

/// How the program's view of PM is protected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View {
    /// Stores are tracked.
    ReadOnly,
    /// Loads too.
    Inaccessible,
}

/// PM of some pages between ordinary pages, and its writable alias elsewhere.
pub struct Target {
    base: u64,
    pub pm: u64,
    pub pm_len: u64,
    alias: u64,
    pub after: u64,
}

const BEFORE: u64 = 4 * PAGE;
const AFTER: u64 = 4 * PAGE;

impl Target {
    pub fn new(pages: u64, view: View) -> Target {
        let pm_len = pages * PAGE;
        let fd = must(319, &[c"pm".as_ptr() as u64, 0]);
        must(77, &[fd, pm_len]);
        let (private, shared, fixed) = (0x22, 0x01, 0x10);
        let base = must(
            9,
            &[0, BEFORE + pm_len + AFTER, PROT_RW, private, u64::MAX, 0],
        );
        let prot = if view == View::ReadOnly {
            PROT_READ
        } else {
            PROT_NONE
        };
        let pm = must(9, &[base + BEFORE, pm_len, prot, shared | fixed, fd, 0]);
        // An alias between inaccessible pages: an overrun faults instead of hitting something.
        let room = must(9, &[0, pm_len + 2 * PAGE, PROT_NONE, private, u64::MAX, 0]);
        let alias = must(9, &[room + PAGE, pm_len, PROT_RW, shared | fixed, fd, 0]);
        must(3, &[fd]);
        Target {
            base,
            pm,
            pm_len,
            alias,
            after: pm + pm_len,
        }
    }

    pub fn is_pm(&self, addr: u64) -> bool {
        (self.pm..self.after).contains(&addr)
    }

    fn real(&self, addr: u64) -> u64 {
        self.alias_of(addr).unwrap_or(addr)
    }

    /// Stores as the program would.
    pub fn poke(&self, addr: u64, bytes: &[u8]) {
        for (at, byte) in (addr..).zip(bytes) {
            // SAFETY: tests poke inside the target only, which is mapped until it is dropped.
            unsafe { (self.real(at) as *mut u8).write_volatile(*byte) }
        }
    }

    pub fn poke64(&self, addr: u64, value: u64) {
        self.poke(addr, &value.to_le_bytes());
    }

    /// Loads as the program would.
    pub fn peek(&self, addr: u64, len: u64) -> Vec<u8> {
        // SAFETY: as in `poke`.
        (addr..addr + len)
            .map(|at| unsafe { (self.real(at) as *const u8).read_volatile() })
            .collect()
    }

    pub fn peek32(&self, addr: u64) -> u32 {
        u32::from_le_bytes(self.peek(addr, 4).try_into().expect("four"))
    }

    pub fn peek64(&self, addr: u64) -> u64 {
        u64::from_le_bytes(self.peek(addr, 8).try_into().expect("eight"))
    }

    /// Makes a call as the engine does. Returns its result and the reported ranges.
    pub fn call(&self, nr: u64, args: &[u64; 6]) -> (i64, Vec<(u64, u64)>) {
        let mut prepared = Prepared::new();
        self.call_with(&mut prepared, nr, args).expect("supported")
    }

    #[allow(
        clippy::type_complexity,
        reason = "a pair of the two outcomes, named in `call`"
    )]
    pub fn call_with(
        &self,
        prepared: &mut Prepared,
        nr: u64,
        args: &[u64; 6],
    ) -> Result<(i64, Vec<(u64, u64)>), Unsupported> {
        let mut args = *args;
        prepare(nr, &mut args, self, self, prepared)?;
        let result = syscall(nr, &args);
        let mut written = Vec::new();
        finish(prepared, result, self, self, &mut |addr, len| {
            written.push((addr, len))
        });
        Ok((result, written))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        must(11, &[self.base, BEFORE + self.pm_len + AFTER]);
        must(11, &[self.alias - PAGE, self.pm_len + 2 * PAGE]);
    }
}

impl Translate for Target {
    fn alias_of(&self, addr: u64) -> Option<u64> {
        self.is_pm(addr).then(|| addr - self.pm + self.alias)
    }

    fn run(&self, addr: u64, len: u64) -> Run {
        let border = [self.pm, self.after]
            .into_iter()
            .find(|border| addr < *border);
        let len = border.map_or(len, |border| len.min(border - addr));
        Run {
            alias: self.alias_of(addr),
            len,
        }
    }

    fn program_of(&self, alias: u64) -> Option<u64> {
        (self.alias..self.alias + self.pm_len)
            .contains(&alias)
            .then(|| alias - self.alias + self.pm)
    }

    fn is_self(&self, pid: i32) -> bool {
        pid as u32 == std::process::id()
    }
}

/// Copies through the kernel, which answers for bad addresses.
impl Memory for Target {
    fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        copy(310, addr, to.as_mut_ptr() as u64, to.len())
    }

    fn write(&self, addr: u64, from: &[u8]) -> bool {
        copy(311, addr, from.as_ptr() as u64, from.len())
    }
}

fn copy(nr: u64, remote: u64, local: u64, len: usize) -> bool {
    let (remote, local) = ([remote, len as u64], [local, len as u64]);
    let pid = std::process::id().into();
    let args = [pid, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0];
    syscall(nr, &args) == len as i64
}

/// Sorted, without overlaps and neighbours.
pub fn merged(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = ranges.into_iter().filter(|range| range.1 > 0).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (addr, len) in ranges {
        match merged.last_mut() {
            Some(last) if addr <= last.0 + last.1 => last.1 = last.1.max(addr + len - last.0),
            _ => merged.push((addr, len)),
        }
    }
    merged
}
