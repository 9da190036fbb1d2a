//! The tests of a CMake build folder: which command is which test.
//!
//! ctest tells its tests nothing of their names. They are in `CTestTestfile.cmake`, which CMake
//! writes: `add_test(NAME COMMAND ARGUMENTS…)`, and `subdirs` and `include` for those in other
//! files.
//!
//! **Guarantee.** The files are read as text, and nothing of them is executed. How much is read is
//! bounded. A command that belongs to two tests has no name.
//!
//! **Deviation.** Conditions are not evaluated: a test of another configuration counts, too. It has
//! the same name and another command.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use brownout_trace::Beginning;

const FILE: &str = "CTestTestfile.cmake";
/// Longer files are not read, and not more of them.
const BYTES_MAX: u64 = 8 << 20;
const FILES_MAX: usize = 4096;

/// Whether the program is ctest.
pub fn is_ctest(program: &Beginning) -> bool {
    let word = program.words.first();
    word.is_some_and(|word| matches!(base_name(word), "ctest" | "ctest3"))
}

/// The last part of a path.
fn base_name(word: &str) -> &str {
    Path::new(word)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(word)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    name: String,
    command: Vec<String>,
}

/// The tests of each build folder that was asked for.
#[derive(Debug, Default)]
pub struct Lists {
    of: HashMap<PathBuf, Vec<Test>>,
}

impl Lists {
    /// What ctest, as it was started, calls the test that it runs by this command. It may put words
    /// in front, as `ctest -T memcheck` does.
    pub fn name(&mut self, ctest: &Beginning, command: &[String]) -> Option<String> {
        // ctest goes to the folder that it is told, so that it may be there already.
        let named = ctest.folder.join(test_folder(&ctest.words));
        let folder = match named.join(FILE).is_file() {
            true => named,
            false => ctest.folder.clone(),
        };
        let tests = self.of.entry(folder).or_insert_with_key(|folder| {
            let mut tests = Vec::new();
            let mut files = FILES_MAX;
            read(&folder.join(FILE), &mut tests, &mut files);
            tests
        });
        let of_command = |test: &&Test| is_end_of(&test.command, command);
        let longest = tests
            .iter()
            .filter(of_command)
            .map(|test| test.command.len())
            .max()?;
        let fitting = tests.iter().filter(of_command);
        let mut names: Vec<&str> = fitting
            .filter(|test| test.command.len() == longest)
            .map(|test| test.name.as_str())
            .collect();
        names.dedup();
        match names[..] {
            [name] => Some(name.to_owned()),
            _ => None,
        }
    }
}

/// The folder whose tests ctest runs, relative to its own.
fn test_folder(words: &[String]) -> PathBuf {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--test-dir" {
            return words.next().map(PathBuf::from).unwrap_or_default();
        }
        if let Some(folder) = word.strip_prefix("--test-dir=") {
            return folder.into();
        }
    }
    PathBuf::new()
}

/// Whether a command ends with the words of a test. ctest looks for programs where CMake has found
/// them, so the first word may have got a folder.
fn is_end_of(test: &[String], command: &[String]) -> bool {
    let Some(from) = command.len().checked_sub(test.len()) else {
        return false;
    };
    let (Some((program, arguments)), Some((started, given))) =
        (test.split_first(), command[from..].split_first())
    else {
        return false;
    };
    let is_program =
        program == started || !program.contains('/') && base_name(started) == program.as_str();
    is_program && arguments == given
}

fn read(path: &Path, tests: &mut Vec<Test>, files: &mut usize) {
    let is_small = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= BYTES_MAX);
    if *files == 0 || !is_small {
        return;
    }
    *files -= 1;
    let Ok(bytes) = std::fs::read(path) else {
        return;
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    for (name, arguments) in commands(&String::from_utf8_lossy(&bytes)) {
        match (name.as_str(), arguments.as_slice()) {
            ("add_test", [name, command @ ..]) if !command.is_empty() => tests.push(Test {
                name: name.clone(),
                command: command.to_vec(),
            }),
            ("subdirs" | "add_subdirectory", folders) => {
                for inner in folders {
                    read(&folder.join(inner).join(FILE), tests, files);
                }
            }
            ("include", [file, ..]) => read(&folder.join(file), tests, files),
            _ => {}
        }
    }
}

/// The commands of a file in CMake's language, with their arguments. What is none is left out.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            rest = after_comment(rest);
            continue;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if len == 0 {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let name = &rest[..len];
        rest = rest[len..].trim_start_matches([' ', '\t']);
        if let Some(inside) = rest.strip_prefix('(') {
            let (arguments, behind) = arguments(inside);
            found.push((name.to_ascii_lowercase(), arguments));
            rest = behind;
        }
    }
    found
}

