//! `fuzzer_stats` and `plot_data` as AFL++ 4.04 writes them, so that `afl-whatsup`, `afl-plot` and
//! people's scripts work.
//!
//! **Guarantee.** Every field that AFL++ 4.04c writes is there, in its order, with its name and
//! padding. `afl-whatsup` has a shell execute this file after quoting its values; so nothing in a
//! value can end the quotes or be expanded. It also divides by the number of executions and of
//! cases, so [`FuzzerStats::is_presentable`] says when neither is 0.
//!
//! **Deviations.**
//! 1. `afl_version` is that of the format, followed by our name, because scripts compare its
//!    beginning.
//! 2. What we have no counterpart of (cache of test cases, havoc expansion, affinity) is what AFL++
//!    writes if it does not use it.
//! 3. A line is added to `plot_data` in one piece. A line that was cut short by `kill -9` is
//!    removed before the next one is added.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The first line of `plot_data`.
pub const PLOT_HEAD: &str = "# relative_time, cycles_done, cur_item, corpus_count, pending_total, pending_favs, map_size, \
     saved_crashes, saved_hangs, max_depth, execs_per_sec, total_execs, edges_found";

/// What `fuzzer_stats` says. Times are in seconds since 1970, and 0 where something has not
/// happened yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FuzzerStats {
    /// When the campaign was begun.
    pub start_time: u64,
    /// When this is written.
    pub last_update: u64,
    /// Seconds that it ran, without breaks.
    pub run_time: u64,
    /// The tool; `afl-whatsup` looks whether it lives.
    pub fuzzer_pid: u32,
    /// How many times all of the queue was gone through.
    pub cycles_done: u64,
    /// How many of these, at the end, without anything new.
    pub cycles_wo_finds: u64,
    /// Executions.
    pub execs_done: u64,
    /// Executions a second over all of the time.
    pub execs_per_sec: f64,
    /// Executions a second over the last minute.
    pub execs_ps_last_min: f64,
    /// Cases in the queue.
    pub corpus_count: u64,
    /// The favoured among them.
    pub corpus_favored: u64,
    /// Those that were found here.
    pub corpus_found: u64,
    /// Those that came from other fuzzers.
    pub corpus_imported: u64,
    /// Those that do not behave the same each time.
    pub corpus_variable: u64,
    /// Length of the longest chain of cases, each made from the one before.
    pub max_depth: u64,
    /// The case that is being worked on.
    pub cur_item: u64,
    /// Favoured cases that were not worked on yet.
    pub pending_favs: u64,
    /// Cases that were not worked on yet.
    pub pending_total: u64,
    /// How much of the behaviour repeats, of 100.
    pub stability: f64,
    /// How much of the map is reached, of 100.
    pub bitmap_cvg: f64,
    /// Files in `crashes`.
    pub saved_crashes: u64,
    /// Files in `hangs`.
    pub saved_hangs: u64,
    /// When the last case was added to the queue.
    pub last_find: u64,
    /// When the last was added to `crashes`.
    pub last_crash: u64,
    /// When the last was added to `hangs`.
    pub last_hang: u64,
    /// Executions since then.
    pub execs_since_crash: u64,
    /// Milliseconds that an execution may take.
    pub exec_timeout: u64,
    /// What the slowest took.
    pub slowest_exec_ms: u64,
    /// Memory of the largest process.
    pub peak_rss_mb: u64,
    /// Edges that were reached.
    pub edges_found: u64,
    /// Edges that there are, as far as known.
    pub total_edges: u64,
    /// Edges that are not always taken.
    pub var_byte_count: u64,
    /// Words of the dictionary that were found, not given.
    pub auto_dict_entries: u64,
    /// What is fuzzed, for people.
    pub banner: String,
    /// `default`, or in which way it is unusual.
    pub target_mode: String,
    /// How the tool was called.
    pub command_line: String,
}

