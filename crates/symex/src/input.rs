//! Which bytes of the input the program has been given, by a system call or from its beginning.
//!
//! | the input is | its bytes come by |
//! |---|---|
//! | standard input, a file, a part of a file | reads of it and mappings of it: the engine tells where in the file each begins (`Input`) |
//! | what is sent to a server | reads of descriptors that `accept` has returned, connection by connection |
//! | arguments | the beginning of the program: they lie in front of the end of its words, as they were given |
//!
//! Bytes that are not to be solved for, because a template or a range leaves them out, are given to
//! the program like the others, and never counted here.
//!
//! What the kernel copies elsewhere (`sendfile`, `splice`, `copy_file_range`), the program never
//! sees; it is counted.
//!
//! Deviation: what a program takes from a connection otherwise than by `read`, `recv` and their kin
//! (`io_uring`) follows from nothing.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use brownout_follow::{Given, Received};
use brownout_stage::{Delivery, Place, connections, filled};
use brownout_trace::Beginning;
use brownout_trace::event::{Event, EventKind, FileId, ProcessId, ThreadId};
use rustc_hash::FxHashMap;

const READ: u32 = 0;
const CLOSE: u32 = 3;
const MMAP: u32 = 9;
const PREAD64: u32 = 17;
const READV: u32 = 19;
const DUP: u32 = 32;
const DUP2: u32 = 33;
const SENDFILE: u32 = 40;
const ACCEPT: u32 = 43;
const RECVFROM: u32 = 45;
const RECVMSG: u32 = 47;
const CLONE: u32 = 56;
const FORK: u32 = 57;
const VFORK: u32 = 58;
const FCNTL: u32 = 72;
const SPLICE: u32 = 275;
const TEE: u32 = 276;
const ACCEPT4: u32 = 288;
const DUP3: u32 = 292;
const PREADV: u32 = 295;
const COPY_FILE_RANGE: u32 = 326;
const PREADV2: u32 = 327;
const CLONE3: u32 = 435;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;
const MSG_PEEK: u64 = 2;

/// What a program's input is: how it comes, and which of its bytes are solved for.
#[derive(Clone, Debug)]
pub struct Layout {
    /// How it comes.
    pub delivery: Delivery,
    /// The program's arguments, with what stands for the input.
    pub args: Vec<OsString>,
    /// Which bytes are solved for, in order.
    pub free: Arc<[Range<usize>]>,
}

impl Layout {
    /// An input of which all bytes are solved for.
    #[cfg(test)]
    fn whole(delivery: Delivery, len: usize) -> Layout {
        Layout {
            delivery,
            args: Vec::new(),
            free: std::iter::once(0..len).collect(),
        }
    }

    /// Gives bytes that are not solved for back what they hold in another input.
    pub fn fix(&self, input: &mut [u8], from: &[u8]) {
        let mut at = 0;
        let ends = self.free.iter().map(|free| (free.start, free.end));
        for (start, end) in ends.chain([(input.len(), input.len())]) {
            let fixed = at..start.min(input.len());
            if let (Some(to), Some(bytes)) = (input.get_mut(fixed.clone()), from.get(fixed)) {
                to.copy_from_slice(bytes);
            }
            at = end;
        }
    }

    /// Of so many bytes that begin with number `first` of the input, which may lie before its
    /// beginning: those that are solved for.
    fn given(&self, first: i64, count: u64) -> Vec<Given> {
        let all = i128::from(first)..i128::from(first) + i128::from(count);
        let pieces = self.free.iter().filter_map(|free| {
            let from = (free.start as i128).max(all.start);
            let end = (free.end as i128).min(all.end);
            (from < end).then(|| Given {
                from: (from - all.start) as u64,
                len: (end - from) as u64,
                source: from as u32 + 1,
            })
        });
        pieces.collect()
    }
}

/// The number of a byte of the input, of its source.
pub fn byte(source: u32) -> usize {
    source as usize - 1
}

/// A connection to a server.
#[derive(Clone, Debug)]
struct Connection {
    /// Which part of the input comes over it.
    part: Range<usize>,
    /// How much of it has come.
    at: usize,
}

/// Numbers of connections, by descriptor.
type Descriptors = FxHashMap<u64, usize>;

/// What the program has of its input.
#[derive(Clone, Debug)]
pub struct Position {
    layout: Layout,
    /// By thread: where in the file of the input the call begins that it is making.
    announced: FxHashMap<ThreadId, u64>,
    /// The file that the input is in, if it is tracked.
    file: Option<FileId>,
    connections: Vec<Connection>,
    accepted: usize,
    /// Of each process, descriptors that `accept` has returned, and their copies.
    descriptors: FxHashMap<ProcessId, Descriptors>,
    /// Those that a process begins with that was made and has not begun yet, by its pid: meanwhile
    /// the one that has made it goes on.
    made: FxHashMap<u32, Descriptors>,
    /// As many bytes were given to the program.
    pub read: u64,
    /// As many were copied elsewhere by the kernel, and not given to the program.
    pub copied: u64,
}

