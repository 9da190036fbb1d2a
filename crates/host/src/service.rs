//! Answers the engine's requests: what is persistent memory, follow an `execve`, give up.

use crate::beginnings::{self, Beginnings};
use crate::client::{Address, Client};
use crate::control::{Shared, futex_wait, futex_wake};
use crate::functions::{self, Mapped};
use crate::inject::{Image, Previous, Target};
use crate::members::{Member, Members};
use crate::processes::Wake;
use brownout_abi::{ClassifyAnswer, KnownFile, Request};
use brownout_trace::Beginning;
use brownout_trace::event::FileId;
use globset::GlobSet;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What the service thread and the drain loop share.
pub struct State {
    globs: GlobSet,
    members: Members,
    /// Devices and inodes of the standard streams.
    streams: Vec<(u64, u64)>,
    /// Where the tool finds the program's root folder, if that is another one than ours.
    root: Option<PathBuf>,
    client: Option<Arc<dyn Client>>,
    /// Ends a sleep of the drain loop.
    wake: Wake,
    inner: Mutex<Inner>,
    new_file: Condvar,
    new_answer: Condvar,
}

/// What is known at the stop of a process that runs are forked from.
#[derive(Default)]
pub struct Stopped {
    files: HashMap<(u64, u64, u64), u32>,
    ordinary: HashSet<u32>,
    hints: Vec<PathBuf>,
    notes: Vec<String>,
}

#[derive(Default)]
struct Inner {
    /// By device, inode and life.
    files: HashMap<(u64, u64, u64), u32>,
    last_file: u32,
    /// Numbers of files that are not persistent memory, and tracked only because the run changes
    /// them.
    ordinary: HashSet<u32>,
    /// Open as long as the run lasts, so that no inode number comes to stand for another file.
    held: Vec<std::fs::File>,
    hints: Vec<PathBuf>,
    notes: Vec<String>,
    /// Those of the notes that concern the program itself, whether anything is recorded or not.
    lost_rights: Vec<String>,
    fatal: Option<(u64, String)>,
    /// A file whose initial content the sink has not seen yet.
    waiting: Option<(FileId, PathBuf)>,
    waiting_done: bool,
    /// The sink takes nothing any more: whoever asks is dead.
    closed: bool,
    /// What the sink answered to annotations, by thread number.
    answers: HashMap<u32, [u64; 3]>,
    /// One for each `execve` so far, until joined.
    tracers: Vec<std::thread::JoinHandle<()>>,
    /// Those that are about to `execve`, for the drain loop to look after.
    replaced: Vec<Member>,
    /// It does. (Without a drain loop nobody would close them.)
    collects: bool,
    /// What programs were started with that the drain loop has not come to yet, if anybody wants to
    /// know.
    beginnings: Option<Beginnings>,
}

/// What goes back to the engine.
#[derive(Default)]
struct Reply {
    result: u32,
    words: [u64; 3],
    text: Vec<u8>,
}

impl Reply {
    fn of(result: u32, word: u64) -> Reply {
        Reply {
            result,
            words: [word, 0, 0],
            text: Vec::new(),
        }
    }
}

impl State {
    /// `known` are the files that are tracked from the beginning; numbers up to `last` are not
    /// given to others.
    pub fn new(
        globs: GlobSet,
        members: Members,
        known: &[KnownFile],
        last: u32,
        streams: Vec<(u64, u64)>,
        root: Option<PathBuf>,
        client: Option<Arc<dyn Client>>,
    ) -> std::io::Result<Self> {
        let files = known.iter().map(|k| ((k.device, k.inode, k.life), k.file));
        Ok(State {
            globs,
            members,
            streams,
            root,
            client,
            wake: Wake::new()?,
            inner: Mutex::new(Inner {
                files: files.collect(),
                last_file: last,
                ..Inner::default()
            }),
            new_file: Condvar::new(),
            new_answer: Condvar::new(),
        })
    }

    /// What was found out until the stop, besides the files that were `known` from the beginning.
    pub fn stopped(&self, known: &[KnownFile]) -> Stopped {
        let s = self.lock();
        let is_given = |file: &u32| known.iter().any(|k| k.file == *file);
        let found = s.files.iter().filter(|(_, file)| !is_given(file));
        Stopped {
            files: found.map(|(key, file)| (*key, *file)).collect(),
            ordinary: s.ordinary.clone(),
            hints: s.hints.clone(),
            notes: s.notes.clone(),
        }
    }

