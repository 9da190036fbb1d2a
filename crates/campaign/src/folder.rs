//! The folder of a campaign: who may write to it, whose it is, and where things lie in it.
//!
//! ```text
//! DIR/campaign.json     what is searched, and how: version, kind, settings
//!     lock              whoever writes holds it (`flock`); it names the process
//!     journal           what was found out (crate::journal)
//!     course            what was reached when (crate::course)
//!     README.txt        for people who come across the folder
//!     queue/  crashes/  hangs/     test cases, named as AFL++ names them (crate::case_name)
//!     fuzzer_stats  plot_data      figures, as AFL++ writes them (crate::afl)
//! ```
//!
//! A campaign's folder looks like that of *one* fuzzer of AFL++ (`OUT/default`). So `afl-plot DIR`,
//! and `afl-whatsup` on the folder above it, work. If that is AFL++'s `-o` folder, then AFL++ takes
//! over our queue by itself.
//!
//! **Guarantee.** Two processes never write to one folder; the lock ends with the process that
//! holds it, however it ends. A folder that is not empty and not a campaign is not touched. A
//! folder that was created halfway by a killed process can be created again. A campaign goes on
//! only with the settings that it was begun with, where these matter (the `key`); an error names
//! each difference. What is damaged or foreign is an error, never a panic.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::afl::{self, FuzzerStats, PlotLine};
use crate::case_name::CaseName;
use crate::files::{self, Durability};

/// Version of the folder's layout. A newer one is refused.
pub const VERSION: u32 = 1;

const IDENTITY_FILE: &str = "campaign.json";
const LOCK_FILE: &str = "lock";

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Something else is in it.
    #[error(
        "{} is not empty and holds no campaign (there is {found:?} in it); choose another folder",
        path.display()
    )]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// One of the names in it.
        found: String,
    },
    /// A new campaign was to be begun where one is.
    #[error(
        "{} already holds a campaign; go on with it by --resume, or choose another folder",
        path.display()
    )]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// There is nothing to go on with.
    #[error("{} holds no campaign; leave --resume out to begin one", path.display())]
    NotACampaign {
        /// The folder.
        path: PathBuf,
    },
    /// The path is taken by something else.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else writes to it.
    #[error(
        "{} is in use by {}; wait until it has ended, or choose another folder",
        path.display(), owner.map_or("another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who, as far as known.
        owner: Option<u32>,
    },
    /// `campaign.json` cannot be understood.
    #[error("{} is damaged: {why}", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A later version of the tool has made it.
    #[error(
        "{} was made by a newer version of Brownout (layout {found}, this one knows {VERSION})",
        path.display()
    )]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// It is another kind of campaign.
    #[error("{} holds a campaign of `brownout {found}`, not of `brownout {expected}`", path.display())]
    OtherKind {
        /// The folder.
        path: PathBuf,
        /// Its kind.
        found: String,
        /// The kind that was asked for.
        expected: String,
    },
    /// Settings that matter are not those that it was begun with.
    #[error("{} was begun with other settings: {}", path.display(), list(differences))]
    Differs {
        /// The folder.
        path: PathBuf,
        /// Which ones.
        differences: Vec<Difference>,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// `create`, `read`…
        what: &'static str,
        /// What it was about.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A setting that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path in the key: `program`, `arguments[2]`.
    pub field: String,
    /// What the folder has; `None` if it has no such field.
    pub there: Option<Value>,
    /// What was given now.
    pub given: Option<Value>,
}

fn list(differences: &[Difference]) -> String {
    let text = |value: &Option<Value>| match value {
        Some(value) => value.to_string(),
        None => "nothing".to_owned(),
    };
    let one = |d: &Difference| {
        let (there, given) = (text(&d.there), text(&d.given));
        format!("{} was {there}, and is {given} now", d.field)
    };
    differences.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What is searched, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The analysis: `fuzz`.
    pub kind: String,
    /// What must be the same when the campaign goes on.
    pub key: Value,
    /// What may change in between: time, jobs. It is what the campaign was begun with, for people
    /// and as defaults.
    pub settings: Value,
}

