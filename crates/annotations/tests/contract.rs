//! The numbers and arguments of the bindings are those of `brownout_requests::annotation`.

mod support;

use brownout_annotations::code;
use brownout_requests::annotation;
use std::collections::BTreeMap;
use std::fs;
use support::tool::{receive, Received};
use support::{compile_rust, compilers, count_requests, include};

/// Names and numbers in the two modules, for names that both must have.
macro_rules! both {
    ($($name:ident)*) => {
        [$((stringify!($name), u64::from(annotation::$name), u64::from(code::$name))),*]
    };
}

/// `(name, abi, crate)`.
fn numbers() -> Vec<(&'static str, u64, u64)> {
    let mut numbers = both! {
        RUNNING START STOP EXCLUDE INCLUDE IS_PERSISTED IS_ORDERED_BEFORE TX_BEGIN TX_END TX_ADD TX_ONLY SECTION_BEGIN
        SECTION_END CHECKPOINT OFENCE DFENCE STORE FLUSH FENCE TX_ALLOC SET_CLEAN SYNC_VAR
        REGISTER_VARIABLE UNREGISTER_VARIABLE FIND_VARIABLE MARKER MUST_HOLD
    }
    .to_vec();
    numbers.push(("INTERFACE", annotation::INTERFACE, code::INTERFACE));
    numbers.push(("BASE", brownout_requests::ANNOTATION_BASE, code::BASE));
    numbers
}

/// `NAME = NUMBER` in a text, where `prefix` comes before the name.
fn definitions(text: &str, prefix: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(prefix)?.1.split_once(" = ")?;
            let name = left.split(':').next()?;
            let number: String = right
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .filter(|c| *c != '_')
                .collect();
            let number = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => number.parse(),
            };
            Some((name.to_owned(), number.ok()?))
        })
        .collect()
}

#[test]
fn numbers_agree_name_by_name() {
    let contract: BTreeMap<String, u64> = numbers()
        .into_iter()
        .map(|(name, number, ours)| {
            assert_eq!(number, ours, "{name}");
            (name.to_owned(), number)
        })
        .collect();

    let header = fs::read_to_string(include().join("brownout.h")).expect("the header");
    let mut header_names = definitions(&header, "    BROWNOUT_");
    header_names.extend(definitions(&header, "{ BROWNOUT_"));
    assert_eq!(
        header_names, contract,
        "left: brownout.h, right: crates/requests"
    );

    // A number that is added there must come here.
    let source = include_str!("../../requests/src/lib.rs");
    let (_, module) = source
        .split_once("pub mod annotation {")
        .expect("the module is still called that");
    let mut module = definitions(module, "    pub const ");
    module.insert("BASE".to_owned(), brownout_requests::ANNOTATION_BASE);
    assert_eq!(
        module, contract,
        "left: the source of crates/requests, right: this test"
    );
}

/// What `requests.c` and `requests.rs` ask for.
fn all_requests() -> Vec<Received> {
    use annotation::*;
    let plain = |code: u32, args: &[u64]| {
        let mut all = [0; 5];
        all[..args.len()].copy_from_slice(args);
        Received {
            code,
            args: all,
            text: String::new(),
        }
    };
    let named = |code: u32, text: &str, args: &[u64]| Received {
        text: text.to_owned(),
        ..plain(code, &[&[0], args].concat())
    };
    vec![
        plain(RUNNING, &[]),
        plain(START, &[]),
        plain(STOP, &[]),
        plain(EXCLUDE, &[0x1000, 0x11]),
        plain(INCLUDE, &[0x1000, 0x12]),
        plain(IS_PERSISTED, &[0x1000, 0x13]),
        plain(IS_ORDERED_BEFORE, &[0x1000, 0x14, 0x2000, 0x15]),
        plain(TX_BEGIN, &[]),
        plain(TX_ADD, &[0x1000, 0x16]),
        plain(TX_ALLOC, &[0x1000, 0x17]),
        plain(TX_ONLY, &[0x1000, 0x18]),
        plain(TX_END, &[]),
        plain(SECTION_BEGIN, &[]),
        plain(SECTION_END, &[]),
        plain(CHECKPOINT, &[]),
        plain(OFENCE, &[]),
        plain(DFENCE, &[]),
        plain(STORE, &[0x1000, 0x19]),
        plain(FLUSH, &[0x1000, 0x1a]),
        plain(FENCE, &[]),
        plain(SET_CLEAN, &[0x1000, 0x1b]),
        plain(SYNC_VAR, &[0x1000, 8, 0xffff_ffff_ffff_fffe]),
        named(REGISTER_VARIABLE, "a name", &[0x1000, 0x1c]),
        named(FIND_VARIABLE, "a name", &[]),
        named(UNREGISTER_VARIABLE, "a name", &[]),
        named(MARKER, "a marker", &[]),
        named(MUST_HOLD, "a condition", &[1]),
        named(MUST_HOLD, "another", &[0]),
    ]
}

