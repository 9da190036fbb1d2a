//! The programs in `tests/fuzz`: they take commands, and their bugs show only after the right ones.
//!
//! A source has its bug with `-DBUG` and is its own fixed twin without. Its header says in prose
//! what is wrong, and in directives (` * key: value`) how it is reached and seen:
//!
//! | directive | meaning |
//! |---|---|
//! | `seed: A, B` | commands that show nothing of it |
//! | `trigger: A, B !3 \| C` | the shortest way there: runs one after the other on one pool, each with its commands; `!3` has the power fail after the third write-back |
//! | `shows: signal`, `exit`, `lost` | what comes of the last of these runs: death by a signal, exit status 1, or something acknowledged that is gone |
//! | `bug: RULE @ PLACE` | what `brownout check` reports of the commands of the trigger's first run; nothing, if there is no such line |
//! | `server` | it takes its commands from sockets |
//! | `clean` | there is no bug, and no wrong build |
//!
//! A trigger is for the builds with `-DCRASH`, on which nothing survives that was not written back
//! (`tests/fuzz/pm.h`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::layout;

/// One way to compile a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Without the bug.
    Fixed,
    /// With it.
    Bug,
    /// Without the bug, on the most forgetful machine.
    FixedCrash,
    /// With it, on the same.
    BugCrash,
}

impl Build {
    /// For names of files and tests.
    pub fn name(self) -> &'static str {
        match self {
            Build::Fixed => "fixed",
            Build::Bug => "bug",
            Build::FixedCrash => "fixed_crash",
            Build::BugCrash => "bug_crash",
        }
    }

    fn defines(self) -> &'static [&'static str] {
        match self {
            Build::Fixed => &[],
            Build::Bug => &["-DBUG"],
            Build::FixedCrash => &["-DCRASH"],
            Build::BugCrash => &["-DBUG", "-DCRASH"],
        }
    }
}

/// How a bug shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Death by a signal.
    Signal,
    /// Exit status 1.
    Exit,
    /// Something that was acknowledged is gone.
    Lost,
}

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its commands.
    pub commands: Vec<String>,
    /// After how many write-backs the power fails, if it does.
    pub crash_at: Option<u32>,
}

impl Run {
    /// The commands as a program reads them.
    pub fn input(&self) -> Vec<u8> {
        let lines = self.commands.iter().map(|command| format!("{command}\n"));
        lines.collect::<String>().into_bytes()
    }
}

/// One source, and what its header says.
#[derive(Clone, Debug)]
pub struct FuzzProgram {
    /// The file without its extension.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// Commands that show nothing.
    pub seed: Run,
    /// How the bug is reached; nothing for clean programs.
    pub trigger: Vec<Run>,
    /// How it shows.
    pub shows: Option<Shows>,
    /// What `brownout check` reports of the first run, and at which lines.
    pub rule: Option<(String, Vec<u32>)>,
    /// It takes its commands from sockets.
    pub server: bool,
    /// There is no bug.
    pub clean: bool,
}

impl FuzzProgram {
    /// The builds that it has.
    pub fn builds(&self) -> Vec<Build> {
        let mut builds = vec![Build::Fixed, Build::FixedCrash];
        if !self.clean {
            builds.extend([Build::Bug, Build::BugCrash]);
        }
        builds
    }

    /// Where a build of it lies.
    pub fn binary(&self, build: Build) -> PathBuf {
        layout::fuzz_programs().join(format!("{}-{}", self.name, build.name()))
    }

    /// The compiler's command line, except for where to put the result. Warnings are errors.
    pub fn compiler(&self, build: Build) -> Command {
        let mut command = Command::new("gcc");
        command
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            // Lazy binding has locked instructions, which complete write-backs.
            .args(["-Wl,-z,now"])
            .args(build.defines())
            .arg(&self.source);
        command
    }

