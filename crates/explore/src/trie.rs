//! Recoveries that have been run, by what they read: so that none is ever run twice.
//!
//! Recovery is a deterministic function of what it reads. A path from the root is one execution: each read of persistent memory
//! in order (only bytes that it has neither read nor written before), with what it saw, and the outcome at
//! the end. Two executions that see the same do the same, whatever failure point their images come from. So walking the trie with
//! the possible contents of a failure point yields the outcomes that are known, and exactly the first reads at which something
//! new would have to be run.
//!
//! Guarantee: exact. Contents are compared, not hashed. A path that contradicts one already there (another read at the same
//! place after the same contents) means that the recovery depends on something else; the insertion is refused.

use brownout_model::{LineBytes, LineMask};
use rustc_hash::FxHashMap;

use crate::place::LineKey;

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

#[derive(Debug)]
struct Node {
    run: Vec<(Read, ContentId)>,
    end: End,
}

#[derive(Debug)]
enum End {
    /// The outcome's number.
    Outcome(u32),
    /// Being found out.
    Pending,
    Fork {
        read: Read,
        ways: Vec<(ContentId, NodeId)>,
    },
}

/// What a walk has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Reached {
    /// The outcome is known.
    Outcome(u32),
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
}

/// See the module's header.
#[derive(Default, Debug)]
pub struct Trie {
    nodes: Vec<Node>,
    contents: FxHashMap<LineBytes, ContentId>,
}

impl Trie {
    fn intern(&mut self, bytes: &LineBytes) -> ContentId {
        let next = ContentId(self.contents.len() as u32);
        *self.contents.entry(*bytes).or_insert(next)
    }

    fn new_node(&mut self, end: End) -> NodeId {
        let run = Vec::new();
        self.nodes.push(Node { run, end });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Walks along the contents that `see` gives. `see` is asked for each read, in order, and answers what is there.
    pub fn walk(&self, mut see: impl FnMut(&Read) -> LineBytes) -> Reached {
        let Some(mut node) = self.nodes.first() else {
            return Reached::Unknown;
        };
        let mut id = NodeId(0);
        loop {
            for (read, content) in &node.run {
                if self.contents.get(&see(read)) != Some(content) {
                    return Reached::Unknown;
                }
            }
            match &node.end {
                End::Outcome(outcome) => return Reached::Outcome(*outcome),
                End::Pending => return Reached::Pending(id),
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

    /// Marks the place at which a walk became unknown as being found out. `see` must answer as in that walk.
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
                if self.contents.get(&seen) != Some(content) {
                    stop = Some((i, seen));
                    break;
                }
            }
            if let Some((i, seen)) = stop {
                return self.branch(id, i, &seen);
            }
            let End::Fork { read, ways } = &known.end else {
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
    ) -> Result<(), Diverged> {
        let mut at = 0;
        let mut id = NodeId(0);
        loop {
            let node = &self.nodes[id.0 as usize];
            for (read, content) in &node.run {
                match path.get(at) {
                    Some((now, seen))
                        if now.is_same(read) && self.contents.get(seen) == Some(content) =>
                    {
                        at += 1;
                    }
                    _ => return Err(Diverged { after: at }),
                }
            }
            match &node.end {
                End::Pending if id == pending => break,
                End::Fork { read, ways } => {
                    let Some((now, seen)) = path.get(at) else {
                        return Err(Diverged { after: at });
                    };
                    let seen = self.contents.get(seen);
                    let way = ways.iter().find(|(content, _)| Some(content) == seen);
                    match way {
                        Some((_, next)) if now.is_same(read) => id = *next,
                        _ => return Err(Diverged { after: at }),
                    }
                    at += 1;
                }
                End::Outcome(_) | End::Pending => return Err(Diverged { after: at }),
            }
        }
        let rest: Vec<(Read, ContentId)> = path[at..]
            .iter()
            .map(|(read, bytes)| (*read, self.intern(bytes)))
            .collect();
        let node = &mut self.nodes[id.0 as usize];
        node.run = rest;
        node.end = End::Outcome(outcome);
        Ok(())
    }

    /// Stores an execution of an earlier exploration.
    pub fn add(&mut self, path: &[(Read, LineBytes)], outcome: u32) -> Result<(), Diverged> {
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
            return Err(Diverged { after: next.get() });
        }
        next.set(0);
        let node = self.reserve(see);
        self.insert(node, path, outcome)
    }

    /// Settles a reserved place with an outcome although its path does not fit: the recovery is not deterministic.
    pub fn settle(&mut self, pending: NodeId, outcome: u32) {
        let node = &mut self.nodes[pending.0 as usize];
        node.end = End::Outcome(outcome);
    }
}
