//! Real system calls on doubly mapped memory, as in a target.
//!
//! Each case says what it passes and exactly which bytes the kernel is to write. It runs with each
//! of its objects inside PM, outside, and across both borders of PM, with the program's view
//! read-only and inaccessible, and over two fill patterns: a byte that changed in PM must have been
//! reported, and what was reported must be what the case says.

mod common;

use brownout_syscalls::{Prepared, Range, Reason, prepare};
use common::{PAGE, Target, View, merged, must, syscall};

/// Where a case's objects are, by the order in which it places them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    AllIn,
    OnlyIn(usize),
    OnlyOut(usize),
    AcrossStart(usize),
    AcrossEnd(usize),
}

struct World<'a> {
    t: &'a Target,
    layout: Layout,
    placed: usize,
    inside: u64,
    outside: u64,
    fds: Vec<u64>,
}

impl World<'_> {
    /// Room for an object.
    fn place(&mut self, len: u64) -> u64 {
        let index = self.placed;
        self.placed += 1;
        match self.layout {
            Layout::AcrossStart(n) if n == index => return self.t.pm - len / 2,
            Layout::AcrossEnd(n) if n == index => return self.t.after - len / 2,
            Layout::OnlyIn(n) if n != index => return self.place_outside(len),
            Layout::OnlyOut(n) if n == index => return self.place_outside(len),
            _ => {}
        }
        self.place_inside(len)
    }

    /// Room for an object whose place does not matter to the case.
    fn place_inside(&mut self, len: u64) -> u64 {
        let addr = self.inside;
        self.inside += len.next_multiple_of(16) + 16;
        assert!(self.inside <= self.t.after - PAGE);
        addr
    }

    fn place_outside(&mut self, len: u64) -> u64 {
        let addr = self.outside;
        self.outside += len.next_multiple_of(16) + 16;
        assert!(self.outside <= self.t.after + 4 * PAGE);
        addr
    }

    fn put(&mut self, bytes: &[u8]) -> u64 {
        let addr = self.place(bytes.len() as u64);
        self.t.poke(addr, bytes);
        addr
    }

    fn put64(&mut self, words: &[u64]) -> u64 {
        self.put(
            &words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn put32(&mut self, words: &[u32]) -> u64 {
        self.put(
            &words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn fd(&mut self, nr: u64, args: &[u64]) -> u64 {
        let fd = must(nr, args);
        self.fds.push(fd);
        fd
    }

    fn pair(&mut self, nr: u64, args: &[u64]) -> (u64, u64) {
        let mut fds = [0u32; 2];
        let mut all = args.to_vec();
        all.push(fds.as_mut_ptr() as u64);
        must(nr, &all);
        self.fds.extend(fds.map(u64::from));
        (fds[0].into(), fds[1].into())
    }

    fn pipe(&mut self) -> (u64, u64) {
        self.pair(22, &[])
    }

    /// A pipe's reading end with content.
    fn full_pipe(&mut self, content: &[u8]) -> u64 {
        let (reader, writer) = self.pipe();
        must(1, &[writer, content.as_ptr() as u64, content.len() as u64]);
        reader
    }

    /// A file with content, at its beginning.
    fn file(&mut self, content: &[u8]) -> u64 {
        let fd = self.fd(319, &[c"file".as_ptr() as u64, 0]);
        must(18, &[fd, content.as_ptr() as u64, content.len() as u64, 0]);
        fd
    }

    /// Two connected sockets: AF_UNIX, of this type.
    fn sockets(&mut self, kind: u64) -> (u64, u64) {
        self.pair(53, &[1, kind, 0])
    }

    /// A UDP socket bound to the loopback, and its address.
    fn udp(&mut self) -> (u64, [u8; 16]) {
        let fd = self.fd(41, &[2, 2, 0]);
        (fd, bind_loopback(fd))
    }
}

fn bind_loopback(fd: u64) -> [u8; 16] {
    let mut addr = [2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    must(49, &[fd, addr.as_ptr() as u64, 16]);
    let mut len = 16u32;
    must(51, &[fd, addr.as_mut_ptr() as u64, &raw mut len as u64]);
    addr
}

type Expect = Box<dyn Fn(&World, i64) -> Vec<(u64, u64)>>;

/// A call and what it is to do: checks the result and tells what was written.
struct Step {
    nr: u64,
    args: [u64; 6],
    expect: Expect,
}

fn step(nr: u64, args: &[u64], expect: impl Fn(&World, i64) -> Vec<(u64, u64)> + 'static) -> Step {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    Step {
        nr,
        args: all,
        expect: Box::new(expect),
    }
}

/// How closely the reported ranges are to match.
#[derive(Clone, Copy, PartialEq)]
enum Match {
    Exact,
    /// The reports must cover what changed, and lie within what the case says.
    Within,
}

fn check(case: fn(&mut World) -> Step) {
    check_as(Match::Exact, case);
}

fn check_as(matching: Match, case: fn(&mut World) -> Step) {
    for view in [View::ReadOnly, View::Inaccessible] {
        let objects = run(matching, case, Layout::AllIn, view);
        for n in 0..objects {
            run(matching, case, Layout::OnlyIn(n), view);
            run(matching, case, Layout::OnlyOut(n), view);
            run(matching, case, Layout::AcrossStart(n), view);
            run(matching, case, Layout::AcrossEnd(n), view);
        }
    }
}

/// Runs a case over both fill patterns. Returns how many objects it placed.
fn run(matching: Match, case: fn(&mut World) -> Step, layout: Layout, view: View) -> usize {
    let t = Target::new(8, view);
    let mut objects = 0;
    for fill in [0xa5, 0x5a] {
        t.poke(
            t.pm - 4 * PAGE,
            &vec![fill; ((t.pm_len / PAGE + 8) * PAGE) as usize],
        );
        let mut world = World {
            t: &t,
            layout,
            placed: 0,
            inside: t.pm + PAGE + 40,
            outside: t.after + PAGE + 40,
            fds: Vec::new(),
        };
        let step = case(&mut world);
        let what = format!(
            "{} with {layout:?}, {view:?}, over {fill:#x}",
            brownout_syscalls::name(step.nr)
        );
        let before = t.peek(t.pm, t.pm_len);
        let (result, reported) = t.call(step.nr, &step.args);
        let expected = (step.expect)(&world, result);
        let reported = merged(reported);
        let covered = |ranges: &[(u64, u64)], addr: u64| {
            ranges
                .iter()
                .any(|range| (range.0..range.0 + range.1).contains(&addr))
        };
        for range in &reported {
            assert!(
                t.is_pm(range.0) && t.is_pm(range.0 + range.1 - 1),
                "{what}: reported {range:x?} outside PM"
            );
        }
        for (at, (old, new)) in before.iter().zip(t.peek(t.pm, t.pm_len)).enumerate() {
            let addr = t.pm + at as u64;
            assert!(
                *old == new || covered(&reported, addr),
                "{what}: {addr:#x} changed but was not reported ({reported:x?})"
            );
        }
        let expected = merged(expected.into_iter().flat_map(|(addr, len)| {
            let (start, end) = (addr.max(t.pm), (addr + len).min(t.after));
            (start < end).then(|| (start, end - start))
        }));
        match matching {
            Match::Exact => assert_eq!(reported, expected, "{what}, result {result}"),
            Match::Within => {
                for &(addr, len) in &reported {
                    assert!(
                        (addr..addr + len).all(|addr| covered(&expected, addr)),
                        "{what}: reported {addr:#x}+{len} beyond {expected:x?}"
                    );
                }
            }
        }
        for fd in &world.fds {
            must(3, &[*fd]);
        }
        objects = world.placed;
    }
    objects
}

/// A call that fills one structure of `len` bytes in its argument `n`.
macro_rules! fills {
    ($($test:ident: $nr:expr, [$($arg:expr),*], $n:expr, $len:expr;)*) => {
        $(#[test]
        fn $test() {
            check(|w| {
                let out = w.place($len);
                let mut args = vec![$($arg as u64),*];
                args.insert($n, out);
                step($nr, &args, move |_, result| {
                    assert!(result >= 0, "{result}");
                    vec![(out, $len)]
                })
            });
        })*
    };
}

fills! {
    stat: 4, [c"/".as_ptr()], 1, 144;
    lstat: 6, [c"/".as_ptr()], 1, 144;
    newfstatat: 262, [-100i64, c"/".as_ptr(), 0], 2, 144;
    statx: 332, [-100i64, c"/".as_ptr(), 0, 0xfff], 4, 256;
    statfs: 137, [c"/".as_ptr()], 1, 120;
    uname: 63, [], 0, 390;
    sysinfo: 99, [], 0, 112;
    times: 100, [], 0, 32;
    getrlimit: 97, [7], 1, 16;
    prlimit64: 302, [0, 7, 0], 3, 16;
    getrusage: 98, [0], 1, 144;
    clock_gettime: 228, [1], 1, 16;
    clock_getres: 229, [1], 1, 16;
    gettimeofday: 96, [], 0, 16;
    timezone: 96, [0], 1, 8;
    time: 201, [], 0, 8;
    getresuid: 118, [scratch_word(), scratch_word()], 0, 4;
    rt_sigprocmask: 14, [0, 0, 8], 2, 8;
    rt_sigaction: 13, [10, 0, 8], 2, 32;
    rt_sigpending: 127, [8], 0, 8;
    sigaltstack: 131, [0], 1, 24;
    getitimer: 36, [0], 1, 32;
    sched_getparam: 143, [0], 1, 4;
    sched_rr_get_interval: 148, [0], 1, 16;
    getcpu: 309, [0, 0], 0, 4;
    prctl_get_name: 157, [16], 1, 16;
    prctl_get_pdeathsig: 157, [2], 1, 4;
    arch_prctl_get_fs: 158, [0x1003], 1, 8;
    get_robust_list: 274, [0, scratch_word()], 1, 8;
}

/// The address of an ordinary word that the kernel may overwrite.
fn scratch_word() -> u64 {
    static WORD: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    WORD.as_ptr() as u64
}

#[test]
fn read() {
    check(|w| {
        let fd = w.full_pipe(b"hello, memory");
        let buf = w.place(100);
        step(0, &[fd, buf, 100], move |w, result| {
            assert_eq!(result, 13);
            assert_eq!(w.t.peek(buf, 13), b"hello, memory");
            vec![(buf, 13)]
        })
    });
}

#[test]
fn read_at_end_of_file_writes_nothing() {
    check(|w| {
        let fd = w.file(b"");
        let buf = w.place(100);
        step(0, &[fd, buf, 100], |_, result| {
            assert_eq!(result, 0);
            vec![]
        })
    });
}

#[test]
fn pread64() {
    check(|w| {
        let fd = w.file(&[7; 5000]);
        let buf = w.place(3000);
        step(17, &[fd, buf, 3000, 2500], move |w, result| {
            assert_eq!(result, 2500);
            assert!(w.t.peek(buf, 2500).iter().all(|byte| *byte == 7));
            vec![(buf, 2500)]
        })
    });
}

/// `readv`, `preadv` and `preadv2` of 37 bytes into buffers of 10, 20 and 30.
fn vector_read(w: &mut World, nr: u64, rest: &[u64]) -> Step {
    let fd = w.file(&(1..=37).collect::<Vec<u8>>());
    let bufs = [(w.place(10), 10), (w.place(20), 20), (w.place(30), 30)];
    let iov = w.put64(&bufs.map(|(addr, len)| [addr, len]).concat());
    let args = [&[fd, iov, 3], rest].concat();
    step(nr, &args, move |w, result| {
        assert_eq!(result, 37);
        let parts = [(bufs[0].0, 10), (bufs[1].0, 20), (bufs[2].0, 7)];
        let read: Vec<u8> = parts
            .iter()
            .flat_map(|part| w.t.peek(part.0, part.1))
            .collect();
        assert_eq!(read, (1..=37).collect::<Vec<u8>>());
        assert_eq!(
            w.t.peek64(iov),
            bufs[0].0,
            "the program's iovec must not change"
        );
        assert_eq!(
            w.t.peek64(iov + 40),
            30,
            "the program's iovec must not change"
        );
        parts.to_vec()
    })
}

#[test]
fn readv() {
    check(|w| vector_read(w, 19, &[]));
}

#[test]
fn preadv() {
    check(|w| vector_read(w, 295, &[0]));
}

#[test]
fn preadv2() {
    check(|w| vector_read(w, 327, &[u64::MAX, u64::MAX, 0]));
}

#[test]
fn process_vm_readv_of_this_process() {
    check(|w| {
        let source = w.put(b"from here to there");
        let bufs = [(w.place(10), 10u64), (w.place(20), 20)];
        let local = w.put64(&bufs.map(|(addr, len)| [addr, len]).concat());
        let remote = w.put64(&[source, 18]);
        step(
            310,
            &[std::process::id().into(), local, 2, remote, 1, 0],
            move |w, result| {
                assert_eq!(result, 18);
                let read = [w.t.peek(bufs[0].0, 10), w.t.peek(bufs[1].0, 8)].concat();
                assert_eq!(read, b"from here to there");
                vec![(bufs[0].0, 10), (bufs[1].0, 8)]
            },
        )
    });
}

#[test]
fn process_vm_writev_of_this_process() {
    check(|w| {
        let to = w.place(30);
        let source = w.put(b"from here to there");
        let local = w.put64(&[source, 18]);
        let remote = w.put64(&[to, 18]);
        step(
            311,
            &[std::process::id().into(), local, 1, remote, 1, 0],
            move |w, result| {
                assert_eq!(result, 18);
                assert_eq!(w.t.peek(to, 18), b"from here to there");
                vec![(to, 18)]
            },
        )
    });
}

#[test]
fn write_and_writev_and_sendto_read_memory_only() {
    check(|w| {
        let (reader, writer) = w.pipe();
        let text = w.put(b"some text");
        step(1, &[writer, text, 9], move |_, result| {
            assert_eq!(result, 9);
            assert_eq!(drain(reader), b"some text");
            vec![]
        })
    });
    check(|w| {
        let (reader, writer) = w.pipe();
        let parts = [(w.put(b"some "), 5u64), (w.put(b"text"), 4)];
        let iov = w.put64(&parts.map(|(addr, len)| [addr, len]).concat());
        step(20, &[writer, iov, 2], move |_, result| {
            assert_eq!(result, 9);
            assert_eq!(drain(reader), b"some text");
            vec![]
        })
    });
    check(|w| {
        let (receiver, addr) = w.udp();
        let (sender, _) = w.udp();
        let (text, to) = (w.put(b"some text"), w.put(&addr));
        step(44, &[sender, text, 9, 0, to, 16], move |_, result| {
            assert_eq!(result, 9);
            assert_eq!(drain(receiver), b"some text");
            vec![]
        })
    });
}

fn drain(fd: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let len = must(0, &[fd, bytes.as_mut_ptr() as u64, 4096]);
    bytes.truncate(len as usize);
    bytes
}

#[test]
fn paths_in_pm() {
    check(|w| {
        let path = w.put(b"/proc/self/stat\0");
        let out = w.place(144);
        step(4, &[path, out], move |_, result| {
            assert_eq!(result, 0);
            vec![(out, 144)]
        })
    });
    check(|w| {
        let (path, out) = (w.put(b"/proc/self/fd/0\0"), w.place(1000));
        step(89, &[path, out, 1000], move |w, result| {
            let link = std::fs::read_link("/proc/self/fd/0").expect("a descriptor");
            assert_eq!(
                w.t.peek(out, result as u64),
                link.as_os_str().as_encoded_bytes()
            );
            vec![(out, result as u64)]
        })
    });
}

#[test]
fn a_path_that_ends_at_the_end_of_mapped_memory() {
    let t = Target::new(8, View::Inaccessible);
    must(11, &[t.after, PAGE]);
    let path = t.after - 2;
    t.poke(path, b"/\0");
    let (result, _) = t.call(21, &[path, 0, 0, 0, 0, 0]);
    assert_eq!(result, 0);
    must(9, &[t.after, PAGE, 3, 0x32, u64::MAX, 0]);
}

#[test]
fn getcwd_and_getdents64_and_getrandom() {
    check(|w| {
        let out = w.place(1000);
        step(79, &[out, 1000], move |w, result| {
            let cwd = std::env::current_dir().expect("one");
            let bytes = w.t.peek(out, result as u64);
            assert_eq!(
                &bytes[..bytes.len() - 1],
                cwd.as_os_str().as_encoded_bytes()
            );
            vec![(out, result as u64)]
        })
    });
    // The padding of a directory entry is not written.
    check_as(Match::Within, |w| {
        let fd = w.fd(257, &[-100i64 as u64, c"/".as_ptr() as u64, 0o200_000]);
        let out = w.place(1000);
        step(217, &[fd, out, 1000], move |_, result| {
            assert!(result > 0);
            vec![(out, result as u64)]
        })
    });
    check(|w| {
        let out = w.place(200);
        step(318, &[out, 200, 0], move |_, result| {
            assert_eq!(result, 200);
            vec![(out, 200)]
        })
    });
}

#[test]
fn fstat_and_fstatfs() {
    check(|w| {
        let (fd, out) = (w.file(b"12345"), w.place(144));
        step(5, &[fd, out], move |w, result| {
            assert_eq!((result, w.t.peek64(out + 48)), (0, 5));
            vec![(out, 144)]
        })
    });
    check(|w| {
        let (fd, out) = (w.file(b"12345"), w.place(120));
        step(138, &[fd, out], move |_, result| {
            assert_eq!(result, 0);
            vec![(out, 120)]
        })
    });
    // A failing one writes nothing.
    check(|w| {
        let out = w.place(144);
        step(5, &[9999, out], |_, result| {
            assert_eq!(result, -9);
            vec![]
        })
    });
}

#[test]
fn pipe2_and_socketpair() {
    check(|w| {
        let out = w.place(8);
        step(293, &[out, 0], move |w, result| {
            assert_eq!(result, 0);
            must(3, &[w.t.peek32(out).into()]);
            must(3, &[w.t.peek32(out + 4).into()]);
            vec![(out, 8)]
        })
    });
    check(|w| {
        let out = w.place(8);
        step(53, &[1, 1, 0, out], move |w, result| {
            assert_eq!(result, 0);
            must(3, &[w.t.peek32(out).into()]);
            must(3, &[w.t.peek32(out + 4).into()]);
            vec![(out, 8)]
        })
    });
}

#[test]
fn poll_and_ppoll() {
    check(|w| {
        let (ready, (idle, _)) = (w.full_pipe(b"x"), w.pipe());
        let fds = w.put32(&[ready as u32, 1, idle as u32, 1, u32::MAX, 1]);
        step(7, &[fds, 3, 0], move |w, result| {
            assert_eq!((result, w.t.peek32(fds + 4)), (1, 1 << 16 | 1));
            (0..3).map(|n| (fds + 8 * n + 6, 2)).collect()
        })
    });
    check(|w| {
        let (idle, _) = w.pipe();
        let fds = w.put32(&[idle as u32, 1]);
        let mask = w.put64(&[0]);
        step(271, &[fds, 1, timeout(), mask, 8], move |_, result| {
            assert_eq!(result, 0);
            vec![(fds + 6, 2)]
        })
    });
    // What remains of the time-out.
    check_as(Match::Within, |w| {
        let ready = w.full_pipe(b"x");
        let fds = w.put32(&[ready as u32, 1]);
        let time = w.put64(&[1000, 0]);
        step(271, &[fds, 1, time, 0, 8], move |w, result| {
            assert_eq!((result, w.t.peek64(time)), (1, 999));
            vec![(fds + 6, 2), (time, 16)]
        })
    });
}

/// A millisecond, in ordinary memory that the kernel may overwrite with what remains.
fn timeout() -> u64 {
    Box::leak(Box::new([0u64, 1_000_000])).as_mut_ptr() as u64
}

#[test]
fn select_and_pselect6() {
    fn sets(w: &mut World) -> (u64, u64, u64) {
        let ready = w.full_pipe(b"x");
        assert!(ready < 1024);
        let mut set = [0u64; 16];
        set[ready as usize / 64] = 1 << (ready % 64);
        let (readable, writable) = (w.put64(&set), w.put64(&[0; 16]));
        (ready, readable, writable)
    }
    // The kernel writes whole words up to the descriptor.
    check(|w| {
        let (ready, readable, writable) = sets(w);
        step(
            23,
            &[ready + 1, readable, writable, 0, 0],
            move |w, result| {
                assert_eq!(result, 1);
                assert_eq!(w.t.peek64(readable + ready / 64 * 8), 1 << (ready % 64));
                let len = (ready / 64 + 1) * 8;
                vec![(readable, len), (writable, len)]
            },
        )
    });
    check_as(Match::Within, |w| {
        let (ready, readable, writable) = sets(w);
        let time = w.put64(&[1000, 0]);
        let mask = w.put64(&[0]);
        let mask_arg = w.put64(&[mask, 8]);
        step(
            270,
            &[ready + 1, readable, writable, 0, time, mask_arg],
            move |w, result| {
                assert_eq!((result, w.t.peek64(time)), (1, 999));
                let len = (ready / 64 + 1) * 8;
                vec![(readable, len), (writable, len), (time, 16)]
            },
        )
    });
}

#[test]
fn epoll() {
    check(|w| {
        let ready = w.full_pipe(b"x");
        let epoll = w.fd(291, &[0]);
        let mut event = [1u8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        must(233, &[epoll, 1, ready, event.as_mut_ptr() as u64]);
        let events = w.place(120);
        step(232, &[epoll, events, 10, 0], move |w, result| {
            assert_eq!(result, 1);
            assert_eq!(w.t.peek(events + 4, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
            vec![(events, 12)]
        })
    });
    check(|w| {
        let ready = w.full_pipe(b"x");
        let epoll = w.fd(291, &[0]);
        let event = w.put(&[1u8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        step(233, &[epoll, 1, ready, event], move |_, result| {
            assert_eq!(result, 0);
            let mut out = [0u8; 12];
            assert_eq!(must(232, &[epoll, out.as_mut_ptr() as u64, 1, 0]), 1);
            assert_eq!(out[4..], [1, 2, 3, 4, 5, 6, 7, 8]);
            vec![]
        })
    });
}

#[test]
fn accept_and_names() {
    check(|w| {
        let listener = w.fd(41, &[2, 1, 0]);
        let addr = bind_loopback(listener);
        must(50, &[listener, 1]);
        let client = w.fd(41, &[2, 1, 0]);
        must(42, &[client, addr.as_ptr() as u64, 16]);
        let (out, len) = (w.place(100), w.put32(&[100]));
        step(288, &[listener, out, len, 0], move |w, result| {
            assert!(result >= 0);
            must(3, &[result as u64]);
            assert_eq!(w.t.peek32(len), 16);
            assert_eq!(w.t.peek(out + 4, 4), [127, 0, 0, 1]);
            vec![(out, 16), (len, 4)]
        })
    });
    // Without room for an address nothing at all is written.
    check(|w| {
        let listener = w.fd(41, &[2, 1, 0]);
        let addr = bind_loopback(listener);
        must(50, &[listener, 1]);
        let client = w.fd(41, &[2, 1, 0]);
        must(42, &[client, addr.as_ptr() as u64, 16]);
        let len = w.put32(&[100]);
        step(43, &[listener, 0, len], move |_, result| {
            assert!(result >= 0);
            must(3, &[result as u64]);
            vec![]
        })
    });
    // A short buffer gets a part of the address, and the length says how long it is.
    check(|w| {
        let (fd, addr) = w.udp();
        let (out, len) = (w.place(6), w.put32(&[6]));
        step(51, &[fd, out, len], move |w, result| {
            assert_eq!((result, w.t.peek32(len)), (0, 16));
            assert_eq!(w.t.peek(out, 6), addr[..6]);
            vec![(out, 6), (len, 4)]
        })
    });
}

#[test]
fn recvfrom() {
    check(|w| {
        let (receiver, addr) = w.udp();
        let (sender, from) = w.udp();
        must(
            44,
            &[
                sender,
                c"message".as_ptr() as u64,
                7,
                0,
                addr.as_ptr() as u64,
                16,
            ],
        );
        let (buf, out, len) = (w.place(50), w.place(128), w.put32(&[128]));
        step(45, &[receiver, buf, 50, 0, out, len], move |w, result| {
            assert_eq!((result, w.t.peek32(len)), (7, 16));
            assert_eq!(w.t.peek(out, 16), from);
            vec![(buf, 7), (out, 16), (len, 4)]
        })
    });
    // MSG_TRUNC: the result is longer than the buffer.
    check(|w| {
        let (receiver, addr) = w.udp();
        let (sender, _) = w.udp();
        must(
            44,
            &[
                sender,
                c"message".as_ptr() as u64,
                7,
                0,
                addr.as_ptr() as u64,
                16,
            ],
        );
        let buf = w.place(4);
        step(45, &[receiver, buf, 4, 0x20, 0, 0], move |_, result| {
            assert_eq!(result, 7);
            vec![(buf, 4)]
        })
    });
}

#[test]
fn recvmsg_with_name() {
    check(|w| {
        let (receiver, addr) = w.udp();
        let (sender, from) = w.udp();
        must(
            44,
            &[
                sender,
                c"message".as_ptr() as u64,
                7,
                0,
                addr.as_ptr() as u64,
                16,
            ],
        );
        let (name, a, b) = (w.place(128), w.place(5), w.place(50));
        let iov = w.put64(&[a, 5, b, 50]);
        let msg = w.put64(&[name, 128, iov, 2, 0, 0, 0xffff_ffff]);
        step(47, &[receiver, msg, 0], move |w, result| {
            assert_eq!(
                (result, w.t.peek32(msg + 8), w.t.peek32(msg + 48)),
                (7, 16, 0)
            );
            assert_eq!(w.t.peek(name, 16), from);
            assert_eq!([w.t.peek(a, 5), w.t.peek(b, 2)].concat(), b"message");
            assert_eq!((w.t.peek64(msg), w.t.peek64(msg + 16)), (name, iov));
            vec![
                (name, 16),
                (a, 5),
                (b, 2),
                (msg + 8, 4),
                (msg + 40, 8),
                (msg + 48, 4),
            ]
        })
    });
}

/// The control message that passes one descriptor: 20 bytes of it are written, 24 are used up.
const RIGHTS: [u64; 2] = [20, 1 | 1 << 32];

#[test]
fn recvmsg_with_descriptor() {
    check_as(Match::Within, |w| {
        let (receiver, sender) = w.sockets(1);
        let control = [RIGHTS[0], RIGHTS[1], 0];
        let iov = [c"x".as_ptr() as u64, 1];
        let sent = [0, 0, iov.as_ptr() as u64, 1, control.as_ptr() as u64, 24, 0];
        must(46, &[sender, sent.as_ptr() as u64, 0]);
        let (buf, control) = (w.place(8), w.place(64));
        let iov = w.put64(&[buf, 8]);
        let msg = w.put64(&[0, 77, iov, 1, control, 64, 0]);
        step(47, &[receiver, msg, 0], move |w, result| {
            assert_eq!((result, w.t.peek64(msg + 40)), (1, 24));
            assert_eq!(
                w.t.peek32(msg + 8),
                77,
                "no name, so its length is left alone"
            );
            must(3, &[w.t.peek32(control + 16).into()]);
            vec![(buf, 1), (control, 24), (msg + 40, 8), (msg + 48, 4)]
        })
    });
}

#[test]
fn sendmsg() {
    check(|w| {
        let (receiver, addr) = w.udp();
        let (sender, _) = w.udp();
        let (name, a, b) = (w.put(&addr), w.put(b"mes"), w.put(b"sage"));
        let iov = w.put64(&[a, 3, b, 4]);
        let msg = w.put64(&[name, 16, iov, 2, 0, 0, 0]);
        step(46, &[sender, msg, 0], move |_, result| {
            assert_eq!(result, 7);
            assert_eq!(drain(receiver), b"message");
            vec![]
        })
    });
}

#[test]
fn recvmmsg() {
    check(|w| {
        let (receiver, sender) = w.sockets(2);
        for message in [c"one", c"three"] {
            must(
                1,
                &[
                    sender,
                    message.as_ptr() as u64,
                    message.count_bytes() as u64,
                ],
            );
        }
        let bufs = [w.place(10), w.place(2), w.place(10), w.place(10)];
        let iovs = [
            w.put64(&[bufs[0], 10]),
            w.put64(&[bufs[1], 2, bufs[2], 10]),
            0,
        ];
        let last = w.put64(&[bufs[3], 10]);
        let msgs = w.put64(
            &[
                [0, 0, iovs[0], 1, 0, 0, 0, 9],
                [0, 0, iovs[1], 2, 0, 0, 0, 9],
                [0, 0, last, 1, 0, 0, 0, 9],
            ]
            .concat(),
        );
        let nonblocking = 0x40;
        step(
            299,
            &[receiver, msgs, 3, nonblocking, 0],
            move |w, result| {
                assert_eq!(result, 2);
                assert_eq!((w.t.peek32(msgs + 56), w.t.peek32(msgs + 64 + 56)), (3, 5));
                assert_eq!(
                    w.t.peek32(msgs + 128 + 56),
                    9,
                    "the third message did not come"
                );
                assert_eq!(
                    [w.t.peek(bufs[1], 2), w.t.peek(bufs[2], 3)].concat(),
                    b"three"
                );
                let mut written = vec![(bufs[0], 3), (bufs[1], 2), (bufs[2], 3)];
                for msg in [msgs, msgs + 64] {
                    written.extend([(msg + 40, 8), (msg + 48, 4), (msg + 56, 4)]);
                }
                written
            },
        )
    });
}

#[test]
fn sendmmsg() {
    check(|w| {
        let (receiver, sender) = w.sockets(2);
        let (one, two) = (w.put(b"one"), w.put(b"three"));
        let iov = w.put64(&[one, 3, two, 5]);
        let msgs = w.put64(&[[0, 0, iov, 1, 0, 0, 0, 9], [0, 0, iov, 2, 0, 0, 0, 9]].concat());
        step(307, &[sender, msgs, 2, 0], move |w, result| {
            assert_eq!(result, 2);
            assert_eq!(
                (drain(receiver), drain(receiver)),
                (b"one".into(), b"onethree".into())
            );
            assert_eq!((w.t.peek32(msgs + 56), w.t.peek32(msgs + 64 + 56)), (3, 8));
            vec![(msgs + 56, 4), (msgs + 64 + 56, 4)]
        })
    });
}

#[test]
fn socket_options() {
    check(|w| {
        let (fd, _) = w.sockets(1);
        let (out, len) = (w.place(12), w.put32(&[12]));
        step(55, &[fd, 1, 17, out, len], move |w, result| {
            assert_eq!((result, w.t.peek32(len)), (0, 12));
            assert_eq!(w.t.peek32(out), std::process::id());
            vec![(out, 12), (len, 4)]
        })
    });
    check(|w| {
        let (fd, _) = w.udp();
        let value = w.put32(&[1]);
        step(54, &[fd, 1, 2, value, 4], move |_, result| {
            assert_eq!(result, 0);
            let (mut value, mut len) = (0u32, 4u32);
            must(55, &[fd, 1, 2, &raw mut value as u64, &raw mut len as u64]);
            assert_eq!(value, 1);
            vec![]
        })
    });
    // A socket filter is nested: this one lets everything through.
    check(|w| {
        let (receiver, sender) = w.sockets(2);
        let filter = w.put64(&[0xffff_ffff_0000_0006]);
        let program = w.put64(&[1, filter]);
        step(54, &[receiver, 1, 26, program, 16], move |_, result| {
            assert_eq!(result, 0);
            must(1, &[sender, c"through".as_ptr() as u64, 7]);
            assert_eq!(drain(receiver), b"through");
            vec![]
        })
    });
}

#[test]
fn ioctls() {
    check(|w| {
        let (fd, out) = (w.full_pipe(b"12345"), w.place(4));
        step(16, &[fd, 0x541b, out], move |w, result| {
            assert_eq!((result, w.t.peek32(out)), (0, 5));
            vec![(out, 4)]
        })
    });
    // TIOCSWINSZ, TIOCGWINSZ, TCGETS and the modern TIOCGPTN of a pseudo terminal.
    check(|w| {
        let fd = w.fd(257, &[-100i64 as u64, c"/dev/ptmx".as_ptr() as u64, 2]);
        let size = w.put64(&[0x0004_0003_0002_0001]);
        step(16, &[fd, 0x5414, size], |_, result| {
            assert_eq!(result, 0);
            vec![]
        })
    });
    check(|w| {
        let fd = w.fd(257, &[-100i64 as u64, c"/dev/ptmx".as_ptr() as u64, 2]);
        let out = w.place(8);
        step(16, &[fd, 0x5413, out], move |_, result| {
            assert_eq!(result, 0);
            vec![(out, 8)]
        })
    });
    check(|w| {
        let fd = w.fd(257, &[-100i64 as u64, c"/dev/ptmx".as_ptr() as u64, 2]);
        let out = w.place(36);
        step(16, &[fd, 0x5401, out], move |_, result| {
            assert_eq!(result, 0);
            vec![(out, 36)]
        })
    });
    check(|w| {
        let fd = w.fd(257, &[-100i64 as u64, c"/dev/ptmx".as_ptr() as u64, 2]);
        let out = w.place(4);
        step(16, &[fd, 0x8004_5430, out], move |_, result| {
            assert_eq!(result, 0);
            vec![(out, 4)]
        })
    });
    // SIOCGIFCONF, which is nested, and SIOCGIFFLAGS.
    check_as(Match::Within, |w| {
        let (fd, _) = w.udp();
        let buf = w.place(400);
        let conf = w.put64(&[400, buf]);
        step(16, &[fd, 0x8912, conf], move |w, result| {
            let len = w.t.peek32(conf);
            assert!(result == 0 && len % 40 == 0, "{result}, {len}");
            vec![(buf, len.into()), (conf, 4)]
        })
    });
    check_as(Match::Within, |w| {
        let (fd, _) = w.udp();
        let request = w.put(&[&b"lo"[..], &[0; 38]].concat());
        step(16, &[fd, 0x8913, request], move |_, result| {
            assert_eq!(result, 0);
            vec![(request, 40)]
        })
    });
}

#[test]
fn wait4_and_waitid() {
    fn child() -> u64 {
        match syscall(57, &[0; 6]) {
            0 => {
                syscall(231, &[7, 0, 0, 0, 0, 0]);
                unreachable!("the child is gone")
            }
            pid => pid as u64,
        }
    }
    check(|w| {
        let pid = child();
        let (status, usage) = (w.place(4), w.place(144));
        step(61, &[pid, status, 0, usage], move |w, result| {
            assert_eq!((result as u64, w.t.peek32(status)), (pid, 7 << 8));
            vec![(status, 4), (usage, 144)]
        })
    });
    // Nothing to wait for, nothing written.
    check(|w| {
        let (status, usage) = (w.place(4), w.place(144));
        step(
            61,
            &[std::process::id().into(), status, 0, usage],
            |_, result| {
                assert_eq!(result, -10);
                vec![]
            },
        )
    });
    check(|w| {
        let pid = child();
        let info = w.place(128);
        step(247, &[1, pid, info, 4, 0], move |w, result| {
            assert_eq!(
                (result, w.t.peek32(info + 16), w.t.peek32(info + 24)),
                (0, pid as u32, 7)
            );
            vec![(info, 12), (info + 16, 12)]
        })
    });
    check_as(Match::Within, |w| {
        let pid = child();
        let usage = w.place(144);
        step(247, &[1, pid, 0, 4, usage], move |_, result| {
            assert_eq!(result, 0);
            vec![(usage, 144)]
        })
    });
}

#[test]
fn identities() {
    check(|w| {
        let out = w.place(128);
        step(204, &[0, 128, out], move |_, result| {
            assert!(result > 0);
            vec![(out, result as u64)]
        })
    });
    check(|w| {
        let out = w.place(256);
        step(115, &[64, out], move |_, result| {
            vec![(out, result as u64 * 4)]
        })
    });
    // The version is 3: two data elements.
    check_as(Match::Within, |w| {
        let (header, data) = (w.put32(&[0x2008_0522, 0]), w.place(24));
        step(125, &[header, data], move |_, result| {
            assert_eq!(result, 0);
            vec![(data, 24)]
        })
    });
    // An unknown version is answered by the preferred one.
    check_as(Match::Within, |w| {
        let header = w.put32(&[1, 0]);
        step(125, &[header, 0], move |w, result| {
            assert_eq!((result, w.t.peek32(header)), (0, 0x2008_0522));
            vec![(header, 4)]
        })
    });
    check(|w| {
        let (a, b, c) = (w.place(4), w.place(4), w.place(4));
        step(118, &[a, b, c], move |_, result| {
            assert_eq!(result, 0);
            vec![(a, 4), (b, 4), (c, 4)]
        })
    });
    check(|w| {
        let (fd, out) = (w.file(b""), w.place(3));
        let mapped = must(9, &[0, 3 * PAGE, 1, 1, fd, 0]);
        step(27, &[mapped, 3 * PAGE - 5, out], move |_, result| {
            assert_eq!(result, 0);
            must(11, &[mapped, 3 * PAGE]);
            vec![(out, 3)]
        })
    });
}

#[test]
fn timers() {
    check(|w| {
        let fd = w.fd(283, &[1, 0]);
        let (new, old) = (w.put64(&[0, 0, 1000, 0]), w.place(32));
        step(286, &[fd, 0, new, old], move |_, result| {
            assert_eq!(result, 0);
            let mut now = [0u64; 4];
            must(287, &[fd, now.as_mut_ptr() as u64]);
            assert_eq!(now[2], 999);
            vec![(old, 32)]
        })
    });
    check(|w| {
        // SIGEV_NONE.
        let event = w.put64(&[0, 1 << 32, 0, 0, 0, 0, 0, 0]);
        let id = w.place(4);
        step(222, &[1, event, id], move |w, result| {
            assert_eq!(result, 0);
            must(226, &[w.t.peek32(id).into()]);
            vec![(id, 4)]
        })
    });
    check(|w| {
        let request = w.put64(&[0, 1000]);
        let rest = w.place(16);
        step(35, &[request, rest], move |_, result| {
            assert_eq!(result, 0);
            vec![]
        })
    });
}

// What the kernel returns to from a handler: `rt_sigreturn`.
std::arch::global_asm!("sysc_test_restorer:", "mov eax, 15", "syscall");

/// Sends this thread a signal again and again until the returned flag is set, so that whatever
/// call it sleeps in is interrupted.
fn interrupt() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    use std::sync::atomic::Ordering;

    unsafe extern "C" {
        fn sysc_test_restorer();
    }
    extern "C" fn handler(_: i32) {}

    const SIGUSR2: u64 = 12;
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = [
        handler as *const () as u64,
        SA_RESTORER,
        sysc_test_restorer as *const () as u64,
        0,
    ];
    must(13, &[SIGUSR2, action.as_ptr() as u64, 0, 8]);

    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (flag, thread) = (stop.clone(), must(186, &[]));
    std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(2));
            must(234, &[std::process::id().into(), thread, SIGUSR2]);
        }
    });
    stop
}

#[test]
fn interrupted_sleeps_tell_what_remains() {
    use std::sync::atomic::Ordering::Relaxed;
    const EINTR: i64 = -4;
    check(|w| {
        let (request, rest) = (w.put64(&[1000, 0]), w.place(16));
        let stop = interrupt();
        step(35, &[request, rest], move |w, result| {
            stop.store(true, Relaxed);
            // A signal that was already there leaves everything, and a little for the timer's
            // slack.
            assert!(
                result == EINTR && (999..=1000).contains(&w.t.peek64(rest)),
                "{result}"
            );
            vec![(rest, 16)]
        })
    });
    check_as(Match::Within, |w| {
        let (request, rest) = (w.put64(&[1000, 0]), w.place(16));
        let stop = interrupt();
        step(230, &[1, 0, request, rest], move |w, result| {
            stop.store(true, Relaxed);
            assert!(
                result == EINTR && (999..=1000).contains(&w.t.peek64(rest)),
                "{result}"
            );
            vec![(rest, 16)]
        })
    });
    // An absolute time leaves no rest.
    check(|w| {
        let (request, rest) = (w.put64(&[1 << 40, 0]), w.place(16));
        let stop = interrupt();
        step(230, &[1, 1, request, rest], move |_, result| {
            stop.store(true, Relaxed);
            assert_eq!(result, EINTR);
            vec![]
        })
    });
    // `poll` clears `revents` all the same, `select` leaves its sets alone.
    check(|w| {
        let (idle, _) = w.pipe();
        let fds = w.put32(&[idle as u32, 0xffff_0001]);
        let stop = interrupt();
        step(7, &[fds, 1, 100_000], move |w, result| {
            stop.store(true, Relaxed);
            assert_eq!((result, w.t.peek32(fds + 4)), (EINTR, 1));
            vec![(fds + 6, 2)]
        })
    });
    check(|w| {
        let (idle, _) = w.pipe();
        let mut set = [0u64; 16];
        set[idle as usize / 64] = 1 << (idle % 64);
        let readable = w.put64(&set);
        let stop = interrupt();
        step(23, &[idle + 1, readable, 0, 0, 0], move |_, result| {
            stop.store(true, Relaxed);
            assert_eq!(result, EINTR);
            vec![]
        })
    });
}

#[test]
fn adjtimex() {
    // Without a mode it only tells. The structure has padding.
    check_as(Match::Within, |w| {
        let time = w.put64(&[0; 26]);
        step(159, &[time], move |_, result| {
            assert!(result >= 0);
            vec![(time, 208)]
        })
    });
}

#[test]
fn locks_and_owners() {
    check(|w| {
        let fd = w.file(b"");
        // F_WRLCK, SEEK_SET, the whole file: free, so the kernel answers F_UNLCK.
        let lock = w.put64(&[1, 0, 0, 0]);
        step(72, &[fd, 5, lock], move |w, result| {
            assert_eq!((result, w.t.peek32(lock)), (0, 2));
            vec![(lock, 32)]
        })
    });
    check(|w| {
        let fd = w.pipe().0;
        let owner = w.place(8);
        step(72, &[fd, 16, owner], move |_, result| {
            assert_eq!(result, 0);
            vec![(owner, 8)]
        })
    });
    // No pointer: a number that happens to be an address must stay what it is.
    let t = Target::new(8, View::ReadOnly);
    let mut args = [0, 0, t.pm, 0, 0, 0];
    let mut prepared = Prepared::new();
    prepare(72, &mut args, &t, &t, &mut prepared).expect("supported");
    assert_eq!(args[2], t.pm);
    assert!(prepared.is_idle());
}

#[test]
fn system_v() {
    const PRIVATE: u64 = 0;
    const CREATE: u64 = 0o1600;
    const REMOVE: u64 = 0;
    const STAT: u64 = 2;
    check(|w| {
        let queue = must(68, &[PRIVATE, CREATE]);
        let sent = [5u64, u64::from_le_bytes(*b"messages")];
        must(69, &[queue, sent.as_ptr() as u64, 8, 0]);
        let message = w.place(100);
        step(70, &[queue, message, 92, 0, 0], move |w, result| {
            must(71, &[queue, REMOVE, 0]);
            assert_eq!((result, w.t.peek64(message)), (8, 5));
            assert_eq!(w.t.peek(message + 8, 8), b"messages");
            vec![(message, 16)]
        })
    });
    check(|w| {
        let (queue, out) = (must(68, &[PRIVATE, CREATE]), w.place(120));
        step(71, &[queue, STAT, out], move |_, result| {
            must(71, &[queue, REMOVE, 0]);
            assert_eq!(result, 0);
            vec![(out, 120)]
        })
    });
    check(|w| {
        let (memory, out) = (must(29, &[PRIVATE, PAGE, CREATE]), w.place(112));
        step(31, &[memory, STAT, out], move |_, result| {
            must(31, &[memory, REMOVE, 0]);
            assert_eq!(result, 0);
            vec![(out, 112)]
        })
    });
    check(|w| {
        let (semaphores, out) = (must(64, &[PRIVATE, 3, CREATE]), w.place(104));
        step(66, &[semaphores, 0, STAT, out], move |_, result| {
            must(66, &[semaphores, 0, REMOVE, 0]);
            assert_eq!(result, 0);
            vec![(out, 104)]
        })
    });
}

#[test]
fn moved_offsets() {
    check_as(Match::Within, |w| {
        let (from, to) = (w.file(b"0123456789"), w.file(b""));
        let offset = w.put64(&[3]);
        step(40, &[to, from, offset, 100], move |w, result| {
            assert_eq!((result, w.t.peek64(offset)), (7, 10));
            vec![(offset, 8)]
        })
    });
    check_as(Match::Within, |w| {
        let (from, to) = (w.file(b"0123456789"), w.file(b""));
        let (a, b) = (w.put64(&[3]), w.put64(&[100]));
        step(326, &[from, a, to, b, 5, 0], move |w, result| {
            assert_eq!((result, w.t.peek64(a), w.t.peek64(b)), (5, 8, 105));
            vec![(a, 8), (b, 8)]
        })
    });
    check_as(Match::Within, |w| {
        let from = w.file(b"0123456789");
        let (_, to) = w.pipe();
        let offset = w.put64(&[3]);
        step(275, &[from, offset, to, 0, 5, 0], move |w, result| {
            assert_eq!((result, w.t.peek64(offset)), (5, 8));
            vec![(offset, 8)]
        })
    });
}

#[test]
fn vmsplice_writes_or_reads_by_the_end_of_the_pipe() {
    check(|w| {
        let fd = w.full_pipe(b"hello");
        let buf = w.place(50);
        let iov = w.put64(&[buf, 50]);
        step(278, &[fd, iov, 1, 0], move |w, result| {
            assert_eq!(result, 5);
            assert_eq!(w.t.peek(buf, 5), b"hello");
            vec![(buf, 5)]
        })
    });
    check(|w| {
        let (reader, writer) = w.pipe();
        let buf = w.put(b"hello");
        let iov = w.put64(&[buf, 5]);
        step(278, &[writer, iov, 1, 0], move |_, result| {
            assert_eq!(result, 5);
            assert_eq!(drain(reader), b"hello");
            vec![]
        })
    });
}

#[test]
fn futexes() {
    // FUTEX_WAKE_OP: *uaddr2 = 5. A futex word is aligned, so it cannot lie across a border.
    check(|w| {
        let (a, b) = (w.place_inside(4), w.place_inside(4));
        w.t.poke64(a & !7, 0);
        w.t.poke64(b & !7, 0);
        step(
            202,
            &[a & !7, 5, 1, 1, b & !7, 5 << 12],
            move |w, result| {
                assert_eq!((result, w.t.peek32(b & !7)), (0, 5));
                vec![(b & !7, 4)]
            },
        )
    });
    // FUTEX_WAIT until a time-out that lies in PM.
    check(|w| {
        let word = w.place_inside(8) & !7;
        w.t.poke64(word, 3);
        let time = w.put64(&[0, 1_000_000]);
        step(202, &[word, 0, 3, time], |_, result| {
            assert_eq!(result, -110);
            vec![]
        })
    });
    // FUTEX_TRYLOCK_PI stores the thread's id.
    check_as(Match::Within, |w| {
        let word = w.place_inside(8) & !7;
        w.t.poke64(word, 0);
        step(202, &[word, 8], move |w, result| {
            assert_eq!((result, w.t.peek32(word)), (0, must(186, &[]) as u32));
            // And FUTEX_UNLOCK_PI takes it away.
            let (result, written) = w.t.call(202, &[word, 7, 0, 0, 0, 0]);
            assert_eq!((result, w.t.peek32(word), written.len()), (0, 0, 1));
            vec![(word, 4)]
        })
    });
    // futex_waitv with a value that does not match.
    check(|w| {
        let word = w.place_inside(8) & !7;
        w.t.poke64(word, 3);
        let waiters = w.put64(&[4, word, 2]);
        step(449, &[waiters, 1, 0, 0, 0], |_, result| {
            assert_eq!(result, -11);
            vec![]
        })
    });
}

#[test]
fn execve_with_everything_in_pm() {
    for view in [View::ReadOnly, View::Inaccessible] {
        let t = Target::new(8, view);
        let put = |addr: u64, text: &str| {
            t.poke(addr, text.as_bytes());
            t.poke(addr + text.len() as u64, &[0]);
            addr
        };
        let path = put(t.pm + 100, "/bin/sh");
        let dash_c = put(t.pm - 100, "-c");
        let script = put(t.after - 5, "exit $((VALUE + 2))");
        let value = put(t.pm + 300, "VALUE=40");
        let argv = t.pm + 1000;
        for (n, pointer) in [path, dash_c, script, 0].into_iter().enumerate() {
            t.poke64(argv + 8 * n as u64, pointer);
        }
        let envp = t.pm - 4;
        t.poke64(envp, value);
        t.poke64(envp + 8, 0);
        let mut args = [path, argv, envp, 0, 0, 0];
        let mut prepared = Prepared::new();
        prepare(59, &mut args, &t, &t, &mut prepared).expect("supported");
        let pid = syscall(57, &[0; 6]);
        if pid == 0 {
            syscall(59, &args);
            syscall(231, &[99, 0, 0, 0, 0, 0]);
        }
        let mut status = 0u32;
        must(61, &[pid as u64, &raw mut status as u64, 0, 0]);
        assert_eq!(status, 42 << 8, "{view:?}");
    }
}

#[test]
fn asynchronous_reads() {
    for view in [View::ReadOnly, View::Inaccessible] {
        for iocbs_in_pm in [false, true] {
            let t = Target::new(8, view);
            let mut context = 0u64;
            must(206, &[8, &raw mut context as u64]);
            let fd = must(319, &[c"file".as_ptr() as u64, 0]);
            must(18, &[fd, c"asynchronous input".as_ptr() as u64, 18, 0]);
            let at = if iocbs_in_pm {
                t.pm + 512
            } else {
                t.after + 512
            };
            let (one, two, iov) = (at, at + 64, at + 128);
            let (a, b, c) = (t.pm + 3000, t.pm + 5000, t.pm + 7000);
            // aio_data, key, opcode and fd, buf, nbytes, offset
            let iocb = |addr, opcode: u64, buf, bytes| {
                for (n, word) in [addr, 0, opcode | fd << 32, buf, bytes, 0, 0, 0]
                    .into_iter()
                    .enumerate()
                {
                    t.poke64(addr + 8 * n as u64, word);
                }
            };
            iocb(one, 0, a, 100);
            iocb(two, 7, iov, 2);
            for (n, word) in [b, 5, c, 100].into_iter().enumerate() {
                t.poke64(iov + 8 * n as u64, word);
            }
            let list = at + 256;
            t.poke64(list, one);
            t.poke64(list + 8, two);
            let mut prepared = Prepared::new();
            let (result, written) = t
                .call_with(&mut prepared, 209, &[context, 2, list, 0, 0, 0])
                .expect("supported");
            assert_eq!(result, 2);
            let kept = [(a, 100), (b, 5), (c, 100)].map(|(addr, len)| Range { addr, len });
            assert_eq!(prepared.retained(), kept);
            let marks = if iocbs_in_pm {
                vec![(one + 8, 4), (two + 8, 4)]
            } else {
                vec![]
            };
            assert_eq!(written, marks);
            assert_eq!(
                (t.peek64(one + 24), t.peek64(two + 24)),
                (a, iov),
                "restored"
            );

            let events = t.pm + 2000;
            let (result, written) = t.call(208, &[context, 2, 2, events, 0, 0]);
            assert_eq!(result, 2);
            let mut named = [t.peek64(events + 8), t.peek64(events + 40)];
            named.sort_unstable();
            assert_eq!(named, [one, two], "the program's own addresses");
            assert_eq!(merged(written), [(events, 64), (a, 18), (b, 5), (c, 13)]);
            assert_eq!(t.peek(a, 18), b"asynchronous input");
            assert_eq!(
                [t.peek(b, 5), t.peek(c, 13)].concat(),
                b"asynchronous input"
            );
            must(207, &[context]);
            must(3, &[fd]);
        }
    }
}

#[test]
fn bad_pointers_are_the_kernels_business() {
    const EFAULT: i64 = -14;
    let t = Target::new(8, View::Inaccessible);
    let hole = must(9, &[0, PAGE, 0, 0x22, u64::MAX, 0]);
    let fd = must(319, &[c"file".as_ptr() as u64, 0]);
    must(18, &[fd, c"content".as_ptr() as u64, 7, 0]);
    let good = t.pm + 64;
    t.poke64(good, hole);
    t.poke64(good + 8, 10);
    for (nr, args) in [
        (0, [fd, hole, 7, 0, 0, 0]),
        (19, [fd, hole, 2, 0, 0, 0]),
        (19, [fd, good, 1, 0, 0, 0]),
        (4, [hole, t.pm, 0, 0, 0, 0]),
        (21, [hole, 0, 0, 0, 0, 0]),
        (59, [hole, hole, hole, 0, 0, 0]),
        (47, [fd, hole, 0, 0, 0, 0]),
        (228, [1, hole, 0, 0, 0, 0]),
    ] {
        let (result, _) = t.call(nr, &args);
        // ENOTSOCK is found before the pointer is looked at.
        assert!(
            result == EFAULT || result == -88,
            "{}: {result}",
            brownout_syscalls::name(nr)
        );
    }
    // Both halves of what it wrote before it failed are reported: the first buffer is good.
    t.poke64(good, t.pm + 200);
    t.poke64(good + 8, 3);
    t.poke64(good + 16, hole);
    t.poke64(good + 24, 10);
    let (result, written) = t.call(295, &[fd, good, 2, 0, 0, 0]);
    assert_eq!((result, written), (3, vec![(t.pm + 200, 3)]));
    must(3, &[fd]);
    must(11, &[hole, PAGE]);
}

#[test]
fn long_transfers_across_the_border_are_shortened() {
    let t = Target::new(1024, View::ReadOnly);
    let fd = must(319, &[c"file".as_ptr() as u64, 0]);
    must(77, &[fd, 64 << 20]);
    let buf = t.after - (2 << 20);
    let (result, written) = t.call(17, &[fd, buf, 16 << 20, 0, 0, 0]);
    assert_eq!((result, written), (2 << 20, vec![(buf, 2 << 20)]));
    must(3, &[fd]);
}

#[test]
fn pointers_that_are_kept() {
    let t = Target::new(8, View::ReadOnly);
    let mut prepared = Prepared::new();
    for (nr, args, kept) in [
        (218, [t.pm + 8, 0, 0, 0, 0, 0], Some(4)),
        (273, [t.pm + 8, 24, 0, 0, 0, 0], Some(24)),
        (56, [0x20_0000, 0, 0, t.pm + 8, 0, 0], Some(4)),
        (56, [0x100_0000, 0, 0, t.pm + 8, 0, 0], None),
        (56, [0, 0, 0, t.pm + 8, 0, 0], None),
    ] {
        let mut rewritten = args;
        prepare(nr, &mut rewritten, &t, &t, &mut prepared).expect("supported");
        let expected: Vec<_> = kept
            .iter()
            .map(|len| Range {
                addr: t.pm + 8,
                len: *len,
            })
            .collect();
        assert_eq!(prepared.retained(), expected, "{nr} {args:x?}");
        let unused = nr == 56 && args[0] == 0;
        assert_eq!(rewritten == args, unused, "{nr} {args:x?}");
    }
}

#[test]
fn what_cannot_be_followed_is_said() {
    let t = Target::new(8, View::ReadOnly);
    let mut prepared = Prepared::new();
    let mut refused = |nr, args: [u64; 6]| {
        let mut args = args;
        prepare(nr, &mut args, &t, &t, &mut prepared).map_err(|e| (e.reason, e.answer()))
    };
    assert_eq!(
        refused(425, [8, 0, 0, 0, 0, 0]),
        Err((Reason::RingSetup, Some(38)))
    );
    assert_eq!(
        refused(426, [3, 1, 0, 0, 0, 0]),
        Err((Reason::RingUse, None))
    );
    assert_eq!(
        refused(500, [3, 1, t.pm, 0, 0, 0]),
        Err((Reason::UnknownCall, None))
    );
    assert_eq!(refused(500, [3, 1, 2, 3, 4, 5]), Ok(()));
    let attributes = [1u64, t.pm + 5, 0];
    let attributes = attributes.as_ptr() as u64;
    assert_eq!(
        refused(321, [0, attributes, 24, 0, 0, 0]),
        Err((Reason::HiddenPointer, None))
    );
    assert_eq!(refused(321, [0, attributes, 8, 0, 0, 0]), Ok(()));
    // An _IOW command of 24 bytes.
    assert_eq!(
        refused(16, [0, 0x4018_0000, attributes, 0, 0, 0]),
        Err((Reason::HiddenPointer, None))
    );
    assert_eq!(
        refused(218, [t.after - 2, 0, 0, 0, 0, 0]),
        Err((Reason::Straddles, None))
    );
}

#[test]
fn what_only_a_comparison_can_tell_is_compared() {
    let t = Target::new(8, View::ReadOnly);
    let mut prepared = Prepared::new();
    let mut args = [0, 0, t.pm + 100, 0, 0, 0];
    prepare(500, &mut args, &t, &t, &mut prepared).expect_err("unknown");
    let bound = t.pm_len - 100;
    assert_eq!(
        prepared.unknown(),
        [Range {
            addr: t.pm + 100,
            len: bound
        }]
    );
    // The kernel's part: two ranges, one of them with a byte that keeps its value.
    t.poke(t.pm + 150, &[1, 0, 2]);
    t.poke(t.after - 1, &[9]);
    let mut written = Vec::new();
    brownout_syscalls::finish(&prepared, 0, &t, &t, &mut |addr, len| {
        written.push((addr, len))
    });
    assert_eq!(written, [(t.pm + 150, 3), (t.after - 1, 1)]);
}

#[test]
fn reads_are_known_before_the_call() {
    let t = Target::new(8, View::ReadOnly);
    let mut prepared = Prepared::new();
    let mut reads = |nr, args: [u64; 6]| {
        let mut args = args;
        prepare(nr, &mut args, &t, &t, &mut prepared).expect("supported");
        merged(prepared.reads().iter().map(|range| (range.addr, range.len)))
    };
    t.poke(t.pm, b"path\0");
    assert_eq!(reads(21, [t.pm, 0, 0, 0, 0, 0]), [(t.pm, 5)]);
    assert_eq!(reads(1, [1, t.pm - 10, 30, 0, 0, 0]), [(t.pm, 20)]);
    assert_eq!(reads(0, [1, t.pm, 30, 0, 0, 0]), []);
    t.poke64(t.pm + 64, t.pm + 1000);
    t.poke64(t.pm + 72, 50);
    assert_eq!(
        reads(20, [1, t.pm + 64, 1, 0, 0, 0]),
        [(t.pm + 64, 16), (t.pm + 1000, 50)]
    );
}

/// The canary: a harness that accepts a missing report would be worthless.
#[test]
#[should_panic(expected = "changed but was not reported")]
fn an_unreported_change_fails_a_case() {
    check(|w| {
        let (fd, out) = (w.file(b"12345"), w.place(8));
        let real = brownout_syscalls::Translate::alias_of(w.t, out).unwrap_or(out);
        step(17, &[fd, real, 5, 0], |_, _| vec![])
    });
}
