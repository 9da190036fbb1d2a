//! Places in the code as the page names them: text as it is, which the page makes visible.

use std::path::Path;

use brownout_findings::Frame;

use crate::site;
use crate::text::base_name;

/// As [`site::place`], with the text as it is.
pub fn place_of(frame: &Frame, folder: Option<&Path>) -> String {
    let Some(file) = &frame.file else {
        return match &frame.module {
            Some(module) => format!("{}+{:#x}", base_name(module), frame.offset),
            None => format!("{:#x}", frame.offset),
        };
    };
    let mut at = listed(file, folder);
    if let Some(line) = frame.line {
        at += &format!(":{line}");
        if let Some(column) = frame.column {
            at += &format!(":{column}");
        }
    }
    at
}

/// The path of a source file, as findings are listed under it.
pub fn listed(file: &str, folder: Option<&Path>) -> String {
    match site::below(file, folder) {
        Some(inside) => inside.to_string_lossy().into_owned(),
        None => file.to_owned(),
    }
}
