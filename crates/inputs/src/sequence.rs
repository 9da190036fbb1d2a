//! An input as a sequence of operations.
//!
//! **Guarantee.** What is taken apart and printed again is the same, byte for byte, whatever the
//! input is and whatever the templates are. So a field is kept as the bytes that stood there, not
//! as what they mean: `007` stays `007`. What no template describes is a *raw* operation: one line
//! (up to the separator), or without a separator the bytes up to where the next template fits.
//!
//! Of several templates that fit, the one with more given bytes is taken, then the one that comes
//! first.

use crate::templates::{Field, Meaning, Part, Template, Templates};

/// An input holds at most so many operations; what follows stays together as one raw operation.
pub const MAX_OPERATIONS: usize = 512;

/// How many ways to fit one template to one place are tried before it is said not to fit.
///
/// Templates with many words and no blanks between them can fit in very many ways.
const MAX_STEPS: usize = 4096;

/// An input, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Whether it begins as the templates say that every input begins.
    pub begins: bool,
    /// What it consists of.
    pub operations: Vec<Operation>,
    /// Whether it ends as the templates say that every input ends.
    pub ends: bool,
}

/// One operation of an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Which template describes it; none for a raw one.
    pub template: Option<usize>,
    /// What stands in its fields, in their order. A raw operation has one, which is all of it.
    pub fields: Vec<Vec<u8>>,
    /// Whether the separator follows. Only the last operation may lack it.
    pub separated: bool,
}

impl Operation {
    /// Bytes that no template describes.
    pub fn raw(bytes: Vec<u8>) -> Operation {
        Operation {
            template: None,
            fields: vec![bytes],
            separated: true,
        }
    }

    /// Its fields with what they mean; nothing for a raw operation.
    pub fn described<'a>(
        &'a self,
        templates: &'a Templates,
    ) -> impl Iterator<Item = (&'a Field, &'a [u8])> {
        let template = self.template.map(|index| &templates.operations[index]);
        let fields = template.into_iter().flat_map(Template::fields);
        fields.zip(self.fields.iter().map(Vec::as_slice))
    }

    /// Appends it to `out`.
    pub fn print(&self, templates: &Templates, out: &mut Vec<u8>) {
        match self.template {
            None => self.fields.iter().for_each(|bytes| out.extend(bytes)),
            Some(index) => {
                let mut fields = self.fields.iter();
                for part in &templates.operations[index].parts {
                    match part {
                        Part::Literal(bytes) => out.extend(bytes),
                        Part::Field(_) => out.extend(fields.next().into_iter().flatten()),
                    }
                }
            }
        }
        if self.separated {
            out.extend(&templates.separator);
        }
    }

    /// Makes every length that of what follows it.
    pub fn set_lengths(&mut self, templates: &Templates) {
        let Some(index) = self.template else { return };
        let mut len: Option<(usize, &Field)> = None;
        let mut lengths = Vec::new();
        for (at, field) in templates.operations[index].fields().enumerate() {
            if field.is_len() {
                len = Some((at, field));
            } else if field.has_len()
                && let Some((at_len, field)) = len.take()
            {
                lengths.push((at_len, written_length(field, self.fields[at].len())));
            }
        }
        for (at, bytes) in lengths {
            self.fields[at] = bytes;
        }
    }
}

/// This length, as the field for it wants it.
fn written_length(field: &Field, length: usize) -> Vec<u8> {
    match field {
        Field::Fixed(fixed) => fixed.write(length as u64),
        _ => length.to_string().into_bytes(),
    }
}

impl Sequence {
    /// Takes an input apart.
    pub fn parse(input: &[u8], templates: &Templates) -> Sequence {
        let begin = templates.begin.as_slice();
        let begins = !begin.is_empty() && input.starts_with(begin);
        let rest = if begins { &input[begin.len()..] } else { input };
        let end = templates.end.as_slice();
        let ends = !end.is_empty() && rest.ends_with(end);
        let rest = if ends {
            &rest[..rest.len() - end.len()]
        } else {
            rest
        };
        Sequence {
            begins,
            operations: Parser::new(rest, templates).operations(),
            ends,
        }
    }

    /// No operation, but what every input begins and ends with.
    pub fn empty(templates: &Templates) -> Sequence {
        Sequence {
            begins: !templates.begin.is_empty(),
            operations: Vec::new(),
            ends: !templates.end.is_empty(),
        }
    }

