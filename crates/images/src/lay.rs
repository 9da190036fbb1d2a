//! From an image to files: what must be done to them, and doing it.
//!
//! A program may have the files mapped, and its mappings must show what was laid. So a file that
//! stays a file is never replaced: its pages are written in place, and pages that become zero are
//! punched out of it, so that holes stay holes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::content::{self, View, is_device, metadata, permissions};
use crate::{PAGE_LEN, Page, Special};

/// What must be done to one path. See [`Store::difference`](crate::Store::difference).
#[derive(Clone, Debug)]
pub struct Change {
    /// As the program names it.
    pub path: Arc<Path>,
    /// What stands there afterwards.
    pub to: Target,
}

/// What stands at a path after a change.
#[derive(Clone)]
pub enum Target {
    /// What the user's machine has there; nothing, if it has nothing.
    AsOnMachine,
    /// Nothing.
    Removed,
    /// A folder.
    Folder {
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link(PathBuf),
    /// A FIFO or a socket.
    Special {
        /// Which.
        kind: Special,
        /// Permissions.
        mode: u32,
    },
    /// A file that was one before. Pages that are not named stay.
    Pages {
        /// Permissions.
        mode: u32,
        /// In bytes.
        len: u64,
        /// By number, in order; `None` is a page of zeros.
        pages: Vec<(u64, Option<Arc<Page>>)>,
    },
    /// A file. Pages that are not named are zeros, whatever stood there.
    File {
        /// Permissions.
        mode: u32,
        /// In bytes.
        len: u64,
        /// By number, in order.
        pages: Vec<(u64, Arc<Page>)>,
    },
}

/// Without the bytes of pages, of which there are many.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AsOnMachine => write!(f, "as on the machine"),
            Target::Removed => write!(f, "removed"),
            Target::Folder { mode } => write!(f, "folder {mode:o}"),
            Target::Link(to) => write!(f, "link to {}", to.display()),
            Target::Special { kind, mode } => write!(f, "{kind:?} {mode:o}"),
            Target::Pages { mode, len, pages } => {
                let numbers: Vec<u64> = pages.iter().map(|page| page.0).collect();
                write!(f, "file {mode:o}, {len} bytes, changed pages {numbers:?}")
            }
            Target::File { mode, len, pages } => {
                let numbers: Vec<u64> = pages.iter().map(|page| page.0).collect();
                write!(f, "new file {mode:o}, {len} bytes, pages {numbers:?}")
            }
        }
    }
}

/// Does it: afterwards the view holds the image that the changes lead to, if it held the one that
/// they start from.
///
/// Nothing outside of the view is written to: a path that lies behind a link is an error. Folders
/// above a path that are in neither image are made if the view lacks them. Permissions do not
/// hinder the owner of the files: what they forbid is allowed for the moment. The user's machine is
/// never changed, so something that cannot be read there cannot be brought back from there; a fresh
/// view has it.
pub fn lay(changes: &[Change], view: &View<'_>) -> io::Result<()> {
    let changes = changes.iter().map(|change| (&*change.path, &change.to));
    let mut laying = Laying {
        view,
        changes: changes.collect(),
        relaxed: BTreeMap::new(),
    };
    let done = laying.all();
    let restored = laying.restore();
    done.and(restored)
}

struct Laying<'a> {
    view: &'a View<'a>,
    /// By path, so that what is below follows what is above.
    changes: BTreeMap<&'a Path, &'a Target>,
    /// Folders whose permissions were in the way, and what they were (or are to be).
    relaxed: BTreeMap<PathBuf, u32>,
}

