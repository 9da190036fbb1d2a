//! What an analysis has looked at, and what it has not.
//!
//! A [`Coverage`] is a list of [`Limitation`]s, each made where it becomes known. It alone decides
//! the [`Verdict`], and with it the exit status and what may be claimed of something that was not
//! found: nothing is called clean, and nothing harmless, beyond what was looked at.
//!
//! There are two sorts. A limitation *cuts* if the analysis ended before it was done; what was
//! found until then is shown, and the verdict is [`Verdict::Incomplete`]. The others *bound* an
//! analysis that was done: what was found stands for itself ([`Verdict::Findings`]), but that
//! nothing was found proves nothing beyond the bound. Who knows a limitation and can live with it
//! accepts it (`--accept`): then it does not count for the verdict, and is still told. What nobody
//! expects of an analysis unless he asks for it is [accepted from the beginning](Coverage::spare).

use serde::{Deserialize, Serialize};

use crate::Verdict;

/// A sort of limitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// No persistent memory was touched: there was nothing to look at.
    Untouched,
    /// A file pattern of the user's matched no file that the program used.
    Unmatched,
    /// The time was up.
    Time,
    /// The user ended it.
    Interrupted,
    /// The recording has no end.
    Unfinished,
    /// The program was killed by a signal: what it would have done is unknown.
    Killed,
    /// Of much uncertain data that was read at once, not all combinations were tried.
    Sampled,
    /// The same, where a checksum is stored with the data and what was tried ended alike.
    Checksummed,
    /// Crashes that follow another crash were not all tried.
    Depth,
    /// Several threads or processes stored to persistent memory, in one order of many.
    Interleaving,
    /// Delays in the store buffers of several threads were asked for, and are not explored.
    StoreBuffers,
    /// Where many crash states fail, the rest was left.
    Abandoned,
    /// A bound of the analysis was reached.
    Limits,
    /// Runs that had read the same went on differently.
    Nondeterministic,
    /// Whoever was to judge could not: recovery fails although nothing is lost, so that its failure
    /// proves nothing, or a detector has failed.
    Unjudged,
    /// The program did something whose consequences are not modelled.
    Unsupported,
    /// What was seen of the run contradicts itself: a bug in this tool.
    Faulty,
}

impl Limit {
    /// All, in order.
    pub const ALL: [Limit; 17] = [
        Limit::Untouched,
        Limit::Unmatched,
        Limit::Time,
        Limit::Interrupted,
        Limit::Unfinished,
        Limit::Killed,
        Limit::Sampled,
        Limit::Checksummed,
        Limit::Depth,
        Limit::Interleaving,
        Limit::StoreBuffers,
        Limit::Abandoned,
        Limit::Limits,
        Limit::Nondeterministic,
        Limit::Unjudged,
        Limit::Unsupported,
        Limit::Faulty,
    ];

    /// The word for it: in reports, and for `--accept`.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Untouched => "untouched",
            Limit::Unmatched => "unmatched",
            Limit::Time => "time",
            Limit::Interrupted => "interrupted",
            Limit::Unfinished => "unfinished",
            Limit::Killed => "killed",
            Limit::Sampled => "sampled",
            Limit::Checksummed => "checksummed",
            Limit::Depth => "depth",
            Limit::Interleaving => "interleaving",
            Limit::StoreBuffers => "store-buffers",
            Limit::Abandoned => "abandoned",
            Limit::Limits => "limits",
            Limit::Nondeterministic => "nondeterministic",
            Limit::Unjudged => "unjudged",
            Limit::Unsupported => "unsupported",
            Limit::Faulty => "faulty",
        }
    }

    /// The sort of that name.
    pub fn from_name(name: &str) -> Option<Limit> {
        Limit::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// Whether it ended the analysis before it was done.
    pub fn cuts(self) -> bool {
        matches!(
            self,
            Limit::Time
                | Limit::Interrupted
                | Limit::Unfinished
                | Limit::Nondeterministic
                | Limit::Unjudged
                | Limit::Faulty
        )
    }
}

/// Something that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limitation {
    /// Which sort.
    pub kind: Limit,
    /// One sentence: what was left out, and what to do about it. No final stop.
    pub text: String,
    /// It does not count for the verdict: the user can live with it, or it is
    /// [nothing that anybody asked for](Coverage::spare).
    #[serde(default)]
    pub accepted: bool,
}

/// See the module's header. The default is: everything was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// In the order in which they became known.
    #[serde(default)]
    pub limitations: Vec<Limitation>,
}

impl Coverage {
    /// Notes something that is not looked at. Saying the same again changes nothing.
    pub fn limit(&mut self, kind: Limit, text: impl Into<String>) {
        self.add(Limitation {
            kind,
            text: text.into(),
            accepted: false,
        });
    }

    /// Notes something that is not looked at because nobody has asked for it: it is accepted from
    /// the beginning. It is told all the same, and not everything was looked at.
    pub fn spare(&mut self, kind: Limit, text: impl Into<String>) {
        self.add(Limitation {
            kind,
            text: text.into(),
            accepted: true,
        });
    }

    /// Adds a limitation, accepted or not.
    pub fn add(&mut self, new: Limitation) {
        let is_same = |old: &&mut Limitation| old.kind == new.kind && old.text == new.text;
        match self.limitations.iter_mut().find(is_same) {
            // It is accepted if it is so wherever it is said.
            Some(old) => old.accepted &= new.accepted,
            None => self.limitations.push(new),
        }
    }

    /// Adds what another part of the analysis has not looked at.
    pub fn extend(&mut self, other: Coverage) {
        for limitation in other.limitations {
            self.add(limitation);
        }
    }

