//! Sockets that belong to the network of a private view, for the tool to use.
//!
//! A socket stays in the network namespace in which it was made, whoever uses it. Only a process
//! can go into a namespace, and in general not one with several threads. So a child of the tool
//! makes sockets on demand: it gets the namespace, and gives the socket back. One child serves all
//! views of an [`Enclosures`](crate::Enclosures).
//!
//! ```text
//!  tool ── kind, network namespace ──▶ child: setns, socket ── socket, or an error number ──▶ tool
//! ```
//! The child makes system calls only, and allocates nothing. It is the child of a thread that does
//! nothing but wait for it: those that run programs take note of the ends of their own children. It
//! ends when the tool does, or closes the channel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, mpsc};

/// Room for one descriptor beside a message (`CMSG_SPACE` of four bytes), aligned for its header.
type Beside = [u64; 4];

/// See the module's header.
pub struct SocketMaker {
    channel: Mutex<OwnedFd>,
}

impl SocketMaker {
    /// `user` is the user namespace that owns the networks, if that is not the tool's own.
    pub fn start(user: Option<RawFd>) -> io::Result<SocketMaker> {
        let mut ends = [0; 2];
        // SAFETY: fills our array with two new descriptors.
        let made = unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let (tell, told) = mpsc::channel();
        std::thread::Builder::new()
            .name("sockets".into())
            .spawn(move || {
                // SAFETY: the child makes system calls only, on its own copies, and ends by
                // `_exit`.
                let child = unsafe { libc::fork() };
                match child {
                    0 => serve(theirs.as_raw_fd(), user),
                    -1 => drop(tell.send(Err(io::Error::last_os_error()))),
                    child => {
                        drop(theirs);
                        // Whoever has started this waits for exactly that.
                        drop(tell.send(Ok(())));
                        let mut status = 0;
                        // SAFETY: our own child.
                        unsafe { libc::waitpid(child, &mut status, libc::__WALL) };
                    }
                }
            })?;
        told.recv()
            .unwrap_or_else(|_| Err(io::Error::other("nobody makes sockets")))?;
        Ok(SocketMaker {
            channel: Mutex::new(ours),
        })
    }

    /// A new stream socket of a family (`AF_INET` and the like) in a network.
    pub fn make(&self, network: RawFd, family: i32) -> io::Result<OwnedFd> {
        // A panic elsewhere is being reported already; the channel stays usable.
        let channel = self.channel.lock().unwrap_or_else(|e| e.into_inner());
        send(channel.as_raw_fd(), family, Some(network))?;
        match receive(channel.as_raw_fd())? {
            // SAFETY: just received, and nobody else has it.
            Some((0, Some(socket))) => Ok(unsafe { OwnedFd::from_raw_fd(socket) }),
            Some((error, _)) => Err(io::Error::from_raw_os_error(error)),
            None => Err(io::Error::other("nobody makes sockets any more")),
        }
    }
}

/// In the child: makes sockets until nobody wants any.
fn serve(channel: RawFd, user: Option<RawFd>) -> ! {
    // SAFETY: system calls on numbers and descriptors of this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // Signals from a terminal are the tool's, and so are its handlers.
        let all = !0u64;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            0,
            8,
        );
        if let Some(user) = user
            && libc::setns(user, libc::CLONE_NEWUSER) != 0
        {
            libc::_exit(1);
        }
        // What others wait for to be closed.
        let channel = channel as libc::c_uint;
        if channel > 0 {
            libc::syscall(libc::SYS_close_range, 0, channel - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, channel + 1, libc::c_uint::MAX, 0);
    }
    while let Ok(Some((family, Some(network)))) = receive(channel) {
        // SAFETY: a descriptor that was just received; a new one, or an error.
        let (socket, error) = unsafe {
            let entered = libc::setns(network, libc::CLONE_NEWNET);
            let mut socket = -1;
            if entered == 0 {
                socket = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            }
            let error = *libc::__errno_location();
            libc::close(network);
            (socket, error)
        };
        let sent = match socket {
            -1 => send(channel, error.max(1), None),
            socket => {
                let sent = send(channel, 0, Some(socket));
                // SAFETY: our own descriptor.
                unsafe { libc::close(socket) };
                sent
            }
        };
        if sent.is_err() {
            break;
        }
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// A message of one number, with a descriptor beside it.
fn send(channel: RawFd, number: i32, descriptor: Option<RawFd>) -> io::Result<()> {
    let mut number = number;
    let mut beside: Beside = [0; 4];
    let mut piece = libc::iovec {
        iov_base: (&raw mut number).cast(),
        iov_len: 4,
    };
    // SAFETY: a structure of zeros is valid; it is filled with addresses of local variables that
    // live until the call is over. The room beside is large enough for one header and one
    // descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            message.msg_control = beside.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header)
                .cast::<RawFd>()
                .write_unaligned(descriptor);
        }
        match libc::sendmsg(channel, &raw const message, libc::MSG_NOSIGNAL) {
            4 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The next message; `None` if there will be none.
fn receive(channel: RawFd) -> io::Result<Option<(i32, Option<RawFd>)>> {
    let mut number = 0i32;
    let mut beside: Beside = [0; 4];
    let mut piece = libc::iovec {
        iov_base: (&raw mut number).cast(),
        iov_len: 4,
    };
    // SAFETY: as above. What the kernel has written beside begins with a header, if there is one.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = beside.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Beside>() as _;
        let got = loop {
            let got = libc::recvmsg(channel, &raw mut message, libc::MSG_CMSG_CLOEXEC);
            if got >= 0 || *libc::__errno_location() != libc::EINTR {
                break got;
            }
        };
        match got {
            4 => {}
            0 => return Ok(None),
            _ => return Err(io::Error::last_os_error()),
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_descriptor = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let descriptor =
            is_descriptor.then(|| libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned());
        Ok(Some((number, descriptor)))
    }
}