/// `campaign.json`.
#[derive(Serialize, Deserialize)]
struct IdentityFile {
    brownout_campaign: u32,
    /// The version of Brownout that has begun it; for people.
    tool: String,
    #[serde(flatten)]
    identity: Identity,
}

impl Identity {
    /// From any data that serde can write as JSON. An error if it cannot (a map whose keys are not
    /// text).
    pub fn new(
        kind: &str,
        key: &impl Serialize,
        settings: &impl Serialize,
    ) -> Result<Identity, serde_json::Error> {
        Ok(Identity {
            kind: kind.to_owned(),
            key: serde_json::to_value(key)?,
            settings: serde_json::to_value(settings)?,
        })
    }

    /// A hash of kind and key, for [`crate::journal`].
    pub fn hash(&self) -> [u8; 32] {
        let mut text = format!("{}\n", self.kind);
        canonical(&self.key, &mut text);
        *blake3::hash(text.as_bytes()).as_bytes()
    }

    /// Where the keys of two campaigns differ.
    pub fn differences(&self, given: &Identity) -> Vec<Difference> {
        let mut differences = Vec::new();
        compare("", Some(&self.key), Some(&given.key), &mut differences);
        differences
    }
}

/// Writes a value with the fields of its maps in one order. (Whether `serde_json` keeps them sorted
/// is for the whole program to decide, by a feature.)
fn canonical(value: &Value, into: &mut String) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            into.push('{');
            for (name, value) in fields {
                *into += &Value::from(name.as_str()).to_string();
                into.push(':');
                canonical(value, into);
                into.push(',');
            }
            into.push('}');
        }
        Value::Array(values) => {
            into.push('[');
            for value in values {
                canonical(value, into);
                into.push(',');
            }
            into.push(']');
        }
        plain => *into += &plain.to_string(),
    }
}

/// A name for what a file holds, for keys: a program that was built anew is another one.
pub fn content_name(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn compare(field: &str, there: Option<&Value>, given: Option<&Value>, into: &mut Vec<Difference>) {
    match (there, given) {
        (Some(Value::Object(there)), Some(Value::Object(given))) => {
            let others = given.keys().filter(|name| !there.contains_key(*name));
            for name in there.keys().chain(others) {
                let dot = if field.is_empty() { "" } else { "." };
                let field = format!("{field}{dot}{name}");
                compare(&field, there.get(name), given.get(name), into);
            }
        }
        (Some(Value::Array(there)), Some(Value::Array(given))) => {
            for i in 0..there.len().max(given.len()) {
                compare(&format!("{field}[{i}]"), there.get(i), given.get(i), into);
            }
        }
        (there, given) if there == given => {}
        (there, given) => into.push(Difference {
            field: field.to_owned(),
            there: there.cloned(),
            given: given.cloned(),
        }),
    }
}

/// The folders that hold cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Shelf {
    /// What the search goes on from.
    Queue,
    /// What ended the program by a signal, or is a finding otherwise.
    Crashes,
    /// What did not end in time.
    Hangs,
}

impl Shelf {
    /// All of them.
    pub const ALL: [Shelf; 3] = [Shelf::Queue, Shelf::Crashes, Shelf::Hangs];

    /// Its folder's name.
    pub fn name(self) -> &'static str {
        match self {
            Shelf::Queue => "queue",
            Shelf::Crashes => "crashes",
            Shelf::Hangs => "hangs",
        }
    }
}

/// A case in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseFile {
    /// What its name says.
    pub name: CaseName,
    /// Where it is.
    pub path: PathBuf,
}

