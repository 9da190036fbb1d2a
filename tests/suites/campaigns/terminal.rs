//! What a terminal shows while a campaign goes on. The terminal is that of `script`.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::fuzz::Build;
use brownout_tests::trial;
use libtest_mimic::Trial;

use crate::{Scene, TIMEOUT};

/// Another screen than the user's, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

pub fn trials() -> Vec<Trial> {
    vec![
        trial("terminal::ctrl_c_reports_on_the_users_screen", ctrl_c),
        trial(
            "terminal::whoever_asks_twice_gets_the_screen_back",
            ctrl_c_twice,
        ),
        trial("terminal::a_screen_follows_the_terminals_size", resize),
        trial("terminal::elsewhere_there_are_lines", lines),
    ]
}

/// A campaign without an end, on a terminal of its own.
struct Terminal {
    scene: Scene,
    script: Child,
}

impl Terminal {
    fn new(columns: usize, rows: usize) -> Result<Terminal> {
        let scene = Scene::of("clean_tree", Build::Fixed)?;
        let words = scene.words(&["--out", "out"]);
        let words = words
            .iter()
            .map(|word| format!("'{}'", word.to_string_lossy()));
        let command = format!(
            "stty cols {columns} rows {rows}; tty > tty; TERM=xterm LC_ALL=C.UTF-8 {}",
            words.collect::<Vec<_>>().join(" ")
        );
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--command", &command, "typescript"])
            .current_dir(scene.folder())
            .stdin(Stdio::piped())
            .stdout(File::create(scene.path("ignored"))?)
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run script, of util-linux")?;
        Ok(Terminal { scene, script })
    }

    fn typescript(&self) -> PathBuf {
        self.scene.path("typescript")
    }

    fn seen(&self) -> Result<String> {
        let bytes = fs::read(self.typescript()).unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn wait(&mut self, what: &str, until: impl Fn(&str) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !until(&self.seen()?) {
            ensure!(begun.elapsed() < TIMEOUT, "no {what}: {:?}", self.seen()?);
            if self.script.try_wait()?.is_some() && !until(&self.seen()?) {
                bail!("it has ended: {:?}", self.seen()?);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// As if it were typed.
    fn type_in(&mut self, bytes: &[u8]) -> Result<()> {
        let keys = self.script.stdin.as_mut().context("no keyboard")?;
        keys.write_all(bytes)?;
        keys.flush()?;
        Ok(())
    }

    /// All that was shown, when it has ended.
    fn end(mut self) -> Result<String> {
        let begun = Instant::now();
        while self.script.try_wait()?.is_none() {
            ensure!(begun.elapsed() < TIMEOUT, "no end: {:?}", self.seen()?);
            sleep(Duration::from_millis(50));
        }
        self.seen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What hangs up ends.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Whole pictures, without colours, as rows.
fn pictures(seen: &str) -> Vec<Vec<String>> {
    let mut pictures: Vec<&str> = seen.split("\x1b[H").skip(1).collect();
    // The last one may be cut.
    pictures.pop();
    let plain = |row: &str| {
        let mut text = String::new();
        let mut parts = row.split('\x1b');
        text += parts.next().unwrap_or_default();
        for part in parts {
            let end = part.find(|c: char| c.is_ascii_alphabetic());
            text += &part[end.map_or(part.len(), |end| end + 1)..];
        }
        text.trim_end_matches('\r').to_owned()
    };
    let rows = |picture: &&str| picture.split('\n').map(plain).collect();
    pictures.iter().map(rows).collect()
}

fn is_running(seen: &str) -> bool {
    let has = |picture: &Vec<String>, text: &str| picture.iter().any(|row| row.contains(text));
    let pictures = pictures(seen);
    pictures
        .iter()
        .any(|p| has(p, "running") && !has(p, "executions  0"))
}

fn ctrl_c() -> Result<()> {
    let mut terminal = Terminal::new(80, 24)?;
    terminal.wait("picture", is_running)?;
    terminal.type_in(b"\x03")?;
    let seen = terminal.end()?;
    let shown = pictures(&seen);
    let last = shown.last().context("no picture")?.join("\n");
    for part in [
        "brownout fuzz",
        "PM paths",
        "edges",
        "tree",
        "stability",
        "findings",
        "a second now",
    ] {
        ensure!(last.contains(part), "no {part}\n{last}");
    }
    ensure!(seen.matches(ENTER).count() == 1, "{seen:?}");
    let (_, after) = seen
        .split_once(LEAVE)
        .context("the screen is not given back")?;
    ensure!(
        !after.contains(LEAVE) && seen.contains("\x1b[?25h"),
        "{after:?}"
    );
    ensure!(
        after.contains("brownout: ") && !after.contains("\x1b[H"),
        "no report: {after:?}"
    );
    Ok(())
}

/// The second Ctrl-C ends the tool at once, wherever it is.
fn ctrl_c_twice() -> Result<()> {
    let mut terminal = Terminal::new(80, 24)?;
    terminal.wait("picture", is_running)?;
    // Two signals of the same number that are sent at once are one.
    terminal.type_in(b"\x03")?;
    sleep(Duration::from_millis(20));
    terminal.type_in(b"\x03")?;
    let seen = terminal.end()?;
    ensure!(
        seen.contains(LEAVE) && seen.contains("\x1b[?25h"),
        "{seen:?}"
    );
    Ok(())
}

fn resize() -> Result<()> {
    let mut terminal = Terminal::new(100, 30)?;
    terminal.wait("picture", is_running)?;
    let tty = fs::read_to_string(terminal.scene.path("tty"))?;
    for (columns, rows) in [(31, 7), (12, 3), (120, 40)] {
        let set = Command::new("stty")
            .args([
                "-F",
                tty.trim(),
                "cols",
                &columns.to_string(),
                "rows",
                &rows.to_string(),
            ])
            .status()?;
        ensure!(set.success(), "the size cannot be set");
        let before = pictures(&terminal.seen()?).len();
        // The first may have been begun before.
        terminal.wait("other picture", |seen| pictures(seen).len() > before + 3)?;
        let shown = pictures(&terminal.seen()?);
        let last = shown.last().context("no picture")?;
        ensure!(last.len() <= rows, "{columns} by {rows}: {last:#?}");
        let widest = last.iter().map(|row| row.chars().count()).max();
        ensure!(widest <= Some(columns), "{columns} by {rows}: {last:#?}");
        ensure!(last[0].starts_with("brownout fuz"), "{last:#?}");
    }
    terminal.type_in(b"\x03")?;
    terminal.end()?;
    Ok(())
}

fn lines() -> Result<()> {
    let scene = Scene::of("clean_tree", Build::Fixed)?;
    let ended = scene.run(scene.words(&["--out", "out", "--executions", "200"]))?;
    let text = ended.stderr_text();
    ensure!(ended.status == 0, "{}", ended.describe());
    let line = text
        .lines()
        .find(|line| line.starts_with("brownout fuzz: "));
    let line = line.with_context(|| ended.describe())?;
    for part in [" PM paths", " edges", ", findings: ", ", depth "] {
        ensure!(line.contains(part), "no {part:?}: {line}");
    }
    ensure!(!text.contains('\x1b'), "{text:?}");
    Ok(())
}
