//! `brownout.toml`: options that a project gives once instead of on every command line.
//!
//! ```toml
//! [check]
//! pm = ["*.pool"]
//! suppressions = ["tests/brownout.supp"]
//! fail-on = "performance"
//! ```
//!
//! A table is named as a command, a key as a long option. The table becomes words in front of the
//! user's own, and one parser reads both:
//!
//! ```text
//!  brownout check [from the file: --pm=*.pool --fail-on=performance] --fail-on never -- ./prog
//! ```
//!
//! So every option, present and future, works in the file without a line of code here.
//!
//! Guarantee: the command line wins. Of an option with one value the last counts; what conflicts
//! with something on the command line is left out; a switch that the file sets is undone by
//! `--SWITCH=no`; options that can be repeated add up. What is wrong with the file is said with its
//! name and line, and a table of another command than the one at work is checked, too.
//!
//! Deviations from a plain prefix: paths and patterns in the file start in the file's folder, not
//! the current one. Outside a repository only the current folder is looked at: whoever can write to
//! a folder far above (`/tmp`) has no say in what is loaded here.

use std::any::TypeId;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use brownout_report::bounded;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};
use toml::de::{DeTable, DeValue};

use crate::cli::Cli;
use crate::exit::Failure;
use crate::resolve::{escape, plain};
use crate::terminal::quote;

/// The name that is looked for.
const FILE_NAME: &str = "brownout.toml";

/// Everything that the user and the file say, as one list of words.
#[derive(Debug)]
pub struct CommandLine {
    /// The words after `brownout`.
    pub words: Vec<OsString>,
    /// What the file added to them.
    settings: Vec<Setting>,
    /// The file, for messages.
    file: String,
}

/// One key of the file.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    /// The command that it is for: `check`, `trace dump`.
    command: String,
    /// The key, which is the option's long name.
    option: String,
    /// Where it stands, from 1.
    line: usize,
    /// Its values as clap will see them. A switch has none.
    values: Vec<OsString>,
    /// It as words of a command line.
    words: Vec<OsString>,
}

impl CommandLine {
    /// Puts what the file has to say in front of what was typed.
    pub fn complete(typed: Vec<OsString>) -> Result<CommandLine, Failure> {
        CommandLine::complete_in(typed, env::current_dir().ok().as_deref())
    }

    /// The same in the folder `here`. Without one (it may be gone) no file is looked for.
    fn complete_in(typed: Vec<OsString>, here: Option<&Path>) -> Result<CommandLine, Failure> {
        let mut root = Cli::command();
        root.build();
        let at = locate(&root, &typed);
        let (typed, switched_off) = plain_switches(at.command(), typed, at.first);
        let mut line = CommandLine {
            words: typed,
            settings: Vec::new(),
            file: String::new(),
        };
        let given = Given::new(at.command(), &line.words);
        if given.help || given.no_config || settable(at.command()).next().is_none() {
            return Ok(line);
        }
        let found = match &given.config {
            Some(path) => Some((path.clone(), read(path)?)),
            None => here.map_or(Ok(None), look_up)?,
        };
        let Some((path, text)) = found else {
            return Ok(line);
        };
        // Short in messages, where it can be.
        let short = here.and_then(|here| path.strip_prefix(here).ok());
        line.file = quote(short.unwrap_or(&path));
        let folder = fs::canonicalize(&path)
            .ok()
            .and_then(|path| path.parent().map(Path::to_owned))
            .unwrap_or_else(|| "/".into());
        let source = SourceFile {
            name: &line.file,
            text: &text,
            folder: &folder,
        };
        let name = at.name();
        line.settings = source.settings(&root)?;
        line.settings.retain(|setting| {
            setting.command == name
                && !switched_off.contains(&setting.option)
                && !given.excludes(at.command(), &setting.option)
        });
        line.insert(at.first);
        Ok(line)
    }

