//! Where the debug information of a module is, if not in the module.
//!
//! The order is GDB's: by build-id below each debug root, by `.gnu_debuglink` (beside the file, in
//! `.debug/`, below each debug root), then the local cache of debuginfod. A file is taken only if
//! its build-id (or, where there is none, its CRC) says that it belongs to the module.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::ElfFile;

/// How the file names of the C library and of its loader begin.
pub const C_LIBRARY: [&str; 2] = ["libc.so", "ld-linux"];

/// Where to look for separate debug files.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders that hold `.build-id/xx/yyyy.debug` and a shadow of the file tree. Default:
    /// `/usr/lib/debug`, where distributions put them.
    pub debug_roots: Vec<PathBuf>,
    /// Cache of the debuginfod client. Default: `$DEBUGINFOD_CACHE_PATH`, else
    /// `$XDG_CACHE_HOME/debuginfod_client`, else `~/.cache/debuginfod_client`: where elfutils has
    /// it.
    pub debuginfod_cache: Option<PathBuf>,
    /// Modules whose functions are wanted and whose lines are not, by the beginning of their file
    /// name. Reading the debug information of the C library takes longer than most runs. Default:
    /// none.
    pub names_only: Vec<String>,
}

impl Options {
    /// For findings, which are about the program's own lines: of the [C library](C_LIBRARY) only
    /// names.
    pub fn for_findings() -> Options {
        Options {
            names_only: C_LIBRARY.map(str::to_owned).to_vec(),
            ..Options::default()
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        let dir = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let cache = dir("DEBUGINFOD_CACHE_PATH")
            .or_else(|| Some(dir("XDG_CACHE_HOME")?.join("debuginfod_client")))
            .or_else(|| Some(dir("HOME")?.join(".cache/debuginfod_client")));
        Options {
            debug_roots: vec!["/usr/lib/debug".into()],
            debuginfod_cache: cache,
            names_only: Vec::new(),
        }
    }
}

/// The separate debug file of `main`.
pub(crate) fn debug_file(main: &ElfFile, options: &Options) -> Option<ElfFile> {
    let build_id = main.build_id.as_deref();
    by_build_id(build_id, &options.debug_roots)
        .or_else(|| by_link(main, options))
        .or_else(|| from_cache(build_id, options))
}

/// The package of split DWARF, beside the module or beside the file that describes it: `prog.dwp`.
pub(crate) fn package(described_by: &ElfFile, module: &Path) -> Option<ElfFile> {
    let beside = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".dwp");
        ElfFile::open(Path::new(&name)).ok()
    };
    beside(module).or_else(|| beside(&described_by.path))
}

/// Where the file with a unit's split DWARF may be: where the compiler left it, or beside the
/// module, if the build has moved. Whether it is the right one, its contents say.
pub(crate) fn split_files(name: &Path, built_in: Option<&Path>, module: &Path) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    match built_in {
        Some(folder) => candidates.push(folder.join(name)),
        // A relative name must not pick up a file of this process's working directory.
        None if name.is_absolute() => candidates.push(name.to_owned()),
        None => {}
    }
    if let Some(folder) = module.parent() {
        candidates.extend(
            [Some(name), name.file_name().map(Path::new)]
                .into_iter()
                .flatten()
                .map(|name| folder.join(name)),
        );
    }
    candidates.dedup();
    candidates
}

/// The file that `dwz` moved shared debug information of `file` to.
pub(crate) fn supplementary_file(file: &ElfFile, options: &Options) -> Option<ElfFile> {
    let (name, build_id) = file.debug_alt_link.as_ref()?;
    let name = Path::new(OsStr::from_bytes(name));
    let belongs = |candidate: &ElfFile| candidate.build_id.as_ref() == Some(build_id);
    // An absolute name replaces the folder in `join`, which is what is meant. The debug file may
    // have been reached through a symlink of the build-id tree; names are relative to the real one.
    let real = file
        .path
        .canonicalize()
        .unwrap_or_else(|_| file.path.clone());
    let named = [file.path.as_path(), real.as_path()]
        .into_iter()
        .filter_map(|path| ElfFile::open(&path.parent()?.join(name)).ok())
        .find(belongs);
    named
        .or_else(|| by_build_id(Some(build_id), &options.debug_roots))
        .or_else(|| from_cache(Some(build_id), options))
}

