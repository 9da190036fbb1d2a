//! Templates that are learnt from seeds, when no file says what operations look like.
//!
//! Seeds are cut at the separator that splits them best (lines, if they have any), and each line is
//! taken apart into words, numbers and what stands between them. The first word of a line is its
//! command and stays. Numbers become `{key}`, and so does a word that follows the command; other
//! words become `{word}`, unless all lines of a command have the same there. A line that ends with
//! the length of the next one is joined with it: `set {key} {key} {len}\r\n{data}`.
//!
//! Beyond what seeds show, a few things are tried now and then:
//!
//! - If commands are single letters, so are probably those that no seed has: the other letters are
//!   tried, with the parameters that the known ones have.
//! - A word that the dictionary has or that comparisons reveal may be a command: `{word}` and
//!   `{word} {key}`.
//!
//! **Which way it errs.** It sees form, not meaning. A template that is wrong costs executions,
//! never findings: operations that the program refuses do nothing, and changes of bytes go on
//! beside these. Nothing is learnt from binary seeds.

use std::collections::{BTreeMap, BTreeSet};

use crate::templates::{Field, Part, Size, Template, Templates};
use crate::tokens::Tokens;

/// How often an operation of a seed is chosen, compared with 1 for one that is only tried now and
/// then.
const SEEN: u32 = 20;

/// Learns what operations look like; words of the seeds become tokens.
///
/// Without seeds, commands are taken for letters or words with at most one parameter.
pub fn learn<S: AsRef<[u8]>>(seeds: &[S], tokens: &mut Tokens) -> Templates {
    let seeds: Vec<&[u8]> = seeds
        .iter()
        .map(AsRef::as_ref)
        .filter(|seed| !seed.is_empty())
        .collect();
    let mut templates = Templates::default();
    if seeds.iter().any(|seed| is_binary(seed)) {
        return templates;
    }
    if let Some(operations) = requests(&seeds) {
        templates.separator = b"\r\n".to_vec();
        templates.operations = operations;
        return templates;
    }
    templates.separator = separator_of(&seeds);
    let mut inputs: Vec<Vec<Line<'_>>> = seeds
        .iter()
        .map(|seed| {
            split(seed, &templates.separator)
                .into_iter()
                .map(Line::new)
                .collect()
        })
        .collect();
    templates.end = common_end(&mut inputs, &templates.separator);
    templates.operations = Groups::of(&inputs, &templates.separator).templates(tokens);
    add_guesses(&mut templates.operations);
    templates
}

/// Whether a seed is no text.
fn is_binary(seed: &[u8]) -> bool {
    let control = |byte: &&u8| **byte < b' ' && !matches!(**byte, b'\n' | b'\r' | b'\t' | 0);
    seed.iter().any(|byte| control(&byte) || *byte == 0x7f) || {
        // Bytes above are text only where they form characters.
        std::str::from_utf8(seed).is_err()
    }
}

/// Pieces between separators. The last one has no separator after it, and does not count if it is
/// empty.
fn split<'a>(seed: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = seed;
    while !rest.is_empty() {
        let end = rest
            .windows(separator.len())
            .position(|window| window == separator);
        let end = end.unwrap_or(rest.len());
        pieces.push(&rest[..end]);
        rest = rest.get(end + separator.len()..).unwrap_or_default();
    }
    pieces
}

/// What separates operations: ends of lines if there are any, else what cuts the seeds into pieces
/// that look alike.
fn separator_of(seeds: &[&[u8]]) -> Vec<u8> {
    let feeds = |seed: &&[u8]| seed.iter().filter(|byte| **byte == b'\n').count();
    let returns = |seed: &&[u8]| seed.windows(2).filter(|two| two == b"\r\n").count();
    let all: usize = seeds.iter().map(feeds).sum();
    if all > 0 {
        let with_return: usize = seeds.iter().map(returns).sum();
        return if with_return == all {
            b"\r\n".to_vec()
        } else {
            b"\n".to_vec()
        };
    }
    let mut best = (0, b"\n".to_vec());
    for candidate in [b";", b"\0", b",", b"|", b"&"] {
        let pieces: Vec<&[u8]> = seeds
            .iter()
            .flat_map(|seed| split(seed, candidate))
            .collect();
        let mut shapes: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for piece in &pieces {
            *shapes.entry(Line::new(piece).shape()).or_default() += 1;
        }
        // Per cent of the pieces that have one like them.
        let alike: usize = shapes.values().filter(|count| **count > 1).sum();
        let score = 100 * alike / pieces.len().max(1);
        // Commands begin with a letter or number; prose has a blank there. Commas separate other
        // things, too.
        let begins = |piece: &&[u8]| piece.first().is_none_or(u8::is_ascii_alphanumeric);
        let are_commands = candidate != b"," && pieces.iter().all(begins);
        let score = if are_commands { score.max(49) } else { score };
        let least = if are_commands { 49 } else { 50 };
        if pieces.len() > seeds.len() && score >= least && score > best.0 {
            best = (score, candidate.to_vec());
        }
    }
    best.1
}

