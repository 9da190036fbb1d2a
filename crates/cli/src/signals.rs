//! Signals are the program's.
//!
//! Ctrl-C and Ctrl-\ reach the whole foreground process group: the program, which does with them
//! what it would natively, and this process, which must survive to finish the trace. So they are
//! *caught* and dropped here. Caught, not ignored: a handler is reset to the default by exec, while
//! "ignored" would be inherited and change the program's behaviour. For the same reason SIGPIPE,
//! which Rust's runtime ignores, is given a handler: writes still fail with an error here, and the
//! program starts with the default.
//!
//! SIGTERM and SIGHUP come to this process alone, or to the whole group (`timeout`, a terminal that
//! goes away). They are [passed on](passed_on), so that the program ends as it would natively, and
//! what was seen until then is reported.

use std::io;

use crate::exit::Failure;

extern "C" fn drop_signal(_signal: libc::c_int) {}

/// Takes effect for the rest of this process's life.
pub fn leave_to_program(launch: &mut brownout_host::LaunchConfig) -> Result<(), Failure> {
    let cannot = |error| Failure::cannot_run(format!("cannot set up signals: {error}"));
    drop_those_of_terminals().map_err(cannot)?;
    launch.pass_on = Some(passed_on().map_err(cannot)?);
    // SIGKILL cannot be passed on.
    launch.dies_with_tool = true;
    Ok(())
}

/// Ctrl-C and Ctrl-\ are the business of a program that is waited for. Takes effect for the rest of
/// this process's life.
pub fn leave_those_of_terminals() -> Result<(), Failure> {
    let cannot = |error| Failure::cannot_run(format!("cannot set up signals: {error}"));
    drop_those_of_terminals().map_err(cannot)?;
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        // An analysis before may have caught them; now they end us.
        if disposition(signal).map_err(cannot)? != libc::SIG_IGN {
            // SAFETY: the default action has no handler to be unsafe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    Ok(())
}

fn drop_those_of_terminals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // Whoever started us with these ignored (nohup, a background job) wants the program to
        // be started so, too.
        if disposition(signal)? != libc::SIG_IGN {
            catch(signal)?;
        }
    }
    catch(libc::SIGPIPE)
}

static PASSED_ON: std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicI32>> =
    std::sync::OnceLock::new();

extern "C" fn pass_on(signal: libc::c_int) {
    if let Some(flag) = PASSED_ON.get() {
        flag.store(signal, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Where SIGTERM and SIGHUP go from now on: into a number that the launcher passes on to the
/// program.
fn passed_on() -> io::Result<std::sync::Arc<std::sync::atomic::AtomicI32>> {
    let flag = PASSED_ON.get_or_init(Default::default);
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        if disposition(signal)? != libc::SIG_IGN {
            install(signal, pass_on)?;
        }
    }
    Ok(flag.clone())
}

fn disposition(signal: libc::c_int) -> io::Result<libc::sighandler_t> {
    // SAFETY: all-zero is a valid `sigaction`: plain integers and a null handler.
    let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only queries; `current` is writable and of the right type.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &mut current) } {
        0 => Ok(current.sa_sigaction),
        _ => Err(io::Error::last_os_error()),
    }
}

fn catch(signal: libc::c_int) -> io::Result<()> {
    install(signal, drop_signal)
}

fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: all-zero is a valid `sigaction`; it also is the empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: both handlers are async-signal-safe and live as long as the process; `action` is
    // fully initialised.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

static STOP: std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicBool>> =
    std::sync::OnceLock::new();

/// When the first of them came, in milliseconds of a clock that does not go back; 0: none has.
static STOPPED_AT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Signals that come so soon after the first are the same wish. `timeout` sends each signal twice:
/// to its child, and to the group that it is in. Ctrl-C is usually a person's, who is not as quick.
const fn same_wish_ms(signal: libc::c_int) -> u64 {
    match signal {
        libc::SIGINT => 10,
        _ => 300,
    }
}

fn milliseconds() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: async-signal-safe; it writes the structure only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

extern "C" fn stop(signal: libc::c_int) {
    use std::sync::atomic::Ordering::Relaxed;
    if let Some(flag) = STOP.get() {
        let now = milliseconds().max(1);
        let first = STOPPED_AT.compare_exchange(0, now, Relaxed, Relaxed);
        let is_other = first.is_err_and(|first| now.saturating_sub(first) > same_wish_ms(signal));
        if flag.swap(true, Relaxed) && is_other {
            // A second time: whoever asks twice does not want to wait.
            give_screen_back();
            // SAFETY: async-signal-safe.
            unsafe { libc::_exit(130) };
        }
    }
}

/// Ctrl-C, SIGTERM and SIGHUP set the flag, so that what was found can be reported; the second one
/// ends the process.
pub fn tell(flag: &std::sync::Arc<std::sync::atomic::AtomicBool>) -> io::Result<()> {
    // Set once a process; another one cannot be asked for.
    let _ = STOP.set(flag.clone());
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if disposition(signal)? != libc::SIG_IGN {
            install(signal, stop)?;
        }
    }
    catch(libc::SIGPIPE)
}

/// The screen of the terminal behind stderr is taken by a status screen.
static SCREEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn to_terminal(text: &str) {
    // SAFETY: async-signal-safe; it reads the text only. That nobody may see it is no reason to
    // fail.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

fn give_screen_back() -> bool {
    let taken = SCREEN.load(std::sync::atomic::Ordering::Relaxed);
    if taken {
        to_terminal(brownout_fuzz::status::LEAVE);
    }
    taken
}

/// Ctrl-\ and Ctrl-Z do what they always do, with the user's screen in front.
extern "C" fn step_aside(signal: libc::c_int) {
    let taken = give_screen_back();
    // SAFETY: all four are async-signal-safe, and the structures are initialised: the signal is
    // given its default action, is sent, and acts as soon as it is no longer blocked. After Ctrl-Z
    // the process goes on from there.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
    }
    // What cannot be caught again has its default action from now on.
    let _ = install(signal, step_aside);
    if taken {
        to_terminal(brownout_fuzz::status::ENTER);
    }
}

/// Whether a status screen has taken the terminal behind stderr: then it is given back before a
/// signal ends or stops the process.
pub fn screen_is_taken(taken: bool) {
    SCREEN.store(taken, std::sync::atomic::Ordering::Relaxed);
    for signal in [libc::SIGQUIT, libc::SIGTSTP] {
        if taken && disposition(signal).is_ok_and(|now| now == libc::SIG_DFL) {
            // Without it the screen stays as it is at that moment.
            let _ = install(signal, step_aside);
        }
    }
}