impl FuzzerStats {
    /// Whether `afl-whatsup` can work with it: it divides by these.
    pub fn is_presentable(&self) -> bool {
        self.execs_done > 0 && self.corpus_count > 0
    }
}

impl fmt::Display for FuzzerStats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(out, "{name:<18}: {value}");
        let percent = |value: f64| format!("{:.2}%", finite(value));
        let rate = |value: f64| format!("{:.2}", finite(value));
        line("start_time", &self.start_time)?;
        line("last_update", &self.last_update)?;
        line("run_time", &self.run_time)?;
        line("fuzzer_pid", &self.fuzzer_pid)?;
        line("cycles_done", &self.cycles_done)?;
        line("cycles_wo_finds", &self.cycles_wo_finds)?;
        line("execs_done", &self.execs_done)?;
        line("execs_per_sec", &rate(self.execs_per_sec))?;
        line("execs_ps_last_min", &rate(self.execs_ps_last_min))?;
        line("corpus_count", &self.corpus_count)?;
        line("corpus_favored", &self.corpus_favored)?;
        line("corpus_found", &self.corpus_found)?;
        line("corpus_imported", &self.corpus_imported)?;
        line("corpus_variable", &self.corpus_variable)?;
        line("max_depth", &self.max_depth)?;
        line("cur_item", &self.cur_item)?;
        line("pending_favs", &self.pending_favs)?;
        line("pending_total", &self.pending_total)?;
        line("stability", &percent(self.stability))?;
        line("bitmap_cvg", &percent(self.bitmap_cvg))?;
        line("saved_crashes", &self.saved_crashes)?;
        line("saved_hangs", &self.saved_hangs)?;
        line("last_find", &self.last_find)?;
        line("last_crash", &self.last_crash)?;
        line("last_hang", &self.last_hang)?;
        line("execs_since_crash", &self.execs_since_crash)?;
        line("exec_timeout", &self.exec_timeout)?;
        line("slowest_exec_ms", &self.slowest_exec_ms)?;
        line("peak_rss_mb", &self.peak_rss_mb)?;
        line("cpu_affinity", &-1)?;
        line("edges_found", &self.edges_found)?;
        line("total_edges", &self.total_edges)?;
        line("var_byte_count", &self.var_byte_count)?;
        line("havoc_expansion", &0)?;
        line("auto_dict_entries", &self.auto_dict_entries)?;
        line("testcache_size", &0)?;
        line("testcache_count", &0)?;
        line("testcache_evict", &0)?;
        line("afl_banner", &harmless(&self.banner))?;
        let version = concat!("++4.04c (brownout ", env!("CARGO_PKG_VERSION"), ")");
        line("afl_version", &version)?;
        line("target_mode", &harmless(&self.target_mode))?;
        // afl-whatsup leaves this line out, whatever is in it; but it must stay one line.
        let command: String = self.command_line.chars().map(one_line).collect();
        line("command_line", &command)
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

fn one_line(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// Text that a shell takes literally between double quotes.
fn harmless(text: &str) -> String {
    let one = |c: char| match c {
        '"' | '$' | '`' | '\\' | '!' => '_',
        c => one_line(c),
    };
    text.chars().map(one).collect()
}

/// One line of `plot_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlotLine {
    /// Seconds that the campaign ran.
    pub relative_time: u64,
    /// How many times all of the queue was gone through.
    pub cycles_done: u64,
    /// The case that is being worked on.
    pub cur_item: u64,
    /// Cases in the queue.
    pub corpus_count: u64,
    /// Cases that were not worked on yet.
    pub pending_total: u64,
    /// The favoured among these.
    pub pending_favs: u64,
    /// How much of the map is reached, of 100; AFL++ calls it `map_size`.
    pub bitmap_cvg: f64,
    /// Files in `crashes`.
    pub saved_crashes: u64,
    /// Files in `hangs`.
    pub saved_hangs: u64,
    /// Length of the longest chain of cases.
    pub max_depth: u64,
    /// Executions a second now.
    pub execs_per_sec: f64,
    /// Executions.
    pub total_execs: u64,
    /// Edges that were reached.
    pub edges_found: u64,
}

