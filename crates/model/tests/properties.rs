//! Random event sequences: the two views against the reference, in every domain and configuration.

mod common;
mod random;

use std::collections::{BTreeMap, BTreeSet};

use brownout_model::{
    ByteRange, Config, Domain, Event, FlushKind, Intervals, Key, Line, Op, Thread, Write, reference,
};
use common::{image_outcomes, lazy_outcomes};
use proptest::prelude::*;
use random::{history_of, last_values};

/// Random events, with the fences of every domain. Every store has its own byte value, so that an
/// outcome tells which stores it holds.
fn events() -> impl Strategy<Value = Vec<Event<'static>>> {
    let event = random::event(prop_oneof![
        2 => Just(Op::Sfence),
        1 => Just(Op::Mfence),
        1 => Just(Op::Locked),
        3 => Just(Op::Ofence),
        1 => Just(Op::Dfence),
    ]);
    prop::collection::vec(event, 1..15).prop_map(|mut events| {
        let mut value = 0u8;
        for event in &mut events {
            if let Op::Store(write) | Op::NtStore(write) | Op::Rmw(write) = &mut event.op {
                value += 1;
                *write = random::rewritten(write, vec![value; write.range().len() as usize]);
            }
        }
        events
    })
}

fn config() -> impl Strategy<Value = Config> {
    random::config(prop_oneof![
        3 => Just(Domain::X86),
        1 => Just(Domain::Eadr),
        2 => Just(Domain::Hops),
        1 => Just(Domain::Page),
    ])
}

fn words(values: &BTreeMap<u64, u8>) -> Vec<ByteRange> {
    let words: BTreeSet<u64> = values.keys().map(|addr| addr / 8 * 8).collect();
    words
        .into_iter()
        .map(|addr| ByteRange::new(Key(addr), 8))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lazy_reads_equal_the_reference(config in config(), events in events()) {
        let Some(images) = reference::enumerate(config, &BTreeMap::new(), &events) else {
            return Ok(());
        };
        let history = history_of(config, &events);
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
    fn persisted_is_exact_for_one_thread(domain in 0usize..4, mut events in events()) {
        // With one thread and one value a word, intervals miss nothing that the reference knows.
        for event in &mut events {
            event.thread = Thread(1);
        }
        let config = Config { domain: Domain::ALL[domain], ..Config::default() };
        let Some(images) = reference::enumerate(config, &BTreeMap::new(), &events) else {
            return Ok(());
        };
        let mut intervals = Intervals::new(config);
        for event in &events {
            intervals.apply(event);
        }
        for (addr, value) in last_values(&events) {
            let certain = images.iter().all(|image| image[&addr] == value);
            let byte = ByteRange::new(Key(addr), 1);
            prop_assert_eq!(intervals.is_persisted(byte), certain, "{:#x}", addr);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn intervals_never_contradict_the_reference(config in config(), events in events()) {
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
    let at = Key(0x1000);
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
    let history = history_of(Config::default(), &full[..2]);
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
        let at = Key(0x1000 + i % 16 * 8);
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
        intervals.status(ByteRange::new(Key(0), 1 << 20)).count(),
        2,
        "a line's bytes that became persistent together are one entry"
    );
}
