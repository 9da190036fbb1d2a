//! The follower: takes events and what was executed, and moves labels.

use crate::bytes::{Bytes, PageHash};
use crate::code::{Block, Reader, Step};
use crate::sets::{Label, Sets};
use crate::thread::{Announced, Call, Given, Leaving, Open, Registers, Thread};
use brownout_abi::follow as words;
use brownout_flow::{At, MEMORY_OPERANDS_MAX, MemoryOperand, Op, Place, Shadow, Span, StateFacts};
use brownout_insn::{Repeat, StateTransfer, XsaveLayout};
use brownout_trace::Executed;
use brownout_trace::event::{Event, EventKind, FileId, ProcessId, TargetAddr, ThreadId};
use brownout_trace::maps::AddressSpaces;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;

/// Bytes that an instruction or the kernel accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// By which process.
    pub process: ProcessId,
    /// By which thread.
    pub thread: ThreadId,
    /// The instruction; the `syscall` for what the kernel does.
    pub pc: u64,
    /// Where; 0 if a tracked file is accessed through a descriptor.
    pub address: u64,
    /// How many bytes.
    pub size: usize,
    /// Tracked memory: the file, and the offset in it of the first byte.
    pub place: Option<(FileId, u64)>,
    /// The system call by which the kernel does it.
    pub call: Option<u32>,
}

/// Who says what has labels, and hears of what depends on them.
pub trait Observer {
    /// An instruction, or the kernel, loads tracked bytes: the number of a source in `sources[i]`
    /// labels byte `i`, 0 does not. All bytes are of one file, one behind the other.
    ///
    /// The event of the load has come before; of what a system call reads, it comes behind.
    fn loads(&mut self, access: &Access, sources: &mut [u32]);

    /// An instruction, or the kernel, has stored to tracked memory what depends on sources:
    /// `content[i]` is what byte `i` depends on, `address` is what the address, or the number of
    /// bytes, was computed from. Not called if there is no label in either. The event of the store
    /// has come before.
    fn stores(&mut self, access: &Access, content: &[Label], address: Label, sets: &Sets);

    /// Bytes with labels have left the process by a system call, which is over.
    fn leaves(&mut self, access: &Access, content: &[Label], sets: &Sets);

    /// A system call is over: which of the bytes have labels that it has written to memory, or
    /// mapped there. By default none.
    fn receives(&mut self, call: &Received) -> Vec<Given> {
        let _ = call;
        Vec::new()
    }
}

/// A system call that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Of which process.
    pub process: ProcessId,
    /// By which thread.
    pub thread: ThreadId,
    /// Its number.
    pub number: u32,
    /// What it was given.
    pub args: [u64; 6],
    /// What it returned; negative is an error.
    pub result: i64,
}

/// Follows labels through a run. It has to get all events, and all that was executed, in order.
pub struct Follower {
    spaces: AddressSpaces,
    /// All tracked mappings lie between these.
    tracked: (u64, u64),
    blocks: Vec<Defined>,
    reader: Reader,
    threads: Vec<Option<Box<Thread>>>,
    /// By kernel number, the registers that a thread was made with.
    made: HashMap<u32, Registers>,
    moves: Moves,
    given_up: u64,
    executed: u64,
    /// See [`Follower::touching`].
    touched: Option<HashSet<u64>>,
}

/// What is known of a number of a block. Many blocks are defined and never executed where a program
/// goes on from the middle, so that they are read only when they are.
#[derive(Default)]
enum Defined {
    #[default]
    Not,
    Told {
        pc: u64,
        steps: Box<[u8]>,
        code: Box<[u8]>,
    },
    Read(Block),
}

impl Defined {
    fn block(&self) -> Option<&Block> {
        match self {
            Defined::Read(block) => Some(block),
            _ => None,
        }
    }
}

/// All labels but those of registers, and what is needed to move them.
struct Moves {
    sets: Sets,
    /// By the number of the process.
    memory: Vec<Option<Bytes>>,
    files: HashMap<FileId, Bytes, PageHash>,
    operands: [Vec<Label>; MEMORY_OPERANDS_MAX],
    sources: Vec<u32>,
    layout: XsaveLayout,
    by_pointers: bool,
}

impl Default for Follower {
    fn default() -> Follower {
        Follower::new()
    }
}

/// The shadow that operations work on.
struct Applied<'a> {
    registers: &'a mut [Label],
    operands: &'a mut [Vec<Label>; MEMORY_OPERANDS_MAX],
    sets: &'a mut Sets,
    top: u8,
}

impl Shadow for Applied<'_> {
    fn register(&self, place: Place) -> u32 {
        self.registers[usize::from(place.0)].0
    }

    fn set_register(&mut self, place: Place, label: u32) {
        self.registers[usize::from(place.0)] = Label(label);
    }

    fn load(&mut self, operand: usize, byte: usize) -> u32 {
        self.operands[operand].get(byte).map_or(0, |label| label.0)
    }

    fn store(&mut self, operand: usize, byte: usize, label: u32) {
        if let Some(place) = self.operands[operand].get_mut(byte) {
            *place = Label(label);
        }
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        self.sets.union(Label(a), Label(b)).0
    }

    fn x87_top(&self) -> u8 {
        self.top
    }
}

impl Follower {
    /// Nothing has begun.
    #[must_use]
    pub fn new() -> Follower {
        Follower {
            spaces: AddressSpaces::new(),
            tracked: (u64::MAX, 0),
            blocks: Vec::new(),
            reader: Reader::new(),
            threads: Vec::new(),
            made: HashMap::new(),
            moves: Moves {
                sets: Sets::default(),
                memory: Vec::new(),
                files: HashMap::default(),
                operands: Default::default(),
                sources: Vec::new(),
                layout: machine_layout(),
                by_pointers: true,
            },
            given_up: 0,
            executed: 0,
            touched: None,
        }
    }

    /// One that takes note of which instructions [touch](Follower::touched) what has labels.
    #[must_use]
    pub fn touching(mut self) -> Follower {
        self.touched = Some(HashSet::new());
        self
    }

