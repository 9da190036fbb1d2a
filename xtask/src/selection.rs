//! Which tests `cargo xtask test` is asked for.
//!
//! ```text
//!  test                        everything
//!  test NAME                   every check, and the tests whose name contains NAME
//!  test --fast                 the crates' own tests, and a few whole programs
//!  test --fast -p CRATE        one crate: its format, its lints, its tests
//! ```

use anyhow::{Result, bail};
use brownout_tests::layout;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only what tells most in a minute.
    pub fast: bool,
    /// Only these packages, by the names that cargo knows them by. Empty: all.
    pub packages: Vec<String>,
    /// The engine is asked for, which is no package of the workspace.
    pub engine: bool,
    /// Only tests whose name contains one of these; other words for the test runner, too.
    pub names: Vec<String>,
}

impl Selection {
    /// From the words of the command line.
    pub fn parse(words: &[&str]) -> Result<Selection> {
        let mut selection = Selection::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--fast" => selection.fast = true,
                "-p" | "--package" => match words.next() {
                    Some(name) => selection.add_package(name)?,
                    None => bail!("{word} wants the name of a crate"),
                },
                name => selection.names.push(name.to_owned()),
            }
        }
        if !selection.fast && (selection.engine || !selection.packages.is_empty()) {
            bail!("-p goes with --fast: `cargo xtask test --fast -p CRATE`");
        }
        Ok(selection)
    }

    /// Whether all is to be tested.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether the words pick crates.
    pub fn picks_packages(&self) -> bool {
        self.engine || !self.packages.is_empty()
    }

    /// A crate by the name of its folder (`trace`) or of its package (`brownout-trace`).
    fn add_package(&mut self, name: &str) -> Result<()> {
        let folder = match name {
            "brownout" => "cli",
            name => name.strip_prefix("brownout-").unwrap_or(name),
        };
        match folder {
            "engine" => self.engine = true,
            "cli" => self.packages.push("brownout".into()),
            "xtask" => self.packages.push("xtask".into()),
            "tests" => self.packages.push("brownout-tests".into()),
            folder if folder_exists(folder) => self.packages.push(format!("brownout-{folder}")),
            _ => bail!(
                "no crate is called {name}; `ls crates` shows them, and there are xtask and tests"
            ),
        }
        Ok(())
    }
}

fn folder_exists(folder: &str) -> bool {
    layout::workspace()
        .join("crates")
        .join(folder)
        .join("Cargo.toml")
        .is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_by_either_name() {
        for (word, package) in [
            ("trace", "brownout-trace"),
            ("brownout-trace", "brownout-trace"),
            ("cli", "brownout"),
            ("brownout", "brownout"),
            ("xtask", "xtask"),
            ("tests", "brownout-tests"),
        ] {
            let selection = Selection::parse(&["--fast", "-p", word]).unwrap();
            assert_eq!(selection.packages, [package]);
            assert!(selection.picks_packages() && !selection.is_everything());
        }
        assert!(
            Selection::parse(&["-p", "engine", "--fast"])
                .unwrap()
                .engine
        );
    }

    #[test]
    fn names_go_to_the_runner() {
        let selection = Selection::parse(&["pool_", "flags"]).unwrap();
        assert_eq!(selection.names, ["pool_", "flags"]);
        assert!(!selection.is_everything());
        assert!(Selection::parse(&[]).unwrap().is_everything());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &["--fast", "-p"][..],
            &["--fast", "-p", "no_such_crate"],
            &["-p", "trace"],
        ] {
            assert!(Selection::parse(words).is_err(), "{words:?}");
        }
    }
}
