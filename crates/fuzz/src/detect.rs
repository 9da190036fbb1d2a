//! The user's own detector: a command that looks at what a run has left, and says whether that is
//! as it should be.
//!
//! It gets a folder of its own, with copies, so that it cannot change an image, whatever it does
//! there:
//!
//! ```text
//! FOLDER/input              what the program has read
//! FOLDER/files/home/me/pool what it has left, below `files` at their full paths: all files that differ from those of the machine
//! FOLDER/status             how it ended: its exit code, 128 and the signal's number, or `hang`
//! FOLDER/stdout, stderr     what it has printed, up to a mebibyte each
//! ```
//!
//! 0 is fine, 1 is a finding, and whatever else comes of it is a failure of the detector and
//! nothing of the program's.
//!
//! A detector takes longer than a run. So it is asked only about runs that have shown something new
//! (and while what it has found is made small).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brownout_findings::rules::BuiltIn;
use brownout_findings::{Event, Finding, Role};
use brownout_images::{Content, Contents};

use crate::error::Error;
use crate::judge::Ending;
use brownout_stage::PAGE;

/// A detector may take so many times as long as an execution.
const PATIENCE: u32 = 5;
/// Lines behind the first that become notes of a finding.
const NOTES_MAX: usize = 8;
/// Of each line, so many characters.
const LINE_MAX: usize = 300;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Detector {
    /// A shell command.
    pub command: String,
    /// Where it runs: where the campaign was begun.
    pub folder: PathBuf,
    /// It is ended after this.
    pub patience: Duration,
    /// Ends it when true.
    pub stop: Arc<AtomicBool>,
}

/// A run, for a detector.
pub struct Left<'a> {
    /// What the program has read.
    pub input: &'a [u8],
    /// What it has left.
    pub files: Contents,
    /// How it ended.
    pub ending: Ending,
    /// What it has printed: standard output, standard error.
    pub printed: (Vec<u8>, Vec<u8>),
}

/// What a detector says.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All is well; or nobody wants to know any more.
    Fine,
    /// It is not.
    Finding(Box<Finding>),
    /// The detector has failed: why, and what it printed.
    Failed(String),
}

impl Detector {
    /// One that may take as long as is usual.
    pub fn new(
        command: &str,
        folder: &Path,
        execution: Duration,
        stop: Arc<AtomicBool>,
    ) -> Detector {
        Detector {
            command: command.to_owned(),
            folder: folder.to_path_buf(),
            patience: PATIENCE * execution,
            stop,
        }
    }

