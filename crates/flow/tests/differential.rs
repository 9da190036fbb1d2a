//! What an instruction is declared to depend on against the processor: change an input bit, see
//! which outputs change.
//!
//! Soundness: every output that changes has the label of the flipped input. Precision: how many of
//! the declared dependencies are ever seen, by mnemonic. Instructions that this processor lacks are
//! counted in the closing lines, not passed over in silence.

#![allow(clippy::print_stdout, reason = "a failing run must show its seed")]

mod common;

use brownout_flow::{
    Analyzer, Flag, Flow, Place, PlaceKind, REGISTER_PLACES, Shadow, StateFacts, Unknown, run,
    transfer_state,
};
use brownout_random::Random;
use common::forms::{self, address_of, choices, form, not_executed, prepare};
use common::machine::{Machine, State, WINDOW_BYTES};
use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic};
use std::collections::{BTreeMap, BTreeSet};

/// Labels are bit sets: bit *n* is the *n*th flipped input.
struct Labels {
    registers: Vec<u32>,
    window: Vec<u32>,
    top: u8,
    /// Where in the window each byte of each operand is; `None` if outside of it.
    operands: [Vec<Option<usize>>; 2],
    /// What the addresses of the operands depend on: so does what is loaded.
    by_address: [u32; 2],
    /// What the places of stores depend on: such a flip may change any byte of the window.
    misplaced: u32,
}

impl Labels {
    fn new() -> Labels {
        Labels {
            registers: vec![0; REGISTER_PLACES],
            window: vec![0; WINDOW_BYTES],
            top: 0,
            operands: [Vec::new(), Vec::new()],
            by_address: [0; 2],
            misplaced: 0,
        }
    }

    fn clear(&mut self) {
        self.registers.fill(0);
        self.window.fill(0);
        self.misplaced = 0;
    }

    /// Applies the flow of an instruction that takes `before` to `after`.
    fn step(
        &mut self,
        insn: &Instruction,
        flow: &Flow,
        before: &State,
        after: &State,
        machine: &Machine,
    ) {
        self.top = Machine::top(before);
        for operand in 0..flow.memory().len() {
            self.by_address[operand] = 0;
            self.by_address[operand] = flow.address_label(operand, self);
            if flow.memory()[operand].written {
                self.misplaced |= self.by_address[operand];
                let extent = flow.memory()[operand].extent;
                for place in extent.places() {
                    self.misplaced |= self.registers[usize::from(place.0)];
                }
            }
        }
        run(flow.opening(), self);
        for element in 0..forms::repetitions(insn, flow, before, after) {
            for (operand, memory) in flow.memory().iter().enumerate() {
                self.operands[operand].clear();
                for byte in 0..usize::from(memory.bytes) {
                    let address = address_of(insn, flow, operand, byte, before, machine, element);
                    let offset = address.wrapping_sub(machine.window()) as usize;
                    self.operands[operand].push((offset < WINDOW_BYTES).then_some(offset));
                }
            }
            run(flow.body(), self);
        }
    }
}

impl Shadow for Labels {
    fn register(&self, place: Place) -> u32 {
        self.registers[usize::from(place.0)]
    }

    fn set_register(&mut self, place: Place, label: u32) {
        self.registers[usize::from(place.0)] = label;
    }

    fn load(&mut self, operand: usize, byte: usize) -> u32 {
        self.misplaced
            | self.by_address[operand]
            | self.operands[operand][byte].map_or(0, |at| self.window[at])
    }

    fn store(&mut self, operand: usize, byte: usize, label: u32) {
        if let Some(at) = self.operands[operand][byte] {
            self.window[at] = label;
        }
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        a | b
    }

    fn x87_top(&self) -> u8 {
        self.top
    }
}

/// An input that can be flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Input {
    Register(Place),
    Window(usize),
}

fn flip(machine: &Machine, state: &mut State, input: Input, bit: u32) -> bool {
    match input {
        Input::Register(place) => machine.flip(state, place, bit),
        Input::Window(at) => {
            Machine::flip_memory(state, at, bit);
            true
        }
    }
}

