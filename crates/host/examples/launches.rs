//! How long a launch takes: runs a program again and again in one process and prints the mean,
//! beside that of native runs.
use brownout_host::{LaunchConfig, record, run};
use brownout_trace::EventSink;
use std::time::Instant;

struct Nothing;

impl EventSink for Nothing {
    fn event(&mut self, _: &brownout_trace::event::Event<'_>) -> std::io::Result<()> {
        Ok(())
    }
}

#[allow(clippy::print_stdout)]
fn main() {
    let mut args = std::env::args_os().skip(1);
    let count = args.next().and_then(|n| n.to_str()?.parse::<u32>().ok());
    let (Some(count), Some(program)) = (count, args.next()) else {
        println!("usage: launches COUNT PROGRAM ARGS…");
        return;
    };
    let args: Vec<_> = args.collect();
    let config = LaunchConfig::new(&program, args.clone());
    let measure = |what: &str, launch: &mut dyn FnMut()| {
        launch();
        let begun = Instant::now();
        for _ in 0..count {
            launch();
        }
        println!("{what}: {:?} each", begun.elapsed() / count);
    };
    measure("native", &mut || {
        let status = std::process::Command::new(&program).args(&args).status();
        status.expect("it runs");
    });
    measure("run", &mut || {
        run(&config).expect("it runs");
    });
    measure("record", &mut || {
        record(&config, &mut Nothing).expect("it runs");
    });
}
