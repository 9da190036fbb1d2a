//! What programs do under `brownout explore` besides using persistent memory: files, locks, ports,
//! processes left behind. None of it reaches the user's folder, none of it reaches another
//! recovery, and none of it is taken for a bug.
//!
//! Each trial runs with the private views that this machine allows (`auto`), by a user namespace
//! (`user`), and without (`redirect`). A machine that allows no views runs them all the last way,
//! and says so in a note of the report.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_findings::Finding;
use brownout_random::Random;
use brownout_tests::check::compile;
use brownout_tests::explore::{self, Explored, reproduction};
use brownout_tests::{Invocation, Scratch, layout, tool};
use libtest_mimic::Trial;

use crate::trial;

const TIMEOUT: Duration = Duration::from_secs(120);
const MODES: [&str; 3] = ["auto", "user", "redirect"];

/// A counter in `pool`, each number in a line of its own, and much else besides.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBERS = 6 };
struct pool { struct { _Alignas(64) long number; } slots[NUMBERS]; _Alignas(64) long count; };

static void persist(void *address)
{
    _mm_clflush(address);
    _mm_sfence();
}

static void must(int fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(3);
    }
}

static struct pool *map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    must(fd >= 0 && ftruncate(fd, sizeof(struct pool)) == 0, "pool");
    struct pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(pool != MAP_FAILED, "mmap");
    close(fd);
    return pool;
}

/* Files of the user's are made, renamed, removed, truncated and written over. */
static void litter(void)
{
    must(mkdir("folder", 0755) == 0, "mkdir");
    int fd = open("folder/new", O_RDWR | O_CREAT | O_EXCL, 0600);
    must(fd >= 0 && write(fd, "new", 3) == 3, "new");
    close(fd);
    must(rename("config", "config.old") == 0, "rename");
    must(unlink("precious") == 0, "unlink");
    must(truncate("log", 2) == 0, "truncate");
    fd = open("other", O_WRONLY | O_TRUNC);
    must(fd >= 0 && write(fd, "changed", 7) == 7, "other");
    close(fd);
    must(rename("folder/new", "linked") == 0, "rename over a link");
    must(symlink("nowhere", "dangling") == 0, "symlink");
    must(chmod("log", 0400) == 0, "chmod");
}

/* More files than a recovery of old could be told of. */
static void many(void)
{
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%d", i);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        must(fd >= 0, name);
        close(fd);
    }
}

/* A semaphore that must not be there yet, and that nobody gives back. */
static void semaphore(void)
{
    sem_t *semaphore = sem_open("/brownout-worlds", O_CREAT | O_EXCL, 0600, 1);
    must(semaphore != SEM_FAILED && sem_wait(semaphore) == 0, "semaphore");
}

/* Shared memory that must not be there yet. */
static void shared(void)
{
    int fd = shm_open("/brownout-worlds", O_CREAT | O_EXCL | O_RDWR, 0600);
    must(fd >= 0 && ftruncate(fd, 4096) == 0 && write(fd, "x", 1) == 1, "shared memory");
}

/* Who has the lock file or the port is alone. It talks to itself, so that the port stays blocked for a while. */
static void serve(int port)
{
    int lock = open("lock", O_RDWR | O_CREAT | O_EXCL, 0600);
    must(lock >= 0, "lock file");
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int server = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(server, (struct sockaddr *)&at, sizeof at) == 0 && listen(server, 1) == 0, "port");
    int client = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(client, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    int peer = accept(server, NULL, NULL);
    must(peer >= 0, "accept");
    usleep(20000);
    shutdown(peer, SHUT_RDWR);
    close(peer);
    close(client);
    close(server);
    must(unlink("lock") == 0, "unlock");
}

