//! Which modules a crate has, and which of them name which.
//!
//! The text is taken apart into words, not parsed: that is enough to find `mod`, `use` and paths,
//! also inside macros, and takes milliseconds. A re-export (`pub use`) is another name for
//! something elsewhere, so whoever uses that name depends on the place where the thing is defined.
//! Modules in braces count as part of their file. What is compiled for tests only (`#[cfg(test)]`)
//! may use anything and is left out.
//!
//! Not seen: a method that is called on a value, since the value's type says where it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Re-exports of re-exports, at most. A chain that is longer is a circle of names.
const HOPS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    /// The content of a string literal, escapes as they are.
    Text(&'t str),
    /// `::`
    Path,
    Mark(char),
}

/// Takes Rust apart, without comments, character literals and lifetimes.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let is_word = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80)
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += comment_len(rest);
        } else if let Some(len) = raw_string_len(rest) {
            let open = rest.find('"').unwrap_or(0) + 1;
            // As many marks behind the closing quote as before the opening one.
            let marks = rest[..open].matches('#').count();
            found.push(Token::Text(&rest[open..len - 1 - marks]));
            at += len;
        } else if rest.starts_with('"') {
            let len = string_len(rest);
            found.push(Token::Text(&rest[1..len - 1]));
            at += len;
        } else if rest.starts_with('\'') {
            at += quote_len(rest);
        } else if rest.starts_with("::") {
            found.push(Token::Path);
            at += 2;
        } else if is_word(at) {
            let begin = at;
            while is_word(at) {
                at += 1;
            }
            found.push(Token::Word(&text[begin..at]));
        } else {
            let mark = rest.chars().next().unwrap_or(' ');
            if !mark.is_whitespace() {
                found.push(Token::Mark(mark));
            }
            at += mark.len_utf8();
        }
    }
    found
}

/// Block comments nest.
fn comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let step = match rest {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// `r"…"`, `r#"…"#`, also of bytes.
fn raw_string_len(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].iter().find(|p| text.starts_with(**p))?;
    let marks = text[prefix.len()..]
        .bytes()
        .take_while(|b| *b == b'#')
        .count();
    let open = prefix.len() + marks;
    if text.as_bytes().get(open) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(marks));
    let end = text[open + 1..].find(&close)?;
    Some(open + 1 + end + close.len())
}

/// A character literal, or the mark of a lifetime.
fn quote_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            let close = text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'');
            close.map_or(text.len(), |(at, _)| 2 + at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// A path in the source, from its first word on; the last one is `*` for everything.
type Names = Vec<String>;

/// What is known of one module.
#[derive(Debug, Default)]
struct Module {
    /// Of the crate's root, this is empty.
    path: Names,
    /// The module whose file this one is in: itself, unless it is in braces.
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What is defined here.
    items: BTreeSet<String>,
    /// Names that stand for something elsewhere.
    imports: BTreeMap<String, Names>,
    /// `use …::*`
    globs: Vec<Names>,
    /// Paths in the code, and imports that are not passed on.
    used: Vec<Names>,
    /// Imports that are passed on. They count if the name occurs in the code as well.
    passed_on: BTreeMap<String, Names>,
    words: BTreeSet<String>,
}

/// The modules of one crate.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
}

/// Which module names which, each a path like `crate::a::b`.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

impl Modules {
    /// Reads a crate from its root file on.
    pub fn read(root: &Path) -> Result<Modules> {
        let mut modules = Modules::default();
        let folder = root.parent().context("a root file lies in a folder")?;
        let text = read(root)?;
        modules.begin(Vec::new(), None, true);
        modules.body(0, &tokens(&text), folder)?;
        Ok(modules)
    }

    fn begin(&mut self, path: Names, parent: Option<usize>, own_file: bool) -> usize {
        let number = self.modules.len();
        let file = match (own_file, parent) {
            (false, Some(parent)) => self.modules[parent].file,
            _ => number,
        };
        self.modules.push(Module {
            path,
            file,
            parent,
            ..Module::default()
        });
        number
    }

