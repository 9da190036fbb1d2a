//! Whether delays in the store buffers of processors could have changed the order in which a run
//! reached persistent memory.
//!
//! One thread runs at a time, so a run has one order in which instructions are executed. On x86,
//! what a thread stores then waits in its processor's store buffer. Stores, `clflush` and `sfence`
//! leave it in order, some time later; `clwb` and `clflushopt` leave it no earlier than the stores
//! to their line before them. It is empty behind a locked instruction, and behind a system call
//! that others can notice: the kernel takes locks for those. What a crash may leave follows from
//! the order in which things *leave*.
//!
//! **Guarantee.** Say that something of the persistent kind (store, write-back, fence) is executed
//! by one thread while the buffer of another thread may still hold something of that kind: the two
//! *overlap*. If nothing in a run overlaps, everything leaves in the order in which it was
//! executed, whatever is delayed and for how long: what a thread has executed has left before
//! another thread executes anything of the kind, and each buffer is in order. If the power fails
//! while a buffer holds something, memory is as if it had failed earlier, before the first of that
//! was executed. So store buffers then add no crash state to those of the recorded order.
//!
//! If something overlaps, there is another order: the later one may leave first. (What is loaded
//! may forbid that, if a thread has learned from another that it has stored, be it in ordinary
//! memory; that is not looked at. So an overlap is a reason to say that delays were not explored,
//! and never a reason to say that something is wrong.)
//!
//! `mfence` empties the buffer, too; a point does not tell it from `sfence`, so it counts as the
//! weaker one.
//!
//! **Source.** Px86 (Raad and others, POPL 2020); x86-TSO (Sewell and others, CACM 2010).

use crate::seat::{PointKind, SEATS};

/// Which threads may have something in their store buffers. Zeroed memory is a valid beginning.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Buffers {
    /// By seat: 1 if its buffer may hold something.
    holds: [u8; SEATS],
    /// How many do.
    holding: u32,
    _pad: u32,
    overlaps: u64,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            holds: [0; SEATS],
            holding: 0,
            _pad: 0,
            overlaps: 0,
        }
    }
}

impl Buffers {
    /// The thread in this seat executes what it stood before.
    pub fn executes(&mut self, seat: usize, kind: PointKind) {
        let enters = matches!(kind, PointKind::Store | PointKind::Flush | PointKind::Fence);
        if (enters || kind == PointKind::Rmw) && self.holding > u32::from(self.holds[seat]) {
            self.overlaps += 1;
        }
        match kind {
            PointKind::Rmw
            | PointKind::Locked
            | PointKind::Call
            | PointKind::Wait
            | PointKind::Exit => self.empties(seat),
            _ if enters && self.holds[seat] == 0 => {
                self.holds[seat] = 1;
                self.holding += 1;
            }
            _ => {}
        }
    }

    /// The thread in this seat is gone, or has just come.
    pub fn empties(&mut self, seat: usize) {
        self.holding -= u32::from(core::mem::take(&mut self.holds[seat]));
    }

    /// How often something was executed while another thread's buffer may have held something.
    pub fn overlaps(&self) -> u64 {
        self.overlaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const THREADS: usize = 3;

    /// All orders in which what is executed in this order may reach memory, by trying every delay.
    /// Loads are left out.
    fn orders(executed: &[(usize, PointKind)]) -> BTreeSet<Vec<usize>> {
        let mut found = BTreeSet::new();
        // How far the run is, what each buffer holds, and what has left.
        let mut open = vec![(0, vec![Vec::new(); THREADS], Vec::new())];
        while let Some((at, buffers, left)) = open.pop() {
            for thread in 0..THREADS {
                let mut buffers: Vec<Vec<usize>> = buffers.clone();
                if !buffers[thread].is_empty() {
                    let mut left: Vec<usize> = left.clone();
                    left.push(buffers[thread].remove(0));
                    open.push((at, buffers, left));
                }
            }
            let Some((thread, kind)) = executed.get(at).copied() else {
                if buffers.iter().all(Vec::is_empty) {
                    found.insert(left);
                }
                continue;
            };
            let (mut buffers, mut left) = (buffers, left);
            match kind {
                PointKind::Store | PointKind::Flush | PointKind::Fence => buffers[thread].push(at),
                PointKind::Rmw | PointKind::Locked | PointKind::Call => {
                    if !buffers[thread].is_empty() {
                        continue;
                    }
                    if kind == PointKind::Rmw {
                        left.push(at);
                    }
                }
                _ => {}
            }
            open.push((at + 1, buffers, left));
        }
        found
    }

    fn kinds() -> impl Strategy<Value = PointKind> {
        prop_oneof![
            Just(PointKind::Store),
            Just(PointKind::Flush),
            Just(PointKind::Fence),
            Just(PointKind::Rmw),
            Just(PointKind::Locked),
            Just(PointKind::Load),
            Just(PointKind::Call),
            Just(PointKind::Yield),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn they_overlap_exactly_where_there_is_another_order(
            executed in prop::collection::vec((0..THREADS, kinds()), 0..8),
        ) {
            let mut buffers = Buffers::default();
            for (thread, kind) in &executed {
                buffers.executes(*thread, *kind);
            }
            let orders = orders(&executed);
            prop_assert_eq!(buffers.overlaps() > 0, orders.len() > 1, "{:?}", orders);
            let is_event = |kind: PointKind| matches!(
                kind,
                PointKind::Store | PointKind::Flush | PointKind::Fence | PointKind::Rmw
            );
            let recorded: Vec<usize> = (0..executed.len()).filter(|at| is_event(executed[*at].1)).collect();
            prop_assert!(orders.contains(&recorded), "it is one of them");
        }
    }
}