/// The inputs that an instruction may use: registers that iced names, whole, and memory operands.
fn likely_inputs(
    insn: &Instruction,
    flow: &Flow,
    state: &State,
    machine: &Machine,
    factory: &mut InstructionInfoFactory,
) -> Vec<Input> {
    let mut inputs = Vec::new();
    let add = |place: Place, bytes: usize, inputs: &mut Vec<Input>| {
        inputs.extend((0..bytes).map(|byte| Input::Register(place.plus(byte))));
    };
    for used in factory.info(insn).used_registers() {
        let register = used.register().full_register();
        if let Some(span) = Place::of_register(register) {
            if register.is_st() {
                for number in 0..8 {
                    add(Place::mmx(number), 10, &mut inputs);
                }
            } else {
                add(span.place, span.len(), &mut inputs);
            }
        }
    }
    let flags = brownout_flow::Flag::ALL;
    inputs.extend(flags.map(|flag| Input::Register(Place::flag(flag))));
    let units = [
        Place::MXCSR_CONTROL,
        Place::MXCSR_STATUS,
        Place::X87_CONTROL,
        Place::X87_EXCEPTIONS,
        Place::X87_CONDITIONS,
    ];
    inputs.extend(units.map(Input::Register));
    for (operand, memory) in flow.memory().iter().enumerate() {
        for element in 0..if insn.is_string_instruction() { 6 } else { 1 } {
            for byte in 0..usize::from(memory.bytes) {
                let address = address_of(insn, flow, operand, byte, state, machine, element);
                let at = address.wrapping_sub(machine.window()) as usize;
                if at < WINDOW_BYTES {
                    inputs.push(Input::Window(at));
                }
            }
        }
    }
    inputs
}

fn any_input(random: &mut Random) -> Input {
    match random.below(4) {
        0 => Input::Window(random.index(WINDOW_BYTES)),
        1 => Input::Register(Place(random.below(304) as u16)),
        _ => Input::Register(Place(random.below(REGISTER_PLACES as u64 - 512) as u16)),
    }
}

fn random_state(machine: &Machine, random: &mut Random) -> State {
    let mut state = machine.blank();
    state.gpr.fill_with(|| match random.below(4) {
        0 => random.bits() >> random.below(64),
        1 => u64::MAX << random.below(64),
        _ => random.bits(),
    });
    state.rflags |= random.bits() & 0xCD5;
    random.fill(&mut state.memory[..]);
    if random.percent(30) {
        for lane in state.memory.chunks_mut(8) {
            let number = random.between(-1000, 1000) as f64 / 8.0;
            lane.copy_from_slice(&number.to_le_bytes());
        }
    }
    machine.randomize(&mut state, random);
    state
}

struct Campaign {
    machine: Machine,
    analyzer: Analyzer,
    factory: InstructionInfoFactory,
    labels: Labels,
    base: State,
    again: State,
    changed: State,
    flips: usize,
    faults: usize,
}

impl Campaign {
    fn new() -> Campaign {
        let machine = Machine::acquire();
        let blank = machine.blank();
        Campaign {
            analyzer: Analyzer::new(),
            factory: InstructionInfoFactory::new(),
            labels: Labels::new(),
            base: blank.clone(),
            again: blank.clone(),
            changed: blank,
            machine,
            flips: 0,
            faults: 0,
        }
    }

