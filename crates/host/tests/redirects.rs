//! Redirected files: the program names one path and gets another file.

mod support;

use brownout_host::{LaunchConfig, LaunchError, record};
use std::path::{Path, PathBuf};
use support::{Folder, Keep, run};

/// A folder `real` that is also reached as `link`, a file in it (or not), and the image elsewhere.
struct Setting {
    folder: Folder,
    asked: PathBuf,
    image: PathBuf,
}

fn setting(exists: bool) -> Setting {
    let folder = Folder::new();
    let real = folder.join("real");
    std::fs::create_dir_all(real.join("sub")).expect("writable");
    std::os::unix::fs::symlink("real", folder.join("link")).expect("writable");
    std::os::unix::fs::symlink("../real/data", real.join("alias")).expect("writable");
    std::fs::create_dir(folder.join("images")).expect("writable");
    let image = folder.file("images/image.7", "the image");
    let asked = real.join("data");
    if exists {
        std::fs::write(&asked, "original").expect("writable");
    }
    Setting {
        folder,
        asked,
        image,
    }
}

impl Setting {
    fn config(&self, program: impl AsRef<Path>, args: &[&str]) -> LaunchConfig {
        LaunchConfig {
            redirects: vec![(self.asked.clone(), self.image.clone())],
            ..self.folder.launch(program.as_ref(), args.iter().copied())
        }
    }

    fn shell(&self, words: &str) -> String {
        let words = format!("cd {} && {words}", self.folder.path.display());
        run(&self.config("sh", &["-c", &words]));
        self.folder.printed()
    }

