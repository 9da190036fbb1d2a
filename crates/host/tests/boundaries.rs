//! What a run takes from the world and gives to it, on real programs.

mod support;

use brownout_host::LaunchConfig;
use brownout_trace::event::FileId;
use std::fs::File;
use support::{Folder, run};

const TALKS: &str = r#"
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    char line[100];
    pm[0] = 1;
    read(0, line, sizeof line);
    pm[0] = 2;
    write(1, "ab\n", 3);
    pm[0] = 3;
    struct iovec parts[2] = {{"c", 1}, {"defg", 4}};
    writev(1, parts, 2);
    int log = need(open(argv[2], O_WRONLY | O_CREAT, 0600));
    pwrite(log, "12345678", 8, 100);
    pm[0] = 4;
    int pool = need(open(argv[1], O_WRONLY));
    pwrite(pool, "x", 1, 512);
    int other = need(dup(0));
    read(other, line, sizeof line);
    write(-1, "lost", 4);
    return 0;
}
"#;

fn talking(folder: &Folder) -> LaunchConfig {
    let program = folder.program(TALKS);
    let (pool, log) = (folder.pool(), folder.join("log"));
    folder.launch(program, [pool, log])
}

#[test]
fn inputs_come_before_the_read_and_outputs_after_the_write() {
    let folder = Folder::new();
    let input = folder.file("input", "one\ntwo\n");
    let config = LaunchConfig {
        boundaries: true,
        stdin: Some(File::open(input).expect("there")),
        ..talking(&folder)
    };
    let (keep, _) = run(&config);
    assert_eq!(
        keep.story(),
        "store 1, input, store 2, output 3, store 3, output 5, output 8, store 4, input"
    );
    assert!(
        keep.of("output")[0].contains("fd: 1"),
        "{:?}",
        keep.of("output")
    );
    assert_eq!(keep.of("file_write").len(), 1, "the pool is not the world");
    let input = keep.events.iter().find(|seen| seen.name == "input");
    assert_ne!(input.map_or(0, |seen| seen.pc), 0, "it has a place");
}

#[test]
fn nobody_asked_for_boundaries() {
    let folder = Folder::new();
    let (keep, _) = run(&talking(&folder));
    assert_eq!(keep.story(), "store 1, store 2, store 3, store 4");
}

#[test]
fn a_pipe_as_input_is_announced_too() {
    let folder = Folder::new();
    let (ours, theirs) = std::io::pipe().expect("a pipe");
    drop(theirs);
    let config = LaunchConfig {
        boundaries: true,
        stdin: Some(File::from(std::os::fd::OwnedFd::from(ours))),
        ..talking(&folder)
    };
    assert_eq!(run(&config).0.of("input").len(), 2);
}

// ---------------------------------------------------------------- line by line

const INPUT: &str = "first\n\nthird line\nno end";

fn by_line(folder: &Folder, program: &str, args: &[&str], input: &str) -> (support::Keep, String) {
    let config = LaunchConfig {
        boundaries: true,
        line_input: true,
        stdin: Some(File::open(folder.file("input", input)).expect("there")),
        ..folder.launch(program, args)
    };
    let (keep, _) = run(&config);
    (keep, folder.printed())
}

#[test]
fn read_and_readv_end_behind_a_line_feed() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(void) {
    char a[3], b[4000];
    struct iovec parts[2] = {{a, sizeof a}, {b, sizeof b}};
    long n;
    n = read(0, b, sizeof b);         printf("%ld\n", n);
    n = read(dup(0), b, sizeof b);    printf("%ld\n", n);
    n = readv(0, parts, 2);           printf("%ld %.3s %.7s\n", n, a, b);
    n = read(0, b, 2);                printf("%ld\n", n);
    n = readv(0, parts, 1);           printf("%ld\n", n);
    n = read(0, b, sizeof b);         printf("%ld\n", n);
    n = read(0, b, sizeof b);         printf("%ld\n", n);
    return 0;
}
"#,
    );
    let (keep, printed) = by_line(&folder, program.to_str().expect("text"), &[], INPUT);
    assert_eq!(printed, "6\n1\n11 thi rd line\n2\n3\n1\n0\n");
    assert_eq!(keep.of("input").len(), 7);
}

