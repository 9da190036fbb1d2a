//! The search with made-up runs and recoveries: what it asks for, and what it counts.

use std::collections::BTreeSet;

use brownout_model::LineMask;
use proptest::prelude::*;

use super::sampler::{Sampling, TORN_MAX};
use super::*;
use crate::fake::{self, Act, Asked, Fake, Memory, exits, recording, unit};
use crate::line::LineKey;
use crate::minimise::minimise;
use crate::nested::{Nesting, nest};
use crate::oracle::Symptom;
use crate::outcome::Outcome;
use crate::view::Base;

/// Searches all of a run, and says what was asked for.
fn explored<'p>(
    acts: &[Act],
    sampling: Sampling,
    program: impl Fn(&mut Memory<'_>) -> Outcome + 'static,
    progress: &'p mut (),
) -> (Search<'p>, Asked) {
    let fake = Fake::new(program);
    let asked = fake.asked.clone();
    let mut settings = Settings::new(fake::setting());
    settings.sampling = sampling;
    settings.keep_outcomes = true;
    let mut search = Search::new(recording(acts), settings, Box::new(fake), progress);
    search.explore(0).expect("the executor answers");
    assert_eq!(search.unsettled(), 0);
    let points = search.layers[0].recording.points.len() as u64;
    assert_eq!(search.ledger.statistics.points_done, points);
    (search, asked)
}

/// All images of a failure point.
fn images(recording: &Recording, point: u32) -> Vec<Image> {
    let view = View {
        timeline: recording.timeline.clone(),
        point,
    };
    let files = &recording.points[point as usize].files;
    let mut all = vec![Image::newest(&view, &Narrowed::new(), files)];
    for unit in view.open() {
        let choices = view.choices(*unit).expect("it is open");
        let contents = choices.read(&[choices.open()], 0, LineMask::MAX);
        all = all
            .iter()
            .flat_map(|image| contents.iter().map(move |(_, cuts)| (image, cuts)))
            .map(|(image, cuts)| {
                let mut image = image.clone();
                let cut = cuts.iter().max().expect("one at least");
                image.survivors.insert(*unit, cut.newest());
                image
            })
            .collect();
    }
    all
}

/// What each read saw, without where in the code it was made.
type Path = Vec<(LineKey, LineMask, LineBytes)>;

fn path_of(path: &[(Read, LineBytes)]) -> Path {
    let reads = path.iter();
    reads
        .map(|(read, seen)| (read.line, read.mask, *seen))
        .collect()
}

/// Words that are stored to and read, two of each line.
const WORDS: u64 = 8;

/// A recovery that looks at what it has read to decide what it reads next.
fn wanders(steps: u64) -> impl Fn(&mut Memory<'_>) -> Outcome + Clone {
    move |memory| {
        let mut sum = 0;
        for step in 0..steps {
            sum = sum * 5 + memory.word((sum + step) % WORDS * 32);
        }
        exits(i32::from(sum % 7 == 3), sum.to_string())
    }
}

