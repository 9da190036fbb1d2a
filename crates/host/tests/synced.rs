//! What makes the content of a tracked file durable is an event, and what does not is none.

mod support;

use support::{Folder, Seen, run};

/// Writes through different descriptors, each with its own offset, and synchronises in different
/// ways.
const WRITES: &str = r#"
#include <sys/uio.h>
enum { DSYNC = 2, SYNC = 4, APPEND = 16 };
static struct iovec word = {"12345678", 8};
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    int plain = need(open(argv[1], O_RDWR));
    int dsync = need(open(argv[1], O_WRONLY | O_DSYNC));
    int sync_ = need(open(argv[1], O_RDWR | O_SYNC));
    pm[0] = 1;
    need(pwrite(plain, "12345678", 8, 64));
    pm[0] = 2;
    need(pwrite(dsync, "12345678", 8, 128));
    pm[0] = 3;
    need(lseek(sync_, 192, SEEK_SET));
    need(write(sync_, "1234", 4));
    need(writev(sync_, &word, 1));
    pm[0] = 4;
    need(pwritev2(plain, &word, 1, 256, DSYNC));
    need(pwritev2(plain, &word, 1, 320, SYNC));
    need(pwritev2(plain, &word, 1, 384, 0));
    pm[0] = 5;
    // F_SETFL cannot turn it on.
    need(fcntl(plain, F_SETFL, O_DSYNC));
    need(pwrite(plain, "12345678", 8, 448));
    pm[0] = 6;
    need(sync_file_range(plain, 0, 4096, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    pm[0] = 7;
    need(fdatasync(plain));
    need(fsync(dsync));
    pm[0] = 8;
    need(syncfs(plain));
    pm[0] = 9;
    sync();
    pm[0] = 10;
    // A process that does not know the file makes it durable, too.
    if (fork() == 0) { execlp("sync", "sync", (char *)0); _exit(9); }
    int status;
    need(wait(&status));
    return status;
}
"#;

#[test]
fn events_say_what_is_durable() {
    let folder = Folder::new();
    let program = folder.program(WRITES);
    let pool = folder.pool();
    let (keep, _) = run(&folder.launch(&program, [&pool]));
    let told = |seen: &Seen| match (seen.name, seen.value) {
        ("store", Some(value)) => Some(format!("{value}:")),
        ("file_sync", _) => Some(
            seen.text
                .replace("FileSync { file: FileId(1), ", "")
                .replace(" }", ""),
        ),
        ("fsync" | "fdatasync" | "msync", _) => Some(seen.name.to_owned()),
        _ => None,
    };
    let story: Vec<String> = keep.events.iter().filter_map(told).collect();
    let expected = "1: 2: offset: 128, size: 8 3: offset: 192, size: 4 offset: 196, size: 8 4: offset: 256, size: 8 \
                    offset: 320, size: 8 5: 6: 7: fdatasync fsync 8: fsync 9: fsync 10: fsync";
    assert_eq!(story.join(" "), expected);
}