    /// Flips inputs of the loaded code, which takes `before` to `self.base`; the labels say what
    /// was declared for each of them. Calls with each flip that did not fault, its number, and what
    /// changed.
    fn flip_each(
        &mut self,
        before: &State,
        fresh: Option<&Instruction>,
        flips: &[(Input, u32)],
        mut look: impl FnMut(&Labels, usize, &[Place], &[usize]),
    ) {
        // What differs although nothing was changed is no output of the inputs: time, say.
        let mut noise = BTreeSet::new();
        if let Some(insn) = fresh {
            for used in self.factory.info(insn).used_registers() {
                if let Some(span) = Place::of_register(used.register().full_register()) {
                    noise.extend(span.places());
                }
            }
            noise.insert(Place::flag(Flag::Carry));
        }
        let _ = self.machine.run(before, &mut self.again);
        self.machine.differences(
            &self.base,
            &self.again,
            |place| {
                noise.insert(place);
            },
            |_| {},
        );
        let mut state = before.clone();
        for (number, (input, bit)) in flips.iter().enumerate() {
            if !flip(&self.machine, &mut state, *input, *bit) {
                continue;
            }
            let outcome = self.machine.run(&state, &mut self.changed);
            flip(&self.machine, &mut state, *input, *bit);
            self.flips += 1;
            if outcome.is_err() {
                self.faults += 1;
                continue;
            }
            let (mut places, mut window) = (Vec::new(), Vec::new());
            self.machine.differences(
                &self.base,
                &self.changed,
                |place| places.push(place),
                |at| window.push(at),
            );
            places.retain(|place| !noise.contains(place));
            look(&self.labels, number, &places, &window);
        }
    }

    fn label_inputs(&mut self, flips: &[(Input, u32)]) {
        self.labels.clear();
        for (number, (input, _)) in flips.iter().enumerate() {
            match input {
                Input::Register(place) => {
                    self.labels.registers[usize::from(place.0)] |= 1 << number
                }
                Input::Window(at) => self.labels.window[*at] |= 1 << number,
            }
        }
    }
}

/// What was not declared although it changed.
fn missing(labels: &Labels, number: usize, places: &[Place], window: &[usize]) -> Vec<String> {
    let bit = 1u32 << number;
    let mut missing = Vec::new();
    for place in places {
        if labels.registers[usize::from(place.0)] & bit == 0 {
            missing.push(format!("{place:?}"));
        }
    }
    for at in window {
        if (labels.window[*at] | labels.misplaced) & bit == 0 {
            missing.push(format!("window+{at:#x}"));
        }
    }
    missing
}

/// Whether its results differ from time to time whatever the inputs are.
fn is_fresh(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdrand | Mnemonic::Rdseed
    )
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

