//! Reports without the names of somebody's folders.
//!
//! **Purpose.** A page is sent to others, who need not know where its maker's files are.
//!
//! **Guarantee.** In every text of the report, wherever it stands, the working folder is `.`, the
//! home folder is `~`, and so is every folder of the form `/home/NAME` and `/root`. Replay tokens
//! hold command lines in a form that is not looked into, so they are taken out. Nothing else
//! changes.
//!
//! **Deviations.** Commands that reproduce a crash natively have shortened paths, too, and may have
//! to be completed by hand. What a path is made of is known by its characters alone.

use brownout_findings::Report;
use serde_json::Value;

/// What is shortened.
pub struct Shorten<'a> {
    home: Option<&'a str>,
    folder: Option<&'a str>,
}

impl<'a> Shorten<'a> {
    /// The home folder and the working folder, if they are known.
    pub fn new(home: Option<&'a str>, folder: Option<&'a str>) -> Shorten<'a> {
        let is_telling = |path: &&str| path.len() > 1 && path.starts_with('/');
        Shorten {
            home: home.filter(is_telling),
            folder: folder.filter(is_telling),
        }
    }

    /// A text with short paths.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // The folder may lie in the home folder.
        if let Some(folder) = self.folder {
            text = replaced(&text, folder, ".");
        }
        if let Some(home) = self.home {
            text = replaced(&text, home.trim_end_matches('/'), "~");
        }
        replaced(&homes(&text), "/root", "~")
    }
}

/// Shortens all paths.
pub fn paths(report: &mut Report, shorten: &Shorten<'_>) -> serde_json::Result<()> {
    for finding in &mut report.findings {
        finding.replay = None;
    }
    let mut value = serde_json::to_value(&*report)?;
    walk(&mut value, &|text| shorten.text(text));
    *report = serde_json::from_value(value)?;
    Ok(())
}

/// Changes every text, names of statistics included.
fn walk(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (name, mut item) in old {
                walk(&mut item, change);
                fields.insert(change(&name), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Whether a path can begin after this text: it is not the middle of another one. It may be glued
/// to an option: `-I/home/ann`.
fn can_begin(before: &str) -> bool {
    let is_apart = |c: char| c.is_whitespace() || "'\"`:=,;()[]{}<>|&".contains(c);
    let word = before.rsplit(is_apart).next().unwrap_or_default();
    word.is_empty()
        || !word.ends_with(|c: char| is_of_name(c) || c == '/')
        || word.starts_with('-') && !word.contains('/')
}

/// Replaces a folder where it is one: not in the middle of a longer path or name.
fn replaced(text: &str, path: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let (before, from) = rest.split_at(at);
        let after = &from[path.len()..];
        out += before;
        let begins = can_begin(&out);
        let ends = !after.starts_with(is_of_name);
        out += if begins && ends { by } else { path };
        rest = after;
    }
    out + rest
}

/// `/home/NAME` becomes `~`, whoever that is.
fn homes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/home/") {
        let (before, from) = rest.split_at(at);
        let name = &from["/home/".len()..];
        let end = name.find(|c: char| !is_of_name(c)).unwrap_or(name.len());
        out += before;
        let begins = can_begin(&out);
        match begins && end > 0 {
            true => out.push('~'),
            false => {
                out += "/home/";
                out += &name[..end];
            }
        }
        rest = &name[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::{
        Analysed, BuiltIn, Event, Finding, Frame, Outcome, Replay, Role, Severity,
    };

    #[test]
    fn folders_are_shortened_only_where_they_are_folders() {
        let all = |text: &str| {
            replaced(
                &homes(&replaced(
                    &replaced(text, "/home/ann/src", "."),
                    "/home/ann",
                    "~",
                )),
                "/root",
                "~",
            )
        };
        for (text, short) in [
            ("/home/ann/src/list.c", "./list.c"),
            ("'/home/ann/src'", "'.'"),
            ("/home/ann/pool and /home/ann", "~/pool and ~"),
            ("/home/anna/x:/home/bob/y", "~/x:~/y"),
            ("/home/ann/srcs/x", "~/srcs/x"),
            ("/mnt/home/ann/x", "/mnt/home/ann/x"),
            ("-I/root/include", "-I~/include"),
            ("x-y/root", "x-y/root"),
            ("cd /root; ls /rooted", "cd ~; ls /rooted"),
            ("--out=/root/x", "--out=~/x"),
        ] {
            assert_eq!(all(text), short);
        }
    }

    #[test]
    fn nothing_of_a_report_is_left_out() {
        let secret = "/home/ann/secret/place";
        let mut outcome = Outcome::<serde_json::Map<_, _>>::default();
        let mut finding = Finding::new(BuiltIn::MissingFlush, Severity::Correctness, secret);
        let frame = Frame {
            file: Some(secret.into()),
            module: Some(secret.into()),
            ..Frame::default()
        };
        finding.events = vec![Event {
            stack: vec![frame],
            ..Event::new(Role::Store, secret)
        }];
        finding.notes = vec![format!("see {secret}")];
        finding.replay = Some(Replay {
            token: "b1:x".into(),
            command: "brownout replay b1:x".into(),
        });
        outcome.findings = vec![finding];
        outcome.notes = vec![secret.into()];
        outcome.statistics.insert(secret.into(), secret.into());
        let mut report = outcome.report(Analysed {
            command: vec![secret.into()],
            ..Analysed::by("check")
        });
        let before = serde_json::to_string(&report).unwrap();
        assert!(before.contains("ann") && before.contains("b1:x"));
        paths(
            &mut report,
            &Shorten::new(Some("/home/ann"), Some("/home/ann/secret")),
        )
        .unwrap();
        let after = serde_json::to_string(&report).unwrap();
        assert!(
            !after.contains("ann") && !after.contains("secret") && !after.contains("b1:x"),
            "{after}"
        );
        assert_eq!(report.analysed.command, ["./place"]);
    }
}