    /// The input.
    pub fn print(&self, templates: &Templates) -> Vec<u8> {
        let mut out = Vec::new();
        if self.begins {
            out.extend(&templates.begin);
        }
        for operation in &self.operations {
            operation.print(templates, &mut out);
        }
        if self.ends {
            out.extend(&templates.end);
        }
        out
    }

    /// Makes it a proper input again after operations were moved: all but the last are separated
    /// from what follows.
    pub fn tidy(&mut self, templates: &Templates) {
        self.begins = !templates.begin.is_empty();
        self.ends = !templates.end.is_empty();
        let last = self.operations.len().saturating_sub(1);
        for (index, operation) in self.operations.iter_mut().enumerate() {
            if index < last || self.ends {
                operation.separated = true;
            }
        }
    }
}

/// Finds operations from left to right.
struct Parser<'a> {
    input: &'a [u8],
    templates: &'a Templates,
    /// Which templates to try, the most certain first.
    order: Vec<usize>,
}

impl<'a> Parser<'a> {
    fn new(input: &'a [u8], templates: &'a Templates) -> Parser<'a> {
        let mut order: Vec<usize> = (0..templates.operations.len()).collect();
        order.sort_by_key(|index| {
            (
                std::cmp::Reverse(templates.operations[*index].certainty()),
                *index,
            )
        });
        Parser {
            input,
            templates,
            order,
        }
    }

    fn operations(&self) -> Vec<Operation> {
        let separator = self.templates.separator.as_slice();
        let mut operations = Vec::new();
        let mut at = 0;
        while at < self.input.len() {
            if operations.len() + 1 >= MAX_OPERATIONS {
                let mut last = Operation::raw(self.input[at..].to_vec());
                last.separated = false;
                operations.push(last);
                break;
            }
            let found = self.operation_at(at);
            let (template, fields, end) = match found {
                Some((template, fields, end)) => (Some(template), fields, end),
                None => {
                    let end = self.raw_end(at);
                    (None, vec![self.input[at..end].to_vec()], end)
                }
            };
            let separated = self.input[end..].starts_with(separator);
            at = if separated {
                end + separator.len()
            } else {
                end
            };
            operations.push(Operation {
                template,
                fields,
                separated,
            });
        }
        operations
    }

    /// The template that fits best here, its fields, and where it ends.
    fn operation_at(&self, at: usize) -> Option<(usize, Vec<Vec<u8>>, usize)> {
        self.order.iter().find_map(|&index| {
            let parts = self.templates.operations[index].parts.as_slice();
            let mut fit = Fit {
                input: self.input,
                separator: &self.templates.separator,
                steps: 0,
                spans: Vec::new(),
            };
            let end = fit.parts(parts, at, None)?;
            // Without a separator, an operation of no bytes would be found for ever.
            if end == at && self.templates.separator.is_empty() {
                return None;
            }
            let fields = fit
                .spans
                .iter()
                .map(|(from, to)| self.input[*from..*to].to_vec());
            Some((index, fields.collect(), end))
        })
    }

    /// Where what no template describes ends.
    fn raw_end(&self, at: usize) -> usize {
        let separator = self.templates.separator.as_slice();
        if separator.is_empty() {
            let next = (at + 1..self.input.len()).find(|next| self.operation_at(*next).is_some());
            next.unwrap_or(self.input.len())
        } else {
            find(self.input, separator, at)
        }
    }
}

/// Where `needle` is next, or the end.
fn find(input: &[u8], needle: &[u8], from: usize) -> usize {
    let mut windows = input[from..].windows(needle.len());
    windows
        .position(|window| window == needle)
        .map_or(input.len(), |distance| from + distance)
}

/// Fits one template to one place.
struct Fit<'a> {
    input: &'a [u8],
    separator: &'a [u8],
    steps: usize,
    spans: Vec<(usize, usize)>,
}

