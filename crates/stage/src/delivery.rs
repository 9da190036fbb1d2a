//! How an input reaches the program.
//!
//! | delivery | the program | runs are |
//! |---|---|---|
//! | `Stdin` | reads its standard input | forked from before its first look at it |
//! | `File` | opens a file whose path stands where `@@` is in its arguments | forked from before it first names that file |
//! | `Place` | opens a file of the user's by its name, which the input is, or is a part of | forked from before it first names that file |
//! | `Argument` | finds the input in its arguments, where `@ARG@` is | launched |
//! | `Arguments` | finds parts of the input in its arguments, where `@@1` to `@@9` are | launched |
//! | `Socket` | listens, and somebody connects and sends the input | forked from before it first waits for clients |
//!
//! The file lies in the program's private view of the machine, under the same name for all runs,
//! and is no part of an image: neither what a run leaves nor what it has changed. A file that the
//! input is only a part of is.
//!
//! An argument cannot hold NUL bytes, so they are left out of it, and it is cut off where the
//! kernel would refuse it. It is there from the beginning, so that everything that the program does
//! counts as after it has its input.
//!
//! Who connects to a server, and when that ends, is in `client.rs`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brownout_host::{Address, Enclosure};
use serde::{Deserialize, Serialize};

/// In an argument, this stands for the path of a file that holds the input.
pub const FILE: &str = "@@";
/// In an argument, this stands for the input itself.
pub const ARGUMENT: &str = "@ARG@";

/// In an input for a server, another connection begins behind this.
pub const NEXT: &str = "@NEXT@\n";

/// The kernel takes arguments that are shorter than this (`MAX_ARG_STRLEN`: 32 pages).
const ARGUMENT_MAX: usize = 32 * 4096;

/// The file's name in a view.
const NAME: &str = ".brownout-input";

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// As its standard input.
    #[default]
    Stdin,
    /// In a file that it is told by `@@`.
    File,
    /// In its arguments, instead of `@ARG@`.
    Argument,
    /// In its arguments, instead of `@@1`, `@@2` and so on, as many bytes in each.
    Arguments {
        /// How many.
        each: usize,
    },
    /// In a file that it finds by its name.
    Place(Place),
    /// Over connections, where it listens.
    Socket(Endpoint),
}

/// Where in a file of the user's the input is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file, by its absolute name.
    pub path: PathBuf,
    /// Where in it the input begins; the rest of it is what it was. `None`: the input is all that
    /// the file holds.
    pub from: Option<u64>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Endpoint {
    /// Where it listens first.
    Auto,
    /// At this port.
    Tcp(u16),
    /// At a socket of this name, from the folder in which the program is started.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether that is meant.
    pub(crate) fn is(&self, address: &Address) -> bool {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        match (self, address) {
            (Endpoint::Auto, _) => true,
            (Endpoint::Tcp(port), Address::Inet(address)) => address.port() == *port,
            (Endpoint::Unix(path), Address::Path(other)) => absolute(path) == absolute(other),
            _ => false,
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let wrong = || {
            format!(
                "'{text}' is no place where a server listens: write auto, tcp:PORT or unix:PATH"
            )
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Endpoint::Auto),
            Some(("tcp", port)) => port.parse().map(Endpoint::Tcp).map_err(|_| wrong()),
            Some(("unix", path)) if !path.is_empty() => Ok(Endpoint::Unix(path.into())),
            _ => Err(wrong()),
        }
    }
}

impl Delivery {
    /// What the arguments of a program ask for, and what is said of a server.
    pub fn of(args: &[OsString], server: Option<Endpoint>) -> Result<Delivery, String> {
        let has = |mark: &str| args.iter().any(|word| pieces(word, mark).nth(1).is_some());
        match (has(FILE), has(ARGUMENT), server) {
            (false, false, None) => Ok(Delivery::Stdin),
            (false, false, Some(server)) => Ok(Delivery::Socket(server)),
            (true, false, None) => Ok(Delivery::File),
            (false, true, None) => Ok(Delivery::Argument),
            (_, _, Some(_)) => Err(format!(
                "a server gets its input over a socket, but its arguments contain {FILE} or {ARGUMENT}"
            )),
            (true, true, None) => Err(format!(
                "the arguments contain both {FILE} and {ARGUMENT}: there is one input, which is either in a file or an argument"
            )),
        }
    }

    /// As for most programs.
    pub fn is_stdin(&self) -> bool {
        *self == Delivery::Stdin
    }