    /// Asks it about a run. Its folder is made in the machine's folder for temporary files, because
    /// the tool's own is not one that other programs can see, and is removed afterwards.
    pub fn ask(&self, left: &Left<'_>) -> Result<Verdict, Error> {
        let place = tempfile::Builder::new()
            .prefix("brownout-detect-")
            .tempdir()?;
        let case = place.path().join("case");
        fs::create_dir(&case)?;
        fs::write(case.join("input"), left.input)?;
        fs::write(case.join("stdout"), &left.printed.0)?;
        fs::write(case.join("stderr"), &left.printed.1)?;
        let status = match left.ending {
            Ending::Code(code) => code.to_string(),
            Ending::Signal(signal) => (128 + signal).to_string(),
            Ending::Hang => "hang".to_owned(),
            // It was ended from outside; what it has left says nothing.
            Ending::Stopped => return Ok(Verdict::Fine),
        };
        fs::write(case.join("status"), format!("{status}\n"))?;
        write_down(&left.files, &case.join("files"))?;
        let output = place.path().join("output");
        let status = self.run(&case, &output)?;
        let mut said = Vec::new();
        File::open(&output)?.take(1 << 16).read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said);
        let mut lines = said.lines().map(str::trim_end);
        let mut lines = lines
            .by_ref()
            .filter(|line| !line.is_empty())
            .map(|line| line.chars().take(LINE_MAX).collect::<String>());
        let failed = |how: String, lines: &mut dyn Iterator<Item = String>| {
            let said: Vec<String> = lines.take(NOTES_MAX).collect();
            let said = match said.is_empty() {
                true => "it printed nothing".to_owned(),
                false => format!("it printed: {}", said.join(" / ")),
            };
            Verdict::Failed(format!("the detector {how}; {said}"))
        };
        Ok(match status {
            Some(status) => match (status.code(), status.signal()) {
                (Some(0), _) => Verdict::Fine,
                (Some(1), _) => {
                    let first = lines.next();
                    let message = first.unwrap_or_else(|| "the detector is not content".to_owned());
                    let mut finding = Finding::new(
                        BuiltIn::Detected,
                        BuiltIn::Detected.rule().severity,
                        message.clone(),
                    );
                    finding.events.push(Event::new(Role::Symptom, message));
                    finding.notes.extend(lines.take(NOTES_MAX));
                    Verdict::Finding(Box::new(finding))
                }
                (Some(code), _) => failed(format!("ended with exit code {code}"), &mut lines),
                (None, signal) => failed(
                    format!("was killed by signal {}", signal.unwrap_or(0)),
                    &mut lines,
                ),
            },
            None if self.stop.load(Ordering::Relaxed) => Verdict::Fine,
            None => failed(
                format!("did not end within {:.1} s", self.patience.as_secs_f64()),
                &mut lines,
            ),
        })
    }

    /// Runs it to its end; `None` if it had to be ended.
    fn run(&self, case: &Path, output: &Path) -> io::Result<Option<ExitStatus>> {
        // Who does not say where the folder belongs gets it as the last word.
        let names_folder = ["$1", "${1", "$@", "$*"];
        let line = match names_folder.iter().any(|name| self.command.contains(name)) {
            true => self.command.clone(),
            false => format!("{} \"$@\"", self.command),
        };
        let output = File::create(output)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", &line, "detector"])
            .arg(case)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let dies = || {
            // SAFETY: a system call on numbers; it concerns this process alone.
            match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(dies) };
        let mut child = command.spawn()?;
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if begun.elapsed() > self.patience || self.stop.load(Ordering::Relaxed) {
                // SAFETY: the group is that of our child, which was not waited for yet, so that its
                // number is nobody else's.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(10));
        }
    }
}

