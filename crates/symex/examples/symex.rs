//! Searches a program without the command line of the tool, and prints the numbers.
//!
//! ```text
//! cargo run --release -p brownout-symex --example symex -- N SECONDS PROGRAM ARGS…
//! ```
//! `N` is how many blanks the program reads.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use brownout_explore::Command;
use brownout_symex::{Numbers, Options, Progress, Strategy};

struct Silent;

impl Progress for Silent {
    fn show(&mut self, _: &Numbers) {}
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut number = || {
        let text = args.next().expect("a number");
        text.to_string_lossy().parse::<u64>().expect("a number")
    };
    let (len, seconds) = (number(), number());
    let program = args.next().expect("a program");
    let command = Command {
        program,
        args: args.collect(),
        stdin: None,
    };
    let mut options = Options::new(command, vec![b' '; len as usize]);
    options.pm_globs = vec!["**/pool*".to_owned()];
    options.time = Some(Duration::from_secs(seconds));
    options.until_found = std::env::var_os("ALL").is_none();
    if let Ok(name) = std::env::var("STRATEGY") {
        let mut known = Strategy::NAMES.iter();
        options.strategy = known.find(|(n, _)| *n == name).expect("a strategy").1;
    }
    if let Ok(seed) = std::env::var("SEED") {
        options.seed = seed.parse().expect("a number");
    }
    options.setup = std::env::var("SETUP").ok();
    if let Ok(paths) = std::env::var("PATHS") {
        options.paths = Some(paths.parse().expect("a number"));
    }
    options.out = std::env::var_os("OUT").map(|out| Path::new(&out).to_owned());
    match brownout_symex::symex(&options, &mut Silent) {
        Ok(searched) => {
            println!("{:?}: {:#?}", searched.over, searched.numbers);
            println!("{:#?}", searched.losses);
            for found in &searched.found {
                let input = String::from_utf8_lossy(&found.proof.input).into_owned();
                println!(
                    "{:?} {} {:?}",
                    found.finding.severity, found.finding.message, input
                );
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
