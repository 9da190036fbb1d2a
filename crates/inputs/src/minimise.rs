//! Makes an input that shows something as small as it can be and still show it.
//!
//! Operations go first (delta debugging: halves, quarters, … single ones), then bytes of what is
//! left, then numbers become smaller; all of it again, until nothing changes any more. Keys are
//! renamed together, so that operations that met still meet: `i 5170`, `r 5170` becomes `i 1`, `r
//! 1`.
//!
//! **Guarantee.** Whatever comes out has been tried, and showed it; it is never longer than what
//! went in. If the budget was enough ([`Minimised::complete`]) and the answer depends on the input
//! alone, no single operation can be removed any more.
//!
//! **Source.** Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input* (ddmin).
//! Only complements are tried, not the subsets themselves: what is left over is rarely the failing
//! part alone, and each trial is a run of a program.

use std::collections::HashSet;
use std::ops::Range;

use crate::fields::Source;
use crate::keys::{self, Keys};
use crate::sequence::{Operation, Sequence};
use crate::templates::{Field, Templates};
use crate::tokens::Tokens;

/// What became of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minimised {
    /// The smallest input that showed it.
    pub input: Vec<u8>,
    /// How often the question was asked.
    pub calls: usize,
    /// Whether everything was tried. If not, the budget was too small.
    pub complete: bool,
}

/// Makes `input` small: `holds` says whether an input shows what is wanted, and is asked at most
/// `budget` times.
///
/// None if `input` itself does not show it, or if nothing may be asked.
pub fn minimise(
    input: &[u8],
    templates: &Templates,
    budget: usize,
    holds: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<Minimised> {
    if budget == 0 || !holds(input) {
        return None;
    }
    let mut search = Search {
        templates,
        holds,
        left: budget - 1,
        exhausted: false,
        tried: HashSet::new(),
        best: input.to_vec(),
    };
    loop {
        let before = search.best.clone();
        search.operations();
        search.bytes();
        search.rename_keys();
        search.numbers();
        if search.exhausted || search.best == before {
            break;
        }
    }
    Some(Minimised {
        calls: budget - search.left,
        complete: !search.exhausted,
        input: search.best,
    })
}

struct Search<'a> {
    templates: &'a Templates,
    holds: &'a mut dyn FnMut(&[u8]) -> bool,
    left: usize,
    /// Whether something could not be tried.
    exhausted: bool,
    /// What was tried and did not show it.
    tried: HashSet<Vec<u8>>,
    best: Vec<u8>,
}

