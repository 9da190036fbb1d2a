//! What can be said about a program before it is started.

use crate::LaunchError;
use brownout_abi::cpu::{FEATURES, Feature, Features, HIDE_VARIABLE};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Depth to which interpreters of interpreters are followed, as the kernel does.
const INTERPRETERS_MAX: u32 = 5;

/// The file that is run if a program is called so, and it can be run.
pub fn find_program(program: &OsStr) -> Result<PathBuf, LaunchError> {
    resolve(program, &Path::to_path_buf)
}

/// Finds the program as a shell would, and checks that it can be run. `seen` says where the tool
/// finds what the program calls by a path.
pub fn resolve(program: &OsStr, seen: &dyn Fn(&Path) -> PathBuf) -> Result<PathBuf, LaunchError> {
    if program.is_empty() {
        return Err(LaunchError::NotFound(PathBuf::from("")));
    }
    let path = if program.as_bytes().contains(&b'/') {
        PathBuf::from(program)
    } else {
        let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&paths)
            .map(|d| d.join(program))
            .find(|p| {
                seen(p)
                    .metadata()
                    .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
            })
            .ok_or_else(|| LaunchError::NotFound(PathBuf::from(program)))?
    };
    check(&path, &path, seen, 0)?;
    Ok(path)
}

fn check(
    path: &Path,
    shown: &Path,
    seen: &dyn Fn(&Path) -> PathBuf,
    depth: u32,
) -> Result<(), LaunchError> {
    let found = seen(path);
    let not = |why: String| LaunchError::NotExecutable(shown.to_path_buf(), why);
    let unsupported = |why: &str| LaunchError::UnsupportedProgram(shown.to_path_buf(), why.into());
    let meta = found.metadata().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound if depth == 0 => LaunchError::NotFound(path.to_path_buf()),
        std::io::ErrorKind::NotFound => not(format!(
            "its interpreter '{}' does not exist",
            path.display()
        )),
        _ => not(e.to_string()),
    })?;
    if meta.is_dir() {
        return Err(not("it is a directory".into()));
    }
    // Opening a pipe would wait for its other end.
    if !meta.is_file() {
        return Err(not("it is not a regular file".into()));
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err(not(
            "it is not executable (chmod +x it, or run its interpreter)".into(),
        ));
    }
    // SAFETY: no arguments.
    let euid = unsafe { libc::geteuid() };
    let mode = meta.permissions().mode();
    if mode & 0o4000 != 0 && meta.uid() != euid || mode & 0o2000 != 0 && euid != 0 {
        return Err(unsupported(
            "it is a set-uid or set-gid program, which the kernel does not let other programs inspect (run a copy without that bit)",
        ));
    }
    let mut head = [0u8; 256];
    let n = File::open(&found)
        .and_then(|mut f| {
            let mut n = 0;
            while n < head.len() {
                match f.read(&mut head[n..])? {
                    0 => break,
                    k => n += k,
                }
            }
            Ok(n)
        })
        .map_err(|e| not(e.to_string()))?;
    let head = &head[..n];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line
            .split(|&c| c == b'\n')
            .next()
            .unwrap_or(b"")
            .trim_ascii();
        let interpreter = line
            .split(|&c| c == b' ' || c == b'\t')
            .next()
            .unwrap_or(b"");
        if interpreter.is_empty() {
            return Err(not("its #! line names no interpreter".into()));
        }
        if depth >= INTERPRETERS_MAX {
            return Err(not("too many levels of interpreters".into()));
        }
        let interpreter = Path::new(OsStr::from_bytes(interpreter));
        return check(interpreter, shown, seen, depth + 1);
    }
    if head.len() < 20 || &head[..4] != b"\x7fELF" {
        return Err(not("it is neither an ELF program nor a script with a #! line (run it by its interpreter, e.g. `sh SCRIPT`)".into()));
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    if head[4] == 1 && machine == 3 {
        return Err(unsupported(
            "it is a 32-bit program; only x86-64 programs are supported (rebuild it for 64 bits)",
        ));
    }
    if head[4] != 2 || machine != 62 {
        return Err(unsupported(
            "it is for another processor architecture; only x86-64 programs are supported",
        ));
    }
    let kind = u16::from_le_bytes([head[16], head[17]]);
    if kind != 2 && kind != 3 {
        return Err(not("it is an ELF file but not a program".into()));
    }
    Ok(())
}

