//! `brownout trace …`: looks into a recorded trace.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use brownout_symbols::{Options, Stacks};
use brownout_trace::dump::{self, DumpError, DumpOptions, Symbolize};
use brownout_trace::stat::{Ending, Stat};
use brownout_trace::{Error, Reader};

use crate::cli::Format;
use crate::exit::{self, Failure};
use crate::resolve::{Dump, Symbols, plain};
use crate::terminal::quote;

/// `trace stat`
pub fn stat(path: &Path) -> Result<u8, Failure> {
    let mut reader = open(path)?;
    let stat = Stat::collect(&mut reader).map_err(|error| unreadable(path, &error))?;
    let mut out = io::stdout().lock();
    written(write!(out, "{stat}").and_then(|()| out.flush()))?;
    match &stat.ending {
        Ending::Complete => Ok(exit::OK),
        Ending::CutOff { error } | Ending::Corrupt { error } => {
            Err(Failure::finding(format!("{}: {error}", quote(path))))
        }
    }
}

/// `trace dump`
pub fn dump(dump: &Dump) -> Result<u8, Failure> {
    let mut reader = open(&dump.file)?;
    let options = DumpOptions {
        format: match dump.format {
            Format::Text => dump::Format::Text,
            Format::Json => dump::Format::Json,
        },
        thread: dump.thread,
        range: dump.range.clone(),
        limit: dump.limit,
        frames_max: match dump.symbols {
            Symbols::None => 0,
            Symbols::Innermost => 1,
            Symbols::Stack => usize::MAX,
        },
        ..DumpOptions::default()
    };
    let mut stacks = match dump.symbols {
        Symbols::None => None,
        Symbols::Innermost | Symbols::Stack => Some(Stacks::new(Options::default())),
    };
    let symbolize = stacks.as_mut().map(|stacks| stacks as &mut dyn Symbolize);
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result = dump::dump(&mut reader, &mut out, &options, symbolize);
    // What was readable comes before the complaint.
    let flushed = out.flush();
    match result {
        Ok(_) => written(flushed).map(|()| exit::OK),
        Err(DumpError::Output(error)) => written(Err(error)).map(|()| exit::OK),
        Err(DumpError::Trace(error)) => written(flushed).and(Err(unreadable(&dump.file, &error))),
    }
}

fn open(path: &Path) -> Result<Reader<File>, Failure> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!(
            "cannot read {}: it is a folder",
            quote(path)
        )));
    }
    Reader::<File>::open(path).map_err(|error| unreadable(path, &error))
}

/// Damage in a trace is a finding about it; a file that is no trace is a mistake in the command.
fn unreadable(path: &Path, error: &Error) -> Failure {
    let path = quote(path);
    match error {
        Error::Truncated(_) | Error::Corrupt { .. } => Failure::finding(format!("{path}: {error}")),
        Error::Io { source, .. } => {
            Failure::usage(format!("cannot read {path}: {}", plain(source)))
        }
        Error::NotATrace { .. } | Error::UnsupportedVersion { .. } => {
            Failure::usage(format!("cannot read {path}: {error}"))
        }
    }
}

/// A reader that closed the pipe early (`| head`) has what it wanted.
fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::usage(format!(
            "cannot write the output: {}",
            plain(&error)
        ))),
        _ => Ok(()),
    }
}
