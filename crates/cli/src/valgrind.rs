//! `brownout valgrind`, and the name `brownout-valgrind`: for whoever runs programs under Valgrind.
//!
//! `ctest -T memcheck`, scripts and makefiles call `valgrind OPTIONS PROGRAM ARGUMENTS`. With this
//! in its place, they run `brownout check`: Valgrind's options are turned into ours, and the report
//! has Valgrind's form.
//!
//! ```text
//!  brownout-valgrind --tool=memcheck -q --log-file=x.%p ./prog a   ─▶   check --compat=valgrind --quiet --output=x.123 … -- ./prog a
//! ```
//!
//! Guarantee: each of Valgrind's options either does what it does there, or a note says that it has
//! no effect. Options of `check` that have a value are taken, too, in the form `--option=value`, as
//! all of Valgrind's are. Options in the variable `VALGRIND_OPTS` come before those of the command
//! line, and of an option that is given twice the last one counts. As under Valgrind, the exit
//! status is the program's own unless `--error-exitcode` is given.
//!
//! Deviations: all processes are followed, whatever `--trace-children` says, and have one report.
//! What Valgrind's tools look for is not looked for; so files with Valgrind's own suppressions,
//! which are about that, have no effect, and a note says so. Files named `.valgrindrc` are not
//! read.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use brownout_report::bounded;

use crate::exit::Failure;

/// The name by which the tool takes Valgrind's place, and the command that does the same.
const NAME: &str = "brownout-valgrind";
const COMMAND: &str = "valgrind";

/// What was asked for as of Valgrind, in our terms.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// The words after `brownout`.
    pub words: Vec<OsString>,
    /// What has no effect, one sentence each, without final stop.
    pub notes: Vec<String>,
}

/// The words after Valgrind's name, if the tool was called in its place.
pub fn asked(arguments: &[OsString]) -> Option<&[OsString]> {
    let (name, rest) = arguments.split_first()?;
    let base = name.as_bytes().rsplit(|byte| *byte == b'/').next();
    if base == Some(NAME.as_bytes()) {
        return Some(rest);
    }
    match rest.split_first() {
        Some((first, rest)) if first == COMMAND => {
            // Help is about the command, and clap has it.
            let wants_help = rest.first().is_some_and(|w| w == "--help" || w == "-h");
            (!wants_help).then_some(rest)
        }
        _ => None,
    }
}

/// Options of `check` that mean the same here.
const OWN: [&str; 14] = [
    "pm",
    "enable",
    "disable",
    "only",
    "domain",
    "rule",
    "accept",
    "baseline",
    "config",
    "stdin",
    "save-trace",
    "fail-on",
    "color",
    "jobs",
];
/// Options of pmemcheck, which `check` understands.
const PMEMCHECK: [&str; 11] = [
    "mult-stores",
    "indiff",
    "log-stores",
    "log-stores-stacktraces",
    "log-stores-stacktraces-depth",
    "flush-check",
    "flush-align",
    "isa-rec",
    "print-summary",
    "expect-fence-after-clflush",
    "error-summary",
];
/// What memcheck and its kin look for; nobody expects it of this tool, and ctest gives some of it
/// always.
const SILENT: [&str; 16] = [
    "leak-check",
    "show-reachable",
    "show-leak-kinds",
    "leak-resolution",
    "errors-for-leak-kinds",
    "track-origins",
    "undef-value-errors",
    "show-possibly-lost",
    "keep-stacktraces",
    "freelist-vol",
    "demangle",
    "vgdb",
    "vgdb-error",
    "error-limit",
    "sigill-diagnostics",
    "default-suppressions",
];

/// Options that may be given several times; of the others the last one counts.
const REPEATED: [&str; 7] = [
    "pm",
    "enable",
    "disable",
    "only",
    "rule",
    "accept",
    "suppressions",
];

/// The words of the command line behind those that a variable holds, which Valgrind takes apart at
/// blanks.
pub fn with_variable(words: &[OsString], variable: Option<OsString>) -> Vec<OsString> {
    let variable = variable.unwrap_or_default();
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let options = variable.as_bytes().split(blank);
    let options = options.filter(|word| word.starts_with(b"-") && *word != b"--");
    let options = options.map(|word| OsStr::from_bytes(word).to_owned());
    options.chain(words.iter().cloned()).collect()
}

/// Whether a file has suppressions in Valgrind's own form: its first line that is no comment opens
/// a brace.
fn has_valgrinds_form(path: &Path) -> bool {
    let Ok(text) = bounded::read(path, SUPPRESSIONS_MAX, "suppressions") else {
        // What is wrong with it is said when it is read.
        return false;
    };
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    first.is_some_and(|line| line.starts_with(b"{"))
}

/// Longer files are no suppressions.
const SUPPRESSIONS_MAX: u64 = 64 << 20;

/// Our options, in the order in which they were given.
#[derive(Default)]
struct Given(Vec<(String, OsString)>);