    /// The addresses of all instructions that have read anything with a label, or have overwritten
    /// it, if that was asked for.
    #[must_use]
    pub fn touched(&self) -> Option<&HashSet<u64>> {
        self.touched.as_ref()
    }

    /// Whether what is loaded by a pointer with a label has that label, too. See the crate; by
    /// default it has.
    #[must_use]
    pub fn by_pointers(mut self, on: bool) -> Follower {
        self.moves.by_pointers = on;
        self
    }

    /// How many instructions were executed whose data flow is not known. What they wrote has no
    /// label.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// How many instructions were executed.
    #[must_use]
    pub fn executed_instructions(&self) -> u64 {
        self.executed
    }

    /// What labels mean.
    #[must_use]
    pub fn sets(&self) -> &Sets {
        &self.moves.sets
    }

    /// See [`Sets::forget`].
    pub fn forget(&mut self, source: u32) {
        self.moves.sets.forget(source);
    }

    /// What tracked bytes depend on.
    #[must_use]
    pub fn labels(&self, file: FileId, offset: u64, size: usize) -> Vec<Label> {
        let mut labels = vec![Label::NONE; size];
        if let Some(bytes) = self.moves.files.get(&file) {
            bytes.read(offset, &mut labels);
        }
        labels
    }

    /// Takes note of an event.
    ///
    /// # Errors
    ///
    /// The event does not fit those before it.
    pub fn event(&mut self, event: &Event<'_>, observer: &mut dyn Observer) -> io::Result<()> {
        match event.kind {
            EventKind::ProcessStart {
                process, parent, ..
            } => {
                // One that is known already begins anew.
                let inherited = match self.moves.knows(process) {
                    true => None,
                    false => self.moves.ordinary(parent).cloned(),
                };
                *self.moves.ordinary_mut(process) = inherited.unwrap_or_default();
            }
            EventKind::ProcessExit { process, .. } => {
                // The entry stays: if it starts again, it does so by `execve`.
                *self.moves.ordinary_mut(process) = Bytes::default();
            }
            EventKind::ThreadStart {
                thread,
                process,
                tid,
            } => self.thread_starts(thread, process, tid),
            EventKind::ThreadExit => {
                if let Some(thread) = self.threads.get_mut(event.thread.0 as usize) {
                    *thread = None;
                }
            }
            EventKind::Map { addr, len, .. }
            | EventKind::Remap {
                new_addr: addr,
                new_len: len,
                ..
            } => {
                self.tracked.0 = self.tracked.0.min(addr.0);
                self.tracked.1 = self.tracked.1.max(addr.0.saturating_add(len));
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => self.file_written(event, file, offset, size as usize, observer),
            EventKind::FileRead { file, offset, size } => {
                self.file_read(event, file, offset, size as usize, observer);
            }
            _ => {}
        }
        self.spaces
            .observe(event)
            .map_err(|fault| fault.into_error())
    }

    fn thread_starts(&mut self, number: ThreadId, process: ProcessId, tid: u32) {
        let mut thread = Box::new(Thread::new(process));
        let making = || {
            let mut threads = self.threads.iter().flatten();
            threads.find_map(|thread| thread.making.clone())
        };
        if let Some(registers) = self.made.remove(&tid).or_else(making) {
            thread.registers = registers;
            thread.registers.clear(Span::new(Place::gpr(0), 8));
            thread.registers.look();
        }
        let at = number.0 as usize;
        if self.threads.len() <= at {
            self.threads.resize_with(at + 1, || None);
        }
        self.threads[at] = Some(thread);
    }

    /// A system call writes to a tracked file through a descriptor.
    fn file_written(
        &mut self,
        event: &Event<'_>,
        file: FileId,
        offset: u64,
        size: usize,
        observer: &mut dyn Observer,
    ) {
        let Some(Some(thread)) = self.threads.get_mut(event.thread.0 as usize) else {
            return;
        };
        let all = thread.call.leaving.iter().flat_map(|part| {
            (0..part.len).map(|at| {
                part.labels
                    .as_ref()
                    .map_or(Label::NONE, |labels| labels[at])
            })
        });
        let mut labels: Vec<Label> = all.skip(thread.call.filed).take(size).collect();
        labels.resize(size, Label::NONE);
        thread.call.filed += size;
        let access = Access {
            process: thread.process,
            thread: event.thread,
            pc: event.pc.0,
            address: 0,
            size,
            place: Some((file, offset)),
            call: Some(thread.call.number),
        };
        if labels.iter().any(|label| !label.is_none()) {
            observer.stores(&access, &labels, Label::NONE, &self.moves.sets);
        }
        let bytes = self.moves.files.entry(file).or_default();
        bytes.write(offset, &labels);
    }

    /// A system call reads from one.
    fn file_read(
        &mut self,
        event: &Event<'_>,
        file: FileId,
        offset: u64,
        size: usize,
        observer: &mut dyn Observer,
    ) {
        let Some(Some(thread)) = self.threads.get_mut(event.thread.0 as usize) else {
            return;
        };
        let access = Access {
            process: thread.process,
            thread: event.thread,
            pc: event.pc.0,
            address: 0,
            size,
            place: Some((file, offset)),
            call: Some(thread.call.number),
        };
        let from = thread.call.read.len();
        thread.call.read.resize(from + size, Label::NONE);
        let labels = &mut thread.call.read[from..];
        self.moves
            .load_tracked(&access, (file, offset), labels, observer);
    }

    /// Takes what was executed.
    ///
    /// # Errors
    ///
    /// It makes no sense: that is a bug of ours, or a program that has overwritten the engine's
    /// memory.
    pub fn executed(&mut self, what: &Executed<'_>, observer: &mut dyn Observer) -> io::Result<()> {
        match *what {
            Executed::Block {
                number,
                pc,
                steps,
                code,
            } => {
                let number = number as usize;
                if number > 1 << 28 {
                    return Err(senseless("a block of a strange number"));
                }
                if self.blocks.len() <= number {
                    self.blocks.resize_with(number + 1, Defined::default);
                }
                self.blocks[number] = Defined::Told {
                    pc,
                    steps: steps.into(),
                    code: code.into(),
                };
                Ok(())
            }
            Executed::Words { thread, fs, words } => {
                let mut taken = self.take(thread)?;
                taken.fs = fs;
                // Apart from the rest, which is changed by what they do.
                let mut blocks = std::mem::take(&mut self.blocks);
                let result = self.words(&mut blocks, &mut taken, thread, words, observer);
                self.blocks = blocks;
                self.threads[thread.0 as usize] = Some(taken);
                result
            }
            // A run is followed, or it is captured.
            Executed::Captured { .. } => Ok(()),
            Executed::Call {
                thread,
                number,
                what,
                words,
            } => {
                let mut taken = self.take(thread)?;
                self.call(&mut taken, thread, (number, what), words, observer);
                self.threads[thread.0 as usize] = Some(taken);
                Ok(())
            }
        }
    }

    fn take(&mut self, thread: ThreadId) -> io::Result<Box<Thread>> {
        let place = self.threads.get_mut(thread.0 as usize);
        place
            .and_then(Option::take)
            .ok_or_else(|| senseless("something was executed by a thread that never started"))
    }

    // ── words ───────────────────────────────────────────────────────────────────────────────────

    fn words(
        &mut self,
        blocks: &mut [Defined],
        thread: &mut Thread,
        number: ThreadId,
        bytes: &[u8],
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        let (chunks, _) = bytes.as_chunks::<8>();
        let new = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk));
        let mut all = std::mem::take(&mut thread.cut);
        all.extend(new);
        let mut at = 0;
        while let Some(&word) = all.get(at) {
            let kind = (word >> 56) as u8;
            let step = usize::from((word >> 48) as u8);
            let rest = word & words::REST_MASK;
            let more = match kind {
                words::DETAIL => rest as usize,
                words::SIGNAL => 2,
                words::BREAK | words::RETURN => 1,
                _ => 0,
            };
            if more > FOLLOWING_MAX {
                return Err(senseless("more words to an operand than there can be"));
            }
            let Some(following) = all.get(at + 1..at + 1 + more) else {
                // The rest is in the next record.
                thread.cut = all.split_off(at);
                return Ok(());
            };
            at += 1 + more;
            if kind == words::HEAD
                && let Some(block) = blocks.get_mut(rest as usize)
                && let Defined::Told { pc, steps, code } = block
            {
                *block = Defined::Read(self.reader.block(*pc, steps, code));
            }
            let mut run = Run {
                follower: self,
                blocks,
                thread,
                number,
                observer,
            };
            match kind {
                words::HEAD => {
                    run.finish();
                    let block = rest as usize;
                    if blocks.get(block).and_then(Defined::block).is_none() {
                        return Err(senseless("a block was executed that was never defined"));
                    }
                    run.thread.open = Some(Open { block, next: 0 });
                    run.thread.announced.reset(0);
                }
                words::OPERAND => {
                    run.until(step);
                    // The base is there in case it is in `fs`.
                    let is_tracked =
                        run.is_tracked(rest) || run.is_tracked(rest.wrapping_add(run.thread.fs));
                    let told = run.thread.announced.of(step);
                    told.operand = Some(rest);
                    told.is_tracked |= is_tracked;
                }
                words::STACK => {
                    run.until(step);
                    let is_tracked = run.is_tracked(rest);
                    let told = run.thread.announced.of(step);
                    told.stack = Some(rest);
                    told.is_tracked |= is_tracked;
                }
                words::X87 => {
                    run.until(step);
                    run.thread.announced.of(step).x87 = Some(rest as u16);
                }
                words::DETAIL => {
                    run.until(step);
                    let told = run.thread.announced.of(step);
                    told.details.clear();
                    told.details.extend_from_slice(following);
                    told.is_tracked = true;
                }
                words::REST => {
                    run.until(step);
                    run.thread.announced.of(step).rest = Some(rest);
                    run.until(step + 1);
                }
                words::EXIT => {
                    run.until(step + 1);
                    run.thread.open = None;
                }
                words::AT => {
                    run.thread.pc = rest;
                    if let Some(step) = run.step_at(rest) {
                        run.until(step);
                    }
                }
                words::BREAK => {
                    run.thread.pc = rest;
                    match run.step_at(rest) {
                        Some(step) => {
                            run.until(step);
                            run.part(step, following[0]);
                        }
                        None => run.finish(),
                    }
                    run.thread.open = None;
                }
                words::END => run.finish(),
                words::SIGNAL => {
                    run.finish();
                    let memory = self.moves.ordinary_mut(thread.process);
                    memory.clear(following[0], following[1]);
                    thread.is_interrupted(following[0]);
                }
                words::RETURN => {
                    run.finish();
                    thread.returns(following[0]);
                }
                _ => return Err(senseless("a word of a strange kind")),
            }
        }
        Ok(())
    }

    // ── system calls ────────────────────────────────────────────────────────────────────────────

    fn call(
        &mut self,
        thread: &mut Thread,
        number: ThreadId,
        (call, what): (u32, u32),
        bytes: &[u8],
        observer: &mut dyn Observer,
    ) {
        let (chunks, _) = bytes.as_chunks::<8>();
        let given: Vec<u64> = chunks.iter().map(|c| u64::from_le_bytes(*c)).collect();
        let ranges = |from: usize| {
            let (pairs, _) = given.get(from..).unwrap_or(&[]).as_chunks::<2>();
            pairs.to_vec()
        };
        match what {
            words::call::BEGINS | words::call::MORE => {
                if what == words::call::BEGINS {
                    thread.call = Call {
                        number: call,
                        ..Call::default()
                    };
                    let makes = matches!(call, CLONE | FORK | VFORK | CLONE3);
                    let is_worth_it = makes && thread.registers.any();
                    thread.making = is_worth_it.then(|| thread.registers.clone());
                }
                for [address, len] in ranges(0) {
                    let len = len.min(LEAVING_MAX) as usize;
                    let labels = self.leaving(thread, number, (address, len), observer);
                    thread.call.leaving.push(Leaving {
                        address,
                        labels,
                        len,
                    });
                }
            }
            words::call::ENDS | words::call::WROTE => {
                let mut from = 0;
                if what == words::call::ENDS {
                    let result = given.first().map_or(0, |word| *word as i64);
                    let args: [u64; 6] =
                        std::array::from_fn(|n| given.get(1 + n).copied().unwrap_or(0));
                    self.call_is_over(thread, number, (call, result, args), observer);
                    from = 7;
                    thread.call.given = observer.receives(&Received {
                        process: thread.process,
                        thread: number,
                        number: call,
                        args,
                        result,
                    });
                    if call == MMAP && result > 0 {
                        let given = std::mem::take(&mut thread.call.given);
                        self.receive(thread.process, result as u64, 0..args[1], &given);
                    }
                }
                for [address, len] in ranges(from) {
                    self.kernel_wrote(thread, number, address, len);
                }
            }
            _ => {}
        }
    }

    /// Of bytes that a process has been given, those in `part` lie at an address and one behind the
    /// other: they get their labels.
    fn receive(&mut self, process: ProcessId, address: u64, part: Range<u64>, given: &[Given]) {
        for given in given {
            let from = given.from.max(part.start);
            let end = given.from.saturating_add(given.len).min(part.end);
            let end = end.min(from.saturating_add(LEAVING_MAX));
            if from >= end {
                continue;
            }
            let first = given.source.saturating_add((from - given.from) as u32);
            let numbers = first..first.saturating_add((end - from) as u32);
            let labels: Vec<Label> = numbers.map(|n| self.moves.sets.single(n)).collect();
            let memory = self.moves.ordinary_mut(process);
            memory.write(address.wrapping_add(from - part.start), &labels);
        }
    }

    /// A process was started with bytes that have labels, at an address:
    /// [`EventKind::ProcessStart`] has told of it.
    pub fn begins_with(&mut self, process: ProcessId, address: u64, given: &[Given]) {
        self.receive(process, address, 0..u64::MAX, given);
    }

    /// The labels of what is about to leave; none if there are none.
    fn leaving(
        &mut self,
        thread: &Thread,
        number: ThreadId,
        (address, len): (u64, usize),
        observer: &mut dyn Observer,
    ) -> Option<Vec<Label>> {
        let end = address.saturating_add(len as u64);
        let memory = self.moves.ordinary_mut(thread.process);
        let is_ordinary = end <= self.tracked.0 || address >= self.tracked.1;
        if is_ordinary && !memory.any(address, len) {
            return None;
        }
        let access = Access {
            process: thread.process,
            thread: number,
            pc: thread.pc,
            address,
            size: len,
            place: None,
            call: Some(thread.call.number),
        };
        let mut labels = vec![Label::NONE; len];
        self.moves.load(
            &mut self.spaces,
            self.tracked,
            access,
            &mut labels,
            observer,
        );
        labels
            .iter()
            .any(|label| !label.is_none())
            .then_some(labels)
    }

    fn call_is_over(
        &mut self,
        thread: &mut Thread,
        number: ThreadId,
        (call, result, args): (u32, i64, [u64; 6]),
        observer: &mut dyn Observer,
    ) {
        if let Some(registers) = thread.making.take()
            && result > 0
        {
            self.made.insert(result as u32, registers);
        }
        let leaving = std::mem::take(&mut thread.call.leaving);
        // Of these the result is no number of bytes.
        let is_whole = matches!(call, SENDMMSG | MSGSND | MQ_TIMEDSEND);
        let mut left = match is_whole && result >= 0 {
            true => usize::MAX,
            false => usize::try_from(result).unwrap_or(0),
        };
        for part in leaving {
            let size = part.len.min(left);
            left -= size;
            let labels = part.labels.as_deref().unwrap_or(&[]);
            let labels = &labels[..size.min(labels.len())];
            if labels.iter().any(|label| !label.is_none()) {
                let access = Access {
                    process: thread.process,
                    thread: number,
                    pc: thread.pc,
                    address: part.address,
                    size,
                    place: None,
                    call: Some(call),
                };
                observer.leaves(&access, labels, &self.moves.sets);
            }
        }
        let memory = self.moves.ordinary_mut(thread.process);
        let [first, second, third, ..] = args;
        match call {
            MMAP if result > 0 => memory.clear(result as u64, second),
            MUNMAP if result == 0 => memory.clear(first, second),
            MADVISE if result == 0 && matches!(third, DONTNEED | FREE | REMOVE) => {
                memory.clear(first, second);
            }
            MREMAP if result > 0 => memory.rename(first, result as u64, second.min(third)),
            _ => {}
        }
    }

    /// The kernel has written there: what it has read from tracked files, or what depends on
    /// nothing.
    fn kernel_wrote(&mut self, thread: &mut Thread, number: ThreadId, address: u64, len: u64) {
        let call = &mut thread.call;
        let wrote = call.wrote as u64;
        let from = call.wrote.min(call.read.len());
        call.wrote += len.min(LEAVING_MAX) as usize;
        let to = call.wrote.min(call.read.len());
        let known = &call.read[from..to];
        let memory = self.moves.ordinary_mut(thread.process);
        memory.clear(address, len);
        memory.write(address, known);
        let written = wrote..wrote + len.min(LEAVING_MAX);
        self.receive(thread.process, address, written, &call.given);
        if address >= self.tracked.1 || address.saturating_add(len) <= self.tracked.0 {
            return;
        }
        for range in self.spaces.ranges(number, TargetAddr(address), len) {
            let bytes = self.moves.files.entry(range.file).or_default();
            bytes.clear(range.offset, range.len);
        }
    }
}

