//! The follower on hand-made code, told as the engine tells it.

use brownout_abi::follow::{self as words, call, word};
use brownout_follow::{Access, Follower, Label, Observer, Sets};
use brownout_random::Random;
use brownout_trace::Executed;
use brownout_trace::event::{ContextId, Event, EventKind, FileId, ProcessId, TargetAddr, ThreadId};

const FILE: FileId = FileId(7);
/// Where the file is mapped, one page of it.
const POOL: u64 = 0x7e80_0000_0000;
const HEAP: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;
const CODE: u64 = 0x5555_5555_4000;

/// Every byte of the first half of the pool is a source.
#[derive(Default)]
struct Heard {
    loads: Vec<(u64, usize)>,
    /// Offset, sources of each byte, sources of the address.
    stores: Vec<(u64, Vec<Vec<u32>>, Vec<u32>)>,
    left: Vec<Vec<Vec<u32>>>,
}

impl Observer for Heard {
    fn loads(&mut self, access: &Access, sources: &mut [u32]) {
        let (file, offset) = access.place.expect("tracked");
        assert_eq!(file, FILE);
        self.loads.push((offset, sources.len()));
        for (n, source) in sources.iter_mut().enumerate() {
            let at = offset as u32 + n as u32;
            *source = if at < 2048 { at + 1 } else { 0 };
        }
    }

    fn stores(&mut self, access: &Access, content: &[Label], address: Label, sets: &Sets) {
        let (_, offset) = access.place.expect("tracked");
        self.stores
            .push((offset, list(content, sets), sets.members(address).to_vec()));
    }

    fn leaves(&mut self, access: &Access, content: &[Label], sets: &Sets) {
        assert_eq!(access.size, content.len());
        self.left.push(list(content, sets));
    }
}

fn list(labels: &[Label], sets: &Sets) -> Vec<Vec<u32>> {
    let members = |label: &Label| sets.members(*label).to_vec();
    labels.iter().map(members).collect()
}

/// A run of one process.
struct Run {
    follower: Follower,
    heard: Heard,
    blocks: u32,
}

impl Run {
    fn new() -> Run {
        let mut run = Run {
            follower: Follower::new(),
            heard: Heard::default(),
            blocks: 0,
        };
        run.event(
            1,
            EventKind::ProcessStart {
                process: ProcessId(1),
                parent: ProcessId(0),
                pid: 1,
                exe: b"",
            },
        );
        run.start(1, 1, 1);
        run.event(
            1,
            EventKind::Map {
                addr: TargetAddr(POOL),
                len: 4096,
                file: FILE,
                offset: 0,
                prot: 3,
                flags: 1,
            },
        );
        run
    }

    fn start(&mut self, thread: u32, process: u32, tid: u32) {
        let kind = EventKind::ThreadStart {
            thread: ThreadId(thread),
            process: ProcessId(process),
            tid,
        };
        self.event(thread, kind);
    }

    fn event(&mut self, thread: u32, kind: EventKind<'_>) {
        let event = Event {
            thread: ThreadId(thread),
            pc: TargetAddr(CODE),
            context: ContextId(0),
            kind,
        };
        self.follower
            .event(&event, &mut self.heard)
            .expect("it makes sense");
    }

    /// Defines a block at `CODE`, of these instructions. Yields the word of its head.
    fn block(&mut self, code: &[&[u8]]) -> u64 {
        let steps: Vec<u8> = code.iter().map(|insn| insn.len() as u8).collect();
        self.blocks += 1;
        let block = Executed::Block {
            number: self.blocks,
            pc: CODE,
            steps: &steps,
            code: &code.concat(),
        };
        self.follower
            .executed(&block, &mut self.heard)
            .expect("it makes sense");
        word(words::HEAD, 0, self.blocks.into())
    }

    fn tell(&mut self, thread: u32, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let told = Executed::Words {
            thread: ThreadId(thread),
            fs: 0,
            words: &bytes,
        };
        self.follower
            .executed(&told, &mut self.heard)
            .expect("it makes sense");
    }

    fn call(&mut self, thread: u32, number: u32, what: u32, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let told = Executed::Call {
            thread: ThreadId(thread),
            number,
            what,
            words: &bytes,
        };
        self.follower
            .executed(&told, &mut self.heard)
            .expect("it makes sense");
    }

    /// Sources of bytes of the file.
    fn labels(&self, offset: u64, size: usize) -> Vec<Vec<u32>> {
        let labels = self.follower.labels(FILE, offset, size);
        list(&labels, self.follower.sets())
    }
}

fn operand(step: usize, at: u64) -> u64 {
    word(words::OPERAND, step, at)
}