/// Whether a command of this name ends the program, so that what follows it is never read.
fn is_end(word: &[u8]) -> bool {
    const ENDS: &[&str] = &["q", "quit", "exit", "bye", "shutdown", "halt"];
    ENDS.iter()
        .any(|end| end.as_bytes().eq_ignore_ascii_case(word))
}

/// If all seeds end with the same farewell, takes it away from them: it belongs at the end of every
/// input.
fn common_end(inputs: &mut [Vec<Line<'_>>], separator: &[u8]) -> Vec<u8> {
    let last = inputs
        .first()
        .and_then(|lines| lines.last())
        .map(|line| line.text);
    let Some(last) = last.filter(|last| is_end(last)) else {
        return Vec::new();
    };
    if !inputs
        .iter()
        .all(|lines| lines.last().is_some_and(|line| line.text == last))
    {
        return Vec::new();
    }
    for lines in inputs {
        lines.pop();
    }
    [last, separator].concat()
}

/// A line, taken apart.
struct Line<'a> {
    text: &'a [u8],
    pieces: Vec<Piece<'a>>,
}

/// A piece of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    Word(&'a [u8]),
    Number(&'a [u8]),
    /// Blanks and punctuation.
    Between(&'a [u8]),
}

impl<'a> Line<'a> {
    fn new(text: &'a [u8]) -> Line<'a> {
        let in_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < text.len() {
            // A sign belongs to its number, unless something is in front of it: `a-5` is no sum.
            let after_blank = at == 0 || text[at - 1] == b' ';
            let sign = usize::from(after_blank && matches!(text[at], b'-' | b'+'));
            let word = text[at + sign..]
                .iter()
                .take_while(|byte| in_word(**byte))
                .count();
            let whole = &text[at..at + sign + word];
            if word > 0 && crate::numbers::read(whole).is_some() {
                pieces.push(Piece::Number(whole));
                at += whole.len();
            } else if word > 0 && sign == 0 {
                pieces.push(Piece::Word(whole));
                at += word;
            } else {
                let first = text[at + 1..].iter().take_while(|byte| {
                    // The sign of a number that follows a blank begins a piece of its own.
                    !in_word(**byte) && !matches!(**byte, b'-' | b'+')
                });
                let end = at + 1 + first.count();
                pieces.push(Piece::Between(&text[at..end]));
                at = end;
            }
        }
        Line { text, pieces }
    }

    fn command(&self) -> Option<&'a [u8]> {
        match self.pieces.first() {
            Some(Piece::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The same for lines that are the same kind of operation: the command, and what kind of thing
    /// is where.
    fn shape(&self) -> Vec<u8> {
        let mut shape = Vec::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Word(word) if index == 0 => shape.extend(*word),
                // Zero bytes are in no command, so that a word is never taken for a mark.
                Piece::Word(_) => shape.extend(b"\0w"),
                Piece::Number(_) => shape.extend(b"\0n"),
                Piece::Between(bytes) => shape.extend(*bytes),
            }
        }
        shape
    }

    /// The number at its end.
    fn announces(&self) -> Option<usize> {
        match self.pieces.last() {
            Some(Piece::Number(number)) => std::str::from_utf8(number).ok()?.parse().ok(),
            _ => None,
        }
    }
}

/// Lines of one shape.
#[derive(Default)]
struct Group<'a> {
    lines: Vec<&'a Line<'a>>,
    /// The lengths that lines of this shape announced, each followed by a line of this length.
    lengths: Vec<usize>,
    /// Whether there was a line after one of these that was not so long.
    denied: bool,
}

/// Lines by their shape, in the order of their first occurrence.
struct Groups<'a> {
    groups: Vec<Group<'a>>,
    separator: &'a [u8],
}