#[test]
fn what_changes_was_declared() {
    let seed = environment("BROWNOUT_SEED", 0xF10A);
    let rounds = environment("BROWNOUT_ROUNDS", 1);
    println!("seed {seed}");
    let only = std::env::var("BROWNOUT_ONLY").ok();
    let mut random = Random::new(seed);
    let mut campaign = Campaign::new();
    let mut flow = Flow::new();
    let mut failures: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut executed, mut lacking) = (BTreeSet::new(), BTreeSet::new());
    let (mut skipped, mut unknown) = (BTreeMap::new(), BTreeMap::new());
    for code in Code::values() {
        if let Some(only) = &only
            && format!("{:?}", code.mnemonic()) != *only
        {
            continue;
        }
        for choice in choices() {
            for _ in 0..rounds {
                let window = campaign.machine.window();
                let Some((insn, bytes)) = form(code, choice, window, &mut random) else {
                    break;
                };
                if let Some(reason) = not_executed(&insn) {
                    skipped.insert(code, reason);
                    break;
                }
                if let Err(Unknown(reason)) = campaign.analyzer.analyze(&insn, &mut flow) {
                    unknown.insert(code, reason);
                    break;
                }
                if flow.state().is_some() {
                    skipped.insert(code, "processor state, which has a test of its own");
                    break;
                }
                if campaign.machine.hides(&insn) {
                    lacking.insert(code);
                    break;
                }
                campaign.machine.load(&bytes);
                for _ in 0..3 {
                    let mut before = random_state(&campaign.machine, &mut random);
                    prepare(&insn, &mut before, &campaign.machine, &mut random);
                    match campaign.machine.run(&before, &mut campaign.base) {
                        Ok(()) => {}
                        Err(fault) if fault.0 == libc::SIGILL => {
                            lacking.insert(code);
                            break;
                        }
                        Err(_) => {
                            campaign.faults += 1;
                            continue;
                        }
                    }
                    executed.insert(code);
                    let likely = likely_inputs(
                        &insn,
                        &flow,
                        &before,
                        &campaign.machine,
                        &mut campaign.factory,
                    );
                    let flips: Vec<(Input, u32)> = (0..32)
                        .map(|_| {
                            let input = if random.percent(85) {
                                likely[random.index(likely.len())]
                            } else {
                                any_input(&mut random)
                            };
                            (input, random.below(8) as u32)
                        })
                        .collect();
                    campaign.label_inputs(&flips);
                    let after = campaign.base.clone();
                    campaign
                        .labels
                        .step(&insn, &flow, &before, &after, &campaign.machine);
                    let fresh = is_fresh(&insn).then_some(&insn);
                    campaign.flip_each(&before, fresh, &flips, |labels, number, places, window| {
                        let missing = missing(labels, number, places, window);
                        if !missing.is_empty() {
                            let entry = failures.entry(format!("{:?}", insn.code())).or_default();
                            entry.0 += 1;
                            entry.1 = format!(
                                "{insn} [{bytes:02x?}]: {:?} changed {}",
                                flips[number],
                                missing.join(" ")
                            );
                        }
                    });
                }
            }
        }
    }
    lacking.retain(|code| !executed.contains(code));
    for (code, (times, text)) in &failures {
        println!("{code} ({times}): {text}");
    }
    let count = |reasons: &BTreeMap<Code, &'static str>| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in reasons.values() {
            *counts.entry(reason).or_default() += 1;
        }
        counts
    };
    if std::env::var("BROWNOUT_LIST").is_ok() {
        for (code, reason) in &unknown {
            println!("unknown {code:?}: {reason}");
        }
        for code in &lacking {
            println!("lacking {code:?}");
        }
    }
    println!(
        "{} opcodes executed, {} flips, {} faults; not executed: {} that this processor lacks, {:?}; \
         unknown to the crate: {:?}",
        executed.len(),
        campaign.flips,
        campaign.faults,
        lacking.len(),
        count(&skipped),
        count(&unknown),
    );
    assert!(
        !count(&unknown)
            .keys()
            .any(|reason| reason.contains("too long")),
        "a list of operations does not fit"
    );
    assert!(failures.is_empty(), "{} opcodes", failures.len());
}

fn flow_of_state(insn: &Instruction) -> bool {
    matches!(
        brownout_insn::classify(insn),
        brownout_insn::MemoryForm::XState(_)
    )
}

