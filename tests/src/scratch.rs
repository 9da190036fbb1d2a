//! A folder for one test, removed afterwards.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh folder. Dropping removes it with all content, unless `BROWNOUT_KEEP` is set.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one below the system's folder for temporary files.
    pub fn new() -> io::Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: some programs put socket names below it, which may have 107 bytes only.
        let path = env::temp_dir().join(format!("bt-{}-{number}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch {
            path: path.canonicalize()?,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name inside it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a folder inside it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if env::var_os("BROWNOUT_KEEP").is_none() {
            // A leftover folder is a nuisance, not a failure of the test.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