    /// The words as a program gets them.
    pub fn with_program_name(&self) -> impl Iterator<Item = OsString> {
        std::iter::once(OsString::from("brownout")).chain(self.words.iter().cloned())
    }

    /// The place in the file of what clap complains about, if it comes from there:
    /// `brownout.toml:3`.
    pub fn origin(&self, error: &clap::Error) -> Option<String> {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let option = text(ContextKind::InvalidArg)?.strip_prefix("--")?;
        let option = option.split([' ', '=', '[']).next()?;
        let value = text(ContextKind::InvalidValue)?;
        let setting = self.settings.iter().find(|setting| {
            setting.option == option && setting.values.iter().any(|v| v == OsStr::new(value))
        })?;
        Some(format!("{}:{}", self.file, setting.line))
    }

    /// Inserts the settings at `first`. The line then says the same without the file.
    fn insert(&mut self, first: usize) {
        if self.settings.iter().all(|setting| setting.words.is_empty()) {
            return;
        }
        let own = self.words.split_off(first);
        let mut words = without_config(std::mem::take(&mut self.words));
        words.push("--no-config".into());
        words.extend(self.settings.iter().flat_map(|s| s.words.iter().cloned()));
        words.extend(without_config(own));
        self.words = words;
    }
}

/// Which command a command line names.
pub struct Located<'a> {
    /// From the whole program to the innermost command.
    path: Vec<&'a Command>,
    /// The first word after the names of commands.
    first: usize,
}

impl<'a> Located<'a> {
    /// The innermost command.
    pub fn command(&self) -> &'a Command {
        self.path[self.path.len() - 1]
    }

    /// The names of the commands, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.path[1..].iter().map(|command| command.get_name())
    }

    /// `check`, `trace dump`; empty if there is none.
    fn name(&self) -> String {
        self.names().collect::<Vec<_>>().join(" ")
    }
}

/// Finds out which command the words name.
pub fn locate<'a>(root: &'a Command, words: &[OsString]) -> Located<'a> {
    let mut at = Located {
        path: vec![root],
        first: 0,
    };
    let mut index = 0;
    while let Some(word) = words.get(index).filter(|word| *word != "--") {
        index += 1;
        if word.as_encoded_bytes().starts_with(b"-") {
            let option = find_option(at.command(), word);
            let separate = |arg: &Arg| takes_value(arg) && !word.to_string_lossy().contains('=');
            index += usize::from(option.is_some_and(separate));
            continue;
        }
        match word.to_str().and_then(|w| at.command().find_subcommand(w)) {
            Some(command) => at.path.push(command),
            None => break,
        }
        at.first = index;
    }
    at
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The option that a word such as `--pm`, `--pm=x`, `-o` or `-ofile` gives.
fn find_option<'a>(command: &'a Command, word: &OsStr) -> Option<&'a Arg> {
    let word = word.to_string_lossy();
    match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next();
            command.get_arguments().find(|arg| arg.get_long() == name)
        }
        None => {
            let short = word.strip_prefix('-')?.chars().next()?;
            let mut arguments = command.get_arguments();
            arguments.find(|arg| arg.get_short() == Some(short))
        }
    }
}

/// Options that a table may set.
fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let helps = matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        arg.get_long().is_some() && !arg.is_global_set() && !helps
    })
}

/// Turns `--SWITCH=yes` into `--SWITCH`, and takes `--SWITCH=no` out together with what it undoes.
/// Also gives the names of switches that were switched off.
fn plain_switches(
    command: &Command,
    words: Vec<OsString>,
    first: usize,
) -> (Vec<OsString>, Vec<String>) {
    let is_switch = |name: &str| {
        let found = settable(command).find(|arg| arg.get_long() == Some(name));
        found.is_some_and(|arg| matches!(arg.get_action(), ArgAction::SetTrue))
    };
    let (mut out, mut off) = (Vec::with_capacity(words.len()), Vec::new());
    let mut ended = false;
    for (index, word) in words.into_iter().enumerate() {
        ended |= word == "--";
        let parts = match word.to_str() {
            Some(text) if index >= first && !ended => text.split_once('='),
            _ => None,
        };
        let switch = parts
            .and_then(|(name, value)| Some((name.strip_prefix("--")?, value)))
            .filter(|(name, _)| is_switch(name));
        match switch {
            Some((name, "yes" | "true")) => {
                off.retain(|other| other != name);
                out.push(format!("--{name}").into());
            }
            Some((name, "no" | "false")) => {
                let undone = OsString::from(format!("--{name}"));
                out.retain(|word| *word != undone);
                off.push(name.to_owned());
            }
            _ => out.push(word),
        }
    }
    (out, off)
}

