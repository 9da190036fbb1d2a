//! Places in the code that events come from, as small numbers.
//!
//! A site is an instruction in a calling context. Findings are counted by site, and the model carries a site's number as its tag.

use brownout_model::Tag;
use brownout_trace::event::{ContextId, ProcessId, TargetAddr};
use rustc_hash::FxHashMap;

/// An instruction in a calling context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Whose code it is.
    pub process: ProcessId,
    /// The instruction.
    pub pc: TargetAddr,
    /// Who called.
    pub context: ContextId,
}

/// A site, and what is known about what follows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    site: Site,
    /// The first fence of the thread after a store here, once there was one.
    next_fence: Option<Tag>,
}

/// Recently used sites, by a hash of theirs: a power of two.
const RECENT: usize = 1024;

/// All sites of a run. Tag 0 is none.
#[derive(Debug)]
pub struct Sites {
    known: Vec<Known>,
    numbers: FxHashMap<Site, Tag>,
    recent: Box<[(Site, Tag); RECENT]>,
}

impl Sites {
    pub fn new() -> Self {
        let none = Site {
            process: ProcessId(0),
            pc: TargetAddr(0),
            context: ContextId(0),
        };
        let nowhere = Known {
            site: none,
            next_fence: None,
        };
        Sites {
            known: vec![nowhere],
            numbers: FxHashMap::from_iter([(none, Tag(0))]),
            recent: Box::new([(none, Tag(0)); RECENT]),
        }
    }

    /// The number of a site.
    #[inline(always)]
    pub fn number(&mut self, site: Site) -> Tag {
        let hash =
            (site.pc.0 ^ u64::from(site.context.0) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (hash >> 54) as usize % RECENT;
        let (recent, tag) = self.recent[slot];
        match recent == site {
            true => tag,
            false => self.look_up(site, slot),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, site: Site, slot: usize) -> Tag {
        let next = Tag(self.known.len() as u32);
        let tag = *self.numbers.entry(site).or_insert(next);
        if tag == next {
            self.known.push(Known {
                site,
                next_fence: None,
            });
        }
        self.recent[slot] = (site, tag);
        tag
    }

    pub fn site(&self, tag: Tag) -> Site {
        self.known[tag.0 as usize].site
    }

    pub fn next_fence(&self, tag: Tag) -> Option<Tag> {
        self.known[tag.0 as usize].next_fence
    }

    pub fn set_next_fence(&mut self, tag: Tag, fence: Tag) {
        self.known[tag.0 as usize].next_fence.get_or_insert(fence);
    }
}
