//! libpmemobj's examples, each broken in one place by an edit of the installed source.
//!
//! An edit names a function and texts in it. Each text must be there exactly once, so that another
//! version of the examples fails here and is not silently left unbroken. Nothing of the examples is
//! kept but the few words of the edits.
//!
//! ```text
//!  target/pmdk-examples/src ──copy, edit──▶ FOLDER/src ──gcc──▶ one object ┐
//!  target/pmdk-examples/objects ───────────────────────────────────────────┴─▶ FOLDER/PROGRAM
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use brownout_findings::Event;

use crate::examples;

mod list;

pub use list::ALL;

/// An example with an edit, and how to reach it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What is broken.
    pub name: &'static str,
    /// Source below the examples' folder.
    pub file: &'static str,
    /// The function that is edited.
    pub function: &'static str,
    /// What is replaced by what, in this order.
    pub edits: &'static [(&'static str, &'static str)],
    /// How the edited code is reached.
    pub scenario: Scenario,
    /// What comes of it.
    pub expectation: Expectation,
}

/// Runs that reach a place, and the recovery after a crash. Each names the program first, and the
/// pool as `P`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// `mapcli`, which reads its commands. Commands are separated by commas.
    Map {
        /// Type of the map.
        map: &'static str,
        /// What is done beforehand, on a new pool. Without it the pool has no map yet: how that is
        /// made is explored as well.
        before: Option<&'static str>,
        /// What is explored. Each command is atomic.
        commands: &'static str,
        /// What recovery does: it looks, and may go on working.
        after: &'static str,
    },
    /// A program that is told by its arguments what to do.
    Steps {
        /// Command lines that prepare the pool; `@` before a name means a program of ours.
        before: &'static [&'static str],
        /// The command line that is explored.
        command: &'static str,
        /// Recovery's command line.
        after: &'static str,
    },
}

impl Scenario {
    /// The example that it runs.
    pub fn program(&self) -> &'static str {
        match self {
            Scenario::Map { .. } => "mapcli",
            Scenario::Steps { command, .. } => command.split(' ').next().unwrap_or_default(),
        }
    }
}

/// What explored crashes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Recovery goes wrong after some crash.
    Found {
        /// A function of the edited file that is on the stack of a lost store or of the crash. If
        /// what does harm is a store that survives, only the crash is told, which is somewhat
        /// later.
        blamed: &'static str,
    },
    /// No crash shows it.
    Harmless {
        /// The reason.
        why: &'static str,
    },
}

impl Mutant {
    /// Builds it in a folder.
    pub fn build(&self, folder: &Path) -> Result<PathBuf> {
        let sources = folder.join("src");
        copy_folder(&examples::sources(), &sources)
            .context("cannot copy the examples: run `cargo xtask build`")?;
        let path = sources.join(self.file);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("the examples have no {}", self.file))?;
        let edited = edit(&text, self.function, self.edits)
            .with_context(|| format!("{} does not fit {}", self.name, self.file))?;
        fs::write(&path, edited)?;
        let program = self.scenario.program();
        let mut objects = Vec::new();
        let mut is_part = false;
        for source in examples::sources_of(program)? {
            let mut object = examples::object(source);
            if source == self.file {
                is_part = true;
                object = folder.join("edited.o");
                run(&mut examples::compiler(&sources, &path, &object))?;
            }
            objects.push(object);
        }
        ensure!(is_part, "{} is no source of {program}", self.file);
        let binary = folder.join(program);
        run(&mut examples::linker(&objects, &binary))?;
        Ok(binary)
    }
}

/// Whether an event of the recorded run, not of recovery, is in a function or below it.
pub fn is_in(source: &str, function: &str, event: &Event) -> bool {
    ["store", "survivor", "flush", "crash"].contains(&event.role.name())
        && event.stack.iter().any(|frame| {
            frame.function.as_deref() == Some(function)
                && frame
                    .file
                    .as_deref()
                    .is_some_and(|file| file.ends_with(source))
        })
}

/// Replaces texts that a function has exactly once.
pub fn edit(text: &str, function: &str, edits: &[(&str, &str)]) -> Result<String> {
    let body = body_of(text, function)?;
    let mut edited = text[body.clone()].to_owned();
    for (find, replace) in edits {
        match edited.matches(find).count() {
            1 => edited = edited.replacen(find, replace, 1),
            count => bail!("{find:?} is {count} times in {function}(), and must be there once"),
        }
    }
    Ok(format!(
        "{}{edited}{}",
        &text[..body.start],
        &text[body.end..]
    ))
}

/// Where the definition of a function is: its name begins a line, and its last brace, too.
fn body_of(text: &str, function: &str) -> Result<std::ops::Range<usize>> {
    let head = format!("\n{function}(");
    let definitions: Vec<usize> = text.match_indices(&head).map(|(at, _)| at).collect();
    let [start] = definitions[..] else {
        bail!(
            "{} definitions of {function}(), and there must be one",
            definitions.len()
        );
    };
    let Some(length) = text[start..].find("\n}\n") else {
        bail!("{function}() has no end");
    };
    // With the end of its last line.
    Ok(start..start + length + 1)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run gcc")?;
    ensure!(
        output.status.success(),
        "gcc failed (if an object is missing, run `cargo xtask build`):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
static void
first(int a)
{
\tadd(a);
\tstore(a);
}

static void
second(int a)
{
\tadd(a);
\tfirst(a);
\tadd(a);
}
";

    #[test]
    fn only_the_named_function_is_edited() {
        let edited = edit(TEXT, "first", &[("\tadd(a);\n", "")]).expect("once in first");
        assert_eq!(edited, TEXT.replacen("\tadd(a);\n", "", 1));
    }

    #[test]
    fn edits_follow_each_other() {
        let moved = [
            ("\tadd(a);\n", ""),
            ("\tstore(a);\n", "\tstore(a);\n\tadd(a);\n"),
        ];
        let edited = edit(TEXT, "first", &moved).expect("both once");
        let expected = TEXT.replacen("\tadd(a);\n\tstore(a);\n", "\tstore(a);\n\tadd(a);\n", 1);
        assert_eq!(edited, expected);
    }

    #[test]
    fn what_is_not_there_exactly_once_is_an_error() {
        assert!(edit(TEXT, "second", &[("add(a)", "")]).is_err());
        assert!(edit(TEXT, "second", &[("store(a)", "")]).is_err());
        assert!(edit(TEXT, "third", &[("add(a)", "")]).is_err());
        let twice = TEXT.replace("second", "first");
        assert!(edit(&twice, "first", &[("store(a)", "")]).is_err());
        assert!(edit("\nopen(int a)\n{", "open", &[("{", "")]).is_err());
    }

    #[test]
    fn text_after_the_edit_of_a_function_stays() {
        let edited = edit(TEXT, "first", &[("store", "load")]).expect("once");
        assert!(edited.ends_with("\tfirst(a);\n\tadd(a);\n}\n"));
    }
}
