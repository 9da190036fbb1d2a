//! What is still to be done: items to follow, items that are being run, items that wait for those,
//! and how many each failure point has left.
//!
//! Invariant: an item that belongs to a failure point is in exactly one place (ready, running,
//! waiting, kept by the [sampler](super::sampler), or in the hands of the search) and counts once
//! in what is left of the point.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::item::{Item, Place};
use super::known::TrieId;
use crate::trie::NodeId;
use crate::view::{Image, Narrowed};

/// An item that is being run, on this image. What comes of it belongs to this place in a trie.
pub struct Running {
    pub item: Item,
    pub trie: TrieId,
    pub node: NodeId,
    pub image: Image,
}

/// See the module's header.
#[derive(Default)]
pub struct Queue {
    ready: Vec<Item>,
    /// By the executor's number.
    running: FxHashMap<u64, Running>,
    /// By the place in a trie that is being found out.
    waiting: FxHashMap<(TrieId, NodeId), Vec<Item>>,
    /// Items of a failure point that are not settled yet.
    left: FxHashMap<Place, usize>,
}

impl Queue {
    /// All crash states of a failure point are to be followed.
    pub fn begin(&mut self, (layer, point): Place) {
        self.left.insert((layer, point), 1);
        self.ready.push(Item {
            layer,
            point,
            narrowed: Narrowed::new(),
            bulks: BTreeMap::new(),
            retries: 0,
            ended: BTreeSet::new(),
            payer: None,
            torn_at: None,
        });
    }

    /// Nothing is ready to be followed.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The item to follow next: the newest, so that little is kept.
    pub fn pop(&mut self) -> Option<Item> {
        self.ready.pop()
    }

    /// An item that is counted already is to be followed, once more or after all.
    pub fn push(&mut self, item: Item) {
        self.ready.push(item);
    }

    /// The same for several.
    pub fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        self.ready.extend(items);
    }

    /// Parts of a failure point's states that have become items of their own.
    pub fn split_off(&mut self, place: Place, others: Vec<Item>) {
        *self.left.entry(place).or_default() += others.len();
        self.ready.extend(others);
    }

    /// A part of a failure point's states that somebody else keeps.
    pub fn count(&mut self, place: Place) {
        *self.left.entry(place).or_default() += 1;
    }

    /// One item less at a failure point. Returns whether it was the last.
    pub fn leave(&mut self, place: Place) -> bool {
        let Some(left) = self.left.get_mut(&place) else {
            return false;
        };
        *left -= 1;
        let is_last = *left == 0;
        if is_last {
            self.left.remove(&place);
        }
        is_last
    }

    /// Items of each failure point that are not settled.
    pub fn left(&self) -> &FxHashMap<Place, usize> {
        &self.left
    }

    /// The executor runs it, under this number.
    pub fn start(&mut self, id: u64, running: Running) {
        self.running.insert(id, running);
    }

    /// The executor has answered.
    pub fn take(&mut self, id: u64) -> Option<Running> {
        self.running.remove(&id)
    }

    /// What would be run for it is being run already.
    pub fn wait(&mut self, trie: TrieId, node: NodeId, item: Item) {
        self.waiting.entry((trie, node)).or_default().push(item);
    }

    /// That is over: those who wait are followed on.
    pub fn wake(&mut self, trie: TrieId, node: NodeId) {
        if let Some(waiting) = self.waiting.remove(&(trie, node)) {
            self.ready.extend(waiting);
        }
    }

    /// What is left of the failure points does not count any more.
    pub fn forget(&mut self) {
        self.clear();
        self.left.clear();
    }

    /// Nothing is to be followed any more. What is left of each failure point stays counted.
    pub fn clear(&mut self) {
        self.ready.clear();
        self.running.clear();
        self.waiting.clear();
    }
}