    /// A run begins where there was a stop.
    pub fn begin(&self, at: &Stopped, known: &[KnownFile], last: u32) {
        let given = known.iter().map(|k| ((k.device, k.inode, k.life), k.file));
        let found = at.files.iter().map(|(key, file)| (*key, *file));
        *self.lock() = Inner {
            files: found.chain(given).collect(),
            last_file: last,
            ordinary: at.ordinary.clone(),
            hints: at.hints.clone(),
            notes: at.notes.clone(),
            collects: true,
            ..Inner::default()
        };
    }

    /// What ends a sleep of the drain loop.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Waits for the tracer threads. They end with the processes that they trace.
    pub fn join_tracers(&self) {
        let tracers = std::mem::take(&mut self.lock().tracers);
        for tracer in tracers {
            // A panic there has been reported by the panic hook.
            let _ = tracer.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere is being reported already; the data stays usable.
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn hints(&self) -> Vec<PathBuf> {
        self.lock().hints.clone()
    }
    pub fn notes(&self) -> Vec<String> {
        self.lock().notes.clone()
    }
    pub fn lost_rights(&self) -> Vec<String> {
        self.lock().lost_rights.clone()
    }
    pub fn fatal(&self) -> Option<(u64, String)> {
        self.lock().fatal.clone()
    }
    /// Whether the engine has given up, in whatever process.
    pub fn is_fatal(&self) -> bool {
        self.lock().fatal.is_some()
    }
    /// The sink has answered thread `thread`.
    pub fn answered(&self, thread: u32, answer: [u64; 3]) {
        self.lock().answers.insert(thread, answer);
        self.new_answer.notify_all();
    }
    /// From now on somebody calls [`take_replaced`](Self::take_replaced).
    pub fn collect_replaced(&self) {
        self.lock().collects = true;
    }

    fn is_replaced(&self, pid: libc::pid_t) {
        if self.lock().collects {
            let member = self.members.open(pid);
            self.lock().replaced.extend(member);
        }
    }

    /// Processes that have asked to be followed through an `execve`. While that is under way,
    /// nothing else shows that they belong to the run.
    pub fn take_replaced(&self) -> Vec<Member> {
        std::mem::take(&mut self.lock().replaced)
    }

    /// From now on it is noted what programs are started with.
    pub fn note_beginnings(&self) {
        self.lock().beginnings = Some(Beginnings::default());
    }

    /// A program is in this process now, and has not run yet.
    pub fn note_beginning(&self, pid: libc::pid_t) {
        if self.lock().beginnings.is_none() {
            return;
        }
        let beginning = beginnings::of(pid);
        if let Some(beginnings) = &mut self.lock().beginnings {
            beginnings.note(pid, beginning);
        }
    }

    /// A program is in this process now, and has not run yet: notes what it lacks because it is
    /// traced.
    pub fn note_lost_rights(&self, pid: libc::pid_t) {
        if crate::preflight::lacks_file_capabilities(pid) {
            let exe = std::fs::read_link(crate::members::folder(pid).join("exe"));
            let text = format!(
                "{} runs without the capabilities of its file, which the kernel does not give to a program that an unprivileged tool follows (as root they are given)",
                exe.unwrap_or_default().display()
            );
            let mut inner = self.lock();
            if !inner.notes.contains(&text) {
                inner.notes.push(text.clone());
                inner.lost_rights.push(text);
            }
        }
    }

    /// What the first program of this process was started with that has not been asked for yet.
    pub fn take_beginning(&self, pid: libc::pid_t) -> Option<Beginning> {
        self.lock().beginnings.as_mut()?.take(pid)
    }

    pub fn take_new_file(&self) -> Option<(FileId, PathBuf)> {
        self.lock().waiting.take()
    }
    /// The drain loop has ended.
    pub fn close(&self) {
        self.lock().closed = true;
        self.new_file.notify_all();
    }
    pub fn new_file_done(&self) {
        self.lock().waiting_done = true;
        self.new_file.notify_all();
    }

    /// A program that runs on its own: whatever it does to persistent memory is not seen.
    fn not_followed(&self, pid: Option<libc::pid_t>, why: &str) {
        let who = match pid {
            Some(pid) => {
                let exe = std::fs::read_link(crate::members::folder(pid).join("exe"));
                let exe = exe.unwrap_or_default();
                format!("process {pid} ({})", exe.display())
            }
            None => "a process".to_owned(),
        };
        let text = format!("{who} is not followed: {why}");
        self.lock().notes.push(text);
    }

    /// Gives the turn to somebody else if the thread that has it is no more.
    pub fn pass_on_turn_of_the_dead(&self, shared: &Shared) {
        crate::turns::pass_on_for_the_dead(shared, &self.members);
    }

    /// Frees the ring if the thread that has it is no more. Its record was not published, so
    /// nothing of it is seen. `since` remembers from call to call what has not moved;
    /// `one_has_ended` is a reason not to wait.
    pub fn free_ring_of_the_dead(
        &self,
        shared: &Shared,
        since: &mut Option<(u32, u64, Instant)>,
        one_has_ended: bool,
    ) {
        // To look is safe at any time, but takes a while.
        const STUCK: Duration = Duration::from_millis(100);
        let c = shared.control();
        let holder = c.ring_lock.load(Ordering::Acquire);
        let tail = c.ring_tail.load(Ordering::Acquire);
        if holder == 0 {
            *since = None;
            return;
        }
        let is_stuck = match since {
            Some((h, t, at)) if (*h, *t) == (holder, tail) => at.elapsed() >= STUCK,
            _ => {
                *since = Some((holder, tail, Instant::now()));
                false
            }
        };
        if !is_stuck && !one_has_ended {
            return;
        }
        *since = Some((holder, tail, Instant::now()));
        // A thread has said who it is before it takes the ring.
        let told = c.threads.get(holder as usize);
        let told = told.map_or(0, |told| told.load(Ordering::Acquire));
        if told == 0 || !self.members.has_thread(told) {
            free_ring(c, holder);
        }
    }
}

/// Takes the ring from the thread with this number, if it has it.
fn free_ring(c: &brownout_abi::Control, holder: u32) {
    // If it is another's meanwhile, nothing is to be done.
    let _ = c
        .ring_lock
        .compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// Where the tool finds a program's file whose root folder is another one: at its own name if that
/// is the same file, because what is known of it is kept by name.
fn same_or_inside(root: &Path, path: &Path) -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    let inside = root.join(path.strip_prefix("/").unwrap_or(path));
    let version = |path: &Path| {
        let meta = path.metadata().ok()?;
        Some((meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    match version(path) {
        outside @ Some(_) if outside == version(&inside) => path.to_path_buf(),
        _ => inside,
    }
}

/// The service thread.
pub struct Service {
    stop: Arc<AtomicBool>,
    shared: Shared,
    thread: std::thread::JoinHandle<()>,
    /// What the kernel looks at when the thread ends: it must be there until then.
    _last_will: Arc<LastWill>,
}

/// A robust futex: when the thread that has signed this ends, for whatever reason, the kernel marks
/// the word in the control memory that has its number. By that the engine knows that the tool is
/// gone, in whatever PID namespace it may be.
#[repr(C)]
struct LastWill {
    /// The kernel's `struct robust_list_head`: the first entry, ...
    first: AtomicUsize,
    /// ... the distance from an entry to its futex, and an entry that is just being made.
    to_futex: AtomicUsize,
    pending: AtomicUsize,
    /// The one entry: it links back to the head.
    entry: AtomicUsize,
}

impl LastWill {
    fn new() -> Arc<LastWill> {
        Arc::new(LastWill {
            first: AtomicUsize::new(0),
            to_futex: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            entry: AtomicUsize::new(0),
        })
    }

    /// For the calling thread, which must not use robust mutexes.
    fn sign(&self, shared: &Shared) {
        let word = &shared.control().tool;
        self.entry
            .store(&raw const self.first as usize, Ordering::Relaxed);
        self.to_futex.store(
            (word.as_ptr() as usize).wrapping_sub(self.entry.as_ptr() as usize),
            Ordering::Relaxed,
        );
        self.first
            .store(self.entry.as_ptr() as usize, Ordering::Release);
        // SAFETY: no arguments. The list is as the kernel wants it, and outlives the thread.
        unsafe {
            let number = libc::syscall(libc::SYS_gettid);
            word.store(number as u32, Ordering::Release);
            libc::syscall(
                libc::SYS_set_robust_list,
                &raw const self.first,
                3 * size_of::<usize>(),
            );
        }
    }
}

impl Service {
    pub fn start(shared: Shared, image: Arc<Image>, state: Arc<State>) -> Service {
        Service::start_between(shared, image, state, || {}, |()| {})
    }

    /// The thread does something before, and something behind.
    pub fn start_between<T>(
        shared: Shared,
        image: Arc<Image>,
        state: Arc<State>,
        first: impl FnOnce() -> T + Send + 'static,
        last: impl FnOnce(T) + Send + 'static,
    ) -> Service {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let served = shared.clone();
        let last_will = LastWill::new();
        let will = last_will.clone();
        let thread = std::thread::spawn(move || {
            will.sign(&served);
            let begun = first();
            serve(served, image, state, flag);
            last(begun);
        });
        Service {
            stop,
            shared,
            thread,
            _last_will: last_will,
        }
    }

    /// Waits until no request is under way, and forgets who has made the last one: nobody is there
    /// who could ask.
    pub fn settle(&self) {
        let c = self.shared.control();
        while c.service_state.load(Ordering::Acquire) == 1 {
            std::thread::sleep(Duration::from_micros(50));
        }
        c.service_state.store(0, Ordering::Release);
        c.service_lock.store(0, Ordering::Release);
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // No process is left that could ask. The state must change, or a thread that is about to
        // sleep on it would.
        let state = &self.shared.control().service_state;
        state.store(u32::MAX, Ordering::Release);
        futex_wake(state);
        // A panic there has been reported by the panic hook.
        let _ = self.thread.join();
    }
}

fn serve(shared: Shared, image: Arc<Image>, state: Arc<State>, stop: Arc<AtomicBool>) {
    let c = shared.control();
    loop {
        let s = c.service_state.load(Ordering::Acquire);
        if s != 1 {
            if stop.load(Ordering::Acquire) {
                return;
            }
            futex_wait(&c.service_state, s, Duration::from_millis(50));
            free_service_of_the_dead(c, &state.members, s);
            continue;
        }
        let p = shared.control_ptr();
        // SAFETY: state 1: the requester has written these fields and waits.
        let (request, args, text) = unsafe {
            let n = ((*p).service_text_len as usize).min(brownout_abi::TEXT_LEN);
            (
                (*p).service_request,
                (*p).service_args,
                (&(*p).service_text)[..n].to_vec(),
            )
        };
        let reply = answer(&image, &state, &stop, request, args, &text);
        let text_len = reply.text.len().min(brownout_abi::TEXT_LEN);
        // SAFETY: as above; published by the state change.
        unsafe {
            (*p).service_result = reply.result;
            (&mut (*p).service_args)[..3].copy_from_slice(&reply.words);
            (&mut (*p).service_text)[..text_len].copy_from_slice(&reply.text[..text_len]);
            (*p).service_text_len = text_len as u64;
        }
        c.service_state.store(2, Ordering::Release);
        futex_wake(&c.service_state);
    }
}

/// A requester that was killed in the middle must not keep others out.
fn free_service_of_the_dead(c: &brownout_abi::Control, members: &Members, state: u32) {
    let holder = c.service_lock.load(Ordering::Acquire);
    // State 1 is for us to answer first.
    let moved = c.service_state.load(Ordering::Acquire) != state;
    if holder == 0 || state == 1 || moved || members.has_thread(holder) {
        return;
    }
    c.service_state.store(0, Ordering::Release);
    if c.service_lock
        .compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        futex_wake(&c.service_lock);
    }
}

fn answer(
    image: &Arc<Image>,
    state: &Arc<State>,
    stop: &AtomicBool,
    request: u32,
    args: [u64; 8],
    text: &[u8],
) -> Reply {
    const ATTACH: u32 = Request::AttachForExec as u32;
    const CLASSIFY: u32 = Request::ClassifyFile as u32;
    const FATAL: u32 = Request::Fatal as u32;
    const NOTE: u32 = Request::Note as u32;
    const FUNCTIONS: u32 = Request::LibraryFunctions as u32;
    const ANSWER: u32 = Request::Answer as u32;
    const FILES: u32 = Request::Files as u32;
    const SAME_FILE: u32 = Request::SameFile as u32;
    const LISTENING: u32 = Request::Listening as u32;
    match request {
        ATTACH => {
            let previous = Previous {
                process: args[2],
                ignored_sync: args[3],
                blocked_sync: args[4],
                shown_pid: args[5],
                mask: Some(args[7]),
            };
            let thread = args[6] as u32;
            let attached = match state.members.requester(args[0] as u32) {
                Some(requester) => {
                    state.is_replaced(requester.pid);
                    let (image, state) = (image.clone(), state.clone());
                    attach(requester.tid, args[1], thread, previous, image, state)
                }
                None => {
                    // One that was killed meanwhile does not run on its own.
                    if state.members.has_thread(args[0] as u32) {
                        state.not_followed(None, "its number in its PID namespace leads nowhere");
                    }
                    false
                }
            };
            Reply::of(attached as u32, 0)
        }
        CLASSIFY => {
            let (result, file, ordinary) = classify(state, args, text);
            Reply {
                words: [file, ordinary.into(), 0],
                ..Reply::of(result, 0)
            }
        }
        SAME_FILE => {
            state
                .lock()
                .files
                .insert((args[0], args[1], args[3]), args[2] as u32);
            Reply::default()
        }
        FILES => {
            let on = |device: u64| args[0] == 0 || args[0] == device;
            let s = state.lock();
            let files = s.files.iter().filter(|(key, _)| on(key.0));
            let mut numbers: Vec<u64> = files.map(|(_, file)| u64::from(*file)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            Reply {
                result: numbers.len() as u32,
                text: numbers.into_iter().flat_map(u64::to_le_bytes).collect(),
                ..Reply::default()
            }
        }
        FUNCTIONS => {
            let [start, len, offset, is_program, threads, ..] = args;
            let mapped = Mapped {
                start,
                len,
                offset,
                is_program: is_program != 0,
                threads: threads != 0,
            };
            let path = Path::new(std::ffi::OsStr::from_bytes(text));
            let path = match &state.root {
                Some(root) => same_or_inside(root, path),
                None => path.to_path_buf(),
            };
            let found = functions::find(&path, &mapped);
            let pairs = found.iter().flat_map(|(at, n)| [*at, u64::from(*n)]);
            Reply {
                result: found.len() as u32,
                text: pairs.flat_map(u64::to_le_bytes).collect(),
                ..Reply::default()
            }
        }
        ANSWER => {
            let mut s = state.lock();
            let thread = args[0] as u32;
            loop {
                if let Some(words) = s.answers.remove(&thread) {
                    return Reply {
                        words,
                        ..Reply::default()
                    };
                }
                if stop.load(Ordering::Acquire) {
                    return Reply::default();
                }
                let wait = Duration::from_millis(50);
                let woken = state.new_answer.wait_timeout(s, wait);
                s = woken.unwrap_or_else(|e| e.into_inner()).0;
            }
        }
        LISTENING => {
            if let (Some(client), Some(address)) = (&state.client, Address::parse(text)) {
                client.listening(&address);
            }
            Reply::default()
        }
        FATAL => {
            let mut s = state.lock();
            if s.fatal.is_none() {
                s.fatal = Some((args[0], String::from_utf8_lossy(text).into_owned()));
            }
            Reply::default()
        }
        NOTE => {
            state
                .lock()
                .notes
                .push(String::from_utf8_lossy(text).into_owned());
            Reply::default()
        }
        _ => Reply::default(),
    }
}

/// The answer, the file's number, and whether it is an ordinary one.
fn classify(state: &State, args: [u64; 8], text: &[u8]) -> (u32, u64, bool) {
    let [dev, ino, map_sync, registered, dax, fd, tid, life] = args;
    let (fd, writable, changed) = (fd as u32, fd >> 32 & 1 != 0, fd >> 33 & 1 != 0);
    let path = Path::new(std::ffi::OsStr::from_bytes(text));
    let mut s = state.lock();
    let is_pm = map_sync != 0 || registered != 0 || dax != 0 || state.globs.is_match(path);
    let known = s.files.get(&(dev, ino, life)).copied();
    if let Some(id) = known
        && (is_pm || !s.ordinary.contains(&id))
    {
        s.ordinary.remove(&id);
        return (ClassifyAnswer::TrackedKnown as u32, id as u64, false);
    }
    if !is_pm {
        if writable
            && path.is_absolute()
            && !s.hints.iter().any(|h| h == path)
            && !text.ends_with(b" (deleted)")
            && !path.starts_with("/dev")
        {
            s.hints.push(path.to_path_buf());
        }
        if let Some(id) = known {
            return (ClassifyAnswer::TrackedKnown as u32, id as u64, true);
        }
        let is_own = !state.streams.contains(&(dev, ino)) && is_kept(path);
        if !changed || !is_own {
            return (ClassifyAnswer::Ordinary as u32, 0, false);
        }
    }
    let taken = s.files.values().copied().max().unwrap_or(0);
    let id = taken.max(s.last_file) + 1;
    s.files.insert((dev, ino, life), id);
    if !is_pm {
        s.ordinary.insert(id);
    }
    let requester = state.members.requester(tid as u32);
    let folder = requester.map_or(String::new(), |r| r.folder);
    let path = PathBuf::from(format!("{folder}/fd/{fd}"));
    if changed {
        use std::os::unix::fs::OpenOptionsExt;
        let held = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&path);
        // Where that fails, for want of descriptors, an inode number may be used again.
        s.held.extend(held);
    }
    s.waiting = Some((FileId(id), path));
    s.waiting_done = false;
    state.wake.wake();
    // The sink lives in the drain loop; the program waits for us, we for it.
    while !s.waiting_done && !s.closed {
        s = state.new_file.wait(s).unwrap_or_else(|e| e.into_inner());
    }
    (ClassifyAnswer::TrackedNew as u32, id as u64, !is_pm)
}

/// Whether a path leads to something that outlives a crash: not to a pseudo file system, nor to a
/// file in memory without a name.
fn is_kept(path: &Path) -> bool {
    let is_pseudo = ["/proc", "/sys", "/dev"]
        .iter()
        .any(|p| path.starts_with(p));
    path.is_absolute()
        && !path.as_os_str().as_bytes().starts_with(b"/memfd:")
        && (!is_pseudo || path.starts_with("/dev/shm"))
}

/// Seizes a thread that is about to `execve`, on a tracer thread of its own. True if that worked.
fn attach(
    tid: i32,
    failed_at: u64,
    thread: u32,
    previous: Previous,
    image: Arc<Image>,
    state: Arc<State>,
) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let followed = state.clone();
    let tracer = std::thread::spawn(move || {
        // SAFETY: PTRACE_SEIZE of a thread that waits for our answer.
        let r = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACEEXEC) };
        let ok = r == 0;
        let why = std::io::Error::last_os_error();
        // One that was killed meanwhile does not run on its own.
        if !ok && why.raw_os_error() != Some(libc::ESRCH) {
            state.not_followed(
                Some(tid),
                &format!("it cannot be traced ({why}; is a debugger attached?)"),
            );
        }
        // The receiver waits for exactly this.
        let _ = tell.send(ok);
        if ok {
            follow_exec(failed_at, thread, previous, &image, &state);
        }
    });
    let mut s = followed.lock();
    s.tracers.retain(|tracer| !tracer.is_finished());
    s.tracers.push(tracer);
    drop(s);
    told.recv().unwrap_or(false)
}

fn follow_exec(failed_at: u64, thread: u32, previous: Previous, image: &Image, state: &State) {
    loop {
        let mut status = 0;
        // SAFETY: only tracees of this thread.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 {
            if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            return;
        }
        if !libc::WIFSTOPPED(status) {
            return;
        }
        let stopped = Target::new(pid);
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if event == libc::PTRACE_EVENT_EXEC {
            // The old program and all its threads are gone; with this one, so that none was in the
            // middle of a record.
            free_ring(state.members.control(), thread);
            state.note_beginning(pid);
            state.note_lost_rights(pid);
            if !crate::preflight::is_native(pid) {
                // The process may be gone by now, as below.
                let _ = previous.mask.map(|mask| stopped.set_mask(mask));
                state.not_followed(Some(pid), "it is not an x86-64 program");
            } else if let Err(e) = stopped.inject(image, previous)
                && e.raw_os_error() != Some(libc::ESRCH)
            {
                state.not_followed(
                    Some(pid),
                    &format!("the engine cannot be put into it ({e})"),
                );
            }
            // The process may be gone by now; then there is nothing to let go.
            let _ = stopped.detach(0);
            return;
        }
        if event == 0
            && signal == libc::SIGTRAP
            && stopped.rip().is_ok_and(|rip| rip == failed_at + 1)
        {
            let _ = stopped.detach(0);
            return;
        }
        // Any other signal is the program's. If it is to stop, it stays stopped until it is told to
        // go on.
        let is_group_stop = event == libc::PTRACE_EVENT_STOP && signal != libc::SIGTRAP;
        let (how, deliver) = match (is_group_stop, event) {
            (true, _) => (libc::PTRACE_LISTEN, 0),
            (false, 0) => (libc::PTRACE_CONT, signal),
            (false, _) => (libc::PTRACE_CONT, 0),
        };
        // SAFETY: resumes our tracee.
        unsafe { libc::ptrace(how, pid, 0, deliver) };
    }
}
