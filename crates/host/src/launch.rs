//! Starts the program and follows it to its end.

use crate::control::{Beginning, Shared};
use crate::decode::Broken;
use crate::drain::{Drained, Nothing, Prologue, drain};
use crate::guard::{self, Guarded};
use crate::inject::{Image, Previous, Target};
use crate::members::Members;
use crate::processes::Processes;
use crate::recent;
use crate::service::{Service, State};
use crate::turns::{self, WithoutLoads};
use crate::{EventSink, LaunchConfig, LaunchError, Limits, Outcome, decode, preflight};
use brownout_abi::{self as abi, KnownFile};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs the program under the engine, without events.
pub fn run(config: &LaunchConfig) -> Result<Outcome, LaunchError> {
    launch(config, None)
}

/// Runs the program and feeds its events to `sink`.
pub fn record(config: &LaunchConfig, sink: &mut dyn EventSink) -> Result<Outcome, LaunchError> {
    if config.schedule.is_some() && !config.loads {
        let mut sink = WithoutLoads(sink);
        return recent::watched(&mut sink, |sink| launch(config, Some(sink)));
    }
    recent::watched(sink, |sink| launch(config, Some(sink)))
}

fn launch<'s>(
    config: &LaunchConfig,
    sink: Option<&'s mut (dyn EventSink + 's)>,
) -> Result<Outcome, LaunchError> {
    let Prepared {
        begun,
        shared,
        members,
        image,
        state,
        command,
        own_group,
        guarded: _guarded,
        ..
    } = prepare(config, sink.is_some(), Place::default())?;
    let pid = spawn(command)?;
    if sink.is_some() || own_group {
        state.collect_replaced();
    }
    let service = Service::start(shared.clone(), image.clone(), state.clone());
    state.note_lost_rights(pid);
    if config.beginnings {
        state.note_beginnings();
        state.note_beginning(pid);
    }
    if let Err(e) = let_go(pid, &image) {
        service.stop();
        return Err(e);
    }
    let processes = Processes::new(members, pid, own_group);
    let result = if sink.is_none() && !own_group {
        let ended = processes.wait_for_all(config.pass_on.as_deref());
        ended.map(|status| Drained {
            status,
            events: 0,
            stopped: None,
            sink_error: None,
            broken: None,
        })
    } else {
        let is_recorded = sink.is_some();
        let mut nothing = Nothing;
        let sink = sink.unwrap_or(&mut nothing);
        let before = Prologue::default();
        let drained = drain(&shared, config, begun, processes, &state, sink, &before);
        drained.map(|drained| Drained {
            events: if is_recorded { drained.events } else { 0 },
            ..drained
        })
    };
    service.stop();
    outcome(&shared, &state, begun, result)
}

/// Where a program is to stop, as the control block says it.
#[derive(Default)]
pub struct Place {
    /// One of [`abi::stop_at`].
    pub stop_at: u32,
    /// Folders in which anything may differ between runs.
    pub world: Vec<PathBuf>,
}

/// A launch of which all is there but the process.
pub struct Prepared {
    pub begun: Instant,
    pub shared: Shared,
    pub members: Members,
    pub image: Arc<Image>,
    pub state: Arc<State>,
    pub command: Command,
    /// The program leads a process group of its own.
    pub own_group: bool,
    /// Files that are tracked from the beginning.
    pub known: Vec<KnownFile>,
    /// Who ends it if we are gone; nobody, if it is not to end, or if that is the task of who has
    /// made its private view.
    pub guarded: Option<Guarded>,
}