/// Saving and restoring: what is flipped in a register shows in its place in memory, and back.
#[test]
fn what_changes_with_processor_state_was_declared() {
    let seed = environment("BROWNOUT_SEED", 0x57A7E);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut campaign = Campaign::new();
    let window = campaign.machine.window();
    const AREA: usize = 1024;
    let saves: [&[u8]; 4] = [
        &[0x48, 0x0F, 0xAE, 0x03], // fxsave64 [rbx]
        &[0x48, 0x0F, 0xAE, 0x23], // xsave64 [rbx]
        &[0x48, 0x0F, 0xC7, 0x23], // xsavec64 [rbx]
        &[0x48, 0x0F, 0xAE, 0x33], // xsaveopt64 [rbx]
    ];
    let restores: [&[u8]; 2] = [
        &[0x48, 0x0F, 0xAE, 0x0B], // fxrstor64 [rbx]
        &[0x48, 0x0F, 0xAE, 0x2B], // xrstor64 [rbx]
    ];
    let mut flow = Flow::new();
    let (mut executed, mut changed) = (0, 0);
    for round in 0..1200 {
        let save = saves[round % 4];
        let restore = restores[usize::from(round % 4 != 0)];
        let saving = round / 4 % 2 == 0;
        let bytes = if saving { save } else { restore };
        let mut before = random_state(&campaign.machine, &mut random);
        before.gpr[3] = window + AREA as u64;
        // Components that the test run hides are left alone: the harness does not set them.
        before.gpr[0] =
            [0xE7, 7, random.bits() & 0xE7][random.index(3)] & campaign.machine.layout.enabled;
        before.gpr[2] = 0;
        // What an area may hold that is not saved to.
        before.memory[AREA + 512..AREA + 576].fill(0);
        if !saving {
            campaign.machine.load(save);
            let mut saved = campaign.machine.blank();
            if campaign.machine.run(&before, &mut saved).is_err() {
                continue;
            }
            let mut other = random_state(&campaign.machine, &mut random);
            other.gpr = before.gpr;
            other.memory = saved.memory;
            before = other;
        }
        let insn = forms::decode(bytes, window).unwrap();
        campaign.analyzer.analyze(&insn, &mut flow).unwrap();
        campaign.machine.load(bytes);
        if campaign.machine.run(&before, &mut campaign.base).is_err() {
            continue;
        }
        let flips: Vec<(Input, u32)> = (0..32)
            .map(|_| {
                let input = if saving || random.percent(20) {
                    loop {
                        let input = any_input(&mut random);
                        let gpr = |place: Place| matches!(place.kind(), PlaceKind::Gpr(..));
                        if !matches!(input, Input::Register(place) if gpr(place)) {
                            break input;
                        }
                    }
                } else {
                    // The header and reserved bits must be what they are.
                    let at = [32 + random.index(384), 576 + random.index(2112)][random.index(2)];
                    Input::Window(AREA + at)
                };
                (input, random.below(8) as u32)
            })
            .collect();
        campaign.label_inputs(&flips);
        let after = campaign.base.clone();
        let header = |state: &State, at: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| {
                state.memory[AREA + 512 + at + byte]
            }))
        };
        let layout = campaign.machine.layout;
        let labels = &mut campaign.labels;
        labels.top = Machine::top(&before);
        labels.by_address = [0; 2];
        labels.operands[0] = (0..WINDOW_BYTES - AREA).map(|at| Some(AREA + at)).collect();
        let facts = StateFacts {
            layout: &layout,
            requested: before.gpr[0],
            used: header(&after, 0),
            compaction: header(&after, 8),
            top: Machine::top(&after),
        };
        transfer_state(&flow.state().unwrap(), &facts, labels);
        executed += 1;
        campaign.flip_each(&before, None, &flips, |labels, number, places, window| {
            // Pointers to the last instruction, and the header.
            let window: Vec<usize> = window
                .iter()
                .copied()
                .filter(|at| {
                    let at = at.wrapping_sub(AREA);
                    !(6..24).contains(&at) && !(512..576).contains(&at)
                })
                .collect();
            changed += places.len() + window.len();
            let missing = missing(labels, number, places, &window);
            assert!(
                missing.is_empty(),
                "{:?} changed {}: {insn}, {:#x}",
                flips[number],
                missing.join(" "),
                facts.requested
            );
        });
    }
    println!("{executed} executed, {changed} bytes changed");
    assert!(executed > 300 && changed > 1000);
}

/// Whether an instruction can be part of a sequence.
fn joins_sequences(insn: &Instruction, flow: &Flow) -> bool {
    let stack = insn.is_stack_instruction();
    let into_rsp = insn.mnemonic() == Mnemonic::Pop
        && insn.op_register(0).full_register() == iced_x86::Register::RSP;
    let written = flow.summary().gprs_written;
    not_executed(insn).is_none()
        && flow.state().is_none()
        && !is_fresh(insn)
        && written & 1 << 3 == 0
        && (written & 1 << 4 == 0 || stack)
        && !into_rsp
        && !matches!(
            insn.mnemonic(),
            Mnemonic::Div
                | Mnemonic::Idiv
                | Mnemonic::Popf
                | Mnemonic::Popfq
                | Mnemonic::Ldmxcsr
                | Mnemonic::Vldmxcsr
                | Mnemonic::Cpuid
                | Mnemonic::Xgetbv
                | Mnemonic::Leave
                | Mnemonic::Enter
        )
}

