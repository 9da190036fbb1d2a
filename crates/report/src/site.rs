//! Which frame of a stack stands for it.
//!
//! A store that `memcpy` makes is not `memcpy`'s fault. So the *cause* of an event is the innermost frame outside the
//! libraries that only carry out what their caller asks for, and the *site* to show is the innermost one from there on
//! that has a source line. What lies outside `main` belongs to the C library or to a language's start-up code; it
//! says nothing, and differs between systems.

use std::path::{Component, Path, PathBuf};

use brownout_findings::{Event, Finding, Frame};

use crate::text::{base_name, visible};

/// Libraries whose functions store, write back and fence on behalf of a caller.
const PRIMITIVES: [&str; 5] = ["libc", "libpmem", "libpmem2", "ld-linux-x86-64", "[vdso]"];

/// Libraries that PM programs are built on. Without debug information their inside tells their user nothing.
const FOUNDATIONS: [&str; 4] = ["libpmemobj", "libpmemlog", "libpmemblk", "libpmempool"];

/// True if what an event did was done inside such a library, on its own account or its caller's.
pub fn in_foundation(stack: &[Frame]) -> bool {
    let acting = stack.iter().find(|frame| !is_tool(frame));
    acting.is_some_and(|frame| frame.line.is_none() && FOUNDATIONS.contains(&stem(frame)))
}

fn is_primitive(frame: &Frame) -> bool {
    is_tool(frame) || frame.line.is_none() && FOUNDATIONS.contains(&stem(frame))
}

/// The name of the frame's library, without version; empty if it has none.
fn stem(frame: &Frame) -> &str {
    let name = base_name(frame.module.as_deref().unwrap_or_default());
    // `libc.so.6`, and `libc-2.31.so` as older systems call it.
    let stem = name.split(".so").next().unwrap_or(name);
    match stem.split_once("libc-") {
        Some(("", version)) if version.starts_with(|c: char| c.is_ascii_digit()) => "libc",
        _ => stem,
    }
}

fn is_tool(frame: &Frame) -> bool {
    frame.is_standard_library() || PRIMITIVES.contains(&stem(frame))
}

/// The frames up to `main`.
pub fn inside_main(stack: &[Frame]) -> &[Frame] {
    for (at, frame) in stack.iter().enumerate() {
        match frame.function.as_deref() {
            Some("main") => return &stack[..=at],
            // How Rust's standard library marks the end of the program's own frames.
            Some(name) if at > 0 && name.contains("__rust_begin_short_backtrace") => {
                let own = stack[..at].iter().rposition(|f| !f.is_standard_library());
                return &stack[..own.map_or(at, |last| last + 1)];
            }
            _ => {}
        }
    }
    stack
}

/// Index of the frame whose code is responsible.
pub fn cause(stack: &[Frame]) -> Option<usize> {
    let own = inside_main(stack).iter().position(|f| !is_primitive(f));
    own.or(match stack.is_empty() {
        true => None,
        false => Some(0),
    })
}

/// Index of the frame to show.
pub fn site(stack: &[Frame]) -> Option<usize> {
    let cause = cause(stack)?;
    let with_line = inside_main(stack)
        .iter()
        .skip(cause)
        .position(|frame| frame.file.is_some() && frame.line.is_some());
    Some(cause + with_line.unwrap_or(0))
}

/// The event that names the cause of a finding: its first store, else its first event.
pub fn causing_event(finding: &Finding) -> Option<&Event> {
    let store = finding.events.iter().find(|event| event.role == "store");
    store.or(finding.events.first())
}

/// The frame to show for a finding as a whole, if any of its events has one.
pub fn of_finding(finding: &Finding) -> Option<&Frame> {
    finding
        .all_events()
        .find_map(|event| Some(&event.stack[site(&event.stack)?]))
}

/// The path without `.` and `..`, as far as names alone tell.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(out.components().next_back(), Some(Component::Normal(_))) =>
            {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            part => out.push(part),
        }
    }
    match out.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => out,
    }
}

/// The path relative to the folder if it lies below it.
pub fn below(path: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let path = normal(Path::new(path));
    let inside = match path.is_absolute() {
        true => path.strip_prefix(normal(folder?)).ok()?.to_path_buf(),
        false => path,
    };
    let first = inside.components().next()?;
    (!matches!(first, Component::ParentDir | Component::CurDir)).then_some(inside)
}

/// The path as people want to see it, harmless.
pub fn shown_path(path: &str, folder: Option<&Path>) -> String {
    match below(path, folder) {
        Some(inside) => visible(&inside.to_string_lossy()).into_owned(),
        None => visible(path).into_owned(),
    }
}

