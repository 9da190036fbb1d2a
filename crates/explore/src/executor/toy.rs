//! A toy executor: plain processes, one at a time, on copies of the files. It shows what the seam
//! asks for, and what not.

use std::collections::VecDeque;
use std::fs;
use std::process::Command as Process;
use std::time::Duration;

use brownout_host::LaunchError;

use super::{Answer, Executor, Request, Want};
use crate::execution::{Command, Execution};
use crate::fake::{self, Act, SIZE};
use crate::line::{LINE, LineKey};
use crate::outcome::Status;
use crate::view::{Image, Narrowed, View};

#[derive(Default)]
struct Toy {
    answers: VecDeque<(u64, Answer)>,
    next: u64,
}

/// Lays the image down in a folder of its own and runs the program there.
fn run(request: &Request) -> std::io::Result<Execution> {
    let folder = tempfile::tempdir()?;
    for (file, state) in request.image.files.iter().filter(|(_, state)| state.exists) {
        let lines = (0..state.size).step_by(LINE);
        let lines = lines.map(|at| LineKey::of(brownout_model::keys::key(*file, at).0));
        let bytes: Vec<u8> = lines.flat_map(|line| request.image.line(line)).collect();
        fs::write(folder.path().join(format!("file-{}", file.0)), bytes)?;
    }
    let mut process = Process::new(&request.program.program);
    process.args(&request.program.args);
    let output = process.current_dir(folder.path()).output()?;
    let outcome = fake::exits(output.status.code().unwrap_or(-1), output.stdout);
    // A plain process does not tell what it reads.
    Ok(fake::execution(Vec::new(), outcome))
}

impl Executor for Toy {
    fn size(&self) -> usize {
        1
    }

    fn start(&mut self, request: Request) -> u64 {
        let lost = |e| LaunchError::Launch("running a plain process", e);
        let answer = run(&request).map(Box::new).map_err(lost);
        self.answers
            .push_back((self.next, Answer::Executed(answer)));
        self.next += 1;
        self.next - 1
    }

    fn wait(&mut self, _: Duration) -> Option<(u64, Answer)> {
        self.answers.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.answers.len()
    }

    fn is_broken(&self) -> bool {
        false
    }
}

#[test]
fn one_program_runs_on_two_images() {
    let recording = fake::recording(&[Act::Store(0, u64::from_le_bytes(*b"survived"))]);
    let (timeline, point) = (recording.timeline.clone(), 0);
    let newest = Image::newest(
        &View { timeline, point },
        &Narrowed::new(),
        &recording.initial,
    );
    let mut oldest = newest.clone();
    let choices = newest.view.choices(fake::unit(0)).expect("it is open");
    oldest
        .survivors
        .insert(fake::unit(0), choices.open().oldest());
    let program = Command::shell("grep -c survived file-1; wc -c < file-1", None);
    let mut toy = Toy::default();
    for (image, lines) in [(newest, 1), (oldest, 0)] {
        let (acknowledged, detail) = Default::default();
        let want = Want::Outcome {
            acknowledged,
            detail,
        };
        let id = toy.start(Request::recovery(&program, image, want));
        let Some((answered, Answer::Executed(Ok(execution)))) = toy.wait(Duration::MAX) else {
            panic!("it cannot be run");
        };
        assert_eq!((answered, execution.outcome.status), (id, Status::Exit(0)));
        let printed = String::from_utf8_lossy(&execution.outcome.stdout).replace('\n', " ");
        assert_eq!(printed, format!("{lines} {SIZE} "));
    }
}
