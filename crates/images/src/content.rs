//! What is given to a store: contents that are to become an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::origin::{LeftOut, WhyLeftOut};
use crate::{PAGE_LEN, Page, Special};

/// What an image is to hold.
#[derive(Debug)]
pub struct Contents {
    /// What is meant by a path that is not among the entries.
    pub others: Others,
    /// By absolute path, as the program names it.
    pub entries: BTreeMap<PathBuf, Content>,
}

/// What holds for paths that are not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They are as on the user's machine: the entries are all there is.
    AsOnMachine,
    /// They are as in the parent image: the entries are what has changed since.
    AsInParent,
}

/// What stands at a path.
#[derive(Debug)]
pub enum Content {
    /// What stands there on the user's machine, if anything does.
    AsOnMachine,
    /// Nothing, although the user's machine has something there. Nothing is below it, either.
    Removed,
    /// A folder.
    Folder {
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link, and what it says.
    Link(PathBuf),
    /// A FIFO or a socket.
    Special {
        /// Which.
        kind: Special,
        /// Permissions.
        mode: u32,
    },
    /// A file. Its pages that are not named are zeros.
    File {
        /// Permissions.
        mode: u32,
        /// In bytes.
        len: u64,
        /// By number; in any order.
        pages: Vec<(u64, Box<Page>)>,
    },
    /// A file that the parent has. Its pages that are not named are as they are there.
    Pages {
        /// Permissions.
        mode: u32,
        /// In bytes. What the parent has behind it is cut off.
        len: u64,
        /// Those that have changed, and perhaps others; by number, in any order.
        pages: Vec<(u64, Box<Page>)>,
    },
    /// What stands at this path of the tool's is copied, page by page: a file, folder, link, FIFO
    /// or socket.
    CopyOf(PathBuf),
}

impl Contents {
    /// All there is.
    pub fn whole(entries: impl IntoIterator<Item = (PathBuf, Content)>) -> Contents {
        Contents {
            others: Others::AsOnMachine,
            entries: entries.into_iter().collect(),
        }
    }

    /// What has changed since the parent.
    pub fn changes(entries: impl IntoIterator<Item = (PathBuf, Content)>) -> Contents {
        Contents {
            others: Others::AsInParent,
            entries: entries.into_iter().collect(),
        }
    }
}

/// Where the tool finds what a program calls by an absolute path.
pub struct View<'a> {
    /// In the private view of the machine in which the program runs.
    pub at: &'a dyn Fn(&Path) -> PathBuf,
    /// On the user's machine.
    pub machine: &'a dyn Fn(&Path) -> PathBuf,
}

/// The contents of some paths of a view, and what of them an image cannot hold. See [`capture`].
pub struct Captured {
    /// To be added to a store. Files are read then.
    pub contents: Contents,
    /// What is not in it.
    pub left_out: Vec<LeftOut>,
}

