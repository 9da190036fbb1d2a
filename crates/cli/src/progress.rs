//! What is shown while an analysis goes on.

use std::io::{self, IsTerminal, Stderr, Write};
use std::time::{Duration, Instant};

use brownout_explore::{Progress, Statistics};
use brownout_fuzz::status::{Display, Size, Snapshot};

use crate::signals;

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
        // A line that goes on in the next row cannot be written over.
        let columns = Size::of(io::stderr()).unwrap_or(Size::USUAL).columns;
        let text: String = text.chars().take(columns.saturating_sub(1)).collect();
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

/// Shows how far the campaign is: on the whole screen of a terminal, else a line now and then.
pub struct CampaignScreen {
    display: Option<Display<Stderr>>,
    begun: Instant,
}

impl CampaignScreen {
    pub fn new() -> CampaignScreen {
        // A terminal that cannot be written to is nobody's.
        let display = Display::new(io::stderr()).ok();
        if matches!(display, Some(Display::Screen(_))) {
            signals::screen_is_taken(true);
        }
        CampaignScreen {
            display,
            begun: Instant::now(),
        }
    }

    pub fn show(&mut self, snapshot: &Snapshot) {
        if let Some(display) = &mut self.display {
            // Nobody reads it any more if this fails.
            let _ = display.show(self.begun.elapsed(), snapshot);
        }
    }
}

impl Drop for CampaignScreen {
    fn drop(&mut self) {
        self.display = None;
        signals::screen_is_taken(false);
    }
}
