//! What is said of an instruction against the processor: all registers, memory and flags.
//!
//! `BROWNOUT_LIFT_STATES=10000` tries so many states of each opcode, `BROWNOUT_ONLY=Shl` only those
//! of a mnemonic, `BROWNOUT_SEED` other states. Opcodes that this processor lacks are named in the
//! closing lines, not passed over in silence.

#![allow(clippy::print_stderr, reason = "the closing lines say what was tried")]

mod common;

use brownout_lift::{Next, is_supported, lift, lift_string_iteration};
use brownout_random::Random;
use common::forms::{Form, candidates, form, prepare, undefined_result};
use common::native::{Fault, Native};
use common::plain::{Plain, Wrong};
use common::state::{FLAGS, State};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, RflagsBits};
use std::collections::{BTreeMap, BTreeSet};

/// So many states have the same instruction.
const STATES_A_FORM: u64 = 20;

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

/// How two states differ, in words.
fn differences(expected: &State, found: &State) -> Vec<String> {
    let mut words = Vec::new();
    for number in 0..16 {
        let (a, b) = (expected.gpr[number], found.gpr[number]);
        if a != b {
            words.push(format!("gpr {number} is {a:#x}, not {b:#x}"));
        }
        for half in 0..2 {
            let (a, b) = (expected.vectors[number][half], found.vectors[number][half]);
            if a != b {
                words.push(format!(
                    "vector {number}.{half} is {a:#034x}, not {b:#034x}"
                ));
            }
        }
    }
    if expected.memory != found.memory {
        let at = (0..expected.memory.len()).find(|at| expected.memory[*at] != found.memory[*at]);
        words.push(format!("memory differs at {at:?}"));
    }
    words
}

#[derive(Default)]
struct Outcome {
    executed: BTreeMap<Code, u64>,
    lacking: BTreeSet<Code>,
    faults: BTreeMap<Code, u64>,
    failures: BTreeMap<Code, (u64, String)>,
}

impl Outcome {
    fn fail(&mut self, form: &Form, before: &State, words: &str) {
        let entry = self.failures.entry(form.insn.code()).or_default();
        entry.0 += 1;
        if entry.0 == 1 {
            entry.1 = format!(
                "{} [{:02x?}]: {words}\n    gpr {:x?} flags {:#x}",
                form.insn, form.bytes, before.gpr, before.rflags
            );
        }
    }
}

struct Campaign {
    native: Native,
    plain: Plain,
    random: Random,
    before: State,
    after: State,
}

impl Campaign {
    fn new(seed: u64, wrong: Wrong) -> Campaign {
        let native = Native::acquire();
        let mut plain = Plain::new();
        plain.window = native.window();
        plain.fs_base = native.fs_base;
        plain.gs_base = native.gs_base;
        plain.wrong = wrong;
        Campaign {
            native,
            plain,
            random: Random::new(seed),
            before: State::zero(),
            after: State::zero(),
        }
    }

    /// Instructions of one opcode on so many states.
    fn opcode(&mut self, code: Code, states: u64, outcome: &mut Outcome) {
        let (mut tried, mut attempts) = (0, 0);
        while tried < states && attempts < 10 * states {
            attempts += STATES_A_FORM;
            let Some(form) = form(code, &self.native, &mut self.random) else {
                continue;
            };
            if !is_supported(&form.insn) {
                continue;
            }
            if self.native.hides(&form.insn) {
                outcome.lacking.insert(code);
                return;
            }
            self.native.load(&form.bytes);
            for _ in 0..STATES_A_FORM {
                match self.once(&form, outcome) {
                    Ok(true) => tried += 1,
                    Ok(false) => {}
                    Err(Fault(libc::SIGILL)) => {
                        outcome.lacking.insert(code);
                        return;
                    }
                    Err(_) => *outcome.faults.entry(code).or_default() += 1,
                }
            }
        }
        if tried > 0 {
            *outcome.executed.entry(code).or_default() += tried;
        }
    }

