//! `brownout report DIR --watch`: a page that is served while a campaign goes on.
//!
//! **Purpose.** Whoever watches a campaign sees its curves grow. The page is the one that `-o`
//! writes; besides, it asks for what is new.
//!
//! **Guarantee.** Only this machine is served: the socket is bound to 127.0.0.1. A page of somebody
//! else, in the same browser, gets nothing: the address has a random part that only who started the
//! tool knows, and a request whose `Host` is not this very address is refused, so that a name that
//! is made to point here (DNS rebinding) is of no use. No answer may be embedded or kept. Nothing
//! that a request says is used but its path, which is compared with two names; nothing is read but
//! the campaign's folder, and nothing is written. Whoever sends nothing, or very much, is cut off
//! and keeps nobody else waiting.
//!
//! **Source.** RFC 9112 (HTTP/1.1), as little of it as a browser needs: `GET` and `HEAD`, a
//! connection each.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brownout_report::html::WATCHED;

/// A request is at most so long.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// So long may a browser take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many are served at a time; a browser opens some connections in advance.
const CONNECTIONS_MAX: usize = 32;
/// The folder is not read more often.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How long it takes at most until Ctrl-C is noticed.
const TICK: Duration = Duration::from_millis(50);

/// What is served.
#[derive(Clone)]
pub struct Pages {
    /// The page.
    pub page: Vec<u8>,
    /// What has changed since.
    pub now: Vec<u8>,
}

/// A socket that waits for a browser.
pub struct Server {
    listener: TcpListener,
    address: SocketAddrV4,
    secret: String,
}

impl Server {
    /// Port 0 is any that is free.
    pub fn bind(port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Server {
            listener,
            address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// What to open.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.secret)
    }

    /// Serves what `make` makes of the folder, until `stop` is true. What cannot be made is said in
    /// its place.
    pub fn serve(
        &self,
        stop: &AtomicBool,
        make: impl Fn() -> Result<Pages, String> + Sync,
    ) -> io::Result<()> {
        let latest: Mutex<Option<(Instant, Result<Pages, String>)>> = Mutex::new(None);
        let make = &make;
        let pages = || {
            let mut latest = latest.lock().unwrap_or_else(|poison| poison.into_inner());
            match &*latest {
                Some((when, pages)) if when.elapsed() < READ_EVERY => pages.clone(),
                _ => {
                    let pages = make();
                    *latest = Some((Instant::now(), pages.clone()));
                    pages
                }
            }
        };
        let pages = &pages;
        let busy = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        if busy.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                            // It may try again.
                            continue;
                        }
                        busy.fetch_add(1, Ordering::Relaxed);
                        let busy = busy.clone();
                        scope.spawn(move || {
                            // A browser that goes away is no matter.
                            let _ = self.answer(stream, pages);
                            busy.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TICK),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // One that was gone before it was taken.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    fn answer(
        &self,
        mut stream: TcpStream,
        pages: impl Fn() -> Result<Pages, String>,
    ) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some(request) = read_head(&mut stream)? else {
            return respond(&mut stream, &Answer::refusal("400 Bad Request"), true);
        };
        let (answer, has_body) = self.chosen(&request, pages);
        respond(&mut stream, &answer, has_body)
    }

    /// What a request gets, and whether its content is sent, too.
    fn chosen(
        &self,
        request: &Request,
        pages: impl Fn() -> Result<Pages, String>,
    ) -> (Answer, bool) {
        let has_body = request.method != "HEAD";
        let refused = |status| (Answer::refusal(status), has_body);
        // A name of somebody else's that points here is not ours.
        let port = self.address.port();
        let ours = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        if !ours
            .iter()
            .any(|host| request.host.eq_ignore_ascii_case(host))
        {
            return refused("421 Misdirected Request");
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return refused("405 Method Not Allowed");
        }
        let name = request.path.strip_prefix('/').unwrap_or_default();
        let Some(name) = name.strip_prefix(&self.secret) else {
            return refused("404 Not Found");
        };
        let is_page = name == "/";
        if !is_page && name.strip_prefix('/') != Some(WATCHED) {
            return refused("404 Not Found");
        }
        let answer = match pages() {
            Ok(pages) if is_page => Answer {
                status: "200 OK",
                kind: "text/html; charset=utf-8",
                body: pages.page,
            },
            Ok(pages) => Answer {
                status: "200 OK",
                kind: "application/json",
                body: pages.now,
            },
            Err(why) => Answer {
                status: "503 Service Unavailable",
                kind: "text/plain; charset=utf-8",
                body: format!("{why}\n").into_bytes(),
            },
        };
        (answer, has_body)
    }
}

/// What matters of a request.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    host: String,
}

struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn refusal(status: &'static str) -> Answer {
        Answer {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{status}\n").into_bytes(),
        }
    }
}

