//! A transaction logs bytes that it has logged already.
//!
//! An undo log keeps what a transaction is about to overwrite. Logging the same bytes again copies,
//! flushes and fences for nothing: recovery uses the oldest copy only.
//!
//! **Guarantee.** Reports exactly the ranges that overlap one logged earlier in the same outermost
//! transaction of the same thread, and names the earlier places.
//!
//! **Source.** AGAMOTTO (OSDI'20), section 4.2.2, "Redundant Undo Log Oracle".
//!
//! **Deviations.** The oracle knows one transaction at a time; this rule keeps threads apart. It
//! follows pmemobj in that a nested transaction shares the log of the outermost one.
//!
//! Option: `ignore-below=BYTES` overlooks smaller overlaps.

use std::collections::{BTreeMap, HashMap};

use brownout_rule::{
    Address, ByteRange, Event, EventIndex, Info, Kind, KindCode, Place, Pm, Reporter, Rule, Site,
    ThreadId,
};

/// See the module's header.
#[derive(Default)]
pub struct RedundantUndoLog {
    /// Overlaps below this size are overlooked.
    ignore_below: u64,
    /// What the open transaction of each thread has logged.
    logs: HashMap<ThreadId, Log>,
}

/// Disjoint ranges by first address, each with its end and the place that logged it first.
#[derive(Default)]
struct Log(BTreeMap<Address, (Address, Site)>);

impl Log {
    /// The logged parts of `range`, in address order.
    fn overlaps(&self, range: ByteRange) -> Vec<(ByteRange, Site)> {
        let mut found: Vec<_> = self
            .0
            .range(..range.end())
            .rev()
            .take_while(|(_, (end, _))| *end > range.address)
            .filter_map(|(start, (end, site))| {
                let logged = ByteRange::new(*start, end.0 - start.0);
                Some((logged.intersection(range)?, *site))
            })
            .collect();
        found.reverse();
        found
    }

    /// Adds the parts of `range` that are not in `known`, which is what [`Log::overlaps`] found.
    fn add(&mut self, range: ByteRange, known: &[(ByteRange, Site)], site: Site) {
        let mut start = range.address;
        let behind = ByteRange::new(range.end(), 0);
        for part in known.iter().map(|(part, _)| *part).chain([behind]) {
            if start < part.address {
                self.0.insert(start, (part.address, site));
            }
            start = part.end();
        }
    }

    /// Removes `range`; what sticks out on either side stays.
    fn remove(&mut self, range: ByteRange) {
        for (part, _) in self.overlaps(range) {
            let Some((&start, &(end, site))) = self.0.range(..=part.address).next_back() else {
                continue;
            };
            self.0.remove(&start);
            if start < part.address {
                self.0.insert(start, (part.address, site));
            }
            if part.end() < end {
                self.0.insert(part.end(), (end, site));
            }
        }
    }
}

impl RedundantUndoLog {
    fn logged_by(&mut self, event: &Event<'_>, place: Place, report: &mut Reporter<'_>) {
        let log = self.logs.entry(event.thread).or_default();
        let known = log.overlaps(place.range());
        log.add(place.range(), &known, event.site());

        let again: u64 = known.iter().map(|(part, _)| part.len).sum();
        if known.is_empty() || again < self.ignore_below {
            return;
        }
        let mut finding = report
            .finding("a transaction logs bytes that it has logged already")
            .text(format!("{again} of {} bytes are logged again", place.len))
            .help("log the range once, before the first change to it");
        let mut earlier: BTreeMap<EventIndex, (Site, u64)> = BTreeMap::new();
        for (part, site) in known {
            earlier.entry(site.index).or_insert((site, 0)).1 += part.len;
        }
        for (site, bytes) in earlier.into_values() {
            finding = finding.also(site, format!("{bytes} of them were logged here before"));
        }
        finding.submit();
    }
}

