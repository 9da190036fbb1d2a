//! `include/*.h`: they compile everywhere without a warning, and natively do nothing.

mod support;

use std::process::Command;
use support::{compilers, count_requests, include, run, scratch};

const C: &[&str] = &["c89", "gnu89", "c99", "c11", "gnu17", "c2x"];
const CPP: &[&str] = &["c++98", "c++11", "c++14", "c++17", "c++20"];

/// Does something with every compiler and every standard from `first_c` and `first_cpp` on.
fn everywhere(first_c: &str, first_cpp: &str, mut work: impl FnMut(support::Compiler, &str)) {
    for compiler in compilers() {
        let (all, first) = if compiler.cpp {
            (CPP, first_cpp)
        } else {
            (C, first_c)
        };
        for standard in all.iter().skip_while(|standard| **standard != first) {
            work(compiler, &format!("-std={standard}"));
        }
    }
}

#[test]
fn requests_do_nothing_natively() {
    everywhere("c89", "c++98", |compiler, standard| {
        // C casts are for C.
        let casts: &[&str] = if compiler.cpp {
            &["-Wold-style-cast"]
        } else {
            &[]
        };
        for optimisation in ["-O0", "-O2"] {
            let flags = [&[standard, optimisation], casts].concat();
            let program = compiler.compile("native.c", &flags, "native");
            assert_eq!(run(&program), "enabled 1\n");
            assert_eq!(count_requests(&program), 27, "{compiler:?} {flags:?}");

            let flags = [&flags[..], &["-DBROWNOUT_DISABLE"]].concat();
            let program = compiler.compile("native.c", &flags, "disabled");
            assert_eq!(run(&program), "enabled 0\n");
            assert_eq!(count_requests(&program), 0);
        }
    });
}

#[test]
fn pmtest_sources_compile_and_do_nothing_natively() {
    everywhere("c89", "c++98", |compiler, standard| {
        for name in ["pmtest_bare.c", "pmtest_release.c"] {
            run(&compiler.compile(name, &[standard], name));
        }
        let flags = [standard, "-DPMTEST_OPERATIONS_ARE_REAL"];
        run(&compiler.compile("pmtest_release.c", &flags, "pmtest_real"));
    });
    everywhere("c99", "c++11", |compiler, standard| {
        run(&compiler.compile("pmtest_calls.c", &[standard], "pmtest_calls"));
    });
}

#[test]
fn pmrace_sources_compile_and_do_nothing_natively() {
    everywhere("c89", "c++98", |compiler, standard| {
        run(&compiler.compile("pmrace_call.c", &[standard], "pmrace_call"));
    });
    everywhere("c99", "c++11", |compiler, standard| {
        run(&compiler.compile("pmrace_attribute.c", &[standard], "pmrace_attribute"));
    });
}

/// The seeded program that other suites run under the tool.
#[test]
fn the_annotated_list_works_natively() {
    let source = include().join("../tests/seeded/pmtest/pmtest_list.c");
    let source = source.to_str().expect("the workspace's path is UTF-8");
    for compiler in compilers().into_iter().filter(|compiler| !compiler.cpp) {
        let program = compiler.compile(source, &["-O2"], "pmtest_list");
        for mode in ["good", "bad"] {
            let status = Command::new(&program)
                .arg(scratch("pmtest_list.pool"))
                .arg(mode)
                .status()
                .expect("it starts");
            assert!(status.success(), "{compiler:?} {mode}: {status}");
        }
    }
}

#[test]
fn a_freestanding_unit_needs_no_other_header() {
    for compiler in compilers() {
        let kernel: &[&str] = &[
            "-c",
            "-ffreestanding",
            "-nostdlib",
            "-nostdinc",
            "-mno-red-zone",
            "-mcmodel=kernel",
            "-fno-pic",
        ];
        let object = compiler.compile("freestanding.c", kernel, "freestanding.o");
        assert_eq!(count_requests(&object), 4);
    }
}

#[test]
fn intel_syntax_gives_the_same_instructions() {
    for compiler in compilers() {
        let object = compiler.compile("freestanding.c", &["-c", "-masm=intel"], "intel.o");
        assert_eq!(count_requests(&object), 4, "{compiler:?}");
    }
}

#[test]
fn other_architectures_get_empty_functions() {
    for compiler in compilers() {
        for other in ["-m32", "-mx32"] {
            let flags = ["-c", "-ffreestanding", "-nostdinc", other];
            let object = compiler.compile("freestanding.c", &flags, "other.o");
            assert_eq!(count_requests(&object), 0);
        }
    }
}

#[test]
fn compilers_keep_stores_on_their_side_of_a_request() {
    for compiler in compilers() {
        let assembly = compiler.compile("order.c", &["-S", "-O3"], "order.s");
        let text = std::fs::read_to_string(assembly).expect("it was just made");
        let found: Vec<&str> = ["$4369", "xchg", "$8738", "xchg", "$13107"]
            .iter()
            .scan(&text[..], |rest, what| {
                let at = rest.find(what)?;
                *rest = &rest[at + what.len()..];
                Some(*what)
            })
            .collect();
        assert_eq!(found.len(), 5, "{compiler:?}: found {found:?} in\n{text}");
    }
}

/// The canary: with these flags a warning is an error.
#[test]
fn warnings_would_be_seen() {
    for compiler in compilers() {
        let flags = [support::WARNINGS, &["-c"]].concat();
        let result = compiler.try_compile("canary.c", &flags, &scratch("canary.o"));
        let message = result.expect_err("it narrows a length");
        assert!(
            message.contains("-Wconversion") || message.contains("-Wshorten-64-to-32"),
            "{message}"
        );
    }
}
