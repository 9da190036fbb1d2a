//! The judgement against its definition, on small random streams: there everything that happened
//! before is a set of events, and every pair of a store and a load is looked at.

use std::collections::BTreeSet;

use brownout_model::{ByteRange, Key, LINE_BYTES, Moment, Tag};
use brownout_random::Random;
use brownout_trace::event::{ProcessId, ThreadId};

use super::locks::Held;
use super::watch::{Kind, Watch, Why};

const THREADS: usize = 3;
const LOCKS: usize = 2;
const GRANULES: usize = 3;
/// More loads of a granule are not remembered.
const LOADS_MAX: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Take(usize),
    Give(usize),
    Post,
    Wait,
    Store(usize),
    Load(usize),
    Flush(usize),
}

type Step = (usize, Op);

/// A stream that could be: a lock has one holder, and lines are written back by whoever stored to
/// them last.
fn stream(random: &mut Random) -> Vec<Step> {
    let mut holders = [None; LOCKS];
    let mut writers = [None; GRANULES];
    let mut loads = [0; GRANULES];
    let mut steps = Vec::new();
    // With one lock and few granules, threads meet more often.
    let locks = 1 + random.below(LOCKS as u64);
    let granules = 1 + random.below(GRANULES as u64);
    for _ in 0..20 + random.below(20) {
        let who = random.below(THREADS as u64) as usize;
        let lock = random.below(locks) as usize;
        let granule = random.below(granules) as usize;
        let op = match random.below(16) {
            0..=4 if holders[lock] == Some(who) => Op::Give(lock),
            0..=4 if holders[lock].is_none() => Op::Take(lock),
            5 => Op::Post,
            6 => Op::Wait,
            7..=9 => Op::Store(granule),
            10..=12 if loads[granule] < LOADS_MAX => Op::Load(granule),
            13..=15 if writers[granule] == Some(who) => Op::Flush(granule),
            _ => continue,
        };
        match op {
            Op::Take(lock) => holders[lock] = Some(who),
            Op::Give(lock) => holders[lock] = None,
            Op::Store(granule) => writers[granule] = Some(who),
            Op::Load(granule) => loads[granule] += 1,
            _ => {}
        }
        steps.push((who, op));
    }
    steps
}

type Found = BTreeSet<(u32, u32, Why)>;

fn judged(steps: &[Step]) -> Found {
    let mut watch = Watch::default();
    for who in 0..THREADS {
        if who > 0 {
            watch.create(0);
        }
        watch.begin(ThreadId(who as u32 + 1), ProcessId(1));
    }
    for (i, (who, op)) in steps.iter().enumerate() {
        let (who, moment, tag) = (*who, Moment(i as u64 + 1), Tag(i as u32 + 1));
        let held = |lock: usize| Held {
            lock: lock as u32,
            shared: false,
        };
        let range = |granule: usize| ByteRange::new(Key(granule as u64 * LINE_BYTES), 8);
        match *op {
            Op::Take(lock) => watch.take(who, held(lock), true),
            Op::Give(lock) => watch.give(who, lock as u32, tag),
            Op::Post => watch.post(who, 7),
            Op::Wait => watch.wait(who, 7),
            Op::Store(g) => watch.store(who, range(g), moment, tag, Kind::Plain, false),
            Op::Load(g) => watch.load(who, range(g), moment, tag, false),
            Op::Flush(g) => watch.flush(who, range(g).start(), moment, tag, true),
        }
    }
    let found = watch.finish();
    let found = found.iter().map(|s| (s.store.tag.0, s.load.tag.0, s.why));
    found.collect()
}