    /// What stands for the input in the arguments.
    pub fn mark(&self) -> Option<&'static str> {
        match self {
            Delivery::Stdin
            | Delivery::Socket(_)
            | Delivery::Place(_)
            | Delivery::Arguments { .. } => None,
            Delivery::File => Some(FILE),
            Delivery::Argument => Some(ARGUMENT),
        }
    }

    /// Whether it is only a part of what is in its file.
    pub fn is_part(&self) -> bool {
        matches!(self, Delivery::Place(place) if place.from.is_some())
    }

    /// Whether it is there from the beginning.
    pub fn is_argument(&self) -> bool {
        matches!(self, Delivery::Argument | Delivery::Arguments { .. })
    }

    /// Writes an input where the program will find it; not if it is an argument.
    pub fn write(&self, file: &File, input: &[u8]) -> io::Result<()> {
        match self {
            Delivery::Place(Place {
                from: Some(from), ..
            }) => file.write_all_at(input, *from),
            _ => {
                file.set_len(0)?;
                file.write_all_at(input, 0)
            }
        }
    }

    /// Whether a program can be stopped before it has anything of its input.
    pub(crate) fn can_wait(&self) -> bool {
        !self.is_argument()
    }

    /// The arguments of a run. `file` is where the input lies, if that is in a file.
    pub fn args(&self, args: &[OsString], input: &[u8], file: Option<&Path>) -> Vec<OsString> {
        if let Delivery::Arguments { each } = self {
            return args
                .iter()
                .map(|word| filled(word, input, *each).0)
                .collect();
        }
        let Some(mark) = self.mark() else {
            return args.to_vec();
        };
        let argument = argument(input);
        let replacement = match file {
            Some(path) => path.as_os_str().as_bytes(),
            None => &argument,
        };
        args.iter()
            .map(|word| {
                let pieces: Vec<&[u8]> = pieces(word, mark).collect();
                let mut made = pieces.join(replacement);
                made.truncate(ARGUMENT_MAX - 1);
                OsString::from_vec(made)
            })
            .collect()
    }
}

/// The name of the script that feeds a server without the tool.
pub const FEEDER: &str = "feed.py";
/// What it holds.
pub const FEEDER_TEXT: &str = include_str!("feed.py");

/// For those who run the program without the tool.
impl Delivery {
    /// What of an input is written into a file, for a script.
    pub fn exported(&self, input: &[u8]) -> Vec<u8> {
        match self {
            Delivery::Argument => argument(input),
            _ => input.to_vec(),
        }
    }

    /// Lines of a shell script that run the program with the input that lies in `$here`, by its
    /// name. `runner` are words of the shell that stand before the program's.
    pub fn script(&self, runner: &str, program: &str, args: &[String], name: &str) -> String {
        let (before, command) = self.commands(runner, program, args, name, "/dev/null");
        format!("{before}{command} > /dev/null || true\n")
    }

