//! Deaths by signals: which, where in the program, and when there is nothing to tell.

mod support;

use brownout_host::{ExitStatus, LaunchConfig, record};
use std::fs::File;
use std::path::{Path, PathBuf};
use support::{Folder, Keep};

const DIES: &str = r#"
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>

#define FUNCTION __attribute__((noinline, noipa)) static void
static volatile int zero;
static char *volatile nowhere = (char *)0x40;
static void (*volatile no_function)(void);
static sigjmp_buf back;

FUNCTION innermost(void) { *nowhere = 1; zero++; }
FUNCTION middle(void) { innermost(); zero++; }
FUNCTION aborts(void) { abort(); }
FUNCTION asserts(void) { assert(zero == 1); }
FUNCTION divides(void) { zero = 77 / zero; }
FUNCTION traps(void) { __asm__ volatile("ud2"); zero++; }
FUNCTION breaks(void) { __asm__ volatile("int3"); zero++; }
FUNCTION raises(int sig) { raise(sig); zero++; }
FUNCTION calls_nothing(void) { no_function(); zero++; }
FUNCTION overflows(int n) { volatile char big[4096]; big[0] = n; overflows(n + 1); zero++; }
FUNCTION beyond_the_end(void) {
    char path[] = "/tmp/XXXXXX";
    int fd = need(mkstemp(path));
    unlink(path);
    volatile char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    zero = at[8];
    zero++;
}
FUNCTION writes_to_pool(const char *path) {
    int fd = need(open(path, O_RDONLY));
    volatile char *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    at[8] = at[9];
    zero++;
}
FUNCTION unblocks(const sigset_t *set) { sigprocmask(SIG_UNBLOCK, set, 0); zero++; }
static void go_back(int sig) { siglongjmp(back, 1); }
static void give_up(int sig) { signal(sig, SIG_DFL); raise(sig); }
static void once_more(int sig) { signal(sig, SIG_DFL); }
static void *thread(void *unused) { middle(); return 0; }

int main(int argc, char **argv) {
    const char *how = argv[1];
#define WHEN(name) if (!strcmp(how, name))
    WHEN("null") middle();
    WHEN("abort") aborts();
    WHEN("assert") asserts();
    WHEN("divide") divides();
    WHEN("trap") traps();
    WHEN("break") breaks();
    WHEN("kill") kill(getpid(), SIGKILL);
    WHEN("term") raises(SIGTERM);
    WHEN("segv") raises(SIGSEGV);
    WHEN("bus") beyond_the_end();
    WHEN("pool") writes_to_pool(argv[2]);
    WHEN("call") calls_nothing();
    WHEN("overflow") overflows(0);
    WHEN("overflow in vain") { signal(SIGSEGV, go_back); overflows(0); }
    WHEN("thread") { pthread_t t; pthread_create(&t, 0, thread, 0); pthread_join(t, 0); }
    WHEN("raise in handler") { signal(SIGSEGV, give_up); middle(); }
    WHEN("fault again") { signal(SIGSEGV, once_more); middle(); }
    WHEN("child") {
        if (fork() == 0) aborts();
        wait(0);
    }
    sigset_t set;
    sigemptyset(&set);
    WHEN("unblock") {
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
        raise(SIGUSR1);
        unblocks(&set);
    }
    WHEN("unblock segv") {
        sigaddset(&set, SIGSEGV);
        sigprocmask(SIG_BLOCK, &set, 0);
        raise(SIGSEGV);
        unblocks(&set);
    }
    WHEN("handled") {
        signal(SIGSEGV, go_back);
        signal(SIGABRT, go_back);
        if (!sigsetjmp(back, 1)) middle();
        if (!sigsetjmp(back, 1)) aborts();
    }
    WHEN("harmless") {
        raise(SIGCHLD);
        raise(SIGWINCH);
        kill(getpid(), 0);
        signal(SIGTERM, SIG_IGN);
        raise(SIGTERM);
        signal(SIGUSR1, go_back);
        if (!sigsetjmp(back, 1)) raise(SIGUSR1);
    }
    WHEN("taken") {
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, 0);
        raise(SIGUSR1);
        int sig;
        sigwait(&set, &sig);
        unblocks(&set);
    }
    return 0;
}
"#;

struct Death {
    folder: Folder,
    program: PathBuf,
}

impl Death {
    fn new() -> Death {
        let folder = Folder::new();
        folder.pool();
        let program = folder.program(DIES);
        Death { folder, program }
    }

    fn config(&self, how: &str) -> LaunchConfig {
        let pool = self.folder.join("pool");
        LaunchConfig {
            boundaries: true,
            stderr: Some(File::create(self.folder.join("err")).expect("writable")),
            ..self.folder.launch(&self.program, [Path::new(how), &pool])
        }
    }

