//! The state in front of an instruction, as the engine has told it (`brownout_abi::captured`).
//!
//! Guarantee: whatever the record holds, reading it ends, with a state or with none.

use brownout_abi::captured as layout;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// A stretch of memory and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub address: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// A program in front of an instruction.
#[derive(Clone, Debug)]
pub struct State {
    /// The instruction.
    pub instruction: Instruction,
    /// RFLAGS.
    pub flags: u64,
    /// The base of `fs`.
    pub fs: u64,
    /// General registers, in hardware order.
    pub gpr: [u64; 16],
    /// Memory that the instruction may read.
    pub memory: Vec<Piece>,
    /// The low and the next 128 bits of vector registers that it names, by number.
    pub vectors: Vec<(usize, [u128; 2])>,
}

/// A reader of words that ends where they do.
struct Words<'w>(&'w [[u8; 8]]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

impl State {
    /// Reads a record about the instruction at `pc`.
    pub fn read(pc: u64, bytes: &[u8]) -> Option<State> {
        let (chunks, _) = bytes.as_chunks::<8>();
        let mut words = Words(chunks);
        let mut code = [0; layout::CODE_LEN];
        for part in code.chunks_mut(8) {
            part.copy_from_slice(&words.next()?.to_le_bytes());
        }
        let instruction = Decoder::with_ip(64, &code, pc, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return None;
        }
        let (flags, fs) = (words.next()?, words.next()?);
        let mut gpr = [0; 16];
        for register in &mut gpr {
            *register = words.next()?;
        }
        let mut memory = Vec::new();
        for _ in 0..words.next()? {
            let (address, len) = (words.next()?, usize::try_from(words.next()?).ok()?);
            let (content, rest) = words.0.split_at_checked(len.div_ceil(8))?;
            words.0 = rest;
            memory.push(Piece {
                address,
                bytes: content.as_flattened().get(..len)?.to_vec(),
            });
        }
        let mut vectors = Vec::new();
        for _ in 0..words.next()? {
            let number = usize::try_from(words.next()?).ok().filter(|n| *n < 32)?;
            let mut half = || -> Option<u128> {
                let low = u128::from(words.next()?);
                Some(low | u128::from(words.next()?) << 64)
            };
            vectors.push((number, [half()?, half()?]));
        }
        Some(State {
            instruction,
            flags,
            fs,
            gpr,
            memory,
            vectors,
        })
    }

    /// The bytes there, if they were told.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.memory.iter().find_map(|piece| {
            let from = usize::try_from(address.checked_sub(piece.address)?).ok()?;
            piece.bytes.get(from..from.checked_add(len)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<u64> {
        // add rax, [rbx]
        let mut words = vec![u64::from_le_bytes([0x48, 0x03, 0x03, 0, 0, 0, 0, 0]), 0];
        words.extend([0x246, 0x7000]);
        words.extend(0..16);
        words.extend([1, 3, 5, 0x0000_0005_0403_0201]);
        words.extend([1, 7, 1, 2, 3, 4]);
        words
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let state = State::read(0x1000, &bytes(&record())).unwrap();
        assert_eq!(state.instruction.ip(), 0x1000);
        assert_eq!(state.instruction.len(), 3);
        assert_eq!((state.flags, state.fs, state.gpr[15]), (0x246, 0x7000, 15));
        assert_eq!(state.bytes(4, 2), Some(&[2, 3][..]));
        assert_eq!(state.bytes(4, 5), None);
        assert_eq!(state.bytes(2, 1), None);
        assert_eq!(state.vectors, [(7, [1 | 2 << 64, 3 | 4 << 64])]);
    }

    #[test]
    fn a_record_that_ends_early_is_none() {
        let all = bytes(&record());
        for len in 0..all.len() {
            assert!(State::read(0x1000, &all[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn large_numbers_do_no_harm() {
        let whole = record();
        for at in 0..whole.len() {
            for value in [u64::MAX, 1 << 62, 1 << 31] {
                let mut words = whole.clone();
                words[at] = value;
                // It ends; what it says does not matter here.
                let _ = State::read(0x1000, &bytes(&words));
            }
        }
    }
}
