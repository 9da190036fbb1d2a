//! `cargo xtask demo`: for someone who sees Brownout for the first time.
//!
//! Shows real findings in real programs, each found before the reader's eyes. Every step says what must be found, and the demo fails if
//! it is not: what is shown here is what works.
//!
//! Of a report only the expected finding is shown, as `brownout` printed it; what is left out is counted.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::seeded::{self, Build};
use brownout_tests::{layout, tool};

use crate::{build, setup};

/// Rotates once, so that a node is logged by two functions.
const RBTREE_COMMANDS: &str = "i 10\ni 5\ni 7\nq\n";
const HASHMAP_COMMANDS: &str = "i 1\nq\n";

/// Given to `check` when the demo itself is read on a terminal; not shown, because nobody needs to type it.
const COLOUR: &str = "--color=always";

/// Longer lines (replay tokens) are cut when they are shown.
const COLUMNS_MAX: usize = 110;

/// Runs it.
pub fn demo() -> Result<()> {
    println!("Making sure that packages, brownout and the programs to look at are here …");
    setup::setup()?;
    build::build()?;
    tool::expect_built()?;
    let stage = Stage::new()?;

    step(
        "1. A red-black tree from libpmemobj's examples, unchanged. It inserts 10, 5 and 7 into a file that is its \
         memory; each insert is a transaction, which logs what it changes. Is anything logged in vain?",
    );
    let rbtree = ["--only", "duplicate-log,fresh-log"];
    let report = stage.check_map("rbtree", RBTREE_COMMANDS, &rbtree)?;
    report.show("fresh-log", "rbtree_map.c:200")?;
    report.show("duplicate-log", "rbtree_map.c:226")?;
    report.closing_line()?;

    step(
        "2. A hash map from the same place, without transactions: it writes back by itself what it stores. Does it write \
         back what is clean?",
    );
    let report = stage.check_map(
        "hashmap_atomic",
        HASHMAP_COMMANDS,
        &["--only", "clean-flush"],
    )?;
    report.show("clean-flush", "hashmap_atomic.c:115")?;
    report.closing_line()?;

    step(
        "3. Those only cost time. This mailbox loses data: a message is marked as there, but its text is never written back. \
         Without a power failure nobody notices; its own recovery is content:",
    );
    let (wrong, right) = mailbox()?;
    stage.natively(&wrong)?;
    step("Brownout sees it in one run, without a power failure:");
    let report = stage.check_mailbox(&wrong)?;
    report.show("missing-flush", "data_never_flushed.c")?;
    report.closing_line()?;
    report.ends_with(1)?;

    step("4. The same program with the line that was missing is left alone:");
    let fixed = stage.check_mailbox(&right)?;
    fixed.closing_line()?;
    fixed.ends_with(0)?;
    ensure!(
        fixed.text.contains("brownout: no findings"),
        "the fixed program should have no findings:\n{}",
        fixed.text
    );

    step("5. Every finding comes with a command that shows it again, here that of step 3:");
    let token = report.replay_token()?;
    let again = stage.run(Command::new(layout::brownout()).args(["replay", &token]))?;
    again.first_line("shows again")?;
    again.ends_with(1)?;

    step(
        "6. A run can be recorded, and checked later or elsewhere. --verify proves that no store was missed: the file as it was, \
         plus the recorded stores, is the file as it is.",
    );
    stage.recording(&wrong)?;

    println!(
        "Your own program:\n\n  \
         {0} check -- PROGRAM ARGS                (it uses libpmem or libpmemobj)\n  \
         {0} check --pm 'GLOB' -- PROGRAM ARGS    (it maps the files that match GLOB by itself)\n  \
         {0} explain                              (all rules)\n\n\
         docs/check.md goes on from here.",
        short(&layout::brownout().to_string_lossy())
    );
    Ok(())
}

/// The seeded program with a missing write-back, and its fixed twin.
fn mailbox() -> Result<(PathBuf, PathBuf)> {
    let program = seeded::discover()?
        .into_iter()
        .find(|program| program.name == "correctness/data_never_flushed")
        .context("tests/seeded/correctness/data_never_flushed.c is gone")?;
    Ok((program.binary(Build::Bug), program.binary(Build::Fixed)))
}

/// A folder to work in.
struct Stage {
    folder: PathBuf,
    colour: bool,
}

