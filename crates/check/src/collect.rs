//! Findings while the run goes on: counted by rule and site, with the first occurrence kept.

use brownout_findings::rules::{BuiltIn, RuleSet};
use brownout_findings::{Role, RuleId, Severity};
use brownout_model::{ByteRange, Moment, Tag};
use brownout_trace::event::{TargetAddr, ThreadId};
use rustc_hash::FxHashMap;

/// Something that happened, not yet in words a user knows.
#[derive(Clone, Debug)]
pub struct RawEvent {
    pub role: Role,
    pub text: String,
    pub tag: Tag,
    pub thread: Option<ThreadId>,
    pub moment: Option<Moment>,
    /// Bytes, as keys, and where the program had them.
    pub place: Option<(ByteRange, TargetAddr)>,
}

impl RawEvent {
    pub fn new(role: Role, text: impl Into<String>, tag: Tag) -> Self {
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
    pub rule: RuleId,
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
type Key = (BuiltIn, Tag, Tag);

#[derive(Debug)]
pub struct Collector {
    on: RuleSet,
    by_key: FxHashMap<Key, usize>,
    /// Findings of custom rules: rule, message, sites.
    custom: FxHashMap<(RuleId, String, Vec<Tag>), usize>,
    pub raw: Vec<Raw>,
    /// Occurrences of correctness findings.
    pub failures: u64,
}

impl Collector {
    pub fn new(rules: RuleSet) -> Self {
        Collector {
            on: rules,
            by_key: FxHashMap::default(),
            custom: FxHashMap::default(),
            raw: Vec::new(),
            failures: 0,
        }
    }

    pub fn is_on(&self, rule: BuiltIn) -> bool {
        self.on.has(rule)
    }

    /// One occurrence. `describe` is called for the first one.
    pub fn report(
        &mut self,
        rule: BuiltIn,
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
            self.raw.push(Raw {
                rule: rule.into(),
                severity: rule.rule().severity,
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
