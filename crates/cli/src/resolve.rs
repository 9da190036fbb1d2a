//! The command line as meant: everything checked, every path and pattern made definite.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use brownout_host::LaunchConfig;
use brownout_trace::event::ThreadId;

use crate::cli::{Cli, Command, DumpArgs, Format, LaunchArgs, RecordArgs, TraceCommand};
use crate::exit::Failure;
use crate::terminal::quote;

/// What to do.
pub enum Task {
    /// `run`
    Run(LaunchConfig),
    /// `record`
    Record(Recording),
    /// `trace stat`
    Stat(PathBuf),
    /// `trace dump`
    Dump(Dump),
}

/// A recording to make.
pub struct Recording {
    /// The program.
    pub launch: LaunchConfig,
    /// Where the trace goes.
    pub output: PathBuf,
    /// Replace any file.
    pub force: bool,
    /// Check the trace against the files.
    pub verify: bool,
}

/// Events to show.
pub struct Dump {
    /// The trace.
    pub file: PathBuf,
    /// How to write them.
    pub format: Format,
    /// Only this thread's.
    pub thread: Option<ThreadId>,
    /// Only these, by number.
    pub range: Range<u64>,
    /// At most so many.
    pub limit: Option<u64>,
    /// How much to say about the code.
    pub symbols: Symbols,
}

/// How much to say about where in the code an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Addresses only.
    None,
    /// The innermost frame.
    Innermost,
    /// All frames.
    Stack,
}

/// Checks and completes what was typed.
pub fn resolve(cli: Cli) -> Result<Task, Failure> {
    match cli.command {
        Command::Run(args) => Ok(Task::Run(launch(args.launch)?)),
        Command::Record(args) => Ok(Task::Record(recording(args)?)),
        Command::Trace(TraceCommand::Stat(args)) => Ok(Task::Stat(args.file)),
        Command::Trace(TraceCommand::Dump(args)) => Ok(Task::Dump(dump(args)?)),
    }
}

fn launch(args: LaunchArgs) -> Result<LaunchConfig, Failure> {
    let mut words = args.program.into_iter();
    let program: OsString = words.next().unwrap_or_default();
    if program.is_empty() {
        return Err(Failure::usage("the name of the program is empty"));
    }
    Ok(LaunchConfig {
        program,
        args: words.collect(),
        pm_globs: Vec::new(),
        loads: false,
        values: false,
        deterministic: args.deterministic,
        execute_flushes: true,
        stdin: None,
    })
}

fn recording(args: RecordArgs) -> Result<Recording, Failure> {
    let stdin = match &args.stdin {
        None => None,
        Some(path) => Some(File::open(path).map_err(|error| {
            let path = quote(path);
            Failure::usage(format!(
                "cannot read {path} as standard input: {}",
                plain(&error)
            ))
        })?),
    };
    let pm_globs = match args.pm.is_empty() {
        true => Vec::new(),
        false => {
            let here = env::current_dir()
                .map_err(|error| Failure::usage(format!("the current folder is gone: {error}")))?;
            args.pm
                .iter()
                .map(|glob| pattern(glob, &here))
                .collect::<Result<_, _>>()?
        }
    };
    Ok(Recording {
        launch: LaunchConfig {
            pm_globs,
            loads: args.loads,
            values: !args.no_values,
            execute_flushes: args.execute_flushes,
            stdin,
            ..launch(args.launch)?
        },
        output: args.output,
        force: args.force,
        verify: args.verify,
    })
}

fn dump(args: DumpArgs) -> Result<Dump, Failure> {
    Ok(Dump {
        file: args.file,
        format: args.format,
        thread: args.thread.map(ThreadId),
        range: args.range.as_deref().map_or(Ok(0..u64::MAX), range)?,
        limit: args.limit,
        symbols: match (args.no_symbols, args.stacks) {
            (true, _) => Symbols::None,
            (false, true) => Symbols::Stack,
            (false, false) => Symbols::Innermost,
        },
    })
}

/// `A..B`, `A..`, `..B` or `..`.
fn range(text: &str) -> Result<Range<u64>, Failure> {
    let shape = || {
        let text = quote(text);
        Failure::usage(format!(
            "the range {text} is not of the form A..B with numbers A and B"
        ))
    };
    let (start, end) = text.split_once("..").ok_or_else(shape)?;
    let number = |text: &str, default| match text {
        "" => Ok(default),
        _ => text.parse::<u64>().map_err(|_| shape()),
    };
    let (start, end) = (number(start, 0)?, number(end, u64::MAX)?);
    match start <= end {
        true => Ok(start..end),
        false => Err(Failure::usage(format!(
            "the range {text} ends before it begins"
        ))),
    }
}

