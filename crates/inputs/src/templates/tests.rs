use super::{Field, Fixed, Meaning, Part, Role, Size, Template, Templates};
use brownout_random::Random;

fn read(text: &str) -> Templates {
    text.parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn error(text: &str) -> String {
    match text.parse::<Templates>() {
        Ok(templates) => panic!("{text:?} was taken for {templates:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_is_read() {
    let templates = read(
        "# mapcli\n\
         3x i {key}   # insert\n\
         \n\
         r {key}\n\
         set {key} 0 0 {len}\\r\\n{data}\n\
         n {int:1-50}\n\
         {choice:a|b\\|c} {data:8}\\x00\\\\ \\#\n\
         @separator \\r\\n\n\
         @begin HELLO\\n\n\
         @begin again\\n\n\
         @end q\\n\n",
    );
    let literal = |text: &str| Part::Literal(text.as_bytes().to_vec());
    let operations = &templates.operations;
    assert_eq!(operations.len(), 5);
    assert_eq!(operations[0].weight, 3);
    assert_eq!(
        operations[0].parts,
        [literal("i "), Part::Field(Field::Key)]
    );
    assert_eq!(
        operations[1].parts,
        [literal("r "), Part::Field(Field::Key)]
    );
    assert_eq!(
        operations[2].parts,
        [
            literal("set "),
            Part::Field(Field::Key),
            literal(" 0 0 "),
            Part::Field(Field::Len),
            literal("\r\n"),
            Part::Field(Field::Data(Size::USUAL)),
        ]
    );
    assert_eq!(
        operations[3].parts[1],
        Part::Field(Field::Int(Some((1, 50))))
    );
    let choice = Field::Choice(vec![b"a".to_vec(), b"b|c".to_vec()]);
    assert_eq!(operations[4].parts[0], Part::Field(choice));
    assert_eq!(operations[4].parts[3], literal("\0\\ #"));
    assert_eq!(templates.separator, b"\r\n");
    assert_eq!(templates.begin, b"HELLO\nagain\n");
    assert_eq!(templates.end, b"q\n");
}

#[test]
fn binary_operations_have_numbers_of_fixed_width() {
    let templates = read("@separator\n\\x01{u32le:key}{u16be:len}{data}\n\\x02{u8:3-9}{u64be}\n");
    assert_eq!(templates.separator, b"");
    let fields: Vec<&Field> = templates.operations[0].fields().collect();
    let key = Fixed {
        width: 4,
        big_endian: false,
        meaning: Meaning::Key,
    };
    assert_eq!(fields[0], &Field::Fixed(key));
    assert_eq!(key.write(0x0102_0304), [4, 3, 2, 1]);
    assert_eq!(key.read(&[4, 3, 2, 1]), Some(0x0102_0304));
    let len = Fixed {
        width: 2,
        big_endian: true,
        meaning: Meaning::Len,
    };
    assert_eq!(fields[1], &Field::Fixed(len));
    assert_eq!(len.write(0x12345), [0x23, 0x45]);
    assert_eq!(len.read(&[0x23, 0x45]), Some(0x2345));
    assert_eq!(len.read(&[1]), None);
    let one = Fixed {
        width: 1,
        big_endian: false,
        meaning: Meaning::Range(3, 9),
    };
    assert_eq!(
        templates.operations[1].fields().next(),
        Some(&Field::Fixed(one))
    );
}

#[test]
fn roles_follow_the_first_word_unless_they_are_given() {
    let roles = |text: &str| -> Vec<Role> {
        read(text)
            .operations
            .iter()
            .map(|template| template.role)
            .collect()
    };
    assert_eq!(
        roles("i {key}\nDEL {key}\nget {key}\n{key}"),
        [Role::Insert, Role::Remove, Role::Other, Role::Other]
    );
    assert_eq!(roles("*3\\r\\n$3\\r\\nSET\\r\\n{key}"), [Role::Insert]);
    assert_eq!(
        roles("@remove 2x i {key}\n@insert x {key}\n@other r {key}"),
        [Role::Remove, Role::Insert, Role::Other]
    );
}

#[test]
fn errors_say_where_and_what_to_write() {
    let cases = [
        (
            "i {kye}",
            "line 1, column 3: no field is called `{kye}`; did you mean `{key}`?",
        ),
        (
            "i {key}\n  r {u32}",
            "line 2, column 5: no field is called `{u32}`; say which byte",
        ),
        ("i {key", "line 1, column 3: this brace is never closed"),
        ("i key}", "line 1, column 6: a closing brace without"),
        (
            "i \\q",
            "line 1, column 3: `\\q` is no escape; escapes are \\n",
        ),
        (
            "i \\x4",
            "line 1, column 3: `\\x` needs two hexadecimal digits",
        ),
        ("i \\", "line 1, column 3: a backslash at the end"),
        (
            "n {int:9-1}",
            "line 1, column 8: `{int:…}` does not say a range; write `{int:1-100}`",
        ),
        ("n {int:x}", "line 1, column 8: "),
        (
            "n {key:few}",
            "line 1, column 8: `{key:…}` does not say how many bytes; write `{key}` or `{key:8}`",
        ),
        (
            "n {byte:3}",
            "line 1, column 8: `{byte}` takes nothing after its name",
        ),
        ("n {u8:0-256}", "line 1, column 7: `{u8}` holds at most 255"),
        (
            "n {u8:keys}",
            "line 1, column 7: `{u8:…}` does not say a range",
        ),
        (
            "n {data:100000}",
            "line 1, column 9: data has at most 65536 bytes",
        ),
        ("n {choice}", "line 1, column 3: a choice needs something"),
        (
            "set {len} {int}",
            "line 1, column 5: this length is not followed",
        ),
        (
            "set {len} {len} {data}",
            "line 1, column 5: this length is not followed",
        ),
        ("0x i {key}", "line 1, column 1: a weight of 0"),
        ("3x  # nothing", "line 1, column 1: there is a weight"),
        (
            "i {key}\n@seperator ;",
            "line 2, column 1: `@seperator` is no directive; did you mean",
        ),
        ("@insert", "line 1, column 1: `@insert` needs a template"),
        (
            "@end {key}",
            "line 1, column 6: an end is fixed: it has no fields",
        ),
        (
            "i {key}\n@separator",
            "line 1, column 1: nothing says where this operation ends",
        ),
        (
            "# nothing",
            "line 1, column 1: there is no template in this file",
        ),
        ("", "line 1, column 1: there is no template in this file"),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(
            error.starts_with(expected),
            "{text:?}\n  {error}\n  {expected}"
        );
    }
}

/// Random bytes, among which those that are special are frequent.
fn bytes(random: &mut Random, least: u64) -> Vec<u8> {
    let special = b" \t\n\r\\{}|#@x37\0\xff\"";
    let length = least + random.below(5);
    (0..length)
        .map(|_| match random.percent(60) {
            true => random.pick(special),
            false => random.below(256) as u8,
        })
        .collect()
}

/// A template of any kind, with data last so that it may follow a length.
pub(crate) fn any_template(random: &mut Random) -> Template {
    let mut parts = Vec::new();
    for _ in 0..1 + random.below(4) {
        if !matches!(parts.last(), Some(Part::Literal(_))) && random.percent(60) {
            parts.push(Part::Literal(bytes(random, 1)));
            continue;
        }
        let fixed = |random: &mut Random, meaning| {
            let width = random.pick(&[1, 2, 4, 8]);
            // One byte has no order; it is read as little-endian.
            Field::Fixed(Fixed {
                width,
                big_endian: width > 1 && random.percent(50),
                meaning,
            })
        };
        let field = match random.below(12) {
            0 | 1 => Field::Key,
            2 => Field::Value,
            3 => Field::Int(None),
            4 => Field::Int(Some((-5, random.between(-5, 500)))),
            5 => Field::Data(Size { least: 3, most: 3 }),
            6 => Field::Data(Size { least: 2, most: 9 }),
            7 => Field::Word,
            8 => Field::Byte,
            9 => {
                let choices = 1 + random.below(3);
                Field::Choice((0..choices).map(|_| bytes(random, 1)).collect())
            }
            10 => fixed(random, Meaning::Any),
            _ => {
                let meaning = random.pick(&[Meaning::Key, Meaning::Range(3, 200)]);
                fixed(random, meaning)
            }
        };
        parts.push(Part::Field(field));
    }
    if random.percent(30) {
        parts.push(Part::Field(Field::Len));
        parts.push(Part::Literal(bytes(random, 1)));
        parts.push(Part::Field(Field::Data(Size::USUAL)));
    }
    let mut template = Template::new(parts);
    template.weight = random.pick(&[1, 1, 7]);
    template.role = random.pick(&[template.role, Role::Insert, Role::Remove, Role::Other]);
    template
}

pub(crate) fn any_templates(random: &mut Random) -> Templates {
    let mut templates = Templates::default();
    let count = 1 + random.below(4);
    templates.operations = (0..count).map(|_| any_template(random)).collect();
    let separators: &[&[u8]] = &[b"\n", b"\r\n", b";", b" ", b"#", b"ab"];
    templates.separator = random.pick(separators).to_vec();
    if random.percent(30) {
        templates.begin = bytes(random, 1);
        templates.end = bytes(random, 0);
    }
    templates
}

#[test]
fn what_is_written_out_is_read_as_the_same() {
    for seed in 0..3000 {
        let templates = any_templates(&mut Random::new(seed));
        let text = templates.to_string();
        let again: Templates = text
            .parse()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(again, templates, "seed {seed}\n{text}");
    }
}
