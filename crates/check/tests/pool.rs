//! The rules on threads of their own find what they find in one place.

use brownout_check::{Analysis, Options};
use brownout_findings::rules::{RULES, RuleSet};
use brownout_random::Random;
use brownout_symbols::Options as SymbolOptions;
use brownout_trace::annotation;
use brownout_trace::event::{
    Access, ContextId, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind, PmReason,
    ProcessId, TargetAddr, ThreadId,
};

const BASE: u64 = 0x2000_0000_0000;

fn event(thread: u32, pc: u64, kind: EventKind<'static>) -> Event<'static> {
    Event {
        thread: ThreadId(thread),
        pc: TargetAddr(pc),
        context: ContextId(0),
        kind,
    }
}

fn beginning() -> Vec<Event<'static>> {
    let process = ProcessId(1);
    let mut events = vec![event(
        1,
        0,
        EventKind::ProcessStart {
            process,
            parent: ProcessId(0),
            pid: 1,
            exe: b"/bin/x",
        },
    )];
    for thread in 1..=2 {
        let start = EventKind::ThreadStart {
            thread: ThreadId(thread),
            process,
            tid: thread,
        };
        events.push(event(thread, 0, start));
    }
    let file = FileId(1);
    events.push(event(
        1,
        0,
        EventKind::File {
            file,
            path: b"/pool",
            size: 4096,
            reason: PmReason::Glob,
            created: false,
        },
    ));
    events.push(event(
        1,
        0,
        EventKind::Map {
            addr: TargetAddr(BASE),
            len: 4096,
            file,
            offset: 0,
            prot: 3,
            flags: 1,
        },
    ));
    events
}

fn random_event(random: &mut Random) -> Event<'static> {
    let thread = 1 + random.below(2) as u32;
    let pc = 0x1000 + random.below(12);
    let addr = TargetAddr(BASE + random.below(64) * 8);
    let size = [1, 8, 8, 16, 64][random.below(5) as usize];
    let access = Access {
        addr,
        size,
        bytes: &[],
    };
    let annotate = |code| EventKind::Annotation {
        code,
        args: [addr.0, size.into(), BASE + 8, 8, 0],
        text: &[],
    };
    let request = |code| EventKind::Pmemcheck {
        code,
        args: [addr.0, size.into(), 0, 0],
        text: &[],
    };
    let kind = match random.below(24) {
        0..=5 => EventKind::Store(access),
        6 => EventKind::NtStore(access),
        7 => EventKind::Rmw(access),
        8..=11 => EventKind::Flush {
            kind: FlushKind::Clwb,
            addr,
        },
        12 => EventKind::Flush {
            kind: FlushKind::Clflush,
            addr,
        },
        13..=14 => EventKind::Fence(FenceKind::Sfence),
        15 => annotate(annotation::TX_BEGIN),
        16 => annotate(annotation::TX_END),
        17 => annotate(annotation::TX_ADD),
        18 => annotate(annotation::IS_PERSISTED),
        19 => annotate(annotation::IS_ORDERED_BEFORE),
        20 => request(17),
        21 => request([18, 20, 22, 24][random.below(4) as usize]),
        22 => annotate(annotation::SECTION_BEGIN),
        _ => annotate(annotation::SECTION_END),
    };
    event(thread, pc, kind)
}

fn options() -> Options {
    let mut rules = RuleSet::default();
    for rule in RULES {
        rules.set(rule.is, true);
    }
    Options {
        rules,
        ..Options::default()
    }
}

#[test]
fn a_pool_finds_what_one_checker_finds() {
    let mut rules_seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut here = Analysis::new(options(), SymbolOptions::default());
        let mut pool = Analysis::in_parallel(options(), SymbolOptions::default());
        let mut events = beginning();
        events.extend((0..5000).map(|_| random_event(&mut random)));
        let status = ExitStatus::Code(0);
        events.push(event(0, 0, EventKind::End { status }));
        for (i, event) in events.iter().enumerate() {
            here.event(event);
            pool.event(event);
            if i % 1777 == 0 {
                assert_eq!(here.failures(), pool.failures(), "seed {seed}, event {i}");
            }
        }
        let (here, pool) = (here.finish(), pool.finish());
        let in_order = |mut findings: Vec<brownout_findings::Finding>| {
            findings.sort_by_key(|finding| format!("{finding:?}"));
            findings
        };
        rules_seen.extend(here.findings.iter().map(|f| f.rule.clone()));
        assert_eq!(
            in_order(here.findings),
            in_order(pool.findings),
            "seed {seed}"
        );
        assert_eq!(
            format!("{:?}", here.statistics.counts),
            format!("{:?}", pool.statistics.counts)
        );
    }
    // Or the comparison says little.
    assert!(rules_seen.len() >= 12, "{rules_seen:?}");
}