// Numbers of system calls, and what they are told.
const MMAP: u32 = 9;
const MUNMAP: u32 = 11;
const MREMAP: u32 = 25;
const MADVISE: u32 = 28;
const CLONE: u32 = 56;
const FORK: u32 = 57;
const VFORK: u32 = 58;
const MSGSND: u32 = 69;
const MQ_TIMEDSEND: u32 = 242;
const SENDMMSG: u32 = 307;
const CLONE3: u32 = 435;
const DONTNEED: u64 = 4;
const FREE: u64 = 8;
const REMOVE: u64 = 9;
/// Of one buffer, as many bytes are looked at.
const LEAVING_MAX: u64 = 1 << 26;

/// Words behind another one: an address for each element of a vector register.
const FOLLOWING_MAX: usize = 64;
/// More elements than any string that a machine has memory for.
const STRING_MAX: u64 = 1 << 36;

fn senseless(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Where the components of processor state lie on this machine, which is the one that the program
/// runs on.
fn machine_layout() -> XsaveLayout {
    let (low, high): (u32, u32);
    // SAFETY: it reads a register that programs may read, and has no effects; processors that the
    // tool runs on have it.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    XsaveLayout::from_cpuid(u64::from(high) << 32 | u64::from(low), |leaf, subleaf| {
        let answer = brownout_abi::cpu::cpuid(leaf, subleaf);
        [answer.eax, answer.ebx, answer.ecx, answer.edx]
    })
}

