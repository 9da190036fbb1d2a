//! From gates to clauses, and from a model of those to bytes.
//!
//! # Guarantee
//!
//! A search ends when its budget of conflicts or its time is spent: that of a processor, because a
//! machine that is busy with something else is no reason to give up. Input bits are tried with
//! their old values first, so that a model differs from the old input in few bytes.

use std::cell::Cell;
use std::time::Duration;

use rustc_hash::FxHashMap;

use batsat::{Callbacks, Lit, Solver, SolverInterface, SolverOpts, lbool};

use crate::blast::Circuit;
use crate::gates::{Bit, Gate};

/// How the search ended.
pub(crate) enum Outcome {
    /// The bytes of the circuit's inputs.
    Sat(Vec<u8>),
    /// These of the circuit's roots cannot all hold.
    Unsat(Vec<usize>),
    /// The budget or the time is spent.
    GaveUp,
}

/// How long this thread has used a processor.
pub(crate) fn used() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: our own variable. Every kernel has this clock, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What ends a search.
struct Limits {
    conflicts: Cell<u64>,
    budget: u64,
    deadline: Duration,
    /// Looking at the clock is expensive, and it is asked for at each decision.
    asked: Cell<u32>,
    over: Cell<bool>,
}

impl Callbacks for Limits {
    fn on_new_clause(&mut self, _: &[Lit], kind: batsat::ClauseKind) {
        if kind == batsat::ClauseKind::Learnt {
            *self.conflicts.get_mut() += 1;
        }
    }

    fn stop(&self) -> bool {
        // Once over, it stays over: the search is left by asking twice.
        if !self.over.get() {
            self.asked.set(self.asked.get().wrapping_add(1));
            self.over.set(
                self.conflicts.get() > self.budget
                    || self.asked.get().is_multiple_of(16) && used() >= self.deadline,
            );
        }
        self.over.get()
    }
}

/// Looks for input bits under which all roots hold. Returns the conflicts that it took, too.
/// With `sticky`, an input bit is decided to have its old value whenever it is decided.
pub(crate) fn search(
    circuit: &Circuit,
    old: &[u8],
    sticky: bool,
    budget: u64,
    deadline: Duration,
) -> (Outcome, u64) {
    let limits = Limits {
        conflicts: Cell::new(0),
        budget,
        deadline,
        asked: Cell::new(0),
        over: Cell::new(false),
    };
    let mut search = Search {
        solver: Solver::new(SolverOpts::default(), limits),
        literals: vec![None; circuit.gates.gates.len()],
        clause: Vec::new(),
    };
    for (word, &old) in circuit.inputs.iter().zip(old) {
        for (at, bit) in word.iter().enumerate() {
            let phase = if sticky {
                lbool::new(old >> at & 1 == 1)
            } else {
                lbool::UNDEF
            };
            let variable = search.solver.new_var(phase, true);
            search.literals[bit.gate()] = Some(Lit::new(variable, true));
        }
    }
    search.define(circuit);
    // Assumed instead of asserted, so that the solver can say which of them it takes to have no
    // model.
    let mut assumed = Vec::with_capacity(circuit.roots.len());
    let mut root_of = FxHashMap::default();
    for (number, &root) in circuit.roots.iter().enumerate() {
        if root == Bit::FALSE {
            return (Outcome::Unsat(vec![number]), 0);
        }
        if root != Bit::TRUE {
            let literal = search.literal(root);
            // One is the opposite of the other. (From here on, a variable says which root is
            // meant.)
            if let Some(&opposite) = root_of.get(&!literal) {
                return (Outcome::Unsat(vec![opposite, number]), 0);
            }
            if root_of.insert(literal, number).is_none() {
                assumed.push(literal);
            }
        }
    }
    let result = search.solver.solve_limited(&assumed);
    let conflicts = search.solver.num_conflicts();
    if result == lbool::FALSE {
        let core = search.solver.unsat_core().iter();
        let roots = core.filter_map(|literal| {
            let same = root_of.get(literal);
            same.or_else(|| root_of.get(&!*literal)).copied()
        });
        return (Outcome::Unsat(roots.collect()), conflicts);
    }
    if result != lbool::TRUE {
        return (Outcome::GaveUp, conflicts);
    }
    let bytes = circuit
        .inputs
        .iter()
        .zip(old)
        .map(|(word, &old)| {
            word.iter().enumerate().fold(0, |byte, (at, &bit)| {
                let value = search.solver.value_lit(search.literal(bit));
                let value = if value == lbool::UNDEF {
                    old >> at & 1 == 1
                } else {
                    value == lbool::TRUE
                };
                byte | u8::from(value) << at
            })
        })
        .collect();
    (Outcome::Sat(bytes), conflicts)
}