/// Where things lie in a folder; also for those that only look, while another process writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file of the journal. It is opened before the first case is added: a folder with cases
    /// and without a journal counts as damaged.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// A folder of cases.
    pub fn shelf(&self, shelf: Shelf) -> PathBuf {
        self.root.join(shelf.name())
    }

    /// The figures for `afl-whatsup`.
    pub fn fuzzer_stats(&self) -> PathBuf {
        self.root.join("fuzzer_stats")
    }

    /// The figures for `afl-plot`.
    pub fn plot_data(&self) -> PathBuf {
        self.root.join("plot_data")
    }

    /// What was reached when ([`crate::course`]).
    pub fn course(&self) -> PathBuf {
        self.root.join("course")
    }

    /// Whether a process writes to the folder now; `None` if that cannot be known. The lock is not
    /// touched: whoever wants it meanwhile gets it.
    pub fn is_in_use(&self) -> Option<bool> {
        let path = self.root.join(LOCK_FILE);
        let inode = fs::metadata(&path).ok()?.ino();
        let owner = fs::read_to_string(&path).ok()?;
        let owner = owner.trim();
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234567 0 EOF
        Some(locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1) == Some(&"FLOCK")
                && words.get(4) == Some(&owner)
                && words
                    .get(5)
                    .and_then(|file| file.rsplit(':').next()?.parse().ok())
                    == Some(inode)
        }))
    }

    /// The cases on a shelf, by number. Other files are passed over, a shelf that is not there is
    /// empty.
    pub fn cases(&self, shelf: Shelf) -> Result<Vec<CaseFile>, FolderError> {
        cases_in(&self.shelf(shelf))
    }

    /// The case with this number.
    pub fn case(&self, shelf: Shelf, id: u64) -> Result<Option<CaseFile>, FolderError> {
        let cases = self.cases(shelf)?;
        Ok(cases.into_iter().find(|case| case.name.id == id))
    }
}

/// The cases in any folder that has them, by number.
pub(crate) fn cases_in(folder: &Path) -> Result<Vec<CaseFile>, FolderError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("read", folder, error)),
    };
    let mut cases = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| io_error("read", folder, e))?;
        let Some(name) = CaseName::parse(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        // A folder or a pipe may have such a name, too. What has gone since is not there.
        if !entry.path().metadata().is_ok_and(|m| m.is_file()) {
            continue;
        }
        let path = entry.path();
        cases.push(CaseFile { name, path });
    }
    cases.sort_by(|a, b| (a.name.id, &a.path).cmp(&(b.name.id, &b.path)));
    Ok(cases)
}

/// A folder that this process writes to, and nobody else does.
#[derive(Debug)]
pub struct Folder {
    layout: Layout,
    identity: Identity,
    _lock: Lock,
}

