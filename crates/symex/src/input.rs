//! Which bytes of the input a system call has given to the program.
//!
//! The input is the program's standard input, a regular file. Descriptors that were made of it share its position; whoever seeks moves it.

use brownout_follow::Received;
use rustc_hash::FxHashSet;

const READ: u32 = 0;
const CLOSE: u32 = 3;
const LSEEK: u32 = 8;
const PREAD64: u32 = 17;
const READV: u32 = 19;
const DUP: u32 = 32;
const DUP2: u32 = 33;
const FCNTL: u32 = 72;
const DUP3: u32 = 292;
const PREADV: u32 = 295;
const PREADV2: u32 = 327;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

/// Where the program is in its input.
#[derive(Clone, Debug)]
pub struct Position {
    descriptors: FxHashSet<u64>,
    at: u64,
    len: u64,
    /// As many bytes from the beginning were read, ever.
    pub read: u64,
}

impl Position {
    /// At the beginning of `len` bytes.
    pub fn new(len: usize) -> Position {
        Position {
            descriptors: FxHashSet::from_iter([0]),
            at: 0,
            len: len as u64,
            read: 0,
        }
    }

    /// A call is over: the number of the first byte of the input that it has given to the program, if it has given any.
    pub fn call(&mut self, call: &Received) -> Option<u64> {
        let [descriptor, second, _, fourth, ..] = call.args;
        // Of a descriptor, 32 bits count.
        let is_input = self.descriptors.contains(&(descriptor & 0xFFFF_FFFF));
        let result = u64::try_from(call.result).ok()?;
        match call.number {
            READ | READV if is_input => {
                let from = self.at;
                self.at += result;
                self.gives(from, result)
            }
            PREAD64 | PREADV | PREADV2 if is_input => self.gives(fourth, result),
            LSEEK if is_input => {
                self.at = result;
                None
            }
            DUP if is_input => self.also(result),
            FCNTL if is_input && matches!(second, F_DUPFD | F_DUPFD_CLOEXEC) => self.also(result),
            DUP2 | DUP3 if descriptor != second => {
                match is_input {
                    true => self.descriptors.insert(result),
                    false => self.descriptors.remove(&result),
                };
                None
            }
            CLOSE => {
                self.descriptors.remove(&(descriptor & 0xFFFF_FFFF));
                None
            }
            _ => None,
        }
    }

    fn also(&mut self, descriptor: u64) -> Option<u64> {
        self.descriptors.insert(descriptor);
        None
    }

    fn gives(&mut self, from: u64, len: u64) -> Option<u64> {
        self.read = self.read.max((from + len).min(self.len));
        (len > 0 && from < self.len).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::ProcessId;

    fn call(number: u32, args: [u64; 4], result: i64) -> Received {
        let [a, b, c, d] = args;
        Received {
            process: ProcessId(1),
            number,
            args: [a, b, c, d, 0, 0],
            result,
        }
    }

    #[test]
    fn reads_follow_each_other() {
        let mut position = Position::new(10);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 4)), Some(0));
        assert_eq!(position.call(&call(READ, [5, 0x1000, 4, 0], 4)), None);
        assert_eq!(position.call(&call(DUP2, [0, 5, 0, 0], 5)), None);
        assert_eq!(position.call(&call(READ, [5, 0x1000, 4, 0], 4)), Some(4));
        assert_eq!(position.call(&call(LSEEK, [0, 1, 0, 0], 1)), None);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 2)), Some(1));
        assert_eq!(position.call(&call(CLOSE, [0, 0, 0, 0], 0)), None);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 2)), None);
        assert_eq!(position.call(&call(PREAD64, [5, 0x1000, 4, 6], 4)), Some(6));
        assert_eq!(position.read, 10);
    }

    #[test]
    fn errors_and_ends_give_nothing() {
        let mut position = Position::new(2);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], -4)), None);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 2)), Some(0));
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 0)), None);
    }
}