fn act() -> impl Strategy<Value = Act> {
    let word = || (0..WORDS).prop_map(|word| word * 32);
    prop_oneof![
        6 => (word(), 1u64..9).prop_map(|(at, value)| Act::Store(at, value)),
        2 => (word(), 1u64..9).prop_map(|(at, value)| Act::NtStore(at, value)),
        3 => word().prop_map(Act::Flush),
        2 => Just(Act::Fence),
        2 => Just(Act::Point),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each distinct recovery is asked for once, and there are as many outcomes as if every image
    /// had been tried.
    #[test]
    fn every_distinct_recovery_is_asked_for_once(acts in prop::collection::vec(act(), 0..14), steps in 0u64..6) {
        let sampling = Sampling { exhaustive: true, ..Sampling::default() };
        let program = wanders(steps);
        let mut progress = ();
        let (search, asked) = explored(&acts, sampling, program.clone(), &mut progress);
        let recording = &search.layers[0].recording;
        let mut paths = BTreeSet::new();
        let mut outcomes = BTreeSet::new();
        for point in 0..recording.points.len() as u32 {
            for image in images(recording, point) {
                let (path, outcome) = fake::recover(&image, &program);
                paths.insert(path_of(&path));
                outcomes.insert((point, outcome.stdout));
            }
        }
        let asked = asked.borrow();
        let distinct: BTreeSet<Path> = asked.iter().map(|path| path_of(path)).collect();
        prop_assert_eq!(asked.len(), distinct.len(), "one was asked for twice");
        prop_assert_eq!(distinct, paths);
        prop_assert_eq!(search.ledger.statistics.executions, asked.len() as u64);
        prop_assert_eq!(search.ledger.statistics.paths, asked.len() as u64);
        let logged = search.ledger.outcomes.iter().map(|(_, point, outcome)| (*point, search.known.outcomes[*outcome as usize].stdout.clone()));
        prop_assert_eq!(logged.collect::<BTreeSet<_>>(), outcomes);
        prop_assert_eq!(search.ledger.statistics.sampled + search.ledger.statistics.checksummed, 0);
    }
}

/// A recovery that looks at what it has read to decide what it reads, stores and writes back next.
fn repairs(steps: u64, program: u64) -> impl Fn(&mut Memory<'_>) -> Outcome + Clone {
    move |memory| {
        let mut sum = program;
        for step in 0..steps {
            let at = (sum + step) % WORDS * 32;
            match (sum / 8 + program / 3 + step) % 5 {
                0 | 1 => sum = sum * 5 + memory.word(at),
                2 => memory.act(Act::Store(at, 10 + sum % 3)),
                3 => memory.act(Act::Flush(at)),
                _ => {
                    memory.act(Act::Fence);
                    memory.act(Act::Point);
                    sum += 3;
                }
            }
            sum += 1;
        }
        exits(i32::from(sum % 11 == 3), sum.to_string())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// After two crashes there are as many outcomes as if every image of every crash of every
    /// recovery had been tried.
    #[test]
    fn every_outcome_of_two_crashes_is_found(acts in prop::collection::vec(act(), 0..9), steps in 0u64..9, number in 0u64..1000) {
        let program = repairs(steps, number);
        let mut settings = Settings::new(fake::setting());
        settings.sampling = Sampling { exhaustive: true, ..Sampling::default() };
        settings.keep_outcomes = true;
        settings.keep_survivors = true;
        let mut progress = ();
        let executor = Box::new(Fake::new(program.clone()));
        let mut search = Search::new(recording(&acts), settings, executor, &mut progress);
        search.explore(0).expect("the executor answers");
        let mut expected = BTreeSet::new();
        let first = recording(&acts);
        for point in 0..first.points.len() as u32 {
            for image in images(&first, point) {
                let (_, outcome, acts) = fake::recover_and_store(&image, &program);
                if outcome.status != Status::Exit(0) {
                    continue;
                }
                let second = fake::recording_on(Base::Crashed(image), &acts);
                for point in 0..second.points.len() as u32 {
                    for image in images(&second, point) {
                        expected.insert(fake::recover(&image, &program).1.stdout);
                    }
                }
            }
        }
        let nesting = Nesting { depth: 2, is_asked: true, recoveries_max: None, record: fake::record_options() };
        nest(&mut search, &nesting).expect("it ends in order");
        prop_assert_eq!(search.ledger.statistics.nested_skipped, 0);
        let nested = search.ledger.outcomes.iter().filter(|(layer, ..)| *layer > 0);
        let found: BTreeSet<_> = nested.map(|(.., outcome)| search.known.outcomes[*outcome as usize].stdout.clone()).collect();
        prop_assert_eq!(found, expected);
    }
}

/// Where there are many recoveries and nobody has asked for crashes in them, so many more are run
/// as may be, and what is left counts as that.
#[test]
fn of_many_recoveries_some_are_cut_short() {
    const LINES: u64 = 12;
    let acts: Vec<Act> = (0..LINES)
        .flat_map(|line| {
            let at = line * 64;
            [Act::Store(at, 1), Act::Flush(at), Act::Fence, Act::Point]
        })
        .collect();
    let program = |memory: &mut Memory<'_>| {
        let there = (0..LINES)
            .filter(|line| memory.word(line * 64) == 1)
            .count();
        let last = memory.word(LINES * 64);
        memory.act(Act::Store(LINES * 64, last + 1));
        memory.act(Act::Point);
        exits(0, format!("{there} {last}"))
    };
    let nested = |recoveries_max: Option<u64>, is_asked: bool, progress: &mut ()| {
        let mut settings = Settings::new(fake::setting());
        settings.keep_survivors = true;
        let fake = Fake::new(program);
        let mut search = Search::new(recording(&acts), settings, Box::new(fake), progress);
        search.explore(0).expect("the executor answers");
        let single = search.ledger.statistics.executions;
        let record = fake::record_options();
        let nesting = Nesting {
            depth: 2,
            is_asked,
            recoveries_max,
            record,
        };
        let depth = nest(&mut search, &nesting).expect("it ends in order");
        assert_eq!((search.ledger.stopped, search.unsettled()), (None, 0));
        let more = search.ledger.statistics.executions - single;
        (depth, more, search.ledger.coverage)
    };
    let (depth, all, coverage) = nested(None, false, &mut ());
    assert!(depth == 2 && coverage.is_exhaustive());
    let (depth, some, coverage) = nested(Some(4), false, &mut ());
    assert_eq!((depth, some), (1, 4));
    assert_eq!(coverage.accepted(), [Limit::Depth]);
    assert!(coverage.open().is_empty());
    let (depth, enough, coverage) = nested(Some(all + 1), false, &mut ());
    assert_eq!((depth, enough), (2, all));
    assert!(coverage.is_exhaustive());
}

/// A flag that may survive what it vouches for, and something else that may be lost.
const FLAG: u64 = 0;
const DATA: u64 = 64;
const OTHER: u64 = 128;
const UNREAD: u64 = 192;

#[test]
fn failures_are_narrowed_to_what_matters() {
    let acts = [OTHER, UNREAD, DATA, FLAG].map(|at| Act::Store(at, 1));
    let mut progress = ();
    let (mut search, _) = explored(
        &acts,
        Sampling::default(),
        |memory| {
            let (flag, data, _) = (memory.word(FLAG), memory.word(DATA), memory.word(OTHER));
            exits(i32::from(flag == 1 && data == 0), "")
        },
        &mut progress,
    );
    // Either content of what does not matter.
    assert_eq!(search.ledger.failures.len(), 2);
    assert_eq!(search.ledger.statistics.executions, 8);
    let failures = search.ledger.failures.clone();
    for failure in failures {
        assert_eq!(failure.symptom, Symptom::Exit(1));
        // What recovery has not read is as open as before.
        let narrowed: BTreeSet<Unit> = failure.narrowed.keys().copied().collect();
        assert_eq!(narrowed, [FLAG, DATA, OTHER].map(unit).into());
        let minimal = minimise(&mut search, &failure).expect("the executor answers");
        let minimal = minimal.expect("it fails again");
        let lost: Vec<Unit> = minimal.image.survivors.keys().copied().collect();
        assert_eq!(lost, [unit(DATA)], "only the data must be lost");
        assert_eq!(minimal.symptom, Symptom::Exit(1));
    }
    assert_eq!(
        search.ledger.statistics.executions, 8,
        "all of that was known"
    );
}

/// So many failing states of one failure point are enough, unless everything is to be tried.
#[test]
fn a_hopeless_failure_point_is_left() {
    let acts: Vec<Act> = (0..8).map(|line| Act::Store(line * 128, 1)).collect();
    let program = |memory: &mut Memory<'_>| {
        let sum: u64 = (0..8).map(|line| memory.word(line * 128)).sum();
        exits(1, sum.to_string())
    };
    let mut progress = ();
    let (search, _) = explored(&acts, Sampling::default(), program, &mut progress);
    assert!(search.ledger.statistics.abandoned > 0);
    assert!(search.ledger.statistics.executions < 100);
    let exhaustive = Sampling {
        exhaustive: true,
        ..Sampling::default()
    };
    let mut progress = ();
    let (search, _) = explored(&acts, exhaustive, program, &mut progress);
    assert_eq!(search.ledger.statistics.abandoned, 0);
    assert_eq!(search.ledger.statistics.executions, 256);
}

