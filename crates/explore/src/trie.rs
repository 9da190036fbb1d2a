//! Recoveries that have been run, by what they read: so that none is ever run twice.
//!
//! Recovery is a deterministic function of what it reads. A path from the root is one execution:
//! each read of persistent memory in order (only bytes that it has neither read nor written
//! before), with what it saw, and the outcome at the end. Two executions that see the same do the
//! same, whatever failure point their images come from. So walking the trie with the possible
//! contents of a failure point yields the outcomes that are known, and exactly the first reads at
//! which something new would have to be run.
//!
//! Guarantee: exact. Contents are compared, not hashed. A path that contradicts one already there
//! (another read at the same place after the same contents) means that the recovery depends on
//! something else; the insertion is refused.

use brownout_model::{LineBytes, LineMask};
use rustc_hash::FxHashMap;

use crate::line::LineKey;

/// Bytes of a line that a recovery read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub line: LineKey,
    pub mask: LineMask,
    /// The instruction. Not part of what identifies a path.
    pub pc: u64,
}

impl Read {
    fn is_same(&self, other: &Read) -> bool {
        (self.line, self.mask) == (other.line, other.mask)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ContentId(u32);

/// A place in the trie at which a run is under way, or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

/// An execution in the trie. Unlike a place, it stays the same when more is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u32);

#[derive(Debug)]
struct Node {
    run: Vec<(Read, ContentId)>,
    end: End,
}

#[derive(Debug)]
enum End {
    /// The outcome's number, and the execution that has shown it.
    Outcome(u32, PathId),
    /// Being found out.
    Pending,
    /// Was to be found out, and nothing came of it.
    Open,
    Fork {
        read: Read,
        ways: Vec<(ContentId, NodeId)>,
    },
}

/// What a walk has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Reached {
    /// The outcome is known, by this execution.
    Outcome(u32, PathId),
    /// A run that will tell is under way.
    Pending(NodeId),
    /// Nothing is known beyond this place.
    Unknown,
}

/// A recovery that read something else after the same contents.
#[derive(Debug)]
pub struct Diverged {
    /// Number of reads that agreed.
    pub after: usize,
    /// It agreed as far as it went, but ended before it read what was expected next.
    pub ended: bool,
}

/// See the module's header.
#[derive(Default, Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    /// Executions in it.
    paths: u32,
    contents: FxHashMap<LineBytes, ContentId>,
    /// The same by number: to compare is quicker than to look up.
    bytes: Vec<LineBytes>,
}

impl Trie {
    fn intern(&mut self, bytes: &LineBytes) -> ContentId {
        *self.contents.entry(*bytes).or_insert_with(|| {
            self.bytes.push(*bytes);
            ContentId(self.bytes.len() as u32 - 1)
        })
    }

    fn is_content(&self, id: ContentId, bytes: &LineBytes) -> bool {
        self.bytes[id.0 as usize] == *bytes
    }

