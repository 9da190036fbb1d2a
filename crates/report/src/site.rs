//! Places as people want to read them. Which frame stands for an event,
//! [`blame`](brownout_findings::blame) says.

use std::path::{Component, Path, PathBuf};

pub use brownout_findings::blame::{
    cause, causing_event, in_foundation, including, inside_main, site,
};
use brownout_findings::{Finding, Frame};

use crate::text::{base_name, visible};

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
