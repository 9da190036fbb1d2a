//! From hand-made runs and recoveries to the words of a finding. No process is started.

use brownout_findings::{BuiltIn, Severity, blame as whose};
use brownout_model::FlushKind;
use brownout_trace::event::EventKind;

use super::*;
use crate::fake::{self, FIRST, Fake, Memory, exits, fences, flushes, nt_stores, recorded};
use crate::fake::{record_options, stores};
use crate::minimise::minimise;
use crate::outcome::{Outcome, Status};
use crate::recording::Recording;
use crate::search::Settings;

const DATA: u64 = 0;
const FLAG: u64 = 64;
const ONE: [u8; 8] = 1u64.to_le_bytes();

/// The findings of a run, one for each failure, before and after they are explained.
fn findings(
    recording: Recording,
    program: impl Fn(&mut Memory<'_>) -> Outcome + 'static,
) -> Vec<(Finding, Found)> {
    let mut progress = ();
    let settings = Settings::new(fake::setting());
    let executor = Box::new(Fake::new(program));
    let mut search = Search::new(recording, settings, executor, &mut progress);
    search.explore(0).expect("the executor answers");
    let mut resolvers = Resolvers::default();
    let failures = search.ledger.failures.clone();
    failures
        .iter()
        .map(|failure| {
            let minimal = minimise(&mut search, failure).expect("the executor answers");
            let minimal = minimal.expect("it fails again");
            let mut found =
                build(&mut search, &mut resolvers, failure, minimal).expect("the executor answers");
            let built = found.finding.clone();
            explain(&mut search, &mut resolvers, &mut found).expect("the executor answers");
            (built, found)
        })
        .collect()
}

/// The only one.
fn finding(
    kinds: &[EventKind<'_>],
    program: impl Fn(&mut Memory<'_>) -> Outcome + 'static,
) -> (Finding, Found) {
    let events: Vec<(u64, EventKind<'_>)> = (1..).zip(kinds.iter().cloned()).collect();
    let mut all = findings(recorded(record_options(), "", &events), program);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Role, number among the test's own events, and text of each event.
fn told(finding: &Finding) -> Vec<(Role, Option<u64>, &str)> {
    let events = finding.events.iter();
    events
        .map(|event| {
            let is_of_run = !matches!(event.role, Role::Load | Role::Symptom);
            let index = event.index.filter(|_| is_of_run).map(|at| at - FIRST);
            (event.role, index, event.text.as_str())
        })
        .collect()
}

/// A recovery that believes the flag.
fn believes(memory: &mut Memory<'_>) -> Outcome {
    let (flag, data) = (memory.word(FLAG), memory.word(DATA));
    exits(i32::from(flag == 1 && data == 0), "")
}

fn clwb(at: u64) -> EventKind<'static> {
    flushes(FlushKind::Clwb, at)
}

#[test]
fn what_is_lost_is_told_with_what_survives_and_what_recovery_reads() {
    let (built, found) = finding(
        &[stores(DATA, &ONE), stores(FLAG, &ONE), clwb(FLAG), fences()],
        believes,
    );
    assert_eq!(built.rule, BuiltIn::RecoveryError);
    assert_eq!(built.severity, Severity::Correctness);
    assert_eq!(
        built.message,
        "recovery fails with exit code 1 if the store at toy+0x1 is lost"
    );
    let store = (Role::Store, Some(0), "8 bytes are stored here, and lost");
    let crash = (
        Role::Crash,
        Some(3),
        "the power fails here, before this takes effect",
    );
    let load = (Role::Load, None, "recovery reads the stale content here");
    let symptom = (
        Role::Symptom,
        None,
        "recovery fails with exit code 1 (its last access to persistent memory was here)",
    );
    assert_eq!(told(&built), [store, crash, load, symptom]);
    // The flag is read first, then the data.
    let at = |event: usize| whose::place(&built.events[event].stack);
    assert_eq!(
        [0, 1, 2, 3].map(at),
        ["toy+0x1", "toy+0x4", "recover+0x1", "recover+0x1"]
    );
    let place = built.events[0].place.as_ref().expect("it lies in a file");
    assert_eq!(
        (place.file.as_str(), place.offset, place.size, place.address),
        ("/pm/pool", DATA, 8, fake::AT.0 + DATA)
    );
    assert_eq!(built.crash_point.as_ref(), Some(&built.events[1]));
    assert!(built.notes.is_empty());

    // Then who has overtaken it is known, too.
    let explained = &found.finding;
    assert_eq!(
        explained.message,
        "recovery fails with exit code 1 if the store at toy+0x1 is lost and the one at toy+0x2 survives"
    );
    let early = (Role::Early, Some(1), "8 bytes are stored here, and survive");
    assert_eq!(told(explained), [store, early, crash, load, symptom]);
    assert_eq!(explained.help.len(), 1);
    assert!(
        explained.help[0].contains("toy+0x1"),
        "{:?}",
        explained.help
    );

    // What it is known by: the rule, and the line of the lost store.
    let causing = whose::causing_event(explained).expect("there is one");
    assert_eq!(causing.text, store.2);
    assert_eq!(found.cause, Cause(whose::line(&causing.stack)));
    let lost: Vec<String> = found.lost_sites.iter().map(|s| whose::place(s)).collect();
    assert_eq!(lost, ["toy+0x1"]);
    assert_eq!(found.spec.crashes.len(), 1);
    assert_eq!(found.spec.crashes[0].point, found.point);
    assert_eq!(found.spec.crashes[0].survivors.len(), 1);
}

#[test]
fn what_would_have_kept_a_store_is_told() {
    let unfenced = finding(
        &[
            stores(DATA, &ONE),
            clwb(DATA),
            stores(FLAG, &ONE),
            EventKind::Output { fd: 1, size: 1 },
        ],
        believes,
    );
    let flush = |text| (Role::Flush, Some(1), text);
    assert_eq!(
        told(&unfenced.0)[1],
        flush("written back here, but no fence has completed that yet")
    );
    assert_eq!(
        told(&unfenced.0)[2],
        (
            Role::Crash,
            Some(3),
            "the power fails here, right after the outside was told"
        )
    );
    let events = [
        stores(DATA, &ONE),
        stores(FLAG, &ONE),
        clwb(FLAG),
        fences(),
        clwb(DATA),
        fences(),
    ];
    let (later, _) = finding(&events, believes);
    assert_eq!(
        told(&later)[1],
        (
            Role::Flush,
            Some(4),
            "written back only here, after the crash"
        )
    );
    let at_end = finding(&[stores(DATA, &ONE), stores(FLAG, &ONE)], believes);
    assert_eq!(
        told(&at_end.0)[1],
        (
            Role::Crash,
            None,
            "the power fails after the last event of the run"
        )
    );
}

#[test]
fn a_store_that_is_lost_in_part_says_how_much() {
    // Its halves are independent: no fence has ordered them.
    let wide: Vec<u8> = [ONE, ONE].concat();
    let (built, _) = finding(&[nt_stores(DATA, &wide)], |memory| {
        let (low, high) = (memory.word(DATA), memory.word(DATA + 8));
        exits(i32::from(high == 1 && low == 0), "")
    });
    assert_eq!(
        told(&built)[0],
        (
            Role::Store,
            Some(0),
            "16 bytes are stored here, and lost in part (8)"
        )
    );
}

#[test]
fn more_losses_than_can_be_shown_are_counted() {
    let lines = 0..stages::LOST_SHOWN as u64 + 3;
    let kinds: Vec<EventKind<'_>> = lines.clone().map(|l| stores(l * 64, &ONE)).collect();
    // Each of them must be lost for it to fail.
    let (built, found) = finding(&kinds, move |memory| {
        let there: u64 = lines.clone().map(|line| memory.word(line * 64)).sum();
        exits(i32::from(there == 0), "")
    });
    let is_store = |role: &&Event| role.role == Role::Store;
    assert_eq!(
        built.events.iter().filter(is_store).count(),
        stages::LOST_SHOWN
    );
    assert_eq!(built.notes, ["3 more stores are lost in this crash state"]);
    assert_eq!(found.lost_sites.len(), stages::LOST_SHOWN + 3);
}

#[test]
fn harm_that_is_done_by_what_survives_is_told_so() {
    // The flag is set before what it speaks of is stored at all.
    let events = [
        (1, stores(FLAG, &ONE)),
        (2, clwb(FLAG)),
        (3, fences()),
        (4, stores(DATA, &ONE)),
        (5, clwb(DATA)),
        (6, fences()),
    ];
    let all = findings(recorded(record_options(), "", &events), |memory| {
        let mut outcome = exits(0, "");
        if memory.word(FLAG) == 1 && memory.word(DATA) == 0 {
            outcome.status = Status::Signal(11);
        }
        outcome
    });
    // Later the data can be lost, which is another story.
    assert_eq!(all.len(), 2);
    let early = all.iter().find(|(_, found)| found.lost_sites.is_empty());
    let (built, found) = early.expect("one has lost nothing");
    assert_eq!(built.rule, BuiltIn::RecoveryCrash);
    assert_eq!(
        built.message,
        "recovery is killed by SIGSEGV if the store at toy+0x1 survives"
    );
    assert_eq!(
        told(built),
        [
            (
                Role::Survivor,
                Some(0),
                "8 bytes are stored here, and survive"
            ),
            (
                Role::Crash,
                Some(2),
                "the power fails here, before this takes effect"
            ),
            (Role::Symptom, None, "recovery is killed by SIGSEGV here"),
        ]
    );
    assert_eq!(
        built.notes,
        ["no store is lost: what was stored too early survives, while its operation is not over"]
    );
    assert_eq!(
        found.finding.message,
        "recovery is killed by SIGSEGV if the store at toy+0x1 survives and the one at toy+0x4 is not made yet"
    );
}

#[test]
fn a_crash_point_that_breaks_recovery_by_itself_is_told_so() {
    let (built, found) = finding(&[stores(DATA, &ONE), clwb(DATA), fences()], |memory| {
        memory.word(FLAG);
        exits(1, "")
    });
    assert_eq!(
        built.message,
        "recovery fails with exit code 1 after a crash at toy+0x3"
    );
    assert_eq!(
        built.notes,
        ["no store is lost: the crash point alone breaks recovery"]
    );
    // No store is to blame, so it is known by where recovery ended.
    assert_eq!(
        found.cause.0.trim(),
        whose::line(&built.events.last().expect("the symptom").stack)
    );
}

/// The file is written and renamed; nothing is synced. That the data is lost while the name
/// survives cannot be; that the name is lost can.
#[test]
fn names_that_are_lost_are_told_with_what_to_do() {
    let (options, rename) = (fake::names_options(), fake::renames());
    let events = [
        (1, stores(DATA, &ONE)),
        (2, clwb(DATA)),
        (3, fences()),
        (4, rename),
    ];
    let recording = recorded(options, "", &events);
    let all = findings(recording, |memory| {
        exits(
            i32::from(memory.has("/pm/pool") && memory.word(DATA) == 1),
            "",
        )
    });
    let named = all
        .iter()
        .find(|(built, _)| built.events[0].role == Role::Name);
    let (built, found) = named.expect("one is about the name");
    let renaming = "the renaming of 'pool' to 'new'";
    assert_eq!(
        told(built)[0],
        (
            Role::Name,
            Some(3),
            format!("{renaming} is done here, and lost").as_str()
        )
    );
    assert_eq!(
        built.message,
        format!("recovery fails with exit code 1 if {renaming} at toy+0x4 is lost")
    );
    assert_eq!(
        built.help,
        [format!(
            "fsync the folder (or the file, if its size was set) after {renaming} at toy+0x4, before anything depends on it"
        )]
    );
    assert_eq!(found.finding.help, built.help, "it is known already");
    assert_eq!(found.cause.0, "/bin/toy ?+0x4");
}

/// Other addresses and other event numbers, the same lines of code: one cause, and the same stack
/// to tell it by.
#[test]
fn what_a_finding_is_known_by_does_not_depend_on_chance() {
    let run = |moved: u64, before: usize| {
        let noise = (0..before).map(|_| (9, EventKind::Output { fd: 2, size: 1 }));
        let events = [
            (1, stores(DATA + moved, &ONE)),
            (2, stores(FLAG + moved, &ONE)),
            (3, clwb(FLAG + moved)),
            (4, fences()),
        ];
        let events: Vec<(u64, EventKind<'_>)> = noise.chain(events).collect();
        let mut all = findings(recorded(record_options(), "", &events), move |memory| {
            let (flag, data) = (memory.word(FLAG + moved), memory.word(DATA + moved));
            exits(i32::from(flag == 1 && data == 0), "")
        });
        assert_eq!(all.len(), 1);
        all.remove(0).1
    };
    let (first, second) = (run(0, 0), run(4096, 3));
    assert_eq!(first.cause, second.cause);
    assert_eq!(first.finding.message, second.finding.message);
    let stack = |found: &Found| whose::causing_event(&found.finding).map(|e| e.stack.clone());
    assert_eq!(stack(&first), stack(&second));
}
