//! How fast the writer takes events, and how small they get.
//!
//! ```text
//! cargo run --release -p brownout-trace --example throughput -- [MILLIONS] [LEVEL] [EVENTS_PER_BLOCK]
//! ```
//!
//! The streams are synthetic but shaped like recordings:
//!
//! * `hash`: a persistent hash table; each insert stores key, value and a counter at a random
//!   bucket, flushes the line, fences.
//! * `tree`: transactional inserts into a tree by three threads: 300 call sites, an undo log
//!   that advances, nodes from an allocator that mostly moves forward, copies of 64 bytes,
//!   flushes and fences, pmemcheck requests in between.
//! * `noise`: random values at random addresses, the worst case.
//!
//! Events are made beforehand, so that only [`Writer`] is measured; output goes to memory that
//! counts and forgets.

use brownout_random::Random;
use std::io::{self, Cursor, Write};
use std::time::{Duration, Instant};

use brownout_trace::{
    Access, ContextId, Event, EventKind, FenceKind, FlushKind, Meta, Reader, TargetAddr, ThreadId,
    Writer, WriterOptions,
};

const POOL: u64 = 0x7e00_0000_0000;
const CODE: u64 = 0x5555_5555_4000;

/// An event whose bytes lie in a table, so that a million of them need no million allocations.
struct Draft {
    thread: u32,
    site: u32,
    what: What,
}

enum What {
    Store { addr: u64, value: u64 },
    Copy { addr: u64, from: usize },
    Flush { addr: u64 },
    Fence,
    Request { code: u32, addr: u64, len: u64 },
}

fn hash(events: usize, random: &mut Random) -> Vec<Draft> {
    let mut drafts = Vec::with_capacity(events + 8);
    let mut inserted = 0;
    while drafts.len() < events {
        let bucket = POOL + 4096 + random.below(1 << 20) * 64;
        inserted += 1;
        let store = |site, addr, value| Draft {
            thread: 1,
            site,
            what: What::Store { addr, value },
        };
        drafts.push(store(0, bucket + 8, random.below(1 << 24)));
        drafts.push(store(1, bucket + 16, inserted));
        drafts.push(store(2, bucket, 1));
        drafts.push(Draft {
            thread: 1,
            site: 3,
            what: What::Flush { addr: bucket },
        });
        drafts.push(Draft {
            thread: 1,
            site: 4,
            what: What::Fence,
        });
        drafts.push(store(5, POOL + 64, inserted));
        drafts.push(Draft {
            thread: 1,
            site: 6,
            what: What::Flush { addr: POOL + 64 },
        });
        drafts.push(Draft {
            thread: 1,
            site: 7,
            what: What::Fence,
        });
    }
    drafts
}

fn tree(events: usize, random: &mut Random) -> Vec<Draft> {
    let mut drafts = Vec::with_capacity(events + 256);
    let mut heap = POOL + (64 << 20);
    let mut nodes: Vec<u64> = vec![heap];
    let mut log = [POOL + (1 << 20), POOL + (2 << 20), POOL + (3 << 20)];
    while drafts.len() < events {
        let thread = random.below(3) as u32;
        let mut add = |site, what| {
            drafts.push(Draft {
                thread: thread + 1,
                site,
                what,
            })
        };
        add(
            0,
            What::Request {
                code: 18,
                addr: 0,
                len: 0,
            },
        );
        // The path to the leaf differs in length, and with it the calling contexts.
        let depth = 2 + random.below(4) as u32;
        for level in 0..depth {
            let node = nodes[random.below(nodes.len() as u64) as usize];
            let slot = random.below(8);
            let log_at = &mut log[thread as usize];
            let site = 10 + level * 40;
            add(
                site,
                What::Request {
                    code: 22,
                    addr: node + slot * 16,
                    len: 64,
                },
            );
            add(
                site + 1,
                What::Store {
                    addr: *log_at,
                    value: node - POOL + slot * 16,
                },
            );
            add(
                site + 2,
                What::Store {
                    addr: *log_at + 8,
                    value: 64,
                },
            );
            add(
                site + 3,
                What::Copy {
                    addr: *log_at + 64,
                    from: random.below(4096) as usize,
                },
            );
            add(site + 4, What::Flush { addr: *log_at });
            add(site + 5, What::Flush { addr: *log_at + 64 });
            add(site + 6, What::Fence);
            for field in 0..3 + slot as u32 {
                let value = if field % 2 == 0 {
                    heap - POOL
                } else {
                    random.below(1 << 20)
                };
                let addr = node + slot * 16 + u64::from(field) * 8;
                add(site + 10 + field, What::Store { addr, value });
            }
            add(
                site + 7,
                What::Flush {
                    addr: node + slot * 16,
                },
            );
            add(
                site + 8,
                What::Request {
                    code: 17,
                    addr: node + slot * 16,
                    len: 64,
                },
            );
            *log_at += 128;
            if *log_at % (1 << 20) > (1 << 19) {
                *log_at -= 1 << 19;
            }
        }
        add(5, What::Fence);
        add(
            6,
            What::Request {
                code: 20,
                addr: 0,
                len: 0,
            },
        );
        heap += 128 + 64 * random.below(3);
        nodes.push(heap);
        if nodes.len() > 100_000 {
            nodes.swap_remove(0);
        }
    }
    drafts
}

