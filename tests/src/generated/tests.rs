//! The enumeration against a lazy search, and the scripts against models that are wrong. No
//! processes.

use std::collections::BTreeSet;

use brownout_model::{Config, Domain, Event, FlushKind, Op as ModelOp, reference};

use super::*;

/// The programs of the suite.
const SEEDS: std::ops::Range<u64> = 0..200;

fn eager(script: &Script, events: &[Option<Event<'static>>]) -> Vec<BTreeSet<Ending>> {
    let memories = Memories::of_events(&script.initial_image(), events, Config::default())
        .expect("a feasible script");
    let endings: Vec<Ending> = memories
        .images
        .iter()
        .map(|image| recover(&script.recovery, &mut image.clone()))
        .collect();
    memories
        .by_position
        .iter()
        .map(|images| images.iter().map(|image| endings[*image].clone()).collect())
        .collect()
}

#[test]
fn a_lazy_search_finds_the_same_outcomes() {
    for seed in SEEDS {
        let script = generate(seed);
        let events = script.events();
        let lazy = lazy::by_position(
            &script.initial_image(),
            &events,
            &script.recovery,
            Config::default(),
        );
        assert_eq!(lazy, eager(&script, &events), "seed {seed}\n{script}");
    }
}

#[test]
fn lines_apart_have_the_memories_of_all_lines_at_once() {
    let mut compared = 0;
    for seed in SEEDS.take(40) {
        let script = generate(seed);
        let events = script.events();
        let memories = Memories::of(&script, Config::default()).expect("a feasible script");
        let initial: reference::Image = (0..).zip(script.initial_image()).collect();
        let all: Vec<Event<'static>> = events.iter().flatten().cloned().collect();
        let Some(whole) = reference::enumerate(Config::default(), &initial, &all) else {
            continue;
        };
        let whole: BTreeSet<Image> = whole
            .into_iter()
            .map(|image| image.into_values().collect())
            .collect();
        let apart = memories.by_position.last().expect("a position");
        let apart: BTreeSet<Image> = apart.iter().map(|i| memories.images[*i].clone()).collect();
        assert_eq!(apart, whole, "seed {seed}\n{script}");
        compared += 1;
    }
    assert!(compared > 10, "only {compared} are small enough");
}

/// A tool that gets one thing wrong must be noticed, in more than one script.
#[test]
fn scripts_tell_x86_from_what_is_nearly_x86() {
    let line = Config {
        atomicity: brownout_model::Atomicity::Line,
        ..Config::default()
    };
    let eadr = Config {
        domain: Domain::Eadr,
        ..Config::default()
    };
    let x86 = Config::default();
    type Change = fn(ModelOp<'static>) -> Option<ModelOp<'static>>;
    let wrong: &[(&str, Config, Change)] = &[
        ("stores never tear", line, Some),
        ("caches survive", eadr, Some),
        ("clwb completes at once", x86, |op| {
            Some(match op {
                ModelOp::Flush { line, .. } => ModelOp::Flush {
                    kind: FlushKind::Clflush,
                    line,
                },
                op => op,
            })
        }),
        ("clflush waits for a fence", x86, |op| {
            Some(match op {
                ModelOp::Flush { line, .. } => ModelOp::Flush {
                    kind: FlushKind::Clwb,
                    line,
                },
                op => op,
            })
        }),
        ("non-temporal stores are cached", x86, |op| {
            Some(match op {
                ModelOp::NtStore(write) => ModelOp::Store(write),
                op => op,
            })
        }),
        ("locked instructions are no fences", x86, |op| match op {
            ModelOp::Rmw(write) => Some(ModelOp::Store(write)),
            ModelOp::Locked => None,
            op => Some(op),
        }),
        ("msync does nothing", x86, |op| {
            (!matches!(op, ModelOp::Msync(_))).then_some(op)
        }),
    ];
    let scripts: Vec<Script> = SEEDS.map(generate).collect();
    for (what, config, change) in wrong {
        let noticed = scripts
            .iter()
            .filter(|script| {
                let events = script.events();
                let changed: Vec<Option<Event<'static>>> = events
                    .iter()
                    .cloned()
                    .map(|event| {
                        let Event { thread, op } = event?;
                        Some(Event::new(thread, change(op)?))
                    })
                    .collect();
                let union = |positions: Vec<BTreeSet<Ending>>| -> BTreeSet<Ending> {
                    positions.into_iter().flatten().collect()
                };
                let initial = script.initial_image();
                let right = lazy::by_position(&initial, &events, &script.recovery, x86);
                let other = lazy::by_position(&initial, &changed, &script.recovery, *config);
                union(right) != union(other)
            })
            .count();
        assert!(noticed >= 5, "{what}: noticed by {noticed} of 200 scripts");
    }
    // Threads matter: a fence of one does not complete what another has begun.
    let noticed = scripts
        .iter()
        .filter(|script| {
            let events = script.events();
            let alone: Vec<Option<Event<'static>>> = events
                .iter()
                .cloned()
                .map(|event| Some(Event::new(brownout_model::Thread(1), event?.op)))
                .collect();
            eager(script, &events) != eager(script, &alone)
        })
        .count();
    assert!(noticed >= 5, "one thread for two: noticed by {noticed}");
}

#[test]
fn the_same_seed_gives_the_same_script() {
    assert_eq!(generate(7), generate(7));
    assert_ne!(generate(7).to_string(), generate(8).to_string());
}

/// What the scripts are for must be in them, often enough to mean something.
#[test]
fn scripts_are_varied() {
    let scripts: Vec<Script> = SEEDS.map(generate).collect();
    let count = |what: &str, wanted: usize, has: &dyn Fn(&Script) -> bool| {
        let found = scripts.iter().filter(|script| has(script)).count();
        assert!(found >= wanted, "{what}: {found} scripts of 200");
    };
    let program =
        |is: fn(&Op) -> bool| move |script: &Script| script.program.iter().any(|step| is(&step.op));
    let recovery = |is: fn(&Op) -> bool| move |script: &Script| script.recovery.iter().any(is);
    count("second thread", 20, &|script| {
        script.program.iter().any(|step| step.second_thread)
    });
    count("existing pool", 50, &|script| script.initial.is_some());
    count(
        "vector store",
        30,
        &program(|op| matches!(op, Op::VectorStore { .. })),
    );
    count(
        "non-temporal",
        30,
        &program(|op| matches!(op, Op::NtStore { .. })),
    );
    count("acknowledged", 50, &program(|op| matches!(op, Op::Ack)));
    count("input", 10, &program(|op| matches!(op, Op::Input)));
    count("msync", 10, &program(|op| matches!(op, Op::Msync)));
    count("across lines", 20, &|script| {
        script.program.iter().any(|step| match &step.op {
            Op::Store { addr, size, .. }
            | Op::NtStore { addr, size, .. }
            | Op::VectorStore { addr, size, .. } => addr / 64 != (addr + size - 1) / 64,
            _ => false,
        })
    });
    count(
        "followed",
        30,
        &recovery(|op| matches!(op, Op::LoadIndexed { .. })),
    );
    count("copied", 30, &recovery(|op| matches!(op, Op::Copy { .. })));
    count(
        "repaired",
        30,
        &recovery(|op| matches!(op, Op::Store { .. })),
    );
    let outcomes: Vec<BTreeSet<Ending>> = scripts
        .iter()
        .map(|script| {
            eager(script, &script.events())
                .into_iter()
                .flatten()
                .collect()
        })
        .collect();
    let several = outcomes.iter().filter(|set| set.len() > 2).count();
    assert!(several > 150, "{several} scripts have several outcomes");
    for status in ["signal 6", "signal 11", "exit code 1"] {
        let ended = |set: &&BTreeSet<Ending>| set.iter().any(|ending| ending.status == status);
        let found = outcomes.iter().filter(ended).count();
        assert!(found >= 5, "{status}: {found} scripts of 200");
    }
    let images: usize = scripts
        .iter()
        .map(|script| {
            Memories::of(script, Config::default())
                .expect("a feasible script")
                .images
                .len()
        })
        .sum();
    assert!(images > 2000, "{images} memories in all");
}
