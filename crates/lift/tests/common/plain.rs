//! A machine of plain numbers, which sees that all widths are what they must be, and which can be
//! told to do one thing wrong.

use super::state::{State, WINDOW_BYTES};
use brownout_lift::{Algebra, Flag, Machine};
use iced_x86::Register;

/// A number of so many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub bits: u32,
    pub value: u128,
}

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    Add,
    Sub,
    Mul,
    Udiv,
    Urem,
    Sdiv,
    Srem,
    And,
    Or,
    Xor,
    Shl,
    Lshr,
    Ashr,
    Not,
    Neg,
    Eq,
    Ult,
    Slt,
    Ite,
    Concat,
    Extract,
    Zext,
    Sext,
    /// Register writes get lost.
    SetGpr,
    SetXmm,
    SetYmmHigh,
    /// So do changes of a flag.
    SetFlag(Flag),
    Store,
    Load,
    SegmentBase,
}

impl Wrong {
    pub const ALL: [Wrong; 36] = {
        use Wrong::*;
        [
            Add,
            Sub,
            Mul,
            Udiv,
            Urem,
            Sdiv,
            Srem,
            And,
            Or,
            Xor,
            Shl,
            Lshr,
            Ashr,
            Not,
            Neg,
            Eq,
            Ult,
            Slt,
            Ite,
            Concat,
            Extract,
            Zext,
            Sext,
            SetGpr,
            SetXmm,
            SetYmmHigh,
            SetFlag(Flag::Carry),
            SetFlag(Flag::Parity),
            SetFlag(Flag::Adjust),
            SetFlag(Flag::Zero),
            SetFlag(Flag::Sign),
            SetFlag(Flag::Overflow),
            SetFlag(Flag::Direction),
            Store,
            Load,
            SegmentBase,
        ]
    };
}

/// The bit of a flag in `rflags`.
pub fn flag_bit(flag: Flag) -> u32 {
    match flag {
        Flag::Carry => 0,
        Flag::Parity => 2,
        Flag::Adjust => 4,
        Flag::Zero => 6,
        Flag::Sign => 7,
        Flag::Direction => 10,
        Flag::Overflow => 11,
    }
}

pub struct Plain {
    pub state: State,
    pub window: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// The flags that the processor left: what is undefined becomes the opposite, so that it shows
    /// which flags that are in the end.
    pub processor: u64,
    /// Something was accessed that is not in the window.
    pub outside: bool,
    pub wrong: Wrong,
    /// How often something was changed.
    pub changes: u64,
}

impl Plain {
    pub fn new() -> Plain {
        Plain {
            state: State::zero(),
            window: 0,
            fs_base: 0,
            gs_base: 0,
            processor: 0,
            outside: false,
            wrong: Wrong::Nothing,
            changes: 0,
        }
    }

    fn result(&self, operation: Wrong, bits: u32, value: u128) -> Value {
        assert!((1..=128).contains(&bits), "{bits} bits");
        let value = value & mask(bits);
        let value = if self.wrong == operation {
            value ^ 1
        } else {
            value
        };
        Value { bits, value }
    }

    fn at(&mut self, address: Value, bytes: usize) -> Option<usize> {
        assert_eq!(address.bits, 64);
        let offset = (address.value as u64).wrapping_sub(self.window);
        let inside = offset < WINDOW_BYTES as u64 && offset as usize + bytes <= WINDOW_BYTES;
        self.outside |= !inside;
        inside.then_some(offset as usize)
    }
}