    fn new_node(&mut self, end: End) -> NodeId {
        let run = Vec::new();
        self.nodes.push(Node { run, end });
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn new_path(&mut self) -> PathId {
        self.paths += 1;
        PathId(self.paths)
    }

    /// Walks along the contents that `see` gives. `see` is asked for each read, in order, and
    /// answers what is there.
    pub fn walk(&self, mut see: impl FnMut(&Read) -> LineBytes) -> Reached {
        let Some(mut node) = self.nodes.first() else {
            return Reached::Unknown;
        };
        let mut id = NodeId(0);
        loop {
            for (read, content) in &node.run {
                if !self.is_content(*content, &see(read)) {
                    return Reached::Unknown;
                }
            }
            match &node.end {
                End::Outcome(outcome, path) => return Reached::Outcome(*outcome, *path),
                End::Pending => return Reached::Pending(id),
                End::Open => return Reached::Unknown,
                End::Fork { read, ways } => {
                    let seen = self.contents.get(&see(read));
                    match ways.iter().find(|(content, _)| Some(content) == seen) {
                        Some((_, next)) => id = *next,
                        None => return Reached::Unknown,
                    }
                    node = &self.nodes[id.0 as usize];
                }
            }
        }
    }

    /// Marks the place at which a walk became unknown as being found out. `see` must answer as in
    /// that walk.
    pub fn reserve(&mut self, mut see: impl FnMut(&Read) -> LineBytes) -> NodeId {
        if self.nodes.is_empty() {
            return self.new_node(End::Pending);
        }
        let mut id = NodeId(0);
        loop {
            let known = &self.nodes[id.0 as usize];
            let mut stop = None;
            for (i, (read, content)) in known.run.iter().enumerate() {
                let seen = see(read);
                if !self.is_content(*content, &seen) {
                    stop = Some((i, seen));
                    break;
                }
            }
            if let Some((i, seen)) = stop {
                return self.branch(id, i, &seen);
            }
            let End::Fork { read, ways } = &known.end else {
                if let End::Open = known.end {
                    self.nodes[id.0 as usize].end = End::Pending;
                }
                return id;
            };
            let seen = see(read);
            let known = self.contents.get(&seen);
            match ways.iter().find(|(content, _)| Some(content) == known) {
                Some((_, next)) => id = *next,
                None => {
                    let content = self.intern(&seen);
                    let next = self.new_node(End::Pending);
                    if let End::Fork { ways, .. } = &mut self.nodes[id.0 as usize].end {
                        ways.push((content, next));
                    }
                    return next;
                }
            }
        }
    }

    /// Splits a node before its i-th read, at which `seen` differs from what is known.
    fn branch(&mut self, id: NodeId, i: usize, seen: &LineBytes) -> NodeId {
        let content = self.intern(seen);
        let pending = self.new_node(End::Pending);
        let node = &mut self.nodes[id.0 as usize];
        let rest = node.run.split_off(i + 1);
        let Some((read, known)) = node.run.pop() else {
            return pending;
        };
        let end = std::mem::replace(&mut node.end, End::Pending);
        self.nodes.push(Node { run: rest, end });
        let other = NodeId(self.nodes.len() as u32 - 1);
        self.nodes[id.0 as usize].end = End::Fork {
            read,
            ways: vec![(known, other), (content, pending)],
        };
        pending
    }

    /// Stores an execution and its outcome. `pending` is the place that was reserved for it.
    pub fn insert(
        &mut self,
        pending: NodeId,
        path: &[(Read, LineBytes)],
        outcome: u32,
    ) -> Result<PathId, Diverged> {
        let mut at = 0;
        let mut id = NodeId(0);
        loop {
            let node = &self.nodes[id.0 as usize];
            for (read, content) in &node.run {
                match path.get(at) {
                    Some((now, seen)) if now.is_same(read) && self.is_content(*content, seen) => {
                        at += 1;
                    }
                    seen => {
                        return Err(Diverged {
                            after: at,
                            ended: seen.is_none(),
                        });
                    }
                }
            }
            match &node.end {
                End::Pending if id == pending => break,
                End::Fork { read, ways } => {
                    let Some((now, seen)) = path.get(at) else {
                        return Err(Diverged {
                            after: at,
                            ended: true,
                        });
                    };
                    let seen = self.contents.get(seen);
                    let way = ways.iter().find(|(content, _)| Some(content) == seen);
                    match way {
                        Some((_, next)) if now.is_same(read) => id = *next,
                        _ => {
                            return Err(Diverged {
                                after: at,
                                ended: false,
                            });
                        }
                    }
                    at += 1;
                }
                End::Outcome(..) | End::Pending | End::Open => {
                    return Err(Diverged {
                        after: at,
                        ended: false,
                    });
                }
            }
        }
        let rest: Vec<(Read, ContentId)> = path[at..]
            .iter()
            .map(|(read, bytes)| (*read, self.intern(bytes)))
            .collect();
        let path = self.new_path();
        let node = &mut self.nodes[id.0 as usize];
        node.run = rest;
        node.end = End::Outcome(outcome, path);
        Ok(path)
    }

    /// Stores an execution of an earlier exploration.
    pub fn add(&mut self, path: &[(Read, LineBytes)], outcome: u32) -> Result<PathId, Diverged> {
        let next = std::cell::Cell::new(0);
        let diverged = std::cell::Cell::new(false);
        let see = |read: &Read| match path.get(next.replace(next.get() + 1)) {
            Some((now, seen)) if now.is_same(read) => *seen,
            _ => {
                diverged.set(true);
                [0; 64]
            }
        };
        let reached = self.walk(see);
        if diverged.get() || reached != Reached::Unknown {
            return Err(Diverged {
                after: next.get(),
                ended: false,
            });
        }
        next.set(0);
        let node = self.reserve(see);
        self.insert(node, path, outcome)
    }

    /// Gives a reserved place back: what was run there does not fit. Whoever comes to it runs it
    /// again.
    pub fn give_back(&mut self, pending: NodeId) {
        self.nodes[pending.0 as usize].end = End::Open;
    }

    /// Settles a reserved place with an outcome although its path does not fit: the recovery is not
    /// deterministic.
    pub fn settle(&mut self, pending: NodeId, outcome: u32) {
        let path = self.new_path();
        let node = &mut self.nodes[pending.0 as usize];
        node.end = End::Outcome(outcome, path);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use brownout_model::masked;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const LINES: u64 = 4;

    /// A persistent memory of a few lines.
    type Memory = [LineBytes; LINES as usize];

    type Path = Vec<(Read, LineBytes)>;

    fn ended(reached: Reached) -> Option<u32> {
        match reached {
            Reached::Outcome(outcome, _) => Some(outcome),
            _ => None,
        }
    }

    fn mix(state: u64, with: u64) -> u64 {
        let mut z = (state ^ with).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A deterministic program: what it reads next, and how it ends, follows from what it has read
    /// so far.
    fn recover(program: u64, memory: &Memory) -> (Path, u32) {
        let mut known = [0u64; LINES as usize];
        let mut state = mix(program, 0);
        let mut path = Path::new();
        for _ in 0..12 {
            state = mix(state, 1);
            if state.is_multiple_of(6) {
                break;
            }
            let line = (state >> 8) % LINES;
            let mask = [0xff, 0xff00, 0xffff, u64::MAX][(state >> 16) as usize % 4];
            let new = mask & !known[line as usize];
            if new == 0 {
                continue;
            }
            known[line as usize] |= new;
            let seen = masked(&memory[line as usize], new);
            for word in seen.chunks(8) {
                let word = word.try_into().map_or(0, u64::from_le_bytes);
                state = mix(state, word);
            }
            let line = LineKey(line);
            // The instruction is not what identifies a read.
            let pc = path.len() as u64;
            let read = Read {
                line,
                mask: new,
                pc,
            };
            path.push((read, seen));
        }
        (path, (state % 5) as u32)
    }

    fn seeing(memory: &Memory) -> impl Fn(&Read) -> LineBytes {
        |read| masked(&memory[read.line.0 as usize], read.mask)
    }

    /// Each word of each line holds one of two values, so that memories share much.
    fn memory() -> impl Strategy<Value = Memory> {
        prop::array::uniform4(prop::array::uniform2(0u8..2)).prop_map(|lines| {
            lines.map(|[first, second]| {
                let mut line = [0; 64];
                line[0] = first;
                line[8] = second;
                line
            })
        })
    }

    fn is_in_flight(running: &[(NodeId, Memory)], node: NodeId) -> bool {
        running.iter().any(|(of, _)| *of == node)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Recoveries start and come back in any order, several at a time, as in the search.
        #[test]
        fn every_memory_gets_its_outcome_and_nothing_runs_twice(
            program: u64,
            memories in prop::collection::vec(memory(), 1..40),
            order in prop::collection::vec((any::<bool>(), any::<Index>()), 0..80),
        ) {
            let mut trie = Trie::default();
            let mut queue = memories.clone();
            let mut running: Vec<(NodeId, Memory)> = Vec::new();
            let mut waiting: Vec<(NodeId, Memory)> = Vec::new();
            let mut executed: BTreeSet<Vec<(u64, u64, LineBytes)>> = BTreeSet::new();
            let mut executions: Vec<(Path, u32)> = Vec::new();
            let mut order = order.into_iter();
            while !queue.is_empty() || !running.is_empty() {
                let (is_arrival, which) = order.next().map_or((true, 0), |(is_arrival, which)| (is_arrival, which.index(1 << 20)));
                if !running.is_empty() && (is_arrival || queue.is_empty()) {
                    let (node, memory) = running.swap_remove(which % running.len());
                    let (path, outcome) = recover(program, &memory);
                    prop_assert!(trie.insert(node, &path, outcome).is_ok());
                    executions.push((path, outcome));
                    let (done, still): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(of, _)| *of == node);
                    waiting = still;
                    queue.extend(done.into_iter().map(|(_, memory)| memory));
                    continue;
                }
                let memory = queue.swap_remove(which % queue.len());
                let (path, expected) = recover(program, &memory);
                match trie.walk(seeing(&memory)) {
                    Reached::Outcome(outcome, _) => prop_assert_eq!(outcome, expected),
                    Reached::Pending(node) => {
                        prop_assert!(is_in_flight(&running, node), "nobody will tell");
                        waiting.push((node, memory));
                    }
                    Reached::Unknown => {
                        let key = path.iter().map(|(r, bytes)| (r.line.0, r.mask, *bytes)).collect();
                        prop_assert!(executed.insert(key), "this recovery was run before");
                        let node = trie.reserve(seeing(&memory));
                        prop_assert_eq!(trie.walk(seeing(&memory)), Reached::Pending(node));
                        running.push((node, memory));
                    }
                }
            }
            prop_assert!(waiting.is_empty());
            for memory in &memories {
                prop_assert_eq!(ended(trie.walk(seeing(memory))), Some(recover(program, memory).1));
            }
            let distinct: BTreeSet<Vec<LineBytes>> =
                memories.iter().map(|m| recover(program, m).0.into_iter().map(|(_, bytes)| bytes).collect()).collect();
            prop_assert_eq!(executions.len(), distinct.len());

            // A journal gives the same trie, whatever part of it there is.
            let mut reloaded = Trie::default();
            for (i, (path, outcome)) in executions.iter().rev().enumerate() {
                prop_assert!(reloaded.add(path, *outcome).is_ok());
                prop_assert!(reloaded.add(path, *outcome).is_err(), "the same twice");
                if i % 4 != 0 {
                    continue;
                }
                for memory in &memories {
                    match reloaded.walk(seeing(memory)) {
                        Reached::Unknown => {}
                        reached => prop_assert_eq!(ended(reached), Some(recover(program, memory).1)),
                    }
                }
            }
            for memory in &memories {
                prop_assert_eq!(ended(reloaded.walk(seeing(memory))), ended(trie.walk(seeing(memory))));
            }
        }

        /// A recovery that does something else after the same contents is refused, and what is
        /// known stays.
        #[test]
        fn another_path_after_the_same_contents_is_refused(
            program: u64,
            memories in prop::collection::vec(memory(), 2..20),
            at: Index,
            how in 0u8..3,
        ) {
            let mut trie = Trie::default();
            let add = |trie: &mut Trie, memory: &Memory| {
                if trie.walk(seeing(memory)) == Reached::Unknown {
                    let node = trie.reserve(seeing(memory));
                    let (path, outcome) = recover(program, memory);
                    return trie.insert(node, &path, outcome).is_ok();
                }
                true
            };
            let Some((odd, rest)) = memories.split_first() else { return Ok(()) };
            for memory in rest {
                prop_assert!(add(&mut trie, memory));
            }
            if trie.walk(seeing(odd)) != Reached::Unknown {
                return Ok(());
            }
            // It must agree with what is known up to the place that was reserved; beyond, it may do
            // as it likes.
            let asked = std::cell::Cell::new(0);
            trie.walk(|read| {
                asked.set(asked.get() + 1);
                seeing(odd)(read)
            });
            let (mut path, _) = recover(program, odd);
            let at = at.index(asked.get());
            match how {
                0 => path[at].0.mask ^= 1,
                1 => path[at].0.line.0 += LINES,
                _ => path.truncate(at),
            }
            let node = trie.reserve(seeing(odd));
            let refused = trie.insert(node, &path, 77);
            prop_assert_eq!(refused.map_err(|diverged| diverged.after), Err(at));
            prop_assert_eq!(trie.walk(seeing(odd)), Reached::Pending(node), "it can be tried again");
            trie.give_back(node);
            prop_assert_eq!(trie.walk(seeing(odd)), Reached::Unknown);
            prop_assert_eq!(trie.reserve(seeing(odd)), node);
            trie.settle(node, 78);
            prop_assert_eq!(ended(trie.walk(seeing(odd))), Some(78));
            for memory in rest {
                prop_assert_eq!(ended(trie.walk(seeing(memory))), Some(recover(program, memory).1));
            }
        }
    }

    #[test]
    fn a_recovery_that_reads_nothing_is_known_for_every_memory() {
        let mut trie = Trie::default();
        let nothing = |_: &Read| -> LineBytes { unreachable!("there is nothing to read") };
        assert_eq!(trie.walk(nothing), Reached::Unknown);
        let node = trie.reserve(nothing);
        assert!(trie.insert(node, &[], 3).is_ok());
        assert_eq!(ended(trie.walk(nothing)), Some(3));
        assert!(trie.add(&[], 3).is_err());
    }
}