impl Stage {
    fn new() -> Result<Stage> {
        let folder = layout::target().join("demo");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Stage {
            folder,
            colour: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        })
    }

    /// A file that does not exist yet.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(path),
        }
    }

    /// `brownout check OPTIONS -- mapcli MAP POOL`
    fn check_map(&self, map: &str, commands: &str, options: &[&str]) -> Result<Printed> {
        let input = self.folder.join("commands");
        fs::write(&input, commands)?;
        let mut command = self.check();
        command
            .args(options)
            .arg("--stdin")
            .arg(&input)
            .arg("--")
            .arg(layout::examples().join("mapcli"))
            .arg(map)
            .arg(self.fresh("map.pool")?);
        self.run(&mut command)
    }

    /// `brownout check --pm POOL -- MAILBOX run POOL`
    fn check_mailbox(&self, program: &Path) -> Result<Printed> {
        let pool = self.fresh("mail.pool")?;
        let mut command = self.check();
        command.args(["--pm", "mail.pool", "--"]);
        command.arg(program).arg("run").arg(&pool);
        self.run(&mut command)
    }

    /// Runs the mailbox as it is, and then its own check.
    fn natively(&self, program: &Path) -> Result<()> {
        let pool = self.fresh("mail.pool")?;
        for word in ["run", "check"] {
            let mut command = Command::new(program);
            let printed = self.run(command.arg(word).arg(&pool))?;
            printed.ends_with(0)?;
        }
        Ok(())
    }

    fn recording(&self, program: &Path) -> Result<()> {
        let pool = self.fresh("mail.pool")?;
        let trace = self.fresh("mail.bwt")?;
        let mut record = Command::new(layout::brownout());
        record.arg("record").arg("-o").arg(&trace);
        record.args(["--verify", "--pm", "mail.pool", "--"]);
        record.arg(program).arg("run").arg(&pool);
        let recorded = self.run(&mut record)?;
        recorded.first_line("brownout: recorded")?;
        recorded.first_line("brownout: verified")?;
        println!();
        let mut check = self.check();
        let checked = self.run(check.arg("--trace").arg(&trace))?;
        checked.first_line("error[missing-flush]")?;
        checked.closing_line()?;
        checked.ends_with(1)
    }

    fn check(&self) -> Command {
        let mut command = Command::new(layout::brownout());
        command.arg("check");
        if self.colour {
            command.arg(COLOUR);
        }
        command
    }

    /// Shows the command, runs it in the workspace's folder and keeps what it has to say.
    fn run(&self, command: &mut Command) -> Result<Printed> {
        let line = short_command(command);
        println!("$ {line}");
        let output = command
            .current_dir(layout::workspace())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {line}"))?;
        let printed = Printed {
            line,
            status: output.status.code(),
            text: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        println!();
        Ok(printed)
    }
}

/// What a command printed to stderr.
struct Printed {
    line: String,
    status: Option<i32>,
    text: String,
}

impl Printed {
    /// Shows the finding of that rule whose first source line is at `place`, or fails.
    fn show(&self, rule: &str, place: &str) -> Result<()> {
        let wanted = |finding: &&str| {
            let text = plain(finding);
            let arrow = text
                .lines()
                .find(|line| line.trim_start().starts_with("-->"));
            text.contains(&format!("[{rule}]: ")) && arrow.is_some_and(|line| line.contains(place))
        };
        match self.findings().find(wanted) {
            Some(finding) => {
                for line in finding.lines() {
                    println!("{}", cut(line));
                }
                println!();
                Ok(())
            }
            None => bail!(
                "`{}` should have found {rule} at {place}:\n{}",
                self.line,
                self.text
            ),
        }
    }

    /// Shows the closing line.
    fn closing_line(&self) -> Result<()> {
        let last = self.text.lines().last();
        println!(
            "{}",
            last.with_context(|| format!("`{}` said nothing", self.line))?
        );
        Ok(())
    }

    /// Shows the first line that has the words, or fails.
    fn first_line(&self, words: &str) -> Result<()> {
        match self.text.lines().find(|line| plain(line).contains(words)) {
            Some(line) => println!("{}", cut(line)),
            None => bail!("`{}` should have said {words:?}:\n{}", self.line, self.text),
        }
        Ok(())
    }

    /// Shows how it ended, or fails if not so.
    fn ends_with(&self, expected: i32) -> Result<()> {
        ensure!(
            self.status == Some(expected),
            "`{}` ended with {:?}, not with {expected}:\n{}",
            self.line,
            self.status,
            self.text
        );
        println!("(exit status {expected})\n");
        Ok(())
    }

    /// The first token of the report.
    fn replay_token(&self) -> Result<String> {
        let text = plain(&self.text);
        let token = text
            .split_once("brownout replay ")
            .and_then(|(_, rest)| rest.split_whitespace().next());
        let token = token.with_context(|| format!("`{}` gave no token", self.line))?;
        Ok(token.to_owned())
    }

    /// Findings stand between empty lines.
    fn findings(&self) -> impl Iterator<Item = &str> {
        self.text.split("\n\n").map(str::trim_end)
    }
}

/// Without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    out
}

/// The beginning of a long line. Such lines have colours at their beginning only.
fn cut(line: &str) -> String {
    if plain(line).chars().count() <= COLUMNS_MAX {
        return line.to_owned();
    }
    let hidden = line.chars().count() - plain(line).chars().count();
    let kept: String = line.chars().take(COLUMNS_MAX + hidden - 1).collect();
    let reset = if hidden > 0 { "\x1b[0m" } else { "" };
    format!("{kept}…{reset}")
}

/// An announcement, wrapped.
fn step(text: &str) {
    const WIDTH: usize = 100;
    let mut column = 0;
    let mut out = String::new();
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    println!("\n── {out}\n");
}

fn short_command(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .filter(|word| *word != COLOUR)
        .map(|word| cut(&short(&word.to_string_lossy())))
        .collect();
    words.join(" ")
}

/// Relative to the workspace, where the commands run.
fn short(word: &str) -> String {
    let workspace = layout::workspace();
    let inside = Path::new(word).strip_prefix(&workspace);
    inside.map_or(word.to_owned(), |path| path.to_string_lossy().into_owned())
}
