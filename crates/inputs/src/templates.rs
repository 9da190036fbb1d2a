//! Operation templates: what one operation of a program looks like, and the small file that says
//! it.
//!
//! ```text
//! # One template a line.
//! 3x i {key}                            three times as likely as the others
//! set {key} 0 0 {len}\r\n{data}
//! @insert \x01{u32le:key}{u16be:len}{data}
//! @separator \r\n                       what follows every operation; a line feed, if nothing is said
//! @begin HELLO\r\n                      what every input begins with, byte for byte
//! @end quit\r\n                         and what it ends with
//! ```
//!
//! | field | stands for |
//! |---|---|
//! | `{key}` | what operations have in common: taken from a small pool, so that they meet |
//! | `{value}` | something that is stored: a number or a short word |
//! | `{int}`, `{int:LO-HI}` | a number; values that are made never leave the range |
//! | `{len}` | the length in bytes of the next `{data}`, `{key}`, `{value}` or `{word}` |
//! | `{data}`, `{data:N}`, `{data:LO-HI}` | bytes: up to 64 of them, exactly N, from LO to HI |
//! | `{key:N}`, `{value:N}`, `{word:N}`, `{x:N}` | the same as `{data:N}`; `x` is any one letter |
//! | `{word}` | a word: one that was seen, one of the dictionary, or one that comparisons revealed |
//! | `{byte}` | any byte |
//! | `{choice:a\|b\|c}` | one of these |
//! | `{u8}`, `{u16le}`, … `{u64be}` | a number of fixed width; `:key`, `:len` or `:LO-HI` may follow the name |
//!
//! Escapes are `\n`, `\r`, `\t`, `\0`, `\s` (a blank), `\xNN`, `\\`, `\{`, `\}`, `\|`, `\#` and
//! `\@`. A comment begins with `#` at the start of a line or after a blank. Blanks at the end of a
//! line do not count.
//!
//! `@insert`, `@remove` and `@other` before a template say what it does to its key. Where nothing
//! is said, the first word decides ([`Role::of_word`]); it only matters for how often things are
//! tried.
//!
//! **Guarantee.** Templates that are written out ([`Display`](std::fmt::Display)) and read again
//! are the same templates.

use std::fmt;

/// What the operations of a program look like, and what stands around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Templates {
    /// One a kind of operation.
    pub operations: Vec<Template>,
    /// What every input begins with.
    pub begin: Vec<u8>,
    /// What every input ends with.
    pub end: Vec<u8>,
    /// What follows each operation. Empty for binary protocols whose operations know their length.
    pub separator: Vec<u8>,
}

impl Default for Templates {
    /// No operation yet; each will be a line.
    fn default() -> Templates {
        Templates {
            operations: Vec::new(),
            begin: Vec::new(),
            end: Vec::new(),
            separator: b"\n".to_vec(),
        }
    }
}

/// What one kind of operation looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// How often it is chosen, in proportion to the others.
    pub weight: u32,
    /// What it does to its key, as far as anybody knows.
    pub role: Role,
    /// What it consists of.
    pub parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Always these bytes.
    Literal(Vec<u8>),
    /// Something that differs from one operation to the next.
    Field(Field),
}

/// What an operation does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The key is there afterwards. `populate` uses these.
    Insert,
    /// The key is gone afterwards. `drain` uses these.
    Remove,
    /// Anything else, or not known.
    Other,
}

/// A piece of an operation that differs from one to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// What operations have in common.
    Key,
    /// Something that is stored.
    Value,
    /// A number, within this range if there is one.
    Int(Option<(i64, i64)>),
    /// The length of the next field of variable length.
    Len,
    /// Bytes; how many.
    Data(Size),
    /// A word.
    Word,
    /// Any one byte.
    Byte,
    /// One of these.
    Choice(Vec<Vec<u8>>),
    /// A number of fixed width.
    Fixed(Fixed),
}

/// How many bytes a `{data}` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// At least so many.
    pub least: usize,
    /// At most so many.
    pub most: usize,
}

impl Size {
    /// `{data}`: what is usual.
    pub const USUAL: Size = Size { least: 0, most: 64 };
    /// No data is longer; a template that asks for more is refused.
    pub const MOST: usize = 1 << 16;
}