fn mask(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

fn signed(v: Value) -> i128 {
    let shift = 128 - v.bits;
    ((v.value << shift) as i128) >> shift
}

fn same(a: Value, b: Value) -> u32 {
    assert_eq!(a.bits, b.bits, "both must have the same width");
    a.bits
}

impl Algebra for Plain {
    type Value = Value;

    fn constant(&mut self, bits: u32, value: u128) -> Value {
        assert!((1..=128).contains(&bits), "{bits} bits");
        assert_eq!(value & !mask(bits), 0, "{value:#x} has more than {bits}");
        Value { bits, value }
    }
    fn bits(&self, v: Value) -> u32 {
        v.bits
    }
    fn add(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::Add, same(a, b), a.value.wrapping_add(b.value))
    }
    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::Sub, same(a, b), a.value.wrapping_sub(b.value))
    }
    fn mul(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::Mul, same(a, b), a.value.wrapping_mul(b.value))
    }
    fn udiv(&mut self, a: Value, b: Value) -> Value {
        let value = a.value.checked_div(b.value).unwrap_or(u128::MAX);
        self.result(Wrong::Udiv, same(a, b), value)
    }
    fn urem(&mut self, a: Value, b: Value) -> Value {
        let value = a.value.checked_rem(b.value).unwrap_or(a.value);
        self.result(Wrong::Urem, same(a, b), value)
    }
    fn sdiv(&mut self, a: Value, b: Value) -> Value {
        let value = signed(a).checked_div(signed(b)).unwrap_or(-1);
        self.result(Wrong::Sdiv, same(a, b), value as u128)
    }
    fn srem(&mut self, a: Value, b: Value) -> Value {
        let value = signed(a).checked_rem(signed(b)).unwrap_or(signed(a));
        self.result(Wrong::Srem, same(a, b), value as u128)
    }
    fn and(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::And, same(a, b), a.value & b.value)
    }
    fn or(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::Or, same(a, b), a.value | b.value)
    }
    fn xor(&mut self, a: Value, b: Value) -> Value {
        self.result(Wrong::Xor, same(a, b), a.value ^ b.value)
    }
    fn shl(&mut self, a: Value, b: Value) -> Value {
        let bits = same(a, b);
        let count = b.value.min(u128::from(bits)) as u32;
        let value = a.value.checked_shl(count).unwrap_or(0);
        self.result(Wrong::Shl, bits, value)
    }
    fn lshr(&mut self, a: Value, b: Value) -> Value {
        let bits = same(a, b);
        let count = b.value.min(u128::from(bits)) as u32;
        let value = a.value.checked_shr(count).unwrap_or(0);
        self.result(Wrong::Lshr, bits, value)
    }
    fn ashr(&mut self, a: Value, b: Value) -> Value {
        let bits = same(a, b);
        let count = b.value.min(u128::from(bits - 1)) as u32;
        self.result(Wrong::Ashr, bits, (signed(a) >> count) as u128)
    }
    fn not(&mut self, a: Value) -> Value {
        self.result(Wrong::Not, a.bits, !a.value)
    }
    fn neg(&mut self, a: Value) -> Value {
        self.result(Wrong::Neg, a.bits, a.value.wrapping_neg())
    }
    fn eq(&mut self, a: Value, b: Value) -> Value {
        same(a, b);
        self.result(Wrong::Eq, 1, u128::from(a.value == b.value))
    }
    fn ult(&mut self, a: Value, b: Value) -> Value {
        same(a, b);
        self.result(Wrong::Ult, 1, u128::from(a.value < b.value))
    }
    fn slt(&mut self, a: Value, b: Value) -> Value {
        same(a, b);
        self.result(Wrong::Slt, 1, u128::from(signed(a) < signed(b)))
    }
    fn ite(&mut self, condition: Value, then: Value, otherwise: Value) -> Value {
        assert_eq!(condition.bits, 1);
        let bits = same(then, otherwise);
        let value = if condition.value == 1 {
            then.value
        } else {
            otherwise.value
        };
        self.result(Wrong::Ite, bits, value)
    }
    fn concat(&mut self, high: Value, low: Value) -> Value {
        self.result(
            Wrong::Concat,
            high.bits + low.bits,
            high.value << low.bits | low.value,
        )
    }
    fn extract(&mut self, v: Value, low: u32, bits: u32) -> Value {
        assert!(low + bits <= v.bits, "{low} and {bits} of {}", v.bits);
        self.result(Wrong::Extract, bits, v.value >> low)
    }
    fn zext(&mut self, v: Value, bits: u32) -> Value {
        assert!(bits > v.bits);
        self.result(Wrong::Zext, bits, v.value)
    }
    fn sext(&mut self, v: Value, bits: u32) -> Value {
        assert!(bits > v.bits);
        self.result(Wrong::Sext, bits, signed(v) as u128)
    }
}

impl Machine for Plain {
    fn gpr(&mut self, number: usize) -> Value {
        Value {
            bits: 64,
            value: u128::from(self.state.gpr[number]),
        }
    }
    fn set_gpr(&mut self, number: usize, value: Value) {
        assert_eq!(value.bits, 64);
        self.changes += 1;
        if self.wrong != Wrong::SetGpr {
            self.state.gpr[number] = value.value as u64;
        }
    }
    fn xmm(&mut self, number: usize) -> Value {
        Value {
            bits: 128,
            value: self.state.vectors[number][0],
        }
    }
    fn set_xmm(&mut self, number: usize, value: Value) {
        assert_eq!(value.bits, 128);
        self.changes += 1;
        if self.wrong != Wrong::SetXmm {
            self.state.vectors[number][0] = value.value;
        }
    }
    fn ymm_high(&mut self, number: usize) -> Value {
        Value {
            bits: 128,
            value: self.state.vectors[number][1],
        }
    }
    fn set_ymm_high(&mut self, number: usize, value: Value) {
        assert_eq!(value.bits, 128);
        self.changes += 1;
        if self.wrong != Wrong::SetYmmHigh {
            self.state.vectors[number][1] = value.value;
        }
    }
    fn flag(&mut self, flag: Flag) -> Value {
        Value {
            bits: 1,
            value: u128::from(self.state.rflags >> flag_bit(flag) & 1),
        }
    }
    fn set_flag(&mut self, flag: Flag, value: Value) {
        assert_eq!(value.bits, 1);
        self.changes += 1;
        if self.wrong != Wrong::SetFlag(flag) {
            let bit = flag_bit(flag);
            self.state.rflags = self.state.rflags & !(1 << bit) | (value.value as u64) << bit;
        }
    }
    fn undefine_flag(&mut self, flag: Flag) {
        self.changes += 1;
        let bit = 1 << flag_bit(flag);
        self.state.rflags = self.state.rflags & !bit | !self.processor & bit;
    }
    fn load(&mut self, address: Value, bytes: u32) -> Value {
        assert!((1..=16).contains(&bytes));
        let bytes = bytes as usize;
        let mut value = [0; 16];
        if let Some(at) = self.at(address, bytes) {
            value[..bytes].copy_from_slice(&self.state.memory[at..at + bytes]);
        }
        self.result(Wrong::Load, 8 * bytes as u32, u128::from_le_bytes(value))
    }
    fn store(&mut self, address: Value, value: Value) {
        self.changes += 1;
        assert_eq!(value.bits % 8, 0);
        let bytes = value.bits as usize / 8;
        if let Some(at) = self.at(address, bytes)
            && self.wrong != Wrong::Store
        {
            self.state.memory[at..at + bytes].copy_from_slice(&value.value.to_le_bytes()[..bytes]);
        }
    }
    fn segment_base(&mut self, segment: Register) -> Value {
        let base = match segment {
            Register::FS => self.fs_base,
            Register::GS => self.gs_base,
            other => panic!("{other:?} has no base"),
        };
        self.result(Wrong::SegmentBase, 64, u128::from(base))
    }
}
