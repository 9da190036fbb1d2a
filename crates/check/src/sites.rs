//! Places in the code that events come from, as small numbers.
//!
//! A site is an instruction in a calling context. Findings are counted by site, and the model
//! carries a site's number as its tag.

use brownout_model::Tag;
use brownout_trace::epochs::{CodeEpochs, Epoch};
use brownout_trace::event::{ContextId, Event, EventKind, ProcessId, TargetAddr};
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
    /// When the address meant what it means here.
    epoch: Epoch,
    /// The first fence of the thread after a store here, once there was one.
    next_fence: Option<Tag>,
    work: Work,
}

/// What a site writes back and fences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub needed: u64,
    pub needless: u64,
    pub fences: u64,
    pub needless_fences: u64,
}

/// Recently used sites, by a hash of theirs: a power of two.
const RECENT: usize = 1024;

/// All sites of a run. Tag 0 is none.
#[derive(Debug)]
pub struct Sites {
    known: Vec<Known>,
    numbers: FxHashMap<Site, Tag>,
    recent: Box<[(Site, Tag); RECENT]>,
    epochs: CodeEpochs,
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
            epoch: Epoch::default(),
            next_fence: None,
            work: Work::default(),
        };
        Sites {
            known: vec![nowhere],
            numbers: FxHashMap::from_iter([(none, Tag(0))]),
            recent: Box::new([(none, Tag(0)); RECENT]),
            epochs: CodeEpochs::default(),
        }
    }

    /// Takes note of code that comes and goes. What is executed later at the addresses of code that
    /// has gone is another site. True if some has.
    #[inline(never)]
    pub fn observe(&mut self, event: &Event<'_>) -> bool {
        if !self.epochs.observe(event) {
            return false;
        }
        let (process, gone) = match event.kind {
            EventKind::Module {
                process, addr, len, ..
            } => (process, addr.0..addr.0.saturating_add(len)),
            EventKind::ProcessStart { process, .. } => (process, 1..u64::MAX),
            _ => return false,
        };
        let has_gone = |site: &Site| site.process == process && gone.contains(&site.pc.0);
        self.numbers.retain(|site, _| !has_gone(site));
        let none = self.known[0].site;
        for (site, tag) in self.recent.iter_mut().filter(|(site, _)| has_gone(site)) {
            (*site, *tag) = (none, Tag(0));
        }
        true
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
                epoch: self.epochs.of(site.process),
                next_fence: None,
                work: Work::default(),
            });
        }
        self.recent[slot] = (site, tag);
        tag
    }

    pub fn site(&self, tag: Tag) -> Site {
        self.known[tag.0 as usize].site
    }

    /// When the site's addresses meant what they mean there.
    pub fn epoch(&self, tag: Tag) -> Epoch {
        self.known[tag.0 as usize].epoch
    }

    pub fn next_fence(&self, tag: Tag) -> Option<Tag> {
        self.known[tag.0 as usize].next_fence
    }

    /// Counts something that is done there.
    #[inline(always)]
    pub fn works(&mut self, tag: Tag) -> &mut Work {
        &mut self.known[tag.0 as usize].work
    }

    /// All sites that have written back or fenced.
    pub fn at_work(&self) -> impl Iterator<Item = (Tag, Work)> {
        let known = (0..).map(Tag).zip(&self.known);
        let all = known.map(|(tag, known)| (tag, known.work));
        all.filter(|(_, work)| work.needed + work.needless + work.fences + work.needless_fences > 0)
    }

    pub fn set_next_fence(&mut self, tag: Tag, fence: Tag) {
        self.known[tag.0 as usize].next_fence.get_or_insert(fence);
    }
}

/// Where code of libpmem and its kin is, by process.
#[derive(Debug, Default)]
pub struct LibraryCode {
    ranges: Vec<(ProcessId, TargetAddr, TargetAddr)>,
}

impl LibraryCode {
    pub fn add(&mut self, process: ProcessId, start: TargetAddr, end: TargetAddr) {
        self.ranges.push((process, start, end));
    }

    /// Something else is there now.
    pub fn replace(&mut self, process: ProcessId, start: TargetAddr, end: TargetAddr) {
        let touched = |range: &(ProcessId, TargetAddr, TargetAddr)| {
            range.0 == process && range.1 < end && start < range.2
        };
        if !self.ranges.iter().any(touched) {
            return;
        }
        let mut rest = Vec::with_capacity(self.ranges.len() + 1);
        for range in &self.ranges {
            match touched(range) {
                true => rest.extend([
                    (process, range.1, range.2.min(start)),
                    (process, range.1.max(end), range.2),
                ]),
                false => rest.push(*range),
            }
        }
        rest.retain(|(_, start, end)| start < end);
        self.ranges = rest;
    }

    /// A process is made with the code of its parent.
    pub fn fork(&mut self, parent: ProcessId, process: ProcessId) {
        let of_parent: Vec<_> = self
            .ranges
            .iter()
            .filter(|range| range.0 == parent)
            .collect();
        let copies: Vec<_> = of_parent
            .into_iter()
            .map(|(_, start, end)| (process, *start, *end))
            .collect();
        self.ranges.extend(copies);
    }

    pub fn contains(&self, process: ProcessId, pc: TargetAddr) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(whose, start, end)| *whose == process && (*start..*end).contains(&pc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_trace::event::ThreadId;

    fn happens(sites: &mut Sites, kind: EventKind<'_>) -> bool {
        sites.observe(&Event {
            thread: ThreadId(1),
            pc: TargetAddr(0),
            context: ContextId(0),
            kind,
        })
    }

    #[test]
    fn the_same_address_in_other_code_is_another_site() {
        let process = ProcessId(1);
        let site = |pc| Site {
            process,
            pc: TargetAddr(pc),
            context: ContextId(7),
        };
        let start = EventKind::ProcessStart {
            process,
            parent: ProcessId(0),
            pid: 1,
            exe: b"/none/a",
        };
        let gone = EventKind::Module {
            process,
            addr: TargetAddr(0x2000),
            len: 0x1000,
            offset: 0,
            path: b"",
        };
        let mut sites = Sites::new();
        assert!(!happens(&mut sites, start.clone()));
        let (kept, lost) = (sites.number(site(0x1000)), sites.number(site(0x2000)));
        assert!(happens(&mut sites, gone));
        assert_eq!(sites.number(site(0x1000)), kept);
        let other = sites.number(site(0x2000));
        assert_ne!(other, lost);
        assert_eq!(
            (sites.epoch(lost), sites.epoch(other)),
            (Epoch(0), Epoch(1))
        );
        assert!(happens(&mut sites, start));
        assert_ne!(sites.number(site(0x1000)), kept, "another program");
    }

    #[test]
    fn library_code_is_a_process_s_own() {
        let at = TargetAddr;
        let mut code = LibraryCode::default();
        code.add(ProcessId(1), at(0x1000), at(0x4000));
        code.fork(ProcessId(1), ProcessId(2));
        code.replace(ProcessId(2), at(0x2000), at(0x3000));
        let within = |process| {
            [0xfff, 0x1000, 0x2000, 0x3000, 0x4000]
                .map(|pc| code.contains(ProcessId(process), at(pc)))
        };
        assert_eq!(within(1), [false, true, true, true, false]);
        assert_eq!(within(2), [false, true, false, true, false]);
        assert_eq!(within(3), [false; 5]);
    }
}
