//! What the constructors make has the value of what was asked for.

mod common;

use brownout_random::Random;
use brownout_solve::Pool;
use common::{BINARY, Both, Step, ones};
use proptest::prelude::*;

fn compare(steps: &[Step], inputs: &[[u8; 4]]) -> Result<(), TestCaseError> {
    let mut both = Both::new(4);
    for &step in steps {
        both.step(step, 128);
    }
    for bytes in inputs {
        let input = |index: u32| bytes[index as usize];
        let expected = both.values(&input);
        let all = both.pool.eval_all(&both.expressions, &input);
        for (at, (expected, value)) in expected.iter().zip(all).enumerate() {
            prop_assert_eq!(
                *expected,
                value,
                "{} is {:?} under {:?}: {:?}",
                at,
                both.plain[at],
                bytes,
                both.plain
            );
        }
    }
    Ok(())
}

fn bytes() -> impl Strategy<Value = [u8; 4]> {
    let byte = prop_oneof![
        Just(0u8),
        Just(1),
        Just(0x7f),
        Just(0x80),
        Just(0xff),
        any::<u8>()
    ];
    prop::array::uniform4(byte)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn random_expressions_keep_their_values(
        steps in prop::collection::vec(any::<Step>(), 1..40),
        inputs in prop::collection::vec(bytes(), 4),
    ) {
        compare(&steps, &inputs)?;
    }

    #[test]
    fn two_operations_on_a_byte_keep_their_values(
        steps in prop::collection::vec(any::<Step>(), 1..6),
        inputs in prop::collection::vec(bytes(), 8),
    ) {
        compare(&steps, &inputs)?;
    }

    #[test]
    fn inputs_are_those_that_can_matter(steps in prop::collection::vec(any::<Step>(), 1..30)) {
        let mut both = Both::new(4);
        for &step in &steps {
            both.step(step, 128);
        }
        let e = *both.expressions.last().unwrap();
        let inputs = both.pool.inputs(e).to_vec();
        prop_assert!(inputs.is_sorted());
        // What is no input has no influence.
        let mut random = Random::new(3);
        for _ in 0..10 {
            let old: Vec<u8> = (0..4).map(|_| random.bits() as u8).collect();
            let new: Vec<u8> = (0..4)
                .map(|i| if inputs.contains(&i) { old[i as usize] } else { random.bits() as u8 })
                .collect();
            prop_assert_eq!(
                both.pool.eval(e, &|i| old[i as usize]),
                both.pool.eval(e, &|i| new[i as usize])
            );
        }
    }
}

/// Each operation with each interesting constant on either side, on values of a byte that is
/// extended in each way.
#[test]
fn operations_with_constants_are_right() {
    let constants = [
        0, 1, 2, 3, 7, 8, 9, 10, 0x0f, 0x3c, 0x7f, 0x80, 0x81, 0xf0, 0xfe, 0xff,
    ];
    for bits in [8, 12, 32] {
        for how in 0..3 {
            for name in BINARY {
                let mut both = Both::new(1);
                let base = both.resized(0, bits, how);
                for constant in constants {
                    for constant in [constant, !constant & ones(bits), constant << (bits - 8)] {
                        let k = both.expressions.len();
                        let e = both.pool.constant(bits, constant);
                        both.expressions.push(e);
                        both.plain.push((bits, common::Plain::Constant(constant)));
                        for result in [both.binary(name, base, k), both.binary(name, k, base)] {
                            // And once more, so that constants meet.
                            for other in ["eq", "ult", "slt", "add", "and", "xor", "udiv"] {
                                let width = both.plain[result].0;
                                let l = both.constant(width, 5 + 9 * (constant as u64 % 300));
                                both.binary(other, result, l);
                                both.binary(other, l, result);
                            }
                        }
                    }
                }
                for byte in (0..=255).step_by(5) {
                    let expected = both.values(&|_| byte);
                    let values = both.pool.eval_all(&both.expressions, &|_| byte);
                    for (at, (x, y)) in expected.iter().zip(values).enumerate() {
                        assert_eq!(*x, y, "{name} {:?} at {byte}", both.plain[at]);
                    }
                }
            }
        }
    }
}

/// Parts of a byte above one another, and parts of that.
#[test]
fn parts_and_their_concatenations_are_right() {
    for sum in [false, true] {
        let mut pool = Pool::new();
        let mut source = pool.input(0);
        if sum {
            let other = pool.input(1);
            source = pool.add(source, other);
        }
        let ranges = (0..8).flat_map(|low| (1..=8 - low).map(move |bits| (low, bits)));
        let ranges: Vec<(u32, u32)> = ranges.collect();
        let mut checks = Vec::new();
        for &(low, bits) in &ranges {
            for &(other, more) in &ranges {
                let high = pool.extract(source, low, bits);
                let rest = pool.extract(source, other, more);
                let both = pool.concat(high, rest);
                let middle = pool.extract(both, 1, bits + more - 1);
                checks.push((both, middle, (low, bits), (other, more)));
            }
        }
        for byte in [0x00, 0xff, 0x5a, 0xa5, 0x13, 0xc8] {
            let value = if sum {
                u128::from(byte + 0x1fu16) & 0xff
            } else {
                byte.into()
            };
            let input = |index: u32| if index == 0 { byte as u8 } else { 0x1f };
            let part = |(low, bits): (u32, u32)| value >> low & ones(bits);
            for &(both, middle, high, low) in &checks {
                let expected = part(high) << low.1 | part(low);
                assert_eq!(
                    pool.eval(both, &input),
                    expected,
                    "{high:?} above {low:?} of {byte:#x}"
                );
                assert_eq!(pool.eval(middle, &input), expected >> 1);
            }
        }
    }
}

