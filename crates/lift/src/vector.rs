//! Vector registers: lanes of 128 bits, and what moves bytes without computing.
//!
//! A vector is one lane (legacy SSE, VEX.128) or two (VEX.256). A legacy form leaves what is above
//! its lane, a VEX form clears it.
//!
//! Source: Intel SDM volume 1, 14.1.2 (what VEX forms clear), volume 2 at the instructions' names.

use crate::operands::{Known, Lifter};
use crate::{Machine, Unsupported};
use iced_x86::{Mnemonic, OpKind, Register};

impl<M: Machine> Lifter<'_, M> {
    /// How many lanes the instruction has: two if one of its operands is a `ymm` register.
    pub(crate) fn lanes(&self) -> u32 {
        let wide = (0..self.i.op_count()).any(|operand| {
            self.i.op_kind(operand) == OpKind::Register && self.i.op_register(operand).is_ymm()
        });
        if wide { 2 } else { 1 }
    }

    pub(crate) fn is_vector(&self, operand: u32) -> bool {
        self.i.op_kind(operand) == OpKind::Register
            && self.i.op_register(operand).is_vector_register()
    }

    fn vector_number(&self, operand: u32) -> Known<usize> {
        if self.is_vector(operand) {
            Ok(self.i.op_register(operand).number())
        } else {
            Err(Unsupported)
        }
    }

    /// A lane of an operand, 128 bits.
    pub(crate) fn lane(&mut self, operand: u32, lane: u32) -> Known<M::Value> {
        if self.is_memory(operand) {
            if lane == 0 {
                return self.read(operand, 128);
            }
            let address = self.address();
            let distance = self.constant(64, 16);
            let address = self.m.add(address, distance);
            return Ok(self.m.load(address, 16));
        }
        let number = self.vector_number(operand)?;
        Ok(if lane == 0 {
            self.m.xmm(number)
        } else {
            self.m.ymm_high(number)
        })
    }

    /// Writes a vector register or memory; `high` is the second lane.
    pub(crate) fn write_vector(
        &mut self,
        operand: u32,
        low: M::Value,
        high: Option<M::Value>,
    ) -> Known<()> {
        if self.is_memory(operand) {
            let address = self.address();
            self.m.store(address, low);
            if let Some(high) = high {
                let distance = self.constant(64, 16);
                let address = self.m.add(address, distance);
                self.m.store(address, high);
            }
            return Ok(());
        }
        let number = self.vector_number(operand)?;
        self.m.set_xmm(number, low);
        if self.is_vex() {
            let high = match high {
                Some(high) => high,
                None => self.zero(128),
            };
            self.m.set_ymm_high(number, high);
        }
        Ok(())
    }

    /// The operand that is the first source: the destination, unless VEX names another.
    pub(crate) fn first(&self) -> u32 {
        u32::from(self.is_vex())
    }

    /// Moves of whole vectors.
    fn copy(&mut self) -> Known<()> {
        let low = self.lane(1, 0)?;
        let high = if self.lanes() == 2 {
            Some(self.lane(1, 1)?)
        } else {
            None
        };
        self.write_vector(0, low, high)
    }

    /// `movd` and `movq`: so many bits, zeros above.
    fn copy_low(&mut self, bits: u32) -> Known<()> {
        // With `rex.w`, what is written `movd` by some has 64 bits.
        let bits = (0..2)
            .filter(|operand| !self.is_vector(*operand))
            .filter_map(|operand| self.bits_of(operand).ok())
            .next()
            .unwrap_or(bits);
        let value = self.read(1, bits)?;
        if self.is_vector(0) {
            let value = self.fit(value, 128);
            self.write_vector(0, value, None)
        } else {
            self.write(0, value)
        }
    }

    /// `movss` and `movsd`: zeros above what is loaded, but between registers the rest stays.
    fn copy_scalar(&mut self, bits: u32) -> Known<()> {
        if self.is_memory(0) {
            let value = self.read(1, bits)?;
            return self.write(0, value);
        }
        if self.is_memory(1) {
            let value = self.read(1, bits)?;
            let value = self.fit(value, 128);
            return self.write_vector(0, value, None);
        }
        let first = self.first();
        let kept = self.lane(first, 0)?;
        let low = self.read(first + 1, bits)?;
        let high = self.m.extract(kept, bits, 128 - bits);
        let value = self.m.concat(high, low);
        self.write_vector(0, value, None)
    }

    fn half(&mut self, operand: u32, high: bool) -> Known<M::Value> {
        let whole = self.lane(operand, 0)?;
        Ok(self.m.extract(whole, if high { 64 } else { 0 }, 64))
    }

    /// `movlps`, `movhps` and their like: one half is loaded or stored.
    fn copy_half(&mut self, high: bool) -> Known<()> {
        if self.is_memory(0) {
            let value = self.half(1, high)?;
            return self.write(0, value);
        }
        let first = self.first();
        let loaded = self.read(first + 1, 64)?;
        let kept = self.half(first, !high)?;
        let value = if high {
            self.m.concat(loaded, kept)
        } else {
            self.m.concat(kept, loaded)
        };
        self.write_vector(0, value, None)
    }

    fn movhlps(&mut self) -> Known<()> {
        let first = self.first();
        let high = self.half(first, true)?;
        let low = self.half(first + 1, true)?;
        let value = self.m.concat(high, low);
        self.write_vector(0, value, None)
    }

    fn movlhps(&mut self) -> Known<()> {
        let first = self.first();
        let low = self.half(first, false)?;
        let high = self.half(first + 1, false)?;
        let value = self.m.concat(high, low);
        self.write_vector(0, value, None)
    }

    /// The same bits everywhere.
    fn broadcast(&mut self, bits: u32) -> Known<()> {
        let mut value = self.read(1, bits)?;
        let mut has = bits;
        while has < 128 {
            value = self.m.concat(value, value);
            has *= 2;
        }
        let high = (self.lanes() == 2).then_some(value);
        self.write_vector(0, value, high)
    }

    fn insert_lane(&mut self) -> Known<()> {
        let inserted = self.read(2, 128)?;
        let low = self.lane(1, 0)?;
        let high = self.lane(1, 1)?;
        if self.i.immediate(3) & 1 == 0 {
            self.write_vector(0, inserted, Some(high))
        } else {
            self.write_vector(0, low, Some(inserted))
        }
    }

    fn extract_lane(&mut self) -> Known<()> {
        let value = self.lane(1, (self.i.immediate(2) & 1) as u32)?;
        self.write_vector(0, value, None)
    }

    /// `vperm2i128` and `vperm2f128`.
    fn permute_lanes(&mut self) -> Known<()> {
        let control = self.i.immediate(3);
        let mut results = [None; 2];
        for (number, result) in results.iter_mut().enumerate() {
            let control = control >> (4 * number);
            *result = Some(if control & 8 != 0 {
                self.zero(128)
            } else {
                self.lane(1 + (control as u32 >> 1 & 1), control as u32 & 1)?
            });
        }
        match results {
            [Some(low), high] => self.write_vector(0, low, high),
            _ => Err(Unsupported),
        }
    }

    /// `vzeroupper` and `vzeroall`.
    fn zero_vectors(&mut self, all: bool) {
        let zero = self.zero(128);
        for number in 0..16 {
            if all {
                self.m.set_xmm(number, zero);
            }
            self.m.set_ymm_high(number, zero);
        }
    }

    /// `pinsr*`: an element from a general register or memory.
    fn insert_element(&mut self, bits: u32) -> Known<()> {
        let first = self.first();
        let element = self.read(first + 1, bits)?;
        let places = u64::from(128 / bits);
        let at = (self.i.immediate(first + 2) & (places - 1)) as u32 * bits;
        let whole = self.lane(first, 0)?;
        let mut value = element;
        if at > 0 {
            let low = self.m.extract(whole, 0, at);
            value = self.m.concat(value, low);
        }
        if at + bits < 128 {
            let high = self.m.extract(whole, at + bits, 128 - at - bits);
            value = self.m.concat(high, value);
        }
        self.write_vector(0, value, None)
    }

    /// `pextr*`: an element into a general register or memory.
    fn extract_element(&mut self, bits: u32) -> Known<()> {
        let places = u64::from(128 / bits);
        let at = (self.i.immediate(2) & (places - 1)) as u32 * bits;
        let whole = self.lane(1, 0)?;
        let mut value = self.m.extract(whole, at, bits);
        if !self.is_memory(0) {
            let wide = self.bits_of(0)?;
            value = self.fit(value, wide);
        }
        self.write(0, value)
    }

    /// Whether there was a rule.
    pub(crate) fn moves(&mut self, mnemonic: Mnemonic) -> Known<bool> {
        use Mnemonic as N;
        // Rules for vectors are about vector registers; iced has mnemonics that mean others, too.
        let vectors = (0..self.i.op_count()).any(|operand| self.is_vector(operand));
        if !vectors && !matches!(mnemonic, N::Vzeroupper | N::Vzeroall) {
            return Ok(false);
        }
        match mnemonic {
            N::Movdqa
            | N::Movdqu
            | N::Movaps
            | N::Movups
            | N::Movapd
            | N::Movupd
            | N::Movntdq
            | N::Movntps
            | N::Movntpd
            | N::Movntdqa
            | N::Lddqu
            | N::Vmovdqa
            | N::Vmovdqu
            | N::Vmovaps
            | N::Vmovups
            | N::Vmovapd
            | N::Vmovupd
            | N::Vmovntdq
            | N::Vmovntps
            | N::Vmovntpd
            | N::Vmovntdqa
            | N::Vlddqu => self.copy()?,
            N::Movd | N::Vmovd => self.copy_low(32)?,
            N::Movq | N::Vmovq => self.copy_low(64)?,
            N::Movss | N::Vmovss => self.copy_scalar(32)?,
            N::Movsd | N::Vmovsd => self.copy_scalar(64)?,
            N::Movlps | N::Movlpd | N::Vmovlps | N::Vmovlpd => self.copy_half(false)?,
            N::Movhps | N::Movhpd | N::Vmovhps | N::Vmovhpd => self.copy_half(true)?,
            N::Movhlps | N::Vmovhlps => self.movhlps()?,
            N::Movlhps | N::Vmovlhps => self.movlhps()?,
            N::Vpbroadcastb => self.broadcast(8)?,
            N::Vpbroadcastw => self.broadcast(16)?,
            N::Vpbroadcastd | N::Vbroadcastss => self.broadcast(32)?,
            N::Vpbroadcastq | N::Vbroadcastsd => self.broadcast(64)?,
            N::Vbroadcastf128 | N::Vbroadcasti128 => self.broadcast(128)?,
            N::Vinserti128 | N::Vinsertf128 => self.insert_lane()?,
            N::Vextracti128 | N::Vextractf128 => self.extract_lane()?,
            N::Vperm2i128 | N::Vperm2f128 => self.permute_lanes()?,
            N::Vzeroupper => self.zero_vectors(false),
            N::Vzeroall => self.zero_vectors(true),
            N::Pinsrb | N::Vpinsrb => self.insert_element(8)?,
            N::Pinsrw | N::Vpinsrw => self.insert_element(16)?,
            N::Pinsrd | N::Vpinsrd => self.insert_element(32)?,
            N::Pinsrq | N::Vpinsrq => self.insert_element(64)?,
            N::Pextrb | N::Vpextrb => self.extract_element(8)?,
            N::Pextrw | N::Vpextrw => self.extract_element(16)?,
            N::Pextrd | N::Vpextrd | N::Extractps | N::Vextractps => self.extract_element(32)?,
            N::Pextrq | N::Vpextrq => self.extract_element(64)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The mask of a variable blend: `xmm0`, unless VEX names another.
    pub(crate) fn blend_mask(&mut self, lane: u32) -> Known<M::Value> {
        if self.is_vex() {
            self.lane(3, lane)
        } else {
            Ok(self.m.xmm(Register::XMM0.number()))
        }
    }
}
