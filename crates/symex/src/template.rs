//! A first input made of a file of operations, and which of its bytes are solved for.
//!
//! The file is that of `fuzz` ([`brownout_inputs::templates`]). Each of its operations comes once,
//! in their order, as often as its weight says. Fields are solved for, and what stands between them
//! is fixed; a length is that of the field behind it, and is fixed, too. Fields do not grow: one
//! that has no size gets one.

use std::ops::Range;

use brownout_inputs::Templates;
use brownout_inputs::templates::{Field, Meaning, Part};

/// So many bytes has a field of which nobody says it.
const USUAL: usize = 8;
/// So many digits has a number of which nobody says it.
const DIGITS: usize = 3;

/// The input, and what of it is solved for.
pub fn first(templates: &Templates) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut input = templates.begin.clone();
    let mut free: Vec<Range<usize>> = Vec::new();
    let operations = templates.operations.iter();
    for operation in operations.flat_map(|o| std::iter::repeat_n(o, o.weight as usize)) {
        for (at, part) in operation.parts.iter().enumerate() {
            let field = match part {
                Part::Literal(bytes) => {
                    input.extend(bytes);
                    continue;
                }
                Part::Field(field) => field,
            };
            if field.is_len() {
                let behind = operation.parts[at + 1..]
                    .iter()
                    .find_map(|part| match part {
                        Part::Field(field) if field.has_len() => Some(content(field).len()),
                        _ => None,
                    });
                let len = behind.unwrap_or(0) as u64;
                match field {
                    Field::Fixed(fixed) => input.extend(fixed.write(len)),
                    _ => input.extend(len.to_string().bytes()),
                }
                continue;
            }
            let from = input.len();
            input.extend(content(field));
            if input.len() > from {
                free.push(from..input.len());
            }
        }
        input.extend(&templates.separator);
    }
    input.extend(&templates.end);
    (input, free)
}

/// What a field holds to begin with.
fn content(field: &Field) -> Vec<u8> {
    const LETTER: u8 = b'a';
    match field {
        Field::Key | Field::Value | Field::Word => vec![LETTER; USUAL],
        Field::Data(size) => vec![LETTER; USUAL.clamp(size.least, size.most)],
        Field::Byte => vec![LETTER],
        Field::Int(None) => vec![b'1'; DIGITS],
        Field::Int(Some((low, high))) => {
            let digits = high.to_string().len().max(low.to_string().len());
            format!("{low:0digits$}").into_bytes()
        }
        Field::Choice(choices) => choices.first().cloned().unwrap_or_default(),
        Field::Fixed(fixed) => fixed.write(match fixed.meaning {
            Meaning::Range(low, _) => low,
            Meaning::Any | Meaning::Key | Meaning::Len => 0,
        }),
        Field::Len => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_solved_for_and_the_rest_is_fixed() {
        let text = "@begin hi\\n\n@separator \\r\\n\nset {key:4} 0 {len}\\r\\n{data:2}\n2x get {int:1-20}\n@end q";
        let (input, free) = first(&text.parse().expect("templates"));
        assert_eq!(
            input.escape_ascii().to_string(),
            "hi\\nset aaaa 0 2\\r\\naa\\r\\nget 01\\r\\nget 01\\r\\nq"
        );
        let parts: Vec<&[u8]> = free.iter().map(|range| &input[range.clone()]).collect();
        assert_eq!(parts, [&b"aaaa"[..], b"aa", b"01", b"01"]);
    }

    #[test]
    fn numbers_of_fixed_width_are_bytes() {
        let (input, free) = first(
            &"@separator \\n\n\\x01{u16be:len}{data:3}{u32le:7-9}"
                .parse()
                .expect("templates"),
        );
        assert_eq!(input, b"\x01\0\x03aaa\x07\0\0\0\n");
        assert_eq!(free, [3..6, 6..10]);
    }
}
