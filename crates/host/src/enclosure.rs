//! A private view of the machine for a program: what it does to files, to the network and to System
//! V objects is seen by nobody else, and is gone when the view is dropped.
//!
//! ```text
//!  the user's file systems ──────────────────────────────┐ never written to
//!  layer (what set-up changed) ── layer (what ran next) ─┤
//!                                                        ▼
//!  Enclosures ── enclose(layers below) ──▶ Enclosure: one overlay for each writable file system, on a layer of its own
//!                                            │ root(): the tool reads and writes files in it, from outside
//!                                            ▼ LaunchConfig::enclosure: a program is started in it
//! ```
//! A view is a mount namespace. Each writable file system of the machine is covered by an overlay
//! whose upper folder lies in memory; what is no place for files (`/proc`, `/sys`, devices), and
//! what is read-only, is shown as it is. With it comes a network namespace, in which there is only
//! the loopback interface, and each program gets an IPC namespace of its own.
//!
//! [`Enclosures`] owns the memory, as a file system that is mounted in a namespace of its own and
//! has no name outside. So when the tool ends, by whatever signal, the kernel takes back
//! everything. Only the empty folder on which that is mounted may be left behind.
//!
//! Root makes the namespaces directly; everybody else in a user namespace. There the mounts that
//! were inherited cannot be taken apart, so that a folder with other file systems below it cannot
//! be covered as a whole: it is made anew, with copies of its files, and its subfolders are covered
//! one by one. Where the kernel allows neither, there is no view, and the reason is said.
//!
//! The steps of making one are planned here and executed in a forked child, because a thread of a
//! larger process cannot change its mount namespace. The child makes system calls only, and
//! allocates nothing.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sockets::SocketMaker;

/// Where programs in a user namespace find what the tool hands them.
const HANDED: &str = ".brownout";
/// A file that must be copied to be shown at all is not longer than this.
const COPY_MAX: u64 = 1 << 20;

/// How the namespaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// As root.
    Root,
    /// In a user namespace.
    User,
}

/// What there is to be covered or shown, in the order in which it is done.
#[derive(Clone, Debug)]
enum Place {
    /// An overlay.
    Overlay {
        at: PathBuf,
        /// What it covers; differs from the place for a folder that was made anew.
        lower: PathBuf,
        /// Without it there is no view.
        required: bool,
    },
    /// Shown as it is, with what is mounted below it.
    Bind { at: PathBuf, from: PathBuf },
    /// Shown, but not to be written to.
    ReadOnly { at: PathBuf },
}

impl Place {
    fn at(&self) -> &Path {
        match self {
            Place::Overlay { at, .. } | Place::Bind { at, .. } | Place::ReadOnly { at } => at,
        }
    }
}

/// Makes views; see the module's header.
pub struct Enclosures {
    privilege: Privilege,
    user: Option<File>,
    /// The mount namespace in which the memory is mounted; views are made from it.
    base: File,
    /// The memory, as the tool sees it.
    store: Arc<Folder>,
    /// The memory, as the base namespace sees it.
    inside: PathBuf,
    places: Vec<Place>,
    has_network: bool,
    next: AtomicU64,
    /// Makes sockets in the networks of views, once somebody needs one.
    sockets: OnceLock<SocketMaker>,
}

/// A folder by descriptor, and a path that leads to it.
struct Folder {
    path: PathBuf,
    _open: File,
}

impl Folder {
    fn new(open: File) -> Folder {
        Folder {
            path: PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())),
            _open: open,
        }
    }
}

/// What programs in a view have changed. It can lie below another view.
#[derive(Clone)]
pub struct Layer(Arc<LayerFolder>);

struct LayerFolder {
    number: u64,
    /// As the tool sees it.
    path: PathBuf,
    /// Keeps the path true.
    _store: Arc<Folder>,
}

impl Drop for LayerFolder {
    fn drop(&mut self) {
        remove_all(&self.path);
    }
}

/// A view of the machine; see the module's header.
pub struct Enclosure {
    makers: Arc<Enclosures>,
    mounts: File,
    network: Option<Network>,
    root: Folder,
    layer: Layer,
}

struct Network {
    namespace: File,
    /// How many sockets there are in it, as the kernel says.
    sockets: Vec<File>,
}

/// One step of a child that makes a view.
enum Step {
    Mount {
        source: CString,
        target: CString,
        kind: Option<CString>,
        flags: libc::c_ulong,
        data: Option<CString>,
        /// Which place it is for.
        place: usize,
    },
}