impl Thread {
    /// A signal handler begins, with most registers as they are.
    fn is_interrupted(&mut self, frame: u64) {
        const NESTED_MAX: usize = 64;
        if self.frames.len() == NESTED_MAX {
            self.frames.remove(0);
        }
        self.frames.push((frame, self.registers.clone()));
        const RAX: usize = 0;
        const RDX: usize = 2;
        const RSP: usize = 4;
        const RSI: usize = 6;
        const RDI: usize = 7;
        for register in [RAX, RDX, RSP, RSI, RDI] {
            self.registers.clear(Span::new(Place::gpr(register), 8));
        }
        for register in 0..32 {
            self.registers.clear(Span::new(Place::vector(register), 64));
        }
        self.registers.look();
    }

    /// It returns.
    fn returns(&mut self, frame: u64) {
        // Those in between were left by a long jump.
        if let Some(at) = self.frames.iter().rposition(|(other, _)| *other == frame) {
            self.frames.truncate(at + 1);
            if let Some((_, registers)) = self.frames.pop() {
                self.registers = registers;
            }
        }
    }
}

/// One thread goes on.
struct Run<'a> {
    follower: &'a mut Follower,
    blocks: &'a [Defined],
    thread: &'a mut Thread,
    number: ThreadId,
    observer: &'a mut dyn Observer,
}

