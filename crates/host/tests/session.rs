//! Runs that are forked from a kept process, compared with launches.

mod support;

use brownout_host::{
    Decision, ExitStatus, LaunchConfig, LaunchError, Limits, Outcome, Schedule, Session, StopAt,
    Stopped, StrategyKind, record,
};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Folder, Keep, Seen};

/// Does what a program can do, as its arguments say, and stores what it finds out.
const MANY: &str = r#"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
static volatile uint64_t *pm;
static char *early;
// Before `main`, as libraries do.
__attribute__((constructor)) static void prepare(void) {
    early = malloc(10000);
    memset(early, 7, 10000);
    char link[200];
    readlink("/proc/self/exe", link, sizeof link);
}
static void *thread(void *n) { pm[(long)n] = 100 + (long)n; return 0; }
static void handler(int sig) { pm[9] = sig; }
int main(int argc, char **argv) {
    pm = map(argv[1]);
    pm[0] = pm[0] + 1;
    for (char *c = argv[2]; *c; c++) switch (*c) {
    case 't': {
        pthread_t t;
        for (long i = 1; i < 4; i++) { pthread_create(&t, 0, thread, (void *)i); pthread_join(t, 0); }
        break;
    }
    case 'f':
        if (fork() == 0) { pm[10] = getpid(); pm[11] = getppid(); _exit(3); }
        int status;
        pm[12] = wait(&status);
        pm[13] = WEXITSTATUS(status);
        break;
    case 'e':
        if (vfork() == 0) { execl(argv[0], argv[0], argv[1], "x", (char *)0); _exit(9); }
        wait(0);
        break;
    case 'x': pm[14] = 14; break;
    case 'p':
        pm[15] = getpid();
        pm[16] = syscall(SYS_gettid);
        pm[17] = getpid() == getpgrp();
        break;
    case 'k': signal(SIGUSR1, handler); kill(getpid(), SIGUSR1); raise(SIGUSR1); break;
    case 'm': {
        // Knows its owner by number, and is freed by the kernel if that dies.
        pthread_mutexattr_t a;
        pthread_mutexattr_init(&a);
        pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_t *m = (void *)(pm + 64);
        pthread_mutex_init(m, &a);
        pm[18] = pthread_mutex_lock(m);
        pm[19] = pthread_mutex_lock(m);
        pm[20] = pthread_mutex_unlock(m);
        break;
    }
    case 'c': { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); pm[21] = t.tv_nsec; pm[22] = rand(); break; }
    case 'a': pm[23] = (uint64_t)malloc(100) ^ (uint64_t)early; pm[24] = (uint64_t)sbrk(0); break;
    case 'w': printf("%d %d\n", (int)pm[0], getpid()); break;
    case 's': *(volatile int *)8 = 1; break;
    case 'l': for (;;) pm[25]++;
    case 'z': pause();
    }
    return 7;
}
"#;

fn config(folder: &Folder, program: &Path, what: &str) -> LaunchConfig {
    let pool = folder.join("pool");
    LaunchConfig {
        deterministic: true,
        loads: true,
        boundaries: true,
        limits: Limits {
            wall: Some(Duration::from_secs(60)),
            ..Limits::default()
        },
        ..folder.launch(program, [pool.as_os_str(), what.as_ref()])
    }
}

fn world(folder: &Folder) -> StopAt {
    StopAt::World(vec![folder.path.clone()])
}

/// What was seen of a run: its events, how it ended, what it printed.
type Story = (Vec<Seen>, ExitStatus, Option<Stopped>, String);

fn story(folder: &Folder, keep: Keep, outcome: &Outcome) -> Story {
    assert_eq!(outcome.events, keep.events.len() as u64);
    let printed = folder.printed();
    (keep.events, outcome.status, outcome.stopped, printed)
}

fn launched(folder: &Folder, config: &LaunchConfig) -> Story {
    let mut keep = Keep::default();
    let outcome = record(config, &mut keep).expect("it can be launched");
    story(folder, keep, &outcome)
}