    /// The same in two parts: lines that make it ready, and the command with its input, whose
    /// output goes where that of the script goes and whose end is its own. `stdin` is a word of the
    /// shell, the file that is standard input if the input is not.
    pub fn commands(
        &self,
        runner: &str,
        program: &str,
        args: &[String],
        name: &str,
        stdin: &str,
    ) -> (String, String) {
        let replacement = match self {
            // What a shell reads in loses its last line feeds, unless something follows.
            Delivery::Argument => "\"${argument%x}\"".to_owned(),
            _ => format!("\"$here/{name}\""),
        };
        let word = |word: &String| match self.mark() {
            None => quoted(word),
            Some(mark) => word
                .split(mark)
                .map(|piece| match piece {
                    "" => String::new(),
                    piece => quoted(piece),
                })
                .collect::<Vec<_>>()
                .join(&replacement),
        };
        let runner = [runner].into_iter().filter(|runner| !runner.is_empty());
        let runner = runner.map(str::to_owned);
        let words = runner.clone().chain([quoted(program)]);
        let words = words.chain(args.iter().map(|arg| match arg.as_str() {
            "" => quoted(arg),
            _ => word(arg),
        }));
        let command = words.collect::<Vec<_>>().join(" ");
        let nothing = String::new;
        match self {
            Delivery::Stdin => (nothing(), format!("{command} < \"$here/{name}\"")),
            Delivery::File => (nothing(), format!("{command} < {stdin}")),
            Delivery::Place(Place { path, from }) => {
                let path = quoted(&path.to_string_lossy());
                let copy = match from {
                    None => format!("cat \"$here/{name}\" > {path}"),
                    Some(from) => format!(
                        "dd if=\"$here/{name}\" of={path} bs=1 seek={from} conv=notrunc status=none"
                    ),
                };
                (format!("{copy}\n"), format!("{command} < {stdin}"))
            }
            Delivery::Arguments { each } => {
                let words = std::iter::once(quoted(program)).chain(args.iter().map(|word| {
                    let parts = parts(OsStr::new(word.as_str())).map(|part| match part {
                        Part::Text(text) => quoted(&String::from_utf8_lossy(text)),
                        Part::Number(number) => format!("\"$(dd if=\"$here/{name}\" bs={each} skip={number} count=1 status=none | tr '\\0' '\\n' | head -n 1)\""),
                    });
                    match parts.collect::<String>() {
                        empty if empty.is_empty() => quoted(""),
                        word => word,
                    }
                }));
                let words = runner.chain(words).collect::<Vec<_>>().join(" ");
                (nothing(), format!("{words} < {stdin}"))
            }
            Delivery::Socket(endpoint) => {
                let place = match endpoint {
                    Endpoint::Auto => "auto".to_owned(),
                    Endpoint::Tcp(port) => format!("tcp:{port}"),
                    Endpoint::Unix(path) => format!("unix:{}", path.display()),
                };
                let place = quoted(&place);
                let feeder = format!("python3 \"$here/{FEEDER}\" {place} \"$here/{name}\"");
                (nothing(), format!("{feeder} {command} < {stdin}"))
            }
            Delivery::Argument => (
                format!("argument=$(cat \"$here/{name}\"; echo x)\n"),
                format!("{command} < {stdin}"),
            ),
        }
    }
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// An input as far as it can be an argument.
pub fn argument(input: &[u8]) -> Vec<u8> {
    let bytes = input.iter().copied().filter(|byte| *byte != 0);
    bytes.take(ARGUMENT_MAX - 1).collect()
}

/// A part of a word of the command line.
pub enum Part<'w> {
    /// As it is.
    Text(&'w [u8]),
    /// `@@1` is number 0.
    Number(usize),
}

/// The parts of a word in which `@@1` to `@@9` stand for parts of the input.
pub fn parts(word: &OsStr) -> impl Iterator<Item = Part<'_>> {
    let mut left = word.as_bytes();
    std::iter::from_fn(move || {
        let number = |bytes: &[u8]| match bytes {
            [b'@', b'@', digit @ b'1'..=b'9', ..] => Some(usize::from(digit - b'1')),
            _ => None,
        };
        if left.is_empty() {
            return None;
        }
        if let Some(found) = number(left) {
            left = &left[3..];
            return Some(Part::Number(found));
        }
        let end = (1..left.len()).find(|at| number(&left[*at..]).is_some());
        let (text, rest) = left.split_at(end.unwrap_or(left.len()));
        left = rest;
        Some(Part::Text(text))
    })
}

/// A word with parts of the input in it; and which part of the input lies where in it. A zero byte
/// ends its part.
pub fn filled(
    word: &OsStr,
    input: &[u8],
    each: usize,
) -> (OsString, Vec<(usize, std::ops::Range<usize>)>) {
    let mut made = Vec::new();
    let mut places = Vec::new();
    for part in parts(word) {
        match part {
            Part::Text(text) => made.extend(text),
            Part::Number(number) => {
                let from = (number * each).min(input.len());
                let part = &input[from..(from + each).min(input.len())];
                let len = part.iter().position(|byte| *byte == 0);
                let len = len.unwrap_or(part.len());
                let room = (ARGUMENT_MAX - 1).saturating_sub(made.len());
                let len = len.min(room);
                places.push((made.len(), from..from + len));
                made.extend(&part[..len]);
            }
        }
    }
    made.truncate(ARGUMENT_MAX - 1);
    (OsString::from_vec(made), places)
}

/// What is before, between and behind the marks of a word.
pub(crate) fn pieces<'w>(word: &'w OsStr, mark: &'w str) -> impl Iterator<Item = &'w [u8]> {
    let mut left = Some(word.as_bytes());
    std::iter::from_fn(move || {
        let bytes = left?;
        let mark = mark.as_bytes();
        match bytes.windows(mark.len()).position(|window| window == mark) {
            Some(at) => {
                left = Some(&bytes[at + mark.len()..]);
                Some(&bytes[..at])
            }
            None => {
                left = None;
                Some(bytes)
            }
        }
    })
}

/// The file that holds the input, in a view.
pub struct InputFile {
    /// What the program calls it.
    pub path: PathBuf,
    /// As the tool has it.
    pub file: File,
}

impl InputFile {
    /// A file of the user's that the input is in.
    pub fn at(view: &Enclosure, place: &Place) -> io::Result<InputFile> {
        let mut options = File::options();
        options.read(true).write(true);
        options.create(place.from.is_none());
        let file = options.open(view.path(&place.path))?;
        let path = place.path.clone();
        Ok(InputFile { path, file })
    }

