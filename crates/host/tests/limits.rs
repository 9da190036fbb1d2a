//! Runs that are ended before their time.

mod support;

use brownout_host::{
    ExitStatus, LaunchConfig, Limits, Outcome, Schedule, Stopped, StrategyKind, record,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Folder, Keep};

const SHORT: Duration = Duration::from_millis(300);
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

fn stopped(config: &LaunchConfig) -> (Keep, Outcome) {
    let mut keep = Keep::default();
    let outcome = record(config, &mut keep).expect("it can be launched");
    assert_eq!(outcome.status, ExitStatus::Signal(9));
    assert_eq!(outcome.events, keep.events.len() as u64);
    assert!(keep.of("end").is_empty(), "the stream was cut short");
    (keep, outcome)
}

/// The program writes the numbers of its processes into the file.
fn assert_gone(numbers: &Path, count: usize) {
    let text = std::fs::read_to_string(numbers).expect("readable");
    let pids: Vec<&str> = text.split_ascii_whitespace().collect();
    assert_eq!(pids.len(), count, "{text}");
    for pid in pids {
        assert!(
            !Path::new("/proc").join(pid).exists(),
            "process {pid} is still there"
        );
    }
}

const STORES: &str = r#"
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    for (uint64_t i = 0;; i++) pm[i % 8] = i;
}
"#;

#[test]
fn so_many_events_and_not_one_more() {
    let folder = Folder::new();
    let program = folder.program(STORES);
    let pool = folder.pool();
    for events in [0, 1, 5_000] {
        let config = LaunchConfig {
            limits: Limits {
                events: Some(events),
                wall: Some(LONG),
                ..Limits::default()
            },
            deterministic: true,
            ..folder.launch(&program, [&pool])
        };
        let (first, outcome) = stopped(&config);
        assert_eq!(outcome.stopped, Some(Stopped::Events));
        assert_eq!(outcome.events, events);
        let (second, _) = stopped(&config);
        assert_eq!(first.events, second.events);
    }
}

#[test]
fn too_long() {
    let folder = Folder::new();
    let program = folder.program(STORES);
    let config = LaunchConfig {
        limits: Limits {
            wall: Some(SHORT),
            idle: Some(LONG),
            ..Limits::default()
        },
        ..folder.launch(&program, [folder.pool()])
    };
    let (keep, outcome) = stopped(&config);
    assert_eq!(outcome.stopped, Some(Stopped::Wall));
    assert!(outcome.wall >= SHORT);
    // All that was recorded has come, in order.
    let values: Vec<u64> = keep.events.iter().filter_map(|seen| seen.value).collect();
    assert!(values.iter().copied().eq(0..values.len() as u64));
}

/// Threads that only look again and again make no events; they are counted all the same, if they
/// are scheduled.
#[test]
fn too_many_steps() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
#include <pthread.h>
#include <sched.h>
static int never;
static void *wait_for_it(void *unused) {
    while (!__atomic_load_n(&never, __ATOMIC_ACQUIRE)) sched_yield();
    return unused;
}
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    pm[0] = 1;
    if (argc > 2) return 0;
    pthread_t other;
    pthread_create(&other, 0, wait_for_it, 0);
    wait_for_it(0);
}
"#,
    );
    let limits = Limits {
        steps: Some(20_000),
        wall: Some(LONG),
        ..Limits::default()
    };
    let config = LaunchConfig {
        limits,
        schedule: Some(Schedule::new(StrategyKind::RoundRobin, 0)),
        ..folder.launch(&program, [folder.pool()])
    };
    let (keep, outcome) = stopped(&config);
    assert_eq!(outcome.stopped, Some(Stopped::Steps));
    assert!(outcome.scheduled.expect("it was scheduled").steps >= 20_000);
    assert_eq!(keep.of("store").len(), 1);
    // Whoever has an end comes to it.
    let config = LaunchConfig {
        limits,
        schedule: Some(Schedule::new(StrategyKind::RoundRobin, 0)),
        ..folder.launch(&program, [folder.pool(), "done".into()])
    };
    let outcome = record(&config, &mut Keep::default()).expect("it can be launched");
    assert_eq!(
        (outcome.status, outcome.stopped),
        (ExitStatus::Code(0), None)
    );
}

/// Memory counts that was touched, not what was only asked for.
#[test]
fn too_much_memory() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    size_t len = (size_t)4 << 30;
    char *all = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return 3;
    size_t touched = argc > 2 ? len / 8 : 4096;
    for (size_t i = 0; i < touched; i += 4096) all[i] = 1;
    if (argc > 2) for (;;) pause();
    return 0;
}
"#,
    );
    let limits = Limits {
        memory: Some(256 << 20),
        wall: Some(LONG),
        ..Limits::default()
    };
    let config = LaunchConfig {
        limits,
        ..folder.launch(&program, [folder.pool()])
    };
    support::run(&config);
    let config = LaunchConfig {
        limits,
        ..folder.launch(&program, [folder.pool(), "much".into()])
    };
    let outcome = brownout_host::run(&config).expect("it can be launched");
    assert_eq!(outcome.stopped, Some(Stopped::Memory));
}

