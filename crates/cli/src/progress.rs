//! What is shown while an analysis goes on.

use std::io::{self, IsTerminal, Stderr, Write};
use std::time::{Duration, Instant};

use brownout_explore::{Progress, Statistics};
use brownout_findings::numbers::{counted, grouped};
use brownout_fuzz::status::{Display, Size, Snapshot};
use brownout_trace::EventSink;
use brownout_trace::event::Event;

use crate::signals;

/// One line that is written over and over, on a terminal only.
pub struct LiveLine {
    shown: bool,
    on: bool,
    begun: Instant,
    last: Instant,
}

impl LiveLine {
    pub fn new() -> LiveLine {
        LiveLine {
            shown: false,
            on: io::stderr().is_terminal(),
            begun: Instant::now(),
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
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = s.executions as f64 / seconds.max(0.001);
        self.show(&format!(
            "{seconds:.0} s: {} of {} failure points, {} recoveries run ({rate:.0}/s), {} known without running, {} crash states fail{left}",
            s.points_done,
            s.failure_points + s.nested_points,
            s.executions,
            s.saved,
            failures,
        ));
    }
}

/// Shows on a terminal that a check goes on, and how fast. The program may write to the same
/// terminal: so nothing is shown of a short run, nor while the program does nothing to persistent
/// memory (it may have asked for something), and what it writes begins at the left.
pub struct Pace {
    begun: Instant,
    last: Instant,
    events: u64,
    shown: bool,
}

/// A run that takes no longer shows nothing.
const PACE_FROM: Duration = Duration::from_secs(2);
const PACE_EVERY: Duration = Duration::from_millis(500);

impl Pace {
    /// Of a run that begins now, if there is a terminal.
    pub fn new() -> Option<Pace> {
        let now = Instant::now();
        io::stderr().is_terminal().then_some(Pace {
            begun: now,
            last: now,
            events: 0,
            shown: false,
        })
    }

    fn show(&mut self) {
        let elapsed = self.begun.elapsed();
        if elapsed < PACE_FROM || self.last.elapsed() < PACE_EVERY {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let seconds = elapsed.as_secs_f64();
        let text = format!(
            "{seconds:.0} s: {} ({} a second)",
            counted(self.events, "event"),
            grouped((self.events as f64 / seconds) as u64)
        );
        let columns = Size::of(io::stderr()).unwrap_or(Size::USUAL).columns;
        let text: String = text.chars().take(columns.saturating_sub(1)).collect();
        let _ = write!(io::stderr(), "\r\x1b[K{text}\r");
    }
}

impl EventSink for Pace {
    fn event(&mut self, _: &Event<'_>) -> io::Result<()> {
        self.events += 1;
        self.show();
        Ok(())
    }

    fn events(&mut self, events: &[Event<'_>]) -> io::Result<()> {
        self.events += events.len() as u64;
        self.show();
        Ok(())
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
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
