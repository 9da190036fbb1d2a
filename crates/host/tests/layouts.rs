//! Layouts of deterministic programs: the same number, the same addresses; another number, others.

mod support;

use brownout_host::{ExitStatus, LaunchConfig, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::Folder;

/// Prints where its parts are; then, of the addresses that are its further arguments, those at
/// which something is mapped.
const PARTS: &str = r#"
#include <pthread.h>
#include <sys/shm.h>
static int variable;
static void *thread(void *at) { int local; *(void **)at = &local; return 0; }
int main(int argc, char **argv) {
    int local;
    void *on_thread, *mapped = mmap(0, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *grown = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(grown, "kept");
    // There is no room to grow in place: `mapped` lies behind it.
    grown = mremap(grown, 8192, 1 << 20, MREMAP_MAYMOVE);
    if (strcmp(grown, "kept") != 0) return 8;
    int id = need(shmget(IPC_PRIVATE, 5000, IPC_CREAT | 0600));
    void *segment = shmat(id, 0, 0);
    need(shmctl(id, IPC_RMID, 0));
    strcpy(segment, "usable");
    pthread_t other;
    need(-pthread_create(&other, 0, thread, &on_thread));
    pthread_join(other, 0);
    printf("%p %p %p %p %p ", (void *)malloc(100), malloc(1 << 20), (void *)&local, (void *)argv[0], (void *)environ);
    printf("%p %p %p %p %p ", mapped, grown, segment, on_thread, (void *)map(argv[1]));
    // Last, because a program with a fixed address has these there always.
    printf("%p %p %p\n", (void *)printf, (void *)&variable, (void *)main);
    char cmdline[4096];
    int fd = need(open("/proc/self/cmdline", O_RDONLY));
    if (read(fd, cmdline, sizeof cmdline) <= 0 || strcmp(cmdline, argv[0]) != 0) return 7;
    for (int i = 2; i < argc; i++) {
        uintptr_t at = strtoull(argv[i], 0, 16) & ~(uintptr_t)4095;
        if (msync((void *)at, 1, MS_ASYNC) == 0) printf("mapped: %s\n", argv[i]);
    }
    return 0;
}
"#;

fn build(folder: &Folder, flags: &[&str]) -> PathBuf {
    let plain = folder.program(PARTS);
    let program = folder.join("built");
    let status = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(&program)
        .arg(plain.with_extension("c"))
        .args(flags)
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}

/// Where its parts are, and which of the other addresses are in use.
fn parts(folder: &Folder, program: &Path, layout: u32, others: &[String]) -> (Vec<String>, String) {
    let mut args = vec![folder.pool().to_string_lossy().into_owned()];
    args.extend(others.iter().cloned());
    let config = LaunchConfig {
        deterministic: true,
        layout,
        ..folder.launch(program, args)
    };
    let mut keep = support::Keep::default();
    let outcome = brownout_host::record(&config, &mut keep).expect("it runs");
    assert_eq!(outcome.status, ExitStatus::Code(0));
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    let printed = folder.printed();
    let (first, rest) = printed.split_once('\n').expect("a line");
    let parts = first.split(' ').map(str::to_owned).collect();
    (parts, rest.to_owned())
}

fn differ(flags: &[&str], fixed: usize) {
    let folder = Folder::new();
    let program = build(&folder, flags);
    let (zero, _) = parts(&folder, &program, 0, &[]);
    assert_eq!(parts(&folder, &program, 0, &[]).0, zero);
    let movable = zero.len() - fixed;
    let mut seen = zero.clone();
    for layout in 1..4 {
        let (here, mapped) = parts(&folder, &program, layout, &zero[..movable]);
        // Arguments lie on the stack, so another number of them is another stack. That is not what
        // is compared.
        let again = parts(&folder, &program, layout, &zero[..movable]);
        assert_eq!(again, (here.clone(), mapped.clone()));
        for at in &here[..movable] {
            assert!(!seen.contains(at), "{at} is used by two layouts");
        }
        assert_eq!(here[movable..], zero[movable..]);
        assert_eq!(mapped, "", "in use in layout {layout}");
        seen.extend(here);
    }
}

#[test]
fn position_independent_programs_have_nothing_in_common() {
    differ(&["-fPIE", "-pie"], 0);
}

#[test]
fn static_ones_neither() {
    differ(&["-static-pie"], 0);
}

#[test]
fn segments_with_a_large_alignment_keep_it() {
    differ(&["-fPIE", "-pie", "-Wl,-z,max-page-size=0x200000"], 0);
}

#[test]
fn a_program_with_a_fixed_address_keeps_that_only() {
    differ(&["-fno-pie", "-no-pie"], 3);
    differ(&["-static"], 3);
}

/// Random mappings, each filled with its number, which must be there until it is unmapped.
const CHURN: &str = r#"
enum { COUNT = 200, ROUNDS = 20000 };
static struct { unsigned char *at; size_t len; } all[COUNT];
static void fill(int i) { memset(all[i].at, i + 1, all[i].len); }
static void look(int i, size_t len) {
    for (size_t k = 0; k < len; k += 512)
        if (all[i].at[k] != i + 1) { printf("mapping %d is not what it was\n", i); exit(1); }
}
int main(void) {
    unsigned long state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        int i = (state >> 33) % COUNT;
        size_t len = 4096 * (1 + (state >> 45) % 24);
        if (!all[i].at) {
            void *hint = (state >> 60) == 3 ? all[(i + 1) % COUNT].at : 0;
            all[i].at = mmap(hint, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (all[i].at == MAP_FAILED) return 2;
            all[i].len = len;
            fill(i);
        } else if ((state >> 62) == 0) {
            unsigned char *at = mremap(all[i].at, all[i].len, len, MREMAP_MAYMOVE);
            if (at == MAP_FAILED) return 3;
            all[i].at = at;
            look(i, len < all[i].len ? len : all[i].len);
            all[i].len = len;
            fill(i);
        } else {
            look(i, all[i].len);
            need(munmap(all[i].at, all[i].len));
            all[i].at = 0;
        }
    }
    unsigned long sum = 0;
    for (int i = 0; i < COUNT; i++) sum = sum * 31 + (unsigned long)all[i].at;
    printf("%lx\n", sum);
    return 0;
}
"#;

#[test]
fn many_mappings_come_and_go() {
    let folder = Folder::new();
    let program = folder.program(CHURN);
    let mut printed = Vec::new();
    for layout in [0, 0, 5] {
        let config = LaunchConfig {
            deterministic: true,
            layout,
            ..folder.launch(&program, [""; 0])
        };
        let outcome = run(&config).expect("it runs");
        assert_eq!(outcome.status, ExitStatus::Code(0), "{}", folder.printed());
        printed.push(folder.printed());
    }
    assert_eq!(printed[0], printed[1]);
    assert_ne!(printed[0], printed[2]);
}