fn forked(folder: &Folder, session: &mut Session, config: &LaunchConfig) -> Story {
    let mut keep = Keep::default();
    let outcome = session.run(config, &mut keep).expect("it can be run");
    story(folder, keep, &outcome)
}

/// Several threads or processes come in whichever order the kernel lets them: what they do is the
/// same, whose turn it is is not, nor are the numbers of calling contexts.
fn in_any_order(story: &Story) -> Story {
    let (mut events, status, stopped, printed) = story.clone();
    events.retain(|seen| !matches!(seen.name, "context" | "futex"));
    for seen in &mut events {
        seen.context = 0;
    }
    events.sort_by(|a, b| (a.name, a.pc, &a.text).cmp(&(b.name, b.pc, &b.text)));
    (events, status, stopped, printed)
}

fn assert_same(what: &str, launched: &Story, forked: &Story) {
    if what.contains(['t', 'f', 'e']) {
        let [launched, forked] = [launched, forked].map(in_any_order);
        assert_eq!(launched, forked, "{what}");
        return;
    }
    for (at, (a, b)) in launched.0.iter().zip(&forked.0).enumerate() {
        assert_eq!(a, b, "{what}: event {at}");
    }
    assert_eq!(launched, forked, "{what}");
}

#[test]
fn a_run_is_what_a_launch_would_have_been() {
    let folder = Folder::new();
    let program = folder.program(MANY);
    for what in [
        "",
        "p",
        "t",
        "f",
        "e",
        "k",
        "m",
        "c",
        "a",
        "w",
        "s",
        "ptfekmcawx",
        "wffts",
    ] {
        folder.pool();
        let first = launched(&folder, &config(&folder, &program, what));
        let config = config(&folder, &program, what);
        let mut session = Session::open(&config, world(&folder)).expect("it can be kept");
        for _ in 0..4 {
            // Files in the world are made anew: nothing of the old ones was seen.
            let pool = folder.pool();
            std::fs::rename(&pool, folder.join("old")).expect("it is there");
            folder.pool();
            let run = forked(&folder, &mut session, &config);
            assert_same(what, &first, &run);
        }
    }
}

/// Threads that take turns do so in the same order, whoever was scheduled before, and by which
/// strategy.
#[test]
fn threads_take_the_same_turns_as_in_a_launch() {
    /// What a run did, and what was decided in it.
    type Decided = (Story, Vec<Decision>, u64, u64);
    let folder = Folder::new();
    let program = folder.program(MANY);
    let decided = |(keep, outcome): (Keep, Outcome)| -> Decided {
        let scheduled = outcome.scheduled.clone().expect("it was asked for");
        let decisions = scheduled.decisions.clone();
        let story = story(&folder, keep, &outcome);
        (story, decisions, scheduled.check, scheduled.steps)
    };
    for what in ["", "t", "ft", "ptfekmcaw", "s"] {
        let config = |schedule: &Schedule| LaunchConfig {
            schedule: Some(schedule.clone()),
            ..config(&folder, &program, what)
        };
        let launched = |schedule: &Schedule| {
            folder.pool();
            let mut keep = Keep::default();
            let outcome = record(&config(schedule), &mut keep).expect("it can be launched");
            decided((keep, outcome))
        };
        let mut schedules = vec![Schedule::new(StrategyKind::GoOn, 0)];
        for seed in 0..3 {
            schedules.push(Schedule::new(StrategyKind::Random, seed));
            schedules.push(Schedule::new(StrategyKind::Pct, seed));
        }
        let (_, decisions, check, _) = launched(&schedules[1]);
        schedules.push(Schedule::repeat_exactly(decisions, check));
        let kept = config(&schedules[0]);
        let mut session = Session::open(&kept, world(&folder)).expect("it can be kept");
        for schedule in schedules.iter().chain(&schedules[..2]) {
            let first = launched(schedule);
            folder.pool();
            let mut keep = Keep::default();
            let outcome = session.run(&config(schedule), &mut keep).expect("a run");
            let run = decided((keep, outcome));
            for (at, (a, b)) in first.0.0.iter().zip(&run.0.0).enumerate() {
                assert_eq!(a, b, "{what}, {schedule:?}: event {at}");
            }
            assert_eq!(first, run, "{what}, {schedule:?}");
        }
    }
}