fn at(kind: u8, offset: u64) -> u64 {
    word(kind, 0, CODE + offset)
}

const LOAD: &[u8] = &[0x48, 0x8B, 0x03]; // mov rax, [rbx]
const STORE: &[u8] = &[0x48, 0x89, 0x01]; // mov [rcx], rax
const INDEX: &[u8] = &[0x0F, 0xB6, 0x04, 0x02]; // movzx eax, byte [rdx + rax]
const CLEAR: &[u8] = &[0x31, 0xC0]; // xor eax, eax
const JUMP: &[u8] = &[0x74, 0x10]; // je
const END: u64 = word(words::END, 0, 0);

/// Sources of offsets.
fn each(offsets: std::ops::Range<u32>) -> Vec<Vec<u32>> {
    offsets.map(|offset| vec![offset + 1]).collect()
}

#[test]
fn what_is_loaded_is_stored_with_its_labels() {
    let mut run = Run::new();
    let head = run.block(&[LOAD, STORE]);
    run.tell(
        1,
        &[head, operand(0, POOL + 16), operand(1, POOL + 2048), END],
    );
    assert_eq!(run.heard.stores, [(2048, each(16..24), vec![])]);
    assert_eq!(run.labels(2048, 8), each(16..24));
    // Through ordinary memory, and back from what was stored.
    let head = run.block(&[LOAD, STORE, LOAD, STORE]);
    let words = [
        operand(0, POOL + 2048),
        operand(1, HEAP),
        operand(2, HEAP + 4),
        operand(3, POOL + 3000),
    ];
    run.tell(1, &[&[head], &words[..], &[END]].concat());
    let mut expected = each(20..24);
    expected.resize(8, vec![]);
    assert_eq!(run.labels(3000, 8), expected);
}

#[test]
fn an_instruction_counts_once_it_is_executed_and_only_once() {
    let mut run = Run::new();
    let head = run.block(&[LOAD, STORE]);
    run.tell(1, &[head, operand(0, POOL), operand(1, POOL + 2048)]);
    assert_eq!(run.heard.loads, [(0, 8)]);
    assert!(run.heard.stores.is_empty(), "it was only announced");
    // It faults, and is started over in a block of its own.
    run.tell(1, &[at(words::BREAK, 3), 0]);
    assert!(run.heard.stores.is_empty());
    let head = run.block(&[STORE]);
    run.tell(1, &[head, operand(0, POOL + 2048)]);
    run.tell(1, &[at(words::AT, 3)]);
    assert_eq!(run.heard.stores.len(), 1, "the thread stands behind it");
    run.tell(1, &[END]);
    assert_eq!(run.heard.stores.len(), 1);
    assert_eq!(run.follower.executed_instructions(), 2);
}

#[test]
fn what_lies_behind_a_taken_branch_was_not_executed() {
    for is_taken in [true, false] {
        let mut run = Run::new();
        let head = run.block(&[LOAD, JUMP, CLEAR]);
        let store = run.block(&[STORE]);
        let mut words = vec![head, operand(0, POOL)];
        if is_taken {
            words.push(word(words::EXIT, 1, 0));
        }
        words.extend([store, operand(0, POOL + 2048), END]);
        run.tell(1, &words);
        let expected = if is_taken {
            each(0..8)
        } else {
            vec![vec![]; 8]
        };
        assert_eq!(run.labels(2048, 8), expected);
    }
}

#[test]
fn words_may_be_cut_anywhere() {
    const MOVE: &[u8] = &[0xF3, 0xA4]; // rep movsb
    let mut run = Run::new();
    let head = run.block(&[MOVE]);
    let words = [
        head,
        word(words::DETAIL, 0, 4),
        POOL,
        POOL + 2048,
        5,
        0,
        at(words::BREAK, 2),
        0,
    ];
    for word in words {
        run.tell(1, &[word]);
    }
    assert_eq!(run.heard.stores, [(2048, each(0..5), vec![])]);
    assert_eq!(run.heard.loads, [(0, 5)], "the elements are told together");
}

