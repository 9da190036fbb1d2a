//! Changes of an input as a sequence of operations.
//!
//! Each [`Change`] is one idea and has a name, which goes into the name of the queue entry that it
//! leads to (`op:populate`). [`Mutator::mutate`] does one to four of them in a row.
//!
//! **Guarantee.** An input that comes out is never the one that went in, and is within [`Limits`]
//! (unless what went in exceeds them). Operations that no template describes are moved, repeated
//! and removed, but never changed inside.

use std::collections::BTreeSet;

use crate::change::Change;
use crate::fields::{Source, Twist};
use crate::formats::Format;
use crate::keys::{self, Keys};
use crate::sequence::{Operation, Sequence};
use crate::templates::{Field, Role, Templates};
use crate::tokens::Tokens;
use crate::weights::Weights;
use crate::{Below, one_in, pick, shuffle, weighted};

/// How large an input may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations. 256: enough for trees of three levels, and still some milliseconds a run.
    pub operations: usize,
    /// Bytes. 16 KiB, which only templates with much data reach.
    pub bytes: usize,
    /// Operations that `populate` adds at once. 128: a hash table of the usual first size is
    /// rebuilt by fewer.
    pub populate: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            operations: 256,
            bytes: 16 << 10,
            populate: 128,
        }
    }
}

/// An input that was made of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The input.
    pub input: Vec<u8>,
    /// What was done, in order.
    pub changes: Vec<Change>,
}

impl Mutated {
    /// For the name of a queue entry: `add`, or `add+swap`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.changes.iter().map(|change| change.name()).collect();
        names.join("+")
    }
}

/// Changes inputs of one program.
#[derive(Clone, Debug)]
pub struct Mutator {
    templates: Templates,
    /// Words and numbers to try; runs add to them.
    pub tokens: Tokens,
    limits: Limits,
    /// How many operations there were in the beginning; `None` if no others are learnt.
    known: Option<usize>,
}

/// So many operations are learnt from what a program reads its input by.
const FORMATS_MAX: usize = 48;
/// How often such an operation is chosen, compared with 1 for one that is only tried now and then.
const FORMAT_WEIGHT: u32 = 20;

impl Mutator {
    /// With these templates, no tokens and the usual limits.
    pub fn new(templates: Templates) -> Mutator {
        Mutator {
            templates,
            tokens: Tokens::default(),
            limits: Limits::default(),
            known: None,
        }
    }

    /// Operations are learnt while programs run, too: nobody has said that these are all.
    pub fn learning(mut self) -> Mutator {
        self.known = Some(self.templates.operations.len());
        self
    }

    /// Something that the program has used with a part of its input: if it is a format by which it
    /// reads commands, their kind is known from now on, if it has not been. False if it is none.
    pub fn learn_format(&mut self, bytes: &[u8]) -> bool {
        let Some(format) = Format::parse(bytes) else {
            return false;
        };
        let mut template = format.template();
        template.weight = FORMAT_WEIGHT;
        let operations = &mut self.templates.operations;
        let known = self.known.filter(|known| *known > 0);
        let has_room = known.is_some_and(|known| operations.len() < known + FORMATS_MAX);
        if has_room && !operations.iter().any(|known| known.parts == template.parts) {
            operations.push(template);
        }
        true
    }

    /// With these limits.
    pub fn with_limits(mut self, limits: Limits) -> Mutator {
        self.limits = limits;
        self
    }

    /// What operations look like.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Whether it knows any operation. If not, bytes are all that can be changed.
    pub fn knows_operations(&self) -> bool {
        !self.templates.operations.is_empty()
    }

    /// An input of some operations, for when there is no seed.
    pub fn generate(&self, random: &mut dyn Below) -> Vec<u8> {
        let mut work = Work::new(Sequence::empty(&self.templates), None, self);
        for _ in 0..1 + random.below(8) {
            work.add(random);
        }
        work.finish()
    }

