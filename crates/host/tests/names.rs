//! What a run does to names, and to files that it does not map, on real programs.

mod support;

use brownout_host::{LaunchConfig, record};
use brownout_trace::EventSink;
use brownout_trace::event::{Event, EventKind, FileId, PmReason, split_names};
use std::collections::BTreeMap;
use std::path::Path;
use support::Folder;

/// Keeps what concerns files, in words.
#[derive(Default)]
struct Story {
    folder: String,
    lines: Vec<String>,
    /// What files held when they were first seen.
    before: BTreeMap<u32, Vec<u8>>,
}

impl Story {
    fn short(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        path.strip_prefix(&self.folder).unwrap_or(&path).to_owned()
    }
}

impl EventSink for Story {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        let line = match &event.kind {
            EventKind::File {
                file,
                path,
                size,
                reason,
                created,
            } => {
                let path = self.short(path);
                let how = match (reason, created) {
                    (PmReason::Changed, true) => "made",
                    (PmReason::Changed, false) => "found",
                    (_, true) => "made pm",
                    (_, false) => "found pm",
                };
                format!("{how} {file} {path} {size}")
            }
            EventKind::Name {
                change,
                file,
                replaced,
                names,
            } => {
                let (path, to) = split_names(names);
                let mut line = format!("{} {}", change.name(), self.short(path));
                if !to.is_empty() {
                    line += &format!(" {}", self.short(to));
                }
                for (word, file) in [("file", file), ("over", replaced)] {
                    if *file != FileId(0) {
                        line += &format!(" {word} {file}");
                    }
                }
                line
            }
            EventKind::Opened { path } => format!("opened {}", self.short(path)),
            EventKind::Truncate { file, size } => format!("truncate {file} {size}"),
            EventKind::FileWrite {
                file,
                offset,
                bytes,
                ..
            } => format!(
                "write {file} {offset} {}",
                String::from_utf8_lossy(bytes).trim_end()
            ),
            EventKind::Fsync { file, .. } => format!("fsync {file}"),
            EventKind::Map { file, .. } => format!("map {file}"),
            EventKind::Store(access) => format!("store {}", access.bytes[0]),
            EventKind::Output { fd, .. } => format!("output {fd}"),
            _ => return Ok(()),
        };
        self.lines.push(line);
        Ok(())
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> std::io::Result<()> {
        self.before.insert(file.0, std::fs::read(path)?);
        Ok(())
    }
}

fn story(folder: &Folder, body: &str) -> Story {
    let program = folder.program(body);
    let config = LaunchConfig {
        names: true,
        boundaries: true,
        deterministic: true,
        ..folder.launch(program, [folder.path.clone()])
    };
    let mut story = Story {
        folder: format!("{}/", folder.path.display()),
        ..Story::default()
    };
    let outcome = record(&config, &mut story).expect("it runs");
    assert_eq!(
        outcome.status,
        brownout_host::ExitStatus::Code(0),
        "{:?}",
        story.lines
    );
    story
}

#[test]
fn a_file_is_followed_from_its_creation_on() {
    let folder = Folder::new();
    let story = story(
        &folder,
        r#"
int main(int argc, char **argv) {
    chdir(argv[1]);
    int fd = need(open("pool.new", O_RDWR | O_CREAT | O_EXCL, 0600));
    need(ftruncate(fd, 8192));
    need(write(fd, "head", 4));
    need(fsync(fd));
    need(rename("pool.new", "pool"));
    int dir = need(open(".", O_RDONLY | O_DIRECTORY));
    need(fsync(dir));
    volatile char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    at[100] = 7;
    write(1, "done\n", 5);
    return 0;
}"#,
    );
    assert_eq!(
        story.lines,
        [
            "made 1 pool.new 0",
            "create pool.new file 1",
            "truncate 1 8192",
            "write 1 0 head",
            "fsync 1",
            "rename pool.new pool file 1",
            &format!("sync_folder {}", folder.path.display()),
            // By its new name it is persistent memory.
            "found pm 1 pool 8192",
            "map 1",
            "store 7",
            "output 1",
        ]
        .map(|line| line.replace("found pm 1", "made pm 1"))
    );
}

