//! Any bytes at all: they are described or they are not, and what is not changes nothing.

mod common;

use brownout_lift::{is_supported, lift, lift_string_iteration};
use brownout_random::Random;
use common::plain::Plain;
use iced_x86::{Decoder, DecoderOptions};

#[test]
fn random_bytes_are_lifted_or_not() {
    let mut random = Random::new(0xB17E5);
    let (mut supported, mut not) = (0, 0);
    let mut plain = Plain::new();
    for round in 0..150_000u32 {
        let mut bytes = [0; 15];
        random.fill(&mut bytes);
        match round % 4 {
            // Where most opcodes are.
            0 => bytes[0] = 0x0F,
            1 => (bytes[0], bytes[1]) = (0x66, 0x0F),
            2 => (bytes[0], bytes[1]) = (0xC4, bytes[1] & 0xE0 | (1 + bytes[1] % 3)),
            _ => {}
        }
        let options = [
            DecoderOptions::NONE,
            DecoderOptions::AMD | DecoderOptions::KNC | DecoderOptions::MPX,
        ][random.index(2)];
        let mode = [64, 64, 64, 32, 16][random.index(5)];
        let insn = Decoder::with_ip(mode, &bytes, random.bits(), options).decode();
        plain.state.randomize(&mut random);
        plain.window = random.bits();
        plain.changes = 0;
        let before = plain.state.clone();
        let known = is_supported(&insn);
        // A division that faults is never executed, so nothing is said about it.
        let divides = matches!(
            insn.mnemonic(),
            iced_x86::Mnemonic::Div | iced_x86::Mnemonic::Idiv
        );
        if divides && known {
            continue;
        }
        let answer = lift(&insn, &mut plain);
        assert_eq!(answer.is_ok(), known, "{insn}");
        if known {
            assert_eq!(mode, 64, "{insn}");
            supported += 1;
        } else {
            assert_eq!((plain.changes, &plain.state), (0, &before), "{insn}");
            not += 1;
            if lift_string_iteration(&insn, &mut plain).is_err() {
                assert_eq!((plain.changes, &plain.state), (0, &before), "{insn}");
            }
        }
    }
    assert!(supported > 15_000 && not > 15_000, "{supported} {not}");
}