fn noise(events: usize, random: &mut Random) -> Vec<Draft> {
    (0..events)
        .map(|_| Draft {
            thread: 1,
            site: random.below(300) as u32,
            what: What::Store {
                addr: POOL + random.below(1 << 32),
                value: random.bits(),
            },
        })
        .collect()
}

/// Counts and forgets, but touches the bytes as a copy to the page cache would.
struct Sink {
    page: Vec<u8>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(self.page.len());
        self.page[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write<W: Write>(
    drafts: &[Draft],
    contents: &[u8],
    options: &WriterOptions,
    out: W,
) -> io::Result<(u64, Duration)> {
    let meta = Meta {
        tool: "throughput".to_owned(),
        ..Meta::default()
    };
    let mut writer = Writer::with_options(out, &meta, options)?;
    let start = Instant::now();
    for draft in drafts {
        let word;
        let kind = match draft.what {
            What::Store { addr, value } => {
                word = value.to_le_bytes();
                EventKind::Store(Access {
                    addr: TargetAddr(addr),
                    size: 8,
                    bytes: &word,
                })
            }
            What::Copy { addr, from } => EventKind::NtStore(Access {
                addr: TargetAddr(addr),
                size: 64,
                bytes: &contents[from..from + 64],
            }),
            What::Flush { addr } => EventKind::Flush {
                kind: FlushKind::Clwb,
                addr: TargetAddr(addr),
            },
            What::Fence => EventKind::Fence(FenceKind::Sfence),
            What::Request { code, addr, len } => EventKind::Pmemcheck {
                code,
                args: [addr, len, 0, 0],
                text: b"",
            },
        };
        writer.push(&Event {
            thread: ThreadId(draft.thread),
            pc: TargetAddr(CODE + u64::from(draft.site) * 23),
            context: ContextId(draft.site / 3 + 1),
            kind,
        })?;
    }
    let written = writer.finish()?;
    Ok((written.bytes, start.elapsed()))
}

fn argument<T: std::str::FromStr>(nth: usize, default: T) -> T {
    std::env::args()
        .nth(nth)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let events = argument(1, 8usize) * 1_000_000;
    let defaults = WriterOptions::default();
    let options = WriterOptions {
        level: argument(2, defaults.level),
        events_per_block: argument(3, defaults.events_per_block),
        ..defaults
    };
    println!("{events} events, {options:?}");
    println!(
        "{:8}{:>14}{:>12}{:>14}{:>16}",
        "stream", "M events/s", "ns/event", "bytes/event", "read M ev/s"
    );

    let mut random = Random::new(1);
    // Half text, half numbers: what records consist of.
    let contents: Vec<u8> = (0..8192u64)
        .map(|at| {
            if at % 64 < 32 {
                b'a' + random.below(16) as u8
            } else {
                (at % 3) as u8
            }
        })
        .collect();
    type Make = fn(usize, &mut Random) -> Vec<Draft>;
    for (name, make) in [("hash", hash as Make), ("tree", tree), ("noise", noise)] {
        let drafts = make(events, &mut random);
        let mut best = (0, Duration::MAX);
        for _ in 0..3 {
            let sink = Sink {
                page: vec![0; 1 << 16],
            };
            let run = write(&drafts, &contents, &options, sink)?;
            if run.1 < best.1 {
                best = run;
            }
        }
        let mut file = Vec::new();
        write(&drafts, &contents, &options, &mut file)?;
        let start = Instant::now();
        let mut reader = Reader::new(Cursor::new(&file))?;
        let mut seen = 0usize;
        while reader.next()?.is_some() {
            seen += 1;
        }
        let read = start.elapsed();
        assert_eq!(seen, drafts.len(), "events were lost");
        let count = drafts.len() as f64;
        println!(
            "{name:8}{:>14.1}{:>12.1}{:>14.2}{:>16.1}",
            count / best.1.as_secs_f64() / 1e6,
            best.1.as_secs_f64() * 1e9 / count,
            best.0 as f64 / count,
            count / read.as_secs_f64() / 1e6,
        );
    }
    Ok(())
}