/// Whether the processor has what emitted code uses. Answers what the user hides of it, and what it
/// lacks of the instructions that are otherwise recorded instead of executed.
pub fn check_machine() -> Result<(Features, Features), LaunchError> {
    let hidden = hidden_features()?;
    if hidden.has(Feature::Bmi2) || !std::is_x86_feature_detected!("bmi2") {
        let why = if hidden.has(Feature::Bmi2) {
            format!("{HIDE_VARIABLE} hides it")
        } else {
            "Intel Haswell, AMD Zen, or later is needed".into()
        };
        return Err(LaunchError::Machine(format!(
            "its processor lacks BMI2 ({why})"
        )));
    }
    let leaf = brownout_abi::cpu::cpuid(7, 0).ebx;
    let mut lacking = Features::NONE;
    for (bit, feature) in [(24, Feature::Clwb), (23, Feature::Clflushopt)] {
        if leaf >> bit & 1 == 0 {
            lacking = lacking.with(feature);
        }
    }
    Ok((hidden, lacking))
}

/// What `BROWNOUT_HIDE_CPU` names.
fn hidden_features() -> Result<Features, LaunchError> {
    let Some(text) = std::env::var_os(HIDE_VARIABLE) else {
        return Ok(Features::NONE);
    };
    let text = text.to_string_lossy();
    Features::parse(&text).map_err(|word| {
        let known: Vec<&str> = FEATURES.iter().map(|(name, _)| *name).collect();
        LaunchError::Variable(format!(
            "{HIDE_VARIABLE} cannot hide '{word}' (what it can: {})",
            known.join(", ")
        ))
    })
}

/// Whether the program that a process has just begun would have rights by the capabilities of its
/// file, and was denied them because of who traces it.
pub fn lacks_file_capabilities(pid: libc::pid_t) -> bool {
    let folder = crate::members::folder(pid);
    let Some(given) = file_capabilities(&folder.join("exe")) else {
        return false;
    };
    let Ok(status) = std::fs::read_to_string(folder.join("status")) else {
        return false;
    };
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(value.trim(), 16).ok()
    };
    // Who may not gain rights does not without us either.
    if field("NoNewPrivs:") != Some(0) {
        return false;
    }
    match (field("CapPrm:"), field("CapBnd:")) {
        (Some(permitted), Some(bounds)) => given & bounds & !permitted != 0,
        _ => false,
    }
}

/// The capabilities that executing a file gives, if it gives any: what is permitted by its
/// `security.capability`, unless it lies where that counts for nothing.
fn file_capabilities(file: &Path) -> Option<u64> {
    /// Version and flags, then twice 32 bits of what is permitted and what can be inherited.
    const LEN: usize = 20;
    /// With the user who is root where it counts.
    const LEN_MAX: usize = 24;
    let path = std::ffi::CString::new(file.as_os_str().as_bytes()).ok()?;
    let mut value = [0u8; LEN_MAX];
    // SAFETY: a string that ends with a zero byte, and a buffer of that length.
    let len = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    if len < LEN as isize {
        return None;
    }
    // SAFETY: plain numbers, for which zero is a value.
    let mut system: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above, and a structure of ours.
    let is_known = unsafe { libc::statvfs(path.as_ptr(), &raw mut system) } == 0;
    if is_known && system.f_flag & libc::ST_NOSUID != 0 {
        return None;
    }
    let word = |at: usize| {
        let bytes = value[at..].first_chunk();
        bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    };
    let permitted = word(4) | word(12) << 32;
    (permitted != 0).then_some(permitted)
}

/// Whether a process that just began a new program is a 64-bit x86 one.
pub fn is_native(pid: libc::pid_t) -> bool {
    let mut head = [0u8; 20];
    File::open(crate::members::folder(pid).join("exe"))
        .and_then(|mut f| f.read_exact(&mut head))
        .is_ok()
        && head[4] == 2
        && u16::from_le_bytes([head[18], head[19]]) == 62
}
