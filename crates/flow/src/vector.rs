//! Vector, mask and MMX registers.
//!
//! Most rules build a result in temporaries and let `write_vector` put it into operand 0, under the
//! mask if there is one. A result byte that a mask bit may keep back depends on that bit, and on
//! what it replaces unless the mask zeroes.
//!
//! Floating-point results depend on the controlling bits of `MXCSR`, and its exception flags on all
//! that is computed with.

use crate::Unknown;
use crate::build::{Answer, Builder, RDI, Source};
use crate::flow::At;
use crate::integer::Shift;
use crate::place::{Flag, Place, Span};
use brownout_insn::{Mask, MemoryForm, VectorIndexed, classify};
use iced_x86::{Code, Mnemonic, OpKind};

/// How bytes of the sources make bytes of the result.
#[derive(Clone, Copy)]
pub(crate) enum Vector {
    /// Byte by byte; the mask has a bit for lanes of this many bytes.
    Bitwise(u8),
    /// Lane by lane.
    Lanes(u8),
    /// Lane by lane, with a mask that has a bit for each byte.
    LanesOfBytes(u8),
    /// Lane by lane, in floating point.
    Float(u8),
    /// Lane by lane, with carries from lower to higher bytes.
    Sum(u8),
    /// All of a result depends on all of its sources.
    Mixed,
    /// The same, in floating point.
    MixedFloat,
    /// One element in floating point: bytes of the result, bytes of the last source, and how many
    /// sources it has. The rest comes from the first source. Three are operand 0 and two more, four
    /// the same with the rest from operand 1.
    Scalar(u8, u8, u8),
    /// A general register from one element.
    ToGpr(u8),
    /// Elements of other sizes: bytes of the result's, bytes of the source's.
    Convert(u8, u8),
    /// Saturated elements.
    Saturate(u8, u8),
    /// Truncated elements.
    Truncate(u8, u8),
    /// Zero-extended elements.
    ZeroExtend(u8, u8),
    /// Sign-extended elements.
    SignExtend(u8, u8),
    /// Shifted lanes.
    Shift(Shift, u8),
    /// Bytes that an immediate or nothing chooses: which, and the lanes of the mask.
    Shuffle(Shuffle, u8),
    /// Bytes that a vector chooses within 16: lanes of that vector.
    Choose(u8),
    /// Two vectors' lanes, chosen by the signs of a third.
    BlendVariable(u8),
    /// Two vectors' lanes, chosen by the mask.
    BlendMask(u8),
    /// Two vectors of narrower elements: bytes of the source's.
    Pack(u8),
    /// Pairs of neighbouring lanes, in floating point or not.
    Horizontal(u8),
    /// Any function of three bits, bit by bit.
    Ternary(u8),
    /// `movss`, `movsd`, `vmovsh`.
    MoveScalar(u8),
    /// `movd`, `movq`, `vmovw`: the lowest bytes, the rest is cleared.
    MoveLow(u8),
    /// `movlps` and its like.
    MoveHalf {
        high: bool,
    },
    /// One element to a general register or memory.
    Extract(u8),
    /// A bit for the sign of each lane, in a general register.
    Signs(u8),
    /// A bit for each lane, in an opmask register.
    ToMask(u8),
    /// One bit, in an opmask register.
    ScalarToMask(u8),
    /// A bit for the sign of each lane, in an opmask register.
    SignsToMask(u8),
    /// A lane for each bit of an opmask register.
    FromMask(u8),
    /// Lane by lane, into a vector or an opmask register.
    Compare(u8),
    /// The same, in floating point.
    CompareFloat(u8),
    /// One element in floating point, into a vector or an opmask register.
    CompareScalar(u8),
    /// `vpermilps` and `vpermilpd`, with an immediate or a vector.
    PermuteInLanes(u8),
    /// `vpermq` and `vpermpd`, with an immediate or a vector.
    PermuteQuads,
    /// `ldmxcsr` and `stmxcsr`.
    Mxcsr,
    /// Flags from so many bytes of both; 0 means all.
    Flags(u8),
    /// `maskmovdqu` and its like.
    ByteMasked,
    /// `vmaskmovps` and its like.
    LaneMasked(u8),
    Gather,
    Scatter,
    /// `vzeroupper` clears from here on.
    ZeroFrom(u8),
    ZeroLine,
    DirectStore,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Dwords,
    WordsLow,
    WordsHigh,
    Singles,
    Doubles,
    DoublesOfOne,
    Quads,
    Halves,
    Sixteens,
    Align,
    AlignElements,
    BytesLeft,
    BytesRight,
    UnpackLow,
    UnpackHigh,
    DuplicateEven,
    DuplicateOdd,
    DuplicateDoubles,
    Blend,
    BlendWords,
    Broadcast(u8),
    Insert,
    ExtractPart,
    InsertElement,
    InsertSingle,
    HighToLow,
    LowToHigh,
}

/// What an opmask instruction does with `bytes` of its operands.
#[derive(Clone, Copy)]
pub(crate) enum Opmask {
    Move,
    Bitwise,
    Sum,
    ShiftLeft,
    ShiftRight,
    Unpack,
    Test,
}

const SOURCES_MAX: usize = 4;

#[derive(Clone, Copy)]
struct Sources {
    spans: [Span; SOURCES_MAX],
    count: usize,
}

impl Sources {
    fn all(&self) -> &[Span] {
        &self.spans[..self.count]
    }
}

