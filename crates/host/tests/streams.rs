//! The stream is whole and explains itself, whatever processes and threads do to each other:
//! children outlive their parents, processes end, are replaced and killed in the middle of what
//! their threads do.
//!
//! The proof is the one of `record --verify`: a file's first content and the recorded stores give
//! its last content, and no event lies outside the mappings that the stream knows.

mod support;

use brownout_host::{ExitStatus, LaunchConfig, Limits, Outcome, record};
use brownout_trace::EventSink;
use brownout_trace::event::{Event, FileId};
use brownout_trace::verify::{Mismatch, Verifier, VerifierOptions, copy_sparse};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::Folder;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

/// Feeds the verifier.
struct Verify {
    verifier: Verifier<'static>,
    folder: tempfile::TempDir,
    copies: Arc<Mutex<HashMap<FileId, PathBuf>>>,
    last: &'static str,
}

impl Verify {
    fn new() -> Verify {
        let folder = tempfile::tempdir().expect("a folder");
        let copies: Arc<Mutex<HashMap<FileId, PathBuf>>> = Arc::default();
        let known = copies.clone();
        let snapshot = move |file, _: &Path| {
            let known = known.lock().expect("no panic");
            Ok::<_, io::Error>(known.get(&file).cloned())
        };
        Verify {
            verifier: Verifier::new(folder.path(), VerifierOptions::default(), snapshot),
            folder,
            copies,
            last: "",
        }
    }
}

impl EventSink for Verify {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.last = event.kind.name();
        self.verifier
            .feed(event)
            .map_err(|e| io::Error::other(e.to_string()))
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> io::Result<()> {
        let copy = self.folder.path().join(file.to_string());
        copy_sparse(path, &copy)?;
        self.copies.lock().expect("no panic").insert(file, copy);
        Ok(())
    }
}

/// A store of `pm_exits` has fewer bytes than these.
const STORE_MAX: u64 = 256;

/// How much of what was written must be in the stream.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    /// All of it.
    All,
    /// All but the one store that was under way when somebody was killed.
    ButOne,
}

fn verified(config: &LaunchConfig, whole: Whole) -> Outcome {
    let mut sink = Verify::new();
    let outcome = record(config, &mut sink).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sink.last, "end");
    let report = sink.verifier.finish();
    let is_fine = match whole {
        Whole::All => report.is_ok(),
        // One that goes over several lines differs in each of them.
        Whole::ButOne => {
            let offsets = report.mismatches.iter().map(|m| m.offset);
            let first = offsets.min().unwrap_or_default();
            let is_of_one = |m: &Mismatch| m.offset + m.actual.len() as u64 <= first + STORE_MAX;
            report.inconsistencies.is_empty() && report.mismatches.iter().all(is_of_one)
        }
    };
    let first = report.mismatches.iter().map(|m| m.to_string());
    let first = first.chain(report.inconsistencies.iter().map(|i| i.to_string()));
    assert!(is_fine, "{:#?}", first.collect::<Vec<_>>());
    outcome
}

fn launch(folder: &Folder, program: &Path, args: &[&str]) -> LaunchConfig {
    let pool = folder.join("pool").into_os_string();
    let args = args.iter().map(OsString::from);
    folder.launch(program, std::iter::once(pool).chain(args))
}

/// What a recording may be asked for.
fn variants(config: impl Fn() -> LaunchConfig) -> impl Iterator<Item = LaunchConfig> {
    (0..4).map(move |n| LaunchConfig {
        loads: n & 1 != 0,
        deterministic: n & 2 != 0,
        ..config()
    })
}

#[test]
fn children_begin_with_what_their_parents_had_when_they_were_made() {
    let folder = Folder::new();
    let program = folder.shared_program("pm_forks");
    for config in variants(|| launch(&folder, &program, &[])) {
        let outcome = verified(&config, Whole::All);
        assert_eq!(outcome.status, ExitStatus::Code(0));
        assert_eq!(folder.printed(), "every child has stored\n");
    }
}

#[test]
fn children_of_runs_on_several_threads() {
    let folders: Vec<Folder> = (0..3).map(|_| Folder::new()).collect();
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(|| {
                let program = folder.shared_program("pm_forks");
                for kind in ["0", "1", "2"] {
                    let config = launch(folder, &program, &[kind, "20"]);
                    assert_eq!(verified(&config, Whole::All).status, ExitStatus::Code(0));
                }
            });
        }
    });
}

/// `BROWNOUT_EXITS=63` makes more than 500 runs of it.
#[test]
fn ends_in_the_middle_of_what_threads_do() {
    let folder = Folder::new();
    let program = folder.shared_program("pm_exits");
    let rounds = std::env::var("BROWNOUT_EXITS").map_or(5, |n| n.parse().expect("a number"));
    for _ in 0..rounds {
        for config in variants(|| launch(&folder, &program, &[])) {
            assert_eq!(verified(&config, Whole::All).status, ExitStatus::Code(0));
        }
        for (how, status, whole) in [
            ("thread", ExitStatus::Code(0), Whole::All),
            ("exec", ExitStatus::Code(0), Whole::All),
            ("abort", ExitStatus::Signal(6), Whole::ButOne),
            ("kill", ExitStatus::Signal(9), Whole::ButOne),
        ] {
            let config = launch(&folder, &program, &[how]);
            let outcome = verified(&config, whole);
            assert_eq!(outcome.status, status, "{how}");
        }
    }
}