impl<'a> Groups<'a> {
    fn of(inputs: &'a [Vec<Line<'a>>], separator: &'a [u8]) -> Groups<'a> {
        let mut index: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut groups: Vec<Group<'a>> = Vec::new();
        for lines in inputs {
            for (at, line) in lines.iter().enumerate() {
                let new = index.len();
                let place = *index.entry(line.shape()).or_insert(new);
                if place == groups.len() {
                    groups.push(Group::default());
                }
                let group = &mut groups[place];
                group.lines.push(line);
                match (line.announces(), lines.get(at + 1)) {
                    (Some(length), Some(next)) if next.text.len() == length => {
                        group.lengths.push(length);
                    }
                    _ => group.denied = true,
                }
            }
        }
        // What lines announce is no operation of its own, unless it occurs elsewhere, too.
        let mut data: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for lines in inputs {
            for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
                if groups[index[&line.shape()]].announces() {
                    *data.entry(next.shape()).or_default() += 1;
                }
            }
        }
        for (shape, count) in data {
            let group = &mut groups[index[&shape]];
            if group.lines.len() == count {
                group.lines.clear();
            }
        }
        Groups { groups, separator }
    }

    fn templates(&self, tokens: &mut Tokens) -> Vec<Template> {
        let mut templates = Vec::new();
        for group in self.groups.iter().filter(|group| !group.lines.is_empty()) {
            let parts = group.parts(self.separator, tokens);
            if parts.is_empty() {
                continue;
            }
            let mut template = Template::new(parts);
            let command = group.lines[0].command();
            template.weight = if command.is_some_and(is_end) { 1 } else { SEEN };
            if !templates.contains(&template) {
                templates.push(template);
            }
        }
        templates
    }
}

impl Group<'_> {
    /// Whether its lines end with the length of the next.
    ///
    /// `i 1` before `p` is a coincidence. It is none if lengths differ, or are longer than commands
    /// by chance are.
    fn announces(&self) -> bool {
        let distinct: BTreeSet<&usize> = self.lengths.iter().collect();
        !self.denied && (distinct.len() > 1 || distinct.iter().any(|length| **length >= 3))
    }

    fn parts(&self, separator: &[u8], tokens: &mut Tokens) -> Vec<Part> {
        let first = self.lines[0];
        let last = first.pieces.len().saturating_sub(1);
        let mut parts = Parts::default();
        let mut has_key = false;
        for (at, piece) in first.pieces.iter().enumerate() {
            match piece {
                Piece::Between(bytes) => parts.literal(bytes),
                Piece::Word(word) if at == 0 => {
                    tokens.add_given(word);
                    parts.literal(word);
                }
                Piece::Number(_) if at == last && self.announces() => {
                    parts.field(Field::Len);
                    parts.literal(separator);
                    parts.field(Field::Data(Size::USUAL));
                }
                Piece::Number(_) => {
                    has_key = true;
                    parts.field(Field::Key);
                }
                Piece::Word(word) => {
                    let words = self.lines.iter().filter_map(|line| match line.pieces[at] {
                        Piece::Word(word) => Some(word),
                        _ => None,
                    });
                    let words: BTreeSet<&[u8]> = words.collect();
                    for word in &words {
                        tokens.add_given(word);
                    }
                    // The same in all lines, although something else differs: it belongs to the
                    // command.
                    let lines: BTreeSet<&[u8]> = self.lines.iter().map(|line| line.text).collect();
                    if words.len() == 1 && lines.len() > 1 {
                        parts.literal(word);
                    } else if has_key {
                        parts.field(Field::Word);
                    } else {
                        has_key = true;
                        parts.field(Field::Key);
                    }
                }
            }
        }
        parts.0
    }
}

/// Parts, with neighbouring literals joined.
#[derive(Default)]
struct Parts(Vec<Part>);

impl Parts {
    fn literal(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Part::Literal(before)) => before.extend(bytes),
            _ => self.0.push(Part::Literal(bytes.to_vec())),
        }
    }

    fn field(&mut self, field: Field) {
        self.0.push(Part::Field(field));
    }
}

