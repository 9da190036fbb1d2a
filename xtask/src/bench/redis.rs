//! A redis-server on a socket of its own, and the client that times it.
//!
//! It keeps nothing: no persistence, no port, no daemon. The time is the client's, so starting and
//! ending the server do not count. A server whose benchmark fails is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const SOCKET: &str = "redis.sock";

/// Under a translator on a busy machine it starts in well under a second.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests that the client sends before it waits for answers.
const PIPELINE: u32 = 16;

/// A server that answers.
pub struct Redis {
    /// `None` once it has been waited for.
    child: Option<Child>,
    socket: PathBuf,
}

impl Redis {
    /// The server's program and arguments; its socket lies in `folder`.
    pub fn command_line(folder: &Path) -> (String, Vec<String>) {
        let socket = folder.join(SOCKET).to_string_lossy().into_owned();
        let arguments = [
            ["--port", "0"],
            ["--unixsocket", &socket],
            ["--save", ""],
            ["--appendonly", "no"],
            ["--daemonize", "no"],
            ["--loglevel", "warning"],
        ];
        let arguments = arguments.as_flattened().iter();
        (
            "/usr/bin/redis-server".to_owned(),
            arguments.map(|&word| word.to_owned()).collect(),
        )
    }

    /// Starts what [`command_line`](Self::command_line) gave, natively or under the tool, and waits
    /// until it answers.
    pub fn start(mut command: Command, folder: &Path) -> Result<Redis> {
        let child = command.spawn().context("cannot run redis-server")?;
        let mut server = Redis {
            child: Some(child),
            socket: folder.join(SOCKET),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while !server.answers() {
            if let Some(child) = &mut server.child {
                ensure!(
                    child.try_wait()?.is_none(),
                    "redis-server ended before it answered"
                );
            }
            if Instant::now() > deadline {
                bail!("redis-server does not answer");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// The process that was started.
    pub fn child(&self) -> &Child {
        self.child
            .as_ref()
            .expect("only `shut_down` takes it, and that takes the server")
    }

    /// Sets and gets as many values; how long both took.
    pub fn benchmark(&self, requests: u64) -> Result<Duration> {
        let mut client = Command::new("redis-benchmark");
        client
            .arg("-s")
            .arg(&self.socket)
            .args(["-t", "set,get", "-q", "-n", &requests.to_string()])
            .args(["-P", &PIPELINE.to_string()]);
        let start = Instant::now();
        let output = client.output().context("cannot run redis-benchmark")?;
        let time = start.elapsed();
        // It exits with 0 even if the server has gone away.
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && text.contains("GET: "),
            "redis-benchmark ended with {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(time)
    }

    /// Ends the server and waits for what was started.
    pub fn shut_down(mut self) -> Result<Output> {
        // The connection ends with the server, which redis-cli may call an error.
        self.client().args(["shutdown", "nosave"]).output()?;
        let child = self.child.take().expect("nobody else takes it");
        child
            .wait_with_output()
            .context("cannot wait for redis-server")
    }

    fn answers(&self) -> bool {
        self.socket.exists()
            && self
                .client()
                .arg("ping")
                .output()
                .is_ok_and(|output| output.stdout.starts_with(b"PONG"))
    }

    fn client(&self) -> Command {
        let mut client = Command::new("redis-cli");
        client.arg("-s").arg(&self.socket).stdin(Stdio::null());
        client
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Something has failed already; under the tool, killing it would leave the server
            // behind.
            let _ = self.client().args(["shutdown", "nosave"]).output();
            thread::sleep(Duration::from_millis(200));
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