impl Position {
    /// Of a program that was given nothing yet.
    pub fn new(layout: &Layout, input: &[u8]) -> Position {
        let parts = match layout.delivery {
            Delivery::Socket(_) => connections(input).collect(),
            _ => Vec::new(),
        };
        let parts = parts.into_iter().map(|part| Connection { part, at: 0 });
        Position {
            layout: layout.clone(),
            announced: FxHashMap::default(),
            file: None,
            connections: parts.collect(),
            accepted: 0,
            descriptors: FxHashMap::default(),
            made: FxHashMap::default(),
            read: 0,
            copied: 0,
        }
    }

    /// Where in its file the input begins.
    fn from(&self) -> u64 {
        match &self.layout.delivery {
            Delivery::Place(Place { from, .. }) => from.unwrap_or(0),
            _ => 0,
        }
    }

    fn is_file(&self) -> bool {
        matches!(
            self.layout.delivery,
            Delivery::Stdin | Delivery::File | Delivery::Place(_)
        )
    }

    /// Takes note of an event.
    pub fn event(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Input { at, .. } if self.is_file() => {
                self.announced.insert(event.thread, at);
            }
            // It is the input that is being mapped.
            EventKind::Map { file, .. } if self.announced.contains_key(&event.thread) => {
                self.file = Some(file);
            }
            EventKind::ProcessStart {
                process,
                parent,
                pid,
                ..
            } => {
                let made = self.made.remove(&pid);
                // If the call that makes it is not over yet, they are still the same.
                let made = made.or_else(|| self.descriptors.get(&parent).cloned());
                if let Some(made) = made {
                    self.descriptors.insert(process, made);
                }
            }
            _ => {}
        }
    }

    /// Tracked bytes are loaded: the sources of those that are solved for.
    pub fn loads(&mut self, file: FileId, offset: u64, sources: &mut [u32]) {
        if self.file == Some(file) {
            let first = offset as i64 - self.from() as i64;
            for given in self.layout.given(first, sources.len() as u64) {
                let into = &mut sources[given.from as usize..][..given.len as usize];
                for (n, source) in into.iter_mut().enumerate() {
                    *source = given.source + n as u32;
                }
            }
        }
    }

    /// A program begins: where in its memory input lies, and which.
    pub fn begins(&mut self, what: &Beginning, input: &[u8]) -> Vec<(u64, Vec<Given>)> {
        let Delivery::Arguments { each } = self.layout.delivery else {
            return Vec::new();
        };
        let mut all = Vec::new();
        let mut end = what.words_end;
        let args = self.layout.args.clone();
        for word in args.iter().rev() {
            let (word, places) = filled(word, input, each);
            let Some(start) = end.checked_sub(word.len() as u64 + 1) else {
                return Vec::new();
            };
            for (at, part) in places {
                let given = self.layout.given(part.start as i64, part.len() as u64);
                self.counts(&given);
                all.push((start + at as u64, given));
            }
            end = start;
        }
        all
    }

    fn counts(&mut self, given: &[Given]) {
        self.read += given.iter().map(|given| given.len).sum::<u64>();
    }

    /// A call is over: what it has given to the program of the input that is solved for.
    pub fn call(&mut self, call: &Received) -> Vec<Given> {
        let announced = self.announced.remove(&call.thread);
        let Ok(result) = u64::try_from(call.result) else {
            return Vec::new();
        };
        let given = match (call.number, announced) {
            (MMAP, Some(at)) => self.of_file(at, call.args[1]),
            (READ | READV | PREAD64 | PREADV | PREADV2, Some(at)) => self.of_file(at, result),
            (SENDFILE | SPLICE | TEE | COPY_FILE_RANGE, Some(at)) => {
                let copied = self.of_file(at, result);
                self.copied += copied.iter().map(|given| given.len).sum::<u64>();
                Vec::new()
            }
            _ => self.of_connections(call, result),
        };
        self.counts(&given);
        given
    }

    fn of_file(&self, at: u64, count: u64) -> Vec<Given> {
        // Where it is not known, the position was beyond what a number can say.
        let first = i64::try_from(at).map(|at| at - self.from() as i64);
        first.map_or(Vec::new(), |first| self.layout.given(first, count))
    }

    fn of_connections(&mut self, call: &Received, result: u64) -> Vec<Given> {
        if self.connections.is_empty() {
            return Vec::new();
        }
        let [descriptor, second, _, fourth, ..] = call.args;
        // Of a descriptor, 32 bits count.
        let descriptor = descriptor & 0xFFFF_FFFF;
        let descriptors = self.descriptors.entry(call.process).or_default();
        let known = descriptors.get(&descriptor).copied();
        match (call.number, known) {
            (ACCEPT | ACCEPT4, _) => {
                descriptors.insert(result, self.accepted);
                self.accepted += 1;
            }
            (READ | READV | RECVFROM | RECVMSG, Some(number)) => {
                let flags = match call.number {
                    RECVFROM => fourth,
                    RECVMSG => call.args[2],
                    _ => 0,
                };
                return self.take(number, result, flags & MSG_PEEK != 0);
            }
            (SPLICE | TEE, Some(number)) => {
                let copied = self.take(number, result, call.number == TEE);
                self.copied += copied.iter().map(|given| given.len).sum::<u64>();
            }
            (DUP, Some(number)) => {
                descriptors.insert(result, number);
            }
            (FCNTL, Some(number)) if matches!(second, F_DUPFD | F_DUPFD_CLOEXEC) => {
                descriptors.insert(result, number);
            }
            (DUP2 | DUP3, _) if descriptor != second => {
                match known {
                    Some(number) => descriptors.insert(result, number),
                    None => descriptors.remove(&result),
                };
            }
            (CLOSE, _) => {
                descriptors.remove(&descriptor);
            }
            (CLONE | FORK | VFORK | CLONE3, _) if result > 0 => {
                let made = descriptors.clone();
                self.made.insert(result as u32, made);
            }
            _ => {}
        }
        Vec::new()
    }

    /// The next bytes of a connection, which stay there if they are only looked at.
    fn take(&mut self, connection: usize, count: u64, stays: bool) -> Vec<Given> {
        let Some(connection) = self.connections.get_mut(connection) else {
            return Vec::new();
        };
        let first = connection.part.start + connection.at;
        let left = connection.part.len() - connection.at;
        let count = left.min(count as usize);
        if !stays {
            connection.at += count;
        }
        self.layout.given(first as i64, count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_stage::Endpoint;
    use brownout_trace::event::{ContextId, ProcessId, TargetAddr};

    fn call(number: u32, args: [u64; 4], result: i64) -> Received {
        let [a, b, c, d] = args;
        Received {
            process: ProcessId(1),
            thread: ThreadId(1),
            number,
            args: [a, b, c, d, 0, 0],
            result,
        }
    }

    fn announce(position: &mut Position, at: u64) {
        position.event(&Event {
            thread: ThreadId(1),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind: EventKind::Input { fd: 0, at },
        });
    }

    fn given(from: u64, len: u64, first: u32) -> Given {
        Given {
            from,
            len,
            source: first + 1,
        }
    }

    #[test]
    fn reads_give_what_lies_where_they_begin() {
        let mut position = Position::new(&Layout::whole(Delivery::Stdin, 10), &[0; 10]);
        let read = call(READ, [0, 0x1000, 4, 0], 4);
        announce(&mut position, 0);
        assert_eq!(position.call(&read), [given(0, 4, 0)]);
        // Of another file, it is not announced.
        assert_eq!(position.call(&read), []);
        announce(&mut position, 8);
        assert_eq!(position.call(&read), [given(0, 2, 8)]);
        announce(&mut position, 10);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], 0)), []);
        announce(&mut position, 0);
        assert_eq!(position.call(&call(READ, [0, 0x1000, 4, 0], -4)), []);
        assert_eq!(position.read, 6);
    }

    #[test]
    fn a_part_of_a_file_is_found_in_what_is_read_and_mapped_of_it() {
        let place = Place {
            path: "pool".into(),
            from: Some(100),
        };
        let layout = Layout {
            free: Arc::from([0..4, 8..12]),
            ..Layout::whole(Delivery::Place(place), 12)
        };
        let mut position = Position::new(&layout, &[0; 12]);
        announce(&mut position, 0);
        assert_eq!(
            position.call(&call(MMAP, [0, 4096, 3, 1], 0x7000)),
            [given(100, 4, 0), given(108, 4, 8)]
        );
        announce(&mut position, 102);
        assert_eq!(
            position.call(&call(PREAD64, [3, 0x1000, 8, 102], 8)),
            [given(0, 2, 2), given(6, 2, 8)]
        );
        let mut sources = [0; 4];
        position.loads(FileId(1), 102, &mut sources);
        assert_eq!(sources, [0; 4]);
        position.file = Some(FileId(1));
        position.loads(FileId(1), 102, &mut sources);
        assert_eq!(sources, [3, 4, 0, 0]);
    }

    #[test]
    fn connections_have_positions_of_their_own() {
        let input = b"abcdef@NEXT@\nxyz";
        let layout = Layout::whole(Delivery::Socket(Endpoint::Auto), input.len());
        let mut position = Position::new(&layout, input);
        let calls = [
            (call(ACCEPT4, [3, 0, 0, 0], 7), vec![]),
            (call(READ, [7, 0, 4, 0], 4), vec![given(0, 4, 0)]),
            (call(ACCEPT, [3, 0, 0, 0], 8), vec![]),
            (
                call(RECVFROM, [8, 0, 2, MSG_PEEK], 2),
                vec![given(0, 2, 13)],
            ),
            (call(RECVFROM, [8, 0, 2, 0], 2), vec![given(0, 2, 13)]),
            (call(DUP, [7, 0, 0, 0], 9), vec![]),
            (call(CLOSE, [7, 0, 0, 0], 0), vec![]),
            (call(READ, [7, 0, 4, 0], 4), vec![]),
            (call(READ, [9, 0, 9, 0], 2), vec![given(0, 2, 4)]),
            (call(READ, [9, 0, 9, 0], 0), vec![]),
        ];
        for (n, (call, expected)) in calls.into_iter().enumerate() {
            assert_eq!(position.call(&call), expected, "call {n}");
        }
    }

    #[test]
    fn a_process_keeps_what_the_one_that_made_it_closes() {
        let input = b"abcdef";
        let layout = Layout::whole(Delivery::Socket(Endpoint::Auto), input.len());
        let started = |position: &mut Position, pid| {
            position.event(&Event {
                thread: ThreadId(2),
                pc: TargetAddr(0),
                context: ContextId(0),
                kind: EventKind::ProcessStart {
                    process: ProcessId(2),
                    parent: ProcessId(1),
                    pid,
                    exe: b"",
                },
            });
        };
        let read = Received {
            process: ProcessId(2),
            ..call(READ, [7, 0, 4, 0], 4)
        };
        let accepted = {
            let mut position = Position::new(&layout, input);
            position.call(&call(ACCEPT, [3, 0, 0, 0], 7));
            position
        };
        // Whether it begins before or after the one that made it closes its own.
        let mut position = accepted.clone();
        position.call(&call(FORK, [0; 4], 30));
        position.call(&call(CLOSE, [7, 0, 0, 0], 0));
        started(&mut position, 30);
        assert_eq!(position.call(&read), [given(0, 4, 0)]);
        let mut position = accepted;
        started(&mut position, 30);
        position.call(&call(FORK, [0; 4], 30));
        position.call(&call(CLOSE, [7, 0, 0, 0], 0));
        assert_eq!(position.call(&read), [given(0, 4, 0)]);
        assert_eq!(position.call(&call(READ, [7, 0, 4, 0], 4)), []);
    }

    #[test]
    fn what_the_kernel_copies_is_counted_and_not_given() {
        let mut position = Position::new(&Layout::whole(Delivery::Stdin, 10), &[0; 10]);
        announce(&mut position, 0);
        let copied = position.call(&call(COPY_FILE_RANGE, [0, 0, 1, 0], 10));
        assert_eq!((copied, position.read, position.copied), (vec![], 0, 10));
        // Of another file, it is not announced.
        position.call(&call(SENDFILE, [1, 5, 0, 10], 10));
        assert_eq!(position.copied, 10);
    }

    #[test]
    fn arguments_lie_in_front_of_the_end_of_the_words() {
        let layout = Layout {
            args: ["-k", "x@@1y", "@@2"].map(OsString::from).to_vec(),
            ..Layout::whole(Delivery::Arguments { each: 4 }, 8)
        };
        let input = b"ab\0dEFGH";
        let mut position = Position::new(&layout, input);
        let what = Beginning {
            pid: 1,
            words: Vec::new(),
            folder: "".into(),
            variables: Vec::new(),
            words_end: 1000,
        };
        // … -k 0 x a b y 0 E F G H 0
        let found = position.begins(&what, input);
        assert_eq!(
            found,
            [
                (1000 - 5, vec![given(0, 4, 4)]),
                (1000 - 5 - 4, vec![given(0, 2, 0)])
            ]
        );
        assert_eq!(position.read, 6);
    }

    #[test]
    fn what_is_not_solved_for_stays() {
        let layout = Layout {
            free: Arc::from([1..2, 4..5]),
            ..Layout::whole(Delivery::Stdin, 6)
        };
        let mut input = *b"abcdef";
        layout.fix(&mut input, b"ABCDEF");
        assert_eq!(&input, b"AbCDeF");
    }
}