/// Makes everything that a program needs to be launched. The command is to be started while
/// `config` lives.
pub fn prepare(
    config: &LaunchConfig,
    records: bool,
    place: Place,
) -> Result<Prepared, LaunchError> {
    let (cpu_hidden, cpu_lacking) = preflight::check_machine()?;
    let globs = decode::globs(&config.pm_globs)?;
    let enclosure = config.enclosure.as_deref();
    let here = std::env::current_dir().map_err(|e| LaunchError::Launch("the current folder", e))?;
    let program = preflight::resolve(&config.program, &|path| match enclosure {
        Some(enclosure) => enclosure.path(&here.join(path)),
        None => path.to_path_buf(),
    })?;
    let mut mode = crate::passes::from_environment()?;
    let is_scheduled = records && config.schedule.is_some();
    for (on, bit) in [
        (records, abi::MODE_RECORD),
        // Each load is a place to decide at, whether anybody wants to know of it or not.
        (config.loads || is_scheduled, abi::MODE_LOADS),
        (config.values, abi::MODE_VALUES),
        (is_deterministic(config), abi::MODE_DETERMINISTIC),
        (is_scheduled, abi::MODE_SCHEDULE),
        (is_scheduled && config.follow, abi::MODE_FOLLOW),
        (records && config.capture.is_some(), abi::MODE_CAPTURE),
        (config.plain_cpu, abi::MODE_PLAIN_CPU),
        (config.opens, abi::MODE_OPENS),
        (config.execute_flushes, abi::MODE_EXECUTE_FLUSHES),
        (config.lean, abi::MODE_LEAN),
        (config.boundaries, abi::MODE_BOUNDARIES),
        (config.line_input, abi::MODE_LINE_INPUT),
        (config.names, abi::MODE_NAMES),
        (config.edges, abi::MODE_EDGES),
        (config.comparisons, abi::MODE_COMPARISONS),
        (config.threads, abi::MODE_THREADS),
        (config.input.is_some(), abi::MODE_NAMED_INPUT),
        (config.client.is_some(), abi::MODE_CLIENT),
    ] {
        if on {
            mode |= bit;
        }
    }
    let begun = Instant::now();
    // So that all of it can be killed at once.
    let own_group =
        config.limits != Limits::default() || config.stop.is_some() || config.expired.is_some();
    let mut kept_flags = 0;
    for (on, bit) in [
        (own_group, abi::kept_flags::OWN_GROUP),
        (config.dies_with_tool, abi::kept_flags::DIES_WITH_TOOL),
    ] {
        if on {
            kept_flags |= bit;
        }
    }
    let known = known_files(config)?;
    let (redirect_count, redirects) = redirects(config)?;
    let world = paths(&place.world);
    if world.len() > abi::WORLD_LEN {
        return Err(LaunchError::Tables(format!(
            "the paths of the folders that differ between runs are {} bytes long in total, {} are possible",
            world.len(),
            abi::WORLD_LEN
        )));
    }
    let beginning = Beginning {
        mode,
        layout: config.layout,
        cpu_hidden,
        cpu_lacking,
        input: input(config),
        known: known.clone(),
        redirect_count,
        redirects,
        stop_at: place.stop_at,
        kept_flags,
        world_count: place.world.len() as u32,
        world,
    };
    let handed = match enclosure {
        Some(enclosure) => enclosure.hand("control"),
        None => Ok(None),
    };
    let handed = handed.map_err(|e| LaunchError::Launch("shared memory", e))?;
    let (control_file, handed) = handed.map_or((None, None), |(file, h)| (Some(file), Some(h)));
    let (shared, control_file) = Shared::create(&beginning, control_file)
        .map_err(|e| LaunchError::Launch("shared memory", e))?;
    if let Some(schedule) = &config.schedule {
        turns::begin(&shared, schedule);
    }
    if let Some(chosen) = &config.capture {
        shared.choose(chosen);
    }
    let members = Members::new(&shared, &control_file)
        .map_err(|e| LaunchError::Launch("looking at ourselves", e))?;
    let is_guarded = config.dies_with_tool && enclosure.is_none();
    // Without a guard, the kernel still ends the first process.
    let guarded = is_guarded
        .then(|| Guarded::new(&control_file).ok())
        .flatten();
    let image = match (enclosure, handed) {
        (Some(enclosure), Some(handed)) => Image::handed(control_file, enclosure, handed),
        _ => Image::new(control_file),
    };
    let image = Arc::new(image.map_err(|e| LaunchError::Launch("engine image", e))?);
    let root = enclosure.map(|enclosure| enclosure.root().to_path_buf());
    let state = State::new(
        globs,
        members.clone(),
        &known,
        config.last_file.0,
        streams(config),
        root,
        config.client.clone(),
    )
    .map(Arc::new)
    .map_err(|e| LaunchError::Launch("event descriptor", e))?;
    let command = command(config, &program, &here, own_group)?;
    Ok(Prepared {
        begun,
        shared,
        members,
        image,
        state,
        command,
        own_group,
        known,
        guarded,
    })
}

/// Whether randomness is removed. What is scheduled must do the same when it is given the same
/// turns.
fn is_deterministic(config: &LaunchConfig) -> bool {
    config.deterministic || config.schedule.is_some()
}

