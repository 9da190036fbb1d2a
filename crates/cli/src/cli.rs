//! The command line as typed. What it means is decided in [`crate::resolve`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const ABOUT: &str = "Run a program unchanged and see what it does to persistent memory";

const LONG_ABOUT: &str = "\
Run an unmodified x86-64 Linux program and see every access that it makes to persistent memory: \
stores, flushes, fences, and what the kernel writes on its behalf. Nothing needs to be recompiled or relinked.";

const AFTER_HELP: &str = "\
Examples:
  brownout run -- ls -l
  brownout record -o btree.bwt --pm '*.pool' -- ./mapcli btree /mnt/pmem/map.pool
  brownout trace stat btree.bwt
  brownout trace dump btree.bwt --range 0..100 --stacks

Exit codes:
  0    all is well
  1    findings, a failed verification, or a damaged trace
  2    the command line makes no sense, or names files that cannot be used
  3    the program could not be run, does something unsupported, or could not be recorded to its end
  70   a bug in Brownout; the message says what to report
  run and record end with the program's own status (128+n if signal n ended it) unless 1, 2, 3 or 70
  applies; then a message that begins with 'brownout: ' says which.";

const WHAT_IS_PM: &str = "\
What counts as persistent memory:
  - files whose path matches a --pm pattern
  - files that the program maps with MAP_SYNC
  - mappings that libpmem registers (its pmemcheck support is always on under Brownout)
  - files on a file system that is mounted with DAX
Only shared mappings count. If the program maps other files shared and writable, record ends with
a hint that names them; they are never tracked silently.";

const RUN_EXAMPLES: &str = "\
Examples:
  brownout run -- ./server --port 7000
  brownout run --deterministic -- python3 test.py";

const RECORD_EXAMPLES: &str = "\
Examples:
  brownout record -o run.bwt -- ./mapcli ctree /mnt/pmem/pool
  brownout record -o run.bwt --pm '/tmp/p/**' --stdin cmds.txt -- ./mapcli btree /tmp/p/map
  brownout record -o run.bwt --verify --pm pool.img -- ./my_test pool.img";

const DUMP_EXAMPLES: &str = "\
Examples:
  brownout trace dump run.bwt --range 1000..1020 --stacks
  brownout trace dump run.bwt --thread 2 --limit 50
  brownout trace dump run.bwt --format json | jq 'select(.kind == \"store\")'";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "brownout",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    after_long_help = format!("{AFTER_HELP}\n\n{WHAT_IS_PM}"),
    disable_help_subcommand = true,
    subcommand_required = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under the engine, without analysis
    ///
    /// The program behaves as it does natively; the exit status is its own (128+n if signal n
    /// ended it). Use it to see whether a program works under Brownout, and how fast.
    #[command(after_help = RUN_EXAMPLES, after_long_help = format!("{RUN_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Run(RunArgs),
    /// Record everything that a program does to persistent memory
    ///
    /// Writes a trace: one ordered stream of stores, flushes, fences, mappings and so on, of all
    /// threads and child processes. The exit status is the program's own (128+n if signal n ended
    /// it), unless verification fails (1) or the recording could not be made (2, 3, 70).
    #[command(after_help = RECORD_EXAMPLES, after_long_help = format!("{RECORD_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Record(RecordArgs),
    /// Look into a recorded trace
    #[command(subcommand, subcommand_required = true, disable_help_subcommand = true)]
    Trace(TraceCommand),
}

/// Look into a recorded trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show what a trace holds: events by kind, files, threads, size
    Stat(StatArgs),
    /// Show the events of a trace
    ///
    /// One line (or one JSON object) an event, in the order in which they happened. Filters
    /// combine: an event is shown if it passes all of them.
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(DumpArgs),
}

/// How to launch a program.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Remove randomness: fixed addresses, time, process numbers and random numbers
    ///
    /// Two recordings of a single-threaded program with the same input are then the same, event
    /// for event. The scheduling of threads is not controlled.
    #[arg(long)]
    pub deterministic: bool,

    /// The program and its arguments, after '--'
    ///
    /// A name without '/' is looked up in PATH. Scripts run under their interpreter.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `brownout run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// How to launch it.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// `brownout record`
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// A pattern without '/' matches the file's name in any folder; any other is matched against
    /// the whole path, and a relative one starts in the current folder. '*' and '?' do not match
    /// '/', '**' matches any number of folders, '[abc]' one of the characters, '{a,b}' either.
    /// Quote the pattern, or the shell may expand it.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Write the trace to FILE
    ///
    /// Created before the program starts. An existing trace is replaced; any other file is refused
    /// unless --force is given. Should recording be cut short (kill -9, full disk), the trace is
    /// readable up to its last whole block.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace FILE even if it is not a trace
    #[arg(long)]
    pub force: bool,

    /// Record loads from persistent memory, too
    #[arg(long)]
    pub loads: bool,

    /// Do not record the stored bytes, only where and how many
    ///
    /// Makes the trace smaller. Crash states cannot be computed from such a trace.
    #[arg(long, conflicts_with = "verify")]
    pub no_values: bool,

    /// Prove that nothing was missed
    ///
    /// Keeps a copy of each tracked file as it was at first (beside the trace, while the program
    /// runs), applies the recorded stores to it, and compares the result with what the program
    /// left, byte for byte. Each difference is shown with the nearest event; the exit code is then 1.
    #[arg(long)]
    pub verify: bool,

    /// Execute cache flushes instead of only recording them
    ///
    /// On ordinary files clwb and clflush gain nothing and cost much, so they are recorded and
    /// skipped. Use this on real persistent memory, if the data must survive.
    #[arg(long)]
    pub execute_flushes: bool,

    /// Let the program read FILE as its standard input
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,

    /// How to launch it.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// `brownout trace stat`
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line an event, for reading
    Text,
    /// One JSON object a line, for programs
    Json,
}

/// `brownout trace dump`
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// How to write the events
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Only events of this thread
    #[arg(long, value_name = "T")]
    pub thread: Option<u32>,

    /// Only events A up to, but not including, B
    ///
    /// Events are numbered from 0 in the order of the trace. Either end may be left out.
    #[arg(long, value_name = "A..B")]
    pub range: Option<String>,

    /// Stop after N events
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,

    /// Show the whole call stack of each event, not only the innermost frame
    #[arg(long, conflicts_with = "no_symbols")]
    pub stacks: bool,

    /// Show plain addresses; do not look for functions and lines
    #[arg(long)]
    pub no_symbols: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
