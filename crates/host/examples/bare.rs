//! The smallest front end: runs a program under the engine. Used to debug the engine itself.
use brownout_host::{ExitStatus, LaunchConfig, run};

fn main() {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().expect("usage: bare PROGRAM ARGS…");
    let code = match run(&LaunchConfig::new(program, args)) {
        Ok(o) => {
            #[allow(clippy::print_stderr)]
            for n in &o.notes {
                eprintln!("bare: {n}");
            }
            match o.status {
                ExitStatus::Code(c) => c,
                ExitStatus::Signal(s) => 128 + s,
            }
        }
        Err(e) => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("bare: {e}");
            }
            1
        }
    };
    std::process::exit(code);
}