#[test]
fn waiting_for_ever_with_children_everywhere() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
static void say(const char *where) {
    char text[32];
    int fd = need(open(where, O_WRONLY | O_APPEND | O_CREAT, 0600));
    int n = sprintf(text, "%d ", getpid());
    write(fd, text, n);
    close(fd);
}
int main(int argc, char **argv) {
    say(argv[1]);
    int ready[2];
    need(pipe(ready));
    for (int kind = 0; kind < 3; kind++) {
        if (fork() == 0) {
            if (kind > 0) setsid();
            if (kind > 1 && fork() != 0) _exit(0); // its child is an orphan, far from our group
            say(argv[1]);
            write(ready[1], "x", 1);
            for (;;) pause();
        }
    }
    char c;
    for (int n = 0; n < 3; n++) read(ready[0], &c, 1);
    for (;;) pause();
}
"#,
    );
    let numbers = folder.join("numbers");
    let config = LaunchConfig {
        limits: Limits {
            idle: Some(SHORT),
            wall: Some(LONG),
            ..Limits::default()
        },
        ..folder.launch(&program, [&numbers])
    };
    let (_, outcome) = stopped(&config);
    assert_eq!(outcome.stopped, Some(Stopped::Idle));
    assert_gone(&numbers, 4);
    // The same on a thread that is not the first: orphans do not come to it.
    std::fs::remove_file(&numbers).expect("there");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(stopped(&config).1.stopped, Some(Stopped::Idle)));
    });
    assert_gone(&numbers, 4);
}

#[test]
fn busy_is_not_idle() {
    let folder = Folder::new();
    let program = folder.program("int main(void) { for (volatile long i = 0;; i++) ; }");
    let config = LaunchConfig {
        limits: Limits {
            idle: Some(SHORT / 3),
            wall: Some(SHORT * 2),
            ..Limits::default()
        },
        ..folder.launch(&program, [""; 0])
    };
    assert_eq!(stopped(&config).1.stopped, Some(Stopped::Wall));
}

#[test]
fn asked_to_stop() {
    let folder = Folder::new();
    let program = folder.program(STORES);
    let stop = Arc::new(AtomicBool::new(false));
    let config = LaunchConfig {
        stop: Some(stop.clone()),
        ..folder.launch(&program, [folder.pool()])
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT / 3);
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(stopped(&config).1.stopped, Some(Stopped::Asked));
    });
}

#[test]
fn limits_hold_without_recording() {
    let folder = Folder::new();
    let config = LaunchConfig {
        limits: Limits {
            idle: Some(SHORT),
            ..Limits::default()
        },
        ..folder.launch("sleep", ["600"])
    };
    let outcome = brownout_host::run(&config).expect("it can be launched");
    assert_eq!(outcome.stopped, Some(Stopped::Idle));
    assert_eq!(outcome.status, ExitStatus::Signal(9));
}

#[test]
fn limits_that_are_not_hit_change_nothing() {
    let folder = Folder::new();
    let config = LaunchConfig {
        limits: Limits {
            events: Some(1_000_000),
            idle: Some(LONG),
            wall: Some(LONG),
            steps: Some(1_000_000),
            memory: Some(1 << 30),
        },
        stop: Some(Arc::default()),
        stderr: Some(std::fs::File::create(folder.join("err")).expect("writable")),
        ..folder.launch("sh", ["-c", "echo out; echo err >&2; true & wait"])
    };
    support::run(&config);
    assert_eq!(folder.printed(), "out\n");
    let err = std::fs::read_to_string(folder.join("err")).expect("readable");
    assert_eq!(err, "err\n");
}

/// What nobody will read of a long output takes no room while the program runs.
#[test]
fn output_that_is_not_kept_takes_no_room() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const MAX: u64 = 1 << 20;
    let folder = Folder::new();
    let file = std::fs::File::create_new(folder.join("long")).expect("writable");
    let script =
        "for i in 1 2 3 4 5 6 7 8; do head -c 32M /dev/zero | tr '\\0' x; sleep 0.05; done";
    let config = LaunchConfig {
        output_max: Some(MAX),
        stdout: Some(file.try_clone().expect("a descriptor")),
        ..folder.launch("sh", ["-c", script])
    };
    support::run(&config);
    let meta = file.metadata().expect("metadata");
    assert_eq!(meta.len(), 256 << 20);
    assert!(meta.blocks() * 512 < 128 << 20, "{} blocks", meta.blocks());
    let kept = std::fs::File::open(folder.join("long")).expect("readable");
    let mut bytes = vec![0; MAX as usize];
    kept.read_exact_at(&mut bytes, 0).expect("it is there");
    assert!(bytes.iter().all(|byte| *byte == b'x'));
}
