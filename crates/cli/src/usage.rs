//! Turns what clap says about a command line into one sentence and a place to read on.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit;
use crate::terminal::message;

/// Prints help or the error, and says how to exit.
pub fn answer(error: &clap::Error) -> u8 {
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
            // The first two words are enough, and words need not be UTF-8.
            let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
            let words: Vec<_> = words
                .iter()
                .map(|word| word.to_str().unwrap_or(""))
                .collect();
            message(&sentence(error, help_command(&words)));
            exit::USAGE
        }
    }
}

/// The command whose help explains what was meant.
fn help_command(words: &[&str]) -> &'static str {
    match words {
        ["run", ..] => "brownout run --help",
        ["record", ..] => "brownout record --help",
        ["trace", "stat", ..] => "brownout trace stat --help",
        ["trace", "dump", ..] => "brownout trace dump --help",
        ["trace", ..] => "brownout trace --help",
        _ => "brownout --help",
    }
}

fn sentence(error: &clap::Error, help: &str) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let launches = help.contains("run") || help.contains("record");
    let what = match error.kind() {
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
    format!("{what}; try '{help}'")
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
    use crate::cli::Cli;
    use clap::Parser;

    fn complaint(words: &[&str]) -> String {
        let error = Cli::try_parse_from(["brownout"].iter().chain(words)).unwrap_err();
        sentence(&error, help_command(words))
    }

    #[test]
    fn one_sentence_each() {
        let cases: [(&[&str], &str); 9] = [
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
            (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
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