impl Laying<'_> {
    fn all(&mut self) -> io::Result<()> {
        let changes = self.changes.clone();
        // First whatever must go makes room. What is above goes first, with all that is below: if
        // it is a link, the paths below lead to somewhere else.
        let mut gone: Option<&Path> = None;
        for (path, to) in &changes {
            if gone.is_some_and(|gone| path.starts_with(gone)) {
                continue;
            }
            self.view.examine(path)?;
            let at = (self.view.at)(path);
            let Some(is) = self.look(&at)? else {
                gone = Some(path);
                continue;
            };
            let stays = match to {
                Target::Removed => false,
                Target::AsOnMachine => {
                    let machine = self.view.on_machine(path)?;
                    machine.is_some_and(|machine| {
                        machine.file_type() == is.file_type() && !is.is_symlink()
                    })
                }
                Target::Folder { .. } => is.is_dir(),
                Target::Pages { .. } | Target::File { .. } => is.is_file(),
                Target::Link(_) | Target::Special { .. } => false,
            };
            if !stays {
                self.remove(&at, &is)?;
            }
            if !stays || !is.is_dir() {
                gone = Some(path);
            }
        }
        // Then what is above before what is below.
        for (path, to) in changes {
            self.one(path, to)?;
        }
        Ok(())
    }

    fn one(&mut self, path: &Path, to: &Target) -> io::Result<()> {
        let at = (self.view.at)(path);
        match to {
            Target::Removed => Ok(()),
            Target::AsOnMachine => self.as_on_machine(path),
            Target::Folder { mode } => self.folder(path, *mode),
            Target::Link(to) => self.in_parent(&at, |at| std::os::unix::fs::symlink(to, at)),
            Target::Special { kind, mode } => self.special(&at, *kind, *mode),
            Target::Pages { mode, len, pages } => {
                let file = self.open(&at)?;
                write_pages(&file, *len, pages)?;
                self.permit(&at, &file, *mode)
            }
            Target::File { mode, len, pages } => {
                let file = self.open(&at)?;
                file.set_len(0)?;
                file.set_len(*len)?;
                for (number, page) in pages {
                    write_page(&file, *number, page, *len)?;
                }
                self.permit(&at, &file, *mode)
            }
        }
    }

    fn as_on_machine(&mut self, path: &Path) -> io::Result<()> {
        let machine = (self.view.machine)(path);
        let at = (self.view.at)(path);
        let Some(meta) = self.view.on_machine(path)? else {
            return Ok(());
        };
        let mode = permissions(&meta);
        if meta.is_dir() {
            self.folder(path, mode)
        } else if meta.is_symlink() {
            let to = fs::read_link(machine)?;
            self.in_parent(&at, |at| std::os::unix::fs::symlink(&to, at))
        } else if let Some(kind) = special(&meta) {
            self.special(&at, kind, mode)
        } else if is_device(&meta) {
            // No image changes a device, so the view shows it as it is.
            Ok(())
        } else {
            let from = File::open(machine)?;
            let file = self.open(&at)?;
            file.set_len(0)?;
            file.set_len(meta.len())?;
            content::read_pages(&from, |number, page| {
                write_page(&file, number, &page, meta.len())
            })?;
            self.permit(&at, &file, mode)
        }
    }

    fn folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let at = (self.view.at)(path);
        let is_new = self.look(&at)?.is_none();
        if is_new {
            self.in_parent(&at, |at| fs::create_dir(at))?;
        }
        // What is laid below may need more than the folder permits.
        let working = mode | 0o700;
        fs::set_permissions(&at, Permissions::from_mode(working))?;
        if working == mode {
            self.relaxed.remove(&at);
        } else {
            self.relaxed.insert(at, mode);
        }
        if is_new
            && self
                .view
                .on_machine(path)?
                .is_some_and(|machine| machine.is_dir())
        {
            // It was gone with all that the user's machine has in it. What an image does not name
            // is as it is there.
            for entry in fs::read_dir((self.view.machine)(path))? {
                let below = path.join(entry?.file_name());
                if !self.changes.contains_key(&*below) {
                    self.as_on_machine(&below)?;
                }
            }
        }
        Ok(())
    }

    fn special(&mut self, at: &Path, kind: Special, mode: u32) -> io::Result<()> {
        if self.look(at)?.is_none() {
            self.in_parent(at, |at| make_special(at, kind))?;
        }
        fs::set_permissions(at, Permissions::from_mode(mode))
    }

    /// A file for writing; it is made if it is not there.
    fn open(&mut self, at: &Path) -> io::Result<File> {
        let open = |at: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
            options.mode(0o600).open(at)
        };
        match self.in_parent(at, open) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // Its permissions are set when it is written.
                fs::set_permissions(at, Permissions::from_mode(0o600))?;
                open(at)
            }
            other => other,
        }
    }

    /// Sets a file's permissions if they differ: a change of them is a change that others see.
    fn permit(&self, at: &Path, file: &File, mode: u32) -> io::Result<()> {
        if permissions(&file.metadata()?) != mode {
            fs::set_permissions(at, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// Does something that needs the folder above to be there, and to be writable.
    fn in_parent<T>(
        &mut self,
        at: &Path,
        mut act: impl FnMut(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        match act(at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = at.parent() {
                    fs::create_dir_all(parent)?;
                }
                act(at)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let Some(parent) = at.parent() else {
                    return Err(error);
                };
                self.relax(parent)?;
                act(at)
            }
            other => other,
        }
    }

    /// What stands at a path, though a folder above it may forbid to look.
    fn look(&mut self, at: &Path) -> io::Result<Option<fs::Metadata>> {
        match metadata(at) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let Some(parent) = at.parent() else {
                    return Err(error);
                };
                self.relax(parent)?;
                metadata(at)
            }
            other => other,
        }
    }

    fn relax(&mut self, folder: &Path) -> io::Result<()> {
        let Some(is) = self.look(folder)? else {
            return Ok(());
        };
        let mode = permissions(&is);
        if mode & 0o700 != 0o700 {
            fs::set_permissions(folder, Permissions::from_mode(mode | 0o700))?;
            self.relaxed.entry(folder.to_owned()).or_insert(mode);
        }
        Ok(())
    }

    fn remove(&mut self, at: &Path, is: &fs::Metadata) -> io::Result<()> {
        if is.is_dir() {
            if permissions(is) & 0o700 != 0o700 {
                fs::set_permissions(at, Permissions::from_mode(0o700))?;
            }
            for entry in fs::read_dir(at)? {
                let entry = entry?;
                self.remove(&entry.path(), &entry.metadata()?)?;
            }
            self.relaxed.remove(at);
            self.in_parent(at, |at| fs::remove_dir(at))
        } else {
            self.in_parent(at, |at| fs::remove_file(at))
        }
    }

    /// Gives folders the permissions that they are to have, what is below before what is above.
    fn restore(&mut self) -> io::Result<()> {
        let mut done = Ok(());
        for (folder, mode) in std::mem::take(&mut self.relaxed).into_iter().rev() {
            let set = fs::set_permissions(&folder, Permissions::from_mode(mode));
            done = done.and(set);
        }
        done
    }
}

