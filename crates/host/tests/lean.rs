//! Lean recordings leave out what no rule asks: they must tell of the same bytes, in the same
//! order, as full ones.

mod support;

use brownout_host::{LaunchConfig, record};
use brownout_trace::EventSink;
use brownout_trace::event::{Access, Event, EventKind};
use std::collections::BTreeMap;
use std::io;
use support::Folder;

/// Copy loops of every kind, with what may come in between: other instructions, fences, system
/// calls, signals, threads, processes.
const COPIES: &str = r#"
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#define PAGE 4096
static char *pool;
static int has_clwb;
static void flush(char *at, long lines) {
    for (long i = 0; i < lines; i++)
        if (has_clwb)
            asm volatile("clwb %0" : "+m"(at[64 * i]));
        else
            asm volatile("clflush %0" : "+m"(at[64 * i]));
    asm volatile("sfence" ::: "memory");
}
static void words(char *to, long count, uint64_t value) {
    for (long i = 0; i < count; i++)
        *(volatile uint64_t *)(to + 8 * i) = value;
}
static void stream(char *to, long count) {
    for (long i = 0; i < count; i++)
        _mm_stream_si128((__m128i *)(to + 16 * i), _mm_set1_epi8(7));
}
__attribute__((target("avx"))) static void wide(char *to, long count) {
    __m256i value = _mm256_set1_epi8(9);
    for (long i = 0; i < count; i += 2) {
        _mm256_storeu_si256((__m256i *)(to + 32 * i), value);
        _mm256_storeu_si256((__m256i *)(to + 32 * i + 32), value);
    }
}
static void fields(char *to) {
    *(volatile uint64_t *)to = 1;
    *(volatile uint64_t *)(to + 8) = 2;
    *(volatile uint32_t *)(to + 16) = 3;
    *(volatile uint64_t *)(to + 24) = 4;
}
static void handler(int signal) { words(pool + 9 * PAGE, 3, signal); }
static void *thread(void *argument) {
    char *mine = argument;
    for (int i = 0; i < 200; i++) {
        words(mine + 64 * (i % 8), 8, i);
        flush(mine, 8);
    }
    return 0;
}
int main(int argc, char **argv) {
    int fd = need(open(argv[1], O_RDWR));
    pool = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    has_clwb = b >> 24 & 1;
    signal(SIGUSR1, handler);
    words(pool, 100, 1);
    flush(pool, 13);
    words(pool + 800, 5, 2);        // goes on, by another call
    stream(pool + PAGE, 64);
    stream(pool + PAGE + 1024, 3);
    if (__builtin_cpu_supports("avx")) {
        wide(pool + 2 * PAGE, 20);
        wide(pool + 2 * PAGE + 640, 2);
    }
    fields(pool + 3 * PAGE);
    memset(pool + 4 * PAGE, 5, 3000);
    memcpy(pool + 5 * PAGE + 3, pool, 2001);
    flush(pool + 4 * PAGE, 2);
    flush(pool + 4 * PAGE + 128, 3);
    words(pool + 6 * PAGE, 2, 1);
    raise(SIGUSR1);
    words(pool + 6 * PAGE + 16, 2, 1);
    words(pool + 9 * PAGE + 24, 1, 1);
    words(pool + 7 * PAGE, 4, 1);
    int child = fork();
    if (child == 0) {
        words(pool + 7 * PAGE + 32, 4, 1);
        raise(SIGKILL);
    }
    waitpid(child, 0, 0);
    words(pool + 7 * PAGE + 64, 4, 1);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, thread, pool + (10 + 2 * i) * PAGE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    words(pool + 15 * PAGE, 7, 1);
    if (argc > 2)
        raise(SIGKILL);
    return 0;
}
"#;

/// What a thread did, neighbours of one kind joined: kind, address, length.
type Story = Vec<(&'static str, u64, u64)>;

#[derive(Default)]
struct Stories {
    threads: BTreeMap<u32, Story>,
    events: usize,
}

impl EventSink for Stories {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let line = |addr: u64| Access {
            addr: brownout_trace::event::TargetAddr(addr & !63),
            size: 64,
            bytes: &[],
        };
        let (kind, access) = match event.kind {
            EventKind::Store(access) => ("store", access),
            EventKind::NtStore(access) => ("nt_store", access),
            EventKind::Flush { addr, .. } => ("flush", line(addr.0)),
            EventKind::Fence(_) => ("fence", line(0)),
            _ => return Ok(()),
        };
        self.events += 1;
        let (addr, len) = (access.addr.0, u64::from(access.size));
        let story = self.threads.entry(event.thread.0).or_default();
        match story.last_mut() {
            Some((last, from, to)) if *last == kind && *from + *to == addr && kind != "fence" => {
                *to += len;
            }
            _ => story.push((kind, addr, len)),
        }
        Ok(())
    }
}

fn stories(folder: &Folder, lean: bool, killed: bool) -> Stories {
    let program = folder.program(COPIES);
    let pool = folder.file("pool", [0; 16 * 4096]);
    let mut arguments = vec![pool.into_os_string()];
    if killed {
        arguments.push("killed".into());
    }
    let config = LaunchConfig {
        lean,
        values: !lean,
        ..folder.launch(program, arguments)
    };
    let mut stories = Stories::default();
    let outcome = record(&config, &mut stories).expect("it runs");
    let expected = match killed {
        true => brownout_host::ExitStatus::Signal(9),
        false => brownout_host::ExitStatus::Code(0),
    };
    assert_eq!(outcome.status, expected);
    stories
}

#[test]
fn a_lean_recording_tells_of_the_same_bytes_in_the_same_order() {
    for killed in [false, true] {
        let folder = Folder::new();
        let full = stories(&folder, false, killed);
        let lean = stories(&folder, true, killed);
        // The main thread, the child and two threads have stored.
        let stored = full.threads.values().filter(|story| story.len() > 2);
        assert!(stored.count() >= 3);
        // Which of two threads begins first is not the same each time; they do the same at
        // different places.
        let sorted = |stories: &Stories| {
            let mut all: Vec<Story> = stories.threads.values().cloned().collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&full), sorted(&lean));
        let (few, many) = (lean.events, full.events);
        assert!(
            few * 4 < many * 3,
            "{few} of {many} events: nothing was joined"
        );
    }
}
