//! Somebody with whom a program deals while it runs: it listens, a client comes.
//!
//! ```text
//!  program: listen() ─▶ engine asks, and waits ─▶ Client::listening: connects, sends ─▶ program goes on, and finds a connection
//!  meanwhile, in the loop that takes events: Client::look, again and again ─▶ Wish: nothing yet, end in order, be ended
//! ```
//! Guarantee: what the client has sent in [`listening`](Client::listening) is there before the
//! program can look. So with one thread, the same client gives the same run. A program that is
//! ended because the client wishes so has ended, and was not [stopped](crate::Stopped): its sink
//! gets the end, with the signal if that was its end.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where a program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Inet(SocketAddr),
    /// A name in its file system; not absolute if the program's is not.
    Path(PathBuf),
    /// A name in its network that is no path.
    Abstract(Vec<u8>),
}

impl Address {
    /// From what the kernel says. `None`: nobody can connect there.
    pub fn parse(bytes: &[u8]) -> Option<Address> {
        let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
        let port = || Some(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
        match i32::from(family) {
            libc::AF_INET => {
                let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some(Address::Inet((ip, port()?).into()))
            }
            libc::AF_INET6 => {
                let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                Some(Address::Inet((ip, port()?).into()))
            }
            libc::AF_UNIX => match bytes.get(2..)? {
                [] => None,
                [0, name @ ..] => Some(Address::Abstract(name.to_vec())),
                path => {
                    let len = path.iter().position(|byte| *byte == 0);
                    let path = path[..len.unwrap_or(path.len())].to_vec();
                    Some(Address::Path(OsString::from_vec(path).into()))
                }
            },
            _ => None,
        }
    }
}

/// What the threads of a run do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// All wait for something to happen.
    Waiting,
    /// All sleep, and some for a time that they have chosen.
    Pausing,
    /// At least one is at work, or the tool is.
    Busy,
}

/// What a client wants to become of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It goes on.
    Nothing,
    /// All processes get SIGTERM, once.
    Terminate,
    /// They are killed.
    Kill,
}

/// See the module's header.
pub trait Client: Send + Sync {
    /// The program has begun to listen, and waits until this returns.
    fn listening(&self, address: &Address);

    /// Called all the time while the program runs, so it must be quick. What the threads do costs
    /// some system calls to find out.
    fn look(&self, activity: &mut dyn FnMut() -> Activity) -> Wish;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_the_kernel_says_them() {
        let inet = [2, 0, 0x1e, 0x61, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let expected = SocketAddr::from(([127, 0, 0, 1], 7777));
        assert_eq!(Address::parse(&inet), Some(Address::Inet(expected)));
        let mut inet6 = [0; 28];
        inet6[..4].copy_from_slice(&[10, 0, 0, 80]);
        let expected = SocketAddr::from(([0u16; 8], 80));
        assert_eq!(Address::parse(&inet6), Some(Address::Inet(expected)));
        let path = Address::parse(b"\x01\x00run/s\0");
        assert_eq!(path, Some(Address::Path("run/s".into())));
        let name = Address::parse(b"\x01\x00\0name");
        assert_eq!(name, Some(Address::Abstract(b"name".to_vec())));
        for nowhere in [&b""[..], b"\x01\x00", b"\x02\x00\x00", b"\x63\x00abc"] {
            assert_eq!(Address::parse(nowhere), None);
        }
    }
}
