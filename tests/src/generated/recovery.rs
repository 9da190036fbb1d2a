//! The recovery part of a script, executed here: a second implementation of what `litmus_vm check`
//! does.

use super::script::{Op, REGISTERS, low_bytes, number, vector};

/// What a recovery reads and writes.
pub trait Memory {
    /// Reads `len` bytes.
    fn load(&mut self, addr: u64, len: u64) -> Vec<u8>;
    /// Writes bytes.
    fn store(&mut self, addr: u64, bytes: &[u8]);
}

/// How a recovery ended, in the words of the tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ending {
    /// `exit code 0`, `signal 11`.
    pub status: String,
    /// All that it printed.
    pub stdout: String,
}

impl Ending {
    pub(super) fn code(code: i32, stdout: String) -> Ending {
        let status = format!("exit code {code}");
        Ending { status, stdout }
    }

    pub(super) fn signal(signal: i32, stdout: String) -> Ending {
        let status = format!("signal {signal}");
        Ending { status, stdout }
    }
}

/// SIGABRT and SIGSEGV, as on all of Linux' x86.
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// What has been read.
#[derive(Default)]
struct Machine {
    registers: [u64; REGISTERS],
    log: Vec<u64>,
}

impl Machine {
    fn loaded(&mut self, reg: usize, bytes: &[u8]) {
        self.registers[reg] = number(&bytes[..bytes.len().min(8)]);
        self.log.extend(bytes.chunks(8).map(number));
    }
}

/// Runs a recovery to its end.
pub fn recover(recovery: &[Op], memory: &mut impl Memory) -> Ending {
    let mut machine = Machine::default();
    let mut stdout = String::new();
    let mut acks = 0;
    let mut at = 0;
    while let Some(op) = recovery.get(at) {
        at += 1;
        match op {
            Op::Store { addr, size, value } | Op::NtStore { addr, size, value } => {
                memory.store(*addr, &low_bytes(*value, *size));
            }
            Op::VectorStore { addr, size, value } => memory.store(*addr, &vector(*value, *size)),
            Op::StoreRegister { addr, size, reg } => {
                memory.store(*addr, &low_bytes(machine.registers[*reg], *size));
            }
            Op::FetchAdd {
                reg,
                addr,
                size,
                value,
            } => {
                let old = memory.load(*addr, *size);
                let sum = number(&old).wrapping_add(*value);
                memory.store(*addr, &low_bytes(sum, *size));
                machine.loaded(*reg, &old);
            }
            Op::Load { reg, addr, size } | Op::VectorLoad { reg, addr, size } => {
                machine.loaded(*reg, &memory.load(*addr, *size));
            }
            Op::LoadIndexed {
                reg,
                addr,
                size,
                from,
                mask,
            } => {
                let addr = addr + (machine.registers[*from] & mask);
                machine.loaded(*reg, &memory.load(addr, *size));
            }
            Op::Copy { reg, addr, len, .. } => machine.loaded(*reg, &memory.load(*addr, *len)),
            Op::Skip {
                equal,
                reg,
                value,
                count,
            } => {
                if (machine.registers[*reg] == *value) == *equal {
                    at += count;
                }
            }
            Op::Print => {
                let words: Vec<String> = machine
                    .log
                    .drain(..)
                    .map(|word| format!("{word:x}"))
                    .collect();
                if !words.is_empty() {
                    stdout += &(words.join(" ") + "\n");
                }
            }
            Op::Ack => {
                acks += 1;
                stdout += &format!("ack {acks:02}\n");
            }
            Op::Exit(code) => return Ending::code(i32::from(*code), stdout),
            Op::ExitRegister(reg) => {
                return Ending::code(i32::from(machine.registers[*reg] as u8), stdout);
            }
            Op::Abort => return Ending::signal(SIGABRT, stdout),
            Op::NullLoad => return Ending::signal(SIGSEGV, stdout),
            Op::Flush { .. } | Op::Sfence | Op::Mfence | Op::Locked | Op::Msync | Op::Input => {}
        }
    }
    Ending::code(0, stdout)
}

/// A whole memory, in which nothing is open.
impl Memory for Vec<u8> {
    fn load(&mut self, addr: u64, len: u64) -> Vec<u8> {
        self[addr as usize..(addr + len) as usize].to_vec()
    }

    fn store(&mut self, addr: u64, bytes: &[u8]) {
        self[addr as usize..addr as usize + bytes.len()].copy_from_slice(bytes);
    }
}
