//! What the workspace depends on: licences, doubled versions, the oldest Rust that will do, and one
//! version for all.
//!
//! `cargo metadata` tells; nothing is fetched and nothing compiled. Tables below hold what was
//! decided by hand. An entry that is no longer needed is an error, too, so that they stay short.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{apart, shell};

/// Licences under which code may become part of the tool, or of its tests: all let it be passed on
/// under MIT or Apache-2.0.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages of the workspace that come in more than one version, and who wants the older one.
const DOUBLED: &[(&str, &str)] = &[
    // batsat, the SAT solver of `solve`.
    ("bit-vec", "0.5"),
    // defmt, an optional part of postcard (explore's journal) that cargo resolves though nobody
    // builds it.
    ("bitflags", "1"),
    // postcard names both as optional parts.
    ("embedded-io", "0.4"),
    // ahash, of jsonschema (tests).
    ("getrandom", "0.3"),
    // strum_macros, of jsonschema (tests).
    ("syn", "2"),
];

/// Our packages that promise to compile with an older Rust than the others: they become part of
/// other people's programs.
const OLDER: &[&str] = &["brownout-annotations"];

/// The oldest Rust that each of [`OLDER`] declares, by its name.
pub fn older() -> Result<Vec<(&'static str, String)>> {
    let metadata = Metadata::read(shell::cargo().arg("metadata").arg("--locked"))?;
    let declared = |name: &&'static str| {
        let mut packages = metadata.packages.iter();
        let package = packages.find(|package| package.ours && package.name == *name);
        let oldest = package.and_then(|package| package.rust_version.clone());
        Ok((
            *name,
            oldest.with_context(|| format!("{name} declares no rust-version"))?,
        ))
    };
    OLDER.iter().map(declared).collect()
}

