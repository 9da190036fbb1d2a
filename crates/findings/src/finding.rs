//! Findings and reports as data.

use serde::{Deserialize, Serialize};

use crate::touches::Touched;
use crate::{Coverage, Role, RuleId, Severity, Verdict};

/// Version of the JSON form. Grows by one when a field changes its meaning or goes; new fields do
/// not count.
pub const SCHEMA_VERSION: u32 = 1;

/// One level of a call stack, innermost first in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Function, demangled.
    pub function: Option<String>,
    /// Source file as the compiler recorded it.
    pub file: Option<String>,
    /// Line from 1.
    pub line: Option<u32>,
    /// Column from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// File that holds the code.
    pub module: Option<String>,
    /// Address in the terms of the module's ELF file (what `addr2line -e MODULE` takes).
    pub offset: u64,
    /// The compiler put this call into the next frame's function.
    #[serde(default)]
    pub inlined: bool,
}

impl Frame {
    /// Code of the compiler or of a language's standard library that was compiled into the program:
    /// intrinsics, `std::copy`, `copy_from_slice`. It does what its caller asks for.
    pub fn is_standard_library(&self) -> bool {
        /// Headers of compilers and systems.
        const BEGINNINGS: [&str; 4] = [
            "/usr/lib/gcc/",
            "/usr/lib/llvm",
            "/usr/include/",
            "/usr/local/include/",
        ];
        /// C++'s library, and Rust's if its sources are installed.
        const PARTS: [&str; 2] = ["/include/c++/", "/rustlib/src/rust/library/"];
        self.file.as_deref().is_some_and(|file| {
            BEGINNINGS.iter().any(|start| file.starts_with(start))
                || PARTS.iter().any(|part| file.contains(part))
                // As Rust's library calls itself: /rustc/COMMIT/library/core/….
                || file.starts_with("/rustc/") && file.contains("/library/")
        })
    }
}

/// Bytes of persistent memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file behind the mapping.
    pub file: String,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
    /// Address of the first byte in the program that was run.
    pub address: u64,
    /// What the program calls these bytes, if that is certain: `root->count`, or a name that it has
    /// registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Something that happened in the run and belongs to a finding. Reports number them from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What it was, one word: `store`, `flush`, `fence`, `log`, `alloc`, `assertion`, `tx-end`,
    /// `unmap`, `exit`, `load`, ….
    pub role: Role,
    /// One line: "8 bytes are stored here". No final stop.
    pub text: String,
    /// Which thread, numbered from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Place in the run's total order of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Which bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Where in the code, innermost first. Empty if it has no place there (the end of the run).
    pub stack: Vec<Frame>,
}

impl Event {
    /// An event without a place. The rest is added by whoever knows it.
    pub fn new(role: Role, text: impl Into<String>) -> Event {
        Event {
            role,
            text: text.into(),
            ..Event::default()
        }
    }
}

/// How to see it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Versioned, self-contained.
    pub token: String,
    /// A command to paste.
    pub command: String,
}

/// A crash image on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashFile {
    /// What the program calls the file.
    pub path: String,
    /// What the crash left of it; `None` if the file is not there yet.
    pub image: Option<String>,
}

/// How to see a crash's consequence natively, without this tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reproduction {
    /// The tracked files after the crash.
    pub files: Vec<CrashFile>,
    /// A shell command that puts them in place and runs recovery.
    pub command: String,
    /// The same under a debugger.
    pub gdb: String,
    /// What happens then: `exit code 1`, `signal 11`, `hang`.
    pub status: String,
    /// What recovery printed.
    pub stdout: String,
    /// True if exactly this was seen natively when the report was made.
    pub confirmed: bool,
}

/// What a run did to a few cache lines until the power failed, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// In the order of the run.
    pub steps: Vec<TimelineStep>,
    /// What recovery does on what a crash at the same point leaves if nothing is lost, if that was
    /// tried: "exit code 0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_lost: Option<NothingLost>,
}

/// The crash at the same point that loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NothingLost {
    /// How recovery ends: `exit code 0`, `signal 11`, `hang`.
    pub status: String,
    /// What is wrong with it; `None` if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symptom: Option<String>,
}

/// Something that a run did to the lines of a [`Timeline`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineStep {
    /// `store`, `flush`, `fence` or `sync`.
    pub role: Role,
    /// Which thread, numbered from 1.
    pub thread: u32,
    /// Place in the run's total order of events.
    pub index: u64,
    /// Which bytes; a fence has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What became of a store in the crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fate: Option<Fate>,
    /// Where in the code, in few words: `list.c:41`.
    pub at: String,
    /// How many steps on these lines, right before this one, are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What became of a store in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It had reached persistent memory for certain.
    Durable,
    /// It could have been lost, and is there.
    Survived,
    /// It is not there.
    Lost,
    /// Some of its bytes are there.
    LostInPart,
}

/// How much one place in the code writes back and fences. The statistics of `check` have a list of
/// these, by the name [`Effort::STATISTIC`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Where in the code, innermost first. Empty for all places together that are not listed.
    pub stack: Vec<Frame>,
    /// Lines that are written back, and had to be.
    pub needed: u64,
    /// Lines that are written back, and need not have been: they were clean, or under way already.
    pub needless: u64,
    /// Fences that complete something.
    pub fences: u64,
    /// Fences with nothing to complete.
    pub needless_fences: u64,
}

impl Effort {
    /// What the list is called in a report's statistics.
    pub const STATISTIC: &str = "write_backs_by_place";

