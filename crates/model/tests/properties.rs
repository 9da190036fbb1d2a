//! Random event sequences: the two views against the reference, in every domain and configuration.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use brownout_model::{
    Atomicity, ByteRange, Config, Domain, Event, FlushKind, FlushOrder, History, Intervals, Line,
    Op, Thread, Write, reference,
};
use brownout_trace::event::TargetAddr;
use common::{image_outcomes, lazy_outcomes};
use proptest::prelude::*;

/// Two neighbouring lines, and one on another page.
const BASES: [u64; 3] = [0x1000, 0x1040, 0x3000];

#[derive(Clone, Debug)]
enum Step {
    Store {
        base: usize,
        offset: u64,
        len: usize,
        how: u8,
    },
    Flush {
        base: usize,
        kind: u8,
    },
    Load {
        base: usize,
    },
    Msync {
        base: usize,
    },
    Fence(u8),
}

fn step() -> impl Strategy<Value = (u8, Step)> {
    let base = || 0usize..BASES.len();
    let store = (
        base(),
        prop_oneof![4 => Just(0u64), 3 => Just(8), 1 => Just(4), 1 => Just(60)],
    )
        .prop_flat_map(|(base, offset)| {
            let len = prop_oneof![5 => Just(8usize), 1 => Just(4), 1 => Just(12)];
            (Just(base), Just(offset), len, 0u8..6)
        })
        .prop_map(|(base, offset, len, how)| Step::Store {
            base,
            offset,
            len,
            how,
        });
    let step = prop_oneof![
        8 => store,
        5 => (base(), 0u8..5).prop_map(|(base, kind)| Step::Flush { base, kind }),
        1 => base().prop_map(|base| Step::Load { base }),
        1 => base().prop_map(|base| Step::Msync { base }),
        5 => (0u8..8).prop_map(Step::Fence),
    ];
    (1u8..3, step)
}

/// Every store gets its own byte value, so that an outcome tells which stores it holds.
fn events(steps: &[(u8, Step)]) -> Vec<Event<'static>> {
    let mut value = 0u8;
    let mut events = Vec::new();
    for (thread, step) in steps {
        let op = match step {
            Step::Store {
                base,
                offset,
                len,
                how,
            } => {
                value += 1;
                let write = Write::new(TargetAddr(BASES[*base] + offset), vec![value; *len]);
                match how {
                    0 => Op::Rmw(write),
                    1 | 2 => Op::NtStore(write),
                    _ => Op::Store(write),
                }
            }
            Step::Flush { base, kind } => {
                let kind = match kind {
                    0 => FlushKind::Clflush,
                    1 => FlushKind::Clflushopt,
                    _ => FlushKind::Clwb,
                };
                Op::Flush {
                    kind,
                    line: Line::of(TargetAddr(BASES[*base])),
                }
            }
            Step::Load { base } => Op::Load(ByteRange::new(TargetAddr(BASES[*base]), 8)),
            Step::Msync { base } => Op::Msync(ByteRange::new(TargetAddr(BASES[*base]), 1)),
            Step::Fence(kind) => match kind {
                0 | 1 => Op::Sfence,
                2 => Op::Mfence,
                3 => Op::Locked,
                4..=6 => Op::Ofence,
                _ => Op::Dfence,
            },
        };
        events.push(Event::new(Thread(u32::from(*thread)), op));
    }
    events
}

fn config() -> impl Strategy<Value = Config> {
    let domain = prop_oneof![
        3 => Just(Domain::X86),
        1 => Just(Domain::Eadr),
        2 => Just(Domain::Hops),
        1 => Just(Domain::Page),
    ];
    let atomicity = prop_oneof![Just(Atomicity::Word), Just(Atomicity::Line)];
    let flush_order = prop_oneof![Just(FlushOrder::Recorded), Just(FlushOrder::Program)];
    (domain, atomicity, flush_order).prop_map(|(domain, atomicity, flush_order)| Config {
        domain,
        atomicity,
        flush_order,
    })
}

