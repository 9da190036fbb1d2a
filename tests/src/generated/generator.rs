//! Scripts from seeds.
//!
//! Programs are made of the patterns in which crash consistency goes wrong (data and its flag, a
//! line stored to twice, a non-temporal store and its flag, a wide store that may tear, a store
//! across lines, a counter), with each write-back and fence left out now and then. Recoveries read
//! what the program stored, branch on it, follow it, and write themselves.
//!
//! The places are those where a tool may go wrong: the beginning of a page, the border between two
//! pages, the end of the pool. Values are small ones, on which recoveries branch, or have a
//! different pattern in each store.

use brownout_model::{Config, FlushKind, LINE_BYTES};

use crate::cpu;

use super::brute_force::Memories;
use super::script::{Copying, Op, POOL_BYTES, Script, Step, low_bytes, number};
use brownout_random::Random;

/// Pieces (after splitting at words) of all stores of a program to one line: the reference tries
/// all sets of them.
const PIECES_MAX: usize = 9;

/// The script of a seed.
pub fn generate(seed: u64) -> Script {
    let mut random = Random::new(seed);
    // Drafts with too many memories, or hardly any, are thrown away.
    loop {
        let script = Generator::new(&mut random).script(seed);
        if is_feasible(&script) {
            return script;
        }
    }
}

fn is_feasible(script: &Script) -> bool {
    let mut pieces = vec![0; POOL_BYTES / LINE_BYTES as usize];
    for step in &script.program {
        for word in stored_words(&step.op) {
            pieces[(word * 8 / LINE_BYTES) as usize] += 1;
        }
    }
    pieces.into_iter().max() <= Some(PIECES_MAX)
        && Memories::of(script, Config::default()).is_ok_and(|memories| memories.images.len() > 4)
}

/// The 8-byte words that an operation stores to.
fn stored_words(op: &Op) -> std::ops::Range<u64> {
    match op {
        Op::Store { addr, size, .. }
        | Op::VectorStore { addr, size, .. }
        | Op::NtStore { addr, size, .. }
        | Op::FetchAdd { addr, size, .. } => addr / 8..(addr + size).div_ceil(8),
        _ => 0..0,
    }
}

struct Generator<'r> {
    random: &'r mut Random,
    /// First line in use.
    line: u64,
    /// How many lines are in use.
    lines: u64,
    /// Whether there is a second thread, and whether it is its turn.
    threaded: bool,
    second: bool,
    /// Stores so far: where, how many bytes, what (of the first word).
    stored: Vec<(u64, u64, u64)>,
    program: Vec<Step>,
    recovery: Vec<Op>,
    /// The last register that was loaded.
    reg: usize,
}

impl<'r> Generator<'r> {
    fn new(random: &'r mut Random) -> Self {
        let lines = 1 + random.below(4);
        let pool_lines = POOL_BYTES as u64 / LINE_BYTES;
        let page_lines = pool_lines / 2;
        let line = match random.below(4) {
            0 | 1 => 0,
            2 => page_lines - lines.div_ceil(2),
            _ => pool_lines - lines,
        };
        let threaded = random.below(5) == 0;
        Generator {
            random,
            line,
            lines,
            threaded,
            second: false,
            stored: Vec::new(),
            program: Vec::new(),
            recovery: Vec::new(),
            reg: 0,
        }
    }

    fn script(mut self, seed: u64) -> Script {
        let initial = self.percent(40).then(|| self.initial());
        let stores = 3 + self.random.below(10) as usize;
        while self.stored.len() < stores {
            self.pattern();
        }
        let reads = 3 + self.random.below(6);
        for _ in 0..reads {
            self.recovery_pattern();
        }
        self.ending();
        Script {
            seed,
            initial,
            program: self.program,
            recovery: self.recovery,
        }
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.random.below(100) < chance
    }

    fn initial(&mut self) -> Vec<u8> {
        let mut image = vec![0; POOL_BYTES];
        let (from, to) = self.bounds();
        for word in image[from as usize..to as usize].chunks_mut(8) {
            // Zero as often as not: recoveries branch on it.
            if self.random.below(2) == 0 {
                word.fill(0xe0 | self.random.below(16) as u8);
            }
        }
        image
    }

