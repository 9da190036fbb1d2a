//! A program launched again and again, against the same program forked from a kept process: how
//! many runs a second, and that the events are the same. `cargo xtask bench session` calls it.
//!
//! ```text
//!  session RUNS world|input POOL STDIN PROGRAM ARGS…
//! ```
//! With `world` the program is kept before it looks at the pool's folder, with `input` before it
//! reads its standard input. The pool is set back before each run to what it was: at the beginning,
//! or at the stop.
#![allow(clippy::print_stdout)] // it is a program

use brownout_host::{LaunchConfig, LaunchError, Outcome, Session, StopAt, record};
use brownout_trace::EventSink;
use brownout_trace::event::{Event, EventKind};
use std::error::Error;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Notes which parts of the pool a run changes, and, if asked to, what all its events are.
#[derive(Default)]
struct Notes {
    maps: Vec<(u64, u64, u64)>,
    changed: Vec<(u64, u64)>,
    digest: Option<DefaultHasher>,
}

impl EventSink for Notes {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        if let Some(digest) = &mut self.digest {
            format!("{event:?}").hash(digest);
        }
        match &event.kind {
            EventKind::Map {
                addr, len, offset, ..
            } => self.maps.push((addr.0, *len, *offset)),
            EventKind::FileWrite { offset, size, .. } => {
                self.changed.push((*offset, u64::from(*size)));
            }
            EventKind::Load(_) => {}
            kind => {
                if let Some(access) = kind.access() {
                    let at = access.addr.0;
                    let of =
                        |(start, len, _): &&(u64, u64, u64)| (*start..start + len).contains(&at);
                    if let Some((start, _, offset)) = self.maps.iter().rfind(of) {
                        let size = u64::from(access.size);
                        self.changed.push((at - start + offset, size));
                    }
                }
            }
        }
        Ok(())
    }
}

struct Pool {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Pool {
    /// As it is now.
    fn new(path: &Path) -> std::io::Result<Pool> {
        Ok(Pool {
            path: path.to_path_buf(),
            bytes: std::fs::read(path)?,
        })
    }

    /// Sets it back, in place: the kept process may have it mapped.
    fn restore(&self, changed: &[(u64, u64)]) -> std::io::Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        for (at, len) in changed {
            let (at, end) = (*at as usize, (*at + *len) as usize);
            if let Some(bytes) = self.bytes.get(at..end) {
                file.write_all_at(bytes, at as u64)?;
            }
        }
        Ok(())
    }
}

/// Runs and sets the pool back; the time and the digest, if there is one.
fn once(
    pool: &Pool,
    notes: Notes,
    run: impl FnOnce(&mut Notes) -> Result<Outcome, LaunchError>,
) -> Result<(Duration, u64, Option<u64>), Box<dyn Error>> {
    let mut notes = notes;
    let begun = Instant::now();
    let outcome = run(&mut notes)?;
    let time = begun.elapsed();
    pool.restore(&notes.changed)?;
    Ok((
        time,
        outcome.events,
        notes.digest.map(|digest| digest.finish()),
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut word = || {
        words
            .next()
            .ok_or("RUNS world|input POOL STDIN PROGRAM ARGS…")
    };
    let runs: u32 = word()?
        .to_str()
        .and_then(|n| n.parse().ok())
        .ok_or("RUNS is a number")?;
    let place = word()?;
    let path = PathBuf::from(word()?).canonicalize()?;
    let stdin = PathBuf::from(word()?);
    let program = word()?;
    let mut config = LaunchConfig::new(program, words);
    config.deterministic = true;
    config.loads = true;
    config.boundaries = true;
    config.pm_globs = vec![path.to_string_lossy().into_owned()];
    config.limits.wall = Some(Duration::from_secs(60));
    config.stdout = Some(File::create("/dev/null")?);
    config.stderr = Some(File::create("/dev/null")?);
    let digest = || Notes {
        digest: Some(DefaultHasher::new()),
        ..Notes::default()
    };
    let before = Pool::new(&path)?;
    let launch = |config: &mut LaunchConfig, notes| {
        config.stdin = Some(File::open(&stdin)?);
        once(&before, notes, |sink| record(config, sink))
    };
    let (_, events, launched) = launch(&mut config, digest())?;
    let mut of_launches = Duration::ZERO;
    for _ in 0..runs {
        of_launches += launch(&mut config, Notes::default())?.0;
    }
    config.stdin = Some(File::open(&stdin)?);
    let folder = path.parent().ok_or("the pool is in a folder")?;
    let stop = match place.to_str() {
        Some("world") => StopAt::World(vec![folder.to_path_buf()]),
        _ => StopAt::Input,
    };
    let begun = Instant::now();
    let mut session = Session::open(&config, stop)?;
    let opened = begun.elapsed();
    let at_stop = Pool::new(&path)?;
    let mut of_runs = Duration::ZERO;
    let mut same = true;
    // Now and then all events are looked at, which takes its time.
    for n in 0..runs {
        if n % 100 == 0 {
            let (_, count, forked) = once(&at_stop, digest(), |sink| session.run(&config, sink))?;
            same &= (count, forked) == (events, launched);
        }
        let (time, count, _) = once(&at_stop, Notes::default(), |sink| {
            session.run(&config, sink)
        })?;
        of_runs += time;
        same &= count == events;
    }
    let [launch, run] = [of_launches, of_runs].map(|time| time.as_secs_f64() / f64::from(runs));
    println!(
        "{runs} launches: {:.0} a second ({:.2} ms each). {runs} forked runs: {:.0} a second ({:.2} ms each), {:.1} times as many; \
         kept after {:.1} ms. {events} events each, {}.",
        1.0 / launch,
        launch * 1e3,
        1.0 / run,
        run * 1e3,
        launch / run,
        opened.as_secs_f64() * 1e3,
        if same { "the same" } else { "NOT THE SAME" }
    );
    if same {
        Ok(())
    } else {
        Err("the events differ".into())
    }
}