    /// The same places have this much more to do.
    pub fn add(&mut self, more: &Effort) {
        self.needed = self.needed.saturating_add(more.needed);
        self.needless = self.needless.saturating_add(more.needless);
        self.fences = self.fences.saturating_add(more.fences);
        self.needless_fences = self.needless_fences.saturating_add(more.needless_fences);
    }
}

/// A program of the run, and the test that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The test, as its runner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Who runs the test: `ctest`, `cargo test`, `nextest`, `pytest`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// The program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The folder that the program was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The kernel's number of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule.
    pub rule: RuleId,
    /// How bad.
    pub severity: Severity,
    /// One sentence, no final stop.
    pub message: String,
    /// The same for the same bug in another build: made of functions, not of lines and addresses.
    pub fingerprint: String,
    /// Equal for findings that one line of code causes (the store site).
    pub root_cause: String,
    /// How often it was seen.
    pub count: u64,
    /// What happened, in order; the first is where to look first.
    pub events: Vec<Event>,
    /// What to do about it, most useful first. Sentences without final stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
    /// What else is worth knowing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where the power fails, if the finding is about one crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_point: Option<Event>,
    /// How to see it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// How to see it natively, if it is about one crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduction: Option<Reproduction>,
    /// In which programs and tests it was seen, if that says more than the command line of the
    /// analysis: the first ones, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// What the run did to the cache lines in question, if the analysis knows more of that than the
    /// events tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// A line of source that would mend it, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sketch: Option<Sketch>,
}

/// A line to be put into a source file. It is a sketch: nobody has compiled it, and the program may
/// have other names for what it calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sketch {
    /// The file, as frames name it.
    pub file: String,
    /// The line behind which it goes.
    pub line: u32,
    /// The new line, with its indentation.
    pub text: String,
}

/// As many origins are kept of a finding.
const ORIGINS_MAX: usize = 16;

impl Finding {
    /// A finding that was seen once. The rest is added by whoever knows it.
    pub fn new(rule: impl Into<RuleId>, severity: Severity, message: impl Into<String>) -> Finding {
        Finding {
            rule: rule.into(),
            severity,
            message: message.into(),
            fingerprint: String::new(),
            root_cause: String::new(),
            count: 1,
            events: Vec::new(),
            help: Vec::new(),
            notes: Vec::new(),
            crash_point: None,
            replay: None,
            reproduction: None,
            origins: Vec::new(),
            timeline: None,
            sketch: None,
        }
    }

    /// It was seen there, too. Of one test, or one command line, the first process counts.
    pub fn seen_in(&mut self, origins: impl IntoIterator<Item = Origin>) {
        for origin in origins {
            let is_same = |known: &Origin| {
                (&known.test, &known.runner, &known.command)
                    == (&origin.test, &origin.runner, &origin.command)
            };
            if self.origins.len() < ORIGINS_MAX && !self.origins.iter().any(is_same) {
                self.origins.push(origin);
            }
        }
    }

    /// All events, each once: the crash point stands among them, or by itself.
    pub fn all_events(&self) -> impl Iterator<Item = &Event> {
        let listed = self
            .crash_point
            .as_ref()
            .is_some_and(|p| self.events.contains(p));
        let alone = self.crash_point.iter().filter(move |_| !listed);
        self.events.iter().chain(alone)
    }
}

/// Who made the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `brownout`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Analysed {
    /// `check`, `explore`, ….
    pub analysis: String,
    /// The program and its arguments; empty if a recording was analysed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// The recording, if one was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How the program ended: "exit code 0", "signal 11".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The words after `brownout` that gave this report; empty if they are not known, or are no
    /// text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What was taken to survive a power failure, by the name that `--domain` has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// How long the analysis took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
}

impl Analysed {
    /// By the analysis of that name.
    pub fn by(analysis: &str) -> Analysed {
        Analysed {
            analysis: analysis.to_owned(),
            ..Analysed::default()
        }
    }
}

/// Some lines of a source file, as they were when the report was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The file, as the frames of stacks name it.
    pub file: String,
    /// It was changed after the program was built, so that lines may have moved.
    #[serde(default)]
    pub newer: bool,
    /// Runs of lines, in ascending order; none touches the next.
    pub excerpts: Vec<Excerpt>,
}

/// Lines that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The number of the first one, from 1.
    pub line: u32,
    /// The lines, without their ends.
    pub text: Vec<String>,
}

/// All that an analysis has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Who made it.
    pub tool: Tool,
    /// What was looked at.
    pub analysed: Analysed,
    /// In one word.
    pub verdict: Verdict,
    /// What was not looked at.
    #[serde(default)]
    pub coverage: Coverage,
    /// What is wrong: correctness first, then by root cause.
    pub findings: Vec<Finding>,
    /// Findings that a suppression hides.
    #[serde(default)]
    pub suppressed: u64,
    /// Findings that the baseline knows already.
    #[serde(default)]
    pub known: u64,
    /// So many findings of the baseline are not here: they were mended or suppressed, or the run
    /// did not come to them. `None` without a baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// What a reader must know: truncated, not followed, unused suppressions, ….
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The source lines around what the findings name, where they could be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceText>,
    /// Which lines touched persistent memory, if that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<Touched>,
    /// Numbers that the analysis gives (events, time, …), by name.
    #[serde(default)]
    pub statistics: serde_json::Map<String, serde_json::Value>,
}
