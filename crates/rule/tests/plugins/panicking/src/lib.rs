//! A rule that panics where its option says: `new`, `info`, `event`, `payload`, `end` or `drop`.

use brownout_rule::{Event, Info, Pm, Reporter, Rule};

/// A payload that is no text, and panics itself.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("never seen");
    }
}

/// See the module's header.
pub struct Panicking {
    place: String,
}

impl Panicking {
    fn at(&self, place: &str) {
        assert!(self.place != place, "told to, in {place}");
    }
}

impl Rule for Panicking {
    fn new(options: &str) -> Result<Self, String> {
        let rule = Panicking {
            place: options.to_string(),
        };
        rule.at("new");
        Ok(rule)
    }

    fn info(&self) -> Info {
        self.at("info");
        Info::correctness("panicking", "panics where its option says")
    }

    fn event(&mut self, _event: &Event<'_>, _pm: &Pm<'_>, report: &mut Reporter<'_>) {
        report.finding("an event").submit();
        if self.place == "payload" {
            std::panic::panic_any(Grenade);
        }
        self.at("event");
    }

    fn end(&mut self, _pm: &Pm<'_>, _report: &mut Reporter<'_>) {
        self.at("end");
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        if self.place == "drop" {
            panic!("told to, in drop");
        }
    }
}

brownout_rule::export_rule!(Panicking);