/// Held as long as this lives.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that is being started, and has not executed its program yet, has a copy of the
        // descriptor, and closing ours would leave the lock with that for a moment. SAFETY: the
        // descriptor is that of the file, which lives; the call touches no memory.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl Folder {
    /// Begins a campaign in a folder that is empty or not there yet.
    pub fn create(path: &Path, identity: &Identity) -> Result<Folder, FolderError> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                let path = path.to_path_buf();
                return Err(FolderError::NotAFolder { path });
            }
            // A new lock would be something in a folder that is not ours.
            Ok(_) => must_be_new(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path).map_err(|e| io_error("create", path, e))?;
            }
            Err(error) => return Err(io_error("open", path, error)),
        }
        let lock = lock(path)?;
        // Another process may have been faster.
        must_be_new(path)?;
        let file = IdentityFile {
            brownout_campaign: VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            identity: identity.clone(),
        };
        let at = path.join(IDENTITY_FILE);
        let text = serde_json::to_vec_pretty(&file).map_err(|e| corrupt(&at, e))?;
        let written = files::write_whole(&at, &text, Durability::Synced);
        written.map_err(|e| io_error("write", &at, e))?;
        Folder::furnish(path, identity.clone(), lock)
    }

    /// Goes on with a campaign. `given` must have the kind and the key that it was begun with; what
    /// it was begun with, settings included, is then [`Folder::identity`].
    pub fn resume(path: &Path, given: &Identity) -> Result<Folder, FolderError> {
        // Nothing is written to a folder that is none of ours.
        let (_, before) = Folder::look(path)?;
        agree(path, &before, given)?;
        let lock = lock(path)?;
        let (layout, there) = Folder::look(path)?;
        agree(path, &there, given)?;
        // Without it a campaign would begin anew in an old folder, and nobody would notice.
        let journal = layout.journal();
        if !journal.exists() {
            for shelf in Shelf::ALL {
                if !layout.cases(shelf)?.is_empty() {
                    return Err(corrupt(&journal, "it is missing, but there are cases"));
                }
            }
        }
        Folder::furnish(path, there, lock)
    }

    /// Looks at a campaign, which may be under way, without writing: where things are, and what it
    /// was begun with.
    pub fn look(path: &Path) -> Result<(Layout, Identity), FolderError> {
        let root = path.to_path_buf();
        let file = path.join(IDENTITY_FILE);
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(FolderError::NotAFolder { path: root });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FolderError::NotACampaign { path: root });
            }
            Err(error) => return Err(io_error("open", path, error)),
        }
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FolderError::NotACampaign { path: root });
            }
            Err(error) => return Err(io_error("read", &file, error)),
        };
        // The version comes first: a newer one may have other fields.
        let value: Value = serde_json::from_slice(&text).map_err(|e| corrupt(&file, e))?;
        match value.get("brownout_campaign").and_then(Value::as_u64) {
            None => return Err(corrupt(&file, "it is not the description of a campaign")),
            Some(found) if found > u64::from(VERSION) => {
                return Err(FolderError::Newer { path: root, found });
            }
            Some(_) => {}
        }
        let there: IdentityFile = serde_json::from_value(value).map_err(|e| corrupt(&file, e))?;
        Ok((Layout { root }, there.identity))
    }

    /// What may be missing, because the process that created the folder was killed, is made; what
    /// it left is removed.
    fn furnish(path: &Path, identity: Identity, lock: Lock) -> Result<Folder, FolderError> {
        let layout = Layout {
            root: path.to_path_buf(),
        };
        // The name of the process is only there for people.
        let owner = format!("{}\n", std::process::id());
        let _ = lock.0.set_len(0);
        let _ = lock.0.write_all_at(owner.as_bytes(), 0);
        for shelf in Shelf::ALL {
            let folder = layout.shelf(shelf);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let removed = files::remove_temporaries(&folder);
                    removed.map_err(|e| io_error("tidy", &folder, e))?;
                }
                made => made.map_err(|e| io_error("create", &folder, e))?,
            }
        }
        files::remove_temporaries(path).map_err(|e| io_error("tidy", path, e))?;
        let readme = path.join("README.txt");
        if !readme.exists() {
            let text = readme_text(&identity.kind);
            let written = files::write_whole(&readme, text.as_bytes(), Durability::Process);
            written.map_err(|e| io_error("write", &readme, e))?;
        }
        Ok(Folder {
            layout,
            identity,
            _lock: lock,
        })
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the campaign was begun with.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Adds a case. One with the same name is replaced.
    ///
    /// AFL++ counts instead of reading numbers when it takes cases over: those of the queue must be
    /// 0, 1, 2… without a gap.
    pub fn add_case(
        &self,
        shelf: Shelf,
        name: &CaseName,
        input: &[u8],
        durability: Durability,
    ) -> Result<PathBuf, FolderError> {
        let path = self.layout.shelf(shelf).join(name.to_string());
        self.write_at(&path, input, durability)?;
        Ok(path)
    }

    /// Writes a file of the campaign's own, whole; `name` may have folders in it, which are made.
    pub fn write(
        &self,
        name: impl AsRef<Path>,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<PathBuf, FolderError> {
        let path = self.layout.root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| io_error("create", folder, e))?;
        }
        self.write_at(&path, bytes, durability)?;
        Ok(path)
    }

    fn write_at(&self, path: &Path, bytes: &[u8], how: Durability) -> Result<(), FolderError> {
        files::write_whole(path, bytes, how).map_err(|e| io_error("write", path, e))
    }

    /// Writes `fuzzer_stats`. Nothing is written as long as AFL++'s tools could not work with it.
    pub fn write_stats(&self, stats: &FuzzerStats) -> Result<(), FolderError> {
        if !stats.is_presentable() {
            return Ok(());
        }
        let path = self.layout.fuzzer_stats();
        self.write_at(&path, stats.to_string().as_bytes(), Durability::Process)
    }

    /// Adds a line to `plot_data`.
    pub fn append_plot(&self, line: &PlotLine) -> Result<(), FolderError> {
        let path = self.layout.plot_data();
        afl::append_plot(&path, line).map_err(|e| io_error("write to", &path, e))
    }
}