    fn run(&self, config: &LaunchConfig) -> (Keep, ExitStatus) {
        let mut keep = Keep::default();
        let outcome = record(config, &mut keep).expect("it can be launched");
        (keep, outcome.status)
    }

    /// The deaths of a run: signal and address as in the event, and the functions down to `main`.
    fn seen(&self, keep: &Keep) -> Vec<(String, String)> {
        let signals = keep.events.iter().filter(|seen| seen.name == "signal");
        signals
            .map(|seen| {
                let stack = keep.stack(seen, &self.program);
                let outside = stack.iter().position(|name| name == "_start");
                let stack = &stack[..outside.unwrap_or(stack.len())];
                (seen.text.clone(), stack.join(" < "))
            })
            .collect()
    }
}

#[test]
fn a_deadly_signal_is_recorded_where_it_hits_the_program() {
    let death = Death::new();
    // How, signal, address if it is known beforehand, stack.
    let cases = [
        ("null", 11, Some(0x40u64), "innermost < middle < main"),
        ("abort", 6, Some(0), "aborts < main"),
        ("assert", 6, Some(0), "asserts < main"),
        ("divide", 8, None, "divides < main"),
        ("trap", 4, None, "traps < main"),
        ("break", 5, Some(0), "breaks < main"),
        ("kill", 9, Some(0), "main"),
        ("term", 15, Some(0), "raises < main"),
        ("segv", 11, Some(0), "raises < main"),
        ("bus", 7, None, "beyond_the_end < main"),
        (
            "pool",
            11,
            Some(brownout_abi::PM_BASE + 8),
            "writes_to_pool < main",
        ),
        ("call", 11, Some(0), "calls_nothing < main"),
        ("overflow", 11, None, "overflows"),
        ("overflow in vain", 11, None, "overflows"),
        ("thread", 11, Some(0x40), "innermost < middle < thread"),
        ("raise in handler", 11, Some(0), "innermost < middle < main"),
        ("fault again", 11, Some(0x40), "innermost < middle < main"),
        ("unblock", 10, Some(0), "unblocks < main"),
        ("unblock segv", 11, Some(0), "unblocks < main"),
    ];
    for (how, signal, addr, stack) in cases {
        for deterministic in [false, true] {
            let config = LaunchConfig {
                deterministic,
                ..death.config(how)
            };
            let (keep, status) = death.run(&config);
            assert_eq!(status, ExitStatus::Signal(signal), "{how}");
            let seen = death.seen(&keep);
            assert_eq!(seen.len(), 1, "{how}: {seen:?}");
            let (text, on_stack) = &seen[0];
            let start = format!("Signal {{ signal: {signal}, addr: ");
            assert!(text.starts_with(&start), "{how}: {text}");
            if let Some(addr) = addr {
                assert!(text.ends_with(&format!(": {addr:#x} }}")), "{how}: {text}");
            }
            // Of recursion without end there is no more than the innermost part.
            let expected = if stack == "overflows" {
                on_stack.starts_with(stack)
            } else {
                on_stack == stack
            };
            assert!(expected, "{how}: {on_stack}");
            let behind = keep.events.rsplit(|seen| seen.name == "signal").next();
            for seen in behind.expect("there is a signal") {
                assert!(
                    ["process_exit", "end"].contains(&seen.name),
                    "{how}: {seen:?}"
                );
            }
        }
    }
}

#[test]
fn the_faulting_instruction_is_told_exactly() {
    let death = Death::new();
    for how in ["divide", "trap"] {
        let (keep, _) = death.run(&death.config(how));
        let signal = keep.events.iter().find(|seen| seen.name == "signal");
        let signal = signal.expect("it dies");
        // These report the address of the instruction.
        let addr = format!("addr: {:#x} }}", signal.pc);
        assert!(signal.text.ends_with(&addr), "{how}: {signal:?}");
    }
}

#[test]
fn a_child_dies_alone() {
    let death = Death::new();
    let (keep, status) = death.run(&death.config("child"));
    assert_eq!(status, ExitStatus::Code(0));
    assert_eq!(
        death.seen(&keep),
        [(
            "Signal { signal: 6, addr: 0x0 }".to_owned(),
            "aborts < main".to_owned()
        )]
    );
}

#[test]
fn signals_that_kill_nobody_are_not_recorded() {
    let death = Death::new();
    for how in ["handled", "harmless", "taken"] {
        let (keep, status) = death.run(&death.config(how));
        assert_eq!(status, ExitStatus::Code(0), "{how}");
        assert_eq!(death.seen(&keep), [], "{how}");
    }
}

#[test]
fn nobody_asked_for_deaths() {
    let death = Death::new();
    for how in ["null", "abort"] {
        let config = LaunchConfig {
            boundaries: false,
            ..death.config(how)
        };
        assert_eq!(death.seen(&death.run(&config).0), [], "{how}");
    }
}