    /// The bytes in use.
    fn bounds(&self) -> (u64, u64) {
        let from = self.line * LINE_BYTES;
        (from, from + self.lines * LINE_BYTES)
    }

    /// Anywhere in the bytes in use, at a multiple of `align`.
    fn anywhere(&mut self, size: u64, align: u64) -> u64 {
        let (from, to) = self.bounds();
        from + self.random.below((to - from - size) / align + 1) * align
    }

    /// An aligned word; few of them, so that stores meet.
    fn word(&mut self) -> u64 {
        let line = self.line + self.random.below(self.lines);
        line * LINE_BYTES + [0, 8, 24, 56][self.random.below(4) as usize]
    }

    fn value(&mut self) -> u64 {
        if self.percent(40) {
            1 + self.random.below(3)
        } else {
            // Each store has bytes of its own, so that tearing shows.
            let byte = 0x10 + self.stored.len() as u64 % 0xc0;
            byte * 0x0101_0101_0101_0101
        }
    }

    // ---- the program

    fn push(&mut self, op: Op) {
        if self.threaded && self.percent(25) {
            self.second = !self.second;
        }
        let second_thread = self.second;
        self.program.push(Step { second_thread, op });
    }

    fn store(&mut self, op: Op) {
        let (Op::Store { addr, size, value }
        | Op::VectorStore { addr, size, value }
        | Op::NtStore { addr, size, value }
        | Op::FetchAdd {
            addr, size, value, ..
        }) = op
        else {
            unreachable!("only stores come here");
        };
        self.stored.push((addr, size, value));
        self.push(op);
    }

    fn plain(&mut self, addr: u64, size: u64) {
        let value = masked(self.value(), size);
        self.store(Op::Store { addr, size, value });
    }

    /// A write-back of all lines of a range, usually.
    fn flush(&mut self, addr: u64, size: u64, chance: u64) {
        if !self.percent(chance) {
            return;
        }
        let kind = match self.random.below(5) {
            0 => FlushKind::Clflush,
            1 | 2 => FlushKind::Clflushopt,
            _ => FlushKind::Clwb,
        };
        let kind = executable(kind);
        // One line of two is forgotten at times.
        let whole = self.percent(80);
        let first = addr / LINE_BYTES;
        let last = (addr + size - 1) / LINE_BYTES;
        for line in first..=if whole { last } else { first } {
            let addr = line * LINE_BYTES + self.random.below(LINE_BYTES);
            self.push(Op::Flush { kind, addr });
        }
    }

    /// Something that completes write-backs, usually.
    fn fence(&mut self, chance: u64) {
        if !self.percent(chance) {
            return;
        }
        let op = match self.random.below(12) {
            0..8 => Op::Sfence,
            8 => Op::Mfence,
            9 | 10 => Op::Locked,
            _ => Op::Msync,
        };
        self.push(op);
    }