impl Builder<'_> {
    /// Writes a result to operand 0: merges it under the mask, if there is one, whose bits stand
    /// for lanes of this many bytes, and clears what has to be cleared.
    pub fn write_vector(&mut self, result: Span, lane: usize) -> Answer {
        let to = self.data(0)?;
        let result = result.low(to.len());
        if self.insn.has_op_mask() {
            let mask = Place::opmask(self.insn.op_mask().number());
            if !self.insn.zeroing_masking() {
                self.union(result.place, result, to.place);
            }
            self.masked(lane, result, mask);
        }
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    /// A move of a whole register or memory operand.
    pub fn vector_move(&mut self, lane: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        if !self.insn.has_op_mask() {
            self.copy(to.place, from.low(to.len()));
            self.finish(0);
            return Ok(());
        }
        let result = self.temporary(to.len());
        self.copy(result.place, from);
        self.write_vector(result, lane)
    }

    fn is_data(&self, operand: u32) -> bool {
        matches!(
            self.insn.op_kind(operand),
            OpKind::Register | OpKind::Memory
        )
    }

    /// An operand, with an embedded broadcast spread to so many bytes.
    fn stage(&mut self, operand: u32, bytes: usize) -> Result<Span, Unknown> {
        let span = self.data(operand)?;
        if !self.insn.is_broadcast() || !self.is_memory(operand) {
            return Ok(span);
        }
        let spread = self.temporary(bytes);
        for first in (0..bytes).step_by(span.len()) {
            self.copy(spread.at(first), span.low(span.len().min(bytes - first)));
        }
        Ok(spread)
    }

    /// All operands that the operation reads, as so many bytes each.
    fn sources(&mut self, bytes: usize) -> Result<Sources, Unknown> {
        let mut sources = Sources {
            spans: [Span::EMPTY; SOURCES_MAX],
            count: 0,
        };
        for operand in 0..self.insn.op_count() {
            if self.is_data(operand) && self.reads(operand) {
                if sources.count == SOURCES_MAX {
                    return Err(Unknown("many operands"));
                }
                sources.spans[sources.count] = self.stage(operand, bytes)?;
                sources.count += 1;
            }
        }
        Ok(sources)
    }

    /// The first and the last source of an instruction that has two, in whichever encoding.
    fn two(&mut self, bytes: usize) -> Result<(Span, Span), Unknown> {
        let mut last = self.insn.op_count() - 1;
        while !self.is_data(last) {
            last -= 1;
        }
        let first = u32::from(last > 1);
        Ok((self.stage(first, bytes)?, self.stage(last, bytes)?))
    }

    fn immediate(&self) -> usize {
        self.insn.immediate8().into()
    }

    fn mask_place(&self) -> Option<Place> {
        self.insn
            .has_op_mask()
            .then(|| Place::opmask(self.insn.op_mask().number()))
    }

    /// Floating-point exceptions depend on everything that is computed with.
    fn raise(&mut self, sources: &[Span]) {
        for span in sources {
            self.fold_more(Place::MXCSR_STATUS, *span);
        }
        if let Some(mask) = self.mask_place() {
            self.fold_more(Place::MXCSR_STATUS, Span::new(mask, 8));
        }
        self.fold_more(Place::MXCSR_STATUS, Span::new(Place::MXCSR_CONTROL, 1));
    }

    pub fn vector(&mut self, rule: Vector) -> Answer {
        match rule {
            Vector::Bitwise(lane) => self.lanewise(lane, false, |builder, to, a, b| {
                builder.union(to, a, b);
            }),
            Vector::Lanes(lane) => self.lanewise(lane, false, move |builder, to, a, b| {
                builder.lanes(lane.into(), to, a, b);
            }),
            Vector::LanesOfBytes(lane) => self.lanewise(1, false, move |builder, to, a, b| {
                builder.lanes(lane.into(), to, a, b);
            }),
            Vector::Float(lane) => self.lanewise(lane, true, move |builder, to, a, b| {
                builder.lanes(lane.into(), to, a, b);
            }),
            Vector::Sum(lane) => self.lanewise(lane, false, move |builder, to, a, b| {
                builder.carry(lane.into(), to, a, b);
            }),
            Vector::Mixed => self.mixed(false),
            Vector::MixedFloat => self.mixed(true),
            Vector::Scalar(to, from, arity) => self.scalar(to.into(), from.into(), arity),
            Vector::ToGpr(bytes) => self.element_to_gpr(bytes.into()),
            Vector::Convert(to, from) => self.resize(to.into(), from.into(), true),
            Vector::Saturate(to, from) => self.resize(to.into(), from.into(), false),
            Vector::Truncate(to, from) => self.truncate(to.into(), from.into()),
            Vector::ZeroExtend(to, from) => self.widen_lanes(to.into(), from.into(), false),
            Vector::SignExtend(to, from) => self.widen_lanes(to.into(), from.into(), true),
            Vector::Shift(shift, lane) => self.shift_lanes(shift, lane.into()),
            Vector::Shuffle(shuffle, lane) => self.shuffle(shuffle, lane.into()),
            Vector::Choose(lane) => self.choose(lane.into()),
            Vector::BlendVariable(lane) => self.blend_variable(lane.into()),
            Vector::BlendMask(lane) => self.blend_mask(lane.into()),
            Vector::Pack(from) => self.pack(from.into()),
            Vector::Horizontal(lane) => self.horizontal(lane.into()),
            Vector::Ternary(lane) => self.ternary(lane.into()),
            Vector::MoveScalar(bytes) => self.move_scalar(bytes.into()),
            Vector::MoveLow(bytes) => self.move_low(bytes.into()),
            Vector::MoveHalf { high } => self.move_half(high),
            Vector::Extract(bytes) => self.extract(bytes.into()),
            Vector::Signs(lane) => self.sign_bits(lane.into()),
            Vector::ToMask(lane) => self.compare_to_mask(lane.into(), None),
            Vector::ScalarToMask(bytes) => self.compare_to_mask(bytes.into(), Some(bytes.into())),
            Vector::SignsToMask(lane) => self.signs_to_mask(lane.into()),
            Vector::FromMask(lane) => self.spread_mask(lane.into()),
            Vector::Flags(bytes) => self.compare_to_flags(bytes.into()),
            Vector::Compare(lane) if self.writes_mask() => self.compare_to_mask(lane.into(), None),
            Vector::Compare(lane) => self.vector(Vector::Lanes(lane)),
            Vector::CompareFloat(lane) if self.writes_mask() => {
                self.compare_to_mask(lane.into(), None)
            }
            Vector::CompareFloat(lane) => self.vector(Vector::Float(lane)),
            Vector::CompareScalar(lane) if self.writes_mask() => {
                self.compare_to_mask(lane.into(), Some(lane.into()))
            }
            Vector::CompareScalar(lane) => self.scalar(lane.into(), lane.into(), 2),
            Vector::PermuteInLanes(lane) if self.is_data(self.insn.op_count() - 1) => {
                self.choose(lane.into())
            }
            Vector::PermuteInLanes(4) => self.shuffle(Shuffle::Dwords, 4),
            Vector::PermuteInLanes(lane) => self.shuffle(Shuffle::DoublesOfOne, lane.into()),
            Vector::PermuteQuads if self.is_data(self.insn.op_count() - 1) => self.mixed(false),
            Vector::PermuteQuads => self.shuffle(Shuffle::Quads, 8),
            Vector::Mxcsr => self.mxcsr(),
            Vector::ByteMasked => self.byte_masked(),
            Vector::LaneMasked(lane) => self.lane_masked(lane.into()),
            Vector::Gather => self.gather(),
            Vector::Scatter => self.scatter(),
            Vector::ZeroFrom(byte) => {
                for number in 0..16 {
                    let from = usize::from(byte);
                    self.clear(Span::new(Place::vector(number).plus(from), 64 - from));
                }
                Ok(())
            }
            Vector::ZeroLine => {
                let narrow = self.insn.code() == Code::Clzerod;
                let address = Span::new(Place::gpr(0), if narrow { 4 } else { 8 });
                let line = self.memory_by(At::Line, 64, address);
                self.clear(line);
                Ok(())
            }
            Vector::DirectStore => {
                let address = self.data(0)?;
                let from = self.memory();
                let to = self.memory_by(At::RegisterDestination, 64, address);
                self.copy(to.place, from);
                Ok(())
            }
        }
    }

    /// An operation that is the same for each lane. `combine(to, a, b)` gives two sources' labels
    /// to a third place, of which it reads nothing that it has overwritten.
    fn lanewise(
        &mut self,
        lane: u8,
        float: bool,
        combine: impl Fn(&mut Self, Place, Span, Place),
    ) -> Answer {
        let to = self.data(0)?;
        let sources = self.sources(to.len())?;
        let in_place = !self.insn.has_op_mask() && sources.count <= 2 && !float;
        let result = if in_place {
            to
        } else {
            self.temporary(to.len())
        };
        match *sources.all() {
            // iced knows which operations of a register with itself have a constant result.
            [] => self.clear(result),
            [one] => combine(self, result.place, one.low(to.len()), one.place),
            [a, b, ref more @ ..] => {
                combine(self, result.place, a.low(to.len()), b.place);
                for span in more {
                    combine(self, result.place, result, span.place);
                }
            }
        }
        if float {
            self.fill_more(result, Place::MXCSR_CONTROL);
            self.raise(sources.all());
        }
        self.write_vector(result, lane.into())
    }

    /// Every result byte depends on every source byte.
    fn mixed(&mut self, float: bool) -> Answer {
        if !float {
            let all = self.gathered()?;
            if matches!(self.insn.mnemonic(), Mnemonic::Extrq | Mnemonic::Insertq) {
                // iced calls the destination overwritten, but some of it stays.
                let kept = self.data(0)?;
                self.fold_more(all, kept);
            }
            return self.write_everywhere(all);
        }
        // The exceptions depend on what the result depends on.
        self.fold_more(Place::MXCSR_STATUS, Span::new(Place::MXCSR_CONTROL, 1));
        let sources = self.sources(64)?;
        self.raise(sources.all());
        let all = self.gathered()?;
        self.fold_more(all, Span::new(Place::MXCSR_CONTROL, 1));
        self.write_everywhere(all)
    }

    fn scalar(&mut self, bytes: usize, from: usize, arity: u8) -> Answer {
        let (mut rest, last) = self.two(16)?;
        let mut parts = [
            Source::Data(last.low(from)),
            Source::Constant(0),
            Source::Constant(0),
        ];
        if arity >= 2 {
            parts[1] = Source::Data(rest.low(bytes));
        }
        if arity >= 3 {
            parts[2] = Source::Data(self.data(0)?.low(bytes));
        }
        if arity == 3 {
            rest = self.data(0)?;
        }
        let all = self.join(&parts);
        self.fold_more(all, Span::new(Place::MXCSR_CONTROL, 1));
        self.raise(&[Span::new(all, 1)]);
        let to = self.data(0)?;
        let result = self.temporary(16);
        self.copy(result.place, rest.low(16));
        let low = result.low(bytes);
        self.fill(low, all);
        if let Some(mask) = self.mask_place() {
            if !self.insn.zeroing_masking() {
                self.union(low.place, low, to.place);
            }
            self.fill_more(low, mask);
        }
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    fn element_to_gpr(&mut self, bytes: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let all = self.join(&[
            Source::Data(from.low(bytes)),
            Source::Data(Span::new(Place::MXCSR_CONTROL, 1)),
        ]);
        self.raise(&[Span::new(all, 1)]);
        self.fill(to, all);
        self.finish(0);
        Ok(())
    }

    /// Element by element, each byte of the result from all of the source's element.
    fn resize(&mut self, to: usize, from: usize, float: bool) -> Answer {
        let target = self.data(0)?;
        let source = self.stage(1, target.len() / to * from)?;
        let elements = (target.len() / to).min(source.len() / from);
        let result = self.temporary(target.len());
        self.clear(result);
        for element in 0..elements {
            let part = result.part(element * to, to);
            self.fold(part.place, source.part(element * from, from));
            self.fill(part.part(1, to - 1), part.place);
        }
        if float {
            let used = result.low(elements * to);
            self.fill_more(used, Place::MXCSR_CONTROL);
            self.raise(&[used]);
        }
        self.write_vector(result, to)
    }

    fn truncate(&mut self, to: usize, from: usize) -> Answer {
        let (target, source) = (self.data(0)?, self.data(1)?);
        let result = self.temporary(target.len());
        let bytes = source.len() / from * to;
        self.permute(result, |byte| {
            (byte < bytes).then(|| source.at(byte / to * from + byte % to))
        });
        self.write_vector(result, to)
    }

    fn widen_lanes(&mut self, to: usize, from: usize, signed: bool) -> Answer {
        let (target, source) = (self.data(0)?, self.data(1)?);
        let result = self.temporary(target.len());
        self.permute(result, |byte| {
            (byte % to < from).then(|| source.at(byte / to * from + byte % to))
        });
        if signed {
            for element in 0..target.len() / to {
                let upper = result.part(element * to + from, to - from);
                self.fill(upper, source.at(element * from + from - 1));
            }
        }
        self.write_vector(result, to)
    }

    fn shift_lanes(&mut self, shift: Shift, lane: usize) -> Answer {
        let to = self.data(0)?;
        let last = self.insn.op_count() - 1;
        // Legacy instructions shift operand 0.
        let first = u32::from(last > 1);
        let source = self.stage(first, to.len())?;
        let result = self.temporary(to.len());
        match self.source(last)? {
            Source::Constant(count) => {
                let rotates = matches!(shift, Shift::RotateLeft | Shift::RotateRight);
                let count = if rotates {
                    count as usize % (8 * lane)
                } else {
                    count as usize
                };
                for at in (0..to.len()).step_by(lane) {
                    self.shift_bytes(result.part(at, lane), source.part(at, lane), shift, count);
                }
            }
            Source::Data(count) => {
                self.lanes(lane, result.place, source, source.place);
                let count = self.join(&[Source::Data(count.low(8))]);
                self.fill_more(result, count);
            }
        }
        self.write_vector(result, lane)
    }

    fn shuffle(&mut self, shuffle: Shuffle, lane: usize) -> Answer {
        let to = self.data(0)?;
        let n = to.len();
        let immediate = self.immediate();
        let one = matches!(
            shuffle,
            Shuffle::Dwords
                | Shuffle::WordsLow
                | Shuffle::WordsHigh
                | Shuffle::DoublesOfOne
                | Shuffle::Quads
                | Shuffle::BytesLeft
                | Shuffle::BytesRight
                | Shuffle::DuplicateEven
                | Shuffle::DuplicateOdd
                | Shuffle::DuplicateDoubles
                | Shuffle::Broadcast(_)
                | Shuffle::ExtractPart
        );
        let (a, b) = if one {
            // `pslldq` has its only operand first in the legacy encoding.
            let only = if self.insn.op_count() > 1 && self.is_data(1) {
                1
            } else {
                0
            };
            let span = self.stage(only, n)?;
            (span, span)
        } else {
            self.two(n)?
        };
        let in_memory = self.insn.op_count() > 2 && self.is_memory(self.last_data());
        let pick = |element: usize, bits: usize| immediate >> (bits * element) & ((1 << bits) - 1);
        let block = n.min(16);
        let result = self.temporary(n);
        self.permute(result, |i| {
            let (base, within) = (i / block * block, i % block);
            let from_a = |byte: usize| Some(a.at(byte));
            let from_b = |byte: usize| Some(b.at(byte));
            match shuffle {
                Shuffle::Dwords => from_a(base + 4 * pick(within / 4, 2) + i % 4),
                Shuffle::WordsLow if within < 8 => from_a(base + 2 * pick(within / 2, 2) + i % 2),
                Shuffle::WordsHigh if within >= 8 => {
                    from_a(base + 8 + 2 * pick((within - 8) / 2, 2) + i % 2)
                }
                Shuffle::WordsLow | Shuffle::WordsHigh => from_a(i),
                Shuffle::Singles => {
                    let byte = base + 4 * pick(within / 4, 2) + i % 4;
                    if within < 8 {
                        from_a(byte)
                    } else {
                        from_b(byte)
                    }
                }
                Shuffle::Doubles | Shuffle::DoublesOfOne => {
                    let byte = base + 8 * pick(i / 8, 1) + i % 8;
                    if within < 8 {
                        from_a(byte)
                    } else {
                        from_b(byte)
                    }
                }
                Shuffle::Quads => from_a(i / 32 * 32 + 8 * pick(i % 32 / 8, 2) + i % 8),
                Shuffle::Halves => {
                    let control = immediate >> (4 * (i / 16));
                    let byte = 16 * (control & 1) + i % 16;
                    match control & 0xA {
                        0 => from_a(byte),
                        2 => from_b(byte),
                        _ => None,
                    }
                }
                Shuffle::Sixteens if n == 32 => {
                    let byte = 16 * pick(i / 16, 1) + i % 16;
                    if i < 16 { from_a(byte) } else { from_b(byte) }
                }
                Shuffle::Sixteens => {
                    let byte = 16 * pick(i / 16, 2) + i % 16;
                    if i < 32 { from_a(byte) } else { from_b(byte) }
                }
                Shuffle::Align => match within + immediate {
                    at if at < block => from_b(base + at),
                    at if at < 2 * block => from_a(base + at - block),
                    _ => None,
                },
                Shuffle::AlignElements => match i + immediate % (n / lane) * lane {
                    at if at < n => from_b(at),
                    at => from_a(at - n),
                },
                Shuffle::BytesLeft => (within >= immediate).then(|| a.at(i - immediate)),
                Shuffle::BytesRight => (within + immediate < block).then(|| a.at(i + immediate)),
                Shuffle::UnpackLow | Shuffle::UnpackHigh => {
                    let half = if shuffle == Shuffle::UnpackHigh {
                        block / 2
                    } else {
                        0
                    };
                    let byte = base + half + within / (2 * lane) * lane + i % lane;
                    if (within / lane).is_multiple_of(2) {
                        from_a(byte)
                    } else {
                        from_b(byte)
                    }
                }
                Shuffle::DuplicateEven => from_a(i / 8 * 8 + i % 4),
                Shuffle::DuplicateOdd => from_a(i / 8 * 8 + 4 + i % 4),
                Shuffle::DuplicateDoubles => from_a(base + i % 8),
                Shuffle::Blend | Shuffle::BlendWords => {
                    let bit = if shuffle == Shuffle::Blend {
                        i / lane
                    } else {
                        within / 2
                    };
                    if pick(bit, 1) == 1 {
                        from_b(i)
                    } else {
                        from_a(i)
                    }
                }
                Shuffle::Broadcast(bytes) => from_a(i % usize::from(bytes)),
                Shuffle::Insert => {
                    let part = b.len();
                    if i / part == immediate % (n / part) {
                        from_b(i % part)
                    } else {
                        from_a(i)
                    }
                }
                Shuffle::ExtractPart => from_a(immediate % (a.len() / n) * n + i),
                Shuffle::InsertElement => {
                    if i / lane == immediate % (n / lane) {
                        from_b(i % lane)
                    } else {
                        from_a(i)
                    }
                }
                Shuffle::InsertSingle => {
                    if immediate >> (i / 4) & 1 == 1 {
                        None
                    } else if i / 4 == immediate >> 4 & 3 {
                        let element = if in_memory || b.len() == 4 {
                            0
                        } else {
                            immediate >> 6
                        };
                        from_b(4 * element + i % 4)
                    } else {
                        from_a(i)
                    }
                }
                Shuffle::HighToLow => {
                    if i < 8 {
                        from_b(8 + i)
                    } else {
                        from_a(i)
                    }
                }
                Shuffle::LowToHigh => {
                    if i < 8 {
                        from_a(i)
                    } else {
                        from_b(i - 8)
                    }
                }
            }
        });
        let mask_lane = match shuffle {
            Shuffle::WordsLow | Shuffle::WordsHigh => 2,
            Shuffle::Align => 1,
            _ => lane,
        };
        self.write_vector(result, mask_lane)
    }

    fn last_data(&self) -> u32 {
        let mut last = self.insn.op_count() - 1;
        while !self.is_data(last) {
            last -= 1;
        }
        last
    }

    /// `pshufb`, and `vpermilps` with a vector: each lane is chosen from its 16 bytes.
    fn choose(&mut self, lane: usize) -> Answer {
        let to = self.data(0)?;
        let (data, control) = self.two(to.len())?;
        let result = self.temporary(to.len());
        self.lanes(to.len().min(16), result.place, data, data.place);
        if lane == 1 {
            self.union(result.place, result, control.place);
        } else {
            let chosen = self.temporary(to.len());
            self.lanes(lane, chosen.place, control, control.place);
            self.union(result.place, result, chosen.place);
        }
        self.write_vector(result, lane)
    }

    fn blend_variable(&mut self, lane: usize) -> Answer {
        let to = self.data(0)?;
        let (a, b, chooser) = if self.insn.op_count() == 4 {
            (self.data(1)?, self.data(2)?, self.data(3)?)
        } else {
            (to, self.data(1)?, Span::new(Place::vector(0), to.len()))
        };
        let (result, chosen) = (self.temporary(to.len()), self.temporary(to.len()));
        self.union(result.place, a, b.place);
        self.lanes(lane, chosen.place, chooser, chooser.place);
        self.union(result.place, result, chosen.place);
        self.write_vector(result, lane)
    }

    fn blend_mask(&mut self, lane: usize) -> Answer {
        let to = self.data(0)?;
        let (a, b) = self.two(to.len())?;
        let result = self.temporary(to.len());
        match self.mask_place() {
            None => self.copy(result.place, b),
            Some(mask) => {
                if self.insn.zeroing_masking() {
                    self.copy(result.place, b);
                } else {
                    self.union(result.place, a, b.place);
                }
                self.masked(lane, result, mask);
            }
        }
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    fn pack(&mut self, from: usize) -> Answer {
        let to = self.data(0)?;
        let (a, b) = self.two(to.len())?;
        let block = to.len().min(16);
        let narrow = from / 2;
        let result = self.temporary(to.len());
        for element in 0..to.len() / narrow {
            let (base, within) = (element * narrow / block * block, element * narrow % block);
            let (source, half) = if within < block / 2 {
                (a, 0)
            } else {
                (b, block / 2)
            };
            let at = base + (within - half) * 2;
            let part = result.part(element * narrow, narrow);
            self.fold(part.place, source.part(at, from));
            self.fill(part.part(1, narrow - 1), part.place);
        }
        self.write_vector(result, narrow)
    }

    fn horizontal(&mut self, lane: usize) -> Answer {
        let to = self.data(0)?;
        let (a, b) = self.two(to.len())?;
        let float = !matches!(
            self.insn.mnemonic(),
            Mnemonic::Phaddd
                | Mnemonic::Phaddsw
                | Mnemonic::Phaddw
                | Mnemonic::Phsubd
                | Mnemonic::Phsubsw
                | Mnemonic::Phsubw
                | Mnemonic::Vphaddd
                | Mnemonic::Vphaddsw
                | Mnemonic::Vphaddw
                | Mnemonic::Vphsubd
                | Mnemonic::Vphsubsw
                | Mnemonic::Vphsubw
        );
        let block = to.len().min(16);
        let result = self.temporary(to.len());
        for first in (0..to.len()).step_by(lane) {
            let (base, within) = (first / block * block, first % block);
            let (source, half) = if within < block / 2 {
                (a, 0)
            } else {
                (b, block / 2)
            };
            let part = result.part(first, lane);
            self.fold(
                part.place,
                source.part(base + (within - half) * 2, 2 * lane),
            );
            self.fill(part.part(1, lane - 1), part.place);
        }
        if float {
            self.fill_more(result, Place::MXCSR_CONTROL);
            self.raise(&[result]);
        }
        self.write_vector(result, lane)
    }

    /// `vpternlog`: the immediate is a table of 8 bits; an operand that makes no difference in it
    /// is no source.
    fn ternary(&mut self, lane: usize) -> Answer {
        let to = self.data(0)?;
        let table = self.immediate();
        let differs = |distance: usize| {
            (0..8).any(|index| {
                index & distance == 0 && (table >> index & 1) != (table >> (index | distance) & 1)
            })
        };
        let result = self.temporary(to.len());
        self.clear(result);
        for (operand, distance) in [(0, 4), (1, 2), (2, 1)] {
            if differs(distance) {
                let source = self.stage(operand, to.len())?;
                self.union(result.place, result, source.place);
            }
        }
        self.write_vector(result, lane)
    }

    fn move_scalar(&mut self, bytes: usize) -> Answer {
        let to = self.data(0)?;
        if self.insn.op_count() == 2 && self.is_memory(1) {
            let from = self.memory();
            let result = self.temporary(16);
            self.copy(result.place, from);
            self.clear(result.part(bytes, 16 - bytes));
            return self.write_scalar(to, result, bytes);
        }
        if self.is_memory(0) {
            let from = self.data(1)?;
            let result = self.temporary(bytes);
            self.copy(result.place, from.low(bytes));
            return self.write_scalar(to, result, bytes);
        }
        let (a, b) = self.two(16)?;
        let result = self.temporary(16);
        self.copy(result.place, b.low(bytes));
        self.copy(result.at(bytes), a.part(bytes, 16 - bytes));
        self.write_scalar(to, result, bytes)
    }

    /// The mask concerns the lowest element only.
    fn write_scalar(&mut self, to: Span, result: Span, bytes: usize) -> Answer {
        let low = result.low(bytes);
        if let Some(mask) = self.mask_place() {
            if !self.insn.zeroing_masking() {
                self.union(low.place, low, to.place);
            }
            self.fill_more(low, mask);
        }
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    fn move_low(&mut self, bytes: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let value = self.temporary(bytes);
        self.copy(value.place, from.low(bytes));
        self.copy(to.place, value);
        self.clear(to.part(bytes, to.len() - bytes));
        self.finish(0);
        Ok(())
    }

    fn move_half(&mut self, high: bool) -> Answer {
        let to = self.data(0)?;
        let at = if high { 8 } else { 0 };
        if self.is_memory(0) {
            let from = self.data(1)?;
            self.copy(to.place, from.part(at, 8));
            return Ok(());
        }
        let (a, b) = self.two(16)?;
        let result = self.temporary(16);
        self.copy(result.place, a.low(16));
        self.copy(result.at(at), b.low(8));
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    fn extract(&mut self, bytes: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        let element = self.immediate() % (from.len() / bytes);
        self.copy(to.place, from.part(element * bytes, bytes));
        if self.is_register(0) {
            let all = Span::new(to.place, 8);
            self.clear(all.part(bytes, 8 - bytes));
        }
        Ok(())
    }

    fn sign_bits(&mut self, lane: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        self.signs(lane, to.place, from);
        let bytes = from.len().div_ceil(8 * lane);
        self.clear(Span::new(to.place.plus(bytes), 8 - bytes));
        Ok(())
    }

    fn compare_to_mask(&mut self, lane: usize, scalar: Option<usize>) -> Answer {
        let to = self.data(0)?;
        let width = (1..self.insn.op_count())
            .filter(|operand| self.is_register(*operand))
            .map(|operand| self.insn.op_register(operand).size())
            .max()
            .unwrap_or(64);
        let float = matches!(
            self.insn.mnemonic(),
            Mnemonic::Vcmpps
                | Mnemonic::Vcmppd
                | Mnemonic::Vcmpss
                | Mnemonic::Vcmpsd
                | Mnemonic::Vfpclassps
                | Mnemonic::Vfpclasspd
                | Mnemonic::Vfpclassss
                | Mnemonic::Vfpclasssd
        );
        let result = self.temporary(8);
        self.clear(result);
        for operand in 1..self.insn.op_count() {
            if !self.is_data(operand) || (self.same(1, 2) && !float && self.cancels()) {
                continue;
            }
            let source = match scalar {
                Some(bytes) => self.data(operand)?.low(bytes),
                None => self.stage(operand, width)?,
            };
            let part = self.temporary(8);
            self.bits(lane, part.place, source);
            let bytes = source.len().div_ceil(8 * lane);
            self.union(result.place, result.low(bytes), part.place);
            if float {
                self.raise(&[source]);
            }
        }
        let lanes = scalar.map_or(width / lane, |_| 1);
        let used = result.low(lanes.div_ceil(8));
        if float {
            self.fill_more(used, Place::MXCSR_CONTROL);
        }
        if let Some(mask) = self.mask_place() {
            self.union(used.place, used, mask);
        }
        self.copy(to.place, result);
        Ok(())
    }

    fn writes_mask(&self) -> bool {
        self.insn.op0_register().is_k()
    }

    /// Whether the comparison of a vector with itself has a known result.
    fn cancels(&self) -> bool {
        !matches!(
            self.insn.mnemonic(),
            Mnemonic::Vptestmb
                | Mnemonic::Vptestmw
                | Mnemonic::Vptestmd
                | Mnemonic::Vptestmq
                | Mnemonic::Vptestnmb
                | Mnemonic::Vptestnmw
                | Mnemonic::Vptestnmd
                | Mnemonic::Vptestnmq
        )
    }

    fn mxcsr(&mut self) -> Answer {
        let memory = self.memory();
        if self.is_store() {
            self.fill(memory, Place::MXCSR_CONTROL);
            self.fold_more(memory.place, Span::new(Place::MXCSR_STATUS, 1));
        } else {
            self.fold(Place::MXCSR_CONTROL, memory);
            self.fold(Place::MXCSR_STATUS, memory.low(1));
        }
        Ok(())
    }

    fn is_store(&self) -> bool {
        matches!(self.insn.mnemonic(), Mnemonic::Stmxcsr | Mnemonic::Vstmxcsr)
    }

    fn signs_to_mask(&mut self, lane: usize) -> Answer {
        let (to, from) = (self.data(0)?, self.data(1)?);
        self.clear(to);
        self.signs(lane, to.place, from);
        Ok(())
    }

    fn spread_mask(&mut self, lane: usize) -> Answer {
        let (to, mask) = (self.data(0)?, self.data(1)?);
        self.clear(to);
        self.masked(lane, to, mask.place);
        self.finish(0);
        Ok(())
    }

    fn compare_to_flags(&mut self, bytes: usize) -> Answer {
        let (a, b) = (self.data(0)?, self.data(1)?);
        let low = |span: Span| if bytes == 0 { span } else { span.low(bytes) };
        let all = self.join(&[Source::Data(low(a)), Source::Data(low(b))]);
        if bytes != 0 {
            self.fold_more(all, Span::new(Place::MXCSR_CONTROL, 1));
            self.raise(&[Span::new(all, 1)]);
        }
        self.flags_from(all);
        Ok(())
    }

    // ── memory ──────────────────────────────────────────────────────────────────────────────────

    fn byte_masked(&mut self) -> Answer {
        let (from, mask) = (self.data(1)?, self.data(2)?);
        let narrow = self.insn.op0_kind() == OpKind::MemorySegEDI;
        let address = Span::new(Place::gpr(RDI), if narrow { 4 } else { 8 });
        let to = self.memory_by(At::Rdi, from.len(), address);
        self.union(to.place, to, from.place);
        self.union(to.place, to, mask.place);
        Ok(())
    }

    fn lane_masked(&mut self, lane: usize) -> Answer {
        let (to, mask, from) = (self.data(0)?, self.data(1)?, self.data(2)?);
        let result = self.temporary(to.len());
        self.lanes(lane, result.place, mask, mask.place);
        self.union(result.place, result, from.place);
        if self.is_memory(0) {
            self.union(result.place, result, to.place);
        }
        self.copy(to.place, result);
        self.finish(0);
        Ok(())
    }

    fn elements(&mut self, vector: &VectorIndexed) -> Span {
        let bytes = usize::from(vector.elements) * usize::from(vector.element_bytes);
        let memory = self.memory_at(At::Elements, bytes);
        self.operand_mut(memory).element_bytes = vector.element_bytes.into();
        memory
    }

    /// The label of the mask, for each byte of each element.
    fn element_mask(&mut self, vector: &VectorIndexed, result: Span) {
        let lane = usize::from(vector.element_bytes);
        match vector.mask {
            Mask::Opmask(number) => self.masked(lane, result, Place::opmask(number.into())),
            Mask::Vector(number) => {
                let mask = self.temporary(result.len());
                let place = Place::vector(number.into());
                self.lanes(lane, mask.place, Span::new(place, result.len()), place);
                self.union(result.place, result, mask.place);
            }
        }
    }

    fn gather(&mut self) -> Answer {
        let MemoryForm::Gather(vector) = classify(self.insn) else {
            return Err(Unknown("an unexpected form of a gather"));
        };
        let to = self.data(0)?;
        let from = self.elements(&vector);
        let result = self.temporary(from.len());
        self.union(result.place, from, to.place);
        self.element_mask(&vector, result);
        self.copy(to.place, result);
        self.clear(Span::new(to.place.plus(from.len()), 64 - from.len()));
        match vector.mask {
            Mask::Opmask(number) => self.clear(Span::new(Place::opmask(number.into()), 8)),
            Mask::Vector(number) => self.clear(Span::new(Place::vector(number.into()), 64)),
        }
        Ok(())
    }

    fn scatter(&mut self) -> Answer {
        let MemoryForm::Scatter(vector) = classify(self.insn) else {
            return Err(Unknown("an unexpected form of a scatter"));
        };
        let from = self.data(1)?;
        let to = self.elements(&vector);
        let value = self.temporary(to.len());
        self.copy(value.place, from.low(to.len()));
        self.element_mask(&vector, value);
        // Elements may lie upon each other: each adds to what is there.
        self.union(to.place, to, value.place);
        if let Mask::Opmask(number) = vector.mask {
            self.clear(Span::new(Place::opmask(number.into()), 8));
        }
        Ok(())
    }

    // ── opmasks ─────────────────────────────────────────────────────────────────────────────────

    pub fn opmask(&mut self, what: Opmask, bytes: usize) -> Answer {
        let rest = |span: Span| Span::new(span.place.plus(bytes), 8 - bytes);
        match what {
            Opmask::Move => {
                let (to, from) = (self.data(0)?, self.data(1)?);
                self.copy(to.place, from.low(bytes));
                if self.is_register(0) {
                    self.clear(rest(to));
                }
            }
            Opmask::Bitwise | Opmask::Sum => {
                let to = self.data(0)?;
                let (a, b) = self.two(8)?;
                let same = self.insn.op_count() == 3 && self.same(1, 2);
                let constant = same
                    && matches!(
                        self.insn.mnemonic(),
                        Mnemonic::Kxorb
                            | Mnemonic::Kxorw
                            | Mnemonic::Kxord
                            | Mnemonic::Kxorq
                            | Mnemonic::Kxnorb
                            | Mnemonic::Kxnorw
                            | Mnemonic::Kxnord
                            | Mnemonic::Kxnorq
                            | Mnemonic::Kandnb
                            | Mnemonic::Kandnw
                            | Mnemonic::Kandnd
                            | Mnemonic::Kandnq
                    );
                if constant {
                    self.clear(to.low(bytes));
                } else if self.insn.op_count() == 2 {
                    self.copy(to.place, b.low(bytes));
                } else if matches!(what, Opmask::Sum) {
                    self.carry(bytes, to.place, a.low(bytes), b.place);
                } else {
                    self.union(to.place, a.low(bytes), b.place);
                }
                self.clear(rest(to));
            }
            Opmask::ShiftLeft | Opmask::ShiftRight => {
                let (to, from) = (self.data(0)?, self.data(1)?);
                let value = self.temporary(bytes);
                self.copy(value.place, from.low(bytes));
                let shift = if matches!(what, Opmask::ShiftLeft) {
                    Shift::Left
                } else {
                    Shift::Right
                };
                let count = self.immediate();
                self.shift_bytes(to.low(bytes), value, shift, count);
                self.clear(rest(to));
            }
            Opmask::Unpack => {
                let to = self.data(0)?;
                let (high, low) = self.two(8)?;
                let half = bytes / 2;
                let value = self.temporary(bytes);
                self.copy(value.place, low.low(half));
                self.copy(value.at(half), high.low(half));
                self.copy(to.place, value);
                self.clear(rest(to));
            }
            Opmask::Test => {
                let (a, b) = (self.data(0)?, self.data(1)?);
                let all = self.join(&[Source::Data(a.low(bytes)), Source::Data(b.low(bytes))]);
                self.flags_from(all);
                self.clear_flags(&[Flag::Overflow, Flag::Sign, Flag::Auxiliary, Flag::Parity]);
            }
        }
        Ok(())
    }
}
