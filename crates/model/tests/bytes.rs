//! The fast view against a table with one row a byte: the same rules, without lines, pages, chains
//! and short cuts.

use std::collections::BTreeMap;

use brownout_model::{
    ByteRange, Config, Domain, Epoch, FenceRule, FlushKind, FlushOutcome, FlushRule, Input,
    Intervals, Key, LINE_BYTES, Line, Moment, Persistency, Rules, StoreRule, Tag, Thread,
};
use proptest::prelude::*;

/// Two neighbouring lines at the end of one of the table's pages, and one far away.
const BASES: [u64; 3] = [0x3f80, 0x3fc0, 0x4000_0000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte {
    state: Persistency,
    from: Epoch,
    to: Option<Epoch>,
    stored: Moment,
    thread: Thread,
    tag: Tag,
    flush_tag: Tag,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Flush,
    Store,
}

struct Table {
    rules: &'static Rules,
    bytes: BTreeMap<u64, Byte>,
    waiting: Vec<(Thread, Waits, ByteRange, Moment)>,
    epoch: Epoch,
    now: Moment,
}

impl Table {
    fn in_range(&mut self, range: ByteRange) -> impl Iterator<Item = &mut Byte> {
        let bytes = self.bytes.range_mut(range.start().0..range.end().0);
        bytes.map(|(_, byte)| byte)
    }

    fn store(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: StoreRule,
        tag: Tag,
    ) -> Option<Tag> {
        let from = self.epoch;
        let durable = rule == StoreRule::Durable;
        if durable {
            self.epoch.0 += 1;
        }
        let to = durable.then_some(self.epoch);
        let fence_alone = rule == StoreRule::Unordered
            || rule == StoreRule::Cached && self.rules.dfence == FenceRule::Drains;
        if fence_alone {
            self.waiting.push((thread, Waits::Store, range, self.now));
        }
        let open = self.in_range(range).filter(|b| !b.state.is_persisted());
        let overwritten = open.map(|byte| byte.tag).last();
        for addr in range.start().0..range.end().0 {
            let byte = Byte {
                state: Persistency::Clean.next(Input::Store(rule)),
                from,
                to,
                stored: self.now,
                thread,
                tag,
                flush_tag: Tag(0),
            };
            self.bytes.insert(addr, byte);
        }
        overwritten
    }

    fn flush(
        &mut self,
        thread: Thread,
        range: ByteRange,
        rule: FlushRule,
        tag: Tag,
    ) -> &'static str {
        if rule == FlushRule::Ignored {
            return "ignored";
        }
        let unit = self.rules.unit_bytes;
        let start = range.start().0 / unit * unit;
        let whole = ByteRange::new(Key(start), (range.end().0 - start).next_multiple_of(unit));
        let closes = Epoch(self.epoch.0 + 1);
        let (mut dirty, mut again) = (false, false);
        for byte in self.in_range(whole) {
            dirty |= byte.state == Persistency::Dirty;
            again |= byte.state == Persistency::Flushing;
            let next = byte.state.next(Input::Flush(rule));
            if next != byte.state {
                byte.state = next;
                byte.flush_tag = tag;
                if next == Persistency::Persisted {
                    byte.to = Some(closes);
                }
            }
        }
        match rule {
            FlushRule::AtOnce => self.epoch = closes,
            _ => self.waiting.push((thread, Waits::Flush, whole, self.now)),
        }
        match (dirty, again) {
            (true, _) => "useful",
            (false, true) => "again",
            (false, false) => "clean",
        }
    }

    fn fence(&mut self, thread: Thread, rule: FenceRule) -> bool {
        if rule == FenceRule::Ignored {
            return false;
        }
        self.epoch.0 += 1;
        if rule == FenceRule::Orders {
            return false;
        }
        let epoch = self.epoch;
        let mut completed = false;
        let (own, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(by, ..)| *by == thread);
        self.waiting = others;
        let own: Vec<_> = own;
        for (_, waits, range, covers) in own {
            for byte in self.in_range(range) {
                let own = byte.stored <= covers
                    && match waits {
                        Waits::Flush => byte.state == Persistency::Flushing,
                        Waits::Store => byte.thread == thread,
                    };
                let next = byte.state.next(Input::Fence { rule, own });
                if next != byte.state {
                    byte.state = next;
                    byte.to = Some(epoch);
                    completed = true;
                }
            }
        }
        completed
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store {
        at: u64,
        len: u64,
        past_the_cache: bool,
    },
    Flush {
        at: u64,
        kind: FlushKind,
    },
    FlushRange {
        at: u64,
        len: u64,
    },
    Fence,
    Forget {
        at: u64,
        len: u64,
    },
}

fn place() -> impl Strategy<Value = u64> {
    (0usize..BASES.len(), 0u64..64).prop_map(|(base, into)| BASES[base] + into)
}

fn step() -> impl Strategy<Value = (u32, Step)> {
    let short = || prop_oneof![6 => 1u64..=16, 1 => Just(64u64), 1 => 1u64..200];
    let long = || prop_oneof![6 => 1u64..=80, 1 => 4000u64..6000, 1 => 17_000u64..18_000];
    let kind = prop_oneof![
        1 => Just(FlushKind::Clflush),
        1 => Just(FlushKind::Clflushopt),
        6 => Just(FlushKind::Clwb),
    ];
    let step = prop_oneof![
        10 => (place(), short(), 0u8..5).prop_map(|(at, len, how)| Step::Store {
            at,
            len,
            past_the_cache: how == 0,
        }),
        1 => (place(), long()).prop_map(|(at, len)| Step::Store { at, len, past_the_cache: false }),
        6 => (place(), kind).prop_map(|(at, kind)| Step::Flush { at, kind }),
        1 => (place(), long()).prop_map(|(at, len)| Step::FlushRange { at, len }),
        5 => Just(Step::Fence),
        1 => (place(), long()).prop_map(|(at, len)| Step::Forget { at, len }),
        1 => (place(), 1u64..16).prop_map(|(at, len)| Step::Forget { at, len }),
    ];
    (1u32..4, step)
}

fn word(outcome: FlushOutcome) -> &'static str {
    match outcome {
        FlushOutcome::Useful => "useful",
        FlushOutcome::Again { .. } => "again",
        FlushOutcome::Clean { .. } => "clean",
        FlushOutcome::Ignored => "ignored",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn lines_say_what_bytes_say(
        domain in prop_oneof![5 => Just(Domain::X86), 1 => Just(Domain::Eadr), 1 => Just(Domain::Hops), 1 => Just(Domain::Page)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let config = Config { domain, ..Config::default() };
        let rules = domain.rules();
        let mut lines = Intervals::new(config);
        let mut table = Table {
            rules,
            bytes: BTreeMap::new(),
            waiting: Vec::new(),
            epoch: Epoch(0),
            now: Moment(0),
        };
        for (number, (thread, step)) in steps.iter().enumerate() {
            let now = Moment(number as u64 + 1);
            table.now = now;
            let thread = Thread(*thread);
            let tag = Tag(number as u32 + 1);
            let range = |at: u64, len: u64| ByteRange::new(Key(at), len);
            match *step {
                Step::Store { at, len, past_the_cache: false } => {
                    let range = range(at, len);
                    let said = lines.store_at(now, thread, range, tag);
                    let expected = table.store(thread, range, rules.store, tag);
                    prop_assert_eq!(said.is_some(), expected.is_some());
                }
                Step::Store { at, len, past_the_cache: true } => {
                    let range = range(at, len);
                    let said = lines.nt_store_at(now, thread, range, tag);
                    let expected = table.store(thread, range, rules.nt_store, tag);
                    prop_assert_eq!(said.is_some(), expected.is_some());
                }
                Step::Flush { at, kind } => {
                    let line = Line::of(Key(at));
                    let said = lines.flush_at(now, thread, line, kind, tag);
                    let expected = table.flush(thread, line.range(), rules.flush(kind), tag);
                    prop_assert_eq!(word(said), expected);
                }
                Step::FlushRange { at, len } => {
                    let range = range(at, len);
                    let said = lines.flush_range(now, thread, range, FlushKind::Clwb, tag);
                    let expected = table.flush(thread, range, rules.clwb, tag);
                    prop_assert_eq!(word(said), expected);
                }
                Step::Fence => {
                    let said = lines.fence_at(now, thread);
                    prop_assert_eq!(said, table.fence(thread, rules.fence));
                }
                Step::Forget { at, len } => {
                    lines.forget(range(at, len));
                    table.bytes.retain(|addr, _| *addr < at || *addr >= at + len);
                }
            }
        }
        let mut told = BTreeMap::new();
        for (range, status) in lines.status(ByteRange::new(Key(0), u64::MAX)) {
            prop_assert!(range.start().0 / LINE_BYTES == (range.end().0 - 1) / LINE_BYTES);
            for addr in range.start().0..range.end().0 {
                prop_assert!(told.insert(addr, status).is_none(), "{addr:#x} has two entries");
            }
        }
        prop_assert_eq!(told.len(), table.bytes.len());
        for (addr, byte) in &table.bytes {
            let status = told[addr];
            prop_assert_eq!(
                (status.state, status.persist.from, status.persist.to, status.thread),
                (byte.state, byte.from, byte.to, byte.thread),
                "{:#x}", addr
            );
            if !byte.state.is_persisted() {
                prop_assert_eq!((status.stored, status.tag), (byte.stored, byte.tag), "{:#x}", addr);
            }
            if byte.state == Persistency::Flushing {
                prop_assert_eq!(status.flush_tag, byte.flush_tag);
            }
            let line = Line::of(Key(*addr)).range();
            let all = table.in_range_is_persisted(line);
            prop_assert_eq!(lines.is_line_persisted_since(line.start(), Moment(0)), all);
        }
        let open: u64 = lines.unpersisted().map(|(range, _)| range.len()).sum();
        let expected = table.bytes.values().filter(|b| !b.state.is_persisted()).count();
        prop_assert_eq!(open, expected as u64);
    }
}

impl Table {
    fn in_range_is_persisted(&self, range: ByteRange) -> bool {
        let mut bytes = self.bytes.range(range.start().0..range.end().0);
        bytes.all(|(_, byte)| byte.state.is_persisted())
    }
}
