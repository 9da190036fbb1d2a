//! `cargo xtask graph`: who depends on whom, between crates and between the modules of each crate.
//!
//! Guarantee: it fails if there is a circle, or if the table of crates in `docs/ARCHITECTURE.md` is
//! not the one that it prints (`--bless` writes it). A circle means that no part of it can be
//! understood, tested or changed by itself.
//!
//! Crates and what they are for come from their `Cargo.toml`; [`source`] says what counts between
//! modules. Test targets and examples are left out.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;
use serde_json::Value;

use crate::shell;
use source::{Edges, Modules};

/// What depends on something without saying so to cargo: `host` has the engine built and embeds it.
const EMBEDDED: (&str, &str) = ("host", "engine");

/// Where the table stands.
const DOCUMENT: &str = "docs/ARCHITECTURE.md";
const BEGIN: &str = "<!-- The table is what `cargo xtask graph` prints; `cargo xtask graph --bless` writes it. -->\n";
const END: &str = "<!-- end of the table -->\n";

/// A crate of the project.
struct Crate {
    name: String,
    purpose: String,
    /// Of the project's crates.
    needs: BTreeSet<String>,
    /// Root files of its library and its programs.
    roots: Vec<PathBuf>,
}

/// Prints the table and what circles there are, and fails where there should be none.
pub fn graph() -> Result<()> {
    let crates = crates()?;
    let edges: Edges = crates
        .iter()
        .map(|(name, found)| (name.clone(), found.needs.clone()))
        .collect();
    let mut wrong = Vec::new();
    wrong.extend(
        circles(&edges)
            .iter()
            .map(|circle| told("crates", circle, &edges)),
    );
    for found in crates.values() {
        for root in &found.roots {
            let edges = Modules::read(root)?.edges();
            let circles = circles(&edges);
            wrong.extend(
                circles
                    .iter()
                    .map(|circle| told(&found.name, circle, &edges)),
            );
        }
    }
    let table = table(&crates);
    println!("{table}");
    ensure!(
        wrong.is_empty(),
        "circles between modules\n{}",
        wrong.concat()
    );
    let (_, written, _) = document()?;
    ensure!(
        written == table,
        "the table of crates in {DOCUMENT} is another one: `cargo xtask graph --bless` writes it"
    );
    Ok(())
}

/// Writes the table into the document.
pub fn bless() -> Result<()> {
    let (before, _, after) = document()?;
    let text = [&before, BEGIN, &table(&crates()?), END, &after].concat();
    fs::write(layout::workspace().join(DOCUMENT), text)?;
    Ok(())
}

/// What comes before the table, the table, and what comes behind it.
fn document() -> Result<(String, String, String)> {
    let text = fs::read_to_string(layout::workspace().join(DOCUMENT))?;
    let marks = || format!("{DOCUMENT} has no marks around its table of crates");
    let (before, rest) = text.split_once(BEGIN).with_context(marks)?;
    let (table, after) = rest.split_once(END).with_context(marks)?;
    Ok((before.to_owned(), table.to_owned(), after.to_owned()))
}

/// The project's crates by their folders' names, with tests and developer commands.
fn crates() -> Result<BTreeMap<String, Crate>> {
    let workspace = layout::workspace();
    let mut packages = metadata(&workspace.join("Cargo.toml"))?;
    packages.extend(metadata(&workspace.join("crates/engine/Cargo.toml"))?);
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(Path::file_name);
        folder.map(|name| name.to_string_lossy().into_owned())
    };
    let named: BTreeMap<&str, String> = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, folder(package)?)))
        .collect();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = BTreeMap::new();
    for package in &packages {
        let name = folder(package).context("a package has a folder")?;
        let needs = list(&package["dependencies"]);
        let needs = needs.iter().filter(|need| need["kind"] != "dev");
        let mut needs: BTreeSet<String> = needs
            .filter_map(|need| named.get(need["name"].as_str()?).cloned())
            .collect();
        if name == EMBEDDED.0 {
            needs.insert(EMBEDDED.1.to_owned());
        }
        let is_ours = |target: &&Value| {
            let kinds = list(&target["kind"]);
            kinds.iter().any(|kind| kind == "lib" || kind == "bin")
        };
        let targets = list(&package["targets"]);
        let roots = targets.iter().filter(is_ours);
        let roots = roots.filter_map(|target| target["src_path"].as_str());
        let found_crate = Crate {
            purpose: package["description"].as_str().unwrap_or_default().into(),
            needs,
            roots: roots.map(PathBuf::from).collect(),
            name: name.clone(),
        };
        found.insert(name, found_crate);
    }
    Ok(found)
}

