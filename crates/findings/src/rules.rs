//! The catalogue of built-in rules: one row a rule, and [`RuleId`], which names the rule of a
//! finding.
//!
//! Ids are stable: they stand in suppressions, baselines and scripts. Inside the tool a rule is a
//! [`BuiltIn`], so that a name that is not in the catalogue does not compile; custom rules bring
//! their own.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Severity;
use Severity::{Correctness, Performance, Warning};

/// Which analysis a rule belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Analysis {
    /// It judges one run.
    Check,
    /// It takes a crash to see.
    Explore,
    /// It takes inputs and images that nobody has thought of.
    Fuzz,
    /// It takes an interleaving of threads.
    Race,
    /// It takes an input that is solved for. It has no rules of its own: it applies those of
    /// `check`.
    Symex,
}

impl Analysis {
    /// The word for it: the command that does it, and the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Analysis::Check => "check",
            Analysis::Explore => "explore",
            Analysis::Fuzz => "fuzz",
            Analysis::Race => "race",
            Analysis::Symex => "symex",
        }
    }
}

/// What is known of a built-in rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which one it is.
    pub is: BuiltIn,
    /// Stable id.
    pub id: &'static str,
    /// Who looks for it.
    pub analysis: Analysis,
    /// How bad its findings are.
    pub severity: Severity,
    /// On unless switched off.
    pub default_on: bool,
    /// What it looks for, one line, no final stop. Those of other analyses than `check` begin with
    /// the analysis.
    pub summary: &'static str,
    /// Its page, as `brownout explain` shows it (Markdown).
    pub page: &'static str,
}

macro_rules! catalogue {
    ($($name:ident $id:literal $analysis:ident $severity:ident $on:literal $summary:literal)*) => {
        /// A built-in rule. [`RULES`] has the rest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum BuiltIn { $(#[doc = $summary] $name),* }

        /// Every built-in rule, in the order of [`BuiltIn`].
        pub const RULES: &[Rule] = &[$(Rule {
            is: BuiltIn::$name,
            id: $id,
            analysis: Analysis::$analysis,
            severity: $severity,
            default_on: $on,
            summary: $summary,
            page: include_str!(concat!("../../../docs/rules/", $id, ".md")),
        }),*];
    };
}

