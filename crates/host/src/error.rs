//! Why a program could not be run. Each message is one sentence with a way out.

use brownout_trace::maps::MapFault;
use std::fmt;
use std::path::PathBuf;

/// Why a program could not be run to its end.
#[derive(Debug)]
pub enum LaunchError {
    /// No such program.
    NotFound(PathBuf),
    /// It is there but cannot be executed.
    NotExecutable(PathBuf, String),
    /// A program that is out of scope.
    UnsupportedProgram(PathBuf, String),
    /// A pattern that cannot be parsed.
    BadGlob(String, String),
    /// A file that is to be tracked from the beginning cannot be found.
    KnownFile(PathBuf, std::io::Error),
    /// A path that is to be redirected, or where to, is not one of a file.
    Redirect(PathBuf),
    /// More files than the engine has room for.
    Tables(String),
    /// This machine lacks something.
    Machine(String),
    /// An environment variable of ours has a value that means nothing.
    Variable(String),
    /// A system call of the launcher failed.
    Launch(&'static str, std::io::Error),
    /// The program did something that is documented as unsupported, and was ended.
    UnsupportedAction(String),
    /// The program did not do what the one did whose decisions it was to repeat, and was ended.
    OtherRun(crate::Misfit),
    /// The program cannot be kept and forked from, or not any more: why. It may well be launched.
    NotKept(String),
    /// A bug of this tool.
    Bug(String),
    /// The sink failed; the program ran on.
    Sink(std::io::Error, Box<crate::Outcome>),
}

impl LaunchError {
    /// Whether it is our fault.
    pub fn is_bug(&self) -> bool {
        match self {
            LaunchError::Bug(_) => true,
            LaunchError::Sink(e, _) => MapFault::is_in(e),
            _ => false,
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LaunchError::*;
        match self {
            NotFound(p) => write!(
                f,
                "cannot run '{}': no such program (give a path, or a name that is in PATH)",
                p.display()
            ),
            NotExecutable(p, why) => write!(f, "cannot run '{}': {why}", p.display()),
            UnsupportedProgram(p, why) => write!(f, "cannot run '{}': {why}", p.display()),
            BadGlob(g, why) => write!(
                f,
                "the pattern '{g}' for persistent memory is not valid: {why}"
            ),
            KnownFile(p, e) => write!(f, "cannot track '{}': {e}", p.display()),
            Redirect(p) => write!(
                f,
                "cannot redirect '{}': give the absolute path of a file",
                p.display()
            ),
            Tables(why) => write!(f, "{why} (use fewer, or shorter paths)"),
            Machine(why) => write!(f, "this machine cannot run programs under Brownout: {why}"),
            Variable(why) => write!(f, "{why}"),
            Launch(what, e) => write!(f, "cannot start the program: {what}: {e}"),
            UnsupportedAction(why) => write!(f, "not supported: {why}"),
            OtherRun(misfit) => write!(f, "{misfit}"),
            NotKept(why) => write!(
                f,
                "the program cannot be kept ready (it can be launched for each run): {why}"
            ),
            Bug(why) => write!(f, "bug in Brownout's engine: {why}"),
            Sink(e, _) if MapFault::is_in(e) => {
                write!(f, "bug in Brownout: the events make no sense: {e}")
            }
            Sink(e, _) => write!(f, "recording stopped: {e}"),
        }
    }
}

impl std::error::Error for LaunchError {}
