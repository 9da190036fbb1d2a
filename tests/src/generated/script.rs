//! What `litmus_vm` executes, as data, as text and as events.

use std::fmt;

use brownout_model::{ByteRange, Event, FlushKind, Key, Line, Op as ModelOp, Thread, Write};

/// Size of the pool, as in `litmus_vm.c`.
pub const POOL_BYTES: usize = 8192;

/// Registers of `litmus_vm`.
pub(super) const REGISTERS: usize = 16;

/// How bytes are copied out of the pool, other than by a plain load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// `rep movsb`.
    RepMovsb,
    /// The kernel reads the mapping: `write` to a pipe.
    Pipe,
    /// The kernel reads the file: `pread`.
    Pread,
}

/// One operation. Addresses are offsets in the pool, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields mean what they are called
pub enum Op {
    /// One store instruction of 1, 2, 4 or 8 bytes.
    Store { addr: u64, size: u64, value: u64 },
    /// One store instruction of 16 or 32 bytes: `value`, `value + 1`, … in words.
    VectorStore { addr: u64, size: u64, value: u64 },
    /// `movnti`, 4 or 8 bytes.
    NtStore { addr: u64, size: u64, value: u64 },
    /// A store of what a register holds.
    StoreRegister { addr: u64, size: u64, reg: usize },
    /// `lock xadd`, 4 or 8 aligned bytes.
    FetchAdd {
        reg: usize,
        addr: u64,
        size: u64,
        value: u64,
    },
    /// A write-back.
    Flush { kind: FlushKind, addr: u64 },
    /// `sfence`.
    Sfence,
    /// `mfence`.
    Mfence,
    /// A locked instruction on ordinary memory.
    Locked,
    /// `msync` of the whole pool.
    Msync,
    /// A load of 1, 2, 4 or 8 bytes.
    Load { reg: usize, addr: u64, size: u64 },
    /// The same at `addr + (register from & mask)`.
    LoadIndexed {
        reg: usize,
        addr: u64,
        size: u64,
        from: usize,
        mask: u64,
    },
    /// One load instruction of 16 or 32 bytes.
    VectorLoad { reg: usize, addr: u64, size: u64 },
    /// Up to 64 bytes at once.
    Copy {
        how: Copying,
        reg: usize,
        addr: u64,
        len: u64,
    },
    /// Skips the next operations if the register is `equal` (or is not) to `value`.
    Skip {
        equal: bool,
        reg: usize,
        value: u64,
        count: usize,
    },
    /// Writes out what has been read since the last one.
    Print,
    /// Acknowledges something.
    Ack,
    /// Asks for input.
    Input,
    /// Ends with this code.
    Exit(u8),
    /// Ends with the code that a register holds.
    ExitRegister(usize),
    /// Ends by SIGABRT.
    Abort,
    /// Ends by SIGSEGV.
    NullLoad,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Store { addr, size, value } => write!(f, "st {addr:#x} {size} {value:#x}"),
            Op::VectorStore { addr, size, value } => write!(f, "vec {addr:#x} {size} {value:#x}"),
            Op::NtStore { addr, size, value } => write!(f, "nt {addr:#x} {size} {value:#x}"),
            Op::StoreRegister { addr, size, reg } => write!(f, "put {addr:#x} {size} {reg}"),
            Op::FetchAdd {
                reg,
                addr,
                size,
                value,
            } => write!(f, "add {reg} {addr:#x} {size} {value:#x}"),
            Op::Flush { kind, addr } => write!(f, "{} {addr:#x}", kind.name()),
            Op::Sfence => f.write_str("sfence"),
            Op::Mfence => f.write_str("mfence"),
            Op::Locked => f.write_str("locked"),
            Op::Msync => write!(f, "msync 0 {POOL_BYTES:#x}"),
            Op::Load { reg, addr, size } => write!(f, "ld {reg} {addr:#x} {size}"),
            Op::LoadIndexed {
                reg,
                addr,
                size,
                from,
                mask,
            } => write!(f, "ldx {reg} {addr:#x} {size} {from} {mask:#x}"),
            Op::VectorLoad { reg, addr, size } => write!(f, "vld {reg} {addr:#x} {size}"),
            Op::Copy {
                how,
                reg,
                addr,
                len,
            } => {
                let name = match how {
                    Copying::RepMovsb => "copy",
                    Copying::Pipe => "pipe",
                    Copying::Pread => "pread",
                };
                write!(f, "{name} {reg} {addr:#x} {len}")
            }
            Op::Skip {
                equal,
                reg,
                value,
                count,
            } => {
                let name = if *equal { "eq" } else { "ne" };
                write!(f, "{name} {reg} {value:#x} {count}")
            }
            Op::Print => f.write_str("print"),
            Op::Ack => f.write_str("ack"),
            Op::Input => f.write_str("input"),
            Op::Exit(code) => write!(f, "exit {code}"),
            Op::ExitRegister(reg) => write!(f, "leave {reg}"),
            Op::Abort => f.write_str("abort"),
            Op::NullLoad => f.write_str("null"),
        }
    }
}