fn io_error(what: &'static str, path: &Path, error: io::Error) -> FolderError {
    let path = path.to_path_buf();
    FolderError::Io { what, path, error }
}

fn corrupt(file: &Path, why: impl ToString) -> FolderError {
    FolderError::Corrupt {
        file: file.to_path_buf(),
        why: why.to_string(),
    }
}

/// An error unless the folder is empty, but for what a creation that was killed leaves.
fn must_be_new(path: &Path) -> Result<(), FolderError> {
    let entries = fs::read_dir(path).map_err(|e| io_error("read", path, e))?;
    let mut found = None;
    for entry in entries {
        let name = entry.map_err(|e| io_error("read", path, e))?.file_name();
        if name == OsStr::new(IDENTITY_FILE) {
            let path = path.to_path_buf();
            return Err(FolderError::Exists { path });
        }
        if name != OsStr::new(LOCK_FILE) && !files::is_temporary(&name) {
            found = Some(name);
        }
    }
    match found {
        None => Ok(()),
        Some(name) => Err(FolderError::NotEmpty {
            path: path.to_path_buf(),
            found: name.to_string_lossy().into_owned(),
        }),
    }
}

fn agree(path: &Path, there: &Identity, given: &Identity) -> Result<(), FolderError> {
    let path = path.to_path_buf();
    if there.kind != given.kind {
        return Err(FolderError::OtherKind {
            path,
            found: there.kind.clone(),
            expected: given.kind.clone(),
        });
    }
    let differences = there.differences(given);
    if differences.is_empty() {
        return Ok(());
    }
    Err(FolderError::Differs { path, differences })
}

/// So long a lock is waited for whose owner is gone.
const FORKS_END_WITHIN: Duration = Duration::from_secs(5);

/// The file is closed when another program is executed, so only forks of an owner keep the lock
/// alive. They end when it does, a moment later: whoever resumes a campaign right after it was
/// killed waits for that.
fn lock(folder: &Path) -> Result<Lock, FolderError> {
    let begun = Instant::now();
    loop {
        match try_lock(folder) {
            Err(FolderError::InUse {
                owner: Some(owner), ..
            }) if is_gone(owner) && begun.elapsed() < FORKS_END_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            locked => return locked,
        }
    }
}

fn is_gone(process: u32) -> bool {
    !Path::new("/proc").join(process.to_string()).exists()
}

fn try_lock(folder: &Path) -> Result<Lock, FolderError> {
    let path = folder.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options
        .open(&path)
        .map_err(|e| io_error("open", &path, e))?;
    // SAFETY: the descriptor is that of `file`, which lives; the call touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(Lock(file));
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::WouldBlock {
        return Err(io_error("lock", &path, error));
    }
    let mut owner = String::new();
    // It is there for people: what cannot be read is not known.
    let _ = file.read_to_string(&mut owner);
    Err(FolderError::InUse {
        path: folder.to_path_buf(),
        owner: owner.trim().parse().ok(),
    })
}

