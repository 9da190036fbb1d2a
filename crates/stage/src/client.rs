//! A client of a server that is fuzzed: connects, sends the input, and goes.
//!
//! An input is one connection, or several: wherever it contains `@NEXT@` and a line feed, another
//! one begins. The connections are made, and all of it is sent, as soon as the program begins to
//! listen and before it goes on ([`brownout_host::Client`]); so it finds them all when it first
//! looks, and with one thread the same input gives the same run. What does not fit (into buffers,
//! or into the queue of those that want to connect) follows as the server takes what came before.
//! Answers are read, counted and thrown away.
//!
//! **The end.** A server does not end by itself. When all is sent and the server has nothing to do
//! any more, it gets SIGTERM; if it is still there when the time for the run is nearly up, it is
//! killed. It has nothing to do if all its threads wait, at several looks one after the other;
//! those that sleep for a time of their own choice are given much longer, because they may be in
//! the middle of something. Whether it has closed its connections does not matter. A server that is
//! at work until the time is up hangs, as any program does.
//!
//! **Kept servers.** A server with one thread can be kept where it first waits for clients; then
//! the connections are made, and all is sent, before a run is forked from there. The socket that
//! listens is common to all runs, so a connection that one of them has not accepted would be the
//! next one's. It is known by not being closed when the run has ended, and then the server is not
//! used any more ([`Feeder::is_over`]).

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brownout_host::{Activity, Address, Client, Enclosure, Wish, activity_of};

use crate::delivery::{Delivery, Endpoint, NEXT};

/// An input has so many connections at most; what is behind them is not sent.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take that need not wait for anything but the kernel.
const CONNECT_WITHIN: Duration = Duration::from_millis(5);
/// How often it is looked what the server does.
const LOOK: Duration = Duration::from_micros(300);
/// So many looks in a row at which all threads wait: the server has nothing to do.
const LOOKS: u32 = 4;
/// The same if some sleep for a time of their own choice.
const LOOKS_PAUSING: u32 = 500;
/// The same if they take turns.
const LOOKS_TURNS: u32 = 8;
/// So long before the time for the run is up, a server that does not mind SIGTERM is killed.
const RESERVE: Duration = Duration::from_millis(100);
/// A server that did not mind SIGTERM so often does not get it any more.
const STUBBORN: u32 = 2;

/// What servers have done, over a campaign.
#[derive(Debug, Default)]
pub struct Served {
    /// Connections that were made.
    pub connections: AtomicU64,
    /// Bytes of their answers.
    pub answered: AtomicU64,
    /// How often one had to be killed.
    stubborn: AtomicU32,
    /// A run has left one that was kept in such a state that nobody can connect any more. That
    /// would happen again.
    pub(crate) is_unkeepable: AtomicBool,
}

impl Served {
    /// What a reader of a campaign must know.
    pub fn note(&self, delivery: &Delivery) -> Option<String> {
        let [connections, answered] = [&self.connections, &self.answered];
        let count = connections.load(Ordering::Relaxed);
        match delivery {
            Delivery::Socket(_) if count == 0 => Some(
                "nobody could connect to the program: it did not listen where it was expected to"
                    .to_owned(),
            ),
            Delivery::Socket(_) => Some(format!(
                "{count} connections were made, and answered with {} bytes",
                answered.load(Ordering::Relaxed)
            )),
            _ => None,
        }
    }
}

/// One connection.
struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    sent: usize,
    /// Nothing more will be sent.
    is_shut: bool,
    /// The server has closed it.
    is_closed: bool,
}

#[derive(Default)]
struct State {
    address: Option<Address>,
    /// Of connections that are not made yet.
    left: VecDeque<Vec<u8>>,
    open: Vec<Connection>,
    next_look: Option<Instant>,
    quiet: u32,
    /// The server was told to end.
    is_ended: bool,
}

impl State {
    /// All connections were made, and the server has closed them.
    fn is_served(&self) -> bool {
        let mut open = self.open.iter();
        self.left.is_empty() && !self.open.is_empty() && open.all(|c| c.is_closed)
    }
}

/// See the module's header.
pub struct Feeder {
    view: Arc<Enclosure>,
    endpoint: Endpoint,
    served: Arc<Served>,
    /// When the time for the run is up.
    until: Instant,
    /// Its threads take turns.
    takes_turns: bool,
    state: Mutex<State>,
}