/// The flow of a sequence is that of its instructions, one after another.
#[test]
fn what_changes_behind_a_sequence_was_declared() {
    let seed = environment("BROWNOUT_SEED", 0x5E9);
    let sequences = environment("BROWNOUT_SEQUENCES", 6000);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut campaign = Campaign::new();
    let window = campaign.machine.window();
    let codes: Vec<Code> = Code::values().collect();
    // General registers are what most programs use most: every second instruction is theirs.
    let plain: Vec<Code> = codes
        .iter()
        .copied()
        .filter(|code| {
            let features = code.cpuid_features();
            features.iter().all(|feature| {
                use iced_x86::CpuidFeature as F;
                matches!(
                    feature,
                    F::INTEL8086 | F::INTEL386 | F::X64 | F::SSE2 | F::SSE | F::CMOV
                )
            })
        })
        .collect();
    let mut flow = Flow::new();
    let (mut executed, mut instructions, mut spread) = (0u64, 0usize, 0u64);
    while executed < sequences {
        let length = 2 + random.index(11);
        let mut parts = Vec::new();
        while parts.len() < length {
            let from = if random.percent(50) { &plain } else { &codes };
            let code = from[random.index(from.len())];
            let Some((insn, bytes)) = forms::sequence_form(code, window, &mut random) else {
                continue;
            };
            if campaign.analyzer.analyze(&insn, &mut flow).is_ok()
                && joins_sequences(&insn, &flow)
                && !campaign.machine.hides(&insn)
            {
                parts.push((insn, bytes, flow.clone()));
            }
        }
        let mut before = random_state(&campaign.machine, &mut random);
        before.gpr[3] = window + (WINDOW_BYTES / 2) as u64;
        before.gpr[4] = window + 1024;
        // Step by step, for the states between the instructions.
        let mut states = vec![before.clone()];
        for (_, bytes, _) in &parts {
            campaign.machine.load(bytes);
            let mut next = campaign.machine.blank();
            if campaign
                .machine
                .run(states.last().unwrap(), &mut next)
                .is_err()
            {
                break;
            }
            states.push(next);
        }
        if states.len() <= parts.len() {
            campaign.faults += 1;
            continue;
        }
        let flips: Vec<(Input, u32)> = (0..32)
            .map(|_| {
                let input = match random.below(8) {
                    0..3 => Place::gpr(random.index(3)).plus(random.index(8)),
                    3..6 => Place::vector(random.index(3)).plus(random.index(64)),
                    6 => Place::opmask(random.index(3)).plus(random.index(8)),
                    _ => Place::flag(Flag::ALL[random.index(7)]),
                };
                let input = if random.percent(30) {
                    Input::Window(WINDOW_BYTES / 2 - 64 + random.index(192))
                } else {
                    Input::Register(input)
                };
                (input, random.below(8) as u32)
            })
            .collect();
        campaign.label_inputs(&flips);
        for (number, (insn, _, flow)) in parts.iter().enumerate() {
            campaign.labels.step(
                insn,
                flow,
                &states[number],
                &states[number + 1],
                &campaign.machine,
            );
        }
        let code: Vec<u8> = parts.iter().flat_map(|part| part.1.clone()).collect();
        campaign.machine.load(&code);
        campaign.machine.run(&before, &mut campaign.base).unwrap();
        let differs = std::cell::Cell::new(false);
        campaign.machine.differences(
            &campaign.base,
            states.last().unwrap(),
            |_| differs.set(true),
            |_| differs.set(true),
        );
        let listing: Vec<String> = parts.iter().map(|part| part.0.to_string()).collect();
        let listing = listing.join("; ");
        assert!(!differs.get(), "one by one it is not the same: {listing}");
        campaign.flip_each(&before, None, &flips, |labels, number, places, window| {
            spread += (places.len() + window.len()) as u64;
            let missing = missing(labels, number, places, window);
            assert!(
                missing.is_empty(),
                "{:?} changed {}: {listing}",
                flips[number],
                missing.join(" ")
            );
        });
        executed += 1;
        instructions += parts.len();
    }
    println!(
        "{executed} sequences of {instructions} instructions, {} flips that changed {spread} bytes, {} faults",
        campaign.flips, campaign.faults
    );
    assert!(spread > 10 * executed, "flips must have consequences");
}

