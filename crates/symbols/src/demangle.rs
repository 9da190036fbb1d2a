//! Names as the programmer wrote them.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Longer names are shown as they are: demangling work and output can grow faster than the input,
/// and nobody reads a name of this size. The longest real names (expression templates) reach a few
/// thousand bytes.
const MANGLED_LEN_MAX: usize = 16 * 1024;

/// Substitutions let a short mangled name stand for an exponentially long one; stop there.
const DEMANGLED_LEN_MAX: usize = 64 * 1024;

/// Demangles a C++ (Itanium) or Rust (legacy and v0) symbol name; any other name comes back as it
/// is.
///
/// The hash at the end of legacy Rust names is dropped, and so is a symbol version (`f@@V_1.2`).
pub fn demangle(name: &str) -> Cow<'_, str> {
    let name = match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    };
    if name.len() > MANGLED_LEN_MAX {
        return Cow::Borrowed(name);
    }
    let mut out = Bounded(String::new());
    let done = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(out, "{rust:#}")
    } else if let Some(symbol) = cpp(name) {
        symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default())
    } else {
        return Cow::Borrowed(name);
    };
    // An error says that the name is nonsense further in, or that the text reached its bound.
    match done {
        Ok(()) => Cow::Owned(out.0),
        Err(_) => Cow::Borrowed(name),
    }
}

fn cpp(name: &str) -> Option<cpp_demangle::BorrowedSymbol<'_>> {
    let mangled = ["_Z", "__Z", "_GLOBAL_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    mangled
        .then(|| cpp_demangle::Symbol::new(name.as_bytes()).ok())
        .flatten()
}

/// Text of at most [`DEMANGLED_LEN_MAX`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > DEMANGLED_LEN_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn each_language() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(
            demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("pthread_create@@GLIBC_2.34"), "pthread_create");
    }

    #[test]
    fn nonsense_comes_back_unchanged() {
        for name in ["_Z", "_ZN", "_R", "_ZN3fooE3", "@", "", "_ZNSt6vectorI"] {
            assert_eq!(demangle(name), name);
        }
        let long = format!("_ZN{}", "1a".repeat(20_000));
        assert_eq!(demangle(&long), long);
    }

    #[test]
    fn exploding_names_are_bounded() {
        // Each `S_`-style back reference doubles the output.
        let mut name = String::from("_Z1fI1aE");
        name.push_str("vP");
        for i in 0..60 {
            name.push_str(&format!("FvS{}_S{}_E", i, i));
        }
        assert!(demangle(&name).len() <= super::DEMANGLED_LEN_MAX.max(name.len()));
    }
}