/// Why there is no view of one's own.
#[derive(Debug)]
pub struct Denied {
    /// What was tried.
    pub what: String,
    /// What the kernel said.
    pub error: io::Error,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl Enclosures {
    /// Finds out what there is on this machine, and whether views can be made. `mountpoint` is an
    /// empty folder that stays as long as this does; programs will be started in `here`. Without
    /// `network`, programs share the machine's.
    pub fn new(
        mountpoint: &Path,
        here: &Path,
        privilege: Option<Privilege>,
        network: bool,
    ) -> Result<Enclosures, Denied> {
        // SAFETY: no arguments.
        let is_root = unsafe { libc::geteuid() } == 0;
        let orders = match privilege {
            Some(one) => vec![one],
            None if is_root => vec![Privilege::Root, Privilege::User],
            None => vec![Privilege::User],
        };
        let mut denied = None;
        for privilege in orders {
            match Self::try_new(mountpoint, here, privilege, network) {
                Ok(made) => return Ok(made),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        Err(denied.unwrap_or_else(|| Denied {
            what: "making namespaces".into(),
            error: io::Error::from_raw_os_error(libc::ENOSYS),
        }))
    }

    fn try_new(
        mountpoint: &Path,
        here: &Path,
        privilege: Privilege,
        network: bool,
    ) -> Result<Enclosures, Denied> {
        let denied = |what: &str| {
            let what = what.to_owned();
            move |error| Denied { what, error }
        };
        let inside = fs::canonicalize(mountpoint).map_err(denied("finding the scratch folder"))?;
        let (base, user, store) =
            make_base(&inside, privilege).map_err(denied("making namespaces"))?;
        let store = Arc::new(Folder::new(store));
        for folder in ["root", "layers", "skeleton", "handed", "scratch"] {
            fs::create_dir(store.path.join(folder)).map_err(denied("making a folder in memory"))?;
        }
        let mounts = mounts().map_err(denied("reading the list of mounts"))?;
        let plan = match privilege {
            Privilege::Root => plan_as_root(&mounts, here),
            Privilege::User => plan_as_user(&mounts, here, &store.path, &inside),
        };
        let places = plan.map_err(denied("looking at what is mounted"))?;
        let mut made = Enclosures {
            privilege,
            user,
            base,
            store,
            inside,
            places,
            has_network: network,
            next: AtomicU64::new(0),
            sockets: OnceLock::new(),
        };
        made.settle(here)?;
        Ok(made)
    }

    /// Tries, and shows read-only what cannot be covered.
    fn settle(&mut self, here: &Path) -> Result<(), Denied> {
        loop {
            let layer = self.layer().map_err(|error| Denied {
                what: "making a folder in memory".into(),
                error,
            })?;
            let (step, error) = match self.build(&layer, &[], self.has_network) {
                Ok((_, _, root)) => return probe(&root, here),
                Err(failed) => failed,
            };
            match step {
                Failed::Place(n) => {
                    let at = self.places[n].at().to_path_buf();
                    match &self.places[n] {
                        Place::Overlay { required: true, .. } => {
                            let what = format!("covering {}", at.display());
                            return Err(Denied { what, error });
                        }
                        Place::Overlay { .. } | Place::Bind { .. } => {
                            self.places[n] = Place::ReadOnly { at };
                        }
                        Place::ReadOnly { .. } => {
                            self.places.remove(n);
                        }
                    }
                }
                Failed::Network => self.has_network = false,
                Failed::Other(what) => {
                    return Err(Denied {
                        what: what.into(),
                        error,
                    });
                }
            }
        }
    }

    /// How the namespaces are made.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// Whether views have networks of their own.
    pub fn has_network(&self) -> bool {
        self.has_network
    }

    /// A folder in memory for the tool's own use. It goes when the tool does.
    pub fn scratch(&self) -> PathBuf {
        self.store.path.join("scratch")
    }

    /// An empty layer.
    fn layer(&self) -> io::Result<Layer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.store.path.join(format!("layers/{number}"));
        fs::create_dir(&path)?;
        let layer = Layer(Arc::new(LayerFolder {
            number,
            path,
            _store: self.store.clone(),
        }));
        for (n, place) in self.places.iter().enumerate() {
            let Place::Overlay { at, .. } = place else {
                continue;
            };
            let folder = layer.0.path.join(n.to_string());
            fs::create_dir(&folder)?;
            let upper = folder.join("upper");
            fs::create_dir(&upper)?;
            fs::create_dir(folder.join("work"))?;
            // The folder that programs see has the attributes of this one.
            if let Ok(meta) = fs::metadata(at) {
                if self.privilege == Privilege::Root {
                    std::os::unix::fs::chown(&upper, Some(meta.uid()), Some(meta.gid()))?;
                }
                fs::set_permissions(&upper, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
            }
        }
        Ok(layer)
    }

    /// A new view. Of `below`, the first covers those behind it, and all cover what the machine
    /// has. Nothing may run any more in the views that they were made in.
    pub fn enclose(self: &Arc<Self>, below: &[Layer]) -> io::Result<Enclosure> {
        let layer = self.layer()?;
        let (mounts, network, root) = self
            .build(&layer, below, self.has_network)
            .map_err(|(_, error)| error)?;
        Ok(Enclosure {
            makers: self.clone(),
            mounts,
            network,
            root,
            layer,
        })
    }

    fn steps(&self, layer: &Layer, below: &[Layer]) -> io::Result<Vec<Step>> {
        let root = self.inside.join("root");
        let mut steps = Vec::new();
        for (n, place) in self.places.iter().enumerate() {
            let target = under(&root, place.at());
            let mount = |source: &Path, kind: Option<&CStr>, flags, data| -> io::Result<Step> {
                Ok(Step::Mount {
                    source: c_path(source)?,
                    target: c_path(&target)?,
                    kind: kind.map(CStr::to_owned),
                    flags,
                    data,
                    place: n,
                })
            };
            match place {
                Place::Overlay { lower, .. } => {
                    let folder = |layer: &Layer| {
                        let number = layer.0.number;
                        self.inside.join(format!("layers/{number}/{n}"))
                    };
                    let changed = |layer: &&Layer| {
                        let upper = layer.0.path.join(format!("{n}/upper"));
                        fs::read_dir(upper).is_ok_and(|mut entries| entries.next().is_some())
                    };
                    let mut data = b"lowerdir=".to_vec();
                    for layer in below.iter().filter(changed) {
                        data.extend(escaped(&folder(layer).join("upper")));
                        data.push(b':');
                    }
                    data.extend(escaped(lower));
                    data.extend(b",upperdir=");
                    data.extend(escaped(&folder(layer).join("upper")));
                    data.extend(b",workdir=");
                    data.extend(escaped(&folder(layer).join("work")));
                    // A folder of the user's can be renamed, as without an overlay.
                    data.extend_from_slice(match self.privilege {
                        Privilege::Root => b",redirect_dir=on,index=off,metacopy=off",
                        Privilege::User => b",userxattr",
                    });
                    let data = CString::new(data)?;
                    steps.push(mount(&mark(&self.inside), Some(c"overlay"), 0, Some(data))?);
                }
                Place::Bind { from, .. } => {
                    steps.push(mount(from, None, libc::MS_BIND | libc::MS_REC, None)?);
                }
                Place::ReadOnly { at } => {
                    steps.push(mount(at, None, libc::MS_BIND, None)?);
                    // What the mount forbids already must stay forbidden.
                    let kept = mount_flags(at)?;
                    let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | kept;
                    steps.push(mount(Path::new("none"), None, flags, None)?);
                }
            }
        }
        Ok(steps)
    }

    /// Makes a view in a child, and takes what names it.
    fn build(
        &self,
        layer: &Layer,
        below: &[Layer],
        network: bool,
    ) -> Result<(File, Option<Network>, Folder), (Failed, io::Error)> {
        let other = |what| move |error| (Failed::Other(what), error);
        let steps = self
            .steps(layer, below)
            .map_err(other("planning the mounts"))?;
        let root = c_path(&self.inside.join("root")).map_err(other("planning the mounts"))?;
        let user = self.user.as_ref().map(AsRawFd::as_raw_fd);
        let base = self.base.as_raw_fd();
        let child = Child::fork(|| make_view(user, base, network, &steps, &root))
            .map_err(other("starting a process"))?;
        if let Err((code, error)) = child.ready() {
            let failed = match code {
                STEP_NETWORK => Failed::Network,
                STEP_NAMESPACE => Failed::Other("making a mount namespace"),
                STEP_ROOT => Failed::Other("changing the root folder"),
                step => Failed::Place(match &steps[(step - STEP_FIRST) as usize] {
                    Step::Mount { place, .. } => *place,
                }),
            };
            return Err((failed, error));
        }
        let taken = || -> io::Result<_> {
            let network = match network {
                true => Some(Network {
                    namespace: child.open("ns/net", 0)?,
                    sockets: ["net/sockstat", "net/sockstat6"]
                        .into_iter()
                        .filter_map(|name| child.open(name, 0).ok())
                        .collect(),
                }),
                false => None,
            };
            let root = child.open("root", libc::O_PATH | libc::O_DIRECTORY)?;
            Ok((child.open("ns/mnt", 0)?, network, Folder::new(root)))
        };
        taken().map_err(other("taking over a namespace"))
    }
}

/// Sees whether a file can be made in a new view where it can be made outside.
fn probe(root: &Folder, here: &Path) -> Result<(), Denied> {
    if !is_writable(here) {
        return Ok(());
    }
    let file = under(&root.path, here).join(".brownout-probe");
    let made = File::create(&file).and_then(|_| fs::remove_file(&file));
    made.map_err(|error| Denied {
        what: format!("writing to {} in a private view", here.display()),
        error,
    })
}

/// Where the making of a view ended.
enum Failed {
    Place(usize),
    Network,
    Other(&'static str),
}

impl Enclosure {
    /// Leads the tool to the root folder of the view.
    pub fn root(&self) -> &Path {
        &self.root.path
    }

    /// Leads the tool to what programs in the view call `path`.
    pub fn path(&self, path: &Path) -> PathBuf {
        under(&self.root.path, path)
    }

    /// What was changed in it so far.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Whether it has a network of its own.
    pub fn has_network(&self) -> bool {
        self.network.is_some()
    }

    /// A stream socket of a family (`AF_INET` and the like) in its network, for the tool to use.
    pub fn socket(&self, family: i32) -> io::Result<OwnedFd> {
        let network = self.network.as_ref();
        let network = network.ok_or_else(|| io::Error::other("it has no network of its own"))?;
        let makers = &self.makers;
        let maker = match makers.sockets.get() {
            Some(maker) => maker,
            None => {
                let user = makers.user.as_ref().map(AsRawFd::as_raw_fd);
                let made = SocketMaker::start(user)?;
                // Of two that were made at once, one is enough.
                makers.sockets.get_or_init(|| made)
            }
        };
        maker.make(network.namespace.as_raw_fd(), family)
    }

    /// Whether sockets are left in its network, and be it that a port is blocked for a while.
    pub fn has_sockets(&self) -> bool {
        let any = |file: &File| {
            let mut text = [0; 2048];
            let n = file.read_at(&mut text, 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&text[..n]);
            text.lines()
                .filter(|line| !line.starts_with("sockets:"))
                .any(|line| {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    words
                        .windows(2)
                        .any(|pair| ["inuse", "tw", "orphan"].contains(&pair[0]) && pair[1] != "0")
                })
        };
        let network = self.network.as_ref();
        network.is_some_and(|network| network.sockets.iter().any(any))
    }

    /// Everything that was changed, created or removed in it, as programs name it. A folder is
    /// named if something in it is; a name that was removed is named, too.
    pub fn changed(&self) -> io::Result<BTreeMap<PathBuf, Changed>> {
        let mut found = BTreeMap::new();
        for (n, place) in self.makers.places.iter().enumerate() {
            if matches!(place, Place::Overlay { .. }) {
                let upper = self.layer.0.path.join(format!("{n}/upper"));
                list(&upper, place.at(), &mut found)?;
            }
        }
        Ok(found)
    }

    /// Has a folder that lies below listed among what was [changed](Self::changed), as it is once a
    /// file was made in it. So [`take_back`](Self::take_back) can take such files away and has
    /// nothing else to take back.
    pub fn open_up(&self, folder: &Path) -> io::Result<()> {
        let file = self.path(folder).join(".brownout-probe");
        File::options().write(true).create_new(true).open(&file)?;
        fs::remove_file(&file)
    }

    /// Takes away what was made in it since `then` ([`changed`](Self::changed)), and says whether
    /// it is as it was then: nothing was removed, nothing that was there is another file now, and
    /// what was made covered nothing. The contents of what was there then are not looked at.
    pub fn take_back(&self, then: &BTreeMap<PathBuf, Changed>) -> io::Result<bool> {
        let now = self.changed()?;
        if now == *then {
            return Ok(true);
        }
        let is_new = |path: &PathBuf| then.get(path).is_none_or(Changed::is_removal);
        let is_same =
            |(path, changed): (&PathBuf, &Changed)| is_new(path) || now.get(path) == Some(changed);
        if !then.iter().all(is_same) {
            return Ok(false);
        }
        // What lies in a folder comes behind it. If something of the same name lies below, the
        // overlay notes the removal: that is as it was if it had been noted, and else it is not.
        for (path, changed) in now.iter().rev() {
            if !is_new(path) || changed.is_removal() {
                continue;
            }
            let at = self.path(path);
            let removed = match changed.is_folder() {
                true => fs::remove_dir(&at),
                false => fs::remove_file(&at),
            };
            if removed.is_err() {
                return Ok(false);
            }
        }
        Ok(self.changed()? == *then)
    }

    /// Ends every process that is still in the view. Which they are is not guessed: they are in its
    /// mount namespace, where nobody else is.
    pub fn end_all(&self) {
        let Ok(own) = self.mounts.metadata() else {
            return;
        };
        let own = (own.dev(), own.ino());
        end_those(|pid| {
            let found = fs::metadata(format!("/proc/{pid}/ns/mnt"));
            found.is_ok_and(|found| (found.dev(), found.ino()) == own)
        });
    }

    /// For a child of this process, between `fork` and `exec`: goes into the view, and there to
    /// `here`. Makes system calls only.
    ///
    /// The view must live until the call.
    pub fn enter(&self, here: &Path) -> io::Result<impl FnMut() -> io::Result<()> + use<>> {
        let here = c_path(here)?;
        let user = self.makers.user.as_ref().map(AsRawFd::as_raw_fd);
        let mounts = self.mounts.as_raw_fd();
        let network = self.network.as_ref().map(|n| n.namespace.as_raw_fd());
        Ok(move || {
            let checked = |r: libc::c_int| match r {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
            // SAFETY: descriptors of namespaces that are open as long as the view lives; a path of
            // ours.
            unsafe {
                if let Some(user) = user {
                    checked(libc::setns(user, libc::CLONE_NEWUSER))?;
                }
                if let Some(network) = network {
                    checked(libc::setns(network, libc::CLONE_NEWNET))?;
                }
                checked(libc::unshare(libc::CLONE_NEWIPC))?;
                checked(libc::setns(mounts, libc::CLONE_NEWNS))?;
                checked(libc::chdir(here.as_ptr()))
            }
        })
    }

    /// A file for a program in the view and the tool to share: as the tool has it, and where the
    /// program finds it. `None`: the program may look into the tool's own descriptors.
    pub(crate) fn hand(&self, name: &str) -> io::Result<Option<(File, Handed)>> {
        if self.makers.privilege == Privilege::Root {
            return Ok(None);
        }
        let number = self.makers.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{number}");
        let path = self.makers.store.path.join("handed").join(&name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let handed = Handed {
            path,
            inside: format!("/{HANDED}/{name}"),
            _store: self.makers.store.clone(),
        };
        Ok(Some((file, handed)))
    }
}

/// Ends every process in the views of a tool that is gone, whose memory was mounted at
/// `mountpoint`: their overlays bear its name.
pub fn end_orphans(mountpoint: &Path) {
    let own = mark(mountpoint);
    let own = own.as_os_str().as_bytes();
    end_those(|pid| {
        let text = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        text.split(|byte| *byte == b'\n').any(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            fields.any(|field| field == b"-")
                && fields.next() == Some(b"overlay")
                && fields.next().is_some_and(|source| unescaped(source) == own)
        })
    });
}

/// What overlays are called, so that it can be seen whose they are.
fn mark(mountpoint: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from("brownout:");
    name.push(mountpoint);
    PathBuf::from(name)
}

/// Ends all processes of which that is true.
fn end_those(is_meant: impl Fn(i32) -> bool) {
    // One may just be making another.
    for _ in 0..1000 {
        let mut ended = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if !is_meant(pid) {
                continue;
            }
            // SAFETY: a new descriptor or an error.
            let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
            if process < 0 {
                continue;
            }
            // SAFETY: the descriptor is ours. It names the process that had the number when it was
            // opened; that one is looked at again.
            unsafe {
                let process = File::from_raw_fd(process);
                if is_meant(pid) {
                    let fd = process.as_raw_fd();
                    libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, 0, 0);
                    ended.push(pid);
                }
            }
        }
        if ended.is_empty() {
            return;
        }
        for pid in ended {
            let mut status = 0;
            // SAFETY: takes it if it has come to us, and does nothing else.
            unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) };
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A file that was handed to a program. It goes with this.
pub(crate) struct Handed {
    path: PathBuf,
    /// What the program calls it.
    pub inside: String,
    /// Keeps the path true.
    _store: Arc<Folder>,
}

impl Drop for Handed {
    fn drop(&mut self) {
        // It goes with the memory at the latest.
        let _ = fs::remove_file(&self.path);
    }
}

/// All entries of an upper folder.
fn list(upper: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Changed>) -> io::Result<()> {
    for entry in fs::read_dir(upper)? {
        let entry = entry?;
        let name = at.join(entry.file_name());
        let meta = entry.metadata()?;
        if meta.is_dir() {
            list(&entry.path(), &name, found)?;
        }
        let mut changed = Changed {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            inode: meta.ino(),
            links: if meta.is_dir() { 0 } else { meta.nlink() },
        };
        if meta.file_type().is_char_device() && meta.rdev() == 0 {
            // One device may stand for all names that were removed.
            changed = Changed::REMOVED;
        }
        found.insert(name, changed);
    }
    Ok(())
}

/// What a name stands for that was changed in a view, without its content. Two of one view are
/// equal if nothing happened to the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    mode: u32,
    owner: (u32, u32),
    inode: u64,
    links: u64,
}

impl Changed {
    /// As an overlay notes it: a device that is none.
    const REMOVED: Changed = Changed {
        mode: libc::S_IFCHR,
        owner: (0, 0),
        inode: 0,
        links: 0,
    };

    /// The name was removed.
    pub fn is_removal(&self) -> bool {
        *self == Changed::REMOVED
    }

    /// The name is a file or a symbolic link that was made or changed; else it is a folder, or was
    /// removed.
    pub fn is_file(&self) -> bool {
        matches!(self.mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFLNK)
    }

    /// The name is a folder.
    pub fn is_folder(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Removes a folder with everything in it, as far as that goes.
pub fn remove_all(path: &Path) {
    // The kernel leaves folders that their owner may not look into.
    if let Ok(meta) = fs::symlink_metadata(path)
        && meta.is_dir()
    {
        if meta.mode() & 0o700 != 0o700 {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            remove_all(&entry.path());
        }
        let _ = fs::remove_dir(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// `path`, which is absolute, below another root.
fn under(root: &Path, path: &Path) -> PathBuf {
    let mut joined = root.to_path_buf();
    joined.extend(
        path.components()
            .filter(|part| !matches!(part, Component::RootDir)),
    );
    joined
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// A path among the options of an overlay.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if b",:\\".contains(&byte) {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text
}

/// What a mount forbids, as flags for another one.
fn mount_flags(at: &Path) -> io::Result<libc::c_ulong> {
    let path = c_path(at)?;
    // SAFETY: plain data, filled by the kernel.
    let mut known: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path and a structure of ours.
    if unsafe { libc::statvfs(path.as_ptr(), &mut known) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let pairs = [
        (libc::ST_NOSUID, libc::MS_NOSUID),
        (libc::ST_NODEV, libc::MS_NODEV),
        (libc::ST_NOEXEC, libc::MS_NOEXEC),
    ];
    let set = pairs
        .iter()
        .filter(|(known_as, _)| known.f_flag & known_as != 0);
    Ok(set.fold(0, |flags, (_, flag)| flags | flag))
}

// ---------------------------------------------------------------- what is mounted

#[derive(Clone, Debug)]
struct Mount {
    at: PathBuf,
    kind: String,
    read_only: bool,
    is_folder: bool,
}

impl Mount {
    /// It has no files of anybody's.
    fn is_pseudo(&self) -> bool {
        const PSEUDO: [&str; 24] = [
            "autofs",
            "binder",
            "binfmt_misc",
            "bpf",
            "cgroup",
            "cgroup2",
            "configfs",
            "debugfs",
            "devpts",
            "devtmpfs",
            "efivarfs",
            "fusectl",
            "hugetlbfs",
            "mqueue",
            "nfsd",
            "nsfs",
            "proc",
            "pstore",
            "resctrl",
            "rpc_pipefs",
            "securityfs",
            "selinuxfs",
            "sysfs",
            "tracefs",
        ];
        PSEUDO.contains(&self.kind.as_str())
            // Containers make it of ordinary memory, with devices in it.
            || self.at == Path::new("/dev")
    }
}

/// What is mounted and can be seen, parents before what is below them.
fn mounts() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")?;
    let mut mounts: Vec<Mount> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else {
            continue;
        };
        let (Some(at), Some(options), Some(kind), Some(id)) = (
            fields.get(4),
            fields.get(5),
            fields.get(dash + 1),
            fields.first(),
        ) else {
            continue;
        };
        let at = PathBuf::from(std::ffi::OsString::from_vec(unescaped(at)));
        let id: Option<u64> = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
        // Something may be mounted over it.
        let Some((found, is_folder)) = mount_at(&at) else {
            continue;
        };
        if found.is_some() && found != id {
            continue;
        }
        let options: Vec<&[u8]> = options.split(|byte| *byte == b',').collect();
        let mount = Mount {
            kind: String::from_utf8_lossy(kind).into_owned(),
            read_only: options.contains(&&b"ro"[..]),
            is_folder,
            at,
        };
        mounts.retain(|other| other.at != mount.at);
        mounts.push(mount);
    }
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    Ok(mounts)
}

/// The number of the mount that is seen at a path, if the kernel tells, and whether that is a
/// folder. `None`: it cannot be looked at.
fn mount_at(path: &Path) -> Option<(Option<u64>, bool)> {
    const STATX_MNT_ID: u32 = 0x1000;
    let path = c_path(path).ok()?;
    // SAFETY: plain data, filled by the kernel.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a path and a structure of ours.
    let r = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT,
            libc::STATX_TYPE | STATX_MNT_ID,
            &mut found,
        )
    };
    if r != 0 {
        return None;
    }
    let id = (found.stx_mask & STATX_MNT_ID != 0).then_some(found.stx_mnt_id);
    let is_folder = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    Some((id, is_folder))
}

/// The kernel writes some characters as octal numbers.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut i = 0;
    while i < text.len() {
        if text[i] == b'\\'
            && let Some(digits) = text.get(i + 1..i + 4)
            && let Ok(digits) = std::str::from_utf8(digits)
            && let Ok(byte) = u8::from_str_radix(digits, 8)
        {
            plain.push(byte);
            i += 4;
        } else {
            plain.push(text[i]);
            i += 1;
        }
    }
    plain
}

/// The innermost of those places that holds `path`.
fn holder<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.components().count())
}

/// How a mount below the root folder is treated. `shown`: what is shown as it is, with what is
/// below.
fn treat(mount: &Mount, here: &Path, mounts: &[Mount], shown: &[PathBuf]) -> Option<Place> {
    let at = mount.at.clone();
    let is_shown = shown.iter().any(|above| at.starts_with(above));
    if mount.is_pseudo() || mount.read_only {
        let from = at.clone();
        return (!is_shown).then_some(Place::Bind { at, from });
    }
    if !mount.is_folder {
        return Some(Place::ReadOnly { at });
    }
    let required = holder(mounts, here).is_some_and(|holder| holder.at == at);
    let lower = at.clone();
    Some(Place::Overlay {
        at,
        lower,
        required,
    })
}

fn plan_as_root(mounts: &[Mount], here: &Path) -> io::Result<Vec<Place>> {
    let root = PathBuf::from("/");
    let mut places = vec![Place::Overlay {
        at: root.clone(),
        lower: root.clone(),
        required: true,
    }];
    let mut shown: Vec<PathBuf> = Vec::new();
    for mount in mounts.iter().filter(|mount| mount.at != root) {
        let Some(place) = treat(mount, here, mounts, &shown) else {
            continue;
        };
        if let Place::Bind { at, .. } = &place {
            shown.push(at.clone());
        }
        places.push(place);
    }
    Ok(places)
}

/// `store` and `inside` are the memory as the tool and as the base namespace see it.
fn plan_as_user(
    mounts: &[Mount],
    here: &Path,
    store: &Path,
    inside: &Path,
) -> io::Result<Vec<Place>> {
    let root = PathBuf::from("/");
    let mut places = vec![Place::Overlay {
        at: root.clone(),
        lower: inside.join("skeleton"),
        required: true,
    }];
    let skeleton = store.join("skeleton");
    fs::set_permissions(&skeleton, fs::Permissions::from_mode(0o755))?;
    fs::create_dir(skeleton.join(HANDED))?;
    cover(&root, mounts, here, &skeleton, &mut places, &mut Vec::new())?;
    // A folder that belongs to somebody else, or to another group, cannot be copied into the upper
    // layer, and then nothing below it can be changed. So an overlay begins at the outermost folder
    // from which on all are ours, on the way to where programs are started.
    let own = here.ancestors().take_while(|folder| is_ours(folder)).last();
    let own = own.or(Some(here).filter(|here| is_writable(here)));
    if let Some(own) = own
        && !places.iter().any(|place| place.at() == own)
    {
        places.push(Place::Overlay {
            at: own.to_path_buf(),
            lower: own.to_path_buf(),
            required: true,
        });
    }
    places.push(Place::Bind {
        at: root.join(HANDED),
        from: inside.join("handed"),
    });
    Ok(places)
}

fn is_ours(folder: &Path) -> bool {
    // SAFETY: no arguments.
    let ours = unsafe { (libc::geteuid(), libc::getegid()) };
    fs::metadata(folder).is_ok_and(|meta| (meta.uid(), meta.gid()) == ours)
}

fn is_writable(folder: &Path) -> bool {
    // SAFETY: a path of ours.
    c_path(folder).is_ok_and(|path| unsafe { libc::access(path.as_ptr(), libc::W_OK) } == 0)
}

/// Makes a folder anew that cannot be covered as a whole, and covers what is in it.
fn cover(
    folder: &Path,
    mounts: &[Mount],
    here: &Path,
    skeleton: &Path,
    places: &mut Vec<Place>,
    shown: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if folder == here {
        // What the program does there must be seen to be private, renames and all.
        return Err(io::Error::other(format!(
            "other file systems are mounted below {}",
            folder.display()
        )));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let at = entry.path();
        let copy = under(skeleton, &at);
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&at)?, &copy)?;
            continue;
        }
        let Ok(meta) = fs::symlink_metadata(&at) else {
            continue;
        };
        if kind.is_dir() {
            let mut builder = fs::DirBuilder::new();
            builder.mode(meta.mode() & 0o7777 | 0o700).create(&copy)?;
            // The mask of the process may have taken something away.
            fs::set_permissions(&copy, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        } else if kind.is_file() && meta.len() <= COPY_MAX && fs::copy(&at, &copy).is_ok() {
            // Just a copy, unless something is mounted there.
        } else if !kind.is_fifo() {
            File::create(&copy)?;
        }
        let mount = mounts.iter().find(|mount| mount.at == at);
        let has_more = mounts
            .iter()
            .any(|other| other.at != at && other.at.starts_with(&at));
        match mount {
            Some(mount) => {
                let is_plain = mount.is_pseudo() || mount.read_only || !has_more;
                if is_plain {
                    if let Some(place) = treat(mount, here, mounts, shown) {
                        if let Place::Bind { at, .. } = &place {
                            shown.push(at.clone());
                        }
                        places.push(place);
                    }
                    let below = mounts
                        .iter()
                        .filter(|other| other.at != at && other.at.starts_with(&at));
                    for mount in below {
                        places.extend(treat(mount, here, mounts, shown));
                    }
                } else {
                    cover(&at, mounts, here, skeleton, places, shown)?;
                }
            }
            None if kind.is_dir() && has_more => {
                let covered = cover(&at, mounts, here, skeleton, places, shown);
                if here.starts_with(&at) {
                    // Of another folder, what cannot be looked at is not there.
                    covered?;
                }
            }
            None if kind.is_dir() => places.push(Place::Overlay {
                required: here.starts_with(&at),
                lower: at.clone(),
                at,
            }),
            None if kind.is_file() && meta.len() > COPY_MAX => {
                places.push(Place::ReadOnly { at });
            }
            None => {}
        }
    }
    Ok(())
}