#[test]
fn a_repetition_that_is_interrupted_has_done_a_part() {
    const MOVE: &[u8] = &[0xF3, 0xA4];
    const BACKWARDS: u64 = 1 << 10;
    let mut run = Run::new();
    let head = run.block(&[MOVE]);
    let detail = word(words::DETAIL, 0, 4);
    // Ten to do, four left.
    run.tell(
        1,
        &[
            head,
            detail,
            POOL,
            POOL + 2048,
            10,
            0,
            at(words::BREAK, 0),
            4,
        ],
    );
    assert_eq!(run.labels(2048, 7), [each(0..6), vec![vec![]]].concat());
    run.tell(1, &[head, detail, POOL + 6, POOL + 2054, 4, 0, END]);
    assert_eq!(run.labels(2048, 10), each(0..10));
    let details = [POOL + 9, POOL + 3009, 3, BACKWARDS];
    run.tell(1, &[&[head, detail], &details[..], &[END]].concat());
    assert_eq!(run.labels(3006, 4), [vec![vec![]], each(7..10)].concat());
    // Overlapping: one byte becomes many.
    run.tell(1, &[head, detail, POOL + 2048, POOL + 2049, 5, 0, END]);
    assert_eq!(run.labels(2048, 6), vec![vec![1]; 6]);
    // Nothing to do.
    let loads = run.heard.loads.len();
    run.tell(1, &[head, detail, POOL, POOL, 0, 0, END]);
    assert_eq!(run.heard.loads.len(), loads);
}

#[test]
fn pointers_count_for_what_is_loaded_and_are_told_of_what_is_stored() {
    const STORE_BY: &[u8] = &[0x88, 0x08]; // mov [rax], cl
    for by_pointers in [true, false] {
        let mut run = Run::new();
        run.follower = std::mem::take(&mut run.follower).by_pointers(by_pointers);
        let head = run.block(&[LOAD, INDEX, STORE, STORE_BY]);
        let words = [
            operand(0, POOL),
            operand(1, HEAP),
            operand(2, POOL + 2048),
            operand(3, POOL + 3000),
        ];
        run.tell(1, &[&[head], &words[..], &[END]].concat());
        let pointer: Vec<u32> = (1..=8).collect();
        let loaded = if by_pointers { pointer.clone() } else { vec![] };
        let [first, rest @ ..] = &run.labels(2048, 8)[..] else {
            panic!("eight bytes")
        };
        assert_eq!(*first, loaded);
        assert!(rest.iter().all(Vec::is_empty), "{rest:?}");
        let (offset, content, address) = run.heard.stores.last().cloned().unwrap_or_default();
        if by_pointers {
            assert_eq!((offset, content, address), (3000, vec![vec![]], pointer));
        }
    }
}

#[test]
fn threads_have_registers_of_their_own_and_processes_memory() {
    let mut run = Run::new();
    run.start(2, 1, 2);
    let (load, store) = (run.block(&[LOAD]), run.block(&[STORE]));
    run.tell(1, &[load, operand(0, POOL), END]);
    run.tell(2, &[store, operand(0, POOL + 2048), END]);
    assert!(run.heard.stores.is_empty(), "of another thread's register");
    run.tell(1, &[store, operand(0, HEAP), END]);
    // What a forked process inherits, and what it does not give back.
    const FORK: u32 = 57;
    run.call(1, FORK, call::BEGINS, &[]);
    run.event(
        3,
        EventKind::ProcessStart {
            process: ProcessId(2),
            parent: ProcessId(1),
            pid: 9,
            exe: b"",
        },
    );
    run.start(3, 2, 9);
    run.call(1, FORK, call::ENDS, &[9, 0, 0, 0, 0, 0, 0]);
    run.tell(
        3,
        &[load, operand(0, HEAP), store, operand(0, POOL + 2048), END],
    );
    assert_eq!(run.labels(2048, 8), each(0..8));
    run.tell(
        3,
        &[
            load,
            operand(0, POOL + 100),
            store,
            operand(0, HEAP + 64),
            END,
        ],
    );
    run.tell(
        1,
        &[
            load,
            operand(0, HEAP + 64),
            store,
            operand(0, POOL + 3000),
            END,
        ],
    );
    assert_eq!(run.labels(3000, 8), vec![Vec::<u32>::new(); 8]);
    // By `execve` it begins anew.
    run.event(
        3,
        EventKind::ProcessStart {
            process: ProcessId(2),
            parent: ProcessId(2),
            pid: 9,
            exe: b"",
        },
    );
    run.tell(
        3,
        &[load, operand(0, HEAP), store, operand(0, POOL + 3100), END],
    );
    assert_eq!(run.labels(3100, 8), vec![Vec::<u32>::new(); 8]);
}