    /// A few operations on what another input has left, which may have been cut short: mostly with
    /// its keys, and as often with operations that are only tried now and then as with the usual
    /// ones; a third of them are commands of a letter that no seed has, if the program is known to
    /// compare with it. `None` without any template.
    pub fn probe(&self, before: &[u8], random: &mut dyn Below) -> Option<Vec<u8>> {
        let count = self.templates.operations.len();
        if count == 0 {
            return None;
        }
        let sequence = Sequence::parse(before, &self.templates);
        let keys = Keys::of(&sequence, &self.templates);
        let source = Source {
            templates: &self.templates,
            tokens: &self.tokens,
            keys: &keys,
        };
        let mut work = Work::new(Sequence::empty(&self.templates), None, self);
        let all: Vec<usize> = (0..count).collect();
        let knows = |template: &usize| {
            let mut fields = self.templates.operations[*template].fields();
            fields.any(|field| source.knows_choice(field))
        };
        let known: Vec<usize> = all.iter().copied().filter(knows).collect();
        for _ in 0..1 + random.below(3) {
            let template = match known.is_empty() || !one_in(3, random) {
                false => *pick(&known, random),
                true if one_in(2, random) => random.below(count),
                true => work.any_template(&all, random)?,
            };
            let operation = source.operation(template, random);
            work.sequence.operations.push(operation);
        }
        Some(work.finish())
    }

    /// Changes an input; `other` is one to merge it with.
    ///
    /// Without any template it comes back as it is, with no changes.
    pub fn mutate(
        &self,
        input: &[u8],
        other: Option<&[u8]>,
        weights: &Weights,
        random: &mut dyn Below,
    ) -> Mutated {
        if !self.knows_operations() {
            return Mutated {
                input: input.to_vec(),
                changes: Vec::new(),
            };
        }
        let sequence = Sequence::parse(input, &self.templates);
        let other = other.map(|other| Sequence::parse(other, &self.templates));
        // One change mostly; several reach what single steps cannot, because each would find
        // nothing by itself.
        let wanted = [1, 1, 1, 1, 2, 2, 3, 4][random.below(8)];
        let mut work = Work::new(sequence, other.as_ref(), self);
        let mut changes = Vec::new();
        // Some are impossible (there is nothing to remove), so more are tried than wanted.
        for _ in 0..8 * wanted {
            let Some(change) = weights.choose(&Change::ALL, random) else {
                break;
            };
            if work.change(change, random) {
                changes.push(change);
            }
            if changes.len() == wanted {
                break;
            }
        }
        let mutated = work.finish();
        if !changes.is_empty() && mutated != input {
            return Mutated {
                input: mutated,
                changes,
            };
        }
        // Changes may have undone each other, or gone beyond the limits and been cut off.
        let sequence = Sequence::parse(input, &self.templates);
        let (change, mutated) = Work::new(sequence, None, self).change_anyhow(random);
        Mutated {
            input: mutated,
            changes: vec![change],
        }
    }

    /// Does one change; none if it is impossible on this input, or makes no difference.
    pub fn apply(
        &self,
        change: Change,
        input: &[u8],
        other: Option<&[u8]>,
        random: &mut dyn Below,
    ) -> Option<Vec<u8>> {
        if !self.knows_operations() {
            return None;
        }
        let other = other.map(|other| Sequence::parse(other, &self.templates));
        let sequence = Sequence::parse(input, &self.templates);
        let mut work = Work::new(sequence, other.as_ref(), self);
        if !work.change(change, random) {
            return None;
        }
        Some(work.finish()).filter(|changed| changed != input)
    }
}

/// An input that is being changed.
struct Work<'a> {
    sequence: Sequence,
    other: Option<&'a Sequence>,
    templates: &'a Templates,
    tokens: &'a Tokens,
    limits: Limits,
}