/// Looks at all paths that were changed, created or removed in a view, and makes an image's
/// contents of them. What is not named is as on the user's machine, with one exception: if a folder
/// is named and shows none of what the machine has in it, it was made anew, and all of that is
/// gone.
///
/// Paths are the real ones: one that lies behind a link is an error.
pub fn capture(paths: impl IntoIterator<Item = PathBuf>, view: &View<'_>) -> io::Result<Captured> {
    let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
    let mut entries = BTreeMap::new();
    let mut left_out = Vec::new();
    // What is above comes first. Below something that is no folder nothing can be; if it is a link,
    // paths lead from there to somewhere else.
    let mut closed: Option<&Path> = None;
    for path in &paths {
        if closed.is_some_and(|closed| path.starts_with(closed)) {
            continue;
        }
        view.examine(path)?;
        let at = (view.at)(path);
        let on_machine = view.on_machine(path)?;
        let meta = metadata(&at)?;
        if !meta.as_ref().is_some_and(fs::Metadata::is_dir) {
            closed = Some(path);
        }
        let Some(meta) = meta else {
            if on_machine.is_some() {
                entries.insert(path.clone(), Content::Removed);
            }
            continue;
        };
        if meta.is_dir() {
            let same = on_machine.filter(fs::Metadata::is_dir);
            if same.is_some() {
                for gone in hidden(path, &paths, view)? {
                    entries.insert(gone, Content::Removed);
                }
            }
            if same.is_some_and(|same| permissions(&same) == permissions(&meta)) {
                continue;
            }
        } else if is_device(&meta) {
            let (path, why) = (path.clone(), WhyLeftOut::Device);
            left_out.push(LeftOut { path, why });
            continue;
        } else if meta.nlink() > 1 {
            let (path, why) = (path.clone(), WhyLeftOut::OtherNames);
            left_out.push(LeftOut { path, why });
        }
        entries.insert(path.clone(), Content::CopyOf(at));
    }
    drop_below_removed(&mut entries);
    Ok(Captured {
        contents: Contents {
            others: Others::AsOnMachine,
            entries,
        },
        left_out,
    })
}

/// What the machine has in a folder that was made anew in the view. Empty if the view shows any of
/// it: then the folder is the machine's, and others may create and remove things in it at any
/// moment, so that a single name that is missing means nothing.
fn hidden(folder: &Path, named: &BTreeSet<PathBuf>, view: &View<'_>) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir((view.machine)(folder)) {
        // What the tool may not list, the program could not, either.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut gone = Vec::new();
    for entry in entries {
        let path = folder.join(entry?.file_name());
        if named.contains(&path) {
            continue;
        }
        if metadata(&(view.at)(&path))?.is_some() {
            return Ok(Vec::new());
        }
        if metadata(&(view.machine)(&path))?.is_some() {
            gone.push(path);
        }
    }
    Ok(gone)
}

/// What lies below something that was removed is gone with it.
fn drop_below_removed(entries: &mut BTreeMap<PathBuf, Content>) {
    let mut removed: Option<PathBuf> = None;
    entries.retain(|path, content| {
        if removed
            .as_ref()
            .is_some_and(|removed| path.starts_with(removed))
        {
            return false;
        }
        if matches!(content, Content::Removed) {
            removed = Some(path.clone());
        }
        true
    });
}

impl View<'_> {
    /// Sees that no link lies above a path of the view. An absolute one would lead out of the view,
    /// to the user's own files.
    pub(crate) fn examine(&self, path: &Path) -> io::Result<()> {
        for above in path.ancestors().skip(1) {
            if above.parent().is_some()
                && metadata(&(self.at)(above))?.is_some_and(|meta| meta.is_symlink())
            {
                let (path, above) = (path.display(), above.display());
                return Err(io::Error::other(format!(
                    "`{path}` lies behind the link `{above}`, which is not followed"
                )));
            }
        }
        Ok(())
    }

    /// What stands at a path on the user's machine, if anything does. What lies behind a link above
    /// it has names of its own.
    pub(crate) fn on_machine(&self, path: &Path) -> io::Result<Option<fs::Metadata>> {
        for above in path.ancestors().skip(1) {
            if above.parent().is_some()
                && !metadata(&(self.machine)(above))?.is_some_and(|meta| meta.is_dir())
            {
                return Ok(None);
            }
        }
        metadata(&(self.machine)(path))
    }
}

/// What stands at a path, if anything does; a link there is not followed.
pub(crate) fn metadata(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) || error.raw_os_error() == Some(libc::ELOOP) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn permissions(meta: &fs::Metadata) -> u32 {
    meta.mode() & 0o7777
}

pub(crate) fn is_device(meta: &fs::Metadata) -> bool {
    let kind = meta.file_type();
    kind.is_block_device() || kind.is_char_device()
}

