//! A machine whose values are only widths: the rules run on it to see whether there is one.

use crate::{Algebra, Flag, Machine};
use iced_x86::Register;

/// Nothing is kept.
pub(crate) struct Widths;

impl Algebra for Widths {
    type Value = u32;

    fn constant(&mut self, bits: u32, _: u128) -> u32 {
        bits
    }
    fn bits(&self, v: u32) -> u32 {
        v
    }
    fn add(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn sub(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn mul(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn udiv(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn urem(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn sdiv(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn srem(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn and(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn or(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn xor(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn shl(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn lshr(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn ashr(&mut self, a: u32, _: u32) -> u32 {
        a
    }
    fn not(&mut self, a: u32) -> u32 {
        a
    }
    fn neg(&mut self, a: u32) -> u32 {
        a
    }
    fn eq(&mut self, _: u32, _: u32) -> u32 {
        1
    }
    fn ult(&mut self, _: u32, _: u32) -> u32 {
        1
    }
    fn slt(&mut self, _: u32, _: u32) -> u32 {
        1
    }
    fn ite(&mut self, _: u32, then: u32, _: u32) -> u32 {
        then
    }
    fn concat(&mut self, high: u32, low: u32) -> u32 {
        high + low
    }
    fn extract(&mut self, _: u32, _: u32, bits: u32) -> u32 {
        bits
    }
    fn zext(&mut self, _: u32, bits: u32) -> u32 {
        bits
    }
    fn sext(&mut self, _: u32, bits: u32) -> u32 {
        bits
    }
}

impl Machine for Widths {
    fn gpr(&mut self, _: usize) -> u32 {
        64
    }
    fn set_gpr(&mut self, _: usize, _: u32) {}
    fn xmm(&mut self, _: usize) -> u32 {
        128
    }
    fn set_xmm(&mut self, _: usize, _: u32) {}
    fn ymm_high(&mut self, _: usize) -> u32 {
        128
    }
    fn set_ymm_high(&mut self, _: usize, _: u32) {}
    fn flag(&mut self, _: Flag) -> u32 {
        1
    }
    fn set_flag(&mut self, _: Flag, _: u32) {}
    fn undefine_flag(&mut self, _: Flag) {}
    fn load(&mut self, _: u32, bytes: u32) -> u32 {
        8 * bytes
    }
    fn store(&mut self, _: u32, _: u32) {}
    fn segment_base(&mut self, _: Register) -> u32 {
        64
    }
}
