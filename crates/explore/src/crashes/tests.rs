//! Images against the model's brute force, which knows nothing of how they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brownout_model::{
    Atomicity, ByteRange, Config, Domain, Event as ModelEvent, FlushKind, FlushOrder, Line, Op,
    Thread, Write, reference,
};
use brownout_trace::EventSink;
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, FenceKind, MS_SYNC, NameChange, PmReason, ProcessId,
    TargetAddr, ThreadId,
};
use proptest::prelude::*;

use super::*;
use crate::fake::{self, AT, FIRST, SIZE, feed, fences, flushes, key, names_options, nt_stores};
use crate::fake::{record_options, recorded, renames, stores};
use crate::recording::{RecordOptions, Recorder};

/// Lines that are stored to: two neighbours, and one on another page.
const LINES: [u64; 3] = [0, 64, 8192];

#[derive(Clone, Debug)]
enum What {
    Store,
    NtStore,
    Rmw,
}

#[derive(Clone, Debug)]
enum Act {
    /// How, where, how many bytes.
    Store(What, u64, usize),
    Flush(FlushKind, u64),
    Fence(FenceKind),
    Sync(u64),
    Output,
}

fn act() -> impl Strategy<Value = Act> {
    let line = || (0..LINES.len()).prop_map(|i| LINES[i]);
    let what = prop_oneof![4 => Just(What::Store), 2 => Just(What::NtStore), 1 => Just(What::Rmw)];
    let offset = prop_oneof![4 => Just(0u64), 3 => Just(8), 1 => Just(4), 1 => Just(60)];
    let len = prop_oneof![5 => Just(8usize), 1 => Just(4), 1 => Just(12)];
    let kind = prop_oneof![
        1 => Just(FlushKind::Clflush),
        1 => Just(FlushKind::Clflushopt),
        3 => Just(FlushKind::Clwb),
    ];
    let fence = prop_oneof![
        3 => Just(FenceKind::Sfence),
        1 => Just(FenceKind::Mfence),
        1 => Just(FenceKind::Locked),
    ];
    prop_oneof![
        8 => (what, line(), offset, len).prop_map(|(what, line, at, len)| Act::Store(what, line + at, len)),
        5 => (kind, line()).prop_map(|(kind, line)| Act::Flush(kind, line)),
        4 => fence.prop_map(Act::Fence),
        1 => line().prop_map(Act::Sync),
        1 => Just(Act::Output),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let domain =
        prop_oneof![3 => Just(Domain::X86), 1 => Just(Domain::Eadr), 1 => Just(Domain::Page)];
    let atomicity = prop_oneof![Just(Atomicity::Word), Just(Atomicity::Line)];
    let flush_order = prop_oneof![Just(FlushOrder::Recorded), Just(FlushOrder::Program)];
    (domain, atomicity, flush_order).prop_map(|(domain, atomicity, flush_order)| Config {
        domain,
        atomicity,
        flush_order,
    })
}

/// Each store has a value of its own, and later ones have larger values.
fn value(event: usize) -> u8 {
    event as u8 + 1
}

/// The recording of what two threads do.
fn record(config: Config, acts: &[(u32, Act)]) -> Recording {
    let options = RecordOptions {
        model: config,
        ..record_options()
    };
    let mut recorder = Recorder::new(options, Path::new("/nowhere"));
    feed(&mut recorder, &[]).expect("it is in order");
    let mut tell = |thread: u32, kind: EventKind<'_>| {
        let event = Event {
            thread: ThreadId(thread),
            pc: TargetAddr(fake::PROGRAM.0),
            context: ContextId(0),
            kind,
        };
        recorder.event(&event).expect("it is in order");
    };
    let (thread, process) = (ThreadId(2), ProcessId(1));
    tell(
        2,
        EventKind::ThreadStart {
            thread,
            process,
            tid: 2,
        },
    );
    for (event, (thread, act)) in acts.iter().enumerate() {
        let bytes;
        let kind = match act {
            Act::Store(what, at, len) => {
                bytes = vec![value(event); *len];
                let access = Access {
                    addr: TargetAddr(AT.0 + at),
                    size: *len as u32,
                    bytes: &bytes,
                };
                match what {
                    What::Store => EventKind::Store(access),
                    What::NtStore => EventKind::NtStore(access),
                    What::Rmw => EventKind::Rmw(access),
                }
            }
            Act::Flush(kind, at) => flushes(*kind, *at),
            Act::Fence(kind) => EventKind::Fence(*kind),
            Act::Sync(at) => EventKind::Msync {
                addr: TargetAddr(AT.0 + at),
                len: 1,
                flags: MS_SYNC,
            },
            Act::Output => EventKind::Output { fd: 1, size: 1 },
        };
        tell(*thread, kind);
    }
    recorder.finish()
}