impl Feeder {
    /// For one run of a server in a view that lasts no longer than `patience` from now on, perhaps
    /// with threads that take turns. `None`: it is no server.
    pub fn of(
        delivery: &Delivery,
        view: &Arc<Enclosure>,
        served: &Arc<Served>,
        input: &[u8],
        patience: Duration,
        takes_turns: bool,
    ) -> Option<Arc<Feeder>> {
        let Delivery::Socket(endpoint) = delivery else {
            return None;
        };
        let left = connections(input)
            .map(|part| input[part].to_vec())
            .collect();
        Some(Arc::new(Feeder {
            view: view.clone(),
            endpoint: endpoint.clone(),
            served: served.clone(),
            until: Instant::now() + patience,
            takes_turns,
            state: Mutex::new(State {
                left,
                ..State::default()
            }),
        }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic elsewhere is being reported already; the data stays usable.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes the connections to a server that is kept where it listens. False if nobody listens
    /// there any more.
    pub fn begin(&self, address: &Address) -> bool {
        self.listening(address);
        !self.lock().open.is_empty()
    }

    /// After the run: whether nothing of it is left where the server listens.
    pub fn is_over(&self) -> bool {
        let mut state = self.lock();
        self.deal(&mut state);
        state.open.iter().all(|connection| connection.is_closed)
    }

    /// Whether the server has ended because it was told to.
    pub fn has_ended_it(&self) -> bool {
        self.lock().is_ended
    }

    /// Deals with a server that runs natively, until it has ended.
    pub fn serve_natively(&self, mut server: Child) -> io::Result<ExitStatus> {
        let pid = server.id();
        loop {
            if let Some(status) = server.try_wait()? {
                return Ok(status);
            }
            let is_known = self.lock().address.is_some();
            if !is_known && let Some(address) = listening(pid).iter().find(|a| self.endpoint.is(a))
            {
                self.listening(address);
            }
            let wish = self.look(&mut || activity_of(pid as libc::pid_t));
            let is_over = Instant::now() >= self.until;
            let signal = match wish {
                Wish::Terminate => Some(libc::SIGTERM),
                Wish::Kill => Some(libc::SIGKILL),
                Wish::Nothing => is_over.then_some(libc::SIGKILL),
            };
            if let Some(signal) = signal {
                // SAFETY: our own child, of which nobody has taken note yet.
                unsafe { libc::kill(pid as libc::pid_t, signal) };
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Makes the connections that are left, as far as that goes. True if one was made.
    fn connect(&self, state: &mut State) -> bool {
        let mut any = false;
        while let (Some(address), Some(input)) = (&state.address, state.left.pop_front()) {
            match connect(&self.view, address) {
                Ok(socket) => {
                    any = true;
                    self.served.connections.fetch_add(1, Ordering::Relaxed);
                    let mut connection = Connection {
                        socket,
                        input,
                        sent: 0,
                        is_shut: false,
                        is_closed: false,
                    };
                    connection.send();
                    state.open.push(connection);
                }
                Err(_) => {
                    // There is no room, or nobody listens any more. Whether that changes shows when
                    // the server has nothing to do.
                    state.left.push_front(input);
                    break;
                }
            }
        }
        any
    }

    /// Sends what is left, and takes answers. True if anything has moved.
    fn deal(&self, state: &mut State) -> bool {
        let mut has_moved = false;
        for connection in &mut state.open {
            has_moved |= connection.send();
            let received = connection.receive();
            has_moved |= received > 0;
            self.served.answered.fetch_add(received, Ordering::Relaxed);
        }
        has_moved
    }
}

/// Notes where a server listens that is to be kept.
pub(crate) struct Noter {
    endpoint: Endpoint,
    found: Mutex<Option<Address>>,
}

impl Noter {
    /// One that knows nothing yet. `None`: it is no server.
    pub fn of(delivery: &Delivery) -> Option<Arc<Noter>> {
        let Delivery::Socket(endpoint) = delivery else {
            return None;
        };
        Some(Arc::new(Noter {
            endpoint: endpoint.clone(),
            found: Mutex::new(None),
        }))
    }

    /// Where it listens.
    pub fn found(&self) -> Option<Address> {
        let found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        found.clone()
    }
}

impl Client for Noter {
    fn listening(&self, address: &Address) {
        if self.endpoint.is(address) {
            let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
            found.get_or_insert_with(|| address.clone());
        }
    }

    fn look(&self, _: &mut dyn FnMut() -> Activity) -> Wish {
        Wish::Nothing
    }
}

impl Client for Feeder {
    fn listening(&self, address: &Address) {
        let mut state = self.lock();
        if state.address.is_none() && self.endpoint.is(address) {
            state.address = Some(address.clone());
            self.connect(&mut state);
        }
    }

    fn look(&self, activity: &mut dyn FnMut() -> Activity) -> Wish {
        let mut state = self.lock();
        let now = Instant::now();
        if state.is_ended {
            self.deal(&mut state);
            if now + RESERVE < self.until {
                return Wish::Nothing;
            }
            self.served.stubborn.fetch_add(1, Ordering::Relaxed);
            return Wish::Kill;
        }
        if state.address.is_none() {
            return Wish::Nothing;
        }
        if self.deal(&mut state) {
            state.quiet = 0;
        }
        if state.next_look.is_some_and(|at| now < at) {
            return Wish::Nothing;
        }
        state.next_look = Some(now + LOOK);
        let needed = match activity() {
            // Its time passes at once, so it may be at work for ever because of timers; what
            // clients wanted it has done.
            Activity::Busy if self.takes_turns && state.is_served() => LOOKS_TURNS,
            Activity::Busy => {
                state.quiet = 0;
                return Wish::Nothing;
            }
            // Those that take turns never sleep: their time passes at once. It is the engine that
            // pauses, ever longer, because nobody can go on.
            Activity::Pausing if self.takes_turns => LOOKS_TURNS,
            Activity::Pausing => LOOKS_PAUSING,
            Activity::Waiting => LOOKS,
        };
        state.quiet += 1;
        if state.quiet < needed {
            return Wish::Nothing;
        }
        if self.connect(&mut state) {
            state.quiet = 0;
            return Wish::Nothing;
        }
        state.is_ended = true;
        match self.served.stubborn.load(Ordering::Relaxed) < STUBBORN {
            true => Wish::Terminate,
            false => Wish::Kill,
        }
    }
}

impl Connection {
    /// True if anything was sent.
    fn send(&mut self) -> bool {
        let before = self.sent;
        let fd = self.socket.as_raw_fd();
        while self.sent < self.input.len() && !self.is_closed {
            let rest = &self.input[self.sent..];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: our own socket and bytes.
            match unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), flags) } {
                n if n > 0 => self.sent += n as usize,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => break,
                // The server does not want any more of it; its answers may still be there.
                _ => self.sent = self.input.len(),
            }
        }
        if self.sent == self.input.len() && !self.is_shut {
            self.is_shut = true;
            // SAFETY: our own socket.
            unsafe { libc::shutdown(fd, libc::SHUT_WR) };
        }
        self.sent != before
    }

    /// How many bytes have come.
    fn receive(&mut self) -> u64 {
        let mut all = 0;
        let mut buffer = [0u8; 16 << 10];
        while !self.is_closed {
            let fd = self.socket.as_raw_fd();
            // SAFETY: our own socket and buffer.
            let got = unsafe {
                libc::recv(
                    fd,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            match got {
                n if n > 0 => all += n as u64,
                0 => self.is_closed = true,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => break,
                _ => self.is_closed = true,
            }
        }
        all
    }
}

/// What is to be sent over each connection: which part of the input.
pub fn connections(input: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mark = NEXT.as_bytes();
    let mut next = Some(0);
    let pieces = std::iter::from_fn(move || {
        let from = next?;
        let mut windows = input[from..].windows(mark.len());
        let found = windows.position(|window| window == mark);
        let end = found.map_or(input.len(), |at| from + at);
        next = found.map(|_| end + mark.len());
        Some(from..end)
    });
    pieces.take(CONNECTIONS_MAX)
}

/// A connection to somebody in a view.
fn connect(view: &Enclosure, address: &Address) -> io::Result<OwnedFd> {
    // Keeps the path of a socket true.
    let mut _folder = None;
    let (socket, name) = match address {
        Address::Inet(address) => {
            let (ip, family) = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => {
                    (Ipv4Addr::LOCALHOST.into(), libc::AF_INET)
                }
                IpAddr::V4(ip) => (IpAddr::V4(ip), libc::AF_INET),
                IpAddr::V6(ip) if ip.is_unspecified() => {
                    (Ipv6Addr::LOCALHOST.into(), libc::AF_INET6)
                }
                IpAddr::V6(ip) => (IpAddr::V6(ip), libc::AF_INET6),
            };
            let name = inet_name(SocketAddr::new(ip, address.port()));
            (view.socket(family)?, name)
        }
        Address::Path(path) => {
            let path = std::path::absolute(path)?;
            let folder = path.parent().unwrap_or(Path::new("/"));
            let mut options = File::options();
            options.read(true);
            options.custom_flags(libc::O_PATH | libc::O_DIRECTORY);
            let folder = options.open(view.path(folder))?;
            // However long the path is, this is short.
            let short = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let short = PathBuf::from(short).join(path.file_name().unwrap_or_default());
            _folder = Some(folder);
            let name = CString::new(short.as_os_str().as_bytes())?;
            (
                view.socket(libc::AF_UNIX)?,
                unix_name(name.as_bytes_with_nul())?,
            )
        }
        Address::Abstract(name) => {
            let name = [&[0], &name[..]].concat();
            (view.socket(libc::AF_UNIX)?, unix_name(&name)?)
        }
    };
    let fd = socket.as_raw_fd();
    // SAFETY: our own socket; a name that lives longer, and its length.
    unsafe {
        libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        if libc::connect(fd, name.as_ptr().cast(), name.len() as libc::socklen_t) == 0 {
            return Ok(socket);
        }
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINPROGRESS) => established(fd).map(|()| socket),
        _ => Err(error),
    }
}

/// Waits for a connection that the kernel makes without anybody's help.
fn established(fd: RawFd) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: our own variables, of which the kernel is told the size.
    unsafe {
        if libc::poll(&mut poll, 1, CONNECT_WITHIN.as_millis() as i32) != 1 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (level, what) = (libc::SOL_SOCKET, libc::SO_ERROR);
        libc::getsockopt(fd, level, what, (&raw mut error).cast(), &mut len);
    }
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// As the kernel wants it: `struct sockaddr_in` or `sockaddr_in6`.
fn inet_name(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    let family = |family: i32| (family as u16).to_ne_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [
            &family(libc::AF_INET)[..],
            &port,
            &ip.octets(),
            // Up to its length.
            &[0; 8],
        ]
        .concat(),
        IpAddr::V6(ip) => [
            &family(libc::AF_INET6)[..],
            &port,
            // Flow and scope.
            &[0; 4],
            &ip.octets(),
            &[0; 4],
        ]
        .concat(),
    }
}

/// As the kernel wants it: `struct sockaddr_un`, as long as it need be.
fn unix_name(name: &[u8]) -> io::Result<Vec<u8>> {
    const NAME_MAX: usize = 108;
    if name.len() > NAME_MAX {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    Ok([&(libc::AF_UNIX as u16).to_ne_bytes()[..], name].concat())
}

/// Where programs listen, as `/proc/PID/net` shows it to somebody who has no engine to ask.
pub(crate) fn listening(pid: u32) -> Vec<Address> {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut found = Vec::new();
    for name in ["tcp", "tcp6"] {
        let text = String::from_utf8_lossy(&read(name)).into_owned();
        found.extend(text.lines().skip(1).filter_map(listening_inet));
    }
    for line in read("unix").split(|byte| *byte == b'\n').skip(1) {
        found.extend(listening_unix(line));
    }
    found
}

/// `  0: 0100007F:1E61 00000000:0000 0A …`: numbers of 32 bits as the machine has them, and `0A` for those that listen.
fn listening_inet(line: &str) -> Option<Address> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = words.get(1)?.split_once(':')?;
    if *words.get(3)? != "0A" {
        return None;
    }
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        _ => <[u8; 16]>::try_from(bytes).ok()?.into(),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Address::Inet(SocketAddr::new(ip, port)))
}

/// `0000000000000000: 00000002 00000000 00010000 0001 01 4711 /path`: the fourth number has a bit
/// for those that listen.
fn listening_unix(line: &[u8]) -> Option<Address> {
    let text = String::from_utf8_lossy(line).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let flags = u32::from_str_radix(words.get(3)?, 16).ok()?;
    if flags & 0x1_0000 == 0 {
        return None;
    }
    let name = words.get(7)?;
    Some(match name.strip_prefix('@') {
        Some(name) => Address::Abstract(name.as_bytes().to_vec()),
        None => Address::Path(name.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_one_connection_or_several() {
        let of = |input: &'static str| -> Vec<&[u8]> {
            let parts = connections(input.as_bytes());
            parts.map(|part| &input.as_bytes()[part]).collect()
        };
        assert_eq!(of("get a\n"), [&b"get a\n"[..]]);
        assert_eq!(of(""), [&b""[..]]);
        assert_eq!(of("a\n@NEXT@\nb\n"), [&b"a\n"[..], b"b\n"]);
        assert_eq!(of("@NEXT@\n@NEXT@"), [&b""[..], b"@NEXT@"]);
        let many = "x@NEXT@\n".repeat(100);
        assert_eq!(connections(many.as_bytes()).count(), CONNECTIONS_MAX);
    }

    #[test]
    fn listeners_are_found() {
        let line = "   0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        let expected = SocketAddr::from(([127, 0, 0, 1], 7777));
        assert_eq!(listening_inet(line), Some(Address::Inet(expected)));
        assert_eq!(listening_inet(&line.replace(" 0A ", " 01 ")), None);
        let line = b"00000000: 00000002 00000000 00010000 0001 01 4711 /run/s";
        assert_eq!(listening_unix(line), Some(Address::Path("/run/s".into())));
        let line = b"00000000: 00000003 00000000 00000000 0001 03 4711 /run/s";
        assert_eq!(listening_unix(line), None);
    }

    #[test]
    fn names_are_as_long_as_the_kernel_wants() {
        assert_eq!(inet_name(SocketAddr::from(([127, 0, 0, 1], 80))).len(), 16);
        assert_eq!(inet_name(SocketAddr::from(([0u16; 8], 80))).len(), 28);
        assert_eq!(unix_name(b"/s\0").expect("it is short").len(), 5);
        assert!(unix_name(&[b'x'; 200]).is_err());
    }
}