impl Fit<'_> {
    /// Where these parts end, if they are here; `announced` is a length that waits for what it is
    /// the length of.
    fn parts(&mut self, parts: &[Part], at: usize, announced: Option<usize>) -> Option<usize> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return None;
        }
        let Some((part, rest)) = parts.split_first() else {
            let ends = at == self.input.len() || self.input[at..].starts_with(self.separator);
            return ends.then_some(at);
        };
        let field = match part {
            Part::Literal(bytes) => {
                let there = self.input[at..].starts_with(bytes);
                return if there {
                    self.parts(rest, at + bytes.len(), announced)
                } else {
                    None
                };
            }
            Part::Field(field) => field,
        };
        if field.has_len()
            && let Some(length) = announced
        {
            let end = at
                .checked_add(length)
                .filter(|end| *end <= self.input.len());
            if let Some(end) = end
                && let Some(found) = self.field(at, end, rest, None)
            {
                return Some(found);
            }
            // The length is wrong, which a program must cope with, too; what it is the length of
            // may still be found.
        }
        match field {
            Field::Key | Field::Value | Field::Word => {
                let most = self.word_end(at);
                (at + 1..=most)
                    .rev()
                    .find_map(|end| self.field(at, end, rest, None))
            }
            Field::Data(size) => {
                let line = match self.separator {
                    [] => self.input.len(),
                    separator => find(self.input, separator, at),
                };
                // What is exact may hold the separator.
                let most = match size.least == size.most {
                    true => self.input.len().min(at + size.most),
                    false => line,
                };
                let least = match size.least == size.most {
                    true => at + size.most,
                    false => at,
                };
                (least..=most).find_map(|end| self.field(at, end, rest, None))
            }
            Field::Int(range) => {
                let end = self.number_end(at);
                let text = self.input.get(at..end).unwrap_or_default();
                let number = crate::numbers::read(text)?;
                let inside = |(low, high): &(i64, i64)| {
                    (i128::from(*low)..=i128::from(*high)).contains(&number.value)
                };
                let fits = range.as_ref().is_none_or(inside);
                if fits {
                    self.field(at, end, rest, announced)
                } else {
                    None
                }
            }
            Field::Len => {
                let digits = self.input[at..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit());
                let end = at + digits.count();
                let text = std::str::from_utf8(&self.input[at..end]).ok()?;
                // A length that no input can have announces nothing.
                let length = text.parse::<usize>().ok();
                if text.is_empty() {
                    None
                } else {
                    self.field(at, end, rest, length)
                }
            }
            Field::Byte if at < self.input.len() => self.field(at, at + 1, rest, announced),
            Field::Byte => None,
            Field::Choice(choices) => {
                // The longest first: `set` must not be found in `setx`.
                let mut here: Vec<usize> = choices
                    .iter()
                    .filter(|choice| self.input[at..].starts_with(choice))
                    .map(Vec::len)
                    .collect();
                here.sort_unstable_by(|a, b| b.cmp(a));
                here.iter()
                    .find_map(|length| self.field(at, at + length, rest, announced))
            }
            Field::Fixed(fixed) => {
                let end = at + fixed.width;
                let number = fixed.read(self.input.get(at..end)?)?;
                let announced = match fixed.meaning {
                    Meaning::Len => usize::try_from(number).ok(),
                    Meaning::Range(low, high) if !(low..=high).contains(&number) => return None,
                    _ => announced,
                };
                self.field(at, end, rest, announced)
            }
        }
    }

    /// Takes these bytes as a field, if the rest fits after it.
    fn field(
        &mut self,
        from: usize,
        to: usize,
        rest: &[Part],
        announced: Option<usize>,
    ) -> Option<usize> {
        self.spans.push((from, to));
        let depth = self.spans.len();
        let found = self.parts(rest, to, announced);
        if found.is_none() {
            self.spans.truncate(depth - 1);
        }
        found
    }

    /// Where a word that begins here ends: before a blank, a control character or the separator.
    fn word_end(&self, at: usize) -> usize {
        let rest = &self.input[at..];
        let word = rest
            .iter()
            .take_while(|byte| **byte > b' ' && **byte != 0x7f)
            .count();
        match self.separator {
            [] => at + word,
            separator => find(&self.input[..at + word], separator, at),
        }
    }

    /// Where a number that begins here ends.
    fn number_end(&self, at: usize) -> usize {
        let rest = &self.input[at..];
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        let rest = &rest[sign..];
        let hexadecimal = |byte: &u8| byte.is_ascii_hexdigit();
        if matches!(rest, [b'0', b'x' | b'X', digit, ..] if hexadecimal(digit)) {
            let digits = rest[2..]
                .iter()
                .take_while(|byte| hexadecimal(byte))
                .count();
            return at + sign + 2 + digits;
        }
        at + sign + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }
}

#[cfg(test)]
mod tests;
