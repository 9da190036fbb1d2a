//! The command line as typed. What it means is decided in [`crate::resolve`].
// What is documentation here is help text: brackets are meant as they stand.
#![allow(rustdoc::broken_intra_doc_links)]

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use brownout_findings::rules::{self, Analysis, RULES};
use brownout_findings::{BuiltIn, Limit, Severity};
use brownout_host::StrategyKind;
use brownout_model::Domain;
use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};

use crate::schedule::ScheduleArg;

const ABOUT: &str = "Find crash-consistency and performance bugs of persistent-memory programs";

const LONG_ABOUT: &str = "\
Run an unmodified x86-64 Linux program, see every access that it makes to persistent memory \
(stores, flushes, fences, and what the kernel writes on its behalf), and find what a power failure \
would break. Nothing needs to be recompiled or relinked.";

const AFTER_HELP: &str = "\
Examples:
  brownout check -- ./mapcli btree /mnt/pmem/map.pool
  brownout check --format html -o check.html -- ./mapcli btree /mnt/pmem/map.pool
  brownout explain missing-flush
  brownout record -o btree.bwt --pm '*.pool' -- ./mapcli btree /mnt/pmem/map.pool
  brownout trace dump btree.bwt --range 0..100 --stacks

Exit codes:
  0    all is well
  1    findings, a failed verification, or (trace) a damaged file
  2    the command line makes no sense, or names files that cannot be used
  3    the program could not be run, does something unsupported, or could not be recorded to its end;
       or (check) the trace is damaged, and what is readable of it has no findings
  70   a bug in Brownout; the message says what to report
  check, run and record end with the program's own status (128+n if signal n ended it) unless 1, 2,
  3 or 70 applies; then a message that begins with 'brownout: ' says which.";

const WHAT_IS_PM: &str = "\
What counts as persistent memory:
  - files whose path matches a --pm pattern
  - files that the program maps with MAP_SYNC
  - mappings that libpmem registers (its pmemcheck support is always on under Brownout)
  - files on a file system that is mounted with DAX
Only shared mappings count. If the program maps other files shared and writable, record ends with
a hint that names them (and check, if it saw no persistent memory); they are never tracked silently.";

const CHECK_EXAMPLES: &str = "\
Examples:
  brownout check -- ./mapcli btree /mnt/pmem/map
  brownout check --pm '*.img' --only correctness -- ./my_test pool.img
  brownout check --format sarif -o check.sarif --fail-on performance -- make test
  brownout check --trace run.bwt --disable empty-fence,clean-flush
  brownout check --gen-suppressions brownout.supp -- ./server";

const EXPLORE_EXAMPLES: &str = "\
Examples:
  brownout explore --pm pool --recover './store check pool' -- ./store run pool
  brownout explore --setup './mapcli btree p < /dev/null' --stdin ops.txt --recover-stdin look.txt --oracle ops -- ./mapcli btree p
  brownout explore --depth 2 --time 10m --format json -o crash.json -- ./my_test
  brownout explore --oracle cmd:./verify.sh --recover './db --recover db.img' -- ./db --fill db.img

Oracles: recovery must not be killed, hang, or fail. With 'ops', each line of input is an atomic operation
(or each output, if the program reads no input): what recovery prints must be what it prints after the
operations that were complete at the crash, or one more. The same in another order is a warning, and an
error with 'ops:ordered'. With 'cmd:CHECKER', the shell command CHECKER
runs after recovery with three arguments (the first file, the number of operations complete, a file with
their text) and must exit with 0. Programs can say by themselves what must hold: see brownout_must_hold()
in brownout.h.";

const FUZZ_EXAMPLES: &str = "\
Examples:
  brownout fuzz --out campaign --seeds seeds/ --setup './mapcli btree p < /dev/null' -- ./mapcli btree p
  brownout fuzz --out campaign --resume --time 1h -- ./mapcli btree p
  brownout fuzz --out campaign --seeds seeds/ --pm pool -- ./import --pool pool @@
  brownout fuzz --out campaign --seeds seeds/ --pm pool --socket -- ./server --pool pool --port 7777
  brownout fuzz --out c --operations ops.txt --recover './store check pool' --pm pool -- ./store run pool

The program reads its input from standard input; or from a file, whose path it finds where its arguments contain '@@'; or finds it in
its arguments, where they contain '@ARG@'; or gets it over a connection, where it listens (--socket). A test case is an input and an image: what the program's files hold when it
starts. Images come from the program itself (what a run leaves) and from the persistency model (what a crash may leave). Inputs are
changed by bytes and by operations: those that --operations describes, one a line ('i {key}', 'set {key} 0 0 {len}\\r\\n{data}'), or what
the lines of the seeds look like. Every execution is judged by the rules of 'brownout check', and by how it ends; test cases
that show something new are explored, too. DIR has the layout of AFL++.";

const RACE_EXAMPLES: &str = "\
Examples:
  brownout race --pm '*.pool' -- ./server-test store.pool
  brownout race --pm '*.pool' --setup './prog store.pool create' --recover './prog store.pool check' -- ./prog store.pool
  brownout race --pm '*.pool' --continue more-operations.txt --time 5m --out campaign -- ./prog store.pool
  brownout race --pm '*.pool' --seeds seeds/ --time 10m --out campaign -- ./server-test store.pool

One thread runs at a time, and Brownout decides which: it looks for threads that read what another one has stored and not made
persistent, for locks in the pool that a crash leaves taken, and for deadlocks. Recovery then runs on a legal crash image, and only what
fails there, and natively, is an error. Each finding replays by its token.";

const SYMEX_EXAMPLES: &str = "\
Examples:
  brownout symex --pm '*.pool' --stdin-symbolic 32 -- ./prog store.pool
  brownout symex --pm '*.pool' --stdin seed.txt --setup './prog store.pool < /dev/null' --time 5m -- ./prog store.pool
  brownout symex --pm '*.pool' --stdin-symbolic 32 --out campaign -- ./prog store.pool
  brownout symex --pm store.pool --setup './prog store.pool < ops' --pool-symbolic 0x40-0x80 -- ./prog store.pool
  brownout symex --pm '*.pool' --socket --template operations.txt -- ./server store.pool

The program runs on one input after the other. Each is computed from the branches of an earlier run, so that one of them goes the other way: a
number that only a comparison knows is found at once. Each run is judged by the rules of 'brownout check'. --out keeps an input for
each new way through code that uses persistent memory: a set of tests.";
const REPORT_EXAMPLES: &str = "\
Examples:
  brownout check --format json -o check.json -- ./my_test
  brownout report check.json -o check.html
  brownout report check.json explore.json race.json -o all.html
  brownout report campaign --watch
  brownout report --compare main.json branch.json
  brownout report --compare main.json branch.json -o changes.html

The page is one file. It needs no network, and can be sent, attached to a bug report or kept with a
build. Every analysis also writes it at once: --format html -o FILE.html.";