catalogue! {
    MissingFlush "missing-flush" Check Correctness true "stored, and not written back when the region is unmapped, at exit, or at a section's end"
    MissingFence "missing-fence" Check Correctness true "written back, or stored past the cache, and not fenced by the same thread"
    NoFence "no-fence" Check Correctness true "lines are written back, and the program never executes a fence"
    NotPersisted "not-persisted" Check Correctness true "an assertion that a range is persistent does not hold"
    NotOrdered "not-ordered" Check Correctness true "an assertion that one range persists before another does not hold"
    TxUnloggedStore "tx-unlogged-store" Check Correctness true "a store in a transaction to a range that it has neither logged nor allocated"
    TxNotPersisted "tx-not-persisted" Check Correctness true "something written in a transaction is not durable when the outermost one ends"
    StoreOutsideTx "store-outside-tx" Check Correctness true "a store outside any transaction to what is declared transactional (or anywhere, with --tx-only)"
    OverwrittenUnpersisted "overwritten-unpersisted" Check Correctness false "a store to bytes whose previous content was never made persistent"
    CrossTxOverlap "cross-tx-overlap" Check Correctness true "two transactions that are open at the same time have logged the same bytes"
    CleanFlush "clean-flush" Check Performance true "a write-back of a line that was not modified since it was last persistent"
    DoubleFlush "double-flush" Check Performance true "a second write-back of a line before anything was stored to it again"
    EmptyFence "empty-fence" Check Performance true "a fence that has nothing to complete"
    DuplicateLog "duplicate-log" Check Performance true "a range is logged again in the same transaction"
    FreshLog "fresh-log" Check Performance true "a transaction logs what it has itself allocated"
    TransientData "transient-data" Check Performance true "lines that are stored to over and over and never made persistent: they belong in DRAM"
    OversizedFlush "oversized-flush" Check Performance true "a write-back of a range of which most lines are clean"
    RedirtiedLine "redirtied-line" Check Performance true "a line is stored to between its write-back and the fence, and written back again"
    FlushOutsidePm "flush-outside-pm" Check Performance true "a write-back of ordinary memory, on the stack or the heap"
    UnpersistedPublication "unpersisted-publication" Check Warning false "a store that another thread can read before it is persistent (with --threads)"
    RecoveryCrash "recovery-crash" Explore Correctness true "explore: after a crash, recovery is killed by a signal"
    RecoveryError "recovery-error" Explore Correctness true "explore: after a crash, recovery fails"
    RecoveryHang "recovery-hang" Explore Correctness true "explore: after a crash, recovery does not end"
    NotAtomic "not-atomic" Explore Correctness true "explore: after a crash, an operation is there in part, or an acknowledged one is lost"
    OtherOrder "other-order" Explore Warning true "explore: after a crash, recovery prints all that is to be there, but in another order"
    CheckerFailed "checker-failed" Explore Correctness true "explore: after a crash and recovery, the checker command is not content"
    Crash "crash" Fuzz Correctness true "fuzz: an input ends the program by a signal (in symex, too; in race, an order of threads)"
    Detected "detected" Fuzz Correctness true "fuzz: the user's own detector is not content with what a run has left"
    Hang "hang" Fuzz Warning true "fuzz: with an input the program does not end (in symex, too)"
    InterThreadInconsistency "inter-thread-inconsistency" Race Correctness true "race: a thread makes something durable of what another one has stored and not made persistent"
    IntraThreadInconsistency "intra-thread-inconsistency" Race Correctness true "race: a thread makes something durable of what it has itself stored and not made persistent"
    PersistentLock "persistent-lock" Race Correctness true "race: a lock in persistent memory is still taken after a crash, and nobody gives it back"
    Deadlock "deadlock" Race Correctness true "race: threads wait for each other for ever"
    RecoveryAssertion "recovery-assertion" Explore Correctness true "explore: after a crash and recovery, a condition that must hold does not"
}

impl BuiltIn {
    /// Its row.
    pub fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }

    /// Its stable id.
    pub fn id(self) -> &'static str {
        self.rule().id
    }
}

/// The rule of that id.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

/// The rules of an analysis.
pub fn of(analysis: Analysis) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(move |rule| rule.analysis == analysis)
}

/// The rule that a finding is about: a built-in one, or one that somebody has brought. In reports
/// it is its id.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RuleId(Who);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Who {
    BuiltIn(BuiltIn),
    /// Never the id of a built-in one.
    Custom(Arc<str>),
}

impl RuleId {
    /// Its id.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Who::BuiltIn(rule) => rule.id(),
            Who::Custom(id) => id,
        }
    }

    /// Which built-in rule it is, if it is one.
    pub fn built_in(&self) -> Option<BuiltIn> {
        match self.0 {
            Who::BuiltIn(rule) => Some(rule),
            Who::Custom(_) => None,
        }
    }
}

impl From<BuiltIn> for RuleId {
    fn from(rule: BuiltIn) -> RuleId {
        RuleId(Who::BuiltIn(rule))
    }
}

impl From<&str> for RuleId {
    fn from(id: &str) -> RuleId {
        RuleId(match find(id) {
            Some(rule) => Who::BuiltIn(rule.is),
            None => Who::Custom(id.into()),
        })
    }
}

impl From<String> for RuleId {
    fn from(id: String) -> RuleId {
        id.as_str().into()
    }
}

impl PartialEq<BuiltIn> for RuleId {
    fn eq(&self, rule: &BuiltIn) -> bool {
        self.built_in() == Some(*rule)
    }
}

impl PartialEq<str> for RuleId {
    fn eq(&self, id: &str) -> bool {
        self.as_str() == id
    }
}

impl PartialEq<&str> for RuleId {
    fn eq(&self, id: &&str) -> bool {
        self.as_str() == *id
    }
}

impl PartialEq<String> for RuleId {
    fn eq(&self, id: &String) -> bool {
        self.as_str() == id
    }
}