int main(int argc, char **argv)
{
    const char *mode = argv[1], *path = argv[2];
    if (strcmp(mode, "write") == 0 || strcmp(mode, "wrong") == 0) {
        if (argc > 3 && strcmp(argv[3], "many") == 0)
            many();
        else if (argc > 3 && strcmp(argv[3], "posix-sem") == 0)
            semaphore();
        else if (argc > 3 && strcmp(argv[3], "posix-shm") == 0)
            shared();
        else if (argc > 3)
            litter();
        struct pool *pool = map(path);
        for (long i = 0; i < NUMBERS; i++) {
            pool->slots[i].number = i + 1;
            if (strcmp(mode, "wrong") != 0)
                persist(&pool->slots[i]);
            pool->count = i + 1;
            persist(&pool->count);
        }
        return 0;
    }
    if (strcmp(mode, "move") == 0) {
        /* The pool goes away and comes back, under other names and by a link; what a crash left of that is mended first. */
        char other[4096];
        struct stat s;
        snprintf(other, sizeof other, "%s.moved", path);
        if (stat(other, &s) == 0)
            must((stat(path, &s) == 0 ? unlink(other) : rename(other, path)) == 0, "mend the names");
        if (stat(path, &s) == 0) {
            must(rename(path, other) == 0, "rename the pool");
            must(link(other, path) == 0, "link the pool");
            must(unlink(other) == 0, "unlink the pool");
        }
    }
    if (strcmp(mode, "litter") == 0) {
        int fd = open("mark", O_RDWR | O_CREAT | O_EXCL, 0600);
        must(fd >= 0, "something of another recovery is here");
        must(access("precious", F_OK) != 0 || unlink("precious") == 0, "unlink");
    }
    if (strcmp(mode, "objects") == 0) {
        /* None of them outlives a power failure, so who starts makes them anew. */
        if (strcmp(argv[3], "posix-sem") == 0)
            semaphore();
        if (strcmp(argv[3], "posix-shm") == 0)
            shared();
        must(strcmp(argv[3], "shm") != 0 || shmget(0x7777, 4096, IPC_CREAT | IPC_EXCL | 0600) >= 0, "shmget");
        must(strcmp(argv[3], "sem") != 0 || semget(0x7777, 1, IPC_CREAT | IPC_EXCL | 0600) >= 0, "semget");
        must(strcmp(argv[3], "msg") != 0 || msgget(0x7777, IPC_CREAT | IPC_EXCL | 0600) >= 0, "msgget");
        must(strcmp(argv[3], "mq") != 0 || mq_open("/brownout", O_CREAT | O_EXCL | O_RDWR, 0600, NULL) >= 0, "mq_open");
    }
    if (strcmp(mode, "serve") == 0)
        serve(atoi(argv[3]));
    struct pool *pool = map(path);
    int wrong = 0;
    for (long i = 0; i < pool->count; i++)
        wrong |= pool->slots[i].number != i + 1;
    if (strcmp(mode, "daemon") == 0 && fork() == 0) {
        /* It has our output and our pool, and waits for ever. */
        setsid();
        if (fork() == 0)
            for (;;)
                pause();
        _exit(0);
    }
    if (strcmp(mode, "shy") == 0) {
        /* Wrong only where somebody looks. */
        char line[8192];
        int watched = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            watched |= strstr(line, "memfd:brownout-control") || strstr(line, "/.brownout/");
        fclose(maps);
        wrong &= watched;
    }
    return wrong;
}
"#;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for mode in MODES {
        let name = |what: &str| format!("worlds::{what}::{mode}");
        trials.push(trial(name("servers_and_lock_files"), move || servers(mode)));
        trials.push(trial(name("moved_pools"), move || moved(mode)));
        trials.push(trial(name("unconfirmed"), move || unconfirmed(mode)));
        trials.push(trial(name("daemons"), move || daemons(mode)));
    }
    for mode in ["auto", "user"] {
        let name = |what: &str| format!("worlds::{what}::{mode}");
        trials.push(trial(name("files_are_untouched"), move || untouched(mode)));
        trials.push(trial(name("litter_is_private"), move || litter(mode)));
        trials.push(trial(name("replays_touch_nothing"), move || replays(mode)));
        trials.push(trial(name("objects_of_the_system"), move || objects(mode)));
    }
    trials.push(trial("worlds::killed", killed));
    trials.push(trial("worlds::left_out_is_said", left_out));
    trials.push(trial("worlds::many_files", many_files));
    trials
}