#[test]
fn runs_that_are_stopped_leave_the_session_as_it_was() {
    let folder = Folder::new();
    let program = folder.program(MANY);
    let events = Limits {
        events: Some(500),
        ..Limits::default()
    };
    let idle = Limits {
        idle: Some(Duration::from_millis(200)),
        ..Limits::default()
    };
    for (what, limits, stopped) in [("l", events, Stopped::Events), ("fz", idle, Stopped::Idle)] {
        let config = || LaunchConfig {
            limits,
            ..config(&folder, &program, what)
        };
        folder.pool();
        let first = launched(&folder, &config());
        assert_eq!(first.2, Some(stopped));
        let config = config();
        let mut session = Session::open(&config, world(&folder)).expect("it can be kept");
        for _ in 0..3 {
            folder.pool();
            let run = forked(&folder, &mut session, &config);
            assert_same(what, &first, &run);
        }
    }
}

/// Looks at files in many ways before it does anything else.
const LOOKS: &str = r#"
static char where[4096];
static volatile uint64_t seen;
static void look(const char *path) {
    struct stat s;
    seen = seen * 31 + (stat(path, &s) == 0 ? s.st_size + 1 : 0);
}
__attribute__((constructor)) static void prepare(int argc, char **argv) { if (argc > 2 && argv[2][0] == 'c') look(argv[3]); }
int main(int argc, char **argv) {
    char text[100] = {0};
    switch (argv[2][0]) {
    case 'c': break;
    case 's': case 'r': case 'u': case 'l': case 'n': look(argv[3]); break;
    case 'a': seen = access(argv[3], F_OK) == 0; break;
    case 'o': { int fd = open(argv[3], O_RDONLY); if (fd >= 0) { read(fd, text, 99); seen = strlen(text); } break; }
    case 'd': { need(chdir(argv[3])); look("answer"); break; }
    case 'f': { int fd = need(open(argv[3], O_RDONLY | O_DIRECTORY)); struct stat s; seen = fstatat(fd, "answer", &s, 0) == 0 ? s.st_size + 1 : 0; break; }
    }
    map(argv[1])[0] = 1000 + seen;
    return 0;
}
"#;

#[test]
fn whatever_differs_in_the_world_is_seen_by_each_run() {
    let folder = Folder::new();
    let program = folder.program(LOOKS);
    folder.pool();
    let answer = folder.join("answer");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let elsewhere = Folder::new();
    let link = elsewhere.join("link");
    std::os::unix::fs::symlink(&folder.path, &link).expect("a link");
    std::os::unix::fs::symlink(&answer, elsewhere.join("answer")).expect("a link");
    let inside = folder.path.join("below/../answer");
    std::fs::create_dir(folder.join("below")).expect("a folder");
    let ways = [
        ("c", text(&answer)),
        ("s", text(&answer)),
        ("a", text(&answer)),
        ("o", text(&answer)),
        ("r", text(&inside)),
        ("u", format!("/proc/self/root{}", text(&answer))),
        ("l", text(&link.join("answer"))),
        ("n", text(&elsewhere.join("answer"))),
        ("d", text(&folder.path)),
        ("d", text(&link)),
        ("f", text(&folder.path)),
        ("f", text(&elsewhere.path)),
    ];
    for (way, path) in ways {
        let config = LaunchConfig {
            args: [text(&folder.join("pool")), way.into(), path]
                .map(Into::into)
                .to_vec(),
            ..config(&folder, &program, "")
        };
        let mut session = Session::open(&config, world(&folder)).expect("it can be kept");
        for size in [None, Some(3), Some(5), None, Some(1)] {
            match size {
                Some(size) => std::fs::write(&answer, vec![b'x'; size]).expect("a write"),
                None => drop(std::fs::remove_file(&answer)),
            }
            let there = launched(&folder, &config);
            let here = forked(&folder, &mut session, &config);
            assert_eq!(there, here, "{way}: {size:?}");
        }
        drop(std::fs::remove_file(&answer));
    }
}