const MERGE_EXAMPLES: &str = "\
Examples:
  brownout merge reports/*.json
  brownout merge reports/*.json --format junit --suite storage -o brownout.xml
  brownout merge reports/*.json --format json -o all.json --fail-on never";

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
    // The last one counts, so that the command line wins over brownout.toml.
    args_override_self = true,
    max_term_width = 100
)]
pub struct Cli {
    // The file is read before clap sees the words (see config.rs); these two only make clap know
    // them.
    /// Take the options of FILE instead of those of brownout.toml
    ///
    /// Without it, brownout.toml is looked for in the current folder and, inside a repository, in
    /// the folders above it up to the repository's root. A table is named as a command, and a key
    /// as a long option: [check], pm = ["*.pool"]. The command line wins.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = CONFIGURATION)]
    pub config: Option<PathBuf>,

    /// Use no brownout.toml
    #[arg(
        long,
        global = true,
        conflicts_with = "config",
        help_heading = CONFIGURATION
    )]
    pub no_config: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and report what it does wrong with persistent memory
    ///
    /// Looks at every store, write-back, fence, transaction and annotation of the run, by the rules
    /// that 'brownout explain' lists. With --trace or --import-pmemcheck a recording is checked,
    /// and no program runs. The exit status is 1 (or that of --error-exitcode) if there are
    /// findings that count, else the program's own (128+n if signal n ended it).
    #[command(after_help = CHECK_EXAMPLES, after_long_help = format!("{CHECK_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Check(Box<CheckArgs>),
    /// Find out what recovery does after a crash, in every distinct crash state
    ///
    /// Records one run of a program. Then, for each point at which the power may fail, it runs
    /// recovery on what may have survived: on every combination of unpersisted stores that recovery
    /// can tell apart, and on none twice. What goes wrong is reported with the stores that were
    /// lost, a crash image, and a command that shows it natively. The program's files are put back
    /// as they were. The exit status is 1 (or that of --error-exitcode) if there are findings that
    /// count, and 3 if nothing was found but not all was explored.
    #[command(after_help = EXPLORE_EXAMPLES, after_long_help = format!("{EXPLORE_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Explore(Box<ExploreArgs>),
    /// Generate inputs and images that reach persistent-memory code, and judge what happens
    ///
    /// Runs the program again and again, each time with another input, on what its files held at
    /// some earlier moment: after another run, or after a crash. What reaches new ways through code
    /// that uses persistent memory is kept and changed further. The program's own files stay as
    /// they are. The exit status is 1 (or that of --error-exitcode) if there are findings that
    /// count.
    #[command(after_help = FUZZ_EXAMPLES, after_long_help = format!("{FUZZ_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Fuzz(Box<FuzzArgs>),
    /// Find interleavings of threads that lose data, and replay them exactly
    ///
    /// Runs the program again and again, one thread at a time, and decides at each access to
    /// persistent memory, lock and system call who goes on. Where a thread makes something durable
    /// of what another one has not made persistent, takes a lock that a crash leaves taken, or
    /// waits for ever, it makes the crash image and runs recovery on it. The program's own files
    /// stay as they are. The exit status is 1 (or that of --error-exitcode) if there are findings
    /// that count.
    #[command(after_help = RACE_EXAMPLES, after_long_help = format!("{}\n\n{WHAT_IS_PM}", RACE_EXAMPLES))]
    Race(Box<RaceArgs>),
    /// Reach paths that no test covers: solve for the input, branch by branch
    ///
    /// Runs the program on an input, follows what it computes from that input, and solves for
    /// inputs on which its branches go the other way. Every path was really executed, on an input
    /// that the report names. The program's own files stay as they are. The exit status is 1 (or
    /// that of --error-exitcode) if there are findings that count.
    #[command(after_help = SYMEX_EXAMPLES, after_long_help = format!("{SYMEX_EXAMPLES}\n\n{WHAT_IS_PM}"))]
    Symex(Box<SymexArgs>),
    /// Explain a rule: what it means, an example, how to fix it
    ///
    /// Without RULE all built-in rules are listed.
    Explain(ExplainArgs),
    /// Show a finding again, from the token that a report gave with it
    Replay(ReplayArgs),
    /// Make a page for the browser of saved reports, or compare two of them
    ///
    /// Takes what --format json has written. Several reports become one page, on which a finding
    /// that more than one of them has is shown once. With --compare, the first report is the old
    /// one and the second the new one: what is new, gone and still there is told by fingerprint, on
    /// stdout and with -o as a page; the exit status is 1 if something is new, else 0. A file that
    /// is damaged, cut off, no report or of a later version is exit status 2.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(PageArgs),
    /// Make one report of many: those of the tests of a suite, say
    ///
    /// Takes what --format json has written. A finding that more than one of them has is told once,
    /// with all programs and tests that show it. The options of reports apply as if it were one
    /// run: its form, the exit status, suppressions, a baseline.
    #[command(after_help = MERGE_EXAMPLES)]
    Merge(MergeArgs),
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
    /// Take Valgrind's place: its options, and a log in its form
    ///
    /// 'brownout valgrind OPTIONS PROGRAM ARGUMENTS' is 'brownout check' for whoever calls
    /// Valgrind: ctest -T memcheck, scripts, makefiles. A link to brownout that is named
    /// brownout-valgrind does the same. Options of Valgrind that have no effect are named; options
    /// of check that have a value are taken in the form --option=value. docs/recipes.md shows its
    /// use.
    Valgrind(ValgrindArgs),
    /// Look into a recorded trace
    #[command(subcommand, subcommand_required = true, disable_help_subcommand = true)]
    Trace(TraceCommand),
    /// Write a completion script for a shell to stdout
    ///
    /// For instance: brownout completions bash >
    /// ~/.local/share/bash-completion/completions/brownout
    Completions(CompletionsArgs),
    /// Write the manual page to stdout, or all pages into a folder
    Man(ManArgs),
    /// Write a header for annotations, or for custom rules, to stdout
    ///
    /// For instance: brownout header > include/brownout.h. They are headers only, and need no
    /// library.
    Header(HeaderArgs),
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

const CONFIGURATION: &str = "Configuration";
const RULES_HEADING: &str = "Rules";
const MODEL_HEADING: &str = "Model of persistence";
const REPORT_HEADING: &str = "Report";
const RECOVERY_HEADING: &str = "Crash and recovery";

/// `brownout check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// A pattern without '/' matches the file's name in any folder; any other is matched against
    /// the whole path, and a relative one starts in the current folder. '*' and '?' do not match
    /// '/', '**' matches any number of folders, '[abc]' one of the characters, '{a,b}' either.
    /// Quote the pattern, or the shell may expand it.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Let the program read FILE as its standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stdin: Option<PathBuf>,

    /// Check the trace FILE, which 'brownout record' has written; no program runs
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["program", "import_pmemcheck", "pm", "stdin", "save_trace", "deterministic", "schedule", "execute_flushes"]
    )]
    pub trace: Option<PathBuf>,

    /// Check LOG, a store log that pmemcheck has written (--log-stores=yes); no program runs
    ///
    /// Such a log knows no threads, so a fence completes the write-backs of all.
    #[arg(
        long,
        value_name = "LOG",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["program", "pm", "stdin", "save_trace", "deterministic", "schedule", "execute_flushes"]
    )]
    pub import_pmemcheck: Option<PathBuf>,

    /// Keep the recording of this run in FILE, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save_trace: Option<PathBuf>,

    /// Execute cache flushes instead of only recording them
    ///
    /// On ordinary files clwb and clflush gain nothing and cost much, so they are recorded and
    /// skipped. Use this on real persistent memory, if the data must survive.
    #[arg(long)]
    pub execute_flushes: bool,

    /// Remove randomness: fixed addresses, time, process numbers and random numbers
    ///
    /// Two runs of a single-threaded program with the same input are then the same, event for
    /// event. The scheduling of threads is not controlled.
    #[arg(long)]
    pub deterministic: bool,

    /// Let one thread run at a time, and decide which: go-on, round-robin, random, pct, pm or
    /// delay, with ':SEED'; or 'list:…'
    ///
    /// Decisions are possible at accesses to persistent memory, locked instructions, system calls
    /// and where threads start and end. The same seed gives the same run, event for event, and so
    /// does the list that `record --schedule` prints, or keeps in a file ('list:@FILE'). Implies
    /// --deterministic.
    #[arg(long, value_name = "STRATEGY")]
    pub schedule: Option<ScheduleArg>,

    /// Check with N threads
    ///
    /// With 1, the thread that receives the events checks them, too. With 2 or more, the rules
    /// about persistence and those about logging have a thread each; more are of no use. Custom
    /// rules run in the receiving thread. Default: 2 if the machine has cores for them and the
    /// program, else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// Predict what threads could read of each other before it is persistent
    ///
    /// Switches the rule unpersisted-publication on. Loads are recorded, too, and calls of the C
    /// library's locks and of what threads wait by; that makes the run slower. A trace must have
    /// been recorded with --loads --threads.
    #[arg(long, conflicts_with = "import_pmemcheck")]
    pub threads: bool,

    /// Settle findings about unpersisted data by exploring crash states
    ///
    /// Each missing-flush, missing-fence and overwritten-unpersisted finding is then confirmed,
    /// with a crash that shows it; or harmless, because recovery does the same without the store (a
    /// transient-data finding); or unsettled, if --time was too short. The options under 'Crash and
    /// recovery' say how; without --recover the program itself is run again. The program's files
    /// are put back as they were.
    #[arg(long, conflicts_with_all = ["trace", "import_pmemcheck", "save_trace", "rule", "execute_flushes"])]
    pub confirm: bool,

    /// How to crash and recover, for --confirm.
    #[command(flatten)]
    pub recovery: RecoveryArgs,

    /// Which rules.
    #[command(flatten)]
    pub rules: RuleEdits,

    /// Load a rule of your own from the shared library FILE (repeatable)
    ///
    /// What stands behind the first colon is handed to the rule as it is. A rule that is loaded is
    /// on, unless --disable names it, or --only another one that is loaded. docs/custom-rules.md
    /// says how to write one.
    #[arg(long, value_name = "FILE[:OPTIONS]", value_hint = ValueHint::FilePath, help_heading = RULES_HEADING)]
    pub rule: Vec<OsString>,

    /// Demand that every store to persistent memory is made in a transaction
    #[arg(long, help_heading = RULES_HEADING)]
    pub tx_only: bool,

    /// Where data becomes persistent
    ///
    /// x86: lines must be written back and fenced. eadr: caches survive. hops: ofence orders and
    /// dfence drains, both given by annotations. page: by msync, page by page.
    #[arg(
        long,
        value_parser = domains(),
        default_value = Domain::X86.name(),
        help_heading = MODEL_HEADING
    )]
    pub domain: Domain,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,

    /// Understand the options of another tool, and end as its scripts expect
    ///
    /// pmemcheck: accepts --mult-stores=yes and the like, says which have no effect, and ends the
    /// report with the line 'ERROR SUMMARY: N errors'. valgrind: the report has the form of
    /// Valgrind's logs.
    #[arg(long, value_enum, value_name = "TOOL", help_heading = REPORT_HEADING)]
    pub compat: Option<Compat>,

    /// Options of pmemcheck.
    #[command(flatten)]
    pub pmemcheck: PmemcheckArgs,

    /// The program and its arguments, after '--'
    ///
    /// A name without '/' is looked up in PATH. Scripts run under their interpreter.
    #[arg(
        last = true,
        required_unless_present_any = ["trace", "import_pmemcheck"],
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// `brownout explore`
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// As in 'brownout check'.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// How to crash and recover.
    #[command(flatten)]
    pub recovery: RecoveryArgs,

    /// Let the program read FILE as its standard input, line by line
    ///
    /// Without it the input is empty. Each read yields one line at most, so that it is known what
    /// the program has done when it asks for the next.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stdin: Option<PathBuf>,

    /// Let one thread run at a time, and decide which: go-on, round-robin, random, pct, pm or
    /// delay, with ':SEED'; or 'list:…'
    ///
    /// The recorded run is then the same each time, and so is what recoveries of several threads
    /// do: there, whoever has the turn goes on as long as it can. The list is what 'brownout record
    /// --schedule' prints.
    #[arg(long, value_name = "STRATEGY")]
    pub schedule: Option<ScheduleArg>,

    /// Crash up to N times in a row: recovery is itself cut short
    ///
    /// Default: 2, but if there are many recoveries, only some are cut short; the report says how
    /// many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5))]
    pub depth: Option<u32>,

    /// Run N recoveries at a time. Default: one more than there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// Try every combination, also where recovery reads much uncertain data by one instruction
    ///
    /// Where recovery rejects data by a checksum, the number of combinations is astronomical and
    /// nearly all are alike. Those reads are sampled, and the report says so. This option tries
    /// all.
    #[arg(long)]
    pub exhaustive: bool,

    /// Run N outcomes again that were known without running them, and compare
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub self_test: u64,

    /// Write every distinct outcome of every failure point to FILE, one JSON object a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub outcomes: Option<PathBuf>,

    /// Go on where an interrupted exploration ended
    ///
    /// Its journal is in FOLDER (see --folder). It is begun anew if the recorded run, the commands,
    /// or a program or library that recovery executes has changed. What else recovery reads is not
    /// seen: give this option only if that is the same.
    #[arg(long)]
    pub resume: bool,

    /// Put crash images into FOLDER
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "brownout-explore")]
    pub folder: PathBuf,

    /// Where data becomes persistent
    ///
    /// x86: lines must be written back and fenced. eadr: caches survive. page: by msync, page by
    /// page.
    #[arg(
        long,
        value_parser = domains(),
        default_value = Domain::X86.name(),
        help_heading = MODEL_HEADING
    )]
    pub domain: Domain,

    /// What a crash cannot tear
    ///
    /// word: 8 aligned bytes, as the architecture promises. line: a store inside one line, as ADR
    /// parts do in practice.
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = Unit::Word, help_heading = MODEL_HEADING)]
    pub atomicity: Unit,

    /// What the file system promises about names and sizes of files
    ///
    /// ordered: they survive in the order in which they were changed, as ext4 and XFS do it. posix:
    /// each change survives or not, unless the folder (for names) or the file (for its size) was
    /// synced.
    #[arg(long, value_enum, value_name = "PROMISE", default_value_t = Names::Ordered, help_heading = MODEL_HEADING)]
    pub names: Names,

    /// Demand that store buffers are covered, too
    ///
    /// With one thread they add no crash state, so all is covered anyway. Stores of several threads
    /// are taken in the order in which they were recorded. With --schedule it is known whether a
    /// store buffer can have held something while another thread went on to store; where none has,
    /// all is covered, too. What delays add elsewhere is not explored, and with this option the
    /// report is then 'incomplete' instead of 'clean'.
    #[arg(long, help_heading = MODEL_HEADING)]
    pub tso: bool,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,

    /// The program and its arguments, after '--'
    ///
    /// A name without '/' is looked up in PATH. Scripts run under their interpreter.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `brownout fuzz`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct FuzzArgs {
    /// Look at a campaign instead.
    #[command(subcommand)]
    pub command: Option<FuzzCommand>,

    /// Keep the campaign in DIR: its queue, images, findings and journal
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub out: Option<PathBuf>,

    /// Go on with the campaign in DIR, from where it was ended or killed
    #[arg(long)]
    pub resume: bool,

    /// Begin with the inputs in SEEDS: a file, or a folder of files
    ///
    /// One or two short ones that show what operations look like are enough.
    #[arg(long, value_name = "SEEDS", value_hint = ValueHint::AnyPath)]
    pub seeds: Vec<PathBuf>,

    /// The program is a server, and gets its input over a connection
    ///
    /// As if a client had connected, sent the input and gone; where the input contains '@NEXT@' and
    /// a line feed, another client comes. WHERE is 'tcp:PORT' or 'unix:PATH'; 'auto', the default,
    /// is where the program listens first. When it has nothing to do any more, it gets SIGTERM. It
    /// runs in a network of its own, so it does not meet yours.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, default_missing_value = "auto")]
    pub socket: Option<brownout_fuzz::Endpoint>,

    /// Exchange inputs with the fuzzers in DIR, what afl-fuzz has got as -o
    ///
    /// What is new in their queues is run on the root image and kept if it shows something new; our
    /// own queue is offered to them there. Such campaigns cannot be repeated exactly.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub sync: Option<PathBuf>,

    /// What operations of the input look like, one template a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub operations: Option<PathBuf>,

    /// Words that the program may wait for, as AFL++ has them: name="value" a line (repeatable)
    ///
    /// They are put into inputs, as bytes and where templates of operations want a word.
    #[arg(short = 'x', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub dictionary: Vec<PathBuf>,

    /// Run CMD first: what it makes is what the first runs find
    ///
    /// For instance, it creates the pool. CMD is a shell command.
    #[arg(long, value_name = "CMD", conflicts_with = "image")]
    pub setup: Option<String>,

    /// Begin with FILE as it is now; the program's arguments name it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: Option<PathBuf>,

    /// What runs after a crash, as a shell command
    ///
    /// With it, every line of input is an atomic operation: what CMD prints must be what it prints
    /// after the operations that were complete at the crash, or one more. Without it, the program
    /// itself must come to the point where it reads its input.
    #[arg(long, value_name = "CMD")]
    pub recover: Option<String>,

    /// Ask CMD about each run that shows something new; exit code 1 is a finding
    ///
    /// CMD is a shell command. It gets a folder as $1, or as its last word if it does not mention
    /// $1: 'input' is what the program has read, 'files/…' copies of all files that it has left, at
    /// their full paths, 'status' its exit code (128 and more: a signal; or 'hang'), 'stdout' and
    /// 'stderr' what it printed. The first line that CMD prints is the finding's message, and tells
    /// findings apart. 0 is fine; anything else is a failure of CMD, which is said once.
    #[arg(long, value_name = "CMD")]
    pub detect: Option<String>,

    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// As in 'brownout check'.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Stop after this time and report what was found (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time: Option<Duration>,

    /// Stop after N executions
    #[arg(long, value_name = "N")]
    pub executions: Option<u64>,

    /// Stop as soon as a correctness bug is found that no seed shows
    #[arg(long)]
    pub until_found: bool,

    /// Fuzz with N workers. Default: one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// Seed of all chance: with one job and the same number of executions, the same campaign
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// An execution that takes longer than this hangs
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub hang_after: Duration,

    /// Cut an execution off that has more memory of its own than this, in MiB
    ///
    /// It is not judged then, and counted in the report. Files and persistent memory do not count.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    pub memory: u64,

    /// How much of the work may go into explorations of new test cases: 20 or 20%
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "20")]
    pub explore_share: f64,

    /// What steers the search; 'edges' is for comparison
    #[arg(long, value_enum, default_value_t = Steering::Pm, hide_short_help = true)]
    pub feedback: Steering,

    /// Where images come from; 'none' and 'mutate' are for comparison
    #[arg(long, value_enum, default_value_t = ImageSource::Model, hide_short_help = true)]
    pub images: ImageSource,

    /// Where data becomes persistent
    ///
    /// As in 'brownout explore'.
    #[arg(long, value_parser = domains(), default_value = Domain::X86.name(), help_heading = MODEL_HEADING)]
    pub domain: Domain,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,

    /// The program and its arguments, after '--'
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// A strategy, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategyArg(pub StrategyKind);

impl std::str::FromStr for StrategyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<StrategyArg, String> {
        let needs_list =
            |kind: &StrategyKind| matches!(kind, StrategyKind::Replay | StrategyKind::Steer);
        let named = StrategyKind::named(text).filter(|kind| !needs_list(kind));
        named.map(StrategyArg).ok_or_else(|| {
            let names = StrategyKind::NAMES
                .iter()
                .filter(|(kind, _)| !needs_list(kind));
            let names: Vec<&str> = names.map(|(_, name)| *name).collect();
            format!("known are {}", names.join(", "))
        })
    }
}

/// `brownout race`
#[derive(Debug, Args)]
pub struct RaceArgs {
    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// As in 'brownout check'.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Let the program read FILE as its standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stdin: Option<PathBuf>,

    /// Change the standard input, too, beginning with these: files, or folders of files
    /// (repeatable)
    ///
    /// When an input shows nothing new under other schedules any more, operations are added,
    /// removed, moved, and their keys made to meet. What operations look like is learnt from the
    /// lines of the seeds, unless --operations says it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath, conflicts_with = "stdin")]
    pub seeds: Vec<PathBuf>,

    /// Change the standard input, too; FILE says what operations look like, one a line ('i {key}')
    ///
    /// As in 'brownout fuzz'. Without seeds, the first input is made of these.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "stdin")]
    pub operations: Option<PathBuf>,

    /// Run CMD first: what it makes is what every run begins with
    ///
    /// For instance, it creates the pool. CMD is a shell command.
    #[arg(long, value_name = "CMD", help_heading = RECOVERY_HEADING)]
    pub setup: Option<String>,

    /// What runs after a crash, as a shell command
    ///
    /// Default: the program again, with the same arguments and the same input.
    #[arg(long, value_name = "CMD", help_heading = RECOVERY_HEADING)]
    pub recover: Option<String>,

    /// Let recovery read FILE as its standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = RECOVERY_HEADING)]
    pub recover_stdin: Option<PathBuf>,

    /// What runs after recovery: a file, which is the program's standard input then, or a shell
    /// command
    ///
    /// Many recoveries look at little. The first operations after one show what it has left: they
    /// find the lock taken, or follow the pointer that leads nowhere.
    #[arg(long = "continue", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = RECOVERY_HEADING)]
    pub continues: Option<String>,

    /// A shell command that judges what recovery has left, by its exit code; it gets the pool as
    /// its first argument
    #[arg(long, value_name = "CMD", help_heading = RECOVERY_HEADING)]
    pub checker: Option<String>,

    /// A run, or a recovery, that takes longer than this hangs
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = RECOVERY_HEADING)]
    pub hang_after: Option<Duration>,

    /// Use one strategy only: pm, random, pct, round-robin, go-on or delay
    ///
    /// Default: pm, random and pct in turn. pm brings stores and loads of the same bytes together;
    /// delay is for comparison.
    #[arg(long, value_name = "NAME")]
    pub strategy: Option<StrategyArg>,

    /// Seed of all chance: with one job and the same number of runs, the same search
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Search for this long (90s, 10m, 2h)
    ///
    /// Default: until 150 schedules in a row have shown nothing new, and 60s at most.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time: Option<Duration>,

    /// Stop after N schedules
    #[arg(long, value_name = "N")]
    pub runs: Option<u64>,

    /// Stop as soon as an error is found
    #[arg(long)]
    pub until_found: bool,

    /// Run N schedules at a time. Default: one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    /// Keep the campaign in DIR, so that it can go on
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Go on with the campaign in DIR, from where it was ended or killed
    #[arg(long, requires = "out")]
    pub resume: bool,

    /// Put crash images into FOLDER
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "brownout-race")]
    pub folder: PathBuf,

    /// Where data becomes persistent
    ///
    /// As in 'brownout explore'.
    #[arg(long, value_parser = domains(), default_value = Domain::X86.name(), help_heading = MODEL_HEADING)]
    pub domain: Domain,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,

    /// The program and its arguments, after '--'
    ///
    /// A name without '/' is looked up in PATH. Scripts run under their interpreter.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Which branch is turned next, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderArg(pub brownout_symex::Strategy);

impl std::str::FromStr for OrderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<OrderArg, String> {
        let names = brownout_symex::Strategy::NAMES;
        let named = names.iter().find(|(name, _)| *name == text);
        named.map(|(_, order)| OrderArg(*order)).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            format!("known are {}", names.join(", "))
        })
    }
}

/// A file that is solved for: its name, if it has one, and how many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileArg(pub Option<PathBuf>, pub usize);

/// More bytes are not solved for at once.
pub const SYMBOLIC_MAX: u64 = 65536;

impl std::str::FromStr for FileArg {
    type Err = String;

    fn from_str(text: &str) -> Result<FileArg, String> {
        let (name, number) = match text.rsplit_once(':') {
            Some((name, number)) => (Some(name), number),
            None => (None, text),
        };
        let number = number.parse().ok();
        let number = number.filter(|number| (1..=SYMBOLIC_MAX).contains(number));
        match (name, number) {
            (Some(""), _) | (_, None) => Err(format!(
                "write NAME:N or N, where N is a number of bytes from 1 to {SYMBOLIC_MAX}"
            )),
            (name, Some(number)) => Ok(FileArg(name.map(PathBuf::from), number as usize)),
        }
    }
}

/// Parts of a file that are solved for: its name, if it is said, and from where to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolArg {
    /// The file.
    pub file: Option<PathBuf>,
    /// The parts, in order, none of which overlaps another.
    pub ranges: Vec<std::ops::Range<u64>>,
}

impl std::str::FromStr for PoolArg {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolArg, String> {
        let (file, parts) = match text.rsplit_once(':') {
            Some((file, parts)) => (Some(PathBuf::from(file)), parts),
            None => (None, text),
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<u64>().ok(),
        };
        let range = |part: &str| match (part.split_once('-'), part.split_once('+')) {
            (Some((from, to)), _) => Some(number(from)?..number(to)?),
            (_, Some((from, count))) => {
                let from = number(from)?;
                Some(from..from.checked_add(number(count)?)?)
            }
            (None, None) => None,
        };
        let mut ranges = Vec::new();
        for part in parts.split(',') {
            let range = range(part).filter(|range| !range.is_empty());
            ranges.push(range.ok_or_else(|| {
                format!("'{part}' is no range: write FROM-TO or FROM+COUNT, in bytes")
            })?);
        }
        ranges.sort_by_key(|range| range.start);
        if ranges.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err("the ranges overlap".to_owned());
        }
        let (first, last) = (ranges[0].start, ranges[ranges.len() - 1].end);
        if last - first > SYMBOLIC_MAX {
            return Err(format!("they lie more than {SYMBOLIC_MAX} bytes apart"));
        }
        if i64::try_from(last).is_err() {
            return Err("no file is as large as that".to_owned());
        }
        if file
            .as_ref()
            .is_some_and(|file| file.as_os_str().is_empty())
        {
            return Err("there is no name in front of ':'".to_owned());
        }
        Ok(PoolArg { file, ranges })
    }
}

/// `brownout symex`
#[derive(Debug, Args)]
pub struct SymexArgs {
    /// Treat files that match GLOB as persistent memory (repeatable)
    ///
    /// As in 'brownout check'.
    #[arg(long = "pm", value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Solve for N bytes of standard input, which are blanks to begin with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), group = "symbolic")]
    pub stdin_symbolic: Option<u32>,

    /// Solve for N bytes of the file NAME, or of a file that takes the place of '@@' in the
    /// arguments if there is no NAME
    ///
    /// The file holds nothing else, and blanks to begin with.
    #[arg(long, value_name = "[NAME:]N", group = "symbolic")]
    pub file_symbolic: Option<FileArg>,

    /// Solve for N bytes in each of the places where the arguments have '@@1', '@@2' and so on,
    /// which are blanks to begin with
    ///
    /// A byte that is zero ends its argument.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), group = "symbolic")]
    pub arguments_symbolic: Option<u32>,

    /// Solve for N bytes that a client sends to the program, a server; they are blanks to begin
    /// with
    ///
    /// --socket says where it listens, if not where it listens first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), group = "symbolic")]
    pub socket_symbolic: Option<u32>,

    /// Solve for the bytes in RANGE of FILE, which hold to begin with what the set-up has left
    /// there
    ///
    /// What would the program do on any content there? RANGE is FROM-TO (TO is not part of it) or
    /// FROM+COUNT, in bytes, '0x' in front is for hexadecimal numbers; several are separated by
    /// commas. FILE may be left out if --pm names one file.
    #[arg(long, value_name = "[FILE:]RANGE", group = "symbolic")]
    pub pool_symbolic: Option<PoolArg>,

    /// The program is a server, and gets its input over a connection
    ///
    /// As in 'brownout fuzz'.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, default_missing_value = "auto")]
    pub socket: Option<brownout_symex::Endpoint>,

    /// Make the first input of the operations in FILE, and solve for their fields
    ///
    /// The same file as --operations of 'brownout fuzz': 'set {key:8} 0 0 2\r\n{data:2}'. Each
    /// operation comes once, or as often as its weight says; what is not a field is never changed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["symbolic", "input"])]
    pub template: Option<PathBuf>,

    /// Begin with the bytes of FILE as the input
    ///
    /// With a number of bytes to solve for, only as many count, or blanks are added behind them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pool_symbolic")]
    pub input: Option<PathBuf>,

    /// Let the program read FILE as its standard input. If nothing else is solved for, its bytes
    /// are
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stdin: Option<PathBuf>,

    /// Run CMD first: what it makes is what every run begins with
    ///
    /// For instance, it creates the pool. CMD is a shell command.
    #[arg(long, value_name = "CMD")]
    pub setup: Option<String>,

    /// A run that takes longer than this hangs
    ///
    /// The first gets five times as long before that is believed. Default: 20 times what the
    /// slowest run has taken so far, from 1s (500ms once a run has hung) to 20s, and at least 10s
    /// for the first that hangs.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub hang_after: Option<Duration>,

    /// Which branch is turned next: pm, coverage, depth-first or random
    ///
    /// pm turns first what leads to new code, tells apart how far a run has come with persistent
    /// memory, and prefers what leads to more of it; coverage does not. depth-first turns the last
    /// branch of the newest path, random any; both try no inputs but those that are solved for.
    #[arg(long, value_name = "NAME", default_value = "pm")]
    pub strategy: OrderArg,

    /// Seed of all chance: with the same number of paths, the same search
    ///
    /// That holds for one search (--jobs 1), as far as nothing is ended by a clock: a run that
    /// hangs, a question that is too hard for the solver, explorations.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Search for this long (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub time: Duration,

    /// Stop after N paths
    #[arg(long, value_name = "N")]
    pub paths: Option<u64>,

    /// Stop as soon as an error is found
    #[arg(long)]
    pub until_found: bool,

    /// Let the program see the processor as it is
    ///
    /// Otherwise it is told that there are no AVX, SSE4 or BMI instructions, so that libraries
    /// choose functions that can be solved for. Those that it uses without asking work all the
    /// same. A C library that was built to need them refuses to start without this option.
    #[arg(long)]
    pub native_cpu: bool,

    /// Ask z3 what the built-in solver gives up; FILE is z3, or a program that takes its options
    ///
    /// It is called as 'FILE -in -T:SECONDS', reads SMT-LIB and answers '(check-sat)' and
    /// '(get-value …)'. A name without '/' is looked up in PATH. The statistics say how often it
    /// was asked (external_asked) and had an answer (external_answered).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath)]
    pub solver: Option<PathBuf>,

    /// Keep the campaign in DIR: findings, and in DIR/tests an input for each new way through code
    /// that uses persistent memory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Go on with the campaign in DIR, from where it was ended or killed
    ///
    /// The inputs that were kept are run first.
    #[arg(long, requires = "out")]
    pub resume: bool,

    /// Search with N side by side, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: u32,

    /// What runs after a crash, as a shell command: explore crashes in paths that do something new
    /// to persistent memory
    ///
    /// As in 'brownout fuzz': with standard input as the input, each line of it is an atomic
    /// operation.
    #[arg(long, value_name = "CMD")]
    pub recover: Option<String>,

    /// How much of the time may go into explorations: 20 or 20%. Default: 20 with --recover, else 0
    ///
    /// Without --recover, the program itself recovers, with no input.
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub explore_share: Option<f64>,

    /// Put the inputs of findings into FOLDER
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "brownout-symex")]
    pub folder: PathBuf,

    /// Where data becomes persistent
    ///
    /// As in 'brownout check'.
    #[arg(long, value_parser = domains(), default_value = Domain::X86.name(), help_heading = MODEL_HEADING)]
    pub domain: Domain,

    /// Which rules.
    #[command(flatten)]
    pub rules: RuleEdits,

    /// Load a rule of your own from the shared library FILE (repeatable)
    ///
    /// As in 'brownout check': it looks at every run.
    #[arg(long, value_name = "FILE[:OPTIONS]", value_hint = ValueHint::FilePath, help_heading = RULES_HEADING)]
    pub rule: Vec<OsString>,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,

    /// The program and its arguments, after '--'
    ///
    /// A name without '/' is looked up in PATH. Scripts run under their interpreter.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What can be done with a campaign besides fuzzing.
#[derive(Debug, Subcommand)]
pub enum FuzzCommand {
    /// Show the tree of images of a campaign
    Tree(FuzzTreeArgs),
    /// Run a test case of a campaign, or that of a finding, once more
    ///
    /// It is run under the rules of 'brownout check', on its image, in a private view of the
    /// machine. The exit status is 1 if there are findings that count.
    Repro(FuzzReproArgs),
    /// Write down what it takes to make an image of a campaign again: files, inputs and a script
    Export(FuzzExportArgs),
    /// Write the smallest set of inputs that shows what all test cases of a campaign show
    ///
    /// All test cases are run again. The folder can be the seeds of another campaign, or the input
    /// folder of AFL++. What only shows on images that no input makes (after a crash, or when the
    /// program starts on them) is not in it; the cases that show it are listed.
    Min(FuzzMinArgs),
}

/// `brownout fuzz tree`
#[derive(Debug, Args)]
pub struct FuzzTreeArgs {
    /// The campaign's folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// `brownout fuzz repro`
#[derive(Debug, Args)]
pub struct FuzzReproArgs {
    /// The campaign's folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// A test case (12, or the name of its file), or a finding (16 digits)
    #[arg(value_name = "ID")]
    pub id: String,
    /// Run it natively; the exit status is the program's
    ///
    /// What shows only after a crash (findings of explorations) is recovery on what the crash has
    /// left.
    #[arg(long)]
    pub native: bool,
}

/// `brownout fuzz export`
#[derive(Debug, Args)]
pub struct FuzzExportArgs {
    /// The campaign's folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// An image (img:5); or a test case or a finding, whose image is meant
    #[arg(value_name = "ID")]
    pub id: String,
    /// Write it into FOLDER
    #[arg(long, short = 'o', value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "exported")]
    pub output: PathBuf,
}

/// `brownout fuzz min`
#[derive(Debug, Args)]
pub struct FuzzMinArgs {
    /// The campaign's folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Write the inputs into FOLDER, which must be new or empty
    #[arg(long, short = 'o', value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "minimised")]
    pub output: PathBuf,
}

/// What steers a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Steering {
    /// What is done to persistent memory, and edges
    Pm,
    /// Edges alone
    Edges,
}

/// Where images of a campaign come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImageSource {
    /// The program, and crashes that the model allows
    Model,
    /// Nowhere: each run begins as the first one
    None,
    /// Bytes of the first image are flipped
    Mutate,
}

/// What a crash cannot tear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// 8 aligned bytes
    Word,
    /// A cache line
    Line,
}

/// What is promised about names and sizes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// One journal, in order
    Ordered,
    /// Each change by itself
    Posix,
}

/// How to crash and recover, for every analysis that does.
#[derive(Debug, Args)]
pub struct RecoveryArgs {
    /// Run CMD first; what it does is not explored
    ///
    /// For instance, it creates the pool. CMD is a shell command.
    #[arg(long, value_name = "CMD", help_heading = RECOVERY_HEADING)]
    pub setup: Option<String>,

    /// What runs after a crash, as a shell command
    ///
    /// Default: the program again, with the same arguments and the same input.
    #[arg(long, value_name = "CMD", help_heading = RECOVERY_HEADING)]
    pub recover: Option<String>,

    /// Let recovery read FILE as its standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = RECOVERY_HEADING)]
    pub recover_stdin: Option<PathBuf>,

    /// What recovery must fulfil, beside ending well: 'ops', 'ops:ordered' or 'cmd:CHECKER'
    /// (repeatable)
    #[arg(long, value_parser = oracle, value_name = "ORACLE", help_heading = RECOVERY_HEADING)]
    pub oracle: Vec<OracleArg>,

    /// Stop after this time and report what was found (90s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = RECOVERY_HEADING)]
    pub time: Option<Duration>,

    /// A recovery that takes longer than this hangs
    ///
    /// Most hangs are seen much earlier, by counting steps. Default: 50 times what a recovery
    /// takes, at least 10s.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = RECOVERY_HEADING)]
    pub hang_after: Option<Duration>,
}

/// `90`, `90s`, `1.5m`, `2h`.
/// What recovery must fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleArg {
    /// It prints what is there after whole operations.
    Operations {
        /// In that order.
        ordered: bool,
    },
    /// This command is content.
    Checker(String),
}

fn oracle(text: &str) -> Result<OracleArg, String> {
    match text.split_once(':') {
        None if text == "ops" => Ok(OracleArg::Operations { ordered: false }),
        Some(("ops", "ordered")) => Ok(OracleArg::Operations { ordered: true }),
        Some(("cmd", command)) if !command.trim().is_empty() => {
            Ok(OracleArg::Checker(command.to_owned()))
        }
        _ => Err("there are 'ops', 'ops:ordered' and 'cmd:CHECKER'".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit '{unit}'; use s, m or h")),
    };
    let count: f64 = digits.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(count * seconds).map_err(|_| "not a duration".to_owned())
}

/// A share of a hundred, with or without its sign.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let share: f64 = number
        .parse()
        .map_err(|_| "not a number of per cent".to_owned())?;
    match (0.0..=100.0).contains(&share) {
        true => Ok(share),
        false => Err("a share is at least 0 and at most 100 per cent".to_owned()),
    }
}

/// What becomes of findings, for every analysis.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The report's form
    #[arg(long, value_enum, default_value_t = ReportFormat::Terminal, help_heading = REPORT_HEADING)]
    pub format: ReportFormat,

    /// Write the report to FILE
    ///
    /// Default: the terminal form goes to stderr, which leaves stdout to the program; the others
    /// go to stdout.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT_HEADING)]
    pub output: Option<PathBuf>,

    /// When to use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto, help_heading = REPORT_HEADING)]
    pub color: ColorChoice,

    /// Show every finding in full, also those of one cause
    #[arg(long, help_heading = REPORT_HEADING)]
    pub all: bool,

    /// Say nothing if there is nothing wrong
    ///
    /// For the forms that people read. What was found, and that not everything was looked at, is
    /// said nevertheless.
    #[arg(short, long, help_heading = REPORT_HEADING)]
    pub quiet: bool,

    /// What counts for the exit status (separated by commas)
    ///
    /// correctness: findings of correctness. performance: all findings. nothing-checked: that no
    /// persistent memory was touched, which is exit status 3. never: nothing. Default: correctness;
    /// and nothing-checked, too, where the variable CI is set, as CI services do.
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',', action = clap::ArgAction::Set, num_args = 1, hide_possible_values = true, help_heading = REPORT_HEADING)]
    pub fail_on: Vec<FailOn>,

    /// Name the test suite of a JUnit report. Default: after the program
    #[arg(long, value_name = "NAME", help_heading = REPORT_HEADING)]
    pub suite: Option<String>,

    /// Accept that this was not looked at: it does not make the report 'incomplete' (repeatable)
    ///
    /// A report names what was not looked at as 'limit[NAME]'. Unless it is accepted, nothing found
    /// is then no success, and the exit status is 3. What is accepted is still told.
    #[arg(long, value_name = "LIMIT", value_delimiter = ',', value_parser = limits(), hide_possible_values = true, help_heading = REPORT_HEADING)]
    pub accept: Vec<Limit>,

    /// Exit with N instead of 1 if there are findings that count
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..),
        help_heading = REPORT_HEADING
    )]
    pub error_exitcode: Option<u8>,

    /// Hide the findings that FILE describes (repeatable)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT_HEADING)]
    pub suppressions: Vec<PathBuf>,

    /// Write suppressions for what is found to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT_HEADING)]
    pub gen_suppressions: Option<PathBuf>,

    /// Leave out what FILE, an earlier report of the form json, has already
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT_HEADING)]
    pub baseline: Option<PathBuf>,

    /// Write which source lines touched persistent memory to FILE, as lcov has it
    ///
    /// Each is a test of its own: stores, write-backs, fences and transactions of the program; what
    /// runs after a crash and reads or stores to persistent memory; and where the power failed. It
    /// is the sum of all runs of this command. A line with the count 0 could write back, fence or
    /// call libpmem's functions, and was not seen to; of other lines that were not executed, none
    /// is named. 'genhtml FILE -o DIR' shows it beside the source; the forms json and html have
    /// it, too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REPORT_HEADING)]
    pub coverage: Option<PathBuf>,
}

/// The report's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    Terminal,
    /// All that is known, for programs
    Json,
    /// A page for the browser, in one file
    Html,
    /// SARIF 2.1.0, for editors and code hosts
    Sarif,
    /// JUnit XML, for CI
    Junit,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What counts for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Findings of correctness
    Correctness,
    /// All findings
    Performance,
    /// That no persistent memory was touched
    NothingChecked,
    /// Nothing
    Never,
}

/// Whose options and habits to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// The Valgrind tool
    Pmemcheck,
    /// Valgrind's core, as ctest reads it; 'brownout valgrind' takes its options, too
    Valgrind,
}

/// Options of pmemcheck that Brownout does not have by the same name. What becomes of them is
/// decided in [`crate::compat`].
#[derive(Debug, Default, Args)]
pub struct PmemcheckArgs {
    /// Report overwritten stores
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub mult_stores: Option<bool>,
    /// Allowed distance of overwritten stores
    #[arg(long, hide = true, requires = "compat", value_name = "N")]
    pub indiff: Option<u64>,
    /// Log stores
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub log_stores: Option<bool>,
    /// Log their stacks
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub log_stores_stacktraces: Option<bool>,
    /// So many frames
    #[arg(long, hide = true, requires = "compat", value_name = "N")]
    pub log_stores_stacktraces_depth: Option<u64>,
    /// Where the output goes
    #[arg(long, hide = true, requires = "compat", conflicts_with = "output", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log_file: Option<PathBuf>,
    /// Report superfluous flushes
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub flush_check: Option<bool>,
    /// Flushes act on whole lines
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub flush_align: Option<bool>,
    /// See the instructions
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub isa_rec: Option<bool>,
    /// So many frames of a stack
    #[arg(long, hide = true, requires = "compat", value_name = "N")]
    pub num_callers: Option<usize>,
    /// Suppressions for what was found stand behind the report
    #[arg(long, hide = true, requires = "compat")]
    pub print_suppressions: bool,
    /// End with the number of errors
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub error_summary: Option<bool>,
    /// End with a summary
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub print_summary: Option<bool>,
    /// clflush needs a fence
    #[arg(long, hide = true, requires = "compat", value_parser = BoolishValueParser::new(), value_name = "yes|no")]
    pub expect_fence_after_clflush: Option<bool>,
}

/// Words that stand for values: who writes another one is told which there are, or which is near.
fn words<T: Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
    meaning: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names)
        .try_map(move |name| meaning(&name).ok_or("this word stands for nothing"))
}

fn domains() -> impl TypedValueParser<Value = Domain> {
    words(Domain::ALL.map(Domain::name), Domain::from_name)
}

/// That nothing was looked at at all cannot be accepted.
fn limits() -> impl TypedValueParser<Value = Limit> {
    let limits = Limit::ALL.into_iter();
    let limits = limits.filter(|limit| *limit != Limit::Untouched);
    words(limits.map(Limit::name), Limit::from_name)
}

/// Rules, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every rule of `check`.
    All,
    /// Those of a severity that are on by default.
    Group(Severity),
    /// This one.
    One(BuiltIn),
    /// The one of that name which `--rule` loads, if there is one.
    Custom(String),
}

/// Names of groups of rules, beside the rules' own.
const GROUPS: [(&str, Selection); 3] = [
    ("correctness", Selection::Group(Severity::Correctness)),
    ("performance", Selection::Group(Severity::Performance)),
    ("all", Selection::All),
];

impl Selection {
    fn from_name(name: &str) -> Option<Selection> {
        let group = GROUPS.iter().find(|(group, _)| *group == name);
        let group = group.map(|(_, selection)| selection.clone());
        group.or_else(|| rules::find(name).map(|rule| Selection::One(rule.is)))
    }
}

fn selections() -> impl TypedValueParser<Value = Selection> {
    let rules = rules::of(Analysis::Check).map(|rule| rule.id);
    words(
        rules.chain(GROUPS.map(|(name, _)| name)),
        Selection::from_name,
    )
}

/// As [`selections`], but of a name that is in no catalogue it is only known later whether a custom
/// rule has it.
#[derive(Clone)]
struct Selections;

impl TypedValueParser for Selections {
    type Value = Selection;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Selection, clap::Error> {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match value.to_str() {
            Some(name)
                if Selection::from_name(name).is_none()
                    && !name.is_empty()
                    && name.chars().all(is_letter) =>
            {
                Ok(Selection::Custom(name.to_owned()))
            }
            _ => selections().parse_ref(command, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let rules = rules::of(Analysis::Check).map(|rule| rule.id);
        let names = rules.chain(GROUPS.map(|(name, _)| name));
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

fn built_ins() -> impl TypedValueParser<Value = BuiltIn> {
    let find = |name: &str| rules::find(name).map(|rule| rule.is);
    words(RULES.iter().map(|rule| rule.id), find)
}

/// The options behind [`RuleEdits`].
#[derive(Debug, Args)]
struct RuleFlags {
    /// Switch rules on (separated by commas)
    ///
    /// RULE is an id of 'brownout explain', that of a rule that --rule loads, or one of
    /// correctness, performance, all. Rules that are off by default are switched on by their ids
    /// and by all only. --only, --enable and --disable act in the order in which they are given.
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = Selections, hide_possible_values = true, help_heading = RULES_HEADING)]
    enable: Vec<Selection>,

    /// Switch rules off
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = Selections, hide_possible_values = true, help_heading = RULES_HEADING)]
    disable: Vec<Selection>,

    /// Switch these rules on and all others off
    #[arg(long, value_name = "RULE", value_delimiter = ',', action = clap::ArgAction::Set, num_args = 1, value_parser = Selections, hide_possible_values = true, help_heading = RULES_HEADING)]
    only: Vec<Selection>,
}

/// One step in choosing rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleEdit {
    /// All built-in ones off, and custom ones, too, if that is followed by the name of one.
    Clear { custom: bool },
    /// These on.
    Enable(Selection),
    /// These off.
    Disable(Selection),
}

/// What `--only`, `--enable` and `--disable` ask for, in the order given, which clap's own fields
/// would lose.
#[derive(Debug, Default)]
pub struct RuleEdits(pub Vec<RuleEdit>);

/// Where no custom rule is loaded, none can be meant, and whoever has misspelt the name of a rule
/// is told which is near.
fn refuse_custom<'r>(
    matches: &ArgMatches,
    id: &str,
    mut rules: impl Iterator<Item = &'r Selection>,
) -> Result<(), clap::Error> {
    let has_custom = matches.try_contains_id("rule").unwrap_or(false);
    let custom = rules.find_map(|rule| match rule {
        Selection::Custom(name) => Some(name),
        _ => None,
    });
    match custom {
        Some(name) if !has_custom => {
            let mut command = RuleFlags::augment_args(clap::Command::new(""));
            command.build();
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            selections()
                .parse_ref(&command, arg, OsStr::new(name))
                .map(drop)
        }
        _ => Ok(()),
    }
}

impl FromArgMatches for RuleEdits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        for id in ["enable", "disable", "only"] {
            let rules = matches.get_many::<Selection>(id).into_iter().flatten();
            refuse_custom(matches, id, rules)?;
        }
        let mut edits = Vec::new();
        let mut take = |id: &str, edit: fn(Selection) -> RuleEdit| {
            let rules = matches.get_many::<Selection>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            let first = edits.len();
            edits.extend(places.zip(rules.cloned().map(edit)));
            edits.get(first).map(|(place, _)| *place)
        };
        take("enable", RuleEdit::Enable);
        take("disable", RuleEdit::Disable);
        if let Some(place) = take("only", RuleEdit::Enable) {
            // Sorting is stable, so this comes before the names at the same place.
            let mut rules = matches.get_many::<Selection>("only").into_iter().flatten();
            let custom = rules.any(|rule| matches!(rule, Selection::Custom(_)));
            edits.insert(0, (place, RuleEdit::Clear { custom }));
        }
        edits.sort_by_key(|(place, _)| *place);
        Ok(RuleEdits(edits.into_iter().map(|(_, edit)| edit).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RuleEdits {
    fn augment_args(command: clap::Command) -> clap::Command {
        RuleFlags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        RuleFlags::augment_args_for_update(command)
    }
}

/// `brownout explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The rule's id
    #[arg(value_name = "RULE", value_parser = built_ins(), hide_possible_values = true)]
    pub rule: Option<BuiltIn>,
}

/// `brownout replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The token, as the report shows it
    #[arg(value_name = "TOKEN")]
    pub token: String,

    /// Only show what the token would run, and where
    #[arg(long, conflicts_with = "yes")]
    pub show: bool,

    /// Run it natively in gdb, and stop there
    ///
    /// store: in front of the store that a crash would lose. crash: where the power may fail, at
    /// the finding's last event that is an instruction. Both are for findings of 'brownout check'
    /// and 'brownout explore'; the program runs once under Brownout and then in gdb, on the files
    /// as they are now, and leaves them so. recovery: in recovery, on the crash image of a finding
    /// of 'brownout explore'.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "show")]
    pub gdb: Option<Stage>,

    /// Run it without asking
    ///
    /// A token holds a command line. It is shown first; on a terminal you are asked, elsewhere this
    /// option is needed.
    #[arg(long)]
    pub yes: bool,
}

/// Where the debugger stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// In front of the store that a crash would lose
    Store,
    /// At the last event of the finding: where the power may fail
    Crash,
    /// In recovery, on the crash image
    Recovery,
}

/// `brownout report`
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Reports that --format json has written; with --compare the old one and the new one
    ///
    /// The folder of a campaign, as `--out` of fuzz, race and symex names it, counts as a report of
    /// what was found until now, and the page shows what was reached when. The campaign may go on
    /// meanwhile.
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,

    /// Serve the page to this machine's browsers, and keep it up to date while a campaign goes on
    ///
    /// Its address is printed; only who knows it is served, and only from this machine. Ctrl-C ends
    /// it. Nothing is written.
    #[arg(long, conflicts_with = "compare", group = "shown")]
    pub watch: bool,

    /// With --watch: the port to serve at. Default: any that is free
    #[arg(
        long,
        value_name = "N",
        requires = "watch",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,

    /// Tell what is new, what is gone and what is still there, from the first report to the second
    #[arg(long)]
    pub compare: bool,

    /// Write the page to FILE
    ///
    /// Default: the page goes to stdout, unless that is a terminal. With --compare there is a page
    /// only if this is given.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "shown")]
    pub output: Option<PathBuf>,

    /// Open the page, by $BROWSER or xdg-open
    #[arg(long, requires = "shown")]
    pub open: bool,

    /// Shorten paths: home folders become ~, the working folder becomes .
    ///
    /// Everywhere in the page. Replay tokens hold paths that cannot be shortened, so they are left
    /// out.
    #[arg(long)]
    pub redact_paths: bool,
}

/// `brownout valgrind`. The words are taken apart in [`crate::valgrind`], before clap sees them;
/// this is what help shows.
#[derive(Debug, Args)]
pub struct ValgrindArgs {
    /// Options as Valgrind has them, then the program and its arguments
    #[arg(
        value_name = "WORD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// `brownout merge`
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Reports that --format json has written
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// The report.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// `brownout completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// Annotations for C and C++
    #[value(name = "brownout.h")]
    Brownout,
    /// PMRace's names
    #[value(name = "pmrace.h")]
    Pmrace,
    /// PMTest's names, for C
    #[value(name = "pmtest.h")]
    Pmtest,
    /// PMTest's names, for C++
    #[value(name = "pmtest.hh")]
    PmtestCpp,
    /// Custom rules in C and C++
    #[value(name = "brownout_rule.h")]
    Rule,
}

/// `brownout header`
#[derive(Debug, Args)]
pub struct HeaderArgs {
    /// Which one
    #[arg(value_enum, value_name = "NAME", default_value_t = Header::Brownout)]
    pub name: Header,
}

/// `brownout man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write brownout.1, brownout-check.1 and so on into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
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
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        required_unless_present = "pmemcheck_log"
    )]
    pub output: Option<PathBuf>,

    /// Write a store log to FILE, as pmemcheck does with --log-stores=yes
    ///
    /// pmreorder reads it. With it, no trace is needed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pmemcheck_log: Option<PathBuf>,

    /// Replace FILE even if it is not a trace
    #[arg(long)]
    pub force: bool,

    /// Record loads from persistent memory, too
    #[arg(long)]
    pub loads: bool,

    /// Let one thread run at a time, and decide which: go-on, round-robin, random, pct, pm or
    /// delay, with ':SEED'; or 'list:…'
    ///
    /// Decisions are possible at accesses to persistent memory, locked instructions, system calls
    /// and where threads start and end. The same seed gives the same run, event for event. What was
    /// decided is printed as a list, which gives the same run, too; 'list:@FILE' takes it from a
    /// file. Implies --deterministic.
    #[arg(long, value_name = "STRATEGY")]
    pub schedule: Option<ScheduleArg>,

    /// Write the list of what was decided to FILE
    ///
    /// '--schedule list:@FILE' then gives the same run again.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "schedule")]
    pub schedule_out: Option<PathBuf>,

    /// Record how threads exclude each other and wait for each other, too
    ///
    /// With --loads, that is what 'brownout check --threads --trace' needs.
    #[arg(long)]
    pub threads: bool,

    /// Which addresses the program gets with --deterministic: the same number, the same ones
    ///
    /// Scripts of 'brownout fuzz export' use it, so that what a program keeps in its files is what
    /// it was in the campaign.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=7),
        requires = "deterministic",
        hide_short_help = true
    )]
    pub layout: u32,

    /// Do not record the stored bytes, only where and how many
    ///
    /// Makes the trace smaller. Crash states cannot be computed from such a trace.
    #[arg(long, conflicts_with = "verify")]
    pub no_values: bool,

    /// Prove that nothing was missed
    ///
    /// Keeps a copy of each tracked file as it was at first (beside the trace, while the program
    /// runs), applies the recorded stores to it, and compares the result with what the program
    /// left, byte for byte. Each difference is shown with the nearest event; the exit code is
    /// then 1.
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
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    fn edits(words: &str) -> Vec<RuleEdit> {
        let line = format!("brownout check {words} --trace f");
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Check(args) => args.rules.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rules_are_edited_in_the_order_given() {
        let rule = |name: &str| Selection::from_name(name).unwrap();
        let on = |name: &str| RuleEdit::Enable(rule(name));
        let off = |name: &str| RuleEdit::Disable(rule(name));
        assert_eq!(edits(""), []);
        assert_eq!(
            edits("--disable all --enable clean-flush,empty-fence --disable clean-flush"),
            [
                off("all"),
                on("clean-flush"),
                on("empty-fence"),
                off("clean-flush")
            ]
        );
        assert_eq!(
            edits("--enable fresh-log --only clean-flush,empty-fence --enable not-ordered"),
            [
                on("fresh-log"),
                RuleEdit::Clear { custom: false },
                on("clean-flush"),
                on("empty-fence"),
                on("not-ordered")
            ]
        );
        // The last one counts, as for every option with one value.
        assert_eq!(
            edits("--only clean-flush --only empty-fence"),
            [RuleEdit::Clear { custom: false }, on("empty-fence")]
        );
    }
    #[test]
    fn every_word_stands_for_a_value() {
        for rule in rules::of(Analysis::Check) {
            let expected = RuleEdit::Enable(Selection::One(rule.is));
            assert_eq!(edits(&format!("--enable {}", rule.id)), [expected]);
        }
        let off = |selection| [RuleEdit::Disable(selection)];
        assert_eq!(edits("--disable all"), off(Selection::All));
        let group = Selection::Group(Severity::Performance);
        assert_eq!(edits("--disable performance"), off(group));

        let parse = |words: &str| {
            let line = format!("brownout {words} -- ls");
            Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
        };
        for domain in Domain::ALL {
            let Ok(Command::Explore(args)) = parse(&format!("explore --domain {}", domain.name()))
            else {
                panic!("{domain:?}")
            };
            assert_eq!(args.domain, domain);
        }
        for limit in Limit::ALL {
            let parsed = parse(&format!("explore --accept {}", limit.name()));
            match (limit, parsed) {
                (Limit::Untouched, parsed) => assert!(parsed.is_err()),
                (_, Ok(Command::Explore(args))) => assert_eq!(args.report.accept, [limit]),
                (_, other) => panic!("{limit:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn shares_may_have_their_sign() {
        for (text, expected) in [("20", 20.0), ("20%", 20.0), ("0", 0.0), ("12.5 %", 12.5)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for wrong in ["", "%", "20%%", "x", "NaN", "-1", "101%", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        let lines = [
            "fuzz --out d --explore-share 20%",
            "symex --stdin-symbolic 4 --explore-share 20%",
        ];
        for line in lines {
            let line = format!("brownout {line} -- ls");
            match Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command) {
                Ok(Command::Fuzz(args)) => assert_eq!(args.explore_share, 20.0),
                Ok(Command::Symex(args)) => assert_eq!(args.explore_share, Some(20.0)),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn oracles_are_told_apart_where_they_are_given() {
        let operations = |ordered| Ok(OracleArg::Operations { ordered });
        assert_eq!(oracle("ops"), operations(false));
        assert_eq!(oracle("ops:ordered"), operations(true));
        let checker = OracleArg::Checker("./a b:c".to_owned());
        assert_eq!(oracle("cmd:./a b:c"), Ok(checker));
        for wrong in ["", "op", "ops:", "ops:order", "cmd", "cmd:", "cmd: "] {
            assert!(oracle(wrong).is_err(), "{wrong}");
        }
    }
}