/// Adds what no seed shows, but other programs of the kind have.
fn add_guesses(operations: &mut Vec<Template>) {
    let key = || vec![Part::Literal(b" ".to_vec()), Part::Field(Field::Key)];
    let nothing_known = operations.is_empty();
    // Commands of one letter, and what follows them.
    let mut letters = BTreeSet::new();
    let mut tails: Vec<Vec<Part>> = vec![key(), Vec::new()];
    let mut commands = 0;
    for template in operations.iter() {
        let Some(Part::Literal(text)) = template.parts.first() else {
            continue;
        };
        let word = text
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        if word == 0 {
            continue;
        }
        commands += 1;
        if word == 1 && text[0].is_ascii_alphabetic() {
            letters.insert(text[0]);
            let mut tail = template.parts[1..].to_vec();
            if text.len() > 1 {
                tail.insert(0, Part::Literal(text[1..].to_vec()));
            }
            if !tails.contains(&tail) {
                tails.push(tail);
            }
        }
    }
    if commands == 0 && !nothing_known {
        return;
    }
    if nothing_known || 2 * letters.len() >= commands {
        let mut others = Vec::new();
        let any = |alphabet: std::ops::RangeInclusive<u8>| {
            letters.iter().any(|letter| alphabet.contains(letter))
        };
        for alphabet in [b'a'..=b'z', b'A'..=b'Z'] {
            if any(alphabet.clone()) || nothing_known && alphabet.contains(&b'a') {
                others.extend(
                    alphabet
                        .filter(|letter| !letters.contains(letter))
                        .map(|l| vec![l]),
                );
            }
        }
        if !others.is_empty() {
            // All of them together are tried a tenth as often as what the seeds have.
            let seen: u32 = operations.iter().map(|template| template.weight).sum();
            let weight = (seen / 10 / tails.len() as u32).max(1);
            for tail in &tails {
                let mut parts = vec![Part::Field(Field::Choice(others.clone()))];
                parts.extend(tail.clone());
                let mut template = Template::new(parts);
                template.weight = weight;
                operations.push(template);
            }
        }
    }
    for tail in [Vec::new(), key()] {
        let mut parts = vec![Part::Field(Field::Word)];
        parts.extend(tail);
        let template = Template::new(parts);
        if !operations.iter().any(|known| known.parts == template.parts) {
            operations.push(template);
        }
    }
}

/// Operations of seeds that are requests of Redis' protocol: `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`.
///
/// The lengths in it are those of words and keys, which lines alone do not show.
fn requests(seeds: &[&[u8]]) -> Option<Vec<Template>> {
    let mut templates: Vec<Template> = Vec::new();
    for seed in seeds {
        let mut rest = *seed;
        while !rest.is_empty() {
            let mut count = prefixed(&mut rest, b'*')?;
            let length = prefixed(&mut rest, b'$')?;
            let command = bulk(&mut rest, length)?;
            let mut parts = Parts::default();
            parts.literal(format!("*{count}\r\n${length}\r\n").as_bytes());
            parts.literal(command);
            let mut field = Field::Key;
            while count > 1 {
                let length = prefixed(&mut rest, b'$')?;
                bulk(&mut rest, length)?;
                parts.literal(b"\r\n$");
                parts.field(Field::Len);
                parts.literal(b"\r\n");
                parts.field(field);
                field = Field::Data(Size::USUAL);
                count -= 1;
            }
            let mut template = Template::new(parts.0);
            template.weight = if is_end(command) { 1 } else { SEEN };
            if !templates.contains(&template) {
                templates.push(template);
            }
        }
    }
    (!templates.is_empty()).then_some(templates)
}

/// `*3\r\n` or `$3\r\n`.
fn prefixed(rest: &mut &[u8], mark: u8) -> Option<usize> {
    let after = rest.strip_prefix(&[mark])?;
    let digits = after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = std::str::from_utf8(&after[..digits]).ok()?.parse().ok()?;
    *rest = after[digits..].strip_prefix(b"\r\n")?;
    Some(number)
}

