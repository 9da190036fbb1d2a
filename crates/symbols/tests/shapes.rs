//! What stores are called, in programs that are compiled here with several compilers and levels.
//!
//! Every instruction of a function is asked about, and what comes of it is judged: the name that
//! must be there is, and no other one of the same member's kind is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use brownout_symbols::{Accessed, CodeAddr, Options, Symbolizer};
use brownout_trace::event::{ProcessId, TargetAddr};

const PROCESS: ProcessId = ProcessId(1);

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// So that addresses are those of the file.
const C_FLAGS: &[&str] = &["-g", "-no-pie", "-fcf-protection=none"];
const RUST_FLAGS: &[&str] = &["-g", "--edition=2024", "-Crelocation-model=static"];

/// The names of what the instructions of each function store to outside of their own frame, in
/// their order; `?` where there is none.
fn stores(folder: &Path, compiler: &str, flags: &[&str]) -> BTreeMap<String, Vec<String>> {
    let program: PathBuf = folder.join("shapes");
    let program = program.to_str().unwrap();
    let targets = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/targets/shapes");
    let (source, fixed) = match compiler {
        "rustc" => (format!("{targets}.rs"), RUST_FLAGS),
        _ => (format!("{targets}.c"), C_FLAGS),
    };
    let args = [flags, fixed, &[&source, "-o", program]].concat();
    output(compiler, &args);
    let mut symbolizer = Symbolizer::new(Options {
        debug_roots: vec![],
        debuginfod_cache: None,
        names_only: Vec::new(),
    });
    // Of a program without relocation, addresses are those of the file; its code lies where the
    // segment says.
    let headers = output("readelf", &["-lW", program]);
    let code = headers
        .lines()
        .find(|line| line.contains("LOAD") && line.contains("R E"))
        .unwrap();
    let fields: Vec<u64> = code
        .split_ascii_whitespace()
        .filter_map(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok())
        .collect();
    let [offset, addr, _, size, ..] = fields[..] else {
        panic!("{code}");
    };
    symbolizer.add_module(PROCESS, TargetAddr(addr), size, offset, program.as_bytes());

    let listing = output(
        "objdump",
        &["-d", "--no-show-raw-insn", "-M", "intel", program],
    );
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut function = String::new();
    for line in listing.lines() {
        if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            function = name.trim_end_matches(">:").to_owned();
        }
        let Some((pc, text)) = line.split_once(":\t") else {
            continue;
        };
        let (destination, _) = text.split_once(',').unwrap_or((text, ""));
        let is_store = destination.contains("PTR [")
            && ["mov", "and", "or", "add"]
                .iter()
                .any(|name| text.starts_with(name));
        // Its own frame, and variables.
        let is_own = ["[rbp", "[rsp", "[rip"]
            .iter()
            .any(|base| destination.contains(base))
            || text.contains("ds:");
        if !is_store || is_own {
            continue;
        }
        let pc = TargetAddr(u64::from_str_radix(pc.trim(), 16).unwrap());
        let place = symbolizer.locate(PROCESS, CodeAddr::Pc(pc));
        let name = symbolizer
            .accessed_at(place)
            .map_or("?".to_owned(), |Accessed { name, .. }| name);
        found.entry(function.clone()).or_default().push(name);
    }
    found
}

/// What each function stores to: the names that may be said, and whether one must be.
const EXPECTED: [(&str, &[&str], bool); 16] = [
    ("member", &["node->count"], true),
    ("through_a_global", &["root->count"], true),
    ("element", &["map->buckets[3].key"], true),
    // The register of the index may hold a multiple of it when the store is made.
    (
        "element_by_variable",
        &["map->buckets[i].key", "map->buckets[…].key"],
        true,
    ),
    (
        "element_of_pointer",
        &["bucket[i].value", "bucket[…].value"],
        true,
    ),
    ("two_pointers", &["map->first->count"], true),
    ("whole_union", &["node->both", "node->both.whole"], true),
    ("half_of_a_union", &["node->both.half"], true),
    ("of_number", &["*number"], true),
    // Nothing is certain about these.
    ("either_of_a_union", &[], false),
    ("bits", &[], false),
    ("beyond", &[], false),
    ("by_cast", &[], false),
    ("used_again", &["node->count"], false),
    ("stale", &["map->first", "old->count"], false),
    ("joined", &["a->count", "b->count"], false),
];

/// The same in Rust.
const EXPECTED_IN_RUST: [(&str, &[&str], bool); 6] = [
    ("member", &["self.count"], true),
    ("element", &["self.slots[9].key"], true),
    (
        "element_by_variable",
        &["self.slots[index].key", "self.slots[…].key"],
        true,
    ),
    // Nothing is certain about the first; if the others have a name, it is this one.
    ("twice", &[], false),
    ("either", &["chosen.count"], false),
    ("stale", &["root.count"], false),
];

fn judged(compiler: &str, flags: &[&str]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let found = stores(folder.path(), compiler, flags);
    let mut named = 0;
    let expected = match compiler {
        "rustc" => &EXPECTED_IN_RUST[..],
        _ => &EXPECTED,
    };
    for (function, may, must) in expected {
        let names = found.get(*function).map_or(&[][..], Vec::as_slice);
        let said: Vec<&String> = names.iter().filter(|name| *name != "?").collect();
        named += said.len();
        let context = format!("{compiler} {flags:?}: {function}: {names:?}");
        assert!(!names.is_empty(), "no store is there: {context}");
        for name in &said {
            assert!(may.contains(&name.as_str()), "{context}");
        }
        assert!(!*must || said.len() == names.len(), "{context}");
    }
    named
}

#[test]
fn without_optimisation_members_have_their_names() {
    assert!(judged("gcc", &["-O0"]) >= 12);
    assert!(judged("gcc", &["-O0", "-fomit-frame-pointer"]) >= 12);
}

/// Where the code does not take variables from where debug information says that they are.
#[test]
fn members_have_their_names_in_rust() {
    assert!(judged("rustc", &[]) >= 3);
    assert!(judged("rustc", &["-Coverflow-checks=off"]) >= 3);
}

#[test]
fn optimised_members_have_their_names() {
    for level in ["-O1", "-O2", "-O3"] {
        assert!(judged("gcc", &[level]) >= 10);
    }
    assert!(judged("gcc", &["-O2", "-gdwarf-4"]) >= 10);
}
