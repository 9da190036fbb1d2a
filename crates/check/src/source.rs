//! What a line of source says is being stored to.
//!
//! A guess from the text of one line, for suggestions only: it is shown as what it is, the
//! programmer's own words.

use std::collections::HashMap;
use std::fs;

/// Source files, read once.
#[derive(Debug, Default)]
pub struct Sources {
    files: HashMap<String, Option<String>>,
}

/// Larger files are not source.
const FILE_LEN_MAX: u64 = 16 << 20;

impl Sources {
    /// The expression that names the destination of the store on that line, in that column if
    /// known: `&node->next`.
    pub fn destination(&mut self, file: &str, line: u32, column: Option<u32>) -> Option<String> {
        let line = self.text(file, line)?;
        match column {
            Some(column) => destination(statement(line, column)),
            None => destination(line),
        }
    }

    /// A line, from 1.
    pub fn text(&mut self, file: &str, line: u32) -> Option<&str> {
        let text = self.files.entry(file.to_owned()).or_insert_with(|| {
            let len = fs::metadata(file).ok()?.len();
            (len <= FILE_LEN_MAX).then(|| fs::read_to_string(file).ok())?
        });
        let number = line.checked_sub(1)? as usize;
        text.as_deref()?.lines().nth(number)
    }
}

/// The statement at that column, from 1, of a line that may have several.
fn statement(line: &str, column: u32) -> &str {
    let column = column as usize;
    let (mut start, mut depth, mut quoted) = (0, 0, false);
    for (i, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            // `*node = (struct node){.key = 1, .value = 2};` is one statement.
            '{' if depth > 0 || assigned(line[start..i].trim()).is_some() => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ';' | '{' | '}' if depth <= 0 => {
                if i + 1 >= column {
                    return &line[start..=i];
                }
                start = i + 1;
            }
            _ => {}
        }
    }
    &line[start..]
}

/// Functions that store through their first argument.
const COPIES: [&str; 7] = [
    "memcpy", "memset", "memmove", "strcpy", "strncpy", "snprintf", "sprintf",
];

/// The expression that names what a statement stores to.
pub fn destination(line: &str) -> Option<String> {
    let line = line.split("//").next()?.trim();
    for copy in COPIES {
        if let Some(at) = line.find(&format!("{copy}(")) {
            let arguments = &line[at + copy.len() + 1..];
            let first = first_argument(arguments)?;
            return plain(first).then(|| first.to_owned());
        }
    }
    let mut target = assigned(line)?;
    // `struct node *n = …` declares; the store is elsewhere. `int x` has two words.
    if let Some(stripped) = target.strip_prefix("++").or(target.strip_prefix("--")) {
        target = stripped;
    }
    let target = target.trim();
    // `.key = 1` on a line of its own is part of an initialiser that began earlier.
    if !plain(target) || target.contains(' ') || target.starts_with('.') {
        return None;
    }
    Some(match target.strip_prefix('*') {
        Some(pointer) => pointer.to_owned(),
        None => format!("&{target}"),
    })
}

/// What stands before an assignment operator, or before `++` and `--`.
fn assigned(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        if *byte == b'=' {
            let before = i.checked_sub(1).map(|j| bytes[j]);
            let after = bytes.get(i + 1);
            if after == Some(&b'=') || matches!(before, Some(b'=' | b'!' | b'<' | b'>')) {
                return None;
            }
            let end = match before {
                Some(b'+' | b'-' | b'*' | b'/' | b'|' | b'&' | b'^' | b'%') => i - 1,
                _ => i,
            };
            return Some(line[..end].trim());
        }
        if matches!(byte, b'(' | b'{' | b'"') && !line[..i].trim_start().starts_with('(') {
            break;
        }
    }
    let statement = line.trim_end_matches(';').trim();
    statement
        .strip_suffix("++")
        .or_else(|| statement.strip_suffix("--"))
        .or_else(|| statement.starts_with("++").then_some(statement))
        .or_else(|| statement.starts_with("--").then_some(statement))
}

fn first_argument(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth > 0 => depth -= 1,
            ',' if depth == 0 => return Some(text[..i].trim()),
            ')' => return None,
            _ => {}
        }
    }
    None
}

/// Short and made of what an expression consists of.
fn plain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_->.[]*&+ ()".contains(c);
    !text.is_empty() && text.len() <= 60 && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_statements() {
        let line =
            "for (i = 0; i < n; i++) { strcpy(r[i].name, \"a;b\"); r[i].len = 4; r[i].used++; }";
        let at = |text: &str| line.find(text).expect("there") as u32 + 1;
        let of = |column| destination(statement(line, column));
        assert_eq!(of(at("strcpy")).as_deref(), Some("r[i].name"));
        assert_eq!(of(at("= 4")).as_deref(), Some("&r[i].len"));
        assert_eq!(of(at("++; }")).as_deref(), Some("&r[i].used"));
        assert_eq!(of(at("i = 0")), None);
        let literal = "n = next(); *n = (struct node){.key = 1, .value = two()}; n->used = 1;";
        for (part, expected) in [(".value", "n"), ("*n", "n"), ("n->used", "&n->used")] {
            let column = literal.find(part).expect("there") as u32 + 2;
            let found = destination(statement(literal, column));
            assert_eq!(found.as_deref(), Some(expected), "{part}");
        }
        assert_eq!(statement("a = 1; b = 2", 999), " b = 2");
        assert_eq!(statement("a = 1;", 0), "a = 1;");
    }

    #[test]
    fn destinations() {
        let cases = [
            ("    node->next = head;", Some("&node->next")),
            ("\t*slot = value; // done", Some("slot")),
            ("pool->count += 1;", Some("&pool->count")),
            ("pool->count++;", Some("&pool->count")),
            ("++pool->count;", Some("&pool->count")),
            ("a[i + 1].key = k;", None),
            ("a[i].key = k;", Some("&a[i].key")),
            ("memcpy(node->value, buf, 16);", Some("node->value")),
            (
                "memset(&pool->table[i], 0, sizeof(x));",
                Some("&pool->table[i]"),
            ),
            ("struct node *n = alloc();", None),
            ("if (a == b)", None),
            ("persist(p, 8);", None),
            ("for (i = 0; i < n; i++)", None),
            ("}", None),
            ("    .key = k,", None),
        ];
        for (line, expected) in cases {
            assert_eq!(destination(line).as_deref(), expected, "{line}");
        }
    }
}
