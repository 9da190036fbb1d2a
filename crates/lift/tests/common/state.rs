//! Registers and memory before and after an instruction, and random ones that are near corners.

use brownout_random::Random;

/// The memory that instructions may use.
pub const WINDOW_BYTES: usize = 512;

/// The bits of the flags that are followed: CF, PF, AF, ZF, SF, DF, OF.
pub const FLAGS: u64 = 0xCD5;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub gpr: [u64; 16],
    pub rflags: u64,
    /// Low and high 128 bits of each.
    pub vectors: [[u128; 2]; 16],
    pub memory: [u8; WINDOW_BYTES],
}

/// 64 bits that are often at the end of some range.
pub fn corner(random: &mut Random) -> u64 {
    let bits = random.bits();
    match random.below(12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => random.below(70),
        4 => random.below(70).wrapping_neg(),
        5 => [0x80, 0x8000, 0x8000_0000, 1 << 63][random.index(4)],
        6 => [0x7F, 0x7FFF, 0x7FFF_FFFF, u64::MAX >> 1][random.index(4)],
        7 => bits >> random.below(64),
        8 => u64::MAX << random.below(64),
        9 => 1 << random.below(64),
        _ => bits,
    }
}

/// 64 bits whose bytes, words or halves are at corners.
fn elements(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => corner(random),
        1 => {
            let mut value = 0;
            for _ in 0..8 {
                let bits = random.bits();
                let byte = match (bits >> 40) % 8 {
                    0 => 0,
                    1 => 1,
                    2 => 0x7F,
                    3 => 0x80,
                    4 => 0xFF,
                    _ => (bits >> 20) & 0xFF,
                };
                value = value << 8 | byte;
            }
            value
        }
        2 => (0..4).fold(0, |value, _| value << 16 | corner(random) & 0xFFFF),
        3 => (0..2).fold(0, |value, _| value << 32 | corner(random) & 0xFFFF_FFFF),
        _ => random.bits(),
    }
}

impl State {
    pub fn zero() -> State {
        State {
            gpr: [0; 16],
            rflags: 0x202,
            vectors: [[0; 2]; 16],
            memory: [0; WINDOW_BYTES],
        }
    }

    pub fn randomize(&mut self, random: &mut Random) {
        for register in &mut self.gpr {
            *register = corner(random);
        }
        self.rflags = 0x202 | random.bits() & FLAGS;
        for register in &mut self.vectors {
            for half in register {
                *half = u128::from(elements(random)) << 64 | u128::from(elements(random));
            }
        }
        for part in self.memory.chunks_mut(8) {
            part.copy_from_slice(&elements(random).to_le_bytes());
        }
        // What compares equal is worth more than its share.
        if random.percent(25) {
            self.gpr[random.index(16)] = self.gpr[random.index(16)];
        }
        if random.percent(40) {
            let (to, from) = (random.index(16), random.index(16));
            self.vectors[to] = self.vectors[from];
            if random.percent(50) {
                self.vectors[to][random.index(2)] ^= 1 << random.below(128);
            }
        }
    }
}
