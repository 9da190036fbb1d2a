//! What recoveries have shown so far: their paths and outcomes, in memory and in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use brownout_model::LineBytes;
use brownout_trace::event::FileId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::execution::{Acknowledged, Execution};
use crate::journal::{Entry, Journal};
use crate::outcome::Outcome;
use crate::trie::{Diverged, NodeId, PathId, Reached, Read, Trie};
use crate::view::{FileState, Files};

/// What recovery depends on beside what it reads: the files that it finds, and what a checker is
/// told.
pub type Circumstances = (Arc<Files>, Acknowledged);

/// Recoveries under the same circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrieId(usize);

/// See the module's header.
#[derive(Default)]
pub struct Known {
    /// Distinct outcomes. Others refer to them by their number.
    pub outcomes: Vec<Outcome>,
    ids: FxHashMap<Outcome, u32>,
    tries: Vec<Trie>,
    trie_ids: BTreeMap<Circumstances, TrieId>,
    /// Executions that change nothing.
    idle: FxHashSet<(TrieId, PathId)>,
    /// Where executions are written down.
    pub journal: Option<Journal>,
}

impl Known {
    /// Recoveries under these circumstances.
    pub fn trie(&mut self, circumstances: Circumstances) -> TrieId {
        let next = TrieId(self.tries.len());
        let id = *self.trie_ids.entry(circumstances).or_insert(next);
        if id == next {
            self.tries.push(Trie::default());
        }
        id
    }

    /// What is known of the recovery that sees this.
    pub fn walk(&self, trie: TrieId, see: impl FnMut(&Read) -> LineBytes) -> Reached {
        self.tries[trie.0].walk(see)
    }

    /// For a walk that changes other things on its way: it must be [put back](Known::put_back).
    pub fn lend(&mut self, trie: TrieId) -> Trie {
        std::mem::take(&mut self.tries[trie.0])
    }

    pub fn put_back(&mut self, id: TrieId, trie: Trie) {
        self.tries[id.0] = trie;
    }

    /// A recovery that sees this is about to be run.
    pub fn reserve(&mut self, trie: TrieId, see: impl FnMut(&Read) -> LineBytes) -> NodeId {
        self.tries[trie.0].reserve(see)
    }

    /// What came of it. It is refused if it contradicts what is known.
    pub fn insert(
        &mut self,
        trie: TrieId,
        node: NodeId,
        execution: &Execution,
        outcome: u32,
    ) -> Result<(), Diverged> {
        let path = self.tries[trie.0].insert(node, &execution.path, outcome)?;
        if execution.changes_nothing {
            self.idle.insert((trie, path));
        }
        Ok(())
    }

    /// Whether recovery was seen to change nothing there.
    pub fn changes_nothing(&self, execution: &(TrieId, PathId)) -> bool {
        self.idle.contains(execution)
    }

    /// Whatever it has read: this is how it ended.
    pub fn settle(&mut self, trie: TrieId, node: NodeId, outcome: u32) {
        self.tries[trie.0].settle(node, outcome);
    }

    /// Nothing came of it.
    pub fn give_back(&mut self, trie: TrieId, node: NodeId) {
        self.tries[trie.0].give_back(node);
    }

    /// The number of an outcome.
    pub fn intern(&mut self, outcome: &Outcome) -> u32 {
        if let Some(id) = self.ids.get(outcome) {
            return *id;
        }
        let id = self.outcomes.len() as u32;
        self.outcomes.push(outcome.clone());
        self.ids.insert(outcome.clone(), id);
        id
    }

    /// Writes an execution down, if there is a journal.
    pub fn write_down(&mut self, (files, acknowledged): &Circumstances, execution: &Execution) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        journal.uses(&execution.used);
        let states = files.iter().map(|(id, s)| (id.0, s.exists, s.size));
        journal.append(Entry::new(
            (states.collect(), files.names.clone(), files.next),
            acknowledged,
            &execution.path,
            &execution.outcome,
        ));
    }

    /// Takes what an earlier exploration has found out. Returns how many of its executions are new.
    pub fn remember(&mut self, entries: &[Entry]) -> u64 {
        let mut new = 0;
        for entry in entries {
            let states = entry.files.iter().map(|(id, exists, size)| {
                let state = FileState {
                    exists: *exists,
                    size: *size,
                };
                (FileId(*id), state)
            });
            let files = Files {
                states: states.collect(),
                names: entry.names.clone(),
                next: entry.next,
            };
            let acknowledged = Acknowledged {
                operations: entry.operations,
                text: entry.text.clone(),
            };
            let trie = self.trie((Arc::new(files), acknowledged));
            let outcome = self.intern(&entry.outcome);
            if self.tries[trie.0].add(&entry.path, outcome).is_ok() {
                new += 1;
            }
        }
        new
    }
}
