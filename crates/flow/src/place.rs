//! Where a label can be: one number for each byte of the registers, and for each byte of an
//! instruction's memory operands.
//!
//! Registers come first and lie densely, so that a shadow of all of them is one array of
//! [`REGISTER_PLACES`] labels that a place indexes.

use core::fmt;
use iced_x86::Register;

// General registers by their hardware numbers.
pub(crate) const RAX: usize = 0;
pub(crate) const RCX: usize = 1;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;
pub(crate) const RSI: usize = 6;
pub(crate) const RDI: usize = 7;

/// One byte of a register, one flag, one byte of a memory operand, or one temporary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Place(pub u16);

/// Places below this are registers and temporaries: a shadow holds a label for each.
pub const REGISTER_PLACES: usize = TEMPORARY_AT as usize + TEMPORARIES as usize;

/// Temporaries that one instruction may use.
pub const TEMPORARIES: u16 = 512;

const GPR_AT: u16 = 0;
const FLAG_AT: u16 = 128;
const CONTROL_AT: u16 = 136;
const MXCSR_CONTROL_AT: u16 = 137;
const MXCSR_STATUS_AT: u16 = 138;
const X87_CONTROL_AT: u16 = 139;
const X87_EXCEPTIONS_AT: u16 = 140;
const X87_CONDITIONS_AT: u16 = 141;
const X87_STACK_AT: u16 = 142;
const FS_BASE_AT: u16 = 144;
const GS_BASE_AT: u16 = 152;
const OPMASK_AT: u16 = 160;
const X87_AT: u16 = 224;
const ST_AT: u16 = 304;
const VECTOR_AT: u16 = 384;
const TEMPORARY_AT: u16 = VECTOR_AT + 32 * 64;
const MEMORY_AT: u16 = 0x8000;
const MEMORY_STEP: u16 = 0x1000;

/// A status flag, as a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Flag {
    /// Carry.
    Carry,
    /// Parity.
    Parity,
    /// Auxiliary carry.
    Auxiliary,
    /// Zero.
    Zero,
    /// Sign.
    Sign,
    /// Direction.
    Direction,
    /// Overflow.
    Overflow,
    /// All others that a program can change (`AC`, `ID`, `NT`, `TF`).
    Others,
}

impl Flag {
    /// All of them, in the order of their places.
    pub const ALL: [Flag; 8] = [
        Flag::Carry,
        Flag::Parity,
        Flag::Auxiliary,
        Flag::Zero,
        Flag::Sign,
        Flag::Direction,
        Flag::Overflow,
        Flag::Others,
    ];
}

/// What a place belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceKind {
    /// Byte of a general register: number in the order of encodings, byte.
    Gpr(u8, u8),
    /// A flag, by its place in [`Flag::ALL`].
    Flag(u8),
    /// What decides where the program goes on: the condition or the target of a branch.
    Control,
    /// Rounding mode, masks, denormals-are-zero and flush-to-zero of `MXCSR`.
    MxcsrControl,
    /// The exception flags of `MXCSR`.
    MxcsrStatus,
    /// The x87 control word.
    X87Control,
    /// The exception flags in the x87 status word.
    X87Exceptions,
    /// `C0` to `C3` in the x87 status word.
    X87Conditions,
    /// The top of the x87 stack, and which of its registers are empty.
    X87Stack,
    /// Byte of the base of `fs`.
    FsBase(u8),
    /// Byte of the base of `gs`.
    GsBase(u8),
    /// Byte of an opmask register: number, byte.
    Opmask(u8, u8),
    /// Byte of a physical x87 register: number, byte (0–9). Bytes 0–7 are the MMX register.
    X87(u8, u8),
    /// Byte of `st(n)`, counted from the top of the stack *before* the instruction.
    St(u8, u8),
    /// Byte of a vector register: number, byte (0–63).
    Vector(u8, u8),
    /// A temporary of the instruction.
    Temporary(u16),
    /// Byte of a memory operand: its place in [`crate::Flow::memory`], byte.
    Memory(u8, u16),
}

