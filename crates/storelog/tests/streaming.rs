//! A long log on one line takes no more memory than a short one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use brownout_storelog::{Exporter, Importer};
use brownout_trace::event::EventKind;

/// Counts what is allocated.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(used, Relaxed);
        // SAFETY: the caller's promise about `layout` is the one that is asked for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` came from `alloc` above with this layout, as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LOG_LEN: u64 = 50 << 20;
const MEMORY_LEN_MAX: usize = 2 << 20;
const POOL_LEN: u64 = 1 << 30;

/// A log that is made while it is read.
struct Generated {
    rest: Vec<u8>,
    given: usize,
    made_len: u64,
    rounds: u64,
    stopped: bool,
}

impl Generated {
    fn new() -> Generated {
        Generated {
            rest: b"START|REGISTER_FILE;/pm/pool;0x7f0000000000;0x40000000;0x0".to_vec(),
            given: 0,
            made_len: 0,
            rounds: 0,
            stopped: false,
        }
    }
}

impl Read for Generated {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.given == self.rest.len() {
            self.rest.clear();
            self.given = 0;
            if self.made_len >= LOG_LEN {
                if !std::mem::replace(&mut self.stopped, true) {
                    self.rest.extend(b"|STOP\n");
                }
            } else {
                let n = self.rounds;
                let addr = 0x7f00_0000_0000 + n * 264 % POOL_LEN;
                let site = 0x40_0000 + n % 97;
                self.rounds += 1;
                write!(
                    self.rest,
                    "|insert.BEGIN|STORE;{addr:#x};{n:#x};0x8;{site:#X}: insert (list.c:{});0x401000: main (list.c:9)\
                     |FLUSH;{:#x};0x40|FENCE|insert.END",
                    n % 97,
                    addr & !63,
                )?;
            }
            self.made_len += self.rest.len() as u64;
        }
        let len = into.len().min(self.rest.len() - self.given);
        into[..len].copy_from_slice(&self.rest[self.given..self.given + len]);
        self.given += len;
        Ok(len)
    }
}

#[test]
fn memory_does_not_grow_with_the_log() {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut importer = Importer::new(Generated::new());
    let mut exporter = Exporter::new(io::sink());
    let mut stores = 0u64;
    while let Some(event) = importer.next().expect("the log is sound") {
        if let EventKind::Store(access) = &event.kind {
            let value = u64::from_le_bytes(access.bytes.try_into().expect("eight bytes"));
            assert_eq!(value, stores);
            stores += 1;
        }
        exporter.event(&event).expect("exportable");
    }
    let exported = exporter.finish().expect("nothing fails");
    assert!(importer.offset() >= LOG_LEN);
    assert_eq!((exported.stores, exported.flushes), (stores, stores));
    assert_eq!(importer.events(), 2 + 2 + 97 + 5 * stores + 2);
    let peak = PEAK.load(Relaxed) - before;
    assert!(peak < MEMORY_LEN_MAX, "{peak} bytes were in use");
}