/// Reads up to the empty line behind the head. None: it is no request, or too long, or does not
/// come.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let begun = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let Some(left) = PATIENCE
            .checked_sub(begun.elapsed())
            .filter(|d| !d.is_zero())
        else {
            return Ok(None);
        };
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        if count == 0 || head.len() + count > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        head.extend_from_slice(&piece[..count]);
    }
    Ok(parse(&head))
}

fn parse(head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    let mut hosts = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let (_, host) = hosts.next()?;
    // Two of them would let two readers see two hosts.
    if hosts.next().is_some() {
        return None;
    }
    Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        host: host.trim().to_owned(),
    })
}

fn respond(stream: &mut TcpStream, answer: &Answer, has_body: bool) -> io::Result<()> {
    // The page has a policy of its own; this one adds what a page cannot say about itself.
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
         Content-Security-Policy: frame-ancestors 'none'\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if has_body {
        stream.write_all(&answer.body)?;
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Result<Pages, String> {
        Ok(Pages {
            page: b"<!doctype html>".to_vec(),
            now: b"{}".to_vec(),
        })
    }

    fn status(server: &Server, request: &str) -> &'static str {
        match parse(request.as_bytes()) {
            None => "none",
            Some(request) => server.chosen(&request, pages).0.status,
        }
    }

    #[test]
    fn only_who_knows_the_address_is_served() {
        let server = Server::bind(0).expect("a port is free");
        let (port, secret) = (server.address.port(), server.secret.clone());
        let mut seen = Vec::new();
        for (line, host) in [
            (
                format!("GET /{secret}/ HTTP/1.1"),
                format!("127.0.0.1:{port}"),
            ),
            (
                format!("HEAD /{secret}/now.json HTTP/1.1"),
                format!("LOCALHOST:{port}"),
            ),
            // Names that somebody has made to point here.
            (format!("GET /{secret}/ HTTP/1.1"), "evil.example".into()),
            (
                format!("GET /{secret}/ HTTP/1.1"),
                format!("evil.example:{port}"),
            ),
            (
                format!("GET /{secret}/ HTTP/1.1"),
                format!("127.0.0.1:{}", port ^ 1),
            ),
            (
                format!("GET /{secret}/ HTTP/1.1"),
                format!("127.0.0.1:{port}\r\nHost: a"),
            ),
            ("GET / HTTP/1.1".into(), format!("127.0.0.1:{port}")),
            (
                format!("GET /{secret} HTTP/1.1"),
                format!("127.0.0.1:{port}"),
            ),
            (
                format!("GET /{secret}/../x HTTP/1.1"),
                format!("127.0.0.1:{port}"),
            ),
            (
                format!("GET /{}/ HTTP/1.1", "0".repeat(32)),
                format!("127.0.0.1:{port}"),
            ),
            (
                format!("POST /{secret}/ HTTP/1.1"),
                format!("127.0.0.1:{port}"),
            ),
            (
                format!("GET /{secret}/ SPDY/3"),
                format!("127.0.0.1:{port}"),
            ),
        ] {
            seen.push(status(&server, &format!("{line}\r\nHost: {host}\r\n\r\n")));
        }
        assert_eq!(
            seen,
            [
                "200 OK",
                "200 OK",
                "421 Misdirected Request",
                "421 Misdirected Request",
                "421 Misdirected Request",
                "none",
                "404 Not Found",
                "404 Not Found",
                "404 Not Found",
                "404 Not Found",
                "405 Method Not Allowed",
                "none",
            ]
        );
        assert_eq!(status(&server, "GET / HTTP/1.1\r\n\r\n"), "none");
        assert!(server.url().starts_with("http://127.0.0.1:"));
        assert_eq!(secret.len(), 32);
        assert_ne!(Server::bind(0).expect("a port is free").secret, secret);
    }

    /// Who sends nothing does not keep others waiting, and everything ends when it is told to.
    #[test]
    fn somebody_silent_is_no_hindrance() {
        let server = Server::bind(0).expect("a port is free");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let served = scope.spawn(|| server.serve(&stop, pages));
            let silent = TcpStream::connect(server.address).expect("it listens");
            let mut asking = TcpStream::connect(server.address).expect("it listens");
            let begun = Instant::now();
            write!(
                asking,
                "GET /{}/now.json HTTP/1.1\r\nHost: {}\r\n\r\n",
                server.secret, server.address
            )
            .expect("it takes requests");
            let mut answer = String::new();
            asking.read_to_string(&mut answer).expect("it answers");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\n{}"), "{answer}");
            assert!(answer.contains("Cache-Control: no-store"), "{answer}");
            assert!(begun.elapsed() < PATIENCE);
            drop(silent);
            stop.store(true, Ordering::Relaxed);
            served.join().expect("no panic").expect("no error");
        });
    }
}
