//! The last word on a finding: the recovery run natively, on its image, at the program's own path.
//!
//! It happens in a private view, or else beside the user's files: then [`Originals`] keeps what
//! they are and puts it back, whatever happens between. What the recovery leaves running is ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use brownout_host::guard;
use brownout_trace::event::FileId;

use crate::execution::{self, Acknowledged, Command, End, Setting};
use crate::files::copy_sparse;
use crate::outcome::{Hang, Outcome, Status};
use crate::recording::TrackedFile;
use crate::search::Halt;
use crate::view::Image;
use crate::waits::{Patience, Waits};
use crate::world::World;

/// A native recovery that uses the processor for longer hangs: under the engine it already did.
const BUSY: Duration = Duration::from_secs(2);
/// One that sleeps for longer, too. It may wait for a lock whose time limit it knows.
const ASLEEP: Duration = Duration::from_secs(10);
/// When the recovery itself has ended, its output is over if so long nothing comes.
const AFTER: Duration = Duration::from_millis(200);

/// How long a native run may take whose longest part has taken so long under the engine, where
/// nothing was lost. `hang_after` is what the user has said.
pub fn patience(wall: Duration, hang_after: Option<Duration>) -> Patience {
    Patience {
        busy: BUSY.max(wall * 5),
        asleep: ASLEEP.max(wall * 5).max(hang_after.unwrap_or_default()),
    }
}

/// The tracked files as they were before the recorded run.
pub struct Originals {
    files: BTreeMap<FileId, TrackedFile>,
}

impl Originals {
    pub fn new(files: &BTreeMap<FileId, TrackedFile>) -> Originals {
        Originals {
            files: files.clone(),
        }
    }

    /// Puts them back. Files that the run has made are removed.
    pub fn restore(&self) -> io::Result<()> {
        for file in self.files.values() {
            if file.created {
                match fs::remove_file(&file.path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            } else {
                place(file.original.as_ref().unwrap_or(&file.base), &file.path)?;
            }
        }
        Ok(())
    }

    /// Puts an image there instead; files without one are removed. They stay until the next
    /// [`restore`](Self::restore).
    pub fn replace(&self, images: &BTreeMap<FileId, PathBuf>) -> io::Result<()> {
        for (id, file) in &self.files {
            match images.get(id) {
                Some(image) => place(image, &file.path)?,
                None => match fs::remove_file(&file.path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                },
            }
        }
        Ok(())
    }
}

/// Replaces the content of a file; other links to it, its owner and its permissions stay.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    copy_sparse(&File::open(from)?, to)?;
    Ok(())
}

/// What is needed to see a recovery natively.
pub struct Stage<'s> {
    pub setting: &'s Setting,
    pub world: &'s mut World,
    /// The user's files, if the world is not a private view.
    pub originals: Option<&'s Originals>,
    /// An image on which recovery did well at the beginning.
    pub control: Option<(Image, Acknowledged)>,
    /// What takes longer hangs.
    pub patience: Patience,
    /// Nothing is begun later.
    pub until: Option<Instant>,
}

impl Stage<'_> {
    /// Why nothing more is to be run, if that is so: [`Halt::Asked`] or [`Halt::Time`].
    pub fn over(&self) -> Option<Halt> {
        over(&self.setting.end, self.until)
    }

    /// Runs the recovery natively on an image, whose files are also in `images`; and whatever else
    /// has judged it, according to `expected`. What the program's annotations say is seen under the
    /// engine only, and taken from there.
    pub fn recover(
        &mut self,
        image: &Image,
        images: &BTreeMap<FileId, PathBuf>,
        acknowledged: &Acknowledged,
        expected: &Outcome,
    ) -> io::Result<Outcome> {
        match self.originals {
            Some(originals) => originals.replace(images)?,
            None => self.world.lay(image)?,
        }
        let ran = self.run_all(acknowledged, expected);
        match self.originals {
            Some(originals) => originals.restore()?,
            None => self.world.distrust(),
        }
        ran
    }

    fn run_all(&self, acknowledged: &Acknowledged, expected: &Outcome) -> io::Result<Outcome> {
        let recover = &self.setting.recover;
        let mut outcome = run(recover, self.patience, self.world)?;
        if expected.again.is_some() {
            let again = run(recover, self.patience, self.world)?;
            outcome.again = matches!(again.status, Status::Exit(_)).then_some(again.stdout);
        }
        if let Some(checker) = &self.setting.checker
            && expected.checker.is_some()
            && outcome.status == Status::Exit(0)
        {
            let command = execution::judging(checker, self.world, acknowledged)?;
            let judged = run(&command, self.patience, self.world)?;
            let mut said = judged.stdout;
            said.extend(judged.stderr);
            outcome.checker = Some((judged.status, said));
        }
        outcome.broken.clone_from(&expected.broken);
        Ok(outcome)
    }
}

fn over(end: &End, until: Option<Instant>) -> Option<Halt> {
    if end.is_wanted() {
        return Some(Halt::Asked);
    }
    let is_late = until.is_some_and(|until| Instant::now() >= until);
    is_late.then_some(Halt::Time)
}