impl Rule for RedundantUndoLog {
    fn new(options: &str) -> Result<Self, String> {
        let mut rule = RedundantUndoLog::default();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            rule.ignore_below = option
                .strip_prefix("ignore-below=")
                .and_then(|bytes| bytes.parse().ok())
                .ok_or_else(|| {
                    format!("the option {option:?} is not of the form ignore-below=BYTES")
                })?;
        }
        Ok(rule)
    }

    fn info(&self) -> Info {
        Info::performance(
            "redundant-undo-log",
            "a transaction logs bytes that it has logged already",
        )
        .only(&[
            KindCode::TX_ADD,
            KindCode::TX_REMOVE,
            KindCode::TX_BEGIN,
            KindCode::TX_END,
            KindCode::THREAD_EXIT,
        ])
    }

    fn event(&mut self, event: &Event<'_>, _pm: &Pm<'_>, report: &mut Reporter<'_>) {
        match event.kind {
            Kind::TxAdd(place) => self.logged_by(event, place, report),
            Kind::TxRemove(place) => {
                if let Some(log) = self.logs.get_mut(&event.thread) {
                    log.remove(place.range());
                }
            }
            Kind::TxBegin { depth: 1, .. } | Kind::TxEnd { depth: 1, .. } | Kind::ThreadExit => {
                self.logs.remove(&event.thread);
            }
            _ => {}
        }
    }
}

brownout_rule::export_rule!(RedundantUndoLog);

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_rule::FileId;
    use brownout_rule::testing::Bench;

    const BEGIN: Kind<'_> = Kind::TxBegin { id: 0, depth: 1 };
    const END: Kind<'_> = Kind::TxEnd { id: 0, depth: 1 };

    fn place(address: u64, len: u64) -> Place {
        Place::new(Address(address), len, FileId(1), address)
    }

    fn add(address: u64, len: u64) -> Kind<'static> {
        Kind::TxAdd(place(address, len))
    }

    fn findings(options: &str, events: &[Kind<'_>]) -> Vec<(u64, Vec<u64>)> {
        let mut bench = Bench::new::<RedundantUndoLog>(options).unwrap();
        for event in events {
            bench.event(*event);
        }
        bench.end();
        let index = |site: Option<Site>| site.unwrap().index.0;
        bench
            .findings()
            .iter()
            .map(|finding| {
                let mut events = finding.events.iter().map(|event| index(event.site));
                (events.next().unwrap(), events.collect())
            })
            .collect()
    }

    #[test]
    fn names_both_places() {
        let seen = findings("", &[BEGIN, add(0x100, 64), add(0x120, 64), END]);
        assert_eq!(seen, [(3, vec![2])]);
    }

    #[test]
    fn disjoint_neighbours_and_later_transactions_are_fine() {
        let events = [
            BEGIN,
            add(0x100, 64),
            add(0x140, 64),
            END,
            BEGIN,
            add(0x100, 64),
        ];
        assert_eq!(findings("", &events), []);
    }

    #[test]
    fn nested_transaction_shares_the_log() {
        let nested = [
            BEGIN,
            add(0x100, 8),
            Kind::TxBegin { id: 0, depth: 2 },
            add(0x100, 8),
            Kind::TxEnd { id: 0, depth: 2 },
            add(0x100, 8),
        ];
        assert_eq!(findings("", &nested), [(4, vec![2]), (6, vec![2])]);
    }

    #[test]
    fn range_over_several_names_each_once_and_then_counts_as_logged() {
        let events = [
            BEGIN,
            add(0x100, 8),
            add(0x110, 8),
            add(0x0f0, 0x40),
            add(0x0f0, 8),
        ];
        assert_eq!(findings("", &events), [(4, vec![2, 3]), (5, vec![4])]);
    }

    #[test]
    fn what_was_removed_may_be_logged_again() {
        let removed = Kind::TxRemove(place(0x110, 8));
        let events = [
            BEGIN,
            add(0x100, 0x30),
            removed,
            add(0x110, 8),
            add(0x10f, 1),
            add(0x118, 1),
        ];
        assert_eq!(findings("", &events), [(5, vec![2]), (6, vec![2])]);
    }

    #[test]
    fn threads_have_their_own_logs() {
        let mut bench = Bench::new::<RedundantUndoLog>("").unwrap();
        for thread in [ThreadId(1), ThreadId(2)] {
            bench.event_of(thread, BEGIN);
            bench.event_of(thread, add(0x100, 8));
        }
        assert_eq!(bench.findings(), []);
        bench.event_of(ThreadId(1), add(0x100, 8));
        let site = bench.findings()[0].events[1].site.unwrap();
        assert_eq!((site.thread, site.index), (ThreadId(1), EventIndex(2)));
    }

    #[test]
    fn option_is_obeyed_or_refused() {
        let events = [BEGIN, add(0x100, 8), add(0x104, 8)];
        assert_eq!(findings("ignore-below=5", &events), []);
        assert_eq!(findings("ignore-below=4", &events).len(), 1);
        let refused = Bench::new::<RedundantUndoLog>("ignore-below=x").unwrap_err();
        assert!(refused.to_string().contains("ignore-below=BYTES"));
    }
}