/// `file:line:column`, `module+0x12`, `0x12`: the place of a frame, without its function.
pub fn place(frame: &Frame, folder: Option<&Path>, column: bool) -> String {
    let Some(file) = &frame.file else {
        return match &frame.module {
            Some(module) => format!("{}+{:#x}", visible(base_name(module)), frame.offset),
            None => format!("{:#x}", frame.offset),
        };
    };
    let mut out = shown_path(file, folder);
    if let Some(line) = frame.line {
        out += &format!(":{line}");
        if let Some(at) = frame.column.filter(|_| column) {
            out += &format!(":{at}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str, line: Option<u32>) -> Frame {
        Frame {
            function: Some(function.into()),
            file: line.map(|_| "a.c".into()),
            line,
            module: Some(module.into()),
            ..Frame::default()
        }
    }

    #[test]
    fn copy_routines_are_not_the_cause() {
        let stack = [
            frame("__memmove_avx", "/usr/lib/libc.so.6", Some(3)),
            frame("pmem_memcpy", "/usr/lib/libpmem.so.1.0.0", None),
            frame("tx_commit", "/usr/lib/libpmemobj.so.1", None),
            frame("insert", "/bin/prog", Some(7)),
            frame("main", "/bin/prog", Some(9)),
            frame("__libc_start_main", "/usr/lib/libc.so.6", None),
        ];
        assert_eq!((cause(&stack), site(&stack)), (Some(3), Some(3)));
        assert!(in_foundation(&stack) && !in_foundation(&stack[3..]));
        // Who has the library's sources is its author.
        let mut with_lines = stack.clone();
        with_lines[2].line = Some(410);
        assert_eq!(cause(&with_lines), Some(2));
        assert!(!in_foundation(&with_lines));
        assert_eq!(inside_main(&stack).len(), 5);
        assert_eq!((cause(&stack[..2]), site(&stack[..2])), (Some(0), Some(0)));
        assert_eq!((cause(&[]), site(&[])), (None, None));
        let old = [
            frame("memcpy", "/lib/libc-2.31.so", None),
            frame("f", "libc-helper.so", None),
        ];
        assert_eq!(cause(&old), Some(1));
    }

    #[test]
    fn standard_libraries_are_not_the_cause() {
        let from = |function: &str, file: &str| Frame {
            file: Some(file.into()),
            ..frame(function, "/bin/prog", Some(3))
        };
        let copy = "/rustc/59807616e1fa/library/core/src/slice/mod.rs";
        for library in [
            copy,
            "/home/u/toolchain/lib/rustlib/src/rust/library/core/src/ptr/mod.rs",
            "/opt/gcc-14/include/c++/14/bits/stl_algobase.h",
            "/usr/lib/gcc/x86_64-linux-gnu/12/include/clwbintrin.h",
        ] {
            let stack = [
                frame("memcpy", "/usr/lib/libc.so.6", None),
                from("copy", library),
                from("append", "/home/u/p/src/main.rs"),
                from("main", "/home/u/p/src/main.rs"),
            ];
            assert_eq!(site(&stack), Some(2), "{library}");
        }
        // How a Rust program's `main` is called.
        let stack = [
            from("prog::main", "/home/u/p/src/main.rs"),
            from("core::ops::function::FnOnce::call_once", copy),
            from("std::sys::backtrace::__rust_begin_short_backtrace", copy),
            frame("main", "/bin/prog", None),
        ];
        assert_eq!(inside_main(&stack), &stack[..1]);
        assert_eq!(inside_main(&stack[1..]), &stack[1..2]);
        // A project may have folders of such names.
        assert_eq!(site(&[from("f", "/home/u/rustc/library/a.rs")]), Some(0));
        let own = [from("f", "/home/u/library/a.rs"), from("main", copy)];
        assert_eq!(site(&own), Some(0));
    }

    #[test]
    fn paths_below_the_folder_are_relative() {
        let folder = Some(Path::new("/home/u/p/"));
        assert_eq!(shown_path("/home/u/p/src/../inc/a.h", folder), "inc/a.h");
        assert_eq!(shown_path("/home/u/p2/a.c", folder), "/home/u/p2/a.c");
        assert_eq!(shown_path("./a.c", None), "a.c");
        assert_eq!(below("../a.c", folder), None);
        assert_eq!(below("/home/u/p", folder), None);
        assert_eq!(below("", folder), None);
        assert_eq!(normal(Path::new("/../a")), Path::new("/a"));
    }
}