/// A number of fixed width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// In bytes: 1, 2, 4 or 8.
    pub width: usize,
    /// Whether the byte of highest value comes first.
    pub big_endian: bool,
    /// What the number means.
    pub meaning: Meaning,
}

/// What a number of fixed width means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing particular.
    Any,
    /// It is a key.
    Key,
    /// It is the length of the next field of variable length.
    Len,
    /// It lies within this range.
    Range(u64, u64),
}

impl Fixed {
    /// The largest number that fits.
    pub fn most(self) -> u64 {
        u64::MAX >> (64 - 8 * self.width)
    }

    /// The number that these bytes are, if they are as many as they should be.
    pub fn read(self, bytes: &[u8]) -> Option<u64> {
        if bytes.len() != self.width {
            return None;
        }
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.big_endian {
            bytes.iter().fold(0, join)
        } else {
            bytes.iter().rev().fold(0, join)
        })
    }

    /// The bytes of this number; what does not fit is cut off.
    pub fn write(self, number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes()[..self.width].to_vec();
        if self.big_endian {
            bytes.reverse();
        }
        bytes
    }
}

impl Field {
    /// Whether operations meet by it.
    pub fn is_key(&self) -> bool {
        match self {
            Field::Key => true,
            Field::Fixed(fixed) => fixed.meaning == Meaning::Key,
            _ => false,
        }
    }

    /// Whether it is the length of another.
    pub fn is_len(&self) -> bool {
        match self {
            Field::Len => true,
            Field::Fixed(fixed) => fixed.meaning == Meaning::Len,
            _ => false,
        }
    }

    /// Whether a length in front of it may be its length.
    pub fn has_len(&self) -> bool {
        matches!(
            self,
            Field::Data(_) | Field::Key | Field::Value | Field::Word
        )
    }
}

impl Role {
    /// What a command of this name most probably does.
    ///
    /// It is a guess that costs nothing when it is wrong: operations of every role are tried in
    /// every place, only less often.
    pub fn of_word(word: &[u8]) -> Role {
        const INSERT: &[&str] = &[
            "i", "insert", "ins", "a", "add", "put", "set", "s", "w", "write", "store", "push",
            "lpush", "rpush", "sadd", "zadd", "hset", "append", "enqueue", "enq", "upsert",
            "alloc", "create",
        ];
        const REMOVE: &[&str] = &[
            "r", "remove", "rem", "rm", "d", "del", "delete", "erase", "e", "unset", "drop", "pop",
            "lpop", "rpop", "srem", "zrem", "hdel", "dequeue", "deq", "free", "destroy", "unlink",
        ];
        let is_one_of = |words: &[&str]| {
            words
                .iter()
                .any(|known| known.as_bytes().eq_ignore_ascii_case(word))
        };
        if is_one_of(INSERT) {
            Role::Insert
        } else if is_one_of(REMOVE) {
            Role::Remove
        } else {
            Role::Other
        }
    }
}

impl Template {
    /// With the role that its first word suggests, and a weight of one.
    pub fn new(parts: Vec<Part>) -> Template {
        let role = Template::guess(&parts);
        Template {
            weight: 1,
            role,
            parts,
        }
    }

    /// What the first word of these suggests.
    ///
    /// The first word is the first run of letters in the literal at the start; that of
    /// `*2\r\n$3\r\nGET` is `GET`.
    fn guess(parts: &[Part]) -> Role {
        let Some(Part::Literal(text)) = parts.first() else {
            return Role::Other;
        };
        let start = text
            .iter()
            .position(u8::is_ascii_alphabetic)
            .unwrap_or(text.len());
        let rest = &text[start..];
        let end = rest.iter().position(|byte| !byte.is_ascii_alphabetic());
        Role::of_word(&rest[..end.unwrap_or(rest.len())])
    }

    /// Its fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(field) => Some(field),
            Part::Literal(_) => None,
        })
    }

    /// Whether it has a key.
    pub fn has_key(&self) -> bool {
        self.fields().any(Field::is_key)
    }

    /// How many of its bytes are given: what matches more of them fits better.
    pub(crate) fn certainty(&self) -> usize {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(bytes) => 2 * bytes.len(),
                // A choice is nearly as good as a literal, and a number is better than a word.
                Part::Field(Field::Choice(_) | Field::Int(_)) => 1,
                Part::Field(_) => 0,
            })
            .sum()
    }
}