/// The mnemonics whose flow must be nearly exact, and the share of the declared dependencies that
/// is to be seen at least, in percent. What is missing shows seldom (a sign, a carry over many
/// bytes) or is not defined (`bswap` of 16 bits).
const EXACT: &[(Mnemonic, usize)] = &[
    (Mnemonic::Mov, 95),
    (Mnemonic::Movzx, 95),
    (Mnemonic::Movsx, 70),
    (Mnemonic::Bswap, 50),
    (Mnemonic::Xchg, 95),
    (Mnemonic::And, 50),
    (Mnemonic::Or, 50),
    (Mnemonic::Xor, 95),
    (Mnemonic::Not, 95),
    (Mnemonic::Add, 20),
    (Mnemonic::Sub, 20),
    (Mnemonic::Lea, 20),
    (Mnemonic::Shl, 50),
    (Mnemonic::Shr, 50),
    (Mnemonic::Push, 85),
    (Mnemonic::Pop, 85),
    (Mnemonic::Movdqa, 95),
    (Mnemonic::Movdqu, 95),
    (Mnemonic::Movups, 95),
    (Mnemonic::Movaps, 95),
    (Mnemonic::Movd, 95),
    (Mnemonic::Movq, 95),
    (Mnemonic::Por, 85),
    (Mnemonic::Pand, 85),
    (Mnemonic::Pxor, 95),
    (Mnemonic::Pshufd, 95),
    (Mnemonic::Punpcklbw, 95),
    (Mnemonic::Punpckldq, 95),
    (Mnemonic::Punpcklqdq, 95),
    (Mnemonic::Palignr, 95),
    (Mnemonic::Pslldq, 95),
    (Mnemonic::Psrldq, 95),
    (Mnemonic::Pmovmskb, 70),
    (Mnemonic::Vmovdqu, 95),
    (Mnemonic::Vmovdqa, 95),
    (Mnemonic::Vpor, 85),
    (Mnemonic::Vpxor, 95),
];

