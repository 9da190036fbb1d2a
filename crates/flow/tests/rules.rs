//! What cannot be seen by executing an instruction in a test, and what must be exact.

use brownout_flow::{
    Analyzer, At, Flag, Flow, Labels, OPS_MAX, Place, REGISTER_PLACES, Shadow, Unknown,
};
use iced_x86::{Decoder, DecoderOptions, Instruction};

const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;
const R11: usize = 11;

fn decode(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
}

fn flow(bytes: &[u8]) -> Flow {
    let mut flow = Flow::new();
    Analyzer::new().analyze(&decode(bytes), &mut flow).unwrap();
    flow
}

/// The labels after the instruction, with label 1 on all bytes of these places before it.
fn after(bytes: &[u8], sources: &[Place]) -> Labels {
    let mut labels = Labels::new();
    for place in sources {
        labels.set_register(*place, 1);
    }
    flow(bytes).apply(&mut labels);
    labels
}

#[test]
fn a_branch_is_decided_by_what_it_reads() {
    let zero = Place::flag(Flag::Zero);
    assert_eq!(after(&[0x74, 0], &[zero]).register(Place::CONTROL), 1); // je
    assert_eq!(after(&[0x72, 0], &[zero]).register(Place::CONTROL), 0); // jb
    let rax = Place::gpr(RAX).plus(3);
    assert_eq!(after(&[0xFF, 0xE0], &[rax]).register(Place::CONTROL), 1); // jmp rax
    assert_eq!(after(&[0xEB, 0], &[rax, zero]).register(Place::CONTROL), 0); // jmp
    let rcx = Place::gpr(RCX).plus(7);
    assert_eq!(after(&[0xE3, 0], &[rcx]).register(Place::CONTROL), 1); // jrcxz
    assert_eq!(after(&[0xE2, 0], &[rcx]).register(Place::CONTROL), 1); // loop
    let summary = *flow(&[0x74, 0]).summary();
    assert!(summary.control && summary.flags_read == 1 << Flag::Zero as u8);
}

#[test]
fn calls_push_a_constant_and_returns_are_decided_by_memory() {
    let call = flow(&[0xE8, 0, 0, 0, 0]);
    assert_eq!(call.memory()[0].at, At::Push);
    assert!(call.memory()[0].written && !call.memory()[0].read);
    let mut labels = Labels::new();
    labels.memory[0].fill(1);
    call.apply(&mut labels);
    assert_eq!(labels.memory[0][..8], [0; 8]);

    let ret = flow(&[0xC3]);
    assert_eq!(ret.memory()[0].at, At::Pop);
    let mut labels = Labels::new();
    labels.memory[0][6] = 2;
    labels.set_register(Place::gpr(RSP), 4);
    ret.apply(&mut labels);
    assert_eq!(labels.register(Place::CONTROL), 2);
    assert_eq!(ret.address_label(0, &mut labels), 4);
}

#[test]
fn a_system_call_overwrites_two_registers() {
    let labels = after(&[0x0F, 0x05], &[Place::gpr(RCX), Place::gpr(R11)]);
    assert_eq!(labels.register(Place::gpr(RCX)), 0);
    assert_eq!(labels.register(Place::gpr(R11)), 0);
    let labels = after(&[0x0F, 0x05], &[Place::flag(Flag::Carry)]);
    assert_eq!(labels.register(Place::gpr(R11)), 1);
}

#[test]
fn segment_bases_are_followed() {
    let labels = after(&[0xF3, 0x48, 0x0F, 0xAE, 0xD0], &[Place::gpr(RAX)]); // wrfsbase rax
    assert_eq!(labels.register(Place::FS_BASE), 1);
    let load = flow(&[0x64, 0x48, 0x8B, 0x00]); // mov rax, fs:[rax]
    let mut labels = Labels::new();
    labels.set_register(Place::FS_BASE.plus(2), 1);
    assert_eq!(load.address_label(0, &mut labels), 1);
    assert!(load.summary().others_read && load.summary().gprs_addressing == 1);
}

#[test]
fn idioms_that_clear_depend_on_nothing() {
    let all: Vec<Place> = (0..REGISTER_PLACES as u16).map(Place).collect();
    for bytes in [&[0x31, 0xC0][..], &[0x29, 0xC0], &[0x48, 0x31, 0xC0]] {
        let labels = after(bytes, &all); // xor eax, eax; sub eax, eax; xor rax, rax
        for byte in 0..8 {
            assert_eq!(
                labels.register(Place::gpr(RAX).plus(byte)),
                0,
                "{bytes:02x?}"
            );
        }
        assert_eq!(labels.register(Place::flag(Flag::Zero)), 0);
    }
    // sbb eax, eax copies the carry.
    let labels = after(&[0x19, 0xC0], &[Place::gpr(RAX), Place::gpr(RAX).plus(4)]);
    assert_eq!(labels.register(Place::gpr(RAX)), 0);
    let labels = after(&[0x19, 0xC0], &[Place::flag(Flag::Carry)]);
    assert_eq!(labels.register(Place::gpr(RAX).plus(3)), 1);
    assert_eq!(labels.register(Place::gpr(RAX).plus(4)), 0);
}

#[test]
fn what_is_unknown_is_called_so() {
    let mut analyzer = Analyzer::new();
    let mut flow = Flow::new();
    for bytes in [
        &[0x0F, 0x30][..],                     // wrmsr
        &[0x8E, 0xD8],                         // mov ds, eax
        &[0xEC],                               // in al, dx
        &[0xC4, 0xE2, 0x7B, 0x4B, 0x04, 0x08], // tileloadd
        &[0x06],                               // nothing in 64-bit mode
    ] {
        let answer = analyzer.analyze(&decode(bytes), &mut flow);
        assert!(matches!(answer, Err(Unknown(_))), "{bytes:02x?}");
        assert!(flow.ops().is_empty() && flow.memory().is_empty());
    }
}

#[test]
fn a_list_is_small() {
    assert!(size_of::<Flow>() < 4096 && OPS_MAX < 256);
}