impl Templates {
    /// Which operations have a key, and this role.
    pub(crate) fn with_role(&self, role: Role) -> Vec<usize> {
        self.indices(|template| template.role == role && template.has_key())
    }

    /// Which operations are so.
    pub(crate) fn indices(&self, wanted: impl Fn(&Template) -> bool) -> Vec<usize> {
        let numbered = self.operations.iter().enumerate();
        numbered
            .filter(|(_, template)| wanted(template))
            .map(|(index, _)| index)
            .collect()
    }
}

/// The weight in front of a template (`3x `), and the rest.
pub(crate) fn weight_of(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = text.split_once('x')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let rest = rest.strip_prefix([' ', '\t'])?;
    Some((number.parse().ok()?, rest))
}

/// Bytes as they are written in a template, where these are special there.
fn escaped(bytes: &[u8], special: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'\\' => out.push_str("\\\\"),
            _ if special.contains(&byte) => {
                out.push('\\');
                out.push(byte as char);
            }
            b' '..=b'~' => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
}

/// Blanks at both ends of a line would not count, nor would what follows an unescaped `#`.
fn line_of(body: String) -> String {
    let body = match body.strip_prefix(' ') {
        Some(rest) => format!("\\s{rest}"),
        None => body,
    };
    match body.strip_suffix(' ') {
        Some(rest) => format!("{rest}\\s"),
        None => body,
    }
}

impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Key => out.write_str("{key}"),
            Field::Value => out.write_str("{value}"),
            Field::Int(None) => out.write_str("{int}"),
            Field::Int(Some((low, high))) => write!(out, "{{int:{low}-{high}}}"),
            Field::Len => out.write_str("{len}"),
            Field::Data(size) if *size == Size::USUAL => out.write_str("{data}"),
            Field::Data(size) if size.least == size.most => write!(out, "{{data:{}}}", size.most),
            Field::Data(size) => write!(out, "{{data:{}-{}}}", size.least, size.most),
            Field::Word => out.write_str("{word}"),
            Field::Byte => out.write_str("{byte}"),
            Field::Choice(choices) => {
                let mut text = String::new();
                for (index, choice) in choices.iter().enumerate() {
                    if index > 0 {
                        text.push('|');
                    }
                    escaped(choice, b"{}|#", &mut text);
                }
                write!(out, "{{choice:{text}}}")
            }
            Field::Fixed(fixed) => {
                write!(out, "{{u{}", 8 * fixed.width)?;
                if fixed.width > 1 {
                    out.write_str(if fixed.big_endian { "be" } else { "le" })?;
                }
                match fixed.meaning {
                    Meaning::Any => out.write_str("}"),
                    Meaning::Key => out.write_str(":key}"),
                    Meaning::Len => out.write_str(":len}"),
                    Meaning::Range(low, high) => write!(out, ":{low}-{high}}}"),
                }
            }
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.role != Template::guess(&self.parts) {
            out.write_str(match self.role {
                Role::Insert => "@insert ",
                Role::Remove => "@remove ",
                Role::Other => "@other ",
            })?;
        }
        let mut body = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(bytes) => escaped(bytes, b"{}#", &mut body),
                Part::Field(field) => body.push_str(&field.to_string()),
            }
        }
        let mut body = line_of(body);
        if body.starts_with('@') {
            body.insert(0, '\\');
        }
        // `1x` also keeps a literal such as `3x ` from being taken for a weight.
        if self.weight != 1 || weight_of(&body).is_some() {
            write!(out, "{}x ", self.weight)?;
        }
        out.write_str(&body)
    }
}

impl fmt::Display for Templates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut directive = |name: &str, bytes: &[u8]| {
            let mut text = String::new();
            escaped(bytes, b"{}#", &mut text);
            writeln!(out, "{}", format!("@{name} {}", line_of(text)).trim_end())
        };
        if self.separator != b"\n" {
            directive("separator", &self.separator)?;
        }
        if !self.begin.is_empty() {
            directive("begin", &self.begin)?;
        }
        if !self.end.is_empty() {
            directive("end", &self.end)?;
        }
        for template in &self.operations {
            writeln!(out, "{template}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
