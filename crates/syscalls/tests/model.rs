//! Random vectors and messages over random PM layouts, against a model.
//!
//! A small kernel made of plain code runs each call twice: once on memory without PM, and once
//! through `prepare` and `finish` on memory where the program's addresses of PM fault. Both must
//! end with the same result and the same memory, and what was reported must be what the first one
//! wrote, as far as it is PM. The seed of a failing run is in its message.

use brownout_random::Random;
use brownout_syscalls::{Memory, Prepared, Translate, finish, prepare};
use std::cell::RefCell;
use std::collections::BTreeSet;

const PAGE: u64 = 4096;
const PAGES: u64 = 24;
/// The program's memory. All of this is far from where real memory is, where copies live.
const BASE: u64 = 0x10_0000;
/// Aliases: one window a PM region, so that distances differ.
const ALIAS: u64 = 0x4000_0000;
const WINDOW: u64 = 0x100_0000;

const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const READV: u64 = 19;
const WRITEV: u64 = 20;
const RECVMSG: u64 = 47;
const RECVMMSG: u64 = 299;

/// Which window each page belongs to, if it is PM, and what is in memory.
#[derive(Clone)]
struct World {
    windows: Vec<Option<u64>>,
    /// Pages that are not there.
    holes: BTreeSet<u64>,
    bytes: RefCell<Vec<u8>>,
}

impl World {
    fn page(&self, addr: u64) -> Option<u64> {
        let page = addr.checked_sub(BASE)? / PAGE;
        (page < PAGES).then_some(page)
    }

    fn window(&self, addr: u64) -> Option<u64> {
        self.windows[self.page(addr)? as usize]
    }

    /// The index of the byte that the kernel finds at an address, none if it faults there.
    fn resolve(&self, addr: u64) -> Option<usize> {
        let program = if addr >= ALIAS {
            let program = BASE + (addr - ALIAS) % WINDOW;
            (self.window(program)? == (addr - ALIAS) / WINDOW).then_some(program)?
        } else {
            self.window(addr).is_none().then_some(addr)?
        };
        let page = self.page(program)?;
        (!self.holes.contains(&page)).then_some((program - BASE) as usize)
    }
}

impl Translate for World {
    fn alias_of(&self, addr: u64) -> Option<u64> {
        self.window(addr)
            .map(|window| ALIAS + window * WINDOW + (addr - BASE))
    }
}

impl Memory for World {
    fn read(&self, addr: u64, to: &mut [u8]) -> bool {
        (addr..).zip(to).all(|(addr, to)| match self.resolve(addr) {
            Some(index) => {
                *to = self.bytes.borrow()[index];
                true
            }
            None => false,
        })
    }

    fn write(&self, addr: u64, from: &[u8]) -> bool {
        (addr..)
            .zip(from)
            .all(|(addr, from)| match self.resolve(addr) {
                Some(index) => {
                    self.bytes.borrow_mut()[index] = *from;
                    true
                }
                None => false,
            })
    }
}

/// Real addresses, where `prepare` puts its copies, are above all that the model uses.
fn is_copy(addr: u64) -> bool {
    addr >= 1 << 36
}

/// The model kernel. `written` gets every address that it writes.
struct Kernel<'a> {
    world: &'a World,
    written: Vec<u64>,
    /// It faulted in a message that was not the first, which the result does not tell.
    lost: bool,
}