impl Run<'_> {
    fn step_at(&self, pc: u64) -> Option<usize> {
        let open = self.thread.open?;
        self.blocks[open.block].block()?.step_at(pc)
    }

    /// The block was executed to its end.
    fn finish(&mut self) {
        self.until(usize::MAX);
        self.thread.open = None;
    }

    /// Everything before `step` was executed.
    fn until(&mut self, step: usize) {
        let Some(open) = &mut self.thread.open else {
            return;
        };
        let Some(block) = self.blocks[open.block].block() else {
            return;
        };
        let end = step.min(block.steps.len());
        let from = open.next;
        if from >= end {
            return;
        }
        open.next = end;
        if self.is_quiet(block, from, end) {
            self.follower.executed += (end - from) as u64;
            return;
        }
        for number in from..end {
            self.step(&block.steps[number], number, None);
        }
    }

    /// Nothing has a label that these steps could touch, and they load nothing that could get one.
    #[inline]
    fn is_quiet(&self, block: &Block, from: usize, to: usize) -> bool {
        let told = &self.thread.announced;
        let memory = self.follower.moves.ordinary(self.thread.process);
        let has_labels =
            self.thread.registers.any() || memory.is_some_and(|memory| !memory.is_empty());
        let may_load = told.is_tracked && (from..to).contains(&told.step);
        !has_labels && !may_load && !block.has_unknown
    }

    /// Whether memory near there may be tracked.
    #[inline]
    fn is_tracked(&self, at: u64) -> bool {
        /// No operand of a single address has more bytes.
        const LONGEST: u64 = 4096;
        let (first, end) = self.follower.tracked;
        at.saturating_add(LONGEST) > first && at < end.saturating_add(LONGEST)
    }

    /// The thread has left the block at `step`; if that is a repeated string instruction, `rcx`
    /// tells how far it has come.
    fn part(&mut self, step: usize, rcx: u64) {
        let Some(open) = self.thread.open else {
            return;
        };
        let announced = &self.thread.announced;
        let Some(&before) = announced.details.get(2).filter(|_| announced.step == step) else {
            return;
        };
        let Some(block) = self.blocks[open.block].block() else {
            return;
        };
        if let Some(this) = block.steps.get(step)
            && this.repeat != Repeat::Once
            && before != rcx
        {
            let mask = if this.narrow {
                u64::from(u32::MAX)
            } else {
                u64::MAX
            };
            self.step(this, step, Some(before.wrapping_sub(rcx) & mask));
        }
    }

    /// A step was executed; `times`: so many repetitions of it.
    fn step(&mut self, step: &Step, number: usize, times: Option<u64>) {
        let Follower {
            moves,
            spaces,
            tracked,
            given_up,
            executed,
            touched,
            ..
        } = &mut *self.follower;
        *executed += 1;
        if let Some(written) = &step.unknown {
            *given_up += 1;
            for span in written {
                self.thread.registers.clear(*span);
            }
            self.thread.registers.look();
            return;
        }
        let concerns = self.thread.registers.concern(&step.summary);
        if step.memory.is_empty() && step.state.is_none() {
            if concerns {
                note(touched, step.pc);
                let told = self.thread.announced.of(number);
                let top = told.x87.unwrap_or(0) >> 11 & 7;
                if let (Some(from), Some(&value)) = (step.first_bit_of, told.details.first()) {
                    self.thread.registers.hide_behind_first_bit(from, value);
                }
                moves.apply(
                    &[&step.opening, &step.body],
                    &mut self.thread.registers,
                    top as u8,
                );
                self.thread.registers.show_hidden(&step.summary);
                self.thread.registers.written(&step.summary);
            }
            return;
        }
        let mut machine = Memory {
            moves,
            touched,
            spaces,
            tracked: *tracked,
            observer: self.observer,
            access: Access {
                process: self.thread.process,
                thread: self.number,
                pc: step.pc,
                address: 0,
                size: 0,
                place: None,
                call: None,
            },
        };
        self.thread.announced.of(number);
        let done = machine.step(
            step,
            &self.thread.announced,
            self.thread.fs,
            times,
            &mut self.thread.registers,
            concerns,
        );
        if done.is_none() {
            // An operand was not told.
            *given_up += 1;
        }
    }
}

