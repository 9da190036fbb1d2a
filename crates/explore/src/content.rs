//! What a name stands for in a crash image, as plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a crash has left of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileContent {
    /// Nothing is there any more.
    Absent,
    /// A regular file.
    File {
        /// Its length.
        size: u64,
        /// The name of the file before the run whose bytes it has where `bytes` says nothing, as
        /// far as that reaches; zeros beyond. `None`: zeros. It is the file's own name, unless that
        /// has changed.
        from: Option<PathBuf>,
        /// Stretches that differ from that, by their offsets, which ascend. They do not overlap,
        /// and lie within the length.
        bytes: Vec<(u64, Vec<u8>)>,
        /// Its permissions, for those who make it anew; if known. The owner may read and write it,
        /// whatever the program has said.
        mode: Option<u32>,
    },
    /// A folder.
    Folder,
    /// A symbolic link that says this.
    Link(PathBuf),
    /// One more name of the file that has this name, which comes before it in the image.
    SameAs(PathBuf),
}

/// Equal for equal files.
pub fn digest(files: &[(PathBuf, FileContent)]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    // Each part comes behind its length, so that no two lists read the same.
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (path, content) in files {
        part(path.as_os_str().as_encoded_bytes());
        match content {
            FileContent::Absent => part(b"absent"),
            FileContent::Folder => part(b"folder"),
            FileContent::Link(to) => {
                part(b"link");
                part(to.as_os_str().as_encoded_bytes());
            }
            FileContent::SameAs(first) => {
                part(b"same as");
                part(first.as_os_str().as_encoded_bytes());
            }
            FileContent::File {
                size, from, bytes, ..
            } => {
                part(b"file");
                part(&size.to_le_bytes());
                let from = from.as_ref().map(|from| from.as_os_str());
                part(from.map_or(&[], |from| from.as_encoded_bytes()));
                part(&(bytes.len() as u64).to_le_bytes());
                for (at, bytes) in bytes {
                    part(&at.to_le_bytes());
                    part(bytes);
                }
            }
        }
    }
    *hash.finalize().as_bytes()
}
