//! Turns what clap says about a command line into one sentence and a place to read on.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::cli::Cli;
use crate::config::{CommandLine, locate};
use crate::exit;
use crate::terminal::message;

/// Prints help or the error, and says how to exit.
pub fn answer(error: &clap::Error, line: &CommandLine) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that closed the pipe early (`| head`) has what it wanted.
            let _ = error.print();
            exit::OK
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            message("no command was given; try 'brownout --help'");
            exit::USAGE
        }
        _ => {
            message(&sentence(error, line));
            exit::USAGE
        }
    }
}

fn sentence(error: &clap::Error, line: &CommandLine) -> String {
    let mut root = Cli::command();
    root.build();
    let at = locate(&root, &line.words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let launches = launches(at.command());
    let mut what = match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg).unwrap_or_default();
            match launches && missing.contains("PROGRAM") && !missing.contains(", ") {
                true => "no program was given; put it after '--'".to_owned(),
                false => format!("required but not given: {missing}"),
            }
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg).unwrap_or_default();
            match launches && !word.starts_with('-') {
                true => format!("'{word}' was not expected; put '--' before the program"),
                false => format!("unknown option or argument '{word}'"),
            }
        }
        ErrorKind::MissingSubcommand => "no command was given".to_owned(),
        _ => first_paragraph(&error.render().to_string()),
    };
    let suggested = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ];
    let near = suggested.into_iter().find_map(text);
    if let Some(near) = &near {
        // The list of all values is for those who are further off.
        let end = what.find(" [possible values").unwrap_or(what.len());
        what.truncate(end);
        what = format!("{what}; did you mean '{near}'?");
    }
    let origin = line
        .origin(error)
        .map(|origin| format!("{origin}: "))
        .unwrap_or_default();
    let stop = if near.is_some() { "" } else { ";" };
    let mut help = "brownout".to_owned();
    for name in at.names() {
        help = format!("{help} {name}");
    }
    format!("{origin}{what}{stop} try '{help} --help'")
}

/// True if the command starts a program, which stands after `--`.
fn launches(command: &Command) -> bool {
    command.get_positionals().any(|arg| arg.is_last_set())
}

/// clap's own words, up to its advice and usage, on one line.
fn first_paragraph(rendered: &str) -> String {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn complaint(words: &[&str]) -> String {
        let words = ["--no-config"].iter().chain(words);
        let line = CommandLine::complete(words.map(Into::into).collect()).unwrap();
        let error = Cli::try_parse_from(line.with_program_name()).unwrap_err();
        sentence(&error, &line)
    }

    #[test]
    fn one_sentence_each() {
        let cases: [(&[&str], &str); 15] = [
            (
                &["check"],
                "no program was given; put it after '--'; try 'brownout check --help'",
            ),
            (
                &["check", "--trace", "f", "--", "ls"],
                "'--trace <FILE>' cannot be used with",
            ),
            (
                &["check", "--only", "mising-flush", "--", "ls"],
                "'mising-flush' for '--only <RULE>'; did you mean 'missing-flush'? try 'brownout check",
            ),
            (
                &["check", "--mult-stores=yes", "--", "ls"],
                "required but not given: --compat <TOOL>",
            ),
            (
                &["explain", "clean-flsh"],
                "did you mean 'clean-flush'? try 'brownout explain --help'",
            ),
            (
                &["trace", "dmp"],
                "did you mean 'dump'? try 'brownout trace --help'",
            ),
            (
                &["run"],
                "no program was given; put it after '--'; try 'brownout run --help'",
            ),
            (
                &["run", "ls"],
                "'ls' was not expected; put '--' before the program",
            ),
            (
                &["record", "--", "ls"],
                "required but not given: --output <FILE>",
            ),
            (
                &["run", "--bogus", "--", "ls"],
                "unknown option or argument '--bogus'",
            ),
            (
                &["frobnicate"],
                "unrecognized subcommand 'frobnicate'; try 'brownout --help'",
            ),
            (&["trace", "dump"], "required but not given: <FILE>"),
            (
                &["trace", "dump", "f", "--thread", "x"],
                "invalid value 'x' for '--thread <T>'",
            ),
            (
                &["trace", "dump", "f", "--format", "xml"],
                "invalid value 'xml' for",
            ),
            (
                &["record", "-o", "f", "--verify", "--no-values", "--", "ls"],
                "cannot be used with",
            ),
        ];
        for (words, expected) in cases {
            let complaint = complaint(words);
            assert!(complaint.contains(expected), "{words:?}: {complaint}");
            assert!(!complaint.contains('\n'), "{complaint}");
        }
    }
}
