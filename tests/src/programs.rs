//! The test programs in `tests/programs` and what their header comments ask for.
//!
//! A source begins with a comment that says what it tests, followed by directives, one a line:
//!
//! | directive | meaning |
//! |---|---|
//! | `build: dynamic static nopie` | which builds to make; `shared` for a library |
//! | `flags: …` | more compiler flags |
//! | `libs: …` | what to link |
//! | `needs: a b` | libraries of this folder that must lie beside it |
//! | `requires: avx512f` | processor flags (as in `/proc/cpuinfo`); the suite reports a miss as ignored |
//! | `refused: far transfers` | the tool does not support this: it must say so, with these words, and exit 3 |
//! | `args: POOL 1000` | arguments; `POOL` stands for a fresh file |

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{cpu, layout};

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    /// Position-independent, shared libraries.
    Dynamic,
    /// Everything in one file.
    Static,
    /// Fixed addresses, shared libraries.
    NoPie,
    /// A shared library for another program.
    Shared,
}

impl Build {
    fn parse(word: &str) -> Option<Build> {
        Some(match word {
            "dynamic" => Build::Dynamic,
            "static" => Build::Static,
            "nopie" => Build::NoPie,
            "shared" => Build::Shared,
            _ => return None,
        })
    }

    /// What is appended to the program's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Build::Dynamic => "",
            Build::Static => "-static",
            Build::NoPie => "-nopie",
            Build::Shared => ".so",
        }
    }

    /// Compiler flags that make this build.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Build::Dynamic => &["-fPIE", "-pie"],
            Build::Static => &["-static"],
            Build::NoPie => &["-fno-pie", "-no-pie"],
            Build::Shared => &["-fPIC", "-shared"],
        }
    }
}

/// One source file and its directives.
#[derive(Clone, Debug)]
pub struct Program {
    /// File name without extension.
    pub name: String,
    /// The source.
    pub source: PathBuf,
    /// Builds to make.
    pub builds: Vec<Build>,
    /// Additional compiler flags.
    pub flags: Vec<String>,
    /// Libraries to link.
    pub libs: Vec<String>,
    /// Libraries of this folder that it opens.
    pub needs: Vec<String>,
    /// Processor flags without which it cannot run.
    pub requires: Vec<String>,
    /// Arguments, `POOL` standing for a fresh file.
    pub args: Vec<String>,
    /// The tool must refuse it with a message that contains this.
    pub refused: Option<String>,
}

impl Program {
    /// Where a build of it lies.
    pub fn binary(&self, build: Build) -> PathBuf {
        layout::programs().join(format!("{}{}", self.name, build.suffix()))
    }

    /// Whether it works on a pool file.
    pub fn uses_pool(&self) -> bool {
        self.args.iter().any(|arg| arg == "POOL")
    }

    /// Whether it is a C++ source.
    pub fn is_cpp(&self) -> bool {
        self.source.extension().is_some_and(|ext| ext == "cpp")
    }

    fn parse(source: &Path) -> Result<Program> {
        let text = fs::read_to_string(source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        let name = source
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut program = Program {
            name,
            source: source.to_path_buf(),
            builds: Vec::new(),
            flags: Vec::new(),
            libs: Vec::new(),
            needs: Vec::new(),
            requires: Vec::new(),
            args: Vec::new(),
            refused: None,
        };
        for line in text.lines() {
            let Some(comment) = line.strip_prefix("//") else {
                break;
            };
            let Some((directive, rest)) = comment.trim().split_once(": ") else {
                continue;
            };
            let words = || rest.split_whitespace().map(str::to_owned);
            match directive {
                "build" => {
                    for word in rest.split_whitespace() {
                        match Build::parse(word) {
                            Some(build) => program.builds.push(build),
                            None => bail!("{}: no such build: {word}", source.display()),
                        }
                    }
                }
                "flags" => program.flags.extend(words()),
                "libs" => program.libs.extend(words()),
                "needs" => program.needs.extend(words()),
                "requires" => program.requires.extend(words()),
                "refused" => program.refused = Some(rest.trim().to_owned()),
                "args" => program.args.extend(words()),
                _ => {}
            }
        }
        if program.builds.is_empty() {
            bail!("{}: no `// build:` line in its header", source.display());
        }
        Ok(program)
    }
}

/// All programs, by name.
pub fn discover() -> Result<Vec<Program>> {
    let folder = layout::program_sources();
    let mut programs = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|ext| ext == "c" || ext == "cpp")
        {
            programs.push(Program::parse(&path)?);
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Whether this machine's processor has all of the flags, and none is hidden.
pub fn processor_has(flags: &[String]) -> bool {
    flags.iter().all(|flag| cpu::has(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_directives_and_every_need_is_met() {
        let programs = discover().expect("all headers parse");
        assert!(
            programs.len() >= 40,
            "only {} programs found",
            programs.len()
        );
        for program in &programs {
            for need in &program.needs {
                let library = programs.iter().find(|p| p.name == *need);
                assert!(
                    library.is_some_and(|p| p.builds.contains(&Build::Shared)),
                    "{} needs {need}, which is not a shared library here",
                    program.name
                );
            }
        }
    }
}