/// Something that is in no order with its neighbours.
fn copied(words: impl Iterator<Item = (u64, u64)>) -> Vec<Act> {
    words.map(|(at, value)| Act::NtStore(at, value)).collect()
}

/// A recovery that reads all words and takes them only if `is_good` says so.
fn takes(words: u64, is_good: fn(&[u64]) -> bool) -> impl Fn(&mut Memory<'_>) -> Outcome {
    move |memory| {
        let read: Vec<u64> = (0..words).map(|word| memory.word(word * 8)).collect();
        exits(0, if is_good(&read) { "there" } else { "not there" })
    }
}

#[test]
fn what_a_budget_does_not_allow_is_counted_as_sampled() {
    let whole = |read: &[u64]| read.iter().all(|word| *word != 0);
    let acts = copied((0..32).map(|word| (word * 8, word * 0x0101_0303 + 1)));
    let mut progress = ();
    let (search, asked) = explored(&acts, Sampling::default(), takes(32, whole), &mut progress);
    assert!(search.ledger.statistics.sampled > 0);
    assert_eq!(search.ledger.statistics.checksummed, 0);
    assert_eq!(search.sampled_groups(), 1);
    // All newest, all oldest, and what the budget allows: each torn content takes one recovery.
    let budget = Sampling::default().budget[0] as usize;
    assert_eq!(asked.borrow().len(), 2 + budget);

    // Few enough to try them all.
    let acts = copied((0..4).map(|word| (word * 8, word + 1)));
    let mut progress = ();
    let (search, asked) = explored(&acts, Sampling::default(), takes(4, whole), &mut progress);
    assert_eq!(search.ledger.statistics.sampled, 0);
    assert_eq!(search.sampled_groups(), 0);
    assert_eq!(asked.borrow().len(), 16);
}