/// The forms that keep bytes apart from each other.
#[test]
fn bytes_that_were_put_together_come_apart() {
    let mut pool = Pool::new();
    // A little-endian load by shifts and ors.
    let mut word = pool.constant(32, 0);
    let mut bytes = Vec::new();
    for index in 0..4 {
        let byte = pool.input(index);
        bytes.push(byte);
        let wide = pool.zext(byte, 32);
        let by = pool.constant(32, u128::from(index) * 8);
        let shifted = pool.shl(wide, by);
        word = pool.or(word, shifted);
    }
    for index in 0..4 {
        assert_eq!(pool.extract(word, index * 8, 8), bytes[index as usize]);
        // By a shift and a mask, as a compiler would write it.
        let by = pool.constant(32, u128::from(index) * 8);
        let moved = pool.lshr(word, by);
        let mask = pool.constant(32, 0xff);
        let low = pool.and(moved, mask);
        assert_eq!(pool.extract(low, 0, 8), bytes[index as usize]);
    }
    let k = pool.constant(32, 0x6465_6667);
    let equal = pool.eq(word, k);
    let mut parts = pool.constant(1, 1);
    for (index, byte) in bytes.iter().enumerate() {
        let k = pool.constant(8, 0x67 - index as u128);
        let part = pool.eq(*byte, k);
        parts = pool.and(part, parts);
    }
    let both = pool.xor(equal, parts);
    assert_eq!(pool.inputs(equal), [0, 1, 2, 3]);
    assert_eq!(pool.eval(both, &|i| 0x67 - i as u8), 0);
    // The lowest byte replaced.
    let mask = pool.constant(32, 0xffff_ff00);
    let rest = pool.and(word, mask);
    let new = pool.input(9);
    let new = pool.zext(new, 32);
    let merged = pool.or(rest, new);
    let low = pool.extract(merged, 0, 8);
    assert_eq!(pool.inputs(low), [9]);
    let third = pool.extract(merged, 16, 8);
    assert_eq!(third, bytes[2]);
}

#[test]
fn a_vector_comparison_is_one_of_bytes() {
    let mut pool = Pool::new();
    let mut result: Option<brownout_solve::Expr> = None;
    let mut expected = pool.constant(1, 1);
    for index in 0..16 {
        let (byte, k) = (
            pool.input(index),
            pool.constant(8, u128::from(b'a' + index as u8)),
        );
        let equal = pool.eq(byte, k);
        expected = pool.and(equal, expected);
        let (ones, zero) = (pool.constant(8, 0xff), pool.constant(8, 0));
        let lane = pool.ite(equal, ones, zero);
        result = Some(match result {
            Some(low) => pool.concat(lane, low),
            None => lane,
        });
    }
    let vector = result.unwrap();
    let mut bits: Option<brownout_solve::Expr> = None;
    for index in 0..16 {
        let bit = pool.extract(vector, index * 8 + 7, 1);
        bits = Some(match bits {
            Some(low) => pool.concat(bit, low),
            None => bit,
        });
    }
    let bits = pool.zext(bits.unwrap(), 32);
    let all = pool.constant(32, 0xffff);
    let before = pool.len();
    let equal = pool.eq(bits, all);
    // Nothing but a conjunction of the byte comparisons.
    assert!(pool.len() - before <= 64, "{}", pool.len() - before);
    let wrong = pool.xor(equal, expected);
    for changed in 0..17 {
        let input = |index: u32| {
            if index == changed {
                b'!'
            } else {
                b'a' + index as u8
            }
        };
        assert_eq!(pool.eval(wrong, &input), 0);
        assert_eq!(pool.eval(equal, &input), (changed == 16).into());
    }
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    let mut pool = Pool::new();
    let mut sum = pool.constant(32, 5381);
    let mut wide = pool.constant(64, 7);
    for index in 0..200_000u32 {
        let byte = pool.input(index % 64);
        let byte32 = pool.zext(byte, 32);
        let factor = pool.constant(32, 33);
        let product = pool.mul(sum, factor);
        sum = pool.xor(product, byte32);
        let other = pool.zext(sum, 64);
        let k = pool.constant(64, 13);
        let moved = pool.lshr(wide, k);
        wide = pool.xor(wide, moved);
        wide = pool.add(wide, other);
    }
    let low = pool.extract(wide, 3, 16);
    let expected = {
        let (mut sum, mut wide) = (5381u32, 7u64);
        for index in 0..200_000u32 {
            sum = sum.wrapping_mul(33) ^ (index % 64 + 1);
            wide = (wide ^ wide >> 13).wrapping_add(sum.into());
        }
        (wide >> 3) as u16
    };
    assert_eq!(pool.eval(low, &|index| index as u8 + 1), expected.into());
    assert_eq!(pool.inputs(low).len(), 64);
    // A long chain of choices, compared with a constant.
    let mut chain = pool.input(0);
    for index in 0..100_000u32 {
        let wanted = pool.constant(8, (index % 251).into());
        let byte = pool.input(index % 5);
        let condition = pool.eq(byte, wanted);
        let value = pool.constant(8, (index % 7).into());
        chain = pool.ite(condition, value, chain);
    }
    let k = pool.constant(8, 3);
    let equal = pool.eq(chain, k);
    let value = pool.eval(chain, &|_| 200);
    assert_eq!(pool.eval(equal, &|_| 200), (value == 3).into());
}