impl Kernel<'_> {
    fn get(&self, addr: u64) -> Result<u8, i64> {
        if is_copy(addr) {
            // SAFETY: only addresses that `prepare` made up are that high, and it promises that
            // they are valid until `finish`.
            return Ok(unsafe { (addr as *const u8).read_volatile() });
        }
        let mut byte = [0];
        if self.world.read(addr, &mut byte) {
            Ok(byte[0])
        } else {
            Err(EFAULT)
        }
    }

    fn put(&mut self, addr: u64, byte: u8) -> Result<(), i64> {
        if is_copy(addr) {
            // SAFETY: as in `get`.
            unsafe { (addr as *mut u8).write_volatile(byte) }
            return Ok(());
        }
        if !self.world.write(addr, &[byte]) {
            return Err(EFAULT);
        }
        self.written.push(addr);
        Ok(())
    }

    fn number(&self, addr: u64, width: u64) -> Result<u64, i64> {
        (0..width).rev().try_fold(0, |value, at| {
            Ok(value << 8 | u64::from(self.get(addr + at)?))
        })
    }

    fn put_number(&mut self, addr: u64, width: u64, value: u64) -> Result<(), i64> {
        (0..width).try_for_each(|at| self.put(addr + at, (value >> (8 * at)) as u8))
    }

    fn iov(&self, addr: u64, count: u64) -> Result<Vec<(u64, u64)>, i64> {
        if count > 1024 {
            return Err(EINVAL);
        }
        (0..count)
            .map(|n| {
                Ok((
                    self.number(addr + 16 * n, 8)?,
                    self.number(addr + 16 * n + 8, 8)?,
                ))
            })
            .collect()
    }

    /// Fills buffers with 1, 2, 3, …; stops at the first fault like a real read.
    fn scatter(&mut self, iov: &[(u64, u64)], len: u64) -> Result<u64, i64> {
        let mut done = 0;
        for &(base, size) in iov {
            for at in 0..size {
                if done == len {
                    return Ok(done);
                }
                if let Err(error) = self.put(base + at, (done % 127) as u8 + 1) {
                    return if done == 0 { Err(error) } else { Ok(done) };
                }
                done += 1;
            }
        }
        Ok(done)
    }

    fn gather(&self, iov: &[(u64, u64)]) -> Result<u64, i64> {
        let mut sum = 0u64;
        for &(base, size) in iov {
            for at in 0..size {
                sum = sum
                    .wrapping_mul(31)
                    .wrapping_add(self.get(base + at)?.into());
            }
        }
        Ok(sum & 0xffff_ffff)
    }

    /// A message of `len` bytes with a name of 16 and control data of 24.
    fn receive(&mut self, msg: u64, len: u64) -> Result<u64, i64> {
        // The kernel copies the whole structure, padding included.
        (0..56).try_for_each(|at| self.get(msg + at).map(|_| ()))?;
        let name = self.number(msg, 8)?;
        let name_len = self.number(msg + 8, 4)?;
        let iov = self.iov(self.number(msg + 16, 8)?, self.number(msg + 24, 8)?)?;
        let control = self.number(msg + 32, 8)?;
        let control_len = self.number(msg + 40, 8)?;
        let done = self.scatter(&iov, len)?;
        if name != 0 {
            (0..name_len.min(16)).try_for_each(|at| self.put(name + at, 0xee))?;
            self.put_number(msg + 8, 4, 16)?;
        }
        let used = if control == 0 { 0 } else { control_len.min(24) };
        (0..used).try_for_each(|at| self.put(control + at, 0xcc))?;
        self.put_number(msg + 40, 8, used)?;
        self.put_number(msg + 48, 4, 0x20)?;
        Ok(done)
    }

    fn call(&mut self, nr: u64, args: &[u64; 6], available: u64) -> i64 {
        let result = match nr {
            READV => self
                .iov(args[1], args[2])
                .and_then(|iov| self.scatter(&iov, available)),
            WRITEV => self.iov(args[1], args[2]).and_then(|iov| self.gather(&iov)),
            RECVMSG => self.receive(args[1], available),
            RECVMMSG => self.receive_many(args[1], args[2], available),
            _ => unreachable!("not modelled"),
        };
        result.map_or_else(|error| error, |result| result as i64)
    }

    fn receive_many(&mut self, msgs: u64, count: u64, available: u64) -> Result<u64, i64> {
        // There is one message or there are two.
        let count = count.min(1 + available % 2);
        for n in 0..count {
            let msg = msgs + 64 * n;
            // A real kernel notices a missing `msg_len` only after it has delivered the message.
            let received = self
                .number(msg + 56, 4)
                .and_then(|_| self.receive(msg, available))
                .and_then(|len| self.put_number(msg + 56, 4, len));
            if let Err(error) = received {
                self.lost = n > 0;
                return if n == 0 { Err(error) } else { Ok(n) };
            }
        }
        Ok(count)
    }
}

