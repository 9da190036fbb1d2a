//! Random events on a few lines, for the tests that compare crash states.

use std::collections::BTreeMap;

use brownout_model::{
    Atomicity, ByteRange, Config, Domain, Event, FlushKind, FlushOrder, History, Key, Line, Op,
    Thread, Write,
};
use brownout_trace::event::Elements;
use proptest::prelude::*;

/// Two neighbouring lines, and one on another page.
pub const LINES: [u64; 3] = [0x1000, 0x1040, 0x3000];

/// Random stores and write-backs in random threads, with some of these fences. Some store the same
/// values again: then contents are equal although the survivors are not.
pub fn event(fence: impl Strategy<Value = Op<'static>>) -> impl Strategy<Value = Event<'static>> {
    let line = || (0..LINES.len()).prop_map(|i| LINES[i]);
    let offset = prop_oneof![4 => Just(0u64), 3 => Just(8), 1 => Just(4), 1 => Just(60)];
    let len = prop_oneof![5 => Just(8usize), 1 => Just(4), 1 => Just(12)];
    // Some are of string instructions: in halves of words, and downwards.
    let elements = (prop_oneof![Just(4u8), Just(8)], any::<bool>());
    let elements = prop_oneof![
        3 => Just(None),
        1 => elements.prop_map(|(bytes, descending)| Some(Elements { bytes, descending })),
    ];
    let write =
        (line(), offset, len, 1u8..5, elements).prop_map(|(line, offset, len, value, elements)| {
            let write = Write::new(Key(line + offset), vec![value; len]);
            match elements {
                Some(elements) => write.by(elements),
                None => write,
            }
        });
    let store = (write, 0u8..6).prop_map(|(write, how)| match how {
        0 => Op::Rmw(write),
        1 | 2 => Op::NtStore(write),
        _ => Op::Store(write),
    });
    let flush = (line(), 0u8..5).prop_map(|(line, kind)| Op::Flush {
        kind: match kind {
            0 => FlushKind::Clflush,
            1 => FlushKind::Clflushopt,
            _ => FlushKind::Clwb,
        },
        line: Line::of(Key(line)),
    });
    let op = prop_oneof![
        9 => store,
        5 => flush,
        1 => line().prop_map(|line| Op::Load(ByteRange::new(Key(line), 8))),
        2 => (line(), prop_oneof![Just(1u64), Just(128)])
            .prop_map(|(line, len)| Op::Msync(ByteRange::new(Key(line), len))),
        5 => fence,
    ];
    (1u32..3, op).prop_map(|(thread, op)| Event::new(Thread(thread), op))
}

/// Every configuration of these domains.
pub fn config(domain: impl Strategy<Value = Domain>) -> impl Strategy<Value = Config> {
    let atomicity = prop_oneof![Just(Atomicity::Word), Just(Atomicity::Line)];
    let flush_order = prop_oneof![Just(FlushOrder::Recorded), Just(FlushOrder::Program)];
    (domain, atomicity, flush_order).prop_map(|(domain, atomicity, flush_order)| Config {
        domain,
        atomicity,
        flush_order,
    })
}

/// A store of other bytes at the place, and in the manner, of another one.
pub fn rewritten(write: &Write<'_>, bytes: Vec<u8>) -> Write<'static> {
    let new = Write::new(write.range().start(), bytes);
    match write.elements() {
        Some(elements) => new.by(elements),
        None => new,
    }
}

/// The history of these events.
pub fn history_of(config: Config, events: &[Event<'_>]) -> History {
    let mut history = History::new(config);
    for event in events {
        history.apply(event).expect("values are there");
    }
    history
}

/// The last byte stored at each address.
pub fn last_values(events: &[Event<'_>]) -> BTreeMap<u64, u8> {
    let mut values = BTreeMap::new();
    for event in events {
        if let Op::Store(write) | Op::NtStore(write) | Op::Rmw(write) = &event.op {
            let bytes = write.bytes().expect("values are there");
            values.extend((write.range().start().0..).zip(bytes.iter().copied()));
        }
    }
    values
}