/// A folder with the program and files of the user's.
struct Home {
    scratch: Scratch,
    program: PathBuf,
}

impl Home {
    fn new() -> Result<Home> {
        tool::expect_built()?;
        let scratch = Scratch::new()?;
        let folder = scratch.path().join("home");
        fs::create_dir(&folder)?;
        let source = scratch.path().join("program.c");
        fs::write(&source, PROGRAM)?;
        let program = compile(&source, scratch.path().join("program"), &["-g", "-O1"])?;
        for (file, text) in [
            ("config", "a"),
            ("precious", "cannot be had again"),
            ("log", "line after line"),
            ("other", "o"),
        ] {
            fs::write(folder.join(file), text)?;
        }
        fs::create_dir(folder.join("sub"))?;
        fs::write(folder.join("sub/file"), "deep")?;
        symlink("config", folder.join("linked"))?;
        Ok(Home { scratch, program })
    }

    fn folder(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    fn native(&self, mode: &str, words: &[&str]) -> Invocation {
        let mut argv = vec![self.program.to_string_lossy().into_owned()];
        argv.extend(words.iter().map(|word| (*word).to_owned()));
        Invocation::new(argv, &self.folder())
            .timeout(TIMEOUT)
            .env("BROWNOUT_ISOLATION", mode)
    }

    fn recover(&self, words: &str) -> String {
        format!("{} {words}", self.program.display())
    }

    /// Explores; crash images go elsewhere, and the report, too.
    fn explore(
        &self,
        mode: &str,
        words: &[&str],
        recover: &str,
        more: &[&str],
    ) -> Result<Explored> {
        let images = self.scratch.path().join("images").display().to_string();
        let recover = self.recover(recover);
        let mut options = vec!["--pm", "*pool", "--folder", &images, "--recover", &recover];
        if mode == "redirect" {
            // Without a view, what happens to names is not explored; see [`left_out`].
            options.extend(["--accept", "unsupported"]);
        }
        options.extend(more);
        let explored = explore::run(&self.native(mode, words), &options)?;
        fs::remove_file(self.folder().join("report.json"))?;
        Ok(explored)
    }

    /// Every name, what it is, and what it holds.
    fn listing(&self) -> Result<BTreeMap<PathBuf, String>> {
        let mut found = BTreeMap::new();
        list(&self.folder(), &mut found)?;
        Ok(found)
    }
}

fn list(folder: &Path, found: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        let what = if meta.is_symlink() {
            format!("link to {:?}", fs::read_link(&path)?)
        } else if meta.is_dir() {
            list(&path, found)?;
            format!("folder {:o}", meta.mode())
        } else {
            format!("{:o} {} {:?}", meta.mode(), meta.mtime(), fs::read(&path)?)
        };
        found.insert(path, what);
    }
    Ok(())
}

fn expect_same(before: &BTreeMap<PathBuf, String>, home: &Home) -> Result<()> {
    let after = home.listing()?;
    for (path, what) in before {
        ensure!(
            after.get(path) == Some(what),
            "{} was {what} and is {:?}",
            path.display(),
            after.get(path)
        );
    }
    let new: Vec<_> = after
        .keys()
        .filter(|path| !before.contains_key(*path))
        .collect();
    ensure!(new.is_empty(), "left behind: {new:?}");
    Ok(())
}

/// Recoveries that leave objects of the system do not find those of each other, and a bug does not
/// hide behind that.
fn objects(mode: &str) -> Result<()> {
    let home = Home::new()?;
    for kind in ["shm", "sem", "msg", "mq"] {
        let recover = format!("objects pool {kind}");
        let options = ["--depth", "1"];
        let explored = home.explore(mode, &["write", "pool"], &recover, &options)?;
        explored.expect_clean()?;
        let explored = home.explore(mode, &["wrong", "pool"], &recover, &options)?;
        explored.expect_rule("recovery-error")?;
        let findings = &explored.report.findings;
        ensure!(
            findings.iter().all(|f| f.message.contains("exit code 1")),
            "{kind}: {findings:?}"
        );
    }
    // Those of POSIX are files in memory. The program has made one, too, and a crash leaves nothing
    // of it.
    for kind in ["posix-sem", "posix-shm"] {
        let recover = format!("objects pool {kind}");
        let explored = home.explore(mode, &["write", "pool", kind], &recover, &[])?;
        explored.expect_clean()?;
        let explored = home.explore(mode, &["wrong", "pool", kind], &recover, &[])?;
        explored.expect_rule("recovery-error")?;
    }
    Ok(())
}