/// How the program is started.
fn command(
    config: &LaunchConfig,
    program: &Path,
    here: &Path,
    own_group: bool,
) -> Result<Command, LaunchError> {
    let enclosure = config.enclosure.as_deref();
    let mut command = Command::new(program);
    command.arg0(&config.program).args(&config.args);
    let copy = |file: &File| {
        file.try_clone()
            .map_err(|e| LaunchError::Launch("standard input and output", e))
    };
    if let Some(file) = &config.stdin {
        command.stdin(copy(file)?);
    }
    if let Some(file) = &config.stdout {
        command.stdout(copy(file)?);
    }
    if let Some(file) = &config.stderr {
        command.stderr(copy(file)?);
    }
    if own_group {
        command.process_group(0);
    }
    let deterministic = is_deterministic(config);
    let mut enter = match enclosure.map(|enclosure| enclosure.enter(here)) {
        Some(Ok(enter)) => Some(enter),
        Some(Err(e)) => return Err(LaunchError::Launch("entering the private view", e)),
        None => None,
    };
    let dies_with_tool = config.dies_with_tool;
    // SAFETY: only async-signal-safe calls between fork and exec. The view lives as long as
    // `config`.
    unsafe {
        command.pre_exec(move || {
            if let Some(enter) = &mut enter {
                enter()?;
            }
            if dies_with_tool {
                // The thread that starts the program stays until it has ended, so it ends before
                // the program only if the tool does.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            }
            let persona = libc::personality(0xffff_ffff);
            libc::personality(persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            if deterministic {
                // Whether the kernel has a huge page at hand differs from run to run, and programs
                // can tell: by resident sizes, and by which mappings it aligns for that.
                libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            }
            // A signal that came between here and `execve` would stop the process, and nobody would
            // let it go on. So all wait but the one that tells of `execve`.
            let all = !(1u64 << (libc::SIGTRAP - 1));
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &all, 0, 8);
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(command)
}

/// Starts the command, which stops before its first instruction. It is traced by the calling
/// thread.
pub fn spawn(mut command: Command) -> Result<libc::pid_t, LaunchError> {
    // Orphans of the program come to us, so that they can be followed and waited for.
    let child = guard::with_orphans(|| command.spawn());
    let child = child.map_err(|e| LaunchError::Launch("exec", e))?;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    if !libc::WIFSTOPPED(status) {
        return Err(LaunchError::Launch(
            "exec",
            io::Error::other("the program ended before it began"),
        ));
    }
    Ok(pid)
}

/// Puts the engine into a program that has just been [spawned](spawn) by this thread, and lets it
/// run. If that fails, it is no more.
pub fn let_go(pid: libc::pid_t, image: &Image) -> Result<(), LaunchError> {
    let target = Target::new(pid);
    // The program inherits what we have inherited; the standard library would have it begin with
    // nothing blocked.
    let mut mask = 0u64;
    // SAFETY: asks only; eight bytes of ours.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, 0, &raw mut mask, 8) };
    let begins_with = Previous {
        mask: Some(mask),
        ..Previous::default()
    };
    let injected = target
        .inject(image, begins_with)
        .and_then(|()| target.detach(0));
    injected.map_err(|e| {
        end_child(pid);
        LaunchError::Launch("putting the engine into the program", e)
    })
}

/// Ends a child of ours that nobody has taken note of yet.
pub fn end_child(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: our own child, whose number is its own until we have waited for it.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, libc::__WALL);
    }
}

/// Takes note of the ends of all children of this thread. They are about to end.
pub fn wait_for_children() {
    let mut status = 0;
    // SAFETY: children of this thread only. It fails when there is none.
    while unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) } > 0 {}
}

/// What came of a run, once all its processes have ended.
pub fn outcome(
    shared: &Shared,
    state: &State,
    begun: Instant,
    result: io::Result<Drained>,
) -> Result<Outcome, LaunchError> {
    state.join_tracers();
    let drained = result.map_err(|e| LaunchError::Launch("waiting for the program", e))?;
    if let Some((kind, text)) = state.fatal() {
        return Err(if kind == abi::FatalKind::Bug as u64 {
            LaunchError::Bug(text)
        } else if let Some(misfit) = turns::misfit(shared) {
            LaunchError::OtherRun(misfit)
        } else {
            LaunchError::UnsupportedAction(text)
        });
    }
    if let Some(Broken(what)) = drained.broken {
        return Err(LaunchError::Bug(format!(
            "the event ring has {what} where a record should be"
        )));
    }
    let outcome = Outcome {
        status: drained.status,
        hints: state.hints(),
        notes: state.notes(),
        lost_rights: state.lost_rights(),
        wall: begun.elapsed(),
        events: drained.events,
        stopped: drained.stopped,
        waited: Duration::from_nanos(shared.control().ring_waited_ns.load(Ordering::Relaxed)),
        edges: shared.edges(),
        comparisons: shared.comparisons(),
        scheduled: (shared.control().mode & abi::MODE_SCHEDULE != 0).then(|| turns::end(shared)),
    };
    match drained.sink_error {
        Some(e) => Err(LaunchError::Sink(e, Box::new(outcome))),
        None => Ok(outcome),
    }
}

