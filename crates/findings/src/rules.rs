//! The catalogue of built-in rules: one row a rule.
//!
//! Ids are stable: they stand in suppressions, baselines and scripts.

use crate::Severity;
use Severity::{Correctness, Performance, Warning};

/// A built-in rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Stable id.
    pub id: &'static str,
    /// How bad its findings are.
    pub severity: Severity,
    /// On unless switched off.
    pub default_on: bool,
    /// What it looks for, one line, no final stop.
    pub summary: &'static str,
    /// Its page, as `brownout explain` shows it (Markdown).
    pub page: &'static str,
}

macro_rules! catalogue {
    ($($id:literal $severity:ident $on:literal $summary:literal)*) => {
        /// Every built-in rule.
        pub const RULES: &[Rule] = &[$(Rule {
            id: $id,
            severity: $severity,
            default_on: $on,
            summary: $summary,
            page: include_str!(concat!("../../../docs/rules/", $id, ".md")),
        }),*];
    };
}

catalogue! {
    "missing-flush" Correctness true "stored, and not written back when the region is unmapped, at exit, or at a section's end"
    "missing-fence" Correctness true "written back, or stored past the cache, and not fenced by the same thread"
    "no-fence" Correctness true "lines are written back, and the program never executes a fence"
    "not-persisted" Correctness true "an assertion that a range is persistent does not hold"
    "not-ordered" Correctness true "an assertion that one range persists before another does not hold"
    "tx-unlogged-store" Correctness true "a store in a transaction to a range that it has neither logged nor allocated"
    "tx-not-persisted" Correctness true "something written in a transaction is not durable when the outermost one ends"
    "store-outside-tx" Correctness true "a store outside any transaction to what is declared transactional (or anywhere, with --tx-only)"
    "overwritten-unpersisted" Correctness false "a store to bytes whose previous content was never made persistent"
    "cross-tx-overlap" Correctness true "two transactions that are open at the same time have logged the same bytes"
    "clean-flush" Performance true "a write-back of a line that was not modified since it was last persistent"
    "double-flush" Performance true "a second write-back of a line before anything was stored to it again"
    "empty-fence" Performance true "a fence that has nothing to complete"
    "duplicate-log" Performance true "a range is logged again in the same transaction"
    "fresh-log" Performance true "a transaction logs what it has itself allocated"
    "transient-data" Performance true "lines that are stored to over and over and never made persistent: they belong in DRAM"
    "oversized-flush" Performance true "a write-back of a range of which most lines are clean"
    "redirtied-line" Performance true "a line is stored to between its write-back and the fence, and written back again"
    "flush-outside-pm" Performance true "a write-back of ordinary memory, on the stack or the heap"
    "recovery-crash" Correctness true "explore: after a crash, recovery is killed by a signal"
    "recovery-error" Correctness true "explore: after a crash, recovery fails"
    "recovery-hang" Correctness true "explore: after a crash, recovery does not end"
    "not-atomic" Correctness true "explore: after a crash, an operation is there in part, or an acknowledged one is lost"
    "other-order" Warning true "explore: after a crash, recovery prints all that is to be there, but in another order"
    "checker-failed" Correctness true "explore: after a crash and recovery, the checker command is not content"
    "recovery-assertion" Correctness true "explore: after a crash and recovery, a condition that must hold does not"
}

/// The rule of that id.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

/// Which rules are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSet(u32);

impl Default for RuleSet {
    /// What `check` looks for unless the user says otherwise.
    fn default() -> Self {
        let mut set = RuleSet::NONE;
        for rule in RULES
            .iter()
            .filter(|rule| rule.default_on && !rule.is_explored())
        {
            set.set(rule.id, true);
        }
        set
    }
}

impl Rule {
    /// True if only `explore` finds it: it takes a crash to see.
    pub fn is_explored(&self) -> bool {
        self.summary.starts_with("explore: ")
    }
}

impl RuleSet {
    /// What `explore` looks for.
    pub fn explore() -> RuleSet {
        let mut set = RuleSet::NONE;
        for rule in RULES.iter().filter(|rule| rule.is_explored()) {
            set.set(rule.id, true);
        }
        set
    }

    /// No rule at all.
    pub const NONE: RuleSet = RuleSet(0);

    /// Switches a rule on or off; false if there is none of that id.
    pub fn set(&mut self, id: &str, on: bool) -> bool {
        let Some(at) = RULES.iter().position(|rule| rule.id == id) else {
            return false;
        };
        self.0 = self.0 & !(1 << at) | u32::from(on) << at;
        true
    }

    /// Switches the rules of a severity on or off. What is off by default is only switched on by its name, or with all.
    pub fn set_group(&mut self, severity: Severity, on: bool) {
        let in_group = |rule: &&Rule| rule.severity == severity && (rule.default_on || !on);
        let of_check = |rule: &&Rule| in_group(rule) && !rule.is_explored();
        for rule in RULES.iter().filter(of_check) {
            self.set(rule.id, on);
        }
    }

    /// Switches all rules on or off.
    pub fn set_all(&mut self, on: bool) {
        let of_check = |rule: &&Rule| !rule.is_explored();
        for rule in RULES.iter().filter(of_check) {
            self.set(rule.id, on);
        }
    }

    /// True if the rule is on.
    pub fn has(self, id: &str) -> bool {
        RULES
            .iter()
            .position(|rule| rule.id == id)
            .is_some_and(|at| self.0 >> at & 1 != 0)
    }
}
const _: () = assert!(RULES.len() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_page_teaches() {
        for (i, rule) in RULES.iter().enumerate() {
            assert!(RULES[..i].iter().all(|other| other.id != rule.id));
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
}