impl Given {
    /// The last value counts, unless an option may be given several times.
    fn push(&mut self, name: &str, value: &OsStr) {
        if !REPEATED.contains(&name) {
            self.forget(name);
        }
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// As if the option had not been given.
    fn forget(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }
}

/// Turns Valgrind's words into ours.
pub fn translate(words: &[OsString]) -> Result<Translated, Failure> {
    let mut given = Given::default();
    let mut notes = Vec::new();
    let mut counts = false;
    let options = words
        .iter()
        .take_while(|word| word.as_bytes().starts_with(b"-") && *word != "--")
        .count();
    let (options, program) = words.split_at(options);
    let program = match program.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => program,
    };
    let switch = OsStr::new("");
    for option in options {
        let text = option.to_string_lossy();
        let (name, value) = split(option);
        let value_text = value.to_string_lossy();
        let no_effect = |why: &str| format!("{text} has no effect: {why}");
        match name.as_str() {
            "tool" => match &*value_text {
                "memcheck" | "pmemcheck" | "none" => {}
                _ => notes.push(no_effect("what is looked for is persistent memory")),
            },
            "q" | "quiet" => given.push("quiet", switch),
            "v" | "verbose" => given.push("all", switch),
            "error-exitcode" => match &*value_text {
                "0" => counts = false,
                _ => {
                    counts = true;
                    given.push("error-exitcode", &value);
                }
            },
            "log-file" => given.push("output", &expanded(&value, &|name| std::env::var_os(name))?),
            "log-fd" => {
                let number: u32 = value_text.parse().map_err(|_| {
                    Failure::usage(format!("{text}: a file descriptor is a number"))
                })?;
                match number {
                    // The last one counts: a file that was named before has none of it.
                    2 => given.forget("output"),
                    _ => given.push("output", OsStr::new(&format!("/proc/self/fd/{number}"))),
                }
            }
            "num-callers" => given.push("num-callers", &value),
            "trace-children" => {
                if value_text == "no" {
                    notes.push(no_effect("all processes are followed"));
                }
            }
            "gen-suppressions" => match &*value_text {
                "no" => {}
                _ => given.push("print-suppressions", switch),
            },
            "suppressions" if has_valgrinds_form(Path::new(&value)) => notes.push(no_effect(
                "the file is of Valgrind's own form, and hides what Brownout does not look for",
            )),
            "suppressions" => given.push("suppressions", &value),
            "xml" if value_text == "yes" => {
                return Err(Failure::usage(
                    "--xml=yes: Valgrind's XML is not written; 'brownout check --format junit' or sarif is for machines",
                ));
            }
            "xml" => {}
            "version" => {
                // Who asks wants to know whether it is Valgrind's kind at all.
                return Ok(Translated {
                    words: vec!["--version".into()],
                    notes: Vec::new(),
                });
            }
            "h" | "help" => {
                return Ok(Translated {
                    words: vec![COMMAND.into(), "--help".into()],
                    notes: Vec::new(),
                });
            }
            name if OWN.contains(&name) => given.push(name, &value),
            name if PMEMCHECK.contains(&name) => given.push(name, &value),
            name if SILENT.contains(&name) => {}
            _ => notes.push(no_effect("Brownout has nothing like it")),
        }
    }
    if program.is_empty() {
        return Err(Failure::usage(
            "no program was given; put it behind the options",
        ));
    }
    if !counts {
        given.forget("error-exitcode");
    }
    let mut words: Vec<OsString> = vec!["check".into(), "--compat=valgrind".into()];
    if !given.0.iter().any(|(name, _)| name == "fail-on") {
        words.push(match counts {
            true => "--fail-on=correctness".into(),
            false => "--fail-on=never".into(),
        });
    }
    words.extend(given.0.into_iter().map(|(name, value)| {
        let mut word = OsString::from(format!("--{name}"));
        // A switch has no value.
        if !value.is_empty() {
            word.push("=");
            word.push(value);
        }
        word
    }));
    words.push("--".into());
    words.extend_from_slice(program);
    Ok(Translated { words, notes })
}