    fn parse(source: &Path) -> Result<FuzzProgram> {
        let text = fs::read_to_string(source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        FuzzProgram::parse_text(&name, source, &text).with_context(|| source.display().to_string())
    }

    fn parse_text(name: &str, source: &Path, text: &str) -> Result<FuzzProgram> {
        let mut program = FuzzProgram {
            name: name.to_owned(),
            source: source.to_path_buf(),
            seed: run("")?,
            trigger: Vec::new(),
            shows: None,
            rule: None,
            server: false,
            clean: false,
        };
        for line in text.lines().take_while(|line| !line.starts_with(" */")) {
            let Some(line) = line.strip_prefix(" * ") else {
                continue;
            };
            match line {
                "clean" => program.clean = true,
                "server" => program.server = true,
                _ => {}
            }
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            match key {
                "seed" => program.seed = run(value)?,
                "trigger" => program.trigger = value.split('|').map(run).collect::<Result<_>>()?,
                "shows" => {
                    program.shows = Some(match value {
                        "signal" => Shows::Signal,
                        "exit" => Shows::Exit,
                        "lost" => Shows::Lost,
                        _ => bail!("nothing shows as {value:?}"),
                    });
                }
                "bug" => {
                    let (rule, place) = value.split_once(" @ ").context("no `RULE @ PLACE`")?;
                    program.rule = Some((rule.to_owned(), marked(text, place)?));
                }
                _ => {}
            }
        }
        ensure!(!program.seed.commands.is_empty(), "there is no `seed:`");
        ensure!(
            program.clean == program.trigger.is_empty() && program.clean == program.shows.is_none(),
            "the header must say `clean`, or `trigger:` and `shows:`"
        );
        Ok(program)
    }
}

/// `A, B !3`.
fn run(text: &str) -> Result<Run> {
    let (commands, crash_at) = match text.split_once('!') {
        Some((commands, number)) => {
            let number = number
                .trim()
                .parse()
                .with_context(|| format!("!{number}"))?;
            (commands, Some(number))
        }
        None => (text, None),
    };
    let commands = commands
        .split(',')
        .map(str::trim)
        .filter(|command| !command.is_empty());
    Ok(Run {
        commands: commands.map(str::to_owned).collect(),
        crash_at,
    })
}

/// The lines that carry this marker.
fn marked(text: &str, place: &str) -> Result<Vec<u32>> {
    let marker = format!("/* @{place} */");
    let lines = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.contains(&marker));
    let lines: Vec<u32> = lines.map(|(_, number)| number).collect();
    ensure!(!lines.is_empty(), "no line is marked @{place}");
    Ok(lines)
}

fn sources() -> PathBuf {
    layout::workspace().join("tests/fuzz")
}

/// Files of the folder that end so.
fn files(extension: &str) -> Result<Vec<PathBuf>> {
    let folder = sources();
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All programs, by name.
pub fn discover() -> Result<Vec<FuzzProgram>> {
    files("c")?
        .iter()
        .map(|path| FuzzProgram::parse(path))
        .collect()
}

/// One of them.
pub fn find(name: &str) -> Result<FuzzProgram> {
    FuzzProgram::parse(&sources().join(format!("{name}.c")))
}

/// Headers that every program depends on.
pub fn headers() -> Result<Vec<PathBuf>> {
    files("h")
}

#[cfg(test)]
mod tests {
    use super::{FuzzProgram, Run, Shows};
    use std::path::Path;

    fn parse(text: &str) -> anyhow::Result<FuzzProgram> {
        FuzzProgram::parse_text("x", Path::new("x.c"), text)
    }

    #[test]
    fn headers_are_read() {
        let text = "/* Prose: this is no directive.\n *\n * seed: i 1, p\n * trigger: i 1, r 1 !3 | !1 | p\n * \
                    shows: exit\n * bug: missing-flush @ here\n */\nx = 1; /* @here */\n";
        let program = parse(text).expect("a header");
        assert_eq!(program.seed.input(), b"i 1\np\n");
        let run = |commands: &[&str], crash_at| Run {
            commands: commands.iter().map(|command| command.to_string()).collect(),
            crash_at,
        };
        let expected = [
            run(&["i 1", "r 1"], Some(3)),
            run(&[], Some(1)),
            run(&["p"], None),
        ];
        assert_eq!(program.trigger, expected);
        assert_eq!(program.shows, Some(Shows::Exit));
        assert_eq!(program.rule, Some(("missing-flush".to_owned(), vec![8])));
    }

    #[test]
    fn headers_that_say_nothing_are_refused() {
        for text in [
            "/* x\n */\n",
            "/* x\n * seed: p\n */\n",
            "/* x\n * seed: p\n * clean\n * trigger: p\n * shows: exit\n */\n",
            "/* x\n * seed: p\n * trigger: p !x\n * shows: exit\n */\n",
            "/* x\n * seed: p\n * trigger: p\n * shows: nothing\n */\n",
            "/* x\n * seed: p\n * trigger: p\n * shows: exit\n * bug: missing-flush @ nowhere\n */\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