/// Recoveries that bind one port and make one lock file do not meet, whatever `--jobs` is.
fn servers(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let recover = "serve pool 47113";
    let options = ["--jobs", "4", "--depth", "1"];
    let explored = home.explore(mode, &["write", "pool"], recover, &options)?;
    if mode == "redirect" {
        // A port stays blocked for a minute, for everybody. That is no error of the program's.
        return explored.expect_no_error();
    }
    explored.expect_clean()?;
    // A second crash leaves the lock file of the first recovery: nobody can open the pool any more.
    let options = ["--jobs", "4", "--depth", "2"];
    let explored = home.explore(mode, &["write", "pool"], recover, &options)?;
    explored.expect_findings()?;
    let findings = &explored.report.findings;
    let is_other = |finding: &&Finding| !finding.message.contains("lock file: File exists");
    ensure!(findings.iter().find(is_other).is_none(), "{findings:#?}");
    Ok(())
}

/// The pool can be renamed and linked.
fn moved(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let setup = home.recover("write pool");
    let explored = home.explore(mode, &["write", "pool"], "move pool", &["--setup", &setup])?;
    if mode == "redirect" {
        explored.expect_no_error()?;
        return explored.expect_note("Invalid cross-device link");
    }
    explored.expect_clean()
}

/// What recovery leaves running is ended; nobody waits for it.
fn daemons(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let more = ["--depth", "1"];
    let explored = home.explore(mode, &["wrong", "pool"], "daemon pool", &more)?;
    explored.expect_findings()?;
    explored.expect_rule("recovery-error")?;
    home.expect_nothing_runs()
}

/// A failure that does not show natively is no error.
fn unconfirmed(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let explored = home.explore(mode, &["wrong", "pool"], "shy pool", &["--depth", "1"])?;
    ensure!(!explored.report.findings.is_empty(), "nothing was found");
    for finding in &explored.report.findings {
        ensure!(!reproduction(finding)?.confirmed, "{}", finding.message);
        ensure!(
            finding.severity != brownout_findings::Severity::Correctness,
            "it counts as an error"
        );
        let reason = "natively, recovery ended with exit code 0";
        ensure!(
            finding.notes.iter().any(|note| note.contains(reason)),
            "{:?}",
            finding.notes
        );
    }
    explored.expect_status(0)?;
    // The same program, looked at by a recovery that is not shy, is wrong.
    let explored = home.explore(mode, &["wrong", "pool"], "check pool", &["--depth", "1"])?;
    explored.expect_findings()
}

/// Set-up, run, recovery and confirmation change files; the user's are as they were.
fn untouched(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let before = home.listing()?;
    let setup = "echo x > set-up && rm sub/file && mkdir new";
    let explored = home.explore(
        mode,
        &["wrong", "pool", "litter"],
        "check pool",
        &["--setup", setup],
    )?;
    explored.expect_findings()?;
    expect_same(&before, &home)
}

/// A recovery does not see what another has done to ordinary files.
fn litter(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let before = home.listing()?;
    // What the first recovery has made is there after a second crash; that is no business of this
    // test.
    let explored = home.explore(mode, &["write", "pool"], "litter pool", &["--depth", "1"])?;
    explored.expect_clean()?;
    expect_same(&before, &home)
}