    /// Takes a module's tokens in; `folder` is where the files of its children lie.
    fn body(&mut self, number: usize, tokens: &[Token<'_>], folder: &Path) -> Result<()> {
        let (mut at, mut depth) = (0, 0);
        let mut file_name = None;
        let mut is_public = false;
        while at < tokens.len() {
            match tokens[at..] {
                [Token::Mark('#'), ..] => {
                    let open = at + 1 + usize::from(tokens.get(at + 1) == Some(&Token::Mark('!')));
                    let end = close(tokens, open);
                    let attribute = &tokens[open..end];
                    at = end;
                    if is_for_tests(attribute) {
                        at = item_end(tokens, at);
                    } else if let [_, Token::Word("path"), _, Token::Text(name), _] = attribute {
                        file_name = Some(*name);
                    }
                    continue;
                }
                [Token::Word("mod"), Token::Word(name), Token::Mark(';'), ..] => {
                    self.file_module(number, name, file_name.take(), folder)?;
                    at += 3;
                    continue;
                }
                [Token::Word("mod"), Token::Word(name), Token::Mark('{'), ..] => {
                    let end = close(tokens, at + 2);
                    let child = self.child(number, name, false);
                    self.body(child, &tokens[at + 3..end - 1], &folder.join(name))?;
                    at = end;
                    continue;
                }
                [Token::Word("use"), ..] => {
                    let len = tokens[at..].iter().position(|t| *t == Token::Mark(';'));
                    let end = at + len.context("a `use` without its end")?;
                    self.import(number, &tokens[at + 1..end], is_public);
                    is_public = false;
                    at = end + 1;
                    continue;
                }
                [Token::Word("pub"), Token::Mark('('), ..] => {
                    is_public = true;
                    at = close(tokens, at + 1);
                    continue;
                }
                [Token::Word(word), ..] => {
                    let begins = at == 0 || tokens[at - 1] != Token::Path;
                    let module = &mut self.modules[number];
                    module.words.insert(word.to_owned());
                    if begins {
                        let names = path(&tokens[at..]);
                        if names.len() > 1 {
                            module.used.push(names);
                        }
                    }
                    if depth == 0
                        && let Some(name) = defined(&tokens[at..])
                    {
                        module.items.insert(name.to_owned());
                    }
                    is_public = word == "pub";
                }
                [Token::Mark('{' | '(' | '['), ..] => depth += 1,
                [Token::Mark('}' | ')' | ']'), ..] => depth -= 1,
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    fn child(&mut self, parent: usize, name: &str, own_file: bool) -> usize {
        let mut path = self.modules[parent].path.clone();
        path.push(name.to_owned());
        let child = self.begin(path, Some(parent), own_file);
        self.modules[parent].children.insert(name.to_owned(), child);
        child
    }

    fn file_module(
        &mut self,
        parent: usize,
        name: &str,
        given: Option<&str>,
        folder: &Path,
    ) -> Result<()> {
        let places = match given {
            Some(given) => vec![folder.join(given)],
            None => vec![
                folder.join(format!("{name}.rs")),
                folder.join(name).join("mod.rs"),
            ],
        };
        let Some(file) = places.iter().find(|place| place.is_file()) else {
            bail!("no file for the module {name}: {places:?}");
        };
        let below: PathBuf = match given {
            Some(_) => file.parent().unwrap_or(folder).to_owned(),
            None => folder.join(name),
        };
        let text = read(file)?;
        let child = self.child(parent, name, true);
        self.body(child, &tokens(&text), &below)
    }

    fn import(&mut self, number: usize, tree: &[Token<'_>], is_public: bool) {
        let module = &mut self.modules[number];
        for (alias, names) in leaves(tree) {
            if !is_public {
                module.used.push(names.clone());
            }
            if names.last().is_some_and(|name| name == "*") {
                module.globs.push(names[..names.len() - 1].to_vec());
                continue;
            }
            if is_public {
                module.passed_on.insert(alias.clone(), names.clone());
            }
            module.imports.insert(alias, names);
        }
    }

    /// The module that a path of this module leads to, if it stays in the crate.
    fn target(&self, from: usize, names: &[String], hops: u32) -> Option<usize> {
        let (first, mut rest) = names.split_first()?;
        let module = &self.modules[from];
        let mut here = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => module.parent?,
            name => match (module.children.get(name), module.imports.get(name)) {
                (Some(child), _) => *child,
                // A name that was imported under itself is a crate.
                (None, Some(import)) if hops < HOPS_MAX && import[0] != *name => {
                    let whole: Names = import.iter().chain(rest).cloned().collect();
                    return self.target(from, &whole, hops + 1);
                }
                _ => return None,
            },
        };
        while let Some((name, after)) = rest.split_first() {
            let module = &self.modules[here];
            if name == "super" {
                here = module.parent?;
            } else if let Some(child) = module.children.get(name) {
                here = *child;
            } else if module.items.contains(name) || hops >= HOPS_MAX {
                return Some(here);
            } else if let Some(import) = module.imports.get(name) {
                let whole: Names = import.iter().chain(after).cloned().collect();
                return self.target(here, &whole, hops + 1);
            } else {
                let shown = module.globs.iter().find_map(|glob| {
                    let shown = self.target(here, glob, hops + 1)?;
                    self.has(shown, name)
                        .then(|| {
                            let whole: Names =
                                ["self".to_owned()].iter().chain(rest).cloned().collect();
                            self.target(shown, &whole, hops + 1)
                        })
                        .flatten()
                });
                return Some(shown.unwrap_or(here));
            }
            rest = after;
        }
        Some(here)
    }

    fn has(&self, number: usize, name: &str) -> bool {
        let module = &self.modules[number];
        module.items.contains(name)
            || module.imports.contains_key(name)
            || module.children.contains_key(name)
    }

    /// Which file's module names which.
    pub fn edges(&self) -> Edges {
        let name = |number: usize| {
            let path = &self.modules[self.modules[number].file].path;
            let words = ["crate".to_owned()];
            let words: Vec<&str> = words.iter().chain(path).map(String::as_str).collect();
            words.join("::")
        };
        let mut edges = Edges::new();
        for (number, module) in self.modules.iter().enumerate() {
            let spoken = module.passed_on.iter();
            let spoken = spoken.filter(|(alias, _)| module.words.contains(*alias));
            let used = module.used.iter().chain(spoken.map(|(_, names)| names));
            let from = edges.entry(name(number)).or_default();
            let targets = used.filter_map(|names| self.target(number, names, 0));
            from.extend(targets.map(name).filter(|to| *to != name(number)));
        }
        edges
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Behind the bracket that closes the one at `open`.
fn close(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Mark('{' | '(' | '[') => depth += 1,
            Token::Mark('}' | ')' | ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// `[cfg(test)]`, and `[cfg(all(test, …))]`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let is_cfg = attribute.get(1) == Some(&Token::Word("cfg"));
    let may_be_more =
        attribute.contains(&Token::Word("any")) || attribute.contains(&Token::Word("not"));
    is_cfg && !may_be_more && attribute.contains(&Token::Word("test"))
}

/// Behind the item that begins at `at`.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at] {
            Token::Mark(';') => return at + 1,
            Token::Mark('{') => return close(tokens, at),
            Token::Mark('(' | '[') => at = close(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// The name of the item that begins here, if one does.
fn defined<'t>(tokens: &[Token<'t>]) -> Option<&'t str> {
    const KINDS: [&str; 8] = [
        "fn", "struct", "enum", "union", "trait", "type", "const", "static",
    ];
    match tokens {
        [
            Token::Word("macro_rules"),
            Token::Mark('!'),
            Token::Word(name),
            ..,
        ] => Some(name),
        [
            Token::Word("static"),
            Token::Word("mut"),
            Token::Word(name),
            ..,
        ] => Some(name),
        [Token::Word(kind), Token::Word(name), ..] if KINDS.contains(kind) => Some(name),
        _ => None,
    }
}

/// The path that begins here.
fn path(tokens: &[Token<'_>]) -> Names {
    let mut names = Vec::new();
    let mut rest = tokens;
    while let [Token::Word(name), more @ ..] = rest {
        names.push((*name).to_owned());
        let [Token::Path, next @ ..] = more else {
            break;
        };
        rest = next;
    }
    names
}

/// The names that a tree of imports makes known, and what they stand for.
fn leaves(tree: &[Token<'_>]) -> Vec<(String, Names)> {
    fn walk(tree: &[Token<'_>], before: &Names, found: &mut Vec<(String, Names)>) {
        let mut names = before.clone();
        let mut alias = None;
        let mut at = 0;
        while at < tree.len() {
            match tree[at] {
                Token::Word("as") => {
                    if let Some(Token::Word(name)) = tree.get(at + 1) {
                        alias = Some((*name).to_owned());
                    }
                    at += 1;
                }
                Token::Word(name) => names.push(name.to_owned()),
                Token::Mark('*') => names.push("*".to_owned()),
                Token::Mark('{') => {
                    let end = close(tree, at);
                    let inner = &tree[at + 1..end - 1];
                    let mut begin = 0;
                    let mut i = 0;
                    while i <= inner.len() {
                        if i == inner.len() || inner[i] == Token::Mark(',') {
                            if begin < i {
                                walk(&inner[begin..i], &names, found);
                            }
                            begin = i + 1;
                            i += 1;
                        } else if inner[i] == Token::Mark('{') {
                            i = close(inner, i);
                        } else {
                            i += 1;
                        }
                    }
                    return;
                }
                _ => {}
            }
            at += 1;
        }
        // `a::{self}` is `a`.
        if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        if let Some(last) = names.last() {
            found.push((alias.unwrap_or_else(|| last.clone()), names));
        }
    }
    let mut found = Vec::new();
    walk(tree, &Vec::new(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a crate of these files and says which module names which.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!(
            "brownout-graph-{}-{:p}",
            std::process::id(),
            &raw const files
        ));
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let modules = Modules::read(&folder.join("lib.rs"));
        fs::remove_dir_all(&folder).unwrap();
        let edges = modules.unwrap().edges();
        let lines = edges
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| format!("{from} {to}")));
        lines.map(|line| line.replace("crate::", "")).collect()
    }

    #[test]
    fn imports_and_paths_are_seen_and_words_in_comments_are_not() {
        let lib = "mod a; mod b; mod c; mod d { pub use crate::c::Thing; }";
        let a = "use crate::{b::{self, B as Other}, d::Thing};";
        let b = r##"// crate::a
            /* crate::a /* crate::a */ crate::a */
            fn f<'a>(x: &'a str) -> char { r#"crate::a"#; "crate::a \" crate::a"; '"' }
            fn g() { println!("{}", super::c::Thing) }"##;
        let c = "pub struct Thing;";
        let files = [("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", c)];
        assert_eq!(edges(&files), ["a b", "a c", "b c"]);
    }

    #[test]
    fn a_re_export_is_a_name_and_no_dependency_unless_it_is_used() {
        let a = ("a.rs", "pub struct A; use crate::Own;");
        let b = ("b/mod.rs", "mod c; pub use c::*; fn f() { crate::A }");
        let c = ("b/c.rs", "pub struct C;");
        let lib = "mod a; mod b; pub use a::A; pub use b::C; pub struct Own;";
        assert_eq!(edges(&[("lib.rs", lib), a, b, c]), ["a crate", "b a"]);
        let lib = "mod a; mod b; pub use a::A; pub struct Own; fn f(_: A) {}";
        assert_eq!(
            edges(&[("lib.rs", lib), a, b, c]),
            ["crate a", "a crate", "b a"]
        );
        let user = ("a.rs", "use crate::b::C;");
        let lib = "mod a; mod b;";
        let b = ("b/mod.rs", "mod c; pub use c::*;");
        assert_eq!(edges(&[("lib.rs", lib), user, b, c]), ["a b::c"]);
    }

    #[test]
    fn tests_may_use_anything() {
        let lib = "mod a; mod b;";
        let a = "use super::b::B; #[cfg(test)] mod tests { use crate::b; }";
        let b = "pub struct B; #[cfg(test)] #[allow(x)] mod tests { fn f() { crate::a::A } } #[cfg(test)] use crate::a;";
        let files = [("lib.rs", lib), ("a.rs", a), ("b.rs", b)];
        assert_eq!(edges(&files), ["a b"]);
    }
}