/// More words than torn contents are kept.
const MANY: u64 = 352;

fn fletcher(words: &[u64]) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for half in words
        .iter()
        .flat_map(|word| [*word as u32, (word >> 32) as u32])
    {
        low = low.wrapping_add(half);
        high = high.wrapping_add(low);
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Words of which the first so many begin with their checksum. What follows is one store behind the
/// other of the same copy.
fn summed(covered: u64) -> Vec<Act> {
    let mut words: Vec<u64> = (0..MANY)
        .map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    if covered > 0 {
        words[0] = 0;
        words[0] = fletcher(&words[..covered as usize]);
    }
    copied((0..).step_by(8).zip(words))
}

fn sum_is_right(read: &[u64]) -> bool {
    let mut words = read.to_vec();
    words[0] = 0;
    read[0] != 0 && fletcher(&words) == read[0]
}

fn all_are_there(read: &[u64]) -> bool {
    read.iter().all(|word| *word != 0)
}

#[test]
fn torn_contents_without_room_are_sampled_unless_a_checksum_covers_them() {
    const HALF: u64 = MANY / 2;
    // At the newest and at the oldest content, one for each word but the first.
    let torn = |words: u64| 2 * (words - 1);
    let tried = u64::from(Sampling::default().budget[0]);
    assert!(torn(HALF) > TORN_MAX as u64 + tried);

    let mut progress = ();
    let program = takes(MANY, sum_is_right);
    let (search, _) = explored(&summed(MANY), Sampling::default(), program, &mut progress);
    assert_eq!(
        search.ledger.statistics.sampled, 0,
        "a checksum covers all of it"
    );
    let first = u64::from(Sampling::default().summed);
    assert!(search.ledger.statistics.checksummed >= torn(MANY) - first);

    let mut progress = ();
    let program = takes(MANY, all_are_there);
    let (search, _) = explored(&summed(0), Sampling::default(), program, &mut progress);
    assert_eq!(
        search.ledger.statistics.checksummed, 0,
        "none covers any of it"
    );
    assert!(search.ledger.statistics.sampled >= torn(MANY) - tried);

    // Whoever does not look at the sum does not reject anything by it.
    let mut progress = ();
    let blind = |memory: &mut Memory<'_>| {
        let there = (1..MANY).filter(|word| memory.word(word * 8) != 0).count() as u64;
        exits(
            0,
            if there + 1 == MANY {
                "there"
            } else {
                "not there"
            },
        )
    };
    let (search, _) = explored(&summed(MANY), Sampling::default(), blind, &mut progress);
    assert_eq!(search.ledger.statistics.checksummed, 0);
    assert!(search.ledger.statistics.sampled > 0);

    // The other half has no room either, and no checksum covers it.
    let mut progress = ();
    let program = takes(MANY, all_are_there);
    let (search, _) = explored(&summed(HALF), Sampling::default(), program, &mut progress);
    assert!(search.ledger.statistics.checksummed > 0);
    assert!(search.ledger.statistics.sampled >= torn(HALF) - tried);
}