/// Runs a command natively, in a world that is a private view, or beside the user's files.
fn run(command: &Command, patience: Patience, world: &World) -> io::Result<Outcome> {
    let stdin = match &command.stdin {
        Some(path) if world.view().is_some() => Stdio::from(world.open(path)?),
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    let mut process = Process::new(&command.program);
    process
        .args(&command.args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that all of it can be ended.
        .process_group(0);
    let view = world.view().cloned();
    let mut enter = match &view {
        Some(view) => Some(view.enter(&std::env::current_dir()?)?),
        None => None,
    };
    // SAFETY: only async-signal-safe calls between fork and exec. The view lives until this
    // function ends.
    unsafe {
        process.pre_exec(move || {
            if let Some(enter) = &mut enter {
                enter()?;
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            Ok(())
        });
    }
    let others = children();
    // Orphans come to us, so that they can be found.
    let mut child = guard::with_orphans(|| process.spawn())?;
    let mut outputs = [
        Output::new(child.stdout.take().map(OwnedFd::from))?,
        Output::new(child.stderr.take().map(OwnedFd::from))?,
    ];
    let mut waits = Waits::new(child.id() as i32, patience);
    let status = loop {
        take(&mut outputs, Duration::from_millis(2));
        if let Some(status) = child.try_wait()? {
            break match (status.code(), status.signal()) {
                (Some(code), _) => Status::Exit(code),
                (None, signal) => Status::Signal(signal.unwrap_or(0)),
            };
        }
        if waits.is_hang() {
            // SAFETY: the group of our own child, which was not waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            break Status::Hang(Hang::Time);
        }
    };
    // What it has started may still write; but who only waits is not waited for.
    let ended = Instant::now();
    let mut quiet = ended;
    while outputs.iter().any(|output| output.pipe.is_some())
        && quiet.elapsed() < AFTER
        && ended.elapsed() < ASLEEP
    {
        if take(&mut outputs, Duration::from_millis(5)) {
            quiet = Instant::now();
        }
    }
    match &view {
        Some(view) => view.end_all(),
        None => end_children_but(&others),
    }
    let [stdout, stderr] = outputs.map(|output| output.bytes);
    Ok(Outcome {
        status,
        stdout,
        stderr,
        checker: None,
        again: None,
        broken: Vec::new(),
    })
}

/// So much of an output is kept; the rest is read and forgotten, or whoever writes it would wait.
const OUTPUT_MAX: usize = execution::OUTPUT_MAX as usize;
/// So often an output is read before somebody looks whether its time is up.
const READS_MAX: u32 = 64;

/// One end of a pipe, until nobody has the other.
struct Output {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Output {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Output> {
        if let Some(pipe) = &pipe {
            // SAFETY: our own descriptor.
            if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Output {
            pipe: pipe.map(File::from),
            bytes: Vec::new(),
        })
    }
}

/// Takes what is there; waits at most so long for something. True if there was anything.
fn take(outputs: &mut [Output; 2], wait: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> = outputs
        .iter()
        .filter_map(|output| output.pipe.as_ref())
        .map(|pipe| libc::pollfd {
            fd: pipe.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: our own array. An interruption is as good as a time-out.
    unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            wait.as_millis() as i32,
        )
    };
    let mut any = false;
    for output in outputs {
        let mut buffer = [0; 1 << 16];
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut output.pipe else {
                break;
            };
            match pipe.read(&mut buffer) {
                Ok(0) => output.pipe = None,
                Ok(n) => {
                    any = true;
                    let room = OUTPUT_MAX - output.bytes.len();
                    output.bytes.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // What was read until an error is what there is.
                Err(_) => output.pipe = None,
            }
        }
    }
    any
}

/// The children of this process.
fn children() -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    found
}

/// Ends what has come to us since `others` were all. Nothing else of ours runs beside a native run,
/// so it is what that has left behind.
fn end_children_but(others: &[i32]) {
    // Each may have children, which come to us when it ends.
    for _ in 0..1000 {
        let mut left = children();
        left.retain(|pid| !others.contains(pid));
        if left.is_empty() {
            return;
        }
        for pid in left {
            let mut status = 0;
            // SAFETY: our own child, which nobody else waits for, so that its number is its own.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &mut status, libc::__WALL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn runs_are_begun_until_the_time_is_up_or_somebody_ends_it() {
        let stop = Arc::new(AtomicBool::new(false));
        let end = End::new(stop.clone());
        let later = Instant::now() + Duration::from_secs(1000);
        assert_eq!(over(&end, None), None);
        assert_eq!(over(&end, Some(later)), None);
        assert_eq!(over(&end, Some(Instant::now())), Some(Halt::Time));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(over(&end, None), Some(Halt::Asked));
        assert_eq!(over(&end, Some(later)), Some(Halt::Asked));
    }

    /// Who prints more than is kept does not wait for us for ever.
    #[test]
    fn what_is_not_kept_of_an_output_is_read_all_the_same() {
        use std::io::Write;
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let more = OUTPUT_MAX + (1 << 20) + 7;
        let prints = std::thread::spawn(move || writer.write_all(&vec![b'x'; more]));
        let ends = [Some(OwnedFd::from(reader)), None];
        let mut outputs = ends.map(|end| Output::new(end).expect("a descriptor"));
        let begun = Instant::now();
        while outputs[0].pipe.is_some() {
            take(&mut outputs, Duration::from_millis(5));
            assert!(begun.elapsed() < Duration::from_secs(60), "it waits");
        }
        assert!(prints.join().expect("it ends").is_ok());
        assert_eq!(outputs[0].bytes.len(), OUTPUT_MAX);
    }
}