/// What the user's own words say, as far as it matters here.
struct Given {
    /// Ids of arguments.
    ids: Vec<clap::Id>,
    config: Option<PathBuf>,
    no_config: bool,
    help: bool,
}

impl Given {
    fn new(command: &Command, words: &[OsString]) -> Given {
        let mut given = Given {
            ids: Vec::new(),
            config: None,
            no_config: false,
            help: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                // Whatever comes after it is the program.
                let program = command.get_positionals().find(|arg| arg.is_last_set());
                given.ids.extend(program.map(|arg| arg.get_id().clone()));
                break;
            }
            let text = word.to_string_lossy();
            given.help |= text == "--help" || text == "-h";
            given.no_config |= text == "--no-config";
            if text == "--config" {
                given.config = words.clone().next().map(PathBuf::from);
            } else if let Some(path) = strip_prefix(word, "--config=") {
                given.config = Some(path.into());
            }
            let option = find_option(command, word);
            given.ids.extend(option.map(|arg| arg.get_id().clone()));
        }
        given
    }

    /// True if something that was given does not go together with `option`.
    fn excludes(&self, command: &Command, option: &str) -> bool {
        let is_given = |arg: &Arg| self.ids.contains(arg.get_id());
        let Some(setting) = settable(command).find(|arg| arg.get_long() == Some(option)) else {
            return false;
        };
        // Either side may declare the conflict.
        let mut theirs = command.get_arguments().filter(|arg| is_given(arg));
        let conflicts = |one: &Arg, other: &Arg| {
            let conflicts = command.get_arg_conflicts_with(one);
            conflicts.iter().any(|arg| arg.get_id() == other.get_id())
        };
        theirs.any(|given| conflicts(given, setting) || conflicts(setting, given))
    }
}

fn strip_prefix(word: &OsStr, prefix: &str) -> Option<OsString> {
    use std::os::unix::ffi::OsStrExt;
    let rest = word.as_bytes().strip_prefix(prefix.as_bytes())?;
    Some(OsStr::from_bytes(rest).to_owned())
}

/// The words up to `--` without `--config FILE`.
fn without_config(words: Vec<OsString>) -> Vec<OsString> {
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--config" {
            words.next();
        } else if word == "--" {
            out.push(word);
            out.extend(words);
            break;
        } else if strip_prefix(&word, "--config=").is_none() {
            out.push(word);
        }
    }
    out
}

/// Longer files are no configurations.
const BYTES_MAX: u64 = 16 << 20;

fn read(path: &Path) -> Result<String, Failure> {
    bounded::read_text(path, BYTES_MAX, "a configuration").map_err(|error| {
        let path = quote(path);
        Failure::usage(format!("cannot read {path}: {}", plain(&error)))
    })
}

/// The nearest file in the folder `here` or, inside a repository, above it.
fn look_up(here: &Path) -> Result<Option<(PathBuf, String)>, Failure> {
    let root = here.ancestors().find(|folder| folder.join(".git").exists());
    let root = root.unwrap_or(here);
    let folders = here.ancestors();
    for folder in folders.take_while(|folder| folder.starts_with(root)) {
        let path = folder.join(FILE_NAME);
        if path.exists() {
            let text = read(&path)?;
            return Ok(Some((path, text)));
        }
    }
    Ok(None)
}