// ---------------------------------------------------------------- children

const STEP_NAMESPACE: i32 = 0;
const STEP_NETWORK: i32 = 1;
const STEP_ROOT: i32 = 2;
const STEP_FIRST: i32 = 3;

/// A child that does something, says how it went, and stays until this is dropped.
struct Child {
    pid: libc::pid_t,
    /// It says here how it went.
    said: File,
    /// It stays until this is closed.
    _leash: File,
}

impl Child {
    /// `act` makes system calls only; it returns where it failed, and the error number.
    fn fork(act: impl FnOnce() -> Result<(), (i32, i32)>) -> io::Result<Child> {
        let (said, says) = pipe()?;
        let (holds, leash) = pipe()?;
        // SAFETY: the child makes system calls only, on its own copies, and ends by `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: as above. The other ends are closed so that the death of the parent is
                // noticed.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                    libc::close(said.as_raw_fd());
                    libc::close(leash.as_raw_fd());
                    let result = match act() {
                        Ok(()) => [-1, 0],
                        Err((step, error)) => [step, error],
                    };
                    libc::write(says.as_raw_fd(), result.as_ptr().cast(), 8);
                    let mut byte = 0u8;
                    while libc::read(holds.as_raw_fd(), (&raw mut byte).cast(), 1) < 0 {}
                    libc::_exit(0)
                }
            }
            pid => Ok(Child {
                pid,
                said,
                _leash: leash,
            }),
        }
    }

    /// Waits until it is done.
    fn ready(&self) -> Result<(), (i32, io::Error)> {
        let mut bytes = [0; 8];
        let gone = |error| (STEP_NAMESPACE, error);
        io::Read::read_exact(&mut &self.said, &mut bytes).map_err(gone)?;
        let [step, error] = [0, 4].map(|i| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[i..i + 4]);
            i32::from_ne_bytes(word)
        });
        match step {
            -1 => Ok(()),
            step => Err((step, io::Error::from_raw_os_error(error))),
        }
    }

    /// Opens something that the kernel says of it.
    fn open(&self, name: &str, flags: i32) -> io::Result<File> {
        let path = CString::new(format!("/proc/{}/{name}", self.pid))?;
        // SAFETY: a path of ours; the result is a new descriptor.
        unsafe {
            let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(File::from_raw_fd(fd))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: our own child, which has nothing left to do; nobody else waits for it.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, &mut status, libc::__WALL);
        }
    }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: fills our array with two new descriptors.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

