//! `cargo xtask demo`: for someone who sees Brownout for the first time.
//!
//! Shows real findings in real programs, each found before the reader's eyes. Every step says what
//! must be found, and the demo fails if it is not: what is shown here is what works.
//!
//! Of a report only the expected finding is shown, as `brownout` printed it. Those of `explore` are
//! long: of them the story is shown (what happens, where, and the native command), and the lines
//! that are left out are counted.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brownout_tests::seeded::{self, Build};
use brownout_tests::{layout, race, symex, tool};

use crate::{build, setup, shell};

/// Rotates once, so that a node is logged by two functions.
const RBTREE_COMMANDS: &str = "i 10\ni 5\ni 7\nq\n";
const HASHMAP_COMMANDS: &str = "i 1\nq\n";

/// Recovery of a map opens it and looks the key up.
const LOOK: &str = "c 5\n";

/// What a shell says of a program that was killed by SIGSEGV.
const KILLED_BY_SIGSEGV: i32 = 128 + 11;

/// Given to `brownout` when the demo itself is read on a terminal; not shown, because nobody needs
/// to type it.
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
    let again = stage.run(Command::new(layout::brownout()).args(["replay", "--yes", &token]))?;
    again.first_line("shows again")?;
    again.ends_with(1)?;

    step(
        "6. A run can be recorded, and checked later or elsewhere. --verify proves that no store was missed: the file as it was, \
         plus the recorded stores, is the file as it is.",
    );
    stage.recording(&wrong)?;

    step(
        "7. Does the mailbox's missing write-back matter? With --confirm, Brownout lets the power fail where it may fail, runs the mailbox's \
         own recovery on what is left, and keeps a crash image that shows it:",
    );
    println!("$ cd {}", short(&stage.folder.to_string_lossy()));
    let report = stage.confirm_mailbox(&wrong)?;
    report.show_story("missing-flush", "data_never_flushed.c")?;
    report.first_line("note: confirmed")?;
    report.ends_with(1)?;
    stage.native_proof(&report, "inconsistent", 1)?;

    step(
        "8. brownout explore does so for a whole run: every point of failure, every combination of lost stores that recovery can tell \
         apart, none twice. Here a B-tree creates its pool and inserts 5:",
    );
    let report = stage.explore_map("btree", "i 5\n", false)?;
    report.show_story("recovery-error", "mapcli.c")?;
    report.first_line("note: no store is lost")?;
    report.closing_line()?;
    report.ends_with(1)?;
    step("Its native command runs the map as it is, without Brownout, on the image:");
    stage.native_proof(&report, "failed to open pool", 1)?;

    step(
        "9. The hash map of step 2 inserts 5 and removes it. Removing shrinks the map; can a power failure then lose it for good?",
    );
    let report = stage.explore_map("hashmap_atomic", "i 5\nr 5\n", true)?;
    report.show_story("recovery-crash", "hashmap_atomic.c:169")?;
    report.closing_line()?;
    report.ends_with(1)?;
    step("Again without Brownout:");
    stage.native_proof(&report, "", KILLED_BY_SIGSEGV)?;

    step(
        "10. Somebody had to know that inserting and removing 5 is worth a look. brownout fuzz finds out by itself: it starts with a command to insert \
         and one to look up, changes them, and goes on from what its runs and their crashes leave.",
    );
    let report = stage.fuzz_map("hashmap_atomic", "i 1\nc 1\n")?;
    report.show_story("recovery-crash", "hashmap_atomic.c:169")?;
    report.first_line("note: reached by fuzzing")?;
    report.closing_line()?;
    report.ends_with(1)?;

    step(
        "11. With threads, what is lost may depend on who runs when. Here one thread counts, and others write receipts with the number that they \
         have read. Natively nothing is ever wrong with it:",
    );
    let (wrong, right) = counter()?;
    stage.counter_natively(&wrong)?;
    step(
        "brownout race decides itself who goes on, and looks for a thread that makes something durable of what another one has not made durable yet:",
    );
    let report = stage.race_counter(&wrong)?;
    report.show_story("inter-thread-inconsistency", "counter_value.c")?;
    report.closing_line()?;
    report.ends_with(1)?;
    step("Its token has the schedule and the crash, and its native command needs neither:");
    let token = report.replay_token()?;
    let mut replay = Command::new(layout::brownout());
    replay.current_dir(&stage.folder);
    let again = stage.run(replay.args(["replay", "--yes", &token]))?;
    again.first_line("shows again")?;
    again.ends_with(1)?;
    stage.native_proof(&report, "inconsistent", 1)?;
    step("The counter that is durable before its lock is given back is left alone:");
    let fixed = stage.race_counter(&right)?;
    fixed.closing_line()?;
    fixed.ends_with(0)?;

    step(
        "12. Inputs need not be known either. This program reads commands by sscanf, and loses the number 4242, if two numbers were stored before it. \
         brownout symex begins with 36 blanks, and solves for what the program's branches ask for:",
    );
    let report = stage.symex_commands(&symex::binary("scan", symex::Build::Bug))?;
    report.show_story("missing-flush", "symex.h")?;
    report.first_line("note: input: ")?;
    report.first_line("note: path: ")?;
    report.closing_line()?;
    report.ends_with(1)?;

    step(
        "13. All of this can be looked at. The crash of the mailbox, and the campaign of step 10 with what it has reached and found, become one page for a \
         browser:",
    );
    let (wrong, _) = mailbox()?;
    let page = stage.page(&wrong)?;
    println!("\nOpen {} in a browser.\n", page.display());

    println!(
        "Your own program:\n\n  \
         {0} check -- PROGRAM ARGS                (it uses libpmem or libpmemobj)\n  \
         {0} check --pm 'GLOB' -- PROGRAM ARGS    (it maps the files that match GLOB by itself)\n  \
         {0} explore -- PROGRAM ARGS              (it recovers when it is run again; else --recover CMD)\n  \
         {0} fuzz --out DIR -- PROGRAM ARGS       (it reads commands from standard input)\n  \
         {0} race -- PROGRAM ARGS                 (it has threads, and recovers when it is run again; else --recover CMD)\n  \
         {0} symex --stdin-symbolic 32 -- PROGRAM (it parses what it reads; files, arguments and sockets, too)\n  \
         {0} explain                              (all rules)\n\n\
         docs/check.md, docs/explore.md, docs/fuzz.md, docs/race.md and docs/symex.md go on from here.",
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

/// A counter with threads, and its fixed twin.
fn counter() -> Result<(PathBuf, PathBuf)> {
    let program = race::find("counter_value")?;
    let binary = |build| program.binary(build);
    Ok((binary(race::Build::Bug), binary(race::Build::Fixed)))
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
        let mut command = self.brownout("check");
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
        let mut command = self.brownout("check");
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
        let mut check = self.brownout("check");
        let checked = self.run(check.arg("--trace").arg(&trace))?;
        checked.first_line("error[missing-flush]")?;
        checked.closing_line()?;
        checked.ends_with(1)
    }

    /// `brownout check --confirm --recover 'MAILBOX check POOL' -- MAILBOX run POOL`
    fn confirm_mailbox(&self, program: &Path) -> Result<Printed> {
        self.fresh("mail.pool")?;
        let program = program.to_string_lossy();
        let mut command = self.brownout("check");
        command
            .current_dir(&self.folder)
            .args(["--confirm", "--pm", "mail.pool", "--recover"])
            .arg(format!("{} check mail.pool", shell::quoted(&program)))
            .args(["--", &program, "run", "mail.pool"]);
        self.run(&mut command)
    }

    /// `brownout explore … -- mapcli MAP POOL`
    fn explore_map(&self, map: &str, commands: &str, set_up: bool) -> Result<Printed> {
        self.fresh("map.pool")?;
        fs::write(self.folder.join("commands"), commands)?;
        fs::write(self.folder.join("look"), LOOK)?;
        let mapcli = layout::examples().join("mapcli");
        let mut command = self.brownout("explore");
        command.current_dir(&self.folder);
        if set_up {
            let mapcli = mapcli.to_string_lossy();
            let create = format!("{} {map} map.pool < /dev/null", shell::quoted(&mapcli));
            command.args(["--setup", &create]);
        }
        command
            .args(["--stdin", "commands", "--recover-stdin", "look"])
            .args(["--oracle", "ops", "--depth", "1", "--"])
            .arg(mapcli)
            .args([map, "map.pool"]);
        self.run(&mut command)
    }

    /// `brownout fuzz … -- mapcli MAP POOL`
    fn fuzz_map(&self, map: &str, seed: &str) -> Result<Printed> {
        self.fresh("map.pool")?;
        fs::write(self.folder.join("seed"), seed)?;
        let out = self.folder.join("campaign");
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
        }
        let mapcli = layout::examples().join("mapcli");
        let text = mapcli.to_string_lossy();
        let create = format!("{} {map} map.pool < /dev/null", shell::quoted(&text));
        let mut command = self.brownout("fuzz");
        command
            .current_dir(&self.folder)
            .args(["--out", "campaign", "--seeds", "seed", "--setup", &create])
            .args(["--until-found", "--time", "3m", "--"])
            .arg(mapcli)
            .args([map, "map.pool"]);
        self.run(&mut command)
    }

    /// Runs the counter as it is, and then its own recovery.
    fn counter_natively(&self, program: &Path) -> Result<()> {
        let pool = self.fresh("count.pool")?;
        for words in [&[][..], &["recover"]] {
            let mut command = Command::new(program);
            let printed = self.run(command.arg(&pool).args(words))?;
            printed.ends_with(0)?;
        }
        Ok(())
    }

    /// `brownout race … -- COUNTER POOL`
    fn race_counter(&self, program: &Path) -> Result<Printed> {
        self.fresh("count.pool")?;
        let program = program.to_string_lossy();
        let mut command = self.brownout("race");
        command
            .current_dir(&self.folder)
            .args(["--pm", "count.pool", "--recover"])
            .arg(format!("{} count.pool recover", shell::quoted(&program)))
            .args(["--until-found", "--time", "10s", "--"])
            .args([&*program, "count.pool"]);
        self.run(&mut command)
    }

    /// `brownout symex … --stdin-symbolic 36 -- PROGRAM POOL`
    fn symex_commands(&self, program: &Path) -> Result<Printed> {
        self.fresh("commands.pool")?;
        let mut command = self.brownout("symex");
        command
            .current_dir(&self.folder)
            .args(["--pm", "commands.pool", "--stdin-symbolic", "36"])
            .args(["--until-found", "--time", "1m", "--"])
            .arg(program)
            .arg("commands.pool");
        self.run(&mut command)
    }

    /// `brownout report mailbox.json campaign -o page.html`, of which the first is made here. Gives
    /// the path of the page.
    fn page(&self, program: &Path) -> Result<PathBuf> {
        self.fresh("mail.pool")?;
        let page = self.fresh("page.html")?;
        let program = program.to_string_lossy();
        let mut explore = Command::new(layout::brownout());
        explore
            .current_dir(&self.folder)
            .args(["explore", "--format", "json", "-o", "mailbox.json"])
            .args(["--pm", "mail.pool", "--recover"])
            .arg(format!("{} check mail.pool", shell::quoted(&program)))
            .args(["--", &program, "run", "mail.pool"]);
        self.run(&mut explore)?.ends_with(1)?;
        let mut report = Command::new(layout::brownout());
        report.current_dir(&self.folder).args([
            "report",
            "mailbox.json",
            "campaign",
            "-o",
            "page.html",
        ]);
        let made = self.run(&mut report)?;
        made.first_line("in page.html")?;
        made.ends_with(0)?;
        let text = fs::read_to_string(&page)?;
        for expected in ["data_never_flushed.c", "hashmap_atomic.c", "PM paths"] {
            ensure!(
                text.contains(expected),
                "the page says nothing of {expected}"
            );
        }
        Ok(page)
    }

    /// Runs the native command that the report gives, which must fail in that way.
    fn native_proof(&self, report: &Printed, words: &str, status: i32) -> Result<()> {
        let mut command = Command::new("sh");
        command
            .current_dir(&self.folder)
            .args(["-c", &report.native_command()?]);
        let printed = self.run(&mut command)?;
        printed.first_line(words)?;
        printed.ends_with(status)
    }

    fn brownout(&self, name: &str) -> Command {
        let mut command = Command::new(layout::brownout());
        command.arg(name);
        if self.colour {
            command.arg(COLOUR);
        }
        command
    }

    /// Shows the command, runs it (in the workspace's folder, unless it says where) and keeps what
    /// it has to say.
    fn run(&self, command: &mut Command) -> Result<Printed> {
        if command.get_current_dir().is_none() {
            command.current_dir(layout::workspace());
        }
        let line = short_command(command);
        println!("$ {line}");
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {line}"))?;
        let printed = Printed {
            line,
            // A signal as a shell would say it.
            status: output
                .status
                .code()
                .or(output.status.signal().map(|signal| 128 + signal)),
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
        for line in self.finding(rule, place)?.lines() {
            println!("{}", cut(line));
        }
        println!();
        Ok(())
    }

    /// The same without frames and surroundings.
    fn show_story(&self, rule: &str, place: &str) -> Result<()> {
        let finding = self.finding(rule, place)?;
        let (story, left_out) = story(finding);
        for line in story {
            println!("{}", cut(line));
        }
        println!("  … {left_out} more lines\n");
        Ok(())
    }

    fn finding(&self, rule: &str, place: &str) -> Result<&str> {
        let wanted = |finding: &&str| {
            let text = plain(finding);
            let arrow = text
                .lines()
                .find(|line| line.trim_start().starts_with("-->"));
            text.contains(&format!("[{rule}]: ")) && arrow.is_some_and(|line| line.contains(place))
        };
        self.findings().find(wanted).with_context(|| {
            format!(
                "`{}` should have found {rule} at {place}:\n{}",
                self.line, self.text
            )
        })
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

    /// The first command of the report that shows a finding without Brownout.
    fn native_command(&self) -> Result<String> {
        let text = plain(&self.text);
        let command = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("= natively: "));
        let command = command.with_context(|| format!("`{}` gave no command", self.line))?;
        Ok(command.to_owned())
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
    let workspace = layout::workspace();
    let folder = command.get_current_dir().unwrap_or(&workspace);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .filter(|word| *word != COLOUR)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match words.as_slice() {
        // What the shell is given is what one would type.
        [sh, option, line] if sh == "sh" && option == "-c" => short_in(folder, line),
        _ => {
            let words = words.iter().map(|word| cut(&short_in(folder, word)));
            let words: Vec<String> = words
                .map(|word| shell::quoted(&word).into_owned())
                .collect();
            words.join(" ")
        }
    }
}

/// Relative to the workspace.
fn short(word: &str) -> String {
    short_in(&layout::workspace(), word)
}

/// Paths relative to the folder in which a command runs, if they are in it or in the one that holds
/// it.
fn short_in(folder: &Path, text: &str) -> String {
    let inside = text.replace(&format!("{}/", folder.display()), "");
    match folder.parent() {
        Some(parent) if folder != layout::workspace() => {
            inside.replace(&format!("{}/", parent.display()), "../")
        }
        _ => inside,
    }
}

/// Of a finding: its title, what happens, the source lines pointed at, and the native command; and
/// how many lines it has beside.
fn story(finding: &str) -> (Vec<&str>, usize) {
    let lines: Vec<&str> = finding.lines().collect();
    let is_pointer = |line: &str| plain(line).trim_start_matches([' ', '|']).starts_with('^');
    let mut kept = Vec::new();
    for (index, &line) in lines.iter().enumerate() {
        let text = plain(line);
        let text = text.trim_start();
        let tells = ["(", "-->", "= natively:"]
            .iter()
            .any(|begin| text.starts_with(begin));
        let pointed_at = lines.get(index + 1).is_some_and(|next| is_pointer(next));
        if index == 0 || tells || pointed_at {
            kept.push(line);
        }
    }
    let left_out = lines.len() - kept.len();
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_has_what_happens_where_and_how_to_see_it() {
        let finding = "\
error[recovery-error]: it fails
  (1) \x1b[1mthe power fails here\x1b[0m
      in libpmem.so+0x1
     --> map.c:2:9 in main
      |
    1 |     if (absent)
    2 |         create();
      |         ^
    3 |     open();
      by main (map.c:5)
  help: do both
  = natively: cp image pool && ./map";
        let (story, left_out) = story(finding);
        let expected = [
            "error[recovery-error]: it fails",
            "  (1) \x1b[1mthe power fails here\x1b[0m",
            "     --> map.c:2:9 in main",
            "    2 |         create();",
            "  = natively: cp image pool && ./map",
        ];
        assert_eq!(story, expected);
        assert_eq!(left_out, 7);
    }

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        let folder = layout::workspace().join("target/demo");
        let mut command = Command::new(folder.join("../release/brownout"));
        command.current_dir(&folder).arg("explore").arg(COLOUR);
        command.args(["--setup", "./map pool < /dev/null"]);
        assert!(
            short_command(&command).ends_with("brownout explore --setup './map pool < /dev/null'")
        );
        let mut command = Command::new("sh");
        let pool = folder.join("pool");
        let map = layout::workspace().join("target/maps/map");
        let line = format!("cp image {} && {} x", pool.display(), map.display());
        command.current_dir(&folder).args(["-c", &line]);
        assert_eq!(short_command(&command), "cp image pool && ../maps/map x");
    }
}
