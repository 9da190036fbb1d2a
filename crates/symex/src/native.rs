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

/// The words of a shell's command, whatever it does with them: blanks and signs of the shell are
/// between them unless they are quoted.
fn words_of(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut rest = command.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.extend(rest.next()),
            (c, Some(_)) => word.push(c),
            ('\'' | '"', None) => quote = Some(c),
            (c, None) if c.is_whitespace() || "();&|<>".contains(c) => {
                words.push(std::mem::take(&mut word));
            }
            (c, None) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// A function of the script that knows these names, which may hold anything: in quotes nothing of a
/// pattern stands for anything else.
fn is_named(named: &BTreeSet<String>) -> String {
    let mut text = String::from("is_named() {\n    case $1 in\n");
    for name in named {
        let _ = writeln!(text, "    \"$folder\"/{}) ;;", quoted(name));
    }
    text += "    *) return 1 ;;\n    esac\n}\n";
    text
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
    words.extend(words_of(setup));
    let Concerned { named, kept } = Concerned::by(&words, folder);
    let mut text = String::from(BEGINNING);
    let _ = writeln!(text, "folder={}", quoted(&folder.to_string_lossy()));
    text += &is_named(&named);
    let kept: Vec<String> = kept.iter().map(|path| word(path.as_os_str())).collect();
    text += "end() {\n";
    for (number, path) in kept.iter().enumerate() {
        let _ = writeln!(text, "    put_back {number} {}", quoted(path));
    }
    text += "    rm -r \"$kept\"\n}\n";
    for (number, path) in kept.iter().enumerate() {
        let _ = writeln!(text, "keep {number} {} || exit 1", quoted(path));
    }
    // A shell need not do what it is to do at its exit when a signal ends it; dash does not.
    text += "trap end EXIT\ntrap 'exit 129' HUP\ntrap 'exit 130' INT\ntrap 'exit 143' TERM\n";
    text += "copied\ncd \"$copy\" || exit 1\n";
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
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_the_command_names_is_copied_or_put_back() {
        let words = [
            "pool",
            "./sub/x",
            "a b/x",
            "--log=/tmp/some.log",
            "-v",
            "/dev/null",
            "../up",
        ];
        let words = words.map(str::to_owned);
        let Concerned { named, kept } = Concerned::by(&words, Path::new("/tmp/here"));
        assert_eq!(Vec::from_iter(named), ["a b", "pool", "sub"]);
        let kept: Vec<_> = kept.iter().map(|path| path.to_str()).collect();
        assert_eq!(kept, [Some("/tmp/some.log"), Some("/tmp/up")]);
    }

    #[test]
    fn a_command_is_taken_apart_as_a_shell_does_it() {
        let words = words_of(r#"./make 'a b/x' "c \" d">'e'f;(rm g\ h)"#);
        assert_eq!(words, ["./make", "a b/x", "c \" d", "ef", "rm", "g h"]);
    }

    /// A script, the folder `here` in which it was made for a program in the shell's language, and
    /// `left` for what it leaves.
    struct Scripted {
        all: tempfile::TempDir,
        script: PathBuf,
    }

    impl Scripted {
        fn new(program: &str, args: &[&str]) -> Scripted {
            let all = tempfile::tempdir().expect("a folder");
            for folder in ["here", "left", "input"] {
                fs::create_dir(all.path().join(folder)).expect("a folder");
            }
            let here = all.path().join("here");
            fs::write(here.join("program"), program).expect("a file");
            fs::set_permissions(here.join("program"), fs::Permissions::from_mode(0o755))
                .expect("a program");
            let input = all.path().join("input/000");
            fs::write(&input, "input").expect("a file");
            let command = brownout_explore::Command {
                program: "./program".into(),
                args: args.iter().map(Into::into).collect(),
                stdin: None,
            };
            let options = Options::new(command, b"input".to_vec());
            let script = write_script(&options, &here, &input).expect("a script");
            Scripted { all, script }
        }

        fn command(&self) -> Command {
            let mut command = Command::new("sh");
            command
                .arg(&self.script)
                .env("TMPDIR", self.all.path().join("left"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        }

        /// How many folders it has left.
        fn left(&self) -> usize {
            fs::read_dir(self.all.path().join("left"))
                .expect("a folder")
                .count()
        }
    }

    #[test]
    fn folders_of_any_name_are_copied() {
        for name in ["a b", "*", "it's", "[x]"] {
            let word = format!("{name}/file");
            let scripted = Scripted::new("#!/bin/sh\necho changed > \"$1\"\n", &[&word]);
            let here = scripted.all.path().join("here");
            for folder in [name, "other"] {
                fs::create_dir(here.join(folder)).expect("a folder");
                fs::write(here.join(folder).join("file"), "mine").expect("a file");
            }
            let status = scripted.command().status().expect("a shell");
            assert!(status.success(), "{name}: {status}");
            let file = fs::read_to_string(here.join(name).join("file")).expect("a file");
            assert_eq!(file, "mine", "{name}");
            // What is not named is only linked to.
            let left = scripted.all.path().join("left");
            let mut copies = fs::read_dir(left).expect("a folder");
            let copy = copies.next().expect("a copy").expect("a name").path();
            assert!(!copy.join(name).is_symlink(), "{name}");
            assert!(copy.join("other").is_symlink(), "{name}");
        }
    }

    #[test]
    fn what_is_interrupted_is_put_back() {
        for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            let elsewhere = tempfile::NamedTempFile::new().expect("a file");
            fs::write(elsewhere.path(), "mine").expect("a file");
            let path = elsewhere.path().to_string_lossy();
            let program = "#!/bin/sh\necho changed > \"$1\"\nexec sleep 60\n";
            let scripted = Scripted::new(program, &[&path]);
            let mut command = scripted.command();
            let mut child = std::os::unix::process::CommandExt::process_group(&mut command, 0)
                .spawn()
                .expect("a shell");
            let begun = Instant::now();
            while fs::read_to_string(&*path).is_ok_and(|text| text != "changed\n") {
                assert!(begun.elapsed() < Duration::from_secs(20), "it never began");
                std::thread::sleep(Duration::from_millis(5));
            }
            let group = format!("-{}", child.id());
            let kill = "kill -s \"$0\" -- \"$1\"";
            let mut sent = Command::new("sh");
            let sent = sent.args(["-c", kill, signal, &group]).status();
            let sent = sent.expect("a shell");
            assert!(sent.success(), "{sent}");
            let ended = child.wait().expect("an end");
            assert_eq!(ended.code(), Some(status), "{signal}");
            let file = fs::read_to_string(elsewhere.path()).expect("a file");
            assert_eq!(file, "mine", "{signal}");
            // Only the copy is left, of which the user was told nothing yet.
            assert_eq!(scripted.left(), 1, "{signal}");
        }
    }
}