/// What happened before each step, forced and taken.
fn orders(steps: &[Step]) -> [Vec<BTreeSet<usize>>; 2] {
    [false, true].map(|with_locks| {
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for (i, (who, op)) in steps.iter().enumerate() {
            let mut known = BTreeSet::new();
            let mut learn = |before: &[BTreeSet<usize>], j: usize| {
                known.extend(before[j].iter().copied());
                known.insert(j);
            };
            let last = (0..i).rev().find(|j| steps[*j].0 == *who);
            if let Some(last) = last {
                learn(&before, last);
                // What the call before has waited for, which it is known to have got by now.
                let wanted = |op: Op| match steps[last].1 {
                    Op::Wait => op == Op::Post,
                    Op::Take(lock) => with_locks && op == Op::Give(lock),
                    _ => false,
                };
                for j in (0..i).filter(|j| wanted(steps[*j].1)) {
                    learn(&before, j);
                }
            }
            before.push(known);
            // Behind the load: it has read what the store tells, and what its thread has learnt of
            // third parties since.
            if let Op::Load(granule) = op
                && let Some(store) = (0..i).rev().find(|j| steps[*j].1 == Op::Store(*granule))
                && steps[store].0 != *who
                && !before[i].contains(&store)
            {
                let other = steps[store].0;
                let latest = (0..i).rev().find(|j| steps[*j].0 == other);
                let heard: Vec<usize> = latest
                    .map(|latest| before[latest].iter().copied())
                    .into_iter()
                    .flatten()
                    .filter(|j| steps[*j].0 != other)
                    .collect();
                let told: Vec<usize> = before[store].iter().copied().collect();
                before[i].extend(told);
                before[i].insert(store);
                before[i].extend(heard);
            }
        }
        before
    })
}

fn held_at(steps: &[Step], who: usize, until: usize) -> BTreeSet<usize> {
    let mut held = BTreeSet::new();
    for (by, op) in &steps[..until] {
        match op {
            Op::Take(lock) if *by == who => held.insert(*lock),
            Op::Give(lock) if *by == who => held.remove(lock),
            _ => false,
        };
    }
    held
}

fn defined(steps: &[Step]) -> Found {
    let [forced, taken] = orders(steps);
    let mut found = Found::new();
    for (s, (writer, op)) in steps.iter().enumerate() {
        let Op::Store(granule) = *op else { continue };
        let of_granule = |j: &usize, op: Op| steps[*j].1 == op;
        let over = (s + 1..steps.len()).find(|j| of_granule(j, Op::Store(granule)));
        let over = over.unwrap_or(steps.len());
        let closed = (s + 1..over).find(|j| of_granule(j, Op::Flush(granule)));
        let at_store = held_at(steps, *writer, s);
        let end = closed.unwrap_or(over);
        let given = |lock: &usize| (s..end).any(|j| steps[j] == (*writer, Op::Give(*lock)));
        let effective: BTreeSet<usize> = at_store.iter().copied().filter(|l| !given(l)).collect();
        let touches = |j: usize| matches!(steps[j].1, Op::Store(g) | Op::Load(g) if g == granule);
        let is_private = (0..s).all(|j| !touches(j) || steps[j].0 == *writer);
        for (l, (reader, op)) in steps.iter().enumerate() {
            if *op != Op::Load(granule) || reader == writer || l >= over {
                continue;
            }
            let set = held_at(steps, *reader, l);
            let why = match closed {
                None if l > s => Some(Why::Happened),
                Some(p) if l > s && l < p => Some(Why::Happened),
                None => None,
                Some(p) => {
                    // What is known when the load begins: not what it reads itself.
                    let last = |l: usize| (0..l).rev().find(|j| steps[*j].0 == *reader);
                    let knows = |order: &[BTreeSet<usize>], with_locks: bool| match l > s {
                        true => before_load(steps, order, l, last(l), with_locks).contains(&p),
                        false => order[s].contains(&l),
                    };
                    match () {
                        () if knows(&forced, false) || !effective.is_disjoint(&set) => None,
                        () if !at_store.is_disjoint(&set) => Some(Why::GivenBack),
                        () if knows(&taken, true) || l > s && is_private => None,
                        () => Some(Why::Unordered),
                    }
                }
            };
            found.extend(why.map(|why| (s as u32 + 1, l as u32 + 1, why)));
        }
    }
    found
}