fn errno() -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// The namespace in which the memory is mounted, the user namespace if one is needed, and the
/// memory.
fn make_base(at: &Path, privilege: Privilege) -> io::Result<(File, Option<File>, File)> {
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let uids = CString::new(format!("{uid} {uid} 1"))?;
    let gids = CString::new(format!("{gid} {gid} 1"))?;
    let path = c_path(at)?;
    let child = Child::fork(|| {
        let failed = |_| (STEP_NAMESPACE, errno());
        // SAFETY: system calls on texts that live longer.
        unsafe {
            if privilege == Privilege::User {
                check(libc::unshare(libc::CLONE_NEWUSER)).map_err(failed)?;
                write_to(c"/proc/self/setgroups", c"deny").map_err(failed)?;
                write_to(c"/proc/self/uid_map", &uids).map_err(failed)?;
                write_to(c"/proc/self/gid_map", &gids).map_err(failed)?;
            }
            check(libc::unshare(libc::CLONE_NEWNS)).map_err(failed)?;
            let none = std::ptr::null();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(none, c"/".as_ptr(), none, private, none.cast())).map_err(failed)?;
            let options = c"mode=0700,size=90%";
            check(libc::mount(
                c"brownout".as_ptr(),
                path.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                options.as_ptr().cast(),
            ))
            .map_err(failed)
        }
    })?;
    child.ready().map_err(|(_, error)| error)?;
    let base = child.open("ns/mnt", 0)?;
    let user = match privilege {
        Privilege::User => Some(child.open("ns/user", 0)?),
        Privilege::Root => None,
    };
    let store = format!("root{}", at.to_str().unwrap_or_default());
    let store = child.open(&store, libc::O_PATH | libc::O_DIRECTORY)?;
    Ok((base, user, store))
}

