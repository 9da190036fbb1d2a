//! Findings while the run goes on: counted by rule and site, with the first occurrence kept.

use brownout_findings::Severity;
use brownout_findings::rules::RuleSet;
use brownout_model::{ByteRange, Moment, Tag};
use brownout_trace::event::{TargetAddr, ThreadId};
use rustc_hash::FxHashMap;

macro_rules! rules {
    ($($name:ident = $id:literal)*) => {
        /// The built-in rules, for quick tests; the catalogue has the rest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule { $($name),* }

        impl Rule {
            const ALL: &[Rule] = &[$(Rule::$name),*];

            pub fn id(self) -> &'static str {
                match self { $(Rule::$name => $id),* }
            }
        }
    };
}

rules! {
    MissingFlush = "missing-flush"
    MissingFence = "missing-fence"
    NoFence = "no-fence"
    NotPersisted = "not-persisted"
    NotOrdered = "not-ordered"
    TxUnloggedStore = "tx-unlogged-store"
    TxNotPersisted = "tx-not-persisted"
    StoreOutsideTx = "store-outside-tx"
    OverwrittenUnpersisted = "overwritten-unpersisted"
    CrossTxOverlap = "cross-tx-overlap"
    CleanFlush = "clean-flush"
    DoubleFlush = "double-flush"
    EmptyFence = "empty-fence"
    DuplicateLog = "duplicate-log"
    FreshLog = "fresh-log"
    TransientData = "transient-data"
    OversizedFlush = "oversized-flush"
    RedirtiedLine = "redirtied-line"
    FlushOutsidePm = "flush-outside-pm"
}

/// Something that happened, not yet in words a user knows.
#[derive(Clone, Debug)]
pub struct RawEvent {
    pub role: &'static str,
    pub text: String,
    pub tag: Tag,
    pub thread: Option<ThreadId>,
    pub moment: Option<Moment>,
    /// Bytes, as keys, and where the program had them.
    pub place: Option<(ByteRange, TargetAddr)>,
}

impl RawEvent {
    pub fn new(role: &'static str, text: impl Into<String>, tag: Tag) -> Self {
        RawEvent {
            role,
            text: text.into(),
            tag,
            thread: None,
            moment: None,
            place: None,
        }
    }

    pub fn by(mut self, thread: ThreadId) -> Self {
        self.thread = Some(thread);
        self
    }

    pub fn at(mut self, moment: Moment) -> Self {
        self.moment = Some(moment);
        self
    }

    pub fn on(mut self, range: ByteRange, addr: TargetAddr) -> Self {
        self.place = Some((range, addr));
        self
    }
}

/// A finding before symbolisation.
#[derive(Clone, Debug)]
pub struct Raw {
    pub rule: String,
    pub severity: Severity,
    pub message: String,
    pub events: Vec<RawEvent>,
    pub help: Vec<String>,
    pub notes: Vec<String>,
    pub count: u64,
    /// Bytes concerned, over all occurrences; 0 where that says nothing.
    pub bytes: u64,
}

/// Rule, primary site, secondary site.
type Key = (Rule, Tag, Tag);

#[derive(Debug)]
pub struct Collector {
    on: [bool; Rule::ALL.len()],
    by_key: FxHashMap<Key, usize>,
    /// Findings of custom rules: rule, message, sites.
    custom: FxHashMap<(String, String, Vec<Tag>), usize>,
    pub raw: Vec<Raw>,
    /// Occurrences of correctness findings.
    pub failures: u64,
}

impl Collector {
    pub fn new(rules: RuleSet) -> Self {
        let mut on = [false; Rule::ALL.len()];
        for rule in Rule::ALL {
            on[*rule as usize] = rules.has(rule.id());
        }
        Collector {
            on,
            by_key: FxHashMap::default(),
            custom: FxHashMap::default(),
            raw: Vec::new(),
            failures: 0,
        }
    }

    pub fn is_on(&self, rule: Rule) -> bool {
        self.on[rule as usize]
    }

    /// One occurrence. `describe` is called for the first one.
    pub fn report(
        &mut self,
        rule: Rule,
        primary: Tag,
        secondary: Tag,
        bytes: u64,
        describe: impl FnOnce() -> (String, Vec<RawEvent>),
    ) {
        if !self.is_on(rule) {
            return;
        }
        let next = self.raw.len();
        let at = *self
            .by_key
            .entry((rule, primary, secondary))
            .or_insert(next);
        if at == next {
            let (message, events) = describe();
            let listed = brownout_findings::rules::find(rule.id());
            let severity = listed.map_or(Severity::Correctness, |rule| rule.severity);
            self.raw.push(Raw {
                rule: rule.id().to_owned(),
                severity,
                message,
                events,
                help: Vec::new(),
                notes: Vec::new(),
                count: 0,
                bytes: 0,
            });
        }
        let raw = &mut self.raw[at];
        raw.count += 1;
        raw.bytes += bytes;
        self.failures += u64::from(raw.severity == Severity::Correctness);
    }

    /// A finding that a custom rule has made.
    pub fn report_custom(&mut self, raw: Raw) {
        self.failures += u64::from(raw.severity == Severity::Correctness);
        let sites = raw.events.iter().map(|event| event.tag).collect();
        let key = (raw.rule.clone(), raw.message.clone(), sites);
        let next = self.raw.len();
        let at = *self.custom.entry(key).or_insert(next);
        if at == next {
            self.raw.push(Raw { count: 0, ..raw });
        }
        self.raw[at].count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_the_catalogue() {
        let ids: Vec<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        let listed: Vec<&str> = brownout_findings::rules::RULES
            .iter()
            .filter(|rule| !rule.is_explored())
            .map(|rule| rule.id)
            .collect();
        assert_eq!(ids, listed);
    }
}