/// A random world, call, and number of bytes that the call finds.
fn scene(random: &mut Random) -> (World, u64, [u64; 6], u64) {
    let mut windows = Vec::new();
    while windows.len() < PAGES as usize {
        let window = match random.below(2) {
            0 => None,
            _ => Some(windows.len() as u64),
        };
        let run = 1 + random.below(4) as usize;
        windows.extend(std::iter::repeat_n(window, run));
    }
    windows.truncate(PAGES as usize);
    let holes = match random.below(4) {
        0 => BTreeSet::from([random.below(PAGES)]),
        _ => BTreeSet::new(),
    };
    let bytes = (0..PAGES * PAGE)
        .map(|_| 0x80 | random.bits() as u8)
        .collect();
    let world = World {
        windows,
        holes,
        bytes: RefCell::new(bytes),
    };

    // Objects do not overlap: each has pages of its own, and may lie across their common border.
    let mut page = 0;
    let mut place = |random: &mut Random, len: u64| {
        assert!(len < PAGE && page + 2 <= PAGES);
        let border = BASE + (page + 1) * PAGE;
        page += 2;
        border - random.below(PAGE.min(2 * len + 2)).min(PAGE)
    };
    let poke = |addr: u64, words: &[u64]| {
        // Set-up is not the program's business with holes: write the backing store.
        for (n, byte) in words.iter().flat_map(|word| word.to_le_bytes()).enumerate() {
            world.bytes.borrow_mut()[(addr - BASE) as usize + n] = byte;
        }
    };
    let mut vector = |random: &mut Random, count: u64| {
        let words: Vec<u64> = (0..count)
            .flat_map(|_| {
                let len = random.below(200);
                [place(random, len.max(1)), len]
            })
            .collect();
        let addr = place(random, 16 * count);
        poke(addr, &words);
        addr
    };
    let available = random.below(400);
    let nr = [READV, WRITEV, RECVMSG, RECVMMSG][random.below(4) as usize];
    let mut args = [3, 0, 0, 0, 0, 0];
    match nr {
        READV | WRITEV => {
            args[2] = 1 + random.below(6);
            args[1] = vector(random, args[2]);
        }
        _ => {
            let count = if nr == RECVMSG { 1 } else { 2 };
            let mut words = Vec::new();
            let mut controls = Vec::new();
            for _ in 0..count {
                let buffers = 1 + random.below(2);
                let iov = vector(random, buffers);
                words.push([
                    0,
                    random.below(30),
                    iov,
                    buffers,
                    0,
                    64 * random.below(2),
                    7,
                    9,
                ]);
            }
            for message in &mut words {
                if random.below(3) > 0 {
                    message[0] = place(random, 40);
                }
                if random.below(3) > 0 {
                    message[4] = place(random, 64);
                    controls.push(message[4]);
                }
            }
            let size = if nr == RECVMSG { 7 } else { 8 };
            let words: Vec<u64> = words
                .iter()
                .flat_map(|message| message[..size].to_vec())
                .collect();
            // Aligned, so that no border lies between the last field and the padding after it.
            args[1] = place(random, words.len() as u64 * 8) & !7;
            args[2] = count;
            poke(args[1], &words);
        }
    }
    (world, nr, args, available)
}

#[test]
fn tracked_calls_behave_like_untracked_ones() {
    let mut kinds = [0u32; 4]; // faults, calls with reports, copies, idle
    let mut excused = 0;
    let mut prepared = Prepared::new();
    for seed in 1..=20_000u64 {
        let mut random = Random::new(seed);
        let (tracked, nr, args, available) = scene(&mut random);
        let plain = World {
            windows: vec![None; PAGES as usize],
            ..tracked.clone()
        };

        let mut kernel = Kernel {
            world: &plain,
            written: Vec::new(),
            lost: false,
        };
        let expected = kernel.call(nr, &args, available);
        let lost = kernel.lost;
        let expected_written: BTreeSet<u64> = kernel
            .written
            .into_iter()
            .filter(|addr| tracked.alias_of(*addr).is_some())
            .collect();

        let mut rewritten = args;
        prepare(nr, &mut rewritten, &tracked, &tracked, &mut prepared).expect("supported");
        let mut kernel = Kernel {
            world: &tracked,
            written: Vec::new(),
            lost: false,
        };
        let result = kernel.call(nr, &rewritten, available);
        let mut reported = BTreeSet::new();
        finish(&prepared, result, &tracked, &tracked, &mut |addr, len| {
            reported.extend(addr..addr + len);
        });

        if lost {
            excused += 1;
            continue; // the documented exception: what it wrote of that message is lost
        }
        if expected == EFAULT && result >= 0 {
            // The documented exception: a copy stood in for a name or control buffer with a hole.
            assert!(
                nr != READV && nr != WRITEV && !tracked.holes.is_empty(),
                "seed {seed}"
            );
            excused += 1;
            continue;
        }
        assert_eq!(result, expected, "result, seed {seed}, call {nr}");
        assert!(
            *tracked.bytes.borrow() == *plain.bytes.borrow(),
            "memory differs, seed {seed}, call {nr}, result {result}"
        );
        if result == EFAULT {
            assert!(
                reported.is_superset(&expected_written),
                "seed {seed}, call {nr}"
            );
            kinds[0] += 1;
        } else {
            assert_eq!(
                reported, expected_written,
                "reports, seed {seed}, call {nr}"
            );
        }
        kinds[1] += u32::from(!reported.is_empty());
        kinds[2] += u32::from(rewritten.iter().any(|arg| is_copy(*arg)));
        kinds[3] += u32::from(rewritten == args);
    }
    assert!(
        kinds.iter().all(|kind| *kind > 100),
        "the scenes are one-sided: {kinds:?}"
    );
    assert!(
        excused < 200,
        "{excused} of 20000 runs fell under an exception"
    );
}