    fn pattern(&mut self) {
        match self.random.below(9) {
            0 | 1 => {
                // Data, then the flag that makes it valid.
                let (data, flag) = (self.word(), self.word());
                self.plain(data, 8);
                self.flush(data, 8, 75);
                self.fence(75);
                self.plain(flag, 1);
                self.flush(flag, 1, 75);
                self.fence(75);
                self.outside(50);
            }
            2 => {
                // One line, stored to again and again.
                let line = self.word() / LINE_BYTES * LINE_BYTES;
                for _ in 0..2 + self.random.below(2) {
                    let size = 1 << self.random.below(4);
                    let addr = line + self.random.below(LINE_BYTES / 8) * 8;
                    self.plain(addr, size);
                    self.flush(addr, size, 25);
                    self.fence(25);
                }
                self.flush(line, 8, 60);
                self.fence(60);
            }
            3 => {
                // A non-temporal store, then its flag.
                let (data, flag) = (self.word(), self.word());
                self.non_temporal(data);
                self.fence(60);
                self.plain(flag, 4);
                self.flush(flag, 4, 60);
                self.fence(60);
            }
            4 => {
                // A wide store that may tear.
                let size = 16 << self.random.below(2);
                let align = [1, 8, 8, 16][self.random.below(4) as usize];
                let addr = self.anywhere(size, align);
                let value = self.value();
                self.store(Op::VectorStore { addr, size, value });
                self.flush(addr, size, 60);
                self.fence(60);
            }
            5 => {
                // A store at any place: across words, and across lines.
                let size = 2 << self.random.below(3);
                let (from, to) = self.bounds();
                let border = from + LINE_BYTES * (1 + self.random.below(self.lines));
                let addr = if border < to && self.percent(60) {
                    border - 1 - self.random.below(size - 1)
                } else {
                    self.anywhere(size, 1)
                };
                if size >= 4 && self.percent(25) {
                    let value = masked(self.value(), size);
                    self.store(Op::NtStore { addr, size, value });
                } else {
                    self.plain(addr, size);
                }
                self.flush(addr, size, 60);
                self.fence(60);
            }
            6 => {
                // A counter, which is a fence besides.
                let size = 4 << self.random.below(2);
                let addr = self.word();
                let value = 1 + self.random.below(3);
                let reg = 0;
                self.store(Op::FetchAdd {
                    reg,
                    addr,
                    size,
                    value,
                });
                self.flush(addr, size, 60);
                self.outside(30);
            }
            7 => {
                // Written back before it is stored to.
                let addr = self.word();
                self.flush(addr, 8, 100);
                self.plain(addr, 8);
                self.fence(80);
            }
            _ => {
                let addr = self.word();
                self.plain(addr, 8);
                self.outside(30);
            }
        }
    }

    fn non_temporal(&mut self, addr: u64) {
        let size = 4 << self.random.below(2);
        let value = masked(self.value(), size);
        self.store(Op::NtStore { addr, size, value });
    }

    /// Something that the world sees.
    fn outside(&mut self, chance: u64) {
        if self.percent(chance) {
            let op = if self.percent(80) { Op::Ack } else { Op::Input };
            self.push(op);
        }
    }

    // ---- the recovery

    /// Where a store of the program went, or near it, and how much to read there.
    fn target(&mut self) -> (u64, u64) {
        let (addr, stored, _) = self.stored[self.random.below(self.stored.len() as u64) as usize];
        let size = if self.percent(60) {
            stored.min(8)
        } else {
            1 << self.random.below(4)
        };
        // Within a wide store, or a little off.
        let addr = match self.random.below(4) {
            0 => addr + self.random.below(stored),
            1 if stored > 8 => addr + 8,
            _ => addr,
        };
        (self.clamped(addr, size), size)
    }

    fn clamped(&self, addr: u64, size: u64) -> u64 {
        addr.min(POOL_BYTES as u64 - size)
    }

    fn load(&mut self) {
        let (addr, size) = self.target();
        let reg = self.random.below(4) as usize;
        self.reg = reg;
        self.recovery.push(Op::Load { reg, addr, size });
    }

    /// A value that the last register may well hold.
    fn expected(&mut self) -> u64 {
        if self.percent(50) {
            return 0;
        }
        let loaded = self.recovery.iter().rev().find_map(|op| match op {
            Op::Load { addr, size, .. } => Some((*addr, *size)),
            _ => None,
        });
        let Some((addr, size)) = loaded else {
            return 1;
        };
        let candidates: Vec<u64> = self
            .stored
            .iter()
            .filter(|(at, _, _)| *at == addr)
            .map(|(_, _, value)| masked(*value, size))
            .collect();
        match candidates.len() as u64 {
            0 => 1,
            count => candidates[self.random.below(count) as usize],
        }
    }

    fn skip(&mut self, count: usize) {
        let value = self.expected();
        let op = Op::Skip {
            equal: self.percent(50),
            reg: self.reg,
            value,
            count,
        };
        self.recovery.push(op);
    }