fn metadata(manifest: &Path) -> Result<Vec<Value>> {
    let output = shell::cargo()
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value: Value = serde_json::from_slice(&output.stdout)?;
    Ok(value["packages"].as_array().cloned().unwrap_or_default())
}

/// The crates from the bottom to the top: none needs one that comes later.
fn table(crates: &BTreeMap<String, Crate>) -> String {
    fn height<'c>(
        name: &'c str,
        crates: &'c BTreeMap<String, Crate>,
        path: &mut Vec<&'c str>,
    ) -> usize {
        if path.contains(&name) {
            // A circle, which is said elsewhere.
            return 0;
        }
        path.push(name);
        let needs = crates.get(name).map(|found| &found.needs);
        let needs = needs.into_iter().flatten();
        let heights = needs.map(|need| 1 + height(need, crates, path));
        let height = heights.max().unwrap_or(0);
        path.pop();
        height
    }
    let is_shown = |name: &&String| !["tests", "xtask"].contains(&name.as_str());
    let mut order: Vec<(usize, &String)> = crates
        .keys()
        .filter(is_shown)
        .map(|name| (height(name, crates, &mut Vec::new()), name))
        .collect();
    order.sort();
    let mut text = String::from("| crate | responsibility | depends on |\n|---|---|---|\n");
    for (_, name) in order {
        let found = &crates[name];
        let plain = |need: &&String| (name.as_str(), need.as_str()) != EMBEDDED;
        let quoted = found.needs.iter().filter(plain);
        let quoted: Vec<String> = quoted.map(|need| format!("`{need}`")).collect();
        let mut needs = quoted.join(", ");
        if name == EMBEDDED.0 {
            let _ = write!(needs, "; embeds the built `{}`", EMBEDDED.1);
        }
        let _ = writeln!(text, "| `{name}` | {} | {needs} |", found.purpose);
    }
    text.replace("|  |", "| |")
}

/// Sets of nodes of which each reaches all others, larger than one.
fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for next in edges.get(node).into_iter().flatten() {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|node| (node, reached(node))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (node, reach) in &reached {
        if reach.contains(node) {
            let back = |other: &&&String| reached.get(**other).is_some_and(|r| r.contains(node));
            found.insert(
                reach
                    .iter()
                    .filter(back)
                    .map(|&other| other.clone())
                    .collect(),
            );
        }
    }
    found.into_iter().collect()
}

/// A circle in words: its members, and which of them each names.
fn told(of: &str, circle: &BTreeSet<String>, edges: &Edges) -> String {
    let mut text = format!("{of}: {} in a circle\n", circle.len());
    for node in circle {
        let inside = edges[node].intersection(circle);
        let inside: Vec<&str> = inside.map(String::as_str).collect();
        let _ = writeln!(text, "  {node} names {}", inside.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &str)]) -> Edges {
        let mut edges = Edges::new();
        for (from, to) in pairs {
            edges
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
            edges.entry((*to).into()).or_default();
        }
        edges
    }

    #[test]
    fn circles_are_found_and_what_only_leads_to_one_is_none() {
        assert!(circles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = circles(&edges(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "b"),
            ("c", "d"),
            ("x", "y"),
            ("y", "x"),
        ]));
        let names: Vec<String> = found
            .iter()
            .map(|circle| circle.iter().map(String::as_str).collect())
            .collect();
        assert_eq!(names, ["bc", "xy"]);
    }

    /// What `cargo xtask test` runs as a step of its own is a test here, too: whoever runs the
    /// tests alone sees it.
    #[test]
    fn the_project_has_no_circle_and_its_table_is_true() {
        graph().unwrap();
    }
}