/// Checks all of it, for the workspace and what lies apart.
pub fn check() -> Result<()> {
    let workspace = Metadata::read(shell::cargo().arg("metadata").arg("--locked"))?;
    let mut faults = workspace.faults(DOUBLED);
    let (version, oldest) = workspace.common()?;
    for package in apart::PACKAGES.iter().filter(|package| package.locked) {
        let metadata = Metadata::read(package.cargo("metadata").arg("--locked"))?;
        faults.extend(metadata.faults(&[]));
        // The engine is part of the tool; the fuzz targets are nobody's release.
        if package.folder == "crates/engine"
            && metadata.common()? != (version.clone(), oldest.clone())
        {
            faults.push(format!(
                "{} has another version or rust-version than the workspace",
                package.folder
            ));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The version that all of our packages have, and the oldest Rust that they declare.
pub fn version() -> Result<(String, String)> {
    Metadata::read(shell::cargo().arg("metadata").arg("--locked"))?.common()
}

/// A package, as cargo describes it.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    rust_version: Option<String>,
    ours: bool,
}

struct Metadata {
    packages: Vec<Package>,
}

impl Metadata {
    fn read(cargo: &mut Command) -> Result<Metadata> {
        let output = cargo
            .args(["--format-version", "1"])
            // Packages for other systems are neither built nor fetched.
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata failed:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Metadata::parse(&output.stdout)
    }

    fn parse(json: &[u8]) -> Result<Metadata> {
        let json: Value = serde_json::from_slice(json).context("cargo metadata is no JSON")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let packages = json["packages"]
            .as_array()
            .context("cargo metadata names no packages")?
            .iter()
            .map(|package| {
                Ok(Package {
                    name: text(&package["name"]).context("a package without a name")?,
                    version: text(&package["version"]).context("a package without a version")?,
                    licence: text(&package["license"]),
                    rust_version: text(&package["rust_version"]),
                    ours: package["source"].is_null(),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Metadata { packages })
    }

    /// What is wrong, a sentence each.
    fn faults(&self, doubled: &[(&str, &str)]) -> Vec<String> {
        let mut faults = Vec::new();
        for package in &self.packages {
            let Package { name, version, .. } = package;
            match &package.licence {
                None => faults.push(format!("{name} {version} names no licence")),
                Some(licence) if !is_allowed(licence) => faults.push(format!(
                    "{name} {version} is under {licence}, which LICENCES does not allow"
                )),
                Some(_) => {}
            }
        }
        faults.extend(self.doubled(doubled));
        if let Ok((_, oldest)) = self.common() {
            for package in self.packages.iter().filter(|package| !package.ours) {
                if let Some(needed) = &package.rust_version
                    && parts(needed) > parts(&oldest)
                {
                    faults.push(format!(
                        "{} {} needs Rust {needed}, and we promise {oldest}",
                        package.name, package.version
                    ));
                }
            }
        }
        faults
    }

    /// Packages that are there in several versions, but for those that are known; and what is known
    /// and not so.
    fn doubled(&self, known: &[(&str, &str)]) -> Vec<String> {
        let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
        for package in &self.packages {
            versions
                .entry(&package.name)
                .or_default()
                .insert(&package.version);
        }
        let mut faults = Vec::new();
        for (name, versions) in &versions {
            let unknown = versions
                .iter()
                .filter(|version| !known.iter().any(|k| k.0 == *name && begins(version, k.1)));
            if versions.len() > 1 && unknown.count() > 1 {
                let mut text = format!("{name} comes in several versions:");
                for version in versions {
                    let _ = write!(text, " {version}");
                }
                text += "; `cargo tree --invert` shows who wants which";
                faults.push(text);
            }
        }
        for (name, version) in known {
            let there = versions.get(name);
            let needed = there.is_some_and(|there| {
                there.len() > 1 && there.iter().any(|other| begins(other, version))
            });
            if !needed {
                faults.push(format!(
                    "{name} {version} is no longer doubled: take it out of DOUBLED"
                ));
            }
        }
        faults
    }

    /// The version and the oldest Rust of our own packages, if they agree.
    fn common(&self) -> Result<(String, String)> {
        let mut all = BTreeSet::new();
        for package in self.packages.iter().filter(|package| package.ours) {
            let Some(oldest) = &package.rust_version else {
                bail!("{} declares no rust-version", package.name);
            };
            if !OLDER.contains(&package.name.as_str()) {
                all.insert((package.version.clone(), oldest.clone()));
            }
        }
        match all.len() {
            1 => Ok(all.pop_first().expect("one")),
            _ => bail!(
                "our packages have several versions, or several values of rust-version: {all:?}"
            ),
        }
    }
}

/// Whether "1.3.2" is a version 1, or 1.3.
fn begins(version: &str, beginning: &str) -> bool {
    version
        .strip_prefix(beginning)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A version of Rust as numbers that compare.
fn parts(version: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = version
        .split('.')
        .map(|part| part.parse().unwrap_or(u32::MAX))
        .collect();
    parts.resize(3, 0);
    parts
}

/// Whether one of the licences that a package offers, for each that it demands, is among ours.
/// Licences come as SPDX expressions; `/` is an older way to say OR.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let words: Vec<&str> = expression
        .split_whitespace()
        .flat_map(|word| word.split_inclusive('('))
        .flat_map(|word| match word.strip_suffix(')') {
            Some(name) => vec![name, ")"],
            None => vec![word],
        })
        .collect();
    let mut at = 0;
    any(&words, &mut at) && at == words.len()
}

/// `A OR B`, and AND binds tighter.
fn any(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        allowed |= all(words, at);
    }
    allowed
}

fn all(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        allowed &= one(words, at);
    }
    allowed
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let allowed = any(words, at);
        *at += 1;
        return allowed;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception only allows more.
        *at += 2;
    }
    LICENCES.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(packages: &[(&str, &str, &str, Option<&str>, bool)]) -> Metadata {
        let json = serde_json::json!({ "packages": packages.iter().map(|(name, version, licence, rust, ours)| {
            serde_json::json!({
                "name": name, "version": version, "license": licence, "rust_version": rust,
                "source": if *ours { Value::Null } else { "registry".into() },
            })
        }).collect::<Vec<_>>() });
        Metadata::parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn expressions_of_licences() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 OR GPL-2.0-only",
            "GPL-2.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-2.0-only",
            "(MIT OR Apache-2.0) AND GPL-2.0-only",
            "MIT MIT",
            "LGPL-2.1-or-later OR",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        let ours = ("ours", "0.1.0", "MIT", Some("1.88"), true);
        let fine = ("fine", "1.0.0", "MIT", Some("1.88.0"), false);
        assert!(metadata(&[ours, fine]).faults(&[]).is_empty());
        for (bad, word) in [
            (
                ("bad", "1.0.0", "GPL-3.0-only", None, false),
                "GPL-3.0-only",
            ),
            (
                ("bad", "1.0.0", "MIT", Some("1.90"), false),
                "needs Rust 1.90",
            ),
            (("fine", "2.0.0", "MIT", None, false), "several versions"),
        ] {
            let faults = metadata(&[ours, fine, bad]).faults(&[]);
            assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
        }
    }

    #[test]
    fn known_doubles_are_accepted_and_stale_entries_are_not() {
        let ours = ("ours", "0.1.0", "MIT", Some("1.88"), true);
        let two = [
            ours,
            ("syn", "2.0.1", "MIT", None, false),
            ("syn", "3.0.0", "MIT", None, false),
        ];
        assert!(metadata(&two).faults(&[("syn", "2")]).is_empty());
        assert_eq!(metadata(&two).faults(&[]).len(), 1);
        assert_eq!(metadata(&two[..2]).faults(&[("syn", "2")]).len(), 1);
    }

    #[test]
    fn our_packages_agree() {
        let one = ("one", "0.1.0", "MIT", Some("1.88"), true);
        let common = metadata(&[one]).common().unwrap();
        assert_eq!(common, ("0.1.0".into(), "1.88".into()));
        for other in [
            ("other", "0.2.0", "MIT", Some("1.88"), true),
            ("other", "0.1.0", "MIT", Some("1.85"), true),
            ("other", "0.1.0", "MIT", None, true),
        ] {
            assert!(metadata(&[one, other]).common().is_err());
        }
    }
}