#[test]
fn getline_asks_for_each_line_when_it_wants_it() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(void) {
    char *line = 0;
    size_t room = 0;
    setbuf(stdout, 0);
    while (getline(&line, &room, stdin) > 0)
        write(1, line, strlen(line));
    return 0;
}
"#,
    );
    let (keep, printed) = by_line(&folder, program.to_str().expect("text"), &[], INPUT);
    assert_eq!(printed, INPUT);
    assert!(
        keep.story()
            .starts_with("input, output 6, input, output 1, input, output 11, input"),
        "{}",
        keep.story()
    );
}

#[test]
fn python_asks_for_each_line_when_it_wants_it() {
    let folder = Folder::new();
    let script = "import os, sys\nfor line in sys.stdin: os.write(1, line.encode())";
    let (keep, printed) = by_line(&folder, "python3", &["-c", script], "a\nbcd\n");
    assert_eq!(printed, "a\nbcd\n");
    let story = keep.story();
    assert!(
        story.ends_with("input, output 2, input, output 4, input"),
        "{story}"
    );
}

#[test]
fn a_very_long_line_comes_in_pieces() {
    let folder = Folder::new();
    let input = format!("{}\nshort\n", "x".repeat(100_000));
    let (_, printed) = by_line(&folder, "sh", &["-c", "head -n 1 | wc -c; cat"], &input);
    // `head` takes no more than it needs, so the rest is there for `cat`.
    assert_eq!(printed, "100001\nshort\n");
}

// ---------------------------------------------------------------- creation

#[test]
fn files_that_the_run_has_made_are_told_from_others() {
    let maps = r#"
int main(int argc, char **argv) {
    if (argc > 2) {
        int fd = need(open(argv[1], O_RDWR | O_CREAT, 0600));
        need(ftruncate(fd, 4096));
    }
    map(argv[1])[0] = 1;
    return 0;
}
"#;
    for (before, words, created) in [
        (false, "$0 $1 create", true),
        (true, "$0 $1 create", false),
        (true, "$0 $1", false),
        // Made by the shell, mapped by a program that it starts.
        (false, "head -c 4096 /dev/zero > $1; $0 $1", true),
        (true, "rm $1; head -c 4096 /dev/zero > $1; $0 $1", true),
        (true, "head -c 4096 /dev/zero > $1; $0 $1", false),
        // By another name first.
        (
            false,
            "mktemp -p . XXX > name; head -c 4096 /dev/zero > $(cat name); mv $(cat name) $1; $0 $1",
            true,
        ),
    ] {
        let folder = Folder::new();
        let program = folder.program(maps);
        let pool = folder.join("pool");
        if before {
            folder.pool();
        }
        let words = format!("cd {} && {words}", folder.path.display());
        let config = LaunchConfig {
            boundaries: true,
            ..folder.launch(
                "sh",
                [
                    "-c".as_ref(),
                    words.as_ref(),
                    program.as_os_str(),
                    pool.as_os_str(),
                ],
            )
        };
        let (keep, _) = run(&config);
        let files = keep.of("file");
        assert_eq!(files.len(), 1, "{words}");
        let expected = format!("created: {created}");
        assert!(files[0].contains(&expected), "{words}: {}", files[0]);
    }
}

// ---------------------------------------------------------------- files and memory that are read