    fn once(&mut self, form: &Form, outcome: &mut Outcome) -> Result<bool, Fault> {
        self.before.randomize(&mut self.random);
        prepare(form, &mut self.before, &self.native, &mut self.random);
        if undefined_result(&form.insn, &self.before) {
            return Ok(false);
        }
        let taken = self.native.run(&self.before, &mut self.after)?;
        self.plain.state = self.before.clone();
        self.plain.processor = self.after.rflags;
        self.plain.outside = false;
        let next = lift(&form.insn, &mut self.plain).expect("it is supported");
        let target = self.native.branch_target();
        let goes = match next {
            Next::Falls => !taken,
            Next::Branch {
                taken: bit,
                target: to,
            } => {
                assert_eq!(bit.bits, 1);
                to == target && taken == (bit.value == 1)
            }
            Next::Jump { target: to } => to == target && taken,
            Next::Computed { target: to } => to.value == u128::from(target) && taken,
        };
        let mut words = differences(&self.after, &self.plain.state);
        let flags = (self.after.rflags ^ self.plain.state.rflags) & FLAGS;
        let undefined = undefined_flags(&form.insn, &self.before);
        if flags != undefined {
            words.push(format!("flags differ in {flags:#x}, not in {undefined:#x}"));
        }
        if !goes {
            words.push(format!(
                "control went elsewhere: taken is {taken}, {next:?}"
            ));
        }
        if self.plain.outside {
            words.push("memory outside of the window was accessed".to_string());
        }
        if !words.is_empty() {
            outcome.fail(form, &self.before, &words.join(", "));
        }
        Ok(true)
    }
}

/// Bits of `rflags` from iced's.
fn iced_undefined(bits: u32) -> u64 {
    [
        (RflagsBits::CF, 0),
        (RflagsBits::PF, 2),
        (RflagsBits::AF, 4),
        (RflagsBits::ZF, 6),
        (RflagsBits::SF, 7),
        (RflagsBits::DF, 10),
        (RflagsBits::OF, 11),
    ]
    .iter()
    .filter(|(flag, _)| bits & flag != 0)
    .map(|(_, bit)| 1 << bit)
    .sum()
}

/// The flags that the manuals leave undefined after this instruction, as bits of `rflags`.
fn undefined_flags(insn: &Instruction, before: &State) -> u64 {
    use Mnemonic as N;
    const CARRY: u64 = 1;
    const ADJUST: u64 = 0x10;
    const OVERFLOW: u64 = 0x800;
    let listed = iced_undefined(insn.rflags_undefined());
    let mnemonic = insn.mnemonic();
    let (adjust, operand) = match mnemonic {
        N::Shl | N::Sal | N::Shr | N::Sar => (ADJUST, 1),
        N::Rol | N::Ror | N::Rcl | N::Rcr => (0, 1),
        N::Shld | N::Shrd => (ADJUST, 2),
        _ => return listed,
    };
    // The count decides, which iced does not know if it is in a register.
    let bits = 8 * match insn.op0_kind() {
        OpKind::Register => insn.op0_register().size() as u64,
        _ => insn.memory_size().size() as u64,
    };
    let variable = insn.op_kind(operand) == OpKind::Register;
    let count = if variable {
        before.gpr[1]
    } else {
        insn.immediate(operand)
    };
    let count = count & if bits == 64 { 63 } else { 31 };
    let carry = match mnemonic {
        N::Shl | N::Sal | N::Shr if count >= bits => CARRY,
        _ => 0,
    };
    let undefined = match count {
        0 => 0,
        1 => adjust,
        _ => adjust | OVERFLOW | carry,
    };
    // Of immediate counts iced knows as much, but for the carry and for rotations of 9 or 17 bits.
    if !variable {
        let through_carry = matches!(mnemonic, N::Rcl | N::Rcr) && bits < 32;
        let more = carry | if through_carry { OVERFLOW } else { 0 };
        assert_eq!(listed & !more, undefined & !more, "{insn}");
    }
    undefined
}

/// Opcodes of which some instance is supported.
fn supported(native: &Native) -> Vec<Code> {
    let mut random = Random::new(1);
    candidates()
        .filter(|code| {
            (0..40).any(|_| {
                form(*code, native, &mut random).is_some_and(|form| is_supported(&form.insn))
            })
        })
        .collect()
}

#[test]
fn the_processor_does_the_same() {
    let seed = environment("BROWNOUT_SEED", 0x11F7);
    let states = environment("BROWNOUT_LIFT_STATES", 300);
    let only = std::env::var("BROWNOUT_ONLY").ok();
    eprintln!("seed {seed}, {states} states of each opcode");
    let mut campaign = Campaign::new(seed, Wrong::Nothing);
    let codes = supported(&campaign.native);
    let mut outcome = Outcome::default();
    for code in &codes {
        if only
            .as_ref()
            .is_none_or(|only| format!("{:?}", code.mnemonic()) == *only)
        {
            campaign.opcode(*code, states, &mut outcome);
        }
    }
    for (code, (count, words)) in &outcome.failures {
        eprintln!(
            "{code:?}: {count} of {:?} states differ",
            outcome.executed.get(code)
        );
        eprintln!("  {words}");
    }
    let total: u64 = outcome.executed.values().sum();
    eprintln!(
        "{} opcodes are supported, {} were executed on {total} states, {} failed",
        codes.len(),
        outcome.executed.len(),
        outcome.failures.len(),
    );
    let faults: u64 = outcome.faults.values().sum();
    eprintln!("{faults} states were left out because they fault");
    eprintln!("this processor lacks {:?}", outcome.lacking);
    assert!(outcome.failures.is_empty());
    if only.is_none() {
        let too_few: Vec<_> = codes
            .iter()
            .filter(|code| {
                let tried = outcome.executed.get(code).copied().unwrap_or(0);
                tried < states && !outcome.lacking.contains(code)
            })
            .collect();
        assert!(too_few.is_empty(), "on fewer states: {too_few:?}");
        assert!(codes.len() > 1200, "opcodes were forgotten");
    }
}