/// `--name=value` in two. What has no value has an empty one.
fn split(option: &OsStr) -> (String, OsString) {
    let bytes = option.as_bytes();
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let at = bytes.iter().position(|byte| *byte == b'=');
    let (name, value) = match at {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    (
        String::from_utf8_lossy(name).into_owned(),
        OsString::from_vec(value.to_vec()),
    )
}

/// A name of a log as Valgrind expands it: `%p` is the process, `%n` a number that differs from run
/// to run, `%q{NAME}` a variable.
fn expanded(
    name: &OsStr,
    variable: &dyn Fn(&OsStr) -> Option<OsString>,
) -> Result<OsString, Failure> {
    let mut out = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            out.push(*first);
            rest = behind;
            continue;
        }
        rest = match behind {
            [b'%', behind @ ..] => {
                out.push(b'%');
                behind
            }
            [b'p' | b'n', behind @ ..] => {
                out.extend_from_slice(std::process::id().to_string().as_bytes());
                behind
            }
            [b'q', b'{', behind @ ..] if behind.contains(&b'}') => {
                let end = behind.iter().position(|byte| *byte == b'}');
                let (name, behind) = behind.split_at(end.unwrap_or(0));
                let name = OsStr::from_bytes(name);
                let value = variable(name).ok_or_else(|| {
                    Failure::usage(format!(
                        "--log-file: the variable {} is not set",
                        crate::terminal::quote(name)
                    ))
                })?;
                out.extend_from_slice(value.as_bytes());
                &behind[1..]
            }
            _ => {
                return Err(Failure::usage(
                    "--log-file: after '%' comes p, n, q{VARIABLE} or another '%'",
                ));
            }
        };
    }
    Ok(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    fn translated(line: &str) -> (String, usize) {
        let translated = translate(&words(line)).expect("it is understood");
        let words: Vec<String> = translated
            .words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        (words.join(" "), translated.notes.len())
    }

    #[test]
    fn it_is_known_by_its_name_and_as_a_command() {
        let asks = |line: &str| asked(&words(line)).map(<[_]>::len);
        assert_eq!(asks("/opt/bin/brownout-valgrind -q ./a"), Some(2));
        assert_eq!(asks("brownout valgrind -q ./a"), Some(2));
        assert_eq!(asks("brownout valgrind --help"), None);
        assert_eq!(asks("brownout check -- valgrind"), None);
        assert_eq!(asks(""), None);
    }

    #[test]
    fn what_ctest_gives_needs_no_words() {
        let line = "-q --tool=memcheck --leak-check=yes --show-reachable=yes --num-callers=50 --log-file=a.log ./t 1 --x";
        assert_eq!(
            translated(line),
            (
                "check --compat=valgrind --fail-on=never --quiet --num-callers=50 --output=a.log -- ./t 1 --x".into(),
                0
            )
        );
    }

    #[test]
    fn what_has_no_effect_is_named() {
        let (line, notes) = translated("--tool=helgrind --trace-children=no --time-stamp=yes ./t");
        assert_eq!(notes, 3);
        assert_eq!(line, "check --compat=valgrind --fail-on=never -- ./t");
    }

    #[test]
    fn findings_count_if_an_exit_code_is_given() {
        let (line, _) = translated("--error-exitcode=9 --pm=*.pool --gen-suppressions=all -- ./t");
        assert_eq!(
            line,
            "check --compat=valgrind --fail-on=correctness --error-exitcode=9 --pm=*.pool --print-suppressions -- ./t"
        );
        let (line, _) = translated("--error-exitcode=0 ./t");
        assert_eq!(line, "check --compat=valgrind --fail-on=never -- ./t");
    }

    #[test]
    fn the_last_of_several_counts_and_the_variable_comes_first() {
        let variable = |line: &str, value: &str| {
            let all = with_variable(&words(line), Some(value.into()));
            let all: Vec<String> = (all.iter())
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            translated(&all.join(" "))
        };
        assert_eq!(
            variable(
                "--num-callers=50 --pm=b ./t -q",
                " --num-callers=12 --pm=a\t--time-stamp=yes"
            ),
            (
                "check --compat=valgrind --fail-on=never --pm=a --num-callers=50 --pm=b -- ./t -q"
                    .into(),
                1
            )
        );
        let (line, _) = variable("--error-exitcode=0 ./t", "--error-exitcode=9");
        assert_eq!(line, "check --compat=valgrind --fail-on=never -- ./t");
        assert_eq!(with_variable(&words("-q ./t"), None), words("-q ./t"));
    }

    #[test]
    fn suppressions_of_valgrinds_own_form_have_no_effect() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |text: &str| {
            let path = folder.path().join("a.supp");
            std::fs::write(&path, text).expect("a write");
            translated(&format!("--suppressions={} ./t", path.display()))
        };
        let (line, notes) = of("# of my project\n\n{\n  name\n  Memcheck:Leak\n  fun:malloc\n}\n");
        assert_eq!(line, "check --compat=valgrind --fail-on=never -- ./t");
        assert_eq!(notes, 1);
        let (line, notes) = of("# ours\n[[suppress]]\nrule = 'x'\n");
        assert!(line.contains(" --suppressions=/") && notes == 0, "{line}");
        assert!(
            translated("--suppressions=/no/such/file ./t")
                .0
                .contains("--suppressions=")
        );
    }

    #[test]
    fn names_of_logs_are_expanded() {
        let variable = |name: &OsStr| (name == "A").then(|| "b c".into());
        let name = |text: &str| {
            let name = expanded(OsStr::new(text), &variable);
            name.map(|name| name.to_string_lossy().into_owned())
                .map_err(|failure| failure.sentence)
        };
        let pid = std::process::id();
        assert_eq!(name("x.%p%%").unwrap(), format!("x.{pid}%"));
        assert_eq!(name("%q{A}.log").unwrap(), "b c.log");
        assert!(name("%q{B}").unwrap_err().contains("not set"));
        assert!(name("%z").is_err() && name("%").is_err() && name("%q{").is_err());
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        assert!(translate(&words("--tool=memcheck")).is_err());
        assert!(translate(&words("--xml=yes ./t")).is_err());
        assert!(translate(&words("--log-fd=x ./t")).is_err());
    }
}
