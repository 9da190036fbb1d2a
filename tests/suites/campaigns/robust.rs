//! Programs that misbehave, full disks, damaged folders and kills: a campaign goes on, or says what
//! is wrong; and nothing is lost.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_fuzz::Kept;
use brownout_random::Random;
use brownout_tests::exec::Outcome;
use brownout_tests::fuzz::Build;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::{Scene, TIMEOUT};

pub fn trials() -> Vec<Trial> {
    let behaviours = [
        ("forks", "f"),
        ("daemonises", "d"),
        ("never_reads", ""),
        ("ignores_sigterm", "t"),
        ("eats_memory", "m"),
        ("removes_its_pool", "u"),
    ];
    let mut trials: Vec<Trial> = behaviours
        .into_iter()
        .map(|(name, command)| {
            trial(format!("robust::a_program_that_{name}"), move || {
                misbehaves(command)
            })
        })
        .collect();
    // Who may mount by a user namespace alone cannot have the private views below it that a
    // campaign needs: an ordinary user's test is the first.
    let places: &[&str] = match is_root() {
        true => &["plot_data", "journal", "images"],
        false => &["plot_data"],
    };
    for &place in places {
        let name = format!("robust::a_full_disk_below_{place}");
        trials.push(trial(&name, move || full_disk(place)));
    }
    trials.push(trial("robust::a_damaged_folder", damaged));
    trials.push(trial("robust::kills", kills));
    trials
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Each command is a way to misbehave. It knows one of them, because what a program compares its
/// input with is tried, too.
const PROGRAM: &str = r#"#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, 4096) != 0)
        return 2;
    long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
#ifdef NEVER_READS
    pm[0]++;
    __builtin_ia32_clflush(pm);
    __builtin_ia32_sfence();
    return 0;
#endif
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        pm[0]++;
        __builtin_ia32_clflush(pm);
        __builtin_ia32_sfence();
        switch (line[0] == HAS[0] ? line[0] : 0) {
        case 'f':
            if (fork() == 0) {
                pm[1]++;
                __builtin_ia32_clflush(pm);
                __builtin_ia32_sfence();
                _exit(0);
            }
            wait(0);
            break;
        case 'd':
            if (fork() == 0) {
                setsid();
                if (fork() == 0)
                    for (;;)
                        pause();
                _exit(0);
            }
            wait(0);
            break;
        case 't':
            signal(SIGTERM, SIG_IGN);
            if (line[1] == '!')
                for (;;)
                    ;
            break;
        case 'm':
            for (int n = 0; n < 4000; n++)
                memset(malloc(1 << 20), 1, 1 << 20);
            break;
        case 'u':
            unlink(argv[1]);
            break;
        }
        puts("ok");
    }
    return 0;
}
"#;

/// Processes that run a program.
fn running(program: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        if fs::read_link(path.join("exe")).is_ok_and(|exe| exe == program) {
            found.push(path);
        }
    }
    Ok(found)
}

/// It did not fail by itself.
fn is_sane(ended: &Outcome) -> Result<()> {
    let text = ended.stderr_text();
    ensure!(
        matches!(ended.status, 0..=3) && !text.contains("panicked") && !text.contains("bug in"),
        "{}",
        ended.describe()
    );
    Ok(())
}