fn note(touched: &mut Option<HashSet<u64>>, pc: u64) {
    if let Some(touched) = touched {
        touched.insert(pc);
    }
}

fn has_any(labels: &[Label]) -> bool {
    labels.iter().any(|label| !label.is_none())
}

/// What an instruction that touches memory needs.
struct Memory<'a> {
    moves: &'a mut Moves,
    touched: &'a mut Option<HashSet<u64>>,
    spaces: &'a mut AddressSpaces,
    tracked: (u64, u64),
    observer: &'a mut dyn Observer,
    access: Access,
}

/// Where an operand is.
enum Where<'a> {
    At(u64),
    Elements(&'a [u64]),
}

impl Memory<'_> {
    fn is_ordinary(&self, at: u64, len: usize) -> bool {
        at >= self.tracked.1 || at.saturating_add(len as u64) <= self.tracked.0
    }

    fn has_labels(&self, at: u64, len: usize) -> bool {
        let memory = self.moves.ordinary(self.access.process);
        memory.is_some_and(|memory| memory.any(at, len))
    }

    /// Moves the labels of one instruction. None: it was not told where an operand is.
    fn step(
        &mut self,
        step: &Step,
        told: &Announced,
        fs: u64,
        times: Option<u64>,
        registers: &mut Registers,
        mut concerns: bool,
    ) -> Option<()> {
        if let Some(transfer) = &step.state {
            return self.state(step, transfer, told, registers, concerns);
        }
        if told.details.len() >= words::detail::STRING
            && step
                .memory
                .iter()
                .any(|operand| matches!(operand.at, At::StringSource | At::StringDestination))
        {
            return self.string(step, told, fs, times, registers, concerns);
        }
        let base = if step.in_fs { fs } else { 0 };
        for (operand, is_first) in step.memory.iter().zip([true, false]) {
            match place(operand, told, base)? {
                Where::At(at) => {
                    let len = usize::from(operand.bytes);
                    concerns |= !self.is_ordinary(at, len) || self.has_labels(at, len);
                }
                Where::Elements(_) => concerns |= is_first,
            }
        }
        if !concerns {
            return Some(());
        }
        let mut touches = registers.concern(&step.summary);
        let mut addresses = [Label::NONE; MEMORY_OPERANDS_MAX];
        for (number, operand) in step.memory.iter().enumerate() {
            addresses[number] = self.moves.address(operand, registers);
            let at = place(operand, told, base)?;
            self.fetch(number, operand, at, addresses[number]);
            touches |= has_any(&self.moves.operands[number]);
        }
        if touches {
            note(self.touched, step.pc);
        }
        let top = told.x87.unwrap_or(0) >> 11 & 7;
        self.moves
            .apply(&[&step.opening, &step.body], registers, top as u8);
        registers.written(&step.summary);
        for (number, operand) in step.memory.iter().enumerate() {
            if operand.written {
                let at = place(operand, told, base)?;
                self.put(number, operand, at, addresses[number]);
            }
        }
        Some(())
    }

    /// Fills the buffer of an operand.
    fn fetch(&mut self, number: usize, operand: &MemoryOperand, at: Where<'_>, address: Label) {
        let mut labels = std::mem::take(&mut self.moves.operands[number]);
        labels.clear();
        labels.resize(operand.bytes.into(), Label::NONE);
        match at {
            Where::At(at) => self.fetch_at(at, &mut labels, operand.read),
            Where::Elements(elements) => {
                let size = usize::from(operand.element_bytes.max(1));
                for (element, part) in elements.iter().zip(labels.chunks_mut(size)) {
                    if *element != 0 {
                        self.fetch_at(*element, part, operand.read);
                    }
                }
            }
        }
        if operand.read && !address.is_none() && self.moves.by_pointers {
            for label in &mut labels {
                *label = self.moves.sets.union(*label, address);
            }
        }
        self.moves.operands[number] = labels;
    }

    fn fetch_at(&mut self, at: u64, labels: &mut [Label], is_read: bool) {
        let access = Access {
            address: at,
            size: labels.len(),
            ..self.access
        };
        match is_read {
            true => self
                .moves
                .load(self.spaces, self.tracked, access, labels, self.observer),
            // Bytes that the instruction leaves alone keep their labels.
            false => self.moves.peek(self.spaces, self.tracked, access, labels),
        }
    }

    /// Puts the buffer of an operand back.
    fn put(&mut self, number: usize, operand: &MemoryOperand, at: Where<'_>, address: Label) {
        let labels = std::mem::take(&mut self.moves.operands[number]);
        match at {
            Where::At(at) => self.put_at(at, &labels, address),
            Where::Elements(elements) => {
                let size = usize::from(operand.element_bytes.max(1));
                for (element, part) in elements.iter().zip(labels.chunks(size)) {
                    if *element != 0 {
                        self.put_at(*element, part, address);
                    }
                }
            }
        }
        self.moves.operands[number] = labels;
    }

    fn put_at(&mut self, at: u64, labels: &[Label], address: Label) {
        let access = Access {
            address: at,
            size: labels.len(),
            ..self.access
        };
        self.moves.store(
            self.spaces,
            self.tracked,
            access,
            labels,
            address,
            self.observer,
        );
    }

    /// A string instruction.
    fn string(
        &mut self,
        step: &Step,
        told: &Announced,
        fs: u64,
        times: Option<u64>,
        registers: &mut Registers,
        concerns: bool,
    ) -> Option<()> {
        const DIRECTION: u64 = 1 << 10;
        /// More at once would only take memory.
        const AT_ONCE: u64 = 1 << 16;
        let mask = if step.narrow {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        let [rsi, rdi, rcx, flags] = *told.details.first_chunk()?;
        let (mut source, mut destination) = (rsi & mask, rdi & mask);
        let rcx = rcx & mask;
        if step.in_fs {
            source = source.wrapping_add(fs);
        }
        let mut left = times.unwrap_or(match (step.repeat, told.rest) {
            (Repeat::Once, _) => 1,
            (Repeat::Count, _) => rcx,
            (_, Some(rest)) => rcx.wrapping_sub(rest) & words::REST_MASK & mask,
            (_, None) => return None,
        });
        if left == 0 {
            return Some(());
        }
        let element = u64::from(step.memory.first()?.bytes);
        if element == 0 || left > STRING_MAX {
            return None;
        }
        let is_backwards = flags & DIRECTION != 0;
        let lowest = |at: u64, count: u64| match is_backwards {
            true => at.wrapping_sub((count - 1) * element),
            false => at,
        };
        let distance = source.abs_diff(destination);
        self.moves.apply(&[&step.opening], registers, 0);
        while left != 0 {
            let mut count = left.min(AT_ONCE);
            if step.memory.len() > 1 && distance < count * element {
                // What it stores it may load again.
                count = (distance / element).max(1).min(count);
            }
            let len = (count * element) as usize;
            let mut concerns = concerns || registers.concern(&step.summary);
            for operand in &step.memory {
                let at = lowest(pick(operand, source, destination), count);
                concerns |= !self.is_ordinary(at, len) || self.has_labels(at, len);
            }
            if concerns {
                self.elements(step, (source, destination), count, is_backwards, registers);
            }
            let bytes = count.wrapping_mul(element);
            (source, destination) = match is_backwards {
                true => (source.wrapping_sub(bytes), destination.wrapping_sub(bytes)),
                false => (source.wrapping_add(bytes), destination.wrapping_add(bytes)),
            };
            left -= count;
        }
        Some(())
    }

    /// Some repetitions of a string instruction, none of which loads what another one stores.
    fn elements(
        &mut self,
        step: &Step,
        (source, destination): (u64, u64),
        count: u64,
        is_backwards: bool,
        registers: &mut Registers,
    ) {
        let element = usize::from(step.memory[0].bytes);
        let len = count as usize * element;
        let lowest = |at: u64| match is_backwards {
            true => at.wrapping_sub((len - element) as u64),
            false => at,
        };
        let mut wholes: [Vec<Label>; MEMORY_OPERANDS_MAX] = Default::default();
        let mut addresses = [Label::NONE; MEMORY_OPERANDS_MAX];
        for (number, operand) in step.memory.iter().enumerate() {
            let at = lowest(pick(operand, source, destination));
            addresses[number] = self.moves.address(operand, registers);
            wholes[number].resize(len, Label::NONE);
            self.fetch_at(at, &mut wholes[number], operand.read);
            if operand.read && !addresses[number].is_none() && self.moves.by_pointers {
                for label in &mut wholes[number] {
                    *label = self.moves.sets.union(*label, addresses[number]);
                }
            }
        }
        if registers.concern(&step.summary) || wholes.iter().any(|labels| has_any(labels)) {
            note(self.touched, step.pc);
        }
        for n in 0..count as usize {
            let n = if is_backwards {
                count as usize - 1 - n
            } else {
                n
            };
            let part = n * element..(n + 1) * element;
            for (number, _) in step.memory.iter().enumerate() {
                let buffer = &mut self.moves.operands[number];
                buffer.clear();
                buffer.extend_from_slice(&wholes[number][part.clone()]);
            }
            self.moves.apply(&[&step.body], registers, 0);
            for (number, operand) in step.memory.iter().enumerate() {
                if operand.written {
                    wholes[number][part.clone()].copy_from_slice(&self.moves.operands[number]);
                }
            }
        }
        registers.written(&step.summary);
        for (number, operand) in step.memory.iter().enumerate() {
            if operand.written {
                let at = lowest(pick(operand, source, destination));
                self.put_at(at, &wholes[number], addresses[number]);
            }
        }
    }

    /// Processor state is saved or restored.
    fn state(
        &mut self,
        step: &Step,
        transfer: &StateTransfer,
        told: &Announced,
        registers: &mut Registers,
        concerns: bool,
    ) -> Option<()> {
        const AREA: usize = 4096;
        let [area, requested, used, compaction, top] = *told.details.first_chunk()?;
        const { assert!(words::detail::STATE == 5) };
        if !concerns && self.is_ordinary(area, AREA) && !self.has_labels(area, AREA) {
            return Some(());
        }
        let access = Access {
            address: area,
            size: AREA,
            ..self.access
        };
        let mut labels = vec![Label::NONE; AREA];
        self.moves
            .peek(self.spaces, self.tracked, access, &mut labels);
        let before = labels.clone();
        self.moves.operands[0] = labels;
        let facts = StateFacts {
            layout: &self.moves.layout,
            requested,
            used,
            compaction,
            top: top as u8,
        };
        let mut applied = Applied {
            registers: &mut registers.labels,
            operands: &mut self.moves.operands,
            sets: &mut self.moves.sets,
            top: top as u8,
        };
        brownout_flow::transfer_state(transfer, &facts, &mut applied);
        registers.written(&step.summary);
        let labels = std::mem::take(&mut self.moves.operands[0]);
        if labels != before {
            self.moves.set(self.spaces, self.tracked, access, &labels);
        }
        self.moves.operands[0] = labels;
        Some(())
    }
}