struct Search {
    solver: Solver<Limits>,
    /// The positive literal of each gate that is needed.
    literals: Vec<Option<Lit>>,
    clause: Vec<Lit>,
}

impl Search {
    fn literal(&self, bit: Bit) -> Lit {
        let literal = self.literals[bit.gate()].expect("a gate that was defined");
        if bit.inverted() { !literal } else { literal }
    }

    fn clause(&mut self, literals: &[Lit]) {
        self.clause.clear();
        self.clause.extend_from_slice(literals);
        self.solver.add_clause_reuse(&mut self.clause);
    }

    /// Clauses for those gates that the roots depend on.
    fn define(&mut self, circuit: &Circuit) {
        let gates = &circuit.gates.gates;
        let mut needed = vec![false; gates.len()];
        for root in &circuit.roots {
            needed[root.gate()] = true;
        }
        // Operands come before what they are operands of.
        for at in (0..gates.len()).rev() {
            if !needed[at] {
                continue;
            }
            match gates[at] {
                Gate::False | Gate::Free => {}
                Gate::And(a, b) | Gate::Xor(a, b) => {
                    needed[a.gate()] = true;
                    needed[b.gate()] = true;
                }
                Gate::Choose(a, b, c) | Gate::Majority(a, b, c) => {
                    needed[a.gate()] = true;
                    needed[b.gate()] = true;
                    needed[c.gate()] = true;
                }
            }
        }
        for (at, gate) in gates.iter().enumerate() {
            if !needed[at] || matches!(gate, Gate::False | Gate::Free) {
                continue;
            }
            let out = Lit::new(self.solver.new_var(lbool::UNDEF, true), true);
            self.literals[at] = Some(out);
            match *gate {
                Gate::False | Gate::Free => {}
                Gate::And(a, b) => {
                    let (a, b) = (self.literal(a), self.literal(b));
                    self.clause(&[!out, a]);
                    self.clause(&[!out, b]);
                    self.clause(&[out, !a, !b]);
                }
                Gate::Xor(a, b) => {
                    let (a, b) = (self.literal(a), self.literal(b));
                    self.clause(&[!out, a, b]);
                    self.clause(&[!out, !a, !b]);
                    self.clause(&[out, !a, b]);
                    self.clause(&[out, a, !b]);
                }
                Gate::Choose(a, b, c) => {
                    let (a, b, c) = (self.literal(a), self.literal(b), self.literal(c));
                    self.clause(&[!out, !a, b]);
                    self.clause(&[out, !a, !b]);
                    self.clause(&[!out, a, c]);
                    self.clause(&[out, a, !c]);
                    // They follow from the others, but let values be found earlier.
                    self.clause(&[!out, b, c]);
                    self.clause(&[out, !b, !c]);
                }
                Gate::Majority(a, b, c) => {
                    let (a, b, c) = (self.literal(a), self.literal(b), self.literal(c));
                    for (x, y) in [(a, b), (a, c), (b, c)] {
                        self.clause(&[!out, x, y]);
                        self.clause(&[out, !x, !y]);
                    }
                }
            }
        }
    }
}