fn by_build_id(build_id: Option<&[u8]>, roots: &[PathBuf]) -> Option<ElfFile> {
    let build_id = build_id?;
    let (first, rest) = build_id
        .split_first()
        .filter(|(_, rest)| !rest.is_empty())?;
    let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    roots
        .iter()
        .find_map(|root| matching(&root.join(&name), build_id))
}

fn from_cache(build_id: Option<&[u8]>, options: &Options) -> Option<ElfFile> {
    let build_id = build_id.filter(|id| !id.is_empty())?;
    let cache = options.debuginfod_cache.as_ref()?;
    matching(&cache.join(hex(build_id)).join("debuginfo"), build_id)
}

/// Opens `path` if it carries this build-id.
fn matching(path: &Path, build_id: &[u8]) -> Option<ElfFile> {
    let file = ElfFile::open(path).ok()?;
    (file.build_id.as_deref() == Some(build_id)).then_some(file)
}

fn by_link(main: &ElfFile, options: &Options) -> Option<ElfFile> {
    let (name, crc) = main.debug_link.as_ref()?;
    let name = Path::new(OsStr::from_bytes(name));
    // The link is a bare file name by definition; anything else comes from a damaged file.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let real = main.path.canonicalize().ok();
    let folders = [Some(main.path.as_path()), real.as_deref()]
        .into_iter()
        .flatten();
    for folder in folders.filter_map(Path::parent) {
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let below_roots = options.debug_roots.iter().map(|root| {
            root.join(folder.strip_prefix("/").unwrap_or(folder))
                .join(name)
        });
        for path in beside.into_iter().chain(below_roots) {
            let Ok(file) = ElfFile::open(&path) else {
                continue;
            };
            let belongs = match (&main.build_id, &file.build_id) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => crc32fast::hash(file.bytes()) == *crc,
            };
            if belongs && file.has_dwarf() {
                return Some(file);
            }
        }
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// An empty object with the build-id `id`, and a link to the supplementary file `alt`.
    fn object(path: &Path, id: &str, alt: Option<(&str, &[u8])>) {
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        let source = path.with_extension("c");
        fs::write(&source, "int x;").unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        run(Command::new("cc")
            .args(["-shared", "-nostdlib", &id])
            .arg(&source)
            .arg("-o")
            .arg(path));
        if let Some((name, id)) = alt {
            let content = path.with_extension("alt");
            fs::write(&content, [name.as_bytes(), b"\0", id].concat()).unwrap();
            let section = format!(".gnu_debugaltlink={}", content.display());
            run(Command::new("objcopy")
                .args(["--add-section", &section])
                .arg(path));
        }
    }

    #[test]
    fn supplementary_files_are_found_by_name_and_by_build_id() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let options = Options {
            debug_roots: vec![root.clone()],
            debuginfod_cache: None,
            names_only: Vec::new(),
        };
        fs::create_dir_all(folder.path().join("dwz")).unwrap();
        fs::create_dir_all(root.join(".build-id/ab")).unwrap();
        let main = folder.path().join("main");
        object(&main, "0102", Some(("dwz/shared", &[0xab, 0xcd])));
        let main = ElfFile::open(&main).unwrap();
        assert!(supplementary_file(&main, &options).is_none());

        let named = folder.path().join("dwz/shared");
        object(&named, "ffff", None);
        assert!(
            supplementary_file(&main, &options).is_none(),
            "wrong build-id"
        );

        let by_id = root.join(".build-id/ab/cd.debug");
        object(&by_id, "abcd", None);
        assert_eq!(supplementary_file(&main, &options).unwrap().path, by_id);
        fs::rename(&by_id, &named).unwrap();
        assert_eq!(supplementary_file(&main, &options).unwrap().path, named);
    }
}
