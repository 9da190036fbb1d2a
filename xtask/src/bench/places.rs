//! Where benchmarks work, and what they leave behind: nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use brownout_tests::{Scratch, layout};

/// The largest pool is a bit more than half of it.
const ROOM_BYTES: u64 = 1 << 30;

/// Where runs work: pools in memory if there is room, everything else among temporary files.
pub struct Places {
    /// Everything but pools.
    pub scratch: Scratch,
    /// Pools.
    pub pools: PoolFolder,
}

impl Places {
    /// Makes the folders; dropping removes them.
    pub fn new() -> Result<Places> {
        Ok(Places {
            scratch: Scratch::new()?,
            pools: PoolFolder::new()?,
        })
    }

    /// Where the tool writes its report.
    pub fn report(&self) -> PathBuf {
        self.scratch.join("report.json")
    }
}

/// A folder for pools, removed afterwards.
pub struct PoolFolder {
    path: PathBuf,
}

impl PoolFolder {
    fn new() -> Result<PoolFolder> {
        let in_memory = Path::new("/dev/shm");
        let parent = match room(in_memory) {
            Some(bytes) if bytes >= ROOM_BYTES => in_memory.to_path_buf(),
            _ => {
                eprintln!(
                    "{} has less than {} MiB of room: pools go to the target folder",
                    in_memory.display(),
                    ROOM_BYTES >> 20
                );
                layout::target()
            }
        };
        let path = parent.join(format!("brownout-bench-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(PoolFolder { path })
    }

    /// A name inside it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for PoolFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            // It holds memory, so it is worth a word.
            eprintln!("xtask: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Free bytes of a file system.
fn room(folder: &Path) -> Option<u64> {
    let output = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(folder)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().nth(1)?.trim().parse().ok()
}

/// Removes a file, if there is one.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