impl PlotLine {
    /// The line that belongs to these figures.
    pub fn of(stats: &FuzzerStats, execs_per_sec_now: f64) -> PlotLine {
        PlotLine {
            relative_time: stats.run_time,
            cycles_done: stats.cycles_done,
            cur_item: stats.cur_item,
            corpus_count: stats.corpus_count,
            pending_total: stats.pending_total,
            pending_favs: stats.pending_favs,
            bitmap_cvg: stats.bitmap_cvg,
            saved_crashes: stats.saved_crashes,
            saved_hangs: stats.saved_hangs,
            max_depth: stats.max_depth,
            execs_per_sec: execs_per_sec_now,
            total_execs: stats.execs_done,
            edges_found: stats.edges_found,
        }
    }
}

impl fmt::Display for PlotLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}, {}, {}, {}, {}, {}, {:.2}%, {}, {}, {}, {:.2}, {}, {}",
            self.relative_time,
            self.cycles_done,
            self.cur_item,
            self.corpus_count,
            self.pending_total,
            self.pending_favs,
            finite(self.bitmap_cvg),
            self.saved_crashes,
            self.saved_hangs,
            self.max_depth,
            finite(self.execs_per_sec),
            self.total_execs,
            self.edges_found
        )
    }
}

/// Adds a line to the file `plot_data`, which begins with [`PLOT_HEAD`]. On an error the file is as
/// it was.
pub fn append_plot(path: &Path, line: &PlotLine) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path)?;
    let length = file.metadata()?.len();
    // Lines are about a hundred bytes long; the last one ends within these.
    let mut tail = vec![0; length.min(1 << 12) as usize];
    let tail_at = length - tail.len() as u64;
    file.read_exact_at(&mut tail, tail_at)?;
    let torn = tail.iter().rev().take_while(|b| **b != b'\n').count();
    let end = length - torn as u64;
    let text = match end {
        0 => format!("{PLOT_HEAD}\n{line}\n"),
        _ => format!("{line}\n"),
    };
    if torn > 0 {
        file.set_len(end)?;
    }
    file.write_all_at(text.as_bytes(), end).inspect_err(|_| {
        // The error that matters is the first; what is left would be removed as a torn line.
        let _ = file.set_len(end);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// Written by Debian's afl-fuzz 4.04c, but for the values that we never have.
    const WRITTEN_BY_AFL: &str = "\
start_time        : 1794833833
last_update       : 1794833858
run_time          : 25
fuzzer_pid        : 5329
cycles_done       : 2
cycles_wo_finds   : 1
execs_done        : 61319
execs_per_sec     : 2450.90
execs_ps_last_min : 0.00
corpus_count      : 24
corpus_favored    : 6
corpus_found      : 21
corpus_imported   : 1
corpus_variable   : 0
max_depth         : 2
cur_item          : 7
pending_favs      : 0
pending_total     : 11
stability         : 100.00%
bitmap_cvg        : 66.67%
saved_crashes     : 1
saved_hangs       : 1
last_find         : 1794833848
last_crash        : 1794833848
last_hang         : 1794833834
execs_since_crash : 27834
exec_timeout      : 20
slowest_exec_ms   : 0
peak_rss_mb       : 0
cpu_affinity      : -1
edges_found       : 10
total_edges       : 15
var_byte_count    : 0
havoc_expansion   : 0
auto_dict_entries : 0
testcache_size    : 0
testcache_count   : 0
testcache_evict   : 0
afl_banner        : ./t
afl_version       : ++4.04c
target_mode       : shmem_testcase default
command_line      : afl-fuzz -M main -i in -o sync -V 25 -- ./t
";
    const PLOT_LINE_OF_AFL: &str = "25, 2, 7, 24, 11, 0, 66.67%, 1, 1, 2, 3850.29, 61319, 10";

    fn stats() -> FuzzerStats {
        FuzzerStats {
            start_time: 1794833833,
            last_update: 1794833858,
            run_time: 25,
            fuzzer_pid: 5329,
            cycles_done: 2,
            cycles_wo_finds: 1,
            execs_done: 61319,
            execs_per_sec: 2450.9,
            corpus_count: 24,
            corpus_favored: 6,
            corpus_found: 21,
            corpus_imported: 1,
            max_depth: 2,
            cur_item: 7,
            pending_total: 11,
            stability: 100.0,
            bitmap_cvg: 66.6666,
            saved_crashes: 1,
            saved_hangs: 1,
            last_find: 1794833848,
            last_crash: 1794833848,
            last_hang: 1794833834,
            execs_since_crash: 27834,
            exec_timeout: 20,
            edges_found: 10,
            total_edges: 15,
            banner: "./t".into(),
            target_mode: "shmem_testcase default".into(),
            command_line: "afl-fuzz -M main -i in -o sync -V 25 -- ./t".into(),
            ..FuzzerStats::default()
        }
    }

    #[test]
    fn the_statistics_are_those_of_afl() {
        let ours = stats().to_string();
        for (ours, theirs) in ours.lines().zip(WRITTEN_BY_AFL.lines()) {
            if theirs.starts_with("afl_version") {
                assert!(ours.starts_with(theirs), "{ours}");
            } else {
                assert_eq!(ours, theirs);
            }
        }
        assert_eq!(ours.lines().count(), WRITTEN_BY_AFL.lines().count());
    }

    #[test]
    fn a_shell_reads_them_as_afl_whatsup_has_it_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut stats = stats();
        stats.banner = "\"; touch stolen; \"$(touch stolen) `touch stolen` \\".into();
        stats.target_mode = "two\nlines=\"$(touch stolen)".into();
        stats.command_line = "a\"$(touch stolen)\ntouch stolen".into();
        fs::write(folder.path().join("fuzzer_stats"), stats.to_string()).unwrap();
        // The same two commands as in the script.
        let script = r#"sed 's/^command_line.*$/_skip:1/;s/[ ]*:[ ]*/="/;s/$/"/' fuzzer_stats > sourced
            . ./sourced
            echo "$((cur_item * 100 / corpus_count)) $bitmap_cvg $execs_done $afl_banner""#;
        let shell = Command::new("sh")
            .args(["-c", script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(shell.stdout).unwrap();
        assert!(text.starts_with("29 66.67% 61319 _; touch"), "{text}");
        assert_eq!(shell.stderr, b"");
        assert!(!folder.path().join("stolen").exists());
    }

    #[test]
    fn figures_that_make_no_sense_are_zero() {
        let mut stats = stats();
        stats.execs_per_sec = f64::NAN;
        stats.stability = f64::INFINITY;
        let text = stats.to_string();
        assert!(text.contains("execs_per_sec     : 0.00\n"), "{text}");
        assert!(text.contains("stability         : 0.00%\n"), "{text}");
        assert!(!FuzzerStats::default().is_presentable());
        assert!(stats.is_presentable());
    }

    #[test]
    fn the_plot_is_that_of_afl_also_after_a_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot_data");
        let line = PlotLine::of(&stats(), 3850.29);
        assert_eq!(line.to_string(), PLOT_LINE_OF_AFL);
        append_plot(&path, &line).unwrap();
        append_plot(&path, &line).unwrap();
        let whole = format!("{PLOT_HEAD}\n{PLOT_LINE_OF_AFL}\n{PLOT_LINE_OF_AFL}\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            append_plot(&path, &line).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let (head, lines) = text.split_once('\n').unwrap();
            assert_eq!(head, PLOT_HEAD);
            assert!(lines.lines().all(|l| l == PLOT_LINE_OF_AFL), "{text}");
        }
    }
}
