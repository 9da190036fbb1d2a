//! Whose frame is it: which frame of a stack stands for what an event did.
//!
//! **Purpose.** A store that `memcpy` makes is not `memcpy`'s doing. Whoever names a place (a
//! headline, a suggestion, a cause) asks here, so that all name the same.
//!
//! | frame | whose doing |
//! |---|---|
//! | the C library, libpmem, the vDSO | the caller's: they carry out what they are asked for |
//! | headers of the system and of compilers, the standard libraries of C++ and Rust | the caller's, likewise |
//! | libpmemobj and its kin without source lines | the caller's: their inside tells their user nothing |
//! | libpmemobj and its kin with source lines | its own: whoever has those is their author |
//! | everything else, the program's own headers included | its own |
//!
//! The *cause* of an event is the innermost frame that is not its caller's doing. The *site* to
//! show is the innermost one from there on that has a source line. What lies outside `main` belongs
//! to the C library or to a language's start-up code; it says nothing, and differs between systems.
//!
//! **Guarantee.** Every stack that is not empty has a cause and a site.

use crate::{Event, Finding, Frame, Role};

/// Libraries whose functions store, write back and fence on behalf of a caller.
const PRIMITIVES: [&str; 5] = ["libc", "libpmem", "libpmem2", "ld-linux-x86-64", "[vdso]"];

/// Libraries that PM programs are built on. Without debug information their inside tells their user
/// nothing.
const FOUNDATIONS: [&str; 4] = ["libpmemobj", "libpmemlog", "libpmemblk", "libpmempool"];

/// How the names of headers end.
const HEADERS: [&str; 7] = [".h", ".hh", ".hpp", ".hxx", ".h++", ".inl", ".tcc"];

/// True if what an event did was done inside such a library, on its own account or its caller's.
pub fn in_foundation(stack: &[Frame]) -> bool {
    let acting = stack.iter().find(|frame| !is_tool(frame));
    acting.is_some_and(|frame| frame.line.is_none() && FOUNDATIONS.contains(&stem(frame)))
}

/// Code of the C library or its loader, as a library.
pub fn is_c_library(frame: &Frame) -> bool {
    matches!(stem(frame), "libc" | "ld-linux-x86-64")
}