#[test]
fn string_instructions_say_how_they_went() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
static void copy(volatile void *to, const void *from, uint64_t n, int size, int down) {
    void *di = (void *)to, *si = (void *)from;
    if (down) { di += (n - 1) * size; si += (n - 1) * size; __asm__ volatile("std"); }
    switch (size) {
    case 1: __asm__ volatile("rep movsb" : "+D"(di), "+S"(si), "+c"(n) : : "memory"); break;
    case 2: __asm__ volatile("rep movsw" : "+D"(di), "+S"(si), "+c"(n) : : "memory"); break;
    case 4: __asm__ volatile("rep movsl" : "+D"(di), "+S"(si), "+c"(n) : : "memory"); break;
    case 8: __asm__ volatile("rep movsq" : "+D"(di), "+S"(si), "+c"(n) : : "memory"); break;
    }
    __asm__ volatile("cld");
}
int main(int argc, char **argv) {
    volatile char *pm = (volatile char *)map(argv[1]);
    char from[256];
    for (int i = 0; i < 256; i++) from[i] = i;
    copy(pm + 0, from, 8, 1, 0);
    copy(pm + 16, from, 8, 1, 1);
    copy(pm + 32, from, 3, 2, 0);
    copy(pm + 64, from, 4, 4, 1);
    copy(pm + 128, from, 4, 8, 0); // as any long store
    copy(pm + 192, from, 4, 8, 1);
    copy(pm + 260, from, 2, 8, 0);
    copy(pm + 300, from, 1, 1, 0); // a single element
    uint64_t n = 5;
    void *di = (void *)(pm + 320);
    __asm__ volatile("rep stosb" : "+D"(di), "+c"(n) : "a"(7) : "memory");
    return 0;
}
"#,
    );
    let pool = folder.pool();
    let (keep, _) = support::run(&folder.launch(&program, [&pool]));
    let kinds: Vec<String> = keep
        .events
        .iter()
        .filter(|seen| seen.name.ends_with("store"))
        .map(|seen| {
            let field = |name: &str| {
                let from = seen.text.split_once(name).map_or("", |(_, rest)| rest);
                let end = from.find([',', ' ', '}', ')']).unwrap_or(from.len());
                from[..end].to_owned()
            };
            let direction = match &*field("descending: ") {
                "true" => " down",
                "false" => " up",
                _ => "",
            };
            let element = field("Elements { bytes: ");
            format!("{} {} {element}{direction}", seen.name, field("size: "))
        })
        .collect();
    let expected = [
        "string_store 8 1 up",
        "string_store 8 1 down",
        "string_store 6 2 up",
        "string_store 16 4 down",
        "store 32 ",
        "string_store 32 8 down",
        "string_store 16 8 up",
        "store 1 ",
        "string_store 5 1 up",
    ];
    assert_eq!(kinds, expected);
    // All bytes are in address order, whatever the direction.
    verified(&folder.launch(&program, [folder.pool()]), Whole::All);
}

/// Trees of processes that fork, leave their sessions, become other programs, end at once or never,
/// and store all the time.
const TREE: &str = r#"
#include <time.h>
static volatile uint64_t *pm;
static char **again;
static unsigned long seed;
static unsigned chance(unsigned n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}
static void grow(int depth) {
    for (int i = 0; i < 3 && depth > 0; i++) {
        pid_t pid = chance(4) ? fork() : vfork();
        if (pid == 0) {
            seed ^= getpid() * 0x9e3779b97f4a7c15u;
            if (chance(2)) setsid();
            pm[depth]++;
            if (chance(3) == 0) {
                char text[16];
                sprintf(text, "%d", depth - 1);
                execl(again[0], again[0], again[1], text, (char *)0);
            }
            if (chance(4) == 0) _exit(0);
            grow(depth - 1);
            for (;;) pm[chance(500)]++;
        }
    }
}
int main(int argc, char **argv) {
    again = argv;
    pm = map(argv[1]);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed = now.tv_nsec + getpid() * 1000003;
    grow(atoi(argv[2]));
    for (;;) pm[chance(500)]++;
}
"#;

#[test]
fn trees_of_processes_end_when_they_are_to() {
    let folder = Folder::new();
    let program = folder.program(TREE);
    let pool = folder.pool();
    std::thread::scope(|scope| {
        for on in 0..2 {
            let (folder, program, pool) = (&folder, &program, &pool);
            scope.spawn(move || {
                for round in 0..6u64 {
                    let config = LaunchConfig {
                        limits: Limits {
                            wall: Some(Duration::from_millis(50 + 60 * round + 25 * on)),
                            ..Limits::default()
                        },
                        ..folder.launch(program, [pool.clone().into_os_string(), "4".into()])
                    };
                    let begun = Instant::now();
                    let outcome = record(&config, &mut support::Keep::default());
                    let outcome = outcome.expect("it can be launched");
                    assert_eq!(outcome.stopped, Some(brownout_host::Stopped::Wall));
                    assert!(begun.elapsed() < LONG / 10, "it has ended when it was to");
                }
            });
        }
    });
    // Nobody is left of any of them.
    for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
        let maps = std::fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
        assert!(
            !maps.contains(&*pool.to_string_lossy()),
            "{:?} is still there",
            entry.file_name()
        );
    }
}