/// A recovery that reads something else the second time is not deterministic, and the coverage says
/// so.
#[test]
fn a_recovery_that_does_not_repeat_itself_is_told() {
    let count = std::cell::Cell::new(0);
    let acts = [Act::Store(0, 1), Act::Point, Act::Store(64, 1)];
    let mut progress = ();
    let (search, _) = explored(
        &acts,
        Sampling::default(),
        move |memory| {
            count.set(count.get() + 1);
            memory.word(0);
            memory.word(64 * count.get());
            exits(0, count.get().to_string())
        },
        &mut progress,
    );
    assert!(!search.ledger.coverage.is_exhaustive());
}

/// Whoever wants few recoveries gets those of crashes all over the run, and is told that there
/// would have been more. Whoever wants more than there are gets all.
#[test]
fn a_search_ends_when_enough_recoveries_were_run() {
    let count = 20;
    let acts: Vec<Act> = (0..count)
        .flat_map(|line| {
            [
                Act::Store(line * 64, 1),
                Act::Flush(line * 64),
                Act::Fence,
                Act::Point,
            ]
        })
        .collect();
    let counts = move |memory: &mut Memory<'_>| {
        let there = (0..count).filter(|line| memory.word(line * 64) == 1);
        exits(0, there.count().to_string())
    };
    let search_with = |most: Option<u64>, progress: &mut ()| {
        let mut settings = Settings::new(fake::setting());
        settings.executions_max = most;
        settings.distinct_max = 100;
        let fake = Fake::new(counts);
        let mut search = Search::new(recording(&acts), settings, Box::new(fake), progress);
        search.explore(0).expect("the executor answers");
        let ledger = &search.ledger;
        let points: BTreeSet<u32> = ledger
            .distinct
            .iter()
            .map(|(crash, _)| crash.point)
            .collect();
        (ledger.statistics.executions, ledger.stopped, points)
    };
    let (all, stopped, _) = search_with(None, &mut ());
    assert_eq!((all, stopped), (u64::from(count as u32), None));
    let (few, stopped, points) = search_with(Some(5), &mut ());
    assert_eq!((few, stopped), (5, Some(Halt::Enough)));
    assert!(points.iter().any(|point| *point < 7), "{points:?}");
    assert!(
        points.iter().any(|point| (7..14).contains(point)),
        "{points:?}"
    );
    assert!(points.iter().any(|point| *point >= 14), "{points:?}");
    let (enough, stopped, _) = search_with(Some(1000), &mut ());
    assert_eq!((enough, stopped), (all, None));
}

#[test]
fn a_spread_order_has_each_number_once() {
    for count in 0..70 {
        let order = spread(count);
        assert_eq!(
            order.iter().copied().collect::<BTreeSet<_>>(),
            (0..count).collect()
        );
        assert_eq!(order.len(), count as usize);
        assert_eq!(order.first().copied(), count.checked_sub(1));
    }
    assert_eq!(spread(8), [7, 3, 5, 1, 6, 2, 4, 0]);
}