/// Nor does a replay touch anything.
fn replays(mode: &str) -> Result<()> {
    let home = Home::new()?;
    let explored = home.explore(mode, &["wrong", "pool", "litter"], "check pool", &[])?;
    explored.expect_findings()?;
    let before = home.listing()?;
    let replay = explored.report.findings[0].replay.as_ref();
    let token = &replay.context("no token")?.token;
    let argv = [
        layout::brownout().display().to_string(),
        "replay".into(),
        "--yes".into(),
        token.clone(),
    ];
    let outcome = Invocation::new(argv, &home.folder())
        .timeout(TIMEOUT)
        .env("BROWNOUT_ISOLATION", mode)
        .run()?;
    ensure!(outcome.status == 1, "{}", outcome.describe());
    expect_same(&before, &home)
}

/// Where names and ordinary files are not explored, a program that changes them gets no verdict,
/// and one that does not gets one.
fn left_out() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("pool"), [0; 448])?;
    let recover = home.recover("check pool");
    let explore = |words: &[&str]| {
        let native = home.native("redirect", words);
        explore::run(&native, &["--pm", "*pool", "--recover", &recover])
    };
    explore(&["write", "pool"])?.expect_clean()?;
    let explored = explore(&["write", "pool", "litter"])?;
    explored.expect_no_error()?;
    explored.expect_status(3)?;
    explored.expect_note("crashes between changes to them are not explored")
}

/// A run may change hundreds of files. (Which of them a crash leaves is sampled.)
fn many_files() -> Result<()> {
    let home = Home::new()?;
    let options = ["--depth", "1", "--accept", "sampled"];
    let explored = home.explore("auto", &["write", "pool", "many"], "check pool", &options)?;
    explored.expect_clean()
}

/// The folders that an exploration keeps for itself: it holds them open, to show that they are in
/// use.
pub fn own_folders(tool: u32) -> Result<Vec<PathBuf>> {
    let is_own = |link: &PathBuf| {
        let name = link.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("brownout-explore-"))
    };
    let open = fs::read_dir(format!("/proc/{tool}/fd"))?.flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(links.filter(is_own).collect())
}

/// Fails unless these are gone, a moment from now.
pub fn expect_gone(folders: &[PathBuf]) -> Result<()> {
    let begun = Instant::now();
    while let Some(left) = folders.iter().find(|folder| folder.exists()) {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "{} is left",
            left.display()
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Killed at any moment, the tool leaves no process, no folder and no change. `BROWNOUT_KILLS=50`
/// kills it so often, at random moments; some of these explorations have ended by then.
fn killed() -> Result<()> {
    let home = Home::new()?;
    let before = home.listing()?;
    let images = home.scratch.path().join("images").display().to_string();
    let recover = format!("{0}; {0}; true", home.recover("check pool"));
    let mut any = false;
    let mut delays = vec![5, 30, 80, 200, 500, 900];
    if let Ok(kills) = std::env::var("BROWNOUT_KILLS") {
        let kills = kills.parse().context("BROWNOUT_KILLS is no number")?;
        let mut random = Random::new(kills);
        delays = (0..kills).map(|_| random.below(1200)).collect();
    }
    for delay in delays {
        let native = home.native("auto", &["wrong", "pool", "litter"]);
        let options = ["--pm", "*pool", "--folder", &images, "--recover", &recover];
        let mut command = explore::command(&native, &options).command()?;
        let mut running = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        thread::sleep(Duration::from_millis(delay));
        // It may have ended.
        let folders = own_folders(running.id()).unwrap_or_default();
        any |= !folders.is_empty();
        running.kill()?;
        running.wait()?;
        expect_same(&before, &home)?;
        home.expect_nothing_runs()?;
        expect_gone(&folders)?;
    }
    ensure!(any, "it was never seen to have a folder");
    Ok(())
}

impl Home {
    /// Fails unless the program runs nowhere any more, a moment from now.
    fn expect_nothing_runs(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut left = Vec::new();
            for entry in fs::read_dir("/proc")?.flatten() {
                let path = entry.path();
                // Those in a view of their own name it alike.
                let is_ours = |exe: PathBuf| {
                    exe.file_name() == self.program.file_name()
                        && exe.starts_with(self.scratch.path())
                };
                if fs::read_link(path.join("exe")).is_ok_and(is_ours) {
                    left.push(path);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "still running: {left:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}