/// Which of the two a string operand is.
fn pick(operand: &MemoryOperand, source: u64, destination: u64) -> u64 {
    match operand.at {
        At::StringSource => source,
        _ => destination,
    }
}

/// Where an operand is, by what was told.
fn place<'t>(operand: &MemoryOperand, told: &'t Announced, base: u64) -> Option<Where<'t>> {
    let detail = |n: usize| told.details.get(n).copied();
    let at = match operand.at {
        At::Operand => match detail(0) {
            Some(at) => at,
            None => told.operand?.wrapping_add(base),
        },
        At::BitString | At::Rdi | At::Line => detail(0)?,
        At::RegisterDestination => detail(1)?,
        At::Elements => return Some(Where::Elements(&told.details)),
        At::Pop | At::Frame => told.stack?,
        At::Push => told.stack?.wrapping_sub(operand.bytes.into()),
        At::StringSource => detail(0)?,
        At::StringDestination => detail(1)?,
    };
    Some(Where::At(at))
}

impl Moves {
    fn knows(&self, process: ProcessId) -> bool {
        self.ordinary(process).is_some()
    }

    /// The labels of a process's memory.
    #[inline]
    fn ordinary(&self, process: ProcessId) -> Option<&Bytes> {
        self.memory.get(process.0 as usize)?.as_ref()
    }