/// How many of the declared dependencies are ever seen. Flags do not count: that a flag depends on
/// a byte shows too seldom.
#[test]
fn little_is_declared_in_vain() {
    let seed = environment("BROWNOUT_SEED", 0x9EC);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut campaign = Campaign::new();
    let window = campaign.machine.window();
    let mut flow = Flow::new();
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut forms_of: BTreeMap<Mnemonic, usize> = BTreeMap::new();
    for code in Code::values() {
        let mnemonic = code.mnemonic();
        let exact = EXACT.iter().any(|(other, _)| *other == mnemonic);
        for choice in choices().filter(|choice| !choice.same && !choice.mask && !choice.broadcast) {
            if forms_of.get(&mnemonic).copied().unwrap_or(0) >= if exact { 12 } else { 1 } {
                break;
            }
            let Some((insn, bytes)) = form(code, choice, window, &mut random) else {
                continue;
            };
            if not_executed(&insn).is_some()
                || flow_of_state(&insn)
                || is_fresh(&insn)
                || mnemonic == Mnemonic::Cpuid
                || campaign.machine.hides(&insn)
                || campaign.analyzer.analyze(&insn, &mut flow).is_err()
            {
                continue;
            }
            let addressing: BTreeSet<Place> = flow
                .memory()
                .iter()
                .flat_map(|memory| memory.address)
                .flat_map(|span| span.places())
                .collect();
            let written: BTreeSet<Place> = flow
                .ops()
                .iter()
                .flat_map(|op| (0..op.written()).map(|byte| op.to.plus(byte)))
                .filter(|place| !matches!(place.kind(), PlaceKind::Temporary(_)))
                .collect();
            campaign.machine.load(&bytes);
            let (mut declared, mut seen) = (BTreeSet::new(), BTreeSet::new());
            for _ in 0..if exact { 24 } else { 8 } {
                let mut before = random_state(&campaign.machine, &mut random);
                prepare(&insn, &mut before, &campaign.machine, &mut random);
                if campaign.machine.run(&before, &mut campaign.base).is_err() {
                    continue;
                }
                let after = campaign.base.clone();
                let mut inputs = likely_inputs(
                    &insn,
                    &flow,
                    &before,
                    &campaign.machine,
                    &mut campaign.factory,
                );
                inputs.retain(|input| match input {
                    Input::Register(place) => {
                        !addressing.contains(place) && !matches!(place.kind(), PlaceKind::Flag(_))
                    }
                    Input::Window(_) => true,
                });
                // Operands are at the same places in all states, but for strings and the like.
                let counted = |place: Place| {
                    written.contains(&place) && !matches!(place.kind(), PlaceKind::Flag(_))
                };
                for part in inputs.chunks(32) {
                    let flips: Vec<(Input, u32)> = part
                        .iter()
                        .map(|input| (*input, random.below(8) as u32))
                        .collect();
                    campaign.label_inputs(&flips);
                    campaign
                        .labels
                        .step(&insn, &flow, &before, &after, &campaign.machine);
                    for (number, (input, _)) in flips.iter().enumerate() {
                        for place in written.iter().filter(|place| counted(**place)) {
                            if campaign
                                .labels
                                .registers
                                .get(usize::from(place.0))
                                .is_some_and(|label| label >> number & 1 == 1)
                            {
                                declared.insert((*input, *place));
                            }
                        }
                    }
                    campaign.flip_each(&before, None, &flips, |_, number, places, _| {
                        for place in places.iter().filter(|place| counted(**place)) {
                            seen.insert((flips[number].0, *place));
                        }
                    });
                }
            }
            if !declared.is_empty() {
                *forms_of.entry(mnemonic).or_default() += 1;
                let entry = counts.entry(format!("{mnemonic:?}")).or_default();
                entry.0 += declared.len();
                entry.1 += seen.intersection(&declared).count();
            }
        }
    }
    let share = |(declared, seen): (usize, usize)| seen * 100 / declared.max(1);
    let mut table: Vec<(usize, String)> = counts
        .iter()
        .map(|(name, count)| (share(*count), name.clone()))
        .collect();
    table.sort();
    let total = counts
        .values()
        .fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    for chunk in table.chunks(10) {
        let line: Vec<String> = chunk
            .iter()
            .map(|(share, name)| format!("{name} {share}"))
            .collect();
        println!("{}", line.join(", "));
    }
    println!(
        "{} of {} declared dependencies were seen, of {} mnemonics; {} flips",
        total.1,
        total.0,
        table.len(),
        campaign.flips
    );
    let coarse: Vec<String> = EXACT
        .iter()
        .filter_map(|(mnemonic, least)| {
            let share = share(*counts.get(&format!("{mnemonic:?}"))?);
            (share < *least).then(|| format!("{mnemonic:?} {share} %"))
        })
        .collect();
    assert!(coarse.is_empty(), "{coarse:?}");
}

/// The harness notices what is not declared: here, everything that an addition does.
#[test]
fn a_wrong_declaration_is_noticed() {
    let mut random = Random::new(1);
    let mut campaign = Campaign::new();
    campaign.machine.load(&[0x48, 0x01, 0xD8]); // add rax, rbx
    let nop = forms::decode(&[0x90], campaign.machine.window()).unwrap();
    let mut flow = Flow::new();
    campaign.analyzer.analyze(&nop, &mut flow).unwrap();
    let before = random_state(&campaign.machine, &mut random);
    campaign.machine.run(&before, &mut campaign.base).unwrap();
    let flips = [(Input::Register(Place::gpr(3)), 0)];
    campaign.label_inputs(&flips);
    let after = campaign.base.clone();
    campaign
        .labels
        .step(&nop, &flow, &before, &after, &campaign.machine);
    let mut noticed = Vec::new();
    campaign.flip_each(&before, None, &flips, |labels, number, places, window| {
        noticed = missing(labels, number, places, window);
    });
    assert!(noticed.contains(&"rax.0".to_string()), "{noticed:?}");
    assert!(!noticed.contains(&"rbx.0".to_string()), "{noticed:?}");
}