/// Makes a `--pm` pattern one over absolute, real paths, which is what the kernel reports.
fn pattern(glob: &str, here: &Path) -> Result<String, Failure> {
    if let Some(fault) = fault(glob) {
        let glob = quote(glob);
        return Err(Failure::usage(format!(
            "the pattern {glob} of --pm cannot be used: {fault}"
        )));
    }
    if !glob.contains('/') {
        return Ok(format!("**/{glob}"));
    }
    if glob.starts_with("**/") {
        return Ok(format!("/{glob}"));
    }
    // Folders up to the first that is a pattern are made real: symlinks and `..` resolved.
    let (mut fixed, mut rest) = (PathBuf::new(), PathBuf::new());
    for component in Path::new(glob).components() {
        let text = component.as_os_str().to_string_lossy();
        match rest.as_os_str().is_empty() && !text.contains(SPECIAL) {
            true => fixed.push(component),
            false => rest.push(component),
        }
    }
    let fixed = real(&here.join(fixed));
    let Some(fixed) = fixed.to_str() else {
        let glob = quote(glob);
        return Err(Failure::usage(format!(
            "the pattern {glob} of --pm lies in a folder whose path is not UTF-8"
        )));
    };
    let fixed = escape(fixed.trim_end_matches('/'));
    Ok(match rest.to_str().filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("{fixed}/{rest}"),
        None => fixed,
    })
}

/// Characters that mean something in a pattern.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// What is wrong with a pattern, if anything. Syntax is judged by the library that will match it.
fn fault(glob: &str) -> Option<String> {
    if glob.is_empty() {
        return Some("it is empty".to_owned());
    }
    if glob.ends_with('/') {
        let what = "it ends with '/', so it names no file (add '**' for all files below a folder)";
        return Some(what.to_owned());
    }
    if glob.contains('\0') {
        return Some("it contains a null character".to_owned());
    }
    globset::Glob::new(glob)
        .err()
        .map(|error| error.kind().to_string())
}

/// The pattern that matches exactly `text`.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// As [`fs::canonicalize`], for paths whose end need not exist yet.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => real(parent).join(name),
        (Some(parent), Some(Component::ParentDir)) => {
            real(parent).parent().map_or("/".into(), Path::to_owned)
        }
        _ => path.to_owned(),
    }
}

/// The system's words for an error, without the number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ok = |text| range(text).unwrap();
        assert_eq!(ok("3..7"), 3..7);
        assert_eq!(ok("3.."), 3..u64::MAX);
        assert_eq!(ok("..7"), 0..7);
        assert_eq!(ok(".."), 0..u64::MAX);
        assert_eq!(ok("5..5"), 5..5);
        for bad in [
            "",
            "3",
            "7..3",
            "a..b",
            "1..2..3",
            "-1..2",
            "1...2",
            "1..99999999999999999999",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_become_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        let shown = here.to_str().unwrap();
        fs::create_dir(here.join("real")).unwrap();
        std::os::unix::fs::symlink("real", here.join("link")).unwrap();
        let ok = |glob: &str| pattern(glob, &here).unwrap();
        assert_eq!(ok("pool"), "**/pool");
        assert_eq!(ok("*.pool"), "**/*.pool");
        assert_eq!(ok("/mnt/none/*"), "/mnt/none/*");
        assert_eq!(ok("**/x"), "/**/x");
        assert_eq!(ok("./pool"), format!("{shown}/pool"));
        assert_eq!(ok("link/new"), format!("{shown}/real/new"));
        assert_eq!(ok("link/../new*"), format!("{shown}/new*"));
        assert_eq!(ok("link/**"), format!("{shown}/real/**"));
        assert_eq!(ok("none/../x/{a,b}"), format!("{shown}/x/{{a,b}}"));
        assert_eq!(ok("/*"), "/*");
    }

    #[test]
    fn patterns_in_a_folder_with_special_characters() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap().join("a[1]");
        fs::create_dir(&here).unwrap();
        assert!(pattern("./p", &here).unwrap().ends_with(r"/a\[1\]/p"));
    }

    #[test]
    fn bad_patterns() {
        for bad in [
            "", "[a", "x[!", "[]", "{a", "a}", "[z-a]", "a\\", "a\0", "/mnt/",
        ] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "[]]", "[!]a]", "{a,b}c", "\\[", "**", "[{]"] {
            assert!(fault(good).is_none(), "{good:?}");
        }
    }
}