/// An operation of the program, and who performs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The second thread, not the first.
    pub second_thread: bool,
    /// What.
    pub op: Op,
}

/// A program, its recovery, and the pool that it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Where it came from.
    pub seed: u64,
    /// The pool before the program; `None` if the program makes it.
    pub initial: Option<Vec<u8>>,
    /// What the program does.
    pub program: Vec<Step>,
    /// What recovery does.
    pub recovery: Vec<Op>,
}

/// The text that `litmus_vm` reads.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.program {
            let who = if step.second_thread { "B " } else { "" };
            writeln!(f, "{who}{}", step.op)?;
        }
        writeln!(f, "recovery")?;
        self.recovery.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

impl Script {
    /// The pool before the first store.
    pub fn initial_image(&self) -> Vec<u8> {
        self.initial.clone().unwrap_or_else(|| vec![0; POOL_BYTES])
    }

    /// The event of each step, as if the pool were mapped at 0; `None` for steps that change
    /// nothing in persistency.
    pub fn events(&self) -> Vec<Option<Event<'static>>> {
        // What the program sees, for the locked additions.
        let mut memory = self.initial_image();
        self.program
            .iter()
            .map(|step| {
                let mut write = |addr: u64, bytes: Vec<u8>| {
                    let at = addr as usize;
                    memory[at..at + bytes.len()].copy_from_slice(&bytes);
                    Write::new(Key(addr), bytes)
                };
                let op = match &step.op {
                    Op::Store { addr, size, value } => {
                        ModelOp::Store(write(*addr, low_bytes(*value, *size)))
                    }
                    Op::VectorStore { addr, size, value } => {
                        ModelOp::Store(write(*addr, vector(*value, *size)))
                    }
                    Op::NtStore { addr, size, value } => {
                        ModelOp::NtStore(write(*addr, low_bytes(*value, *size)))
                    }
                    Op::FetchAdd {
                        addr, size, value, ..
                    } => {
                        let at = *addr as usize;
                        let old = number(&memory[at..at + *size as usize]);
                        let sum = low_bytes(old.wrapping_add(*value), *size);
                        memory[at..at + sum.len()].copy_from_slice(&sum);
                        ModelOp::Rmw(Write::new(Key(*addr), sum))
                    }
                    Op::Flush { kind, addr } => ModelOp::Flush {
                        kind: *kind,
                        line: Line::of(Key(*addr)),
                    },
                    Op::Sfence => ModelOp::Sfence,
                    Op::Mfence => ModelOp::Mfence,
                    Op::Locked => ModelOp::Locked,
                    Op::Msync => ModelOp::Msync(ByteRange::new(Key(0), POOL_BYTES as u64)),
                    _ => return None,
                };
                Some(Event::new(Thread(1 + u32::from(step.second_thread)), op))
            })
            .collect()
    }
}

/// The `size` low bytes of a number, as they lie in memory.
pub(super) fn low_bytes(value: u64, size: u64) -> Vec<u8> {
    value.to_le_bytes()[..size as usize].to_vec()
}

/// At most 8 bytes as a number.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What a vector store writes.
pub(super) fn vector(value: u64, size: u64) -> Vec<u8> {
    (0..size / 8)
        .flat_map(|i| value.wrapping_add(i).to_le_bytes())
        .collect()
}