fn check(r: libc::c_int) -> Result<(), ()> {
    if r < 0 { Err(()) } else { Ok(()) }
}

/// # Safety
/// None beyond system calls: it may be called between `fork` and `exec`.
unsafe fn write_to(path: &CStr, text: &CStr) -> Result<(), ()> {
    // SAFETY: texts of ours, and our own descriptor.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(());
        }
        let len = text.count_bytes();
        let written = libc::write(fd, text.as_ptr().cast(), len);
        let error = errno();
        libc::close(fd);
        *libc::__errno_location() = error;
        if written == len as isize {
            Ok(())
        } else {
            Err(())
        }
    }
}

/// In a child: makes the namespaces, mounts, and changes the root folder.
fn make_view(
    user: Option<i32>,
    base: i32,
    network: bool,
    steps: &[Step],
    root: &CStr,
) -> Result<(), (i32, i32)> {
    let failed = |step: i32| move |()| (step, errno());
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: system calls on texts and descriptors that live longer.
    unsafe {
        if let Some(user) = user {
            check(libc::setns(user, libc::CLONE_NEWUSER)).map_err(failed(STEP_NAMESPACE))?;
        }
        check(libc::setns(base, libc::CLONE_NEWNS)).map_err(failed(STEP_NAMESPACE))?;
        check(libc::unshare(libc::CLONE_NEWNS)).map_err(failed(STEP_NAMESPACE))?;
        if network {
            check(libc::unshare(libc::CLONE_NEWNET)).map_err(failed(STEP_NETWORK))?;
            loopback().map_err(failed(STEP_NETWORK))?;
        }
        for (i, step) in steps.iter().enumerate() {
            let Step::Mount {
                source,
                target,
                kind,
                flags,
                data,
                ..
            } = step;
            check(libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind.as_ref().map_or(none, |kind| kind.as_ptr()),
                *flags,
                data.as_ref().map_or(none, |data| data.as_ptr()).cast(),
            ))
            .map_err(failed(STEP_FIRST + i as i32))?;
        }
        check(libc::chdir(root.as_ptr())).map_err(failed(STEP_ROOT))?;
        let here = c".".as_ptr();
        if libc::syscall(libc::SYS_pivot_root, here, here) == 0 {
            // The old root lies on the new one now.
            check(libc::umount2(here, libc::MNT_DETACH)).map_err(failed(STEP_ROOT))?;
        } else {
            // The first root folder of a machine cannot be exchanged, only covered.
            let slash = c"/".as_ptr();
            check(libc::mount(here, slash, none, libc::MS_MOVE, none.cast()))
                .map_err(failed(STEP_ROOT))?;
            check(libc::chroot(here)).map_err(failed(STEP_ROOT))?;
        }
        check(libc::chdir(c"/".as_ptr())).map_err(failed(STEP_ROOT))
    }
}

/// # Safety
/// None beyond system calls: it may be called between `fork` and `exec`.
unsafe fn loopback() -> Result<(), ()> {
    // SAFETY: our own socket, and a structure that is filled here.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(());
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let r = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request);
        let error = errno();
        libc::close(socket);
        *libc::__errno_location() = error;
        check(r)
    }
}
