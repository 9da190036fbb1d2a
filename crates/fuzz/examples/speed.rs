//! One test case run again and again with all detectors on, against the same program launched
//! natively: executions a second, and where their time goes. `cargo xtask bench fuzz` calls it.
//!
//! What is spent on what follows from differences: between runs without and with the commands, and
//! between runs that nobody judges and those that are judged. The machine may have other work: then
//! the processor's time, of this process and of those that have ended, says more than the clock.
//!
//! ```text
//!  speed RUNS POOL INPUT PROGRAM ARGS…
//! ```
#![allow(clippy::print_stdout)] // it is a program

use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use brownout_explore::Ground;
use brownout_fuzz::{Case, Judge, Runner, Server, Target, Workshop};
use brownout_images::{Contents, ImageId, Origin, Store, View, capture};
use brownout_stage::Tells;
use brownout_trace::Tee;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut word = || words.next().ok_or("RUNS POOL INPUT PROGRAM ARGS…");
    let runs = word()?.to_str().and_then(|n| n.parse().ok());
    let runs: u32 = runs.ok_or("RUNS is a number")?;
    let pool = PathBuf::from(word()?).canonicalize()?;
    let path = PathBuf::from(word()?);
    let input = fs::read(&path)?;
    let program = word()?;
    let args: Vec<_> = words.collect();
    let before = fs::read(&pool)?;
    let mut native = Spent::default();
    let launches = (runs / 10).max(1);
    for _ in 0..launches {
        let begun = Spent::now();
        let mut command = Command::new(&program);
        command.args(&args).stdin(File::open(&path)?);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        native = native.plus(begun.until_now(), 1.0);
        fs::write(&pool, &before)?;
    }
    let folder = tempfile::tempdir()?;
    let store = Arc::new(Store::create(&folder.path().join("images"))?);
    // The pool as it is, as an image.
    let here = |path: &std::path::Path| path.to_path_buf();
    let nowhere = |_: &std::path::Path| PathBuf::from("/nonexistent");
    let contents: Contents = capture(
        [pool.clone()],
        &View {
            at: &here,
            machine: &nowhere,
        },
    )?
    .contents;
    let root = store.add(None, Origin::Root("a pool".into()), &contents)?;
    let target = Target {
        program,
        args,
        pm_globs: vec![pool.to_string_lossy().into_owned()],
        delivery: Default::default(),
    };
    let patience = Duration::from_secs(60);
    let workshop = Arc::new(Workshop::new(Ground::new()?, store, target, patience));
    let without_commands = Bare::of(&workshop, root.id, b"", runs)?;
    let bare = Bare::of(&workshop, root.id, &input, runs)?;
    let judge = Judge::new(Default::default(), Default::default());
    let mut runner = Runner::new(workshop, judge);
    let case = Case {
        image: root.id,
        input,
    };
    // The first run opens the server, the second finds out about memory.
    runner.run(&case)?;
    runner.run(&case)?;
    let opening = runner.times.opening;
    let begun = Spent::now();
    for _ in 0..runs {
        runner.run(&case)?;
    }
    let spent = begun.until_now().each(runs);
    let native_spent = native.each(launches);
    let (each, native) = (spent.clock, native_spent.clock);
    println!(
        "{:.0} executions a second ({:.2} ms each); launched natively {:.0} a second ({:.2} ms each): {:.1} times as many. \
         {} of {} runs were forked.",
        1.0 / each,
        each * 1e3,
        1.0 / native,
        native * 1e3,
        native / each,
        runner.warm,
        runs + 2,
    );
    for (name, spent) in [("forked", spent), ("launched natively", native_spent)] {
        println!(
            "{name}: {:.2} ms of a processor each ({:.0} a second), {:.2} of them in the program or the tool, {:.2} in the kernel; {:.0} page faults.",
            spent.processor() * 1e3,
            1.0 / spent.processor(),
            spent.user * 1e3,
            spent.kernel * 1e3,
            spent.faults,
        );
    }
    println!("\n| part of an execution | ms | share |\n|---|---:|---:|");
    let parts = [
        (
            "fork, and all that the program does without a command, to its exit",
            without_commands.running,
        ),
        (
            "running the commands",
            bare.running - without_commands.running,
        ),
        ("setting pages back", bare.setting_back),
        ("looking for other changes", bare.looking),
        (
            "following the rules, judging",
            each - bare.running - bare.setting_back - bare.looking,
        ),
    ];
    for (name, seconds) in parts {
        let share = 100.0 * seconds / each;
        println!("| {name} | {:.3} | {share:.0} % |", seconds * 1e3);
    }
    println!(
        "\nOpening (laying the image down, launching the program up to its input) took {:.0} ms, once.",
        opening * 1e3
    );
    Ok(())
}

/// What something takes: seconds by the clock, seconds of a processor, page faults.
#[derive(Clone, Copy, Default)]
struct Spent {
    clock: f64,
    user: f64,
    kernel: f64,
    faults: f64,
}

impl Spent {
    /// By now, of this process and of its children that have ended.
    fn now() -> Spent {
        let mut all = Spent::default();
        for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
            // SAFETY: all zeros are valid; the kernel fills it in.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(who, &raw mut usage);
                usage
            };
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            all.user += seconds(usage.ru_utime);
            all.kernel += seconds(usage.ru_stime);
            all.faults += usage.ru_minflt as f64;
        }
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        all.clock = BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64();
        all
    }

    fn until_now(self) -> Spent {
        Spent::now().plus(self, -1.0)
    }

    fn plus(self, other: Spent, factor: f64) -> Spent {
        Spent {
            clock: self.clock + factor * other.clock,
            user: self.user + factor * other.user,
            kernel: self.kernel + factor * other.kernel,
            faults: self.faults + factor * other.faults,
        }
    }

    fn each(self, count: u32) -> Spent {
        let share = 1.0 / f64::from(count);
        Spent::default().plus(self, share)
    }

    fn processor(self) -> f64 {
        self.user + self.kernel
    }
}

/// Where the time of runs goes that nobody judges: seconds of each.
struct Bare {
    /// Forking, running, and reading what it did.
    running: f64,
    setting_back: f64,
    looking: f64,
}

impl Bare {
    fn of(
        workshop: &Workshop,
        image: ImageId,
        input: &[u8],
        runs: u32,
    ) -> Result<Bare, Box<dyn Error>> {
        let mut server = Server::open(workshop, image, &Tells::Path)?;
        let mut bare = [Duration::ZERO; 3];
        for round in 0..runs + 2 {
            let begun = Instant::now();
            let ran = server.run(input, workshop.patience, &mut Tee::default())?;
            let all = begun.elapsed();
            // The first runs find out about memory.
            if round >= 2 {
                bare[0] += all.saturating_sub(ran.setting_back + ran.looking);
                bare[1] += ran.setting_back;
                bare[2] += ran.looking;
            }
        }
        let each = |time: Duration| time.as_secs_f64() / f64::from(runs);
        let [running, setting_back, looking] = bare.map(each);
        Ok(Bare {
            running,
            setting_back,
            looking,
        })
    }
}