impl<'a> Work<'a> {
    fn new(sequence: Sequence, other: Option<&'a Sequence>, mutator: &'a Mutator) -> Work<'a> {
        let Mutator {
            templates,
            tokens,
            limits,
            known: _,
        } = mutator;
        Work {
            sequence,
            other,
            templates,
            tokens,
            limits: *limits,
        }
    }

    /// The input, made proper.
    fn finish(mut self) -> Vec<u8> {
        self.sequence.tidy(self.templates);
        let mut printed = self.sequence.print(self.templates);
        while printed.len() > self.limits.bytes && self.sequence.operations.len() > 1 {
            // As much as is too much, and at least one.
            let count = self.sequence.operations.len();
            let keep = count * self.limits.bytes / printed.len();
            self.sequence.operations.truncate(keep.clamp(1, count - 1));
            self.sequence.tidy(self.templates);
            printed = self.sequence.print(self.templates);
        }
        printed
    }

    fn len(&self) -> usize {
        self.sequence.operations.len()
    }

    fn room(&self) -> usize {
        self.limits.operations.saturating_sub(self.len())
    }

    /// A range of operations, of at most so many.
    fn range(&self, most: usize, random: &mut dyn Below) -> std::ops::Range<usize> {
        let length = 1 + random.below(self.len().min(most));
        let from = random.below(self.len() - length + 1);
        from..from + length
    }

    /// Where something new goes: at the end as often as anywhere else.
    fn place(&self, random: &mut dyn Below) -> usize {
        match random.below(2) {
            0 => self.len(),
            _ => random.below(self.len() + 1),
        }
    }

    /// Puts these somewhere.
    fn insert(&mut self, at: usize, operations: Vec<Operation>) {
        self.sequence.operations.splice(at..at, operations);
    }

    fn change(&mut self, change: Change, random: &mut dyn Below) -> bool {
        match change {
            Change::Add => self.room() > 0 && self.add(random),
            Change::Delete => {
                if self.len() < 2 {
                    return false;
                }
                let at = random.below(self.len());
                self.sequence.operations.remove(at);
                true
            }
            Change::DeleteRange => {
                if self.len() < 3 {
                    return false;
                }
                let mut range = self.range(self.len() - 1, random);
                // As often up to the end: what an input does last matters most.
                if one_in(2, random) && range.start > 0 {
                    range.end = self.len();
                }
                self.sequence.operations.drain(range);
                true
            }
            Change::Duplicate => {
                if self.len() == 0 || self.room() == 0 {
                    return false;
                }
                let at = random.below(self.len());
                let copy = self.sequence.operations[at].clone();
                let to = if one_in(2, random) {
                    at + 1
                } else {
                    self.place(random)
                };
                self.insert(to, vec![copy]);
                true
            }
            Change::Exchange => self.exchange(random),
            Change::Renew => self.twist(Twist::Renew, random),
            Change::Meet => self.twist(Twist::Meet, random),
            Change::Step => self.twist(Twist::Step, random),
            Change::Boundary => self.twist(Twist::Boundary, random),
            Change::Big => self.twist(Twist::Big, random),
            Change::Token => self.twist(Twist::Token, random),
            Change::Operand => self.operand(random),
            Change::Length => self.length(random),
            Change::Swap => {
                if self.len() < 2 {
                    return false;
                }
                let a = random.below(self.len());
                let b = random.below(self.len());
                self.sequence.operations.swap(a, b);
                self.sequence.operations[a] != self.sequence.operations[b]
            }
            Change::Shuffle => {
                if self.len() < 3 {
                    return false;
                }
                let range = self.range(16, random);
                let before = self.sequence.operations[range.clone()].to_vec();
                shuffle(&mut self.sequence.operations[range.clone()], random);
                self.sequence.operations[range] != before
            }
            Change::Move => {
                if self.len() < 3 {
                    return false;
                }
                let range = self.range(self.len() / 2, random);
                let moved: Vec<Operation> = self.sequence.operations.drain(range.clone()).collect();
                let to = self.place(random);
                self.insert(to, moved);
                to != range.start
            }
            Change::Concatenate => self.concatenate(random),
            Change::Interleave => self.interleave(random),
            Change::Replay => {
                if self.len() == 0 || self.room() == 0 {
                    return false;
                }
                let count = 1 + random.below(self.len().min(self.room()));
                let prefix = self.sequence.operations[..count].to_vec();
                self.sequence.operations.extend(prefix);
                true
            }
            Change::Repeat => {
                if self.len() == 0 || self.room() == 0 {
                    return false;
                }
                let range = self.range(8, random);
                let times = [1, 2, 3, 4, 7, 15][random.below(6)].min(self.room() / range.len());
                let block = self.sequence.operations[range.clone()].to_vec();
                let copies: Vec<Operation> = std::iter::repeat_n(block, times).flatten().collect();
                self.insert(range.end, copies);
                times > 0
            }
            Change::Populate => self.populate(random),
            Change::Drain => self.drain(random),
        }
    }

    fn keys(&self) -> Keys {
        Keys::of(&self.sequence, self.templates)
    }

    /// A template, as likely as its weight says.
    fn any_template(&self, among: &[usize], random: &mut dyn Below) -> Option<usize> {
        let weight = |index: &usize| u64::from(self.templates.operations[*index].weight);
        let weights: Vec<u64> = among.iter().map(weight).collect();
        weighted(&weights, random).map(|index| among[index])
    }

    fn add(&mut self, random: &mut dyn Below) -> bool {
        let all: Vec<usize> = (0..self.templates.operations.len()).collect();
        let Some(template) = self.any_template(&all, random) else {
            return false;
        };
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        let operation = source.operation(template, random);
        let place = self.place(random);
        self.insert(place, vec![operation]);
        true
    }

    /// Makes something else of the input, whatever the random numbers are.
    fn change_anyhow(mut self, random: &mut dyn Below) -> (Change, Vec<u8>) {
        if self.len() > 1 {
            self.sequence.operations.pop();
            return (Change::Delete, self.finish());
        }
        if self.sequence.print(self.templates).len() > self.limits.bytes {
            // What is added would be cut off again.
            self.sequence.operations.clear();
        }
        self.add(random);
        (Change::Add, self.finish())
    }

    /// The same parameters for another operation.
    fn exchange(&mut self, random: &mut dyn Below) -> bool {
        let Some(at) = self.described(random) else {
            return false;
        };
        let old = self.sequence.operations[at].clone();
        let others = self.templates.indices(|_| true);
        let others: Vec<usize> = others
            .into_iter()
            .filter(|index| Some(*index) != old.template)
            .collect();
        let Some(template) = self.any_template(&others, random) else {
            return false;
        };
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        let mut operation = source.operation(template, random);
        operation.separated = old.separated;
        // Each parameter goes to the first field of its kind that has none yet.
        let mut given: Vec<Option<(&Field, &[u8])>> =
            old.described(self.templates).map(Some).collect();
        let wanted = self.templates.operations[template].fields();
        for (field, bytes) in wanted.zip(&mut operation.fields) {
            let alike = given.iter_mut().find(|given| {
                given.is_some_and(|(other, _)| {
                    !field.is_len() && (other == field || other.is_key() && field.is_key())
                })
            });
            if let Some((other, value)) = alike.and_then(Option::take) {
                let number = keys::number_in(other, value);
                let moved = match number {
                    Some(number) if other != field => source.number(field, number, value),
                    _ if other == field => Some(value.to_vec()),
                    _ => None,
                };
                if let Some(moved) = moved {
                    *bytes = moved;
                }
            }
        }
        operation.set_lengths(self.templates);
        self.sequence.operations[at] = operation;
        true
    }

    /// An operation that a template describes, if one is found soon.
    fn described(&self, random: &mut dyn Below) -> Option<usize> {
        self.any(random, |operation| operation.template.is_some())
    }

    /// An operation of this kind, each as likely as any other.
    fn any(&self, random: &mut dyn Below, wanted: impl Fn(&Operation) -> bool) -> Option<usize> {
        let numbered = self.sequence.operations.iter().enumerate();
        let all: Vec<usize> = numbered
            .filter(|(_, operation)| wanted(operation))
            .map(|(index, _)| index)
            .collect();
        if all.is_empty() {
            None
        } else {
            Some(*pick(&all, random))
        }
    }

    /// Changes a parameter.
    fn twist(&mut self, twist: Twist, random: &mut dyn Below) -> bool {
        let has_fields =
            |operation: &Operation| operation.template.is_some() && !operation.fields.is_empty();
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        // What was chosen may not be able to change so: a word does not become one more.
        for _ in 0..8 {
            let Some(at) = self.any(random, has_fields) else {
                return false;
            };
            let operation = &mut self.sequence.operations[at];
            let Some(template) = operation.template else {
                return false;
            };
            let fields: Vec<&Field> = self.templates.operations[template].fields().collect();
            let which = random.below(fields.len());
            if fields[which].is_len() {
                continue;
            }
            if source.twist(fields[which], &mut operation.fields[which], twist, random) {
                operation.set_lengths(self.templates);
                return true;
            }
        }
        false
    }

    /// Puts what something was compared with in its place.
    fn operand(&mut self, random: &mut dyn Below) -> bool {
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        // Where the first of a pair stands in a field.
        let mut places = Vec::new();
        for (at, operation) in self.sequence.operations.iter().enumerate() {
            for (which, (field, bytes)) in operation.described(self.templates).enumerate() {
                if field.is_len() {
                    continue;
                }
                let written = match field {
                    Field::Fixed(fixed) => match fixed.read(bytes) {
                        Some(number) => number.to_string().into_bytes(),
                        None => continue,
                    },
                    _ => bytes.to_vec(),
                };
                for (pair, (from, _)) in self.tokens.pairs().iter().enumerate() {
                    if *from == written {
                        places.push((at, which, pair));
                    }
                }
            }
        }
        if places.is_empty() {
            return false;
        }
        let (at, which, pair) = *pick(&places, random);
        let to = &self.tokens.pairs()[pair].1;
        let operation = &mut self.sequence.operations[at];
        let Some(template) = operation.template else {
            return false;
        };
        let Some(field) = self.templates.operations[template].fields().nth(which) else {
            return false;
        };
        let changed = match field {
            Field::Fixed(_) | Field::Int(_) => match crate::numbers::read(to) {
                Some(number) => source.number(field, number.value, &operation.fields[which]),
                None => None,
            },
            Field::Choice(choices) => choices.iter().find(|choice| *choice == to).cloned(),
            Field::Byte => None,
            _ => Some(to.clone()),
        };
        match changed.map(|changed| source.fitting(field, changed)) {
            Some(changed) if changed != operation.fields[which] => {
                operation.fields[which] = changed;
                operation.set_lengths(self.templates);
                true
            }
            _ => false,
        }
    }

    /// Makes a length wrong.
    fn length(&mut self, random: &mut dyn Below) -> bool {
        let templates = self.templates;
        let has_len = |operation: &Operation| {
            operation
                .described(templates)
                .any(|(field, _)| field.is_len())
        };
        let Some(at) = self.any(random, has_len) else {
            return false;
        };
        let lens: Vec<(usize, Field, Vec<u8>)> = self.sequence.operations[at]
            .described(templates)
            .enumerate()
            .filter(|(_, (field, _))| field.is_len())
            .map(|(which, (field, bytes))| (which, field.clone(), bytes.to_vec()))
            .collect();
        let (which, field, bytes) = pick(&lens, random);
        let Some(length) = keys::number_in(field, bytes) else {
            return false;
        };
        let wrong = match random.below(6) {
            0 => length + 1,
            1 => length - 1,
            2 => 0,
            3 => length * 2,
            4 => -1,
            _ => *pick(crate::numbers::BOUNDARIES, random),
        };
        let written = match field {
            Field::Fixed(fixed) => fixed.write(wrong as u64),
            _ => wrong.to_string().into_bytes(),
        };
        let differs = written != *bytes;
        self.sequence.operations[at].fields[*which] = written;
        differs
    }

    /// A beginning of this and an end of the other, or the other way round.
    fn concatenate(&mut self, random: &mut dyn Below) -> bool {
        let Some(other) = self.other.filter(|other| !other.operations.is_empty()) else {
            return false;
        };
        let mine = &self.sequence.operations;
        let theirs = &other.operations;
        // Half of the time all of the first, so that the other goes on where this one has ended.
        let cut = |length: usize, random: &mut dyn Below| match random.below(2) {
            0 => length,
            _ => random.below(length + 1),
        };
        let (first, second) = match random.below(2) {
            0 => (mine, theirs),
            _ => (theirs, mine),
        };
        let head = &first[..cut(first.len(), random)];
        let tail = &second[second.len() - cut(second.len(), random)..];
        let mut merged = [head, tail].concat();
        merged.truncate(self.limits.operations);
        if merged.is_empty() || merged == *mine {
            return false;
        }
        self.sequence.operations = merged;
        true
    }

    /// Both, alternately, each in its own order.
    fn interleave(&mut self, random: &mut dyn Below) -> bool {
        let Some(other) = self.other.filter(|other| !other.operations.is_empty()) else {
            return false;
        };
        let room = self.room();
        let from = random.below(other.operations.len());
        let theirs = &other.operations[from..];
        let theirs = &theirs[..theirs.len().min(room)];
        if theirs.is_empty() {
            return false;
        }
        let mine = std::mem::take(&mut self.sequence.operations);
        let (mut mine, mut theirs) = (mine.into_iter(), theirs.iter().cloned());
        let mut left = (mine.len(), theirs.len());
        while left.0 + left.1 > 0 {
            let next = match random.below(left.0 + left.1) < left.0 {
                true => mine.next(),
                false => theirs.next(),
            };
            self.sequence.operations.extend(next);
            left = (mine.len(), theirs.len());
        }
        true
    }

    /// A template that inserts (or removes): what its name says mostly, any other with a key
    /// sometimes.
    fn keyed(&self, role: Role, random: &mut dyn Below) -> Option<usize> {
        let named = self.templates.with_role(role);
        if !named.is_empty() && !one_in(8, random) {
            return self.any_template(&named, random);
        }
        let any = self.templates.indices(|template| template.has_key());
        self.any_template(&any, random)
    }

    /// Inserts many keys.
    fn populate(&mut self, random: &mut dyn Below) -> bool {
        let Some(template) = self.keyed(Role::Insert, random) else {
            return false;
        };
        let most = self.limits.populate.min(self.room());
        // Up to one size or twice of it: nodes of eight keys, of sixteen, of 64.
        let size = [8, 16, 32, 64, 128][random.below(5)];
        let count = (size / 2 + random.below(size)).min(most);
        if count == 0 {
            return false;
        }
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        let numbers = spread(count, &keys, random);
        let text = keys.texts.first().filter(|_| keys.numbers.is_empty());
        let stem = text.map(|text| {
            let end = text.iter().rposition(|byte| !byte.is_ascii_digit());
            text[..end.map_or(0, |end| end + 1)].to_vec()
        });
        let inserts = numbers.into_iter().map(|number| {
            let mut operation = source.operation(template, random);
            set_key(&mut operation, &source, number, stem.as_deref());
            operation
        });
        let inserts: Vec<Operation> = inserts.collect();
        let at = if one_in(4, random) {
            self.place(random)
        } else {
            self.len()
        };
        self.insert(at, inserts);
        true
    }

    /// Removes what was inserted.
    fn drain(&mut self, random: &mut dyn Below) -> bool {
        let Some(template) = self.keyed(Role::Remove, random) else {
            return false;
        };
        // The operations whose keys are to go, each key once.
        let mut known = BTreeSet::new();
        let inserts = |operation: &Operation| {
            let index = operation.template?;
            let role = self.templates.operations[index].role;
            // Where no name says what inserts, anything may have.
            let inserts = role == Role::Insert
                || role == Role::Other && self.templates.with_role(Role::Insert).is_empty();
            let (field, bytes) = operation
                .described(self.templates)
                .find(|(field, _)| field.is_key())?;
            inserts.then(|| (field.clone(), bytes.to_vec()))
        };
        let mut inserted: Vec<(Field, Vec<u8>)> = self
            .sequence
            .operations
            .iter()
            .filter_map(inserts)
            .filter(|(_, bytes)| known.insert(bytes.clone()))
            .collect();
        match random.below(5) {
            0 => {}
            1 => inserted.reverse(),
            2 => inserted.sort_by_key(|(field, bytes)| keys::number_in(field, bytes)),
            // From the outside to the middle, as trees do not like it.
            3 => {
                inserted.sort_by_key(|(field, bytes)| keys::number_in(field, bytes));
                let back = inserted.split_off(inserted.len() / 2);
                let mut back = back.into_iter().rev();
                let front = std::mem::take(&mut inserted);
                for one in front {
                    inserted.push(one);
                    inserted.extend(back.next());
                }
                inserted.extend(back);
            }
            _ => shuffle(&mut inserted, random),
        }
        // All of them, or all but a few.
        if one_in(3, random) && inserted.len() > 1 {
            inserted.truncate(inserted.len() - 1 - random.below(inserted.len() / 2));
        }
        inserted.truncate(self.room());
        if inserted.is_empty() {
            return false;
        }
        let keys = self.keys();
        let source = Source {
            templates: self.templates,
            tokens: self.tokens,
            keys: &keys,
        };
        let removals: Vec<Operation> = inserted
            .iter()
            .map(|(field, bytes)| {
                let mut operation = source.operation(template, random);
                let fields = self.templates.operations[template].fields();
                let wanted = fields
                    .zip(&mut operation.fields)
                    .find(|(field, _)| field.is_key());
                if let Some((wanted, place)) = wanted {
                    let number = keys::number_in(field, bytes);
                    *place = match number {
                        _ if wanted == field => bytes.clone(),
                        Some(number) => source
                            .number(wanted, number, bytes)
                            .unwrap_or_else(|| bytes.clone()),
                        None => bytes.clone(),
                    };
                }
                operation.set_lengths(self.templates);
                operation
            })
            .collect();
        self.sequence.operations.extend(removals);
        true
    }
}