fn readme_text(kind: &str) -> String {
    format!(
        "This folder belongs to a campaign of `brownout {kind}`.

campaign.json   what is searched and how; a campaign goes on only with the same
journal         what was found out so far, for `brownout {kind} --resume`
course          what was reached when; `brownout report THIS_FOLDER -o page.html`
                draws it
queue/          inputs that reached something new
crashes/        inputs that show something wrong
hangs/          inputs on which the program did not end in time
fuzzer_stats, plot_data
                figures as AFL++ writes them: `afl-plot THIS_FOLDER SOMEWHERE`,
                and `afl-whatsup` on the folder that this one lies in

A file's name says where its input comes from:
id:000007,src:000003,time:1475,execs:2251,op:havoc is case 7, made from case 3
after 1475 milliseconds and 2251 executions by the operation `havoc`.

Nothing here may be changed while the campaign runs; afterwards all of it may be
copied, moved or removed as one.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::io::Write as _;

    fn identity() -> Identity {
        let key = json!({"program": "/bin/cat", "arguments": ["-", "x"], "setup": null});
        Identity::new("fuzz", &key, &json!({"jobs": 2})).unwrap()
    }

    fn listing(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).unwrap();
        let mut names: Vec<String> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn who_looks_knows_whether_it_is_under_way() {
        let place = tempfile::tempdir().expect("a folder");
        let identity = Identity::new("fuzz", &1, &2).expect("plain data");
        let folder = Folder::create(place.path(), &identity).expect("it is new");
        let (layout, _) = Folder::look(place.path()).expect("it is one");
        assert_eq!(layout.is_in_use(), Some(true));
        drop(folder);
        assert_eq!(layout.is_in_use(), Some(false));
    }

    #[test]
    fn a_campaign_is_begun_and_gone_on_with() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/folder");
        let folder = Folder::create(&path, &identity()).unwrap();
        let names = [
            "README.txt",
            "campaign.json",
            "crashes",
            "hangs",
            "lock",
            "queue",
        ];
        assert_eq!(listing(&path), names);
        drop(folder);
        let error = Folder::create(&path, &identity()).unwrap_err();
        assert!(matches!(error, FolderError::Exists { .. }));
        assert!(error.to_string().contains("--resume"), "{error}");
        let mut given = identity();
        given.settings = json!({"jobs": 8});
        let folder = Folder::resume(&path, &given).unwrap();
        assert_eq!(folder.identity(), &identity(), "as it was begun");
        assert_eq!(folder.identity().hash(), given.hash());
    }

    #[test]
    fn only_one_may_write_and_anybody_may_look() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path(), &identity()).unwrap();
        let error = Folder::resume(place.path(), &identity()).unwrap_err();
        match &error {
            FolderError::InUse { owner, .. } => assert_eq!(*owner, Some(std::process::id())),
            other => panic!("{other}"),
        }
        let (layout, there) = Folder::look(place.path()).unwrap();
        assert_eq!((&layout, &there), (folder.layout(), folder.identity()));
        drop(folder);
        Folder::resume(place.path(), &identity()).unwrap();
    }

    #[test]
    fn a_folder_of_something_else_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("thesis.tex"), "mine").unwrap();
        let error = Folder::create(place.path(), &identity()).unwrap_err();
        assert!(matches!(error, FolderError::NotEmpty { .. }));
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        let error = Folder::resume(place.path(), &identity()).unwrap_err();
        assert!(matches!(error, FolderError::NotACampaign { .. }));
        assert_eq!(listing(place.path()), ["thesis.tex"]);
        let file = place.path().join("thesis.tex");
        for error in [
            Folder::create(&file, &identity()).unwrap_err(),
            Folder::resume(&file, &identity()).unwrap_err(),
        ] {
            assert!(matches!(error, FolderError::NotAFolder { .. }), "{error}");
        }
        let nowhere = place.path().join("nowhere");
        let error = Folder::resume(&nowhere, &identity()).unwrap_err();
        assert!(matches!(error, FolderError::NotACampaign { .. }));
        assert!(!nowhere.exists());
    }

    #[test]
    fn a_creation_that_was_killed_can_be_done_again() {
        let place = tempfile::tempdir().unwrap();
        let half = format!("{}1-1", files::TEMPORARY_PREFIX);
        fs::write(place.path().join(&half), "{").unwrap();
        fs::write(place.path().join("lock"), "").unwrap();
        drop(Folder::create(place.path(), &identity()).unwrap());
        // Killed after the identity was written.
        fs::remove_dir(place.path().join("hangs")).unwrap();
        fs::remove_file(place.path().join("README.txt")).unwrap();
        fs::write(place.path().join("queue").join(&half), "half").unwrap();
        let folder = Folder::resume(place.path(), &identity()).unwrap();
        assert!(folder.layout().shelf(Shelf::Hangs).is_dir());
        assert!(place.path().join("README.txt").exists());
        assert!(!place.path().join(&half).exists());
        assert!(listing(&folder.layout().shelf(Shelf::Queue)).is_empty());
    }

    #[test]
    fn other_settings_are_named() {
        let place = tempfile::tempdir().unwrap();
        drop(Folder::create(place.path(), &identity()).unwrap());
        let mut given = identity();
        given.key = json!({"program": "/bin/cat", "arguments": ["-"], "setup": null, "pm": ["*"]});
        let error = Folder::resume(place.path(), &given).unwrap_err();
        let FolderError::Differs { differences, .. } = &error else {
            panic!("{error}");
        };
        let fields: Vec<&str> = differences.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["arguments[1]", "pm"]);
        let text = error.to_string();
        let part = r#"arguments[1] was "x", and is nothing now; pm was nothing, and is ["*"] now"#;
        assert!(text.contains(part), "{text}");
        given = identity();
        given.kind = "race".into();
        let error = Folder::resume(place.path(), &given).unwrap_err();
        assert!(matches!(error, FolderError::OtherKind { .. }));
    }

    #[test]
    fn a_damaged_description_is_an_error_at_every_cut() {
        let place = tempfile::tempdir().unwrap();
        drop(Folder::create(place.path(), &identity()).unwrap());
        let file = place.path().join(IDENTITY_FILE);
        let text = fs::read(&file).unwrap();
        for cut in 0..text.len() - 1 {
            fs::write(&file, &text[..cut]).unwrap();
            let error = Folder::resume(place.path(), &identity()).unwrap_err();
            assert!(matches!(error, FolderError::Corrupt { .. }), "{error}");
        }
        let newer = String::from_utf8(text).unwrap();
        let newer = newer.replace("\"brownout_campaign\": 1", "\"brownout_campaign\": 2");
        fs::write(&file, newer).unwrap();
        let error = Folder::resume(place.path(), &identity()).unwrap_err();
        assert!(
            matches!(error, FolderError::Newer { found: 2, .. }),
            "{error}"
        );
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(Folder::resume(place.path(), &identity()).is_err());
    }

    #[test]
    fn a_journal_that_has_gone_is_missed() {
        let place = tempfile::tempdir().unwrap();
        for shelf in Shelf::ALL {
            let path = place.path().join(shelf.name());
            let folder = Folder::create(&path, &identity()).unwrap();
            let journal = folder.layout().journal();
            // Killed before the journal was made.
            drop(folder);
            let folder = Folder::resume(&path, &identity()).unwrap();
            fs::write(&journal, "whatever the journal's module says to it").unwrap();
            let name = CaseName::seed(0, "seed");
            let added = folder.add_case(shelf, &name, b"x", Durability::Process);
            added.unwrap();
            drop(folder);
            drop(Folder::resume(&path, &identity()).unwrap());
            fs::remove_file(&journal).unwrap();
            let error = Folder::resume(&path, &identity()).unwrap_err();
            assert!(matches!(error, FolderError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains("journal"), "{error}");
        }
    }

    #[test]
    fn the_lock_ends_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        drop(Folder::create(place.path(), &identity()).unwrap());
        // `cat` answers when it has been started, and that is after the lock was taken.
        let mut owner = std::process::Command::new("flock")
            .args(["--no-fork", "lock", "cat"])
            .current_dir(place.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("flock of util-linux");
        owner.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let answer = owner.stdout.as_mut().unwrap();
        answer.read_exact(&mut [0]).unwrap();
        let error = Folder::resume(place.path(), &identity()).unwrap_err();
        assert!(matches!(error, FolderError::InUse { .. }), "{error}");
        owner.kill().unwrap();
        owner.wait().unwrap();
        Folder::resume(place.path(), &identity()).unwrap();
    }

    /// A tool that was killed may have forks for a moment longer.
    #[test]
    fn forks_of_an_owner_that_is_gone_are_waited_for() {
        let place = tempfile::tempdir().unwrap();
        drop(Folder::create(place.path(), &identity()).unwrap());
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let mut fork = std::process::Command::new("flock")
            .args(["--no-fork", "lock", "sh", "-c", "echo; sleep 0.3"])
            .current_dir(place.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("flock of util-linux");
        let answer = fork.stdout.as_mut().unwrap();
        answer.read_exact(&mut [0]).unwrap();
        fs::write(place.path().join("lock"), format!("{}\n", gone.id())).unwrap();
        Folder::resume(place.path(), &identity()).unwrap();
        fork.wait().unwrap();
    }

    #[test]
    fn cases_are_listed_by_number() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path(), &identity()).unwrap();
        let queue = folder.layout().shelf(Shelf::Queue);
        fs::create_dir(queue.join(".state")).unwrap();
        fs::create_dir(queue.join("id:000009,a folder")).unwrap();
        fs::write(queue.join("README.txt"), "").unwrap();
        for id in [1_000_000, 2, 0] {
            let name = CaseName::from_case(id, 0, None, "havoc");
            let input = id.to_string();
            let how = Durability::Process;
            folder
                .add_case(Shelf::Queue, &name, input.as_bytes(), how)
                .unwrap();
        }
        let cases = folder.layout().cases(Shelf::Queue).unwrap();
        let ids: Vec<u64> = cases.iter().map(|case| case.name.id).collect();
        assert_eq!(ids, [0, 2, 1_000_000]);
        let two = folder.layout().case(Shelf::Queue, 2).unwrap().unwrap();
        assert_eq!(fs::read(two.path).unwrap(), b"2");
        assert_eq!(folder.layout().case(Shelf::Hangs, 2).unwrap(), None);
    }

    #[test]
    fn figures_are_written_when_there_are_some() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path(), &identity()).unwrap();
        let mut stats = FuzzerStats::default();
        folder.write_stats(&stats).unwrap();
        assert!(!folder.layout().fuzzer_stats().exists());
        (stats.execs_done, stats.corpus_count) = (1, 1);
        folder.write_stats(&stats).unwrap();
        assert!(folder.layout().fuzzer_stats().exists());
        folder.append_plot(&PlotLine::of(&stats, 1.0)).unwrap();
        let path = folder.write("deep/er/file", b"x", Durability::Synced);
        assert_eq!(fs::read(path.unwrap()).unwrap(), b"x");
    }

    proptest! {
        #[test]
        fn nonsense_as_description_is_survived(text in "[\\PC\\x00]{0,60}", ours in any::<bool>()) {
            let place = tempfile::tempdir().unwrap();
            let text = if ours { format!("{{\"brownout_campaign\": 1, {text}}}") } else { text };
            fs::write(place.path().join(IDENTITY_FILE), text).unwrap();
            let corrupt = matches!(Folder::look(place.path()), Err(FolderError::Corrupt { .. }));
            prop_assert!(corrupt);
        }
    }
}