impl Search<'_> {
    /// The best input, taken apart.
    fn parsed(&self) -> Sequence {
        Sequence::parse(&self.best, self.templates)
    }

    /// Whether this shows it, too; then it is the best.
    fn keep(&mut self, candidate: &Sequence) -> bool {
        let bytes = candidate.print(self.templates);
        if bytes == self.best || bytes.len() > self.best.len() || self.tried.contains(&bytes) {
            return false;
        }
        if self.left == 0 {
            self.exhausted = true;
            return false;
        }
        self.left -= 1;
        if (self.holds)(&bytes) {
            self.best = bytes;
            true
        } else {
            self.tried.insert(bytes);
            false
        }
    }

    /// Removes as many of `count` things as possible, halves first and single ones last.
    ///
    /// `without` makes a candidate that lacks a range of what is left.
    fn remove(
        &mut self,
        mut sequence: Sequence,
        count: impl Fn(&Sequence) -> usize,
        without: impl Fn(&Sequence, Range<usize>) -> Option<Sequence>,
    ) -> Sequence {
        let mut size = count(&sequence);
        while size > 0 && !self.exhausted {
            let mut removed = false;
            let mut at = 0;
            while at < count(&sequence) && !self.exhausted {
                let end = (at + size).min(count(&sequence));
                match without(&sequence, at..end) {
                    Some(candidate) if self.keep(&candidate) => {
                        sequence = candidate;
                        removed = true;
                    }
                    _ => at = end,
                }
            }
            // Single ones are tried until all have to stay.
            if size > 1 || !removed {
                size /= 2;
            }
        }
        sequence
    }

    fn operations(&mut self) {
        let without = |sequence: &Sequence, range: Range<usize>| {
            let mut smaller = sequence.clone();
            smaller.operations.drain(range);
            Some(smaller)
        };
        let sequence = self.parsed();
        self.remove(sequence, |sequence| sequence.operations.len(), without);
    }

    /// Removes bytes of raw operations, and of fields that hold no number.
    fn bytes(&mut self) {
        let mut sequence = self.parsed();
        for at in 0..sequence.operations.len() {
            for which in 0..sequence.operations[at].fields.len() {
                let operation = &sequence.operations[at];
                let least = match operation.described(self.templates).nth(which) {
                    None => 0,
                    Some((Field::Data(size), _)) => size.least,
                    Some((field, bytes)) if field.has_len() => {
                        if keys::number_in(field, bytes).is_some() {
                            continue;
                        }
                        1
                    }
                    Some(_) => continue,
                };
                let templates = self.templates;
                let without = |sequence: &Sequence, range: Range<usize>| {
                    let mut smaller = sequence.clone();
                    let operation = &mut smaller.operations[at];
                    operation.fields[which].drain(range);
                    operation.set_lengths(templates);
                    (operation.fields[which].len() >= least).then_some(smaller)
                };
                let count = |sequence: &Sequence| sequence.operations[at].fields[which].len();
                sequence = self.remove(sequence, count, without);
            }
        }
    }

    /// Gives all keys that are numbers small ones, all occurrences of a key the same.
    fn rename_keys(&mut self) {
        let sequence = self.parsed();
        let keys = Keys::of(&sequence, self.templates).numbers;
        // In their order first: trees behave the same. Then in the order of their use.
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        for order in [sorted, keys] {
            let names = (1..)
                .zip(order)
                .map(|(new, old)| (old, new))
                .collect::<Vec<_>>();
            // Never to larger ones, or the two orders would undo each other for ever.
            if names.iter().all(|(old, new)| *new <= old.abs()) {
                let renamed = self.renamed(&sequence, &names);
                if self.keep(&renamed) {
                    return;
                }
            }
        }
    }

    /// With other numbers for keys.
    fn renamed(&self, sequence: &Sequence, names: &[(i128, i128)]) -> Sequence {
        let mut renamed = sequence.clone();
        for operation in &mut renamed.operations {
            let values: Vec<(usize, Vec<u8>)> = operation
                .described(self.templates)
                .enumerate()
                .filter(|(_, (field, _))| field.is_key())
                .filter_map(|(which, (field, bytes))| {
                    let number = keys::number_in(field, bytes)?;
                    let (_, new) = names.iter().find(|(old, _)| *old == number)?;
                    Some((which, self.number(field, *new)?))
                })
                .collect();
            for (which, bytes) in values {
                operation.fields[which] = bytes;
            }
            operation.set_lengths(self.templates);
        }
        renamed
    }

    /// This number in this field, if it can hold it.
    fn number(&self, field: &Field, number: i128) -> Option<Vec<u8>> {
        let keys = Keys::default();
        let tokens = Tokens::default();
        let source = Source {
            templates: self.templates,
            tokens: &tokens,
            keys: &keys,
        };
        let bytes = source.fitting(field, source.number(field, number, b"0")?);
        (keys::number_in(field, &bytes) == Some(number)).then_some(bytes)
    }

    /// Makes numbers smaller.
    fn numbers(&mut self) {
        let mut sequence = self.parsed();
        for at in 0..sequence.operations.len() {
            for which in 0..sequence.operations[at].fields.len() {
                let described = |operation: &Operation| {
                    let (field, bytes) = operation.described(self.templates).nth(which)?;
                    let number = keys::number_in(field, bytes)?;
                    (!field.is_len()).then(|| (field.clone(), number))
                };
                let Some((field, number)) = described(&sequence.operations[at]) else {
                    continue;
                };
                let with = |search: &Self, sequence: &Sequence, number: i128| {
                    let mut smaller = sequence.clone();
                    let operation = &mut smaller.operations[at];
                    operation.fields[which] = search.number(&field, number)?;
                    operation.set_lengths(search.templates);
                    Some(smaller)
                };
                // The smallest at once, then by halves. It is no search for the very smallest: the
                // answer need not be monotonous.
                let mut least = 0;
                let mut most = number.abs();
                let mut next = 0;
                while next < most && !self.exhausted {
                    match with(self, &sequence, next) {
                        Some(candidate) if self.keep(&candidate) => {
                            sequence = candidate;
                            most = next;
                        }
                        _ => least = next + 1,
                    }
                    next = if least < 3 {
                        least
                    } else {
                        least + (most - least) / 2
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Minimised, minimise};
    use crate::sequence::Sequence;
    use crate::templates::Templates;
    use crate::templates::tests::any_templates;
    use crate::{Below, Mutator};
    use brownout_random::Random;

    fn small(templates: &str, input: &[u8], holds: impl Fn(&[u8]) -> bool) -> Minimised {
        let templates: Templates = templates.parse().expect("templates");
        minimise(input, &templates, 10_000, &mut |input| holds(input)).expect("it shows it")
    }

    fn lines(input: &[u8]) -> Vec<&str> {
        std::str::from_utf8(input).expect("text").lines().collect()
    }

    #[test]
    fn what_does_not_matter_goes() {
        let input = b"i 5\nnoise\nr 5\ni 7170\np\nr 7170\np\ni 9\n";
        // Something that was inserted is removed later.
        let holds = |input: &[u8]| {
            let lines = lines(input);
            lines.iter().enumerate().any(|(at, line)| {
                line.strip_prefix("i ").is_some_and(|key| {
                    lines[at..]
                        .iter()
                        .any(|later| later.strip_prefix("r ") == Some(key))
                })
            })
        };
        let minimised = small("i {key}\nr {key}\np", input, holds);
        assert_eq!(minimised.input, b"i 1\nr 1\n");
        assert!(minimised.complete && minimised.calls < 100, "{minimised:?}");
    }

    #[test]
    fn numbers_become_small_but_not_too_small() {
        let key = |input: &[u8]| {
            lines(input)
                .first()
                .and_then(|l| l.strip_prefix("i ")?.parse().ok())
        };
        let above = |input: &[u8]| key(input).is_some_and(|key: i64| key > 1234);
        assert_eq!(small("i {key}", b"i 99999999\n", above).input, b"i 1235\n");
        let template = "i {int:10-99}";
        assert_eq!(
            small(template, b"i 42\n", |input| key(input).is_some()).input,
            b"i 10\n"
        );
    }

    #[test]
    fn keys_that_met_still_meet_and_keep_their_order() {
        let holds = |input: &[u8]| {
            let keys: Vec<i64> = lines(input)
                .iter()
                .filter_map(|line| line[2..].parse().ok())
                .collect();
            keys.len() == 4
                && keys[0] == keys[3]
                && keys[1] < keys[0]
                && keys[0] < keys[2]
                && keys[1] > 0
        };
        let minimised = small("i {key}\nr {key}", b"i 500\ni 40\ni 6000\nr 500\n", holds);
        assert_eq!(minimised.input, b"i 2\ni 1\ni 3\nr 2\n");
    }

    #[test]
    fn data_shrinks_and_its_length_follows() {
        let template = "@separator \\r\\n\nset {key} {len}\\r\\n{data}";
        let holds = |input: &[u8]| {
            let text = std::str::from_utf8(input).expect("text");
            let parts: Vec<&str> = text.split("\r\n").collect();
            let length = parts[0]
                .rsplit(' ')
                .next()
                .and_then(|length| length.parse().ok());
            parts.len() == 3 && length == Some(parts[1].len()) && parts[1].contains('x')
        };
        let minimised = small(template, b"set 1 9\r\nabcdxefgh\r\n", holds);
        assert_eq!(minimised.input, b"set 0 1\r\nx\r\n");
    }

    #[test]
    fn raw_operations_lose_bytes() {
        let minimised = small("i {key}", b"hello world\n", |input| input.contains(&b'w'));
        assert_eq!(minimised.input, b"w\n");
    }

    #[test]
    fn what_does_not_show_it_is_not_minimised() {
        let templates = Templates::default();
        assert_eq!(minimise(b"abc", &templates, 100, &mut |_| false), None);
        assert_eq!(
            minimise(b"abc", &templates, 0, &mut |_| panic!("asked")),
            None
        );
        let one = minimise(b"abc", &templates, 1, &mut |_| true).expect("the input itself");
        assert_eq!(
            one,
            Minimised {
                input: b"abc".to_vec(),
                calls: 1,
                complete: false
            }
        );
    }

    /// Over random templates, inputs and predicates (some of which are not monotonous, or have no
    /// sense): what comes out was tried and showed it, is not longer, took no more calls than
    /// allowed, and is minimal if that was enough.
    #[test]
    fn what_comes_out_shows_it_and_is_minimal() {
        let mut complete = 0;
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let templates = any_templates(&mut random);
            let mutator = Mutator::new(templates.clone());
            let mut input = Vec::new();
            for _ in 0..1 + random.below(4) {
                let below: &mut dyn Below = &mut |n: usize| random.index(n);
                input.extend(mutator.generate(below));
            }
            let wanted = random.below(256) as u8;
            let least = random.index(input.len() + 1);
            let odd = random.bits();
            let kind = random.below(3);
            let shows = |candidate: &[u8]| match kind {
                0 => candidate.len() >= least,
                1 => candidate.contains(&wanted) || candidate == input,
                _ => {
                    // As good as random, but the same whenever it is asked.
                    let sum = candidate.iter().fold(odd, |sum, byte| {
                        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                    });
                    sum >> 62 == 0 || candidate == input
                }
            };
            let budget = 1 + random.index(2000);
            let mut asked = Vec::new();
            let minimised = minimise(&input, &templates, budget, &mut |candidate| {
                asked.push(candidate.to_vec());
                shows(candidate)
            });
            let minimised = minimised.expect("the input shows it");
            assert!(shows(&minimised.input), "seed {seed}");
            assert!(
                asked.contains(&minimised.input),
                "seed {seed}: it was tried"
            );
            assert!(minimised.input.len() <= input.len(), "seed {seed}");
            assert_eq!(asked.len(), minimised.calls, "seed {seed}");
            assert!(asked.len() <= budget, "seed {seed}");
            if minimised.complete {
                complete += 1;
                let sequence = Sequence::parse(&minimised.input, &templates);
                for at in 0..sequence.operations.len() {
                    let mut smaller = sequence.clone();
                    smaller.operations.remove(at);
                    let smaller = smaller.print(&templates);
                    assert!(!shows(&smaller), "seed {seed}: operation {at} could go");
                }
            }
        }
        assert!(
            complete > 200,
            "budgets were too small to prove anything: {complete}"
        );
    }
}
