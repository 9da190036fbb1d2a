//! How an input reaches the program.
//!
//! | delivery | the program | runs are |
//! |---|---|---|
//! | `Stdin` | reads its standard input | forked from before its first look at it |
//! | `File` | opens a file whose path stands where `@@` is in its arguments | forked from before it first names that file |
//! | `Argument` | finds the input in its arguments, where `@ARG@` is | launched |
//! | `Socket` | listens, and somebody connects and sends the input | forked from before it first waits for clients |
//!
//! The file lies in the program's private view of the machine, under the same name for all runs, and is no part of an image: neither what
//! a run leaves nor what it has changed.
//!
//! An argument cannot hold NUL bytes, so they are left out of it, and it is cut off where the kernel would refuse it. It is there from the
//! beginning, so that everything that the program does counts as after it has its input.
//!
//! Who connects to a server, and when that ends, is in `client.rs`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
    /// Over connections, where it listens.
    Socket(Endpoint),
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
            Delivery::Stdin | Delivery::Socket(_) => None,
            Delivery::File => Some(FILE),
            Delivery::Argument => Some(ARGUMENT),
        }
    }

    /// Whether a program can be stopped before it has anything of its input.
    pub(crate) fn can_wait(&self) -> bool {
        *self != Delivery::Argument
    }

    /// The arguments of a run. `file` is where the input lies, if that is in a file.
    pub fn args(&self, args: &[OsString], input: &[u8], file: Option<&Path>) -> Vec<OsString> {
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
            Delivery::Stdin | Delivery::File | Delivery::Socket(_) => input.to_vec(),
        }
    }

    /// Lines of a shell script that run the program with the input that lies in `$here`, by its name. `runner` are words of the shell that stand before the program's.
    pub fn script(&self, runner: &str, program: &str, args: &[String], name: &str) -> String {
        let replacement = match self {
            // What a shell reads in loses its last line feeds, unless something follows.
            Delivery::Argument => "\"${argument%x}\"".to_owned(),
            Delivery::Stdin | Delivery::File | Delivery::Socket(_) => format!("\"$here/{name}\""),
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
        let words = [runner.to_owned(), quoted(program)].into_iter();
        let words = words.chain(args.iter().map(|arg| match arg.as_str() {
            "" => quoted(arg),
            _ => word(arg),
        }));
        let command = words.collect::<Vec<_>>().join(" ");
        match self {
            Delivery::Stdin => format!("{command} < \"$here/{name}\" > /dev/null || true\n"),
            Delivery::File => format!("{command} < /dev/null > /dev/null || true\n"),
            Delivery::Socket(endpoint) => {
                let place = match endpoint {
                    Endpoint::Auto => "auto".to_owned(),
                    Endpoint::Tcp(port) => format!("tcp:{port}"),
                    Endpoint::Unix(path) => format!("unix:{}", path.display()),
                };
                format!(
                    "python3 \"$here/{FEEDER}\" {} \"$here/{name}\" {command} > /dev/null || true\n",
                    quoted(&place)
                )
            }
            Delivery::Argument => format!(
                "argument=$(cat \"$here/{name}\"; echo x)\n{command} < /dev/null > /dev/null || true\n"
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
    }

    #[test]
    fn an_argument_is_as_long_as_the_kernel_allows() {
        let made = Delivery::Argument.args(&words(&["x@ARG@y"]), &[b'z'; 1 << 20], None);
        assert_eq!(made[0].len(), ARGUMENT_MAX - 1);
    }
}