/// Asks whether its descriptors are open, as Rust's runtime does, prints, opens a file and reads a
/// part of it, and then does as its input says.
const LISTENS: &str = r#"
#include <poll.h>
#include <pthread.h>
#include <sys/time.h>
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    char line[100] = {0}, other[3];
    struct pollfd all[] = {{.fd = 0}, {.fd = 1}, {.fd = 2}};
    need(poll(all, 3, 0));
    pm[0] = 1;
    write(1, "ready\n", 6);
    int fd = need(open(argv[3], O_RDONLY));
    need(read(fd, other, 2));
    switch (argv[2][0]) {
    case 'p': { int p[2]; pipe(p); break; }
    case 't': { struct itimerval t = {{0, 0}, {100, 0}}; setitimer(ITIMER_REAL, &t, 0); break; }
    case 's': mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); break;
    case 'f': if (fork() == 0) pause(); break;
    case 'l': { struct flock l = {.l_type = F_RDLCK}; fcntl(fd, F_SETLK, &l); break; }
    }
    while (fgets(line, sizeof line, stdin)) {
        need(read(fd, other, 2));
        pm[1] = strlen(line) * 1000 + other[0];
        pm[2] += 1;
        printf("%s", line);
    }
    return pm[2];
}
"#;

#[test]
fn runs_may_differ_in_their_input() {
    let folder = Folder::new();
    let program = folder.program(LISTENS);
    let input = folder.file("input", "");
    let letters = folder.file("letters", "abcdefghijklmnopqrstuvwxyz");
    let config = || LaunchConfig {
        args: [
            folder.join("pool").into(),
            "".into(),
            letters.clone().into(),
        ]
        .to_vec(),
        stdin: Some(File::open(&input).expect("there")),
        ..config(&folder, &program, "")
    };
    folder.pool();
    let kept = config();
    let mut session = Session::open(&kept, StopAt::Input).expect("it can be kept");
    let at_stop = std::fs::read(folder.join("pool")).expect("readable");
    assert_eq!(
        at_stop[..8],
        [1, 0, 0, 0, 0, 0, 0, 0],
        "it has gone as far as this"
    );
    let set_pool = |bytes: &[u8]| {
        // In place, because the kept process has it mapped.
        let pool = File::options().write(true).open(folder.join("pool"));
        pool.and_then(|pool| pool.write_all_at(bytes, 0))
            .expect("a write");
    };
    for text in ["", "one\n", "one\ntwo\nthree\n", "x\n", "one\n"] {
        std::fs::write(&input, text).expect("a write");
        set_pool(&at_stop);
        let run = forked(&folder, &mut session, &kept);
        assert_eq!(run.3, format!("ready\n{text}"));
        set_pool(&[0; 4096]);
        // Its output goes to a file of its own, which has the same name.
        std::fs::remove_file(folder.join("out")).expect("it is there");
        let there = launched(&folder, &config());
        assert_eq!(there, run, "{text}");
        assert_eq!(run.1, ExitStatus::Code(text.lines().count() as i32));
        // Where the kept process writes, the next run finds what it had written.
        let out = kept
            .stdout
            .as_ref()
            .expect("given")
            .try_clone()
            .expect("a descriptor");
        std::fs::remove_file(folder.join("out")).expect("it is there");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&out));
        std::os::unix::fs::symlink(&path, folder.join("out")).expect("a link");
        std::mem::forget(out);
    }
}