/// A file of settings.
struct SourceFile<'a> {
    name: &'a str,
    text: &'a str,
    /// Where its paths start.
    folder: &'a Path,
}

impl SourceFile<'_> {
    /// All settings for all commands, in the order of the file.
    fn settings(&self, root: &Command) -> Result<Vec<Setting>, Failure> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let place = error.span().map_or(0, |span| span.start);
            self.fault(place, one_line(error.message()))
        })?;
        let mut settings = Vec::new();
        self.tables(root, "", table.get_ref(), &mut settings)?;
        settings.sort_by_key(|setting| setting.line);
        Ok(settings)
    }

    /// A level that has commands below it.
    fn tables(
        &self,
        parent: &Command,
        prefix: &str,
        table: &DeTable<'_>,
        settings: &mut Vec<Setting>,
    ) -> Result<(), Failure> {
        for (key, value) in table.iter() {
            let (place, name) = (key.span().start, key.get_ref().as_ref());
            let Some(command) = parent.find_subcommand(name) else {
                let names = parent.get_subcommands().map(Command::get_name);
                let advice = advice(name, names, "tables are named as commands, such as [check]");
                return Err(self.fault(place, format!("{} is no command; {advice}", quote(name))));
            };
            let DeValue::Table(table) = value.get_ref() else {
                let name = quote(name);
                return Err(self.fault(place, format!("{name} must be a table")));
            };
            let name = format!("{prefix}{}", command.get_name());
            match command.has_subcommands() {
                true => self.tables(command, &format!("{name} "), table, settings)?,
                false => self.keys(command, &name, table, settings)?,
            }
        }
        Ok(())
    }

    /// The table of one command.
    fn keys(
        &self,
        command: &Command,
        name: &str,
        table: &DeTable<'_>,
        settings: &mut Vec<Setting>,
    ) -> Result<(), Failure> {
        for (key, value) in table.iter() {
            let (place, option) = (key.span().start, key.get_ref().as_ref());
            let Some(arg) = settable(command).find(|arg| arg.get_long() == Some(option)) else {
                let names = settable(command).filter(|arg| !arg.is_hide_set());
                let fallback = format!("'brownout {name} --help' lists the options");
                let advice = advice(option, names.filter_map(Arg::get_long), &fallback);
                let option = quote(option);
                let what = format!("'brownout {name}' has no option {option}; {advice}");
                return Err(self.fault(place, what));
            };
            let values = self
                .values(arg, value.get_ref())
                .map_err(|what| self.fault(place, format!("{option} {what}")))?;
            let Some(values) = values else { continue };
            settings.push(Setting {
                command: name.to_owned(),
                option: option.to_owned(),
                line: self.line(place),
                words: words(arg, option, &values),
                values,
            });
        }
        Ok(())
    }

    /// The values of an option, or what is wrong with them. None: as if not given.
    fn values(&self, arg: &Arg, value: &DeValue<'_>) -> Result<Option<Vec<OsString>>, String> {
        if !takes_value(arg) {
            return match value {
                DeValue::Boolean(true) => Ok(Some(Vec::new())),
                DeValue::Boolean(false) => Ok(None),
                _ => Err("takes true or false".to_owned()),
            };
        }
        let repeatable = matches!(arg.get_action(), ArgAction::Append);
        match value {
            DeValue::Array(_) if !repeatable && arg.get_value_delimiter().is_none() => {
                Err("takes one value, not a list".to_owned())
            }
            DeValue::Array(items) => {
                let items = items.iter().map(|item| self.value(arg, item.get_ref()));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Ok(Some(items).filter(|items| !items.is_empty()))
            }
            _ => Ok(Some(vec![self.value(arg, value)?])),
        }
    }

    fn value(&self, arg: &Arg, value: &DeValue<'_>) -> Result<OsString, String> {
        match value {
            DeValue::String(text) => self.placed(arg, text),
            // The digits as written; clap would not know an underscore or another base.
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                match i64::from_str_radix(&digits, number.radix()) {
                    Ok(number) => Ok(number.to_string().into()),
                    Err(_) => Err("has a number that is too large".to_owned()),
                }
            }
            DeValue::Boolean(on) if arg.get_value_parser().type_id() == TypeId::of::<bool>() => {
                Ok(if *on { "yes" } else { "no" }.into())
            }
            _ => Err("takes text or a number".to_owned()),
        }
    }

    /// A path or a pattern, with the file's folder in front of it if it is relative.
    fn placed(&self, arg: &Arg, text: &str) -> Result<OsString, String> {
        let is_path = matches!(
            arg.get_value_hint(),
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
        );
        if is_path && !text.is_empty() {
            return Ok(self.folder.join(text).into());
        }
        let anywhere = !text.contains('/') || text.starts_with('/') || text.starts_with("**/");
        if arg.get_id() != "pm" || anywhere {
            return Ok(text.into());
        }
        match self.folder.to_str() {
            Some(folder) => Ok(format!("{}/{text}", escape(folder.trim_end_matches('/'))).into()),
            None => Err("has a relative pattern in a folder whose path is not UTF-8".to_owned()),
        }
    }

    fn line(&self, place: usize) -> usize {
        let before = self.text.bytes().take(place);
        before.filter(|byte| *byte == b'\n').count() + 1
    }

    fn fault(&self, place: usize, what: impl AsRef<str>) -> Failure {
        let (name, line, what) = (self.name, self.line(place), what.as_ref());
        Failure::usage(format!("{name}:{line}: {what}"))
    }
}

