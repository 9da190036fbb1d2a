//! Says at the end of the run what it was given. With the option `ask` it asks for values and
//! loads.

use brownout_rule::{Event, Info, Kind, Pm, Reporter, Rule};

struct Counting {
    asks: bool,
    stores: u64,
    with_bytes: u64,
    loads: u64,
}

impl Rule for Counting {
    fn new(options: &str) -> Result<Self, String> {
        Ok(Counting {
            asks: options == "ask",
            stores: 0,
            with_bytes: 0,
            loads: 0,
        })
    }

    fn info(&self) -> Info {
        let info = Info::performance("counting", "what a rule is given");
        match self.asks {
            true => info.with_values().with_loads(),
            false => info,
        }
    }

    fn event(&mut self, event: &Event<'_>, _: &Pm<'_>, _: &mut Reporter<'_>) {
        if let Some(store) = event.kind.stored() {
            self.stores += 1;
            self.with_bytes += u64::from(store.bytes.len() as u64 == store.place.len);
        }
        self.loads += u64::from(matches!(event.kind, Kind::Load(_)));
    }

    fn end(&mut self, _: &Pm<'_>, report: &mut Reporter<'_>) {
        let Counting {
            stores,
            with_bytes,
            loads,
            ..
        } = self;
        let note = format!("{stores} stores, {with_bytes} with bytes, {loads} loads");
        report.finding("over").note(note).submit();
    }
}

brownout_rule::export_rule!(Counting);