fn misbehaves(command: &str) -> Result<()> {
    let has = format!("-DHAS=\"{command}\"");
    let flags: &[&str] = match command {
        "" => &["-DNEVER_READS", &has],
        _ => &[&has],
    };
    let seed = format!("x\n{command}\nx\n");
    let scene = Scene::with_source(PROGRAM, flags, &seed)?;
    let options = [
        "--out",
        "out",
        "--executions",
        "25",
        "--hang-after",
        "1s",
        "--memory",
        "300",
    ];
    let ended = scene.run(scene.words(&options))?;
    is_sane(&ended)?;
    ensure!(matches!(ended.status, 0 | 1), "{}", ended.describe());
    let text = ended.stdout_text() + &ended.stderr_text();
    ensure!(text.contains("25 executions were made"), "{text}");
    ensure!(text.contains("cut off") == (command == "m"), "{text}");
    ensure!(!text.contains("error["), "{text}");
    ensure!(
        !scene.path("pool").exists(),
        "the user's folder has changed"
    );
    let begun = Instant::now();
    while !running(&scene.program)?.is_empty() {
        let left = running(&scene.program)?;
        ensure!(begun.elapsed() < TIMEOUT, "left behind: {left:?}");
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn queue(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder.join("queue")).with_context(|| format!("{folder:?}"))?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

/// All that is in the journal is whole, and there once.
fn is_whole(folder: &Path) -> Result<Kept> {
    let kept = Kept::look(folder)?;
    let ids: BTreeSet<u64> = kept.cases.iter().map(|case| case.id).collect();
    ensure!(ids.len() == kept.cases.len(), "a case is there twice");
    let cases: BTreeSet<_> = kept.cases.iter().map(|c| (c.image, c.input)).collect();
    ensure!(cases.len() == kept.cases.len(), "a case was counted twice");
    ensure!(ids.len() >= queue(folder)?.len(), "a case was lost");
    for case in &kept.cases {
        kept.store.input_bytes(case.input)?;
        kept.store.difference(None, case.image)?;
    }
    for found in kept.found.values() {
        kept.store.difference(None, found.case.image)?;
    }
    let findings = folder.join("findings");
    if findings.exists() {
        let files = fs::read_dir(findings)?.count();
        ensure!(kept.found.len() >= files, "a finding was lost");
    }
    Ok(kept)
}

/// All cases and findings that are in the journal, in words.
fn contents(kept: &Kept) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for case in &kept.cases {
        all.insert(serde_json::to_string(case)?);
    }
    for (key, found) in &kept.found {
        all.insert(format!("{key} {}", serde_json::to_string(found)?));
    }
    Ok(all)
}

/// Each command is wrong in its own way, so that there are findings from the beginning, and more to
/// come.
const WRONG: &str = r#"#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void persist(long *at) {
    __builtin_ia32_clflush(at);
    __builtin_ia32_sfence();
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (argc != 2 || ftruncate(fd, 4096) != 0)
        return 2;
    long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        pm[0]++;
        persist(pm);
        switch (line[0]) {
        case 'a':
            persist(pm);
            break;
        case 'b':
            persist(pm + 8);
            break;
        case 'c':
            __builtin_ia32_sfence();
            break;
        case 'd':
            pm[16]++;
            break;
        case 'e':
            pm[24]++;
            persist(pm + 24);
            persist(pm + 24);
            break;
        case 'f':
            if (pm[0] > 3)
                *(volatile char *)0 = 1;
            break;
        }
    }
    return 0;
}
"#;

/// Holds what a small campaign has; the rest is filled.
const SMALL_DISK: &str = "32m";

/// A file or folder of the campaign is on a disk that is full: `/dev/full`, or a small one of its
/// own, in a mount namespace that ends with the command.
fn full_disk(place: &str) -> Result<()> {
    let scene = Scene::with_source(WRONG, &[], "a\nx\n")?;
    let options = |number: &'static str| ["--out", "out", "--executions", number];
    let ended = scene.run(scene.words(&options("30")))?;
    ensure!(matches!(ended.status, 0 | 1), "{}", ended.describe());
    let kept = is_whole(&scene.path("out"))?;
    ensure!(!kept.found.is_empty(), "nothing was found");
    let before = contents(&kept)?;
    fs::create_dir(scene.path("small"))?;
    let words = scene.words(&[&options("400")[..], &["--resume"]].concat());
    // The last page of a small file has room for some lines.
    let is_device = place == "plot_data";
    let (mount, link) = match is_device {
        true => ("true".to_owned(), "/dev/full".to_owned()),
        false => (
            format!("mount -t tmpfs -o size={SMALL_DISK} none small"),
            format!("../small/{place}"),
        ),
    };
    let fill = if is_device { "true" } else { "cat /dev/zero" };
    let script = format!(
        "{mount} || exit 99
         mv out/{place} small/{place} && ln -s {link} out/{place} || exit 98
         {fill} > small/rest
         {}
         status=$?
         rm out/{place} small/rest && mv small/{place} out/{place} || exit 97
         exit $status",
        scene.invocation(words).line()
    );
    let words = ["unshare", "-m", "/bin/sh", "-c", &script];
    let words = &words[if is_device { 2 } else { 0 }..];
    let ended = scene.run(words.iter().map(OsString::from).collect())?;
    is_sane(&ended)?;
    let text = ended.stderr_text();
    // The shell says it, too, when it fills the disk.
    let is_said = text.lines().any(|line| {
        let by_tool = line.starts_with("brownout: ") || line.starts_with("error");
        by_tool && line.contains("No space left")
    });
    ensure!(ended.status > 1 && is_said, "{}", ended.describe());
    let between = contents(&is_whole(&scene.path("out"))?)?;
    ensure!(before.is_subset(&between), "something was lost");
    let ended = scene.run(scene.words(&[&options("400")[..], &["--resume"]].concat()))?;
    ensure!(matches!(ended.status, 0 | 1), "{}", ended.describe());
    let after = contents(&is_whole(&scene.path("out"))?)?;
    ensure!(
        between.is_subset(&after) && after.len() > before.len(),
        "something was lost"
    );
    Ok(())
}

