//! What was found: one finding a bug, whichever worker comes to it and however often.
//!
//! Guarantee: what is known of a bug only grows. An error takes the place of a warning about the
//! same bug, and never the other way round, although one worker may still be making a warning small
//! when another has already come to the error.

use brownout_findings::{Finding, Severity};

use crate::proof::Proof;

/// Something that was found, and what it takes to see it again.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The finding.
    pub finding: Finding,
    /// What it takes.
    pub proof: Proof,
}

impl Discovery {
    pub(crate) fn is_error(&self) -> bool {
        self.finding.severity == Severity::Correctness
    }
}

/// Something about the program that may be meant, and what it takes to see it again.
#[derive(Clone, Debug)]
pub struct Remark {
    /// In words.
    pub text: String,
    /// What it takes.
    pub proof: Proof,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discoveries {
    /// By what two findings of one bug have in common.
    list: Vec<(String, Discovery)>,
}

impl Discoveries {
    /// Something of this bug has shown itself again. Whether a finding about it would say more than
    /// what is known.
    pub fn is_worth_telling(&mut self, key: &str, is_error: bool) -> bool {
        match self.known(key) {
            Some(known) => {
                known.finding.count += 1;
                is_error && !known.is_error()
            }
            None => true,
        }
    }

    /// Whether it is kept: it says more than what was known.
    pub fn add(&mut self, key: &str, discovery: &Discovery) -> bool {
        match self.known(key) {
            // Another worker has come to more meanwhile.
            Some(known) if known.is_error() && !discovery.is_error() => {
                known.finding.count += 1;
                false
            }
            Some(known) => {
                *known = discovery.clone();
                true
            }
            None => {
                self.list.push((key.to_owned(), discovery.clone()));
                true
            }
        }
    }

    /// How many errors there are, and how many others.
    pub fn numbers(&self) -> (u64, u64) {
        let is_error = |(_, discovery): &&(String, Discovery)| discovery.is_error();
        let errors = self.list.iter().filter(is_error).count();
        (errors as u64, (self.list.len() - errors) as u64)
    }

    /// All of them, in the order in which the bugs first showed themselves.
    pub fn into_list(self) -> Vec<Discovery> {
        self.list.into_iter().map(|(_, it)| it).collect()
    }

    fn known(&mut self, key: &str) -> Option<&mut Discovery> {
        let known = self.list.iter_mut().find(|(known, _)| known == key);
        known.map(|(_, discovery)| discovery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::What;

    fn discovery(severity: Severity, message: &str) -> Discovery {
        Discovery {
            finding: Finding::new("inter-thread-inconsistency", severity, message),
            proof: Proof::new(&[], None, None, What::Effect { name: 1 }),
        }
    }

    #[test]
    fn an_error_takes_the_place_of_a_warning_and_never_the_other_way_round() {
        let warning = discovery(Severity::Warning, "unrepaired");
        let error = discovery(Severity::Correctness, "confirmed");
        for order in [[&warning, &error], [&error, &warning]] {
            let mut found = Discoveries::default();
            let kept = order.map(|discovery| found.add("store, load", discovery));
            // Whoever listens is told of each that is kept, and of no other.
            assert_eq!(kept, [true, order[1].is_error()]);
            assert_eq!(found.numbers(), (1, 0));
            let list = found.into_list();
            assert_eq!(list.len(), 1);
            assert_eq!(list[0].finding.message, "confirmed");
        }
    }

    #[test]
    fn other_bugs_have_places_of_their_own() {
        let mut found = Discoveries::default();
        assert!(found.add("one", &discovery(Severity::Correctness, "confirmed")));
        assert!(found.add("other", &discovery(Severity::Warning, "unrepaired")));
        assert_eq!(found.numbers(), (1, 1));
    }

    #[test]
    fn what_is_known_is_counted_and_not_told_again() {
        let mut found = Discoveries::default();
        assert!(found.is_worth_telling("one", false));
        found.add("one", &discovery(Severity::Warning, "unrepaired"));
        assert!(!found.is_worth_telling("one", false));
        assert!(found.is_worth_telling("one", true));
        found.add("one", &discovery(Severity::Correctness, "confirmed"));
        assert!(!found.is_worth_telling("one", true));
        assert_eq!(found.into_list()[0].finding.count, 2);
    }
}
