//! Locked instructions on ordinary memory: how threads agree without a function of the C library.
//!
//! The thread leaves the cache in front of each and records its operand, once there is more than
//! one thread. That is slow, and for the prediction of `check --threads` only. On tracked memory
//! the instruction has a record of its own (`site.rs`), and those of the C library are left out:
//! its locks are known by their functions (`pm/hooks.rs`).

use super::builder::{Builder, Decoded, Form, Pass};
use super::interpret::{Goes, Interpreter};
use crate::machine::Machine;
use crate::pm::{hooks, is_tracked, ring};
use brownout_abi::rare;
use iced_x86::{Instruction, OpKind};

/// See the module's header.
pub struct Atomics;

impl Pass for Atomics {
    fn is_wanted(&self, mode: &crate::mode::Mode) -> bool {
        mode.record && mode.threads
    }

    fn before(&self, b: &mut Builder, d: &Decoded) {
        let is_locked = brownout_insn::fence(&d.insn) == Some(brownout_insn::FenceKind::Locked);
        let has_memory = d.insn.op_kinds().any(|kind| kind == OpKind::Memory);
        if d.form == Form::Valid && is_locked && has_memory && !hooks::is_of_c_library(d.pc()) {
            b.interpreted(&d.insn, &Atomics);
        }
    }
}

impl Interpreter for Atomics {
    fn execute(&self, machine: &mut Machine, insn: &Instruction) -> Goes {
        let address = machine.address(insn);
        if ring::shared() && !is_tracked(address) {
            let words = [address, 0, 0, 0, 0, 0];
            crate::pm::event(machine.thread(), rare::ATOMIC, words, &[]);
        }
        Goes::Here
    }
}
