//! Records of binary inputs that begin with their length.
//!
//! In a protocol like `opcode, length, payload`, a length that is changed alone makes the program
//! take what follows for payload, or wait for more; and bytes that are put in alone move all that
//! follows to where it means something else. So both are changed together. Nobody says where
//! lengths stand: any number counts as one behind which there are as many bytes as it says.

use crate::{Below, one_in, pick};

/// Lengths at which programs change their mind, and their neighbours.
const LENGTHS: [usize; 8] = [8, 16, 24, 32, 48, 64, 128, 255];
/// So many bytes in front of a length may belong to its record.
const HEAD_MAX: usize = 8;
/// So often a place is drawn until a length stands there.
const DRAWS: usize = 16;

/// A length, and the bytes that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    at: usize,
    width: usize,
    is_big: bool,
    len: usize,
}

/// Some of it is not text: then numbers stand there as a machine has them.
pub(crate) fn is_binary(input: &[u8]) -> bool {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    !input.iter().all(is_text)
}

impl Frame {
    fn read(input: &[u8], at: usize, width: usize, is_big: bool) -> Option<Frame> {
        let bytes = input.get(at..at + width)?;
        let add = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
        let len = match is_big {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        };
        let frame = Frame {
            at,
            width,
            is_big,
            len,
        };
        (len <= input.len() && frame.end() <= input.len()).then_some(frame)
    }

    /// Behind what it counts.
    fn end(&self) -> usize {
        self.at + self.width + self.len
    }

    /// The input with another length there, and as many bytes behind it.
    fn resized(&self, input: &[u8], len: usize) -> Option<Vec<u8>> {
        if self.width < 4 && len >> (8 * self.width) != 0 {
            return None;
        }
        let mut field = len.to_le_bytes()[..self.width].to_vec();
        if self.is_big {
            field.reverse();
        }
        let (start, end) = (self.at + self.width, self.end());
        let payload = &input[start..end];
        let more = payload.last().copied().unwrap_or(b'a');
        let mut made = input[..self.at].to_vec();
        made.extend(field);
        made.extend_from_slice(&payload[..len.min(payload.len())]);
        made.resize(self.at + self.width + len, more);
        made.extend_from_slice(&input[end..]);
        Some(made)
    }
}

/// The input with another length in a byte, and as many bytes behind it; nothing if what stands
/// there is no length.
pub(crate) fn resized(input: &[u8], at: usize, len: u8) -> Option<Vec<u8>> {
    Frame::read(input, at, 1, false)?.resized(input, len.into())
}

/// Another input, of so many bytes at most, in which a record is longer, shorter, or there twice.
/// `None` if none was found.
pub fn reframed(input: &[u8], most: usize, random: &mut dyn Below) -> Option<Vec<u8>> {
    if !is_binary(input) {
        return None;
    }
    for _ in 0..DRAWS {
        let width = *pick(&[1, 1, 1, 2, 2, 4], random);
        let is_big = width > 1 && one_in(2, random);
        let Some(frame) = Frame::read(input, random.below(input.len()), width, is_big) else {
            continue;
        };
        // Zeros are everywhere.
        if frame.len == 0 && !one_in(4, random) {
            continue;
        }
        let made = match random.below(4) {
            0 => {
                let start = frame.at - random.below(frame.at.min(HEAD_MAX) + 1);
                let end = frame.end();
                Some([&input[..end], &input[start..end], &input[end..]].concat())
            }
            1 => frame.resized(input, random.below(frame.len + 1)),
            2 => frame.resized(input, frame.len + 1 + random.below(64)),
            _ => {
                let len = *pick(&LENGTHS, random) + random.below(3);
                frame.resized(input, len.saturating_sub(1))
            }
        };
        if let Some(made) = made.filter(|made| made != input && made.len() <= most) {
            return Some(made);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
        move |n| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) as usize % n
        }
    }

    #[test]
    fn a_length_keeps_its_bytes() {
        let input = b"\x01\x03abc\x02\x00";
        assert_eq!(
            resized(input, 1, 5).as_deref(),
            Some(&b"\x01\x05abccc\x02\x00"[..])
        );
        assert_eq!(
            resized(input, 1, 1).as_deref(),
            Some(&b"\x01\x01a\x02\x00"[..])
        );
        assert_eq!(
            resized(input, 6, 2).as_deref(),
            Some(&b"\x01\x03abc\x02\x02aa"[..])
        );
        // There are not as many bytes.
        assert_eq!(resized(input, 2, 2), None);
    }

    #[test]
    fn lengths_of_several_bytes_are_known_in_both_orders() {
        let input = b"Q\x00\x02hiR";
        let frame = Frame::read(input, 1, 2, true).expect("it is one");
        assert_eq!(frame.len, 2);
        assert_eq!(
            frame.resized(input, 4).as_deref(),
            Some(&b"Q\x00\x04hiiiR"[..])
        );
        let input = b"Q\x02\x00hiR";
        let frame = Frame::read(input, 1, 2, false).expect("it is one");
        assert_eq!(frame.resized(input, 0).as_deref(), Some(&b"Q\x00\x00R"[..]));
        assert_eq!(frame.resized(input, 1 << 16), None);
    }

    /// A parser of such records comes to the end of most of what is made.
    #[test]
    fn records_stay_records() {
        let input = b"\x01\x03abc\x02\x00\x01\x05hello\x03\x00";
        let mut random = numbers(7);
        let (mut whole, mut long, mut more) = (0, 0, 0);
        for _ in 0..1000 {
            let Some(made) = reframed(input, 400, &mut random) else {
                continue;
            };
            assert!(made.len() <= 400 && made != input);
            let (mut rest, mut records) = (&made[..], 0);
            while let [_, len, behind @ ..] = rest
                && behind.len() >= usize::from(*len)
            {
                long += u32::from(*len > 40);
                records += 1;
                rest = &behind[usize::from(*len)..];
            }
            whole += u32::from(rest.is_empty());
            more += u32::from(rest.is_empty() && records > 4);
        }
        assert!(
            whole > 300 && long > 50 && more > 30,
            "{whole}, {long}, {more}"
        );
    }

    #[test]
    fn text_has_none() {
        assert_eq!(reframed(b"put 5 5\nget 5\n", 400, &mut numbers(1)), None);
        assert_eq!(reframed(b"", 400, &mut numbers(1)), None);
        assert_eq!(reframed(b"\xff", 400, &mut numbers(1)), None);
    }
}