fn after_comment(text: &str) -> &str {
    if let Some((_, behind)) = text.strip_prefix('#').and_then(bracketed) {
        return behind;
    }
    text.split_once('\n').map_or("", |(_, behind)| behind)
}

/// `[==[what]==]` at the beginning, and what is behind it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('[')?;
    let equals = inner.len() - inner.trim_start_matches('=').len();
    let inner = inner[equals..].strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(equals));
    let (content, behind) = inner.split_once(&end)?;
    // A first line that is empty does not count.
    Some((content.strip_prefix('\n').unwrap_or(content), behind))
}

/// Arguments up to the closing bracket, and what is behind it.
fn arguments(mut text: &str) -> (Vec<String>, &str) {
    let mut found = Vec::new();
    let mut depth = 0u32;
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else {
            return (found, "");
        };
        if let Some((content, behind)) = bracketed(text) {
            found.push(content.to_owned());
            text = behind;
            continue;
        }
        match first {
            ')' if depth == 0 => return (found, &text[1..]),
            ')' => (depth, text) = (depth - 1, &text[1..]),
            '(' => (depth, text) = (depth + 1, &text[1..]),
            '#' => text = after_comment(text),
            '"' => {
                let (content, behind) = literal(&text[1..], |c| c == '"');
                found.push(content);
                text = behind.strip_prefix('"').unwrap_or(behind);
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"' | '#');
                let (content, behind) = literal(text, ends);
                found.push(content);
                text = behind;
            }
        }
    }
}

/// Text up to a character that ends it, with its escapes taken out.
fn literal(text: &str, ends: impl Fn(char) -> bool) -> (String, &str) {
    let mut content = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => content.push('\n'),
                Some((_, 't')) => content.push('\t'),
                Some((_, 'r')) => content.push('\r'),
                // The line goes on in the next.
                Some((_, '\n')) => {}
                Some((_, escaped)) => content.push(escaped),
                None => {}
            },
            _ if ends(character) => return (content, &text[at..]),
            _ => content.push(character),
        }
    }
    (content, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_test_file_as_cmake_writes_it() {
        let text = r#"# CMake generated Testfile
add_test([=[a name]=] "/b/prog" "x \"y\"" "\\z\;")
set_tests_properties([=[a name]=] PROPERTIES  _BACKTRACE_TRIPLES "/s/CMakeLists.txt;4;add_test")
if(CTEST_CONFIGURATION_TYPE MATCHES "^([Dd][Ee])$")
  add_test(short prog)
endif()
subdirs("lib" other)
add_test(cut "off"#;
        let found = commands(text);
        let tests: Vec<&Vec<String>> = found
            .iter()
            .filter(|(name, _)| name == "add_test")
            .map(|(_, arguments)| arguments)
            .collect();
        assert_eq!(tests[0], &words(&["a name", "/b/prog", "x \"y\"", "\\z;"]));
        assert_eq!(tests[1], &words(&["short", "prog"]));
        assert_eq!(tests[2], &words(&["cut", "off"]));
        assert!(found.contains(&("subdirs".into(), words(&["lib", "other"]))));
    }

    #[test]
    fn a_command_has_the_name_of_its_test_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("build");
        std::fs::create_dir_all(build.join("lib")).unwrap();
        let top = "add_test(one \"/b/t\" \"1\")\nadd_test(two t 2)\nadd_test(a x)\nadd_test(b x)\nsubdirs(\"lib\")\n";
        std::fs::write(build.join(FILE), top).unwrap();
        std::fs::write(build.join("lib").join(FILE), "add_test(three \"/b/t\")\n").unwrap();
        let ctest = Beginning {
            words: words(&["/usr/bin/ctest", "--test-dir", "build"]),
            folder: folder.path().into(),
            ..Beginning::default()
        };
        assert!(is_ctest(&ctest));
        let mut lists = Lists::default();
        let mut name = |command: &[&str]| lists.name(&ctest, &words(command));
        assert_eq!(name(&["/b/t", "1"]).as_deref(), Some("one"));
        assert_eq!(name(&["/somewhere/t", "2"]).as_deref(), Some("two"));
        assert_eq!(name(&["/b/t"]).as_deref(), Some("three"));
        assert_eq!(
            name(&["valgrind", "-q", "/b/t", "1"]).as_deref(),
            Some("one")
        );
        let there = Beginning {
            folder: build.clone(),
            ..ctest.clone()
        };
        let found = Lists::default().name(&there, &words(&["/b/t", "1"]));
        assert_eq!(found.as_deref(), Some("one"), "it has gone there");
        assert_eq!(name(&["x"]), None, "it is two tests");
        assert_eq!(name(&["/b/t", "3"]), None);
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn any_text_has_commands_or_none() {
        for text in ["(", "a(", "a(\"", "a([==[x]=]", "#[[ b(c)", "a(\\", "é(ü)"] {
            commands(text);
        }
    }
}
