//! A script that runs a program on the input of a finding, without the tool.
//!
//! Guarantee: it does what a run of the tool begins with (the set-up, then the input, wherever that
//! comes from), and ends with the program's exit status. Files of the folder in which the search
//! was started are left alone: it works on a copy of it. Other files that the command line names
//! are put back as they were.
//!
//! Deviations: of folders, those that the command line does not name are not copied, but linked to,
//! for they may be large. A file elsewhere that it does not name and the program writes to is
//! changed, as by any native run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use brownout_stage::{Delivery, FEEDER, FEEDER_TEXT, Place, quoted};

use crate::options::Options;

const BEGINNING: &str = "\
#!/bin/sh
# Runs the program on the input of a finding, natively, in a copy of the folder in which it was found:
# files are copied, folders only if the command names them. What is left is in the copy.
here=$(cd \"$(dirname \"$0\")\" && pwd)
copy=$(mktemp -d) || exit 1
kept=$(mktemp -d) || exit 1
is_named() {
    for name in $named; do
        [ \"$1\" != \"$folder/$name\" ] || return 0
    done
    return 1
}
copied() {
    for each in \"$folder\"/* \"$folder\"/.[!.]*; do
        if [ -f \"$each\" ] || is_named \"$each\"; then
            [ ! -e \"$each\" ] || cp -a \"$each\" \"$copy/\" || exit 1
        elif [ -d \"$each\" ]; then
            ln -s \"$each\" \"$copy/\"
        fi
    done
}
keep() {
    [ ! -f \"$2\" ] || cp -a \"$2\" \"$kept/$1\"
}
put_back() {
    if [ -f \"$kept/$1\" ]; then
        cmp -s \"$kept/$1\" \"$2\" || cp -a \"$kept/$1\" \"$2\"
    elif [ -f \"$2\" ]; then
        rm \"$2\"
    fi
}
";

/// The same without `.` and `..`, as far as that can be said from the words.
fn plain(path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                made.pop();
            }
            Component::CurDir => {}
            part => made.push(part),
        }
    }
    made
}

/// What a word of the command line may name: itself, or what is behind `=`.
fn names(word: &str) -> impl Iterator<Item = &str> {
    [Some(word), word.split_once('=').map(|(_, value)| value)]
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty() && !name.starts_with('-'))
}

/// What of the machine the command line is about.
struct Concerned {
    /// The first parts of names that lie in the folder.
    named: BTreeSet<String>,
    /// Files elsewhere, or named from the root.
    kept: BTreeSet<PathBuf>,
}

impl Concerned {
    fn by(words: &[String], folder: &Path) -> Concerned {
        let mut named = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for name in words.iter().flat_map(|word| names(word)) {
            let path = Path::new(name);
            let whole = plain(&folder.join(path));
            match (path.is_absolute(), whole.strip_prefix(folder)) {
                (false, Ok(inside)) => {
                    let first = inside.components().next();
                    let first = first.map(|first| first.as_os_str().to_string_lossy());
                    // What holds blanks is no name that the script can list.
                    let first = first.filter(|first| !first.contains(char::is_whitespace));
                    named.extend(first.map(std::borrow::Cow::into_owned));
                }
                _ => {
                    let has_folder = whole.parent().is_some_and(Path::is_dir);
                    let is_device = whole.starts_with("/dev") && !whole.starts_with("/dev/shm");
                    if has_folder && !whole.is_dir() && !is_device {
                        kept.insert(whole);
                    }
                }
            }
        }
        Concerned { named, kept }
    }
}

/// Writes the script beside the file that holds an input, and says how to call it. `folder` is
/// where the search was started.
///
/// # Errors
///
/// It cannot be written.
pub fn write_script(options: &Options, folder: &Path, input: &Path) -> io::Result<PathBuf> {
    let name = input.file_name().unwrap_or_default().to_string_lossy();
    let path = input.with_extension("sh");
    fs::write(&path, script(options, folder, &name))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    if matches!(options.delivery, Delivery::Socket(_)) {
        fs::write(path.with_file_name(FEEDER), FEEDER_TEXT)?;
    }
    Ok(path)
}

/// The script: `input` is the name of the file beside it that holds the input.
fn script(options: &Options, folder: &Path, input: &str) -> String {
    let word = |word: &OsStr| word.to_string_lossy().into_owned();
    // Its own folder may not be there in the copy.
    let program = match word(&options.program.program) {
        program if program.contains('/') => word(plain(&folder.join(program)).as_os_str()),
        program => program,
    };
    let is_above = |word: &String| word.starts_with("../") || *word == "..";
    let args = options.program.args.iter().map(|arg| word(arg));
    let args: Vec<String> = args
        .map(|arg| match is_above(&arg) {
            true => word(plain(&folder.join(arg)).as_os_str()),
            false => arg,
        })
        .collect();
    let mut delivery = options.delivery.clone();
    let mut words = args.clone();
    if let Delivery::Place(Place { path, .. }) = &mut delivery {
        // Where it is not named from the root, the program means the one in its folder.
        let is_said = args
            .iter()
            .any(|arg| arg.contains(&*path.to_string_lossy()));
        if let (Ok(inside), false) = (path.strip_prefix(folder), is_said) {
            *path = inside.to_owned();
        }
        words.push(path.to_string_lossy().into_owned());
    }
    let setup = options.setup.as_deref().unwrap_or_default();
    words.extend(setup.split_whitespace().map(|word| {
        let around = |c: char| "'\"();&|<>".contains(c);
        word.trim_matches(around).to_owned()
    }));
    let Concerned { named, kept } = Concerned::by(&words, folder);
    let mut text = String::from(BEGINNING);
    let named: Vec<String> = named.into_iter().collect();
    let _ = writeln!(text, "folder={}", quoted(&folder.to_string_lossy()));
    let _ = writeln!(text, "named={}", quoted(&named.join(" ")));
    let kept: Vec<String> = kept.iter().map(|path| word(path.as_os_str())).collect();
    text += "end() {\n";
    for (number, path) in kept.iter().enumerate() {
        let _ = writeln!(text, "    put_back {number} {}", quoted(path));
    }
    text += "    rm -r \"$kept\"\n}\n";
    for (number, path) in kept.iter().enumerate() {
        let _ = writeln!(text, "keep {number} {} || exit 1", quoted(path));
    }
    text += "trap end EXIT\ncopied\ncd \"$copy\" || exit 1\n";
    if let Some(setup) = &options.setup {
        let _ = writeln!(
            text,
            "sh -c {} < /dev/null || {{ echo 'the set-up failed' >&2; exit 1; }}",
            quoted(setup)
        );
    }
    let stdin = match &options.stdin {
        Some(stdin) => quoted(&stdin.to_string_lossy()),
        None => "/dev/null".to_owned(),
    };
    let (before, command) = delivery.commands("", &program, &args, input, &stdin);
    text += &before;
    let _ = writeln!(text, "{command}");
    text += "status=$?\necho \"exit status $status; what it has left is in $copy\" >&2\nexit \"$status\"\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_names_is_copied_or_put_back() {
        let words = [
            "pool",
            "./sub/x",
            "--log=/tmp/some.log",
            "-v",
            "/dev/null",
            "../up",
        ];
        let words = words.map(str::to_owned);
        let Concerned { named, kept } = Concerned::by(&words, Path::new("/tmp/here"));
        assert_eq!(Vec::from_iter(named), ["pool", "sub"]);
        let kept: Vec<_> = kept.iter().map(|path| path.to_str()).collect();
        assert_eq!(kept, [Some("/tmp/some.log"), Some("/tmp/up")]);
    }
}