/// Code that is defined where it is included.
pub fn is_header(frame: &Frame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    HEADERS.iter().any(|end| file.ends_with(end))
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

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Functions of the C library that call `main`, or what a thread begins with.
fn starts_program(name: &str) -> bool {
    name.starts_with("__libc_start")
        || matches!(
            name,
            "start_thread" | "clone" | "__clone" | "clone3" | "__clone3"
        )
}

/// The frames up to `main`, which has no name in a stripped program; or up to what a thread begins
/// with.
pub fn inside_main(stack: &[Frame]) -> &[Frame] {
    for (at, frame) in stack.iter().enumerate() {
        match frame.function.as_deref() {
            Some("main") => return &stack[..=at],
            Some(name) if at > 0 && is_c_library(frame) && starts_program(name) => {
                return &stack[..at];
            }
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
        .position(|frame| frame.file.is_some() && frame.line.is_some() && !is_tool(frame));
    Some(cause + with_line.unwrap_or(0))
}

/// The frame to show.
pub fn frame(stack: &[Frame]) -> Option<&Frame> {
    Some(&stack[site(stack)?])
}

/// Where the code that includes a header asks for what is done there: the first frame around the
/// site that is in no header. None if the site is in none itself.
pub fn including(stack: &[Frame]) -> Option<&Frame> {
    let at = site(stack)?;
    if !is_header(&stack[at]) {
        return None;
    }
    let around = inside_main(stack).get(at + 1..)?.iter();
    around
        .filter(|frame| frame.line.is_some() && !is_primitive(frame))
        .find(|frame| !is_header(frame))
}

/// The event that names the cause of a finding: its first store, else its first event.
pub fn causing_event(finding: &Finding) -> Option<&Event> {
    let store = finding
        .events
        .iter()
        .find(|event| matches!(event.role, Role::Store | Role::Survivor));
    store.or(finding.events.first())
}

/// `list.c:41`, `push()`, `libx.so+0x12`, `0x12`: the best that is known, in few words.
pub fn spoken(frame: &Frame) -> String {
    match (&frame.file, frame.line, &frame.function, &frame.module) {
        (Some(file), Some(line), _, _) => format!("{}:{line}", base_name(file)),
        // A demangled name of C++ has its parameters already.
        (_, _, Some(function), _) if function.contains('(') => function.clone(),
        (_, _, Some(function), _) => format!("{function}()"),
        (_, _, _, Some(module)) => format!("{}+{:#x}", base_name(module), frame.offset),
        _ => format!("{:#x}", frame.offset),
    }
}

/// As [`spoken`], of the frame to show. What is in a header is done for somebody, who is named,
/// too: `pm.h:7, for list.c:41`.
pub fn place(stack: &[Frame]) -> String {
    match (frame(stack), including(stack)) {
        (Some(site), Some(user)) => format!("{}, for {}", spoken(site), spoken(user)),
        (Some(site), None) => spoken(site),
        (None, _) => "an unknown place".into(),
    }
}

/// As [`spoken`], of the frame in which something can be mended: what a header does, it does for
/// whoever includes it.
pub fn mended_at(stack: &[Frame]) -> String {
    match including(stack) {
        Some(user) => spoken(user),
        None => place(stack),
    }
}

/// Function and line to tell causes apart; in a header, also those of the code that includes it.
pub fn line(stack: &[Frame]) -> String {
    let whole = |frame: &Frame| {
        let function = frame.function.as_deref().unwrap_or("?");
        match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{file}:{line} {function}"),
            _ => {
                let module = frame.module.as_deref().unwrap_or("?");
                format!("{module} {function}+{:#x}", frame.offset)
            }
        }
    };
    match (frame(stack), including(stack)) {
        (Some(site), Some(user)) => format!("{} < {}", whole(site), whole(user)),
        (Some(site), None) => whole(site),
        (None, _) => "the end of the run".into(),
    }
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

    fn from(function: &str, file: &str, line: u32) -> Frame {
        Frame {
            file: Some(file.into()),
            ..frame(function, "/bin/prog", Some(line))
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
        // A stripped program, and a C library that is not.
        let stripped = [
            frame("memcpy", "/usr/lib/libc.so.6", Some(3)),
            frame("gdbm_store", "/usr/lib/libgdbm.so.6", None),
            Frame {
                function: None,
                ..frame("", "/usr/bin/tool", None)
            },
            frame("__libc_start_call_main", "/usr/lib/libc.so.6", Some(58)),
        ];
        assert_eq!((cause(&stripped), site(&stripped)), (Some(1), Some(1)));
        let sorted = [
            frame("compare", "/usr/lib/libx.so.6", None),
            frame("qsort", "/usr/lib/libc.so.6", Some(58)),
            frame("main", "/bin/prog", Some(7)),
        ];
        assert_eq!((cause(&sorted), site(&sorted)), (Some(0), Some(2)));
        let old = [
            frame("memcpy", "/lib/libc-2.31.so", None),
            frame("f", "libc-helper.so", None),
        ];
        assert_eq!(cause(&old), Some(1));
    }

    #[test]
    fn functions_are_named_as_what_they_are() {
        let spoken = |function: &str| spoken(&frame(function, "/lib/libx.so.6", None));
        assert_eq!(spoken("push"), "push()");
        assert_eq!(spoken("File::write(long) const"), "File::write(long) const");
    }

    #[test]
    fn standard_libraries_are_not_the_cause() {
        let copy = "/rustc/59807616e1fa/library/core/src/slice/mod.rs";
        for library in [
            copy,
            "/home/u/toolchain/lib/rustlib/src/rust/library/core/src/ptr/mod.rs",
            "/opt/gcc-14/include/c++/14/bits/stl_algobase.h",
            "/usr/lib/gcc/x86_64-linux-gnu/12/include/clwbintrin.h",
            "/usr/local/include/libpmemobj++/p.hpp",
        ] {
            let stack = [
                frame("memcpy", "/usr/lib/libc.so.6", None),
                from("copy", library, 3),
                from("append", "/home/u/p/src/main.rs", 3),
                from("main", "/home/u/p/src/main.rs", 3),
            ];
            assert_eq!(site(&stack), Some(2), "{library}");
        }
        // How a Rust program's `main` is called.
        let stack = [
            from("prog::main", "/home/u/p/src/main.rs", 3),
            from("core::ops::function::FnOnce::call_once", copy, 3),
            from("std::sys::backtrace::__rust_begin_short_backtrace", copy, 3),
            frame("main", "/bin/prog", None),
        ];
        assert_eq!(inside_main(&stack), &stack[..1]);
        assert_eq!(inside_main(&stack[1..]), &stack[1..2]);
        // A project may have folders of such names.
        assert_eq!(site(&[from("f", "/home/u/rustc/library/a.rs", 3)]), Some(0));
        let own = [from("f", "/home/u/library/a.rs", 3), from("main", copy, 3)];
        assert_eq!(site(&own), Some(0));
    }

    #[test]
    fn the_program_s_own_header_is_named_and_so_is_who_includes_it() {
        let stack = [
            from(
                "_mm_stream_si64",
                "/usr/lib/gcc/x86_64-linux-gnu/12/include/emmintrin.h",
                9,
            ),
            from("pm_store", "/home/u/p/include/pm.h", 7),
            from("pm_set", "/home/u/p/include/pm.h", 12),
            from("push", "/home/u/p/list.c", 41),
            from("main", "/home/u/p/main.c", 5),
        ];
        assert_eq!(site(&stack), Some(1));
        assert_eq!(place(&stack), "pm.h:7, for list.c:41");
        assert_eq!(mended_at(&stack), "list.c:41");
        assert_eq!(
            line(&stack),
            "/home/u/p/include/pm.h:7 pm_store < /home/u/p/list.c:41 push"
        );
        assert_eq!(place(&stack[3..]), "list.c:41");
        assert_eq!(line(&stack[3..]), "/home/u/p/list.c:41 push");
        // A program may consist of nothing else.
        assert_eq!(place(&stack[..3]), "pm.h:7");
        assert_eq!(
            (place(&[]).as_str(), line(&[]).as_str()),
            ("an unknown place", "the end of the run")
        );
        assert_eq!(place(&[frame("f", "/lib/libx.so", None)]), "f()");
        let bare = Frame {
            module: Some("/lib/libx.so".into()),
            offset: 0x12,
            ..Frame::default()
        };
        assert_eq!(spoken(&bare), "libx.so+0x12");
    }
}
