//! Many runs at once. In a file of its own, because it counts what is in its process.

mod support;

use brownout_host::{ExitStatus, record};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Folder, Keep};

/// Lines of `/proc/self/maps` that are no heap of a thread or of the process: those may grow as any
/// heap does.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    maps.lines().filter(|line| line.contains('/')).count()
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("readable").count()
}

#[test]
fn many_runs_on_several_threads_leave_nothing_behind() {
    const THREADS: usize = 3;
    const RUNS: usize = 100;
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    char name[1000];
    sprintf(name, "%s.%s", argv[1], argv[2]);
    int fd = need(open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
    need(ftruncate(fd, 4096));
    uint64_t number = atoi(argv[2]);
    map(name)[0] = number;
    // An orphan that outlives its parent, and an exec.
    if (number % 10 == 0 && fork() == 0) {
        usleep(20000);
        map(name)[0] = number + 1000;
        execl("/bin/true", "true", (char *)0);
    }
    return number % 7;
}
"#,
    );
    let pool = folder.join("pool");
    let launch = |number: usize| {
        let mut config = folder.launch(
            &program,
            [pool.clone().into_os_string(), number.to_string().into()],
        );
        config.pm_globs = vec![format!("{}.*", pool.display())];
        let mut keep = Keep::default();
        let outcome = record(&config, &mut keep).expect("it can be launched");
        assert_eq!(outcome.status, ExitStatus::Code(number as i32 % 7));
        let mut values = vec![number as u64];
        if number.is_multiple_of(10) {
            values.push(number as u64 + 1000);
        }
        let seen: Vec<u64> = keep.events.iter().filter_map(|seen| seen.value).collect();
        assert_eq!(seen, values, "run {number} has its own events");
        assert_eq!(keep.events.last().map(|seen| seen.name), Some("end"));
    };
    launch(0);
    let before = (
        mappings(),
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
    );
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= THREADS * RUNS {
                        break;
                    }
                    launch(number);
                }
            });
        }
    });
    // A thread that has been waited for is in the list for a moment yet.
    for _ in 0..10_000 {
        if entries("/proc/self/task") == before.2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = (
        mappings(),
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
    );
    assert_eq!(before, after, "mappings, descriptors, threads");
    // SAFETY: only asks.
    let children = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    assert_eq!(children, -1, "no child and no zombie is left");
}