/// Not what they are, but that they were changed: of regular files, by name or descriptor, if the
/// call succeeds.
#[test]
fn changes_of_attributes_are_told() {
    let folder = Folder::new();
    folder.file("other", "x");
    let story = story(
        &folder,
        r#"
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
int main(int argc, char **argv) {
    chdir(argv[1]);
    int fd = need(open("new", O_RDWR | O_CREAT | O_EXCL, 0600));
    need(fchmod(fd, 0640));
    need(chmod("new", 0600));
    need(fchmodat(AT_FDCWD, "new", 0640, 0));
    need(chown("new", -1, getgid()));
    need(fchown(fd, getuid(), -1));
    need(fchownat(fd, "", getuid(), -1, AT_EMPTY_PATH));
    // Some file systems have none.
    setxattr("new", "user.a", "b", 1, 0);
    need(chmod("other", 0600));
    need(chmod(".", 0700));
    chmod("nothing", 0600);
    syscall(SYS_fchmod, -1, 0600);
    return 0;
}"#,
    );
    let mut lines = story.lines;
    lines.retain(|line| line != "attributes new extended attributes file 1");
    assert_eq!(
        lines,
        [
            "made 1 new 0",
            "create new file 1",
            "attributes new permissions file 1",
            "attributes new permissions file 1",
            "attributes new permissions file 1",
            "attributes new owner file 1",
            "attributes new owner file 1",
            "attributes new owner file 1",
            "attributes other permissions",
        ]
    );
}

/// Which regular files are opened is told to whoever asks.
#[test]
fn opened_files_are_told() {
    let folder = Folder::new();
    folder.file("config", "x");
    std::os::unix::fs::symlink("config", folder.join("link")).expect("a link");
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    chdir(argv[1]);
    need(open("config", O_RDONLY));
    need(open("./link", O_RDONLY));
    need(creat("made", 0600));
    open("nothing", O_RDONLY);
    need(open(".", O_RDONLY));
    need(open("/dev/null", O_RDONLY));
    return 0;
}"#,
    );
    let config = LaunchConfig {
        boundaries: true,
        opens: true,
        ..folder.launch(program, [folder.path.clone()])
    };
    let mut story = Story {
        folder: format!("{}/", folder.path.display()),
        ..Story::default()
    };
    record(&config, &mut story).expect("it runs");
    // Before, the loader opens libraries.
    let lines = story.lines.iter().filter(|line| !line.contains('/'));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        ["opened config", "opened config", "opened made"]
    );
    let is_library = |line: &String| line.starts_with("opened ") && line.contains("libc.so");
    assert!(story.lines.iter().any(is_library));
}

#[test]
fn what_is_about_to_be_lost_is_looked_at_first() {
    let folder = Folder::new();
    for (name, text) in [("a", "aaa"), ("b", "bbbb"), ("c", "ccccc"), ("d", "d")] {
        folder.file(name, text);
    }
    std::fs::create_dir(folder.join("full")).expect("a folder");
    folder.file("full/e", "eeeeee");
    let story = story(
        &folder,
        r#"
int main(int argc, char **argv) {
    chdir(argv[1]);
    int fd = need(open("a", O_WRONLY | O_TRUNC));
    need(write(fd, "new", 3));
    need(unlink("b"));
    need(rename("c", "d"));
    need(link("a", "full/a"));
    int full = need(open("full", O_RDONLY));
    need(unlinkat(full, "e", 0));
    need(unlinkat(full, "a", 0));
    need(rmdir("full/"));
    need(mkdir("x", 0700));
    need(symlink("x/y", "s"));
    need(rename("x", "z"));
    need(truncate("d", 2));
    fd = need(open(".", O_TMPFILE | O_RDWR, 0600));
    char path[100];
    sprintf(path, "/proc/self/fd/%d", fd);
    need(linkat(AT_FDCWD, path, AT_FDCWD, "t", AT_SYMLINK_FOLLOW));
    need(renameat2(AT_FDCWD, "t", AT_FDCWD, "d", RENAME_EXCHANGE));
    need(open("a", O_RDONLY));
    if (rename("nothing", "a") == 0 || open("a", O_CREAT | O_EXCL, 0600) >= 0) return 1;
    sync();
    return 0;
}"#,
    );
    let lines: Vec<&str> = story
        .lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.contains("(deleted)"))
        .collect();
    assert_eq!(
        lines,
        [
            "found 1 a 3",
            "truncate 1 0",
            "write 1 0 new",
            "found 2 b 4",
            "unlink b file 2",
            "found 3 c 5",
            "found 4 d 1",
            "rename c d file 3 over 4",
            "link full/a file 1",
            "found 5 full/e 6",
            "unlink full/e file 5",
            "unlink full/a file 1",
            "rmdir full",
            "mkdir x",
            "symlink s x/y",
            "rename_folder x z",
            "truncate 3 2",
            "link t file 6",
            "exchange t d file 6 over 3",
            "fsync 1",
            "fsync 2",
            "fsync 3",
            "fsync 4",
            "fsync 5",
            "fsync 6",
            "sync_all ",
        ]
    );
    let before: Vec<&[u8]> = story.before.values().map(Vec::as_slice).collect();
    assert_eq!(
        before,
        [&b"aaa"[..], b"bbbb", b"ccccc", b"d", b"eeeeee", b""]
    );
}

