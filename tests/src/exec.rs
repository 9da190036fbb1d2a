//! Runs a command to its end, with time limit, and keeps what it printed.
//!
//! Guarantees: output goes to files, so a grandchild that keeps a descriptor open cannot hang the
//! test; the command runs in its own process group, and a time-out ends the whole group.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brownout_abi::cpu::HIDE_VARIABLE;

/// What to run and where.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Working folder; also `HOME`.
    pub folder: PathBuf,
    /// Standard input; nothing if absent.
    pub stdin: Option<PathBuf>,
    /// Given up after this long.
    pub timeout: Duration,
    /// More environment variables.
    pub env: Vec<(String, String)>,
}

/// How it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code, or 128+n for signal n.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub wall: Duration,
}

impl Invocation {
    /// A command with the given words, in a folder.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>, folder: &Path) -> Invocation {
        Invocation {
            argv: argv.into_iter().map(Into::into).collect(),
            folder: folder.to_path_buf(),
            stdin: None,
            timeout: Duration::from_secs(120),
            env: Vec::new(),
        }
    }

    /// A shell command in a folder.
    pub fn shell(command: &str, folder: &Path) -> Invocation {
        Invocation::new(["/bin/sh", "-c", command], folder)
    }

    /// With this time limit.
    pub fn timeout(mut self, limit: Duration) -> Invocation {
        self.timeout = limit;
        self
    }

    /// With this file as standard input.
    pub fn stdin(mut self, path: &Path) -> Invocation {
        self.stdin = Some(path.to_path_buf());
        self
    }

    /// With this variable set.
    pub fn env(mut self, name: &str, value: &str) -> Invocation {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it without waiting. The caller must wait or kill.
    pub fn command(&self) -> Result<Command> {
        let Some((program, args)) = self.argv.split_first() else {
            bail!("nothing to run");
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&self.folder)
            .process_group(0);
        fixed_environment(&mut command, &self.folder);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(match &self.stdin {
            Some(path) => Stdio::from(
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?,
            ),
            None => Stdio::null(),
        });
        Ok(command)
    }

    /// Runs it to its end.
    pub fn run(&self) -> Result<Outcome> {
        let output = crate::Scratch::new()?;
        let (out, err) = (output.join("stdout"), output.join("stderr"));
        let mut command = self.command()?;
        command
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let start = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {:?}", self.argv[0]))?;
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > self.timeout {
                kill_group(child.id());
                child.wait()?;
                bail!(
                    "no end after {} s: {}\nstdout:\n{}\nstderr:\n{}",
                    self.timeout.as_secs(),
                    self.line(),
                    excerpt(&fs::read(&out)?),
                    excerpt(&fs::read(&err)?)
                );
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        let wall = start.elapsed();
        // Daemons that the command left behind belong to its group.
        kill_group(child.id());
        Ok(Outcome {
            status: status_number(status),
            stdout: fs::read(&out)?,
            stderr: fs::read(&err)?,
            wall,
        })
    }

    /// The command line, for messages.
    pub fn line(&self) -> String {
        let mut line = String::new();
        for word in &self.argv {
            let word = word.to_string_lossy();
            let plain = word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./=:+".contains(c));
            let separator = if line.is_empty() { "" } else { " " };
            let _ = match plain && !word.is_empty() {
                true => write!(line, "{separator}{word}"),
                false => write!(line, "{separator}'{}'", word.replace('\'', r"'\''")),
            };
        }
        line
    }
}

impl Outcome {
    /// Fails unless it ended with 0.
    pub fn expect_success(self, what: &str) -> Result<Outcome> {
        if self.status != 0 {
            bail!("{what}: exit status {}\n{}", self.status, self.describe());
        }
        Ok(self)
    }

    /// Both outputs, shortened, for messages.
    pub fn describe(&self) -> String {
        format!(
            "stdout:\n{}\nstderr:\n{}",
            excerpt(&self.stdout),
            excerpt(&self.stderr)
        )
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Fails, with both sides shown, unless status and stdout agree, and stderr if asked.
pub fn compare(native: &Outcome, tool: &Outcome, with_stderr: bool) -> Result<()> {
    let mut differences = String::new();
    if native.status != tool.status {
        let _ = writeln!(
            differences,
            "exit status {} natively, {} under the tool",
            native.status, tool.status
        );
    }
    if native.stdout != tool.stdout {
        let _ = writeln!(
            differences,
            "stdout differs {}",
            first_difference(&native.stdout, &tool.stdout)
        );
    }
    if with_stderr && native.stderr != tool.stderr {
        let _ = writeln!(
            differences,
            "stderr differs {}",
            first_difference(&native.stderr, &tool.stderr)
        );
    }
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "{differences}--- natively\n{}\n--- under the tool\n{}",
        native.describe(),
        tool.describe()
    );
}

fn first_difference(native: &[u8], tool: &[u8]) -> String {
    let at = native.iter().zip(tool).take_while(|(a, b)| a == b).count();
    let line = native[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("from byte {at} (line {line})")
}

/// The same for every run, so that only the tool makes a difference.
fn fixed_environment(command: &mut Command, home: &Path) {
    // rustup's proxies find the toolchain by these; the rest of the environment is left behind.
    let real_home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let rustup = env::var_os("RUSTUP_HOME").unwrap_or_else(|| real_home.join(".rustup").into());
    let cargo = env::var_os("CARGO_HOME").unwrap_or_else(|| real_home.join(".cargo").into());
    let mut path = OsString::from("/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(own) = env::var_os("PATH") {
        // Debian's commands first; rustc is wherever it was installed.
        path.push(":");
        path.push(own);
    }
    // What the tests are told about the processor, the tool and the programs must be told, too.
    let hidden = env::var_os(HIDE_VARIABLE);
    command
        .env_clear()
        .envs(hidden.map(|hidden| (HIDE_VARIABLE, hidden)))
        .env("PATH", path)
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("RUSTUP_HOME", rustup)
        .env("CARGO_HOME", cargo)
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("TERM", "dumb")
        .env("SOURCE_DATE_EPOCH", "1000000000")
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GIT_AUTHOR_NAME", "A U Thor")
        .env("GIT_AUTHOR_EMAIL", "author@example.com")
        .env("GIT_COMMITTER_NAME", "C O Mitter")
        .env("GIT_COMMITTER_EMAIL", "committer@example.com")
        .env("GIT_AUTHOR_DATE", "1112911993 +0000")
        .env("GIT_COMMITTER_DATE", "1112911993 +0000")
        .env("GIT_CONFIG_NOSYSTEM", "1");
}

fn status_number(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => -1,
    }
}

/// Kills what is left of a process group that this process started.
pub fn kill_group(leader: u32) {
    // The group may be gone already, which is what we want.
    let _ = Command::new("/bin/sh")
        .args(["-c", &format!("kill -s KILL -- -{leader}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 3000;
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= 2 * SHOWN {
        return text.into_owned();
    }
    let head: String = text.chars().take(SHOWN).collect();
    let tail: String = text
        .chars()
        .rev()
        .take(SHOWN)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    format!(
        "{head}\n[… {} bytes …]\n{tail}",
        text.len() - head.len() - tail.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    fn shell(command: &str) -> Result<Outcome> {
        let scratch = Scratch::new()?;
        Invocation::shell(command, scratch.path())
            .timeout(Duration::from_secs(1))
            .run()
    }

    #[test]
    fn status_is_the_shells() {
        assert_eq!(shell("exit 7").unwrap().status, 7);
        assert_eq!(shell("kill -9 $$").unwrap().status, 137);
    }

    #[test]
    fn a_timeout_ends_grandchildren_too() {
        let start = Instant::now();
        let error = shell("sleep 600 & echo started; sleep 600").unwrap_err();
        assert!(error.to_string().contains("started"));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn comparison_can_fail() {
        let (a, b) = (shell("echo a").unwrap(), shell("echo b").unwrap());
        assert!(compare(&a, &a, true).is_ok());
        assert!(
            compare(&a, &b, false)
                .unwrap_err()
                .to_string()
                .contains("from byte 0 (line 1)")
        );
        let c = shell("echo a; exit 1").unwrap();
        assert!(compare(&a, &c, false).is_err());
    }
}