/// The only way to write a path: absolute, without `.`, `..` and doubled slashes.
pub(crate) fn plain_path(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    if parts.next()? != Component::RootDir {
        return None;
    }
    let mut plain = PathBuf::from("/");
    for part in parts {
        match part {
            Component::Normal(name) if !name.as_encoded_bytes().contains(&0) => plain.push(name),
            _ => return None,
        }
    }
    Some(plain)
}

/// Opens a file of a view for reading, also if its owner has forbidden it to himself.
pub(crate) fn open_anyway(path: &Path, mode: u32) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, Permissions::from_mode(mode | 0o400))?;
            let file = File::open(path);
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            file
        }
        other => other,
    }
}

/// Reads a file's pages that are not all zeros, in order; holes are not even looked at. Returns the
/// file's length.
pub(crate) fn read_pages<E: From<io::Error>>(
    file: &File,
    mut take: impl FnMut(u64, Box<Page>) -> Result<(), E>,
) -> Result<u64, E> {
    const CHUNK_LEN: usize = 64 * PAGE_LEN;
    let len = file.metadata()?.len();
    let mut buffer = vec![0; CHUNK_LEN];
    let mut at = 0;
    while at < len {
        let Some(data) = seek_data(file, at)? else {
            break;
        };
        at = at.max(data - data % PAGE_LEN as u64);
        let wanted = CHUNK_LEN.min(usize::try_from(len - at).unwrap_or(CHUNK_LEN));
        let read = read_full(file, &mut buffer[..wanted], at)?;
        buffer[read..].fill(0);
        for (n, page) in buffer[..read.next_multiple_of(PAGE_LEN)]
            .chunks_exact(PAGE_LEN)
            .enumerate()
        {
            let page: &Page = page.try_into().expect("chunks are pages");
            if !is_zero(page) {
                take(at / PAGE_LEN as u64 + n as u64, Box::new(*page))?;
            }
        }
        if read < wanted {
            // It has become shorter meanwhile; what is missing is as good as zero.
            break;
        }
        at += read as u64;
    }
    Ok(len)
}

/// Where the next data of a file is, from `at` on.
fn seek_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    let Ok(offset) = i64::try_from(at) else {
        return Ok(None);
    };
    // SAFETY: a descriptor that is open, and numbers.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, libc::SEEK_DATA) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Nothing follows but a hole.
        Some(libc::ENXIO) => Ok(None),
        // The file system does not tell: all of it may be data.
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Ok(Some(at)),
        _ => Err(error),
    }
}

/// As much as there is.
pub(crate) fn read_full(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<usize> {
    let wanted = buffer.len();
    while !buffer.is_empty() {
        match file.read_at(buffer, at) {
            Ok(0) => break,
            Ok(n) => {
                buffer = &mut buffer[n..];
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(wanted - buffer.len())
}

pub(crate) fn is_zero(page: &[u8]) -> bool {
    // Compares whole vectors; an iterator over bytes would stop at each.
    page.chunks(64)
        .all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_in_one_way() {
        let plain = |path: &str| plain_path(Path::new(path));
        assert_eq!(plain("/a//b/./c/").unwrap().to_str(), Some("/a/b/c"));
        assert_eq!(plain("/").unwrap().to_str(), Some("/"));
        for wrong in ["", "a", "./a", "/a/../b", "/a\0b"] {
            assert_eq!(plain(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn holes_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = File::create_new(&path).unwrap();
        // So large that reading it all would never end.
        let len = (1 << 40) + 5;
        file.set_len(len).unwrap();
        file.write_at(b"x", (1 << 39) + 17).unwrap();
        file.write_at(b"end", len - 3).unwrap();
        let mut found = Vec::new();
        let read = read_pages(&File::open(&path).unwrap(), |number, page| {
            found.push((number, page));
            io::Result::Ok(())
        });
        assert_eq!(read.unwrap(), len);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, found[0].1[17]), (1 << 27, b'x'));
        assert_eq!((found[1].0, &found[1].1[..6]), (1 << 28, &b"\0\0end\0"[..]));
    }
}