/// The same for the model: each event, or each piece of a store if it is durable by itself, with
/// the number of its act.
fn for_model(config: Config, acts: &[(u32, Act)]) -> Vec<(usize, ModelEvent<'static>)> {
    let mut events = Vec::new();
    for (number, (thread, act)) in acts.iter().enumerate() {
        let mut add = |op: Op<'static>| {
            events.push((number, ModelEvent::new(Thread(*thread), op)));
        };
        match act {
            Act::Store(what, at, len) => {
                let whole = ByteRange::new(key(*at), *len as u64);
                let parts: Vec<ByteRange> = match config.domain {
                    Domain::Eadr => whole.split(config.atomicity.bytes()).collect(),
                    _ => vec![whole],
                };
                for (nth, part) in parts.into_iter().enumerate() {
                    let write = Write::new(part.start(), vec![value(number); part.len() as usize]);
                    add(match what {
                        What::NtStore => Op::NtStore(write),
                        What::Rmw if nth == 0 => Op::Rmw(write),
                        _ => Op::Store(write),
                    });
                }
            }
            Act::Flush(kind, at) => add(Op::Flush {
                kind: *kind,
                line: Line::of(key(*at)),
            }),
            Act::Fence(FenceKind::Sfence) => add(Op::Sfence),
            Act::Fence(FenceKind::Mfence) => add(Op::Mfence),
            Act::Fence(FenceKind::Locked) => add(Op::Locked),
            Act::Sync(at) => add(Op::Msync(ByteRange::new(key(*at), 1))),
            Act::Output => {}
        }
    }
    events
}