    fn recovery_pattern(&mut self) {
        match self.random.below(12) {
            0..4 => self.load(),
            4 | 5 => {
                // Read the data only if the flag says so.
                self.load();
                let count = 1 + self.random.below(2) as usize;
                self.skip(count);
                for _ in 0..count {
                    self.load();
                }
            }
            6 => {
                // Follow what was read. All addresses that may come of it are in the pool.
                let mask = [0x07, 0x38, 0x3f, 0x70][self.random.below(4) as usize];
                let (addr, size) = self.target();
                let (from, reg) = (self.reg, self.random.below(4) as usize);
                let addr = self.clamped(addr, size + mask);
                self.reg = reg;
                self.recovery.push(Op::LoadIndexed {
                    reg,
                    addr,
                    size,
                    from,
                    mask,
                });
            }
            7 => {
                let size = 16 << self.random.below(2);
                let addr = self.target().0;
                let (reg, addr) = (self.reg, self.clamped(addr, size));
                self.recovery.push(Op::VectorLoad { reg, addr, size });
            }
            8 => {
                let len = 1 + self.random.below(40);
                let addr = self.target().0;
                let (reg, addr) = (self.reg, self.clamped(addr, len));
                let how = [Copying::RepMovsb, Copying::Pipe, Copying::Pread]
                    [self.random.below(3) as usize];
                self.recovery.push(Op::Copy {
                    how,
                    reg,
                    addr,
                    len,
                });
            }
            9 => self.repair(),
            10 => {
                // Count how often recovery ran, in a word of the program.
                let size = 4 << self.random.below(2);
                let addr = self.word();
                let (reg, value) = (self.reg, 1);
                self.recovery.push(Op::FetchAdd {
                    reg,
                    addr,
                    size,
                    value,
                });
            }
            _ => self.recovery.push(Op::Print),
        }
    }

    /// Recovery writes, and reads it or what lies around it again.
    fn repair(&mut self) {
        let (addr, size) = self.target();
        let op = match self.random.below(4) {
            0 => Op::StoreRegister {
                addr,
                size,
                reg: self.reg,
            },
            1 if size >= 4 => Op::NtStore {
                addr,
                size,
                value: masked(0x7777_7777_7777_7777, size),
            },
            _ => Op::Store {
                addr,
                size,
                value: masked(0x7777_7777_7777_7777, size),
            },
        };
        if self.percent(40) {
            self.load();
            self.skip(1);
        }
        self.recovery.push(op);
        if self.percent(60) {
            let kind = FlushKind::Clflush;
            self.recovery.push(Op::Flush { kind, addr });
            self.recovery.push(Op::Sfence);
        }
        if self.percent(70) {
            let reg = self.reg;
            let word = self.clamped(addr / 8 * 8, 8);
            self.recovery.push(Op::Load {
                reg,
                addr: word,
                size: 8,
            });
        }
    }

    fn ending(&mut self) {
        if self.percent(90) {
            self.recovery.push(Op::Print);
        }
        // A state that recovery takes for impossible.
        if self.percent(60) {
            self.load();
            self.skip(1);
            let op = match self.random.below(4) {
                0 => Op::Abort,
                1 => Op::NullLoad,
                2 => Op::Exit(1),
                _ => Op::ExitRegister(self.reg),
            };
            self.recovery.push(op);
        }
        self.load();
        self.recovery.push(Op::Print);
        let op = match self.random.below(4) {
            0 => Op::ExitRegister(self.reg),
            _ => Op::Exit(0),
        };
        self.recovery.push(op);
    }
}

/// What is left of a value in `size` bytes; of a wide store, its first word.
fn masked(value: u64, size: u64) -> u64 {
    number(&low_bytes(value, size.min(8)))
}

/// The write-back itself, or the nearest that this processor has.
fn executable(kind: FlushKind) -> FlushKind {
    match kind {
        FlushKind::Clwb if !cpu::has("clwb") => executable(FlushKind::Clflushopt),
        FlushKind::Clflushopt if !cpu::has("clflushopt") => FlushKind::Clflush,
        kind => kind,
    }
}