/// What happened before a load, without what it learns by reading.
fn before_load(
    steps: &[Step],
    order: &[BTreeSet<usize>],
    load: usize,
    last: Option<usize>,
    with_locks: bool,
) -> BTreeSet<usize> {
    let mut known = BTreeSet::new();
    let Some(last) = last else { return known };
    let wanted = |op: Op| match steps[last].1 {
        Op::Wait => op == Op::Post,
        Op::Take(lock) => with_locks && op == Op::Give(lock),
        _ => false,
    };
    for j in (0..load).filter(|j| *j == last || wanted(steps[*j].1)) {
        known.extend(order[j].iter().copied());
        known.insert(j);
    }
    known
}

#[test]
fn the_judgement_is_its_definition() {
    let mut kinds = [0; 3];
    for seed in 0..4000 {
        let steps = stream(&mut Random::new(seed));
        let (found, expected) = (judged(&steps), defined(&steps));
        let listed: Vec<String> = steps
            .iter()
            .enumerate()
            .map(|(i, step)| format!("{}: {step:?}", i + 1))
            .collect();
        assert_eq!(found, expected, "seed {seed}\n{}", listed.join("\n"));
        for (_, _, why) in found {
            kinds[why as usize] += 1;
        }
    }
    assert!(kinds.iter().all(|n| *n > 30), "{kinds:?}");
}

fn watch_of(threads: usize) -> Watch {
    let mut watch = Watch::default();
    for who in 0..threads {
        if who > 0 {
            watch.create(0);
        }
        watch.begin(ThreadId(who as u32 + 1), ProcessId(1));
    }
    watch
}

/// What is initialised before anybody else has touched it may be read by several threads, not only
/// by the first.
#[test]
fn initialised_before_it_is_published() {
    for is_touched in [false, true] {
        let mut watch = watch_of(3);
        let word = ByteRange::new(Key(64), 8);
        if is_touched {
            watch.load(1, word, Moment(1), Tag(1), false);
        }
        watch.store(0, word, Moment(2), Tag(2), Kind::Plain, false);
        watch.flush(0, word.start(), Moment(3), Tag(3), true);
        watch.load(1, word, Moment(4), Tag(4), false);
        watch.load(2, word, Moment(5), Tag(5), false);
        assert_eq!(watch.finish().is_empty(), !is_touched);
    }
}

/// A word that locked instructions change is a lock, unless it is written back for its own sake one
/// day.
#[test]
fn locks_and_heads_of_stacks() {
    for is_head in [false, true] {
        let mut watch = watch_of(2);
        let word = ByteRange::new(Key(64), 8);
        watch.store(0, word, Moment(1), Tag(1), Kind::Locked, false);
        watch.load(1, word, Moment(2), Tag(2), false);
        watch.store(1, word, Moment(3), Tag(3), Kind::Locked, false);
        if is_head {
            watch.flush(1, word.start(), Moment(4), Tag(4), true);
        }
        assert_eq!(watch.finish().len(), usize::from(is_head));
    }
}

/// Who only tried to take a lock has it until another thread does.
#[test]
fn tried_in_vain() {
    let mut watch = watch_of(2);
    let word = ByteRange::new(Key(64), 8);
    let lock = Held {
        lock: 0,
        shared: false,
    };
    watch.load(1, word, Moment(1), Tag(1), false);
    watch.take(0, lock, true);
    watch.take(1, lock, false);
    watch.store(0, word, Moment(2), Tag(2), Kind::Plain, false);
    watch.flush(0, word.start(), Moment(3), Tag(3), true);
    watch.load(1, word, Moment(4), Tag(4), false);
    let found: Vec<u32> = watch.finish().iter().map(|s| s.load.tag.0).collect();
    assert_eq!(found, [1, 4], "the lock is the writer's");
}
