//! `litmus_vm` on every memory of a script, and under the tool.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use brownout_model::{
    ByteRange, Config, Event, FlushKind, Key, Line, Op as ModelOp, Thread, Write, from_recorded,
};
use brownout_trace::{EventKind, Reader};

use super::brute_force::{Image, Memories};
use super::recovery::{Ending, recover};
use super::script::Script;
use crate::{Invocation, Scratch, layout, tool};

/// Names in the folder in which a script runs.
const POOL: &str = "pool";
const SCRIPT: &str = "script";

/// The longest that anything of a script takes, many times over.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A script with the folder that it runs in.
pub struct Litmus {
    script: Script,
    binary: PathBuf,
    scratch: Scratch,
}

/// All outcomes that are possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// If the crash falls after so many steps of the program. There is one more than there are
    /// steps.
    pub by_position: Vec<BTreeSet<Ending>>,
    /// How many memories recovery was run on.
    pub images: usize,
}

impl Truth {
    /// Wherever the crash falls.
    pub fn union(&self) -> BTreeSet<Ending> {
        self.by_position.iter().flatten().cloned().collect()
    }
}

impl Litmus {
    /// Makes a folder with the script in it.
    pub fn new(script: Script) -> Result<Litmus> {
        let binary = layout::programs().join("litmus_vm");
        ensure!(
            binary.is_file(),
            "{} is missing: run `cargo xtask build`",
            binary.display()
        );
        let scratch = Scratch::new()?;
        fs::write(scratch.join(SCRIPT), script.to_string())?;
        Ok(Litmus {
            script,
            binary,
            scratch,
        })
    }

    /// What it runs.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Puts the pool into the state in which the program finds it.
    pub fn reset(&self) -> Result<()> {
        let pool = self.scratch.join(POOL);
        match &self.script.initial {
            Some(image) => fs::write(&pool, image)?,
            None if pool.exists() => fs::remove_file(&pool)?,
            None => {}
        }
        Ok(())
    }

    /// The program, to be run in the folder.
    pub fn program(&self) -> Invocation {
        let binary = self.binary.to_string_lossy();
        Invocation::new([&*binary, "run", POOL, SCRIPT], self.folder()).timeout(TIMEOUT)
    }

    /// The command that recovers, to be run in the folder.
    pub fn recovery_command(&self) -> String {
        format!("{} check {POOL} {SCRIPT}", self.binary.display())
    }

    /// Fails unless the tool records the events of the script.
    pub fn verify_recording(&self) -> Result<()> {
        self.reset()?;
        let trace = self.scratch.join("trace.bwt");
        tool::record(&self.program(), &trace, &["--deterministic", "--pm", POOL])
            .run()?
            .expect_success("record")?;
        let recorded = recorded_events(&trace)?;
        let expected = visible(self.script.events().into_iter().flatten());
        let recorded = visible(recorded.into_iter());
        let first = expected.iter().zip(&recorded).take_while(|(a, b)| a == b);
        let first = first.count();
        ensure!(
            recorded == expected,
            "event {first} is recorded as {:?} where the script does {:?}\n{}",
            recorded.get(first),
            expected.get(first),
            self.script
        );
        Ok(())
    }

    /// Runs the recovery, natively, on every memory that a crash may leave.
    pub fn brute_force(&self, config: Config) -> Result<Truth> {
        let memories = Memories::of(&self.script, config)?;
        let endings = memories
            .images
            .iter()
            .map(|image| self.recover(image))
            .collect::<Result<Vec<Ending>>>()?;
        let by_position = memories
            .by_position
            .iter()
            .map(|images| images.iter().map(|image| endings[*image].clone()).collect())
            .collect();
        Ok(Truth {
            by_position,
            images: memories.images.len(),
        })
    }

    fn recover(&self, image: &Image) -> Result<Ending> {
        let crashed = "crashed";
        fs::write(self.scratch.join(crashed), image)?;
        let output = Command::new(&self.binary)
            .args(["check", crashed, SCRIPT])
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        ensure!(
            output.stderr.is_empty(),
            "litmus_vm says: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let stdout = String::from_utf8(output.stdout)?;
        let ending = match (output.status.code(), output.status.signal()) {
            (Some(code), _) => Ending::code(code, stdout),
            (None, signal) => Ending::signal(signal.unwrap_or(0), stdout),
        };
        let second = recover(&self.script.recovery, &mut image.clone());
        ensure!(
            ending == second,
            "litmus_vm and its second implementation differ: {ending:?}, {second:?}\n{}",
            self.script
        );
        Ok(ending)
    }
}

/// Without locked instructions on ordinary memory that complete nothing: whether they are recorded
/// is the engine's choice.
fn visible<'a>(events: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
    let mut pending: HashMap<Thread, bool> = HashMap::new();
    events
        .filter(|event| {
            let pending = pending.entry(event.thread).or_default();
            match &event.op {
                ModelOp::Flush { kind, .. } => *pending |= *kind != FlushKind::Clflush,
                ModelOp::NtStore(_) => *pending = true,
                ModelOp::Locked => return std::mem::take(pending),
                ModelOp::Sfence | ModelOp::Mfence | ModelOp::Rmw(_) => *pending = false,
                _ => {}
            }
            true
        })
        .collect()
}

/// The events of a trace that change persistency, as if the pool were mapped at 0.
fn recorded_events(trace: &Path) -> Result<Vec<Event<'static>>> {
    let mut reader = Reader::open(trace)?;
    let mut base = None;
    let mut events = Vec::new();
    while let Some(recorded) = reader.next()? {
        if let EventKind::Map { addr, .. } = recorded.kind {
            ensure!(base.is_none(), "the pool is mapped more than once");
            base = Some(addr.0);
        }
        let Some(event) = from_recorded(&recorded) else {
            continue;
        };
        let base = base.context("an access before the pool is mapped")?;
        let write = |write: &Write<'_>| -> Result<Write<'static>> {
            let bytes = write.bytes().context("a store without values")?.to_vec();
            let key = Key(write.range().start().0 - base);
            Ok(Write::new(key, bytes))
        };
        let op = match &event.op {
            ModelOp::Store(w) => ModelOp::Store(write(w)?),
            ModelOp::NtStore(w) => ModelOp::NtStore(write(w)?),
            ModelOp::Rmw(w) => ModelOp::Rmw(write(w)?),
            ModelOp::Flush { kind, line } => ModelOp::Flush {
                kind: *kind,
                line: Line::of(Key(line.range().start().0 - base)),
            },
            ModelOp::Msync(range) => {
                let start = Key(range.start().0 - base);
                ModelOp::Msync(ByteRange::new(start, range.len()))
            }
            ModelOp::Sfence => ModelOp::Sfence,
            ModelOp::Mfence => ModelOp::Mfence,
            ModelOp::Locked => ModelOp::Locked,
            other => bail!("litmus_vm does not do this: {other:?}"),
        };
        events.push(Event::new(event.thread, op));
    }
    Ok(events)
}