    /// Marks what the user can live with.
    pub fn accept(&mut self, kinds: &[Limit]) {
        for limitation in &mut self.limitations {
            limitation.accepted |= kinds.contains(&limitation.kind);
        }
    }

    /// Everything was looked at. That something was accepted does not make it looked at.
    pub fn is_exhaustive(&self) -> bool {
        self.limitations.is_empty()
    }

    /// Whether there is a limitation of this sort, accepted or not.
    pub fn has(&self, kind: Limit) -> bool {
        self.limitations.iter().any(|l| l.kind == kind)
    }

    /// What a reader is told, besides the verdict: [`Limit::Untouched`] is one by itself.
    pub fn told(&self) -> impl Iterator<Item = &Limitation> {
        let limitations = self.limitations.iter();
        limitations.filter(|limitation| limitation.kind != Limit::Untouched)
    }

    /// The sorts of what counts for the verdict, each once.
    pub fn open(&self) -> Vec<Limit> {
        self.sorts(false)
    }

    /// The sorts of what was accepted, each once.
    pub fn accepted(&self) -> Vec<Limit> {
        self.sorts(true)
    }

    fn sorts(&self, accepted: bool) -> Vec<Limit> {
        let mut kinds: Vec<Limit> = Vec::new();
        for limitation in &self.limitations {
            if limitation.accepted == accepted && !kinds.contains(&limitation.kind) {
                kinds.push(limitation.kind);
            }
        }
        kinds
    }

    /// The verdict, if something was found or not.
    pub fn verdict(&self, found: bool) -> Verdict {
        let open = self.open();
        if self.has(Limit::Untouched) {
            return Verdict::NothingChecked;
        }
        match found {
            _ if open.iter().any(|kind| kind.cuts()) => Verdict::Incomplete,
            true => Verdict::Findings,
            false if !open.is_empty() => Verdict::Incomplete,
            false => Verdict::Clean,
        }
    }

    /// Whether what was asked for was not done, so that success would be a lie: a verdict that is
    /// [`Verdict::Incomplete`], or a pattern that matched nothing.
    pub fn falls_short(&self, found: bool) -> bool {
        let is_unmatched = self.open().contains(&Limit::Unmatched);
        is_unmatched || self.verdict(found) == Verdict::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kinds: &[Limit]) -> Coverage {
        let mut coverage = Coverage::default();
        for kind in kinds {
            coverage.limit(*kind, "text");
        }
        coverage
    }

    #[test]
    fn names_are_those_of_the_json_form() {
        for limit in Limit::ALL {
            let json = serde_json::to_value(limit).expect("it can be written");
            assert_eq!(json, limit.name());
            assert_eq!(Limit::from_name(limit.name()), Some(limit));
        }
        assert_eq!(Limit::from_name("everything"), None);
    }

    /// Every sort, found or not, accepted or not.
    #[test]
    fn the_verdict_never_says_more_than_was_looked_at() {
        assert_eq!(with(&[]).verdict(false), Verdict::Clean);
        assert_eq!(with(&[]).verdict(true), Verdict::Findings);
        for limit in Limit::ALL {
            let mut coverage = with(&[limit]);
            assert!(!coverage.is_exhaustive());
            let expected = match limit {
                Limit::Untouched => [Verdict::NothingChecked; 2],
                _ if limit.cuts() => [Verdict::Incomplete; 2],
                _ => [Verdict::Incomplete, Verdict::Findings],
            };
            assert_eq!(
                [false, true].map(|found| coverage.verdict(found)),
                expected,
                "{limit:?}"
            );
            let falls_short = limit != Limit::Untouched;
            assert_eq!(coverage.falls_short(false), falls_short, "{limit:?}");
            coverage.accept(&[limit]);
            assert!(!coverage.is_exhaustive(), "accepted is not looked at");
            if limit != Limit::Untouched {
                assert_eq!(coverage.verdict(false), Verdict::Clean);
                assert!(!coverage.falls_short(false));
            }
        }
    }

    #[test]
    fn only_what_is_accepted_is_accepted() {
        let mut coverage = with(&[Limit::Sampled, Limit::Time]);
        coverage.accept(&[Limit::Sampled, Limit::Interleaving]);
        assert_eq!(coverage.open(), [Limit::Time]);
        assert_eq!(coverage.accepted(), [Limit::Sampled]);
        assert_eq!(coverage.verdict(false), Verdict::Incomplete);
    }

    /// What is spared is no reason to fail, and no reason to claim that everything was looked at.
    #[test]
    fn what_nobody_asks_for_is_accepted_and_told() {
        let mut coverage = Coverage::default();
        coverage.spare(Limit::Depth, "text");
        assert_eq!(coverage.verdict(false), Verdict::Clean);
        assert!(!coverage.falls_short(false) && !coverage.is_exhaustive());
        assert_eq!(coverage.accepted(), [Limit::Depth]);
        assert_eq!(coverage.told().count(), 1);
        let mut all = Coverage::default();
        all.extend(coverage.clone());
        assert_eq!(all, coverage);
        // Somebody who has asked for it is not content.
        all.limit(Limit::Depth, "text");
        coverage.extend(all);
        assert_eq!(coverage.limitations.len(), 1);
        assert_eq!(coverage.verdict(false), Verdict::Incomplete);
    }

    #[test]
    fn the_same_is_told_once() {
        let mut coverage = with(&[Limit::Time, Limit::Time]);
        coverage.extend(with(&[Limit::Time]));
        assert_eq!(coverage.limitations.len(), 1);
        coverage.limit(Limit::Time, "another");
        assert_eq!(coverage.open(), [Limit::Time]);
        assert_eq!(coverage.limitations.len(), 2);
    }
}