/// Inode numbers are used again as soon as a file system can; here they stay what they are.
#[test]
fn a_new_file_is_never_taken_for_one_that_is_gone() {
    let folder = Folder::new();
    let story = story(
        &folder,
        r#"
int main(int argc, char **argv) {
    chdir(argv[1]);
    for (int i = 0; i < 5; i++) {
        int fd = need(open("t", O_WRONLY | O_CREAT, 0600));
        need(write(fd, "x", 1));
        close(fd);
        need(unlink("t"));
    }
    return 0;
}"#,
    );
    let made = story.lines.iter().filter(|line| line.starts_with("made"));
    assert_eq!(made.count(), 5, "{:?}", story.lines);
}

/// A descriptor that another program has opened.
#[test]
fn who_inherits_a_file_changes_it_too() {
    let folder = Folder::new();
    let story = story(
        &folder,
        r#"
int main(int argc, char **argv) {
    if (argc == 3) { need(write(5, "child", 5)); return 0; }
    chdir(argv[1]);
    int fd = need(open("log", O_WRONLY | O_CREAT | O_APPEND, 0600));
    need(dup2(fd, 5));
    if (fork() == 0) execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
    wait(NULL);
    need(write(fd, "parent", 6));
    return 0;
}"#,
    );
    assert_eq!(
        story.lines,
        [
            "made 1 log 0",
            "create log file 1",
            "write 1 0 child",
            "write 1 5 parent"
        ]
    );
}

/// Nobody has asked: nothing of all that is recorded.
#[test]
fn names_are_recorded_on_request_only() {
    let folder = Folder::new();
    let program = folder.program(
        r#"
int main(int argc, char **argv) {
    chdir(argv[1]);
    int fd = need(open("log", O_WRONLY | O_CREAT, 0600));
    need(write(fd, "x", 1));
    need(rename("log", "other"));
    return 0;
}"#,
    );
    let config = folder.launch(program, [folder.path.clone()]);
    let mut story = Story::default();
    record(&config, &mut story).expect("it runs");
    assert!(story.lines.is_empty(), "{:?}", story.lines);
}

/// Interpreters ask every script whether it is a terminal, and write past descriptors that only
/// read.
#[test]
fn what_is_only_looked_at_is_not_found() {
    let folder = Folder::new();
    std::fs::write(folder.path.join("script"), "text").unwrap();
    let story = story(
        &folder,
        r#"
int main(int argc, char **argv) {
    need(chdir(argv[1]));
    int fd = need(open("script", O_RDONLY));
    char text[4];
    if (isatty(fd) || read(fd, text, 4) != 4 || write(fd, text, 4) != -1 || ftruncate(fd, 0) != -1)
        return 1;
    return 0;
}
"#,
    );
    assert_eq!(story.lines, [""; 0]);
}