impl Place {
    /// What decides where the program goes on.
    pub const CONTROL: Place = Place(CONTROL_AT);
    /// The controlling bits of `MXCSR`.
    pub const MXCSR_CONTROL: Place = Place(MXCSR_CONTROL_AT);
    /// The exception flags of `MXCSR`.
    pub const MXCSR_STATUS: Place = Place(MXCSR_STATUS_AT);
    /// The x87 control word.
    pub const X87_CONTROL: Place = Place(X87_CONTROL_AT);
    /// The exception flags of the x87 unit.
    pub const X87_EXCEPTIONS: Place = Place(X87_EXCEPTIONS_AT);
    /// The condition codes of the x87 unit.
    pub const X87_CONDITIONS: Place = Place(X87_CONDITIONS_AT);
    /// The top of the x87 stack and the tags.
    pub const X87_STACK: Place = Place(X87_STACK_AT);
    /// The base of `fs`, 8 bytes.
    pub const FS_BASE: Place = Place(FS_BASE_AT);
    /// The base of `gs`, 8 bytes.
    pub const GS_BASE: Place = Place(GS_BASE_AT);

    /// Byte 0 of a general register.
    #[must_use]
    pub const fn gpr(number: usize) -> Place {
        Place(GPR_AT + 8 * number as u16)
    }

    /// A flag.
    #[must_use]
    pub const fn flag(flag: Flag) -> Place {
        Place(FLAG_AT + flag as u16)
    }

    /// Byte 0 of a vector register.
    #[must_use]
    pub const fn vector(number: usize) -> Place {
        Place(VECTOR_AT + 64 * number as u16)
    }

    /// Byte 0 of an opmask register.
    #[must_use]
    pub const fn opmask(number: usize) -> Place {
        Place(OPMASK_AT + 8 * number as u16)
    }

    /// Byte 0 of an MMX register, which is a physical x87 register.
    #[must_use]
    pub const fn mmx(number: usize) -> Place {
        Place(X87_AT + 10 * number as u16)
    }

    /// Byte 0 of `st(number)` before the instruction.
    #[must_use]
    pub const fn st(number: usize) -> Place {
        Place(ST_AT + 10 * (number as u16 & 7))
    }

    /// A temporary.
    #[must_use]
    pub const fn temporary(number: u16) -> Place {
        Place(TEMPORARY_AT + number)
    }

    /// Byte 0 of a memory operand.
    #[must_use]
    pub const fn memory(operand: usize) -> Place {
        Place(MEMORY_AT + MEMORY_STEP * operand as u16)
    }

    /// This many bytes further.
    #[must_use]
    pub const fn plus(self, bytes: usize) -> Place {
        Place(self.0 + bytes as u16)
    }