/// Reports sort by the id as it is read.
impl Ord for RuleId {
    fn cmp(&self, other: &RuleId) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for RuleId {
    fn partial_cmp(&self, other: &RuleId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleId, D::Error> {
        Ok(String::deserialize(deserializer)?.into())
    }
}

/// Which rules are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSet(u64);

impl Default for RuleSet {
    /// What `check` looks for unless the user says otherwise.
    fn default() -> Self {
        RuleSet::defaults(Analysis::Check)
    }
}

impl RuleSet {
    /// No rule at all.
    pub const NONE: RuleSet = RuleSet(0);

    /// What an analysis looks for unless the user says otherwise.
    pub fn defaults(analysis: Analysis) -> RuleSet {
        let mut set = RuleSet::NONE;
        for rule in of(analysis).filter(|rule| rule.default_on) {
            set.set(rule.is, true);
        }
        set
    }

    /// Switches a rule on or off.
    pub fn set(&mut self, rule: BuiltIn, on: bool) {
        let at = rule as u32;
        self.0 = self.0 & !(1 << at) | u64::from(on) << at;
    }

    /// Switches the rules of a severity on or off. What is off by default is only switched on by
    /// its name, or with all.
    pub fn set_group(&mut self, severity: Severity, on: bool) {
        let in_group = |rule: &&Rule| rule.severity == severity && (rule.default_on || !on);
        for rule in of(Analysis::Check).filter(in_group) {
            self.set(rule.is, on);
        }
    }

    /// Switches all rules on or off.
    pub fn set_all(&mut self, on: bool) {
        for rule in of(Analysis::Check) {
            self.set(rule.is, on);
        }
    }

    /// True if the rule is on.
    #[inline]
    pub fn has(self, rule: BuiltIn) -> bool {
        self.0 >> rule as u32 & 1 != 0
    }
}
const _: () = assert!(RULES.len() <= 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_page_teaches() {
        for (i, rule) in RULES.iter().enumerate() {
            assert!(RULES[..i].iter().all(|other| other.id != rule.id));
            assert_eq!(rule.is as usize, i, "{}: not in its place", rule.id);
            let title = format!("# {}", rule.id);
            assert!(
                rule.page.starts_with(&title),
                "{}: page without its title",
                rule.id
            );
            for part in ["## What it means", "## Example", "## How to fix it"] {
                assert!(rule.page.contains(part), "{}: no {part:?}", rule.id);
            }
        }
    }
    #[test]
    fn a_summary_names_its_analysis_unless_that_is_check() {
        for rule in RULES {
            let named = rule
                .summary
                .starts_with(&format!("{}: ", rule.analysis.name()));
            assert_eq!(named, rule.analysis != Analysis::Check, "{}", rule.id);
        }
    }

    #[test]
    fn ids_are_what_is_written() {
        let id = RuleId::from("missing-flush");
        assert_eq!(id, BuiltIn::MissingFlush);
        assert_eq!(id, RuleId::from(BuiltIn::MissingFlush));
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"missing-flush\"");
        let own: RuleId = serde_json::from_str("\"my-rule\"").unwrap();
        assert_eq!((own.as_str(), own.built_in()), ("my-rule", None));
        // As text, not as the catalogue has them.
        let other = RuleId::from(BuiltIn::CleanFlush);
        assert!(other < id && id < own);
        assert_eq!(format!("{id:>14} {own:?}"), " missing-flush \"my-rule\"");
    }

    #[test]
    fn sets_hold_what_was_put_into_them() {
        let mut set = RuleSet::NONE;
        set.set(BuiltIn::EmptyFence, true);
        for rule in RULES {
            assert_eq!(set.has(rule.is), rule.is == BuiltIn::EmptyFence);
        }
        set.set_all(true);
        for rule in RULES {
            assert_eq!(set.has(rule.is), rule.analysis == Analysis::Check);
        }
        assert!(RuleSet::defaults(Analysis::Explore).has(BuiltIn::NotAtomic));
        assert!(!RuleSet::default().has(BuiltIn::OverwrittenUnpersisted));
    }
}
