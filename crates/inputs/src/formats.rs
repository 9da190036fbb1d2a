//! Formats of `scanf`, in which programs say what their commands look like.
//!
//! A program that reads a line by `sscanf(line, "rename %s %s", …)` gives both as the first two
//! arguments of a call, so a format is one side of a comparison like any other. It is no word to
//! put into an input, but a template for one.

use crate::templates::{Field, Part, Template};

/// What is given, and what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Given(&'a [u8]),
    Blank,
    Number,
    Word,
}

/// A format that begins with a given word, and reads something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format<'a>(Vec<Piece<'a>>);

impl<'a> Format<'a> {
    /// Up to the first zero byte. What is noted of long strings ends in the middle; so a conversion
    /// that has no end does not count. `None` if it is no such format.
    pub fn parse(bytes: &'a [u8]) -> Option<Format<'a>> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let mut rest = &bytes[..end.unwrap_or(bytes.len())];
        if !rest.first()?.is_ascii_alphanumeric() {
            return None;
        }
        let mut pieces = Vec::new();
        while let Some(first) = rest.first() {
            let piece = match first {
                b'%' => {
                    let Some((piece, len)) = conversion(rest) else {
                        // Something else that has a percent sign, unless it is cut off.
                        let is_cut = rest.len() < 8 && end.is_none();
                        if is_cut {
                            break;
                        }
                        return None;
                    };
                    rest = &rest[len..];
                    piece
                }
                _ => {
                    let is_blank = first.is_ascii_whitespace();
                    let same =
                        |byte: &&u8| **byte != b'%' && byte.is_ascii_whitespace() == is_blank;
                    let len = rest.iter().take_while(same).count();
                    let given = &rest[..len];
                    rest = &rest[len..];
                    Some(if is_blank {
                        Piece::Blank
                    } else {
                        Piece::Given(given)
                    })
                }
            };
            pieces.extend(piece);
        }
        // A blank at the end reads what follows; nothing need be there.
        if pieces.last() == Some(&Piece::Blank) {
            pieces.pop();
        }
        let reads = |piece: &Piece<'_>| matches!(piece, Piece::Number | Piece::Word);
        pieces.iter().any(reads).then_some(Format(pieces))
    }

    /// A line that it reads, with these words as far as they go, and then the last of them.
    pub fn filled(&self, words: &[&[u8]]) -> Vec<u8> {
        let mut words = words.iter().copied();
        let mut last: &[u8] = b"1";
        let mut made = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Given(bytes) => made.extend_from_slice(bytes),
                Piece::Blank => made.push(b' '),
                Piece::Number | Piece::Word => {
                    last = words.next().unwrap_or(last);
                    let is_number = last.iter().all(u8::is_ascii_digit);
                    let fits = is_number || *piece == Piece::Word;
                    made.extend_from_slice(if fits { last } else { b"1" });
                }
            }
        }
        made
    }

    /// A template for such lines.
    pub fn template(&self) -> Template {
        let mut parts: Vec<Part> = Vec::new();
        for piece in &self.0 {
            let given = match piece {
                Piece::Given(bytes) => *bytes,
                Piece::Blank => b" ",
                Piece::Number | Piece::Word => {
                    parts.push(Part::Field(Field::Key));
                    continue;
                }
            };
            match parts.last_mut() {
                Some(Part::Literal(before)) => before.extend_from_slice(given),
                _ => parts.push(Part::Literal(given.to_vec())),
            }
        }
        Template::new(parts)
    }
}

/// What begins with a percent sign: what it reads, if that is anything, and its length.
fn conversion(bytes: &[u8]) -> Option<(Option<Piece<'static>>, usize)> {
    let mut at = 1;
    let skip = |at: &mut usize, what: &dyn Fn(u8) -> bool| {
        while bytes.get(*at).is_some_and(|byte| what(*byte)) {
            *at += 1;
        }
    };
    skip(&mut at, &|byte| byte == b'*');
    skip(&mut at, &|byte| byte.is_ascii_digit());
    skip(&mut at, &|byte| b"hlLqjztm".contains(&byte));
    let piece = match bytes.get(at)? {
        b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'f' | b'e' | b'g' | b'a' => Some(Piece::Number),
        b's' | b'c' => Some(Piece::Word),
        b'[' => {
            // A bracket that comes first is one of the characters.
            let from = at + 1 + usize::from(bytes.get(at + 1) == Some(&b'^')) + 1;
            at = from + bytes.get(from..)?.iter().position(|byte| *byte == b']')?;
            Some(Piece::Word)
        }
        b'%' => Some(Piece::Given(b"%")),
        b'n' => None,
        _ => return None,
    };
    Some((piece, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Templates;

    fn template(format: &[u8]) -> Option<String> {
        let templates = Templates {
            operations: vec![Format::parse(format)?.template()],
            ..Templates::default()
        };
        Some(templates.to_string().trim().to_owned())
    }

    #[test]
    fn formats_become_templates() {
        let all: [(&[u8], &str); 7] = [
            (b"rename %23s %23s\0rest", "rename {key} {key}"),
            (b"put %lu %hhu\n", "put {key} {key}"),
            (b"set:%c=%u", "set:{key}={key}"),
            (b"q %*d %[^\n]", "q {key} {key}"),
            (b"q %[]x] 5%%%n", "q {key} 5%"),
            // Cut off.
            (b"transfer %31s %31s %ll", "transfer {key} {key}"),
            (b"i %ld\0", "i {key}"),
        ];
        for (format, wanted) in all {
            assert_eq!(template(format).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn other_strings_are_no_formats() {
        let all: [&[u8]; 7] = [
            b"",
            b"\0",
            b"compact",
            b"%s %d",
            b"100% of it\0",
            b" x %d",
            b"5%",
        ];
        for other in all {
            assert_eq!(template(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_line_is_made_of_the_words_that_are_there() {
        let format = Format::parse(b"rename %s %s").expect("it is one");
        assert_eq!(format.filled(&[b"a", b"b", b"c"]), b"rename a b");
        assert_eq!(format.filled(&[b"a"]), b"rename a a");
        assert_eq!(format.filled(&[]), b"rename 1 1");
        let format = Format::parse(b"put %s %d").expect("it is one");
        assert_eq!(format.filled(&[b"a", b"x"]), b"put a 1");
    }
}
