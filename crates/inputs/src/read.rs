//! Reads the file of templates, and says where and why it cannot.

use crate::templates::{Field, Fixed, Meaning, Part, Role, Size, Template, Templates, weight_of};
use std::fmt;
use std::str::FromStr;

/// Why a file of templates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// From one.
    pub line: usize,
    /// From one, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )?;
        match &self.suggestion {
            Some(suggestion) => write!(out, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TemplateError {}

/// What may follow an `@`.
const DIRECTIVES: &[&str] = &["begin", "end", "separator", "insert", "remove", "other"];
/// What may stand between braces, for suggestions.
const FIELDS: &[&str] = &[
    "key", "value", "int", "len", "data", "word", "byte", "choice", "u8", "u16le", "u16be",
    "u32le", "u32be", "u64le", "u64be",
];

impl FromStr for Templates {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Templates, TemplateError> {
        let mut templates = Templates::default();
        // Where each template stands, for what only the whole file shows.
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            Line::new(line, index + 1).read_into(&mut templates)?;
            lines.resize(templates.operations.len(), index + 1);
        }
        if templates.operations.is_empty() {
            return Err(TemplateError {
                line: text.lines().count().max(1),
                column: 1,
                message: "there is no template in this file".to_string(),
                suggestion: Some("write one operation a line, such as `i {key}`".to_string()),
            });
        }
        if templates.separator.is_empty() {
            for (template, line) in templates.operations.iter().zip(lines) {
                if ends_anywhere(template) {
                    return Err(TemplateError {
                        line,
                        column: 1,
                        message: "nothing says where this operation ends".to_string(),
                        suggestion: Some(
                            "put `{len}` before its last field, or set a `@separator`".to_string(),
                        ),
                    });
                }
            }
        }
        Ok(templates)
    }
}

/// Whether the last part is as long as it likes.
fn ends_anywhere(template: &Template) -> bool {
    let mut announced = false;
    let mut open = false;
    for part in &template.parts {
        open = false;
        if let Part::Field(field) = part {
            if field.is_len() {
                announced = true;
            }
            if field.has_len() {
                let exact = matches!(field, Field::Data(size) if size.least == size.most);
                open = !announced && !exact;
                announced = false;
            }
            open |= matches!(field, Field::Int(_) | Field::Len);
        }
    }
    open
}

/// One line, read from left to right.
struct Line {
    characters: Vec<char>,
    at: usize,
    number: usize,
}

impl Line {
    fn new(text: &str, number: usize) -> Line {
        Line {
            characters: text.chars().collect(),
            at: 0,
            number,
        }
    }

    fn error(&self, at: usize, message: impl Into<String>) -> TemplateError {
        TemplateError {
            line: self.number,
            column: at + 1,
            message: message.into(),
            suggestion: None,
        }
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
    }

    fn rest(&self) -> String {
        self.characters[self.at..].iter().collect()
    }

    fn read_into(mut self, templates: &mut Templates) -> Result<(), TemplateError> {
        self.skip_blanks();
        match self.peek() {
            None | Some('#') => return Ok(()),
            Some('@') => {}
            Some(_) => {
                templates.operations.push(self.template(None)?);
                return Ok(());
            }
        }
        let start = self.at;
        self.at += 1;
        let mut name = String::new();
        while let Some(letter) = self.peek().filter(char::is_ascii_alphanumeric) {
            name.push(letter);
            self.at += 1;
        }
        self.skip_blanks();
        let role = match name.as_str() {
            "separator" => {
                templates.separator = self.literal("a separator")?;
                return Ok(());
            }
            "begin" => {
                templates.begin.extend(self.literal("a beginning")?);
                return Ok(());
            }
            "end" => {
                templates.end.extend(self.literal("an end")?);
                return Ok(());
            }
            "insert" => Role::Insert,
            "remove" => Role::Remove,
            "other" => Role::Other,
            _ => {
                let mut error = self.error(start, format!("`@{name}` is no directive"));
                error.suggestion = Some(match nearest(&name, DIRECTIVES) {
                    Some(near) => format!("did you mean `@{near}`?"),
                    None => "an operation that begins with `@` is written `\\@`".to_string(),
                });
                return Err(error);
            }
        };
        if self.peek().is_none() {
            let mut error = self.error(start, format!("`@{name}` needs a template"));
            error.suggestion = Some(format!("write `@{name} i {{key}}`, for instance"));
            return Err(error);
        }
        templates.operations.push(self.template(Some(role))?);
        Ok(())
    }

    /// The rest of the line, which must not have fields.
    fn literal(&mut self, what: &str) -> Result<Vec<u8>, TemplateError> {
        let start = self.at;
        let mut bytes = Vec::new();
        for part in self.parts()? {
            match part {
                Part::Literal(literal) => bytes.extend(literal),
                Part::Field(_) => {
                    let mut error = self.error(start, format!("{what} is fixed: it has no fields"));
                    error.suggestion = Some("a brace is written `\\{`".to_string());
                    return Err(error);
                }
            }
        }
        Ok(bytes)
    }

    /// The rest of the line as a template.
    fn template(&mut self, role: Option<Role>) -> Result<Template, TemplateError> {
        let start = self.at;
        let mut weight = 1;
        if let Some((number, rest)) = weight_of(&self.rest()) {
            weight = number;
            self.at = self.characters.len() - rest.chars().count();
            self.skip_blanks();
            if weight == 0 {
                let mut error = self.error(start, "a weight of 0 would never be chosen");
                error.suggestion = Some("remove the line, or put `#` before it".to_string());
                return Err(error);
            }
        }
        let parts = self.parts()?;
        if parts.is_empty() {
            return Err(self.error(start, "there is a weight, but no template after it"));
        }
        let mut template = Template::new(parts);
        template.weight = weight;
        template.role = role.unwrap_or(template.role);
        Ok(template)
    }

    /// Literals and fields up to the end of the line or a comment.
    fn parts(&mut self) -> Result<Vec<Part>, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        // How many of the last bytes of `literal` are blanks that would not count at the end.
        let mut blanks = 0;
        let mut len: Option<usize> = None;
        let mut comment_may_begin = true;
        while let Some(character) = self.peek() {
            let at = self.at;
            match character {
                '#' if comment_may_begin => break,
                '{' => {
                    let field = self.field()?;
                    if field.is_len()
                        && let Some(earlier) = len.replace(at)
                    {
                        return Err(self.no_data(earlier));
                    }
                    if field.has_len() {
                        len = None;
                    }
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Field(field));
                    blanks = 0;
                    comment_may_begin = false;
                    continue;
                }
                '}' => {
                    let mut error = self.error(at, "a closing brace without an opening one");
                    error.suggestion = Some("a brace that is meant is written `\\}`".to_string());
                    return Err(error);
                }
                '\\' => {
                    literal.push(self.escape()?);
                    blanks = 0;
                    comment_may_begin = false;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
            let mut buffer = [0; 4];
            literal.extend(character.encode_utf8(&mut buffer).bytes());
            let blank = matches!(character, ' ' | '\t');
            blanks = if blank { blanks + 1 } else { 0 };
            comment_may_begin = blank;
        }
        literal.truncate(literal.len() - blanks);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        match len {
            Some(at) => Err(self.no_data(at)),
            None => Ok(parts),
        }
    }

    fn no_data(&self, at: usize) -> TemplateError {
        let mut error = self.error(
            at,
            "this length is not followed by what it is the length of",
        );
        error.suggestion = Some("put `{data}` (or `{key}`, `{value}`, `{word}`) after it".into());
        error
    }

    /// What a backslash and what follows it mean.
    fn escape(&mut self) -> Result<u8, TemplateError> {
        let start = self.at;
        self.at += 1;
        let Some(letter) = self.peek() else {
            let mut error = self.error(start, "a backslash at the end of the line");
            error.suggestion = Some("a backslash that is meant is written `\\\\`".to_string());
            return Err(error);
        };
        self.at += 1;
        Ok(match letter {
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            's' => b' ',
            '0' => 0,
            '\\' | '{' | '}' | '|' | '#' | '@' | '"' => letter as u8,
            'x' => {
                let digits: String = self.characters[self.at..].iter().take(2).collect();
                let valid = digits.len() == 2 && digits.bytes().all(|d| d.is_ascii_hexdigit());
                match u8::from_str_radix(&digits, 16) {
                    Ok(byte) if valid => {
                        self.at += 2;
                        byte
                    }
                    _ => {
                        let mut error = self.error(start, "`\\x` needs two hexadecimal digits");
                        error.suggestion = Some("write `\\x0a`, for instance".to_string());
                        return Err(error);
                    }
                }
            }
            _ => {
                let mut error = self.error(start, format!("`\\{letter}` is no escape"));
                error.suggestion =
                    Some("escapes are \\n \\r \\t \\s \\0 \\xNN \\\\ \\{ \\} \\| \\# \\@".into());
                return Err(error);
            }
        })
    }

    /// A field, braces included.
    fn field(&mut self) -> Result<Field, TemplateError> {
        let start = self.at;
        self.at += 1;
        let mut name = String::new();
        while let Some(letter) = self.peek().filter(|letter| !matches!(letter, ':' | '}')) {
            name.push(letter);
            self.at += 1;
        }
        let argument_at = self.at + 1;
        let mut choices = vec![Vec::new()];
        let mut argument = None;
        if self.peek() == Some(':') {
            self.at += 1;
            let from = self.at;
            while let Some(character) = self.peek().filter(|character| *character != '}') {
                let mut buffer = [0; 4];
                let last = choices.last_mut().expect("there is always one");
                match character {
                    '\\' => {
                        let byte = self.escape()?;
                        last.push(byte);
                        continue;
                    }
                    '|' => choices.push(Vec::new()),
                    _ => last.extend(character.encode_utf8(&mut buffer).bytes()),
                }
                self.at += 1;
            }
            argument = Some(self.characters[from..self.at].iter().collect::<String>());
        }
        if self.peek() != Some('}') {
            let mut error = self.error(start, "this brace is never closed");
            error.suggestion = Some("a brace that is meant is written `\\{`".to_string());
            return Err(error);
        }
        self.at += 1;
        let argument = argument.as_deref();
        let plain = match name.as_str() {
            "key" => Some(Field::Key),
            "value" => Some(Field::Value),
            "len" => Some(Field::Len),
            "word" => Some(Field::Word),
            "byte" => Some(Field::Byte),
            _ => None,
        };
        match (plain, name.as_str(), argument) {
            (Some(field), _, None) => Ok(field),
            (Some(Field::Key | Field::Value | Field::Word), name, Some(argument)) => {
                if argument.parse::<usize>().is_ok() {
                    return self.exactly(argument, argument_at);
                }
                let message = format!("`{{{name}:…}}` does not say how many bytes");
                let mut error = self.error(argument_at, message);
                error.suggestion = Some(format!("write `{{{name}}}` or `{{{name}:8}}`"));
                Err(error)
            }
            (None, name, Some(argument)) if name.len() == 1 => self.exactly(argument, argument_at),
            (Some(_), _, Some(_)) => {
                let message = format!("`{{{name}}}` takes nothing after its name");
                let mut error = self.error(argument_at - 1, message);
                error.suggestion = Some(format!("write `{{{name}}}`"));
                Err(error)
            }
            (None, "int", None) => Ok(Field::Int(None)),
            (None, "int", Some(argument)) => {
                let range = range::<i64>(argument);
                let range = range.ok_or_else(|| self.bad_range(argument_at, "int", "1-100"))?;
                Ok(Field::Int(Some(range)))
            }
            (None, "data", None) => Ok(Field::Data(Size::USUAL)),
            (None, "data", Some(argument)) => {
                let range = match argument.parse::<usize>() {
                    Ok(exactly) => Some((exactly, exactly)),
                    Err(_) => range::<usize>(argument),
                };
                let (least, most) =
                    range.ok_or_else(|| self.bad_range(argument_at, "data", "16"))?;
                if most > Size::MOST {
                    let message = format!("data has at most {} bytes", Size::MOST);
                    return Err(self.error(argument_at, message));
                }
                Ok(Field::Data(Size { least, most }))
            }
            (None, "choice", Some(argument)) if !argument.is_empty() => Ok(Field::Choice(choices)),
            (None, "choice", _) => {
                let mut error = self.error(start, "a choice needs something to choose from");
                error.suggestion = Some("write `{choice:a|b|c}`".to_string());
                Err(error)
            }
            (None, _, _) => self.fixed(&name, argument, start, argument_at),
        }
    }

    /// `{key:8}` and its like: so many bytes.
    fn exactly(&self, argument: &str, argument_at: usize) -> Result<Field, TemplateError> {
        match argument.parse::<usize>() {
            Ok(size) if size <= Size::MOST => Ok(Field::Data(Size {
                least: size,
                most: size,
            })),
            Ok(_) => {
                let message = format!("data has at most {} bytes", Size::MOST);
                Err(self.error(argument_at, message))
            }
            Err(_) => Err(self.bad_range(argument_at, "data", "16")),
        }
    }

    /// `{u16le}` and its like.
    fn fixed(
        &self,
        name: &str,
        argument: Option<&str>,
        start: usize,
        argument_at: usize,
    ) -> Result<Field, TemplateError> {
        let (width, big_endian) = match name {
            "u8" => (1, false),
            "u16le" => (2, false),
            "u16be" => (2, true),
            "u32le" => (4, false),
            "u32be" => (4, true),
            "u64le" => (8, false),
            "u64be" => (8, true),
            _ => {
                let mut error = self.error(start, format!("no field is called `{{{name}}}`"));
                error.suggestion = Some(match name {
                    "u16" | "u32" | "u64" => format!(
                        "say which byte comes first: `{{{name}le}}` (the lowest) or `{{{name}be}}`"
                    ),
                    _ => match nearest(name, FIELDS) {
                        Some(near) => format!("did you mean `{{{near}}}`?"),
                        None => "a brace that is meant is written `\\{`".to_string(),
                    },
                });
                return Err(error);
            }
        };
        let mut fixed = Fixed {
            width,
            big_endian,
            meaning: Meaning::Any,
        };
        fixed.meaning = match argument {
            None => Meaning::Any,
            Some("key") => Meaning::Key,
            Some("len") => Meaning::Len,
            Some(argument) => match range::<u64>(argument) {
                Some((low, high)) if high <= fixed.most() => Meaning::Range(low, high),
                Some(_) => {
                    let message = format!("`{{{name}}}` holds at most {}", fixed.most());
                    return Err(self.error(argument_at, message));
                }
                None => return Err(self.bad_range(argument_at, name, "key")),
            },
        };
        Ok(Field::Fixed(fixed))
    }

    fn bad_range(&self, at: usize, name: &str, example: &str) -> TemplateError {
        let mut error = self.error(at, format!("`{{{name}:…}}` does not say a range"));
        error.suggestion = Some(if example.contains('-') {
            format!("write `{{{name}:{example}}}`, the lower number first")
        } else {
            format!("write `{{{name}:{example}}}` or `{{{name}:1-100}}`, the lower number first")
        });
        error
    }
}

/// `LO-HI`, where both may be negative.
fn range<T: FromStr + PartialOrd>(text: &str) -> Option<(T, T)> {
    let first_digit = text.find(|letter: char| letter.is_ascii_digit())?;
    let dash = first_digit + text[first_digit..].find('-')?;
    let (low, high) = (text[..dash].parse().ok()?, text[dash + 1..].parse().ok()?);
    (low <= high).then_some((low, high))
}

/// The name that differs least from this one, if one is near.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let distances = names.iter().map(|known| (distance(name, known), *known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < known.len()).then_some(known)
}

/// How many letters must be added, removed, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
