//! Debian's AFL++ on the same programs as `bench fuzz`: what it reaches, and how fast it is.
//!
//! Its compiler instruments the example. AFL++ knows nothing of pools, so a wrapper lays a fresh
//! copy of the pool down before the program's own `main`; that is what its users have to do, too.
//! Afterwards its queue is run through the tool, which counts the PM paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use brownout_tests::{Scratch, examples};

use crate::setup;

/// Lays the pool down, holes left out, and goes on with the program.
const WRAPPER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
int program_main(int count, char **words);
int main(int count, char **words)
{
    int from = open(getenv("POOL_FROM"), O_RDONLY);
    int to = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    struct stat stat;
    if (from < 0 || to < 0 || fstat(from, &stat) || ftruncate(to, stat.st_size))
        abort();
    off_t at = 0;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        off_t end = lseek(from, at, SEEK_HOLE);
        lseek(to, at, SEEK_SET);
        while (at < end && sendfile(to, from, &at, (size_t)(end - at)) > 0)
            ;
    }
    close(from);
    close(to);
    return program_main(count, words);
}
"#;

/// The example, built by AFL++'s compiler.
pub struct Program {
    binary: PathBuf,
    _folder: Scratch,
}

/// What a campaign of AFL++ came to.
pub struct Campaign {
    /// Where the inputs of its queues are.
    pub inputs: PathBuf,
    pub count: usize,
    /// Executions a second of one instance.
    pub speed: f64,
}

impl Program {
    pub fn build() -> Result<Program> {
        setup::expect("afl++", "afl-fuzz")?;
        let folder = Scratch::new()?;
        let sources = examples::sources();
        let wrapper = folder.join("wrapper.c");
        fs::write(&wrapper, WRAPPER)?;
        let mut objects = Vec::new();
        let all = examples::sources_of("mapcli")?.into_iter();
        let all = all.map(|source| sources.join(source)).chain([wrapper]);
        for (number, source) in all.enumerate() {
            let object = folder.join(format!("{number}.o"));
            let usual = examples::compiler(&sources, &source, &object);
            let mut command = Command::new("afl-cc");
            command.args(usual.get_args()).env("AFL_QUIET", "1");
            if source.ends_with("map/mapcli.c") {
                command.arg("-Dmain=program_main");
            }
            run(&mut command)?;
            objects.push(object);
        }
        let binary = folder.join("mapcli");
        let usual = examples::linker(&objects, &binary);
        let mut command = Command::new("afl-cc");
        run(command.args(usual.get_args()).env("AFL_QUIET", "1"))?;
        Ok(Program {
            binary,
            _folder: folder,
        })
    }

    /// Seconds that its fork server takes for one run of a map with this input, on the first
    /// processor. A fresh copy of the pool is a part of the run, as in a campaign.
    pub fn run_seconds(&self, map: &str, pool: &Path, input: &str, runs: u32) -> Result<f64> {
        let folder = Scratch::new()?;
        let seconds = |runs: u32| -> Result<f64> {
            let inputs = folder.join(format!("inputs-{runs}"));
            fs::create_dir(&inputs)?;
            for number in 0..runs {
                fs::write(inputs.join(format!("{number:06}")), input)?;
            }
            let begun = Instant::now();
            let ran = Command::new("taskset")
                .args(["-c", "0", "afl-showmap", "-q", "-C", "-m", "none"])
                .args(["-t", "2000", "-i"])
                .arg(&inputs)
                .arg("-o")
                .arg(folder.join("map"))
                .arg("--")
                .arg(&self.binary)
                .arg(map)
                .arg(folder.join("run.pool"))
                .env("POOL_FROM", pool)
                // As with `afl-fuzz`: it clears the map for each run, and by default takes a huge
                // one.
                .env("AFL_MAP_SIZE", "65536")
                .stdin(Stdio::null())
                .output()
                .context("cannot run afl-showmap")?;
            ensure!(
                ran.status.success(),
                "afl-showmap fails: {}{}",
                String::from_utf8_lossy(&ran.stdout),
                String::from_utf8_lossy(&ran.stderr)
            );
            Ok(begun.elapsed().as_secs_f64())
        };
        // What it does once, however many runs there are, does not count.
        let few = seconds(runs / 10)?;
        let many = seconds(runs)?;
        Ok((many - few) / f64::from(runs - runs / 10))
    }

    /// Two instances for so long, on a pool in `folder`, from the seed there.
    pub fn fuzz(&self, map: &str, pool: &Path, folder: &Path, seconds: u32) -> Result<Campaign> {
        let seeds = folder.join("afl-seeds");
        fs::create_dir_all(&seeds)?;
        fs::copy(folder.join("seed"), seeds.join("seed"))?;
        let out = folder.join("afl-out");
        let mut instances: Vec<Child> = Vec::new();
        for (role, name) in [("-M", "first"), ("-S", "second")] {
            let child = Command::new("afl-fuzz")
                .args([
                    "-i".as_ref(),
                    seeds.as_os_str(),
                    "-o".as_ref(),
                    out.as_os_str(),
                ])
                .args([
                    role,
                    name,
                    "-V",
                    &seconds.to_string(),
                    "-m",
                    "none",
                    "-t",
                    "2000",
                    "--",
                ])
                .arg(&self.binary)
                .arg(map)
                .arg(folder.join(format!("afl-{name}.pool")))
                .env("POOL_FROM", pool)
                .envs([
                    ("AFL_NO_UI", "1"),
                    ("AFL_SKIP_CPUFREQ", "1"),
                    ("AFL_NO_AFFINITY", "1"),
                    ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
                ])
                .current_dir(folder)
                .stdin(Stdio::null())
                .stdout(fs::File::create(folder.join(format!("afl-{name}.log")))?)
                .stderr(Stdio::null())
                .spawn()
                .context("cannot run afl-fuzz")?;
            instances.push(child);
        }
        for mut instance in instances {
            ensure!(instance.wait()?.success(), "afl-fuzz fails: see its log");
        }
        let inputs = folder.join("afl-inputs");
        fs::create_dir_all(&inputs)?;
        let mut count = 0;
        let mut speed: f64 = 0.0;
        for name in ["first", "second"] {
            for entry in fs::read_dir(out.join(name).join("queue"))? {
                let path = entry?.path();
                if path.is_file() {
                    fs::copy(&path, inputs.join(format!("{count:06}")))?;
                    count += 1;
                }
            }
            let stats = fs::read_to_string(out.join(name).join("fuzzer_stats"))?;
            let value = stats.lines().find(|line| line.starts_with("execs_per_sec"));
            let value = value.and_then(|line| line.split(':').nth(1)?.trim().parse().ok());
            speed = speed.max(value.unwrap_or(0.0));
        }
        Ok(Campaign {
            inputs,
            count,
            speed,
        })
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run afl-cc")?;
    ensure!(
        output.status.success(),
        "afl-cc fails:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