/// Has a heap of so many pages before it reads its input. Then it writes to all of it, has it grow
/// and shrink, forks, and calls many functions by their addresses.
const HEAVY: &str = r#"
static volatile uint64_t *pm;
#define F(n) static uint64_t f##n(uint64_t x) { return x * (2 * n + 3) + n; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
static uint64_t (*volatile fs[])(uint64_t) = { f0, f1, f2, f3, f4, f5, f6, f7 };
static uint64_t sum(const unsigned char *at, const unsigned char *end) {
    uint64_t sum = 5381;
    for (; at < end; at++) sum = sum * 33 + *at;
    return sum;
}
int main(int argc, char **argv) {
    pm = map(argv[1]);
    size_t size = strtoul(argv[2], 0, 10) * 4096;
    unsigned char *heap = sbrk(size);
    if (heap == (void *)-1) return 9;
    for (size_t i = 0; i < size; i++) heap[i] = i * 2654435761u >> 24;
    char line[100];
    if (read(0, line, sizeof line) < 0) return 9;
    pm[1] = sum(heap, heap + size);
    pm[2] = (uint64_t)sbrk(0) - (uint64_t)heap;
    for (size_t i = 0; i < size; i += 512) heap[i] += 1;
    pm[3] = sum(heap, heap + size);
    // It grows across the next boundary of large pages, and what is new is zero.
    unsigned char *more = sbrk(3 << 20);
    pm[4] = more - heap;
    pm[5] = sum(more, more + (3 << 20));
    memset(more, 1, 3 << 20);
    if (fork() == 0) { heap[7] = 9; more[7] = 9; _exit(0); }
    int status;
    wait(&status);
    pm[6] = sum(heap, more + (3 << 20));
    pm[7] = (uint64_t)sbrk(-(4 << 20)) - (uint64_t)heap;
    pm[8] = (uint64_t)sbrk(1 << 20) - (uint64_t)heap;
    pm[9] = sum(heap, sbrk(0));
    void *behind = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pm[10] = (uint64_t)behind;
    for (int i = 0; i < 1000; i++) pm[11] = fs[(i * 7 + i / 9) % 8](pm[11]);
    return 3;
}
"#;

/// A heap is copied as a whole where runs write to most of it: nobody can tell, wherever it ends.
#[test]
fn large_heaps_are_as_in_a_launch() {
    let folder = Folder::new();
    let program = folder.program(HEAVY);
    let input = folder.file("input", "x\n");
    // It begins somewhere in a large page, so one of these ends at the start of one, or near it.
    for pages in [1100, 1227, 1356, 1484] {
        let config = || LaunchConfig {
            stdin: Some(File::open(&input).expect("there")),
            ..config(&folder, &program, &pages.to_string())
        };
        folder.pool();
        let there = launched(&folder, &config());
        assert_eq!(there.1, ExitStatus::Code(3), "{pages}");
        let kept = config();
        folder.pool();
        let mut session = Session::open(&kept, StopAt::Input).expect("it can be kept");
        // The first runs find out what the others need.
        for run in 0..4 {
            folder.pool();
            let here = forked(&folder, &mut session, &kept);
            assert_eq!(
                in_any_order(&there),
                in_any_order(&here),
                "{pages}, run {run}"
            );
        }
    }
}