/// What the processor does with a prefix is what so many iterations do.
#[test]
fn strings_are_repeated() {
    let mut campaign = Campaign::new(environment("BROWNOUT_SEED", 0x57A), Wrong::Nothing);
    let states = environment("BROWNOUT_LIFT_STATES", 300);
    let mut executed = 0;
    for code in candidates() {
        for round in 0..states / 5 {
            let Some(mut form) = form(code, &campaign.native, &mut campaign.random) else {
                break;
            };
            if !form.insn.is_string_instruction() {
                break;
            }
            let repeated = round % 3 != 0;
            if repeated {
                form.bytes
                    .insert(0, if round % 3 == 1 { 0xF3 } else { 0xF2 });
                form.insn = iced_x86::Decoder::with_ip(
                    64,
                    &form.bytes,
                    campaign.native.ip(),
                    iced_x86::DecoderOptions::NONE,
                )
                .decode();
                assert!(!is_supported(&form.insn), "repetitions are the caller's");
            }
            campaign.plain.state.randomize(&mut campaign.random);
            let mut dry = campaign.plain.state.clone();
            if lift_string_iteration(&form.insn, &mut campaign.plain).is_err() {
                assert_eq!(campaign.plain.state, dry);
                break;
            }
            campaign.native.load(&form.bytes);
            for _ in 0..5 {
                dry.randomize(&mut campaign.random);
                if campaign.random.percent(50) {
                    let value = campaign.random.bits() as u8;
                    dry.memory.fill(value);
                    dry.memory[campaign.random.index(512)] ^= 1;
                    dry.gpr[0] = u64::from_le_bytes([value; 8]);
                }
                prepare(&form, &mut dry, &campaign.native, &mut campaign.random);
                campaign.native.run(&dry, &mut campaign.after).unwrap();
                let narrow = form.insn.op_kinds().any(|kind| {
                    matches!(
                        kind,
                        iced_x86::OpKind::MemoryESEDI | iced_x86::OpKind::MemorySegESI
                    )
                });
                let mut iterations = dry.gpr[1].wrapping_sub(campaign.after.gpr[1]);
                if narrow {
                    iterations &= 0xFFFF_FFFF;
                }
                if !repeated {
                    iterations = 1;
                }
                campaign.plain.state = dry.clone();
                campaign.plain.outside = false;
                for _ in 0..iterations {
                    lift_string_iteration(&form.insn, &mut campaign.plain).unwrap();
                }
                let mut words = differences(&campaign.after, &campaign.plain.state);
                if (campaign.after.rflags ^ campaign.plain.state.rflags) & FLAGS != 0 {
                    words.push("flags differ".to_string());
                }
                if iterations == 0 {
                    // Whether the upper halves of registers are cleared then, is up to processors.
                    words.retain(|word| !(narrow && word.starts_with("gpr")));
                }
                assert!(
                    words.is_empty() && !campaign.plain.outside,
                    "{} {iterations} times: {words:?}",
                    form.insn
                );
                executed += 1;
            }
        }
    }
    eprintln!("{executed} string instructions");
    assert!(executed >= 20 * states / 2);
}

/// Whatever the algebra or the machine does wrong is noticed.
#[test]
fn what_is_wrong_is_noticed() {
    let mut campaign = Campaign::new(5, Wrong::Nothing);
    let codes = supported(&campaign.native);
    for wrong in Wrong::ALL {
        campaign.plain.wrong = wrong;
        let mut outcome = Outcome::default();
        let noticed = codes.iter().find(|code| {
            campaign.opcode(**code, 40, &mut outcome);
            !outcome.failures.is_empty()
        });
        eprintln!("{wrong:?} is noticed by {noticed:?}");
        assert!(noticed.is_some(), "{wrong:?} was not noticed");
    }
}