/// The model's events that have happened after so many steps of the recording.
fn until(
    recording: &Recording,
    events: &[(usize, ModelEvent<'static>)],
    moment: u64,
) -> Vec<ModelEvent<'static>> {
    // Behind what each stream begins with, and the second thread.
    let act_of = |at: usize| {
        recording
            .steps
            .get(at)
            .map(|step| (step.site.event - FIRST) as usize - 1)
    };
    let next = act_of(moment as usize);
    let begun = (0..moment as usize)
        .filter(|at| act_of(*at) == next)
        .count();
    let whole = events
        .iter()
        .filter(|(act, _)| next.is_none_or(|next| *act < next));
    let pieces = events
        .iter()
        .filter(|(act, _)| next == Some(*act))
        .take(begun);
    whole
        .chain(pieces)
        .map(|(_, event)| event.clone())
        .collect()
}

/// The bytes that anybody can have stored to, by their keys.
fn nothing() -> reference::Image {
    let bytes = LINES.iter().flat_map(|line| *line..*line + 128);
    bytes.map(|at| (key(at).0, 0)).collect()
}

fn memory(image: &CrashImage) -> reference::Image {
    let mut memory = nothing();
    for (path, content) in &image.files {
        assert_eq!(path, Path::new("/pm/pool"));
        let FileContent::File {
            size, from, bytes, ..
        } = content
        else {
            panic!("{content:?}");
        };
        assert_eq!(
            (*size, from.as_deref()),
            (SIZE, Some(Path::new("/pm/pool")))
        );
        let mut end = 0;
        for (at, bytes) in bytes {
            assert!(*at >= end && !bytes.is_empty(), "in order");
            end = at + bytes.len() as u64;
            for (at, byte) in (*at..).zip(bytes) {
                let was = memory.insert(key(at).0, *byte);
                assert_eq!(was, Some(0), "nobody has stored to {at}");
            }
        }
    }
    memory
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the run, wherever it is cut off and whatever survives: brute force knows that
    /// state. Of everything each byte is the last that was stored, and of what is certain the
    /// oldest that it can be.
    #[test]
    fn no_image_is_illegal(
        config in config(),
        acts in prop::collection::vec((1u32..3, act()), 1..18),
        seed in any::<u64>(),
    ) {
        let recording = record(config, &acts);
        let events = for_model(config, &acts);
        let mut legal: BTreeMap<u64, BTreeSet<reference::Image>> = BTreeMap::new();
        let wanted = Wanted { points: Points::All, per_point: 8, seed };
        let mut seen = BTreeSet::new();
        for image in Images::new(&recording, wanted) {
            let point = &recording.points[image.at.point as usize];
            let moment = image.at.moment.unwrap_or(point.moment);
            let happened = until(&recording, &events, moment);
            if let std::collections::btree_map::Entry::Vacant(entry) = legal.entry(moment) {
                let Some(all) = reference::enumerate(config, &nothing(), &happened) else {
                    // Too many stores for brute force.
                    return Ok(());
                };
                entry.insert(all);
            }
            let legal = &legal[&moment];
            let memory = memory(&image);
            prop_assert!(legal.contains(&memory), "illegal: {:?} {:?} of {legal:?}", image.at, image.subset);
            prop_assert!(seen.insert(memory.clone()), "twice: {:?} {:?}", image.at, image.subset);
            let by_byte = |choose: fn(u8, u8) -> u8| {
                let mut bound = legal.first().cloned().unwrap_or_default();
                for other in legal {
                    for (at, byte) in other {
                        bound.entry(*at).and_modify(|bound| *bound = choose(*bound, *byte));
                    }
                }
                bound
            };
            match image.subset {
                Subset::Certain => prop_assert_eq!(&memory, &by_byte(u8::min)),
                Subset::Everything => prop_assert_eq!(&memory, &by_byte(u8::max)),
                _ => {}
            }
            let again = Maker::new(&recording).image(image.at, &image.subset);
            prop_assert_eq!(again, Some(image));
        }
    }
}

/// Two lines, each stored to twice, and nothing is certain: each of the twelve states is drawn
/// sooner or later.
#[test]
fn every_state_can_be_drawn() {
    let events = [
        (1, stores(0, &[1; 8])),
        (2, stores(8, &[2; 8])),
        (3, nt_stores(64, &[3; 8])),
        (4, nt_stores(72, &[4; 8])),
    ];
    let recording = recorded(record_options(), "", &events);
    let wanted = Wanted {
        per_point: 100,
        ..Wanted::default()
    };
    let images: Vec<CrashImage> = Images::new(&recording, wanted).collect();
    // A line that is written back as a whole has three contents, and two stores that are not
    // ordered have four.
    assert_eq!(images.len(), 12);
    assert_eq!(images[0].subset, Subset::Everything);
    assert_eq!(images[1].subset, Subset::Certain);
    assert_eq!(images[1].files, []);
    assert!(images.iter().any(|image| image.at.moment.is_some()));
    // Another seed gives others, in another order.
    let other = Wanted { seed: 1, ..wanted };
    let others: Vec<CrashImage> = Images::new(&recording, other).collect();
    assert_eq!(others.len(), 12);
    assert_ne!(images, others);
    assert!(Images::new(&recording, wanted).eq(images));
}

/// So many stores that are each made durable.
fn durable_stores(count: u64) -> Recording {
    let values: Vec<[u8; 8]> = (1..=count).map(|value| [value as u8; 8]).collect();
    let mut events = Vec::new();
    for (at, value) in (0..).step_by(64).zip(&values) {
        events.push((1, stores(at, value)));
        events.push((2, flushes(FlushKind::Clwb, at)));
        events.push((3, fences()));
    }
    recorded(record_options(), "", &events)
}

#[test]
fn one_point_of_each_stretch_of_the_run_is_drawn() {
    let recording = durable_stores(10);
    let points = |points: Points, seed: u64| -> Vec<u32> {
        let wanted = Wanted {
            points,
            seed,
            ..Wanted::default()
        };
        let images = Images::new(&recording, wanted);
        let mut points: Vec<u32> = images.map(|image| image.at.point).collect();
        points.dedup();
        points
    };
    let all: Vec<u32> = (0..recording.points.len() as u32).collect();
    assert_eq!(all.len(), 10);
    assert_eq!(points(Points::All, 0), all);
    for seed in 0..20 {
        assert_eq!(points(Points::Drawn(100), seed), all);
        let six = points(Points::Drawn(6), seed);
        assert_eq!(six.len(), 6);
        for stretch in [0..3, 3..6, 6..10] {
            assert!(six.iter().any(|point| stretch.contains(point)), "{six:?}");
        }
        assert_eq!(points(Points::Drawn(1), seed).len(), 1);
        assert!(points(Points::Drawn(0), seed).is_empty());
    }
}

/// Inserts come to the same code again and again, what happens once is somewhere among them.
#[test]
fn rare_code_has_its_turn() {
    let mut codes = vec!['i'; 200];
    codes[57] = 'g';
    codes[58] = 'h';
    codes[120] = 'r';
    codes[130] = 'r';
    for seed in 0..50 {
        let chosen = drawn(&codes, 12, &mut Dice(seed));
        assert_eq!(chosen.len(), 12);
        assert!(chosen.contains(&57) && chosen.contains(&58), "{chosen:?}");
        assert!(chosen.contains(&120) || chosen.contains(&130), "{chosen:?}");
        for stretch in 0..6 {
            let places = stretch * 200 / 6..(stretch + 1) * 200 / 6;
            assert!(chosen.iter().any(|place| places.contains(place)));
        }
        assert_eq!(chosen, drawn(&codes, 12, &mut Dice(seed)));
        assert_eq!(drawn(&codes, 1000, &mut Dice(seed)).len(), 200);
        assert!(drawn(&codes, 0, &mut Dice(seed)).is_empty());
    }
    assert!(drawn::<char>(&[], 12, &mut Dice(0)).is_empty());
}

/// With one image for each point, other seeds reach all points and all kinds of crashes; one seed
/// gives the same each time.
#[test]
fn what_is_drawn_has_its_turn_by_and_by() {
    let mut events = Vec::new();
    for at in (0..640).step_by(128) {
        events.push((1, stores(at, &[1; 8])));
        events.push((2, stores(at + 8, &[2; 8])));
        events.push((3, stores(at + 64, &[3; 8])));
        events.push((4, flushes(FlushKind::Clwb, at)));
        events.push((5, fences()));
    }
    let recording = recorded(record_options(), "", &events);
    let last = recording.points.len() as u32 - 1;
    let drawn = |seed: u64| -> Vec<CrashImage> {
        let wanted = Wanted {
            points: Points::Drawn(2),
            per_point: 1,
            seed,
        };
        Images::new(&recording, wanted).collect()
    };
    let (mut points, mut kinds) = (BTreeSet::new(), [0; 4]);
    for seed in 0..100 {
        let images = drawn(seed);
        assert!(images.len() <= 2, "two points, one image each");
        assert_eq!(images, drawn(seed));
        for image in &images {
            points.insert(image.at.point);
            let kind = match image.subset {
                Subset::Everything if image.at.moment.is_none() => 0,
                Subset::Certain => 1,
                _ if image.at.moment.is_some() => 2,
                _ => 3,
            };
            kinds[kind] += 1;
        }
    }
    assert_eq!(points, (0..=last).collect());
    assert!(kinds.iter().all(|count| *count >= 20), "{kinds:?}");
    let none = Wanted {
        points: Points::Drawn(0),
        ..Wanted::default()
    };
    assert_eq!(Images::new(&recording, none).count(), 0);
}

/// What an exploration has chosen can be made again; what the model does not allow cannot.
#[test]
fn what_is_chosen_must_be_legal() {
    let events = [
        (1, stores(0, &[1; 8])),
        (2, flushes(FlushKind::Clwb, 0)),
        (3, fences()),
        (4, stores(8, &[2; 8])),
        (5, stores(64, &[3; 8])),
    ];
    let recording = recorded(record_options(), "", &events);
    let maker = Maker::new(&recording);
    let last = Location::point(recording.points.len() as u32 - 1);
    let view = View {
        timeline: recording.timeline.clone(),
        point: last.point,
    };
    let first = view.open()[0];
    let choices = view.choices(first).expect("it was stored to");
    let all = choices.newest().ordered;
    let chosen = |ordered| Subset::Chosen(vec![(first.0, ordered, Vec::new())]);
    let lost = maker.image(last, &chosen(all - 1)).expect("it is legal");
    let FileContent::File { bytes, .. } = &lost.files[0].1 else {
        panic!("{lost:?}");
    };
    assert_eq!(bytes, &[(0, vec![1; 8]), (64, vec![3; 8])]);
    assert_eq!(maker.image(last, &chosen(all + 1)), None);
    // The first store is certain.
    let oldest = choices.open().oldest().ordered;
    assert_eq!(
        oldest
            .checked_sub(1)
            .and_then(|less| maker.image(last, &chosen(less))),
        None
    );
    let nowhere = Subset::Chosen(vec![(first.0 + 99, 0, Vec::new())]);
    assert_eq!(maker.image(last, &nowhere), None);
    // There is no such place.
    assert_eq!(maker.image(Location::point(99), &Subset::Certain), None);
    let at = |moment| Location {
        moment: Some(moment),
        ..last
    };
    let moment = recording.points[last.point as usize].moment;
    assert!(maker.image(at(moment), &Subset::Certain).is_some());
    assert_eq!(maker.image(at(moment + 1), &Subset::Certain), None);
    assert_eq!(
        maker.image(at(0), &Subset::Certain),
        None,
        "then the first store was uncertain"
    );
}

/// A name that may be lost is there, or the old one is; what it stands for has the bytes that the
/// file had under the old one.
#[test]
fn names_follow_the_model() {
    let events = [(1, stores(0, &[1; 8])), (2, renames())];
    let recording = recorded(names_options(), "", &events);
    let wanted = Wanted {
        per_point: 20,
        ..Wanted::default()
    };
    let images: Vec<CrashImage> = Images::new(&recording, wanted).collect();
    let pool = PathBuf::from("/pm/pool");
    let new = PathBuf::from("/pm/new");
    let file = |bytes: Vec<(u64, Vec<u8>)>| FileContent::File {
        size: SIZE,
        from: Some(pool.clone()),
        bytes,
        mode: None,
    };
    let stored = vec![(0, vec![1; 8])];
    let renamed = |bytes| {
        vec![
            (new.clone(), file(bytes)),
            (pool.clone(), FileContent::Absent),
        ]
    };
    assert_eq!(
        (&images[0].subset, &images[0].files),
        (&Subset::Everything, &renamed(stored.clone()))
    );
    assert_eq!(
        (&images[1].subset, &images[1].files),
        (&Subset::Certain, &vec![])
    );
    let all: Vec<_> = images.iter().map(|image| image.files.clone()).collect();
    assert_eq!(all.len(), 4);
    assert!(all.contains(&renamed(vec![])));
    assert!(all.contains(&vec![(pool.clone(), file(stored))]));
}

/// A file that was made, a folder, a link, a second name, and one that is removed again: of what is
/// certain there is none of these, although that something was made and removed looks as if nothing
/// had happened.
#[test]
fn what_is_made_is_told_by_its_kind() {
    let made = |change, file: u32, names: &'static [u8]| EventKind::Name {
        change,
        file: FileId(file),
        replaced: FileId(0),
        names,
    };
    let log = EventKind::File {
        file: FileId(2),
        path: b"/pm/log",
        size: 0,
        reason: PmReason::Changed,
        created: true,
    };
    let write = EventKind::FileWrite {
        file: FileId(2),
        offset: 0,
        size: 3,
        bytes: b"abc",
    };
    let events = [
        (1, stores(0, &[1; 8])),
        (2, log),
        (2, made(NameChange::Create, 2, b"/pm/log")),
        (3, write),
        (4, made(NameChange::Mkdir, 0, b"/pm/folder")),
        (5, made(NameChange::Symlink, 0, b"/pm/link\0log")),
        (6, made(NameChange::Link, 2, b"/pm/second\0/pm/log")),
        (7, made(NameChange::Mkdir, 0, b"/pm/gone")),
        (8, made(NameChange::Rmdir, 0, b"/pm/gone")),
    ];
    let recording = recorded(names_options(), "", &events);
    let images: Vec<CrashImage> = Images::new(&recording, Wanted::default()).collect();
    let log = |bytes: Vec<(u64, Vec<u8>)>| FileContent::File {
        size: 3,
        from: None,
        bytes,
        mode: None,
    };
    let files: Vec<(&str, FileContent)> = vec![
        ("/pm/folder", FileContent::Folder),
        ("/pm/link", FileContent::Link("log".into())),
        ("/pm/log", log(vec![(0, b"abc".to_vec())])),
        (
            "/pm/pool",
            FileContent::File {
                size: SIZE,
                from: Some("/pm/pool".into()),
                bytes: vec![(0, vec![1; 8])],
                mode: None,
            },
        ),
        ("/pm/second", FileContent::SameAs("/pm/log".into())),
    ];
    let files: Vec<(PathBuf, FileContent)> = files
        .into_iter()
        .map(|(path, content)| (path.into(), content))
        .collect();
    assert_eq!(
        (&images[0].subset, &images[0].files),
        (&Subset::Everything, &files)
    );
    assert_eq!(
        (&images[1].subset, &images[1].files),
        (&Subset::Certain, &vec![])
    );
}