/// So many bytes and `\r\n`.
fn bulk<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let bytes = rest.get(..length)?;
    *rest = rest[length..].strip_prefix(b"\r\n")?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{SEEN, learn};
    use crate::sequence::Sequence;
    use crate::templates::{Part, Templates};
    use crate::tokens::Tokens;
    use crate::{Below, Mutator, Weights};
    use brownout_random::Random;
    use std::collections::BTreeSet;

    fn learnt(seeds: &[&str]) -> Templates {
        learn(seeds, &mut Tokens::default())
    }

    /// What the seeds show, as it would be written.
    fn shown(templates: &Templates) -> Vec<String> {
        let seen = templates
            .operations
            .iter()
            .filter(|template| template.weight == SEEN);
        seen.map(|template| template.to_string().replacen(&format!("{SEEN}x "), "", 1))
            .collect()
    }

    #[test]
    fn commands_of_one_letter_are_kept_and_others_tried() {
        let templates = learnt(&["i 5\nr 5\nc 5\n", "p\nn 10\nq\n"]);
        assert_eq!(
            shown(&templates),
            ["i {key}", "r {key}", "c {key}", "p", "n {key}"]
        );
        let text = templates.to_string();
        assert!(text.contains("\nq\n"), "{text}");
        assert!(text.contains("{choice:a|b|d|e|f|"), "{text}");
        assert_eq!(text.parse::<Templates>().expect("the same"), templates);

        // The other letters come, with a parameter and without, but seldom.
        let mutator = Mutator::new(templates);
        let mut random = Random::new(4);
        let mut first = [0usize; 256];
        let mut lines = BTreeSet::new();
        for _ in 0..20_000 {
            let below: &mut dyn Below = &mut |n: usize| random.index(n);
            let input = mutator
                .mutate(b"i 5\n", None, &Weights::default(), below)
                .input;
            for line in input
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                first[usize::from(line[0])] += 1;
                lines.insert(line.to_vec());
            }
        }
        for letter in b'a'..=b'z' {
            assert!(first[usize::from(letter)] > 0, "{}", letter as char);
        }
        assert!(first[usize::from(b'r')] > 20 * first[usize::from(b'd')]);
        assert!(lines.contains(&b"d 5"[..]) && lines.contains(&b"s"[..]));
    }

    /// The program shows which of the other letters it knows.
    #[test]
    fn letters_that_were_compared_come_most() {
        let mut mutator = Mutator::new(learnt(&["s 1 5\np\n"]));
        assert!(mutator.tokens.add_letter(b'g'.into()));
        assert!(!mutator.tokens.add_letter(b'g'.into()));
        for other in [u64::from(b'7'), 0, 0x100 + u64::from(b'g')] {
            assert!(!mutator.tokens.add_letter(other));
        }
        let mut random = Random::new(4);
        let mut first = [0usize; 256];
        for _ in 0..4000 {
            let below: &mut dyn Below = &mut |n: usize| random.index(n);
            let probe = mutator.probe(b"s 1 5\n", below).expect("templates");
            for line in probe.split(|byte| *byte == b'\n') {
                first[line.first().map_or(0, |letter| usize::from(*letter))] += 1;
            }
        }
        for letter in (b'a'..=b'z').filter(|letter| !b"gps".contains(letter)) {
            let count = first[usize::from(letter)];
            assert!(count > 0 && first[usize::from(b'g')] > 10 * count);
        }
    }

    #[test]
    fn one_seed_of_one_command_is_enough() {
        for seed in ["i 5\n", "i 5"] {
            let templates = learnt(&[seed]);
            assert_eq!(shown(&templates), ["i {key}"]);
            assert_eq!(templates.separator, b"\n");
        }
    }

    #[test]
    fn words_are_commands_keys_or_words() {
        let mut tokens = Tokens::default();
        let seeds = ["set alice 5 nx\nget alice\nset bob 7 ex\ndel bob\nconfig get max 3\n"];
        let templates = learn(&seeds, &mut tokens);
        assert_eq!(
            shown(&templates),
            [
                "set {key} {key} {word}",
                "get {key}",
                "del {key}",
                "config {key} {word} {key}"
            ]
        );
        assert!(!templates.to_string().contains("{choice"), "no letters");
        assert!(
            templates.to_string().contains("\n{word} {key}\n"),
            "{templates}"
        );
        let words: Vec<&[u8]> = tokens.words().collect();
        assert!(words.contains(&&b"nx"[..]) && words.contains(&&b"alice"[..]));
        // What is the same everywhere belongs to the command.
        assert_eq!(
            shown(&learnt(&["put key 5\nput key 6\n"])),
            ["put key {key}"]
        );
    }

    #[test]
    fn other_separators_are_found() {
        assert_eq!(learnt(&["set a 1\r\nget a\r\n"]).separator, b"\r\n");
        assert_eq!(learnt(&["set a 1\r\nget a\n"]).separator, b"\n");
        let semicolons = learnt(&["i 5;i 6;r 5;p"]);
        assert_eq!(semicolons.separator, b";");
        assert_eq!(shown(&semicolons), ["i {key}", "r {key}", "p"]);
        assert_eq!(learnt(&["set:a=1;commit"]).separator, b";");
        assert_eq!(learnt(&["well; really"]).separator, b"\n");
        assert_eq!(learnt(&["i 5, really"]).separator, b"\n");
        assert_eq!(learnt(&["a=1&b=2&a=3"]).separator, b"&");
    }

    #[test]
    fn lengths_are_recognised_where_they_are_no_coincidence() {
        let templates = learnt(&["set k 0 0 5\r\nhello\r\nget k\r\nset j 0 0 2\r\nhi\r\n"]);
        assert_eq!(
            shown(&templates),
            ["set {key} {key} {key} {len}\\r\\n{data}", "get {key}"]
        );
        // `p` is one byte long, and 1 is its length; that means nothing.
        assert_eq!(shown(&learnt(&["i 1\np\n"])), ["i {key}", "p"]);
        assert_eq!(
            shown(&learnt(&["n 4\nquux\nn 9\np\n"])),
            ["n {key}", "quux", "p"]
        );
    }

    #[test]
    fn requests_of_redis_are_recognised() {
        let seed = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n*1\r\n$4\r\nPING\r\n";
        let templates = learnt(&[seed]);
        assert_eq!(
            shown(&templates),
            [
                "*3\\r\\n$3\\r\\nSET\\r\\n${len}\\r\\n{key}\\r\\n${len}\\r\\n{data}",
                "*1\\r\\n$4\\r\\nPING"
            ]
        );
        let sequence = Sequence::parse(seed.as_bytes(), &templates);
        assert!(
            sequence
                .operations
                .iter()
                .all(|operation| operation.template.is_some())
        );
    }

    #[test]
    fn a_farewell_that_all_seeds_have_stays_at_the_end() {
        let templates = learnt(&["i 5\nq\n", "r 5\nq\n"]);
        assert_eq!(templates.end, b"q\n");
        assert_eq!(shown(&templates), ["i {key}", "r {key}"]);
        assert_eq!(learnt(&["i 5\nq\n", "r 5\n"]).end, b"");
    }

    #[test]
    fn nothing_is_learnt_from_binary_seeds() {
        let templates = learn(&[b"\x01\x02\x03\xff"], &mut Tokens::default());
        assert!(templates.operations.is_empty());
    }

    #[test]
    fn without_seeds_commands_are_guessed() {
        let none: [&str; 0] = [];
        for templates in [learnt(&none), learnt(&[""]), learnt(&["\n"])] {
            let text = templates.to_string();
            assert!(text.contains("{choice:a|b|c|"), "{text}");
            assert!(text.contains("{word} {key}"), "{text}");
        }
    }

    #[test]
    fn signs_and_punctuation_stay_where_they_are() {
        let templates = learnt(&["add -5 user:17 a.b\nmove 1->2\n"]);
        assert_eq!(
            shown(&templates),
            ["add {key} {word}:{key} {word}.{word}", "move {key}->{key}"]
        );
    }

    /// Whatever the seeds are: what is learnt describes every line of them, and can be written out
    /// and read again.
    #[test]
    fn what_is_learnt_describes_its_seeds() {
        let words = [
            "i", "r", "get", "set", "5", "17", "-3", "0x1f", "alice", "x:1", "#", "{a}", "q",
        ];
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let count = 1 + random.below(3);
            let separator = random.pick(&["\n", "\n", "\r\n"]);
            let seeds: Vec<String> = (0..count)
                .map(|_| {
                    let mut text = String::new();
                    for _ in 0..1 + random.below(5) {
                        for index in 0..1 + random.below(4) {
                            text += if index > 0 { " " } else { "" };
                            text += random.pick(&words);
                        }
                        text += separator;
                    }
                    text
                })
                .collect();
            let templates = learn(&seeds, &mut Tokens::default());
            let again: Templates = templates.to_string().parse().expect("readable");
            assert_eq!(again, templates, "seed {seed}\n{templates}");
            for text in &seeds {
                let sequence = Sequence::parse(text.as_bytes(), &templates);
                assert_eq!(sequence.print(&templates), text.as_bytes());
                let raw = sequence
                    .operations
                    .iter()
                    .find(|one| one.template.is_none());
                assert_eq!(raw, None, "seed {seed}: {text:?}\n{templates}");
            }
            let literals = templates
                .operations
                .iter()
                .flat_map(|template| &template.parts);
            assert!(
                literals
                    .clone()
                    .all(|part| !matches!(part, Part::Literal(l) if l.is_empty()))
            );
        }
    }
}
