//! Signals from the terminal are the program's.
//!
//! Ctrl-C and Ctrl-\ reach the whole foreground process group: the program, which does with them what
//! it would natively, and this process, which must survive to finish the trace. So they are
//! *caught* and dropped here. Caught, not ignored: a handler is reset to the default by exec,
//! while "ignored" would be inherited and change the program's behaviour. For the same reason
//! SIGPIPE, which Rust's runtime ignores, is given a handler: writes still fail with an error
//! here, and the program starts with the default.

use std::io;

extern "C" fn drop_signal(_signal: libc::c_int) {}

/// Takes effect for the rest of this process's life.
pub fn leave_to_program() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // Whoever started us with these ignored (nohup, a background job) wants the program to
        // be started so, too.
        if disposition(signal)? != libc::SIG_IGN {
            catch(signal)?;
        }
    }
    catch(libc::SIGPIPE)
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
    // SAFETY: both handlers are async-signal-safe and live as long as the process; `action` is fully initialised.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

static STOP: std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicBool>> =
    std::sync::OnceLock::new();

extern "C" fn stop(_signal: libc::c_int) {
    if let Some(flag) = STOP.get() {
        // A second time: whoever asks twice does not want to wait.
        if flag.swap(true, std::sync::atomic::Ordering::Relaxed) {
            // SAFETY: async-signal-safe.
            unsafe { libc::_exit(130) };
        }
    }
}

/// Ctrl-C, SIGTERM and SIGHUP set the flag, so that what was found can be reported; the second one ends the process.
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