fn copied(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let done = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(done.success(), "cannot copy");
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// Whatever is damaged: there is an error, or it is mended; never a panic, and never a finding that
/// was not there.
fn damaged() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    scene.fuzz(&["--out", "out", "--executions", "60", "--explore-share", "0"])?;
    let mut random = Random::new(3);
    let kinds = ["campaign.json", "journal", "images"];
    for path in files(&scene.path("out"))? {
        let name = path.strip_prefix(scene.path("out"))?.to_owned();
        if !kinds.iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        let whole = fs::read(&path)?;
        if whole.is_empty() {
            continue;
        }
        for round in 0..4 {
            copied(&scene.path("out"), &scene.path("damaged"))?;
            let mut bytes = whole.clone();
            match round {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.clear(),
                _ => {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            fs::write(scene.path("damaged").join(&name), bytes)?;
            let resumed = [
                "--out",
                "damaged",
                "--resume",
                "--executions",
                "70",
                "--explore-share",
                "0",
            ];
            for ended in [
                scene.tool(&["fuzz", "tree", "damaged"])?,
                scene.run(scene.words(&resumed))?,
            ] {
                is_sane(&ended).with_context(|| format!("{name:?}, round {round}"))?;
                ensure!(
                    ended.status != 1,
                    "{name:?}, round {round}: {}",
                    ended.describe()
                );
                let says = ended.stderr_text().contains("brownout: ");
                ensure!(
                    ended.status == 0 || says,
                    "{name:?}, round {round}: {}",
                    ended.describe()
                );
            }
        }
    }
    Ok(())
}

/// `BROWNOUT_KILLS=20` kills more often than usual.
fn kills() -> Result<()> {
    let rounds = match std::env::var("BROWNOUT_KILLS") {
        Ok(text) => text.parse().context("BROWNOUT_KILLS is no number")?,
        Err(_) => 4,
    };
    let scene = Scene::with_source(WRONG, &[], "a\nx\n")?;
    let out = scene.path("out");
    let mut random = Random::new(rounds);
    let mut before = BTreeSet::new();
    let mut has_findings = false;
    for round in 0..rounds {
        let mut options = vec!["--out", "out", "-o", "ignored"];
        if round > 0 && out.join("campaign.json").exists() {
            options.push("--resume");
        } else {
            let _ = fs::remove_dir_all(&out);
        }
        let words = scene.words(&options);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(scene.folder());
        let log = fs::File::create(scene.path("log"))?;
        let mut child = command.stdout(Stdio::null()).stderr(log).spawn()?;
        sleep(Duration::from_millis(random.below(1500)));
        if let Some(status) = child.try_wait()? {
            let log = fs::read_to_string(scene.path("log"))?;
            bail!("round {round} has ended by itself: {status}: {log}");
        }
        child.kill()?;
        child.wait()?;
        if !out.join("campaign.json").exists() || !out.join("images").exists() {
            continue;
        }
        let kept = is_whole(&out).with_context(|| format!("round {round}"))?;
        let now = contents(&kept)?;
        ensure!(before.is_subset(&now), "round {round}: something was lost");
        before = now;
        has_findings |= !kept.found.is_empty();
    }
    ensure!(has_findings, "nothing was found, so nothing could be lost");
    Ok(())
}