/// Writes what a run has left below a folder.
fn write_down(contents: &Contents, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to)?;
    for (path, content) in &contents.entries {
        let at = to.join(path.strip_prefix("/").unwrap_or(path));
        if let Some(above) = at.parent() {
            fs::create_dir_all(above)?;
        }
        match content {
            Content::File { mode, len, pages } => {
                let file = File::create(&at)?;
                file.set_len(*len)?;
                for (number, page) in pages {
                    let left = len.saturating_sub(number * PAGE).min(PAGE);
                    file.write_all_at(&page[..left as usize], number * PAGE)?;
                }
                fs::set_permissions(&at, fs::Permissions::from_mode(*mode | 0o600))?;
            }
            Content::CopyOf(from) => copy(from, &at)?,
            Content::Folder { .. } => fs::create_dir_all(&at)?,
            Content::Link(target) => symlink(target, &at)?,
            // What is not there, and what has no contents.
            Content::Removed | Content::AsOnMachine | Content::Special { .. } => {}
            Content::Pages { .. } => {
                return Err(Error::Corrupt(format!(
                    "{} is there in part",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if meta.is_dir() {
        fs::create_dir_all(to)
    } else if meta.is_file() {
        fs::copy(from, to)?;
        let mode = meta.permissions().mode() | 0o600;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_images::Page;

    fn ask(command: &str) -> Verdict {
        let place = tempfile::tempdir().expect("a folder");
        let detector = Detector::new(
            command,
            place.path(),
            Duration::from_millis(2000),
            Arc::default(),
        );
        let mut page: Box<Page> = Box::new([0; PAGE as usize]);
        page[..4].copy_from_slice(b"pool");
        let file = Content::File {
            mode: 0o444,
            len: 3 * PAGE + 7,
            pages: vec![(0, page.clone()), (3, page)],
        };
        let entries = [
            (PathBuf::from("/mnt/pool"), file),
            (PathBuf::from("/mnt/link"), Content::Link("pool".into())),
            (PathBuf::from("/mnt/gone"), Content::Removed),
        ];
        let left = Left {
            input: b"i 1\n",
            files: Contents::changes(entries),
            ending: Ending::Signal(11),
            printed: (b"out".to_vec(), b"err".to_vec()),
        };
        detector.ask(&left).expect("it was asked")
    }

    fn message(verdict: &Verdict) -> (&str, Vec<String>) {
        match verdict {
            Verdict::Finding(finding) => (finding.message.as_str(), finding.notes.clone()),
            _ => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn a_folder_has_all_of_a_run() {
        let command = r#"cd "$1" && test "$(cat input)" = "i 1" && test "$(cat status)" = 139 && test "$(cat stdout)$(cat stderr)" = outerr &&
            test $(stat -c %s files/mnt/pool) = 12295 && test "$(head -c 4 files/mnt/pool)" = pool && test -L files/mnt/link && test ! -e files/mnt/gone &&
            echo changed > files/mnt/pool"#;
        let verdict = ask(command);
        assert!(matches!(verdict, Verdict::Fine), "{verdict:?}");
    }

    #[test]
    fn the_folder_is_removed() {
        let verdict = ask("echo \"$1\"; chmod 0 \"$1\"/files; exit 1");
        let folder = Path::new(message(&verdict).0).parent().expect("a folder");
        assert!(folder.is_absolute() && !folder.exists());
    }

    #[test]
    fn exit_codes_tell_findings_from_failures() {
        let one = ask("echo; echo lost 'it  '; echo more >&2; exit 1; :");
        assert_eq!(message(&one), ("lost it", vec!["more".to_owned()]));
        assert_eq!(message(&ask("exit 1; :")).0, "the detector is not content");
        for (command, said) in [
            ("echo oops >&2; exit 2; :", "exit code 2; it printed: oops"),
            ("kill -9 $$; :", "signal 9; it printed nothing"),
            ("no-such-command-at-all", "exit code 127; it printed: "),
        ] {
            match ask(command) {
                Verdict::Failed(text) => assert!(text.contains(said), "{text}"),
                other => panic!("{command}: {other:?}"),
            }
        }
    }

    /// A command that does not mention its folder has it as its last word.
    #[test]
    fn the_folder_is_the_last_word() {
        let last = r#"sh -c 'ls "$0"; exit 1'"#;
        assert_eq!(message(&ask(last)).0, "files");
        assert!(matches!(ask("test -f \"$1\"/input"), Verdict::Fine));
        assert!(matches!(ask("test -d"), Verdict::Fine));
    }

    #[test]
    fn whoever_hangs_is_ended() {
        let place = tempfile::tempdir().expect("a folder");
        let mut detector = Detector::new(
            "sleep 1000 & sleep 1000; :",
            place.path(),
            Duration::from_millis(20),
            Arc::default(),
        );
        let left = Left {
            input: b"",
            files: Contents::changes([]),
            ending: Ending::Code(0),
            printed: Default::default(),
        };
        let verdict = detector.ask(&left).expect("it was asked");
        assert!(matches!(verdict, Verdict::Failed(text) if text.contains("did not end")));
        detector.stop.store(true, Ordering::Relaxed);
        detector.patience = Duration::from_secs(1000);
        let verdict = detector.ask(&left).expect("it was asked");
        assert!(matches!(verdict, Verdict::Fine), "{verdict:?}");
    }
}