    /// Whether this is a byte of a memory operand.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        self.0 >= MEMORY_AT
    }

    /// Whether this is relative to the top of the x87 stack.
    #[must_use]
    pub const fn is_st(self) -> bool {
        self.0 >= ST_AT && self.0 < VECTOR_AT
    }

    /// The physical register for a place that is relative to the top of the x87 stack; others are
    /// what they are.
    #[must_use]
    pub const fn resolve(self, top: u8) -> Place {
        if !self.is_st() {
            return self;
        }
        let (number, byte) = ((self.0 - ST_AT) / 10, (self.0 - ST_AT) % 10);
        Place(X87_AT + 10 * ((number + top as u16) & 7) + byte)
    }

    /// What the place belongs to.
    #[must_use]
    pub fn kind(self) -> PlaceKind {
        let within = |from: u16, bytes: u16| {
            let at = self.0 - from;
            ((at / bytes) as u8, (at % bytes) as u8)
        };
        match self.0 {
            MEMORY_AT.. => PlaceKind::Memory(
                ((self.0 - MEMORY_AT) / MEMORY_STEP) as u8,
                (self.0 - MEMORY_AT) % MEMORY_STEP,
            ),
            TEMPORARY_AT.. => PlaceKind::Temporary(self.0 - TEMPORARY_AT),
            VECTOR_AT.. => {
                let (number, byte) = within(VECTOR_AT, 64);
                PlaceKind::Vector(number, byte)
            }
            ST_AT.. => {
                let (number, byte) = within(ST_AT, 10);
                PlaceKind::St(number, byte)
            }
            X87_AT.. => {
                let (number, byte) = within(X87_AT, 10);
                PlaceKind::X87(number, byte)
            }
            OPMASK_AT.. => {
                let (number, byte) = within(OPMASK_AT, 8);
                PlaceKind::Opmask(number, byte)
            }
            GS_BASE_AT.. => PlaceKind::GsBase((self.0 - GS_BASE_AT) as u8),
            FS_BASE_AT.. => PlaceKind::FsBase((self.0 - FS_BASE_AT) as u8),
            X87_STACK_AT.. => PlaceKind::X87Stack,
            X87_CONDITIONS_AT => PlaceKind::X87Conditions,
            X87_EXCEPTIONS_AT => PlaceKind::X87Exceptions,
            X87_CONTROL_AT => PlaceKind::X87Control,
            MXCSR_STATUS_AT => PlaceKind::MxcsrStatus,
            MXCSR_CONTROL_AT => PlaceKind::MxcsrControl,
            CONTROL_AT => PlaceKind::Control,
            FLAG_AT.. => PlaceKind::Flag((self.0 - FLAG_AT) as u8),
            _ => {
                let (number, byte) = within(GPR_AT, 8);
                PlaceKind::Gpr(number, byte)
            }
        }
    }

    /// Byte 0 of a register operand, and its bytes; `None` for registers that carry no data here
    /// (segment, control, debug, tile and bound registers).
    #[must_use]
    pub fn of_register(register: Register) -> Option<Span> {
        let span = |place: Place, bytes: usize| Some(Span::new(place, bytes));
        if register.is_gpr() {
            let high = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            let full = register.full_register().number();
            return span(Place::gpr(full).plus(usize::from(high)), register.size());
        }
        if register.is_vector_register() {
            return span(Place::vector(register.number()), register.size());
        }
        if register.is_mm() {
            return span(Place::mmx(register.number()), 8);
        }
        if register.is_k() {
            return span(Place::opmask(register.number()), 8);
        }
        if register.is_st() {
            return span(Place::st(register.number()), 10);
        }
        None
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GPRS: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        match self.kind() {
            PlaceKind::Gpr(number, byte) => write!(out, "{}.{byte}", GPRS[usize::from(number)]),
            PlaceKind::Flag(number) => write!(out, "{:?}", Flag::ALL[usize::from(number)]),
            PlaceKind::FsBase(byte) => write!(out, "fs.{byte}"),
            PlaceKind::GsBase(byte) => write!(out, "gs.{byte}"),
            PlaceKind::Opmask(number, byte) => write!(out, "k{number}.{byte}"),
            PlaceKind::X87(number, byte) => write!(out, "mm{number}.{byte}"),
            PlaceKind::St(number, byte) => write!(out, "st{number}.{byte}"),
            PlaceKind::Vector(number, byte) => write!(out, "v{number}.{byte}"),
            PlaceKind::Temporary(number) => write!(out, "t{number}"),
            PlaceKind::Memory(operand, byte) => write!(out, "[{operand}].{byte}"),
            other => write!(out, "{other:?}"),
        }
    }
}

/// Adjacent places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// The lowest.
    pub place: Place,
    /// How many.
    pub bytes: u16,
}

impl Span {
    /// No place at all.
    pub const EMPTY: Span = Span {
        place: Place(0),
        bytes: 0,
    };

    /// So many places from this one on.
    #[must_use]
    pub const fn new(place: Place, bytes: usize) -> Span {
        Span {
            place,
            bytes: bytes as u16,
        }
    }

    /// As a number that can index.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// `bytes` of it from byte `from` on.
    #[must_use]
    pub fn part(&self, from: usize, bytes: usize) -> Span {
        debug_assert!(from + bytes <= self.len());
        Span::new(self.place.plus(from), bytes)
    }

    /// The lowest `bytes`, or all if there are fewer.
    #[must_use]
    pub fn low(&self, bytes: usize) -> Span {
        self.part(0, bytes.min(self.len()))
    }

    /// The place of byte `at`.
    #[must_use]
    pub fn at(&self, at: usize) -> Place {
        debug_assert!(at < self.len());
        self.place.plus(at)
    }

    /// Every place of it.
    pub fn places(self) -> impl Iterator<Item = Place> {
        (0..self.len()).map(move |byte| self.place.plus(byte))
    }
}