/// An option with its values as words of a command line. With `=`, so that no value is taken for an
/// option.
fn words(arg: &Arg, option: &str, values: &[OsString]) -> Vec<OsString> {
    let word = |value: &OsStr| {
        let mut word = OsString::from(format!("--{option}="));
        word.push(value);
        word
    };
    match arg.get_value_delimiter() {
        _ if !takes_value(arg) => vec![format!("--{option}").into()],
        Some(delimiter) => {
            let delimiter = OsString::from(delimiter.to_string());
            vec![word(&values.join(&*delimiter))]
        }
        None => values.iter().map(|value| word(value)).collect(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// "did you mean …?", or the other sentence if nothing is near.
fn advice<'a>(name: &str, known: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    match known.min_by_key(|known| distance(known)) {
        Some(near) if distance(near) <= 1 + name.chars().count() / 3 => {
            format!("did you mean '{near}'?")
        }
        _ => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use proptest::prelude::*;
    use tempfile::TempDir;

    fn folder(text: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join(FILE_NAME), text).unwrap();
        folder
    }

    fn complete(folder: &Path, typed: &str) -> Result<CommandLine, Failure> {
        let typed = typed.split_whitespace().map(OsString::from).collect();
        CommandLine::complete_in(typed, Some(folder))
    }

    /// The words that come of a file and a command line. `@` stands for the file's folder.
    #[track_caller]
    fn words(text: &str, typed: &str) -> String {
        let folder = folder(text);
        let line = complete(folder.path(), typed).unwrap();
        let words: Vec<_> = line
            .words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let here = fs::canonicalize(folder.path()).unwrap();
        words.join(" ").replace(here.to_str().unwrap(), "@")
    }

    #[track_caller]
    fn fault(text: &str, typed: &str) -> String {
        complete(folder(text).path(), typed).unwrap_err().sentence
    }

    #[test]
    fn keys_become_options_in_front_of_the_users() {
        let text = "[check]\npm = ['*.pool', 'x']\nfail-on = 'never'\nall = true\njobs = 2\n\
                    deterministic = false\nenable = ['fresh-log', 'all']\n[record]\nforce = true\n";
        assert_eq!(
            words(text, "check --fail-on performance -- ls --all"),
            "check --no-config --pm=*.pool --pm=x --fail-on=never --all --jobs=2 \
             --enable=fresh-log,all --fail-on performance -- ls --all"
        );
        assert_eq!(words(text, "run -- ls"), "run -- ls");
        assert_eq!(
            words("[trace.dump]\nlimit = 0x1_0", "trace dump f"),
            "trace dump --no-config --limit=16 f"
        );
    }

    #[test]
    fn the_command_line_wins() {
        let text = "[check]\nonly = ['clean-flush']\nformat = 'json'\nall = true";
        let folder = folder(text);
        let typed = "check --format sarif --only empty-fence --trace f";
        let line = complete(folder.path(), typed).unwrap();
        let cli = Cli::try_parse_from(line.with_program_name()).unwrap();
        let crate::cli::Command::Check(args) = cli.command else {
            panic!("{cli:?}")
        };
        assert_eq!(args.report.format, crate::cli::ReportFormat::Sarif);
        assert!(args.report.all);
        let only = crate::cli::Selection::One(brownout_findings::BuiltIn::EmptyFence);
        let only = crate::cli::RuleEdit::Enable(only);
        let clear = crate::cli::RuleEdit::Clear { custom: false };
        assert_eq!(args.rules.0, [clear, only]);
    }

    #[test]
    fn what_conflicts_with_the_command_line_is_left_out() {
        let text =
            "[record]\nverify = true\noutput = 't'\n[check]\npm = ['x']\nall = true\ntrace = 't'";
        assert_eq!(
            words(text, "record --no-values -- ls"),
            "record --no-config --output=@/t --no-values -- ls"
        );
        assert_eq!(
            words(text, "check --trace f"),
            "check --no-config --all --trace=@/t --trace f"
        );
        assert_eq!(
            words(text, "check -- ls"),
            "check --no-config --pm=x --all -- ls"
        );
    }

    #[test]
    fn switches_can_be_undone() {
        let text = "[record]\nverify = true\nloads = true";
        assert_eq!(
            words(text, "record --verify=no -o t -- ls"),
            "record --no-config --loads -o t -- ls"
        );
        assert_eq!(
            words(
                "",
                "record --verify --verify=no --loads=yes -o t -- ls --x=no"
            ),
            "record --loads -o t -- ls --x=no"
        );
    }

    #[test]
    fn paths_and_patterns_start_in_the_files_folder() {
        let text = "[check]\nsuppressions = ['a/b', '/abs']\nrule = ['lib.so:x=1']\n\
                    pm = ['./p/*', 'name', '**/p', '/abs/*']\nbaseline = '../b'";
        assert_eq!(
            words(text, "check -- ls"),
            "check --no-config --suppressions=@/a/b --suppressions=/abs --rule=@/lib.so:x=1 \
             --pm=@/./p/* --pm=name --pm=**/p --pm=/abs/* --baseline=@/../b -- ls"
        );
    }

    #[test]
    fn special_characters_in_the_folders_name_are_no_pattern() {
        let folder = TempDir::new().unwrap();
        let odd = folder.path().join("a[1]");
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join(FILE_NAME), "[run]\n[record]\npm = ['./p']").unwrap();
        let line = complete(&odd, "record -o t -- ls").unwrap();
        let pm = line.words[2].to_string_lossy();
        assert!(pm.ends_with(r"/a\[1\]/./p"), "{pm}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let cases = [
            (
                "[check]\nformt = 'json'",
                "brownout.toml:2: 'brownout check' has no option formt; did you mean 'format'?",
            ),
            (
                "[check]\nxyzzy = 1",
                "brownout.toml:2: 'brownout check' has no option xyzzy; 'brownout check --help' lists",
            ),
            (
                "\n[chek]",
                "brownout.toml:2: chek is no command; did you mean 'check'?",
            ),
            (
                "pm = ['x']",
                "brownout.toml:1: pm is no command; tables are named as commands, such as [check]",
            ),
            ("check = 1", "brownout.toml:1: check must be a table"),
            (
                "[record]\noutput = ['a', 'b']",
                "brownout.toml:2: output takes one value, not a list",
            ),
            (
                "[record]\nforce = 'yes'",
                "brownout.toml:2: force takes true or false",
            ),
            (
                "[check]\njobs = 1.5",
                "brownout.toml:2: jobs takes text or a number",
            ),
            (
                "[check]\nformat = true",
                "brownout.toml:2: format takes text or a number",
            ),
            (
                "[check]\nconfig = 'x'",
                "brownout.toml:2: 'brownout check' has no option config",
            ),
            (
                "[check]\nhelp = true",
                "brownout.toml:2: 'brownout check' has no option help",
            ),
            (
                "[check]\nprogram = 'x'",
                "brownout.toml:2: 'brownout check' has no option program",
            ),
            ("[check]\n\npm = ", "brownout.toml:3: "),
            ("[check]\njobs = 99999999999999999999", "brownout.toml:2: "),
        ];
        for (text, expected) in cases {
            // Whichever command is at work.
            for typed in ["check -- ls", "run -- ls"] {
                let sentence = fault(text, typed);
                assert!(sentence.starts_with(expected), "{text:?}: {sentence}");
                assert!(!sentence.contains('\n'), "{sentence}");
            }
        }
    }

    #[test]
    fn bad_values_are_traced_to_the_file() {
        let origin = |text: &str, typed: &str| {
            let folder = folder(text);
            let line = complete(folder.path(), typed).unwrap();
            line.origin(&Cli::try_parse_from(line.with_program_name()).unwrap_err())
        };
        let rule = "[check]\n\nenable = ['all', 'mising-flush']";
        assert_eq!(origin(rule, "check --trace f").unwrap(), "brownout.toml:3");
        let domain = "[check]\n\n\ndomain = 'arm'";
        for typed in ["check --trace f", "check --bogus --trace f"] {
            assert_eq!(origin(domain, typed).unwrap(), "brownout.toml:4");
        }
        assert_eq!(origin(domain, "trace dump"), None);
    }

    #[test]
    fn the_users_bad_values_are_the_users() {
        let folder = folder("[check]\ndomain = 'eadr'");
        let line = complete(folder.path(), "check --domain arm --trace f").unwrap();
        let error = Cli::try_parse_from(line.with_program_name()).unwrap_err();
        assert_eq!(line.origin(&error), None);
    }

    #[test]
    fn the_file_is_looked_for_up_to_the_repositorys_root() {
        let folder = folder("[record]\nloads = true");
        let (top, deep) = (folder.path(), folder.path().join("repo/a/b"));
        fs::create_dir_all(&deep).unwrap();
        let typed = "record -o t -- ls";
        let loads = |folder: &Path, typed: &str| {
            let line = complete(folder, typed).unwrap();
            line.words.contains(&"--loads".into())
        };
        assert!(loads(top, typed));
        assert!(!loads(&deep, typed), "not above, without a repository");
        fs::create_dir(top.join("repo/.git")).unwrap();
        assert!(!loads(&deep, typed), "not above the repository");
        fs::rename(top.join("repo/.git"), top.join(".git")).unwrap();
        assert!(loads(&deep, typed));
        assert!(!loads(&deep, "--no-config record -o t -- ls"));
        assert!(!loads(&deep, "record --no-config -o t -- ls"));
        // The nearest alone counts.
        fs::write(top.join("repo/a").join(FILE_NAME), "").unwrap();
        assert!(!loads(&deep, typed));
    }

    #[test]
    fn another_file_can_be_named() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("other");
        fs::write(&path, "[record]\nloads = true").unwrap();
        let path = path.to_str().unwrap();
        let expected = "record --no-config --loads -o t -- ls --config x";
        for typed in [
            format!("--config {path} record -o t -- ls --config x"),
            format!("record --config={path} -o t -- ls --config x"),
            format!("record -o t --config {path} -- ls --config x"),
        ] {
            let line = complete(folder.path(), &typed).unwrap();
            let mut words: Vec<_> = line.words.iter().map(|w| w.to_str().unwrap()).collect();
            // `--no-config` may stand on either side of the command.
            words.sort_unstable();
            let mut expected: Vec<_> = expected.split(' ').collect();
            expected.sort_unstable();
            assert_eq!(words, expected, "{typed}");
            Cli::try_parse_from(line.with_program_name()).unwrap();
        }
        let missing = complete(folder.path(), "record --config none -o t -- ls").unwrap_err();
        assert!(
            missing.sentence.starts_with("cannot read none: "),
            "{missing}"
        );
        // clap has something to say about these.
        for typed in [
            "record -o t --config",
            &format!("record --config {path} --no-config -o t -- ls"),
        ] {
            let line = complete(folder.path(), typed).ok();
            assert!(line.is_none_or(|l| Cli::try_parse_from(l.with_program_name()).is_err()));
        }
    }

    #[test]
    fn commands_without_options_and_help_need_no_file() {
        let folder = folder("this is not TOML");
        for typed in [
            "explain",
            "check --help",
            "record -h",
            "--version",
            "",
            "trace stat f",
        ] {
            complete(folder.path(), typed).unwrap();
        }
        complete(folder.path(), "run -- ls --help").unwrap_err();
    }

    #[test]
    fn the_completed_line_says_the_same_without_the_file() {
        let folder = folder("[check]\npm = ['x']\nall = true");
        let once = complete(folder.path(), "check --all=no -- ls").unwrap();
        let twice = CommandLine::complete_in(once.words.clone(), Some(folder.path())).unwrap();
        assert_eq!(once.words, twice.words);
    }

    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof![
            "'[^'\n\r\0]{0,8}'",
            "true|false|-?[0-9]{1,25}|0x[0-9a-f]{1,20}|1e9|inf|1979-05-27",
            prop::collection::vec("'[a-z,=-]{0,6}'|[0-9]{1,4}", 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    }

    proptest! {
        /// Whatever the file holds: words that stand for options, or one sentence with the line.
        #[test]
        fn any_table_is_read_or_refused(
            keys in prop::collection::btree_map(
                prop_oneof![
                    "[a-z-]{1,8}",
                    prop::sample::select(vec!["pm", "only", "jobs", "all", "output", "rule", "config"])
                        .prop_map(str::to_owned),
                ],
                any_value(),
                0..4,
            ),
        ) {
            let mut text = "[check]\n".to_owned();
            for (key, value) in &keys {
                text.push_str(&format!("{key} = {value}\n"));
            }
            let mut root = Cli::command();
            root.build();
            let source = SourceFile { name: "f", text: &text, folder: Path::new("/x") };
            match source.settings(&root) {
                Ok(settings) => {
                    for word in settings.iter().flat_map(|setting| &setting.words) {
                        prop_assert!(find_option(root.find_subcommand("check").unwrap(), word).is_some());
                    }
                }
                Err(failure) => {
                    prop_assert!(failure.sentence.starts_with("f:"), "{}", failure);
                    prop_assert!(!failure.sentence.contains('\n'), "{}", failure);
                }
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|[\n\t\\[\\]='\"]){0,60}") {
            let mut root = Cli::command();
            root.build();
            let source = SourceFile { name: "f", text: &text, folder: Path::new("/x") };
            if let Err(failure) = source.settings(&root) {
                prop_assert!(failure.sentence.starts_with("f:"), "{}", failure);
                prop_assert!(!failure.sentence.contains('\n'), "{}", failure);
            }
        }

        #[test]
        fn any_words_are_taken(words in prop::collection::vec(
            "check|record|trace|dump|--|--config|--config=|--all=no|--pm=x|-o|-|=|--[a-z=]{0,5}|[a-z]{0,3}", 0..8)) {
            let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
            // A missing file is the only thing to complain about, without one in reach.
            let _ = CommandLine::complete_in(typed, None);
        }
    }
}