fn answer(code: u32) -> u64 {
    match code {
        annotation::RUNNING => annotation::INTERFACE,
        annotation::CHECKPOINT => 5,
        _ => 0,
    }
}

#[test]
fn requests_of_c_arrive_with_their_arguments() {
    for compiler in compilers() {
        for optimisation in ["-O0", "-O3"] {
            let program = compiler.compile("requests.c", &[optimisation], "requests");
            let received = receive(&program, true, answer);
            assert_eq!(received, all_requests(), "{compiler:?} {optimisation}");
        }
    }
}

#[test]
fn requests_of_rust_arrive_with_their_arguments() {
    for optimisation in ["-Copt-level=0", "-Copt-level=3"] {
        let program = compile_rust("requests.rs", &[optimisation], "requests_rust");
        assert_eq!(receive(&program, true, answer), all_requests());
    }
}

#[test]
fn references_of_rust_mean_all_bytes_of_the_value() {
    let program = compile_rust("references.rs", &[], "references_rust");
    let received = receive(&program, true, answer);
    let ranges: Vec<&Received> = received
        .iter()
        .filter(|request| ![annotation::TX_BEGIN, annotation::TX_END].contains(&request.code))
        .collect();
    assert_eq!(ranges.len(), 20);
    for pair in ranges.chunks_exact(2) {
        assert_eq!(pair[0], pair[1]);
    }
    // 24 bytes of which the slice leaves out the first 8.
    assert_eq!(ranges.last().expect("not empty").args[2], 16);
    let nesting: Vec<u32> = received
        .iter()
        .map(|request| request.code)
        .filter(|code| [annotation::TX_BEGIN, annotation::TX_END].contains(code))
        .collect();
    let (begin, end) = (annotation::TX_BEGIN, annotation::TX_END);
    assert_eq!(nesting, [begin, begin, end, end]);
}

#[test]
fn the_feature_disable_leaves_no_request() {
    let program = compile_rust(
        "references.rs",
        &["--cfg=feature=\"disable\""],
        "disabled_rust",
    );
    assert_eq!(count_requests(&program), 0);
    support::run(&program);
}

#[test]
fn pmrace_name_asks_for_what_it_says() {
    // The attribute with two arguments says nothing.
    let calls = [(0x1000, 4, 0), (0x2000, 8, 2)].map(|(addr, len, initial)| Received {
        code: annotation::SYNC_VAR,
        args: [addr, len, initial, 0, 0],
        text: String::new(),
    });
    for compiler in compilers() {
        let received = |name: &str| receive(&compiler.compile(name, &[], name), false, |_| 0);
        assert_eq!(received("pmrace_call.c"), calls);
        assert_eq!(received("pmrace_attribute.c"), calls);
    }
}

#[test]
fn pmtest_names_ask_for_what_they_say() {
    use annotation::*;
    let bare = [
        START,
        SECTION_BEGIN,
        EXCLUDE,
        INCLUDE,
        IS_PERSISTED,
        IS_ORDERED_BEFORE,
        SECTION_END,
        REGISTER_VARIABLE,
        FIND_VARIABLE,
        UNREGISTER_VARIABLE,
        CHECKPOINT,
        STOP,
    ];
    let calls = [
        START,
        SECTION_BEGIN,
        SECTION_END,
        SECTION_BEGIN,
        SECTION_END,
        REGISTER_VARIABLE,
        FIND_VARIABLE,
        CHECKPOINT,
        STOP,
    ];
    let by_hand = [STORE, FLUSH, FENCE, FENCE, FENCE];
    let release = [
        START,
        SECTION_BEGIN,
        TX_ADD,
        STORE,
        FLUSH,
        FENCE,
        FENCE,
        FENCE,
        SECTION_END,
        EXCLUDE,
        INCLUDE,
        IS_PERSISTED,
        IS_ORDERED_BEFORE,
        STOP,
        CHECKPOINT,
        CHECKPOINT,
        REGISTER_VARIABLE,
        FIND_VARIABLE,
        UNREGISTER_VARIABLE,
    ];
    let real: Vec<u32> = release
        .into_iter()
        .filter(|code| !by_hand.contains(code))
        .collect();
    for compiler in compilers() {
        let codes = |name: &str, flags: &[&str]| -> Vec<u32> {
            receive(&compiler.compile(name, flags, name), false, |_| 0)
                .iter()
                .map(|request| request.code)
                .collect()
        };
        assert_eq!(codes("pmtest_bare.c", &[]), bare);
        assert_eq!(codes("pmtest_calls.c", &[]), calls);
        assert_eq!(codes("pmtest_release.c", &[]), release);
        let flags = ["-DPMTEST_OPERATIONS_ARE_REAL"];
        assert_eq!(codes("pmtest_release.c", &flags), real);
    }
}
