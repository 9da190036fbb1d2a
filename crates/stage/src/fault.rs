//! Signals by which a program ends that has done something wrong.

/// The program has brought it about itself. Others come from outside, or are a way to end.
pub fn is_fault(signal: i32) -> bool {
    let faults = [
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    faults.contains(&signal)
}

/// A signal's name.
pub fn signal_name(signal: i32) -> String {
    let known = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    let found = known.iter().find(|(number, _)| *number == signal);
    found.map_or(format!("signal {signal}"), |(_, name)| (*name).to_owned())
}