    fn ordinary_mut(&mut self, process: ProcessId) -> &mut Bytes {
        let number = process.0 as usize;
        if self.memory.len() <= number {
            self.memory.resize_with(number + 1, || None);
        }
        self.memory[number].get_or_insert_default()
    }

    fn apply(&mut self, lists: &[&[Op]], registers: &mut Registers, top: u8) {
        let mut applied = Applied {
            registers: &mut registers.labels,
            operands: &mut self.operands,
            sets: &mut self.sets,
            top,
        };
        for list in lists {
            brownout_flow::run(list, &mut applied);
        }
    }

    /// What the address of an operand was computed from, and how many of its elements there are.
    fn address(&mut self, operand: &MemoryOperand, registers: &Registers) -> Label {
        let spans = operand.address.iter().chain([&operand.extent]);
        let places = spans.flat_map(|span| span.places());
        let mut all = Label::NONE;
        for place in places {
            let label = registers.labels[usize::from(place.0)];
            all = self.sets.union(all, label);
        }
        all
    }

    /// Calls `f` for the stretches of an access: where it is tracked, and which part of it that is.
    fn pieces(
        spaces: &mut AddressSpaces,
        tracked: (u64, u64),
        access: &Access,
        mut f: impl FnMut(Option<(FileId, u64)>, std::ops::Range<usize>),
    ) {
        let (at, size) = (access.address, access.size);
        if at >= tracked.1 || at.saturating_add(size as u64) <= tracked.0 {
            return f(None, 0..size);
        }
        let mut done = 0;
        while done < size {
            let here = at.wrapping_add(done as u64);
            let found = spaces.translate(access.thread, TargetAddr(here));
            let (place, len) = match found {
                Some(found) => (Some((found.file, found.offset)), found.contiguous),
                // Up to the next page, where it may be another matter.
                None => (None, 4096 - here % 4096),
            };
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(size - done);
            f(place, done..done + len);
            done += len;
        }
    }

    /// Labels of what is loaded.
    fn load(
        &mut self,
        spaces: &mut AddressSpaces,
        tracked: (u64, u64),
        access: Access,
        labels: &mut [Label],
        observer: &mut dyn Observer,
    ) {
        Self::pieces(spaces, tracked, &access, |place, part| {
            let part_access = Access {
                address: access.address.wrapping_add(part.start as u64),
                size: part.len(),
                place,
                ..access
            };
            let labels = &mut labels[part];
            match place {
                Some(place) => self.load_tracked(&part_access, place, labels, observer),
                None => self.peek_ordinary(&part_access, labels),
            }
        });
    }

    /// The same, of tracked memory.
    fn load_tracked(
        &mut self,
        access: &Access,
        (file, offset): (FileId, u64),
        labels: &mut [Label],
        observer: &mut dyn Observer,
    ) {
        if let Some(bytes) = self.files.get(&file) {
            bytes.read(offset, labels);
        }
        self.sources.clear();
        self.sources.resize(labels.len(), 0);
        observer.loads(access, &mut self.sources);
        for (label, source) in labels.iter_mut().zip(&self.sources) {
            if *source != 0 {
                let single = self.sets.single(*source);
                *label = self.sets.union(*label, single);
            }
        }
    }

    fn peek_ordinary(&self, access: &Access, labels: &mut [Label]) {
        match self.ordinary(access.process) {
            Some(memory) => memory.read(access.address, labels),
            None => labels.fill(Label::NONE),
        }
    }

    /// Labels of bytes that nobody loads.
    fn peek(
        &self,
        spaces: &mut AddressSpaces,
        tracked: (u64, u64),
        access: Access,
        labels: &mut [Label],
    ) {
        Self::pieces(spaces, tracked, &access, |place, part| {
            let part_access = Access {
                address: access.address.wrapping_add(part.start as u64),
                size: part.len(),
                ..access
            };
            let labels = &mut labels[part];
            match place.map(|(file, offset)| (self.files.get(&file), offset)) {
                Some((Some(bytes), offset)) => bytes.read(offset, labels),
                Some((None, _)) => labels.fill(Label::NONE),
                None => self.peek_ordinary(&part_access, labels),
            }
        });
    }

    /// Sets labels without a word to anybody.
    fn set(
        &mut self,
        spaces: &mut AddressSpaces,
        tracked: (u64, u64),
        access: Access,
        labels: &[Label],
    ) {
        Self::pieces(spaces, tracked, &access, |place, part| {
            let at = access.address.wrapping_add(part.start as u64);
            let labels = &labels[part];
            match place {
                Some((file, offset)) => self.files.entry(file).or_default().write(offset, labels),
                None => self.ordinary_mut(access.process).write(at, labels),
            }
        });
    }

    /// An instruction has stored.
    fn store(
        &mut self,
        spaces: &mut AddressSpaces,
        tracked: (u64, u64),
        access: Access,
        labels: &[Label],
        address: Label,
        observer: &mut dyn Observer,
    ) {
        Self::pieces(spaces, tracked, &access, |place, part| {
            let Some((file, offset)) = place else {
                let at = access.address.wrapping_add(part.start as u64);
                return self.ordinary_mut(access.process).write(at, &labels[part]);
            };
            let part_access = Access {
                address: access.address.wrapping_add(part.start as u64),
                size: part.len(),
                place,
                ..access
            };
            let labels = &labels[part];
            if !address.is_none() || labels.iter().any(|label| !label.is_none()) {
                observer.stores(&part_access, labels, address, &self.sets);
            }
            self.files.entry(file).or_default().write(offset, labels);
        });
    }
}
