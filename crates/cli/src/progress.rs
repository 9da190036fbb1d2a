//! What is shown while an analysis goes on.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use brownout_explore::{Progress, Statistics};

/// One line that is written over and over, on a terminal only.
pub struct LiveLine {
    shown: bool,
    on: bool,
    last: Instant,
}

impl LiveLine {
    pub fn new() -> LiveLine {
        LiveLine {
            shown: false,
            on: io::stderr().is_terminal(),
            last: Instant::now(),
        }
    }

    /// Shows it, unless the last one was shown just now.
    pub fn show(&mut self, text: &str) {
        if !self.on || self.last.elapsed() < Duration::from_millis(200) {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
        let _ = io::stderr().flush();
    }

    pub fn clear(&mut self) {
        if self.shown {
            // Nobody reads it any more if this fails.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for LiveLine {
    fn progress(&mut self, s: &Statistics, failures: usize, left: Option<Duration>) {
        let left = left.map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
        self.show(&format!(
            "{} of {} failure points, {} recoveries run, {} known without running, {} crash states fail{left}",
            s.points_done,
            s.failure_points + s.nested_points,
            s.executions,
            s.saved,
            failures,
        ));
    }
}