#[test]
fn what_leaves_is_what_the_kernel_took() {
    const WRITE: u32 = 1;
    let mut run = Run::new();
    let head = run.block(&[LOAD, STORE]);
    run.tell(1, &[head, operand(0, POOL), operand(1, HEAP), END]);
    for (result, expected) in [(6u64, Some(each(0..6))), (-4i64 as u64, None), (0, None)] {
        run.heard.left.clear();
        run.call(1, WRITE, call::BEGINS, &[HEAP, 8]);
        assert!(run.heard.left.is_empty(), "it is not over");
        run.call(1, WRITE, call::ENDS, &[result, 1, HEAP, 8, 0, 0, 0]);
        assert_eq!(run.heard.left, Vec::from_iter(expected));
    }
    // Two buffers, one of them tracked; the second is cut short.
    run.call(1, WRITE, call::BEGINS, &[HEAP + 4, 4, POOL + 40, 8]);
    run.heard.left.clear();
    run.call(1, WRITE, call::ENDS, &[6, 0, 0, 0, 0, 0, 0]);
    assert_eq!(run.heard.left, [each(4..8), each(40..42)]);
    // What the kernel writes is new.
    run.call(1, 0, call::BEGINS, &[]);
    run.call(1, 0, call::ENDS, &[4, 0, HEAP, 8, 0, 0, 0, HEAP, 4]);
    run.tell(1, &[head, operand(0, HEAP), operand(1, POOL + 2048), END]);
    assert_eq!(run.labels(2048, 8), [vec![vec![]; 4], each(4..8)].concat());
}

#[test]
fn a_handler_has_its_own_registers_and_gives_them_back() {
    let mut run = Run::new();
    let (load, store) = (run.block(&[LOAD]), run.block(&[STORE]));
    run.tell(1, &[load, operand(0, POOL), at(words::BREAK, 3), 0]);
    let frame = STACK - 1000;
    run.tell(1, &[word(words::SIGNAL, 0, 0), frame, 900]);
    run.tell(1, &[store, operand(0, POOL + 2048), END]);
    assert!(run.heard.stores.is_empty(), "rax is the handler's");
    run.tell(1, &[word(words::RETURN, 0, 0), frame]);
    run.tell(1, &[store, operand(0, POOL + 2048), END]);
    assert_eq!(run.labels(2048, 8), each(0..8));
}

#[test]
fn what_is_not_known_is_counted_and_has_no_label() {
    const UNKNOWN: &[u8] = &[0x0F, 0x37]; // getsec
    let mut run = Run::new();
    let head = run.block(&[LOAD, UNKNOWN, STORE]);
    run.tell(1, &[head, operand(0, POOL), operand(2, POOL + 2048), END]);
    assert_eq!(run.follower.given_up(), 1);
    // An operand that nobody told.
    let head = run.block(&[LOAD]);
    run.tell(1, &[head, END]);
    assert_eq!(run.follower.given_up(), 2);
}

#[test]
fn memory_that_is_mapped_anew_has_no_labels_and_moved_memory_keeps_them() {
    const MMAP: u32 = 9;
    const MREMAP: u32 = 25;
    let mut run = Run::new();
    let head = run.block(&[LOAD, STORE]);
    run.tell(1, &[head, operand(0, POOL), operand(1, HEAP + 8), END]);
    run.call(1, MREMAP, call::BEGINS, &[]);
    let moved = HEAP + 0x10_0000;
    run.call(1, MREMAP, call::ENDS, &[moved, HEAP, 4096, 8192, 1, 0, 0]);
    run.tell(
        1,
        &[head, operand(0, moved + 8), operand(1, POOL + 2048), END],
    );
    assert_eq!(run.labels(2048, 8), each(0..8));
    run.call(1, MMAP, call::BEGINS, &[]);
    run.call(1, MMAP, call::ENDS, &[moved, 0, 8192, 3, 0x22, 0, 0]);
    run.tell(
        1,
        &[head, operand(0, moved + 8), operand(1, POOL + 2048), END],
    );
    assert_eq!(run.labels(2048, 8), vec![Vec::<u32>::new(); 8]);
}

/// The words come from memory that a program can write to.
#[test]
fn senseless_words_do_no_harm() {
    let mut random = Random::new(1);
    for _ in 0..50 {
        let mut run = Run::new();
        let head = run.block(&[
            LOAD,
            JUMP,
            &[0xF3, 0xA4],
            STORE,
            &[0x0F, 0xAE, 0x20],
            &[0xD8, 0x03],
        ]);
        for _ in 0..20 {
            let words: Vec<u64> = (0..random.below(12))
                .map(|_| match random.below(4) {
                    0 => head,
                    1 => word(random.below(14) as u8, random.below(8) as usize, POOL),
                    2 => word(words::DETAIL, random.below(6) as usize, random.below(9)),
                    _ => random.bits() >> random.below(64),
                })
                .collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let told = match random.below(4) {
                0 => Executed::Call {
                    thread: ThreadId(1),
                    number: random.below(30) as u32,
                    what: random.below(5) as u32,
                    words: &bytes,
                },
                _ => Executed::Words {
                    thread: ThreadId(random.below(3) as u32),
                    fs: random.bits(),
                    words: &bytes,
                },
            };
            // Whatever it says.
            let _ = run.follower.executed(&told, &mut run.heard);
        }
    }
}