    fn content(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

#[test]
fn by_every_way_to_name_it() {
    for exists in [false, true] {
        let s = setting(exists);
        for words in [
            "cat $PWD/real/data",
            "cat real/data",
            "cat real/sub/../data",
            "cat ./real//data",
            "cat link/data",
            "cat $PWD/link/data",
            "cd real && cat data",
            "cd link && cat data",
            "cd real/sub && cat ../data",
            "cat < real/data",
            "cat real/alias",
            "cd real && cat alias",
            "sh -c 'exec cat real/data'",
            "python3 -c 'print(open(\"link/data\").read(), end=\"\")'",
        ] {
            assert_eq!(s.shell(words), "the image", "{words}, {exists}");
        }
        assert_eq!(s.shell("wc -c < link/data"), "9\n");
        assert_eq!(s.shell("stat -c %s real/data"), "9\n");
        assert_eq!(s.shell("test -e real/data && echo there"), "there\n");
    }
}

#[test]
fn other_files_are_left_alone() {
    let s = setting(true);
    s.folder.file("data", "of the same name");
    assert_eq!(s.shell("cat data"), "of the same name");
    assert_eq!(s.shell("cd real/sub && cat ../../data"), "of the same name");
    assert_eq!(s.shell("readlink real/alias"), "../real/data\n");
    assert_eq!(s.shell("cat real/none 2>/dev/null || echo none"), "none\n");
}

#[test]
fn descriptors_of_folders_and_children_in_the_same_memory() {
    let s = setting(true);
    let program = s.folder.program(
        r#"
#include <spawn.h>
extern char **environ;
static void show(int fd) {
    char text[100];
    long n = need(read(fd, text, sizeof text));
    write(1, text, n);
    write(1, "\n", 1);
}
int main(int argc, char **argv) {
    need(chdir(argv[1]));
    int folder = need(open("link", O_RDONLY | O_DIRECTORY));
    show(need(openat(folder, "data", O_RDONLY)));
    show(need(openat(folder, "sub/../data", O_RDONLY)));
    struct stat s;
    need(fstatat(folder, "data", &s, 0));
    printf("%ld\n", (long)s.st_size);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        int fd = open("real/data", O_RDONLY);
        dup2(fd, 0);
        execlp("cat", "cat", (char *)0);
        _exit(9);
    }
    waitpid(child, 0, 0);
    char *args[] = {"cat", "real/data", 0};
    need(-posix_spawnp(&child, "cat", 0, 0, args, environ));
    waitpid(child, 0, 0);
    return 0;
}
"#,
    );
    let at = s.folder.path.to_string_lossy().into_owned();
    run(&s.config(program, &[&at]));
    assert_eq!(
        s.folder.printed(),
        "the image\nthe image\n9\nthe imagethe image"
    );
}

#[test]
fn changes_go_to_the_image() {
    let s = setting(true);
    s.shell("echo new > link/data; chmod 600 real/data; truncate -s 3 real/data");
    assert_eq!(s.content(&s.image).as_deref(), Some("new"));
    s.shell("mv real/data moved; test ! -e real/data");
    assert_eq!(s.content(&s.image), None);
    assert_eq!(s.content(&s.folder.join("moved")).as_deref(), Some("new"));
    s.shell("mv moved link/data; ln real/data twin");
    assert_eq!(s.content(&s.image).as_deref(), Some("new"));
    s.shell("rm real/data");
    assert_eq!(s.content(&s.image), None);
    s.shell("echo made > real/data");
    assert_eq!(s.content(&s.image).as_deref(), Some("made\n"));
    assert_eq!(
        s.content(&s.asked).as_deref(),
        Some("original"),
        "the file itself was never touched"
    );
}

#[test]
fn several_at_once_and_without_recording() {
    let s = setting(true);
    let other = s.folder.file("images/image.8", "another");
    let mut config = s.config("cat", &[]);
    let second = s.folder.join("real/second");
    config.redirects.push((second.clone(), other));
    config.args = vec![second.into(), s.asked.clone().into()];
    let outcome = brownout_host::run(&config).expect("it can be launched");
    assert_eq!(outcome.status, brownout_host::ExitStatus::Code(0));
    assert_eq!(s.folder.printed(), "anotherthe image");
}

/// What of the program's look-ups is in the stream: function, path, call and answer.
fn lookups(keep: &Keep, program: &Path) -> Vec<String> {
    let lookups = keep.events.iter().filter(|seen| seen.name == "lookup");
    lookups
        .map(|seen| format!("{}: {}", keep.stack(seen, program)[0], seen.text))
        .collect()
}

#[test]
fn where_the_program_looks_is_recorded_with_boundaries() {
    let looks = r#"
__attribute__((noinline)) static int is_there(const char *path) {
    return access(path, R_OK) == 0;
}
__attribute__((noinline)) static int recover(const char *path) {
    int fd = open(path, O_RDONLY);
    return fd;
}
__attribute__((noinline)) static int size(const char *path) {
    struct stat s;
    int failed = stat(path, &s);
    return failed;
}
int main(int argc, char **argv) {
    need(chdir(argv[1]));
    is_there("link/data");
    // The lowest descriptor that is free.
    close(0);
    recover("real/sub/../data");
    size("real/alias");
    recover("real/other");
    rename("real/data", "real/data");
    return 0;
}
"#;
    let s = setting(true);
    let program = s.folder.program(looks);
    let at = s.folder.path.to_string_lossy().into_owned();
    let mut config = s.config(&program, &[&at]);
    config.boundaries = true;
    let seen = |function: &str, syscall: i32, result: i32, path: &str| {
        let path = path.as_bytes();
        format!("{function}: Lookup {{ syscall: {syscall}, result: {result}, path: {path:?} }}")
    };
    const ACCESS: i32 = 21;
    const OPENAT: i32 = 257;
    const NEWFSTATAT: i32 = 262;
    const RENAME: i32 = 82;
    let present = [
        seen("is_there", ACCESS, 0, "link/data"),
        seen("recover", OPENAT, 0, "real/sub/../data"),
        seen("size", NEWFSTATAT, 0, "real/alias"),
        // It names two.
        seen("main", RENAME, 0, "real/data"),
        seen("main", RENAME, 0, "real/data"),
    ];
    assert_eq!(lookups(&run(&config).0, &program), present);
    std::fs::remove_file(&s.image).expect("there");
    let missing = [
        seen("is_there", ACCESS, -2, "link/data"),
        seen("recover", OPENAT, -2, "real/sub/../data"),
        seen("size", NEWFSTATAT, -2, "real/alias"),
        seen("main", RENAME, -2, "real/data"),
        seen("main", RENAME, -2, "real/data"),
    ];
    assert_eq!(lookups(&run(&config).0, &program), missing);
    config.boundaries = false;
    assert_eq!(run(&config).0.of("lookup"), [""; 0]);
    config.boundaries = true;
    config.redirects.clear();
    assert_eq!(run(&config).0.of("lookup"), [""; 0]);
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let s = setting(true);
    let mut config = s.config("true", &[]);
    config.redirects = vec![("relative".into(), s.image.clone())];
    let refused = record(&config, &mut Keep::default());
    assert!(matches!(refused, Err(LaunchError::Redirect(_))));
    let long = format!("/{}/data", "x".repeat(2000));
    config.redirects = vec![(long.into(), s.image.clone()); 20];
    let refused = record(&config, &mut Keep::default());
    assert!(matches!(refused, Err(LaunchError::Tables(_))));
    config.redirects.clear();
    config.known_files = vec![(s.folder.join("none"), brownout_trace::event::FileId(1))];
    let refused = record(&config, &mut Keep::default());
    assert!(matches!(refused, Err(LaunchError::KnownFile(..))));
}