/// Devices and inodes of the standard streams and of the input: they are not files of the program's
/// own.
fn streams(config: &LaunchConfig) -> Vec<(u64, u64)> {
    let files = [&config.stdin, &config.stdout, &config.stderr];
    let metadata = (0..).zip(files).filter_map(|(fd, file)| match file {
        Some(file) => file.metadata().ok(),
        // SAFETY: borrowed for the length of one call, and not closed by it.
        None => ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
            .metadata()
            .ok(),
    });
    let named = config.input.as_ref();
    let named = named.and_then(|file| file.metadata().ok());
    metadata.chain(named).map(|m| (m.dev(), m.ino())).collect()
}

/// See [`abi::file_life`]. The engine asks in the same way.
fn file_life(path: &Path) -> u64 {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: u32,
        identity: [u8; 128],
    }
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return abi::file_life(abi::life::UNKNOWN, &[]);
    };
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        identity: [0; 128],
    };
    let mut mount = 0i32;
    // SAFETY: a path that ends with a NUL, our own variables, of which the kernel is told the size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    if result == 0 {
        let identity = &handle.identity[..(handle.bytes as usize).min(128)];
        return abi::file_life(handle.kind, identity);
    }
    // SAFETY: zero is a valid value; the kernel fills it in.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let result = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            name.as_ptr(),
            0,
            libc::STATX_BTIME,
            &mut statx,
        )
    };
    if result != 0 || statx.stx_mask & libc::STATX_BTIME == 0 {
        return abi::file_life(abi::life::UNKNOWN, &[]);
    }
    let birth = &statx.stx_btime;
    let birth = [birth.tv_sec as u64, birth.tv_nsec as u64].map(u64::to_le_bytes);
    abi::file_life(abi::life::BIRTH, birth.as_flattened())
}

/// Device and inode of the input, and whether it is a regular file. Without a standard input
/// nothing is one.
fn input(config: &LaunchConfig) -> (u64, u64, bool) {
    let input = match config.input.as_ref().or(config.stdin.as_ref()) {
        Some(file) => file.metadata(),
        // SAFETY: borrowed for the length of one call, and not closed by it.
        None => ManuallyDrop::new(unsafe { File::from_raw_fd(0) }).metadata(),
    };
    input.map_or((0, 0, false), |m| (m.dev(), m.ino(), m.is_file()))
}

/// The files that are tracked from the beginning.
pub fn known_files(config: &LaunchConfig) -> Result<Vec<KnownFile>, LaunchError> {
    if config.known_files.len() > abi::KNOWN_MAX {
        return Err(LaunchError::Tables(format!(
            "{} files are to be tracked from the beginning, {} are possible",
            config.known_files.len(),
            abi::KNOWN_MAX
        )));
    }
    let mut known = Vec::new();
    for (path, file) in &config.known_files {
        let meta = path
            .metadata()
            .map_err(|e| LaunchError::KnownFile(path.clone(), e))?;
        let life = file_life(path);
        known.push(KnownFile::new(meta.dev(), meta.ino(), life, file.0));
    }
    Ok(known)
}

/// How many paths are redirected, and the pairs of them.
pub fn redirects(config: &LaunchConfig) -> Result<(u32, Vec<u8>), LaunchError> {
    let pairs = || config.redirects.iter().flat_map(|(from, to)| [from, to]);
    for path in pairs() {
        let has_nul = path.as_os_str().as_bytes().contains(&0);
        if !path.is_absolute() || path.file_name().is_none() || has_nul {
            return Err(LaunchError::Redirect(path.clone()));
        }
    }
    let text = paths(pairs());
    if text.len() > abi::REDIRECTS_LEN {
        return Err(LaunchError::Tables(format!(
            "the paths of redirected files are {} bytes long in total, {} are possible",
            text.len(),
            abi::REDIRECTS_LEN
        )));
    }
    Ok((config.redirects.len() as u32, text))
}

/// Paths with a NUL behind each.
fn paths<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Vec<u8> {
    let mut text = Vec::new();
    for path in paths {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    text
}
