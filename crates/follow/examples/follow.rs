//! Runs a program, labels every byte that it loads from persistent memory by where it comes from,
//! and counts what depends on that.
//!
//! ```text
//! cargo run --release -p brownout-follow --example follow -- [--plain | --told] [--pm GLOB]… PROGRAM ARGS…
//! ```
//! `--plain` follows nothing, `--told` has the program tell what it executes and makes nothing of
//! it: what both cost.
#![allow(clippy::print_stdout)]

use brownout_follow::{Access, Follower, Label, Observer, Sets};
use brownout_host::{LaunchConfig, Schedule, StrategyKind};
use brownout_trace::event::Event;
use brownout_trace::{EventSink, Executed};
use std::io;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Default)]
struct Count {
    loads: u64,
    stores: u64,
    stored: u64,
    by_address: u64,
    left: u64,
    events: u64,
    words: u64,
}

impl Observer for Count {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        self.loads += 1;
        if let Some((_, offset)) = access.place {
            for (n, source) in sources.iter_mut().enumerate() {
                // By line: few sources are cheaper, and tell as much here.
                *source = ((offset + n as u64) / 64) as u32 + 1;
            }
        }
    }

    fn stores(&mut self, _: &Access, content: &[Label], address: Label, _: &Sets) {
        self.stores += 1;
        self.stored += content.iter().filter(|label| !label.is_none()).count() as u64;
        self.by_address += u64::from(!address.is_none());
    }

    fn leaves(&mut self, _: &Access, content: &[Label], _: &Sets) {
        self.left += content.iter().filter(|label| !label.is_none()).count() as u64;
    }
}

struct Sink {
    follower: Option<Follower>,
    count: Count,
}

impl EventSink for Sink {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.count.events += 1;
        match &mut self.follower {
            Some(follower) => follower.event(event, &mut self.count),
            None => Ok(()),
        }
    }

    fn executed(&mut self, what: &Executed<'_>) -> io::Result<()> {
        if let Executed::Words { words, .. } = what {
            self.count.words += words.len() as u64 / 8;
        }
        match &mut self.follower {
            Some(follower) => follower.executed(what, &mut self.count),
            None => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    let (mut plain, mut told) = (false, false);
    let mut globs = Vec::new();
    while let Some(option) = args.next_if(|arg| arg.to_string_lossy().starts_with("--")) {
        match option.to_string_lossy().as_ref() {
            "--plain" => plain = true,
            "--told" => told = true,
            "--pm" => globs.extend(args.next().map(|glob| glob.to_string_lossy().into_owned())),
            other => panic!("no option {other}"),
        }
    }
    let program = args.next().expect("a program");
    let mut config = LaunchConfig::new(program, args);
    config.pm_globs = globs;
    config.loads = true;
    config.values = false;
    config.schedule = Some(Schedule::new(StrategyKind::GoOn, 0));
    config.follow = !plain;
    let mut sink = Sink {
        follower: (!plain && !told).then(Follower::new),
        count: Count::default(),
    };
    let begun = Instant::now();
    let outcome = brownout_host::record(&config, &mut sink);
    let took = begun.elapsed();
    let count = &sink.count;
    let has_run = outcome.is_ok();
    println!(
        "{took:?}, {} events, {} words: {:?}",
        count.events,
        count.words,
        outcome.map(|outcome| outcome.status)
    );
    if let Some(follower) = &sink.follower {
        println!(
            "{} instructions, {} given up; {} loads, {} stores of {} labelled bytes ({} by address), {} labelled bytes left",
            follower.executed_instructions(),
            follower.given_up(),
            count.loads,
            count.stores,
            count.stored,
            count.by_address,
            count.left
        );
    }
    match has_run {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