pub(crate) fn special(meta: &fs::Metadata) -> Option<Special> {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    if kind.is_fifo() {
        Some(Special::Fifo)
    } else if kind.is_socket() {
        Some(Special::Socket)
    } else {
        None
    }
}

fn make_special(at: &Path, kind: Special) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let kind = match kind {
        Special::Fifo => libc::S_IFIFO,
        Special::Socket => libc::S_IFSOCK,
    };
    // SAFETY: a path of ours that ends with a zero.
    match unsafe { libc::mknod(path.as_ptr(), kind | 0o600, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn write_pages(file: &File, len: u64, pages: &[(u64, Option<Arc<Page>>)]) -> io::Result<()> {
    let was = file.metadata()?.len();
    if len != was {
        if len > was {
            zero_tail(file, was)?;
        }
        file.set_len(len)?;
    }
    let mut rest = pages;
    while let [(number, page), ..] = rest {
        match page {
            Some(page) => {
                write_page(file, *number, page, len)?;
                rest = &rest[1..];
            }
            None => {
                // Neighbours go together.
                let count = rest
                    .iter()
                    .zip(*number..)
                    .take_while(|((n, page), next)| n == next && page.is_none())
                    .count();
                punch(file, *number, count as u64, len)?;
                rest = &rest[count..];
            }
        }
    }
    Ok(())
}

/// A mapping may have written behind the end of a file; if the file grows, that must not show.
fn zero_tail(file: &File, len: u64) -> io::Result<()> {
    let within = (len % PAGE_LEN as u64) as usize;
    if within == 0 {
        return Ok(());
    }
    // Only a longer file shows what is there.
    file.set_len(len - within as u64 + PAGE_LEN as u64)?;
    let mut tail = vec![0; PAGE_LEN - within];
    let read = content::read_full(file, &mut tail, len)?;
    if !content::is_zero(&tail[..read]) {
        tail.fill(0);
        file.write_all_at(&tail, len)?;
    }
    Ok(())
}

/// Writes a page, or what of it lies within the file.
fn write_page(file: &File, number: u64, page: &Page, len: u64) -> io::Result<()> {
    let at = number * PAGE_LEN as u64;
    let within = len.saturating_sub(at).min(PAGE_LEN as u64) as usize;
    file.write_all_at(&page[..within], at)
}

/// Makes pages zeros, without storage where the file system can do that.
fn punch(file: &File, number: u64, count: u64, len: u64) -> io::Result<()> {
    let at = number * PAGE_LEN as u64;
    let wanted = count * PAGE_LEN as u64;
    let (Ok(offset), Ok(size)) = (i64::try_from(at), i64::try_from(wanted)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor that is open, and numbers.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, size) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
            (number..number + count).try_for_each(|n| write_page(file, n, &[0; PAGE_LEN], len))
        }
        _ => Err(error),
    }
}