    /// Makes it, empty. It has the same name in all views.
    pub fn make(view: &Enclosure) -> io::Result<InputFile> {
        let mut error = None;
        // The current folder is the program's own business, so that it is the last resort.
        for folder in [
            Path::new("/tmp"),
            Path::new("/var/tmp"),
            &std::env::current_dir()?,
        ] {
            let path = folder.join(NAME);
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            match options.open(view.path(&path)) {
                Ok(file) => return Ok(InputFile { path, file }),
                Err(why) => error = Some(why),
            }
        }
        Err(error.unwrap_or_else(|| io::Error::other("there is no place for the input")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn arguments_say_how_the_input_comes() {
        let of = |list: &[&str]| Delivery::of(&words(list), None);
        assert_eq!(of(&["pool", "@"]), Ok(Delivery::Stdin));
        assert_eq!(of(&["pool", "@@"]), Ok(Delivery::File));
        assert_eq!(of(&["--in=@@"]), Ok(Delivery::File));
        assert_eq!(of(&["-k", "@ARG@"]), Ok(Delivery::Argument));
        assert!(of(&["@ARG@", "@@"]).is_err());
        let socket = |list: &[&str]| Delivery::of(&words(list), Some(Endpoint::Auto));
        assert_eq!(socket(&["pool"]), Ok(Delivery::Socket(Endpoint::Auto)));
        assert!(socket(&["@@"]).is_err());
    }

    #[test]
    fn places_are_said_in_words() {
        assert_eq!("auto".parse(), Ok(Endpoint::Auto));
        assert_eq!("tcp:7777".parse(), Ok(Endpoint::Tcp(7777)));
        assert_eq!("unix:/run/s".parse(), Ok(Endpoint::Unix("/run/s".into())));
        for wrong in ["", "tcp", "tcp:x", "tcp:70000", "unix:", "udp:5"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
        let here = std::env::current_dir().expect("there is one").join("s");
        assert!(Endpoint::Unix("s".into()).is(&Address::Path(here)));
        assert!(!Endpoint::Tcp(1).is(&Address::Path("s".into())));
        assert!(Endpoint::Auto.is(&Address::Abstract(b"s".to_vec())));
    }

    #[test]
    fn marks_are_replaced_wherever_they_stand() {
        let args = words(&["a", "--in=@@,@@", "@@"]);
        let made = Delivery::File.args(&args, b"ignored", Some(Path::new("/f")));
        assert_eq!(made, words(&["a", "--in=/f,/f", "/f"]));
        let made = Delivery::Argument.args(&words(&["x@ARG@y", "@@"]), b"1\x002 3", None);
        assert_eq!(made, words(&["x12 3y", "@@"]));
        let made = Delivery::Stdin.args(&args, b"ignored", None);
        assert_eq!(made, args);
    }

    #[test]
    fn scripts_put_the_input_where_the_program_looks() {
        let args = |list: &[&str]| -> Vec<String> { list.iter().map(|w| w.to_string()).collect() };
        let file = Delivery::File.script("exec", "p", &args(&["", "--in=@@", "it's"]), "input-0");
        let expected =
            "exec 'p' '' '--in='\"$here/input-0\" 'it'\\''s' < /dev/null > /dev/null || true\n";
        assert_eq!(file, expected);
        let argument = Delivery::Argument.script("exec", "p", &args(&["@ARG@"]), "input-1");
        assert_eq!(
            argument,
            "argument=$(cat \"$here/input-1\"; echo x)\nexec 'p' \"${argument%x}\" < /dev/null > /dev/null || true\n"
        );
        let arguments = Delivery::Arguments { each: 4 };
        let (before, command) = arguments.commands("", "p", &args(&["k@@1"]), "i", "\"$in\"");
        assert_eq!(before, "");
        assert!(
            command.starts_with("'p' 'k'\"$(dd if=\"$here/i\""),
            "{command}"
        );
        assert!(command.ends_with(" < \"$in\""), "{command}");
        let server = Delivery::Socket(Endpoint::Tcp(7));
        let (_, command) = server.commands("", "p", &[], "i", "/dev/null");
        assert_eq!(
            command,
            "python3 \"$here/feed.py\" 'tcp:7' \"$here/i\" 'p' < /dev/null"
        );
    }

    #[test]
    fn an_argument_is_as_long_as_the_kernel_allows() {
        let made = Delivery::Argument.args(&words(&["x@ARG@y"]), &[b'z'; 1 << 20], None);
        assert_eq!(made[0].len(), ARGUMENT_MAX - 1);
    }
}