/// The last byte stored at each address.
fn last_values(events: &[Event<'_>]) -> BTreeMap<u64, u8> {
    let mut values = BTreeMap::new();
    for event in events {
        if let Op::Store(w) | Op::NtStore(w) | Op::Rmw(w) = &event.op {
            values.extend((w.range().start().0..).zip(w.bytes().unwrap_or(&[]).iter().copied()));
        }
    }
    values
}

fn words(values: &BTreeMap<u64, u8>) -> Vec<ByteRange> {
    let words: BTreeSet<u64> = values.keys().map(|addr| addr / 8 * 8).collect();
    words
        .into_iter()
        .map(|addr| ByteRange::new(TargetAddr(addr), 8))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lazy_reads_equal_the_reference(config in config(), steps in prop::collection::vec(step(), 1..15)) {
        let events = events(&steps);
        let Some(images) = reference::enumerate(config, &BTreeMap::new(), &events) else {
            return Ok(());
        };
        let mut history = History::new(config);
        for event in &events {
            history.apply(event).expect("values are there");
        }
        let crash = history.crash();
        let mut ranges = words(&last_values(&events));
        prop_assert_eq!(lazy_outcomes(&crash, &ranges), image_outcomes(&images, &ranges));
        // The order in which recovery reads must not matter.
        ranges.reverse();
        prop_assert_eq!(lazy_outcomes(&crash, &ranges), image_outcomes(&images, &ranges));
        // Each word alone: the may-read set itself.
        for range in &ranges {
            let one = std::slice::from_ref(range);
            prop_assert_eq!(lazy_outcomes(&crash, one), image_outcomes(&images, one));
        }
        let states = crash.states().expect("few");
        prop_assert!(images.len() as u128 <= states, "{} images, {states} states", images.len());
        prop_assert_eq!(states == 1, crash.uncertain_lines().next().is_none());
        prop_assert!((crash.states_log2() - (states as f64).log2()).abs() < 1e-9);
    }

    #[test]
    fn persisted_is_exact_for_one_thread(domain in 0usize..4, steps in prop::collection::vec(step(), 1..15)) {
        // With one thread and one value a word, intervals miss nothing that the reference knows.
        let steps: Vec<_> = steps.into_iter().map(|(_, step)| (1, step)).collect();
        let config = Config { domain: Domain::ALL[domain], ..Config::default() };
        let events = events(&steps);
        let Some(images) = reference::enumerate(config, &BTreeMap::new(), &events) else {
            return Ok(());
        };
        let mut intervals = Intervals::new(config);
        for event in &events {
            intervals.apply(event);
        }
        for (addr, value) in last_values(&events) {
            let certain = images.iter().all(|image| image[&addr] == value);
            let byte = ByteRange::new(TargetAddr(addr), 1);
            prop_assert_eq!(intervals.is_persisted(byte), certain, "{:#x}", addr);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn intervals_never_contradict_the_reference(config in config(), steps in prop::collection::vec(step(), 1..15)) {
        let events = events(&steps);
        let images_at: Option<Vec<_>> = (1..=events.len())
            .map(|n| reference::enumerate(config, &BTreeMap::new(), &events[..n]))
            .collect();
        let Some(images_at) = images_at else {
            return Ok(());
        };
        let images = &images_at[events.len() - 1];
        let mut intervals = Intervals::new(config);
        for event in &events {
            intervals.apply(event);
        }
        let last = last_values(&events);
        let ranges = words(&last);
        let stored = |range: &ByteRange| {
            last.range(range.start().0..range.end().0).map(|(a, v)| (*a, *v)).collect::<Vec<_>>()
        };
        for a in &ranges {
            let a_bytes = stored(a);
            if intervals.is_persisted(*a) {
                for image in images {
                    prop_assert!(a_bytes.iter().all(|(addr, v)| image[addr] == *v), "{a:?} persisted, {image:?}");
                }
            }
            for b in ranges.iter().filter(|b| *b != a && intervals.is_ordered_before(*a, **b)) {
                // At every crash point: at the last, what was reordered may both have arrived.
                for images in &images_at {
                    for image in images {
                        let holds = |(addr, v): &(u64, u8)| image.get(addr) == Some(v);
                        let any_b = stored(b).iter().any(holds);
                        let all_a = a_bytes.iter().all(holds);
                        prop_assert!(!any_b || all_a, "{a:?} before {b:?}, {image:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn canary_a_model_without_the_fence_is_caught() {
    // Were the fence dropped on one side, the comparison above would have to notice.
    let at = TargetAddr(0x1000);
    let by = |op| Event::new(Thread(1), op);
    let full = [
        by(Op::Store(Write::new(at, vec![1; 8]))),
        by(Op::Flush {
            kind: FlushKind::Clwb,
            line: Line::of(at),
        }),
        by(Op::Sfence),
    ];
    let images = reference::enumerate(Config::default(), &BTreeMap::new(), &full).expect("small");
    let mut history = History::new(Config::default());
    for event in &full[..2] {
        history.apply(event).expect("values are there");
    }
    let range = [ByteRange::new(at, 8)];
    assert_ne!(
        lazy_outcomes(&history.crash(), &range),
        image_outcomes(&images, &range)
    );
}

#[test]
fn intervals_stay_as_large_as_what_is_touched() {
    let mut intervals = Intervals::new(Config::default());
    for i in 0..100_000u64 {
        let at = TargetAddr(0x1000 + i % 16 * 8);
        intervals.apply(&Event::new(
            Thread(1),
            Op::Store(Write::new(at, vec![1; 8])),
        ));
        let flush = Op::Flush {
            kind: FlushKind::Clwb,
            line: Line::of(at),
        };
        intervals.apply(&Event::new(Thread(1), flush));
    }
    assert!(intervals.unpersisted().count() <= 16);
    intervals.apply(&Event::new(Thread(1), Op::Sfence));
    assert_eq!(intervals.unpersisted().count(), 0);
    assert_eq!(
        intervals
            .status(ByteRange::new(TargetAddr(0), 1 << 20))
            .count(),
        2,
        "a line's bytes that became persistent together are one entry"
    );
}