#[test]
fn reads_through_descriptors_are_recorded_with_loads() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    char a[100], b[100];
    struct iovec parts[2] = {{a, 10}, {b, 20}};
    int fd = need(open(argv[1], O_RDONLY));
    read(fd, a, 7);
    read(fd, a, 9);
    pread(fd, a, 11, 500);
    readv(fd, parts, 2);
    preadv(fd, parts, 1, 1000);
    preadv2(fd, parts, 1, -1, 0);
    off_t at = 2000;
    sendfile(1, fd, &at, 30);
    sendfile(1, fd, 0, 40);
    loff_t from = 3000;
    int log = need(open(argv[2], O_RDWR | O_CREAT, 0600));
    copy_file_range(fd, &from, log, 0, 50, 0);
    pread(fd, a, 60, 4090);
    pread(fd, a, 60, 5000);
    read(log, a, 10);
    mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    return 0;
}
"#,
    );
    let pool = folder.pool();
    let config = LaunchConfig {
        loads: true,
        known_files: vec![(pool.clone(), FileId(7))],
        ..folder.launch(&program, [pool.clone(), folder.join("log")])
    };
    let (keep, _) = run(&config);
    let reads: Vec<(u64, u64)> = [
        (0, 7),
        (7, 9),
        (500, 11),
        (16, 30),
        (1000, 10),
        (46, 10),
        (2000, 30),
        (56, 40),
        (3000, 50),
        (4090, 6),
        (0, 4096),
    ]
    .into();
    let expected: Vec<String> = reads
        .iter()
        .map(|(at, size)| format!("FileRead {{ file: FileId(7), offset: {at}, size: {size} }}"))
        .collect();
    assert_eq!(keep.of("file_read"), expected);
    let without = LaunchConfig {
        known_files: vec![(pool.clone(), FileId(7))],
        ..folder.launch(&program, [pool, folder.join("log")])
    };
    assert!(run(&without).0.of("file_read").is_empty());
}

#[test]
fn known_files_are_tracked_from_the_beginning_and_not_defined() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    int fd = need(open(argv[1], O_RDWR));
    pwrite(fd, "abc", 3, 10);
    need(truncate(argv[1], 8192));
    need(ftruncate(fd, 4096));
    map(argv[1])[0] = 5;
    fsync(fd);
    map(argv[2])[0] = 6;
    return 0;
}
"#,
    );
    let pool = folder.pool();
    let other = folder.file("second", [0; 4096]);
    let mut config = LaunchConfig {
        known_files: vec![(pool.clone(), FileId(7))],
        ..folder.launch("sh", ["-c", "\"$@\"", "sh"])
    };
    // Known files need no pattern; the other has one, and its number is not taken.
    config.pm_globs = vec![other.to_string_lossy().into_owned()];
    config
        .args
        .extend([program.into(), pool.into(), other.into()]);
    let (keep, _) = run(&config);
    let numbers = |name| {
        let events = keep.of(name);
        let known = events.iter().filter(|text| text.contains("FileId(7)"));
        (events.len(), known.count())
    };
    assert_eq!(numbers("file_write"), (1, 1));
    assert_eq!(numbers("truncate"), (2, 2));
    assert_eq!(numbers("fsync"), (1, 1));
    assert_eq!(numbers("map"), (2, 1));
    assert_eq!(keep.story(), "store 5, store 6");
    let files = keep.of("file");
    assert_eq!(files.len(), 1);
    assert!(files[0].contains("FileId(8)"), "{}", files[0]);
    assert_eq!(keep.new_files.len(), 1);
}

#[test]
fn what_the_kernel_reads_of_tracked_memory_is_a_load() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    char *pm = (char *)map(argv[1]);
    int null = need(open("/dev/null", O_WRONLY));
    strcpy(pm + 256, "/dev/null");
    struct iovec parts[2] = {{pm + 512, 33}, {pm + 1024, 44}};
    write(null, pm, 77);
    writev(null, parts, 2);
    access(pm + 256, F_OK);
    return 0;
}
"#,
    );
    let pool = folder.pool();
    let config = LaunchConfig {
        loads: true,
        ..folder.launch(&program, [pool])
    };
    let (keep, _) = run(&config);
    let base = brownout_abi::PM_BASE;
    let loads: Vec<_> = keep.events.iter().filter(|e| e.name == "load").collect();
    // A path is read until it ends, so byte by byte, its end included.
    let path = (256..266).map(|at| (at, 1));
    for (at, size) in [(0, 77), (512, 33), (1024, 44)].into_iter().chain(path) {
        let expected = format!("addr: {:#x}, size: {size},", base + at);
        let load = loads.iter().find(|load| load.text.contains(&expected));
        let load = load.unwrap_or_else(|| panic!("no load with {expected} in {loads:?}"));
        assert_ne!(load.pc, 0);
    }
    assert_eq!(loads.len(), 13, "{loads:?}");
}
