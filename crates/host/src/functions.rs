//! Where a program or library has the functions whose calls are recorded.
//!
//! A file that cannot be read or parsed has none: its calls are then not seen, which loses
//! performance findings and causes none. What was found is kept as long as the tool runs, by path
//! and time of change: runs that repeat map the same few libraries.

use brownout_trace::event::{LIBRARY_FUNCTIONS, THREAD_FUNCTIONS_FROM};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

/// Code of a file as it is mapped.
pub struct Mapped {
    /// Address of its first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// It is the program itself. That has such functions only if the library is linked into it.
    pub is_program: bool,
    /// Functions about threads are wanted, too.
    pub threads: bool,
}

/// Offset in the file and number of each function.
type Functions = Arc<Vec<(u64, u32)>>;

/// Which version of a file: device, inode, size, time of change in seconds and nanoseconds.
type Version = (u64, u64, u64, i64, i64);

/// By path, and whether it was the program itself.
type Seen = HashMap<(PathBuf, bool), (Version, Functions)>;

static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

/// Addresses in the mapping, with numbers as in [`LIBRARY_FUNCTIONS`].
pub fn find(path: &Path, mapped: &Mapped) -> BTreeMap<u64, u32> {
    let in_mapping = |&(place, number): &(u64, u32)| {
        let into = place.checked_sub(mapped.offset)?;
        let is_wanted = mapped.threads || (number as usize) < THREAD_FUNCTIONS_FROM;
        (is_wanted && into < mapped.len).then(|| (mapped.start + into, number))
    };
    let functions = functions(path, mapped.is_program);
    functions.iter().filter_map(in_mapping).collect()
}

fn functions(path: &Path, is_program: bool) -> Functions {
    let Ok(meta) = path.metadata() else {
        return Functions::default();
    };
    let version = (
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
    );
    // A panic elsewhere is being reported already; the data stays usable.
    let seen = || SEEN.lock().unwrap_or_else(|e| e.into_inner());
    let key = (path.to_path_buf(), is_program);
    if let Some((known, functions)) = seen().get(&key)
        && *known == version
    {
        return functions.clone();
    }
    let functions = Functions::new(read(path, is_program).unwrap_or_default());
    seen().insert(key, (version, functions.clone()));
    functions
}

fn read(path: &Path, is_program: bool) -> Option<Vec<(u64, u32)>> {
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let mut functions = Vec::new();
    if is_program && file.section_by_name(".interp").is_some() {
        // It loads its libraries when it starts.
        return Some(functions);
    }
    // Both tables: a stripped library has the first only, a static program the second.
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if !symbol.is_definition() {
            continue;
        }
        let Some(number) = LIBRARY_FUNCTIONS.iter().position(|f| *f == name) else {
            continue;
        };
        let place = file.segments().find_map(|segment| {
            let into = symbol.address().checked_sub(segment.address())?;
            (into < segment.size()).then(|| segment.file_range().0 + into)
        });
        functions.extend(place.map(|place| (place, number as u32)));
    }
    Some(functions)
}
