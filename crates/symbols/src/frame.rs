//! What an address means: plain data, and the one way to write it on a line.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path as the compiler recorded it, made absolute where its folder is known.
    pub file: Arc<str>,
    /// Line from 1; `None` where the compiler attributes the code to no line.
    pub line: Option<u32>,
    /// Column from 1, where known.
    pub column: Option<u32>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        Ok(())
    }
}

/// One level of a call stack.
///
/// Its `Display` form is the best that is known, in this order: `function (file:line:column)`,
/// `function+0x12 (module)`, `module+0x1234`, `0x7f…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Function, demangled.
    pub function: Option<Arc<str>>,
    /// Bytes from the start of `function`; only where the name comes from a symbol table (there it
    /// tells how much to trust the name).
    pub function_offset: Option<u64>,
    /// Source place, where debug information has it.
    pub location: Option<Location>,
    /// True if the compiler put this call into the next frame's function.
    pub inlined: bool,
    /// File that holds the code, or a kernel name such as `[vdso]`; `None` if the address lies in
    /// no known module (code made at run time, for example).
    pub module: Option<Arc<Path>>,
    /// The address in the terms of the module's ELF file, which is what `addr2line -e MODULE`
    /// takes; the file offset if the file cannot be read; the plain address if there is no module.
    pub module_addr: u64,
}

impl Frame {
    /// The frame of an address about which nothing is known.
    pub(crate) fn unknown(addr: u64) -> Frame {
        Frame {
            function: None,
            function_offset: None,
            location: None,
            inlined: false,
            module: None,
            module_addr: addr,
        }
    }

    /// Last part of the module's path.
    pub fn module_name(&self) -> Option<std::borrow::Cow<'_, str>> {
        let module = self.module.as_deref()?;
        Some(
            module
                .file_name()
                .unwrap_or(module.as_os_str())
                .to_string_lossy(),
        )
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, self.module_name()) {
            (Some(function), module) => {
                f.write_str(function)?;
                if let Some(offset) = self.function_offset {
                    write!(f, "+{offset:#x}")?;
                }
                match (&self.location, module) {
                    (Some(location), _) => write!(f, " ({location})"),
                    (None, Some(module)) => write!(f, " ({module})"),
                    (None, None) => Ok(()),
                }
            }
            (None, Some(module)) => {
                write!(f, "{module}+{:#x}", self.module_addr)?;
                match &self.location {
                    Some(location) => write!(f, " ({location})"),
                    None => Ok(()),
                }
            }
            (None, None) => write!(f, "{:#x}", self.module_addr),
        }
    }
}

/// As reports have it.
impl From<Frame> for brownout_findings::Frame {
    fn from(symbol: Frame) -> Self {
        let location = symbol.location;
        brownout_findings::Frame {
            function: symbol.function.as_deref().map(str::to_owned),
            line: location.as_ref().and_then(|location| location.line),
            column: location.as_ref().and_then(|location| location.column),
            file: location.map(|location| location.file.as_ref().to_owned()),
            module: symbol
                .module
                .map(|module| module.to_string_lossy().into_owned()),
            offset: symbol.module_addr,
            inlined: symbol.inlined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_shows_the_best_that_is_known() {
        let mut frame = Frame::unknown(0x7f00);
        assert_eq!(frame.to_string(), "0x7f00");
        frame.module = Some(Path::new("/usr/lib/libx.so.1").into());
        assert_eq!(frame.to_string(), "libx.so.1+0x7f00");
        frame.function = Some("f".into());
        frame.function_offset = Some(0x10);
        assert_eq!(frame.to_string(), "f+0x10 (libx.so.1)");
        frame.function_offset = None;
        frame.location = Some(Location {
            file: "/s/x.c".into(),
            line: Some(7),
            column: None,
        });
        assert_eq!(frame.to_string(), "f (/s/x.c:7)");
        frame.location.as_mut().unwrap().column = Some(3);
        assert_eq!(frame.to_string(), "f (/s/x.c:7:3)");
    }
}