/// Puts this number into the first key of an operation: as it is, or after a stem (`user` and 5 are
/// `user5`).
fn set_key(operation: &mut Operation, source: &Source<'_>, number: i128, stem: Option<&[u8]>) {
    let Some(template) = operation.template else {
        return;
    };
    let fields = source.templates.operations[template].fields();
    let key = fields
        .zip(&mut operation.fields)
        .find(|(field, _)| field.is_key());
    if let Some((field, bytes)) = key
        && let Some(written) = source.number(field, number, b"")
    {
        *bytes = match (field, stem) {
            (Field::Key, Some(stem)) => [stem, &written].concat(),
            _ => written,
        };
    }
    operation.set_lengths(source.templates);
}

/// So many keys: consecutive, backwards, in steps, random, or in clusters.
fn spread(count: usize, keys: &Keys, random: &mut dyn Below) -> Vec<i128> {
    // Beside what is there, or from the start.
    let base = match keys.numbers.as_slice() {
        [] => 1,
        numbers if one_in(2, random) => pick(numbers, random) + 1,
        _ => random.below(2) as i128,
    };
    let count_i = count as i128;
    match random.below(6) {
        0 | 1 => (0..count_i).map(|index| base + index).collect(),
        2 => (0..count_i).rev().map(|index| base + index).collect(),
        3 => {
            let step = [2, 3, 10, 16, 64, 256, 1024, 4096][random.below(8)];
            (0..count_i).map(|index| base + index * step).collect()
        }
        4 => {
            let range = if one_in(2, random) {
                2 * count
            } else {
                1 << 16
            };
            (0..count).map(|_| random.below(range) as i128).collect()
        }
        _ => {
            let clusters: Vec<i128> = (0..4).map(|_| 16 * random.below(64) as i128).collect();
            (0..count)
                .map(|_| pick(&clusters, random) + random.below(16) as i128)
                .collect()
        }
    }
}

#[cfg(test)]
mod tests;