/// Maps memory after its input, fills it, and gives it back, several times.
const FILLS: &str = r#"
#include <sys/mman.h>
static volatile uint64_t *pm;
static uint64_t sum(const unsigned char *at, size_t len) {
    uint64_t sum = 5381;
    for (size_t i = 0; i < len; i++) sum = sum * 33 + at[i];
    return sum;
}
static unsigned char *anew(size_t len) {
    return mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
int main(int argc, char **argv) {
    pm = map(argv[1]);
    size_t len = 528384;
    int n = 1;
    char line[100];
    if (read(0, line, sizeof line) < 0) return 9;
    // More than there is at hand.
    for (int round = 0; round < 12; round++) {
        unsigned char *one = anew(len), *other = anew(len);
        pm[n++] = (uint64_t)one;
        pm[n++] = (uint64_t)other;
        pm[n++] = sum(one, len) ^ sum(other, len);
        memset(one, round + 1, len);
        memset(other, round + 2, len);
        pm[n++] = sum(one, len) + sum(other, len);
        if (round == 1) {
            // Its child has its own, and maps more.
            if (fork() == 0) {
                one[5] = 99;
                unsigned char *third = anew(len);
                _exit(third[0] + third[len - 1] + (one[5] == 99 && one[6] == round + 1));
            }
            int status;
            wait(&status);
            pm[n++] = WEXITSTATUS(status);
            pm[n++] = one[5];
        }
        if (round == 2) {
            // In the middle another protection, then a hole, and then more.
            mprotect(one + 65536, 8192, PROT_READ);
            mprotect(one + 65536, 8192, PROT_READ | PROT_WRITE);
            one[65536] = 7;
            munmap(one + 131072, 4096);
            pm[n++] = sum(one, 131072) + sum(one + 135168, len - 135168);
            one = (munmap(one, len), anew(len));
            pm[n++] = sum(one, len);
        }
        if (round == 3) {
            one = mremap(one, len, 2 * len, MREMAP_MAYMOVE);
            pm[n++] = (uint64_t)one;
            pm[n++] = sum(one, 2 * len);
            one = mremap(one, 2 * len, len, 0);
            madvise(one, 65536, MADV_DONTNEED);
            pm[n++] = sum(one, len);
        }
        munmap(one, len);
        munmap(other, len);
    }
    return 3;
}
"#;

/// Mappings that runs fill get their memory at once: nobody can tell.
#[test]
fn mappings_that_are_filled_are_as_in_a_launch() {
    let folder = Folder::new();
    let program = folder.program(FILLS);
    let input = folder.file("input", "x\n");
    let config = || LaunchConfig {
        stdin: Some(File::open(&input).expect("there")),
        ..config(&folder, &program, "")
    };
    folder.pool();
    let there = launched(&folder, &config());
    assert_eq!(there.1, ExitStatus::Code(3));
    let kept = config();
    folder.pool();
    let mut session = Session::open(&kept, StopAt::Input).expect("it can be kept");
    for run in 0..16 {
        folder.pool();
        let here = forked(&folder, &mut session, &kept);
        assert_eq!(in_any_order(&there), in_any_order(&here), "run {run}");
    }
}

/// Says which device its input is on, in all ways to ask.
const ON_WHAT: &str = r#"
#include <sys/sysmacros.h>
int main(int argc, char **argv) {
    struct stat one, other;
    struct statx third;
    if (fstat(0, &one) || fstatat(0, "", &other, AT_EMPTY_PATH)) return 9;
    if (statx(0, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &third)) return 9;
    printf("%u:%u %u:%u %u:%u\n", major(one.st_dev), minor(one.st_dev), major(other.st_dev),
           minor(other.st_dev), third.stx_dev_major, third.stx_dev_minor);
    return 0;
}
"#;

/// The kernel gives each file system without a device the number that happens to be free. Programs
/// compare such numbers, and searches for inputs look at what they compare.
#[test]
fn an_input_that_is_mounted_nowhere_is_on_the_same_device_everywhere() {
    use std::os::fd::FromRawFd;
    let folder = Folder::new();
    let program = folder.program(ON_WHAT);
    folder.pool();
    // SAFETY: a name; the descriptor is new, and nobody else's.
    let input = unsafe { File::from_raw_fd(libc::memfd_create(c"input".as_ptr(), 0)) };
    let config = || LaunchConfig {
        stdin: Some(input.try_clone().expect("a descriptor")),
        ..config(&folder, &program, "")
    };
    let there = launched(&folder, &config());
    // Above all that the kernel gives; which, follows from the kind of file.
    assert_eq!(there.3, "0:114293 0:114293 0:114293\n");
    let kept = config();
    let mut session = Session::open(&kept, StopAt::Input).expect("it can be kept");
    assert_eq!(forked(&folder, &mut session, &kept).3, there.3);
}

#[test]
fn what_a_fork_would_not_inherit_is_refused() {
    let folder = Folder::new();
    let program = folder.program(LISTENS);
    folder.pool();
    let letters = folder.file("letters", "abcdef");
    for (what, why) in [
        ("p", "system call 2"),
        ("t", "system call 38"),
        ("s", "system call 9"),
        ("f", "system call 5"),
        ("l", "system call 72"),
    ] {
        let config = LaunchConfig {
            args: [
                folder.join("pool").into(),
                what.into(),
                letters.clone().into(),
            ]
            .to_vec(),
            ..config(&folder, &program, "")
        };
        match Session::open(&config, StopAt::Input) {
            Err(LaunchError::NotKept(text)) => assert!(text.contains(why), "{what}: {text}"),
            Err(e) => panic!("{what}: {e}"),
            Ok(_) => panic!("{what} is kept"),
        }
    }
}

/// The processes that execute a program.
fn running(program: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").expect("readable").flatten();
    all.map(|entry| entry.path())
        .filter(|path| std::fs::read_link(path.join("exe")).is_ok_and(|exe| exe == program))
        .collect()
}

#[test]
fn nothing_is_left_behind_and_an_ended_session_says_so() {
    let folder = Folder::new();
    let program = folder.program(MANY);
    folder.pool();
    let config = config(&folder, &program, "tf");
    let mut session = Session::open(&config, world(&folder)).expect("it can be kept");
    session.run(&config, &mut Keep::default()).expect("a run");
    let kept = running(&program);
    assert!(kept.len() <= 2, "the kept one and the next run: {kept:?}");
    for process in kept {
        let pid = process.file_name().and_then(|n| n.to_str()?.parse().ok());
        // SAFETY: children of ours that are waited for below.
        unsafe { libc::kill(pid.expect("a number"), libc::SIGKILL) };
    }
    let run = session.run(&config, &mut Keep::default());
    assert!(matches!(run, Err(LaunchError::NotKept(_))), "{run:?}");
    drop(session);
    assert_eq!(running(&program), [] as [PathBuf; 0]);
    let session = Session::open(&config, world(&folder)).expect("it can be kept");
    drop(session);
    assert_eq!(running(&program), [] as [PathBuf; 0]);
}

#[test]
fn programs_that_never_come_to_the_place_are_not_kept() {
    let folder = Folder::new();
    let program = folder.program("int main(void) { return 0; }");
    folder.pool();
    let config = config(&folder, &program, "");
    let kept = Session::open(&config, StopAt::Input);
    assert!(matches!(kept, Err(LaunchError::NotKept(_))));
    let not_deterministic = LaunchConfig {
        deterministic: false,
        ..config
    };
    let kept = Session::open(&not_deterministic, world(&folder));
    assert!(matches!(kept, Err(LaunchError::NotKept(_))));
    let missing = LaunchConfig {
        program: folder.join("nothing").into(),
        ..not_deterministic
    };
    let missing = LaunchConfig {
        deterministic: true,
        ..missing
    };
    let kept = Session::open(&missing, world(&folder));
    assert!(matches!(kept, Err(LaunchError::NotFound(_))));
}

#[test]
fn sessions_and_launches_on_several_threads_do_not_mix() {
    let folders: Vec<Folder> = (0..4).map(|_| Folder::new()).collect();
    let program = folders[0].program(MANY);
    std::thread::scope(|scope| {
        for (n, folder) in folders.iter().enumerate() {
            let program = &program;
            scope.spawn(move || {
                let what = ["tf", "e", "kfm", "w"][n];
                folder.pool();
                let first = launched(folder, &config(folder, program, what));
                let config = config(folder, program, what);
                let mut session = Session::open(&config, world(folder)).expect("it can be kept");
                for _ in 0..6 {
                    folder.pool();
                    let run = forked(folder, &mut session, &config);
                    assert_same(what, &first, &run);
                    // The kept process is no child of this launch.
                    folder.pool();
                    File::options()
                        .write(true)
                        .open(folder.join("out"))
                        .and_then(|mut out| {
                            out.set_len(0)?;
                            out.flush()
                        })
                        .expect("writable");
                    let again = launched(folder, &self::config(folder, program, what));
                    assert_same(what, &first, &again);
                }
            });
        }
    });
    assert_eq!(running(&program), [] as [PathBuf; 0]);
}
