use super::{MAX_OPERATIONS, Operation, Sequence};
use crate::Below;
use crate::fields::Source;
use crate::keys::Keys;
use crate::templates::Templates;
use crate::templates::tests::any_templates;
use crate::tokens::Tokens;
use brownout_random::Random;

fn templates(text: &str) -> Templates {
    text.parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Template (or none) and fields of each operation.
fn parts(input: &[u8], templates: &Templates) -> Vec<(Option<usize>, Vec<String>)> {
    let sequence = Sequence::parse(input, templates);
    assert_eq!(
        sequence.print(templates),
        input,
        "not the same: {sequence:?}"
    );
    let text = |bytes: &Vec<u8>| bytes.escape_ascii().to_string();
    let part = |operation: &Operation| {
        (
            operation.template,
            operation.fields.iter().map(text).collect(),
        )
    };
    sequence.operations.iter().map(part).collect()
}

fn expect(template: impl Into<Option<usize>>, fields: &[&str]) -> (Option<usize>, Vec<String>) {
    (
        template.into(),
        fields.iter().map(|field| field.to_string()).collect(),
    )
}

#[test]
fn lines_become_operations_and_the_rest_stays_raw() {
    let templates = templates("i {key}\nr {key}\np\n{word} {key} {value}");
    assert_eq!(
        parts(b"i 5\nr 007\nx\n\np\nset a b\ni 9", &templates),
        [
            expect(0, &["5"]),
            expect(1, &["007"]),
            expect(None, &["x"]),
            expect(None, &[""]),
            expect(2, &[]),
            expect(3, &["set", "a", "b"]),
            expect(0, &["9"]),
        ]
    );
    assert_eq!(parts(b"", &templates), []);
}

#[test]
fn what_has_a_length_may_hold_the_separator() {
    let templates = templates("@separator \\r\\n\nset {key} {len}\\r\\n{data}\nget {key}");
    assert_eq!(
        parts(
            b"set k 6\r\nab\r\ncd\r\nget k\r\nset k 50\r\nab\r\nget k\r\n",
            &templates
        ),
        [
            expect(0, &["k", "6", "ab\\r\\ncd"]),
            expect(1, &["k"]),
            // The length is wrong: the line is taken instead.
            expect(0, &["k", "50", "ab"]),
            expect(1, &["k"]),
        ]
    );
}

#[test]
fn lengths_may_be_those_of_keys() {
    let text = "@separator \\r\\n\n\
                *3\\r\\n$3\\r\\nSET\\r\\n${len}\\r\\n{key}\\r\\n${len}\\r\\n{data}";
    let templates = templates(text);
    let input = b"*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$1\r\nx\r\n";
    assert_eq!(
        parts(input, &templates),
        [expect(0, &["3", "a b", "1", "x"])]
    );
    let mut sequence = Sequence::parse(input, &templates);
    let operation = &mut sequence.operations[0];
    operation.fields[1] = b"longer".to_vec();
    operation.fields[3] = b"".to_vec();
    operation.set_lengths(&templates);
    assert_eq!(
        sequence.print(&templates),
        b"*3\r\n$3\r\nSET\r\n$6\r\nlonger\r\n$0\r\n\r\n"
    );
}

#[test]
fn binary_operations_follow_each_other_without_a_separator() {
    let templates = templates("@separator\n\\x01{u16le:key}\n\\x02{u8:len}{data}");
    assert_eq!(
        parts(b"\x01\x05\x00\x02\x03abc\xff\xff\x01\x06\x00", &templates),
        [
            expect(0, &["\\x05\\x00"]),
            expect(1, &["\\x03", "abc"]),
            expect(None, &["\\xff\\xff"]),
            expect(0, &["\\x06\\x00"]),
        ]
    );
}

#[test]
fn the_template_with_more_given_bytes_is_taken() {
    let templates = templates("{word} {word}\n{choice:set|setx} {key}\nset {key}\nset {int}");
    assert_eq!(
        parts(b"set 5\nset x\nsetx 5\nget 5\n", &templates),
        [
            expect(3, &["5"]),
            expect(2, &["x"]),
            expect(1, &["setx", "5"]),
            expect(0, &["get", "5"]),
        ]
    );
}

#[test]
fn ranges_say_what_fits() {
    let templates = templates("n {int:1-50}\nm {int}");
    assert_eq!(
        parts(b"n 50\nn 51\nm -0x10\n", &templates),
        [
            expect(0, &["50"]),
            expect(None, &["n 51"]),
            expect(1, &["-0x10"])
        ]
    );
}

#[test]
fn head_and_tail_are_recognised_where_they_are() {
    let templates = templates("i {key}\n@begin HI\\n\n@end q\\n");
    let whole = Sequence::parse(b"HI\ni 5\nq\n", &templates);
    assert!(whole.begins && whole.ends);
    assert_eq!(whole.operations.len(), 1);
    for part in [
        &b"HI\ni 5\n"[..],
        b"i 5\nq\n",
        b"HI\nq\n",
        b"HI\n",
        b"q\n",
        b"Hq\n",
        b"",
    ] {
        assert_eq!(Sequence::parse(part, &templates).print(&templates), part);
    }
    let mut bare = Sequence::parse(b"i 5", &templates);
    bare.tidy(&templates);
    assert_eq!(bare.print(&templates), b"HI\ni 5\nq\n");
}

#[test]
fn very_long_inputs_keep_their_end_together() {
    let templates = templates("i {key}");
    let input = b"i 5\n".repeat(3 * MAX_OPERATIONS);
    let sequence = Sequence::parse(&input, &templates);
    assert_eq!(sequence.operations.len(), MAX_OPERATIONS);
    assert_eq!(sequence.print(&templates), input);
}

#[test]
fn templates_that_fit_in_very_many_ways_end() {
    let templates = templates("{word}{word}{word}{word}{word}{word}{word}{word}!");
    let input = b"a".repeat(2000);
    assert_eq!(Sequence::parse(&input, &templates).print(&templates), input);
}

/// Whatever the templates and whatever the input: operations of the templates, noise, and pieces of
/// both.
#[test]
fn what_is_taken_apart_and_printed_is_the_same() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut templates = any_templates(&mut random);
        if random.percent(20) {
            templates.separator.clear();
        }
        let keys = Keys::default();
        let tokens = Tokens::default();
        let source = Source {
            templates: &templates,
            tokens: &tokens,
            keys: &keys,
        };
        let mut input = Vec::new();
        if random.percent(50) {
            input.extend(&templates.begin);
        }
        for _ in 0..random.below(12) {
            if random.percent(70) {
                let which = random.index(templates.operations.len());
                let below: &mut dyn Below = &mut |n: usize| random.index(n);
                source.operation(which, below).print(&templates, &mut input);
            } else {
                let mut noise = vec![0; random.index(9)];
                random.fill(&mut noise);
                input.extend(noise);
            }
            if random.percent(20) {
                let length = random.index(input.len() + 1);
                input.truncate(length);
            }
        }
        let sequence = Sequence::parse(&input, &templates);
        assert_eq!(
            sequence.print(&templates).escape_ascii().to_string(),
            input.escape_ascii().to_string(),
            "seed {seed}\n{templates}\n{sequence:?}"
        );
    }
}
